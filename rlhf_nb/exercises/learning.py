"Exercises of the chapter on learning."
import math
from dataclasses import replace
import torch
from torch import tensor
from rlhf_nb.checks import Exercise
from rlhf_nb.learning import TrainConfig

# ---- a schedule that falls along a cosine

def _cosine(step, r, warm=lambda step, r: r.lr * (step + 1) / r.warmup_steps, behind=lambda r: r.warmup_steps,
            gaps=lambda r: r.n_steps - 1 - r.warmup_steps, most=1., half=2,
            shape=lambda decay: math.cos(math.pi * decay)):
    if step < r.warmup_steps and warm: return warm(step, r)
    decay = min(most, (step - behind(r)) / gaps(r))
    return r.lr * (r.final_lr_frac + (1 - r.final_lr_frac) * (1 + shape(decay)) / half)

_long = TrainConfig(lr=2., n_steps=21, warmup_steps=4, final_lr_frac=.2)
cosine_at = Exercise(
    reference=_cosine,
    cases={"the first step": (0, _long), "the end of the warm-up": (3, _long),
           "the first step after it": (4, _long), "half-way": (9, _long),
           "the last step": (20, _long), "after the end": (27, _long),
           "no warm-up": (3, TrainConfig(lr=.5, n_steps=8, warmup_steps=0, final_lr_frac=0.))},
    mistakes={
        "final_lr_frac is missing: it ends at 0": lambda s, r: _cosine(s, replace(r, final_lr_frac=0.)),
        "the warm-up is missing": lambda s, r: _cosine(s, r, warm=None),
        "the first step must not be lost: it begins at lr / warmup_steps, not at 0":
            lambda s, r: _cosine(s, r, warm=lambda s, r: r.lr * s / r.warmup_steps),
        "decay must be 0 right after the warm-up": lambda s, r: _cosine(
            s, r, behind=lambda r: 0, gaps=lambda r: r.n_steps - 1),
        "from the first step to the last there are n_steps - 1 gaps":
            lambda s, r: _cosine(s, r, gaps=lambda r: r.n_steps - r.warmup_steps),
        "decay ends at 1: after the last step the rate stays, it does not rise again":
            lambda s, r: _cosine(s, r, most=math.inf),
        "half of it: 1 + cos goes from 2 to 0": lambda s, r: _cosine(s, r, half=1),
        "cos(decay) is not enough: decay times pi": lambda s, r: _cosine(s, r, shape=math.cos),
        "that rises: 1 + cos, not 1 - cos":
            lambda s, r: _cosine(s, r, shape=lambda decay: -math.cos(math.pi * decay)),
        "that is a line, not a cosine": lambda s, r: _cosine(s, r, shape=lambda decay: 1 - 2 * decay)})

# ---- the mean of a batch that came in parts

def _mean(parts, empty=False, weigh=lambda n: n, over=lambda parts: sum(n for _, n in parts)):
    kept = [(mean, n) for mean, n in parts if n or empty]
    return sum(mean * weigh(n) for mean, n in kept) / over(kept)

def _running(parts):
    mean, *rest = [m for m, n in parts if n]
    for m in rest: mean = (mean + m) / 2
    return mean

def _detached(parts): return _mean([(getattr(m, "detach", lambda: m)(), n) for m, n in parts])

batch_mean = Exercise(
    reference=_mean,
    cases={"three parts": ([(3., 2), (1., 6), (2., 1)],), "one part": ([(4., 3)],),
           "a part without tokens": ([(5., 2), (math.nan, 0), (2., 4)],),
           "losses that learn": ([(tensor(m).requires_grad_(), n)
                                  for m, n in ((.5, 7), (3., 1), (1.5, 4))],),
           "all alike": ([(1., 5), (3., 5), (2., 5)],),
           "bf16": ([(tensor(m, dtype=torch.bfloat16), n) for m, n in ((.5, 6), (4., 1), (2., 3))],)},
    mistakes={
        "every part weighs the same here: weigh it by its tokens": lambda parts: _mean(
            parts, empty=True, weigh=lambda n: 1, over=len),
        "a mean times its tokens is a sum: divide by all tokens":
            lambda parts: _mean(parts, empty=True, over=len),
        "that is the sum: divide by all tokens": lambda parts: _mean(parts, over=lambda parts: 1),
        "a mean is not yet a sum: times its tokens, then add up":
            lambda parts: _mean(parts, weigh=lambda n: 1),
        "a mean is not yet a sum: times its tokens; and a part without tokens has no mean":
            lambda parts: _mean(parts, empty=True, weigh=lambda n: 1),
        "nan times 0 is nan: a part without tokens has no mean":
            lambda parts: _mean(parts, empty=True),
        "every part weighs the same here, those without tokens left out":
            lambda parts: _mean(parts, weigh=lambda n: 1, over=len),
        "weights upside down: a part with few tokens weighs more here": lambda parts: _mean(
            parts, weigh=lambda n: 1 / n, over=lambda parts: sum(1 / n for _, n in parts)),
        "a mean of two means after another: the last part weighs half": _running,
        "no gradient reaches the losses: do not detach": _detached})

# ---- the clinic: when to stop

def _stop(scores, patience, better=lambda score, best, last: score > best, start=-math.inf,
          back=True, enough=lambda misses, patience, n: misses >= patience):
    best, misses, last = start, 0, start
    for score in scores:
        if better(score, best, last): best, misses = score, 0 if back else misses
        else: misses += 1
        last = score
    return enough(misses, patience, len(scores))

fixed_stop = Exercise(
    reference=_stop,
    cases={"it rises": ([.2, .3, .5, .6], 2), "two evaluations without a new best": ([.2, .6, .5, .4], 2),
           "up again, but not to the best": ([.1, .7, .5, .6, .65], 3),
           "a new best in between": ([.3, .2, .4, .3], 2), "the same again": ([.5, .5, .5], 2),
           "three misses in all, never two in a row": ([.4, .3, .5, .4, .6, .5, .7, .6], 2),
           "patience 1": ([.4, .3], 1), "it falls, but not yet long": ([.4, .3, .2], 3),
           "no evaluation yet": ([], 1), "one evaluation": ([.3], 1), "negative scores": ([-3., -2., -1.], 2)},
    mistakes={
        "it still takes lower for better: it stops while the score rises": lambda s, p: _stop(
            s, p, lambda score, best, last: score < best, math.inf),
        "the last two scores do not decide, and lower is not better":
            lambda s, p: len(s) > 1 and s[-1] > s[-2],
        "compare with the best so far, not with the score before":
            lambda s, p: _stop(s, p, lambda score, best, last: score > last),
        "a new best sets the count back to 0": lambda s, p: _stop(s, p, back=False),
        "as good as the best is not better": lambda s, p: _stop(
            s, p, lambda score, best, last: score >= best),
        "that is one evaluation too late: `patience` misses are enough": lambda s, p: _stop(
            s, p, enough=lambda misses, p, n: misses > p),
        "that is one evaluation too early": lambda s, p: _stop(
            s, p, enough=lambda misses, p, n: misses >= p - 1),
        "one miss is not enough: it takes `patience` of them": lambda s, p: _stop(
            s, p, enough=lambda misses, p, n: misses >= 1),
        "how many evaluations there were does not matter": lambda s, p: _stop(
            s, p, enough=lambda misses, p, n: n > p),
        "scores may be below 0: begin with the first, or at -inf":
            lambda s, p: _stop(s, p, start=0.),
        "before the first evaluation there is no best: go on":
            lambda s, p: _stop(s, p) if s else max(s),
        "upside down: True means stop": lambda s, p: not _stop(s, p)})
