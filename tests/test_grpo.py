"Groups: advantages and weights by hand, the loss against a slow loop and TRL, the plugs, the trainer."
import json, math, re, pytest, torch
from collections import defaultdict
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from conftest import plain_id
from torch import tensor
from torch.testing import assert_close
from rlhf_nb.base.learning import TrainConfig, accumulate_gradients, make_trainer
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.models import frozen_copy, tiny_lm
from rlhf_nb.base.settings import weight_hash
from rlhf_nb.base.sampling import SamplingParams, collect_rollout
from rlhf_nb.grpo import (ADVANTAGES, LOSS_WEIGHTS, TOKEN_LOSSES, group_centered, group_normalised,
    leave_one_out, loss_weights, mean_baseline, pass_at_k)
from rlhf_nb.kl import kl_k3
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, grpo_loss, make_group_experience, sample_groups, train_grpo
from rlhf_nb.trainers.ppo_trainer import RLTask, WeightedRewards, reward_metrics
from rlhf_nb.worlds.oracle import micro_tokenizer, micro_world

WORLD = micro_world()
TOK = micro_tokenizer(WORLD)
NAN = math.nan
def seeded(seed=0): return torch.Generator().manual_seed(seed)
def policy(seed=0): return tiny_lm(TOK, hidden=32, layers=1, seed=seed).requires_grad_()
def task(reward=lambda seqs: (seqs.ids == 1).sum(1).float()):
    return RLTask([[WORLD.start], [WORLD.start, 0], [WORLD.start, 2, 1]], reward, TOK, SamplingParams(6))

# ---- advantages and weights
def groups(*rewards): # lists of rewards -> (b), (b)
    group = [i for i, r in enumerate(rewards) for _ in r]
    return tensor([float(x) for r in rewards for x in r]), tensor(group)

a, b = .5 / (math.sqrt(1 / 3) + 1e-4), 3 / (math.sqrt(18.) + 1e-4)
@pytest.mark.parametrize("fn, rewards, want", [
    (leave_one_out, [[1, 0, 0], [5, 7], [4], [2, NAN, 8], [NAN, 3]], [1., -.5, -.5, -2., 2., 0., -6., 0., 6., 0., 0.]),
    (group_centered, [[1, 0, 0, 1], [3, 3], [2, NAN, 8]], [.5, -.5, -.5, .5, 0., 0., -3., 0., 3.]),
    (group_normalised, [[1, 0, 0, 1], [3, 3], [2, NAN, 8]], [a, -a, -a, a, 0., 0., -b, 0., b]),
    (mean_baseline, [[1, 0], [5, NAN]], [-1., -2., 3., 0.])])
def test_advantages_by_hand_and_in_any_order(fn, rewards, want):
    assert_close(fn(*groups(*rewards)), tensor(want))
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

