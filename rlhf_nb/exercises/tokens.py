"Exercises of the chapter on tokens."
import math
import torch
from torch import Generator, tensor
from rlhf_nb import tokens
from rlhf_nb.book.checks import Exercise, ProofKind, values_match
from rlhf_nb.exercises.asked import refusing

def _gen(seed): return torch.Generator().manual_seed(seed)
def _randn(seed, *size): return torch.randn(size, generator=_gen(seed))

# ---- what the kinds of `prove` are made of

def normal(seed, *shape, scale=1.): # normal numbers, float64
    return scale * torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.double)

def widened(x): return x.to(torch.promote_types(x.dtype, torch.float32)) # 16 bits become 32

MASK = tensor([[0, 1, 1, 1, 0], [0, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool()
EMPTY = MASK & tensor([[1], [0], [1]]).bool()
WIDE = torch.cat([MASK, torch.zeros(3, 1).bool()], 1)     # no response reaches the last column
MASK_NAMES = "mask response_mask completion_mask action_mask loss_mask eos_mask attention_mask padding_mask"

MEANS = dict(
    token_mean="mean over the tokens of the batch", response_mean="mean over responses of each one's mean",
    token_sum="sum over tokens", response_sum="mean over responses of each one's sum",
    constant="sum over tokens / (responses x max_length)", tokens="one number per token",
    responses="one mean per response", sums="one sum per response")
MASK_SLIPS = dict(
    late="the mask stands one position late",
    inverted="the mask is upside down: it keeps what it should drop",
    early="the mask stands one position early: were the log-probs shifted, and the mask not?")
MEAN_SLIPS = MASK_SLIPS | dict(
    forgot="the mask is not used: prompt and padding count",
    padded="the mean divides by all positions, padding too: divide by mask.sum()",
    longest="divided by the longest response of the batch, a number that changes from batch to batch")

def read_mask(mask, how): # (b t) what is kept if the mask is used in this way
    if how == "forgot": return torch.ones_like(mask)
    if how == "inverted": return ~mask
    return torch.roll(mask, dict(late=1, early=-1).get(how, 0), 1)

def mean_over(x, mask, how, max_length=1.): # (b t) -> a number, (b) or (b t)
    m = read_mask(mask, how)
    x, n = x.masked_fill(~m, 0.), m.sum(1).clamp(min=1)
    sums, means = x.sum(1), x.sum(1) / n
    found = dict(tokens=x, responses=means, sums=sums, response_mean=means.mean(), token_sum=x.sum(),
                 padded=x.mean(), response_sum=sums.mean(), constant=sums.mean() / max_length,
                 longest=sums.mean() / n.max())
    return found[how] if how in found else x.sum() / m.sum().clamp(min=1)

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
           "four axes": (_randn(30, 2, 3, 2, 2),),
           "nan and inf": (tensor([[1., torch.nan, torch.inf], [-torch.inf, 2., 3.]]),),
           "bf16": (_randn(5, 2, 4).bfloat16(),), "float64": (_randn(6, 2, 4).double(),)},
    mistakes={
        "the wrong way: row i of the result is row i-1 of x, not row i+1": lambda x: _moved(x, -1),
        "nothing has moved": lambda x: x.clone(),
        "no shift: row i is still row i of x, only row 0 was set to 0": lambda x: torch.cat([torch.zeros_like(x[:, :1]), x[:, 1:]], 1),
        "row 0 is 0, not the last row: that is torch.roll": lambda x: x.roll(1, 1),
        "row 0 is 0: that repeats the first row": lambda x: torch.cat([x[:, :1], x[:, :-1]], 1),
        "the shape stays (b t ...): the zeros in front are missing": lambda x: x[:, :-1],
        "the shape stays (b t ...): drop the last row": lambda x: torch.cat([torch.zeros_like(x[:, :1]), x], 1),
        "that moves the rows of the batch: time is axis 1": lambda x: _moved(x, dim=0),
        "that moves the last axis: time is axis 1": lambda x: _moved(x, dim=x.dim() - 1),
        "two steps: move by one": lambda x: _moved(x, 2),
        "copied from the front, row i is overwritten before row i + 1 reads it: row i of the result is row i-1 of x":
            lambda x: torch.cat([torch.zeros_like(x[:, :1]), x[:, :1].expand_as(x)[:, 1:]], 1),
        "that is 0 everywhere: row i of the result is row i-1 of x": torch.zeros_like,
        "the rows are reversed: move them by one": lambda x: x.flip(1),
        "no gradient reaches x: do not detach": lambda x: _moved(x.detach()),
        "that pads the last axis, as F.pad does: time is axis 1": lambda x: torch.nn.functional.pad(x[:, :-1], (1, 0)),
        "the first row is gone: set row 0 to 0 after moving, not before": lambda x: torch.cat([x[:, :1] * 0, x[:, :1] * 0, x[:, 1:-1]], 1)[:, :x.shape[1]]})

# ---- log-probs and samples, as code computes them

SHIFTS = dict(same="no shift: row i of the logits predicts token i+1",
              zeroed="no shift, only entry 0 set to 0: row i of the logits predicts token i+1",
              back="the shift goes the wrong way: token i is predicted by row i-1",
              logits="entry 0 is 0: shift log-probs, not logits (zeros are logits too)",
              ids="the ids moved as well: only the logits shift")
SOFTMAXES = dict(raw="those are logits: log_softmax makes log-probs of them", probs="those are probabilities: take their log",
                 cut_time="softmax runs over the words, the last axis", time="softmax runs over the words, the last axis",
                 best="that is the log-prob of the most probable token: pick that of ids")

def next_logps(logits, ids, shift, soft): # (b t) log-prob of token i, (t) where there is one
    if shift == "logits": logits = tokens.shift_right(logits)
    if shift == "ids": ids = tokens.shift_right(ids)
    x = dict(raw=logits, probs=logits.softmax(-1), time=logits.log_softmax(1), cut_time=torch.cat([
        logits[:, :-1].log_softmax(1), logits[:, -1:]], 1)).get(soft, logits.log_softmax(-1))    # where the last row is cut first
    step = dict(same=0, zeroed=0, logits=0, back=-1).get(shift, 1)
    at, n = torch.arange(ids.shape[1]), ids.shape[1]
    x = x.roll(step, 1)
    x = x.amax(-1) if soft == "best" else x.gather(-1, ids[..., None])[..., 0]
    there = (at - step >= 0) & (at - step < n) & ((at > 0) | (shift != "zeroed"))
    return x.masked_fill(~there, 0.), there

class Logprobs(ProofKind):
    asks, chapter = "log-probs of the tokens", "tokens"
    takes = dict(logits="logits lm_logits", ids="ids input_ids tokens token_ids", mask=MASK_NAMES)
    needs, stable = dict(masked="mask"), ("logits of hundreds",)
    right = dict(soft=dict(log=""), shift=dict(next=""), sign=dict(plus=""), masked=dict(all="", used="0 outside of the mask"),
                 form=dict(
        full="(b t), 0 for the first token", short="(b t-1), from the second token on",
        sums="one sum per response", means="one mean per response"))
    wrong = dict(soft=SOFTMAXES, shift=SHIFTS, masked=MASK_SLIPS, sign=dict(minus="turn the sign: a log-prob is never above 0"),
                 form=dict(ahead="the zeros stand at the end: they belong in front, entry i is of token i"))
    def case(self, seed, mask=WIDE, scale=1., first=False):
        mask = mask & ((torch.arange(mask.shape[1]) > 0) | first)  # nothing stands before the first token
        ids = torch.randint(0, 7, mask.shape, generator=Generator().manual_seed(seed))
        return dict(logits=normal(seed, *mask.shape, 7, scale=scale).requires_grad_(), ids=ids, mask=mask,
                    labels=ids.masked_fill(~mask, -100))
    def cases(self, given): return {"three responses": self.case(0), "wide logits": self.case(10, scale=5.),
        "longer prompts": self.case(15, tensor([[0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 1, 0, 0, 0]]).bool())}
    def edges(self, given): return {"one row": self.case(20, MASK[:1]), "logits of hundreds": self.case(30,
        scale=300.)}
    def compute(self, a, c):
        x, there = next_logps(a.logits, a.ids, c["shift"], c["soft"])
        m = (read_mask(a.mask, c["masked"]) | (c["masked"] == "all")) & there
        x = x.masked_fill(~m, 0.) * (-1 if c["sign"] == "minus" else 1)
        return dict(full=x, short=x[:, there], sums=x.sum(1), means=x.sum(1) / m.sum(1).clamp(min=1),
                    ahead=x.roll(-1, 1))[c["form"]]

class Sampler(ProofKind):
    asks, chapter = "token drawn from logits, and its log-prob", "tokens"
    takes = dict(logits="logits lm_logits next_token_logits scores", temperature="temperature temp tau",
                 top_k="top_k topk", top_p="top_p topp nucleus", generator="generator rng")
    defaults = dict(temperature=1., top_k=0, top_p=1.)
    right = dict(drawn=dict(warm="drawn after temperature, top-k and top-p"),
                 told=dict(drawn="with the log-prob it was drawn with", none="without a log-prob"))
    parts = 2
    wrong = dict(
        drawn=dict(greedy="the likeliest token always comes: nothing is drawn",
                   plain="the temperature is not used",
                   times="logits are multiplied by the temperature: divide",
                   late="top-p counts before the temperature, not after it",
                   open="top-k and top-p are not used", all_k="top-k is not used", all_p="top-p is not used",
                   less="top-p drops the token that reaches it", least="top-p drops the token that reaches it",
                   more="top-p keeps one token too many", even="kept tokens are drawn with equal probability",
                   few_k="top-k keeps one token too few", more_k="top-k keeps one token too many", swapped="top-p counts after top-k, of the k that are left",
                   rank="that is a place in the sorted order: map it back to a token", twice="probabilities are taken for logits: softmax comes twice"),
        told=dict(plain="log-probs before the temperature: a token was not drawn with them",
                  open="log-probs before top-k and top-p: a token was not drawn with them, ratios are biased",
                  cold="the log-prob leaves the temperature out: a token was not drawn with it",
                  heated="logits by the temperature are reported, not log-probs", raw="logits are reported, not log-probs", probs="probabilities are reported, not log-probs",
                  best="the log-prob of the likeliest token, whichever was drawn",
                  minus="the sign: a log-prob is at most 0"))
    known = {"a token and the log-prob that it was drawn with": dict(told="drawn"),
             "a token": dict(told="none")}
    n = 8000
    def asked(self, fn):
        def told(out): return [torch.as_tensor(x).detach().double().flatten()
                               for x in (out if isinstance(out, (tuple, list)) else [out])]
        def count(logits, **rest):
            try: out = told(fn(logits=logits.repeat(self.n, 1), **rest))
            except Exception: out = [[]]                          # it takes one row
            if len(out[0]) != self.n: out = [torch.cat(x) for x in zip(*(
                told(fn(logits=logits, **rest)) for _ in range(self.n)))]
            logp = torch.full((len(logits),), 0. if len(out) > 1 else torch.nan).double()     # what never came has none
            if len(out) > 1: logp[out[0].long()] = out[1]
            return torch.bincount(out[0].long(), minlength=len(logits)).double() / self.n, logp
        return count
    def same(self, got, want, tol):
        if not isinstance(got, tuple) or got[0].shape != want[0].shape: return False
        error = 5 * (want[0] * (1 - want[0]) / self.n).sqrt()
        return bool(((got[0] - want[0]).abs() <= error + 1e-9).all()) and values_match(got[1].masked_fill(
            got[0] == 0, 0.), want[1].masked_fill(got[0] == 0, 0.), max(tol, 1e-5))
    def case(self, **rest): return dict(logits=tensor([.4, 1.6, -.9, 1.1, .7, -.3]).double(),
        generator=Generator().manual_seed(1)) | self.defaults | rest
    def cases(self, given):
        asked = dict(temperature=1.7, top_k=5, top_p=.6)
        return {"plain": self.case()} | {k: self.case(**{k: x}) for k, x in asked.items() if k in given} | {
            "all at once": self.case(**{k: x for k, x in asked.items() if k in given})} | (
            {"three tokens at once": self.case(**asked | dict(top_k=3))} if {*asked} <= given else {})
    def edges(self, given): return {
        "one token": self.case(top_k=1)} if "top_k" in given else {}
    def compute(self, a, c):
        def kept(x, like, k, p): # the logits that are left
            x = x.masked_fill(x < x.topk(min(k or len(x), len(x))).values[-1], -torch.inf)
            prob, order = like.masked_fill(x.isinf(), -torch.inf).softmax(0).sort(descending=True)
            before = prob.cumsum(0) - prob
            cut = dict(less=(before + prob > p) & (before > 0), more=before - prob.roll(1) * (
                before > 0) >= p).get(c["drawn"], before >= p) if p < 1 else torch.zeros_like(order).bool()
            if c["drawn"] == "least": cut = (prob.cumsum(0) > p) & (before > 0)   # rounding cuts at 1, too
            return x.masked_fill(torch.zeros_like(cut).scatter(0, order, cut), -torch.inf)
        x, how = a.logits, c["drawn"]
        warm = x / a.temperature
        warm = dict(plain=x, times=x * a.temperature, twice=warm.softmax(0)).get(how, warm)
        k, p = max(1, a.top_k + dict(few_k=-1, more_k=1).get(how, 0)) if a.top_k else 0, a.top_p
        left = kept(warm, x if how == "late" else warm, 0 if how in ("open", "all_k") else k,
                    1. if how in ("open", "all_p") else p)
        if how == "swapped":
            nucleus = kept(warm, warm, 0, p)
            left = kept(nucleus, nucleus, k, 1.)
        if how == "rank": left = left.sort(descending=True).values
        full = left
        if how == "even": left = left.masked_fill(left.isfinite(), 0.)
        if how == "greedy": left = warm.masked_fill(warm < warm.max(), -torch.inf)
        cold = x.masked_fill(full.isinf(), -torch.inf).log_softmax(0)
        told = dict(drawn=full.log_softmax(0), cold=cold, heated=warm, plain=x.log_softmax(0), open=warm.log_softmax(0), raw=x,
                    probs=left.softmax(0), best=left.log_softmax(0).max().expand_as(x),
                    minus=-left.log_softmax(0), none=torch.full_like(x, torch.nan))[c["told"]]
        return left.softmax(0), told

# ---- the log-prob of each token

def _next(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError("one (b t)")
    return dict(logits=widened(logits), ids=ids, mask=ids >= 0)

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
           "a first token that is ruled out": (_banned, tensor([[5, 1, 2, 3], [4, 0, 0, 1]])),
           "logits that were cut": (_randn(18, 3, 5, 9), _ids), "ids that were cut": (_randn(31, 3, 6, 9), _ids[:, 1:]),
           "more rows of logits than of ids": (_randn(32, 3, 6, 9), _ids[:2]),
           "more rows of ids than of logits": (_randn(33, 1, 6, 9), _ids)},
    mistakes=Logprobs().told(_next, "soft shift sign form", {
        "entry 0 is missing: the result is (b t)": dict(form="short"),
        "that is one number per response: keep one per token": dict(form="sums")}) | {
        "the log of softmax is -inf where a probability underflows: use log_softmax":
            lambda z, y: tokens.token_logprobs(widened(z).softmax(-1).log(), y),
        "logits and ids must share (b t), or ValueError":
            lambda z, y: tokens.token_logprobs(z[:, :y.shape[1]], y[:, :z.shape[1]]),
        "no gradient reaches the logits: do not detach": lambda z, y: tokens.token_logprobs(z.detach(), y)} | refusing(tokens.token_logprobs, {
        "id 0 is a token like any other, no pad: its log-prob counts": lambda z, y: tokens.token_logprobs(z, y) * (y != 0),
        "entry 0 is 0: roll brings the last row of the logits round to the first token":
            lambda z, y: widened(z).log_softmax(-1).roll(1, 1).gather(-1, y[..., None])[..., 0],
        "one log-prob per token: that is their running sum": lambda z, y: tokens.token_logprobs(z, y).cumsum(1),
        "these are probabilities: their logs are wanted, and entry 0 is 0": lambda z, y: tokens.token_logprobs(z, y).exp(),
        "natural logarithms, nats: those are bits": lambda z, y: tokens.token_logprobs(z, y) / math.log(2),
        "softmax runs over the whole batch: it runs over the words, the last axis": lambda z, y: tokens.token_logprobs(
            z, y) + (widened(z).logsumexp(-1) - widened(z).logsumexp((0, 1, 2))).roll(1, 1).masked_fill(torch.arange(y.shape[1]) == 0, 0.),
        "log_softmax already holds the logarithm: no second one, no log of its size":
            lambda z, y: -(-tokens.token_logprobs(z, y)).log()}))

