"Exercise of the chapter that compares: a gain that was not chosen by the numbers that report it."
import torch
from torch import Generator, tensor
from rlhf_nb.book.checks import Exercise

def _gain(scores, start, chooses, by=None, told=None, gain=lambda x, y: x - y, error=None, best=torch.argmax):
    by, told = chooses if by is None else by(chooses), ~chooses if told is None else told(chooses)
    k = best(scores[:, by].double().mean(1)).item()
    x, y = scores[k][told].double(), start[told].double()
    gains = gain(x, y)
    spread = gains.std() / len(gains)**.5 if error is None else error(x, y, chooses)
    return k, gains.mean().item(), spread.item()
def _with(**kind): return lambda scores, start, chooses: _gain(scores, start, chooses, **kind)
def _all(chooses): return chooses | True

def _run(seed, c, q, choose, dtype=torch.float32): # better checkpoints where they choose: the maximum of noise
    generator = Generator().manual_seed(seed)
    chooses = torch.zeros(q, dtype=torch.bool)
    chooses[torch.randperm(q, generator=generator)[:choose]] = True
    level = 3 * torch.rand(q, generator=generator)
    return ((level + torch.randn(c, q, generator=generator)).to(dtype), (level + torch.randn(q, generator=generator)).to(dtype),
            chooses)

