"What keeps the project true: floors, names, clean notebooks, the wheel, the README."
import ast, json, os, re, shutil, subprocess, sys, sysconfig, tarfile, tomllib, venv, zipfile, nbformat, pytest
from configparser import ConfigParser
from email.parser import Parser
from functools import cache
from importlib import import_module
from pathlib import Path
import rlhf_nb

ROOT = Path(__file__).resolve().parents[1]
COURSE = sorted((ROOT/"nbs").glob("[!._]*.ipynb"))
NOTEBOOKS = [*COURSE, *sorted((ROOT/"nbs/engine").glob("*/[!._]*.ipynb"), key=lambda f: f.stem)]
MODULES = sorted(f for f in (ROOT/"rlhf_nb").rglob("*.py") if not f.name.startswith("_") and f.parent.name != "exercises")
LEFT_BY_WORK = shutil.ignore_patterns(
    ".git", ".venv", "runs", "rlhf-workbook", "build", "dist", "*.egg-info", "__pycache__",
    ".pytest_cache", ".ipynb_checkpoints", ".last_checked", "llms.txt", "*.part", "_docs", "_proc")

sys.path.insert(0, str(ROOT/"scripts"))
import draw_floors, house, run_notebooks
from rlhf_nb.book.command import _LATE

def ids(files): return [f.stem for f in files]
def code(nb): return [c for c in nb.cells if c.cell_type == "code"]
def exporting(cell): return re.search(r"^#\|\s*export\b", cell.source, re.M)
def room_of(nb):
    found = re.search(r"^#\|\s*default_exp\s+([\w.]+)", "\n".join(c.source for c in code(nb)), re.M)
    return found[1] if found else ""
def python(cell): return re.sub(r"^[%!].*$", "", cell.source, flags=re.M)

@cache
def read(file): return nbformat.read(file, 4)

# ---- floors
counts = cache(house.count)

def test_no_script_imports_a_name_twice():
    "The second takes the place of the first: so a benchmark called a tuple of questions, which no test had run."
    for file in (f for folder in ("benchmarks", "scripts", "docs") for f in (ROOT/folder).glob("*.py")):
        names = [a.asname or a.name for node in ast.parse(file.read_text("utf-8")).body
                 if isinstance(node, (ast.Import, ast.ImportFrom)) for a in node.names]
        assert not (twice := {n for n in names if names.count(n) > 1}), f"{file.name}: {twice}"

def test_imports_are_read_in_every_form(tmp_path):
    "Lazy ones, relative ones, whole modules, and modules named in a table."
    files = {"a": "", "b": "x = 1", "f/c": "", "f/d": "", "f/e": "import rlhf_nb.a\nfrom ..b import x, _y\nfrom . import c\n"
             "def g():\n    from rlhf_nb.f.d import *\nT = dict(z='f.d:run')\nimport torch.nn\n"}
    for name, text in files.items():
        (tmp_path/f"rlhf_nb/{name}.py").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path/f"rlhf_nb/{name}.py").write_text(text)
    known = house.modules(tmp_path)
    found = {(other, what) for other, what, _ in house.imports("f.e", known["f.e"], known)}
    assert found == {("a", ""), ("b", "x"), ("b", "_y"), ("f.c", ""), ("f.d", "*"), ("f.d", "")}
    assert house.circles(dict(a={"b"}, b={"c"}, c={"a", "d"})) == [["a", "b", "c", "a"]] and not house.circles(dict(a={"b"}))

@pytest.mark.parametrize("what", ["circles of modules", "circles of floors", "imports that go up",
                                  "private names that cross", "star imports"])
def test_imports_go_down_the_street(what):
    n, places = counts()[what]
    assert not n, f"{what}: " + "; ".join(places)

@pytest.mark.parametrize("what", house.LIMITS)
def test_the_house_keeps_its_limits(what):
    n, places = counts()[what]
    assert n <= house.LIMITS[what], f"{what}, {n} and at most {house.LIMITS[what]}: " + "; ".join(places)

