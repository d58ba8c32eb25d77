"Answers to the exercises on tools and turns: wrong ones as learners write them, and right ones that look different."
from collections import Counter
from statistics import mode
import torch
from torch.nn import functional as F

def begins(mask): return mask & ~F.pad(mask, (1, 0))[:, :-1]
def from_one(mask): return torch.where(mask, begins(mask).cumsum(1), -1)
def zeros_outside(mask): return torch.where(mask, begins(mask).cumsum(1) - 1, 0)
def through_gaps(mask): return begins(mask).cumsum(1) - 1
def tokens(mask): return torch.where(mask, mask.cumsum(1) - 1, -1)
def one_count(mask): return torch.where(mask, begins(mask).flatten().cumsum(0).reshape(mask.shape) - 1, -1)
def downwards(mask): return torch.where(mask, begins(mask).cumsum(0) - 1, -1)
def only_mask(mask): return mask.int().long() - 1
def by_roll(mask):
    before = mask.roll(1, 1)
    before[:, 0] = True
    return torch.where(mask, (mask & ~before).cumsum(1) - 1, -1)
def by_diff(mask):
    edges = torch.diff(mask.long(), dim=1, prepend=torch.zeros(len(mask), 1, dtype=torch.long))
    return torch.where(mask, (edges == 1).cumsum(1) - 1, torch.tensor(-1))
def by_loop(mask):
    rows = []
    for row in mask:
        n, found = -1, []
        for i in range(len(row)):
            if row[i] and (i == 0 or not row[i - 1]): n += 1
            found.append(n if row[i] else -1)
        rows.append(found)
    return torch.tensor(rows)

def mean_of(x, group, dim=0):
    out = torch.zeros_like(x)
    for g in group.unique(): out[group == g] = x[group == g].nanmean(0)
    return out
def placed(a, turn): return torch.where(turn >= 0, a.nan_to_num(0.).gather(1, turn.clamp(min=0)), 0.)
def go(reward): return torch.where(reward.isnan(), reward, reward.nan_to_num(0.).flip(1).cumsum(1).flip(1))
def own_reward(reward, group, turn): return placed(reward - mean_of(reward, group), turn)
def total(reward, group, turn):
    x = torch.where(reward.isnan(), reward, reward.nansum(1, keepdim=True))
    return placed(x - mean_of(x, group), turn)
def up_to(reward, group, turn):
    x = torch.where(reward.isnan(), reward, reward.nan_to_num(0.).cumsum(1))
    return placed(x - mean_of(x, group), turn)
def after(reward, group, turn):
    x = go(reward) - reward
    return placed(x - mean_of(x, group), turn)
def no_mean(reward, group, turn): return placed(go(reward), turn)
def zeros_in_mean(reward, group, turn):
    x = reward.nan_to_num(0.).flip(1).cumsum(1).flip(1)
    return placed(torch.where(reward.isnan(), 0., x - mean_of(x, group)), turn)
def of_batch(reward, group, turn): return placed(go(reward) - go(reward).nanmean(0), turn)
def wrong_sign(reward, group, turn): return placed(mean_of(go(reward), group) - go(reward), turn)
def right_loop(reward, group, turn):
    x = go(reward)
    a = x - mean_of(x, group)
    out = torch.zeros(turn.shape)
    for i in range(len(turn)):
        for j, k in enumerate(turn[i].tolist()):
            if k >= 0: out[i, j] = a[i, k]
    return out
def right_placed(reward, group, turn): return placed(go(reward) - mean_of(go(reward), group), turn)

def swapped(prompt, parts):
    ids, written = list(prompt), [False] * len(prompt)
    for k, part in enumerate(parts): ids.extend(part); written.extend([bool(k % 2)] * len(part))
    return ids, written
def all_written(prompt, parts): return prompt + sum(parts, []), [False] * len(prompt) + [True] * sum(map(len, parts))
def prompt_too(prompt, parts):
    flags = [True] * len(prompt)
    for k, part in enumerate(parts): flags += [k % 2 == 0 for _ in part]
    return prompt + sum(parts, []), flags
