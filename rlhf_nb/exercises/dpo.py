"Exercises of the chapter on DPO."
import torch
from torch import Generator, tensor
from torch.nn.functional import logsigmoid, softplus
from rlhf_nb.checks import Exercise
from rlhf_nb.tokens import shift_right

def draw(seed, *size): # quarters, so that sums are exact in any order and precision
    return torch.randint(-20, 0, size, generator=Generator().manual_seed(seed)) / 4

def mask_of(*rows): return tensor([[c == "r" for c in row] for row in rows])

# ------------------------------------------------------------------ implicit_reward
def _reward(logp, ref_logp, mask, beta, detach=True, over="sum"):
    ratio = logp - (ref_logp.detach() if detach else ref_logp)
    total = torch.where(mask, ratio, 0.).sum(1)
    if over == "mean": total = total / mask.sum(1).clamp(min=1)
    return beta * (total.sum() if over == "all" else total)

def _first(mask): return mask & (mask.cumsum(1) == 1)
def _last(mask): return mask & (mask.flip(1).cumsum(1).flip(1) == 1)

def _token_case(seed, mask, beta, dtype=torch.float32):
    a, b = [draw(seed + k, *mask.shape).to(dtype).requires_grad_() for k in (0, 1)]
    return a, b, mask, beta

implicit_reward = Exercise(
    reference=_reward,
    cases={"two rows": _token_case(0, mask_of("prrr..", "pprrrr"), .5),
           "pads on both sides": _token_case(2, mask_of("..prr.", "prrrr.", ".ppprr"), .25),
           "an empty response": _token_case(4, mask_of("ppp..", "pprrr"), .5),
           "one row, one token": _token_case(6, mask_of("ppr"), 2.),
           "bf16": _token_case(8, mask_of("prrr", "pprr"), .5, torch.bfloat16)},
    mistakes={
        "that is a mean over tokens: the log-prob of an answer is a sum":
            lambda a, b, m, beta: _reward(a, b, m, beta, over="mean"),
        "prompt and pads are counted: only response tokens are":
            lambda a, b, m, beta: _reward(a, b, m | True, beta),
        "only the prompt and pads are counted: the mask is True where it counts":
            lambda a, b, m, beta: _reward(a, b, ~m, beta),
        "beta is missing": lambda a, b, m, beta: _reward(a, b, m, 1.),
        "turn it round: policy minus reference":
            lambda a, b, m, beta: -_reward(a, b, m, beta),
        "the reference is missing": lambda a, b, m, beta: _reward(a, 0 * b, m, beta),
        "gradient flows into the reference: it is data":
            lambda a, b, m, beta: _reward(a, b, m, beta, detach=False),
        "no gradient reaches the policy": lambda a, b, m, beta: _reward(a.detach(), b, m, beta),
        "the first token of the response is left out: its log-prob counts":
            lambda a, b, m, beta: _reward(a, b, m & ~_first(m), beta),
        "the last token, eos, is left out": lambda a, b, m, beta: _reward(a, b, m & ~_last(m), beta),
        "shifted by one: entry i of all three belongs to token i":
            lambda a, b, m, beta: _reward(a[:, 1:], b[:, 1:], m[:, :-1], beta),
        "that is one number for the batch: keep one per row":
            lambda a, b, m, beta: _reward(a, b, m, beta, over="all")})

# ------------------------------------------------------------------ gradient_weight
def _weight(a, b, c, d, beta, last=torch.sigmoid): return last(-beta * (a - c - (b - d)))

def _pair_case(seed, n, beta, dtype=torch.float32):
    return *[draw(seed + k, n).to(dtype) for k in range(4)], beta

gradient_weight = Exercise(
    reference=_weight,
    cases={"four pairs": _pair_case(0, 4, .5), "one pair": _pair_case(10, 1, .1),
           "beta 2": _pair_case(20, 3, 2.), "bf16": _pair_case(30, 3, .5, torch.bfloat16),
           "policy = reference": (*[draw(40, 3), draw(41, 3)] * 2, .3),
           "very sure, either way": (tensor([-5., -900.]), tensor([-900., -5.]),
                                     tensor([-7., -7.]), tensor([-7., -7.]), 1.)},
    mistakes={
        "that is the probability of the chosen answer: a pair that is learned has no weight":
            lambda *x: 1 - _weight(*x),
        "the reference is missing": lambda a, b, c, d, beta: _weight(a, b, 0 * c, 0 * d, beta),
        "the policy is missing": lambda a, b, c, d, beta: _weight(0 * a, 0 * b, c, d, beta),
        "the reference is added: subtract it on both sides":
            lambda a, b, c, d, beta: _weight(a, b, -c, -d, beta),
        "beta is missing": lambda a, b, c, d, beta: _weight(a, b, c, d, 1.),
        "that is the loss: what is wanted is its slope":
            lambda *x: _weight(*x, last=softplus),
        "that is the log of the weight": lambda *x: _weight(*x, last=logsigmoid),
        "that is beta times the weight: the whole gradient":
            lambda a, b, c, d, beta: beta * _weight(a, b, c, d, beta),
        "only the chosen side is looked at": lambda a, b, c, d, beta: _weight(a, 0 * b, c, 0 * d, beta),
        "that is a mean: one number per pair": lambda *x: _weight(*x).mean(),
        "divide by beta? multiply": lambda a, b, c, d, beta: _weight(a, b, c, d, 1 / beta)})

