"Answers to the exercises of the chapter on sampling that learners might give, each wrong."
import torch
from torch.nn import functional as F

def minus(logits, u): return torch.argmax(logits + torch.log(-torch.log(u)), -1)
def greedy(logits, u): return logits.max(-1).indices
def exponential(logits, u): return torch.argmax(logits - torch.log(u), dim=1)
def other_exponential(logits, u): return (logits + u.log()).argmax(1)
def only_u(logits, u): return (u + logits).max(dim=-1)[1]
def on_probs(logits, u): return (F.softmax(logits, -1) - torch.log(-torch.log(u))).argmax(-1)
def smallest(logits, u): return (logits - (-u.log()).log()).argmin(-1)
def flat(logits, u): return (logits - (-u.log()).log()).argmax(0)
def value(logits, u): return (logits - (-u.log()).log()).max(-1).values

def not_again(logits, min_p):
    logp = logits.log_softmax(-1)
    best = logp.max(-1, keepdim=True).values
    low = logp.exp() < min_p * best.exp()
    return torch.where(low, torch.full_like(logp, -torch.inf), logp)
def left_logits(logits, min_p):
    probs = torch.softmax(logits, -1)
    return logits.masked_fill(probs < min_p * probs.max(-1, keepdim=True)[0], -torch.inf)
def fixed(logits, min_p):
    probs = F.softmax(logits, dim=-1)
    return torch.where(probs >= min_p, logits, -torch.inf).log_softmax(-1)
def inverted(logits, min_p):
    probs = logits.softmax(-1)
    high = probs >= min_p * probs.amax(-1, keepdim=True)
    return logits.masked_fill(high, -torch.inf).log_softmax(-1)
def strict(logits, min_p):
    probs = logits.softmax(-1)
    low = probs <= min_p * probs.amax(-1, keepdim=True)
    return logits.masked_fill(low, -torch.inf).log_softmax(-1)
def whole_batch(logits, min_p):
    probs = logits.softmax(-1)
    return logits.masked_fill(probs < min_p * probs.amax(), -torch.inf).log_softmax(-1)
def of_the_mean(logits, min_p):
    probs = logits.softmax(-1)
    low = probs < min_p / logits.shape[-1]
    return logits.masked_fill(low, -torch.inf).log_softmax(-1)
def distance(logits, min_p):
    probs = logits.softmax(-1)
    low = probs.amax(-1, keepdim=True) - probs > min_p
    return logits.masked_fill(low, -torch.inf).log_softmax(-1)
def probabilities(logits, min_p):
    probs = logits.softmax(-1)
    probs = probs * (probs >= min_p * probs.amax(-1, keepdim=True))
    return probs / probs.sum(-1, keepdim=True)
def of_logits(logits, min_p):
    low = logits < min_p * logits.amax(-1, keepdim=True)
    return logits.masked_fill(low, -torch.inf).log_softmax(-1)

def endless(p, n): return 1 / p
def without_eos(p, n): return sum((1 - p)**k for k in range(1, n))
def one_more(p, n): return (1 - (1 - p)**(n + 1)) / p
def from_one(p, n): return sum((1 - p)**k for k in range(1, n + 1))
def eos_prob(p, n): return float(sum(p**k for k in range(n)))
def was_cut(p, n): return (1 - p)**n
def ended(p, n): return 1 - (1 - p)**n
def ends_only(p, n): return sum(k * p * (1 - p)**(k - 1) for k in range(1, n + 1))

def inverse(logits, p):
    probs, order = logits.softmax(-1).sort(descending=True)
    total = probs.cumsum(-1)
    out = (total - probs) > 1 - p
    return logits.masked_fill(torch.zeros_like(out).scatter(-1, order, out), -torch.inf)
def drops_crossing(logits, p):
    probs, order = torch.sort(logits.softmax(-1), descending=True)
    out = probs.cumsum(-1) >= p
    return logits.masked_fill(torch.zeros_like(out).scatter(-1, order, out), -torch.inf)
def one_too_many(logits, p):
    probs, order = torch.sort(logits.softmax(-1), descending=True)
    out = F.pad(probs.cumsum(-1) > p, (1, 0))[..., :-1]
    return logits.masked_fill(torch.zeros_like(out).scatter(-1, order, out), -torch.inf)
