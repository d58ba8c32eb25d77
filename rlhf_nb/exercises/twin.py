"What a reference does step by step, from its source: a twin of it in which every step can be told to do something else."
# Every expression of its functions becomes a call that knows its place, so that one compiled twin serves all changes; what
# stands before the changed step is not computed again.
import ast, inspect, itertools, operator, re, textwrap, types
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

BINARY = {ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("x", operator.mul),
          ast.Div: ("/", operator.truediv), ast.FloorDiv: ("//", operator.floordiv), ast.Mod: ("%", operator.mod),
          ast.Pow: ("^", operator.pow), ast.MatMult: ("@", operator.matmul), ast.BitAnd: ("and", operator.and_),
          ast.BitOr: ("or", operator.or_), ast.BitXor: ("xor", operator.xor)}
COMPARED = {ast.Lt: ("<", operator.lt), ast.LtE: ("<=", operator.le), ast.Gt: (">", operator.gt),
            ast.GtE: (">=", operator.ge), ast.Eq: ("=", operator.eq), ast.NotEq: ("≠", operator.ne),
            ast.Is: ("is", operator.is_), ast.IsNot: ("is not", operator.is_not),
            ast.In: ("in", lambda a, b: a in b), ast.NotIn: ("not in", lambda a, b: a not in b)}
UNARY = {ast.USub: ("-", operator.neg), ast.Invert: ("not ", operator.invert), ast.Not: ("not ", operator.not_)}
SIGN = {f: sign for row in (BINARY, COMPARED, UNARY) for sign, f in row.values()}

# ---- a step in words

UNSAID = set("masked_fill reshape view expand expand_as unsqueeze squeeze clone to float double flatten detach get bool long "
             "item tolist contiguous list tuple as_tensor tensor at_least_float32 gather repeat type_as numpy cpu".split())
LIBRARIES = "torch", "math", "F", "re"
INDEX = r"[:, .\w]*(None|\.\.\.)[:, .\w]*|:, \w+|at|mask|kept"      # it picks places and changes no number

def called_of(node)->list: # what a call works on: x.sum(1) on x and 1, torch.sum(x, 1) too
    root = node.func
    while isinstance(root, ast.Attribute): root = root.value
    method = isinstance(node.func, ast.Attribute) and not (isinstance(root, ast.Name) and root.id in LIBRARIES)
    return [node.func.value, *node.args] if method else node.args

def told(node)->str: # an expression as one says it
    def inner(x): return f"({told(x)})" if isinstance(x, (ast.BinOp, ast.IfExp, ast.BoolOp, ast.Compare)) else told(x)
    if isinstance(node, ast.Constant): return repr(node.value)
    if isinstance(node, ast.Name): return node.id.strip("_")
    if isinstance(node, ast.Attribute): return node.attr.strip("_")
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        return f"{inner(node.left)} {BINARY[type(node.op)][0]} {inner(node.right)}"
    if isinstance(node, ast.UnaryOp): return UNARY.get(type(node.op), [""])[0] + inner(node.operand)
    if isinstance(node, ast.Compare): return inner(node.left) + "".join(
        f" {COMPARED[type(op)][0]} {inner(x)}" for op, x in zip(node.ops, node.comparators))
    if isinstance(node, ast.BoolOp): return f" {type(node.op).__name__.lower()} ".join(map(inner, node.values))
    if isinstance(node, ast.Subscript):
        at = ast.unparse(node.slice).strip("()")
        return told(node.value) + ("" if re.fullmatch(INDEX, at) else f"[{at}]")
    if isinstance(node, ast.Call):
        args, name = called_of(node), told(node.func)
        method = len(args) > len(node.args)
        if name in UNSAID and args: return told(args[0])
        return f"{name.replace('_', ' ') if method else name}({', '.join(map(told, args[:1] if method else args))})"
    return ast.unparse(node)

def short(text:str, most:int=64)->str:
    return text if len(text) <= most else text[:most - 4].rsplit(" ", 1)[0] + " ..."

