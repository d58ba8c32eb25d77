"Exercises of the chapter on DPO."
import torch
from torch import Generator, tensor
from torch.nn.functional import logsigmoid, softplus
from rlhf_nb import dpo as package
from rlhf_nb.book.checks import Exercise, ProofKind
from rlhf_nb.exercises.reward import PAIRS, over_pairs
from rlhf_nb.exercises.tokens import normal, widened

def draw(seed, *size): # quarters, so that sums are exact in any order and precision
    return torch.randint(-20, 0, size, generator=Generator().manual_seed(seed)) / 4

_PAIR_NAMES = {f"{who}_{side}": " ".join([                     # -> the names code gives them
        *(f"{start}{side}{end}" for start in (f"{who}_", other)
          for end in ("", "_logps", "_logp", "_logprobs", "_log_probs")),
        f"{who}_logp_{letter}", f"logp_{who}_{side}", f"{who}_logp_{side}", f"{short}_{letter}"])
    for who, other, short in (("policy", "", "pi"), ("ref", "reference_", "ref"))
    for side, letter in (("chosen", "w"), ("rejected", "l"))}

class DPO(ProofKind):
    asks, chapter = "DPO loss", "dpo"
    takes = _PAIR_NAMES | dict(beta="beta", smooth="smooth label_smoothing smoothing eps epsilon noise")
    defaults = dict(beta=.1, smooth=.1)
    right = dict(form=dict(sigmoid="-log σ(β gap)", ipo="(gap - 1/2β)²", hinge="hinge of β gap",
                           conservative="labels smoothed: (1 - s) -log σ(β gap) + s -log σ(-β gap)",
                           robust="the same with - s, over 1 - 2 s"),
                 gap=dict(both=""), beta=dict(inside=""), mean=PAIRS)
    wrong = dict(
        form=dict(no_log="the log is missing: -log σ is the loss", probability="that is the probability: -log of it is the loss",
                  plus="the sign: a loss is above 0", exp="exp(-β gap) is no -log σ(β gap)",
                  weight="that is the weight of the gradient, not the loss", one="IPO's margin is 1/2β, not 1/β", margin="IPO's margin is 1/2β, not β",
                  linear="σ and its logarithm are missing"),
        gap=dict(free="the reference is missing", swapped="chosen and rejected are swapped: it learns the rejected ones",
                 added="the reference is added: subtract it on both sides",
                 plus="the two log-ratios are added: subtract the rejected one's",
                 ratio="log-ratios are divided: subtract", chosen="only the chosen side is looked at",
                 frozen="the rejected response is detached: nothing pushes it down"),
        beta=dict(outside="beta belongs inside the sigmoid, it is no factor of the loss", missing="beta is missing",
                  one="beta is for both ratios", policy="beta is for the reference, too: it scales the whole gap", under="multiply by beta, do not divide"))
    meant, stable = dict(one="ipo", margin="ipo"), ("gaps of thousands",)
    known = {"DPO (Rafailov et al. 2023)": dict(form="sigmoid"), "IPO (Azar et al. 2023)": dict(form="ipo"),
             "the hinge of SLiC": dict(form="hinge"), "conservative DPO (Mitchell 2023)": dict(form="conservative"),
             "robust DPO (Chowdhury et al. 2024)": dict(form="robust")}
    def case(self, seed, beta, scale=1.):
        names = "policy_chosen", "policy_rejected", "ref_chosen", "ref_rejected"
        return {k: (normal(seed + i, 4, scale=scale) - 5).requires_grad_(i < 2) for i,
                k in enumerate(names)} | dict(beta=beta, smooth=.1)
    def cases(self, given): return {"four pairs": self.case(0, .1), "wide gaps": self.case(20, .1, 6.)} | (
        {"another β": self.case(10, .5)} if "beta" in given else {})
    def edges(self, given): return {"gaps of thousands": self.case(35, .1, 1e4)}
    def compute(self, a, c):
        w, l, rw, rl = a.policy_chosen, a.policy_rejected, a.ref_chosen, a.ref_rejected
        gap = dict(both=lambda: (w - rw) - (l - rl), free=lambda: w - l, swapped=lambda: (l - rl) - (w - rw),
                   added=lambda: (w + rw) - (l + rl), plus=lambda: (w - rw) + (l - rl), ratio=lambda: (w - rw) / (l - rl),
                   chosen=lambda: w - rw, frozen=lambda: (w - rw) - (l - rl).detach())[c["gap"]]()
        x = dict(inside=gap * a.beta, under=gap / a.beta, one=a.beta * (w - rw) - (l - rl), policy=a.beta * (w - l) - (rw - rl)).get(c["beta"], gap)
        loss = dict(sigmoid=-logsigmoid(x), ipo=(gap - 1 / (2 * a.beta))**2, hinge=(1 - x).clamp(min=0), no_log=-x.sigmoid(),
                    probability=x.sigmoid(), weight=(-x).sigmoid(), plus=logsigmoid(x), exp=(-x).exp(),
                    one=(gap - 1 / a.beta)**2, margin=(gap - a.beta)**2, linear=-x,
                    conservative=-(1 - a.smooth) * logsigmoid(x) - a.smooth * logsigmoid(-x),
                    robust=(a.smooth * logsigmoid(-x) - (1 - a.smooth) * logsigmoid(x)) / (1 - 2 * a.smooth))[c["form"]]
        return over_pairs(loss * (a.beta if c["beta"] == "outside" else 1.), c["mean"])

