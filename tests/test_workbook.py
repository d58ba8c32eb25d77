"The command `rlhf-nb`: copy, check, run, report."
import argparse, json, os, re, signal, socket, subprocess, sys, threading, time, urllib.request
from html.parser import HTMLParser
from pathlib import Path

import nbformat, pytest, torch
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import rlhf_nb
from rlhf_nb import workbook
from rlhf_nb.checks import remember
from rlhf_nb.workbook import (
    chapters, check_chapters, copy_chapters, decide, find_chapters, lab_arguments, main,
    notebooks, expect_error, report, requirements, run_chapter, run_chapters,
    next_task, progress, progress_table, read_memory, _show_output)

def command(*words, **kw):
    "Run `rlhf-nb` as a user would."
    return subprocess.run([sys.executable, "-c",
        "import sys; from rlhf_nb.workbook import main; sys.exit(main())", *map(str, words)],
        capture_output=True, text=True, timeout=300, **kw)

# ---- expect_error

def test_expect_error_wants_an_error(capsys):
    expect_error(int, "seven")
    assert "seven" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="int let this through"): expect_error(int, "7")
    with pytest.raises(ZeroDivisionError): expect_error(lambda: 1/0)       # a bug is no refusal

# ---- chapters

def test_chapters_come_in_reading_order():
    stems = list(chapters())
    course = [s for s in stems if s[0].isdigit()]
    engine = stems[1 + len(course):]
    assert stems == ["index", *sorted(course), *sorted(engine)] and "workbook" in engine

@pytest.mark.parametrize("name", ["tokens", "02", "02_tokens", "02_tokens.ipynb"])
def test_a_chapter_has_several_names(name):
    assert find_chapters([name]) == [notebooks()/"02_tokens.ipynb"]

def test_no_name_is_every_chapter_and_a_path_is_itself(tmp_path):
    mine = tmp_path/"02_tokens_mine.ipynb"
    mine.write_text("{}")
    assert find_chapters([]) == list(chapters().values())
    assert find_chapters(["world", str(mine)]) == [notebooks()/"03_world.ipynb", mine]

def test_an_unknown_chapter_lists_those_there_are():
    with pytest.raises(ValueError, match=r"no chapter tokenz, 99: there are .*02_tokens.*workbook"):
        find_chapters(["tokenz", "tokens", "99"])

# ---- copy

@pytest.fixture
def shipped(tmp_path, monkeypatch):
    "A small set of notebooks that a test may change, in the place of the real one."
    folder = tmp_path/"shipped"
    (folder/"images").mkdir(parents=True)
    for name in ("00_a.ipynb", "01_b.ipynb", "02_c.ipynb", "images/p.svg", ".hidden", "_draft.ipynb",
                 "llms.txt"):
        (folder/name).write_text(f"first {name}")
    (folder/".ipynb_checkpoints").mkdir()
    (folder/".ipynb_checkpoints/00_a.ipynb").write_text("old")
    monkeypatch.setattr(workbook, "notebooks", lambda: folder)
    return folder

def test_copy_never_touches_what_a_learner_changed(shipped, tmp_path):
    mine = tmp_path/"mine"
    names = ["00_a.ipynb", "01_b.ipynb", "02_c.ipynb", "images/p.svg"]
    assert copy_chapters(mine) == dict(new=names, same=[], updated=[], kept=[])
    assert copy_chapters(mine) == dict(new=[], same=names, updated=[], kept=[])
    (mine/"00_a.ipynb").write_text("my answer")              # the learner works
    (mine/"notes.txt").write_text("my notes")
    (mine/"02_c.ipynb").unlink()
    for name in ("00_a.ipynb", "01_b.ipynb"): (shipped/name).write_text(f"second {name}")
    assert copy_chapters(mine) == dict(new=["02_c.ipynb"], same=["images/p.svg"],
                                       updated=["01_b.ipynb"], kept=["00_a.ipynb"])
    assert (mine/"00_a.ipynb").read_text() == "my answer"
    assert (mine/"01_b.ipynb").read_text() == "second 01_b.ipynb"
    assert copy_chapters(mine)["kept"] == ["00_a.ipynb"]     # not forgotten the next time
    (mine/"00_a.ipynb").write_text("first 00_a.ipynb")       # as it was copied
    assert copy_chapters(mine)["updated"] == ["00_a.ipynb"]
    (mine/"00_a.ipynb").write_text("my answer")
    assert (mine/"notes.txt").read_text() == "my notes"
    assert sorted(f.name for f in mine.iterdir()) == [
        ".rlhf-nb.json", "00_a.ipynb", "01_b.ipynb", "02_c.ipynb", "images", "notes.txt"]

def test_a_copy_that_fails_leaves_the_file_as_it_was(shipped, tmp_path, monkeypatch):
    copy_chapters(mine := tmp_path/"mine")
    (shipped/"00_a.ipynb").write_text("second")
    def full(*_): raise OSError("no space left")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError): copy_chapters(mine)
    assert (mine/"00_a.ipynb").read_text() == "first 00_a.ipynb"

def test_a_file_that_was_there_before_is_the_learners(shipped, tmp_path):
    mine = tmp_path/"mine"
    mine.mkdir()
    (mine/"00_a.ipynb").write_text("something of mine")
    assert copy_chapters(mine)["kept"] == ["00_a.ipynb"]
    assert (mine/"00_a.ipynb").read_text() == "something of mine"

def test_a_copy_that_was_cut_short_is_mended(shipped, tmp_path):
    mine = tmp_path/"mine"
    copy_chapters(mine)
    (mine/".rlhf-nb.json").unlink()                          # killed before the last line
    (mine/"01_b.ipynb.part").write_text("half")
    assert copy_chapters(mine)["kept"] == []
    (shipped/"00_a.ipynb").write_text("second")
    assert copy_chapters(mine)["updated"] == ["00_a.ipynb"]

@pytest.mark.parametrize("form", ["solutions", "exercises", "nbgrader"])
def test_a_copy_carries_what_lab_itself_would_write(shipped, tmp_path, form):
    "The kernel's own words, so that Lab has nothing to change when it opens a chapter."
    from ipykernel.ipkernel import IPythonKernel
    from ipykernel.kernelspec import get_kernel_dict
    nbformat.write(new_notebook(cells=[new_markdown_cell("# A"), new_code_cell("1")], metadata=dict(
        kernelspec=dict(name="python3", display_name="python3"))), shipped/"00_a.ipynb")
    copy_chapters(mine := tmp_path/"mine", form)
    metadata = nbformat.read(mine/"00_a.ipynb", 4).metadata
    kernel = get_kernel_dict()
    assert metadata["kernelspec"] == dict(name="python3", display_name=kernel["display_name"], language=kernel["language"])
    assert metadata["language_info"] == IPythonKernel.language_info
    assert "00_a.ipynb" in copy_chapters(mine)["same"]

