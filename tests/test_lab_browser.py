"""A learner's copy in a real JupyterLab in a real browser: run, slide, label, pause, reload.

Needs Debian's `chromium` (or $CHROMIUM) and the package playwright; skipped without them.
Screenshots are left in runs/screenshots."""
import json, secrets, subprocess, sys, time, urllib.request, nbformat, pytest
from contextlib import contextmanager
from pathlib import Path
from nbformat.v4 import new_code_cell, new_notebook
from conftest import PATIENCE, free_port, still, until
from rlhf_nb.book.copies import copy_chapters, trust_notebooks

SHOTS = Path(__file__).resolve().parents[1]/"runs/screenshots"
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("chromium")]

LIVE = [    # what the chapters do, on one short page
"""import torch; torch.set_num_threads(1)
from pathlib import Path
from rlhf_nb.base.models import ScalarModel, frozen_copy, load_bundled
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.trainers.ppo_trainer import PPOConfig, RLTask, train_ppo
from rlhf_nb.base.sampling import SamplingParams
from rlhf_nb.show.dashboard import Dashboard, dashboard_callback, run_in_background, show_dashboard
from rlhf_nb.show.labels import LabelSession, show_labels
from rlhf_nb.worlds.world_text import TRAIN, prompt_ids
sft, tokenizer = load_bundled("sft")
ref, model = frozen_copy(sft), ActorCritic(sft, ScalarModel.from_lm(sft, 0))""",
"""import time
from rlhf_nb.show.rollout_view import show_rollouts
rows = [dict(prompt="q", response=f"answer {i} 👩‍🔬", reward=i, tokens=["👩‍🔬"], logprobs=[-.5 - 2e-7], ref_logprobs=[-.5])
        for i in range(6)]
show_rollouts(rows)
show_rollouts(rows[:4])
show_dashboard(Dashboard(["x"]), lambda: time.sleep(60))
print("the end")""",
"""pairs = [(f"Question {i}?", f"<b>one</b> {i}", f"two {i}") for i in range(5)]
show_labels(LabelSession(pairs, Path("mine.jsonl")))""",
"""task = RLTask([prompt_ids(tokenizer, q) for q in TRAIN],
              lambda seqs: seqs.response_mask.sum(1) / 10, tokenizer, SamplingParams(20))
dashboard = Dashboard(["objective/scores", "objective/kl"])
def save():
    model.policy.save_pretrained("saved")
    return "saved/"
def train():
    train_ppo(model, ref, task, PPOConfig(n_iterations=2000, n_prompts=8, max_kl=1e9),
              torch.Generator().manual_seed(0), callback=dashboard_callback(dashboard, tokenizer, save))
thread = run_in_background(train, dashboard)""",
"show_dashboard(dashboard)"]

INSTRUMENTS = [    # a table and its ledgers on rows that need no model
"""import math
from rlhf_nb.show.rollout_view import show_rollouts
rows = [dict(prompt=f"question {i}", response="".join(f" w{k}" for k in range(40)), reward=math.sin(i), length=40,
             tokens=[f" w{k}" for k in range(40)], channels={
                 "KL": [math.sin(i + k) for k in range(40)], "log-prob": [-k / 9 for k in range(40)]})
        for i in range(30)]
view = show_rollouts(rows)
view"""]

