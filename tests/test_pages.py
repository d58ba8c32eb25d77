"Pages: text that stays text, numbers beside colours, a picture that stays without a kernel, knobs."
import json, math, re, time, pytest
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from ipywidgets import HTML as Page
from matplotlib import pyplot as plt
from rlhf_nb.show import live_view
from rlhf_nb.show.dashboard import Dashboard, Sweep, dashboard_page, panel, sweep_page
from rlhf_nb.show.labels import LabelSession, label_page
from rlhf_nb.show.ledger import Ledger, ledger_page
from rlhf_nb.show.live_view import LiveView, knob, redrawn, still_page, with_sliders
from rlhf_nb.show.pages import brief, drawing, escape_text, html_table, plain_number, signed, svg_text, tint, without_rest

BAD = '</div></style><script>alert("x")</script>&amp;<img src=x onerror=\'y\'>" onfocus="z\n\u202e\ud800'

class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.attrs, self.open = [], "", [], []
        self.feed(page)
    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attrs += attrs
        if tag not in ("input", "br", "img"): self.open.append(tag)
    def handle_endtag(self, tag): assert self.open.pop() == tag
    def handle_data(self, data): self.text += data

def check_page(page):
    "Nothing of BAD became a tag or an attribute; every tag is closed; UTF-8 can write it."
    tags = Tags(page)
    assert not {"script", "img"} & set(tags.tags) and not tags.open
    assert not any(k.startswith("on") for k, _ in tags.attrs)
    assert not re.search(r"http|url\(|@import", page)                  # nothing from outside
    page.encode()
    return tags

def plain(page):
    "What is left on a page that takes style, SVG, forms and attributes away."
    for gone in ("style", "svg"): page = re.sub(rf"<{gone}.*?</{gone}>", "", page, flags=re.S)
    return re.sub(r"<(\w+)[^>]*>", r"<\1>", page)

def test_what_a_model_generates_never_becomes_a_tag():
    session, ledger = LabelSession([(BAD, BAD, BAD + "2")], "unused.jsonl"), Ledger([BAD, "ok"], {BAD: [1., -1.]}, {BAD: (1., 1.)})
    dashboard = Dashboard([BAD], rows=[{BAD: 1.}], samples=[BAD], note=BAD, state=BAD)
    for page in (ledger_page({BAD: ledger, "b": ledger}), label_page(session, BAD),
                 dashboard_page(dashboard), panel(BAD, {BAD: ([0, 1], [1., 2.])}),
                 sweep_page(Sweep(None, [BAD], {BAD: [{BAD: 1.}]})), html_table([BAD], [[BAD]]),
                 drawing(BAD, (9, 9), svg_text(1, 1, BAD))):
        assert "alert(" in check_page(page).text + page             # shown, as text
    assert escape_text("a\nb") == "a⏎b" and escape_text("\u202e") == r"\u202e" and escape_text("Grüße 你好") == "Grüße 你好"
    assert escape_text("👩‍🔬\n") == "👩‍🔬⏎"                                    # of three code points, one of them a joiner

@pytest.mark.parametrize("write, pairs", [
    (signed, {0.: "0", -2e-7: "0", 3e-6: "+3e-6", -3e-6: "-3e-6", -.0049: "-5e-3", .005: "+0.01", math.inf: "+inf", math.nan: "–"}),
    (brief, {.5: "0.5", 1234.5: "1234", 2.23e-6: "2.2e-06", 0.: "0", .00704: "0.007", 2e6: "2e+06"}),
    (plain_number, {None: "–", .12345: "0.1235", 7: "7", "<b>": "&lt;b&gt;", math.nan: "–"})])
def test_numbers_have_the_digits_that_fit(write, pairs): assert {x: write(x) for x in pairs} == pairs

def test_one_colour_has_one_meaning():
    assert tint(2., 2.)[:7] == "#ee9a57" == tint(.1, 2.)[:7] and tint(-2., 2.)[:7] == "#5b8fbe"
    assert tint(2., 2.)[7:] > tint(1., 2.)[7:] > tint(0., 2.)[7:] == "00" == tint(0., 0.)[7:] and tint(math.nan, 2.) == "#8884"