def test_a_listing_of_the_package_shows_its_floors():
    assert counts()["folders at the top"][0] <= 7
    top = {f.name for f in (ROOT/"rlhf_nb").iterdir() if f.is_dir() and any(f.glob("*.py"))} - {"exercises", "__pycache__"}
    assert top == {f.name for f in (ROOT/"nbs/engine").iterdir() if f.is_dir() and not f.name.startswith(".")}
    assert top == set(house.STREET) - set(house.COURSE), "scripts/house.py: STREET names every floor"

def test_the_picture_of_the_floors_is_that_of_the_imports():
    assert draw_floors.PICTURE.read_text("utf-8") == draw_floors.drawn(), "stale: make export"

def test_heavy_faces_are_imported_late():
    tree = ast.parse("\n".join((ROOT/f"rlhf_nb/book/{name}.py").read_text("utf-8")
                               for name in ("checks", "copies", "runner", "progress", "command")))
    late = {"torch", "jupyterlab", "nbformat", "nbclient", "tqdm", "rlhf_nb.run.pipeline"}
    for node in tree.body:
        names = {a.name for a in getattr(node, "names", []) if isinstance(node, ast.Import)}
        names |= {node.module} if isinstance(node, ast.ImportFrom) else set()
        assert not names & late, f"import {names & late} inside the function that needs it"

AHEAD = {"12_doctor": {"judge"},     # one of the twelve symptoms is a judge's
         "05_reward": {"best_policy"}}   # best-of-n, exactly: the closed form comes a chapter later

modules = cache(house.modules)
ROOMS = {f: room_of(read(f)) for f in COURSE}

@pytest.mark.parametrize("file", COURSE, ids=ids(COURSE))
def test_a_chapter_uses_only_earlier_chapters_and_the_engine_room(file):
    known = {room for f, room in ROOMS.items() if f <= file}
    if file.stem in ("index", "01_first_sitting"): known = set(house.COURSE)
    for cell in code(read(file)):
        for other, name, _ in house.imports("", ast.parse(python(cell)), modules()):
            assert name != "*", f"{cell.id}: import names, not *"
            assert other in known | AHEAD.get(file.stem, set()) or "." in other, f"{cell.id} needs {other}, a later chapter"

# ---- notebooks
NUMBERED = [f for f in COURSE if f.stem != "index"]

@pytest.mark.parametrize("file", NUMBERED, ids=ids(NUMBERED))
def test_a_chapter_leads_on_by_links(file):
    "To the next chapter, to the map, and from its first screen to what it needs."
    text = [c.source for c in read(file).cells if c.cell_type == "markdown"]
    last = text[-1][text[-1].index("**Next:**"):]
    later = [f.name for f in NUMBERED if f.name > file.name]
    assert "](index.ipynb)" in last and (not later or f"]({later[0]})" in last), f"{file.name}: {last}"
    for linked in re.findall(r"\]\((\w+\.ipynb)\)", "".join(text[:3]) + last): assert (file.parent/linked).is_file(), linked
    needs = " ".join(re.findall(r"You need[^.]*\.", " ".join(text[:3]).replace(".ipynb", "_ipynb")))
    bare = re.findall(r"(?<![\[\w(_])\d\d(?![\w\]])", re.sub(r"\[[^\]]*\]\([^)]*\)", "", needs))
    assert not bare, f"{file.name}: chapters {bare} are needed and not linked"

