"Answers to the exercises of the chapter on PPO that learners might give, wrong ones and right ones."
import torch
from einops import rearrange, reduce
from torch.nn import functional as F
from rlhf_nb.kl import kl_k3, kl_penalty, token_rewards
from rlhf_nb.ppo import clipped_value_loss
from rlhf_nb.ppo import clipped_policy_loss as token_losses
from rlhf_nb.tokens import masked_mean, masked_sum

# ---- clipped_policy_loss
def surrogate(logp, old_logp, advantage, cliprange=.2):
    ratio = torch.exp(logp.float() - old_logp.float())
    return ratio * advantage.float(), torch.clamp(ratio, 1 - cliprange, 1 + cliprange) * advantage.float()
def clip_gain(logp, old_logp, advantage, cliprange=.2): return torch.min(*surrogate(logp, old_logp, advantage, cliprange))
def clip_largest(logp, old_logp, advantage, cliprange=.2): return -torch.max(*surrogate(logp, old_logp, advantage, cliprange))
def clip_min_of_losses(logp, old_logp, advantage, cliprange=.2):
    a, b = surrogate(logp, old_logp, advantage, cliprange)
    return torch.min(-a, -b)
def clip_never(logp, old_logp, advantage, cliprange=.2): return -surrogate(logp, old_logp, advantage)[0]
def clip_always(logp, old_logp, advantage, cliprange=.2): return -surrogate(logp, old_logp, advantage, cliprange)[1]
def clip_log(logp, old_logp, advantage, cliprange=.2):
    ratio, advantage = (logp - old_logp).float(), advantage.float()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - cliprange, 1 + cliprange) * advantage)
def clip_inverse(logp, old_logp, advantage, cliprange=.2): return -torch.min(*surrogate(old_logp, logp, advantage, cliprange))
def clip_top_only(logp, old_logp, advantage, cliprange=.2):
    ratio, advantage = (logp.float() - old_logp.float()).exp(), advantage.float()
    return -torch.minimum(ratio * advantage, ratio.clamp(max=1 + cliprange) * advantage)
def clip_around_0(logp, old_logp, advantage, cliprange=.2):
    ratio, advantage = (logp.float() - old_logp.float()).exp(), advantage.float()
    return -torch.minimum(ratio * advantage, ratio.clamp(-cliprange, cliprange) * advantage)
def clip_fixed_range(logp, old_logp, advantage, cliprange=.2): return -torch.min(*surrogate(logp, old_logp, advantage))
def clip_mean(*x): return -torch.min(*surrogate(*x)).mean()
def clip_sum(*x): return -torch.min(*surrogate(*x)).sum()
def clip_no_grad(*x):
    with torch.no_grad(): return -torch.min(*surrogate(*x))
def clip_right_where(logp, old_logp, advantage, cliprange=.2):
    kind = torch.promote_types(logp.dtype, torch.float32)
    ratio, advantage = (logp.to(kind) - old_logp.to(kind)).exp(), advantage.to(kind)
    limit = torch.where(advantage > 0, 1 + cliprange, 1 - cliprange)
    binds = torch.where(advantage > 0, ratio > limit, ratio < limit)
    return -torch.where(binds, limit * advantage, ratio * advantage)
def clip_right_loop(logp, old_logp, advantage, cliprange=.2):
    rows = []
    for now, old, A in zip(logp, old_logp, advantage):
        row = []
        for n, o, a in zip(now, old, A):
            n, o, a = [x if x.dtype == torch.float64 else x.float() for x in (n, o, a)]
            r = torch.exp(n - o)
            row.append(torch.maximum(-a * r, -a * torch.clamp(r, 1 - cliprange, 1 + cliprange)))
        rows.append(torch.stack(row))
    return torch.stack(rows)
def clip_right_double(logp, old_logp, advantage, cliprange=.2):
    ratio, advantage = (logp.double() - old_logp.double()).exp(), advantage.double()
    both = torch.stack([ratio * advantage, ratio.clip(1 - cliprange, 1 + cliprange) * advantage])
    return -both.amin(0)

# ---- gae
def rows_of(reward, value, mask):
    for b in range(len(reward)): yield b, mask[b].nonzero().flatten().tolist()
