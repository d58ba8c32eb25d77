"Exercises of the chapter on reward models."
import torch
from torch import Generator, tensor
from torch.nn.functional import logsigmoid
from rlhf_nb.checks import Exercise

# ------------------------------------------------------------------ fixed_last_score
def _last(mask): return (mask * torch.arange(1, mask.shape[1] + 1)).argmax(1)
def _pick(scores, at): return scores[torch.arange(len(scores)), at]
def _last_score(scores, mask): return _pick(scores, _last(mask))

def _scores(seed, *rows, dtype=torch.float32): # x a real token, . a pad
    mask = tensor([[c == "x" for c in row] for row in rows])
    scores = torch.randn(mask.shape, generator=Generator().manual_seed(seed))
    return scores.to(dtype).requires_grad_(), mask

fixed_last_score = Exercise(
    reference=_last_score,
    cases={"pads on the right": _scores(0, "xxxx..", "xxxxx.", "xx...."),
           "pads on the left": _scores(1, "..xxx", "xxxxx", "...xx"),
           "pads on both sides": _scores(2, ".xxx..", "...xxx", "xxxxxx", "..xx.."),
           "no pads": _scores(3, "xxx", "xxx"), "one row, one token": _scores(4, ".x."),
           "bf16": _scores(5, ".xx.", "xxxx", dtype=torch.bfloat16)},
    mistakes={
        "a count of real tokens is a place only if no pad stands in front":
            lambda s, m: _pick(s, m.sum(1) - 1),
        "that is the last column, pads included": lambda s, m: s[:, -1],
        "shifted by one: that is the token before the last":
            lambda s, m: _pick(s, _last(m) - 1),
        "shifted by one: that is the place behind the last token":
            lambda s, m: _pick(s, (_last(m) + 1).clamp(max=s.shape[1] - 1)),
        "that is the first real token": lambda s, m: _pick(s, m.int().argmax(1)),
        "that is the mean over real tokens: only the last has seen the whole answer":
            lambda s, m: (s * m).sum(1) / m.sum(1),
        "that is the sum over real tokens": lambda s, m: (s * m).sum(1),
        "that is the highest score: asked is the last":
            lambda s, m: s.masked_fill(~m, -torch.inf).amax(1),
        "no gradient reaches the scores": lambda s, m: _last_score(s.detach(), m),
        "every row at every row's place: (b b); pair rows with their places":
            lambda s, m: s[:, _last(m)],
        "one axis too many: (b 1)": lambda s, m: _last_score(s, m)[:, None]})

# ------------------------------------------------------------------ star_loss
def _star(chosen, rejected, stars, share=.5, log=logsigmoid):
    return -log(chosen - rejected - share * stars).mean()

def _stars(seed, n, dtype=torch.float32, whole=False):
    generator = Generator().manual_seed(seed)
    scores = [torch.randn(n, generator=generator).to(dtype).requires_grad_() for _ in (0, 1)]
    stars = torch.randint(1, 4, (n,), generator=generator)
    return *scores, stars if whole else stars.to(dtype)

star_loss = Exercise(
    reference=_star,
    cases={"four pairs": _stars(0, 4), "one pair": _stars(1, 1),
           "stars as whole numbers": _stars(2, 5, whole=True),
           "far apart": (tensor([300., -300., 5.]).requires_grad_(),
                         tensor([-300., 300., 1.]).requires_grad_(), tensor([1., 2., 3.])),
           "bf16": _stars(4, 3, dtype=torch.bfloat16)},
    mistakes={
        "the margin eases the task: turn its sign": lambda c, r, s: _star(c, r, -s),
        "half the stars, not all of them": lambda c, r, s: _star(c, r, s, 1.),
        "the stars are missing": lambda c, r, s: _star(c, r, s, 0.),
        "that is the sum: take the mean over pairs": lambda c, r, s: _star(c, r, s) * len(c),
        "that is one number per pair: take the mean":
            lambda c, r, s: -logsigmoid(c - r - s / 2),
        "the sign: a loss is above 0": lambda c, r, s: -_star(c, r, s),
        "chosen and rejected are the wrong way round": lambda c, r, s: _star(r, c, s),
        "the log is missing": lambda c, r, s: _star(c, r, s, log=torch.sigmoid),
        "the probability of a hopeless pair rounds to 0, and its log is infinite: logsigmoid":
            lambda c, r, s: _star(c, r, s, log=lambda x: torch.log(torch.sigmoid(x))),
        "the stars are a gap, not a weight":
            lambda c, r, s: (-logsigmoid(c - r) * s / 2).mean(),
        "each pair has stars of its own: no mean before the sigmoid":
            lambda c, r, s: _star(c, r, s.float().mean())})

