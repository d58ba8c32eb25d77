"Exercises of the chapter on your own data."
import math
import torch
from torch import tensor
from rlhf_nb.checks import Exercise
from rlhf_nb.recipes import BestOfNResult

# ------------------------------------------------------------------ fixed_lr_share
def _lr(step, n_rows, batch_size, n_epochs, low=.2, total=None, clamp=True, up=math.ceil):
    progress = step / (total or up(n_rows * n_epochs / batch_size))
    return 1. - (1. - low) * (min(progress, 1.) if clamp else progress)

fixed_lr_share = Exercise(
    reference=_lr,
    cases={"the first step": (0, 320, 32, 3), "half-way": (15, 320, 32, 3),
           "a last batch that is not full": (10, 100, 32, 5), "one epoch": (7, 64, 8, 1),
           "the last step": (29, 320, 32, 3), "behind the end": (50, 320, 32, 3),
           "fewer rows than a batch": (2, 5, 8, 4), "batches of one": (30, 40, 1, 2)},
    mistakes={
        "still in rows: the schedule is as long as the file, the run is not":
            lambda s, n, b, e: _lr(s, n, b, e, total=n // 2),
        "still in rows: a step takes a whole batch of them":
            lambda s, n, b, e: _lr(s, n, b, e, total=n * e),
        "still in rows, and the epochs are missing": lambda s, n, b, e: _lr(s, n, b, e, total=n),
        "the epochs are missing: it is at the bottom after the first":
            lambda s, n, b, e: _lr(s, n, b, 1),
        "the last batch may not be full, but it is a step: round up":
            lambda s, n, b, e: _lr(s, n, b, e, up=int),
        "batches go on across epochs: round up once, in the end":
            lambda s, n, b, e: _lr(s, n, b, e, total=math.ceil(n / b) * e),
        "batches go on across epochs, and the last is a step: round up once, in the end":
            lambda s, n, b, e: _lr(s, n, b, e, total=max(1, n // b) * e),
        "behind the end it stays at the bottom": lambda *x: _lr(*x, clamp=False),
        "it falls to .2, not to 0": lambda *x: _lr(*x, low=0.),
        "it falls by .2 only": lambda *x: _lr(*x, low=.8),
        "it rises": lambda *x: 1.2 - _lr(*x),
        "step 0 has the full rate: do not count from 1": lambda s, *x: _lr(s + 1, *x)})

# ------------------------------------------------------------------ errors_apart
def _apart(p, n, q, m, var=lambda p, n: p * (1 - p) / n, root=math.sqrt, second=1.):
    return abs(p - q) / root(var(p, n) + second * var(q, m))

errors_apart = Exercise(
    reference=_apart,
    cases={"the colleague's": (.87, 100, .84, 100), "unequal tests": (.7, 50, .9, 400),
           "the first is better": (.95, 200, .6, 20), "a coin": (.5, 64, .75, 16),
           "the same": (.8, 30, .8, 90), "one of them perfect": (1., 40, .85, 40)},
    mistakes={
        "both accuracies are uncertain: add their variances":
            lambda *x: _apart(*x, second=0.),
        "add variances, not standard errors": lambda p, n, q, m:
            abs(p - q) / (math.sqrt(p * (1 - p) / n) + math.sqrt(q * (1 - q) / m)),
        "more rows make it surer: divide each variance by its own number of rows":
            lambda *x: _apart(*x, var=lambda p, n: p * (1 - p)),
        "that is the variance: the error is its root": lambda *x: _apart(*x, root=lambda v: v),
        "how far, in either direction: take the absolute value":
            lambda p, n, q, m: _apart(p, n, q, m) * (1 if p > q else -1),
        "how far the second is above the first: take the absolute value":
            lambda p, n, q, m: _apart(p, n, q, m) * (1 if q > p else -1),
        "both are divided by the first's number of rows": lambda p, n, q, m: _apart(p, n, q, n),
        "the numbers of rows have changed places": lambda p, n, q, m: _apart(p, m, q, n),
        "divide by all n rows: p is all that is estimated":
            lambda *x: _apart(*x, var=lambda p, n: p * (1 - p) / (n - 1)),
        "that is the mean of the two variances: add them": lambda *x: _apart(*x) * math.sqrt(2),
        "the variance of a coin is p (1 - p)": lambda *x: _apart(*x, var=lambda p, n: p / n),
        "those are the errors: how many of them is the difference?":
            lambda p, n, q, m: math.sqrt(p * (1 - p) / n + q * (1 - q) / m)})

# ------------------------------------------------------------------ to_pairs
def _pairs(result, first=torch.argmax, second=torch.argmin, same=False, names=("chosen", "rejected")):
    rows = []
    for prompt, answers, score in zip(result.prompts, result.answers, result.score):
        two = answers[int(first(score))], answers[int(second(score))]
        if same or two[0] != two[1]: rows.append(dict(prompt=prompt) | dict(zip(names, two)))
    return rows

def _rank(k): return lambda score: score.argsort(descending=True)[k]

def _result(*rows): # prompt, answers, scores
    prompts, answers, scores = zip(*rows)
    return BestOfNResult(list(prompts), [list(a) for a in answers], tensor(scores))

to_pairs = Exercise(
    reference=_pairs,
    cases={"three prompts": (_result(("p", "abc", [.5, -1., 2.]), ("q", "def", [3., 0., 1.]),
                                    ("r", "ghi", [-1., .1, -2.])),),
           "the same text twice": (_result(("p", "ddd", [1., 0., -1.]), ("q", "aba", [2., 1., 1.5])),),
           "all below 0": (_result(("p", "abcd", [-3., -.5, -9., -1.])),),
           "two answers": (_result(("p", "xy", [0., 1.]), ("q", "zz", [1., 0.])),),
           "nobody differs": (_result(("p", "aa", [0., 1.])),)},
    mistakes={
        "the best is the chosen one": lambda p: _pairs(p, torch.argmin, torch.argmax),
        "two equal texts teach nothing: leave that prompt out": lambda p: _pairs(p, same=True),
        "the best of them, not the first": lambda p: _pairs(p, lambda s: 0),
        "the worst of them, not the last": lambda p: _pairs(p, second=lambda s: len(s) - 1),
        "the best of them, not the first; the worst, not the last":
            lambda p: _pairs(p, lambda s: 0, lambda s: len(s) - 1),
        "the worst, not the second best": lambda p: _pairs(p, second=_rank(1)),
        "far below 0 is bad, not good: no absolute values":
            lambda p: _pairs(p, lambda s: s.abs().argmax(), lambda s: s.abs().argmin()),
        "one row per prompt: the best against the worst only":
            lambda p: [dict(prompt=q, chosen=a[i], rejected=a[j])
                       for q, a, s in zip(p.prompts, p.answers, p.score)
                       for i in range(len(a)) for j in range(len(a)) if s[i] > s[j] and a[i] != a[j]],
        "one best and one worst for each prompt, not over all of them":
            lambda p: _pairs(p, lambda s: p.score.amax(0).argmax(), lambda s: p.score.amin(0).argmin()),
        "what is read by `train reward` has prompt, chosen and rejected":
            lambda p: _pairs(p, names=("best", "worst")),
        "a row is a dict with prompt, chosen and rejected":
            lambda p: [tuple(row.values()) for row in _pairs(p)]})
