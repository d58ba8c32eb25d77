"""Mutants of right implementations, and right ones in other styles, for `rlhf-nb prove`.

Written from `prove --help` and from what goes wrong in trainers that people use, without sight of the
mistakes that `prove` knows. `WRONG[kind]` holds pairs of words and function: a verdict that names the
fault rightly has one of the words (a regular expression, in lower case; twelve were widened afterwards, where a verdict
said the fault in others). `RIGHT[kind]` holds functions. `DEFINED[kind]` holds those that were written as mutants and are
definitions in use: what is asked is that `prove` says which."""
import math, re
import numpy as np
import torch
import torch.nn.functional as F
from einops import einsum, rearrange, reduce

WRONG, RIGHT, DEFINED = {}, {}, {}
def defined(words): # another definition, and the words that say so
    def keep(fn): DEFINED.setdefault(fn.__name__.rstrip("_"), []).append((words, fn))
    return keep
def wrong(words): # -> decorator; the function bears the name of its kind
    def keep(fn): WRONG.setdefault(fn.__name__.rstrip("_"), []).append((words, fn))
    return keep
def right(fn): RIGHT.setdefault(fn.__name__.rstrip("_"), []).append(fn)

# logprobs: (b t v), (b t), (b t) bool -> one per token
def _gather(logits, ids): return logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
def _aligned(logits, ids): return F.pad(_gather(logits[:, :-1], ids[:, 1:]), (1, 0))

@right
def logprobs(logits, ids, mask): return _aligned(logits, ids).masked_fill(~mask, 0.)

@right
def logprobs(logits, ids, mask): # as trainers do: one column less
    logits, labels = logits[:, :-1], ids[:, 1:]
    logp = torch.gather(logits.log_softmax(-1), 2, labels.unsqueeze(2)).squeeze(2)
    return logp * mask[:, 1:]

@right
def logprobs(logits, ids, mask):
    x = logits.double()
    rows = []
    for b in range(len(ids)):
        row = [x.new_zeros(())]
        for i in range(1, ids.shape[1]):
            z = x[b, i - 1]
            row.append((z[ids[b, i]] - z.logsumexp(0)) if mask[b, i] else z.new_zeros(()))
        rows.append(torch.stack(row))
    return torch.stack(rows)

@right
def logprobs(logits, ids, mask):
    loss = F.cross_entropy(rearrange(logits[:, :-1], "b t v -> b v t").float(), ids[:, 1:], reduction="none")
    return F.pad(-loss, (1, 0)).masked_fill(~mask, 0)

@right
def logprobs(logits, ids, mask): # the selective form: logit minus logsumexp
    picked = logits[:, :-1].gather(-1, ids[:, 1:, None]).squeeze(-1) - logits[:, :-1].logsumexp(-1)
    return torch.where(mask[:, 1:], picked, 0.)

@right
def logprobs(logits, ids, mask):
    hot = F.one_hot(ids[:, 1:], logits.shape[-1]).to(logits)
    picked = einsum(hot, logits[:, :-1].log_softmax(-1), "b t v, b t v -> b t")
    return F.pad(picked, (1, 0)) * mask

@wrong("shift")
def logprobs(logits, ids, mask): return _gather(logits, ids).masked_fill(~mask, 0.)

@wrong("shift|direction|early|late|other way|two")
def logprobs(logits, ids, mask):
    out = torch.zeros_like(ids, dtype=logits.dtype)
    out[:, :-1] = _gather(logits[:, 1:], ids[:, :-1])
    return out * mask

@wrong("shift|mask|column|early|align")
def logprobs(logits, ids, mask):
    return _gather(logits[:, :-1], ids[:, 1:]) * mask[:, :-1]

@wrong("normali|softmax|raw|logit")
def logprobs(logits, ids, mask): return F.pad(logits[:, :-1].gather(-1, ids[:, 1:, None])[..., 0], (1, 0)) * mask

@wrong("log\\b|probabilit|exp")
def logprobs(logits, ids, mask): return F.pad(_gather(logits[:, :-1], ids[:, 1:]).exp(), (1, 0)) * mask

@wrong("sign|negat|minus")
def logprobs(logits, ids, mask): return -_aligned(logits, ids) * mask

@wrong("axis|dim|time|over the|positions")
def logprobs(logits, ids, mask):
    return F.pad(logits[:, :-1].log_softmax(1).gather(-1, ids[:, 1:, None])[..., 0], (1, 0)) * mask

@wrong("mask|prompt|pad|outside")
def logprobs(logits, ids, mask): return _aligned(logits, ids) * ~mask

@wrong("likeliest|max|greedy|ids|own token|argmax")
def logprobs(logits, ids, mask): return F.pad(logits[:, :-1].log_softmax(-1).amax(-1), (1, 0)) * mask

@wrong("gradient|detach|no_grad")
def logprobs(logits, ids, mask): return _aligned(logits.detach(), ids) * mask

@wrong("inf|underflow|log of|softmax|stable|extreme|nan|hundreds")
def logprobs(logits, ids, mask):
    p = logits[:, :-1].float().softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    return F.pad(p.log(), (1, 0)).masked_fill(~mask, 0.)

@wrong("length|mean|divid|average|number of tokens")
def logprobs(logits, ids, mask):
    return (_aligned(logits, ids) * mask) / mask.sum(1, keepdim=True).clamp(min=1)

@wrong("temperature|scale|factor|divid")
def logprobs(logits, ids, mask): return _aligned(logits / .7, ids) * mask

@wrong("base|log2|bits|factor|scale|times what")
def logprobs(logits, ids, mask): return _aligned(logits, ids) / math.log(2) * mask

@wrong("cumul|running|sum")
def logprobs(logits, ids, mask): return (_aligned(logits, ids) * mask).cumsum(1) * mask

@wrong("twice|two|shift|one place")
def logprobs(logits, ids, mask): return F.pad(_gather(logits[:, :-2], ids[:, 2:]), (2, 0)) * mask

@wrong("eps|1e-|clamp|stable|extreme|small|floor")
def logprobs(logits, ids, mask):
    p = logits[:, :-1].softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    return F.pad((p + 1e-3).log(), (1, 0)) * mask

@wrong("eos|last|end|final")
def logprobs(logits, ids, mask):
    last = mask & ~F.pad(mask[:, 1:], (0, 1))
    return _aligned(logits, ids) * (mask & ~last)

@wrong("bf16|bfloat16|precision|float32|round|half")
def logprobs(logits, ids, mask): return (_aligned(logits.bfloat16(), ids) * mask).to(logits.dtype)

@wrong("argument|in place|changes|changed|input")
def logprobs(logits, ids, mask):
    with torch.no_grad(): logits -= logits.logsumexp(-1, keepdim=True)
    return F.pad(logits[:, :-1].gather(-1, ids[:, 1:, None])[..., 0], (1, 0)) * mask

# sft: logits, ids, mask, labels -> a number
@right
def sft(logits, ids, mask): return -_aligned(logits, ids)[:, 1:][mask[:, 1:]].mean()

@right
def sft(logits, labels): # as a library's loss of labels: -100 is ignored
    x = logits[:, :-1].reshape(-1, logits.shape[-1])
    return F.cross_entropy(x, labels[:, 1:].reshape(-1), ignore_index=-100)

@right
def sft(logits, ids, mask):
    total, n = 0., 0
    for b in range(len(ids)):
        for i in range(1, ids.shape[1]):
            if mask[b, i]: total, n = total - logits[b, i - 1].log_softmax(0)[ids[b, i]], n + 1
    return total / n

@right
def sft(logits, ids, mask):
    hot = F.one_hot(ids[:, 1:], logits.shape[-1]).to(logits) * mask[:, 1:, None]
    return -einsum(hot, logits[:, :-1].log_softmax(-1), "b t v, b t v ->") / mask[:, 1:].sum()

@right
def sft(logits, labels):
    keep = labels[:, 1:] != -100
    logp = logits[:, :-1].double().log_softmax(-1)
    safe = labels[:, 1:].clamp(min=0)
    nll = -logp.gather(-1, safe[..., None]).squeeze(-1)
    return (nll * keep).sum() / keep.sum()

@wrong("shift")
def sft(logits, ids, mask): return -_gather(logits, ids)[mask].mean()

@wrong("shift")
def sft(logits, labels): return F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100)

@wrong("prompt|mask|every token|all tokens|pad")
def sft(logits, ids): return -_aligned(logits, ids)[:, 1:].mean()

@wrong("sign|negat|minus")
def sft(logits, ids, mask): return _aligned(logits, ids)[:, 1:][mask[:, 1:]].mean()

@wrong("count|divid|number|pads|mean over|denominator|numel|mask")
def sft(logits, ids, mask): return -(_aligned(logits, ids) * mask).mean()

@wrong("turned|invert|prompt|upside|mask|outside|complement")
def sft(logits, ids, mask): return -_aligned(logits, ids)[~mask].mean()

@wrong("shift|column|mask|early|align")
def sft(logits, ids, mask): return -_gather(logits[:, :-1], ids[:, 1:])[mask[:, :-1]].mean()

@wrong("eos|last|end|final")
def sft(logits, ids, mask): return -_aligned(logits, ids)[mask & F.pad(mask[:, 1:], (0, 1))].mean()

@wrong("gradient|detach|no_grad")
def sft(logits, ids, mask): return -_aligned(logits.detach(), ids)[:, 1:][mask[:, 1:]].mean() + 0 * logits.sum()

@wrong("log\\b|probabilit|exp")
def sft(logits, ids, mask): return -_aligned(logits, ids).exp()[:, 1:][mask[:, 1:]].mean()

@wrong("-100|ignore|pad|label|prompt|clamp|0")
def sft(logits, labels):
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:].clamp(min=0))

@wrong("first|token|one short|missing|start|skip")
def sft(logits, ids, mask): return -_aligned(logits, ids)[mask & F.pad(mask[:, :-1], (1, 0))].mean()

