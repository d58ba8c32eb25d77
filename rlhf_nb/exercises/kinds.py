"What `prove` knows: beside the exercises of a chapter stand the quantities that it explains, with every mistake in them."
import difflib, inspect, io, signal, sys, threading, traceback
from contextlib import contextmanager, redirect_stdout
from importlib import import_module, util
from pathlib import Path
import numpy, torch
from torch import Tensor
from rlhf_nb.book.checks import record_call, values_match
from .dpo import DPO
from .grpo import Advantages, GroupLoss
from .judge import Judge
from .kl import KL
from .ppo import GAE, PolicyLoss, ValueLoss
from .qlearning import QTargets
from .reward import BradleyTerry, Pooling
from .sft import SFT
from .tokens import Logprobs, Sampler

PROOF_KINDS = dict(logprobs=Logprobs(), sampler=Sampler(), sft=SFT(), reward=BradleyTerry(), pooling=Pooling(), kl=KL(),
                   gae=GAE(), ppo=PolicyLoss(), value=ValueLoss(), advantages=Advantages(), grpo=GroupLoss(), dpo=DPO(),
                   judge=Judge(), q=QTargets())

SHORT, NONE = "inputs of 16 bits, which are to be widened first", "no token that counts"

def _rows(x): return isinstance(x, Tensor) and x.ndim > 0
def each_tensor(f, case:dict)->dict: # with f of every tensor that has an axis; numbers stay
    return {k: f(x) if _rows(x) else x for k, x in case.items()}

def as_type(dtype, case:dict)->dict: # with floats of this type
    return each_tensor(lambda x: x.detach().to(dtype).requires_grad_(x.requires_grad) if x.is_floating_point() else x, case)

def odd_cases(cases:dict, names): # of any kind; names that a function asks for -> what is special -> arguments
    "Batches at the edge that say the same of every quantity: in 16 bits, and without a token that counts."
    case = [*cases.values()][-1]
    if "generator" in case or not any(map(_rows, case.values())): return {}
    found = {SHORT: as_type(torch.bfloat16, case)}
    if "scores" in case or not {"mask", "labels"} & set(names): return found      # of no token there is no last one
    return found | {NONE: case | dict(mask=torch.zeros_like(case["mask"])) | (
        dict(labels=torch.full_like(case["labels"], -100)) if "labels" in case else {})}

