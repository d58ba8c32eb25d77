"""The built site in a real browser: read, search, turn dark; nothing asked of other machines.

Needs Debian's `chromium` (or $CHROMIUM) and the package playwright; skipped without them.
Screenshots are left in runs/screenshots."""
import functools, http.server, json, math, re, threading, pytest
from html import unescape
from pathlib import Path
from urllib.parse import quote
from conftest import PATIENCE, first_only, still

SHOTS = Path(__file__).resolve().parents[1]/"runs/screenshots"
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("chromium")]
PAGES = {"index": "index.html", "chapter": "kl.html", "ledger": "ledger.html", "glossary": "glossary.html",
         "reference": "api/ppo.html"}
QUERIES = {     # what people type -> the page that answers, which must be the first
    "kl penalty": "kl", "why is reward going down": "doctor", "gae": "ppo", "reward hacking": "reward",
    "pad token": "tokens", "beta": "kl", "k3": "kl", "length bias": "reward_tools", "judge prompt": "judge",
    "grpo": "grpo", "reward model": "reward", "install": "index", "compute_gae": "ppo", "DPO loss formula": "dpo",
    # not in docs/cards.toml in these words
    "resume training": "pipeline", "own dataset": "records",
    "RLOO baseline": "grpo", "clip ratio": "ppo", "answers never end": "doctor", "top-p": "sft", "β": "kl",
    "kl_k1": "kl", "self rewarding": "self_reward", "likelihood displacement": "dpo"}

class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_): pass

@pytest.fixture(scope="module")
def address(built):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(built[0])))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()

@pytest.fixture(params=["light", "dark"])
def page(request, browser, address):
    "A page that writes down what is asked of other machines, what is missing, and errors; none may come."
    page = browser.new_page(viewport=dict(width=1400, height=1000), color_scheme=request.param)
    page.set_default_timeout(1000 * PATIENCE)
    foreign, errors = [], []
    page.on("request", lambda r: r.url.startswith((address, "data:", "blob:")) or foreign.append(r.url))
    page.on("response", lambda r: r.status < 400 or errors.append(f"{r.status} {r.url}"))
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.on("console", lambda m: m.type != "error" or errors.append(m.text))
    page.scheme = request.param
    yield page
    page.close()
    assert not foreign, f"requests outside the machine: {foreign[:5]}"
    assert not errors, f"errors: {errors[:5]}"

@pytest.fixture
def phone(browser):
    "() -> a page as wide as a phone; they are closed in the end."
    pages = []
    def open_page(**more):
        pages.append(browser.new_page(viewport=dict(width=390, height=844), **more))
        pages[-1].set_default_timeout(1000 * PATIENCE)
        return pages[-1]
    yield open_page
    for page in pages: page.close()

def luminance(page, selector):
    r, g, b = map(int, re.findall(r"\d+", page.eval_on_selector(
        selector, "e => getComputedStyle(e).backgroundColor"))[:3])
    return .2126 * r + .7152 * g + .0722 * b

@pytest.mark.parametrize("name", first_only(PAGES))
def test_a_page_reads_well_by_day_and_by_night(page, address, name):
    page.goto(address + PAGES[name])
    page.wait_for_load_state("networkidle")
    assert page.locator("h1").count() == 1
    assert (luminance(page, "body") > 128) == (page.scheme == "light")
    wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wider <= 0, f"the page is {wider} px wider than its window"
    broken = page.eval_on_selector_all("img", "es => es.filter(e => e.loading != 'lazy' && !e.naturalWidth).map(e => e.src)")
    assert not broken, broken
    SHOTS.mkdir(parents=True, exist_ok=True)
    if name == "ledger": page.locator("[aria-label='token ledger']").first.scroll_into_view_if_needed()
    if name == "chapter": page.locator("math").nth(3).scroll_into_view_if_needed()
    still(page, page.locator("h1"))
    page.screenshot(path=SHOTS/f"site-{name}-{page.scheme}.png")

