"Exercises of the chapter on tokens."
import torch
from torch import tensor
from rlhf_nb.checks import Exercise
from rlhf_nb.tokens import Seqs, make_seqs

def _gen(seed): return torch.Generator().manual_seed(seed)
def _shifted(x, by): # row i of the result is row i - by of x, zero where there is none
    out = torch.zeros_like(x)
    if by >= 0: out[:, by:] = x[:, :x.shape[1] - by]
    else: out[:, :by] = x[:, -by:]
    return out

# ---- the log-prob of a response

def _response_logprob(logits, seqs, shift=1, mask=lambda s: s.response_mask,
                      score=lambda z: z.float().log_softmax(-1), over=None):
    logp = _shifted(score(logits), shift)
    picked, keep = logp.gather(-1, seqs.ids[..., None])[..., 0], mask(seqs)
    rows = [row[on].sum() for row, on in zip(picked, keep)]
    if over: rows = [row / max(1, n) for row, n in zip(rows, over(keep))]
    return torch.stack(rows)

_three = make_seqs([[4, 5], [6], [2, 3, 4, 5]], [[7, 8, 2, 1], [3, 1], []], pad=0)
_sides = Seqs(tensor([[0, 0, 5, 6, 7, 1], [0, 4, 8, 3, 1, 0], [2, 5, 1, 0, 0, 0]]),
              tensor([[0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]]).bool(),
              tensor([[0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 1, 0], [0, 1, 1, 0, 0, 0]]).bool())
_one = make_seqs([[3, 7]], [[5]], pad=0)
def _logits(seqs, seed): return torch.randn(*seqs.ids.shape, 9, generator=_gen(seed))

response_logprob = Exercise(
    reference=_response_logprob,
    cases={"three rows, one response empty": (_logits(_three, 0).requires_grad_(), _three),
           "pads on both sides": (_logits(_sides, 1).requires_grad_(), _sides),
           "one row, one token": (_logits(_one, 2), _one),
           "large logits": (30 * _logits(_three, 3), _three),
           "bf16": (_logits(_sides, 4).bfloat16(), _sides)},
    mistakes={
        "no shift: row i of the logits predicts token i+1":
            lambda z, s: _response_logprob(z, s, shift=0),
        "the shift goes the wrong way: token i is predicted by row i-1":
            lambda z, s: _response_logprob(z, s, shift=-1),
        "that is the mean of each response: DPO needs the sum":
            lambda z, s: _response_logprob(z, s, over=lambda m: m.sum(1)),
        "prompt tokens are in it": lambda z, s: _response_logprob(z, s, mask=lambda s: s.attention_mask),
        "pads are in it: nothing is masked":
            lambda z, s: _response_logprob(z, s, mask=lambda s: torch.ones_like(s.response_mask)),
        "the mask slipped: the first word of each response is missing":
            lambda z, s: _response_logprob(z, s, mask=lambda s: _shifted(s.response_mask, 1)),
        "the mask slipped: the last prompt token counts, the last word does not":
            lambda z, s: _response_logprob(z, s, mask=lambda s: _shifted(s.response_mask, -1)),
        "those are logits: log_softmax makes log-probs of them":
            lambda z, s: _response_logprob(z, s, score=torch.Tensor.float),
        "those are probabilities: they multiply, their logs add":
            lambda z, s: _response_logprob(z, s, score=lambda z: z.float().softmax(-1)),
        "turn the sign: a log-prob is never above 0": lambda z, s: -_response_logprob(z, s),
        "one number for each response, not one for the batch": lambda z, s: _response_logprob(z, s).sum(),
        "no gradient reaches the logits: do not detach":
            lambda z, s: _response_logprob(z.detach(), s)})

# ---- where a response begins

def _first(mask, none=-1, last=False, add=0):
    rows = [[i for i, on in enumerate(row) if on] for row in mask.tolist()]
    return tensor([(row[-1 if last else 0] + add) if row else none for row in rows])

