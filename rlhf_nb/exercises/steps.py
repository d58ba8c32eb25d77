"Which step of a reference, done otherwise, gives what an answer gave: a search through its source, said in a sentence."
import inspect, itertools, re
from math import isfinite
from collections.abc import Callable
from dataclasses import replace
import torch
from torch import Tensor
from .otherwise import all_changes, gradient_changes, is_real
from .repair import repair
from .twin import Steps, tensors_in
from .where import differs_where

def numbers_in(x)->list: # of a small tensor of floats; [] of anything else
    return x.flatten().tolist() if isinstance(x, Tensor) and x.is_floating_point() and x.numel() < 400 else []

def apart(a, b)->bool: # two numbers, beyond any rounding
    return abs(a - b) > 1e-2 + 3e-2 * abs(b) if a - b == a - b else (a == a) != (b == b) or a != b and a == a

BROKEN = []                                      # what stopped a search: scripts/tutor.py and the tests look at it

def copied(args):
    from rlhf_nb.book.checks import copy_argument
    return tuple(map(copy_argument, args))

def count_numbers(xs)->int: return sum(x.numel() if isinstance(x, Tensor) else 1 for x in xs)

class Search:
    "What an answer did and should have done in every case, and whether a changed reference does the same."
    def __init__(self,
        reference:Callable, cases:dict[str,tuple], # what is right, and its arguments
        calls:dict, wants:dict, wrong:list[str],   # case -> what the answer did, and should have; where that is not the same
        names:list[str], call:Callable, match:Callable, # of the arguments; how a call is recorded; whether two values are the same
    ):
        from rlhf_nb.book.changes import named_leaves
        self.cases, self.calls, self.wants, self.wrong, self.names = cases, calls, wants, wrong, names
        self.call, self.match, self.leaves, self.steps = call, match, named_leaves, Steps(reference)
        self.told = {}                               # case -> the numbers that the answer gave
        def size(k): return bool(calls[k].error or wants[k].error), sum(x.numel() for x in cases[k] if isinstance(x, Tensor))
        self.order = sorted(cases, key=lambda k: (k not in wrong, size(k)))
        self.first = self.order[0]                   # the smallest case that is wrong
        self.sound = [k for k in self.order if not (calls[k].error or wants[k].error)]
        self.parts = {k: (named_leaves(calls[k].out), named_leaves(wants[k].out)) for k in self.sound}
        one_form = all(a.keys() == b.keys() for a, b in self.parts.values())
        self.paths = [*dict.fromkeys(p for k in cases if k in self.parts for a, b in [self.parts[k]] if a.keys() == b.keys()
                                     for p in a if not match(a[p], b[p]))]
        lists = any(isinstance(wants[k].out, list) for k in self.sound)
        most = max((len(b) for _, b in self.parts.values()), default=0)
        self.some = one_form and not lists and 0 < len(self.paths) < most and {*wrong} <= {*self.sound} # parts of a result
        pairs = [(a[p], b[p]) for a, b in self.parts.values() for p in self.paths if p in a and p in b]
        self.seen = [x for a, b in pairs if not match(a, b) for x in (a, b)]
        asked = {round(v, 6) for k in self.sound for x in self.parts[k][1].values() if is_real(x)
                 for v in torch.as_tensor(x).detach().flatten().tolist()[:99] if v == v}
        self.numbers = bool(self.seen) and all(map(is_real, self.seen))
        self.sure = self.numbers and len(asked) > 3  # else more than one change may fit: truth values, pay of 0, .5 or 1
        self.value = self.first in self.sound and not self.equal(self.first, wants[self.first].out) # not a gradient, not an error
        self.given, self.copies = cases, {}          # of the first case; case -> arguments, to run on
        self.steps.twin(reference)
        def holds(x): return isinstance(x, (list, dict)) or isinstance(x, tuple) and any(map(holds, x))
        self.lists = self.steps.in_place and any(holds(args) for args in cases.values())  # may be written, unseen
    def luck(self)->bool: # too few numbers, or truth values, to tell one change from another
        total = 2 * count_numbers(x for _, b in self.parts.values() for x in b.values())
        return count_numbers(self.seen) < 6 and total < 24 if self.numbers else len(self.cases) < 5 or len(self.wrong) < 3
    def far(self, k, out)->bool: # clearly another result than the answer's, seen at once; most are
        if k not in self.told: self.told[k] = numbers_in(self.calls[k].out)
        got = self.told[k]
        made = got and numbers_in(out)
        return bool(made) and (len(made) != len(got) or any(map(apart, made, got)))
    def equal(self, k, out)->bool: # to what the answer gave; where it is right in part, only in what is wrong
        if not self.some and self.far(k, out): return False
        if not self.some: return self.match(out, self.calls[k].out)
        made, got = self.leaves(out), self.parts[k][0]
        return all(p in made and self.match(made[p], got[p]) for p in self.paths if p in got)
    def record(self): # the first case, as it is computed
        self.given = copied(self.cases[self.first])
        return self.steps.record(self.given)[1]
    def agrees(self, changes)->tuple: # whether it fits in the first case, without gradients; what comes out
        given = copied(self.given) if self.lists else self.given
        try: out = self.steps.run(given, changes, True)
        except Exception as e: return type(e).__name__ == self.calls[self.first].error, None
        finally:
            if self.steps.spoilt(): self.record()
        return not self.calls[self.first].error and self.equal(self.first, out), out
    def agrees_again(self, changes)->bool: # in the other cases; a copy and gradients cost more than a run
        for k in self.order[1:]:
            c = self.calls[k]
            if k not in self.copies: self.copies[k] = copied(self.cases[k])
            before = self.steps.in_place and [x._version for x in tensors_in(self.copies[k])]
            try: out = self.steps.run(self.copies[k], changes)
            except Exception as e: same = type(e).__name__ == c.error
            else: same = not c.error and self.equal(k, out)
            if self.steps.in_place and (self.lists or before != [x._version for x in tensors_in(self.copies[k])]):
                del self.copies[k]
            if not same: return False
        return True
    def made(self, changes, k): return self.call(lambda *a: self.steps.run(a, changes), self.cases[k], False)
    def fits(self, changes)->int: # 2: in values and gradients of all cases, 1: in values, 0: in neither
        if self.value and not self.agrees_again(changes): return 0
        level = 2
        with torch.enable_grad():
            for k in self.order:
                c, answer = self.made(changes, k), self.calls[k]
                if c.error != answer.error or not (c.error or self.equal(k, c.out)): return 0
                if not self.some and not self.match(c.gradients, answer.gradients): level = 1
                if level == 1 and not self.value: return 0
        return level
    def fits_times(self, changes, times)->bool: # but for a factor
        def one(k):
            c, answer = self.made(changes, k), self.calls[k]
            return c.error == answer.error and (bool(c.error) or c.out is not None and self.match(times * c.out, answer.out))
        with torch.enable_grad(): return not self.some and all(map(one, self.order))
    def say(self, words)->tuple: # with what the reference's own variables are
        own = [f"{k} is {v}" for k, v in self.steps.means.items()
               if re.search(rf"\b{k}\b", words) and k not in self.names and v not in words][:2]
        at = ", ".join("".join(f"[{k!r}]" for k in p) for p in self.paths)
        return f"of the result {at}: " * self.some + words + f" ({', '.join(own)})" * bool(own), self.first

