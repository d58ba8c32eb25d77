"The three forms of a chapter, and copies in which no answer is ever lost."
import copy, json, os, nbformat, pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from rlhf_nb.base.files import notebooks
from rlhf_nb.book import copies
from rlhf_nb.book.checks import CHECK, needed
from rlhf_nb.book.command import main
from rlhf_nb.book.copies import (chapters, copy_chapters, decide, emptied, find_chapters, instructors_copy,
    learners_copy, read_memory, split_exercise)
from rlhf_nb.book.progress import check_chapters
from rlhf_nb.book.teach import minutes_spent, week_plan, write_course

# ---- which notebooks
def test_chapters_come_in_reading_order():
    stems = list(chapters())
    course = [s for s in stems if s[0].isdigit() or s[0] == "A"]
    engine = stems[1 + len(course):]
    assert stems == ["index", *sorted(course), *sorted(engine)] and "copies" in engine

def test_a_chapter_has_several_names_and_a_path_is_itself(tmp_path):
    mine = tmp_path/"02_tokens_mine.ipynb"
    mine.write_text("{}")
    for name in ("tokens", "02", "02_tokens", "02_tokens.ipynb"): assert find_chapters([name]) == [notebooks()/"02_tokens.ipynb"]
    assert find_chapters([]) == list(chapters().values())
    assert find_chapters(["world", str(mine)]) == [notebooks()/"03_world.ipynb", mine]
    with pytest.raises(ValueError, match=r"no chapter tokenz, 99: there are .*02_tokens.*copies"):
        find_chapters(["tokenz", "tokens", "99"])

# ---- three forms
ANSWER = '#| exercise 10 ••\ndef double(x):\n    "twice x"\n    return x + x'
SETUP = """from rlhf_nb.book.checks import Exercise, check
class exercises: double = Exercise(lambda x: 2 * x, {"three": (3,)}, {"that is the square": lambda x: x**2})"""
CELLS = [SETUP, ANSWER, "double = check(double, exercises.double)"]

def page():
    "A chapter with text, one answer and everything around it."
    cells = [new_markdown_cell("# Twice"), new_code_cell(SETUP), new_code_cell("1 / 0  # slow things"),
             new_code_cell(ANSWER), new_code_cell(CELLS[2]),
             new_markdown_cell("<details><summary>Hint</summary>add</details>"), new_markdown_cell("the end")]
    for c in cells:
        if c.cell_type == "code": c.outputs = [new_output("stream", text="seen")]
    return new_notebook(cells=cells)

def test_a_learners_copy_has_stubs_and_a_folded_solution():
    nb = page()
    nb.cells[3]["id"] = "x" * 64                                     # as long as an id may be
    before, theirs = copy.deepcopy(nb), learners_copy(nb)
    assert nb == before
    nbformat.validate(theirs)
    assert [c.source.split("\n")[0] for c in theirs.cells][3:] == [
        "# your turn: 10 min, ••", CELLS[2], "<details><summary>Hint</summary>add</details>",
        "<details><summary>Solution</summary>", "the end"]
    assert theirs.cells[3].source.endswith('\ndef double(x):\n    "twice x"\n    raise NotImplementedError')
    assert "return x + x" in theirs.cells[6].source and "exercise" not in theirs.cells[6].source
    assert not theirs.cells[3].outputs and not theirs.cells[4].outputs and theirs.cells[2].outputs
    assert len({c.id for c in theirs.cells}) == len(theirs.cells)

def test_a_copy_shows_no_verdict_on_ours_and_not_our_trainer():
    theirs = learners_copy(nbformat.read(chapters()["10_dpo"], 4))
    own = next(c for c in theirs.cells if c.id == "own_check")
    assert "check_parts()" in own.source and not own.outputs
    settled = [c for c in theirs.cells if c.source.startswith('settle("') or '\nsettle("' in c.source]
    assert len(settled) == 3 and not any(c.outputs for c in settled)        # the answer to a bet is not there before it

