"""An eighth battery, part b: written from stubs and task texts alone, without sight of the check. OWN: False where a wrong answer is a right text with one edit."""
import itertools, math, random, re, statistics, torch
import torch.nn.functional as F
from einops import rearrange, reduce, repeat
from torch import Tensor, nn, tensor
from torch.nn.functional import logsigmoid, softplus
from battery_maker import battery, quoting
from rlhf_nb.base.batches import at_least_float32
from rlhf_nb.base.candidates import max_min
from rlhf_nb.base.q_networks import (
    Episodes, HistogramHead, QConfig, QNets, best_actions, discounts, hidden_states, next_values, q_terms,
    q_terms_full)
from rlhf_nb.base.replies import escape_special_tokens, fill_template, score_regex
from rlhf_nb.base.settings import check_number
from rlhf_nb.dpo import log_ratio_gap
from rlhf_nb.grpo import _group_sums, group_centered, mean_baseline
from rlhf_nb.judge import JudgePrompt, Verdicts, pair_accuracy
from rlhf_nb.kl import kl_penalty, token_rewards
from rlhf_nb.ppo import clipped_policy_loss, clipped_value_loss
from rlhf_nb.qlearning import bellman_targets, monte_carlo_returns
from rlhf_nb.tokens import Seqs, masked_mean, shift_right

def best_reply(p_opponent, p_real, beta): # the learner's own, of the exercise before spin_game
    weight = p_opponent * (p_real / p_opponent)**(1 / beta)
    return weight / weight.sum()

WRONG, RIGHT, SLIPS, OWN, wrong, right, edits = battery(globals())
edits = quoting(edits)

# 08 PPO

edits("clipped_policy_loss", '''
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = [
        x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        for x in (logp, old_logp, advantage)]
    low, high = 1 - cliprange, 1 + cliprange
    ratio = torch.exp(logp - old_logp)
    free, bounded = ratio * advantage, ratio.clip(low, high) * advantage
    return torch.where(bounded < free, bounded, free).neg()
''',
    ("takes the larger of the two products, so the clip binds on the wrong side",
     r"larger|maximum|max\b|smaller|minimum|pessimis|bounded < free", "bounded < free", "bounded > free"),
    ("returns the objective and not the loss: the minus sign is missing",
     r"sign|minus|negat|objective|\.neg\(\)", "free).neg()", "free)"),
    ("the ratio is upside down, old over new",
     r"upside|invert|old over new|revers|swap|reciprocal|logp - old_logp|order of the", "logp - old_logp)", "old_logp - logp)"),
    ("the lower bound of the clip is 1/(1+eps), not 1-eps",
     r"lower|1 - ε|1 - eps|1 - cliprange|\.8|below 1|low end", "low, high = 1 - cliprange,", "low, high = 1 / (1 + cliprange),"),
    ("the ratio is clipped above only, never from below",
     r"lower|below|both (sides|ends)|one side|two sides|clip\(low, high\)|1 - ε|1 - eps|1 - cliprange", "clip(low, high)", "clip(max=high)"),
    ("the ratio is detached, so no gradient reaches the policy",
     r"gradient|detach", "torch.exp(logp - old_logp)", "torch.exp(logp - old_logp).detach()"))
wrong("clipped_policy_loss", "log-probs are subtracted in bf16 and raised to float32 only afterwards",
      r"bf16|bfloat16|float32|precision|dtype|raise", '''
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    log_ratio, = at_least_float32(logp - old_logp)
    advantage, = at_least_float32(advantage)
    ratio = log_ratio.exp()
    return torch.maximum(-ratio * advantage, -ratio.clamp(1 - cliprange, 1 + cliprange) * advantage)
''')
wrong("clipped_policy_loss", "clips the log-ratio to ±eps instead of the ratio to 1±eps",
      r"log.?ratio|before exp|after exp|exp\b|1 - ε|1 \+ ε|1 \+ cliprange|1 - cliprange", '''
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    new, old, a = at_least_float32(logp, old_logp, advantage)
    moved = new - old
    held = moved.clamp(-cliprange, cliprange)
    both = torch.stack([moved.exp() * a, held.exp() * a])
    return -both.amin(0)
''')
wrong("clipped_policy_loss", "always uses the clipped product, without the minimum with the free one",
      r"minimum|smaller|unclipped|free|always clip|both products|two products|pessimis|come back|flows", '''
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    new, old, a = at_least_float32(logp, old_logp, advantage)
    ratio = (new - old).exp()
    return -torch.clamp(ratio, min=1 - cliprange, max=1 + cliprange) * a
''')
wrong("clipped_policy_loss", "returns one mean over the batch, not the loss of each token",
      r"mean|average|each token|per token|shape|\(b t\)|single number|scalar", '''
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    new, old, a = at_least_float32(logp, old_logp, advantage)
    ratio = (new - old).exp()
    loss = torch.max(-ratio * a, -ratio.clamp(1 - cliprange, 1 + cliprange) * a)
    return loss.mean()
''')
right("clipped_policy_loss", '''
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    new, old, a = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (logp, old_logp, advantage))
    rho = (new - old).exp()
    held = torch.where(a > 0, rho.clamp(max=1 + cliprange), rho.clamp(min=1 - cliprange))
    return -(held * a)
''')

edits("gae", '''
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = at_least_float32(reward, value)
    advantage = torch.zeros_like(reward)
    for row in range(len(reward)):
        later, ahead = 0., 0.
        for i in reversed(mask[row].nonzero()[:, 0].tolist()):
            delta = reward[row, i] + gamma * ahead - value[row, i]
            later = delta + gamma * lam * later
            ahead = value[row, i]
            advantage[row, i] = later
    returns = torch.where(mask, advantage + value, 0.)
    return advantage, returns
''',
    ("the next value enters the TD error undiscounted",
     r"gamma|γ|discount", "+ gamma * ahead -", "+ ahead -"),
    ("the sum decays by lambda alone, gamma is missing there",
     r"gamma|γ|discount", "gamma * lam * later", "lam * later"),
    ("lambda is never used, so the advantage is that of lambda = 1",
     r"lam|λ", "gamma * lam * later", "gamma * later"),
    ("returns are A - V instead of A + V",
     r"return|a \+ v|advantage \+ value|sign", "advantage + value", "advantage - value"),
    ("returns outside the mask hold the value there, not 0",
     r"mask|outside|prompt|pad|0 where|return", "torch.where(mask, advantage + value, 0.)", "advantage + value"),
    ("the TD error does not subtract the value of the token itself",
     r"subtract|v_i|v_t|baseline|td|δ|delta|- value", " - value[row, i]\n", "\n"))
wrong("gae", "a gap inside the response ends the sum, so nothing is carried over it",
      r"gap|step(ped|s)? over|carr|inside|tool|masked (column|token|entr)|next (response )?token", '''
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = [x.masked_fill(~mask, 0.) for x in at_least_float32(reward, value)]
    b, t = reward.shape
    advantage = reward.new_zeros(b, t + 1)
    value = F.pad(value, (0, 1))
    for i in range(t - 1, -1, -1):
        delta = reward[:, i] + gamma * value[:, i + 1] - value[:, i]
        advantage[:, i] = (delta + gamma * lam * advantage[:, i + 1]) * mask[:, i]
    return advantage[:, :-1], (advantage + value)[:, :-1]
''')
wrong("gae", "after the last response token it bootstraps from the value that stands in the next column",
      r"after the last|last (response )?token|bootstrap|next column|outside|pad|v = 0|v = a = 0|beyond|end of", '''
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = at_least_float32(reward, value)
    advantage = torch.zeros_like(reward)
    t = reward.shape[1]
    for row, at in enumerate([m.nonzero().flatten().tolist() for m in mask]):
        running = 0.
        for k in range(len(at) - 1, -1, -1):
            i = at[k]
            j = at[k + 1] if k + 1 < len(at) else i + 1
            after = value[row, j] if j < t else 0.
            running = reward[row, i] + gamma * after - value[row, i] + gamma * lam * running
            advantage[row, i] = running
    return advantage, (advantage + value).masked_fill(~mask, 0.)
''')
wrong("gae", "masked entries are multiplied by 0, so a nan in the prompt or the pads spreads",
      r"nan|multipl|hold anything|whatever|masked_fill|torch\.where", '''
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = at_least_float32(reward, value)
    reward, value = reward * mask, value * mask
    next_a, next_v = torch.zeros_like(reward[:, 0]), torch.zeros_like(reward[:, 0])
    out = torch.zeros_like(reward)
    for i in reversed(range(reward.shape[1])):
        on = mask[:, i]
        now = reward[:, i] + gamma * next_v - value[:, i] + gamma * lam * next_a
        next_a, next_v = torch.where(on, now, next_a), torch.where(on, value[:, i], next_v)
        out[:, i] = now * on
    return out, out + value
''')
wrong("gae", "walks from the first token to the last, so a token collects what came before it",
      r"from the (last|end)|backward|revers|forward|direction|earlier|before it|first to|later tokens|future|past", '''
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = [x.masked_fill(~mask, 0.) for x in at_least_float32(reward, value)]
    out = torch.zeros_like(reward)
    for b, row in enumerate(mask.tolist()):
        at = [i for i, on in enumerate(row) if on]
        running = 0.
        for i, j in zip(at, at[1:] + [None]):
            after = 0. if j is None else value[b, j]
            running = reward[b, i] + gamma * after - value[b, i] + gamma * lam * running
            out[b, i] = running
    return out, out + value
''')
right("gae", '''
def gae(reward, value, mask, gamma=1., lam=.95):
    r, v = [torch.where(mask, x, 0.) for x in at_least_float32(reward, value)]
    rank = mask.cumsum(1)
    both = mask[:, :, None] & mask[:, None]             # (b i j)
    gap = rank[:, None] - rank[:, :, None]              # response tokens from i to j
    after = torch.where(both & (gap == 1), v[:, None], 0.).sum(2)
    delta = r + gamma * after - v
    decay = torch.tensor(gamma * lam, dtype=r.dtype)**gap.clamp(min=0)
    a = torch.einsum("bij,bj->bi", torch.where(both & (gap >= 0), decay, 0.), delta)
    return a, a + v
''')

edits("ppo_rewards", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    logp, ref_logp = at_least_float32(logp.detach(), ref_logp.detach())
    reward = torch.where(mask, -beta * (logp - ref_logp), 0.)
    for row, each in enumerate(score.detach()):
        at = mask[row].nonzero()[:, 0]
        if len(at) == 0: continue
        reward[row, at[-1]] += each
    return reward
''',
    ("the price has the wrong sign: leaving the reference is paid for",
     r"sign|minus|negat|-beta|penal|price", "-beta * (logp", "beta * (logp"),
    ("the score is not detached, so a gradient flows through the reward",
     r"detach|gradient", "score.detach()", "score"),
    ("the log-probs are not detached, so a gradient flows through the penalty",
     r"detach|gradient", "logp.detach(), ref_logp.detach()", "logp, ref_logp"),
    ("the score goes to the last column, a pad in shorter rows, not to the last response token",
     r"last (response |real )?token|last column|pad|at\[-1\]|outside", "reward[row, at[-1]]", "reward[row, -1]"),
    ("the score goes to the first response token",
     r"first|last", "at[-1]", "at[0]"),
    ("the score replaces the last token's penalty instead of being added to it",
     r"replac|overwr|add|plus|on top|\+= each|lost|both", "+= each", "= each"))
wrong("ppo_rewards", "every response token gets the score, not only the last one",
      r"every|each token|all (response )?tokens|only the last|last (response )?token|once", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    penalty = kl_penalty(logp, ref_logp, mask, beta)
    return (penalty + score.detach()[:, None]).masked_fill(~mask, 0.)
''')
wrong("ppo_rewards", "beta multiplies the score, too",
      r"beta|β|scale|multipl", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    with torch.no_grad():
        new, old = at_least_float32(logp, ref_logp)
        is_last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
        own = old - new + torch.where(is_last, score[:, None], 0.)
        return (beta * own).masked_fill(~mask, 0.)
''')
wrong("ppo_rewards", "the last token is found by counting from column 0, as if there were no prompt",
      r"prompt|last (response )?token|count|column|position|number of|length|begin|start|flip", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    reward = kl_penalty(logp, ref_logp, mask, beta)
    n = mask.sum(1)
    rows = n.nonzero().flatten()
    reward[rows, n[rows] - 1] += score.detach()[rows].to(reward)
    return reward
''')
wrong("ppo_rewards", "charges k3, exp(-d) - 1 + d, not the log-ratio d itself",
      r"k3|k1|estimator|log-?ratio|exp\(|logp - ref_logp|log π - log π_ref", '''
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    new, old = [x.detach().masked_fill(~mask, 0.) for x in at_least_float32(logp, ref_logp)]
    d = new - old
    penalty = -beta * (torch.exp(-d) - 1 + d)
    return token_rewards(score.detach(), penalty, mask)
''')
right("ppo_rewards", '''
@torch.no_grad()
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    t = mask.shape[1]
    place = torch.arange(t, device=mask.device).expand(mask.shape)
    last = torch.where(mask, place, -1).amax(1, keepdim=True)     # -1: an empty response
    ratio = logp.to(torch.promote_types(logp.dtype, torch.float32)) - ref_logp
    paid = torch.where(place == last, score[:, None], 0.)
    return torch.where(mask, paid - beta * ratio, 0.)
''')