@wrong("smooth|label|uniform|mix")
def sft(logits, labels):
    x = logits[:, :-1].reshape(-1, logits.shape[-1])
    return F.cross_entropy(x, labels[:, 1:].reshape(-1), ignore_index=-100, label_smoothing=.2)

@wrong("normali|softmax|raw|logit")
def sft(logits, ids, mask): return -(F.pad(logits[:, :-1].gather(-1, ids[:, 1:, None])[..., 0], (1, 0))[mask]).mean()

@wrong("twice|shift|two")
def sft(logits, ids, mask):
    return -(F.pad(_gather(logits[:, :-2], ids[:, 2:]), (2, 0)))[mask].mean()

@wrong("batch|micro|first row|row|only|half")
def sft(logits, ids, mask): return -_aligned(logits[:1], ids[:1])[mask[:1]].mean()

@wrong("square|power")
def sft(logits, ids, mask): return (_aligned(logits, ids)[:, 1:][mask[:, 1:]]**2).mean()

# reward: Bradley-Terry
@right
def reward(chosen, rejected, margin): return -F.logsigmoid(chosen - rejected - margin)

@right
def reward(chosen, rejected): return -F.logsigmoid(chosen - rejected).mean()

@right
def reward(chosen, rejected, margin): return F.softplus(rejected + margin - chosen).mean()

@right
def reward(chosen, rejected):
    both = torch.stack([chosen, rejected], -1)
    return F.cross_entropy(both, torch.zeros(len(both), dtype=torch.long))

@right
def reward(chosen, rejected):
    gap = chosen.double() - rejected.double()
    return F.binary_cross_entropy_with_logits(gap, torch.ones_like(gap))

@right
def reward(chosen, rejected, margin):
    return torch.stack([torch.logaddexp(torch.zeros_like(c), -(c - r - m)) for c, r, m in zip(chosen, rejected, margin)])

@wrong("sign|swap|turned|rejected|order|exchang|other side")
def reward(chosen, rejected): return -F.logsigmoid(rejected - chosen).mean()

@wrong("sign|negat|minus")
def reward(chosen, rejected): return F.logsigmoid(chosen - rejected).mean()

@wrong("margin|sign")
def reward(chosen, rejected, margin): return -F.logsigmoid(chosen - rejected + margin).mean()

@wrong("overflow|inf|extreme|stable|log of|nan|sigmoid")
def reward(chosen, rejected): return -torch.sigmoid(chosen.float() - rejected.float()).log().mean()

@wrong("overflow|inf|extreme|stable|exp|nan")
def reward(chosen, rejected): return (1 + (rejected - chosen).exp()).log().mean()

@wrong("log\\b|sigmoid|probab")
def reward(chosen, rejected): return (1 - torch.sigmoid(chosen - rejected)).mean()

@wrong("gradient|detach|rejected")
def reward(chosen, rejected): return -F.logsigmoid(chosen - rejected.detach()).mean()

@defined("hinge") # the margin ranking loss of a pair
def reward(chosen, rejected): return F.relu(1 - chosen + rejected).mean()

@wrong("separate|alone|each|differ|gap|both|pair")
def reward(chosen, rejected): return (-F.logsigmoid(chosen) - F.logsigmoid(-rejected)).mean()

@wrong("broadcast|pair|every|all pairs|b b|shape|axis|cross")
def reward(chosen, rejected): return -F.logsigmoid(chosen[:, None] - rejected[None]).mean()

@wrong("square|mse|logistic|sigmoid")
def reward(chosen, rejected): return ((chosen - rejected - 1)**2).mean()

@wrong("temperature|scale|factor|beta|two|2|half|\\.5")
def reward(chosen, rejected): return -F.logsigmoid(.5 * (chosen - rejected)).mean()

@wrong("abs|sign|absolute")
def reward(chosen, rejected): return -F.logsigmoid((chosen - rejected).abs()).mean()

@wrong("margin|outside|inside|added")
def reward(chosen, rejected, margin): return (-F.logsigmoid(chosen - rejected) + margin).mean()

@wrong("softplus|log|exp|sign|sigmoid|gap")
def reward(chosen, rejected): return (chosen - rejected).exp().log1p().mean()

@wrong("mean|batch|first|gap|average|jensen|pair")
def reward(chosen, rejected): return -F.logsigmoid((chosen - rejected).mean())

# pooling: (b t), (b t) bool -> (b)
@right
def pooling(scores, mask):
    at = torch.where(mask, torch.arange(mask.shape[1]), -1).amax(1)
    return scores[torch.arange(len(scores)), at]

@right
def pooling(scores, mask):
    last = mask.shape[1] - 1 - mask.flip(1).long().argmax(1)
    return scores.gather(1, last[:, None]).squeeze(1)

@right
def pooling(scores, mask): return torch.stack([row[m][-1] for row, m in zip(scores, mask)])

@right
def pooling(scores, mask):
    is_last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return reduce(scores.masked_fill(~is_last, 0.), "b t -> b", "sum")

@right
def pooling(scores, mask):
    at = mask.long().cumsum(1).argmax(1)
    return einsum(scores, F.one_hot(at, mask.shape[1]).to(scores), "b t, b t -> b")

@wrong("left|count|number|side|length")
def pooling(scores, mask): return scores[torch.arange(len(scores)), mask.sum(1) - 1]

@wrong("pad|last column|right|-1")
def pooling(scores, mask): return scores[:, -1]

@wrong("first|start")
def pooling(scores, mask): return scores[torch.arange(len(scores)), mask.long().argmax(1)]

@wrong("mean|average")
def pooling(scores, mask): return (scores * mask).sum(1) / mask.sum(1)

@wrong("before|one too|eos|early|last but|off by one|second")
def pooling(scores, mask):
    at = torch.where(mask, torch.arange(mask.shape[1]), -1).amax(1)
    return scores[torch.arange(len(scores)), (at - 1).clamp(min=0)]

@wrong("after|one too|pad|late|off by one|behind")
def pooling(scores, mask):
    at = torch.where(mask, torch.arange(mask.shape[1]), -1).amax(1)
    return scores[torch.arange(len(scores)), (at + 1).clamp(max=mask.shape[1] - 1)]

@wrong("max|largest|highest")
def pooling(scores, mask): return scores.masked_fill(~mask, -torch.inf).amax(1)

@wrong("sum")
def pooling(scores, mask): return (scores * mask).sum(1)

@wrong("shape|b b|pair|each row|broadcast")
def pooling(scores, mask):
    at = torch.where(mask, torch.arange(mask.shape[1]), -1).amax(1)
    return scores[:, at]

@wrong("gradient|detach|no_grad")
def pooling(scores, mask):
    at = torch.where(mask, torch.arange(mask.shape[1]), -1).amax(1)
    return scores.detach()[torch.arange(len(scores)), at]

@wrong("first column|0\\b|first|cls|start|prompt")
def pooling(scores, mask): return scores[:, 0]

@wrong("mean|average|pads|all")
def pooling(scores, mask): return scores.mean(1)

@wrong("left|first pad|pad|side|wrap|argmin|-1")
def pooling(scores, mask): # the place before the first pad, as old classifiers did
    at = (~mask).long().argmax(1) - 1
    return scores[torch.arange(len(scores)), at]

@wrong("longest|batch|each row|own|same column|max|pad|row")
def pooling(scores, mask): return scores[:, int(mask.sum(1).max()) - 1]

@wrong("sigmoid|raw|squash|0 to 1|scale|logit")
def pooling(scores, mask):
    at = torch.where(mask, torch.arange(mask.shape[1]), -1).amax(1)
    return scores[torch.arange(len(scores)), at].sigmoid()

# kl: (b t), (b t) -> (b t)
@right
def kl(logp, ref_logp): return logp - ref_logp

@right
def kl(logp, ref_logp): return .5 * (logp - ref_logp).square()

@right
def kl(logp, ref_logp):
    d = ref_logp - logp
    return torch.exp(d) - d - 1

@right
def kl(logp, ref_logp): return torch.expm1(ref_logp - logp) + (logp - ref_logp)

@right
def kl(logp, ref_logp): # numbers, one by one
    return torch.stack([torch.stack([math.e**(b - a) - 1 + (a - b) for a, b in zip(x, y)]) for x, y in zip(logp, ref_logp)])

@right
def kl(logp, ref_logp):
    a, b = logp.double(), ref_logp.double()
    return -(b - a)

@wrong("sign|turned|order|swap|other way|minus|negat|direction")
def kl(logp, ref_logp): return ref_logp - logp

@wrong("sign|exponent|turned|ratio|forward|direction|inver|swap|other way|ref")
def kl(logp, ref_logp):
    d = logp - ref_logp
    return d.exp() - 1 - d

@wrong("- ?1|one|constant|minus 1|term")
def kl(logp, ref_logp):
    d = ref_logp - logp
    return d.exp() - d

@wrong("sign|term|\\+|d\\b|minus|k3")
def kl(logp, ref_logp):
    d = ref_logp - logp
    return d.exp() - 1 + d

@wrong("term|d\\b|missing|ratio|minus|k1|linear|- 1")
def kl(logp, ref_logp): return (ref_logp - logp).exp() - 1

@wrong("half|/ 2|factor|2|twice")
def kl(logp, ref_logp): return (logp - ref_logp)**2

@defined("abs") # verl's kl_penalty "abs"
def kl(logp, ref_logp): return (logp - ref_logp).abs()

@wrong("exp|ratio|log\\b")
def kl(logp, ref_logp): return (logp - ref_logp).exp()

@wrong("weight|probab|exp|π|pi|policy|factor|sample")
def kl(logp, ref_logp): return logp.exp() * (logp - ref_logp)

@wrong("detach|gradient")
def kl(logp, ref_logp): return (logp.detach() - ref_logp)

@wrong("clamp|clip|limit|bound|large|extreme|0 or more|below 0")
def kl(logp, ref_logp): return (logp - ref_logp).clamp(min=0)

