"Exercises of the chapter on faults of Q-learning."
import torch
from torch import Generator, tensor
from rlhf_nb.checks import Exercise
from rlhf_nb.tokens import before

def _draw(seed, *size, least=-8): # quarters: sums are exact in any order
    return torch.randint(least, 9, size, generator=Generator().manual_seed(seed)) / 4

# ------------------------------------------------------------------ mended_said
def _said(logits, ids, shift=1, of=None, first=0., detach=False):
    q = (of or (lambda q: q))(logits.detach() if detach else logits).roll(shift, 1)
    said = q.gather(-1, ids[..., None])[..., 0]
    if not shift: return said
    edge = torch.arange(ids.shape[1]) == (0 if shift > 0 else ids.shape[1] - 1)
    return said.masked_fill(edge, 0.) if first == 0. else said

def _q_case(seed, b, t, v=4, dtype=torch.float32):
    ids = torch.randint(v, (b, t), generator=Generator().manual_seed(seed + 1))
    return _draw(seed, b, t, v).to(dtype).requires_grad_(), ids

mended_said = Exercise(
    reference=_said,
    cases={"two rows": _q_case(0, 2, 4), "one row": _q_case(2, 1, 3), "one token": _q_case(4, 3, 1),
           "five rows, seven words": _q_case(6, 5, 3, 7), "bf16": _q_case(8, 2, 3, 5, torch.bfloat16)},
    mistakes={
        "shifted by one: what is read after a token says nothing about that token":
            lambda q, ids: _said(q, ids, 0),
        "shifted the wrong way: the states come before the tokens": lambda q, ids: _said(q, ids, -1),
        "the first token has no state before it, not the last one of the row: 0":
            lambda q, ids: _said(q, ids, first=None),
        "that is the best Q: take the one of the token that was said": lambda q, ids: _said(
            q, q.argmax(-1).roll(1, 1)),
        "these are log-probs: Q-values are taken as they are":
            lambda q, ids: _said(q, ids, of=lambda q: q.log_softmax(-1)),
        "these are chances: Q-values are taken as they are":
            lambda q, ids: _said(q, ids, of=lambda q: q.softmax(-1)),
        "no gradient reaches the network": lambda q, ids: _said(q, ids, detach=True),
        "one column is missing: the first one is 0": lambda q, ids: _said(q, ids)[:, 1:],
        "that is a sum per row: keep one number per token": lambda q, ids: _said(q, ids).sum(1),
        "those are the Q-values of all tokens: take the one that was said": lambda q, ids: before(q)})

# ------------------------------------------------------------------ mended_target
def _target(reward, value, last, gamma, gate=None, over=True, own=1., detach=True, shift=0, power=False):
    if detach: value = value.detach()
    value = value.roll(shift, 1) if shift else value
    value = value.masked_fill(last, 0.) if over else value
    ahead = gamma**torch.arange(1, reward.shape[1] + 1) if power else gamma
    both = own * reward + ahead * value
    return both if gate is None else gate(reward, value, both)

def _t_case(seed, *rows, gamma=.5, dtype=torch.float32): # l: last, r: before it, .: not of the response
    last = tensor([[c == "l" for c in row] for row in rows])
    inside = tensor([[c in "rl" for c in row] for row in rows])
    reward = (_draw(seed, *last.shape) * inside).to(dtype)
    return reward, (_draw(seed + 1, *last.shape, least=1) * inside).to(dtype).requires_grad_(), last, gamma

_end = (tensor([[0., 0., 0., -1.], [0., 0., 1.5, 0.]]), tensor([[0., .5, .75, 9.], [0., .25, 7., 0.]]),
        tensor([[False, False, False, True], [False, False, True, False]]))
mended_target = Exercise(
    reference=_target,
    cases={"paid at the end": (*_end, .5), "paid at every token": _t_case(0, ".rrl", ".rl."),
           "gamma 1": (*_end, 1.), "gamma 0": _t_case(4, ".rrrl", gamma=0.),
           "one token": _t_case(6, ".l"), "a row that goes on": _t_case(8, ".rrr", ".rrl", gamma=.75),
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
        "nothing follows the last token": lambda *x: _target(*x, over=False),
        "gamma is missing": lambda r, v, last, gamma: _target(r, v, last, 1.),
        "the reward of this token is not discounted": lambda r, v, last, gamma: _target(
            r, v, last, gamma, own=gamma),
        "gamma once per step: its power does not grow along the row": lambda *x: _target(*x, power=True),
        "value[i] is what stands after token i already": lambda *x: _target(*x, shift=-1),
        "value[i - 1] is what stood before token i": lambda *x: _target(*x, shift=1),
        "gradient flows into the target: it is data": lambda *x: _target(*x, detach=False),
        "the reward is missing": lambda *x: _target(*x, own=0.)})

