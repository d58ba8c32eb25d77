"What else a step of a reference could do: for each step of a run a sentence, and a function that does so in its place."
# A change is a function of (do, args, kwargs): `do` is the operation, None for a value, which is then args[0].
import ast, itertools, operator
import torch
from torch import Tensor
from .slips import INDICES, MASKS, MEANT, NUMBERS, PLACES, REDUCED, SPREADS, TRUTHS
from .twin import BINARY, COMPARED, SIGN, all_of, any_of

EXCHANGED = [ # names that may stand for each other
    "sum mean amax amin prod std median argmax", "max min", "maximum minimum", "any all",
    "exp log log1p expm1 abs square sqrt", "argmax argmin", "floor ceil round trunc", "softmax log_softmax",
    "logsigmoid sigmoid softplus", "zeros_like ones_like", "zeros ones", "cumsum cumprod", "std var", "lower upper",
    "startswith endswith", "append extend", "minimum fmin", "logsumexp amax sum mean", "sorted reversed list"]
EXCHANGED = {k: [x for row in EXCHANGED for x in row.split() if k in row.split() and x != k]
             for row in EXCHANGED for k in row.split()}
FUNCTIONS = REDUCED | dict( # of which torch has none of this name, or a method does not take the same
    softmax=torch.softmax, log_softmax=torch.log_softmax, logsigmoid=torch.nn.functional.logsigmoid,
    softplus=torch.nn.functional.softplus, sorted=sorted, reversed=lambda x, **k: [*x][::-1],
    list=lambda x, **k: [*x], max=max, min=min, any=any, all=all)
SIGNS = "< <= > >= = ≠", "is is not", "in not in", "+ - x / ^", "and or xor" # that may stand for each other; but no ^

def _kind(x): return ("tensor", x.shape, x.dtype == torch.bool) if isinstance(x, Tensor) else type(x)
def alike(a, b)->bool: return _kind(a) == _kind(b) and not callable(a)      # may one stand for the other?
def live(f): # a change that reads what other steps hold
    f.live = True
    return f
def is_real(x)->bool: return isinstance(x, float) or isinstance(x, Tensor) and x.is_floating_point()

# ---- an operation

def other(f): return lambda do, a, k: f(*a, **k)
def only(i): return lambda do, a, k: a[i]                    # of its operands

BOTH = {"the mean": lambda a, b: (a + b) / 2, "the sum": torch.add, "the product": torch.mul}   # of two, in place of one of them

def sign_changes(step, fn, args): # of a + b, a < b
    text, (a, b) = step.text, step.parts
    row = COMPARED if isinstance(step.node, ast.Compare) else BINARY
    if isinstance(args[0], (tuple, str)): signs = "= ≠"      # of shapes, of words
    else: signs = next((x for x in SIGNS if f" {SIGN[fn]} " in f" {x} "), "")
    for sign, f in row.values():
        if f is not fn and sign != "^" and f" {sign} " in f" {signs} ":
            turned = {"+-": f"the sign of {b} is turned: ", "-+": f"the sign of {b} is turned: "}.get(SIGN[fn] + sign, "")
            yield f"{turned}{a} {sign} {b} stands where {text} should", other(f)
    if row is COMPARED: return
    if fn is operator.pow and args[1] == 2: yield f"the absolute value of {a} stands where {text} should", lambda do, a, k: abs(a[0])
    if isinstance(args[0], Tensor) and isinstance(args[1], Tensor):
        for word in ("exp", "log", "sigmoid"): yield f"{word} of both parts of {text} is taken", (
            lambda do, a, k, f=getattr(torch, word): do(f(a[0]), f(a[1])))
    for i in (0, 1): yield f"{step.parts[i]} is missing in {text}: only {step.parts[1 - i]} is there", only(1 - i)
    constant = any(isinstance(x, ast.Constant) for x in (step.node.left, step.node.right))   # nobody turns 1 - x around
    if SIGN[fn] in "-/^" and not constant: yield f"{text} is turned around: {b} {SIGN[fn]} {a}", (
        lambda do, a, k: do(a[1], a[0]))

def where_changes(step, mask, yes, no): # places of the operands
    p, q, m = (step.parts[i] for i in (yes, no, mask))
    def put(i): return lambda do, a, k: torch.as_tensor(a[i]).expand_as(do(*a))
    yield f"{p} stands everywhere, whether {m} or not", put(yes)
    yield f"{q} stands everywhere, whether {m} or not", put(no)
    yield f"{m} is upside down", lambda do, a, k: do(*[~x if i == mask else x for i, x in enumerate(a)])

