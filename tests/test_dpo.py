"DPO beyond its chapter: finite differences, invariance, one forward, LoRA, TRL, a store, resume, the saved figures."
import json, math, shutil, pytest, torch
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from torch.testing import assert_close
from rlhf_nb import dpo
from rlhf_nb.dpo import (PairsWithRef, pair_logprobs, make_pair_loss, sequence_logprobs, dpo_loss,
    precompute_ref_logprobs)
from rlhf_nb.trainers.dpo_tools import (cdpo_loss, hinge_loss, ipo_loss, kto_baseline, kto_loss, log_odds,
    orpo_loss, make_reference_free_loss, robust_dpo_loss, simpo_loss, train_dpo)
from rlhf_nb.base.learning import TrainConfig, accumulate_gradients, evaluate_pairs, make_trainer
from rlhf_nb.base.models import add_lora, frozen_copy, load_bundled, tiny_lm
from rlhf_nb.base.settings import weight_hash
from rlhf_nb.best_policy import optimal_policy
from rlhf_nb.worlds.oracle import (all_logprobs, sample_rows, expectation, bigram_lm, micro_world)
from rlhf_nb.base.batches import PreferencePairs
from rlhf_nb.tokens import make_seqs

RESULTS = Path(__file__).resolve().parents[1]/"nbs/results"
PAIRED = [dpo_loss, cdpo_loss, robust_dpo_loss, hinge_loss, ipo_loss]
FAMILY = [*PAIRED, simpo_loss, orpo_loss, kto_loss]

@pytest.fixture(scope="module")
def tokenizer(): return load_bundled("sft")[1]

@pytest.fixture
def model(tokenizer): return tiny_lm(tokenizer, hidden=32, seed=3)

@pytest.fixture(scope="module")
def ref(tokenizer): return frozen_copy(tiny_lm(tokenizer, hidden=32, seed=4))

@pytest.fixture(scope="module")
def pairs():
    g = torch.Generator().manual_seed(0)
    def words(n): return torch.randint(6, 180, (n,), generator=g).tolist()
    prompts = [words(n) for n in (3, 5, 2, 4, 3, 7)]
    sides = [[words(n) + [2] for n in lengths] for lengths in ((4, 2, 7, 1, 3, 5), (2, 6, 3, 3, 1, 8))]
    return PreferencePairs(*[make_seqs(prompts, side, pad=0) for side in sides])

def gradient(model, data, loss_fn, micro_batch_size=64):
    trainer = make_trainer(model, TrainConfig(micro_batch_size=micro_batch_size))
    model.eval()
    model.zero_grad()
    loss, *_ = accumulate_gradients(trainer, data, loss_fn)
    return loss, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

def test_sum_over_response_and_eos_only(model, pairs):
    seqs = pairs.chosen
    with torch.no_grad():
        logits = model(input_ids=seqs.ids, attention_mask=seqs.attention_mask.long()).logits
        logits[..., 0] = -torch.inf                       # pad is never sampled
        logits = logits.log_softmax(-1)
        for i in range(len(seqs)):
            at = seqs.response_mask[i].nonzero()[:, 0].tolist()
            slow = sum(logits[i, t - 1, seqs.ids[i, t]] for t in at)
            assert seqs.ids[i, at[-1]] == 2
            assert_close(sequence_logprobs(model, seqs)[i], slow, atol=1e-4, rtol=1e-5)

def test_one_forward_for_both_sides(model, pairs):
    calls = []
    model.base_model.register_forward_hook(lambda *x: calls.append(1))
    pair_logprobs(model, pairs)
    calls.clear()
    pair_logprobs(model, pairs)
    assert len(calls) == 1

def made_up(loss, dtype, seed=0): # log-probs of four pairs, as many tensors as the loss takes
    g = torch.Generator().manual_seed(seed)
    x = [(-60 * torch.rand(8, generator=g)).to(dtype) for _ in range(4)]
    if loss is kto_loss: return x[0], x[1], x[2] > -30, torch.tensor(1.5).to(dtype)
    return x[:2] if loss in (simpo_loss, orpo_loss) else x

