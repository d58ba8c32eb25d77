"Exercises of the chapter on samplers that are not the learner."
import torch
from torch import Generator, tensor
from rlhf_nb import off_policy as package
from rlhf_nb.book.checks import Exercise

def _drawn(seed, *lengths, dtype=torch.float32): # log-ratios with rubbish outside the responses, and their mask
    x = torch.randn(len(lengths), max(lengths) + 2, generator=Generator().manual_seed(seed)).to(dtype) / 2
    at = torch.arange(x.shape[1])
    mask = (at > 0) & (at <= tensor(lengths)[:, None])
    return x.masked_fill(~mask, 7.), mask

# ------------------------------------------------------------------ importance_ratios
def _rubbish(seed, fill): # where no token of the response stands
    x, mask = _drawn(seed, 2, 4, 1)
    return x.masked_fill(~mask, fill), mask

def _ratios(x, mask, level, pad=lambda x, m: x.masked_fill(~m, 0.), join=lambda x, m: x.sum(1, keepdim=True), out=torch.exp):
    x = pad(x.to(torch.promote_types(x.dtype, torch.float32)), mask)
    return out(join(x, mask) if level == "sequence" else x)

importance_ratios = Exercise(
    reference=_ratios,
    cases={f"{name}, per {level}": (*case, level) for level in ("token", "sequence") for name, case in {
        "rows of one length": _drawn(0, 3, 3), "rows of three lengths": _drawn(1, 2, 4, 1), "one long row": _drawn(2, 9),
        "double precision": _drawn(3, 2, 3, dtype=torch.float64), "nan outside the response": _rubbish(4, torch.nan),
        "inf outside the response": _rubbish(5, torch.inf), "bf16": (lambda x, m: (x.bfloat16(), m))(*_drawn(6, 2, 4, 1))}.items()},
    mistakes={
        "only response tokens count: 0 where mask is False": lambda x, m, level: _ratios(x, m, level, pad=lambda x, m: x),
        "a ratio is exp of a difference of logs": lambda x, m, level: _ratios(x, m, level, out=lambda x: x),
        "the ratio is π / q, not q / π": lambda x, m, level: _ratios(-x, m, level),
        "a response's ratio is a product: sum the logs, not their mean": lambda x, m, level:
            _ratios(x, m, level, join=lambda x, m: x.sum(1, keepdim=True) / m.sum(1, keepdim=True)),
        "a product over tokens, not a sum of ratios": lambda x, m, level: _ratios(x, m, "token").mul(m).sum(1, keepdim=True)
            if level == "sequence" else _ratios(x, m, level),
        "per token: no sum over the row": lambda x, m, level: _ratios(x, m, "sequence"),
        "per sequence: one ratio for each row": lambda x, m, level: _ratios(x, m, "token"),
        "outside the response the ratio is 1": lambda x, m, level: _ratios(x, m, level).mul(m) if level == "token" else _ratios(x, m, level),
        "one number for each row, not for the batch": lambda x, m, level:
            _ratios(x, m, level, join=lambda x, m: x.sum().expand(len(x), 1)),
        "shape (b 1), so that it multiplies (b t)": lambda x, m, level: _ratios(x, m, level, join=lambda x, m: x.sum(1)),
        "the prefix's product is not the response's": lambda x, m, level: _ratios(x, m, level, join=lambda x, m: x.cumsum(1))})

# ------------------------------------------------------------------ bounded_weights
def _bounded(r, cap, floor=0., how="truncate", ends=lambda r, a, b: r.clamp(a, b), kept=lambda r, a, b: (r >= a) & (r <= b), fill=0.):
    return torch.where(kept(r, floor, cap), r, fill) if how == "mask" else ends(r, floor, cap)

RATIOS = tensor([[.1, .5, .9, 1.], [1.6, 2., 2.5, 40.]])
bounded_weights = Exercise(
    reference=_bounded,
    cases={"truncated at 2": (RATIOS, 2.), "truncated at both ends": (RATIOS, 1.5, .6), "masked beyond 2": (RATIOS, 2., 0., "mask"),
           "masked at both ends": (RATIOS, 2., .5, "mask"), "one ratio per response": (RATIOS[:, -1:], 3., .7, "mask"),
           "double precision": (RATIOS.double(), 2., .2)},
    mistakes={
        "masked is weight 0, not truncated": lambda r, c, f=0., how="truncate": _bounded(r, c, f),
        "truncated keeps a weight at the end, it does not drop it": lambda r, c, f=0., how="truncate": _bounded(r, c, f, "mask"),
        "what is within keeps its ratio: that is the mask alone, 1 or 0": lambda r, c, f=0., how="truncate":
            ((r >= f) & (r <= c)).to(r) if how == "mask" else _bounded(r, c, f),
        "a masked ratio weighs 0, not 1": lambda *x: _bounded(*x, fill=1.),
        "there are two ends: floor is missing": lambda r, c, f=0., how="truncate": _bounded(r, c, 0., how),
        "there are two ends: cap is missing": lambda r, c, f=0., how="truncate": _bounded(r, 1e9, f, how),
        "a ratio at the end itself is within": lambda *x: _bounded(*x, kept=lambda r, a, b: (r > a) & (r < b)),
        "what lies outside is masked, what lies within is kept": lambda *x: _bounded(*x, kept=lambda r, a, b: (r < a) | (r > b)),
        "beyond the end a ratio becomes the end, not 1": lambda *x: _bounded(
            *x, ends=lambda r, a, b: torch.where((r < a) | (r > b), 1., r))})

# ------------------------------------------------------------------ effective_sample_size
def _size(x, weight=torch.exp, share=lambda w: w.sum()**2 / (len(w) * (w**2).sum())):
    return share(weight(x - x.max()))

effective_sample_size = Exercise(
    reference=lambda x: _size(x),
    cases={"1 and 3": (tensor([1., 3.]).log(),), "all alike": (torch.zeros(5),), "one counts": (tensor([-30., 0., -30., -30.]),),
           "huge ratios": (tensor([500., 501., 499.]),), "tiny ratios": (tensor([-500., -502., -501.]),),
           "double precision": (torch.randn(9, generator=Generator().manual_seed(0)).double(),)},
    mistakes={
        "as a share of n: divide by n": lambda x: _size(x, share=lambda w: w.sum()**2 / (w**2).sum()),
        "upside down": lambda x: 1 / _size(x),
        "weights are ratios: exp of the log-ratio": lambda x: _size(x, weight=lambda x: x - x.mean() + 1),
        "the squares are of the weights, not of their sum": lambda x: _size(x, share=lambda w: (w**2).sum() / w.sum()**2),
        "exp of hundreds is inf: subtract the largest first, or take a softmax": lambda x: (lambda w: w.sum()**2 / (len(w) * (w**2).sum()))(x.exp()),
        "that is the entropy's count, not Kish's": lambda x: (lambda p: torch.exp(-(p * p.clamp(min=1e-30).log()).sum()) / len(p))(x.softmax(0)),
        "that is 1 / the largest weight": lambda x: (lambda p: 1 / (len(p) * p.max()))(x.softmax(0)),
        "square the weights": lambda x: _size(x, share=lambda w: w.sum() / (len(w) * (w**2).sum()))})
