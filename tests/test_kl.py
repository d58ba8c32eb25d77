"""KL estimators against integrals, exact sums and the numbers worked out in the literature."""
import math, pytest, torch
from torch.testing import assert_close
from rlhf_nb.kl import (exact_kl, kl_k1, kl_k2, kl_k3, kl_penalty, response_kl, token_rewards)
from rlhf_nb.trainers.ppo_trainer import AdaptiveKLController, fixed_kl_controller
from rlhf_nb.best_policy import exact_gradient
from rlhf_nb.worlds.oracle import TabularLM, all_logprobs, expectation, micro_world
from rlhf_nb.tokens import token_logprobs

ESTIMATORS = [kl_k1, kl_k2, kl_k3]
def seeded(seed=0): return torch.Generator().manual_seed(seed)
def normal(*shape, seed=0): return torch.randn(*shape, generator=seeded(seed)).double()

# ---------------------------------------------------------------- Schulman's table: q = N(0, 1), p = N(mu, 1)
def gaussians(mu):
    x = torch.linspace(-12, 12, 20_001, dtype=torch.double)
    def log_density(mean): return -(x - mean)**2 / 2 - math.log(2 * math.pi) / 2
    return log_density(0.), log_density(mu), x[1] - x[0]

@pytest.mark.parametrize("mu, true, std, bias", [
    (.1, .005, (20., 1.42, 1.41), .0025), (1., .5, (2., 1.73, 1.70), .25)])
def test_bias_and_std_of_gaussians(mu, true, std, bias):
    logq, logp, dx = gaussians(mu)
    def mean(f): return (logq.exp() * f).sum() * dx
    assert_close(mean(kl_k1(logq, logp)).item(), true, atol=1e-9, rtol=0)
    for est, want, off in zip(ESTIMATORS, std, (0., bias, 0.)):
        value = est(logq, logp)
        m = mean(value)
        assert_close((mean((value - m)**2).sqrt() / true).item(), want, atol=.008, rtol=0)
        assert_close((m / true - 1).item(), off, atol=2e-4 + .01 * off, rtol=0)

# ---------------------------------------------------------------- three words, all by hand
LOGITS, REF = torch.tensor([.4, 0., .5]).double(), torch.tensor([.5, 1., 0.]).double()
def slope(loss, at=LOGITS):
    "Mean gradient over draws from the policy, whose probabilities are constants."
    x = at.clone().requires_grad_()
    logp = x.log_softmax(-1)
    return torch.autograd.grad((logp.detach().exp() * loss(logp, REF.log_softmax(-1))).sum(), x)[0]

def test_gradients_of_three_words():
    x = LOGITS.clone().requires_grad_()
    true = torch.autograd.grad(exact_kl(x.log_softmax(-1), REF.log_softmax(-1)), x)[0]
    def near(got, want): assert_close(got, torch.tensor(want).double(), atol=6e-5, rtol=0)
    near(true, (-.00776, -.22257, .23033))
    near(slope(kl_k1), (0., 0., 0.))
    near(slope(kl_k2), (-.00776, -.22257, .23033))
    near(slope(kl_k3), (.0531, -.2650, .2119))
    near(slope(lambda a, b: (a - a.detach()).exp() * kl_k3(a, b)), (-.00776, -.22257, .23033))
    near(slope(lambda a, b: kl_k1(a, b).detach() * a), (-.00776, -.22257, .23033))
    near(slope(lambda a, b: kl_k3(b, a)), (-.0778, -.2202, .2980))       # arguments swapped: wrong, and so known

# ---------------------------------------------------------------- whole responses, on the oracle
def policies(seed):
    world = micro_world()
    def table(seed):
        model = TabularLM(world).double()
        with torch.no_grad(): model.head.weight[:4] = normal(4, 13, seed=seed)
        return model
    return world, table(seed), table(seed + 100)

@pytest.mark.parametrize("seed", range(3))
def test_unbiased_over_all_responses_per_token_and_whole(seed):
    world, model, ref = policies(seed)
    ids, mask = world.seqs.ids, world.seqs.response_mask
    logp, ref_logp = [token_logprobs(m(ids).logits, ids).detach() for m in (model, ref)]
    y, ref_y = [all_logprobs(m, world).detach() for m in (model, ref)]
    kl = exact_kl(y, ref_y)
    for est in (kl_k1, kl_k3):
        assert_close(expectation(y, response_kl(logp, ref_logp, mask, est)), kl)
        assert_close(expectation(y, est(y, ref_y)), kl)
    assert abs(expectation(y, kl_k2(y, ref_y)) - kl) > 1e-3