def test_weights_by_hand_and_the_words_that_are_not_known():
    mask = tensor([[0, 1, 1, 1, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()
    want = dict(dapo=mask / 4., grpo=mask * tensor([[1 / 9], [1 / 3], [0.]]), dr_grpo=mask / 21.)
    assert {*want, "sum"} == LOSS_WEIGHTS.keys()
    assert_close(LOSS_WEIGHTS["sum"](mask, max_length=7), mask / 3.)
    for name, weights in want.items():
        assert_close(loss_weights(mask, name, 7), weights)
        assert_close(LOSS_WEIGHTS[name](mask, max_length=7), weights)
    with pytest.raises(ValueError, match="dapo, grpo or dr_grpo, got 'mean'"): loss_weights(mask, "mean", 7)

def test_pass_at_k():
    assert_close(pass_at_k(tensor([0, 1, 2, 4]), 4, 2), tensor([0., .5, 5 / 6, 1.]))
    assert_close(pass_at_k(tensor([3]), 10, 1), tensor([.3]))
    for k in (0, 5):
        with pytest.raises(ValueError, match="1 <= k <= n = 4"): pass_at_k(tensor([1]), 4, k)

# ---- the loss
SETTINGS = [dict(), dict(loss_type="grpo", advantage_fn="group_normalised"), dict(loss_type="dr_grpo"),
            dict(importance_sampling_level="sequence", loss_type="grpo"), dict(kl_in_loss=True, beta=.04),
            dict(kl_in_loss=True, use_bias_correction_kl=True, beta=.04, loss_type="grpo"),
            dict(epsilon=.05, epsilon_high=.1), dict(kl_in_loss=True, beta=0.)]

def rollout(model, ref, n=2):
    t = task()
    return collect_rollout(model, ref, t.prompts, lambda s: torch.randn(len(s), generator=seeded(5)), TOK,
                           t.sampling, seeded(3), n)

def experience(config): # of a policy that has moved since it sampled
    new, ref, old = policy(1), frozen_copy(policy(2)), policy(1)
    roll = rollout(old, ref)
    x = make_group_experience(roll, config, task())
    with torch.no_grad():
        for p in new.parameters(): p += .05 * torch.randn(p.shape, generator=seeded(9))
    return new, roll, x

def same_gradients(loss, want, model, rtol):
    for a, b in zip(*(torch.autograd.grad(x, list(model.parameters())) for x in (loss, want))):
        assert_close(a, b, rtol=rtol, atol=1e-6)

def slow_loss(model, roll, config, loss_type): # token by token
    mask, b = roll.seqs.response_mask, len(roll)
    logp, kl = logprobs(model, roll.seqs), ((roll.logp - roll.ref_logp) * mask).sum(1)
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
            total = total + loss / {"dapo": mask.sum(), "grpo": len(at) * b, "dr_grpo": 6 * b}[loss_type]
    return total

@pytest.mark.parametrize("settings", SETTINGS, ids=plain_id)
def test_loss_and_gradient_are_the_slow_loop_in_any_micro_batches(settings):
    config = GRPOConfig(**settings)
    model, roll, x = experience(config)
    loss, share, metrics = grpo_loss(model, x, config)
    want = slow_loss(model, roll, config, settings.get("loss_type", "dapo"))
    assert_close(share, tensor(1.))
    assert_close(loss, want, rtol=1e-4, atol=1e-6)
    same_gradients(loss, want, model, 1e-3)
    whole = torch.autograd.grad(grpo_loss(model, x, config)[0], list(model.parameters()))
    for m in (1, 4):
        trainer = make_trainer(model, TrainConfig(micro_batch_size=m))
        trainer.optimizer.zero_grad()
        total, _, sums = accumulate_gradients(trainer, x, lambda p, part: grpo_loss(p, part, config))
        assert_close(tensor([total, *sums.values()]), torch.stack([loss, *metrics.values()]).detach(), rtol=1e-4, atol=1e-6)
        for p, g in zip(model.parameters(), whole): assert_close(p.grad, g, rtol=1e-3, atol=1e-6)

@pytest.mark.parametrize("settings", [s for s in SETTINGS if s.get("kl_in_loss") or s == SETTINGS[1]
                                      or "importance_sampling_level" in s], ids=plain_id)
@pytest.mark.skipif(not find_spec("trl"), reason="needs TRL 1.16")
def test_loss_and_gradient_are_trls(settings):
    GRPOTrainer, config = pytest.importorskip("trl").GRPOTrainer, GRPOConfig(**settings)
    if not config.kl_in_loss: config = replace(config, beta=0.)
    model, roll, x = experience(config)
    mask = roll.seqs.response_mask
    def scored(*_, **__): return logprobs(model, roll.seqs), torch.zeros(mask.shape), None
    def same(y, **_): return y
    trl = SimpleNamespace(
        _get_per_token_logps_and_entropies=scored, aux_loss_enabled=False, top_entropy_quantile=1.,
        off_policy_mask_threshold=None, importance_sampling_level=config.importance_sampling_level, beta=config.beta,
        loss_type=settings.get("loss_type", "dapo"), epsilon_low=config.epsilon, epsilon_high=config.epsilon_high,
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
    same_gradients(loss, theirs, model, 1e-4)
    if config.importance_sampling_level == "token": assert_close(
        float(metrics["clip_ratio/region_mean"]), trl._metrics["train"]["clip_ratio/region_mean"][0])

def test_truncated_responses_can_be_masked():
    model, ref = policy(1), frozen_copy(policy(1))
    roll = rollout(model, ref, 4)
    ended = ((roll.seqs.ids == WORLD.eos) & roll.seqs.response_mask).any(1)
    assert 0 < ended.sum() < len(ended)
    x = make_group_experience(roll, GRPOConfig(mask_truncated_completions=True), task())
    assert torch.equal(x.mask.any(1), ended) and (x.weight[~ended] == 0).all()
    assert make_group_experience(roll, GRPOConfig(), task()).mask.equal(roll.seqs.response_mask)

# ---- a method is three functions
def test_a_word_stands_for_its_function_and_a_slip_brings_the_nearest():
    for field, table in (("token_loss", TOKEN_LOSSES), ("advantage_fn", ADVANTAGES), ("loss_type", LOSS_WEIGHTS)):
        for word, fn in table.items():
            assert getattr(GRPOConfig(**{field: word}), field) is getattr(GRPOConfig(**{field: fn}), field) is fn
            with pytest.raises(ValueError, match=rf"no GRPOConfig\.{field} '{word}x'; did you mean"): GRPOConfig(**{field: word + "x"})
        with pytest.raises(ValueError, match=f"there are {next(iter(table))}"): GRPOConfig(**{field: "?"})
        with pytest.raises(TypeError, match="a function"): GRPOConfig(**{field: 3})

@pytest.mark.parametrize("token_loss", TOKEN_LOSSES.values(), ids=plain_id)
def test_at_ratio_1_every_token_loss_is_a_policy_gradient(token_loss):
    log_ratio, advantage = torch.zeros(2, 3, requires_grad=True), torch.randn(2, 3, generator=seeded())
    loss = token_loss(log_ratio.exp(), advantage, .2, .28)
    assert loss.shape == (2, 3)
    assert_close(torch.autograd.grad(loss.sum(), log_ratio)[0], -advantage)

def test_cispo_clips_the_weight_of_a_token_and_not_its_gain():
    log_ratio = tensor([.5, 1.1, 2.]).log().requires_grad_()
    loss = TOKEN_LOSSES["cispo"](log_ratio.exp(), tensor([2., -1., 3.]), .2, .28)
    assert_close(torch.autograd.grad(loss.sum(), log_ratio)[0], -tensor([.8 * 2, -1.1, 1.28 * 3]))

def test_sapos_gate_is_soft_and_the_steeper_for_what_was_bad():
    log_ratio = tensor([.5, 2., .5, 2.]).log().requires_grad_()
    loss = TOKEN_LOSSES["sapo"](log_ratio.exp(), tensor([2., 2., -1., -1.]), .2, .28)
    gate = lambda tau, x: 4 * x / (2 + math.exp(tau * (x - 1)) + math.exp(tau * (1 - x)))      # 4 σ (1 - σ) ρ
    want = [-2 * gate(1, .5), -2 * gate(1, 2), gate(1.05, .5), gate(1.05, 2)]
    assert_close(torch.autograd.grad(loss.sum(), log_ratio)[0], tensor(want))

def gmpo(ratio, advantage, epsilon, epsilon_high): # Zhao et al. 2025: one geometric mean of clipped ratios a response
    sign, n = advantage.sign(), (advantage != 0).sum(-1, keepdim=True)
    log = torch.minimum(sign * ratio.log(), sign * ratio.clamp(1 - epsilon, 1 + epsilon_high).log()) * sign
    return -advantage * (log.sum(-1, keepdim=True) / n).exp()

@pytest.mark.parametrize("token_loss", [*TOKEN_LOSSES.values(), gmpo], ids=plain_id)
def test_what_stands_outside_the_responses_changes_no_token_loss(token_loss):
    config = GRPOConfig(token_loss=token_loss, epsilon=.1, epsilon_high=.15)
    model, roll, x = experience(config)
    noise = torch.randn(x.mask.shape, generator=seeded()) * ~x.mask
    other = replace(x, logp=x.logp + noise, advantage=x.advantage + noise)
    loss, moved = (grpo_loss(model, y, config)[0] for y in (x, other))
    assert (noise != 0).any() and abs(loss) > .01
    assert_close(moved, loss, rtol=0, atol=0)
    same_gradients(loss, moved, model, 1e-6)

def test_a_token_loss_may_reduce_over_a_response():
    config = GRPOConfig(token_loss=gmpo, epsilon=.1, epsilon_high=.15, loss_type="grpo")
    model, roll, x = experience(config)
    ratio, want = (logprobs(model, roll.seqs) - roll.logp).exp(), 0.
    for r, a, m in zip(ratio, x.advantage[:, :1], x.mask):
        r = r[m]
        clipped = r.clamp(max=1.15) if a > 0 else r.clamp(min=.9)
        want = want - a * clipped.log().mean().exp() / len(ratio)
    assert (ratio[x.mask] > 1.15).any()
    assert_close(grpo_loss(model, x, config)[0], want.sum(), rtol=1e-4, atol=1e-6)

def test_functions_of_ones_own_make_the_loss():
    seen = {}
    def advantage(reward, group): return 0. * reward + 2.
    def token_loss(ratio, advantage, epsilon, epsilon_high):
        seen.update(ratio=ratio.shape, advantage=advantage.shape, ends=(epsilon, epsilon_high))
        return ratio * advantage
    def weights(mask, max_length):
        seen["length"] = max_length
        return mask / 10.
    config = GRPOConfig(advantage_fn=advantage, token_loss=token_loss, loss_type=weights, epsilon=.1, epsilon_high=.3)
    model, roll, x = experience(config)
    mask = roll.seqs.response_mask
    ratio = (logprobs(model, roll.seqs) - roll.logp).exp()
    assert_close(grpo_loss(model, x, config)[0], (ratio * 2 * mask / 10).sum(), rtol=1e-4, atol=1e-6)
    assert seen == dict(ratio=mask.shape, advantage=mask.shape, ends=(.1, .3), length=6)

def test_the_page_on_adding_a_method_shows_lines_that_are_there():
    root = Path(__file__).parents[1]
    diff = (root/"CONTRIBUTING.md").read_text("utf-8").split("```diff\n")[1].split("```")[0]
    parts = re.split(r"^--- ([\w/.]+): .*\n", diff, flags=re.M)[1:]
    for file, lines in zip(parts[::2], parts[1::2]):
        text = (root/file).read_text("utf-8")
        if file.endswith("ipynb"): text = "\n".join("".join(c["source"]) for c in json.loads(text)["cells"])
        added = [line[1:] for line in lines.splitlines() if line.startswith("+")]
        assert added and set(added) <= set(text.splitlines()), f"{file}: {set(added) - set(text.splitlines())}"
    assert len(parts) == 8 and sum(line[:1] in "+-" for line in diff.splitlines() if line) <= 60

# ---- several rewards, each normalised in its group before they are summed
def test_one_answer_to_a_prompt_for_an_advantage_that_needs_no_group():
    for fn in (mean_baseline, lambda reward, group: reward): GRPOConfig(num_generations=1, advantage_fn=fn)
    for fn in ADVANTAGES.values():
        if fn is mean_baseline: continue
        with pytest.raises(ValueError, match="a group needs two responses"): GRPOConfig(num_generations=1, advantage_fn=fn)

def apart(**more): return GRPOConfig(**dict(n_prompts=2, num_generations=3, advantage_fn="group_normalised", beta=0.,
                                            multi_objective_aggregation="normalize_then_sum") | more)
def paid(**rewards): # name -> weight and numbers of 6 rows
    return WeightedRewards({name: (w, lambda seqs, x=x: tensor(x)[:len(seqs)]) for name, (w, x) in rewards.items()})

def test_rewards_apart_by_hand():
    "Two groups of three with unequal numbers; one reward is silent on a row, one on a group, all on the last row."
    two = paid(a=(2., [1., 4., 1., 0., 6., NAN]), b=(-.5, [NAN, 10., 30., NAN, NAN, NAN]))
    two(torch.zeros(6))
    s, d = 3**.5, 2**.5                     # a: -1 2 -1 over √3, then -3 3 over √18; b: -10 10 over √200
    want = [-2 / s, 4 / s + .5 / d, -2 / s - .5 / d, -2 / d, 2 / d, NAN]
    assert_close(two.apart(3), tensor(want), rtol=2e-4, atol=0, equal_nan=True)
    assert_close(two(torch.zeros(6)), tensor([2., 3., -13., 0., 12., NAN]), equal_nan=True)
    found = reward_metrics(two)
    assert found.pop("rewards/a/std") == pytest.approx(math.sqrt((1.4**2 * 2 + 1.6**2 + 2.4**2 + 3.6**2) / 4))
    assert found == pytest.approx({"rewards/a/mean": 2.4, "rewards/b/mean": 20., "rewards/b/std": math.sqrt(200)})
    assert reward_metrics(lambda seqs: seqs) == {}
    none = paid(a=(1., [NAN] * 3), b=(1., [NAN, 7., NAN]))
    assert none(torch.zeros(3)).isnan().tolist() == [True, False, True] and none.apart(3)[1] == 0
    assert all(map(math.isnan, (reward_metrics(none)[f"rewards/a/{k}"] for k in ("mean", "std")))) and reward_metrics(none)["rewards/b/std"] == 0

def trls_advantages(rewards, weights, n): # (b k), the formula of TRL 1.16's normalize_then_sum in plain Python
    def moments(x):
        x = [v for v in x if not math.isnan(v)]
        mean = sum(x) / len(x) if x else NAN
        return mean, math.sqrt(sum((v - mean)**2 for v in x) / (len(x) - 1)) if len(x) > 1 else NAN
    sums = []
    for i, row in enumerate(rewards):
        total, seen = 0., False
        for k, r in enumerate(row):
            mean, std = moments([x[k] for x in rewards[i // n * n:i // n * n + n]])
            if not math.isnan((r - mean) / (std + 1e-4)): total += weights[k] * (r - mean) / (std + 1e-4)
            seen |= not math.isnan(r)
        sums.append(total if seen else NAN)
    mean, std = moments(sums)
    return [0. if math.isnan(x) else (x - mean) / (std + 1e-4) for x in sums]

def test_advantages_are_trls_and_a_kl_in_the_reward_is_compared_within_its_group():
    rewards = [[1., NAN], [4., 10.], [1., 30.], [0., NAN], [6., NAN], [NAN, NAN], [5., 1.], [5., 0.], [5., 0.]]
    two = paid(a=(2., [r[0] for r in rewards]), b=(-.5, [r[1] for r in rewards]))
    two(torch.zeros(9))
    roll = rollout(policy(1), policy(3), 3)[torch.arange(9)]
    roll = replace(roll, group=torch.arange(9) // 3, reward=two.apart(3))
    x = make_group_experience(roll, apart(), task())
    assert_close(x.advantage[:, 0], tensor(trls_advantages(rewards, (2., -.5), 3)), rtol=1e-4, atol=1e-5)
    assert x.advantage[8, 0] != 0 == x.advantage[5, 0] and x.advantage[:, 0].std() == pytest.approx(math.sqrt(7 / 8), abs=1e-3)
    kl = ((roll.logp - roll.ref_logp) * roll.seqs.response_mask).sum(1)
    a, scored = roll.reward - .3 * kl, ~roll.reward.isnan()
    for i in range(3): a[i * 3:i * 3 + 3] -= a[i * 3:i * 3 + 3].nanmean()
    got = make_group_experience(roll, apart(beta=.3), task()).advantage[:, 0]
    assert_close(got, (a / (a[scored].std() + 1e-4)).nan_to_num(0.), rtol=1e-4, atol=1e-5)
    assert_close(make_group_experience(roll, apart(beta=.3, kl_in_loss=True), task()).advantage, x.advantage)

def test_equal_sums_tie_in_a_sum_and_not_apart():
    "Each of six answers is paid once, by a reward that pays one, two or three of them."
    three = paid(one=(1., [1., 0., 0., 0., 0., 0.]), two=(1., [0., 1., 1., 0., 0., 0.]), three=(1., [0., 0., 0., 1., 1., 1.]))
    model = policy(1)
    def sampled(**more): return sample_groups(make_trainer(model, TrainConfig()), frozen_copy(model), task(three),
                                              apart(n_prompts=1, num_generations=6, **more), seeded())
    roll, row, _, worth = sampled()
    assert roll.reward.tolist() == [1.] * 6 and row["reward"] == 1 and row["reward_std"] == row["frac_reward_zero_std"] == 0
    z = [math.sqrt(5 * (6 - k) / (6 * k)) for k in (1, 2, 3)]            # paid to k of 6: (1 - k/6) / std; the others get -z k / (6 - k)
    none = [-x * k / (6 - k) for x, k in zip(z, (1, 2, 3))]
    want = [z[0] + none[1] + none[2]] + [none[0] + z[1] + none[2]] * 2 + [none[0] + none[1] + z[2]] * 3
    assert_close(worth, tensor(want), rtol=1e-3, atol=1e-3)
    assert want[0] > .48 > 0 > want[1] > want[3] and row["rewards/two/mean"] == pytest.approx(1 / 3)
    _, row, _, worth = sampled(multi_objective_aggregation="sum_then_normalize")
    assert row["frac_reward_zero_std"] == 1 and worth.tolist() == [1.] * 6

def test_what_normalize_then_sum_needs():
    with pytest.raises(ValueError, match="set advantage_fn=group_normalised"): apart(advantage_fn="leave_one_out")
    with pytest.raises(ValueError, match="one of.*normalize_then_sum"): apart(multi_objective_aggregation="normalise_then_sum")
    model = policy(1)
    with pytest.raises(ValueError, match="give RLTask WeightedRewards"): train_grpo(model, frozen_copy(model), task(), apart(), seeded())

def test_scales_and_shifts_of_a_reward_change_nothing_apart_and_the_first_reward_wins_a_sum():
    "A run is the same when one reward is written in other units; in a sum the larger units win."
    def run(scale, **more):
        def first(seqs): return scale * (seqs.ids == 1).sum(1).float()
        def second(seqs): return (seqs.ids == 2).sum(1).float()
        model = policy(1).double()
        config = apart(n_iterations=6, num_generations=6, lr=3e-3, **more)
        both = WeightedRewards(dict(first=(1., first), second=(1., second)))
        rows = [r for r in train_grpo(model, frozen_copy(model), task(both), config, seeded(2)).log.rows if "iteration" in r]
        return [[r[f"rewards/{k}/mean"] / (scale if k == "first" else 1) for r in rows] for k in ("first", "second")]
    a, b = run(1.), run(1000.)
    assert_close(tensor(a), tensor(b), rtol=1e-5, atol=1e-6)
    c = run(1000., multi_objective_aggregation="sum_then_normalize")
    assert a != c

# ---- the trainer
def test_it_learns_is_repeatable_and_resumes(tmp_path):
    class Stop(Exception): pass
    def stop(row, roll):
        if row["iteration"] == 9: raise Stop
    config = GRPOConfig(n_iterations=12, n_prompts=3, num_generations=8, lr=3e-3, beta=0.)
    def run(*folder_and_callback):
        model = policy(1)
        trainer = train_grpo(model, frozen_copy(model), task(), config, seeded(2), *folder_and_callback)
        return weight_hash(model), [row["reward"] for row in trainer.log.rows if "iteration" in row]
    whole, rewards = run()
    assert sum(rewards[-3:]) > sum(rewards[:3]) + 1.
    with pytest.raises(Stop): run(tmp_path, stop)
    assert run(tmp_path) == (whole, rewards)

def test_groups_without_variance_are_counted_and_passed_over():
    def half(seqs): # prompt 0 is always paid alike
        alike = (seqs.attention_mask & ~seqs.response_mask).sum(1) == 1
        return torch.where(alike, 1., (seqs.ids == 1).sum(1).float())
    model = policy(1)
    trainer = make_trainer(model, TrainConfig())
    config = GRPOConfig(n_prompts=1, num_generations=6, dynamic_sampling=3)
    every, row, rows, _ = sample_groups(trainer, frozen_copy(model), task(half), config, seeded(3))
    roll = every[rows]
    assert len(every) == row["n_responses"] == 18 and row["frac_reward_zero_std"] >= 1 / 3 - 1e-6
    assert len(roll) == 6 and len(roll.group.unique()) == 1 and roll.reward.std() > 0
    config = replace(config, dynamic_sampling=1, n_prompts=3)
    assert len(sample_groups(trainer, frozen_copy(model), task(half), config, seeded(3))[0]) == 18

def test_the_log_of_a_rollout_has_the_mean_over_its_steps_and_no_kl_that_trl_calls_so():
    "TRL's kl is k3 per token in a step; ours is k1 per response as it was sampled, and PPO's name for that."
    model, ref = policy(1), policy(3)
    config = GRPOConfig(n_iterations=1, n_prompts=2, num_generations=4, num_iterations=3, lr=.05, warmup_steps=0, epsilon=.05)
    *steps, row = train_grpo(model, ref, task(), config, seeded(0)).log.rows
    assert len(steps) == 3 and len({step["entropy"] for step in steps}) == 3 and "kl" not in row
    for name in ("entropy", "clip_ratio/region_mean"): assert row[name] == pytest.approx(sum(step[name] for step in steps) / 3)
    assert row["clip_ratio/region_mean"] > 0 == steps[0]["clip_ratio/region_mean"]

def test_a_rollout_without_any_score_is_refused():
    model = policy(1)
    def first(n): # the first n responses have a score
        def reward(seqs): return torch.where(torch.arange(len(seqs)) < n, 1., NAN)
        config = GRPOConfig(n_prompts=2, num_generations=2)
        return sample_groups(make_trainer(model, TrainConfig()), frozen_copy(model), task(reward), config, seeded())[1]["reward"]
    assert first(2) == 1.
    with pytest.raises(ValueError, match="no response of this rollout has a score: all 4 are nan"): first(0)

def test_nothing_is_learned_from_groups_that_are_all_alike():
    model = policy(1)
    before = weight_hash(model)
    train_grpo(model, frozen_copy(model), task(lambda s: torch.ones(len(s))),
               GRPOConfig(n_iterations=2, n_prompts=2, num_generations=3, dynamic_sampling=2), seeded(0))
    assert weight_hash(model) == before

def test_groups_are_sampled_in_batches_of_their_own(sampled_sizes):
    ids = []
    for n in (0, 4):
        trainer = make_trainer(policy(), TrainConfig())
        config = GRPOConfig(n_prompts=2, num_generations=5, micro_batch_size=10, generation_batch_size=n)
        ids.append(sample_groups(trainer, frozen_copy(trainer.model), task(), config, seeded())[0].seqs.ids)
    assert sampled_sizes == [10, 4, 4, 2] and torch.equal(*ids)

@pytest.mark.parametrize("bad", [dict(num_generations=1), dict(epsilon=1.5), dict(beta=-.1), dict(beta=NAN), dict(lr=math.inf),
    dict(n_prompts=2.5), dict(importance_sampling_level="word"), dict(temperature=0.), dict(dynamic_sampling=0),
    dict(save_every=0), dict(generation_batch_size=-1), dict(max_grad_norm=0.), dict(final_lr_frac=2.), dict(warmup_steps=-1),
    dict(weight_decay=-1.), dict(n_iterations=0)], ids=str)
def test_settings_are_refused(bad):
    with pytest.raises((ValueError, TypeError), match=next(iter(bad))): GRPOConfig(**bad)
    assert GRPOConfig(max_grad_norm=math.inf).micro_batch_size == 128

def test_runs_that_cannot_work_are_refused():
    model = policy(1)
    with pytest.raises(ValueError, match="frozen_copy"):
        train_grpo(model, torch.nn.Sequential(model), task(), GRPOConfig(), seeded())
    with pytest.raises(ValueError, match="top-p"):
        train_grpo(model, frozen_copy(model), replace(task(), sampling=SamplingParams(6, top_p=.9)), GRPOConfig(), seeded())