edits("ppo_loss", '''
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask,
             cliprange=.2, cliprange_value=.2, vf_coef=.1):
    actor = clipped_policy_loss(logp, old_logp, advantage, cliprange)[mask]
    critic = clipped_value_loss(value, old_value, returns, cliprange_value)[mask]
    return (actor.sum() + vf_coef * critic.sum()) / mask.sum()
''',
    ("the value loss is clipped with the policy's range, cliprange_value is not used",
     r"cliprange_value|own (clip )?range|ε_v|value'?s (clip )?range|policy'?s (clip )?range", "returns, cliprange_value)", "returns, cliprange)"),
    ("cliprange is not passed on, so the policy's clip is always .2",
     r"cliprange|clip range|ε|\.2|default", "advantage, cliprange)", "advantage)"),
    ("the value loss is added without its weight vf_coef",
     r"vf_coef|weight|coefficient|\bc\b", "vf_coef * critic", "critic"),
    ("the value loss is subtracted",
     r"sign|minus|subtract|plus|\+ vf_coef|added", "+ vf_coef", "- vf_coef"),
    ("divides by the number of all entries, not by the number of response tokens",
     r"response token|numel|all entries|every entry|mask\.sum|masked|divi|pad|prompt", "/ mask.sum()", "/ mask.numel()"),
    ("the critic's value is detached, so the critic never learns",
     r"detach|gradient|critic", "clipped_value_loss(value,", "clipped_value_loss(value.detach(),"),
    ("value and old_value are swapped in the value loss",
     r"swap|order|old_value|exchang|revers|mixed up", "clipped_value_loss(value, old_value,", "clipped_value_loss(old_value, value,"))
wrong("ppo_loss", "averages each row first and then the rows, so a token of a short answer counts for more",
      r"row|per (answer|response)|each (answer|response)|whole batch|all response tokens|every token|same weight|equal|short", '''
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask,
             cliprange=.2, cliprange_value=.2, vf_coef=.1):
    each = clipped_policy_loss(logp, old_logp, advantage, cliprange)
    each = each + vf_coef * clipped_value_loss(value, old_value, returns, cliprange_value)
    rows = [line[m].mean() for line, m in zip(each, mask) if m.any()]
    return torch.stack(rows).mean()
''')
wrong("ppo_loss", "the value loss is the plain squared error, not the clipped one",
      r"clip|ε_v|cliprange_value|clipped_value_loss|old_value", '''
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask,
             cliprange=.2, cliprange_value=.2, vf_coef=.1):
    v, g = at_least_float32(value, returns)
    square = (v - g).square() / 2
    return masked_mean(clipped_policy_loss(logp, old_logp, advantage, cliprange) + vf_coef * square, mask)
''')
wrong("ppo_loss", "the value loss lacks its factor 1/2",
      r"half|1/2|½|/ 2|twice|factor|double", '''
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask,
             cliprange=.2, cliprange_value=.2, vf_coef=.1):
    new, old, a, v, v0, g = [x[mask] for x in at_least_float32(logp, old_logp, advantage, value, old_value, returns)]
    rho = (new - old).exp()
    actor = torch.max(-rho * a, -rho.clamp(1 - cliprange, 1 + cliprange) * a)
    near = v0 + (v - v0).clamp(-cliprange_value, cliprange_value)
    critic = torch.max((v - g)**2, (near - g)**2)
    return actor.mean() + vf_coef * critic.mean()
''')
right("ppo_loss", '''
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask,
             cliprange=.2, cliprange_value=.2, vf_coef=.1):
    new, old, a, v, v0, g = [x[mask] for x in at_least_float32(logp, old_logp, advantage, value, old_value, returns)]
    rho = (new - old).exp()
    actor = torch.max(-rho * a, -rho.clamp(1 - cliprange, 1 + cliprange) * a)
    near = v.clamp(v0 - cliprange_value, v0 + cliprange_value)
    critic = .5 * torch.max((v - g)**2, (near - g)**2)
    return actor.mean() + vf_coef * critic.mean()
''')

# 09 GRPO

edits("leave_one_out", '''
def leave_one_out(reward, group):
    out = torch.zeros_like(reward)
    for i in range(len(reward)):
        others = [j for j in range(len(reward))
                  if j != i and group[j] == group[i] and not reward[j].isnan()]
        if others and not reward[i].isnan():
            out[i] = reward[i] - reward[others].mean()
    return out
''',
    ("the answer itself is in its baseline: the mean is that of the whole group",
     r"itself|\bown\b|others|leave|whole group|n - 1|j != i|includ|exclu", "j != i and ", ""),
    ("the groups are ignored: the baseline is the mean of the other answers of the whole batch",
     r"group|prompt|batch", "group[j] == group[i] and ", ""),
    ("unscored answers are not left out of the mean, so one nan spoils it",
     r"nan|unscored|not scored|scored|left out", " and not reward[j].isnan()]", "]"),
    ("the sign is reversed: the others' mean less the own reward",
     r"sign|revers|minus|swap|subtract|negat|order", "reward[i] - reward[others].mean()", "reward[others].mean() - reward[i]"),
    ("an answer that was not scored gets nan, not 0",
     r"nan|unscored|not scored|scored", "if others and not reward[i].isnan():", "if others:"),
    ("takes the best of the others as the baseline, not their mean",
     r"mean|average|max|best|highest", "reward[others].mean()", "reward[others].max()"))
wrong("leave_one_out", "the others' sum is divided by n, not by n - 1",
      r"n - 1|n-1|g - 1|divi|number of (the )?others|one fewer|one less|count", '''
def leave_one_out(reward, group):
    total, n = _group_sums(reward, group)
    baseline = (total - reward) / n
    return torch.where(reward.isnan(), 0., reward - baseline).masked_fill(n < 2, 0.)
''')
wrong("leave_one_out", "an answer alone in its group gets its whole reward, not 0",
      r"alone|single|only (answer|row)|group of (one|1)|one answer|lone|no others|without others", '''
def leave_one_out(reward, group):
    total, n = _group_sums(reward, group)
    baseline = (total - reward) / (n - 1).clamp(min=1)
    return (reward - baseline).nan_to_num(0.)
''')
wrong("leave_one_out", "takes runs of equal neighbours for groups, so a group whose rows are apart falls to pieces",
      r"apart|neighbou?r|consecutive|together|adjacent|\border\b|contiguous|\bruns?\b|scatter|interleav|sorted", '''
def leave_one_out(reward, group):
    _, sizes = group.unique_consecutive(return_counts=True)
    parts = []
    for r in reward.split(sizes.tolist()):
        known = ~r.isnan()
        n = int(known.sum())
        a = r - (r.nansum() - r) / max(n - 1, 1)
        parts.append(torch.where(known, a, 0.) if n > 1 else torch.zeros_like(r))
    return torch.cat(parts)
''')
wrong("leave_one_out", "unscored answers are counted among the others as if they had scored 0",
      r"nan|unscored|not scored|scored|as 0|as zero|left out|count", '''
def leave_one_out(reward, group):
    same = (group[:, None] == group) & ~torch.eye(len(group), dtype=torch.bool)
    r = reward.nan_to_num(0.)
    n = same.sum(1)
    baseline = torch.einsum("ij,j->i", same.to(r), r) / n.clamp(min=1)
    return torch.where(reward.isnan() | (n == 0), 0., r - baseline)
''')
right("leave_one_out", '''
def leave_one_out(reward, group):
    known = ~reward.isnan()
    r = torch.where(known, reward, 0.)
    others = (group[:, None] == group) & known & ~torch.eye(len(group), dtype=torch.bool)
    n = others.sum(1)
    baseline = (others.to(r) @ r) / n.clamp(min=1)
    return torch.where(known & (n > 0), r - baseline, 0.)
''')

edits("group_normalised", '''
def group_normalised(reward, group):
    out = torch.zeros_like(reward)
    for name in group.unique():
        rows = ((group == name) & ~reward.isnan()).nonzero().flatten()
        n = len(rows)
        if n < 2: continue
        off = reward[rows] - reward[rows].sum() / n
        std = (off.square().sum() / (n - 1)).sqrt()
        out[rows] = off / (std + 1e-4)
    return out
''',
    ("the variance divides by n, not by n - 1",
     r"n - 1|n-1|g - 1|divi|unbiased|correction|bessel|sample", "/ (n - 1)", "/ n"),
    ("nothing is added to the standard deviation, so equal rewards give nan",
     r"1e-4|nan|equal|0/0|epsilon|same|10.{0,12}4|divi", "(std + 1e-4)", "std"),
    ("adds 1e-8, not 1e-4",
     r"1e-4|1e-8|epsilon|10.{0,12}4|constant|\.0001", "1e-4", "1e-8"),
    ("divides by the variance: the square root is missing",
     r"root|sqrt|varianc|standard deviation", ".square().sum() / (n - 1)).sqrt()", ".square().sum() / (n - 1))"),
    ("1e-4 is added under the square root",
     r"inside|under|outside|after|root|sqrt|1e-4", "std = (off.square().sum() / (n - 1)).sqrt()\n        out[rows] = off / (std + 1e-4)",
     "std = (off.square().sum() / (n - 1) + 1e-4).sqrt()\n        out[rows] = off / std"),
    ("rewards are not centred: the group's mean is not subtracted",
     r"mean|cent(er|re)|subtract|off /", "out[rows] = off / (", "out[rows] = reward[rows] / ("))
