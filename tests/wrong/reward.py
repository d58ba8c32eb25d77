"Answers to the exercises of the chapter on reward models that learners might give, each wrong."
import torch
from torch.nn.functional import logsigmoid, softplus
from rlhf_nb.reward import bradley_terry_loss, calibration_bins
from rlhf_nb.memory import masked_mean_rows
from rlhf_nb.tokens import last_token_index, masked_sum

def counted(scores, mask):
    length = mask.sum(1)
    return scores.gather(1, length[:, None] - 1).squeeze(1)
def last_column(scores, mask): return scores[..., -1]
def before_last(scores, mask):
    return torch.stack([row[row_mask.nonzero()[-1, 0] - 1] for row, row_mask in zip(scores, mask)])
def behind(scores, mask):
    out = []
    for row, real in zip(scores, mask.tolist()):
        end = max(i for i, r in enumerate(real) if r) + 1
        out.append(row[min(end, len(row) - 1)])
    return torch.stack(out)
def first(scores, mask):
    at = mask.long().argmax(dim=1, keepdim=True)
    return scores.gather(1, at)[:, 0]
def average(scores, mask): return masked_mean_rows(scores, mask)
def total(scores, mask): return masked_sum(scores, mask)
def highest(scores, mask): return torch.where(mask, scores, torch.finfo(scores.dtype).min).max(1).values
@torch.no_grad()
def as_data(scores, mask): return scores.gather(1, last_token_index(mask)[:, None])[:, 0]
def crossed(scores, mask): return scores[:, last_token_index(mask)]
def kept_axis(scores, mask): return scores.gather(1, last_token_index(mask).unsqueeze(1))

def eased(chosen, rejected, stars): return bradley_terry_loss(chosen, rejected, -stars / 2).mean()
def all_stars(chosen, rejected, stars): return bradley_terry_loss(chosen, rejected, stars).mean()
def no_stars(chosen, rejected, stars): return softplus(rejected - chosen).mean()
def summed(chosen, rejected, stars): return bradley_terry_loss(chosen, rejected, stars / 2).sum()
def each(chosen, rejected, stars): return bradley_terry_loss(chosen, rejected, stars / 2)
def negative(chosen, rejected, stars): return logsigmoid(chosen - rejected - stars / 2).mean()
def turned(chosen, rejected, stars): return bradley_terry_loss(rejected, chosen, stars / 2).mean()
def no_log(chosen, rejected, stars): return -torch.sigmoid(chosen - rejected - stars / 2).mean()
def unstable(chosen, rejected, stars):
    return -(1 / (1 + (rejected - chosen + stars / 2).exp())).log().mean()
def two_steps(chosen, rejected, stars): return -(chosen - rejected - .5 * stars).sigmoid().log().mean()
def weighted(chosen, rejected, stars): return (bradley_terry_loss(chosen, rejected) * stars * .5).mean()
def mean_stars(chosen, rejected, stars):
    return bradley_terry_loss(chosen, rejected, stars.float().mean() / 2).mean()

def bins_of(confidence, n_bins): return torch.floor((confidence - .5) / (.5 / n_bins)).clamp(max=n_bins - 1)
def unweighted(confidence, right, n_bins):
    bins = bins_of(confidence, n_bins)
    return torch.stack([abs(confidence[bins == k].mean() - right[bins == k].mean())
                        for k in bins.unique()]).mean()
def signed(confidence, right, n_bins):
    bins, out = bins_of(confidence, n_bins), 0
    for k in bins.unique():
        p = bins == k
        out += p.float().mean() * (confidence[p].mean() - right[p].mean())
    return out
def squared(confidence, right, n_bins):
    a, b, n = calibration_bins((confidence / (1 - confidence)).log().clamp(max=30) * (2 * right - 1),
                          torch.zeros_like(confidence), n_bins)
    return ((a - b)**2 * n / n.sum()).sum()
def from_zero(confidence, right, n_bins):
    bins, out = (confidence * n_bins).long().clamp(max=n_bins - 1), 0
    for k in bins.unique():
        p = bins == k
        out += p.float().mean() * (confidence[p].mean() - right[p].mean()).abs()
    return out
