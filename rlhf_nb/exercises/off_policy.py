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
        "a product over tokens: that is a sum of ratios, the 1 of every place outside, prompt and padding, added": lambda x, m, level:
            _ratios(x, m, "token").sum(1, keepdim=True) if level == "sequence" else _ratios(x, m, level),
        "a product over tokens: that is the mean of their ratios": lambda x, m, level:
            (_ratios(x, m, "token") * m).sum(1, keepdim=True) / m.sum(1, keepdim=True) if level == "sequence" else _ratios(x, m, level),
        "one ratio for each response: shape (b 1), not (b t), repeated or expanded along the row": lambda x, m, level:
            _ratios(x, m, level).expand(x.shape) if level == "sequence" else _ratios(x, m, level),
        "one ratio for each response: shape (b 1), not (b t), repeated on the response's tokens": lambda x, m, level:
            torch.where(m, _ratios(x, m, level), 1.) if level == "sequence" else _ratios(x, m, level),
        "one ratio for each response: shape (b 1), not (b t), repeated on the response's tokens and 0 outside": lambda x, m, level:
            torch.where(m, _ratios(x, m, level), 0.) if level == "sequence" else _ratios(x, m, level),
        "outside the response a ratio is 1 and changes no product: with 0 there the product is 0": lambda x, m, level:
            (_ratios(x, m, "token") * m).prod(1, keepdim=True) if level == "sequence" else _ratios(x, m, level),
        "the product over the response: prompt and padding count in it": lambda x, m, level: _ratios(x, m, level, pad=lambda x, m: x) if level == "sequence" else _ratios(x, m, level),
        "outside the response the ratio is 1, not what stands there": lambda x, m, level: _ratios(x, m, level, pad=lambda x, m: x) if level == "token" else _ratios(x, m, level),
        "per token the ratio of that token alone: not the product of all before it": lambda x, m, level:
            _ratios(x, m, level, pad=lambda x, m: x.masked_fill(~m, 0.).cumsum(1)) if level == "token" else _ratios(x, m, level),
        "raw ratios, of either size: nothing is clipped, no cap": lambda x, m, level: _ratios(x, m, level).clamp(max=1.),
        "no weights that sum to 1: raw ratios, not a softmax": lambda x, m, level: _ratios(x, m, level, out=lambda x: x.softmax(0)) if level == "sequence" else _ratios(x, m, level),
        "a sequence ends where its mask does: the ratio of its last token alone is not the product": lambda x, m, level: _ratios(
            x, m, level, join=lambda x, m: x.gather(1, (m.shape[1] - 1 - m.int().flip(1).argmax(1))[:, None])),
        "level says which: the two are exchanged, token and sequence": lambda x, m, level: _ratios(x, m, "token" if level == "sequence" else "sequence"),
        "the prefix's product is not the response's": lambda x, m, level: _ratios(x, m, level, join=lambda x, m: x.cumsum(1))})

# ------------------------------------------------------------------ bounded_weights
def _bounded(r, cap, floor=0., how="truncate", ends=lambda r, a, b: r.clamp(a, b), kept=lambda r, a, b: (r >= a) & (r <= b), fill=0.):
    return torch.where(kept(r, floor, cap), r, fill) if how == "mask" else ends(r, floor, cap)