def test_search_links_and_the_dark_switch(page, address):
    page.goto(address)
    page.fill(".sidebar-search", "whitening")
    page.press(".sidebar-search", "Enter")
    page.locator("ul.search li a[href*='batches.html']").first.wait_for()
    still(page, page.locator("ul.search"))
    page.screenshot(path=SHOTS/f"site-search-{page.scheme}.png")
    page.goto(address)
    page.locator(".sidebar-tree").get_by_text("07 kl", exact=True).press("Enter")
    page.wait_for_url("**/kl.html")
    page.locator("p.run a[href*='api/kl.html']").press("Enter")
    page.wait_for_url("**/api/kl.html*")
    before = luminance(page, "body")
    for _ in range(3):                                 # automatic, then the other, then this one
        page.locator("button.theme-toggle:visible").first.click()
        if (luminance(page, "body") > 128) != (before > 128): break
    else: raise AssertionError("the switch does not change the page")

def turn(page, name, value, box):
    "A range set to a value by the keyboard, from its lowest; the page has drawn again."
    knob = box.get_by_role("slider", name=name, exact=True)
    knob.press("Home")
    low, step = float(knob.get_attribute("min")), float(knob.get_attribute("step"))
    for _ in range(round((value - low) / step)): knob.press("ArrowRight")
    assert float(knob.input_value()) == pytest.approx(value)
    return knob

def drawn_numbers(html):
    "Texts of a drawing and cells of its table, in order: numbers apart from words."
    shown = re.findall(r">([^<>]+)</(?:text|td)>", html)
    split = [(re.sub(r"[-+]?\d[\d.]*(?:e-?\d+)?", "#", unescape(x)), [float(v) for v in re.findall(r"[-+]?\d[\d.]*(?:e-?\d+)?", x)]) for x in shown]
    return [words for words, _ in split], [v for _, found in split for v in found]

def assert_drawn_as_in_python(box, want, tolerance):
    words, got = drawn_numbers(box.locator(".picture").inner_html())
    words_wanted, wanted = drawn_numbers(want)
    assert words == words_wanted
    assert got == pytest.approx(wanted, abs=tolerance, rel=2e-3)

@pytest.mark.parametrize("where", first_only(["kl", "inspectors"]))
def test_the_knobs_of_kl_turn_without_a_kernel(page, address, axe, where):
    "The estimators, the exact KL and the gradients at other settings are those of the package, number by number."
    import torch
    from rlhf_nb.show.inspectors import kl_gradients, kl_page, kl_samples
    page.goto(address + f"{where}.html")
    box = page.locator("[data-knobs]").first
    facts = json.loads(box.get_attribute("data-knobs"))
    before = box.locator("svg").get_attribute("aria-label")
    for mu, temperature, batch in ((-1.25, 1.6, 16), (0., 1., 16), (3., .4, 5)):
        for name, value in (("mu", mu), ("temperature", temperature), ("batch", batch)): turn(page, name, value, box)
        logits, direction = torch.tensor(facts["logits"]), torch.tensor(facts["direction"])
        samples = kl_samples(logits, direction, (mu, temperature), batch, torch.Generator().manual_seed(0))
        assert_drawn_as_in_python(box, kl_page(samples, kl_gradients(logits, direction, mu, temperature)), 2e-3)
        said = box.get_by_role("status").inner_text()
        assert f"exact KL {abs(samples['true'][0]):.3f}" in said and all(k in said for k in ("k1", "k2", "k3"))
    assert box.locator("svg").get_attribute("aria-label") != before
    assert axe(page, "[data-knobs]") == []
    box.locator("details summary").press("Enter")
    box.get_by_role("slider", name="mu", exact=True).press("ArrowRight")
    assert box.locator("details").evaluate("e => e.open")           # the numbers stay unfolded
    box.get_by_role("button", name="Reset").press("Enter")
    page.wait_for_function("() => document.querySelector('[data-knobs] input').value == '1.5'")
    box.scroll_into_view_if_needed()
    still(page, box)
    page.screenshot(path=SHOTS/f"site-knobs-{where}-{page.scheme}.png")

