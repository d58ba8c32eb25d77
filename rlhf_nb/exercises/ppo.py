"Exercises of the chapter on PPO."
import math
import torch
from torch import Generator, tensor
from rlhf_nb import ppo
from rlhf_nb.book.checks import Exercise

nan, inf = math.nan, math.inf

def mask_of(*rows): return tensor([[c == "r" for c in row] for row in rows])

def randn(seed, *size, scale=1.): return scale * torch.randn(*size, generator=Generator().manual_seed(seed))

# ------------------------------------------------------------------ clipped_policy_loss
def _clipped(logp, old_logp, advantage, cliprange=.2, ratio=lambda d: d.exp(), both=torch.minimum, sign=-1,
             clip=lambda r, e: r.clamp(1 - e, 1 + e)):
    kind = torch.promote_types(logp.dtype, torch.float32)
    logp, old_logp, advantage = logp.to(kind), old_logp.to(kind), advantage.to(kind)
    r = ratio(logp - old_logp)
    return sign * both(r * advantage, clip(r, cliprange) * advantage)

def _moves(seed, *size, dtype=torch.float32, cliprange=.2, scale=.4):
    old = -3 * torch.rand(*size, generator=Generator().manual_seed(seed))
    now = old + randn(seed + 1, *size, scale=scale)
    return now.to(dtype).requires_grad_(), old.to(dtype), randn(seed + 2, *size).to(dtype), cliprange

_hand = (tensor([[1.5, 1.5, .5, .5]]).log().requires_grad_(), torch.zeros(1, 4), tensor([[1., -1., -1., 1.]]), .2)
clipped_policy_loss = Exercise(
    reference=ppo.clipped_policy_loss,
    cases={"four tokens by hand": _hand, "two rows": _moves(0, 2, 5), "one row": _moves(3, 1, 6),
           "another clip range": _moves(6, 3, 4, cliprange=.05), "one token": _moves(9, 1, 1),
           "nothing has moved, advantages of 0": (tensor([[-1., -2.]]).requires_grad_(), tensor([[-1., -2.]]),
                                                  tensor([[1., 0.]]), .2),
           "log-probs of -300": (tensor([[-300., -301.]]).requires_grad_(), tensor([[-300.1, -299.]]),
                                 tensor([[2., -2.]]), .2),
           "float64": _moves(12, 2, 3, dtype=torch.float64), "bf16": _moves(15, 2, 4, dtype=torch.bfloat16)},
    mistakes={
        "the sign: a loss is minus the gain": lambda *x: _clipped(*x, sign=1),
        "take the smaller gain, not the larger": lambda *x: _clipped(*x, both=torch.maximum),
        "the ratio is not clipped": lambda *x: _clipped(*x, clip=lambda r, e: r),
        "only the clipped product: where the policy moved the wrong way the gradient must flow":
            lambda *x: _clipped(*x, both=lambda a, b: b),
        "that is the log-ratio: exp is missing": lambda *x: _clipped(*x, ratio=lambda d: d),
        "the ratio is the wrong way round: now over when sampled": lambda *x: _clipped(*x, ratio=lambda d: (-d).exp()),
        "the ratio may also not fall below 1 - eps": lambda *x: _clipped(*x, clip=lambda r, e: r.clamp(max=1 + e)),
        "the ratio may also not rise above 1 + eps": lambda *x: _clipped(*x, clip=lambda r, e: r.clamp(min=1 - e)),
        "the clip is around 1, not around 0": lambda *x: _clipped(*x, clip=lambda r, e: r.clamp(-e, e)),
        "cliprange is an argument, not always .2": lambda a, b, A, e: _clipped(a, b, A, .2),
        "clip the ratio, not its log": lambda *x: _clipped(*x, clip=lambda r, e: r.log().clamp(-e, e).exp()),
        "the smaller product, not the smaller ratio: where A is below 0 these differ": lambda a, b, A, e: _clipped(
            a, b, A, e, both=lambda x, y: torch.where(A < 0, torch.maximum(x, y), torch.minimum(x, y))),
        "the loss of each token, not their mean": lambda *x: _clipped(*x).mean(),
        "the loss of each token, not their sum": lambda *x: _clipped(*x).sum(),
        "the loss of each token, not one number per row": lambda *x: _clipped(*x).mean(1),
        "no gradient reaches the policy": lambda a, b, A, e: _clipped(a.detach(), b, A, e),
        "the ratio at the clip is 1, the advantage alone": lambda a, b, A, e: -A * ((a - b).exp() * 0 + 1)})