@pytest.mark.parametrize("file", NOTEBOOKS, ids=ids(NOTEBOOKS))
def test_a_notebook_is_clean_and_was_run(file):
    nb = read(file)
    nbformat.validate(nb)
    assert set(nb.metadata) <= {"kernelspec"} and nb.metadata.kernelspec.name == "python3"
    assert file.stat().st_size < 1_500_000
    for c in code(nb):
        assert c.metadata in ({}, {"jupyter": {"source_hidden": True}}) and c.execution_count is None, c.id
        for o in c.outputs:
            text = json.dumps(o)
            assert "jupyter.widget" not in text, f"{c.id}: a widget without a kernel shows an error"
            assert o.output_type != "error" and o.get("name") != "stderr", f"{c.id}: {text[:300]}"
            here = re.search(r"(?<![\w.])/(home|root|tmp|Users|work|private|usr)/|site-packages", text)
            assert not here, f"{c.id} shows a path of the machine: {text[here.start()-60:][:160]}"
    shown = sum(bool(c.outputs) for c in code(nb))
    assert shown >= (len(code(nb)) / 4 if file in COURSE else 1) or file.stem == "index"

@pytest.mark.parametrize("file", NOTEBOOKS, ids=ids(NOTEBOOKS))
def test_a_notebook_reads_well(file):
    nb = read(file)
    assert re.match(r"# .+\n\n> .+", nb.cells[0].source), "title, then > one sentence"
    for c in code(nb):
        lines = c.source.splitlines()
        width = 88 if file in COURSE else 110
        assert max(map(len, lines), default=0) <= width, f"{c.id}: a line over {width} columns"
        hidden = file not in COURSE or c.metadata.get("jupyter", {}).get("source_hidden")
        hidden = hidden or c.source.startswith("#| assignment")           # a teacher's solution, no text to read
        assert hidden or sum(bool(l.strip()) for l in lines) <= 25, f"{c.id}: over 25 lines"

CHAPTERS = [f for f in NOTEBOOKS if room_of(read(f))]

@cache
def all_code(): return "\n".join(c.source for f in NOTEBOOKS for c in code(read(f)))

COMMANDS = {f"add_{name.replace('-', '_')}_parser" for name in _LATE}        # the shell finds them by this name

@pytest.mark.parametrize("file", CHAPTERS, ids=ids(CHAPTERS))
def test_every_exported_name_is_documented_and_used_on_the_page(file):
    nb = read(file)
    module = import_module(f"rlhf_nb.{room_of(nb)}")
    assert module.__all__, "a chapter exports something"
    shown = "\n".join(c.source for c in code(nb) if not exporting(c))
    later = all_code()
    for name in module.__all__:
        thing = getattr(module, name)
        if callable(thing): assert (thing.__doc__ or "").strip(), f"{name} has no docstring"
        if re.search(rf"\b{name}\b", shown) or name in COMMANDS: continue
        inside = len(re.findall(rf"\b{name}\b", later))
        assert inside > 1, f"{name} is exported but never used, not even in another chapter"

# ---- names, versions, files
INI = ConfigParser(delimiters=["="], interpolation=None)
INI.read(ROOT/"settings.ini", encoding="utf-8")
CFG = INI["DEFAULT"]
TOML = tomllib.loads((ROOT/"pyproject.toml").read_text("utf-8"))

def test_names_and_versions_agree():
    assert TOML["project"]["name"] == CFG["lib_name"] == "rlhf-nb"
    assert TOML["tool"]["nbdev"]["lib_path"] == CFG["lib_path"] == "rlhf_nb"
    assert re.fullmatch(r"\d+\.\d+\.\d+", rlhf_nb.__version__)
    top = re.search(r"^## (\S+)", (ROOT/"CHANGELOG.md").read_text("utf-8"), re.M)
    assert top[1] == rlhf_nb.__version__, "the newest entry of CHANGELOG.md is this version"
    floor = TOML["project"]["requires-python"]
    assert floor == ">=3.11"
    matrix = (ROOT/".github/workflows/test.yml").read_text("utf-8")
    assert 'python: ["3.11", "3.12", "3.13"]' in matrix

