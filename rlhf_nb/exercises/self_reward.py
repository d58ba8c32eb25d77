"Exercises of the chapter on self-rewarding."
from math import isnan
import torch
from torch import tensor
from rlhf_nb.base.candidates import best_second
from rlhf_nb.book.checks import Exercise
from rlhf_nb.self_reward import choose_pairs as _choose_pairs, replay_loss as _replay_loss

# ----------------------------------------------------------------- choose_pairs
nan = float("nan") # not math.nan: `s is math.nan` would find that one, and no other

def _pairs(scores, stop=False, ties=False, rank=-1, first=True):
    pairs = []
    for prompt, row in enumerate(scores):
        order = sorted((i for i, s in enumerate(row) if not isnan(s)),
                       key=lambda i: (-row[i], i if first else -i))
        if len(order) < 2 or row[order[0]] == row[order[rank]] and not ties:
            if stop: break
            continue
        pairs.append((prompt, order[0], row.index(row[order[rank]])))
    return pairs

def _among_the_parsed(row, i): return sum(not isnan(s) for s in row[:i])

def _nan_by_comparison(scores): # `s != nan` is true of every number, nan too
    pairs = []
    for prompt, row in enumerate(scores):
        a, b = [best(range(len(row)), key=lambda i: row[i]) for best in (max, min)]
        if row[a] > row[b]: pairs.append((prompt, a, b))
    return pairs

def _any_rule(mistake): return lambda scores, select=None: mistake(scores) # best and worst, whatever is asked
def _short_list(scores, select): # `select` is given the scores, its places are not turned back
    rows = [[s for s in row if not isnan(s)] for row in scores]
    return [(p, *select(row)) for p, row in enumerate(rows) if len(row) > 1 and row[select(row)[0]] != row[select(row)[1]]]

choose_pairs = Exercise(
    reference=_choose_pairs,
    cases={"nothing to drop": ([[1., 3.], [4., 2., 5.], [0., 1.]],),
           "a tie in between": ([[1., 2.], [3., 3.], [5., 4.]],),
           "a tie first": ([[2., 2.], [1., 4.]],),
           "a candidate that was not parsed": ([[nan, 2., 4.], [3., nan, 1.]],),
           "a prompt that was not parsed in between": ([[3., 2.], [nan, nan], [nan, 1.], [2., 5.]],),
           "several best, several worst": ([[1., 4., 4., 1.], [0., 0., 2.]],),
           "scores close together": ([[3., 3.25], [1., 1.001]],),
           "only ties": ([[3., 3.], [1., 1., 1.]],), "no prompts": ([],),
           "four candidates": ([[3., 1., 4.5, 2.]],),
           "another rule: the second best": ([[3., 1., 4.5, 2.], [nan, 5., 2., 4.]], best_second),
           "another rule, and its tie": ([[4., 4., 1.], [2., 3., 1.]], best_second)},
    mistakes={name: _any_rule(mistake) for name, mistake in {
        "the rule `select` is not asked": _pairs,
        "`break` ends all prompts at the first one without a pair: `continue`":
            lambda scores: _pairs(scores, stop=True),
        "a tie is no pair: nothing is better than anything": lambda scores: _pairs(scores, ties=True),
        "a candidate that was not parsed has no score: not 0 either": lambda scores: _pairs(
            [[0. if isnan(s) else s for s in row] for row in scores]),
        "one candidate that was not parsed costs the whole prompt: leave out just that one":
            lambda scores: _pairs([[] if any(map(isnan, row)) else row for row in scores]),
        "however close two scores are, the better one is chosen": lambda scores: [
            (p, a, b) for p, a, b in _pairs(scores) if scores[p][a] - scores[p][b] > .5],
        "turned round: the best is chosen, the worst rejected": lambda scores: [
            (p, worst, best) for p, best, worst in _pairs(scores)],
        "places are counted among all candidates of a prompt, parsed or not":
            lambda scores: [(p, *[_among_the_parsed(scores[p], i) for i in two]) for p, *two in _pairs(scores)],
        "that is the second best: reject the worst": lambda scores: _pairs(scores, rank=1),
        "of several best ones take the first": lambda scores: _pairs(scores, first=False),
        "prompts are counted whether they give a pair or not": lambda scores: [
            (n, *pair[1:]) for n, pair in enumerate(_pairs(scores))],
        "the prompt is missing: three numbers per pair":
            lambda scores: [pair[1:] for pair in _pairs(scores)],
        "nan equals nothing, not even itself: neither == nor != finds it": _nan_by_comparison,
        "those are scores: the places of both are wanted":
            lambda scores: [(p, scores[p][a], scores[p][b]) for p, a, b in _pairs(scores)]}.items()})

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
