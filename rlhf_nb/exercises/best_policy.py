"Exercises of the chapter on the best policy."
import math, torch
from torch import inf, tensor
from rlhf_nb.best_policy import best_of_n_policy as _kept, exact_gradient as _exact, optimal_policy as _tilted
from rlhf_nb.book.checks import Exercise
from rlhf_nb.worlds.oracle import TabularLM, all_logprobs, bigram_lm, expectation, micro_world

def _random(*shape, seed): return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()

# ---- exact_gradient
def _table(words, length, seed):
    world = micro_world(words, length)
    lm = TabularLM(world).double()
    with torch.no_grad(): lm.head.weight[:world.eos + 1] = _random(world.eos + 1, lm.head.weight.shape[1], seed=seed)
    return lm, world, _random(len(world.seqs), seed=seed + 50)

def _with_frozen(seed):
    lm, world, reward = _table(("a", "b", "."), 2, seed)
    lm.extra = torch.nn.Parameter(torch.ones(2).double(), requires_grad=False)
    return lm, world, reward

def _with_bias(seed): # two parameters learn
    lm, world, reward = _table(("a", "b", "."), 2, seed)
    lm.head.bias = torch.nn.Parameter(_random(len(lm.head.weight), seed=seed + 9))
    return lm, world, reward

def _with_grad(seed): # the caller's own .grad
    lm, world, reward = _table(("a", "b", "."), 2, seed)
    lm.head.weight.grad = torch.ones_like(lm.head.weight)
    return lm, world, reward

def _per_word(m, w): return all_logprobs(m, w) / w.seqs.response_mask.sum(1)

def _backward(model, world, reward):
    expectation(all_logprobs(model, world), reward.detach()).backward()
    return {n: p.grad for n, p in _free(model).items()}

def _free(model): return {n: p for n, p in model.named_parameters() if p.requires_grad}
def _grads(model, value): return dict(zip(_free(model), torch.autograd.grad(value, list(_free(model).values()))))
def _score(model, world, weight): return _grads(model, (weight.detach() * all_logprobs(model, world)).sum())

exact_gradient = Exercise(
    reference=_exact,
    cases={"the micro world": (bigram_lm(micro_world()), micro_world(), _random(40, seed=1)),
           "a fresh table": _table(("a", "b", "."), 3, 2), "two words": _table(("yes", "."), 2, 3),
           "a frozen parameter": _with_frozen(4), "two parameters": _with_bias(7), "`.grad` holds something already": _with_grad(5),
           "equal rewards": (*_table(("a", "b", "."), 2, 6)[:2], torch.ones(7).double())},
    mistakes={
        "turn the sign: ascend, the value is to grow": lambda m, w, r: {k: -g for k, g in _exact(m, w, r).items()},
        "that is the sum of r * grad log pi: weigh each response by its probability": lambda m, w, r: _score(m, w, r),
        "that is the mean over the listed responses: weigh each by its probability":
            lambda m, w, r: _score(m, w, r / len(r)),
        "backward() writes into .grad: take torch.autograd.grad": _backward,
        "that divides by the number of responses: their probabilities sum to 1 already":
            lambda m, w, r: {k: g / len(r) for k, g in _exact(m, w, r).items()},
        "weigh by probabilities, not also by log-probs": lambda m, w, r: _grads(
            m, (all_logprobs(m, w) * all_logprobs(m, w).exp() * r.detach()).sum()),
        "the reward is taken as it is: it is not divided by its standard deviation": lambda m, w, r: (
            _grads(m, expectation(all_logprobs(m, w), ((r - r.mean()) / r.std()).detach()))),
        "the reward is taken as it is: it is not divided by its standard deviation, mean or not": lambda m, w, r: (
            _grads(m, expectation(all_logprobs(m, w), (r / (r.std() + 1e-8)).detach()))),
        "the log-prob of a response is a sum over its words: do not divide it by its length": lambda m, w, r: (
            _grads(m, expectation(_per_word(m, w), r.detach()))),
        "a score function is the gradient of the whole log-prob: it is not divided by the length": lambda m, w, r: (
            _grads(m, (all_logprobs(m, w).exp().detach() * r.detach() * _per_word(m, w)).sum())),
        "expectation takes log-probs: exp is in it already": lambda m, w, r: _grads(m, expectation(all_logprobs(m, w).exp(), r.detach())),
        "that is the gradient of the log of the expected reward: no log": lambda m, w, r: _grads(
            m, expectation(all_logprobs(m, w), r.detach()).log()),
        "frozen parameters are left out: they have no gradient, not one of 0": lambda m, w, r: {
            n: _exact(m, w, r).get(n, torch.zeros_like(p)) for n, p in m.named_parameters()},
        "frozen parameters are left out: they have no gradient, not None": lambda m, w, r: {
            n: _exact(m, w, r).get(n) for n, p in m.named_parameters()},
        "one gradient for each parameter that requires grad: that is the first alone": lambda m, w, r: dict([*_exact(m, w, r).items()][:1]),
        "all gradients have their own length: they are not normalised": lambda m, w, r: (lambda g: {
            k: x / torch.cat([y.flatten() for y in g.values()]).norm() for k, x in g.items()})(_exact(m, w, r)),
        "one gradient per parameter, by its name": lambda m, w, r: list(_exact(m, w, r).values()),
        "that is the tensor alone: return a dict from name to gradient":
            lambda m, w, r: next(iter(_exact(m, w, r).values())),
        "no gradient flowed: detach the reward, not the policy":
            lambda m, w, r: {k: torch.zeros_like(g) for k, g in _exact(m, w, r).items()},
        "the reward alone: less log π it holds an entropy bonus": lambda m, w, r: _grads(
            m, expectation(all_logprobs(m, w), r.detach() - all_logprobs(m, w)))})