# ---- the mean over the tokens that count

def _mean(x, mask, total=lambda x, m: torch.where(m, x, torch.zeros_like(x)).sum(),
          count=lambda m: m.sum()):
    if x.shape != mask.shape or not mask.any(): raise ValueError("no mean")
    x = widened(x)
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
           "a 0 that counts": (tensor([[0., 4., 2., 9.]]), tensor([[True, True, True, False]])),
           "three axes": (_randn(22, 2, 3, 2), _randn(23, 2, 3, 2) > 0),
           "300 numbers in bf16": ((3 + _randn(24, 4, 300)).bfloat16(), _randn(25, 4, 300) > -1),
           "float64": (_randn(26, 3, 6).double(), _sides),
           "all True": (_randn(27, 2, 3), torch.ones(2, 3).bool()),
           "no True at all": (_randn(28, 2, 3), torch.zeros(2, 3).bool()),
           "a mask for one row only": (_randn(29, 2, 3), torch.ones(3).bool()),
           "a mask in a column": (_randn(34, 2, 3), torch.ones(2, 1).bool()),
           "a mask with an axis less, as many entries": (_randn(35, 1, 3), torch.ones(3).bool())},
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
        "that divides by the width, not by the number of True": lambda x, m: _mean(x, m, count=lambda m: m.shape[-1]),
        "a 0 under a True counts as well: divide by the number of True": lambda x, m: (
            lambda kept: _mean(x, m, count=lambda m: (kept != 0).sum()))(x.where(m, 0.)) if x.shape == m.shape else _mean(x, m),
        "each column alike: every token has the same weight": lambda x, m: _mean(x, m, total=lambda x, m: (
            x.where(m, 0.).sum(0) / m.sum(0).clamp(min=1))[m.any(0)].mean(), count=lambda m: 1) if x.dim() == 2 else _mean(x, m),
        "only rows in which all is True are in the mean: every True entry counts": lambda x, m: _mean(x, m, total=lambda x, m: (
            x[m.all(-1)].sum()), count=lambda m: m[m.all(-1)].sum()),
        "that is the mean over the rows that hold a True, each row alike: every token has the same weight":
            lambda x, m: _mean(x, m, total=lambda x, m: _row_means(x, m)[m.any(1)].mean(), count=lambda m: 1)
            if x.dim() == 2 else _mean(x, m),
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
           "zeros and ones": (tensor([[1, 1, 0, 0], [0, 1, 1, 0]]),), "zeros and ones, pads in front": (tensor([[0, 0, 1, 1], [0, 1, 1, 1]]),),
           "zeros and ones, no pads": (torch.ones(2, 3).long(),),
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
        "counted from the end, below 0: positions are counted from the front, 0 to t - 1":
            lambda m: _rows(m, lambda row: -1 - row.flip(0).argmax()),
        "one number for each row, not for each column: the last True down each column":
            lambda m: _rows(m, lambda row: 0).new_tensor((len(m) - 1 - m.int().flip(0).argmax(0)).tolist()),
        "one number for each row, not for each column: the largest position in each column":
            lambda m: (_rows(m, len), torch.where(m.bool(), torch.arange(m.shape[1]), -1).amax(0))[1],
        "a hole does not end the row: that is the end of the first run of real tokens":
            lambda m: _rows(m, lambda row: (row.cumprod(0) if row[0] else (row + (row.cumsum(0) == 0)).cumprod(0)).sum() - 1),
        "first + number - 1 is the last only without a hole": lambda m: _rows(m, lambda row: row.argmax() + row.sum() - 1),
        "that is one place for all rows, the longest row's": lambda m: _rows(m, lambda row: m.int().nonzero()[:, 1].max()),
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
           "two turns, and a pad of its own": (tensor([[5, 1, 6, 1, 0]]), tensor([4]), 0),
           "a row of pads": (tensor([[1, 1, 1], [5, 6, 1]]), tensor([0, 3]), 1),
           "one token": (tensor([[5]]), tensor([1]), 1)},
    mistakes={
        "it still goes by the ids: where pad is eos, the end looks like padding": _by_ids,
        "the first token is counted: nothing precedes it":
            lambda *a: _counted(*a, first=0),
        "position 1 counts, too: only entry 0 of each row is out, since nothing precedes it":
            lambda *a: _counted(*a, first=2),
        "entry 0 of each row is out, not the first row": lambda *a: _counted(*a, first=0) & (
            torch.arange(len(a[0])) > 0)[:, None],
        "pads stand on the right: the first `lengths` columns are real, not the last": lambda ids, n, pad: (
            lambda at: (at > 0) & (at >= ids.shape[1] - n[:, None]))(torch.arange(ids.shape[1])),
        "pad and eos may share an id, then a token with it counts before `lengths`; where they do not, the first pad is no eos":
            lambda ids, n, pad: _counted(ids, n + 99, pad) & ((ids == pad).cumsum(1) - (ids == pad).long() == 0),
        "pads of id `pad` behind the first are out, but one may stand inside: lengths says where a row ends":
            lambda ids, n, pad: _counted(ids, n, pad) & ((ids == pad).cumsum(1) - (ids == pad).long() == 0),
        "lengths is where the pads begin: counting the ids other than pad loses an eos of the same id":
            lambda ids, n, pad: _counted(ids, (ids != pad).sum(1), pad),
        "the last token of each row is missing, and it is the eos":
            lambda ids, n, pad: _counted(ids, n - 1, pad),
        "one pad is counted: the last token is at lengths - 1":
            lambda ids, n, pad: _counted(ids, n + 1, pad),
        "each row ends at its own length, not at the longest": lambda ids, n, pad: _counted(
            ids, torch.full_like(n, int(n.max())), pad),
        "the pads are counted": lambda ids, n, pad: _counted(ids, torch.full_like(n, 99), pad),
        "it ends at the first eos: a row may hold two turns": _to_first_end,
        "upside down: True is what the loss counts": lambda *a: ~_counted(*a)})

