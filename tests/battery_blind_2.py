"""Answers as learners write them, second blind set: from the stubs and texts of `rlhf-nb copy --exercises` alone, before any
verdict on them was seen and without sight of the checks, their slips or an earlier battery.

Each wrong one names its slip in a sentence of its own. What the check says of each stands in
benchmarks/results/tutor_blind_2.json."""
import math, re, statistics, torch
import torch.nn.functional as F
from torch.nn.functional import logsigmoid
from rlhf_nb.base.batches import at_least_float32
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.candidates import max_min
from rlhf_nb.base.q_networks import discounts, hidden_states, next_values, q_terms, shift_left
from rlhf_nb.base.replies import score_regex
from rlhf_nb.dpo import log_ratio_gap
from rlhf_nb.judge import pair_accuracy
from rlhf_nb.kl import kl_k1
from rlhf_nb.ppo import clipped_policy_loss as policy_term, clipped_value_loss
from rlhf_nb.qlearning import bellman_targets as targets, monte_carlo_returns
from rlhf_nb.tokens import last_token_index as last_index, masked_mean as mean_over, shift_right as shifted
from rlhf_nb.tokens import token_logprobs as scored
from rlhf_nb.tools import turn_numbers
from rlhf_nb.worlds.oracle import all_logprobs, expectation

WRONG, RIGHT = [], []   # (exercise, answer, slip); (exercise, answer)

def wrong(slip):
    def add(fn):
        WRONG.append((fn.__name__, fn, slip))
        return fn
    return add

def right(fn):
    RIGHT.append((fn.__name__, fn))
    return fn

# 02 tokens
@wrong("rolls, so the last row comes round to row 0 instead of 0")
def shift_right(x):
    return torch.roll(x, 1, dims=1)

@wrong("shifts the last axis, not the time axis")
def shift_right(x):
    out = torch.zeros_like(x)
    out[..., 1:] = x[..., :-1]
    return out

@right
def shift_right(x):
    out = x.clone()
    out[:, 1:] = x[:, :-1]
    out[:, 0] = 0
    return out

@wrong("reads the log-prob from the row after the token, not shifted")
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape:
        raise ValueError("shapes")
    lp = F.log_softmax(logits.float(), dim=-1)
    picked = lp.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    picked[:, 0] = 0
    return picked

@wrong("normalises over the time axis instead of the vocabulary")
def token_logprobs(logits, ids):
    if logits.shape[:-1] != ids.shape: raise ValueError(f"{logits.shape} {ids.shape}")
    x = logits if logits.dtype == torch.float64 else logits.float()
    lp = x.log_softmax(1)
    lp = lp[:, :-1].gather(2, ids[:, 1:, None])[..., 0]
    return torch.cat([torch.zeros_like(lp[:, :1]), lp], 1)

@right
def token_logprobs(logits, ids):
    b, t, v = logits.shape
    if tuple(ids.shape) != (b, t): raise ValueError("logits and ids must agree in (b t)")
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    out = torch.zeros(b, t, dtype=logits.dtype, device=logits.device)
    if t > 1:
        nll = F.cross_entropy(logits[:, :-1].reshape(-1, v), ids[:, 1:].reshape(-1), reduction="none")
        out = torch.cat([out[:, :1], -nll.view(b, t - 1)], dim=1)
    return out

@wrong("means of rows are averaged: every row the same weight")
def masked_mean(x, mask):
    if x.shape != mask.shape: raise ValueError("shape")
    if not mask.any(): raise ValueError("empty mask")
    x = x.to(torch.promote_types(x.dtype, torch.float32)).masked_fill(~mask, 0)
    rows = x.sum(-1) / mask.sum(-1).clamp(min=1)
    return rows.mean()

@wrong("multiplies by the mask, so nan where the mask is False gets in")
def masked_mean(x, mask):
    if x.shape != mask.shape or mask.sum() == 0:
        raise ValueError("bad mask")
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    return (x * mask).sum() / mask.sum()

@right
def masked_mean(x, mask):
    if x.shape != mask.shape: raise ValueError(f"mask {mask.shape} and x {x.shape}")
    kept = x[mask]
    if kept.numel() == 0: raise ValueError("no entry is True")
    return kept.to(torch.promote_types(kept.dtype, torch.float32)).mean()

@wrong("number of real tokens less 1, wrong for left padding")
def last_token_index(attention_mask):
    n = attention_mask.long().sum(dim=1)
    if (n == 0).any():
        raise ValueError("row without real token")
    return n - 1

@wrong("argmax of the mask is the first real token, not the last")
def last_token_index(attention_mask):
    m = attention_mask.int()
    if not m.any(dim=1).all(): raise ValueError("only padding")
    return m.argmax(dim=1)

