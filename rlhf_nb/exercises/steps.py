"What a reference does step by step, from its source: each step can be told to do something else, and is said in words."
# Every expression of its functions becomes a call that knows its place, so that one compiled twin serves all changes; what
# stands before the changed step is not computed again.
import ast, copy, inspect, itertools, operator, re, textwrap, types
from collections.abc import Callable
from dataclasses import dataclass
import torch
from torch import Tensor
from .where import differs_where
from .slips import INDICES, MASKS, MEANT, NUMBERS, PLACES, REDUCED, SPREADS, TRUTHS

BINARY = {ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("x", operator.mul), ast.Div: ("/", operator.truediv),
          ast.FloorDiv: ("//", operator.floordiv), ast.Mod: ("%", operator.mod), ast.Pow: ("^", operator.pow), ast.MatMult: ("@", operator.matmul),
          ast.BitAnd: ("and", operator.and_), ast.BitOr: ("or", operator.or_), ast.BitXor: ("xor", operator.xor)}
COMPARED = {ast.Lt: ("<", operator.lt), ast.LtE: ("<=", operator.le), ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge),
            ast.Eq: ("=", operator.eq), ast.NotEq: ("≠", operator.ne), ast.Is: ("is", operator.is_), ast.IsNot: ("is not", operator.is_not),
            ast.In: ("in", lambda a, b: a in b), ast.NotIn: ("not in", lambda a, b: a not in b)}
UNARY = {ast.USub: ("-", operator.neg), ast.Invert: ("not ", operator.invert), ast.Not: ("not ", operator.not_)}
SIGN = {f: sign for row in (BINARY, COMPARED, UNARY) for sign, f in row.values()}
QUIET = set("masked_fill reshape view expand expand_as unsqueeze squeeze clone to float double flatten detach get bool long item tolist "
            "contiguous list tuple as_tensor tensor at_least_float32 gather repeat type_as numpy cpu".split())  # they are not told

AXES = set("sum mean amax amin std var prod any all softmax log_softmax logsumexp cumsum cumprod argmax argmin flip sort argsort unsqueeze median cat stack".split())

def told(node)->str: # an expression as one says it
    def inner(x): return f"({told(x)})" if isinstance(x, (ast.BinOp, ast.IfExp, ast.BoolOp, ast.Compare)) else told(x)
    if isinstance(node, ast.Constant): return repr(node.value)
    if isinstance(node, ast.Name): return node.id.strip("_")
    if isinstance(node, ast.Attribute): return node.attr.strip("_")
    if isinstance(node, ast.BinOp): return f"{inner(node.left)} {BINARY[type(node.op)][0] if type(node.op) in BINARY else '?'} {inner(node.right)}"
    if isinstance(node, ast.UnaryOp): return (UNARY[type(node.op)][0] if type(node.op) in UNARY else "") + inner(node.operand)
    if isinstance(node, ast.Compare): return inner(node.left) + "".join(
        f" {COMPARED[type(op)][0]} {inner(x)}" for op, x in zip(node.ops, node.comparators))
    if isinstance(node, ast.BoolOp): return f" {'and' if isinstance(node.op, ast.And) else 'or'} ".join(map(inner, node.values))
    if isinstance(node, ast.Subscript): # of an index only what changes numbers
        at = ast.unparse(node.slice).strip("()")
        return told(node.value) if re.fullmatch(r"[:, .\w]*(None|\.\.\.)[:, .\w]*|:, \w+|at|mask|kept", at) else f"{told(node.value)}[{at}]"
    if isinstance(node, ast.Call):
        root = node.func
        while isinstance(root, ast.Attribute): root = root.value
        method = isinstance(node.func, ast.Attribute) and not (isinstance(root, ast.Name) and root.id in ("torch", "math", "F", "re"))
        name = (node.func.attr if isinstance(node.func, ast.Attribute) else told(node.func)).strip("_")
        args = [node.func.value, *node.args] if method else node.args
        if name in QUIET and args: return told(args[0])
        return f"{name.replace('_', ' ') if method else name}({', '.join(map(told, args[:1] if method else args))})"
    return ast.unparse(node)

def short(text:str, most:int=64)->str: return text if len(text) <= most else text[:most - 4].rsplit(" ", 1)[0] + " ..."

def operands_of(node):
    if isinstance(node, ast.Call): return [*([node.func.value] if isinstance(node.func, ast.Attribute) else []), *node.args]
    return dict(BinOp=["left", "right"], UnaryOp=["operand"], Subscript=["value"]).get(type(node).__name__) and [
        getattr(node, k) for k in dict(BinOp=["left", "right"], UnaryOp=["operand"], Subscript=["value"])[type(node).__name__]] or (
        [node.left, *node.comparators] if isinstance(node, ast.Compare) else node.values if isinstance(node, ast.BoolOp) else [])

@dataclass(frozen=True)
class Step:
    node:ast.AST
    text:str    # as one says it
    inside:str  # the function that it stands in; "" for the reference itself
    depth:int   # how many calls below the reference
    name:str    # of a variable, else ""
    parts:list[str] # its operands, as one says them
    parent:str  # what it is a part of
    number:int
    axis:bool   # it is that of a sum, say

