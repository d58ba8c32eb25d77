"Widgets: text that stays text, labels that survive, a run that obeys its buttons."
import json, math, os, re, signal, subprocess, sys, threading, time
from html.parser import HTMLParser
from types import SimpleNamespace
import pytest, torch
from rlhf_nb.tokens import Rollout, make_seqs
from rlhf_nb.widgets import (Board, Desk, Ledger, Stopped, board_page, desk_page, label, panel,
    run_behind, safe, show_board, show_desk, show_ledger, sides, tint, undo, watch_on)

BAD = '</div><script>alert("x")</script>&amp;<img src=x onerror=\'y\'>\n'
PAIRS = [(f"question {i}", f"one {i}", f"other {i}") for i in range(30)]


class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.attrs = [], "", []
        self.feed(page)
    def handle_starttag(self, tag, attrs): self.tags.append(tag); self.attrs += attrs
    def handle_data(self, data): self.text += data


def test_what_a_model_says_never_becomes_a_tag():
    desk = Desk([(BAD, BAD, BAD + "2")], "unused.jsonl")
    board = Board([BAD], rows=[{BAD: 1.}], texts=[BAD])
    ledger = show_ledger(Ledger([BAD, "ok"], {BAD: [1., -1.]}, {BAD: (1., 1.)})).data
    for page in (ledger, desk_page(desk), board_page(board)):
        tags = Tags(page)
        assert not {"script", "img"} & set(tags.tags)
        assert not any(k.startswith("on") for k, _ in tags.attrs)
        assert "alert(" in tags.text                         # shown, as text
    assert safe("a\nb") == "a⏎b"


def test_ledger_numbers_and_colours():
    page = show_ledger(Ledger(["a", "b", "c"], {"r": [2., -1., math.nan], "v": [0., 0., 0.]},
                              {"good": (1., 1.0004), "bad": (1., 1.01)})).data
    styles = re.findall(r'class="t" tabindex="0" style="([^"]*)"', page)
    assert styles[0].startswith("--c0:" + tint(2., 2.)) and styles[1].startswith("--c0:" + tint(-1., 2.))
    assert "128,128,128" in styles[2] and tint(2., 2.) != tint(-2., 2.)
    assert page.count("DO NOT AGREE") == 1 and "good" in page.split("agree")[0]
    assert page.count('type="radio"') == 2 and page.count(" checked>") == 1
    assert Tags(page).tags.count("span") == 6
    assert "+2.0000" in page and "-1.0000" in page
    other = show_ledger(Ledger(["a", "b", "x"], {"r": [2., -1., 0.], "v": [0., 0., 0.]}, {})).data
    ids = [set(re.findall(r' id="(\w+)"', p)) for p in (page, other)]
    assert not ids[0] & ids[1]                               # two on a page do not meddle


def test_labels_survive_and_sides_are_fair(tmp_path):
    path = tmp_path/"deep"/"labels.jsonl"
    desk = Desk(PAIRS, path, seed=3)
    for choice in ("left", "right", "neither"): label(desk, choice)
    book = path.with_suffix(".desk")
    rows = [json.loads(line) for line in book.read_text().splitlines()]
    assert (rows[0]["chosen"], rows[0]["rejected"]) == sides(desk, 0)
    assert (rows[1]["rejected"], rows[1]["chosen"]) == sides(desk, 1)
    assert "chosen" not in rows[2] and set(rows[2]["tie"]) == set(PAIRS[2][1:])
    assert [json.loads(line) for line in path.read_text().splitlines()] == rows[:2]   # no tie
    undo(desk)
    assert len(book.read_text().splitlines()) == 2 and not list(path.parent.glob("*.part"))
    again = Desk(PAIRS, path, seed=3)
    assert again.said == rows[:2]
    for _ in range(28): label(again, "left")
    with pytest.raises(ValueError, match="all 30 pairs"): label(again, "left")
    assert "Done" in desk_page(again)
    first = [sides(Desk(PAIRS, path, seed=s), i)[0] == PAIRS[i][1] for s in range(9) for i in range(30)]
    assert .4 < sum(first) / len(first) < .6                 # 270 fair coins: .5 +- .03
    with pytest.raises(ValueError, match="same pairs"): Desk(PAIRS[::-1], path)