wrong("group_normalised", "divides by the standard deviation of the whole batch, not of the group",
      r"batch|own group|each group|group'?s (own )?(std|standard|spread)|per group|every group|of (a|its|the) group", '''
def group_normalised(reward, group):
    a = group_centered(reward, group)
    known = reward[~reward.isnan()]
    spread = known.std() if len(known) > 1 else torch.tensor(0.)
    return a / (spread + 1e-4)
''')
wrong("group_normalised", "counts unscored answers as rows with a deviation of 0, so n is too large",
      r"nan|unscored|not scored|scored|count|too large", '''
def group_normalised(reward, group):
    a = group_centered(reward, group)
    squares, n = _group_sums(a * a, group)
    std = (squares / (n - 1).clamp(min=1)).sqrt()
    return a / (std + 1e-4)
''')
wrong("group_normalised", "an answer that is alone in its group gets nan, not 0",
      r"alone|single|only (answer|row)|group of (one|1)|one answer|lone|nan|without variance", '''
def group_normalised(reward, group):
    out = torch.zeros_like(reward)
    for g in set(group.tolist()):
        own = (group == g) & ~reward.isnan()
        r = reward[own]
        out[own] = (r - r.mean()) / (r.std() + 1e-4)
    return out
''')
wrong("group_normalised", "subtracts the mean of the others, as RLOO does, not the group's mean",
      r"others|leave|rloo|whole group|group'?s mean|\bown\b|itself|\bmean\b", '''
def group_normalised(reward, group):
    total, n = _group_sums(reward, group)
    a = (reward - (total - reward) / (n - 1)).nan_to_num(0., posinf=0., neginf=0.)
    c = group_centered(reward, group)
    squares, _ = _group_sums(c**2, group)
    return a / ((squares / (n - 1).clamp(min=1)).sqrt() + 1e-4)
''')
right("group_normalised", '''
def group_normalised(reward, group):
    known = ~reward.isnan()
    r = torch.where(known, reward, 0.)
    names = group.unique()
    member = ((group[:, None] == names) & known[:, None]).to(r)               # (b g)
    n = member.sum(0)
    mean = torch.einsum("bg,b->g", member, r) / n.clamp(min=1)
    off = torch.where(known, r - (member @ mean), 0.)
    var = torch.einsum("bg,b->g", member, off * off) / (n - 1).clamp(min=1)
    std = torch.stack([var[(names == g).nonzero()[0, 0]].sqrt() for g in group]) if len(group) else r
    return off / (std + 1e-4)
''')

edits("loss_weights", '''
def loss_weights(mask, loss_type, max_length):
    b, weight = len(mask), torch.zeros(mask.shape)
    if loss_type == "dapo":
        weight[mask] = 1 / max(int(mask.sum()), 1)
    elif loss_type == "grpo":
        for i in range(b):
            n = int(mask[i].sum())
            if n: weight[i, mask[i]] = 1 / n / b
    elif loss_type == "dr_grpo":
        weight[mask] = 1 / (b * max_length) if b * max_length else torch.inf
    else: raise ValueError(f"dapo, grpo or dr_grpo, not {loss_type!r}")
    return weight
''',
    ("grpo's weights are not divided by the number of answers",
     r"answers|rows|batch|len\(mask\)|/ b|responses", "1 / n / b", "1 / n"),
    ("dr_grpo's weights are not divided by the number of answers",
     r"answers|rows|batch|len\(mask\)|b \*|responses", "1 / (b * max_length)", "1 / max_length"),
    ("dapo divides by the number of all entries, masked ones too",
     r"numel|all entries|masked|true|tokens of the batch|every entry|pad|mask\.sum", "max(int(mask.sum()), 1)", "max(mask.numel(), 1)"),
    ("another word is taken for dr_grpo, without an error",
     r"valueerror|error|raise|another|other word|unknown|refus", '''    elif loss_type == "dr_grpo":
        weight[mask] = 1 / (b * max_length) if b * max_length else torch.inf
    else: raise ValueError(f"dapo, grpo or dr_grpo, not {loss_type!r}")
''', '''    else:
        weight[mask] = 1 / (b * max_length) if b * max_length else torch.inf
'''),
    ("dr_grpo gives masked entries the weight, too",
     r"mask|0 where|outside|pad", "weight[mask] = 1 / (b * max_length) if b * max_length else torch.inf",
     "weight[:] = 1 / (b * max_length) if b * max_length else torch.inf"))
wrong("loss_weights", "dapo and grpo are exchanged",
      r"dapo|swap|exchang|mixed|other way", '''
def loss_weights(mask, loss_type, max_length):
    if loss_type == "grpo": return mask / mask.sum().clamp(min=1)
    if loss_type == "dapo": return mask / reduce(mask.float(), "b t -> b 1", "sum").clamp(min=1) / len(mask)
    if loss_type == "dr_grpo": return mask / (len(mask) * max_length)
    raise ValueError(loss_type)
''')
wrong("loss_weights", "a row without a token gets nan in grpo",
      r"nan|empty|without (a )?tokens?|clamp|0/0|by 0|no token", '''
def loss_weights(mask, loss_type, max_length):
    b = mask.shape[0]
    match loss_type:
        case "dapo": return mask.float() / max(1, mask.sum().item())
        case "grpo": return torch.stack([row.float() / row.sum() for row in mask]) / b
        case "dr_grpo": return mask.float() / (b * max_length)
    raise ValueError(f"no such loss_type: {loss_type}")
''')
wrong("loss_weights", "another word raises KeyError, not ValueError",
      r"keyerror|valueerror|raise|error|another|other word|refus", '''
def loss_weights(mask, loss_type, max_length):
    n = mask.sum(1, keepdim=True)
    divisor = dict(dapo=n.sum().clamp(min=1), grpo=n.clamp(min=1) * len(n),
                   dr_grpo=torch.tensor(len(n) * max_length))
    return mask / divisor[loss_type]
''')
wrong("loss_weights", "grpo counts the tokens of each column, not of each row",
      r"column|row|axis|dim|each (answer|response)|keepdim|sum\(1", '''
def loss_weights(mask, loss_type, max_length):
    b, t = mask.shape
    if loss_type == "dapo": w = torch.full((b, t), 1 / max(1, int(mask.sum())))
    elif loss_type == "grpo": w = 1 / (b * mask.sum(0, keepdim=True).clamp(min=1)).float().expand(b, t)
    elif loss_type == "dr_grpo": w = torch.ones(b, t) / (b * max_length)
    else: raise ValueError(f"loss_type is {loss_type}")
    return torch.where(mask, w, 0.)
''')
wrong("loss_weights", "dr_grpo divides by the longest answer of the batch, not by max_length",
      r"max_length|constant|longest|batch", '''
def loss_weights(mask, loss_type, max_length):
    b, n = len(mask), mask.sum(1, keepdim=True)
    if loss_type == "dapo": return mask / n.sum().clamp(min=1)
    if loss_type == "grpo": return mask / (n.clamp(min=1) * b)
    if loss_type == "dr_grpo": return mask / (b * n.max().clamp(min=1))
    raise ValueError("dapo, grpo or dr_grpo")
''')
right("loss_weights", '''
def loss_weights(mask, loss_type, max_length):
    n = reduce(mask.long(), "b t -> b 1", "sum")
    divisor = dict(dapo=n.sum().clamp(min=1), grpo=n.clamp(min=1) * len(n),
                   dr_grpo=torch.tensor(len(n) * max_length))
    if loss_type not in divisor: raise ValueError(f"{loss_type!r} is none of {sorted(divisor)}")
    return torch.where(mask, 1 / divisor[loss_type], 0.)
''')

edits("cispo_loss", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    with torch.no_grad():
        weight = ratio.clip(1 - epsilon, 1 + epsilon_high)
    return -(weight * advantage * torch.log(ratio))
''',
    ("the weight is not detached, so a gradient flows through it",
     r"detach|gradient|sg\[|no_grad|stop", "with torch.no_grad():", "if True:"),
    ("the minus sign is missing: an objective, not a loss",
     r"sign|minus|negat|objective", "return -(", "return ("),
    ("the logarithm of the ratio is missing",
     r"log", "torch.log(ratio)", "ratio"),
    ("the two ends of the clip are exchanged: epsilon_high bounds below and epsilon above",
     r"swap|exchang|epsilon_high|ε_high|other way|mixed|ends|1 - ε|1 - epsilon", "1 - epsilon, 1 + epsilon_high", "1 - epsilon_high, 1 + epsilon"),
    ("the weight is bounded above only and has no lower end",
     r"below|lower|at least|both|1 - ε|1 - epsilon|minimum", "clip(1 - epsilon, 1 + epsilon_high)", "clip(max=1 + epsilon_high)"))
wrong("cispo_loss", "it is PPO's clipped loss, so a token beyond the clip has no gradient",
      r"ppo|grpo|minimum|log|detach|weight|clipped (token )?loss|beyond|min\(", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    free = ratio * advantage
    held = torch.clamp(ratio, 1 - epsilon, 1 + epsilon_high) * advantage
    return -torch.minimum(free, held)
''')
wrong("cispo_loss", "the weight is the ratio itself, without the clip",
      r"clip|clamp|bound|1 \+ ε|1 \+ epsilon", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    constant = ratio.data.clone()
    return ratio.log().mul(constant).mul(advantage).neg()
''')
wrong("cispo_loss", "takes the logarithm of the clipped ratio, so a token beyond the clip has no gradient",
      r"log ρ|log of the clipped|ratio\.log|log\(ratio|unclipped|logarithm|beyond|gradient", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    held = torch.minimum(ratio.clamp(min=1 - epsilon), torch.full_like(ratio, 1 + epsilon_high))
    return -held.detach() * advantage * held.log()
''')
wrong("cispo_loss", "a token beyond the clip gets the weight 0, where it should get the bound",
      r"zero|weight 0|\b0\b|bound|beyond|drop|mask|keeps? a gradient|clamp", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    rho = ratio.detach()
    inside = (rho >= 1 - epsilon) & (rho <= 1 + epsilon_high)
    weight = torch.where(inside, rho, 0.)
    return -weight * advantage * ratio.log()
''')
wrong("cispo_loss", "returns the mean over all tokens, not one loss per token",
      r"mean|average|each token|per token|shape|\(b t\)|scalar|single number", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    weight = ratio.detach().clamp(1 - epsilon, 1 + epsilon_high)
    return -torch.mean(weight * advantage * ratio.log())
''')
right("cispo_loss", '''
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    rho = ratio.detach()
    rho = torch.where(rho < 1 - epsilon, 1 - epsilon, rho)
    rho = torch.where(rho > 1 + epsilon_high, 1 + epsilon_high, rho)
    return ratio.log().mul(rho).mul(advantage).neg()
''')

edits("fixed_groups", '''
def fixed_groups(reward, k):
    out = []
    for start in range(0, len(reward), k):
        own = reward[start:start + k]
        for i in range(k):
            others = torch.cat([own[:i], own[i + 1:]])
            out.append(own[i] - others.mean())
    return torch.stack(out)
''',
    ("the answer itself is among the others",
     r"itself|own|others|leave|includ|exclu|whole (row|group)", "others = torch.cat([own[:i], own[i + 1:]])", "others = own"),
    ("the sign is reversed: the others' mean less the own reward",
     r"sign|revers|minus|swap|subtract|negat|order", "own[i] - others.mean()", "others.mean() - own[i]"),
    ("subtracts the sum of the others, not their mean",
     r"sum|mean|divi|average|k - 1", "others.mean()", "others.sum()"),
    ("takes the best of the others, not their mean",
     r"mean|average|max|best|highest", "others.mean()", "others.max()"))
