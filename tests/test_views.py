"The pictures: pure, nothing cut or overlapping, ragged data refused. No display needed."
import inspect, math, re, struct, sys, matplotlib
from functools import cache
from pathlib import Path
from xml.etree import ElementTree
matplotlib.use("Agg")
import pytest, torch
from matplotlib import pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from torch import tensor
from rlhf_nb.tokens import make_seqs
from rlhf_nb.show.views import (BLUE, GREY, ORANGE, STYLE, bars, calibration_plot, curves,
    hist, lines, course_map, scatter, snapshot, strip, token_strip)

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT/"scripts"))
import draw_map

NAN = math.nan

class Tokenizer:
    words = ["<pad>", "<eos>", " who", "purrs", "$", "_x_", "\n", " ", "antidisestablishment", "{b}"]
    def decode(self, ids): return "".join(self.words[i] for i in ids)

@pytest.fixture
def seqs(): return make_seqs([[2, 3], [4]], [[5, 6, 7, 1], [8, 1]], 0)

def log(n=30): return [{"step": i, "loss": 1 / (i + 1), **({"valid": .5} if i % 10 == 0 else {})} for i in range(n)]

FIGURES = {
    "strip": lambda s: strip([["a", "b"], ["c", ""]], tensor([[1., -2.], [0., NAN]]), ["x", "long name"]),
    "long strip": lambda s: strip([["word"] * 40] * 3, torch.randn(3, 40), ["a", "b", "c"]),
    "odd tokens": lambda s: token_strip(Tokenizer(), s, torch.ones(2, 6)),
    "plain tokens": lambda s: token_strip(Tokenizer(), s),
    "curves": lambda s: curves(log(), ["loss", "valid", "loss", "loss"]),
    "lines": lambda s: lines([1, 2, 4], {"a": [1, NAN, 3], "a much longer name": [3, 2, 1]}, "n", "y", True),
    "hist": lambda s: hist({"a": torch.randn(50), "b": tensor([1., NAN])}, "x"),
    "bars": lambda s: bars(["a label of some length", "$b_1$"], {"x": [-1., 2.], "y": [NAN, 30000.]}, "x"),
    "scatter": lambda s: scatter([1, NAN, 3], [1, 2, 3], "x", "y"),
    "calibration": lambda s: calibration_plot([.1, .9], [0., 1.], [3, 0]),
}

def texts_of(fig): # every visible text with its box in pixels
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    draw = canvas.get_renderer()
    found = fig.findobj(lambda a: isinstance(a, matplotlib.text.Text) and a.get_visible() and a.get_text().strip())
    hidden = {t for ax in fig.axes if not ax.axison for axis in (ax.xaxis, ax.yaxis)
              for t in axis.findobj(matplotlib.text.Text)}
    shown = [t for t in found if t not in hidden]
    for ax in fig.axes:                # ticks outside the limits are not drawn
        for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
            if low > high: low, high = high, low
            for at, label in zip(axis.get_ticklocs(), axis.get_ticklabels()):
                if not low <= at <= high and label in shown: shown.remove(label)
    return [(t, t.get_window_extent(draw)) for t in shown]

@pytest.mark.parametrize("name", FIGURES)
def test_a_view_leaves_nothing_behind_cuts_nothing_and_covers_no_text(seqs, name):
    plt.close("all")
    rc_before, fig = dict(plt.rcParams), FIGURES[name](seqs)
    assert isinstance(fig, Figure) and not plt.get_fignums()             # shown once, by return
    assert dict(plt.rcParams) == rc_before and fig.dpi == STYLE["figure.dpi"]
    texts = texts_of(fig)
    for i, (one, a) in enumerate(texts):
        assert a.x0 >= -1 and a.y0 >= -1 and a.x1 <= fig.bbox.x1 + 1 and a.y1 <= fig.bbox.y1 + 1, one
        for other, b in texts[:i]:
            wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
            assert wide < 1.5 or high < 1.5, f"{one.get_text()!r} over {other.get_text()!r}"
    if name in ("lines", "hist", "bars"):                    # legends hide nothing
        (ax,) = fig.axes
        assert ax.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1

@pytest.mark.parametrize("draw", [
    lambda x: strip([["a", "b", "c"]], x, ["row"]), lambda x: bars(["a", "b", "c"], {"x": x[0]}),
    lambda x: hist({"x": x}, "x"), lambda x: lines([1, 2, 3], {"x": x[0]}, "x", "y")])
def test_views_do_not_change_what_they_get(draw):
    x = tensor([[1., -5., NAN]])
    draw(x)
    assert x[0, :2].tolist() == [1, -5] and x[0, 2].isnan()