def ascending(logits, p):
    probs, order = logits.softmax(-1).sort()
    out = probs.cumsum(-1) - probs >= p
    return logits.masked_fill(out.scatter(-1, order, out), -torch.inf)
def the_rest(logits, p):
    probs, order = logits.softmax(-1).sort(descending=True)
    out = probs.cumsum(-1) - probs < p
    return logits.masked_fill(out.scatter(-1, order, out), -torch.inf)
def in_sorted_order(logits, p):
    probs = logits.softmax(-1).sort(descending=True).values
    return logits.masked_fill(probs.cumsum(-1) - probs >= p, -torch.inf)
def alone(logits, p): return logits.masked_fill(logits.softmax(-1) < p, -torch.inf)
def normalised(logits, p):
    probs, order = logits.softmax(-1).sort(descending=True)
    out = probs.cumsum(-1) - probs >= p
    return logits.masked_fill(out.scatter(-1, order, out), -torch.inf).log_softmax(-1)
@torch.no_grad()
def cut_off(logits, p):
    probs, order = logits.softmax(-1).sort(descending=True)
    out = probs.cumsum(-1) - probs >= p
    return logits.masked_fill(out.scatter(-1, order, out), -torch.inf)
def to_zero(logits, p):
    probs, order = logits.softmax(-1).sort(descending=True)
    out = probs.cumsum(-1) - probs >= p
    return logits.masked_fill(out.scatter(-1, order, out), 0.)

def cut_mean(p, n): return min(1 / p, n)
def no_axis(logits, u): return torch.argmax(logits - torch.log(-torch.log(u)))

WRONG = {
    "gumbel_max": [
        ("one token for each row: along the last axis", no_axis),
        ("the noise has its sign wrong", minus),
        ("that is always the likeliest: where is the noise?", greedy),
        ("one log is missing", exponential),
        ("one log is missing, and a sign", other_exponential),
        ("u itself is no Gumbel noise", only_u),
        ("the noise belongs to the logits: their probabilities are too small to feel it", on_probs),
        ("take the largest, not the smallest", smallest),
        ("one token for each row, not one row for each token", flat),
        ("which token, not how large it was", value)],
    "filter_min_p": [
        ("the probabilities of what is kept must sum to 1", not_again),
        ("those are logits: log_softmax makes log-probs of them", left_logits),
        ("compare with min_p times the best, not with min_p", fixed),
        ("upside down: that keeps the unlikely ones", inverted),
        ("a probability of exactly min_p times the best is kept: < and not <=", strict),
        ("the best of each row, not of the whole batch", whole_batch),
        ("that is a share of the mean, not of the best", of_the_mean),
        ("min_p is a share of the best, not a distance from it", distance),
        ("log-probs, not probabilities", probabilities),
        ("compare probabilities, not logits: softmax first", of_logits)],
    "mean_length": [
        ("cut each response, then take the mean: not the mean first", cut_mean),
        ("forgot the cut", endless), ("eos is a token too: it counts", without_eos),
        ("after n tokens it is cut: that is one more", one_more),
        ("cut after n tokens, and the first of them is always sampled", from_one),
        ("p is the probability to stop; it goes on with 1 - p", eos_prob),
        ("that is the probability that it was cut, not a length", was_cut),
        ("that is the probability that it ended, not a length", ended),
        ("a response that is cut has n tokens: those are missing", ends_only)],
    "fixed_top_p": [
        ("it still takes p for 1 - p: the higher p, the fewer tokens", inverse),
        ("the token that crosses p is kept, or nothing may be left", drops_crossing),
        ("when the kept ones have reached p exactly, it is enough", one_too_many),
        ("that keeps the unlikely ones: sort the other way", ascending),
        ("that keeps what top-p takes away", the_rest),
        ("the mask is in sorted order: bring it back to the order of the logits", in_sorted_order),
        ("probabilities add up, one token's probability alone does not", alone),
        ("leave the kept logits as they are", normalised),
        ("no gradient reaches the logits: do not detach", cut_off), ("", to_zero)]}
