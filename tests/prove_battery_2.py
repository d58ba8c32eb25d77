"""Fresh mutants of log-probs, SFT, group advantages and GAE for `rlhf-nb prove`, and right ones in styles of their own.

Written on one evening by somebody who had read the list of named mistakes, but before any verdict on them, and never
changed afterwards. Of log-probs and SFT 11 of 18 were named at first sight, all were refused, and no right one was; the
other two kinds have not been counted yet. Each holds one slip that somebody makes in a trainer; the words are what a verdict must say (a regular expression)."""
import numpy as np
import torch
import torch.nn.functional as F

WRONG, RIGHT, DEFINED = {}, {}, {}
def wrong(words):
    def keep(fn): WRONG.setdefault(fn.__name__, []).append((words, fn))
    return keep
def right(fn): RIGHT.setdefault(fn.__name__, []).append(fn)

# ---- log-probs
def _shifted(logits, ids):
    rows = torch.log_softmax(logits[:, :-1], dim=-1)
    return torch.take_along_dim(rows, ids[:, 1:].unsqueeze(-1), dim=-1).squeeze(-1)

@right
def logprobs(logits, ids): return _shifted(logits, ids)

@right
def logprobs(logits, ids, mask):
    out = torch.zeros(ids.shape, dtype=logits.dtype)
    for i in range(1, ids.shape[1]): out[:, i] = logits[:, i - 1].log_softmax(-1)[torch.arange(len(ids)), ids[:, i]] * mask[:, i]
    return out

@right
def logprobs(logits, ids, mask): # the sum of each response, as DPO wants it
    return (_shifted(logits, ids) * mask[:, 1:]).sum(-1)

@wrong("temperature|scaled?|times|multipl|divided|counts (half|twice)|factor")
def logprobs(logits, ids, mask): # the sampling temperature was left in
    return F.pad(_shifted(logits / 1.5, ids), (1, 0)) * mask

@wrong("largest|max|most probable|normali|logsumexp")
def logprobs(logits, ids, mask): # the maximum in place of the log of the sum
    z = logits[:, :-1]
    picked = z.gather(-1, ids[:, 1:, None])[..., 0] - z.amax(-1)
    return F.pad(picked, (1, 0)) * mask

@wrong("row|batch|other response")
def logprobs(logits, ids, mask): # the answers of the batch got into another order than their logits
    return F.pad(_shifted(logits, ids.roll(1, 0)), (1, 0)) * mask

@wrong("first")
def logprobs(logits, ids, mask): # the first token of each answer was given to the model
    started = mask.cumsum(1) > 1
    return F.pad(_shifted(logits, ids), (1, 0)) * (mask & started)

@wrong("mean|normali|subtract|baseline|centr")
def logprobs(logits, ids, mask): # centred for the display, and returned
    x = F.pad(_shifted(logits, ids), (1, 0))
    return (x - x[mask].mean()) * mask

@wrong("prob|log")
def logprobs(logits, ids, mask): # log1p for a probability that may be 0
    return F.pad(_shifted(logits, ids).exp().log1p(), (1, 0)) * mask

@wrong("cut|clamp|below|floor|bound")
def logprobs(logits, ids, mask): # a floor of e^-2 under each token
    return F.pad(_shifted(logits, ids).clamp(min=-2.), (1, 0)) * mask

@wrong("sum|response|row|expand|every")
def logprobs(logits, ids, mask): # the response's sum at each of its tokens
    x = F.pad(_shifted(logits, ids), (1, 0)) * mask
    return x.sum(1, keepdim=True).expand_as(x) * mask

@wrong("sigmoid|softmax|normali")
def logprobs(logits, ids, mask): # each word by itself, as in a classifier of many labels
    z = F.logsigmoid(logits[:, :-1]).gather(-1, ids[:, 1:, None])[..., 0]
    return F.pad(z, (1, 0)) * mask

# ---- SFT
@right
def sft(logits, labels): return F.nll_loss(logits[:, :-1].log_softmax(-1).flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)

