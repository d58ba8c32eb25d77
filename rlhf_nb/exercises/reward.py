"Exercises of the chapter on reward models."
import math, torch
from torch import Generator, nn, tensor
from torch.nn.functional import logsigmoid
from rlhf_nb import reward
from rlhf_nb.book.checks import Exercise, ProofKind
from rlhf_nb.exercises.asked import refusing
from rlhf_nb.exercises.tokens import MASK_NAMES, normal
from rlhf_nb.tokens import Seqs

PAIRS = dict(mean="mean over pairs", sum="sum over pairs", pairs="one number per pair")
def over_pairs(x, how): return dict(mean=x.mean(), sum=x.sum(), pairs=x)[how]

class Pooling(ProofKind):
    asks, chapter = "score of a response, from one per position", "reward"
    takes = dict(scores="scores logits rewards values token_scores", mask="mask attention_mask padding_mask")
    right = dict(at=dict(last="the score at the last token that is no padding"))
    wrong = dict(at=dict(
        column="that is the last column, pads included", pad="shifted by one: that is the place behind the last token",
        before="shifted by one: that is the token before the last", first="that is the first real token",
        mean="that is the mean over real tokens: only the last has seen the whole answer",
        all="the mean over all positions, padding too", sum="that is the sum over real tokens",
        most="that is the highest score: asked is the last",
        count="a count of real tokens is a place only if no pad stands in front",
        longest="the last place of the longest row is read in every row",
        stop="that is the token before the first pad: pads in front of a prompt come before it"))
    known = {"last token that is no padding": dict(at="last")}
    def case(self, seed, lengths, left=False, front=0):
        mask = torch.nn.functional.pad(torch.arange(max(lengths)) < tensor(lengths)[:, None], (front, 0))
        return dict(scores=normal(seed, *mask.shape).requires_grad_(), mask=mask.flip(1) if left else mask)
    def cases(self, given): return {"padding on the right": self.case(0, [3, 6, 2, 4]), "no padding": self.case(10, [4, 4, 4]),
                                    "padding on the left": self.case(20, [3, 6, 2, 4], left=True),
                                    "padding on both sides": self.case(40, [3, 6, 2, 4], front=2)}
    def edges(self, given): return {"one row": self.case(30, [3])}
    def compute(self, a, c):
        s, m, row, at = a.scores, a.mask, torch.arange(len(a.mask)), torch.arange(a.mask.shape[1])
        last, first = torch.where(m, at, -1).amax(1), torch.where(m, at, len(at)).amin(1).clamp(max=len(at) - 1)
        place = dict(last=last, column=-1, pad=(last + 1).clamp(max=len(at) - 1), before=last - 1, first=first,
                     count=m.sum(1) - 1, longest=(m.sum(1).max() - 1).expand(len(m)), stop=(~m).int().argmax(1) - 1)
        if c["at"] in place: return s[row, place[c["at"]]]
        return dict(mean=(s * m).sum(1) / m.sum(1).clamp(min=1), all=s.mean(1), sum=(s * m).sum(1),
                    most=s.masked_fill(~m, -torch.inf).amax(1))[c["at"]]

