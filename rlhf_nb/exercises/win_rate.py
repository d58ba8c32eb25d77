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
         "a λ for each sample": (*_drawn(3, 2, 12), tensor([.4, 1.6])), "λ below 0": (*_drawn(6, 8), -.5), "two axes": (*_drawn(5, 2, 3, 9), .7)}

def _powered(judge, labelled, gold, lam=1., mean=None, var=lambda x: x.var(-1), of_labels=None, of_judge=None, last=torch.sqrt):
    lam, n, m = torch.as_tensor(lam), judge.shape[-1], gold.shape[-1]
    estimate = (mean or (lambda j, k, g, x: g.mean(-1) + x * (j.mean(-1) - k.mean(-1))))(judge, labelled, gold, lam)
    left = (of_labels or (lambda k, g, x: var(g - x[..., None] * k) / m))(labelled, gold, lam)
    right = (of_judge or (lambda j, x: x**2 * var(j) / n))(judge, lam)
    return estimate, last(left + right)

def _two(judge, labelled, gold, lam=1.): # the estimate, and both parts of the squared error
    lam = torch.as_tensor(lam)
    return (_powered(judge, labelled, gold, lam)[0], (gold - lam[..., None] * labelled).var(-1) / gold.shape[-1], lam**2 * judge.var(-1) / judge.shape[-1])