@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("loss", [*FAMILY, log_odds, kto_baseline])
def test_low_precision_is_raised_before_anything_is_computed(loss, dtype):
    n = {log_odds: 1, kto_baseline: 2}.get(loss, 4)
    for seed in range(5):
        low = made_up(loss, dtype, seed)[:n]
        got, want = loss(*low), loss(*[x if x.dtype == torch.bool else x.float() for x in low])
        assert got.dtype == torch.float32 and torch.equal(got, want)
        assert loss(*[x if x.dtype == torch.bool else x.double() for x in low]).dtype == torch.float64

def test_low_precision_pairs_are_raised_in_rewards_and_per_token(model, ref, pairs):
    data = precompute_ref_logprobs(ref, pairs)
    low = PairsWithRef(pairs, data.ref_chosen.bfloat16(), data.ref_rejected.bfloat16())
    same = PairsWithRef(pairs, low.ref_chosen.float(), low.ref_rejected.float())
    for per_token in (False, True):
        (a, _, x), (b, _, y) = [make_pair_loss(ipo_loss, per_token)(model, d) for d in (low, same)]
        assert a == b and x == y
    half = frozen_copy(model).bfloat16()            # a model in bf16: its log-probs come in float32
    assert pair_logprobs(half, pairs)[0].dtype == torch.float32

WRONG = {"beta": [0., -.1, math.nan, math.inf, "0.1", None, True], "gamma": [-1., math.nan, math.inf, "1"],
         "weight": [-.1, math.nan, math.inf, "1"], "label_smoothing": [.5, 1., -.1, math.nan, "0.1"]}

@pytest.mark.parametrize("loss", FAMILY)
def test_settings_without_a_meaning_are_refused_by_name(loss):
    x, checked = made_up(loss, torch.float32), 0
    for name, p in signature(loss).parameters.items():
        if p.default is p.empty: continue
        checked += 1
        for value in WRONG[name]:
            with pytest.raises((TypeError, ValueError), match=f"^{loss.__name__}: {name} must be .*, got {value!r}"):
                loss(*x, **{name: value})
        for value in (.01, .49): assert loss(*x, **{name: value}).isfinite().all()
    assert checked

@pytest.mark.parametrize("loss", PAIRED)
def test_finite_differences(loss):
    g = torch.Generator().manual_seed(1)
    x = [(torch.randn(5, generator=g, dtype=torch.double) * 3).requires_grad_() for _ in range(4)]
    assert torch.autograd.gradcheck(lambda *x: loss(*x, beta=.3), x)

def test_finite_differences_without_reference_or_pairs():
    a, b = [torch.tensor(v, dtype=torch.double, requires_grad=True) for v in ([-.2, -3., -.01], [-1., -.4, -7.])]
    for loss in (simpo_loss, orpo_loss): assert torch.autograd.gradcheck(loss, (a, b))
    desirable, zero = torch.tensor([True, False, True]), torch.tensor(.4, dtype=torch.double)
    assert torch.autograd.gradcheck(lambda a, b: kto_loss(a, b, desirable, zero), (a, b))
    assert not kto_baseline(a, b).requires_grad

@pytest.mark.parametrize("per_token", [False, True])
def test_batch_split_and_row_order(model, ref, pairs, per_token):
    data = precompute_ref_logprobs(ref, pairs)
    loss_fn = make_pair_loss(partial(dpo_loss, beta=.4), per_token)
    loss, grad = gradient(model, data, loss_fn)
    for rows, micro_batch_size in (([0, 1, 2, 3, 4, 5], 2), ([5, 2, 0, 4, 1, 3], 64), ([3, 4, 5, 0, 2, 1], 4)):
        other, g = gradient(model, data[rows], loss_fn, micro_batch_size)
        assert_close(other, loss, atol=1e-6, rtol=1e-5)
        assert_close(g, grad, atol=1e-6, rtol=1e-4)

