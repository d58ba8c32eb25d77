"Answers checked, tries remembered, and what comes next."
import re, signal, nbformat, pytest
from torch import tensor
from nbformat.v4 import new_code_cell, new_notebook
from rlhf_nb.book import command, copies, progress as book_progress
from rlhf_nb.book.checks import MEMORY, remember
from rlhf_nb.book.command import main
from rlhf_nb.book.copies import copy_chapters, read_memory
from rlhf_nb.book.progress import (
    answer_hashes, check_chapters, next_task, progress, progress_table, show_progress, task_times)
from test_command import linux, living, marked, stopped, wait_for
from test_copies import asked, contents, solve

PROGRESS = ".rlhf-nb-progress.jsonl"

@pytest.fixture
def mine(tmp_path, monkeypatch):
    "A copy of one chapter with an exercise and one without, in the place of the real ones."
    shipped = tmp_path/"shipped"
    shipped.mkdir()
    nbformat.write(asked(), shipped/"00_a.ipynb")
    nbformat.write(new_notebook(cells=[]), shipped/"01_b.ipynb")
    monkeypatch.setattr(copies, "notebooks", lambda: shipped)
    monkeypatch.setattr(command, "notebooks", lambda: shipped)
    monkeypatch.chdir(tmp_path)
    copy_chapters(tmp_path/"rlhf-workbook", "exercises")
    return tmp_path/"rlhf-workbook"

def test_the_command_tells_how_far_one_is(mine, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "trust_notebooks", lambda files: None)
    monkeypatch.setattr("jupyterlab.labapp.LabApp.launch_instance", lambda words: None)
    assert main(["check", "--dir", "none"]) == 2 and "rlhf-nb copy --exercises" in capsys.readouterr().err
    assert main(["copy", "new", "--exercises"]) == 0 and "rlhf-nb check --dir new" in capsys.readouterr().out
    for again in (["copy"], ["lab"], ["lab", "other", "--exercises"]):     # said once, and not to who is there
        assert main(again) == 0 and "rlhf-nb check" not in capsys.readouterr().out
    assert read_memory(mine)["form"] == "exercises"          # as it was made
    said = []
    for body in ("raise NotImplementedError", "return x * x", "return 2 * x", "return 2 * x"):
        solve(mine/"00_a.ipynb", body)
        said.append((main(["check", "--all"]), capsys.readouterr().out.splitlines()))
    assert [status for status, _ in said] == [1, 1, 0, 0]
    assert said[0][1][-2:] == ["0 of 1 exercises are right", "next: double in 00_a (10 min, ••); 10 min left"]
    assert "double: not done yet" in said[0][1][-3] and said[1][1][-3].endswith("double: that is the square  (try 1)")
    assert "x double: right  (try 2, 20" in said[2][1][-3] and said[2][1] == said[3][1]
    assert said[3][1][-1] == "nothing is left to do" and progress(mine)["double"][0] == 2
    assert "double: that is the square  (was right at try 2, 20" in progress_table(
        {"00_a": {"double": "that is the square"}}, progress(mine))
    monkeypatch.chdir(mine)                     # inside the copy no --dir is needed
    assert main(["check", "a"]) == 0 and "1 of 1" in capsys.readouterr().out
    assert main(["check", "b"]) == 2 and "no exercises in 01_b" in capsys.readouterr().err
    (mine/"01_b.ipynb").unlink()                # one chapter less stops nothing
    assert main(["check"]) == 0 and "1 of 1" in capsys.readouterr().out
    assert main(["check", "b"]) == 2 and "has no 01_b.ipynb" in capsys.readouterr().err
    for broken in ("half a fi", "{}"):
        (mine/"00_a.ipynb").write_text(broken)
        assert main(["check", "A"]) == 2 and "00_a.ipynb is no notebook" in capsys.readouterr().err
    monkeypatch.setattr(command, "check_chapters", lambda files: {"00_a": {"double": "right", "halve": "not done yet"}})
    assert main(["check"]) == 1                 # for scripts: 0 only when all is right

def test_check_writes_nothing_into_other_folders(tmp_path):
    for name in ("00_a", "01_b"): nbformat.write(asked(), tmp_path/f"{name}.ipynb")
    solve(tmp_path/"01_b.ipynb", "return x * x")
    before = contents(tmp_path)
    assert check_chapters([tmp_path/"00_a.ipynb", tmp_path/"01_b.ipynb"]) == {
        "00_a": {"double": "right"}, "01_b": {"double": "that is the square"}}
    assert contents(tmp_path) == before and progress(tmp_path) == {}

def test_the_table_has_a_bar_for_each_chapter_and_a_line_for_each_exercise_or_what_is_wrong():
    said = {"00_a": {"f": "right", "g": "wrong sign", "h": "not done yet"}, "01_b": {"k": "not done yet"}}
    assert progress_table(said, {"g": (2, "")}).splitlines() == [
        "00_a                #..   1 of 3", "  x f: right", "    g: wrong sign  (try 2)", "    h: not done yet",
        "01_b                .     0 of 1", "    k: not done yet", "1 of 4 exercises are right"]
    assert progress_table(said, {"g": (2, "")}, False).splitlines() == [
        "00_a                #..   1 of 3", "    g: wrong sign  (try 2)", "1 of 4 exercises are right"]
    times = {"f": (5, "•"), "g": (10, "••"), "h": (5, "•"), "k": (20, "•••")}
    assert next_task(said, times) == "next: g in 00_a (10 min, ••); 35 min left"
    assert next_task({"a": {"f": "right"}}, times) == "nothing is left to do"
    assert next_task({"a": {"unknown": "wrong"}}, times) == "next: unknown in a"