EVERY = {    # every instrument, on the shipped models
"models": """import json, random, torch; torch.set_num_threads(1)
from rlhf_nb.base.models import load_bundled
from rlhf_nb.reward import score_seqs
from rlhf_nb.base.sampling import SamplingParams, collect_rollout
from rlhf_nb.world import criteria
from rlhf_nb.worlds.world_text import TEST, demonstrate, prompt_ids
(policy, tokenizer), (ref, _), (rm, _) = map(load_bundled, ("sft", "base", "reward"))
prompts = [prompt_ids(tokenizer, q) for q in TEST[:16]]
roll = collect_rollout(policy, ref, prompts, lambda seqs: score_seqs(rm, seqs), tokenizer, SamplingParams(),
                       torch.Generator().manual_seed(0), 5)
answers = [demonstrate(TEST[3], random.Random(i), 1.) for i in range(2)]""",
"ledger": """from rlhf_nb.show.inspectors import reward_ledger
from rlhf_nb.show.ledger import ledger_page
from IPython.display import HTML
HTML(ledger_page({"response": reward_ledger(rm, tokenizer, prompts[3], answers[0])}))""",
"rollouts": """from rlhf_nb.show.rollout_view import show_rollouts
show_rollouts(roll, tokenizer)""",
"group": """view = show_rollouts(roll, tokenizer)
view.c.look.value = 'group'""",
"runs": """view = show_rollouts({"one": roll, "other": roll}, tokenizer)
view.c.look.value = 'run'""",
"kl": """from rlhf_nb.show.token_kl import show_kl
show_kl(roll, tokenizer, policy, ref)""",
"reward": """from rlhf_nb.show.inspectors import inspect_reward
inspect_reward(rm, tokenizer, prompts[3], *answers, roll, lambda text: criteria(TEST[3], text))""",
"estimators": """from rlhf_nb.show.inspectors import show_kl_estimators
show_kl_estimators(torch.tensor([1., 0., -1., .5]), torch.tensor([0., 1., 0., -1.]))""",
"next": """from rlhf_nb.show.inspectors import show_next
words = [tokenizer.decode([i]) for i in range(len(tokenizer))]
@torch.no_grad()
def next_logits(text):
    ids = prompts[3] + tokenizer(text, add_special_tokens=False).input_ids
    return policy(input_ids=torch.tensor([ids])).logits[0, -1]
show_next(words, next_logits)""",
"judge": """from rlhf_nb.show.inspectors import show_judge
from rlhf_nb.judge import WORLD_PROMPT
show_judge(lambda prompt, n: [["Kind: yes. Score: 4", "Score: 2"], ["I cannot say.", ""]], WORLD_PROMPT, answers)""",
"board": """from pathlib import Path
from rlhf_nb.show.live_log import show_log
rows = [dict(step=i, loss=2 / (i + 1), reward=i / 9, kl=float("nan") if i == 4 else .01 * i) for i in range(9)]
Path("every.jsonl").write_text("".join(json.dumps(r) + chr(10) for r in rows))
show_log("every.jsonl", ["loss", "reward", "kl"])""",
"sweep": """from rlhf_nb.show.dashboard import Sweep, run_setting, show_sweep
def short(settings, callback):
    for i in range(6): callback(dict(reward=i * settings["beta"]), None)
sweep = Sweep(short, ["reward"])
for beta in (.5, 1., 2.): run_setting(sweep, dict(beta=beta))
show_sweep(sweep, {"beta": (1., 0., 3., .5)})""",
"labels": """from rlhf_nb.show.labels import LabelSession, show_labels
show_labels(LabelSession([("Question?", *answers)], Path("every_labels.jsonl")))""",
"game": """from rlhf_nb.book.doctor_game import show_doctor_game
show_doctor_game(2)""",
"slider": """from ipywidgets import IntSlider, interact
from rlhf_nb.show.views import lines, snapshot
interact(snapshot(lambda n: lines(range(10), {"sum": [n * i for i in range(10)]}, "n", "sum")),
         n=IntSlider(3, min=1, max=9, continuous_update=False));"""}

@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learner")/"workbook"
    copy_chapters(folder, "exercises")
    for name, cells in (("live", LIVE), ("instruments", INSTRUMENTS), ("every", EVERY.values()), ("game", [EVERY["game"]])):
        nbformat.write(new_notebook(cells=[new_code_cell(c) for c in cells], metadata={
            "kernelspec": {"name": "python3", "display_name": "python3"}}), folder/f"{name}.ipynb")
    return folder

@contextmanager
def started_lab(folder, own, app="jupyterlab", python=sys.executable, patience=PATIENCE):
    "JupyterLab on a folder, with settings of its own in the folder `own`; its address and token."
    token, port = secrets.token_hex(16), free_port()
    names = dict(JUPYTER_CONFIG_DIR="config", JUPYTER_DATA_DIR="data", JUPYTER_RUNTIME_DIR="run",
                 JUPYTERLAB_SETTINGS_DIR="settings", JUPYTERLAB_WORKSPACES_DIR="spaces", IPYTHONDIR="ipython")
    quiet = own/"settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    quiet.parent.mkdir(parents=True)
    quiet.write_text('{"fetchNews": "false", "checkForUpdates": false}')
    with pytest.MonkeyPatch.context() as env, open(own/"lab.log", "w") as log:
        for k, v in names.items(): env.setenv(k, str(own/v))
        env.setenv("OMP_NUM_THREADS", "1")
        env.delenv("RLHF_NB_STRICT", raising=False)    # a learner's stubs must not raise
        trust_notebooks(sorted(folder.glob("*.ipynb")))           # in that Lab's own store
        server = subprocess.Popen([python, "-m", app, "--no-browser", "--allow-root",
            "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0",
            f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}",
            "--LabApp.extension_manager=readonly", "--LabApp.expose_app_in_browser=True"],
            stdout=log, stderr=subprocess.STDOUT)
    def answers():
        assert server.poll() is None, (own/"lab.log").read_text()
        try: return urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token={token}", timeout=60)
        except OSError: return False
    try:
        until(answers, (own/"lab.log").read_text, patience)
        yield f"http://127.0.0.1:{port}", token
    finally:
        server.terminate()
        server.wait(patience)

