"Answers to the exercises of the chapter on PPO that learners might give, each wrong."
import torch
from rlhf_nb.ppo import gae
from rlhf_nb.memory import masked_mean_rows
from rlhf_nb.tokens import masked_mean, masked_sum

def as_it_was(logp, mask):
    filled = torch.where(mask, logp, 1.)
    return -filled.sum(1).mean()
def with_prompt(logp, mask):
    real = ~(logp.isnan() | (logp > 0))
    return -masked_sum(logp, real).mean()
def everything(logp, mask): return -logp.sum(1).mean()
def multiplied(logp, mask): return (-logp * mask).sum(1).mean()
def no_minus(logp, mask): return masked_sum(logp, mask).mean()
def per_token(logp, mask): return -masked_mean(logp, mask)
def per_row_token(logp, mask): return -masked_mean_rows(logp, mask).mean()
def per_row_or_nan(logp, mask):
    return torch.stack([-row[m].mean() for row, m in zip(logp, mask)]).mean()
def summed(logp, mask): return -logp[mask].sum()
def rows(logp, mask): return -masked_sum(logp, mask)
def no_empty(logp, mask):
    return torch.stack([-row[m].sum() for row, m in zip(logp, mask) if m.any()]).mean()
def weighted(logp, mask):
    return -torch.where(mask, logp.exp() * logp, 0.).sum(1).mean()
def no_eos(logp, mask):
    return torch.stack([-row[m][:-1].sum() for row, m in zip(logp, mask)]).mean()
def inverse(logp, mask): return -logp.masked_fill(mask, 0.).nan_to_num(0.).sum(1).mean()

def whole(r, v): return torch.ones(1, len(r), dtype=torch.bool)
def by_chapter(r, v, gamma, lam): return gae(r[None], v[None], whole(r, v), gamma, lam)
def monte_carlo(r, v, gamma, lam):
    out = torch.zeros_like(r)
    for t in range(len(r)): out[t] = sum(gamma**k * r[t + k] for k in range(len(r) - t)) - v[t]
    return out
def no_gamma(r, v, gamma, lam): return by_chapter(r, v, 1., lam)[0][0]
def gamma_once(r, v, gamma, lam):
    delta = r + gamma * torch.cat([v[1:], torch.zeros(1).to(v)]) - v
    out, a = torch.zeros_like(r), 0.
    for t in reversed(range(len(r))):
        a = delta[t] + lam * a
        out[t] = a
    return out
def gamma_outside(r, v, gamma, lam):
    delta = r + torch.cat([v[1:], torch.zeros(1).to(v)]) - v
    out, a = torch.zeros_like(r), 0.
    for t in reversed(range(len(r))):
        a = delta[t] + gamma * lam * a
        out[t] = a
    return out
def returns(r, v, gamma, lam): return by_chapter(r, v, gamma, lam)[1][0]
def after_state(r, v, gamma, lam):
    late = torch.cat([v[1:], v.new_zeros(1)])
    return by_chapter(r, late, gamma, lam)[0][0]
def repeated_end(r, v, gamma, lam):
    out, a, ahead = torch.zeros_like(r), 0., v[-1]
    for t in reversed(range(len(r))):
        a = r[t] + gamma * ahead - v[t] + gamma * lam * a
        ahead, out[t] = v[t], a
    return out
def no_next(r, v, gamma, lam):
    out = [sum((gamma * lam)**l * (r[t + l] - v[t + l]) for l in range(len(r) - t)) for t in range(len(r))]
    return torch.stack(out)
def backwards(r, v, gamma, lam):
    delta = r + gamma * torch.cat([v[1:], v.new_zeros(1)]) - v
    out, a = [], 0.
    for d in delta:
        a = d + gamma * lam * a
        out.append(a)
    return torch.stack(out)
def late_start(r, v, gamma, lam):
    delta = r + gamma * torch.cat([v[1:], v.new_zeros(1)]) - v
    return by_chapter(r, v, gamma, lam)[0][0] - delta
def td(r, v, gamma, lam): return by_chapter(r, v, gamma, 0.)[0][0]
def two_terms(r, v, gamma, lam):
    delta = r + gamma * torch.cat([v[1:], v.new_zeros(1)]) - v
    return delta + gamma * lam * torch.cat([delta[1:], v.new_zeros(1)])
def negative(r, v, gamma, lam): return -by_chapter(r, v, gamma, lam)[0][0]

def binds(logp, old_logp, advantage, clip):
    ratio = torch.exp(logp - old_logp)
    return torch.where(advantage > 0, ratio > 1 + clip, (ratio < 1 - clip) & (advantage < 0))
def unmasked(logp, old_logp, advantage, mask, clip):
    return binds(logp, old_logp, advantage, clip).float().mean()
def real_tokens(logp, old_logp, advantage, mask, clip):
    return masked_mean(binds(logp, old_logp, advantage, clip).float(), ~logp.isnan())
def all_places(logp, old_logp, advantage, mask, clip):
    return (binds(logp, old_logp, advantage, clip) * mask).float().mean()
