"Answers to the exercises on self-play, each with one thing wrong."
import torch
from torch.nn.functional import logsigmoid, softplus
from rlhf_nb.memory import masked_mean_rows
from rlhf_nb.tokens import shift_right, masked_sum, token_logprobs

def _at_itself(logits, ids, is_response):
    logp = logits.float().log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    return (logp * is_response).sum(1)

def _backwards(logits, ids, is_response):
    late = torch.cat([logits[:, 1:], torch.zeros_like(logits[:, :1])], 1).float()
    return (late.log_softmax(-1).gather(-1, ids[..., None])[..., 0] * is_response).sum(1)

def _after(logits, ids, is_response):
    logp = logits[:, 1:].float().log_softmax(-1).gather(-1, ids[:, :-1, None]).squeeze(-1)
    return (logp * is_response[:, :-1]).sum(1)
def _mask_behind(logits, ids, is_response):
    logp = logits[:, :-1].float().log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    return (logp * is_response[:, :-1]).sum(1)

def _mean_of(logits, ids, is_response):
    logp = shift_right(logits.float()).log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    return (logp * is_response).sum(1) / is_response.sum(1)

def _everything(logits, ids, is_response): return token_logprobs(logits, ids).sum(1)

def _one_number(logits, ids, is_response): return token_logprobs(logits, ids)[is_response].sum()

def _as_loss(logits, ids, is_response):
    return -masked_sum(token_logprobs(logits, ids), is_response)

def _plain_softmax(logits, ids, is_response):
    prob = shift_right(logits.float()).softmax(-1).gather(-1, ids[..., None])[..., 0]
    return (prob * is_response).sum(1)

def _cut_off(logits, ids, is_response):
    return masked_sum(token_logprobs(logits.detach(), ids), is_response)

def _no_first(logits, ids, is_response):
    return masked_sum(token_logprobs(logits, ids), is_response & shift_right(is_response))

def _safe_mean(logits, ids, is_response):
    return masked_mean_rows(token_logprobs(logits, ids), is_response)

def _as_it_was(average, policy, step, decay):
    with torch.no_grad():
        if step == 1 or step <= 100 and step % 10 == 0: return policy.clone()
        return decay * average + (1 - decay) * policy

def _no_tenth(average, policy, step, decay):
    with torch.no_grad():
        if step == 1: return policy.clone()
        return decay * average + (1 - decay) * policy

def _no_first_copy(average, policy, step, decay):
    with torch.no_grad():
        if step <= 100 and step % 10 == 0: return policy.clone()
        return average.lerp(policy, 1 - decay)

def _no_end(average, policy, step, decay):
    with torch.no_grad():
        if step % 10 == 0: return policy.clone()
        return average.lerp(policy, 1 - decay)

def _lerp_wrong(average, policy, step, decay): return average.detach().lerp(policy.detach(), decay)

def _frozen(average, policy, step, decay): return average.detach()

def _with_gradient(average, policy, step, decay): return decay * average + (1 - decay) * policy

def _corrected(average, policy, step, decay):
    new = decay * average.detach() + (1 - decay) * policy.detach()
    return new / (1 - decay**step)

def _heavier(average, policy, step, decay): return decay * average.detach() + policy.detach()

def _copied(average, policy, step, decay): return policy.detach().clone()

def _t(a, b, c, d, beta): return beta * ((a - c.detach()) - (b - d.detach()))
def _swapped(a, b, c, d, beta): return (1 + _t(b, a, d, c, beta).neg().exp()).log().mean()
def _alone(a, b, c, d, beta): return (1 + (-beta * (a - b)).exp()).log().mean()
def _no_beta(a, b, c, d, beta): return softplus(-_t(a, b, c, d, 1.)).mean()
def _beta_once(a, b, c, d, beta):
    return softplus(-(beta * (a - c.detach()) - (b - d.detach()))).mean()
def _summed(a, b, c, d, beta): return -logsigmoid(_t(a, b, c, d, beta)).sum()
def _each(a, b, c, d, beta): return -logsigmoid(_t(a, b, c, d, beta))
def _into(a, b, c, d, beta): return (1 + (-beta * ((a - c) - (b - d))).exp()).log().mean()
def _dead(*x):
    with torch.no_grad(): return softplus(-_t(*x)).mean()
