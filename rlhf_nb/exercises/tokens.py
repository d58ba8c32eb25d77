"Exercises of the chapter on tokens."
import torch
from torch import tensor
from rlhf_nb import tokens
from rlhf_nb.book.checks import Exercise

def _gen(seed): return torch.Generator().manual_seed(seed)
def _randn(seed, *size): return torch.randn(size, generator=_gen(seed))

# ---- one shift along the time axis

def _moved(x, by=1, fill=0., dim=1): # row i of the result is row i - by of x
    out, n = torch.full_like(x, fill), x.shape[dim]
    for i in range(n):
        if 0 <= i - by < n: out.select(dim, i).copy_(x.select(dim, i - by))
    return out

shift_right = Exercise(
    reference=tokens.shift_right,
    cases={"two rows of numbers": (_randn(0, 2, 4).requires_grad_(),),
           "logits": (_randn(1, 3, 5, 3).requires_grad_(),),
           "as long as wide": (_randn(2, 3, 3),),
           "a mask": (tensor([[True, True, False], [False, True, True]]),),
           "token ids": (tensor([[5, 6, 7, 1], [8, 9, 1, 0]]),),
           "one row": (_randn(3, 1, 4, 2),), "one column": (_randn(4, 3, 1),),
           "nan and inf": (tensor([[1., torch.nan, torch.inf], [-torch.inf, 2., 3.]]),),
           "bf16": (_randn(5, 2, 4).bfloat16(),), "float64": (_randn(6, 2, 4).double(),)},
    mistakes={
        "the wrong way: row i of the result is row i-1 of x, not row i+1": lambda x: _moved(x, -1),
        "nothing has moved": lambda x: x.clone(),
        "row 0 is 0, not the last row: that is torch.roll": lambda x: x.roll(1, 1),
        "row 0 is 0: that repeats the first row": lambda x: torch.cat([x[:, :1], x[:, :-1]], 1),
        "the shape stays (b t ...): the zeros in front are missing": lambda x: x[:, :-1],
        "the shape stays (b t ...): drop the last row":
            lambda x: torch.cat([torch.zeros_like(x[:, :1]), x], 1),
        "that moves the rows of the batch: time is axis 1": lambda x: _moved(x, dim=0),
        "that moves the last axis: time is axis 1": lambda x: _moved(x, dim=x.dim() - 1),
        "two steps: move by one": lambda x: _moved(x, 2),
        "no gradient reaches x: do not detach": lambda x: _moved(x.detach()),
        "the first row is gone: set row 0 to 0 after moving, not before":
            lambda x: torch.cat([x[:, :1] * 0, x[:, :1] * 0, x[:, 1:-1]], 1)[:, :x.shape[1]]})

# ---- the log-prob of each token

def _logprobs(logits, ids, by=1, score=lambda z: z.float().log_softmax(-1), sign=1):
    logp = _moved(score(logits.double() if logits.dtype == torch.double else logits), by)
    return sign * logp.gather(-1, ids[..., None])[..., 0]
def _wide(z): return z if z.dtype == torch.double else z.float()
def _checked(fn): # the shapes are checked as the spec asks, the rest is the mistake
    def call(logits, ids):
        if logits.shape[:2] != ids.shape: raise ValueError("one (b t)")
        return fn(logits, ids)
    return call