ASKED = {
    "shift_right": {
        "nothing precedes a single token: a column alone becomes 0": "one column",
        "any number of further axes may stand behind (b t): time stays axis 1": "logits | one row | one column | four axes",
        "any type must work, bool and whole numbers too: the zeros have the type of x": "a mask | token ids | bf16 | float64",
        "row 0 is 0 whatever x holds: 0 times nan or inf is nan": "nan and inf"},
    "token_logprobs": {
        "logits and ids that differ in (b t), in rows or in length, raise ValueError":
            "logits that were cut | ids that were cut | more rows of logits than of ids | more rows of ids than of logits",
        "float32 at least: bf16 and float16 logits are raised to it before log_softmax": "bf16 | float16",
        "entry 0 is 0, and 0 times -inf is nan: set it, do not multiply": "a first token that is ruled out",
        "improbable tokens keep their log-prob, down to -inf: log_softmax, no log of softmax, no clamp, no eps":
            "a token whose logit is -300 | a token that is ruled out | a first token that is ruled out | large logits"},
    "masked_mean": {
        "where the mask is False x may hold anything: nan or inf times 0 is nan, where and masked_fill choose": "nan and inf under the mask",
        "a nan under a True makes the mean nan": "a nan that counts",
        "a 0 under a True counts: divide by the number of True": "a 0 that counts",
        "x may have any shape: the mean is over all True entries": "one axis | three axes",
        "a mask without any True entry raises ValueError": "no True at all",
        "a mask of another shape raises ValueError, although it would broadcast":
            "a mask for one row only | a mask in a column | a mask with an axis less, as many entries",
        "the result is float32 at least: go to float32 before the sum": "300 numbers in bf16"},
    "last_token_index": {
        "a row may hold a hole: the largest position with a True is the last, wherever a run ends": "a hole",
        "the mask may hold 0 and 1 as well as truth values: .bool() makes these of them": "zeros and ones",
        "a row without a real token raises ValueError": "a row of pads",
        "pads may stand on the left: the number of tokens is no position":
            "pads on the left | pads on both sides | zeros and ones | one row"},
    "fixed_counted": {
        "a row of length 0 counts no token": "a row of pads",
        "a row may hold two turns, each with its eos: lengths says where it ends, not the first eos":
            "two turns, each with its eos | two turns, and a pad of its own",
        "a token with the id of pad counts where it stands before lengths: the ids do not say where a row ends":
            "pad is eos | cut before its end | two turns, each with its eos | a row of pads"}}