@wrong("clamp|clip|limit|bound|large|extreme")
def kl(logp, ref_logp):
    d = (ref_logp - logp).clamp(-1, 1)
    return d.exp() - d - 1

@wrong("sign|minus|negat")
def kl(logp, ref_logp):
    d = ref_logp - logp
    return -(d.exp() - d - 1)

@wrong("divid|ratio|quotient|difference|log\\b|stands where")
def kl(logp, ref_logp): return logp / ref_logp

@wrong("weight|probab|exp|reference|ref|forward|factor")
def kl(logp, ref_logp): return ref_logp.exp() * (ref_logp - logp)

@wrong("half|/ 2|factor|2|twice|scale")
def kl(logp, ref_logp): return 2 * (logp - ref_logp)

@wrong("cumul|running|sum|each token")
def kl(logp, ref_logp): return (logp - ref_logp).cumsum(1)

@wrong("ref|missing|entropy|log π|only")
def kl(logp, ref_logp): return logp + 0 * ref_logp

@wrong("bf16|bfloat16|precision|float32|round|half")
def kl(logp, ref_logp): return (logp.bfloat16() - ref_logp.bfloat16()).to(logp.dtype)

@wrong("cancel|precision|digits|expm1|small|near|float32|half|bf16|round")
def kl(logp, ref_logp):
    d = (ref_logp - logp).half()
    return (d.exp() - 1 - d).to(logp.dtype)

# gae: (b t), (b t), (b t) bool, gamma, lam -> advantages, returns
def _g(rewards, values, mask, gamma, lam, delta=None, decay=None, forward=False, ret=None, hold=True, nxt0=None, clean=True,
       carry=None):
    r, v = (rewards.masked_fill(~mask, 0), values.masked_fill(~mask, 0)) if clean else (rewards, values)
    adv, run = torch.zeros_like(v), torch.zeros_like(v[:, 0])
    nxt = torch.zeros_like(run) if nxt0 is None else nxt0
    for i in range(v.shape[1]) if forward else reversed(range(v.shape[1])):
        here = mask[:, i] if hold else torch.ones_like(mask[:, i])
        d = delta(r[:, i], nxt, v[:, i]) if delta else r[:, i] + gamma * nxt - v[:, i]
        run = torch.where(here, d + (gamma * lam if decay is None else decay) * (carry(run) if carry else run), run)
        nxt = torch.where(here, v[:, i], nxt)
        adv[:, i] = run
    out = adv + v if ret is None else ret(adv, v, r)
    return (adv.masked_fill(~mask, 0), out.masked_fill(~mask, 0)) if clean else (adv, out)

@right
def gae(rewards, values, mask, gamma, lam): return _g(rewards, values, mask, gamma, lam)

@right
def gae(rewards, values, mask, gamma, lam): # a sum over pairs of tokens
    place, both = mask.cumsum(1), mask[:, None] & mask[:, :, None]
    gap = place[:, None] - place[:, :, None]
    v, r = values.masked_fill(~mask, 0), rewards.masked_fill(~mask, 0)
    follows = einsum((both & (gap == 1)).to(v), v, "b i j, b j -> b i")
    power = torch.where(both & (gap >= 0), (gamma * lam) ** gap.clamp(min=0).to(v), 0.)
    adv = einsum(power, r + gamma * follows - v, "b i j, b j -> b i")
    return adv, (adv + v) * mask

@right
def gae(rewards, values, mask, gamma, lam):
    adv = torch.zeros_like(values)
    for b in range(len(mask)):
        last, nxt = 0., 0.
        for i in reversed(mask[b].nonzero()[:, 0].tolist()):
            last = rewards[b, i] + gamma * nxt - values[b, i] + gamma * lam * last
            nxt, adv[b, i] = values[b, i], last
    return adv, (adv + values.masked_fill(~mask, 0)).masked_fill(~mask, 0)

@right
def gae(rewards, values, mask, gamma, lam): # lambda-returns first
    r, v = rewards.masked_fill(~mask, 0).double(), values.masked_fill(~mask, 0).double()
    ret, run, nxt = torch.zeros_like(v), torch.zeros_like(v[:, 0]), torch.zeros_like(v[:, 0])
    for i in reversed(range(v.shape[1])):
        m = mask[:, i]
        run = torch.where(m, r[:, i] + gamma * ((1 - lam) * nxt + lam * run), run)
        nxt = torch.where(m, v[:, i], nxt)
        ret[:, i] = run
    ret = ret.masked_fill(~mask, 0)
    return ret - v, ret

@wrong("direction|forward|backward|time|order|reverse")
def gae(rewards, values, mask, gamma, lam): return _g(rewards, values, mask, gamma, lam, forward=True)

@wrong("lam|λ")
def gae(rewards, values, mask, gamma, lam): return _g(rewards, values, mask, gamma, lam, decay=gamma)

@wrong("gamma|γ|discount")
def gae(rewards, values, mask, gamma, lam): return _g(rewards, values, mask, gamma, lam, decay=lam)

@wrong("gamma|γ|discount|next value")
def gae(rewards, values, mask, gamma, lam):
    return _g(rewards, values, mask, gamma, lam, delta=lambda r, n, v: r + n - v)

@wrong("gamma|γ|discount")
def gae(rewards, values, mask, gamma, lam): return _g(rewards, values, mask, 1., lam)

@wrong("next value|v_\\{?[it] ?\\+|bootstrap|term|follow|next|missing")
def gae(rewards, values, mask, gamma, lam):
    return _g(rewards, values, mask, gamma, lam, delta=lambda r, n, v: r - v)

@wrong("value|baseline|subtract|minus|term|v_t|critic")
def gae(rewards, values, mask, gamma, lam):
    return _g(rewards, values, mask, gamma, lam, delta=lambda r, n, v: r + gamma * n)

@wrong("sign|delta|δ|turned|minus|swap")
def gae(rewards, values, mask, gamma, lam):
    return _g(rewards, values, mask, gamma, lam, delta=lambda r, n, v: r - gamma * n + v)

@wrong("gap|tool|hole|stepped|inside|cut|stops|interrupt|turn")
def gae(rewards, values, mask, gamma, lam):
    r, v = rewards.masked_fill(~mask, 0), values.masked_fill(~mask, 0)
    adv, run, nxt = torch.zeros_like(v), torch.zeros_like(v[:, 0]), torch.zeros_like(v[:, 0])
    for i in reversed(range(v.shape[1])):
        run = (r[:, i] + gamma * nxt - v[:, i] + gamma * lam * run) * mask[:, i]
        nxt = v[:, i] * mask[:, i]
        adv[:, i] = run
    return adv, (adv + v) * mask

@wrong("mask|pad|outside|anything|prompt|nan|reads")
def gae(rewards, values, mask, gamma, lam): return _g(rewards, values, torch.ones_like(mask), gamma, lam)

@wrong("return|advantage|second|\\+ v|value")
def gae(rewards, values, mask, gamma, lam): return _g(rewards, values, mask, gamma, lam, ret=lambda a, v, r: a)

@wrong("return|sign|minus|- v|second")
def gae(rewards, values, mask, gamma, lam): return _g(rewards, values, mask, gamma, lam, ret=lambda a, v, r: a - v)

@wrong("swap|order|exchang|turned|first|return")
def gae(rewards, values, mask, gamma, lam): return _g(rewards, values, mask, gamma, lam)[::-1]

@wrong("bootstrap|last|eos|after the|end|own value|terminal")
def gae(rewards, values, mask, gamma, lam):
    at = torch.where(mask, torch.arange(mask.shape[1]), -1).amax(1).clamp(min=0)
    return _g(rewards, values, mask, gamma, lam, nxt0=values.masked_fill(~mask, 0)[torch.arange(len(mask)), at])

@wrong("lam|λ|td|one step|running|delta|sum|0\\b")
def gae(rewards, values, mask, gamma, lam): return _g(rewards, values, mask, gamma, lam, decay=0.)

@wrong("gamma|γ|lam|λ|swap|exchang|discount")
def gae(rewards, values, mask, gamma, lam): return _g(rewards, values, mask, lam, gamma)

@wrong("shift|value|after|before|one token|next|late|early")
def gae(rewards, values, mask, gamma, lam):
    v = F.pad(values.masked_fill(~mask, 0)[:, :-1], (1, 0))
    return _g(rewards, v, mask, gamma, lam)

@wrong("last|reward|eos|missing|final|score|end|t - 1")
def gae(rewards, values, mask, gamma, lam):
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return _g(rewards.masked_fill(last, 0), values, mask, gamma, lam)

@wrong("row|batch|leak|flat|other|carr|response")
def gae(rewards, values, mask, gamma, lam):
    adv, run, nxt = torch.zeros_like(values), 0., 0.
    for b in reversed(range(len(mask))):
        for i in reversed(mask[b].nonzero()[:, 0].tolist()):
            run = rewards[b, i] + gamma * nxt - values[b, i] + gamma * lam * run
            nxt, adv[b, i] = values[b, i], run
    return adv, (adv + values.masked_fill(~mask, 0)).masked_fill(~mask, 0)

@wrong("gap|tool|hole|decay|discount|stepped|inside|positions|column|turn")
def gae(rewards, values, mask, gamma, lam): return _g(rewards, values, mask, gamma, lam, hold=False)

@wrong("return|mask|pad|outside|prompt|0 where|nan|second")
def gae(rewards, values, mask, gamma, lam):
    adv, _ = _g(rewards, values, mask, gamma, lam)
    return adv, adv + values

@wrong("square|power|lam|λ|twice|decay|gamma|γ")
def gae(rewards, values, mask, gamma, lam): return _g(rewards, values, mask, gamma, lam, decay=gamma * lam * lam)

@wrong("reward|sign|penalty|negat|minus")
def gae(rewards, values, mask, gamma, lam): return _g(-rewards, values, mask, gamma, lam)