def test_to_open_a_notebook_is_not_to_change_it(shipped, tmp_path):
    cells = [new_markdown_cell("# A"), new_code_cell("1", outputs=[new_output(
        "execute_result", {"text/plain": "1"}, execution_count=None)])]
    nbformat.write(new_notebook(cells=cells), shipped/"00_a.ipynb")
    copy_chapters(mine := tmp_path/"mine")
    def opened_and_saved(change):
        nb = nbformat.read(shipped/"00_a.ipynb", 4)
        nb.metadata["language_info"] = {"name": "python", "version": "3.12"}
        nb.cells[1].execution_count = nb.cells[1].outputs[0].execution_count = 7
        change(nb)
        (mine/"00_a.ipynb").write_text(json.dumps(nb, indent=3))
        return "00_a.ipynb" in copy_chapters(mine)["kept"]
    assert not opened_and_saved(lambda nb: None)
    def source(nb): nb.cells[1].source = "2"
    def output(nb): nb.cells[1].outputs[0].data["text/plain"] = "2"
    def kind(nb): nb.cells[1].cell_type = "raw"
    def less(nb): nb.cells.pop()
    assert opened_and_saved(source) and opened_and_saved(output)
    assert opened_and_saved(kind) and opened_and_saved(less)

def test_a_run_leaves_no_dead_widgets(tmp_path):
    "And answers none: an answer can swallow the reply that a run waits for, now and then."
    nbformat.write(new_notebook(cells=[new_code_cell(
        "from ipywidgets import interact\ninteract(lambda x: print('x is', x), x=3);"),
        new_code_cell("1 + 1")]), tmp_path/"w.ipynb")
    done = run_chapter(tmp_path/"w.ipynb")
    assert done.error == "" and "widget" not in json.dumps(done.notebook.cells[0].outputs)
    assert done.notebook.cells[1].outputs and "widgets" not in done.notebook.metadata
    assert "".join(o.text for o in done.notebook.cells[0].outputs) == "x is 3\n"   # what it shows at first

# ---- the three forms of a copy, and how far one has come

ASKED = [new_code_cell("""from rlhf_nb.checks import Exercise, check
class exercises: double = Exercise(lambda x: 2 * x, {"three": (3,)}, {"that is the square": lambda x: x**2})"""),
    new_code_cell('#| exercise 5 •\ndef double(x):\n    "twice x"\n    return x + x'),
    new_code_cell("double = check(double, exercises.double)")]

def solve(file, body):
    nb = nbformat.read(file, 4)
    nb.cells[1].source = f"def double(x): {body}"
    nbformat.write(nb, file)

def test_a_folder_keeps_the_form_it_was_made_in(shipped, tmp_path):
    for name in ("01_b.ipynb", "02_c.ipynb"): (shipped/name).unlink()
    nbformat.write(new_notebook(cells=ASKED), shipped/"00_a.ipynb")
    mine = tmp_path/"mine"
    copy_chapters(mine, "exercises")
    def solved(): return "return x + x" in nbformat.read(mine/"00_a.ipynb", 4).cells[1].source
    assert not solved() and read_memory(mine)["form"] == "exercises"
    assert "00_a.ipynb" in copy_chapters(mine)["same"] and not solved()
    assert copy_chapters(mine, "solutions")["updated"] == ["00_a.ipynb"] and solved()
    assert copy_chapters(mine, "exercises")["updated"] == ["00_a.ipynb"] and not solved()
    solve(mine/"00_a.ipynb", "return 2 * x")
    assert copy_chapters(mine, "nbgrader")["kept"] == ["00_a.ipynb"]     # an answer stays