wrong("fixed_groups", "the sum of the others is divided by k, not by k - 1",
      r"k - 1|k-1|divi|one fewer|one less|number of (the )?others", '''
def fixed_groups(reward, k):
    rows = rearrange(reward, "(p k) -> p k", k=k)
    others = rows.sum(1, keepdim=True) - rows
    return rearrange(rows - others / k, "p k -> (p k)")
''')
wrong("fixed_groups", "the rows are right, but the sum runs over the prompts, along the wrong axis",
      r"axis|dim|sum\(1|sum\(0|column|across|along|different prompts|other prompts|same prompt", '''
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return (r - (r.sum(0) - r) / (k - 1)).flatten()
''')
wrong("fixed_groups", "the fault is still there: the numbers are laid out as k rows, so a column mixes prompts",
      r"view|reshape|layout|laid|mix|different prompts|prompt|-1, k|column|interleav|strid|apart", '''
def fixed_groups(reward, k):
    p = len(reward) // k
    out = reward.clone()
    for j in range(p):
        r = reward[j::p]
        out[j::p] = r - (r.sum() - r) / (k - 1)
    return out
''')
wrong("fixed_groups", "the answer itself is not taken out of the sum that is divided by k - 1",
      r"itself|own|others|- r\b|subtract|taken out|minus the answer|includ|exclu", '''
def fixed_groups(reward, k):
    parts = [part - part.sum() / (k - 1) for part in reward.split(k)]
    return torch.cat(parts)
''')
wrong("fixed_groups", "returns a table (p k), not one row of p times k numbers",
      r"flat|shape|table|one row|\(b\)|reshape|\(p k\)|2-?d|two axes|matrix", '''
def fixed_groups(reward, k):
    r = reward.reshape(-1, k)
    other = (torch.ones(k, k) - torch.eye(k)) / (k - 1)
    return r - r @ other.to(r)
''')
wrong("fixed_groups", "ignores the prompts: the baseline is the mean of all other answers",
      r"prompt|group|all other|whole batch|same prompt|ignor", '''
def fixed_groups(reward, k):
    n = len(reward)
    return torch.stack([r - (reward.sum() - r) / (n - 1) for r in reward])
''')
right("fixed_groups", '''
def fixed_groups(reward, k):
    r = rearrange(reward, "(p k) -> p k", k=k)
    other = (torch.ones(k, k).to(r) - torch.eye(k).to(r)) / (k - 1)
    return rearrange(r - torch.einsum("pj,ij->pi", r, other), "p k -> (p k)")
''')

# 10 DPO

edits("log_ratio_gap", '''
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    up = torch.promote_types(policy_chosen.dtype, torch.float32)
    chosen = policy_chosen.to(up) - ref_chosen.to(up)
    rejected = policy_rejected.to(up) - ref_rejected.to(up)
    return chosen - rejected
''',
    ("the sign is reversed: rejected minus chosen",
     r"sign|revers|chosen minus|swap|chosen - rejected|negat|order", "return chosen - rejected", "return rejected - chosen"),
    ("adds the two log-ratios instead of subtracting them",
     r"add|sum|subtract|minus|difference|plus|chosen - rejected", "return chosen - rejected", "return chosen + rejected"),
    ("the two reference log-probs are exchanged",
     r"exchang|swap|mixed|ref_chosen|ref_rejected|crossed|wrong reference|own reference",
     "- ref_chosen.to(up)\n    rejected = policy_rejected.to(up) - ref_rejected", "- ref_rejected.to(up)\n    rejected = policy_rejected.to(up) - ref_chosen"),
    ("low-precision inputs are not raised to float32",
     r"float32|bf16|bfloat16|precision|dtype|raise|half", "up = torch.promote_types(policy_chosen.dtype, torch.float32)", "up = policy_chosen.dtype"),
    ("the reference of the rejected answer is added, not subtracted",
     r"sign|plus|subtract|ref_rejected|minus|added", "policy_rejected.to(up) - ref", "policy_rejected.to(up) + ref"))
wrong("log_ratio_gap", "the reference is left out",
      r"reference|ref_|π_ref", '''
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    chosen, rejected, _, _ = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return chosen - rejected
''')
wrong("log_ratio_gap", "subtracts in low precision and raises only the result to float32",
      r"float32|bf16|bfloat16|precision|dtype|first|before|raise", '''
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    policy = policy_chosen - policy_rejected
    reference = ref_chosen - ref_rejected
    return at_least_float32(policy - reference)[0]
''')
wrong("log_ratio_gap", "divides log-probs, where the log of a ratio is a difference",
      r"divi|quotient|difference|subtract|ratio of log|minus", '''
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    four = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    pc, pr, rc, rr = four
    return pc / rc - pr / rr
''')
wrong("log_ratio_gap", "returns the mean over the pairs, not one number per pair",
      r"mean|average|each pair|per pair|shape|\(b\)|scalar|single number", '''
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    x = torch.stack(at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected))
    signs = torch.tensor([1., -1., -1., 1.]).to(x)
    return torch.einsum("fb,f->b", x, signs).mean()
''')
wrong("log_ratio_gap", "goes back to probabilities: subtracts ratios, not log-ratios",
      r"exp\b|probabilit|log-?ratio|logarithm|nats|exponent", '''
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    pc, pr, rc, rr = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    def ratio(new, old): return torch.exp(new - old)
    return ratio(pc, rc) - ratio(pr, rr)
''')
right("log_ratio_gap", '''
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    x = torch.stack(at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected))
    policy, reference = rearrange(x, "(model side) b -> model side b", side=2)
    ratio = policy - reference
    return -ratio.diff(dim=0)[0]
''')

edits("dpo_loss", '''
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    if not beta > 0: raise ValueError(f"beta is above 0, got {beta}")
    gap = log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return F.softplus(-beta * gap)
''',
    ("the sign of the gap is reversed, so the loss falls as the rejected answer becomes likelier",
     r"sign|revers|negat|minus|wrong (way|direction)|-beta|swap", "-beta * gap", "beta * gap"),
    ("a beta of 0 or below is not refused",
     r"valueerror|raise|refus|above 0|error", '    if not beta > 0: raise ValueError(f"beta is above 0, got {beta}")\n', ""),
    ("only a negative beta is refused, 0 is let through",
     r"\b0\b|zero|not beta > 0|beta <= 0", "if not beta > 0:", "if beta < 0:"),
    ("beta is not used in the loss",
     r"beta|β", "-beta * gap", "-gap"),
    ("the gap is divided by beta, not multiplied",
     r"divi|multipl|times|beta", "-beta * gap", "-gap / beta"),
    ("a wrong beta raises TypeError, not ValueError",
     r"typeerror|valueerror", "raise ValueError", "raise TypeError"))
wrong("dpo_loss", "takes the log of a sigmoid that underflows, so the loss is inf at a gap of -300",
      r"\binf\b|infinit|logsigmoid|underflow|overflow|stable|softplus|finite|-300", '''
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    check_number("beta", beta, "above 0")
    gap = log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return -(1 / (1 + torch.exp(-beta * gap))).log()
''')
wrong("dpo_loss", "returns the mean over the pairs",
      r"mean|average|per pair|each pair|shape|\(b\)|scalar|one number", '''
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    check_number("beta", beta, "above 0")
    gap = log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return F.binary_cross_entropy_with_logits(beta * gap, torch.ones_like(gap))
''')
wrong("dpo_loss", "is IPO's squared loss, (gap - 1/(2 beta)) squared, not -log sigmoid",
      r"ipo|squar|sigmoid|log", '''
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    if beta <= 0: raise ValueError("beta must be above 0")
    pc, pr, rc, rr = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return ((pc - rc) - (pr - rr) - 1 / (2 * beta))**2
''')
wrong("dpo_loss", "beta stands outside the logarithm and scales the loss",
      r"outside|inside|scale|beta|β", '''
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    if beta <= 0: raise ValueError("beta must be above 0")
    pc, pr, rc, rr = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return -beta * logsigmoid(pc - rc - pr + rr)
''')
right("dpo_loss", '''
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    if isinstance(beta, bool) or not math.isfinite(beta) or beta <= 0:
        raise ValueError(f"dpo_loss needs a beta above 0, got {beta!r}")
    pc, pr, rc, rr = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    margin = beta * ((pc - rc) - (pr - rr))
    return torch.logaddexp(torch.zeros_like(margin), -margin)
''')

# 11 compare

edits("honest_gain", '''
def honest_gain(scores, start, chooses):
    means = [row[chooses].mean().item() for row in scores]
    best = means.index(max(means))
    gains = scores[best][~chooses] - start[~chooses]
    n = len(gains)
    spread = (gains - gains.mean()).square().sum().div(n - 1).sqrt().item()
    return best, gains.mean().item(), spread / n**.5
''',
    ("the checkpoint is chosen on all questions",
     r"all questions|every question|questions that choose|chosen on|\bpick|\bselects?\b", "row[chooses].mean()", "row.mean()"),
    ("the checkpoint is chosen on the questions that report",
     r"questions that choose|questions that report|chosen on|\bpick|\bselects?\b", "row[chooses].mean()", "row[~chooses].mean()"),
    ("the gain is reported on the very questions that chose",
     r"report|the others|other questions|same questions|~chooses", "scores[best][~chooses] - start[~chooses]", "scores[best][chooses] - start[chooses]"),
    ("the gain is reported on all questions, those that chose among them",
     r"report|the others|all questions|every question|~chooses", "scores[best][~chooses] - start[~chooses]", "scores[best] - start"),
    ("the standard deviation divides by n, not by n - 1",
     r"n - 1|n-1|unbiased|correction|divi|bessel", "div(n - 1)", "div(n)"),
    ("returns the standard deviation: it is not divided by the root of n",
     r"root|sqrt|√|standard deviation|standard error|divi|n\*\*\.5", "spread / n**.5", "spread"))
wrong("honest_gain", "the error is that of two independent means, not of the differences question by question",
      r"pair|difference|question by question|independent|each question|subtract before|two means|separate", '''
def honest_gain(scores, start, chooses):
    best = int(scores[:, chooses].mean(1).argmax())
    a, b = scores[best][~chooses], start[~chooses]
    error = (a.var() / len(a) + b.var() / len(b)).sqrt()
    return best, (a.mean() - b.mean()).item(), error.item()
''')
wrong("honest_gain", "the start's mean is taken on all questions, not on those that report",
      r"start|all questions|same questions|report|others", '''
def honest_gain(scores, start, chooses):
    best = scores[:, chooses].sum(1).argmax().item()
    held = scores[best, ~chooses]
    gain = held.mean() - start.mean()
    error = (held - start[~chooses]).std() / math.sqrt(len(held))
    return best, gain.item(), error.item()
''')
wrong("honest_gain", "divides by the root of the number of all questions",
      r"all questions|every question|number of (questions|those|the)|root of|√|len\(start|len\(gains|that report|the others", '''
def honest_gain(scores, start, chooses):
    kept = [i for i, c in enumerate(chooses.tolist()) if c]
    others = [i for i, c in enumerate(chooses.tolist()) if not c]
    best = max(range(len(scores)), key=lambda c: scores[c, kept].mean().item())
    gains = [(scores[best, i] - start[i]).item() for i in others]
    return best, statistics.fmean(gains), statistics.stdev(gains) / len(start)**.5
''')
wrong("honest_gain", "takes the checkpoint with the single highest score, not with the highest mean",
      r"mean|single|one question|highest score|max", '''
def honest_gain(scores, start, chooses):
    peak = reduce(scores[:, chooses], "c q -> c", "max")
    best = peak.argmax().item()
    gains = torch.stack([a - b for a, b, c in zip(scores[best], start, chooses) if not c])
    return best, gains.mean().item(), gains.std().item() / len(gains)**.5
''')
right("honest_gain", '''
def honest_gain(scores, start, chooses):
    use = chooses.tolist()
    def mean_of(row): return statistics.fmean(x for x, c in zip(row, use) if c)
    table = scores.tolist()
    best = max(range(len(table)), key=lambda c: mean_of(table[c]))
    gains = [x - s for x, s, c in zip(table[best], start.tolist(), use) if not c]
    return best, statistics.fmean(gains), statistics.stdev(gains) / math.sqrt(len(gains))
''')

# 12 doctor

