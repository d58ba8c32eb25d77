"Wrong answers to the exercises of the chapter on faults of Q-learning."
import torch
from torch.nn import functional as F

def pick(q, ids): return q.gather(-1, ids.unsqueeze(-1)).squeeze(-1)

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
    "fixed_target": [
        ("gamma stands only where something is paid: it belongs before every value", gamma_where_paid),
        ("a cost is dropped: rewards of either sign are added", gains_only),
        ("where something is paid the value still counts, unless it is the last token", paid_or_goes_on),
        ("a cost is dropped, and beside a gain the value: the reward plus the value, both added everywhere, not the larger of them", gate),
        ("nothing follows the last token", never_over),
        ("gamma is missing", no_gamma),
        ("the reward of this token is not discounted", all_discounted),
        ("gamma once per step: its power does not grow along the row", powers),
        ("value[i] is what stands after token i already", next_value),
        ("value[i - 1] is what stood before token i", value_before),
        ("gradient flows into the target: it is data", with_graph),
        ("the reward is missing", no_reward)],
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

# right, in other ways
def target_by_where(reward, value, last, gamma):
    return torch.where(last, reward, reward + gamma * value.detach())
def target_by_loop(reward, value, last, gamma):
    y = torch.zeros_like(reward)
    for b in range(len(reward)):
        for i in range(reward.shape[1]):
            y[b, i] = reward[b, i] + (0. if last[b, i] else gamma * value[b, i].detach())
    return y
def pull_by_one_hot(q, ids, mask, lowest):
    keep = 1 - F.one_hot(ids, q.shape[-1]).to(q.dtype)
    others = (keep * (q - lowest).square()).sum(-1) / keep.sum(-1)
    return over(others, mask)
def pull_of_tokens(q, ids, mask, lowest):
    q, ids = q[mask], ids[mask]
    square = (q - lowest)**2
    return ((square.sum(-1) - pick(square, ids)) / (q.shape[-1] - 1)).mean()

RIGHT = {"fixed_target": [target_by_where, target_by_loop], "fixed_pull": [pull_by_one_hot, pull_of_tokens]}