@pytest.fixture(scope="module")
def lab(folder, tmp_path_factory):
    with started_lab(folder, tmp_path_factory.mktemp("jupyter")) as address: yield address

@pytest.fixture
def page(browser):
    "A browser page that writes down foreign requests and JavaScript errors; none may come."
    page = browser.new_page(viewport=dict(width=1280, height=1000))
    page.set_default_timeout(1000 * PATIENCE)
    foreign, errors = [], []
    here = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:")
    page.on("request", lambda r: r.url.startswith(here) or foreign.append(r.url))
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.on("dialog", lambda d: d.accept())
    SHOTS.mkdir(parents=True, exist_ok=True)
    yield page
    page.screenshot(path=SHOTS/"lab-last.png")
    page.close()
    assert not foreign, f"requests outside the machine: {foreign[:5]}"
    assert not errors, f"JavaScript errors: {errors[:5]}"

# What the page is asked, in its own language
SLIDING = "[...document.querySelectorAll('.jp-Cell')].find(c => c.querySelector('.widget-slider')).querySelector('.jp-OutputArea')"
PICTURE = f"() => {{ const a = {SLIDING}; return (a.querySelector('img')?.src || '') + (a.querySelector('svg[role=img]')?.innerHTML || '') }}"
HEIGHTS = f"""() => {{ const look = () => {{ window.heights.push({SLIDING}.offsetHeight); requestAnimationFrame(look) }}
    window.heights = []
    look() }}"""
MODEL = "window.jupyterapp.shell.currentWidget.content.model"
CONTENT = "window.jupyterapp.shell.currentWidget.content"
CELLS = f"[...Array({MODEL}.cells.length).keys()].map(i => {MODEL}.cells.get(i))"
IDLE = "() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status == 'idle'"
ALL_RAN = f"() => {CELLS}.filter(c => c.type == 'code').every(c => c.executionCount && c.executionState == 'idle')"
SEEN = (f"() => JSON.stringify({CELLS}.map(c => [c.executionCount, c.executionState, c.outputs?.length]))")
STATUS = "() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status"
ERRORS = (f"() => {CELLS}.map(c => c.toJSON()).flatMap(c => c.outputs || [])"
          ".filter(o => o.output_type == 'error').map(o => o.ename + ': ' + o.evalue)")

def open_notebook(page, lab, name, reset=True):
    page.goto(f"{lab[0]}/lab/tree/{name}?token={lab[1]}" + "&reset" * reset)
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    page.wait_for_function(IDLE)

def command(page, name):
    "Started, not waited for: some of these promises never settle."
    page.evaluate(f"() => {{ window.jupyterapp.commands.execute('{name}'); return true }}")

def run_all(page):
    command(page, "notebook:run-all-cells")
    def all_ran():
        assert page.evaluate(STATUS) not in ("dead", "autorestarting"), "the kernel died"
        return page.evaluate(ALL_RAN)
    until(all_ran, lambda: page.evaluate(SEEN))       # cell by cell, as long as it takes
    errors = page.evaluate(ERRORS)
    assert not errors, errors

def all_drawn(page): page.wait_for_function("() => !document.body.innerText.includes('Loading widget')")

def show(page, locator, shot):
    locator.scroll_into_view_if_needed()
    still(page, locator)
    page.screenshot(path=SHOTS/f"{shot}.png")

KEEPS = f"() => {{ const m = {MODEL}, c = window.jupyterapp.shell.currentWidget.context; return JSON.stringify([c.isReady && c.model.dirty, m.metadata]) }}"

