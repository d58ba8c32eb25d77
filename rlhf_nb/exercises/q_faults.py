"Exercises of the chapter on faults of Q-learning."
import torch
from torch import Generator, tensor
from rlhf_nb.book.checks import Exercise

def _draw(seed, *size, least=-8): # quarters: sums are exact in any order
    return torch.randint(least, 9, size, generator=Generator().manual_seed(seed)) / 4

# ------------------------------------------------------------------ fixed_target
def _target(reward, value, last, gamma, gate=lambda reward, value, both: both, detach=True, end=lambda v, last: v.masked_fill(last, 0.)):
    value = end(value.detach() if detach else value, last)
    return gate(reward, value, reward + gamma * value)

def _t_case(seed, *rows, gamma=.5, dtype=torch.float32): # l: last, r: before it, .: not of the response
    last = tensor([[c == "l" for c in row] for row in rows])
    inside = tensor([[c in "rl" for c in row] for row in rows])
    reward = (_draw(seed, *last.shape) * inside).to(dtype)
    return reward, (_draw(seed + 1, *last.shape, least=1) * inside).to(dtype).requires_grad_(), last, gamma

_end = (tensor([[0., 0., 0., -1.], [0., 0., 1.5, 0.]]), tensor([[0., .5, .75, 9.], [0., .25, 7., 0.]]),
        tensor([[False, False, False, True], [False, False, True, False]]))
