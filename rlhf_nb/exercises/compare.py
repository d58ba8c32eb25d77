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
           "one checkpoint": _run(3, 1, 6, 3), "float64": _run(4, 6, 12, 6, torch.double)},
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
        "two standard errors: one is asked for": _with(error=lambda x, y, m: 2 * (x - y).std() / len(x)**.5)})
