"Exercises of the chapter on win rates."
import torch
from torch import Generator, tensor
from rlhf_nb import win_rate as package
from rlhf_nb.book.checks import Exercise

def _drawn(seed, *shape, m=5): # verdicts without and with labels, labels; ties among them
    g = Generator().manual_seed(seed)
    def levels(*size): return torch.randint(3, size, generator=g) / 2
    judge, labelled, gold = levels(*shape), levels(*shape[:-1], m), levels(*shape[:-1], m)
    gold[..., 0], gold[..., 1], labelled[..., 0], labelled[..., 1] = 1., 0., 1., 0.
    return judge, labelled, gold

# ------------------------------------------------------------------ prediction_powered
HAND = tensor([1., 1., 0., 1.]), tensor([1., 1.]), tensor([1., 0.])
CASES = {"by hand": HAND, "half of the judge": (*HAND, .5), "labels alone": (*_drawn(0, 9), 0.),
         "more labels than others": (*_drawn(1, 4, m=12), 1.), "three samples": (*_drawn(2, 3, 20), .7),
         "a λ for each sample": (*_drawn(3, 2, 12), tensor([.4, 1.6]))}

def _powered(judge, labelled, gold, lam=1., mean=None, var=lambda x: x.var(-1), of_labels=None, of_judge=None, last=torch.sqrt):
    lam, n, m = torch.as_tensor(lam), judge.shape[-1], gold.shape[-1]
    estimate = (mean or (lambda j, k, g, x: g.mean(-1) + x * (j.mean(-1) - k.mean(-1))))(judge, labelled, gold, lam)
    left = (of_labels or (lambda k, g, x: var(g - x[..., None] * k) / m))(labelled, gold, lam)
    right = (of_judge or (lambda j, x: x**2 * var(j) / n))(judge, lam)
    return estimate, last(left + right)

prediction_powered = Exercise(
    reference=package.prediction_powered, cases=CASES,
    mistakes={
        "the sign: the labelled pairs' verdicts are subtracted from the others'":
            lambda *a: _powered(*a, mean=lambda j, k, g, x: g.mean(-1) + x * (k.mean(-1) - j.mean(-1))),
        "the labels are missing in the estimate": lambda *a: _powered(*a, mean=lambda j, k, g, x: x * j.mean(-1)),
        "the verdicts of the labelled pairs are missing: the judge would be believed":
            lambda *a: _powered(*a, mean=lambda j, k, g, x: g.mean(-1) + x * j.mean(-1)),
        "λ multiplies the bracket alone, not the labels":
            lambda *a: _powered(*a, mean=lambda j, k, g, x: (1 - x) * g.mean(-1) + x * (j.mean(-1) - k.mean(-1) + g.mean(-1)) * x),
        "λ is missing in the estimate": lambda *a: _powered(*a, mean=lambda j, k, g, x: g.mean(-1) + j.mean(-1) - k.mean(-1) + 0 * x),
        "that is the variance: the error is its root": lambda *a: _powered(*a, last=lambda v: v),
        "λ² multiplies the judge's variance": lambda *a: _powered(*a, of_judge=lambda j, x: x * j.var(-1) / j.shape[-1]),
        "the judge's own variance is missing": lambda *a: _powered(*a, of_judge=lambda j, x: 0 * x),
        "of g - λ j together: the labels and their verdicts are of the same pairs":
            lambda *a: _powered(*a, of_labels=lambda k, g, x: (g.var(-1) + x**2 * k.var(-1)) / g.shape[-1]),
        "λ is missing in the variance of the labels":
            lambda *a: _powered(*a, of_labels=lambda k, g, x: (g - k).var(-1) / g.shape[-1] + 0 * x),
        "m and n are exchanged: each variance is divided by its own number":
            lambda j, k, g, lam=1.: _powered(j, k, g, lam, of_labels=lambda k, g, x: (g - x[..., None] * k).var(-1) / j.shape[-1],
                                             of_judge=lambda j, x: x**2 * j.var(-1) / g.shape[-1]),
        "an error of a mean: divide the variances by m and n":
            lambda *a: _powered(*a, of_labels=lambda k, g, x: (g - x[..., None] * k).var(-1), of_judge=lambda j, x: x**2 * j.var(-1)),
        "variances with n - 1 below": lambda *a: _powered(*a, var=lambda x: x.var(-1, correction=0)),
        "one number for each sample: over the last axis only":
            lambda j, k, g, lam=1.: tuple(x.mean() for x in _powered(j, k, g, lam)),
        "each sample has means of its own: over the last axis only": lambda *a: _powered(*a, mean=lambda j, k, g, x: g.mean() + x * (j.mean() - k.mean())),
        "the judge's mean is over the pairs without a label, not over all": lambda *a: _powered(
            *a, mean=lambda j, k, g, x: g.mean(-1) + x * (torch.cat([j, k], -1).mean(-1) - k.mean(-1)))})

