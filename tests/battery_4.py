"""Fresh slips for the three-star exercises, written after the check had learned from the third battery and before any verdict on
them was seen: the share that is named is a blind figure. `python scripts/tutor.py --battery battery_4`."""
import torch
from battery_3 import _bell, _best, _gae, _loss, _turns, discounts, hidden_states, next_values, shift_left, shift_right, targets

WRONG, RIGHT = {}, {}

def wrong(words):
    def keep(fn):
        WRONG.setdefault(fn.__name__, []).append((words, fn))
        return fn
    return keep

@wrong("first drawn|tie|equal|share")
def best_of_n_policy(logp, score, n): # a tie counts half
    return _best(logp, score, n, u=lambda p, o: (p * ((o > 0) + .5 * (o == 0))).sum(-1), l=lambda p, o: .5 * (p * (o == 0)).sum(-1))
@wrong("at least|at most|lower|higher|direction|transpos|other way|worst")
def best_of_n_policy(logp, score, n): return _best(logp, score, n, u=lambda p, o: (p * (o <= 0)).sum(-1))
@wrong("probab|weigh|number|equal|counts|share of")
def best_of_n_policy(logp, score, n): # all responses equally probable
    return _best(torch.full_like(logp, -torch.tensor(float(len(logp))).log()), score, n)
@wrong("n\\b|times|divid|factor|power")
def best_of_n_policy(logp, score, n): return _best(logp, score, n, mass=lambda u, l: (u**n - (u - l).clamp(min=0)**n) / n)

@wrong("reward|clamp|clip|cut|below|negativ|-1|1\\b")
def gae(reward, value, mask, gamma=1., lam=.95): return _gae(reward.clamp(-.5, .5), value, mask, gamma, lam)
@wrong("mean|reward|subtract|baseline|centr")
def gae(reward, value, mask, gamma=1., lam=.95): return _gae(reward - reward[mask].mean(), value, mask, gamma, lam)
@wrong("value|half|factor|twice|2")
def gae(reward, value, mask, gamma=1., lam=.95): return _gae(reward, value / 2, mask, gamma, lam)
@wrong("λ|lam|γ|gamma")
def gae(reward, value, mask, gamma=1., lam=.95): # λ in δ
    return _gae(reward, value, mask, gamma, lam, delta=lambda r, nxt, v: r + gamma * lam * nxt - v)
@wrong("length|divid|number|mean")
def gae(reward, value, mask, gamma=1., lam=.95):
    a, g = _gae(reward, value, mask, gamma, lam)
    return a / mask.sum(1, keepdim=True).clamp(min=1), g

@wrong("sign|minus|reward|turned")
def bellman_targets(x, value, config):
    from dataclasses import replace
    return _bell(replace(x, reward=-x.reward), value, config)
@wrong("last|row|every|truncat|bootstrap|ended|terminal")
def bellman_targets(x, value, config): # no value anywhere in a row that ended
    return _bell(x, value.masked_fill(x.ended[:, None], 0.), config)
@wrong("mc_bound|bound|always|asked")
def bellman_targets(x, value, config):
    from dataclasses import replace
    return _bell(x, value, replace(config, mc_bound=True))
@wrong("mean|average|max|bound|half")
def bellman_targets(x, value, config): return _bell(x, value, config, bound=lambda y, G, on: torch.where(on, y, (y + G) / 2))

@wrong("gradient|detach|head|no gradient|learn")
def q_loss(nets, x, config):
    loss, n, log = _loss(nets, x, config)
    return loss.detach(), n, log
@wrong("α|alpha|half|td|first|weight|1 -")
def q_loss(nets, x, config): return _loss(nets, x, config, mix=lambda d, rest, q, y: config.alpha * (d**2).sum() / 2 + rest.sum() / 2)
@wrong("max|largest|min_return|bound|clamp|below|relu|above|cut")
def q_loss(nets, x, config): return _loss(nets, x, config, mix=lambda d, rest, q, y: (d.clamp(min=0)**2).sum() / 2 + config.alpha / 2 * rest.sum())
@wrong("td_loss|key|log|mean|number|divid")
def q_loss(nets, x, config): return _loss(nets, x, config, sums=lambda log, at: {k: v / at.sum() for k, v in log.items()})

@wrong("γ|gamma|discount|half|later|to go|weigh")
def turn_advantages(reward, group, turn): # later turns count half
    return _turns(reward, group, turn, go=lambda r: sum(.5**k * torch.nn.functional.pad(r, (0, k))[:, k:] for k in range(r.shape[1])))
@wrong("group|row|own|turns|mean")
def turn_advantages(reward, group, turn): # less the row's own mean
    return _turns(reward, group, turn, centre=lambda g: g - g.nanmean(1, keepdim=True))
@wrong("number|divid|group|size|n\\b|length")
def turn_advantages(reward, group, turn): return _turns(reward, group, turn) / 2
@wrong("first|smallest|min|mean|largest")
def turn_advantages(reward, group, turn): # less the worst of the group
    return _turns(reward, group, turn, centre=lambda g: torch.stack([row - torch.where(
        g[group == group[i]].isnan(), torch.inf, g[group == group[i]]).amin(0) for i, row in enumerate(g)]))