def test_check_command_tells_how_far_one_is(shipped, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(workbook, "chapters", lambda: {"00_a": shipped/"00_a.ipynb",
                                                      "01_b": shipped/"01_b.ipynb"})
    nbformat.write(new_notebook(cells=ASKED), shipped/"00_a.ipynb")
    nbformat.write(new_notebook(cells=[]), shipped/"01_b.ipynb")
    (shipped/"02_c.ipynb").unlink()
    assert main(["check"]) == 2 and "rlhf-nb copy --exercises" in capsys.readouterr().err
    assert main(["copy", "--exercises"]) == 0
    assert "rlhf-nb check --dir rlhf-workbook" in capsys.readouterr().out
    monkeypatch.setattr("jupyterlab.labapp.LabApp.launch_instance", lambda words: None)
    for again in (["copy"], ["lab"], ["lab", "other", "--exercises"]):     # said once, and not to who is there
        assert main(again) == 0 and "rlhf-nb check" not in capsys.readouterr().out
    mine, said = tmp_path/"rlhf-workbook", []
    assert read_memory(mine)["form"] == "exercises"          # as it was made
    for body in ("raise NotImplementedError", "return x * x", "return 2 * x", "return 2 * x"):
        solve(mine/"00_a.ipynb", body)
        status = main(["check", "--all"])
        said.append((status, capsys.readouterr().out.splitlines()))
    assert [status for status, _ in said] == [1, 1, 0, 0]
    assert said[0][1][-2:] == ["0 of 1 exercises are right", "next: double in 00_a (5 min, •); 5 min left"]
    assert "double: not done yet" in said[0][1][-3]
    assert said[1][1][-3].endswith("double: that is the square  (try 1)")
    assert "x double: right  (try 2, 20" in said[2][1][-3] and said[2][1] == said[3][1]
    assert said[3][1][-1] == "nothing is left to do"
    assert progress(mine)["double"][0] == 2
    with open(mine/".rlhf-nb-progress.jsonl", "a") as f: f.write('\n{"exercise": "double", "ver')   # as `remember` begins a row
    assert progress(mine)["double"][0] == 2                  # half a line spoils nothing
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
        assert main(["check", "A"]) == 2
        assert "00_a.ipynb is no notebook" in capsys.readouterr().err
    half = {"00_a": {"double": "right", "halve": "not done yet"}}
    monkeypatch.setattr(workbook, "check_chapters", lambda files: half)
    assert main(["check"]) == 1                 # for scripts: 0 only when all is right

def test_check_writes_nothing_into_other_folders(shipped, tmp_path):
    for name in ("00_a", "01_b"): nbformat.write(new_notebook(cells=ASKED), tmp_path/f"{name}.ipynb")
    solve(tmp_path/"01_b.ipynb", "return x * x")
    assert check_chapters([tmp_path/"00_a.ipynb", tmp_path/"01_b.ipynb"]) == {
        "00_a": {"double": "right"}, "01_b": {"double": "that is the square"}}
    assert {f.name for f in tmp_path.iterdir()} == {"00_a.ipynb", "01_b.ipynb", "shipped"}
    assert progress(tmp_path) == {}

def test_the_table_has_a_line_for_each_exercise_and_a_bar_for_each_chapter():
    said = {"00_a": {"f": "right", "g": "wrong sign", "h": "not done yet"}, "01_b": {"k": "right"}}
    assert progress_table(said, {"g": (2, "")}).splitlines() == [
        "00_a                #..   1 of 3", "  x f: right", "    g: wrong sign  (try 2)", "    h: not done yet",
        "01_b                #     1 of 1", "  x k: right", "2 of 4 exercises are right"]

def test_the_short_table_names_only_what_is_wrong_and_the_next():
    said = {"00_a": {"f": "right", "g": "wrong sign", "h": "not done yet"}, "01_b": {"k": "not done yet"}}
    assert progress_table(said, {"g": (2, "")}, False).splitlines() == [
        "00_a                #..   1 of 3", "    g: wrong sign  (try 2)", "1 of 4 exercises are right"]
    times = {"f": (5, "•"), "g": (10, "••"), "h": (5, "•"), "k": (20, "•••")}
    assert next_task(said, times) == "next: g in 00_a (10 min, ••); 35 min left"
    assert next_task({"a": {"f": "right"}}, times) == "nothing is left to do"
    assert next_task({"a": {"unknown": "wrong"}}, times) == "next: unknown in a"

def test_an_unchanged_answer_is_not_graded_again(shipped, tmp_path, monkeypatch):
    for name in ("01_b.ipynb", "02_c.ipynb"): (shipped/name).unlink()
    nbformat.write(new_notebook(cells=ASKED), shipped/"00_a.ipynb")
    copy_chapters(mine := tmp_path/"mine", "exercises")
    file, graded = mine/"00_a.ipynb", []
    real = workbook.check_notebook
    monkeypatch.setattr(workbook, "check_notebook", lambda file, **kw: graded.append(1) or real(file, **kw))
    for body, n in (("return x * x", 1), ("return x * x", 1), ("return 2 * x", 2), ("return 2 * x", 2), ("return x * x", 3)):
        solve(file, body)
        verdict = check_chapters([file])["00_a"]["double"]
        assert verdict == ("right" if "2" in body else "that is the square") and len(graded) == n
    nb = nbformat.read(file, 4)
    nb.cells[0].source = nb.cells[0].source.replace("that is the square", "no square")    # the exercise is another
    nbformat.write(nb, file)
    assert check_chapters([file]) == {"00_a": {"double": "no square"}} and len(graded) == 4
    remember(mine, {"double": "no end after 60 s: an endless loop?"}, workbook._answer_hashes(file))
    assert check_chapters([file]) == {"00_a": {"double": "no square"}} and len(graded) == 5   # that may have been the machine

# ---- a chapter with answers is brought up to date

def changed_chapter(text="a new sentence"):
    cells = [nbformat.from_dict(c) for c in ASKED]
    return new_notebook(cells=[nbformat.v4.new_markdown_cell(text, id="text")] + cells)

@pytest.fixture
def answered(shipped, tmp_path):
    "A copy with an answer, a cell of the learner's own, and a shipped chapter that has changed since."
    for name in ("01_b.ipynb", "02_c.ipynb"): (shipped/name).unlink()
    nbformat.write(new_notebook(cells=ASKED), shipped/"00_a.ipynb")
    copy_chapters(mine := tmp_path/"mine", "exercises")
    solve(mine/"00_a.ipynb", "return x + x  # mine")
    nb = nbformat.read(mine/"00_a.ipynb", 4)
    nb.cells.insert(2, new_code_cell("print('my own try')", id="own"))
    nbformat.write(nb, mine/"00_a.ipynb")
    nbformat.write(changed_chapter(), shipped/"00_a.ipynb")
    return mine

def test_update_takes_the_new_text_and_keeps_the_answers(answered, shipped):
    old = (answered/"00_a.ipynb").read_bytes()
    assert copy_chapters(answered)["kept"] == ["00_a.ipynb"] and (answered/"00_a.ipynb").read_bytes() == old
    assert copy_chapters(answered, update=True)["merged"] == ["00_a.ipynb"]
    nb = nbformat.read(answered/"00_a.ipynb", 4)
    nbformat.validate(nb)
    sources = [c.source for c in nb.cells]
    assert sources[0] == "a new sentence" and "Exercise" in sources[1]
    assert sources[2] == "def double(x): return x + x  # mine" and sources[3] == "print('my own try')"
    assert sources[4].startswith("double = check(") and "Solution" in sources[5] and len(sources) == 6
    assert (answered/"00_a.before-update-1.ipynb").read_bytes() == old
    assert check_chapters([answered/"00_a.ipynb"]) == {"00_a": {"double": "right"}}
    before = {f.name: f.read_bytes() for f in answered.iterdir() if f.is_file()}
    assert "merged" not in copy_chapters(answered, update=True)                  # nothing newer: nothing is done
    assert before == {f.name: f.read_bytes() for f in answered.iterdir() if f.is_file()}
    nbformat.write(changed_chapter("newer still"), shipped/"00_a.ipynb")
    copy_chapters(answered, update=True)
    assert (answered/"00_a.before-update-1.ipynb").read_bytes() == old and (answered/"00_a.before-update-2.ipynb").is_file()
    assert "newer still" in (answered/"00_a.ipynb").read_text() and "# mine" in (answered/"00_a.ipynb").read_text()

def test_update_says_what_it_did(answered, capsys, monkeypatch):
    monkeypatch.setattr(workbook, "trust_notebooks", lambda files: None)
    assert main(["copy", str(answered), "--update"]) == 0
    said = capsys.readouterr().out
    assert "1 merged" in said and "beside it as .before-update-1" in said

@pytest.mark.parametrize("writes", range(4))
def test_a_full_disk_during_an_update_loses_nothing(answered, monkeypatch, writes):
    old, real, left = (answered/"00_a.ipynb").read_bytes(), os.replace, [writes]
    def replace(*args):
        left[0] -= 1
        return real(*args) if left[0] >= 0 else full_disk()
    with monkeypatch.context() as m:
        m.setattr(os, "replace", replace)
        try: copy_chapters(answered, update=True)
        except OSError as e: assert "no room is left on the disk" in str(e)
    kept = [f.read_bytes() for f in answered.glob("00_a*.ipynb")]
    assert old in kept and not list(answered.glob("*.part"))
    copy_chapters(answered, update=True)
    assert "# mine" in (answered/"00_a.ipynb").read_text() and "a new sentence" in (answered/"00_a.ipynb").read_text()

def test_an_empty_stub_and_no_notebook_are_no_answers(answered):
    solve(answered/"00_a.ipynb", "raise NotImplementedError")
    copy_chapters(answered, update=True)
    assert "your turn" in nbformat.read(answered/"00_a.ipynb", 4).cells[2].source
    (answered/"00_a.ipynb").write_text("my notes")
    assert copy_chapters(answered, update=True)["kept"] == ["00_a.ipynb"] and (answered/"00_a.ipynb").read_text() == "my notes"

def test_the_copy_of_another_version_is_refused_in_one_sentence(shipped, tmp_path, capsys):
    copy_chapters(mine := tmp_path/"mine")
    memory = json.loads((mine/".rlhf-nb.json").read_text())
    before = {f.name: f.read_bytes() for f in mine.iterdir() if f.is_file()}
    for text, want in ((json.dumps({k: v for k, v in memory.items() if k != "format"}), "another version"),
                       (json.dumps(memory | {"format": 99}), "another version"), ("[]", "another version"), ("3", "broken"), ("{", "broken")):
        (mine/".rlhf-nb.json").write_text(text)
        for words in (["copy", str(mine)], ["check", "--dir", str(mine)]):
            assert main(words) == 2
            complaint = capsys.readouterr().err
            assert want in complaint and complaint.count("\n") == 1 and "copy" in complaint
    for name in ("00_a.ipynb", "01_b.ipynb"): assert (mine/name).read_bytes() == before[name]

@pytest.mark.parametrize("inside", [".", "sub", "images"])
def test_no_copy_into_the_source(shipped, inside):
    with pytest.raises(ValueError, match="copy to another folder"): copy_chapters(shipped/inside)

def test_decide():
    table = {("a", None, None): "new", ("a", None, "a"): "new", ("a", "a", None): "same",
             ("a", "a", "b"): "same", ("a", "b", "b"): "updated", ("a", "b", None): "kept",
             ("a", "b", "a"): "kept", ("a", "b", "c"): "kept"}
    assert {k: decide(*k) for k in table} == table

def test_copy_command_signs_the_notebooks_and_says_what_it_kept(tmp_path):
    from nbformat.sign import NotebookNotary
    env = {**os.environ, "JUPYTER_DATA_DIR": str(tmp_path/"data")}
    said = command("copy", tmp_path/"mine", env=env)
    assert said.returncode == 0 and re.search(r"mine: \d+ new$", said.stdout), said
    assert {f.name for f in chapters().values()} <= {f.name for f in (tmp_path/"mine").rglob("*.ipynb")}
    (tmp_path/"mine/02_tokens.ipynb").write_text("{}")
    said = command("copy", tmp_path/"mine", env=env)
    assert "kept as you changed them: 02_tokens.ipynb" in said.stdout
    notary = NotebookNotary(data_dir=str(tmp_path/"data"))
    copied = nbformat.read(tmp_path/"mine/03_world.ipynb", 4)
    assert notary.check_signature(copied)
    copied.cells[0].source = "changed"
    assert not notary.check_signature(copied)

# ---- run and report

@pytest.fixture(scope="module")
def done_run(tmp_path_factory):
    "Three notebooks: one fails, one is no notebook, one is well."
    home = tmp_path_factory.mktemp("run")
    cells = [new_markdown_cell("# Fails <i>late</i>\n\n> It draws, then divides."),
             new_code_cell("import matplotlib.pyplot as plt; plt.plot([1, 2]);"),
             new_markdown_cell("## The sum"), new_code_cell("print('sum', 40 + 2)"),
             new_code_cell("def f(): return 1/0\nf()  # the wrong <cell>"),
             new_code_cell("print('never ' + 'reached')")]
    nbformat.write(new_notebook(cells=cells), home/"bad.ipynb")
    (home/"none.ipynb").write_text("{")
    cells = [new_markdown_cell("# Well\n\n> All is\n> well.\n\nMore."), new_code_cell(
        "import os, sys; from pathlib import Path\nprint('python', sys.executable)\n"
        "print('around', os.listdir())\nprint('lines')\nfor i in range(40): print(i)"),
        new_code_cell("Path('left.txt').write_text('x')")]
    nbformat.write(new_notebook(cells=cells), home/"well.ipynb")
    other = home.parent/"elsewhere/kernels/python3"         # a kernel some user installed
    other.mkdir(parents=True)
    (other/"kernel.json").write_text(json.dumps(dict(
        argv=["false"], display_name="not ours", language="python")))
    env = {**os.environ, "JUPYTER_PATH": str(other.parents[1]),
           "JUPYTER_PREFER_ENV_PATH": "0"}
    said = command("run", home/"bad.ipynb", home/"none.ipynb", home/"well.ipynb",
                   "--out", home/"out", env=env)
    return home, said

def test_run_goes_on_after_a_failure_and_exits_non_zero(done_run):
    home, said = done_run
    assert said.returncode == 1
    assert re.search(r"^bad .* s  ZeroDivisionError: division by zero$", said.stdout, re.M)
    assert re.search(r"^none .* s  this is no notebook", said.stdout, re.M)
    assert re.search(r"^well .* s  ok$", said.stdout, re.M)
    assert "failed: bad, none" in said.stdout and "Traceback" not in said.stderr

def test_run_works_in_an_empty_folder_with_this_python(done_run):
    home, _ = done_run
    text = nbformat.read(home/"out/well.ipynb", 4).cells[1].outputs[0].text
    assert f"python {sys.executable}\n" in text and "around []" in text
    assert sorted(f.name for f in home.iterdir()) == ["bad.ipynb", "none.ipynb", "out", "well.ipynb"]

def test_run_saves_the_executed_notebooks(done_run):
    home, _ = done_run
    bad = nbformat.read(home/"out/bad.ipynb", 4)
    assert bad.cells[3].outputs[0].text == "sum 42\n"
    assert bad.cells[4].outputs[0].ename == "ZeroDivisionError"
    assert not bad.cells[5].outputs
    assert "outputs" not in nbformat.read(home/"bad.ipynb", 4).cells[0]
    assert not nbformat.read(home/"bad.ipynb", 4).cells[3].outputs      # the source is as it was

class Links(HTMLParser):
    "Everything in a page that a browser would load, and whether tags close."
    def __init__(self, page):
        super().__init__()
        self.loads, self.open = [], []
        self.feed(page)
    def handle_starttag(self, tag, attrs):
        self.loads += [v for k, v in attrs if k in ("src", "srcset", "data", "poster", "action")
                       or k == "href" and tag == "link"]
        if tag in ("details", "summary", "table", "pre", "style", "script"): self.open.append(tag)
    def handle_endtag(self, tag):
        if tag in self.open: assert self.open.pop() == tag

def test_the_report_is_one_file_that_loads_nothing(done_run):
    home, _ = done_run
    page = (home/"out/report.html").read_text("utf-8")
    links = Links(page)
    assert links.open == [] and "script" not in page and "url(" not in page and "@import" not in page
    assert len(links.loads) == 1 and links.loads[0].startswith("data:image/png;base64,iVBOR")

def test_the_report_says_time_status_figures_and_what_failed(done_run):
    home, _ = done_run
    page = (home/"out/report.html").read_text("utf-8")
    assert "2 of 3 failed" in page
    assert re.search(r"bad</a><td class=failed>failed<td class=num>\d+\.\d s<td>ZeroDivisionError", page)
    assert re.search(r"well</a><td class=ok>ok<td class=num>\d+\.\d s<td>All is well.", page)
    assert "the wrong &lt;cell&gt;" in page and "Fails &lt;i&gt;late" in page
    assert "<h3>The sum</h3><pre>sum 42</pre>" in page
    assert "never" not in page and "more lines" in page and "\n39" not in page

def test_a_run_may_not_overwrite_its_source(done_run):
    home, _ = done_run
    before = (home/"well.ipynb").read_bytes()
    said = command("run", home/"well.ipynb", "--out", home)
    assert said.returncode == 2 and "no run wrote" in said.stderr and said.stderr.count("\n") == 1
    assert (home/"well.ipynb").read_bytes() == before

def one_cell(file, source="print(1)", title="# One"):
    nbformat.write(new_notebook(cells=[new_markdown_cell(title), new_code_cell(source)]), file)
    return file

@pytest.fixture
def never_run(monkeypatch):
    "Whatever is refused is refused before anything runs."
    def run_chapter(*_): raise AssertionError("a chapter ran")
    monkeypatch.setattr(workbook, "run_chapter", run_chapter)

def test_a_run_in_a_learners_copy_replaces_no_answer(shipped, tmp_path, monkeypatch, never_run, capsys):
    for name in ("00_a.ipynb", "01_b.ipynb", "02_c.ipynb"): one_cell(shipped/name)
    copy_chapters(mine := tmp_path/"mine", "exercises")
    one_cell(mine/"00_a.ipynb", "my_answer = 1")
    before = {f.name: f.read_bytes() for f in mine.iterdir() if f.is_file()}
    monkeypatch.chdir(mine)
    for words in (["run", "a", "--out", "."], ["run", "--out", str(mine)], ["run", "00_a.ipynb", "-o", "."]):
        assert main(words) == 2
        complaint = capsys.readouterr().err
        assert "copy of the workbook" in complaint and complaint.count("\n") == 1
    assert {f.name: f.read_bytes() for f in mine.iterdir() if f.is_file()} == before

@pytest.mark.parametrize("name", ["one.ipynb", "report.html"])
@pytest.mark.parametrize("content", ["somebody's work", "", "<!-- rlhf-nb run 0 -->", '{"metadata": {"rlhf_nb_run": "x"}}'])
def test_a_run_writes_over_no_file_that_no_run_wrote(tmp_path, never_run, name, content):
    (out := tmp_path/"out").mkdir()
    (out/name).write_text(content)
    with pytest.raises(ValueError, match=rf"no run wrote .*{name}.*nothing was run"):
        run_chapters([one_cell(tmp_path/"one.ipynb")], out)
    assert (out/name).read_text() == content and [f.name for f in out.iterdir()] == [name]

def test_a_run_goes_over_its_own_files_until_somebody_changes_them(tmp_path):
    file, out = one_cell(tmp_path/"one.ipynb", "import this"), tmp_path/"out"
    (out/"notes").mkdir(parents=True)                        # other files may lie there
    for _ in range(2): run_chapters([file], out)
    nb = nbformat.read(out/"one.ipynb", 4)                   # opened and saved: cells are as they were
    nb.metadata["language_info"], nb.cells[1].execution_count = {"name": "python"}, 9
    nbformat.write(nb, out/"one.ipynb")
    run_chapters([file], out)
    nb = nbformat.read(out/"one.ipynb", 4)
    nb.cells.append(new_markdown_cell("my remark"))
    nbformat.write(nb, out/"one.ipynb")
    with pytest.raises(ValueError, match="changed since"): run_chapters([file], out)
    assert "my remark" in (out/"one.ipynb").read_text()
    (out/"one.ipynb").unlink()
    page = (out/"report.html").read_text()
    (out/"report.html").write_text(page.replace("All", "all").replace("One", "Two"))
    with pytest.raises(ValueError, match="report.html"): run_chapters([file], out)

def test_two_notebooks_of_one_name_are_refused(tmp_path, never_run):
    for folder in "ab": (tmp_path/folder).mkdir()
    files = [one_cell(tmp_path/folder/"one.ipynb") for folder in "ab"]
    with pytest.raises(ValueError, match="two notebooks are called one.ipynb"): run_chapters(files, tmp_path/"out")
    assert not (tmp_path/"out").exists()

def test_a_cell_that_takes_too_long_is_a_failure(tmp_path):
    slow = tmp_path/"slow.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("1"), new_code_cell(
        "import time; time.sleep(60)")]), slow)
    start = time.time()
    done = run_chapter(slow, timeout=1)
    assert "Timeout" in done.error and "sleep" in done.cell and time.time() - start < 20

