"Exercises of the chapter on DPO."
import torch
from torch import Generator, tensor
from torch.nn.functional import softplus
from rlhf_nb.book.checks import Exercise
from rlhf_nb.worlds.oracle import TabularLM, micro_world
from rlhf_nb.tokens import Seqs, make_seqs, shift_right

def draw(seed, *size): # quarters, so that sums are exact in any order and precision
    return torch.randint(-20, 0, size, generator=Generator().manual_seed(seed)) / 4

def mask_of(*rows): return tensor([[c == "r" for c in row] for row in rows])

def shift_left(mask): return torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], 1)
def _first(mask): return mask & (mask.cumsum(1) == 1)
def _last(mask): return mask & (mask.flip(1).cumsum(1).flip(1) == 1)

# ------------------------------------------------------------------ fixed_answer_logprob
def answer_logprob(logits, ids, counts, shift=True, over="sum", log=True, low=True):
    "Log-prob of each answer, or what becomes of it."
    if low: logits = logits.float()
    logp = torch.log_softmax(logits, -1) if log else torch.softmax(logits, -1)
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
    "token_logprobs has shifted already: its entry i is of token i, like the mask's":
        lambda x, ids, m: answer_logprob(x, ids, shift_left(m)),
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

# ------------------------------------------------------------------ sequence_logprobs
def _scores(model, seqs, counts=None, **kind):
    logits = model(input_ids=seqs.ids, attention_mask=seqs.attention_mask).logits
    return answer_logprob(logits, seqs.ids, seqs.response_mask if counts is None else counts, low=False, **kind)

def _answers(words, seed, prompts, responses, left=0):
    world = micro_world(*words)
    lm = TabularLM(world).double()
    with torch.no_grad():
        lm.head.weight[:world.eos + 1] = torch.randn(
            world.eos + 1, lm.head.weight.shape[1], generator=Generator().manual_seed(seed)).double()
    seqs = make_seqs([[world.start] * p for p in prompts], responses, world.pad)
    if left:      # pads on the left as well
        ids = torch.cat([torch.full((len(seqs), left), world.pad), seqs.ids], 1)
        blank = torch.zeros(len(seqs), left, dtype=torch.bool)
        seqs = Seqs(ids, torch.cat([blank, seqs.attention_mask], 1), torch.cat([blank, seqs.response_mask], 1))
    return lm, seqs

_abc = (("a", "b", "."), 3)
sequence_logprobs = Exercise(
    reference=lambda model, seqs: _scores(model, seqs),
    cases={"three rows": _answers(_abc, 0, [1, 1, 1], [[0, 1, 2], [2], [1, 1, 1]]),
           "pads on both sides": _answers(_abc, 1, [1, 1], [[0, 2], [1, 0, 2]], left=2),
           "an empty response": _answers(_abc, 2, [1, 1], [[], [0, 0, 2]]), "one row": _answers(_abc, 3, [1], [[1, 2]]),
           "one token": _answers((("a", "."), 1), 4, [1, 1], [[1], [0]])},
    mistakes={
        "that is a mean over tokens: the log-prob of an answer is a sum": lambda m, s: _scores(m, s, over="mean"),
        "that is divided by the width: the log-prob of an answer is a sum": lambda m, s: _scores(m, s, over="width"),
        "that is one number for the batch: keep one per row": lambda m, s: _scores(m, s).sum(),
        "the sign: this is a log-prob, not a loss": lambda m, s: -_scores(m, s),
        "that is the probability: its log is wanted": lambda m, s: _scores(m, s).exp(),
        "eos is left out: it is part of the answer": lambda m, s: _scores(m, s, s.response_mask & ~_last(s.response_mask)),
        "the first token of the answer is left out": lambda m, s: _scores(m, s, s.response_mask & ~_first(s.response_mask)),
        "along the wrong axis: one number per row": lambda m, s: torch.stack([
            _scores(m, s, s.response_mask & (torch.arange(s.ids.shape[1]) == i)).sum() for i in range(s.ids.shape[1])]),
        "prompt tokens are counted: only response tokens are": lambda m, s: _scores(
            m, s, s.attention_mask & (torch.arange(s.ids.shape[1]) > 0)),
        "that is the last token alone": lambda m, s: _scores(m, s, _last(s.response_mask)),
        "no gradient reaches the model": lambda m, s: _scores(m, s).detach(),
        "that is one number per token: sum them": lambda m, s: torch.stack([
            _scores(m, s, s.response_mask & (torch.arange(s.ids.shape[1]) == i)) for i in range(s.ids.shape[1])], 1)})