# the strip
def faces(fig): return [to_hex(p.get_facecolor()) for p in fig.axes[0].patches]
def written(fig): return [t.get_text() for t in fig.axes[0].texts]

def test_zero_stays_white_and_numbers_stand_where_not_masked():
    def colours(*x): return faces(strip([list("abc")[:len(x)]], tensor([x]), [""]))
    for sign, color in ((1, ORANGE), (-1, BLUE)):
        got = colours(0., sign * 1., sign * 9.)
        assert got[0] == "#ffffff" and got[2] == color
    assert colours(0., 0.) == ["#ffffff"] * 2 and colours(NAN, NAN) == [GREY] * 2 and colours(math.inf, 1.)[1] == ORANGE
    got = written(strip([["tok", "<pad>", "a", "b", "c"]], tensor([[-.126, NAN, .004, 12.34, -1234.5]]), ["row"]))
    assert got == ["row", "tok", "-0.13", "<pad>", "a", "0", "b", "+12.3", "c", "-1.23e+03"]

def test_wrapping_keeps_every_token_once_and_fills_each_line():
    words = [f"w{i}" for i in range(60)]
    fig = strip([words, words], torch.randn(2, 60), ["a", "b"])
    got = [t for t in written(fig) if t.startswith("w")]
    assert sorted(got) == sorted(words * 2) and fig.get_figwidth() <= 8.3 and len(faces(fig)) == 120
    tops = [p.get_y() for p in strip([["w" * 45] * 5], torch.zeros(1, 5), [""]).axes[0].patches]     # two fill a line
    assert [tops.count(y) for y in sorted(set(tops))] == [2, 2, 1]

def test_words_fit_their_boxes_and_are_never_formulas():
    words = ["antidisestablishmentarianism", "WWWW", "i", "a$b$c", "<|assistant|>"]
    for fig in (strip([words], torch.full((1, 5), -12.3), ["a long label"]),
                strip([words], torch.full((1, 5), NAN), ["$x$"])):
        boxes, placed = fig.axes[0].patches, {t.get_text(): b for t, b in texts_of(fig)}
        plain = {t.get_text() for t in fig.axes[0].texts if not t.get_parse_math()}
        assert plain > set(words) and plain & {"a long label", "$x$"}
        for word, patch in zip(words, boxes):
            box = patch.get_window_extent()
            assert box.x0 < placed[word].x0 and placed[word].x1 < box.x1, word

def test_token_strip_shows_the_batch_as_it_is(seqs):
    fig = token_strip(Tokenizer(), seqs)
    frames = [p.get_linewidth() > 1 for p in fig.axes[0].patches]
    assert frames == seqs.response_mask.flatten().tolist()
    assert [f == GREY for f in faces(fig)] == (~seqs.attention_mask).flatten().tolist()
    assert written(fig)[:7] == ["0", "who", "purrs", "_x_", "\\n", "␣", "<eos>"]

def test_token_strip_numbers_and_rows(seqs):
    x = torch.arange(12.).view(2, 6).bfloat16().requires_grad_()
    fig = token_strip(Tokenizer(), seqs, x, rows=[1])
    assert written(fig)[0] == "1" and "+6.00" in written(fig) and "+1.00" not in written(fig)
    assert written(fig).count("<pad>") == 3 and faces(fig)[3:] == [GREY] * 3
    assert written(token_strip(Tokenizer(), seqs, rows=slice(1, 2)))[0] == "1"

# the others
def test_curves_skip_rows_that_lack_a_column():
    fig = curves(log(), ["valid", "loss"])
    assert [len(ax.lines[0].get_xdata()) for ax in fig.axes] == [3, 30]
    assert fig.axes[0].lines[0].get_xdata().tolist() == [0, 10, 20]
    assert [ax.get_title() for ax in fig.axes] == ["valid", "loss"]
    assert curves(log(), ["loss"] * 4).axes[0].get_gridspec().get_geometry() == (2, 3)
    fig = curves([{"step": 0, "loss": tensor(2.)}, {"epoch": 1}], ["loss"])
    assert fig.axes[0].lines[0].get_ydata().tolist() == [2.]

def test_no_tick_at_half_a_step():
    def ticks(xs):
        ys = [float(x) for x in xs]
        rows = [{"step": x, "loss": y} for x, y in zip(xs, ys)]
        for fig in (curves(rows, ["loss"]), lines(xs, {"loss": ys}, "step", "loss")):
            yield from fig.axes[0].get_xticks().tolist()
    for n in (2, 3, 5, 8, 13, 21): assert all(t.is_integer() for t in ticks(range(n))), n
    assert not all(t.is_integer() for t in ticks([0, .5, 1.]))    # these are no steps

