"Exercises of the chapter on the workbook."
from rlhf_nb.checks import Exercise
from rlhf_nb.workbook import Outcome, decide

def _finer(ours, yours, copied):
    fate = decide(ours, yours, copied)
    return "yours" if fate == "kept" and copied == ours else fate

decide_finer = Exercise(
    reference=_finer,
    cases={"no file of yours": ("b", None, None), "it was deleted": ("b", None, "b"),
           "it was deleted, and we changed it": ("b", None, "a"),
           "nobody changed it": ("b", "b", "b"), "only we did": ("b", "a", "a"),
           "both did": ("b", "c", "a"), "only you did": ("b", "c", "b"),
           "nobody knows": ("b", "c", None), "both in the same way": ("b", "b", "a"),
           "the same, and nobody knows": ("b", "b", None)},
    mistakes={
        "where only the learner changed the file it is \"yours\"": decide,
        "where both changed it, it is \"kept\"": lambda o, y, c: (
            "yours" if decide(o, y, c) == "kept" and c is not None else decide(o, y, c)),
        "where nobody knows what was copied, it is \"kept\"": lambda o, y, c: (
            "yours" if decide(o, y, c) == "kept" and c in (o, None) else decide(o, y, c)),
        "a file that nobody touched gets the correction: \"updated\"": lambda o, y, c: (
            "yours" if decide(o, y, c) == "updated" else _finer(o, y, c)),
        "look first whether the two are the same": lambda o, y, c: (
            "yours" if c == o and y is not None else _finer(o, y, c)),
        "two equal files are the \"same\", even if nobody knows what was copied": lambda o, y, c: (
            "kept" if c is None and y is not None else _finer(o, y, c)),
        "a file that is not there is \"new\", whatever was copied": lambda o, y, c: (
            "yours" if y is None and c == o else _finer(o, y, c)),
        "\"yours\" and \"kept\" are swapped": lambda o, y, c: {
            "yours": "kept", "kept": "yours"}.get(_finer(o, y, c), _finer(o, y, c))})

def _done(outcomes): return [o for o in outcomes if not o.error]
def _seconds(outcomes): return sum(o.seconds for o in outcomes)

def _slowest(outcomes, n, of=_done, order=lambda o: -o.seconds,
             total=lambda outcomes, shown: _seconds(_done(outcomes))):
    shown = sorted(of(outcomes), key=order)[:n]
    return [(o.chapter, o.seconds / total(outcomes, shown)) for o in shown]

def _outcomes(**times): # a time below zero: it failed then
    return [Outcome(name, abs(t), "broke" if t < 0 else "", "", {}) for name, t in times.items()]

_week = _outcomes(tokens=6., world=3., oracle=-90., sft=11.)
slowest = Exercise(
    reference=_slowest,
    cases={"one of four failed": (_week, 2), "more asked than there are": (_week, 9),
           "one": (_outcomes(kl=2.), 1), "none asked": (_week, 0),
           "all failed": (_outcomes(kl=-2., spin=-1.), 2)},
    mistakes={
        "a failed chapter's time is no measure": lambda o, n: _slowest(
            o, n, of=list, total=lambda o, shown: _seconds(o)),
        "those are seconds: divide by the total": lambda o, n: _slowest(o, n, total=lambda o, shown: 1),
        "the share is of all chapters that ran, not of those shown":
            lambda o, n: _slowest(o, n, total=lambda o, shown: _seconds(shown)),
        "those are the shortest: turn the order": lambda o, n: _slowest(o, n, order=lambda o: o.seconds),
        "only the first n": lambda o, n: _slowest(o, 99),
        "the failed ones are left out of the list, but not of the total":
            lambda o, n: _slowest(o, n, total=lambda o, shown: _seconds(o)),
        "those are the first in the book: sort before you take n":
            lambda o, n: _slowest(o, n, order=lambda o: 0),
        "the right chapters in the wrong order: the longest comes first":
            lambda o, n: _slowest(o, n)[::-1],
        "the right chapters in the wrong order, and [-0:] is everything":
            lambda o, n: _slowest(o, 99)[::-1][-n:]})