def no_prompt(prompt, parts): return sum(parts, []), [k % 2 == 0 for k, part in enumerate(parts) for _ in part]
def tools_left_out(prompt, parts):
    own = sum(parts[::2], [])
    return prompt + own, [False] * len(prompt) + [True] * len(own)
def first_only(prompt, parts): return prompt + sum(parts, []), [False] * len(prompt) + [k == 0 for k, part in enumerate(parts) for _ in part]
def per_part(prompt, parts): return prompt + sum(parts, []), [False] * len(prompt) + [k % 2 == 0 for k in range(len(parts))]
def by_pairs(prompt, parts):
    tokens = [(i, False) for i in prompt] + [(i, k % 2 == 0) for k, part in enumerate(parts) for i in part]
    return [i for i, _ in tokens], [w for _, w in tokens]
def by_not(prompt, parts):
    ids, written, mine = [*prompt], [False for _ in prompt], True
    for part in parts:
        ids.extend(part); written.extend(mine for _ in part)
        mine = not mine
    return ids, written

def counts_none(answers): return Counter(answers).most_common(1)[0][0] if answers else None
def last_of_equals(answers):
    found = [x for x in answers if x is not None][::-1]
    return Counter(found).most_common(1)[0][0] if found else None
def smallest(answers):
    found = [x for x in answers if x is not None]
    return min(found, key=lambda x: (-found.count(x), x)) if found else None
def how_often(answers):
    votes = Counter(x for x in answers if x is not None)
    return votes.most_common(1)[0][1] if votes else None
def strict(answers):
    votes = Counter(x for x in answers if x is not None)
    if not votes: return None
    x, n = votes.most_common(1)[0]
    return x if n > len(answers) / 2 else None
def first(answers):
    for x in answers:
        if x is not None: return x
def rarest(answers):
    found = [x for x in answers if x is not None]
    return min(found, key=found.count) if found else None
def by_mode(answers):
    found = [x for x in answers if x is not None]
    return mode(found) if found else None
def by_max(answers):
    found = [x for x in answers if x is not None]
    return max(found, key=found.count, default=None)

WRONG = dict(
    turn_numbers=[("the first turn is number 0", from_one), ("-1 where the model did not write", zeros_outside),
        ("what is inserted has no turn", through_gaps), ("that counts tokens, not turns", tokens), ("each row counts anew", one_count),
        ("along the row, not down the batch", downwards), ("that is the mask: turns have numbers", only_mask),
        ("a row begins outside a turn: the token before the first counts as False", by_roll)],
    turn_advantages=[("a turn also gets what comes after it: the reward to go", own_reward), ("a turn cannot have caused what came before it", total),
        ("from the turn on, not up to it", up_to), ("what comes after the turn, and the turn's own reward too", after), ("less the mean of the group", no_mean),
        ("a response without the turn is not in its mean", zeros_in_mean), ("the mean is that of the group, not of the batch", of_batch),
        ("the sign: more than the mean is good", wrong_sign)],
    fixed_join=[("the first part is the model's", swapped), ("what is inserted was not written by the model", all_written),
        ("the prompt was not written by the model", prompt_too), ("the prompt belongs in front", no_prompt),
        ("what is inserted stays in the response", tools_left_out), ("only the first part is the model's? every second one is", first_only),
        ("one entry for each token, not for each part", per_part)],
    majority_vote=[("None is no vote", counts_none), ("of equals the one that came first", last_of_equals),
        ("of equals the one that came first, not the smallest", smallest), ("the answer, not how often it came", how_often),
        ("the most frequent need not be more than half", strict), ("the first answer is no vote", first), ("the most frequent, not the rarest", rarest)])
RIGHT = dict(turn_numbers=[by_diff, by_loop], turn_advantages=[right_loop, right_placed], fixed_join=[by_pairs, by_not], majority_vote=[by_mode, by_max])
