"Exercises of the chapter on distillation."
import torch
from torch import Generator, tensor
from rlhf_nb import distillation as package
from rlhf_nb.book.checks import Exercise

def _drawn(seed, *shape, dtype=torch.float32): # log-probs of student and teacher, and tokens
    g = Generator().manual_seed(seed)
    own, teachers = (torch.randn(*shape, generator=g).to(dtype).log_softmax(-1) for _ in range(2))
    return own.requires_grad_(), teachers, torch.randint(shape[-1], shape[:-1], generator=g)

CASES = {"two words": (tensor([.8, .2]).log().requires_grad_(), tensor([.5, .5]).log(), tensor(0)),
         "a row of places": _drawn(0, 3, 4), "two rows": _drawn(1, 2, 3, 5), "many words": _drawn(2, 6, 50),
         "double precision": _drawn(3, 4, 6, dtype=torch.float64)}

# ------------------------------------------------------------------ forward_kl
def _sum(weight, gap): return (weight.exp() * gap).sum(-1)

forward_kl = Exercise(
    reference=package.forward_kl, cases=CASES,
    mistakes={
        "that is the reverse KL: the teacher's probabilities weigh, and its log-probs come first":
            lambda p, q, y: _sum(p, p - q),
        "the weights are the teacher's probabilities, not the student's": lambda p, q, y: _sum(p, q - p),
        "the sign: log π_T - log π": lambda p, q, y: _sum(q, p - q),
        "a probability is exp of a log-prob": lambda p, q, y: (q * (q - p)).sum(-1),
        "the sum over words, not their mean": lambda p, q, y: (q.exp() * (q - p)).mean(-1),
        "one number for each place: sum over the last axis only": lambda p, q, y: _sum(q, q - p).sum(),
        "not of the token that stands there: of all words":
            lambda p, q, y: (q - p).gather(-1, y[..., None])[..., 0],
        "the teacher's probabilities are missing": lambda p, q, y: (q - p).sum(-1),
        "that is the cross-entropy: the teacher's own log-probs are missing": lambda p, q, y: _sum(q, -p),
        "the student learns: no detach, a gradient flows through `logp`": lambda p, q, y: _sum(q, q - p.detach()),
        "in nats, with the natural logarithm ln: divided by ln 2 it is in bits, log2": lambda p, q, y: _sum(q, q - p) / 0.6931471805599453,
        "the sum over all words, not the sampled token's term alone: `token` is not read": lambda p, q, y: (q.exp() * (q - p)).gather(-1, y[..., None])[..., 0],
        "the sum over all words, not the term of the teacher's likeliest one alone (argmax)": lambda p, q, y: (q.exp() * (q - p)).gather(-1, q.argmax(-1, keepdim=True))[..., 0],
        "the sum over all words, not the gap at the teacher's likeliest one alone (argmax)": lambda p, q, y: (q - p).gather(-1, q.argmax(-1, keepdim=True))[..., 0],
        "the sum over all words, not the largest gap (max)": lambda p, q, y: (q - p).amax(-1),
        "the forward KL alone: that is half of forward and reverse KL, a symmetric mix of both": lambda p, q, y: (_sum(q, q - p) + _sum(p, p - q)) / 2,
        "the forward KL alone: that is the sum of forward and reverse KL, Jeffreys' symmetric one": lambda p, q, y: _sum(q, q - p) + _sum(p, p - q),
        "the forward KL alone: that is Jensen and Shannon's, each against the mixture of both": lambda p, q, y: (lambda m: (_sum(q, q - m) + _sum(p, p - m)) / 2)(
            torch.logaddexp(p, q) - 0.6931471805599453),
        "that is the student's cross-entropy with its own weights: the teacher's probabilities weigh, and its log-probs come first": lambda p, q, y: _sum(p, -q),
        "that is the teacher's entropy alone: the student's log-probs are missing": lambda p, q, y: _sum(q, -q) + 0 * p.sum(-1),
        "that is minus the teacher's entropy: the student's log-probs are missing": lambda p, q, y: _sum(q, q) + 0 * p.sum(-1),
        "weighed by probabilities of the mixture: the teacher's alone are asked for": lambda p, q, y: ((p.exp() + q.exp()) / 2 * (q - p)).sum(-1),
        "the gap is of log-probs: log(π_T / π), the logarithm of the ratio, not the ratio of both log-probs": lambda p, q, y: (q.exp() * (q / p).log()).sum(-1),
        "π_T weighs the whole gap, log π too: a bracket is missing": lambda p, q, y: (q.exp() * q - p).sum(-1),
        "that is k3 of the gaps, exp(gap) - 1 - gap, over all words: π_T times the gap is asked for": lambda p, q, y: ((q - p).exp() - 1 - (q - p)).sum(-1),
        "that is k3 of the gaps, over all words: π_T times the gap is asked for": lambda p, q, y: ((p - q).exp() - 1 - (p - q)).sum(-1),
        "the sum over words, not their mean; and the student's probabilities weigh: that is the reverse KL's direction": lambda p, q, y: (p.exp() * (p - q)).mean(-1),
        "the gap is of log-probs, log π_T - log π, not of probabilities": lambda p, q, y: (q.exp() * (q.exp() - p.exp())).sum(-1),
        "that is the distance of probabilities, half of the sum of absolute differences: gaps are of logs": lambda p, q, y: (q.exp() - p.exp()).abs().sum(-1) / 2,
        "the gap itself, not its square": lambda p, q, y: _sum(q, (q - p)**2),
        "the gap itself, not half its square": lambda p, q, y: _sum(q, (q - p)**2) / 2,
        "that is the mean square of the gaps: the teacher's probabilities weigh, and nothing is squared": lambda p, q, y: ((q - p)**2).mean(-1),
        "one number for each place, not their mean: sum over the last axis only": lambda p, q, y: _sum(q, q - p).mean(),
        "the sum over words, for each place: not divided by the number of places": lambda p, q, y: (_sum(q, q - p) / (len(y) if y.ndim else 1)),
        "each gap has its sign: not cut off at 0": lambda p, q, y: _sum(q, (q - p).relu()),
        "a word's term may be below 0: each gap has its sign, nothing is absolute": lambda p, q, y: _sum(q, (q - p).abs()),
        "the sum over words is there, not a table (... v): sum over the last axis": lambda p, q, y: q.exp() * (q - p)})