def test_hist_shares_bins_and_counts_the_lost():
    fig = hist({"a": tensor([0., 1., 1.]), "b": tensor([3., NAN, math.inf])}, "x")
    names = [t.get_text() for t in fig.axes[0].get_legend().get_texts()]
    assert names == ["a", "b (2 not finite)"]
    edges = [p.get_path().vertices[:, 0] for p in fig.axes[0].patches]
    assert edges[0].min() == edges[1].min() == 0 and edges[0].max() == edges[1].max() == 3
    same = hist({"same": [2., 2.]}, "x").axes[0]
    edges = same.patches[0].get_path().vertices[:, 0]
    assert same.get_legend() is None and (edges.min(), edges.max()) == (1.5, 2.5)

def test_bars_stand_top_down_with_their_numbers():
    fig = bars(["first", "second"], {"x": [1., -2.], "y": [NAN, 12345.]})
    assert fig.axes[0].get_xlim()[0] < -.2 * 12345                # room for the number left of a bar
    ax = fig.axes[0]
    assert written(fig) == ["1", "-2", "nan", "1.23e+04"]
    assert ax.yaxis_inverted() and [t.get_text() for t in ax.get_yticklabels()] == ["first", "second"]
    assert [p.get_width() for p in ax.patches] == [1, -2, 0, 12345]

ERRORS = {     # others, in the notebook
    "too few rows": lambda: strip([["a", "b"]], torch.zeros(2, 2), ["", ""]), "no rows": lambda: strip([], torch.zeros(0, 2), []),
    "unknown axis": lambda: curves(log(), ["loss"], x="epoch"), "empty log": lambda: curves([], ["loss"]),
    "uneven bins": lambda: calibration_plot([.1], [.1, .2], [1, 2]), "short line": lambda: lines([1, 2], {"a": [1]}, "x", "y")}

@pytest.mark.parametrize("case", ERRORS)
def test_wrong_data_is_refused_by_name(case):
    with pytest.raises(ValueError) as caught: ERRORS[case]()
    view = str(caught.value)
    assert "got" in view or "nothing to show" in view or "no row" in view

# the map
@cache
def width(words, size, weight): # in pixels, of the font that is named first
    return TextPath((0, 0), words, size=size, prop=dict(family="DejaVu Sans", weight=weight)).get_extents().x1

def rows_of(page): # every visible row of text: words, left, right, top, bottom
    root = ElementTree.fromstring(page)
    for group in root.findall("{*}g[@visibility]"): root.remove(group)
    for text in root.findall(".//{*}text"):
        x, y, size = (float(text.get(k)) for k in ("x", "y", "font-size"))
        anchored, bold = text.get("text-anchor") == "middle", text.get("font-weight")
        for row in [text] if text.text else [t for t in text if t.text]:
            y += float(row.get("dy", 0))
            wide = width(row.text, size, row.get("font-weight", bold or "normal"))
            yield row.text, x - anchored * wide / 2, x - anchored * wide / 2 + wide, y - .75 * size, y + .1 * size

@pytest.mark.parametrize("chapter, numbers", [
    ("", {}), ("", dict.fromkeys(draw_map.NODES, "3.81 ± .10")), *((c, {}) for c in ("world", "grpo", "win_rate", "kl")),
    *((c, {"PPO, GRPO": "3.81", "pairs": "81 % right"}) for c in ("ppo", "judge"))])
def test_no_word_of_the_map_leaves_its_node_or_covers_another(chapter, numbers):
    rows = [*rows_of(course_map(chapter, numbers).data)]
    for i, (one, x0, x1, y0, y1) in enumerate(rows):
        assert 0 <= x0 and x1 <= draw_map.WIDTH and 0 <= y0 and y1 <= draw_map.HEIGHT, one
        for other, u0, u1, v0, v1 in rows[:i]: assert min(x1, u1) <= max(x0, u0) or min(y1, v1) <= max(y0, v0), (one, other)
        for x, y, *_ in draw_map.NODES.values():
            in_x, in_y = x - 46 < (x0 + x1) / 2 < x + 46, y - 31 < (y0 + y1) / 2 < y + 31
            if in_x and in_y: assert x - 46 < x0 and x1 < x + 46 and y - 31 < y0 and y1 < y + 31, one
    assert sum(text == "3.81 ± .10" for text, *_ in rows) == (len(numbers) if not chapter else 0)