def by_rows(reward, value, mask, gamma, lam, delta=None, start=0.):
    kind = torch.promote_types(reward.dtype, torch.float32)
    A = torch.zeros(reward.shape, dtype=kind)
    v = value.to(kind)
    for b, at in rows_of(reward, value, mask):
        running, ahead = 0., start
        for i in at[::-1]:
            d = reward[b, i].to(kind) + gamma * ahead - v[b, i] if delta is None else delta(reward[b, i].to(kind), ahead, v[b, i])
            running = d + gamma * lam * running
            ahead, A[b, i] = v[b, i], running
    return A, (A + v).masked_fill(~mask, 0.)
def gae_no_lambda(r, v, m, gamma=1., lam=.95): return by_rows(r, v, m, gamma, 1.)
def gae_no_gamma(r, v, m, gamma=1., lam=.95): return by_rows(r, v, m, 1., lam)
def gae_no_gamma_in_delta(r, v, m, gamma=1., lam=.95):
    return by_rows(r, v, m, gamma, lam, delta=lambda reward, ahead, now: reward + ahead - now)
def gae_td(r, v, m, gamma=1., lam=.95): return by_rows(r, v, m, gamma, 0.)
def gae_no_baseline(r, v, m, gamma=1., lam=.95):
    return by_rows(r, v, m, gamma, lam, delta=lambda reward, ahead, now: reward + gamma * ahead)
def gae_swapped(*x): return by_rows(*x)[::-1]
def gae_only_advantage(*x): return by_rows(*x)[0]
def gae_returns_are_advantages(*x): return (by_rows(*x)[0],) * 2
def gae_minus_value(r, v, m, gamma=1., lam=.95):
    A, _ = by_rows(r, v, m, gamma, lam)
    return A, (A - v.to(A.dtype)).masked_fill(~m, 0.)
def gae_unmasked(r, v, m, gamma=1., lam=.95): return by_rows(r, v, m | True, gamma, lam)
def gae_gap_ends(r, v, m, gamma=1., lam=.95):
    kind = torch.promote_types(r.dtype, torch.float32)
    r, v = r.masked_fill(~m, 0.).to(kind), v.masked_fill(~m, 0.).to(kind)
    ahead, running, out = torch.zeros(len(r), dtype=kind), torch.zeros(len(r), dtype=kind), []
    for i in reversed(range(r.shape[1])):
        running = (r[:, i] + gamma * ahead - v[:, i] + gamma * lam * running) * m[:, i]
        ahead = v[:, i]
        out.insert(0, running)
    A = torch.stack(out, 1)
    return A, A + v
def gae_backwards(r, v, m, gamma=1., lam=.95):
    delta, out = by_rows(r, v, m, gamma, 0.)[0], None
    out = torch.zeros_like(delta)
    for b, at in rows_of(r, v, m):
        running = 0.
        for i in at: out[b, i] = running = delta[b, i] + gamma * lam * running
    return out, (out + v.to(out.dtype)).masked_fill(~m, 0.)
def gae_16_bit(r, v, m, gamma=1., lam=.95): return tuple(x.to(r.dtype) for x in by_rows(r, v, m, gamma, lam))
def gae_negative(r, v, m, gamma=1., lam=.95):
    A, _ = by_rows(r, v, m, gamma, lam)
    return -A, (-A + v.to(A.dtype)).masked_fill(~m, 0.)
def gae_right_sums(r, v, m, gamma=1., lam=.95): # from the definition
    kind = torch.promote_types(r.dtype, torch.float32)
    A, G = torch.zeros(r.shape, dtype=kind), torch.zeros(r.shape, dtype=kind)
    for b, at in rows_of(r, v, m):
        rr, vv = r[b, at].to(kind), torch.cat([v[b, at].to(kind), torch.zeros(1, dtype=kind)])
        d = rr + gamma * vv[1:] - vv[:-1]
        for t, i in enumerate(at):
            A[b, i] = sum((gamma * lam)**k * d[t + k] for k in range(len(at) - t))
            G[b, i] = A[b, i] + vv[t]
    return A, G
def gae_right_columns(r, v, m, gamma=1., lam=.95):
    kind = torch.promote_types(r.dtype, torch.float32)
    r, v, on = torch.where(m, r.to(kind), 0.), torch.where(m, v.to(kind), 0.), m.to(kind)
    A = torch.zeros_like(r)
    next_a = next_v = torch.zeros(len(r), dtype=kind)
    for i in range(r.shape[1] - 1, -1, -1):
        a = r[:, i] + gamma * next_v - v[:, i] + gamma * lam * next_a
        A[:, i] = a * on[:, i]
        next_a = on[:, i] * a + (1 - on[:, i]) * next_a
        next_v = on[:, i] * v[:, i] + (1 - on[:, i]) * next_v
    return A, A + v
