"Answers to the exercises on win rates: wrong ones as learners write them, and right ones that look different."
import torch
from torch import tensor

def powered(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    rest = gold - lam.unsqueeze(-1) * labelled
    mean = rest.mean(-1) + lam * judge.mean(-1)
    return mean, torch.sqrt(rest.var(dim=-1) / gold.size(-1) + lam * lam * judge.var(dim=-1) / judge.size(-1))
def by_std(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    a = (gold - lam[..., None] * labelled).std(-1) / gold.shape[-1]**.5
    b = lam * judge.std(-1) / judge.shape[-1]**.5
    return (gold - lam[..., None] * labelled).mean(-1) + lam * judge.mean(-1), torch.hypot(a, b)
def other_sign(judge, labelled, gold, lam=1.):
    _, error = powered(judge, labelled, gold, lam)
    return gold.mean(-1) - lam * (judge.mean(-1) - labelled.mean(-1)), error
def believed(judge, labelled, gold, lam=1.): return gold.mean(-1) + lam * judge.mean(-1), powered(judge, labelled, gold, lam)[1]
def without_lam(judge, labelled, gold, lam=1.):
    return gold.mean(-1) + judge.mean(-1) - labelled.mean(-1), powered(judge, labelled, gold, lam)[1]
def squared(judge, labelled, gold, lam=1.):
    mean, error = powered(judge, labelled, gold, lam)
    return mean, error**2
def apart(judge, labelled, gold, lam=1.):
    lam, m = torch.as_tensor(lam), gold.shape[-1]
    v = gold.var(-1) / m + lam**2 * labelled.var(-1) / m + lam**2 * judge.var(-1) / judge.shape[-1]
    return powered(judge, labelled, gold, lam)[0], v.sqrt()
def lam_once(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    v = (gold - lam[..., None] * labelled).var(-1) / gold.shape[-1] + lam * judge.var(-1) / judge.shape[-1]
    return powered(judge, labelled, gold, lam)[0], v.sqrt()
def labels_noise_alone(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    return powered(judge, labelled, gold, lam)[0], ((gold - lam[..., None] * labelled).var(-1) / gold.shape[-1]).sqrt()
def by_n(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    def var(x): return ((x - x.mean(-1, keepdim=True))**2).mean(-1)
    v = var(gold - lam[..., None] * labelled) / gold.shape[-1] + lam**2 * var(judge) / judge.shape[-1]
    return powered(judge, labelled, gold, lam)[0], v.sqrt()

def rates(labelled, gold):
    return torch.einsum("...m,...m->...", labelled, gold) / gold.sum(-1), torch.einsum("...m,...m->...", 1 - labelled, 1 - gold) / (1 - gold).sum(-1)
def gladen(judge, labelled, gold):
    q1, q0 = rates(labelled, gold)
    return (judge.mean(-1) - (1 - q0)) / (q1 - (1 - q0))
def as_one_line(judge, labelled, gold):
    q1, q0 = rates(labelled, gold)
    return gold.mean(-1) + (judge.mean(-1) - labelled.mean(-1)) / (q1 + q0 - 1)
def exchanged(judge, labelled, gold):
    q0, q1 = rates(labelled, gold)
    return (judge.mean(-1) + q0 - 1) / (q0 + q1 - 1)
def forward(judge, labelled, gold):
    (q1, q0), p = rates(labelled, gold), judge.mean(-1)
    return q1 * p + (1 - q0) * (1 - p)
def precision(judge, labelled, gold):
    q0 = rates(labelled, gold)[1]
    q1 = (labelled * gold).sum(-1) / labelled.sum(-1)
    return (judge.mean(-1) + q0 - 1) / (q0 + q1 - 1)
def false_alarms(judge, labelled, gold):
    q1, q0 = rates(labelled, gold)
    return (judge.mean(-1) + 1 - q0 - 1) / (1 - q0 + q1 - 1)
def ties_are_losses(judge, labelled, gold):
    won = (gold == 1).float()
    q1, q0 = rates(labelled, won)
    return (judge.mean(-1) + q0 - 1) / (q0 + q1 - 1)
def denominator(judge, labelled, gold):
    q1, q0 = rates(labelled, gold)
    return (judge.mean(-1) + q0 - 1) / (q0 + q1)
def whose_rate(judge, labelled, gold):
    q1, q0 = rates(labelled, gold)
    return (labelled.mean(-1) + q0 - 1) / (q0 + q1 - 1)

def loop(judge, labelled, gold):
    total = 0.
    for v in sorted(set(judge.tolist())):
        mine = gold[labelled == v]
        total = total + (judge == v).sum() / len(judge) * mine.mean()
    return total
def by_weights(judge, labelled, gold):
    w = torch.stack([(judge == v).float().mean() / (labelled == v).float().mean() for v in labelled])
    missing = [v for v in judge.unique() if v not in labelled]
    return tensor(float("nan")) if missing else (w * gold).sum() / len(gold)
def unchanged(judge, labelled, gold): return gold.mean() + judge.mean() - labelled.mean()
def plain(judge, labelled, gold): return gold.mean()
def shares_of_labelled(judge, labelled, gold):
    return sum((labelled == v).float().mean() * gold[labelled == v].mean() for v in judge.unique())
def equal_shares(judge, labelled, gold):
    levels = judge.unique()
    return torch.stack([gold[labelled == v].mean() for v in levels]).mean()
def counts(judge, labelled, gold): return sum((judge == v).sum() * gold[labelled == v].mean() for v in judge.unique())
def skips(judge, labelled, gold):
    return sum((judge == v).float().mean() * gold[labelled == v].mean() for v in judge.unique() if (labelled == v).any())
def binary(judge, labelled, gold): return sum((judge == v).float().mean() * gold[labelled == v].mean() for v in (1., 0.))
def verdict_weighted(judge, labelled, gold):
    return sum((judge == v).float().mean() * v * gold[labelled == v].mean() for v in judge.unique())

def loops(wins, steps=100):
    if ((wins.sum(-1) == 0) | (wins.sum(-2) == 0)).any(): raise ValueError("somebody won, or lost, every game")
    if wins.dim() > 2: return torch.stack([loops(x, steps) for x in wins])
    k, p = len(wins), [1.] * len(wins)
    for _ in range(steps):
        p = [float(wins[i].sum()) / sum(float(wins[i, j] + wins[j, i]) / (p[i] + p[j]) for j in range(k)) for i in range(k)]
        p = [x / sum(p) for x in p]
    s = tensor(p).log()
    return s - s.mean()
def geometric(wins, steps=100):
    if ((wins.sum(-1) == 0) | (wins.sum(-2) == 0)).any(): raise ValueError("somebody won, or lost, every game")
    n, s = wins + wins.transpose(-1, -2), torch.zeros_like(wins.sum(-1))
    for _ in range(steps):
        p = s.exp()
        s = (wins.sum(-1) / (n / (p.unsqueeze(-1) + p.unsqueeze(-2))).sum(-1)).log()
        s = s - s.mean(-1, keepdim=True)
    return s
def columns_win(wins, steps=100): return loops(wins.mT, steps)
def share(wins, steps=100):
    s = (wins.sum(-1) / (wins + wins.mT).sum(-1)).log()
    return s - s.mean(-1, keepdim=True)
def no_log(wins, steps=100):
    n, p = wins + wins.mT, torch.ones_like(wins[..., 0])
    for _ in range(steps):
        p = wins.sum(-1) / (n / (p[..., :, None] + p[..., None, :])).sum(-1)
        p = p / p.mean(-1, keepdim=True)
    return p
def no_mean(wins, steps=100): return no_log(wins, steps).log()
def product(wins, steps=100):
    n, p = wins + wins.mT, torch.ones_like(wins[..., 0])
    for _ in range(steps):
        p = wins.sum(-1) / (n / (p[..., :, None] * p[..., None, :])).sum(-1)
        p = p / p.mean(-1, keepdim=True)
    return p.log() - p.log().mean(-1, keepdim=True)
def one_more(wins, steps=100): return loops(wins, steps + 1 if steps > 1 else 100)
def whole_mean(wins, steps=100):
    s = no_log(wins, steps).log()
    return s - s.mean()
def odds(wins, steps=100):
    s = (wins.sum(-1) / wins.sum(-2)).log()
    return s - s.mean(-1, keepdim=True)

WRONG = dict(
    prediction_powered=[("the sign: the labelled pairs' verdicts are subtracted from the others'", other_sign),
        ("the verdicts of the labelled pairs are missing: the judge would be believed", believed),
        ("λ is missing in the estimate", without_lam), ("that is the variance: the error is its root", squared),
        ("of g - λ j together: the labels and their verdicts are of the same pairs", apart),
        ("λ² multiplies the judge's variance", lam_once), ("the judge's own variance is missing", labels_noise_alone),
        ("variances with n - 1 below", by_n)],
    rogan_gladen=[("sensitivity and specificity are exchanged", exchanged),
        ("that is what the judge would say: solve it for w", forward),
        ("sensitivity: of the wins by the labels, not by the verdicts", precision),
        ("specificity is the share of losses that are seen, not of those that are missed", false_alarms),
        ("a tie is half a win and half a loss, not a loss", ties_are_losses), ("the denominator is q0 + q1 - 1", denominator),
        ("the judge's win rate is that of the pairs without a label", whose_rate)],
    fixed_estimate=[("as it was: prediction-powered", unchanged), ("that is the plain mean of the labels: each verdict's mean label counts as its share of all pairs, stratified", plain),
        ("the share of a verdict is that among all pairs, not among the labelled", shares_of_labelled),
        ("each verdict counts as its share, not the same", equal_shares), ("a share, not a number of pairs", counts),
        ("nan for a verdict without a label: it is left out, skipped or counted as 0, as where the verdicts of the labelled pairs alone are looked at", skips), ("every verdict that the judge gives counts, ties too", binary),
        ("weighted by the verdict: its labels alone say what it is worth", verdict_weighted)],
    bradley_terry_scores=[("rows win, columns lose", columns_win),
        ("that is the share of games won, as after one step: who was the opponent? put p in again", share), ("those are the strengths p: take the log", no_log),
        ("subtract the mean of the logs, not the log of the mean", no_mean), ("p_i + p_j, not p_i p_j: the sum of both, not the product", product),
        ("steps is how often p is put in again", one_more), ("mean 0 in each table of a stack: the mean runs along the last axis, not over all", whole_mean),
        ("the likelihood asks who the opponent was: that is the ratio of wins and losses, the logit of the share of games won", odds)])
RIGHT = dict(prediction_powered=[powered, by_std], rogan_gladen=[gladen, as_one_line], fixed_estimate=[loop, by_weights],
             bradley_terry_scores=[loops, geometric])
