"Exercises of the chapter on tools and turns."
import math, torch
from torch import tensor
from rlhf_nb import tools as package
from rlhf_nb.book.checks import Exercise

# ------------------------------------------------------------------ turn_numbers
def _masks(*rows): return (tensor([[int(c) for c in row] for row in rows]).bool(),)

def _turns(mask, first=0, other=-1, begins=lambda before, now: now and not before, start=False):
    out = torch.full(mask.shape, other)
    for i, row in enumerate(mask.tolist()):
        n, before = first - 1, start
        for j, now in enumerate(row):
            n += begins(before, now)
            if now: out[i, j] = n
            before = now
    return out

turn_numbers = Exercise(
    reference=_turns,
    cases={"by hand": _masks("0110010"), "rows of one, two and three turns": _masks("0111000", "0110110", "0101011"),
           "a turn at the first token": _masks("1101", "0101"), "a row without any": _masks("0000", "0110"),
           "gaps of several tokens": _masks("010001100011", "011100000010")},
    mistakes={
        "the first turn is number 0": lambda m: _turns(m, first=1),
        "-1 where the model did not write": lambda m: _turns(m, other=0),
        "what is inserted has no turn": lambda m: ((m & ~torch.cat([torch.zeros_like(m[:, :1]), m[:, :-1]], 1)).cumsum(1) - 1),
        "that counts tokens, not turns": lambda m: (m.cumsum(1) - 1).masked_fill(~m, -1),
        "a turn has its number from its first token on, not from its last":
            lambda m: ((m & ~torch.cat([m[:, 1:], torch.zeros_like(m[:, :1])], 1)).cumsum(1) - 1).masked_fill(~m, -1),
        "a row begins outside a turn: the token before the first counts as False": lambda m: _turns(m, start=True),
        "each row counts anew": lambda m: ((m & ~torch.cat([torch.zeros_like(m[:, :1]), m[:, :-1]], 1)).flatten().cumsum(0).view(m.shape) - 1)
            .masked_fill(~m, -1),
        "along the row, not down the batch": lambda m: ((m & ~torch.cat([torch.zeros_like(m[:, :1]), m[:, :-1]], 1)).cumsum(0) - 1).masked_fill(~m, -1),
        "that is the mask: turns have numbers": lambda m: m.long() - 1})

# ------------------------------------------------------------------ turn_advantages
NAN = math.nan

def _advantages(reward, group, turn, to_go=lambda row, k: sum(row[k:]), mean=lambda xs: sum(xs) / len(xs), seen=lambda i, k, r: not math.isnan(r[i][k]),
                same=lambda a, b: a == b, outside=0., base=None, level="turn", rest=False, which=lambda row, j: row[j], weigh=lambda row, j: 1):
    "The advantage, with a switch for every decision: what a turn is paid, less what, where it stands."
    r, g = reward.tolist(), group.tolist()
    def paid(i, k, how): return how([0. if math.isnan(x) else x for x in r[i]], k)
    out = torch.full(turn.shape, outside, dtype=reward.dtype)
    for i, row in enumerate(turn.tolist()):
        for j, now in enumerate(row):
            k = which(row, j) if now >= 0 else -1
            if k < 0 or math.isnan(r[i][k]): continue
            out[i, j] = weigh(row, j) * (paid(i, k, to_go) - mean([
                paid(n, m, base or to_go) for n in range(len(r)) if same(g[n], g[i]) and not (rest and n == i)
                for m in ([k] if level == "turn" else range(len(r[n]))) if seen(n, m, r)] or [0.]))
    return out

def _spread(reward, group, turn): # each advantage over the standard deviation of its group in this turn
    there, out = reward.nan_to_num(0.).flip(1).cumsum(1).flip(1).masked_fill(reward.isnan(), NAN), _advantages(reward, group, turn)
    for i, row in enumerate(turn.tolist()):
        for j, k in enumerate(row):
            x = there[group == group[i], k]
            if k >= 0 and (~x.isnan()).sum() > 1: out[i, j] /= x[~x.isnan()].std() + 1e-4
    return out

def _case(reward, group, *turns): return tensor(reward), tensor(group), tensor(turns)

