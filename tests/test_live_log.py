"A log that another process writes: read as it grows, drawn, and the run behind it obeys."
import json, threading, pytest
from rlhf_nb.show.live_log import (LogCallback, LogFollower, RunControl, control_path, default_metrics,
    read_new_rows, send_orders, show_log)
from test_dashboard import until
from test_pages import BAD, check_page

def append(path, *rows):
    with open(path, "a", encoding="utf-8") as file: file.write("".join(json.dumps(row) + "\n" for row in rows))

def test_a_log_is_read_in_whole_lines_and_a_shorter_one_is_new(tmp_path):
    path = tmp_path/"log.jsonl"
    assert read_new_rows(path) == ([], 0, False)
    path.write_bytes(b'{"step": 0}\nnot json\n[1]\n{"step": 1, "x": "\xc3')       # cut inside a letter
    rows, at, anew = read_new_rows(path)
    assert rows[0] == {"step": 0} and not anew
    assert [str(x)[:23] for x in rows[1:]] == ["line 2: broken JSON: Ex", "line 3: not an object: "]
    with open(path, "ab") as file: file.write(b'\xa4"}\n')
    rows, at, anew = read_new_rows(path, at)
    assert rows == [{"step": 1, "x": "ä"}] and read_new_rows(path, at) == ([], at, False)
    path.write_text('{"step": 9}\n')
    assert read_new_rows(path, at) == ([{"step": 9}], 12, True)
    path.unlink()
    assert read_new_rows(path, 12) == ([], 0, True)

def test_one_column_of_each_kind_comes_before_a_second():
    trl = {k: 1. for k in ("num_tokens", "completions/mean_length", "reward", "reward_std", "kl", "loss", "learning_rate",
                           "grad_norm", "entropy", "clip_ratio/high_mean", "epoch", "step")} | {"text": "x", "samples": ["a"]}
    got = default_metrics([trl])
    assert got[:4] == ["loss", "reward", "kl", "completions/mean_length"] and len(got) == 8
    assert not {"epoch", "step", "text", "samples"} & set(got)
    assert default_metrics([{"loss": 1.}, {"eval_loss": 2.}]) == ["loss", "eval_loss"] and default_metrics([]) == []

def test_a_board_follows_a_log(tmp_path):
    path = tmp_path/"log.jsonl"
    x = LogFollower(path)
    assert x.update() == 0 and "no row yet" in x.dashboard.note
    append(path, {"step": 5, "loss": 2.}, {"step": 10, "loss": 1.5, "reward": None, "samples": [BAD]})
    assert x.update() == 2 and x.dashboard.metrics == ["loss"] and x.dashboard.state == "watching"
    append(path, {"step": 15, "loss": 1., "reward": .5})
    assert x.update() == 1 and x.dashboard.metrics == ["loss", "reward"]
    with open(path, "a") as file: file.write("{half\n")                     # of a run that was killed
    x.update()
    assert "1 left out, the last: line 4: broken JSON" in x.dashboard.note
    assert x.dashboard.traces["loss"] == ([5, 10, 15], [2., 1.5, 1.])      # a new column loses no old point
    check_page(x.dashboard.page.value)
    append(path, {"step": 15, "event": "finished"})
    x.update()
    assert x.dashboard.state == "finished"
    path.write_text('{"step": 0, "loss": 9.0}\n')                          # the next run writes it anew
    x.update()
    assert x.dashboard.traces["loss"] == ([0], [9.]) and x.dashboard.state == "watching"

def test_orders_are_obeyed_once_and_not_those_of_the_run_before(tmp_path):
    path, saved = tmp_path/"log.jsonl", []
    for wrong in (dict(wings=2), dict(save=-1), dict(stop="yes"), dict(save=True)):
        with pytest.raises(ValueError, match="orders are paused and stop, True or False, and save"): send_orders(path, **wrong)
    send_orders(path, paused=True, stop=True, save=4)
    control = RunControl(path)
    assert not control_path(path).exists() and not control.obey(lambda: saved.append(1))
    send_orders(path, paused=False, stop=False, save=2)
    control.obey(lambda: saved.append(1)); control.obey(lambda: saved.append(1))
    assert saved == [1]
    control_path(path).write_text("{half")                                  # never stops a run, nor is it lost
    assert not control.obey(saved.clear)
    for writes in (lambda: send_orders(path, paused=False, stop=True, save=2), lambda: RunControl(path)):
        with pytest.raises(ValueError, match="holds no orders.*move it away"): writes()
    assert control_path(path).read_text() == "{half"
    control_path(path).write_text('{"mine": 1}')                            # JSON, and somebody else's
    with pytest.raises(ValueError, match="holds no orders"): RunControl(path)
    control_path(path).unlink()
    send_orders(path, paused=True, stop=False, save=2)
    done = []
    thread = threading.Thread(target=lambda: done.append(control.obey(saved.clear, .01)))
    thread.start()
    send_orders(path, paused=True, stop=False, save=3)                      # saved while it waits
    until(lambda: not saved)
    assert not done
    send_orders(path, paused=False, stop=True, save=3)
    thread.join(60)
    assert done == [True]

def test_the_board_is_shown_again_and_its_buttons_reach_the_run(tmp_path):
    path = tmp_path/"log.jsonl"
    append(path, {"step": 0, "loss": 1.})
    first, again = show_log(path, seconds=.05), show_log(path)              # after a reload: the same board
    assert first is not again and first.children[0] is again.children[0] and "watching, 1 iterations" in first.still()
    control = RunControl(path)
    pause, stop, save = again.children[1].children
    save.click(); pause.click()
    until(lambda: control.orders() == {"paused": True, "stop": False, "save": 1})
    append(path, {"step": 1, "loss": .5})
    until(lambda: "paused, 2 iterations" in first.still())
    pause.click(); stop.click()
    until(lambda: control.orders()["stop"])
    assert threading.active_count() < 60

def test_transformers_trainer_writes_stops_and_saves(tmp_path):
    from transformers import Trainer, TrainingArguments
    from rlhf_nb.base.models import load_bundled
    model, tokenizer = load_bundled("sft")
    data = [dict(input_ids=[5, 6, 7, 8], labels=[5, 6, 7, 8])] * 40
    path = tmp_path/"log.jsonl"
    class Press(LogCallback): # what the notebook would press after two rows
        def on_log(self, args, state, control, logs=None, **more):
            super().on_log(args, state, control, logs, **more)
            if len(self.log) == 2: send_orders(path, paused=False, stop=True, save=1)
    args = TrainingArguments(str(tmp_path/"out"), per_device_train_batch_size=2, max_steps=15, logging_steps=2,
                             save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True)
    trainer = Trainer(model.requires_grad_(), args, train_dataset=data, callbacks=[Press(path)])
    trainer.train()
    rows, *_ = read_new_rows(path)
    steps = [row["step"] for row in rows if "loss" in row]
    assert steps == [2, 4] and rows[-1]["event"] == "finished" and trainer.state.global_step < 15
    assert list((tmp_path/"out").glob("checkpoint-*"))                      # Save now
    follower = LogFollower(path)
    follower.update()
    assert follower.dashboard.state == "finished" and follower.dashboard.metrics[0] == "loss"