def operands_of(node)->list: # the expressions that one is made of
    if isinstance(node, ast.Call): return called_of(node)
    if isinstance(node, ast.BinOp): return [node.left, node.right]
    if isinstance(node, ast.UnaryOp): return [node.operand]
    if isinstance(node, ast.Subscript): return [node.value]
    if isinstance(node, ast.Compare): return [node.left, *node.comparators]
    return node.values if isinstance(node, ast.BoolOp) else []

@dataclass(frozen=True)
class Step:
    number:int
    node:ast.AST
    name:str    # of a variable, else ""
    text:str    # as one says it
    parts:list[str] # its operands, as one says them
    parent:str  # what it is a part of
    axis:bool   # it is that of a sum, say
    inside:str  # the function that it stands in; "" for the reference itself
    depth:int   # how many calls below the reference

AXES = set("sum mean amax amin std var prod any all softmax log_softmax logsumexp cumsum cumprod argmax argmin flip sort "
           "argsort unsqueeze median cat stack".split())

def _is_axis(x, up)->bool: # of the call that it stands in
    if not isinstance(up, ast.Call): return False
    return isinstance(up.func, ast.Attribute) and up.func.attr in AXES or any(
        key.arg in ("dim", "axis") and key.value is x for key in up.keywords)

# ---- the twin

class _Marks(ast.NodeTransformer): # every expression of a function becomes a call of `_step` with its number
    def __init__(self, steps, tree, names, known, inside, depth): # its variables; modules that it uses
        self.steps, self.names, self.known, self.inside, self.depth = steps, names, known, inside, depth
        self.above = {}                          # id of an expression -> its number, id of the one around it
        nodes = [*ast.walk(tree)]
        self.parents = {id(x): up for up in nodes for x in ast.iter_child_nodes(up)}
        self.texts = {id(x): short(told(x)) for x in nodes if isinstance(x, ast.expr)}  # before they are marked
        self.texts |= {id(x.value): f"{x.arg} = {x.value.value}" for x in nodes if isinstance(x, ast.keyword)
                       and isinstance(x.value, ast.Constant) and x.arg not in (None, "dim", "axis")}
    def text(self, node): return self.texts.get(id(node)) or short(told(node))
    def mark(self, old, fn, *operands, keywords=(), name=""):
        def said(x): return isinstance(x, ast.expr) and not isinstance(
            x, (ast.Tuple, ast.Slice, ast.Starred, ast.Lambda))
        up, n = self.parents.get(id(old)), len(self.steps)
        while up is not None and not said(up): up = self.parents.get(id(up))
        self.above[id(old)] = n, id(up)
        self.steps.append(Step(n, old, name, self.text(old), [self.text(x) for x in operands_of(old)],
                               self.text(up) if up else "", _is_axis(old, up), self.inside, self.depth))
        return ast.Call(ast.Name("_step", ast.Load()), [ast.Constant(n), fn, *operands], [*keywords])
    def value(self, node, new=None, name=""): return self.mark(node, ast.Constant(None), new or node, name=name)
    def table(self, op): return ast.Name("_" + type(op).__name__, ast.Load()) # an operator in the twin's globals
    def visit_Name(self, node):
        known = isinstance(node.ctx, ast.Load) and node.id in self.names
        return self.value(node, name=node.id) if known else node
    def visit_Constant(self, node): return self.value(node) if type(node.value) in (int, float, bool) else node
    def visit_Attribute(self, node):
        if not isinstance(node.ctx, ast.Load): return node
        base = node
        while isinstance(base, ast.Attribute): base = base.value
        if isinstance(base, ast.Name) and base.id not in self.names: return node     # torch.long
        inner = node.value if isinstance(node.value, ast.Name) else self.visit(node.value)
        return self.value(node, ast.Attribute(inner, node.attr, ast.Load()), ast.unparse(node))
    def visit_BinOp(self, node):
        if type(node.op) not in BINARY: return self.generic_visit(node)
        return self.mark(node, self.table(node.op), self.visit(node.left), self.visit(node.right))
    def visit_UnaryOp(self, node):
        if isinstance(node.operand, ast.Constant): return self.value(node)           # -1 is a number
        if type(node.op) not in UNARY: return self.generic_visit(node)
        return self.mark(node, self.table(node.op), self.visit(node.operand))
    def visit_Compare(self, node):
        if len(node.ops) > 1: # a < b < c
            both = [node.left, *node.comparators]
            return self.visit(ast.BoolOp(ast.And(), [
                ast.Compare(a, [op], [b]) for a, op, b in zip(both, node.ops, both[1:])]))
        return self.mark(node, self.table(node.ops[0]), self.visit(node.left), self.visit(node.comparators[0]))
    def visit_BoolOp(self, node):
        bare = ast.arguments([], [], None, [], [], None, [])
        return self.mark(node, self.table(node.op), *[ast.Lambda(bare, self.visit(x)) for x in node.values])
    def visit_Subscript(self, node):
        if not isinstance(node.ctx, ast.Load): return ast.Subscript(node.value, self.visit(node.slice), node.ctx)
        return self.mark(node, ast.Name("_getitem", ast.Load()), self.visit(node.value), self.visit(node.slice))
    def visit_Slice(self, node):
        return ast.Call(ast.Name("slice", ast.Load()), [
            self.visit(x) if x else ast.Constant(None) for x in (node.lower, node.upper, node.step)], [])
    def visit_Call(self, node):
        f, args, keys = node.func, *[[self.visit(x) for x in xs] for xs in (node.args, node.keywords)]
        if isinstance(f, ast.Name) and f.id in (
            "super", "locals", "isinstance", "type", "zip", "enumerate", "range", "print"): return ast.Call(f, args, keys)
        base = f
        while isinstance(base, ast.Attribute): base = base.value
        if isinstance(f, ast.Attribute) and not (isinstance(base, ast.Name) and base.id in self.known):
            inner = f.value if isinstance(f.value, ast.Name) else self.visit(f.value)
            return self.mark(node, ast.Constant(f.attr), inner, *args, keywords=keys)
        called = f if isinstance(f, (ast.Name, ast.Attribute)) else self.visit(f)
        return self.mark(node, called, *args, keywords=keys)
    def as_it_is(self, node): return node
    visit_JoinedStr = visit_Raise = visit_Assert = visit_arguments = as_it_is
    def visit_AnnAssign(self, node): return ast.Assign([node.target], self.visit(node.value)) if node.value else node
    def visit_FunctionDef(self, node): return ast.FunctionDef(
        node.name, node.args, [self.visit(x) for x in node.body], [], None, lineno=0, type_params=[])

