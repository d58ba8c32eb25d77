"Answers to the exercises on rubrics: wrong ones as learners write them, and right ones that look different."
import math, re, torch
from rlhf_nb.grpo import group_centered, group_normalised

def rubric(marks, weights, gates):
    total = marks @ weights / weights[weights > 0].sum()
    return torch.where(marks[:, gates].bool().all(1), total, torch.zeros_like(total))
def by_loop(marks, weights, gates):
    best, out = sum(w for w in weights if w > 0), []
    for row in marks:
        shut = any(g and not m for g, m in zip(gates, row))
        out.append(torch.zeros(()).to(marks) if shut else (row * weights).sum() / best)
    return torch.stack(out)
def counts(marks, weights, gates): return marks.sum(1) / weights.clamp(min=0).sum() * marks[:, gates].prod(1)
def points(marks, weights, gates): return marks @ weights * marks[:, gates].prod(1)
def by_sum(marks, weights, gates): return marks @ weights / weights.sum() * marks[:, gates].prod(1)
def by_size(marks, weights, gates): return marks @ weights / weights.abs().sum() * marks[:, gates].prod(1)
def no_faults(marks, weights, gates):
    w = weights.relu()
    return marks @ w / w.sum() * marks[:, gates].prod(1)
def no_gates(marks, weights, gates): return marks @ weights / weights.relu().sum()
def any_gate(marks, weights, gates):
    open = marks[:, gates].any(1) if gates.any() else torch.ones(len(marks)).bool()
    return marks @ weights / weights.relu().sum() * open
def part_gate(marks, weights, gates):
    open = marks[:, gates].mean(1) if gates.any() else 1.
    return marks @ weights / weights.relu().sum() * open
def other_gates(marks, weights, gates): return marks @ weights / weights.relu().sum() * marks[:, ~gates].prod(1)
def mean(marks, weights, gates): return (marks * weights).mean(1) * marks[:, gates].prod(1)
def of_all(marks, weights, gates): return (marks * weights).sum() / weights.relu().sum() * marks[:, gates].prod(1)

def apart(rewards, weights, group):
    total = torch.zeros(len(rewards)).to(rewards)
    for k in range(rewards.shape[1]): total = total + weights[k] * group_normalised(rewards[:, k], group)
    return torch.where(rewards.isnan().all(1), torch.full_like(total, math.nan), total)
def by_columns(rewards, weights, group):
    each = torch.stack([group_normalised(x, group) for x in rewards.unbind(1)])
    out = weights @ each
    out[(~rewards.isnan()).sum(1) == 0] = math.nan
    return out
def sum_first(rewards, weights, group):
    r = (rewards * weights).nansum(1)
    r[rewards.isnan().all(1)] = math.nan
    return group_normalised(r, group).masked_fill(r.isnan(), math.nan)
def centred(rewards, weights, group):
    return sum(w * group_centered(r, group) for w, r in zip(weights, rewards.T)).masked_fill(rewards.isnan().all(1), math.nan)
def of_batch(rewards, weights, group): return apart(rewards, weights, torch.zeros(len(rewards)))
def unweighed(rewards, weights, group): return apart(rewards, torch.ones(len(weights)).to(weights), group)
def weighed_before(rewards, weights, group): return apart(rewards * weights, torch.ones_like(weights), group)
def never_nan(rewards, weights, group): return sum(w * group_normalised(r, group) for w, r in zip(weights, rewards.T))
def nan_anywhere(rewards, weights, group):
    return torch.stack([w * group_normalised(r, group).where(~r.isnan(), torch.tensor(math.nan).to(r)) for w, r in zip(weights, rewards.T)]).sum(0)
def zero_for_nan(rewards, weights, group): return apart(rewards.nan_to_num(), weights, group).masked_fill(rewards.isnan().all(1), math.nan)
def mean_of_rewards(rewards, weights, group): return apart(rewards, weights, group) / rewards.shape[1]