def test_requirements_have_the_one_form_that_setup_reads():
    for key in [k for k in CFG if k.endswith("requirements")]:
        for word in CFG[key].split(): assert re.fullmatch(r"[a-z0-9_.-]+(>=|==)[\w.]+(,<\w+)?", word), word
    pins = (ROOT/"constraints.txt").read_text().split()
    assert any(re.fullmatch(r"torch==[\d.]+", pin) for pin in pins)

def test_what_is_imported_is_required():
    "Every package that the rooms import is in settings.ini, or comes with one that is."
    comes_with = {"jupyterlab": {"nbformat", "nbclient", "jupyter_client", "psutil",
                                 "packaging", "IPython", "jupyter_core", "ipykernel"}, "transformers": {"tokenizers", "numpy",
                                 "huggingface_hub"}}
    required = {re.split("[><=]", w)[0] for w in CFG["requirements"].split()}
    allowed = required | set().union(*comes_with.values()) | set(sys.stdlib_module_names)
    extras = {re.split("[><=]", w)[0] for k in CFG if k.endswith("_requirements") and k != "dev_requirements" for w in CFG[k].split()}   # where they are used
    for file in MODULES:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import): names = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level: names = [node.module]
            else: continue
            caller = {"pytest"} if file.name == "pytest_marker.py" else set()      # imported by pytest alone
            for name in names: assert name.split(".")[0] in allowed | caller | {"rlhf_nb"} | (
                extras if node.col_offset else set()), f"{file.name}: {name}"

def test_what_is_required_is_imported():
    "nbdev and what comes with it build the package and the site: a learner does not pay for them."
    used = {word for f in MODULES for word in re.findall(r"^\s*(?:from|import) (\w+)", f.read_text("utf-8"), re.M)}
    assert {re.split("[><=]", w)[0] for w in CFG["requirements"].split()} <= used and "nbdev" in CFG["dev_requirements"]

def test_no_address_of_a_package_registry_is_written_down():
    files = [f for pattern in ("*", "*.d/*", ".ci/*", ".github/workflows/*", "rlhf_nb/*.py",
             "nbs/*.ipynb", "nbs/engine/*/*.ipynb", "tests/*.py", "scripts/*", "benchmarks/*") for f in ROOT.glob(pattern)]
    bad = re.compile(r"https?://[^\s\"')]*/simple\b|https?://download\.|file:/" + "//|index-url[ =]h")
    for f in files:
        if not f.is_file() or f.suffix in (".pyc", ".png"): continue
        found = bad.search(f.read_text("utf-8", errors="ignore"))
        assert not found, f"{f.name}: {found}"

