"What keeps the project true: floors, names, clean notebooks, the wheel, the README."
import ast, json, os, re, shutil, subprocess, sys, sysconfig, tarfile, tomllib, venv, zipfile
from configparser import ConfigParser
from email.parser import Parser
from importlib import import_module
from pathlib import Path

import nbformat, pytest

import rlhf_nb

ROOT = Path(__file__).resolve().parents[1]
COURSE = sorted((ROOT/"nbs").glob("[!._]*.ipynb"))
NOTEBOOKS = [*COURSE, *sorted((ROOT/"nbs/engine").glob("[!._]*.ipynb"))]
MODULES = sorted(f for f in (ROOT/"rlhf_nb").glob("*.py") if not f.name.startswith("_"))
LEFT_BY_WORK = shutil.ignore_patterns(
    ".git", ".venv", "runs", "rlhf-workbook", "build", "dist", "*.egg-info", "__pycache__",
    ".pytest_cache", ".ipynb_checkpoints", ".last_checked", "llms.txt", "*.part", "_docs", "_proc")

# Which rooms a room may import. A new room has to be put here, on its floor.
METHOD = {"tokens", "memory", "world_text", "world", "oracle", "best_policy", "models", "sampling", "kl", "kl_control",
          "learning", "data", "records", "interrupts", "processes", "sharding"}
FLOORS = {
    "tokens": set(), "memory": {"tokens"}, "views": {"tokens", "memory"},
    "world_text": {"tokens", "memory"},
    "world": {"tokens", "memory", "world_text"}, "oracle": {"tokens", "views"}, "models": {"tokens", "memory", "processes"}, "kl": {"tokens", "memory"},
    "best_policy": {"tokens", "memory", "oracle"}, "kl_control": set(), "dpo_tools": METHOD | {"dpo"},
    "records": set(), "data": {"tokens", "memory", "records"}, "sampling": {"tokens", "memory", "models", "processes"}, "learning": {"tokens", "memory", "models", "interrupts", "processes", "sharding"}, "interrupts": {"processes"}, "processes": set(), "sharding": {"processes"}, "memory_plan": set(), "fetch": set(),
    "sft": METHOD, "reward": METHOD, "reward_tools": METHOD | {"reward"},
    "replies": METHOD, "judge": METHOD | {"replies"},
    "judge_tools": METHOD | {"judge", "replies"}, "ppo": METHOD, "dpo": METHOD,
    "store": METHOD, "q_networks": METHOD, "qlearning": METHOD | {"q_networks"},
    "q_trainer": METHOD | {"q_networks", "qlearning", "views"}, "spin": METHOD | {"dpo"}, "spin_runs": METHOD | {"dpo", "spin", "store"},
    "arithmetic": {"tokens", "memory"},
    "candidates": METHOD, "self_reward": METHOD | {"judge", "replies", "candidates", "dpo"},
    "self_reward_runs": METHOD | {"judge", "judge_tools", "candidates", "dpo", "self_reward", "store"}, "grpo": {"tokens"}, "grpo_trainer": METHOD | {"ppo", "ppo_trainer", "grpo"},
    "ppo_trainer": METHOD | {"ppo", "kl_control"},
    "runs": {"store", "processes"}, "trackers": {"processes"}, "model_card": set(), "vllm_sampler": METHOD,
}
BASE = {"settings", "files"}      # of any module: what checks settings, and what writes files
FLOORS["recipes"] = set(FLOORS) - {"views"}
for _room in ("text_rewards", "rl_recipes", "train_command", "pipeline"): FLOORS[_room] = set(FLOORS) - {"views"}
FLOORS["widgets"] = {"views"}   # like views: data in, a page out
FLOORS["rollout_view"] = {"widgets", "views", "tokens", "memory", "kl"}
FLOORS["token_kl"] = FLOORS["rollout_view"] | {"rollout_view", "models"}
FLOORS["live_log"] = {"widgets", "learning", "views", "tokens", "memory", "models"}
FLOORS["inspectors"] = {"widgets", "views", "tokens", "memory", "sampling", "kl", "judge", "replies", "data", "models",
                        "reward"}