turn_advantages = Exercise(
    reference=package.turn_advantages,
    cases={"by hand": _case([[1., 2.], [0., 1.], [1., NAN]], [0, 0, 0], [-1, 0, -1, 1], [-1, 0, 0, 1], [-1, 0, 0, 0]),
           "two groups": _case([[1., 2.], [0., 1.], [3., NAN], [5., 1.]], [0, 0, 1, 1], [0, -1, 1, 1], [0, -1, 1, -1], [0, 0, -1, -1], [0, -1, -1, 1]),
           "three turns": _case([[1., 2., 4.], [0., 1., NAN], [2., NAN, NAN]], [7, 7, 7], [0, -1, 1, -1, 2], [0, 0, -1, 1, -1], [-1, 0, 0, 0, -1]),
           "one turn": _case([[1.], [0.], [4.]], [0, 0, 1], [-1, 0, 0], [-1, 0, -1], [-1, 0, 0])},
    mistakes={
        "a turn also gets what comes after it: the reward to go": lambda r, g, t: _advantages(r, g, t, to_go=lambda row, k: row[k]),
        "a turn cannot have caused what came before it": lambda r, g, t: _advantages(r, g, t, to_go=lambda row, k: sum(row)),
        "from the turn on, not up to it": lambda r, g, t: _advantages(r, g, t, to_go=lambda row, k: sum(row[:k + 1])),
        "what comes after the turn, and the turn's own reward too": lambda r, g, t: _advantages(r, g, t, to_go=lambda row, k: sum(row[k + 1:])),
        "less the mean of the group": lambda r, g, t: _advantages(r, g, t, mean=lambda xs: 0.),
        "a response without the turn is not in its mean": lambda r, g, t: _advantages(r, g, t, seen=lambda i, k, r: True),
        "the mean is that of the group, not of the batch": lambda r, g, t: _advantages(r, g, t, same=lambda a, b: True),
        "0 where nothing was written": lambda r, g, t: _advantages(r, g, t, outside=NAN),
        "a turn that is not there counts as 0, and nothing is nan":
            lambda r, g, t: _advantages(r, g, t, to_go=lambda row, k: sum(row[k:])) + torch.where(r.isnan().any(1), NAN, 0.)[:, None],
        "the sign: more than the mean is good": lambda r, g, t: -_advantages(r, g, t),
        "the mean, not the median": lambda r, g, t: _advantages(r, g, t, mean=lambda xs: sorted(xs)[(len(xs) - 1) // 2]),
        "the mean, not the largest": lambda r, g, t: _advantages(r, g, t, mean=max),
        "not divided by the standard deviation": lambda r, g, t: _spread(r, g, t),
        "the mean is that of the whole group, the answer included, not of the others": lambda r, g, t: _advantages(r, g, t, rest=True),
        "each turn has a mean of its own, not one mean for all turns": lambda r, g, t: _advantages(r, g, t, level="all"),
        "the mean is that of rewards to go, as what it is taken from, not of the turn's own reward":
            lambda r, g, t: _advantages(r, g, t, base=lambda row, k: row[k]),
        "the mean is that of rewards to go, not of what the whole response earned": lambda r, g, t: _advantages(r, g, t, base=lambda row, k: sum(row)),
        "a token gets the advantage of its own turn, not of the first": lambda r, g, t: _advantages(r, g, t, which=lambda row, j: 0),
        "a token gets the advantage of its own turn, not of the last": lambda r, g, t: _advantages(r, g, t, which=lambda row, j: max(row)),
        "every token of a turn gets its whole advantage, which is not shared among its tokens":
            lambda r, g, t: _advantages(r, g, t, weigh=lambda row, j: 1 / row.count(row[j])),
        "every token of a turn gets its advantage, not only the last": lambda r, g, t: _advantages(r, g, t, weigh=lambda row, j: row[j] not in row[j + 1:]),
        "every token of a turn gets its advantage, not only the first": lambda r, g, t: _advantages(r, g, t, weigh=lambda row, j: row[j] not in row[:j])})

# ------------------------------------------------------------------ fixed_join
def _joined(prompt, parts, first=True, who=lambda k: k % 2 == 0, some=lambda parts: parts, before=False, own=True):
    ids, written = list(prompt) if own else [], [before] * len(prompt) if own else []
    for k, part in enumerate(some(parts)): ids, written = ids + list(part), written + [who(k)] * len(part)
    return ids, written

fixed_join = Exercise(
    reference=_joined,
    cases={"by hand": ([1, 2], [[3], [4, 5], [6]]), "one part": ([7], [[8, 9, 10]]), "an empty part": ([1], [[2, 3], [4], []]), "an empty part in between": ([5], [[], [6, 7], [8], [], [9]]),
           "five parts": ([1, 1], [[2], [3, 3], [4, 4, 4], [5], [6, 7]]), "the model wrote nothing yet": ([3, 4], [[]])},
    mistakes={
        "the first part is the model's": lambda p, x: _joined(p, x, who=lambda k: k % 2 == 1),
        "what is inserted was not written by the model": lambda p, x: _joined(p, x, who=lambda k: True),
        "the prompt was not written by the model": lambda p, x: _joined(p, x, before=True),
        "the prompt belongs in front": lambda p, x: _joined(p, x, own=False),
        "what is inserted stays in the response": lambda p, x: _joined(p, [y for k, y in enumerate(x) if k % 2 == 0], who=lambda k: True),
        "only the first part is the model's? every second one is": lambda p, x: _joined(p, x, who=lambda k: k == 0),
        "only the last part is the model's? every second one is": lambda p, x: _joined(p, x, who=lambda k: k == len(x) - 1),
        "one entry for each token, not for each part": lambda p, x: (_joined(p, x)[0], [False] * len(p) + [k % 2 == 0 for k in range(len(x))]),
        "an empty part still counts as one: written and inserted alternate": lambda p, x: _joined(p, [y for y in x if y]),
        "parts stay in their order: what is written is not moved before what is inserted":
            lambda p, x: _joined(p, sum(x[::2], []) and [sum(x[::2], []), sum(x[1::2], [])] or [[], sum(x[1::2], [])]),
        "the last part belongs to it": lambda p, x: _joined(p, x[:-1])})

# ------------------------------------------------------------------ majority_vote
def _vote(answers, count=lambda x, xs: xs.count(x), keep=lambda x: x is not None, best=max, order=lambda xs: xs):
    xs = [x for x in answers if keep(x)]
    return best(order(xs), key=lambda x: count(x, xs)) if xs else None

majority_vote = Exercise(
    reference=_vote,
    cases={"by hand": (["132", None, "122", "132"],), "equals": (["5", "7", "7", "5"],), "most hold none": ([None, None, None, "4", "5", "5"],),
           "none at all": ([None, None],), "no sample": ([],), "one": (["9"],), "no majority, only the most": (["1", "2", "3", "3", "4", "5"],),
           "numbers": ([3, 11, 11, 2],), "an answer of 0": ([0, None, 4, 0],), "equals, the first one larger": (["7", "5", None, "5", "7"],), "equals, the later one larger": (["2", "9", "2", "9", "4"],),
           "equals, the later one longer": (["2", "13", "2", "13"],), "the most, but never side by side": (["4", "4", "5", "7", "5", "8", "5"],)},
    mistakes={
        "None is no vote": lambda a: _vote(a, keep=lambda x: True),
        "of equals the one that came first": lambda a: _vote(a, order=lambda xs: xs[::-1]),
        "of equals the one that came first, not the smallest": lambda a: _vote(a, order=sorted),
        "of equals the one that came first, not the largest": lambda a: _vote(a, order=lambda xs: sorted(xs, reverse=True)),
        "the most frequent, not the rarest": lambda a: _vote(a, best=min),
        "the answer, not how often it came": lambda a: max((a.count(x) for x in a if x is not None), default=None),
        "the most frequent need not be more than half": lambda a: (lambda x: x if a.count(x) > len(a) / 2 else None)(_vote(a)),
        "the first answer is no vote": lambda a: next((x for x in a if x is not None), None),
        "the last answer is no vote": lambda a: next((x for x in reversed(a) if x is not None), None),
        "0 is an answer, and so a vote: only None is none": lambda a: _vote(a, keep=bool),
        "the largest answer is no vote": lambda a: max((x for x in a if x is not None), default=None)})
