"Answers to the exercises on self-play, each with one thing wrong; and right ones."
import torch
from torch.nn.functional import logsigmoid, softplus

def _t(a, b, c, d, beta=1.): return beta * ((a - c.detach()) - (b - d.detach()))
def _swapped(a, b, c, d, beta=1.): return softplus(-_t(b, a, d, c, beta))
def _alone(a, b, c, d, beta=1.): return softplus(-beta * (a - b))
def _no_beta(a, b, c, d, beta=1.): return softplus(-_t(a, b, c, d, 1.))
def _beta_once(a, b, c, d, beta=1.):
    return softplus(-(beta * (a - c.detach()) - (b - d.detach())))
def _summed(a, b, c, d, beta=1.): return -logsigmoid(_t(a, b, c, d, beta)).sum()
def _averaged(a, b, c, d, beta=1.): return -logsigmoid(_t(a, b, c, d, beta)).mean()
def _into(a, b, c, d, beta=1.): return softplus(-beta * ((a - c) - (b - d)))
def _dead(*x):
    with torch.no_grad(): return softplus(-_t(*x))
def _gain(*x): return logsigmoid(_t(*x))
def _overflows(*x): return torch.log(1 + torch.exp(-_t(*x)))
def _plus(*x): return softplus(_t(*x))
def _divided(a, b, c, d, beta=1.): return softplus(-_t(a, b, c, d, 1.) / beta)

def _raw(p_opponent, p_real, beta): return p_opponent * (p_real / p_opponent)**(1 / beta)
def _power(p_opponent, p_real, beta):
    w = p_opponent * (p_real / p_opponent)**beta
    return w / w.sum()
def _writer(p_opponent, p_real, beta): return p_real / p_real.sum()
def _over(p_opponent, p_real, beta):
    w = p_opponent * (p_opponent / p_real)**(1 / beta)
    return w / w.sum()
def _ratio(p_opponent, p_real, beta):
    w = (p_real / p_opponent)**(1 / beta)
    return w / w.sum()
def _soft(p_opponent, p_real, beta):
    return torch.softmax(p_opponent * (p_real / p_opponent)**(1 / beta), 0)
def _bracket(p_opponent, p_real, beta):
    w = (p_opponent * (p_real / p_opponent))**(1 / beta)
    return w / w.sum()
def _from_writer(p_opponent, p_real, beta):
    w = p_real * (p_real / p_opponent)**(1 / beta)
    return w / w.sum()

def _reply(p, q, beta): return torch.softmax(p.log() + (q.log() - p.log()) / beta, 0)
def _never_replaced(p, q, beta, n): return [p] + [_reply(p, q, beta)] * n
def _without_first(p, q, beta, n):
    out = []
    for _ in range(n):
        p = _reply(p, q, beta)
        out.append(p)
    return out
def _too_few(p, q, beta, n):
    out = [p]
    for _ in range(n - 1): out.append(_reply(out[-1], q, beta))
    return out
def _too_many(p, q, beta, n):
    out = [p]
    while len(out) <= n + 1: out.append(_reply(out[-1], q, beta))
    return out
def _only_last(p, q, beta, n):
    for _ in range(n): p = _reply(p, q, beta)
    return p
def _stacked(p, q, beta, n): return torch.stack(_loop(p, q, beta, n))
def _first_ratio(p, q, beta, n):
    out = [p]
    for _ in range(n):
        w = out[-1] * (q / p)**(1 / beta)
        out.append(w / w.sum())
    return out
def _exchanged(p, q, beta, n):
    out = [p]
    for _ in range(n): out.append(_reply(q, out[-1], beta))
    return out
def _loop(p, q, beta, n):
    out = [p]
    for _ in range(n):
        w = out[-1] * (q / out[-1])**(1 / beta)
        out = [*out, w / w.sum()]
    return out
def _closed(p, q, beta, n): # the log-ratio to the truth shrinks by 1 - 1 / beta
    ratio = p.log() - q.log()
    return [torch.softmax(q.log() + (1 - 1 / beta)**t * ratio, 0) for t in range(n + 1)]
def _no_beta_game(p, q, beta, n): return _loop(p, q, 1., n)

def right_softplus(a, b, c, d, beta=1.): return softplus(-beta * (a - b) + beta * (c - d).detach())
def right_sigmoid(a, b, c, d, beta=1.):
    gap = (a.double() - c.detach().double()) - (b.double() - d.detach().double())
    return -logsigmoid(beta * gap).to(a.dtype)
def right_reply(p_opponent, p_real, beta):
    return torch.softmax((1 - 1 / beta) * p_opponent.log() + p_real.log() / beta, 0)
def right_reply_loop(p_opponent, p_real, beta):
    w = torch.stack([p * (q / p).pow(1 / beta) for p, q in zip(p_opponent, p_real)])
    return w / w.sum()

RIGHT = {"spin_loss": [right_softplus, right_sigmoid], "best_reply": [right_reply, right_reply_loop],
         "spin_game": [_loop, _closed]}

WRONG = {
    "spin_loss": [
        ("real and generated are swapped, or a minus is missing: it learns to write as it did", _swapped),
        ("the opponent's log-probs are missing", _alone),
        ("beta is missing", _no_beta), ("beta is for both ratios", _beta_once),
        ("that is the sum: keep one number per pair", _summed),
        ("that is the mean: keep one number per pair", _averaged),
        ("gradient flows into the opponent: its numbers are data", _into),
        ("no gradient reaches the player", _dead), ("the sign: a loss is above 0", _gain),
        ("exp overflows where the gap is large, and sigmoid is 0 there: take softplus or logsigmoid", _overflows),
        ("real and generated are swapped, or a minus is missing: it learns to write as it did",
         _plus),
        ("the ratio must be multiplied by beta", _divided)],
    "best_reply": [
        ("it does not sum to 1", _raw), ("the power is 1 / beta", _power),
        ("there is no power: beta is missing", _writer),
        ("turn the ratio over: real over opponent, to the power 1 / beta, not -1 / beta", _over),
        ("the reply starts from the opponent: multiply by its probabilities", _ratio),
        ("divide by the sum: a softmax exponentiates once more", _soft),
        ("the power is for the ratio alone", _bracket),
        ("it starts from the opponent, not from the writer", _from_writer)],
    "spin_game": [
        ("the player must become the next opponent: this one never changes", _never_replaced),
        ("the list begins with the first player", _without_first),
        ("n iterations give n + 1 players: one is missing", _too_few), ("one iteration too many", _too_many),
        ("that is the last player alone", _only_last), ("a list of tensors is asked for, not one tensor", _stacked),
        ("the ratio is to the last opponent, not to the first", _first_ratio),
        ("opponent and writer are exchanged", _exchanged), ("beta is missing", _no_beta_game)]}