@right
def sft(logits, ids, mask):
    total, n = 0., 0
    for row, toks, keep in zip(logits, ids, mask):
        for i in range(1, len(toks)):
            if keep[i]: total, n = total - row[i - 1].log_softmax(0)[toks[i]], n + 1
    return total / n

@wrong("last|end|eos")
def sft(logits, ids, mask): # the end mark is not learned
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    keep = (mask & ~last)[:, 1:]
    return -(_shifted(logits, ids) * keep).sum() / keep.sum()

@wrong("prompt|mask|before|all tokens|counts")
def sft(logits, ids, mask): # prompts are learned as well, pads are not
    seen = mask.flip(1).cumsum(1).flip(1) > 0
    return -_shifted(logits, ids)[seen[:, 1:]].mean()

@wrong("divid|width|rows|length|number of")
def sft(logits, ids, mask): # divided by the responses, not by their tokens, and by the width again
    return -(_shifted(logits, ids) * mask[:, 1:]).sum() / len(ids) / ids.shape[1]

@wrong("perplexity|exp")
def sft(logits, ids, mask): return (-(_shifted(logits, ids)[mask[:, 1:]]).mean()).exp()

@wrong("probabilit|log\\b|exp")
def sft(logits, ids, mask): return 1 - _shifted(logits, ids)[mask[:, 1:]].exp().mean()

@wrong("label|smooth|uniform|mix")
def sft(logits, labels): return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, label_smoothing=.05)

@wrong("divid|half|factor|times|scale|counts")
def sft(logits, ids, mask): # divided by four steps of accumulation, although there is one
    return -(_shifted(logits, ids)[mask[:, 1:]]).mean() / 4

@wrong("weigh|squared?|focal|prob")
def sft(logits, ids, mask): # a focal loss that nobody asked for
    x = _shifted(logits, ids)[mask[:, 1:]]
    return -((1 - x.exp())**2 * x).mean()

@wrong("row|order|batch")
def sft(logits, ids, mask): # masks of another order of the batch
    keep = mask.roll(1, 0)[:, 1:]
    return -(_shifted(logits, ids) * keep).sum() / keep.sum()

# ---- advantages of a group
@right
def advantages(rewards, group): # RLOO by a matrix
    same = (group[:, None] == group[None]).double()
    same.fill_diagonal_(0.)
    return rewards - same @ rewards / same.sum(1).clamp(min=1)

@right
def advantages(rewards, num_generations):
    r = np.asarray(rewards).reshape(-1, num_generations)
    return ((r - r.mean(1, keepdims=True)) / (r.std(1, ddof=1, keepdims=True) + 1e-4)).reshape(np.shape(rewards))

def _table(rewards, k): return rewards.reshape(-1, k)
def _back(x, rewards): return x.reshape(rewards.shape)

@wrong("others?|leave|n - 1|divide|times|counts|factor|multipl")
def advantages(rewards, num_generations): # (k - 1) / k in place of k / (k - 1)
    r = _table(rewards, num_generations)
    return _back((r - r.mean(1, keepdim=True)) * (num_generations - 1) / num_generations, rewards)

@wrong("cut|clamp|below|negative|above 0|relu")
def advantages(rewards, num_generations): # only what is better is learned
    r = _table(rewards, num_generations)
    return _back((r - r.mean(1, keepdim=True)).clamp(min=0), rewards)

@wrong("rank|sorted|order")
def advantages(rewards, num_generations): # ranks in place of rewards
    r = _table(rewards, num_generations).argsort(1).argsort(1).double()
    return _back(r - r.mean(1, keepdim=True), rewards)

@wrong("absolute|deviation|abs")
def advantages(rewards, num_generations): # over the mean absolute deviation
    r = _table(rewards, num_generations)
    d = r - r.mean(1, keepdim=True)
    return _back(d / (d.abs().mean(1, keepdim=True) + 1e-4), rewards)

@wrong("softmax|exp")
def advantages(rewards, num_generations): # weights, as in reward-weighted regression
    return _back(_table(rewards, num_generations).softmax(1), rewards)

