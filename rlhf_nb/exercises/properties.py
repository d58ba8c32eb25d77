"""Assignments: what must hold of a whole method, whoever wrote it, where many answers are right.

A part is one function; its tests are words -> function of (answer, seed) that calls `need`. Ours is read from the
shipped notebook, lent to the parts behind one that is not right, and compared with nothing."""
import inspect, signal, threading, time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
import torch
from rlhf_nb.base.files import notebooks

class Fails(AssertionError):
    "A property does not hold; the message says what came."

def need(holds, said:str): # what came and what is wanted, where it does not hold
    if not bool(holds): raise Fails(said)

def close(a, b, tol:float=1e-4)->bool: # numbers or tensors, nan nowhere
    a, b = (torch.as_tensor(x).detach().double() for x in (a, b))
    return a.shape == b.shape and torch.allclose(a, b, atol=tol, rtol=tol)

def like(got, others:dict)->str: # the words of the first that it is, with a colon before; else nothing
    return next((f": {words}" for words, x in others.items() if close(got, x)), "")

def gradient(loss, weights)->torch.Tensor: # of a number; () where none flows; flat
    need(isinstance(loss, torch.Tensor) and loss.ndim == 0, f"one number is wanted, a tensor without axes, got {shown(loss)}")
    need(loss.requires_grad, "no gradient flows back: it was detached, or made anew")
    weights = list(weights)
    found = torch.autograd.grad(loss, weights, allow_unused=True, retain_graph=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten().double() for p, g in zip(weights, found)])

def shown(x)->str: # short
    if isinstance(x, torch.Tensor) and x.ndim: return f"a tensor ({' '.join(map(str, x.shape))})"
    if isinstance(x, torch.Tensor): x = x.item()
    if isinstance(x, float): return f"{x:.4g}"
    text = repr(x)
    return text if len(text) < 80 else text[:77] + "..."

def weights_of(*models)->torch.Tensor: # a flat copy
    return torch.cat([p.detach().double().flatten() for m in models for p in m.parameters()])

def seeded(*seeds)->torch.Generator: return torch.Generator().manual_seed(hash(seeds) % 2**31)

@contextmanager
def within(seconds:float): # of processor time: what takes longer is ended
    def end(*_): raise Fails(f"it was ended after {seconds:g} s of processor time, which is the limit")
    alone = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    start = time.process_time()
    if alone: before = signal.signal(signal.SIGPROF, end), signal.setitimer(signal.ITIMER_PROF, seconds)
    try: yield
    finally:
        if alone: signal.setitimer(signal.ITIMER_PROF, 0), signal.signal(signal.SIGPROF, before[0])
    took = time.process_time() - start
    need(took <= seconds, f"it took {took:.1f} s of processor time, {seconds:g} are the limit")

class _Kept: # a tensor that waits for the backward pass
    def __init__(self, x, count): self.x, self.count = x, count; count(x, 1)
    def __del__(self): self.count(self.x, -1)

def kept_mib(call:Callable, weights=())->float: # the most that ever waited for a backward pass, but for the weights
    own, live, most = {p.untyped_storage().data_ptr() for p in weights}, {}, [0]
    def count(x, n):
        store = x.untyped_storage()
        at, size = store.data_ptr(), store.nbytes()
        live[at] = (live.get(at, (0, 0))[0] + n, size)
        if not live[at][0]: del live[at]
        most[0] = max(most[0], sum(size for k, (_, size) in live.items() if k not in own))
    with torch.autograd.graph.saved_tensors_hooks(lambda x: _Kept(x.detach(), count), lambda kept: kept.x): call()
    return most[0] / 2**20

@cache
def _solutions(stem): # of the shipped notebook, in a space of their own
    import nbformat
    from rlhf_nb.book.checks import CHECK, needed
    nb = nbformat.read(notebooks()/f"{stem}.ipynb", 4)
    space = {"__name__": "ours"}
    for source in needed(nb, [k for c in nb.cells for k in CHECK.findall(c.source)]): exec(compile(source, stem, "exec"), space)
    return space

@dataclass(frozen=True)
class Properties:
    "What one part of an assignment must fulfil."
    notebook:str                # its stem; the solution stands there
    name:str                    # of the function
    tests:dict[str,Callable]    # what must hold -> function of (answer, seed)
    seconds:float = 10.         # of processor time for each of them
    @property
    def reference(self): return _solutions(self.notebook)[self.name]
    def failures(self, answer, seed:int=0)->dict[str,str]: # what does not hold -> what came
        found = {}
        for words, test in self.tests.items():
            try:
                with within(self.seconds): test(answer, seed)
            except NotImplementedError: return {k: "not done yet" for k in self.tests}
            except Fails as e: found[words] = str(e)
            except Exception as e: found[words] = f"it stopped with {type(e).__name__}: {' '.join(str(e).split())[:150]}"
        return found
    def verdict(self, answer, seed:int=0)->str: # "right", "not done yet", or what does not hold
        found = self.failures(answer, seed)
        if not found: return "right"
        if {*found.values()} == {"not done yet"}: return "not done yet"
        return (f"{len(self.tests) - len(found)} of {len(self.tests)} hold; not so: "
                + "; ".join(f"{words} ({said})" for words, said in found.items()))
    def points(self, answer, of:int, seed:int=0)->float: # for nbgrader, which takes a last line as part of the points
        """Print what does not hold, and put ours in the place of an answer that is not right.

        Raises AssertionError where nothing holds."""
        found = self.failures(answer, seed) if callable(answer) else dict.fromkeys(self.tests, "no function of this name")
        print(f"{self.name}:", "right" if not found else "; ".join(f"{k} ({v})" for k, v in found.items()))
        if found: inspect.currentframe().f_back.f_globals[self.name] = self.reference
        if len(found) == len(self.tests): raise AssertionError(f"{self.name}: nothing holds")
        return round(of * (1 - len(found) / len(self.tests)), 1)