prediction_powered = Exercise(
    reference=package.prediction_powered, cases=CASES,
    mistakes={
        "λ may be a number, such as the default 1: a float has no [..., None], so make a tensor of it with as_tensor": lambda j, k, g, lam=1.: _powered(j, k, g, lam[..., None][..., 0]),
        "λ may be a tensor, one for each sample: it needs a last axis, [..., None], beside the verdicts": lambda j, k, g, lam=1.: _powered(
            j, k, g, lam, of_labels=lambda k, g, x: (g - x * k).var(-1) / g.shape[-1]),
        "λ counts the judge: it is the labels' mean that stands alone and in full, and λ multiplies the bracket of verdicts": lambda *a: _powered(
            *a, mean=lambda j, k, g, x: j.mean(-1) + x * (g.mean(-1) - k.mean(-1))),
        "the variance is that of g - λ j together: the labelled pairs' verdicts, the judge, are left out of it, labels alone": lambda *a: _powered(*a, of_labels=lambda k, g, x: g.var(-1) / g.shape[-1] + 0 * x),
        "λ multiplies both parts of the bracket, also the verdicts of the labelled": lambda *a: _powered(*a, mean=lambda j, k, g, x: g.mean(-1) + x * j.mean(-1) - k.mean(-1)),
        "λ multiplies both parts of the bracket, also the verdicts of the others": lambda *a: _powered(*a, mean=lambda j, k, g, x: g.mean(-1) + j.mean(-1) - x * k.mean(-1)),
        "λ weighs the bracket, it does not mix labels and judge: that is (1 - λ) g + λ j": lambda *a: _powered(*a, mean=lambda j, k, g, x: (1 - x) * g.mean(-1) + x * j.mean(-1)),
        "the judge's verdicts are those of the others, without a label: here the labelled are counted among them, all together in one pool": lambda j, k, g, lam=1.: _powered(
            torch.cat([j, k], -1), k, g, lam),
        "the labels are few: their mean is over the labelled pairs, the others' verdicts do not stand in for labels": lambda *a: _powered(*a, mean=lambda j, k, g, x: torch.cat([j, g], -1).mean(-1) + 0 * x),
        "n and m are numbers of pairs, along the last axis: len counts rows, the leading axis": lambda j, k, g, lam=1.: _powered(
            j, k, g, lam, of_labels=lambda k, g, x: (g - x[..., None] * k).var(-1) / len(g), of_judge=lambda j, x: x**2 * j.var(-1) / len(j)),
        "errors add as squares: the root of the sum of variances, not the sum of two standard errors": lambda *a: (lambda x, left, right: (x, left.sqrt() + right.sqrt()))(*_two(*a)),
        "the variances are added, not subtracted": lambda *a: _powered(*a, of_judge=lambda j, x: -x**2 * j.var(-1) / j.shape[-1]),
        "the covariance is in g - λ j_m: its sign is minus, not plus": lambda *a: _powered(*a, of_labels=lambda k, g, x: (g + x[..., None] * k).var(-1) / g.shape[-1]),
        "the difference is g - λ j_m, where λ multiplies the verdicts, not the labels": lambda *a: _powered(*a, of_labels=lambda k, g, x: (x[..., None] * g - k).var(-1) / g.shape[-1]),
        "variances, not standard deviations, are divided by their numbers": lambda *a: _powered(*a, var=lambda x: x.std(-1)),
        "each variance is divided by its own number, m or n: var has n - 1 below already, no second one": lambda *a: _powered(
            *a, of_labels=lambda k, g, x: (g - x[..., None] * k).var(-1) / (g.shape[-1] - 1), of_judge=lambda j, x: x**2 * j.var(-1) / (j.shape[-1] - 1)),
        "each variance is divided by its own number, m or n: not both by m + n": lambda j, k, g, lam=1.: _powered(
            j, k, g, lam, of_labels=lambda k, g, x: (g - x[..., None] * k).var(-1) / (g.shape[-1] + j.shape[-1]), of_judge=lambda x, l: l**2 * x.var(-1) / (x.shape[-1] + g.shape[-1])),
        "the second variance is that of the others' verdicts, not of the labelled pairs'": lambda j, k, g, lam=1.: _powered(
            j, k, g, lam, of_judge=lambda x, l: l**2 * k.var(-1) / x.shape[-1]),
        "the standard error itself: no 1.96, which makes an interval": lambda *a: (lambda x, e: (x, 1.96 * e))(*_powered(*a)),
        "estimate first, then its error: the two are exchanged": lambda *a: _powered(*a)[::-1],
        "two values are wanted, the error too": lambda *a: _powered(*a)[0],
        "the λ that is given counts, an argument: the best one is not computed": lambda j, k, g, lam=1.: _powered(j, k, g, 1.),
        "the share of p (1 - p) is the variance of wins and losses alone: ties, and the n - 1 below, need var": lambda *a: _powered(
            *a, of_judge=lambda j, x: x**2 * j.mean(-1) * (1 - j.mean(-1)) / j.shape[-1]),
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
           "drawn": _drawn(0, 12, m=8), "few labels": _drawn(4, 9, m=3), "three samples": _drawn(2, 3, 20, m=9),
           "labels all alike": (tensor([1., 0., 1.]), tensor([1., 1., 0.]), tensor([1., 1., 1.])), "two axes": _drawn(7, 2, 2, 9, m=5),
           "verdicts all alike": (tensor([1., 0., 1.]), tensor([1., 1., 1.]), tensor([1., 0., 0.])),
           "a judge no better than a coin": (tensor([1., 0., 1., 1.]), tensor([1., 1., 0., 0., 0., 1.]), tensor([1., 0., 0., 1., 0., 0.]))},
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
        "p + q0 - 1 is the numerator: 1 is not subtracted, - 1 is missing": lambda *a: _gladen(*a, solve=lambda p, x, y: (p + y) / (x + y - 1)),
        "the numerator is p + q0 - 1: the signs of q0, the specificity, and of 1 are turned, minus for plus": lambda *a: _gladen(*a, solve=lambda p, x, y: (p - y + 1) / (x + y - 1)),
        "the numerator is p + q0 - 1: that subtracts q0": lambda *a: _gladen(*a, solve=lambda p, x, y: (p - y) / (x + y - 1)),
        "solved for w: p less the rate of false wins, 1 - q0, over q1 + q0 - 1; here nothing is divided, the denominator is missing": lambda *a: _gladen(*a, solve=lambda p, x, y: p + y - 1),
        "specificity is a share of the losses: divide by their sum (1 - gold), not by the number of all labels": lambda *a: _gladen(*a, q0=lambda j, g: ((1 - j) * (1 - g)).mean(-1)),
        "sensitivity and specificity are shares of the wins and of the losses: divide by their sums, the weights, not by the number of all labels": lambda *a: _gladen(
            *a, q1=lambda j, g: (j * g).mean(-1), q0=lambda j, g: ((1 - j) * (1 - g)).mean(-1)),
        "a tie counts, half a win and half a loss: here ties are left out, dropped": lambda *a: _gladen(*a, q1=lambda j, g: (j * (g == 1)).sum(-1) / (g == 1).sum(-1),
            q0=lambda j, g: ((1 - j) * (g == 0)).sum(-1) / (g == 0).sum(-1)),
        "a tie of the labels is half a win and half a loss, not a win": lambda *a: _gladen(*a, q1=lambda j, g: (j * (g > 0)).sum(-1) / (g > 0).sum(-1),
            q0=lambda j, g: ((1 - j) * (g == 0)).sum(-1) / (g == 0).sum(-1)),
        "a tie is half a win and half a loss, of verdicts too: a tie of the judge is no loss": lambda j, k, g: _gladen((j == 1).float(), (k == 1).float(), g),
        "a tie is half a win and half a loss, of verdicts too: a tie of the judge is no win": lambda j, k, g: _gladen((j > 0).float(), (k > 0).float(), g),
        "a verdict of the labelled pairs may be a tie, half seen: it is no loss": lambda *a: _gladen(*a, q1=lambda j, g: ((j == 1) * g).sum(-1) / g.sum(-1),
            q0=lambda j, g: ((j < 1) * (1 - g)).sum(-1) / (1 - g).sum(-1)),
        "nan or inf where labels or verdicts are all alike, 0/0: a small number (eps) in the denominators hides that": lambda j, k, g: _gladen(
            j, k, g, q1=lambda j, g: (j * g).sum(-1) / (g.sum(-1) + 1e-8), q0=lambda j, g: ((1 - j) * (1 - g)).sum(-1) / ((1 - g).sum(-1) + 1e-8), solve=lambda p, x, y: (p + y - 1) / (x + y - 1 + 1e-8)),
        "prediction-powered, which corrects by the difference of verdicts with λ = 1: here it is divided by q0 + q1 - 1, sensitivity and specificity": lambda j, k, g: g.mean(-1) + j.mean(-1) - k.mean(-1),
        "p is the win rate of the pairs without a label: here all verdicts are pooled, the labelled together with the others": lambda j, k, g: _gladen(torch.cat([j, k], -1), k, g),
        "each sample has rates of its own: over the last axis, -1, not over all axes": lambda j, k, g: _gladen(j, k, g, q1=lambda j, g: (j * g).sum() / g.sum(),
            q0=lambda j, g: ((1 - j) * (1 - g)).sum() / (1 - g).sum()),
        "each sample has means of its own: over the last axis, -1, not over all axes": lambda j, k, g: _gladen(j, k, g, q1=lambda j, g: (j * g).sum() / g.sum(),
            q0=lambda j, g: ((1 - j) * (1 - g)).sum() / (1 - g).sum(), solve=lambda p, x, y: (j.mean() + y - 1) / (x + y - 1)),
        "over the last axis, -1, not the first": lambda j, k, g: (j.mean(0) + ((1 - k) * (1 - g)).sum(0) / (1 - g).sum(0) - 1) / (
            ((1 - k) * (1 - g)).sum(0) / (1 - g).sum(0) + (k * g).sum(0) / g.sum(0) - 1),
        "an estimate may lie outside of 0 and 1: nothing is cut off, no clamp": lambda *a: _gladen(*a).clamp(0, 1),
        "that is the labels' mean: the judge's verdicts are missing": lambda j, k, g: g.mean(-1) + 0 * j.mean(-1),
        "q0 + q1 - 1 is the denominator: it is q1 - q0": lambda *a: _gladen(*a, solve=lambda p, x, y: (p + y - 1) / (x - y)),
        "w is the win rate of B: 1 - w, the other way round, is that of A": lambda *a: 1 - _gladen(*a),
        "a judge worse than a coin has a denominator below 0: no clamp cuts it off": lambda *a: _gladen(*a, solve=lambda p, x, y: (p + y - 1) / (x + y - 1).clamp(min=1e-6)),
        "solved for w: p over the sensitivity takes no account of false wins, the specificity": lambda *a: _gladen(*a, solve=lambda p, x, y: p / x),
        "the judge's errors are rates among the labels, not the share of pairs where both agree": lambda j, k, g: _gladen(j, k, g, solve=lambda p, x, y: (p + (k == g).float().mean(-1) - 1) / (
            2 * (k == g).float().mean(-1) - 1)),
        "sensitivity is a share of the wins: divide by the sum of the labels (gold), not by the number of all of them": lambda *a: _gladen(*a, q1=lambda j, g: (j * g).mean(-1)),
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
           "four levels": (tensor([0., .25, .25, 1.]), tensor([0., .25, 1., 1., .25]), tensor([0., .5, 1., .5, 1.])),
           "a label whose verdict nobody else has": (tensor([1., 0., 0.]), tensor([1., 0., .5, 1.]), tensor([1., .5, 1., 0.])),
           "as many labels as pairs": (tensor([1., 0., .5, 1.]), tensor([.5, 1., 0., .5]), tensor([1., .5, 0., .5])),
           "one verdict alone": (tensor([1., 1., 1.]), tensor([1., 1.]), tensor([1., 0.])), "labels between": (tensor([1., 0., 0.]), tensor([1., 0., 1.]), tensor([.25, .75, .5])),
           "percents": (tensor([.3, .3, .9, .9, .9]), tensor([.9, .3, .3]), tensor([1., 0., .5]))},
    mistakes={
        "as it was: prediction-powered": lambda j, k, g: g.mean() + j.mean() - k.mean(),
        "that is the plain mean of the labels: each verdict's mean label counts as its share of all pairs, stratified": lambda j, k, g: g.mean(),
        "the share of a verdict is that among all pairs, not among the labelled":
            lambda *a: _strata(*a, share=lambda j, k, v: (k == v).float().mean()),
        "each verdict counts as its share, not the same": lambda *a: _strata(*a, share=lambda j, k, v: 1 / len(j.unique())),
        "a verdict's share is of all pairs: its number is divided by len(judge), not by the number of labels": lambda j, k, g: _strata(
            j, k, g, share=lambda j, k, v: (j == v).sum() / len(k)),
        "labels are looked up where the labelled pairs' verdict is v: judge == v is a mask of all pairs, of another size or order": lambda j, k, g: sum(
            (j == v).float().mean() * g[j == v].mean() for v in j.unique()),
        "every verdict counts, ties and losses too: here wins alone do": lambda j, k, g: (j == 1).float().mean() * g[k == 1].mean(),
        "every verdict counts, ties and losses too: here wins alone do, and 0 where there is none": lambda j, k, g: sum(
            (j == v).float().mean() * g[k == v].mean() for v in j.unique() if v == 1) + 0 * j[0],
        "labels are looked up where the labelled pairs' verdict is v: that reads the verdicts of the first of all pairs, which are others": lambda j, k, g: sum(
            (j == v).float().mean() * g[j[:len(g)] == v].mean() for v in j.unique()),
        "verdicts are those that the judge gives: of a fixed list, 0, ½ and 1, one may never occur, and 0 times nan is nan": lambda j, k, g: sum(
            (j == v).float().mean() * g[k == v].mean() for v in (0., .5, 1.)),
        "every verdict counts, losses (0) too: they are left out": lambda j, k, g: sum((j == v).float().mean() * g[k == v].mean() for v in j.unique() if v > 0),
        "every verdict that the judge gives counts, ties too: wins and losses alone are looked at, each if it occurs": lambda j, k, g: sum(
            (j == v).float().mean() * g[k == v].mean() for v in j.unique() if v in (0., 1.)),
        "each verdict has a mean of its own, a tie (½) too: here two groups are made at a threshold of .5, ties together with wins": lambda j, k, g: _halves(j, k, g, lambda x: x >= .5),
        "each verdict has a mean of its own, a tie (½) too: here two groups are made at a threshold of .5, ties together with losses": lambda j, k, g: _halves(j, k, g, lambda x: x > .5),
        "nan for a verdict without a label: it is not left out, and the shares of the others are not rescaled to 1": lambda j, k, g: (lambda vs: sum((j == v).float().sum() * g[k == v].mean() for v in vs) / sum(
            (j == v).float().sum() for v in vs))([v for v in j.unique() if (k == v).any()]),
        "nan for a verdict without a label: the mean of all labels does not stand in for it": lambda *a: _strata(
            *a, value=lambda k, g, v: g[k == v].mean() if (k == v).any() else g.mean()),
        "nan for a verdict without a label: it is left out, skipped or counted as 0, as where the verdicts of the labelled pairs alone are looked at": lambda j, k, g: sum((j == v).float().mean() * g[k == v].mean() for v in k.unique()),
        "the mean label of a verdict, not the mean verdict of a label": lambda j, k, g: sum((j == v).float().mean() * k[g == v].mean() for v in j.unique()),
        "the share is of pairs with the verdict: labels equal to it are not counted": lambda j, k, g: _strata(j, k, g, share=lambda j, k, v: (g == v).float().mean()),
        "the mean label where the judge said so: not divided by all labels": lambda *a: _strata(*a, value=lambda k, g, v: (g * (k == v)).mean()),
        "all pairs are in the share: those with and without a label are not added up": lambda j, k, g: _strata(j, k, g, share=lambda j, k, v: (torch.cat([j, k]) == v).float().mean()),
        "a sum of share times mean, not their mean over verdicts": lambda j, k, g: _strata(j, k, g) / len(j.unique()),
        "a share, not a number of pairs": lambda *a: _strata(*a, share=lambda j, k, v: (j == v).float().sum()),
        "the labels count, not the verdicts": lambda j, k, g: j.mean(),
        "the mean label of a verdict, not the sum": lambda *a: _strata(*a, value=lambda k, g, v: g[k == v].sum()),
        "every verdict that the judge gives counts, ties too":
            lambda j, k, g: sum((j == v).float().mean() * g[k == v].mean() for v in (0., 1.)),
        "weighted by the verdict: its labels alone say what it is worth":
            lambda *a: _strata(*a, value=lambda k, g, v: v * g[k == v].mean())})