def test_a_kernel_that_dies_is_a_failure(tmp_path):
    dies = tmp_path/"dies.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("import os; os._exit(3)")]), dies)
    [done] = run_chapters([dies], tmp_path/"out")
    assert "DeadKernel" in done.error and "_exit" in done.cell

def test_outputs_are_shown_safely():
    shown = _show_output(new_output("stream", text="\x1b[31m<script>\x1b[0m & more\n"))
    assert shown == "<pre>&lt;script&gt; &amp; more</pre>"
    svg = '<svg xmlns="http://www.w3.org/2000/svg"><image href="http://far.away/x"/></svg>'
    shown = _show_output(new_output("display_data", data={"image/svg+xml": svg}))
    assert "far.away" not in shown and shown.startswith('<img alt="figure" src="data:image/svg+xml;base64,')
    assert _show_output(new_output("display_data", data={"text/html": "<img src=http://far.away>"})) == ""
    assert _show_output(new_output("execute_result", data={"text/plain": "interactive(children=())"})) == ""

EVIL = ['"><script>alert(1)</script>', "' onerror='alert(1)", '" onload="alert(1)', "</pre><img src=x onerror=alert(1)>",
        "javascript:alert(1)", "\ud800<b>", "\x00\x1b]8;;http://far.away\x07x", "AA==\" onerror=\"alert(1)", "]]><svg onload=x>",
        "data:text/html,<script>x</script>", ["a", "b"], {"a": "<script>"}, 7, None]