def call_changes(step, fn, name, args, out): # of a function or method
    text, first = step.text, step.parts[0]
    if _kind(args[0]) == _kind(out) and name != "detach":
        yield f"{name.replace('_', ' ')} is missing: {first} stands there as it is", only(0)
    if name == "clamp":
        def ends(a, k): return dict(zip(("min", "max"), a[1:])) | k
        for end, key in dict(lower="min", upper="max").items():
            yield f"{text}: the {end} end is missing", lambda do, a, k, key=key: do(a[0], **ends(a, k) | {key: None})
        yield f"{text}: the ends are exchanged", lambda do, a, k: do(
            a[0], min=ends(a, k).get("max"), max=ends(a, k).get("min"))
    for x in EXCHANGED.get(name, ()):
        f = FUNCTIONS.get(x) or getattr(torch, x, None)
        if isinstance(fn, str) and x not in FUNCTIONS: f = lambda s, *a, x=x, **k: getattr(s, x)(*a, **k)
        if f is not None: yield f"{x} stands where {name} should, in {text}", other(f)
    if name in ("std", "var"): yield f"{name} of {first} is that of n, not of n - 1", (
        lambda do, a, k: do(*a, **k | dict(correction=0)))
    if isinstance(args[0], Tensor) and isinstance(out, Tensor) and out.ndim < args[0].ndim:
        for axis in range(args[0].ndim): yield f"{name} of {first} is over axis {axis}", lambda do, a, k, axis=axis: do(
            a[0], *[axis] * bool(len(a) > 1), *a[2:], **k | ({"dim": axis} if "dim" in k else {}))
        yield f"{name} of {first} is over all", lambda do, a, k: do(a[0]).expand_as(do(*a, **k))
    if name in ("maximum", "minimum") and len(step.parts) == 2:
        for i in (0, 1): yield f"{name} is missing in {text}: only {step.parts[i]} is there", only(i)
        for words, f in BOTH.items(): yield f"{words} of {' and '.join(step.parts)} stands where {text} should", (
            lambda do, a, k, f=f: f(*a))
    if len(args) == 2 and len(step.parts) == 2 and alike(*args):
        yield f"{' and '.join(step.parts)} are exchanged in {text}", lambda do, a, k: do(a[1], a[0], **k)

def operation_changes(step, fn, args, out): # yields a sentence and a change
    text, parts = step.text, step.parts
    name = fn if isinstance(fn, str) else getattr(fn, "__name__", "").strip("_")
    if isinstance(step.node, (ast.BinOp, ast.Compare)) and len(parts) == 2: yield from sign_changes(step, fn, args)
    elif isinstance(step.node, ast.UnaryOp):
        yield f"the sign of {parts[0]} is turned" if name == "neg" else f"{parts[0]} is upside down", only(0)
    elif fn in (all_of, any_of):
        word, f = ("or", any_of) if fn is all_of else ("and", all_of)
        yield f"{f' {word} '.join(parts)} stands where {text} should", other(f)
        for i, part in enumerate(parts):
            yield f"{part} is not asked in {text}", lambda do, a, k, i=i: do(*a[:i], *a[i + 1:])
    elif name == "getitem":
        if isinstance(args[1], (slice, tuple)) and _kind(out) == _kind(args[0]):
            yield f"{text}: all of {parts[0]} is taken", only(0)
    elif name == "where" and len(args) == len(parts) == 3:
        yield from where_changes(step, *((1, 0, 2) if fn == "where" else (0, 1, 2)))
    elif name == "masked_fill":
        yield f"{parts[0]} is not masked: {parts[1]} is not used there", only(0)
        yield f"{parts[1]} is upside down, where {parts[0]} is masked", lambda do, a, k: do(a[0], ~a[1], a[2])
    elif args and parts: yield from call_changes(step, fn, name, args, out)

# ---- a value

LISTS = {"{} is reversed": lambda x: x[::-1], "the first of {} is left out": lambda x: x[1:],
         "the last of {} is left out": lambda x: x[:-1], "of {} only the first is there": lambda x: x[:1],
         "of {} only the last is there": lambda x: x[-1:], "{} is sorted": sorted}
COUNTS = {"{} is one less": lambda x: x - 1, "{} is one more": lambda x: x + 1,
          "{} is not used: as if it were 1": lambda x: 1, "{} is not used: as if it were 0": lambda x: 0}
FLAGS = {"{} is upside down": operator.not_, "{} is not asked: as if it always held": lambda x: True,
         "{} is not asked: as if it never held": lambda x: False}

