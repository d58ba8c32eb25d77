"Answers to the exercises on DPO, each with one thing wrong."
import torch
from torch.nn.functional import logsigmoid
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.tokens import shift_right, token_logprobs

def masked(model, seqs): return logprobs(model, seqs)
def per_token(model, seqs): return masked(model, seqs).sum(1) / seqs.response_mask.sum(1).clamp(min=1)
def per_column(model, seqs): return masked(model, seqs).mean(1)
def whole_batch(model, seqs): return masked(model, seqs).sum()
def as_nll(model, seqs): return -masked(model, seqs).sum(1)
def as_prob(model, seqs): return masked(model, seqs).sum(1).exp()
def without_eos(model, seqs):
    out = []
    for row, mask in zip(masked(model, seqs), seqs.response_mask): out.append(row[mask][:-1].sum())
    return torch.stack(out)
def without_first(model, seqs):
    out = []
    for row, mask in zip(masked(model, seqs), seqs.response_mask): out.append(row[mask][1:].sum())
    return torch.stack(out)
def final_token(model, seqs):
    out = []
    for row, mask in zip(masked(model, seqs), seqs.response_mask): out.append(row[mask][-1:].sum())
    return torch.stack(out)
@torch.no_grad()
def measured(model, seqs): return masked(model, seqs).sum(1)
def every_token(model, seqs): return masked(model, seqs)
def literal(model, seqs):                              # right
    logits = model(input_ids=seqs.ids, attention_mask=seqs.attention_mask).logits
    logp = token_logprobs(logits, seqs.ids)
    return torch.where(seqs.response_mask, logp, 0.).sum(-1)
def by_rows(model, seqs):                              # right
    return torch.stack([row[mask].sum() for row, mask in zip(masked(model, seqs), seqs.response_mask)])

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

def _still_mean(logits, ids, is_response):
    logp = token_logprobs(logits, ids)
    return (logp * is_response).sum(1) / is_response.sum(1)

def _still_mean_clamped(logits, ids, is_response):
    logp = token_logprobs(logits, ids)
    return (logp * is_response).sum(1) / is_response.sum(1).clamp(min=1)

def _mean_axis(logits, ids, is_response): return (token_logprobs(logits, ids) * is_response).mean(1)
def _no_mask(logits, ids, is_response): return token_logprobs(logits, ids).sum(1)
def _no_rows(logits, ids, is_response): return (token_logprobs(logits, ids) * is_response).sum()
def _as_loss(logits, ids, is_response): return -(token_logprobs(logits, ids) * is_response).sum(1)
def _exp(logits, ids, is_response):
    return (token_logprobs(logits, ids).exp() * is_response).sum(1)
def _unshifted(logits, ids, is_response):
    logp = logits.float().log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    return (logp * is_response).sum(1)
def _mask_late(logits, ids, is_response):
    keep = is_response & shift_right(is_response)
    return (token_logprobs(logits, ids) * keep).sum(1)
def _raw(logits, ids, is_response):
    with torch.no_grad(): logp = token_logprobs(logits, ids)
    return (logp * is_response).sum(1)
def _early(logits, ids, is_response):
    keep = is_response & torch.cat([is_response[:, 1:], is_response[:, :1] & False], 1)
    return (token_logprobs(logits, ids) * keep).sum(1)

WRONG = {
    "sequence_logprobs": [
        ("that is a mean over tokens: the log-prob of an answer is a sum", per_token),
        ("that is divided by the width: the log-prob of an answer is a sum", per_column),
        ("that is one number for the batch: keep one per row", whole_batch), ("the sign: this is a log-prob, not a loss", as_nll),
        ("that is the probability: its log is wanted", as_prob), ("eos is left out: it is part of the answer", without_eos),
        ("the first token of the answer is left out", without_first), ("that is the last token alone", final_token),
        ("no gradient reaches the model", measured), ("that is one number per token: sum them", every_token)],
    "dpo_loss": [
        ("chosen and rejected are swapped: it learns the rejected ones", dpo_swapped), ("the reference is missing", dpo_plain),
        ("the reference is added: subtract it on both sides", dpo_added), ("beta is missing", dpo_one),
        ("multiply by beta, do not divide", dpo_divided), ("beta is for both ratios", dpo_half_beta),
        ("that is a mean: one number per pair", dpo_mean), ("the sign: a loss is above 0", dpo_sign),
        ("that is the probability: -log of it is the loss", dpo_prob),
        ("that is the weight of the gradient, not the loss", dpo_weight), ("that is the hinge", dpo_hinge),
        ("sigmoid, then log is infinite at -300: use logsigmoid", dpo_log), ("no gradient reaches the policy", dpo_measured),
        ("beta must be above 0, or ValueError", dpo_unchecked)],
    "fixed_answer_logprob": [
        ("that is still the mean: beta is divided by the length of each answer", _still_mean),
        ("it is still divided by the length, of every row but an empty one",
         _still_mean_clamped),
        ("divided by the width of the batch: padding must not matter", _mean_axis),
        ("prompt and pads are counted: only response tokens are", _no_mask),
        ("that is one number for the batch: keep one per row", _no_rows),
        ("the sign: this is a log-prob, not a loss", _as_loss),
        ("that is the probability of each token, added: take logs first", _exp),
        ("shifted by one: the logits before a token predict it", _unshifted),
        ("the first token of the answer is left out", _mask_late),
        ("eos is left out: it is part of the answer", _early),
        ("no gradient reaches the logits", _raw)]}

def fixed_where(logits, ids, is_response):
    return torch.where(is_response, token_logprobs(logits, ids), 0.).sum(-1)
def fixed_loop(logits, ids, is_response):
    return torch.stack([row[mask].sum() for row, mask in zip(token_logprobs(logits, ids), is_response)])
RIGHT = {"sequence_logprobs": [literal, by_rows], "dpo_loss": [dpo_softplus, dpo_logaddexp],
         "fixed_answer_logprob": [fixed_where, fixed_loop]}
