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
        "the student learns: no detach": lambda p, q, y: _sum(q, q - p.detach())})

# ------------------------------------------------------------------ sampled_kl
def _at(x, y): return x.gather(-1, y[..., None])[..., 0]
def _gap(p, q, y): return _at(p, y) - _at(q, y)

sampled_kl = Exercise(
    reference=package.sampled_kl, cases=CASES,
    mistakes={
        "the reward is a constant: detach it": lambda p, q, y: _gap(p, q, y) * _at(p, y),
        "the gap alone has a gradient of 0 on average: it must multiply log π": lambda p, q, y: _gap(p, q, y),
        "the sign: a word that the teacher likes more than the student should rise":
            lambda p, q, y: -_gap(p, q, y).detach() * _at(p, y),
        "the gap is a constant and log π learns: detach stands at the wrong one": lambda p, q, y: _gap(p, q, y) * _at(p, y).detach(),
        "one token's own gap, not the sum of what follows": lambda p, q, y: _gap(p, q, y).detach().view(*y.shape[:-1], -1).flip(-1).cumsum(-1).flip(-1).view(y.shape) * _at(p, y),
        "no baseline: the gap itself, not less its mean": lambda p, q, y: (lambda g: g - g.mean())(_gap(p, q, y).detach()) * _at(p, y),
        "log π, not π": lambda p, q, y: _gap(p, q, y).detach() * _at(p, y).exp(),
        "only the gap is a constant: log π learns": lambda p, q, y: _gap(p, q, y).detach() * _at(p, y).detach(),
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
           "double precision": (lambda x, m: (x.double(), m))(*_rows("0111", "0011"))},
    mistakes={
        "as it was: columns are compared": lambda x, m: x * m,
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
        "every row begins at a place of its own": lambda x, m: x[:, int(m.int().argmax(1)[0]):][:, :int(m.sum(1).max())]})
