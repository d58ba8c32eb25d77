"Every exercise: its solution passes, and wrong answers are refused with the right name."
import re, runpy, nbformat, pytest
from functools import cache
from importlib import import_module
from pathlib import Path
from rlhf_nb.book import checks
from rlhf_nb.book.checks import CHECK, Exercise, check_notebook, grade, needed, values_match
from rlhf_nb.book.copies import TASK, emptied, instructors_copy, learners_copy
from rlhf_nb.exercises.others import others

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT/"nbs").glob("[0-9]*.ipynb"))
CHAPTERS = {f.stem.split("_", 1)[1]: f for f in NOTEBOOKS}
NONE = {"first_sitting", "doctor", "q_faults", "your_model"}      # may have no exercise, and no module of them

@pytest.fixture(scope="module", autouse=True)
def called_once():
    "What a reference or a mistake makes of a case is the same for every answer."
    known, real = {}, checks.record_call
    def record_call(fn, args, watch=True): # the functions stay alive, so that no id is used twice
        if (fn, id(args)) not in known: known[fn, id(args)] = args, real(fn, args)
        return known[fn, id(args)][1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "record_call", record_call)
        yield

@cache
def exercises(chapter):
    if not (ROOT/f"rlhf_nb/exercises/{chapter}.py").is_file() and chapter in NONE: return {}
    module = import_module(f"rlhf_nb.exercises.{chapter}")
    return {name: x for name, x in vars(module).items() if isinstance(x, Exercise)}
@cache
def answers(chapter): # "WRONG": exercise -> [(mistake, wrong answer)], "RIGHT": exercise -> [right answer]
    file = ROOT/f"tests/wrong/{chapter}.py"
    return runpy.run_path(str(file)) if file.is_file() else {}
@cache
def read(file): return nbformat.read(file, 4)
def names(file): return [n for c in read(file).cells for n in CHECK.findall(c.source)]

def tasks(file): # function -> whether the package exports it
    sources = [c.source for c in read(file).cells if c.cell_type == "code" and TASK.match(c.source)]
    return {re.search(r"^def (\w+)", x, re.M)[1]: bool(re.search(r"^#\|\s*export\b", x, re.M)) for x in sources}

def test_every_chapter_has_its_core_to_write_and_at_most_two_other_tasks():
    for chapter, file in CHAPTERS.items():
        found = tasks(file)
        assert found or chapter in NONE, f"{chapter} has nothing to write"
        others = [name for name, exported in found.items() if not exported]
        assert len(others) <= 2 or not any(found.values()), f"{chapter}: more than two tasks beside the core: {others}"

def test_names_are_unique_and_belong_to_their_chapter():
    seen = {}
    for chapter in CHAPTERS:
        assert set(exercises(chapter)) == set(names(CHAPTERS[chapter])), chapter
        for name in exercises(chapter):
            assert name not in seen, f"{name} is in {seen[name]} and in {chapter}"
            seen[name] = chapter

@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_solutions_are_right_and_the_stubs_are_not(chapter, tmp_path):
    solved = check_notebook(CHAPTERS[chapter])
    assert set(solved.values()) <= {"right"} and len(solved) == len(exercises(chapter)), solved
    nb = learners_copy(read(CHAPTERS[chapter]))
    assert not [c for c in nb.cells if TASK.match(c.source)]
    nbformat.write(nb, tmp_path/CHAPTERS[chapter].name)
    stubs = check_notebook(tmp_path/CHAPTERS[chapter].name)
    assert set(stubs.values()) <= {"not done yet"} and stubs.keys() == solved.keys(), stubs

@pytest.mark.parametrize("chapter", CHAPTERS)
def test_an_exercise_cell_holds_the_exercise_alone(chapter):
    "One function; a check right behind, whose result later cells use; then hints."
    cells = read(CHAPTERS[chapter]).cells
    for i, c in enumerate(cells):
        if c.cell_type != "code" or not TASK.match(c.source): continue
        name = re.search(r"^def (\w+)", c.source, re.M)[1]
        assert emptied(c.source).count("NotImplementedError") >= 1
        assert cells[i + 1].source == f"{name} = check({name}, exercises.{name})", name
        assert cells[i + 2].source.startswith("<details><summary>Hint"), f"{name}: hints in steps"

