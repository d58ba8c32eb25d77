"Rows of runs arrive in trackers: accelerate's own where installed, and one made here."
import json, shutil, pytest
from pathlib import Path
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker
from rlhf_nb.base.folder import foreign_files
from rlhf_nb.base.checkpoints import Log
from rlhf_nb.run import methods, pipeline, trackers
from rlhf_nb.run.trackers import check_trackers, open_trackers
from tiny_runs import rows_in, run, tiny

pytestmark = pytest.mark.usefixtures("one_thread", "no_curves")

@pytest.fixture
def heard(monkeypatch):
    "What a tracker named `heard` was told, in order."
    told = []
    class Heard(GeneralTracker):
        name, requires_logging_directory = "heard", True
        def __init__(self, run, place):
            super().__init__()
            Path(place).mkdir(exist_ok=True)
            (Path(place)/f"events{told.count('closed')}").write_text("x")
            told.append(("open", run, place))
        @property
        def tracker(self): return self
        def store_init_configuration(self, values): told.append(("settings", values))
        def log(self, values, step=None, **kwargs): told.append((step, values))
        def finish(self): told.append("closed")
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "heard", Heard)
    return told

def test_numbers_go_out_with_their_step_and_texts_stay(heard, tmp_path):
    log = Log(tmp_path/"log.jsonl")
    with open_trackers("heard", tmp_path/"t", dict(lr=.1)) as send:
        log.listeners.append(send)
        log.add(step=3, loss=1.5, stop_reason="no")
        log.add(step=4, iteration=2, kl=.25, done=True)
    assert heard == [("open", "rlhf-nb", str(tmp_path/"t")), ("settings", dict(lr=.1)), (3, dict(step=3, loss=1.5)),
                     (2, dict(step=4, iteration=2, kl=.25)), "closed"]

def test_trackers_are_closed_when_the_run_or_another_tracker_fails(heard, tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt), open_trackers("heard", tmp_path, {}): raise KeyboardInterrupt
    assert heard[-1] == "closed"
    class Broken(LOGGER_TYPE_TO_CLASS["heard"]):
        def store_init_configuration(self, values): raise OSError("no network")
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "broken", Broken)
    heard.clear()
    with pytest.raises(OSError, match="no network"), open_trackers("heard,broken", tmp_path, {}): pass
    assert heard[-1] == "closed"

def test_names_are_checked_and_only_the_first_process_reports(heard, tmp_path, monkeypatch):
    assert check_trackers("") == [] and check_trackers(" heard , heard") == ["heard", "heard"]
    with pytest.raises(ValueError, match="no tracker 'tensorbord': name one of .*tensorboard"): check_trackers("tensorbord")
    monkeypatch.setattr(trackers, "get_available_trackers", lambda: [])
    with pytest.raises(ValueError, match="needs its package: pip install comet-ml"): check_trackers("comet_ml")
    monkeypatch.setattr(trackers, "process_index", lambda: 1)
    with open_trackers("heard", tmp_path, {}) as send: send(dict(step=1, loss=1.))
    assert heard == []

@pytest.mark.parametrize("method", ["sft", "q", "spin", "grpo"]) # one of each kind of loop
def test_a_run_reports_every_row_of_its_log(method, heard, inside):
    run(tiny(method, report_to="heard", lr=1e-3), "out")
    rows = [row for row in rows_in("out/log.jsonl") if "iteration" in row or method != "grpo"]
    plain = [{k: x for k, x in row.items() if type(x) in (int, float)} for row in rows]
    assert len(rows) > 1 and [x for x in heard if isinstance(x[0], int)] == [(x["iteration" if method == "grpo" else "step"], x) for x in plain]
    said = heard[1][1]
    assert (said["method"], said["lr"], heard[-1]) == (method, 1e-3, "closed")
    assert said["micro_batch_size"] == dict(spin=32, grpo=8).get(method, 64)   # those of the trainer, as far as they are known
    assert ("n_steps" in said) == (method in ("sft", "q"))

def test_what_a_tracker_wrote_before_a_kill_is_of_the_run_and_what_others_put_there_is_not(heard, inside, monkeypatch):
    stage = tiny("sft", report_to="heard")
    def killed(*args):
        shutil.copytree("r", "as_it_was")
        raise KeyboardInterrupt
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(methods, "fit", killed)
        run(stage, "r")
    assert not foreign_files("as_it_was")                        # as SIGKILL leaves it
    Path("r/tracking/notes.txt").write_text("mine")
    run(stage, "r")
    assert [p.name for p in foreign_files("r")] == ["notes.txt"]
    files = json.loads(Path("r/run.json").read_text())["files"]
    assert {"tracking/events0", "tracking/events1"} <= set(files) and len(files) == len(set(files))
    with pytest.raises(ValueError, match="holds tracking/notes.txt, which is no file of this run"): run(stage, "r", overwrite=True)

@pytest.mark.parametrize("number", [0, 1])
def test_a_process_that_dies_waits_for_no_other_on_its_way_out(number, heard, inside, monkeypatch):
    "Another one may wait for it elsewhere: an exchange here would never end."
    def dies(*args):
        for name in ("in_first_process", "process_index"): monkeypatch.setattr(pipeline, name, dict(
            in_first_process=lambda fn: pytest.fail("an exchange"), process_index=lambda: number)[name])
        Path("r/tracking/events").write_text("x")
        raise ZeroDivisionError
    monkeypatch.setattr(methods, "fit", dies)
    with pytest.raises(ZeroDivisionError): run(tiny("sft", report_to="heard"), "r")
    assert len(foreign_files("r")) == number                     # the first process has listed it

def test_tensorboard_shows_the_log_and_its_files_are_of_the_run(inside):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    run(tiny("reward", report_to="tensorboard"), "r")
    events = EventAccumulator("r/tracking/rlhf-nb").Reload()
    want = [(row["step"], row["loss"]) for row in rows_in("r/log.jsonl") if "loss" in row]
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(s, pytest.approx(x)) for s, x in want] and want
    assert not foreign_files("r")
    run(tiny("reward", report_to="tensorboard"), "r", overwrite=True)
    assert not foreign_files("r") and list((inside/"r/tracking").rglob("events*"))
