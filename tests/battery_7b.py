"""A seventh battery, part b: written from stubs and task texts alone, without sight of the check. OWN: False where a wrong answer is a right text with one edit."""
import math, re, statistics, torch
import torch.nn.functional as F
from battery_maker import battery
from collections.abc import Callable
from einops import einsum, rearrange, reduce, repeat
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, softplus
from rlhf_nb.kl import kl_penalty, token_rewards
from rlhf_nb.base.batches import at_least_float32
from rlhf_nb.base.candidates import max_min
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.q_networks import (
    Episodes, HistogramHead, QConfig, QNets, discounts, hidden_states, next_values,
    q_terms)
from rlhf_nb.base.replies import escape_special_tokens, fill_template, score_regex
from rlhf_nb.base.settings import check_number
from rlhf_nb.dpo import log_ratio_gap
from rlhf_nb.grpo import _group_sums, group_centered, mean_baseline
from rlhf_nb.judge import JudgePrompt, Verdicts, pair_accuracy
from rlhf_nb.ppo import clipped_policy_loss, clipped_value_loss
from rlhf_nb.qlearning import bellman_targets, monte_carlo_returns
from rlhf_nb.tokens import Seqs, masked_mean, shift_right

WRONG, RIGHT, SLIPS, OWN, wrong, right, edits = battery(globals())

def best_reply(p_opponent, p_real, beta): # chapter 15's, for spin_game
    weight = p_opponent * (p_real / p_opponent)**(1 / beta)
    return weight / weight.sum()

# ---------------------------------------------------------------- 08 ppo_rewards

