"GAE, the clipped losses and the rewards of PPO against their definitions and autograd in float64."
import math, pytest, torch
from torch.testing import assert_close
from rlhf_nb.base.models import ScalarModel
from rlhf_nb.worlds.oracle import bigram_lm, micro_world
from rlhf_nb.ppo import (ActorCritic, clipped_policy_loss, clipped_value_loss, gae, ppo_loss, ppo_rewards)
from rlhf_nb.tokens import make_seqs

WORLD = micro_world()
def seeded(seed=0): return torch.Generator().manual_seed(seed)

def actor(seed=0):
    policy = bigram_lm(WORLD).float()
    model = ActorCritic(policy, ScalarModel.from_lm(policy, seed))
    with torch.no_grad(): model.critic.score.weight.normal_(generator=seeded(seed))
    return model

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

def test_gae_steps_over_a_gap_in_the_mask():
    g = seeded(4)
    r, v = torch.randn(2, 3, 6, generator=g)
    mask = torch.tensor([[1, 1, 0, 0, 1, 1], [0, 1, 0, 1, 0, 1], [1, 0, 0, 0, 0, 1]]).bool()
    advantage, returns = gae(r.masked_fill(~mask, math.nan), v.masked_fill(~mask, math.nan), mask, .9, .8)
    for i in range(3):
        want = torch.tensor(slow_gae(r[i][mask[i]].tolist(), v[i][mask[i]].tolist(), .9, .8))
        assert_close(advantage[i][mask[i]], want)
        assert_close(returns[i][mask[i]], want + v[i][mask[i]])
    assert not advantage[~mask].any() and not returns[~mask].any()
    late = torch.zeros(1, 6); late[0, 5] = 1.                    # a score behind the gap reaches what stands before it
    assert gae(late, 0 * late, mask[:1], 1., 1.)[0][0].tolist() == [1, 1, 0, 0, 1, 1]

@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_raised_to_float32(dtype):
    g, mask = seeded(5), torch.ones(4, 30, dtype=torch.bool)
    low = [(8 * torch.randn(4, 30, generator=g)).to(dtype) for _ in range(3)]
    full = [x.float() for x in low]
    for got, want in ((gae(*low[:2], mask), gae(*full[:2], mask)),
                      ((clipped_policy_loss(-low[0].abs() / 9, -low[1].abs() / 9, low[2]),),
                       (clipped_policy_loss((-low[0].abs() / 9).float(), (-low[1].abs() / 9).float(), full[2]),)),
                      ((clipped_value_loss(*low),), (clipped_value_loss(*full),))):
        for x, y in zip(got, want): assert x.dtype == torch.float32 and torch.equal(x, y)
    assert gae(low[0].double(), low[1].double(), mask)[0].dtype == torch.float64

def test_losses_by_finite_differences():
    g = seeded(1)
    old, A, ret = torch.randn(3, 2, 5, generator=g).double()
    now = (old + .3 * torch.randn(2, 5, generator=g)).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: clipped_policy_loss(x, old, A, .2), now)
    assert torch.autograd.gradcheck(lambda x: clipped_value_loss(x, old, ret, .2), now)

def test_beyond_the_clip_a_ratio_earns_nothing_and_a_value_is_worth_its_larger_error():
    ratio, A = torch.tensor([.5, 1.5, .5, 1.5]), torch.tensor([-1., 1., 1., -1.])
    assert_close(clipped_policy_loss(ratio.log(), 0. * A, A, .2), torch.tensor([.8, -1.2, -.5, 1.5]))
    value, returns = torch.tensor([1., 1., -1.]), torch.tensor([1., 0., -3.])
    assert_close(clipped_value_loss(value, 0. * value, returns, .2), torch.tensor([.32, .5, 3.92]))

def test_a_critic_is_a_copy_whose_head_begins_at_zero():
    policy = bigram_lm(WORLD).float()
    rm = ScalarModel.from_lm(policy, 0)
    model = ActorCritic(policy, rm)
    seqs = make_seqs([[WORLD.start]], [[0, 1, 3]], WORLD.pad)
    assert model.policy is policy and not model.values(seqs).any() and rm(seqs).any()

def test_values_do_not_see_their_own_token():
    model = actor()
    a = make_seqs([[WORLD.start]] * 2, [[0, 1, 3], [0, 2, 3]], WORLD.pad)
    values = model.values(a)
    assert_close(values[0, 1:3], values[1, 1:3])         # same past, another token
    assert abs(values[0, 3] - values[1, 3]) > 1e-3       # after it the past differs

def test_rewards_by_hand():
    mask = torch.tensor([[0, 1, 1, 0], [0, 1, 1, 1], [0, 0, 0, 0]]).bool()
    logp = torch.full((3, 4), -1.).masked_fill(~mask, math.nan).requires_grad_()
    ref_logp = torch.full((3, 4), -1.5).masked_fill(~mask, math.inf)
    score = torch.tensor([2., 3., 7.], requires_grad=True)
    got = ppo_rewards(score, logp, ref_logp, mask, .2)
    assert not got.requires_grad
    assert_close(got, torch.tensor([[0, -.1, 1.9, 0], [0, -.1, -.1, 2.9], [0, 0, 0, 0.]]))

def test_loss_is_the_mean_over_tokens_of_both_terms():
    g, mask = seeded(6), torch.tensor([[0, 1, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 0, 0, 0]]).bool()
    x = [(.3 * torch.randn(3, 5, generator=g)).double() for _ in range(6)]
    want = (clipped_policy_loss(*x[:3], .1) + .7 * clipped_value_loss(*x[3:], .05))[mask].mean()
    spoiled = [y.masked_fill(~mask, math.nan) for y in x]
    assert_close(ppo_loss(*spoiled, mask, .1, .05, .7), want)
    spoiled = [y.masked_fill(~mask, 9.) for y in x]
    for y in spoiled: y.requires_grad_()
    ppo_loss(*spoiled, mask, 1e9, 1e9).backward()
    for y in (spoiled[0], spoiled[3]): assert not y.grad[~mask].any() and y.grad[mask].all()

def test_runs_on_other_seeds_differ_at_equal_kl_by_what_chapter_08_says():
    import json, numpy
    from test_project import ROOT
    rows = {(r["run"], r["seed"]): r["curve"] for r in json.loads((ROOT/"nbs/results/ppo_fresh.json").read_text("utf-8"))}
    seeds = range(120, 125)
    def gold_at(run, seed, kl):     # read off the curve up to the first point that lies beyond
        curve = rows[run, seed]
        n = 1 + next(i for i, x in enumerate(curve) if x["kl"] >= kl)
        xs, ys = ([x[key] for x in curve[:n]] for key in ("kl", "gold"))
        assert xs[-2] <= kl
        return numpy.interp(kl, xs[-2:], ys[-2:])
    ends = [rows["default", s][-1] for s in seeds]
    lam = [gold_at("lambda .95", s, x["kl"]) - x["gold"] for s, x in zip(seeds, ends)]
    beta = [gold_at("lambda .95, beta 0", s, 2.7) - gold_at("lambda .95", s, 2.7) for s in seeds]
    assert [round(numpy.mean(d), 2) for d in (lam, beta)] == [-.20, .03]
    assert [round(numpy.std(d, ddof=1) / 5**.5, 2) for d in (lam, beta)] == [.02, .04]
    assert round(numpy.mean([x["kl"] for x in ends]), 2) == 1.74