def test_rewards_carry_the_losses_own_beta(model, ref, pairs):
    data = precompute_ref_logprobs(ref, pairs)
    for beta in (.1, .6):
        with torch.no_grad():
            _, _, metrics = make_pair_loss(partial(dpo_loss, beta=beta))(model, data)
            chosen, rejected = pair_logprobs(model, pairs)
        assert_close(metrics["rewards/chosen"], (beta * (chosen - data.ref_chosen)).sum(), atol=1e-4, rtol=1e-5)
        assert_close(metrics["rewards/rejected"], (beta * (rejected - data.ref_rejected)).sum(), atol=1e-4, rtol=1e-5)
        assert_close(metrics["rewards/margins"], metrics["rewards/chosen"] - metrics["rewards/rejected"])
        assert not metrics["rewards/chosen"].requires_grad

def test_the_reference_stays_and_answers_as_in_eval(tokenizer, pairs):
    policy = tiny_lm(tokenizer, hidden=32, seed=3)
    for part in policy.modules():
        if hasattr(part, "attention_dropout"): part.attention_dropout = .5
        if isinstance(part, torch.nn.Dropout): part.p = .5
    ref = frozen_copy(policy)
    mark, began = weight_hash(ref), weight_hash(policy)
    policy.train()
    data = precompute_ref_logprobs(policy, pairs)
    assert policy.training                           # mode restored
    assert_close(data.ref_chosen, precompute_ref_logprobs(ref, pairs).ref_chosen)
    trainer = train_dpo(policy, data, TrainConfig(lr=1e-3, n_steps=3, batch_size=6), torch.Generator().manual_seed(0))
    assert not policy.training                       # no dropout while learning
    assert abs(trainer.log.rows[0]["loss"] - .693147) < 1e-5
    assert weight_hash(ref) == mark and weight_hash(policy) != began

def test_lora_is_its_own_reference(tokenizer, pairs):
    base = tiny_lm(tokenizer, hidden=32, seed=3)
    want = precompute_ref_logprobs(frozen_copy(base), pairs)
    policy = add_lora(base, rank=2)
    for name, p in policy.named_parameters():
        if "lora_B" in name: p.data.normal_(generator=torch.Generator().manual_seed(1)).mul_(.3)
    with torch.no_grad(): moved, _ = pair_logprobs(policy, pairs)
    got = precompute_ref_logprobs(policy, pairs)
    assert_close(got.ref_chosen, want.ref_chosen, atol=1e-4, rtol=0)
    assert (moved - want.ref_chosen).abs().max() > .01
    with torch.no_grad(): assert_close(pair_logprobs(policy, pairs)[0], moved)        # switched on again
    train_dpo(policy, got, TrainConfig(lr=1e-2, n_steps=4, batch_size=6), torch.Generator().manual_seed(0))
    assert_close(precompute_ref_logprobs(policy, pairs).ref_chosen, want.ref_chosen, atol=1e-4, rtol=0)

class Shelf:
    "What a store on disk offers: len, rows, lengths; it counts how much is read at a time."
    def __init__(self, pairs): self.pairs, self.lengths, self.most = pairs, pairs.lengths, 0
    def __len__(self): return len(self.pairs)
    def __getitem__(self, rows):
        self.most = max(self.most, len(part := self.pairs[rows]))
        return part

def test_learns_from_a_shelf_as_from_memory(tokenizer, ref, pairs):
    shelf, ends = Shelf(pairs), []
    for source in (pairs, shelf):
        policy = tiny_lm(tokenizer, hidden=32, seed=3)
        data = precompute_ref_logprobs(ref, source, batch_size=2)
        train_dpo(policy, data, TrainConfig(lr=1e-3, n_steps=5, batch_size=2), torch.Generator().manual_seed(0))
        ends.append(weight_hash(policy))
    assert ends[0] == ends[1] and shelf.most == 2