def test_the_readme_is_the_index(tmp_path):
    done = subprocess.run([sys.executable, ROOT/"scripts/make_readme.py", tmp_path/"README.md"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path/"README.md").read_text("utf-8") == (ROOT/"README.md").read_text("utf-8"), (
        "README.md is made from nbs/index.ipynb: make readme")

def test_the_ppo_of_the_readme_runs():
    "One rollout of few prompts, and one answer to each question; make test-all runs it as it is printed."
    text = "\n".join(c.source for c in code(read(ROOT/"nbs/index.ipynb")) if re.fullmatch(r"ppo_in_half_a_minute(_[234])?", c.id))
    for old, new in ("PPOConfig(beta=.1)", "PPOConfig(beta=.1, n_iterations=1, n_prompts=8)"), ("in range(8)", "in range(1)"):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    exec(text, {})

def test_the_readme_names_every_chapter_and_links_to_what_is_there():
    text = (ROOT/"README.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    for link in links:
        if not link.startswith(("http", "#")): assert (ROOT/link).is_file(), link
    for f in NOTEBOOKS:
        if f.stem != "index": assert f.relative_to(ROOT).as_posix() in links, f"README does not link {f.stem}"
    for words in ("make lab", "make test", "pip install", "rlhf-nb lab", "rlhf-nb train reward"):
        assert words in text

def test_the_owner_stands_in_one_setting():
    "In pyproject.toml, and in what nbdev derives from it; CONTRIBUTING says how to set it."
    word = re.compile(r"github\.com/OWNER|OWNER\.github")
    written = {f.relative_to(ROOT).as_posix() for pattern in ("*.md", "*.toml", "*.ini", "nbs/*", "nbs/engine/*", "docs/*",
               "scripts/*", "benchmarks/*.py", "tests/*.py", ".github/workflows/*") for f in ROOT.glob(pattern)
               if f.is_file() and f.name != "test_project.py" and word.search(f.read_text("utf-8", errors="ignore"))}
    assert written <= {"pyproject.toml", "tests/test_docs.py"} and "OWNER" in (ROOT/"CONTRIBUTING.md").read_text("utf-8")
    for f in MODULES: assert not word.search(f.read_text("utf-8")), f.name      # nbdev writes it in each that knows the site

@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_lists_what_it_can_do():
    said = subprocess.run(["make", "--silent"], cwd=ROOT, capture_output=True, text=True).stdout
    for target in ("lab", "check", "test", "run", "chapter", "chapters", "readme", "docs", "clean"):
        assert re.search(rf"^  make {target} ", said, re.M), target
    assert os.access(ROOT/".ci/run", os.X_OK)

def test_a_change_in_a_notebook_asks_for_the_tests_of_its_name_or_of_what_it_exports():
    files = {f.name: f.read_text("utf-8") for f in (ROOT/"tests").glob("test_*.py")}
    assert run_notebooks.tests_for("08_ppo", files) == ["test_ppo.py"]
    made = {"test_a.py": "decide emptied", "test_b.py": "decide(copy_chapters, decide, merged)", "test_c.py": "chapters", "test_d.py": "emptiedness"}
    assert run_notebooks.tests_for("copies", made) == ["test_b.py", "test_a.py"]

def test_notebooks_that_fail_or_die_are_told_from_those_that_pass(capfd):
    jobs = dict(good=lambda: True, bad=lambda: False, raises=lambda: 1 / 0, dies=lambda: os._exit(3))
    assert {k: passed for k, (passed, _) in run_notebooks.run_all(jobs).items()} == dict(good=True, bad=False, raises=False, dies=False)
    assert "ZeroDivisionError" in capfd.readouterr().err

# ---- export, clean, build, install
def same_files(a, b):
    def tree(root): return {f.relative_to(root).as_posix(): f.read_bytes() for f in sorted(
        root.rglob("*")) if f.is_file() and f.name not in (".last_checked", "llms.txt") and "__pycache__" not in f.parts}
    a, b = tree(a), tree(b)
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))

@pytest.fixture(scope="session")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")/"rlhf-nb"
    shutil.copytree(ROOT, folder, ignore=LEFT_BY_WORK)
    return folder