fixed_target = Exercise(
    reference=_target,
    cases={"paid at the end": (*_end, .5), "paid at every token": _t_case(0, ".rrl", ".rl."),
           "nan behind the last token": (_end[0], _end[1].masked_fill(_end[2], torch.nan), _end[2], .5),
           "gamma 1": (*_end, 1.), "gamma 0": _t_case(4, ".rrrl", gamma=0.),
           "one token": _t_case(6, ".l"), "an empty response": _t_case(12, "...", ".rl"),
           "a reward below 0 in a row": (-_end[0].abs(), *_end[1:], .5), "the last token in the first column": _t_case(14, "l..", "rrl"),
           "values below 0": (lambda r, v, *x: (r, (-v).detach().requires_grad_(), *x))(*_t_case(16, ".rrl", ".rl.")), "a row that goes on": _t_case(8, ".rrr", ".rrl", gamma=.75),
           "bf16": _t_case(10, ".rrl", ".l..", dtype=torch.bfloat16)},
    mistakes={
        "gamma stands only where something is paid: it belongs before every value":
            lambda *x: _target(*x, gate=lambda r, v, y: torch.where(r != 0, y, v)),
        "a cost is dropped: rewards of either sign are added":
            lambda *x: _target(*x, gate=lambda r, v, y: torch.where(r < 0, y - r, y)),
        "where something is paid the value still counts, unless it is the last token":
            lambda *x: _target(*x, gate=lambda r, v, y: torch.where(r != 0, r, y)),
        "a cost is dropped, and beside a gain the value: the reward plus the value, both added everywhere, not the larger of them":
            lambda *x: _target(*x, gate=lambda r, v, y: torch.where(r > 0, r, y - r)),
        "nothing follows the last token": lambda r, v, last, gamma: _target(r, v, last & False, gamma),
        "0 times nan is nan: write 0 at the last token, do not multiply": lambda *x: _target(*x, end=lambda v, last: v * ~last),
        "gamma is missing": lambda r, v, last, gamma: _target(r, v, last, 1.),
        "the reward of this token is not discounted": lambda r, v, last, gamma: _target(
            gamma * r, v, last, gamma),
        "gamma once per step: its power does not grow along the row": lambda r, v, last, gamma:
            _target(r, v, last, gamma**torch.arange(1, r.shape[1] + 1)),
        "value[i] is what stands after token i already": lambda r, v, *x: _target(r, v.roll(-1, 1), *x),
        "value[i - 1] is what stood before token i": lambda r, v, *x: _target(r, v.roll(1, 1), *x),
        "gradient flows into the target: it is data": lambda *x: _target(*x, detach=False),
        "the reward is missing": lambda r, *x: _target(0 * r, *x),
        "value[i] is the best Q after token i already: it is shifted, the next column's stands there, and 0 in the last":
            lambda r, v, *x: _target(r, torch.nn.functional.pad(v[:, 1:], (0, 1)), *x),
        "value[i] is the best Q after token i already: shifted by one place, that of the next column stands there, and 0 in the last column": lambda r, v, last, gamma:
            _target(r, torch.nn.functional.pad(v.masked_fill(last, 0.)[:, 1:], (0, 1)), last & False, gamma),
        "value[i] is the best Q after token i: it is shifted by one place, that of the column before stands there":
            lambda r, v, *x: _target(r, torch.nn.functional.pad(v[:, :-1], (1, 0)), *x),
        "the last token of a row is where `last` is True, not the last column: shorter rows end before it":
            lambda r, v, last, gamma: _target(r, v, torch.arange(last.shape[1]).eq(last.shape[1] - 1).expand_as(last), gamma),
        "the last token is where `last` is True of each row, not its last column: nothing else is cut out":
            lambda r, v, last, gamma: _target(r, v, last | torch.arange(last.shape[1]).eq(last.shape[1] - 1), gamma),
        "one reward and one value: that is the return, the sum of all later rewards, which reads no value":
            lambda r, v, last, gamma: _returns(r, gamma),
        "the reward plus gamma times the value: a sum, not the larger of both (max)": lambda *x: _target(*x, gate=lambda r, v, y: torch.maximum(r, y - r)),
        "the reward plus gamma times the value, both added: that is the larger of them, and at the last token the reward": lambda r, v, last, gamma:
            torch.maximum(r, gamma * v.detach().masked_fill(last, -torch.inf)),
        "a value below 0 counts as any other: nothing is cut off": lambda r, v, *x: _target(r, v.detach().relu(), *x),
        "the reward plus gamma times the value: a sum, not a product": lambda *x: _target(*x, gate=lambda r, v, y: r * (y - r)),
        "the reward plus gamma times the value: where something is paid the value is missing, and elsewhere gamma": lambda *x: _target(*x, gate=lambda r, v, y: torch.where(r != 0, r, v)),
        "value[i] belongs to token i: not the largest of its row, which is another place's": lambda r, v, last, gamma: r + gamma * v.detach().masked_fill(last, 0.).amax(1, keepdim=True),
        "0 follows the last token, not gamma": lambda r, v, last, gamma: r + v.detach().masked_fill(last, gamma),
        "the reward of every token is added, not only that of the last": lambda r, v, last, gamma: _target(r.where(last, 0.), v, last, gamma),
        "the reward of every token is added, that of the last too": lambda r, v, last, gamma: _target(r.masked_fill(last, 0.), v, last, gamma),
        "the reward itself, not (1 - gamma) times it": lambda r, v, last, gamma: _target((1 - gamma) * r, v, last, gamma),
        "gamma multiplies the value, not the reward": lambda r, v, last, gamma: _target(gamma * r, v, last, 1.),
        "the target alone: nothing is subtracted, that is the TD error": lambda r, v, last, gamma: _target(r, v, last, gamma) - v.detach(),
        "gamma is no power of the place: each step has it once": lambda r, v, last, gamma:
            _target(r, v, last, gamma**torch.arange(r.shape[1])),
        "the last token is where `last` is True, which is upside down: nothing else is the end": lambda r, v, last, gamma: _target(r, v, ~last, gamma)})

def _returns(reward, gamma, last=None): # all later rewards
    out, after = torch.zeros_like(reward), torch.zeros_like(reward[:, 0])
    for t in reversed(range(reward.shape[1])):
        out[:, t] = after = reward[:, t] + gamma * (after if last is None else after.masked_fill(last[:, t], 0.))
    return out

