"Answers to the exercises on samplers that are not the learner: wrong ones as learners write them, and right ones that look different."
import torch

def held(x, mask): return torch.where(mask, x.to(torch.promote_types(x.dtype, torch.float32)), 0.)
def ratios(log_ratio, mask, level):
    kept = held(log_ratio, mask)
    return kept.sum(-1, keepdim=True).exp() if level == "sequence" else kept.exp()
def unmasked(log_ratio, mask, level): return log_ratio.sum(1, keepdim=True).exp() if level == "sequence" else log_ratio.exp()
def in_logs(log_ratio, mask, level):
    kept = held(log_ratio, mask)
    return kept.sum(1, keepdim=True) if level == "sequence" else kept
def inverted(log_ratio, mask, level): return 1 / ratios(log_ratio, mask, level)
def geometric(log_ratio, mask, level):
    if level == "token": return ratios(log_ratio, mask, level)
    return (held(log_ratio, mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)).exp()
def summed(log_ratio, mask, level):
    r = held(log_ratio, mask).exp()
    return (r * mask).sum(1, keepdim=True) if level == "sequence" else r
def always_product(log_ratio, mask, level): return held(log_ratio, mask).sum(1, keepdim=True).exp()
def always_tokens(log_ratio, mask, level): return held(log_ratio, mask).exp()
def zero_outside(log_ratio, mask, level):
    r = held(log_ratio, mask).exp()
    return r.prod(1, keepdim=True) if level == "sequence" else r * mask
def of_batch(log_ratio, mask, level):
    kept = held(log_ratio, mask)
    return torch.full((len(kept), 1), kept.sum().item(), dtype=kept.dtype).exp() if level == "sequence" else kept.exp()
def flat(log_ratio, mask, level):
    kept = held(log_ratio, mask)
    return kept.sum(1).exp() if level == "sequence" else kept.exp()
def running(log_ratio, mask, level):
    kept = held(log_ratio, mask)
    return kept.cumsum(1).exp() if level == "sequence" else kept.exp()
def by_product(log_ratio, mask, level):
    r = held(log_ratio, mask).exp()
    return r.prod(1, keepdim=True) if level == "sequence" else r

def bounded(ratio, cap, floor=0., how="truncate"):
    if how == "truncate": return ratio.clip(min=floor, max=cap)
    return ratio.where((ratio >= floor) & (ratio <= cap), 0.)
def always_clamp(ratio, cap, floor=0., how="truncate"): return ratio.clamp(floor, cap)
def always_mask(ratio, cap, floor=0., how="truncate"): return ratio * (ratio >= floor) * (ratio <= cap)
def masked_to_one(ratio, cap, floor=0., how="truncate"):
    return ratio.masked_fill((ratio < floor) | (ratio > cap), 1.) if how == "mask" else ratio.clamp(floor, cap)
def only_cap(ratio, cap, floor=0., how="truncate"): return ratio * (ratio <= cap) if how == "mask" else ratio.clamp(max=cap)
def only_floor(ratio, cap, floor=0., how="truncate"): return ratio * (ratio >= floor) if how == "mask" else ratio.clamp(min=floor)
def open_ends(ratio, cap, floor=0., how="truncate"): return ratio * (ratio > floor) * (ratio < cap) if how == "mask" else ratio.clamp(floor, cap)
def the_others(ratio, cap, floor=0., how="truncate"):
    return ratio * ((ratio < floor) | (ratio > cap)) if how == "mask" else ratio.clamp(floor, cap)
def ends_to_one(ratio, cap, floor=0., how="truncate"):
    outside = (ratio < floor) | (ratio > cap)
    return ratio.masked_fill(outside, 0.) if how == "mask" else ratio.masked_fill(outside, 1.)
def by_where(ratio, cap, floor=0., how="truncate"):
    low, high = (torch.zeros(()), torch.zeros(())) if how == "mask" else (torch.tensor(floor), torch.tensor(cap))
    return torch.where(ratio > cap, high.to(ratio), torch.where(ratio < floor, low.to(ratio), ratio))

def size(log_ratio):
    w = (log_ratio - log_ratio.max()).exp()
    return w.sum()**2 / len(w) / (w**2).sum()
def count(log_ratio): return 1 / (log_ratio.softmax(0)**2).sum()
def upside_down(log_ratio): return len(log_ratio) * (log_ratio.softmax(0)**2).sum()
def overflows(log_ratio):
    w = log_ratio.exp()
    return w.mean()**2 / (w**2).mean()
def perplexity(log_ratio):
    p = log_ratio.softmax(0)
    return torch.distributions.Categorical(probs=p).entropy().exp() / len(p)
def largest(log_ratio): return 1 / log_ratio.softmax(0).max() / len(log_ratio)
def squares(log_ratio): return (log_ratio.softmax(0)**2).sum()
def plain_logs(log_ratio):
    w = log_ratio - log_ratio.mean() + 1
    return w.sum()**2 / len(w) / (w**2).sum()
def without_square(log_ratio):
    w = (log_ratio - log_ratio.max()).exp()
    return w.sum() / len(w) / (w**2).sum()
def by_logsumexp(log_ratio):
    n = torch.tensor(float(len(log_ratio)), dtype=log_ratio.dtype)
    return (2 * log_ratio.logsumexp(0) - (2 * log_ratio).logsumexp(0) - n.log()).exp()

WRONG = dict(
    importance_ratios=[("only response tokens count: 0 where mask is False", unmasked), ("a ratio is exp of a difference of logs", in_logs),
        ("the ratio is π / q, not q / π", inverted), ("a response's ratio is a product: sum the logs, not their mean", geometric),
        ("a product over tokens, not a sum of ratios", summed), ("per token: no sum over the row", always_product),
        ("per sequence: one ratio for each row", always_tokens), ("outside the response the ratio is 1", zero_outside),
        ("one number for each row, not for the batch", of_batch), ("shape (b 1), so that it multiplies (b t)", flat),
        ("the prefix's product is not the response's", running)],
    bounded_weights=[("masked is weight 0, not truncated: what is clamped first never lies outside, and nothing is masked any more", always_clamp), ("truncated keeps a weight at the end, it does not drop it", always_mask),
        ("a masked ratio weighs 0, not 1", masked_to_one), ("there are two ends: floor is missing", only_cap),
        ("there are two ends: cap is missing", only_floor), ("a ratio at the end itself is within", open_ends),
        ("what lies outside is masked, what lies within is kept", the_others), ("beyond the end a ratio becomes the end, not 1", ends_to_one)],
    effective_sample_size=[("as a share of n: divide by n", count), ("upside down", upside_down),
        ("exp of hundreds is inf: subtract the largest first, or take a softmax", overflows),
        ("that is the entropy's count, not Kish's", perplexity), ("that is 1 / the largest weight", largest),
        ("the squares are of the weights, not of their sum", squares), ("square the weights", without_square),
        ("weights are ratios: exp of the log-ratio", plain_logs)])
RIGHT = dict(importance_ratios=[ratios, by_product], bounded_weights=[bounded, by_where], effective_sample_size=[size, by_logsumexp])
