"Where nothing explains a difference: the places that it keeps to, as a learner can see them."
import torch
from torch import Tensor, inf

def _ahead(m): return m.flip(-1).cumsum(-1).flip(-1)

def _of_tensor(x, text): # words -> truth values of the same shape
    if x.dtype == torch.bool:
        found = {f"{text} is True": x, f"{text} is False": ~x}
        if x.ndim > 1: found |= {f"the first True of {text} in a row stands": x & (x.cumsum(-1) == 1),
            f"the last True of {text} in a row stands": x & (_ahead(x) == 1), f"{text} is True, but not for the first time in its row": x & (x.cumsum(-1) > 1),
            f"{text} is True, but not for the last time in its row": x & (_ahead(x) > 1)}
        return found
    found = {f"{text} is below 0": x < 0, f"{text} is above 0": x > 0, f"{text} is 0": x == 0}
    return found | ({f"{text} is nan or inf": ~x.isfinite(), f"{text} is above 1": x > 1, f"{text} is below -1": x < -1} if x.is_floating_point() else {})

def _of_rows(x, text): # of each row of a mask
    if x.dtype != torch.bool or x.ndim < 2: return {}
    n, width = x.flatten(1).sum(1), x[0].numel()
    return {f"a row of {text} holds no True": n == 0, f"a row of {text} holds one True": n == 1, f"a row of {text} holds a False": n < width,
            f"a row of {text} is shorter than the longest": n < n.max() if len(n) else n > 0, f"a row of {text} holds a gap": (
        ~x & (x.cumsum(-1) > 0) & (_ahead(x) > 0)).flatten(1).any(1)}

def _of_case(x, text): # of one number, truth value or word
    if isinstance(x, Tensor): return {f"{text} has one row": len(x) == 1} if x.ndim else {}
    if isinstance(x, bool): return {f"{text} is {x}": True}
    if isinstance(x, (int, float)): return {f"{text} is {x:g}": True, f"{text} is not 0": x != 0, f"{text} is not 1": x != 1, f"{text} is above 1": x > 1, f"{text} is below 1": x < 1}
    return {f"{text} is {x!r}": True} if isinstance(x, str) and len(x) < 20 else {}

def places(args, want, leaves, names, spoken): # words -> (the shape of `want`) truth values
    found = {}
    def put(words, x):
        try: found[words] = x.expand(want.shape) if isinstance(x, Tensor) else torch.full(want.shape, bool(x))
        except RuntimeError: return
    for path, x in leaves(args).items():
        text = spoken(path, names)
        if all(isinstance(k, str) for k in path[1:]):    # an argument or a field; the third number of a list is no property
            for words, y in _of_case(x, text).items(): put(words, y)
        if not isinstance(x, Tensor) or not x.ndim or isinstance(x, torch.nn.Parameter): continue
        if x.shape == want.shape:
            for words, y in _of_tensor(x.detach(), text).items(): put(words, y)
        if want.ndim and len(x) == len(want):
            rows = _of_rows(x, text) | (_of_tensor(x.detach(), text) if x.ndim == 1 else {})
            for words, y in rows.items(): put(words, y.view(-1, *[1] * (want.ndim - 1)))
    for axis, name in zip(range(want.ndim), ("row", "column") if want.ndim > 1 else ("place",)):
        at = torch.arange(want.shape[axis]).view(-1, *[1] * (want.ndim - 1 - axis))
        for words, y in {f"the first {name} stands": at == 0, f"the last {name} stands": at == want.shape[axis] - 1, f"not the first {name} stands": at > 0,
                         f"not the last {name} stands": at < want.shape[axis] - 1}.items(): put(words, y)
    if want.dtype != torch.bool:
        for words, y in _of_tensor(want.detach(), "the right result").items(): put(words, y)
    return found

def differs_where(cases, calls, wants, names, match)->str: # "it differs only where ...; ", or ""
    "The narrowest place, seen in the inputs, that holds every entry that is wrong, over all cases."
    from rlhf_nb.book.changes import named_leaves, spoken
    held, filled, total, bad = {}, [], 0, 0
    for k, args in cases.items():
        if wants[k].error: continue
        got, want = calls[k].out, wants[k].out
        parts = [*zip(got, want)] if isinstance(want, tuple) and isinstance(got, tuple) and len(got) == len(want) else [(got, want)]
        for got, want in parts:
            if isinstance(want, Tensor) and isinstance(got, Tensor) and got.shape == want.shape:
                same = torch.isclose(got.detach().double(), want.detach().double(), 1e-4, 1e-4, equal_nan=True)
            elif calls[k].error or isinstance(want, Tensor) and want.ndim: return ""
            else: same, want = torch.tensor(match(got, want)), torch.zeros(())
            n, wrong = same.numel(), ~same
            if isinstance(want, Tensor) and isinstance(got, Tensor) and got.shape == want.shape: filled += [*zip(got.detach()[wrong].double().tolist(), want.detach()[wrong].double().tolist())]
            for words, x in places(args, want, named_leaves, names, spoken).items():
                a, b = held.get(words, (0, 0))
                held[words] = a + int(x.sum()), b + int((x & wrong).sum())
            total, bad = total + n, bad + int(wrong.sum())
    if bad > 2 and len(filled) == bad and all(b in (inf, -inf) and abs(a) < inf for a, b in filled):
        sign = {f"{b}" for _, b in filled}
        big = "a large number" if min(abs(a) for a, _ in filled) > 20 else "a finite number"
        return f"{big} stands where {' or '.join(sorted(sign))} should, and everything else is right; "
    found = [(bad / n, -len(words), words) for words, (n, hit) in held.items() if hit == bad and 0 < n < .75 * total]
    share, _, words = max(found, default=(0, 0, ""))
    return f"it differs only where {words}{', and there always' * (share == 1)}; " if bad > 2 and share > .5 else ""