def two_at_one_place(search, tried, most)->str: # a step, and the one that it is a part of
    local, end = {}, search.steps.n_run + most
    for i, words, f in tried:
        if not isinstance(i, tuple): local.setdefault(i, []).append((words, f))
    for i, above in [(i, search.steps.up.get(i)) for i in local]:
        for (words, f), (more, g) in itertools.product(local[i][:8], local.get(above, [])[:8]):
            if search.steps.n_run > end: return ""
            if search.agrees({i: f, above: g})[0] and search.fits({i: f, above: g}) == 2: return f"two slips: {words}; and {more}"
    return ""

def written(x): # a result as one that can be compared at once; None if it is large or no number
    if isinstance(x, Tensor): return (x.dtype, x.shape, repr(x.tolist())) if x.numel() < 65 else None
    return (type(x), repr(x)) if isinstance(x, (bool, int, float, str)) else None

def effect(change, calls, plain)->tuple: # what it makes of each call of a step; () if only a run can tell
    if getattr(change, "live", False): return ()
    found = []
    for _, fn, args, kwargs, _ in calls:
        if not plain(fn) or any(isinstance(x, list) for x in args): return ()
        do = (lambda x, *a, fn=fn, **k: getattr(x, fn)(*a, **k)) if isinstance(fn, str) else fn
        try: found.append(written(change(do, args, kwargs)))
        except Exception as e: found.append(type(e).__name__)
    return () if None in found else tuple(found)