edits("ppo_rewards", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    logp, ref_logp = at_least_float32(logp, ref_logp)
    kl = (logp.detach() - ref_logp.detach())
    reward = torch.where(mask, -beta * kl, 0.)
    for i in range(len(mask)):
        places = mask[i].nonzero().flatten()
        if len(places): reward[i, places[-1]] += score[i].detach()
    return reward
''',
("adds the KL cost as a bonus: the sign of beta times the log-ratio is wrong",
 r"sign|bonus|minus|negat|opposite|cost",
 "-beta * kl", "beta * kl"),
("puts the score on the first response token, not on the last",
 r"first|last|where the score|place of the score",
 "places[-1]", "places[0]"),
("the log-probs keep their gradient: rewards are data",
 r"gradient|detach|requires_grad|data|constant",
 "(logp.detach() - ref_logp.detach())", "(logp - ref_logp)"),
("takes probabilities instead of log-probs for the KL cost",
 r"probabilit|exp\b|log-ratio|logarithm|log ratio|log of",
 "(logp.detach() - ref_logp.detach())", "(logp.detach().exp() - ref_logp.detach().exp())"),
("the score replaces the KL cost of the last token, it is not added to it",
 r"replac|overwrit|instead of|added|plus|lost|last token|on top|penalty of the last",
 "+= score[i].detach()", "= score[i].detach()"),
("the size of the log-ratio is charged, so a token less likely than under the reference pays, too",
 r"abs|size|sign|negative log-ratio|less likely|both directions|magnitude",
 "-beta * kl", "-beta * kl.abs()"),
)
right("ppo_rewards", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    with torch.no_grad():
        logp, ref_logp = at_least_float32(logp, ref_logp)
        b, t = mask.shape
        column = torch.arange(t, device=mask.device)
        last = torch.where(mask, column, -1).max(dim=1).values      # (b), -1: empty
        bonus = F.one_hot(last + 1, t + 1)[:, 1:] * score[:, None]  # (b t)
        return (-beta * (logp - ref_logp)).masked_fill(~mask, 0.) + bonus
''')
right("ppo_rewards", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    price = kl_penalty(logp, ref_logp, mask, beta)
    return token_rewards(score.detach(), price, mask)
''')
wrong("ppo_rewards", "adds the score at the last column, which may be a pad, not at the last response token",
 r"last column|pad|last response|outside|where the mask|-1|place of the score|last token", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    reward = kl_penalty(logp, ref_logp, mask, beta).clone()
    reward[:, -1] += score.detach()
    return reward
''')
wrong("ppo_rewards", "gives the score to every response token",
 r"every|each|all (response )?tokens|once|only the last|at the last|spread", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    penalty = kl_penalty(logp, ref_logp, mask, beta)
    return penalty + score.detach()[:, None] * mask
''')
wrong("ppo_rewards", "the score still carries a gradient",
 r"gradient|detach|requires_grad|data|score", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    return token_rewards(score, kl_penalty(logp, ref_logp, mask, beta), mask)
''')
wrong("ppo_rewards", "prompt and pad tokens are charged the KL cost, too",
 r"mask|prompt|pad|outside|else 0|not 0", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    score, logp, ref_logp = score.detach(), logp.detach(), ref_logp.detach()
    rewards = -beta * (logp - ref_logp)
    for row, (keep, s) in enumerate(zip(mask, score)):
        where = torch.where(keep)[0]
        if where.numel() > 0:
            rewards[row, where[-1]] = rewards[row, where[-1]] + s
    return rewards
''')
wrong("ppo_rewards", "masks by multiplication, so nan or inf outside the response becomes nan",
 r"nan|inf|multipl|anything|masked_fill|where", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    penalty = -beta * (logp - ref_logp).detach() * mask
    from_here = mask.int().flip(1).cumsum(1).flip(1)
    is_last = mask & (from_here == 1)
    return penalty + is_last * score.detach()[:, None]
''')
wrong("ppo_rewards", "charges the whole response's KL at the last token instead of token by token",
 r"per token|each token|every token|token by token|sum|whole response|all at the last|own", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    kl = torch.where(mask, (logp - ref_logp).detach(), 0.).sum(dim=1)
    nothing = torch.zeros_like(logp.detach())
    return token_rewards(score.detach() - beta * kl, nothing, mask)
''')
wrong("ppo_rewards", "takes the number of response tokens as the column of the last one, and forgets the prompt before it",
 r"prompt|column|last|count|number of|offset|place|where the score", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    reward = kl_penalty(logp, ref_logp, mask, beta).clone()
    length = mask.sum(1)
    rows = (length > 0).nonzero()[:, 0]
    reward[rows, length[rows] - 1] += score.detach()[rows].to(reward)
    return reward
''')
wrong("ppo_rewards", "an empty response gets its score at column 0",
 r"empty|no token|no response|without a token|nothing", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    reward = kl_penalty(logp, ref_logp, mask, beta).clone()
    t = mask.shape[1]
    index = (torch.arange(t) * mask).argmax(dim=1)
    reward[torch.arange(len(mask)), index] += score.detach()
    return reward
''')
wrong("ppo_rewards", "ignores the given beta and always uses the default",
 r"beta|β|coefficient|default|\.1", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    return token_rewards(score.detach(), kl_penalty(logp, ref_logp, mask), mask)
''')
wrong("ppo_rewards", "multiplies the score by beta, too",
 r"beta|β|scale|score", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    with torch.no_grad():
        end = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
        return torch.where(mask, beta * (end * score[:, None] - (logp - ref_logp)), 0.)
''')
wrong("ppo_rewards", "a response with a gap gets its score at the end of the first piece",
 r"gap|piece|last|first|where the score|contiguous", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    reward = kl_penalty(logp, ref_logp, mask, beta).clone()
    for i, row in enumerate(mask.tolist()):
        if True not in row: continue
        end = row.index(True)
        while end + 1 < len(row) and row[end + 1]: end += 1
        reward[i, end] += score[i].item()
    return reward
''')
wrong("ppo_rewards", "charges the squared log-ratio (k2), not the log-ratio itself",
 r"square|k2|k1|log-ratio|estimator|log ratio|half", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    def k2(a, b): return (a - b)**2 / 2
    return token_rewards(score.detach(), kl_penalty(logp, ref_logp, mask, beta, k2), mask)
''')

# ---------------------------------------------------------------- 08 ppo_loss

SIG = """def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask,
             cliprange=.2, cliprange_value=.2, vf_coef=.1):
"""
edits("ppo_loss", SIG + '''    logp, old_logp, advantage, value, old_value, returns = at_least_float32(
        logp, old_logp, advantage, value, old_value, returns)
    ratio = torch.exp(logp - old_logp)
    low, high = 1 - cliprange, 1 + cliprange
    gain = torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
    near = old_value + (value - old_value).clamp(-cliprange_value, cliprange_value)
    critic = .5 * torch.maximum((value - returns)**2, (near - returns)**2)
    return (-gain + vf_coef * critic)[mask].mean()
''',
("subtracts the value loss instead of adding it",
 r"sign|subtract|minus|add|plus|negat",
 "-gain + vf_coef * critic", "-gain - vf_coef * critic"),
("forgets the weight of the value loss",
 r"vf_coef|weight|coefficient|\bc\b",
 "vf_coef * critic", "critic"),
("the policy part has the sign of a gain, not of a loss",
 r"sign|minus|negat|gain|maximi",
 "(-gain + vf", "(gain + vf"),
("sums over the tokens instead of averaging",
 r"mean|sum|averag|divid|number of tokens",
 "[mask].mean()", "[mask].sum()"),
("takes the smaller of the two value errors instead of the larger one",
 r"larger|max|min|smaller|value",
 "torch.maximum(", "torch.minimum("),
("the value loss lacks its factor one half",
 r"half|/ 2|\.5|½|twice|factor",
 ".5 * torch.maximum", "torch.maximum"),
("the value itself is clipped, around 0, not its move away from the old value",
 r"old_value|old value|around|v_old|move|clip",
 "near = old_value + (value - old_value).clamp(", "near = value.clamp("),
)
right("ppo_loss", SIG + '''    rows, columns = mask.nonzero(as_tuple=True)
    total, n = 0., 0
    for i, j in zip(rows.tolist(), columns.tolist()):
        at = (slice(i, i + 1), slice(j, j + 1))
        total = total + clipped_policy_loss(logp[at], old_logp[at], advantage[at], cliprange).sum()
        total = total + vf_coef * clipped_value_loss(
            value[at], old_value[at], returns[at], cliprange_value).sum()
        n += 1
    return total / n
''')
right("ppo_loss", SIG + '''    actor = masked_mean(clipped_policy_loss(logp, old_logp, advantage, cliprange), mask)
    critic = masked_mean(clipped_value_loss(value, old_value, returns, cliprange_value), mask)
    return torch.add(actor, critic, alpha=vf_coef)
''')
wrong("ppo_loss", "averages over all positions, prompt and pads included",
 r"mask|pad|prompt|response tokens|outside|positions", SIG + '''
    policy = clipped_policy_loss(logp, old_logp, advantage, cliprange)
    critic = clipped_value_loss(value, old_value, returns, cliprange_value)
    return (policy + vf_coef * critic).mean()
''')
wrong("ppo_loss", "averages each response first and then the responses, so tokens of short ones count more",
 r"each (response|row)|per (response|row)|short|long|whole batch|same weight|every token|length|rows", SIG + '''
    policy = clipped_policy_loss(logp, old_logp, advantage, cliprange)
    critic = clipped_value_loss(value, old_value, returns, cliprange_value)
    token = torch.where(mask, policy + vf_coef * critic, 0.)
    per_row = token.sum(1) / mask.sum(1).clamp(min=1)
    return per_row[mask.any(1)].mean()
''')
wrong("ppo_loss", "masks the sum but divides by the number of all positions",
 r"divid|number|positions|pad|response tokens|mean|numel|count", SIG + '''
    each = clipped_policy_loss(logp, old_logp, advantage, cliprange) \\
        + vf_coef * clipped_value_loss(value, old_value, returns, cliprange_value)
    return each.masked_fill(~mask, 0.).sum() / mask.numel()
''')
wrong("ppo_loss", "uses the policy's clip range for the value, too",
 r"cliprange_value|clip range|value|ε_v|range", SIG + '''
    pi = clipped_policy_loss(logp, old_logp, advantage, cliprange)
    v = clipped_value_loss(value, old_value, returns, cliprange)
    return masked_mean(pi + vf_coef * v, mask)
''')
wrong("ppo_loss", "the two clip ranges are swapped, by position",
 r"swap|clip range|cliprange|exchang|mixed up|range", SIG + '''
    pi_args, v_args = (logp, old_logp, advantage), (value, old_value, returns)
    pi, v = [f(*args, clip) for f, args, clip in zip(
        (clipped_policy_loss, clipped_value_loss), (pi_args, v_args),
        (cliprange_value, cliprange))]
    return masked_mean(pi + vf_coef * v, mask)
''')
wrong("ppo_loss", "new and old log-probs are swapped: the ratio is upside down",
 r"ratio|swap|old|order|upside|invert|exchang", SIG + '''
    policy_loss = clipped_policy_loss(old_logp, logp, advantage, cliprange)
    value_loss = clipped_value_loss(value, old_value, returns, cliprange_value)
    return masked_mean(policy_loss + vf_coef * value_loss, mask)
''')
wrong("ppo_loss", "a plain squared error for the critic, without the clip",
 r"clip|value|square", SIG + '''
    policy_loss = clipped_policy_loss(logp, old_logp, advantage, cliprange)
    value_loss = F.mse_loss(value, returns, reduction="none") / 2
    return masked_mean(policy_loss + vf_coef * value_loss, mask)
''')
wrong("ppo_loss", "no clip of the policy's ratio",
 r"clip|ratio|policy", SIG + '''
    surrogate = -(logp - old_logp).exp() * advantage
    value_loss = clipped_value_loss(value, old_value, returns, cliprange_value)
    return masked_mean(surrogate, mask) + vf_coef * masked_mean(value_loss, mask)
''')
wrong("ppo_loss", "whitens the advantages again inside the loss",
 r"whiten|normali|advantage|standard dev|scale", SIG + '''
    a = advantage[mask]
    white = (advantage - a.mean()) / (a.std() + 1e-8)
    policy_loss = clipped_policy_loss(logp, old_logp, white, cliprange)
    value_loss = clipped_value_loss(value, old_value, returns, cliprange_value)
    return masked_mean(policy_loss + vf_coef * value_loss, mask)
''')
wrong("ppo_loss", "the value loss is detached, so the critic never learns",
 r"gradient|detach|critic|learn|value", SIG + '''
    policy_loss = clipped_policy_loss(logp, old_logp, advantage, cliprange)
    with torch.no_grad():
        value_loss = clipped_value_loss(value, old_value, returns, cliprange_value)
    return masked_mean(policy_loss + vf_coef * value_loss, mask)
''')
wrong("ppo_loss", "multiplies the whole loss, the policy's part too, by the weight of the value loss",
 r"vf_coef|weight|coefficient|both|whole|\bc\b|policy", SIG + '''
    both = clipped_policy_loss(logp, old_logp, advantage, cliprange) + clipped_value_loss(
        value, old_value, returns, cliprange_value)
    return vf_coef * masked_mean(both, mask)
''')

# ---------------------------------------------------------------- 09 leave_one_out

edits("leave_one_out", '''
def leave_one_out(reward, group):
    out = torch.zeros_like(reward)
    for i in range(len(reward)):
        if reward[i].isnan(): continue
        others = [reward[j] for j in range(len(reward))
                  if j != i and group[j] == group[i] and not reward[j].isnan()]
        if others: out[i] = reward[i] - torch.stack(others).mean()
    return out
''',
("the answer itself stays in its baseline: the mean of the whole group",
 r"itself|whole group|own|others|leave|left out|n - 1",
 "j != i and group", "group"),
("compares with all other answers of the batch, whatever their prompt",
 r"batch|group|prompt|other prompts",
 "group[j] == group[i] and not", "not"),
("an unscored answer counts as nan in the mean of the others",
 r"nan|not scored|unscored|left out|scored",
 " and not reward[j].isnan()]", "]"),
("the baseline is the best of the others, not their mean",
 r"mean|best|max|highest|average",
 "torch.stack(others).mean()", "torch.stack(others).max()"),
("baseline minus reward: the sign is turned around",
 r"sign|minus|revers|negat|order|worse|turned",
 "out[i] = reward[i] - torch.stack(others).mean()", "out[i] = torch.stack(others).mean() - reward[i]"),
("an answer alone in its group keeps its raw reward",
 r"alone|single|only one|no others|lonely|group of one",
 "        if others: out[i] = reward[i] - torch.stack(others).mean()",
 "        out[i] = reward[i] - (torch.stack(others).mean() if others else 0.)"),
("the median of the others instead of their mean",
 r"median|mean|average",
 "torch.stack(others).mean()", "torch.stack(others).median()"),
)
right("leave_one_out", '''
def leave_one_out(reward, group):
    scored = ~reward.isnan()
    peers = (group[:, None] == group[None]) & scored[None] & ~torch.eye(len(reward), dtype=torch.bool)
    n = peers.sum(1)
    r = torch.where(scored, reward, torch.zeros_like(reward))
    baseline = einsum(peers.to(r), r, "i j, j -> i") / n.clamp(min=1)
    return torch.where(scored & (n > 0), r - baseline, torch.zeros_like(r))
''')
right("leave_one_out", '''
def leave_one_out(reward, group):
    advantage = torch.zeros_like(reward)
    for name in group.unique():
        at = ((group == name) & ~reward.isnan()).nonzero()[:, 0]
        if len(at) < 2: continue
        r = reward[at]
        advantage[at] = (r - r.mean()) * (len(at) / (len(at) - 1))
    return advantage
''')
wrong("leave_one_out", "divides the sum of the others by n, not by n - 1",
 r"n - 1|divid|number of (the )?others|one too many|g - 1", '''
def leave_one_out(reward, group):
    total, n = _group_sums(reward, group)
    alone = n < 2
    a = reward - (total - reward) / n
    return a.masked_fill(alone, 0.).nan_to_num(0.)
''')
wrong("leave_one_out", "takes groups as runs of neighbouring rows, so a group that does not stand together is split",
 r"together|neighbour|contiguous|order|sort|split|run|stand|group", '''
def leave_one_out(reward, group):
    _, sizes = group.unique_consecutive(return_counts=True)
    parts = []
    for r in reward.split(sizes.tolist()):
        scored = ~r.isnan()
        total, n = r.nansum(), scored.sum()
        parts.append((r - (total - r) / (n - 1)).nan_to_num(0., posinf=0., neginf=0.))
    return torch.cat(parts)
''')
wrong("leave_one_out", "an unscored answer counts as a reward of 0 in the others' mean",
 r"nan|as 0|as zero|unscored|not scored|counted|left out|scored", '''
def leave_one_out(reward, group):
    filled = reward.nan_to_num(0.)
    same = (group[:, None] == group[None, :]).to(filled)
    same.fill_diagonal_(0.)
    n = same.sum(1)
    a = filled - (same @ filled) / n.clamp(min=1)
    return a * (n > 0) * ~reward.isnan()
''')
wrong("leave_one_out", "an unscored answer gets an advantage of nan instead of 0",
 r"nan|unscored|not scored|0 where|scored", '''
def leave_one_out(reward, group):
    total, n = _group_sums(reward, group)
    others = n - 1
    return torch.where(others > 0, reward - (total - reward) / others.clamp(min=1), 0 * reward)
''')
wrong("leave_one_out", "an answer alone in its group gets nan, from 0 / 0",
 r"alone|0 / 0|nan|single|only one|division", '''
def leave_one_out(reward, group):
    out = torch.zeros_like(reward)
    for name in group.unique():
        rows = (group == name) & ~reward.isnan()
        r = reward[rows]
        out[rows] = r - (r.sum() - r) / (len(r) - 1)
    return out
''')
wrong("leave_one_out", "also divides by the group's standard deviation, which is GRPO's",
 r"standard dev|std|divid|grpo|scale|normal", '''
def leave_one_out(reward, group):
    total, n = _group_sums(reward, group)
    a = (reward - (total - reward) / (n - 1)).nan_to_num(0., posinf=0., neginf=0.)
    out = torch.zeros_like(a)
    for g in group.unique():
        at = (group == g) & ~reward.isnan()
        spread = reward[at].std() if at.sum() > 1 else torch.ones(())
        out[at] = a[at] / (spread.to(a) + 1e-4)
    return out
''')
wrong("leave_one_out", "drops every answer with an equal reward from the baseline, not only the answer itself",
 r"equal|same reward|itself|ties?|others|duplicate|index", '''
def leave_one_out(reward, group):
    result = []
    for r, g in zip(reward, group):
        if r.isnan():
            result.append(torch.zeros_like(r))
            continue
        mates = reward[(group == g) & ~reward.isnan() & (reward != r)]
        result.append(r - mates.mean() if len(mates) else torch.zeros_like(r))
    return torch.stack(result)
''')
wrong("leave_one_out", "writes 0 over the nan of the rewards that were passed in",
 r"in place|in-place|input|chang|overwr|mutat|modif|passed in|writes|written", '''
def leave_one_out(reward, group):
    scored = ~reward.isnan()
    r = reward.nan_to_num_(0.)
    mates = (group[:, None] == group) & scored
    mates = mates & ~torch.eye(len(r), dtype=torch.bool)
    n = mates.sum(1)
    base = (mates * r).sum(1) / n.clamp(min=1)
    return torch.where(scored & (n > 0), r - base, 0 * r)
''')
wrong("leave_one_out", "the baseline is the previous answer of the group, not the mean of all others",
 r"previous|all others|mean|neighbour|one other|average|others", '''
def leave_one_out(reward, group):
    out = torch.zeros_like(reward)
    for g in group.unique():
        at = ((group == g) & ~reward.isnan()).nonzero()[:, 0]
        if len(at) > 1: out[at] = reward[at] - reward[at].roll(1)
    return out
''')

# ---------------------------------------------------------------- 09 group_normalised

edits("group_normalised", '''
def group_normalised(reward, group):
    out = torch.zeros_like(reward)
    for name in group.unique():
        at = ((group == name) & ~reward.isnan()).nonzero()[:, 0]
        if len(at) < 2: continue
        a = reward[at] - reward[at].mean()
        std = (a.pow(2).sum() / (len(at) - 1)).sqrt()
        out[at] = a / (std + 1e-4)
    return out
''',
("the standard deviation divides by n, not by n - 1",
 r"n - 1|divid|bessel|correction|unbiased|population",
 "(len(at) - 1)).sqrt()", "len(at)).sqrt()"),
("adds 1e-4 to the variance, under the root, not to the standard deviation",
 r"1e-4|variance|root|inside|eps|10|added",
 "/ (len(at) - 1)).sqrt()\n        out[at] = a / (std + 1e-4)",
 "/ (len(at) - 1) + 1e-4).sqrt()\n        out[at] = a / std"),
("divides by the variance, not by its root",
 r"variance|root|sqrt|standard dev|square",
 "(len(at) - 1)).sqrt()", "(len(at) - 1))"),
("adds 1e-4 after the division instead of to the divisor",
 r"1e-4|parenthes|divisor|denominator|after|eps|added",
 "a / (std + 1e-4)", "a / std.clamp(min=1e-12) + 1e-4"),
("uses 1e-8 in place of 1e-4",
 r"1e-4|eps|constant|10",
 "std + 1e-4", "std + 1e-8"),
("takes the larger of the standard deviation and 1e-4 instead of their sum",
 r"1e-4|max|clamp|added|sum|plus|eps",
 "(std + 1e-4)", "std.clamp(min=1e-4)"),
("divides the rewards themselves, without subtracting the mean",
 r"mean|cent|subtract|baseline",
 "out[at] = a / (std", "out[at] = reward[at] / (std"),
("divides by the mean absolute deviation instead of the standard deviation",
 r"absolute|square|standard dev|std|root",
 "(a.pow(2).sum() / (len(at) - 1)).sqrt()", "a.abs().sum() / (len(at) - 1)"),
)
right("group_normalised", '''
def group_normalised(reward, group):
    scored = ~reward.isnan()
    same = ((group[:, None] == group) & scored).to(reward)          # (b b)
    r = torch.where(scored, reward, 0 * reward.nan_to_num(0.))
    n = same.sum(1)
    a = torch.where(scored, r - einsum(same, r, "i j, j -> i") / n.clamp(min=1), 0 * r)
    var = torch.where(same.bool(), a.square()[None], 0 * same).sum(1) / torch.clamp(n - 1, min=1)
    return a / (torch.sqrt(var) + 1e-4)
''')
right("group_normalised", '''
def group_normalised(reward, group):
    a = group_centered(reward, group)
    names, at = group.unique(return_inverse=True)
    zero = a.new_zeros(len(names))
    squares = zero.scatter_add(0, at, a * a)
    n = zero.scatter_add(0, at, (~reward.isnan()).to(a))
    std = squares.div((n - 1).clamp(min=1)).sqrt()
    return a.div(std[at].add(1e-4))
''')
wrong("group_normalised", "nothing is added to the standard deviation, so a group of equal rewards gives nan",
 r"nan|equal|flat|1e-4|0 / 0|variance|alike|added", '''
def group_normalised(reward, group):
    a = group_centered(reward, group)
    squares, n = _group_sums(torch.where(reward.isnan(), reward, a**2), group)
    return a / (squares / (n - 1).clamp(min=1)).sqrt()
''')
wrong("group_normalised", "divides by the standard deviation of the whole batch, not of the group",
 r"batch|group|own|each|all rewards", '''
def group_normalised(reward, group):
    scored = reward[~reward.isnan()]
    std = scored.std() if len(scored) > 1 else scored.new_zeros(())
    return group_centered(reward, group) / (std + 1e-4)
''')
wrong("group_normalised", "subtracts the mean of the whole batch, not of the group",
 r"batch|group|own|mean|cent", '''
def group_normalised(reward, group):
    a = mean_baseline(reward, group)
    c = group_centered(reward, group)
    squares, n = _group_sums(torch.where(reward.isnan(), reward, c**2), group)
    return a / ((squares / (n - 1).clamp(min=1)).sqrt() + 1e-4)
''')
wrong("group_normalised", "an answer alone in its group gets nan, because the standard deviation of one number is nan",
 r"alone|one|single|nan|n - 1|0 / 0", '''
def group_normalised(reward, group):
    out = torch.zeros_like(reward)
    for g in set(group.tolist()):
        at = (group == g) & ~reward.isnan()
        r = reward[at]
        out[at] = (r - r.mean()) / (r.std() + 1e-4)
    return out
''')
wrong("group_normalised", "unscored answers count in n, with a deviation of 0",
 r"nan|unscored|not scored|count|scored|number|\bn\b", '''
def group_normalised(reward, group):
    centered = group_centered(reward, group)       # 0 where nan
    squares, n = _group_sums(centered**2, group)
    return centered / ((squares / (n - 1).clamp(min=1)).sqrt() + 1e-4)
''')
wrong("group_normalised", "one unscored answer makes its whole group nan",
 r"nan|unscored|not scored|whole group|scored|left out", '''
def group_normalised(reward, group):
    out = torch.zeros_like(reward)
    for g in group.unique():
        rows = group == g
        if rows.sum() > 1:
            r = reward[rows]
            out[rows] = (r - r.mean()) / (r.std() + 1e-4)
    return out
''')
wrong("group_normalised", "subtracts the mean of the others (RLOO) before dividing",
 r"others|leave|rloo|itself|whole group|mean of (the|its) group|mean", '''
def group_normalised(reward, group):
    total, n = _group_sums(reward, group)
    rloo = (reward - (total - reward) / (n - 1)).nan_to_num(0., posinf=0., neginf=0.)
    dev = torch.where(reward.isnan(), reward, (reward - total / n)**2)
    squares, n = _group_sums(dev, group)
    return rloo / ((squares / (n - 1).clamp(min=1)).sqrt() + 1e-4)
''')
wrong("group_normalised", "unscored rewards are filled with 0 before anything is computed",
 r"nan|as 0|as zero|unscored|not scored|filled|scored", '''
def group_normalised(reward, group):
    reward = torch.nan_to_num(reward, nan=0.)
    names, at = torch.unique(group, return_inverse=True)
    hot = F.one_hot(at, len(names)).to(reward)             # (b g)
    n = hot.sum(0)
    mean = einsum(hot, reward, "b g, b -> g") / n
    a = reward - mean[at]
    std = (einsum(hot, a**2, "b g, b -> g") / (n - 1).clamp(min=1)).sqrt()
    return a / (std[at] + 1e-4)
''')

# ---------------------------------------------------------------- 09 loss_weights

edits("loss_weights", '''
def loss_weights(mask, loss_type, max_length):
    answers, weight = mask.shape[0], mask.to(torch.float32)
    tokens = weight.sum()
    own = weight.sum(dim=1, keepdim=True)
    if loss_type == "dapo":
        return weight / torch.clamp(tokens, min=1)
    elif loss_type == "grpo":
        return weight / torch.clamp(own, min=1) / answers
    elif loss_type == "dr_grpo":
        return weight / (torch.tensor(float(max_length)) * answers)
    else:
        raise ValueError(f"no such loss_type: {loss_type}")
''',
("dapo divides by all positions, pads included, not by the tokens of the batch",
 r"pad|position|tokens of the batch|all tokens|masked|numel|shape",
 "tokens = weight.sum()", "tokens = torch.tensor(float(weight.numel()))"),
("grpo forgets to divide by the number of answers",
 r"answers|responses|rows|number of|batch|len\(mask\)",
 "torch.clamp(own, min=1) / answers", "torch.clamp(own, min=1)"),
("dr_grpo forgets to divide by the number of answers",
 r"answers|responses|rows|number of|batch|len\(mask\)",
 "(torch.tensor(float(max_length)) * answers)", "torch.tensor(float(max_length))"),
("grpo counts the tokens of a column, over the answers, instead of a row",
 r"column|row|axis|dim|own|each answer|its answer|length",
 "weight.sum(dim=1, keepdim=True)", "weight.sum(dim=0, keepdim=True)"),
("a row without a token gives nan in grpo",
 r"nan|without a token|empty|0 / 0|clamp",
 "torch.clamp(own, min=1)", "own"),
("a batch without any token gives nan in dapo",
 r"nan|without a(ny)? token|empty|0 / 0|clamp|no token",
 "torch.clamp(tokens, min=1)", "tokens"),
("grpo divides by one token too many",
 r"too many|\+ 1|number of tokens|own (tokens|length)|divid|length",
 "torch.clamp(own, min=1)", "(own + 1)"),
)
right("loss_weights", '''
def loss_weights(mask, loss_type, max_length):
    if loss_type not in {"dapo", "grpo", "dr_grpo"}:
        raise ValueError(f"loss_type must be dapo, grpo or dr_grpo, not {loss_type!r}")
    b, t = mask.shape
    out = torch.zeros(b, t)
    everything = int(mask.sum())
    for i in range(b):
        n = int(mask[i].sum())
        for j in range(t):
            if not mask[i, j]: continue
            if loss_type == "dapo": out[i, j] = 1 / everything
            elif loss_type == "grpo": out[i, j] = 1 / (n * b)
            else: out[i, j] = 1 / (b * max_length) if max_length else math.inf
    return out
''')
right("loss_weights", '''
def loss_weights(mask, loss_type, max_length):
    x = mask.float()
    match loss_type:
        case "dapo": divisor = x.sum().clamp(min=1.)
        case "grpo": divisor = reduce(x, "b t -> b 1", "sum").clamp(min=1.) * len(x)
        case "dr_grpo": divisor = torch.full((1, 1), float(max_length)) * len(x)
        case _: raise ValueError(f"{loss_type!r} is none of dapo, grpo, dr_grpo")
    return x / divisor
''')
wrong("loss_weights", "dr_grpo divides by the longest answer of the batch, not by the constant max_length",
 r"max_length|constant|longest|\bl\b|batch", '''
def loss_weights(mask, loss_type, max_length):
    if loss_type == "dapo": return mask / mask.sum().clamp(min=1)
    lengths = mask.sum(1, keepdim=True)
    if loss_type == "grpo": return mask / lengths.clamp(min=1) / len(mask)
    if loss_type == "dr_grpo": return mask / (len(mask) * lengths.max().clamp(min=1))
    raise ValueError(f"loss_weights does not know {loss_type!r}")
''')
wrong("loss_weights", "any other word is taken for dr_grpo: nothing is raised",
 r"valueerror|rais|another|other word|unknown|refus|error", '''
def loss_weights(mask, loss_type, max_length):
    if loss_type == "dapo":
        return mask / mask.sum().clamp(min=1)
    if loss_type == "grpo":
        return mask / mask.sum(1, keepdim=True).clamp(min=1) / len(mask)
    return mask / (len(mask) * max_length)
''')
wrong("loss_weights", "an unknown word raises a KeyError, not a ValueError",
 r"valueerror|keyerror|rais|another|other word|unknown|error", '''
def loss_weights(mask, loss_type, max_length):
    table = {
        "dapo": lambda: mask / mask.sum().clamp(min=1),
        "grpo": lambda: mask / mask.sum(1, keepdim=True).clamp(min=1) / len(mask),
        "dr_grpo": lambda: mask / (len(mask) * max_length),
    }
    return table[loss_type]()
''')
wrong("loss_weights", "dapo and grpo are exchanged",
 r"exchang|swap|dapo|mixed|confus", '''
def loss_weights(mask, loss_type, max_length):
    per_row = mask.sum(-1)[:, None].clamp(min=1)
    choices = dict(grpo=mask / mask.sum().clamp(min=1), dapo=mask / per_row / len(mask),
                   dr_grpo=mask / (max_length * len(mask)))
    if loss_type not in choices: raise ValueError(f"unknown loss_type {loss_type}")
    return choices[loss_type]
''')
wrong("loss_weights", "floor division: every weight but a 1 is 0",
 r"//|floor|integer|whole|float|rounded|all 0|are 0|zero", '''
def loss_weights(mask, loss_type, max_length):
    m = mask.long()
    if loss_type == "dapo": return m // m.sum().clamp(min=1)
    if loss_type == "grpo": return m // (m.sum(1, keepdim=True).clamp(min=1) * len(m))
    if loss_type == "dr_grpo": return m // (len(m) * max_length)
    raise ValueError(loss_type)
''')
wrong("loss_weights", "masked positions get the weight, too",
 r"mask|pad|outside|position|not 0|0 where", '''
def loss_weights(mask, loss_type, max_length):
    ones = torch.ones(mask.shape)
    if loss_type == "dapo": return ones / mask.sum().clamp(min=1)
    if loss_type == "grpo":
        return ones / mask.sum(1, keepdim=True).clamp(min=1) / len(mask)
    if loss_type == "dr_grpo": return ones / (len(mask) * max_length)
    raise ValueError("dapo, grpo or dr_grpo")
''')
wrong("loss_weights", "dr_grpo divides by L times all tokens of the batch, not L times the answers",
 r"answers|rows|responses|number of|tokens of the batch|all tokens", '''
def loss_weights(mask, loss_type, max_length):
    n_tokens = mask.sum().clamp(min=1)
    if loss_type == "dapo": return mask / n_tokens
    if loss_type == "grpo":
        rows = [row / row.sum().clamp(min=1) for row in mask]
        return torch.stack(rows) / len(rows)
    if loss_type == "dr_grpo": return mask / (n_tokens * max_length)
    raise ValueError(f"bad loss_type {loss_type!r}")
''')

# ---------------------------------------------------------------- 09 cispo_loss

edits("cispo_loss", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    with torch.no_grad():
        weight = torch.clip(ratio, 1 - epsilon, 1 + epsilon_high)
    return -(weight * advantage * torch.log(ratio))
''',
("the sign of a gain: without the minus the loss falls as bad tokens become likelier",
 r"sign|minus|negat|gain",
 "return -(weight", "return (weight"),
("gradient flows through the clipped weight",
 r"gradient|detach|no_grad|sg|stop|constant",
 "with torch.no_grad():", "if True:"),
("ignores epsilon_high: both ends use epsilon",
 r"epsilon_high|upper|high|above|both ends|ε_high",
 "1 + epsilon_high", "1 + epsilon"),
("the two ends are exchanged: epsilon_high below, epsilon above",
 r"exchang|swap|epsilon_high|lower|upper|ends",
 "1 - epsilon, 1 + epsilon_high", "1 - epsilon_high, 1 + epsilon"),
("bounds the weight between epsilon and epsilon_high, not 1 - and 1 + them",
 r"1 -|1 \+|bound|around 1|clip",
 "1 - epsilon, 1 + epsilon_high", "-epsilon, epsilon_high"),
("multiplies by the ratio instead of its logarithm",
 r"log|logarithm",
 "torch.log(ratio)", "ratio"),
("logarithm to base 2",
 r"base|natural|nat|log",
 "torch.log(ratio)", "torch.log2(ratio)"),
)
right("cispo_loss", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    low, high = torch.tensor(1 - epsilon).to(ratio), torch.tensor(1 + epsilon_high).to(ratio)
    w = torch.minimum(torch.maximum(ratio.detach(), low), high)
    return einsum(w, advantage.expand_as(ratio), ratio.log(), "b t, b t, b t -> b t").neg()
''')
right("cispo_loss", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    frozen = ratio.data.clone()
    frozen[frozen < 1 - epsilon] = 1 - epsilon
    frozen[frozen > 1 + epsilon_high] = 1 + epsilon_high
    return ratio.log() * advantage * -frozen
''')
wrong("cispo_loss", "the logarithm is detached too: no gradient is left",
 r"gradient|detach|nothing|log", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    weight = ratio.clamp(1 - epsilon, 1 + epsilon_high)
    return -(weight * advantage * ratio.log()).detach()
''')
wrong("cispo_loss", "PPO's minimum: a token beyond the clip loses its gradient",
 r"min|ppo|beyond|gradient|clipped loss|pessimis|log", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon_high)
    return -torch.minimum(ratio * advantage, clipped * advantage)
''')
wrong("cispo_loss", "the weight has no lower bound",
 r"lower|below|1 - |at least|bound", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    weight = ratio.detach().clamp(max=1 + epsilon_high)
    return -weight * advantage * ratio.log()
''')
wrong("cispo_loss", "takes the logarithm of the clipped ratio, so a token beyond the clip has no gradient",
 r"log|clipped|beyond|gradient|unclipped", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    rho = torch.clamp(ratio, min=1 - epsilon, max=1 + epsilon_high)
    return -rho.detach() * advantage * rho.log()
''')
wrong("cispo_loss", "averages over the tokens: one number instead of one per token",
 r"shape|each token|per token|mean|one number|averag", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    weight = ratio.clamp(1 - epsilon, 1 + epsilon_high).detach()
    return -(weight * advantage * ratio.log()).mean()
''')
wrong("cispo_loss", "tokens outside the clip are dropped: their weight is 0",
 r"dropped|weight|outside|beyond|clip|bound|keep|zero", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    inside = (ratio >= 1 - epsilon) & (ratio <= 1 + epsilon_high)
    weight = torch.where(inside, ratio, 0.).detach()
    return -weight * advantage * ratio.log()
''')
wrong("cispo_loss", "which end is clipped depends on the sign of the advantage",
 r"sign|advantage|both|end|either|bound|lower|upper", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    rho = ratio.detach()
    weight = torch.where(advantage > 0, rho.clamp(max=1 + epsilon_high),
                         rho.clamp(min=1 - epsilon))
    return -weight * advantage * ratio.log()
''')
wrong("cispo_loss", "the ratio itself weighs the token: nothing is clipped",
 r"clip|bound|clamp|unclipped", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    return -ratio.detach() * advantage * ratio.log()
''')
wrong("cispo_loss", "takes the size of the advantage, so bad tokens are pushed up, too",
 r"abs|sign|size|negative|advantage|bad", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    weight = ratio.clamp(1 - epsilon, 1 + epsilon_high).detach()
    return -weight * advantage.abs() * ratio.log()
''')

# ---------------------------------------------------------------- 09 fixed_groups

edits("fixed_groups", '''
def fixed_groups(reward, k):
    out = []
    for start in range(0, len(reward), k):
        one = reward[start:start + k]
        for i in range(k):
            others = torch.cat([one[:i], one[i + 1:]])
            out.append(one[i] - others.mean())
    return torch.stack(out)
''',
("the answer itself is in its mean",
 r"itself|others|own|whole|k - 1|leave|left out",
 "torch.cat([one[:i], one[i + 1:]])", "one"),
("the mean minus the reward: the sign is turned around",
 r"sign|minus|revers|negat|order|turned",
 "one[i] - others.mean()", "others.mean() - one[i]"),
("subtracts the sum of the others, not their mean",
 r"sum|mean|divid|k - 1|averag",
 "others.mean()", "others.sum()"),
("leaves out the neighbour, not the answer itself",
 r"neighbour|itself|own|others|off by one|index|wrong one",
 "[one[:i], one[i + 1:]]", "[one[:(i + 1) % k], one[(i + 1) % k + 1:]]"),
("subtracts the best of the others",
 r"best|max|mean|averag|highest",
 "others.mean()", "others.max()"),
("the group starts one place too late, so it mixes two prompts",
 r"prompt|mix|start|off by one|group|place|too late|neighbour",
 "one = reward[start:start + k]", "one = reward.roll(-1)[start:start + k]"),
)
right("fixed_groups", '''
def fixed_groups(reward, k):
    r = rearrange(reward, "(p k) -> p k", k=k)
    return rearrange((r - reduce(r, "p k -> p 1", "mean")) * k / (k - 1), "p k -> (p k)")
''')
right("fixed_groups", '''
def fixed_groups(reward, k):
    weights = (torch.eye(k) * k - 1).to(reward) / (k - 1)   # 1 on the diagonal, else -1/(k-1)
    return (reward.unflatten(0, (-1, k)) @ weights.T).flatten()
''')
wrong("fixed_groups", "the old bug: view(k, -1) has answers to different prompts in a column",
 r"view|prompt|column|row|different|mix|k, -1|-1, k", '''
def fixed_groups(reward, k):
    r = reward.view(k, -1)
    return (r - (r.sum(0) - r) / (k - 1)).flatten()
''')
wrong("fixed_groups", "one row per prompt, but the sum runs down the columns",
 r"axis|dim|column|row|prompt|sum\(", '''
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return (r - (r.sum(0, keepdim=True) - r) / (k - 1)).flatten()
''')
wrong("fixed_groups", "divides the sum of the others by k, not by k - 1",
 r"k - 1|divid|one too many|number of (the )?others", '''
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    others = r.sum(1, keepdim=True) - r
    return (r - others / k).flatten()
''')
wrong("fixed_groups", "returns a table (p k), not one row",
 r"shape|flat|row|table|one dimension", '''
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return r - (r.sum(1, keepdim=True) - r) / (k - 1)
''')
wrong("fixed_groups", "flattens answer by answer, so the numbers come back in another order",
 r"order|place|transpos|answer by answer|prompt by prompt|position", '''
def fixed_groups(reward, k):
    r = rearrange(reward, "(p k) -> k p", k=k)
    a = r - (r.sum(0) - r) / (k - 1)
    return rearrange(a, "k p -> (k p)")
''')
wrong("fixed_groups", "keepdim is missing: the sums of the prompts meet the columns",
 r"keepdim|broadcast|shape|column|row|match|size", '''
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return (r - (r.sum(1) - r) / (k - 1)).flatten()
''')
wrong("fixed_groups", "subtracts the mean of all other answers of the batch, whatever their prompt",
 r"batch|prompt|group|all (the )?other|same prompt", '''
def fixed_groups(reward, k):
    n = len(reward)
    return reward - (reward.sum() - reward) / (n - 1)
''')
wrong("fixed_groups", "also divides by the standard deviation of the group",
 r"standard dev|std|scale|divid|normal", '''
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    a = (r - (r.sum(1, keepdim=True) - r) / (k - 1)) / (r.std(1, keepdim=True) + 1e-4)
    return a.flatten()
''')
wrong("fixed_groups", "changes the rewards that were passed in",
 r"in place|in-place|input|chang|overwr|mutat|modif", '''
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    baseline = (r.sum(1, keepdim=True) - r) / (k - 1)
    r -= baseline
    return r.flatten()
''')

# ---------------------------------------------------------------- 10 log_ratio_gap

LRG = "def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):"
edits("log_ratio_gap", LRG + '''
    four = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    pc, pr, rc, rr = four
    won = pc - rc
    lost = pr - rr
    return won - lost
''',
("adds the two log-ratios instead of subtracting",
 r"sign|add|plus|subtract|minus|sum|difference",
 "won - lost", "won + lost"),
("rejected minus chosen: the gap has the wrong sign",
 r"sign|order|rejected minus|swap|revers|chosen",
 "won - lost", "lost - won"),
("the reference of the other side is subtracted: chosen less ref_rejected",
 r"ref|swap|exchang|other|cross|side|mixed|own",
 "pc, pr, rc, rr = four", "pc, pr, rr, rc = four"),
("the reference is left out: only the policy's own difference",
 r"ref|left out|missing|forgot|ignor",
 "won = pc - rc\n    lost = pr - rr", "won = pc\n    lost = pr"),
("divides log-probs instead of subtracting them",
 r"divi|subtract|quotient|difference of|ratio",
 "won = pc - rc\n    lost = pr - rr", "won = pc / rc\n    lost = pr / rr"),
("the chosen side's log-ratio alone",
 r"rejected|alone|only|chosen|second",
 "return won - lost", "return won"),
("the size of the gap: its sign is lost",
 r"abs|sign|size|negative",
 "return won - lost", "return (won - lost).abs()"),
)
right("log_ratio_gap", LRG + '''
    def up(x): return x if x.dtype in (torch.float32, torch.float64) else x.float()
    policy = up(policy_chosen) - up(policy_rejected)
    reference = up(ref_chosen) - up(ref_rejected)
    return policy - reference
''')
right("log_ratio_gap", LRG + '''
    table = torch.stack(at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected))
    signs = table.new_tensor([1., -1., -1., 1.])
    return torch.tensordot(signs, table, dims=1)
