"What moves on the site without a kernel, on a small page of its own: the numbers are those of the package."
import json, re, sys, pytest, torch
from functools import partial
from pathlib import Path
from conftest import PATIENCE
from rlhf_nb.base.batches import PreferencePairs, chat_ids
from rlhf_nb.base.learning import TrainConfig, make_trainer, train_step
from rlhf_nb.base.models import load_bundled
from rlhf_nb.dpo import dpo_loss, log_ratio_gap, make_pair_loss, pair_logprobs, precompute_ref_logprobs
from rlhf_nb.base.sampling import SamplingParams, generate
from rlhf_nb.show.inspectors import prefix_scores
from rlhf_nb.tokens import make_seqs
from rlhf_nb.worlds.world_text import TEST, judge_prompt, prompt_ids
from test_site_browser import assert_drawn_as_in_python

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT/"docs"))
import moving
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("chromium")]

def write_place(folder): # the pages of what moves
    (folder/"models.js").write_text(moving.models_js(), "utf-8")
    for name in ("model.js", "train.js", "knobs.js", "site.css"): (folder/name).write_text((ROOT/"docs/static"/name).read_text("utf-8"), "utf-8")
    (folder/"model.html").write_text('<!doctype html><html lang="en"><head><meta charset="utf-8"><title>t</title><link rel="stylesheet" href="site.css">'
        f'<script defer src="model.js"></script></head><body><main><h1>t</h1>{moving.model_block()}</main></body></html>', "utf-8")
    (folder/"train.html").write_text('<!doctype html><html lang="en"><head><meta charset="utf-8"><title>t</title><meta name="viewport" content="width=device-width">'
        '<link rel="stylesheet" href="site.css"><script defer src="model.js"></script><script defer src="train.js"></script></head>'
        f'<body><main><h1>t</h1>{moving.train_block()}</main></body></html>', "utf-8")
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
    for name in ("sft", "base", "reward", "judge"):
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
    asked = page.get_by_label("Question")
    asked.fill("Does the zebra fly?")                         # any words, not only those of the list
    assert "3 words that the model does not know" in status.inner_text()
    before = page.locator("[data-ready]").get_attribute("data-ready")
    asked.fill(q.text)
    assert page.locator("[data-ready]").get_attribute("data-ready") != before
    before = page.locator(".token").count()
    field.fill("It")
    page.locator(".next button").first.press("Enter")
    assert page.locator(".token").count() == 3 < before
    page.get_by_role("button", name="Let the SFT model answer").press("Enter")
    said = page.locator("form.model > p:last-child > span")       # not the "end 12%" that may stand behind a button of .next
    page.wait_for_function("e => e.textContent.startsWith('best of 8')", arg=said.element_handle())
    field.fill("It eats berries.")
    page.get_by_role("button", name="Ask the judge").press("Enter")
    judge, _ = load_bundled("judge")
    reply = generate(judge.float().eval(), [chat_ids(tokenizer, judge_prompt(q, "It eats berries."))], tokenizer, SamplingParams(temperature=0.), torch.Generator())[0]
    words = tokenizer.decode(reply.ids[0][reply.response_mask[0]].tolist(), skip_special_tokens=True).strip()
    assert said.inner_text() == f"The judge says: {words}" and "Score:" in words
    page.locator("details summary").press("Enter")
    assert page.get_by_role("region", name="numbers of each token").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert axe(page) == []
    (ROOT/"runs/screenshots").mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ROOT/f"runs/screenshots/site-model-{page.viewport_size['width']}.png")

# ---- DPO in the page
def preference_pairs(pairs): # of ids, as the page has them
    return PreferencePairs(*[make_seqs([p["prompt"] for p in pairs], [p[side] for p in pairs], 0) for side in ("chosen", "rejected")])

@pytest.fixture
def learning(browser, place):
    "The page of the ten labels on a phone at night, its model loaded."
    page = browser.new_page(viewport=dict(width=390, height=844), color_scheme="dark")
    page.set_default_timeout(1000 * PATIENCE)
    errors = []
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.goto((place/"train.html").as_uri())
    page.wait_for_selector("[data-train][data-ready]")
    yield page
    page.close()
    assert not errors

def test_training_in_the_page_is_that_of_the_package(learning):
    "The gradient where policy and reference differ; then the losses and weights of five steps, warm-up, clipping and decay among them."
    g = torch.Generator().manual_seed(0)
    def draw(n): return torch.randint(3, 213, (n,), generator=g).tolist()
    pairs = [dict(prompt=draw(4 + k % 5), chosen=draw(3 + 2 * k) + [2], rejected=draw(12 - k) + [2]) for k in range(10)]
    policy, other = load_bundled("sft")[0].float().eval(), load_bundled("base")[0].float().eval()
    data, loss_fn = precompute_ref_logprobs(policy, preference_pairs(pairs)), make_pair_loss(partial(dpo_loss, beta=.3))
    loss, n, _ = loss_fn(other, data)
    (loss / n).backward()
    got = learning.evaluate("""async ([pairs, ref]) => { const kit = await rlhfPage.load(), { train, gradient } = rlhfTrain, losses = []
        const apart = await gradient(kit.base, pairs.map((p, i) => ({...p, ref: ref[i]})), .3)
        const { model } = await train(kit.sft, pairs, {beta: .3, steps: 5}, (_, found) => { losses.push(found.loss) })
        const plain = x => Object.fromEntries(Object.entries(x).map(([k, v]) => [k, [...v]]))
        return JSON.stringify({ loss: apart.loss, grads: plain(apart.grads), losses, weights: plain(model.w) }) }""",
        [pairs, torch.stack([data.ref_chosen, data.ref_rejected], 1).tolist()])
    got = json.loads(got)
    def assert_near(found, wanted, tolerance):
        assert len(found) == len(wanted)
        for name, want in wanted.items():
            x = torch.tensor(found[name.replace("lm_head", "embed_out")])
            assert x.shape == want.flatten().shape and (x - want.flatten()).abs().max() < tolerance, name
    assert got["loss"] == pytest.approx((loss / n).item(), abs=1e-5)
    assert_near(got["grads"], {k: p.grad for k, p in other.named_parameters()}, 1e-4)
    trainer = make_trainer(policy, TrainConfig(n_steps=5))
    policy.eval()                                                # no dropout
    losses = [train_step(trainer, data, loss_fn)["loss"] for _ in range(5)]
    assert losses[0] > 10 * losses[-1] and max(r["grad_norm"] for r in trainer.log.rows) > 1
    with torch.no_grad(): losses.append((loss_fn(policy, data)[0] / n).item())
    assert got["losses"] == pytest.approx(losses, abs=1e-5)
    assert_near(got["weights"], {k: p.detach() for k, p in policy.named_parameters()}, 1e-4)