def at_all(i, f)->dict: # a change at one step, or at several
    return dict.fromkeys(i, f) if isinstance(i, tuple) else {i: f}

def find_step(search:Search, most:int=45_000)->tuple: # operations, not seconds: the same answer always gets the same words
    "The first step of the reference that, done otherwise, does what the answer did, in all cases; or two; or a formula."
    if search.luck(): return ()
    steps, first, say = search.steps, search.first, search.say
    goal, want = search.calls[first].out, search.wants[first].out
    gradient_only = first in search.sound and not search.value
    with torch.no_grad():
        trace = search.record()
        tried, near, either, almost, calls, known = [], [], {}, (), {}, {}
        for row in trace: calls.setdefault(row[0], []).append(row)
        def calls_of(i): return [x for j in i for x in calls.get(j, ())] if isinstance(i, tuple) else calls[i]
        for i, rows in calls.items(): # what changes nothing explains nothing
            if None not in (kept := tuple(written(out) for *_, out in rows)): known[i, kept] = False
        for i, words, f in (gradient_changes if gradient_only else all_changes)(steps, trace):
            if steps.n_run >= most: break
            if i is None: # the likely ones are done
                if search.value and not either and (found := two_at_one_place(search, tried, most / 5)): return say(found)
                continue
            if not gradient_only and (made := effect(f, calls_of(i), steps.plain)):
                steps.n_run += .3 * len(made)
                if known.get((i, made)) is False: continue       # it does nothing here, or what another did in vain
            tried.append((i, words, f))
            if not gradient_only:
                fit, out = search.agrees(at_all(i, f))
                if made: known[i, made] = fit
                if not fit:
                    times = factor(out, goal, want)
                    if times and search.fits_times(at_all(i, f), times): return say(f"{words}; and besides " + (
                        "the sign is turned" if times == -1 else f"what comes back is {times:.4g} times that"))
                    if (share := shared(out, goal, want)) > 0: near.append((share, i, words, f))
                    continue
            level = search.fits(at_all(i, f))
            if level == 2 and (search.sure or not search.value): return say(words)
            if level == 2: either.setdefault(i, words)
            if level == 1 and not almost: almost = f"{words}, and the gradient is another one, too", first
            if level == 0: near.append((1., i, words, f))
        if either: # of several that fit a few cases none is known to be the one
            return say(", or ".join(either.values())) if len(either) == 1 or len(either) < 4 and len(search.wrong) > 5 else ()
        if almost or not search.value: return almost
        for _, i, words, f in sorted(near, key=lambda x: -x[0])[:3]: # what explains a part, and another one
            for j, more, g in tried:
                if steps.n_run >= most: break
                both = at_all(i, f) | at_all(j, g)
                if i != j and search.agrees(both)[0] and search.fits(both) == 2:
                    return say(f"two slips: {words}; and {more}")
        words = made_of(search)
        return say(words) if words else ()

# ---- parts of an explanation

def flat(*xs): # the numbers of tensors or floats of one shape; () if they have none in common
    if not all(isinstance(x, (float, Tensor)) for x in xs): return ()
    xs = [torch.as_tensor(x).detach() for x in xs]
    if any(x.shape != xs[0].shape or not x.is_floating_point() for x in xs) or not xs[0].numel(): return ()
    return [x.double().flatten().tolist() for x in xs]

def near(a, b, share, least=0.)->bool: return a == b or a != a and b != b or abs(a - b) <= least + share * abs(b)

