"Exercises of the chapter on the KL."
import math, torch
from torch import Generator, inf, tensor
from rlhf_nb.book.checks import Exercise, ProofKind
from rlhf_nb.exercises.asked import refusing
from rlhf_nb.exercises.tokens import normal, widened

def quarters(seed, *size): # sums of quarters are exact in any order and precision
    return torch.randint(-20, 0, size, generator=Generator().manual_seed(seed)) / 4

def mask_of(*rows): return tensor([[c == "r" for c in row] for row in rows])

LOGP = ("logp logprobs log_probs logps per_token_logps log_prob logprob new_logp new_logprobs new_log_probs "
         "policy_logps curr_log_probs log_probs_new")
REF = ("ref_logp ref_logprobs ref_log_probs ref_per_token_logps ref_logps ref_log_prob logp_ref "
        "reference_logprobs")

class KL(ProofKind):
    asks, chapter = "KL estimate of each token", "kl"
    takes = dict(logp=LOGP + " log_p", ref_logp=REF + " log_q")
    right = dict(estimator=dict(k1="k1 = d = log π - log π_ref", k2="k2 = d² / 2", k3="k3 = exp(-d) - 1 + d",
                                absolute="absolute log-ratio", k2_cut="k2, at most 10", k3_cut="k3, at most 10"),
                 over=dict(tokens=""))
    wrong = dict(estimator=dict(
        reversed="the policy comes first: that is the reference minus the policy",
        cut="it may be below 0: do not cut there", square="k2 is half the square", half="k1 is not halved",
        ratio="that is the ratio: its log is wanted",
        flipped="the exponent is -d: that is k3 with the arguments swapped",
        exponent="the exponent is -d", subtracted="d is added, not taken off",
        missing="minus 1 is missing: at d = 0 it is 0", unlogged="d is missing: that has mean 0",
        negative="turn the sign: it is never below 0",
        product="weighted by the ratio: samples come from π already",
        weighted="each token weighs alike: samples already come with their probability",
        forward="weighted by the reference's probability: samples come from π, not from it"),
        over=dict(rows="that is one number per row, their sum: the shape stays, one per token", all="that is one number for all, their mean: the shape stays, one per token"))
    meant = dict(square="k2") | dict.fromkeys("flipped exponent subtracted missing unlogged negative".split(), "k3")
    known = {f"k{i} (Schulman 2020)": dict(estimator=f"k{i}") for i in (1, 2, 3)}
    def case(self, seed, scale, kind=torch.double):
        logp = -normal(seed, 3, 5).abs()
        ref = logp + normal(seed + 1, 3, 5, scale=scale)
        return dict(logp=logp.to(kind).requires_grad_(), ref_logp=ref.to(kind))
    def cases(self, given): return {"three responses": self.case(0, .5), "near": self.case(10, .05),
                                    "far": self.case(20, 2.)}
    def edges(self, given): return {"float32, very near": self.case(30, 1e-4, torch.float32)}
    def compute(self, a, c):
        d = widened(a.logp) - widened(a.ref_logp)
        x = dict(k1=lambda: d, k2=lambda: d**2 / 2, k3=lambda: torch.expm1(-d) + d, k2_cut=lambda: (d**2 / 2).clamp(max=10),
                 k3_cut=lambda: (torch.expm1(-d) + d).clamp(max=10), absolute=d.abs, reversed=lambda: -d,
                 cut=lambda: d.clamp(min=0), square=lambda: d**2, half=lambda: d / 2, ratio=d.exp,
                 flipped=lambda: torch.expm1(d) - d, exponent=lambda: torch.expm1(d) + d,
                 subtracted=lambda: torch.expm1(-d) - d, missing=lambda: (-d).exp() + d, unlogged=lambda: torch.expm1(-d),
                 negative=lambda: -torch.expm1(-d) - d, product=lambda: d.exp() * d,
                 weighted=lambda: a.logp.exp() * d, forward=lambda: a.ref_logp.exp() * -d)[c["estimator"]]()
        return dict(tokens=x, rows=x.sum(-1), all=x.mean())[c["over"]]