class Hostile(HTMLParser):
    "Every tag and attribute of a page."
    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)
    def handle_starttag(self, tag, attrs): self.found += [(tag, k, v) for k, v in attrs] or [(tag, "", "")]

@pytest.mark.parametrize("kind", ["image/png", "image/svg+xml", "image/jpeg", "image/gif", "text/html", "text/plain",
    "text/latex", "text/markdown", "application/javascript", "application/json", "application/vnd.jupyter.widget-view+json"])
@pytest.mark.parametrize("evil", EVIL, ids=repr)
def test_no_output_of_any_kind_becomes_a_tag(kind, evil):
    "Of a chapter whose name, title, headings, printed text and error are hostile too."
    text = evil if isinstance(evil, str) else "x" + str(evil)
    cells = [new_markdown_cell(f"# {text}\n\n> {text}"), new_code_cell("1"), new_markdown_cell(f"## {text}"), new_code_cell("2")]
    nb = new_notebook(cells=cells)
    nb.cells[1].outputs = [nbformat.NotebookNode(output_type="display_data", metadata={}, data={kind: evil})]
    nb.cells[3].outputs = [nbformat.NotebookNode(output_type="stream", name="stdout", text=text)]
    page = report([workbook.Outcome(text, 1., text, text, nb), workbook.Outcome("b", 1., "", "", nb)])
    page.encode()                                            # UTF-8 can write it
    allowed = {"html": {"lang"}, "meta": {"charset", "name", "content"}, "title": {""}, "style": {""}, "h1": {""}, "p": {"", "class"},
               "table": {""}, "tr": {""}, "th": {"", "class"}, "td": {"", "class"}, "a": {"href"}, "details": {"", "open"},
               "summary": {""}, "b": {"class"}, "div": {"id"}, "pre": {""}, "h3": {""}, "img": {"alt", "src"}}
    for tag, key, value in Hostile(page).found:
        assert key in allowed.get(tag, ()), (tag, key, value)
        if key == "src": assert re.fullmatch(r"data:image/(png|svg\+xml);base64,[A-Za-z0-9+/=]*", value), value
        if key == "href": assert value.startswith("#")