def factor(out, goal, want)->float: # what the one is times the other, if that is one number and not the right result; else 0
    found = flat(out, goal, want)
    if not found or any(x == 0 and y != 0 for x, y in zip(*found[:2])): return 0
    times = [y / x for x, y in zip(*found[:2]) if x == x and y == y and x != 0]
    if not times or not all(isfinite(t) and abs(t - times[0]) <= 1e-4 * abs(times[0]) for t in times): return 0
    c = times[0]
    if len(times) < 3 and min(abs(c - x) for x in (-1, .5, 2, -.5, -2)) > 1e-4: return 0
    return 0 if abs(c - 1) < 1e-4 or all(near(x, z, 1e-5, 1e-8) for x, z in zip(found[0], found[2])) else -1 if abs(c + 1) < 1e-4 else c

def shared(out, goal, want)->float: # of what is wrong, the share that is explained; 0 where it spoils what is right
    found = flat(out, goal, want)
    if not found or len(found[0]) < 4: return 0.
    bad = [not near(y, z, 1e-4, 1e-6) for y, z in zip(*found[1:])]
    now = [near(x, y, 1e-4, 1e-6) for x, y in zip(*found[:2])]
    if not any(bad) or not all(x for x, wrong in zip(now, bad) if not wrong): return 0.
    return sum(x for x, wrong in zip(now, bad) if wrong) / sum(bad)

# ---- a formula

ONE = {
    "{}": lambda x: x, "exp of {}": torch.exp, "the logarithm of {}": torch.log, "{} squared": torch.square,
    "the root of {}": torch.sqrt, "minus {}": torch.neg, "σ of {}": torch.sigmoid,
    "log σ of {}": torch.nn.functional.logsigmoid, "the absolute value of {}": torch.abs}
REDUCED = {
    "the mean of {}": lambda x: x.mean(), "the sum of {}": lambda x: x.sum(),
    "the mean of {} over each row": lambda x: x.mean(-1, True), "the sum of {} over each row": lambda x: x.sum(-1, True),
    "the length of {}": lambda x: torch.tensor(float(x.shape[-1])),
    "the logarithm of the length of {}": lambda x: torch.tensor(float(x.shape[-1])).log()}
COUNTED = "{}", "the sum of {}", "the sum of {} over each row"         # of truth values
FORMS = ONE | REDUCED
TWO = {"-": torch.sub, "+": torch.add, "x": torch.mul, "/": torch.div}

def quantities(search, k)->dict[str,Tensor]: # what a task gives, and what the reference makes of it
    from rlhf_nb.book.changes import spoken
    args = copied(search.cases[k])
    found = {spoken(p, search.names): x for p, x in search.leaves(args).items() if not isinstance(x, torch.nn.Parameter)}
    out, trace = search.steps.record(args)
    latest = {i: x for i, fn, _, _, x in trace if fn is not None or search.steps.steps[i].name}
    for i, x in latest.items(): found.setdefault(search.steps.steps[i].text, x)
    return {text: torch.as_tensor(x) for text, x in ({"the right result": out} | found).items()
            if isinstance(x, (Tensor, float, int)) and "..." not in text}

