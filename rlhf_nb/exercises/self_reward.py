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
           "several best, several worst": ([[1., 4., 4., 1.], [0., 0., 2.]],),
           "scores close together": ([[3., 3.25], [1., 1.001]],),
           "only ties": ([[3., 3.], [1., 1., 1.]],), "no prompts": ([],),
           "four candidates": ([[3., 1., 4.5, 2.]],),
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
           "weight 0": (tensor(.9), _old(3, 3), 0., 5.), "long": (tensor(0.), _old(20, 1), 3., 12.)},
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
        "the mean length divides both": lambda loss, old, w, n: (loss - w * old.sum()) / n,
        "turned round: divide by the mean length, multiply by the weight": lambda loss, old, w, n: _replay(loss, old, n, max(w, .1))})
