"Exercises of the chapter on inspectors."
import torch
from torch import tensor
from rlhf_nb.checks import Exercise

# ---- the score that counts

def _gen(seed): return torch.Generator().manual_seed(seed)
def _last(mask): # place of the last True of each row
    return torch.stack([row.nonzero()[-1, 0] for row in mask])
def _first(mask): return torch.stack([row.nonzero()[0, 0] for row in mask])

def _batch_scores(scores, mask, place=_last):
    return scores[torch.arange(len(scores)), place(mask)]

def _mask(*rows): return tensor([[c == "x" for c in row] for row in rows])
def _case(seed, *rows, dtype=torch.float32):
    mask = _mask(*rows)
    scores = torch.randn(mask.shape, generator=_gen(seed)).to(dtype)
    return scores.requires_grad_(), mask

fixed_batch_scores = Exercise(
    reference=_batch_scores,
    cases={"pads on the right": _case(0, "xxx..", "xxxxx", "x...."),
           "pads on the left": _case(1, "..xxx", "xxxxx", "....x"),
           "pads on both sides": _case(2, ".xxx..", "xx....", "...xx."),
           "one row": _case(3, "xxxx"),
           "bf16": _case(4, ".xxx", "xx..", dtype=torch.bfloat16)},
    mistakes={
        "the last column is read, pad or not": lambda s, m: s[:, -1],
        "the first real token is read": lambda s, m: _batch_scores(s, m, _first),
        "one too early: the token before the last": lambda s, m: _batch_scores(
            s, m, lambda m: _last(m) - 1),
        "the first pad is read: one too late": lambda s, m: _batch_scores(
            s, m, lambda m: (_last(m) + 1) % m.shape[1]),
        "counting tokens finds the last one only if no pad stands before them":
            lambda s, m: _batch_scores(s, m, lambda m: m.sum(1) - 1),
        "that is the mean over the row: one position counts":
            lambda s, m: (s * m).sum(1) / m.sum(1),
        "that is the largest score of the row": lambda s, m: s.masked_fill(~m, -torch.inf).max(1).values,
        "that is the sum of all scores": lambda s, m: (s * m).sum(1),
        "no gradient reaches the scores: do not detach": lambda s, m: _batch_scores(s.detach(), m)})

# ---- what can still be drawn

def _remains(probs, top_k, top_p, rank=lambda probs, i: (-probs, i), norm=True,
             full=lambda before, own, top_p: before >= top_p):
    order = sorted(range(len(probs)), key=lambda i: rank(probs[i], i))[:top_k or None]
    total, before, kept = sum(probs[i] for i in order) if norm else 1., 0., []
    for i in order:
        own = probs[i] / total
        if kept and full(before, own, top_p): break
        kept.append(i)
        before += own
    return kept

_eight = [.0625, .25, .125, .0625, .1875, .125, .125, .0625]
kept_tokens = Exercise(
    reference=_remains,
    cases={"both": ([.5, .05, .2, .15, .1], 3, .7), "the new probs matter": ([.5, .05, .2, .15, .1], 3, .55),
           "only top-k": (_eight, 4, 1.),
           "only top-p": ([.125, .5, .25, .125], 0, .6),
           "top-p reached exactly": ([.125, .5, .25, .125], 0, .75),
           "top-p below the first": ([.1, .7, .2], 0, .05),
           "k larger than the vocabulary": ([.25, .75], 9, 1.),
           "equal probs": ([.25, .25, .25, .25], 2, 1.)},
    mistakes={
        "the token that crosses top_p is dropped: it stays":
            lambda *x: _remains(*x, full=lambda before, own, top_p: before + own > top_p),
        "after top_k the probs have to sum to 1 again, before top_p is applied":
            lambda *x: _remains(*x, norm=False),
        "top_k is not applied": lambda c, k, p: _remains(c, 0, p),
        "top_p is not applied": lambda c, k, p: _remains(c, k, 9.),
        "the least probable come first": lambda *x: _remains(*x, rank=lambda c, i: (c, i)),
        "one too many where top_p is reached exactly: >= ends it":
            lambda *x: _remains(*x, full=lambda before, own, top_p: before > top_p),
        "ids in their own order: the most probable comes first":
            lambda *x: sorted(_remains(*x)),
        "of equal probs the larger id comes first":
            lambda *x: _remains(*x, rank=lambda c, i: (-c, -i)),
        "top_k 0 means no limit": lambda c, k, p: _remains(c, k, p) if k else _remains(c, 1, 9.)})