def test_a_view_leaves_a_page_and_follows_its_controls(monkeypatch):
    shown, updates = [], []
    def display(what, **options):
        shown.append(what)
        return SimpleNamespace(update=updates.append)
    monkeypatch.setattr(live_view, "display", display)
    page = Page("<b>one</b>")
    view = LiveView([page], lambda: page.value)
    view._ipython_display_()
    first, live = shown
    u = view.kept[0][0]
    assert "<b>one</b>" in first.data and f'id="{u}"' in first.data and f"live-{u}" in view._dom_classes
    assert live["application/vnd.jupyter.widget-view+json"]["model_id"] == view.outer.model_id and view.outer.children[0] is view
    assert live["text/plain"] == "Run this cell for live controls."                # GitHub shows this, under the page
    page.value = "two"
    view.keep()
    assert "two" in updates[0].data and f'id="{u}"' in updates[0].data
    view._ipython_display_()                                                # shown again: a place of its own
    assert len({u for u, _ in view.kept}) == 2
    twin = still_page(ledger_page({"": Ledger(["a"], {"r": [1.]}, {})}), "v1")
    assert not re.search(r"\bl[0-9a-f]{8}\b", twin) and re.search(r'id="s[0-9a-f]{8}-0"', twin)  # two radio groups

def test_what_a_drawing_refuses_is_told_and_the_next_value_draws():
    field = knob("n", (1, 0, 9, 1))
    def draw():
        if field.value > 5: raise ValueError("<b>five at most")
        return f"n is {field.value}"
    view = redrawn([field], draw, lambda page: [field, page], lambda page: f"<i>{page}</i>")
    seen = [view.still()]
    for field.value in (7, 3): seen.append(view.still())
    assert seen == ["<i>n is 1</i>", "<i><p>&lt;b&gt;five at most</p></i>", "<i>n is 3</i>"]

def test_a_slider_that_rounds_badly_leaves_the_number_as_it_is():
    "A browser's slider says .7999999999999999 where its step is .1 from .3."
    for span, said, want in (((.8, .3, 3., .1), .7999999999999999, .8), ((.5, 0., 1., .001), .1234000000000001, .1234),
                             ((16, 1, 64, 1), 17, 17)):
        field, slider = with_sliders([knob("temperature", span)]).children[0].children
        slider.value = said
        assert field.value == want and type(field.value) is type(want)
        assert field.description == "temperature" and "by-mouse" in slider._dom_classes    # keys and names are the field's

def test_a_frame_is_cheap_and_leaves_no_figure():
    rows = [{f"m{k}": math.sin(i / 50 + k) for k in range(8)} for i in range(2000)]
    dashboard = Dashboard([f"m{k}" for k in range(8)], rows=rows, samples=["a b"] * 2)
    dashboard_page(dashboard)
    before, began = len(plt.get_fignums()), time.process_time()
    for _ in range(5): dashboard_page(dashboard)
    assert (time.process_time() - began) / 5 < .06           # 5 ms on a quiet machine, see benchmarks
    assert len(plt.get_fignums()) == before
    seen = json.loads((Path(__file__).parents[1]/"benchmarks/results/widgets.json").read_text("utf-8"))
    assert max(seen["ms_per_frame"].values()) < 5 and seen["figures_left_open"] == 0       # what was measured
    loop = seen["dashboard_on_a_tiny_ppo_loop"]
    assert loop["paired_overhead_median"] < .02 and loop["share_in_callback"] < .02

@pytest.mark.parametrize("name, nats", [("KL", 1), ("train/approx_kl", 1), ("k1", 1), ("k2, A", 1), ("k3", 1), ("exact", 1), ("largest token", 1),
                                        ("lr", 0), ("k4", 0), ("not exact", 0), ("exactly", 0)])
def test_what_float32_leaves_is_0_of_a_kl_alone(name, nats):
    assert without_rest(name, [-9e-7, 9e-7, 1.1e-6]) == ([0., 0., 1.1e-6] if nats else [-9e-7, 9e-7, 1.1e-6])
