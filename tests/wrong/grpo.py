"Answers to the exercises of the chapter on groups that learners might give, each wrong."
import math
import torch

def stride(reward, k):
    r = reward.view(k, -1)
    return (r - (r.sum(0) - r) / (k - 1)).flatten()
def with_itself(reward, k):
    r = reward.view(-1, k)
    return (r - r.mean(1, keepdim=True)).flatten()
def flipped(reward, k):
    r = reward.view(-1, k)
    return ((r.sum(1, keepdim=True) - r) / (k - 1) - r).flatten()
def baseline(reward, k):
    r = reward.view(-1, k)
    return ((r.sum(1, keepdim=True) - r) / (k - 1)).flatten()
def by_k(reward, k):
    r = reward.view(-1, k)
    return (r - (r.sum(1, keepdim=True) - r) / k).flatten()
def summed(reward, k):
    r = reward.view(-1, k)
    return (r - (r.sum(1, keepdim=True) - r)).flatten()
def whole_batch(reward, k): return reward - (reward.sum() - reward) / (len(reward) - 1)
def normalised(reward, k):
    r = reward.view(-1, k)
    a = r - (r.sum(1, keepdim=True) - r) / (k - 1)
    return (a / (r.std(1, keepdim=True) + 1e-4)).flatten()

# ---- leave_one_out(reward, group)

def sums(reward, group):
    same = group[:, None] == group[None]
    return same, reward.nan_to_num(0.), (~reward.isnan()).float()
def loo_with_itself(reward, group):
    return torch.stack([r - reward[group == g].nanmean() if not r.isnan() else torch.tensor(0.).to(r)
                        for r, g in zip(reward, group)])
def loo_table(reward, group): # a table of rows as long as the first group
    table = reward.reshape(-1, group.tolist().count(int(group[0])))
    return torch.cat([row - (row.sum() - row) / (row.numel() - 1) for row in table])
def loo_flipped(reward, group):
    out = torch.zeros_like(reward)
    for i in range(len(reward)):
        rest = [float(reward[j]) for j in range(len(reward)) if j != i and group[i] == group[j] and reward[j] == reward[j]]
        if rest and reward[i] == reward[i]: out[i] = sum(rest) / len(rest) - reward[i]
    return out
def loo_batch(reward, group):
    ok = ~reward.isnan()
    n, total = ok.sum(), reward.nansum()
    return ((reward - (total - reward) / (n - 1)) if n > 1 else reward * 0).nan_to_num(0.)
def loo_by_n(reward, group):
    same, r, ok = sums(reward, group)
    n = same.to(r) @ ok.to(r)
    return torch.where(reward.isnan() | (n < 2), torch.zeros_like(r), r - (same.to(r) @ r - r) / n)
def loo_sum(reward, group):
    same, r, ok = sums(reward, group)
    n = same.to(r) @ ok.to(r)
    return torch.where(reward.isnan() | (n < 2), torch.zeros_like(r), 2 * r - same.to(r) @ r)
def loo_alone(reward, group):
    same, r, ok = sums(reward, group)
    n = same.to(r) @ ok.to(r)
    return torch.where(reward.isnan(), torch.zeros_like(r), r - (same.to(r) @ r - r) / (n - 1).clamp(min=1))
def loo_nan_is_zero(reward, group):
    r = reward.nan_to_num(0.)
    same = (group[:, None] == group[None]).to(r)
    n = same.sum(1)
    return torch.where(n > 1, r - (same @ r - r) / (n - 1).clamp(min=1), torch.zeros_like(r))

# ---- group_normalised(reward, group)

def by_group(reward, group, f):
    out = torch.zeros_like(reward)
    for g in group.unique():
        rows = (group == g) & ~reward.isnan()
        if rows.any(): out[rows] = f(reward[rows]).to(out)
    return out
def biased(reward, group): return by_group(reward, group, lambda r: (r - r.mean()) / (r.std(correction=0) + 1e-4))
def variance(reward, group):
    return by_group(reward, group, lambda r: (r - r.mean()) / ((r.var() if len(r) > 1 else 0.) + 1e-4))
def centred_only(reward, group): return by_group(reward, group, lambda r: r - r.mean())
def scaled_only(reward, group):
    return by_group(reward, group, lambda r: r / ((r.std() if len(r) > 1 else 0.) + 1e-4))
def whitened_batch(reward, group): return by_group(reward, group * 0, lambda r: (r - r.mean()) / (r.std() + 1e-4))
def batch_std(reward, group):
    return by_group(reward, group, lambda r: r - r.mean()) / (reward[~reward.isnan()].std() + 1e-4)
