"Exercises of the chapter on pairs in files."
import torch
from torch import nan, tensor
from rlhf_nb.checks import Exercise

# ------------------------------------------------------------------ fixed_best_and_worst
def _extremes(scores, on_tie="skip", low=-torch.inf, high=torch.inf, give_up=lambda x: False):
    kept = []
    for i, x in enumerate(scores):
        if give_up(x): continue
        best, worst = int(x.nan_to_num(nan=low).argmax()), int(x.nan_to_num(nan=high).argmin())
        if best == worst:
            if on_tie == "break": break
            if on_tie == "skip" or on_tie == "alone" and x.isfinite().sum() > 1: continue
        kept.append((i, best, worst))
    return kept

fixed_best_and_worst = Exercise(
    reference=_extremes,
    cases={"a tie in the middle": (tensor([[3., 1.], [2., 2.], [0., 4.]]),),
           "a tie first": (tensor([[5., 5., 5.], [1., 4., 2.], [0., 0., 3.], [2., 2., 2.]]),),
           "some could not be read": (tensor([[nan, 2., 3., 5.], [1., nan, nan, 4.],
                                              [nan, nan, 2., nan], [4., 1., nan, 0.]]),),
           "nobody could be read": (tensor([[nan, nan], [2., 1.]]),),
           "below 0": (tensor([[-3., nan, -1.5], [-2., -2., nan], [nan, -1., -.5]]),),
           "one prompt, five answers": (tensor([[2., 5., 0., 5., 1.]]),),
           "no pair at all": (tensor([[1., 1.], [nan, 3.]]),)},
    mistakes={
        "one tie still ends the whole batch: the prompts behind it were answered and judged, too":
            lambda x: _extremes(x, "break"),
        "a tie teaches nothing: leave that prompt out": lambda x: _extremes(x, "keep"),
        "one readable answer is no pair": lambda x: _extremes(x, "alone"),
        "best and worst have changed places": lambda x: [
            (i, worst, best) for i, best, worst in _extremes(x)],
        "nan is no score, yet it was chosen as the best": lambda x: _extremes(x, low=torch.inf),
        "nan is no score, yet it was rejected as the worst": lambda x: _extremes(x, high=-torch.inf),
        "nan is no score of 0": lambda x: _extremes(x, low=0., high=0.),
        "one unreadable answer (for min and max, nan is both) costs its prompt the other answers":
            lambda x: _extremes(x, give_up=lambda y: bool(y.isnan().any())),
        "prompts where any two scores are equal are lost: best and worst differ in some":
            lambda x: _extremes(x, give_up=lambda y: len(set(
                y[~y.isnan()].tolist())) < int((~y.isnan()).sum())),
        "the first number is the prompt's in the batch, not the pair's":
            lambda x: [(n, *pair[1:]) for n, pair in enumerate(_extremes(x))],
        "prompts are counted from 0": lambda x: [(i + 1, *two) for i, *two in _extremes(x)],
        "a pair is a tuple (prompt, best, worst)": lambda x: [list(p) for p in _extremes(x)]})

# ------------------------------------------------------------------ whole_rows
def _ends(sizes): return sizes.sum(1).cumsum(0)
def _whole(sizes, n): return int((_ends(sizes) <= n).sum())

_three = tensor([[2, 2, 1], [1, 1, 3], [4, 0, 2]])
whole_rows = Exercise(
    reference=_whole,
    cases={"cut between rows": (_three, 10), "cut inside a row": (_three, 12),
           "nothing was cut": (_three, 16), "all is gone": (_three, 0),
           "a long row first": (tensor([[9, 9, 9], [1, 1, 1], [1, 0, 2], [3, 2, 1]]), 29),
           "cut at a prompt's end": (tensor([[1, 2, 2], [3, 1, 1], [2, 2, 2], [1, 1, 1]]), 13),
           "long prompts": (tensor([[5, 1, 1], [6, 1, 0], [1, 9, 9]]), 12),
           "short rows": (tensor([[1, 1, 1], [1, 2, 1], [2, 1, 1]]), 12),
           "one row": (tensor([[1, 2, 3]]), 6), "no rows": (torch.zeros(0, 3, dtype=torch.long), 7)},
    mistakes={
        "a row that ends with the last token is whole, too":
            lambda s, n: int((_ends(s) < n).sum()),
        "rows follow each other: add the lengths of those before":
            lambda s, n: int((s.sum(1) <= n).sum()),
        "that is the number of the last whole row: how many are there?":
            lambda s, n: _whole(s, n) - 1,
        "a row that only begins before the cut is not whole":
            lambda s, n: int((_ends(s) - s.sum(1) < n).sum()),
        "only the prompts are counted: a row has three parts":
            lambda s, n: int((s[:, 0].cumsum(0) <= n).sum()),
        "those are the rows that are lost": lambda s, n: len(s) - _whole(s, n),
        "n_tokens counts tokens, not bytes": lambda s, n: int((4 * _ends(s) <= n).sum()),
        "a bool for each row: count them": lambda s, n: _ends(s) <= n,
        "the rejected answer belongs to the row, too":
            lambda s, n: int((_ends(s) - s[:, 2] <= n).sum())})

# ------------------------------------------------------------------ still_owed
def _owed(n_rows, n_wanted, size): return [
    (i, min(i + size, n_wanted)) for i in range(n_rows, n_wanted, size)]

still_owed = Exercise(
    reference=_owed,
    cases={"four appends and a rest": (128, 400, 64), "a fresh store": (0, 10, 4),
           "died in an odd place": (7, 20, 5), "all is there": (64, 64, 16),
           "one row": (9, 10, 8), "no rest": (20, 60, 20)},
    mistakes={
        "the last append would write more than is wanted":
            lambda n, m, k: [(i, i + k) for i in range(n, m, k)],
        "what is there would be written twice": lambda n, m, k: _owed(0, m, k),
        "the rest, less than a whole append, is forgotten":
            lambda n, m, k: [(a, b) for a, b in _owed(n, m, k) if b - a == k],
        "a slice is start and end, not start and length":
            lambda n, m, k: [(a, b - a) for a, b in _owed(n, m, k)],
        "a slice ends before its second number, so that is one row short each time":
            lambda n, m, k: [(a, b - 1) for a, b in _owed(n, m, k)],
        "row n_rows is the first that is missing": lambda n, m, k: _owed(n + 1, m, k),
        "go on where the store ends, not at a multiple of size: rows would be twice there":
            lambda n, m, k: _owed(n // k * k, m, k),
        "n_wanted is how many there should be in the end, not how many more":
            lambda n, m, k: _owed(n, n + m, k),
        "that is all in one append: at most size rows each":
            lambda n, m, k: [(n, m)] if n < m else []})