# 04 sft
@wrong("counts the real tokens, prompt included, as the denominator")
def sft_loss(model, seqs):
    lp = logprobs(model, seqs)
    return -(lp * seqs.response_mask).sum(), seqs.attention_mask.sum()

@wrong("returns the mean instead of the sum as its first value")
def sft_loss(model, seqs):
    mask = seqs.response_mask.clone()
    mask[:, 0] = False
    n = mask.sum()
    nll = -logprobs(model, seqs)[mask].sum()
    return nll / n, n

@wrong("top-p drops the token that crosses p")
def filter_logits(logits, sampling):
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature == 0:
        best = logits.argmax(-1, keepdim=True)
        return torch.full_like(logits, -math.inf).scatter(-1, best, 0.)
    z = logits / sampling.temperature
    if sampling.top_k:
        kth = z.topk(min(sampling.top_k, z.shape[-1]), dim=-1).values[..., -1:]
        z = z.masked_fill(z < kth, -math.inf)
    if sampling.top_p < 1:
        p, order = z.softmax(-1).sort(-1, descending=True)
        keep = p.cumsum(-1) <= sampling.top_p
        keep[..., 0] = True
        z = z.masked_fill(~torch.zeros_like(keep).scatter(-1, order, keep), -math.inf)
    return z.log_softmax(-1)

@wrong("multiplies by the temperature instead of dividing")
def filter_logits(logits, sampling):
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature == 0:
        best = logits.argmax(-1, keepdim=True)
        return torch.full_like(logits, -math.inf).scatter(-1, best, 0.)
    z = logits * sampling.temperature
    if sampling.top_k:
        k = min(sampling.top_k, z.shape[-1])
        top = z.topk(k, dim=-1)
        z = torch.full_like(z, -math.inf).scatter(-1, top.indices, top.values)
    sorted_z, order = z.sort(-1, descending=True)
    p = sorted_z.softmax(-1)
    before = p.cumsum(-1) - p
    sorted_z = sorted_z.masked_fill(before >= sampling.top_p, -math.inf)
    z = torch.empty_like(z).scatter(-1, order, sorted_z)
    return z.log_softmax(-1)

@wrong("top-p is taken of all tokens, before top-k, not of what top-k left")
def filter_logits(logits, sampling):
    z = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature == 0:
        return torch.full_like(z, -math.inf).scatter(-1, z.argmax(-1, keepdim=True), 0.)
    z = z / sampling.temperature
    p, order = z.softmax(-1).sort(-1, descending=True)
    bad = (p.cumsum(-1) - p) >= sampling.top_p
    if sampling.top_k: bad[..., sampling.top_k:] = True
    return z.masked_fill(torch.zeros_like(bad).scatter(-1, order, bad), -math.inf).log_softmax(-1)

@wrong("the last real token, eos, is left out of the labels")
def fixed_labels(ids, n_prompt, n_real):
    col = torch.arange(1, ids.shape[1])
    answer = (col >= n_prompt[:, None]) & (col < n_real[:, None] - 1)
    return ids[:, 1:].masked_fill(~answer, -100)

@wrong("mask made for the unshifted columns: starts one token too late")
def fixed_labels(ids, n_prompt, n_real):
    labels = ids[:, 1:].clone()
    for i in range(len(ids)):
        labels[i, :n_prompt[i]] = -100
        labels[i, n_real[i] - 1:] = -100
    return labels

# 05 reward
@wrong("reads the last column, pad or not")
def pooled_scores(model, seqs):
    if not seqs.attention_mask.any(1).all(): raise ValueError("only padding")
    return model(seqs)[:, -1]

@wrong("mean over the real tokens instead of the last one")
def pooled_scores(model, seqs):
    m = seqs.attention_mask
    if (m.sum(1) == 0).any():
        raise ValueError("a row is all padding")
    return (model(seqs) * m).sum(1) / m.sum(1)

@right
def pooled_scores(model, seqs):
    m = seqs.attention_mask
    if (~m).all(1).any(): raise ValueError("only padding in a row")
    from_right = m.flip(1).long().argmax(1)
    at = m.shape[1] - 1 - from_right
    return model(seqs)[torch.arange(len(at)), at]

@wrong("adds the margin instead of subtracting it")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("shapes differ")
    return -logsigmoid(chosen - rejected + margin) + center_coef * (chosen + rejected) ** 2

@wrong("log(sigmoid) written out: infinite for gaps far below 0")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape:
        raise ValueError(f"{chosen.shape} != {rejected.shape}")
    p = torch.sigmoid(chosen - rejected - margin)
    return -torch.log(p) + center_coef * (chosen + rejected).pow(2)