FLOORS["sitting"] = METHOD | {"views", "widgets"}
FLOORS["compare"] = METHOD | {"reward", "reward_tools"}
FLOORS["checks"] = set()        # knows nothing of what is checked
FLOORS["workbook"] = {"checks", "fetch", "train_command", "recipes", "pipeline"}
FLOORS["compare_runs"] = set(FLOORS) - {"recipes", "pipeline", "checks"}   # it runs them all
FLOORS = {"settings": set(), "files": set(), **{room: below | BASE for room, below in FLOORS.items()}}
EVERYWHERE = {"views", "checks", "exercises", "workbook", "runs"} | BASE   # in chapters, not in rooms

def ids(files): return [f.stem for f in files]
def code(nb): return [c for c in nb.cells if c.cell_type == "code"]
def exporting(cell): return re.search(r"^#\|\s*export\b", cell.source, re.M)
def room_of(nb):
    found = re.search(r"^#\|\s*default_exp\s+(\w+)", "\n".join(c.source for c in code(nb)), re.M)
    return found[1] if found else ""
def python(cell): return re.sub(r"^[%!].*$", "", cell.source, flags=re.M)

def imports(source):
    "(room, names) of every import from the package, wherever in the file it stands."
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            module = "rlhf_nb." + (node.module or "") if node.level else node.module or ""
            names = [a.name for a in node.names]
            if module.rstrip(".") == "rlhf_nb": yield from ((n, []) for n in names)
            elif module.startswith("rlhf_nb."): yield module.split(".")[1], names
        elif isinstance(node, ast.Import):
            for a in node.names:
                if a.name.startswith("rlhf_nb."): yield a.name.split(".")[1], []

# ---- floors

def test_imports_reads_every_form():
    source = ("import rlhf_nb.a\nfrom rlhf_nb.b import x\nfrom .c import y\nfrom . import d\n"
              "def f():\n    from rlhf_nb import e\nimport rlhf_nb\nimport torch.nn\n")
    assert {room for room, _ in imports(source)} == set("abcde")

def test_the_floors_have_no_circle():
    left = dict(FLOORS)
    while left:
        free = [room for room, below in left.items() if not below & set(left)]
        assert free, f"a circle in {left}"
        for room in free: del left[room]

@pytest.mark.parametrize("file", MODULES, ids=ids(MODULES))
def test_a_room_imports_only_from_floors_below(file):
    assert file.stem in FLOORS, f"put {file.stem} into the table FLOORS, on its floor"
    upward = {room for room, _ in imports(file.read_text("utf-8"))} - FLOORS[file.stem]
    assert not upward, f"{file.stem} imports {upward}; it may import {FLOORS[file.stem]}"

def test_heavy_faces_are_imported_late():
    tree = ast.parse((ROOT/"rlhf_nb/checks.py").read_text("utf-8")
                     + (ROOT/"rlhf_nb/workbook.py").read_text("utf-8"))
    late = {"torch", "jupyterlab", "nbformat", "nbclient", "tqdm", "rlhf_nb.recipes",
            "rlhf_nb.pipeline"}
    for node in tree.body:
        names = {a.name for a in getattr(node, "names", []) if isinstance(node, ast.Import)}
        names |= {node.module} if isinstance(node, ast.ImportFrom) else set()
        assert not names & late, f"import {names & late} inside the function that needs it"

AHEAD = {"12_doctor": {"judge"},     # one of the twelve symptoms is a judge's
         "05_reward": {"best_policy"}}   # best-of-n, exactly: the closed form comes a chapter later