def gae_right_matrix(r, v, m, gamma=1., lam=.95): # powers of gamma lambda as a matrix, in float64
    A, G = torch.zeros(r.shape), torch.zeros(r.shape)
    for b in range(len(r)):
        on = m[b]
        if not on.any(): continue
        rr, vv = r[b][on].double(), v[b][on].double()
        d = rr + gamma * F.pad(vv[1:], (0, 1)) - vv
        t = torch.arange(len(d))
        power = torch.triu((gamma * lam) ** (t[None] - t[:, None]).clamp(min=0).double())
        A[b, on] = (power @ d).float()
        G[b, on] = (power @ d + vv).float()
    return A, G

# ---- ppo_rewards
def last_of(mask): return mask & (mask.flip(1).cumsum(1).flip(1) == 1)
def rewards_plus(score, logp, ref_logp, mask, beta=.1): return token_rewards(score.detach(), -kl_penalty(logp, ref_logp, mask, beta), mask)
def rewards_no_beta(score, logp, ref_logp, mask, beta=.1): return token_rewards(score.detach(), kl_penalty(logp, ref_logp, mask, 1.), mask)
def rewards_alive(score, logp, ref_logp, mask, beta=.1):
    d = torch.where(mask, logp.float() - ref_logp.float(), 0.)
    return -beta * d + last_of(mask) * score[:, None].float()
def rewards_score_alive(score, logp, ref_logp, mask, beta=.1): return token_rewards(score, kl_penalty(logp, ref_logp, mask, beta), mask)
def rewards_everywhere(score, logp, ref_logp, mask, beta=.1):
    return kl_penalty(logp, ref_logp, mask, beta) + mask * score.detach()[:, None].float()
def rewards_at_start(score, logp, ref_logp, mask, beta=.1):
    first = mask & (mask.cumsum(1) == 1)
    return kl_penalty(logp, ref_logp, mask, beta) + first * score.detach()[:, None].float()
def rewards_last_column(score, logp, ref_logp, mask, beta=.1):
    reward = kl_penalty(logp, ref_logp, mask, beta).clone()
    reward[:, -1] += score.detach().to(reward.dtype)
    return reward
def rewards_no_score(score, logp, ref_logp, mask, beta=.1): return kl_penalty(logp, ref_logp, mask, beta)
def rewards_no_kl(score, logp, ref_logp, mask, beta=.1): return token_rewards(score.detach(), 0 * kl_penalty(logp, ref_logp, mask, beta), mask)
def rewards_overwritten(score, logp, ref_logp, mask, beta=.1):
    reward = kl_penalty(logp, ref_logp, mask, beta)
    return torch.where(last_of(mask), score.detach()[:, None].to(reward.dtype), reward)
def rewards_multiplied(score, logp, ref_logp, mask, beta=.1):
    d = (logp.detach().float() - ref_logp.detach().float()) * mask
    return -beta * d + last_of(mask) * score.detach()[:, None].float()
def rewards_k3(score, logp, ref_logp, mask, beta=.1): return token_rewards(score.detach(), kl_penalty(logp, ref_logp, mask, beta, kl_k3), mask)
def rewards_each_answer(score, logp, ref_logp, mask, beta=.1): return token_rewards(score.detach(), kl_penalty(logp, ref_logp, mask, beta), mask).sum(1)
def rewards_absolute(score, logp, ref_logp, mask, beta=.1):
    return token_rewards(score.detach(), -kl_penalty(logp, ref_logp, mask, beta).abs(), mask)
def rewards_right_loop(score, logp, ref_logp, mask, beta=.1):
    kind = torch.promote_types(logp.dtype, torch.float32)
    reward = torch.zeros(mask.shape, dtype=kind)
    for b in range(len(mask)):
        at = mask[b].nonzero().flatten().tolist()
        for i in at: reward[b, i] = -beta * (logp[b, i].item() - ref_logp[b, i].item())
        if at: reward[b, at[-1]] += score[b].item()
    return reward