@wrong("1 - lam|1 - λ|lam|λ|factor|weight|average|delta|scale")
def gae(rewards, values, mask, gamma, lam):
    return _g(rewards, values, mask, gamma, lam, delta=lambda r, n, v: (1 - lam) * (r + gamma * n - v))

@wrong("argument|in place|changes|changed|input")
def gae(rewards, values, mask, gamma, lam):
    rewards *= mask
    values *= mask
    return _g(rewards, values, mask, gamma, lam)

# ppo, grpo: policy losses
def _adv(advantages, x): return advantages[:, None] if advantages.dim() == 1 else advantages
def _policy(logp, advantages, old_logp, epsilon=.2, epsilon_high=None):
    rho, a = (logp - old_logp).exp(), _adv(advantages, logp)
    high = epsilon if epsilon_high is None else epsilon_high
    return -torch.min(rho * a, rho.clamp(1 - epsilon, 1 + high) * a)
def _k3(logp, ref_logp): return torch.expm1(ref_logp - logp) + logp - ref_logp
def _tokens(x, mask): return x.masked_fill(~mask, 0.).sum() / mask.sum().clamp(min=1)
def _rows(x, mask): return (x.masked_fill(~mask, 0.).sum(1) / mask.sum(1).clamp(min=1)).mean()
def _const(x, mask, max_length): return x.masked_fill(~mask, 0.).sum() / (len(x) * max_length)

@right
def ppo(logp, advantages, mask, old_logp, epsilon): return _tokens(_policy(logp, advantages, old_logp, epsilon), mask)

@right
def ppo(logp, advantages, mask, old_logp, epsilon):
    ratio = torch.exp(logp - old_logp)
    a = _adv(advantages, logp)
    losses = torch.max(-a * ratio, -a * torch.clamp(ratio, 1. - epsilon, 1. + epsilon))
    return losses[mask].mean()

@right
def ppo(logp, advantages, mask, old_logp, epsilon, epsilon_high):
    return _tokens(_policy(logp, advantages, old_logp, epsilon, epsilon_high), mask)

@right
def ppo(logp, advantages, mask, old_logp, epsilon): # token by token
    total, n = 0., 0
    for b in range(len(mask)):
        for i in range(mask.shape[1]):
            if not mask[b, i]: continue
            a = advantages[b] if advantages.dim() == 1 else advantages[b, i]
            rho = (logp[b, i] - old_logp[b, i]).exp()
            near = rho.clamp(1 - epsilon, 1 + epsilon)
            total, n = total - torch.minimum(rho * a, near * a), n + 1
    return total / n

@right
def ppo(logp, advantages, mask, old_logp, epsilon): return _rows(_policy(logp, advantages, old_logp, epsilon), mask)

@right
def ppo(logp, advantages, mask): # one step on policy: the ratio is 1 and carries the gradient
    return _tokens(_policy(logp, advantages, logp.detach()), mask)

def _ppo(logp, advantages, mask, old_logp, epsilon, loss): return _tokens(loss((logp - old_logp).exp(), _adv(advantages, logp)), mask)

@wrong("max|min|pessimis|clip|larger|smaller")
def ppo(logp, advantages, mask, old_logp, epsilon):
    return _ppo(logp, advantages, mask, old_logp, epsilon, lambda r, a: -torch.max(r * a, r.clamp(1 - epsilon, 1 + epsilon) * a))

@wrong("sign|negat|minus")
def ppo(logp, advantages, mask, old_logp, epsilon):
    return -_tokens(_policy(logp, advantages, old_logp, epsilon), mask)

@wrong("ratio|turned|inver|old|swap|order")
def ppo(logp, advantages, mask, old_logp, epsilon):
    return _ppo(old_logp, advantages, mask, logp, epsilon, lambda r, a: -torch.min(r * a, r.clamp(1 - epsilon, 1 + epsilon) * a))

@wrong("exp|log\\b|ratio")
def ppo(logp, advantages, mask, old_logp, epsilon):
    d, a = logp - old_logp, _adv(advantages, logp)
    return _tokens(-torch.min(d * a, d.clamp(1 - epsilon, 1 + epsilon) * a), mask)

@wrong("mask|pad|prompt|all tokens|every")
def ppo(logp, advantages, mask, old_logp, epsilon): return _policy(logp, advantages, old_logp, epsilon).mean()

@wrong("count|divid|number|denominator|pads|mean over|numel|length|mask")
def ppo(logp, advantages, mask, old_logp, epsilon):
    return _policy(logp, advantages, old_logp, epsilon).masked_fill(~mask, 0.).mean()

@wrong("min|always|unclipped|clip|gradient")
def ppo(logp, advantages, mask, old_logp, epsilon):
    return _ppo(logp, advantages, mask, old_logp, epsilon, lambda r, a: -r.clamp(1 - epsilon, 1 + epsilon) * a)

@wrong("clip|missing|never|min|unclipped")
def ppo(logp, advantages, mask, old_logp, epsilon):
    return _ppo(logp, advantages, mask, old_logp, epsilon, lambda r, a: -r * a)

@wrong("detach|gradient")
def ppo(logp, advantages, mask, old_logp, epsilon):
    return _tokens(_policy(logp.detach(), advantages, old_logp, epsilon), mask) + 0 * logp.sum()

@wrong("advantage|sign|broadcast|rows|axis|column|shape|token|transpos")
def ppo(logp, advantages, mask, old_logp, epsilon):
    return _tokens(_policy(logp, advantages.flip(0), old_logp, epsilon), mask)

@wrong("abs|advantage|sign")
def ppo(logp, advantages, mask, old_logp, epsilon): return _tokens(_policy(logp, advantages.abs(), old_logp, epsilon), mask)

@wrong("clip|1 -|range|epsilon|around")
def ppo(logp, advantages, mask, old_logp, epsilon):
    return _ppo(logp, advantages, mask, old_logp, epsilon, lambda r, a: -torch.min(r * a, r.clamp(-epsilon, epsilon) * a))

@wrong("advantage|inside|outside|min|ratio|sign|negative|before")
def ppo(logp, advantages, mask, old_logp, epsilon):
    return _ppo(logp, advantages, mask, old_logp, epsilon, lambda r, a: -torch.min(r, r.clamp(1 - epsilon, 1 + epsilon)) * a)

@wrong("reference|ref|old|ratio")
def ppo(logp, advantages, mask, ref_logp, epsilon): return _tokens(_policy(logp, advantages, ref_logp, epsilon), mask)

@wrong("mask|turned|invert|opposite|prompt|complement|outside")
def ppo(logp, advantages, mask, old_logp, epsilon): return _tokens(_policy(logp, advantages, old_logp, epsilon), ~mask)

@wrong("eos|last|end|final")
def ppo(logp, advantages, mask, old_logp, epsilon):
    return _tokens(_policy(logp, advantages, old_logp, epsilon), mask & F.pad(mask[:, 1:], (0, 1)))

@wrong("shift|mask|column|early|late|align")
def ppo(logp, advantages, mask, old_logp, epsilon):
    return _tokens(_policy(logp, advantages, old_logp, epsilon), F.pad(mask[:, 1:], (0, 1)))

@wrong("clip|upper|lower|below|one side|epsilon|1 -")
def ppo(logp, advantages, mask, old_logp, epsilon):
    return _ppo(logp, advantages, mask, old_logp, epsilon, lambda r, a: -torch.min(r * a, r.clamp(max=1 + epsilon) * a))

@right # TRL's and verl's way; where pads hold finite log-probs it is the mean over the mask's tokens
def ppo(logp, advantages, mask, old_logp, epsilon):
    return (_policy(logp, advantages, old_logp, epsilon) * mask).sum() / mask.sum()

@wrong("kl|sign|penalty|reward|minus|bonus|beta")
def ppo(logp, advantages, mask, ref_logp, old_logp, epsilon, beta):
    return _tokens(_policy(logp, advantages, old_logp, epsilon) - beta * _k3(logp, ref_logp), mask)

@wrong("square|ratio|twice|advantage|product|power|times")
def ppo(logp, advantages, mask, old_logp, epsilon): return _tokens(_policy(logp, advantages**2 * advantages.sign(), old_logp, epsilon), mask)

@wrong("nan|empty|0/0|without a token|divid|clamp|row")
def ppo(logp, advantages, mask, old_logp, epsilon):
    x = _policy(logp, advantages, old_logp, epsilon).masked_fill(~mask, 0.)
    return (x.sum(1) / mask.sum(1)).mean()

# value loss
def _vl(values, returns, old_values, epsilon):
    near = old_values + (values - old_values).clamp(-epsilon, epsilon)
    return torch.max((values - returns)**2, (near - returns)**2) / 2

@right
def value(values, returns, old_values, mask, epsilon): return _tokens(_vl(values, returns, old_values, epsilon), mask)

@right
def value(values, returns, mask): return .5 * ((values - returns)[mask]**2).mean()

@right
def value(values, returns, mask): return F.mse_loss(values[mask], returns[mask])

@right
def value(values, returns, old_values, mask, epsilon):
    total = 0.
    for v, g, o, m in zip(values.flatten(), returns.flatten(), old_values.flatten(), mask.flatten()):
        if m: total = total + .5 * torch.maximum((v - g)**2, (v.clamp(o - epsilon, o + epsilon) - g)**2)
    return total / mask.sum()

@right
def value(values, returns, old_values, mask, epsilon):
    near = torch.max(torch.min(values, old_values + epsilon), old_values - epsilon)
    worst = torch.stack([(values - returns).square(), (near - returns).square()]).amax(0)
    return .5 * (worst * mask).nan_to_num(0.).sum() / mask.sum()

@wrong("min|max|clip")
def value(values, returns, old_values, mask, epsilon):
    near = old_values + (values - old_values).clamp(-epsilon, epsilon)
    return _tokens(torch.min((values - returns)**2, (near - returns)**2) / 2, mask)