@pytest.mark.parametrize("file", NOTEBOOKS, ids=ids(NOTEBOOKS))
def test_a_chapter_uses_only_earlier_chapters_and_the_engine_room(file):
    known = {room_of(nbformat.read(f, 4)) for f in NOTEBOOKS if f not in COURSE or f <= file}
    if file not in COURSE or file.stem in ("index", "01_first_sitting"): known = set(FLOORS)
    for cell in code(nbformat.read(file, 4)):
        for room, names in imports(python(cell)):
            assert "*" not in names, f"{cell.id}: import names, not *"
            assert room in known | EVERYWHERE | AHEAD.get(file.stem, set()), f"{cell.id} needs {room}, a later chapter"

@pytest.mark.parametrize("file", [*MODULES, *sorted((ROOT/"tests").glob("*.py"))], ids=str)
def test_no_star_import(file):
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom): assert "*" not in [a.name for a in node.names]

# ---- notebooks

NUMBERED = [f for f in COURSE if f.stem != "index"]

@pytest.mark.parametrize("file", NUMBERED, ids=ids(NUMBERED))
def test_a_chapter_leads_on_by_links(file):
    "To the next chapter, to the map, and from its first screen to what it needs."
    text = [c.source for c in nbformat.read(file, 4).cells if c.cell_type == "markdown"]
    last = text[-1][text[-1].index("**Next:**"):]
    later = [f.name for f in NUMBERED if f.name > file.name]
    assert "](index.ipynb)" in last and (not later or f"]({later[0]})" in last), f"{file.name}: {last}"
    for linked in re.findall(r"\]\((\w+\.ipynb)\)", "".join(text[:3]) + last): assert (file.parent/linked).is_file(), linked
    needs = " ".join(re.findall(r"You need[^.]*\.", " ".join(text[:3]).replace(".ipynb", "_ipynb")))
    bare = re.findall(r"(?<![\[\w(_])\d\d(?![\w\]])", re.sub(r"\[[^\]]*\]\([^)]*\)", "", needs))
    assert not bare, f"{file.name}: chapters {bare} are needed and not linked"

@pytest.mark.parametrize("file", NOTEBOOKS, ids=ids(NOTEBOOKS))
def test_a_notebook_is_clean_and_was_run(file):
    nb = nbformat.read(file, 4)
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
    nb = nbformat.read(file, 4)
    assert re.match(r"# .+\n\n> .+", nb.cells[0].source), "title, then > one sentence"
    for c in code(nb):
        lines = c.source.splitlines()
        assert max(map(len, lines), default=0) <= 88, f"{c.id}: a line over 88 columns"
        assert sum(bool(l.strip()) for l in lines) <= 25, f"{c.id}: over 25 lines"

CHAPTERS = [f for f in NOTEBOOKS if room_of(nbformat.read(f, 4))]

@pytest.mark.parametrize("file", CHAPTERS, ids=ids(CHAPTERS))
def test_every_exported_name_is_documented_and_used_on_the_page(file):
    nb = nbformat.read(file, 4)
    module = import_module(f"rlhf_nb.{room_of(nb)}")
    assert module.__all__, "a chapter exports something"
    shown = "\n".join(c.source for c in code(nb) if not exporting(c))
    later = "\n".join(c.source for f in NOTEBOOKS for c in code(nbformat.read(f, 4)))
    for name in module.__all__:
        thing = getattr(module, name)
        if callable(thing): assert (thing.__doc__ or "").strip(), f"{name} has no docstring"
        if re.search(rf"\b{name}\b", shown): continue
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
        for word in CFG[key].split():
            assert re.fullmatch(r"[a-z0-9_.-]+(>=|==)[\w.]+(,<\w+)?", word), word
    pins = (ROOT/"constraints.txt").read_text().split()
    assert any(re.fullmatch(r"torch==[\d.]+", pin) for pin in pins)

def test_what_is_imported_is_required():
    "Every package that the rooms import is in settings.ini, or comes with one that is."
    comes_with = {"jupyterlab": {"nbformat", "nbclient", "jupyter_client", "psutil",
                                 "packaging", "IPython", "jupyter_core"}, "transformers": {"tokenizers", "numpy",
                                 "huggingface_hub"}, "an engine that the caller has made": {"vllm"}}
    required = {re.split("[><=]", w)[0] for w in CFG["requirements"].split()}
    allowed = required | set().union(*comes_with.values()) | set(sys.stdlib_module_names)
    for file in MODULES:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import): names = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level: names = [node.module]
            else: continue
            for name in names:
                assert name.split(".")[0] in allowed | {"rlhf_nb"}, f"{file.name}: {name}"