@wrong("centring takes the squares of both scores, r_w^2 + r_l^2, not the square of their sum")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("shapes")
    return F.softplus(rejected - chosen + margin) + center_coef * (chosen ** 2 + rejected ** 2)

@right
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("chosen and rejected differ in shape")
    gap = chosen - rejected - margin
    return torch.logaddexp(torch.zeros_like(gap), -gap) + center_coef * torch.square(rejected + chosen)

@wrong("confidence is sigma(r_w - r_l) without the absolute value: all below .5 falls into the first bin")
def calibration_bins(chosen, rejected, n_bins=10):
    if not (chosen.isfinite().all() and rejected.isfinite().all()): raise ValueError("not finite")
    gap = (chosen - rejected).float()
    conf = torch.sigmoid(gap)
    hit = (gap > 0).float() + .5 * (gap == 0).float()
    which = ((conf - .5) * 2 * n_bins).long().clamp(0, n_bins - 1)
    out = [(conf[which == k].mean(), hit[which == k].mean(), (which == k).sum())
           for k in range(n_bins) if (which == k).any()]
    a, b, c = zip(*out)
    return torch.stack(a), torch.stack(b), torch.stack(c)

@wrong("bins of equal width between 0 and 1 instead of between .5 and 1, and a tie counts as wrong (two slips)")
def calibration_bins(chosen, rejected, n_bins=10):
    if not torch.isfinite(torch.cat([chosen, rejected])).all(): raise ValueError("score not finite")
    gap = chosen - rejected
    conf = gap.abs().sigmoid()
    right_ = (gap > 0).to(conf)
    k = (conf * n_bins).long().clamp(max=n_bins - 1)
    n = torch.bincount(k, minlength=n_bins)
    keep = n > 0
    c = torch.zeros(n_bins).index_add(0, k, conf)
    r = torch.zeros(n_bins).index_add(0, k, right_)
    return c[keep] / n[keep], r[keep] / n[keep], n[keep]

# 06 best policy
@wrong("differentiates the sum of r log pi: the probabilities are missing as weights")
def exact_gradient(model, world, reward):
    logp = all_logprobs(model, world)
    loss = (logp * reward.detach()).sum()
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    grads = torch.autograd.grad(loss, [p for _, p in named])
    return {n: g for (n, _), g in zip(named, grads)}

@wrong("gradient of the loss, -E[r], so the sign is reversed")
def exact_gradient(model, world, reward):
    params = {n: p for n, p in model.named_parameters() if p.requires_grad}
    loss = -expectation(all_logprobs(model, world), reward)
    return dict(zip(params, torch.autograd.grad(loss, list(params.values()))))

@wrong("multiplies the reward by beta instead of dividing")
def optimal_policy(ref_logp, reward, beta):
    if beta <= 0: raise ValueError("beta")
    tilted = ref_logp + beta * reward
    log_z = tilted.logsumexp(0)
    return tilted - log_z, log_z

@wrong("returns beta log Z, the value, instead of log Z")
def optimal_policy(ref_logp, reward, beta):
    if not beta > 0: raise ValueError("beta must be above 0")
    w = ref_logp + reward / beta
    return w.log_softmax(-1), beta * w.logsumexp(-1)

@wrong("ties are shared evenly, not in proportion to their probabilities")
def best_of_n_policy(logp, score, n):
    if n < 1: raise ValueError("n")
    p = logp.exp()
    out = torch.full_like(logp, -math.inf)
    for s in score.unique():
        same = (score == s) & (p > 0)
        if not same.any(): continue
        u = p[score <= s].sum()
        l = p[same].sum()
        out[same] = ((u**n - (u - l)**n) / same.sum()).log()
    return out

@wrong("u counts only the lower scores, so it is short of its own score's probability")
def best_of_n_policy(logp, score, n):
    if n < 1: raise ValueError("n must be 1 or more")
    p = logp.exp()
    below = (p[None, :] * (score[None, :] < score[:, None])).sum(1)
    own = (p[None, :] * (score[None, :] == score[:, None])).sum(1)
    mass = below**n - (below - own).clamp(min=0)**n
    return torch.where(p > 0, (mass * p / own).log(), -math.inf)

@wrong("each response treated as having a score of its own: u - p instead of u - l for ties")
def best_of_n_policy(logp, score, n):
    if n < 1: raise ValueError
    p = logp.exp()
    u = torch.stack([p[score <= s].sum() for s in score])
    return (u**n - (u - p)**n).log()

