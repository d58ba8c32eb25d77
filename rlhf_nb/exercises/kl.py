"Exercises of the chapter on the KL."
import torch
from torch import Generator, tensor
from rlhf_nb.checks import Exercise

def quarters(seed, *size): # sums of quarters are exact in any order and precision
    return torch.randint(-20, 0, size, generator=Generator().manual_seed(seed)) / 4

def mask_of(*rows): return tensor([[c == "r" for c in row] for row in rows])

# ------------------------------------------------------------------ fixed_charge
def _charge(logp, ref_logp, mask, beta, cost=lambda d: d, data=True):
    if data: logp, ref_logp = logp.detach(), ref_logp.detach()
    return torch.where(mask, -beta * cost(logp - ref_logp), 0.)

def _tokens(seed, beta, *rows, dtype=torch.float32):
    mask = mask_of(*rows)
    pads = tensor([[c == "." for c in row] for row in rows])    # and they hold nan
    logps = [quarters(seed + k, *mask.shape).to(dtype).masked_fill(pads, torch.nan)
             for k in (0, 1)]
    return *[x.requires_grad_() for x in logps], mask, beta

fixed_charge = Exercise(
    reference=_charge,
    cases={"two rows": _tokens(0, .5, "prrr.", "pprrr"),
           "pads on both sides": _tokens(2, .1, "..prr.", "pprrrr", ".prrr."),
           "an empty response": _tokens(4, .25, "ppp..", "pprrr"),
           "one row": _tokens(6, 2., "prrrr"),
           "bf16": _tokens(8, .5, "prrr", "pprr", dtype=torch.bfloat16)},
    mistakes={
        "still the wrong way round: the policy is rewarded for leaving":
            lambda *x: -_charge(*x),
        "beta is missing": lambda a, b, m, beta: _charge(a, b, m, 1.),
        "a penalty in the reward is data: no gradient flows through it":
            lambda *x: _charge(*x, data=False),
        "nothing flows into the reference either: detach both":
            lambda a, b, m, beta: _charge(a.detach(), b, m, beta, data=False),
        "prompt tokens are penalised as well: only those of the response are":
            lambda a, b, m, beta: _charge(a, b, m | ~a.isnan(), beta),
        "the mask is True where a token pays": lambda a, b, m, beta: _charge(a, b, ~m, beta),
        "nan at a pad gets through: choose with the mask, do not multiply":
            lambda a, b, m, beta: -beta * (a - b).detach() * m,
        "that is k3, whose gradient in the reward is no KL's":
            lambda *x: _charge(*x, cost=lambda d: torch.expm1(-d) + d),
        "that is k2, whose gradient in the reward is no KL's":
            lambda *x: _charge(*x, cost=lambda d: d**2 / 2),
        "a token that steps back gets a refund: do not take the absolute value":
            lambda *x: _charge(*x, cost=torch.abs),
        "a token that steps back gets a refund: do not cut at zero":
            lambda *x: _charge(*x, cost=lambda d: d.clamp(min=0)),
        "that is the ratio: its log is charged": lambda *x: _charge(*x, cost=torch.exp),
        "that is one number per response: every token has its own":
            lambda *x: _charge(*x).sum(1)})

# ------------------------------------------------------------------ token_kl
def _kl(p, q): # log-probs
    return (p.exp() * (p - q).masked_fill(p == -torch.inf, 0.)).sum(-1)

def _token_kl(logits, ref_logits, each=_kl, dim=-1, data=True):
    if data: ref_logits = ref_logits.detach()
    p, q = logits.float().log_softmax(dim), ref_logits.float().log_softmax(dim)
    return each(p, q)

def _words(seed, *size, dtype=torch.float32, zero_prob=()):
    generator, out = Generator().manual_seed(seed), []
    for _ in range(2):
        x = torch.randn(*size, generator=generator)
        x[..., list(zero_prob)] = -torch.inf
        out.append(x.to(dtype).requires_grad_())
    return tuple(out)

def _cross(p, q): return -(p.exp() * q.masked_fill(p == -torch.inf, 0.)).sum(-1)