class _Marks(ast.NodeTransformer): # every expression of a function becomes a call of `_step` with its number
    def __init__(self, steps, tree, names, known, *place):
        self.steps, self.names, self.known, self.place, self.whole = steps, names, known, place, {}
        self.texts = {id(x): short(told(x)) for x in ast.walk(tree) if isinstance(x, ast.expr)}  # before they are marked
        self.parents = {id(x): y for y in ast.walk(tree) for x in ast.iter_child_nodes(y)}
        self.texts |= {id(x.value): f"{x.arg} = {x.value.value}" for x in ast.walk(tree) if isinstance(x, ast.keyword) and isinstance(x.value, ast.Constant)
                       and x.arg and x.arg not in ("dim", "axis")}
    def text(self, node): return self.texts.get(id(node)) or short(told(node))
    def mark(self, old, fn, *operands, keywords=(), name=""):
        up = self.parents.get(id(old))
        while up is not None and not (isinstance(up, ast.expr) and not isinstance(up, (ast.Tuple, ast.Slice, ast.Starred))): up = self.parents.get(id(up))
        self.whole[id(old)] = len(self.steps), id(up)
        self.steps.append(Step(old, self.text(old), *self.place, name, [self.text(x) for x in operands_of(old)], up and self.text(up) or "", len(self.steps), isinstance(
            up, ast.Call) and isinstance(up.func, ast.Attribute) and up.func.attr in AXES or any(isinstance(x, ast.keyword) and x.arg in ("dim", "axis") and x.value is old for x in (
            up.keywords if isinstance(up, ast.Call) else ()))))
        return ast.Call(ast.Name("_step", ast.Load()), [ast.Constant(len(self.steps) - 1), fn, *operands], [*keywords])
    def table(self, op): # an operator by its name in the twin's globals
        return ast.Name("_" + type(op).__name__, ast.Load())
    def visit_Name(self, node):
        return self.mark(node, ast.Constant(None), node, name=node.id) if (
            isinstance(node.ctx, ast.Load) and node.id in self.names) else node
    def visit_Constant(self, node):
        return self.mark(node, ast.Constant(None), node) if type(node.value) in (int, float, bool) else node
    def visit_Attribute(self, node):
        if not isinstance(node.ctx, ast.Load): return node
        base = node
        while isinstance(base, ast.Attribute): base = base.value
        if isinstance(base, ast.Name) and base.id not in self.names: return node     # torch.long
        inner = node.value if isinstance(node.value, ast.Name) else self.visit(node.value)
        return self.mark(node, ast.Constant(None), ast.Attribute(inner, node.attr, ast.Load()), name=ast.unparse(node))
    def visit_BinOp(self, node):
        if type(node.op) not in BINARY: return self.generic_visit(node)
        return self.mark(node, self.table(node.op), self.visit(node.left), self.visit(node.right))
    def visit_UnaryOp(self, node):
        if isinstance(node.operand, ast.Constant) or type(node.op) not in UNARY: # -1 is a number
            return self.mark(node, ast.Constant(None), node) if isinstance(node.operand, ast.Constant) else self.generic_visit(node)
        return self.mark(node, self.table(node.op), self.visit(node.operand))
    def visit_Compare(self, node):
        if len(node.ops) > 1: # a < b < c
            both = [node.left, *node.comparators]
            return self.visit(ast.BoolOp(ast.And(), [ast.Compare(a, [op], [b]) for a, op, b in zip(both, node.ops, both[1:])]))
        return self.mark(node, self.table(node.ops[0]), self.visit(node.left), self.visit(node.comparators[0]))
    def visit_BoolOp(self, node):
        bare = ast.arguments([], [], None, [], [], None, [])
        return self.mark(node, self.table(node.op), *[ast.Lambda(bare, self.visit(x)) for x in node.values])
    def visit_Subscript(self, node):
        if not isinstance(node.ctx, ast.Load): return ast.Subscript(node.value, self.visit(node.slice), node.ctx)
        return self.mark(node, ast.Name("_getitem", ast.Load()), self.visit(node.value), self.visit(node.slice))
    def visit_Slice(self, node):
        if not any((node.lower, node.upper, node.step)): return ast.Call(ast.Name("slice", ast.Load()), [ast.Constant(None)], [])
        return ast.Call(ast.Name("slice", ast.Load()), [x and self.visit(x) or ast.Constant(None) for x in (
            node.lower, node.upper, node.step)], [])
    def visit_Call(self, node):
        f, args = node.func, [self.visit(x) for x in node.args]
        if isinstance(f, ast.Name) and f.id in ("super", "locals", "isinstance", "type", "zip", "enumerate", "range", "print"):
            return ast.Call(f, args, [self.visit(x) for x in node.keywords])
        base = f
        while isinstance(base, ast.Attribute): base = base.value
        keys = [self.visit(x) for x in node.keywords]
        if isinstance(f, ast.Attribute) and not (isinstance(base, ast.Name) and base.id in self.known):
            inner = f.value if isinstance(f.value, ast.Name) else self.visit(f.value)
            return self.mark(node, ast.Constant(f.attr), inner, *args, keywords=keys)
        return self.mark(node, f if isinstance(f, (ast.Name, ast.Attribute)) else self.visit(f), *args, keywords=keys)
    def visit_JoinedStr(self, node): return node
    def visit_Raise(self, node): return node
    def visit_Assert(self, node): return node
    def visit_arguments(self, node): return node
    def visit_AnnAssign(self, node): return ast.Assign([node.target], self.visit(node.value)) if node.value else node
    def visit_FunctionDef(self, node): return ast.FunctionDef(
        node.name, node.args, [self.visit(x) for x in node.body], [], None, lineno=0, type_params=[])

def tree_of(fn:types.FunctionType)->ast.AST|None: # its def or lambda
    try: text = textwrap.dedent(inspect.getsource(fn)).strip()
    except (OSError, TypeError): return None
    for form in ("{}", "({})", "f({})", "{{{}}}", "f({}", "f({})]"):
        try: tree = ast.parse(form.format(text.rstrip().rstrip(",")))
        except SyntaxError: continue
        kind = ast.Lambda if fn.__name__ == "<lambda>" else ast.FunctionDef
        found = [x for x in ast.walk(tree) if isinstance(x, kind) and (kind is ast.Lambda or x.name == fn.__name__)
                 and [a.arg for a in x.args.args] == [*fn.__code__.co_varnames[:fn.__code__.co_argcount]]]
        same = found if len(found) < 2 or kind is not ast.Lambda else [x for x in found if compile(
            ast.fix_missing_locations(ast.Expression(x)), "", "eval").co_consts[0].co_code == fn.__code__.co_code]
        return same[0] if len(same) == 1 else None
    return None

def copied(args):
    from rlhf_nb.book.checks import copy_argument
    return tuple(map(copy_argument, args))