def test_ten_labels_train_the_model_in_the_page(learning, axe):
    "By keyboard: labels, one taken back, a stopped run, a whole one; the margins and the KL are the package's for the weights that came out."
    page, box = learning, learning.locator("[data-train]")
    status, go = page.get_by_role("status"), page.get_by_role("button", name="Train on these labels")
    left, right = page.locator(".answers button").all()
    assert go.is_disabled() and "Pair 1 of 10" in page.locator(".asked").inner_text() and left.inner_text() != right.inner_text()
    first = right.inner_text()
    right.press("Enter")
    assert "1 of 10 pairs have a label" in status.inner_text() and "Pair 2 of 10" in page.locator(".asked").inner_text()
    left.dblclick()                                              # is one label
    assert box.get_attribute("data-labels") == "2" and "Pair 3 of 10" in page.locator(".asked").inner_text()
    for _ in range(2): page.get_by_role("button", name="Back").press("Enter")
    assert right.get_attribute("aria-pressed") == "true" and right.inner_text() == first and left.get_attribute("aria-pressed") == "false"
    assert page.evaluate("document.activeElement == document.querySelector('.answers button')")        # not lost with the button that was pressed
    left.press("Enter")
    page.get_by_role("button", name="Back").press("Enter")
    assert left.get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="The shorter one for the rest").press("Enter")
    assert box.get_attribute("data-labels") == "10" and axe(page) == []
    page.get_by_label("Steps", exact=True).select_option("5")
    page.get_by_label("β").select_option("0.3")
    go.press("Enter")
    page.wait_for_function("() => document.querySelector('progress').value >= 1")
    page.get_by_role("button", name="Stop").press("Enter")      # the page listens while it computes
    page.wait_for_selector("[data-trained]")
    assert 1 <= int(box.get_attribute("data-trained")) < 5
    go.press("Enter")
    page.wait_for_selector("[data-trained='5']")
    assert "after 5 steps" in status.inner_text() and page.get_by_role("progressbar", name="training").get_attribute("value") == "5"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth") and axe(page) == []
    page.screenshot(path=ROOT/"runs/screenshots/site-ten-labels.png", full_page=True)
    got = json.loads(page.evaluate("""async () => { const { model, data } = rlhfTrain.last, kit = await rlhfPage.load(), [{ prompt, chosen }] = data
        return JSON.stringify({ data: data.map(({ prompt, chosen, rejected }) => ({ prompt, chosen, rejected })), kl: rlhfTrain.kl(model, kit.sft, prompt, chosen),
                 weights: Object.fromEntries(Object.entries(model.w).map(([k, v]) => [k, [...v]])) }) }"""))
    (start, tokenizer), policy = load_bundled("sft"), load_bundled("sft")[0].float().eval()
    start.float().eval()
    assert tokenizer.decode(got["data"][0]["rejected"][:-1]).strip() == first and all(len(p["chosen"]) <= len(p["rejected"]) for p in got["data"][2:])
    with torch.no_grad():
        for k, p in policy.named_parameters(): p.copy_(torch.tensor(got["weights"][k.replace("lm_head", "embed_out")]).view_as(p))
        pairs = preference_pairs(got["data"])
        now, was = pair_logprobs(policy, pairs), pair_logprobs(start, pairs)
        y = pairs.chosen[[0]]
        each = [m(input_ids=y.ids).logits[0, :-1][y.response_mask[0, 1:]].index_fill(1, torch.tensor([0]), -torch.inf).log_softmax(-1) for m in (policy, start)]
    want = torch.stack([.3 * log_ratio_gap(*now, *was), now[0] - was[0], now[1] - was[1]], 1)
    cells = [[float(x.replace("−", "-")) for x in row.locator("td").all_inner_texts()] for row in box.locator("tbody tr").all()]
    assert torch.tensor([c[1:] for c in cells]).sub(want).abs().max() < .0051 and all(c[0] == 0 for c in cells) and want[:, 0].mean() > .1
    assert got["kl"] == pytest.approx((each[0].exp() * (each[0] - each[1])).nan_to_num().sum().item(), abs=1e-3)
    both = page.locator(".both")
    assert both.locator("li").count() == 6
    before = both.inner_text()
    page.get_by_role("button", name="Sample again").press("Enter")
    assert both.inner_text() != before
    page.get_by_role("button", name="Other answers").press("Enter")
    assert box.get_attribute("data-labels") == "0" and go.is_disabled() and page.locator(".found").inner_text() == ""