def test_run_takes_the_file_that_is_here_before_ours(tmp_path, monkeypatch):
    (tmp_path/"02_tokens.ipynb").write_text("{}")
    monkeypatch.chdir(tmp_path)
    asked = []
    monkeypatch.setattr("rlhf_nb.book.command.run_chapters", lambda files, *x: asked.extend(files) or [])
    assert main(["run", "02_tokens.ipynb", "03", "-o", "runs"]) == 0
    assert asked == [(tmp_path/"02_tokens.ipynb").resolve(), notebooks()/"03_world.ipynb"]

def test_the_tools_of_an_answer_are_imported_where_a_check_runs_them_too():
    nb = page()
    nb.cells[1].source = "#| hide\n" + SETUP
    nb.cells.insert(1, new_code_cell("#| echo: false\nfrom rlhf_nb.show.views import course_map\ncourse_map('kl')"))   # no check runs this
    for made in (learners_copy(nb), instructors_copy(nb)):
        assert made.cells[2].source == "#| hide\nimport math, re, torch\nimport torch.nn.functional as F\n" + SETUP
        assert made.cells[1].source == nb.cells[1].source and made.cells[2].source in needed(made, ["double"])

def test_a_page_that_speaks_of_exercises_has_none():
    nb = new_notebook(cells=[new_markdown_cell("Write `#| exercise 5 •`."), new_code_cell('x = """\n#| exercise 5 •\n"""')])
    assert learners_copy(nb) == nb == instructors_copy(nb)

def test_an_exercise_is_one_function_that_may_be_exported():
    source = '#| export\n#| exercise 5 •••\ndef f(\n    x:int, # (t)\n)->int:\n    """One.\n\n    Two."""\n    y = x\n    return y'
    assert split_exercise(source) == ('def f(\n    x:int, # (t)\n)->int:\n    """One.\n\n    Two."""', "    y = x\n    return y")
    assert emptied(source) == "# your turn: 5 min, •••\n" + split_exercise(source)[0] + "\n    raise NotImplementedError"
    for bad in ("def f(x): return x", "def f(x):\n    return x\ny = 1", "x = 1", "class A:\n    x = 1"):
        with pytest.raises(ValueError, match="one function"): split_exercise(bad)

def test_nbgrader_metadata():
    before = copy.deepcopy(nb := page())
    marked = instructors_copy(nb).cells
    assert nb == before
    assert marked[3].metadata["nbgrader"] == dict(grade=False, solution=True, locked=False, task=False, schema_version=3,
                                                  grade_id="double")
    assert marked[4].metadata["nbgrader"] == dict(grade=True, solution=False, locked=True, task=False, schema_version=3,
                                                  grade_id="check_double", points=10)             # a point for each minute
    assert marked[4].source == ('import os; os.environ["RLHF_NB_STRICT"] = "1"\n'
                                f'double = globals().get("double")   # None where its cell stopped\n{CELLS[2]}\n'
                                "### BEGIN HIDDEN TESTS\nfrom rlhf_nb.exercises.others import others\n"
                                "_ = check(double, others(exercises.double, 0))\n### END HIDDEN TESTS")
    assert CHECK.findall(marked[4].source) == ["double"] and "nbgrader" not in marked[1].metadata
    assert marked[3].source == 'def double(x):\n    "twice x"\n    ### BEGIN SOLUTION\n    return x + x\n    ### END SOLUTION'

# ---- copying
def test_decide():
    table = {("a", None, None): "new", ("a", None, "a"): "new", ("a", "a", None): "same",
             ("a", "a", "b"): "same", ("a", "b", "b"): "updated", ("a", "b", None): "kept",
             ("a", "b", "a"): "kept", ("a", "b", "c"): "kept"}
    assert {k: decide(*k) for k in table} == table

NAMES = ["00_a.ipynb", "01_b.ipynb", "02_c.ipynb", "images/p.svg"]

@pytest.fixture
def shipped(tmp_path, monkeypatch):
    "A small set of notebooks that a test may change, in the place of the real one."
    folder = tmp_path/"shipped"
    for name in (*NAMES, ".hidden", "_draft.ipynb", "llms.txt", ".ipynb_checkpoints/00_a.ipynb", "x.ipynb.unfinished"):
        (folder/name).parent.mkdir(parents=True, exist_ok=True)
        (folder/name).write_text(f"first {name}")
    monkeypatch.setattr(copies, "notebooks", lambda: folder)
    return folder

