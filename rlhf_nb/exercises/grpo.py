"Exercises of the chapter on groups."
import math
import torch
from torch import Generator, tensor
from rlhf_nb import grpo as package
from rlhf_nb.book.checks import Exercise

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
        "the answer itself is in the sum, which is divided by k - 1: take it off first":
            lambda r, k: _groups(r, k, own=1, by=k - 1),
        "along the wrong axis: the answers to one prompt stand in a row of view(-1, k)": lambda r, k: (
            lambda x: (x - (x.sum(0) - x) / (len(x) - 1)).flatten())(r.view(-1, k)),
        "compare with the group, not with the whole batch": lambda r, k: _groups(r, len(r)),
        "with the best of the others? with their mean":
            lambda r, k: _groups(r, k, each=lambda r, base, others: r - max(others)),
        "not divided by the standard deviation": lambda r, k: _groups(r, k) / (
            r.view(-1, k).std(1, keepdim=True) + 1e-4).expand(-1, k).flatten(),
        "that is one number per prompt: one per answer": lambda r, k: _groups(r, k).view(-1, k).mean(1)})

# ------------------------------------------------------------------ leave_one_out, group_normalised
NAN = math.nan

def _rows(*groups, dtype=torch.float32): # lists of rewards -> (b), (b)
    at = [i for i, rewards in enumerate(groups) for _ in rewards]
    return tensor([float(r) for rewards in groups for r in rewards]).to(dtype), tensor(at)

def _mixed(reward, group, order): return reward[order], group[order]

def _noise(seed, n, k, scale=1.):
    reward = scale * torch.randn(n * k, generator=Generator().manual_seed(seed))
    return reward, torch.arange(n).repeat_interleave(k)

GROUPS = {"a group of three and one of two": _rows([1, 0, 0], [5, 7]),
          "groups that do not stand together": _mixed(*_rows([1, 0, 0], [5, 7]), tensor([3, 0, 4, 2, 1])),
          "one group": _rows([2, 0, 1, 4]), "equal rewards": _rows([2, 2, 2], [0, 1]),
          "an answer alone in its group": _rows([3], [1, 5]),
          "an answer that nobody scored": _rows([1, NAN, 0], [2, 4]),
          "a group with one scored answer": _rows([NAN, 3], [1, 2, 6]),
          "rewards close together": _rows([1, 1.01, 1.03], [2, 2.004]),
          "numbers of groups with gaps": (tensor([1., 3., 0., 5.]), tensor([7, 7, 2, 2])),
          "many groups": _noise(0, 5, 4), "large rewards": _noise(1, 3, 3, 100.),
          "double precision": _rows([1, 0, 0], [5, 7, 8], dtype=torch.float64)}

def _per_row(reward, group, value): # slow: value(own reward, scored rewards of the others, all of the group)
    out = torch.zeros_like(reward)
    for i, r in enumerate(reward):
        if r.isnan(): continue
        others = [reward[j] for j in range(len(reward)) if j != i and group[j] == group[i] and not reward[j].isnan()]
        out[i] = value(r, others, [r, *others])
    return out
def _mean(xs): return sum(xs) / len(xs) if xs else 0.
def _scored(reward, group): # of each row's group
    return [[x for x in reward[group == k] if not x.isnan()] for k in group]
def _std(xs, correction=1):
    if len(xs) <= correction: return 0.
    return math.sqrt(sum(float(x - _mean(xs))**2 for x in xs) / (len(xs) - correction))