class Steps:
    "A twin of a reference, of which a step can be changed: `run(args, {number: change})`."
    def __init__(self, reference:Callable, deep:int=2): # how many calls below it, too
        self.steps, self.twins, self.deep, self.means, self.up = [], {}, deep, {}, {} # means: a variable -> what it is; up: a step -> the one that it is a part of
        self.home = {(getattr(reference, "__module__", None) or "").split(".")[0], "rlhf_nb"}
        self.changes, self.kept, self.until, self.at, self.env, self.latest, self.last, self.trace, self.trace_kept, self.n_run = {}, {}, 0, 0, {}, {}, {}, None, [], 0
        self.first, self.in_place, self.reference, self.top = {}, False, reference, reference
    def twin(self, fn, depth=0):
        if not isinstance(fn, types.FunctionType): return fn
        if fn in self.twins: return self.twins[fn]
        self.twins[fn] = fn
        home = (getattr(fn, "__module__", None) or "").split(".")
        if home[0] not in self.home or fn is not self.top and (depth > self.deep or fn in (_all, _any) or home[-1] == "checks"): return fn
        tree, shut = tree_of(fn), inspect.getclosurevars(fn).nonlocals if fn.__closure__ else {}
        if tree is None: return fn
        if isinstance(tree, ast.FunctionDef) and not any(isinstance(x, ast.Return) and x.value for x in ast.walk(tree)): return fn # it only checks
        if any(isinstance(x, (ast.Yield, ast.YieldFrom, ast.Await, ast.Nonlocal, ast.Global)) for x in ast.walk(tree)): return fn
        code = [x for x in ast.walk(tree)]
        names = {x.arg for x in code if isinstance(x, ast.arg)} | {x.id for x in code if isinstance(x, ast.Name) and not isinstance(
            x.ctx, ast.Load)} | {k for k, v in shut.items() if not callable(v)}
        space = dict(fn.__globals__) | shut | {"_step": self.step, "_getitem": operator.getitem, "_And": _all, "_Or": _any} | {
            f"_{k.__name__}": f for row in (BINARY, COMPARED, UNARY) for k, (_, f) in row.items()}
        known = {k for k, v in space.items() if isinstance(v, types.ModuleType)} - names
        callables = {x.func.id for x in code if isinstance(x, ast.Call) and isinstance(x.func, ast.Name)}
        marks = _Marks(self.steps, tree, names - callables, known, "" if fn is self.top else fn.__name__.strip("_"), depth)
        self.in_place |= any(isinstance(x, (ast.Subscript, ast.Attribute)) and not isinstance(x.ctx, ast.Load) or isinstance(x, ast.Call)
                             and isinstance(x.func, ast.Attribute) and (x.func.attr.endswith("_") or x.func.attr in ("sort", "pop", "remove", "extend", "insert")) for x in code)
        means = {x.targets[0].id: short(told(x.value), 50) for x in code if isinstance(x, ast.Assign) and isinstance(x.targets[0], ast.Name)}
        once = [x.id for x in code if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]
        self.means |= {k.strip("_"): v for k, v in means.items() if once.count(k) == 1 and "..." not in v}
        try:
            new = marks.visit(tree)
            if isinstance(new, ast.Lambda): new = ast.Assign([ast.Name("_made", ast.Store())], new)
            exec(compile(ast.fix_missing_locations(ast.Module([new], [])), "<twin>", "exec"), space)
        except (SyntaxError, TypeError, ValueError, NameError): return fn
        self.up |= {i: marks.whole[above][0] for i, above in marks.whole.values() if above in marks.whole}
        made = space["_made" if fn.__name__ == "<lambda>" else fn.__name__]
        made.__defaults__, made.__kwdefaults__ = fn.__defaults__, fn.__kwdefaults__
        self.twins[fn] = made
        return made
    def step(self, i, fn, *args, **kwargs):
        p, self.at = self.at, self.at + 1
        change = self.changes.get(i)
        self.n_run += .2 if fn is None else 0
        if fn is None:
            if (name := self.steps[i].name): self.env[name] = args[0]
            out = args[0] if change is None else change(None, args, kwargs)
        else:
            if p < self.until and (known := self.kept.get(p)) and known[1] <= self.until:
                self.at, self.last[i] = known[1], known[0]
                return known[0]
            if fn == "sum": self.latest[i] = args[0]
            self.n_run += 1
            out = self.do(i, fn, *args, **kwargs) if change is None else change(
                lambda *a, **k: self.do(i, fn, *a, **k), args, kwargs)
        self.last[i] = out
        if self.trace is not None:
            self.first.setdefault(i, p)
            self.trace.append((i, fn, args, kwargs, out))
            if fn is not None and isinstance(out, (Tensor, float)): self.kept[p] = out, self.at
        return out
    def do(self, i, fn, *args, **kwargs):
        if isinstance(fn, str): fn, args = getattr(args[0], fn), args[1:]
        f = getattr(fn, "__func__", fn)
        if isinstance(f, types.FunctionType) and not isinstance(getattr(fn, "__self__", None), torch.nn.Module):
            twin = self.twin(f, self.steps[i].depth + 1)
            if twin is f: self.n_run += 30                 # it may cost much
            else: fn = twin if f is fn else types.MethodType(twin, fn.__self__)
        if isinstance(fn, torch.nn.Module): self.n_run += 80
        return fn(*args, **kwargs)
    def record(self, args): # what comes out; each step that is taken: [(number, fn, args, kwargs, out)]
        self.kept, self.first, self.trace, self.env = {}, {}, [], {}
        try: out = self.run(args)
        finally: trace, self.trace = self.trace, None
        self.trace_kept = trace
        if self.in_place: self.kept = {}
        return out, trace
    def defaults(self): # of the reference
        try: return {k: p.default for k, p in inspect.signature(self.reference).parameters.items() if p.default is not p.empty}
        except (TypeError, ValueError): return {}
    def run(self, args, changes={}, again=False): # again: with the arguments that were recorded
        self.last = {}
        self.changes, self.at, self.until = changes, 0, min((self.first.get(i, 0) for i in changes), default=0) if again else 0
        return self.twin(self.reference)(*args)