def split_words(call, cases:dict)->str: # arguments -> a result; cases of a right function
    "How the losses of a batch's last row and of its others make that of the batch; or whether rows meet each other."
    case = next(iter(cases.values()))
    n = min((len(x) for x in case.values() if _rows(x)), default=1)
    if "group" in case: n = case["group"].unique().numel()                        # a group stays whole
    if n < 2 or "generator" in case: return ""
    def part(a, b): return each_tensor(lambda x: x.detach()[len(x) * a // n:len(x) * b // n], case)
    whole, some, last = call(case), call(part(0, n - 1)), call(part(n - 1, n))
    if isinstance(whole, tuple): whole, some, last = whole[0], some[0], last[0]
    if not all(isinstance(x, Tensor) for x in (whole, some, last)): return ""
    if whole.ndim: return "" if values_match(torch.cat([some, last]), whole, 1e-6) else (
        "rows depend on the rest of their batch: with another batch size other numbers come back")
    ways = {"by their rows": (1 - 1 / n, 1 / n), "by 1: they add up": (1., 1.)}
    if "mask" in case: ways["by their tokens"] = [part(a, b)["mask"].sum() / case["mask"].sum() for a, b in ((0, n - 1), (n - 1, n))]
    words = next((k for k, (a, b) in ways.items() if values_match(a * some + b * last, whole, 1e-6)), "")
    return f"micro-batches give the batch's loss if theirs are weighed {words}" if words else (
        "no weighing of micro-batches gives the batch's loss: what it divides by is of the whole batch")

def broken_rules(
    call,             # arguments by name -> a result, None where it raises
    same,             # of two results
    cases:dict[str,dict],      # what is special -> arguments with a `mask`
)->dict:         # sentence -> of a case, what comes before and after; None where they agree
    "What changes a result although no definition lets it: padding, what is masked, the order of rows."
    def changed(f, back=lambda y: y): # with other arguments (b ...): is the result another one?
        def both(case):
            mask, was = case["mask"], call(case)
            now = call(each_tensor(lambda x: f(x.detach(), mask) if len(x) == len(mask) else x, case))
            if not isinstance(now, Tensor) or not isinstance(was, Tensor): return None
            if (now := back(now)).shape != was.shape: return was, now
            kept = mask if was.shape == mask.shape else torch.ones_like(was)
            return None if same(now * kept, was * kept) else (was, now)
        return both
    rules = {"what stands outside of the mask, prompt or pads, reaches the result": (
        lambda x, m: x.where(m, 7.) if x.shape == m.shape and x.is_floating_point() else x,),
        "a column of padding changes the result": (lambda x, m: torch.cat([x, torch.zeros_like(
            x[:, :1])], 1) if x.ndim > 1 else x, lambda y: y[:, :-1] if y.ndim > 1 else y),
        "the order of the rows changes the result": (
            lambda x, m: x.flip(0), lambda y: y.flip(0) if y.ndim else y)}
    found = {words: changed(*change) for words, change in rules.items()}
    return {words: both for words, both in found.items() if any(map(both, cases.values()))}

# ------------------------------------------------------------------ code that is not ours

SECONDS = 10                                          # of the processor, for one call of it

@contextmanager
def limited(seconds:float):
    "What does not end raises TimeoutError, where the system can interrupt it."
    def stop(*_): raise TimeoutError(f"no end after {seconds} s: an endless loop?")
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread(): return (yield)
    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try: yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)

def load_code(place:str, kind:str)->dict: # "FILE.py:FUNCTION" or "package.module:FUNCTION" -> name -> what can be called there
    """Run a file, or import a module, as Python runs a script: what lies beside it can be imported.

    The parts of a learner's my_rlhf.py are called with stand-ins for models, as this kind asks for.
    Raises ValueError if there is none, or if it cannot be imported."""
    file = place.rpartition(":")[0]
    is_file, is_module = Path(file).is_file(), not file.endswith(".py") and all(map(str.isidentifier, file.split(".")))
    if not is_file and not is_module: raise ValueError(f"no file {file or place!r}: write FILE.py:FUNCTION")
    spec = util.spec_from_file_location(Path(file).stem, file) if is_file else None
    if is_file and not spec: raise ValueError(f"{file} is no file of Python: write FILE.py:FUNCTION")
    sys.path.insert(0, str(Path(file).resolve().parent) if is_file else "")
    try:
        with limited(120):                                 # torch alone takes some
            if not spec: return {k: x for k, x in vars(import_module(file)).items() if callable(x)}
            module, before = util.module_from_spec(spec), sys.modules.get(spec.name)
            sys.modules[spec.name] = module                # a dataclass looks for its module while it is made
            try: spec.loader.exec_module(module)
            finally:                                       # a later `import` of that name finds the user's, not this one
                if before: sys.modules[spec.name] = before
                else: sys.modules.pop(spec.name, None)
    except (Exception, SystemExit) as e:
        raise ValueError(f"{file} cannot be imported: {type(e).__name__}, {e}" + "; write package.module:FUNCTION in the folder "
                         "that holds the package" * ("relative import" in str(e))) from e
    found = {k: x for k, x in vars(module).items() if callable(x)}
    if "\n# your part, " not in Path(file).read_text("utf-8", "ignore"): return found
    from .my_rlhf import losses
    return found | {part: some[kind] for part, some in losses(module).items() if kind in some}

def bound(fn, name:str, it)->dict[str,str]: # our name for an argument -> the function's
    """How a function is called. Raises ValueError with an adapter to complete where that is not known."""
    if inspect.isclass(fn): raise ValueError(f"{name} is a class: write `made = {name}(...)` below it and give `made`, "
                                             "or a method of it")
    if any(is_late(fn) for is_late in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)):
        raise ValueError(f"{name} is a coroutine or a generator, a call of it computes nothing: write a function that does")
    ours = {word: arg for arg, words in it.takes.items() for word in words.split()}
    try: taken = inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn).parameters.values()
    except (TypeError, ValueError): taken = []                                    # of a function of torch, say
    named = [p for p in taken if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    names, left = {}, [p.name for p in named if p.name.lower() not in ours and p.default is p.empty]
    for p in named:
        if p.name.lower() in ours: names.setdefault(ours[p.name.lower()], p.name)
    if names and not left: return names
    near = {p: ours[x[0]] for p in left if (x := difflib.get_close_matches(p.lower(), ours, 1, .8))}
    case = next(iter(it.cases({*it.takes}).values()))
    def size(k): return f"{k} ({' '.join(map(str, case[k].shape))})" if _rows(case.get(k)) else k
    wanted = [k for k in it.takes if k in {*names, *near.values()}] or [*it.takes]
    call = ", ".join([f"{theirs}={our}" for our, theirs in names.items()] + [f"{p}={near.get(p, '...')}" for p in left])
    raise ValueError(f"{name} takes {', '.join(left) or 'nothing that is known'}; {it.asks} is given {', '.join(map(size, it.takes))}: "
                     f"write an adapter, which takes some of these and calls {name}\n\n"
                     f"    def adapter({', '.join(wanted)}): return {name}({call or '...'})")

def _single(out, parts, notes): # of what comes back beside numbers for a log
    if isinstance(out, dict) and "loss" in out:
        notes["more"] = "of the dict that comes back only 'loss' is read"
        out = out["loss"]
    if isinstance(out, list):
        try: out = tuple(out) if parts > 1 else torch.stack(out) if all(isinstance(x, Tensor) for x in out) else torch.as_tensor(out)
        except (TypeError, ValueError, RuntimeError): pass                        # a list of something else
    if isinstance(out, tuple) and len(out) > parts and isinstance(out[0], (Tensor, numpy.ndarray, numpy.number, float)):
        notes["more"] = f"of {len(out)} results only the first {'two are' if parts > 1 else 'is'} read"
        out = out[:parts] if parts > 1 else out[0]
    if "complex" in str(getattr(out, "dtype", "")): raise TypeError("complex numbers come back")
    if getattr(out, "is_meta", False): raise TypeError("a tensor without numbers comes back, on the device meta")
    if getattr(out, "is_sparse", False): notes["more"] = "a sparse tensor comes back: it is read as a dense one"
    return out.to_dense().cpu() if isinstance(out, Tensor) and not out.is_cpu or getattr(out, "is_sparse", False) else out

def guarded(fn, name:str, parts:int, notes:dict): # notes gather what is odd about it
    "A function as it is, but quiet, with an end, torch's modes as they were, one result of several."
    def modes(): return torch.is_grad_enabled(), torch.get_default_dtype()
    def call(**given):
        if "late" in notes: raise TimeoutError(notes["late"])
        before, told = modes(), io.StringIO()
        try:
            with limited(SECONDS), redirect_stdout(told): return _single(fn(**given), parts, notes)
        except (Exception, SystemExit) as e:
            if isinstance(e, TimeoutError) and "an endless loop" in str(e): notes["late"] = str(e)
            at = [x for x in traceback.extract_tb(e.__traceback__)[1:] if "site-packages" not in x.filename and x.filename != __file__]
            if at: notes.setdefault("where", f"{Path(at[-1].filename).name}, line {at[-1].lineno}: {at[-1].line}".rstrip(": ")[:150])
            raise
        finally:
            if modes() != before: notes["modes"] = "it changes torch for the whole program: whether there are gradients, or the default type"
            torch.set_grad_enabled(before[0])
            torch.set_default_dtype(before[1])
            if text := told.getvalue().strip(): notes.setdefault("prints", f"it prints: {text.splitlines()[0][:60]}")
    call.__name__ = name
    return call

def called(fn, it, names:dict[str,str], case:dict)->tuple: # our name for an argument -> the function's
    "What a function does with tensors or, if it wants them, arrays; and whether it did."
    def on_arrays(**values):
        out = fn(**{k: x.detach().numpy() if isinstance(x, Tensor) else x for k, x in values.items()})
        return tuple(map(torch.as_tensor, out)) if isinstance(out, tuple) else torch.as_tensor(out)
    came = []
    def calling(way):
        def asked(*values):
            came.append(it.asked(lambda **x: way(**{names[k]: v for k, v in x.items()}))(**dict(zip(names, values))))
            return came[-1]
        return record_call(asked, tuple(case[k] for k in names))
    found = calling(fn)
    again = calling(on_arrays) if found.error and not came else found             # or what raised is a backward
    return (found, False) if again.error else (again, again is not found)

def apart(got, want)->str: # tensors, or tuples of them, of one shape
    "By how much two results differ, where they are too long to be shown."
    pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (got, want)))
    most = max(((x - y).abs().masked_fill((x == y) | x.isnan() & y.isnan(), 0.).nan_to_num(torch.inf).max().item()
                for x, y in pairs if isinstance(x, Tensor)), default=0.)
    return f"numbers differ by up to {most:.2g}" if most < torch.inf else "nan or inf stands at other places"