# ------------------------------------------------------------------ gae
def _gae(reward, value, mask, gamma=1., lam=.95, next_gamma=None, far=True, ret=lambda A, v: A + v, end=False,
         late=False, gap=False, sign=1, dtype=None):
    kind = dtype or torch.promote_types(reward.dtype, torch.float32)
    r, v = [x.masked_fill(~mask, 0.).to(kind) for x in (reward, value)]
    out = torch.zeros_like(r)
    for b in range(len(r)):
        at = mask[b].nonzero().flatten().tolist()
        A = 0.
        for k in reversed(range(len(at))):
            i = at[k]
            ahead = v[b, at[k + 1]] if k + 1 < len(at) else (v[b, i] if end else 0.)
            if gap and k + 1 < len(at) and at[k + 1] != i + 1: ahead, A = 0., 0.
            delta = sign * (r[b, i] + (gamma if next_gamma is None else next_gamma) * ahead - (0. if late else v[b, i]))
            A = delta + gamma * lam * A if far else delta
            out[b, i] = A
    return out, ret(out, v)

def _returns_as_sum(reward, value, mask, gamma=1., lam=.95): # Monte Carlo, whatever lambda is
    A, _ = _gae(reward, value, mask, gamma, lam)
    B, _ = _gae(reward, value, mask, gamma, 1.)
    return A, B + value.masked_fill(~mask, 0.).to(B.dtype)

def _forwards(reward, value, mask, gamma=1., lam=.95): # the sum runs over the tokens before
    flipped = [x.flip(1) for x in (reward, value, mask)]
    kind = torch.promote_types(reward.dtype, torch.float32)
    r, v = [x.masked_fill(~mask, 0.).to(kind) for x in (reward, value)]
    delta, _ = _gae(reward, value, mask, gamma, 0.)
    A = torch.zeros_like(delta)
    run = torch.zeros(len(r), dtype=kind)
    for i in range(r.shape[1]):
        run = torch.where(mask[:, i], delta[:, i] + gamma * lam * run, run)
        A[:, i] = torch.where(mask[:, i], run, torch.zeros_like(run))
    return A, A + v

def _unmasked(reward, value, mask, gamma=1., lam=.95): return _gae(reward, value, mask | True, gamma, lam)

def _wild(seed, *rows, gamma=.9, lam=.8, fill=nan, dtype=torch.float32):
    mask = mask_of(*rows)
    r, v = [randn(seed + k, *mask.shape).masked_fill(~mask, fill).to(dtype) for k in (0, 1)]
    return r, v, mask, gamma, lam