edits("kl_is_negative", '''
def kl_is_negative(kl):
    n, mean = len(kl), kl.mean()
    variance = (kl - mean).square().sum() / (n - 1)
    error = (variance / n).sqrt()
    return bool(mean < -2 * error)
''',
    ("the variance divides by n, not by n - 1",
     r"n - 1|n-1|unbiased|correction|bessel|divi", "/ (n - 1)", "/ n"),
    ("uses the standard deviation for the standard error of the mean",
     r"root of n|sqrt|√n|standard error|divi|\/ n|error of the mean", "(variance / n).sqrt()", "variance.sqrt()"),
    ("asks for one standard error, not two",
     r"two|twice|2 \*|one standard error|factor|1 standard", "-2 * error", "-error"),
    ("is true at exactly two standard errors, also of zeros without any spread",
     r"exactly|equal|strict|more than|<=|zeros?|mean < -2", "mean < -2", "mean <= -2"),
    ("takes the square root of the variance for its own: the error is variance / n without the root",
     r"root|sqrt|variance|standard deviation", "(variance / n).sqrt()", "variance / n"),
    ("the sign is wrong: true for every mean below plus two errors",
     r"sign|plus|minus|above|below 0|-2|negat|positive", "mean < -2 * error", "mean < 2 * error"))
wrong("kl_is_negative", "any mean far from 0 sets it off, a positive one, too",
      r"positive|above 0|\babs|either side|two-sided|both sides|below 0|negative", '''
def kl_is_negative(kl):
    z = kl.mean() / (kl.std() / math.sqrt(len(kl)))
    return z.abs().item() > 2
''')
wrong("kl_is_negative", "asks whether the mean is below 0 and ignores the noise",
      r"noise|standard error|\btwo\b|spread|\bstd\b", '''
def kl_is_negative(kl):
    return sum(kl.tolist()) / kl.numel() < 0
''')
wrong("kl_is_negative", "asks about a single value, the lowest, not about the mean",
      r"\bmean\b|single|lowest|\bmin\(|\bany\b|average|one value", '''
def kl_is_negative(kl):
    error = statistics.stdev(kl.tolist()) / len(kl)**.5
    return any(x < -2 * error for x in kl.tolist())
''')
wrong("kl_is_negative", "divides the standard deviation by n, not by its root",
      r"root|sqrt|√|\*\*\.5|divi", '''
def kl_is_negative(kl):
    x = kl.tolist()
    return statistics.fmean(x) + 2 * statistics.stdev(x) / len(x) < 0
''')
right("kl_is_negative", '''
def kl_is_negative(kl):
    x = kl.double().tolist()
    error = statistics.stdev(x) / math.sqrt(len(x))
    return statistics.fmean(x) < 0 and -statistics.fmean(x) > 2 * error
''')

edits("flat_while_moving", '''
def flat_while_moving(reward, kl, nats, gain):
    n = len(kl)
    half = n // 2
    moved = kl[half:].sum() / (n - half) - kl[:half].sum() / half
    gained = reward[half:].sum() / (n - half) - reward[:half].sum() / half
    return bool(moved > nats and gained < gain)
''',
    ("with an odd number the middle rollout goes to the first half",
     r"\bodd\b|middle|second half|// 2|\+ 1", "half = n // 2", "half = (n + 1) // 2"),
    ("one of the two conditions is enough: or instead of and",
     r"`?\bor\b`?.{0,40}`?\band\b`?|`and`.{0,40}`or`|\band\b, not|both (conditions|must|have)|either|one of the", "moved > nats and gained", "moved > nats or gained"),
    ("asks for a reward that grew by more than gain",
     r"less than|< gain|greater|more than gain|\bflat|direction|\bsign", "gained < gain", "gained > gain"),
    ("the two thresholds are exchanged",
     r"exchang|swap|threshold|mixed|nats.{0,40}gain|gain.{0,40}nats", "moved > nats and gained < gain", "moved > gain and gained < nats"),
    ("is true where KL grew by exactly nats",
     r"exactly|\bequal|strict|>=|> nats", "moved > nats", "moved >= nats"),
    ("a reward that falls far does not count as less than gain, because its sign is dropped",
     r"\babs|fall|fell|sign\b|negative|drop|sink|decreas", "gained < gain", "gained.abs() < gain"))
wrong("flat_while_moving", "compares the last value with the first, not the halves' means",
      r"halves|\bmeans?\b|last value|first value|end ?point|single|one value", '''
def flat_while_moving(reward, kl, nats, gain):
    def growth(x): return (x[-1] - x[0]).item()
    return growth(kl) > nats and growth(reward) < gain
''')
wrong("flat_while_moving", "compares the halves' sums, not their means",
      r"sum|mean|average|divi", '''
def flat_while_moving(reward, kl, nats, gain):
    at = len(kl) // 2
    grown = [sum(x.tolist()[at:]) - sum(x.tolist()[:at]) for x in (kl, reward)]
    return grown[0] > nats and grown[1] < gain
''')
wrong("flat_while_moving", "with an odd number the middle rollout belongs to no half",
      r"\bodd\b|middle|left out|drop|-half|n - half|no half", '''
def flat_while_moving(reward, kl, nats, gain):
    half = len(kl) // 2
    late, early = slice(len(kl) - half, None), slice(0, half)
    return bool(kl[late].mean() - kl[early].mean() > nats) and bool(
        reward[late].mean() - reward[early].mean() < gain)
''')
wrong("flat_while_moving", "a KL that shrinks by more than nats counts as grown, too",
      r"shr(i|a|u)nk|fall|fell|\babs|sign|decreas|direction|lower", '''
def flat_while_moving(reward, kl, nats, gain):
    half = len(reward) // 2
    both = torch.stack([kl, reward])
    change = both[:, half:].mean(1) - both[:, :half].mean(1)
    return bool(change[0].abs() > nats) and bool(change[1] < gain)
''')
right("flat_while_moving", '''
def flat_while_moving(reward, kl, nats, gain):
    half = len(kl) // 2
    first, second = torch.stack([kl, reward]).split([half, len(kl) - half], dim=1)
    moved, gained = (second.mean(1) - first.mean(1)).tolist()
    return moved > nats and gained < gain
''')

# 13 judge

edits("judge_messages", '''
def judge_messages(tokenizer, prompt, answers):
    messages = []
    for answer in answers:
        texts = [escape_special_tokens(tokenizer, text) for text in answer]
        messages.append(prompt.render(*texts))
    return messages
''',
    ("nothing is escaped",
     r"escap|special token|<eos>|<unk>", "escape_special_tokens(tokenizer, text) for text in answer", "text for text in answer"),
    ("only the last text of an answer is escaped, the question and the first of two answers are not",
     r"every text|each text|question|first|only the last|all (the )?texts|prompt|outside|only the response",
     "[escape_special_tokens(tokenizer, text) for text in answer]", "[*answer[:-1], escape_special_tokens(tokenizer, answer[-1])]"),
    ("the question is escaped, the answers after it are not",
     r"every text|each text|answers?\b|response|only the (first|question|prompt)|rest|all (the )?texts",
     "[escape_special_tokens(tokenizer, text) for text in answer]", "[escape_special_tokens(tokenizer, answer[0]), *answer[1:]]"),
    ("the filled-in message is escaped, so the template loses its own special tokens",
     r"template|own special|before|after|whole message|rendered|render",
     '''        texts = [escape_special_tokens(tokenizer, text) for text in answer]
        messages.append(prompt.render(*texts))
''', '''        messages.append(escape_special_tokens(tokenizer, prompt.render(*answer)))
'''),
    ("the list is handed over as one text instead of being taken apart",
     r"apart|unpack|\bstar\b|\*texts|argument|as one|missing", "prompt.render(*texts)", "prompt.render(texts)"))
wrong("judge_messages", "takes every answer apart into two texts, so a pair of answers cannot be asked about",
      r"three|pair|too many|two texts|unpack|first, second|second|pairwise|any number", '''
def judge_messages(tokenizer, prompt, answers):
    return [prompt.render(escape_special_tokens(tokenizer, question), escape_special_tokens(tokenizer, response))
            for question, response in answers]
''')
wrong("judge_messages", "the texts are handed over in reverse order",
      r"order|revers|swap|exchang|question|first", '''
def judge_messages(tokenizer, prompt, answers):
    def clean(text): return escape_special_tokens(tokenizer, text)
    return [prompt.render(*map(clean, answer[::-1])) for answer in answers]
''')
wrong("judge_messages", "replaces only the eos, other special tokens get through",
      r"only (the )?(eos|one)|other special|<\|assistant\|>|all special|every special|turn|escape_special_tokens|special token", '''
def judge_messages(tokenizer, prompt, answers):
    eos, unk = tokenizer.eos_token, tokenizer.unk_token
    return [prompt.render(*[text.replace(eos, unk) for text in answer]) for answer in answers]
''')
wrong("judge_messages", "deletes special tokens where they should be replaced by <unk>",
      r"delet|remov|<unk>|unk|replac|vanish", '''
def judge_messages(tokenizer, prompt, answers):
    messages = []
    for answer in answers:
        texts = []
        for text in answer:
            for token in sorted(tokenizer.all_special_tokens, key=len, reverse=True):
                if token != tokenizer.unk_token: text = text.replace(token, "")
            texts.append(text)
        messages.append(prompt.render(*texts))
    return messages
''')
wrong("judge_messages", "joins all messages into one text instead of a list",
      r"list|join|one text|one (string|str)|string|separate|each answer", '''
def judge_messages(tokenizer, prompt, answers):
    parts = [prompt.render(*[escape_special_tokens(tokenizer, t) for t in a]) for a in answers]
    return "\\n".join(parts)
''')
right("judge_messages", '''
def judge_messages(tokenizer, prompt, answers):
    from functools import partial
    clean = partial(escape_special_tokens, tokenizer)
    return list(itertools.starmap(prompt.render, (tuple(map(clean, answer)) for answer in answers)))
''')

edits("parse_score", '''
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    places = list(score_regex(pattern, high).finditer(text))
    if not places: return None
    digits = places[-1 if last else 0].group(1)
    if digits is None: return None
    number = float(digits)
    return 0. + number if low <= number <= high else None
''',
    ("the bounds themselves are refused",
     r"bound|inclusive|strict|equal|edge|<=|limit|low\b|high\b", "low <= number <= high", "low < number < high"),
    ("a number outside low to high is returned",
     r"outside|range|bound|low|high|45", "0. + number if low <= number <= high else None", "0. + number"),
    ("the first place counts where the last should, and the other way round",
     r"first|last|-1 if last|other way|swap|revers", "-1 if last else 0", "0 if last else -1"),
    ("`last` is not read, the last place always counts",
     r"last|first|ignor", "places[-1 if last else 0]", "places[-1]"),
    ("a reply without any place raises an error",
     r"no place|empty|error|indexerror|raise|none|without", "    if not places: return None\n", ""),
    ("the number is cut to a whole one",
     r"whole|\bint\b|integer|fraction|decimal|\bcut\b|truncat|float\(", "float(digits)", "float(int(float(digits)))"),
    ("the pattern is not used: it always looks for Score:",
     r"pattern", "score_regex(pattern, high)", 'score_regex("Score: {{ reward }}", high)'))
wrong("parse_score", "takes the last place that has a number, though the last place of all has none",
      r"last place|place|none|skip|earlier|without a (good )?number|empty|first choose|choose the place", '''
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    numbers = [float(m[1]) for m in score_regex(pattern, high).finditer(text) if m[1] is not None]
    if not numbers: return None
    number = numbers[-1] if last else numbers[0]
    return number + 0. if low <= number <= high else None
''')
wrong("parse_score", "a score of 0 is lost, because 0 counts as false",
      r"\b0\b|zero|falsy|false|truth", '''
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    value = None
    for m in score_regex(pattern, high).finditer(text):
        value = float(m[1]) if m[1] else None
        if not last: break
    if value and low <= value <= high: return value
    return None
''')
wrong("parse_score", "a number outside the range is moved to its nearest end",
      r"clamp|clip|nearest|outside|range|moved|cut|none|high|min\(", '''
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    found = [m[1] for m in score_regex(pattern, high).finditer(text)]
    if not found: return None
    picked = found[-1] if last else found[0]
    return None if picked is None else min(max(float(picked), low), high)
''')
right("parse_score", '''
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    digits = None
    for place in score_regex(pattern, high).finditer(text):
        digits = place.group(1)
        if not last: break
    if digits is None or not low <= float(digits) <= high: return None
    return float(digits) or 0.
''')

