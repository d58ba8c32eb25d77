"Exercises of the chapter on rubrics."
import math, re
import torch
from torch import Generator, tensor
from rlhf_nb.book.checks import Exercise
from rlhf_nb.rubrics import normalised_sum as the_normalised_sum, rubric_reward as the_rubric_reward

# ------------------------------------------------------------------ rubric_reward
def _marks(seed, b, k): return torch.randint(2, (b, k), generator=Generator().manual_seed(seed)).float()
def _bools(*x): return tensor(x).bool()

def _share(marks, weights, gates, points=lambda m, w: (w * m).sum(1), most=lambda m, w: w.clamp(min=0).sum(),
           open=lambda m, g: m[:, g].prod(1)):
    return points(marks, weights) / most(marks, weights) * open(marks, gates)

rubric_reward = Exercise(
    reference=the_rubric_reward,
    cases={"by hand": (tensor([[1., 0, 0], [1, 1, 1], [0, 1, 0]]), tensor([3., 1, -2]), _bools(1, 0, 0)),
           "without gates": (_marks(0, 5, 4), tensor([2., 1, 1, 3]), _bools(0, 0, 0, 0)),
           "two gates": (tensor([[1., 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]]), tensor([1., 2, 4]), _bools(1, 1, 0)),
           "all are gates": (tensor([[1., 1], [1, 0], [0, 0]]), tensor([1., 3]), _bools(1, 1)),
           "a gate without points": (tensor([[1., 0, 1], [0, 1, 1]]), tensor([0., 1, 2]), _bools(1, 0, 0)),
           "two faults": (_marks(1, 6, 4), tensor([2., -1, 1, -3]), _bools(0, 0, 1, 0)),
           "double precision": (_marks(2, 4, 3).double(), tensor([1., 2, 5]).double(), _bools(0, 1, 0))},
    mistakes={
        "an item that is met earns its own points: weights are missing": lambda m, w, g: _share(m, w, g, points=lambda m, w: m.sum(1)),
        "a share: divide by the points that can be had": lambda *a: _share(*a, most=lambda m, w: 1.),
        "a fault takes points away, but is none of those that can be had: below 0 is not in the divisor":
            lambda *a: _share(*a, most=lambda m, w: w.sum()),
        "a fault is not to be had: the divisor sums weights above 0, not their sizes": lambda *a: _share(*a, most=lambda m, w: w.abs().sum()),
        "faults take points away: weights below 0 count in the sum": lambda m, w, g: _share(m, w.clamp(min=0), g),
        "without its gates an answer earns 0: gates are missing": lambda *a: _share(*a, open=lambda m, g: 1.),
        "one gate that is not met is enough for 0: all must be met, not any": lambda *a: _share(
            *a, open=lambda m, g: m[:, g].amax(1) if g.any() else torch.ones(len(m)).to(m)),
        "gates that are open in part do not count in part: 0 or the whole share": lambda *a: _share(
            *a, open=lambda m, g: m[:, g].mean(1) if g.any() else torch.ones(len(m)).to(m)),
        "the gates are the items where `gates` is True, not the others": lambda m, w, g: _share(m, w, ~g),
        "divide by the points that can be had, not by the number of items": lambda *a: _share(*a, most=lambda m, w: len(w)),
        "each answer its own share: sum over items, not over answers": lambda m, w, g: _share(
            m, w, g, points=lambda m, w: (w * m).sum().expand(len(m)))})

# ------------------------------------------------------------------ normalised_sum
def _drawn(seed, sizes, k, holes=0):
    g = Generator().manual_seed(seed)
    x = torch.randint(7, (sum(sizes), k), generator=g).float() * tensor([1., 10., .3, 2.])[:k]
    for i in torch.randperm(x.numel(), generator=g)[:holes]: x.view(-1)[i] = math.nan
    return x, torch.arange(len(sizes)).repeat_interleave(tensor(sizes))

def _each(r, group, centre=True, scale=True, n=lambda k: max(k - 1, 1), eps=1e-4):
    out = torch.zeros_like(r)
    for name in group.unique():
        at = (group == name) & ~r.isnan()
        x = r[at] - (r[at].mean() if centre and at.any() else 0.)
        std = ((r[at] - r[at].mean())**2).sum().div(n(len(x))).sqrt() if at.any() else 1.
        out[at] = x / (std + eps) if scale else x
    return out
def _summed(rewards, weights, group, silent=True, **how):
    total = sum(w * _each(r, group, **how) for w, r in zip(weights, rewards.T))
    return total.masked_fill(rewards.isnan().all(1), math.nan) if silent else total
def _sum_first(rewards, weights, group):
    total = (weights * rewards).nansum(1).masked_fill(rewards.isnan().all(1), math.nan)
    return _each(total, group).masked_fill(total.isnan(), math.nan)