def formula(known, target, match)->str: # known, target: case -> quantities, what came out
    "Two quantities that make what came out in every case, by + - x /; or one, by a function; else nothing."
    k = max((k for k, x in target.items() if isinstance(x, (float, Tensor))), key=lambda k: torch.as_tensor(target[k]).numel(), default=None)
    like = torch.as_tensor(target.get(k, 0))
    if not like.is_floating_point() or not like.numel(): return ""
    flat = torch.linspace(0, like.numel() - 1, min(6, like.numel())).long()
    at = tuple(torch.unravel_index(flat, like.shape)) if like.ndim else ()   # a few places of the result
    rows, terms = [], []                         # what stands there, (quantity, form)
    for text, x in known[k].items():
        for form, f in FORMS.items():
            if x.ndim == 0 and form in REDUCED or x.dtype == torch.bool and form not in COUNTED: continue
            try: y = f(x.double()).detach()
            except (RuntimeError, IndexError): continue
            if y.ndim > like.ndim: continue
            try: rows.append(y.expand(like.shape)[at].flatten())
            except RuntimeError: continue
            terms.append((text, form))
    if not rows: return ""
    v, goal = torch.stack(rows), like.double()[at].flatten()
    def near(x): return torch.isclose(x, goal, 1e-4, 1e-6, equal_nan=True).all(-1).nonzero().tolist()
    def value(case, i): return FORMS[terms[i][1]](known[case][terms[i][0]].double())
    def word(i): return terms[i][1].format(terms[i][0])
    def holds(f): # in all cases
        def one(case):
            try: return match(f(case).to(y := torch.as_tensor(target[case])).expand(y.shape), y)
            except (KeyError, IndexError, RuntimeError): return False       # None among them: no number comes out
        return all(map(one, target))
    for i, in near(v):
        if word(i) != "the right result" and holds(lambda case: value(case, i)): return word(i)
    tries = itertools.count(1)
    for sign, f in TWO.items():
        for i, j in near(f(v[:, None], v)):
            if sign in "+x" and i > j: continue
            if next(tries) > 60: break
            if holds(lambda case: f(value(case, i), value(case, j))): return f"{word(i)} {sign} {word(j)}"
    return ""

def made_of(search)->str: # a result, or one part that is wrong after the other
    known, said = {k: quantities(search, k) for k in search.sound}, []
    for p in search.paths or [()]:
        said.append(formula(known, {k: search.parts[k][0].get(p) for k in search.sound}, search.match))
        if not said[-1]: return ""
    return "what comes back is " + " and ".join(said)

# ---- before the steps: what can be seen of the answer, its results, its inputs

def other_default(answer, exercise, wrong)->str: # of an argument that no wrong case gives
    try: own, ours = (list(inspect.signature(f).parameters.values()) for f in (answer, exercise.reference))
    except (TypeError, ValueError): return ""
    given = max(len(exercise.cases[k]) for k in wrong)
    def told(x): return isinstance(x.default, (int, float, str))
    return next((f"the default of {a.name} is {a.default!r}: {b.default!r} is asked for"
                 for a, b in [*zip(own, ours)][given:] if told(a) and told(b) and a.default != b.default), "")

def other_form(calls, wants, wrong)->str: # what every wrong case has
    def form(k):
        a, b = calls[k].out, wants[k].out
        if calls[k].error or wants[k].error: return ""
        if isinstance(a, str) and isinstance(b, (int, float)): return "text comes back where a number is wanted"
        if isinstance(b, str) and isinstance(a, (int, float)): return "a number comes back where text is wanted"
        kinds = [type(x).__name__.lower() for x in (a, b)]
        if kinds[0] != kinds[1] and {*kinds} & {"list", "tuple", "dict", "ndarray"}: return f"a {kinds[0]} comes back where a {kinds[1]} is wanted"
        if not (isinstance(a, Tensor) and isinstance(b, Tensor)): return ""
        if a.shape == b.shape and a.dtype != b.dtype and torch.allclose(a.detach().double(), b.detach().double(), 1e-4, 1e-4, equal_nan=True):
            return "the numbers are right, their dtype is not"
        if b.ndim < 2 or a.shape == b.shape: return ""
        if a.shape == b.shape[:-1]: return "one number for each row comes back where one for each of its places is wanted"
        return "one flat row comes back where rows are wanted: a mask as an index keeps no rows" * (a.ndim == 1 < b.ndim == 2)
    found = {*map(form, wrong)}
    return found.pop() if len(found) == 1 else ""

def doubtful(search, words)->bool: # a part of what is wrong; or an argument called unused through which a gradient flows
    unused = re.search(r"(\w+) is not used|stands where (\w+) should", words)
    def flows(k):
        asked = [name for name, x in zip(search.names, search.cases[k]) if getattr(x, "requires_grad", False)]
        return {name for name, g in zip(asked, search.calls[k].gradients) if g.any()}
    part = words.startswith("of the result [") and words.split(":")[0].count("[") < len(search.paths)
    return part or bool(unused and {*unused.groups()} & set().union(*map(flows, search.wrong)))

