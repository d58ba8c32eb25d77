"What else could stand in a place of a computation, in words and as a function, and what messages of Python and torch mean."
import torch
from torch import Tensor
from torch.nn import functional as F

NUMBERS = {                                       # of a float or its tensor
    "{} is not used: as if it were 0": torch.zeros_like, "{} is not used: as if it were 1": torch.ones_like,
    "the sign of {} is turned": torch.neg,
    "{} counts twice": lambda x: x * 2, "{} counts half": lambda x: x / 2,
    "the absolute value of {} is taken": torch.abs, "{} is cut off at 0": torch.relu,
    "exp of {} is taken": torch.exp, "the logarithm of {} is taken": torch.log, "{} is squared": torch.square,
    "the root of {} is taken": torch.sqrt, "1 / ({}) stands for it": torch.reciprocal,
    "1 is added to {}": lambda x: x + 1, "1 is subtracted from {}": lambda x: x - 1,
    "the sigmoid of {} is taken": torch.sigmoid, "log σ of {} is taken": F.logsigmoid,
    "exp - 1 of {} is taken": torch.expm1, "softmax of {} is taken": lambda x: x.softmax(-1),
    "log(1 + exp) of {} is taken": F.softplus, "only the sign of {} is taken": torch.sign,
    "{} is weighted by exp of itself": lambda x: x * x.exp(), "{} is weighted by 1 - exp of itself": lambda x: x * (1 - x.exp()),
    "{} is weighted by the square of 1 - exp of itself": lambda x: x * (1 - x.exp())**2}
PLACES = {                                        # of any tensor, (b) or (b t)
    "{} stands one place late": lambda x: x.roll(1, min(1, x.ndim - 1)),
    "{} stands one place early": lambda x: x.roll(-1, min(1, x.ndim - 1)),
    "{} stands one place late, with 0 in front":
        lambda x: torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1),
    "{} stands one place early, with 0 behind it":
        lambda x: torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], 1),
    "{} is that of the row before": lambda x: x.roll(1, 0),
    "{} is that of the next row": lambda x: x.roll(-1, 0),
    "{} of the first row stands for all": lambda x: x[:1].expand_as(x),
    "{} is reversed": lambda x: x.flip(-1), "{} is sorted": lambda x: x.sort(-1).values, "the running sum of {} is taken": lambda x: x.cumsum(-1),
    "the rank of each entry in its row of {} is taken: equal ones are told apart by their order": lambda x: x.argsort(-1).argsort(-1).to(x.dtype)}
MEANT = {
    "the mean of {} is taken here, too early": lambda x: x.mean().expand_as(x),
    "the mean of {} over each row is taken here": lambda x: x.mean(-1, True).expand_as(x),
    "the mean of {} over rows is taken here": lambda x: x.mean(0, True).expand_as(x),
    "the largest of {} over rows is taken": lambda x: x.amax(0, True).expand_as(x)}
def _spread(part, rows=False): # of a tensor, or of what a mask holds of it
    def f(x, m=None):
        if not x.ndim: raise ValueError("one number has no spread")
        y, over = x if m is None else x.where(m, torch.nan), dict(dim=-1, keepdim=True) if rows else {}
        mean, n = y.nanmean(**over), (~y.isnan()).sum(**over)
        std = ((y - mean).square().nansum(**over) / (n - 1)).sqrt()
        out = dict(mean=x - mean, std=x / std, both=(x - mean) / std)[part]
        return out if m is None else out.where(m, x)
    return f
SPREADS = {
    "the mean of {} is subtracted": _spread("mean"), "{} is divided by its standard deviation": _spread("std"),
    "{} is whitened: less its mean, over its standard deviation": _spread("both"),
    "the mean of {} over each row is subtracted": _spread("mean", True),
    "{} is divided by the standard deviation of its row": _spread("std", True),
    "{} is whitened row by row: less its mean, over its standard deviation": _spread("both", True)}
INDICES = {                                       # of whole numbers: groups, ids, positions
    "{} is not used: as if it were 0": torch.zeros_like, "{} is one less": lambda x: x - 1, "{} is one more": lambda x: x + 1,
    "{} above 0 counts as 0": lambda x: x.clamp(max=0), "{} below 0 counts as 0": lambda x: x.clamp(min=0), "each entry of {} stands alone": lambda x: torch.arange(x.numel()).view(x.shape),
    "the largest of {} in each row stands for all": lambda x: x.amax(-1, True).expand_as(x)} | PLACES