RATIOS = tensor([[.1, .5, .9, 1.], [1.6, 2., 2.5, 40.]])
bounded_weights = Exercise(
    reference=_bounded,
    cases={"truncated at 2": (RATIOS, 2.), "truncated at both ends": (RATIOS, 1.5, .6), "masked beyond 2": (RATIOS, 2., 0., "mask"),
           "masked at both ends": (RATIOS, 2., .5, "mask"), "one ratio per response": (RATIOS[:, -1:], 3., .7, "mask"),
           "double precision": (RATIOS.double(), 2., .2), "a ratio of inf, masked": (tensor([.5, torch.inf, 1.5]), 2., 0., "mask"),
           "a ratio of inf, truncated": (tensor([.5, torch.inf, 1.5]), 2.), "at the ends themselves": (tensor([.5, .6, 2., 1.9]), 2., .5, "mask"),
           "one ratio alone": (tensor(3.), 2., .5), "three axes": (RATIOS.view(2, 2, 2), 2., .7, "mask"), "all within": (tensor([.8, 1.2]), 2., .5, "mask")},
    mistakes={
        "masked is weight 0, not truncated: what is clamped first never lies outside, and nothing is masked any more": lambda r, c, f=0., how="truncate": _bounded(r, c, f),
        "truncated keeps a weight at the end, it does not drop it": lambda r, c, f=0., how="truncate": _bounded(r, c, f, "mask"),
        "what lies inside is kept, the ratio itself: that is the mask alone, 0 or 1": lambda r, c, f=0., how="truncate":
            ((r >= f) & (r <= c)).to(r) if how == "mask" else _bounded(r, c, f),
        "a masked ratio weighs 0, not 1": lambda *x: _bounded(*x, fill=1.),
        "there are two ends: floor is missing": lambda r, c, f=0., how="truncate": _bounded(r, c, 0., how),
        "0 times inf is nan: put 0 in the place with masked_fill or where, do not multiply by the mask": lambda r, c, f=0., how="truncate":
            r * ((r >= f) & (r <= c)) if how == "mask" else _bounded(r, c, f),
        "truncated is moved to the nearer end: below floor it becomes floor, not 0": lambda r, c, f=0., how="truncate":
            r.clamp(max=c).masked_fill(r < f, 0.) if how == "truncate" else _bounded(r, c, f, how),
        "truncated is moved to the nearer end, above cap too: it becomes cap, not 0": lambda r, c, f=0., how="truncate":
            r.clamp(min=f).masked_fill(r > c, 0.) if how == "truncate" else _bounded(r, c, f, how),
        "masked on both sides: what lies below floor weighs 0 too, it is not truncated": lambda r, c, f=0., how="truncate":
            r.clamp(min=f).masked_fill(r > c, 0.) if how == "mask" else _bounded(r, c, f, how),
        "masked on both sides: what lies above cap weighs 0 too, it is not truncated": lambda r, c, f=0., how="truncate":
            r.clamp(max=c).masked_fill(r < f, 0.) if how == "mask" else _bounded(r, c, f, how),
        "cap and floor are the bounds themselves, no distances from 1 as in PPO's clip": lambda r, c, f=0., how="truncate": _bounded(r, 1 + c, 1 - c, how),
        "cap and floor are the bounds themselves, no distances from 1": lambda r, c, f=0., how="truncate": _bounded(r, 1 + c, 1 - f, how),
        "floor is the smallest ratio, an argument: it is not used, 1 / cap stands there": lambda r, c, f=0., how="truncate": _bounded(r, c, 1 / c, how),
        "ratios, not their logs, come back": lambda *x: _bounded(*x).log(),
        "floor is the smallest ratio as it is given, not 1 / cap": lambda r, c, f=0., how="truncate": _bounded(r, c, f or 1 / c, how),
        "a ratio is bounded by itself, not with all others of its row": lambda r, c, f=0., how="truncate":
            r.masked_fill(((r < f) | (r > c)).any(-1, keepdim=True), 0.) if how == "mask" else _bounded(r, c, f),
        "raw ratios within the bounds: nothing is normalised, divided by the mean": lambda *x: _bounded(*x) / _bounded(*x).mean(),
        "what is masked keeps its place and weighs 0: it is not left out, the shape stays": lambda r, c, f=0., how="truncate":
            r[(r >= f) & (r <= c)] if how == "mask" else _bounded(r, c, f),
        "a ratio at the end itself is kept: at cap": lambda *x: _bounded(*x, kept=lambda r, a, b: (r >= a) & (r < b)),
        "a ratio at the end itself is kept: at floor": lambda *x: _bounded(*x, kept=lambda r, a, b: (r > a) & (r <= b)),
        "what lies outside weighs 0: it is not nan": lambda *x: _bounded(*x, fill=torch.nan),
        "what lies outside is moved to the nearer end: here it is moved to the other one": lambda r, c, f=0., how="truncate":
            torch.where(r > c, f, torch.where(r < f, c, r)) if how == "truncate" else _bounded(r, c, f, how),
        "\"truncate\" and \"mask\" are exchanged": lambda r, c, f=0., how="truncate": _bounded(r, c, f, "mask" if how == "truncate" else "truncate"),
        "the bounds are of ratios, not of their logs": lambda r, c, f=0., how="truncate": _bounded(r.log(), c, f, how),
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
           "one far below the others": (tensor([90., 91., -900.]),), "one far above the others": (tensor([0., 1., .5, 300.]),), "some of probability 0": (tensor([0., -torch.inf, 1.]),),
           "all of probability 0": (tensor([-torch.inf, -torch.inf]),), "above 0": (tensor([1., 4., 6., 2.]),),
           "double precision": (torch.randn(9, generator=Generator().manual_seed(0)).double(),)},
    mistakes={
        "a mean, or one of them, is not enough: exp still overflows to inf where one ratio is far below the others, so subtract the largest":
            lambda x: (lambda w: w.sum()**2 / (len(w) * (w**2).sum()))((x - x.mean()).exp()),
        "exp of hundreds is inf: subtract the largest, not the first or the median": lambda x: (lambda w: w.sum()**2 / (len(w) * (w**2).sum()))((x - x.median()).exp()),
        "log-ratios are differences: divided by the largest they make other weights; subtract it": lambda x: (lambda w: w.sum()**2 / (len(w) * (w**2).sum()))((x / x.max()).exp()),
        "the share itself: the root of Σ w² below wants the root of nothing, (Σ w)² stands above it": lambda x: _size(x, share=lambda w: w.sum() / (len(w) * (w**2).sum().sqrt())),
        "that bounds the log-ratios, a clamp: all that lie beyond count alike, and the weights are other ones; subtract the largest": lambda x: _size(x.clamp(-20, 20)),
        "a bound on log-ratios, a clamp, makes other weights of large ones: subtract the largest": lambda x: _size(x.clamp(-5, 5)),
        "a bound from above on log-ratios, a clamp, makes other weights: subtract the largest": lambda x: _size(x.clamp(max=20)),
        "a bound on the ratios, a cap or clip, makes other weights": lambda x: (lambda w: w.sum()**2 / (len(w) * (w**2).sum()))(x.exp().clamp(max=10.)),
        "nan and inf are hidden, not avoided: subtract the largest": lambda x: (lambda w: w.sum()**2 / (len(w) * (w**2).sum()))(x.exp()).nan_to_num(0.),
        "nan if all weights are 0: nothing is hidden": lambda x: _size(x).nan_to_num(0.),
        "the sign: w = π/q is exp of the log-ratio, not q/π": lambda x: _size(-x),
        "divide by n once, not twice: equal weights give 1": lambda x: _size(x) / len(x),
        "the share itself, not its root": lambda x: _size(x).sqrt(),
        "the share itself, not its log": lambda x: _size(x).log(),
        "the effective share, not what is lost of it: 1 less that": lambda x: 1 - _size(x),
        "that is the share of weights above their mean, a count: Kish's has squares": lambda x: (x.softmax(0) > 1 / len(x)).float().mean(),
        "that is the share of ratios above 1, a count: Kish's has squares": lambda x: (x > 0).float().mean(),
        "that is the variance of n - 1: 1 / (1 + var / mean²) wants that of n": lambda x: _size(x, share=lambda w: 1 / (1 + w.var() / w.mean()**2)),
        "that is the variance, or std, alone: Kish's is 1 / (1 + var / mean²)": lambda x: _size(x, share=lambda w: w.var(correction=0) / w.mean()**2),
        "the squares are of the weights: w is exp of the log-ratio, and log-ratios themselves are no weights": lambda x: x.sum()**2 / (len(x) * (x**2).sum()),
        "the sum of squares is the denominator, not the square of the sum: that is 1 / n for all": lambda x: _size(x, share=lambda w: w.sum()**2 / (len(w) * w.sum()**2)),
        "1 over the sum of squares, then a share of n: that multiplies by n": lambda x: len(x) / (x.softmax(0)**2).sum(),
        "that is the entropy itself: Kish's has squares of weights": lambda x: (lambda p: -(p * p.clamp(min=1e-30).log()).sum())(x.softmax(0)),
        "that is the entropy's count, exp of the entropy, not Kish's, and no share of n": lambda x: (lambda p: torch.exp(-(p * p.clamp(min=1e-30).log()).sum()))(x.softmax(0)),
        "that is 1 / the largest weight, not Kish's squares, and no share of n": lambda x: 1 / x.softmax(0).max(),
        "as a share of n: divide by n": lambda x: _size(x, share=lambda w: w.sum()**2 / (w**2).sum()),
        "upside down": lambda x: 1 / _size(x),
        "weights are ratios: exp of the log-ratio": lambda x: _size(x, weight=lambda x: x - x.mean() + 1),
        "the squares are of the weights, not of their sum": lambda x: _size(x, share=lambda w: (w**2).sum() / w.sum()**2),
        "exp of hundreds is inf: subtract the largest first, or take a softmax": lambda x: (lambda w: w.sum()**2 / (len(w) * (w**2).sum()))(x.exp()),
        "that is the entropy's count, not Kish's": lambda x: (lambda p: torch.exp(-(p * p.clamp(min=1e-30).log()).sum()) / len(p))(x.softmax(0)),
        "that is 1 / the largest weight": lambda x: (lambda p: 1 / (len(p) * p.max()))(x.softmax(0)),
        "square the weights": lambda x: _size(x, share=lambda w: w.sum() / (len(w) * (w**2).sum()))})

