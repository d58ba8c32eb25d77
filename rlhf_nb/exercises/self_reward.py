"Exercises of the chapter on self-rewarding."
from math import isnan
import torch
from torch import tensor
from rlhf_nb.base.candidates import best_second, max_min
from rlhf_nb.book.checks import Exercise
from rlhf_nb.self_reward import choose_pairs as _choose_pairs, replay_loss as _replay_loss

# ----------------------------------------------------------------- choose_pairs
nan = float("nan") # not math.nan: `s is math.nan` would find that one, and no other

def _parsed(row): return [i for i, s in enumerate(row) if not isnan(s)]
def _pairs(scores, select=max_min, stop=False, ties=False, known=_parsed, least=2, place=lambda known, i: known[i]):
    pairs = []
    for prompt, row in enumerate(scores):
        there = known(row)
        a, b = select([row[i] for i in there]) if len(there) >= least else (0, 0)
        if len(there) < least or row[there[a]] == row[there[b]] and not ties:
            if stop and (stop != "tie" or len(there) >= least) and (stop != "few" or len(there) < least): break
            continue
        pairs.append((prompt, place(there, a), place(there, b)))
    return pairs

def _told(change): return lambda scores, select=max_min: change(scores, _pairs(scores, select))
def _with(**changes): return lambda scores, select=max_min: _pairs(scores, select, **changes)
def _filled(value, to=0.): # every score that is `value`
    return lambda scores, select=max_min: _pairs([[to if s == value or value != value and isnan(s) else s for s in row] for row in scores], select)
def _rule(other): # another rule where the best and the worst are asked for
    return lambda scores, select=max_min: _pairs(scores, other if select is max_min else select)
def _last_best(score): return max(range(len(score)), key=lambda i: (score[i], i)), score.index(min(score))
def _two_places(scores, select=max_min):
    return [x for x in _pairs(scores, select, ties=True) if x[1] != x[2]] + [
        (p, there[0], there[-1]) for p, row in enumerate(scores) if len(there := _parsed(row)) > 1 and len({*select([row[i] for i in there])}) == 1]