# ---- optimal_policy
def _best(ref, reward, beta, tilt=lambda r, b: r / b, ref_too=True, z=lambda x: x.logsumexp(-1)):
    x = (ref if ref_too else torch.zeros_like(ref)) + tilt(reward, beta)
    return x - x.logsumexp(-1), z(x)

def _case(n, seed, beta, scale=1.): return _random(n, seed=seed).log_softmax(0), scale * _random(n, seed=seed + 9), beta

optimal_policy = Exercise(
    reference=_tilted,
    cases={"four responses": _case(4, 0, .5), "a large beta": _case(5, 1, 3.), "beta .01": _case(5, 2, .01),
           "rewards of hundreds": _case(4, 3, .5, 300.), "rewards of thousands": _case(4, 3, .5, 3000.),
           "a response of probability 0": (tensor([.5, .5, 0.]).double().log(), tensor([1., 0., 9.]).double(), .5),
           "equal rewards": (_random(3, seed=4).log_softmax(0), torch.ones(3).double(), .4),
           "one response": (torch.zeros(1).double(), tensor([2.]).double(), .5),
           "beta 0": (*_case(3, 5, 1.)[:2], 0.), "beta below 0": (*_case(3, 6, 1.)[:2], -.5)},
    mistakes={
        "divide the reward by beta: that multiplies": lambda a, r, b: _best(a, r, b, lambda r, b: r * b) if b > 0 else _tilted(a, r, b),
        "beta is missing": lambda a, r, b: _best(a, r, b, lambda r, b: r) if b > 0 else _tilted(a, r, b),
        "turn the sign: high rewards become more probable": lambda a, r, b: _best(a, r, b, lambda r, b: -r / b) if b > 0 else _tilted(a, r, b),
        "the reference is missing: start from its log-probs": lambda a, r, b: _best(a, r, b, ref_too=False) if b > 0 else _tilted(a, r, b),
        "those are not normalised: take off log Z": lambda a, r, b: (a + r / b, _tilted(a, r, b)[1]),
        "that is Z: its log is wanted": lambda a, r, b: (_tilted(a, r, b)[0], _tilted(a, r, b)[1].exp()),
        "that is beta log Z, the value: log Z is wanted": lambda a, r, b: (_tilted(a, r, b)[0], b * _tilted(a, r, b)[1]),
        "those are probabilities: their logs are wanted": lambda a, r, b: (_tilted(a, r, b)[0].exp(), _tilted(a, r, b)[1]),
        "exp(reward / beta) overflows: stay in logs, with logsumexp": lambda a, r, b: (
            ((a.exp() * (r / b).float().exp()) / (a.exp() * (r / b).float().exp()).sum()).log() if b > 0 else _tilted(a, r, b)[0],
            (a.exp() * (r / b).float().exp()).sum().log()),
        "exp(reward / beta) overflows, in double precision too: stay in logs, with logsumexp":
            lambda a, r, b: (lambda z: (a + r / b - z, z))((a.exp() * (r / b).exp()).sum().log())
            if b > 0 else _tilted(a, r, b),
        "exp(reward / beta) overflows or underflows: stay in logs, with logsumexp": lambda a, r, b: (lambda w: (
            (w / w.sum()).log(), w.sum().log()))(a.exp() * (r / b).exp()) if b > 0 else _tilted(a, r, b),
        "that is the best response alone, beta at 0: every response keeps a share": lambda a, r, b: (lambda x: (
            torch.full_like(x, -inf).scatter(0, x.argmax(0, True), 0.), x.logsumexp(-1)))(a + r / b) if b > 0 else _tilted(a, r, b),
        "beta divides the reward alone, not the log-prob of the reference": lambda a, r, b: _best(
            a / b, r, b) if b > 0 else _tilted(a, r, b),
        "the log-prob of the reference is taken as it is, not times beta": lambda a, r, b: _best(
            b * a, r, b, lambda r, b: r) if b > 0 else _tilted(a, r, b),
        "log Z sums over the responses of the reference: the reference is missing in it": lambda a, r, b: (
            _tilted(a, r, b)[0], (r / b).logsumexp(-1)),
        "log Z is a sum weighted by the reference, not a mean over responses": lambda a, r, b: (
            _tilted(a, r, b)[0], _tilted(a, r, b)[1] - math.log(len(r))),
        "the sign of log Z is turned": lambda a, r, b: (_tilted(a, r, b)[0], -_tilted(a, r, b)[1]),
        "that is the expected reward of the best policy: log Z is wanted": lambda a, r, b: (
            _tilted(a, r, b)[0], expectation(_tilted(a, r, b)[0], r)),
        "those are normalised, and log Z with them is 0: log Z is that of the sum before it": lambda a, r, b: (
            _tilted(a, r, b)[0], _tilted(a, r, b)[0].logsumexp(-1)),
        "the first is log π*, not log π* - log π_ref": lambda a, r, b: (_tilted(a, r, b)[0] - a, _tilted(a, r, b)[1]),
        "log Z is added where it should be taken off": lambda a, r, b: (a + r / b + _tilted(a, r, b)[1], _tilted(a, r, b)[1]),
        "the reward is taken as it is, without its mean subtracted: log Z knows the difference": lambda a, r, b: (
            _tilted(a, r, b)[0], _tilted(a, r - r.mean(), b)[1]),
        "the reward is taken as it is, without its maximum subtracted: add it back to log Z": lambda a, r, b: (
            _tilted(a, r, b)[0], _tilted(a, r - r.max(), b)[1]),
        "the maximum that was subtracted before exp is to be added back to log Z": lambda a, r, b: (lambda x: (
            x.log_softmax(-1), (x - x.max()).logsumexp(-1)))(a + r / b) if b > 0 else _tilted(a, r, b),
        "add the reward to the log-prob, not to the probability": lambda a, r, b: (
            lambda x: (x.log_softmax(-1), x.logsumexp(-1)))(a.exp() + r / b) if b > 0 else _tilted(a, r, b),
        "two values are wanted: log pi* and log Z": lambda a, r, b: _tilted(a, r, b)[0],
        "the order is log pi*, then log Z": lambda a, r, b: _tilted(a, r, b)[::-1],
        "beta must be above 0, or ValueError": lambda a, r, b: _best(a, r, b)})