# ------------------------------------------------------------------ log_ratio_gap
def _four(seed, n, *beta, dtype=torch.float32): # of the reference, which is data, no gradient is asked
    return *[draw(seed + k, n).to(dtype).requires_grad_(k < 2) for k in range(4)], *beta
def _gap(*x, form=lambda w, l, rw, rl: (w - rw) - (l - rl), low=False): return form(*x if low else map(widened, x))
def _of(form): return lambda *x: _gap(*x, form=form)

log_ratio_gap = Exercise(
    reference=package.log_ratio_gap,
    cases={"four pairs": _four(80, 4), "one pair": _four(90, 1), "policy = reference": [draw(95, 3), draw(96, 3)] * 2,
           "bf16": [tensor(x).bfloat16() for x in ([-20.25, -1.], [-4., -17.5], [-5.03125, -1.], [-9., -3.015625])],
           "float64": _four(100, 3, dtype=torch.double), "far apart": [tensor(x) for x in ([-300., -2.], [-1., -250.], [-3., -60.], [-280., -2.])],
           "fp16": [tensor(x).half() for x in ([-1000.5, -.25], [-2.125, -1500.], [-3.0625, -.125], [-900.25, -.5])],
           "float64, all of its digits": [tensor([-1e7 - x, -3.]).double() + tensor([y, 0.]).double() for x, y in ((0, .25), (8, .125), (0, -.375), (8, .5))]},
    mistakes={
        "the reference is missing, or one for both sides, which cancels: each has its own": _of(lambda w, l, rw, rl: w - l),
        "the sign: chosen minus rejected, and policy minus reference": _of(lambda w, l, rw, rl: (l - rl) - (w - rw)),
        "the sign of the reference: it is subtracted on both sides, each its own, not added (nor is the other side's subtracted)": _of(lambda w, l, rw, rl: (w + rw) - (l + rl)),
        "the two log-ratios are added: subtract the rejected one's": _of(lambda w, l, rw, rl: (w - rw) + (l - rl)),
        "log-probs are subtracted, not divided": _of(lambda w, l, rw, rl: w / rw - l / rl),
        "log-ratios are divided: subtract": _of(lambda w, l, rw, rl: (w - rw) / (l - rl)),
        "only the chosen side is looked at": _of(lambda w, l, rw, rl: w - rw),
        "only the rejected side is looked at": _of(lambda w, l, rw, rl: rl - l),
        "those are log-probs already: no log, no exp": _of(lambda w, l, rw, rl: (w.exp() - rw.exp()) - (l.exp() - rl.exp())),
        "that is a mean: one number per pair": _of(lambda w, l, rw, rl: ((w - rw) - (l - rl)).mean()),
        "no gradient reaches the policy": _of(lambda w, l, rw, rl: ((w - rw) - (l - rl)).detach()),
        "β belongs to the loss: the gap is in nats": _of(lambda w, l, rw, rl: .1 * ((w - rw) - (l - rl))),
        "the log-ratios are subtracted, not averaged": _of(lambda w, l, rw, rl: ((w - rw) + (l - rl)) / 2),
        "the gap keeps its sign: no absolute value": _of(lambda w, l, rw, rl: ((w - rw) - (l - rl)).abs()),
        "the gap keeps its sign: nothing is cut off at 0": _of(lambda w, l, rw, rl: ((w - rw) - (l - rl)).clamp(min=0)),
        "the reference is missing on the rejected side": _of(lambda w, l, rw, rl: (w - rw) - l),
        "the reference is missing on the chosen side": _of(lambda w, l, rw, rl: w - (l - rl)),
        "brackets: the reference of the rejected answer is added back, it is not subtracted": _of(lambda w, l, rw, rl: w - rw - l - rl),
        "the reference alone: subtract its difference from the policy's": _of(lambda w, l, rw, rl: rw - rl),
        "the gap is in nats, not in bits": _of(lambda w, l, rw, rl: ((w - rw) - (l - rl)) / .6931472),
        "the gap is no probability: no sigmoid": _of(lambda w, l, rw, rl: ((w - rw) - (l - rl)).sigmoid()),
        "the gap is no loss: no logsigmoid": _of(lambda w, l, rw, rl: -logsigmoid((w - rw) - (l - rl))),
        "the ratio is in logs: no exp": _of(lambda w, l, rw, rl: ((w - rw) - (l - rl)).exp()),
        "the ratios are in logs: no exp of each": _of(lambda w, l, rw, rl: (w - rw).exp() - (l - rl).exp()),
        "that is a sum: one number per pair": _of(lambda w, l, rw, rl: ((w - rw) - (l - rl)).sum()),
        "two log-ratios come back: subtract the rejected one's from the chosen one's": lambda w, l, rw, rl: (w - rw, l - rl),
        "float64 is lowered to float32, and loses half of its digits: at_least_float32 raises what is lower, and lowers nothing":
            lambda *x: (lambda w, l, rw, rl: (w - rw) - (l - rl))(*[y.float() for y in x]),
        "raise low precision to float32 before you subtract: behind it the digits are lost": lambda *x: _gap(*x, low=True)})