leave_one_out = Exercise(
    reference=package.leave_one_out, cases=GROUPS,
    mistakes={
        "the answer itself is in its baseline: leave it out":
            lambda r, g: _per_row(r, g, lambda x, o, a: x - _mean(a)),
        "the sign: better than the others is above 0":
            lambda r, g: _per_row(r, g, lambda x, o, a: _mean(o) - x if o else 0.),
        "that is the baseline: subtract it from the reward":
            lambda r, g: _per_row(r, g, lambda x, o, a: _mean(o)),
        "the mean of the others: divide by n - 1, not by n":
            lambda r, g: _per_row(r, g, lambda x, o, a: x - sum(o) / len(a) if o else 0.),
        "the mean of the others, not their sum":
            lambda r, g: _per_row(r, g, lambda x, o, a: x - sum(o) if o else 0.),
        "compare with the group, not with the whole batch":
            lambda r, g: _per_row(r, torch.zeros_like(g), lambda x, o, a: x - _mean(o) if o else 0.),
        "an answer that is alone has advantage 0, not its reward":
            lambda r, g: _per_row(r, g, lambda x, o, a: x - _mean(o)),
        "an answer that nobody scored is not a reward of 0":
            lambda r, g: package.leave_one_out(r.nan_to_num(0.), g),
        "an answer that nobody scored is no 0 in the mean of the others": lambda r, g: torch.where(
            r.isnan(), 0., package.leave_one_out(r.nan_to_num(0.), g)),
        "an answer that nobody scored has advantage 0": lambda r, g: torch.where(
            r.isnan(), tensor([-float(_mean(x)) for x in _scored(r, g)]).to(r),
            package.leave_one_out(r, g)),
        "nan spreads over the group: leave such answers out":
            lambda r, g: torch.stack([r[i] - (r[g == g[i]].sum() - r[i]) / ((g == g[i]).sum() - 1)
                                      if (g == g[i]).sum() > 1 else r[i] * 0. for i in range(len(r))]),
        "not divided by the standard deviation: that is GRPO":
            lambda r, g: _per_row(r, g, lambda x, o, a: (x - _mean(o)) / (_std(a) + 1e-4) if o else 0.),
        "with the best of the others? with their mean":
            lambda r, g: _per_row(r, g, lambda x, o, a: x - max(o) if o else 0.),
        "the rows of a group may stand anywhere: use `group`, not the order":
            lambda r, g: _per_row(r, torch.cat([g[:1] * 0, (g[1:] != g[:-1]).long().cumsum(0)]),
                                  lambda x, o, a: x - _mean(o) if o else 0.)})

def _normal(x, o, a, correction=1, eps=1e-4): return (x - _mean(a)) / (_std(a, correction) + eps)

group_normalised = Exercise(
    reference=package.group_normalised, cases=GROUPS,
    mistakes={
        "the standard deviation divides by n - 1, not by n":
            lambda r, g: _per_row(r, g, lambda x, o, a: _normal(x, o, a, 0)),
        "that is the variance: divide by its square root":
            lambda r, g: _per_row(r, g, lambda x, o, a: (x - _mean(a)) / (_std(a)**2 + 1e-4)),
        "not divided by the standard deviation: that is Dr. GRPO": lambda r, g: package.group_centered(r, g),
        "subtract the mean, too":
            lambda r, g: _per_row(r, g, lambda x, o, a: x / (_std(a) + 1e-4)),
        "the mean is that of the whole group, the answer included":
            lambda r, g: _per_row(r, g, lambda x, o, a: (x - _mean(o)) / (_std(a) + 1e-4) if o else 0.),
        "the standard deviation of the group, not of the whole batch":
            lambda r, g: package.group_centered(r, g) / (r[~r.isnan()].std() + 1e-4),
        "mean and standard deviation of the group, not of the whole batch":
            lambda r, g: _per_row(r, torch.zeros_like(g), _normal),
        "10^-4 is added to the standard deviation, not to the variance": lambda r, g: _per_row(
            r, g, lambda x, o, a: (x - _mean(a)) / math.sqrt(_std(a)**2 + 1e-4)),
        "equal rewards give 0/0: 10^-4 is added to the standard deviation":
            lambda r, g: package.group_centered(r, g) / tensor([_std(x) for x in _scored(r, g)]),
        "a group with one scored answer gives 0/0: n - 1 is 0 there": lambda r, g: torch.where(
            tensor([len(x) == 1 for x in _scored(r, g)]), NAN, package.group_normalised(r, g)),
        "10^-4 is added to the standard deviation":
            lambda r, g: _per_row(r, g, lambda x, o, a: _normal(x, o, a, eps=0.) if _std(a) else 0.),
        "an answer that nobody scored is not a reward of 0":
            lambda r, g: package.group_normalised(r.nan_to_num(0.), g),
        "the sign: better than the mean is above 0":
            lambda r, g: -package.group_normalised(r, g)})

# ------------------------------------------------------------------ loss_weights
def _mask(*lengths, t=5, left=False):
    at = torch.arange(t)
    return torch.stack([at >= t - n if left else at < n for n in lengths])