@torch.no_grad()
def rewards_right_where(score, logp, ref_logp, mask, beta=.1):
    kind = torch.promote_types(logp.dtype, torch.float32)
    cost = beta * (logp.to(kind) - ref_logp.to(kind))
    return torch.where(mask, torch.where(last_of(mask), score[:, None].to(kind), 0.) - cost, 0.)
def rewards_right_double(score, logp, ref_logp, mask, beta=.1):
    penalty = kl_penalty(logp.double(), ref_logp.double(), mask, beta)
    rows, at = torch.arange(len(mask)), mask.shape[1] - 1 - mask.flip(1).int().argmax(1)
    reward = penalty.clone()
    reward[rows, at] += torch.where(mask.any(1), score.detach().double(), 0.)
    return reward

# ---- ppo_loss
def both(x, cliprange, cliprange_value): return (token_losses(*x[:3], cliprange), clipped_value_loss(*x[3:6], cliprange_value))
def loss_policy_only(*x): return masked_mean(both(x, *x[7:9])[0], x[6])
def loss_equal_weights(*x): return masked_mean(sum(both(x, *x[7:9])), x[6])
def loss_subtracted(*x): a, b = both(x, *x[7:9]); return masked_mean(a - x[9] * b, x[6])
def loss_minus(*x): a, b = both(x, *x[7:9]); return masked_mean(x[9] * b - a, x[6])
def loss_swapped_ranges(*x): a, b = both(x, x[8], x[7]); return masked_mean(a + x[9] * b, x[6])
def loss_one_range(*x): a, b = both(x, x[7], x[7]); return masked_mean(a + x[9] * b, x[6])
def loss_no_value_clip(*x): return masked_mean(both(x, *x[7:9])[0] + x[9] * (x[3].float() - x[5].float())**2 / 2, x[6])
def loss_sum(*x): a, b = both(x, *x[7:9]); return masked_sum(a + x[9] * b, x[6]).sum()
def loss_row_means(*x):
    a, b = both(x, *x[7:9])
    return (masked_sum(a + x[9] * b, x[6]) / x[6].sum(1).clamp(min=1)).mean()