def test_a_run_survives_half_characters_and_orders_to_the_terminal(tmp_path, capsys, monkeypatch):
    source = "from IPython.display import display\ndisplay({'image/png': '\"x'}, raw=True)\nraise ValueError('\\x1b[2Jgone')"
    file, out = one_cell(tmp_path/"one.ipynb", source), tmp_path/"out"
    [done] = run_chapters([file], out)
    assert "ValueError" in done.error and "\x1b[2J" not in capsys.readouterr().out
    nb = new_notebook(cells=[new_code_cell("1", outputs=[new_output("stream", text="\ud800")])])
    monkeypatch.setattr(workbook, "run_chapter", lambda *_: workbook.Outcome("one", 1., "\ud800\x07", "\ud800", nb))
    for _ in range(2): run_chapters([file], out)             # and knows its own files again
    capsys.readouterr().out.encode()

def test_a_good_run_says_so(done_run):
    home, _ = done_run
    done = run_chapter(home/"well.ipynb")
    assert done.error == "" and done.cell == "" and "all 1 passed" in report([done])

# ---- how a command ends

MAIN = "import sys; from rlhf_nb.workbook import main; sys.exit(main())"

def processes():
    "pid -> (state, parent, command line) of all processes."
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder/"stat").read_text().rsplit(")", 1)[1].split()[:2]
            found[int(folder.name)] = state, int(parent), (folder/"cmdline").read_text()
        except OSError: pass
    return found

def marked(word): return {pid for pid, (state, _, line) in processes().items() if word in line and state != "Z"}

def wait_for(ready, what, stalled=60):
    "Until it is so; given up when it is not so for very long."
    end = time.monotonic() + stalled
    while not ready():
        assert time.monotonic() < end, what
        time.sleep(.05)

linux = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="reads /proc")

def stopped(words, started, number, **kw):
    "Start a command, send it a signal once it is at work, wait for its end."
    p = subprocess.Popen([sys.executable, "-c", MAIN, *map(str, words)], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, **kw)
    try:
        wait_for(lambda: started() or p.poll() is not None, "it did not begin")
        p.send_signal(number)
        out, err = p.communicate(timeout=60)
    finally: p.kill()
    return p.returncode, out, err

@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_a_run_as_a_whole(tmp_path, number):
    word = f"sleep-of-{tmp_path.name}-{number}"
    (tmp_path/"here").mkdir()
    source = f"""import subprocess, sys
from pathlib import Path
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", {word!r}])
Path({str(tmp_path/'here/began')!r}).touch()
while True: pass"""
    files = [one_cell(tmp_path/f"{i}.ipynb", source) for i in range(3)]
    status, out, err = stopped(["run", *files, "-o", tmp_path/"out"], (tmp_path/"here/began").exists, number)
    assert status == 128 + number and "Traceback" not in err and err.rstrip().endswith("stopped"), err
    assert "ok" not in out and not list((tmp_path/"out").glob("*.ipynb"))   # no other chapter was begun
    wait_for(lambda: not marked(word), "a process of a cell goes on")
    wait_for(lambda: not marked(str(tmp_path)), "a kernel goes on")

ENDLESS = """from rlhf_nb.checks import Exercise, check
class exercises: f = g = Exercise(lambda x: x, {"one": (1,)}, {})"""

def endless_copy(shipped, tmp_path, body):
    for i, name in enumerate(("00_a", "01_b", "02_c")):
        cells = [new_code_cell(ENDLESS)]
        for k in "fg": cells += [new_code_cell(f"def {k}(x):\n    {body}"), new_code_cell(f"check({k}, exercises.{k})")]
        nbformat.write(new_notebook(cells=cells), shipped/f"{name}.ipynb")
    copy_chapters(mine := tmp_path/"mine")
    return mine

CHECK = """import sys; from pathlib import Path; from rlhf_nb import workbook
found = {f.stem: f for f in sorted(Path(sys.argv.pop(1)).glob("[0-9]*.ipynb"))}
workbook.chapters = lambda: found
sys.exit(workbook.main())"""

@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_endless_answer_ends_with_its_check(shipped, tmp_path, number):
    word = f"child-of-{tmp_path.name}"
    body = (f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)', {word!r}])"
            "\n    while True: pass")
    mine = endless_copy(shipped, tmp_path, body)
    p = subprocess.Popen([sys.executable, "-c", CHECK, str(shipped), "check", "--dir", str(mine)],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: marked(word) or p.poll() is not None, "no answer began")
        mine_now = {pid for pid, (_, parent, _) in processes().items() if parent == p.pid}
        assert mine_now
        p.send_signal(number)
        out, err = p.communicate(timeout=30)                 # long before the limit of 60 s
    finally: p.kill()
    assert p.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    assert "Traceback" not in err and "right" not in out
    wait_for(lambda: not marked(word), "what the answer started goes on")
    wait_for(lambda: not mine_now & {pid for pid, (state, *_) in processes().items() if state != "Z"}, "an answer goes on")