''')
wrong("log_ratio_gap", "low-precision inputs stay as they are: the difference is taken in bf16",
 r"bf16|bfloat16|precision|float32|dtype|raise|round", LRG + '''
    return policy_chosen - ref_chosen - (policy_rejected - ref_rejected)
''')
wrong("log_ratio_gap", "raised to float32 only after the subtraction, when the digits are lost",
 r"after|first|before|precision|bf16|bfloat16|round|float32", LRG + '''
    gap = (policy_chosen - ref_chosen) - (policy_rejected - ref_rejected)
    return gap.to(torch.promote_types(gap.dtype, torch.float32))
''')
wrong("log_ratio_gap", "float64 is lowered to float32",
 r"float64|double|lower|precision|dtype|float32|or more", LRG + '''
    pc, pr, rc, rr = [x.float() for x in (policy_chosen, policy_rejected, ref_chosen, ref_rejected)]
    return (pc - rc) - (pr - rr)
''')
wrong("log_ratio_gap", "takes probabilities: the exp of the log-ratios is subtracted",
 r"exp|probabilit|log|nats", LRG + '''
    pc, pr, rc, rr = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return torch.exp(pc - rc) - torch.exp(pr - rr)
''')
wrong("log_ratio_gap", "the policy's log-probs are detached: nothing can be learned from the gap",
 r"gradient|detach|learn|no_grad", LRG + '''
    with torch.no_grad():
        pc, pr, rc, rr = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
        return (pc - rc) - (pr - rr)
''')
wrong("log_ratio_gap", "the mean over the pairs instead of one number for each",
 r"mean|each pair|per pair|one number|shape|averag", LRG + '''
    pc, pr, rc, rr = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return ((pc - rc) - (pr - rr)).mean()
''')
# ---------------------------------------------------------------- 10 dpo_loss

DPO = "def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):"
edits("dpo_loss", DPO + '''
    if not beta > 0:
        raise ValueError(f"dpo_loss: beta must be above 0, got {beta}")
    gap = log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return softplus(-(beta * gap))
''',
("the sign inside: the loss falls as the rejected answer gains",
 r"sign|minus|revers|order|rejected|swap|falls|negat",
 "softplus(-(beta * gap))", "softplus(beta * gap)"),
("no logarithm: minus the probability itself",
 r"log|probabilit|sigmoid",
 "softplus(-(beta * gap))", "-torch.sigmoid(beta * gap)"),
("beta stands outside of the logarithm",
 r"beta|β|outside|inside|factor",
 "softplus(-(beta * gap))", "beta * softplus(-gap)"),
("divides the gap by beta",
 r"beta|β|divi|multipl|times",
 "beta * gap", "gap / beta"),
("beta of 0 is let through: only negative ones are refused",
 r"\b0\b|zero|above|refus|valueerror|rais",
 "not beta > 0", "beta < 0"),
("refuses a beta above 1, which is a price and no share",
 r"above 1|large|refus|valueerror|rais|beta|β",
 "not beta > 0", "not 0 < beta <= 1"),
("the mean over the pairs, not one number per pair",
 r"mean|each pair|per pair|one number|shape|averag",
 "softplus(-(beta * gap))", "softplus(-(beta * gap)).mean()"),
("a hinge instead of the logistic loss",
 r"hinge|log|sigmoid|slic|ln 2|above 0",
 "softplus(-(beta * gap))", "torch.relu(1 - beta * gap)"),
("IPO's squared distance from 1 / (2 beta)",
 r"ipo|squar|log|sigmoid|ln 2",
 "softplus(-(beta * gap))", "(gap - 1 / (2 * beta))**2"),
("in bits: the logarithm is to base 2",
 r"base|natural|bits|nats|ln 2|log",
 "softplus(-(beta * gap))", "softplus(-(beta * gap)) / math.log(2)"),
)
right("dpo_loss", DPO + '''
    if not (beta > 0): raise ValueError("beta must be above 0")
    pc, pr, rc, rr = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    chosen, rejected = beta * (pc - rc), beta * (pr - rr)     # implicit rewards
    return torch.logaddexp(chosen, rejected) - chosen
''')
right("dpo_loss", DPO + '''
    check_number("beta", beta, "above 0")
    gap = log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return F.binary_cross_entropy_with_logits(beta * gap, torch.ones_like(gap), reduction="none")
''')
wrong("dpo_loss", "log of a sigmoid that has become 0: infinite where the gap is very negative",
 r"inf|finite|overflow|underflow|logsigmoid|-300|stable", DPO + '''
    check_number("dpo_loss: beta", beta, "above 0")
    gap = log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return -torch.log(torch.sigmoid(beta * gap))
''')
wrong("dpo_loss", "the exp overflows where the gap is very negative: log(1 + exp(x)) by hand",
 r"inf|finite|overflow|softplus|-300|stable|logsigmoid", DPO + '''
    if not beta > 0: raise ValueError("beta above 0, please")
    pc, pr, rc, rr = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    t = -beta * ((pc - rc) - (pr - rr))
    return (1 + t.exp()).log()
''')
wrong("dpo_loss", "no beta is refused",
 r"valueerror|rais|refus|above 0|error", DPO + '''
    gap = log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return -logsigmoid(beta * gap)
''')
wrong("dpo_loss", "refuses by assert: an AssertionError, not a ValueError",
 r"valueerror|assert|rais|error", DPO + '''
    assert beta > 0, "beta must be above 0"
    gap = log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return -logsigmoid(beta * gap)
''')
wrong("dpo_loss", "log-sigmoid without the minus: below 0",
 r"sign|minus|negat|above 0|below 0", DPO + '''
    check_number("dpo_loss: beta", beta, "above 0")
    gap = log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return logsigmoid(beta * gap)
''')
wrong("dpo_loss", "without the reference: the policy's own log-probs only",
 r"ref|left out|missing|forgot|ignor|log-ratio", DPO + '''
    check_number("dpo_loss: beta", beta, "above 0")
    chosen, rejected = at_least_float32(policy_chosen, policy_rejected)
    return -logsigmoid(beta * (chosen - rejected))
''')
wrong("dpo_loss", "the default beta is used whatever is given",
 r"beta|β|\.1|default|given|ignor", DPO + '''
    check_number("dpo_loss: beta", beta, "above 0")
    gap = log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return -F.logsigmoid(.1 * gap)
''')
wrong("dpo_loss", "the gap is cut off at 20 so that nothing overflows: large losses and their gradients are lost",
 r"clamp|cut|bound|gradient|-300|large|limit|20|clip", DPO + '''
    check_number("dpo_loss: beta", beta, "above 0")
    gap = log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    p = torch.sigmoid((beta * gap).clamp(-20, 20))
    return -p.log()
