"Answers to the exercises of the chapter on reward models that learners might give, each wrong."
import torch
from torch.nn.functional import logsigmoid, softplus
from rlhf_nb.base.batches import masked_mean_rows
from rlhf_nb.tokens import last_token_index, masked_sum

# ---- pooled_scores

def counted(model, seqs):
    n = seqs.attention_mask.long().sum(-1)
    if (n == 0).any(): raise ValueError("nothing but pads")
    return model(seqs).gather(1, (n - 1)[:, None]).squeeze(1)
def last_column(model, seqs): return model(seqs)[..., -1]
def before_last(model, seqs):
    at = last_token_index(seqs.attention_mask)
    return model(seqs)[torch.arange(len(at)), at - 1]
def behind(model, seqs):
    scores, at = model(seqs), last_token_index(seqs.attention_mask) + 1
    return scores[torch.arange(len(at)), at.clamp(max=scores.shape[1] - 1)]
def first(model, seqs):
    return model(seqs).gather(1, seqs.attention_mask.long().argmax(1, keepdim=True))[:, 0]
def average(model, seqs): return masked_mean_rows(model(seqs), seqs.attention_mask)
def total(model, seqs): return masked_sum(model(seqs), seqs.attention_mask)
def highest(model, seqs):
    scores = model(seqs)
    return torch.where(seqs.attention_mask, scores, -torch.inf).max(1).values
def as_data(model, seqs):
    with torch.no_grad(): scores = model(seqs)
    return scores.gather(1, last_token_index(seqs.attention_mask)[:, None])[:, 0]
def crossed(model, seqs): return model(seqs)[:, last_token_index(seqs.attention_mask)]
def kept_axis(model, seqs): return model(seqs).gather(1, last_token_index(seqs.attention_mask)[:, None])
def everything(model, seqs): return model(seqs)
def lenient(model, seqs):
    position = torch.arange(seqs.ids.shape[1])
    last = torch.where(seqs.attention_mask, position, -1).argmax(1)
    return model(seqs)[torch.arange(len(last)), last]

def row_by_row(model, seqs):
    scores, out = model(seqs), []
    for row, mask in zip(scores, seqs.attention_mask):
        places = mask.nonzero()[:, 0]
        if not len(places): raise ValueError("a row of pads has no score")
        out.append(row[places[-1]])
    return torch.stack(out)
def from_behind(model, seqs):
    if not seqs.attention_mask.any(-1).all(): raise ValueError("only pads")
    last = seqs.ids.shape[1] - 1 - seqs.attention_mask.flip(1).int().argmax(1)
    return torch.take_along_dim(model(seqs), last[:, None], 1).squeeze(1)
def one_hot(model, seqs):
    at = last_token_index(seqs.attention_mask)
    scores = model(seqs)
    return (scores * (torch.arange(scores.shape[1]) == at[:, None])).sum(1)

# ---- bradley_terry_loss

def same_shape(c, r):
    if c.shape != r.shape: raise ValueError(f"{c.shape} is not {r.shape}")
def positive(chosen, rejected, margin=0., center_coef=0.):
    same_shape(chosen, rejected)
    return logsigmoid(chosen - rejected - margin) - center_coef * (chosen + rejected)**2
def turned(chosen, rejected, margin=0., center_coef=0.):
    same_shape(chosen, rejected)
    return softplus(chosen - rejected + margin) + center_coef * (chosen + rejected)**2
def mean_loss(chosen, rejected, margin=0., center_coef=0.):
    same_shape(chosen, rejected)
    return (softplus(rejected - chosen + margin) + center_coef * (chosen + rejected)**2).mean()
def summed(chosen, rejected, margin=0., center_coef=0.):
    same_shape(chosen, rejected)
    return (softplus(rejected - chosen + margin) + center_coef * (chosen + rejected)**2).sum()
def no_log(chosen, rejected, margin=0., center_coef=0.):
    same_shape(chosen, rejected)
    return -torch.sigmoid(chosen - rejected - margin) + center_coef * (chosen + rejected)**2
def no_sigmoid(chosen, rejected, margin=0., center_coef=0.):
    same_shape(chosen, rejected)
    return -(chosen - rejected - margin) + center_coef * (chosen + rejected)**2
def two_steps(chosen, rejected, margin=0., center_coef=0.):
    same_shape(chosen, rejected)
    return -torch.log(torch.sigmoid(chosen - rejected - margin)) + center_coef * (chosen + rejected)**2
def eased(chosen, rejected, margin=0., center_coef=0.):
    same_shape(chosen, rejected)
    return softplus(rejected - chosen - margin) + center_coef * (chosen + rejected)**2
def no_margin(chosen, rejected, margin=0., center_coef=0.):
    same_shape(chosen, rejected)
    return softplus(rejected - chosen) + center_coef * (chosen + rejected)**2
def no_centre(chosen, rejected, margin=0., center_coef=0.):
    same_shape(chosen, rejected)
    return softplus(rejected - chosen + margin)
