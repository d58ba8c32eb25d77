"Labels: what was labelled survives kills, full disks and other sessions, and no foreign file is written over."
import json, os, signal, subprocess, sys, pytest
from rlhf_nb.show.labels import LabelSession, add_label, label_page, show_labels, sides, undo_label

PAIRS = [(f"question {i}", f"one {i}", f"other {i}") for i in range(30)]

def on_disk(path):
    "What the two files of a session hold: labels, and preferences derived from them."
    book = path.with_suffix(".labels")
    labels = [json.loads(line) for line in book.read_text("utf-8").splitlines()][1:] if book.exists() else []
    return labels, [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []

def test_labels_survive_and_sides_are_fair(tmp_path):
    path = tmp_path/"deep"/"labels.jsonl"
    session = LabelSession(PAIRS, path, seed=3)
    for choice in ("left", "right", "neither"): add_label(session, choice)
    rows, preferences = on_disk(path)
    assert path.with_suffix(".labels").read_text().startswith('{"format": 2}\n')
    assert (rows[0]["chosen"], rows[0]["rejected"]) == sides(session, 0)
    assert (rows[1]["rejected"], rows[1]["chosen"]) == sides(session, 1)
    assert "chosen" not in rows[2] and set(rows[2]["tie"]) == set(PAIRS[2][1:]) and preferences == rows[:2]   # no tie
    undo_label(session)
    assert on_disk(path)[0] == rows[:2] and not list(path.parent.glob("*.unfinished"))
    again = LabelSession(PAIRS, path, seed=3)
    assert again.labels == rows[:2]
    with pytest.raises(ValueError, match="choose one of"): add_label(again, "maybe")
    for _ in range(28): add_label(again, "left")
    with pytest.raises(ValueError, match="all 30 pairs"): add_label(again, "left")
    assert "Done" in label_page(again)
    first = [sides(LabelSession(PAIRS, path, seed=s), i)[0] == PAIRS[i][1] for s in range(9) for i in range(30)]
    assert .4 < sum(first) / len(first) < .6                 # 270 fair coins: .5 +- .03
    assert all(5 < sum(first[k:k + 30]) < 25 for k in range(0, 270, 30))  # on every session
    for wrong in ("pairs.jsonl", [("a", "b")], [("a", None, "b")]):
        with pytest.raises(ValueError, match="triples of texts"): LabelSession(wrong, path)
    with pytest.raises(ValueError, match="30 labels for 2 pairs"): LabelSession(PAIRS[:2], path)
    with pytest.raises(ValueError, match="same pairs"): LabelSession(PAIRS[::-1], path)

def test_a_session_writes_over_no_file_but_its_own(tmp_path):
    path = tmp_path/"pairs.jsonl"
    path.write_text("somebody's work")
    with pytest.raises(ValueError, match="has no pairs.labels beside"): LabelSession(PAIRS, path)
    assert path.read_text() == "somebody's work"
    with pytest.raises(ValueError, match="got ties.labels"): LabelSession(PAIRS, tmp_path/"ties.labels")
    for text in ("", "{", '{"prompt": "question 0", "tie": []}\n', '{"format": 1}\n'):
        (tmp_path/"l.labels").write_text(text)
        with pytest.raises(ValueError, match="l.labels (is not a file of labels that is read here|spreads an object)"): LabelSession(PAIRS, tmp_path/"l.jsonl")
        assert (tmp_path/"l.labels").read_text() == text
    session = LabelSession(PAIRS, path := tmp_path/"ours.jsonl")
    add_label(session, "left")
    path.write_text(path.read_text() + "mine\n")
    for act in (lambda: LabelSession(PAIRS, path), lambda: add_label(session, "left"), lambda: undo_label(session)):
        with pytest.raises(ValueError, match="no preferences between these pairs"): act()
    assert path.read_text().endswith("mine\n") and len(session.labels) == 1

def test_strange_text_survives_the_file(tmp_path):
    odd = [(f"{i} line\u2028break \x85 \ud800", "a\nb\r", '"\\') for i in range(3)]
    session = LabelSession(odd, tmp_path/"l.jsonl")
    for _ in odd: add_label(session, "left")
    assert LabelSession(odd, tmp_path/"l.jsonl").labels == session.labels
    lines = (tmp_path/"l.jsonl").read_text("utf-8").split("\n")
    assert len(lines) == 4 and {json.loads(lines[0])[k] for k in ("chosen", "rejected")} == set(odd[0][1:])

def test_two_sessions_on_one_file_lose_no_label(tmp_path):
    a, b = (LabelSession(PAIRS, tmp_path/"l.jsonl") for _ in range(2))
    refused = 0
    for _ in range(6):
        for session in (a, b):
            before = on_disk(a.path)[0]
            try: add_label(session, "left")
            except ValueError as e:                # the pair on the page was not the next one any more
                assert "another session" in str(e) and on_disk(a.path)[0] == before
                refused += 1
    labels, preferences = on_disk(a.path)
    assert len(labels) + refused == 12 and len(labels) >= 6 and preferences == labels
    assert [row["prompt"] for row in labels] == [p for p, *_ in PAIRS[:len(labels)]]
    c = LabelSession(PAIRS, a.path)
    view = show_labels(c)
    add_label(LabelSession(PAIRS, a.path), "left")
    view.children[1].children[0].click()           # stale: the page says so and shows the next pair
    assert "another session" in view.children[0].value and len(c.labels) == len(labels) + 1

WORKER = """import sys; from rlhf_nb.show.labels import LabelSession, add_label
session = LabelSession([(str(i), 'a', 'b') for i in range(10**3)], sys.argv[1])
print('ready', flush=True); sys.stdin.readline()
done = 0
while done < 25:
    try: add_label(session, 'left'); done += 1
    except ValueError: pass"""

def test_two_processes_on_one_file_lose_no_label(tmp_path):
    path = tmp_path/"l.jsonl"
    both = [subprocess.Popen([sys.executable, "-c", WORKER, str(path)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for p in both: assert p.stdout.readline() == "ready\n"
    for p in both: print(file=p.stdin, flush=True)             # both at once
    assert [p.wait(300) for p in both] == [0, 0]
    labels, preferences = on_disk(path)
    assert preferences == labels and [row["prompt"] for row in labels] == [str(i) for i in range(50)]

KILLED = """import os, signal, sys
from rlhf_nb.show.labels import LabelSession, add_label, undo_label
act = {"add": lambda s: add_label(s, "left"), "undo": undo_label}[sys.argv[1]]
left = [0]
def dies(event, args):                       # at the n-th thing that is done to a file
    if event in ('open', 'os.rename', 'fcntl.flock', 'os.mkdir') and 'l.' in str(args[0]) or event == 'fcntl.flock':
        left[0] -= 1
        if left[0] == 0: os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(dies)
for at, path in enumerate(sys.argv[2:], 1):  # a child for each: the imports are paid once
    session = LabelSession([(str(i), 'a', 'b') for i in range(9)], path)
    child = os.fork()
    if not child:
        left[0] = at
        act(session)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)"""

@pytest.mark.parametrize("act", ["add", "undo"])
def test_a_session_killed_at_any_file_operation_is_whole_again_when_opened(tmp_path, act):
    paths, pairs, behind = [tmp_path/f"{at}"/"l.jsonl" for at in range(1, 21)], [(str(i), "a", "b") for i in range(9)], 0
    for path in paths:
        session = LabelSession(pairs, path)
        for choice in ("left", "neither", "right"): add_label(session, choice)
    done = subprocess.run([sys.executable, "-c", KILLED, act, *map(str, paths)], capture_output=True, text=True)
    codes = [*map(int, done.stdout.split())]
    n = codes.index(0)                             # from there on nothing was left to be killed at
    assert codes == [-signal.SIGKILL] * n + [0] * (20 - n) and n >= 5, done.stderr
    for path in paths[:n]:
        labels, preferences = on_disk(path)
        behind += preferences != [row for row in labels if "chosen" in row]
        again = LabelSession(pairs, path)
        labels, preferences = on_disk(path)
        assert again.labels == labels and len(labels) in (3, {"add": 4, "undo": 2}[act])
        assert preferences == [row for row in labels if "chosen" in row]
        add_label(again, "left")                   # and it goes on
    assert behind >= 1, "no kill fell between the two files"

def test_a_full_disk_is_told_and_nothing_counts_as_labelled(tmp_path, monkeypatch):
    session = LabelSession(PAIRS[:3], tmp_path/"l.jsonl")
    page, row, _ = show_labels(session).children
    row.children[0].click()
    def full(*_): raise OSError(28, "No space left on device")
    with monkeypatch.context() as m:
        m.setattr(os, "fsync", full)
        row.children[1].click()
        assert "Not saved: [Errno 28] no room is left on the disk" in page.value and len(session.labels) == 1
        assert "all 1 labels before are safe in" in page.value
        row.children[3].click()
        assert len(session.labels) == 1
    row.children[1].click()
    assert "Not saved" not in page.value and LabelSession(PAIRS[:3], tmp_path/"l.jsonl").labels == session.labels

def test_buttons_arrows_and_page_of_the_session(tmp_path):
    session = LabelSession(PAIRS[:2], tmp_path/"l.jsonl")
    page, row, arrows = show_labels(session).children
    left, right, neither, back = row.children
    assert all(b.description and b.tooltip for b in row.children) and arrows.description
    back.click()                                             # nothing to take back
    right.click(); left.click(); left.click()                # one more than there is
    assert len(session.labels) == 2 and "Done" in page.value
    back.click()
    assert len(session.labels) == 1 and "1 of 2" in page.value
    back.click()
    arrows.value = -1
    assert session.labels[0]["chosen"] == sides(session, 0)[0] and arrows.value == 0
    arrows.value = 1
    arrows.value = 1                                         # one more than there is
    assert session.labels[1]["chosen"] == sides(session, 1)[1] and len(session.labels) == 2
    for seed in range(8):                                    # the sides on the page are those that are labelled
        session = LabelSession(PAIRS, "unused.jsonl", seed)
        for side, answer in zip(("Left", "Right"), sides(session, 0)): assert f"<b>{side}</b><br>{answer}<" in label_page(session)
    for pairs in (PAIRS, []):                                # of one height
        for trouble in ("", "full"): assert "height:15em;overflow:auto" in label_page(LabelSession(pairs, "unused.jsonl"), trouble)
