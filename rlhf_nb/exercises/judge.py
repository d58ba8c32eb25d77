"Exercises of the chapter on judges."
import math, re
import torch
from torch import Generator, tensor
from rlhf_nb.checks import Exercise

# ------------------------------------------------------------------ fixed_score
_NUMBER = r"Score: ([0-9]+(?:\.[0-9]+)?)"

def _read(reply, pattern=_NUMBER, last=True, high=5., low=0.):
    found = re.findall(pattern, reply or "")
    score = float(found[-1 if last else 0]) if found else math.nan
    return score if low <= score <= high else math.nan

def _score(replies, unparsed=None, read=_read, mean=lambda x: sum(x) / len(x), silent=math.nan):
    scores = [read(reply) for reply in replies]
    scores = [unparsed if math.isnan(x) else x for x in scores
              if unparsed is not None or not math.isnan(x)]
    return mean(scores) if scores else silent

def _digits(reply): # as str.isnumeric would have it
    found = re.search(r"Score: ([0-9.]+)", reply or "")
    return float(found[1]) if found and found[1].isnumeric() else math.nan

def _median(x): return tensor(x).median().item()

fixed_score = Exercise(
    reference=_score,
    cases={"whole sentences": (["It is clear. Score: 4.", "Score: 3."],),
           "half a point": (["Score: 4.5", "Score: 3"],),
           "one reply mumbles": (["Score: 4", "good good", "Score: 1", "Score: 2"],),
           "one reply was cut": ([None, "Score: 1"],),
           "no reply can be parsed": (["hm", None],),
           "a second thought": (["Score: 2. No, Score: 3.", "Score: 5"],),
           "a number above 5": (["Score: 45", "Score: 3", "Score: 4.5"],),
           "a score of 0": (["Score: 0", "Score: 3"],)},
    mistakes={
        "as it was: what is not all digits became 2.5": lambda r: _score(r, 2.5, _digits),
        "a reply without a score is no 2.5: leave it out": lambda r: _score(r, 2.5),
        "4. and 4.5 are numbers as well: isnumeric knows digits alone":
            lambda r: _score(r, read=_digits),
        "a reply without a score is no 0: leave it out of the sum and of the count":
            lambda r: _score(r, 0.),
        "the last score in a reply counts, not the first":
            lambda r: _score(r, read=lambda x: _read(x, last=False)),
        "a number above 5 is no score": lambda r: _score(r, read=lambda x: _read(x, high=math.inf)),
        "a number above 5 is no score: leave it out, do not cut it to 5":
            lambda r: _score(r, read=lambda x: min(5., _read(x, high=math.inf))),
        "half a point counts: read what stands behind the point":
            lambda r: _score(r, read=lambda x: _read(x, r"Score: ([0-9]+)")),
        "0 is a score: it is false to `if`, but it was parsed":
            lambda r: _score(r, read=lambda x: _read(x, low=.01)),
        "one reply without a score spoils the mean: leave it out": lambda r: _score(r, math.nan),
        "where nothing could be parsed the score is nan, not 0": lambda r: _score(r, silent=0.),
        "that is the sum: take the mean": lambda r: _score(r, mean=sum),
        "that is the highest score: take the mean": lambda r: _score(r, mean=max),
        "that is the median: take the mean": lambda r: _score(r, mean=_median),
        "that is the first reply alone": lambda r: _score(r[:1])})

# ------------------------------------------------------------------ mean_vote_std
def _vote_std(votes, correction=1, alone=None, over=torch.mean, last=torch.sqrt):
    stds = []
    for row in votes:
        row = row[~row.isnan()]
        if len(row) < 2 and (alone is None or not len(row)): continue
        off = ((row - row.mean())**2).sum()
        stds.append(last(off / (len(row) - correction)) if len(row) > 1 else tensor(alone))
    return over(torch.stack(stds)) if stds else tensor(math.nan)

def _std(x, dim=0): # nan, and no warning, where there is one number only
    return (((x - x.mean(dim, keepdim=True))**2).sum(dim) / (x.shape[dim] - 1)).sqrt()

def _votes(seed, b, n, unparsed=0.):
    generator = Generator().manual_seed(seed)
    votes = torch.randint(6, (b, n), generator=generator).float()
    return (votes.masked_fill(torch.rand(b, n, generator=generator) < unparsed, math.nan),)

