"Wrong answers to the exercises of the chapter on faults of Q-learning."
import torch
from torch.nn import functional as F

# fixed_taken_q(logits, ids)
def pick(q, ids): return q.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
def late(q): return F.pad(q[:, :-1], (0, 0, 1, 0))
def as_it_was(logits, ids): return pick(logits, ids)
def too_early(logits, ids): return pick(F.pad(logits[:, 1:], (0, 0, 0, 1)), ids)
def rolled(logits, ids): return pick(logits.roll(1, dims=1), ids)
def best_instead(logits, ids): return late(logits.amax(-1, keepdim=True))[..., 0]
def log_probs(logits, ids): return pick(late(logits.log_softmax(-1)), ids)
def chances(logits, ids): return pick(late(logits.softmax(-1)), ids)
def no_grad(logits, ids):
    with torch.no_grad(): return pick(late(logits), ids)
def short(logits, ids): return pick(logits[:, :-1], ids[:, 1:])
def summed(logits, ids): return pick(late(logits), ids).sum(-1)
def all_of_them(logits, ids): return late(logits)

# fixed_target(reward, value, last, gamma)
def gamma_where_paid(reward, value, last, gamma):
    value = value.detach().masked_fill(last, 0.)
    return torch.where(reward == 0, value, reward + gamma * value)
def gains_only(reward, value, last, gamma): return reward.clamp(min=0) + gamma * value.detach() * ~last
def paid_or_goes_on(reward, value, last, gamma):
    return torch.where(reward != 0, reward, gamma * value.detach() * ~last)
def gate(reward, value, last, gamma):
    return torch.where(reward > 0, reward, gamma * value.detach() * ~last)
def never_over(reward, value, last, gamma): return reward + gamma * value.detach()
def no_gamma(reward, value, last, gamma): return reward + value.detach().masked_fill(last, 0.)
def all_discounted(reward, value, last, gamma): return gamma * (reward + value.detach() * ~last)
def powers(reward, value, last, gamma):
    steps = torch.arange(reward.shape[1]) + 1
    return reward + gamma**steps * value.detach() * ~last
def next_value(reward, value, last, gamma):
    return reward + gamma * torch.roll(value.detach(), -1, dims=1) * ~last
def value_before(reward, value, last, gamma):
    return reward + gamma * torch.roll(value.detach(), 1, dims=1) * ~last
def with_graph(reward, value, last, gamma): return reward + gamma * value * (~last).to(value)
def no_reward(reward, value, last, gamma): return gamma * value.detach() * ~last

# fixed_counts(real, n_prompt)
def greater(real, n_prompt): return real & (torch.arange(real.shape[1]) - 1 > n_prompt[:, None] - 1)
def states(real, n_prompt): return real & (torch.arange(real.shape[1]) >= n_prompt[:, None] - 1)
def everything(real, n_prompt): return real.clone()
def with_pads(real, n_prompt): return torch.arange(real.shape[1]) >= n_prompt[:, None]
def without_eos(real, n_prompt):
    return F.pad(real[:, 1:], (0, 1)) & (torch.arange(real.shape[1]) >= n_prompt[:, None])
def prompts(real, n_prompt): return real & (torch.arange(real.shape[1]) < n_prompt[:, None])
def first_length(real, n_prompt): return real & (torch.arange(real.shape[1]) >= n_prompt[0])
def pairs_of_rows(real, n_prompt): return real & (torch.arange(real.shape[1]) >= n_prompt[..., None, None])
def both_faults(real, n_prompt):
    return real & (torch.arange(real.shape[1]) > n_prompt[..., None, None])
def how_many(real, n_prompt): return real.sum(1) - n_prompt
def as_numbers(real, n_prompt): return real * (torch.arange(real.shape[1]) >= n_prompt[:, None]).float()

# fixed_pull(q, ids, mask, lowest)
def over(each, mask): return (each * mask).sum() / mask.sum()
def of_others(x, ids):
    keep = torch.ones_like(x).scatter(-1, ids[..., None], 0.)
    return (x * keep).sum(-1)