gae = Exercise(
    reference=ppo.gae,
    cases={"the row of the text": (tensor([[0., 0., 1.]]), tensor([[.5, .5, .5]]), mask_of("rrr"), 1., .95),
           "prompt and pads hold 9": _wild(0, "pprrr.", "prr...", fill=9.),
           "prompt and pads hold nan": _wild(2, "prrr..", "pprrrr"),
           "pads on both sides": _wild(4, "..prr.", "prrrr.", ".ppprr"),
           "a gap in a response": _wild(6, "prr..rr", "prrrrr.", "pr.r.r."),
           "a gap, prompt and pads hold 0": _wild(8, "prr..rr", "prrrrr.", fill=0.),
           "an empty response": _wild(10, "ppp..", "pprrr"), "one token": _wild(12, "r"),
           "lambda 0": _wild(14, "prrr", "pprr", lam=0.), "lambda 1": _wild(16, "prrr", "pprr", lam=1.),
           "gamma 1": _wild(18, "prrrr", gamma=1.), "inf at a pad": _wild(20, "prrr..", "prrrrr", fill=inf),
           "values of -300": (tensor([[-300., 2.]]), tensor([[-299., -301.]]), mask_of("rr"), .99, .95),
           "float64": _wild(22, "prr.", dtype=torch.float64), "bf16": _wild(24, "prrrr", "prr..", dtype=torch.bfloat16)},
    mistakes={
        "lambda is missing": lambda r, v, m, g, l: _gae(r, v, m, g, 1.),
        "gamma is missing": lambda r, v, m, g, l: _gae(r, v, m, 1., l),
        "gamma is missing in delta: it discounts the next value as well": lambda *x: _gae(*x, next_gamma=1.),
        "gamma is missing in the sum: it discounts the next advantage as well":
            lambda r, v, m, g, l: _gae(r, v, m, 1., l, next_gamma=g),
        "that is delta alone: later deltas count in part": lambda *x: _gae(*x, far=False),
        "after the last token the value is 0": lambda *x: _gae(*x, end=True),
        "delta: take the value of the token itself off": lambda *x: _gae(*x, late=True),
        "a gap in the mask is stepped over: the next token is the next one that the mask holds":
            lambda *x: _gae(*x, gap=True),
        "the sum looks ahead, not back": _forwards,
        "where the mask is False rewards and values must not count": _unmasked,
        "0 times nan is nan: write 0 where the mask is False, do not multiply": lambda r, v, m, g, l: tuple(
            x + torch.where(m, 0., 0. * (r + v)) for x in _gae(r, v, m, g, l)),
        "returns are A + V: that is the reward plus V": lambda r, v, m, g, l: (_gae(r, v, m, g, l)[0], _gae(
            r, v, m, g, l, ret=lambda A, v: r.masked_fill(~m, 0.).to(v.dtype) + v)[1]),
        "prompt and pads get 0": lambda r, v, m, g, l: tuple(
            x + 5. * ~m for x in _gae(r, v, m, g, l)),
        "returns are A + V, for lambda below 1 not the sum of rewards": _returns_as_sum,
        "returns are A + V, not A - V": lambda *x: _gae(*x, ret=lambda A, v: A - v),
        "returns are A + V: the value is missing": lambda *x: _gae(*x, ret=lambda A, v: A),
        "the other way round: first advantages, then returns": lambda *x: _gae(*x)[::-1],
        "two results: advantages and returns": lambda *x: _gae(*x)[0],
        "the sign: reward and next value minus value": lambda *x: _gae(*x, sign=-1),
        "sums in 16 bits lose digits: go to float32 first": lambda r, v, m, g, l: tuple(
            x.to(r.dtype) for x in _gae(r, v, m, g, l))})

# ------------------------------------------------------------------ ppo_rewards
def _rewards(score, logp, ref_logp, mask, beta=.1, cost=lambda d: d, data=True, at=None, penalised=None, sign=-1):
    kind = torch.promote_types(logp.dtype, torch.float32)
    if data: score, logp, ref_logp = score.detach(), logp.detach(), ref_logp.detach()
    d = (logp.to(kind) - ref_logp).masked_fill(~(mask if penalised is None else penalised), 0.)
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1) if at is None else at
    return (sign * beta * cost(d)).masked_fill(~(mask if penalised is None else penalised), 0.) + torch.where(
        last, score[:, None].to(kind), torch.zeros((), dtype=kind))

def _first(mask): return mask & (mask.cumsum(1) == 1)
def _last_column(mask): return (torch.arange(mask.shape[1]) == mask.shape[1] - 1).expand(mask.shape)

def _played(seed, *rows, beta=.3, fill=nan, dtype=torch.float32):
    mask = mask_of(*rows)
    logps = [(-3 * torch.rand(mask.shape, generator=Generator().manual_seed(seed + k))).masked_fill(
        tensor([[c == "." for c in row] for row in rows]), fill).to(dtype).requires_grad_() for k in (0, 1)]
    return randn(seed + 2, len(mask)).to(dtype).requires_grad_(), *logps, mask, beta