@wrong("sign|absolute|positive")
def advantages(rewards, num_generations):
    r = _table(rewards, num_generations)
    return _back((r - r.mean(1, keepdim=True)).sign(), rewards)

@wrong("batch|whole|group")
def advantages(rewards, num_generations): # centred on the group, then once more over the deviation of centred rewards of the first group
    r = _table(rewards, num_generations)
    return _back((r - r.mean(1, keepdim=True)) / (r[:1].std(1, keepdim=True) + 1e-4), rewards)

@wrong("reward|mean|added|baseline|centr")
def advantages(rewards, num_generations): # the mean is taken off only where it is above 0
    r = _table(rewards, num_generations)
    return _back(r - r.mean(1, keepdim=True) / 2, rewards)

@wrong("square|variance|divid|deviation")
def advantages(rewards, num_generations): # var where std was meant
    r = _table(rewards, num_generations)
    return _back((r - r.mean(1, keepdim=True)) / (r.var(1, keepdim=True) + 1e-4), rewards)

# ---- GAE
def _gae(rewards, values, mask, gamma, lam, follows=lambda v, m: v * m, cut=lambda x, m: x * m, carry=1.):
    r, v, m = rewards.masked_fill(~mask, 0.), values.masked_fill(~mask, 0.), mask.double()
    adv, last, nxt = torch.zeros_like(r), torch.zeros(len(r)).double(), torch.zeros(len(r)).double()
    for t in reversed(range(r.shape[1])):
        here = r[:, t] + gamma * nxt - v[:, t] + gamma * lam * carry * last
        adv[:, t] = here * m[:, t]
        last, nxt = torch.where(mask[:, t], here, last), torch.where(mask[:, t], v[:, t], nxt)
    return adv, (adv + v) * m

@right
def gae(rewards, values, mask, gamma, lam): return _gae(rewards, values, mask, gamma, lam)

@right
def gae(rewards, values, mask, gamma, lam): return _gae(rewards, values, mask, gamma, lam)[0]

@wrong("sum|reward|sequence|last|every|first")
def gae(rewards, values, mask, gamma, lam): # the whole reward at the last token, whatever it was of
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    moved = torch.where(last, rewards.masked_fill(~mask, 0.).sum(1, keepdim=True), 0.)
    return _gae(moved, values, mask, gamma, lam)

@wrong("exchanged|gamma|lambda|lam\\b")
def gae(rewards, values, mask, gamma, lam): return _gae(rewards, values, mask, lam, gamma)

@wrong("sign|turned|minus|negat")
def gae(rewards, values, mask, gamma, lam): # a cost is taken for a reward
    return _gae(-rewards, values, mask, gamma, lam)

@wrong("whiten|deviation|mean|divided")
def gae(rewards, values, mask, gamma, lam): # each row whitened by itself
    a, returns = _gae(rewards, values, mask, gamma, lam)
    n = mask.sum(1, keepdim=True)
    mean = a.sum(1, keepdim=True) / n
    var = ((a - mean).square() * mask).sum(1, keepdim=True) / (n - 1).clamp(min=1)
    return (a - mean) / (var + 1e-8).sqrt() * mask, returns

@wrong("cut|clamp|clip|above|below")
def gae(rewards, values, mask, gamma, lam): # rewards clipped on the way in
    return _gae(rewards.clamp(-1, 1), values, mask, gamma, lam)

@wrong("values?.*(late|early|place|shift)|(late|early|place|shift).*values?")
def gae(rewards, values, mask, gamma, lam): # values are those of the state after the token
    return _gae(rewards, values.roll(1, 1), mask, gamma, lam)

@wrong("returns?|result")
def gae(rewards, values, mask, gamma, lam): # returns scaled by 1 - gamma, as some value heads want them
    a, returns = _gae(rewards, values, mask, gamma, lam)
    return a, returns / 2

@wrong("gamma|discount")
def gae(rewards, values, mask, gamma, lam): # gamma to the power of the position, once more
    a, returns = _gae(rewards, values, mask, gamma, lam)
    return a * gamma, returns