@right
def best_of_n_policy(logp, score, n):
    if not n >= 1: raise ValueError(f"n must be 1 or more, got {n}")
    p = logp.double().exp()
    out = torch.full_like(p, -math.inf)
    below = 0.
    for s in sorted(set(score.tolist())):
        at = score == s
        l = p[at].sum()
        if l > 0:
            u = below + l
            out[at] = (logp.double()[at] - l.log()) + (u**n - below**n).log()
        below = below + l
    return out.to(logp)

# 07 kl
@wrong("exp(d) instead of exp(-d): the ratio the wrong way round")
def kl_k3(logp, ref_logp):
    d = kl_k1(logp, ref_logp)
    return d.exp() - 1 - d

@wrong("d is subtracted instead of added: exp(-d) - 1 - d")
def kl_k3(logp, ref_logp):
    d = kl_k1(logp, ref_logp)
    return torch.expm1(-d) - d

@wrong("the score is added to every response token")
def token_rewards(score, penalty, mask):
    if penalty.shape != mask.shape or score.shape != mask.shape[:1]: raise ValueError("shape")
    penalty = penalty.to(torch.promote_types(penalty.dtype, torch.float32))
    return torch.where(mask, penalty + score[:, None], 0.)

@wrong("the score lands at the last column instead of the last response token")
def token_rewards(score, penalty, mask):
    b, t = penalty.shape
    if mask.shape != (b, t) or score.shape != (b,): raise ValueError("shapes do not fit")
    out = penalty.to(torch.promote_types(penalty.dtype, torch.float32)).clone()
    out[:, -1] += torch.where(mask.any(1), score.to(out), 0.)
    return out

@right
def token_rewards(score, penalty, mask):
    if penalty.dim() != 2 or penalty.shape != mask.shape: raise ValueError("penalty and mask are (b t)")
    if score.shape != penalty.shape[:1]: raise ValueError("score is (b)")
    kind = torch.promote_types(torch.promote_types(penalty.dtype, score.dtype), torch.float32)
    out = penalty.to(kind).clone()
    for row in range(len(score)):
        where = mask[row].nonzero().flatten()
        if len(where): out[row, where[-1]] += score[row].to(kind)
    return out

# 08 ppo
@wrong("takes the larger product, max instead of min, and forgets the minus sign of the loss (two slips)")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = at_least_float32(logp, old_logp, advantage)
    ratio = torch.exp(logp - old_logp)
    a = ratio * advantage
    b = torch.clamp(ratio, 1 - cliprange, 1 + cliprange) * advantage
    return torch.max(a, b)

@wrong("only the clipped product, without the minimum")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    lp, old, adv = at_least_float32(logp, old_logp, advantage)
    r = (lp - old).exp().clip(1 - cliprange, 1 + cliprange)
    return -r * adv

@wrong("lambda alone in the recursion, the gamma before A_{i+1} is missing")
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = [x.masked_fill(~mask, 0.) for x in at_least_float32(reward, value)]
    adv = torch.zeros_like(reward)
    b, t = reward.shape
    for row in range(b):
        nv = na = 0.
        for i in range(t - 1, -1, -1):
            if not mask[row, i]: continue
            delta = reward[row, i] + gamma * nv - value[row, i]
            adv[row, i] = na = delta + lam * na
            nv = value[row, i]
    return adv, adv + value

@wrong("the next value is the next column's, so V after a gap is read as 0: gaps are not stepped over")
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = [x.masked_fill(~mask, 0.) for x in at_least_float32(reward, value)]
    nxt = F.pad(value[:, 1:], (0, 1))
    delta = reward + gamma * nxt - value
    adv, run = torch.zeros_like(delta), torch.zeros_like(delta[:, 0])
    for i in reversed(range(delta.shape[1])):
        run = torch.where(mask[:, i], delta[:, i] + gamma * lam * run, run)
        adv[:, i] = run * mask[:, i]
    return adv, (adv + value) * mask

@wrong("returns are reward plus advantage instead of advantage plus value")
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = [x.masked_fill(~mask, 0.) for x in at_least_float32(reward, value)]
    a = v = torch.zeros_like(reward[:, 0])
    cols = []
    for i in reversed(range(reward.shape[1])):
        m = mask[:, i]
        new = reward[:, i] + gamma * v - value[:, i] + gamma * lam * a
        a, v = torch.where(m, new, a), torch.where(m, value[:, i], v)
        cols.insert(0, torch.where(m, new, torch.zeros_like(new)))
    adv = torch.stack(cols, 1)
    return adv, adv + reward