def value_changes(step, x): # yields a sentence with {}, and a function of the value
    if isinstance(x, bool): yield from FLAGS.items()
    elif isinstance(x, int) and not isinstance(step.node, (ast.Constant, ast.UnaryOp)): yield from COUNTS.items()
    elif isinstance(x, int):
        for y in dict.fromkeys((x + 1, x - 1, 0, -x, 2 * x)):
            if y != x: yield (f"{step.parent} runs over axis {y}, not {x}" if step.axis else
                              f"{y} stands where {x} should, in {step.parent}"), lambda x, y=y: y
    elif isinstance(x, float):
        for words, f in NUMBERS.items(): yield words, lambda x, f=f: f(torch.as_tensor(x, dtype=torch.float64)).item()
        yield "1 less {} stands for it", lambda x: 1 - x
    elif isinstance(x, str): yield from {"{} is in small letters": str.lower, "{} is stripped of space": str.strip}.items()
    elif isinstance(x, list): yield from LISTS.items()
    elif isinstance(x, Tensor) and x.dtype == torch.bool: yield from (MASKS if x.ndim > 1 else TRUTHS).items()
    elif is_real(x): yield from (NUMBERS | (PLACES | MEANT | SPREADS if x.ndim else {})).items()
    elif isinstance(x, Tensor) and x.ndim: yield from INDICES.items()

LAST, FIRST = (f"of {{}} only the {end} True of each row counts" for end in ("last", "first"))

def term_changes(step, x, others): # a factor or term too many; others: text -> (variable, its value)
    "Another variable as a factor or term, a small number against 0: a sentence with {}, a function of value and variables."
    for text, (name, y) in others.items():
        if isinstance(y, bool) or text == step.text: continue
        if isinstance(y, int) or is_real(y) and not getattr(y, "ndim", 0):
            yield f"{{}} is multiplied by {text}", lambda v, e, n=name: v * e[n]
            yield f"{{}} is divided by {text}", lambda v, e, n=name: v / e[n]
            if isinstance(y, int): continue
            yield f"{{}} is multiplied by 1 - {text}", lambda v, e, n=name: v * (1 - e[n])
            yield f"{{}} is cut off below {text}", lambda v, e, n=name: v.clamp(min=e[n])
            yield f"{{}} is cut off above {text}", lambda v, e, n=name: v.clamp(max=e[n])
        elif not isinstance(y, Tensor) or y.shape != x.shape or not y.ndim: continue
        elif y.dtype == torch.bool:
            yield f"outside of {text} {{}} is 0", lambda v, e, n=name: v.where(e[n], 0.)
            for end, f in dict(last=MASKS[LAST], first=MASKS[FIRST]).items() if y.ndim > 1 else ():
                yield f"of {{}} only the {end} of each row counts, by {text}", (
                    lambda v, e, n=name, f=f: v.where(f(e[n]), 0.))
        elif is_real(y):
            yield f"{text} is added to {{}}", lambda v, e, n=name: v + e[n]
            yield f"{text} is subtracted from {{}}", lambda v, e, n=name: v - e[n]
            yield f"{{}} is multiplied by {text}", lambda v, e, n=name: v * e[n]
            yield f"{{}} is multiplied by exp of {text}", lambda v, e, n=name: v * e[n].exp()
    for eps in (1e-12, 1e-10, 1e-8, 1e-6, 1e-4) if (x == 0).any() else ():
        yield f"{eps:g} is added to {{}}", lambda v, e, eps=eps: v + eps
        yield f"{{}} is cut off below {eps:g}", lambda v, e, eps=eps: v.clamp(min=eps)

def mean_changes(steps, i, seen, made): # of a sum over a sum: other means; made: id of a result -> the step that gave it
    fn, args, _, _ = seen[i]
    if fn is not operator.truediv or not all(isinstance(x, Tensor) and not x.ndim and id(x) in made for x in args): return
    (total, x), (count, m) = ((made[id(x)], seen[made[id(x)]]) for x in args)
    if not all(s[0] == "sum" and getattr(s[1][0], "ndim", 0) == 2 for s in (x, m)) or x[1][0].shape != m[1][0].shape: return
    text = steps.steps[i].text
    def of(f): return lambda do, a, k: f(steps.summed[total], steps.summed[count])
    yield f"the mean of each row's mean stands where {text} should", of(
        lambda x, m: (x.sum(1) / m.sum(1).clamp(min=1)).mean())
    yield f"the mean over all entries stands where {text} should: mask and pads count", of(lambda x, m: x.mean())
    yield f"{text}: divided by the number of rows", of(lambda x, m: x.sum() / len(x))

