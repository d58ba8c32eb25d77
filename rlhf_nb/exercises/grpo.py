"Exercises of the chapter on groups."
import math
import torch
from torch import Generator, tensor
from rlhf_nb.checks import Exercise

# ------------------------------------------------------------------ fixed_groups
def _groups(reward, k, own=0, by=None, each=lambda r, base, others: r - base):
    out, n = torch.zeros_like(reward), len(reward)
    for i in range(n):
        first = i // k * k
        others = [reward[j] for j in range(first, first + k) if own or j != i]
        out[i] = each(reward[i], sum(others) / (by or len(others)), others)
    return out

def _drawn(seed, p, k, scale=1., dtype=torch.float32):
    return (scale * torch.randn(p * k, generator=Generator().manual_seed(seed))).to(dtype), k

fixed_groups = Exercise(
    reference=_groups,
    cases={"two prompts, two answers each": (tensor([1., 0., 5., 7.]), 2),
           "three answers each": (tensor([1., 0., 0., 5., 7., 9.]), 3), "one prompt": _drawn(0, 1, 4),
           "many prompts": _drawn(1, 5, 3), "large rewards": _drawn(2, 3, 4, 100.),
           "double precision": _drawn(3, 2, 5, dtype=torch.float64)},
    mistakes={
        "as it was: answers to different prompts are compared":
            lambda r, k: _groups(r.view(k, -1).T.flatten(), k).view(-1, k).T.flatten(),
        "the answer itself is in its baseline: leave it out": lambda r, k: _groups(r, k, own=1),
        "the sign: better than the others is above 0": lambda r, k: -_groups(r, k),
        "that is the baseline: subtract it from the reward":
            lambda r, k: _groups(r, k, each=lambda r, base, others: base),
        "the others are k - 1, not k": lambda r, k: _groups(r, k, by=k),
        "the mean of the others, not their sum": lambda r, k: _groups(r, k, by=1),
        "compare with the group, not with the whole batch": lambda r, k: _groups(r, len(r)),
        "with the best of the others? with their mean":
            lambda r, k: _groups(r, k, each=lambda r, base, others: r - max(others)),
        "not divided by the standard deviation": lambda r, k: _groups(r, k) / (
            r.view(-1, k).std(1, keepdim=True) + 1e-4).expand(-1, k).flatten(),
        "that is one number per prompt: one per answer": lambda r, k: _groups(r, k).view(-1, k).mean(1)})

# ------------------------------------------------------------------ chance_of_one_right
def _one_right(right, k, ways=lambda n, c, k: 1 - math.comb(n - c, k) / math.comb(n, k)):
    return ways(len(right), int(right.sum()), k)

def _flags(*x): return tensor([bool(v) for v in x])

chance_of_one_right = Exercise(
    reference=_one_right,
    cases={"two of four": (_flags(1, 0, 0, 1), 2), "one of five": (_flags(0, 0, 1, 0, 0), 3),
           "none": (_flags(0, 0, 0), 2), "all": (_flags(1, 1, 1), 2), "k is 1": (_flags(0, 1, 0, 0, 1, 0, 0), 1),
           "k is n": (_flags(0, 0, 0, 1), 4), "the first k are wrong": (_flags(0, 0, 0, 1, 1, 1, 1, 1), 3)},
    mistakes={
        "drawn with replacement: the k answers are k different ones of the n":
            lambda r, k: _one_right(r, k, lambda n, c, k: 1 - (1 - c / n)**k),
        "that is the share that is right, which is k = 1": lambda r, k: r.float().mean().item(),
        "that is the chance of none": lambda r, k: _one_right(r, k, lambda n, c, k: math.comb(n - c, k) / math.comb(n, k)),
        "that is the chance that all k are right":
            lambda r, k: _one_right(r, k, lambda n, c, k: math.comb(c, k) / math.comb(n, k)),
        "only the first k are looked at": lambda r, k: float(r[:k].any()),
        "right and wrong are exchanged":
            lambda r, k: _one_right(r, k, lambda n, c, k: 1 - math.comb(c, k) / math.comb(n, k)),
        "one right among all n is not one among k": lambda r, k: float(r.any())})