@right
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = at_least_float32(reward, value)
    adv, ret = torch.zeros_like(reward), torch.zeros_like(reward)
    for b in range(reward.shape[0]):
        at = mask[b].nonzero().flatten()
        r, v = reward[b, at], value[b, at]
        after = torch.cat([v[1:], v.new_zeros(1)])[:len(v)]
        delta = r + gamma * after - v
        acc, out = 0., []
        for d in reversed(delta.unbind()):
            acc = d + gamma * lam * acc
            out.append(acc)
        if out:
            adv[b, at] = torch.stack(out[::-1])
            ret[b, at] = adv[b, at] + v
    return adv, ret

@wrong("mean per answer first, then over answers (two-step mean), not over all tokens")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    token = policy_term(logp, old_logp, advantage, cliprange) \
        + vf_coef * clipped_value_loss(value, old_value, returns, cliprange_value)
    token = token.masked_fill(~mask, 0.)
    return (token.sum(1) / mask.sum(1).clamp(min=1)).mean()

@wrong("the value loss gets the policy's clip range")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    pg = policy_term(logp, old_logp, advantage, cliprange)
    vf = clipped_value_loss(value, old_value, returns, cliprange)
    return mean_over(pg + vf_coef * vf, mask)

# 09 grpo
@wrong("the mean of all of the group, itself included")
def leave_one_out(reward, group):
    out = torch.zeros_like(reward)
    for g in group.unique():
        rows = (group == g) & ~reward.isnan()
        if rows.sum() > 1:
            out[rows] = reward[rows] - reward[rows].mean()
    return out

@wrong("unscored answers count as reward 0 in the mean of the others")
def leave_one_out(reward, group):
    r = reward.nan_to_num(0.)
    same = (group[:, None] == group[None, :]).to(r)
    n = same.sum(1) - 1
    others = same @ r - r
    adv = r - others / n.clamp(min=1)
    return torch.where(reward.isnan() | (n == 0), torch.zeros_like(adv), adv)

@wrong("divides by the biased standard deviation, n instead of n - 1")
def group_normalised(reward, group):
    out = torch.zeros_like(reward)
    for g in group.unique():
        rows = (group == g) & ~torch.isnan(reward)
        if rows.sum() < 2: continue
        r = reward[rows]
        out[rows] = (r - r.mean()) / (r.std(unbiased=False) + 1e-4)
    return out

@wrong("divides by the variance instead of the standard deviation")
def group_normalised(reward, group):
    adv = torch.zeros_like(reward)
    for g in set(group.tolist()):
        at = ((group == g) & reward.isfinite()).nonzero().flatten()
        if len(at) > 1:
            centred = reward[at] - reward[at].mean()
            adv[at] = centred / (centred.pow(2).sum() / (len(at) - 1) + 1e-4)
    return adv

@right
def group_normalised(reward, group):
    seen = ~reward.isnan()
    r = torch.where(seen, reward, 0.)
    same = ((group[:, None] == group) & seen[None]).to(r)
    n = same.sum(1)
    mean = same @ r / n.clamp(min=1)
    var = (same * (r[None] - mean[:, None])**2).sum(1) / (n - 1).clamp(min=1)
    return torch.where(seen & (n > 1), (r - mean) / (var.sqrt() + 1e-4), torch.zeros_like(r))

@wrong("grpo: the number of answers is missing, each answer weighs 1 instead of 1/answers")
def loss_weights(mask, loss_type, max_length):
    m = mask.float()
    n = m.sum(1, keepdim=True).clamp(min=1)
    if loss_type == "dapo": return m / m.sum().clamp(min=1)
    if loss_type == "grpo": return m / n
    if loss_type == "dr_grpo": return m / max_length / len(mask)
    raise ValueError(loss_type)

@wrong("dr_grpo divides by the width of the batch instead of the given length")
def loss_weights(mask, loss_type, max_length):
    b, t = mask.shape
    m = mask.float()
    if loss_type == "dapo":
        return m / m.sum().clamp(min=1)
    elif loss_type == "grpo":
        return m / m.sum(-1, keepdim=True).clamp(min=1) / b
    elif loss_type == "dr_grpo":
        return m / (t * b)
    else:
        raise ValueError(f"unknown loss_type {loss_type}")

# 10 dpo
@wrong("no reference: the gap of the policy's log-probs alone")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    if beta <= 0: raise ValueError("beta")
    pc, pr, rc, rr = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return -logsigmoid(beta * (pc - pr))

@wrong("beta stands outside: beta times the loss of the bare gap")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    if not beta > 0: raise ValueError("beta must be above 0")
    gap = log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return beta * F.softplus(-gap)

