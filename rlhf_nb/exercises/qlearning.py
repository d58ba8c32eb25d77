"Exercises of the chapter on Q-learning."
import torch
from torch import Generator, tensor
from rlhf_nb.checks import Exercise

def _draw(seed, *size): return torch.randint(-8, 9, size, generator=Generator().manual_seed(seed)) / 4

# ------------------------------------------------------------ fixed_soft_update
def _follow(slow, fast, rate, step, start=0, every=1, old=None, detach=True):
    "The copy after a step; up to `start` it is set equal, and only every so many steps."
    if step % every: return list(slow)
    if detach: fast = [b.detach() for b in fast]
    if step <= start: return [b.clone() for b in fast]
    return [(1 - rate if old is None else old(rate)) * a + rate * b for a, b in zip(slow, fast)]

def _weights(seed, rate, step, dtype=torch.float32):
    slow = [_draw(seed, 2, 3).to(dtype), _draw(seed + 1, 5).to(dtype)]
    return slow, [_draw(seed + 2, 2, 3).to(dtype), _draw(seed + 3, 5).to(dtype)], rate, step

def _learning(seed, rate, step):
    slow, fast, rate, step = _weights(seed, rate, step)
    return slow, [w.requires_grad_() for w in fast], rate, step

fixed_soft_update = Exercise(
    reference=_follow,
    cases={"step 7": _weights(0, .25, 7), "step 20": _weights(10, .25, 20),
           "step 100": _weights(20, .5, 100), "step 103": _weights(30, .25, 103),
           "step 250": _weights(40, .25, 250), "a learner with gradients": _learning(50, .25, 130),
           "rate .02": _weights(60, .02, 3), "bf16": _weights(70, .5, 1, torch.bfloat16)},
    mistakes={
        "it still copies the learner outright, every tenth step up to step 100":
            lambda *x: _follow(*x, start=100, every=10),
        "the first 100 steps are still a plain copy": lambda *x: _follow(*x, start=100),
        "it moves at every tenth step only: the share is meant for each step":
            lambda *x: _follow(*x, every=10),
        "turned round: that keeps the share `rate` of the old copy":
            lambda s, f, rate, n: _follow(s, f, 1 - rate, n),
        "what moves is a share of the difference: the old copy has to shrink by as much":
            lambda *x: _follow(*x, old=lambda rate: 1),
        "gradient flows through the copy: it is data": lambda *x: _follow(*x, detach=False),
        "it never moves": lambda s, f, rate, n: _follow(s, f, 0., n),
        "it moves away from the learner": lambda s, f, rate, n: _follow(s, f, -rate, n),
        "that is the learner itself": lambda s, f, rate, n: _follow(s, f, 1., n)})

# ------------------------------------------------------------------ target_row
def _seen(reward, gamma, i, start=None, power=lambda i, j: j - i):
    start = i if start is None else start
    return sum((gamma**power(i, j) * reward[j] for j in range(start, len(reward))), 0 * reward[0])

def _row(reward, value, gamma, seen=_seen, best=torch.maximum, over=True, ahead=0, own=1.):
    n, y = len(reward), []
    for i in range(n):
        end = over and i == n - 1
        follows = 0 * value[0] if end or i + ahead >= n else value[i + ahead]
        one = own * reward[i] + gamma * follows
        y.append(best(one, seen(reward, gamma, i)))
    return torch.stack(y)

def _values(seed, n, gamma, dtype=torch.float32):
    return _draw(seed, n).to(dtype), _draw(seed + 1, n).to(dtype), gamma

