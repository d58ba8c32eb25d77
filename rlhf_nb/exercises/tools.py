"Exercises of the chapter on tools and turns."
import math, torch
from collections import Counter
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

def _shifted(m): return torch.cat([torch.zeros_like(m[:, :1]), m[:, :-1]], 1)   # whether the token before is True
def _closed(m): return m | (_shifted(m) & torch.cat([m[:, 1:], torch.zeros_like(m[:, :1])], 1)) # gaps of one token belong to the turn

def _long_gaps(m): # how many gaps of two tokens or more stand before a token, behind the first turn
    two = ~m & ~torch.cat([torch.ones_like(m[:, :1]), m[:, :-1]], 1)              # the second token of a gap or later
    return (two & ~_shifted(two) & (m.cumsum(1) > 0)).cumsum(1)

def _places(row): # the place of each token in its turn
    out, n = [], -1
    for x in row:
        n = n + 1 if x else -1
        out.append(n)
    return out

turn_numbers = Exercise(
    reference=_turns,
    cases={"by hand": _masks("0110010"), "rows of one, two and three turns": _masks("0111000", "0110110", "0101011"),
           "a turn at the first token": _masks("1101", "0101"), "a row without any": _masks("0000", "0110"),
           "gaps of several tokens": _masks("010001100011", "011100000010"),
           "one turn in the middle": _masks("00110", "01110"), "gaps of one token": _masks("0101101", "1011010"), "a gap of two tokens": _masks("01001", "11001"), "one turn alone": _masks("0110", "1110"),
           "four turns": _masks("01010101", "01101101"), "a turn up to the last token": _masks("0011", "0101"), "one column": _masks("1", "0"), "nobody wrote": _masks("000", "000")},
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
        "a gap of several tokens ends one turn, once: that counts its tokens, each token outside": lambda m: ((~m).cumsum(1) - (~m).int().cumprod(1).sum(1, keepdim=True)).masked_fill(~m, -1),
        "a gap ends one turn, once: that counts its tokens, those of the prompt too": lambda m: (~m).cumsum(1).masked_fill(~m, -1),
        "a gap ends one turn, once: that counts its tokens, less one": lambda m: ((~m).cumsum(1) - 1).masked_fill(~m, -1),
        "a gap of one single token ends a turn, too: not only one of two or more": lambda m: _turns(_closed(m)).masked_fill(~m, -1),
        "a gap of several tokens ends a turn, too, not only one of a single token": lambda m: _turns(m, start=False) - _long_gaps(m) * m,
        "all tokens of a turn have its number, the last too: that rises at the end of a turn, one token early": lambda m: (
            (m & ~torch.cat([m[:, 1:], torch.zeros_like(m[:, :1])], 1)).cumsum(1)).masked_fill(~m, -1),
        "all tokens of a turn have its number, the first too: that rises one token late, after the turn has begun": lambda m: (
            lambda b: torch.cat([torch.zeros_like(b[:, :1]), b[:, :-1]], 1).sub(1).masked_fill(~m, -1))((m & ~_shifted(m)).cumsum(1)),
        "a turn begins where the mask becomes True: its end is a change, too, but no beginning, and numbers go up by 1, not 2": lambda m: ((m ^ _shifted(m)).cumsum(1) - 1).masked_fill(~m, -1),
        "a turn begins where the mask becomes True: its end is a change, too, but no beginning, and numbers go up by 1, not 2, from 0":
            lambda m: ((m ^ _shifted(m)).cumsum(1)).masked_fill(~m, -1),
        "numbers rise from the first turn of a row, at its left, to the last: they are counted from the end, backwards, in reverse order":
            lambda m: (lambda t: (t.amax(1, keepdim=True) - t).masked_fill(~m, -1))(_turns(m)),
        "the number of the turn, the same for all of its tokens: that is a token's place (position) in its turn": lambda m: torch.tensor(
            [_places(row) for row in m.tolist()]).view(m.shape),
        "the length of the turn is not its number": lambda m: (lambda t: torch.stack([(row[:, None] == row).sum(1) for row in t]).masked_fill(~m, -1))(_turns(m)),
        "a row may have more than two turns: the third and later ones go on, 2, 3, several": lambda m: _turns(m).clamp(max=1),
        "a row may have many turns: even and odd ones, 0 and 1, are not enough": lambda m: _turns(m).remainder(2).masked_fill(~m, -1),
        "the first turn is number 0, in a row that begins with a gap, such as the prompt, too: gaps before it do not count": lambda m: (
            (~m & ~torch.cat([torch.zeros_like(m[:, :1]), ~m[:, :-1]], 1)).cumsum(1)).masked_fill(~m, -1),
        "-1 where the model did not write, such as the prompt before the first turn": lambda m: _turns(m).where(m | (m.cumsum(1) > 0), 0),
        "-1, not -100, where the model did not write": lambda m: _turns(m, other=-100),
        "-1, not -2, where the model did not write": lambda m: _turns(m, other=-2),
        "only tokens that begin a turn have its number here: all of its tokens have it": lambda m: _turns(m).where(m & ~_shifted(m), -1),
        "a row begins outside a turn: the token before it is not the last one of the row (roll)": lambda m: ((m & ~m.roll(1, 1)).cumsum(1) - 1).masked_fill(~m, -1),
        "whole numbers, not floats": lambda m: _turns(m).float(),
        "that is how many turns the row has, not which one a token is in": lambda m: (_turns(m).amax(1, keepdim=True) + 0 * m).masked_fill(~m, -1),
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

def _spread(reward, group, turn, correction=1): # each advantage over the standard deviation of its group in this turn
    there, out = reward.nan_to_num(0.).flip(1).cumsum(1).flip(1).masked_fill(reward.isnan(), NAN), _advantages(reward, group, turn)
    for i, row in enumerate(turn.tolist()):
        for j, k in enumerate(row):
            x = there[group == group[i], k]
            if k >= 0 and (~x.isnan()).sum() > correction: out[i, j] /= x[~x.isnan()].std(correction=correction) + 1e-4
    return out

def _to_go(reward): return reward.nan_to_num(0.).flip(1).cumsum(1).flip(1).masked_fill(reward.isnan(), NAN)
def _out(a, turn): return a.gather(1, turn.clamp(min=0)).masked_fill(turn < 0, 0.) # (b k) -> (b t)

def _centred(x, group): # each column less its group's mean; 0 where it is nan
    mean = torch.stack([x[group == k].nanmean(0) for k in group])
    return (x - mean).nan_to_num(0.)

def _by(reward, group, turn, to_go): return _out(_centred(to_go(reward), group), turn)

def _others(reward, group, alone): # less the mean of the others
    x = _to_go(reward)
    out = torch.zeros_like(x)
    for i in range(len(x)):
        for k in range(x.shape[1]):
            rest = [x[n, k] for n in range(len(x)) if n != i and group[n] == group[i] and not x[n, k].isnan()]
            if not x[i, k].isnan(): out[i, k] = x[i, k] - sum(rest) / len(rest) if rest else alone
    return out

def _discounted(reward, gamma):
    x, out, after = reward.nan_to_num(0.), torch.zeros_like(reward), 0.
    for k in reversed(range(x.shape[1])): out[:, k] = after = x[:, k] + gamma * after
    return out.masked_fill(reward.isnan(), NAN)

def _by_tokens(reward, group, turn): # means over tokens, so that long turns weigh more
    x = _to_go(reward).nan_to_num(0.).gather(1, turn.clamp(min=0))
    out = torch.zeros_like(x)
    for name in group.unique():
        for k in range(reward.shape[1]):
            at = (group == name)[:, None] & (turn == k)
            if at.any(): out[at] = x[at] - x[at].mean()
    return out

def _case(reward, group, *turns): return tensor(reward), tensor(group), tensor(turns)

turn_advantages = Exercise(
    reference=package.turn_advantages,
    cases={"by hand": _case([[1., 2.], [0., 1.], [1., NAN]], [0, 0, 0], [-1, 0, -1, 1], [-1, 0, 0, 1], [-1, 0, 0, 0]),
           "two groups": _case([[1., 2.], [0., 1.], [3., NAN], [5., 1.]], [0, 0, 1, 1], [0, -1, 1, 1], [0, -1, 1, -1], [0, 0, -1, -1], [0, -1, -1, 1]),
           "three turns": _case([[1., 2., 4.], [0., 1., NAN], [2., NAN, NAN]], [7, 7, 7], [0, -1, 1, -1, 2], [0, 0, -1, 1, -1], [-1, 0, 0, 0, -1]),
           "one turn": _case([[1.], [0.], [4.]], [0, 0, 1], [-1, 0, 0], [-1, 0, -1], [-1, 0, 0]),
           "all have both turns": _case([[1., 2.], [0., 5.], [4., -1.]], [0, 0, 0], [-1, 0, -1, 1], [0, 0, -1, 1], [-1, 0, 1, 1]),
           "groups that do not stand together": _case([[1., 2.], [0., 1.], [3., 7.], [5., 1.]], [2, 0, 2, 0], [0, -1, 1, 1], [0, -1, 1, -1], [0, 0, -1, 1], [0, -1, -1, 1]),
           "alone in its group": _case([[1., 2.], [0., 1.], [4., 4.]], [0, 0, 1], [-1, 0, 1], [0, -1, 1], [-1, 0, 1]),
           "a row that wrote nothing": _case([[1., 2.], [NAN, NAN], [0., 4.]], [0, 0, 0], [-1, 0, 1], [-1, -1, -1], [0, -1, 1])},
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
        "0 where nothing was written, at turn -1, in a gap or the prompt: turn 0 or the first stands there": lambda r, g, t: _advantages(r, g, t.clamp(min=0)),
        "0 where nothing was written, at turn -1, in a gap or the prompt: the last turn stands there": lambda r, g, t: _advantages(
            r, g, t.where(t >= 0, r.shape[1] - 1)),
        "a turn that is missing, nan, adds nothing: here nan makes 0 of the turns before it, and the row is in no mean": lambda r, g, t: _by(
            r, g, t, lambda x: x.flip(1).cumsum(1).flip(1)),
        "a reward to go is a sum, not the mean of the rewards from the turn on: not divided by the number of turns that remain": lambda r, g, t: _by(
            r, g, t, lambda x: torch.stack([x[:, k:].nanmean(1) for k in range(x.shape[1])], 1).masked_fill(x.isnan(), NAN)),
        "the reward to go comes first and its mean then: here each turn's reward is centred before the sum, less means of rows that end earlier": lambda r, g, t: _out(
            _centred(r, g).flip(1).cumsum(1).flip(1), t),
        "the mean is that of the whole group, the answer itself included, not of the others: leave-one-out, n - 1": lambda r, g, t: _out(_others(r, g, 0.), t),
        "one credit for each turn, its reward to go: the whole response's is shared by all of its turns": lambda r, g, t: _out(
            _centred(r.nansum(1, keepdim=True), g).expand(r.shape), t),
        "the advantage of a turn is that of each of its tokens: not divided by the number of tokens written": lambda r, g, t: _out(_centred(_to_go(r), g), t) / (
            t >= 0).sum(1, keepdim=True).clamp(min=1),
        "later rewards count in full: no discount": lambda r, g, t: _by(r, g, t, lambda x: _discounted(x, .5)),
        "later rewards count in full: no discount of .9": lambda r, g, t: _by(r, g, t, lambda x: _discounted(x, .9)),
        "later rewards count in full: no discount of .99": lambda r, g, t: _by(r, g, t, lambda x: _discounted(x, .99)),
        "each turn has a mean of its own, over rows that have it: not the mean over the batch's tokens": lambda r, g, t: _by_tokens(r, g, t),
        "a token gets the advantage of its own turn, not of the next": lambda r, g, t: _advantages(r, g, t, which=lambda row, j: min(row[j] + 1, max(row))),
        "a token gets the advantage of its own turn, not of the one before": lambda r, g, t: _advantages(r, g, t, which=lambda row, j: max(row[j] - 1, 0)),
        "one number for each token, (b t): that is a table of turns, (b k)": lambda r, g, t: _centred(_to_go(r), g),
        "less the mean of the group in this turn, once: not divided by the number of turns": lambda r, g, t: _out(_centred(_to_go(r), g) / r.shape[1], t),
        "a row with fewer turns is not nan as a whole: its own turns have an advantage": lambda r, g, t: _advantages(r, g, t) * torch.where(r.isnan().any(1), 0., 1.)[:, None],
        "the reward to go less its mean: the mean is added": lambda r, g, t: _advantages(r, g, t, mean=lambda xs: -sum(xs) / len(xs)),
        "less the mean, not the smallest": lambda r, g, t: _advantages(r, g, t, mean=min),
        "the sum of the group's rewards to go is divided by how many have the turn": lambda r, g, t: _advantages(r, g, t, mean=sum),
        "every token of a turn gets its advantage: it does not grow along the turn, a running sum": lambda r, g, t: _advantages(r, g, t).cumsum(1) * (t >= 0),
        "the sign: more than the mean is good": lambda r, g, t: -_advantages(r, g, t),
        "the mean, not the median": lambda r, g, t: _advantages(r, g, t, mean=lambda xs: sorted(xs)[(len(xs) - 1) // 2]),
        "the mean, not the largest": lambda r, g, t: _advantages(r, g, t, mean=max),
        "not divided by the standard deviation": lambda r, g, t: _spread(r, g, t),
        "not divided by the standard deviation, that of n": lambda r, g, t: _spread(r, g, t, 0),
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
           "five parts": ([1, 1], [[2], [3, 3], [4, 4, 4], [5], [6, 7]]), "the model wrote nothing yet": ([3, 4], [[]]),
           "equal parts": ([1], [[5], [5], [6, 5], [5]]), "equal ids": ([7, 8], [[8, 7], [7, 9], [8]]), "no parts": ([1, 2], []), "no prompt": ([], [[3], [4]]),
           "two parts": ([9], [[3, 4], [5, 6]])},
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
        "the last part belongs to it": lambda p, x: _joined(p, x[:-1]),
        "parts alternate, not tokens: all tokens of a part are of one kind": lambda p, x: (_joined(p, x)[0], [False] * len(p) + [i % 2 == 0 for part in x for i in range(len(part))]),
        "parts alternate, not tokens: here True and False change from token to token": lambda p, x: (_joined(p, x)[0], [False] * len(p) + [
            i % 2 == 0 for i in range(sum(map(len, x)))]),
        "the place of a part says who wrote it, its number, not its value: parts.index finds the first of equal parts": lambda p, x: _joined(p, x, who=lambda k: x.index(x[k]) % 2 == 0),
        "a token's place says who wrote it, not its id: the same id may occur in several parts and in the prompt": lambda p, x: (lambda ids, w: (
            ids, [i in w for i in ids]))(_joined(p, x)[0], {i for part in x[::2] for i in part}),
        "a token's place says who wrote it, not its id: the same id may be written and inserted": lambda p, x: (lambda ids, w: (
            ids, [False] * len(p) + [i in w for i in ids[len(p):]]))(_joined(p, x)[0], {i for part in x[::2] for i in part}),
        "all ids of the parts stay: one that stands there already is left out, a duplicate": lambda p, x: (lambda found: (
            list(p) + [i for i, _ in found], [False] * len(p) + [w for _, w in found]))([y for y in _once(p, x, True)]),
        "one entry for each token, each id, not for each part: the list of flags is shorter, the prompt has one": lambda p, x: (
            _joined(p, x)[0], [False] + [k % 2 == 0 for k in range(len(x))]),
        "ids is a flat list of numbers, not nested: parts are extended, not appended as lists": lambda p, x: (list(p) + [list(y) for y in x], [False] * len(p) + [k % 2 == 0 for k in range(len(x))]),
        "all ids stay: one that occurs again is left out as a duplicate": lambda p, x: (lambda found: ([i for i, _ in found], [w for _, w in found]))(_once(p, x)),
        "the flags are shifted by one token, late: a part is the model's from its first token to its last": lambda p, x: (lambda ids, w: (ids, ([False] + w)[:len(ids)]))(*_joined(p, x)),
        "the flags are shifted by one token, early: a part is the model's from its first token to its last": lambda p, x: (lambda ids, w: (ids, (w + [False])[1:] if w else w))(*_joined(p, x)),
        "no token of what is inserted is the model's, also not the first one": lambda p, x: (_joined(p, x)[0], [False] * len(p) + [
            k % 2 == 0 or i == 0 for k, part in enumerate(x) for i in range(len(part))]),
        "all tokens of a written part are the model's, not only its first": lambda p, x: (_joined(p, x)[0], [False] * len(p) + [
            k % 2 == 0 and i == 0 for k, part in enumerate(x) for i in range(len(part))]),
        "all tokens of a written part are the model's, the first too": lambda p, x: (_joined(p, x)[0], [False] * len(p) + [
            k % 2 == 0 and i > 0 for k, part in enumerate(x) for i in range(len(part))]),
        "all parts, also those behind the third: none is missing": lambda p, x: _joined(p, x[:3]),
        "all parts, also those behind the fourth: none is missing": lambda p, x: _joined(p, x[:4]),
        "all parts, also those behind the second: none is missing": lambda p, x: _joined(p, x[:2]),
        "flags for the prompt, too: one for each id": lambda p, x: (_joined(p, x)[0], _joined(p, x)[1][len(p):]),
        "ids first, then the flags: the two are exchanged": lambda p, x: _joined(p, x)[::-1],
        "two lists are wanted, the flags too": lambda p, x: _joined(p, x)[0],
        "the prompt stands in front once, not before each part": lambda p, x: (lambda found: (sum((a for a, _ in found), []), sum((b for _, b in found), [])))([
            (list(p) + list(part), [False] * len(p) + [k % 2 == 0] * len(part)) for k, part in enumerate(x)]),
        "the prompt stands in front, not at the end": lambda p, x: (_joined([], x)[0] + list(p), _joined([], x)[1] + [False] * len(p)),
        "all turned round: True is what the model wrote, False the prompt and what is inserted": lambda p, x: (_joined(p, x)[0], [not w for w in _joined(p, x)[1]]),
        "a part stays open as one list: ids is a flat list of numbers": lambda p, x: (list(p) + [list(y) for y in x], _joined(p, x)[1]),
        "parts stay in their order: they are reversed": lambda p, x: _joined(p, x[::-1])})

def _once(prompt, parts, kept=False): # of equal ids the first; the prompt may be kept
    seen, found = {*prompt} if kept else set(), []
    for i, w in zip(*_joined([] if kept else prompt, parts)):
        if i not in seen: found.append((i, w))
        seen.add(i)
    return found

# ------------------------------------------------------------------ majority_vote
def _vote(answers, count=lambda x, xs: xs.count(x), keep=lambda x: x is not None, best=max, order=lambda xs: xs):
    xs = [x for x in answers if keep(x)]
    return best(order(xs), key=lambda x: count(x, xs)) if xs else None

def _run(answers): # the longest run of equal neighbours
    best, most, n = None, 0, 0
    for k, x in enumerate(answers):
        n = n + 1 if k and answers[k - 1] == x else 1
        if n > most and x is not None: best, most = x, n
    return best

def _reached(answers): # the first with the most votes, as they come in
    seen, best = Counter(), None
    for x in answers:
        if x is None: continue
        seen[x] += 1
        if best is None or seen[x] > seen[best]: best = x
    return best

majority_vote = Exercise(
    reference=_vote,
    cases={"by hand": (["132", None, "122", "132"],), "equals": (["5", "7", "7", "5"],), "most hold none": ([None, None, None, "4", "5", "5"],),
           "none at all": ([None, None],), "no sample": ([],), "one": (["9"],), "no majority, only the most": (["1", "2", "3", "3", "4", "5"],),
           "numbers": ([3, 11, 11, 2],), "an answer of 0": ([0, None, 4, 0],), "equals, the first one larger": (["7", "5", None, "5", "7"],), "equals, the later one larger": (["2", "9", "2", "9", "4"],),
           "equals, the later one longer": (["2", "13", "2", "13"],), "the most, but never side by side": (["4", "4", "5", "7", "5", "8", "5"],),
           "two equals, later ones nearer": (["1", "2", "2", "1", "3"],), "one among none": ([None, "6", None],), "all other answers": (["8", "3", "5"],),
           "text and not a number": (["a", "b", "b"],), "of three digits and of one": (["9", "100", "100"],), "empty text": (["", "", "3"],)},
    mistakes={
        "None is no vote": lambda a: _vote(a, keep=lambda x: True),
        "None is no vote: leave it out before you count; and of no sample at all nothing comes first, [0] stops": lambda a: Counter(a).most_common(1)[0][0],
        "of equals the one that came first": lambda a: _vote(a, order=lambda xs: xs[::-1]),
        "of equals the one that came first, not the smallest": lambda a: _vote(a, order=sorted),
        "of equals the one that came first, not the largest": lambda a: _vote(a, order=lambda xs: sorted(xs, reverse=True)),
        "the most frequent, not the rarest": lambda a: _vote(a, best=min),
        "the answer, not how often it came": lambda a: max((a.count(x) for x in a if x is not None), default=None),
        "the most frequent need not be more than half": lambda a: (lambda x: x if a.count(x) > len(a) / 2 else None)(_vote(a)),
        "the answer alone, not a pair with how often it came, its count": lambda a: (lambda x: x if x is None else (x, a.count(x)))(_vote(a)),
        "None where no sample holds an answer, not 0": lambda a: (lambda x: 0 if x is None else x)(_vote(a)),
        "None where no sample holds an answer, not empty text": lambda a: (lambda x: "" if x is None else x)(_vote(a)),
        "one vote is enough, a single sample: it need not come twice": lambda a: (lambda x: x if a.count(x) > 1 else None)(_vote(a)),
        "the most frequent, not the median, the middle one of the sorted": lambda a: (lambda xs: xs[len(xs) // 2] if xs else None)(sorted(x for x in a if x is not None)),
        "the most frequent, not the lower median, the middle one of the sorted": lambda a: (lambda xs: xs[(len(xs) - 1) // 2] if xs else None)(sorted(x for x in a if x is not None)),
        "the most frequent, not the middle one": lambda a: (lambda xs: xs[len(xs) // 2] if xs else None)([x for x in a if x is not None]),
        "the most frequent comes first in most_common: its last is the rarest, the least frequent": lambda a: (lambda xs: Counter(xs).most_common()[-1][0] if xs else None)(
            [x for x in a if x is not None]),
        "equal answers count wherever they stand, also apart: that is the longest run of neighbours in a row, consecutive ones": lambda a: _run(a),
        "equal answers count wherever they stand, also apart: that is the longest run of neighbours in a row, None left out": lambda a: _run([x for x in a if x is not None]),
        "of equals the one that came first, not the one that reached its number of votes first": lambda a: _reached(a),
        "of equals the one that came first: a draw, a tie, is no reason for None": lambda a: (lambda xs: (lambda m: m[0] if len(m) == 1 else None)(
            [x for x in dict.fromkeys(xs) if xs.count(x) == max(map(xs.count, xs))]))([x for x in a if x is not None]),
        "the answer as it came, a number as a number: not turned into text": lambda a: (lambda x: x if x is None else str(x))(_vote(a)),
        "the answer as it came: text is not turned into a number": lambda a: (lambda x: int(x) if isinstance(x, str) and x.isdigit() else x)(_vote(a)),
        "an answer, not their mean": lambda a: (lambda xs: sum(map(float, xs)) / len(xs) if xs else None)([x for x in a if x is not None]),
        "one answer, not a list of all that came most often": lambda a: (lambda xs: [x for x in dict.fromkeys(xs) if xs.count(x) == max(map(xs.count, xs))])(
            [x for x in a if x is not None]),
        "None is no vote and does not count against a majority: the most frequent need not have half of all samples": lambda a: (
            lambda x: x if 2 * a.count(x) >= len(a) and a else None)(_vote(a)),
        "more than half of the votes are not needed, of those that hold an answer": lambda a: (lambda xs, x: x if 2 * xs.count(x) > len(xs) else None)(
            [x for x in a if x is not None], _vote(a)),
        "the smallest answer is no vote": lambda a: min((x for x in a if x is not None), default=None),
        "the first answer is no vote": lambda a: next((x for x in a if x is not None), None),
        "the last answer is no vote": lambda a: next((x for x in reversed(a) if x is not None), None),
        "0 is an answer, and so a vote: only None is none": lambda a: _vote(a, keep=bool),
        "the largest answer is no vote": lambda a: max((x for x in a if x is not None), default=None)})

ASKED = {
    "turn_numbers": {
        "a row may be without a turn: all of it is -1": "nobody wrote | a row without any | one column",
        "a row may begin with a turn: the token before its first counts as False, and that turn is number 0": "a turn at the first token | one turn alone | one column | a gap of two tokens | gaps of one token",
        "a gap of one single token ends a turn, as a longer one does": "gaps of one token | four turns | a turn up to the last token | a turn at the first token | rows of one, two and three turns",
        "a gap of several tokens ends a turn once: its tokens do not count": "by hand | gaps of several tokens | a gap of two tokens",
        "a row may have more than two turns: 0, 1, 2, 3, ...": "rows of one, two and three turns | four turns | gaps of several tokens | gaps of one token"},
    "turn_advantages": {
        "a response alone in its group has its own mean: its advantage is 0": "alone in its group | one turn",
        "a row may have written nothing: all of its turns are nan, it is in no mean and has 0 everywhere": "a row that wrote nothing",
        "rows of a group need not stand together: a group is whoever has the same number": "groups that do not stand together",
        "each group has its own mean": "two groups | groups that do not stand together | alone in its group | one turn",
        "a turn that a row lacks, nan, adds nothing to the turns before it and is not in the mean of that turn": "by hand | two groups | three turns | a row that wrote nothing"},
    "fixed_join": {
        "an empty part adds no token and still counts as a part: what follows keeps its kind, written or inserted": "an empty part | an empty part in between | the model wrote nothing yet",
        "its place says who wrote a part, not its value: equal parts, or the same id in two of them, may be written and inserted": "equal parts | equal ids",
        "there may be any number of parts, more than three too: written and inserted alternate on and on": "five parts | an empty part in between | equal parts",
        "there may be no part, or no prompt: then only the other is there": "no parts | no prompt"},
    "majority_vote": {
        "where no sample holds an answer, or there is none, None comes back": "none at all | no sample",
        "one vote is enough: a single sample, or answers that all differ, the first of them": "one | one among none | all other answers",
        "None is no vote, however often it stands there": "most hold none | one among none | by hand",
        "0 and empty text are answers: only None is none, so ask `is not None`": "an answer of 0 | empty text",
        "the most frequent need not have more than half": "no majority, only the most | the most, but never side by side | equals | all other answers",
        "of equals, a draw, the one that came first, not the last, the smallest, the largest or the one that reached its votes first":
            "equals | equals, the first one larger | equals, the later one larger | equals, the later one longer | two equals, later ones nearer | all other answers",
        "the answer comes back as it came: a number as a number, text as text": "numbers | an answer of 0 | text and not a number"}}