@pytest.mark.parametrize("seed", range(3))
def test_k1_per_token_in_the_reward_is_the_gradient_of_the_objective(seed):
    world, model, ref = policies(seed)
    ids, mask, beta, score = world.seqs.ids, world.seqs.response_mask, .3, normal(40, seed=9)
    y, ref_y = all_logprobs(model, world), all_logprobs(ref, world).detach()
    objective = expectation(y, score) - beta * exact_kl(y, ref_y)
    wanted = torch.autograd.grad(objective, model.head.weight)[0]
    logp, ref_logp = [token_logprobs(m(ids).logits, ids) for m in (model, ref)]
    def mean_gradient(estimator):
        rewards = token_rewards(score, kl_penalty(logp, ref_logp, mask, beta, estimator), mask)
        returns = rewards.flip(1).cumsum(1).flip(1)
        gain = (y.detach().exp() * (returns * logp * mask).sum(1)).sum()
        return torch.autograd.grad(gain, model.head.weight, retain_graph=True)[0]
    assert_close(mean_gradient(kl_k1), wanted)
    assert (mean_gradient(kl_k3) - wanted).norm() > .05
    penalized = (score - beta * kl_k1(y, ref_y)).detach()
    assert_close(exact_gradient(model, world, penalized)["head.weight"], wanted)

# ---------------------------------------------------------------- numbers that computers find hard
@pytest.mark.parametrize("dtype", [torch.double, torch.float, torch.bfloat16])
def test_k2_and_k3_are_never_negative(dtype):
    a, b = [(5 * normal(2000, seed=s)).to(dtype) for s in (1, 2)]
    for est in (kl_k2, kl_k3):
        assert (est(a, b) >= 0).all() and est(a, b).dtype == torch.promote_types(dtype, torch.float)
        assert (est(a, a) == 0).all()

LOW = [torch.bfloat16, torch.float16]
ON_TOKENS = {"k1": lambda a, b, m: kl_k1(a, b), "k2": lambda a, b, m: kl_k2(a, b), "k3": lambda a, b, m: kl_k3(a, b),
             "response_kl": response_kl, "response_kl of k3": lambda a, b, m: response_kl(a, b, m, kl_k3),
             "kl_penalty": kl_penalty, "kl_penalty of k3": lambda a, b, m: kl_penalty(a, b, m, .3, kl_k3),
             "token_rewards": lambda a, b, m: token_rewards(b[:, 0], a, m),
             "exact_kl": lambda a, b, m: exact_kl(a.float().log_softmax(1).to(a.dtype), b.float().log_softmax(1).to(a.dtype))}

@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("name", ON_TOKENS)
def test_low_precision_is_computed_in_float32(name, dtype):
    "The same as on float32 tensors that hold the same numbers, to the last digit."
    mask = torch.ones(4, 40).bool()
    a, b = [(-3 * normal(4, 40, seed=s).abs()).to(dtype) for s in (1, 2)]
    got, want = ON_TOKENS[name](a, b, mask), ON_TOKENS[name](a.float(), b.float(), mask)
    if name == "exact_kl":
        p, q = [x.float().log_softmax(1).to(dtype).float() for x in (a, b)]
        want = exact_kl(p, q)
    assert got.dtype == torch.float32 and got.equal(want)

def test_of_two_dtypes_the_wider_one_counts():
    a, b = normal(2, 3), normal(2, 3, seed=1)
    assert kl_k1(a.float(), b).dtype == kl_k1(a, b.bfloat16()).dtype == torch.double
    assert_close(kl_k1(a.float(), b), a.float().double() - b)
    assert kl_k1(a.bfloat16(), b.float()).dtype == torch.float
    penalty = kl_penalty(a.bfloat16().requires_grad_(), b.bfloat16(), torch.ones(2, 3).bool())
    assert penalty.dtype == torch.float and not penalty.requires_grad
    x = a.bfloat16().requires_grad_()
    kl_k3(x, b.bfloat16()).sum().backward()
    assert x.grad.dtype == torch.bfloat16 and x.grad.isfinite().all()

def test_k3_keeps_its_digits():
    d = torch.tensor([1e-4, -1e-4, 3e-5])
    assert_close(kl_k3(d, torch.zeros(3)), d**2 / 2, rtol=.01, atol=0)

def test_exact_kl_shapes_and_zeros():
    a, b = normal(2, 3, 5).log_softmax(-1), normal(2, 3, 5, seed=1).log_softmax(-1)
    kl = exact_kl(a, b)
    assert kl.shape == (2, 3) and (kl > 0).all()
    assert_close(kl, torch.nn.functional.kl_div(b, a, log_target=True, reduction="none").sum(-1))
    zero_prob = torch.tensor([1., 0.]).log()
    assert exact_kl(zero_prob, zero_prob) == 0 and exact_kl(torch.tensor([.5, .5]).log(), zero_prob) == math.inf

# ---------------------------------------------------------------- masks and rewards
def batch():
    logp, ref_logp = -normal(3, 6).abs(), -normal(3, 6, seed=1).abs()
    mask = torch.tensor([[0, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1], [0, 0, 1, 0, 0, 0]]).bool()
    return logp, ref_logp, mask

