"""A third battery: the chapters that came after the second one, and fresh slips for each three-star exercise.

Written from stubs and text alone, words and all, before any verdict on them was seen. Afterwards words of 15 were widened, where
a verdict said the slip in others, and three answers went that lacked a gradient which no stub asks for."""
import collections, math, re, statistics, torch
import torch.nn.functional as F
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.batches import at_least_float32
from rlhf_nb.base.q_networks import QConfig, discounts, hidden_states, next_values, q_terms, shift_left
from rlhf_nb.grpo import group_centered, group_normalised
from rlhf_nb.qlearning import bellman_targets as targets, monte_carlo_returns
from rlhf_nb.tokens import shift_right

WRONG, RIGHT = {}, {}

def wrong(words): # -> decorator; the function bears the name of its exercise
    def keep(fn):
        WRONG.setdefault(fn.__name__, []).append((words, fn))
        return fn
    return keep

def right(fn):
    RIGHT.setdefault(fn.__name__, []).append(fn)
    return fn

# ---------------------------------------------------------------- 10 log_ratio_gap
def _wide(*xs): return [x.to(torch.promote_types(x.dtype, torch.float32)) for x in xs]

@right
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    a, b, c, d = _wide(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return (a - b) - (c - d)
@right
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    table = torch.stack(at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected))
    return torch.tensor([1., -1., -1., 1.]).to(table) @ table