def _all(*parts): return next((x for x in (f() for f in parts) if not x), True)
def _any(*parts): return next((x for x in (f() for f in parts) if x), False)

# ---- what else a step could do

CHANGED = [ # of a step: names that may stand for each other
    "sum mean amax amin prod std median argmax", "max min", "maximum minimum", "any all", "exp log log1p expm1 abs square sqrt", "argmax argmin",
    "floor ceil round trunc", "softmax log_softmax", "logsigmoid sigmoid softplus", "zeros_like ones_like", "zeros ones", "cumsum cumprod",
    "std var", "lower upper", "startswith endswith", "append extend", "minimum fmin", "logsumexp amax sum mean", "sorted reversed list"]
CHANGED = {k: [x for row in CHANGED for x in row.split() if k in row.split() and x != k] for row in CHANGED for k in row.split()}
FREE = dict(softmax=torch.softmax, log_softmax=torch.log_softmax, logsigmoid=torch.nn.functional.logsigmoid, softplus=torch.nn.functional.softplus, sorted=sorted,
            reversed=lambda x, **k: [*x][::-1], list=lambda x, **k: [*x], max=max, min=min, any=any, all=all)

def _alike(a, b): # may one stand for the other?
    if isinstance(a, Tensor): return isinstance(b, Tensor) and a.shape == b.shape and (a.dtype == torch.bool) == (b.dtype == torch.bool)
    return type(a) is type(b) and not callable(a)

def operation_changes(step, fn, args, kwargs, out): # yields a sentence, and a function of (do, args, kwargs)
    text, p = step.text, [*step.parts, "...", "..."]
    name = fn if isinstance(fn, str) else getattr(fn, "__name__", "").strip("_")
    def other(f): return lambda do, a, k: f(*a, **k)
    if fn in SIGN and len(args) == 2:
        row = COMPARED if isinstance(step.node, ast.Compare) else BINARY
        alike = next(x for x in ("< <= > >= = ≠", "is is not", "in not in", "+ - x / ^", "and or xor", SIGN[fn]) if f" {SIGN[fn]} " in f" {x} ")
        for sign, f in row.values():
            if f is not fn and f" {sign} " in f" {alike} " and sign != "^": yield f"{p[0]} {sign} {p[1]} stands where {text} should", other(f)
        if row is BINARY:
            if isinstance(args[0], Tensor) and isinstance(args[1], Tensor):
                for word in ("exp", "log", "sigmoid"): yield f"{word} of both parts of {text} is taken", lambda do, a, k, f=getattr(torch, word): do(f(a[0]), f(a[1]))
            for i in (0, 1): yield f"{p[i]} is missing in {text}: only {p[1 - i]} is there", lambda do, a, k, i=i: a[1 - i]
            if SIGN[fn] in "-/^": yield f"{text} is turned around: {p[1]} {SIGN[fn]} {p[0]}", lambda do, a, k: do(a[1], a[0])
    elif isinstance(step.node, ast.UnaryOp): yield (f"the sign of {p[0]} is turned" if name == "neg" else f"{p[0]} is upside down"), lambda do, a, k: a[0]
    elif fn in (_all, _any):
        yield f"{' or '.join(step.parts)} stands where {text} should" if fn is _all else f"{' and '.join(step.parts)} stands where {text} should", other(
            _any if fn is _all else _all)
        for i in range(len(args)): yield f"{p[i]} is not asked in {text}", lambda do, a, k, i=i: do(*a[:i], *a[i + 1:])
    elif name == "getitem":
        if isinstance(args[1], (slice, tuple)) and _kind(out) == _kind(args[0]): yield f"{text}: all of {p[0]} is taken", lambda do, a, k: a[0]
    elif name == "where":
        yield f"{p[2]} stands everywhere, whether {p[1]} or not", lambda do, a, k: torch.as_tensor(a[1]).expand_as(do(*a))
        yield f"{p[3]} stands everywhere, whether {p[1]} or not", lambda do, a, k: torch.as_tensor(a[2]).expand_as(do(*a))
        yield f"{p[1]} is upside down", lambda do, a, k: do(a[0], a[2], a[1])
    elif name == "masked_fill":
        yield f"{p[0]} is not masked: {p[1]} is not used there", lambda do, a, k: a[0]
        yield f"{p[1]} is upside down, where {p[0]} is masked", lambda do, a, k: do(a[0], ~a[1], a[2])
    elif args:
        if _kind(args[0]) == _kind(out) and name != "detach": yield f"{name.replace('_', ' ')} is missing: {p[0]} stands there as it is", lambda do, a, k: a[0]
        if name == "clamp":
            for end, key in dict(lower="min", upper="max").items(): yield f"{text}: the {end} end is missing", lambda do, a, k, key=key: do(
                a[0], **dict(zip(("min", "max"), a[1:]), **k) | {key: None})
            yield f"{text}: the ends are exchanged", lambda do, a, k: do(a[0], **dict(zip(("max", "min"), [*a[1:], k.get("min"), k.get("max")])))
        for x in CHANGED.get(name, ()):
            if isinstance(fn, str): f = FREE.get(x) or REDUCED.get(x, x)
            else: f = FREE.get(x) or REDUCED.get(x) or getattr(torch, x, None)
            if f is not None: yield f"{x} stands where {name} should, in {text}", lambda do, a, k, f=f: getattr(a[0], f)(*a[1:], **k) if isinstance(
                f, str) else f(*a, **k)
        if name in ("std", "var"): yield f"{name} of {p[0]} is that of n, not of n - 1", lambda do, a, k: do(*a, **k | dict(correction=0))
        if isinstance(args[0], Tensor) and isinstance(out, Tensor) and out.ndim < args[0].ndim:
            for axis in range(args[0].ndim): yield f"{name} of {p[0]} is over axis {axis}", lambda do, a, k, axis=axis: do(
                a[0], *[axis] * bool(len(a) > 1), *a[2:], **k | ({"dim": axis} if "dim" in k else {}))
            yield f"{name} of {p[0]} is over all", lambda do, a, k: do(a[0]).expand_as(do(*a, **k))
        if len(args) == 2 and _alike(*args): yield f"{p[0]} and {p[1]} are exchanged in {text}", lambda do, a, k: do(a[1], a[0], **k)