def outside(exercise, calls, wants, wrong, names)->str: # where every entry that is wrong stands outside of one mask, and 0 is wanted there
    from rlhf_nb.book.changes import named_leaves, spoken
    def masks(k): # of which that holds
        got, want = named_leaves(calls[k].out), named_leaves(wants[k].out)
        found = {p: x for p, x in named_leaves(exercise.cases[k]).items() if getattr(x, "dtype", 0) == torch.bool and x.ndim > 1}
        if calls[k].error or wants[k].error or got.keys() != want.keys(): return set()
        alike = True
        for p, b in want.items():
            a = torch.as_tensor(got[p])
            b = torch.as_tensor(b)
            if a.shape != b.shape: return set()
            off = ~torch.isclose(a.detach().double(), b.detach().double(), 1e-4, 1e-4, equal_nan=True)
            alike = alike and not off.any()
            found = {q: m for q, m in found.items() if not off.any() or m.shape == b.shape and not (off & m).any() and not b[off].any()}
        return set() if alike else {*found}      # where only a gradient differs, no place does
    found = set.intersection(*map(masks, wrong)) if wrong else set()
    return f"where {spoken(min(found, key=len), names)} is False, 0 is wanted" if found else ""

def as_one_row(exercise, cases, calls, match)->str: # what a row leaves goes on in the row above or below
    def joined(k):
        shapes = {x.shape for x in cases[k] if isinstance(x, Tensor)}
        if len(shapes) != 1 or len(next(iter(shapes))) != 2: raise ValueError
        out = exercise.reference(*[x.reshape(1, -1) if isinstance(x, Tensor) else x for x in cases[k]])
        shape = next(iter(shapes))
        return tuple(x.view(shape) for x in out) if isinstance(out, tuple) else out.view(shape)
    try: same = all(match(joined(k), calls[k].out) for k in cases)
    except Exception: return ""
    return "what is carried along a row goes on into the next row: each row starts anew" if same else ""

def _narrow(x)->bool: return isinstance(x, Tensor) and x.is_floating_point() and x.element_size() == 2

def set_apart(exercise, calls, wants, names)->tuple: # cases of 16 bits; those where nan of an input comes through: case -> words
    from rlhf_nb.book.changes import named_leaves, spoken
    narrow, spread = [], {}
    for k, args in exercise.cases.items():
        given = named_leaves(args)
        if any(map(_narrow, given.values())): narrow.append(k)
        odd = [spoken(p, names) for p, x in given.items() if isinstance(x, Tensor) and not x.isfinite().all()]
        got, want = named_leaves(calls[k].out), named_leaves(wants[k].out)
        def nan(x): return torch.as_tensor(x).isnan().any()
        if odd and got.keys() == want.keys() and any(nan(got[p]) and not nan(want[p]) for p in want): spread[k] = (
            f"nan or inf of {' and '.join(odd)} gets through: choose with where or masked_fill")
    return narrow, spread

def clearer(slip, answer, exercise, wants, wrong, call, match)->str: # where nan comes from, in the answer itself
    words = slip.startswith("nan comes") and repair(answer, exercise, wants, wrong, call, match)
    return f"{slip}: {words}" if words else slip

def without_refusals(grade, answer, exercise, calls, wants, wrong)->str: # a slip, and besides nothing is raised: both are said; else ""
    silent = [k for k in wrong if wants[k].error and not calls[k].error]
    left = {k: x for k, x in exercise.cases.items() if k not in silent}
    if not silent or {*silent} >= {*wrong}: return ""
    said = grade(answer, replace(exercise, cases=left))
    return f"{said}; and besides nothing is raised where the task asks for {wants[silent[0]].error}, {silent[0]}"

def hidden(words, answer, names)->bool: # whether it quotes code that the learner has not written: of a helper, or of the reference
    try: text = inspect.getsource(answer)
    except (OSError, TypeError): return False
    helper, quoted = re.search(r" should \(in (\w+)\)", words), re.search(r" should, in ([^;]+)", words)
    return bool(helper and f"def {helper[1]}(" not in text or quoted and any(
        w not in text and w not in names for w in re.findall(r"[a-z_]\w+", quoted[1])))

