"Off-policy: ratios and weights by hand, gradients by exact sums, a sampler that runs ahead, killed and resumed."
import json, math, os, re, shutil, signal, pytest, torch
from dataclasses import replace
from pathlib import Path
from torch import tensor
from torch.testing import assert_close
from rlhf_nb.base.batches import Rollout
from rlhf_nb.base.checkpoints import list_checkpoints
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.models import ScalarModel, frozen_copy, tiny_lm
from rlhf_nb.base.sampling import SamplingParams, collect_rollout, generate_many
from rlhf_nb.base.settings import weight_hash
from rlhf_nb.best_policy import exact_gradient
from rlhf_nb.book.command import main
from rlhf_nb.off_policy import bounded_weights, effective_sample_size, importance_ratios
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.tokens import make_seqs, masked_sum
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, grpo_loss, make_group_experience, train_grpo
from rlhf_nb.trainers.ppo_trainer import (AdaptiveKLController, PPOConfig, RLTask, make_experience, minibatch_loss,
    rollout_rewards, train_ppo, weigh_rollout)
from rlhf_nb.worlds.oracle import TabularLM, all_logprobs, bigram_lm, micro_tokenizer, micro_world
from tiny_runs import rows_in

ROOT = Path(__file__).resolve().parents[1]
WORLD = micro_world()
TOK = micro_tokenizer(WORLD)
MODES = [f"{level}_{how}" for level in ("token", "sequence") for how in ("truncate", "mask")]
NAME = "sampling/importance_sampling_ratio/"
NAN = math.nan
def seeded(seed=0): return torch.Generator().manual_seed(seed)
def policy(seed=1, **more): return tiny_lm(TOK, **dict(hidden=32, layers=1, seed=seed) | more).requires_grad_()
def reward_fn(seqs): return ((seqs.ids == 1) & seqs.response_mask).sum(1).float()
PROMPTS = [[WORLD.start], [WORLD.start, 0], [WORLD.start, 2, 1]]
TASK = RLTask(PROMPTS, reward_fn, TOK, SamplingParams(6))