def _kind(x): return ("tensor", x.shape, x.dtype == torch.bool) if isinstance(x, Tensor) else type(x)

def value_changes(step, x): # yields a sentence with {}, and a function of the value
    if isinstance(x, bool):
        yield "{} is upside down", operator.not_
        yield "{} is not asked: as if it always held", lambda x: True
        yield "{} is not asked: as if it never held", lambda x: False
    elif isinstance(x, int):
        if isinstance(step.node, (ast.Constant, ast.UnaryOp)):
            for y in dict.fromkeys((x + 1, x - 1, 0, -x, 2 * x)):
                if y != x: yield (f"{step.parent} runs over axis {y}, not {x}" if step.axis else f"{y} stands where {x} should, in {step.parent}"), lambda x, y=y: y
        else: yield from {"{} is one less": lambda x: x - 1, "{} is one more": lambda x: x + 1, "{} is not used: as if it were 1": lambda x: 1,
                          "{} is not used: as if it were 0": lambda x: 0}.items()
    elif isinstance(x, float):
        for words, f in NUMBERS.items(): yield words, lambda x, f=f: f(torch.tensor(x, dtype=torch.float64)).item()
        yield "1 less {} stands for it", lambda x: 1 - x
    elif isinstance(x, str): yield from {"{} is in small letters": str.lower, "{} is stripped of space": str.strip}.items()
    elif isinstance(x, list): yield from {"{} is reversed": lambda x: x[::-1], "the first of {} is left out": lambda x: x[1:],
        "the last of {} is left out": lambda x: x[:-1], "of {} only the first is there": lambda x: x[:1], "of {} only the last is there": lambda x: x[-1:],
        "{} is sorted": sorted}.items()
    elif isinstance(x, Tensor):
        if x.dtype == torch.bool: yield from (MASKS if x.ndim > 1 else TRUTHS).items()
        elif x.is_floating_point(): yield from (NUMBERS | (PLACES | MEANT | SPREADS if x.ndim else {})).items()
        elif x.ndim: yield from INDICES.items()

EPS = (1e-12, 1e-10, 1e-8, 1e-6, 1e-4)

def term_changes(step, x, others): # a factor or term too many; others: text -> (name in env, value)
    "What else could be in a number: another input as a factor, a small number against 0."
    for text, (name, y) in others.items():
        if isinstance(y, bool) or text == step.text: continue
        if isinstance(y, (int, float)) or isinstance(y, Tensor) and not y.ndim and y.is_floating_point():
            yield f"{{}} is multiplied by {text}", lambda v, e, n=name: v * e[n]
            yield f"{{}} is divided by {text}", lambda v, e, n=name: v / e[n]
            if not isinstance(y, int): yield f"{{}} is multiplied by 1 - {text}", lambda v, e, n=name: v * (1 - e[n])
        elif isinstance(y, Tensor) and y.shape == x.shape and y.ndim:
            if y.dtype == torch.bool:
                yield f"outside of {text} {{}} is 0", lambda v, e, n=name: v.where(e[n], 0.)
                if y.ndim > 1: yield f"of {{}} only the last of each row counts, by {text}", lambda v, e, n=name: v.where(MASKS[LAST](e[n]), 0.)
                if y.ndim > 1: yield f"of {{}} only the first of each row counts, by {text}", lambda v, e, n=name: v.where(MASKS[FIRST](e[n]), 0.)
            elif y.is_floating_point():
                yield f"{text} is added to {{}}", lambda v, e, n=name: v + e[n]
                yield f"{text} is subtracted from {{}}", lambda v, e, n=name: v - e[n]
                yield f"{{}} is multiplied by {text}", lambda v, e, n=name: v * e[n]
                yield f"{{}} is multiplied by exp of {text}", lambda v, e, n=name: v * e[n].exp()
    if isinstance(x, Tensor) and bool((x == 0).any()):
        for eps in EPS:
            yield f"{eps:g} is added to {{}}", lambda v, e, eps=eps: v + eps
            yield f"{{}} is cut off below {eps:g}", lambda v, e, eps=eps: v.clamp(min=eps)
LAST, FIRST = "of {} only the last True of each row counts", "of {} only the first True of each row counts"

def mean_changes(steps, i, seen, made): # of a sum over a sum: other means; made: id of a value -> the step that gave it
    fn, args, _, out = seen[i]
    if fn is not operator.truediv or not all(isinstance(x, Tensor) and not x.ndim for x in args): return
    sources = [seen[made[id(x)]] if id(x) in made else None for x in args]
    if not all(x and x[0] == "sum" and isinstance(x[1][0], Tensor) and x[1][0].ndim == 2 for x in sources): return
    total, count = [made[id(x)] for x in args]
    if sources[0][1][0].shape != sources[1][1][0].shape: return
    kept = steps.latest
    text = steps.steps[i].text
    def of(f): return lambda do, a, k: f(kept[total], kept[count])
    yield f"the mean of each row's mean stands where {text} should", of(lambda x, m: (x.sum(1) / m.sum(1).clamp(min=1)).mean())
    yield f"the mean over all entries stands where {text} should: mask and pads count", of(lambda x, m: x.mean())
    yield f"{text}: divided by the number of rows", of(lambda x, m: x.sum() / len(x))

