"Rows of runs arrive in trackers: accelerate's own where installed, and one made here."
import json
from pathlib import Path
import pytest
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker
from rlhf_nb import trackers
from rlhf_nb.learning import Log
from rlhf_nb.recipes import train
from rlhf_nb.rl_recipes import train_rl
from rlhf_nb.runs import foreign_files
from rlhf_nb.trackers import check_trackers, open_trackers
from test_recipes import SHORT, RunConfig, data            # a fixture among them
from test_rl_recipes import home, small                    # too

pytestmark = pytest.mark.usefixtures("one_thread")

@pytest.fixture
def heard(monkeypatch):
    "What a tracker named `heard` was told, in order."
    told = []
    class Heard(GeneralTracker):
        name, requires_logging_directory = "heard", True
        def __init__(self, run, place): super().__init__(); told.append(("open", run, place))
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
    assert len((tmp_path/"log.jsonl").read_text().splitlines()) == 2

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

def test_a_run_reports_every_row(heard, data, tmp_path):
    train(RunConfig("sft", str(data), str(tmp_path/"r"), report_to="heard", **SHORT))
    rows = [json.loads(x) for x in (tmp_path/"r/log.jsonl").read_text().splitlines()]
    assert [x for x in heard if isinstance(x[0], int)] == [(r["step"], r) for r in rows]
    assert heard[1][1]["task"] == "sft" and heard[-1] == "closed"

def test_an_rl_run_reports_its_rollouts(heard, home, tmp_path, monkeypatch):
    monkeypatch.chdir(home)
    train_rl(small(tmp_path, "grpo", n_iterations=2, report_to="heard"))
    assert [x[0] for x in heard if isinstance(x[0], int)] == [1, 2] and {"reward", "kl"} <= heard[2][1].keys()

def test_tensorboard_shows_the_log(data, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    config = RunConfig("reward", str(data), str(tmp_path/"r"), report_to="tensorboard", **SHORT)
    train(config)
    rows = [json.loads(x) for x in (tmp_path/"r/log.jsonl").read_text().splitlines()]
    events = EventAccumulator(str(tmp_path/"r/tracking/rlhf-nb")).Reload()
    want = [(r["step"], r["loss"]) for r in rows if "loss" in r]
    got = [(e.step, e.value) for e in events.Scalars("loss")]
    assert [s for s, _ in got] == [s for s, _ in want] and [v for _, v in got] == pytest.approx([v for _, v in want])
    assert not foreign_files(tmp_path/"r")
    train(config, overwrite=True)                              # what the tracker wrote is of the run
    assert not foreign_files(tmp_path/"r") and list(Path(tmp_path/"r/tracking").rglob("events*"))