@wrong("clip|returns|around|old|centre|center")
def value(values, returns, old_values, mask, epsilon):
    near = returns + (values - returns).clamp(-epsilon, epsilon)
    return _tokens(torch.max((values - old_values)**2, (near - returns)**2) / 2, mask)

@wrong("mask|pad|prompt|all|every")
def value(values, returns, old_values, mask, epsilon): return _vl(values, returns, old_values, epsilon).mean()

@wrong("count|divid|number|denominator|pads|numel|mean over|mask|length")
def value(values, returns, old_values, mask, epsilon): return _vl(values, returns, old_values, epsilon).masked_fill(~mask, 0.).mean()

@wrong("sign|negat|minus")
def value(values, returns, mask): return -.5 * ((values - returns)[mask]**2).mean()

@wrong("square|abs|absolute|power|l1")
def value(values, returns, mask): return (values - returns)[mask].abs().mean()

@wrong("old|target|returns|swap|exchang")
def value(values, returns, old_values, mask, epsilon): return _tokens(_vl(values, old_values, returns, epsilon), mask)

@wrong("detach|gradient")
def value(values, returns, mask): return .5 * ((values.detach() - returns)[mask]**2).mean() + 0 * values.sum()

@wrong("unclipped|max|always|clip|missing")
def value(values, returns, old_values, mask, epsilon):
    near = old_values + (values - old_values).clamp(-epsilon, epsilon)
    return .5 * _tokens((near - returns)**2, mask)

@wrong("mask|turned|invert|opposite|complement|outside|prompt")
def value(values, returns, old_values, mask, epsilon): return _tokens(_vl(values, returns, old_values, epsilon), ~mask)

@wrong("ratio|1 -|clip|multipl|old|relative|range|epsilon")
def value(values, returns, old_values, mask, epsilon):
    near = values.clamp(1 - epsilon, 1 + epsilon)
    return .5 * _tokens(torch.max((values - returns)**2, (near - returns)**2), mask)

@wrong("shift|column|early|late|one token|align|next")
def value(values, returns, mask):
    return .5 * ((values[:, :-1] - returns[:, 1:])[mask[:, 1:]]**2).mean()

@wrong("square|mean|inside|jensen|power|average")
def value(values, returns, mask): return .5 * (values - returns)[mask].mean()**2

@wrong("eos|last|end|final")
def value(values, returns, mask): return .5 * ((values - returns)[mask & F.pad(mask[:, 1:], (0, 1))]**2).mean()

@wrong("sign|plus|sum|minus|difference|\\+")
def value(values, returns, mask): return .5 * ((values + returns)[mask]**2).mean()

@wrong("one side|upper|lower|clip|below|epsilon|min|clamp")
def value(values, returns, old_values, mask, epsilon):
    near = old_values + (values - old_values).clamp(max=epsilon)
    return .5 * _tokens(torch.max((values - returns)**2, (near - returns)**2), mask)

# advantages: (b), (b) -> (b)
def _same(group): return (group[:, None] == group)
@right
def advantages(rewards, group):
    out = torch.zeros_like(rewards)
    for g in group.unique():
        r = rewards[group == g]
        out[group == g] = (r - r.mean()) / (r.std() + 1e-4) if len(r) > 1 else 0 * r
    return out

@right
def advantages(rewards, group):
    same = _same(group).to(rewards)
    return rewards - same @ rewards / same.sum(1)

@right
def advantages(rewards, group): # RLOO
    same = _same(group).to(rewards)
    n = same.sum(1)
    return torch.where(n > 1, (n * rewards - same @ rewards) / (n - 1).clamp(min=1), 0.)

@right
def advantages(rewards, group_size):
    if group_size == 1: return torch.zeros_like(rewards)
    r = rearrange(rewards, "(p k) -> p k", k=group_size)
    return rearrange((r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-4), "p k -> (p k)")

@right
def advantages(rewards, group_size):
    r = rewards.view(-1, group_size)
    return (r - (r.sum(1, keepdim=True) - r) / max(group_size - 1, 1)).flatten() * (group_size > 1)

@right
def advantages(rewards, group): # divided by n
    same = _same(group).to(rewards)
    n = same.sum(1)
    off = rewards - same @ rewards / n
    return off / ((same @ off**2 / n).sqrt() + 1e-4)

@right
def advantages(rewards, group): # mean of the group, std of the batch
    same = _same(group).to(rewards)
    return (rewards - same @ rewards / same.sum(1)) / (rewards.std() + 1e-4)

@wrong("sign|negat|minus|turned")
def advantages(rewards, group):
    same = _same(group).to(rewards)
    return same @ rewards / same.sum(1) - rewards

@wrong("group|view|order|interleav|reshape|prompt|column|different")
def advantages(rewards, group_size):
    r = rewards.view(group_size, -1)
    return (r - r.mean(0)).flatten()

@wrong("broadcast|one reward|same|every|first|all|group")
def advantages(rewards, group_size):
    r = rewards.view(-1, group_size)[:, :1].expand(-1, group_size).flatten()
    return r - r.mean()

@defined("without a baseline") # REINFORCE
def advantages(rewards, group): return rewards + 0.

@wrong("mean|baseline|subtract|cent")
def advantages(rewards, group):
    same = _same(group).to(rewards)
    m = same @ rewards / same.sum(1)
    return rewards / (((same @ rewards**2) / same.sum(1) - m**2).clamp(min=0).sqrt() + 1e-4)

@wrong("variance|root|sqrt|square")
def advantages(rewards, group_size):
    r = rewards.view(-1, group_size)
    return ((r - r.mean(1, keepdim=True)) / (r.var(1, keepdim=True) + 1e-4)).flatten()

@wrong("equal|nan|inf|0/0|epsilon|1e-|eps|zero|variance|alike|same")
def advantages(rewards, group_size):
    r = rewards.view(-1, group_size)
    return ((r - r.mean(1, keepdim=True)) / r.std(1, keepdim=True)).flatten()

@wrong("alone|single|nan|one answer|group of one|n - 1|0/0|one row|inf")
def advantages(rewards, group):
    same = _same(group).to(rewards)
    n = same.sum(1)
    return rewards - (same @ rewards - rewards) / (n - 1)

@wrong("own|itself|n - 1|leave|others|divid|number")
def advantages(rewards, group):
    same = _same(group).to(rewards)
    n = same.sum(1)
    return rewards - same @ rewards / (n - 1).clamp(min=1)

@wrong("n\\b|number|others|n - 1|divid|leave")
def advantages(rewards, group):
    same = _same(group).to(rewards)
    return rewards - (same @ rewards - rewards) / same.sum(1)

@wrong("sum|mean|divid|number")
def advantages(rewards, group): return rewards - _same(group).to(rewards) @ rewards

@wrong("abs|absolute|sign")
def advantages(rewards, group):
    same = _same(group).to(rewards)
    return (rewards - same @ rewards / same.sum(1)).abs()

@wrong("order|sort|permut|place|row")
def advantages(rewards, group):
    same = _same(group).to(rewards)
    return (rewards - same @ rewards / same.sum(1)).sort().values

@wrong("group|neighbour|stand together|consecut|order|permut|id|relabel|sort")
def advantages(rewards, group):
    same = ((group[:, None] - group).abs() <= 1).to(rewards)
    return rewards - same @ rewards / same.sum(1)

@wrong("median|mean")
def advantages(rewards, group_size):
    r = rewards.view(-1, group_size)
    return (r - r.median(1, keepdim=True).values).flatten()

@wrong("max|best|mean|baseline")
def advantages(rewards, group_size):
    r = rewards.view(-1, group_size)
    return (r - r.amax(1, keepdim=True)).flatten()

@wrong("softmax|exp|normali|sum")
def advantages(rewards, group_size): return rewards.view(-1, group_size).softmax(1).flatten()

@wrong("clamp|clip|negat|positive|0 or more|relu|cut off")
def advantages(rewards, group_size):
    r = rewards.view(-1, group_size)
    return (r - r.mean(1, keepdim=True)).clamp(min=0).flatten()

@wrong("transpos|order|place|permut|flat|view|interleav|group")
def advantages(rewards, group_size):
    r = rewards.view(-1, group_size)
    return (r - r.mean(1, keepdim=True)).T.flatten()

@wrong("shape|row|p k|flat")
def advantages(rewards, group_size):
    r = rewards.view(-1, group_size)
    return r - r.mean(1, keepdim=True)

@wrong("next|neighbour|previous|other row|others|shift|roll|group|baseline|leave")
def advantages(rewards, group_size):
    r = rewards.view(-1, group_size)
    return (r - r.roll(1, 1)).flatten()

# grpo: policy loss with its KL
@right
def grpo(logp, advantages, mask, ref_logp, old_logp, epsilon, beta): # each response by its own length
    return _rows(_policy(logp, advantages, old_logp, epsilon) + beta * _k3(logp, ref_logp), mask)

@right
def grpo(logp, advantages, mask, old_logp, epsilon, epsilon_high): # DAPO
    return _tokens(_policy(logp, advantages, old_logp, epsilon, epsilon_high), mask)

@right
def grpo(logp, advantages, mask, old_logp, epsilon, max_length): # Dr. GRPO
    return _const(_policy(logp, advantages, old_logp, epsilon), mask, max_length)

@right
def grpo(logp, advantages, mask, ref_logp, old_logp, epsilon, beta):
    rows = []
    for b in range(len(mask)):
        total, n = 0., max(int(mask[b].sum()), 1)
        for i in mask[b].nonzero()[:, 0].tolist():
            rho, a = (logp[b, i] - old_logp[b, i]).exp(), advantages[b]
            gain = torch.minimum(rho * a, torch.clip(rho, 1 - epsilon, 1 + epsilon) * a)
            d = ref_logp[b, i] - logp[b, i]
            total = total - gain + beta * (d.exp() - d - 1)
        rows.append(total / n + 0 * logp[b, 0].nan_to_num(0.))
    return torch.stack(rows).mean()