@pytest.mark.parametrize("name", ["07_kl.ipynb", "index.ipynb", "engine/show/views.ipynb"])
@pytest.mark.one_in(3)
def test_a_notebook_that_was_only_opened_is_not_unsaved(page, lab, folder, name):
    "Lab writes nothing into it: kernel and language stand there as Lab itself would write them."
    before = json.loads((folder/name).read_text())["metadata"]
    open_notebook(page, lab, name)
    page.wait_for_function("() => window.jupyterapp.shell.currentWidget.sessionContext.kernelDisplayName.startsWith('Python')")
    page.evaluate("async () => { await window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.info }")
    dirty, metadata = json.loads(page.evaluate(KEEPS))
    assert metadata == before and not dirty, {k: (metadata.get(k), before.get(k)) for k in {*metadata, *before}}

@pytest.mark.long
def test_a_learners_chapter_runs_and_its_slider_moves_by_keyboard(page, lab):
    open_notebook(page, lab, "07_kl.ipynb")
    run_all(page)
    printed = page.evaluate(f"() => {CELLS}.map(c => c.toJSON()).flatMap(c => c.outputs || [])"
                         ".map(o => [].concat(o.text || '').join('')).join('')")
    assert "not done yet" in printed                              # stubs stop nothing
    handle = page.locator(".widget-slider .noUi-handle").first
    show(page, handle, "lab-slider-before")
    readout = page.locator(".widget-slider .widget-readout").first
    page.locator(".jp-Cell", has=page.locator(".widget-slider")).locator("img").first.wait_for()
    before, seen = readout.inner_text(), page.evaluate(f"() => ({PICTURE})()")
    page.evaluate(HEIGHTS)
    handle.focus()
    for n in range(6):
        handle.press("ArrowRight")
        if n % 2: continue                                        # faster than the pictures come
        page.wait_for_function(f"old => ({PICTURE})() && ({PICTURE})() != old", arg=seen)
        seen = page.evaluate(f"() => ({PICTURE})()")
    page.wait_for_function("old => document.querySelector('.widget-slider .widget-readout').innerText != old",
                           arg=before)
    low, rest = page.evaluate("[Math.min(...window.heights), window.heights[0]]")
    assert rest > 150 and low >= rest - 1, f"the output shrank from {rest} to {low} px: the page jumps"
    show(page, handle, "lab-slider-after")
    all_drawn(page)