@pytest.fixture(scope="module")
def killed(tmp_path_factory): # a run that died behind its checkpoint at step 50, and what it was
    world, folder = micro_world(), tmp_path_factory.mktemp("killed")/"run"
    def pairs_of(first): return PreferencePairs(world.seqs[first:first + 12], world.seqs[20:32])
    run = dict(data=precompute_ref_logprobs(bigram_lm(world), pairs_of(0)), seed=0, held_out=None,
               config=TrainConfig(lr=.1, n_steps=60, batch_size=5), loss=partial(cdpo_loss, beta=.2))
    run["other data"] = precompute_ref_logprobs(bigram_lm(world), pairs_of(3))
    with pytest.MonkeyPatch.context() as patch:
        real, calls = dpo.pair_logprobs, iter(range(55))
        patch.setattr(dpo, "pair_logprobs", lambda *x: real(*x) if next(calls, None) is not None else 1 / 0)
        with pytest.raises(ZeroDivisionError): resumed(folder, run)
    return folder, run, weight_hash(resumed(None, run).model)

def resumed(folder, run):
    policy, g = bigram_lm(micro_world()), torch.Generator().manual_seed(run["seed"])
    return train_dpo(policy, run["data"], run["config"], g, run["loss"], run["held_out"], folder)

OTHERS = {"loss": lambda run: dict(loss=partial(robust_dpo_loss, beta=.2)),
          "loss.beta": lambda run: dict(loss=partial(cdpo_loss, beta=.3)),
          "loss.label_smoothing": lambda run: dict(loss=partial(cdpo_loss, beta=.2, label_smoothing=.2)),
          "data.hash": lambda run: dict(data=run["other data"]),
          "data.rows": lambda run: dict(data=run["data"][:11]),
          "data.mean |ref_chosen|": lambda run: dict(data=replace(run["data"], ref_chosen=run["data"].ref_chosen - 1)),
          "data.mean |ref_rejected|": lambda run: dict(data=replace(run["data"], ref_rejected=run["data"].ref_rejected - 1)),
          "generator_seed": lambda run: dict(seed=1), "eval_config": lambda run: dict(held_out=run["other data"]),
          "train_config.optimizer": lambda run: dict(config=replace(run["config"], optimizer=torch.optim.SGD))}

@pytest.mark.parametrize("name", OTHERS)
def test_another_run_is_refused_by_the_name_of_what_differs(killed, tmp_path, name):
    folder, run, whole = killed
    shutil.copytree(folder, tmp_path/"run")
    with pytest.raises(ValueError, match="belongs to another run") as e: resumed(tmp_path/"run", run | OTHERS[name](run))
    assert f"{name} was " in str(e.value), e.value
    assert weight_hash(resumed(tmp_path/"run", run).model) == whole  # nothing was lost: the same run goes on, bit for bit

def test_held_out_is_measured_in_parts(model, ref, pairs):
    data, loss_fn = precompute_ref_logprobs(ref, pairs), make_pair_loss(dpo_loss)
    whole = evaluate_pairs(model.train(), data, loss_fn)
    assert model.training
    for k, v in evaluate_pairs(model, data, loss_fn, batch_size=4).items(): assert abs(v - whole[k]) < 1e-4
    trainer = train_dpo(model, data, TrainConfig(n_steps=2, batch_size=6), torch.Generator().manual_seed(0), held_out=data)
    assert abs(trainer.log.rows[0]["eval_loss"] - whole["loss"]) < 1e-5

