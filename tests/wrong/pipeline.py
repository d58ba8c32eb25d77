"Answers to the exercises on pipelines, each with one thing wrong."
from hashlib import md5, sha256

def _as_it_was(scores, mode, patience):
    for i in range(1, len(scores)):
        if scores[i] > scores[i - 1]: return i

def _first_miss(scores, mode, patience):
    if not scores: return None
    best = scores[0]
    for i in range(1, len(scores)):
        new = scores[i] > best if mode == "max" else scores[i] < best
        if not new: return i
        best = scores[i]

def _turned(scores, mode, patience):
    best, n_bad = None, 0
    for i, x in enumerate(scores):
        if best is None or (x < best if mode == "max" else x > best): best, n_bad = x, 0
        else: n_bad += 1
        if n_bad == patience: return i

def _only_loss(scores, mode, patience):
    best, n_bad = float("inf"), 0
    for i, x in enumerate(scores):
        if x < best: best, n_bad = x, 0
        else: n_bad += 1
        if n_bad == patience: return i

def _against_last(scores, mode, patience):
    n_bad = 0
    for i in range(1, len(scores)):
        up = scores[i] > scores[i - 1] if mode == "max" else scores[i] < scores[i - 1]
        n_bad = 0 if up else n_bad + 1
        if n_bad == patience: return i

def _ties(scores, mode, patience):
    sign = 1 if mode == "max" else -1
    best, n_bad = float("-inf"), 0
    for i, x in enumerate(scores):
        if sign * x >= best: best, n_bad = sign * x, 0
        else: n_bad += 1
        if n_bad == patience: return i

def _altogether(scores, mode, patience):
    sign = 1 if mode == "max" else -1
    best, n_bad = float("-inf"), 0
    for i, x in enumerate(scores):
        if sign * x > best: best = sign * x
        else: n_bad += 1
        if n_bad == patience: return i

def _late(scores, mode, patience):
    sign = 1 if mode == "max" else -1
    best, n_bad = float("-inf"), 0
    for i, x in enumerate(scores):
        if sign * x > best: best, n_bad = sign * x, 0
        else: n_bad += 1
        if n_bad > patience: return i

def _best_eval(scores, mode, patience):
    sign = 1 if mode == "max" else -1
    best, at = float("-inf"), 0
    for i, x in enumerate(scores):
        if sign * x > best: best, at = sign * x, i
        elif i - at >= patience: return at

def _from_one(scores, mode, patience):
    sign = 1 if mode == "max" else -1
    best, n_bad = float("-inf"), 0
    for i, x in enumerate(scores, 1):
        if sign * x > best: best, n_bad = sign * x, 0
        else: n_bad += 1
        if n_bad == patience: return i

def _best_is_zero(scores, mode, patience):
    best, n_bad = 0, 0
    for i, x in enumerate(scores):
        if (x > best if mode == "max" else x < best): best, n_bad = x, 0
        else: n_bad += 1
        if n_bad == patience: return i

def _first_misses(scores, mode, patience):
    best, n_bad = scores[0] if scores else None, 0
    for i, x in enumerate(scores):
        if (x > best if mode == "max" else x < best): best, n_bad = x, 0
        else: n_bad += 1
        if n_bad == patience: return i

def _folder(has_folder, has_json):
    for i, there in enumerate(has_folder):
        if not there: return i

def _last_done(has_folder, has_json):
    last = -1
    for i, done in enumerate(has_json):
        if done: last = i
    return last

def _behind_last(has_folder, has_json):
    for i in range(len(has_json) - 1, -1, -1):
        if has_json[i]: return i + 1 if i + 1 < len(has_json) else None
    return 0

def _how_many(has_folder, has_json):
    n = sum(has_json)
    return n if n < len(has_json) else None

def _length(has_folder, has_json):
    for i, done in enumerate(has_json):
        if not done: return i
    return len(has_json)