def test_label_five_pairs_pause_a_run_reload_and_reattach(page, lab, folder):
    open_notebook(page, lab, "live.ipynb")
    run_all(page)
    # -- instruments that do not end their cell are shown, each once; heads and rows are buttons; zeros are 0; Start is answered
    first, second = (page.locator(".jp-Cell").nth(1).locator(".rlhf-view").nth(i) for i in range(2))
    page.get_by_role("button", name="Start", exact=True).press("Enter")
    page.wait_for_function("() => document.body.innerText.includes('running, 0 iterations')")      # the run itself takes a minute
    assert page.locator("table.rlhf-rows caption").locator("visible=true").count() == 2
    assert not {"-2e-07", "u200d"} & {w for w in ("-2e-07", "u200d") if w in first.inner_text()} and "👩‍🔬" in first.inner_text()
    rows = first.locator("table.rlhf-rows tbody th")
    first.locator("thead button", has_text="reward").click()                # once more: in the other order
    page.wait_for_function("e => ['.rlhf-rows tbody th', '.by-row button'].every(s => e.querySelector(s).innerText.trim() == '0')",
                           arg=first.element_handle())
    rows.nth(2).get_by_role("button").press("Enter")
    first.get_by_role("group", name="row 2").wait_for()
    assert page.evaluate("() => document.activeElement.innerText.trim()") == "2"   # keys go on at the view's own button
    # -- arrows press the neighbour in a row of buttons; Lab, in command mode, would go to the next cell
    page.evaluate(f"() => {{ {CONTENT}.mode = 'command' }}")
    cell = page.evaluate(f"() => {CONTENT}.activeCellIndex")
    for row, start, key, then in (("by-sort", "reward", "ArrowLeft", "row"), ("by-sort", "row", "ArrowDown", "reward"),
                                  ("widget-toggle-buttons", "all rows", "ArrowUp", "length"), ("by-row", "2", "ArrowRight", "3")):
        first.locator(f".{row} button").get_by_text(start, exact=True).focus()
        page.keyboard.press(key)
        page.wait_for_function("([e, row, then]) => { const b = document.activeElement; return b.innerText.trim() == then && b.closest('.' + row) "
                               "&& e.contains(b) && b.matches('.mod-active') }", arg=[first.element_handle(), row, then])
    first.get_by_role("group", name="row 3").wait_for()
    assert page.evaluate(f"() => [{CONTENT}.activeCellIndex, {CONTENT}.mode].join()") == f"{cell},command"
    first.get_by_label("Text").press_sequentially("answer 4")               # without Enter
    page.wait_for_function("e => e.querySelector('caption').innerText.includes('1 to 1 of 1')", arg=first.element_handle())
    assert second.locator("caption").inner_text().startswith("rows 1 to 4 of 4")
    # -- five labels by keyboard alone: focus, then Enter
    session = page.locator(".jp-Cell", has=page.get_by_role("button", name="Left is better"))
    presses = [("Left is better", 1), ("Right is better", 2), ("Cannot say", 3), ("Undo", 2),
               ("Left is better", 3), ("Right is better", 4), ("Left is better", 5)]
    for i, (name, done) in enumerate(presses):
        choice = session.get_by_role("button", name=name)
        choice.focus()
        choice.press("Enter")
        page.wait_for_function("n => document.body.innerText.includes(`${n} of 5`)", arg=done)
        if i == 1:
            show(page, session, "lab-session")
            assert session.evaluate("e => [...e.querySelectorAll('.widget-label, button')].every(x => x.scrollWidth <= x.clientWidth + 1)")
            assert "<b>one</b>" in session.inner_text()        # what a model wrote is text
    rows = [json.loads(line) for line in (folder/"mine.jsonl").read_text().splitlines()]
    assert len(rows) == 5 and all(set(r) == {"prompt", "chosen", "rejected"} for r in rows)
    # -- a live run: Pause holds it, Save now writes while it waits
    began = time.monotonic()
    page.wait_for_function(f"() => ({LAST}) > 2")
    n = last_iteration(page)
    page.wait_for_function(f"n => ({LAST}) > n + 2", arg=n)
    pace = time.monotonic() - began                     # of some iterations, on this machine
    button(page, "Pause").press("Enter")
    button(page, "Go on").wait_for()
    page.wait_for_function("() => document.body.innerText.includes('paused')")
    held = last_iteration(page)
    page.wait_for_timeout(1000 * max(2, pace))          # time in which it would go on
    assert last_iteration(page) == held, "a paused run goes on"
    button(page, "Save now").press("Enter")
    page.wait_for_function("() => document.body.innerText.includes('Saved after iteration')")
    assert (folder/"saved/model.safetensors").is_file()
    show(page, button(page, "Go on"), "lab-dashboard-paused")
    # -- save the notebook, reload: the run is still held, its dashboard is shown again and obeys
    command(page, "docmanager:save")
    page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
    open_notebook(page, lab, "live.ipynb", reset=False)
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = "
                  f"{len(LIVE) - 1} }}")
    command(page, "notebook:run-cell")
    page.wait_for_function(f"() => {CELLS}[{len(LIVE) - 1}].executionState == 'idle'")
    button(page, "Go on").wait_for()
    assert last_iteration(page) == held
    button(page, "Go on").press("Enter")
    page.wait_for_function(f"old => ({LAST}) > old + 2", arg=held)
    show(page, button(page, "Pause"), "lab-dashboard-again")
    button(page, "Stop").press("Enter")
    page.wait_for_function("() => document.body.innerText.includes('stopped')")

IN_WINDOW = """() => { const t = document.activeElement.closest('.t'), r = t.getBoundingClientRect(),
    s = getComputedStyle(t, '::before'); return [s.content.slice(0, 12), s.display, r.top >= 0 && r.bottom <= innerHeight] }"""
DEAD = ("() => [...document.querySelectorAll('.jp-OutputArea-output')].filter(e => e.checkVisibility() && "
        "/model not found|Loading widget/.test(e.innerText)).length")

