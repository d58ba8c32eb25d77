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
           "a row that goes on": _t_case(8, ".rrr", ".rrl", gamma=.75),
           "bf16": _t_case(10, ".rrl", ".l..", dtype=torch.bfloat16)},
    mistakes={
        "gamma stands only where something is paid: it belongs before every value":
            lambda *x: _target(*x, gate=lambda r, v, y: torch.where(r != 0, y, v)),
        "a cost is dropped: rewards of either sign are added":
            lambda *x: _target(*x, gate=lambda r, v, y: torch.where(r < 0, y - r, y)),
        "where something is paid the value still counts, unless it is the last token":
            lambda *x: _target(*x, gate=lambda r, v, y: torch.where(r != 0, r, y)),
        "a cost is dropped, and beside a gain the value: add both, everywhere":
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
        "the reward is missing": lambda r, *x: _target(0 * r, *x)})

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
        "no gradient reaches the network": lambda q, *x: _pull(q.detach(), *x)})