def contents(folder): return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*") if f.is_file()}

def test_copy_never_touches_what_a_learner_changed(shipped, tmp_path):
    mine = tmp_path/"mine"
    mine.mkdir()
    (mine/"02_c.ipynb").write_text("there before")
    assert copy_chapters(mine) == dict(new=[*NAMES[:2], NAMES[3]], same=[], updated=[], kept=["02_c.ipynb"])
    (mine/"02_c.ipynb").unlink()
    assert copy_chapters(mine) == dict(new=["02_c.ipynb"], same=[*NAMES[:2], NAMES[3]], updated=[], kept=[])
    (mine/"00_a.ipynb").write_text("my answer")              # the learner works
    (mine/"notes.txt").write_text("my notes")
    for name in NAMES[:2]: (shipped/name).write_text(f"second {name}")
    for _ in range(2):                                       # not forgotten the next time
        done = copy_chapters(mine)
        assert done["kept"] == ["00_a.ipynb"] and (mine/"00_a.ipynb").read_text() == "my answer"
    assert (mine/"01_b.ipynb").read_text() == "second 01_b.ipynb" and (mine/"notes.txt").read_text() == "my notes"
    (mine/"00_a.ipynb").write_text("first 00_a.ipynb")       # as it was copied
    assert copy_chapters(mine)["updated"] == ["00_a.ipynb"]
    assert set(contents(mine)) == {".rlhf-nb.json", *NAMES, "notes.txt"}

def test_a_copy_that_was_cut_short_is_mended(shipped, tmp_path):
    copy_chapters(mine := tmp_path/"mine")
    (mine/".rlhf-nb.json").unlink()                          # killed before the last line
    assert copy_chapters(mine)["kept"] == []
    (shipped/"00_a.ipynb").write_text("second")
    assert copy_chapters(mine)["updated"] == ["00_a.ipynb"]

@pytest.mark.parametrize("inside", [".", "sub", "images"])
def test_no_copy_into_the_source(shipped, inside):
    with pytest.raises(ValueError, match="copy to another folder"): copy_chapters(shipped/inside)

@pytest.mark.parametrize("form", ["solutions", "exercises", "nbgrader"])
def test_a_copy_carries_what_lab_itself_would_write(shipped, tmp_path, form):
    "The kernel's own words, so that Lab has nothing to change when it opens a chapter."
    from ipykernel.ipkernel import IPythonKernel
    from ipykernel.kernelspec import get_kernel_dict
    nbformat.write(new_notebook(cells=[new_markdown_cell("# A"), new_code_cell("1")], metadata=dict(
        kernelspec=dict(name="python3", display_name="python3"))), shipped/"00_a.ipynb")
    copy_chapters(mine := tmp_path/"mine", form)
    metadata, kernel = nbformat.read(mine/"00_a.ipynb", 4).metadata, get_kernel_dict()
    assert metadata["kernelspec"] == dict(name="python3", display_name=kernel["display_name"], language=kernel["language"])
    assert metadata["language_info"] == IPythonKernel.language_info
    assert "00_a.ipynb" in copy_chapters(mine)["same"]

def test_to_open_a_notebook_is_not_to_change_it(shipped, tmp_path):
    cells = [new_markdown_cell("# A\n\nB"), new_code_cell("1", outputs=[new_output(
        "execute_result", {"text/plain": "1\n2"}, execution_count=None)])]
    nbformat.write(new_notebook(cells=cells), shipped/"00_a.ipynb")
    copy_chapters(mine := tmp_path/"mine")
    def kept(change):
        nb = nbformat.read(shipped/"00_a.ipynb", 4)
        nb.metadata["language_info"] = {"name": "python", "version": "3.12"}
        nb.cells[1].execution_count = nb.cells[1].outputs[0].execution_count = 7
        change(nb)
        (mine/"00_a.ipynb").write_text(json.dumps(nb, indent=3))
        return "00_a.ipynb" in copy_chapters(mine)["kept"]
    assert not kept(lambda nb: None)
    for change in (lambda nb: nb.cells[1].update(source="2"), lambda nb: nb.cells[1].outputs[0].data.update({"text/plain": "2"}),
                   lambda nb: nb.cells[1].update(cell_type="raw"), lambda nb: nb.cells.pop()): assert kept(change)