choose_pairs = Exercise(
    reference=_choose_pairs,
    cases={"nothing to drop": ([[1., 3.], [4., 2., 5.], [0., 1.]],),
           "a tie in between": ([[1., 2.], [3., 3.], [5., 4.]],),
           "a tie first": ([[2., 2.], [1., 4.]],),
           "a candidate that was not parsed": ([[nan, 2., 4.], [3., nan, 1.]],),
           "a tie, then a prompt that was not parsed": ([[2., 2.], [1., 4.], [nan, nan], [3., 1.]],),
           "a prompt that was not parsed in between": ([[3., 2.], [nan, nan], [nan, 1.], [2., 5.]],),
           "not parsed, and scores below 0": ([[nan, -2., -4.], [-3., nan, -1.]],),
           "several best, several worst": ([[1., 4., 4., 1.], [0., 0., 2.]],),
           "scores close together": ([[3., 3.25], [1., 1.001]],),
           "only ties": ([[3., 3.], [1., 1., 1.]],), "no prompts": ([],),
           "four candidates": ([[3., 1., 4.5, 2.]],),
           "a prompt with one candidate": ([[3.], [2., 4.]],), "a prompt without a candidate": ([[], [2., 4.]],),
           "scores below 0": ([[-3., -1.], [-2., -1., -5.]],), "0 among them": ([[0., 2.], [3., 0., 1.], [0., -2.]],),
           "another rule, the first and the last": ([[3., 1., 4.5, 2.], [nan, 5., 2., 4.]], lambda score: (0, len(score) - 1)),
           "another rule, the second best": ([[3., 1., 4.5, 2.], [nan, 5., 2., 4.]], best_second),
           "another rule, and its tie": ([[4., 4., 1.], [2., 3., 1.]], best_second)},
    mistakes={
        "the rule `select` is not asked": lambda scores, select=None: _pairs(scores),
        "`break` ends all prompts at the first one without a pair: `continue`": _with(stop=True),
        "`break` ends all prompts at the first tie: `continue`": _with(stop="tie"),
        "`break` ends all prompts at the first one with fewer than two scores: `continue`": _with(stop="few"),
        "a tie is no pair: nothing is better than anything": _with(ties=True),
        "a tie is no pair: equal scores stand at two places, but are equal": lambda *a: sorted(_two_places(*a)),
        "a candidate that was not parsed has no score: not 0 either": _filled(nan),
        "one candidate that was not parsed costs the whole prompt: leave out just that one":
            _with(known=lambda row: [] if any(map(isnan, row)) else [*range(len(row))]),
        "however close two scores are, the better one is chosen": _told(lambda scores, pairs: [
            (p, a, b) for p, a, b in pairs if scores[p][a] - scores[p][b] > .5]),
        "turned round: the best is chosen, the worst rejected": _told(lambda _, pairs: [(p, b, a) for p, a, b in pairs]),
        "places are counted among all candidates of a prompt, parsed or not": _with(place=lambda known, i: i),
        "that is the second best: reject the worst": _rule(best_second),
        "of several best ones take the first": _rule(_last_best),
        "prompts are counted whether they give a pair or not": _told(lambda _, pairs: [(n, *x[1:]) for n, x in enumerate(pairs)]),
        "a prompt without a pair is left out, it is no None": _told(lambda scores, pairs: [
            {x[0]: x for x in pairs}.get(p) for p in range(len(scores))]),
        "two candidates are enough for a pair": _with(least=3),
        "0 is a score: it is false to `if`, but it was parsed": _filled(0., nan),
        "the prompt is missing: three numbers per pair": _told(lambda _, pairs: [x[1:] for x in pairs]),
        "nan equals nothing, not even itself: neither == nor != finds it": _with(known=lambda row: [*range(len(row))]),
        "the best and the worst must differ: other equal scores of a prompt are no reason to drop it": _told(lambda scores, pairs: [
            x for x in pairs if len({*(row := [s for s in scores[x[0]] if s == s])}) == len(row)]),
        "places are counted among the candidates of a prompt, not of all prompts": _told(lambda scores, pairs: [
            (p, *[sum(map(len, scores[:p])) + i for i in x]) for p, *x in pairs]),
        "at most one pair for a prompt: not every better one against every worse one": lambda scores, select=max_min: [
            (p, a, b) for p, row in enumerate(scores) for a in range(len(row)) for b in range(len(row)) if row[a] > row[b]],
        "at most one pair for a prompt: not the best one against every other": _told(lambda scores, pairs: [
            (p, a, j) for p, a, _ in pairs for j, s in enumerate(scores[p]) if s < scores[p][a]]),
        "the best against the worst, not the first candidate against the last": _rule(lambda score: (0, len(score) - 1)),
        "the best against the worst, not the first against the second candidate": lambda scores, select=max_min: [
            (p, *((a, b) if scores[p][a] > scores[p][b] else (b, a))) for p, row in enumerate(scores)
            for a, b in [_parsed(row)[:2] if len(_parsed(row)) > 1 else (0, 0)] if a != b and scores[p][a] != scores[p][b]],
        "of several worst ones take the first": _rule(lambda score: (score.index(max(score)), len(score) - 1 - score[::-1].index(min(score)))),
        "of several best and worst ones take the first": _rule(lambda score: (
            len(score) - 1 - score[::-1].index(max(score)), len(score) - 1 - score[::-1].index(min(score)))),
        "a candidate that was not parsed has no score: it is not the worst": _filled(nan, -float("inf")),
        "a candidate that was not parsed has no score: it is not the best": _filled(nan, float("inf")),
        "a prompt with fewer than two scores gives no pair, not one of a candidate with itself": _with(least=1, ties=True),
        "prompts are numbered from 0": _told(lambda scores, pairs: [(p + 1, a, b) for p, a, b in pairs]),
        "candidates are numbered from 0": _told(lambda scores, pairs: [(p, a + 1, b + 1) for p, a, b in pairs]),
        "a pair is three numbers in one tuple: prompt, chosen, rejected, not the prompt beside a pair": _told(
            lambda scores, pairs: [(p, (a, b)) for p, a, b in pairs]),
        "a list of tuples is asked for, not of lists": _told(lambda scores, pairs: [[*x] for x in pairs]),
        "a list of pairs is asked for, not a dict by prompt": _told(lambda scores, pairs: {p: (a, b) for p, a, b in pairs}),
        "the order is that of the prompts, not of the gaps": _told(lambda scores, pairs: sorted(
            pairs, key=lambda x: scores[x[0]][x[2]] - scores[x[0]][x[1]])),
        "the order of a pair is prompt, chosen, rejected": _told(lambda scores, pairs: [(a, b, p) for p, a, b in pairs]),
        "only the first pair comes back: `return` stands in the loop": _told(lambda scores, pairs: pairs[:1]),
        "a score below 0 is one, too": _told(lambda scores, pairs: [x for x in pairs if scores[x[0]][x[1]] > 0 and scores[x[0]][x[2]] >= 0]),
        "those are scores: the places of both are wanted": _told(lambda scores, pairs: [
            (p, scores[p][a], scores[p][b]) for p, a, b in pairs])})