def centred_gap(chosen, rejected, margin=0., center_coef=0.):
    same_shape(chosen, rejected)
    return softplus(rejected - chosen + margin) + center_coef * (chosen - rejected)**2
def each_squared(chosen, rejected, margin=0., center_coef=0.):
    same_shape(chosen, rejected)
    return softplus(rejected - chosen + margin) + center_coef * (chosen.pow(2) + rejected.pow(2))
def not_squared(chosen, rejected, margin=0., center_coef=0.):
    same_shape(chosen, rejected)
    return softplus(rejected - chosen + margin) + center_coef * (chosen + rejected)
def broadcast(chosen, rejected, margin=0., center_coef=0.):
    return softplus(rejected - chosen + margin) + center_coef * (chosen + rejected)**2
@torch.no_grad()
def no_gradient(chosen, rejected, margin=0., center_coef=0.):
    same_shape(chosen, rejected)
    return softplus(rejected - chosen + margin) + center_coef * (chosen + rejected)**2

def soft(chosen, rejected, margin=0., center_coef=0.):
    same_shape(chosen, rejected)
    return softplus(rejected - chosen + margin) + center_coef * (chosen + rejected).square()
def as_softmax(chosen, rejected, margin=0., center_coef=0.):
    same_shape(chosen, rejected)
    two = torch.stack([chosen - margin, rejected], -1)
    return -two.log_softmax(-1)[..., 0] + center_coef * torch.pow(chosen + rejected, 2)
def pair_by_pair(chosen, rejected, margin=0., center_coef=0.):
    same_shape(chosen, rejected)
    m = torch.as_tensor(margin, dtype=chosen.dtype).expand_as(chosen)
    return torch.stack([-logsigmoid(c - r - k) + center_coef * (c + r)**2
                        for c, r, k in zip(chosen, rejected, m)])

# ---- calibration_bins

def finite(gap):
    if not gap.isfinite().all(): raise ValueError("a score is not finite")
    return gap
def table(chosen, rejected, n_bins, low=.5, rule=None, wrong=lambda gap: (gap > 0) + .5 * (gap == 0),
          sure=lambda gap: torch.sigmoid(gap.abs()), keep_empty=False):
    gap = finite(chosen - rejected)
    p, hit, w, rows = sure(gap), wrong(gap).float(), (1 - low) / n_bins, []
    rule = rule or (lambda p, k: (p >= low + k * w) & ((p < low + (k + 1) * w) | (k == n_bins - 1)))
    for k in range(n_bins):
        here = rule(p, k)
        if keep_empty or here.any(): rows.append((p[here].mean(), hit[here].mean(), here.sum()))
    if not rows: return torch.zeros(0), torch.zeros(0), torch.zeros(0, dtype=torch.long)
    return tuple(torch.stack(x) for x in zip(*rows))
def from_zero(chosen, rejected, n_bins=10): return table(chosen, rejected, n_bins, low=0.)
def lost_top(chosen, rejected, n_bins=10):
    w = .5 / n_bins
    return table(chosen, rejected, n_bins, rule=lambda p, k: (p >= .5 + k * w) & (p < .5 + (k + 1) * w))
def upper_edges(chosen, rejected, n_bins=10):
    w = .5 / n_bins
    return table(chosen, rejected, n_bins, rule=lambda p, k: (p > .5 + k * w) & (p <= .5 + (k + 1) * w))
def tie_wrong(chosen, rejected, n_bins=10): return table(chosen, rejected, n_bins, wrong=lambda g: g > 0)
def tie_right(chosen, rejected, n_bins=10): return table(chosen, rejected, n_bins, wrong=lambda g: g >= 0)
def with_empty(chosen, rejected, n_bins=10): return table(chosen, rejected, n_bins, keep_empty=True)
def not_absolute(chosen, rejected, n_bins=10):
    w = .5 / n_bins
    return table(chosen, rejected, n_bins, sure=torch.sigmoid, rule=lambda p, k: (
        p >= .5 + k * w) & ((p < .5 + (k + 1) * w) | (k == n_bins - 1)))
def shares(chosen, rejected, n_bins=10):
    a, b, n = table(chosen, rejected, n_bins)
    return a, b, n / n.sum()
def losers(chosen, rejected, n_bins=10):
    return table(chosen, rejected, n_bins, wrong=lambda g: (g < 0) + .5 * (g == 0))
def exchanged(chosen, rejected, n_bins=10):
    a, b, n = table(chosen, rejected, n_bins)
    return b, a, n
def ten(chosen, rejected, n_bins=10): return table(chosen, rejected, 10)
def centres(chosen, rejected, n_bins=10):
    a, b, n = table(chosen, rejected, n_bins)
    k = ((a - .5) * 2 * n_bins).long().clamp(max=n_bins - 1)
    return .5 + (k + .5) / (2 * n_bins), b, n