_X, _G = _drawn(0, (4, 4), 2)
normalised_sum = Exercise(
    reference=the_normalised_sum,
    cases={"by hand": (tensor([[0., 0], [0, 1], [0, 1], [1, 1]]), tensor([1., 2]), tensor([0, 0, 0, 0])),
           "two groups": (_X, tensor([1., 1]), _G), "three rewards": (_drawn(1, (5, 3), 3)[0], tensor([1., .5, 2]), _drawn(1, (5, 3), 3)[1]),
           "groups that do not stand together": (_X, tensor([1., -.5]), tensor([0, 1, 0, 1, 1, 0, 1, 0])),
           "nobody scored some": (_drawn(2, (4, 4), 2, 5)[0], tensor([1., 2]), _G),
           "a row without a score": (tensor([[math.nan, math.nan], [1, 3], [4, math.nan], [0, 7]]), tensor([1., 1]), tensor([0, 0, 0, 0])),
           "one answer earns it, in other units": (tensor([[100., 1], [0, 0], [0, 1], [0, 3]]), tensor([1., 1]), tensor([0, 0, 0, 0])),
           "double precision": (_X.double(), tensor([1., 3]).double(), _G)},
    mistakes={
        "normalise each reward, then sum: that is the sum, normalised": _sum_first,
        "divide by the standard deviation of each reward": lambda *a: _summed(*a, scale=False),
        "subtract the mean of each reward": lambda *a: _summed(*a, centre=False),
        "each within its group: that is over the whole batch": lambda r, w, g: _summed(r, w, torch.zeros_like(g)),
        "weights are missing": lambda r, w, g: _summed(r, torch.ones_like(w), g),
        "a weight multiplies what is normalised: before, it is divided out again": lambda r, w, g: _summed(r * w, torch.ones_like(w), g),
        "nan where no reward scored the row": lambda *a: _summed(*a, silent=False),
        "a row that one reward did not score still has the others": lambda r, w, g: _summed(r, w, g).masked_fill(r.isnan().any(1), math.nan),
        "a reward that nobody gave is not 0: leave it out": lambda r, w, g: _summed(r.nan_to_num(0.), w, g).masked_fill(r.isnan().all(1), math.nan),
        "a sum over rewards, not their mean": lambda r, w, g: _summed(r, w / len(w), g),
        "the standard deviation divides by n - 1": lambda *a: _summed(*a, n=lambda k: max(k, 1))})

# ------------------------------------------------------------------ parse_rubric
def _verdicts(reply, items, pick=lambda found: found[-1], none=math.nan, ask=lambda x: rf"\b{re.escape(x)}: (yes|no)\b", value=lambda x: float(x == "yes"), flags=0):
    found = [re.findall(ask(x), reply, flags) for x in items]
    return [value(pick(x)) if x else none for x in found]

parse_rubric = Exercise(
    reference=lambda reply, items: _verdicts(reply, items),
    cases={"three items": ("Relevant: yes. Clean: no. Polite: yes.", ["Relevant", "Clean", "Polite"]),
           "in another order": ("Clean: no. Relevant: yes.", ["Relevant", "Clean"]),
           "one is missing": ("Relevant: yes. Score: 1", ["Relevant", "Clean"]),
           "the judge thinks again": ("Clean: yes. Wait, it repeats itself. Clean: no.", ["Clean"]),
           "and again": ("Clean: no. Clean: no. Clean: yes. Done.", ["Clean", "Short"]),
           "a word that begins so": ("Clean: nothing to say. Short: yesterday.", ["Clean", "Short"]),
           "a name in another name": ("clean: no. Unclean: yes.", ["clean"]),
           "three in another order, one missing": ("Polite: no. Short: yes. Clean: yes.", ["Clean", "Relevant", "Polite", "Short"]),
           "a name with signs": ("2 + 2 (right): yes. 222: no.", ["2 + 2 (right)"]),
           "an empty reply": ("", ["Clean"])},
    mistakes={
        "the last verdict counts, not the first": lambda *a: _verdicts(*a, pick=lambda x: x[0]),
        "no verdict is nan, not 0": lambda *a: _verdicts(*a, none=0.),
        "no verdict is nan, not met": lambda *a: _verdicts(*a, none=1.),
        "an item without a verdict keeps its place, as nan: it is not left out": lambda *a: [x for x in _verdicts(*a) if x == x],
        "in the order of `items`, not of the reply: verdicts that are found come first": lambda reply, items: (lambda found: [
            float(v == "yes") for k, v in found.items() if k in items] + [math.nan] * sum(x not in found for x in items))(
            dict(re.findall(r"\b([\w ]+): (yes|no)\b", reply))),
        "no is 0, not nan: nan is for no verdict": lambda *a: _verdicts(*a, value=lambda x: 1. if x == "yes" else math.nan),
        "nan, a number, where there is no verdict, not None": lambda *a: _verdicts(*a, none=None),
        "in the order of `items`, not of the reply": lambda reply, items: [float(x == "yes") for x in re.findall(r": (yes|no)\b", reply)] or [math.nan] * len(items),
        "yes is 1 and no is 0, not the other way round: they are swapped": lambda *a: _verdicts(*a, value=lambda x: float(x == "no")),
        "a number, 1 or 0, not a word": lambda *a: _verdicts(*a, value=lambda x: x),
        "`nothing` is no verdict: a word ends behind yes or no, so ask for its edge, \\b": lambda *a: _verdicts(*a, ask=lambda x: rf"\b{re.escape(x)}: (yes|no)"),
        "`Unclean` is another item than `clean`: a word begins before the name, so ask for its edge, \\b": lambda *a: _verdicts(*a, ask=lambda x: rf"{re.escape(x)}: (yes|no)\b"),
        "a name may hold signs that a pattern reads in another sense: re.escape": lambda *a: _verdicts(*a, ask=lambda x: rf"\b{x}: (yes|no)\b"),
        "one yes is not enough: the last verdict counts": lambda *a: _verdicts(*a, pick=lambda x: "yes" if "yes" in x else "no")})