def loss_all_places(*x): a, b = both(x, *x[7:9]); return torch.where(x[6], a + x[9] * b, 0.).mean()
def loss_by_rows(*x): a, b = both(x, *x[7:9]); return masked_sum(a + x[9] * b, x[6]).mean()
def loss_unmasked(*x): a, b = both(x, *x[7:9]); return (a + x[9] * b).mean()
def loss_each_token(*x): a, b = both(x, *x[7:9]); return (a + x[9] * b).masked_fill(~x[6], 0.)
def loss_no_critic_gradient(*x): a, b = both(x, *x[7:9]); return masked_mean(a + x[9] * b.detach(), x[6])
def loss_no_policy_gradient(*x): a, b = both(x, *x[7:9]); return masked_mean(a.detach() + x[9] * b, x[6])
def by_name(fn): # the chapter calls it with the names of the stub
    def named(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
        return fn(logp, old_logp, advantage, value, old_value, returns, mask, cliprange, cliprange_value, vf_coef)
    return named
@by_name
def loss_right_two_means(*x): a, b = both(x, *x[7:9]); return masked_mean(a, x[6]) + x[9] * masked_mean(b, x[6])
@by_name
def loss_right_indexed(*x):
    on = x[6]
    if not on.any(): return x[0].sum() * 0
    kept = [y[on].double() for y in x[:6]]
    ratio = (kept[0] - kept[1]).exp()
    policy = torch.maximum(-ratio * kept[2], -ratio.clamp(1 - x[7], 1 + x[7]) * kept[2])
    near = kept[4] + (kept[3] - kept[4]).clamp(-x[8], x[8])
    value = torch.maximum((kept[3] - kept[5])**2, (near - kept[5])**2) / 2
    return (policy + x[9] * value).mean()
@by_name
def loss_right_einops(*x):
    a, b = both([torch.where(x[6], y, 0.) for y in x[:6]], *x[7:9])
    total = rearrange(a + x[9] * b, "b t -> (b t)") * rearrange(x[6], "b t -> (b t)")
    return reduce(total, "n -> ", "sum") / x[6].sum()

RIGHT = {"clipped_policy_loss": [clip_right_where, clip_right_loop, clip_right_double],
         "gae": [gae_right_sums, gae_right_columns, gae_right_matrix],
         "ppo_rewards": [rewards_right_loop, rewards_right_where, rewards_right_double],
         "ppo_loss": [loss_right_two_means, loss_right_indexed, loss_right_einops]}

WRONG = {
    "clipped_policy_loss": [
        ("the sign: a loss is minus the gain", clip_gain),
        ("take the smaller gain, not the larger", clip_largest),
        ("take the smaller gain, not the larger", clip_min_of_losses),
        ("the ratio is not clipped", clip_never),
        ("only the clipped product: where the policy moved the wrong way the gradient must flow", clip_always),
        ("that is the log-ratio: exp is missing", clip_log),
        ("the ratio is the wrong way round: now over when sampled", clip_inverse),
        ("the ratio may also not fall below 1 - eps", clip_top_only),
        ("the clip is around 1, not around 0", clip_around_0),
        ("cliprange is an argument, not always .2", clip_fixed_range),
        ("the loss of each token, not their mean", clip_mean), ("the loss of each token, not their sum", clip_sum),
        ("no gradient reaches the policy", clip_no_grad)],
    "gae": [
        ("lambda is missing", gae_no_lambda), ("gamma is missing", gae_no_gamma),
        ("gamma is missing in delta: it discounts the next value as well", gae_no_gamma_in_delta),
        ("that is delta alone: later deltas count in part", gae_td),
        ("delta: take the value of the token itself off", gae_no_baseline),
        ("the other way round: first advantages, then returns", gae_swapped),
        ("two results: advantages and returns", gae_only_advantage),
        ("returns are A + V: the value is missing", gae_returns_are_advantages),
        ("returns are A + V, not A - V", gae_minus_value),
        ("where the mask is False rewards and values must not count", gae_unmasked),
        ("step over a gap in the mask: the next token is the next one that the mask holds", gae_gap_ends),
        ("the sum looks ahead, not back", gae_backwards),
        ("the sign: reward and next value minus value", gae_negative)],
    "ppo_rewards": [
        ("the rewards are not divided by the length of the answer", lambda score, logp, ref, mask, beta=.1: (
            token_rewards(score.detach(), kl_penalty(logp, ref, mask, beta), mask) / mask.float().sum(-1).clamp(min=1.)[:, None])),
        ("the sign: leaving the reference costs", rewards_plus),
        ("the sign: leaving the reference costs; `kl_penalty` has it, and mask and detach",
         lambda score, logp, ref, mask, beta=.1: token_rewards(score, beta * (logp - ref), mask)),
        ("the sign: leaving the reference costs; and the score carries a gradient: detach it",
         lambda score, logp, ref, mask, beta=.1: token_rewards(score, -kl_penalty(logp, ref, mask, beta), mask)),
        ("beta is missing", rewards_no_beta),
        ("rewards are data: no gradient flows through them", rewards_alive),
        ("the score carries a gradient as well: detach it", rewards_score_alive),
        ("the score stands at the last response token alone", rewards_everywhere),
        ("the score stands at the last response token, not at the first", rewards_at_start),
        ("the score stands at the last response token, not in the last column", rewards_last_column),
        ("the score is missing", rewards_no_score), ("the KL penalty is missing", rewards_no_kl),
        ("the last token pays its KL as well: the score is added to that, it does not stand in its place", rewards_overwritten),
        ("nan at a pad gets through: choose with the mask, do not multiply", rewards_multiplied),
        ("that is k3: the penalty is the log-ratio itself", rewards_k3),
        ("one reward per token, not one per answer", rewards_each_answer),
        ("a token below the reference gets a refund: no absolute value", rewards_absolute)],
    "ppo_loss": [
        ("the value loss is missing", loss_policy_only), ("vf_coef is missing", loss_equal_weights),
        ("the value loss is a loss: add it", loss_subtracted), ("the policy loss has its minus already", loss_minus),
        ("the two clip ranges are swapped", loss_swapped_ranges), ("the value has its own clip range", loss_one_range),
        ("the value loss is not clipped", loss_no_value_clip),
        ("that is the sum: take the mean over response tokens", loss_sum),
        ("tokens weigh the same: that is a mean of the rows' means", loss_row_means),
        ("divide by the number of response tokens, not of all places", loss_all_places),
        ("divide by the number of response tokens, not of rows", loss_by_rows),
        ("prompt and pads are counted", loss_unmasked), ("one number, not one per token", loss_each_token),
        ("no gradient reaches the critic", loss_no_critic_gradient),
        ("no gradient reaches the policy", loss_no_policy_gradient)]}
