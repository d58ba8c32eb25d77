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

def replaced(right, k): return 1 - (1 - right.float().mean().item())**k
def share(right, k): return right.float().mean().item()
def none(right, k):
    n, c = len(right), int(right.sum())
    return math.comb(n - c, k) / math.comb(n, k)
def every(right, k): return math.comb(int(right.sum()), k) / math.comb(len(right), k)
def first(right, k): return float(any(right[:k].tolist()))
def exchanged(right, k): return 1 - math.comb(int(right.sum()), k) / math.comb(len(right), k)
def anywhere(right, k): return float(torch.any(right))

WRONG = {
    "fixed_groups": [
        ("as it was: answers to different prompts are compared", stride),
        ("the answer itself is in its baseline: leave it out", with_itself),
        ("the sign: better than the others is above 0", flipped),
        ("that is the baseline: subtract it from the reward", baseline),
        ("the others are k - 1, not k", by_k), ("the mean of the others, not their sum", summed),
        ("compare with the group, not with the whole batch", whole_batch),
        ("not divided by the standard deviation", normalised)],
    "chance_of_one_right": [
        ("drawn with replacement: the k answers are k different ones of the n", replaced),
        ("that is the share that is right, which is k = 1", share),
        ("that is the chance of none", none), ("that is the chance that all k are right", every),
        ("only the first k are looked at", first), ("right and wrong are exchanged", exchanged),
        ("one right among all n is not one among k", anywhere)]}
