"Exercises of the chapter on self-play."
import torch
from torch import tensor
from torch.nn.functional import softplus
from rlhf_nb.checks import Exercise
from rlhf_nb.exercises.dpo import LOGITS, SLIPS, answer_logprob, draw

# ------------------------------------------------------------------ fixed_player
fixed_player = Exercise(
    reference=answer_logprob, cases=LOGITS,
    mistakes={
        "still unshifted: it asks for the same word again":
            lambda x, ids, m: answer_logprob(x, ids, m, shift=False),
        "shifted the wrong way: now the logits are two places off":
            lambda x, ids, m: answer_logprob(torch.cat([x[:, 1:], 0 * x[:, :1]], 1), ids, m, shift=False),
        "shifted the wrong way: the logits of i + 1 have seen word i, ask those of i - 1":
            lambda x, ids, m: answer_logprob(x[:, 1:], ids[:, :-1], m[:, :-1], shift=False),
        "logits and ids are shifted, the mask is not: it is one place early":
            lambda x, ids, m: answer_logprob(x, ids, torch.cat([m[:, :1] & False, m[:, :-1]], 1)),
        "the mean over tokens divides beta by the length: take the sum":
            lambda x, ids, m: answer_logprob(x, ids, m, over="mean"),
        "divided by the length of every answer but an empty one: take the sum":
            lambda x, ids, m: answer_logprob(x, ids, m) / m.sum(1).clamp(min=1), **SLIPS})

# ------------------------------------------------------------------ fixed_average
def _follow(average, policy, step, decay, copies=lambda step: False, detach=True):
    if detach: average, policy = average.detach(), policy.detach()
    if copies(step): return policy.clone()
    return decay * average + (1 - decay) * policy

def _weights(seed, *size, dtype=torch.float32):
    return [draw(seed + k, *size).to(dtype).requires_grad_() for k in (0, 1)]

def _like(**changes): return lambda a, p, s, d: _follow(a, p, s, d, **changes)

fixed_average = Exercise(
    reference=_follow,
    cases={"decay 1, the first step": (*_weights(0, 3), 1, 1.),
           "decay 1, step 10": (*_weights(2, 2, 2), 10, 1.),
           "decay 1, step 100": (*_weights(4, 4), 100, 1.),
           "decay 1, step 130": (*_weights(6, 4), 130, 1.),
           "decay .75, the first step": (*_weights(8, 3), 1, .75),
           "decay .75, step 50": (*_weights(10, 2, 3), 50, .75),
           "decay .5, step 7": (*_weights(12, 1), 7, .5),
           "decay 0": (*_weights(14, 2), 3, 0.),
           "bf16": (*_weights(16, 3, dtype=torch.bfloat16), 3, .75)},
    mistakes={
        "it still comes home: the policy is copied while the average warms up":
            _like(copies=lambda s: s == 1 or s <= 100 and s % 10 == 0),
        "the first step still copies the policy": _like(copies=lambda s: s == 1),
        "each tenth step still copies the policy":
            _like(copies=lambda s: s <= 100 and s % 10 == 0),
        "each tenth step copies the policy, now for ever": _like(copies=lambda s: s % 10 == 0),
        "decay weighs the average, 1 - decay the policy": lambda a, p, s, d: _follow(a, p, s, 1 - d),
        "decay is not asked: the average never moves": lambda a, p, s, d: a.detach().clone(),
        "decay is not asked: the average is the policy": lambda a, p, s, d: p.detach().clone(),
        "gradient flows through the average: it is a memory":
            _like(detach=False),
        "Adam's correction does not belong here: it divides by 1 - decay^step":
            lambda a, p, s, d: _follow(a, p, s, d) / (1 - d**s),
        "the two weights must add up to 1": lambda a, p, s, d: (d * a + p).detach()})

# ------------------------------------------------------------------ spin_by_hand
def _game(real, generated, real_opp, gen_opp, beta, over=torch.mean, detach=True, last=softplus):
    if detach: real_opp, gen_opp = real_opp.detach(), gen_opp.detach()
    return over(last(-beta * ((real - real_opp) - (generated - gen_opp))))