def test_population_optimum_is_the_closed_form():
    world = micro_world()
    ref = all_logprobs(bigram_lm(world), world).detach()
    reward = torch.tensor([s.count("kind") - 2. * s.count("rude") for s in world.texts()]).double()
    i, j = torch.triu_indices(40, 40, 1)
    wins = (reward[i] - reward[j]).sigmoid()
    for beta in (.4, 1.5):
        free = bigram_lm(world)
        solve = torch.optim.LBFGS(free.parameters(), max_iter=1000, tolerance_grad=1e-10, tolerance_change=1e-14,
                                  line_search_fn="strong_wolfe")
        def loss():
            solve.zero_grad()
            y = all_logprobs(free, world)
            mean = (wins * dpo_loss(y[i], y[j], ref[i], ref[j], beta=beta)
                    + (1 - wins) * dpo_loss(y[j], y[i], ref[j], ref[i], beta=beta)).mean()
            mean.backward()
            return mean
        solve.step(loss)
        best, log_z = optimal_policy(ref, reward, beta)
        found = all_logprobs(free, world).detach()
        assert_close(found.exp(), best.exp(), atol=1e-4, rtol=1e-3)
        assert abs(expectation(found, reward) - beta * expectation(found, found - ref) - beta * log_z) < 1e-5

def test_sampled_pairs_come_near_the_optimum():
    world, g = micro_world(), torch.Generator().manual_seed(5)
    ref = all_logprobs(bigram_lm(world), world).detach()
    reward = torch.tensor([s.count("kind") - 1.5 * s.count("rude") for s in world.texts()]).double()
    p, q = sample_rows(ref, 20000, g), sample_rows(ref, 20000, g)
    p, q = p[p != q], q[p != q]
    first = torch.rand(len(p), generator=g).double() < (reward[p] - reward[q]).sigmoid()
    c, r = torch.where(first, p, q), torch.where(first, q, p)
    student = bigram_lm(world)
    config = TrainConfig(lr=.2, n_steps=200, batch_size=256, micro_batch_size=256, max_grad_norm=100.)
    train_dpo(student, PairsWithRef(PreferencePairs(world.seqs[c], world.seqs[r]), ref[c], ref[r]), config, g,
              partial(dpo_loss, beta=.5))
    y = all_logprobs(student, world).detach()
    value = expectation(y, reward) - .5 * expectation(y, y - ref)
    best = .5 * optimal_policy(ref, reward, .5)[1]
    assert best - .06 < value <= best + 1e-9 and value > expectation(ref, reward) + .5

def test_robust_is_unbiased_and_cdpo_has_a_floor():
    x = [torch.tensor(v) for v in ([-3., -8.], [-5., -2.], [-4., -4.5], [-4., -5.])]
    y = x[1], x[0], x[3], x[2]
    assert_close(.7 * robust_dpo_loss(*x, label_smoothing=.3) + .3 * robust_dpo_loss(*y, label_smoothing=.3), dpo_loss(*x))
    gap = torch.linspace(-60, 60, 2401)
    at = gap[cdpo_loss(gap, *[torch.zeros(2401)] * 3, beta=.1, label_smoothing=.2).argmin()]
    assert abs(.1 * at - torch.tensor(.8 / .2).log()) < .01          # belief 1 - label_smoothing

def test_ipo_summed_and_per_token(model, ref, pairs):
    data = precompute_ref_logprobs(ref, pairs)
    n = [s.response_mask.sum(1) for s in (pairs.chosen, pairs.rejected)]
    with torch.no_grad():
        c, r = pair_logprobs(model, pairs)
        summed = make_pair_loss(ipo_loss)(model, data)[0]
        mean = make_pair_loss(ipo_loss, per_token=True)(model, data)
    assert_close(summed, ((c - data.ref_chosen - r + data.ref_rejected - 5)**2).sum(), atol=1e-2, rtol=1e-4)
    gap = (c - data.ref_chosen) / n[0] - (r - data.ref_rejected) / n[1]
    assert_close(mean[0], ((gap - 5)**2).sum(), atol=1e-3, rtol=1e-4)
    assert_close(mean[2]["logps/chosen"], c.sum(), atol=1e-3, rtol=1e-5)        # the log stays in sums

