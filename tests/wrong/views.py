"Answers to the exercises of the chapter on pictures that learners might give, each wrong."
import math
import numpy as np
import torch
from rlhf_nb.tokens import masked_mean, masked_mean_rows, masked_sum

def fixed_divisor(values, n):
    return [sum(values[max(0, i - n + 1):i + 1]) / n for i in range(len(values))]
def forward(values, n):
    return [sum(values[i:i + n]) / len(values[i:i + n]) for i in range(len(values))]
def centred(values, n):
    out = []
    for i in range(len(values)):
        part = values[max(0, i - n // 2):i + n // 2 + 1]
        out.append(sum(part) / len(part))
    return out
def too_many(values, n):
    out = []
    for i in range(len(values)):
        part = values[max(0, i - n):i + 1]
        out.append(sum(part) / len(part))
    return out
def too_few(values, n):
    return [sum(p) / len(p) for p in (values[max(0, i - n + 2):i + 1] for i in range(len(values)))]
def short_slice(values, n):
    return [sum(p) / len(p) for p in (values[max(0, i - n + 1):i] for i in range(len(values)))]
def so_far(values, n):
    total, out = 0., []
    for i, v in enumerate(values): total += v; out.append(total / (i + 1))
    return out
def sums(values, n): return [sum(values[max(0, i - n + 1):i + 1]) for i in range(len(values))]
def valid(values, n):
    return [sum(values[i - n:i]) / n for i in range(n, len(values) + 1)]
def no_floor(values, n):   # a negative start counts from the end
    return [sum(p) / max(1, len(p)) for p in (values[i - n + 1:i + 1] for i in range(len(values)))]

def of_numbers(x, q):
    limit = x[~x.isnan()].quantile(q)
    return x.clamp(-limit, limit)
def dropped(x, q):
    limit = x.abs().nanquantile(q)
    return torch.where(x.abs() <= limit, x, torch.tensor(math.nan))
def zeroed(x, q):
    out = x.clone()
    out[x.abs() > x.abs().nanquantile(q)] = 0
    return out
def top_only(x, q): return torch.clamp(x, max=x.abs().nanquantile(q).item())
def sizes(x, q): return x.abs().clamp(max=x.abs().nanquantile(q).item())
def no_sign(x, q):
    limit = x.abs().nanquantile(q)
    return torch.where(x.abs() > limit, limit, x)
def no_nan(x, q):
    limit = x.abs().nanquantile(q)
    return x.nan_to_num().clamp(-limit, limit)
def nan_in(x, q):
    limit = x.abs().quantile(q)
    return x.clamp(-limit, limit)
def per_row(x, q):
    limit = x.abs().nanquantile(q, dim=1, keepdim=True)
    return torch.minimum(torch.maximum(x, -limit), limit)
def rescaled(x, q):
    size = x.abs()
    return x * size.nanquantile(q) / size[~size.isnan()].max()

def as_logged(logp, mask): return -logp.sum(1).mean()
def clamped(logp, mask): return (-logp).clamp(min=0).sum(dim=-1).mean()
def times_mask(logp, mask): return -(logp * mask.float()).sum(1).mean()
def no_minus(logp, mask): return masked_sum(logp, mask).mean()
def per_token(logp, mask): return -masked_mean(logp, mask)
def mean_of_means(logp, mask): return -masked_mean_rows(logp, mask).mean()
def whole_sum(logp, mask): return -masked_sum(logp, mask).sum()
def each(logp, mask): return -masked_sum(logp, mask)
def skip_empty(logp, mask):
    rows = [-row[keep].sum() for row, keep in zip(logp, mask) if keep.any()]
    return torch.stack(rows).mean()
def inverted(logp, mask): return -torch.where(mask, 0, logp).sum(1).mean()
def absolute(logp, mask): return logp.abs().sum(1).mean()

def from_first(values, weight):
    out = [values[0]]
    for v in values[1:]: out.append(weight * out[-1] + (1 - weight) * v)
    return out
def from_zero(values, weight):
    y, out = 0, []
    for v in values: y = weight * y + (1 - weight) * v; out.append(y)
    return out
def swapped(values, weight):
    y, out = 0., []
    for i, v in enumerate(values, 1):
        y = (1 - weight) * y + weight * v
        out.append(y / (1 - (1 - weight)**i))
    return out
def behind(values, weight):
    y, out = 0., []
    for i, v in enumerate(values):
        y += (1 - weight) * (v - y)
        out.append(y / (1 - weight**i))
    return out
def ahead(values, weight):
    y, out = 0., []
    for i, v in enumerate(values, 1):
        y += (1 - weight) * (v - y)
        out.append(y / (1 - weight**(i + 1)))
    return out
def unscaled(values, weight):
    y, out = 0., []
    for i, v in enumerate(values, 1):
        y = weight * y + v
        out.append(y / (1 - weight**i))
    return out
def carried(values, weight):
    y, out = 0., []
    for i, v in enumerate(values, 1):
        y = (weight * y + (1 - weight) * v) / (1 - weight**i)
        out.append(y)
    return out
def plain_mean(values, weight): return (np.cumsum(values) / np.arange(1, len(values) + 1)).tolist()
def backwards(values, weight):
    n, out = len(values), []
    for i in range(n):
        w = [weight**(j - i) for j in range(i, n)]
        out.append(sum(a * b for a, b in zip(w, values[i:])) / sum(w))
    return out
def last_only(values, weight):
    w = [weight**k for k in range(len(values))][::-1]
    return sum(a * b for a, b in zip(w, values)) / sum(w)

def weighted_sums(values, weight):
    return [sum(weight**(i - j) * values[j] for j in range(i + 1)) for i in range(len(values))]

WRONG = {
    "running_mean": [
        ("the first means are too small: fewer values, smaller divisor", fixed_divisor),
        ("it looks into the future: the window ends at i, it does not begin there", forward),
        ("the window is centred at i: it ends there", centred),
        ("one value too many: from i - n + 1 to i", too_many),
        ("one value too few: values[i] belongs to it, as the last of n", too_few),
        ("value i is missing: a slice ends before its second number", short_slice),
        ("that is the mean of all so far: only the last n", so_far), ("those are sums: divide", sums),
        ("one mean for each value: yours begin when n values are there", valid), ("", no_floor)],
    "squeeze": [
        ("take the quantile of the sizes, not of the numbers", of_numbers),
        ("large values are gone: set them to the limit", dropped),
        ("large values became 0: set them to the limit", zeroed),
        ("only one side is cut: below minus the limit as well", top_only),
        ("the signs are lost", sizes),
        ("large negative values turned positive: give the limit their sign", no_sign),
        ("nan must stay nan: it is drawn grey", no_nan),
        ("one nan makes the quantile nan: leave it out", nan_in),
        ("one limit for the whole strip, not one per row", per_row),
        ("that makes every number smaller: cut the large ones only", rescaled)],
    "fixed_response_entropy": [
        ("what stands in the pads is summed: 1 each, and it is not a log-prob", as_logged),
        ("that works for a 1 only: a pad may hold anything, so mask it", clamped),
        ("0 times nan is nan: choose with the mask, do not multiply", times_mask),
        ("turn the sign: log-probs are below 0", no_minus),
        ("that is the mean over tokens: add up each response first", per_token),
        ("that is the mean of means: add up each response, do not average it", mean_of_means),
        ("that is the sum over the batch: take the mean over responses", whole_sum),
        ("one number for the batch, not one per response", each),
        ("an empty response counts too, with 0", skip_empty),
        ("upside down: that sums the pads", inverted), ("", absolute)],
    "fixed_smooth": [
        ("those are sums: divide by the sum of the weights", weighted_sums),
        ("the first value keeps too much weight: a later one may not count for less", from_first),
        ("it starts from 0 and nothing makes up for it: the weights do not sum to 1 yet", from_zero),
        ("the weights are swapped: `weight` belongs to what was, the rest to the new value", swapped),
        ("one step behind: with the first value the weights sum to 1 - weight", behind),
        ("one step ahead: with the first value the weights sum to 1 - weight", ahead),
        ("those are sums: the new value gets 1 - weight", unscaled),
        ("the made-up value must not be carried on: divide only what is put out", carried),
        ("nothing fades: that is the mean of all so far", plain_mean),
        ("it runs backwards, from the future", backwards),
        ("one number for each value, not the last one only", last_only)]}