def asked(): return new_notebook(cells=[new_code_cell(c, id=f"cell{i}") for i, c in enumerate(CELLS)])

def solve(file, body):
    nb = nbformat.read(file, 4)
    next(c for c in nb.cells if "def double" in c.source).source = f"def double(x): {body}"
    nbformat.write(nb, file)

def test_a_folder_keeps_the_form_it_was_made_in(shipped, tmp_path):
    nbformat.write(asked(), shipped/"00_a.ipynb")
    copy_chapters(mine := tmp_path/"mine", "exercises")
    def solved(): return "return x + x" in nbformat.read(mine/"00_a.ipynb", 4).cells[1].source
    assert not solved() and read_memory(mine)["form"] == "exercises"
    assert "00_a.ipynb" in copy_chapters(mine)["same"] and not solved()
    assert copy_chapters(mine, "solutions")["updated"] == ["00_a.ipynb"] and solved()
    assert copy_chapters(mine, "exercises")["updated"] == ["00_a.ipynb"] and not solved()
    solve(mine/"00_a.ipynb", "return 2 * x")
    assert copy_chapters(mine, "nbgrader")["kept"] == ["00_a.ipynb"]     # an answer stays

def test_the_copy_of_another_version_is_refused_in_one_sentence(shipped, tmp_path, capsys):
    copy_chapters(mine := tmp_path/"mine")
    memory, before = json.loads((mine/".rlhf-nb.json").read_text()), contents(mine)
    for text, want in ((json.dumps({k: v for k, v in memory.items() if k != "format"}), "another version"),
                       (json.dumps(memory | {"format": 99}), "another version"), ("[]", "another version"), ("3", "broken"), ("{", "broken")):
        (mine/".rlhf-nb.json").write_text(text)
        for words in (["copy", str(mine)], ["check", "--dir", str(mine)]):
            assert main(words) == 2
            complaint = capsys.readouterr().err
            assert want in complaint and complaint.count("\n") == 1 and "copy" in complaint
    assert contents(mine) | {".rlhf-nb.json": 0} == before | {".rlhf-nb.json": 0}

# ---- a chapter with answers is brought up to date
@pytest.fixture
def answered(shipped, tmp_path):
    "A copy with an answer, a cell of the learner's own, and a shipped chapter that has changed since."
    for name in NAMES[1:]: (shipped/name).unlink()
    nbformat.write(asked(), shipped/"00_a.ipynb")
    copy_chapters(mine := tmp_path/"mine", "exercises")
    nb = nbformat.read(mine/"00_a.ipynb", 4)
    nb.cells[1].source = "def double(x): return x + x  # mine"
    nb.cells.insert(2, new_code_cell("print('my own try')", id="own"))
    nbformat.write(nb, mine/"00_a.ipynb")
    ship(shipped, "a new sentence")
    return mine

def ship(shipped, text):
    nb = asked()
    nb.cells.insert(0, new_markdown_cell(text, id="text"))
    nbformat.write(nb, shipped/"00_a.ipynb")