def all_changes(steps, trace): # yields number of a step, sentence, change; likely ones first, None behind them
    seen, named, made = {}, {}, {}
    for i, fn, args, kwargs, out in trace:
        seen.setdefault(i, (fn, args, kwargs, out))
        if fn is not None: made.setdefault(id(out), i)
    for i, (fn, args, _, out) in seen.items():
        if fn is None and steps.steps[i].name: named.setdefault(steps.steps[i].name, (steps.steps[i].text, out))
    rows = sorted(seen.items(), key=lambda x: steps.steps[x[0]].depth)
    def at(i): return f" (in {steps.steps[i].inside})" * bool(steps.steps[i].inside)
    for i, (fn, args, kwargs, out) in rows:
        if fn is not None:
            for words, f in itertools.chain(operation_changes(steps.steps[i], fn, args, kwargs, out), mean_changes(steps, i, seen, made)): yield i, words + at(i), f
    def values(words, step): return (words if "{}" not in words else words.format(step.text) + (
        f", in {step.parent}" if seen[step.number][0] is None and step.parent else "")) + at(step.number)
    for name, default in steps.defaults().items(): # it is used although another one is given
        for i, (fn, args, _, out) in rows:
            step = steps.steps[i]
            if step.name == name and not step.inside and _alike(default, out): yield i, f"{name} is not used: as if it were always {default}", (
                lambda do, a, k, default=default: default)
    for i, (fn, _, _, out) in rows: # another variable
        step = steps.steps[i]
        for name, (text, x) in named.items() if step.name else ():
            if text != step.text and _alike(x, out): yield i, f"{text} stands where {step.text} should, in {step.parent or 'the result'}" + at(i), (
                lambda do, a, k, name=name: steps.env[name])
    def each(i):
        for words, f in value_changes(steps.steps[i], seen[i][3]): yield i, values(words, steps.steps[i]), lambda do, a, k, f=f: f(do(*a, **k) if do else a[0])
    def terms(i):
        out = seen[i][3]
        if not (isinstance(out, float) or isinstance(out, Tensor) and out.is_floating_point()): return
        given = {text: (name, x) for name, (text, x) in named.items() if not steps.steps[i].inside}
        for words, f in term_changes(steps.steps[i], torch.as_tensor(out), given): yield i, values(words, steps.steps[i]), (
            lambda do, a, k, f=f: f(do(*a, **k) if do else a[0], steps.env))
    def results(i): # of another step
        if not isinstance(seen[i][3], Tensor) or not seen[i][3].ndim: return
        for j, (fn, _, _, out) in rows:
            if j < i and fn is not None and out is not seen[i][3] and _alike(out, seen[i][3]): yield i, (
                f"{steps.steps[j].text} stands where {steps.steps[i].text} should, in {steps.steps[i].parent or 'the result'}" + at(i)), lambda do, a, k, j=j: steps.last[j]
    yield None, "", None
    ways = [each(i) for i, _ in rows] + [terms(i) for i, _ in rows] + [results(i) for i, _ in rows]
    for row in itertools.zip_longest(*ways): yield from filter(None, row)

# ---- the search

def find_step(
    reference:Callable, cases:dict[str,tuple], # what is right, and its arguments
    calls:dict, wants:dict, wrong:list[str],   # case -> what the answer did, and should have; where that is not the same
    call:Callable, match:Callable, leaves:Callable, # a recorded call; whether two values are the same; their parts by path
    names:list[str]=(), most:int=30_000, # of the arguments; operations, below a second: the same answer always gets the same words
)->tuple: # a sentence, the smallest case that is wrong; or ()
    "The first step of the reference that, done otherwise, does what the answer did, in all cases; or two steps."
    def size(k): return bool(calls[k].error or wants[k].error), sum(x.numel() for x in cases[k] if isinstance(x, Tensor))
    order = sorted(cases, key=lambda k: (k not in wrong, size(k)))
    first, steps = order[0], Steps(reference)
    sound = [k for k in cases if not (calls[k].error or wants[k].error)]
    parts = {k: (leaves(calls[k].out), leaves(wants[k].out)) for k in sound}
    paths = [*dict.fromkeys(p for a, b in parts.values() if a.keys() == b.keys() for p in a if not match(a[p], b[p]))]
    some = bool(sound) and all(a.keys() == b.keys() for a, b in parts.values()) and 0 < len(paths) < max(len(b) for _, b in parts.values()) and (
        not any(isinstance(wants[k].out, list) for k in sound)) and {*wrong} <= {*sound}
    def equal(k, out):
        if not some: return match(out, calls[k].out)
        made = leaves(out)
        return all(p in made and match(made[p], parts[k][0][p]) for p in paths if p in parts[k][0])
    def numbers(pairs): return sum(x.numel() if isinstance(x, Tensor) else 1 for a, b in pairs for x in (a, b))
    seen = [(a[p], b[p]) for k in sound for a, b in [parts[k]] for p in paths if p in a and p in b and not match(a[p], b[p])]
    real = bool(seen) and all(isinstance(x, float) or isinstance(x, Tensor) and x.is_floating_point() for pair in seen for x in pair)
    if numbers(seen) < 6 and numbers((x, x) for k in sound for x in parts[k][1].values()) < 24 if real else len(cases) < 5 or len(wrong) < 2: return () # luck
    value = first in sound and not equal(first, wants[first].out) # else only a gradient is wrong, or an error
    def fits(changes): # 2: in values and gradients, 1: in values
        level = 2
        for k in order:
            c = call(lambda *a: steps.run(a, changes), cases[k], False)
            if c.error != calls[k].error or not (c.error or equal(k, c.out)): return 0
            if not some and not match(c.gradients, calls[k].gradients): level = 1
            if level == 1 and not value: return 0
        return level
    def agrees(changes):
        try: out = steps.run(copied(given) if steps.in_place else given, changes, True)
        except Exception as e: return type(e).__name__ == calls[first].error, None
        return not calls[first].error and equal(first, out), out
    def whole_times(changes, times):
        def one(k):
            c = call(lambda *a: steps.run(a, changes), cases[k], False)
            return c.error == calls[k].error and (bool(c.error) or match(times * c.out, calls[k].out))
        return not some and all(map(one, order))
    given = copied(cases[first])
    with torch.no_grad():
        try: steps.record(given)
        except Exception: pass
        trace, almost = steps.trace_kept, ()
        at = ", ".join("".join(f"[{k!r}]" for k in p) for p in paths)
        def say(words): # with what the reference's own variables are
            own = [f"{k} is {v}" for k, v in steps.means.items() if re.search(rf"\b{k}\b", words) and k not in names and v not in words][:2]
            return f"of the result {at}: " * some + words + f" ({', '.join(own)})" * bool(own)
        tried, near, either, i_of, goal = [], [], {}, {}, calls[first].out
        def left(): return steps.n_run < most
        def whole(changes):
            with torch.enable_grad(): return fits(changes)
        for i, words, f in all_changes(steps, trace) if value or first not in sound else detached(steps, trace):
            if not left(): break
            if i is None: # the likely ones are done: two of them, at a step and at the one that it is a part of
                local = {}
                for j, w, g in tried: local.setdefault(j, []).append((w, g))
                until = steps.n_run + most / 3
                for (w, g), above, (v, h) in ((x, steps.up[j], y) for j in local if steps.up.get(j) in local for x in local[j][:8] for y in local[steps.up[j]][:8]):
                    if steps.n_run > until or not value or either: break
                    if agrees({i_of[w, id(g)]: g, above: h})[0] and whole({i_of[w, id(g)]: g, above: h}) == 2: return say(f"two slips: {w}; and {v}"), first
                continue
            i_of[words, id(f)] = i
            tried.append((i, words, f))
            if value or first not in sound:
                fit, out = agrees({i: f})
                if not fit:
                    if times := factor(out, goal, wants[first].out):
                        if whole_times({i: f}, times): return say(f"{words}; and besides " + (
                            "the sign is turned" if times == -1 else f"what comes back is {times:.4g} times that")), first
                    if (share := shared(out, goal, wants[first].out)) > 0: near.append((share, i, words, f))
                    continue
            level = whole({i: f})
            if level == 2 and (real or not value): return say(words), first
            if level == 2: either.setdefault(i, words) # few bits: more than one may fit
            elif level and not almost: almost = words + ", and the gradient is another one, too", first
            if not level: near.append((1., i, words, f))
        if either: return (say(", or ".join(either.values())), first) if len(either) < 4 else ()
        if almost or not value: return almost
        for _, i, words, f in sorted(near, key=lambda x: -x[0])[:3]: # what explains a part, and another one
            for j, v, g in tried:
                if not left(): break
                if i != j and agrees({i: f, j: g})[0] and whole({i: f, j: g}) == 2: return say(f"two slips: {words}; and {v}"), first
        if words := made_of(steps, {k: cases[k] for k in order if k in sound}, [{k: parts[k][0].get(p) for k in order if k in sound} for p in (paths or [()])], match, names):
            return say(words), first
    return ()

