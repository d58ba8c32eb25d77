"Answers to the exercises on DPO, each with one thing wrong."
import torch
from torch.nn.functional import logsigmoid
from rlhf_nb.tokens import shift_right, token_logprobs

def _mean(logp, ref_logp, mask, beta):
    diff = (logp - ref_logp.detach()).masked_fill(~mask, 0.)
    return beta * diff.sum(1) / mask.sum(1).clamp(min=1)

def _all_tokens(logp, ref_logp, mask, beta): return beta * (logp - ref_logp.detach()).sum(1)

def _no_beta(logp, ref_logp, mask, beta): return ((logp - ref_logp.detach()) * mask).sum(1)

def _round(logp, ref_logp, mask, beta): return beta * ((ref_logp.detach() - logp) * mask).sum(1)

def _no_ref(logp, ref_logp, mask, beta): return beta * (logp * mask).sum(1)

def _into_ref(logp, ref_logp, mask, beta):
    out = []
    for a, b, m in zip(logp, ref_logp, mask): out.append(beta * (a[m] - b[m]).sum())
    return torch.stack(out)

def _frozen(logp, ref_logp, mask, beta):
    with torch.no_grad(): return beta * ((logp - ref_logp) * mask).sum(1)

def _without_eos(logp, ref_logp, mask, beta):
    out = []
    for a, b, m in zip(logp, ref_logp.detach(), mask):
        out.append(beta * (a[m][:-1] - b[m][:-1]).sum())
    return torch.stack(out)

def _without_first(logp, ref_logp, mask, beta):
    out = []
    for a, b, m in zip(logp, ref_logp.detach(), mask):
        out.append(beta * (a[m][1:] - b[m][1:]).sum())
    return torch.stack(out)

def _shifted(logp, ref_logp, mask, beta):
    return beta * ((logp[:, 1:] - ref_logp.detach()[:, 1:]) * mask[:, :-1]).sum(1)

def _batch(logp, ref_logp, mask, beta): return beta * (logp - ref_logp.detach())[mask].sum()

def _prompt(logp, ref_logp, mask, beta):
    return beta * (logp - ref_logp.detach()).masked_fill(mask, 0.).sum(1)

def _chosen_prob(pc, pr, rc, rr, beta): return ((pc - rc - pr + rr) * beta).sigmoid()
def _plain(pc, pr, rc, rr, beta): return (-beta * (pc - pr)).sigmoid()
def _added(pc, pr, rc, rr, beta): return (-beta * ((pc + rc) - (pr + rr))).sigmoid()
def _one(pc, pr, rc, rr, beta): return ((pr - rr) - (pc - rc)).sigmoid()
def _loss(pc, pr, rc, rr, beta): return -logsigmoid(beta * ((pc - rc) - (pr - rr)))
def _whole(pc, pr, rc, rr, beta): return beta * (beta * ((pr - rr) - (pc - rc))).sigmoid()
def _half(pc, pr, rc, rr, beta): return torch.sigmoid(-beta * (pc - rc))
def _average(pc, pr, rc, rr, beta): return (beta * ((pr - rr) - (pc - rc))).sigmoid().mean()
def _log(pc, pr, rc, rr, beta): return logsigmoid(-beta * ((pc - rc) - (pr - rr)))

def _slow_bits(probs):
    total = 0.
    for p in probs.tolist():
        for q in (p, 1 - p): total -= q * torch.tensor(q).log2().item() if q else 0.
    return torch.tensor(total / len(probs))

def _both_or_nan(probs): return -(probs * probs.log() + (1 - probs) * (1 - probs).log()).mean()
def _one_label(probs): return -torch.xlogy(probs, probs).mean()
def _summed(probs): return -(torch.xlogy(probs, probs) + torch.xlogy(1 - probs, 1 - probs)).sum()
def _negative(probs): return (torch.xlogy(probs, probs) + torch.xlogy(1 - probs, 1 - probs)).mean()
def _per_pair(probs): return torch.special.entr(probs) + torch.special.entr(1 - probs)
def _error_rate(probs): return (1 - torch.maximum(probs, 1 - probs)).mean()
def _likelier(probs): return -torch.maximum(probs, 1 - probs).log().mean()

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
    "implicit_reward": [
        ("that is a mean over tokens: the log-prob of an answer is a sum", _mean),
        ("prompt and pads are counted: only response tokens are", _all_tokens),
        ("beta is missing", _no_beta),
        ("turn it round: policy minus reference", _round),
        ("the reference is missing", _no_ref),
        ("gradient flows into the reference: it is data", _into_ref),
        ("no gradient reaches the policy", _frozen),
        ("the last token, eos, is left out", _without_eos),
        ("the first token of the response is left out: its log-prob counts", _without_first),
        ("shifted by one: entry i of all three belongs to token i", _shifted),
        ("that is one number for the batch: keep one per row", _batch),
        ("only the prompt and pads are counted: the mask is True where it counts", _prompt)],
    "gradient_weight": [
        ("that is the probability of the chosen answer: a pair that is learned has no weight",
         _chosen_prob),
        ("the reference is missing", _plain),
        ("the reference is added: subtract it on both sides", _added),
        ("beta is missing", _one),
        ("that is the loss: what is wanted is its slope", _loss),
        ("that is beta times the weight: the whole gradient", _whole),
        ("only the chosen side is looked at", _half),
        ("that is a mean: one number per pair", _average),
        ("that is the log of the weight", _log)],
    "irreducible_loss": [
        ("that is in bits: the loss is in nats", _slow_bits),
        ("0 log 0 is nan to the machine: a certain label costs nothing, it adds 0",
         _both_or_nan),
        ("the other label can be drawn, too", _one_label),
        ("that is the sum: take the mean over pairs", _summed),
        ("the sign: a loss is above 0", _negative),
        ("that is one number per pair: take the mean", _per_pair),
        ("that is the probability of an error, not the loss", _error_rate),
        ("the less likely label is drawn, too: weigh both", _likelier)],
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
