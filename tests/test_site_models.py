"What moves on the site without a kernel, on a small page of its own: the numbers are those of the package."
import json, re, sys, pytest, torch
from pathlib import Path
from conftest import PATIENCE
from rlhf_nb.base.models import load_bundled
from rlhf_nb.show.inspectors import prefix_scores
from rlhf_nb.tokens import make_seqs
from rlhf_nb.worlds.world_text import TEST, prompt_ids
from test_site_browser import assert_drawn_as_in_python

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT/"docs"))
import moving
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("chromium")]

def write_place(folder): # the pages of what moves
    (folder/"models.js").write_text(moving.models_js(), "utf-8")
    for name in ("model.js", "knobs.js", "site.css"): (folder/name).write_text((ROOT/"docs/static"/name).read_text("utf-8"), "utf-8")
    (folder/"model.html").write_text('<!doctype html><html lang="en"><head><meta charset="utf-8"><title>t</title><link rel="stylesheet" href="site.css">'
        f'<script defer src="model.js"></script></head><body><main><h1>t</h1>{moving.model_block()}</main></body></html>', "utf-8")
    for name, blocks in moving.BLOCKS.items(): (folder/f"{name}.html").write_text('<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<title>t</title><meta name="viewport" content="width=device-width"><link rel="stylesheet" href="site.css"><script defer src="knobs.js"></script></head>'
        f'<body><main><h1>t</h1>{"".join(b() for _, _, b in blocks)}</main></body></html>', "utf-8")
    return folder

@pytest.fixture(scope="module")
def place(tmp_path_factory): return write_place(tmp_path_factory.mktemp("page"))

def test_the_loss_laboratory_has_the_gradients_of_training(browser, place, axe):
    "Each bar at other settings is the gradient of the functions that train; the settings stand in the address."
    page = browser.new_page(viewport=dict(width=390, height=900), color_scheme="dark")
    page.goto((place/"token_loss.html").as_uri())
    box = page.locator("[data-knobs]")
    for at in ((1.55, 1., 8, .5, .3), (.55, -1.3, 20, -2., 1.), (2.95, -.7, 1, 3.1, .5), (.3, 2., 64, 3.9, 2.), (1., 0., 3, 0., .1)):
        values = dict(zip(("ratio", "advantage", "length", "gap", "beta"), at))
        page.evaluate("""values => { const f = document.querySelector('form.knobs')
            for (const x of f.querySelectorAll('input')) x.value = values[x.name]
            f.dispatchEvent(new Event('input')) }""", values)
        assert_drawn_as_in_python(box, moving.losses_page(values), 2e-3)
    box.get_by_role("slider", name="ratio").press("ArrowRight")
    assert "#losses=1.05_0_3_0_0.1" in page.evaluate("location.href")
    shared = browser.new_page()
    shared.goto((place/"token_loss.html").as_uri() + "#losses=0.55_-1.3_20_-2_1")
    want = moving.losses_page(dict(ratio=.55, advantage=-1.3, length=20, gap=-2., beta=1.))
    assert_drawn_as_in_python(shared.locator("[data-knobs]"), want, 2e-3)
    assert axe(page, ".picture") == []
    page.screenshot(path=ROOT/"runs/screenshots/site-losses.png")
    for x in (page, shared): x.close()

SET = """([n, values]) => { const f = document.querySelectorAll('form.knobs')[n]          // -> how often each picture was drawn
    const seen = [...document.querySelectorAll('[data-knobs] .picture')].map(picture => {
        const o = new MutationObserver(() => 0); o.observe(picture, {childList: true}); return o })
    for (const x of f.querySelectorAll('input')) if (x.name in values) x.value = values[x.name]
    f.dispatchEvent(new Event('input')); return seen.map(o => o.takeRecords().length) }"""