def dataset_actions(q, ids, mask, lowest): return over((pick(q, ids) - lowest)**2, mask)
def all_actions(q, ids, mask, lowest): return over(((q - lowest)**2).mean(-1), mask)
def by_v(q, ids, mask, lowest): return over(of_others((q - lowest)**2, ids) / q.shape[-1], mask)
def summed_others(q, ids, mask, lowest): return over(of_others((q - lowest)**2, ids), mask)
def to_zero(q, ids, mask, lowest): return over(of_others(q**2, ids) / (q.shape[-1] - 1), mask)
def plus_lowest(q, ids, mask, lowest):
    return over(of_others((q + lowest)**2, ids) / (q.shape[-1] - 1), mask)
def everywhere(q, ids, mask, lowest): return (of_others((q - lowest)**2, ids) / (q.shape[-1] - 1)).mean()
def sum_of_tokens(q, ids, mask, lowest):
    return (of_others((q - lowest)**2, ids) / (q.shape[-1] - 1))[mask].sum()
def distance(q, ids, mask, lowest): return over(of_others((q - lowest).abs(), ids) / (q.shape[-1] - 1), mask)
def squared_late(q, ids, mask, lowest): return over((of_others(q - lowest, ids) / (q.shape[-1] - 1))**2, mask)
def halved(q, ids, mask, lowest): return over(of_others((q - lowest)**2, ids) / (q.shape[-1] - 1), mask) / 2
def detached(q, ids, mask, lowest):
    return over(of_others((q.detach() - lowest)**2, ids) / (q.shape[-1] - 1), mask)

WRONG = {
    "fixed_taken_q": [
        ("shifted by one: what is read after a token says nothing about that token", as_it_was),
        ("shifted the wrong way: the states come before the tokens", too_early),
        ("the first token has no state before it, not the last one of the row: 0", rolled),
        ("that is the best Q: take the one of the token that was said", best_instead),
        ("these are log-probs: Q-values are taken as they are", log_probs),
        ("these are chances: Q-values are taken as they are", chances),
        ("no gradient reaches the network", no_grad),
        ("one column is missing: the first one is 0", short),
        ("that is a sum per row: keep one number per token", summed),
        ("those are the Q-values of all tokens: take the one that was said", all_of_them)],
    "fixed_target": [
        ("gamma stands only where something is paid: it belongs before every value", gamma_where_paid),
        ("a cost is dropped: rewards of either sign are added", gains_only),
        ("where something is paid the value still counts, unless it is the last token", paid_or_goes_on),
        ("a cost is dropped, and beside a gain the value: add both, everywhere", gate),
        ("nothing follows the last token", never_over),
        ("gamma is missing", no_gamma),
        ("the reward of this token is not discounted", all_discounted),
        ("gamma once per step: its power does not grow along the row", powers),
        ("value[i] is what stands after token i already", next_value),
        ("value[i - 1] is what stood before token i", value_before),
        ("gradient flows into the target: it is data", with_graph),
        ("the reward is missing", no_reward)],
    "fixed_counts": [
        ("the first token is left out: the last prompt token is a state in which one chooses", greater),
        ("the last prompt token counts as an action", states),
        ("the whole prompt counts", everything),
        ("pads count", with_pads),
        ("the last token, eos, is left out", without_eos),
        ("that is the prompt: turn it round", prompts),
        ("each row has a prompt length of its own", first_length),
        ("(b 1 1) beside (b t) is (b b t): each row meets every prompt length", pairs_of_rows),
        ("(b b t), and the first token of a response is missing as well", both_faults),
        ("those are numbers: a mask is True or False", as_numbers),
        ("that is how many there are in each row: True or False for every token", how_many)],
    "fixed_pull": [
        ("what was taken is pulled: it must be everything but that", dataset_actions),
        ("the taken action is among them", all_actions),
        ("the mean is over the others, one fewer than there are actions", by_v),
        ("that is the sum over the others: take their mean", summed_others),
        ("the pull is towards the minimum return, not 0", to_zero),
        ("the minimum return has the wrong sign", plus_lowest),
        ("prompt and pads count", everywhere),
        ("that is the sum over tokens: take the mean", sum_of_tokens),
        ("that is the distance: square it", distance),
        ("square each before the mean, not after", squared_late),
        ("half of it: the 1/2 stands elsewhere", halved),
        ("no gradient reaches the network", detached)]}