# ------------------------------------------------------------------ fixed_pull
def _pull(q, ids, mask, lowest, who=lambda taken: ~taken, size=torch.square, then=lambda mean: mean):
    pulled = who(torch.nn.functional.one_hot(ids, q.shape[-1]).bool())
    each = then((size(q - lowest) * pulled).sum(-1) / pulled.sum(-1))
    return (each * mask).sum() / mask.sum()

def _p_case(seed, lowest, *rows, v=4, dtype=torch.float32):
    mask, generator = tensor([[c == "r" for c in row] for row in rows]), Generator().manual_seed(seed + 1)
    return (_draw(seed, *mask.shape, v).to(dtype).requires_grad_(),
            torch.randint(v, mask.shape, generator=generator), mask, lowest)

fixed_pull = Exercise(
    reference=_pull,
    cases={"two rows": _p_case(0, 0., ".rrr", ".rr."), "minimum -1.5": _p_case(2, -1.5, "..rr", ".rrr"),
           "one row": _p_case(4, .5, ".rr", v=7), "two actions": _p_case(6, 0., ".rr.", ".r..", v=2),
           "one token": _p_case(8, -1., ".r"), "an empty response": _p_case(10, 0., "....", ".rrr"),
           "bf16": _p_case(12, -.5, ".rr", dtype=torch.bfloat16)},
    mistakes={
        "what was taken is pulled: it must be everything but that":
            lambda *x: _pull(*x, who=lambda taken: taken),
        "the taken action is among them": lambda *x: _pull(*x, who=lambda taken: taken | True),
        "the mean is over the others, one fewer than there are actions":
            lambda q, *x: _pull(q, *x) * (1 - 1 / q.shape[-1]),
        "that is the sum over the others: take their mean": lambda q, *x:
            _pull(q, *x) * (q.shape[-1] - 1),
        "the pull is towards the minimum return, not 0": lambda q, ids, m, low: _pull(q, ids, m, 0.),
        "the minimum return has the wrong sign": lambda q, ids, m, low: _pull(q, ids, m, -low),
        "prompt and pads count": lambda q, ids, m, low: _pull(q, ids, m | True, low),
        "that is the sum over tokens: take the mean": lambda q, ids, m, low: _pull(q, ids, m, low) * m.sum(),
        "that is the distance: square it": lambda *x: _pull(*x, size=torch.abs),
        "square each before the mean, not after":
            lambda *x: _pull(*x, size=lambda gap: gap, then=torch.square),
        "half of it: the 1/2 stands elsewhere": lambda *x: _pull(*x) / 2,
        "no gradient reaches the network": lambda q, *x: _pull(q.detach(), *x),
        "what was taken is left out of the mean, not set to 0: (0 - lowest)**2 still counts, divided by one fewer": lambda q, ids, m, low: (
            _others(q, ids, m, low, 0.) / (q.shape[-1] - 1)),
        "what was taken is left out of the mean, not set to 0: (0 - lowest)**2 still counts": lambda q, ids, m, low: _others(q, ids, m, low, 0.) / q.shape[-1],
        "over all tokens at once, each the same: that is the mean of each row's mean, where tokens of short rows weigh more":
            lambda q, ids, m, low: _by_rows(q, ids, m, low, lambda x: x.mean()),
        "over all tokens at once: that is the mean of each row's mean, over the rows that have a token":
            lambda q, ids, m, low: _by_rows(q, ids, m, low, lambda x: x[m.any(1)].mean()),
        "what was taken is in ids, not the action of the highest q (argmax)": lambda q, ids, m, low: _pull(q, q.argmax(-1), m, low),
        "the mean over all the other actions, not the largest of them (max)": lambda q, ids, m, low: _best_other(q, ids, m, low),
        "the mean over all the other actions, not the largest square of them (max)": lambda q, ids, m, low: _best_other((q - low)**2, ids, m, 0., lambda x: x),
        "divide by the number of tokens where `mask` is True, not of all places, prompt and padding": lambda q, ids, m, low: _pull(q, ids, m, low) * m.sum() / m.numel(),
        "divide by the number of tokens where `mask` is True, not of rows": lambda q, ids, m, low: _pull(q, ids, m, low) * m.sum() / len(m),
        "towards the lowest return: that is the conservative term of CQL, logsumexp less the q that was taken": lambda q, ids, m, low: (
            (q.logsumexp(-1) - q.gather(-1, ids[..., None])[..., 0]) * m).sum() / m.sum(),
        "the pull is towards `lowest`, not the lowest q that the network says": lambda q, ids, m, low: _pull(q, ids, m, q.min()),
        "(q - lowest)**2 is not q**2 - lowest**2: subtract first, then square": lambda q, ids, m, low: _pull(q, ids, m, low, size=lambda gap: (gap + low)**2 - low**2),
        "subtract what was taken from the sum over all actions, not from their mean; then divide by the others": lambda q, ids, m, low: (
            (((q - low)**2).mean(-1) - ((q - low)**2).gather(-1, ids[..., None])[..., 0]) * m).sum() / m.sum(),
        "the sum over the others less nothing: what was taken counts in the sum, which is divided by one fewer": lambda q, ids, m, low:
            _pull(q, ids, m, low, who=lambda taken: taken | True) * q.shape[-1] / (q.shape[-1] - 1),
        "every other action counts the same: not weighed by its softmax": lambda q, ids, m, low: (
            ((q - low)**2 * q.softmax(-1)).scatter(-1, ids[..., None], 0.).sum(-1) * m).sum() / m.sum(),
        "all actions but the one that was taken, averaged: not the largest alone": lambda q, ids, m, low: (((q.amax(-1) - low)**2) * m).sum() / m.sum(),
        "the mean over actions and over tokens: that is the sum over all of them": lambda q, ids, m, low: _pull(q, ids, m, low) * (q.shape[-1] - 1) * m.sum(),
        "the mean over actions: that is their sum, and it is divided by all places, prompt and padding too": lambda q, ids, m, low:
            _pull(q, ids, m, low) * (q.shape[-1] - 1) * m.sum() / m.numel(),
        "only what lies above the minimum would be pulled: the square counts on both sides": lambda *x: _pull(*x, size=lambda gap: gap.relu()**2)})