@pytest.mark.parametrize("words, heavy", [(["doctor"], "torch"), (["train", "--help"], "torch"), (["pipeline", "--help"], "transformers"),
                                          (["lab", "mine"], "jupyterlab.labapp"), (["copy", "mine"], "nbformat")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_slow_imports_is_no_traceback(tmp_path, words, heavy, number):
    "The import itself sends the signal, from within."
    (tmp_path/"go.py").write_text(f"""import os, sys
from rlhf_nb.workbook import main
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == {heavy!r}: os.kill(os.getpid(), {int(number)})
sys.meta_path.insert(0, Slow())
sys.exit(main({words!r}))""")
    done = subprocess.run([sys.executable, tmp_path/"go.py"], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 128 + number and done.stderr == "stopped\n", done
    assert not (tmp_path/"mine").exists()

def test_an_ignored_signal_stays_ignored(tmp_path):
    code = ("import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN)\nfrom rlhf_nb import workbook\n"
            "workbook._paths_command = lambda args: os.kill(os.getpid(), signal.SIGHUP)\nsys.exit(workbook.main(['paths']))")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0      # nohup

@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["paths"], ["doctor"], ["env"], ["copy", "mine"], ["train", "--help"],
                                   ["pipeline", "validate", "--help"]])
def test_a_reader_that_is_gone_ends_a_command_quietly(tmp_path, words):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", MAIN, *words], stdout=write, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(write)
    assert done.stderr == "" and done.returncode in ((0, 141) if "--help" in words else (141,)), done    # argparse forgives

@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_the_output_is_told_in_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", MAIN, "paths"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and done.stderr.startswith("rlhf-nb paths: ") and done.stderr.count("\n") == 1

@pytest.mark.parametrize("home", ["/dev/null", "/proc/none"])
def test_an_unwritable_home_is_told_before_anything_is_copied(tmp_path, home):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "XDG"))} | {"HOME": home}
    done = command("copy", tmp_path/"mine", env=env)
    assert done.returncode == 2 and not (tmp_path/"mine").exists(), done
    assert "cannot be written" in done.stderr and "nothing was copied" in done.stderr and done.stderr.count("\n") == 1

# ---- a full disk

def full_disk(*_, **__): raise OSError(28, "No space left on device")

def test_a_full_disk_while_copying_is_told_and_leaves_every_file_complete(shipped, tmp_path, monkeypatch, capsys):
    mine, real, left = tmp_path/"mine", os.replace, [2]
    def replace(*args):
        left[0] -= 1
        return real(*args) if left[0] >= 0 else full_disk()
    with monkeypatch.context() as m:
        m.setattr(os, "replace", replace)
        assert main(["copy", str(mine)]) == 2
    complaint = capsys.readouterr().err
    assert "no room is left on the disk" in complaint and "complete" in complaint and complaint.count("\n") == 1
    assert sorted(f.name for f in mine.rglob("*") if f.is_file()) == ["00_a.ipynb", "01_b.ipynb"]
    assert copy_chapters(mine) == dict(new=["02_c.ipynb", "images/p.svg"], same=["00_a.ipynb", "01_b.ipynb"], updated=[], kept=[])

def test_a_full_disk_during_a_run_is_told_and_what_was_saved_stays(tmp_path, monkeypatch, capsys):
    files, out = [one_cell(tmp_path/f"{i}.ipynb") for i in range(3)], tmp_path/"out"
    real = workbook._write
    monkeypatch.setattr(workbook, "_write", lambda file, data: full_disk() if file.name == "1.ipynb" else real(file, data))
    assert main(["run", *map(str, files), "-o", str(out)]) == 2
    complaint = capsys.readouterr().err.splitlines()[-1]
    assert "no room is left on the disk" in complaint and "1 chapters before are saved" in complaint
    assert workbook._written_by_run(out/"0.ipynb") and workbook._written_by_run(out/"report.html") and not (out/"1.ipynb").exists()

def test_a_full_disk_during_check_costs_no_verdict(shipped, tmp_path, monkeypatch, capsys):
    for name in ("01_b.ipynb", "02_c.ipynb"): (shipped/name).unlink()
    nbformat.write(new_notebook(cells=ASKED), shipped/"00_a.ipynb")
    monkeypatch.setattr(workbook, "chapters", lambda: {"00_a": shipped/"00_a.ipynb"})
    copy_chapters(mine := tmp_path/"mine")
    assert main(["check", "--dir", str(mine)]) == 0
    before = (mine/".rlhf-nb-progress.jsonl").read_text()
    (mine/".rlhf-nb-progress.jsonl").unlink()
    (mine/".rlhf-nb-progress.jsonl").symlink_to("/dev/full")
    capsys.readouterr()
    assert main(["check", "--dir", str(mine)]) == 0
    printed = capsys.readouterr().out
    assert "(not written down: [Errno 28]" in printed and "earlier tries are safe" in printed and "1 of 1 exercises are right" in printed
    assert "double" in before

# ---- lab

