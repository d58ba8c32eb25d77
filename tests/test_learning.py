"learning: what its chapter does not show: real kills, odd shapes, bf16, property tests."
import ast, json, math, os, random, re, shutil, time, zlib, pytest, torch
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from torch import nn
from rlhf_nb.base.checkpoints import Log, list_checkpoints, restore_checkpoint, save_checkpoint
from rlhf_nb.base.settings import data_fingerprint, describe_run, require_same_run
from rlhf_nb.base.folder import read_marker, update_marker
from rlhf_nb.base.learning import (
    EvalConfig, TrainConfig, accumulate_gradients, batch_indices, fit, lr_at, make_trainer, progress_bar, train_step)
from rlhf_nb.base.batches import PreferencePairs, batch_of
from rlhf_nb.tokens import make_seqs, masked_sum, token_logprobs
from disks import disk_of, dies_at

def rows(n, seed=0, longest=9):
    rng = random.Random(seed)
    words = lambda k: [rng.randrange(1, 11) for _ in range(k)]
    return make_seqs([words(rng.randint(1, 4)) for _ in range(n)],
                     [words(rng.randint(0, longest)) for _ in range(n)], pad=0)

class Small(nn.Module):
    def __init__(self, dropout=0., seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.inner, self.outer = nn.Embedding(11, 8), nn.Linear(8, 11)
        self.drop = nn.Dropout(dropout)
    def forward(self, ids): return self.outer(self.drop(self.inner(ids)))

def loss_fn(model, x):
    logp = token_logprobs(model(x.ids), x.ids)
    return -masked_sum(logp, x.response_mask).sum(), x.response_mask.sum()

def seeded(seed=0): return torch.Generator().manual_seed(seed)
def flat(model): return nn.utils.parameters_to_vector(model.parameters()).detach().clone()
def plain(trainer): return [{k: v for k, v in row.items() if k != "seconds"} for row in trainer.log.rows]
def grads(model): return torch.cat([p.grad.flatten() for p in model.parameters()])

# ---------------------------------------------------------------- one step
@pytest.mark.parametrize("micro", [1, 2, 5, 7, 12, 13, 100])
def test_gradient_is_that_of_the_plain_mean_under_any_split(micro):
    x, model = rows(13), Small()
    loss, n = loss_fn(model, x)
    (loss / n).backward()
    want = grads(model)
    model.zero_grad()
    got, weight, _ = accumulate_gradients(make_trainer(model, TrainConfig(micro_batch_size=micro)), x, loss_fn)
    assert got == pytest.approx((loss / n).item(), rel=1e-5) and weight == n
    torch.testing.assert_close(grads(model), want, atol=1e-7, rtol=1e-5)

def test_a_loss_without_gradient_in_an_empty_part_is_no_error():
    def constant_when_empty(model, x):
        if not x.response_mask.any(): return torch.zeros(()), 0
        return loss_fn(model, x)
    x = make_seqs([[1, 2], [3]], [[5, 6], []], pad=0)
    row = train_step(make_trainer(Small(), TrainConfig(micro_batch_size=1)), x, constant_when_empty)
    assert row["weight"] == 2

def test_update_is_adamw_with_our_betas_clipping_and_schedule():
    config = TrainConfig(lr=.01, n_steps=7, warmup_steps=3, max_grad_norm=.05, weight_decay=.1)
    trainer, twin, x = make_trainer(Small(), config), Small(), rows(6)
    optimizer = torch.optim.AdamW(twin.parameters(), lr=1., betas=(.9, .98), weight_decay=.1)
    for step in range(7):
        row = train_step(trainer, x, loss_fn)
        optimizer.zero_grad()
        loss, n = loss_fn(twin, x)
        (loss / n).backward()
        norm = nn.utils.clip_grad_norm_(twin.parameters(), .05)
        optimizer.param_groups[0]["lr"] = lr_at(step, config)
        optimizer.step()
        assert row["step"] == step + 1 and row["lr"] == lr_at(step, config)
        assert row["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    assert row["grad_norm"] > .05                # or clipping was not tested
    torch.testing.assert_close(flat(trainer.model), flat(twin), atol=1e-6, rtol=1e-5)

def test_metric_sums_are_logged_as_means_over_the_weight():
    def with_metrics(model, x):
        loss, n = loss_fn(model, x)
        return loss, n, {"ones": n.float(), "long": (x.response_mask.sum(1) > 4).sum()}
    x = rows(13)
    row = train_step(make_trainer(Small(), TrainConfig(micro_batch_size=4)), x, with_metrics)
    n = x.response_mask.sum(1)
    assert row["ones"] == 1 and row["long"] == pytest.approx(((n > 4).sum() / n.sum()).item())

def test_rows_of_a_part_come_without_shared_pads():
    seen, x = [], make_seqs([[1], [1], [1]], [[2], [2], [2] * 8], pad=0)
    def widths(model, part):
        seen.append(part.ids.shape[1])
        return loss_fn(model, part)
    train_step(make_trainer(Small(), TrainConfig(micro_batch_size=2)), x, widths)
    assert seen == [2, 9]

@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("micro", [100, 3])
def test_a_loss_that_is_no_number_leaves_everything_as_it_was(bad, micro):
    trainer, x = make_trainer(Small(), TrainConfig(micro_batch_size=micro)), rows(7)
    for _ in range(3): train_step(trainer, x, loss_fn)
    weights, state = flat(trainer.model), str(trainer.optimizer.state_dict()["state"])
    def poisoned(model, part): return loss_fn(model, part)[0] * bad, len(part)
    with pytest.raises(ValueError, match="step 4 was not taken.*after step 3"):
        train_step(trainer, x, poisoned)
    assert torch.equal(flat(trainer.model), weights) and trainer.step == len(trainer.log) == 3
    assert str(trainer.optimizer.state_dict()["state"]) == state
    assert all(p.grad is None for p in trainer.model.parameters())
    straight = make_trainer(Small(), TrainConfig(micro_batch_size=micro))
    for _ in range(4): train_step(straight, x, loss_fn)
    train_step(trainer, x, loss_fn)                          # and it can go on
    assert torch.equal(flat(trainer.model), flat(straight.model))

def test_a_gradient_that_is_no_number_is_refused_under_a_finite_loss():
    def bent(model, x):                                   # sqrt(0): value 0, slope inf * 0
        loss, n = loss_fn(model, x)
        return loss + (0 * model.outer.weight).abs().sum().sqrt(), n
    trainer = make_trainer(Small(), TrainConfig())
    with pytest.raises(ValueError, match="gradient norm nan"): train_step(trainer, rows(4), bent)
    assert all(p.isfinite().all() for p in trainer.model.parameters())

# ---------------------------------------------------------------- precision, device, start
def test_bf16_keeps_float32_weights_computes_in_bf16_and_learns_the_same():
    seen = []
    def watched(model, x):
        seen.append(model(x.ids).dtype)
        return loss_fn(model, x)
    x = rows(40)
    full = make_trainer(Small(), TrainConfig(lr=.05, micro_batch_size=40))
    half = make_trainer(Small(), TrainConfig(lr=.05, micro_batch_size=40, mixed_precision="bf16"))
    for _ in range(20): a, b = train_step(full, x, watched), train_step(half, x, watched)     # taking turns
    assert seen[-2:] == [torch.float32, torch.bfloat16]
    assert {p.dtype for p in half.model.parameters()} == {torch.float32}
    first = full.log.rows[0]["loss"]
    assert a["loss"] == pytest.approx(b["loss"], rel=.02) and a["loss"] < first - .25

def test_weights_in_double_precision_are_kept():
    trainer = make_trainer(Small().double(), TrainConfig())
    assert next(trainer.model.parameters()).dtype == torch.float64
    train_step(trainer, rows(3), loss_fn)

def test_frozen_parts_stay_frozen():
    model = Small()
    model.inner.requires_grad_(False)
    before, trainer = model.inner.weight.clone(), make_trainer(model, TrainConfig(weight_decay=.1))
    train_step(trainer, rows(4), loss_fn)
    assert torch.equal(model.inner.weight, before) and model.inner.weight.grad is None
    assert len(trainer.optimizer.param_groups[0]["params"]) == 2

def test_starting_does_not_touch_the_global_generator():
    state = torch.get_rng_state()
    train_step(make_trainer(Small(), TrainConfig()), rows(3), loss_fn)
    assert torch.equal(torch.get_rng_state(), state)

# ---------------------------------------------------------------- config and schedule
@pytest.mark.parametrize("field, value", [
    ("lr", 0), ("n_steps", 2.5), ("n_steps", 0), ("warmup_steps", -1), ("weight_decay", -.1), ("batch_size", 0), ("micro_batch_size", 0),
    ("max_grad_norm", float("nan")), ("max_grad_norm", 0), ("final_lr_frac", 1.1), ("mixed_precision", "fp16")])
def test_train_config_refuses(field, value):
    with pytest.raises((TypeError, ValueError), match=rf"TrainConfig\.{field} must be"): TrainConfig(**{field: value})

@pytest.mark.parametrize("n_steps", [1, 2, 3, 10, 100])
@pytest.mark.parametrize("warmup", [0, 1, 5, 1000])
def test_schedule_stays_between_its_end_and_lr_and_ends_there(n_steps, warmup):
    config = TrainConfig(lr=2., n_steps=n_steps, warmup_steps=warmup, final_lr_frac=.1)
    rates = [lr_at(s, config) for s in range(n_steps)]
    assert all(0 < r <= 2 for r in rates) and max(rates) == 2
    top = rates.index(2.)
    assert rates[:top] == sorted(rates[:top]) and rates[top:] == sorted(rates[top:])[::-1]
    if n_steps > 2: assert rates[-1] == lr_at(10**6, config) == pytest.approx(.2)

def test_batches_are_a_fair_draw_of_lengths():
    lengths = torch.arange(4096)
    order = batch_indices(lengths, 64, seeded())
    means = torch.stack([lengths[next(order)].double().mean() for _ in range(64)])
    assert means.std() < 3 * 4096 / 12**.5 / 8    # buckets over the data: about 1180

# ---------------------------------------------------------------- early stopping
def test_a_stopped_run_ends_with_its_best_weights_and_says_why():
    seen, scores = [], iter([1., 3., 3., float("nan"), 9.])      # as good as the best is no better
    def measure(model):
        assert not model.training and not torch.is_grad_enabled()
        seen.append(flat(model))
        return {"score": next(scores)}
    trainer = make_trainer(Small(), TrainConfig(n_steps=99))
    fit(trainer, rows(20), loss_fn, seeded(), EvalConfig(measure, "score", "max", 2), eval_every=3)
    assert trainer.step == 9 and torch.equal(flat(trainer.model), seen[1])
    assert trainer.model.training
    assert "score did not improve on 3 in 2 evaluations" in trainer.stop_reason and "step 3" in trainer.stop_reason
    steps = trainer.step
    assert len(fit(trainer, rows(20), loss_fn, seeded())) and trainer.step == steps   # it is over

def test_a_run_that_was_not_stopped_also_keeps_its_best():
    scores = iter([3., 1., 2.])
    trainer = make_trainer(Small(), TrainConfig(n_steps=4))
    fit(trainer, rows(20), loss_fn, seeded(), EvalConfig(lambda m: {"x": next(scores)}, "x"), eval_every=2)
    assert trainer.step == 4 and trainer.stop_reason == "took all 4 steps; the weights of step 2 are kept"

def test_evaluating_without_monitor_never_stops():
    trainer = make_trainer(Small(), TrainConfig(n_steps=6))
    fit(trainer, rows(20), loss_fn, seeded(), EvalConfig(lambda m: {"x": 1.}), eval_every=1)
    assert trainer.step == 6 and sum("x" in row for row in trainer.log.rows) == 7

# ---------------------------------------------------------------- checkpoints
CONFIG = TrainConfig(lr=.02, n_steps=24, batch_size=8, micro_batch_size=5, warmup_steps=4)
def eval_loss(model): return {"eval_loss": loss_fn(model, rows(9, 2))[0].item()}

def run(folder, upto=10**9, dropout=.2, log=None, config=CONFIG):
    "A run that is interrupted before step `upto`; dropout uses torch's own generator."
    torch.manual_seed(5)
    trainer, last = make_trainer(Small(dropout), config, log), [upto]
    def stop_before(model, x):
        if trainer.step == last[0]: raise KeyboardInterrupt
        return loss_fn(model, x)
    generator = seeded(1)
    try: fit(trainer, rows(50), stop_before, generator, EvalConfig(eval_loss, "eval_loss", patience=9),
             folder, eval_every=4)
    except KeyboardInterrupt: pass
    return trainer, generator

@pytest.fixture(scope="module")
def straight(tmp_path_factory): # a run that nothing interrupted
    return run(tmp_path_factory.mktemp("straight"))[0]

def same(a, b): return torch.equal(flat(a.model), flat(b.model)) and plain(a) == plain(b)

@pytest.mark.parametrize("upto", [1, 4, 5, 11, 23])
def test_resumed_equals_uninterrupted_bit_for_bit(tmp_path, straight, upto):
    run(tmp_path/"b", upto, log=tmp_path/"b.jsonl")
    again, generator = run(tmp_path/"b", log=tmp_path/"b.jsonl")
    assert same(again, straight) and again.stop_reason == straight.stop_reason
    lines = [json.loads(line) for line in open(tmp_path/"b.jsonl")]
    assert lines == again.log.rows                       # the file too: no step twice
    a, b = (l.optimizer.state_dict()["state"] for l in (again, straight))
    assert all(torch.equal(a[i][k], b[i][k]) for i in b for k in b[i])

def test_a_finished_run_is_not_run_again(tmp_path):
    trainer, _ = run(tmp_path/"a")
    again, _ = run(tmp_path/"a", upto=0)                 # a single step would interrupt it
    assert again.stop_reason == trainer.stop_reason and torch.equal(flat(again.model), flat(trainer.model))

def test_checkpoints_are_counted_not_sorted_as_text(tmp_path):
    for name in ("000009-step-900", "000010-step-1000", "000002-step-99"): (tmp_path/name).mkdir()
    assert list_checkpoints(tmp_path)[-1].name == "000010-step-1000"

def test_another_model_is_refused_and_nothing_changes(tmp_path):
    run(tmp_path/"a", upto=6)
    wide = nn.ModuleDict(dict(inner=nn.Embedding(11, 9), outer=nn.Linear(9, 11)))
    for model, message in ((nn.Linear(2, 2), "another run: model was '3 items', got '2 items'"),
                           (wide, r"another run: model.inner.weight was '\[11, 8\]', got '\[11, 9\]'")):
        trainer, before = make_trainer(model, CONFIG), flat(model)
        with pytest.raises(ValueError, match=message): restore_checkpoint(tmp_path/"a", trainer, seeded(1))
        assert torch.equal(flat(model), before) and trainer.step == 0
    with pytest.raises(ValueError, match="no checkpoint"): restore_checkpoint(tmp_path/"none", trainer, seeded())

# ---------------------------------------------------------------- what makes two runs the same
@dataclass(frozen=True)
class Method:
    beta:float=.1
    penalty:object=None
    prompts:list=field(default_factory=list)

def with_default(x, scale=2.): return scale * x
def frozen(seed=0): return Small(seed=seed).requires_grad_(False)

DIFFERENT = {                              # what -> (was, got, the name that is told)
    "a field": (Method(.1), Method(.2), "x.beta was 0.1, got 0.2"),
    "a field that is a function": (Method(penalty=loss_fn), Method(penalty=rows), "x.penalty was '.*loss_fn', got '.*rows'"),
    "a field that was a function": (Method(penalty=loss_fn), Method(penalty=Method()), "x.penalty was '.*loss_fn', got 'Method'"),
    "a list in a config": (Method(prompts=[[1, 2], [3]]), Method(prompts=[[1, 2], [4]]), "x.prompts.hash was"),
    "a method": (Method(), TrainConfig(), "x was 'Method', got 'TrainConfig'"),
    "a partial's keyword": (partial(with_default, scale=3.), partial(with_default, scale=4.), "x.scale was 3.0, got 4.0"),
    "a partial's argument": (partial(with_default, 3.), partial(with_default, 4.), "x.0 was 3.0, got 4.0"),
    "a model in a partial": (partial(loss_fn, frozen(0)), partial(loss_fn, frozen(1)), "x.0 was 'Small .{16}', got 'Small .{16}'"),
    "data": (rows(4), rows(5), "x.rows was 4, got 5"),
    "a token": (rows(4), replace(rows(4), ids=rows(4).ids + 1), "x.hash was"),
    "a mask": (rows(4), replace(rows(4), response_mask=rows(4).attention_mask), "x.hash was"),
    "one side of a pair": (PreferencePairs(rows(4), rows(4, 1)), PreferencePairs(rows(4), rows(4, 2)), "x.hash was"),
    "floats": (torch.ones(3), 1.01 * torch.ones(3), r"x.mean \|x\| was 1.0, got 1.0"),
    "a number": (1, 2, "x was 1, got 2"), "nothing": (None, .1, "x was None, got 0.1"),
    "a tuple": ((1, 2), (1, 3), "x.hash was"), "a dict": (dict(a=dict(b=1)), dict(a=dict(b=2)), "x.a.b was 1, got 2")}

@pytest.mark.parametrize("what", DIFFERENT)
def test_a_difference_is_refused_by_name(what):
    was, now, message = DIFFERENT[what]
    was, now = (json.loads(json.dumps(describe_run({"x": x}))) for x in (was, now))      # it is JSON
    with pytest.raises(ValueError, match=f"^run belongs to another run: {message}.*; go on with the same, or begin a new run"):
        require_same_run("run", was, now)
    require_same_run("run", was, was)
    require_same_run("run", was, now, may_change=tuple(was))

def test_what_is_the_same_passes():
    for x in (math.nan, math.inf, print, len, Method, Small(), torch.float32, Path("a"), seeded(), (), [], {}, torch.tensor(3.)):
        was = json.loads(json.dumps(describe_run(dict(x=x))))
        require_same_run("run", was, describe_run(dict(x=x)))
    rounded = torch.full((9,), -3.)
    require_same_run("run", describe_run(dict(x=rounded)), describe_run(dict(x=rounded * 1.0001)))
    require_same_run("run", dict(a=1), dict(b=2))           # what is not told cannot differ

def test_a_fingerprint_sees_every_token_of_large_data_and_is_not_slow():
    x = torch.arange(3 * 2**20).view(-1, 3)
    y, start = x.clone(), time.process_time()
    a, took = data_fingerprint(x), time.process_time() - start
    y[-1, -1] += 1
    assert a["rows"] == 2**20 and a != data_fingerprint(y) and a == data_fingerprint(x.clone())
    assert took < 1                                         # 25 MB

# one change of a run each, and the name that is told; of losses and seeds in test_dpo
def _other(**changes):
    given = dict(config=CONFIG, data=rows(50), monitor="x", patience=9, every=4, run=dict(method=Method(.1)), may_change=()) | changes
    def measure(model): return dict(x=0., y=0.)
    trainer = make_trainer(Small(), given["config"], run=given["run"], may_change=given["may_change"])
    return trainer, lambda folder: fit(trainer, given["data"], loss_fn, seeded(1),
        EvalConfig(measure, given["monitor"], patience=given["patience"]), folder, given["every"])

CHANGES = dict(config=(replace(CONFIG, lr=.03), "train_config.lr was 0.02, got 0.03"), data=(rows(49), "data.rows was 50, got 49"),
               monitor=("y", "eval_config.monitor was 'x', got 'y'"), patience=(8, "eval_config.patience was 9, got 8"),
               every=(5, "eval_every was 4, got 5"), run=(dict(method=Method(.2)), "method.beta was 0.1, got 0.2"))

@pytest.mark.parametrize("what", CHANGES)
def test_fit_refuses_to_resume_another_run(what, tmp_path):
    value, message = CHANGES[what]
    _other()[1](tmp_path)
    before = [path.name for path in list_checkpoints(tmp_path)]
    trainer, go_on = _other(**{what: value})
    with pytest.raises(ValueError, match=f"another run: .*{message}"): go_on(tmp_path)
    assert trainer.step == 0 and [path.name for path in list_checkpoints(tmp_path)] == before
    trainer, go_on = _other(**{what: value}, may_change=(message.split()[0], "data.hash"))
    assert go_on(tmp_path) and trainer.step == 24           # accepted by its name

def test_another_number_of_threads_is_refused_with_the_remedy(tmp_path, monkeypatch):
    trainer = make_trainer(Small(), CONFIG)
    save_checkpoint(tmp_path, trainer, seeded())
    n = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: n + 1)
    with pytest.raises(ValueError, match=rf"num_threads was {n}, got {n + 1}; torch.set_num_threads\({n}\)"):
        restore_checkpoint(tmp_path, make_trainer(Small(), CONFIG), seeded())

def test_a_trainer_that_was_restored_by_hand_goes_on_with_its_own_run_only(tmp_path):
    run(tmp_path/"a", upto=6)
    trainer = make_trainer(Small(.2), CONFIG)
    restore_checkpoint(tmp_path/"a", trainer, seeded(1))
    with pytest.raises(ValueError, match="this trainer belongs to another run: data.rows was 50, got 49"):
        fit(trainer, rows(49), loss_fn, seeded(1))
    with pytest.raises(ValueError, match="loss_fn was"): fit(trainer, rows(50), loss_fn, seeded(1), folder=tmp_path/"a")

# ---------------------------------------------------------------- damaged, full, in the way
DAMAGE = {"cut": lambda raw: raw[:len(raw) // 2], "emptied": lambda raw: b"", "garbage": lambda raw: random.Random(0).randbytes(len(raw)),
          "one bit": lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), "missing": None, "text": lambda raw: b"{}"}

@pytest.mark.parametrize("file", ["model.safetensors", "best.safetensors", "state.pt", "trainer_state.json", "../trainer_log.jsonl"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_of_a_checkpoint_is_named_with_its_remedy(file, damage, tmp_path):
    run(tmp_path/"a", upto=6)
    last = list_checkpoints(tmp_path/"a")[-1]
    raw = (last/file).read_bytes()
    if DAMAGE[damage]: (last/file).write_bytes(DAMAGE[damage](raw))
    else: (last/file).unlink()
    trainer = make_trainer(Small(.2), CONFIG, tmp_path/"log.jsonl")
    before = flat(trainer.model)
    with pytest.raises(ValueError) as e: restore_checkpoint(tmp_path/"a", trainer, seeded(1))
    wrong = "is of another program" if (file, damage) == ("trainer_state.json", "text") else "is damaged or missing ("
    assert f"{Path(file).name} {wrong}" in str(e.value) and "\n" not in str(e.value)
    assert f"put it back from a copy, or delete {tmp_path/'a'} to begin anew" in str(e.value)
    assert torch.equal(flat(trainer.model), before) and not trainer.step and not trainer.log.rows
    (last/file).write_bytes(raw)                             # the remedy
    assert restore_checkpoint(tmp_path/"a", trainer, seeded(1)) == 4

def test_the_checkpoint_before_a_damaged_one_is_named(tmp_path, straight, monkeypatch):
    "Two are there when a kill came between writing one and removing the other."
    monkeypatch.setattr("rlhf_nb.base.checkpoints._remove_checkpoint", lambda path: None)
    run(tmp_path/"a", upto=10)
    first, last = list_checkpoints(tmp_path/"a")
    (last/"state.pt").write_bytes(b"")
    with pytest.raises(ValueError, match=f"delete {last} to go on from 000000-step-4"):
        restore_checkpoint(tmp_path/"a", make_trainer(Small(.2), CONFIG), seeded(1))
    shutil.rmtree(last)
    monkeypatch.undo()
    assert same(run(tmp_path/"a")[0], straight)

@pytest.mark.parametrize("limit", [0, 500, 1500, 5000])
def test_a_full_disk_leaves_the_last_checkpoint_and_the_same_call_goes_on(limit, tmp_path, straight):
    trainer, generator = run(tmp_path/"a", upto=6)
    with disk_of(limit):
        with pytest.raises(OSError, match=f"(may not grow further|no room is left).*{tmp_path/'a'}.*000000-step-4 is whole; make room"):
            save_checkpoint(tmp_path/"a", trainer, generator)
    assert sorted(p.name for p in (tmp_path/"a").iterdir()) == ["000000-step-4", "trainer_log.jsonl"]     # nothing half
    assert same(run(tmp_path/"a")[0], straight)                          # there is room again

def test_a_log_that_cannot_be_written_says_so(tmp_path):
    log = Log(tmp_path/"log.jsonl")
    log.add(step=1, loss=1.)
    with disk_of(len(log.path.read_bytes())), pytest.raises(OSError, match="grow further: .*log.jsonl. The rows before are in it"):
        log.add(step=2, loss=1.)
    log.restore(log.rows)
    assert len(log.path.read_text().splitlines()) == 2

def test_saving_costs_the_same_after_many_rows(tmp_path, monkeypatch):
    "Only new rows are written, and nothing grows with those that were."
    from rlhf_nb.base import checkpoints
    trainer, written, real = make_trainer(Small(), CONFIG), [], checkpoints.append_bytes
    monkeypatch.setattr(checkpoints, "append_bytes", lambda path, at, data: (written.append(len(data)), real(path, at, data)))
    sizes = []
    for i in range(0, 1000, 50):
        for step in range(i, i + 50): trainer.log.add(step=1000 + step, loss=.125)
        last = save_checkpoint(tmp_path, trainer, seeded())
        sizes.append((last/"trainer_state.json").stat().st_size)
    assert len(set(written)) == 1 and max(sizes) - min(sizes) < 20        # two numbers with more digits
    assert (tmp_path/"trainer_log.jsonl").read_text().count("\n") == 1000
    with torch.no_grad(): trainer.model.outer.bias.fill_(7.)
    trainer.num_bad_evals = 2
    save_checkpoint(tmp_path, trainer, seeded())             # the same step once more: the last counts
    twin = make_trainer(Small(), CONFIG)
    restore_checkpoint(tmp_path, twin, seeded())
    assert twin.log.rows == trainer.log.rows and len(list_checkpoints(tmp_path)) == 1
    assert (twin.model.outer.bias == 7).all() and twin.num_bad_evals == 2

def test_after_death_at_any_call_to_the_disk_log_and_weights_are_right(tmp_path):
    short, k, died = replace(CONFIG, n_steps=9), -1, True
    straight = run(tmp_path/"straight", config=short)[0]
    while died:
        k += 1
        place, log = tmp_path/f"at {k}", tmp_path/f"at {k}.jsonl"
        died = dies_at(k, lambda: run(place, upto=8, log=log, config=short))
        again = run(place, log=log, config=short)[0]
        lines, files = [json.loads(line) for line in open(log)], [p.name for p in place.iterdir()]
        assert same(again, straight) and lines == again.log.rows and sum("lr" in row for row in lines) == 9
        assert len(list_checkpoints(place)) == 1 and len(files) == 2, files      # and no rubbish
    assert k > 12

def test_a_checkpoint_removes_only_what_it_wrote(tmp_path):
    mine = {"000009-step-900/notes.txt": "mine", "000008-step-5/trainer_state.json": '{"my": "own"}', "unfinished/novel.txt": "mine",
            "000007-step-1.unfinished/novel.txt": "mine", "1-step-1/x": "x"}
    for name, text in mine.items():
        (tmp_path/name).parent.mkdir()
        (tmp_path/name).write_text(text)
    (tmp_path/"000002-step-3").write_text("a file")
    trainer = make_trainer(Small(), CONFIG)
    with pytest.raises(ValueError, match="neither wrote nor restored.*000009-step-900"): save_checkpoint(tmp_path, trainer, seeded())
    trainer.saved[str(tmp_path.resolve())] = None            # as if it had written one there
    first = save_checkpoint(tmp_path, trainer, seeded())
    (first/"my_notes.txt").write_text("mine")
    last = save_checkpoint(tmp_path, trainer, seeded())
    assert last.name == "000011-step-0" and list_checkpoints(tmp_path)[-1] == last
    for name, text in {**mine, "000002-step-3": "a file", "000010-step-0/my_notes.txt": "mine"}.items():
        assert (tmp_path/name).read_text() == text
    assert [p.name for p in first.iterdir()] == ["my_notes.txt"]

def test_a_text_that_is_called_as_the_log_is_not_written_over(tmp_path):
    (tmp_path/"trainer_log.jsonl").write_text("Dear Anna")
    with pytest.raises(ValueError, match="trainer_log.jsonl is not a log, so it is not overwritten"):
        save_checkpoint(tmp_path, make_trainer(Small(), CONFIG), seeded())
    assert (tmp_path/"trainer_log.jsonl").read_text() == "Dear Anna"

def test_a_folder_that_was_deleted_is_begun_anew(tmp_path):
    trainer, generator = run(tmp_path/"a", upto=6)
    shutil.rmtree(tmp_path/"a")
    save_checkpoint(tmp_path/"a", trainer, generator)
    twin = make_trainer(Small(.2), CONFIG)
    assert restore_checkpoint(tmp_path/"a", twin, generator) == 6 and plain(twin) == plain(trainer)

def test_a_checkpoint_that_brings_code_is_not_run(tmp_path):
    run(tmp_path/"a", upto=6)
    class Evil:
        def __reduce__(self): return os.mkdir, (str(tmp_path/"owned"),)
    last = list_checkpoints(tmp_path/"a")[-1]
    torch.save(dict(optimizer=Evil()), last/"state.pt")
    files = read_marker(last/"trainer_state.json", "")["files"]      # whoever can write one can write both
    update_marker(last/"trainer_state.json", files=files | {"state.pt": zlib.crc32((last/"state.pt").read_bytes())})
    with pytest.raises(ValueError, match="state.pt is damaged or missing .Weights only load failed"):
        restore_checkpoint(tmp_path/"a", make_trainer(Small(.2), CONFIG), seeded(1))
    assert not (tmp_path/"owned").exists()

def test_tied_weights_survive(tmp_path):
    def tied():
        model = Small()
        model.again = nn.Linear(8, 11, bias=False)
        model.again.weight = model.outer.weight
        return model
    trainer, twin = (make_trainer(tied(), TrainConfig()) for _ in range(2))
    train_step(trainer, rows(4), loss_fn)
    save_checkpoint(tmp_path, trainer, seeded())
    restore_checkpoint(tmp_path, twin, seeded())
    assert torch.equal(twin.model.again.weight, trainer.model.outer.weight)
    assert twin.model.again.weight is twin.model.outer.weight

# ---------------------------------------------------------------- log
def test_log_lines_are_json_of_plain_numbers(tmp_path):
    log = Log(tmp_path/"deep"/"log.jsonl")
    log.add(step=1, a=torch.tensor(1.5), b=float("inf"), c="word", d=None, e=True)
    line = (tmp_path/"deep"/"log.jsonl").read_text()
    assert json.loads(line) == dict(step=1, a=1.5, b=None, c="word", d=None, e=True)
    assert log.rows[0]["b"] == float("inf") and type(log.rows[0]["a"]) is float

OTHERS = {"text": "Dear Anna", "pairs": '{"prompt": "Hi.", "chosen": "Hello!"}\n', "list": "[1, 2]", "number": "3", "binary": "\x00\x01",
          "deep": "[" * 10**5, "half": '{"step": 1, "lo'}

@pytest.mark.parametrize("kind", OTHERS)
def test_a_file_that_is_not_a_log_is_not_overwritten(kind, tmp_path):
    path = tmp_path/"data.jsonl"
    path.write_text(OTHERS[kind])
    for call in (lambda: Log(path), lambda: make_trainer(Small(), CONFIG, path), lambda: Log(tmp_path)):
        with pytest.raises(ValueError, match="is not a log, so it is not overwritten: name another file"): call()
    assert path.read_text() == OTHERS[kind]

def test_a_log_of_ours_is_written_anew_from_the_first_row_on(tmp_path):
    path = tmp_path/"deep"/"log.jsonl"
    log = Log(path)
    assert not path.parent.exists()
    log.add(step=1, loss=2.)
    log.add(step=2, loss=1.)
    again = Log(path)
    assert path.read_text().count("\n") == 2                 # nothing is lost before there is something new
    again.add(step=1, loss=3.)
    assert json.loads(path.read_text()) == dict(step=1, loss=3.)
    path.write_text("")
    Log(path).add(step=1)

def test_a_resume_that_is_refused_leaves_the_log(tmp_path):
    run(tmp_path/"a", upto=6, log=tmp_path/"log.jsonl")
    text = (tmp_path/"log.jsonl").read_text()
    with pytest.raises(ValueError, match="another run"):
        restore_checkpoint(tmp_path/"a", make_trainer(Small(.2), replace(CONFIG, lr=.03), tmp_path/"log.jsonl"), seeded(1))
    assert (tmp_path/"log.jsonl").read_text() == text

def test_a_bar_is_drawn_only_where_someone_watches(monkeypatch, capsys):
    for name in ("JPY_SESSION_NAME", "COLAB_RELEASE_TAG", "VSCODE_PID"):
        monkeypatch.delenv(name, raising=False)
    assert progress_bar(9, 2, "training").disable             # stderr is no terminal here
    monkeypatch.setenv("JPY_SESSION_NAME", "chapter.ipynb")
    with progress_bar(9, 2, "training") as bar: assert not bar.disable and (bar.n, bar.total) == (2, 9)
    capsys.readouterr()

def test_the_optimiser_is_whatever_the_config_names():
    "Sign descent and plain descent by hand: p - lr sign(g), p - lr (g + weight_decay p)."
    class Sign(torch.optim.Optimizer):
        def __init__(self, params, lr, weight_decay): super().__init__(params, dict(lr=lr))
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]: p.data -= group["lr"] * p.grad.sign()
    for optimizer, want in ((torch.optim.SGD, [1 - .1 * (.3 + .5), -2 - .1 * (-.4 - 1.)]), (Sign, [.9, -1.9])):
        model = nn.Linear(2, 1, bias=False)
        with torch.no_grad(): model.weight.copy_(torch.tensor([[1., -2.]]))
        config = TrainConfig(lr=.1, warmup_steps=0, weight_decay=.5, optimizer=optimizer)
        def loss(model, x): return (model.weight * torch.tensor([[.3, -.4]])).sum(), 1.
        train_step(make_trainer(model, config), torch.zeros(1, 2), loss)
        torch.testing.assert_close(model.weight[0].detach(), torch.tensor(want))

def test_lion_of_a_package_trains_and_goes_on_after_a_kill(tmp_path):
    "p <- (1 - lr wd) p - lr sign(.9 m + .1 g), m <- .99 m + .01 g, by hand (Chen et al. 2023, alg. 2)."
    Lion = pytest.importorskip("lion_pytorch").Lion
    config = TrainConfig(lr=.1, n_steps=3, warmup_steps=0, final_lr_frac=1., weight_decay=.5, max_grad_norm=math.inf, optimizer=Lion)
    grads = [1., -.05, -.2]                  # .9 m + .1 g: .1, .9 * .01 - .005 = .004, .9 * .0094 - .02 = -.01154
    def begin():
        model = nn.Linear(1, 1, bias=False)
        with torch.no_grad(): model.weight.fill_(2.)
        return make_trainer(model, config)
    def step(trainer):
        train_step(trainer, torch.zeros(1, 1), lambda model, x: (model.weight.sum() * grads[trainer.step], 1.))
        return trainer.model.weight.item()
    want, trainer = [2 * .95 - .1, 1.8 * .95 - .1, 1.61 * .95 + .1], begin()
    assert [step(trainer), step(trainer)] == pytest.approx(want[:2])
    save_checkpoint(tmp_path, trainer, torch.Generator())
    again = begin()
    assert restore_checkpoint(tmp_path, again, torch.Generator()) == 2
    assert step(again) == pytest.approx(want[2]) == step(trainer)

def test_named_weights_have_their_own_peak_rate_and_one_norm():
    model = nn.ModuleDict(dict(a=nn.Linear(1, 1, bias=False), b=nn.Linear(1, 1, bias=False)))
    for p in model.parameters(): nn.init.zeros_(p)
    config = TrainConfig(lr=.1, n_steps=2, warmup_steps=0, final_lr_frac=.5, max_grad_norm=1., optimizer=torch.optim.SGD)
    trainer = make_trainer(model, config, lrs={"b.": .3})
    def loss(model, x): return 3 * model["a"].weight.sum() + 4 * model["b"].weight.sum(), 1.
    rows = [train_step(trainer, torch.zeros(1, 2), loss) for _ in range(2)]
    assert [row["grad_norm"] for row in rows] == [5., 5.] and [row["lr"] for row in rows] == [.1, .05]
    torch.testing.assert_close(torch.cat([p.detach().flatten() for p in model.parameters()]), -torch.tensor([.15 * .6, .45 * .8]))

# ---- a batch of one's own, and the page that writes the loop out
def test_columns_of_ones_own_are_cut_with_their_rows_under_any_split_and_in_fit():
    x = rows(7)
    weight = torch.tensor([3., -1., 2., 0., 5., -4., .5])
    batch = batch_of(seqs=x, weight=weight, number=torch.arange(14.).view(7, 2))
    def summed(model, seqs): return -masked_sum(token_logprobs(model(seqs.ids), seqs.ids), seqs.response_mask)  # (b)
    def own(model, part):
        assert torch.equal(part.number[:, 0] + 1, part.number[:, 1]) and torch.equal(weight[(part.number[:, 0] / 2).long()], part.weight)
        return (part.weight * summed(model, part.seqs)).sum(), len(part)
    model = Small()
    want = nn.utils.parameters_to_vector(torch.autograd.grad(sum(w * summed(model, x[[i]]).sum() for i, w in enumerate(weight)) / 7, list(model.parameters())))
    for micro in (7, 3, 1):
        model = Small()
        train_step(make_trainer(model, TrainConfig(micro_batch_size=micro, max_grad_norm=1e9)), batch, own)
        torch.testing.assert_close(grads(model), want, atol=1e-5, rtol=1e-4)
    assert len(fit(make_trainer(model, TrainConfig(n_steps=2, batch_size=4)), batch, own, seeded())) == 2
    assert batch.lengths().tolist() == x.lengths().tolist()
    for wrong in (dict(seqs=x, weight=weight[:6]), {}):
        with pytest.raises(ValueError, match="one entry per row"): batch_of(**wrong)

def test_the_page_of_a_loop_of_ones_own_names_the_functions_that_it_uses():
    page = Path(__file__).parents[1]/"nbs/engine/trainers/own_loop.ipynb"
    cells = {c["id"]: "".join(c["source"]) for c in json.loads(page.read_text("utf-8"))["cells"]}
    names = re.findall(r"^\| (`.*?) \|", cells["own_loop_lead"], re.M)              # the first column
    named = {name for some in names for name in re.findall(r"`(\w+)`", some)}
    imported = {x.name for node in ast.parse(cells["own_loop"]).body if isinstance(node, ast.ImportFrom) for x in node.names}
    assert imported - {"TrainConfig", "SamplingParams"} == named and len(named) == 11
    assert sum(bool(line.strip()) for line in cells["own_loop"].splitlines()) <= 30