# ---- ratios, weights, effective sample size
def test_ratios_by_hand_and_what_stands_outside():
    log_ratio = tensor([[NAN, math.log(2), math.log(.5), math.log(3), math.inf], [9., 9., math.log(.25), NAN, NAN], [NAN] * 5])
    mask = tensor([[0, 1, 1, 1, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]).bool()
    assert_close(importance_ratios(log_ratio, mask, "token"), tensor([[1, 2, .5, 3, 1], [1, 1, .25, 1, 1], [1] * 5]))
    assert_close(importance_ratios(log_ratio, mask, "sequence"), tensor([[3.], [.25], [1.]]))
    assert importance_ratios(log_ratio.bfloat16(), mask, "token").dtype == torch.float32

def test_bounds_by_hand():
    ratio = tensor([[0., .4, .5, 1.9], [2., 2.1, math.inf, 1.]])
    assert_close(bounded_weights(ratio, 2.), tensor([[0., .4, .5, 1.9], [2., 2., 2., 1.]]))
    assert_close(bounded_weights(ratio, 2., .5), tensor([[.5, .5, .5, 1.9], [2., 2., 2., 1.]]))
    assert_close(bounded_weights(ratio, 2., .5, "mask"), tensor([[0., 0., .5, 1.9], [2., 0., 0., 1.]]))
    assert_close(bounded_weights(ratio, 1., 1.), torch.ones(2, 4))             # the ratios are ignored

def test_effective_sample_size_by_hand_at_any_size():
    assert effective_sample_size(tensor([1., 3.]).log()).item() == pytest.approx(.8)              # 16 / (2 * 10)
    assert effective_sample_size(torch.full((7,), 1000.)).item() == pytest.approx(1.)
    assert effective_sample_size(tensor([-1000., -1000., 1000., -1000.])).item() == pytest.approx(.25)
    x = torch.randn(50, generator=seeded()).double()
    assert_close(effective_sample_size(x), x.exp().sum()**2 / 50 / (2 * x).exp().sum())
    assert_close(effective_sample_size(x - 7), effective_sample_size(x))

# ---- against the tree: all responses, each with the probability of its sampler
def table(seed): # random next-token distributions in every state
    model = TabularLM(WORLD).double()
    with torch.no_grad(): model.head.weight[:4] = .7 * torch.randn(4, model.head.weight.shape[1], generator=seeded(seed)).double()
    return model

COUNTS = tensor([[w.count(x) for x in ("kind", "rude", "very")] for w in WORLD.texts()]).double() @ tensor([1., -1., .25]).double()
def token_logp(model): return logprobs(model, WORLD.seqs).detach()

def gradient(learner, sampler, **settings): # what the trainer's first step follows, in expectation over the sampler
    q = all_logprobs(sampler, WORLD).detach().exp()
    roll = Rollout(WORLD.seqs, torch.arange(len(q)), token_logp(sampler), token_logp(sampler), COUNTS)
    config = GRPOConfig(beta=0., advantage_fn=lambda reward, group: reward, loss_type=lambda mask, max_length: q[:, None] * mask,
                        n_prompts=1, **settings)
    roll, weight, row = weigh_rollout(learner, roll, config)
    x = make_group_experience(roll, config, TASK, weight)
    return -torch.autograd.grad(grpo_loss(learner, x, config)[0], learner.head.weight)[0], row

@pytest.mark.parametrize("seed", range(3))
def test_uncapped_ratios_of_responses_give_the_exact_gradient_and_nothing_else_does(seed):
    learner, sampler = table(seed), table(seed + 10)
    exact = exact_gradient(learner, WORLD, COUNTS)["head.weight"]
    def off(**settings): return (gradient(learner, sampler, **settings)[0] - exact).norm() / exact.norm()
    for how in ("truncate", "mask"): assert off(importance_sampling_cap=1e9, importance_sampling_mode=f"sequence_{how}") < 1e-9
    assert off(importance_sampling_cap=1e9) > .01                       # per token: the prefixes stay the sampler's
    assert off(importance_sampling_cap=1.5, importance_sampling_mode="sequence_truncate") > .01
    assert off(importance_sampling_cap=1., importance_sampling_min=1.) > .01          # ignored
    assert (gradient(learner, learner)[0] - exact).norm() < 1e-9

@pytest.mark.parametrize("mode", MODES)
def test_a_capped_gradient_is_the_slow_sum(mode):
    learner, sampler, settings = table(1), table(11), dict(importance_sampling_cap=1.6, importance_sampling_min=.5, importance_sampling_mode=mode)
    got, row = gradient(learner, sampler, **settings)
    now = logprobs(learner, WORLD.seqs)
    p, q, total, n_outside, n_units, raws = now.detach(), token_logp(sampler), 0., 0, 0, []
    for i, y in enumerate(WORLD.responses()):
        ratios = [math.exp(p[i, t + 1] - q[i, t + 1]) for t in range(len(y))]
        if mode.startswith("sequence"): ratios = [math.prod(ratios)] * len(y)
        units = ratios if mode.startswith("token") else ratios[:1]
        raws, n_units = raws + units, n_units + len(units)
        n_outside += sum(not .5 <= r <= 1.6 for r in units)
        weights = [min(1.6, max(.5, r)) if mode.endswith("truncate") else r * (.5 <= r <= 1.6) for r in ratios]
        total = total + math.exp(q[i, 1:len(y) + 1].sum()) * COUNTS[i] * sum(w * now[i, t + 1] for t, w in enumerate(weights))
    assert_close(got, torch.autograd.grad(total, learner.head.weight)[0])
    assert row[NAME + "outside"] == pytest.approx(n_outside / n_units) and 0 < n_outside < n_units
    assert (row[NAME + "min"], row[NAME + "max"]) == pytest.approx((min(raws), max(raws)))
    assert row[NAME + "mean"] == pytest.approx(sum(raws) / n_units)

def test_the_mean_ratio_of_top_p_is_the_kept_mass():
    learner = bigram_lm(WORLD)
    with torch.no_grad():
        filtered = frozen_copy(learner)
        p = learner.head.weight[:4].softmax(0)
        order = p.argsort(0, descending=True)
        before = p.gather(0, order).cumsum(0) - p.gather(0, order)
        keep = torch.zeros_like(p).bool().scatter(0, order, before < .8)
        filtered.head.weight[:4] = torch.where(keep, p.log(), -1e4)
    logq, logp = (all_logprobs(m, WORLD).detach() for m in (filtered, learner))
    mean = (logq.exp() * (logp - logq).exp())[logq > -100].sum()
    assert_close(mean, logp.exp()[logq > -100].sum())
    assert .2 < mean < .9

# ---- rollouts
def rollout(model, n=3, seed=3, ref=None): return collect_rollout(model, ref or frozen_copy(policy(2)), PROMPTS * 2, reward_fn, TOK, TASK.sampling, seeded(seed), n)

@pytest.mark.parametrize("mode", MODES)
def test_weights_of_ragged_rows_in_any_order_and_any_micro_batches(mode):
    "Log-probs outside the responses are rubbish."
    low, high = (.97, 1.01) if mode.startswith("token") else (.8, 1.1)
    roll, learner = rollout(policy(1)), policy(5)
    roll = replace(roll, logp=roll.logp.masked_fill(~roll.seqs.response_mask, 1e30))
    config = GRPOConfig(importance_sampling_cap=high, importance_sampling_min=low, importance_sampling_mode=mode)
    found, weight, row = weigh_rollout(learner, roll, config)
    mask, want = roll.seqs.response_mask, logprobs(learner, roll.seqs).detach()
    assert_close(found.logp[mask], want[mask])
    weight = weight.expand(mask.shape)
    d = ((want - roll.logp).masked_fill(~mask, 0.))
    ratio = (d.sum(1, keepdim=True).expand_as(d) if "seq" in mode else d).exp()
    outside = (ratio < low) | (ratio > high)
    assert 0 < outside[mask].float().mean() < 1
    wanted = ratio.masked_fill(outside, 0.) if "mask" in mode else ratio.clamp(low, high)
    assert_close(weight[mask], wanted[mask], rtol=1e-4, atol=1e-5)
    total = masked_sum(d, mask).exp()
    assert row["sampling/effective_sample_size"] == pytest.approx((total.sum()**2 / len(total) / (total**2).sum()).item(), rel=1e-4)
    order = torch.randperm(len(roll), generator=seeded())
    _, again, row2 = weigh_rollout(learner, roll[order], replace(config, micro_batch_size=2))
    assert_close(again.expand(mask.shape)[mask[order]], weight[order][mask[order]], rtol=1e-4, atol=1e-5)
    assert row2 == pytest.approx(row, rel=1e-4)

def test_an_empty_response_weighs_1():
    seqs = make_seqs([[WORLD.start, 0], [WORLD.start]], [[], [1, 3]], WORLD.pad)
    x = torch.zeros(seqs.ids.shape)
    _, weight, row = weigh_rollout(policy(), Rollout(seqs, torch.arange(2), x, x, torch.ones(2)),
                                   GRPOConfig(importance_sampling_cap=3., importance_sampling_mode="sequence_truncate"))
    assert weight[0] == 1. and 0 < weight[1] < .5 and row[NAME + "max"] == 1.

def test_nothing_is_computed_where_nothing_is_to_correct(monkeypatch):
    from rlhf_nb.trainers import ppo_trainer as room
    roll = rollout(policy())
    monkeypatch.setattr(room, "in_batches", None)
    for config in (GRPOConfig(), PPOConfig()):
        same, weight, row = weigh_rollout(policy(4), roll, config)
        assert same is roll and weight == 1. and row == {}

def test_lag_alone_tells_the_ratios_and_leaves_the_clip_to_the_sampler():
    roll, learner = rollout(policy(1)), policy(5)
    same, weight, row = weigh_rollout(learner, roll, GRPOConfig(lag=2))
    assert same is roll and weight == 1. and row[NAME + "min"] < 1 < row[NAME + "max"] and NAME + "outside" not in row

def test_weights_and_the_learners_kl_reach_the_losses_of_both_trainers():
    roll, learner = rollout(policy(1)), policy(5)
    mask, now = roll.seqs.response_mask, logprobs(learner, roll.seqs).detach()
    more = dict(importance_sampling_cap=1.2, beta=.7)
    config = GRPOConfig(advantage_fn=lambda reward, group: reward, **more)
    x = make_group_experience(*(lambda r, w, _: (r, config, TASK, w))(*weigh_rollout(learner, roll, config)))
    reward = roll.reward - .7 * masked_sum(now - roll.ref_logp, mask)
    weight = (now - roll.logp).exp().clamp(max=1.2)
    assert_close(x.advantage[mask], (reward[:, None] * weight)[mask], rtol=1e-4, atol=1e-5)
    assert_close(x.logp[mask], now[mask], rtol=1e-4, atol=1e-5)
    config, model = PPOConfig(**more), ActorCritic(learner, ScalarModel.from_lm(policy(7)))
    weighed, weight, _ = weigh_rollout(learner, roll, config)
    plain, x = (make_experience(model, weighed, config, WORLD.eos, w) for w in (1., weight))
    assert_close(x.advantage[mask], (plain.advantage * weight)[mask])
    assert_close(rollout_rewards(weighed, config, WORLD.eos).sum(1), reward, rtol=1e-4, atol=1e-4)
    metrics = minibatch_loss(model, x, config)[2]
    assert metrics["val/ratio"] / mask.sum() == pytest.approx(1.) and metrics["policy/approxkl_avg"] < 1e-8

def without_the_first(logits): # the first word cannot be said
    return logits.masked_fill(torch.arange(logits.shape[1]) == 0, -torch.inf)

def test_the_mean_ratio_under_a_filter_of_your_own_is_the_mass_it_keeps():
    learner = policy()
    seqs, logq = generate_many(learner, PROMPTS[:1] * 400, TOK, SamplingParams(1, logits_filter=without_the_first), seeded())
    at = seqs.response_mask
    p = logprobs(learner, seqs).detach()
    first = logprobs(learner, make_seqs(PROMPTS[:1], [[0]], TOK.pad_token_id))[0, -1].exp()
    assert_close((p - logq)[at].exp(), (1 - first).expand(400), rtol=1e-4, atol=1e-5)

@pytest.mark.parametrize("how", [dict(top_p=.8), dict(logits_filter=without_the_first)])
def test_a_sampler_with_a_filter_is_refused_unless_it_is_corrected(how):
    filtered = replace(TASK, sampling=SamplingParams(6, **how))
    model = policy()
    with pytest.raises(ValueError, match="top-p.*importance_sampling_cap"):
        train_grpo(model, frozen_copy(model), filtered, GRPOConfig(n_iterations=1), seeded())
    config = GRPOConfig(n_iterations=1, n_prompts=4, num_generations=50, importance_sampling_cap=1e6)
    row = train_grpo(model, frozen_copy(model), filtered, config, seeded()).log.rows[-1]
    assert .7 < row[NAME + "mean"] < 1 and row[NAME + "max"] < 1.01            # what is kept of a token's mass
    with pytest.raises(ValueError, match="one temperature"):
        train_grpo(model, frozen_copy(model), replace(TASK, sampling=SamplingParams(6, temperature=.5)), config, seeded())

@pytest.mark.parametrize("kind", [GRPOConfig, PPOConfig])
def test_settings_are_refused(kind):
    for more, words in ((dict(lag=-1), "lag must be 0 or more"), (dict(importance_sampling_mode="token"), "one of"),
                        (dict(importance_sampling_mode="token_mask"), "cap must be above 0"), (dict(importance_sampling_cap=math.inf), "finite"),
                        (dict(importance_sampling_min=.5), "not below importance_sampling_min, got 0"),
                        (dict(importance_sampling_cap=.4, importance_sampling_min=.5), "got 0.4"), (dict(importance_sampling_cap=-1.), "0 or more")):
        with pytest.raises(ValueError, match=words): kind(**more)

# ---- a sampler that runs ahead
def grpo(folder=None, callback=lambda *x: None, model=None, seed=2, **more):
    model = model or policy()
    config = GRPOConfig(**dict(n_iterations=6, n_prompts=3, num_generations=4, lr=.02, warmup_steps=0, beta=.1, lag=2,
                               importance_sampling_cap=2., importance_sampling_mode="sequence_truncate") | more)
    return model, train_grpo(model, frozen_copy(policy()), TASK, config, seeded(seed), folder, callback)

def ppo(folder=None, callback=lambda *x: None, model=None, **more):
    model = model or ActorCritic(policy(), ScalarModel.from_lm(policy(3)))
    config = PPOConfig(**dict(n_iterations=6, n_prompts=9, n_minibatches=3, lr=.02, warmup_steps=0, lag=2, importance_sampling_cap=2.,
                              score_after_eos=True, kl_controller=AdaptiveKLController(.01, 100)) | more)
    return model, train_ppo(model, frozen_copy(policy()), TASK, config, seeded(2), folder, callback)

LOOPS = pytest.mark.parametrize("loop", [grpo, ppo], ids=["grpo", "ppo"])

@LOOPS
@pytest.mark.parametrize("lag", [0, 1, 3])
def test_a_rollout_is_as_old_as_was_asked(loop, lag):
    "Its log-probs are those of the policy before so many updates; the log's numbers are those of the rollout learned from."
    known, age, rows = [], [], []
    model = policy() if loop is grpo else ActorCritic(policy(), ScalarModel.from_lm(policy(3)))
    lm = getattr(model, "policy", model)
    known.append(frozen_copy(lm))
    def callback(row, roll):
        mask = roll.seqs.response_mask
        gaps = [(logprobs(m, roll.seqs) - roll.logp)[mask].abs().max().item() for m in known]
        i = row["iteration"] - 1
        assert min(gaps) < 1e-5 and gaps.index(min(gaps)) == max(0, i - lag)
        key = "reward" if loop is grpo else "objective/scores"
        if loop is grpo: assert row[key] == pytest.approx(roll.reward.mean().item())
        known.append(frozen_copy(lm))
        rows.append(row)
    loop(None, callback, model, lag=lag, importance_sampling_cap=2. if lag else 0., **dict(importance_sampling_mode="token_truncate"))
    assert len(rows) == 6 and all((NAME + "max" in row) == bool(lag) for row in rows)
    if lag: # the first is fresh
        asked = {NAME + k for k in ("min", "mean", "max", "outside")} | {"sampling/effective_sample_size"}
        assert all(asked <= row.keys() and row[NAME + "min"] <= row[NAME + "mean"] <= row[NAME + "max"] for row in rows)
        assert rows[0][NAME + "max"] == pytest.approx(1., abs=1e-4) and rows[lag][NAME + "max"] > 1.001
        assert rows[lag]["sampling/effective_sample_size"] < 1 - 1e-6
    if loop is ppo: # beta is that of the day it is learned, and of the day that the log says
        for a, b in zip(rows, rows[1:]): assert a["next_kl_coef"] == b["objective/kl_coef"]
        for row in rows: assert row["objective/non_score_reward"] == pytest.approx(-row["objective/kl_coef"] * row["objective/kl"], rel=1e-3, abs=1e-6)

def seen(trainer): return [{k: v for k, v in row.items() if k != "seconds"} for row in trainer.log.rows]

@LOOPS
def test_a_cut_run_goes_on_in_the_same_bits(loop, tmp_path):
    class Stop(Exception): pass
    def stop(row, roll):
        if row["iteration"] == 4: raise Stop
    model, trainer = loop()
    whole = weight_hash(model), seen(trainer)
    assert len(trainer.pending) == 2
    for every in (1, 3):                                    # killed right after a save, and one rollout later
        with pytest.raises(Stop): loop(tmp_path/str(every), stop, save_every=every)
        model, trainer = loop(tmp_path/str(every), save_every=every)
        assert (weight_hash(model), seen(trainer)) == whole
    loop(tmp_path/"short", n_iterations=3)                  # and longer than was said
    model, trainer = loop(tmp_path/"short")
    assert (weight_hash(model), seen(trainer)) == whole
    for more in (dict(lag=1), dict(importance_sampling_cap=3.), dict(importance_sampling_min=.1), dict(importance_sampling_mode="token_mask")):
        with pytest.raises(ValueError, match=f"another run.*config.{next(iter(more))} was"): loop(tmp_path/"short", n_iterations=7, **more)

@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a copy of this process")
@pytest.mark.parametrize("at", (15, 28, 37))
def test_killed_while_it_writes_it_goes_on_in_the_same_bits(tmp_path, at):
    pid, calls = os.fork(), []
    if not pid:
        def deadly(fn):
            def call(*args, **kwargs):
                calls.append(fn)
                if len(calls) == at: os.kill(os.getpid(), signal.SIGKILL)
                return fn(*args, **kwargs)
            return call
        for module, name in ((os, "fsync"), (os, "rename"), (os, "replace"), (shutil, "rmtree")):
            setattr(module, name, deadly(getattr(module, name)))
        try: grpo(tmp_path)
        finally: os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL and list_checkpoints(tmp_path)
    (model, trainer), (whole, one) = grpo(tmp_path), grpo()
    assert weight_hash(model) == weight_hash(whole) and seen(trainer) == seen(one)

def test_dynamic_sampling_runs_ahead_too_and_a_rollout_without_a_lesson_passes():
    model, trainer = grpo(dynamic_sampling=2, n_prompts=2)
    rows = [row for row in trainer.log.rows if "iteration" in row]
    assert [row["n_responses"] for row in rows] == [16] * 6 and NAME + "max" in rows[-1]
    model = policy()
    before = weight_hash(model)
    train_grpo(model, frozen_copy(model), replace(TASK, reward_fn=lambda s: torch.ones(len(s))),
               GRPOConfig(n_iterations=3, n_prompts=2, num_generations=3, dynamic_sampling=2, lag=1, importance_sampling_cap=2.), seeded())
    assert weight_hash(model) == before

@pytest.mark.parametrize("loop", [grpo, ppo], ids=["grpo", "ppo"])
def test_another_family_learns_from_what_it_sampled_two_rollouts_ago(loop):
    lm = policy(arch="llama")
    model = lm if loop is grpo else ActorCritic(lm, ScalarModel.from_lm(lm))
    before = weight_hash(model)
    _, trainer = loop(model=model, n_iterations=4)
    row = trainer.log.rows[-1]
    assert weight_hash(model) != before and 0 < row["sampling/effective_sample_size"] <= 1 and row[NAME + "min"] < 1 < row[NAME + "max"]

# ---- the chapter
@pytest.mark.usefixtures("one_thread", "no_curves", "inside")
def test_every_command_of_the_chapter_runs():
    "On a tiny model; the dry run before it leaves nothing, and the log has the raw ratios."
    text = "\n".join("".join(c["source"]) for c in json.loads((ROOT/"nbs/20_off_policy.ipynb").read_text("utf-8"))["cells"])
    lines = re.findall(r"^rlhf-nb (train .*)$", text.replace("\\\n", ""), re.M)
    assert len(lines) == 2
    small = "--n-iterations 3 --n-prompts 4 --eval-rows 6 --max-new-tokens 4".split()
    for i, line in enumerate(sorted(lines, key=lambda x: "--dry-run" not in x)):
        for a, b in (("prompts.jsonl", "pairs.jsonl"), ("runs/ahead", "o"), ("runs/sft", "m"), ("rules:score", "tiny_rules:even")): line = line.replace(a, b)
        assert main([*line.split(), *small]) == 0 and Path("o/run.json").exists() == bool(i)
    rows = [row for row in rows_in(next(Path("o").rglob("*log.jsonl"))) if "iteration" in row]
    assert len(rows) == 3 and all(0 < row["sampling/effective_sample_size"] <= 1 and NAME + "outside" in row for row in rows)