edits("agreement", '''
def agreement(verdicts, true):
    score = verdicts.score()
    known = ~score.isnan()
    s, g = score[known].double(), true[known].double()
    r = s.round()
    ds, dg = s - s.mean(), g - g.mean()
    p_o = (r == g).double().mean().item()
    p_e = sum(((r == k).double().mean() * (g == k).double().mean()).item() for k in g.unique())
    return dict(parse_rate=verdicts.parse_rate(), n_unparsed=len(score) - int(known.sum()),
                vote_std=verdicts.vote_std(),
                pearson_r=((ds * dg).sum() / (ds.square().sum() * dg.square().sum()).sqrt()).item(),
                exact_match=p_o, kappa=math.nan if p_e == 1 else (p_o - p_e) / (1 - p_e),
                bias=(s - g).mean().item(), pair_accuracy=pair_accuracy(score, true))
''',
    ("kappa is not divided by 1 - p_e",
     r"kappa", "(p_o - p_e) / (1 - p_e)", "p_o - p_e"),
    ("the bias has the wrong sign: gold less score",
     r"bias", "bias=(s - g)", "bias=(g - s)"),
    ("halves are rounded up, not to the even number",
     r"\bhalf\b|halves|to (the )?even|even number|\bround|\.5\b", "r = s.round()", "r = (s + .5).floor()"),
    ("kappa is 0, not nan, where p_e is 1",
     r"kappa|nan|p_e", "kappa=math.nan if", "kappa=0. if"),
    ("the bias is that of the rounded scores",
     r"bias", "bias=(s - g)", "bias=(r - g)"),
    ("n_unparsed counts replies without a score, not answers",
     r"n_unparsed|unparsed", "n_unparsed=len(score) - int(known.sum())", "n_unparsed=int(verdicts.votes.isnan().sum())"),
    ("pair accuracy is computed from rounded scores",
     r"pair_accuracy|pair accuracy|pairs", "pair_accuracy(score, true)", "pair_accuracy(score.round(), true)"))
wrong("agreement", "exact match counts an answer without a score as a miss, where it should be left out",
      r"exact|left out|unscored|without a score|nan|unparsed|p_o", '''
def agreement(verdicts, true):
    score = verdicts.score()
    ok = score.isfinite()
    both = torch.stack([score[ok].double(), true[ok].double()])
    rounded = both[0].round()
    hit = (score.double().round() == true.double()).double().mean().item()
    p_o = (rounded == both[1]).double().mean().item()
    by_luck = (rounded[:, None] == both[1][None]).double().mean().item()
    return {"parse_rate": verdicts.parse_rate(), "n_unparsed": int((~ok).sum()),
            "vote_std": verdicts.vote_std(), "pearson_r": torch.corrcoef(both)[0, 1].item(),
            "exact_match": hit, "kappa": (p_o - by_luck) / (1 - by_luck) if by_luck < 1 else math.nan,
            "bias": both[0].mean().item() - both[1].mean().item(),
            "pair_accuracy": pair_accuracy(score, true)}
''')
wrong("agreement", "p_e is 1/6, as if every score from 0 to 5 were equally common",
      r"kappa|p_e|chance|frequenc|uniform|1/6", '''
def agreement(verdicts, true):
    score = verdicts.score()
    rows = [i for i, a in enumerate(score.tolist()) if not math.isnan(a)]
    s, g = score.double()[rows], true.double()[rows]
    match = (s.round() == g).double().mean().item()
    return dict(parse_rate=verdicts.parse_rate(), n_unparsed=len(score) - len(rows),
                vote_std=verdicts.vote_std(), pearson_r=torch.corrcoef(torch.stack([s, g]))[0, 1].item(),
                exact_match=match, kappa=(match - 1 / 6) / (1 - 1 / 6), bias=(s - g).mean().item(),
                pair_accuracy=pair_accuracy(score, true))
''')
wrong("agreement", "exact match compares the scores as they are, not rounded",
      r"exact|rounded", '''
def agreement(verdicts, true):
    score = verdicts.score()
    keep = (~score.isnan()).nonzero().flatten()
    s, g = score[keep].double(), true[keep].double()
    match = torch.eq(s, g).double().mean().item()
    chance = torch.eq(s.round()[:, None], g).double().mean().item()
    rounded_match = torch.eq(s.round(), g).double().mean().item()
    kappa = (rounded_match - chance) / (1 - chance) if chance < 1 else math.nan
    return dict(parse_rate=verdicts.parse_rate(), n_unparsed=len(score) - len(keep), vote_std=verdicts.vote_std(),
                pearson_r=torch.corrcoef(torch.stack([s, g]))[0, 1].item(), exact_match=match,
                kappa=kappa, bias=(s - g).mean().item(), pair_accuracy=pair_accuracy(score, true))
''')
right("agreement", '''
def agreement(verdicts, true):
    score = verdicts.score()
    rows = [(a, b) for a, b in zip(score.double().tolist(), true.double().tolist()) if a == a]
    n = len(rows)
    out = dict(parse_rate=verdicts.parse_rate(), n_unparsed=len(score) - n, vote_std=verdicts.vote_std(),
               pair_accuracy=pair_accuracy(score, true))
    if not n: return out | dict.fromkeys(("pearson_r", "exact_match", "kappa", "bias"), math.nan)
    said, gold = [round(a) for a, _ in rows], [b for _, b in rows]       # Python rounds halves to even, too
    p_o = sum(a == b for a, b in zip(said, gold)) / n
    same = sum(a == b for a in said for b in gold)
    kappa = math.nan if same == n * n else (p_o - same / n**2) / (1 - same / n**2)
    pearson = torch.corrcoef(torch.tensor(rows, dtype=torch.float64).T)[0, 1].item()
    return out | dict(pearson_r=pearson, exact_match=p_o, kappa=kappa, bias=sum(a - b for a, b in rows) / n)
''')

# 14 self-reward

edits("choose_pairs", '''
def choose_pairs(scores, select=max_min):
    pairs = []
    for number, row in enumerate(scores):
        scored = [(place, s) for place, s in enumerate(row) if not math.isnan(s)]
        if len(scored) > 1:
            places, values = zip(*scored)
            a, b = select(list(values))
            if values[a] != values[b]: pairs.append((number, places[a], places[b]))
    return pairs
''',
    ("returns places in the short list of scored candidates, not among all candidates",
     r"short|among all|all (its )?candidates|place|index|known|map", "places[a], places[b])", "a, b)"),
    ("a prompt with equal scores gives a pair, too",
     r"equal|tie|same score|alike", "if values[a] != values[b]: pairs", "pairs"),
    ("asks for three scores, so a prompt with exactly two gives no pair",
     r"two|three|exactly|> 1|fewer|< 2|off by one", "len(scored) > 1", "len(scored) > 2"),
    ("`select` is not used: it is always the best against the worst",
     r"select", "select(list(values))", "max_min(list(values))"),
    ("chosen and rejected are exchanged in the result",
     r"exchang|swap|order|chosen|rejected|revers", "places[a], places[b])", "places[b], places[a])"),
    ("a score of 0 is taken for no score",
     r"\b0\b|zero|falsy", "if not math.isnan(s)]", "if s > 0]"))
wrong("choose_pairs", "the first prompt without two scores ends the loop, later prompts are lost",
      r"break|continue|later|next prompt|goes on|\bends\b|\bstops\b|the rest|following|lost", '''
def choose_pairs(scores, select=max_min):
    pairs = []
    for prompt, row in enumerate(scores):
        known = [i for i in range(len(row)) if row[i] == row[i]]
        if len(known) < 2: break
        best, worst = (known[k] for k in select([row[i] for i in known]))
        if row[best] != row[worst]: pairs.append((prompt, best, worst))
    return pairs
''')
wrong("choose_pairs", "a prompt with any unscored candidate is dropped as a whole",
      r"\bnan|whole|drop|left out|others stay|unscored|without a score|still", '''
def choose_pairs(scores, select=max_min):
    out = []
    for p, row in enumerate(scores):
        if len(row) < 2 or any(math.isnan(s) for s in row): continue
        hi, lo = select(row)
        if row[hi] > row[lo] or row[hi] < row[lo]: out.append((p, hi, lo))
    return out
''')
wrong("choose_pairs", "numbers the pairs, not the prompts: after a prompt without a pair the numbers are wrong",
      r"number|\bindex|enumerate|\bcount|len\(pairs\)|shift|which prompt|place of the prompt", '''
def choose_pairs(scores, select=max_min):
    pairs = []
    for row in scores:
        known = [i for i, s in enumerate(row) if s == s]
        if len(known) >= 2:
            a, b = [known[k] for k in select([row[i] for i in known])]
            if row[a] != row[b]: pairs.append((len(pairs), a, b))
    return pairs
''')
wrong("choose_pairs", "a candidate without a score takes part as one that scored 0",
      r"nan|unscored|without a score|no score|left out|as 0|as zero", '''
def choose_pairs(scores, select=max_min):
    filled = [[0. if math.isnan(s) else s for s in row] for row in scores]
    pairs = [(p, *select(row)) for p, row in enumerate(filled)
             if sum(not math.isnan(s) for s in scores[p]) > 1]
    return [(p, a, b) for p, a, b in pairs if filled[p][a] != filled[p][b]]
''')
right("choose_pairs", '''
def choose_pairs(scores, select=max_min):
    def pair_of(prompt):
        row = scores[prompt]
        known = {place: s for place, s in enumerate(row) if s == s}
        if len(known) < 2: return ()
        at = list(known)
        chosen, rejected = map(at.__getitem__, select(list(known.values())))
        return () if known[chosen] == known[rejected] else ((prompt, chosen, rejected),)
    return list(itertools.chain.from_iterable(map(pair_of, range(len(scores)))))
''')

edits("replay_loss", '''
def replay_loss(pair_loss, old_logp, weight, mean_length):
    if not mean_length > 0: raise ValueError(f"mean_length is above 0, got {mean_length}")
    nll = old_logp.flatten().neg().sum()
    return pair_loss + weight * nll / mean_length
''',
    ("the sign of the log-probs is wrong: old tokens are made less probable",
     r"sign|negat|minus|likel|probable|plus|subtract", ".neg().sum()", ".sum()"),
    ("old log-probs are averaged, not summed",
     r"averag|\bmean (of|over|instead|where)|\.mean|not (a |the )?mean|summed|\bsum\b", ".neg().sum()", ".neg().mean()"),
    ("the replay is not divided by the mean length",
     r"mean_length|length|divi|\bt\b", "weight * nll / mean_length", "weight * nll"),
    ("the weight is missing",
     r"weight|\bw\b", "weight * nll / mean_length", "nll / mean_length"),
    ("multiplies by the mean length where it should divide",
     r"divi|multipl|mean_length|length", "nll / mean_length", "nll * mean_length"),
    ("the weight multiplies the pairs' loss, not the replay",
     r"weight|pair", "pair_loss + weight * nll / mean_length", "weight * pair_loss + nll / mean_length"))