_ids = torch.randint(9, (3, 6), generator=_gen(7))
_far = _randn(8, 2, 4, 9)
_far[..., 3] = -300.
_banned = _randn(9, 2, 4, 9)
_banned[..., 5] = -torch.inf
token_logprobs = Exercise(
    reference=tokens.token_logprobs,
    cases={"three rows": (_randn(10, 3, 6, 9).requires_grad_(), _ids),
           "a token whose logit is -300": (_far, tensor([[3, 3, 1, 2], [0, 3, 3, 4]])),
           "a token that is ruled out": (_banned, tensor([[1, 2, 5, 3], [4, 0, 0, 5]])),
           "large logits": (300 * _randn(11, 2, 5, 9), _ids[:2, :5]),
           "as long as the vocabulary": (_randn(12, 2, 6, 6), _ids[:2] % 6),
           "one row": (_randn(13, 1, 4, 9), _ids[:1, :4]), "one token": (_randn(14, 2, 1, 9), _ids[:2, :1]),
           "ties": (torch.zeros(2, 3, 4), tensor([[0, 1, 2], [3, 3, 3]])),
           "bf16": (8 * _randn(15, 3, 6, 9).bfloat16(), _ids),
           "float16": (_randn(16, 3, 6, 9).half(), _ids),
           "float64": (_randn(17, 3, 6, 9).double(), _ids),
           "logits that were cut": (_randn(18, 3, 5, 9), _ids)},
    mistakes={
        "no shift: row i of the logits predicts token i+1":
            _checked(lambda z, y: _logprobs(z, y, by=0)),
        "the shift goes the wrong way: token i is predicted by row i-1":
            _checked(lambda z, y: _logprobs(z, y, by=-1)),
        "those are logits: log_softmax makes log-probs of them":
            _checked(lambda z, y: _logprobs(z, y, score=_wide)),
        "those are probabilities: take their log":
            _checked(lambda z, y: _logprobs(z, y, score=lambda z: _wide(z).softmax(-1))),
        "the log of softmax is -inf where a probability underflows: use log_softmax":
            _checked(lambda z, y: _logprobs(z, y, score=lambda z: _wide(z).softmax(-1).log())),
        "entry 0 is 0: shift log-probs, not logits (zeros are logits too)":
            _checked(lambda z, y: _moved(_wide(z)).log_softmax(-1).gather(-1, y[..., None])[..., 0]),
        "turn the sign: a log-prob is never above 0": _checked(lambda z, y: _logprobs(z, y, sign=-1)),
        "entry 0 is missing: the result is (b t)":
            _checked(lambda z, y: _logprobs(z, y)[:, 1:]),
        "softmax runs over the words, the last axis":
            _checked(lambda z, y: _logprobs(z, y, score=lambda z: _wide(z).log_softmax(1))),
        "the ids moved as well: only the logits shift": _checked(lambda z, y: _logprobs(z, _moved(y))),
        "logits and ids must share (b t), or ValueError":
            lambda z, y: _logprobs(z[:, :y.shape[1]], y[:, :z.shape[1]]),
        "that is one number per response: keep one per token":
            _checked(lambda z, y: _logprobs(z, y).sum(1)),
        "the zeros stand at the end: they belong in front, entry i is of token i":
            _checked(lambda z, y: _moved(_logprobs(z, y), -1)),
        "that is the log-prob of the most probable token: pick that of ids":
            _checked(lambda z, y: _moved(_wide(z).log_softmax(-1)).amax(-1)),
        "no gradient reaches the logits: do not detach":
            _checked(lambda z, y: _logprobs(z.detach(), y))})

# ---- the mean over the tokens that count

def _mean(x, mask, total=lambda x, m: torch.where(m, x, torch.zeros_like(x)).sum(),
          count=lambda m: m.sum()):
    if x.shape != mask.shape or not mask.any(): raise ValueError("no mean")
    x = x if x.dtype == torch.double else x.float()
    return total(x, mask) / count(mask)

def _bare(x, mask): return torch.where(mask, x, 0.).sum() / mask.sum()    # without a check
def _low(x, mask): # a running sum that stays in 16 bits
    total = torch.zeros((), dtype=x.dtype)
    for v in x[mask]: total = total + v
    return total / mask.sum().to(x.dtype)
def _row_means(x, mask):
    rows = [(row[on].sum() / max(1, int(on.sum()))) for row, on in zip(x, mask)]
    return torch.stack(rows)