# ------------------------------------------------------------------ replay_loss
def _replay(loss, old, weight, length, over=lambda x: x.sum(), sign=-1): return loss + sign * weight / length * over(old)

def _old(*lengths): # log-probs of rows of these lengths, 0 after their end
    x = -torch.rand(len(lengths), max(lengths), generator=torch.Generator().manual_seed(sum(lengths))) * 3 - .1
    return (x * (torch.arange(max(lengths)) < tensor(lengths)[:, None])).requires_grad_()

def _own_length(old): return (old.sum(1) / (old != 0).sum(1).clamp(min=1)).sum()

replay_loss = Exercise(
    reference=_replay_loss,
    cases={"the worked example": (tensor(1.4), tensor([[-1., -2.], [-3., 0.]]), 2., 4.),
           "three rows": (tensor(2.), _old(5, 2, 9), .5, 6.), "one row": (tensor(.7), _old(4), 1., 3.),
           "weight 0": (tensor(.9), _old(3, 3), 0., 5.), "long": (tensor(0.), _old(20, 1), 3., 12.),
           "the pairs' loss has a gradient": (tensor(2.5).requires_grad_(), _old(3, 6).detach(), .5, 4.),
           "one token": (tensor(1.), _old(1), 2., 2.5)},
    mistakes={
        "the sign: old tokens must become *more* probable": lambda *x: _replay(*x, sign=1),
        "the weight is missing": lambda loss, old, w, n: _replay(loss, old, 1., n),
        "the mean length is missing": lambda loss, old, w, n: _replay(loss, old, w, 1.),
        "that is the mean over old examples: the pairs' loss is a sum": lambda *x: _replay(*x, over=lambda y: y.sum(1).mean()),
        "that is the mean over old tokens: the mean length divides": lambda *x: _replay(*x, over=torch.mean),
        "each row is divided by its own length: one mean length for all": lambda loss, old, w, n: loss - w * _own_length(old),
        "the pairs' loss is missing": lambda loss, *x: _replay(0 * loss, *x),
        "the weight is of the old examples alone": lambda loss, old, w, n: w * _replay(loss, old, 1., n),
        "no gradient reaches the old examples' log-probs": lambda loss, old, *x: _replay(loss, old.detach(), *x),
        "no gradient reaches the pairs' loss: it is learned from, too, so it is not detached": lambda loss, *x: _replay(loss.detach(), *x),
        "no gradient reaches anything: .item() and detach() lose it": lambda loss, old, *x: _replay(loss.detach(), old.detach(), *x),
        "that is the last token of each row: all response tokens are summed": lambda loss, old, w, n: _replay(loss, old[:, -1], w, n),
        "that is the last response token of each row: all of them are summed": lambda loss, old, w, n: _replay(
            loss, torch.stack([x[x != 0][-1] for x in old]), w, n),
        "that is the first token of each row: all response tokens are summed": lambda loss, old, w, n: _replay(loss, old[:, 0], w, n),
        "one number for all: the rows are summed, too": lambda *x: _replay(*x, over=lambda y: y.sum(1)),
        "one number for all: tokens and rows are summed": lambda *x: _replay(*x, over=lambda y: y),
        "log-probs are summed, not probabilities": lambda *x: _replay(*x, over=lambda y: y.exp().sum()),
        "log-probs are summed, not the probabilities of the response tokens": lambda *x: _replay(*x, over=lambda y: y.exp().where(y != 0, 0.).sum()),
        "that is the mean over rows, of everything: both losses are sums": lambda loss, old, w, n: _replay(loss, old, w, n) / len(old),
        "the weight is shared, as if 1 - w were the pairs' part: theirs is 1": lambda loss, old, w, n: (1 - w) * loss - w / n * old.sum(),
        "the two parts are added, not averaged": lambda loss, old, w, n: _replay(loss, old, w, n) / 2,
        "the weight multiplies the old examples, it does not divide": lambda loss, old, w, n: loss - old.sum() / max(w, 1e-9) / n,
        "the mean length divides, it does not multiply": lambda loss, old, w, n: loss - w * n * old.sum(),
        "the weight is no power and no root": lambda loss, old, w, n: loss - w**.5 / n * old.sum(),
        "the weight counts once": lambda loss, old, w, n: loss - w**2 / n * old.sum(),
        "the mean length that is given divides, not one counted from these rows": lambda loss, old, w, n: loss - w * old.sum() / (
            (old != 0).sum() / len(old)),
        "the mean length that is given divides, not the width of the table": lambda loss, old, w, n: loss - w * old.sum() / old.shape[1],
        "the mean length divides, not the number of old tokens": lambda loss, old, w, n: loss - w * old.sum() / (old != 0).sum(),
        "the pairs' loss is multiplied by nothing: it is a sum beside that of the old examples": lambda loss, old, w, n: loss * (-w / n * old.sum()),
        "what is old is learned from, not unlearned: no absolute value or square": lambda loss, old, w, n: loss + w / n * old.square().sum(),
        "the mean length divides both": lambda loss, old, w, n: (loss - w * old.sum()) / n,
        "turned round: divide by the mean length, multiply by the weight": lambda loss, old, w, n: _replay(loss, old, n, max(w, .1))})

ASKED = {
    "choose_pairs": {
        "a prompt with equal scores gives no pair, since nothing is better than anything, and the next prompts go on as usual":
            "a tie first | a tie in between | only ties | a tie, then a prompt that was not parsed | another rule, and its tie",
        "a candidate whose replies held no score is nan and is left out, while the others of its prompt stay": "a candidate that was not parsed | not parsed, and scores below 0",
        "a prompt with fewer than two scores gives no pair, and the next prompts go on":
            "a prompt that was not parsed in between | a prompt with one candidate | a prompt without a candidate",
        "`select` tells which of them are chosen and rejected: it is not always the best and the worst":
            "another rule, the second best | another rule, and its tie | another rule, the first and the last",
        "however close two scores are, the better one is chosen": "scores close together",
        "a score of 0 or below is a score: 0 is false to `if`": "scores below 0 | 0 among them",
        "of several best ones `select` takes the first, and the others are no reason to drop the prompt": "several best, several worst",
        "without prompts the list is empty": "no prompts"},
    "replay_loss": {
        "a gradient flows through the loss of the pairs, too: it is learned from": "the pairs' loss has a gradient",
        "the mean length may be a fraction, and one token is enough": "one token"}}
