"Exercises of the chapter on the workbook."
from rlhf_nb.checks import Exercise
from rlhf_nb.workbook import Outcome, decide

def _finer(ours, yours, copied):
    fate = decide(ours, yours, copied)
    return "yours" if fate == "kept" and copied == ours else fate

decide_finer = Exercise(
    reference=_finer,
    cases={"no file of yours": ("b", None, None), "it was deleted": ("b", None, "b"),
           "nobody changed it": ("b", "b", "b"), "only we did": ("b", "a", "a"),
           "both did": ("b", "c", "a"), "only you did": ("b", "c", "b"),
           "nobody knows": ("b", "c", None), "both in the same way": ("b", "b", "a")},
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
        "a file that is not there is \"new\", whatever was copied": lambda o, y, c: (
            "yours" if y is None and c == o else _finer(o, y, c)),
        "\"yours\" and \"kept\" are swapped": lambda o, y, c: {
            "yours": "kept", "kept": "yours"}.get(_finer(o, y, c), _finer(o, y, c))})

def _slowest(outcomes, n, failed=False, share=True, over_all=True, longest=True, count=True):
    done = [o for o in outcomes if failed or not o.error]
    done.sort(key=lambda o: -o.seconds if longest else o.seconds)
    kept = done[:n] if count else done
    total = sum(o.seconds for o in (done if over_all else kept))
    return [(o.chapter, o.seconds / total if share else o.seconds) for o in kept]

def _outcomes(**times): # a time below zero: it failed then
    return [Outcome(name, abs(t), "broke" if t < 0 else "", "", {}) for name, t in times.items()]

_week = _outcomes(tokens=6., world=3., oracle=-90., sft=11.)
slowest = Exercise(
    reference=_slowest,
    cases={"one of four failed": (_week, 2), "more asked than there are": (_week, 9),
           "one": (_outcomes(kl=2.), 1), "none asked": (_week, 0)},
    mistakes={
        "a failed chapter's time is no measure": lambda o, n: _slowest(o, n, failed=True),
        "those are seconds: divide by the total": lambda o, n: _slowest(o, n, share=False),
        "the share is of all chapters that ran, not of those shown":
            lambda o, n: _slowest(o, n, over_all=False),
        "those are the shortest: turn the order": lambda o, n: _slowest(o, n, longest=False),
        "only the first n": lambda o, n: _slowest(o, n, count=False),
        "the failed ones are left out of the list, but not of the total": lambda o, n: [
            (c, s * 20 / 110 if len(o) > 1 else s) for c, s in _slowest(o, n)],
        "those are the first in the book: sort before you take n": lambda o, n: sorted(
            _slowest(o, 99), key=lambda x: [q.chapter for q in o].index(x[0]))[:n],
        "the right chapters in the wrong order: the longest comes first":
            lambda o, n: _slowest(o, n)[::-1],
        "the right chapters in the wrong order, and [-0:] is everything":
            lambda o, n: _slowest(o, 99)[::-1][-n:]})