# ---- all of them

def all_changes(steps, trace): # yields number of a step, sentence, change; likely ones first, None behind them
    "What each step of a recorded run could do otherwise; those of the reference itself before those that it calls."
    seen, named, made = {}, {}, {}               # step -> what it did first; variable -> its text and value
    for i, fn, args, kwargs, out in trace:
        seen.setdefault(i, (fn, args, kwargs, out))
        if fn is not None: made.setdefault(id(out), i)
        elif steps.steps[i].name: named.setdefault(steps.steps[i].name, (steps.steps[i].text, out))
    rows = [(steps.steps[i], *row) for i, row in sorted(seen.items(), key=lambda x: steps.steps[x[0]].depth)]
    def at(step): return f" (in {step.inside})" * bool(step.inside)
    def within(step): return step.parent or "the result"
    def of_value(words, step, fn): # {} is the step
        if "{}" not in words: return words + at(step)
        return words.format(step.text) + f", in {step.parent}" * (fn is None and bool(step.parent)) + at(step)
    def likely(here): # operations; a default although another one is given; another variable
        for step, fn, args, kwargs, out in here:
            if fn is None: continue
            for words, f in operation_changes(step, fn, args, out): yield step.number, words + at(step), f
            for words, f in mean_changes(steps, step.number, seen, made): yield step.number, words + at(step), f
        for name, default in steps.defaults().items():
            for step, *_, out in here:
                if step.name == name and not step.inside and alike(default, out): yield step.number, (
                    f"{name} is not used: as if it were always {default}"), lambda do, a, k, default=default: default
        for step, *_, out in here:
            for name, (text, x) in named.items() if step.name else ():
                if text != step.text and alike(x, out): yield step.number, (
                    f"{text} stands where {step.text} should, in {within(step)}{at(step)}"), (
                    live(lambda do, a, k, name=name: steps.env[name]))
    def values(step, fn, args, kwargs, out):
        for words, f in value_changes(step, out): yield step.number, of_value(words, step, fn), (
            lambda do, a, k, f=f: f(do(*a, **k) if do else a[0]))
    def everywhere(places): # of a value that a function reads at several places
        step, *_, out = places[0]
        for words, f in value_changes(step, out) if not step.axis else (): yield (
            tuple(x.number for x in steps.steps if (x.inside, x.text) == (step.inside, step.text)), words.format(step.text) + at(step), lambda do, a, k, f=f: f(a[0]))
    def terms(step, fn, args, kwargs, out):
        given = {text: (name, x) for name, (text, x) in named.items() if not step.inside}
        for words, f in term_changes(step, torch.as_tensor(out), given) if is_real(out) else ():
            yield step.number, of_value(words, step, fn), (
                live(lambda do, a, k, f=f: f(do(*a, **k) if do else a[0], steps.env)))
    def results(step, fn, args, kwargs, out): # of another step
        for x, g, *_, y in rows if getattr(out, "ndim", 0) else ():
            if x.number < step.number and g is not None and y is not out and alike(y, out): yield step.number, (
                f"{x.text} stands where {step.text} should, in {within(step)}{at(step)}"), (
                live(lambda do, a, k, j=x.number: steps.last[j]))
    def in_turn(ways):
        for found in itertools.zip_longest(*ways): yield from filter(None, found)
    parts = [row for row in rows if not row[0].depth], [row for row in rows if row[0].depth]  # what it calls is last
    for here in parts:
        yield from likely(here)
        if here is parts[0]: yield None, "", None
        places = {}
        for row in here:
            if row[0].name: places.setdefault((row[0].inside, row[0].text), []).append(row)
        yield from in_turn([way(*row) for way in (values, terms) for row in here] + [
            everywhere(x) for x in places.values() if sum(y.text == x[0][0].text and y.inside == x[0][0].inside for y in steps.steps) > 1])
    for here in parts: yield from in_turn([results(*row) for row in here])

def gradient_changes(steps, trace): # as all_changes, where only gradients differ
    seen = set()
    for i, fn, _, _, out in trace:
        if i in seen or not isinstance(out, Tensor) or not is_real(out): continue
        seen.add(i)
        step = steps.steps[i]
        if fn == "detach": yield i, f"a gradient flows through {step.parts[0]}: detach it", only(0)
        else: yield i, f"no gradient flows through {step.text}: it is detached", (
            lambda do, a, k: (do(*a, **k) if do else a[0]).detach())