@pytest.mark.parametrize("chapter", CHAPTERS)
def test_mistakes_differ_from_the_truth_and_from_each_other(chapter):
    for name, ex in exercises(chapter).items():
        assert len(ex.cases) >= 3 and len(ex.mistakes) >= 6, name
        assert grade(ex.reference, ex) == "right", f"{name}: the reference changes its arguments?"
        truth, *made = [{c: checks.record_call(f, args) for c, args in ex.cases.items()}
                        for f in (ex.reference, *ex.mistakes.values())]
        seen = dict(zip(ex.mistakes, made))
        def alike(a, b): return all(a[c].error == b[c].error and values_match([a[c].out, a[c].gradients], [b[c].out, b[c].gradients])
                                    for c in ex.cases)
        for m, s in seen.items():
            assert not alike(s, truth), f"{name}: {m!r} is right on all cases"
            twins = [k for k in seen if k != m and alike(seen[k], s)]
            assert not twins, f"{name}: {m!r} cannot be told from {twins}"

TRIED = []       # chapter, exercise, refused, named rightly

@pytest.mark.parametrize("chapter", CHAPTERS)
def test_wrong_answers_are_refused(chapter):
    wrong = answers(chapter).get("WRONG", {})
    assert set(wrong) == set(exercises(chapter))
    for name, ex in exercises(chapter).items():
        assert len(wrong[name]) >= 6, f"{name} needs six wrong answers, has {len(wrong[name])}"
        for mistake, answer in wrong[name]:
            assert mistake in ex.mistakes or not mistake, f"{name} has no mistake {mistake!r}"
            verdict = grade(answer, ex)
            named = verdict == mistake or bool(mistake) and verdict.startswith(f"mostly: {mistake}, and ")
            TRIED.append((chapter, name, verdict != "right", named))
            assert verdict not in ("right", "not done yet"), f"{name}: {mistake!r} passes"

@pytest.mark.parametrize("chapter", CHAPTERS)
def test_other_right_answers_pass(chapter):
    few = [name for name in tasks(CHAPTERS[chapter]) if len(answers(chapter)["RIGHT"].get(name, ())) < 2]
    assert not few, f"two other right answers are wanted for {few}"
    for name, functions in answers(chapter).get("RIGHT", {}).items():
        for k, answer in enumerate(functions):
            verdict = grade(answer, exercises(chapter)[name])
            assert verdict == "right", f"{name}: right answer {k + 1} is refused: {verdict}"

QUICK = "tokens", "world", "best_policy", "kl"

@pytest.mark.parametrize("chapter, k", [
    pytest.param(c, k, marks=[pytest.mark.long] * (k or c not in QUICK)) for c in CHAPTERS for k in (0, 1)])
def test_a_chapter_runs_to_its_end_on_other_right_answers(chapter, k):
    "The formula of k3 as printed is right, and once stopped its chapter."
    scope = {"display": lambda *shown: None}
    for cell in read(CHAPTERS[chapter]).cells:
        if cell.cell_type != "code": continue
        exec(compile(cell.source, cell.id, "exec"), scope)
        if TASK.match(cell.source):
            name = re.search(r"^def (\w+)", cell.source, re.M)[1]
            others = answers(chapter)["RIGHT"].get(name)
            if others: scope[name] = others[k % len(others)]

@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_first_screen_promises_what_a_chapter_takes(chapter):
    "Reading where both are promised, exercises wherever they are; scripts/write_minutes.py writes them."
    script = runpy.run_path(str(ROOT/"scripts/write_minutes.py"))
    head = " ".join(c.source for c in read(CHAPTERS[chapter]).cells[:2])
    read_, work = script["READ"].search(head), script["WORK"].search(head)
    reading, tasks = script["minutes"](CHAPTERS[chapter])
    assert work is None or int(work[1]) == tasks, "run scripts/write_minutes.py"
    assert read_ is None or abs(reading - int(read_[1])) <= 1, "run scripts/write_minutes.py"

def test_chapters_keep_their_limits():
    "30 minutes, 60 cells, 9 exporting ones, three bets, but for the doctor, which is a game; 01 to 19 in 540 minutes."
    minutes = runpy.run_path(str(ROOT/"scripts/write_minutes.py"))["minutes"]
    total = 0
    for file in sorted((ROOT/"nbs").glob("[0-9]*.ipynb")):
        cells, (reading, _) = read(file).cells, minutes(file)
        code = [c.source for c in cells if c.cell_type == "code"]
        bets = sum(len(re.findall(r'(?m)^bet\("', s)) for s in code)
        assert reading < 30.5 and len(cells) <= 60 and sum("#| export" in s for s in code) <= 9, file
        assert bets >= 3 or file.stem == "12_doctor", file
        total += reading * (file.stem < "20")
    assert total <= 540

