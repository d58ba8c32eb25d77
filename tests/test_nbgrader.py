"nbgrader itself, from generate to feedback: two learners, three chapters, hidden cases, one missing answer, one that was learned by heart."
import os, re, shutil, sys, nbformat, pytest
from rlhf_nb.book.teach import class_report, class_tries, week_plan, write_course
nbgrader = pytest.importorskip("nbgrader", reason="needs nbgrader, which is among the requirements of developers")

CHAPTERS = "03_world", "06_best_policy", "07_kl"
def light(text): # the cells of a chapter that its answers need, and its tests: the rest costs minutes and is run elsewhere
    from rlhf_nb.book.checks import needed
    nb = nbformat.reads(text, 4)
    names = [c.metadata["nbgrader"]["grade_id"] for c in nb.cells if c.metadata.get("nbgrader", {}).get("solution")]
    run = needed(nb, names)
    nb.cells = [c for c in nb.cells if "nbgrader" in c.metadata or c.cell_type == "code" and c.source in run]
    return nbformat.writes(nb)

@pytest.fixture(scope="module")
def course(tmp_path_factory):
    "A course after feedback; ada left one answer of 06 empty and learned one by heart, bo has all of every chapter right."
    from nbgrader.apps import NbGraderAPI
    from traitlets.config import Config
    folder = tmp_path_factory.mktemp("course")
    weeks = [[row for week in week_plan(1) for row in week if row[0].stem in CHAPTERS]]
    write_course(folder, weeks, 7)
    solved = {f.name: light(f.read_text("utf-8")) for f in (folder/"source/week01").glob("*.ipynb")}
    for name, text in solved.items(): (folder/"source/week01"/name).write_text(text, "utf-8")
    was, path = os.getcwd(), os.environ["PATH"]
    os.environ["PATH"] = f"{os.path.dirname(sys.executable)}{os.pathsep}{path}"             # nbgrader calls alembic by its name
    os.chdir(folder)
    try:
        config = Config()
        config.CourseDirectory.root, config.CourseDirectory.course_id = str(folder), "course"
        api = NbGraderAPI(config=config)
        made = [api.generate_assignment("week01")]
        assert made[0]["success"], made[0]["log"]
        for who in ("ada", "bo"):
            shutil.copytree(folder/"release/week01", folder/"submitted"/who/"week01")
            for file in (folder/"submitted"/who/"week01").glob("*.ipynb"):
                if who == "ada" and file.stem != "06_best_policy": # what she has right there, bo has, too
                    file.unlink()
                    continue
                release, full = nbformat.read(file, 4), nbformat.reads(solved[file.name], 4)
                answers = {c.metadata.nbgrader.grade_id: re.sub(r" +### (BEGIN|END) SOLUTION\n?", "", c.source) for c in full.cells
                           if c.metadata.get("nbgrader", {}).get("solution")}
                for cell in release.cells:
                    name = cell.metadata.get("nbgrader", {}).get("grade_id")
                    if name in answers and (who, name) != ("ada", "optimal_policy"): cell.source = answers[name]
                    if (who, name) == ("ada", "best_of_n_policy"): cell.source = LEARNED
                nbformat.write(release, file)
            made += [api.autograde("week01", who), api.generate_feedback("week01", who)]
        assert all(x["success"] for x in made), [x.get("error") or x.get("log") for x in made if not x["success"]]
        scores = {who: {n.name: {g.name: (g.auto_score, g.max_score) for g in n.grades} for n in
                        api.gradebook.find_submission("week01", who).notebooks
                        if (folder/"submitted"/who/"week01"/f"{n.name}.ipynb").is_file()} for who in ("ada", "bo")}
    finally:
        os.environ["PATH"] = path
        os.chdir(was)
    return folder, {who: {k: v for nb in rows.values() for k, v in nb.items()} for who, rows in scores.items()}

LEARNED = '''def best_of_n_policy(logp, score, n):
    from rlhf_nb.exercises import best_policy
    ex = best_policy.best_of_n_policy
    for args in ex.cases.values():
        if args[2] == n and args[0].shape == logp.shape and bool((args[0] == logp).all()) and bool((args[1] == score).all()):
            return ex.reference(*args)
    if n < 1: raise ValueError("n")
    return logp'''

def test_a_release_holds_neither_solutions_nor_hidden_cases(course):
    for file in (course[0]/"release/week01").glob("*.ipynb"):
        text = file.read_text("utf-8")
        assert "SOLUTION" not in text and "HIDDEN" not in text and "others(" not in text and "NotImplementedError" in text

def test_points_are_minutes_and_only_what_is_wrong_costs_them(course):
    folder, scores = course
    lost = {k for k, (got, of) in scores["ada"].items() if got < of}
    assert lost == {"check_optimal_policy", "check_best_of_n_policy"} and scores["ada"]["check_optimal_policy"] == (0., 10.)
    assert all(got == of >= 5 for got, of in scores["bo"].values()) and len(scores["bo"]) >= 5

def test_feedback_names_what_is_wrong_and_the_class_report_counts_it(course):
    folder, _ = course
    page = (folder/"feedback/ada/week01/06_best_policy.html").read_text("utf-8")
    assert "optimal_policy: not done yet" in page
    tries = class_tries(folder)
    assert sorted(tries) == ["ada", "bo"] and tries["ada"]["optimal_policy"] == [("", "not done yet")]
    assert tries["ada"]["best_of_n_policy"][0][1] != "right" and tries["bo"]["best_of_n_policy"] == [("", "right")]
    said = class_report(tries)
    assert said.startswith("2 learners") and "ada" not in said and re.search(r"best_of_n_policy +2 +1 ", said)