@pytest.mark.parametrize("where", first_only(["sft", "inspectors"]))
def test_the_knobs_of_sampling_turn_without_a_kernel(page, address, axe, where):
    import torch
    from rlhf_nb.show.inspectors import next_page
    from rlhf_nb.base.sampling import SamplingParams
    page.goto(address + f"{where}.html")
    box = page.locator("[data-knobs]").last
    facts = json.loads(box.get_attribute("data-knobs"))
    for t, k, p in ((.5, 0, 1.), (1.7, 4, 1.), (1., 0, .6), (.8, 12, .35), (0., 0, 1.)):
        for name, value in (("temperature", t), ("top-k", k), ("top-p", p)): turn(page, name, value, box)
        want = next_page(facts["words"], torch.tensor(facts["logits"]), SamplingParams(temperature=t, top_k=k, top_p=p))
        assert_drawn_as_in_python(box, want, 2e-3)
    turn(page, "temperature", 1.3, box)
    assert axe(page, "[data-knobs]") == []
    still(page, box)
    page.screenshot(path=SHOTS/f"site-next-{where}-{page.scheme}.png")

def test_a_page_without_scripts_keeps_its_pictures(browser, address):
    page = browser.new_page(java_script_enabled=False)
    page.goto(address + "kl.html")
    assert page.locator("[data-knobs] svg").is_visible() and page.locator("[data-knobs] input").count() == 0
    page.close()

def test_knobs_fit_a_phone(phone, address):
    page = phone()
    page.goto(address + "sft.html")
    box = page.locator("[data-knobs]").first
    box.get_by_role("slider", name="top-k", exact=True).press("ArrowRight")
    page.wait_for_function("() => document.querySelector('[data-knobs] [role=status]').textContent.startsWith('1 of')")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth") and page.evaluate(OUTSIDE) == []
    size = box.locator("svg text").first.evaluate("e => e.getBoundingClientRect().height")
    assert size >= 10, f"letters of a picture are {size} px high on a phone"
    box.scroll_into_view_if_needed()
    still(page, box)
    page.screenshot(path=SHOTS/"site-phone-knobs.png")

def test_figures_follow_the_night_and_contents_stand_beside_at_1280(page, address):
    "The corner of a figure has the colour of the page; the contents of a page are to be seen without a click, beside the text."
    import io
    from PIL import Image
    page.set_viewport_size(dict(width=1280, height=900))
    page.goto(address + "reward.html")
    toc, text = page.locator("aside.toc-drawer").bounding_box(), page.locator("article").bounding_box()
    assert text["x"] + text["width"] <= toc["x"] and toc["x"] + toc["width"] <= 1280 and page.locator(".toc-tree a").nth(1).is_visible()
    figure = page.locator("div.cell_output img").first
    figure.scroll_into_view_if_needed()
    page.wait_for_function(SEEN_PICTURES)
    still(page, figure)
    place = figure.bounding_box()
    def colour(x): return Image.open(io.BytesIO(page.screenshot(clip=dict(x=x, y=place["y"] + 2, width=2, height=2)))).convert("RGB").getpixel((0, 0))
    inside, outside = colour(place["x"] + 2), colour(place["x"] + place["width"] + 4)
    assert max(abs(a - b) for a, b in zip(inside, outside)) <= 4 and (sum(inside) > 384) == (page.scheme == "light"), (inside, outside)

def first_found(page, address, words):
    page.goto(address + "search.html?q=" + quote(words))
    page.wait_for_selector("#search-results > li")
    return page.locator("#search-results > li > a").first.get_attribute("href")

def test_the_search_finds_the_right_page_first(page, address):
    if page.scheme == "dark": pytest.skip("the same in the dark")
    found = {words: first_found(page, address, words) for words in QUERIES}
    wrong = {words: got for words, got in found.items() if got != f"{QUERIES[words]}.html"}
    assert not wrong, wrong

def test_the_search_works_on_files_while_one_types(browser, built):
    "From a disk, without a server: the places of a page, what was asked for marked, and nothing for nothing."
    page = browser.new_page(viewport=dict(width=390, height=900), color_scheme="dark")
    errors = []
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.goto((built[0]/"search.html").as_uri())
    page.get_by_role("searchbox").press_sequentially("kl penal")
    page.wait_for_function("() => document.querySelector('#search-results a')?.getAttribute('href') == 'kl.html'")
    place = page.locator("#search-results > li p a").first
    assert "#" in place.get_attribute("href") and page.locator("#search-results mark").count()
    assert "the best first" in page.get_by_role("status").inner_text()
    page.get_by_role("searchbox").fill("zzzqqq")
    page.wait_for_function("() => document.querySelector('[role=status]').innerText.startsWith('Nothing found')")
    page.get_by_role("searchbox").fill("kl penalty")
    page.locator("#search-results > li p a").first.press("Enter")
    page.wait_for_url("**/*.html#*")
    page.close()
    assert not errors