# ------------------------------------------------------------------ mended_counts
def _counts(real, n_prompt, less=0, cut=0, pads=False, rows=None):
    place = torch.arange(real.shape[1])
    if rows == "first": n_prompt = n_prompt[:1].expand_as(n_prompt)
    mask = place >= n_prompt[:, None] - less
    mask = mask if pads else mask & real
    return mask & (place < real.sum(1)[:, None] - cut) if cut else mask

def _rows(*rows): # p: prompt, r: response, .: pad
    real = tensor([[c != "." for c in row] for row in rows])
    return real, tensor([row.count("p") for row in rows])

mended_counts = Exercise(
    reference=_counts,
    cases={"two rows": _rows("pprrr.", "prrrrr"), "one row": _rows("prr"),
           "as many rows as tokens": _rows("prr.", "pprr", "ppr.", "prrr"),
           "an empty response": _rows("pp...", "prrrr"), "one token each": _rows("pr", "pr"),
           "five rows": _rows("prr.", "pprr", "ppr.", "prrr", "pr..")},
    mistakes={
        "the first token is left out: the last prompt token is a state in which one chooses":
            lambda real, n: _counts(real, n, less=-1),
        "the last prompt token counts as an action": lambda real, n: _counts(real, n, less=1),
        "the whole prompt counts": lambda real, n: _counts(real, 0 * n),
        "pads count": lambda real, n: _counts(real, n, pads=True),
        "the last token, eos, is left out": lambda real, n: _counts(real, n, cut=1),
        "that is the prompt: turn it round": lambda real, n: real & ~_counts(real, n),
        "each row has a prompt length of its own": lambda real, n: _counts(real, n, rows="first"),
        "(b 1 1) beside (b t) is (b b t): each row meets every prompt length":
            lambda real, n: real & (torch.arange(real.shape[1]) >= n[:, None, None]),
        "(b b t), and the first token of a response is missing as well": lambda real, n: real & (torch.arange(real.shape[1]) - 1
            > n[:, None, None] - 1),
        "those are numbers: a mask is True or False": lambda real, n: _counts(real, n).sum(1)})

# ------------------------------------------------------------------ mended_pull
def _pull(q, ids, mask, lowest, who="others", over="mean", by=None, square=True, detach=False, inner=False):
    q = q.detach() if detach else q
    taken = torch.nn.functional.one_hot(ids, q.shape[-1]).bool()
    pulled = taken if who == "taken" else ~taken if who == "others" else taken | True
    gap = q - lowest
    n = q.shape[-1] - 1 if who == "others" else 1 if who == "taken" else q.shape[-1]
    if inner: each = ((gap * pulled).sum(-1) / n)**2
    else: each = ((gap**2 if square else gap.abs()) * pulled).sum(-1) / (n if by is None else by(q.shape[-1]))
    total = (each * mask).sum()
    return each.mean() if over == "all" else total if over == "sum" else total / mask.sum()

def _p_case(seed, lowest, *rows, v=4, dtype=torch.float32):
    mask, gen = tensor([[c == "r" for c in row] for row in rows]), Generator().manual_seed(seed + 1)
    return (_draw(seed, *mask.shape, v).to(dtype).requires_grad_(),
            torch.randint(v, mask.shape, generator=gen), mask, lowest)

mended_pull = Exercise(
    reference=_pull,
    cases={"two rows": _p_case(0, 0., ".rrr", ".rr."), "minimum -1.5": _p_case(2, -1.5, "..rr", ".rrr"),
           "one row": _p_case(4, .5, ".rr", v=7), "two actions": _p_case(6, 0., ".rr.", ".r..", v=2),
           "one token": _p_case(8, -1., ".r"), "an empty response": _p_case(10, 0., "....", ".rrr"),
           "bf16": _p_case(12, -.5, ".rr", dtype=torch.bfloat16)},
    mistakes={
        "what was taken is pulled: it must be everything but that":
            lambda *x: _pull(*x, who="taken"),
        "the taken action is among them": lambda *x: _pull(*x, who="all"),
        "the mean is over the others, one fewer than there are actions":
            lambda *x: _pull(*x, by=lambda v: v),
        "that is the sum over the others: take their mean": lambda *x: _pull(*x, by=lambda v: 1),
        "the pull is towards the minimum return, not 0": lambda q, ids, m, low: _pull(q, ids, m, 0.),
        "the minimum return has the wrong sign": lambda q, ids, m, low: _pull(q, ids, m, -low),
        "prompt and pads count": lambda *x: _pull(*x, over="all"),
        "that is the sum over tokens: take the mean": lambda *x: _pull(*x, over="sum"),
        "that is the distance: square it": lambda *x: _pull(*x, square=False),
        "square each before the mean, not after": lambda *x: _pull(*x, inner=True),
        "half of it: the 1/2 stands elsewhere": lambda *x: _pull(*x) / 2,
        "no gradient reaches the network": lambda *x: _pull(*x, detach=True)})