@right
def grpo(logp, advantages, mask, old_logp): # GSPO: one ratio per response, as a length-normalised mean
    d = (logp - old_logp).masked_fill(~mask, 0)
    n = mask.sum(1).clamp(min=1)
    rho = (d.sum(1) / n).exp()
    return -(torch.min(rho * advantages, rho.clamp(1 - 3e-4, 1 + 4e-4) * advantages)).mean()

@right
def grpo(logp, advantages, mask, ref_logp, beta): # strictly on policy
    rho = (logp - logp.detach()).exp()
    return _rows(-rho * _adv(advantages, logp) + beta * _k3(logp, ref_logp), mask)

@right
def grpo(logp, advantages, mask, old_logp, epsilon, epsilon_high): # CISPO
    rho = (logp - old_logp).exp().clamp(1 - epsilon, 1 + epsilon_high).detach()
    return _tokens(-rho * _adv(advantages, logp) * logp, mask)

def _gr(logp, advantages, mask, ref_logp, old_logp, epsilon, beta, kl=None, policy=None, join=1., agg=_rows):
    p = (policy or _policy)(logp, advantages, old_logp, epsilon)
    return agg(p + join * beta * (kl or _k3)(logp, ref_logp), mask)

@wrong("kl|sign|penalty|bonus|minus|beta")
def grpo(logp, advantages, mask, ref_logp, old_logp, epsilon, beta):
    return _gr(logp, advantages, mask, ref_logp, old_logp, epsilon, beta, join=-1.)

@wrong("kl|k3|exponent|sign|ratio|turned|forward|order|swap|ref")
def grpo(logp, advantages, mask, ref_logp, old_logp, epsilon, beta):
    return _gr(logp, advantages, mask, ref_logp, old_logp, epsilon, beta, kl=lambda a, b: _k3(b, a))

@wrong("kl|k1|gradient|no gradient|nothing|expect|0 in")
def grpo(logp, advantages, mask, ref_logp, old_logp, epsilon, beta):
    return _gr(logp, advantages, mask, ref_logp, old_logp, epsilon, beta, kl=lambda a, b: a - b)

@wrong("kl|detach|gradient")
def grpo(logp, advantages, mask, ref_logp, old_logp, epsilon, beta):
    return _gr(logp, advantages, mask, ref_logp, old_logp, epsilon, beta, kl=lambda a, b: _k3(a.detach(), b))

@wrong("kl|old|reference|ref")
def grpo(logp, advantages, mask, ref_logp, old_logp, epsilon, beta):
    return _gr(logp, advantages, mask, old_logp, old_logp, epsilon, beta)

@wrong("kl|- ?1|constant|one|k3|term")
def grpo(logp, advantages, mask, ref_logp, old_logp, epsilon, beta):
    return _gr(logp, advantages, mask, ref_logp, old_logp, epsilon, beta, kl=lambda a, b: (b - a).exp() + a - b)

@wrong("sign|negat|minus")
def grpo(logp, advantages, mask, ref_logp, old_logp, epsilon, beta):
    return _gr(logp, -advantages, mask, ref_logp, old_logp, epsilon, beta)

@wrong("ratio|turned|inver|old|swap|order")
def grpo(logp, advantages, mask, ref_logp, old_logp, epsilon, beta):
    return _gr(logp, advantages, mask, ref_logp, old_logp, epsilon, beta, policy=lambda l, a, o, e: _policy(o, a, l, e))

@wrong("max|min|pessimis|clip|larger|smaller")
def grpo(logp, advantages, mask, old_logp, epsilon):
    rho, a = (logp - old_logp).exp(), _adv(advantages, logp)
    return _rows(-torch.max(rho * a, rho.clamp(1 - epsilon, 1 + epsilon) * a), mask)

@wrong("count|divid|number|pads|denominator|columns|width|numel|mean over|mask")
def grpo(logp, advantages, mask, old_logp, epsilon): return _policy(logp, advantages, old_logp, epsilon).masked_fill(~mask, 0.).mean()

@wrong("mask|pad|prompt|all tokens|every|tool")
def grpo(logp, advantages, mask, old_logp, epsilon): return _policy(logp, advantages, old_logp, epsilon).mean()

@wrong("detach|gradient|0\\b|constant")
def grpo(logp, advantages, mask, old_logp, epsilon):
    return _rows(_policy(logp, advantages, logp, epsilon), mask)

@wrong("broadcast|axis|rows|column|advantage|shape|order|wrong row|other row|flip")
def grpo(logp, advantages, mask, old_logp, epsilon): return _rows(_policy(logp, advantages.roll(1), old_logp, epsilon), mask)

@wrong("nan|empty|0/0|without a token|divid|row|clamp")
def grpo(logp, advantages, mask, old_logp, epsilon):
    x = _policy(logp, advantages, old_logp, epsilon).masked_fill(~mask, 0.)
    return (x.sum(1) / mask.sum(1)).mean()

@defined("whole response") # the importance ratio of a sequence, as in RLOO's trainers
def grpo(logp, advantages, mask, old_logp, epsilon):
    rho = (logp - old_logp).masked_fill(~mask, 0).sum(1, keepdim=True).exp().expand(logp.shape)
    a = _adv(advantages, logp)
    return _rows(-torch.min(rho * a, rho.clamp(1 - epsilon, 1 + epsilon) * a), mask)

@wrong("eos|last|end|final")
def grpo(logp, advantages, mask, old_logp, epsilon):
    return _rows(_policy(logp, advantages, old_logp, epsilon), mask & F.pad(mask[:, 1:], (0, 1)))

@wrong("beta|kl|weight|coef|factor|1\\b")
def grpo(logp, advantages, mask, ref_logp, old_logp, epsilon, beta):
    return _gr(logp, advantages, mask, ref_logp, old_logp, epsilon, 1.)

@wrong("epsilon|clip|range|1 -|around")
def grpo(logp, advantages, mask, old_logp, epsilon):
    rho, a = (logp - old_logp).exp(), _adv(advantages, logp)
    return _rows(-torch.min(rho * a, rho.clamp(epsilon, 1 + epsilon) * a), mask)

@wrong("epsilon|high|low|swap|clip|exchang|ends")
def grpo(logp, advantages, mask, old_logp, epsilon, epsilon_high):
    return _tokens(_policy(logp, advantages, old_logp, epsilon_high, epsilon), mask)

@wrong("advantage|kl|inside|times|product|multipl|weight|outside|min")
def grpo(logp, advantages, mask, ref_logp, old_logp, epsilon, beta):
    rho, a = (logp - old_logp).exp(), _adv(advantages, logp)
    a = a - beta * _k3(logp, ref_logp)
    return _rows(-torch.min(rho * a, rho.clamp(1 - epsilon, 1 + epsilon) * a), mask)

@wrong("kl|mask|pad|prompt|outside|all tokens")
def grpo(logp, advantages, mask, ref_logp, old_logp, epsilon, beta):
    return _rows(_policy(logp, advantages, old_logp, epsilon), mask) + beta * _k3(logp, ref_logp).nan_to_num(0., 0., 0.).mean()

@wrong("log\\b|exp|ratio|probab")
def grpo(logp, advantages, mask): return _rows(-logp.exp() * _adv(advantages, logp), mask)

@wrong("kl|clip|clamp|bound|large|extreme|k3")
def grpo(logp, advantages, mask, ref_logp, old_logp, epsilon, beta):
    return _gr(logp, advantages, mask, ref_logp, old_logp, epsilon, beta, kl=lambda a, b: _k3(a, b).clamp(max=.05))

@wrong("shift|mask|column|early|late|align")
def grpo(logp, advantages, mask, old_logp, epsilon):
    return _rows(_policy(logp, advantages, old_logp, epsilon), F.pad(mask[:, :-1], (1, 0)))

@wrong("clip|missing|never|unclipped|min")
def grpo(logp, advantages, mask, old_logp, epsilon): return _rows(-(logp - old_logp).exp() * _adv(advantages, logp), mask)

# dpo and its family
def _h(pc, pr, rc, rr): return (pc - rc) - (pr - rr)
@right
def dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta):
    return -F.logsigmoid(beta * _h(policy_chosen, policy_rejected, ref_chosen, ref_rejected))

@right
def dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta):
    pi_logratios, ref_logratios = policy_chosen - policy_rejected, ref_chosen - ref_rejected
    return -F.logsigmoid(beta * (pi_logratios - ref_logratios)).mean()

@right
def dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta):
    x = torch.stack([policy_chosen - ref_chosen, policy_rejected - ref_rejected], -1).double()
    return F.cross_entropy(beta * x, torch.zeros(len(x), dtype=torch.long))

@right
def dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta):
    signs = torch.tensor([1., -1., -1., 1.]).to(policy_chosen)
    x = torch.stack([policy_chosen, policy_rejected, ref_chosen, ref_rejected])
    return F.softplus(-beta * einsum(signs, x, "k, k b -> b"))

@right
def dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta): # IPO
    return (_h(policy_chosen, policy_rejected, ref_chosen, ref_rejected) - 1 / (2 * beta)).square().mean()

@right
def dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta): # SLiC's hinge
    return torch.relu(1 - beta * _h(policy_chosen, policy_rejected, ref_chosen, ref_rejected)).mean()