class BradleyTerry(ProofKind):
    asks, chapter = "Bradley-Terry loss of a reward model", "reward"
    takes = dict(chosen="chosen chosen_rewards chosen_reward rewards_chosen r_chosen chosen_scores r_w",
                 rejected="rejected rejected_rewards rejected_reward rewards_rejected r_rejected "
                          "rejected_scores r_l",
                 margin="margin margins", center_coef="center_coef center_rewards_coefficient")
    defaults, needs = dict(margin=0., center_coef=0.), dict(margin="margin", centre="center_coef")
    right = dict(form=dict(log="-log σ(r_w - r_l)", hinge="hinge"), gap=dict(right=""), sign=dict(loss=""),
                 margin=dict(unused="", minus="less a margin"), centre=dict(unused="", sum="centred"), mean=PAIRS)
    wrong = dict(
        form=dict(no_log="the log is missing", linear="the sigmoid is missing",
                  square="the squared error of a gap of 1: larger gaps are punished", exp="exp(-gap) is no -log σ(gap)",
                  other="-log(1 - σ): that pair's other side", error="1 - σ: take -log σ",
                  two="each score is compared with 0, not with the other"),
        sign=dict(gain="turn the sign: a loss is above 0"),
        gap=dict(swapped="chosen and rejected are the wrong way round"),
        margin=dict(plus="the margin eases the task: turn its sign", weight="the margin is a gap, not a weight"),
        centre=dict(gap="centring takes the sum of both scores, not their gap", each="centring squares the sum, not each score",
                    size="the sum is squared: that is its size", plain="the sum is not squared"))
    stable = ("gaps of thousands",)
    known = {"Bradley-Terry (Ouyang et al. 2022)": dict(form="log")}
    def case(self, seed, scale=1., n=4): return {k: normal(seed + i, n, scale=scale).requires_grad_()
        for i, k in enumerate(("chosen", "rejected"))} | dict(margin=normal(seed + 2, n).abs(), center_coef=.1)
    def cases(self, given): return {"four pairs": self.case(0), "wide gaps": self.case(10, 4.)}
    def edges(self, given): return {"gaps of thousands": self.case(20, 2e3), "one pair": self.case(30, n=1)}
    def compute(self, a, c):
        w, l = a.chosen, a.rejected
        gap = (l - w if c["gap"] == "swapped" else w - l) + dict(plus=a.margin, minus=-a.margin).get(c["margin"], 0.)
        loss = dict(log=-logsigmoid(gap), hinge=(1 - gap).clamp(min=0), no_log=-gap.sigmoid(), linear=-gap, square=(1 - gap)**2,
                    exp=(-gap).exp(), other=-logsigmoid(-gap), error=1 - gap.sigmoid(),
                    two=-logsigmoid(w) - logsigmoid(-l))[c["form"]] * (1 + a.margin if c["margin"] == "weight" else 1)
        pull = dict(unused=0., sum=(w + l)**2, gap=(w - l)**2, each=w**2 + l**2, size=(w + l).abs(), plain=w + l)[c["centre"]]
        return over_pairs((-1 if c["sign"] == "gain" else 1) * (loss + a.center_coef * pull), c["mean"])

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
    ids = torch.where(mask, 7 + torch.arange(mask.shape[1]), seed)      # a pad is what the mask says, whatever its id
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
    mistakes=refusing(reward.pooled_scores, Pooling().told(lambda model, seqs: dict(scores=model(seqs), mask=seqs.attention_mask), "at") | {
        "the last real token is where seqs.attention_mask ends: seqs.response_mask may be empty":
            lambda model, seqs: _pick(model(seqs), _last(seqs.response_mask)),
        "each row has its own place: that reads the last place of the first row in all of them": _read(lambda s, m: s[:, _last(m)[0]]),
        "scores and rows do not go together: that reads the row before": _read(lambda s, m: _pick(s.roll(1, 0), _last(m))),
        "the sign of the score is turned": _read(lambda s, m: -_pick(s, _last(m))),
        "a score may be any number: no sigmoid": _read(lambda s, m: _pick(s, _last(m)).sigmoid()),
        "the scores of a batch are not centred: each is the model's own": _read(lambda s, m: _pick(s, _last(m)) - _pick(s, _last(m)).mean())}) | {
        "ids != 0 is no mask: a pad may have any id, seqs.attention_mask says what is real":
            lambda model, seqs: _pick(model(seqs), _last(seqs.ids != 0)),
        "no gradient reaches the model": _read(lambda s, m: _pick(s, _last(m)), detach=True),
        "every row at every row's place: (b b); pair rows with their places":
            _read(lambda s, m: s[:, _last(m)]),
        "one axis too many: (b 1)": _read(lambda s, m: _pick(s, _last(m))[:, None]),
        "these are the scores of all tokens: one per row": _read(lambda s, m: s),
        "a row of pads alone has no score: raise ValueError": _read(lambda s, m: _pick(s, _last(m))),
        "a row of pads alone must raise ValueError: argmax of no True is 0, which points at the end":
            _read(lambda s, m: _pick(s, m.shape[1] - 1 - m.int().flip(1).argmax(1)))})

