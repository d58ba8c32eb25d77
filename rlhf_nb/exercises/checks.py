"Exercises of the chapter on checks."
import torch
from torch import tensor
from rlhf_nb.checks import Exercise

def _flat(value): return value[:, 0] if value.ndim == 2 and value.shape[1] == 1 else value

def _dropping_all(value, returns): # squeeze() leaves one state without its axis
    if value.squeeze().shape != returns.shape: raise ValueError("shapes")
    return ((value.squeeze() - returns)**2).mean()

def _value_loss(value, returns, over=torch.mean, power=2):
    if _flat(value).shape != returns.shape: raise ValueError("shapes")
    return over((_flat(value) - returns).abs()**power)

_v, _r = tensor([.5, -1., 2.]), tensor([1., 3., -2.])

fixed_value_loss = Exercise(
    reference=_value_loss,
    cases={"from a linear layer, (3 1)": (_v[:, None].clone().requires_grad_(), _r),
           "flat, (3)": (_v.clone().requires_grad_(), _r),
           "bf16, (3 1)": (_v[:, None].bfloat16().requires_grad_(), _r),
           "one state, (1 1)": (tensor([[4.]]), tensor([1.])),
           "two values for each of three states": (torch.ones(3, 2), _r),
           "three values for two returns": (_v, _r[:2])},
    mistakes={
        "(b 1) minus (b) is (b b): each value meets every return":
            lambda v, r: ((v - r)**2).mean(),
        "right numbers, but a wrong shape is PyTorch's error: ask first, raise ValueError":
            lambda v, r: ((_flat(v) - r)**2).mean(),
        "right numbers, but a wrong shape is let through":
            lambda v, r: ((v.reshape(-1)[:len(r)] - r[:v.numel()])**2).mean(),
        "one state loses its own axis: drop the last one only": _dropping_all,
        "that is the sum over states: take the mean":
            lambda v, r: _value_loss(v, r, over=torch.sum),
        "that is the absolute error: square it": lambda v, r: _value_loss(v, r, power=1),
        "nothing flows back into the critic: do not detach":
            lambda v, r: _value_loss(v.detach(), r),
        "square each gap before you take the mean, not after":
            lambda v, r: (_value_loss(v, r) * 0 + (_flat(v) - r).mean()**2),
        "half of it: the 1/2 is not in the formula here":
            lambda v, r: _value_loss(v, r) / 2})

def _tries(rows, after="skip", only_solved=True, start=0): # after: rows of what is solved
    tries, solved = {}, {}
    for row in rows:
        name = row["exercise"]
        if name in solved and after == "break": break
        if name in solved and after == "skip": continue
        tries[name] = tries.get(name, start) + 1
        if row["verdict"] == "right": solved[name] = tries[name]
    return solved if only_solved else tries

def _rows(text): return [dict(exercise=e, verdict="right" if s == "r" else "not done yet" if s == "n"
                              else "turn the sign") for e, s in text.split()]

_journals = {
    "two exercises, mixed": (_rows("an bn aw ar bw br bw ar aw ar"),),
    "one never solved": (_rows("aw aw br cn"),), "right at once": (_rows("ar ar ar"),),
    "one is tried on, another solved later": (_rows("ar aw bw br"),), "no tries": ([],)}
tries_needed = Exercise(
    reference=_tries, cases=_journals,
    mistakes={
        "tries after the first right one are counted": lambda rows: _tries(rows, "count"),
        "an exercise that was never solved has no place here":
            lambda rows: _tries(rows, only_solved=False),
        "the right try counts too": lambda rows: _tries(rows, start=-1),
        "that counts all tries of solved exercises: stop at the first right one":
            lambda rows: {k: n for k, n in _tries(rows, "count", only_solved=False).items()
                          if k in _tries(rows)},
        "a row that is passed over ends nothing: go on with the next": lambda rows: _tries(rows, "break"),
        "that is how often it was right": lambda rows: {
            k: sum(r["exercise"] == k and r["verdict"] == "right" for r in rows) for k in _tries(rows)},
        "tries of other exercises are counted": lambda rows: {
            k: 1 + next(i for i, r in enumerate(rows) if r == dict(exercise=k, verdict="right"))
            for k in _tries(rows)}})