@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_what_stands_on_pads_does_not_matter(estimator):
    logp, ref_logp, mask = batch()
    broken = logp.masked_fill(~mask, math.nan).requires_grad_()
    assert_close(response_kl(broken, ref_logp, mask, estimator), response_kl(logp, ref_logp, mask, estimator))
    response_kl(broken, ref_logp, mask, estimator).sum().backward()
    assert not broken.grad.isnan().any() and (broken.grad[~mask] == 0).all()
    penalty = kl_penalty(broken, ref_logp, mask, .2, estimator)
    assert_close(penalty, torch.where(mask, -.2 * estimator(logp, ref_logp), 0.))
    assert not penalty.requires_grad
    assert_close(penalty.sum(1), -.2 * response_kl(logp, ref_logp, mask, estimator))

def test_score_stands_on_the_last_response_token():
    logp, ref_logp, mask = batch()
    score, penalty = torch.tensor([5., -7., 11.]).double(), kl_penalty(logp, ref_logp, mask)
    added = token_rewards(score, penalty, mask) - penalty
    want = torch.zeros(3, 6).double()
    want[0, 3], want[1, 5], want[2, 2] = 5., -7., 11.
    assert_close(added, want)
    wide = lambda x: torch.nn.functional.pad(x, (2, 3))                     # pads on both sides
    got = token_rewards(score, wide(penalty), wide(mask))
    assert_close(got[:, 2:-3], token_rewards(score, penalty, mask))
    assert (got[:, :2] == 0).all() and (got[:, -3:] == 0).all()
    order = [2, 0, 1]
    assert_close(token_rewards(score[order], penalty[order], mask[order]), token_rewards(score, penalty, mask)[order])

def test_empty_responses_are_legal():
    logp, ref_logp, mask = batch()
    mask[1] = False
    rewards = token_rewards(torch.tensor([1., 2., math.nan]).double(), kl_penalty(logp, ref_logp, mask), mask)
    assert (rewards[1] == 0).all() and rewards[0].sum() != 0
    assert rewards[2].isnan().sum() == 1                                    # a nan score stays visible

# ---------------------------------------------------------------- the coefficient
def test_controller_table():
    controller = AdaptiveKLController(target=6., horizon=10_000)
    for kl, want in ((60., .101), (0., .099), (-5., .099), (6.6, .1005), (5.4, .0995), (6., .1)):
        assert_close(controller(.1, kl, 500), want, atol=1e-12, rtol=0)
    assert_close(controller(.2, 60., 64), .2 * (1 + .2 * 64 / 10_000))
    assert fixed_kl_controller(.1, 60., 64) == .1

@pytest.mark.parametrize("call, says", [
    (lambda: kl_k1(torch.zeros(2, 3), torch.zeros(3)), r"\(2, 3\) and \(3,\)"),
    (lambda: kl_k3(torch.zeros(2, 3), torch.zeros(2, 1)), "one shape"),
    (lambda: exact_kl(torch.zeros(3), torch.zeros(3)), "got 3 in logp"),
    (lambda: exact_kl(torch.zeros(3).log_softmax(-1), torch.zeros(3)), "in ref_logp"),
    (lambda: exact_kl(torch.full((3,), math.nan), torch.zeros(3).log_softmax(-1)), "nan in logp"),
    (lambda: token_rewards(torch.zeros(2, 1), torch.zeros(2, 3), torch.ones(2, 3).bool()), r"score \(b\)"),
    (lambda: token_rewards(torch.zeros(3), torch.zeros(2, 3), torch.ones(2, 3).bool()), r"score \(b\)"),
    (lambda: AdaptiveKLController(0.), "target must be above 0, got 0.0"),
    (lambda: AdaptiveKLController(6., 0), "horizon must be above 0, got 0"),
    (lambda: AdaptiveKLController(6.)(.1, math.nan, 64), "finite"), (lambda: AdaptiveKLController(6., 50)(.1, 6., 64), "horizon"),
    (lambda: AdaptiveKLController(6.)(.1, 6., 0), "n must be 1 or more, got 0"),
    (lambda: AdaptiveKLController(6.)(-.1, 6., 64), "beta must be 0 or more, got -0.1"),
    (lambda: kl_penalty(*batch(), -.1), "kl_penalty: beta must be 0 or more, got -0.1"),
    (lambda: kl_penalty(*batch()[:2], torch.ones(6).bool()), r"mask .*\(6,\)"),
    (lambda: response_kl(*batch()[:2], torch.ones(6).bool()), "shape"),
])
def test_refusals(call, says):
    with pytest.raises(ValueError, match=says): call()

@pytest.mark.parametrize("call", [lambda: AdaptiveKLController(6., 2.5), lambda: AdaptiveKLController("6"),
                                  lambda: AdaptiveKLController(6.)(.1, 6., 6.4), lambda: kl_penalty(*batch(), "much")])
def test_wrong_types_are_refused(call):
    with pytest.raises(TypeError, match="must be a (whole )?number, got"): call()

def test_no_coefficient_no_penalty(): assert (kl_penalty(*batch(), 0.) == 0).all() and (kl_penalty(*batch(), 0) == 0).all()
