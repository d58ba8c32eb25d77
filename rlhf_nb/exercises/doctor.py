"Exercises of the training doctor: two alarms."
import torch
from torch import tensor
from rlhf_nb.book.checks import Exercise

def _alarm(kl, errors=2., correction=1, root=.5, mean=torch.mean):
    return bool(mean(kl) + errors * kl.std(correction=correction) / len(kl)**root < 0)

def _below(errors, *z): # so many standard errors
    x = tensor(z) - tensor(z).mean()
    return x - errors * x.std() / len(x)**.5,
_NINE = 1., -1., 2., -2., .5, -.5, 1.5, -1.5, 0.

kl_is_negative = Exercise(
    reference=_alarm,
    cases={"far below": (tensor([-1., -1.1, -.9, -1.05]),),
           "below, within noise": (tensor([-1., .9, -.8, .6]),),
           "above": (tensor([1., 1.2, .8]),),
           "three standard errors below": (tensor([-1., -.3, -1.2, -.5]),),
           "two values": (tensor([-1., -1.1]),),
           "only just": (tensor([-.1, -1.7, -.2, -1.6, -.3, -1.2]),),
           "two, below by noise": (tensor([-1., -.05]),),
           "above, within noise": (tensor([1., -.5, .6]),),
           "n or n - 1, under the root": (tensor([-1.8, -1., -.2]),),
           "n - 1 or n": (tensor([-1.95, -1., -.05]),),
           "most a little above": (tensor([-2.] * 4 + [.1] * 5),),
           "one standard error": (tensor([-1., -.6, .2]),),
           "three of them, and no more": (tensor([-1., -.4, -1.5, -.2, -1.3, -.1]),),
           "many, small and noisy": (tensor([-.9, .3, -.8, .2, -.7, .4, -.9, .1] * 2),),
           "half a standard error": (tensor([-1., .5, -.9, .4]),), "wide apart": (tensor([-3., -9., -5., -2., -8.]),), "low values, wide apart": (tensor([-.2, -.1, -2.6, -.3]),),
           "five standard errors below, of nine": _below(5, *_NINE), "seven, one value far off": _below(7, *[0.] * 8, 9.),
           "1.6 standard errors below": _below(1.6, *[1., -1.] * 6), "1.75 standard errors below": _below(1.75, *[0.] * 10, 3., -3.),
           "2.3 standard errors below": _below(2.3, *_NINE), "three standard errors above": _below(-3, *_NINE),
           "a third of a standard error below": _below(.3, *_NINE), "a little below, by noise": _below(.6, *[x / 10 for x in _NINE]),
           "equal values below 0": (tensor([-.5, -.5, -.5]),), "equal values above 0": (tensor([.5, .5]),),
           "the last one is above": (tensor([-1., -1.2, -1.1, -.9, .1]),), "only the last one is below": (tensor([1., 1.2, .9, -2.]),),
           "only the first one is below": (tensor([-2., 1., 1.2, .9]),),
           "nothing moved yet": (torch.zeros(3),)},
    mistakes={
        "a mean below 0 alone is noise: ask for two standard errors": lambda kl: _alarm(kl, errors=0.),
        "that is the standard deviation: divide by the root of n": lambda kl: _alarm(kl, root=0),
        "two standard errors are added to the mean, not taken off": lambda kl: _alarm(kl, errors=-2.),
        "the root of n, not of n - 1": lambda kl: _alarm(kl, errors=2 * (len(kl) / (len(kl) - 1))**.5),
        "the root of n, not n": lambda kl: _alarm(kl, root=1),
        "exactly 0 is not below 0: every run starts there":
            lambda kl: _alarm(kl) or not kl.any(),
        "divide by n - 1, not by n": lambda kl: _alarm(kl, correction=0),
        "two standard errors, not one": lambda kl: _alarm(kl, errors=1.),
        "that says whether it is above 0: turn the sign": lambda kl: _alarm(-kl),
        "all values below 0 is too much to ask": lambda kl: bool((kl < 0).all()),
        "the mean, not the median": lambda kl: _alarm(kl, mean=torch.median),
        "the mean, not the sum": lambda kl: _alarm(kl, mean=torch.sum),
        "two standard errors, not three": lambda kl: _alarm(kl, errors=3.),
        "one standard deviation of single values is no error of their mean: two of them, over the root of n":
            lambda kl: _alarm(kl, errors=1., root=0),
        "the standard deviation, not the variance": lambda kl: bool(kl.mean() + 2 * kl.var() / len(kl)**.5 < 0),
        "below 0, not on either side of it: no absolute value": lambda kl: _alarm(kl) or _alarm(-kl),
        "the last value alone decides: take the mean of all": lambda kl: bool(kl[-1] < 0),
        "the first value alone decides: take the mean of all": lambda kl: bool(kl[0] < 0),
        "the last value alone is compared with two standard errors: take the mean of all": lambda kl: bool(kl[-1] + 2 * kl.std() / len(kl)**.5 < 0),
        "the first value alone is compared with two standard errors: take the mean of all": lambda kl: bool(kl[0] + 2 * kl.std() / len(kl)**.5 < 0),
        "the largest value is compared with two standard errors: take the mean of all": lambda kl: bool(kl.max() + 2 * kl.std() / len(kl)**.5 < 0),
        "the smallest value is compared with two standard errors: take the mean of all": lambda kl: bool(kl.min() + 2 * kl.std() / len(kl)**.5 < 0),
        "the mean of the second half alone is compared: take all": lambda kl: bool(kl[len(kl) // 2:].mean() + 2 * kl.std() / len(kl)**.5 < 0),
        "one value below 0 is not enough: the mean of all": lambda kl: bool((kl < 0).any()),
        "the mean decides, not how many values are below 0": lambda kl: bool((kl < 0).double().mean() > .5),
        "two standard errors, not four": lambda kl: _alarm(kl, errors=4.),
        "two standard errors, not half of one": lambda kl: _alarm(kl, errors=.5),
        "two standard errors, not one and a half": lambda kl: _alarm(kl, errors=1.5),
        "the root of the mean square is no standard deviation: subtract the mean first":
            lambda kl: bool(kl.mean() + 2 * kl.square().mean().sqrt() / len(kl)**.5 < 0),
        "the mean absolute deviation is no standard deviation": lambda kl: bool(kl.mean() + 2 * (kl - kl.mean()).abs().mean() / len(kl)**.5 < 0),
        "a fixed number is no standard error: it depends on the spread and on n": lambda kl: bool(kl.mean() < -.1),
        "a fixed number of 2 is no standard error: it depends on the spread and on n": lambda kl: bool(kl.mean() < -2),
        "that is always False": lambda kl: False, "that is always True": lambda kl: True,
        "the other way round: it is the alarm that is True": lambda kl: not _alarm(kl)})

def _flat(reward, kl, nats, gain, half=0, both=True, ends=False):
    cut = (len(reward) + half) // 2
    def change(x): return x[-1] - x[0] if ends else x[cut:].mean() - x[:cut].mean()
    grown, flat = bool(change(kl) > nats), bool(change(reward) < gain)
    return (grown and flat) if both else (grown or flat)

def _run(*xs): return tensor([float(x) for x in xs])
flat_while_moving = Exercise(
    reference=_flat,
    cases={"flat and moving": (_run(0, .1, 0, .1), _run(0, 1, 2, 3), .5, .2),
           "winning": (_run(0, 1, 2, 3), _run(0, 1, 2, 3), .5, .2),
           "still": (_run(0, .1, 0, .1), _run(0, .1, 0, .1), .5, .2),
           "winning and still": (_run(0, 1, 2, 3), _run(0, .1, 0, .1), .5, .2),
           "the middle of five": (_run(0, 0, 1, 0, 0), _run(0, 0, 3, 0, 0), .5, .5),
           "three steps": (_run(0, 0, 0), _run(0, 1, .6), .4, .2),
           "grown by less than `nats`": (_run(0, 0, 0, 0), _run(0, 0, .3, .3), .5, .2),
           "the ends lie": (_run(0, 1, 1, 0), _run(0, 2, 2, 2), .5, .2),
           "the ends lie, the other way": (_run(0, 0, 0, 9), _run(1, 0, 3, 1), .5, 5.),
           "falling": (_run(3, 2, 1, 0), _run(3, 2, 1, 0), .5, .2),
           "falling, and moving": (_run(3, 2, 1, 0), _run(0, 1, 2, 3), .5, .2),
           "KL grown by just `nats`": (_run(0, 0, 0, 0), _run(0, 0, 1, 1), 1., .2),
           "KL falls by more": (_run(1, 1, 1, 1), _run(4, 4, 1, 1), .5, .2),
           "one value far off": (_run(0, 0, 0, 0, 0, 0), _run(1, 1, 1, 1, 1, 9), .5, .2), "reward high from the start": (_run(5, 5, 5, 5.1), _run(0, 0, 1, 1), .5, .2),
           "one reward far off": (_run(0, 0, 0, 0, 0, 9), _run(0, 0, 0, 1, 1, 1), .5, .2), "seven steps": (_run(*[0] * 7), _run(0, 0, 0, 4, 0, 0, 0), .5, .2),
           "KL high from the start": (_run(0, .1, 0, .1), _run(5, 5.1, 5, 5.1), .5, .2),
           "reward by just `gain`": (_run(0, 0, 1, 1), _run(0, 0, 1, 1), .5, 1.),
           "two steps": (_run(0, .1), _run(0, 1), .5, .2), "a long run, the reward grows late": (_run(0, 0, 0, 0, 0, 0, 0, 4), _run(0, 0, 0, 0, 1, 1, 1, 1), .5, .5),
           "KL from a half to one": (_run(0, 0, 0, 0), _run(.5, .5, 1.2, 1.2), .8, .2), "reward doubles, by little": (_run(.1, .1, .2, .2), _run(0, 0, 1, 1), .5, .2),
           "the ends lie, of halves": (_run(0, 0, 0, 0), _run(0, 2, 1.3, 1.3), .5, .2), "neither ends nor thirds": (_run(*[0] * 6), _run(0, 3, 0, 3, 0, 3), .5, .2),
           "KL stays and the reward falls": (_run(5, 5, .5, .5), _run(1, 1, 1, 1), .5, .2),
           "KL grows in between only": (_run(0, 0, 0, 0), _run(0, 3, 3, 0), .5, .2)},
    mistakes={
        "both must hold": lambda *x: _flat(*x, both=False),
        "KL that falls has not grown: no absolute value": lambda r, k, n, g: _flat(r, k, n, g) or _flat(r, -k, n, g),
        "means of halves, not medians": lambda r, k, n, g: (lambda up: bool(up(k) > n and up(r) < g))(
            lambda x: x[len(x) // 2:].median() - x[:len(x) // 2].median()),
        "with odd n the middle belongs to the second half; it is left out": lambda r, k, n, g: (lambda up: bool(up(k) > n and up(r) < g))(
            lambda x: x[(len(x) + 1) // 2:].mean() - x[:len(x) // 2].mean()),
        "the reward's gain: that is its level": lambda r, k, n, g: _flat(r * (torch.arange(len(r)) >= len(r) // 2), k, n, g),
        "with odd n the middle belongs to the second half": lambda *x: _flat(*x, half=1),
        "means of halves, not the first and the last value": lambda *x: _flat(*x, ends=True),
        "means of halves, not their sums": lambda r, k, n, g: bool(
            k[len(k) // 2:].sum() - k[:len(k) // 2].sum() > n and r[len(k) // 2:].sum() - r[:len(k) // 2].sum() < g),
        "KL has grown: that is its level": lambda r, k, n, g: _flat(r, k * (torch.arange(len(k)) >= len(k) // 2), n, g),
        "grown by more than `nats`: just as much is not enough": lambda r, k, n, g: _flat(r, k, n - 1e-6, g),
        "a reward that falls has gained nothing: no absolute value": lambda r, k, n, g: _flat(r, k, n, g) and _flat(
            -r, k, n, g),
        "`nats` is for KL, `gain` for the reward: they are swapped": lambda r, k, n, g: _flat(r, k, g, n),
        "reward and KL are swapped": lambda r, kl, n, g: _flat(kl, r, n, g),
        "second half minus first half: the sign is turned": lambda r, kl, n, g: _flat(-r, -kl, n, g),
        "a difference of means, not a ratio: growth is not divided by the first half": lambda r, k, n, g: (lambda up: bool(
            up(k) > n and up(r) < g))(lambda x: (x[len(x) // 2:].mean() - x[:len(x) // 2].mean()) / x[:len(x) // 2].mean().abs().clamp(min=1e-8)),
        "a difference of means, not a quotient of the two": lambda r, k, n, g: (lambda up: bool(
            up(k) > n and up(r) < g))(lambda x: x[len(x) // 2:].mean() / x[:len(x) // 2].mean()),
        "means of halves, not their largest values": lambda r, k, n, g: (lambda up: bool(up(k) > n and up(r) < g))(
            lambda x: x[len(x) // 2:].max() - x[:len(x) // 2].max()),
        "means of halves, not the largest step from one rollout to the next": lambda r, k, n, g: (lambda up: bool(up(k) > n and up(r) < g))(
            lambda x: x.diff().max()),
        "means of halves, not the range": lambda r, k, n, g: bool(k.max() - k.min() > n and r.max() - r.min() < g),
        "means of halves, not the last value less the mean": lambda r, k, n, g: (lambda up: bool(up(k) > n and up(r) < g))(
            lambda x: x[-1] - x.mean()),
        "the mean of the first half, not the first value, is subtracted": lambda r, k, n, g: (lambda up: bool(up(k) > n and up(r) < g))(
            lambda x: x[len(x) // 2:].mean() - x[0]),
        "the mean of the second half, not the last value": lambda r, k, n, g: (lambda up: bool(up(k) > n and up(r) < g))(
            lambda x: x[-1] - x[:len(x) // 2].mean()),
        "a difference of means: growth is not relative, not divided by the mean of the first half": lambda r, k, n, g: (lambda up: bool(
            up(k) > n and up(r) < g))(lambda x: (x[len(x) // 2:].mean() - x[:len(x) // 2].mean()) / x[:len(x) // 2].mean()),
        "less than `gain`: just as much is not flat": lambda r, k, n, g: _flat(r, k, n, g + 1e-6),
        "flat is a gain of less than `gain`, not of more": lambda r, k, n, g: bool(
            k[len(k) // 2:].mean() - k[:len(k) // 2].mean() > n and r[len(r) // 2:].mean() - r[:len(r) // 2].mean() > g),
        "moving is a growth of more than `nats`, not of less": lambda r, k, n, g: bool(
            k[len(k) // 2:].mean() - k[:len(k) // 2].mean() < n and r[len(r) // 2:].mean() - r[:len(r) // 2].mean() < g),
        "thirds are no halves": lambda r, k, n, g: (lambda up: bool(up(k) > n and up(r) < g))(
            lambda x: x[-max(len(x) // 3, 1):].mean() - x[:max(len(x) // 3, 1)].mean()),
        "the spread of the reward does not tell: its gain does": lambda r, k, n, g: bool(
            k[len(k) // 2:].mean() - k[:len(k) // 2].mean() > n and r.std() < g),
        "that is always False": lambda *x: False, "that is always True": lambda *x: True,
        "the other way round: it is the alarm that is True": lambda *x: not _flat(*x),
        "KL alone does not tell: look at the reward as well": lambda r, k, n, g: _flat(r, k, n, 1e9),
        "the reward alone does not tell: look at KL as well": lambda r, k, n, g: _flat(r, k, -1e9, g)})

ASKED = {
    "kl_is_negative": {
        "more than two standard errors below 0: a mean of exactly 0 is not below, every run starts there": "nothing moved yet",
        "equal values have a standard error of 0, so that a mean below 0 is enough": "equal values below 0"},
    "flat_while_moving": {
        "with an odd number of rollouts the middle one belongs to the second half": "the middle of five | seven steps",
        "KL has grown by more than `nats`: by just as much is not enough": "KL grown by just `nats`",
        "reward has grown by less than `gain`: by just as much is too much": "reward by just `gain`",
        "a reward that falls has grown by less than `gain`, too: no absolute value": "falling, and moving",
        "KL that falls has not grown, however far: no absolute value": "KL falls by more"}}