def looped(chosen, rejected, n_bins=10): return table(chosen, rejected, n_bins)
def one_hots(chosen, rejected, n_bins=10):
    gap = finite(chosen - rejected).double()
    p, hit = gap.abs().sigmoid(), (gap.sign() + 1) / 2
    k = torch.floor((p - .5) / (.5 / n_bins)).long().clamp(max=n_bins - 1)
    member = torch.nn.functional.one_hot(k, n_bins).double()
    n = member.sum(0)
    on = n > 0
    return ((p @ member)[on] / n[on]).float(), ((hit @ member)[on] / n[on]).float(), n[on].long()
def dictionary(chosen, rejected, n_bins=10):
    boxes = {}
    for gap in finite(chosen - rejected).tolist():
        p = 1 / (1 + 2.718281828459045**-abs(gap))
        boxes.setdefault(min(int((p - .5) * 2 * n_bins), n_bins - 1), []).append(
            (p, 1. if gap > 0 else .5 if gap == 0 else 0.))
    rows = [boxes[k] for k in sorted(boxes)]
    return (torch.tensor([sum(p for p, _ in row) / len(row) for row in rows]),
            torch.tensor([sum(h for _, h in row) / len(row) for row in rows]),
            torch.tensor([len(row) for row in rows]))

def unclamped(chosen, rejected, n_bins=10):
    gap = chosen.double() - rejected.double()
    confidence, right = gap.abs().sigmoid(), (gap.sign() + 1) / 2
    index = ((confidence - .5) * 2 * n_bins).long()
    n = torch.bincount(index)
    means = [(torch.bincount(index, x)[n > 0] / n[n > 0]).float() for x in (confidence, right)]
    return *means, n[n > 0]

def whole_sigmoid(chosen, rejected, n_bins=10):
    c = torch.sigmoid(chosen - rejected)
    k = (c * n_bins).long().clamp(max=n_bins - 1)
    win = (chosen > rejected) + .5 * (chosen == rejected)
    rows = [(c[k == i].mean(), win[k == i].mean(), (k == i).sum()) for i in range(n_bins) if (k == i).any()]
    return tuple(torch.stack(x) for x in zip(*rows))

WRONG = {
    "pooled_scores": [
        ("a count of real tokens is a place only if no pad stands in front", counted),
        ("that is the last column, pads included", last_column),
        ("shifted by one: that is the token before the last", before_last),
        ("shifted by one: that is the place behind the last token", behind),
        ("that is the first real token", first),
        ("that is the mean over real tokens: only the last has seen the whole answer", average),
        ("that is the sum over real tokens", total),
        ("that is the highest score: asked is the last", highest),
        ("no gradient reaches the model", as_data),
        ("every row at every row's place: (b b); pair rows with their places", crossed),
        ("one axis too many: (b 1)", kept_axis),
        ("these are the scores of all tokens: one per row", everything),
        ("a row of pads alone has no score: raise ValueError", lenient)],
    "bradley_terry_loss": [
        ("turn the sign: a loss is above 0", positive),
        ("chosen and rejected are the wrong way round", turned),
        ("that is one number: keep one loss per pair", mean_loss),
        ("that is the sum: keep one loss per pair", summed),
        ("the log is missing", no_log), ("the sigmoid is missing", no_sigmoid),
        ("the probability of a hopeless pair rounds to 0, and its log is infinite: logsigmoid", two_steps),
        ("the margin eases the task: turn its sign", eased),
        ("the margin is missing", no_margin), ("the centring term is missing", no_centre),
        ("centring takes the sum of both scores, not their gap", centred_gap),
        ("centring squares the sum, not each score", each_squared),
        ("the sum is not squared", not_squared),
        ("no gradient reaches the scores", no_gradient),
        ("different shapes broadcast without a word: raise ValueError", broadcast)],
    "calibration_bins": [
        ("the bins begin at .5, not at 0: each has half the width", from_zero),
        ("the confidence is sigmoid of the absolute gap, so the bins begin at .5", whole_sigmoid),
        ("a confidence of 1 belongs to the last bin; it fell out of all of them", lost_top),
        ("a confidence of 1 belongs to the last bin, it has none of its own: clamp the index", unclamped),
        ("an edge belongs to the bin above it", upper_edges),
        ("a tie is half right, not wrong", tie_wrong), ("a tie is half right, not right", tie_right),
        ("leave out bins without pairs: an empty one has no mean", with_empty),
        ("the confidence is that of the side it prefers: take the absolute gap", not_absolute),
        ("the mean of the confidences, not the middle of the bin", centres),
        ("the third is a number of pairs, not a share", shares),
        ("right and wrong are swapped: accuracy is the share of pairs that are right", losers),
        ("confidence and accuracy are the wrong way round: exchange the two results", exchanged),
        ("n_bins is not used", ten)]}

RIGHT = {
    "pooled_scores": [row_by_row, from_behind, one_hot],
    "bradley_terry_loss": [soft, as_softmax, pair_by_pair],
    "calibration_bins": [looped, one_hots, dictionary]}
