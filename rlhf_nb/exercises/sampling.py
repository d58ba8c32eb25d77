"Exercises of the chapter on sampling."
import torch
from torch import tensor
from rlhf_nb.checks import Exercise

def _gen(seed): return torch.Generator().manual_seed(seed)
def _logits(b, v, seed, scale=1.): return scale * torch.randn(b, v, generator=_gen(seed))
def _uniform(b, v, seed): return torch.rand(b, v, generator=_gen(seed)).clamp(1e-6, 1 - 1e-6)

# ---- Gumbel's noise

def _gumbel(logits, u, noise=lambda u: -(-u.log()).log(), score=lambda x: x, best=torch.argmax,
            dim=-1):
    return best(score(logits.float()) + noise(u.float()), dim=dim)

gumbel_max = Exercise(
    reference=_gumbel,
    cases={"forty rows": (_logits(40, 7, 0), _uniform(40, 7, 1)),
           "sure of itself": (_logits(30, 5, 2, 6.), _uniform(30, 5, 3)),
           "all alike": (torch.zeros(30, 6), _uniform(30, 6, 4)),
           "a token that is never sampled": (_logits(20, 5, 5).masked_fill(
               tensor([False, True, False, False, False]), -torch.inf), _uniform(20, 5, 6)),
           "as many rows as tokens": (_logits(9, 9, 11), _uniform(9, 9, 12)),
           "one row": (_logits(1, 50, 7, 2.), _uniform(1, 50, 8)),
           "bf16": (_logits(12, 5, 9, 3.).bfloat16(), _uniform(12, 5, 10))},
    mistakes={
        "the noise has its sign wrong": lambda x, u: _gumbel(x, u, noise=lambda u: (-u.log()).log()),
        "one token for each row: along the last axis":
            lambda x, u: _gumbel(x, u, dim=None),
        "that is always the likeliest: where is the noise?":
            lambda x, u: _gumbel(x, u, noise=torch.zeros_like),
        "one log is missing": lambda x, u: _gumbel(x, u, noise=lambda u: -u.log()),
        "one log is missing, and a sign": lambda x, u: _gumbel(x, u, noise=torch.log),
        "u itself is no Gumbel noise": lambda x, u: _gumbel(x, u, noise=lambda u: u),
        "the noise belongs to the logits: their probabilities are too small to feel it":
            lambda x, u: _gumbel(x, u, score=lambda x: x.softmax(-1)),
        "take the largest, not the smallest": lambda x, u: _gumbel(x, u, best=torch.argmin),
        "one token for each row, not one row for each token": lambda x, u: _gumbel(x, u, dim=0),
        "which token, not how large it was": lambda x, u: _gumbel(x, u, best=torch.amax)})

# ---- min-p

def _min_p(logits, min_p, least=lambda probs, p: p * probs.amax(-1, keepdim=True),
           keep=lambda probs, low: probs >= low, first=lambda x: x,
           last=lambda x: x.log_softmax(-1)):
    probs = logits.softmax(-1)
    kept = keep(probs, least(probs, min_p))
    return last(first(logits).masked_fill(~kept, -torch.inf))

_even = tensor([[4., 2., 1., 1.], [1., 1., 4., 2.]]).log()     # halves: exact in float
filter_min_p = Exercise(
    reference=_min_p,
    cases={"one sure row, one unsure": (tensor([[.5, .3, .2], [.9, .08, .02]]).log(), .5),
           "exactly min_p times the best stays": (_even, .5),
           "not yet normalised": (_logits(4, 9, 0, 2.) + 3, .2),
           "nothing is cut": (_logits(2, 5, 1), .0), "only the best": (_logits(3, 5, 2, 4.), 1.),
           "a token that is never sampled": (tensor([[0., -torch.inf, 1., -1.]]), .3),
           "bf16": (_logits(3, 6, 3, 2.).bfloat16(), .1)},
    mistakes={
        "the probabilities of what is kept must sum to 1": lambda x, p: _min_p(
            x, p, first=lambda x: x.log_softmax(-1), last=lambda x: x),
        "those are logits: log_softmax makes log-probs of them":
            lambda x, p: _min_p(x, p, last=lambda x: x),
        "compare with min_p times the best, not with min_p":
            lambda x, p: _min_p(x, p, least=lambda probs, p: p),
        "upside down: that keeps the unlikely ones": lambda x, p: _min_p(
            x, p, keep=lambda probs, low: probs < low),
        "a probability of exactly min_p times the best is kept: < and not <=":
            lambda x, p: _min_p(x, p, keep=lambda probs, low: probs > low),
        "the best of each row, not of the whole batch":
            lambda x, p: _min_p(x, p, least=lambda probs, p: p * probs.max()),
        "that is a share of the mean, not of the best":
            lambda x, p: _min_p(x, p, least=lambda probs, p: p * probs.mean(-1, keepdim=True)),
        "min_p is a share of the best, not a distance from it": lambda x, p: _min_p(
            x, p, least=lambda probs, p: probs.amax(-1, keepdim=True) - p),
        "compare probabilities, not logits: softmax first": lambda x, p: x.masked_fill(
            x < p * x.amax(-1, keepdim=True), -torch.inf).log_softmax(-1),
        "log-probs, not probabilities": lambda x, p: _min_p(x, p, last=lambda x: x.softmax(-1))})

