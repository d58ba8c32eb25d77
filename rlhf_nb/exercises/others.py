"""Other cases of the same exercise, for a teacher's marks: every number is another one, shapes, ties and signs stay.

A list of visible numbers that an answer has learned by heart is worth nothing on these."""
import random
from dataclasses import is_dataclass, replace
import torch
from rlhf_nb.book.changes import named_leaves
from rlhf_nb.book.checks import Exercise, record_call

def _put(x, path, leaf): # the same nested value but for one leaf
    if not path: return leaf
    k, *rest = path
    if is_dataclass(x): return replace(x, **{k: _put(getattr(x, k), rest, leaf)})
    if isinstance(x, dict): return x | {k: _put(x[k], rest, leaf)}
    return type(x)(_put(y, rest, leaf) if i == k else y for i, y in enumerate(x))

def _other(x, c): # a float or its tensor, of the same kind: probabilities stay probabilities
    if not isinstance(x, torch.Tensor): return x * c
    y = x.detach()
    if y.numel() > 1 and bool((y == y.round()).all()) and y.unique().numel() > 1:  # whole numbers, in their range
        return (y.max() + y.min() - y).requires_grad_(x.requires_grad)
    if y.ndim and y.shape[-1] > 1:
        wide, ones = y.double(), torch.ones(()).double()
        if (wide >= 0).all() and torch.allclose(wide.sum(-1), ones, atol=1e-3):
            y = (wide**c / (wide**c).sum(-1, keepdim=True)).to(x.dtype)
            return y.requires_grad_(x.requires_grad)
        if (wide <= 0).all() and torch.allclose(wide.exp().sum(-1), ones, atol=1e-3):
            return (c * wide).log_softmax(-1).to(x.dtype).requires_grad_(x.requires_grad)
    return (y * c).clone().requires_grad_(x.requires_grad)

def _without_first(x, b): # of every tensor of b rows in a nested value; models stay
    if isinstance(x, torch.Tensor):
        return x[1:].detach().clone().requires_grad_(x.requires_grad) if x.ndim and len(x) == b else x
    if isinstance(x, (tuple, list)) and not (isinstance(x, list) and len(x) == b): return type(x)(_without_first(y, b) for y in x)
    if isinstance(x, list): return x[1:]
    if is_dataclass(x): return replace(x, **{k: _without_first(y, b) for k, y in vars(x).items()})
    return x

def _flat(x): return [z for y in x for z in _flat(y)] if isinstance(x, (list, tuple)) else [x]

def _swapped(x): # a list of whole numbers or texts: the smallest of them for the largest and so on; equals stay equal
    to = {}
    for kind in (int, str):
        found = sorted({y for y in _flat(x) if type(y) is kind})
        to |= {(kind, a): b for a, b in zip(found, found[::-1])}
    def put(y): return type(y)(map(put, y)) if isinstance(y, (list, tuple)) else to.get((type(y), y), y)
    return put(x)

def _alike(a, b)->bool: # of two calls: the same error, or the same kind of result, finite in the same places
    if a.error or b.error: return a.error == b.error
    def kind(call): return [(k, x.shape, x.isfinite().tolist()) if isinstance(x, torch.Tensor) else (k, type(x))
                            for k, x in named_leaves([call.out, call.gradients]).items()]
    return kind(a) == kind(b)

def others(exercise:Exercise, seed:int)->Exercise:
    """The exercise with other numbers in every case; where there is none to change there is a row
    fewer, or lists hold their whole numbers and texts in other places, or the case stays."""
    rng, cases = random.Random(seed), {}
    for name, args in exercise.cases.items():
        was = record_call(exercise.reference, args)
        for path, x in named_leaves(args).items() if not was.error else ():
            real = isinstance(x, float) or isinstance(x, torch.Tensor) and x.is_floating_point() and x.element_size() > 2
            if not real: continue
            try: new = _put(args, path, _other(x, rng.uniform(.6, .95)))
            except (TypeError, ValueError, AttributeError): continue     # inside a model, or checked when it is made
            if _alike(record_call(exercise.reference, new), was): args = new
        if args is exercise.cases[name] and not was.error and not any(map(callable, args)): # no number to change: a row fewer
            n = {len(x) for x in named_leaves(args).values() if isinstance(x, torch.Tensor) and x.ndim}
            try: fewer = _without_first(args, max(n)) if len(n) == 1 and max(n) > 1 else args
            except (TypeError, ValueError): fewer = args
            now = record_call(exercise.reference, fewer)
            if not now.error and all(x.isfinite().all() for x in named_leaves([now.out]).values() if isinstance(x, torch.Tensor)):
                args = fewer
        if args is exercise.cases[name] and not was.error and all(isinstance(x, list) for x in args): # of token ids, of answers
            swapped = tuple(map(_swapped, args))
            if _alike(record_call(exercise.reference, swapped), was): args = swapped
        cases[name] = args
    return Exercise(exercise.reference, cases, exercise.mistakes)