@pytest.mark.slow
@pytest.mark.parametrize("command", ["export", "clean"])
def test_export_and_clean_change_nothing(source, tmp_path, command):
    tree = tmp_path/"rlhf-nb"
    shutil.copytree(source, tree)
    bin = Path(sys.executable).parent
    words = [sys.executable, tree/"scripts/export.py"] if command == "export" else [bin/"nbdev-clean"]
    done = subprocess.run(words, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    changed = same_files(source, tree)
    assert not changed, f"{command} changes {changed}: make export"

@pytest.fixture(scope="session")
def dist(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, source],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder

@pytest.mark.slow
def test_the_wheel_holds_every_chapter_room_and_checkpoint(dist):
    [wheel] = dist.glob("*.whl")
    assert wheel.name.startswith(f"rlhf_nb-{rlhf_nb.__version__}-py3")
    with zipfile.ZipFile(wheel) as z:
        names = set(z.namelist())
        meta = Parser().parsestr(z.read(next(n for n in names if n.endswith("/METADATA"))).decode())
        entry = z.read(next(n for n in names if n.endswith("/entry_points.txt"))).decode()
    want = {f"rlhf_nb/nbs/{f.relative_to(ROOT/'nbs').as_posix()}" for f in [
        *NOTEBOOKS, *(ROOT/"nbs").glob("images/*.svg"), *(ROOT/"nbs").glob("results/*.json*"), *(ROOT/"nbs").glob("claims/*.*"),
        ROOT/"nbs/my_rlhf.py"]}
    want |= {f.relative_to(ROOT).as_posix() for f in (ROOT/"rlhf_nb").glob("**/*.py") if "nbs" not in f.parts}
    want |= {f.relative_to(ROOT).as_posix() for pattern in ("checkpoints/*/*", "run/recipes/*.toml", "run/bridge/*/*",
             "show/styles/*.css", "trainers/prompts/*.jinja", "worlds/*.toml", "run/*.toml")
             for f in (ROOT/"rlhf_nb").glob(pattern)}
    have = {n for n in names if n.startswith("rlhf_nb/")}
    assert want == have, (want - have, have - want)
    assert len({n.split("/")[2] for n in have if n.startswith("rlhf_nb/checkpoints/")}) == 4
    assert meta["Version"] == rlhf_nb.__version__ and meta["Requires-Python"] == ">=3.11"
    needed = [r for r in meta.get_all("Requires-Dist") if "extra ==" not in r]
    assert len(needed) == len(CFG["requirements"].split())
    assert meta["License-Expression"] == "Apache-2.0" and "rlhf-nb = rlhf_nb.book.command:main" in entry
    assert "[pytest11]\nrlhf_nb.book.pytest_marker = rlhf_nb.book.pytest_marker" in entry
    assert wheel.stat().st_size < 12_000_000

@pytest.mark.slow
def test_the_sdist_holds_what_a_test_run_needs(dist):
    [sdist] = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as t: names = {n.split("/", 1)[1] for n in t.getnames() if "/" in n}
    for name in ("settings.ini", "constraints.txt", "LICENSE", "README.md", "Makefile",
                 "CHANGELOG.md", "tests/test_project.py", *(f.relative_to(ROOT).as_posix() for f in NOTEBOOKS)):
        assert name in names, name

@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="paths of a POSIX environment")
def test_the_installed_wheel_runs_a_chapter(dist, tmp_path):
    "A new environment that sees this one's packages, but not this checkout."
    home = tmp_path/"env"
    venv.create(home, with_pip=False)
    [wheel], exe = dist.glob("*.whl"), home/"bin/python"
    subprocess.run([sys.executable, "-m", "pip", "--python", exe, "install", "--quiet", "--no-deps",
                    "--no-index", wheel], check=True)
    site = next(home.glob("lib/python*/site-packages"))
    (site/"packages.pth").write_text(sysconfig.get_paths()["purelib"])     # its .pth files stay unread
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    def command(*words):
        return subprocess.run([home/"bin/rlhf-nb", *words], cwd=tmp_path, env=env,
                              capture_output=True, text=True, timeout=300)
    said = command("paths")
    assert f"notebooks {site/'rlhf_nb/nbs'}" in said.stdout, said
    said = command("copy", "--exercises", "mine")
    assert said.returncode == 0 and (tmp_path/"mine/07_kl.ipynb").is_file(), said
    said = command("check", "sft", "--dir", "mine")
    assert said.returncode == 1 and "0 of 3 exercises are right" in said.stdout, said
    assert command("--version").stdout.strip() == rlhf_nb.__version__
    said = command("run", "tokens", "--out", "there")
    assert said.returncode == 0, said.stdout + said.stderr
    page = (tmp_path/"there/report.html").read_text("utf-8")
    assert "all 1 passed" in page and str(ROOT) not in page
    assert page.count('<img alt="figure" src="data:image/png') >= 2