# ------------------------------------------------------------------ sampled_kl
def _at(x, y): return x.gather(-1, y[..., None])[..., 0]
def _gap(p, q, y): return _at(p, y) - _at(q, y)

sampled_kl = Exercise(
    reference=package.sampled_kl,
    cases=CASES | {"a teacher that could learn": (lambda p, q, y: (p, q.requires_grad_(), y))(*_drawn(4, 3, 5))},
    mistakes={
        "r is a constant: no gradient flows into the teacher, so detach its log-prob too": lambda p, q, y: (_at(p, y).detach() - _at(q, y)) * _at(p, y),
        "half the square of the gap, k2: -r log π with a constant r is asked for": lambda p, q, y: _gap(p, q, y)**2 / 2,
        "that is the square of the gap: -r log π with a constant r, a product with the student's log-prob": lambda p, q, y: _gap(p, q, y)**2,
        "that is k3, exp(-gap) - 1 + gap: -r log π with a constant r is asked for": lambda p, q, y: (lambda g: (-g).exp() - 1 + g)(_gap(p, q, y)),
        "log π multiplies r, not the ratio π / π_old, whose value is 1": lambda p, q, y: _gap(p, q, y).detach() * (_at(p, y) - _at(p, y).detach()).exp(),
        "log π of the sampled token multiplies r, not the sum over all words": lambda p, q, y: _gap(p, q, y).detach() * p.sum(-1),
        "r times log π: that is their sum": lambda p, q, y: _gap(p, q, y).detach() + _at(p, y),
        "log π multiplies r, not the ratio of student and teacher": lambda p, q, y: _gap(p, q, y).detach() * _gap(p, q, y).exp(),
        "the constant r alone: log π, which has the gradient, is missing": lambda p, q, y: _gap(p, q, y).detach() + 0 * _at(p, y),
        "the reward is what it is: not cut off at 0": lambda p, q, y: _gap(p, q, y).detach().relu() * _at(p, y),
        "the reward is what it is, with its sign: not its absolute value": lambda p, q, y: _gap(p, q, y).detach().abs() * _at(p, y),
        "the reward is what it is: not clipped at -1 and 1": lambda p, q, y: _gap(p, q, y).detach().clamp(-1, 1) * _at(p, y),
        "-log π of the student, not of the teacher, multiplies r": lambda p, q, y: _gap(p, q, y) * _at(q, y).detach(),
        "one number for each place, not their sum": lambda p, q, y: (_gap(p, q, y).detach() * _at(p, y)).sum(),
        "a difference of log-probs, not their ratio": lambda p, q, y: (_at(p, y) / _at(q, y)).detach() * _at(p, y),
        "the reward is not normalised: less its mean, over its standard deviation": lambda p, q, y: (lambda g: (g - g.mean()) / (g.std(correction=0) + 1e-8))(_gap(p, q, y).detach()) * _at(p, y),
        "not of all words: that is the forward KL": lambda p, q, y: _sum(q, q - p),
        "of the token that stands there, not of the teacher's likeliest": lambda p, q, y: package.sampled_kl(p, q, q.argmax(-1)),
        "not weighed by π: the word was sampled already": lambda p, q, y: _gap(p, q, y).detach() * _at(p, y) * _at(p, y).exp().detach(),
        "the difference is over the student's and teacher's log-probs of one word, not over sums of all": lambda p, q, y: (p - q).sum(-1).detach() * _at(p, y),
        "the reward is a constant: detach it": lambda p, q, y: _gap(p, q, y) * _at(p, y),
        "the gap alone has a gradient of 0 on average: it must multiply log π": lambda p, q, y: _gap(p, q, y),
        "the sign: a word that the teacher likes more than the student should rise":
            lambda p, q, y: -_gap(p, q, y).detach() * _at(p, y),
        "the gap is a constant and log π learns: detach stands at the wrong one": lambda p, q, y: _gap(p, q, y) * _at(p, y).detach(),
        "one token's own gap, not the sum of what follows": lambda p, q, y: _gap(p, q, y).detach().view(*y.shape[:-1], -1).flip(-1).cumsum(-1).flip(-1).view(y.shape) * _at(p, y),
        "no baseline: the gap itself, not less its mean": lambda p, q, y: (lambda g: g - g.mean())(_gap(p, q, y).detach()) * _at(p, y),
        "log π, not π": lambda p, q, y: _gap(p, q, y).detach() * _at(p, y).exp(),
        "no gradient reaches the student: only the gap is a constant, so detach that alone; log π learns": lambda p, q, y: _gap(p, q, y).detach() * _at(p, y).detach(),
        "of the token that stands there, not of the likeliest": lambda p, q, y: package.sampled_kl(p, q, p.argmax(-1)),
        "of the token that stands there, not of all words: that is the exact KL": lambda p, q, y: _sum(p, p - q),
        "of the token that stands there, not summed over all words": lambda p, q, y: ((p - q).detach() * p).sum(-1),
        "the difference of log-probs, not of probabilities":
            lambda p, q, y: (_at(p, y).exp() - _at(q, y).exp()).detach() * _at(p, y),
        "the student's own log-prob belongs to the reward": lambda p, q, y: -_at(q, y) * _at(p, y),
        "the teacher's log-prob belongs to the reward": lambda p, q, y: _at(p, y).detach() * _at(p, y),
        "a token's log-prob, not the mean over the places":
            lambda p, q, y: (_gap(p, q, y).detach() * _at(p, y)).mean()})

