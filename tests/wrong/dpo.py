"Answers to the exercises on DPO, each with one thing wrong."
import torch
from torch.nn.functional import logsigmoid

def above(beta):
    if not beta > 0: raise ValueError("beta must be above 0")
def up(*xs): return [x if x.dtype == torch.double else x.float() for x in xs]
def gap(pc, pr, rc, rr): pc, pr, rc, rr = up(pc, pr, rc, rr); return (pc - pr) - (rc - rr)
def dpo_swapped(pc, pr, rc, rr, beta=.1): above(beta); return -logsigmoid(-beta * gap(pc, pr, rc, rr))
def dpo_plain(pc, pr, rc, rr, beta=.1): above(beta); return -logsigmoid(beta * (up(pc)[0] - up(pr)[0]) + 0 * gap(pc, pr, rc, rr).detach()) + 0 * (up(rc)[0] + up(rr)[0])
def dpo_added(pc, pr, rc, rr, beta=.1): above(beta); pc, pr, rc, rr = up(pc, pr, rc, rr); return -logsigmoid(beta * ((pc + rc) - (pr + rr)))
def dpo_one(pc, pr, rc, rr, beta=.1): above(beta); return -logsigmoid(gap(pc, pr, rc, rr))
def dpo_divided(pc, pr, rc, rr, beta=.1): above(beta); return -logsigmoid(gap(pc, pr, rc, rr) / beta)
def dpo_half_beta(pc, pr, rc, rr, beta=.1): above(beta); pc, pr, rc, rr = up(pc, pr, rc, rr); return -logsigmoid(beta * (pc - rc) - (pr - rr))
def dpo_mean(pc, pr, rc, rr, beta=.1): above(beta); return -logsigmoid(beta * gap(pc, pr, rc, rr)).mean()
def dpo_sign(pc, pr, rc, rr, beta=.1): above(beta); return logsigmoid(beta * gap(pc, pr, rc, rr))
def dpo_prob(pc, pr, rc, rr, beta=.1): above(beta); return (beta * gap(pc, pr, rc, rr)).sigmoid()
def dpo_weight(pc, pr, rc, rr, beta=.1): above(beta); return 1 - (beta * gap(pc, pr, rc, rr)).sigmoid()
def dpo_hinge(pc, pr, rc, rr, beta=.1): above(beta); return (1 - beta * gap(pc, pr, rc, rr)).clamp(min=0)
def dpo_log(pc, pr, rc, rr, beta=.1): above(beta); return -torch.log(torch.sigmoid(beta * gap(pc, pr, rc, rr)))
def dpo_measured(pc, pr, rc, rr, beta=.1):
    above(beta)
    with torch.no_grad(): return -logsigmoid(beta * gap(pc, pr, rc, rr))
def dpo_unchecked(pc, pr, rc, rr, beta=.1): return -logsigmoid(beta * gap(pc, pr, rc, rr))
def dpo_softplus(pc, pr, rc, rr, beta=.1): above(beta); return torch.nn.functional.softplus(-beta * gap(pc, pr, rc, rr))
def dpo_logaddexp(pc, pr, rc, rr, beta=.1):            # right: Bradley-Terry of two rewards, in float64
    above(beta)
    good, bad = beta * (pc.double() - rc.double()), beta * (pr.double() - rr.double())
    return torch.logaddexp(good, bad) - good

WRONG = {
    "log_ratio_gap": [
        ("the reference is missing, or one for both sides, which cancels: each has its own", lambda a, b, c, d: up(a)[0] - up(b)[0] + 0 * (c + d).sum()),
        ("the sign: chosen minus rejected, and policy minus reference", lambda a, b, c, d: gap(c, d, a, b)),
        ("the sign of the reference: it is subtracted on both sides, each its own, not added (nor is the other side's subtracted)", lambda a, b, c, d: gap(a, b, -c, -d)),
        ("the two log-ratios are added: subtract the rejected one's", lambda a, b, c, d: sum(up(a)) + sum(up(b)) - sum(up(c)) - sum(up(d))),
        ("log-ratios are divided: subtract", lambda a, b, c, d: (up(a)[0] - up(c)[0]) / (up(b)[0] - up(d)[0])),
        ("only the chosen side is looked at", lambda a, b, c, d: up(a)[0] - up(c)[0]),
        ("that is a mean: one number per pair", lambda *x: gap(*x).mean(0)),
        ("no gradient reaches the policy", lambda *x: gap(*[y.data for y in x])),
        ("β belongs to the loss: the gap is in nats", lambda *x: gap(*x) / 10),
        ("raise low precision to float32 before you subtract: behind it the digits are lost", lambda a, b, c, d: (a - b) - (c - d)),
        ("raise low precision to float32 before you subtract: behind it the digits are lost", lambda a, b, c, d: ((a - c) - (b - d)).float())],
    "dpo_loss": [
        ("chosen and rejected are swapped: it learns the rejected ones", dpo_swapped), ("the reference is missing", dpo_plain),
        ("the reference is added: subtract it on both sides", dpo_added), ("beta is missing", dpo_one),
        ("multiply by beta, do not divide", dpo_divided), ("beta is for both ratios", dpo_half_beta),
        ("that is a mean: one number per pair", dpo_mean), ("the sign: a loss is above 0", dpo_sign),
        ("that is the probability: -log of it is the loss", dpo_prob),
        ("that is the weight of the gradient, not the loss", dpo_weight), ("that is the hinge", dpo_hinge),
        ("sigmoid, then log is infinite at -300: use logsigmoid", dpo_log), ("no gradient reaches the policy", dpo_measured),
        ("beta must be above 0, or ValueError", dpo_unchecked)]}

def gap_by_log(*x):                                    # right: the log of one odds ratio
    stacked = torch.stack(up(*x))
    return (torch.tensor([1., -1., -1., 1.], dtype=stacked.dtype)[:, None] * stacked).sum(0)
def gap_in_double(a, b, c, d):                         # right
    return torch.stack([w - l - (rw - rl) for w, l, rw, rl in zip(*[y.double() for y in (a, b, c, d)])])
RIGHT = {"log_ratio_gap": [gap, gap_by_log, gap_in_double], "dpo_loss": [dpo_softplus, dpo_logaddexp]}
