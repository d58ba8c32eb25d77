"Exercises of the chapter on reward models."
import torch
from torch import Generator, nn, tensor
from torch.nn.functional import logsigmoid
from rlhf_nb import reward
from rlhf_nb.book.checks import Exercise
from rlhf_nb.tokens import Seqs

# ------------------------------------------------------------------ pooled_scores
class _Fixed(nn.Module):
    "A model whose numbers are its parameters."
    def __init__(self, scores):
        super().__init__()
        self.scores = nn.Parameter(scores)
    def forward(self, seqs): return self.scores * 1

def _last(mask): return (mask * torch.arange(1, mask.shape[1] + 1)).argmax(1)
def _pick(scores, at): return scores[torch.arange(len(scores)), at]
def _read(read, detach=False): # (scores, mask) -> (b), as a function of a model
    def answer(model, seqs):
        scores = model(seqs)
        return read(scores.detach() if detach else scores, seqs.attention_mask)
    return answer

def _rows(seed, *rows, dtype=torch.float32): # x a real token, . a pad
    mask = tensor([[c == "x" for c in row] for row in rows])
    scores = torch.randn(mask.shape, generator=Generator().manual_seed(seed)).to(dtype)
    ids = torch.where(mask, 7 + torch.arange(mask.shape[1]), 0)
    response = mask & (torch.arange(mask.shape[1]) >= mask.shape[1] // 2)
    return _Fixed(scores), Seqs(ids, mask, response)

pooled_scores = Exercise(
    reference=reward.pooled_scores,
    cases={"pads on the right": _rows(0, "xxxx..", "xxxxx.", "xx...."),
           "pads on the left": _rows(1, "..xxx", "xxxxx", "...xx"),
           "pads on both sides": _rows(2, ".xxx..", "...xxx", "xxxxxx", "..xx.."),
           "no pads": _rows(3, "xxx", "xxx"), "one row, one token": _rows(4, ".x."),
           "one row": _rows(5, "xxxx."), "bf16": _rows(6, ".xx.", "xxxx", dtype=torch.bfloat16),
           "a row of pads alone is refused": _rows(7, "xx.", "...")},
    mistakes={
        "a count of real tokens is a place only if no pad stands in front":
            _read(lambda s, m: _pick(s, m.sum(1) - 1)),
        "that is the last column, pads included": _read(lambda s, m: s[:, -1]),
        "shifted by one: that is the token before the last":
            _read(lambda s, m: _pick(s, _last(m) - 1)),
        "shifted by one: that is the place behind the last token":
            _read(lambda s, m: _pick(s, (_last(m) + 1).clamp(max=s.shape[1] - 1))),
        "that is the first real token": _read(lambda s, m: _pick(s, m.int().argmax(1))),
        "that is the mean over real tokens: only the last has seen the whole answer":
            _read(lambda s, m: (s * m).sum(1) / m.sum(1).clamp(min=1)),
        "that is the sum over real tokens": _read(lambda s, m: (s * m).sum(1)),
        "that is the highest score: asked is the last":
            _read(lambda s, m: s.masked_fill(~m, -torch.inf).amax(1)),
        "no gradient reaches the model": _read(lambda s, m: _pick(s, _last(m)), detach=True),
        "every row at every row's place: (b b); pair rows with their places":
            _read(lambda s, m: s[:, _last(m)]),
        "one axis too many: (b 1)": _read(lambda s, m: _pick(s, _last(m))[:, None]),
        "these are the scores of all tokens: one per row": _read(lambda s, m: s),
        "a row of pads alone has no score: raise ValueError": _read(lambda s, m: _pick(s, _last(m))),
        "a row of pads alone must raise ValueError: argmax of no True is 0, which points at the end":
            _read(lambda s, m: _pick(s, m.shape[1] - 1 - m.int().flip(1).argmax(1)))})

# ------------------------------------------------------------------ bradley_terry_loss
def _bt(chosen, rejected, margin=0., center_coef=0., sign=1, log=logsigmoid, weigh=1.,
        centre=lambda c, r: (c + r)**2):
    if chosen.shape != rejected.shape: raise ValueError("two scores per pair")
    return -log(weigh * (chosen - rejected - sign * margin)) + center_coef * centre(chosen, rejected)
def _each(f): # an error where the shapes differ
    def answer(chosen, rejected, *more):
        if chosen.shape != rejected.shape: raise ValueError("two scores per pair")
        return f(chosen, rejected, *more)
    return answer

def _scores(seed, n, *more, dtype=torch.float32):
    generator = Generator().manual_seed(seed)
    return *[(2 * torch.randn(n, generator=generator)).to(dtype).requires_grad_()
             for _ in (0, 1)], *more

bradley_terry_loss = Exercise(
    reference=reward.bradley_terry_loss,
    cases={"four pairs": _scores(0, 4), "one pair": _scores(1, 1),
           "margin 1": _scores(2, 4, 1.), "a margin for each pair": _scores(3, 3, tensor([.5, 1., 2.])),
           "centring": _scores(4, 4, 0., .1), "both": _scores(5, 3, .5, .01),
           "ties": (tensor([1., 0.]).requires_grad_(), tensor([1., 0.]).requires_grad_()),
           "600 apart": (tensor([300., -300., 5.]).requires_grad_(),
                         tensor([-300., 300., 1.]).requires_grad_()),
           "bf16": _scores(6, 3, dtype=torch.bfloat16), "float64": _scores(7, 3, dtype=torch.float64),
           "sides of different length": (torch.ones(3), torch.ones(1))},
    mistakes={
        "turn the sign: a loss is above 0": lambda *x: -_bt(*x),
        "chosen and rejected are the wrong way round": lambda c, r, *m: _bt(r, c, *m),
        "that is one number: keep one loss per pair": lambda *x: _bt(*x).mean(),
        "that is the sum: keep one loss per pair": lambda *x: _bt(*x).sum(),
        "the log is missing": lambda *x: _bt(*x, log=torch.sigmoid),
        "the sigmoid is missing": lambda *x: _bt(*x, log=lambda d: d),
        "the probability of a hopeless pair rounds to 0, and its log is infinite: logsigmoid":
            lambda *x: _bt(*x, log=lambda d: d.sigmoid().log()),
        "the margin eases the task: turn its sign": lambda *x: _bt(*x, sign=-1),
        "the margin is missing": lambda *x: _bt(*x, sign=0),
        "the centring term is missing": lambda c, r, m=0., k=0.: _bt(c, r, m, 0.),
        "centring takes the sum of both scores, not their gap":
            lambda *x: _bt(*x, centre=lambda c, r: (c - r)**2),
        "centring squares the sum, not each score":
            lambda *x: _bt(*x, centre=lambda c, r: c**2 + r**2),
        "the sum is squared: that is its size": lambda *x: _bt(*x, centre=lambda c, r: (c + r).abs()),
        "the sum is not squared": lambda *x: _bt(*x, centre=lambda c, r: c + r),
        "the margin is a gap, not a weight": _each(
            lambda c, r, m=0., k=0.: -logsigmoid(c - r) * (1 + m) + k * (c + r)**2),
        "no gradient reaches the scores": lambda c, r, *m: _bt(c.detach(), r.detach(), *m),
        "different shapes broadcast without a word: raise ValueError":
            lambda c, r, m=0., k=0.: -logsigmoid(c - r - m) + k * (c + r)**2})

# ------------------------------------------------------------------ calibration_bins
def _bins(chosen, rejected, n_bins=10, lowest=.5, top=True, upper=False, tie=.5, empty=False,
          own=False, absolute=True, middle=False, share=False, hits=None):
    gap = chosen.double() - rejected.double()
    confidence = (gap.abs() if absolute else gap).sigmoid()
    right = (gap > 0).double() + tie * (gap == 0) if hits is None else hits(gap)
    width, rows = (1 - lowest) / n_bins, []
    for k in range(n_bins + own):                # the last: 1 alone
        low, high = lowest + k * width, lowest + (k + 1) * width
        here = ((confidence > low) & (confidence <= high) if upper else
                (confidence >= low) & (confidence < high))
        if top and k == n_bins - 1: here |= confidence == 1
        if not here.any() and not empty: continue
        n = here.sum()
        rows.append(((low + high) / 2 if middle else confidence[here].sum() / n,
                     right[here].sum() / n, n / len(gap) if share else n))
    first, second, n = zip(*rows) if rows else ((), (), ())
    return (tensor(first).float(), tensor(second).float(),
            tensor(n) if share else tensor(n, dtype=torch.long))

def _some(seed, n, scale=2.):
    generator = Generator().manual_seed(seed)
    return scale * torch.randn(n, generator=generator), torch.randn(n, generator=generator)
def _gaps(*gaps): return tensor(gaps), torch.zeros(len(gaps))

calibration_bins = Exercise(
    reference=reward.calibration_bins,
    cases={"five pairs, two bins": (*_gaps(.2, -.4, .4, 2., -3.), 2), "ten bins": _some(0, 60),
           "four bins": (*_some(1, 30), 4), "ties": (*_gaps(0., 0., .3, -1.), 2),
           "bins that are empty": _gaps(.05, .1, 5.), "one pair": (*_gaps(-1.), 5),
           "a confidence of 1": (*_gaps(80., -90., .5, 60.), 4),
           "a confidence of 1 beside one of .95": (*_gaps(80., -90., .5, 3.), 4),
           "one bin": (*_some(2, 8), 1)},
    mistakes={
        "the bins begin at .5, not at 0": lambda *x: _bins(*x, lowest=0.),
        "a confidence of 1 belongs to the last bin; it fell out of all of them":
            lambda *x: _bins(*x, top=False),
        "a confidence of 1 belongs to the last bin, it has none of its own: clamp the index":
            lambda *x: _bins(*x, top=False, own=True),
        "an edge belongs to the bin above it": lambda *x: _bins(*x, upper=True),
        "a tie is half right, not wrong": lambda *x: _bins(*x, tie=0.),
        "a tie is half right, not right": lambda *x: _bins(*x, tie=1.),
        "leave out bins without pairs": lambda *x: _bins(*x, empty=True),
        "the confidence is that of the side it prefers: take the absolute gap":
            lambda *x: _bins(*x, absolute=False),
        "the mean of the confidences, not the middle of the bin":
            lambda *x: _bins(*x, middle=True),
        "the third is a number of pairs, not a share": lambda *x: _bins(*x, share=True),
        "right and wrong are swapped":
            lambda *x: _bins(*x, hits=lambda g: (g < 0).double() + .5 * (g == 0)),
        "confidence and accuracy are the wrong way round":
            lambda *x: (lambda a, b, n: (b, a, n))(*_bins(*x)),
        "n_bins is not used": lambda c, r, n=10: _bins(c, r, 10),
        "one bin too few": lambda c, r, n=10: _bins(c, r, max(n - 1, 1))})