def turned(reward, group):
    return by_group(reward, group, lambda r: (r.mean() - r) / ((r.std() if len(r) > 1 else 0.) + 1e-4))

# ---- loss_weights(mask, loss_type, max_length)

def exchanged(mask, loss_type, max_length):
    m = mask.float()
    if loss_type == "grpo": return m / max(1, m.sum())
    if loss_type == "dapo": return m / m.sum(1, keepdim=True).clamp(min=1) / len(m)
    return m / len(m) / max_length
def no_rows(mask, loss_type, max_length):
    m = mask.float()
    if loss_type == "dapo": return m / max(1, m.sum())
    if loss_type == "grpo": return m / m.sum(1, keepdim=True).clamp(min=1)
    return m / len(m) / max_length
def constant_forgets_rows(mask, loss_type, max_length):
    m = mask.float()
    if loss_type == "dapo": return m / max(1, m.sum())
    if loss_type == "grpo": return m / m.sum(1, keepdim=True).clamp(min=1) / len(m)
    return m / max_length
def width(mask, loss_type, max_length):
    m = mask.float()
    if loss_type == "dapo": return m / max(1, m.sum())
    if loss_type == "grpo": return m / m.sum(1, keepdim=True).clamp(min=1) / len(m)
    return m / len(m) / m.shape[1]
def entries(mask, loss_type, max_length):
    m = mask.float()
    if loss_type == "dapo": return m / m.numel()
    if loss_type == "grpo": return m / m.sum(1, keepdim=True).clamp(min=1) / len(m)
    return m / len(m) / max_length
def nans(mask, loss_type, max_length):
    m = mask.float()
    if loss_type == "dapo": return m / m.sum()
    if loss_type == "grpo": return m / m.sum(1, keepdim=True) / m.shape[0]
    return m / (m.shape[0] * max_length)
def bare(mask, loss_type, max_length): return mask * 1.

# ---- right ones, written otherwise

def loo_loop(reward, group):
    out = []
    for i, r in enumerate(reward.tolist()):
        rest = [x for j, x in enumerate(reward.tolist()) if j != i and group[j] == group[i] and x == x]
        out.append(r - sum(rest) / len(rest) if rest and r == r else 0.)
    return torch.tensor(out, dtype=reward.dtype)
def loo_matrix(reward, group):
    same = (group[:, None] == group[None]).double() - torch.eye(len(group)).double()
    ok = (~reward.isnan()).double()
    r = reward.double().nan_to_num(0.)
    n = same @ ok
    base = (same @ r) / n.clamp(min=1)
    return torch.where((n > 0) & (ok > 0), r - base, torch.zeros_like(r)).to(reward.dtype)
def loo_from_centred(reward, group):
    def f(r): return (r - r.mean()) * len(r) / (len(r) - 1) if len(r) > 1 else r * 0
    return by_group(reward, group, f)
def normal_loop(reward, group):
    return by_group(reward, group, lambda r: (r - r.mean()) / ((r.std() if len(r) > 1 else 0.) + 1e-4))
def normal_double(reward, group):
    def f(r):
        x = r.double()
        a = x - x.mean()
        s = math.sqrt(a.square().sum().item() / max(len(x) - 1, 1))
        return a / (s + 1e-4)
    return by_group(reward, group, f)
def weights_loop(mask, loss_type, max_length):
    if loss_type not in ("dapo", "grpo", "dr_grpo"): raise ValueError(loss_type)
    out = torch.zeros(mask.shape)
    for i in range(mask.shape[0]):
        for j in range(mask.shape[1]):
            if not mask[i, j]: continue
            out[i, j] = {"dapo": 1 / mask.sum().item(), "grpo": 1 / mask[i].sum().item() / len(mask),
                         "dr_grpo": 1 / max_length / len(mask)}[loss_type]
    return out
def weights_where(mask, loss_type, max_length):
    if loss_type not in ("dapo", "grpo", "dr_grpo"): raise ValueError(loss_type)
    n = {"dapo": mask.sum().expand(len(mask), 1), "grpo": mask.sum(-1, keepdim=True) * len(mask),
         "dr_grpo": torch.full((len(mask), 1), len(mask) * max_length)}[loss_type]
    return torch.where(mask, 1. / n, 0.)
def groups_loop(reward, k):
    out = []
    for i in range(0, len(reward), k):
        part = reward[i:i + k]
        out += [x - (part.sum() - x) / (k - 1) for x in part]
    return torch.stack(out)