@pytest.mark.parametrize("name", first_only([*PAGES, "landing cards"]))
def test_a_phone_shows_a_page_without_scrolling_sideways(phone, address, name):
    page = phone(color_scheme="dark" if name == "chapter" else "light")
    page.goto(address + PAGES.get(name, "index.html"))
    page.wait_for_load_state("networkidle")
    wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wider <= 0, f"{name} is {wider} px wider than a phone"
    out = page.evaluate(OUTSIDE)
    assert not out, f"beyond the edge of a phone, and in nothing that scrolls: {out}"
    if name == "landing cards": page.locator(".cards li").nth(2).scroll_into_view_if_needed()
    page.wait_for_function(SEEN_PICTURES)
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS/f"site-phone-{name.replace(' ', '-')}.png")

OUTSIDE = """() => [...document.querySelectorAll('article *')].filter(e => {
    const r = e.getBoundingClientRect()
    if (!r.width || r.right <= innerWidth + 1 || !e.checkVisibility({visibilityProperty: true})) return false
    for (let p = e.parentElement; p; p = p.parentElement)
        if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(p).overflowX)) return false
    return !e.closest('svg') && getComputedStyle(e).position != 'absolute' }).slice(0, 5).map(e => e.outerHTML.slice(0, 90))"""
SEEN_PICTURES = """() => [...document.querySelectorAll('img')].filter(e => { const r = e.getBoundingClientRect()
    return r.bottom > 0 && r.top < innerHeight }).every(e => e.complete && e.naturalWidth)"""

def test_the_first_page_shows_each_chapter_as_a_picture(page, address):
    page.goto(address)
    cards = page.locator(".cards > li")
    assert cards.count() == len(list((Path(__file__).parents[1]/"nbs").glob("[0-9]*.ipynb")))
    for i in (0, 8, 18, 4, 6):
        cards.nth(i).scroll_into_view_if_needed()
        page.wait_for_function(SEEN_PICTURES)
        if i == 4: page.screenshot(path=SHOTS/f"site-cards-{page.scheme}.png")
    still(page, cards.nth(6))                               # a page that shifts under the pointer loses the click
    cards.nth(6).click(position=dict(x=60, y=60))           # the whole card is the link, its picture too
    page.wait_for_url("**/kl.html")
    page.locator("a.next-page").press("Enter")
    page.wait_for_url("**/ppo.html")
    page.locator("a.prev-page").press("Enter")
    page.wait_for_url("**/kl.html")

def test_a_button_copies_the_code_of_a_cell(page, address):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(address + "kl.html")
    cell = page.locator("div.cell_input").first
    code = cell.locator("pre").text_content().rstrip("\n")
    button = cell.get_by_role("button", name="Copy this code")
    button.focus()
    page.wait_for_function("() => getComputedStyle(document.activeElement).opacity == 1")
    button.press("Enter")
    cell.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == code and "world" in code
    assert page.locator("div.cell_output .copy").count() == 0       # what was printed is not to be run

def test_code_that_is_too_wide_scrolls_by_keys(phone, address):
    page = phone()
    page.goto(address + "kl.html")
    page.evaluate("() => { const p = [...document.querySelectorAll('article pre')].find(p => p.scrollWidth > p.clientWidth + 40); p.focus() }")
    assert page.evaluate("document.activeElement.tagName") == "PRE"
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.activeElement.scrollLeft > 0")

def test_the_report_in_a_frame_can_be_read(page, address):
    page.goto(address + "runner.html")
    page.locator("iframe").first.scroll_into_view_if_needed()
    frame = page.locator("iframe").first.element_handle().content_frame()
    frame.wait_for_selector("h1")
    grey = lambda colour: sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3
    for what in ("h1", ".failed", ".ok", "td"):
        text, ground = frame.eval_on_selector(what, "e => [getComputedStyle(e).color, getComputedStyle(document.documentElement).backgroundColor]")
        assert "rgba" not in ground and abs(grey(text) - grey(ground)) > 80, f"{what}: {text} on {ground}"
    page.screenshot(path=SHOTS/f"site-report-{page.scheme}.png")