token_kl = Exercise(
    reference=_token_kl,
    cases={"two rows": _words(0, 2, 3, 4), "one position, two words": _words(1, 1, 1, 2),
           "as many rows as words": _words(2, 3, 3, 3),
           "a word of probability 0 under both": _words(3, 2, 2, 5, zero_prob=[1]),
           "bf16": _words(4, 2, 3, 5, dtype=torch.bfloat16)},
    mistakes={
        "that is KL(ref || policy): swap them": lambda a, b: _token_kl(a, b, lambda p, q: _kl(q, p)),
        "that is one number for all: keep one per position": lambda a, b: _token_kl(a, b).sum(),
        "that is one number per row: keep one per position": lambda a, b: _token_kl(a, b).sum(1),
        "that is the mean over words: sum them": lambda a, b: _token_kl(a, b) / a.shape[-1],
        "the reference is data: no gradient flows into it":
            lambda a, b: _token_kl(a, b, data=False),
        "no gradient reaches the policy": lambda a, b: _token_kl(a.detach(), b),
        "two things: the reference is data, and a word of probability 0 adds 0, not nan":
            lambda a, b: _token_kl(a, b, lambda p, q: (p.exp() * (p - q)).sum(-1), data=False),
        "two things: a gradient must reach the policy, and a word of probability 0 adds 0, not nan":
            lambda a, b: _token_kl(a.detach(), b, lambda p, q: (p.exp() * (p - q)).sum(-1)),
        "words are on the last axis": lambda a, b: _token_kl(a, b, dim=1),
        "a logit is no log-prob: log_softmax comes first": lambda a, b: (
            a.softmax(-1) * (a - b.detach()).masked_fill(a == -torch.inf, 0.)).sum(-1),
        "weigh each word by its probability under the policy": lambda a, b: _token_kl(
            a, b, lambda p, q: (p - q).masked_fill(p == -torch.inf, 0.).sum(-1)),
        "a word of probability 0 adds 0, not nan":
            lambda a, b: _token_kl(a, b, lambda p, q: (p.exp() * (p - q)).sum(-1)),
        "that is the cross-entropy: the policy's own entropy is to be taken off":
            lambda a, b: _token_kl(a, b, _cross),
        "some words count below zero: no absolute values": lambda a, b: _token_kl(
            a, b, lambda p, q: (p.exp() * (p - q).masked_fill(p == -torch.inf, 0.).abs()).sum(-1)),
        "the sign: reference minus policy": lambda a, b: -_token_kl(a, b)})

# ------------------------------------------------------------------ best_lambda
def _lambda(d, probs, extra=None, result=lambda cov, var_d, var_x: -cov / var_x):
    extra = torch.expm1(-d) if extra is None else extra
    def mean(x): return (probs * x).sum()
    x, y = d - mean(d), extra - mean(extra)
    return result(mean(x * y), mean(x * x), mean(y * y))

def _grid(d, probs, step): # the best of 0, step, 2 step, ... 2
    lam = torch.arange(round(2 / step) + 1, dtype=torch.double)[:, None] * step
    x = d + lam * torch.expm1(-d)
    off = x - (probs * x).sum(1, keepdim=True)
    return lam[(probs * off**2).sum(1).argmin(), 0]

def _outcomes(seed, n, width=1.):
    generator = Generator().manual_seed(seed)
    p, q = [(width * torch.randn(n, generator=generator)).double().log_softmax(0) for _ in (0, 1)]
    return p - q, p.exp()

best_lambda = Exercise(
    reference=_lambda,
    cases={"five outcomes": _outcomes(0, 5), "two outcomes": _outcomes(1, 2),
           "forty outcomes": _outcomes(2, 40, .5), "close by": _outcomes(3, 6, .1),
           "far away": _outcomes(4, 6, 2.)},
    mistakes={
        "turn the sign": lambda d, c: -_lambda(d, c),
        "weigh by probability: outcomes are not equally likely":
            lambda d, c: _lambda(d, torch.ones_like(c) / len(c)),
        "samples come from the policy: those are the reference's probabilities":
            lambda d, c: _lambda(d, c * (-d).exp()),
        "the second term is exp(-d) - 1: mind the minus":
            lambda d, c: _lambda(d, c, torch.expm1(d)),
        "divide by the variance of the second term, not of the first":
            lambda d, c: _lambda(d, c, result=lambda cov, v, w: -cov / v),
        "a grid of tenths only comes near: where is the slope of the variance 0?":
            lambda d, c: _grid(d, c, .1),
        "a grid of hundredths only comes near: where is the slope of the variance 0?":
            lambda d, c: _grid(d, c, .01),
        "a grid of thousandths only comes near: where is the slope of the variance 0?":
            lambda d, c: _grid(d, c, .001),
        "divide by the variance, not by its root":
            lambda d, c: _lambda(d, c, result=lambda cov, v, w: -cov / w**.5),
        "that is a correlation: divide by one variance":
            lambda d, c: _lambda(d, c, result=lambda cov, v, w: -cov / (v * w)**.5),
        "the fraction is upside down":
            lambda d, c: _lambda(d, c, result=lambda cov, v, w: -w / cov),
        "that is the covariance: divide": lambda d, c: _lambda(d, c, result=lambda cov, v, w: -cov),
        "that is how little it varies; asked is where":
            lambda d, c: _lambda(d, c, result=lambda cov, v, w: v - cov**2 / w)})