# ------------------------------------------------------------------ bradley_terry_loss
def _compared(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("two scores per pair")
    return dict(chosen=chosen, rejected=rejected, margin=margin, center_coef=center_coef)

def _fitting(chosen, rejected): return bool(_compared(chosen, rejected))

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
           "sides of different length": (torch.ones(3), torch.ones(1)),
           "a column against a row, as many scores": (torch.ones(3, 1), torch.ones(1, 3))},
    mistakes=BradleyTerry().told(_compared, "form sign gap margin centre", {
        "that is one number: keep one loss per pair": dict(mean="mean"),
        "that is the sum: keep one loss per pair": dict(mean="sum"),
        "the margin is missing": dict(margin="unused"), "the centring term is missing": dict(centre="unused")},
        margin="minus", centre="sum", mean="pairs") | {
        "the probability of a hopeless pair rounds to 0, and its log is infinite: logsigmoid":
            lambda c, r, m=0., k=0.: k * (c + r)**2 - (-reward.bradley_terry_loss(c, r, m)).exp().log(),
        "inside of σ the margin is taken off the gap, it is not added to the loss": lambda c, r, m=0., k=0.: _fitting(c, r) and -logsigmoid(c - r) + m + k * (c + r)**2,
        "the sum of each pair's two scores is pulled to 0, not the mean of the batch":
            lambda c, r, m=0., k=0.: _fitting(c, r) and -logsigmoid(c - r - m) + k * (c + r).mean()**2,
        "the margin is subtracted from the gap, it does not multiply it: 1 - margin is a factor": lambda c, r, m=0., k=0.: _fitting(c, r) and -logsigmoid((c - r) * (1 - m)) + k * (c + r)**2,
        "the margin is subtracted from the gap, it does not multiply it": lambda c, r, m=0., k=0.: _fitting(c, r) and -logsigmoid((c - r) * m) + k * (c + r)**2,
        "the margin is subtracted from the gap, it does not divide it": lambda c, r, m=0., k=0.: _fitting(c, r) and -logsigmoid((c - r) / (1 + m)) + k * (c + r)**2,
        "inside of σ the margin is taken off the gap, not off the loss": lambda c, r, m=0., k=0.: _fitting(c, r) and -logsigmoid(c - r) - m + k * (c + r)**2,
        "the margin is in the gap once: that takes it off twice": lambda c, r, m=0., k=0.: _fitting(c, r) and -logsigmoid(c - r - m * 2) + k * (c + r)**2,
        "the margin stays what it is, without a sigmoid or log of its own": lambda c, r, m=0., k=0.: _fitting(c, r) and -logsigmoid(
            c - r - torch.as_tensor(m).sigmoid()) + k * (c + r)**2,
        "each chosen score is compared with its own rejected one, not with all of them: (b b) is averaged":
            lambda c, r, m=0., k=0.: _fitting(c, r) and -logsigmoid(c[:, None] - r - m).mean(1) + k * (c + r)**2,
        "each chosen score is compared with its own rejected one, not with the mean of all":
            lambda c, r, m=0., k=0.: _fitting(c, r) and -logsigmoid(c - r.mean() - m) + k * (c + r)**2,
        "the sum of the two scores is squared, not their mean: that is a quarter": lambda c, r, m=0., k=0.: _fitting(c, r) and -logsigmoid(c - r - m) + k * ((c + r) / 2)**2,
        "the centring term has the factor c, not c / 2": lambda c, r, m=0., k=0.: _fitting(c, r) and -logsigmoid(c - r - m) + k / 2 * (c + r)**2,
        "the centring term is added: it keeps scores near 0": lambda c, r, m=0., k=0.: _fitting(c, r) and -logsigmoid(c - r - m) - k * (c + r)**2,
        "the centring term stands outside of log σ": lambda c, r, m=0., k=0.: _fitting(c, r) and -logsigmoid(c - r - m - k * (c + r)**2),
        "1 - c is no factor of the other term: the centring term is added": lambda c, r, m=0., k=0.: _fitting(c, r) and -logsigmoid(c - r - m) * (1 - k) + k * (c + r)**2,
        "the labels are certain: no smoothing": lambda c, r, m=0., k=0.: _fitting(c, r) and -.9 * logsigmoid(c - r - m) - .1 * logsigmoid(r - c + m) + k * (c + r)**2,
        "that is -log2: nats are natural logarithms": lambda c, r, m=0., k=0.: _fitting(c, r) and -logsigmoid(c - r - m) / math.log(2) + k * (c + r)**2,
        "log σ is smooth: that is 0 from the margin on": lambda c, r, m=0., k=0.: _fitting(c, r) and (m - c + r).clamp(min=0) + k * (c + r)**2,
        "no gradient reaches the scores": lambda c, r, *m: reward.bradley_terry_loss(c.detach(), r.detach(), *m),
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

def _zeroed(chosen, rejected, n_bins=10): # empty bins, too
    at = (((chosen - rejected).abs().sigmoid() - .5) * 2 * n_bins).long().clamp(max=n_bins - 1)
    out = [torch.zeros(n_bins, dtype=x.dtype).index_copy(0, at.unique(), x) for x in _bins(chosen, rejected, n_bins)]
    return tuple(out)

def _assigned(chosen, rejected, index): # confidence -> bin
    gap = chosen - rejected
    sure, at = gap.abs().sigmoid(), index(gap.abs().sigmoid())
    held = [at == k for k in at.unique()]
    return (torch.stack([sure[h].mean() for h in held]), torch.stack([((gap.sign() + 1) / 2)[h].mean() for h in held]),
            tensor([int(h.sum()) for h in held]))

def _kept(sure, gap, index): # a bin for each place from 0 on; the others are lost
    at = index(sure)
    held = [at == k for k in at.unique() if k >= 0]
    return (tensor([sure[h].double().mean() for h in held]).float(), tensor([((gap.sign() + 1) / 2).double()[h].mean() for h in held]).float(),
            tensor([int(h.sum()) for h in held], dtype=torch.long))

def _finite(slip): # as the reference does
    def erring(c, r, *n):
        if not (c - r).isfinite().all(): raise ValueError
        return slip(c, r, *n)
    return erring

def _named(x, mean): # the bins as they are, another number for the confidence in each
    c, r, n = [*x, 10][:3]
    at = (((c - r).abs().sigmoid() - .5) * 2 * n).long().clamp(max=n - 1)
    return torch.stack([mean(at == k, c - r) for k in at.unique()]), *_bins(*x)[1:]

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
           "a confidence of just .75": (*_gaps(math.log(3), -.4, .6, 2.), 2), "one bin": (*_some(2, 8), 1),
           "confidences of just .625 and .75, float64": (tensor([math.log(5 / 3), math.nextafter(math.log(3), 9), -.4, .2], dtype=torch.float64), torch.zeros(4).double(), 4),
           "a score that is nan": (*_gaps(.5, math.nan, 1.), 2), "a score without end": (tensor([1., math.inf, 2.]), tensor([0., 1., math.inf]), 2)},
    mistakes={"a score that is nan or infinite has no bin: raise ValueError": lambda *x: _bins(*x)} | {words: _finite(slip) for words, slip in {
        "the bins begin at .5, not at 0: each has half the width": lambda *x: _bins(*x, lowest=0.),
        "a confidence of 1 belongs to the last bin; it fell out of all of them":
            lambda *x: _bins(*x, top=False),
        "a confidence of 1 belongs to the last bin, it has none of its own: clamp the index":
            lambda *x: _bins(*x, top=False, own=True),
        "an edge belongs to the bin above it": lambda *x: _bins(*x, upper=True),
        "a tie is half right, not wrong": lambda *x: _bins(*x, tie=0.),
        "a tie is half right, not right": lambda *x: _bins(*x, tie=1.),
        "leave out bins without pairs: an empty one has no mean": lambda *x: _bins(*x, empty=True),
        "the confidence is that of the side it prefers: take the absolute gap":
            lambda *x: _bins(*x, absolute=False),
        "the confidence is sigmoid of the absolute gap, so the bins begin at .5": lambda *x: _bins(*x, absolute=False, lowest=0.),
        "the mean of the confidences, not the middle of the bin":
            lambda *x: _bins(*x, middle=True),
        "leave out bins without pairs: that gives them 0": lambda *x: _zeroed(*x),
        "a tie is half right: it stays among the pairs, with a confidence of .5": lambda c, r, *n: _bins(c[c != r], r[c != r], *n),
        "the mean of a bin is over its own pairs: that divides by all of them": lambda c, r, *n: (
            lambda a, b, k: (a * k / len(c), b * k / len(c), k))(*_bins(c, r, *n)),
        "the confidence is a mean, not a sum: divide by the pairs of the bin": lambda *x: (lambda a, b, k: (a * k, b, k))(*_bins(*x)),
        "both are means, not sums: divide by the pairs of the bin": lambda *x: (lambda a, b, k: (a * k, b * k, k))(*_bins(*x)),
        "each bin has its own accuracy: that is the accuracy of all pairs": lambda c, r, *n: (lambda a, b, k: (
            a, torch.full_like(b, (((c - r).sign() + 1) / 2).mean().item()), k))(*_bins(c, r, *n)),
        "the second is the accuracy: that is how far it is from the confidence": lambda *x: (lambda a, b, k: (a, (a - b).abs(), k))(*_bins(*x)),
        "the third is how many pairs the bin holds, not how many of them are right": lambda *x: (
            lambda a, b, k: (a, b, (b * k).long()))(*_bins(*x)),
        "the confidence is σ of the gap, not of half of it": lambda c, r, *n: _bins(c / 2, r / 2, *n),
        "the confidence is σ of the gap, not of twice the gap (that is tanh)": lambda c, r, *n: _bins(2 * c, 2 * r, *n),
        "the bins lie between .5 and 1, not between the least and the largest confidence": lambda c, r, n=10: _assigned(c, r, lambda s: (
            (s - s.min()) / (s.max() - s.min()).clamp(min=1e-12) * n).long().clamp(max=n - 1)),
        "the last bin has the index n_bins - 1: that puts its pairs one bin lower": lambda c, r, n=10: _assigned(
            c, r, lambda s: ((s - .5) * 2 * n).long().clamp(max=max(n - 2, 0))),
        "the largest is no mean: the confidence of a bin is the mean of its pairs'": lambda *x: _named(x, lambda at, gap: gap.abs().sigmoid()[at].amax()),
        "the median is no mean: the confidence of a bin is the mean of its pairs'": lambda *x: _named(x, lambda at, gap: gap.abs().sigmoid()[at].median()),
        "the third is a number of pairs, not a share": lambda *x: _bins(*x, share=True),
        "right and wrong are swapped: accuracy is the share of pairs that are right":
            lambda *x: _bins(*x, hits=lambda g: (g < 0).double() + .5 * (g == 0)),
        "confidence and accuracy are the wrong way round: exchange the two results":
            lambda *x: (lambda a, b, n: (b, a, n))(*_bins(*x)),
        "n_bins is not used": lambda c, r, n=10: _bins(c, r, 10),
        "one bin too few": lambda c, r, n=10: _bins(c, r, max(n - 1, 1)),
        "the bins stand in the order of their confidence, the lowest first": lambda *x: tuple(y.flip(0) for y in _bins(*x)),
        "the bin is what the confidence is in: cut off, do not round to the nearest edge": lambda c, r, n=10: _assigned(
            c, r, lambda s: ((s - .5) * 2 * n).round().long().clamp(0, n - 1)),
        "bins of equal width, not of as many pairs": lambda c, r, n=10: _assigned(c, r, lambda s: s.argsort().argsort() * n // len(s)),
        "the confidence is that of the side it prefers, not sigmoid of the gap: below .5 there is no bin": lambda c, r, n=10: _kept(
            (c - r).sigmoid(), c - r, lambda s: ((s - .5) * 2 * n).long().clamp(max=n - 1)),
        "the confidence is that of the side it prefers, not sigmoid of the gap: below .5 all fall into the first bin": lambda c, r, n=10: _kept(
            (c - r).sigmoid(), c - r, lambda s: ((s - .5) * 2 * n).long().clamp(0, n - 1)),
        "the share of pairs that are right, not their number": lambda c, r, n=10: (lambda a, b, k: (a, b * k, k))(*_bins(c, r, n)),
        "an edge belongs to the bin above it, not below": lambda c, r, n=10: _kept(
            (c - r).abs().sigmoid(), c - r, lambda s: ((s - .5) * 2 * n).ceil().long().sub(1).clamp(min=0)),
        "confidence is a sigmoid: that is the gap itself": lambda *x: _named(x, lambda at, gap: gap.abs()[at].mean())}.items()})

ASKED = {
    "pooled_scores": {
        "a row that is nothing but pads raises ValueError": "a row of pads alone is refused",
        "pads may stand on the left: the number of real tokens is no position": "pads on the left | pads on both sides | one row, one token | bf16"},
    "bradley_terry_loss": {
        "the margin may be one number or (b), one for each pair": "a margin for each pair",
        "finite even where scores are 600 apart: logsigmoid, or softplus of minus the gap": "600 apart",
        "two sides of different shape raise ValueError, although they would broadcast":
            "sides of different length | a column against a row, as many scores",
        "c (r_w + r_l)^2 is added to the loss of each pair": "centring | both"},
    "calibration_bins": {
        "scores that are not finite raise ValueError, nan as well as inf": "a score that is nan | a score without end",
        "a tie is half right: its confidence .5 is in the first bin": "ties",
        "the last bin holds a confidence of 1 as well": "a confidence of 1 | a confidence of 1 beside one of .95",
        "a bin holds its lower edge, not its upper one": "a confidence of just .75 | confidences of just .625 and .75, float64",
        "bins without pairs are left out, and no others": "bins that are empty | ties | one pair | a confidence of 1 | a confidence of 1 beside one of .95 | "
            "confidences of just .625 and .75, float64"}}