# ------------------------------------------------------------------ dpo_loss
def _dpo(a, b, c, d, beta=.1, last=lambda x: softplus(-x), checked=True):
    if checked and not beta > 0: raise ValueError("beta must be above 0")
    a, b, c, d = [x if x.dtype == torch.double else x.float() for x in (a, b, c, d)]
    return last(beta * ((a - c) - (b - d)))

def _four(seed, n, *beta, dtype=torch.float32): return *[draw(seed + k, n).to(dtype).requires_grad_() for k in range(4)], *beta

dpo_loss = Exercise(
    reference=_dpo,
    cases={"four pairs": _four(0, 4, .5), "one pair": _four(10, 1, .1), "beta 2": _four(20, 3, 2.), "no beta given": _four(30, 3),
           "policy = reference": (*[draw(40, 3), draw(41, 3)] * 2, .3), "bf16": _four(50, 3, .5, dtype=torch.bfloat16),
           "float64": _four(60, 3, .5, dtype=torch.double),
           "log-probs of -300": (tensor([-300., -5.]).requires_grad_(), tensor([-5., -300.]), tensor([-6., -6.]), tensor([-6., -6.]), 1.),
           "beta 0": _four(70, 2, 0.)},
    mistakes={
        "chosen and rejected are swapped: it learns the rejected ones": lambda a, b, c, d, beta=.1: _dpo(b, a, d, c, beta),
        "the reference is missing": lambda a, b, c, d, beta=.1: _dpo(a, b, 0 * c, 0 * d, beta),
        "the reference is added: subtract it on both sides": lambda a, b, c, d, beta=.1: _dpo(a, b, -c, -d, beta),
        "beta is missing": lambda a, b, c, d, beta=.1: _dpo(a, b, c, d, 1. if beta > 0 else beta),
        "beta belongs inside the sigmoid, it is no factor of the loss": lambda a, b, c, d, beta=.1: beta * _dpo(
            a, b, c, d, 1. if beta > 0 else beta),
        "beta is for both ratios": lambda a, b, c, d, beta=.1: _dpo(
            a * beta, b, c * beta, d, 1. if beta > 0 else beta),
        "multiply by beta, do not divide": lambda a, b, c, d, beta=.1: _dpo(a, b, c, d, 1 / beta if beta > 0 else beta),
        "that is a mean: one number per pair": lambda *x: _dpo(*x).mean(),
        "the sign: a loss is above 0": lambda *x: -_dpo(*x),
        "that is the probability: -log of it is the loss": lambda *x: _dpo(*x, last=torch.sigmoid),
        "that is the weight of the gradient, not the loss": lambda *x: _dpo(*x, last=lambda y: torch.sigmoid(-y)),
        "that is the hinge": lambda *x: _dpo(*x, last=lambda y: (1 - y).relu()),
        "sigmoid, then log is infinite at -300: use logsigmoid": lambda *x: _dpo(*x, last=lambda y: -torch.sigmoid(y).log()),
        "only the chosen side is looked at": lambda a, b, c, d, beta=.1: _dpo(a, 0 * b, c, 0 * d, beta),
        "no gradient reaches the policy": lambda *x: _dpo(*x).detach(),
        "beta must be above 0, or ValueError": lambda *x: _dpo(*x, checked=False)})