def _others(q, ids, mask, lowest, fill): # the sum over all actions, the taken one's Q being `fill`; mean over tokens
    q = q.scatter(-1, ids[..., None], fill)
    return (((q - lowest)**2).sum(-1) * mask).sum() / mask.sum()

def _by_rows(q, ids, mask, lowest, joined):
    one = torch.stack([_pull(q[i:i + 1], ids[i:i + 1], mask[i:i + 1], lowest) if mask[i].any() else 0. * q.sum() for i in range(len(q))])
    return joined(one)

def _best_other(q, ids, mask, lowest, size=torch.square):
    best = size(q.scatter(-1, ids[..., None], -torch.inf).amax(-1) - lowest)
    return (best.masked_fill(~mask, 0.)).sum() / mask.sum()

ASKED = {
    "fixed_target": {
        "at the last token value may hold anything, even nan, and 0 times nan is nan: 0 has to be written there, no factor": "nan behind the last token",
        "a reward below 0 counts as any other: a cost is subtracted, its sign is kept": "a reward below 0 in a row",
        "only where `last` is True nothing follows: a row may end before the last column, or go on without a last token":
            "the last token in the first column | a row that goes on | an empty response"},
    "fixed_pull": {
        "a row without a response token has no mean: it counts for nothing, and 0/0 is nan": "an empty response",
        "the pull is towards `lowest`, which may be below or above 0": "minimum -1.5 | one row | one token | bf16"}}
