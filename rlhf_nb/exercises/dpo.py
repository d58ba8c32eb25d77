"Exercises of the chapter on DPO."
import torch
from torch import Generator, tensor
from torch.nn.functional import logsigmoid, softplus
from rlhf_nb import dpo as package
from rlhf_nb.book.checks import Exercise, ProofKind
from rlhf_nb.exercises.reward import PAIRS, over_pairs
from rlhf_nb.exercises.tokens import normal, widened
from rlhf_nb.worlds.oracle import TabularLM, micro_world
from rlhf_nb.tokens import Seqs, make_seqs, shift_right

def draw(seed, *size): # quarters, so that sums are exact in any order and precision
    return torch.randint(-20, 0, size, generator=Generator().manual_seed(seed)) / 4

def mask_of(*rows): return tensor([[c == "r" for c in row] for row in rows])

def shift_left(mask): return torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], 1)
def _first(mask): return mask & (mask.cumsum(1) == 1)
def _last(mask): return mask & (mask.flip(1).cumsum(1).flip(1) == 1)

_PAIR_NAMES = {f"{who}_{side}": " ".join([                     # -> the names code gives them
        *(f"{start}{side}{end}" for start in (f"{who}_", other)
          for end in ("", "_logps", "_logp", "_logprobs", "_log_probs")),
        f"{who}_logp_{letter}", f"logp_{who}_{side}", f"{who}_logp_{side}", f"{short}_{letter}"])
    for who, other, short in (("policy", "", "pi"), ("ref", "reference_", "ref"))
    for side, letter in (("chosen", "w"), ("rejected", "l"))}

class DPO(ProofKind):
    asks, chapter = "DPO loss", "dpo"
    takes = _PAIR_NAMES | dict(beta="beta")
    defaults = dict(beta=.1)
    right = dict(form=dict(sigmoid="-log σ(β gap)", ipo="(gap - 1/2β)²", hinge="hinge of β gap"),
                 gap=dict(both=""), beta=dict(inside=""), mean=PAIRS)
    wrong = dict(
        form=dict(no_log="the log is missing: -log σ is the loss", probability="that is the probability: -log of it is the loss",
                  plus="the sign: a loss is above 0", exp="exp(-β gap) is no -log σ(β gap)",
                  weight="that is the weight of the gradient, not the loss", one="IPO's margin is 1/2β, not 1/β",
                  linear="σ and its logarithm are missing"),
        gap=dict(free="the reference is missing", swapped="chosen and rejected are swapped: it learns the rejected ones",
                 added="the reference is added: subtract it on both sides",
                 plus="the two log-ratios are added: subtract the rejected one's",
                 ratio="log-ratios are divided: subtract", chosen="only the chosen side is looked at",
                 frozen="the rejected response is detached: nothing pushes it down"),
        beta=dict(outside="beta belongs inside the sigmoid, it is no factor of the loss", missing="beta is missing",
                  one="beta is for both ratios", under="multiply by beta, do not divide"))
    meant = dict(one="ipo")
    known = {"DPO (Rafailov et al. 2023)": dict(form="sigmoid"), "IPO (Azar et al. 2023)": dict(form="ipo"),
             "the hinge of SLiC": dict(form="hinge")}
    def case(self, seed, beta, scale=1.):
        names = "policy_chosen", "policy_rejected", "ref_chosen", "ref_rejected"
        return {k: (normal(seed + i, 4, scale=scale) - 5).requires_grad_(i < 2) for i,
                k in enumerate(names)} | dict(beta=beta)
    def cases(self, given): return {"four pairs": self.case(0, .1), "wide gaps": self.case(20, .1, 6.)} | (
        {"another β": self.case(10, .5)} if "beta" in given else {})
    def edges(self, given): return {"gaps of thousands": self.case(30, .1, 1e4)}
    def compute(self, a, c):
        w, l, rw, rl = a.policy_chosen, a.policy_rejected, a.ref_chosen, a.ref_rejected
        gap = dict(both=lambda: (w - rw) - (l - rl), free=lambda: w - l, swapped=lambda: (l - rl) - (w - rw),
                   added=lambda: (w + rw) - (l + rl), plus=lambda: (w - rw) + (l - rl), ratio=lambda: (w - rw) / (l - rl),
                   chosen=lambda: w - rw, frozen=lambda: (w - rw) - (l - rl).detach())[c["gap"]]()
        x = dict(inside=gap * a.beta, under=gap / a.beta, one=a.beta * (w - rw) - (l - rl)).get(c["beta"], gap)
        loss = dict(sigmoid=-logsigmoid(x), ipo=(gap - 1 / (2 * a.beta))**2, hinge=(1 - x).clamp(min=0), no_log=-x.sigmoid(),
                    probability=x.sigmoid(), weight=(-x).sigmoid(), plus=logsigmoid(x), exp=(-x).exp(),
                    one=(gap - 1 / a.beta)**2, linear=-x)[c["form"]]
        return over_pairs(loss * (a.beta if c["beta"] == "outside" else 1.), c["mean"])

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
def _pairs(w, l, rw, rl, beta=.1):
    if not beta > 0: raise ValueError("beta must be above 0")
    return dict(zip(("policy_chosen", "policy_rejected", "ref_chosen", "ref_rejected"), map(widened, (w, l, rw, rl))), beta=beta)

def _four(seed, n, *beta, dtype=torch.float32): return *[draw(seed + k, n).to(dtype).requires_grad_() for k in range(4)], *beta

dpo_loss = Exercise(
    reference=package.dpo_loss,
    cases={"four pairs": _four(0, 4, .5), "one pair": _four(10, 1, .1), "beta 2": _four(20, 3, 2.), "no beta given": _four(30, 3),
           "policy = reference": (*[draw(40, 3), draw(41, 3)] * 2, .3), "bf16": _four(50, 3, .5, dtype=torch.bfloat16),
           "float64": _four(60, 3, .5, dtype=torch.double),
           "log-probs of -300": (tensor([-300., -5.]).requires_grad_(), tensor([-5., -300.]), tensor([-6., -6.]), tensor([-6., -6.]), 1.),
           "beta 0": _four(70, 2, 0.)},
    mistakes=DPO().told(_pairs, "form gap beta", {
        "that is a mean: one number per pair": dict(mean="mean"), "that is the hinge": dict(form="hinge"),
        "that is IPO's loss": dict(form="ipo")}, mean="pairs") | {
        "sigmoid, then log is infinite at -300: use logsigmoid": lambda *x: -(-package.dpo_loss(*x)).exp().log(),
        "no gradient reaches the policy": lambda *x: package.dpo_loss(*x).detach(),
        "beta must be above 0, or ValueError": lambda w, l, rw, rl, beta=.1: softplus(-beta * ((w - rw) - (l - rl)))})