def _one_based(has_folder, has_json):
    for i, done in enumerate(has_json, 1):
        if not done: return i

def _last_undone(has_folder, has_json):
    out = None
    for i, done in enumerate(has_json):
        if not done: out = i
    return out

def _begun(has_folder, has_json):
    for i, (there, done) in enumerate(zip(has_folder, has_json)):
        if there and not done: return i

def _raises(has_folder, has_json): return has_json.index(False)

def _zero_is_none(has_folder, has_json):
    found = None
    for i, done in reversed(list(enumerate(has_json))):
        if not done: found = i
    return found if found else None

def _digest(text): return sha256(text.encode()).hexdigest()
def _added(seed, n): return [seed + c for c in range(n)]
def _glued(seed, n): return [int(_digest(f"{seed}{c}")[:15], 16) for c in range(n)]
def _reverse(seed, n): return [int(_digest(f"{c}/{seed}")[:15], 16) for c in range(n)]
def _same(seed, n): return [int(_digest(str(seed))[:15], 16)] * n
def _runless(seed, n): return [int(_digest(str(c))[:15], 16) for c in range(n)]
def _late_chunks(seed, n): return [int(_digest(f"{seed}/{c}")[:15], 16) for c in range(1, n + 1)]
def _all_digits(seed, n): return [int(_digest(f"{seed}/{c}"), 16) for c in range(n)]
def _end_digits(seed, n): return [int(_digest(f"{seed}/{c}")[-15:], 16) for c in range(n)]
def _texts(seed, n): return [_digest(f"{seed}/{c}")[:15] for c in range(n)]
def _md5(seed, n): return [int(md5(f"{seed}/{c}".encode()).hexdigest()[:15], 16) for c in range(n)]

WRONG = {
    "fixed_stops_at": [
        ("it still stops at the first evaluation that is higher, whatever is better", _as_it_was),
        ("patience is not asked: it stops at the first evaluation without a new best", _first_miss),
        ("higher and lower have changed places", _turned),
        ("lower is taken for better, always", _only_loss),
        ("compare with the best so far, not with the evaluation before", _against_last),
        ("an evaluation as good as the best is no new best", _ties),
        ("in a row: a new best lets the count begin again", _altogether),
        ("one evaluation too late: it stops at evaluation number `patience` without a new best", _late),
        ("that is the best evaluation: at which one does the run stop?", _best_eval),
        ("evaluations are counted from 0", _from_one),
        ("the best begins as the first score, not as 0", _best_is_zero),
        ("the first evaluation is the first best: it has missed nothing", _first_misses)],
    "next_stage": [
        ("a folder alone does not say that the stage is finished", _folder),
        ("that is the last finished stage", _last_done),
        ("behind a gap there may be finished stages: look for the first that is not",
         _behind_last),
        ("that is how many are finished; the first that is not may stand before them", _how_many),
        ("when all is done, the answer is None", _length),
        ("stages are counted from 0", _one_based),
        ("that is the last unfinished stage: the first runs next", _last_undone),
        ("a stage needs no folder to run next: it may never have begun", _begun),
        ("there may be no such stage, and then `index` stops with an error", _raises),
        ("stage 0 is a stage, though `if 0` says no", _zero_is_none)],
    "chunk_seeds": [
        ("chunk 1 of run 3 and chunk 0 of run 4 would deal the same cards", _added),
        ("chunk 11 of run 1 and chunk 1 of run 11 would deal the same cards: mind the /", _glued),
        ("first the run, then the chunk", _reverse),
        ("all chunks of a run would deal the same cards", _same),
        ("all runs would deal the same cards", _runless),
        ("chunks are counted from 0", _late_chunks),
        ("the first 15 hex digits, not all: a generator wants less than 64 bits", _all_digits),
        ("the first 15 hex digits, not the last", _end_digits),
        ("whole numbers, not text", _texts), ("that is another hash: sha256 is asked for", _md5)]}
