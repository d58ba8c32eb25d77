"Exercises of the chapter on PPO."
import math
import torch
from torch import Generator, tensor
from rlhf_nb.checks import Exercise

def mask_of(*rows): return tensor([[c == "r" for c in row] for row in rows])

# ------------------------------------------------------------------ fixed_entropy
def _entropy(logp, mask, fill=0., each=lambda x: -x, row=lambda x, m: x.sum(1), over=torch.mean):
    return over(row(torch.where(mask, each(logp), tensor(fill)), mask))

def _sampled(seed, *rows, pads=math.nan, dtype=torch.float32): # p prompt, r response, . pad
    pad = tensor([[c == "." for c in row] for row in rows])
    logp = -3 * torch.rand(pad.shape, generator=Generator().manual_seed(seed))
    return logp.masked_fill(pad, pads).to(dtype), mask_of(*rows)

def _rows_with(m): return m.any(1)

fixed_entropy = Exercise(
    reference=_entropy,
    cases={"two rows": _sampled(0, "pprrr", "prrrr"), "pads behind": _sampled(1, "pprr..", "prrrrr", "ppr..."),
           "pads that hold 1": _sampled(2, "prr..", "pprrr", pads=1.),
           "pads on both sides": _sampled(3, "..prr.", "prrrr.", ".ppprr"),
           "an empty response": _sampled(4, "ppp..", "pprrr"), "one row": _sampled(5, "prr"),
           "bf16": _sampled(6, "prrr.", "pprrr", dtype=torch.bfloat16)},
    mistakes={
        "as it was: every prompt token and every pad takes a nat away":
            lambda x, m: _entropy(x, m, fill=-1.),
        "prompt tokens are counted: only the response was sampled":
            lambda x, m: _entropy(x, m | ~(x.isnan() | (x == 1))),
        "everything is counted, pads too": lambda x, m: _entropy(x, m | True),
        "nan at a pad gets through: choose with the mask, do not multiply":
            lambda x, m: -(x * m).sum(1).mean(),
        "the sign: it is minus the log-prob": lambda x, m: -_entropy(x, m),
        "that is per token: add up each response": lambda x, m: _entropy(
            x, m, row=lambda y, m: y.sum(1) / m.sum(1).clamp(min=1)),
        "that is per token, and nan for an empty response: add up each response":
            lambda x, m: _entropy(x, m, row=lambda y, m: y.sum(1) / m.sum(1)),
        "that is per token, over the whole batch": lambda x, m: -x[m].mean(),
        "that is the sum over responses: take the mean":
            lambda x, m: _entropy(x, m, over=torch.sum),
        "that is one number per response: take the mean": lambda x, m: _entropy(x, m, over=lambda y: y),
        "an empty response counts, with 0": lambda x, m: _entropy(x[_rows_with(m)], m[_rows_with(m)]),
        "tokens were sampled by their probability already: do not weight them again":
            lambda x, m: _entropy(x, m, each=lambda x: -x.exp() * x),
        "the last token of the response, eos, is left out": lambda x, m: _entropy(
            x, m & (m.flip(1).cumsum(1).flip(1) > 1)),
        "the mask is True where a token was sampled": lambda x, m: _entropy(x.nan_to_num(0.), ~m)})

# ------------------------------------------------------------------ gae_by_sums
def _gae(reward, value, gamma, lam, gamma_far=None, shift=0, first=0, far=None):
    n = len(reward)
    following = torch.cat([value[1:], value[:1] * 0])
    if shift: value, following = following, torch.cat([following[1:], value[:1] * 0])
    delta = reward + gamma * following - value
    decay = (gamma if gamma_far is None else gamma_far) * lam
    sums = [sum((decay**l * delta[t + l] for l in range(first, n - t) if far is None or l <= far),
                delta[0] * 0) for t in range(n)]
    return torch.stack(sums)

def _past(reward, value, gamma, lam):
    delta = reward + gamma * torch.cat([value[1:], value[:1] * 0]) - value
    return torch.stack([sum((gamma * lam)**l * delta[t - l] for l in range(t + 1))
                        for t in range(len(delta))])

def _with_end(reward, value, gamma, lam): # the last value stands in for what follows
    return _gae(torch.cat([reward[:-1], reward[-1:] + gamma * value[-1:]]), value, gamma, lam)

def _lone(reward, value, gamma, lam): # deltas without the value that follows
    delta = reward - value
    return torch.stack([sum((gamma * lam)**l * delta[t + l] for l in range(len(delta) - t))
                        for t in range(len(delta))])

def _row(seed, n, gamma, lam, dtype=torch.float32):
    generator = Generator().manual_seed(seed)
    return *[torch.randn(n, generator=generator).to(dtype) for _ in (0, 1)], gamma, lam