ppo_rewards = Exercise(
    reference=ppo.ppo_rewards,
    cases={"the row of the text": (tensor([2.]), tensor([[-1., -1.]]), tensor([[-1.5, -1.5]]), mask_of("rr"), .2),
           "two rows": _played(0, "prrr.", "pprrr"), "pads on both sides": _played(3, "..prr.", "pprrrr", ".prrr."),
           "an empty response": _played(6, "ppp..", "pprrr"), "one row": _played(9, "prrrr"),
           "inf at a pad": _played(12, "prr..", "prrrr", fill=inf), "beta 0": _played(15, "prr", "ppr", beta=0.),
           "log-probs of -300": (tensor([1., 0.]), tensor([[-300., -1.], [-2., -300.]]),
                                 tensor([[-301., -1.], [-2., -298.]]), mask_of("rr", "rr"), .1),
           "float64": _played(18, "prr.", dtype=torch.float64), "bf16": _played(21, "prrr", "pprr", dtype=torch.bfloat16)},
    mistakes={
        "the sign: leaving the reference costs": lambda *x: _rewards(*x, sign=1),
        "beta is missing": lambda s, a, b, m, beta: _rewards(s, a, b, m, 1.),
        "beta is an argument, not always .1": lambda s, a, b, m, beta: _rewards(s, a, b, m, .1),
        "beta is the price of the KL: the score has no factor": lambda s, a, b, m, beta: _rewards(
            beta * s, a, b, m, beta),
        "rewards are data: no gradient flows through them": lambda *x: _rewards(*x, data=False),
        "the score carries a gradient as well: detach it": lambda s, a, b, m, beta: _rewards(
            s, a.detach(), b.detach(), m, beta, data=False),
        "the score stands at the last response token alone": lambda *x: _rewards(*x, at=x[3]),
        "the score stands at the last response token, not at the first": lambda *x: _rewards(*x, at=_first(x[3])),
        "the score stands at the last response token, not in the last column":
            lambda *x: _rewards(*x, at=_last_column(x[3])),
        "the score is missing": lambda *x: _rewards(*x, at=x[3] & False),
        "the KL penalty is missing": lambda s, a, b, m, beta: _rewards(s, a, b, m, 0.),
        "the last token pays its KL as well": lambda *x: _rewards(
            *x, penalised=x[3] & (x[3].flip(1).cumsum(1).flip(1) > 1)),
        "prompt tokens cost nothing": lambda s, a, b, m, beta: _rewards(
            s, a, b, m, beta, penalised=m | ~(a - b).isnan()),
        "nan at a pad gets through: choose with the mask, do not multiply": lambda s, a, b, m, beta: (
            -beta * (a.detach().float() - b.detach()) * m + _rewards(s, a, a, m, 0.).nan_to_num(0.)),
        "that is k3: the penalty is the log-ratio itself": lambda *x: _rewards(*x, cost=lambda d: torch.expm1(-d) + d),
        "that is the ratio: its log costs": lambda *x: _rewards(*x, cost=torch.exp),
        "a token below the reference gets a refund: no absolute value": lambda *x: _rewards(*x, cost=torch.abs),
        "one reward per token, not one per answer": lambda *x: _rewards(*x).sum(1),
        "the whole penalty stands at the last token: each token pays its own": lambda *x: torch.where(
            x[3] & (x[3].flip(1).cumsum(1).flip(1) == 1), _rewards(*x).sum(1, keepdim=True), 0.)})

# ------------------------------------------------------------------ ppo_loss
def _value_loss(v, old, G, e, both=torch.maximum):
    clipped = old + (v - old).clamp(-e, e)
    return both((v - G)**2, (clipped - G)**2) / 2

def _loss(logp, old_logp, advantage, value, old_value, returns, mask, e=.2, ev=.2, c=.1, over=None, sign=1,
          value_loss=_value_loss, where=None):
    keep = mask if where is None else where
    kind = torch.promote_types(logp.dtype, torch.float32)
    x = [y.masked_fill(~keep, 0.).to(kind) for y in (logp, old_logp, advantage, value, old_value, returns)]
    each = sign * _clipped(*x[:3], e) + c * value_loss(*x[3:], ev)
    return over(each.masked_fill(~keep, 0.), keep) if over else each.masked_fill(~keep, 0.).sum() / keep.sum().clamp(min=1)