# ------------------------------------------------------------------ fixed_alignment
def _rows(*masks): # texts of 0 and 1
    mask = tensor([[int(c) for c in m] for m in masks]).bool()
    return torch.arange(1., mask.numel() + 1).view(mask.shape), mask

def _aligned(x, mask, pick=lambda row, m: row[m], fill=0.):
    rows = [pick(row, m) for row, m in zip(x, mask)]
    out = torch.full((len(x), max(map(len, rows))), fill, dtype=x.dtype)
    for i, row in enumerate(rows): out[i, :len(row)] = row
    return out

fixed_alignment = Exercise(
    reference=_aligned,
    cases={"prompts of one length": _rows("0111", "0110"), "prompts of two lengths": _rows("01110", "00011"),
           "an answer of one word": _rows("00010", "01111"), "one row": _rows("00111"),
           "a longer prompt in the first row": _rows("000011", "011100", "001000"),
           "a gap in an answer": _rows("01011", "00110"), "values of 0": (lambda x, m: (x % 3, m))(*_rows("01111", "00111")),
           "double precision": (lambda x, m: (x.double(), m))(*_rows("0111", "0011")),
           "nan outside of the mask": (lambda x, m: (x.masked_fill(~m, torch.nan), m))(*_rows("01110", "00110")),
           "a row without a word": _rows("0000", "0110"), "values beyond float32": (lambda x, m: (x.double() * 1e300, m))(*_rows("0111", "0011")),
           "values below 0": (lambda x, m: (-x, m))(*_rows("0110", "0011")), "the shortest answer first": _rows("00100", "01111", "00110"),
           "the longest answer first": _rows("01111", "00100", "00110"), "an answer from the first column on": _rows("1110", "0011")},
    mistakes={
        "as it was: columns are compared": lambda x, m: x * m,
        "as it was: columns are compared, with nothing moved": lambda x, m: x.masked_fill(~m, 0),
        "the width is that of the longest answer, not of the first row: every row has room, nothing is cut": lambda x, m: _wide(x, m, int(m[0].sum())),
        "the width is that of the longest answer, not of the last row": lambda x, m: _wide(x, m, int(m[-1].sum())),
        "the width is that of the longest answer, not their mean": lambda x, m: _wide(x, m, int(m.sum(1).float().mean())),
        "each row has its own prompt: every row is shifted by that of the first": lambda x, m: _moved(x, m, m.int().argmax(1)[:1].expand(len(x))),
        "each row has its own prompt: every row is shifted by the longest": lambda x, m: _moved(x, m, m.int().argmax(1).max().expand(len(x))),
        "each row has its own prompt: every row is shifted by the shortest": lambda x, m: _moved(x, m, m.int().argmax(1).min().expand(len(x))),
        "one list for each row: x[mask] alone is flat and keeps no rows": lambda x, m: x[m],
        "each row without a word keeps its place, all 0: none is dropped": lambda x, m: _aligned(x[m.any(1)], m[m.any(1)]),
        "the words keep their order, from first to last: they are sorted": lambda x, m: _aligned(x, m, lambda row, k: row[k].sort().values),
        "the words keep their order, from first to last: they are sorted, the largest first": lambda x, m: _aligned(x, m, lambda row, k: row[k].sort(descending=True).values),
        "down the columns is another order: row by row": lambda x, m: _aligned(x.T, m.T),
        "where mask is True, not one place before it: shifted": lambda x, m: _aligned(x, torch.cat([m[:, 1:], torch.zeros_like(m[:, :1])], 1)),
        "where mask is True, not one place behind it: shifted": lambda x, m: _aligned(x, torch.cat([torch.zeros_like(m[:, :1]), m[:, :-1]], 1)),
        "the words of an answer stand in its row: no row takes another's":
            lambda x, m: (lambda n: torch.nn.functional.pad(x[m], (0, len(x) * n - int(m.sum()))).view(len(x), n))(int(m.sum(1).max())),
        "shifted by one: the first word belongs to the answer": lambda x, m: _aligned(x, m, lambda row, k: row[k][1:]),
        "shifted by one: the last word belongs to the answer": lambda x, m: _aligned(x, m, lambda row, k: row[k][:-1]),
        "all words move to the left: the first columns are cut out, nothing has moved": lambda x, m: (x * m)[:, :int(m.sum(1).max())],
        "all words move to the left: the first columns are cut out, prompt and all": lambda x, m: x[:, :int(m.sum(1).max())],
        "all words move to the left: the last columns are cut out, where some rows end before": lambda x, m: (x * m)[:, -int(m.sum(1).max()):],
        "the last word of each answer is lost": lambda x, m: (lambda y, n: y.masked_fill(torch.arange(y.shape[1]) >= n[:, None] - 1, 0))(_aligned(x, m), m.sum(1)),
        "the first word of each answer is lost: the others stand one place early": lambda x, m: torch.nn.functional.pad(_aligned(x, m)[:, 1:], (0, 1)),
        "0 fills up behind an answer, not 1": lambda x, m: _aligned(x, m, fill=1.), "0 fills up behind an answer, not -1": lambda x, m: _aligned(x, m, fill=-1.),
        "that is what the mask leaves out: it is True on the answer, not False": lambda x, m: (lambda n: torch.stack([
            torch.nn.functional.pad(row[~k], (0, n))[:n].masked_fill(torch.arange(n) >= k.sum(), 0) for row, k in zip(x, m)]))(int(m.sum(1).max())),
        "that is the prompt: the mask is True on the answer": lambda x, m: _aligned(x, m, lambda row, k: row[~k]),
        "to the left, not to the right": lambda x, m: _aligned(x, m).flip(1) if m.sum(1).min() == m.sum(1).max() else torch.stack(
            [torch.nn.functional.pad(row[k], (int(m.sum(1).max() - k.sum()), 0)) for row, k in zip(x, m)]),
        "backwards: the words keep their order": lambda x, m: _aligned(x, m, lambda row, k: row[k].flip(0)),
        "the width is that of the longest answer, not of the rows":
            lambda x, m: torch.nn.functional.pad(y := _aligned(x, m), (0, x.shape[1] - y.shape[1])),
        "0 behind an answer, not nan": lambda x, m: _aligned(x, m, fill=float("nan")),
        "an answer may hold a gap: take what the mask holds, not all from its first word on": lambda x, m: (lambda n: torch.nn.functional.pad(x, (0, n)).gather(
            1, m.int().argmax(1)[:, None] + torch.arange(n)).masked_fill(torch.arange(n) >= m.sum(1, keepdim=True), 0))(int(m.sum(1).max())),
        "0 behind a shorter answer, not what stands outside of the mask": lambda x, m: x.gather(
            1, (~m).int().sort(dim=1, stable=True).indices)[:, :int(m.sum(1).max())],
        "the width is that of the longest answer: it ends where the shortest does": lambda x, m: _aligned(x, m)[:, :int(m.sum(1).min())],
        "the width is that of the longest answer, not one more": lambda x, m: torch.nn.functional.pad(_aligned(x, m), (0, 1)),
        "each row keeps its own places: a column in which any row has a word is not kept for all": lambda x, m: (x * m)[:, m.any(0)],
        "a word of value 0 is a word: the mask says what counts, not the value": lambda x, m: _aligned(x, m & (x != 0))
            if (m & (x != 0)).sum(1).max() == m.sum(1).max() else torch.nn.functional.pad(
                y := _aligned(x, m & (x != 0)), (0, int(m.sum(1).max()) - y.shape[1])),
        "to the left, not to the right: zeros stand in front": lambda x, m: torch.stack([torch.nn.functional.pad(
            row[k], (int(m.sum(1).max() - k.sum()), 0)) for row, k in zip(x, m)]),
        "every row begins at a place of its own": lambda x, m: x[:, int(m.int().argmax(1)[0]):][:, :int(m.sum(1).max())],
        "every row begins at a place of its own: the columns of the first row's answer are cut out, with 0 outside of the mask":
            lambda x, m: (x * m)[:, int(m.int().argmax(1)[0]):][:, :int(m.sum(1).max())]})

