"A step that is asked to be the last: finished and saved, or left at once the second time."
import os, signal, subprocess, sys, threading
import pytest, torch
from rlhf_nb.interrupts import stop_after_step, stop_if_asked
from rlhf_nb.learning import TrainConfig, fit, list_checkpoints, make_trainer
from rlhf_nb.memory import PreferencePairs
from rlhf_nb.models import load_bundled, weight_hash
from rlhf_nb.sft import sft_loss
from rlhf_nb.tokens import make_seqs

def test_the_first_waits_and_the_second_does_not(capfd):
    before, done = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt):
        with stop_after_step():
            signal.raise_signal(signal.SIGINT)
            done.append("the rest of the step")
            stop_if_asked(lambda: done.append("saved"))
    assert done == ["the rest of the step", "saved"] and "again: stop at once" in capfd.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        with stop_after_step():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            done.append("never")
    assert "never" not in done and signal.getsignal(signal.SIGINT) is before
    stop_if_asked(lambda: done.append("never"))                           # nothing is left over
    with stop_after_step(): stop_if_asked(lambda: done.append("never"))
    assert "never" not in done

def test_other_handlers_are_left_alone_and_nesting_and_threads_do_no_harm():
    old = signal.getsignal(signal.SIGTERM)
    with stop_after_step():
        if old == signal.SIG_DFL: assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        inner = signal.getsignal(signal.SIGINT)
        with stop_after_step(): assert signal.getsignal(signal.SIGINT) is inner
        assert signal.getsignal(signal.SIGINT) is inner
    errors = []
    def run():
        try:
            with stop_after_step(): stop_if_asked()
        except Exception as e: errors.append(e)
    thread = threading.Thread(target=run); thread.start(); thread.join()
    assert not errors

def test_fit_saves_the_step_and_ends_as_if_never_stopped(tmp_path):
    rows = make_seqs([[5, 6, 7]] * 8, [[8, 9, i + 10, 2] for i in range(8)], 0)
    config = TrainConfig(lr=1e-3, n_steps=6, batch_size=4)
    def run(folder, stop_at=0):
        model, _ = load_bundled("base")
        trainer = make_trainer(model.requires_grad_(), config)
        def loss_fn(model, part):
            if stop_at and trainer.step == stop_at - 1: signal.raise_signal(signal.SIGINT)
            return sft_loss(model, part)
        loss_fn.__qualname__, loss_fn.__module__ = "sft_loss", "rlhf_nb.sft"
        loss_fn = sft_loss if not stop_at else loss_fn
        with torch.random.fork_rng():
            torch.manual_seed(0)
            fit(trainer, rows, loss_fn, torch.Generator().manual_seed(0), folder=folder, eval_every=50)
        return weight_hash(trainer.model)
    want = run(tmp_path/"whole")
    with pytest.raises(KeyboardInterrupt):
        with stop_after_step(): run(tmp_path/"cut", stop_at=3)
    assert list_checkpoints(tmp_path/"cut")[-1].name.endswith("step-3")
    state = tmp_path/"cut"
    import json
    path = list_checkpoints(state)[-1]/"trainer_state.json"
    saved = json.loads(path.read_text())
    saved["run"] = {k: v for k, v in saved["run"].items() if not k.startswith("loss_fn")}    # the spy was another function
    path.write_text(json.dumps(saved))
    assert run(tmp_path/"cut") == want