def test_no_address_of_a_package_registry_is_written_down():
    files = [f for pattern in ("*", "*.d/*", ".ci/*", ".github/workflows/*", "rlhf_nb/*.py",
             "nbs/*.ipynb", "nbs/engine/*.ipynb", "tests/*.py", "scripts/*", "benchmarks/*") for f in ROOT.glob(pattern)]
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
    for f in MODULES:       # nbdev's line, and nothing else
        assert all(line.startswith("Docs: ") for line in f.read_text("utf-8").splitlines() if word.search(line)), f.name

@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_lists_what_it_can_do():
    said = subprocess.run(["make", "--silent"], cwd=ROOT, capture_output=True, text=True).stdout
    for target in ("lab", "test", "run", "chapters", "readme", "docs", "clean"):
        assert re.search(rf"^  make {target} ", said, re.M), target
    assert os.access(ROOT/".ci/run", os.X_OK)

# ---- export, clean, build, install

def same_files(a, b):
    "Names of files that differ between two trees."
    def tree(root): return {f.relative_to(root).as_posix(): f.read_bytes() for f in sorted(
        root.rglob("*")) if f.is_file() and f.name not in (".last_checked", "llms.txt") and "__pycache__" not in f.parts}
    a, b = tree(a), tree(b)
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))

@pytest.fixture(scope="session")
def source(tmp_path_factory):
    "The project as a clone has it."
    folder = tmp_path_factory.mktemp("source")/"rlhf-nb"
    shutil.copytree(ROOT, folder, ignore=LEFT_BY_WORK)
    return folder

@pytest.mark.slow
@pytest.mark.parametrize("command", ["export", "clean"])
def test_export_and_clean_change_nothing(source, tmp_path, command):
    tree = tmp_path/"rlhf-nb"
    shutil.copytree(source, tree)
    bin = Path(sys.executable).parent
    done = subprocess.run([bin/f"nbdev-{command}"], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    changed = same_files(source, tree)
    assert not changed, f"nbdev-{command} changes {changed}: run it (make export)"

@pytest.fixture(scope="session")
def dist(source, tmp_path_factory):
    "An sdist, and the wheel that is built from it."
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
        *NOTEBOOKS, *(ROOT/"nbs").glob("images/*.svg"), *(ROOT/"nbs").glob("results/*.json")]}
    want |= {f.relative_to(ROOT).as_posix() for f in (ROOT/"rlhf_nb").glob("**/*.py")
             if "nbs" not in f.parts}
    want |= {f.relative_to(ROOT).as_posix() for f in (ROOT/"rlhf_nb/checkpoints").glob("*/*")}
    have = {n for n in names if n.startswith("rlhf_nb/")}
    assert want == have, (want - have, have - want)
    assert len({n.split("/")[2] for n in have if n.startswith("rlhf_nb/checkpoints/")}) == 4
    assert meta["Version"] == rlhf_nb.__version__ and meta["Requires-Python"] == ">=3.11"
    needed = [r for r in meta.get_all("Requires-Dist") if "extra ==" not in r]
    assert len(needed) == len(CFG["requirements"].split())
    assert meta["License-Expression"] == "Apache-2.0" and "rlhf-nb = rlhf_nb.workbook:main" in entry
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
def test_the_installed_wheel_runs_two_chapters(dist, tmp_path):
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
    said = command("run", "tokens", "world", "--out", "there")
    assert said.returncode == 0, said.stdout + said.stderr
    page = (tmp_path/"there/report.html").read_text("utf-8")
    assert "all 2 passed" in page and str(ROOT) not in page
    assert page.count('<img alt="figure" src="data:image/png') >= 2