def verdicts(reply, items):
    out = []
    for item in items:
        last = None
        for m in re.finditer(r"(?<!\w)" + re.escape(item) + r": (yes|no)(?!\w)", reply): last = m[1]
        out.append(float("nan") if last is None else 1. if last == "yes" else 0.)
    return out
def greedy(reply, items): # .* takes all it can, so what is found behind it is the last
    hits = [re.search(rf"(?s).*\b{re.escape(x)}: (yes|no)\b", reply) for x in items]
    return [math.nan if h is None else {"yes": 1., "no": 0.}[h[1]] for h in hits]
def first(reply, items):
    found = [re.search(rf"\b{re.escape(x)}: (yes|no)\b", reply) for x in items]
    return [float(m[1] == "yes") if m else math.nan for m in found]
def zero(reply, items): return [0. if x != x else x for x in verdicts(reply, items)]
def one(reply, items): return [1. if x != x else x for x in verdicts(reply, items)]
def dropped(reply, items): return [x for x in verdicts(reply, items) if not math.isnan(x)]
def turned(reply, items): return [1 - x for x in verdicts(reply, items)]
def words(reply, items): return [x if x != x else "yes" if x else "no" for x in verdicts(reply, items)]
def open_end(reply, items):
    found = [re.findall(rf"\b{re.escape(x)}: (yes|no)", reply) for x in items]
    return [float(m[-1] == "yes") if m else math.nan for m in found]
def open_begin(reply, items):
    found = [re.findall(rf"{re.escape(x)}: (yes|no)\b", reply) for x in items]
    return [float(m[-1] == "yes") if m else math.nan for m in found]
def unescaped(reply, items):
    found = [re.findall(rf"\b{x}: (yes|no)\b", reply) for x in items]
    return [float(m[-1] == "yes") if m else math.nan for m in found]

WRONG = dict(
    rubric_reward=[("an item that is met earns its own points: weights are missing", counts),
        ("a share: divide by the points that can be had", points),
        ("a fault takes points away, but is none of those that can be had: below 0 is not in the divisor", by_sum),
        ("a fault is not to be had: the divisor sums weights above 0, not their sizes", by_size),
        ("faults take points away: weights below 0 count in the sum", no_faults),
        ("without its gates an answer earns 0: gates are missing", no_gates),
        ("one gate that is not met is enough for 0: all must be met, not any", any_gate),
        ("gates that are open in part do not count in part: 0 or the whole share", part_gate),
        ("the gates are the items where `gates` is True, not the others", other_gates),
        ("divide by the points that can be had, not by the number of items", mean),
        ("each answer its own share: sum over items, not over answers", of_all)],
    normalised_sum=[("normalise each reward, then sum: that is the sum, normalised", sum_first),
        ("divide by the standard deviation of each reward", centred), ("each within its group: that is over the whole batch", of_batch),
        ("weights are missing", unweighed), ("a weight multiplies what is normalised: before, it is divided out again", weighed_before),
        ("nan where no reward scored the row", never_nan), ("a row that one reward did not score still has the others", nan_anywhere),
        ("nan is a reward that nobody scored, and not 0: skip it, leave it out of mean and std", zero_for_nan), ("a sum over rewards, not their mean", mean_of_rewards)],
    parse_rubric=[("the last verdict counts, not the first", first), ("no verdict is nan, not 0", zero), ("no verdict is nan, not met", one),
        ("an item without a verdict keeps its place, as nan: it is not left out", dropped), ("yes is 1 and no is 0, not the other way round: they are swapped", turned), ("a number, 1 or 0, not a word", words),
        ("`nothing` is no verdict: a word ends behind yes or no, so ask for its edge, \\b", open_end),
        ("`Unclean` is another item than `clean`: a word begins before the name, so ask for its edge, \\b", open_begin),
        ("a name may hold signs that a pattern reads in another sense: re.escape", unescaped)])
RIGHT = dict(rubric_reward=[rubric, by_loop], normalised_sum=[apart, by_columns], parse_rubric=[verdicts, greedy])
