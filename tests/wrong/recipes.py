"Answers to the exercises on your own data, each with one thing wrong."
import math
from itertools import permutations

def _as_it_was(step, n_rows, batch_size, n_epochs):
    return 1. - .8 * min(step / (n_rows // 2), 1.)

def _rows_and_epochs(step, n_rows, batch_size, n_epochs):
    return 1. - .8 * min(step / (n_rows * n_epochs), 1.)

def _rows(step, n_rows, batch_size, n_epochs): return 1. - .8 * min(step / n_rows, 1.)

def _one_epoch(step, n_rows, batch_size, n_epochs):
    return 1. - .8 * min(step / math.ceil(n_rows / batch_size), 1.)

def _whole_batches(step, n_rows, batch_size, n_epochs):
    return 1. - .8 * min(step / (n_rows * n_epochs // batch_size), 1.)

def _epoch_by_epoch(step, n_rows, batch_size, n_epochs):
    return 1. - .8 * min(step / (n_epochs * math.ceil(n_rows / batch_size)), 1.)

def _drop_last(step, n_rows, batch_size, n_epochs):
    return 1. - .8 * min(step / (n_epochs * max(1, n_rows // batch_size)), 1.)

def _through(step, n_rows, batch_size, n_epochs):
    return 1. - .8 * step / math.ceil(n_epochs * n_rows / batch_size)

def _to_zero(step, n_rows, batch_size, n_epochs):
    return 1. - min(step / math.ceil(n_epochs * n_rows / batch_size), 1.)

def _rising(step, n_rows, batch_size, n_epochs):
    return .2 + .8 * min(step / math.ceil(n_epochs * n_rows / batch_size), 1.)

def _by_a_fifth(step, n_rows, batch_size, n_epochs):
    return 1. - .2 * min(step / math.ceil(n_epochs * n_rows / batch_size), 1.)

def _from_one(step, n_rows, batch_size, n_epochs):
    return 1. - .8 * min((step + 1) / math.ceil(n_epochs * n_rows / batch_size), 1.)

def _one_error(p, n_p, q, n_q): return abs(p - q) / math.sqrt(p * (1 - p) / n_p)
def _added(p, n_p, q, n_q):
    return abs(p - q) / ((p * (1 - p) / n_p)**.5 + (q * (1 - q) / n_q)**.5)
def _no_rows(p, n_p, q, n_q): return abs(p - q) / (p * (1 - p) + q * (1 - q))**.5
def _variance(p, n_p, q, n_q): return abs(p - q) / (p * (1 - p) / n_p + q * (1 - q) / n_q)
def _signed(p, n_p, q, n_q): return (p - q) / (p * (1 - p) / n_p + q * (1 - q) / n_q)**.5
def _signed_too(p, n_p, q, n_q): return (q - p) / (p * (1 - p) / n_p + q * (1 - q) / n_q)**.5
def _one_n(p, n_p, q, n_q): return abs(p - q) / ((p * (1 - p) + q * (1 - q)) / n_p)**.5
def _bessel(p, n_p, q, n_q):
    return abs(p - q) / (p * (1 - p) / (n_p - 1) + q * (1 - q) / (n_q - 1))**.5
def _mean_var(p, n_p, q, n_q):
    return abs(p - q) / ((p * (1 - p) / n_p + q * (1 - q) / n_q) / 2)**.5
def _error(p, n_p, q, n_q): return (p * (1 - p) / n_p + q * (1 - q) / n_q)**.5

def _swapped(result):
    rows = []
    for prompt, answers, score in zip(result.prompts, result.answers, result.score):
        best, worst = answers[int(score.argmax())], answers[int(score.argmin())]
        if best != worst: rows.append(dict(prompt=prompt, chosen=worst, rejected=best))
    return rows

def _with_equal(result):
    return [dict(prompt=p, chosen=a[s.argmax()], rejected=a[s.argmin()])
            for p, a, s in zip(result.prompts, result.answers, result.score)]

def _first_best(result):
    rows = [dict(prompt=p, chosen=a[0], rejected=a[s.argmin()])
            for p, a, s in zip(result.prompts, result.answers, result.score)]
    return [row for row in rows if row["chosen"] != row["rejected"]]

def _ends(result):
    return [dict(prompt=p, chosen=a[0], rejected=a[-1])
            for p, a in zip(result.prompts, result.answers) if a[0] != a[-1]]

def _second(result):
    rows = []
    for prompt, answers, score in zip(result.prompts, result.answers, result.score.tolist()):
        order = sorted(range(len(score)), key=lambda i: -score[i])
        best, other = answers[order[0]], answers[order[1]]
        if best != other: rows.append(dict(prompt=prompt, chosen=best, rejected=other))
    return rows

def _absolute(result):
    rows = []
    for prompt, answers, score in zip(result.prompts, result.answers, result.score.abs()):
        best, worst = answers[score.argmax()], answers[score.argmin()]
        if best != worst: rows.append(dict(prompt=prompt, chosen=best, rejected=worst))
    return rows

def _every(result):
    return [dict(prompt=p, chosen=a[i], rejected=a[j])
            for p, a, s in zip(result.prompts, result.answers, result.score.tolist())
            for i, j in permutations(range(len(a)), 2) if s[i] > s[j] and a[i] != a[j]]

def _best_worst(result):
    return [dict(prompt=row["prompt"], best=row["chosen"], worst=row["rejected"])
            for row in _with_equal(result) if row["chosen"] != row["rejected"]]

def _tuples(result):
    return [(row["prompt"], row["chosen"], row["rejected"])
            for row in _with_equal(result) if row["chosen"] != row["rejected"]]

WRONG = {
    "fixed_lr_share": [
        ("still in rows: the schedule is as long as the file, the run is not", _as_it_was),
        ("still in rows: a step takes a whole batch of them", _rows_and_epochs),
        ("still in rows, and the epochs are missing", _rows),
        ("the epochs are missing: it is at the bottom after the first", _one_epoch),
        ("the last batch may not be full, but it is a step: round up", _whole_batches),
        ("batches go on across epochs: round up once, in the end", _epoch_by_epoch),
        ("batches go on across epochs, and the last is a step: round up once, in the end",
         _drop_last),
        ("behind the end it stays at the bottom", _through),
        ("it falls to .2, not to 0", _to_zero), ("it rises", _rising),
        ("it falls by .2 only", _by_a_fifth),
        ("step 0 has the full rate: do not count from 1", _from_one)],
    "errors_apart": [
        ("both accuracies are uncertain: add their variances", _one_error),
        ("add variances, not standard errors", _added),
        ("more rows make it surer: divide each variance by its own number of rows", _no_rows),
        ("that is the variance: the error is its root", _variance),
        ("how far, in either direction: take the absolute value", _signed),
        ("how far the second is above the first: take the absolute value", _signed_too),
        ("both are divided by the first's number of rows", _one_n),
        ("divide by all n rows: p is all that is estimated", _bessel),
        ("that is the mean of the two variances: add them", _mean_var),
        ("those are the errors: how many of them is the difference?", _error)],
    "to_pairs": [
        ("the best is the chosen one", _swapped),
        ("two equal texts teach nothing: leave that prompt out", _with_equal),
        ("the best of them, not the first", _first_best),
        ("the best of them, not the first; the worst, not the last", _ends),
        ("the worst, not the second best", _second),
        ("far below 0 is bad, not good: no absolute values", _absolute),
        ("one row per prompt: the best against the worst only", _every),
        ("what is read by `train reward` has prompt, chosen and rejected", _best_worst),
        ("a row is a dict with prompt, chosen and rejected", _tuples)]}