REDUCED = dict(sum=torch.sum, mean=torch.mean, amax=torch.amax, amin=torch.amin, argmax=torch.argmax, prod=torch.prod, std=torch.std, var=torch.var,
               median=lambda x, *a, **k: getattr(y := torch.median(x, *a, **k), "values", y)) | {
    "the mean absolute deviation": lambda x: (x - x.mean()).abs().mean()}
CURVES = dict(exp=torch.exp, log=torch.log, σ=torch.sigmoid, logsigmoid=F.logsigmoid, softplus=F.softplus,
              relu=torch.relu, expm1=torch.expm1, abs=torch.abs, square=torch.square) | {
    "what is left of the largest": lambda x: x - x.amax(-1, True)}
TRUTHS = {"{} is upside down": torch.logical_not, "{} is not used: all counts": torch.ones_like}

def _ahead(m): return m.flip(1).cumsum(1).flip(1) # True entries from here on
MOVES = {k: f for k, f in PLACES.items() if "sorted" not in k and "sum" not in k}    # nobody sorts a mask
MASKS = TRUTHS | MOVES | {
    "the first True of each row is missing in {}": lambda m: m & (m.cumsum(1) > 1),
    "the last True of each row is missing in {}": lambda m: m & (_ahead(m) > 1),
    "of {} only the first True of each row counts": lambda m: m & (m.cumsum(1) == 1),
    "of {} only the last True of each row counts": lambda m: m & (_ahead(m) == 1),
    "what stands before the first True of {} counts": lambda m: _ahead(m) > 0,
    "what stands behind the last True of {} counts": lambda m: m.cumsum(1) > 0}
AMOUNTS = {                                       # the first two of inputs, too
    "{} is multiplied by {}": lambda x, n: x * n, "{} is divided by {}": lambda x, n: x / n,
    "{} is divided by {} + 1": lambda x, n: x * n / (n + 1),
    "{} is divided by {} - 1": lambda x, n: x * n / (n - 1),
    "{} is divided by {}, not by one less": lambda x, n: x * (n - 1) / n,
    "{} is multiplied by 1 - {}": lambda x, n: x * (1 - n),
    "{} is multiplied by {} / 2": lambda x, n: x * n / 2,
    "{1} is added to {0}": lambda x, n: x + n, "{1} is subtracted from {0}": lambda x, n: x - n}

def amounts(x): # of a leaf: words -> what a result or an input may be multiplied by
    if type(x) in (float, int): return {"{}": x}
    if not isinstance(x, torch.Tensor) or not x.ndim: return {}
    return {"the number of True in {}": x.sum(), "the number of True in each row of {}": x.sum(-1),
            "the number of True in a row of {}": x.sum(-1, True), "the number of rows of {}": len(x),
            "the width of {}": x.shape[-1]} if x.dtype == torch.bool else {"{}": x.detach()}

def _held(x, m): return getattr(m, "dtype", 0) == torch.bool and m.shape == x.shape and x.ndim == 2
def _columns(x, k): return type(k) is int and k > 1 and x.ndim == 1 and len(x) % k == 0
MOVED = {                                         # of a float tensor by another input: whether they go together, what comes out
    "all of {} in a row stands at the last True of {}": (_held, lambda x, m: torch.where(
        m & (_ahead(m) == 1), x.where(m, 0.).sum(1, True), 0.)),
    "all of {} in a row stands at the first True of {}": (_held, lambda x, m: torch.where(
        m & (m.cumsum(1) == 1), x.where(m, 0.).sum(1, True), 0.)),
    "all of {} in a row stands at every True of {}": (_held, lambda x, m: torch.where(m, x.where(m, 0.).sum(1, True), 0.)),
    "{} is read down columns of {}, not along rows": (_columns, lambda x, k: x.view(k, -1).T.flatten()),
    "{} is read down the columns of rows of {}": (_columns, lambda x, k: x.view(-1, k).T.flatten()),
    "the first of each row of {1} in {0} stands for the whole row": (_columns, lambda x, k: x.view(-1, k)[:, :1].expand(-1, k).flatten()),
    "the mean of each row of {1} in {0} stands for the whole row": (_columns, lambda x, k: x.view(-1, k).mean(1, True).expand(-1, k).flatten())}