def _rows(seed, n, beta, dtype=torch.float32):
    return *[draw(seed + k, n).to(dtype).requires_grad_() for k in range(4)], beta

spin_by_hand = Exercise(
    reference=_game,
    cases={"two pairs": _rows(0, 2, .5), "five pairs": _rows(4, 5, .1), "one pair": _rows(8, 1, 1.),
           "beta 2": _rows(12, 3, 2.), "player = opponent": (*[draw(17, 3), draw(18, 3)] * 2, 1.),
           "bf16": _rows(20, 3, .5, torch.bfloat16)},
    mistakes={
        "real and generated are swapped, or a minus is missing: it learns to sound like itself":
            lambda a, b, c, d, beta: _game(b, a, d, c, beta),
        "the opponent's log-probs are missing": lambda a, b, c, d, beta: _game(a, b, 0 * c, 0 * d, beta),
        "beta is missing": lambda a, b, c, d, beta: _game(a, b, c, d, 1.),
        "beta is for both ratios": lambda a, b, c, d, beta:
            softplus(b - d.detach() - beta * (a - c.detach())).mean(),
        "that is the sum: average over pairs": lambda *x: _game(*x, over=torch.sum),
        "that is one number per pair: average them": lambda *x: _game(*x, over=lambda y: y),
        "the ratio must be multiplied by beta":
            lambda a, b, c, d, beta: _game(a, b, c, d, 1 / beta),
        "gradient flows into the opponent: its numbers are data":
            lambda *x: _game(*x, detach=False),
        "no gradient reaches the player": lambda a, b, c, d, beta:
            _game(a.detach(), b.detach(), c, d, beta),
        "the sign: a loss is above 0": lambda *x: _game(*x, last=lambda t: -softplus(t)),
        "first the log of each pair, then the mean: not the other way round":
            lambda *x: _game(*x, last=lambda t: 1 + t.exp()).log(),
        "the opponent is subtracted from both": lambda a, b, c, d, beta: _game(a, b, -c, -d, beta),
        "the generated answer is missing": lambda a, b, c, d, beta: _game(a, 0 * b, c, 0 * d, beta)})

# ------------------------------------------------------------------ best_reply
def _reply(p, q, beta):
    weight = p * (q / p)**(1 / beta)
    return weight / weight.sum()

def _whole(x): return x / x.sum()

best_reply = Exercise(
    reference=_reply,
    cases={"three answers": (tensor([.2, .3, .5]), tensor([.6, .3, .1]), 2.),
           "beta 1": (tensor([.1, .2, .3, .4]), tensor([.4, .1, .3, .2]), 1.),
           "beta .5": (tensor([.5, .25, .25]), tensor([.3, .5, .2]), .5),
           "never generated by the writer": (tensor([.2, .7, .1]), tensor([.5, 0., .5]), 2.),
           "the opponent is the writer": (tensor([.25, .75]), tensor([.25, .75]), .3)},
    mistakes={
        "it does not sum to 1": lambda p, q, beta: p * (q / p)**(1 / beta),
        "the power is 1 / beta": lambda p, q, beta: _reply(p, q, 1 / beta),
        "there is no power: beta is missing": lambda p, q, beta: _reply(p, q, 1.),
        "turn the ratio over: real over opponent": lambda p, q, beta: _reply(p, p * p / q, beta),
        "the reply starts from the opponent: multiply by its probabilities":
            lambda p, q, beta: _whole((q / p)**(1 / beta)),
        "it starts from the opponent, not from the writer":
            lambda p, q, beta: _whole(q * (q / p)**(1 / beta)),
        "divide by the sum: a softmax exponentiates once more":
            lambda p, q, beta: (p * (q / p)**(1 / beta)).softmax(0),
        "the power is for the ratio alone": lambda p, q, beta: _whole((p * q / p)**(1 / beta)),
        "1 / beta is a power, not a factor": lambda p, q, beta: p * (q / p) / beta})