# ------------------------------------------------------------------ ece
def _ece(confidence, right, n_bins, weigh=True, gap=torch.abs, lowest=.5, top=True, upper=False):
    place, total = (confidence - lowest) / (1 - lowest) * n_bins, 0.
    bin = place.ceil().long() - 1 if upper else place.long()
    if top: bin = bin.clamp(max=n_bins - 1)
    for k in bin.unique():
        here = bin == k
        total = total + gap(confidence[here].mean() - right[here].mean()) * (
            here.float().mean() if weigh else 1 / len(bin.unique()))
    return total

def _largest(confidence, right, n_bins):
    gaps = []
    for k in ((confidence - .5) * 2 * n_bins).long().clamp(max=n_bins - 1).unique():
        here = ((confidence - .5) * 2 * n_bins).long().clamp(max=n_bins - 1) == k
        gaps.append((confidence[here].mean() - right[here].mean()).abs())
    return torch.stack(gaps).amax()

def _claims(seed, n, n_bins):
    generator = Generator().manual_seed(seed)
    confidence = .5 + .49 * torch.rand(n, generator=generator)
    return confidence, (torch.rand(n, generator=generator) < .6).float(), n_bins

ece = Exercise(
    reference=_ece,
    cases={"two bins": (tensor([.55, .58, .61, .93, .88]), tensor([1., 0., 1., 0., 1.]), 2),
           "forty pairs, ten bins": _claims(0, 40, 10),
           "bins that are empty": (tensor([.52, .54, .97]), tensor([0., 1., 1.]), 10),
           "a model that is certain": (tensor([1., .9, 1., .6, .58]), tensor([0., 1., 1., 0., 1.]), 4),
           "too modest": (tensor([.56, .6, .67, .9]), tensor([1., 1., 1., 0.]), 2),
           "confidences on the edge of two bins": (tensor([.75, .625, .875, .75]), tensor([0., 1., 1., 1.]), 2),
           "one pair": (tensor([.8]), tensor([0.]), 5)},
    mistakes={
        "a confidence on an edge belongs to the bin above it": lambda *x: _ece(*x, upper=True),
        "weigh each bin by its pairs": lambda *x: _ece(*x, weigh=False),
        "gaps of opposite sign cancel: take the absolute value":
            lambda *x: _ece(*x, gap=lambda d: d),
        "that is the squared gap: take the absolute value":
            lambda *x: _ece(*x, gap=lambda d: d**2),
        "the bins begin at .5, not at 0": lambda *x: _ece(*x, lowest=0.),
        "a confidence of 1 belongs to the last bin; it fell out of all of them":
            lambda s, r, n: _ece(s[s < 1], r[s < 1], n) * (s < 1).float().mean(),
        "a confidence of 1 belongs to the last bin, not to a bin of its own":
            lambda *x: _ece(*x, top=False),
        "take the means of a bin first, then the gap between them":
            lambda s, r, n: (s - r).abs().mean(),
        "that is one bin for all": lambda s, r, n: _ece(s, r, 1),
        "a share of the pairs, not their number, is the weight":
            lambda s, r, n: _ece(s, r, n) * len(s),
        "that is the largest gap: take the weighted mean": _largest,
        "an empty bin adds nothing, not nan":
            lambda s, r, n: _ece(s, r, n) + 0 * sum(
                s[((s - .5) * 2 * n).long().clamp(max=n - 1) == k].mean() for k in range(n))})
