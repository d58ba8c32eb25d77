"Exercises of the chapter on pipelines."
from hashlib import md5, sha256
from rlhf_nb.checks import Exercise

# ------------------------------------------------------------------ fixed_stops_at
def _stops(scores, mode, patience, rule="best", tie=False, total=False):
    best, n_bad = scores[0] if scores else None, 0
    for i, x in enumerate(scores[1:], 1):
        against = scores[i - 1] if rule == "last" else scores[0] if rule == "first" else best
        new = x > against if mode == "max" else x < against
        if new or tie and x == against:
            best = x
            if not total: n_bad = 0
        else: n_bad += 1
        if n_bad >= patience: return i

def _flip(mode): return "min" if mode == "max" else "max"

def _by_pairs(scores, mode): # the first evaluation above the one before it, whatever is better
    return next((i for i in range(1, len(scores)) if scores[i] > scores[i - 1]), None)

def _from_zero(scores, mode, patience):
    i = _stops([0., *scores], mode, patience)
    return None if i is None else i - 1

def _first_missed(scores, mode, patience): # the first evaluation counts as one without a new best
    i = _stops([*scores[:1], *scores], mode, patience)
    return None if i is None else i - 1

fixed_stops_at = Exercise(
    reference=_stops,
    cases={"a rate that rises, then falls": ([.5, .6, .7, .65, .6, .55, .5], "max", 2),
           "a loss that falls, then rises": ([3., 2., 1.5, 1.6, 1.7, 1.8, 1.9], "min", 3),
           "one bad evaluation between good ones": ([.1, .3, .2, .4, .35, .5, .6], "max", 2),
           "up again, but not to the best": ([1., 3., 2., 2.5, 2.8, 2.9, 1., 1.], "max", 3),
           "falls, rises, falls": ([2., 1., 1.5, .9, 1.2, .8, .9, 1., 1.1], "min", 3),
           "the same again and again": ([.4, .4, .4, .4, .4], "max", 3),
           "never without a new best": ([4., 3., 2., 1.], "min", 1),
           "patience 1": ([1., 2., 1.5, 3.], "max", 1),
           "one evaluation": ([.5], "max", 2), "no evaluations": ([], "min", 1)},
    mistakes={
        "it still stops at the first evaluation that is higher, whatever is better":
            lambda s, b, n: _by_pairs(s, b),
        "patience is not asked: it stops at the first evaluation without a new best":
            lambda s, b, n: _stops(s, b, 1),
        "higher and lower have changed places": lambda s, b, n: _stops(s, _flip(b), n),
        "lower is taken for better, always": lambda s, b, n: _stops(s, "min", n),
        "higher is taken for better, always": lambda s, b, n: _stops(s, "max", n),
        "compare with the best so far, not with the evaluation before":
            lambda s, b, n: _stops(s, b, n, rule="last"),
        "compare with the best so far, not with the first evaluation":
            lambda s, b, n: _stops(s, b, n, rule="first"),
        "an evaluation as good as the best is no new best": lambda s, b, n: _stops(s, b, n, tie=True),
        "in a row: a new best lets the count begin again":
            lambda s, b, n: _stops(s, b, n, total=True),
        "one evaluation too late: it stops at evaluation number `patience` without a new best":
            lambda s, b, n: _stops(s, b, n + 1),
        "one evaluation too early": lambda s, b, n: _stops(s, b, n - 1),
        "that is the best evaluation: at which one does the run stop?":
            lambda s, b, n: None if (i := _stops(s, b, n)) is None else i - n,
        "evaluations are counted from 0": lambda s, b, n: None if (i := _stops(s, b, n)) is None else i + 1,
        "the best begins as the first score, not as 0": _from_zero,
        "the first evaluation is the first best: it has missed nothing": _first_missed})

# ------------------------------------------------------------------ next_stage
def _first(has, wanted=False): return next((i for i, x in enumerate(has) if x == wanted), None)

def _plus(i, n): return None if i is None else i + n

next_stage = Exercise(
    reference=lambda folder, done: _first(done),
    cases={"killed in the second stage": ([True, True, False], [True, False, False]),
           "killed between two stages": ([True, True, False, False], [True, True, False, False]),
           "nothing is there": ([False, False], [False, False]),
           "all is done": ([True, True, True], [True, True, True]),
           "an early stage was taken away": ([True, False, True, True], [True, False, True, False]),
           "two folders without stage.json": ([True, True, True, False], [True, False, False, False])},
    mistakes={
        "a folder alone does not say that the stage is finished": lambda f, d: _first(f),
        "that is the last finished stage": lambda f, d: max([-1] + [i for i, x in enumerate(d) if x]),
        "behind a gap there may be finished stages: look for the first that is not":
            lambda f, d: _plus(max([-1] + [i for i, x in enumerate(d) if x]), 1)
            if not all(d) else None,
        "that is how many are finished; the first that is not may stand before them":
            lambda f, d: sum(d) if not all(d) else None,
        "when all is done, the answer is None": lambda f, d: len(d) if all(d) else _first(d),
        "stages are counted from 0": lambda f, d: _plus(_first(d), 1),
        "that is the last unfinished stage: the first runs next":
            lambda f, d: max([i for i, x in enumerate(d) if not x], default=None),
        "the first finished stage need not run again": lambda f, d: _first(d, True),
        "a stage needs no folder to run next: it may never have begun":
            lambda f, d: _first([not (a and not b) for a, b in zip(f, d)]),
        "there may be no such stage, and then `index` stops with an error":
            lambda f, d: d.index(False),
        "stage 0 is a stage, though `if 0` says no": lambda f, d: _first(d) or None})

# ------------------------------------------------------------------ chunk_seeds
def _seed(text, digits=slice(15)): return int(sha256(text.encode()).hexdigest()[digits], 16)

def _seeds(text, digits=slice(15), begin=0):
    return lambda seed, n: [_seed(text(seed, c), digits) for c in range(begin, n + begin)]

chunk_seeds = Exercise(
    reference=_seeds("{}/{}".format),
    cases={"four chunks": (3, 4), "another run": (4, 4), "a long run": (1, 12), "no chunks": (7, 0),
           "run 0": (0, 3)},
    mistakes={
        "chunk 1 of run 3 and chunk 0 of run 4 would deal the same cards":
            lambda seed, n: [seed + c for c in range(n)],
        "a large factor only puts the collision farther away: hash the text":
            lambda seed, n: [seed * 1000 + c for c in range(n)],
        "chunk 11 of run 1 and chunk 1 of run 11 would deal the same cards: mind the /":
            _seeds("{}{}".format),
        "first the run, then the chunk": _seeds(lambda seed, c: f"{c}/{seed}"),
        "all chunks of a run would deal the same cards": _seeds(lambda seed, c: f"{seed}"),
        "all runs would deal the same cards": _seeds(lambda seed, c: f"{c}"),
        "chunks are counted from 0": _seeds("{}/{}".format, begin=1),
        "the first 15 hex digits, not all: a generator wants less than 64 bits":
            _seeds("{}/{}".format, slice(None)),
        "the first 15 hex digits, not the last": _seeds("{}/{}".format, slice(-15, None)),
        "that is another hash: sha256 is asked for": lambda seed, n: [
            int(md5(f"{seed}/{c}".encode()).hexdigest()[:15], 16) for c in range(n)],
        "15 digits, not 16": _seeds("{}/{}".format, slice(16)),
        "whole numbers, not text": lambda seed, n: [
            sha256(f"{seed}/{c}".encode()).hexdigest()[:15] for c in range(n)]})