# ---- best_of_n_policy
def _bon(logp, score, n, low=lambda o: o >= 0, share=True, power=lambda n: n, subtract=True):
    if n < 1: return _kept(logp, score, n)
    probs, order = logp.exp(), score[:, None] - score
    level, upto = (probs * (order == 0)).sum(-1), (probs * low(order)).sum(-1)
    gain = upto**power(n) - ((upto - level).clamp(min=0)**power(n) if subtract else 0.)
    out = (logp - level.log() if share else 0.) + gain.log()
    return out.masked_fill(logp == -inf, -inf)

def _draws(n, seed, k): return _random(n, seed=seed).log_softmax(0), _random(n, seed=seed + 9), k
_ties = tensor([.1, .2, .3, .4]).double().log(), tensor([1., 0., 1., 0.]).double()

best_of_n_policy = Exercise(
    reference=_kept,
    cases={"five responses, best of 3": _draws(5, 0, 3), "best of 1": _draws(4, 1, 1), "ties": (*_ties, 4),
           "all equal": (_random(3, seed=2).log_softmax(0), torch.ones(3).double(), 5),
           "best of 64": _draws(6, 3, 64),
           "a response of probability 0": (tensor([.5, .5, 0.]).double().log(), tensor([1., 0., 2.]).double(), 3),
           "an improbable best": (tensor([0., -30.]).double().log_softmax(0), tensor([0., 1.]).double(), 8),
           "a response of probability 0 in a tie": (tensor([.5, 0., .5]).double().log(), tensor([1., 1., 0.]).double(), 3),
           "n of 0": (*_draws(3, 4, 0),), "n below 0": (*_draws(3, 7, -2),)},
    mistakes={
        "that is the worst of n: count the scores at most its own": lambda a, s, n: _bon(a, -s, n),
        "of equal scores the first drawn wins: they share the probability": lambda a, s, n: _bon(a, s, n, share=False),
        "equal scores share in proportion to their probabilities, not in equal parts": lambda a, s, n: (
            _bon(a, s, n, share=False) - (s[:, None] == s).sum(-1).log()),
        "take off the probability that all n score lower": lambda a, s, n: _bon(a, s, n, subtract=False),
        "n samples, not n - 1": lambda a, s, n: _bon(a, s, n, power=lambda n: n - 1),
        "n is an argument, not always 2": lambda a, s, n: _bon(a, s, n, power=lambda n: 2),
        "n is not used: that is one draw": lambda a, s, n: a if n > 0 else _kept(a, s, n),
        "only u - l has the power n: u has it, too": lambda a, s, n: (lambda p, o: (a - (p * (o == 0)).sum(-1).log() + (
            (p * (o >= 0)).sum(-1) - (p * (o > 0)).sum(-1)**n).log()).masked_fill(a == -inf, -inf))(a.exp(), s[:, None] - s) if n > 0 else _kept(a, s, n),
        "the difference of two powers, not the power of l, their difference": lambda a, s, n: (lambda p, o: (a + (n - 1) * (
            p * (o == 0)).sum(-1).log()).masked_fill(a == -inf, -inf))(a.exp(), s[:, None] - s) if n > 0 else _kept(a, s, n),
        "1 draw is allowed: ValueError is for n below 1": lambda a, s, n: _kept(a, s, n if n > 1 else 0),
        "those sum to 1 already: nothing is left to normalise": lambda a, s, n: _bon(a, s, n, subtract=False).log_softmax(0) if n > 0 else _kept(a, s, n),
        "n samples, not n + 1": lambda a, s, n: _bon(a, s, n, power=lambda n: n + 1),
        "those are probabilities: their logs are wanted": lambda a, s, n: _kept(a, s, n).exp(),
        "n p (at most)^(n-1) counts a density: between the scores there are gaps": lambda a, s, n: (
            a + torch.tensor(float(n)).log() + (n - 1) * (a.exp() * (s[:, None] >= s)).sum(-1).log()) if n > 0 else _kept(a, s, n),
        "that is the tilt exp(n score): count who wins": lambda a, s, n: (a + n * s).log_softmax(0) if n > 0 else _kept(a, s, n),
        "that is the tilt exp((n - 1) score): count who wins": lambda a, s, n: (a + (n - 1) * s).log_softmax(0) if n > 0 else _kept(a, s, n),
        "p^n is being drawn n times, not being the best of n": lambda a, s, n: (n * a).log_softmax(0) if n > 0 else _kept(a, s, n),
        "u counts scores at most its own: that leaves its own out": lambda a, s, n: _bon(a, s, n, low=lambda o: o > 0),
        "u sums probabilities: ranks count responses as if all were equally probable": lambda a, s, n: (lambda o: (
            (a - (a.exp() * (o == 0)).sum(-1).log()) + ((o >= 0).double().mean(-1)**n - (o > 0).double().mean(-1)**n).log()).masked_fill(
            a == -inf, -inf))(s[:, None] - s) if n > 0 else _kept(a, s, n),
        "the share within a level is p over the probability of the level, not p": lambda a, s, n: _bon(a, s, n, share=False) + a if n > 0 else _kept(a, s, n),
        "what is wanted is the distribution, not the expected score": lambda a, s, n: expectation(_kept(a, s, n), s),
        "the best response is not always among the n": lambda a, s, n: (
            torch.where(s == s.max(), a, -inf).log_softmax(0)) if n > 0 else _kept(a, s, n),
        "1 - (1 - p)^n is being drawn at all, not being the best of n": lambda a, s, n: (
            1 - (1 - a.exp())**n).log() if n > 0 else _kept(a, s, n),
        "log of 0 minus log of 0 is nan: a response of probability 0 stays at -inf": lambda a, s, n: (
            lambda p, o: a - (p * (o == 0)).sum(-1).log() + ((p * (o >= 0)).sum(-1)**n - ((p * (o > 0)).sum(-1))**n).log())(
                a.exp(), s[:, None] - s) if n > 0 else _kept(a, s, n),
        "scores at most its own, its own too: those are the scores strictly below it": lambda a, s, n: (lambda p, o: (
            a - (p * (o == 0)).sum(-1).log() + (p * (o > 0)).sum(-1).pow(n).log()).masked_fill(a == -inf, -inf))(
            a.exp(), s[:, None] - s) if n > 0 else _kept(a, s, n),
        "n must be 1 or more, or ValueError": lambda a, s, n: _bon(a, s, n) if n > 0 else a})