wrong("replay_loss", "each old example is divided by its own length, not by the one mean length",
      r"own length|each row|per row|one t\b|mean_length|mean length|all rows|same|share|long", '''
def replay_loss(pair_loss, old_logp, weight, mean_length):
    check_number("mean_length", mean_length, "above 0")
    n = (old_logp != 0).sum(1).clamp(min=1)
    return pair_loss - weight * (old_logp.sum(1) / n).sum()
''')
wrong("replay_loss", "averages over the old examples, so the replay shrinks beside a sum over pairs",
      r"averag|\bmean (of|over|instead|where)|\.mean|not (a |the )?mean|summed|\bsum\b|number of (old )?(examples|rows)|batch", '''
def replay_loss(pair_loss, old_logp, weight, mean_length):
    check_number("mean_length", mean_length, "above 0")
    each = reduce(old_logp, "b t -> b", "sum")
    return pair_loss - weight / mean_length * each.mean()
''')
wrong("replay_loss", "returns one loss for each old example, not a single sum",
      r"shape|scalar|single|one number|per (old )?(example|row)|each (old )?(example|row)|vector|summed over|sum over", '''
def replay_loss(pair_loss, old_logp, weight, mean_length):
    check_number("mean_length", mean_length, "above 0")
    nll = -torch.einsum("bt->b", old_logp)
    return pair_loss + nll * (weight / mean_length)
''')
wrong("replay_loss", "adds probabilities, not negative log-probs",
      r"exp\b|probabilit|negative log|log-likelihood", '''
def replay_loss(pair_loss, old_logp, weight, mean_length):
    check_number("mean_length", mean_length, "above 0")
    real = old_logp[old_logp != 0]
    return pair_loss + weight / mean_length * (1 - real.exp()).sum()
''')
right("replay_loss", '''
def replay_loss(pair_loss, old_logp, weight, mean_length):
    check_number("mean_length", mean_length, "above 0")
    share, total = weight / mean_length, pair_loss
    for row in old_logp: total = total - share * row.sum()
    return total
''')

# 15 SPIN

edits("spin_loss", '''
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    moved_real = real - opponent_real.detach()
    moved_generated = generated - opponent_generated.detach()
    return -logsigmoid(beta * (moved_real - moved_generated))
''',
    ("the sign is reversed: the player is rewarded for the generated answer",
     r"sign|revers|swap|order|negat|direction|wrong way|rewarded|favou?r", "moved_real - moved_generated", "moved_generated - moved_real"),
    ("the opponent is not detached, so a gradient flows into it",
     r"detach|gradient|data", "opponent_real.detach()\n    moved_generated = generated - opponent_generated.detach()",
     "opponent_real\n    moved_generated = generated - opponent_generated"),
    ("the opponent's two log-probs are exchanged",
     r"exchang|swap|mixed|crossed|opponent_generated|opponent_real|opponent's|wrong answer", "opponent_real.detach()\n    moved_generated = generated - opponent_generated.detach()",
     "opponent_generated.detach()\n    moved_generated = generated - opponent_real.detach()"),
    ("beta is not used",
     r"beta|β", "beta * (moved_real - moved_generated)", "moved_real - moved_generated"),
    ("the log-ratios are divided by beta",
     r"divi|multipl|beta|times", "beta * (moved_real - moved_generated)", "(moved_real - moved_generated) / beta"),
    ("the generated answer is detached, so only the real one is learned from",
     r"detach|gradient|generated", "moved_generated = generated - opponent", "moved_generated = generated.detach() - opponent"))
wrong("spin_loss", "the opponent is left out: the player's log-probs are compared, not log-ratios",
      r"opponent|log-?ratio|reference|p_t", '''
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    t = beta * (real - generated)
    return torch.logaddexp(torch.zeros_like(t), -t)
''')
wrong("spin_loss", "exp overflows, so the loss of a badly lost pair is inf",
      r"overflow|\binf\b|infinit|softplus|stable|logsigmoid|exp\b", '''
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    t = (real - opponent_real.detach()) - (generated - opponent_generated.detach())
    return torch.log(1 + torch.exp(-beta * t))
''')
wrong("spin_loss", "returns the mean over the pairs",
      r"mean|average|per pair|each pair|shape|\(b\)|scalar|one number", '''
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    with torch.no_grad():
        base = opponent_real - opponent_generated
    return torch.stack([softplus(-beta * (r - g - o)) for r, g, o in zip(real, generated, base)]).mean()
''')
wrong("spin_loss", "beta scales the loss from outside the logarithm",
      r"outside|inside|scale|beta|β", '''
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    gap = (generated - opponent_generated.detach()) - (real - opponent_real.detach())
    return beta * softplus(gap)
''')
right("spin_loss", '''
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    with torch.no_grad():
        base = opponent_real - opponent_generated
    t = beta * (real - generated - base)
    return torch.logaddexp(torch.zeros_like(t), t.neg())
''')

edits("best_reply", '''
def best_reply(p_opponent, p_real, beta):
    ratio = p_real / p_opponent
    raised = torch.pow(ratio, 1 / beta)
    weight = torch.mul(p_opponent, raised)
    return weight / torch.sum(weight)
''',
    ("the power is beta, not 1/beta",
     r"1 / beta|1/beta|1/β|power|exponent|invers|reciprocal", "1 / beta)", "beta)"),
    ("the weights are not divided by their sum",
     r"sum|normali|add up|divid", "weight / torch.sum(weight)", "weight"),
    ("the ratio is upside down, opponent over real",
     r"upside|invert|revers|swap|exchang|real over|\bratio\b.{0,40}(wrong|other) way", "p_real / p_opponent", "p_opponent / p_real"),
    ("the ratio multiplies the real probabilities, not the opponent's",
     r"p_opponent|opponent|p_real|multipl", "torch.mul(p_opponent,", "torch.mul(p_real,"),
    ("divides by the largest weight, not by the sum",
     r"sum|largest|max", "torch.sum(weight)", "torch.max(weight)"))
wrong("best_reply", "the opponent's probability is under the power, too",
      r"only the ratio|under the power|outside|parenthes|bracket|whole product|p_opponent \*|factor", '''
def best_reply(p_opponent, p_real, beta):
    weight = (p_opponent * p_real / p_opponent)**(1 / beta)
    return weight / weight.sum()
''')
wrong("best_reply", "normalises by a softmax of the weights, not by their sum",
      r"softmax|sum|exponent|exp\b", '''
def best_reply(p_opponent, p_real, beta):
    return (p_opponent * (p_real / p_opponent).pow(1 / beta)).softmax(0)
''')
wrong("best_reply", "mixes the two distributions in a straight line instead of raising the ratio to a power",
      r"mix|linear|straight|average|power|interpol|geometric|log-?prob|exponent", '''
def best_reply(p_opponent, p_real, beta):
    share = 1 / beta
    weight = torch.lerp(p_opponent, p_real, share)
    return weight / weight.sum()
''')
wrong("best_reply", "takes exp(ratio / beta), as if the ratio were a reward, not a power of the ratio",
      r"exp\b|exponent|power|reward", '''
def best_reply(p_opponent, p_real, beta):
    weight = [p * math.exp(q / p / beta) for p, q in zip(p_opponent.tolist(), p_real.tolist())]
    return torch.tensor(weight).to(p_opponent) / sum(weight)
''')
wrong("best_reply", "leaves out the opponent's probability in front of the power",
      r"opponent|front|multipl|factor|p_opponent|times|left out|missing", '''
def best_reply(p_opponent, p_real, beta):
    log_weight = (p_real.log() - p_opponent.log()) / beta
    return torch.exp(log_weight - log_weight.logsumexp(0))
''')
right("best_reply", '''
def best_reply(p_opponent, p_real, beta):
    weight = [p * (q / p)**(1 / beta) for p, q in zip(p_opponent.tolist(), p_real.tolist())]
    total = math.fsum(weight)
    return torch.tensor([w / total for w in weight]).to(p_opponent)
''')

edits("spin_game", '''
def spin_game(p_first, p_real, beta, n):
    players = [p_first]
    while len(players) < n + 1:
        opponent = players[-1]
        players += [best_reply(opponent, p_real, beta)]
    return players
''',
    ("plays one iteration too few",
     r"too few|one (iteration )?(less|fewer|short)|n \+ 1|n times|missing|length|number of|n players", "len(players) < n + 1", "len(players) < n"),
    ("plays one iteration too many",
     r"too many|one (iteration )?more|n \+ 1|n times|length|number of", "len(players) < n + 1", "len(players) <= n + 1"),
    ("every reply is one to the first player, not to the last",
     r"first player|last player|players\[-1\]|players\[0\]|previous|latest|never changes|always|same opponent|to the (first|last)", "players[-1]", "players[0]"),
    ("opponent and writer are exchanged in the best reply",
     r"exchang|swap|order|argument|p_real|mixed|revers", "best_reply(opponent, p_real, beta)", "best_reply(p_real, opponent, beta)"),
    ("beta is not passed on: it is always 1",
     r"beta|β", "best_reply(opponent, p_real, beta)", "best_reply(opponent, p_real, 1.)"),
    ("returns only the last player, not the list",
     r"list|only the last|all players|n \+ 1|every player", "return players", "return players[-1]"))
wrong("spin_game", "the list lacks the first player",
      r"first|p_first|begin|start|n \+ 1|lack|missing|length", '''
def spin_game(p_first, p_real, beta, n):
    players, last = [], p_first
    for _ in range(n):
        last = best_reply(last, p_real, beta)
        players.append(last)
    return players
''')
wrong("spin_game", "the players come in reverse order, the last one first",
      r"order|revers|insert|append|front|last one first|first", '''
def spin_game(p_first, p_real, beta, n):
    players = [p_first]
    for _ in range(n): players.insert(0, best_reply(players[0], p_real, beta))
    return players
''')
wrong("spin_game", "the writer changes, too: the target of the next iteration is the previous player",
      r"writer|p_real|same|previous|target|changes|overwrit", '''
def spin_game(p_first, p_real, beta, n):
    players, writer = [p_first], p_real
    for _ in range(n):
        new = best_reply(players[-1], writer, beta)
        writer = players[-1]
        players.append(new)
    return players
''')
wrong("spin_game", "beta is doubled from iteration to iteration",
      r"beta|β", '''
def spin_game(p_first, p_real, beta, n):
    return list(itertools.accumulate(range(n), lambda p, t: best_reply(p, p_real, beta * 2**t), initial=p_first))
''')
right("spin_game", '''
def spin_game(p_first, p_real, beta, n):
    def step(player, _): return best_reply(player, p_real, beta)
    return [*itertools.accumulate(range(n), step, initial=p_first)]
''')

# 16 Q-learning

edits("bellman_targets", '''
def bellman_targets(x, value, config):
    gamma, y = discounts(x, config), torch.zeros_like(x.reward)
    for row in range(len(y)):
        at = x.mask[row].nonzero()[:, 0].tolist()
        over = config.on_truncation == "terminal" or bool(x.ended[row])
        observed, G = {}, 0.
        for i in at[::-1]:
            G = x.reward[row, i] + gamma[row, i] * G
            observed[i] = G
        for k, i in enumerate(at):
            steps = at[k:k + config.n_step]
            total, weight = 0., 1.
            for j in steps:
                total = total + weight * x.reward[row, j]
                weight = weight * gamma[row, j]
            if not (over and j == at[-1]): total = total + weight * value[row, j]
            if config.mc_bound and over: total = max(total, observed[i])
            y[row, i] = total
    return y
''',
    ("on_truncation is not read: a truncated row never bootstraps",
     r"bootstrap|truncat|on_truncation", 'over = config.on_truncation == "terminal" or bool(x.ended[row])', "over = True"),
    ("with bootstrap a row that ended with eos bootstraps, too",
     r"ended|eos|terminal|bootstrap|nothing follows", 'over = config.on_truncation == "terminal" or bool(x.ended[row])', 'over = config.on_truncation == "terminal"'),
    ("a row that bootstraps is bounded by its observed return, too",
     r"bound|bootstrap|observed|monte carlo|mc", "if config.mc_bound and over:", "if config.mc_bound:"),
    ("the n-step sum ends with the value after its first token, not after its last",
     r"value\[|value after|n.?step|last (of|token)|after its|first token|wrong state|state after", "weight * value[row, j]", "weight * value[row, i]"),
    ("the value enters without its discount",
     r"discount|gamma|γ|weight", "total + weight * value[row, j]", "total + value[row, j]"),
    ("gamma is taken at every token, discount_per is not read",
     r"discount_per|per response|response|discounts", "gamma, y = discounts(x, config),", "gamma, y = torch.full_like(x.reward, config.gamma),"),
    ("sums one reward more than n_step says",
     r"n_step|n rewards|one (step|reward) (more|too)|too many|off by one|n \+ 1|one more", "at[k:k + config.n_step]", "at[k:k + config.n_step + 1]"))