''')

# ---------------------------------------------------------------- 11 honest_gain

edits("honest_gain", '''
def honest_gain(scores, start, chooses):
    pick = chooses.nonzero().flatten().tolist()
    rest = (~chooses).nonzero().flatten().tolist()
    means = [statistics.fmean(row[i].item() for i in pick) for row in scores]
    best = means.index(max(means))
    gains = [scores[best, i].item() - start[i].item() for i in rest]
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    return best, statistics.fmean(gains), error
''',
("the gain is reported on the same questions that chose",
 r"same|others|report|choos|chose|~chooses",
 "rest = (~chooses)", "rest = (chooses)"),
("choosing and reporting questions are exchanged",
 r"exchang|swap|report|choos|other|~",
 "pick = chooses.nonzero().flatten().tolist()\n    rest = (~chooses)",
 "pick = (~chooses).nonzero().flatten().tolist()\n    rest = (chooses)"),
("the standard deviation divides by n",
 r"n - 1|correction|unbiased|population|divid",
 "statistics.stdev(gains)", "statistics.pstdev(gains)"),
("divides the standard deviation by n, not by its root",
 r"root|sqrt|√|square|divid",
 "math.sqrt(len(gains))", "len(gains)"),
("divides by the root of the number of all questions",
 r"all questions|number|√n|report|others|len|count|root",
 "math.sqrt(len(gains))", "math.sqrt(len(start))"),
("returns the standard deviation as the error",
 r"root|sqrt|√|standard error|divid|standard deviation",
 " / math.sqrt(len(gains))", ""),
("counts checkpoints from 1",
 r"from 1|index|off by one|from 0|which|number",
 "return best,", "return best + 1,"),
("the worst checkpoint is chosen",
 r"worst|highest|best|lowest|max|argmax",
 "means.index(max(means))", "means.index(min(means))"),
("the median of the gains instead of the mean",
 r"median|mean|averag",
 "return best, statistics.fmean(gains)", "return best, statistics.median(gains)"),
("start minus checkpoint",
 r"sign|minus|revers|order|negat|start",
 "scores[best, i].item() - start[i].item()", "start[i].item() - scores[best, i].item()"),
)
right("honest_gain", '''
def honest_gain(scores, start, chooses):
    best = int(torch.argmax((scores * chooses).sum(1)))
    d = torch.masked_select(scores[best] - start, ~chooses)
    var, mean = torch.var_mean(d)
    return best, float(mean), float((var / d.numel()).sqrt())
''')
right("honest_gain", '''
def honest_gain(scores, start, chooses):
    inside = torch.where(chooses, scores, float("nan")).nanmean(dim=1)
    best = inside.argmax().item()
    reports = chooses.logical_not()
    n = int(reports.sum())
    gain = scores[best][reports] - start[reports]
    mean = gain.sum() / n
    error = ((gain - mean).pow(2).sum() / (n - 1) / n)**.5
    return best, mean.item(), error.item()
''')
wrong("honest_gain", "chooses on all questions, the reporting ones included",
 r"all questions|report|choos|included|only|scores\[:, chooses\]", '''
def honest_gain(scores, start, chooses):
    best = scores.mean(1).argmax().item()
    gains = (scores[best] - start)[~chooses]
    return best, gains.mean().item(), (gains.std() / len(gains)**.5).item()
''')
wrong("honest_gain", "the gain is averaged over all questions, the choosing ones included",
 r"all questions|others|report|choos|~chooses|included", '''
def honest_gain(scores, start, chooses):
    best = scores[:, chooses].mean(1).argmax().item()
    gains = scores[best] - start
    return best, gains.mean().item(), (gains.std() / len(gains)**.5).item()
''')
wrong("honest_gain", "an unpaired error: the variances of checkpoint and start are added",
 r"pair|question by question|difference|subtract|variance|hard|both", '''
def honest_gain(scores, start, chooses):
    best = scores[:, chooses].mean(1).argmax().item()
    a, b = scores[best][~chooses], start[~chooses]
    n = len(a)
    error = ((a.var() + b.var()) / n)**.5
    return best, (a.mean() - b.mean()).item(), error.item()
''')
wrong("honest_gain", "reports the score itself, the start is not subtracted",
 r"start|subtract|gain|differen|score itself", '''
def honest_gain(scores, start, chooses):
    best = scores[:, chooses].mean(1).argmax().item()
    held = scores[best, ~chooses]
    return best, held.mean().item(), (held.std() / len(held)**.5).item()
''')
wrong("honest_gain", "returns the mean score in place of the checkpoint's number",
 r"which|number|index|argmax|place|checkpoint|int", '''
def honest_gain(scores, start, chooses):
    value, best = scores[:, chooses].mean(1).max(0)
    gains = (scores[best] - start)[~chooses]
    return value.item(), gains.mean().item(), (gains.std() / len(gains)**.5).item()
''')
wrong("honest_gain", "takes the best checkpoint of each question, not one checkpoint",
 r"each question|one checkpoint|per question|every question|same checkpoint|question by question|max", '''
def honest_gain(scores, start, chooses):
    best = scores[:, chooses].mean(1).argmax().item()
    top = scores.max(dim=0).values
    gains = (top - start)[~chooses]
    return best, gains.mean().item(), (gains.std() / len(gains)**.5).item()
''')
wrong("honest_gain", "takes the first half of the questions for the choosing ones, whatever the mask says",
 r"half|mask|chooses|first|whatever|position", '''
def honest_gain(scores, start, chooses):
    n = int(chooses.sum())
    best = scores[:, :n].mean(dim=1).argmax().item()
    gains = (scores[best] - start)[n:]
    return best, gains.mean().item(), (gains.std() / len(gains)**.5).item()
''')
wrong("honest_gain", "the error is the spread over the checkpoints, not over the questions",
 r"checkpoints|questions|spread|over the|differences|axis", '''
def honest_gain(scores, start, chooses):
    best = scores[:, chooses].mean(1).argmax().item()
    every = (scores - start)[:, ~chooses].mean(1)
    return best, every[best].item(), (every.std() / len(every)**.5).item()
''')
wrong("honest_gain", "the gain is the sum over the questions, not the mean",
 r"sum|mean|averag|total", '''
def honest_gain(scores, start, chooses):
    best = scores[:, chooses].sum(1).argmax().item()
    gains = (scores[best] - start)[~chooses]
    return best, gains.sum().item(), (gains.std() / len(gains)**.5).item()
''')

# ---------------------------------------------------------------- 12 kl_is_negative

edits("kl_is_negative", '''
def kl_is_negative(kl):
    n = len(kl)
    mean = sum(kl.tolist()) / n
    squares = sum((x - mean)**2 for x in kl.tolist())
    error = math.sqrt(squares / (n - 1)) / math.sqrt(n)
    return mean < -2 * error
''',
("the standard deviation divides by n, not by n - 1",
 r"n - 1|correction|unbiased|population|divid|bessel",
 "squares / (n - 1)", "squares / n"),
("one standard error is enough",
 r"two|2|one standard|twice|factor",
 "-2 * error", "-error"),
("compares with two standard deviations, not standard errors",
 r"root|sqrt|standard error|standard deviation|√",
 " / math.sqrt(n)", ""),
("divides the standard deviation by n, not by its root",
 r"root|sqrt|√|divid",
 " / math.sqrt(n)", " / n"),
("the variance in place of the standard deviation",
 r"variance|root|sqrt|standard dev|square",
 "math.sqrt(squares / (n - 1))", "squares / (n - 1)"),
("divides by the root of n - 1",
 r"root of n|√n|n - 1|sqrt|standard error|divid",
 "/ math.sqrt(n)", "/ math.sqrt(n - 1)"),
("a mean that is far above 0 raises the alarm, too",
 r"above|positive|abs|sign|below|either|both",
 "mean < -2 * error", "abs(mean) > 2 * error"),
("asks whether the mean is clearly above 0",
 r"above|positive|sign|below|negative|revers",
 "mean < -2 * error", "mean > 2 * error"),
("an alarm unless the mean is clearly above 0: the error is taken off instead of added",
 r"sign|add|plus|minus|subtract|other side|noise|not significant|clearly|within",
 "mean < -2 * error", "mean < 2 * error"),
("a mean of exactly 0 without spread is called negative: <= in place of <",
 r"<=|equal|exactly|\b0\b|strict|more than|below",
 "mean < -2 * error", "mean <= -2 * error"),
("a factor of 3 standard errors",
 r"three|3|two|2|factor|twice",
 "-2 * error", "-3 * error"),
)
right("kl_is_negative", '''
def kl_is_negative(kl):
    var, mean = torch.var_mean(kl)
    return bool(mean < 0 and mean.square() > 4 * var / kl.numel())
''')
right("kl_is_negative", '''
def kl_is_negative(kl):
    x = kl.tolist()
    m, s = statistics.mean(x), statistics.stdev(x)
    return m + 2 * s * len(x)**-.5 < 0
''')
wrong("kl_is_negative", "only asks whether the mean is below 0, noise or not",
 r"standard error|noise|two|2|significan|spread", '''
def kl_is_negative(kl):
    return bool(kl.mean() < 0)
''')
wrong("kl_is_negative", "asks whether every value is below 0",
 r"every|all values|each|mean|single", '''
def kl_is_negative(kl):
    return all(x < 0 for x in kl.tolist())
''')
wrong("kl_is_negative", "one negative value is enough",
 r"any|one (negative )?value|single|mean|each", '''
def kl_is_negative(kl):
    error = kl.std() / len(kl)**.5
    return bool((kl < -2 * error).any())
''')
wrong("kl_is_negative", "the median instead of the mean",
 r"median|mean|averag", '''
def kl_is_negative(kl):
    error = kl.std() / len(kl)**.5
    return bool(kl.median() + 2 * error < 0)
''')
wrong("kl_is_negative", "the sum instead of the mean is compared with the error of the mean",
 r"sum|mean|averag|divid", '''
def kl_is_negative(kl):
    standard_error = torch.std(kl) / math.sqrt(len(kl))
    return (kl.sum() + 2 * standard_error).item() < 0
''')
wrong("kl_is_negative", "asks whether 95 % of the values are below 0",
 r"95|share|values|mean|standard error|quantile|fraction", '''
def kl_is_negative(kl):
    return (kl < 0).double().mean().item() > .95
''')
wrong("kl_is_negative", "the last value alone decides",
 r"last|mean|all values|final|rollout|averag", '''
def kl_is_negative(kl):
    return bool(kl[-1] < -2 * kl.std() / len(kl)**.5)
''')

# ---------------------------------------------------------------- 12 flat_while_moving

edits("flat_while_moving", '''
def flat_while_moving(reward, kl, nats, gain):
    n = len(kl)
    cut = n // 2
    def mean(x, a, b): return sum(x[i].item() for i in range(a, b)) / (b - a)
    grown = mean(kl, cut, n) - mean(kl, 0, cut)
    better = mean(reward, cut, n) - mean(reward, 0, cut)
    return grown > nats and better < gain