def by_rows(logp, old_logp, advantage, mask, clip):
    return binds(logp, old_logp, advantage, clip)[mask].sum() / len(mask)
def count(logp, old_logp, advantage, mask, clip): return (binds(logp, old_logp, advantage, clip) & mask).sum()
def beyond(logp, old_logp, advantage, mask, clip):
    ratio = (logp - old_logp).exp()[mask]
    return ((ratio > 1 + clip) | (ratio < 1 - clip)).float().mean()
def upper(logp, old_logp, advantage, mask, clip):
    return (((logp - old_logp).exp() > 1 + clip) & (advantage > 0))[mask].float().mean()
def lower(logp, old_logp, advantage, mask, clip):
    return (((logp - old_logp).exp() < 1 - clip) & (advantage < 0))[mask].double().mean()
def smaller(logp, old_logp, advantage, mask, clip):
    ratio = (logp - old_logp).exp()
    return (ratio.clamp(1 - clip, 1 + clip) * advantage > ratio * advantage)[mask].float().mean()
def not_clipped(logp, old_logp, advantage, mask, clip):
    return (~binds(logp, old_logp, advantage, clip))[mask].float().mean()
def log_ratio(logp, old_logp, advantage, mask, clip):
    moved = logp - old_logp
    return ((moved.abs() > clip) & (moved * advantage > 0))[mask].float().mean()
def old_over_new(logp, old_logp, advantage, mask, clip):
    return binds(old_logp, logp, advantage, clip)[mask].float().mean()
def mean_of_rows(logp, old_logp, advantage, mask, clip):
    return masked_mean_rows(binds(logp, old_logp, advantage, clip).float(), mask).mean()
def per_row(logp, old_logp, advantage, mask, clip):
    return masked_mean_rows(binds(logp, old_logp, advantage, clip).float(), mask)
def ties(logp, old_logp, advantage, mask, clip):
    ratio = (logp - old_logp).exp()
    return (-advantage * ratio.clamp(1 - clip, 1 + clip) >= -advantage * ratio)[mask].float().mean()
def how_much(logp, old_logp, advantage, mask, clip):
    ratio = (logp - old_logp).exp()
    gain = ratio * advantage - torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
    return masked_mean(gain, mask)

WRONG = {
    "fixed_entropy": [
        ("as it was: every prompt token and every pad takes a nat away", as_it_was),
        ("prompt tokens are counted: only the response was sampled", with_prompt),
        ("everything is counted, pads too", everything),
        ("nan at a pad gets through: choose with the mask, do not multiply", multiplied),
        ("the sign: it is minus the log-prob", no_minus),
        ("that is per token, over the whole batch", per_token),
        ("that is per token: add up each response", per_row_token),
        ("that is per token, and nan for an empty response: add up each response", per_row_or_nan),
        ("that is the sum over responses: take the mean", summed),
        ("that is one number per response: take the mean", rows),
        ("an empty response counts, with 0", no_empty),
        ("tokens were sampled by their probability already: do not weight them again", weighted),
        ("the last token of the response, eos, is left out", no_eos),
        ("the mask is True where a token was sampled", inverse)],
    "gae_by_sums": [
        ("lambda is missing", monte_carlo),
        ("gamma is missing", no_gamma),
        ("gamma is missing in the powers: it discounts the deltas as well", gamma_once),
        ("gamma is missing in delta: it discounts the next value as well", gamma_outside),
        ("that is the return: take the value off", returns),
        ("the value before a token, not after it", after_state),
        ("after the last token the value is 0", repeated_end),
        ("the next value is missing in delta", no_next),
        ("the sum looks ahead, not back", backwards),
        ("the sum begins with l = 0, the delta of the token itself", late_start),
        ("that is delta alone: later deltas count in part", td),
        ("only one step ahead: the sum goes to the last token", two_terms),
        ("the sign: reward and next value minus value", negative)],
    "clip_fraction": [
        ("prompt and pads are counted", unmasked),
        ("prompt tokens are counted", real_tokens),
        ("divide by the number of response tokens, not of all places", all_places),
        ("divide by the number of response tokens, not of rows", by_rows),
        ("that is a count: asked is a share", count),
        ("that is every ratio beyond the clip: on one side of it the gradient flows", beyond),
        ("ratios below 1 - clip count as well, where the advantage is negative", upper),
        ("ratios above 1 + clip count as well, where the advantage is positive", lower),
        ("that is where the clipped loss is the smaller: the sign of the advantage", smaller),
        ("that is the share that is not clipped", not_clipped),
        ("that is the log-ratio: the clip is about the ratio", log_ratio),
        ("the ratio is the wrong way round: now over when sampled", old_over_new),
        ("tokens weigh the same: that is a mean of the rows' shares", mean_of_rows),
        ("that is one number per row", per_row),
        ("where both losses are equal nothing is clipped: > not >=", ties),
        ("that is how much, not how often", how_much)]}