ASKED = {
    "importance_ratios": {
        "masked places may hold anything: nan or inf there must not get through, and 0 times nan is nan; write 0 with masked_fill or where":
            " | ".join(f"{x} outside the response, per {y}" for x in ("nan", "inf") for y in ("token", "sequence")),
        "float32 at least: log-ratios in bf16 go to float32 before exp and sum": "bf16, per token | bf16, per sequence"},
    "bounded_weights": {
        "a ratio that overflowed is inf and lies outside: masked it weighs 0, and 0 times inf is nan, so write 0 with masked_fill or where":
            "a ratio of inf, masked | a ratio of inf, truncated",
        "a ratio at the end itself lies within: what equals floor or cap is kept, < and > are strict": "at the ends themselves | masked at both ends | masked beyond 2",
        "any shape: one ratio alone, a row or more axes": "one ratio alone | three axes | one ratio per response"},
    "effective_sample_size": {
        "nan if all weights are 0: nothing hides it": "all of probability 0",
        "a response of probability 0 has weight 0 and counts in n": "some of probability 0",
        "log-ratios of hundreds: exp overflows to inf or is 0, so subtract the largest, or take a softmax; a bound, clamp or clip makes other weights, and the mean is no scale":
            "huge ratios | tiny ratios | one far below the others | one far above the others | one counts"}}