gae_by_sums = Exercise(
    reference=_gae,
    cases={"three tokens": (tensor([.3, -.2, 1.5]), tensor([.4, .9, .1]), .9, .8),
           "eight tokens": _row(1, 8, .99, .95), "one token": _row(2, 1, .9, .5),
           "lambda 0": _row(3, 4, .9, 0.), "lambda 1": _row(4, 4, .8, 1.),
           "gamma 1": _row(5, 5, 1., .7), "float64": _row(6, 3, .9, .6, torch.float64)},
    mistakes={
        "lambda is missing": lambda r, v, g, l: _gae(r, v, g, 1.),
        "gamma is missing": lambda r, v, g, l: _gae(r, v, 1., l),
        "gamma is missing in the powers: it discounts the deltas as well":
            lambda *x: _gae(*x, gamma_far=1.),
        "gamma is missing in delta: it discounts the next value as well":
            lambda r, v, g, l: _gae(r, v, 1., l, gamma_far=g),
        "that is the return: take the value off": lambda r, v, g, l: _gae(r, v, g, l) + v,
        "the value before a token, not after it": lambda *x: _gae(*x, shift=1),
        "after the last token the value is 0": _with_end,
        "the next value is missing in delta": _lone,
        "the sum looks ahead, not back": _past,
        "the sum begins with l = 0, the delta of the token itself":
            lambda *x: _gae(*x, first=1),
        "that is delta alone: later deltas count in part": lambda *x: _gae(*x, far=0),
        "only one step ahead: the sum goes to the last token": lambda *x: _gae(*x, far=1),
        "the sign: reward and next value minus value": lambda *x: -_gae(*x)})

# ------------------------------------------------------------------ clip_fraction
def _counts(ratio, advantage, clip): # where the clipped loss is the larger
    return -advantage * ratio.clamp(1 - clip, 1 + clip) > -advantage * ratio

def _fraction(logp, old_logp, advantage, mask, clip, counts=_counts, over=None):
    which = counts((logp - old_logp).exp(), advantage, clip)
    if over: return over(which & mask, mask)
    return which[mask].float().mean()

def _moves(seed, clip, *rows, dtype=torch.float32):
    generator, mask = Generator().manual_seed(seed), mask_of(*rows)
    pad = tensor([[c == "." for c in row] for row in rows])
    old = -2 * torch.rand(mask.shape, generator=generator)
    now = old + torch.randn(mask.shape, generator=generator) * .3
    advantage = torch.randn(mask.shape, generator=generator)
    return *[x.masked_fill(pad, math.nan).to(dtype) for x in (now, old, advantage)], mask, clip

_still = tensor([[-1., -2., -.5, -1.]])
clip_fraction = Exercise(
    reference=_fraction,
    cases={"two rows": (tensor([[0., -.5, -1.2, -3.], [0., -2.4, -1., -1.]]),
                        tensor([[0., -.5, -1.45, -1.], [0., -1.9, -1., -5.]]),
                        tensor([[0., 1., 2., 1.], [0., -.5, 1., 1.]]), mask_of("prr.", "prr."), .2),
           "pads on both sides": _moves(1, .2, "..prrrr", "prrrr..", ".ppprr."),
           "rows of unlike length": _moves(2, .2, "prrrrrrr", "pr......", "prr....."),
           "an empty response": _moves(3, .1, "ppp..", "prrrr"),
           "a wide clip": _moves(4, .4, "prrrrrrr", "pprrrrrr"),
           "nothing has moved, clip 0": (_still, _still.clone(), 0 * _still + 1, mask_of("prrr"), 0.),
           "advantages of 0": (_still + .5, _still, 0 * _still, mask_of("prrr"), .2),
           "bf16": _moves(5, .3, "prrrr", "pprrr", dtype=torch.bfloat16)},
    mistakes={
        "prompt tokens are counted": lambda a, b, A, m, c: _fraction(a, b, A, ~a.isnan(), c),
        "prompt and pads are counted": lambda a, b, A, m, c: _fraction(a, b, A, m | True, c),
        "divide by the number of response tokens, not of all places":
            lambda *x: _fraction(*x, over=lambda n, m: n.float().mean()),
        "divide by the number of response tokens, not of rows":
            lambda *x: _fraction(*x, over=lambda n, m: n.sum() / len(m)),
        "that is a count: asked is a share":
            lambda *x: _fraction(*x, over=lambda n, m: n.sum().float()),
        "that is every ratio beyond the clip: on one side of it the gradient flows":
            lambda *x: _fraction(*x, counts=lambda r, A, c: (r - 1).abs() > c),
        "ratios below 1 - clip count as well, where the advantage is negative": lambda *x: _fraction(
            *x, counts=lambda r, A, c: _counts(r, A, c) & (r > 1)),
        "ratios above 1 + clip count as well, where the advantage is positive": lambda *x: _fraction(
            *x, counts=lambda r, A, c: _counts(r, A, c) & (r < 1)),
        "that is where the clipped loss is the smaller: the sign of the advantage":
            lambda *x: _fraction(*x, counts=lambda r, A, c: _counts(r, -A, c)),
        "that is the share that is not clipped": lambda *x: 1 - _fraction(*x),
        "that is the log-ratio: the clip is about the ratio":
            lambda *x: _fraction(*x, counts=lambda r, A, c: _counts(1 + r.log(), A, c)),
        "the ratio is the wrong way round: now over when sampled":
            lambda *x: _fraction(*x, counts=lambda r, A, c: _counts(1 / r, A, c)),
        "tokens weigh the same: that is a mean of the rows' shares": lambda *x: _fraction(
            *x, over=lambda n, m: (n.sum(1) / m.sum(1).clamp(min=1)).mean()),
        "that is one number per row": lambda *x: _fraction(
            *x, over=lambda n, m: n.sum(1) / m.sum(1).clamp(min=1)),
        "where both losses are equal nothing is clipped: > not >=": lambda *x: _fraction(
            *x, counts=lambda r, A, c: ~_counts(r, A, c) & (r.clamp(1 - c, 1 + c) * A == r * A) | _counts(r, A, c)),
        "that is how much, not how often": lambda a, b, A, m, c: (
            ((a - b).exp() - (a - b).exp().clamp(1 - c, 1 + c)) * A)[m].clamp(min=0).mean()})