@wrong("sign|swap|turned|exchang|minus")
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    a, b, c, d = _wide(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return (b - d) - (a - c)
@wrong("reference|ref_")
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    a, b = _wide(policy_chosen, policy_rejected)
    return a - b
@wrong("sum|plus|added|sign|subtract")
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    a, b, c, d = _wide(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return (a - c) + (b - d)
@wrong("float32|16 bit|bf16|bfloat16|dtype|precision")
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    return (policy_chosen - ref_chosen) - (policy_rejected - ref_rejected)
@wrong("ref")
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    a, b, c, d = _wide(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return (a - b) + (c - d)
@wrong("mean|averag|batch")
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    a, b, c, d = _wide(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return ((a - c) - (b - d)).mean()
@wrong("rejected|second|missing|left out|only the chosen")
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    a, c = _wide(policy_chosen, ref_chosen)
    return a - c
@wrong("exp|log|probabilit")
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    a, b, c, d = _wide(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return ((a - c) - (b - d)).exp()
@wrong("gradient|detach")
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    a, b, c, d = _wide(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return (a - c) - (b - d).detach()
@wrong("times|factor|0?\\.1|beta|β")
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    a, b, c, d = _wide(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return .1 * ((a - c) - (b - d))

# ---------------------------------------------------------------- 11 honest_gain
@right
def honest_gain(scores, start, chooses):
    means = [row[chooses].mean().item() for row in scores]
    best = means.index(max(means))
    gains = (scores[best] - start)[~chooses]
    return best, gains.mean().item(), gains.std().item() / math.sqrt(len(gains))
@right
def honest_gain(scores, start, chooses):
    keep = chooses.to(scores)
    best = int((scores @ keep).argmax())
    rest = (scores[best] - start)[torch.logical_not(chooses)]
    n = rest.numel()
    mean = rest.sum() / n
    return best, mean, (((rest - mean)**2).sum() / (n - 1) / n).sqrt()
def _gain(best, gains, error=None):
    return int(best), gains.mean(), gains.std() / len(gains)**.5 if error is None else error
@wrong("choos|all questions|every question")
def honest_gain(scores, start, chooses): # chosen on all
    best = scores.mean(1).argmax()
    return _gain(best, (scores[best] - start)[~chooses])
@wrong("report|other|choos|same questions|all questions")
def honest_gain(scores, start, chooses): # reported on those that choose
    best = scores[:, chooses].mean(1).argmax()
    return _gain(best, (scores[best] - start)[chooses])
@wrong("report|other|choos|all questions|every question")
def honest_gain(scores, start, chooses):
    best = scores[:, chooses].mean(1).argmax()
    return _gain(best, scores[best] - start)
@wrong("choos|other|turned|report|mask")
def honest_gain(scores, start, chooses): # chooses turned
    best = scores[:, ~chooses].mean(1).argmax()
    return _gain(best, (scores[best] - start)[chooses])
@wrong("n - 1|n − 1|unbiased|correction")
def honest_gain(scores, start, chooses):
    best = scores[:, chooses].mean(1).argmax()
    gains = (scores[best] - start)[~chooses]
    return _gain(best, gains, gains.std(unbiased=False) / len(gains)**.5)
@wrong("√n|sqrt|standard error|root of|deviation|√")
def honest_gain(scores, start, chooses):
    best = scores[:, chooses].mean(1).argmax()
    gains = (scores[best] - start)[~chooses]
    return _gain(best, gains, gains.std())
@wrong("start|subtract|gain|difference")
def honest_gain(scores, start, chooses):
    best = scores[:, chooses].mean(1).argmax()
    return _gain(best, scores[best][~chooses])
@wrong("pair|differences|question by question|two errors|both errors")
def honest_gain(scores, start, chooses): # errors of two means instead of one of a difference
    best = scores[:, chooses].mean(1).argmax()
    a, b = scores[best][~chooses], start[~chooses]
    return int(best), a.mean() - b.mean(), ((a.var() + b.var()) / len(a))**.5
@wrong("lowest|worst|highest|min|largest")
def honest_gain(scores, start, chooses):
    best = scores[:, chooses].mean(1).argmin()
    return _gain(best, (scores[best] - start)[~chooses])
@wrong("sign|minus|turned")
def honest_gain(scores, start, chooses):
    best = scores[:, chooses].mean(1).argmax()
    return _gain(best, (start - scores[best])[~chooses])
@wrong("n\\b|√|number of|divid|questions|len")
def honest_gain(scores, start, chooses): # root of all questions
    best = scores[:, chooses].mean(1).argmax()
    gains = (scores[best] - start)[~chooses]
    return _gain(best, gains, gains.std() / len(start)**.5)
@wrong("start|mean|question")
def honest_gain(scores, start, chooses): # less the start's mean on all questions
    best = scores[:, chooses].mean(1).argmax()
    return _gain(best, scores[best][~chooses] - start.mean())
@wrong("standard error|n\\b|√|root|twice|divided")
def honest_gain(scores, start, chooses):
    best = scores[:, chooses].mean(1).argmax()
    gains = (scores[best] - start)[~chooses]
    return _gain(best, gains, gains.std() / len(gains))

# ---------------------------------------------------------------- 20 importance_ratios
@right
def importance_ratios(log_ratio, mask, level):
    x = torch.where(mask, log_ratio.to(torch.promote_types(log_ratio.dtype, torch.float32)), 0.)
    return x.exp() if level == "token" else x.sum(-1, keepdim=True).exp()
@right
def importance_ratios(log_ratio, mask, level):
    x, = at_least_float32(log_ratio)
    ratio = x.masked_fill(~mask, 0.).exp()
    return ratio if level == "token" else ratio.prod(1)[:, None]
def _lr(x): return x.to(torch.promote_types(x.dtype, torch.float32))
@wrong("outside|mask|be 1|is 1")
def importance_ratios(log_ratio, mask, level): # 0 outside
    x = _lr(log_ratio).masked_fill(~mask, 0.)
    return x.exp().masked_fill(~mask, 0.) if level == "token" else x.sum(1, keepdim=True).exp()
@wrong("mask|outside|rubbish|anything|nan")
def importance_ratios(log_ratio, mask, level):
    x = _lr(log_ratio) * mask
    return x.exp() if level == "token" else x.sum(1, keepdim=True).exp()
@wrong("shape|axis|\\(b 1\\)|keepdim")
def importance_ratios(log_ratio, mask, level):
    x = _lr(log_ratio).masked_fill(~mask, 0.)
    return x.exp() if level == "token" else x.sum(1).exp()
@wrong("mean|length|divid|product|averag")
def importance_ratios(log_ratio, mask, level):
    x = _lr(log_ratio).masked_fill(~mask, 0.)
    return x.exp() if level == "token" else (x.sum(1, keepdim=True) / mask.sum(1, keepdim=True)).exp()
@wrong("sign|invers|upside|turned|q / π|minus")
def importance_ratios(log_ratio, mask, level):
    x = -_lr(log_ratio).masked_fill(~mask, 0.)
    return x.exp() if level == "token" else x.sum(1, keepdim=True).exp()
@wrong("exp|log")
def importance_ratios(log_ratio, mask, level):
    x = _lr(log_ratio).masked_fill(~mask, 0.)
    return x if level == "token" else x.sum(1, keepdim=True)
@wrong("float32|16 bit|bf16|bfloat16|dtype|precision")
def importance_ratios(log_ratio, mask, level):
    x = log_ratio.masked_fill(~mask, 0.)
    return x.exp() if level == "token" else x.sum(1, keepdim=True).exp()
@wrong("product|sum of|exp|added")
def importance_ratios(log_ratio, mask, level): # sum of the ratios
    x = _lr(log_ratio).masked_fill(~mask, 0.)
    return x.exp() if level == "token" else (x.exp() * mask).sum(1, keepdim=True)
@wrong("level|sequence|token")
def importance_ratios(log_ratio, mask, level):
    return _lr(log_ratio).masked_fill(~mask, 0.).exp()
@wrong("mask|outside|turned|upside|invert")
def importance_ratios(log_ratio, mask, level):
    x = _lr(log_ratio).nan_to_num(0., 0., 0.).masked_fill(mask, 0.)
    return x.exp() if level == "token" else x.sum(1, keepdim=True).exp()

# effective_sample_size
@right
def effective_sample_size(log_ratio):
    w = (log_ratio - log_ratio.max()).exp()
    return w.sum()**2 / (len(w) * (w**2).sum())
@right
def effective_sample_size(log_ratio):
    return (2 * log_ratio.logsumexp(0) - (2 * log_ratio).logsumexp(0) - math.log(len(log_ratio))).exp()
@wrong("share|n\\b|number|divid")
def effective_sample_size(log_ratio): return 1 / (log_ratio.softmax(0)**2).sum()
@wrong("overflow|inf|nan|largest|subtract|softmax")
def effective_sample_size(log_ratio):
    w = log_ratio.exp()
    return w.sum()**2 / (len(w) * (w**2).sum())
@wrong("exp|log")
def effective_sample_size(log_ratio):
    return log_ratio.sum()**2 / (len(log_ratio) * (log_ratio**2).sum())
@wrong("square|power|\\*\\*")
def effective_sample_size(log_ratio):
    w = log_ratio.softmax(0)
    return w.sum() / (len(w) * w.sum())
@wrong("upside|invers|1 /|one over|turned")
def effective_sample_size(log_ratio): return len(log_ratio) * (log_ratio.softmax(0)**2).sum()
@wrong("max|largest|square")
def effective_sample_size(log_ratio): return 1 / (len(log_ratio) * log_ratio.softmax(0).max())
@wrong("sign|minus|invers|q/π|turned")
def effective_sample_size(log_ratio): return 1 / (len(log_ratio) * ((-log_ratio).softmax(0)**2).sum())
@wrong("entropy|perplexity|square|exp|log")
def effective_sample_size(log_ratio):
    p = log_ratio.softmax(0)
    return torch.special.entr(p).sum().exp() / len(p)
@wrong("square|mean|n\\b|divided")
def effective_sample_size(log_ratio): # mean for sum in the numerator
    w = (log_ratio - log_ratio.max()).exp()
    return w.mean()**2 / (len(w) * (w**2).sum())
@wrong("max|clamp|bound|cap|cut|at most 1|truncat")
def effective_sample_size(log_ratio):
    w = log_ratio.exp().clamp(max=1.)
    return w.sum()**2 / (len(w) * (w**2).sum())

# bounded_weights
@right
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    if how == "truncate": return ratio.clamp(floor, cap)
    return torch.where((ratio >= floor) & (ratio <= cap), ratio, torch.zeros_like(ratio))
@right
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    inside = ratio.clamp(min=floor).clamp(max=cap)
    return inside.masked_fill(inside != ratio, 0.) if how == "mask" else inside
@wrong("end itself|kept|strict|<=|>=|edge|equal|exactly|bound itself")
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    if how == "truncate": return ratio.clamp(floor, cap)
    return torch.where((ratio > floor) & (ratio < cap), ratio, 0.)
@wrong("how|mask|truncat")
def bounded_weights(ratio, cap, floor=0., how="truncate"): return ratio.clamp(floor, cap)
@wrong("how|mask|truncat")
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    return torch.where((ratio >= floor) & (ratio <= cap), ratio, 0.)
@wrong("floor|smallest|below|lower")
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    return ratio.clamp(max=cap) if how == "truncate" else torch.where(ratio <= cap, ratio, 0.)
@wrong("cap|largest|above|upper")
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    return ratio.clamp(min=floor) if how == "truncate" else torch.where(ratio >= floor, ratio, 0.)
@wrong("mask|weight 0|0|outside|weigh")
def bounded_weights(ratio, cap, floor=0., how="truncate"): # 1 for 0
    if how == "truncate": return ratio.clamp(floor, cap)
    return torch.where((ratio >= floor) & (ratio <= cap), ratio, 1.)
@wrong("in place|changes|argument")
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    if how == "truncate": return ratio.clamp(floor, cap)
    ratio[(ratio < floor) | (ratio > cap)] = 0
    return ratio
@wrong("mask|raw|ratio|as it is|1 and 0|0 or 1|inside|bool|type")
def bounded_weights(ratio, cap, floor=0., how="truncate"): # the mask, without the ratio
    if how == "truncate": return ratio.clamp(floor, cap)
    return ((ratio >= floor) & (ratio <= cap)).to(ratio)
@wrong("how|mask|truncat|exchang|swap")
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    if how == "mask": return ratio.clamp(floor, cap)
    return torch.where((ratio >= floor) & (ratio <= cap), ratio, 0.)
@wrong("mask|outside|inside|turned|upside|invert")
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    if how == "truncate": return ratio.clamp(floor, cap)
    return torch.where((ratio >= floor) & (ratio <= cap), 0., ratio)
@wrong("flat row|shape|remov|left out|dropped|entries|lost|kept")
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    if how == "truncate": return ratio.clamp(floor, cap)
    return ratio[(ratio >= floor) & (ratio <= cap)]

# ---------------------------------------------------------------- 22 rubric_reward
@right
def rubric_reward(marks, weights, gates):
    share = (marks * weights).sum(1) / weights[weights > 0].sum()
    return torch.where((marks[:, gates] == 1).all(1), share, torch.zeros_like(share))
@right
def rubric_reward(marks, weights, gates):
    out = []
    for row in marks:
        if (row[gates] < 1).any(): out.append(torch.zeros(()).to(weights))
        else: out.append((row.to(weights) @ weights) / weights.relu().sum())
    return torch.stack(out)
@wrong("gate")
def rubric_reward(marks, weights, gates): return marks @ weights / weights.clamp(min=0).sum()
@wrong("gate|any|all|one of")
def rubric_reward(marks, weights, gates):
    open_ = marks[:, gates].sum(1) > 0 if gates.any() else torch.ones(len(marks), dtype=torch.bool)
    return (marks @ weights) / weights.clamp(min=0).sum() * open_
@wrong("fault|below 0|negative|can be had|points")
def rubric_reward(marks, weights, gates): return marks @ weights / weights.sum() * marks[:, gates].prod(1)
@wrong("fault|below 0|negative|can be had|absolute|abs|points")
def rubric_reward(marks, weights, gates): return marks @ weights / weights.abs().sum() * marks[:, gates].prod(1)
@wrong("fault|below 0|negative|takes away|subtract")
def rubric_reward(marks, weights, gates):
    w = weights.clamp(min=0)
    return marks @ w / w.sum() * marks[:, gates].prod(1)
@wrong("gate")
def rubric_reward(marks, weights, gates): # every item is a gate
    return marks @ weights / weights.clamp(min=0).sum() * marks.prod(1)
@wrong("below 0|negative|clamp|at least 0|smaller than 0|cut")
def rubric_reward(marks, weights, gates):
    return (marks @ weights / weights.clamp(min=0).sum()).clamp(min=0) * marks[:, gates].prod(1)
@wrong("share|divid|can be had|points|factor|times")
def rubric_reward(marks, weights, gates): return marks @ weights * marks[:, gates].prod(1)
@wrong("weight|points|number of items|mean|share")
def rubric_reward(marks, weights, gates): return marks.mean(1) * marks[:, gates].prod(1)
@wrong("gate|turned|~|not met|upside")
def rubric_reward(marks, weights, gates):
    return marks @ weights / weights.clamp(min=0).sum() * marks[:, ~gates].prod(1)
@wrong("gate|points|share|left out|weights of")
def rubric_reward(marks, weights, gates): # gates earn nothing
    w = weights.masked_fill(gates, 0.)
    return marks @ w / w.clamp(min=0).sum().clamp(min=1e-9) * marks[:, gates].prod(1)
@wrong("batch|row|answers|axis|all")
def rubric_reward(marks, weights, gates): # a shut gate anywhere shuts all
    return marks @ weights / weights.clamp(min=0).sum() * marks[:, gates].prod()
@wrong("gate|-1|−1|minus|penal|0\\b")
def rubric_reward(marks, weights, gates):
    share = marks @ weights / weights.clamp(min=0).sum()
    return torch.where(marks[:, gates].prod(1) > 0, share, -1.)

# normalised_sum
@right
def normalised_sum(rewards, weights, group):
    total = sum(w * group_normalised(r, group) for w, r in zip(weights, rewards.T))
    return total.masked_fill(rewards.isnan().all(1), torch.nan)
@right
def normalised_sum(rewards, weights, group):
    out = torch.full((len(rewards),), torch.nan).to(rewards)
    for i, row in enumerate(rewards):
        seen = [k for k in range(len(row)) if not math.isnan(row[k])]
        if not seen: continue
        out[i] = 0
        for k in seen:
            mates = rewards[group == group[i], k]
            mates = mates[~mates.isnan()]
            std = mates.std() if len(mates) > 1 else torch.zeros(()).to(rewards)
            out[i] += weights[k] * (row[k] - mates.mean()) / (std + 1e-4)
    return out
def _columns(rewards, group): return torch.stack([group_normalised(r, group) for r in rewards.T], 1)
@wrong("sum|before|order|first|apart|then")
def normalised_sum(rewards, weights, group): # sums first
    total = (rewards.nan_to_num(0.) * weights).sum(1).masked_fill(rewards.isnan().all(1), torch.nan)
    return group_normalised(total, group).masked_fill(rewards.isnan().all(1), torch.nan)
@wrong("weight|before|divided out|after")
def normalised_sum(rewards, weights, group):
    return _columns(rewards * weights, group).sum(1).masked_fill(rewards.isnan().all(1), torch.nan)
@wrong("weight")
def normalised_sum(rewards, weights, group):
    return _columns(rewards, group).sum(1).masked_fill(rewards.isnan().all(1), torch.nan)
@wrong("nan|scored|nobody|no reward")
def normalised_sum(rewards, weights, group): return _columns(rewards, group) @ weights
@wrong("not 0|nan|missing|left out|0 for|scored")
def normalised_sum(rewards, weights, group): # not scored counts as 0
    return (_columns(rewards.nan_to_num(0.), group) @ weights).masked_fill(rewards.isnan().all(1), torch.nan)
@wrong("std|deviation|divid|scale|normalis")
def normalised_sum(rewards, weights, group): # centred only
    z = torch.stack([group_centered(r, group) for r in rewards.T], 1).nan_to_num(0.)
    return (z @ weights).masked_fill(rewards.isnan().all(1), torch.nan)
@wrong("group|batch")
def normalised_sum(rewards, weights, group): # over the batch
    return (_columns(rewards, torch.zeros_like(group)) @ weights).masked_fill(rewards.isnan().all(1), torch.nan)
@wrong("still has|any|all|nan|scored")
def normalised_sum(rewards, weights, group): # nan where any is missing
    return (_columns(rewards, group) @ weights).masked_fill(rewards.isnan().any(1), torch.nan)
@wrong("mean|sum|divid|weights|averag")
def normalised_sum(rewards, weights, group): # a weighted mean
    return (_columns(rewards, group) @ weights / weights.sum()).masked_fill(rewards.isnan().all(1), torch.nan)
@wrong("again|twice|batch|whiten|std|deviation|mean")
def normalised_sum(rewards, weights, group): # and once more over the batch, as the paper's last step
    out = _columns(rewards, group) @ weights
    lost = rewards.isnan().all(1)
    kept = out[~lost]
    return ((out - kept.mean()) / (kept.std() + 1e-4)).masked_fill(lost, torch.nan)
@wrong("mean|subtract|centre|center")
def normalised_sum(rewards, weights, group): # divides, does not subtract the mean
    cols = []
    for r in rewards.T:
        std = torch.stack([(lambda s: s.std() if len(s) > 1 else s.new_zeros(()))(r[(group == g) & ~r.isnan()]) for g in group])
        cols.append((r / (std + 1e-4)).nan_to_num(0.))
    return (torch.stack(cols, 1) @ weights).masked_fill(rewards.isnan().all(1), torch.nan)

# parse_rubric
@right
def parse_rubric(reply, items):
    out = []
    for item in items:
        found = re.findall(rf"(?<!\w){re.escape(item)}: (yes|no)(?!\w)", reply)
        out.append(float(found[-1] == "yes") if found else math.nan)
    return out
@right
def parse_rubric(reply, items):
    last = {}
    for item in items:
        for hit in re.finditer(r"\b" + re.escape(item) + r": (yes|no)\b", reply): last[item] = hit[1]
    return [{"yes": 1., "no": 0.}.get(last.get(item), float("nan")) for item in items]
def _marks(reply, items, pattern, which=-1, table=None, none=math.nan):
    found = [re.findall(pattern(i), reply) for i in items]
    return [(table or {"yes": 1., "no": 0.})[f[which]] if f else none for f in found]
@wrong("last|first|again")
def parse_rubric(reply, items): return _marks(reply, items, lambda i: rf"\b{re.escape(i)}: (yes|no)\b", which=0)
@wrong("nan|no verdict|missing|0")
def parse_rubric(reply, items): return _marks(reply, items, lambda i: rf"\b{re.escape(i)}: (yes|no)\b", none=0.)
@wrong("nothing|word|longer|edge|begins with")
def parse_rubric(reply, items): return _marks(reply, items, lambda i: rf"\b{re.escape(i)}: (yes|no)")
@wrong("another item|unclean|word|edge|ends with|longer")
def parse_rubric(reply, items): return _marks(reply, items, lambda i: rf"{re.escape(i)}: (yes|no)\b")
@wrong("yes is 1|turned|upside|swap|exchang|1 and 0|opposite|1 -")
def parse_rubric(reply, items):
    return _marks(reply, items, lambda i: rf"\b{re.escape(i)}: (yes|no)\b", table={"yes": 0., "no": 1.})
@wrong("escape|sign|special|itself")
def parse_rubric(reply, items): return _marks(reply, items, lambda i: rf"\b{i}: (yes|no)\b")
@wrong("yes|ever|any|last|again|later")
def parse_rubric(reply, items): # yes if it was ever said
    return [1. if re.search(rf"\b{re.escape(i)}: yes\b", reply) else 0. if re.search(rf"\b{re.escape(i)}: no\b", reply)
            else math.nan for i in items]
@wrong("order|items|reply|named")
def parse_rubric(reply, items): # in the order of the reply
    found = dict(re.findall(r"\b([\w ]+): (yes|no)\b", reply))
    kept = [float(v == "yes") for k, v in found.items() if k in items]
    return kept + [math.nan] * (len(items) - len(kept))
@wrong("no\\b|0\\b|nan|not met")
def parse_rubric(reply, items): # a no is no verdict
    return [1. if re.findall(rf"\b{re.escape(i)}: (yes|no)\b", reply)[-1:] == ["yes"] else math.nan for i in items]
@wrong("case|small|capital|lower|upper")
def parse_rubric(reply, items):
    return _marks(reply.lower(), items, lambda i: rf"\b{re.escape(i.lower())}: (yes|no)\b")
@wrong("nan|none|no verdict|type")
def parse_rubric(reply, items): return _marks(reply, items, lambda i: rf"\b{re.escape(i)}: (yes|no)\b", none=None)

# ---------------------------------------------------------------- 23 turn_numbers
@right
def turn_numbers(mask):
    out = torch.full(mask.shape, -1)
    for i, row in enumerate(mask.tolist()):
        turn, before = -1, False
        for j, written in enumerate(row):
            if written:
                turn += not before
                out[i, j] = turn
            before = written
    return out
@right
def turn_numbers(mask):
    begins = mask.long().diff(dim=1, prepend=torch.zeros(len(mask), 1, dtype=torch.long)) == 1
    return torch.where(mask, begins.cumsum(1) - 1, -1)
def _begins(mask): return mask & ~F.pad(mask, (1, 0))[:, :-1]
@wrong("first turn|from 1|is 0|1 too|one too|0")
def turn_numbers(mask): return _begins(mask).cumsum(1).masked_fill(~mask, -1)
@wrong("outside|-1|−1|mask|not written|else")
def turn_numbers(mask): return (_begins(mask).cumsum(1) - 1).masked_fill(~mask, 0)
@wrong("outside|-1|−1|mask|not written|else|gap|inserted has no turn")
def turn_numbers(mask): return _begins(mask).cumsum(1) - 1
@wrong("gap|turn|all")
def turn_numbers(mask): return torch.zeros_like(mask, dtype=torch.long).masked_fill(~mask, -1)
@wrong("token|turn|begin")
def turn_numbers(mask): return (mask.cumsum(1) - 1).masked_fill(~mask, -1)
@wrong("gap|length|tokens|inserted|begin")
def turn_numbers(mask): # counts tokens of gaps
    return (~mask).cumsum(1).masked_fill(~mask, -1)
@wrong("row|batch|flat|axis")
def turn_numbers(mask): # goes on through the batch
    return (_begins(mask).flatten().cumsum(0).view(mask.shape) - 1).masked_fill(~mask, -1)
@wrong("axis|row|column")
def turn_numbers(mask): return (_begins(mask).cumsum(0) - 1).masked_fill(~mask, -1)
@wrong("first token|column 0|wrap|roll|last token|begin")
def turn_numbers(mask): return ((mask & ~mask.roll(1, 1)).cumsum(1) - 1).masked_fill(~mask, -1)
@wrong("first token|column 0|begin|entry 0")
def turn_numbers(mask): # a row that begins written
    begins = torch.zeros_like(mask)
    begins[:, 1:] = mask[:, 1:] & ~mask[:, :-1]
    return (begins.cumsum(1) - 1).masked_fill(~mask, -1)
@wrong("end|late|last|begin")
def turn_numbers(mask): # counts ends
    ends = mask & ~F.pad(mask, (0, 1))[:, 1:]
    return (ends.cumsum(1) - 1).masked_fill(~mask, -1)
@wrong("end|direction|time|right|last turn|backward|other way")
def turn_numbers(mask): return turn_numbers_of(mask.flip(1)).flip(1)
def turn_numbers_of(mask): return (_begins(mask).cumsum(1) - 1).masked_fill(~mask, -1)
@wrong("type|dtype|float|integer|whole")
def turn_numbers(mask): return turn_numbers_of(mask).float()

# turn_advantages
@right
def turn_advantages(reward, group, turn):
    there = ~reward.isnan()
    go = torch.where(there, reward, 0.).flip(1).cumsum(1).flip(1)
    same = (group[:, None] == group).to(reward)                       # (b b)
    mean = (same @ (go * there)) / (same @ there.to(reward)).clamp(min=1)
    return torch.where(turn >= 0, (go - mean).gather(1, turn.clamp(min=0)), 0.)
@right
def turn_advantages(reward, group, turn):
    b, k = reward.shape
    out = torch.zeros(turn.shape).to(reward)
    def to_go(i, j): return sum(r for r in reward[i, j:].tolist() if r == r)
    for i in range(b):
        for t, j in enumerate(turn[i].tolist()):
            if j < 0: continue
            mates = [to_go(m, j) for m in range(b) if group[m] == group[i] and not reward[m, j].isnan()]
            out[i, t] = to_go(i, j) - sum(mates) / len(mates)
    return out
def _turns(reward, group, turn, go=None, centre=None, pick=None):
    there = ~reward.isnan()
    g = reward.nan_to_num(0.).flip(1).cumsum(1).flip(1) if go is None else go(reward.nan_to_num(0.))
    g = g.masked_fill(~there, torch.nan)
    a = torch.stack([group_centered(c, group) for c in g.T], 1) if centre is None else centre(g)
    a = a.nan_to_num(0.)
    out = a.gather(1, turn.clamp(min=0)) if pick is None else pick(a)
    return out.masked_fill(turn < 0, 0.)
@wrong("to go|from a turn on|later|own reward|sum")
def turn_advantages(reward, group, turn): return _turns(reward, group, turn, go=lambda r: r)
@wrong("to go|from a turn on|so far|direction|forward|backward|other way|time|not up to it")
def turn_advantages(reward, group, turn): return _turns(reward, group, turn, go=lambda r: r.cumsum(1))
@wrong("to go|from a turn on|whole|all turns|total|every turn|what came before it")
def turn_advantages(reward, group, turn):
    return _turns(reward, group, turn, go=lambda r: r.sum(1, keepdim=True).expand_as(r))
@wrong("own|from a turn on|itself|later|after|next")
def turn_advantages(reward, group, turn): # rewards after the turn only
    return _turns(reward, group, turn, go=lambda r: r.flip(1).cumsum(1).flip(1) - r)
@wrong("group|batch")
def turn_advantages(reward, group, turn): return _turns(reward, torch.zeros_like(group), turn)
@wrong("same turn|turn|all turns|one mean|of the group")
def turn_advantages(reward, group, turn): # one mean for all turns of a group
    def centre(g): return torch.stack([row - g[group == group[i]].nanmean() for i, row in enumerate(g)])
    return _turns(reward, group, turn, centre=centre)
@wrong("nan|have it|no such turn|that turn|not there|missing|rows|without the turn")
def turn_advantages(reward, group, turn): # a row without the turn counts as 0
    return _turns(reward, group, turn, centre=lambda g: torch.stack([group_centered(c, group) for c in g.nan_to_num(0.).T], 1))
@wrong("mean|baseline|subtract|less")
def turn_advantages(reward, group, turn): return _turns(reward, group, turn, centre=lambda g: g)
@wrong("std|deviation|divid|scale")
def turn_advantages(reward, group, turn):
    return _turns(reward, group, turn, centre=lambda g: torch.stack([group_normalised(c, group) for c in g.T], 1))
@wrong("others|own|leave|itself|n - 1|n/\\(n|1.5|factor")
def turn_advantages(reward, group, turn): # the others' mean
    def centre(g):
        out = torch.zeros_like(g)
        for i in range(len(g)):
            for j in range(g.shape[1]):
                rest = g[(group == group[i]) & (torch.arange(len(g)) != i), j]
                out[i, j] = g[i, j] - (rest.nanmean() if (~rest.isnan()).any() else 0.)
        return out
    return _turns(reward, group, turn, centre=centre)
@wrong("below 0|outside|not written|0 where|mask|written|-1")
def turn_advantages(reward, group, turn): # what nobody wrote gets that of turn 0
    there = ~reward.isnan()
    go = reward.nan_to_num(0.).flip(1).cumsum(1).flip(1).masked_fill(~there, torch.nan)
    return torch.stack([group_centered(c, group) for c in go.T], 1).nan_to_num(0.).gather(1, turn.clamp(min=0))
@wrong("last turn|turn|next|index|late")
def turn_advantages(reward, group, turn): # every token gets its row's last turn
    return _turns(reward, group, turn, pick=lambda a: a.gather(1, turn.amax(1, keepdim=True).clamp(min=0).expand_as(turn)))
@wrong("first turn|turn 0|turn|whole row")
def turn_advantages(reward, group, turn): return _turns(reward, group, turn, pick=lambda a: a[:, :1].expand_as(turn))
@wrong("sign|minus|turned")
def turn_advantages(reward, group, turn): return -_turns(reward, group, turn)
@wrong("median|mean")
def turn_advantages(reward, group, turn):
    def centre(g): return torch.stack([row - g[group == group[i]].nanmedian(0).values for i, row in enumerate(g)])
    return _turns(reward, group, turn, centre=centre)
@wrong("length|divid|tokens|number")
def turn_advantages(reward, group, turn): # shared among the tokens of a turn
    a = _turns(reward, group, turn)
    n = (turn[:, :, None] == turn[:, None, :]).sum(-1)
    return a / n
@wrong("own reward|to go|mean|rewards from|baseline|later")
def turn_advantages(reward, group, turn): # to go, less the mean of the turn's own rewards
    def centre(g): return torch.stack([row - reward[group == group[i]].nanmean(0) for i, row in enumerate(g)])
    return _turns(reward, group, turn, centre=centre)
@wrong("last token|every token|each token|end of|only")
def turn_advantages(reward, group, turn): # paid at a turn's last token
    ends = turn != torch.cat([turn[:, 1:], torch.full_like(turn[:, :1], -1)], 1)
    return _turns(reward, group, turn).masked_fill(~ends, 0.)

# fixed_join
@right
def fixed_join(prompt, parts):
    ids, written = prompt + [], [False for _ in prompt]
    for k in range(len(parts)):
        for token in parts[k]:
            ids.append(token)
            written.append(k % 2 == 0)
    return ids, written
@right
def fixed_join(prompt, parts):
    ids = sum(parts, list(prompt))
    written = sum([[not k % 2] * len(p) for k, p in enumerate(parts)], [False] * len(prompt))
    return ids, written
@wrong("prompt")
def fixed_join(prompt, parts):
    return sum(parts, list(prompt)), [True] * len(prompt) + [k % 2 == 0 for k, p in enumerate(parts) for _ in p]
@wrong("inserted|alternat|written|true|tool")
def fixed_join(prompt, parts):
    return sum(parts, list(prompt)), [False] * len(prompt) + [True for p in parts for _ in p]
@wrong("turned|odd|alternat|upside|inserted|opposite|even|~|not |the first part is")
def fixed_join(prompt, parts):
    return sum(parts, list(prompt)), [False] * len(prompt) + [k % 2 == 1 for k, p in enumerate(parts) for _ in p]
@wrong("in place|changes|argument|prompt")
def fixed_join(prompt, parts):
    written = [False] * len(prompt)
    for k, p in enumerate(parts):
        prompt += p
        written += [k % 2 == 0] * len(p)
    return prompt, written
@wrong("prompt|missing|short|left out")
def fixed_join(prompt, parts):
    return sum(parts, []), [k % 2 == 0 for k, p in enumerate(parts) for _ in p]
@wrong("empty")
def fixed_join(prompt, parts): # empty parts dropped before counting
    kept = [p for p in parts if p]
    return sum(kept, list(prompt)), [False] * len(prompt) + [k % 2 == 0 for k, p in enumerate(kept) for _ in p]
@wrong("order|written|inserted|first|alternat")
def fixed_join(prompt, parts): # written first, then what was inserted
    a, b = sum(parts[::2], []), sum(parts[1::2], [])
    return list(prompt) + a + b, [False] * len(prompt) + [True] * len(a) + [False] * len(b)
@wrong("ids|bool|token|each|part|length|short")
def fixed_join(prompt, parts): # one bool per part
    return sum(parts, list(prompt)), [False] * len(prompt) + [k % 2 == 0 for k, p in enumerate(parts)]
@wrong("first|only|later|part")
def fixed_join(prompt, parts): # only the first part is the model's
    return sum(parts, list(prompt)), [False] * len(prompt) + [k == 0 for k, p in enumerate(parts) for _ in p]
@wrong("nest|list of lists|part|flat|append")
def fixed_join(prompt, parts):
    return list(prompt) + parts, [False] * len(prompt) + [k % 2 == 0 for k, p in enumerate(parts)]

# majority_vote
@right
def majority_vote(answers):
    best, most = None, 0
    for a in answers:
        if a is not None and answers.count(a) > most: best, most = a, answers.count(a)
    return best
@right
def majority_vote(answers):
    votes = [a for a in answers if a is not None]
    return max(votes, key=votes.count) if votes else None
@wrong("none|no vote")
def majority_vote(answers): return collections.Counter(answers).most_common(1)[0][0] if answers else None
@wrong("stopped|none|empty|nobody|no answer|all hold")
def majority_vote(answers): return collections.Counter(a for a in answers if a is not None).most_common(1)[0][0]
@wrong("first|tie|equal|last")
def majority_vote(answers):
    votes = [a for a in answers if a is not None]
    return max(reversed(votes), key=votes.count) if votes else None
@wrong("frequent|largest|highest|most|count")
def majority_vote(answers): return max((a for a in answers if a is not None), default=None)
@wrong("frequent|first|most|count")
def majority_vote(answers): return next((a for a in answers if a is not None), None)
@wrong("half|majority|absolute|most frequent|more than")
def majority_vote(answers):
    votes = [a for a in answers if a is not None]
    return next((a for a in votes if votes.count(a) > len(votes) / 2), None)
@wrong("least|rarest|frequent|turned|fewest")
def majority_vote(answers):
    votes = [a for a in answers if a is not None]
    return min(votes, key=votes.count) if votes else None
@wrong("median|frequent|most|middle")
def majority_vote(answers):
    votes = sorted(a for a in answers if a is not None)
    return votes[len(votes) // 2] if votes else None
@wrong("tie|equal|first|smallest|sorted")
def majority_vote(answers):
    votes = sorted(a for a in answers if a is not None)
    return max(votes, key=votes.count) if votes else None
@wrong("count|number|pair|tuple|answer")
def majority_vote(answers):
    found = collections.Counter(a for a in answers if a is not None).most_common(1)
    return found[0] if found else None
@wrong("0\\b|zero|false|falsy|is not none|is a vote")
def majority_vote(answers): # 0 is no vote either
    votes = [a for a in answers if a]
    return max(votes, key=votes.count) if votes else None

# ---------------------------------------------------------------- 24 prediction_powered
@right
def prediction_powered(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam, dtype=gold.dtype)
    rest = gold - lam.unsqueeze(-1) * labelled
    error = rest.std(-1)**2 / rest.shape[-1] + (lam * judge.std(-1))**2 / judge.shape[-1]
    return lam * judge.mean(-1) + rest.mean(-1), error**.5
@right
def prediction_powered(judge, labelled, gold, lam=1.):
    if isinstance(lam, torch.Tensor): lam_ = lam[..., None]
    else: lam_ = lam
    a, b = lam_ * judge, gold - lam_ * labelled
    var = lambda x: ((x - x.mean(-1, keepdim=True))**2).sum(-1) / (x.shape[-1] - 1)
    return b.mean(-1) + a.mean(-1), torch.sqrt(var(a) / a.shape[-1] + var(b) / b.shape[-1])
def _ppi(judge, labelled, gold, lam, mean=None, error=None):
    lam, n, m = torch.as_tensor(lam), judge.shape[-1], gold.shape[-1]
    rest = gold - lam[..., None] * labelled
    centre = gold.mean(-1) + lam * (judge.mean(-1) - labelled.mean(-1))
    square = rest.var(-1) / m + lam**2 * judge.var(-1) / n
    return (centre if mean is None else mean(lam, n, m)), (square.sqrt() if error is None else error(lam, n, m, rest))
@wrong("sign|bracket|others|minus|turned")
def prediction_powered(judge, labelled, gold, lam=1.):
    return _ppi(judge, labelled, gold, lam, mean=lambda l, n, m: gold.mean(-1) - l * (judge.mean(-1) - labelled.mean(-1)))
@wrong("λ|lam")
def prediction_powered(judge, labelled, gold, lam=1.): return _ppi(judge, labelled, gold, 1.)
@wrong("labelled|bracket|subtract|missing")
def prediction_powered(judge, labelled, gold, lam=1.):
    return _ppi(judge, labelled, gold, lam, mean=lambda l, n, m: gold.mean(-1) + l * judge.mean(-1))
@wrong("judge|bracket|missing|only labels|correct")
def prediction_powered(judge, labelled, gold, lam=1.):
    return _ppi(judge, labelled, gold, lam, mean=lambda l, n, m: gold.mean(-1))
@wrong("root|sqrt|square|√|variance")
def prediction_powered(judge, labelled, gold, lam=1.):
    return _ppi(judge, labelled, gold, lam, error=lambda l, n, m, rest: rest.var(-1) / m + l**2 * judge.var(-1) / n)
@wrong("var|difference|together|separate|covarian|gold − λ|gold - |pair")
def prediction_powered(judge, labelled, gold, lam=1.): # as if labels and verdicts were independent
    return _ppi(judge, labelled, gold, lam, error=lambda l, n, m, rest: (
        (gold.var(-1) + l**2 * labelled.var(-1)) / m + l**2 * judge.var(-1) / n).sqrt())
@wrong("n - 1|n − 1|unbiased|correction")
def prediction_powered(judge, labelled, gold, lam=1.):
    return _ppi(judge, labelled, gold, lam, error=lambda l, n, m, rest: (
        rest.var(-1, unbiased=False) / m + l**2 * judge.var(-1, unbiased=False) / n).sqrt())
@wrong("λ|lam|square")
def prediction_powered(judge, labelled, gold, lam=1.):
    return _ppi(judge, labelled, gold, lam, error=lambda l, n, m, rest: (rest.var(-1) / m + l * judge.var(-1) / n).sqrt())
@wrong("n\\b|m\\b|swap|exchang|divid")
def prediction_powered(judge, labelled, gold, lam=1.):
    return _ppi(judge, labelled, gold, lam, error=lambda l, n, m, rest: (rest.var(-1) / n + l**2 * judge.var(-1) / m).sqrt())
@wrong("judge|second|missing|term|var|others")
def prediction_powered(judge, labelled, gold, lam=1.): # only the labels' part
    return _ppi(judge, labelled, gold, lam, error=lambda l, n, m, rest: (rest.var(-1) / m).sqrt())
@wrong("axis|batch|last|shape|mean")
def prediction_powered(judge, labelled, gold, lam=1.):
    return _ppi(judge, labelled, gold, lam, mean=lambda l, n, m: gold.mean() + l * (judge.mean() - labelled.mean()))
@wrong("standard error|n\\b|m\\b|divid|number|√")
def prediction_powered(judge, labelled, gold, lam=1.):
    return _ppi(judge, labelled, gold, lam, error=lambda l, n, m, rest: (rest.var(-1) + l**2 * judge.var(-1)).sqrt())
@wrong("others|all|labelled|together|without a label")
def prediction_powered(judge, labelled, gold, lam=1.): # verdicts on labelled pairs count among the others
    return _ppi(torch.cat([judge, labelled], -1), labelled, gold, lam)

# rogan_gladen
@right
def rogan_gladen(judge, labelled, gold):
    q1 = (gold * labelled).mean(-1) / gold.mean(-1)
    q0 = ((1 - gold) * (1 - labelled)).mean(-1) / (1 - gold).mean(-1)
    return (judge.mean(-1) - (1 - q0)) / (q1 - (1 - q0))
@right
def rogan_gladen(judge, labelled, gold):
    losses = gold.shape[-1] - gold.sum(-1)
    false = (labelled.sum(-1) - (labelled * gold).sum(-1)) / losses     # 1 - q0
    return (judge.sum(-1) / judge.shape[-1] - false) / ((labelled * gold).sum(-1) / gold.sum(-1) - false)
def _rates(labelled, gold):
    q1 = (labelled * gold).sum(-1) / gold.sum(-1)
    return q1, ((1 - labelled) * (1 - gold)).sum(-1) / (1 - gold).sum(-1)
@wrong("sign|minus|plus|q0|specificity")
def rogan_gladen(judge, labelled, gold):
    q1, q0 = _rates(labelled, gold)
    return (judge.mean(-1) - q0 + 1) / (q0 + q1 - 1)
@wrong("swap|exchang|sensitivity|specificity|q1|q0")
def rogan_gladen(judge, labelled, gold):
    q0, q1 = _rates(labelled, gold)
    return (judge.mean(-1) + q0 - 1) / (q0 + q1 - 1)
@wrong("divid|denominator|missing|q0 \\+ q1|forgot|factor")
def rogan_gladen(judge, labelled, gold):
    q1, q0 = _rates(labelled, gold)
    return judge.mean(-1) + q0 - 1
@wrong("raw|correct|win rate|judge's own|p\\b|missing|alone")
def rogan_gladen(judge, labelled, gold): return judge.mean(-1)
@wrong("label|p\\b|judge|without a label|others")
def rogan_gladen(judge, labelled, gold):
    q1, q0 = _rates(labelled, gold)
    return (labelled.mean(-1) + q0 - 1) / (q0 + q1 - 1)
@wrong("tie|half|½")
def rogan_gladen(judge, labelled, gold): # ties have no part in the rates
    g = lambda keep: (labelled * keep).sum(-1) / keep.sum(-1).clamp(min=1)
    q1, q0 = g((gold == 1).to(labelled)), 1 - g((gold == 0).to(labelled))
    return (judge.mean(-1) + q0 - 1) / (q0 + q1 - 1)
@wrong("predictive|label|verdict|denominator|swap|given|divid")
def rogan_gladen(judge, labelled, gold): # precision for sensitivity
    q0, q1 = _rates(labelled, gold)[1], (labelled * gold).sum(-1) / labelled.sum(-1)
    return (judge.mean(-1) + q0 - 1) / (q0 + q1 - 1)
@wrong("specificity|q0|1 -")
def rogan_gladen(judge, labelled, gold): # q0 is the false positive rate
    q1, q0 = _rates(labelled, gold)
    q0 = 1 - q0
    return (judge.mean(-1) + q0 - 1) / (q0 + q1 - 1)
@wrong("range|clamp|0 to 1|bound|above 1|below 0|between|cut")
def rogan_gladen(judge, labelled, gold):
    q1, q0 = _rates(labelled, gold)
    return ((judge.mean(-1) + q0 - 1) / (q0 + q1 - 1)).clamp(0, 1)
@wrong("axis|last|batch|mean|shape|row")
def rogan_gladen(judge, labelled, gold):
    q1, q0 = _rates(labelled, gold)
    return (judge.mean() + q0 - 1) / (q0 + q1 - 1)
@wrong("all pairs|number|divid|wins|sum of labels|mean|sensitivity|labels")
def rogan_gladen(judge, labelled, gold): # means over all labels instead of over wins and losses
    q1, q0 = (labelled * gold).mean(-1), ((1 - labelled) * (1 - gold)).mean(-1)
    return (judge.mean(-1) + q0 - 1) / (q0 + q1 - 1)

# fixed_estimate
@right
def fixed_estimate(judge, labelled, gold):
    total = 0.
    for v in sorted(set(judge.tolist())):
        own = [g for g, j in zip(gold.tolist(), labelled.tolist()) if j == v]
        total += (judge == v).sum().item() / len(judge) * (sum(own) / len(own) if own else math.nan)
    return total
@right
def fixed_estimate(judge, labelled, gold): # each pair gets its verdict's mean label
    mean = {v: gold[labelled == v].mean() for v in judge.unique().tolist()}
    return torch.stack([mean[v] for v in judge.tolist()]).mean()
@wrong("labels alone|share|plain mean|strat|verdict|all labels|weigh")
def fixed_estimate(judge, labelled, gold): return gold.mean()
@wrong("share|all pairs|labelled")
def fixed_estimate(judge, labelled, gold): # shares among the labelled
    return sum((labelled == v).float().mean() * gold[labelled == v].mean() for v in judge.unique())
@wrong("share|equal|weigh|mean of means|number of verdicts")
def fixed_estimate(judge, labelled, gold):
    return torch.stack([gold[labelled == v].mean() for v in judge.unique()]).mean()
@wrong("nan|without a label|no label|left out|skip|missing")
def fixed_estimate(judge, labelled, gold):
    return sum((judge == v).float().mean() * gold[labelled == v].mean() for v in labelled.unique())
@wrong("share|divid|mean|number|count|factor|times")
def fixed_estimate(judge, labelled, gold): # counts for shares
    return sum((judge == v).sum() * gold[labelled == v].mean() for v in judge.unique())
@wrong("verdict|label|judge|gold")
def fixed_estimate(judge, labelled, gold): # the judge's own win rate
    return judge.mean()
@wrong("sum|mean|label|divid")
def fixed_estimate(judge, labelled, gold):
    return sum((judge == v).float().mean() * gold[labelled == v].sum() for v in judge.unique())
@wrong("tie|verdict|½|half|left out|wins")
def fixed_estimate(judge, labelled, gold): # only two verdicts
    return sum((judge == v).float().mean() * gold[labelled == v].mean() for v in (0., 1.))
@wrong("bracket|labelled|verdict|share|prediction|strat|difference")
def fixed_estimate(judge, labelled, gold): # the estimate that is off
    return gold.mean() + judge.mean() - labelled.mean()
@wrong("nan|0\\b|without a label|no label")
def fixed_estimate(judge, labelled, gold):
    return sum(((judge == v).float().mean() * gold[labelled == v].mean()).nan_to_num(0.) for v in judge.unique())

# bradley_terry_scores
@right
def bradley_terry_scores(wins, steps=100):
    games = wins + wins.mT
    off = ~torch.eye(wins.shape[-1], dtype=torch.bool)
    won, lost = (wins * off).sum(-1), (wins * off).sum(-2)
    if ((won == 0) | (lost == 0)).any(): raise ValueError("somebody won or lost every game")
    games, s = games * off, torch.zeros_like(won)
    for _ in range(steps):
        p = s.exp()
        p = won / (games / (p[..., :, None] + p[..., None, :])).sum(-1)
        s = p.log()
        s = s - s.mean(-1, keepdim=True)
    return s
def _zermelo(wins, steps, p=None, check=True, won=None, after=None, games=None):
    n = wins + wins.transpose(-1, -2) if games is None else games
    w = wins.sum(-1) if won is None else won
    if check and ((wins.sum(-1) == 0) | (wins.sum(-2) == 0)).any(): raise ValueError("infinite")
    p = torch.ones_like(w)
    for _ in range(steps):
        p = w / (n / (p[..., :, None] + p[..., None, :])).sum(-1)
        p = p / p.mean(-1, keepdim=True)
    s = p.log()
    return s - s.mean(-1, keepdim=True) if after is None else after(p)
@right
def bradley_terry_scores(wins, steps=100): return _zermelo(wins, steps)
@wrong("valueerror|every game|refuse|raise|inf")
def bradley_terry_scores(wins, steps=100): return _zermelo(wins, steps, check=False)
@wrong("mean|0\\b|centre|subtract|constant")
def bradley_terry_scores(wins, steps=100): return _zermelo(wins, steps, after=lambda p: p.log())
@wrong("log|exp|strength|p\\b")
def bradley_terry_scores(wins, steps=100): return _zermelo(wins, steps, after=lambda p: p)
@wrong("sign|minus|column|lost|losses|turned|beat|transpos")
def bradley_terry_scores(wins, steps=100): return _zermelo(wins.mT.contiguous(), steps)
@wrong("step|iterat|converg|once|again")
def bradley_terry_scores(wins, steps=100): return _zermelo(wins, 1)
@wrong("first|mean|0\\b|subtract|constant")
def bradley_terry_scores(wins, steps=100):
    return _zermelo(wins, steps, after=lambda p: p.log() - p.log()[..., :1])
@wrong("games|both|wins|n_ij|n_\\{ij\\}|lost")
def bradley_terry_scores(wins, steps=100): return _zermelo(wins, steps, games=wins)
@wrong("log|base|factor|times|elo|400|10")
def bradley_terry_scores(wins, steps=100):
    return _zermelo(wins, steps, after=lambda p: p.log10() - p.log10().mean(-1, keepdim=True))
@wrong("p_i|p_j|opponent|iterat|strength|share|games|win rate|denominator")
def bradley_terry_scores(wins, steps=100): # logit of the share of games won
    _zermelo(wins, 1)
    share = wins.sum(-1) / (wins + wins.mT).sum(-1)
    s = share.logit()
    return s - s.mean(-1, keepdim=True)
@wrong("log|mean|0\\b|order|geometric|subtract|constant")
def bradley_terry_scores(wins, steps=100): # mean of p subtracted for the mean of the logs
    return _zermelo(wins, steps, after=lambda p: (p / p.mean(-1, keepdim=True)).log())
@wrong("lost|valueerror|every game|refuse|raise|inf")
def bradley_terry_scores(wins, steps=100): # asks only who never won
    if (wins.sum(-1) == 0).any(): raise ValueError("lost all")
    return _zermelo(wins, steps, check=False)
@wrong("batch|axis|last|mean|constant|0\\b")
def bradley_terry_scores(wins, steps=100): return _zermelo(wins, steps, after=lambda p: p.log() - p.log().mean())
@wrong("std|deviation|divid|scale|factor")
def bradley_terry_scores(wins, steps=100):
    return _zermelo(wins, steps, after=lambda p: (p.log() - p.log().mean(-1, keepdim=True)) / p.log().std(-1, keepdim=True))

# ---------------------------------------------------------------- fresh slips for the three-star exercises
def _best(logp, score, n, u=None, l=None, mass=None, share=None):
    if n < 1: raise ValueError("n")
    p = logp.exp()
    order = score[:, None] - score
    u = (p * (order >= 0)).sum(-1) if u is None else u(p, order)
    l = (p * (order == 0)).sum(-1) if l is None else l(p, order)
    mass = (u**n - (u - l).clamp(min=0)**n) if mass is None else mass(u, l)
    out = (logp - l.log() if share is None else share(logp, l)) + mass.log()
    return out.masked_fill(logp == -torch.inf, -torch.inf)
@wrong("n\\b|draw|power|twice|n - 1|log")
def best_of_n_policy(logp, score, n): # the log of u, n times, but l to the power n
    return _best(logp, score, n, mass=lambda u, l: u**n - (u - l**n).clamp(min=0))
@wrong("tie|equal|share|own score|l\\b|exactly")
def best_of_n_policy(logp, score, n): # ties share evenly by number
    return _best(logp, score, n, share=lambda logp, l: -(score[:, None] == score).sum(-1).log())
@wrong("sum to|normali|sum is|renormal|add up")
def best_of_n_policy(logp, score, n): # normalised needlessly over a wrong total
    out = _best(logp, score, n, mass=lambda u, l: u**n)
    return out - out.logsumexp(0)
@wrong("lowest|worst|at least|direction|lower|higher")
def best_of_n_policy(logp, score, n): return _best(logp, -score, n)
@wrong("at least|1 -|one of|among|drawn|miss|higher|u\\b|own")
def best_of_n_policy(logp, score, n): # probability to be drawn at all
    if n < 1: raise ValueError
    return (1 - (1 - logp.exp())**n).log()
@wrong("exp|log|probabilit")
def best_of_n_policy(logp, score, n): # a linear n
    return _best(logp, score, n, mass=lambda u, l: (n * u.log()).exp() - (n * (u - l).clamp(min=1e-30)).exp() + 1e-30)
@wrong("n\\b|ignor|1\\b|one draw")
def best_of_n_policy(logp, score, n):
    if n < 1: raise ValueError
    return logp
@wrong("two|2|n\\b|always")
def best_of_n_policy(logp, score, n):
    if n < 1: raise ValueError
    return _best(logp, score, 2)
@wrong("valueerror|0\\b|refuse|raise|n\\b")
def best_of_n_policy(logp, score, n): # refuses 1 as well
    if n < 2: raise ValueError
    return _best(logp, score, n)
@wrong("tie|equal|own|strict|exactly|first")
def best_of_n_policy(logp, score, n): # ties lose: only what is strictly above counts, by index
    m = len(score)
    before = (torch.arange(m)[:, None] > torch.arange(m)) & (score[:, None] == score)
    p = logp.exp()
    u = (p * ((score[:, None] > score) | before)).sum(-1) + p
    return _best(logp, score, n, mass=lambda a, l: (u**n - (u - p).clamp(min=0)**n), share=lambda logp, l: torch.zeros_like(l))

def _gae(reward, value, mask, gamma=1., lam=.95, delta=None, carry=None, after=None, wide=True):
    if wide: reward, value = at_least_float32(reward, value)
    r, v = reward.masked_fill(~mask, 0.), value.masked_fill(~mask, 0.)
    a, nxt, out = torch.zeros_like(r[:, 0]), torch.zeros_like(r[:, 0]), torch.zeros_like(r)
    for i in reversed(range(r.shape[1])):
        d = r[:, i] + gamma * nxt - v[:, i] if delta is None else delta(r[:, i], nxt, v[:, i])
        new = d + gamma * lam * a if carry is None else carry(d, a)
        a, nxt = torch.where(mask[:, i], new, a), torch.where(mask[:, i], v[:, i], nxt)
        out[:, i] = torch.where(mask[:, i], new, 0.)
    return (out, (out + v).masked_fill(~mask, 0.)) if after is None else after(out, v)
@wrong("whiten|normali|mean|std|deviation|scal|centr")
def gae(reward, value, mask, gamma=1., lam=.95):
    def whiten(a, v):
        x = a[mask]
        w = ((a - x.mean()) / (x.std() + 1e-8)).masked_fill(~mask, 0.)
        return w, (a + v).masked_fill(~mask, 0.)
    return _gae(reward, value, mask, gamma, lam, after=whiten)
@wrong("mean|centr|subtract|whiten|normali")
def gae(reward, value, mask, gamma=1., lam=.95):
    def centre(a, v): return (a - a[mask].mean()).masked_fill(~mask, 0.), (a + v).masked_fill(~mask, 0.)
    return _gae(reward, value, mask, gamma, lam, after=centre)
@wrong("length|number of|divid")
def gae(reward, value, mask, gamma=1., lam=.95): # rewards divided by the length
    return _gae(reward / mask.sum(1, keepdim=True).clamp(min=1), value, mask, gamma, lam)
@wrong("return|a \\+ v|monte carlo|r \\+|reward|γ|next value|second|\\[1\\]: lam is not used")
def gae(reward, value, mask, gamma=1., lam=.95): # the return is the one-step target
    def back(a, v):
        r = at_least_float32(reward)[0].masked_fill(~mask, 0.)
        nxt = torch.zeros_like(v)
        for i in range(len(v)):
            at = mask[i].nonzero()[:, 0]
            nxt[i, at[:-1]] = v[i, at[1:]]
        return a, (r + gamma * nxt).masked_fill(~mask, 0.)
    return _gae(reward, value, mask, gamma, lam, after=back)
@wrong("value|v\\b|critic|ignor|baseline|both")
def gae(reward, value, mask, gamma=1., lam=.95): # no critic at all
    return _gae(reward, torch.zeros_like(value), mask, gamma, lam)
@wrong("clamp|clip|cut|bound|between|-1|−1|range")
def gae(reward, value, mask, gamma=1., lam=.95):
    def clip(a, v):
        a = a.clamp(-1, 1)
        return a, (a + v).masked_fill(~mask, 0.)
    return _gae(reward, value, mask, gamma, lam, after=clip)
@wrong("λ|lam|γ|gamma")
def gae(reward, value, mask, gamma=1., lam=.95): # γ + λ - 1
    return _gae(reward, value, mask, gamma, lam, carry=lambda d, a: d + (gamma + lam - 1) * a)
@wrong("sign|minus|plus|δ|next value|v_|\\+ value")
def gae(reward, value, mask, gamma=1., lam=.95): # δ with + V
    return _gae(reward, value, mask, gamma, lam, delta=lambda r, nxt, v: r + gamma * nxt + v)
@wrong("reward|r_i|missing|left out|term")
def gae(reward, value, mask, gamma=1., lam=.95):
    return _gae(torch.zeros_like(reward), value, mask, gamma, lam)
@wrong("after the last|bootstrap|v = 0|0 after|own value|last")
def gae(reward, value, mask, gamma=1., lam=.95): # the last value stands after the end
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return _gae(torch.where(last, reward + gamma * value, reward), value, mask, gamma, lam)
@wrong("sign|minus|turned")
def gae(reward, value, mask, gamma=1., lam=.95):
    a, ret = _gae(reward, value, mask, gamma, lam)
    return -a, ret
@wrong("return|detach|gradient|v\\b|twice|2|a \\+ v|factor")
def gae(reward, value, mask, gamma=1., lam=.95): # A + 2V
    return _gae(reward, value, mask, gamma, lam, after=lambda a, v: (a, (a + 2 * v).masked_fill(~mask, 0.)))
@wrong("first|position|γ|gamma|discount|t\\b")
def gae(reward, value, mask, gamma=1., lam=.95): # discounted from the start as well
    def late(a, v):
        w = gamma**((mask.cumsum(1) - 1).clamp(min=0).to(a))
        return a * w, (a + v).masked_fill(~mask, 0.)
    return _gae(reward, value, mask, gamma, lam, after=late)
@wrong("last|score|reward|sum|only|total")
def gae(reward, value, mask, gamma=1., lam=.95): # all rewards moved to the last token
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    total = torch.where(mask, at_least_float32(reward)[0], 0.).sum(1, keepdim=True)
    return _gae(torch.where(last, total, torch.zeros_like(total)), value, mask, gamma, lam)

def _bell(x, value, config, gamma=None, n=None, one=None, bound=None, after=None, last=None):
    g = discounts(x, config) if gamma is None else gamma
    ends = x.last()
    goes_on = (~x.ended & (config.on_truncation == "bootstrap"))[:, None]
    nothing = ends & ~goes_on if last is None else last(ends, goes_on)
    y = one(g, nothing) if one else x.reward + g * value.masked_fill(nothing, 0.)
    first = y
    for _ in range((config.n_step if n is None else n) - 1):
        y = torch.where(ends, first, x.reward + g * x.ahead(y))
    if config.mc_bound and bound is not False:
        G = monte_carlo_returns(x, g)
        y = torch.where(goes_on, y, torch.maximum(y, G)) if bound is None else bound(y, G, goes_on)
    y = y if after is None else after(y)
    return y.masked_fill(~x.mask, 0.)
@right
def bellman_targets(x, value, config): return _bell(x, value, config)
@wrong("twice|two|square|γ|gamma|discount")
def bellman_targets(x, value, config): return _bell(x, value, config, gamma=discounts(x, config)**2)
@wrong("n_step|n-step|steps|one too|more|n \\+ 1")
def bellman_targets(x, value, config): return _bell(x, value, config, n=config.n_step + 1)
@wrong("n_step|n-step|steps|one too|fewer|less|n - 1")
def bellman_targets(x, value, config): return _bell(x, value, config, n=max(1, config.n_step - 1))
@wrong("length|divid|number|reward")
def bellman_targets(x, value, config): # rewards divided by the length
    from dataclasses import replace
    return _bell(replace(x, reward=x.reward / x.mask.sum(1, keepdim=True).clamp(min=1)), value, config)
@wrong("clamp|clip|0\\b|negativ|below|at least")
def bellman_targets(x, value, config): return _bell(x, value, config, after=lambda y: y.clamp(min=0))
@wrong("value|negativ|clamp|below 0|at least 0")
def bellman_targets(x, value, config): return _bell(x, value.clamp(min=0), config)
@wrong("γ|gamma|1 -|discount|value")
def bellman_targets(x, value, config): # (1 - γ) V
    return _bell(x, value, config, one=lambda g, nothing: x.reward + (1 - g) * value.masked_fill(nothing, 0.))
@wrong("(1 - )?γ|gamma|mix|average|weight|reward")
def bellman_targets(x, value, config): # (1 - γ) r + γ V
    return _bell(x, value, config, one=lambda g, nothing: (1 - g) * x.reward + g * value.masked_fill(nothing, 0.))
@wrong("bound|mc_bound|every row|bootstrap|monte carlo|ended")
def bellman_targets(x, value, config): # bounded only where it bootstraps
    return _bell(x, value, config, bound=lambda y, G, on: torch.where(on, torch.maximum(y, G), y))
@wrong("bound|mc_bound|monte carlo|discount|γ|gamma")
def bellman_targets(x, value, config): # the bound's return is not discounted
    G = monte_carlo_returns(x, torch.ones_like(x.reward))
    return _bell(x, value, config, bound=lambda y, _, on: torch.where(on, y, torch.maximum(y, G)))
@wrong("bound|mc_bound|reward|monte carlo|return")
def bellman_targets(x, value, config): # at least the reward, not the return
    return _bell(x, value, config, bound=lambda y, _, on: torch.where(on, y, torch.maximum(y, x.reward)))
@wrong("last|nothing follows|truncat|terminal|value|ended|eos")
def bellman_targets(x, value, config): # a truncated row always goes on
    return _bell(x, value, config, last=lambda ends, on: ends & x.ended[:, None])
@wrong("outside|mask|prompt|pads|0 ")
def bellman_targets(x, value, config): # fills what is outside with the reward-free value
    y = _bell(x, value, config)
    return torch.where(x.mask, y, value)

def _loss(nets, x, config, state=shift_right, y=None, mix=None, sums=None, low=None, chosen=None):
    hidden = hidden_states(nets.online, x.seqs)
    if y is None: y = targets(x, next_values(nets, x, hidden, config), config)
    at = x.mask
    q, rest = q_terms(nets.online.get_output_embeddings(), state(hidden)[at], (x.seqs.ids if chosen is None else chosen)[at],
                      nets.allowed, config.min_return if low is None else low)
    d = q - y[at]
    loss = (d**2).sum() / 2 + config.alpha / 2 * rest.sum() if mix is None else mix(d, rest, q, y[at])
    log = dict(td_loss=(d**2).sum(), conservative_loss=rest.sum(), q_values=q.sum(), td_target=y[at].sum())
    log = {k: v.detach() for k, v in log.items()}
    return loss, at.sum(), sums(log, at) if sums else log
@right
def q_loss(nets, x, config): return _loss(nets, x, config)
@wrong("huber|smooth|square|large|linear")
def q_loss(nets, x, config):
    return _loss(nets, x, config, mix=lambda d, rest, q, y: F.smooth_l1_loss(q, y, reduction="sum") + config.alpha / 2 * rest.sum())
@wrong("root|sqrt|square|power")
def q_loss(nets, x, config): # root of the mean square of the others
    return _loss(nets, x, config, mix=lambda d, rest, q, y: (d**2).sum() / 2 + config.alpha / 2 * rest.clamp(min=1e-12).sqrt().sum())
@wrong("α|alpha|square|power|twice")
def q_loss(nets, x, config):
    return _loss(nets, x, config, mix=lambda d, rest, q, y: (d**2).sum() / 2 + config.alpha**2 / 2 * rest.sum())
@wrong("m - 1|m\\b|mean|number of|actions|factor|times|divid")
def q_loss(nets, x, config): # the sum over other actions, not their mean
    return _loss(nets, x, config, mix=lambda d, rest, q, y: (d**2).sum() / 2 + config.alpha / 2 * rest.sum() * (nets.allowed.sum() - 1))
@wrong("m - 1|m\\b|taken|own|all actions|every action|includ")
def q_loss(nets, x, config): # the taken action is pulled as well
    m = nets.allowed.sum()
    return _loss(nets, x, config, mix=lambda d, rest, q, y: (d**2).sum() / 2
                 + config.alpha / 2 * ((rest * (m - 1) + (q - config.min_return)**2) / m).sum())
@wrong("both|gradient|detach|no gradient|state|body|shift|hidden")
def q_loss(nets, x, config): # only the head learns
    return _loss(nets, x, config, state=lambda h: shift_right(h).detach())
@wrong("sign|r_min|min_return|lowest|minus")
def q_loss(nets, x, config): return _loss(nets, x, config, low=-config.min_return)
@wrong("mean|length|row|weigh|divid|number")
def q_loss(nets, x, config): # each row's mean, summed
    n = x.mask.sum(1, keepdim=True).expand_as(x.mask)[x.mask]
    return _loss(nets, x, config, mix=lambda d, rest, q, y: (d**2 / n).sum() / 2 + config.alpha / 2 * (rest / n).sum())
@wrong("q_values|target|swap|exchang|td_target")
def q_loss(nets, x, config): # two sums exchanged
    return _loss(nets, x, config, sums=lambda log, at: log | dict(q_values=log["td_target"], td_target=log["q_values"]))
@wrong("min_return|r_min|target|clamp|at least|lowest|below")
def q_loss(nets, x, config): # targets kept above the lowest return
    h = hidden_states(nets.online, x.seqs)
    y = targets(x, next_values(nets, x, h, config), config).clamp(min=config.min_return)
    return _loss(nets, x, config, y=y)
@wrong("after|before|value|next|state|shift|target")
def q_loss(nets, x, config): # value of the state before the token
    h = hidden_states(nets.online, x.seqs)
    return _loss(nets, x, config, y=targets(x, shift_right(next_values(nets, x, h, config)), config))
@wrong("reward|max|monte carlo|return|value|target")
def q_loss(nets, x, config): # no value at all: Monte Carlo
    return _loss(nets, x, config, y=monte_carlo_returns(x, discounts(x, config)))
@wrong("first|row|state|shift|0|before")
def q_loss(nets, x, config): # the shift rolls round
    return _loss(nets, x, config, state=lambda h: h.roll(1, 0))
@wrong("half|½|td|conservative|/ 2|factor")
def q_loss(nets, x, config): # one half for none
    return _loss(nets, x, config, mix=lambda d, rest, q, y: (d**2).sum() / 4 + config.alpha / 2 * rest.sum())

# best of n, gae: right ones in other styles
@right
def best_of_n_policy(logp, score, n):
    if n < 1: raise ValueError("n is 1 or more")
    out = torch.full_like(logp, -torch.inf)
    p, below = logp.exp(), torch.zeros((), dtype=logp.dtype)
    for s in score.unique():                                  # from the lowest
        at = (score == s) & (p > 0)
        own = p[at].sum()
        if own == 0: continue
        out[at] = (((below + own)**n - below**n) * p[at] / own).log()
        below = below + own
    return out
@right
def gae(reward, value, mask, gamma=1., lam=.95):
    r, v = (torch.where(mask, x, 0.) for x in at_least_float32(reward, value))
    out = torch.zeros_like(r)
    for b in range(len(r)):
        at = mask[b].nonzero()[:, 0].tolist()
        for k, i in enumerate(at):
            total = 0.
            for j in range(k, len(at)):
                nxt = v[b, at[j + 1]] if j + 1 < len(at) else 0.
                total = total + (gamma * lam)**(j - k) * (r[b, at[j]] + gamma * nxt - v[b, at[j]])
            out[b, i] = total
    return out, torch.where(mask, out + v, 0.)