_nan = math.nan
mean_vote_std = Exercise(
    reference=_vote_std,
    cases={"all were parsed": _votes(0, 4, 3), "some were not": _votes(1, 6, 4, .3),
           "rows with one vote, and with none":
               (tensor([[1., 3., _nan], [4., 4., 5.], [2., _nan, _nan], [_nan] * 3]),),
           "one answer": (tensor([[0., 5., 2., _nan]]),),
           "one vote each": (tensor([[3.], [5.]]),),
           "float64": (tensor([[1., 2.], [0., 5.]], dtype=torch.float64),)},
    mistakes={
        "a vote that was not parsed is no 0": lambda v: _std(v.nan_to_num(0.), 1).mean(),
        "divide by the votes parsed minus one": lambda v: _vote_std(v, correction=0),
        "a single vote has no std, not one of 0: leave the row out":
            lambda v: _vote_std(v, alone=0.),
        "that is the mean variance: take the root in each row": lambda v: _vote_std(v, last=lambda x: x),
        "take the root in each row, then the mean, not the other way round":
            lambda v: _vote_std(v, last=lambda x: x).sqrt(),
        "that is the sum over answers: take the mean": lambda v: _vote_std(v, over=torch.sum),
        "that is the largest std: take the mean": lambda v: _vote_std(v, over=torch.max),
        "all votes in one heap: the std is within each answer":
            lambda v: _std(v[~v.isnan()]),
        "that is how far the answers lie apart": lambda v: _std(v.nanmean(1)[~v.isnan().all(1)]),
        "votes on one answer stand in a row": lambda v: _vote_std(v.T),
        "one vote that was not parsed makes its whole row nan": lambda v: _std(v, 1).mean(),
        "rows with a vote that was not parsed count, too": lambda v: _vote_std(v[~v.isnan().any(1)])})

# ------------------------------------------------------------------ bias_of
_VALUE = {"first": 1., "second": 0., "tie": .5}
def _bias(ab, ba, value=_VALUE, less=.5):
    values = [value[x] for x in [*ab, *ba] if x in value]
    return sum(values) / len(values) - less if values else 0.

F, S, T = "first", "second", "tie"
bias_of = Exercise(
    reference=_bias,
    cases={"four duels": ([F, F, S, F], [F, S, S, F]), "whatever stands first": ([F, F, F], [F, F, F]),
           "whatever stands second": ([S], [S]), "a fair judge": ([F, S, F], [S, F, S]),
           "ties": ([T, F, F], [F, T, S]), "different in each order": ([S, S, F, S], [F, F, S, F]),
           "ties only": ([T, T], [T, T])},
    mistakes={
        "that is the share; a fair judge has .5 of it, so take .5 away":
            lambda ab, ba: _bias(ab, ba, less=0.),
        "both orders count": lambda ab, ba: _bias(ab, []),
        "both orders count, not the second alone": lambda ab, ba: _bias([], ba),
        "that is how often the same answer wins; asked is the same place":
            lambda ab, ba: _bias(ab, [{F: S, S: F, T: T}[x] for x in ba]),
        "that is how often the same answer wins, and ties are lost; asked is the same place":
            lambda ab, ba: _bias(ab, [{F: S, S: F, T: T}[x] for x in ba], _VALUE | {T: 0.}),
        "the sign: above 0 for a judge that favours the first": lambda ab, ba: -_bias(ab, ba),
        "a tie is half a first": lambda ab, ba: _bias(ab, ba, _VALUE | {T: 0.}),
        "a tie counts, as half a first: do not leave it out":
            lambda ab, ba: _bias(ab, ba, {F: 1., S: 0.}),
        "a tie is no first": lambda ab, ba: _bias(ab, ba, _VALUE | {T: 1.}),
        "divide by all replies, of both orders":
            lambda ab, ba: _bias(ab, ba, less=0.) * 2 - .5,
        "that is a number of replies, not a share":
            lambda ab, ba: _bias(ab, ba, less=0.) * len(ab + ba),
        "that is the share of pairs whose two replies name the same place":
            lambda ab, ba: sum(a == b for a, b in zip(ab, ba)) / len(ab),
        "that is first minus second: twice too much": lambda ab, ba: 2 * _bias(ab, ba),
        "a lean to either side is told by its sign: do not take it away":
            lambda ab, ba: abs(_bias(ab, ba))})