def test_a_killed_desk_leaves_whole_lines(tmp_path):
    code = ("import sys; from rlhf_nb.widgets import *\n"
            "d = Desk([(str(i), 'a', 'b') for i in range(10**6)], sys.argv[1])\n"
            "print('ready', flush=True)\n"
            "while True: label(d, 'left')")
    path = tmp_path/"l.jsonl"
    p = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    p.stdout.readline()
    time.sleep(.4)
    os.kill(p.pid, signal.SIGKILL)
    p.wait()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows and [row["prompt"] for row in rows] == [str(i) for i in range(len(rows))]


def test_labels_feed_the_preference_reader(tmp_path):
    from rlhf_nb.data import load_pairs
    from rlhf_nb.models import load_checkpoint
    desk = Desk([(f"Where does the {x} live?", f"It lives in the {y}.", "I do not know.")
                 for x, y in (("fox", "forest"), ("crab", "sea"), ("hare", "field"))], tmp_path/"l.jsonl")
    for choice in ("left", "neither", "right"): label(desk, choice)
    tokenizer = load_checkpoint("sft")[1]
    pairs, _ = load_pairs(tmp_path/"l.jsonl", tokenizer)
    assert len(pairs) == 2


def test_buttons_of_the_desk(tmp_path):
    desk = Desk(PAIRS[:2], tmp_path/"l.jsonl")
    page, row = show_desk(desk).children
    left, right, neither, back = row.children
    assert all(b.description for b in row.children)
    back.click()                                             # nothing to take back
    right.click(); left.click(); left.click()                # one more than there is
    assert len(desk.said) == 2 and "Done" in page.value
    back.click()
    assert len(desk.said) == 1 and "1 of 2" in page.value


def toy_roll(): return SimpleNamespace(seqs=make_seqs([[5], [5]], [[1, 2], [3]], 0))


def test_board_pauses_and_stops():
    board, said = Board(["x"], every=0.), []
    pause, stop = show_board(board).children[1].children
    watch = watch_on(board, SimpleNamespace(decode=lambda ids, **_: f"<{ids.tolist()}>"))
    def train():
        for i in range(10**9):
            watch(dict(iteration=i, x=float(i)), toy_roll())
            time.sleep(.002)
    thread = run_behind(train, board)
    while len(board.rows) < 3: time.sleep(.005)
    pause.click()
    held = len(board.rows)
    time.sleep(.2)
    assert len(board.rows) <= held + 1 and thread.is_alive() and pause.description == "Go on"
    pause.click()
    while len(board.rows) < held + 5: time.sleep(.005)
    pause.click(); stop.click()                              # stop works while it waits
    thread.join(10)
    assert not thread.is_alive() and "&lt;[1, 2]&gt;" in board.page.value


def test_a_board_draws_no_more_than_it_is_asked():
    board, drawn = Board(["x"], every=60.), []
    board.page.observe(lambda change: drawn.append(1), "value")
    watch = watch_on(board, SimpleNamespace(decode=lambda ids, **_: "t"))
    for i in range(50): watch(dict(iteration=i, x=float(i)), toy_roll())
    assert len(drawn) == 1 and len(board.rows) == 50


def test_panel_keeps_its_height_and_skips_nan():
    one = panel("a", [0], [math.nan])
    many = panel("a", list(range(5000)), [math.inf if i % 7 == 0 else float(i) for i in range(5000)])
    for svg in (one, many): assert 'width="270" height="130"' in svg and "nan" not in svg and "inf" not in svg
    assert many.count(",") < 700 and "4999" in many or "4998" in many   # thinned, the last one kept


def test_other_errors_of_a_run_are_not_swallowed():
    board, seen = Board(["x"]), []
    old = threading.excepthook
    threading.excepthook = lambda args: seen.append(args.exc_type)
    try: run_behind(lambda: 1 / 0, board).join(5)
    finally: threading.excepthook = old
    assert seen == [ZeroDivisionError]
    def stopped(): raise Stopped("enough")
    run_behind(stopped, board).join(5)
    assert seen == [ZeroDivisionError]