@pytest.mark.long
def test_a_table_of_rollouts_answers_to_the_keyboard_and_outlives_its_kernel(page, lab):
    open_notebook(page, lab, "instruments.ipynb")
    run_all(page)
    page.locator(".jupyter-widgets table.rlhf-rows").wait_for()
    all_drawn(page)
    assert page.locator("table.rlhf-rows:visible").count() == 1             # the live one hides the page that stays
    assert page.evaluate(NAMELESS) == []
    show(page, page.locator("table.rlhf-rows:visible"), "lab-rollouts")
    page.get_by_role("button", name="row", exact=True).first.press("Enter")   # sorts by it
    page.wait_for_function("() => document.querySelector('.jupyter-widgets table.rlhf-rows tbody th').innerText == '0'")
    page.get_by_role("button", name="Next", exact=True).press("Enter")
    page.wait_for_function("() => document.querySelector('.jupyter-widgets table.rlhf-rows caption').innerText.includes('11 to 20')")
    page.get_by_role("button", name="13", exact=True).first.press("Enter")  # opens a row
    page.get_by_role("group", name="row 13").locator("visible=true").wait_for()
    # -- the ledger: arrow keys go from token to token, and not from cell to cell
    ledger = page.locator(".jupyter-widgets [aria-label='token ledger']")
    ledger.locator(".t input").first.focus()
    cell = page.evaluate("() => window.jupyterapp.shell.currentWidget.content.activeCellIndex")
    for key in ("ArrowRight", "ArrowDown", "ArrowRight"): page.keyboard.press(key)
    assert page.evaluate("() => document.activeElement.closest('.t').dataset.n").startswith("token 3: ")
    content, display, inside = page.evaluate(IN_WINDOW)
    term = page.get_by_role("region", name="loss of the token")
    assert content.startswith('"token 3: ') and inside
    assert display == "none" and term.count() == 1 and term.is_visible()     # the term of the loss stands in place of the note
    assert page.evaluate("() => window.jupyterapp.shell.currentWidget.content.activeCellIndex") == cell
    show(page, ledger, "lab-rollouts-ledger")
    colour = "e => [...e.querySelectorAll('.t')].map(t => getComputedStyle(t).backgroundColor).join()"
    before = ledger.evaluate(colour)
    ledger.locator("input[id]").first.focus()
    page.keyboard.press("ArrowRight")                                       # another channel
    assert ledger.evaluate(colour) != before
    # -- saved, the kernel ended, opened again: the page that stays is what was seen last
    command(page, "docmanager:save")
    page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
    page.evaluate("async () => { await window.jupyterapp.shell.currentWidget.sessionContext.shutdown() }")
    page.goto(f"{lab[0]}/lab/tree/instruments.ipynb?token={lab[1]}")
    page.locator("table.rlhf-rows:visible").wait_for()
    page.wait_for_function(f"() => ({DEAD})() == 0")
    assert "11 to 20" in page.locator("table.rlhf-rows:visible caption").inner_text()
    assert page.locator("[aria-label='row 13']:visible").count() == 1
    show(page, page.locator("table.rlhf-rows:visible"), "lab-rollouts-dead")

@pytest.mark.long
@pytest.mark.parametrize("chapter", ["dashboard", "inspectors"])
def test_the_widget_chapters_run_and_show_their_widgets(page, lab, chapter):
    open_notebook(page, lab, f"engine/show/{chapter}.ipynb")
    run_all(page)
    views = page.locator(".jupyter-widgets")
    views.nth(4).wait_for(state="attached")
    all_drawn(page)
    assert page.locator("text=Error displaying widget").count() == 0
    assert page.evaluate(NAMELESS) == []                   # a screen reader can say what each is
    name = {"dashboard": "lr", "inspectors": "top-k"}[chapter]
    field = page.get_by_role("spinbutton", name=name, exact=True).last
    slider = page.locator(".widget-hbox", has=field).last.locator(".noUi-origin")
    at, place = field.input_value(), slider.get_attribute("style")
    field.press("ArrowUp")                                 # the slider follows
    page.wait_for_function("([field, slider, at, place]) => field.value != at && slider.getAttribute('style') != place",
                           arg=[field.element_handle(), slider.element_handle(), at, place])
    in_theme(page, "JupyterLab Dark")
    for i, view in enumerate([v for v in views.all()[:40] if v.is_visible()][::6]): show(page, view, f"lab-{chapter}-dark-{i}")   # some hold keys alone
    stop = page.get_by_role("button", name="Stop", exact=True)
    if stop.count(): stop.last.press("Enter")              # the run behind the chapter's dashboard

def in_theme(page, theme):
    page.evaluate("theme => { window.jupyterapp.commands.execute('apputils:change-theme', {theme}); return true }", theme)
    page.wait_for_function("theme => document.body.dataset.jpThemeName == theme", arg=theme)