wrong("bellman_targets", "the next token of an n-step sum is the next column, also where a tool wrote in between",
      r"gap|ahead|next (response )?token|column|tool|piece|step(ped|s)? over", '''
def bellman_targets(x, value, config):
    discount, last = discounts(x, config), x.last()
    over = x.ended[:, None] | torch.tensor(config.on_truncation == "terminal")
    one = x.reward + discount * torch.where(last & over, 0., value)
    y = one
    for _ in range(1, config.n_step):
        later = torch.cat([y[:, 1:], y[:, -1:] * 0], 1)
        y = torch.where(last, one, x.reward + discount * later)
    if config.mc_bound: y = torch.where(over, torch.max(y, monte_carlo_returns(x, discount)), y)
    return torch.where(x.mask, y, 0.)
''')
wrong("bellman_targets", "the target is bounded by the observed return whether or not mc_bound asks for it",
      r"mc_bound|bound|asked|setting", '''
def bellman_targets(x, value, config):
    discount, last = discounts(x, config), x.last()
    over = x.ended[:, None].expand_as(last)
    if config.on_truncation == "terminal": over = torch.ones_like(last)
    y = one = x.reward + discount * value.masked_fill(over & last, 0.)
    for _ in range(config.n_step - 1): y = torch.where(last, one, x.reward + discount * x.ahead(y))
    floor = monte_carlo_returns(x, discount)
    y = torch.where(over & (floor > y), floor, y)
    return y.masked_fill(x.mask.logical_not(), 0.)
''')
wrong("bellman_targets", "outside the response it leaves what was computed there, not 0",
      r"outside|\bmask|prompt|\bpads?\b", '''
def bellman_targets(x, value, config):
    discount, last = discounts(x, config), x.last()
    over = x.ended[:, None] | (config.on_truncation == "terminal")
    one = x.reward + discount * value.masked_fill(last & over, 0.)
    y = one.clone()
    for _ in range(config.n_step - 1):
        y = torch.where(last, one, x.reward + discount * x.ahead(y))
    if config.mc_bound: y = torch.where(over, y.maximum(monte_carlo_returns(x, discount)), y)
    return y
''')
right("bellman_targets", '''
def bellman_targets(x, value, config):
    discount, last = discounts(x, config), x.last()
    over = (x.ended | (config.on_truncation == "terminal"))[:, None]
    v = torch.where(x.mask & ~(last & over), value, 0.)
    r, g, end = x.reward, discount, last.to(x.reward)
    y, weight, open_ = torch.zeros_like(r), torch.ones_like(r), torch.ones_like(r)
    for j in range(config.n_step):
        y = y + open_ * weight * r
        weight = weight * g
        stop = open_ if j == config.n_step - 1 else open_ * end
        y = y + stop * weight * v
        open_ = open_ - stop
        r, g, v, end = [x.ahead(each) for each in (r, g, v, end)]
    if config.mc_bound:
        floor = monte_carlo_returns(x, discount)
        y = torch.where(over & (floor > y), floor, y)
    return torch.where(x.mask, y, 0.)
''')

edits("q_loss", '''
def q_loss(nets, x, config):
    hidden = hidden_states(nets.online, x.seqs)
    y = bellman_targets(x, next_values(nets, x, hidden, config), config)[x.mask]
    states, taken = shift_right(hidden)[x.mask], x.seqs.ids[x.mask]
    head = nets.online.get_output_embeddings()
    q, others = q_terms(head, states, taken, nets.allowed, config.min_return)
    square = (q - y).square()
    loss = square.sum() / 2 + config.alpha * others.sum() / 2
    log = dict(td_loss=square, conservative_loss=others, q_values=q, td_target=y)
    return loss, x.mask.sum(), {name: each.detach().sum() for name, each in log.items()}
''',
    ("the states are not shifted: a token is judged by the state that has already read it",
     r"shift|before|just before|already read|state", "shift_right(hidden)[x.mask]", "hidden[x.mask]"),
    ("the squared error lacks its factor 1/2",
     r"half|1/2|½|/ 2|factor|twice|double", "square.sum() / 2", "square.sum()"),
    ("untaken actions are pulled to 0, not to config.min_return",
     r"min_return|r_min|lowest|pulled", "nets.allowed, config.min_return)", "nets.allowed, 0.)"),
    ("tokens that are no action count among the others",
     r"allowed|no action|disallowed|actions|pad", "nets.allowed, config", "torch.ones_like(nets.allowed), config"),
    ("returns the mean over the tokens, not the sum",
     r"sum|mean|average|divi", "return loss, x.mask.sum()", "return loss / x.mask.sum(), x.mask.sum()"),
    ("the logged td_loss is the sum of half the squares, not of the squares",
     r"td_loss|half|1/2|½|/ 2|twice", "td_loss=square,", "td_loss=square / 2,"),
    ("the sums for the log carry gradients",
     r"detach|gradient", "each.detach().sum()", "each.sum()"))
wrong("q_loss", "the conservative term is not weighed by alpha",
      r"alpha|α|weight", '''
def q_loss(nets, x, config):
    rows, columns = x.positions()
    hidden = hidden_states(nets.online, x.seqs)
    target = bellman_targets(x, next_values(nets, x, hidden, config), config)[rows, columns]
    q, rest = q_terms(nets.online.get_output_embeddings(), hidden[rows, columns - 1],
                      x.seqs.ids[rows, columns], nets.allowed, config.min_return)
    error = F.mse_loss(q, target, reduction="sum")
    return error / 2 + rest.sum() / 2, x.mask.sum(), dict(
        td_loss=error.detach(), conservative_loss=rest.sum().detach(), q_values=q.sum().detach(),
        td_target=target.sum())
''')
wrong("q_loss", "the values of the next states come from the online network, the target network is not used",
      r"target network|target net|next_values|nets\.target|online", '''
def q_loss(nets, x, config):
    head = nets.online.get_output_embeddings()
    hidden = hidden_states(nets.online, x.seqs)
    with torch.no_grad():
        best = head(hidden).masked_fill(~nets.allowed, -torch.inf).amax(-1)
    at = x.positions()
    y = bellman_targets(x, best, config)[at]
    q, others = q_terms(head, shift_right(hidden)[at], x.seqs.ids[at], nets.allowed, config.min_return)
    td = (q - y)**2
    return .5 * td.sum() + .5 * config.alpha * others.sum(), x.mask.sum(), dict(
        td_loss=td.sum().detach(), conservative_loss=others.sum().detach(),
        q_values=q.sum().detach(), td_target=y.sum())
''')
wrong("q_loss", "the taken action is among those that are pulled down, and the mean is over m, not m - 1",
      r"taken|others|m - 1|m-1|all actions|a ≠|other (tokens|actions)|includ|exclu", '''
def q_loss(nets, x, config):
    hidden = hidden_states(nets.online, x.seqs)
    y = bellman_targets(x, next_values(nets, x, hidden, config), config)[x.mask]
    every = nets.online.get_output_embeddings()(shift_right(hidden)[x.mask])
    q = every.gather(1, x.seqs.ids[x.mask][:, None]).squeeze(1)
    others = (every[:, nets.allowed] - config.min_return).square().mean(1)
    td = (q - y).square()
    loss = (td + config.alpha * others).sum() / 2
    return loss, x.mask.sum(), dict(zip(
        ("td_loss", "conservative_loss", "q_values", "td_target"),
        (each.detach().sum() for each in (td, others, q, y))))
''')
right("q_loss", '''
def q_loss(nets, x, config):
    head, hidden = nets.online.get_output_embeddings(), hidden_states(nets.online, x.seqs)
    target = bellman_targets(x, next_values(nets, x, hidden, config), config)
    rows, columns = x.mask.nonzero(as_tuple=True)
    every = head(hidden[rows, columns - 1])                       # (n v): the state before the token
    taken = F.one_hot(x.seqs.ids[rows, columns], every.shape[-1]).bool()
    q, y = every[taken], target[rows, columns]
    rest = nets.allowed & ~taken
    others = ((every - config.min_return)**2 * rest).sum(1) / rest.sum(1)
    td = (q - y)**2
    loss = (td / 2 + config.alpha / 2 * others).sum()
    return loss, x.mask.sum(), dict(td_loss=td.sum().detach(), conservative_loss=others.sum().detach(),
                                    q_values=q.sum().detach(), td_target=y.sum().detach())
''')

edits("fixed_soft_update", '''
def fixed_soft_update(slow, fast, rate, step):
    moved = []
    for old, new in zip(slow, fast):
        moved.append((1 - rate) * old + rate * new.detach())
    return moved
''',
    ("moves the share 1 - rate of the way, not rate",
     r"1 - rate|share|swap|exchang|rate|complement|other way", "(1 - rate) * old + rate * new", "rate * old + (1 - rate) * new"),
    ("a gradient flows to the online network",
     r"detach|gradient", "new.detach()", "new"),
    ("adds a share of the online weight without taking that share off the target's",
     r"1 - rate|add|difference|subtract|old|takes? off|grow", "(1 - rate) * old", "old"),
    ("the share shrinks with the step: rate / step",
     r"\bstep|shrink|constant|no difference", "rate * new.detach()", "rate / step * new.detach()"),
    ("moves away from the online network: the sign of the step is wrong",
     r"sign|away|minus|direction|towards|\+ rate", "(1 - rate) * old + rate * new", "(1 + rate) * old - rate * new"))
wrong("fixed_soft_update", "the target's own tensors are changed in place, not new ones made",
      r"in.?place|new tensors|mutat|overwrit|changed|same tensor|lerp_|copy", '''
@torch.no_grad()
def fixed_soft_update(slow, fast, rate, step):
    for a, b in zip(slow, fast): a.lerp_(b, rate)
    return list(slow)
''')
wrong("fixed_soft_update", "until step 100 the target is still replaced by a copy",
      r"100|replac|until|\bcopy|copied|first steps|early|\bstart", '''
def fixed_soft_update(slow, fast, rate, step):
    if step <= 100: return [b.detach().clone() for b in fast]
    return [torch.lerp(a, b.detach(), rate) for a, b in zip(slow, fast)]
''')
wrong("fixed_soft_update", "still moves at each tenth step only",
      r"tenth|every step|each step|10th|ten steps|\b10\b|step %|does not move|stays|other steps", '''
def fixed_soft_update(slow, fast, rate, step, every=10):
    if step % every: return [a.clone() for a in slow]
    return [torch.lerp(a, b.detach(), rate) for a, b in zip(slow, fast)]
''')
wrong("fixed_soft_update", "warms the rate up with the step, as averages of weights do, so the step makes a difference",
      r"\bstep|warm|no difference|constant|early|depend", '''
def fixed_soft_update(slow, fast, rate, step):
    share = max(rate, 1 - (1 + step) / (10 + step))
    return [torch.add(a, b.detach() - a, alpha=share) for a, b in zip(slow, fast)]
''')
wrong("fixed_soft_update", "returns the moves alone, not the moved weights",
      r"alone|only the (move|difference|change|step)|weights? itself|without the|\ba \+|\badd|plus|missing|starts? from|old weight|\bslow\b", '''
def fixed_soft_update(slow, fast, rate, step):
    return [rate * (b.detach() - a) for a, b in zip(slow, fast)]
''')
right("fixed_soft_update", '''
def fixed_soft_update(slow, fast, rate, step):
    with torch.no_grad():
        return list(map(lambda pair: torch.lerp(*pair, rate), zip(slow, fast)))
''')