_x = tensor([[1., 2., 3., 6.], [8., torch.nan, torch.inf, -torch.inf]])
_m = tensor([[1, 1, 1, 1], [1, 0, 0, 0]]).bool()
_sides = tensor([[0, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 1, 0]]).bool()
masked_mean = Exercise(
    reference=tokens.masked_mean,
    cases={"rows of unequal length": (_randn(20, 3, 6).requires_grad_(), _sides),
           "nan and inf under the mask": (_x.clone().requires_grad_(), _m),
           "a nan that counts": (tensor([[1., torch.nan, 3.]]), tensor([[True, True, False]])),
           "a row without True": (_randn(21, 2, 3), tensor([[True, False, True], [False, False, False]])),
           "one row": (tensor([[2., 4., 9., 0.]]), tensor([[True, True, True, False]])),
           "one axis": (tensor([1., 5., 3.]), tensor([True, False, True])),
           "three axes": (_randn(22, 2, 3, 2), _randn(23, 2, 3, 2) > 0),
           "300 numbers in bf16": ((3 + _randn(24, 4, 300)).bfloat16(), _randn(25, 4, 300) > -1),
           "float64": (_randn(26, 3, 6).double(), _sides),
           "all True": (_randn(27, 2, 3), torch.ones(2, 3).bool()),
           "no True at all": (_randn(28, 2, 3), torch.zeros(2, 3).bool()),
           "a mask for one row only": (_randn(29, 2, 3), torch.ones(3).bool())},
    mistakes={
        "the masked entries count: divide by the number of True":
            lambda x, m: _mean(x, m, count=lambda m: m.numel()),
        "the mask is not used": lambda x, m: _mean(x, m, total=lambda x, m: x.sum(), count=lambda m: m.numel()),
        "that is the sequence mean, each row alike: every token has the same weight":
            lambda x, m: _mean(x, m, total=lambda x, m: _row_means(x, m).mean(), count=lambda m: 1)
            if x.dim() == 2 else _mean(x, m),
        "one number for all, not one per row": lambda x, m: _mean(
            x, m, total=lambda x, m: torch.where(m, x, torch.zeros_like(x)).sum(-1), count=lambda m: m.sum(-1)),
        "that is the sum: divide": lambda x, m: _mean(x, m, count=lambda m: 1),
        "that divides by the number of rows, not of tokens": lambda x, m: _mean(x, m, count=len),
        "0 times nan is nan: write 0 where the mask is False, do not multiply":
            lambda x, m: _mean(x, m, total=lambda x, m: (x * m).sum()),
        "a nan that counts makes the mean nan: no nanmean": lambda x, m: (lambda kept: _mean(x, m & kept) if kept.any() else _mean(x, m))(
            ~x.isnan()) if x.shape == m.shape else _mean(x, m),
        "0 times nan is nan: write 0 where the mask is False; and check the mask, as the task asks":
            lambda x, m: (x * m).sum() / m.sum(),
        "upside down: True is what counts": lambda x, m: _mean(x, m, total=lambda x, m: torch.where(
            m, torch.zeros_like(x), x).sum(), count=lambda m: (~m).sum()),
        "without any True it must raise ValueError":
            lambda x, m: _mean(x, m) if m.any() else torch.tensor(torch.nan),
        "without any True it must raise ValueError, not give 0":
            lambda x, m: _mean(x, m) if m.any() else torch.tensor(0.),
        "one mask for all rows broadcasts silently: x and mask of two shapes raise ValueError":
            lambda x, m: _mean(x, m) if x.shape == m.shape else _bare(x, m),
        "two things: a mask without True and one of another shape raise ValueError":
            lambda x, m: _mean(x, m) if x.shape == m.shape and m.any() else _bare(x, m),
        "a sum of 300 numbers in 16 bits is wrong: compute in float32":
            lambda x, m: _low(x, m) if x.dtype == torch.bfloat16 else _mean(x, m),
        "no gradient reaches x: do not detach": lambda x, m: _mean(x.detach(), m)})

# ---- the last real token

def _last(mask, find=max, least=None, add=0):
    rows = [[i for i, on in enumerate(row) if on] for row in mask.tolist()]
    if least is None and not all(rows): raise ValueError("a row of pads")
    return tensor([find(row) + add if row else least for row in rows])
def _rows(mask, fn): # what `fn` makes of each row, where every row holds a token
    if not mask.bool().any(1).all(): raise ValueError("a row of pads")
    return tensor([int(fn(row)) for row in mask.int()])