def _wide(x, mask, n): # the first n columns, zeros where there are fewer
    out = torch.nn.functional.pad(_aligned(x, mask), (0, x.shape[1]))
    return out[:, :n]

def _moved(x, mask, by): # each row to the left by so many places, what the mask holds of it
    n = int(mask.sum(1).max())
    at = torch.arange(n) + by[:, None]
    def taken(y): return torch.nn.functional.pad(y, (0, n)).gather(1, at)
    return taken(x).masked_fill(~taken(mask), 0)

_SHAPES = "any leading shape: one place alone, logp (v) and token (), a row (b v), or (b t v)"
ASKED = {
    "forward_kl": {_SHAPES: "two words | two rows"},
    "sampled_kl": {
        "r is a constant: no gradient flows into the teacher either, so detach both of its log-probs": "a teacher that could learn",
        _SHAPES: "two words | two rows"},
    "fixed_alignment": {
        "what stands outside of the mask may be nan, and 0 times nan is nan: choose with the mask, do not multiply by it": "nan outside of the mask",
        "a row without a word is a row of 0: it keeps its place, none is left out or dropped": "a row without a word",
        "the dtype is that of x: float32 is too narrow for float64, in digits and in size, and torch.zeros makes float32": "double precision | values beyond float32",
        "a value of 0 is a value: the mask says what counts": "values of 0",
        "a value below 0 is a value as any other": "values below 0",
        "the mask may have a gap: its words stand together, what lies in the gap is left out": "a gap in an answer",
        "a shorter row ends with 0, not with what stands behind its answer": "an answer from the first column on | prompts of one length",
        "the width is that of the longest answer, in whichever row: no row is cut": "an answer of one word | the shortest answer first"}}