PICTURES = {    # page -> (which of it, its function, values of the sliders, powers already taken below)
    "best_policy": [(0, moving.tree_page, dict(beta=b)) for b in (-.8, -.3, .4, 1.5)] + [(1, moving.tree_page, dict(n=n)) for n in (1, 2, 33, 256)],
    "ppo": [(0, moving.clip_page, dict(cliprange=e, ratio=r)) for e, r in ((.2, 1.5), (.35, .5), (.6, 1.25), (.05, 1.))],
    "grpo": [(0, moving.group_page, {"answers": k, "right": r, "tokens if right": n, "tokens if wrong": m})
             for k, r, n, m in ((8, 3, 5, 29), (2, 1, 1, 32), (6, 0, 4, 9), (5, 5, 11, 2), (32, 31, 7, 7))],
    "dpo": [(0, moving.displaced_page, dict(never=v, steps=s)) for v, s in ((-.4, 100), (.7, 100), (-.9, 13), (0., 0))],
    "off_policy": [(0, moving.lag_page, dict(lag=k, answers=n)) for k, n in ((0, 4), (3, 6), (5, 14), (8, 9))]}

def of_markup(html): return [float(x) for x in re.findall(r"(?<![\w#-])-?\d[\d.]*(?:e-?\d+)?", re.sub(r'fill="#\w+"', "", html))]

@pytest.mark.parametrize("name", PICTURES)
def test_a_chapters_picture_moves_in_the_page_as_the_package_computes_it(browser, place, axe, name):
    "Each number and each shape, at settings far from the first; they stand in the address, which opens as it was."
    page = browser.new_page(viewport=dict(width=390, height=844), color_scheme="dark")
    errors = []
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.goto((place/f"{name}.html").as_uri())
    for which, draw, values in PICTURES[name]:
        box = page.locator("[data-knobs]").nth(which)
        knobs = json.loads(box.get_attribute("data-knobs"))["knobs"]
        drawn = page.evaluate(SET, [which, values])
        assert drawn == [int(k == which) for k in range(len(drawn))]       # once, before the event returns, and no other one
        powers = {k: base[0]**values[k] if base else values[k] for k, *_, base in [(k[0], k[1:], k[5:]) for k in knobs]}
        want = draw(powers)
        assert_drawn_as_in_python(box, want, 2e-3)
        assert of_markup(box.locator(".picture").inner_html()) == pytest.approx(of_markup(want), abs=.11, rel=2e-3)
        assert box.get_by_role("status").inner_text() == box.locator("svg").get_attribute("aria-label")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth") and axe(page, ".picture") == []
    shown, address = box.locator("svg").inner_html(), page.evaluate("location.href")
    again = browser.new_page()
    again.goto(address)
    assert again.locator("[data-knobs]").nth(which).locator("svg").inner_html() == shown
    if which: assert "tree=1.5" in address and again.locator("[data-knobs] svg").first.inner_html() == page.locator("[data-knobs] svg").first.inner_html()
    box.get_by_role("button", name="Reset").press("Enter")
    page.wait_for_function("([a]) => location.href != a", arg=[address])
    page.screenshot(path=ROOT/f"runs/screenshots/site-moving-{name}.png")
    for x in (page, again): x.close()
    assert not errors

def test_the_pictures_are_those_of_the_chapters():
    "At the first values: the tree of 06 at β = .5, the three words of 10 as its cell prints them, the table of 20 at lag 3."
    def printed(notebook, cell):
        nb = json.loads((ROOT/f"nbs/{notebook}.ipynb").read_text("utf-8"))
        return "".join("".join(o.get("text", "")) for c in nb["cells"] if c["id"] == cell for o in c["outputs"])
    words = re.findall(r"(\w+) +([\d.]+) -> ([\d.]+)", printed("10_dpo", "razin"))
    assert len(words) == 3 and all(f"{w} {a} to {b}" in moving.displaced_page(dict(never=-.4, steps=100)) for w, a, b in words)
    section = printed("20_off_policy", "bias").partition("three steps older")[2]
    for how, b, v, angle in moving.lag_table()[3]:
        got = re.search(rf"^ +{re.escape(how)} +([\d.]+) +([\d.]+) +([\d.]+)", section, re.M)
        assert [float(x) for x in got.groups()] == pytest.approx([b, v, angle], abs=.051) and float(got[1]) == pytest.approx(b, abs=5.1e-4)
    from rlhf_nb.best_policy import optimal_policy
    c = moving.tree_world()
    assert f"beta log Z {.5 * optimal_policy(c['ref_logp'], c['reward'], .5)[1]:+.2f}" in moving.tree_page(dict(beta=.5))