@pytest.mark.long
@pytest.mark.filterwarnings("ignore:std")
def test_the_battery_is_refused_and_no_right_answer_is():
    "Written from stubs and text alone; scripts/tutor.py shows how many of its wrong answers are named."
    battery = runpy.run_path(str(ROOT/"tests/battery.py"))
    asked = {name: x for chapter in CHAPTERS for name, x in exercises(chapter).items()}
    passed = [f"{name}: {words}" for name, wrong in battery["WRONG"].items() for words, answer in wrong
              if grade(answer, asked[name]).partition(",")[0] == "right"]
    refused = [f"{name}: {verdict}" for name, right in battery["RIGHT"].items() for answer in right
               if (verdict := grade(answer, asked[name])) != "right"]
    assert not passed and not refused

STAYS = {"fixed_number_reward", "reward_until_wrong", "kl_is_negative", "judge_messages", "parse_score", "fixed_answered", "prob_right",
         "short_right", "parse_rubric", "pooled_scores", "sft_loss", "flat_while_moving"}  # text, models; the last gives truth values

@pytest.mark.long
@pytest.mark.filterwarnings("ignore:std")
def test_hidden_cases_accept_every_right_answer_and_none_that_knows_the_visible_ones_by_heart():
    battery, real, same = runpy.run_path(str(ROOT/"tests/battery.py"))["RIGHT"], checks.record_call, set()
    def alike(f, ex): return all(a.error == b.error and values_match([a.out, a.gradients], [b.out, b.gradients])
                                 for a, b in ((real(f, x), real(ex.reference, x)) for x in ex.cases.values()))
    for chapter in CHAPTERS:
        for name, ex in exercises(chapter).items():
            hidden = others(ex, 7)
            for answer in [*answers(chapter).get("RIGHT", {}).get(name, []), *battery.get(name, [])]: assert alike(answer, hidden), name
            seen = [real(ex.reference, x).out for x in ex.cases.values()]                  # by heart: one of these, whatever is asked
            new = [real(ex.reference, x).out for x in hidden.cases.values()]
            if all(any(values_match(a, b) for b in seen) for a in new): same.add(name)
    assert same <= STAYS, same

def test_at_least_nine_in_ten_are_named_rightly(capsys):
    if not TRIED: pytest.skip("runs after the wrong answers")
    refused, named = sum(t[2] for t in TRIED), sum(t[3] for t in TRIED)
    with capsys.disabled():
        print(f"\n{len(TRIED)} wrong answers to {len({t[1] for t in TRIED})} exercises: "
              f"{refused} refused, {named} named rightly ({named / len(TRIED):.1%})")
        for chapter in CHAPTERS:
            rows = [t for t in TRIED if t[0] == chapter]
            if rows: print(f"  {chapter:14}{len(rows):4}{sum(t[3] for t in rows):4} named")
    assert refused == len(TRIED) and named >= .9 * len(TRIED)

@pytest.mark.parametrize("chapter", ["best_policy", "kl", "grpo"])
@pytest.mark.parametrize("left", ["raise NotImplementedError()", "return (", "return None"])
def test_one_missing_answer_costs_no_other_its_point(chapter, left, monkeypatch, tmp_path, capsys):
    """What nbgrader does: the release version without solutions, cell by cell whatever stops, a point for each test that
    ends, its output as feedback. A learner leaves one answer empty, the others are right."""
    monkeypatch.setenv("RLHF_NB_STRICT", "0")                    # the test cells set it
    monkeypatch.chdir(tmp_path)
    nb = instructors_copy(read(CHAPTERS[chapter]))
    tests = {c.metadata["nbgrader"]["grade_id"].removeprefix("check_"): c.source for c in nb.cells
             if c.metadata.get("nbgrader", {}).get("points")}
    cells = [*needed(nb, [*tests])]
    for missing in tests:
        space, points, feedback = {"__name__": "__main__"}, {}, {}
        for source in [*cells, *tests.values()]:
            name = next((k for k, x in tests.items() if x is source), "")
            if f"def {missing}(" in source: source = re.sub(
                "(?s)    ### BEGIN SOLUTION.*### END SOLUTION", f"    # YOUR CODE HERE\n    {left}", source)
            try: exec(compile(source, "a cell", "exec"), space)
            except (Exception, SyntaxError) as e: points[name], feedback[name] = 0, str(e)
            else: points[name] = 1
        assert [k for k in tests if not points[k]] == [missing], feedback
        assert feedback[missing].startswith(f"{missing}: ")

@pytest.mark.parametrize("file", NOTEBOOKS, ids=[f.stem for f in NOTEBOOKS])
def test_nbgrader_finds_marks_only_in_answers(file):
    "It takes out whatever stands between them, in any cell, and refuses one without its mate."
    for cell in instructors_copy(read(file)).cells:
        answer = cell.metadata.get("nbgrader", {}).get("solution", False)
        found = [cell.source.count(f"{word} SOLUTION") for word in ("BEGIN", "END")]
        assert (found[0] == found[1] > 0) if answer else found == [0, 0], cell.source[:200]
