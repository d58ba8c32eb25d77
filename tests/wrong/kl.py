"Answers to the exercises of the chapter on the KL that learners might give, each wrong."
import torch
from torch.nn import functional as F
from rlhf_nb.kl import kl_k1, kl_k2, kl_k3, kl_penalty

def as_it_was(logp, ref_logp, mask, beta):
    ratio = ref_logp.detach() - logp.detach()
    return torch.where(mask, -beta * ratio, 0.)
def plus_beta(logp, ref_logp, mask, beta):
    return (beta * (logp - ref_logp)).detach().masked_fill(~mask, 0.)
def without_beta(logp, ref_logp, mask, beta):
    return torch.where(mask, (ref_logp - logp).detach(), 0.)
def alive(logp, ref_logp, mask, beta):
    return torch.where(mask, -beta * (logp - ref_logp), 0.)
def half_alive(logp, ref_logp, mask, beta):
    return torch.where(mask, beta * (ref_logp - logp.detach()), 0.)
def multiplied(logp, ref_logp, mask, beta):
    return -beta * (logp.detach() - ref_logp.detach()) * mask
def not_masked(logp, ref_logp, mask, beta):
    return (-beta * (logp - ref_logp)).detach().nan_to_num(0.)
def mask_upside_down(logp, ref_logp, mask, beta):
    return torch.where(mask, torch.zeros(()), -beta * (logp - ref_logp).detach())
def with_k3(logp, ref_logp, mask, beta): return kl_penalty(logp, ref_logp, mask, beta, kl_k3)
def with_k2(logp, ref_logp, mask, beta): return kl_penalty(logp, ref_logp, mask, beta, kl_k2)
def distance(logp, ref_logp, mask, beta):
    return torch.where(mask, -beta * abs(logp - ref_logp).detach(), 0.)
def cut(logp, ref_logp, mask, beta):
    return torch.where(mask, -beta * F.relu(logp - ref_logp).detach(), 0.)
def per_response(logp, ref_logp, mask, beta):
    return torch.stack([-beta * kl_k1(a[m], b[m]).sum().detach()
                        for a, b, m in zip(logp, ref_logp, mask)])
def ratio_itself(logp, ref_logp, mask, beta):
    return torch.where(mask, -beta * (logp - ref_logp).detach().exp(), 0.)

def safe(p, log_ratio): return torch.where(p > 0, p * log_ratio, 0.)
def logs(logits, ref_logits):
    return logits.float().log_softmax(-1), ref_logits.detach().float().log_softmax(-1)
def forward_kl(logits, ref_logits):
    p, q = logs(logits, ref_logits)
    return safe(q.exp(), torch.where(q > -torch.inf, q - p, 0.)).sum(-1)
def with_kl_div(logits, ref_logits):
    p, q = logs(logits, ref_logits)
    return F.kl_div(q, p, reduction="none", log_target=True).sum(-1)
def kl_div_total(logits, ref_logits):
    p, q = logs(logits, ref_logits)
    return F.kl_div(q, p, reduction="none", log_target=True).nan_to_num(0.).sum()
def each_row(logits, ref_logits):
    p, q = logs(logits, ref_logits)
    return safe(p.exp(), torch.where(p > -torch.inf, p - q, 0.)).sum((1, 2))
def sizes(logits, ref_logits):
    p, q = logs(logits, ref_logits)
    return safe(p.exp(), torch.where(p > -torch.inf, p - q, 0.).abs()).sum(-1)
def mean_word(logits, ref_logits):
    p, q = logs(logits, ref_logits)
    return safe(p.exp(), torch.where(p > -torch.inf, p - q, 0.)).mean(-1)
def both_learn(logits, ref_logits):
    p, q = logits.float().log_softmax(-1), ref_logits.float().log_softmax(-1)
    return safe(p.exp(), torch.where(p > -torch.inf, p - q, 0.)).sum(-1)
def both_learn_and_nan(logits, ref_logits):
    p, q = [x.float().log_softmax(-1) for x in (logits, ref_logits)]
    return (p.exp() * (p - q)).sum(-1)
def measured_and_nan(logits, ref_logits):
    p, q = [x.detach().float().softmax(-1) for x in (logits, ref_logits)]
    return (p * (p.log() - q.log())).sum(-1)
@torch.no_grad()
def only_measured(logits, ref_logits):
    p, q = logs(logits, ref_logits)
    return safe(p.exp(), torch.where(p > -torch.inf, p - q, 0.)).sum(-1)
def raw_logits(logits, ref_logits):
    gap = torch.where(logits > -torch.inf, logits - ref_logits.detach(), 0.)
    return (logits.softmax(-1) * gap).sum(-1)
def unweighted(logits, ref_logits):
    p, q = logs(logits, ref_logits)
    return torch.where(p > -torch.inf, p - q, 0.).sum(-1)
def cross_entropy(logits, ref_logits):
    p, q = logs(logits, ref_logits)
    return -safe(p.exp(), torch.where(p > -torch.inf, q, 0.)).sum(-1)