target_row = Exercise(
    reference=_row,
    cases={"three tokens": (tensor([.1, -.5, .9]), tensor([.2, .3, 5.]), .8),
           "one token": (tensor([-.5]), tensor([2.]), .5),
           "every value is bad": (tensor([.5, .25, 1.]), tensor([-3., -2., -1.]), .5),
           "seven tokens": _values(3, 7, .9), "gamma 1": _values(5, 4, 1.),
           "gamma 0": _values(7, 4, 0.), "only costs": (-_draw(9, 5).abs(), _draw(10, 5), .75),
           "bf16": _values(11, 3, .5, torch.bfloat16)},
    mistakes={
        "the bound is missing: y is never below what was really earned":
            lambda *x: _row(*x, best=lambda a, b: a),
        "nothing follows the last token: its target is its reward":
            lambda *x: _row(*x, over=False),
        "gamma is missing": lambda r, v, gamma: _row(r, v, 1.),
        "gamma is missing in what was earned": lambda *x: _row(
            *x, seen=lambda r, g, i: _seen(r, 1., i)),
        "gamma is missing in front of the value": lambda r, v, gamma: _row(
            r, v, 1., seen=lambda reward, g, i: _seen(reward, gamma, i)),
        "the reward of token i itself is not discounted": lambda r, v, gamma: _row(
            r, v, gamma, own=gamma),
        "the bound is a floor, not a ceiling": lambda *x: _row(*x, best=torch.minimum),
        "that is only what was earned: the value is missing": lambda *x: _row(
            *x, best=lambda a, b: b),
        "what was earned from token i on begins with reward[i]": lambda *x: _row(
            *x, seen=lambda r, g, i: _seen(r, g, i, i + 1)),
        "gamma counts steps from token i, not from the start": lambda *x: _row(
            *x, seen=lambda r, g, i: _seen(r, g, i, power=lambda i, j: j)),
        "value[i] is what stands after token i: value[i + 1] is one too late":
            lambda *x: _row(*x, ahead=1),
        "both are added: take the higher one": lambda *x: _row(*x, best=torch.add)})

# ------------------------------------------------------------------ epsilon_greedy
def _choose(q, allowed, epsilon, never=-torch.inf, share=None, last=None):
    "Chance of each action; `share`: who may be drawn by chance, `last`: who keeps that."
    best = torch.zeros(len(q)).scatter(0, q.float().masked_fill(~allowed, never).argmax()[None], 1.)
    share = allowed.float() if share is None else share(allowed, best)
    chance = epsilon * share / share.sum().clamp(min=1)
    return chance * (1 if last is None else last(best)) + (1 - epsilon) * best

epsilon_greedy = Exercise(
    reference=_choose,
    cases={"the highest is forbidden": (tensor([.1, .7, .9, .2]),
                                        tensor([True, True, False, True]), .3),
           "all below zero": (tensor([-2., -.5, -1.]), tensor([True, False, True]), .4),
           "all allowed": (tensor([1., 3., 2., 0., -1.]), torch.ones(5).bool(), .25),
           "two in ten": (_draw(0, 10), torch.arange(10) % 5 == 2, .5),
           "epsilon 0": (tensor([.5, .25, 1.]), tensor([True, True, False]), 0.),
           "epsilon 1": (tensor([.5, .25, 1.]), tensor([True, True, False]), 1.),
           "bf16": (tensor([.5, 2., 1.]).bfloat16(), tensor([True, True, False]), .25)},
    mistakes={
        "a forbidden action is the best one: look at the allowed ones only":
            lambda q, ok, e: _choose(q, torch.ones_like(ok), e, share=lambda a, best: ok.float()),
        "forbidden actions are drawn by chance": lambda q, ok, e: _choose(
            q, ok, e, share=lambda a, best: torch.ones(len(q))),
        "nothing is forbidden: `allowed` is not looked at":
            lambda q, ok, e: _choose(q, torch.ones_like(ok), e),
        "chance may pick the best action as well": lambda q, ok, e: _choose(
            q, ok, e, share=lambda a, best: a.float() - best),
        "the chances do not sum to 1: the best action has its share of epsilon on top":
            lambda q, ok, e: _choose(q, ok, e, last=lambda best: 1 - best),
        "epsilon is the share of chance, not of the best": lambda q, ok, e: _choose(q, ok, 1 - e),
        "a forbidden action counted as 0 beats all below zero: minus infinity never wins":
            lambda q, ok, e: _choose(q, ok, e, never=0.),
        "that is a softmax: the best action takes all that is not chance":
            lambda q, ok, e: (1 - e) * q.float().masked_fill(~ok, -torch.inf).softmax(0)
                + e * ok / ok.sum(),
        "that is greedy: epsilon is not looked at": lambda q, ok, e: _choose(q, ok, 0.),
        "that is the worst action": lambda q, ok, e: _choose(-q, ok, e)})
