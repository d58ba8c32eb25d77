"Exercises of the chapter on self-rewarding."
from math import isnan
from rlhf_nb.base.candidates import ScoredPair, best_second
from rlhf_nb.book.checks import Exercise
from rlhf_nb.self_reward import choose_pairs as _choose_pairs

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

# ------------------------------------------------------------------ best_middle
def _middle(scores): return (max(scores) + min(scores)) / 2

def _shift(pair): return pair[0], pair[1] - (pair[1] > pair[0])

def _best_middle(score, centre=_middle, skip=True, last=False, of=None):
    best = score.index(max(score))
    near = [(abs(s - centre(score if of is None else of(score, best))), -i if last else i)
            for i, s in enumerate(score) if i != best or not skip]
    return best, abs(min(near)[1])

def _others(score, best): return score[:best] + score[best + 1:]

best_middle = Exercise(
    reference=_best_middle,
    cases={"four": ([5., 4., 3.4, 0.],), "five": ([4., 5., 1.7, 4., 0.],),
           "two": ([1., 1.2],), "the best last": ([2., 0., 1.5, 9., 4.],),
           "equally near": ([4., 0., 3., 1.],), "two best ones": ([1., 5., 2., 5.],),
           "below zero": ([-1., -4., -2., -9.],), "six": ([.5, 4., 1., 1.5, 1., 3.],),
           "all equal": ([3., 3., 3.],)},
    mistakes={
        "that is the worst one": lambda s: (s.index(max(s)), s.index(min(s))),
        "that is near the mean: the middle is between the best and the worst":
            lambda s: _best_middle(s, lambda s: sum(s) / len(s)),
        "chosen and rejected must differ": lambda s: _best_middle(s, skip=False),
        "another place, not another score: where all are equal nobody is left":
            lambda s: _best_middle(s) if min(s) < max(s) else min([]),
        "that is the second best": lambda s: _best_middle(s, max),
        "turned round: chosen comes first": lambda s: _best_middle(s)[::-1],
        "that is the middle of the order: look at the scores": lambda s: (
            s.index(max(s)), sorted(range(len(s)), key=lambda i: -s[i])[len(s) // 2]),
        "of equally near ones the first": lambda s: _best_middle(s, last=True),
        "the middle is between all: the best counts": lambda s: _best_middle(s, of=_others),
        "those are scores: their places are wanted": lambda s: tuple(s[i] for i in _best_middle(s)),
        "that is a place among the others: count the best one, too": lambda s: _shift(_best_middle(s)),
        "half of both, not of the lowest alone": lambda s: _best_middle(s, lambda s: max(s) + min(s) / 2),
        "that is half the way from one to the other: where is the middle?":
            lambda s: _best_middle(s, lambda s: (max(s) - min(s)) / 2)})

# ------------------------------------------------------------------ not_by_length
def _keep(pair, most, size=lambda text: len(text.split()), gap=True, longer=int.__le__,
          enough=float.__ge__, way=lambda n: n, both=False):
    more = way(size(pair.chosen) - size(pair.rejected))
    fine, clear = longer(more, most), gap and enough(float(pair.chosen_score - pair.rejected_score), 2.)
    return bool(fine and clear if both else fine or clear)

def _scored(chosen, rejected, a, b): return ScoredPair("q", chosen, rejected, a, b)

_long, _short = "It is red and it lives here", "It is red"
not_by_length = Exercise(
    reference=_keep,
    cases={"longer, hardly better": (_scored(_long, _short, 4., 3.), 2),
           "longer, much better": (_scored(_long, _short, 4., 1.), 2),
           "longer, better by 2": (_scored(_long, _short, 4., 2.), 2),
           "shorter": (_scored(_short, _long, 4., 3.), 2),
           "just as many more as allowed": (_scored(_long, _short, 3.5, 3.), 4),
           "one more than allowed": (_scored(_long, _short, 3.5, 3.), 3),
           "few long words": (_scored("Hippopotamuses hibernate", "It is red", 4., 3.), 0),
           "two spaces": (_scored("It  is  red", "It is a", 4., 3.), 1),
           "much better and not longer": (_scored(_short, _short, 5., 0.), 0),
           "a short winner": (_scored("It is red", "It is", 4., 3.), 3),
           "an empty loser": (_scored("It is", "", 2., 1.), 1),
           "longer, twice the score": (_scored(_long, _short, 2., 1.), 2),
           "longer, both poor": (_scored(_long, _short, 1.5, 1.), 2),
           "the same words again": (_scored("It is red It is red", "It is red", 4., 3.), 2)},
    mistakes={
        "the gap in score is not looked at": lambda *x: _keep(*x, gap=False),
        "letters are counted, not words": lambda *x: _keep(*x, size=len),
        "exactly `most` words more are allowed": lambda *x: _keep(*x, longer=int.__lt__),
        "a gap of exactly 2 is enough": lambda *x: _keep(*x, enough=float.__gt__),
        "turned round: True keeps the pair": lambda *x: not _keep(*x),
        "a winner that is much shorter is welcome": lambda *x: _keep(*x, way=abs),
        "one of both is enough: not too long, or clearly better": lambda *x: _keep(*x, both=True),
        "what counts is how much longer it is than the rejected one":
            lambda p, most: _keep(ScoredPair(p.prompt, p.chosen, "", p.chosen_score, p.rejected_score), most),
        "that is the rejected one's lead: chosen minus rejected": lambda *x: _keep(*x, way=lambda n: -n),
        "two spaces make no word": lambda *x: _keep(*x, size=lambda text: len(text.split(" "))),
        "length is not looked at": lambda *x: _keep(*x, longer=lambda n, most: False),
        "2 higher, not twice as high": lambda p, most: (
            p.chosen_score >= 2 * p.rejected_score or _keep(p, most, gap=False)),
        "how good the chosen one is does not matter: how much better is it?":
            lambda p, most: p.chosen_score >= 2 or _keep(p, most, gap=False),
        "a word that comes twice counts twice": lambda *x: _keep(*x, size=lambda text: len(set(text.split())))})