def groups_centred(reward, k):
    r = reward.reshape(-1, k).double()
    return ((r - r.mean(-1, keepdim=True)) * k / (k - 1)).reshape(-1).to(reward.dtype)

def weight_apart(ratio, advantage, epsilon=.2, epsilon_high=.2):
    with torch.no_grad(): weight = torch.minimum(torch.maximum(ratio, 0 * ratio + 1 - epsilon), 0 * ratio + 1 + epsilon_high)
    return torch.log(ratio) * (-weight * advantage)
def weight_where(ratio, advantage, epsilon=.2, epsilon_high=.2):
    r = ratio.detach()
    r = torch.where(r > 1 + epsilon_high, 1 + epsilon_high, torch.where(r < 1 - epsilon, 1 - epsilon, r))
    return 0 - r * (ratio.log() * advantage)
RIGHT = {"cispo_loss": [weight_apart, weight_where], "fixed_groups": [groups_loop, groups_centred], "leave_one_out": [loo_loop, loo_matrix, loo_from_centred],
         "group_normalised": [normal_loop, normal_double], "loss_weights": [weights_loop, weights_where]}
def under_the_root(reward, group):
    out = torch.zeros_like(reward)
    for g in group.unique():
        at = (group == g) & ~reward.isnan()
        if at.sum() > 1: out[at] = (reward[at] - reward[at].mean()) / (reward[at].var() + 1e-4).sqrt()
    return out
WRONG = {
    "fixed_groups": [
        ("every k-th row is taken for a group: answers to different prompts are compared", stride),
        ("the answer itself is in its baseline: leave it out", with_itself),
        ("the sign: better than the group is above 0", flipped),
        ("that is the baseline: subtract it from the reward", baseline),
        ("the mean of the others: divide by n - 1, not by n", by_k), ("the mean of the others, not their sum", summed),
        ("compare with the group, not with the whole batch", whole_batch),
        ("not divided by the standard deviation: that is GRPO", normalised)],
    "leave_one_out": [
        ("the answer itself is in its baseline: leave it out", loo_with_itself),
        ("groups differ in size and need not stand together, so view(-1, k) cannot make rows of them", loo_table),
        ("the sign: better than the group is above 0", loo_flipped),
        ("compare with the group, not with the whole batch", loo_batch),
        ("the mean of the others: divide by n - 1, not by n", loo_by_n),
        ("the mean of the others, not their sum", loo_sum),
        ("an answer that is alone has advantage 0, not its reward", loo_alone),
        ("an answer that nobody scored is not a reward of 0", loo_nan_is_zero)],
    "group_normalised": [
        ("the standard deviation divides by n - 1, not by n", biased),
        ("10^-4 is added to the standard deviation, not to the variance", under_the_root),
        ("that is the variance: divide by its square root", variance),
        ("not divided by the standard deviation: that is Dr. GRPO", centred_only),
        ("subtract the mean, too", scaled_only),
        ("compare with the group, not with the whole batch", whitened_batch),
        ("the standard deviation of the group, not of the whole batch", batch_std),
        ("the sign: better than the group is above 0", turned)],
    "loss_weights": [
        ("dapo and grpo are exchanged", exchanged),
        ("grpo: every answer counts the same, so divide by the number of answers, too", no_rows),
        ("dr_grpo: divide by the number of answers, too", constant_forgets_rows),
        ("dr_grpo: the constant is max_length, not the width of the batch", width),
        ("dapo: divide by the tokens of the whole batch, not by all its entries: pads, outside of the mask, are none", entries),
        ("a row without a token gives nan: clamp the number by which you divide", nans),
        ("that is the mask: divide it", bare)],
    "cispo_loss": [
        ("the weight has a gradient: detach it", lambda r, A, a=.2, b=.2: -torch.clip(r, 1 - a, 1 + b) * A * r.log()),
        ("no gradient reaches the policy", lambda r, A, a=.2, b=.2: -(r.clamp(1 - a, 1 + b) * A * r.log()).detach()),
        ("the weight is not clipped", lambda r, A, a=.2, b=.2: -r.detach() * A * r.log()),
        ("the upper end is 1 + epsilon_high", lambda r, A, a=.2, b=.2: -r.detach().clamp(1 - a, 1 + a) * A * r.log()),
        ("times the log of the ratio", lambda r, A, a=.2, b=.2: -r.detach().clamp(1 - a, 1 + b) * A * r),
        ("the sign: a loss is minus the gain", lambda r, A, a=.2, b=.2: r.detach().clamp(1 - a, 1 + b) * A * r.log()),
    ],
}
