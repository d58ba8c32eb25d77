"PPO against enumeration, autograd in float64, and runs that are cut, killed and spoiled."
import math
from dataclasses import replace
import pytest
import torch
from torch import nn
from torch.testing import assert_close
from rlhf_nb.kl import AdaptiveKLController, exact_kl, kl_k3
from rlhf_nb.learning import list_checkpoints, make_trainer, TrainConfig, accumulate_gradients
from rlhf_nb.models import ScalarModel, frozen_copy, weight_hash
from rlhf_nb.oracle import (all_logprobs, expectation, bigram_lm, micro_tokenizer, micro_world,
                            optimal_policy)
from rlhf_nb.ppo import (
    METRICS, PPOConfig, ActorCritic, Experience, RLTask, checked_reward_fn, clipped_policy_loss, clipped_value_loss, gae,
    generate_best_of_n, make_experience, next_prompts, ppo_loss, ppo_rewards, reward_mask, rollout_metrics,
    sample_printer, train_ppo)
from rlhf_nb.sampling import SamplingParams, collect_rollout
from rlhf_nb.tokens import Rollout, Seqs, make_seqs

torch.set_num_threads(1)
WORLD = micro_world()
TOK = micro_tokenizer(WORLD)
NUMBER = {response: i for i, response in enumerate(WORLD.responses())}
REWARD = torch.tensor([w.count("kind") - w.count("rude") for w in WORLD.texts()]).float()


def seeded(seed=0): return torch.Generator().manual_seed(seed)


def reward_fn(seqs):
    responses = [tuple(row[m].tolist()) for row, m in zip(seqs.ids, seqs.response_mask)]
    return REWARD[[NUMBER[y] for y in responses]]


def actor(seed=0):
    policy = bigram_lm(WORLD).float()
    model = ActorCritic(policy, ScalarModel.from_lm(policy, seed))
    with torch.no_grad(): model.critic.score.weight.normal_(generator=seeded(seed))
    return model


TASK = RLTask([[WORLD.start]] * 5, reward_fn, TOK, SamplingParams(WORLD.max_len))
SMALL = PPOConfig(n_iterations=4, n_prompts=24, n_minibatches=3, lr=.05, beta=.5, micro_batch_size=24)


def rollout(model, n=32, seed=0):
    return collect_rollout(model.policy, frozen_copy(bigram_lm(WORLD).float()), [[WORLD.start]] * n, reward_fn, TOK,
                   TASK.sampling, seeded(seed))


def slow_gae(r, v, gamma, lam):
    "From the definition: A_t = sum of (gamma lam)^l delta_{t+l}."
    v = v + [0.]
    delta = [r[t] + gamma * v[t + 1] - v[t] for t in range(len(r))]
    return [sum((gamma * lam)**l * d for l, d in enumerate(delta[t:])) for t in range(len(r))]


@pytest.mark.parametrize("gamma,lam", [(1., .95), (.9, .5), (.7, 1.), (1., 0.)])
def test_gae_is_its_definition_row_by_row(gamma, lam):
    g, mask = seeded(3), torch.zeros(4, 7, dtype=torch.bool)
    spans = [(1, 7), (2, 4), (3, 3), (6, 7)]                # full, inner, empty, one token
    for i, (a, b) in enumerate(spans): mask[i, a:b] = True
    r, v = torch.randn(2, 4, 7, generator=g).double()
    spoiled = [x.masked_fill(~mask, math.nan) for x in (r, v)]
    advantage, returns = gae(*spoiled, mask, gamma, lam)
    for i, (a, b) in enumerate(spans):
        want = torch.tensor(slow_gae(r[i, a:b].tolist(), v[i, a:b].tolist(), gamma, lam))
        assert_close(advantage[i, a:b], want.double())
    assert_close(returns, (advantage + v).masked_fill(~mask, 0.))
    assert not advantage[~mask].any()


def test_losses_by_finite_differences():
    g = seeded(1)
    old, A, ret = torch.randn(3, 2, 5, generator=g).double()
    now = (old + .3 * torch.randn(2, 5, generator=g)).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: clipped_policy_loss(x, old, A, .2), now)
    assert torch.autograd.gradcheck(lambda x: clipped_value_loss(x, old, ret, .2), now)