# 11 compare
@wrong("chooses on all questions, those that report included")
def honest_gain(scores, start, chooses):
    best = int(scores.mean(1).argmax())
    d = (scores[best] - start)[~chooses]
    return best, d.mean().item(), (d.std() / len(d)**.5).item()

@wrong("the standard error lacks the root of n: it is the standard deviation")
def honest_gain(scores, start, chooses):
    best = scores[:, chooses].mean(dim=1).argmax().item()
    gain = scores[best, ~chooses] - start[~chooses]
    return best, gain.mean().item(), gain.std().item()

# 13 judge
@wrong("falls back on the last place that holds a good number, where the last place has none")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    found = [m.group(1) for m in score_regex(pattern, high).finditer(text)]
    found = [float(x) for x in found if x is not None]
    if not found: return None
    x = found[-1 if last else 0]
    return x if low <= x <= high else None

@wrong("a number outside the range is cut to the range instead of being no score")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    places = list(score_regex(pattern, high).finditer(text))
    if not places: return None
    number = places[-1 if last else 0].group(1)
    if number is None: return None
    return min(max(float(number), low), high)

@right
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    place = None
    for m in score_regex(pattern, high).finditer(text):
        place = m
        if not last: break
    if place is None or place[1] is None: return None
    x = float(place[1])
    if x < low or x > high: return None
    return x

# 14 self reward
@wrong("places among the scored candidates, not among all: a nan before moves them")
def choose_pairs(scores, select=max_min):
    pairs = []
    for p, row in enumerate(scores):
        good = [s for s in row if not math.isnan(s)]
        if len(good) < 2 or len(set(good)) == 1: continue
        w, l = select(good)
        pairs.append((p, w, l))
    return pairs

@wrong("numbers the pairs instead of the prompts: a prompt without a pair shifts all that follow")
def choose_pairs(scores, select=max_min):
    pairs = []
    for row in scores:
        at = [i for i, s in enumerate(row) if s == s]
        kept = [row[i] for i in at]
        if len(kept) >= 2 and min(kept) < max(kept):
            best, worst = select(kept)
            pairs.append((len(pairs), at[best], at[worst]))
    return pairs

@right
def choose_pairs(scores, select=max_min):
    out = []
    for prompt, row in enumerate(scores):
        places = [k for k in range(len(row)) if not math.isnan(row[k])]
        if len({row[k] for k in places}) < 2: continue
        c, r = select([row[k] for k in places])
        if row[places[c]] != row[places[r]]: out.append((prompt, places[c], places[r]))
    return out

# 15 spin
@wrong("the exponent is beta instead of 1/beta")
def best_reply(p_opponent, p_real, beta):
    w = p_opponent * (p_real / p_opponent) ** beta
    return w / w.sum()

# 16 Q-learning
def _mask(x, y): return torch.where(x.mask, y, torch.zeros_like(y))

@wrong("the value also enters after the last token of a row where nothing follows")
def bellman_targets(x, value, config):
    g = discounts(x, config)
    y = x.reward + g * value
    for _ in range(config.n_step - 1):
        y = torch.where(x.last(), x.reward + g * value, x.reward + g * x.ahead(y))
    if config.mc_bound:
        y = torch.maximum(y, monte_carlo_returns(x, discounts(x, config)))
    return _mask(x, y)

@wrong("the bound also holds rows that bootstrap")
def bellman_targets(x, value, config):
    g = discounts(x, config)
    boot = ~x.ended & (config.on_truncation == "bootstrap")
    end = x.last()
    value = torch.where(end & ~boot[:, None], torch.zeros_like(value), value)
    y = x.reward + g * value
    one = y
    for _ in range(config.n_step - 1):
        y = torch.where(end, one, x.reward + g * x.ahead(y))
    if config.mc_bound:
        y = torch.maximum(y, monte_carlo_returns(x, discounts(x, config)))
    return _mask(x, y)

@wrong("rewards of the n steps are summed without discount, only the value is discounted")
def bellman_targets(x, value, config):
    g = discounts(x, config)
    boots = (config.on_truncation == "bootstrap") & ~x.ended
    over = x.last() & ~boots[:, None]
    v = value.masked_fill(over, 0.)
    y = x.reward + g * v
    tail = g * v
    total = x.reward
    for k in range(config.n_step - 1):
        total = torch.where(x.last(), x.reward, x.reward + x.ahead(total))
        tail = torch.where(x.last(), g * v, g * x.ahead(tail))
        y = total + tail
    if config.mc_bound:
        y = torch.where(boots[:, None], y, torch.maximum(y, monte_carlo_returns(x, discounts(x, config))))
    return _mask(x, y)