def lost_top(confidence, right, n_bins):
    out, w = 0., .5 / n_bins
    for k in range(n_bins):
        p = (confidence >= .5 + k * w) & (confidence < .5 + (k + 1) * w)
        if p.any(): out += p.float().mean() * (confidence[p].mean() - right[p].mean()).abs()
    return out
def own_bin(confidence, right, n_bins):
    bins, out = ((confidence - .5) * 2 * n_bins).long(), 0
    for k in bins.unique():
        p = bins == k
        out += p.float().mean() * (confidence[p].mean() - right[p].mean()).abs()
    return out
def pair_by_pair(confidence, right, n_bins): return torch.abs(confidence - right).mean()
def no_bins(confidence, right, n_bins): return abs(confidence.mean() - right.mean())
def by_number(confidence, right, n_bins):
    bins, out = bins_of(confidence, n_bins), 0
    for k in range(n_bins):
        p = bins == k
        if p.any(): out += p.sum() * (confidence[p].mean() - right[p].mean()).abs()
    return out
def worst_bin(confidence, right, n_bins):
    bins = bins_of(confidence, n_bins)
    return max(abs(confidence[bins == k].mean() - right[bins == k].mean()) for k in bins.unique())
def with_empty(confidence, right, n_bins):
    bins, out = bins_of(confidence, n_bins), 0
    for k in range(n_bins):
        p = bins == k
        out += p.float().mean() * (confidence[p].mean() - right[p].mean()).abs()
    return out

def upper_edges(confidence, right, n_bins):
    edges, total = torch.linspace(.5, 1, n_bins + 1), 0.
    for low, high in zip(edges[:-1], edges[1:]):
        here = (confidence > low) & (confidence <= high)
        if here.any(): total += here.float().mean() * (confidence[here].mean() - right[here].mean()).abs()
    return total

WRONG = {
    "fixed_last_score": [
        ("a count of real tokens is a place only if no pad stands in front", counted),
        ("that is the last column, pads included", last_column),
        ("shifted by one: that is the token before the last", before_last),
        ("shifted by one: that is the place behind the last token", behind),
        ("that is the first real token", first),
        ("that is the mean over real tokens: only the last has seen the whole answer", average),
        ("that is the sum over real tokens", total),
        ("that is the highest score: asked is the last", highest),
        ("no gradient reaches the scores", as_data),
        ("every row at every row's place: (b b); pair rows with their places", crossed),
        ("one axis too many: (b 1)", kept_axis)],
    "star_loss": [
        ("the margin eases the task: turn its sign", eased),
        ("half the stars, not all of them", all_stars),
        ("the stars are missing", no_stars),
        ("that is the sum: take the mean over pairs", summed),
        ("that is one number per pair: take the mean", each),
        ("the sign: a loss is above 0", negative),
        ("chosen and rejected are the wrong way round", turned),
        ("the log is missing", no_log),
        ("the probability of a hopeless pair rounds to 0, and its log is infinite: logsigmoid", two_steps),
        ("the probability of a hopeless pair rounds to 0, and its log is infinite: logsigmoid", unstable),
        ("the stars are a gap, not a weight", weighted),
        ("each pair has stars of its own: no mean before the sigmoid", mean_stars)],
    "ece": [
        ("a confidence on an edge belongs to the bin above it", upper_edges),
        ("weigh each bin by its pairs", unweighted),
        ("gaps of opposite sign cancel: take the absolute value", signed),
        ("that is the squared gap: take the absolute value", squared),
        ("the bins begin at .5, not at 0", from_zero),
        ("a confidence of 1 belongs to the last bin; it fell out of all of them", lost_top),
        ("take the means of a bin first, then the gap between them", pair_by_pair),
        ("that is one bin for all", no_bins),
        ("a share of the pairs, not their number, is the weight", by_number),
        ("that is the largest gap: take the weighted mean", worst_bin),
        ("an empty bin adds nothing, not nan", with_empty),
        ("a confidence of 1 belongs to the last bin, not to a bin of its own", own_bin)]}