def test_reference_free_is_per_token(model, pairs):
    with torch.no_grad(): loss, n, metrics = make_reference_free_loss(orpo_loss)(model, pairs)
    c, r = [sequence_logprobs(model, s).detach() / s.response_mask.sum(1) for s in (pairs.chosen, pairs.rejected)]
    odds = [(x.exp() / (1 - x.exp())).log() for x in (c, r)]
    assert_close(loss, (-c - .1 * torch.nn.functional.logsigmoid(odds[0] - odds[1])).sum(), atol=1e-3, rtol=1e-4)
    assert torch.isfinite(log_odds(torch.tensor([0., -1e-9, -200.]))).all()

def test_trl_dpo_agrees(tmp_path, tokenizer, ref, pairs):
    "The same weights and batch through TRL's trainer: loss, logged rewards, gradients."
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    decode = lambda rows: [tokenizer.decode(r) for r in rows]
    def parts(seqs):
        prompt = seqs.attention_mask & ~seqs.response_mask
        return ([i[m].tolist() for i, m in zip(seqs.ids, prompt)],
                [i[m].tolist()[:-1] for i, m in zip(seqs.ids, seqs.response_mask)])
    prompts, chosen = parts(pairs.chosen)
    _, rejected = parts(pairs.rejected)
    rows = datasets.Dataset.from_dict(dict(prompt=decode(prompts), chosen=decode(chosen), rejected=decode(rejected)))
    policy = tiny_lm(tokenizer, hidden=32, seed=3)
    args = trl.DPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[], save_strategy="no",
        per_device_train_batch_size=6, max_steps=1, beta=.25, gradient_checkpointing=False, disable_tqdm=True,
        max_length=None, logging_steps=1, learning_rate=0., max_grad_norm=0., seed=0)
    trainer = trl.DPOTrainer(model=policy, ref_model=frozen_copy(ref), args=args, processing_class=tokenizer,
                             train_dataset=rows)
    batch = next(iter(trainer.get_train_dataloader()))
    policy.eval()
    theirs = trainer.compute_loss(policy, batch)
    theirs.backward()
    want = torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])
    logged = {k: sum(v) / len(v) for k, v in trainer._metrics["eval"].items()}
    mine, ref = tiny_lm(tokenizer, hidden=32, seed=3), frozen_copy(ref)
    for m in (mine, ref): m.config.pad_token_id = None      # TRL leaves pad its probability
    data, loss_fn = precompute_ref_logprobs(ref, pairs), make_pair_loss(partial(dpo_loss, beta=.25))
    loss, got = gradient(mine, data, loss_fn)
    assert abs(loss - theirs.item()) < 1e-5
    assert_close(got, want, atol=1e-5, rtol=1e-4)
    metrics = evaluate_pairs(mine, data, loss_fn)
    for name in ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies", "logps/chosen"):
        assert abs(metrics[name] - float(logged[name])) < 1e-5, name

def test_saved_figures_are_what_the_chapter_says():
    file = json.loads((RESULTS/"dpo.json").read_text())
    mean = lambda run, key: sum(r[key] for r in file["rows"] if r["run"] == run) / len({r["seed"] for r in file["rows"]})
    assert len({r["seed"] for r in file["rows"]}) >= 3
    assert mean("SFT", "gold") < 2.9 and mean("beta .1", "gold") >= 3.7
    assert mean("beta .01, 3 epochs", "gold") < mean("beta .1", "gold")
    assert mean("beta .1", "chosen") < mean("SFT", "chosen")

def test_real_preferences_are_learned():
    rows = json.loads((RESULTS/"dpo_real.json").read_text())
    assert len({r["seed"] for r in rows}) >= 3
    assert all(r["accuracy"] > .7 and r["accuracy"] > r["likelier_before"] + .1 and len(r["samples"]) >= 4 for r in rows)
