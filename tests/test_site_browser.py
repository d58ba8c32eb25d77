"""The built site in a real browser: read, search, turn dark; nothing asked of other machines.

Needs Debian's `chromium` (or $CHROMIUM) and the package playwright; skipped without them.
Screenshots are left in runs/screenshots."""
import functools, http.server, re, threading
from pathlib import Path

import pytest

from conftest import PATIENCE, still

SHOTS = Path(__file__).resolve().parents[1]/"runs/screenshots"
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("chromium")]
PAGES = {"index": "index.html", "chapter": "kl.html", "widgets": "widgets.html", "glossary": "glossary.html",
         "reference": "api/ppo.html"}

class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_): pass

@pytest.fixture(scope="module")
def address(built):
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(built[0])))
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

def luminance(page, selector):
    r, g, b = map(int, re.findall(r"\d+", page.eval_on_selector(
        selector, "e => getComputedStyle(e).backgroundColor"))[:3])
    return .2126 * r + .7152 * g + .0722 * b

@pytest.mark.parametrize("name", PAGES)
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
    if name == "widgets": page.locator("[aria-label='token ledger']").nth(1).scroll_into_view_if_needed()
    if name == "chapter": page.locator("math").nth(3).scroll_into_view_if_needed()
    still(page, page.locator("h1"))
    page.screenshot(path=SHOTS/f"site-{name}-{page.scheme}.png")

def test_search_links_and_the_dark_switch(page, address):
    page.goto(address)
    page.fill(".sidebar-search", "whitening")
    page.press(".sidebar-search", "Enter")
    page.wait_for_selector("ul.search li a")
    found = page.eval_on_selector_all("ul.search li a", "es => es.map(e => e.href)")
    assert any("memory.html" in url for url in found), found
    page.goto(address)
    page.click("text=07 · ")
    page.wait_for_url("**/kl.html")
    page.locator("p.run a[href*='api/kl.html']").click()
    page.wait_for_url("**/api/kl.html*")
    before = luminance(page, "body")
    for _ in range(3):                                 # automatic, then the other, then this one
        page.locator("button.theme-toggle:visible").first.click()
        if (luminance(page, "body") > 128) != (before > 128): break
    else: raise AssertionError("the switch does not change the page")

def test_hints_and_solutions_unfold(page, address):
    page.goto(address + "tokens.html")
    first = page.locator("details", has_text="Solution").first
    assert not first.locator("pre").first.is_visible()
    first.locator("summary").click()
    assert first.locator("pre").first.is_visible()

def test_a_ledger_answers_to_the_keyboard_without_a_script(page, address):
    page.goto(address + "widgets.html")
    ledger = page.locator("[aria-label='token ledger']").nth(1)
    ledger.locator("input[type=radio]").first.focus()
    colour = "e => [...e.querySelectorAll('.t')].map(t => getComputedStyle(t).backgroundColor).join()"
    before = ledger.evaluate(colour)
    page.keyboard.press("ArrowRight")
    assert ledger.evaluate(colour) != before