def test_arrows_begin_and_end_at_nodes_and_run_through_none():
    def inside(x, y, by): return any(abs(x - u) < 46 + by and abs(y - v) < 31 + by for u, v, *_ in draw_map.NODES.values())
    for corners in draw_map.PLAIN + draw_map.DASHED:
        assert inside(*corners[0], 1) and inside(*corners[-1], 1), corners
        for (x0, y0), (x1, y1) in zip(corners, corners[1:]):
            assert not any(inside(x0 + s * (x1 - x0), y0 + s * (y1 - y0), 0) for s in torch.linspace(0, 1, 50).tolist()), corners
    for i, (u, v, *_) in enumerate(draw_map.NODES.values()):
        assert all(abs(u - x) > 92 or abs(v - y) > 62 for x, y, *_ in [*draw_map.NODES.values()][:i])

def test_the_map_names_every_chapter_of_the_course_and_marks_one_place():
    course = {f.stem.split("_", 1)[1]: f.stem[:2] for f in (ROOT/"nbs").glob("[0-9]*.ipynb")}
    shown = [text for text, *_ in rows_of(course_map().data)]
    named = {k: x for k, x in course.items() if k not in ("first_sitting", "your_model")}  # those are the whole way
    for name, number in named.items(): assert any(number in text for text in shown), f"{number} {name} is not on the map"
    for name in [*named][::5]:
        marked = [(x0, x1, y0) for text, x0, x1, y0, _ in rows_of(course_map(name).data) if text == "you are here"]
        (x0, x1, y0), = marked
        place, = [n for n, (x, y, *_) in draw_map.NODES.items() if x0 < x < x1 and 0 < y0 - y < 45]
        rows, others = draw_map.NODES[place][3:]
        assert name in " ".join([*rows, others]), (name, place)
    for words in re.findall(r"(\d\d) ([a-z_]+)", "\n".join(shown)):
        assert course.get(words[1]) == words[0], f"the map says {words}"
    with pytest.raises(ValueError, match="not on the map: kitchen"): course_map("kitchen")
    with pytest.raises(ValueError, match="not on the map: oven; chapters are tokens, .* nodes are base model, "): course_map("", {"oven": "1"})
    assert "<b>" not in course_map("", {"pairs": "<b>"}).data and course_map().data.count("hidden") == len(draw_map.NODES)

def test_the_saved_picture_is_the_drawn_one():
    assert draw_map.PICTURE.read_text("utf-8") == draw_map.drawn(), "stale: python scripts/draw_map.py"

def test_a_snapshot_is_drawn_once_in_its_own_size(monkeypatch):
    "As a slider wants it: the parameters kept, the size fixed whatever the labels, no figure left open."
    drawn, real = [], Figure.draw
    monkeypatch.setattr(Figure, "draw", lambda self, renderer: drawn.append(self) or real(self, renderer))
    def draw(a=1, *, name="y"):
        "A line."
        return lines([0, 1], {"y": [0, a]}, "x", name)
    fast, before = snapshot(draw), plt.get_fignums()
    assert inspect.signature(fast) == inspect.signature(draw) and fast.__doc__ == "A line." and fast.__name__ == "draw"
    first, later = fast(2), [fast(a=3, name="a < name"), fast(a=4)]
    assert first.data[:4] == b"\x89PNG"                       # what a notebook without its kernel shows
    assert all(page.data.startswith("<svg role") for page in later) and later[0].data != later[1].data
    assert "a &lt; name</text>" in later[0].data and 'aria-label="figure: x, a &lt; name"' in later[0].data
    width, height = struct.unpack(">II", first.data[16:24])
    wide, tall = 72 * width / STYLE["figure.dpi"], 72 * height / STYLE["figure.dpi"]
    assert all(f'width="{width}" viewBox="0 0 {wide:g} {tall:g}"' in page.data for page in later), "the page jumps"
    assert len(drawn) == 3, "each figure is drawn once"
    first, second, third = (f.axes[0].get_position().bounds for f in drawn)
    assert first == second == third and first[0] > .05, "the margins of the first, which hold its labels"
    assert plt.get_fignums() == before
    with pytest.raises(TypeError): fast(1, 2)

def test_what_a_drawing_prints_comes_with_its_picture_and_not_before(capsys):
    "Text that comes alone, while the picture is still being drawn, would make the output of a slider shrink."
    seen = []
    def draw(k):
        print("text", k)
        seen.append(capsys.readouterr().out)
        return lines([0, 1], {"y": [0, k]}, "x", "y")
    fast = snapshot(draw)
    for k in (1, 2):
        fast(k)
        assert capsys.readouterr().out == f"text {k}\n"
    assert seen == ["", ""]