# ------------------------------------------------------------------ kl_k1, kl_k3
def _two(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("two shapes")
    return dict(logp=logp, ref_logp=ref_logp)
def _ratio(logp, ref_logp): return widened(logp) - ref_logp

def _pair(seed, *shape, dtype=torch.float32):
    return [quarters(seed + k, *shape).to(dtype).requires_grad_() for k in (0, 1)]

_PAIRS = {"two rows": _pair(20, 2, 3), "one row": _pair(22, 1, 4), "a single token": _pair(24, 1, 1), "one axis": _pair(26, 5),
          "bf16": _pair(28, 2, 3, dtype=torch.bfloat16), "float64": _pair(30, 2, 3, dtype=torch.double),
          "bf16, far apart": [tensor(x).bfloat16().requires_grad_() for x in ([[-3., -.0123]], [[-.0123, -5.5]])],
          "float16": _pair(46, 2, 3, dtype=torch.half), "three axes": _pair(48, 2, 1, 3),
          "equal log-probs": [_pair(32, 2, 2)[0], _pair(32, 2, 2)[0]],
          "a token given up, -300": [tensor([[-300., -1.]]).requires_grad_(), tensor([[-299., -300.]]).requires_grad_()],
          "shapes that would broadcast": [_pair(34, 2, 3)[0], _pair(36, 3)[0]],
          "a column against rows": [_pair(38, 2, 1)[0], _pair(40, 2, 3)[0]],
          "a column against a row, as many numbers": [_pair(42, 3, 1)[0], _pair(44, 1, 3)[0]]}
def _estimator(name, formula, also, cases, mistakes):
    def asked(a, b): return formula(_ratio(**_two(a, b)))
    others = {f"that is {k}": dict(estimator=k) for k in ("k1", "k2", "k3") if k != name}
    return Exercise(reference=asked, cases=_PAIRS | cases, mistakes=KL().told(
        _two, "estimator over", others | also, estimator=name) | refusing(asked, {
        "that is a sum over all tokens, one number: the shape stays, one per token": lambda a, b: asked(a, b).sum(),
        "that is one mean per row: the shape stays, one per token": lambda a, b: asked(a, b).mean(-1),
        "a quotient of log-probs is no log-ratio: take their difference": lambda a, b: formula(widened(a) / widened(b)),
        "natural logarithms, nats: those are bits": lambda a, b: asked(a, b) / math.log(2),
        "that is the difference of the probabilities: it is that of the log-probs": lambda a, b: formula(widened(a).exp() - widened(b).exp()),
        "these are log-probs already: no log of them": lambda a, b: formula((-widened(a)).log() - (-widened(b)).log()),
        "these are log-probs of the tokens, not logits: no log_softmax": lambda a, b: formula(
            widened(a).log_softmax(-1) - widened(b).log_softmax(-1)),
        "it is not weighted by the policy's probability: samples come with it already": lambda a, b: asked(a, b) * widened(a).exp(),
        "it is not weighted by the reference's probability: samples come from the policy": lambda a, b: asked(a, b) * widened(b).exp(),
        "that is a running sum along the row: one number per token": lambda a, b: asked(a, b).cumsum(-1),
        "a gradient flows into both arguments: do not detach the reference":
            lambda a, b: asked(a, b.detach()),
        "a gradient flows into both arguments: do not detach the policy": lambda a, b: asked(a.detach(), b)} | mistakes) | {
        "a gradient flows into both arguments: detach nothing": lambda a, b: asked(a, b).detach(),
        "the difference is rounded to 16 bits: go to float32 first": lambda a, b: formula(
            widened(a - b)) if a.shape == b.shape else asked(a, b),
        "shapes that differ broadcast silently: raise ValueError": lambda a, b: formula(_ratio(a, b))})

kl_k1 = _estimator("k1", lambda d: d, {"it may be below 0: no absolute value": dict(estimator="absolute")}, {
    "both are -inf": [tensor([[-inf, -1., -2.]]), tensor([[-inf, -2., -1.5]])], "one of them is -inf": [
        tensor([[-inf, -1., -2.]]), tensor([[-1., -inf, -1.5]])]}, {
    "where both are -inf it is nan, as the stub says: no 0 in its place": lambda a, b: (widened(a) - widened(b)).masked_fill((a == -inf) & (b == -inf), 0.)})
kl_k3 = _estimator("k3", lambda d: torch.expm1(-d) + d, {}, {
    "far below the reference": [tensor([[-900., -1., -80.]]), tensor([[-1., -2., -.5]])]}, {
    "d is added to exp(-d) - 1, it is not its absolute value": lambda a, b: torch.expm1(-_ratio(a, b)) + _ratio(a, b).abs(),
    "that is half of it: k3 has no factor": lambda a, b: (torch.expm1(-_ratio(a, b)) + _ratio(a, b)) / 2,
    "that is the absolute log-ratio": lambda a, b: _ratio(a, b).abs(),
    "that is d exp(d) - exp(d) + 1, the other KL's: it is exp(-d) - 1 + d": lambda a, b: (lambda d: d * d.exp() - torch.expm1(d))(_ratio(a, b)),
    "probabilities of exp(-300) are 0, and 0 / 0 is nan: work with d, the difference of the logs":
        lambda a, b: (lambda r: r - 1 - r.log())(widened(b).exp() / widened(a).exp())})

# ------------------------------------------------------------------ token_rewards
def _rewards(score, penalty, mask, where=None, give=lambda p, s: p + s, checked=True, empty=False, none=None):
    if checked and (score.shape != mask.shape[:1] or penalty.shape != mask.shape): raise ValueError("shapes")
    out = penalty.to(torch.promote_types(penalty.dtype, torch.float32)).clone()
    for i in range(len(mask)):
        at = mask[i].nonzero()[:, 0].tolist()
        for j in (where(at, mask[i]) if at else (none or [len(mask[i]) - 1]) if empty else []): out[i, j] = give(penalty[i, j], score[i])
    return out

def _scored(seed, *rows, dtype=torch.float32):
    mask = mask_of(*rows)
    score = quarters(seed, len(rows)) + 3
    return score.to(dtype), torch.where(mask, quarters(seed + 1, *mask.shape) / 8 + 1, 0.).to(dtype), mask

def _last(at, mask): return at[-1:]
token_rewards = Exercise(
    reference=lambda *a: _rewards(*a, where=_last),
    cases={"two rows": _scored(50, "prrr.", "pprr."), "pads on both sides": _scored(52, "..prr.", "pprrrr", ".prrr."),
           "an empty response": _scored(54, "ppp..", "pprrr"), "one row": _scored(56, "prrrr"), "one token": _scored(58, "pr"),
           "a gap in the response": _scored(60, "prrprr", "prr..."), "bf16": _scored(62, "prrr", "pprr", dtype=torch.bfloat16),
           "float64": _scored(64, "prr.", "prrr", dtype=torch.double), "as many rows as tokens": _scored(66, "prr", "pr.", "prr"),
           "scores in a column": (lambda s, p, m: (s[:, None], p, m))(*_scored(68, "prr", "pr.")),
           "a score per token": (lambda s, p, m: (p, p, m))(*_scored(70, "prr", "pr.")),
           "a penalty per response": (lambda s, p, m: (s, p[:, :1], m))(*_scored(72, "prr", "pr."))},
    mistakes={
        "the last column may be a pad: take the last response token": lambda *a: _rewards(*a, where=lambda at, m: [len(m) - 1], empty=True),
        "every token gets the score: only the last one does": lambda *a: _rewards(*a, where=lambda at, m: at),
        "that is the first response token": lambda *a: _rewards(*a, where=lambda at, m: at[:1]),
        "counted from column 0: the prompt and left pads stand before": lambda *a: _rewards(*a, where=lambda at, m: [len(at) - 1]),
        "one too early: eos, the last token, gets the score": lambda *a: _rewards(*a, where=lambda at, m: [at[-1] - 1]),
        "one too late: the last response token itself gets the score":
            lambda *a: _rewards(*a, where=lambda at, m: [min(at[-1] + 1, len(m) - 1)]),
        "one too late: behind the last column the score is lost, the last response token itself gets it":
            lambda *a: _rewards(*a, where=lambda at, m: [at[-1] + 1][:len(m) - 1 - at[-1]]),
        "the penalty of the last token is kept: add the score to it": lambda *a: _rewards(*a, where=_last, give=lambda p, s: s),
        "the penalty is negative already: add the two": lambda *a: _rewards(*a, where=_last, give=lambda p, s: s - p),
        "the penalty is negative already: do not turn its sign": lambda s, p, m: _rewards(s, -p, m, where=_last),
        "the score is missing": lambda *a: _rewards(*a, where=lambda at, m: []),
        "the last column may be a pad: take the last response token, where there is one": lambda *a: _rewards(*a, where=lambda at, m: [len(m) - 1]),
        "an empty response has no last token: its score reaches nobody, not the first column": lambda *a: _rewards(
            *a, where=lambda at, m: at[-1:] or [0], empty=True, none=[0]),
        "the last response token is the mask's last True: a gap does not end the response": lambda *a: _rewards(
            *a, where=lambda at, m: [next(j for j in at if j + 1 not in at)]),
        "a score has its sign already: add it": lambda *a: _rewards(*a, where=_last, give=lambda p, s: p - s),
        "those are returns, sums from here on: a reward is what the token itself gets": lambda *a: _rewards(*a, where=_last).flip(1).cumsum(1).flip(1),
        "the penalty of every token stands at its own: that puts all of it at the last": lambda s, p, m: _rewards(
            s + p.sum(1), 0 * p, m, where=_last) if p.shape == m.shape and s.ndim == 1 else _rewards(s, p, m, where=_last),
        "one number per token, not their sum per response": lambda *a: _rewards(*a, where=_last).sum(1),
        "scores are taken as they are: their mean is not subtracted": lambda s, p, m: _rewards(s - s.mean(), p, m, where=_last),
        "scores are taken as they are: they are not whitened": lambda s, p, m: _rewards(
            (s - s.mean()) / (s.std() + 1e-8) if s.ndim == 1 else s, p, m, where=_last),
        "the score is given whole: it is not divided by the length": lambda s, p, m: _rewards(
            s / m.sum(1).clamp(min=1) if s.ndim == 1 else s, p, m, where=_last),
        "the penalty is given whole: it is not divided by the length": lambda s, p, m: _rewards(
            s, p / m.sum(1, True).clamp(min=1) if p.shape == m.shape else p, m, where=_last),
        "each response gets its own score, not that of the first": lambda s, p, m: _rewards(
            s[:1].expand_as(s) if s.ndim == 1 else s, p, m, where=_last),
        "the score is given once, not spread over the tokens": lambda score, p, m: _rewards(
            score / m.sum(1).clamp(min=1), p, m, where=lambda at, m: at) if score.dim() == 1 else _rewards(score, p, m),
        "the penalty is missing": lambda s, p, m: _rewards(s, 0 * p, m, where=_last),
        "an empty response has no last token: its score reaches nobody": lambda *a: _rewards(*a, where=_last, empty=True),
        "shapes that do not fit broadcast silently: raise ValueError": lambda s, p, m: (
            lambda last: torch.where(last, p.float() + (s if s.dim() > 1 else s[:, None]), p.float()).to(p.dtype if p.dtype == torch.double else torch.float))(
                m & (m.flip(1).cumsum(1).flip(1) == 1))})

_SAME = {
    "two tensors of different shapes raise ValueError, although they would broadcast":
        "shapes that would broadcast | a column against rows | a column against a row, as many numbers",
    "bf16 and float16 are raised to float32 before the difference, whose digits are lost otherwise": "bf16 | bf16, far apart | float16",
    "any shape must work, with one axis or three": "one axis | three axes"}
ASKED = {
    "kl_k1": _SAME | {"nan where both are -inf: no 0 in its place": "both are -inf", "a log-prob may be -inf: d is then inf, -inf or nan, not cut off":
                      "both are -inf | one of them is -inf"},
    "kl_k3": _SAME | {"improbable tokens count: work with d, since exp of a log-prob of -300 is 0": "a token given up, -300 | far below the reference",
                      "it goes up to inf: nothing is cut off": "far below the reference"},
    "token_rewards": {
        "score is (b), the other two (b t): other shapes raise ValueError, although they would broadcast":
            "scores in a column | a score per token | a penalty per response",
        "an empty response gets no score, and raises nothing": "an empty response",
        "a gap does not end a response: the last response token is the last True of the mask": "a gap in the response",
        "bf16 and float16 are promoted to float32": "bf16",
        "pads may stand on the left: the last response token is no matter of counting": "pads on both sides"}}
