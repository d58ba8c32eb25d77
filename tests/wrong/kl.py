"Answers to the exercises of the chapter on the KL that learners might give, each wrong."
import torch
from torch.nn import functional as F

def same(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes")
def d(logp, ref_logp): same(logp, ref_logp); return logp.float() - ref_logp.float() if logp.dtype != torch.double else logp - ref_logp
def swapped(logp, ref_logp): return d(ref_logp, logp)
def ratio(logp, ref_logp): return d(logp, ref_logp).exp()
def sized(logp, ref_logp): return abs(d(logp, ref_logp))
def cut_off(logp, ref_logp): return F.relu(d(logp, ref_logp))
def row_sum(logp, ref_logp): return d(logp, ref_logp).sum(dim=-1)
def weighted(logp, ref_logp): return torch.exp(logp) * d(logp, ref_logp)
def measured(logp, ref_logp):
    with torch.no_grad(): return d(logp, ref_logp)
def broadcast(logp, ref_logp): return logp.double() - ref_logp.double()
def other_k2(logp, ref_logp): return .5 * d(logp, ref_logp).square()
def other_k3(logp, ref_logp): return torch.exp(-d(logp, ref_logp)) - 1 + d(logp, ref_logp)
def swapped_k3(logp, ref_logp): return other_k3(ref_logp, logp)
def other_exponent(logp, ref_logp): return torch.exp(d(logp, ref_logp)) - 1 + d(logp, ref_logp)
def d_taken_off(logp, ref_logp): return torch.exp(-d(logp, ref_logp)) - 1 - d(logp, ref_logp)
def no_one(logp, ref_logp): return torch.exp(-d(logp, ref_logp)) + d(logp, ref_logp)
def no_d(logp, ref_logp): return torch.expm1(d(ref_logp, logp))
def broadcast_k3(logp, ref_logp):
    x = logp.float() - ref_logp.float()
    return (-x).exp() - 1 + x
def mean_k3(logp, ref_logp): return other_k3(logp, ref_logp).mean()
def loop_k1(logp, ref_logp):
    same(logp, ref_logp)
    flat = [a.float() - b.float() for a, b in zip(logp.flatten(), ref_logp.flatten())]
    return torch.stack(flat).view(logp.shape)
def sub_k1(logp, ref_logp): same(logp, ref_logp); return torch.sub(logp.double(), ref_logp.double())
def ratio_k3(logp, ref_logp):
    same(logp, ref_logp)
    log_r = ref_logp.double() - logp.double()
    return (log_r.exp() - 1) - log_r

def shapes(score, penalty, mask):
    if score.shape != mask.shape[:1] or penalty.shape != mask.shape: raise ValueError("shapes")
def wide(x): return x if x.dtype == torch.double else x.float()
def on(score, penalty, is_last): return wide(penalty) + is_last * wide(score)[:, None]
def last_column(score, penalty, mask):
    shapes(score, penalty, mask); out = wide(penalty).clone(); out[:, -1] += score; return out
def everywhere(score, penalty, mask): shapes(score, penalty, mask); return on(score, penalty, mask)
def at_first(score, penalty, mask): shapes(score, penalty, mask); return on(score, penalty, mask & (mask.cumsum(1) == 1))
def by_count(score, penalty, mask):
    shapes(score, penalty, mask); out = wide(penalty).clone(); n = mask.sum(1)
    for i in range(len(out)):
        if n[i]: out[i, n[i] - 1] += score[i]
    return out
def early(score, penalty, mask):
    shapes(score, penalty, mask); last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return on(score, penalty, torch.cat([last[:, 1:], last[:, :1] & False], 1))
def replaced(score, penalty, mask):
    shapes(score, penalty, mask); last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return torch.where(last, wide(score)[:, None], wide(penalty))
def without_score(score, penalty, mask): shapes(score, penalty, mask); return wide(penalty)
def spread(score, penalty, mask):
    shapes(score, penalty, mask); return on(wide(score) / mask.sum(1).clamp(min=1), penalty, mask)
def without_penalty(score, penalty, mask):
    shapes(score, penalty, mask); last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return last * wide(score)[:, None]
def empty_too(score, penalty, mask):
    shapes(score, penalty, mask); index = mask.shape[1] - 1 - mask.flip(1).int().argmax(1)
    return wide(penalty).scatter_add(1, index[:, None], wide(score)[:, None])
def by_loop(score, penalty, mask):
    shapes(score, penalty, mask); out = wide(penalty).clone()
    for row, m, s in zip(out, mask, score):
        at = m.nonzero()
        if len(at): row[at[-1, 0]] += s
    return out
def by_positions(score, penalty, mask):
    shapes(score, penalty, mask)
    place = torch.arange(mask.shape[1]).expand_as(mask).masked_fill(~mask, -1)
    return on(score, penalty, mask & (place == place.max(1, keepdim=True).values))

def late(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes")
    d = logp - ref_logp
    return d if d.dtype == torch.float64 else d.float()

WRONG = {
    "kl_k1": [
        ("the difference is rounded to 16 bits: go to float32 first", late),
        ("the policy comes first: that is the reference minus the policy", swapped), ("that is the ratio: its log is wanted", ratio),
        ("it may be below 0: no absolute value", sized), ("it may be below 0: do not cut there", cut_off),
        ("that is one number per row, their sum: the shape stays, one per token", row_sum),
        ("each token weighs alike: samples already come with their probability", weighted),
        ("a gradient flows into both arguments: detach nothing", measured),
        ("shapes that differ broadcast silently: raise ValueError", broadcast), ("that is k2", other_k2), ("that is k3", other_k3)],
    "kl_k3": [
        ("the exponent is -d: that is k3 with the arguments swapped", swapped_k3), ("the exponent is -d", other_exponent),
        ("d is added, not taken off", d_taken_off), ("minus 1 is missing: at d = 0 it is 0", no_one),
        ("d is missing: that has mean 0", no_d), ("that is k2", other_k2), ("that is k1", d),
        ("shapes that differ broadcast silently: raise ValueError", broadcast_k3), ("that is one number for all, their mean: the shape stays, one per token", mean_k3)],
    "token_rewards": [
        ("the last column may be a pad: take the last response token", last_column),
        ("every token gets the score: only the last one does", everywhere), ("that is the first response token", at_first),
        ("counted from column 0: the prompt and left pads stand before", by_count),
        ("one too early: eos, the last token, gets the score", early),
        ("the penalty of the last token is kept: add the score to it", replaced), ("the score is missing", without_score),
        ("the score is given once, not spread over the tokens", spread), ("the penalty is missing", without_penalty),
        ("an empty response has no last token: its score reaches nobody", empty_too)]}

RIGHT = {"kl_k1": [loop_k1, sub_k1],
         "kl_k3": [other_k3, ratio_k3], "token_rewards": [by_loop, by_positions]}