# ------------------------------------------------------------------ rogan_gladen
def _gladen(judge, labelled, gold, q1=None, q0=None, solve=None):
    hit = (q1 or (lambda j, g: (j * g).sum(-1) / g.sum(-1)))(labelled, gold)
    right = (q0 or (lambda j, g: ((1 - j) * (1 - g)).sum(-1) / (1 - g).sum(-1)))(labelled, gold)
    return (solve or (lambda p, a, b: (p + b - 1) / (a + b - 1)))(judge.mean(-1), hit, right)

rogan_gladen = Exercise(
    reference=package.rogan_gladen,
    cases={"ties": (tensor([1., .5, 0., 1.]), tensor([1., 1., 0.]), tensor([1., .5, 0.])),
           "no ties": (tensor([1., 1., 0., 1., 0.]), tensor([1., 1., 0., 1., 0.]), tensor([1., 0., 0., 1., 0.])),
           "drawn": _drawn(0, 12, m=8), "few labels": _drawn(4, 9, m=3), "three samples": _drawn(2, 3, 20, m=9)},
    mistakes={
        "sensitivity and specificity are exchanged": lambda *a: _gladen(*a, solve=lambda p, x, y: (p + x - 1) / (x + y - 1)),
        "that is the judge's own win rate": lambda *a: _gladen(*a, solve=lambda p, x, y: p),
        "that is what the judge would say: solve it for w": lambda *a: _gladen(*a, solve=lambda p, x, y: x * p + (1 - y) * (1 - p)),
        "sensitivity: of the wins by the labels, not by the verdicts":
            lambda *a: _gladen(*a, q1=lambda j, g: (j * g).sum(-1) / j.sum(-1)),
        "specificity: of the losses by the labels, not by the verdicts":
            lambda *a: _gladen(*a, q0=lambda j, g: ((1 - j) * (1 - g)).sum(-1) / (1 - j).sum(-1)),
        "specificity is the share of losses that are seen, not of those that are missed":
            lambda *a: _gladen(*a, q0=lambda j, g: (j * (1 - g)).sum(-1) / (1 - g).sum(-1)),
        "a rate is a share of the wins, not of all labels": lambda *a: _gladen(*a, q1=lambda j, g: (j * g).mean(-1)),
        "a tie is half a win and half a loss, not a loss":
            lambda *a: _gladen(*a, q1=lambda j, g: (j * (g == 1)).sum(-1) / (g == 1).sum(-1),
                               q0=lambda j, g: ((1 - j) * (g < 1)).sum(-1) / (g < 1).sum(-1)),
        "the denominator is q0 + q1 - 1": lambda *a: _gladen(*a, solve=lambda p, x, y: (p + y - 1) / (x + y)),
        "the judge's win rate is that of the pairs without a label":
            lambda j, k, g: _gladen(k, k, g),
        "one number for each sample: over the last axis only": lambda j, k, g: _gladen(j, k, g).mean()})

# ------------------------------------------------------------------ fixed_estimate
def _strata(judge, labelled, gold, share=lambda j, k, v: (j == v).float().mean(), value=lambda k, g, v: g[k == v].mean()):
    return sum(share(judge, labelled, v) * value(labelled, gold, v) for v in judge.unique())