MASKS = {"four tokens and one": (_mask(4, 1), 8), "a row without a token": (_mask(3, 0), 5),
         "padded on the left": (_mask(2, 5, left=True), 6), "a hole": (tensor([[True, False, True]]), 3),
         "nothing at all": (_mask(0, 0), 4), "one row": (_mask(3, t=3), 10)}
def _weights(name, by): return {f"{name}: {case}": (mask, name, length) for case, (mask, length) in MASKS.items()}

def _each(f): return lambda mask, name, length: f(mask.float(), name, length)
def _right(m, name, length): return package.loss_weights(m.bool(), name, length)
def _only(which, f): # the truth, but for one loss type
    return lambda mask, name, length: f(mask.float(), length) if name == which else _right(mask, name, length)

loss_weights = Exercise(
    reference=package.loss_weights,
    cases={**_weights("dapo", 0), **_weights("grpo", 0), **_weights("dr_grpo", 0),
           "another word": (_mask(4, 1), "mean", 8)},
    mistakes={
        "dapo and grpo are exchanged":
            lambda m, name, length: _right(m, {"dapo": "grpo", "grpo": "dapo"}.get(name, name), length),
        "grpo: every answer counts the same, so divide by the number of answers, too":
            _only("grpo", lambda m, L: m / m.sum(1, keepdim=True).clamp(min=1)),
        "dr_grpo: divide by the number of answers, too": _only("dr_grpo", lambda m, L: m / L),
        "dr_grpo: the constant is max_length, not the width of the batch":
            _only("dr_grpo", lambda m, L: m / m.numel()),
        "dapo: divide by the tokens of the whole batch, not by all its entries":
            _only("dapo", lambda m, L: m / m.numel()),
        "dapo: all tokens of the batch, not those of the row":
            _only("dapo", lambda m, L: m / m.sum(1, keepdim=True).clamp(min=1)),
        "grpo: the tokens of the row, axis 1, not of the column":
            _only("grpo", lambda m, L: m / m.sum(0, keepdim=True).clamp(min=1) / len(m)),
        "grpo: the tokens of the row, not the longest row":
            _only("grpo", lambda m, L: m / m.sum(1).max().clamp(min=1) / len(m)),
        "a row without a token gives nan: clamp the number by which you divide":
            _each(lambda m, name, L: m / m.sum() if name == "dapo" else m / m.sum(1, keepdim=True) / len(m)
                  if name == "grpo" else m / len(m) / L),
        "weights of 0 where the mask is False":
            _each(lambda m, name, L: torch.ones_like(m) * _right(m, name, L).amax(1, keepdim=True)),
        "that is the mask: divide it": lambda m, name, L: m.float(),
        "another word must raise ValueError": lambda m, name, L: _right(m, name if name in ("dapo", "grpo") else "dr_grpo", L)})

# ------------------------------------------------------------------ cispo_loss
def _cispo(r, A, low, high, clip=lambda r, e, h: r.clamp(1 - e, 1 + h).detach(), log=torch.log, sign=-1):
    return sign * clip(r, low, high) * A * log(r)
def _ratios(*r, ends=(.2, .28)): return tensor([r]).requires_grad_(), tensor([[1., -1., 2., -2.]]), *ends

cispo_loss = Exercise(
    reference=_cispo, cases={"within the clip": _ratios(.9, 1.1, 1.2, .95), "beyond it": _ratios(.5, 1.5, 1.5, .5),
                             "other ends": _ratios(.3, .5, 1.9, 3., ends=(.6, 1.))},
    mistakes={
        "the weight has a gradient: detach it": lambda *x: _cispo(*x, clip=lambda r, e, h: r.clamp(1 - e, 1 + h)),
        "no gradient reaches the policy": lambda r, *x: _cispo(r.detach(), *x),
        "the weight is not clipped": lambda *x: _cispo(*x, clip=lambda r, e, h: r.detach()),
        "the upper end is 1 + epsilon_high": lambda r, A, e, h: _cispo(r, A, e, e),
        "times the log of the ratio": lambda *x: _cispo(*x, log=lambda r: r),
        "the sign: a loss is minus the gain": lambda *x: _cispo(*x, sign=1)})