@pytest.mark.parametrize("name", first_only(["index", "ppo", "reward", "judge", "compare", "ledger", "inspectors", "rollout_view",
                                             "runner", "api/ppo", "search"]))
def test_axe_finds_nothing_critical_or_serious(page, address, axe, name):
    page.goto(address + f"{name}.html" + "?q=kl" * (name == "search"))
    page.wait_for_load_state("networkidle")
    assert axe(page) == []

@pytest.mark.parametrize("name", first_only(["index", "kl", "sft", "world", "compare", "ledger", "inspectors", "rollout_view", "token_kl",
                                             "glossary", "papers", "api/ppo", "search"]))
def test_axe_finds_nothing_critical_or_serious_on_a_phone(phone, address, axe, name):
    for scheme in ("light", "dark"):
        page = phone(color_scheme=scheme, is_mobile=True, has_touch=True)
        page.goto(address + f"{name}.html" + "?q=kl" * (name == "search"))
        page.wait_for_load_state("networkidle")
        assert axe(page) == [], scheme

SWITCH = """async () => { const found = [], radios = [...document.querySelectorAll('[aria-label="token ledger"] > input')]
    for (let k = 0; k < 9; k++) {
        await new Promise(requestAnimationFrame)
        const began = performance.now()
        radios[(k + 1) % radios.length].click()
        await new Promise(done => requestAnimationFrame(() => { const c = new MessageChannel()
            c.port1.onmessage = done; c.port2.postMessage(0) }))
        found.push(performance.now() - began) }
    return found.sort((a, b) => a - b)[4] }"""

def test_a_ledger_draws_only_what_is_on_the_screen(browser):
    "Another channel of 16 responses of 300 tokens takes about what two take; all unfolded, those near the screen are drawn."
    from rlhf_nb.show.ledger import Ledger, ledger_page
    channels = {f"channel {k}": [math.sin(k + j) for j in range(300)] for k in range(8)}
    def milliseconds(n, unfolded=False):
        page = browser.new_page(viewport=dict(width=1280, height=900))
        page.set_content("<!doctype html>" + ledger_page({str(k): Ledger([" word"] * 300, channels, {}) for k in range(n)}))
        page.evaluate(f"document.querySelectorAll('details.r').forEach(d => {{ d.open = {str(unfolded).lower()} }})")
        page.evaluate(SWITCH)
        found = page.evaluate(SWITCH)
        drawn = page.evaluate("[...document.querySelectorAll('.t')].filter(t => t.checkVisibility({contentVisibilityAuto: true})).length")
        token = page.locator(".t").first           # a note is not cut off by what is saved
        token.hover()
        note = token.evaluate("e => { const s = getComputedStyle(e, '::before'); return [s.content.slice(0, 9), s.display != 'none'] }")
        assert note == ['"token 0:', True]
        page.close()
        return found, drawn
    (two, seen), (folded, of_folded), (every, of_every) = milliseconds(2), milliseconds(16), milliseconds(16, True)
    print(f"2 responses {two:.0f} ms; 16 {folded:.0f} ms; 16 unfolded {every:.0f} ms, {of_every} of 4800 tokens drawn")
    assert seen == of_folded == 600 and folded < 3 * two, (two, folded, of_folded)
    assert of_every <= 2400, of_every

def test_only_code_near_the_screen_is_laid_out(phone, address, built):
    "The longest page of the site: a phone lays out what it shows; anchors and the search of the browser still find the rest."
    heaviest = max(built[0].glob("*.html"), key=lambda f: f.stat().st_size)
    assert not [f.name for f in built[0].glob("*.html") if "<style>body:has(.live-" in f.read_text("utf-8")]
    page = phone()
    page.goto(address + heaviest.name)
    page.wait_for_function("() => [...document.querySelectorAll('div.cell_input pre')].some(e => !e.checkVisibility({contentVisibilityAuto: true}))")
    seen = page.evaluate("[...document.querySelectorAll('div.cell_input pre')].map(e => e.checkVisibility({contentVisibilityAuto: true}))")
    assert sum(seen) < len(seen) / 2, (sum(seen), len(seen))
    page.locator("div.cell_input pre").last.scroll_into_view_if_needed()
    page.wait_for_function("() => [...document.querySelectorAll('div.cell_input pre')].at(-1).checkVisibility({contentVisibilityAuto: true})")