def _flat(seed, n, m): return _drawn(seed, n, m=m)
fixed_estimate = Exercise(
    reference=_strata,
    cases={"ties alone were labelled often": (tensor([1., 1., .5, 0.]), tensor([1., .5, .5, .5, 0.]), tensor([1., 1., .5, 1., 0.])),
           "drawn": (tensor([0., .5, 1., 1., 1., 0., .5]), *_flat(1, 7, 12)[1:]), "many pairs": _flat(2, 60, 30),
           "no ties": (tensor([1., 1., 0.]), tensor([1., 0., 0., 1.]), tensor([.5, 0., 1., 1.])),
           "a verdict without a label": (tensor([1., .5, 0., 0.]), tensor([1., 0.]), tensor([1., 0.])),
           "four levels": (tensor([0., .25, .25, 1.]), tensor([0., .25, 1., 1., .25]), tensor([0., .5, 1., .5, 1.]))},
    mistakes={
        "as it was: prediction-powered": lambda j, k, g: g.mean() + j.mean() - k.mean(),
        "labels alone: those of ties count too often": lambda j, k, g: g.mean(),
        "the share of a verdict is that among all pairs, not among the labelled":
            lambda *a: _strata(*a, share=lambda j, k, v: (k == v).float().mean()),
        "each verdict counts as its share, not the same": lambda *a: _strata(*a, share=lambda j, k, v: 1 / len(j.unique())),
        "a share, not a number of pairs": lambda *a: _strata(*a, share=lambda j, k, v: (j == v).float().sum()),
        "the labels count, not the verdicts": lambda j, k, g: j.mean(),
        "the mean label of a verdict, not the sum": lambda *a: _strata(*a, value=lambda k, g, v: g[k == v].sum()),
        "a verdict without a label is nan, not 0": lambda *a: _strata(*a, value=lambda k, g, v: g[k == v].mean().nan_to_num(0.)),
        "every verdict that the judge gives counts, ties too":
            lambda j, k, g: sum((j == v).float().mean() * g[k == v].mean() for v in (0., 1.)),
        "weighted by the verdict: its labels alone say what it is worth":
            lambda *a: _strata(*a, value=lambda k, g, v: v * g[k == v].mean())})

# ------------------------------------------------------------------ bradley_terry_scores
def _games(seed, *shape):
    x = torch.randint(1, 9, shape, generator=Generator().manual_seed(seed)).float()
    return x * (1 - torch.eye(shape[-1]))

def _zermelo(wins, steps=100, top=lambda w: w.sum(-1), games=lambda w: w + w.mT, pair=lambda p: p[..., :, None] + p[..., None, :],
             last=lambda s: s - s.mean(-1, keepdim=True), scale=lambda p: p / p.mean(-1, keepdim=True)):
    p = torch.ones_like(wins[..., 0])
    for _ in range(steps): p = scale(top(wins) / (games(wins) / pair(p)).sum(-1))
    return last(p.log())

def _multiplied(w, n): # the old p stays a factor
    p = torch.ones_like(w[..., 0])
    for _ in range(n):
        p = p * w.sum(-1) / ((w + w.mT) / (p[..., :, None] + p[..., None, :])).sum(-1)
        p = p / p.mean(-1, keepdim=True)
    return p.log() - p.log().mean(-1, keepdim=True)

def _divided(w, n): # games over the sum of strengths of all opponents
    p = torch.ones_like(w[..., 0])
    for _ in range(n):
        p = w.sum(-1) / ((w + w.mT).sum(-1) / (p[..., :, None] + p[..., None, :]).sum(-1))
        p = p / p.mean(-1, keepdim=True)
    return p

def _refusing(slip): # as the reference does
    def erring(w, n=100):
        package.bradley_terry_scores(w, 1)
        return slip(w, n)
    return erring