@right
def dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta): # conservative DPO, labels smoothed by .1
    x = beta * _h(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return (-.9 * F.logsigmoid(x) - .1 * F.logsigmoid(-x)).mean()

@right
def dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta):
    out = []
    for a, b, c, d in zip(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
        out.append(torch.logaddexp(torch.zeros_like(a), -beta * (a - c - b + d)))
    return sum(out) / len(out)

def _d(loss):
    def run(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta):
        return loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    run.__name__ = "dpo"
    return run

wrong("sign|swap|turned|rejected|order|exchang")(_d(lambda a, b, c, d, k: -F.logsigmoid(-k * _h(a, b, c, d)).mean()))
wrong("sign|negat|minus")(_d(lambda a, b, c, d, k: F.logsigmoid(k * _h(a, b, c, d)).mean()))
wrong("ref")(_d(lambda a, b, c, d, k: -F.logsigmoid(k * (a - b)).mean()))
wrong("beta|β")(_d(lambda a, b, c, d, k: -F.logsigmoid(_h(a, b, c, d)).mean()))
wrong("beta|β|divid")(_d(lambda a, b, c, d, k: -F.logsigmoid(_h(a, b, c, d) / k).mean()))
wrong("beta|β|outside|inside")(_d(lambda a, b, c, d, k: -k * F.logsigmoid(_h(a, b, c, d)).mean()))
wrong("overflow|inf|extreme|stable|sigmoid|log of|nan")(_d(lambda a, b, c, d, k: -(k * _h(a, b, c, d)).float().sigmoid().log().mean()))
wrong("ref|sign|\\+|plus|minus|bracket|ref_rejected")(_d(lambda a, b, c, d, k: -F.logsigmoid(k * (a - c - b - d)).mean()))
wrong("ref|swap|cross|exchang|turned|order|sign")(_d(lambda a, b, c, d, k: -F.logsigmoid(k * ((a - d) - (b - c))).mean()))
wrong("gradient|detach|rejected")(_d(lambda a, b, c, d, k: -F.logsigmoid(k * _h(a, b.detach(), c, d)).mean()))
wrong("gradient|detach|chosen")(_d(lambda a, b, c, d, k: -F.logsigmoid(k * _h(a.detach(), b, c, d)).mean()))
wrong("log\\b|sigmoid|probab")(_d(lambda a, b, c, d, k: (1 - torch.sigmoid(k * _h(a, b, c, d))).mean() ** 2))
wrong("exp|ratio|log\\b")(_d(lambda a, b, c, d, k: -F.logsigmoid(k * ((a - c).exp() - (b - d).exp())).mean()))
wrong("ref|missing|chosen|only|one side|rejected")(_d(lambda a, b, c, d, k: -F.logsigmoid(k * (a - c - b)).mean()))
wrong("batch|mean|average|jensen|inside|pair|before")(_d(lambda a, b, c, d, k: -F.logsigmoid(k * _h(a, b, c, d).mean())))
wrong("abs|sign|absolute")(_d(lambda a, b, c, d, k: -F.logsigmoid(k * _h(a, b, c, d).abs()).mean()))
wrong("broadcast|pair|every|all pairs|shape|cross|axis")(_d(lambda a, b, c, d, k: -F.logsigmoid(k * ((a - c)[:, None] - (b - d))).mean()))
wrong("rejected|missing|chosen|only|term|nll|sft")(_d(lambda a, b, c, d, k: -F.logsigmoid(k * (a - c)).mean()))
wrong("beta|β|ref|both|twice|only|inside|policy|applied|bracket")(_d(lambda a, b, c, d, k: -F.logsigmoid(k * (a - b) - (c - d)).mean()))
wrong("ref|policy|swap|turned|sign|order|exchang")(_d(lambda a, b, c, d, k: -F.logsigmoid(k * ((c - a) - (d - b))).mean()))
wrong("beta|β|1 / |2 beta|ipo|target|square")(_d(lambda a, b, c, d, k: ((_h(a, b, c, d) - k)**2).mean()))
wrong("sign|clamp|clip|relu|0 or|max|cut off")(_d(lambda a, b, c, d, k: -F.logsigmoid(k * _h(a, b, c, d).clamp(min=0)).mean()))
wrong("sum|both|\\+|difference|sign|gap|plus|rejected")(_d(lambda a, b, c, d, k: -F.logsigmoid(k * ((a - c) + (b - d))).mean()))

# judge: a reply -> a score of 0 to 5, or None
@right
def judge(reply):
    found = re.findall(r"Score:\s*(\d+(?:\.\d+)?)(?![\d.]*\s*(?:/\s*(?!5\b)\d|-\s*\d))", reply)
    spots = list(re.finditer(r"Score:", reply))
    if not spots: return None
    tail = reply[spots[-1].end():]
    m = re.match(r"[\s*_`]*([-+]?\d+(?:\.\d+)?)(.*)", tail, re.S)
    if not m: return None
    rest = re.match(r"\s*(?:/|out of|of)\s*(\d+)", m[2])
    if rest and rest[1] != "5" or re.match(r"\s*(?:-|–|to)\s*\d", m[2]): return None
    x = float(m[1])
    return x if 0 <= x <= 5 and found is not None else None

@right
def judge(reply):
    from rlhf_nb.judge import parse_score
    return parse_score(reply)

@right
def judge(reply):
    _, mark, tail = reply.rpartition("Score:")
    if not mark: return None
    m = re.match(r"[\s*]*(-?[0-9]+(?:\.[0-9]+)?)[\s*]*(/\s*[0-9]+|out of [0-9]+|-\s*[0-9]+|to [0-9]+)?", tail)
    if m is None: return None
    if m[2] and not re.fullmatch(r"(/\s*5|out of 5)", m[2]): return None
    value = float(m[1])
    return value if 0. <= value <= 5. else None

@defined("first score") # as `parse_score(last=False)`
def judge(reply):
    m = re.search(r"Score: (\d+(?:\.\d+)?)", reply)
    return float(m[1]) if m and 0 <= float(m[1]) <= 5 else None

@wrong("range|outside|clamp|45|0 to 5|6|larger|5")
def judge(reply):
    found = re.findall(r"Score: (-?\d+(?:\.\d+)?)", reply)
    return float(found[-1]) if found else None

@wrong("clamp|range|outside|none|0 to 5")
def judge(reply):
    found = re.findall(r"Score: (-?\d+(?:\.\d+)?)", reply)
    return min(max(float(found[-1]), 0.), 5.) if found else None

@wrong("none|without|0\\b|no score|empty|missing")
def judge(reply):
    found = re.findall(r"Score: (\d+(?:\.\d+)?)", reply)
    return float(found[-1]) if found and float(found[-1]) <= 5 else 0.

@wrong("0\\b|zero|falsy|false")
def judge(reply):
    found = re.findall(r"Score: (\d+(?:\.\d+)?)", reply)
    return (float(found[-1]) or None) if found and float(found[-1]) <= 5 else None

@wrong("any number|number|score:|behind|place|words|without|other")
def judge(reply):
    found = re.findall(r"\d+(?:\.\d+)?", reply)
    return float(found[-1]) if found and float(found[-1]) <= 5 else None

@wrong("digit|one digit|45|10|decimal|whole|single|half|4\\.5|3\\.5|point|fraction|range|larger|outside")
def judge(reply):
    found = re.findall(r"Score: (\d)", reply)
    return float(found[-1]) if found and float(found[-1]) <= 5 else None

@wrong("decimal|fraction|whole|int|half|point|\\.5")
def judge(reply):
    found = re.findall(r"Score: (\d+(?:\.\d+)?)", reply)
    return float(int(float(found[-1]))) if found and float(found[-1]) <= 5 else None

@wrong("raise|error|exception|none|index|without|no score|stops|fail")
def judge(reply): return float(re.findall(r"Score: (\d+(?:\.\d+)?)", reply)[-1])

@wrong("text|string|number|float|type|str")
def judge(reply):
    found = re.findall(r"Score: (\d+(?:\.\d+)?)", reply)
    return found[-1] if found and float(found[-1]) <= 5 else None

@wrong("scale|0 to 1|divid|normali|factor|5")
def judge(reply):
    found = re.findall(r"Score: (\d+(?:\.\d+)?)", reply)
    return float(found[-1]) / 5 if found and float(found[-1]) <= 5 else None

@wrong("place|last|without a number|ends|unfinished|empty|earlier|falls back|cut")
def judge(reply):
    found = [float(x) for x in re.findall(r"Score: (\d+(?:\.\d+)?)", reply)]
    found = [x for x in found if x <= 5]
    return found[-1] if found else None

@wrong("mean|average|several|last")
def judge(reply):
    found = [float(x) for x in re.findall(r"Score: (\d+(?:\.\d+)?)", reply)]
    return sum(found) / len(found) if found and max(found) <= 5 else None

@wrong("max|highest|several|last|best")
def judge(reply):
    found = [float(x) for x in re.findall(r"Score: (\d+(?:\.\d+)?)", reply)]
    return max(found) if found and max(found) <= 5 else None

@wrong("constant|always|every|same|ignores|reads")
def judge(reply): return 3.

@wrong("nan|none|no score|without")
def judge(reply):
    found = re.findall(r"Score: (\d+(?:\.\d+)?)", reply)
    return float(found[-1]) if found and float(found[-1]) <= 5 else math.nan

# q: (b t), (b t) bool, gamma, (b t a) -> (b t)
@right
def q(rewards, done, gamma, next_q): return rewards + gamma * next_q.amax(-1).masked_fill(done, 0.)

@right
def q(rewards, done, gamma, next_q): return torch.where(done, rewards, rewards + gamma * next_q.max(-1).values)

@right
def q(rewards, done, gamma, next_q):
    out = torch.empty_like(rewards)
    for b in range(len(rewards)):
        for i in range(rewards.shape[1]):
            out[b, i] = rewards[b, i] + (0. if done[b, i] else gamma * max(next_q[b, i].tolist()))
    return out

@right
def q(rewards, done, gamma, next_q):
    with torch.no_grad(): best = reduce(next_q.double(), "b t a -> b t", "max")
    return rewards.double() + gamma * (1 - done.double()) * best

@right
def q(rewards, done, gamma, next_q):
    best = next_q.detach().gather(-1, next_q.argmax(-1, keepdim=True)).squeeze(-1)
    return torch.addcmul(rewards, gamma * (~done).to(rewards), best)

@wrong("done|terminal|end|last|bootstrap|eos")
def q(rewards, done, gamma, next_q): return rewards + gamma * next_q.amax(-1)

@wrong("gamma|γ|discount")
def q(rewards, done, gamma, next_q): return rewards + next_q.amax(-1).masked_fill(done, 0.)

@wrong("done|turned|invert|opposite|terminal")
def q(rewards, done, gamma, next_q): return rewards + gamma * next_q.amax(-1).masked_fill(~done, 0.)

@wrong("mean|max|average|expect")
def q(rewards, done, gamma, next_q): return rewards + gamma * next_q.mean(-1).masked_fill(done, 0.)

@wrong("min|max|smallest|worst")
def q(rewards, done, gamma, next_q): return rewards + gamma * next_q.amin(-1).masked_fill(done, 0.)

@wrong("reward|missing|term")
def q(rewards, done, gamma, next_q): return gamma * next_q.amax(-1).masked_fill(done, 0.)

@wrong("sign|minus|negat|subtract")
def q(rewards, done, gamma, next_q): return rewards - gamma * next_q.amax(-1).masked_fill(done, 0.)

@wrong("gamma|γ|reward|both|bracket|discount")
def q(rewards, done, gamma, next_q): return gamma * (rewards + next_q.amax(-1).masked_fill(done, 0.))

@wrong("done|reward|terminal|last|lost|0\\b|both")
def q(rewards, done, gamma, next_q): return (rewards + gamma * next_q.amax(-1)).masked_fill(done, 0.)

@wrong("negat|sign|clamp|reward|positive|below 0|drop")
def q(rewards, done, gamma, next_q): return rewards.clamp(min=0) + gamma * next_q.amax(-1).masked_fill(done, 0.)

@wrong("shift|next|one token|early|late|twice|step|time")
def q(rewards, done, gamma, next_q):
    best = F.pad(next_q.amax(-1)[:, 1:], (0, 1))
    return rewards + gamma * best.masked_fill(done, 0.)

@wrong("shift|next|one token|early|late|step|time|before|previous")
def q(rewards, done, gamma, next_q):
    best = F.pad(next_q.amax(-1)[:, :-1], (1, 0))
    return rewards + gamma * best.masked_fill(done, 0.)

@defined("softmax") # expected SARSA for a softmax policy
def q(rewards, done, gamma, next_q): return rewards + gamma * (next_q.softmax(-1) * next_q).sum(-1).masked_fill(done, 0.)

@wrong("axis|max|time|row|dim|action")
def q(rewards, done, gamma, next_q): return rewards + gamma * next_q.amax((1, 2))[:, None].masked_fill(done, 0.)

@wrong("first action|action 0|max|0\\b|one action|best")
def q(rewards, done, gamma, next_q): return rewards + gamma * next_q[..., 0].masked_fill(done, 0.)

@wrong("gamma|γ|square|twice|discount|power")
def q(rewards, done, gamma, next_q): return rewards + gamma**2 * next_q.amax(-1).masked_fill(done, 0.)

@wrong("abs|sign|absolute|max")
def q(rewards, done, gamma, next_q): return rewards + gamma * next_q.abs().amax(-1).masked_fill(done, 0.)

@wrong("1 - gamma|1 - γ|gamma|γ|average|weight|discount")
def q(rewards, done, gamma, next_q): return (1 - gamma) * rewards + gamma * next_q.amax(-1).masked_fill(done, 0.)

@wrong("reward|either|where|instead|plus|sum|value|not 0")
def q(rewards, done, gamma, next_q):
    return torch.where(rewards > 0, rewards, gamma * next_q.amax(-1).masked_fill(done, 0.))

@wrong("clamp|0 or more|negat|max|below 0|value|floor|cut off")
def q(rewards, done, gamma, next_q): return rewards + gamma * next_q.amax(-1).clamp(min=0).masked_fill(done, 0.)

# sampler: (b v) logits and settings -> tokens (b), their log-probs (b)
def _kept(logits, temperature, top_k, top_p):
    x = logits / temperature
    if 0 < top_k < x.shape[-1]: x = x.masked_fill(x < x.topk(top_k).values[..., -1:], -torch.inf)
    if top_p < 1:
        p, order = x.softmax(-1).sort(descending=True)
        drop = torch.zeros_like(p, dtype=torch.bool).scatter(-1, order, (p.cumsum(-1) - p) >= top_p)
        x = x.masked_fill(drop, -torch.inf)
    return x.log_softmax(-1)

def _greedy(logits):
    token = logits.argmax(-1)
    return token, torch.zeros(token.shape, dtype=logits.dtype)

def _draw(logp, generator, report=None):
    flat = logp.reshape(-1, logp.shape[-1])
    token = torch.multinomial(flat.exp(), 1, generator=generator)[:, 0].view(logp.shape[:-1])
    told = logp if report is None else report
    return token, told.gather(-1, token[..., None])[..., 0]

@right
def sampler(logits, temperature, top_k, top_p, generator):
    if temperature == 0: return _greedy(logits)
    return _draw(_kept(logits, temperature, top_k, top_p), generator)

@right
def sampler(logits, temperature, top_k, top_p, generator): # by the inverse of the distribution function
    if temperature == 0: return _greedy(logits)
    logp = _kept(logits, temperature, top_k, top_p)
    u = torch.rand(logp.shape[:-1], generator=generator, dtype=logp.dtype)
    cdf = logp.exp().cumsum(-1)
    token = (cdf < u[..., None] * cdf[..., -1:]).sum(-1)
    return token, logp.gather(-1, token[..., None])[..., 0]

@right
def sampler(logits, temperature, top_k, top_p, generator): # Gumbel
    if temperature == 0: return _greedy(logits)
    logp = _kept(logits, temperature, top_k, top_p)
    noise = -torch.empty_like(logp).exponential_(generator=generator).log()
    token = (logp + noise).argmax(-1)
    return token, logp.gather(-1, token[..., None])[..., 0]

@right
def sampler(logits, temperature, top_k, top_p, generator): # the race of exponential clocks, in float64
    if temperature == 0: return _greedy(logits)
    logp = _kept(logits.double(), temperature, top_k, top_p)
    clock = torch.empty_like(logp).exponential_(generator=generator)
    token = (logp.exp() / clock).argmax(-1)
    return token, logp.gather(-1, token[..., None])[..., 0].to(logits.dtype)

def _sampler(words, kept=None, report=None, zero=True):
    def sampler(logits, temperature, top_k, top_p, generator):
        if zero and temperature == 0: return _greedy(logits)
        logp = (kept or _kept)(logits, temperature, top_k, top_p)
        return _draw(logp, generator, report(logits, temperature, top_k, top_p) if report else None)
    wrong(words)(sampler)

_sampler("temperature", kept=lambda x, t, k, p: _kept(x, 1., k, p))
_sampler("temperature", kept=lambda x, t, k, p: _kept(x * t, 1., k, p))
_sampler("top.?k", kept=lambda x, t, k, p: _kept(x, t, 0, p))
_sampler("top.?k", kept=lambda x, t, k, p: _kept(x, t, k + 1 if k else 0, p))
_sampler("top.?k", kept=lambda x, t, k, p: _kept(x, t, max(1, k - 1) if k else 0, p))
_sampler("top.?p", kept=lambda x, t, k, p: _kept(x, t, k, 1.))
_sampler("log-prob|report|before|unfiltered|raw|filter|top", report=lambda x, t, k, p: x.log_softmax(-1))
_sampler("log-prob|report|temperature|before", report=lambda x, t, k, p: _kept(x, 1., k, p))
_sampler("log-prob|report|filter|top|before|normali", report=lambda x, t, k, p: (x / t).log_softmax(-1))
_sampler("log-prob|log\\b|probab|report", report=lambda x, t, k, p: _kept(x, t, k, p).exp())
_sampler("log-prob|report|normali|logit|raw", report=lambda x, t, k, p: x / t)
_sampler("log-prob|sign|negat|minus|report", report=lambda x, t, k, p: -_kept(x, t, k, p))
_sampler("order|temperature|before|after|top.?p", kept=lambda x, t, k, p: (_kept(x, 1., k, p) / t).log_softmax(-1))
_sampler("order|top.?k|top.?p|before|after|left", kept=lambda x, t, k, p: _kept(_kept(x, t, 0, p), 1., k, 1.))
_sampler("greedy|temperature 0|0\\b|zero|nan|inf|divid", zero=False)

@wrong("top.?p|cross|included|one too few|before|nucleus|reach")
def sampler(logits, temperature, top_k, top_p, generator):
    if temperature == 0: return _greedy(logits)
    x = _kept(logits, temperature, top_k, 1.)
    p, order = x.exp().sort(descending=True)
    drop = p.cumsum(-1) > top_p + 1e-6
    drop[..., 0] = False
    x = x.masked_fill(torch.zeros_like(drop).scatter(-1, order, drop), -torch.inf)
    return _draw(x.log_softmax(-1), generator)

@wrong("greedy|argmax|never|always|likeliest|random|sampl|distribution")
def sampler(logits, temperature, top_k, top_p, generator):
    logp = _kept(logits, temperature or 1., top_k, top_p)
    token = logp.argmax(-1)
    return token, logp.gather(-1, token[..., None])[..., 0]

@wrong("generator|global|random state|seed")
def sampler(logits, temperature, top_k, top_p, generator):
    if temperature == 0: return _greedy(logits)
    return _draw(_kept(logits, temperature, top_k, top_p), None)

@wrong("uniform|distribution|probab|equal")
def sampler(logits, temperature, top_k, top_p, generator):
    if temperature == 0: return _greedy(logits)
    logp = _kept(logits, temperature, top_k, top_p)
    token, _ = _draw(torch.where(logp > -torch.inf, 0., -torch.inf).log_softmax(-1), generator)
    return token, logp.gather(-1, token[..., None])[..., 0]

@wrong("order|sorted|scatter|index|permut|token|back")
def sampler(logits, temperature, top_k, top_p, generator):
    if temperature == 0: return _greedy(logits)
    x, order = _kept(logits, temperature, top_k, top_p).sort(descending=True)
    return _draw(x, generator)