def test_first_step_is_the_policy_gradient():
    "With ratio 1 the clipped loss has the gradient of -advantage * log p."
    model = actor()
    x = make_experience(model, rollout(model), SMALL, WORLD.eos)
    loss, n, sums = ppo_loss(model, x, replace(SMALL, vf_coef=0.))
    got = torch.autograd.grad(loss, model.policy.head.weight)[0]
    from rlhf_nb.models import logprobs
    want = torch.autograd.grad(-(x.advantage * logprobs(model.policy, x.seqs)).sum(),
                               model.policy.head.weight)[0]
    assert_close(got, want)
    assert_close(sums["val/ratio"] / n, torch.tensor(1.))
    assert n == x.seqs.response_mask.sum()


@pytest.mark.parametrize("parts", [(32,), (1, 31), (10, 10, 12)])
def test_split_row_order_and_padding_do_not_matter(parts):
    model, config = actor(), replace(SMALL, entropy_coef=.1)
    x = make_experience(model, rollout(model), config, WORLD.eos)
    with torch.no_grad(): model.policy.head.weight[:4] += .3 * torch.randn(4, 13, generator=seeded(2))
    def gradient(batches):
        model.zero_grad()
        sums = [ppo_loss(model, b, config) for b in batches]
        (sum(s[0] for s in sums) / sum(s[1] for s in sums)).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    whole = gradient([x])
    assert_close(gradient([b.trim() for b in split(x, parts)]), whole)
    assert_close(gradient([x[torch.randperm(len(x), generator=seeded(5))]]), whole)
    wide = Experience(*[pad(p) for p in x._parts()])
    assert_close(gradient([wide]), whole)


def split(x, parts):
    at = 0
    for n in parts: yield x[at:at + n]; at += n


def pad(x): # three more columns of padding
    if isinstance(x, Seqs): return Seqs(
        nn.functional.pad(x.ids, (0, 3), value=WORLD.pad),
        *[nn.functional.pad(m, (0, 3)) for m in (x.attention_mask, x.response_mask)])
    return nn.functional.pad(x, (0, 3))


def test_values_do_not_see_their_own_token():
    model = actor()
    a = make_seqs([[WORLD.start]] * 2, [[0, 1, 3], [0, 2, 3]], WORLD.pad)
    values = model.values(a)
    assert_close(values[0, 1:3], values[1, 1:3])         # same past, another token
    assert abs(values[0, 3] - values[1, 3]) > 1e-3       # after it the past differs


def test_rewards_cut_empty_and_k3():
    seqs = make_seqs([[WORLD.start]] * 3, [[1, WORLD.eos], [0, 0, 1], []], WORLD.pad)
    logp, ref = torch.full((2, *seqs.ids.shape), -1.)
    ref = ref - .5
    roll = Rollout(seqs, torch.arange(3), logp, ref, torch.tensor([2., 3., 7.]))
    got = ppo_rewards(roll, PPOConfig(beta=.2, missing_eos_penalty=1.), WORLD.eos)
    assert_close(got, torch.tensor([[0, -.1, 1.9, 0], [0, -.1, -.1, 1.9], [0, 0, 0, 0.]]))
    k3 = ppo_rewards(roll, PPOConfig(beta=.2, kl_estimator=kl_k3), WORLD.eos)
    assert_close(k3[0, 1].item(), -.2 * (math.exp(-.5) - 1 + .5), rtol=1e-5, atol=0)
    advantage, _ = gae(got, 0 * got, seqs.response_mask)
    assert not advantage[2].any()                        # an empty response teaches nothing
    row = rollout_metrics(roll, PPOConfig(beta=.2), WORLD.eos)
    assert_close(row["objective/kl"], (1. + 1.5 + 0) / 3)
    assert_close(row["objective/rlhf_reward"], 4 - .2 * 2.5 / 3)
    assert row["val/num_eos_tokens"] == 1


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_converges_to_the_closed_form(seed):
    model = actor(seed)
    ref = frozen_copy(model.policy)
    ref_hash = weight_hash(ref)
    config = PPOConfig(n_iterations=60, n_prompts=256, micro_batch_size=256, lr=.03, beta=.5, vf_coef=1.)
    train_ppo(model, ref, TASK, config, seeded(seed))
    now, start_ = [all_logprobs(m, WORLD).detach().double() for m in (model.policy, ref)]
    best, log_z = optimal_policy(start_, REWARD.double(), .5)
    value = expectation(now, REWARD.double()) - .5 * exact_kl(now, start_)
    # rollouts of 256 leave a total variation near .02; untrained it is .5
    assert (now.exp() - best.exp()).abs().sum() / 2 < .08
    assert .5 * log_z - .03 < value <= .5 * log_z + 1e-9
    assert weight_hash(ref) == ref_hash


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_resumed_equals_uninterrupted(tmp_path, stop):
    config = replace(SMALL, kl_controller=AdaptiveKLController(.1, 1000))
    whole, ref = actor(), frozen_copy(actor().policy)
    log = train_ppo(whole, ref, TASK, config, seeded(7)).log.rows
    class Cut(Exception): pass
    def callback(row, roll):
        if row["iteration"] == stop: raise Cut
    with pytest.raises(Cut): train_ppo(actor(), ref, TASK, config, seeded(7), tmp_path, callback)
    resumed, g = actor(1), seeded(7)
    again = train_ppo(resumed, ref, TASK, config, g, tmp_path).log.rows
    assert weight_hash(resumed) == weight_hash(whole)
    keys = ("objective/scores", "objective/kl_coef", "loss/value_avg")
    assert [[r.get(k) for k in keys] for r in again] == [[r.get(k) for k in keys] for r in log]
    betas = [r["objective/kl_coef"] for r in log if "iteration" in r]
    assert len(betas) == 4 and len(set(betas)) > 1