@right
def bellman_targets(x, value, config):
    gamma = discounts(x, config)
    last = x.last()
    goes_on = ~x.ended if config.on_truncation == "bootstrap" else torch.zeros_like(x.ended)
    after = torch.where(last & ~goes_on[:, None], 0., value)
    first = x.reward + gamma * after
    y, n = first, 1
    while n < config.n_step:
        y = torch.where(last, first, x.reward + gamma * x.ahead(y))
        n += 1
    if config.mc_bound:
        observed = monte_carlo_returns(x, discounts(x, config))
        y = torch.where((observed > y) & ~goes_on[:, None], observed, y)
    return _mask(x, y)

@wrong("states after the tokens instead of before: the hidden states are not shifted")
def q_loss(nets, x, config):
    h = hidden_states(nets.online, x.seqs)
    y = targets(x, next_values(nets, x, h, config), config)[x.mask]
    q, rest = q_terms(nets.online.get_output_embeddings(), h[x.mask], x.seqs.ids[x.mask], nets.allowed, config.min_return)
    td = (q - y)**2
    loss = .5 * td.sum() + config.alpha / 2 * rest.sum()
    logs = dict(td_loss=td.sum(), conservative_loss=rest.sum(), q_values=q.sum(), td_target=y.sum())
    return loss, x.mask.sum(), {k: v.detach() for k, v in logs.items()}

@wrong("the conservative term is not halved: alpha instead of alpha / 2")
def q_loss(nets, x, config):
    at = x.positions()
    h = hidden_states(nets.online, x.seqs)
    y = targets(x, next_values(nets, x, h, config), config)[at]
    head = nets.online.get_output_embeddings()
    q, rest = q_terms(head, shifted(h)[at], x.seqs.ids[at], nets.allowed, config.min_return)
    td, cons = ((q - y) ** 2).sum(), rest.sum()
    loss = td / 2 + config.alpha * cons
    return loss, x.mask.sum(), {"td_loss": td.detach(), "conservative_loss": cons.detach(),
                               "q_values": q.sum().detach(), "td_target": y.sum().detach()}

@wrong("the mean over the tokens instead of the sum")
def q_loss(nets, x, config):
    at = x.positions()
    hidden = hidden_states(nets.online, x.seqs)
    value = next_values(nets, x, hidden, config)
    y = targets(x, value, config)[at]
    q, rest = q_terms(nets.online.get_output_embeddings(), shifted(hidden)[at], x.seqs.ids[at],
                      nets.allowed, config.min_return)
    err = (q - y).pow(2)
    loss = (err / 2 + config.alpha / 2 * rest).mean()
    with torch.no_grad():
        sums = dict(td_loss=err.sum(), conservative_loss=rest.sum(), q_values=q.sum(), td_target=y.sum())
    return loss, x.mask.sum(), {k: v.detach() for k, v in sums.items()}

@right
def q_loss(nets, x, config):
    h = hidden_states(nets.online, x.seqs)
    y = targets(x, next_values(nets, x, h, config), config)
    before = torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], dim=1)
    rows, cols = x.positions()
    q, rest = q_terms(nets.online.get_output_embeddings(), before[rows, cols], x.seqs.ids[rows, cols],
                      nets.allowed, config.min_return)
    y = y[rows, cols].detach()
    loss = (.5 * (q - y).square() + .5 * config.alpha * rest).sum()
    q_, r_ = q.detach(), rest.detach()
    return loss, x.mask.sum(), dict(td_loss=(q_ - y).square().sum(), conservative_loss=r_.sum(),
                                    q_values=q_.sum(), td_target=y.sum())

# 18 faults of Q-learning
@wrong("divides by all m actions instead of the m - 1 that were not taken")
def fixed_pull(q, ids, mask, lowest):
    sq = (q - lowest) ** 2
    sq = sq.scatter(-1, ids[..., None], 0.)
    return sq.mean(-1)[mask].mean()

@wrong("the pull acts on the token that was taken")
def fixed_pull(q, ids, mask, lowest):
    taken = q.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    return ((taken - lowest) ** 2)[mask].mean()

# 20 off policy
@wrong("masked entries get ratio 0 instead of 1, at the token level")
def importance_ratios(log_ratio, mask, level):
    lr = log_ratio.to(torch.promote_types(log_ratio.dtype, torch.float32)).masked_fill(~mask, 0.)
    if level == "token":
        return lr.exp() * mask
    if level == "sequence":
        return lr.sum(1, keepdim=True).exp()
    raise ValueError(level)

