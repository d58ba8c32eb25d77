"Answers to the exercises of the chapter on PPO that learners might give, each wrong."
import torch
from rlhf_nb.ppo import gae
from rlhf_nb.tokens import masked_mean, masked_mean_rows, masked_sum

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
def weighed(logp, mask):
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

def far(logp, old_logp, clip): return (torch.exp(logp - old_logp) - 1).abs() > clip
def unmasked(logp, old_logp, mask, clip): return far(logp, old_logp, clip).float().mean()
def real_tokens(logp, old_logp, mask, clip): return masked_mean(far(logp, old_logp, clip).float(), ~logp.isnan())
def all_places(logp, old_logp, mask, clip): return (far(logp, old_logp, clip) * mask).float().mean()
def by_rows(logp, old_logp, mask, clip): return far(logp, old_logp, clip)[mask].sum() / len(mask)
def count(logp, old_logp, mask, clip): return (far(logp, old_logp, clip) & mask).sum()
def upper(logp, old_logp, mask, clip):
    return ((logp - old_logp).exp()[mask] > 1 + clip).float().mean()
def lower(logp, old_logp, mask, clip):
    return ((logp - old_logp).exp()[mask] < 1 - clip).double().mean()
def inside(logp, old_logp, mask, clip):
    ratio = (logp - old_logp).exp()[mask]
    return ((ratio >= 1 - clip) & (ratio <= 1 + clip)).float().mean()
def log_ratio(logp, old_logp, mask, clip): return ((logp - old_logp)[mask].abs() > clip).float().mean()
def old_over_new(logp, old_logp, mask, clip): return far(old_logp, logp, clip)[mask].float().mean()
def mean_of_rows(logp, old_logp, mask, clip):
    return masked_mean_rows(far(logp, old_logp, clip).float(), mask).mean()
def per_row(logp, old_logp, mask, clip): return masked_mean_rows(far(logp, old_logp, clip).float(), mask)
def edge(logp, old_logp, mask, clip):
    ratio = (logp - old_logp).exp()
    return ((ratio <= 1 - clip) | (ratio >= 1 + clip))[mask].float().mean()
def how_far(logp, old_logp, mask, clip): return masked_mean(((logp - old_logp).exp() - 1).abs(), mask)

WRONG = {
    "mended_entropy": [
        ("as it was: every prompt token and every pad takes a nat away", as_it_was),
        ("prompt tokens are counted: only the response was drawn", with_prompt),
        ("everything is counted, pads too", everything),
        ("nan at a pad gets through: choose with the mask, do not multiply", multiplied),
        ("the sign: surprise is minus the log-prob", no_minus),
        ("that is per token, over the whole batch", per_token),
        ("that is per token: add up each response", per_row_token),
        ("that is per token, and nan for an empty response: add up each response", per_row_or_nan),
        ("that is the sum over responses: take the mean", summed),
        ("that is one number per response: take the mean", rows),
        ("an empty response counts, with 0", no_empty),
        ("tokens were drawn by their chance already: do not weigh them again", weighed),
        ("the last token of the response, eos, is left out", no_eos),
        ("the mask is True where a token was drawn", inverse)],
    "gae_by_sums": [
        ("lambda is missing", monte_carlo),
        ("gamma is missing", no_gamma),
        ("gamma is missing in the powers: it discounts the surprises as well", gamma_once),
        ("gamma is missing in delta: it discounts the next value as well", gamma_outside),
        ("that is the return: take the value off", returns),
        ("the value before a token, not after it", after_state),
        ("after the last token the value is 0", repeated_end),
        ("the next value is missing in delta", no_next),
        ("the sum looks ahead, not back", backwards),
        ("the sum begins with l = 0, the surprise of the token itself", late_start),
        ("that is delta alone: later surprises count in part", td),
        ("only one step ahead: the sum goes to the last token", two_terms),
        ("the sign: reward and next value minus value", negative)],
    "clip_fraction": [
        ("prompt and pads are counted", unmasked),
        ("prompt tokens are counted", real_tokens),
        ("divide by the number of response tokens, not of all places", all_places),
        ("divide by the number of response tokens, not of rows", by_rows),
        ("that is a count: asked is a share", count),
        ("ratios below 1 - clip count as well", upper),
        ("ratios above 1 + clip count as well", lower),
        ("that is the share within the clip", inside),
        ("that is the log-ratio: the clip is about the ratio", log_ratio),
        ("the ratio is the wrong way round: now over when sampled", old_over_new),
        ("tokens weigh the same: that is a mean of the rows' shares", mean_of_rows),
        ("that is one number per row", per_row),
        ("a token at the edge is not beyond it: > not >=", edge),
        ("that is how far, not how often", how_far)]}
