"Groups: advantages and weights by hand, the loss against a slow loop and TRL, the trainer."
import math
from collections import defaultdict
from dataclasses import fields, replace
from importlib.util import find_spec
from types import SimpleNamespace

import pytest, torch
from conftest import plain_id
from torch import tensor
from torch.testing import assert_close

from rlhf_nb.grpo import (
    group_centered, group_normalised, leave_one_out, loss_weights, mean_baseline, pass_at_k)
from rlhf_nb.grpo_trainer import (
    LOSS_TYPES, GRPOConfig, GroupExperience, grpo_loss, make_group_experience,
    sample_groups, train_grpo)
from rlhf_nb.kl import kl_k3
from rlhf_nb.learning import TrainConfig, accumulate_gradients, make_trainer
from rlhf_nb.models import frozen_copy, logprobs, tiny_lm, weight_hash
from rlhf_nb.oracle import micro_tokenizer, micro_world, bigram_lm
from rlhf_nb.ppo_trainer import RLTask
from rlhf_nb.sampling import SamplingParams, collect_rollout

WORLD = micro_world()
TOK = micro_tokenizer(WORLD)
NAN = math.nan

def seeded(seed=0): return torch.Generator().manual_seed(seed)
def policy(seed=0): return tiny_lm(TOK, hidden=32, layers=1, seed=seed).requires_grad_()
def task(reward=lambda seqs: (seqs.ids == 1).sum(1).float(), n=3):
    return RLTask([[WORLD.start], [WORLD.start, 0], [WORLD.start, 2, 1]][:n], reward, TOK, SamplingParams(6))

# ---- advantages

def groups(*rewards): # lists of rewards -> (b), (b)
    group = [i for i, r in enumerate(rewards) for _ in r]
    return tensor([float(x) for r in rewards for x in r]), tensor(group)

def test_leave_one_out_by_hand():
    reward, group = groups([1, 0, 0], [5, 7], [4], [2, NAN, 8], [NAN, 3])
    assert_close(leave_one_out(reward, group),
                 tensor([1., -.5, -.5, -2., 2., 0., -6., 0., 6., 0., 0.]))

def test_centered_and_normalised_by_hand():
    reward, group = groups([1, 0, 0, 1], [3, 3], [2, NAN, 8])
    assert_close(group_centered(reward, group), tensor([.5, -.5, -.5, .5, 0., 0., -3., 0., 3.]))
    a, b = .5 / (math.sqrt(1 / 3) + 1e-4), 3 / (math.sqrt(18.) + 1e-4)
    assert_close(group_normalised(reward, group), tensor([a, -a, -a, a, 0., 0., -b, 0., b]))

def test_mean_baseline_is_of_the_batch():
    assert_close(mean_baseline(*groups([1, 0], [5, NAN])), tensor([-1., -2., 3., 0.]))

@pytest.mark.parametrize("fn", [leave_one_out, group_centered, group_normalised, mean_baseline])
def test_rows_may_stand_anywhere_and_groups_may_have_any_number(fn):
    reward, group = torch.randn(11, generator=seeded()), tensor([4, 4, 4, 9, 9, 9, 9, 9, 0, 0, 0])
    order = torch.randperm(11, generator=seeded(1))
    assert_close(fn(reward[order], group[order]), fn(reward, group)[order])
    assert fn(reward, group).sum().abs() < 1e-5

@pytest.mark.skipif(not find_spec("trl"), reason="needs TRL 1.16")
def test_normalised_is_trls_with_odd_groups_none_and_no_variance():
    nanstd = pytest.importorskip("trl.trainer.utils").nanstd
    reward = tensor([[1., 2., 4.], [0., NAN, 3.], [5., 5., 5.], [NAN, NAN, 2.]])
    theirs = (reward - reward.nanmean(1, keepdim=True)) / (nanstd(reward, dim=1, keepdim=True) + 1e-4)
    ours = group_normalised(reward.flatten(), torch.arange(4).repeat_interleave(3))
    assert_close(ours[:9], theirs.nan_to_num(0.).flatten()[:9], rtol=1e-5, atol=1e-6)
    assert (ours[9:] == 0).all()

# ---- weights