def tree_of(fn:types.FunctionType)->ast.AST|None: # its def or lambda
    try: text = textwrap.dedent(inspect.getsource(fn)).strip()
    except (OSError, TypeError): return None
    kind = ast.Lambda if fn.__name__ == "<lambda>" else ast.FunctionDef
    def code(x): return compile(ast.fix_missing_locations(ast.Expression(x)), "", "eval").co_consts[0].co_code
    for form in ("{}", "({})", "f({})", "{{{}}}", "f({}", "f({})]"):     # a lambda's line may hold what is around it
        try: tree = ast.parse(form.format(text.rstrip(",")))
        except SyntaxError: continue
        found = [x for x in ast.walk(tree) if isinstance(x, kind) and (kind is ast.Lambda or x.name == fn.__name__)
                 and [a.arg for a in x.args.args] == [*fn.__code__.co_varnames[:fn.__code__.co_argcount]]]
        if kind is ast.Lambda and len(found) > 1: found = [x for x in found if code(x) == fn.__code__.co_code]
        return found[0] if len(found) == 1 else None
    return None

def all_of(*parts): return next((x for x in (f() for f in parts) if not x), True)   # a and b
def any_of(*parts): return next((x for x in (f() for f in parts) if x), False)      # a or b

TABLE = {"_getitem": operator.getitem, "_And": all_of, "_Or": any_of} | {
    f"_{k.__name__}": f for row in (BINARY, COMPARED, UNARY) for k, (_, f) in row.items()}