honest_gain = Exercise(
    reference=_gain,
    cases={"by hand": (tensor([[4., 2., 1., 5.], [2., 2., 5., 5.]]), tensor([3., 1., 1., 2.]), tensor([True, True, False, False])),
           "ten checkpoints": _run(0, 10, 24, 12), "few choose": _run(1, 4, 9, 3), "most choose": _run(2, 5, 10, 7),
           "one checkpoint": _run(3, 1, 6, 3), "float64": _run(4, 6, 12, 6, torch.double),
           "a loss": (tensor([[1., 2., 0., 4.], [3., 5., -2., .5], [0., 0., 9., 9.]]), tensor([5., 4., 1., 2.]), tensor([True, True, False, False])),
           "scores below 0": (tensor([[-4., -2., -6., -5.], [-3., -1., -2., -4.]]), tensor([-5., -3., -1., -7.]), tensor([False, True, False, True])),
           "few that report": (tensor([[1., 4., 2., 2., 0.], [2., 3., 3., 1., 2.]]), tensor([0., 1., 1., 2., 0.]),
                               tensor([True, False, True, True, False]))},
    mistakes={
        "reported on the questions that chose: take the others": _with(told=lambda m: m),
        "chosen on the questions that report: take those that choose": _with(by=lambda m: ~m),
        "chosen and reported are exchanged": _with(by=lambda m: ~m, told=lambda m: m),
        "chosen on all questions: those that report may not choose": _with(by=_all),
        "reported on all questions: those that chose flatter the winner": _with(told=_all),
        "chosen and reported on all questions": _with(by=_all, told=_all),
        "that is the score: the gain is what it has more than the start": _with(gain=lambda x, y: x),
        "the sign: the checkpoint minus the start": _with(gain=lambda x, y: y - x),
        "the highest mean is chosen, not the lowest": _with(best=torch.argmin),
        "the last checkpoint is not always the best": _with(best=lambda x: tensor(len(x) - 1)),
        "the errors of two means: subtract question by question first": _with(
            error=lambda x, y, m: (x.var() / len(x) + y.var() / len(y)).sqrt()),
        "the error of the checkpoint alone: the start is noisy, too": _with(error=lambda x, y, m: x.std() / len(x)**.5),
        "that is the standard deviation: divide by the root of n": _with(error=lambda x, y, m: (x - y).std()),
        "divided by n: the root of n": _with(error=lambda x, y, m: (x - y).std() / len(x)),
        "n is the number of questions that report": _with(error=lambda x, y, m: (x - y).std() / len(m)**.5),
        "the standard deviation divides by n - 1": _with(
            error=lambda x, y, m: (x - y).std(correction=0) / len(x)**.5),
        "that is the variance over n: take its root": _with(error=lambda x, y, m: (x - y).var() / len(x)),
        "two standard errors: one is asked for": _with(error=lambda x, y, m: 2 * (x - y).std() / len(x)**.5),
        "one standard error, not 1.96 of them": _with(error=lambda x, y, m: 1.96 * (x - y).std() / len(x)**.5),
        "the errors of two means are added: subtract question by question first": _with(
            error=lambda x, y, m: (x.std() + y.std()) / len(x)**.5),
        "the error of the start alone: the checkpoint is noisy, too": _with(error=lambda x, y, m: y.std() / len(x)**.5),
        "the standard deviation of the gains is divided by the root of n, not of n - 1": _with(
            error=lambda x, y, m: (x - y).std() / max(len(x) - 1, 1)**.5),
        "the root of the mean square is no standard deviation: subtract the mean first": _with(
            error=lambda x, y, m: (x - y).square().mean().sqrt() / len(x)**.5),
        "the mean of the gains, not their median": lambda s, b, m: (lambda k, _, e: (k, (s[k][~m] - b[~m]).median().item(), e))(*_gain(s, b, m)),
        "the mean of the gains, not their sum": lambda s, b, m: (lambda k, g, e: (k, g * int((~m).sum()), e))(*_gain(s, b, m)),
        "the mean of the gains, not the largest": lambda s, b, m: (lambda k, g, e: (k, (s[k][~m] - b[~m]).max().item(), e))(*_gain(s, b, m)),
        "a gain is a difference, not a ratio": _with(gain=lambda x, y: x / y),
        "a loss is below 0: nothing is cut off, no absolute value": _with(gain=lambda x, y: (x - y).abs()),
        "a loss is below 0: the gain is not cut off at 0": lambda s, b, m: (lambda k, g, e: (k, max(g, 0.), e))(*_gain(s, b, m)),
        "which checkpoint it is: its index, counted from 0, not from 1": lambda s, b, m: (lambda k, *rest: (k + 1, *rest))(*_gain(s, b, m)),
        "which checkpoint it is comes first, then gain and error: its score does not stand for its index": lambda s, b, m: (
            lambda k, *rest: (s[k][m].mean().item(), *rest))(*_gain(s, b, m)),
        "which checkpoint it is comes first, then gain and error: its index is missing": lambda s, b, m: _gain(s, b, m)[1:],
        "the standard error is missing: three values come back": lambda s, b, m: _gain(s, b, m)[:2],
        "the order is checkpoint, gain, standard error": lambda s, b, m: (lambda k, g, e: (k, e, g))(*_gain(s, b, m)),
        "which checkpoint it is: argmax of one row of numbers, the means, not of the whole table": lambda s, b, m: (
            lambda k, *rest: (s[:, m].argmax().item(), *rest))(*_gain(s, b, m)),
        "one checkpoint is chosen for all questions, not the best one of each question": lambda s, b, m: (lambda k, x: (
            k, x.mean().item(), (x.std() / len(x)**.5).item()))(_gain(s, b, m)[0], (s.amax(0) - b)[~m].double()),
        "the mean over checkpoints is no checkpoint: choose one": lambda s, b, m: (lambda k, x: (
            k, x.mean().item(), (x.std() / len(x)**.5).item()))(_gain(s, b, m)[0], (s.mean(0) - b)[~m].double()),
        "`chooses` tells which questions choose: they are not always the first half": lambda s, b, m: _gain(
            s, b, torch.arange(len(m)) < len(m) // 2),
        "`chooses` tells which questions choose: they are not always the first ones": lambda s, b, m: _gain(
            s, b, torch.arange(len(m)) < m.sum()),
        "the highest mean, not the highest single score, chooses": lambda s, b, m: _gain(s, b, m, best=lambda _: s[:, m].amax(1).argmax()),
        "the highest mean, not the smallest spread, chooses": lambda s, b, m: _gain(s, b, m, best=lambda _: s[:, m].std(1).argmin()),
        "the highest mean, not the median, chooses": lambda s, b, m: _gain(s, b, m, best=lambda _: s[:, m].median(1).values.argmax()),
        "the first checkpoint is not always the best": _with(best=lambda x: tensor(0)),
        "the error is the spread over questions, not over checkpoints": lambda s, b, m: (lambda k, g, _: (
            k, g, ((s[:, ~m] - b[~m]).mean(1).std() / len(s)**.5).item()))(*_gain(s, b, m)),
        "the error is the spread over the questions that report, not over the checkpoints, over √n of questions": lambda s, b, m: (
            lambda k, g, _: (k, g, (s[:, ~m].mean(1).std() / int((~m).sum())**.5).item()))(*_gain(s, b, m)),
        "the error is over the questions that report, not over all": lambda s, b, m: (lambda k, g, _: (
            k, g, ((s[k] - b).double().std() / len(m)**.5).item()))(*_gain(s, b, m)),
        "the error is over the questions that report, not over those that chose": lambda s, b, m: (lambda k, g, _: (
            k, g, ((s[k] - b)[m].double().std() / int(m.sum())**.5).item()))(*_gain(s, b, m))})

ASKED = {"honest_gain": {
    "a gain may be below 0: the best checkpoint can be worse than the start": "a loss",
    "scores may be below 0: the search for the highest mean cannot start at 0": "scores below 0"}}
