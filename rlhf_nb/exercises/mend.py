"Which one change of an answer's own code makes it right in every case: the search of `steps`, turned round."
import ast, inspect, io, itertools, re, types
from contextlib import redirect_stdout
import torch
from .otherwise import all_changes, gradient_changes
from .steps import Search, at_all, effect, entries, shared, written
from .twin import Steps

SAID = { # what a change does, as it is said of a reference -> as advice
    r"^the sign of .* is turned: (.*) stands where (.*) should": r"\1 in place of \2",
    r"^(.*) stands where (.*) should": r"\1 in place of \2",
    r"^(.*) is missing in (.*): only (.*) is there": r"only \3 in place of \2: \1 is too much",
    r"^(.*) is missing: (.*) stands there as it is": r"\2 as it is: \1 is too much",
    r"^(.*) is not used: as if it were (?:always )?(.*)": r"\2 in place of \1", r"^(.*) is not asked in (.*)": r"\1 left out of \2",
    r"^no gradient flows through (.*): it is detached": r"\1 is detached", r"^a gradient flows through (.*): detach it": r"\1 is not detached"}

def advice(words:str)->str:
    return next((said for pattern, new in SAID.items() if (said := re.sub(pattern, new, words)) != words), words)

ODD = ("weighted by|only the sign|rank of|sorted|running sum|softmax of|log\\(1|standard deviation|whitened|row before|next row|is reversed|"
       "largest of|first row stands|what stands (before|behind)|cum(sum|prod) in place|cut off|is added to|is subtracted from|1 / |is that of")

def switches_off(words)->bool: # a comparison becomes one that never, or always, holds
    new, _, old = words.partition(" stands where ")
    order, equal = (lambda x: re.search(" [<>]=? ", x)), (lambda x: re.search(" [=≠] ", x))
    return bool(order(new) and equal(old) or equal(new) and order(old))

def options(steps, answer)->set: # steps that choose between ways of a helper: what it does by default is no slip of the answer
    given = {}                                       # a function's name -> its arguments that have a default
    for f in steps.twins:
        if f is not answer and isinstance(f, types.FunctionType): given.setdefault(f.__name__.strip("_"), set()).update(
            p.name for p in inspect.signature(f).parameters.values() if p.default is not p.empty)
    def chooses(step):
        x = step.node
        return isinstance(x, ast.Compare) and isinstance(x.ops[0], (ast.Is, ast.IsNot)) or isinstance(x, ast.BoolOp) and any(
            isinstance(y, (ast.Lambda, ast.Dict)) for y in x.values) or step.name in given.get(step.inside, ())
    return {x.number for x in steps.steps if chooses(x)}

def place(steps, i)->str: # of a step, as a line of the answer
    x = steps.steps[i]
    return "" if x.inside or not getattr(x.node, "lineno", 0) else f" (line {x.node.lineno})"

def find_mend(answer, reference, cases:dict, calls:dict, wants:dict, wrong:list, names:list, call, match, fresh, most:int=20_000)->tuple:
    "One change of a step of the answer, or two, with which it does in all cases what is wanted, gradients too; or ()."
    steps = Steps(answer, home={(getattr(answer, "__module__", None) or "").split(".")[0]}, most=2 * most)
    if steps.twin(answer) is answer or any(calls[k].error == "NotImplementedError" for k in wrong): return ()  # no source; not done
    if len(cases) < 4 and sum(len(entries(wants[k].out)) for k in cases) < 6: return ()   # too little to tell one from another
    search = Search(answer, cases, wants, calls, wrong, names, call, match, steps, fresh, reference)
    gradient_only = search.first in search.sound and not search.value
    goal, want = search.calls[search.first].out, search.wants[search.first].out
    with torch.no_grad(), redirect_stdout(io.StringIO()):
        trace, tried, near, known, rows, found = search.record(), [], [], {}, {}, []
        skipped, likely = options(steps, answer), True  # and `a or b` for a value: one of two ways
        skipped |= {i for i, *_, out in trace if isinstance(out, dict) or isinstance(
            steps.steps[i].node, ast.BoolOp) and not isinstance(out, bool)}
        for row in trace: rows.setdefault(row[0], []).append(row)
        for i, seen in rows.items():
            if None not in (kept := tuple(written(out) for *_, out in seen)): known[i, kept] = False
        for i, words, f in (gradient_changes if gradient_only else all_changes)(steps, trace):
            if steps.n_run >= most: break
            if i is None: likely = False
            if i is None or isinstance(i, tuple) or i in skipped or not gradient_only and (
                re.search(ODD, advice(words)) or switches_off(words) or not likely and not search.sure): continue
            fit, made, out = gradient_only, (), None
            if not gradient_only:
                made = effect(f, rows[i], steps.plain)
                steps.n_run += .3 * len(made)
                if made and known.get((i, made)) is False: continue
                fit, out = search.agrees(at_all(i, f))
                if made: known[i, made] = fit
            tried.append((i, words, f))
            if not fit and (share := shared(out, goal, want)) > 0: near.append((share, i, words, f))
            if fit and search.fits(at_all(i, f)) == 2:
                found.append(advice(words) + place(steps, i))
                if search.sure or gradient_only or len(found) > 3: break
        if not found: # what mends a part, and another one
            for _, i, words, f in sorted(near, key=lambda x: -x[0])[:2]:
                for j, more, g in tried:
                    if steps.n_run >= 1.3 * most or found: break
                    both = at_all(i, f) | at_all(j, g)
                    if i != j and search.agrees(both)[0] and search.fits(both) == 2: found.append(
                        f"{advice(words)}{place(steps, i)}; and {advice(more)}{place(steps, j)}")
    said = "one change makes" if found and "; and " not in found[0] else "two changes make"
    return (f"{said} yours right: {', or '.join(found)}", search.first) if 0 < len(found) < 4 else ()