def test_lab_arguments(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000, raising=False)
    words = lab_arguments(tmp_path, ["--port", "1"])
    assert words[0] == f"--ServerApp.root_dir={tmp_path}" and words[-2:] == ["--port", "1"]
    assert "--allow-root" not in words and any("/lab/tree/index.ipynb" in w for w in words)
    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)
    assert "--allow-root" in lab_arguments(tmp_path, [])

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_lab_serves_a_copy_at_the_index_until_a_signal_ends_it(tmp_path, number):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {**os.environ, **{f"JUPYTER_{k}_DIR": str(tmp_path/k) for k in ("CONFIG", "DATA", "RUNTIME")},
           "JUPYTERLAB_SETTINGS_DIR": str(tmp_path/"set"), "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path/"ws")}
    log = open(tmp_path/"log", "w+")
    lab = subprocess.Popen([sys.executable, "-c",
        "import sys; from rlhf_nb.workbook import main; sys.exit(main())", "lab", "mine", "--",
        "--no-browser", f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=word"],
        cwd=tmp_path, env=env, stdout=log, stderr=subprocess.STDOUT)
    def get(path):
        return urllib.request.urlopen(f"http://127.0.0.1:{port}{path}?token=word", timeout=5)
    try:
        while True:
            try: get("/api"); break
            except OSError: time.sleep(.2)
            assert lab.poll() is None, (tmp_path/"log").read_text()
        assert get("/").geturl().split("?")[0].endswith("/lab/tree/index.ipynb")
        files = {f["name"]: f for f in json.load(get("/api/contents"))["content"]}
        served = {*files, *(f["name"] for f in json.load(get("/api/contents/engine"))["content"])}
        assert set(chapters()) <= {n.removesuffix(".ipynb") for n in served}
        lab.send_signal(number)
        assert lab.wait(120) == 128 + number, (tmp_path/"log").read_text()
    finally: lab.kill()

# ---- the command line

@pytest.mark.parametrize("words", [[], ["lab"], ["copy"], ["check"], ["run"], ["paths"], ["doctor"], ["env"]])
def test_help_helps(words, capsys):
    with pytest.raises(SystemExit) as stop: main([*words, "--help"])
    said = capsys.readouterr().out
    assert stop.value.code == 0 and "usage: rlhf-nb" in said
    for name in ("lab", "copy", "check", "run", "train", "best-of-n", "pipeline", "paths", "doctor", "env") if not words else ("examples:",):
        assert name in said

COMMANDS = ["lab", "copy", "check", "run", "train", "best-of-n", "pipeline", "paths", "doctor", "env"]

def all_parsers(parser):
    "A parser and those of its commands."
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values(): yield from all_parsers(below)

@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_prints_its_default(command):
    for parser in all_parsers(workbook._make_parser(command)):
        for action in parser._actions:
            if not action.option_strings or action.nargs == 0 or action.required or action.help == argparse.SUPPRESS: continue
            assert "default" in action.help, f"{parser.prog} {action.option_strings}: {action.help}"

def test_underscores_and_dashes_are_alike_in_options(monkeypatch):
    given = []
    monkeypatch.setattr(workbook, "_run_command", lambda args: given.append(args.output_dir))
    for words in (["--output_dir", "a_b"], ["--output-dir", "a_b"], ["--output_dir=a_b"], ["--out", "a_b"],
                  ["-o", "a_b"]):
        assert main(["run", *words]) == 0
    assert given == ["a_b"] * 5                              # the value keeps its own

def test_extra_words_of_lab_are_passed_on_as_they_are(monkeypatch, tmp_path):
    given = []
    monkeypatch.setattr(workbook, "_lab_command", lambda args: given.append((args.dir, args.extra)))
    assert main(["lab", "mine", "--", "--port_x", "9"]) == 0 and given == [("mine", ["--port_x", "9"])]

def test_env_is_what_doctor_sees_as_one_block(capsys):
    assert main(["env"]) == 0
    first, *rows, last = capsys.readouterr().out.splitlines()
    assert first == last == "```"
    assert main(["doctor"]) in (0, 1)
    printed = capsys.readouterr().out
    for row in rows: assert row[:14].strip() in printed
    assert {"rlhf-nb", "Python", "torch", "device", "chapters"} <= {row.split()[0] for row in rows}

def test_help_is_fast_for_nothing_heavy_is_imported():
    code = ("import sys\nfrom rlhf_nb.workbook import main\ntry: main(['--help'])\n"
            "except SystemExit: pass\nheavy = {'torch', 'jupyterlab', 'nbclient', 'nbformat',"
            " 'transformers', 'matplotlib', 'rlhf_nb.recipes'}\nprint(heavy & set(sys.modules))")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.stdout.endswith("set()\n"), said

def test_no_word_prints_the_help(capsys):
    with pytest.raises(SystemExit): main([])
    assert "COMMAND" in capsys.readouterr().out

def test_a_wrong_word_is_answered_in_one_line(capsys):
    assert main(["run", "tokenz"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("rlhf-nb run: no chapter tokenz: there are") and said.count("\n") == 1

def test_only_lab_passes_words_on(capsys):
    with pytest.raises(SystemExit): main(["run", "tokens", "--", "--port", "1"])
    assert "only lab passes arguments on, got --port 1" in capsys.readouterr().err

def test_paths(capsys):
    assert main(["paths"]) == 0
    said = capsys.readouterr().out
    assert str(notebooks()) in said and str(Path(rlhf_nb.__file__).parent) in said

def test_doctor_finds_what_is_missing_and_says_how_to_get_it(capsys, monkeypatch):
    real = requirements()
    assert {"torch", "transformers", "jupyterlab"} <= {name for name, *_ in real}
    assert "pytest" not in {name for name, *_ in real}         # an extra, not needed to learn
    assert all(fits for *_, fits in real)
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "nothing is missing" in said and len(re.findall(r"^ok  torch ", said, re.M)) == 1
    monkeypatch.setattr(workbook, "requirements", lambda: [("peft", ">=0.14", None, False)])
    monkeypatch.setattr(workbook, "_free_space", lambda: [("memory", .5, 2.), ("disk", .1, .5)])
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "pip install 'peft>=0.14'" in said and "memory: a run needs about 2.0 GB: close programs" in said
    assert "disk: a run needs about 0.5 GB: point TMPDIR elsewhere" in said

def test_versions_are_compared_not_just_looked_for(monkeypatch):
    monkeypatch.setattr(workbook.metadata, "requires", lambda _: [
        "torch>=2.4", "torch>=999", "no-such-package-here", "pytest>=8; extra == 'dev'"])
    assert [(name, fits) for name, _, _, fits in requirements()] == [
        ("torch", True), ("torch", False), ("no-such-package-here", False)]

def test_the_command_runs_outside_the_main_thread(capsys):
    # A notebook's cell with a time limit runs in a thread, where Python sets no signals.
    status = []
    thread = threading.Thread(target=lambda: status.append(workbook.main(["paths"])))
    thread.start(); thread.join()
    assert status == [0] and capsys.readouterr().out

def test_the_index_shows_how_far_one_is(tmp_path):
    "From the last verdict of each exercise; a folder that is no copy counts as not begun."
    times = workbook.task_times([workbook.chapters()["04_sft"]])
    total = sum(minutes for minutes, _ in times.values())
    def row(folder): return re.search(r"04 sft</a>.*?</tr>", workbook.show_progress(folder).data)[0]
    assert f"0 of {len(times)}" in row(tmp_path) and f"{total} min left" in row(tmp_path)
    (tmp_path/workbook.MEMORY).write_text("{}")
    first, *rest = times
    remember(tmp_path, {first: "right"})
    assert f"1 of {len(times)}" in row(tmp_path) and f"{total - times[first][0]} min left" in row(tmp_path)
    remember(tmp_path, {first: "turn the sign"})                # no longer right
    assert f"0 of {len(times)}" in row(tmp_path)
    remember(tmp_path, {name: "right" for name in times})
    assert ">done<" in row(tmp_path) and 'href="04_sft.ipynb"' in workbook.show_progress(tmp_path).data
    page = workbook.show_progress(tmp_path).data
    assert f"{len(times)} of " in re.search("<caption>(.*?)</caption>", page)[1]
    assert page.count("<progress") == page.count('aria-label="') == page.count("</tr>") > 10