# ------------------------------------------------------------------ dpo_loss
def _pairs(w, l, rw, rl, beta=.1):
    if not beta > 0: raise ValueError("beta must be above 0")
    return dict(zip(("policy_chosen", "policy_rejected", "ref_chosen", "ref_rejected"), map(widened, (w, l, rw, rl))), beta=beta, smooth=0.)

dpo_loss = Exercise(
    reference=package.dpo_loss,
    cases={"four pairs": _four(0, 4, .5), "one pair": _four(10, 1, .1), "beta 2": _four(20, 3, 2.), "no beta given": _four(30, 3),
           "policy = reference": (*[draw(40, 3), draw(41, 3)] * 2, .3), "bf16": _four(50, 3, .5, dtype=torch.bfloat16),
           "float64": _four(60, 3, .5, dtype=torch.double),
           "log-probs of -300": (tensor([-300., -5.]).requires_grad_(), tensor([-5., -300.]), tensor([-6., -6.]), tensor([-6., -6.]), 1.),
           "beta 0": _four(70, 2, 0.), "beta below 0": _four(75, 2, -.5)},
    mistakes=DPO().told(_pairs, "form gap beta", {
        "that is a mean: one number per pair": dict(mean="mean"), "that is the hinge": dict(form="hinge"),
        "that is IPO's loss": dict(form="ipo")}, mean="pairs") | {
        "sigmoid, then log is infinite at -300: use logsigmoid": lambda *x: -(-package.dpo_loss(*x)).exp().log(),
        "no gradient reaches the policy": lambda *x: package.dpo_loss(*x).detach(),
        "beta must be above 0, or ValueError": lambda w, l, rw, rl, beta=.1: softplus(-beta * ((w - rw) - (l - rl)))})


ASKED = {
    "log_ratio_gap": {
        "low-precision inputs are raised to float32 before they are subtracted": "bf16 | fp16",
        "float64 stays float64: `at_least_float32` raises what is lower, and lowers nothing": "float64, all of its digits | float64"},
    "dpo_loss": {
        "the loss stays finite at a gap of -300: the logarithm of a sigmoid of 0 is infinite": "log-probs of -300",
        "beta must be above 0, or ValueError": "beta 0 | beta below 0",
        "where no beta is given it is .1": "no beta given",
        "low-precision inputs are raised to float32 before they are subtracted": "bf16"}}