WRITES = "sort", "pop", "remove", "extend", "insert"       # methods of lists; append makes only what is its own

def _writes(code)->bool: # whether it changes something in place
    return any(isinstance(x, (ast.Subscript, ast.Attribute)) and not isinstance(x.ctx, ast.Load) or isinstance(x, ast.Call)
               and isinstance(x.func, ast.Attribute) and (x.func.attr.endswith("_") or x.func.attr in WRITES) for x in code)

def tensors_in(x): # of nested values and modules
    if isinstance(x, Tensor): yield x
    elif isinstance(x, torch.nn.Module): yield from itertools.chain(x.parameters(), x.buffers())
    else:
        inside = x if isinstance(x, (tuple, list)) else x.values() if isinstance(x, dict) else vars(
            x).values() if is_dataclass(x) else ()
        for y in inside: yield from tensors_in(y)

def _writings(xs)->int: # how often what they hold was written in place
    return sum(x._version for x in xs if isinstance(x, Tensor))

class Steps:
    "A twin of a reference, of which a step can be changed: `run(args, {number: change})`."
    def __init__(self, reference:Callable, deep:int=2): # how many calls below it are twins, too
        self.reference, self.deep = reference, deep
        self.home = {(getattr(reference, "__module__", None) or "").split(".")[0], "rlhf_nb"}
        self.steps, self.twins, self.checks, self.in_place = [], {}, set(), False   # checks: functions that only raise
        self.means, self.up = {}, {}             # a variable -> what it is; a step -> the one that it is a part of
        self.n_run = 0                           # operations so far: the measure of time
        self.trace, self.kept, self.first = None, {}, {} # of `record`: steps; place -> result; step -> place
        self.changes, self.at, self.until = {}, 0, 0     # of a run: place; up to where the kept results hold
        self.env, self.last = {}, {}             # a variable's value, a step's result, the latest of this run
        self.summed = {}                         # a sum -> what was summed
        self.guarded, self.untouched = [], 0     # tensors that no run may write into; how often they were written
    def twin(self, fn, depth=0): # of a function; itself where there is no source or nothing to change
        if not isinstance(fn, types.FunctionType): return fn
        if fn not in self.twins:
            self.twins[fn] = fn                  # one that calls itself
            self.twins[fn] = self.made(fn, depth)
        return self.twins[fn]
    def made(self, fn, depth):
        home, top = (getattr(fn, "__module__", None) or "").split("."), fn is self.reference
        if home[0] not in self.home or not top and (depth > self.deep or fn in (all_of, any_of) or home[-1] == "checks"):
            return fn
        tree, shut = tree_of(fn), inspect.getclosurevars(fn).nonlocals if fn.__closure__ else {}
        if tree is None: return fn
        code = [*ast.walk(tree)]
        if isinstance(tree, ast.FunctionDef) and not any(isinstance(x, ast.Return) and x.value for x in code):
            self.checks.add(fn)
            return fn
        if any(isinstance(x, (ast.Yield, ast.YieldFrom, ast.Await, ast.Nonlocal, ast.Global)) for x in code): return fn
        stored = [x.id for x in code if isinstance(x, ast.Name) and not isinstance(x.ctx, ast.Load)]
        names = {x.arg for x in code if isinstance(x, ast.arg)} | {*stored} | {
            k for k, v in shut.items() if not callable(v)}
        called = {x.func.id for x in code if isinstance(x, ast.Call) and isinstance(x.func, ast.Name)}
        space = fn.__globals__ | shut | TABLE | {"_step": self.step}
        modules = {k for k, v in space.items() if isinstance(v, types.ModuleType)} - names
        marks = _Marks(self.steps, tree, names - called, modules, "" if top else fn.__name__.strip("_"), depth)
        self.in_place |= _writes(code)
        means = {x.targets[0].id: short(told(x.value), 50) for x in code
                 if isinstance(x, ast.Assign) and isinstance(x.targets[0], ast.Name)}
        self.means |= {k.strip("_"): v for k, v in means.items() if stored.count(k) == 1 and "..." not in v}
        try:
            new = marks.visit(tree)
            if isinstance(new, ast.Lambda): new = ast.Assign([ast.Name("_made", ast.Store())], new)
            exec(compile(ast.fix_missing_locations(ast.Module([new], [])), "<twin>", "exec"), space)
        except (SyntaxError, TypeError, ValueError, NameError): return fn
        self.up |= {i: marks.above[up][0] for i, up in marks.above.values() if up in marks.above}
        made = space["_made" if fn.__name__ == "<lambda>" else fn.__name__]
        made.__defaults__, made.__kwdefaults__ = fn.__defaults__, fn.__kwdefaults__
        return made
    def step(self, i, fn, *args, **kwargs): # fn: an operation, the name of a method, None for a value
        place, self.at = self.at, self.at + 1
        change = self.changes.get(i)
        if fn is None:
            self.n_run += .2
            if (name := self.steps[i].name): self.env[name] = args[0]
            out = args[0] if change is None else change(None, args, kwargs)
        else:
            if place < self.until and (known := self.kept.get(place)) and known[1] <= self.until:
                self.last[i], self.at = known[:2]
                return known[0]
            self.n_run += 1
            if fn == "sum": self.summed[i] = args[0]
            out = self.do(i, fn, *args, **kwargs) if change is None else change(
                lambda *a, **k: self.do(i, fn, *a, **k), args, kwargs)
        self.last[i] = out
        if self.trace is not None:
            self.first.setdefault(i, place)
            self.trace.append((i, fn, args, kwargs, out))
            parts = out if type(out) is tuple else (out,)
            if fn is not None and all(isinstance(x, (Tensor, float)) for x in parts): self.kept[place] = out, self.at, _writings(parts)
        return out
    def do(self, i, fn, *args, **kwargs):
        if isinstance(fn, str): fn, args = getattr(args[0], fn), args[1:]
        if fn is checkpoint: (fn, *args), kwargs = args, {}              # it saves memory and changes no number
        f = getattr(fn, "__func__", fn)
        if isinstance(f, types.FunctionType) and not isinstance(getattr(fn, "__self__", None), torch.nn.Module):
            twin = self.twin(f, self.steps[i].depth + 1)
            if twin is f: self.n_run += 1 if f in self.checks else 30       # it may cost much
            else: fn = twin if f is fn else types.MethodType(twin, fn.__self__)
        if isinstance(fn, torch.nn.Module): self.n_run += 12 * sum(1 for _ in fn.modules())
        return fn(*args, **kwargs)
    def run(self, args, changes={}, again=False): # again: with the arguments that were recorded
        self.last, self.changes, self.at = {}, changes, 0
        self.until = min((self.first.get(i, 0) for i in changes), default=0) if again else 0
        return self.twin(self.reference)(*args)
    def record(self, args)->tuple: # what comes out, None where it raises; each step: [(number, fn, args, kwargs, out)]
        self.kept, self.first, self.trace, self.env = {}, {}, [], {}
        try: out = self.run(args)
        except Exception: out = None
        trace, self.trace = self.trace, None
        if self.in_place: self.kept = {at: x for at, x in self.kept.items() if _writings(x[0] if type(x[0]) is tuple else x[:1]) == x[2]}
        self.guarded = [*tensors_in([x for x, *_ in self.kept.values()]), *tensors_in(args)]
        self.untouched = _writings(self.guarded)
        return out, trace
    def spoilt(self)->bool: # whether a run has written into what was recorded
        return self.in_place and _writings(self.guarded) != self.untouched
    def plain(self, fn)->bool: # whether a step can be taken alone: it runs no other and writes nothing
        return fn is None or isinstance(fn, str) and not fn.endswith("_") and fn not in (*WRITES, "append") or isinstance(
            fn, types.BuiltinFunctionType)
    def defaults(self)->dict: # of the reference's arguments
        try: given = inspect.signature(self.reference).parameters
        except (TypeError, ValueError): return {}
        return {k: p.default for k, p in given.items() if p.default is not p.empty}