# ---- how long a response is

def _length(p, n, first=0, last=0, power=lambda p, step: (1 - p)**step, cut=True):
    if not cut: return 1 / p
    return sum(power(p, step) for step in range(first, n + last))

mean_length = Exercise(
    reference=_length,
    cases={"p = .1, at most 32": (.1, 32), "cut at once": (.3, 1), "always eos": (1., 5),
           "a coin, three throws": (.5, 3), "seldom": (.01, 20)},
    mistakes={
        "forgot the cut": lambda p, n: _length(p, n, cut=False),
        "cut each response, then take the mean: not the mean first":
            lambda p, n: min(1 / p, n),
        "eos is a token too: it counts": lambda p, n: _length(p, n, first=1),
        "after n tokens it is cut: that is one more": lambda p, n: _length(p, n, last=1),
        "cut after n tokens, and the first of them is always sampled":
            lambda p, n: _length(p, n, first=1, last=1),
        "p is the probability to stop; it goes on with 1 - p":
            lambda p, n: _length(p, n, power=lambda p, s: p**s),
        "that is the probability that it was cut, not a length": lambda p, n: (1 - p)**n,
        "that is the probability that it ended, not a length": lambda p, n: 1 - (1 - p)**n,
        "a response that is cut has n tokens: those are missing": lambda p, n: sum(
            k * p * (1 - p)**(k - 1) for k in range(1, n + 1))})

# ---- the clinic: top-p

def _top_p(logits, p, keep=lambda before, after, probs, p: before < p, descending=True,
           again=False, back=True):
    probs, order = logits.float().softmax(-1).sort(dim=-1, descending=descending, stable=True)
    after = probs.cumsum(-1)
    kept = keep(after - probs, after, probs, p)
    kept = torch.zeros_like(kept).scatter(-1, order, kept) if back else kept
    out = logits.masked_fill(~kept, -torch.inf)
    return out.log_softmax(-1) if again else out

_hand = tensor([[.5, .3, .2], [.2, .3, .5], [.97, .02, .01]]).log()
fixed_top_p = Exercise(
    reference=_top_p,
    cases={"p = .6": (_hand, .6), "p = .9": (_hand, .9), "p = .25": (_hand, .25),
           "a wide row": (_logits(3, 40, 0, 2.), .8), "p = 1 keeps all": (_logits(2, 6, 1), 1.),
           "exactly reached": (_even, .5),
           "gradients": (_logits(2, 7, 2).requires_grad_(), .7),
           "bf16": (_logits(2, 9, 4, 2.).bfloat16(), .7)},
    mistakes={
        "it still takes p for 1 - p: the higher p, the fewer tokens": lambda x, p: _top_p(
            x, p, lambda before, after, probs, p: after - probs <= 1 - p),
        "the token that crosses p is kept, or nothing may be left": lambda x, p: _top_p(
            x, p, lambda before, after, probs, p: after < p),
        "when the kept ones have reached p exactly, it is enough": lambda x, p: _top_p(
            x, p, lambda before, after, probs, p: before <= p),
        "that keeps the unlikely ones: sort the other way":
            lambda x, p: _top_p(x, p, descending=False),
        "that keeps what top-p takes away": lambda x, p: _top_p(
            x, p, lambda before, after, probs, p: before >= p),
        "the mask is in sorted order: bring it back to the order of the logits":
            lambda x, p: _top_p(x, p, back=False),
        "probabilities add up, one token's probability alone does not":
            lambda x, p: _top_p(x, p, lambda before, after, probs, p: probs >= p),
        "leave the kept logits as they are": lambda x, p: _top_p(x, p, again=True),
        "no gradient reaches the logits: do not detach": lambda x, p: _top_p(x.detach(), p)})