def _halves(judge, labelled, gold, yes): # two strata
    return sum((yes(judge) == x).float().mean() * gold[yes(labelled) == x].mean() for x in (True, False) if (yes(judge) == x).any())

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

def _gain(w, n): # no ratio
    p = torch.ones_like(w[..., 0])
    for _ in range(n):
        p = (w / (p[..., :, None] + p[..., None, :])).sum(-1)
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
    cases={"3 wins to 1": (tensor([[0., 3.], [1., 0.]]),), "one step": (_games(1, 4, 4), 1), "two steps": (_games(3, 3, 3), 2), "no steps": (_games(3, 3, 3), 0),
           "a stack": (_games(2, 2, 4, 4), 9), "ties": (tensor([[0., 2.5, 1.5], [1.5, 0., 3.], [.5, 1., 0.]]), 12),
           "three players": (_games(0, 3, 3),), "unequal games": (tensor([[0., 9., 1.], [3., 0., 0.], [1., 2., 0.]]), 20),
           "half a win": (tensor([[0., .5, 2.], [1., 0., .5], [1.5, 2.5, 0.]]), 8), "a pair that never met": (
               tensor([[0., 2., 0.], [1., 0., 3.], [0., 2., 0.]]), 8), "a stack of stacks": (_games(5, 2, 2, 3, 3), 6), "double precision": (_games(6, 3, 3).double(), 7),
           "one of a stack won every game": (torch.stack([_games(0, 3, 3), tensor([[0., 2., 1.], [0., 0., 3.], [0., 1., 0.]])]),),
           "slow to settle": (tensor([[0., 90., 1.], [1., 0., 90.], [1., 2., 0.]]),), "one won every game": (tensor([[0., 2., 1.], [0., 0., 3.], [0., 1., 0.]]),),
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
        "the natural logarithm with mean 0, not Elo's 400 times log10": lambda w, n=100: _zermelo(w, n, last=lambda s: s * 400 / 2.302585093),
        "the wins of row i alone stand above, not the sum of all in the table": lambda w, n=100: _zermelo(w, n, top=lambda w: w.sum((-2, -1), keepdim=True)[..., 0]),
        "p_i is wins over a sum: that sum is of games over p_i + p_j, here wins stand in it and above nothing": lambda w, n=100: _gain(w, n),
        "the natural logarithm, not that of base 2": lambda w, n=100: _zermelo(w, n) / .69314718,
        "n_ij over p_i + p_j is put in again: its p is the new one, not a factor; p_i does not multiply what it is replaced by": lambda w, n=100: _multiplied(w, n),
        "p_i is wins over the sum of n_ij / (p_i + p_j): that sum runs over the opponents, the last axis": lambda w, n=100: (lambda s: s - s.mean(-1, keepdim=True))(
            _divided(w, n).log()),
        "s is not divided by its standard deviation (std): only the mean is subtracted, and the scale stays": lambda w, n=100: _zermelo(w, n, last=lambda s: (s - s.mean(-1, keepdim=True)) / s.std(-1, keepdim=True)),
        "p_i + p_j is the sum of both": lambda w, n=100: _zermelo(w, n, pair=lambda p: p[..., None, :] + 0 * p[..., :, None]),
        "p_i + p_j, not p_i p_j: the sum of both, not the product": lambda w, n=100: _zermelo(w, n, pair=lambda p: p[..., :, None] * p[..., None, :]),
        "p is put in again, `steps` times: once, one step, is not enough to converge": lambda w, n=100: _zermelo(w, min(n, 1)),
        "p is put in again, `steps` times, 100 by default: ten are not enough to converge": lambda w, n=100: _zermelo(w, min(n, 10)),
        "p is put in again, `steps` times, 100 by default: twenty are not enough to converge": lambda w, n=100: _zermelo(w, min(n, 20)),
        "p is put in again, `steps` times: the number is an argument, not always 100": lambda w, n=100: _zermelo(w, 100),
        "p is put in again, `steps` times: the number is an argument, and nothing stops earlier or goes on till it converges": lambda w, n=100: _zermelo(w, 1000),
        "p is put in again, `steps` times: the number is an argument, not always ten": lambda w, n=100: _zermelo(w, 10),
        "ties are half a win each: wins need not be whole numbers, nothing is rounded (floor, int)": lambda w, n=100: _zermelo(w.floor(), n),
        "ties are half a win each: wins need not be whole numbers, nothing is rounded": lambda w, n=100: _zermelo(w.round(), n),
        "ties are half a win each already: nothing is added to the table": lambda w, n=100: _zermelo(w + .5 * (1 - torch.eye(w.shape[-1])), n),
        "the sign: who wins more has the larger s": lambda w, n=100: -_zermelo(w, n),
        "that is the number of wins, its log: who was the opponent, and how many games?": lambda w, n=100: (lambda s: s - s.mean(-1, keepdim=True))(w.sum(-1).log()),
        "wins less losses are no strengths: the likelihood asks who the opponent was": lambda w, n=100: (lambda s: s - s.mean(-1, keepdim=True))(w.sum(-1) - w.sum(-2)),
        "the mean of s is 0, not the largest s": lambda w, n=100: _zermelo(w, n, last=lambda s: s - s.amax(-1, keepdim=True)),
        "the mean of s is 0, not the last s": lambda w, n=100: _zermelo(w, n, last=lambda s: s - s[..., -1:]),
        "the mean of s is 0: strengths p that sum to 1 have another one, their logs are not centred": lambda w, n=100: _zermelo(w, n, last=lambda s: s.log_softmax(-1)),
        "steps is how often p is put in again": lambda w, n=100: _zermelo(w, 100 if n == 1 else n + 1),
        "the first p is 1 for all": lambda w, n=100: _zermelo(w, n - 1),
        "mean 0 in each table of a stack: the mean runs along the last axis, not over all": lambda w, n=100: _zermelo(w, n, last=lambda s: s - s.mean()),
        "the logarithm is the natural one": lambda w, n=100: _zermelo(w, n) / 2.302585,
        "the likelihood asks who the opponent was: that is the ratio of wins and losses, the logit of the share of games won":
            lambda w, n=100: (lambda s: s - s.mean(-1, keepdim=True))((w.sum(-1) / w.sum(-2)).log())}.items()})