def other_axis(logits, ref_logits):
    p, q = [x.float().log_softmax(1) for x in (logits, ref_logits.detach())]
    return safe(p.exp(), torch.where(p > -torch.inf, p - q, 0.)).sum(-1)
def minus(logits, ref_logits):
    p, q = logs(logits, ref_logits)
    return safe(p.exp(), torch.where(p > -torch.inf, q - p, 0.)).sum(-1)

def moments(d, probs):
    extra = (-d).exp() - 1
    mean_d, mean_x = (probs * d).sum(), (probs * extra).sum()
    cov = (probs * d * extra).sum() - mean_d * mean_x
    return cov, (probs * d**2).sum() - mean_d**2, (probs * extra**2).sum() - mean_x**2
def searched(step, most):
    def search(d, probs):
        def variance(lam):
            x = d + lam * (torch.exp(-d) - 1)
            return (probs * (x - (probs * x).sum())**2).sum().item()
        return min((step * i for i in range(round(most / step) + 1)), key=variance)
    return search
def no_minus(d, probs): return moments(d, probs)[0] / moments(d, probs)[2]
def as_samples(d, probs):
    both = torch.cov(torch.stack([d, torch.expm1(-d)]))
    return -both[0, 1] / both[1, 1]
def wrong_exp(d, probs):
    extra, mean_d = d.exp() - 1, (probs * d).sum()
    off = extra - (probs * extra).sum()
    return -(probs * (d - mean_d) * off).sum() / (probs * off * off).sum()
def other_variance(d, probs): return -moments(d, probs)[0] / moments(d, probs)[1]
def by_std(d, probs): return -moments(d, probs)[0] / moments(d, probs)[2].sqrt()
def correlated(d, probs):
    cov, a, b = moments(d, probs)
    return -cov / a.sqrt() / b.sqrt()
def flipped(d, probs): return -moments(d, probs)[2] / moments(d, probs)[0]
def undivided(d, probs): return -moments(d, probs)[0]
def least_variance(d, probs):
    cov, a, b = moments(d, probs)
    return a - cov * cov / b
def under_reference(d, probs):
    q = probs / d.exp()
    return -moments(d, q)[0] / moments(d, q)[2]

WRONG = {
    "fixed_charge": [
        ("still the wrong way round: the policy is rewarded for leaving", as_it_was),
        ("still the wrong way round: the policy is rewarded for leaving", plus_beta),
        ("beta is missing", without_beta),
        ("a penalty in the reward is data: no gradient flows through it", alive),
        ("nothing flows into the reference either: detach both", half_alive),
        ("nan at a pad gets through: choose with the mask, do not multiply", multiplied),
        ("prompt tokens are penalised as well: only those of the response are", not_masked),
        ("the mask is True where a token pays", mask_upside_down),
        ("that is k3, whose gradient in the reward is no KL's", with_k3),
        ("that is k2, whose gradient in the reward is no KL's", with_k2),
        ("a token that steps back gets a refund: do not take the absolute value", distance),
        ("a token that steps back gets a refund: do not cut at zero", cut),
        ("that is the ratio: its log is charged", ratio_itself),
        ("that is one number per response: every token has its own", per_response)],
    "token_kl": [
        ("that is KL(ref || policy): swap them", forward_kl),
        ("a word of probability 0 adds 0, not nan", with_kl_div),
        ("that is one number for all: keep one per position", kl_div_total),
        ("that is one number per row: keep one per position", each_row),
        ("that is the mean over words: sum them", mean_word),
        ("the reference is data: no gradient flows into it", both_learn),
        ("no gradient reaches the policy", only_measured),
        ("two things: the reference is data, and a word of probability 0 adds 0, not nan",
         both_learn_and_nan),
        ("two things: a gradient must reach the policy, and a word of probability 0 adds 0, not nan",
         measured_and_nan),
        ("a logit is no log-prob: log_softmax comes first", raw_logits),
        ("weigh each word by its probability under the policy", unweighted),
        ("that is the cross-entropy: the policy's own entropy is to be taken off", cross_entropy),
        ("some words count below zero: no absolute values", sizes),
        ("words are on the last axis", other_axis),
        ("the sign: reference minus policy", minus)],
    "best_lambda": [
        ("a grid of tenths only comes near: where is the slope of the variance 0?", searched(.1, 1)),
        ("a grid of hundredths only comes near: where is the slope of the variance 0?",
         searched(.01, 1)),
        ("a grid of thousandths only comes near: where is the slope of the variance 0?",
         searched(.001, 2)),
        ("turn the sign", no_minus),
        ("weigh by probability: outcomes are not equally likely", as_samples),
        ("the second term is exp(-d) - 1: mind the minus", wrong_exp),
        ("divide by the variance of the second term, not of the first", other_variance),
        ("divide by the variance, not by its root", by_std),
        ("that is a correlation: divide by one variance", correlated),
        ("the fraction is upside down", flipped),
        ("that is the covariance: divide", undivided),
        ("that is how little it varies; asked is where", least_variance),
        ("samples come from the policy: those are the reference's probabilities", under_reference)]}