first_token = Exercise(
    reference=_first,
    cases={"pads behind": (tensor([[0, 0, 1, 1, 0], [0, 1, 1, 1, 1], [0, 0, 0, 1, 0]]).bool(),),
           "a row without a response": (tensor([[0, 1, 1, 0], [0, 0, 0, 0]]).bool(),),
           "two answers in one row": (tensor([[0, 1, 1, 0, 0, 1, 1, 0]]).bool(),),
           "it begins at 0": (tensor([[1, 1, 0], [0, 0, 1]]).bool(),),
           "no response at all": (torch.zeros(2, 3).bool(),), "one token": (tensor([[True]]),)},
    mistakes={
        "argmax of a row without True is 0: answer -1 there": lambda m: _first(m, none=0),
        "a row without True is -1, not the row's length": lambda m: _first(m, none=m.shape[1]),
        "that is the last response token": lambda m: _first(m, last=True),
        "that is the last prompt token, one too early": lambda m: _first(m) - 1,
        "one too late: positions count from 0": lambda m: _first(m, add=1),
        "that counts False entries: pads behind, or a second question, are False too":
            lambda m: (~m).sum(1),
        "False entries behind the first True do not count":
            lambda m: torch.where(m.any(1), (~m).sum(1), -1),
        "one number for each row, not for each column": lambda m: _first(m.T),
        "that is True or False: say where": lambda m: m.any(1)})

# ---- each row on its own scale

def _whiten(x, mask, least=2, unbiased=0, eps=1e-8, root=.5, centre=True,
            seen=lambda row, on: row[on]):
    out = torch.zeros_like(x)
    for i, (row, on) in enumerate(zip(x, mask)):
        if on.sum() < least: continue
        kept = seen(row, on)
        var = ((kept - kept.mean())**2).sum() / (len(kept) - unbiased)
        whitened = (row - (kept.mean() if centre else 0)) / (var + eps)**root
        out[i] = whitened.masked_fill(~on, 0)
    return out

def _batch(x, mask):
    kept = x[mask]
    return ((x - kept.mean()) / (kept.var(correction=0) + 1e-8).sqrt()).masked_fill(~mask, 0)

def _kept_rest(x, mask): # the masked entries are moved and scaled as well
    out = _whiten(x, mask)
    for i, on in enumerate(mask):
        kept = x[i, on]
        if on.sum() > 1:
            out[i] = (x[i] - kept.mean()) / (kept.var(correction=0) + 1e-8).sqrt()
    return out

_x = torch.randn(3, 6, generator=_gen(5)) * tensor([[1.], [4.], [.3]]) + tensor([[0.], [3.], [-1.]])
_m = tensor([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0]]).bool()
_few = tensor([[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]).bool()
whiten_rows = Exercise(
    reference=_whiten,
    cases={"three rows, pads on both sides": (_x.clone().requires_grad_(), _m),
           "rows of one and of none": (_x, _few),
           "all alike": (torch.full((1, 4), 7.), torch.ones(1, 4).bool()),
           "nan where the mask is False": (_x.masked_fill(~_m, torch.nan), _m),
           "one row": (tensor([[1., 2., 3., 6.]]), torch.ones(1, 4).bool()),
           "bf16": (torch.randn(3, 6, generator=_gen(6)).bfloat16(), _m)},
    mistakes={
        "mean and std are of the whole batch: take them per row": _batch,
        "divided by n - 1: the population std divides by n": lambda x, m: _whiten(x, m, unbiased=1),
        "the mean is taken off, the scale is not: divide by the std":
            lambda x, m: _whiten(x, m, root=0),
        "that is divided by the variance: take its root": lambda x, m: _whiten(x, m, root=1),
        "the mean stays in: take it off": lambda x, m: _whiten(x, m, centre=False),
        "the masked entries must be 0": _kept_rest,
        "pads are in the mean and in the std": lambda x, m: _whiten(
            x, m, least=0, seen=lambda row, on: row.masked_fill(~on, 0)),
        "0 / 0 where a row does not vary: add something small under the root":
            lambda x, m: _whiten(x, m, least=1, eps=0.),
        "that goes down the columns: the rows are dim 1":
            lambda x, m: _whiten(x.T, m.T).T.contiguous()})

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
        "the first token is counted: nothing stands before it":
            lambda *a: _counted(*a, first=0),
        "the last token of each row is missing, and it is the eos":
            lambda ids, n, pad: _counted(ids, n - 1, pad),
        "one pad is counted: the last token stands at lengths - 1":
            lambda ids, n, pad: _counted(ids, n + 1, pad),
        "each row ends at its own length, not at the longest": lambda ids, n, pad: _counted(
            ids, torch.full_like(n, int(n.max())), pad),
        "the pads are counted": lambda ids, n, pad: _counted(ids, torch.full_like(n, 99), pad),
        "it ends at the first eos: a row may hold two turns": _to_first_end,
        "upside down: True is what the loss counts": lambda *a: ~_counted(*a)})