@pytest.fixture(params=["light", "dark"])
def page(request, browser, place):
    page = browser.new_page(viewport=dict(width=1000 if request.param == "light" else 390, height=900), color_scheme=request.param)
    page.set_default_timeout(1000 * PATIENCE)
    errors = []
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.goto((place/"model.html").as_uri())                        # from a disk, without a server
    page.wait_for_selector("[data-ready]")
    yield page
    page.close()
    assert not errors

def test_the_models_in_the_page_are_those_of_transformers(page):
    "Logits and scores after every token to 1e-4, of ids that no prompt resembles."
    ids = torch.randint(3, 200, (2, 40), generator=torch.Generator().manual_seed(0))
    for name in ("sft", "base", "reward"):
        model = load_bundled(name)[0].float()
        for row in ids:
            with torch.no_grad():
                if name == "reward": want = torch.tensor(prefix_scores(model, make_seqs([row.tolist()], [[]], 0)))[:, None]
                else: want = model(input_ids=row[None]).logits[0]
            got = page.evaluate("async ([name, ids]) => (await rlhfPage.load())[name].read(ids).map(x => [...x])", [name, row.tolist()])
            assert torch.tensor(got).shape == want.shape and (torch.tensor(got) - want).abs().max() < 1e-4, name

def test_the_words_are_those_of_the_tokenizer(page):
    _, tokenizer = load_bundled("sft")
    for q in TEST[:6]:
        assert page.evaluate("async q => (await rlhfPage.load()).tokenizer.prompt(q)", q.text) == prompt_ids(tokenizer, q)
    text = "What a lovely question! it eats 3 zzz."
    assert page.evaluate("async t => (await rlhfPage.load()).tokenizer.encode(t)", text) == tokenizer(text, add_special_tokens=False)["input_ids"]

def test_samples_of_the_page_follow_the_policy(page):
    "The first words of 400 samples have the frequencies of the model, within four standard errors."
    model, tokenizer = load_bundled("sft")
    prompt = prompt_ids(tokenizer, TEST[0])
    with torch.no_grad(): logits = model.float()(input_ids=torch.tensor([prompt])).logits[0, -1]
    logits[0] = -torch.inf
    p = logits.softmax(-1)
    firsts = page.evaluate("""async prompt => { const kit = await rlhfPage.load(); let s = 7
        const random = () => (s = (s * 16807) % 2147483647) / 2147483647
        return Array.from({length: 400}, () => rlhfPage.sample(kit.sft, prompt, 1, random, 1)[0]) }""", prompt)
    for i in p.topk(4).indices.tolist():
        share, error = firsts.count(i) / 400, (p[i] * (1 - p[i]) / 400).sqrt().item()
        assert abs(share - p[i].item()) < 4 * error, (tokenizer.decode([i]), share, p[i].item())

def test_the_first_screen_answers_while_one_types(page, axe):
    _, tokenizer = load_bundled("sft")
    rm, _ = load_bundled("reward")
    field, status = page.get_by_label("Your answer"), page.get_by_role("status")
    field.fill("It eats berries.")
    q = TEST[:12][0]
    ids = prompt_ids(tokenizer, q) + tokenizer("It eats berries.", add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    with torch.no_grad(): want = prefix_scores(rm.float(), make_seqs([ids], [[]], 0))
    assert float(page.locator("[data-ready]").get_attribute("data-ready")) == pytest.approx(want[-1], abs=1e-4)
    steps = [float(x.replace("−", "-")) for x in page.locator(".token small").all_inner_texts()]
    assert steps == pytest.approx([b - a for a, b in zip(want[-len(steps) - 1:], want[-len(steps):])], abs=.0051)
    field.press("End")
    field.press_sequentially(" zzz")
    assert "1 words that the model does not know" in status.inner_text()
    before = page.locator(".token").count()
    field.fill("It")
    page.locator(".next button").first.press("Enter")
    assert page.locator(".token").count() == 3 < before
    page.get_by_role("button", name="Let the SFT model answer").press("Enter")
    said = page.locator("form.model > p:last-child > span")       # not the "end 12%" that may stand behind a button of .next
    page.wait_for_function("e => e.textContent.startsWith('best of 8')", arg=said.element_handle())
    page.locator("details summary").press("Enter")
    assert page.get_by_role("region", name="numbers of each token").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert axe(page) == []
    (ROOT/"runs/screenshots").mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ROOT/f"runs/screenshots/site-model-{page.viewport_size['width']}.png")