bradley_terry_scores = Exercise(
    reference=package.bradley_terry_scores,
    cases={"3 wins to 1": (tensor([[0., 3.], [1., 0.]]),), "three players": (_games(0, 3, 3),), "unequal games": (
               tensor([[0., 9., 1.], [3., 0., 0.], [1., 2., 0.]]),), "one step": (_games(1, 4, 4), 1), "a stack": (_games(2, 2, 4, 4),),
           "ties": (tensor([[0., 2.5, 1.5], [1.5, 0., 3.], [.5, 1., 0.]]),),
           "one won every game": (tensor([[0., 2., 1.], [0., 0., 3.], [0., 1., 0.]]),),
           "one lost every game": (tensor([[0., 2., 1.], [2., 0., 3.], [0., 0., 0.]]),)},
    mistakes={
        "who won, or lost, every game has an infinite s: ValueError": lambda w, n=100: _zermelo(w, n),
        "who won every game has an infinite s, too: ValueError": lambda w, n=100:
            _zermelo(w, n) if (w.sum(-1) > 0).all() else package.bradley_terry_scores(w, n),
    } | {words: _refusing(slip) for words, slip in {
        "rows win, columns lose": lambda w, n=100: _zermelo(w, n, top=lambda w: w.sum(-2)),
        "the mean of s is 0, not the first s: that takes one model as the zero": lambda w, n=100: _zermelo(w, n, last=lambda s: s - s[..., :1]),
        "games are wins of both": lambda w, n=100: _zermelo(w, n, games=lambda w: w),
        "that is the share of games won, as after one step: who was the opponent? put p in again":
            lambda w, n=100: (lambda s: s - s.mean(-1, keepdim=True))((w.sum(-1) / (w + w.mT).sum(-1)).log()),
        "those are the strengths p: take the log": lambda w, n=100: _zermelo(w, n, last=lambda s: s.exp()),
        "subtract the mean of the logs, not the log of the mean": lambda w, n=100: _zermelo(w, n, last=lambda s: s),
        "those are the strengths p: take the log, then subtract the mean": lambda w, n=100: _zermelo(w, n, last=lambda s: s.exp() - s.exp().mean(-1, keepdim=True)),
        "the natural logarithm, not Elo's scale of 400 / log 10": lambda w, n=100: _zermelo(w, n) * 400 / 2.302585093,
        "the natural logarithm, not that of base 2": lambda w, n=100: _zermelo(w, n) / .69314718,
        "n_ij over p_i + p_j is put in again: its p is the new one, not a factor; p_i does not multiply what it is replaced by": lambda w, n=100: _multiplied(w, n),
        "p_i is wins over the sum of n_ij / (p_i + p_j): that sum runs over the opponents, the last axis": lambda w, n=100: (lambda s: s - s.mean(-1, keepdim=True))(
            _divided(w, n).log()),
        "the spread of s is no 1: only the mean is subtracted": lambda w, n=100: _zermelo(w, n, last=lambda s: (s - s.mean(-1, keepdim=True)) / s.std(-1, keepdim=True)),
        "p_i + p_j is the sum of both": lambda w, n=100: _zermelo(w, n, pair=lambda p: p[..., None, :] + 0 * p[..., :, None]),
        "p_i + p_j, not p_i p_j: the sum of both, not the product": lambda w, n=100: _zermelo(w, n, pair=lambda p: p[..., :, None] * p[..., None, :]),
        "steps is how often p is put in again": lambda w, n=100: _zermelo(w, 100 if n == 1 else n + 1),
        "the first p is 1 for all": lambda w, n=100: _zermelo(w, n - 1),
        "mean 0 in each table of a stack: the mean runs along the last axis, not over all": lambda w, n=100: _zermelo(w, n, last=lambda s: s - s.mean()),
        "the logarithm is the natural one": lambda w, n=100: _zermelo(w, n) / 2.302585,
        "the likelihood asks who the opponent was: that is the ratio of wins and losses, the logit of the share of games won":
            lambda w, n=100: (lambda s: s - s.mean(-1, keepdim=True))((w.sum(-1) / w.sum(-2)).log())}.items()})