# ---- the clinic: the soft value of a prefix
def _soft(probs, reward, beta):
    kept = probs > 0
    return beta * (probs[kept].log() + reward[kept] / beta).logsumexp(-1)

def _some(k, seed, beta, scale=1.): return _random(k, seed=seed).softmax(0), scale * _random(k, seed=seed + 9), beta

fixed_prefix_value = Exercise(
    reference=_soft,
    cases={"four responses": _some(4, 0, .5), "a large beta": _some(5, 1, 3.), "one response": _some(1, 2, .5),
           "rewards of 300 times beta": (tensor([.5, .5]), tensor([300., -300.]), 1.),
           "all of them at -300": (tensor([.25, .75]), tensor([-300., -301.]), 1.),
           "an improbable one of a large reward": (tensor([1 - 1e-7, 1e-7]).double(), tensor([0., 40.]).double(), 1.),
           "a response of probability 0": (tensor([.5, .5, 0.]).double(), tensor([1., -1., 900.]).double(), 1.),
           "an infinite reward of probability 0": (tensor([.5, .5, 0.]).double(), tensor([1., -1., inf]).double(), .5)},
    mistakes={
        "still the mean: the tilt comes later, the value must know it":
            lambda p, r, b: (p * r.masked_fill(p == 0, 0)).sum(),
        "that is log Z: times beta": lambda p, r, b: _soft(p, r, b) / b,
        "that is the largest reward: beta at 0": lambda p, r, b: r[p > 0].max(),
        "weigh the responses by their probabilities": lambda p, r, b: b * ((r / b)[p > 0]).logsumexp(-1),
        "divide the reward by beta: that multiplies": lambda p, r, b: b * (p[p > 0].log() + r[p > 0] * b).logsumexp(-1),
        "beta is missing in the exponent": lambda p, r, b: b * (p[p > 0].log() + r[p > 0]).logsumexp(-1),
        "the sign of the reward: high ones count more": lambda p, r, b: b * (p[p > 0].log() - r[p > 0] / b).logsumexp(-1),
        "that is the mean under the tilted policy, without what it costs": lambda p, r, b: (
            (p[p > 0].log() + r[p > 0] / b).softmax(0) * r[p > 0]).sum(),
        "that is Z: its log, times beta": lambda p, r, b: (p[p > 0] * (r[p > 0].double() / b).exp()).sum(),
        "exp overflows or underflows at 300: use logsumexp": lambda p, r, b: b * (p[p > 0] * (r[p > 0] / b).float().exp()).sum().log(),
        "an epsilon in the log, or a clamp, gives a response of probability 0 some weight: leave it out": lambda p, r, b: b * (
            (p + 1e-8).log() + r / b).logsumexp(-1),
        "a tiny epsilon in the log gives a response of probability 0 some weight: leave it out": lambda p, r, b: b * (
            (p + 1e-12).log() + r / b).logsumexp(-1),
        "that is the mean and half the variance over beta, a series that ends too early: take the log of the sum of exponentials":
            lambda p, r, b: (lambda r, m: m + (p * (r - m)**2).sum() / (2 * b))(r.masked_fill(p == 0, 0), (p * r.masked_fill(p == 0, 0)).sum()),
        "weigh the responses by their probabilities, not all alike": lambda p, r, b: b * ((r / b)[p > 0].logsumexp(-1) - math.log(int((p > 0).sum()))),
        "the factor beta stands once: that is without the division in the exponent, and over beta": lambda p, r, b: _soft(p, r, b) / b**2,
        "that is minus beta log Z: the value is plus": lambda p, r, b: -_soft(p, r, b),
        "that tilts towards low rewards: the signs of reward and value are both turned": lambda p, r, b: -_soft(p, -r, b),
        "the response of the highest p exp(r / beta) is not all of the sum": lambda p, r, b: b * (p[p > 0].log() + r[p > 0] / b).max(),
        "that is the mean of the rewards over the responses": lambda p, r, b: r[p > 0].mean(),
        "0 times infinity is nan: leave out responses of probability 0": lambda p, r, b: b * (
            p.log() + r / b).logsumexp(-1)})