def test_update_takes_the_new_text_and_keeps_the_answers(answered, shipped, capsys, monkeypatch):
    monkeypatch.setattr("rlhf_nb.book.command.trust_notebooks", lambda files: None)
    file, first = answered/"00_a.ipynb", answered/"00_a.before-update-1.ipynb"
    old = file.read_bytes()
    assert copy_chapters(answered)["kept"] == ["00_a.ipynb"] and file.read_bytes() == old
    assert main(["copy", str(answered), "--update"]) == 0
    said = capsys.readouterr().out
    assert "1 merged" in said and "beside it as .before-update-1" in said
    nb = nbformat.read(file, 4)
    nbformat.validate(nb)
    sources = [c.source for c in nb.cells]
    assert sources[0] == "a new sentence" and "Exercise" in sources[1]
    assert sources[2:4] == ["def double(x): return x + x  # mine", "print('my own try')"]
    assert sources[4].startswith("double = check(") and "Solution" in sources[5] and len(sources) == 6
    assert first.read_bytes() == old and check_chapters([file]) == {"00_a": {"double": "right"}}
    before = contents(answered)
    assert "merged" not in copy_chapters(answered, update=True) and before == contents(answered)   # nothing newer
    ship(shipped, "newer still")
    copy_chapters(answered, update=True)
    assert first.read_bytes() == old and (answered/"00_a.before-update-2.ipynb").is_file()
    assert "newer still" in file.read_text() and "# mine" in file.read_text()

def full_disk(*_, **__): raise OSError(28, "No space left on device")

def fails_after(monkeypatch, n, name): # a call of `os` that is refused from the n-th on
    real, left = getattr(os, name), [n]
    def call(*args):
        left[0] -= 1
        return real(*args) if left[0] >= 0 else full_disk()
    monkeypatch.setattr(os, name, call)

@pytest.mark.parametrize("name, n", [("link", 0), ("replace", 0), ("replace", 1)])
def test_a_full_disk_during_an_update_loses_nothing(answered, monkeypatch, name, n):
    old = (answered/"00_a.ipynb").read_bytes()
    with monkeypatch.context() as m:
        fails_after(m, n, name)
        with pytest.raises(OSError, match="no room is left on the disk"): copy_chapters(answered, update=True)
    assert old in [f.read_bytes() for f in answered.glob("00_a*.ipynb")]
    assert not [f for f in contents(answered) if f.endswith((".part", ".unfinished"))]
    copy_chapters(answered, update=True)
    assert "# mine" in (answered/"00_a.ipynb").read_text() and "a new sentence" in (answered/"00_a.ipynb").read_text()

def test_a_full_disk_while_copying_is_told_and_leaves_every_file_complete(shipped, tmp_path, monkeypatch, capsys):
    mine = tmp_path/"mine"
    with monkeypatch.context() as m:
        fails_after(m, 2, "replace")
        assert main(["copy", str(mine)]) == 2
    complaint = capsys.readouterr().err
    assert "no room is left on the disk" in complaint and "complete" in complaint and complaint.count("\n") == 1
    assert set(contents(mine)) == set(NAMES[:2])
    assert copy_chapters(mine) == dict(new=NAMES[2:], same=NAMES[:2], updated=[], kept=[])

def test_an_empty_stub_and_no_notebook_are_no_answers(answered):
    solve(answered/"00_a.ipynb", "raise NotImplementedError")
    copy_chapters(answered, update=True)
    assert "your turn" in nbformat.read(answered/"00_a.ipynb", 4).cells[2].source
    (answered/"00_a.ipynb").write_text("my notes")
    assert copy_chapters(answered, update=True)["kept"] == ["00_a.ipynb"] and (answered/"00_a.ipynb").read_text() == "my notes"

def test_minutes_of_a_task_count_a_pause_as_twenty_and_nothing_behind_the_first_right_answer():
    tries = [("2026-05-04T20:00", "a slip"), ("2026-05-04T20:07", "a slip"), ("2026-05-05T08:00", "right"), ("2026-05-05T08:09", "a slip")]
    assert [minutes_spent(x) for x in (tries, tries[:2], tries[:1], [("", "right")])] == [27, 7, 0, 0]

def test_a_notebook_that_the_teacher_has_changed_is_kept(tmp_path):
    weeks, file = [[row for row in week_plan(1)[0] if row[0].stem == "15_spin"]], "source/week01/15_spin.ipynb"
    assert write_course(tmp_path, weeks, 7) == {file: "new", "nbgrader_config.py": "new"}
    (tmp_path/file).write_text("mine")
    assert write_course(tmp_path, weeks, 7) == {file: "kept", "nbgrader_config.py": "same"} and (tmp_path/file).read_text() == "mine"