def _mixed(args, x, c): return (1 - c) * x + c * args[0].mean(args[1], True)
FITTED = {                                        # of an operation's arguments, its result and a number; where that may lie
    "{} has a factor of {} too many": (lambda args, x, c: x * c, (.02, .4, .95, 1.05, 2.5, 50.)),
    "{1} is added to {0}": (lambda args, x, c: x + c, (-20., -1., -1e-3, 1e-3, 1., 20.)),
    "{} is cut off above {}": (lambda args, x, c: x.clamp(max=c), (-20., -2., -.5, .05, .5, 2., 20.)),
    "{} is cut off below {}": (lambda args, x, c: x.clamp(min=c), (-20., -2., -.5, .05, .5, 2., 20.)),
    "{0} is clipped at -{1} and {1}": (lambda args, x, c: x.clamp(-c, c), (.01, .3, 1.2, 4., 20.)),
    "a small number, {1}, is added to exp of {0} before the logarithm": (lambda args, x, c: x.exp().add(c).log(), (1e-9, 1e-5, 1e-2, .5)),
    "{} is smoothed, as labels are: {} of the mean over all that could stand there": (_mixed, (1e-3, .15, .6))}

def tells(x)->bool: # whether a result shows more than yes or no: text, or a number that is not one of the usual few
    if isinstance(x, Tensor): return x.is_floating_point() and x.numel() > 0 and tells(x.detach().flatten().tolist())
    if isinstance(x, dict): x = [*x.values()]
    if isinstance(x, (list, tuple)): return any(map(tells, x))
    return isinstance(x, str) and len(x) > 3 or isinstance(x, float) and x == x and abs(x) not in (0., .5, 1., float("inf"))

def proves(calls, wrong, told, n_alike)->bool: # told: wrong cases that a mistake explains; in how many of all it does the same
    "Whether that is no luck: it fits everywhere, or there are more than three; or it is near and one shows more than yes or no."
    return len(wrong) > 3 or n_alike == len(calls) or (
        len(calls) - n_alike <= len(wrong) and any(tells(calls[case].out) for case in told))

def fit(missed, near, most=40):
    "Where a function of a number is 0, between two of `near`; None if it keeps its sign. To 4 digits, if that will do."
    seen = [(c, missed(c)) for c in near]
    for (a, x), (b, y) in zip(seen, seen[1:]):
        if not x * y <= 0 or x == y: continue
        for _ in range(most):                     # Illinois: a secant that keeps both ends
            c = b - y * (b - a) / (y - x)
            z = missed(c)
            if z * y < 0: a, x = b, y
            else: x /= 2
            b, y = c, z
            if abs(z) < 1e-11 or a == b: break
        short = float(f"{b:.4g}")
        return short if abs(missed(short)) < 1e-6 else b

def fitted(places, run, first, missed, most): # places of `run_changed`, a run of a case, by how much a result misses, runs
    "A number in each place, chosen so that the first case comes out right: a sentence, and a function of a case."
    def put(f, c): return lambda fn, args, kwargs, out: f(args, out, c)
    def miss(at, f, c):
        nonlocal most
        most -= 1
        return missed(run(first, at, put(f, c))[0])
    for at, (text, *_, out) in places.items():
        for words, (f, near) in FITTED.items():
            if most < 0 or not isinstance(out, torch.Tensor) or not out.is_floating_point(): continue
            try: c = fit(lambda c: miss(at, f, c), near)
            except Exception: continue            # another shape, say
            if c is not None: yield words.format(text, f"{c:.4g}"), lambda k, at=at, f=f, c=c: run(k, at, put(f, c))[0]

REASONS = {                                      # of a message -> what it means
    "selected index k out of range": "topk asks for more entries than the axis has",
    "index out of range|out of bounds":
        "an index is larger than the list or axis; of nothing even [0] and [-1] are",
    "must match the (size|existing)|cannot be (broadcast|multiplied)|is invalid for input|not broadcastable":
        "two sizes do not go together",
    "more than one value is ambiguous":
        "`if`, `and`, `or`, `not` take one truth value: a tensor wants where, &, |, ~",
    "boolean mask|torch.bool|[Bb]itwise|for '?~":
        "a mask holds whole numbers: .bool() makes truth values of them",
    "NoneType": "None is used as a value: did a search find nothing, or a function return nothing?",
    "does not require grad": "a number has no gradient: it is frozen, was detached, or made anew",
    "expected scalar type|same dtype": "two types of numbers meet, such as float32 and float64",
    "division by zero|modulo by zero": "a number or a length is 0",
    "empty|numel\\(\\) == 0|zero-size": "something is empty",
    "is not defined": "no cell above defines this name",
    r"^[^.(]*\(\) .*(positional argument|unexpected keyword)": "the arguments are those of the stub, in its order",
    "positional argument|unexpected keyword": "a call in it has other arguments than the function takes: a * takes a list apart"}