last_token_index = Exercise(
    reference=tokens.last_token_index,
    cases={"pads on the right": (tensor([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0]]).bool(),),
           "pads on the left": (tensor([[0, 0, 1, 1], [0, 1, 1, 1]]).bool(),),
           "pads on both sides": (tensor([[0, 1, 1, 0, 0], [0, 0, 0, 1, 0]]).bool(),),
           "no pads": (torch.ones(3, 4).bool(),),
           "a hole": (tensor([[1, 0, 1, 1, 0], [1, 1, 0, 1, 0]]).bool(),),
           "zeros and ones": (tensor([[1, 1, 0, 0], [0, 1, 1, 0]]),),
           "one row": (tensor([[False, True, True, False]]),), "one token": (tensor([[True]]),),
           "one token in a long row": (tensor([[1, 0, 0, 0, 0, 0]]).bool(),),
           "a row of pads": (tensor([[1, 1, 0], [0, 0, 0]]).bool(),)},
    mistakes={
        "counting fails with pads on the left: tokens - 1 is no position":
            lambda m: _rows(m, lambda row: row.sum() - 1),
        "that is the number of tokens, not a position": lambda m: _rows(m, lambda row: row.sum()),
        "the first pad may stand in front: first pad - 1 is no end":
            lambda m: _rows(m, lambda row: (row == 0).int().argmax() - 1),
        "that is the first real token": lambda m: _last(m, min),
        "that is the last column, padding or not": lambda m: _rows(m, lambda row: len(row) - 1),
        "one too late: positions count from 0": lambda m: _last(m, add=1),
        "one too early": lambda m: _last(m, add=-1),
        "counted from the end: subtract it from t - 1":
            lambda m: _rows(m, lambda row: row.flip(0).argmax()),
        "a row of pads must raise ValueError: it has no last token": lambda m: _last(m, least=-1),
        "a row of pads must raise ValueError: argmax answers 0 or t - 1 there":
            lambda m: _last(m, least=m.shape[1] - 1),
        "one number for each row, not for each column": lambda m: _last(m.T),
        "one number for each row, not one for the batch": lambda m: _last(m).max()})

# ---- the clinic: which tokens a loss counts

def _counted(ids, lengths, pad, first=1):
    at = torch.arange(ids.shape[1])
    return torch.stack([(at >= first) & (at < n) for n in lengths.tolist()])

def _by_ids(ids, lengths, pad):
    keep = ids != pad
    keep[:, 0] = False
    return keep

def _to_first_end(ids, lengths, pad): # everything up to the first eos, which is 1
    ends = (ids == 1).long()
    return _counted(ids, lengths, pad) & (ends.cumsum(1) - ends == 0)

fixed_counted = Exercise(
    reference=_counted,
    cases={"pad is eos": (tensor([[5, 6, 1, 1, 1], [5, 7, 8, 9, 1]]), tensor([3, 5]), 1),
           "a pad of its own": (tensor([[5, 6, 1, 0], [4, 1, 0, 0]]), tensor([3, 2]), 0),
           "cut before its end": (tensor([[5, 6, 7, 1, 1], [5, 1, 1, 1, 1]]), tensor([3, 2]), 1),
           "two turns, each with its eos": (tensor([[5, 1, 6, 7, 1, 1]]), tensor([5]), 1),
           "a row of pads": (tensor([[1, 1, 1], [5, 6, 1]]), tensor([0, 3]), 1),
           "one token": (tensor([[5]]), tensor([1]), 1)},
    mistakes={
        "it still goes by the ids: where pad is eos, the end looks like padding": _by_ids,
        "the first token is counted: nothing precedes it":
            lambda *a: _counted(*a, first=0),
        "the last token of each row is missing, and it is the eos":
            lambda ids, n, pad: _counted(ids, n - 1, pad),
        "one pad is counted: the last token is at lengths - 1":
            lambda ids, n, pad: _counted(ids, n + 1, pad),
        "each row ends at its own length, not at the longest": lambda ids, n, pad: _counted(
            ids, torch.full_like(n, int(n.max())), pad),
        "the pads are counted": lambda ids, n, pad: _counted(ids, torch.full_like(n, 99), pad),
        "it ends at the first eos: a row may hold two turns": _to_first_end,
        "upside down: True is what the loss counts": lambda *a: ~_counted(*a)})
