"Exercises of the chapter on pictures."
import math
import torch
from torch import tensor
from rlhf_nb.checks import Exercise

nan, inf = math.nan, math.inf

# ---- a running mean

def _means(values, n, window=lambda i, n: (i - n + 1, i + 1), divide=lambda part, n: len(part)):
    parts = [values[max(0, lo):hi] for lo, hi in (window(i, n) for i in range(len(values)))]
    return [sum(part) / divide(part, n) for part in parts]

running_mean = Exercise(
    reference=_means,
    cases={"five values, three at a time": ([4., 0., 2., 6., 7.], 3), "one at a time": ([3., 1., 2.], 1),
           "more than there are": ([1., -2., 6.], 9), "one value": ([5.], 4), "none": ([], 2),
           "whole numbers": ([1, 2, 4, 8, 16, 5], 4)},
    mistakes={
        "the first means are too small: fewer values, smaller divisor":
            lambda v, n: _means(v, n, divide=lambda part, n: n),
        "it looks into the future: the window ends at i, it does not begin there":
            lambda v, n: _means(v, n, lambda i, n: (i, i + n)),
        "the window is centred at i: it ends there":
            lambda v, n: _means(v, n, lambda i, n: (i - n // 2, i + n // 2 + 1)),
        "one value too many: from i - n + 1 to i": lambda v, n: _means(v, n + 1),
        "one value too few: values[i] belongs to it, as the last of n": lambda v, n: _means(
            v, n, lambda i, n: (i - n + 2, i + 1)),
        "value i is missing: a slice ends before its second number":
            lambda v, n: _means(v, n, lambda i, n: (i - n + 1, i)),
        "that is the mean of all so far: only the last n": lambda v, n: _means(v, len(v) + 1),
        "those are sums: divide": lambda v, n: _means(v, n, divide=lambda *_: 1),
        "one mean for each value: yours begin when n values are there":
            lambda v, n: _means(v, n)[n - 1:]})

# ---- a strip without its giant

def _squeeze(x, q, sizes=torch.abs, cut=torch.clamp, known=lambda x: x[~x.isnan()], low=True):
    limit = sizes(known(x)).quantile(q).item()
    return cut(x, -limit if low else -inf, limit)

def _by_rows(x, q): return torch.stack([_squeeze(row, q) for row in x])
def _replace(by): return lambda x, lo, hi: x.masked_fill(x.abs() > hi, by)

_wild = tensor([[.5, -1., 40., nan], [2., -3., .1, -30.]])
squeeze = Exercise(
    reference=_squeeze,
    cases={"one giant of each sign, one nan": (_wild, .7), "one row": (tensor([[5., -50., 1., .2, .1]]), .5),
           "nothing to cut": (tensor([[1., -2.], [3., 0.]]), 1.), "all below zero": (-tensor([[1., 9., 4., 2.]]), .6),
           "several nan": (tensor([[nan, 8., nan], [-1., nan, 2.]]), .5)},
    mistakes={
        "take the quantile of the sizes, not of the numbers":
            lambda x, q: _squeeze(x, q, sizes=lambda v: v),
        "large values are gone: set them to the limit": lambda x, q: _squeeze(x, q, cut=_replace(nan)),
        "large values became 0: set them to the limit": lambda x, q: _squeeze(x, q, cut=_replace(0.)),
        "only one side is cut: below minus the limit as well": lambda x, q: _squeeze(x, q, low=False),
        "the signs are lost": lambda x, q: _squeeze(x.abs(), q),
        "large negative values turned positive: give the limit their sign": lambda x, q: _squeeze(
            x, q, cut=lambda x, lo, hi: x.masked_fill(x.abs() > hi, hi)),
        "nan must stay nan: it is drawn grey": lambda x, q: _squeeze(x, q).nan_to_num(0.),
        "one nan makes the quantile nan: leave it out": lambda x, q: _squeeze(x, q, known=torch.flatten),
        "one limit for the whole strip, not one per row": _by_rows,
        "that makes every number smaller: cut the large ones only": lambda x, q: _squeeze(
            x, q, cut=lambda x, lo, hi: x / x.nan_to_num().abs().max() * hi)})

# ---- first clinic: entropy below zero

def _entropy(logp, mask, clean=lambda x, m: torch.where(m, x, 0.),
             over=lambda rows, m: rows.mean()):
    return over(-clean(logp, mask).sum(1), mask)

def _stored(fill, seed=0, kind=torch.float):
    logp = -2 * torch.rand(3, 5, generator=torch.Generator().manual_seed(seed))
    return logp.to(kind).masked_fill(~_lengths, fill)

_lengths = torch.arange(5) < tensor([[5], [2], [3]])
_short = tensor([[1, 1, 0], [0, 0, 0]]).bool()
fixed_response_entropy = Exercise(
    reference=_entropy,
    cases={"1 where no token is": (_stored(1.).requires_grad_(), _lengths),
           "-9 where no token is": (_stored(-9., 1), _lengths),
           "nan where no token is": (_stored(nan, 2), _lengths),
           "pads on both sides": (tensor([[1., -.5, -2., 1.]]), tensor([[0, 1, 1, 0]]).bool()),
           "an empty response": (tensor([[-1., -.25, 1.], [1., 1., 1.]]), _short),
           "bf16": (_stored(1., 3, torch.bfloat16), _lengths)},
    mistakes={
        "what stands in the pads is summed: 1 each, and it is not a log-prob":
            lambda x, m: _entropy(x, m, clean=lambda x, m: x),
        "that works for a 1 only: a pad may hold anything, so mask it":
            lambda x, m: _entropy(x, m, clean=lambda x, m: x.clamp(max=0.)),
        "0 times nan is nan: choose with the mask, do not multiply":
            lambda x, m: _entropy(x, m, clean=lambda x, m: x * m),
        "turn the sign: log-probs are below 0": lambda x, m: -_entropy(x, m),
        "that is the mean over tokens: add up each response first":
            lambda x, m: _entropy(x, m, over=lambda rows, m: rows.sum() / m.sum()),
        "that is the mean of means: add up each response, do not average it":
            lambda x, m: _entropy(x, m, over=lambda rows, m: (rows / m.sum(1).clamp(min=1)).mean()),
        "that is the sum over the batch: take the mean over responses":
            lambda x, m: _entropy(x, m, over=lambda rows, m: rows.sum()),
        "one number for the batch, not one per response":
            lambda x, m: _entropy(x, m, over=lambda rows, m: rows),
        "an empty response counts too, with 0": lambda x, m: _entropy(
            x, m, over=lambda rows, m: rows[m.any(1)].mean()),
        "upside down: that sums the pads": lambda x, m: _entropy(x, ~m)})

# ---- second clinic: the slow learner

def _smooth(values, weight, start=0., scale=lambda w, i: 1 - w**(i + 1), new=None):
    last, out = start, []
    for i, v in enumerate(values):
        last = weight * last + (1 - weight if new is None else new) * v
        out.append(last / scale(weight, i))
    return out

def _carried(values, w):
    last, out = 0., []
    for i, v in enumerate(values):
        last = (w * last + (1 - w) * v) / (1 - w**(i + 1))
        out.append(last)
    return out

def _plain(*_): return 1.
_run = [10., 6., 3., 2.2, 1.9, 2.1, 2.]
fixed_smooth = Exercise(
    reference=_smooth,
    cases={"a steep start": (_run, .9), "nearly no smoothing": (_run, .1), "none": (_run, 0.),
           "one value": ([4.], .99), "all alike": ([3.] * 4, .8), "below zero, then up": ([-2., 1., 5., 3.], .5)},
    mistakes={
        "the first value keeps too much weight: a later one may not count for less":
            lambda v, w: _smooth(v, w, v[0], _plain),
        "it starts from 0 and nothing makes up for it: the weights do not sum to 1 yet":
            lambda v, w: _smooth(v, w, 0., _plain),
        "the weights are swapped: `weight` belongs to what was, the rest to the new value":
            lambda v, w: _smooth(v, 1 - w),
        "one step behind: with the first value the weights sum to 1 - weight":
            lambda v, w: _smooth(v, w, scale=lambda w, i: 1 - w**i),
        "one step ahead: with the first value the weights sum to 1 - weight":
            lambda v, w: _smooth(v, w, scale=lambda w, i: 1 - w**(i + 2)),
        "those are sums: the new value gets 1 - weight": lambda v, w: _smooth(v, w, new=1.),
        "those are sums: divide by the sum of the weights":
            lambda v, w: _smooth(v, w, 0., _plain, 1.),
        "the made-up value must not be carried on: divide only what is put out": _carried,
        "nothing fades: that is the mean of all so far":
            lambda v, w: [sum(v[:i + 1]) / (i + 1) for i in range(len(v))],
        "it runs backwards, from the future": lambda v, w: _smooth(v[::-1], w)[::-1],
        "one number for each value, not the last one only": lambda v, w: _smooth(v, w)[-1]})