ONE = {"{}": lambda x: x, "exp of {}": torch.exp, "the logarithm of {}": torch.log, "{} squared": torch.square, "the root of {}": torch.sqrt,
       "minus {}": torch.neg, "σ of {}": torch.sigmoid, "log σ of {}": torch.nn.functional.logsigmoid, 
       "the absolute value of {}": torch.abs, "the mean of {}": lambda x: x.mean(), "the sum of {}": lambda x: x.sum(), "the mean of {} over each row": lambda x: x.mean(-1, True),
       "the sum of {} over each row": lambda x: x.sum(-1, True), "the length of {}": lambda x: torch.tensor(float(x.shape[-1])),
       "the logarithm of the length of {}": lambda x: torch.tensor(float(x.shape[-1])).log()}

def quantities(steps, args, names): # text -> number or tensor: what a task gives, and what the reference makes of it
    from rlhf_nb.book.changes import named_leaves, spoken
    found = {spoken(p, names): x for p, x in named_leaves(args).items() if not isinstance(x, torch.nn.Parameter)}
    try: out, trace = steps.record(args)
    except Exception: out, trace = None, steps.trace_kept
    last = {i: x for i, fn, _, _, x in trace if fn is not None or steps.steps[i].name}
    for i, x in last.items(): found.setdefault(steps.steps[i].text, x)
    found = {"the right result": out} | found
    return {k: x if isinstance(x, Tensor) else torch.tensor(float(x)) for k, x in found.items() if isinstance(x, (Tensor, float, int)) and "..." not in k}

def made_of(steps, cases, targets, match, names): # a result, or one part after the other: case -> what came out
    "Two quantities that make what came back, by + - x /; or one, by a function."
    said = []
    known = {k: quantities(steps, copied(args), names) for k, args in cases.items()}
    for target in targets:
        k = next((k for k, x in target.items() if isinstance(x, (float, Tensor))), None)
        if k is None: return ""
        def entries(x, like, at): # at a few places of the result, if it goes with it
            try: return x.detach().double().expand(like.shape)[at] if x.ndim <= like.ndim else None
            except RuntimeError: return None
        like = torch.as_tensor(target[k])
        if not like.is_floating_point(): return ""
        flat = torch.arange(like.numel())[torch.linspace(0, like.numel() - 1, min(6, like.numel())).long()] if like.numel() else []
        if not len(flat): return ""
        at = tuple(torch.unravel_index(flat, like.shape)) if like.ndim else ()
        rows, texts = [], []
        for text, x in known[k].items():
            for form, f in ONE.items():
                if x.dtype == torch.bool and form not in ("{}", "the sum of {}", "the sum of {} over each row") or not x.ndim and "of" in form and form[:4] == "the " and ("mean" in form or "sum" in form or "length" in form): continue
                try: y = f(x.double())
                except (RuntimeError, IndexError): continue
                e = entries(y, like, at)
                if e is not None: rows.append(e.flatten()), texts.append((text, form))
        if not rows: return ""
        v, goal = torch.stack(rows), like.double()[at].flatten()
        def near(x): return (torch.isclose(x, goal, 1e-4, 1e-6, equal_nan=True)).all(-1)
        def value(k, pair):
            text, form = pair
            return ONE[form](known[k][text].double())
        def holds(f): # in all cases
            def one(k):
                try: return match(f(k).to(torch.as_tensor(target[k]).dtype).expand(torch.as_tensor(target[k]).shape), torch.as_tensor(target[k]))
                except (KeyError, IndexError, RuntimeError): return False
            return all(map(one, target))
        def word(pair): return pair[1].format(pair[0])
        found = ""
        for i in near(v).nonzero().flatten().tolist():
            if holds(lambda k: value(k, texts[i])): found = found or word(texts[i])
        tries = 0
        for sign, f in (("-", torch.sub), ("+", torch.add), ("x", torch.mul), ("/", torch.div)):
            for i, j in near(f(v[:, None], v)).nonzero().tolist() if not found else ():
                if sign in "+x" and i > j: continue
                tries += 1
                if tries > 60: break
                if holds(lambda k: f(value(k, texts[i]), value(k, texts[j]))):
                    found = f"{word(texts[i])} {sign} {word(texts[j])}"
                    break
        if not found: return ""
        said.append(found)
    return "what comes back is " + " and ".join(said)

