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
           "double precision": (_marks(2, 4, 3).double(), tensor([1., 2, 5]).double(), _bools(0, 1, 0)),
           "more faults than points": (tensor([[1., 1, 1], [1, 1, 0], [1, 0, 0]]), tensor([2., -3, 1]), _bools(1, 0, 0)),
           "one answer": (tensor([[1., 0, 1]]), tensor([3., 2, 1]), _bools(1, 0, 0)), "a shut gate beside a fault": (
               tensor([[0., 1, 1], [0, 0, 1]]), tensor([2., 1, -4]), _bools(1, 0, 0))},
    mistakes={
        "below 0 is allowed: faults take points away, also more than there are; nothing is cut off at 0, no clamp": lambda *a: _share(*a).clamp(min=0),
        "each answer has its own gates: all over axis 1, its row, not over the batch of answers": lambda *a: _share(*a, open=lambda m, g: m[:, g].prod()),
        "0 where a gate is shut, not -1: 1 is taken off there": lambda *a: _share(*a) + _open(a) - 1,
        "0 where a gate is shut: the points are kept and 1 is taken off": lambda *a: _share(*a, open=lambda m, g: 1.) - (1 - _open(a)),
        "0 where a gate is shut: the points are kept and 1 is taken off for each shut gate": lambda *a: _share(*a, open=lambda m, g: 1.) - (1 - a[0][:, a[2]]).sum(1),
        "the gates alone must be met, not every item: the others are added": lambda m, w, g: _share(m, w, g) * m.prod(1),
        "0 where a gate is shut: the gates' points alone are taken away": lambda m, w, g: _share(m, w, g, open=lambda m, g: 1.) - ((1 - m) * g * w).sum(1) / w.clamp(min=0).sum(),
        "0 where a gate is shut, not nan": lambda *a: torch.where(_open(a) > 0, _share(*a), math.nan),
        "0 where a gate is shut, not minus infinity": lambda *a: torch.where(_open(a) > 0, _share(*a), -math.inf),
        "divide by all points that can be earned, not by the number of items that are met": lambda m, w, g: _share(m, w, g, most=lambda m, w: 1.) / m.sum(1),
        "divide by all points that can be earned, not by the number of items that are met, at least 1": lambda m, w, g: _share(m, w, g, most=lambda m, w: 1.) / m.sum(1).clamp(min=1),
        "divide by all points that can be earned, not by those that were: that is 1, or a share of its own": lambda m, w, g: _share(
            m, w, g, most=lambda m, w: 1.) / (m * w.clamp(min=0)).sum(1),
        "a gate's points count as others do, in the sum and in what can be earned": lambda m, w, g: _share(m, torch.where(g, 0., w), g),
        "a gate's points count as others do in the sum": lambda m, w, g: _share(m, w, g, points=lambda m, w: (torch.where(g, 0., w) * m).sum(1)),
        "a gate's points count as others do in what can be earned": lambda m, w, g: _share(m, w, g, most=lambda m, w: torch.where(g, 0., w).clamp(min=0).sum()),
        "an item that is not met adds nothing and takes nothing away": lambda m, w, g: _share(m, w, g, points=lambda m, w: (w * (2 * m - 1)).sum(1)),
        "an item that is not met takes nothing away: a fault counts where it is met, mark 1": lambda m, w, g: _share(
            m, w, g, points=lambda m, w: (w.clamp(min=0) * m).sum(1) + (w.clamp(max=0) * (1 - m)).sum(1)),
        "a fault takes its points away: its sign is turned, it adds them": lambda m, w, g: _share(m, w, g, points=lambda m, w: (w.abs() * m).sum(1)),
        "all points that can be earned, not the most that one answer of the batch has": lambda m, w, g: _share(m, w, g, most=lambda m, w: (w * m).sum(1).max()),
        "the points that can be earned are a sum over items, not the largest weight": lambda *a: _share(*a, most=lambda m, w: w.max()),
        "a gate that is met gives nothing besides: without any shut gate the share counts, not 1": lambda m, w, g: torch.where(
            m[:, g].prod(1) > 0, 1., 0.) if g.any() else _share(m, w, g),
        "one number for each answer, (b): not their mean": lambda *a: _share(*a).mean(),
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

def _open(a): return a[0][:, a[2]].prod(1) # of marks, weights, gates

# ------------------------------------------------------------------ normalised_sum
def _drawn(seed, sizes, k, holes=0):
    g = Generator().manual_seed(seed)
    x = torch.randint(7, (sum(sizes), k), generator=g).float() * tensor([1., 10., .3, 2.])[:k]
    for i in torch.randperm(x.numel(), generator=g)[:holes]: x.view(-1)[i] = math.nan
    return x, torch.arange(len(sizes)).repeat_interleave(tensor(sizes))

def _each(r, group, centre=True, scale=True, n=lambda k: max(k - 1, 1), eps=1e-4, floor=False, power=.5):
    out = torch.zeros_like(r)
    for name in group.unique():
        at = (group == name) & ~r.isnan()
        x = r[at] - (r[at].mean() if centre and at.any() else 0.)
        std = ((r[at] - r[at].mean())**2).sum().div(n(len(x))).pow(power) if at.any() else torch.ones(())
        out[at] = x / (std.clamp(min=eps) if floor else std + eps) if scale else x
    return out
def _summed(rewards, weights, group, silent=True, **how):
    total = sum(w * _each(r, group, **how) for w, r in zip(weights, rewards.T))
    return total.masked_fill(rewards.isnan().all(1), math.nan) if silent else total
def _sum_first(rewards, weights, group):
    total = (weights * rewards).nansum(1).masked_fill(rewards.isnan().all(1), math.nan)
    return _each(total, group).masked_fill(total.isnan(), math.nan)

def _std(x): return x[~x.isnan()].std()

def _across(rewards, weights): # each row's rewards among themselves
    x = (rewards - rewards.nanmean(1, keepdim=True)) / (torch.stack([_std(r) if (~r.isnan()).sum() > 1 else r.new_zeros(()) for r in rewards])[:, None] + 1e-4)
    return (weights * x).nansum(1).masked_fill(rewards.isnan().all(1), math.nan)

def _together(rewards, weights, group): # one mean and std for all rewards of a group
    out = torch.full_like(rewards[:, 0], math.nan)
    for name in group.unique():
        x = rewards[group == name]
        out[group == name] = (weights * (x - x.nanmean()) / (_std(x.flatten()) + 1e-4)).nansum(1)
    return out.masked_fill(rewards.isnan().all(1), math.nan)

def _plain(r, group): # nan spreads
    out = torch.zeros_like(r)
    for name in group.unique():
        at = group == name
        out[at] = (r[at] - r[at].mean()) / ((r[at].std() if at.sum() > 1 else 0.) + 1e-4)
    return out

def _half(rewards, weights, group, which): # its mean or its std is that of the batch
    def one(r):
        all_of = torch.zeros_like(group)
        return _each(r, group, scale=False) / (_std(r) + 1e-4) if which == "std" else torch.where(r.isnan(), 0., r - r.nanmean()) / (
            torch.stack([_std(r[group == k]) if (~r[group == k].isnan()).sum() > 1 else r.new_zeros(()) for k in group]) + 1e-4 + 0 * all_of)
    return sum(w * one(r) for w, r in zip(weights, rewards.T)).masked_fill(rewards.isnan().all(1), math.nan)

def _ranged(r, group): # from 0 to 1
    out = torch.zeros_like(r)
    for name in group.unique():
        x = r[group == name]
        out[group == name] = (x - x.min()) / (x.max() - x.min() + 1e-4)
    return out

_X, _G = _drawn(0, (4, 4), 2)
normalised_sum = Exercise(
    reference=the_normalised_sum,
    cases={"by hand": (tensor([[0., 0], [0, 1], [0, 1], [1, 1]]), tensor([1., 2]), tensor([0, 0, 0, 0])),
           "two groups": (_X, tensor([1., 1]), _G), "three rewards": (_drawn(1, (5, 3), 3)[0], tensor([1., .5, 2]), _drawn(1, (5, 3), 3)[1]),
           "groups that do not stand together": (_X, tensor([1., -.5]), tensor([0, 1, 0, 1, 1, 0, 1, 0])),
           "nobody scored some": (_drawn(2, (4, 4), 2, 5)[0], tensor([1., 2]), _G),
           "a row without a score": (tensor([[math.nan, math.nan], [1, 3], [4, math.nan], [0, 7]]), tensor([1., 1]), tensor([0, 0, 0, 0])),
           "one answer earns it, in other units": (tensor([[100., 1], [0, 0], [0, 1], [0, 3]]), tensor([1., 1]), tensor([0, 0, 0, 0])),
           "double precision": (_X.double(), tensor([1., 3]).double(), _G),
           "all of a group alike": (tensor([[2., 1], [2, 0], [2, 3], [2, 4]]), tensor([1., 1]), tensor([0, 0, 0, 0])),
           "a group of one": (tensor([[3., 1], [1, 0], [2, 5]]), tensor([1., 2]), tensor([0, 1, 1])), "names of groups": (_X, tensor([1., 1]), 5 * _G + 3),
           "groups in turn": (_X, tensor([1., 2]), tensor([0, 1, 0, 1, 0, 1, 0, 1]))},
    mistakes={
        "1e-4 is added to the standard deviation, eps: without it 0/0 is nan where all are equal": lambda *a: _summed(*a, eps=0.),
        "1e-4 is added to the standard deviation, not less, nor is it cut off below it (clamp, max): eps is no 1e-8": lambda *a: _summed(*a, eps=1e-8),
        "GDPO before its batch step: the sum is normalised again, over the whole batch": lambda *a: (lambda x: (x - x.nanmean()) / (_std(x) + 1e-4))(_summed(*a)),
        "GDPO before its batch step: the sum is normalised again, over the whole batch, and nan of one row gets through to all": lambda *a: (
            lambda x: (x - x.mean()) / (x.std() + 1e-4))(_summed(*a)),
        "GDPO before its batch step: the sum is normalised again, over all rows of the whole batch": lambda *a: (lambda x: (x - x.mean()) / (x.std() + 1e-4))(
            _summed(*a, silent=False)).masked_fill(a[0].isnan().all(1), math.nan),
        "GDPO before its group step ends: the sum is normalised again within each group": lambda r, w, g: (lambda x: _each(x, g).masked_fill(x.isnan(), math.nan))(_summed(r, w, g)),
        "each reward is compared over the answers of its group, a column (axis 0): that is across the rewards of one answer": lambda r, w, g: _across(r, w),
        "each reward has a mean and a std of its own: that is one of both for all rewards of a group together, flattened": lambda r, w, g: _together(r, w, g),
        "each reward within its group: that is one reward's mean and std for all columns": lambda r, w, g: (w * (r - r.nanmean()) / (_std(r.flatten()) + 1e-4)).nansum(1),
        "one number for each row, (b): the sum over rewards is missing, a table (b k) comes back": lambda r, w, g: torch.stack([v * _each(x, g) for v, x in zip(w, r.T)], 1),
        "rows of a group need not stand together: a group is who has the same number, not its neighbours": lambda r, w, g: _summed(
            r, w, torch.cat([torch.zeros(1), (g[1:] != g[:-1]).cumsum(0)])),
        "a row that nobody scored keeps its place, as nan: no row is left out, the shape is (b)": lambda r, w, g: (lambda x: x[~x.isnan()])(_summed(r, w, g)),
        "nan is a reward that nobody scored, and gets through to all of its group: leave it out of mean and std": lambda r, w, g: sum(
            v * _plain(x, g) for v, x in zip(w, r.T)),
        "the weights are as they are: not divided by their sum": lambda r, w, g: _summed(r, w / w.sum(), g),
        "a row that lacks a reward is not scaled up: the weights are as they are, not those that scored it": lambda r, w, g: _summed(r, w, g) * w.sum() / (~r.isnan() * w).sum(1),
        "the variance is not the standard deviation: its root": lambda *a: _summed(*a, power=1.),
        "a weight may be below 0: its sign counts": lambda r, w, g: _summed(r, w.abs(), g),
        "the standard deviation of the group, not of the whole batch": lambda r, w, g: _half(r, w, g, "std"),
        "the mean of the group, not of the whole batch": lambda r, w, g: _half(r, w, g, "mean"),
        "the smallest and largest are not asked for: (r - mean) / std": lambda r, w, g: sum(v * _ranged(x, g) for v, x in zip(w, r.T)),
        "normalise each reward, then sum: that is the sum, normalised": _sum_first,
        "divide by the standard deviation of each reward": lambda *a: _summed(*a, scale=False),
        "subtract the mean of each reward": lambda *a: _summed(*a, centre=False),
        "each within its group: that is over the whole batch": lambda r, w, g: _summed(r, w, torch.zeros_like(g)),
        "weights are missing": lambda r, w, g: _summed(r, torch.ones_like(w), g),
        "a weight multiplies what is normalised: before, it is divided out again": lambda r, w, g: _summed(r * w, torch.ones_like(w), g),
        "nan where no reward scored the row": lambda *a: _summed(*a, silent=False),
        "a row that one reward did not score still has the others": lambda r, w, g: _summed(r, w, g).masked_fill(r.isnan().any(1), math.nan),
        "nan is a reward that nobody scored, and not 0: skip it, leave it out of mean and std": lambda r, w, g: _summed(r.nan_to_num(0.), w, g).masked_fill(r.isnan().all(1), math.nan),
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
           "an empty reply": ("", ["Clean"]), "no items": ("Clean: yes.", []),
           "nothing on the first, yes on the next": ("Clean: perhaps. Short: yes.", ["Clean", "Short"]),
           "a remark on it later": ("Clean: yes. Clean: nothing to add.", ["Clean"]), "named again without a verdict": ("Short: no. I said Short before.", ["Short"]),
           "a sentence in between": ("I see: a text. It is fine. Clean: no.", ["Clean"]), "line by line": ("Clean: yes\nShort: no\nClean: no", ["Clean", "Short"]),
           "another verdict last": ("Clean: yes. Short: no.", ["Clean"]), "the others are yes": ("Polite: yes. Short: no. Clean: yes.", ["Short"]),
           "no, then yes": ("Clean: no. Clean: yes.", ["Clean"]), "a name with a point": ("a.b: yes. axb: no.", ["a.b", "axb"])},
    mistakes={
        "the last verdict counts, not the first": lambda *a: _verdicts(*a, pick=lambda x: x[0]),
        "no verdict is nan, not 0": lambda *a: _verdicts(*a, none=0.),
        "no verdict is nan, not met": lambda *a: _verdicts(*a, none=1.),
        "an item without a verdict keeps its place, as nan: it is not left out": lambda *a: [x for x in _verdicts(*a) if x == x],
        "in the order of `items`, not of the reply: verdicts that are found come first": lambda reply, items: (lambda found: [
            float(v == "yes") for k, v in found.items() if k in items] + [math.nan] * sum(x not in found for x in items))(
            dict(re.findall(r"\b([\w ]+): (yes|no)\b", reply))),
        "no is 0, not nan: nan is for no verdict": lambda *a: _verdicts(*a, value=lambda x: 1. if x == "yes" else math.nan),
        "the verdict stands right behind the name and its colon: that reads on, past other words, to the verdict of another item":
            lambda *a: _verdicts(*a, ask=lambda x: rf"\b{re.escape(x)}:.*?\b(yes|no)\b"),
        "the verdict stands right behind the name and its colon: that reads on, past other words, to another item's, where `nothing` begins like no":
            lambda *a: _verdicts(*a, ask=lambda x: rf"{re.escape(x)}:.*?(yes|no)"),
        "a later remark without a verdict does not wipe out the last verdict that there was": lambda reply, items: [
            (lambda x: math.nan if not x or x[-1] not in ("yes", "no") else float(x[-1] == "yes"))(re.findall(rf"\b{re.escape(k)}: (\w+)", reply)) for k in items],
        "a verdict may stand anywhere in the reply, in the middle of a line: not only at the beginning of one, ^": lambda *a: _verdicts(
            *a, ask=lambda x: rf"^{re.escape(x)}: (yes|no)\b", flags=re.M),
        "a verdict may stand anywhere in the reply: not only at its beginning": lambda *a: _verdicts(*a, ask=lambda x: rf"^{re.escape(x)}: (yes|no)\b"),
        "each item has its own verdict, behind its own name: that is the last of the reply for every item": lambda reply, items: [
            (lambda x: float(x[-1] == "yes") if x else math.nan)(re.findall(r": (yes|no)\b", reply))] * len(items),
        "each item has its own verdict, behind its own name: that is the first of the reply for every item": lambda reply, items: [
            (lambda x: float(x[0] == "yes") if x else math.nan)(re.findall(r": (yes|no)\b", reply))] * len(items),
        "each item has its own verdict, behind its own name: any yes of the reply counts for all": lambda reply, items: [float("yes" in reply)] * len(items),
        "a name with signs is a pattern in another sense, and `nothing` and `Unclean` count: the pattern lacks re.escape and the edges, \\b": lambda *a: _verdicts(
            *a, ask=lambda x: rf"{x}: (yes|no)"),
        "the last verdict counts and a word ends behind it: one yes is not enough, and `nothing` is no no; `in` asks neither for the last nor for an edge": lambda reply, items: [
            1. if f"{k}: yes" in reply else 0. if f"{k}: no" in reply else math.nan for k in items],
        "no verdict is nan, not 0, and one yes is not enough, as the last counts: `in` asks for neither": lambda reply, items: [float(f"{k}: yes" in reply) for k in items],
        "a name may hold more than one word, signs too: \\w+ stops there": lambda reply, items: (lambda found: [float(found[k] == "yes") if k in found else math.nan for k in items])(
            dict(re.findall(r"(\w+): (yes|no)\b", reply))),
        "a name may hold signs, where \\w+ stops; and `nothing` is no verdict, so ask for the edge of the word, \\b": lambda reply, items: (
            lambda found: [float(found[k] == "yes") if k in found else math.nan for k in items])(dict(re.findall(r"(\w+): (yes|no)", reply))),
        "another word than yes or no is no verdict, so it is nan, and does not wipe out one before it": lambda reply, items: (
            lambda found: [float(found[k] == "yes") if k in found else math.nan for k in items])(dict(re.findall(r"(\w+): (\w+)", reply))),
        "the last mention of the name need hold no verdict, and another word than yes is not no: find the last verdict": lambda reply, items: [
            math.nan if f"{k}: " not in reply else float(reply.rsplit(f"{k}: ", 1)[1].startswith("yes")) for k in items],
        "a verdict need not have a full stop, a dot, behind it": lambda *a: _verdicts(*a, ask=lambda x: rf"\b{re.escape(x)}: (yes|no)\."),
        "of several verdicts on one item the last counts: that is nan where there is more than one": lambda *a: _verdicts(*a, value=lambda x: x, pick=lambda found: (
            float(found[-1] == "yes") if len(found) == 1 else math.nan)),
        "by name: verdicts are given to the items in the order in which they stand in the reply, whichever item they belong to": lambda reply, items: (
            lambda x: [float(v == "yes") for v in x][:len(items)] + [math.nan] * (len(items) - len(x)))(re.findall(r": (yes|no)\b", reply)),
        "the last verdict counts: no is not yes because a yes stood before, nor the other way round": lambda *a: _verdicts(*a, pick=lambda found: "no" if "no" in found else "yes"),
        "one verdict for each item, the last, not the mean of all": lambda reply, items: [
            sum(v == "yes" for v in x) / len(x) if x else math.nan for x in (re.findall(rf"\b{re.escape(k)}: (yes|no)\b", reply) for k in items)],
        "`no` is met by `nothing` and `yes` by `yesterday`: ask whether the verdict is there, whole": lambda reply, items: [
            (lambda y, n: math.nan if y < 0 and n < 0 else float(y > n))(reply.rfind(f"{k}: yes"), reply.rfind(f"{k}: no")) for k in items],
        "a verdict for each item of `items`: a dict of names is not asked for": lambda reply, items: dict(zip(items, _verdicts(reply, items))),
        "nan, a number, where there is no verdict, not None": lambda *a: _verdicts(*a, none=None),
        "in the order of `items`, not of the reply": lambda reply, items: [float(x == "yes") for x in re.findall(r": (yes|no)\b", reply)] or [math.nan] * len(items),
        "yes is 1 and no is 0, not the other way round: they are swapped": lambda *a: _verdicts(*a, value=lambda x: float(x == "no")),
        "a number, 1 or 0, not a word": lambda *a: _verdicts(*a, value=lambda x: x),
        "`nothing` is no verdict: a word ends behind yes or no, so ask for its edge, \\b": lambda *a: _verdicts(*a, ask=lambda x: rf"\b{re.escape(x)}: (yes|no)"),
        "`Unclean` is another item than `clean`: a word begins before the name, so ask for its edge, \\b": lambda *a: _verdicts(*a, ask=lambda x: rf"{re.escape(x)}: (yes|no)\b"),
        "a name may hold signs that a pattern reads in another sense: re.escape": lambda *a: _verdicts(*a, ask=lambda x: rf"\b{x}: (yes|no)\b"),
        "one yes is not enough: the last verdict counts": lambda *a: _verdicts(*a, pick=lambda x: "yes" if "yes" in x else "no")})

ASKED = {
    "rubric_reward": {
        "there may be no gate: then none is shut and the share counts; the product of none is 1, the mean of none nan": "without gates",
        "a sum below 0 stays below 0: faults may take more points away than there are, with no clamp at 0": "more faults than points",
        "a shut gate gives 0 whatever else there is: a fault takes nothing away then": "a shut gate beside a fault",
        "a fault, with points below 0, takes points away and is not among those that can be earned": "by hand | two faults | more faults than points | a shut gate beside a fault",
        "all gates have to be met: one that is shut is enough for 0": "two gates | all are gates",
        "a gate may have no points of its own": "a gate without points"},
    "normalised_sum": {
        "a row that no reward scored is nan, and keeps its place": "a row without a score",
        "nan is a reward that was not scored: it is skipped, left out of mean and std and of the row's sum, and not 0": "nobody scored some | a row without a score",
        "where all of a group are equal the reward adds 0: 1e-4 is added to the std, and 0/0 would be nan": "all of a group alike",
        "a group of one adds 0: its std is not nan": "a group of one",
        "rows of a group need not stand together, in order: a group is whoever has the same number": "groups that do not stand together | groups in turn",
        "groups are told apart by their numbers, which need not be 0, 1, ...": "names of groups"},
    "parse_rubric": {
        "no verdict stands right behind the name: nan; do not read on to the verdict of another item": "nothing on the first, yes on the next",
        "a later remark without a verdict, such as `Clean: nothing`, does not wipe out the last verdict": "a remark on it later | named again without a verdict",
        "a word ends behind yes or no: `nothing` and `yesterday` are no verdicts, so ask for its edge, \\b": "a word that begins so | a remark on it later",
        "a name is a whole word: `Unclean` is another item than `clean`, so ask for its edge, \\b": "a name in another name",
        "every character of a name is taken literally: ( ) + and . are signs of a pattern, so use re.escape": "a name with signs | a name with a point",
        "other sentences may stand between verdicts, with or without a colon, a line may end there, and a name may hold a point: where a split by them gives one part, it stops":
            "a sentence in between | the judge thinks again | and again | one is missing | line by line | named again without a verdict | a name with a point",
        "of several verdicts on one item the last counts": "the judge thinks again | and again | no, then yes | line by line",
        "an item without a verdict is nan and keeps its place, also in an empty reply": "an empty reply | one is missing | and again | three in another order, one missing | a word that begins so",
        "verdicts go by name, in the order of `items`, not of the reply": "in another order | three in another order, one missing | another verdict last | the others are yes",
        "no items: an empty list": "no items"}}