ASKED = {
    "prediction_powered": {
        "λ may be a tensor with one number for each sample: it needs a last axis, [..., None], beside the verdicts (... m)": "a λ for each sample",
        "there may be leading axes: means, variances and the numbers n and m go along the last axis, -1, one result for each row; len counts rows": "three samples | a λ for each sample | two axes",
        "λ may be below 0, and is squared in the error": "λ below 0",
        "with λ = 0 only the labels count": "labels alone",
        "n and m are the numbers of pairs without a label and with one, whichever is larger": "more labels than others"},
    "rogan_gladen": {
        "labels, or verdicts, all alike give nan or inf, 0/0: no small number (eps) and no clamp in a denominator hides that, and nothing is raised":
            "labels all alike | verdicts all alike | a judge no better than a coin",
        "there may be leading axes: all sums and means go over the last axis, -1, one result for each row, each sample": "three samples | two axes"},
    "fixed_estimate": {
        "nan for a verdict without a label: it is neither left out nor 0, and the shares of the others are not rescaled": "a verdict without a label",
        "a verdict that only labelled pairs have has no share, and counts for nothing": "a label whose verdict nobody else has",
        "the verdicts are those that the judge gives, whatever their values are: 0, .5 and 1 are not the only ones": "four levels | percents",
        "the judge may say the same of all pairs: one verdict, which has all of the share": "one verdict alone"},
    "bradley_terry_scores": {
        "tables may be stacked, with leading axes: the last two are transposed, .mT, and sums and means go along the last": "a stack | a stack of stacks | one of a stack won every game",
        "a tie is half a win each: wins need not be whole numbers": "ties | half a win",
        "ValueError for who won every game, or lost every game, in any table of a stack": "one won every game | one lost every game | one of a stack won every game",
        "`steps` is how often p is put in again: with 0 all are equal, and it does not stop earlier": "one step | two steps | no steps",
        "two may never have met, or one of them won all of their games: only who won or lost *every* game is refused, raises ValueError": "a pair that never met | unequal games"}}