ASKED = {
    "exact_gradient": {
        "frozen parameters are left out: a gradient for each parameter that requires grad, by its name": "a frozen parameter",
        "every parameter that requires grad has its gradient, not the first alone": "two parameters",
        "`.grad` is left alone, and what it holds already is not added": "`.grad` holds something already"},
    "optimal_policy": {
        "beta must be above 0: 0 and below raise ValueError": "beta 0 | beta below 0",
        "a response of probability 0 stays at -inf, and adds nothing to Z": "a response of probability 0",
        "stay in logs: exp(reward / beta) overflows and underflows, logsumexp does not":
            "rewards of hundreds | rewards of thousands | beta .01"},
    "fixed_prefix_value": {
        "a response of probability 0 adds nothing, whatever its reward: 0 times inf is nan, and an epsilon in the log gives it weight":
            "a response of probability 0 | an infinite reward of probability 0",
        "rewards / beta may be as large as 300 or -300: exp overflows or underflows there, logsumexp does not":
            "rewards of 300 times beta | all of them at -300",
        "one response alone has the value of its reward": "one response"},
    "best_of_n_policy": {
        "n is 1 or more: 0 and below raise ValueError": "n of 0 | n below 0",
        "best of 1 is one draw, the distribution itself": "best of 1",
        "responses of equal score share what their level wins, in proportion to their probabilities": "ties | all equal",
        "a response of probability 0 stays at -inf": "a response of probability 0 | a response of probability 0 in a tie"}}