def test_an_unchanged_answer_is_not_graded_again(mine, monkeypatch):
    file, graded = mine/"00_a.ipynb", []
    def grade(file, stop):
        graded.append(1)
        return {"double": "right" if "return 2" in file.read_text() else "that is the square"}
    monkeypatch.setattr(book_progress, "check_notebook", grade)
    for body, n in (("return x * x", 1), ("return x * x", 1), ("return 2 * x", 2), ("return 2 * x", 2), ("return x * x", 3)):
        solve(file, body)
        verdict = check_chapters([file])["00_a"]["double"]
        assert verdict == ("right" if "2" in body else "that is the square") and len(graded) == n
    nb = nbformat.read(file, 4)
    nb.cells[0].source = nb.cells[0].source.replace("that is the square", "no square")    # the exercise is another
    nbformat.write(nb, file)
    check_chapters([file])
    remember(mine, {"double": "no end after 60 s: an endless loop?"}, answer_hashes(file))
    assert len(graded) == 4 and check_chapters([file]) and len(graded) == 5   # that may have been the machine

def test_half_a_line_of_progress_spoils_no_other(tmp_path):
    (tmp_path/MEMORY).write_text("{}")
    for _ in range(2):
        remember(tmp_path, {"f": "right"})
        with open(tmp_path/PROGRESS, "a") as f: f.write('\n{"exercise": "g", "ver')      # killed here
    remember(tmp_path, {"g": "right", "h": "no sign"})
    assert {k: tries for k, (tries, _) in progress(tmp_path).items()} == {"f": 1, "g": 1, "h": 1}

def test_a_full_disk_during_check_costs_no_verdict(mine, capsys):
    solve(mine/"00_a.ipynb", "return 2 * x")
    (mine/PROGRESS).symlink_to("/dev/full")
    assert main(["check", "--dir", str(mine)]) == 0
    printed = capsys.readouterr().out
    assert "(not written down: [Errno 28]" in printed and "earlier tries are safe" in printed and "1 of 1 exercises are right" in printed

def test_the_index_shows_how_far_one_is(tmp_path):
    "From the last verdict of each exercise; a folder that is no copy counts as not begun."
    times = task_times([copies.chapters()["04_sft"]])
    total = sum(minutes for minutes, _ in times.values())
    def row(folder): return re.search(r"04 sft</a>.*?</tr>", show_progress(folder).data)[0]
    assert f"0 of {len(times)}" in row(tmp_path) and f"{total} min left" in row(tmp_path)
    (tmp_path/MEMORY).write_text("{}")
    first, *rest = times
    remember(tmp_path, {first: "right"})
    assert f"1 of {len(times)}" in row(tmp_path) and f"{total - times[first][0]} min left" in row(tmp_path)
    remember(tmp_path, {first: "turn the sign"})                # no longer right
    assert f"0 of {len(times)}" in row(tmp_path)
    remember(tmp_path, {name: "right" for name in times})
    page = show_progress(tmp_path).data
    assert ">done<" in row(tmp_path) and 'href="04_sft.ipynb"' in page
    assert f"{len(times)} of " in re.search("<caption>(.*?)</caption>", page)[1]
    assert page.count("<progress") == page.count('aria-label="') == page.count("</tr>") > 10

ENDLESS = """from rlhf_nb.book.checks import Exercise, check
class exercises: f = g = Exercise(lambda x: x, {"one": (1,)}, {})"""

CHECK = """import sys; from pathlib import Path; from rlhf_nb.book import command
found = {f.stem: f for f in sorted(Path(sys.argv.pop(1)).glob("[0-9]*.ipynb"))}
command.chapters = lambda: found
command.find_chapters = lambda names: list(found.values())
sys.exit(command.main())"""

@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.one_in(2)
def test_an_endless_answer_ends_with_its_check(mine, tmp_path, number):
    word = f"child-of-{tmp_path.name}"
    body = (f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)', {word!r}])"
            "\n    while True: pass")
    cells = [new_code_cell(ENDLESS)]
    for k in "fg": cells += [new_code_cell(f"def {k}(x):\n    {body}"), new_code_cell(f"check({k}, exercises.{k})")]
    for name in ("00_a", "01_b"): nbformat.write(new_notebook(cells=cells), mine/f"{name}.ipynb")
    began = []
    def at_work(): # the answers, by what they started, and the processes above them
        family = living()
        for pid in marked(word): began.extend([pid, family[pid][0]] if pid in family else [])
        return bool(began)
    status, out, err = stopped([tmp_path/"shipped", "check", "--dir", mine], at_work, number, CHECK)
    assert status == (-9 if number == signal.SIGKILL else 128 + number)
    assert "Traceback" not in err and "right" not in out
    wait_for(lambda: not marked(word), "what the answer started goes on")
    wait_for(lambda: not {*began} & living().keys(), "an answer goes on")

