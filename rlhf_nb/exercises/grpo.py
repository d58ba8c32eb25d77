"Exercises of the chapter on groups."
import math
import torch
from torch import Generator, tensor
from rlhf_nb import grpo as package
from rlhf_nb.book.checks import Exercise, ProofKind
from rlhf_nb.exercises.ppo import PolicyLoss

class GroupLoss(PolicyLoss): asks, chapter = "policy loss of groups", "grpo"

class Advantages(ProofKind):
    asks, chapter = "advantages of a group", "grpo"
    takes = dict(rewards="rewards reward r scores",
                 group="group groups group_ids group_id prompt_ids index uid",
                 group_size="group_size num_generations k n n_samples")
    right = dict(
        base=dict(group="reward less its group's mean", others="reward less the mean of the others",
                  batch="reward less the batch's mean", none="reward without a baseline"),
        scale=dict(none="", sample="divided by the group's deviation (n - 1)",
                   population="divided by the group's deviation (n)",
                   batch="divided by the batch's deviation (n - 1)",
                   batch_population="divided by the batch's deviation (n)"),
        eps={"0": ""} | {e: f"+ {e}" for e in ("1e-4", "1e-6", "1e-8", "1e-5", "1e-9")},
        place=dict(beside="", inside="under the root"), sign=dict(plus=""), rows=dict(given=""))
    wrong = dict(
        base=dict(best="less the group's best: then nothing is good", worst="less the group's worst: then nothing is bad",
                  rival="with the best of the others? with their mean", sum="the mean of the others, not their sum", total="the mean of the group, not its sum",
                  n="the mean of the others: divide by n - 1, not by n", median="less the group's median, not its mean",
                  own="the answer itself is in the sum, which is divided by n - 1: take it off first"),
        scale=dict(root="divided by the root of the summed squares: divide these by n first",
                   square="that is the variance: divide by its square root",
                   range="divided by the range, not by the deviation"),
        place=dict(times="multiplied by the deviation: divide"),
        sign=dict(minus="the sign: better than the group is above 0",
                  baseline="that is the baseline: subtract it from the reward"),
        rows=dict(across="every k-th row is taken for a group: answers to different prompts are compared",
                  columns="along the wrong axis: the answers to one prompt stand in a row",
                  order="the rows of a group may stand anywhere: use `group`, not the order",
                  whole="compare with the group, not with the whole batch"))
    mixed = {"divided by the group's deviation, but not centred on the group": dict(
        base=("batch", "none"), scale=("sample", "population"))}
    stable = "equal rewards", "an answer alone"
    known = {"RLOO (Ahmadian et al. 2024)": dict(base="others", scale="none"),
             "GRPO (Shao et al. 2024; n - 1 as in torch and TRL)": dict(base="group", scale="sample"),
             "Dr. GRPO (Liu et al. 2025)": dict(base="group", scale="none"),
             "REINFORCE with the batch's mean": dict(base="batch", scale="none"),
             "the group's mean, the batch's deviation": dict(base="group", scale="batch")}
    def case(self, given, *rows, order=None):
        rewards = tensor([float(r) for row in rows for r in row], dtype=torch.double)
        at = tensor([i for i, row in enumerate(rows) for _ in row])
        if order is not None: rewards, at = rewards[order], at[order]
        return dict(rewards=rewards if given & {"group", "group_size"} else rewards.view(len(rows), -1),
                    group=at, group_size=len(rows[0]))
    def cases(self, given):
        found = {"two prompts": self.case(given, [1, 0, 4], [5, 7, 6.5]), "rewards close together":
                 self.case(given, [1, 1.001, 1.003], [2, 2.004, 1]), "three prompts":
                 self.case(given, [2, 0, 1, 4], [1, 1.5, 3, 3], [0, 9, 2, 2.5])}
        return found | ({} if "group" not in given else {
            "a group of three and one of two": self.case(given, [1, 0, 4], [5, 7]),
            "rows in any order": self.case(given, [1, 0, 4], [5, 7, 6.5], order=tensor([3, 0, 4, 2, 1, 5]))})
    def edges(self, given):
        found = {"equal rewards": self.case(given, [2, 2, 2], [0, 1, 3]),
                 "large rewards": self.case(given, [2e3, 0, 1e3], [1e3, 5e3, 7e3])}
        found["an answer that nobody scored"] = self.case(given, [1, torch.nan, 0], [2, 4, 5])
        if "group" not in given: return found | {"groups of one": self.case(given, [3], [1])}
        return found | {"an answer alone": self.case(given, [3], [1, 5]), "groups by other numbers": self.case(
            given, [1, 0, 4], [5, 7, 6.5]) | dict(group=tensor([70, 70, 70, 2, 2, 2]))}
    def compute(self, a, c):
        r, group = a.rewards.flatten().tolist(), a.group.tolist()
        n_first, rows, out = group.count(group[0]), range(len(r)), [0.] * len(r)
        at = dict(given=group, across=[i % (len(r) // n_first) for i in rows], columns=[i % n_first for i in rows],
                  whole=[0 for i in rows], order=[i // n_first for i in rows])[c["rows"]]
        def mean(x): return sum(x) / len(x)
        def variance(x, less): return sum((y - mean(x))**2 for y in x) / max(len(x) - less, 1)
        for i in rows:
            if r[i] != r[i]: continue                  # nobody scored it
            batch, own = [x for x in r if x == x], [r[j] for j in rows if at[j] == at[i] and r[j] == r[j]]
            n, others = len(own), [r[j] for j in rows if at[j] == at[i] and r[j] == r[j] and j != i]
            if n == 1 and c["base"] not in ("batch", "none"): continue
            base = dict(group=lambda: mean(own), others=lambda: sum(others) / max(n - 1, 1), batch=lambda: mean(batch), none=lambda: 0.,
                        best=lambda: max(own), rival=lambda: max(others), sum=lambda: sum(others), total=lambda: sum(own), own=lambda: sum(own) / max(n - 1, 1),
                        n=lambda: sum(others) / n, worst=lambda: min(own), median=lambda: sorted(own)[(n - 1) // 2])[c["base"]]()
            spread = dict(none=lambda: 1., sample=lambda: variance(own, 1), population=lambda: variance(own, 0),
                          batch=lambda: variance(batch, 1), batch_population=lambda: variance(batch, 0),
                          root=lambda: variance(own, 0) * n, square=lambda: variance(own, 1)**2,
                          range=lambda: (max(own) - min(own))**2)[c["scale"]]()
            eps = float(c["eps"]) if c["scale"] != "none" else 0.
            scale = (spread + eps)**.5 if c["place"] == "inside" else spread**.5 + eps
            x = dict(plus=r[i] - base, minus=base - r[i], baseline=base)[c["sign"]]
            out[i] = x * scale if c["place"] == "times" else x / scale if scale else 0.
        return tensor(out, dtype=torch.double).view(a.rewards.shape)
    def traced(self, a, c): # group by group
        r, out = a.rewards.flatten().double(), torch.zeros(a.rewards.numel()).double()
        for at in a.group.unique():
            own, n = r.masked_select(a.group == at), (a.group == at).sum()
            x = dict(group=lambda: own - own.mean(), others=lambda: own - (own.sum() - own) / (n - 1), batch=lambda: own - r.mean(),
                     none=own.clone)[c["base"]]()
            spread = dict(none=lambda: None, sample=own.std, population=lambda: own.std(correction=0), batch=r.std,
                          batch_population=lambda: r.std(correction=0))[c["scale"]]()
            eps = float(c["eps"])
            if spread is not None: x = x / ((spread**2 + eps)**.5 if c["place"] == "inside" else spread + eps)
            out[a.group == at] = x
        return out.view(a.rewards.shape)

# ------------------------------------------------------------------ fixed_groups
def _drawn(seed, p, k, scale=1., dtype=torch.float32):
    return (scale * torch.randn(p * k, generator=Generator().manual_seed(seed))).to(dtype), k

def _loo(reward, k): return package.leave_one_out(reward, torch.arange(len(reward)) // k)
def _table(reward, k): return dict(rewards=reward, group=torch.arange(len(reward)) // k)
OTHERS = {"the answer itself is in its baseline: leave it out": dict(base="group"),
          "not divided by the standard deviation: that is GRPO": dict(scale="sample", eps="1e-4")}

def _per_group(f, alone=0.): # f: the scored rewards of a group, two or more -> what it makes of them
    def made(reward, group):
        out = torch.zeros_like(reward)
        for name in group.unique():
            at = (group == name) & ~reward.isnan()
            if at.sum() > 1: out[at] = f(reward[at]).to(reward)
        return out
    return made
def _without(f): # the reward less f of the others
    return _per_group(lambda r: torch.stack([x - f(torch.cat([r[:i], r[i + 1:]])) for i, x in enumerate(r)]))
def _unlike(x, r): return (r != x).to(r) @ r / (r != x).sum() if (r != x).any() else x
BASELINES = { # instead of the mean of the others
    "the baseline is the mean of the others, not their median": _without(torch.median),
    "the baseline is the mean of the others, not the worst of them": _without(torch.min),
    "the mean of all others, not the answer before it alone": _per_group(lambda r: r - r.roll(1)),
    "the mean of all others, not the next answer alone": _per_group(lambda r: r - r.roll(-1)),
    "the mean of all others, not the first answer of its group alone": _per_group(lambda r: r - r[0]),
    "the mean of all others, not the last answer of its group alone": _per_group(lambda r: r - r[-1]),
    "the mean of all others, not only of those before it": _per_group(
        lambda r: torch.stack([x - (r[:i].mean() if i else 0.) for i, x in enumerate(r)])),
    "the mean of all others, not only of those behind it": _per_group(
        lambda r: torch.stack([x - (r[i + 1:].mean() if i + 1 < len(r) else 0.) for i, x in enumerate(r)])),
    "the answer itself is left out, not the next one": _per_group(lambda r: r - (r.sum() - r.roll(-1)) / (len(r) - 1)),
    "the answer itself is left out, not the one before it": _per_group(lambda r: r - (r.sum() - r.roll(1)) / (len(r) - 1)),
    "the answer itself is left out, not the first of its group": _per_group(lambda r: r - r[1:].mean()),
    "the answer itself is left out, not the last of its group": _per_group(lambda r: r - r[:-1].mean()),
    "an answer of equal reward is another one: leave out the answer itself alone": _per_group(
        lambda r: torch.stack([x - _unlike(x, r) for x in r])),
    "the mean of the others, not of the best and the worst of the group": _per_group(lambda r: r - (r.max() + r.min()) / 2),
    "the baseline is subtracted, not added": _without(lambda x: -x.mean()),
    "the baseline is subtracted: that divides by it": _per_group(lambda r: r * (len(r) - 1) / (r.sum() - r)),
    "n / (n - 1) counts once: that is RLOO's advantage times it": _per_group(lambda r: (r - r.mean()) * (len(r) / (len(r) - 1))**2),
    "that is the group-centred reward times (n - 1) / n: n / (n - 1) is the other way up": _per_group(
        lambda r: (r - r.mean()) * (len(r) - 1) / len(r)),
    "that is the group-centred reward times n: divide by n - 1": _per_group(lambda r: (r - r.mean()) * len(r)),
    "nothing is divided by a standard deviation here, not that of the others either": _per_group(lambda r: torch.stack([
        (x - y.mean()) / (y.std(correction=0) + 1e-4) for i, x in enumerate(r) for y in [torch.cat([r[:i], r[i + 1:]])]])),
    "not the absolute difference: worse than the others is below 0": _per_group(
        lambda r: (r - (r.sum() - r) / (len(r) - 1)).abs()),
    "worse than the others is below 0: nothing is cut off": _per_group(
        lambda r: (r - (r.sum() - r) / (len(r) - 1)).clamp(min=0))}
def _in_rows(f): return lambda r, k: f(r, torch.arange(len(r)) // k)

fixed_groups = Exercise(
    reference=_loo,
    cases={"two prompts, two answers each": (tensor([1., 0., 5., 7.]), 2),
           "three answers each": (tensor([1., 0., 0., 5., 7., 9.]), 3), "one prompt": _drawn(0, 1, 4),
           "many prompts": _drawn(1, 5, 3), "large rewards": _drawn(2, 3, 4, 100.),
           "double precision": _drawn(3, 2, 5, dtype=torch.float64)},
    mistakes=Advantages().told(_table, "base sign rows", OTHERS, "order", base="others") | {
        "that is one number per prompt: one per answer": lambda r, k: _loo(r, k).view(-1, k).mean(1),
        "the order of the answers is lost: the result stands transposed, answer by answer, not prompt by prompt":
            lambda r, k: _loo(r, k).view(-1, k).T.flatten(),
        "the order of the answers is lost: the groups are columns of (k, -1), and come back as rows": lambda r, k: _loo(
            r.view(k, -1).T.flatten(), k),
        "one row of numbers comes back, not one row per prompt: flatten": lambda r, k: _loo(r, k).view(-1, k),
        "rows of k are prompts: the mean of the others is over axis 1, within a row, not over prompts": lambda r, k: (
            lambda x: (x - (x.sum(0) - x) / max(len(x) - 1, 1)).flatten())(r.view(-1, k))}
        | {words: _in_rows(f) for words, f in BASELINES.items()})

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
          "a group that nobody scored": _rows([NAN, NAN], [1, 2, 6]),
          "rewards close together": _rows([1, 1.01, 1.03], [2, 2.004]),
          "numbers of groups with gaps": (tensor([1., 3., 0., 5.]), tensor([7, 7, 2, 2])),
          "many groups": _noise(0, 5, 4), "large rewards": _noise(1, 3, 3, 100.),
          "double precision": _rows([1, 0, 0], [5, 7, 8], dtype=torch.float64)}

def _scored(reward, group): # of each row's group
    return [[x for x in reward[group == k] if not x.isnan()] for k in group]
def _alone(reward, group): return tensor([len(x) == 1 for x in _scored(reward, group)])
def _as_rows(reward, group): # groups taken for rows of one size
    r = reward.view(-1, int((group == group[0]).sum()))
    return (r - (r.sum(1, keepdim=True) - r) / (r.shape[1] - 1)).flatten()
def _given(reward, group): return dict(rewards=reward, group=group)
def _deviation(f): return _per_group(lambda r: (r - r.mean()) / (f(r) + 1e-4))
def _over_batch(reward, group):
    known = ~reward.isnan()
    out = torch.zeros_like(reward)
    out[known] = (reward[known] - reward[known].mean()) / (reward[known].std() + 1e-4)
    return out
def _batch_mean(reward, group): # the group's standard deviation
    stds = tensor([torch.stack(x).double().std() if len(x) > 1 else 0. for x in _scored(reward, group)])
    return ((reward - reward.nanmean()) / (stds + 1e-4)).nan_to_num(0.).to(reward)

leave_one_out = Exercise(
    reference=package.leave_one_out, cases=GROUPS,
    mistakes=Advantages().told(_given, "base sign rows", OTHERS, base="others") | {
        "groups differ in size and need not stand together, so view(-1, k) cannot make rows of them": _as_rows,
        "an answer that is alone has advantage 0, not its reward": lambda r, g: torch.where(
            _alone(r, g) & ~r.isnan(), r, package.leave_one_out(r, g)),
        "an answer that nobody scored is not a reward of 0":
            lambda r, g: package.leave_one_out(r.nan_to_num(0.), g),
        "an answer that nobody scored is no 0 in the mean of the others": lambda r, g: torch.where(
            r.isnan(), 0., package.leave_one_out(r.nan_to_num(0.), g)),
        "an answer that nobody scored has advantage 0": lambda r, g: torch.where(
            r.isnan(), tensor([-float(sum(x) / max(len(x), 1)) for x in _scored(r, g)]).to(r), package.leave_one_out(r, g)),
        "nan spreads over the group: leave such answers out":
            lambda r, g: torch.stack([r[i] - (r[g == g[i]].sum() - r[i]) / ((g == g[i]).sum() - 1)
                                      if (g == g[i]).sum() > 1 else r[i] * 0. for i in range(len(r))])} | BASELINES)

group_normalised = Exercise(
    reference=package.group_normalised, cases=GROUPS,
    mistakes=Advantages().told(_given, "base scale place sign rows", {
        "the standard deviation divides by n - 1, not by n": dict(scale="population"),
        "not divided by the standard deviation: that is Dr. GRPO": dict(scale="none"),
        "subtract the mean, too": dict(base="none"),
        "the mean is that of the whole group, the answer included": dict(base="others"),
        "the standard deviation of the group, not of the whole batch": dict(scale="batch"),
        "10^-4 is added to the standard deviation, not to the variance": dict(place="inside"),
        "10^-4 is added to the standard deviation: no less, not as its least value (a clamp or maximum), and not behind the division": dict(eps="0")}, base="group", scale="sample", eps="1e-4") | {
        "equal rewards give 0/0: 10^-4 is added to the standard deviation":
            lambda r, g: package.group_centered(r, g) / tensor(
                [float(torch.stack(x).double().std()) if len(x) > 1 else 0. for x in _scored(r, g)]),
        "a group with one scored answer gives 0/0: n - 1 is 0 there": lambda r, g: torch.where(
            _alone(r, g), NAN, package.group_normalised(r, g)),
        "an answer that nobody scored is not a reward of 0":
            lambda r, g: package.group_normalised(r.nan_to_num(0.), g),
        "an answer that nobody scored does not count in n, with a deviation of 0: n is the number of scored ones": lambda r, g: (
            lambda a: a / (tensor([a[g == k].square().sum() / max((g == k).sum() - 1, 1) for k in g]).sqrt() + 1e-4))(package.group_centered(r, g)),
        "an answer that nobody scored spreads nan over its group: leave it out": lambda r, g: torch.stack([
            (x - r[g == k].mean()) / (r[g == k].std() + 1e-4) if (g == k).sum() > 1 else 0 * x for x, k in zip(r, g)]),
        "the mean absolute deviation is no standard deviation: square, then take the root": _deviation(lambda r: (r - r.mean()).abs().mean()),
        "the absolute deviations are no standard deviation: square, then take the root": _deviation(
            lambda r: (r - r.mean()).abs().sum() / (len(r) - 1)),
        "the median absolute deviation is no standard deviation": _deviation(lambda r: (r - r.median()).abs().median()),
        "divided by the largest deviation, not by the standard deviation": _deviation(lambda r: (r - r.mean()).abs().max()),
        "divided by the standard deviation, not by the standard error: its root of n is too much": _deviation(lambda r: r.std() / len(r)**.5),
        "the mean is missing in the standard deviation: that is the root of the mean square": _deviation(lambda r: r.square().mean().sqrt()),
        "the mean is missing in the standard deviation: that is the root of the squares over n - 1": _deviation(
            lambda r: (r.square().sum() / (len(r) - 1)).sqrt()),
        "divided by the mean, not by the standard deviation": _deviation(lambda r: r.mean()),
        "less the group's mean, not less its worst over the range": _per_group(lambda r: (r - r.min()) / (r.max() - r.min() + 1e-4)),
        "not a softmax: less the mean, over the standard deviation": _per_group(lambda r: r.softmax(0)),
        "the small number that is added is 10^-4, not 10^-6": _per_group(lambda r: (r - r.mean()) / (r.std() + 1e-6)),
        "the small number that is added is 10^-4, not 10^-5": _per_group(lambda r: (r - r.mean()) / (r.std() + 1e-5)),
        "the small number that is added is 10^-4, not 10^-3": _per_group(lambda r: (r - r.mean()) / (r.std() + 1e-3)),
        "the mean is that of the group, not of the whole batch, behind the group's standard deviation": _batch_mean,
        "the sign of worse ones stays: no absolute value": _per_group(lambda r: (r - r.mean()).abs() / (r.std() + 1e-4)),
        "not divided by the standard deviation and the root of n: the standard deviation divides by n - 1 inside of the root": _deviation(
            lambda r: (r - r.mean()).norm() / len(r))})

# ------------------------------------------------------------------ loss_weights
def _mask(*lengths, t=5, left=False):
    at = torch.arange(t)
    return torch.stack([at >= t - n if left else at < n for n in lengths])

MASKS = {"four tokens and one": (_mask(4, 1), 8), "a row without a token": (_mask(3, 0), 5),
         "padded on the left": (_mask(2, 5, left=True), 6), "a hole": (tensor([[True, False, True]]), 3),
         "nothing at all": (_mask(0, 0), 4), "one row": (_mask(3, t=3), 10)}
def _weights(name, by): return {f"{name}, {case}": (mask, name, length) for case, (mask, length) in MASKS.items()}

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
        "grpo: every answer counts the same, also one without a token: divide by their number":
            _only("grpo", lambda m, L: m / m.sum(1, keepdim=True).clamp(min=1) / m.any(1).sum().clamp(min=1)),
        "dapo: by all tokens of the batch, not by the number of answers as well": _only("dapo", lambda m, L: m / m.sum().clamp(min=1) / len(m)),
        "dr_grpo: the number of answers times the constant max_length, not the width alone": _only("dr_grpo", lambda m, L: m / m.shape[1]),
        "dr_grpo: the constant is max_length, not the answer's own length: that is grpo": _only("dr_grpo", lambda m, L: m / m.sum(1, keepdim=True).clamp(min=1) / len(m)),
        "dr_grpo: the constant is max_length, not the longest answer": _only("dr_grpo", lambda m, L: m / m.sum(1).max() / len(m)),
        "dr_grpo: the constant is max_length, not the longest answer of the batch": _only("dr_grpo", lambda m, L: m / m.sum(1).max().clamp(min=1) / len(m)),
        "dr_grpo: the constant is max_length, not all tokens of the batch: that is dapo": _only("dr_grpo", lambda m, L: m / m.sum().clamp(min=1)),
        "dapo: every token counts the same, not every answer: that is grpo": _only("dapo", lambda m, L: m / m.sum(1, keepdim=True).clamp(min=1) / len(m)),
        "grpo: each row by its own length, not by the mean length, which counts every token the same: that is dapo": _only("grpo", lambda m, L: m / m.sum().clamp(min=1)),
        "grpo: each row by its own length, not by max_length: that is dr_grpo": _only("grpo", lambda m, L: m / L / len(m)),
        "dapo: by the tokens of the batch, not by the number of answers times max_length": _only("dapo", lambda m, L: m / L / len(m)),
        "grpo and dr_grpo are exchanged": lambda m, name, length: _right(m, {"dr_grpo": "grpo", "grpo": "dr_grpo"}.get(name, name), length),
        "dapo and dr_grpo are exchanged": lambda m, name, length: _right(m, {"dr_grpo": "dapo", "dapo": "dr_grpo"}.get(name, name), length),
        "dr_grpo: divide by the number of answers, too": _only("dr_grpo", lambda m, L: m / L),
        "dr_grpo: the constant is max_length, not the width of the batch":
            _only("dr_grpo", lambda m, L: m / m.numel()),
        "dapo: divide by the tokens of the whole batch, not by all its entries: pads, outside of the mask, are none":
            _only("dapo", lambda m, L: m / m.numel()),
        "dapo: all tokens of the batch, not those of the row":
            _only("dapo", lambda m, L: m / m.sum(1, keepdim=True).clamp(min=1)),
        "grpo: the tokens of the row, axis 1, not of the column":
            _only("grpo", lambda m, L: m / m.sum(0, keepdim=True).clamp(min=1) / len(m)),
        "grpo: the tokens of the row, not the longest row":
            _only("grpo", lambda m, L: m / m.sum(1).max().clamp(min=1) / len(m)),
        "grpo: by the number of tokens of the row, not by one more": _only("grpo", lambda m, L: m / (m.sum(1, keepdim=True) + 1) / len(m)),
        "dapo: by the number of tokens of the batch, not by one more": _only("dapo", lambda m, L: m / (m.sum() + 1)),
        "dapo: by the number of tokens of the batch: a batch without any gives nan": _only("dapo", lambda m, L: m / m.sum()),
        "grpo: by the number of tokens of the row: one without any gives nan": _only("grpo", lambda m, L: m / m.sum(1, keepdim=True) / len(m)),
        "dr_grpo: by the number of answers times max_length, not by all tokens of the batch times max_length": _only(
            "dr_grpo", lambda m, L: m / m.sum().clamp(min=1) / L),
        "dr_grpo: by max_length, the same for all, not by the answer's own length times max_length": _only(
            "dr_grpo", lambda m, L: m / m.sum(1, keepdim=True).clamp(min=1) / L),
        "dr_grpo: by the number of answers times max_length: with a token or without one": _only(
            "dr_grpo", lambda m, L: m / m.any(1).sum().clamp(min=1) / L),
        "dr_grpo: by the number of answers, not by the width times max_length": _only("dr_grpo", lambda m, L: m / m.shape[1] / L),
        "dr_grpo: divided by the number of answers alone: by the constant max_length, too": _only("dr_grpo", lambda m, L: m / len(m)),
        "grpo: divided by the number of answers alone: by the tokens of the row, too": _only("grpo", lambda m, L: m / len(m)),
        "grpo: each row by its own tokens, not by the width of the batch": _only("grpo", lambda m, L: m / m.numel()),
        "a weight is a fraction: // rounds it down to a whole number": lambda m, name, L: _right(m, name, L).floor().long(),
        "a weight is a fraction: // rounds it down, to 0 or 1": lambda m, name, L: _right(m, name, L).floor(),
        "that is the number that divides: 1 over it": lambda m, name, L: (lambda w: torch.where(m.bool(), 1 / w, 0.))(_right(m, name, L)),
        "dr_grpo is the only one that max_length is for: it divides the others, too": lambda m, name, L: _right(m, name, L) / (1 if name == "dr_grpo" else L),
        "a row without a token gives nan: clamp the number by which you divide":
            _each(lambda m, name, L: m / m.sum() if name == "dapo" else m / m.sum(1, keepdim=True) / len(m)
                  if name == "grpo" else m / len(m) / L),
        "weights of 0 where the mask is False":
            _each(lambda m, name, L: torch.ones_like(m) * _right(m, name, L).amax(1, keepdim=True)),
        "that is the mask: divide it": lambda m, name, L: m.float(),
        "another word must raise ValueError": lambda m, name, L: _right(m, name if name in ("dapo", "grpo") else "dr_grpo", L)})

# ------------------------------------------------------------------ cispo_loss
def _cispo(r, A, low=.2, high=.2, clip=lambda r, e, h: r.clamp(1 - e, 1 + h).detach(), log=torch.log, sign=-1):
    return sign * clip(r, low, high) * A * log(r)
def _ratios(*r, ends=(.2, .28), A=(1., -1., 2., -2.)): return tensor([r]).requires_grad_(), tensor([A]), *ends

cispo_loss = Exercise(
    reference=_cispo, cases={"within the clip": _ratios(.9, 1.1, 1.2, .95), "beyond it": _ratios(.5, 1.5, 1.5, .5),
                             "other ends": _ratios(.3, .5, 1.9, 3., ends=(.6, 1.)),
                             "no ends given": _ratios(.5, 1.5, 1.25, .9, ends=()), "a ratio of 1": _ratios(1., 1., 1., 1.),
                             "three rows": (tensor([[.9, 1.1], [.7, 1.4], [2.5, 1.]]).requires_grad_(),
                                            tensor([[1., -2.], [.5, 3.], [-1., 0.]]), .2, .28),
                             "a ratio of 0": _ratios(0., 0., .9, 1., A=(1., -1., 2., 0.))},
    mistakes={
        "the weight has a gradient: detach it": lambda *x: _cispo(*x, clip=lambda r, e, h: r.clamp(1 - e, 1 + h)),
        "no gradient reaches the policy": lambda r, *x: _cispo(r.detach(), *x),
        "the weight is not clipped": lambda *x: _cispo(*x, clip=lambda r, e, h: r.detach()),
        "the upper end is 1 + epsilon_high": lambda r, A, e=.2, h=.2: _cispo(r, A, e, e),
        "times the log of the ratio": lambda *x: _cispo(*x, log=lambda r: r),
        "the sign: a loss is minus the gain": lambda *x: _cispo(*x, sign=1),
        "the ends are exchanged: 1 - epsilon below, 1 + epsilon_high above": lambda r, A, e=.2, h=.2: _cispo(r, A, h, e),
        "the ends are 1 - epsilon and 1 + epsilon_high, around 1": lambda *x: _cispo(*x, clip=lambda r, e, h: r.clamp(-e, h).detach()),
        "the ends are 1 - epsilon and 1 + epsilon_high: 1 is missing in the upper": lambda *x: _cispo(*x, clip=lambda r, e, h: r.clamp(e, h).detach()),
        "the weight has a lower end, too: at least 1 - epsilon": lambda *x: _cispo(*x, clip=lambda r, e, h: r.clamp(max=1 + h).detach()),
        "the weight has an upper end, too: at most 1 + epsilon_high": lambda *x: _cispo(*x, clip=lambda r, e, h: r.clamp(min=1 - e).detach()),
        "the logarithm is of the ratio itself, not of the clipped one: a token beyond the clip has a gradient": lambda r, A, e=.2, h=.2: _cispo(
            r.clamp(1 - e, 1 + h), A, e, h),
        "that is PPO's minimum, without a logarithm: a token beyond the clip has no gradient there": lambda r, A, e=.2, h=.2:
            -torch.minimum(r * A, r.clamp(1 - e, 1 + h) * A),
        "the clipped ratio alone is no loss: log of the ratio is missing": lambda r, A, e=.2, h=.2: -r.clamp(1 - e, 1 + h) * A,
        "both ends count, whatever the sign of the advantage": lambda *x: _cispo(*x, clip=lambda r, e, h: torch.where(
            x[1] > 0, r.clamp(max=1 + h), r.clamp(min=1 - e)).detach()),
        "a token beyond the clip is kept, with the weight at the end: it is not dropped": lambda *x: _cispo(
            *x, clip=lambda r, e, h: torch.where((r >= 1 - e) & (r <= 1 + h), r, 0.).detach()),
        "the ends bound the ratio, not its logarithm": lambda r, A, e=.2, h=.2: -r.detach() * A * r.log().clamp(-e, h),
        "the logarithm is the natural one": lambda *x: _cispo(*x, log=torch.log2),
        "the logarithm is the natural one, not to base 10": lambda *x: _cispo(*x, log=torch.log10),
        "the logarithm is of the ratio, not of 1 + ratio": lambda *x: _cispo(*x, log=torch.log1p),
        "the advantage keeps its sign: bad tokens become less probable": lambda r, A, *x: _cispo(r, A.abs(), *x),
        "the advantage is missing": lambda r, A, *x: _cispo(r, torch.ones_like(A), *x),
        "the weight is missing: the clipped ratio, without gradient": lambda *x: _cispo(*x, clip=lambda r, e, h: torch.ones_like(r)),
        "one number for each token: no mean": lambda *x: _cispo(*x).mean(),
        "one number for each token: no sum": lambda *x: _cispo(*x).sum(),
        "one number for each token, not for each row": lambda *x: _cispo(*x).mean(1)})

ALONE = "there are no others, so that 0/0, nan or the reward itself would come out"
ASKED = {
    "leave_one_out": {
        f"an answer that is alone in its group has advantage 0: {ALONE}": "an answer alone in its group | a group with one scored answer",
        "an answer that nobody scored (its reward is nan) has advantage 0, and it is left out of the mean of the others and of their number":
            "an answer that nobody scored | a group with one scored answer | a group that nobody scored",
        "the rows of a group need not stand together: `group` tells where they are": "groups that do not stand together",
        "`group` holds names of groups, which need not be 0, 1, 2 without gaps": "numbers of groups with gaps"},
    "group_normalised": {
        "equal rewards have advantages of 0: 10^-4 is added to the standard deviation, 0 there": "equal rewards",
        "an answer that is alone in its group has advantage 0: its standard deviation, over n - 1, would be 0/0":
            "an answer alone in its group | a group with one scored answer",
        "an answer that nobody scored (its reward is nan) has advantage 0, and it is left out of mean, standard deviation and n":
            "an answer that nobody scored | a group with one scored answer | a group that nobody scored",
        "the rows of a group need not stand together: `group` tells where they are": "groups that do not stand together",
        "`group` holds names of groups, which need not be 0, 1, 2 without gaps": "numbers of groups with gaps"},
    "loss_weights": {
        "another word than the three raises ValueError": "another word",
        "a row without a token has weights of 0, not nan, and it is one of the answers that are counted":
            " | ".join(f"{kind}, {case}" for kind in ("dapo", "grpo", "dr_grpo") for case in ("a row without a token", "nothing at all")),
        "tokens are where the mask is True, wherever that is in a row": " | ".join(
            f"{kind}, {case}" for kind in ("dapo", "grpo", "dr_grpo") for case in ("padded on the left", "a hole"))},
    "cispo_loss": {
        "where no ends are given, epsilon and epsilon_high are .2 both": "no ends given",
        "ρ clipped at both ends is the weight alone: log ρ is of ρ itself, so the gradient flows outside of the clip, too": "beyond it",
        "log of a ratio of 0 is -inf, as the stub says: nothing is added to ρ, and it is not cut off, before the logarithm": "a ratio of 0"}}