def _batch(seed, *rows, e=.2, ev=.3, c=.5, fill=nan, dtype=torch.float32, data=()):
    mask, pad = mask_of(*rows), tensor([[ch == "." for ch in row] for row in rows])
    old = -3 * torch.rand(mask.shape, generator=Generator().manual_seed(seed))
    old_value = randn(seed + 3, *mask.shape)
    x = [old + randn(seed + 1, *mask.shape, scale=.4), old, randn(seed + 2, *mask.shape),
         old_value + randn(seed + 4, *mask.shape, scale=.4), old_value, randn(seed + 5, *mask.shape)]
    return *[y.masked_fill(pad, fill).to(dtype) for y in x], mask, e, ev, c

def _live(args): # with gradients for what is trained
    return tuple(x.requires_grad_() if i in (0, 3) else x for i, x in enumerate(args))

_text = (tensor([[1.5, .5]]).log().requires_grad_(), torch.zeros(1, 2), tensor([[1., -1.]]), tensor([[.5, .3]]).requires_grad_(),
         torch.zeros(1, 2), tensor([[1., .3]]), mask_of("rr"), .2, .2, .1)
ppo_loss = Exercise(
    reference=ppo.ppo_loss,
    cases={"two tokens": _text, "rows of unlike length": _live(_batch(0, "prrrrrrr", "pr......", "prr.....", fill=0.)),
           "pads on both sides": _live(_batch(10, "..prr.", "prrrr.", ".ppprr", fill=3.)),
           "pads that hold nan": _batch(20, "prrr..", "prrrrr"), "one row": _live(_batch(30, "prrr")),
           "an empty response": _live(_batch(40, "ppp..", "pprrr", fill=1.)),
           "one clip range tight, the other wide": _live(_batch(50, "prrrr", "prrr.", e=.05, ev=9., fill=0.)),
           "the other way round": _live(_batch(60, "prrrr", "prrr.", e=9., ev=.05, fill=0.)),
           "weight 2": _live(_batch(70, "prrr", "pprr", c=2.)), "float64": _live(_batch(80, "prr", dtype=torch.float64)),
           "bf16": _batch(90, "prrr", "pprr", dtype=torch.bfloat16)},
    mistakes={
        "the value loss is missing": lambda *x: _loss(*x[:9], 0.),
        "vf_coef is missing": lambda *x: _loss(*x[:9], 1.),
        "the weight stands at the value loss, not at the policy loss": lambda *x: x[9] * _loss(*x[:9], 1 / x[9]),
        "the value loss is a loss: add it": lambda *x: _loss(*x[:9], -x[9]),
        "the policy loss has its minus already": lambda *x: _loss(*x, sign=-1),
        "the two clip ranges are swapped": lambda *x: _loss(*x[:7], x[8], x[7], x[9]),
        "the value has its own clip range": lambda *x: _loss(*x[:8], x[7], x[9]),
        "the clip ranges are arguments, not always .2": lambda *x: _loss(*x[:7], .2, .2, x[9]),
        "the value loss is not clipped": lambda *x: _loss(*x[:8], 1e9, x[9]),
        "that is the sum: take the mean over response tokens": lambda *x: _loss(*x, over=lambda y, m: y.sum()),
        "tokens weigh the same: that is a mean of the rows' means": lambda *x: _loss(
            *x, over=lambda y, m: (y.sum(1) / m.sum(1).clamp(min=1)).mean()),
        "divide by the number of response tokens, not of all places": lambda *x: _loss(
            *x, over=lambda y, m: y.mean()),
        "divide by the number of response tokens, not of rows": lambda *x: _loss(
            *x, over=lambda y, m: y.sum() / len(m)),
        "prompt and pads are counted": lambda *x: _loss(*x, where=x[6] | True),
        "prompt tokens are counted": lambda *x: _loss(*x, where=x[6] | ~(x[0].isnan() | (x[0] == x[1]))),
        "one number, not one per token": lambda *x: _loss(*x, over=lambda y, m: y),
        "one number, not one per row": lambda *x: _loss(*x, over=lambda y, m: y.sum(1) / m.sum(1).clamp(min=1)),
        "no gradient reaches the policy": lambda a, *x: _loss(a.detach(), *x),
        "no gradient reaches the critic": lambda a, b, A, v, *x: _loss(a, b, A, v.detach(), *x)})