# ------------------------------------------------------------------ irreducible_loss
def _entropy(p, log=torch.log, q=True):
    def side(p): return torch.where(p > 0, -p * log(p.clamp(min=1e-30)), 0.)
    return (side(p) + side(1 - p) * q).mean()

irreducible_loss = Exercise(
    reference=_entropy,
    cases={"three pairs": (tensor([.9, .5, .65]),), "one pair": (tensor([.2]),),
           "five pairs": (tensor([.1, .3, .35, .8, .7]),),
           "a certain label": (tensor([1., 0., .3]),),
           "float64": (tensor([.25, .6], dtype=torch.float64),)},
    mistakes={
        "the other label can be drawn, too": lambda p: _entropy(p, q=False),
        "that is the sum: take the mean over pairs": lambda p: _entropy(p) * len(p),
        "that is in bits: the loss is in nats": lambda p: _entropy(p, torch.log2),
        "0 log 0 is nan to the machine: a certain label costs nothing, it adds 0":
            lambda p: _entropy(p) + 0 * (p.log() * (1 - p).log() * 0).sum(),
        "the sign: a loss is above 0": lambda p: -_entropy(p),
        "that is the probability of an error, not the loss": lambda p: torch.minimum(p, 1 - p).mean(),
        "the less likely label is drawn, too: weigh both":
            lambda p: -torch.maximum(p, 1 - p).log().mean(),
        "that is one number per pair: take the mean":
            lambda p: torch.stack([_entropy(x) for x in p[:, None]])})

# ------------------------------------------------------------------ fixed_answer_logprob
def answer_logprob(logits, ids, counts, shift=True, over="sum", log=True):
    "Log-prob of each answer, or what becomes of it."
    logp = torch.log_softmax(logits.float(), -1) if log else torch.softmax(logits.float(), -1)
    logp = (shift_right(logp) if shift else logp).gather(-1, ids[..., None])[..., 0]
    total = (logp * counts).sum(1)
    n = counts.sum(1) if over == "mean" else counts.shape[1]
    return total / n if over in ("mean", "width") else total

def logit_case(seed, *rows, dtype=torch.float32): # p a prompt token, r a response one
    generator, mask = Generator().manual_seed(seed), mask_of(*rows)
    logits = torch.randn(*mask.shape, 5, generator=generator).to(dtype).requires_grad_()
    return logits, torch.randint(5, mask.shape, generator=generator), mask

LOGITS = {"two rows": logit_case(0, "pprrr.", "prrrrr"),
          "pads on both sides": logit_case(1, ".pprr.", "...prr", "pprrrr"),
          "an empty response": logit_case(2, "ppp.", "prrr"),
          "one row": logit_case(3, "pprr"),
          "bf16": logit_case(4, "prrr.", "pprrr", dtype=torch.bfloat16)}
SLIPS = {
    "prompt and pads are counted: only response tokens are":
        lambda x, ids, m: answer_logprob(x, ids, (m | True) & (torch.arange(m.shape[1]) > 0)),
    "the first token of the answer is left out":
        lambda x, ids, m: answer_logprob(x, ids, m & ~_first(m)),
    "eos is left out: it is part of the answer":
        lambda x, ids, m: answer_logprob(x, ids, m & ~_last(m)),
    "that is the probability of each token, added: take logs first":
        lambda x, ids, m: answer_logprob(x, ids, m, log=False),
    "the sign: this is a log-prob, not a loss": lambda x, ids, m: -answer_logprob(x, ids, m),
    "that is one number for the batch: keep one per row":
        lambda x, ids, m: answer_logprob(x, ids, m).sum(),
    "no gradient reaches the logits": lambda x, ids, m: answer_logprob(x.detach(), ids, m),
    "divided by the width of the batch: padding must not matter":
        lambda x, ids, m: answer_logprob(x, ids, m, over="width")}

fixed_answer_logprob = Exercise(
    reference=answer_logprob, cases=LOGITS,
    mistakes={
        "that is still the mean: beta is divided by the length of each answer":
            lambda x, ids, m: answer_logprob(x, ids, m, over="mean"),
        "it is still divided by the length, of every row but an empty one":
            lambda x, ids, m: answer_logprob(x, ids, m) / m.sum(1).clamp(min=1),
        "shifted by one: the logits before a token predict it":
            lambda x, ids, m: answer_logprob(x, ids, m, shift=False), **SLIPS})