def factor(out, goal, want): # what the one is times the other, if that is one number and not the right result
    if not all(isinstance(x, (float, Tensor)) for x in (out, goal, want)): return 0
    out, goal, want = (torch.as_tensor(x).detach() for x in (out, goal, want))
    if not (out.shape == goal.shape == want.shape and out.is_floating_point() and out.numel()): return 0
    times = (goal / out).flatten()
    times = times[~times.isnan()]
    if not len(times) or not times.isfinite().all() or (times - times[0]).abs().max() > 1e-4 * times[0].abs(): return 0
    c = times[0].item()
    if (out.numel() < 3 or len(times) < 3) and min(abs(c - x) for x in (-1, .5, 2, -.5, -2)) > 1e-4: return 0
    return 0 if abs(c - 1) < 1e-4 or torch.allclose(out.double(), want.double()) else -1 if abs(c + 1) < 1e-4 else c

def shared(out, goal, want)->float: # of what is wrong, the share that is explained
    if not all(isinstance(x, Tensor) and x.is_floating_point() for x in (out, goal, want)) or not out.shape == goal.shape == want.shape or out.numel() < 4: return 0.
    bad = ~torch.isclose(goal, want, 1e-4, 1e-6, equal_nan=True)
    now = torch.isclose(out, goal, 1e-4, 1e-6, equal_nan=True)
    return float((now & bad).sum() / bad.sum().clamp(min=1)) * bool(now[~bad].all())

def detached(steps, trace): # where only gradients differ
    seen = {}
    for i, fn, args, _, out in trace:
        if i in seen or not isinstance(out, Tensor) or not out.is_floating_point(): continue
        seen[i] = text = steps.steps[i].text
        if fn == "detach": yield i, f"a gradient flows through {steps.steps[i].parts[0]}: detach it", lambda do, a, k: a[0]
        else: yield i, f"no gradient flows through {text}: it is detached", lambda do, a, k: (do(*a, **k) if do else a[0]).detach()

def other_default(answer, exercise, wrong)->str: # of an argument that no wrong case gives
    try: own, ours = (list(inspect.signature(f).parameters.values()) for f in (answer, exercise.reference))
    except (TypeError, ValueError): return ""
    given = max(len(exercise.cases[k]) for k in wrong)
    return next((f"the default of {a.name} is {a.default!r}: {b.default!r} is asked for" for a, b in [*zip(own, ours)][given:]
                 if isinstance(a.default, (int, float, str)) and isinstance(b.default, (int, float, str)) and a.default != b.default), "")

def other_form(calls, wants, wrong)->str: # what every wrong case has
    def kinds(k):
        a, b = calls[k].out, wants[k].out
        if calls[k].error or wants[k].error: return ""
        if isinstance(a, str) and isinstance(b, (int, float)): return "text comes back where a number is wanted"
        if isinstance(b, str) and isinstance(a, (int, float)): return "a number comes back where text is wanted"
        if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or b.ndim < 2 or a.shape == b.shape: return ""
        if a.shape == b.shape[:-1]: return "one number for each row comes back where one for each of its places is wanted"
        return "one flat row comes back where rows are wanted: a mask as an index keeps no rows" if a.ndim == 1 < b.ndim == 2 else ""
    found = {kinds(k) for k in wrong}
    return found.pop() if len(found) == 1 else ""

def name_step(
    answer:Callable, exercise,               # of `checks.Exercise`
    calls:dict, wants:dict, wrong:list[str], # case -> what the answer did, and should have done; where that is not the same
    names:list[str], call:Callable, match:Callable, # of the arguments; how a call is recorded; whether two values are the same
)->tuple: # a sentence, the smallest case that is wrong; or ()
    "What an answer does otherwise: a default, an input, a result, else a step of the reference."
    from rlhf_nb.book.changes import find_change, named_leaves
    if words := other_default(answer, exercise, wrong) or other_form(calls, wants, wrong): return words, wrong[0]
    whole = {k: args for k, args in exercise.cases.items() if not calls[k].error and not wants[k].error}
    steps = Steps(exercise.reference)
    blind = steps.twin(exercise.reference) is exercise.reference # there is no source
    try: steps.record(copied(next(iter(whole.values()))))
    except Exception: pass                           # it raises, or there is no such case
    left = itertools.count(24_000 // max(1, int(steps.n_run)), -1)
    def bounded(*args):
        if next(left) < 0 and not blind: raise TimeoutError
        return exercise.reference(*args)
    found = {*wrong} <= {*whole} and find_change(bounded, whole, *[{k: x[k].out for k in whole} for x in (calls, wants)],
                                                 names, match, deep=blind) or ()
    def doubtful(words): # a part of what is wrong, or an argument is called unused through which a gradient flows
        parts = {p for k in wrong for a, b in [[named_leaves(x[k].out) for x in (calls, wants)]] for p in a if not match(a[p], b.get(p))}
        unused = re.search(r"(\w+) is not used|stands where (\w+) should", words)
        flows = {k for case in wrong for k, g in zip([k for k, x in zip(names, exercise.cases[case]) if getattr(x, "requires_grad", False)],
                                                     calls[case].gradients) if g.any()}
        return words.startswith("of the result [") and words.split(":")[0].count("[") < len(parts) or unused and {*unused.groups()} & flows
    if found and not doubtful(found[0]): return found
    return not blind and find_step(exercise.reference, exercise.cases, calls, wants, wrong, call, match, named_leaves, names) or found
