"Exercises of the chapter on self-play."
import torch
from torch import tensor
from torch.nn.functional import softplus
from rlhf_nb.book.checks import Exercise
from rlhf_nb.exercises.dpo import draw
from rlhf_nb.spin import spin_loss as _spin_loss

# ------------------------------------------------------------------ spin_loss
def _game(real, generated, real_opp, gen_opp, beta=1., over=lambda y: y, detach=True, last=softplus):
    if detach: real_opp, gen_opp = real_opp.detach(), gen_opp.detach()
    return over(last(-beta * ((real - real_opp) - (generated - gen_opp))))

def _rows(seed, n, beta, dtype=torch.float32):
    return *[draw(seed + k, n).to(dtype).requires_grad_() for k in range(4)], beta

_far = [tensor(x) for x in ([-300., -20.], [-10., -300.], [-20., -20.], [-20., -20.])]
spin_loss = Exercise(
    reference=_spin_loss,
    cases={"the worked pairs": (tensor([2., -.4]), tensor([-1., .2]), tensor([0., 0.]), tensor([0., 0.]), .5),
           "two pairs": _rows(0, 2, .5), "five pairs": _rows(4, 5, .1), "one pair": _rows(8, 1, 1.),
           "beta 2": _rows(12, 3, 2.), "player = opponent": (*[draw(17, 3), draw(18, 3)] * 2, 1.),
           "log-probs of -300": (*_far, 1.), "no beta given": _rows(30, 3, 1.)[:4],
           "float64": _rows(24, 3, .5, torch.float64), "bf16": _rows(20, 3, .5, torch.bfloat16)},
    mistakes={
        "real and generated are swapped, or a minus is missing: it learns to write as it did":
            lambda a, b, c, d, beta=1.: _game(b, a, d, c, beta),
        "the opponent's log-probs are missing": lambda a, b, c, d, beta=1.: _game(a, b, 0 * c, 0 * d, beta),
        "beta is missing": lambda a, b, c, d, beta=1.: _game(a, b, c, d, 1.),
        "beta belongs inside the logarithm, it is no factor of the loss":
            lambda a, b, c, d, beta=1.: beta * _game(a, b, c, d, 1.),
        "beta is for both ratios": lambda a, b, c, d, beta=1.:
            softplus(b - d.detach() - beta * (a - c.detach())),
        "that is the mean: keep one number per pair": lambda *x: _game(*x, over=torch.mean),
        "that is the sum: keep one number per pair": lambda *x: _game(*x, over=torch.sum),
        "the ratio must be multiplied by beta":
            lambda a, b, c, d, beta=1.: _game(a, b, c, d, 1 / beta),
        "gradient flows into the opponent: its numbers are data":
            lambda *x: _game(*x, detach=False),
        "no gradient reaches the player": lambda a, b, c, d, beta=1.:
            _game(a.detach(), b.detach(), c, d, beta),
        "the sign: a loss is above 0": lambda *x: _game(*x, last=lambda t: -softplus(t)),
        "exp overflows where the gap is large, and sigmoid is 0 there: take softplus or logsigmoid":
            lambda *x: _game(*x, last=lambda t: (1 + t.exp()).log()),
        "the opponent is subtracted from both, each answer's own: it is not added, nor is the other's": lambda a, b, c, d, beta=1.: _game(a, b, -c, -d, beta),
        "no hinge: a pair that is told apart well still costs something, and ln 2 where the ratios are equal": lambda *x: _game(
            *x, last=lambda t: t.clamp(min=0)),
        "no hinge: log(1 + exp), and no margin of 1": lambda *x: _game(*x, last=lambda t: (1 + t).clamp(min=0)),
        "that is exp alone: log(1 + exp)": lambda *x: _game(*x, last=torch.exp),
        "that is 1 + exp: its log is wanted": lambda *x: _game(*x, last=lambda t: 1 + t.exp()),
        "that is a probability: its negative logarithm is wanted": lambda *x: _game(*x, last=torch.sigmoid),
        "that is a probability, of the pair in its right order: its negative logarithm is wanted": lambda *x: _game(*x, last=lambda t: (-t).sigmoid()),
        "that is minus a probability: minus its logarithm is wanted": lambda *x: _game(*x, last=lambda t: -(-t).sigmoid()),
        "that is the gap times -beta: the logistic loss of it is wanted": lambda *x: _game(*x, last=lambda t: t),
        "that is the gap times beta: the logistic loss of it is wanted": lambda *x: _game(*x, last=lambda t: -t),
        "the loss is not squared": lambda *x: _game(*x, last=lambda t: softplus(t)**2),
        "that is log2: the logarithm is the natural one": lambda *x: _game(*x, last=lambda t: softplus(t) / .6931472),
        "the generated answer is pushed down by a gradient, too: it is not detached": lambda a, b, *x: _game(a, b.detach(), *x),
        "the real answer is pushed up by a gradient: it is not detached": lambda a, b, *x: _game(a.detach(), b, *x),
        "the ratios are in logs: no exp of them": lambda a, b, c, d, beta=1.: softplus(-beta * ((a - c.detach()).exp() - (b - d.detach()).exp())),
        "log-probs are subtracted, not divided": lambda a, b, c, d, beta=1.: softplus(-beta * (a / c.detach() - b / d.detach())),
        "log-ratios are subtracted, not divided": lambda a, b, c, d, beta=1.: softplus(-beta * ((a - c.detach()) / (b - d.detach()))),
        "the log-ratios of both answers are subtracted, not added": lambda a, b, c, d, beta=1.: softplus(-beta * ((a - c.detach()) + (b - d.detach()))),
        "beta is for both ratios: the real one's is without": lambda a, b, c, d, beta=1.: softplus(beta * (b - d.detach()) - (a - c.detach())),
        "beta is for the opponent, too": lambda a, b, c, d, beta=1.: softplus(-(beta * (a - b) - (c - d).detach())),
        "the opponent's log-prob of the generated answer is missing": lambda a, b, c, d, beta=1.: _game(a, b, c, 0 * d, beta),
        "the opponent's log-prob of the real answer is missing": lambda a, b, c, d, beta=1.: _game(a, b, 0 * c, d, beta),
        "where no beta is given it is 1, not .1": lambda a, b, c, d, beta=.1: _game(a, b, c, d, beta),
        "where no beta is given it is 1, not .5": lambda a, b, c, d, beta=.5: _game(a, b, c, d, beta),
        "the gap is not cut off: at -300 the loss is 300, and it has a gradient": lambda *x: _game(*x, last=lambda t: softplus(t.clamp(-20, 20))),
        "the generated answer is missing": lambda a, b, c, d, beta=1.: _game(a, 0 * b, c, 0 * d, beta)})

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
        "turn the ratio over: real over opponent, to the power 1 / beta, not -1 / beta": lambda p, q, beta: _reply(p, p * p / q, beta),
        "the reply starts from the opponent: multiply by its probabilities":
            lambda p, q, beta: _whole((q / p)**(1 / beta)),
        "it starts from the opponent, not from the writer":
            lambda p, q, beta: _whole(q * (q / p)**(1 / beta)),
        "divide by the sum: a softmax exponentiates once more":
            lambda p, q, beta: (p * (q / p)**(1 / beta)).softmax(0),
        "the power is for the ratio alone": lambda p, q, beta: _whole((p * q / p)**(1 / beta)),
        "these are logs: probabilities are wanted": lambda *x: _reply(*x).log(),
        "1 / beta is a power, not a factor": lambda p, q, beta: p * (q / p) / beta,
        "the weights are mixed in logs, not the probabilities themselves: the ratio has the power 1 / beta": lambda p, q, beta:
            (1 - 1 / beta) * p + q / beta,
        "the weights are mixed in logs, not half of each": lambda p, q, beta: (p + q) / 2,
        "the weights are mixed in logs: beta is no share of the probabilities": lambda p, q, beta: _whole((1 - beta) * p + beta * q),
        "the power is 1 / beta, not 1 - beta": lambda p, q, beta: _reply(p, q, 1 / (1 - beta) if beta != 1 else float("inf")),
        "the power is 1 / beta, not 1 - 1 / beta, which exchanges opponent and writer": lambda p, q, beta: _whole(p * (q / p)**(1 - 1 / beta)),
        "the power is 1 / beta: // rounds it down": lambda p, q, beta: _whole(p * (q / p)**(1 // beta)),
        "the power is 1 / beta: that is a square root, whatever beta": lambda p, q, beta: _reply(p, q, 2.),
        "the power is a power, not an exponential of the ratio over beta": lambda p, q, beta: _whole(p * (q / p / beta).exp()),
        "the power is a power, not an exponential of the writer's probability over beta": lambda p, q, beta: _whole(p * (q / beta).exp()),
        "the weights are divided by their sum, not by the largest": lambda p, q, beta: (lambda w: w / w.max())(p * (q / p)**(1 / beta)),
        "the weights are divided by their sum, not by their norm": lambda p, q, beta: (lambda w: w / w.norm())(p * (q / p)**(1 / beta)),
        "the weights are divided by their sum, not by their mean": lambda p, q, beta: (lambda w: w / w.mean())(p * (q / p)**(1 / beta)),
        "the weights are divided by their sum, not less what is too much": lambda p, q, beta: (
            lambda w: w - (w.sum() - 1) / len(w))(p * (q / p)**(1 / beta)),
        "the real answers' probabilities are divided by the opponent's: that is their difference": lambda p, q, beta: _whole(
            p * (q - p).exp()**(1 / beta)),
        "the ratio alone has the power, and it is normalised before nothing: that normalises the ratio's power": lambda p, q, beta:
            p * _whole((q / p)**(1 / beta)),
        "an answer that the writer never gives has probability 0: nothing is added to the probabilities": lambda p, q, beta: _reply(p, q + 1e-2, beta),
        "the most probable one is not taken alone": lambda p, q, beta: (lambda w: (w == w.max()).to(w) / (w == w.max()).sum())(p * (q / p)**(1 / beta))})