''',
("an odd number of rollouts: the middle one is put into the first half",
 r"odd|middle|half|second|round",
 "cut = n // 2", "cut = (n + 1) // 2"),
("one of the two conditions is enough",
 r"\bor\b|\band\b|both|one of",
 "> nats and better", "> nats or better"),
("asks whether the reward has grown by more than gain",
 r"less|more than gain|reward|revers|<|>|greater",
 "better < gain", "better > gain"),
("a shrinking KL counts as moving, too",
 r"abs|shrink|fall|grow|sign|negative",
 "return grown > nats", "return abs(grown) > nats"),
("a falling reward is not flat: the size of the change is compared",
 r"abs|fall|sign|less|negative|size|drop",
 "and better < gain", "and abs(better) < gain"),
("KL that has grown by exactly nats sets it off",
 r"exactly|equal|>=|strict|more than|boundary",
 "grown > nats", "grown >= nats"),
("a reward that has grown by exactly gain counts as flat",
 r"exactly|equal|<=|strict|less than|boundary",
 "better < gain", "better <= gain"),
("the two thresholds are exchanged",
 r"threshold|exchang|swap|nats|gain",
 "grown > nats and better < gain", "grown > gain and better < nats"),
("first half minus second half for both",
 r"sign|order|revers|minus|second half|first half",
 "    return grown", "    grown, better = -grown, -better\n    return grown"),
("sums of the halves instead of means",
 r"sum|mean|averag|divid",
 " / (b - a)", ""),
("the mean KL of the second half is compared, not its growth",
 r"grow|differ|first half|level|second half|change",
 "grown = mean(kl, cut, n) - mean(kl, 0, cut)", "grown = mean(kl, cut, n)"),
)
right("flat_while_moving", '''
def flat_while_moving(reward, kl, nats, gain):
    both = torch.stack([reward, kl])
    first, second = both.tensor_split([both.shape[1] // 2], dim=1)
    dr, dk = second.mean(1) - first.mean(1)
    return bool(dk > nats) and bool(dr < gain)
''')
right("flat_while_moving", '''
def flat_while_moving(reward, kl, nats, gain):
    n = len(reward)
    late = torch.arange(n) >= n // 2
    def step(x): return x[late].mean() - x[~late].mean()
    if not step(kl) > nats: return False
    return (step(reward) < gain).item()
''')
wrong("flat_while_moving", "compares the last rollout with the first one, not the halves",
 r"half|halves|mean|last rollout|first rollout|single", '''
def flat_while_moving(reward, kl, nats, gain):
    moved = kl[-1] - kl[0] > nats
    flat = reward[-1] - reward[0] < gain
    return bool(moved and flat)
''')
wrong("flat_while_moving", "the middle rollout of an odd number belongs to no half",
 r"odd|middle|half|left out|second", '''
def flat_while_moving(reward, kl, nats, gain):
    h = len(reward) // 2
    def change(x): return x[-h:].mean() - x[:h].mean()
    return bool(change(kl) > nats and change(reward) < gain)
''')
wrong("flat_while_moving", "reward and KL are exchanged",
 r"exchang|swap|reward|order|mixed", '''
def flat_while_moving(reward, kl, nats, gain):
    half = len(reward) // 2
    a, b = [x[half:].mean() - x[:half].mean() for x in (reward, kl)]
    return bool(a > nats and b < gain)
''')
wrong("flat_while_moving", "relative growth: the difference is divided by the mean of the first half",
 r"relative|divid|share|differ|percent", '''
def flat_while_moving(reward, kl, nats, gain):
    half = len(kl) // 2
    def growth(x):
        before = x[:half].mean()
        return (x[half:].mean() - before) / before
    return bool(growth(kl) > nats and growth(reward) < gain)
''')
wrong("flat_while_moving", "medians of the halves",
 r"median|mean|averag", '''
def flat_while_moving(reward, kl, nats, gain):
    half = len(kl) // 2
    def difference(x): return x[half:].median() - x[:half].median()
    return bool(difference(kl) > nats and difference(reward) < gain)
''')
wrong("flat_while_moving", "the best reward and the highest KL of each half",
 r"max|best|highest|mean|averag", '''
def flat_while_moving(reward, kl, nats, gain):
    half = len(kl) // 2
    def difference(x): return x[half:].max() - x[:half].max()
    return bool(difference(kl) > nats and difference(reward) < gain)
''')
wrong("flat_while_moving", "compares every step with the step before: a maximum of single jumps",
 r"step|jump|half|halves|mean|single", '''
def flat_while_moving(reward, kl, nats, gain):
    return bool((kl[1:] - kl[:-1]).max() > nats and (reward[1:] - reward[:-1]).max() < gain)
''')

# ---------------------------------------------------------------- 13 judge_messages

edits("judge_messages", '''
def judge_messages(tokenizer, prompt, answers):
    messages = []
    for texts in answers:
        clean = [escape_special_tokens(tokenizer, text) for text in texts]
        messages.append(prompt.render(*clean))
    return messages
''',
("nothing is escaped: an answer can end the user's turn",
 r"escap|special|token|unk|end the turn",
 "[escape_special_tokens(tokenizer, text) for text in texts]", "list(texts)"),
("escapes the response only: the question comes from outside, too",
 r"question|prompt|every text|all texts|each text|only|first",
 "[escape_special_tokens(tokenizer, text) for text in texts]",
 "[*texts[:1], *(escape_special_tokens(tokenizer, text) for text in texts[1:])]"),
("escapes the question only, not the response",
 r"response|answer|every text|each text|only|second|last",
 "[escape_special_tokens(tokenizer, text) for text in texts]",
 "[escape_special_tokens(tokenizer, texts[0]), *texts[1:]]"),
("leaves the last text of a triple as it is: only the first two are escaped",
 r"third|second answer|pair|every text|each text|three|two|last",
 "[escape_special_tokens(tokenizer, text) for text in texts]",
 "[escape_special_tokens(tokenizer, text) for text in texts[:2]] + list(texts[2:])"),
("fills the blanks in reversed order",
 r"order|swap|exchang|revers|blank",
 "prompt.render(*clean)", "prompt.render(*clean[::-1])"),
("deletes <unk> afterwards: the special token leaves no trace",
 r"unk|delet|remov|replac|trace",
 "prompt.render(*clean)", "prompt.render(*(text.replace('<unk>', '') for text in clean))"),
("returns after the first answer",
 r"first|one message|all answers|each answer|every answer|length|number of",
 "messages.append(prompt.render(*clean))\n", "messages.append(prompt.render(*clean))\n        return messages\n"),
("one long text instead of a list of messages",
 r"list|join|one text|string|each|separate",
 "return messages", "return '\\n'.join(messages)"),
)
right("judge_messages", '''
def judge_messages(tokenizer, prompt, answers):
    from functools import partial
    clean = partial(escape_special_tokens, tokenizer)
    return [prompt.render(*map(clean, answer)) for answer in answers]
''')
right("judge_messages", '''
def judge_messages(tokenizer, prompt, answers):
    def message(first, *more):
        return prompt.render(escape_special_tokens(tokenizer, first),
                             *[escape_special_tokens(tokenizer, x) for x in more])
    out = [None] * len(answers)
    for i, answer in enumerate(answers): out[i] = message(*answer)
    return out
''')
wrong("judge_messages", "escapes the finished message, so the template loses its own special tokens",
 r"template|after|finished|own|then|first|order|whole message", '''
def judge_messages(tokenizer, prompt, answers):
    return [escape_special_tokens(tokenizer, prompt.render(*answer)) for answer in answers]
''')
wrong("judge_messages", "replaces <eos> only; the other special tokens get through",
 r"<\||assistant|other special|only|eos|every special|all special|escape_special", '''
def judge_messages(tokenizer, prompt, answers):
    def clean(text): return text.replace(tokenizer.eos_token, tokenizer.unk_token)
    return [prompt.render(*[clean(text) for text in answer]) for answer in answers]
''')
wrong("judge_messages", "cuts a text at its first special token",
 r"cut|rest|after|lost|replac|unk|remov", '''
def judge_messages(tokenizer, prompt, answers):
    special = sorted(tokenizer.all_special_tokens, key=len, reverse=True)
    cut = re.compile("|".join(map(re.escape, special)))
    def clean(text): return cut.split(text)[0]
    return [prompt.render(*(clean(text) for text in answer)) for answer in answers]
''')
wrong("judge_messages", "escapes for HTML: every < becomes &lt;",
 r"html|&lt|unk|<unk>|escape_special|replac", '''
def judge_messages(tokenizer, prompt, answers):
    import html
    return [prompt.render(*(html.escape(text) for text in answer)) for answer in answers]
''')
wrong("judge_messages", "equal answers are judged once: duplicates are dropped",
 r"duplicate|twice|same answer|order|number|length|each answer|b messages|equal", '''
def judge_messages(tokenizer, prompt, answers):
    return [prompt.render(*(escape_special_tokens(tokenizer, text) for text in answer))
            for answer in dict.fromkeys(answers)]
''')
wrong("judge_messages", "overwrites the list of answers with the escaped texts",
 r"in place|in-place|input|overwr|chang|mutat|modif", '''
def judge_messages(tokenizer, prompt, answers):
    for i, answer in enumerate(answers):
        answers[i] = tuple(escape_special_tokens(tokenizer, text) for text in answer)
    return [prompt.render(*answer) for answer in answers]
''')
wrong("judge_messages", "joins the texts with a line break and splits them again, so a text of several lines loses its rest",
 r"line|split|several|lost|rest|whole text|cut", '''
def judge_messages(tokenizer, prompt, answers):
    out = []
    for answer in answers:
        joined = escape_special_tokens(tokenizer, "\\n".join(answer))
        out.append(prompt.render(*joined.split("\\n")[:len(answer)]))
    return out
''')
wrong("judge_messages", "also strips spaces and lowers the case of every text",
 r"case|lower|strip|space|as it is|unchanged|capital", '''
def judge_messages(tokenizer, prompt, answers):
    def clean(text): return escape_special_tokens(tokenizer, text).strip().lower()
    return [prompt.render(*(clean(text) for text in answer)) for answer in answers]
''')

# ---------------------------------------------------------------- 13 parse_score

PS = 'def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):'
edits("parse_score", PS + '''
    places = list(score_regex(pattern, high).finditer(text))
    if not places: return None
    number = places[-1 if last else 0].group(1)
    if number is None: return None
    value = float(number)
    return value if low <= value <= high else None
''',
("the first place counts, whatever `last` says",
 r"last|first|place",
 "-1 if last else 0", "0"),
("the last place counts, even with last=False",
 r"last|first|place",
 "-1 if last else 0", "-1"),
("last=True takes the first place, and the other way round",
 r"last|first|place|revers|exchang|swap",
 "-1 if last else 0", "0 if last else -1"),
("a number outside of low to high is returned as it is",
 r"outside|low|high|range|bound",
 "return value if low <= value <= high else None", "return value"),
("the ends low and high themselves are refused",
 r"ends?\b|itself|bound|inclu|equal|<=|strict|low|high",
 "low <= value <= high", "low < value < high"),
("nothing is too low: only high is looked at",
 r"low|below|negative|outside|range",
 "low <= value <= high", "value <= high"),
("a number outside is moved to the nearest end",
 r"clamp|outside|none|nearest|end|range|bound",
 "return value if low <= value <= high else None", "return min(max(value, low), high)"),
("a reply without a score gets 0",
 r"none|0|no score|without|missing",
 "if not places: return None", "if not places: return 0."),
("a reply without a place raises an error",
 r"none|no place|no score|without|error|rais|index",
 "    if not places: return None\n", ""),
("the score as a share of high: rescaled",
 r"rescal|share|divid|scale|high",
 "return value if", "return value / high if"),
("the score is rounded to a whole number",
 r"round|whole|int|half|4\.5|decimal",
 "return value if", "return float(int(value)) if"),
("returns a text instead of a number",
 r"text|str|float|number|type",
 "return value if", "return number if"),
)
right("parse_score", PS + '''
    found = None
    for match in score_regex(pattern, high).finditer(text):
        found = match
        if not last: break
    if found is None or found[1] is None: return None
    number = float(found[1])
    if number < low or number > high: return None
    return number
''')
right("parse_score", PS + '''
    numbers = score_regex(pattern, high).findall(text)      # '' where group 1 is None
    if len(numbers) == 0: return None
    number = numbers.pop() if last else numbers.pop(0)
    try: value = float(number)
    except ValueError: return None
    return None if (value > high or value < low) else value
''')
wrong("parse_score", "0 is lost: a score of 0 is taken for no score",
 r"\b0\b|zero|falsy|truth|lost", PS + '''
    found = [m[1] for m in score_regex(pattern, high).finditer(text)]
    if not found: return None
    value = float(found[-1 if last else 0] or "nan")
    if value and low <= value <= high: return value
    return None
''')
wrong("parse_score", "falls back to an earlier place when the last one holds no number",
 r"earlier|fall|last place|even without|good number|other place|place first|score: ?$|unfinished", PS + '''
    found = [float(m[1]) for m in score_regex(pattern, high).finditer(text) if m[1] is not None]
    if not found: return None
    value = found[-1 if last else 0]
    return value if low <= value <= high else None
''')
wrong("parse_score", "drops numbers outside of the range before it chooses the place",
 r"outside|before|place|choose|range|earlier|last place", PS + '''
    candidates = []
    for m in score_regex(pattern, high).finditer(text):
        if m[1] is None: candidates.append(None)
        elif low <= float(m[1]) <= high: candidates.append(float(m[1]))
    if not candidates: return None
    return candidates[-1] if last else candidates[0]
''')
wrong("parse_score", "a regular expression of its own: 4/10 and 4-5 count as 4",
 r"4/10|range|scale|score_regex|rescal|pattern|another number|out of|described", PS + '''
    before = pattern.split("{{")[0]
    found = re.findall(re.escape(before) + r"(-?[0-9]+(?:\\.[0-9]+)?)?", text)
    if not found or not found[-1 if last else 0]: return None
    value = float(found[-1 if last else 0])
    return value if low <= value <= high else None
''')
wrong("parse_score", "ignores the pattern and looks for 'Score: ' always",
 r"pattern|template|other words|default|score:", PS + '''
    found = [m[1] for m in score_regex("Score: {{ reward }}", high).finditer(text)]
    number = found[-1 if last else 0] if found else None
    if number is None or not low <= float(number) <= high: return None
    return float(number)
''')
wrong("parse_score", "the expression is always built for a scale up to 5, whatever high is",
 r"high|scale|out of|/10|5", PS + '''
    found = [m[1] for m in score_regex(pattern, 5.).finditer(text)]
    number = found[-1 if last else 0] if found else None
    if number is None or not low <= float(number) <= high: return None
    return float(number)
''')
wrong("parse_score", "nan in place of None for a reply without a score",
 r"nan|none", PS + '''
    found = [m[1] for m in score_regex(pattern, high).finditer(text)]
    number = found[-1 if last else 0] if found else None
    if number is not None and low <= float(number) <= high: return float(number)
    return math.nan
''')
wrong("parse_score", "the mean of all places",
 r"mean|averag|last|one place|places", PS + '''
    found = [m[1] for m in score_regex(pattern, high).finditer(text)]
    if not found or found[-1 if last else 0] is None: return None
    values = [float(x) for x in found if x is not None]
    value = sum(values) / len(values)
    return value if low <= value <= high else None
''')
wrong("parse_score", "looks at the beginning of the reply only",
 r"begin|start|anywhere|match|search|finditer|middle", PS + '''
    m = score_regex(pattern, high).match(text)
    if m is None or m[1] is None: return None
    value = float(m[1])
    return value if low <= value <= high else None
''')

# ---------------------------------------------------------------- 13 agreement

edits("agreement", '''
def agreement(verdicts, true):
    score = verdicts.score()
    rows = [(s, int(g)) for s, g in zip(score.tolist(), true.tolist()) if not math.isnan(s)]
    s = torch.tensor([a for a, _ in rows], dtype=torch.float64)
    g = torch.tensor([b for _, b in rows], dtype=torch.float64)
    r = torch.round(s)
    n = len(rows)
    po = int((r == g).sum()) / n if n else math.nan
    pe = 0.
    for k in set(r.tolist()) | set(g.tolist()):
        pe += int((r == k).sum()) / n * (int((g == k).sum()) / n)
    ds, dg = s - s.mean(), g - g.mean()
    pearson = (ds * dg).sum() / ((ds**2).sum() * (dg**2).sum()).sqrt()
    return {"parse_rate": verdicts.parse_rate(), "n_unparsed": len(score) - n,
            "vote_std": verdicts.vote_std(), "pearson_r": pearson.item(),
            "exact_match": po, "kappa": math.nan if pe == 1 else (po - pe) / (1 - pe),
            "bias": (s - g).mean().item(), "pair_accuracy": pair_accuracy(score, true)}
''',
("gold minus score: the bias has the wrong sign",
 r"bias|sign|minus|gold",
 "(s - g).mean()", "(g - s).mean()"),
("the bias of the rounded scores",
 r"bias|round",
 "(s - g).mean()", "(r - g).mean()"),
("the mean absolute error in place of the bias",
 r"bias|abs|sign",
 "(s - g).mean()", "(s - g).abs().mean()"),
("a half is rounded up, not to the even number",
 r"round|half|even|exact|match|kappa",
 "torch.round(s)", "torch.floor(s + .5)"),
("scores are cut to whole numbers, not rounded",
 r"round|cut|floor|trunc|exact|match|kappa",
 "torch.round(s)", "torch.trunc(s)"),
("exact match and kappa compare the scores without rounding",
 r"round|exact|match|kappa",
 "torch.round(s)", "s"),
("kappa is not divided by 1 - p_e",
 r"kappa|p_e|1 - |divid|chance",
 "(po - pe) / (1 - pe)", "(po - pe)"),
("kappa is 0 where p_e is 1, not nan",
 r"kappa|nan|p_e",
 "math.nan if pe == 1", "0. if pe == 1"),
("Pearson r of the rounded scores",
 r"pearson|correlation|round",
 "ds, dg = s - s.mean()", "ds, dg = r - r.mean()"),
("p_e from the frequencies of the judge alone, squared",
 r"kappa|p_e|chance|gold|frequenc|both",
 "(int((g == k).sum()) / n)", "(int((r == k).sum()) / n)"),
("the covariance in place of Pearson's r",
 r"pearson|correlation|covariance|standard dev|divid|normal",
 "/ ((ds**2).sum() * (dg**2).sum()).sqrt()", "/ (n - 1)"),
)
right("agreement", '''
def agreement(verdicts, true):
    score = verdicts.score()
    known = ~torch.isnan(score)
    s, g = score[known].double(), true[known].double()
    both = torch.stack([s.round(), g])
    offset = both.min() if both.numel() else 0
    codes = (both - offset).long()
    k = int(codes.max()) + 1 if codes.numel() else 1
    table = torch.zeros(k, k, dtype=torch.float64)
    table.index_put_((codes[0], codes[1]), torch.ones(len(s), dtype=torch.float64), accumulate=True)
    table = table / table.sum()
    po, pe = table.trace().item(), einsum(table, table, "i j, k i -> ").item()
    kappa = math.nan if pe >= 1 else (po - pe) / (1 - pe)
    return dict(parse_rate=verdicts.parse_rate(), n_unparsed=score.isnan().sum().item(),
                vote_std=verdicts.vote_std(),
                pearson_r=torch.corrcoef(torch.stack([s, g]))[1, 0].item(),
                exact_match=po, kappa=kappa, bias=s.mean().item() - g.mean().item(),
                pair_accuracy=pair_accuracy(score, true))
''')
AG = '''
def agreement(verdicts, true):
    score = verdicts.score()
    known = ~score.isnan()
    s, g = score[known].double(), true[known].double()
    r = s.round()
    match = (r == g).double().mean().item()
    chance = (r[:, None] == g).double().mean().item()
    kappa = (match - chance) / (1 - chance) if chance < 1 else math.nan
    out = {}
    out["parse_rate"] = verdicts.parse_rate()
    out["n_unparsed"] = int((~known).sum())
    out["vote_std"] = verdicts.vote_std()
    out["pearson_r"] = torch.corrcoef(torch.stack([s, g]))[0, 1].item()
    out["exact_match"] = match
    out["kappa"] = kappa
    out["bias"] = (s - g).mean().item()
    out["pair_accuracy"] = pair_accuracy(score, true)
    return out
'''
edits("agreement", AG,
("n_unparsed counts replies, not answers",
 r"n_unparsed|unparsed|answers|replies|votes",
 'int((~known).sum())', 'int(verdicts.votes.isnan().sum())'),
("the parse rate is the share of answers with a score, not of replies",
 r"parse.?rate|replies|votes",
 'verdicts.parse_rate()', 'known.double().mean().item()'),
("an answer without a score counts as no match in the exact match",
 r"exact|match|left out|without a score|nan|unparsed",
 'out["exact_match"] = match', 'out["exact_match"] = (score.double().round() == true).double().mean().item()'),
("p_e takes six scores as equally frequent: 1/6",
 r"kappa|p_e|chance|frequenc|1/6|uniform",
 "chance = (r[:, None] == g).double().mean().item()", "chance = 1 / 6"),
("the standard deviation of all votes together, not the mean over the answers",
 r"vote_std|std|each answer|per answer|votes|mean",
 'verdicts.vote_std()', 'verdicts.votes[~verdicts.votes.isnan()].std().item()'),
("the correlation of ranks (Spearman) in place of Pearson's",
 r"rank|spearman|pearson|correlation",
 "torch.corrcoef(torch.stack([s, g]))[0, 1]",
 "torch.corrcoef(torch.stack([x.argsort().argsort().double() for x in (s, g)]))[0, 1]"),
("kappa's key is missing",
 r"kappa|key|missing",
 '    out["kappa"] = kappa\n', ""),
)
wrong("agreement", "kappa by averaged frequencies of both raters (Scott's pi)",
 r"kappa|scott|frequenc|averag|p_e|chance", AG.replace(
 "chance = (r[:, None] == g).double().mean().item()",
 "chance = sum((((r == k).double() + (g == k)) / 2).mean().item()**2 for k in torch.cat([r, g]).unique())"))
wrong("agreement", "answers without a score are taken as 0",
 r"nan|without a score|left out|as 0|unparsed|zero", '''
def agreement(verdicts, true):
    raw = verdicts.score()
    score = raw.nan_to_num(0.).double()
    gold, rounded = true.double(), score.round()
    po = (rounded == gold).double().mean().item()
    pe = (rounded[:, None] == gold).double().mean().item()
    return dict(parse_rate=verdicts.parse_rate(), n_unparsed=int(raw.isnan().sum()),
                vote_std=verdicts.vote_std(),
                pearson_r=torch.corrcoef(torch.stack([score, gold]))[0, 1].item(),
                exact_match=po, kappa=(po - pe) / (1 - pe) if pe < 1 else math.nan,
                bias=(score - gold).mean().item(), pair_accuracy=pair_accuracy(score, true))
''')
wrong("agreement", "uses the first vote of each answer as its score, not the mean of the votes",
 r"first|mean of|score\(\)|votes|averag", AG.replace(
 "score = verdicts.score()", "score = verdicts.votes[:, 0]"))
wrong("agreement", "pair accuracy of the truth by the scores: the two are exchanged",
 r"pair|exchang|swap|order|truth", AG.replace("pair_accuracy(score, true)",
 "pair_accuracy(true.double()[known], score[known])"))
wrong("agreement", "p_e takes the frequencies of gold over all answers, those without a score too",
 r"p_e|kappa|left out|without a score|frequenc|all answers|unparsed|chance", '''
def agreement(verdicts, true):
    score = verdicts.score()
    pairs = [(round(s), s, g) for s, g in zip(score.tolist(), true.tolist()) if s == s]
    n, gold = len(pairs), true.tolist()
    po = sum(r == g for r, _, g in pairs) / n
    pe = sum(r == g for r, _, _ in pairs for g in gold) / (n * len(gold))
    s, g = torch.tensor([p[1:] for p in pairs], dtype=torch.float64).T
    return dict(parse_rate=verdicts.parse_rate(), n_unparsed=len(gold) - n,
                vote_std=verdicts.vote_std(),
                pearson_r=torch.corrcoef(torch.stack([s, g]))[0, 1].item(),
                exact_match=po, kappa=(po - pe) / (1 - pe) if pe < 1 else math.nan,
                bias=(s - g).mean().item(), pair_accuracy=pair_accuracy(score, true))
''')
wrong("agreement", "a score that is off by one counts as an exact match",
 r"exact|match|off by one|within|near|equal|kappa", '''
def agreement(verdicts, true):
    score = verdicts.score()
    keep = (~score.isnan()).nonzero()[:, 0]
    s, g = score[keep].double(), true[keep].double()
    r = s.round()
    near = ((r - g).abs() <= 1).double().mean().item()
    by_luck = ((r[:, None] - g[None]).abs() <= 1).double().mean().item()
    result = {"parse_rate": verdicts.parse_rate(), "vote_std": verdicts.vote_std()}
    result |= {"n_unparsed": len(score) - len(keep), "exact_match": near,
               "kappa": math.nan if by_luck == 1 else (near - by_luck) / (1 - by_luck)}
    result |= {"pearson_r": torch.corrcoef(torch.stack([s, g]))[0, 1].item(),
               "bias": (s - g).mean().item(), "pair_accuracy": pair_accuracy(score, true)}
    return result
''')
wrong("agreement", "every vote is compared with the truth for itself, not an answer's mean",
 r"vote|mean|answer|reply|each|score\(\)", '''
def agreement(verdicts, true):
    b, n = verdicts.votes.shape
    gold = true[:, None].expand(b, n)
    keep = ~verdicts.votes.isnan()
    s, g = verdicts.votes[keep].double(), gold[keep].double()
    po = (s.round() == g).double().mean().item()
    pe = (s.round()[:, None] == g).double().mean().item()
    return dict(parse_rate=verdicts.parse_rate(), n_unparsed=int((~keep).all(1).sum()),
                vote_std=verdicts.vote_std(),
                pearson_r=torch.corrcoef(torch.stack([s, g]))[0, 1].item(),
                exact_match=po, kappa=(po - pe) / (1 - pe) if pe < 1 else math.nan,
                bias=(s - g).mean().item(), pair_accuracy=pair_accuracy(verdicts.score(), true))
''')

# ---------------------------------------------------------------- 14 choose_pairs

edits("choose_pairs", '''
def choose_pairs(scores, select=max_min):
    out = []
    for g in range(len(scores)):
        places, short = [], []
        for i, s in enumerate(scores[g]):
            if s == s:
                places.append(i)
                short.append(s)
        if len(short) < 2:
            continue
        a, b = select(short)
        if short[a] == short[b]:
            continue
        out.append((g, places[a], places[b]))
    return out
''',
("a prompt with fewer than two scores ends the loop: later prompts get no pair",
 r"break|ends|later|next prompt|other prompts|following|stop|continue",
 "if len(short) < 2:\n            continue", "if len(short) < 2:\n            break"),
("a tie ends the loop: later prompts get no pair",
 r"break|ends|later|next prompt|other prompts|following|stop|continue|tie|equal",
 "short[b]:\n            continue", "short[b]:\n            break"),
("places in the short list of scored candidates, not among all",
 r"short|places|among all|nan|index|shift|position",
 "(g, places[a], places[b])", "(g, a, b)"),
("rejected and chosen are exchanged",
 r"order|exchang|swap|chosen|rejected|worst",
 "(g, places[a], places[b])", "(g, places[b], places[a])"),
("equal scores give a pair",
 r"equal|tie|same score|none",
 "if short[a] == short[b]:\n            continue\n        ", ""),
("the scores are returned in place of the places",
 r"places|scores|index|position|value",
 "(g, places[a], places[b])", "(g, short[a], short[b])"),
("two scores are not enough: it asks for three",
 r"two|three|2|fewer",
 "len(short) < 2", "len(short) <= 2"),
("the prompt's number is left out of the pair",
 r"prompt|three|number|triple|left out|tuple",
 "(g, places[a], places[b])", "(places[a], places[b])"),
("prompts are counted from 1",
 r"from 1|from 0|off by one|prompt|number",
 "(g, places[a]", "(g + 1, places[a]"),
("the number of the pair in place of the number of the prompt",
 r"prompt|number|skipped|count|which",
 "(g, places[a]", "(len(out), places[a]"),
)
right("choose_pairs", '''
def choose_pairs(scores, select=max_min):
    def one(g, row):
        known = {i: s for i, s in enumerate(row) if not math.isnan(s)}
        if len(known) > 1:
            at = list(known)
            a, b = (at[k] for k in select(list(known.values())))
            if known[a] != known[b]: yield g, a, b
    return [pair for g, row in enumerate(scores) for pair in one(g, row)]
''')
right("choose_pairs", '''
def choose_pairs(scores, select=max_min):
    pairs, g = [], -1
    for row in scores:
        g += 1
        x = torch.tensor(row, dtype=torch.float64).reshape(-1)
        at = (~x.isnan()).nonzero()[:, 0].tolist()
        if len(at) in (0, 1): continue
        chosen, rejected = select([row[i] for i in at])
        chosen, rejected = at[chosen], at[rejected]
        if row[chosen] == row[rejected]: continue
        pairs += [(g, chosen, rejected)]
    return pairs
''')
wrong("choose_pairs", "compares with nan by !=, which is always true: nan goes to select",
 r"nan|isnan|not scored|no score|left out", '''
def choose_pairs(scores, select=max_min):
    pairs = []
    for prompt, row in enumerate(scores):
        known = [i for i, score in enumerate(row) if score != math.nan]
        if len(known) < 2: continue
        chosen, rejected = [known[k] for k in select([row[i] for i in known])]
        if row[chosen] != row[rejected]: pairs.append((prompt, chosen, rejected))
    return pairs
''')
wrong("choose_pairs", "one candidate without a score drops its whole prompt",
 r"whole prompt|nan|others stay|drop|without a score|no score", '''
def choose_pairs(scores, select=max_min):
    pairs = []
    for prompt, row in enumerate(scores):
        if len(row) < 2 or any(math.isnan(s) for s in row): continue
        chosen, rejected = select(row)
        if row[chosen] != row[rejected]: pairs.append((prompt, chosen, rejected))
    return pairs
''')
wrong("choose_pairs", "ignores the given select and always takes maximum and minimum",
 r"select|given|max|ignor|own rule", '''
def choose_pairs(scores, select=max_min):
    pairs = []
    for prompt, row in enumerate(scores):
        known = [i for i, s in enumerate(row) if not math.isnan(s)]
        if len(known) < 2: continue
        best, worst = max(known, key=row.__getitem__), min(known, key=row.__getitem__)
        if row[best] != row[worst]: pairs.append((prompt, best, worst))
    return pairs
''')
wrong("choose_pairs", "a candidate without a score counts as 0",
 r"nan|as 0|zero|without a score|no score|left out", '''
def choose_pairs(scores, select=max_min):
    pairs = []
    for prompt, row in enumerate(scores):
        filled = [0. if math.isnan(s) else s for s in row]
        if len(filled) < 2: continue
        chosen, rejected = select(filled)
        if filled[chosen] != filled[rejected]: pairs.append((prompt, chosen, rejected))
    return pairs
''')
wrong("choose_pairs", "best against second best",
 r"second|worst|lowest|select|best", '''
def choose_pairs(scores, select=max_min):
    pairs = []
    for prompt, row in enumerate(scores):
        known = [i for i, s in enumerate(row) if s == s]
        if len(known) < 2: continue
        chosen = known[select([row[i] for i in known])[0]]
        rejected = max((i for i in known if i != chosen), key=lambda i: row[i])
        if row[chosen] != row[rejected]: pairs.append((prompt, chosen, rejected))
    return pairs
''')
wrong("choose_pairs", "any two equal scores drop the prompt, though the best and the worst differ",
 r"equal|any two|drop|best and|chosen and|tie|duplicate|same", '''
def choose_pairs(scores, select=max_min):
    pairs = []
    for prompt, row in enumerate(scores):
        known = [i for i, s in enumerate(row) if not math.isnan(s)]
        if len(known) < 2 or len({row[i] for i in known}) < len(known): continue
        chosen, rejected = [known[k] for k in select([row[i] for i in known])]
        pairs.append((prompt, chosen, rejected))
    return pairs
''')
wrong("choose_pairs", "a prompt without any score raises an error: select meets an empty list",
 r"empty|without any|no score|error|rais|fewer than two|none", '''
def choose_pairs(scores, select=max_min):
    pairs = []
    for prompt, row in enumerate(scores):
        known = [i for i, s in enumerate(row) if not math.isnan(s)]
        chosen, rejected = [known[k] for k in select([row[i] for i in known])]
        if row[chosen] != row[rejected]: pairs.append((prompt, chosen, rejected))
    return pairs
''')
wrong("choose_pairs", "places in one long list of all candidates, not in the prompt's own",
 r"long list|own|all candidates|place|offset|within|flat|its prompt|prompt's", '''
def choose_pairs(scores, select=max_min):
    pairs, before = [], 0
    for prompt, row in enumerate(scores):
        known = [i for i, s in enumerate(row) if not math.isnan(s)]
        if len(known) > 1:
            chosen, rejected = [known[k] for k in select([row[i] for i in known])]
            if row[chosen] != row[rejected]:
                pairs.append((prompt, before + chosen, before + rejected))
        before += len(row)
    return pairs
''')
wrong("choose_pairs", "every better candidate against every worse one: several pairs for a prompt",
 r"one pair|several|every|at most|number of pairs|each prompt", '''
def choose_pairs(scores, select=max_min):
    return [(prompt, a, b) for prompt, row in enumerate(scores)
            for a in range(len(row)) for b in range(len(row)) if row[a] > row[b]]
''')

# ---------------------------------------------------------------- 14 replay_loss

RL = "def replay_loss(pair_loss, old_logp, weight, mean_length):"
edits("replay_loss", RL + '''
    check_number("replay_loss: mean_length", mean_length, "above 0")
    nll = -old_logp.flatten().sum()
    old = weight * nll / mean_length
    return pair_loss + old
''',
("the log-probs are added: the loss falls as old examples become less likely",
 r"sign|minus|negat|less likely|log-prob",
 "nll = -old_logp", "nll = old_logp"),
("the mean over the old tokens instead of their sum",
 r"mean|sum|averag",
 ".flatten().sum()", ".flatten().mean()"),
("multiplies by the mean length instead of dividing",
 r"divid|multipl|length|mean_length",
 "weight * nll / mean_length", "weight * nll * mean_length"),
("the weight is left out",
 r"weight|\bw\b|left out|missing|ignor",
 "weight * nll / mean_length", "nll / mean_length"),
("the mean length is left out",
 r"length|divid|mean_length|\bt\b|left out|missing",
 "weight * nll / mean_length", "weight * nll"),
("the weight stands at the pairs' loss, too",
 r"weight|pair|both|\bw\b",
 "return pair_loss + old", "return weight * pair_loss + old"),
("the pairs' loss is left out",
 r"pair|left out|missing|dpo",
 "return pair_loss + old", "return old"),
("the two parts are averaged",
 r"half|averag|mean|sum|/ 2|twice",
 "return pair_loss + old", "return (pair_loss + old) / 2"),
("the weight is shared: 1 - w for the pairs",
 r"1 - |share|weight|pair",
 "return pair_loss + old", "return (1 - weight) * pair_loss + old"),
)
right("replay_loss", RL + '''
    total = pair_loss
    for row in old_logp:
        for logp in row: total = total - logp * (weight / mean_length)
    return total
''')
right("replay_loss", RL + '''
    return torch.add(pair_loss, reduce(old_logp, "b t -> ", "sum"), alpha=-weight / mean_length)
''')
wrong("replay_loss", "each row is divided by its own length, not by the mean length",
 r"own length|mean_length|one t|each row|all rows|long|its length|per row", RL + '''
    lengths = (old_logp != 0).sum(1).clamp(min=1)
    return pair_loss - weight * (old_logp.sum(1) / lengths).sum()
''')
wrong("replay_loss", "the mean over the old examples, though the pairs' loss is a sum",
 r"mean|sum|rows|number of|divid|averag", RL + '''
    per_example = -old_logp.sum(dim=1) / mean_length
    return pair_loss + weight * per_example.mean()
''')
wrong("replay_loss", "one number per old example: the rows are not summed",
 r"shape|one number|rows|sum|scalar|per (row|example)", RL + '''
    return pair_loss - weight / mean_length * old_logp.sum(1)
''')
wrong("replay_loss", "the old examples carry no gradient: they are only counted",
 r"gradient|detach|learn|no_grad|data", RL + '''
    old = old_logp.detach().sum()
    return pair_loss - weight / mean_length * old
''')
wrong("replay_loss", "the pairs' loss is detached",
 r"gradient|detach|learn|pair", RL + '''
    return pair_loss.detach() - weight / mean_length * old_logp.sum()
''')
wrong("replay_loss", "minus the sum of the probabilities, not of the log-probs",
 r"exp|probabilit|log", RL + '''
    likely = old_logp.exp().sum()
    return pair_loss - weight * likely / mean_length
''')
wrong("replay_loss", "everything is divided by the number of rows: the mean, not n times L",
 r"mean|sum|number of|rows|divid|n times|averag", RL + '''
    n = old_logp.shape[0]
    return (pair_loss - weight / mean_length * old_logp.sum()) / n
''')
wrong("replay_loss", "the last token of each old example only",
 r"last|every token|all tokens|only|sum|each token", RL + '''
    return pair_loss - weight / mean_length * old_logp[:, -1].sum()
''')

# ---------------------------------------------------------------- 15 spin_loss

SL = "def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):"
edits("spin_loss", SL + '''
    with torch.no_grad(): base = opponent_real - opponent_generated
    t = beta * (real - generated - base)
    return -logsigmoid(t)
''',
("the sign inside: the player loses less as the generated answer gains",
 r"sign|order|revers|generated|minus|falls|swap",
 "-logsigmoid(t)", "-logsigmoid(-t)"),
("gradient flows into the opponent's log-probs",
 r"gradient|detach|opponent|data|no_grad",
 "with torch.no_grad(): base", "base"),
("the opponent is left out",
 r"opponent|left out|ratio|missing|ignor|forgot",
 "real - generated - base", "real - generated"),
("the opponent's difference is added",
 r"sign|opponent|add|plus|subtract|ratio",
 "generated - base", "generated + base"),
("beta stands outside of the logarithm",
 r"beta|β|outside|inside|factor",
 "t = beta * (real - generated - base)\n    return -logsigmoid(t)",
 "t = real - generated - base\n    return -beta * logsigmoid(t)"),
("divides by beta",
 r"beta|β|divid|multipl|times",
 "beta * (real - generated - base)", "(real - generated - base) / beta"),
("beta is ignored",
 r"beta|β|ignor|left out|default",
 "beta * (real - generated - base)", "real - generated - base"),
("the minus is missing: below 0",
 r"sign|minus|negat|above 0|below 0",
 "return -logsigmoid(t)", "return logsigmoid(t)"),
("the mean over the pairs",
 r"mean|per pair|each pair|shape|one number|averag",
 "return -logsigmoid(t)", "return -logsigmoid(t).mean()"),
)
right("spin_loss", SL + '''
    real_gain = beta * (real - opponent_real.detach())
    other_gain = beta * (generated - opponent_generated.detach())
    return torch.logaddexp(torch.zeros_like(real_gain), other_gain - real_gain)
''')
right("spin_loss", SL + '''
    ratios = [player - opponent.data for player, opponent in
              ((real, opponent_real), (generated, opponent_generated))]
    margin = ratios[0] - ratios[1]
    return F.binary_cross_entropy_with_logits(beta * margin, torch.ones_like(margin),
                                              reduction="none")
''')
wrong("spin_loss", "exp overflows for a margin far below 0: log(1 + exp(x)) by hand gives inf",
 r"overflow|inf|softplus|stable|large", SL + '''
    t = beta * ((real - opponent_real.detach()) - (generated - opponent_generated.detach()))
    return torch.log1p(torch.exp(-t))
''')
wrong("spin_loss", "the logarithm is missing: exp(-t) alone",
 r"log|exp|1 \+|ln 2", SL + '''
    real_ratio = real - opponent_real.detach()
    generated_ratio = generated - opponent_generated.detach()
    return torch.exp(-beta * (real_ratio - generated_ratio))
''')
wrong("spin_loss", "a hinge: a pair that is told apart well costs nothing",
 r"hinge|log|above 0|ln 2|softplus", SL + '''
    margin = (real - opponent_real.detach()) - (generated - opponent_generated.detach())
    return F.relu(1 - beta * margin)
''')
wrong("spin_loss", "the generated answer is left out: only the real one's log-ratio counts",
 r"generated|left out|only|real|second", SL + '''
    return softplus(-beta * (real - opponent_real.detach()))
''')
wrong("spin_loss", "the generated answer's log-prob is detached: nothing pushes it down",
 r"gradient|detach|generated|pushes|down", SL + '''
    real_ratio = real - opponent_real.detach()
    generated_ratio = (generated - opponent_generated).detach()
    return softplus(beta * (generated_ratio - real_ratio))
''')
wrong("spin_loss", "subtracts probabilities' ratios, not their logarithms",
 r"log|exp|probabilit|ratio", SL + '''
    real_ratio = (real - opponent_real.detach()).exp()
    generated_ratio = (generated - opponent_generated.detach()).exp()
    return softplus(beta * (generated_ratio - real_ratio))
''')
wrong("spin_loss", "beta multiplies the real answer's log-ratio only",
 r"beta|β|both|only|generated", SL + '''
    real_ratio = real - opponent_real.detach()
    generated_ratio = generated - opponent_generated.detach()
    return softplus(generated_ratio - beta * real_ratio)
''')
wrong("spin_loss", "one minus the sigmoid, a probability, in place of the logarithm",
 r"log|sigmoid|probabilit|ln 2", SL + '''
    t = beta * (real - opponent_real.detach() - generated + opponent_generated.detach())
    return 1 - torch.sigmoid(t)
''')

# ---------------------------------------------------------------- 15 best_reply

BR = "def best_reply(p_opponent, p_real, beta):"
edits("best_reply", BR + '''
    logits = p_opponent.log() + (p_real.log() - p_opponent.log()) / beta
    return torch.softmax(logits, dim=-1)
''',
("beta in place of 1 / beta in the exponent",
 r"1 / beta|exponent|power|beta|β|1/β",
 "/ beta", "* beta"),
("the ratio is upside down: opponent over real",
 r"upside|ratio|revers|invert|opponent|order",
 "(p_real.log() - p_opponent.log())", "(p_opponent.log() - p_real.log())"),
("the power is over the product, not over the ratio alone",
 r"power|ratio|only|parenthes|exponent|whole",
 "p_opponent.log() + (p_real.log() - p_opponent.log()) / beta", "p_real.log() / beta"),
("multiplies by the writer's probabilities in place of the opponent's",
 r"opponent|writer|p_real|multipl|weight",
 "logits = p_opponent.log() +", "logits = p_real.log() +"),
("the opponent's factor is missing: only the ratio's power",
 r"opponent|missing|factor|multipl|ratio|forgot",
 "logits = p_opponent.log() + (", "logits = ("),
("beta is ignored: the reply is always the writer",
 r"beta|β|power|exponent|ignor|writer",
 " / beta", ""),
("log-probs are returned",
 r"log|probabilit|sum to 1|exp",
 "torch.softmax(", "torch.log_softmax("),
)
right("best_reply", BR + '''
    weights = [q * (p / q) ** (1 / beta) for q, p in zip(p_opponent, p_real)]
    total = sum(weights)
    return torch.stack([w / total for w in weights])
''')
right("best_reply", BR + '''
    share = 1 / beta
    return F.normalize(p_opponent.pow(1 - share) * p_real.pow(share), p=1, dim=0)
''')
wrong("best_reply", "the weights are not divided by their sum",
 r"sum|normal|divid|1\b", BR + '''
    return p_opponent * (p_real / p_opponent)**(1 / beta)
''')
wrong("best_reply", "divided by the largest weight, not by the sum",
 r"sum|largest|max|normal|divid", BR + '''
    weight = p_opponent * (p_real / p_opponent).pow(1 / beta)
    return weight / weight.max()
''')
wrong("best_reply", "divided by the Euclidean norm",
 r"norm|sum|square|divid|euclid", BR + '''
    weight = p_opponent * (p_real / p_opponent).pow(1 / beta)
    return F.normalize(weight, dim=0)
''')
wrong("best_reply", "softmax of the weights, not the weights over their sum",
 r"softmax|sum|exp|normal|divid", BR + '''
    weight = p_opponent * (p_real / p_opponent)**(1 / beta)
    return weight.softmax(0)
''')
wrong("best_reply", "1 // beta: the exponent is rounded down to a whole number",
 r"//|whole|round|exponent|1 / beta|integer", BR + '''
    weight = p_opponent * (p_real / p_opponent)**(1 // beta)
    return weight / weight.sum()
''')
wrong("best_reply", "mixes the probabilities themselves, not their logarithms",
 r"mix|linear|power|exponent|log|weight|ratio", BR + '''
    share = 1 / beta
    mixed = (1 - share) * p_opponent + share * p_real
    return mixed / mixed.sum()
''')
wrong("best_reply", "the normalised weights overwrite the opponent that was passed in",
 r"in place|in-place|input|overwr|chang|mutat|modif", BR + '''
    ratio = p_real / p_opponent
    p_opponent *= ratio**(1 / beta)
    p_opponent /= p_opponent.sum()
    return p_opponent
''')
wrong("best_reply", "divides by the mean, so that the weights sum to the number of answers",
 r"sum|mean|normal|divid", BR + '''
    weight = torch.exp(torch.log(p_opponent) + torch.log(p_real / p_opponent) / beta)
    return weight / weight.mean()
''')
wrong("best_reply", "exp in place of the power: the opponent times exp(ratio / beta)",
 r"exp|power|exponent|reward|ratio", BR + '''
    weight = p_opponent * torch.exp(p_real / p_opponent / beta)
    return weight / weight.sum()
''')

# ---------------------------------------------------------------- 15 spin_game

SG = "def spin_game(p_first, p_real, beta, n):"
edits("spin_game", SG + '''
    players = [p_first]
    while len(players) < n + 1:
        latest = players[-1]
        players.append(best_reply(latest, p_real, beta))
    return players
''',
("the opponent is always the first player",
 r"first|last player|opponent|previous|same|players\[-1\]",
 "players[-1]", "players[0]"),
("one iteration too few",
 r"too few|n \+ 1|number|iterations|off by one|length|one more",
 "< n + 1", "< n"),
("one iteration too many",
 r"too many|n \+ 1|number|iterations|off by one|length|one less",
 "< n + 1", "< n + 2"),
("writer and player are exchanged",
 r"exchang|swap|order|writer|p_real|argument",
 "best_reply(latest, p_real, beta)", "best_reply(p_real, latest, beta)"),
("every reply is made with beta 1",
 r"beta|β|\b1\b|ignor|given",
 "p_real, beta)", "p_real, 1.)"),
("returns the last player only",
 r"list|last|only|all players|every player|n \+ 1",
 "return players", "return players[-1]"),
("the first player is left out of the list",
 r"first|p_first|left out|n \+ 1|number|length",
 "return players", "return players[1:]"),
("begins with the writer",
 r"begin|first|p_first|writer|p_real|start",
 "players = [p_first]", "players = [p_real]"),
("the list is returned backwards",
 r"order|backward|revers|first",
 "return players", "return players[::-1]"),
("beta grows with every iteration",
 r"beta|β|same|iteration|grow|chang",
 "p_real, beta)", "p_real, beta * len(players))"),
)
right("spin_game", SG + '''
    if n == 0: return [p_first]
    return [p_first, *spin_game(best_reply(p_first, p_real, beta), p_real, beta, n - 1)]
''')
right("spin_game", SG + '''
    from itertools import accumulate, repeat
    return list(accumulate(repeat(None, n), lambda p, _: best_reply(p, p_real, beta), initial=p_first))
''')
wrong("spin_game", "stops as soon as the player no longer moves: the list is shorter than n + 1",
 r"stop|short|n \+ 1|n times|length|number|early", SG + '''
    players = [p_first]
    for _ in range(n):
        reply = best_reply(players[-1], p_real, beta)
        if torch.allclose(reply, players[-1]): break
        players.append(reply)
    return players
''')
wrong("spin_game", "every player is overwritten by the next one: the list holds one tensor n + 1 times",
 r"same tensor|overwr|in place|in-place|copy|chang|input|one tensor|mutat", SG + '''
    player, players = p_first, [p_first]
    for _ in range(n):
        player.copy_(best_reply(player, p_real, beta))
        players.append(player)
    return players
''')
wrong("spin_game", "the opponent is the mean of all players so far",
 r"mean|averag|last player|mixture|latest|so far", SG + '''
    players = [p_first]
    for _ in range(n):
        opponent = torch.stack(players).mean(0)
        players.append(best_reply(opponent, p_real, beta))
    return players
''')
wrong("spin_game", "the opponent is the player before the last one",
 r"before the last|second last|two|last player|previous|off by one|latest", SG + '''
    players = [p_first, best_reply(p_first, p_real, beta)][:n + 1]
    for i in range(1, n): players.append(best_reply(players[i - 1], p_real, beta))
    return players
''')
wrong("spin_game", "new players are put in front, but the reply is to the first of all",
 r"front|order|insert|first|append|last player", SG + '''
    players = [p_first]
    for _ in range(n): players.insert(0, best_reply(players[-1], p_real, beta))
    return players
''')

# ---------------------------------------------------------------- 16 bellman_targets

BT = "def bellman_targets(x, value, config):"
edits("bellman_targets", BT + '''
    g = discounts(x, config)
    G = monte_carlo_returns(x, g)
    y = torch.zeros_like(x.reward)
    for b in range(len(x.mask)):
        at = x.mask[b].nonzero()[:, 0].tolist()
        goes_on = config.on_truncation == "bootstrap" and not x.ended[b]
        for k, i in enumerate(at):
            end = min(k + config.n_step, len(at)) - 1           # the last reward that is summed
            total = x.reward.new_zeros(())
            if end < len(at) - 1 or goes_on: total = value[b, at[end]]
            for j in reversed(at[k:end + 1]): total = x.reward[b, j] + g[b, j] * total
            if config.mc_bound and not goes_on: total = torch.maximum(total, G[b, i])
            y[b, i] = total
    return y
''',
("the value after eos enters: an ended row is bootstrapped",
 r"eos|end|last token|terminal|nothing follows|leak",
 "if end < len(at) - 1 or goes_on: total", "if True: total"),
("a truncated row is bootstrapped although on_truncation is terminal",
 r"on_truncation|terminal|truncat|bootstrap",
 'config.on_truncation == "bootstrap" and not x.ended[b]', "not x.ended[b]"),
("a truncated row is never bootstrapped",
 r"on_truncation|bootstrap|truncat|goes on",
 'config.on_truncation == "bootstrap" and not x.ended[b]', "False"),
("with bootstrap the rows that ended are bootstrapped, too",
 r"ended|eos|bootstrap|truncat|nothing follows",
 'config.on_truncation == "bootstrap" and not x.ended[b]', 'config.on_truncation == "bootstrap"'),
("the observed return bounds a row that bootstraps, too",
 r"bound|bootstrap|mc|return|truncat",
 "if config.mc_bound and not goes_on:", "if config.mc_bound:"),
("the smaller of target and observed return: an upper bound",
 r"min|max|at least|bound|larger|smaller",
 "torch.maximum(total, G[b, i])", "torch.minimum(total, G[b, i])"),
("the bound is used whatever mc_bound says",
 r"mc_bound|bound|setting|return|asked",
 "if config.mc_bound and not goes_on:", "if not goes_on:"),
("sums one reward more than n_step",
 r"n_step|n-step|one (reward|step)|off by one|steps|too many|rewards",
 "min(k + config.n_step, len(at)) - 1", "min(k + config.n_step + 1, len(at)) - 1"),
("n_step is ignored: always one step",
 r"n_step|n-step|steps|ignor|one step",
 "min(k + config.n_step, len(at)) - 1", "k"),
("the reward is discounted, too",
 r"discount|gamma|γ|reward",
 "x.reward[b, j] + g[b, j] * total", "g[b, j] * (x.reward[b, j] + total)"),
("gamma in every place, though per response it acts once",
 r"discount_per|per response|gamma|γ|discounts|once",
 "g = discounts(x, config)", "g = torch.full_like(x.reward, config.gamma)"),
("the target is the observed return wherever it may be: the value is not read",
 r"value|monte|observed|return|bootstrap|max",
 "total = torch.maximum(total, G[b, i])", "total = G[b, i]"),
)
right("bellman_targets", BT + '''
    gamma, last, end = discounts(x, config), x.last(), x.ended
    if config.on_truncation == "terminal": end = torch.ones_like(end)
    final = last & end[:, None]
    one_step = x.reward + gamma * torch.where(final, torch.zeros_like(value), value)
    target = one_step
    for step in range(1, config.n_step):
        ahead = x.reward + gamma * x.ahead(target)
        target = torch.where(last, one_step, ahead)
    if config.mc_bound:
        seen = monte_carlo_returns(x, gamma)
        target = torch.where(end[:, None] & (seen > target), seen, target)
    return torch.where(x.mask, target, torch.zeros_like(target))
''')
right("bellman_targets", BT + '''
    b, t = x.mask.shape
    gamma, whole = discounts(x, config), x.ended | (config.on_truncation != "bootstrap")
    rows = []
    for i in range(b):
        keep = x.mask[i]
        r, g, v = x.reward[i][keep].tolist(), gamma[i][keep].tolist(), value[i][keep].tolist()
        n, mc = len(r), 0.
        if n and whole[i]: v[-1] = 0.
        y = [a + d * c for a, d, c in zip(r, g, v)]
        one = list(y)
        for _ in range(config.n_step - 1):
            y = [one[k] if k == n - 1 else r[k] + g[k] * y[k + 1] for k in range(n)]
        if config.mc_bound and whole[i]:
            for k in reversed(range(n)):
                mc = r[k] + g[k] * mc
                y[k] = max(y[k], mc)
        row = x.reward.new_zeros(t)
        row[keep] = torch.tensor(y).to(row)
        rows.append(row)
    return torch.stack(rows)
''')
BELL = BT + '''
    discount, last = discounts(x, config), x.last()
    whole = x.ended[:, None] | (config.on_truncation == "terminal")
    one = x.reward + discount * value.masked_fill(last & whole, 0.)
    y = one
    for _ in range(config.n_step - 1):
        y = torch.where(last, one, x.reward + discount * x.ahead(y))
    if config.mc_bound:
        y = torch.where(whole, y.maximum(monte_carlo_returns(x, discount)), y)
    return y.masked_fill(~x.mask, 0.)
'''
wrong("bellman_targets", "targets outside the response are not 0",
 r"outside|mask|prompt|pad|0 where", BELL.replace("y.masked_fill(~x.mask, 0.)", "y"))
wrong("bellman_targets", "the next column in place of the next token: a gap is not stepped over",
 r"gap|next token|ahead|column|tool|stepped|piece", BELL.replace(
 "x.ahead(y)", "torch.cat([y[:, 1:], 0 * y[:, :1]], 1)"))
wrong("bellman_targets", "reads the value one column late",
 r"value|column|shift|late|state after|index|off by one", BELL.replace(
 "value.masked_fill", "F.pad(value, (0, 1))[:, 1:].masked_fill"))
wrong("bellman_targets", "takes the last column for the last token: values after eos leak where a row is shorter",
 r"last column|last token|short|pad|leak|eos|last\(\)", BELL.replace(
 "x.last()", "F.one_hot(torch.full((len(x.mask),), x.mask.shape[1] - 1), x.mask.shape[1]).bool()"))
wrong("bellman_targets", "writes 0 into the values that were passed in",
 r"passed in|writes|written|in place|in-place|input|overwr|chang|mutat|modif", BELL.replace("value.masked_fill(", "value.masked_fill_("))
wrong("bellman_targets", "with several steps the value is added at every step on the way, not once at the end",
 r"every step|once|n_step|value|n-step|before a value|end of the sum|steps", BELL.replace(
 "x.reward + discount * x.ahead(y))", "one + discount * x.ahead(y))"))
wrong("bellman_targets", "the value is added undiscounted",
 r"discount|gamma|γ", BELL.replace("x.reward + discount * value", "x.reward + value"))
wrong("bellman_targets", "near the end, where fewer than n rewards are left, one step is taken instead of all that are left",
 r"n_step|n-step|end|left|stop at|last token|fewer|steps", BT + '''
    g, whole = discounts(x, config), x.ended | (config.on_truncation == "terminal")
    mc = monte_carlo_returns(x, g)
    y = torch.zeros_like(x.reward)
    for b, row in enumerate(x.mask):
        at = row.nonzero().flatten().tolist()
        for k, i in enumerate(at):
            n = config.n_step if k + config.n_step <= len(at) else 1
            stop = k + n - 1
            v = value[b, at[stop]] * (0. if stop == len(at) - 1 and whole[b] else 1.)
            for j in at[k:stop + 1][::-1]: v = x.reward[b, j] + g[b, j] * v
            y[b, i] = max(v, mc[b, i]) if config.mc_bound and whole[b] else v
    return y
''')
wrong("bellman_targets", "takes the largest of the one-step to the n-step targets",
 r"largest|max|n_step|n-step|best of|one-step|steps", BT + '''
    g = discounts(x, config)
    whole = x.ended[:, None] | (config.on_truncation == "terminal")
    bare = value * ~(x.last() & whole)
    targets = [x.reward + g * bare]
    while len(targets) < config.n_step:
        more = x.reward + g * x.ahead(targets[-1])
        targets.append(torch.where(x.last(), targets[0], more))
    y = torch.stack(targets).amax(0)
    if config.mc_bound: y = torch.where(whole, torch.maximum(y, monte_carlo_returns(x, g)), y)
    return y * x.mask
''')
wrong("bellman_targets", "the observed return that bounds is not discounted",
 r"discount|gamma|γ|bound|return", BT + '''
    g = discounts(x, config)
    final = x.last() & (x.ended[:, None] | (config.on_truncation == "terminal"))
    one = x.reward + g * value.masked_fill(final, 0.)
    y = one
    for _ in range(1, config.n_step):
        y = torch.where(x.last(), one, x.reward + g * x.ahead(y))
    if config.mc_bound:
        to_go = (x.reward * x.mask).flip(1).cumsum(1).flip(1)
        closed = x.ended | (config.on_truncation == "terminal")
        y[closed] = torch.maximum(y, to_go)[closed]
    return torch.where(x.mask, y, 0.)
''')
wrong("bellman_targets", "counts the discount from the start of the response: token k's target is multiplied by gamma**k",
 r"discount|gamma|γ|start|power|first token|position", BT + '''
    g = discounts(x, config)
    whole = x.ended[:, None] | (config.on_truncation == "terminal")
    one = x.reward + g * torch.where(x.last() & whole, 0., value)
    y = one
    for _ in range(config.n_step - 1): y = torch.where(x.last(), one, x.reward + g * x.ahead(y))
    if config.mc_bound: y = torch.where(whole, y.maximum(monte_carlo_returns(x, g)), y)
    so_far = torch.cat([torch.ones_like(g[:, :1]), torch.where(x.mask, g, 1.).cumprod(1)[:, :-1]], 1)
    return torch.where(x.mask, so_far * y, 0.)
''')
wrong("bellman_targets", "with bootstrap no row at all is bounded, those that ended neither",
 r"bound|bootstrap|ended|eos|mc", BT + '''
    gamma, last = discounts(x, config), x.last()
    open_end = (config.on_truncation == "bootstrap") & ~x.ended
    v = torch.where(last & ~open_end[:, None], torch.zeros_like(value), value)
    first = torch.addcmul(x.reward, gamma, v)
    y, k = first, 1
    while k < config.n_step:
        y, k = torch.where(last, first, torch.addcmul(x.reward, gamma, x.ahead(y))), k + 1
    if config.mc_bound and config.on_truncation == "terminal":
        y = torch.maximum(y, monte_carlo_returns(x, gamma))
    return torch.where(x.mask, y, torch.zeros_like(y))
''')

# ---------------------------------------------------------------- 16 q_loss

QL = "def q_loss(nets, x, config):"
edits("q_loss", QL + '''
    after = hidden_states(nets.online, x.seqs)
    target = bellman_targets(x, next_values(nets, x, after, config), config)
    before = torch.zeros_like(after)
    before[:, 1:] = after[:, :-1]
    keep = x.mask
    head, taken = nets.online.get_output_embeddings(), x.seqs.ids[keep]
    s, y = before[keep], target[keep]
    q, conservative = q_terms(head, s, taken, nets.allowed, config.min_return)
    if isinstance(head, HistogramHead): first = head.cross_entropy(s, taken, y)
    else: first = .5 * (q - y).square()
    loss = (first + .5 * config.alpha * conservative).sum()
    log = {"td_loss": (q - y).square().sum().detach(),
           "conservative_loss": conservative.sum().detach(),
           "q_values": q.sum().detach(), "td_target": y.sum()}
    return loss, keep.sum(), log
''',
("the state after the token chooses it: no shift",
 r"shift|before|after|state|one place|column",
 "before[:, 1:] = after[:, :-1]", "before = after"),
("the conservative term lacks its factor one half",
 r"half|½|\.5|/ 2|alpha|factor|conservative",
 ".5 * config.alpha * conservative", "config.alpha * conservative"),
("the squared error lacks its factor one half",
 r"half|½|\.5|/ 2|factor|td|square",
 "first = .5 * (q - y).square()", "first = (q - y).square()"),
("alpha is left out",
 r"alpha|α|weight|conservative",
 ".5 * config.alpha * conservative", ".5 * conservative"),
("the conservative term is subtracted",
 r"sign|minus|subtract|add|conservative|plus",
 "first + .5 * config.alpha", "first - .5 * config.alpha"),
("the mean over the tokens instead of the sum",
 r"mean|sum|averag",
 "conservative).sum()\n", "conservative).mean()\n"),
("counts the rows instead of the tokens",
 r"rows|tokens|count|number|responses",
 "return loss, keep.sum(), log", "return loss, keep.any(1).sum(), log"),
("counts every token of the text, prompt included",
 r"prompt|response tokens|count|number|tokens|attention",
 "return loss, keep.sum(), log", "return loss, x.attention_mask.sum(), log"),
("pulls the others to 0 in place of min_return",
 r"min_return|r_min|lowest|0|pull|return",
 "nets.allowed, config.min_return)", "nets.allowed, 0.)"),
("the logged sums still carry a gradient",
 r"gradient|detach|log|sums|td_loss|requires_grad",
 ".sum().detach()", ".sum()"),
("td_loss is logged with the half",
 r"td_loss|half|log|\.5|/ 2",
 '"td_loss": (q - y)', '"td_loss": .5 * (q - y)'),
("conservative_loss is logged times alpha / 2",
 r"conservative_loss|alpha|half|log",
 '"conservative_loss": conservative', '"conservative_loss": .5 * config.alpha * conservative'),
("the means are logged, not the sums",
 r"mean|sum|log|q_values|averag",
 '"q_values": q.sum().detach(), "td_target": y.sum()', '"q_values": q.mean().detach(), "td_target": y.mean()'),
("targets and Q are taken by the frozen target network's head: nothing is learned in the head",
 r"target network|online|head|frozen|learn|gradient",
 "nets.online.get_output_embeddings()", "nets.target.get_output_embeddings()"),
("every token that may not be an action counts as one of the others",
 r"allowed|action|others|disallowed|pad",
 "taken, nets.allowed, config", "taken, torch.ones_like(nets.allowed), config"),
)
right("q_loss", QL + '''
    h = hidden_states(nets.online, x.seqs)
    y_all = bellman_targets(x, next_values(nets, x, h, config), config)
    h_before = shift_right(h)
    head = nets.online.get_output_embeddings()
    total = h.new_zeros(())
    sums = dict.fromkeys(("td_loss", "conservative_loss", "q_values", "td_target"), 0.)
    for row in range(len(x.mask)):
        m = x.mask[row]
        if not m.any(): continue
        state, a, y = h_before[row][m], x.seqs.ids[row][m], y_all[row][m]
        q, rest = q_terms(head, state, a, nets.allowed, config.min_return)
        fit_term = head.cross_entropy(state, a, y) if isinstance(head, HistogramHead) else (q - y)**2 / 2
        total = total + fit_term.sum() + config.alpha / 2 * rest.sum()
        with torch.no_grad():
            for name, z in zip(sums, ((q - y)**2, rest, q, y)): sums[name] = sums[name] + z.sum()
    return total, x.mask.sum(), sums
''')
right("q_loss", QL + '''
    ids, mask = x.seqs.ids, x.mask
    hidden = hidden_states(nets.online, x.seqs)
    head = nets.online.get_output_embeddings()
    state = shift_right(hidden)[mask]
    n, actions = len(state), ids[mask]
    y = bellman_targets(x, next_values(nets, x, hidden, config), config)[mask].detach()
    every = head(state).float()                                     # (n v)
    q = every[torch.arange(n), actions]
    other = nets.allowed.expand(n, -1).clone()
    other[torch.arange(n), actions] = False
    off = torch.where(other, every - config.min_return, 0.)
    rest = (off**2).sum(1) / (nets.allowed.sum() - 1)
    error = (q - y)**2
    first = head.cross_entropy(state, actions, y) if isinstance(head, HistogramHead) else error / 2
    loss = first.sum() + config.alpha * rest.sum() / 2
    names = "td_loss conservative_loss q_values td_target".split()
    return loss, mask.sum(), {k: v.detach().sum() for k, v in zip(names, (error, rest, q, y))}
''')
QTEXT = QL + '''
    at = x.positions()
    hidden = hidden_states(nets.online, x.seqs)
    y = bellman_targets(x, next_values(nets, x, hidden, config), config)[at]
    head, before, taken = nets.online.get_output_embeddings(), shift_right(hidden)[at], x.seqs.ids[at]
    q, others = q_terms(head, before, taken, nets.allowed, config.min_return)
    td = (q - y)**2
    misfit = head.cross_entropy(before, taken, y) if isinstance(head, HistogramHead) else td / 2
    loss = misfit.sum() + config.alpha / 2 * others.sum()
    return loss, x.mask.sum(), dict(
        td_loss=td.detach().sum(), conservative_loss=others.detach().sum(),
        q_values=q.detach().sum(), td_target=y.sum())
'''
wrong("q_loss", "all tokens of the text count, the prompt's too",
 r"prompt|response|mask|all tokens|positions", QTEXT.replace(
 "at = x.positions()", "at = x.attention_mask.nonzero(as_tuple=True)"))
wrong("q_loss", "the next token's id is taken for the action",
 r"taken|action|id|next token|shift|off by one", QTEXT.replace(
 "x.seqs.ids[at]", "x.seqs.ids.roll(-1, 1)[at]"))
wrong("q_loss", "no conservative term at all",
 r"conservative|alpha|others|term|missing", QTEXT.replace(" + config.alpha / 2 * others.sum()", ""))
wrong("q_loss", "the target is shifted along with the states",
 r"target|shift|column|twice|off by one|y_i|next", QTEXT.replace(
 "config), config)[at]", "config), config).roll(1, 1)[at]"))
wrong("q_loss", "the observed returns are the target, not the Bellman target",
 r"bellman|target|observed|return|value", QTEXT.replace(
 "bellman_targets(x, next_values(nets, x, hidden, config), config)[at]",
 "monte_carlo_returns(x, discounts(x, config))[at]"))
wrong("q_loss", "the absolute error in place of the squared one",
 r"square|abs|\*\*2|error", QTEXT.replace("td = (q - y)**2", "td = (q - y).abs()"))
wrong("q_loss", "the mean square over the others is divided by their number once more",
 r"m - 1|number|divid|mean|others|actions|once", QTEXT.replace(
 "config.alpha / 2 * others.sum()", "config.alpha / 2 * others.sum() / (nets.allowed.sum() - 1)"))
wrong("q_loss", "the state is detached: only the head learns, not the body",
 r"detach|gradient|body|hidden|learn", QTEXT.replace("shift_right(hidden)[at]", "shift_right(hidden)[at].detach()"))

right("q_loss", QL + '''
    # the formula of the text as it stands: a half of the squared error, whatever the head
    at = x.positions()
    hidden = hidden_states(nets.online, x.seqs)
    with torch.no_grad(): y = bellman_targets(x, next_values(nets, x, hidden, config), config)[at]
    q, rest = q_terms(nets.online.get_output_embeddings(), shift_right(hidden)[at], x.seqs.ids[at],
                      nets.allowed, config.min_return)
    loss = F.mse_loss(q, y, reduction="sum") / 2 + config.alpha / 2 * rest.sum()
    said = dict(td_loss=(q - y)**2, conservative_loss=rest, q_values=q, td_target=y)
    return loss, x.mask.sum(), {name: part.sum().detach() for name, part in said.items()}
''')
QSTART = QL + '''
    ids, mask = x.seqs.ids, x.mask
    hidden = hidden_states(nets.online, x.seqs)
    head = nets.online.get_output_embeddings()
    state, actions = shift_right(hidden)[mask], ids[mask]
    y = bellman_targets(x, next_values(nets, x, hidden, config), config)[mask]
    every = head(state).float()
    q = every.gather(1, actions[:, None])[:, 0]
'''
QEND = '''
    error = (q - y)**2
    first = head.cross_entropy(state, actions, y) if isinstance(head, HistogramHead) else error / 2
    loss = first.sum() + config.alpha * rest.sum() / 2
    names = "td_loss conservative_loss q_values td_target".split()
    return loss, mask.sum(), {k: v.detach().sum() for k, v in zip(names, (error, rest, q, y))}
'''
wrong("q_loss", "the action that was taken is pulled down, too: the mean runs over all m actions",
 r"taken|others|m - 1|all actions|itself|every action", QSTART + '''
    off = (every - config.min_return)**2 * nets.allowed
    rest = off.sum(1) / nets.allowed.sum()
''' + QEND)
wrong("q_loss", "the sum of the squares over the others, not their mean",
 r"m - 1|mean|sum|others|divid|number", QSTART + '''
    off = (every - config.min_return)**2 * nets.allowed
    rest = off.sum(1) - (q - config.min_return)**2
''' + QEND)
wrong("q_loss", "pulls the action that was taken, not the others",
 r"taken|others|untaken|wrong action|a_i|actions", QSTART + '''
    rest = (q - config.min_return)**2
''' + QEND)
wrong("q_loss", "the most valued other action alone is pulled, not all of them",
 r"max|mean|all (the )?others|highest|others|alone", QSTART + '''
    barred = ~nets.allowed | F.one_hot(actions, every.shape[1]).bool()
    best = every.masked_fill(barred, -math.inf).max(1).values
    rest = (best - config.min_return)**2
''' + QEND)
wrong("q_loss", "the values come from the online network, not from the target network",
 r"target network|online|next_values|\bslow|values?\b|q_target|frozen", QL + '''
    at = x.positions()
    hidden = hidden_states(nets.online, x.seqs)
    head = nets.online.get_output_embeddings()
    with torch.no_grad():
        here = hidden[at[0], x.next_action()[at] - 1]
        best = head(here).float().masked_fill(~nets.allowed, -math.inf).amax(1)
        value = torch.zeros_like(x.reward).index_put(at, best)
    y = bellman_targets(x, value, config)[at]
    before, taken = shift_right(hidden)[at], x.seqs.ids[at]
    q, rest = q_terms(head, before, taken, nets.allowed, config.min_return)
    mask, state, actions = x.mask, before, taken
''' + QEND)
wrong("q_loss", "each response is divided by its number of tokens: the loss is no sum over tokens",
 r"each response|sum|mean|length|divid|per response|number of tokens|short", QL + '''
    h = hidden_states(nets.online, x.seqs)
    y = bellman_targets(x, next_values(nets, x, h, config), config)
    head, h = nets.online.get_output_embeddings(), shift_right(h)
    loss, parts = 0., []
    for i, keep in enumerate(x.mask):
        if not keep.any(): continue
        s, a, target = h[i][keep], x.seqs.ids[i][keep], y[i][keep]
        q, rest = q_terms(head, s, a, nets.allowed, config.min_return)
        fits = head.cross_entropy(s, a, target) if isinstance(head, HistogramHead) else (q - target)**2 / 2
        loss = loss + (fits + config.alpha / 2 * rest).mean()
        parts.append(torch.stack([(q - target)**2, rest, q, target]).detach().sum(1))
    total = torch.stack(parts).sum(0)
    return loss, x.mask.sum(), dict(zip(
        ("td_loss", "conservative_loss", "q_values", "td_target"), total))
''')

# ---------------------------------------------------------------- 16 fixed_soft_update

FU = "def fixed_soft_update(slow, fast, rate, step):"
edits("fixed_soft_update", FU + '''
    moved = []
    with torch.no_grad():
        for target, online in zip(slow, fast):
            moved.append(target * (1 - rate) + online * rate)
    return moved
''',
("the share is turned around: it moves 1 - rate of the way",
 r"rate|share|1 - |turned|way|revers|swap",
 "target * (1 - rate) + online * rate", "target * rate + online * (1 - rate)"),
("moves away from the online network",
 r"sign|away|minus|direction|toward",
 "target * (1 - rate) + online * rate", "target * (1 + rate) - online * rate"),
("gradient flows to the online network",
 r"gradient|detach|no_grad|online",
 "with torch.no_grad():", "if True:"),
("until step 100 the online weights are copied",
 r"step|100|start|cop|first",
 "moved.append(target", "moved.append(online.clone() if step <= 100 else target"),
("moves at every tenth step only",
 r"tenth|every|step|10",
 "moved.append(target", "moved.append(target.clone() if step % 10 else target"),
("the rate falls with the step",
 r"step|rate|falls|smaller|divid|no difference",
 "    moved = []\n", "    moved, rate = [], rate / step\n"),
("halfway at every step, whatever the rate",
 r"half|rate|ignor|\.5|share",
 "target * (1 - rate) + online * rate", "(target + online) / 2"),
("a copy of the online network, whatever the rate",
 r"copy|copies|rate|share|whole way|all the way|online",
 "target * (1 - rate) + online * rate", "online.clone()"),
("the old share is missing: rate times the difference alone",
 r"differ|missing|old|target|added|alone|move",
 "target * (1 - rate) + online * rate", "rate * (online - target)"),
("the target keeps its whole weight: the two shares sum to more than 1",
 r"1 - |share|sum|whole|keep|differ",
 "target * (1 - rate) + online * rate", "target + online * rate"),
)
right("fixed_soft_update", FU + '''
    return [torch.lerp(a, b.detach(), rate) for a, b in zip(slow, fast)]
''')
right("fixed_soft_update", FU + '''
    out = [w.clone() for w in slow]
    for i in range(len(out)):
        out[i] += rate * (fast[i].detach() - slow[i])
    return out
''')
wrong("fixed_soft_update", "changes the target's tensors in place and returns them, no new ones",
 r"in place|in-place|new tensor|input|overwr|chang|mutat|modif", FU + '''
    for a, b in zip(slow, fast): a.lerp_(b.detach(), rate)
    return slow
''')
wrong("fixed_soft_update", "moves the first weight only",
 r"first|each weight|every weight|all weights|list|length|rest|others", FU + '''
    first = slow[0] + rate * (fast[0].detach() - slow[0])
    return [first, *(x.clone() for x in slow[1:])]
''')
wrong("fixed_soft_update", "moves on only until step 100, then stands still",
 r"step|100|stand|still|stop|no difference", FU + '''
    if step > 100: return [a.clone() for a in slow]
    return [a + rate * (b.detach() - a) for a, b in zip(slow, fast)]
''')
wrong("fixed_soft_update", "corrects for the start as Adam does: the share is divided by 1 - (1 - rate)**step",
 r"step|bias|correct|rate|no difference|share|adam", FU + '''
    share = rate / (1 - (1 - rate)**step)
    return [a + share * (b.detach() - a) for a, b in zip(slow, fast)]
''')
wrong("fixed_soft_update", "each weight is moved by the mean difference of its tensor",
 r"mean|each weight|same weight|entry|average|element", FU + '''
    return [a + rate * (b.detach() - a).mean() for a, b in zip(slow, fast)]
''')
wrong("fixed_soft_update", "takes at most the sign of the difference: a step of size rate",
 r"sign|share|size|differ|way|step of", FU + '''
    return [a + rate * torch.sign(b.detach() - a) for a, b in zip(slow, fast)]
''')
wrong("fixed_soft_update", "the weights are paired in reversed order",
 r"order|pair|revers|same weight|shape|match|zip", FU + '''
    return [a + rate * (b.detach() - a) for a, b in zip(slow, reversed(fast))]
''')