def _gain(*x): return logsigmoid(_t(*x)).mean()
def _mean_first(*x): return (1 + (-_t(*x)).exp()).mean().log()
def _plus(*x): return (1 + _t(*x).exp()).log().mean()
def _divided(a, b, c, d, beta): return softplus(-_t(a, b, c, d, 1.) / beta).mean()

def _raw(p_opponent, p_real, beta): return p_opponent * (p_real / p_opponent)**(1 / beta)
def _power(p_opponent, p_real, beta):
    w = p_opponent * (p_real / p_opponent)**beta
    return w / w.sum()
def _writer(p_opponent, p_real, beta): return p_real / p_real.sum()
def _over(p_opponent, p_real, beta):
    w = p_opponent * (p_opponent / p_real)**(1 / beta)
    return w / w.sum()
def _ratio(p_opponent, p_real, beta):
    w = (p_real / p_opponent)**(1 / beta)
    return w / w.sum()
def _soft(p_opponent, p_real, beta):
    return torch.softmax(p_opponent * (p_real / p_opponent)**(1 / beta), 0)
def _bracket(p_opponent, p_real, beta):
    w = (p_opponent * (p_real / p_opponent))**(1 / beta)
    return w / w.sum()
def _from_writer(p_opponent, p_real, beta):
    w = p_real * (p_real / p_opponent)**(1 / beta)
    return w / w.sum()

WRONG = {
    "fixed_player": [
        ("still unshifted: it asks for the same word again", _at_itself),
        ("shifted the wrong way: now the logits are two places off", _backwards),
        ("shifted the wrong way: the logits of i + 1 have seen word i, ask those of i - 1", _after),
        ("logits and ids are shifted, the mask is not: it is one place early", _mask_behind),
        ("the mean over tokens divides beta by the length: take the sum", _mean_of),
        ("divided by the length of every answer but an empty one: take the sum", _safe_mean),
        ("prompt and pads are counted: only response tokens are", _everything),
        ("that is one number for the batch: keep one per row", _one_number),
        ("the sign: this is a log-prob, not a loss", _as_loss),
        ("that is the probability of each token, added: take logs first", _plain_softmax),
        ("no gradient reaches the logits", _cut_off),
        ("the first token of the answer is left out", _no_first)],
    "fixed_average": [
        ("it still comes home: the policy is copied while the average warms up", _as_it_was),
        ("the first step still copies the policy", _no_tenth),
        ("each tenth step still copies the policy", _no_first_copy),
        ("each tenth step copies the policy, now for ever", _no_end),
        ("decay weighs the average, 1 - decay the policy", _lerp_wrong),
        ("decay is not asked: the average never moves", _frozen),
        ("decay is not asked: the average is the policy", _copied),
        ("gradient flows through the average: it is a memory", _with_gradient),
        ("Adam's correction does not belong here: it divides by 1 - decay^step", _corrected),
        ("the two weights must add up to 1", _heavier)],
    "spin_by_hand": [
        ("real and generated are swapped, or a minus is missing: it learns to sound like itself", _swapped),
        ("the opponent's log-probs are missing", _alone),
        ("beta is missing", _no_beta), ("beta is for both ratios", _beta_once),
        ("that is the sum: average over pairs", _summed),
        ("that is one number per pair: average them", _each),
        ("gradient flows into the opponent: its numbers are data", _into),
        ("no gradient reaches the player", _dead), ("the sign: a loss is above 0", _gain),
        ("first the log of each pair, then the mean: not the other way round", _mean_first),
        ("real and generated are swapped, or a minus is missing: it learns to sound like itself",
         _plus),
        ("the ratio must be multiplied by beta", _divided)],
    "best_reply": [
        ("it does not sum to 1", _raw), ("the power is 1 / beta", _power),
        ("there is no power: beta is missing", _writer),
        ("turn the ratio over: real over opponent", _over),
        ("the reply starts from the opponent: multiply by its probabilities", _ratio),
        ("divide by the sum: a softmax exponentiates once more", _soft),
        ("the power is for the ratio alone", _bracket),
        ("it starts from the opponent, not from the writer", _from_writer)]}