WEAK = r"what comes back is |, or |^two slips|; and besides |^the result is .* times what|the gradient is another one|weighted by|^exp of the result"

def name_step(
    answer:Callable, exercise,               # of `checks.Exercise`
    calls:dict, wants:dict, wrong:list[str], # case -> what the answer did, and should have done; where that is not the same
    names:list[str], call:Callable, match:Callable, # of the arguments; how a call is recorded; whether two values are the same
)->tuple: # a sentence, the smallest case that is wrong; or ()
    "What an answer does otherwise; of few bits, and of nan that comes through, it is said apart. Else the edit that mends it."
    from rlhf_nb.book.changes import named_leaves
    again = call(answer, exercise.cases[wrong[0]], False)
    if not again.error and not match(again.out, calls[wrong[0]].out): return (
        "two runs of one case give two results: it draws at random, and from no generator that is given, or keeps something between its calls", wrong[0])
    narrow, spread = set_apart(exercise, calls, wants, names)
    left = [k for k in wrong if k not in narrow and k not in spread]
    apart = {*wrong} - {*left} if left else set()
    kept = {k: x for k, x in exercise.cases.items() if k not in apart}
    try: found = _name_step(answer, replace(exercise, cases=kept), *[{k: x[k] for k in kept} for x in (calls, wants)],
                            [k for k in wrong if k in kept], names, call, match)
    except Exception as e:                       # an odd answer costs a name and not the verdict
        BROKEN.append(e)
        found = ()
    if found and hidden(found[0], answer, names): found = ()
    also = next((words for k, words in spread.items() if k in apart), "")
    large = any(isinstance(x, torch.nn.Module) and len([*x.modules()]) > 6 for args in exercise.cases.values() for x in args) # dear to copy
    if not large and (not found or re.search(WEAK, found[0])) and not any(calls[k].error == "NotImplementedError" for k in wrong):
        at = {p[:1] for k in wrong if not (calls[k].error or wants[k].error) for a, b in [[named_leaves(x[k].out) for x in (calls, wants)]]
              for p in b if p not in a or not match(a[p], b[p])}
        if words := repair(answer, exercise, wants, wrong, call, match, at): return words, wrong[0]
    if not found and also and len(spread) > 1 and 4 * len(left) <= len(spread): return f"mostly: {also}", next(iter(spread))
    return (f"{found[0]}; and {also}" if also else found[0], found[1]) if found else ()

def _name_step(answer, exercise, calls, wants, wrong, names, call, match): # a default, an input, a result, else a step of the reference
    from rlhf_nb.book.changes import find_change
    if words := other_default(answer, exercise, wrong) or other_form(calls, wants, wrong) or outside(
        exercise, calls, wants, wrong, names): return words, wrong[0]
    whole = {k: args for k, args in exercise.cases.items() if not calls[k].error and not wants[k].error}
    search = Search(exercise.reference, exercise.cases, calls, wants, wrong, names, call, match)
    blind = search.steps.twin(exercise.reference) is exercise.reference      # there is no source
    for args in [*whole.values()][:1]: search.steps.record(copied(args))     # how many operations it takes
    left = itertools.count(40_000 // max(1, int(search.steps.n_run)), -1)
    def bounded(*args):
        if next(left) < 0 and not blind: raise TimeoutError
        return exercise.reference(*args)
    found = search.paths and {*wrong} <= {*whole} and find_change(bounded, whole, *[{k: x[k].out for k in whole} for x in (calls, wants)],
                                                 names, match, deep=blind) or ()
    if {*wrong} <= {*whole} and not found and (words := as_one_row(exercise, whole, calls, match)): return words, wrong[0]
    if found and not search.sure and search.numbers and not blind: found = ()   # 0, .5 and 1 fit too much
    if found and re.search("the result is ([-.e0-9]+ times|cut off)", found[0]) and doubtful(search, found[0]): found = ()
    if blind or found and not doubtful(search, found[0]): return found
    search.steps = Steps(exercise.reference)
    said = find_step(search)                     # of a part only what its numbers show: a sum that is 0 may come of much
    return said or (() if found and "as if it were" in found[0] else found)