# ------------------------------------------------------------------- spin_game
def _players(p, q, beta, n, reply=_reply, opponent=lambda players: players[-1]):
    players = [p]
    for _ in range(n): players.append(reply(opponent(players), q, beta))
    return players
def _from_first(p, q, beta, n):
    return _players(p, q, beta, n, lambda x, q, beta: _whole(x * (q / p)**(1 / beta)))

def _until_still(p, q, beta, n):
    players = [p]
    for _ in range(n):
        new = _reply(players[-1], q, beta)
        if torch.allclose(new, players[-1]): break
        players.append(new)
    return players
def _chase(p, q, beta, n): # the writer is replaced by each player
    for _ in range(n):
        p, q = _reply(p, q, beta), p
        yield p
def _growing(p, q, beta, n, f):
    players = [p]
    for k in range(n): players.append(_reply(players[-1], q, f(beta, k)))
    return players

spin_game = Exercise(
    reference=_players,
    cases={"three iterations, beta 2": (tensor([.2, .3, .5]), tensor([.6, .3, .1]), 2., 3),
           "beta 1": (tensor([.1, .2, .3, .4]), tensor([.4, .1, .3, .2]), 1., 2),
           "a cycle": (tensor([.5, .3, .2]), tensor([.25, .5, .25]), .5, 4),
           "one iteration": (tensor([.2, .8]), tensor([.8, .2]), 2., 1),
           "none": (tensor([.2, .8]), tensor([.8, .2]), 2., 0),
           "it starts at the truth": (tensor([.25, .75]), tensor([.25, .75]), .3, 2)},
    mistakes={
        "the player must become the next opponent: this one never changes":
            lambda *x: _players(*x, opponent=lambda players: players[0]),
        "the list begins with the first player": lambda *x: _players(*x)[1:],
        "n iterations give n + 1 players: one is missing": lambda *x: _players(*x)[:-1] or [x[0]],
        "one iteration too many": lambda p, q, beta, n: _players(p, q, beta, n + 1),
        "that is the last player alone": lambda *x: _players(*x)[-1],
        "a list of tensors is asked for, not one tensor": lambda *x: torch.stack(_players(*x)),
        "the ratio is to the last opponent, not to the first": _from_first,
        "opponent and writer are exchanged":
            lambda p, q, beta, n: _players(p, q, beta, n, lambda x, q, beta: _reply(q, x, beta)),
        "beta is missing": lambda p, q, beta, n: _players(p, q, 1., n),
        "it goes on for n iterations, also where the player moves no longer: the list is too short": lambda p, q, beta, n: _until_still(p, q, beta, n),
        "the reply is to the last player, not to the mean of all so far": lambda *x: _players(*x, opponent=lambda players: torch.stack(players).mean(0)),
        "the reply is to the last player, not to the one before it": lambda *x: _players(
            *x, opponent=lambda players: players[max(len(players) - 2, 0)]),
        "the order of the list is reversed: it begins with the first player, and new ones are appended": lambda *x: _players(*x)[::-1],
        "new players are appended, not put in front: each is the reply to the last one, not to the first again": lambda p, q, beta, n: [
            *[_reply(p, q, beta)] * n, p],
        "the list begins with the first player, not with the writer": lambda p, q, beta, n: [q, *_players(p, q, beta, n)[1:]],
        "the writer is no player: the list does not hold it": lambda p, q, beta, n: [*_players(p, q, beta, n), q],
        "the same tensor stands n + 1 times: make a new one for each player": lambda *x: [_players(*x)[-1]] * len(_players(*x)),
        "a list is asked for, not a tuple": lambda *x: tuple(_players(*x)),
        "the writer stays the same: each player takes its place": lambda p, q, beta, n: [p, *_chase(p, q, beta, n)],
        "the best reply is one to a player: that multiplies by the writer's ratio without dividing by the sum": lambda p, q, beta, n: _players(
            p, q, beta, n, lambda x, q, beta: x * (q / x)**(1 / beta)),
        "the power is 1 / beta": lambda p, q, beta, n: _players(p, q, 1 / beta, n),
        "the ratio is the writer's over the player's: it is turned over": lambda p, q, beta, n: _players(
            p, q, beta, n, lambda x, q, beta: _reply(x, x * x / q.clamp(min=1e-12), beta)),
        "beta stays as it is through all iterations: it does not grow": lambda p, q, beta, n: _growing(p, q, beta, n, lambda b, k: b * (k + 1)),
        "beta stays as it is through all iterations: it is not doubled": lambda p, q, beta, n: _growing(p, q, beta, n, lambda b, k: b * 2**k),
        "beta stays as it is through all iterations: nothing is added": lambda p, q, beta, n: _growing(p, q, beta, n, lambda b, k: b + k),
        "beta stays as it is through all iterations: it is not divided": lambda p, q, beta, n: _growing(p, q, beta, n, lambda b, k: b / (k + 1)),
        "beta stays as it is through all iterations": lambda p, q, beta, n:
            [_players(p, q, beta, 0)[0]] + [_reply(_players(p, q, beta, k)[-1], q, beta / (k + 1)) for k in range(n)]})

ASKED = {
    "spin_loss": {
        "where no beta is given it is 1": "no beta given",
        "the loss stays finite at a gap of -300: exp overflows there, and the logarithm of a sigmoid of 0 is infinite": "log-probs of -300"},
    "best_reply": {
        "an answer that the writer never gives has probability 0 in the reply: 0 to a power is 0, and log 0 is -inf": "never generated by the writer"},
    "spin_game": {
        "n of 0 gives the first player alone, in a list": "none",
        "n iterations give n + 1 players, also where nothing moves any more": "it starts at the truth | beta 1"}}