def test_weights_by_hand():
    mask = tensor([[0, 1, 1, 1, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()
    assert_close(loss_weights(mask, "dapo", 7), mask / 4.)
    assert_close(loss_weights(mask, "grpo", 7), mask * tensor([[1 / 9], [1 / 3], [0.]]))
    assert_close(loss_weights(mask, "dr_grpo", 7), mask / 21.)

def test_pass_at_k():
    assert_close(pass_at_k(tensor([0, 1, 2, 4]), 4, 2), tensor([0., .5, 5 / 6, 1.]))
    assert_close(pass_at_k(tensor([3]), 10, 1), tensor([.3]))
    for k in (0, 5):
        with pytest.raises(ValueError, match="1 <= k <= n = 4"): pass_at_k(tensor([1]), 4, k)

# ---- the loss

def rollout(model, ref, n=2, seed=3):
    t = task()
    return collect_rollout(model, ref, t.prompts, lambda s: torch.randn(len(s), generator=seeded(5)), TOK,
                           t.sampling, seeded(seed), n)

SETTINGS = [dict(), dict(loss_type="grpo", advantage_fn=group_normalised), dict(loss_type="dr_grpo"),
            dict(importance_sampling_level="sequence", loss_type="grpo"), dict(kl_in_loss=True, beta=.04),
            dict(kl_in_loss=True, use_bias_correction_kl=True, beta=.04, loss_type="grpo"),
            dict(epsilon=.05, epsilon_high=.1), dict(kl_in_loss=True, beta=0.)]

def moved(): # a policy, a reference and an older policy that all differ
    return policy(1), frozen_copy(policy(2)), policy(1)

def experience(config):
    new, ref, old = moved()
    roll = rollout(old, ref)
    x = make_group_experience(old, roll, config, task())
    with torch.no_grad():
        for p in new.parameters(): p += .05 * torch.randn(p.shape, generator=seeded(9))
    return new, roll, x

def slow_loss(model, roll, config): # token by token
    mask, b = roll.seqs.response_mask, len(roll)
    logp = logprobs(model, roll.seqs)
    kl = ((roll.logp - roll.ref_logp) * mask).sum(1)
    reward = roll.reward if config.kl_in_loss else roll.reward - config.beta * kl
    a, total = config.advantage_fn(reward, roll.group), 0.
    for i in range(b):
        at = mask[i].nonzero()[:, 0].tolist()
        for t in at:
            d = logp[i, t] - roll.logp[i, t]
            if config.importance_sampling_level == "sequence":
                d = sum(logp[i, s] - roll.logp[i, s] for s in at) / len(at)
            ratio = d.exp()
            clipped = ratio.clamp(1 - config.epsilon, 1 + config.epsilon_high)
            loss = -torch.minimum(ratio * a[i], clipped * a[i])
            if config.kl_in_loss:
                k = kl_k3(logp[i, t], roll.ref_logp[i, t])
                loss = loss + config.beta * k * (ratio if config.use_bias_correction_kl else 1)
            total = total + loss / {"dapo": mask.sum(), "grpo": len(at) * b, "dr_grpo": 6 * b}[config.loss_type]
    return total

@pytest.mark.parametrize("settings", SETTINGS, ids=plain_id)
def test_loss_and_gradient_are_the_slow_loop(settings):
    config = GRPOConfig(**settings)
    model, roll, x = experience(config)
    loss, share, _ = grpo_loss(model, x, config)
    want = slow_loss(model, roll, config)
    assert_close(share, tensor(1.))
    assert_close(loss, want, rtol=1e-4, atol=1e-6)
    for a, b in zip(torch.autograd.grad(loss, list(model.parameters())),
                    torch.autograd.grad(want, list(model.parameters()))):
        assert_close(a, b, rtol=1e-3, atol=1e-6)

@pytest.mark.parametrize("settings", SETTINGS[:5], ids=plain_id)
def test_micro_batches_are_the_batch(settings):
    grads = []
    for m in (1, 4, 64):
        config = GRPOConfig(**settings)
        model, _, x = experience(config)
        trainer = make_trainer(model, TrainConfig(micro_batch_size=m))
        loss, _, metrics = accumulate_gradients(trainer, x, lambda p, part: grpo_loss(p, part, config))
        grads.append((tensor([loss, *metrics.values()]), [p.grad.clone() for p in model.parameters()]))
    for numbers, g in grads[1:]:
        assert_close(numbers, grads[0][0], rtol=1e-4, atol=1e-6)
        for a, b in zip(g, grads[0][1]): assert_close(a, b, rtol=1e-3, atol=1e-6)

@pytest.mark.parametrize("settings", [s for s in SETTINGS if s.get("kl_in_loss") or s == SETTINGS[1]
                                      or "importance_sampling_level" in s], ids=plain_id)
@pytest.mark.skipif(not find_spec("trl"), reason="needs TRL 1.16")
def test_loss_and_gradient_are_trls(settings):
    GRPOTrainer = pytest.importorskip("trl").GRPOTrainer
    config = GRPOConfig(**settings)
    if not config.kl_in_loss: config = replace(config, beta=0.)
    model, roll, x = experience(config)
    mask = roll.seqs.response_mask
    def scored(*_, **__): return logprobs(model, roll.seqs), torch.zeros(mask.shape), None
    def same(y, **_): return y
    trl = SimpleNamespace(
        _get_per_token_logps_and_entropies=scored, aux_loss_enabled=False, top_entropy_quantile=1.,
        off_policy_mask_threshold=None, importance_sampling_level=config.importance_sampling_level,
        beta=config.beta, loss_type=config.loss_type, epsilon_low=config.epsilon, epsilon_high=config.epsilon_high,
        args=SimpleNamespace(use_bias_correction_kl=config.use_bias_correction_kl, delta=None,
                             steps_per_generation=1), use_vllm=False, vllm_importance_sampling_correction=False,
        model=SimpleNamespace(training=True), current_gradient_accumulation_steps=1, max_completion_length=6,
        accelerator=SimpleNamespace(num_processes=1, reduce=same, gather=same), _metrics=defaultdict(
            lambda: defaultdict(list)), _entropy_bonus_enabled=False)
    inputs = dict(prompt_ids=roll.seqs.ids[:, :0], prompt_mask=mask[:, :0].long(), completion_ids=roll.seqs.ids,
                  completion_mask=mask.long(), advantages=x.advantage[:, 0], old_per_token_logps=roll.logp,
                  ref_per_token_logps=roll.ref_logp, num_items_in_batch=mask.sum())
    theirs = GRPOTrainer._compute_loss(trl, model, inputs)
    loss, _, metrics = grpo_loss(model, x, config)
    assert_close(loss, theirs, rtol=1e-5, atol=1e-7)
    for a, b in zip(torch.autograd.grad(loss, list(model.parameters())),
                    torch.autograd.grad(theirs, list(model.parameters()))):
        assert_close(a, b, rtol=1e-4, atol=1e-6)
    if config.importance_sampling_level == "token": assert_close(
        float(metrics["clip_ratio/region_mean"]), trl._metrics["train"]["clip_ratio/region_mean"][0])

def test_the_first_loss_is_0_and_its_gradient_is_not():
    config = GRPOConfig(loss_type="grpo", beta=0.)
    model, ref = policy(1), frozen_copy(policy(1))
    x = make_group_experience(model, rollout(model, ref, 4), config, task())
    loss, _, _ = grpo_loss(model, x, config)
    assert abs(loss) < 1e-6
    assert max(g.abs().max() for g in torch.autograd.grad(loss, list(model.parameters()))) > 1e-3

def test_truncated_responses_can_be_masked():
    model, ref = policy(1), frozen_copy(policy(1))
    roll = rollout(model, ref, 4)
    ended = ((roll.seqs.ids == WORLD.eos) & roll.seqs.response_mask).any(1)
    assert 0 < ended.sum() < len(ended)
    x = make_group_experience(model, roll, GRPOConfig(mask_truncated_completions=True), task())
    assert torch.equal(x.mask.any(1), ended) and (x.weight[~ended] == 0).all()
    assert make_group_experience(model, roll, GRPOConfig(), task()).mask.equal(roll.seqs.response_mask)

def test_a_cap_on_the_sampler_that_is_not_the_trainer():
    model, ref = policy(1), frozen_copy(policy(1))
    roll = rollout(model, ref, 4)
    roll = replace(roll, logp=roll.logp - .5 * roll.seqs.response_mask)   # as if sampled with other numbers
    plain = make_group_experience(model, roll, GRPOConfig(beta=0.), task())
    capped = make_group_experience(model, roll, GRPOConfig(beta=0., importance_sampling_cap=1.2), task())
    m = roll.seqs.response_mask
    assert_close(capped.advantage[m], 1.2 * plain.advantage[m])           # exp(.5) is 1.65, capped
    assert_close(capped.logp[m], (roll.logp + .5)[m], rtol=1e-4, atol=1e-5)

# ---- the trainer

def test_it_learns_and_is_repeatable():
    def run():
        model = policy(1)
        config = GRPOConfig(n_iterations=12, n_prompts=3, num_generations=8, lr=3e-3, beta=0.)
        trainer = train_grpo(model, frozen_copy(model), task(), config, seeded(2))
        return model, [row["reward"] for row in trainer.log.rows if "iteration" in row]
    (a, rewards), (b, again) = run(), run()
    assert weight_hash(a) == weight_hash(b) and rewards == again
    assert sum(rewards[-3:]) > sum(rewards[:3]) + 1.

def test_resumed_equals_uninterrupted(tmp_path):
    config = GRPOConfig(n_iterations=4, n_prompts=2, num_generations=4)
    whole, ref = policy(1), frozen_copy(policy(1))
    train_grpo(whole, ref, task(), config, seeded(2))
    class Stop(Exception): pass
    def stop(row, roll):
        if row["iteration"] == 3: raise Stop
    part = policy(1)
    with pytest.raises(Stop): train_grpo(part, ref, task(), config, seeded(2), tmp_path, stop)
    again = policy(1)
    train_grpo(again, ref, task(), config, seeded(2), tmp_path)
    assert weight_hash(again) == weight_hash(whole)

def test_groups_without_variance_are_counted_and_passed_over():
    def half(seqs): # prompt 0 is always paid alike
        alike = (seqs.attention_mask & ~seqs.response_mask).sum(1) == 1
        return torch.where(alike, 1., (seqs.ids == 1).sum(1).float())
    model = policy(1)
    trainer = make_trainer(model, TrainConfig())
    config = GRPOConfig(n_prompts=1, num_generations=6, dynamic_sampling=3)
    roll, row = sample_groups(trainer, frozen_copy(model), task(half), config, seeded(3))
    assert row["n_responses"] == 18 and row["frac_reward_zero_std"] >= 1 / 3 - 1e-6
    assert len(roll) == 6 and len(roll.group.unique()) == 1 and roll.reward.std() > 0
    whole, row = sample_groups(trainer, frozen_copy(model), task(half), replace(config, dynamic_sampling=1, n_prompts=3),
                               seeded(3))
    assert len(whole) == 18

def test_nothing_is_learned_from_groups_that_are_all_alike():
    model = policy(1)
    before = weight_hash(model)
    train_grpo(model, frozen_copy(model), task(lambda s: torch.ones(len(s))),
               GRPOConfig(n_iterations=2, n_prompts=2, num_generations=3, dynamic_sampling=2), seeded(0))
    assert weight_hash(model) == before

def test_leave_one_out_is_unbiased_where_everything_is_listed():
    "All pairs of answers, weighted by their probability, give the exact policy gradient."
    from rlhf_nb.best_policy import exact_gradient
    from rlhf_nb.oracle import all_logprobs
    lm = bigram_lm(WORLD)
    logp = all_logprobs(lm, WORLD)
    p, reward = logp.exp().detach(), torch.randn(40, generator=seeded(1)).double()
    i, j = torch.cartesian_prod(torch.arange(40), torch.arange(40)).T
    group = torch.arange(len(i))
    a = leave_one_out(torch.cat([reward[i], reward[j]]), torch.cat([group, group]))[:len(i)]
    w = torch.zeros(40).double().index_add(0, i, a * p[i] * p[j])
    got, = torch.autograd.grad((w * logp).sum(), lm.head.weight)
    assert_close(got, exact_gradient(lm, WORLD, reward)["head.weight"], rtol=1e-8, atol=1e-12)

@pytest.mark.parametrize("bad", [dict(num_generations=1), dict(loss_type="mean"), dict(epsilon=1.5), dict(beta=-.1),
    dict(beta=NAN), dict(lr=math.inf), dict(n_prompts=2.5), dict(importance_sampling_level="word"),
    dict(temperature=0.), dict(dynamic_sampling=0), dict(advantage_fn="std")], ids=str)
def test_settings_are_refused(bad):
    with pytest.raises((ValueError, TypeError)): GRPOConfig(**bad)

def test_runs_that_cannot_work_are_refused():
    model = policy(1)
    same_weights = torch.nn.Sequential(model)
    with pytest.raises(ValueError, match="frozen_copy"):
        train_grpo(model, same_weights, task(), GRPOConfig(), seeded())
    with pytest.raises(ValueError, match="top-p"):
        train_grpo(model, frozen_copy(model), replace(task(), sampling=SamplingParams(6, top_p=.9)), GRPOConfig(), seeded())

def test_groups_are_sampled_in_batches_of_their_own(monkeypatch):
    from rlhf_nb import sampling
    from rlhf_nb.grpo_trainer import sample_groups
    rows, real, ids = [], sampling._respond, []
    def respond(model, prompts, *args):
        rows.append(len(prompts))
        return real(model, prompts, *args)
    monkeypatch.setattr(sampling, "_respond", respond)
    for n in (0, 4):
        trainer = make_trainer(policy(), TrainConfig())
        config = GRPOConfig(n_prompts=2, num_generations=5, micro_batch_size=10, generation_batch_size=n)
        ids.append(sample_groups(trainer, frozen_copy(trainer.model), task(), config, seeded())[0].seqs.ids)
    assert rows == [10, 4, 4, 2] and torch.equal(*ids)

def test_groups_check_what_they_share_with_ppo():
    for name, value in (("save_every", 0), ("generation_batch_size", -1), ("max_grad_norm", 0.), ("final_lr_frac", 2.),
                        ("warmup_steps", -1), ("weight_decay", -1.), ("n_iterations", 0)):
        with pytest.raises(ValueError, match=rf"GRPOConfig\.{name} must be"): GRPOConfig(**{name: value})
    assert GRPOConfig(max_grad_norm=math.inf).micro_batch_size == 128