@pytest.mark.long
def test_axe_finds_nothing_in_any_instrument_by_day_or_by_night(page, lab, axe):
    "Critical or serious; each is left as a picture in both of Lab's themes."
    open_notebook(page, lab, "every.ipynb")
    run_all(page)
    all_drawn(page)
    page.locator(".jupyter-widgets table.rlhf-rows").nth(1).wait_for()
    assert page.evaluate(NAMELESS) == []
    page.evaluate("""() => { const places = [...document.querySelectorAll('.jp-Notebook .jp-Cell .jp-OutputArea.jp-Cell-outputArea')]
        places.forEach((e, i) => { e.id = `place-${i}` }) }""")
    # the first picture behind a slider is an image of Lab's, which has no place for an alternative text; ours has
    place = page.locator(f"#place-{list(EVERY).index('slider')}")
    place.locator("img").wait_for()
    place.locator(".noUi-handle").press("ArrowRight")
    place.locator("svg[role=img][aria-label='figure: n, sum']").wait_for()
    found = {}
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        in_theme(page, theme)
        for i, name in enumerate(EVERY):
            if name == "models": continue
            page.locator(f"#place-{i}").scroll_into_view_if_needed()
            still(page, page.locator(f"#place-{i}"))
            page.locator(f"#place-{i}").screenshot(path=SHOTS/f"lab-every-{name}-{theme.split()[1].lower()}.png")
            wrong = axe(page, f"#place-{i}")
            if name == "slider":        # of ipywidgets itself, which writes its name beside it and not into it
                assert [w for w in wrong if "noUi-handle" in w and " 1 places" in w] == wrong
                continue
            if wrong: found[theme, name] = wrong
    in_theme(page, "JupyterLab Light")
    assert not found, "\n".join(f"{where}: {line}" for where, lines in found.items() for line in lines)

def test_two_runs_of_the_doctor_game_are_played_with_buttons(page, lab):
    "Measured, decided without a choice, which is told, then with one; the points are those of a sitting in Python."
    from rlhf_nb.book import doctor_game as g
    open_notebook(page, lab, "game.ipynb")
    run_all(page)
    all_drawn(page)
    same = g.deal(2, 0)
    def says(words): page.wait_for_function("w => document.body.innerText.includes(w)", arg=words)
    for i, right in enumerate((True, False)):
        says(f"Run {i + 1} of 2")
        button(page, "truth (3)").press("Enter")
        g.measure_run(same, i, "truth")
        page.wait_for_function("() => [...document.querySelectorAll('button')].filter(b => b.innerText == 'truth (3)').pop().disabled")
        data, run = g.game_data(), same.runs[i]
        keys = run["faults"] if right else [next(k for k in same.causes if k not in run["faults"])]
        causes, fixes = (page.get_by_label(name, exact=True).last for name in ("Cause", "Fix"))
        button(page, "Decide").press("Enter")
        says("name a cause and a fix")
        causes.focus()
        page.keyboard.press("ArrowDown")                                   # of the list, not of Lab's cells
        assert page.evaluate("() => document.activeElement.matches('select') && document.activeElement.selectedOptions.length == 1")
        causes.select_option(label=[data["causes"][k]["wrong"] for k in keys])
        fixes.select_option(label=[data["causes"][k]["fix"] for k in keys])
        button(page, "Decide").press("Enter")
        g.call_run(same, keys, keys)
        says(f"Run {i + 1}: {same.calls[i]['points']:g} of 10 points")
    says(f"{sum(c['points'] for c in same.calls):g} of 20 points")
    show(page, page.locator(".jp-OutputArea").last, "lab-doctor-game")
    assert same.calls[0]["points"] > same.calls[1]["points"]

NAMELESS = ("() => [...document.querySelectorAll('.jupyter-widgets :is(input, textarea, select, button)')]"
            ".filter(e => !e.labels?.length && !(e.textContent + (e.getAttribute('aria-label') || '')).trim())"
            ".map(e => e.closest('.jupyter-widgets').className)")
LAST = "Number([...document.querySelectorAll('svg[role=img]')].pop()?.querySelector('text:last-of-type')?.textContent)"
def last_iteration(page): return page.evaluate(f"() => {LAST}")
def button(page, name): return page.get_by_role("button", name=name, exact=True).last