@pytest.mark.parametrize("fault,message", [
    (lambda s: torch.where(s.ids[:, 1] == 0, math.nan, 1.), "row 2.*very"),
    (lambda s: torch.ones(len(s), 2), "one number per row"),
    (lambda s: [{1: 1., 2: 1., 3: 1.}[i] for i in s.ids[:, 1].tolist()], "KeyError.*2.*very")])
def test_reward_faults_name_the_row(fault, message):
    seqs = make_seqs([[WORLD.start]] * 3, [[1, 3], [2, 3], [0, 3]], WORLD.pad)
    with pytest.raises(ValueError, match=message): checked_reward_fn(fault, TOK)(seqs)


def test_a_late_fault_keeps_the_last_checkpoint(tmp_path):
    calls = []
    def breaks(seqs):
        calls.append(1)
        return reward_fn(seqs) * (math.nan if len(calls) == 3 else 1.)
    model, ref = actor(), frozen_copy(actor().policy)
    with pytest.raises(ValueError, match="nan for row 0"):
        train_ppo(model, ref, replace(TASK, reward_fn=breaks), SMALL, seeded(), tmp_path)
    assert list_checkpoints(tmp_path)[-1].name.endswith(f"step-{2 * SMALL.n_epochs * 3}")


def test_divergence_puts_the_last_good_weights_back():
    model, ref = actor(), frozen_copy(actor().policy)
    seen = []
    def callback(row, roll): seen.append(weight_hash(model))
    with pytest.raises(ValueError, match="raise beta or lower lr"):
        train_ppo(model, ref, TASK, replace(SMALL, lr=3., beta=0., max_kl=.3, n_iterations=9),
                  seeded(), callback=callback)
    before = [weight_hash(actor()), *seen]
    assert weight_hash(model) in before[:-1] and weight_hash(model) != before[-1]


def test_prompts_come_once_per_pass():
    queue, seen, g = [], [], seeded(0)
    for _ in range(6): seen += next_prompts(5, 10, queue, g)
    assert sorted(seen) == sorted(list(range(10)) * 3)
    assert sorted(seen[:10]) == list(range(10)) and seen[:10] != list(range(10))


def test_metrics_are_named_and_explained():
    row = train_ppo(actor(), frozen_copy(actor().policy), TASK, SMALL, seeded()).log.rows[-1]
    assert set(METRICS) <= set(row), set(METRICS) - set(row)