@wrong("the mean of the log-ratios (geometric mean, as GSPO) instead of their sum")
def importance_ratios(log_ratio, mask, level):
    if level not in ("token", "sequence"): raise ValueError(level)
    d = torch.where(mask, log_ratio.to(torch.promote_types(log_ratio.dtype, torch.float32)), 0.)
    if level == "sequence":
        d = d.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    return d.exp()

@wrong("the sum of weights is not squared")
def effective_sample_size(log_ratio):
    w = (log_ratio - log_ratio.max()).exp()
    return w.sum() / (len(w) * (w**2).sum())

@right
def effective_sample_size(log_ratio):
    p = torch.softmax(log_ratio, dim=0)
    return 1 / (len(p) * p.square().sum())

# 21 distillation
@wrong("r is not constant: gradient flows through the log-prob in it")
def sampled_kl(logp, teacher_logp, token):
    s = logp.gather(-1, token[..., None])[..., 0]
    t = teacher_logp.gather(-1, token[..., None])[..., 0]
    return -(t - s) * s

@wrong("returns -r alone, whose gradient is that of log pi, on average nothing")
def sampled_kl(logp, teacher_logp, token):
    idx = token.unsqueeze(-1)
    r = (teacher_logp - logp).gather(-1, idx).squeeze(-1)
    return -r

# 22 rubrics
@wrong("divides by all points, faults included, and forgets the gate (two slips)")
def rubric_reward(marks, weights, gates):
    return (marks * weights).sum(-1) / weights.sum()

@wrong("any gate met is enough, instead of all of them")
def rubric_reward(marks, weights, gates):
    marks = marks.float()
    share = marks @ weights.float() / weights.clamp(min=0).sum()
    if gates.any():
        share = share * (marks[:, gates] > 0).any(1)
    return share

# 23 tools
@wrong("the turn's own reward instead of the reward to go")
def turn_advantages(reward, group, turn):
    adv = torch.full_like(reward, 0.)
    for g in group.unique():
        rows = group == g
        adv[rows] = reward[rows] - reward[rows].nanmean(0)
    adv = adv.nan_to_num(0.)
    return adv.gather(1, turn.clamp(min=0)) * (turn >= 0)

@wrong("rows without that turn count as 0 in the mean over the group")
def turn_advantages(reward, group, turn):
    has = ~reward.isnan()
    r = reward.nan_to_num(0.)
    to_go = r.flip(1).cumsum(1).flip(1) * has
    same = (group[:, None] == group[None]).to(r)
    mean = same @ to_go / same.sum(1, keepdim=True)
    a = (to_go - mean) * has
    return torch.where(turn < 0, 0., a.gather(1, turn.clamp(min=0)))

@wrong("the sum runs forwards: rewards up to a turn instead of from it on")
def turn_advantages(reward, group, turn):
    has = ~reward.isnan()
    so_far = torch.where(has, reward, 0.).cumsum(1)
    so_far = torch.where(has, so_far, torch.nan)
    out = torch.zeros(turn.shape, dtype=reward.dtype)
    for b in range(len(reward)):
        mates = so_far[group == group[b]]
        a = so_far[b] - mates.nanmean(0)
        for i in range(turn.shape[1]):
            k = int(turn[b, i])
            if k >= 0: out[b, i] = a[k]
    return out

# 24 win rates
@wrong("the standard error adds the deviations instead of the variances: std / m in place of var / m")
def prediction_powered(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    est = gold.mean(-1) + lam * (judge.mean(-1) - labelled.mean(-1))
    rest = gold - lam[..., None] * labelled
    err = (rest.std(-1) / gold.shape[-1] + lam**2 * judge.std(-1) / judge.shape[-1]).sqrt()
    return est, err

@wrong("lambda is left out of the labels' variance: var(g - j) at any lambda")
def prediction_powered(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam, dtype=gold.dtype)
    est = gold.mean(-1) + lam * (judge.mean(-1) - labelled.mean(-1))
    var = (gold - labelled).var(-1) / gold.shape[-1] + lam**2 * judge.var(-1) / judge.shape[-1]
    return est, var.sqrt()

@right
def prediction_powered(judge, labelled, gold, lam=1.):
    if not torch.is_tensor(lam): lam = torch.tensor(lam, dtype=gold.dtype)
    n, m = judge.size(-1), labelled.size(-1)
    fixed = gold - lam.unsqueeze(-1) * labelled
    w = fixed.mean(-1) + lam * judge.mean(-1)
    return w, torch.sqrt(fixed.var(-1, unbiased=True) / m + lam.square() * judge.var(-1, unbiased=True) / n)

if __name__ == "__main__": print(len(WRONG), "wrong", len(RIGHT), "right", len({name for name, *_ in WRONG}), "exercises")