# ---- bets

def test_a_figure_waits_for_a_bet_and_its_price_is_brier(tmp_path, monkeypatch, capsys):
    from rlhf_nb.book.progress import SURE, bet, bets, lost_bet, settle, show_bets
    monkeypatch.chdir(tmp_path)
    assert settle("05 n", False, 7, ["said"]) == 7 and "said" in capsys.readouterr().out   # no learner's folder: it is shown
    assert "A bet." in bet("05 n", "It rises.").data and not list(tmp_path.iterdir())
    (tmp_path/MEMORY).write_text("{}")
    for wrong, words in ((75, "a probability: .75 for 75 %, got 75"), (-.1, "got -0.1")):
        with pytest.raises(ValueError, match=words): bet("05 n", "It rises.", wrong)
    with pytest.raises(RuntimeError, match="ambiguous"): settle("05 n", tensor([1., 2.]) > 0)   # found before anybody bets
    assert settle("05 n", False, 7, ["said"]) is None
    assert "said" not in capsys.readouterr().out
    row = bet("05 n", "It rises.").children[1]
    assert [b.description for b in row.children] == ["5%", "25%", "50%", "75%", "95%"] and len(SURE) == 5
    row.children[3].click()
    assert settle("05 n", False, 7, ["said"]) == 7
    assert (out := capsys.readouterr().out).startswith("It is false. You were 75% sure that it is true: 0.56 points") and "said" in out
    bet("05 n", "It rises.", .1)                               # after it was seen: the first counts
    assert settle("05 n", False, 7) == 7
    assert "You are 95% sure; a cell below settles it." in bet("07 k1", "k1 is unbiased.", .95).data
    settle("07 k1", True)
    assert bets(tmp_path) == {"05 n": (.75, False, "It rises."), "07 k1": (.95, True, "k1 is unbiased.")}
    assert "It rises." in lost_bet(tmp_path, "07") and not lost_bet(tmp_path, "06") and not lost_bet(tmp_path/"x", "19")
    assert show_bets(tmp_path).axes[0].get_title() == "2 bets, 0.28 points a bet"
    assert progress(tmp_path).get("kl_k1") is None             # bets are no exercises
    monkeypatch.setenv("RLHF_NB_NO_BETS", "1")
    assert settle("08 clip", True, 7) == 7

def test_a_lost_bet_comes_back_in_a_check_two_chapters_later_and_no_bets_leaves_them_out(mine, tmp_path, capsys, monkeypatch):
    from rlhf_nb.book.progress import settle
    for name in ("06_b", "07_c"): nbformat.write(asked(), copies.notebooks()/f"{name}.ipynb")
    copy_chapters(mine, "exercises")
    for said in ("95% It rises.", "false"): remember(mine, {"bet 05 n": said})
    back = "once more, from chapter 05: It rises. True or false?"
    for name, wanted in (("06_b", False), ("07_c", True)):
        assert main(["check", name]) == 1 and (back in capsys.readouterr().out) == wanted
    for said in ("50% It falls.", "false"): remember(mine, {"bet 06 x": said})
    for reached, wanted in (("06", False), ("07", True)):           # all chapters: as far as the bets have come
        remember(mine, {f"bet {reached} y": "50% It stays."})
        remember(mine, {f"bet {reached} y": "true"})
        assert main(["check"]) == 1 and (back in capsys.readouterr().out) == wanted
    monkeypatch.setenv("RLHF_NB_NO_BETS", "")
    monkeypatch.setattr(command, "trust_notebooks", lambda files: None)
    monkeypatch.setattr("jupyterlab.labapp.LabApp.launch_instance", lambda words: None)
    monkeypatch.chdir(mine)
    assert settle("09 x", True, 7) is None
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "--no-bets"]) == 0
    monkeypatch.chdir(mine)
    assert settle("09 x", True, 7) == 7

def test_every_bet_is_settled_in_its_chapter_under_its_name():
    for file in copies.chapters().values():
        cells = [c.source for c in nbformat.read(file, 4).cells if c.cell_type == "code"]
        made, settled = ([(i, m) for i, s in enumerate(cells) for m in re.findall(rf'(?m)^{word}\("(\d\d \w+)"', s)]
                         for word in ("bet", "settle"))
        assert [m for _, m in made] == [m for _, m in settled] and all(a < b for (a, _), (b, _) in zip(made, settled)), file
        assert all(m.startswith(file.stem[:2]) for _, m in made)

def test_an_unchanged_answer_is_no_second_try(tmp_path):
    (tmp_path/MEMORY).touch()
    for verdict in ("not done yet", "turn the sign", "turn the sign", "not done yet", "turn the sign", "got 1, want 2", "turn the sign", "right"):
        remember(tmp_path, {"double": verdict, "other": "got 3, want 4"})
    found = progress(tmp_path)
    assert found["double"][0] == 4 and found["double"][1] and found["other"] == (1, "")