def test_answers_are_scored_at_the_temperature_that_was_sampled():
    model = actor()
    config = replace(SMALL, temperature=.5)
    roll = collect_rollout(model.policy, frozen_copy(model.policy), [[WORLD.start]] * 64, reward_fn, TOK,
                   replace(TASK.sampling, temperature=.5), seeded())
    _, n, sums = ppo_loss(model, make_experience(model, roll, config, WORLD.eos), config)
    assert_close(sums["val/ratio"] / n, torch.tensor(1.))
    _, n, sums = ppo_loss(model, make_experience(model, roll, SMALL, WORLD.eos), SMALL)
    assert abs(sums["val/ratio"] / n - 1) > .01 # scored at 1: not the policy that sampled
    with pytest.raises(ValueError, match="temperature above 0"): PPOConfig(temperature=0.)


def test_a_cool_policy_reaches_its_own_closed_form():
    "At temperature T the policy is softmax(logits / T), and so is its optimum."
    policy, heat = bigram_lm(WORLD).float(), .6
    with torch.no_grad(): cool = bigram_lm(WORLD).float(); cool.head.weight /= heat
    ref_logp = all_logprobs(cool, WORLD).detach().double()
    best, log_z = optimal_policy(ref_logp, REWARD.double(), .5)
    model = ActorCritic(policy, ScalarModel.from_lm(policy))
    config = PPOConfig(n_iterations=60, n_prompts=256, micro_batch_size=256, lr=.02, beta=.5, vf_coef=1., lam=.95,
              temperature=heat)
    train_ppo(model, frozen_copy(policy), TASK, config, seeded())
    with torch.no_grad(): policy.head.weight /= heat
    now = all_logprobs(policy, WORLD).detach().double()
    value = expectation(now, REWARD.double()) - .5 * exact_kl(now, ref_logp)
    assert .5 * log_z - .02 < value < .5 * log_z + 1e-6


def test_the_position_after_eos():
    mask = torch.tensor([[0, 1, 1, 0, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]).bool()
    assert torch.equal(reward_mask(mask, PPOConfig()), mask)
    after = torch.tensor([[0, 1, 1, 1, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]).bool()
    assert torch.equal(reward_mask(mask, PPOConfig(score_after_eos=True)), after)
    model, config = actor(), replace(SMALL, score_after_eos=True)
    x = make_experience(model, rollout(model), config, WORLD.eos)
    short = x.seqs.response_mask.sum(1) == 1
    part = x[short.nonzero().flatten()].trim()           # one word each, and the position behind it
    assert part.reward_mask.shape == part.seqs.ids.shape and part.reward_mask.sum() == 2 * short.sum()
    trainer = train_ppo(model, frozen_copy(bigram_lm(WORLD).float()), TASK, replace(config, micro_batch_size=5), seeded())
    assert math.isfinite(trainer.log.rows[-1]["loss/value_avg"])


def test_best_of_n_keeps_the_best():
    drawn = []
    def recorded(seqs): drawn.append(reward_fn(seqs)); return drawn[-1]
    task = replace(TASK, reward_fn=recorded)
    best = generate_best_of_n(actor().policy, [[WORLD.start]] * 6, task, seeded(3), n=5)
    assert len(best) == 6
    assert_close(reward_fn(best), drawn[0].view(6, 5).max(1).values)
    assert (reward_fn(best) > drawn[0].view(6, 5)[:, 0]).any()  # not simply the first


def test_sample_printer_prints_every_few(capsys):
    callback = sample_printer(TOK, every=2, n=1)
    train_ppo(actor(), frozen_copy(actor().policy), TASK, SMALL, seeded(), callback=callback)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed if line.startswith("rollout")] == ["rollout 1", "rollout 3"]
    assert len(printed) == 4


def test_sample_printer_by_hand(capsys):
    seqs = make_seqs([[4], [4, 1]], [[2, 0, TOK.eos_token_id], [1]], TOK.pad_token_id)
    zeros, mask = torch.zeros(seqs.ids.shape), seqs.response_mask
    roll = Rollout(seqs, torch.arange(2), zeros, (-.25 * mask).masked_fill(~mask, 9.), torch.tensor([1.5, -2.]))
    sample_printer(TOK)({"iteration": 7, "objective/scores": -.25, "objective/kl": .5}, roll)
    assert capsys.readouterr().out.splitlines() == [           # log-ratio .25 for each token
        "rollout 7: reward -0.25, KL 0.50",
        "  +1.50  +0.75  rude very", "  -2.00  +0.25  kind"]
