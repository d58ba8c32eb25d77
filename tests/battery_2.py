"""A second battery of answers to the exercises, written from stubs and text alone.

`WRONG[exercise]` holds pairs of words and function: a message that names the slip rightly has one of
the words (a regular expression, in lower case). `RIGHT[exercise]` holds right answers in other styles.
Words and functions were written before any verdict was seen; 36 of the words were
widened afterwards, where a verdict said the slip in others. `scripts/tutor.py` runs the whole."""
import itertools, math, random, re
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import logsigmoid, softplus
import rlhf_nb.dpo as dpo
import rlhf_nb.grpo as grpo
import rlhf_nb.judge as judge
import rlhf_nb.kl as kl
import rlhf_nb.ppo as ppo
import rlhf_nb.qlearning as ql
import rlhf_nb.tokens as tokens
import rlhf_nb.world as world
from rlhf_nb.base.batches import at_least_float32
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.q_networks import discounts, hidden_states, next_values, q_terms, shift_left
from rlhf_nb.base.replies import escape_special_tokens, score_regex
from rlhf_nb.tokens import Seqs
from rlhf_nb.worlds.oracle import all_logprobs, expectation
from rlhf_nb.worlds.world_text import FACTS, parse_sentences

WRONG, RIGHT, TWO_SLIPS = {}, {}, []

def wrong(words): # -> decorator; the function bears the name of its exercise
    def keep(fn): WRONG.setdefault(fn.__name__, []).append((words, fn))
    return keep

def two(words): # as `wrong`; two slips at once: to name either is right
    def keep(fn):
        wrong(words)(fn)
        TWO_SLIPS.append(fn)
    return keep

def right(fn): RIGHT.setdefault(fn.__name__, []).append(fn)

# 02 tokens: shift_right
@right
def shift_right(x):
    out = torch.zeros_like(x)
    out[:, 1:] = x[:, :-1]
    return out

@right
def shift_right(x):
    keep = torch.arange(x.shape[1]).view(1, -1, *[1] * (x.dim() - 2)) > 0
    return x.roll(1, 1).masked_fill(~keep, 0)

@right
def shift_right(x):
    rows, before = [], torch.zeros_like(x[:, 0])
    for i in range(x.shape[1]):
        rows.append(before)
        before = x[:, i]
    return torch.stack(rows, 1)

@wrong("direction|left|other way|wrong way|early|earlier|row i ?\\+ ?1|next row|i \\+ 1")
def shift_right(x): return torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], 1)

@wrong("wrap|round|row 0|first|roll|entry 0|column 0")
def shift_right(x): return x.roll(1, 1)

@wrong("axis|other row|row before|flat|wrap|row 0|dim|first")
def shift_right(x): return x.roll(1)

@wrong("axis|batch|rows|dim")
def shift_right(x): return torch.cat([torch.zeros_like(x[:1]), x[:-1]], 0)

@wrong("dtype|type|bool|float")
def shift_right(x): return torch.cat([torch.zeros(x[:, :1].shape), x[:, :-1]], 1)

@wrong("shape|longer|too many|too long|t \\+ 1|last")
def shift_right(x): return torch.cat([torch.zeros_like(x[:, :1]), x], 1)

@wrong("shape|shorter|missing|too few|too short|t - 1|first|row 0")
def shift_right(x): return x[:, :-1]

@wrong("in place|changed|changes|argument|input|overwr|writes")
def shift_right(x):
    x[:, 1:] = x[:, :-1].clone()
    x[:, 0] = 0
    return x

@wrong("two|2|too far|twice")
def shift_right(x): return torch.cat([torch.zeros_like(x[:, :2]), x[:, :-2]], 1)

@wrong("axis|last|dim|axes|three|vocab")
def shift_right(x): return F.pad(x, (1, 0))[..., :-1]

@wrong("row 0|first|entry 0|column 0|repeat|is 0|be 0")
def shift_right(x): return torch.cat([x[:, :1], x[:, :-1]], 1)

@wrong("not shift|no shift|unshift|without the shift|shift")
def shift_right(x):
    out = x.clone()
    out[:, 0] = 0
    return out

@wrong("detach|gradient")
def shift_right(x): return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1].detach()], 1)

@wrong("numpy|array|tensor|type")
def shift_right(x):
    a = x.detach().numpy()
    return np.concatenate([np.zeros_like(a[:, :1]), a[:, :-1]], 1)

@wrong("row 0|first|entry 0|one|is 0|be 0|true")
def shift_right(x): return torch.cat([torch.ones_like(x[:, :1]), x[:, :-1]], 1)

@wrong("dtype|type|bool|float|long|int")
def shift_right(x): return torch.cat([x.new_zeros(x[:, :1].shape), x[:, :-1]], 1).float()

@two("direction|left|other way|early|type|dtype|float|next|wrong way")
def shift_right(x): return torch.cat([x[:, 1:].float(), torch.zeros(x[:, :1].shape)], 1)

# token_logprobs
@right
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError("shapes differ")
    dtype = torch.promote_types(logits.dtype, torch.float32)
    logp = torch.log_softmax(logits[:, :-1].to(dtype), -1)
    picked = logp.gather(-1, ids[:, 1:, None]).squeeze(-1)
    return F.pad(picked, (1, 0))

@right
def token_logprobs(logits, ids):
    if logits.shape[:-1] != ids.shape: raise ValueError(f"{logits.shape} {ids.shape}")
    x = logits if logits.dtype == torch.float64 else logits.float()
    out = []
    for row, y in zip(x, ids):
        line = [x.new_zeros(())]
        for i in range(1, len(y)): line.append(row[i - 1, y[i]] - row[i - 1].logsumexp(0))
        out.append(torch.stack(line))
    return torch.stack(out)

@right
def token_logprobs(logits, ids):
    if tuple(ids.shape) != tuple(logits.shape[:2]): raise ValueError("(b t) differ")
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    b, t, v = x.shape
    loss = F.cross_entropy(x[:, :-1].reshape(-1, v), ids[:, 1:].reshape(-1), reduction="none")
    return torch.cat([x.new_zeros(b, 1), -loss.view(b, t - 1)], 1)

def _lsm(logits): return torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1)
def _same(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError("logits and ids differ in (b t)")
def _pick(x, ids): return x.gather(-1, ids[..., None])[..., 0]

@wrong("shift|not shifted|one token|token before|itself|one place")
def token_logprobs(logits, ids):
    _same(logits, ids)
    out = _pick(_lsm(logits), ids).clone()
    out[:, 0] = 0
    return out

@wrong("shift|not shifted|entry 0|itself|one token")
def token_logprobs(logits, ids):
    _same(logits, ids)
    return _pick(_lsm(logits), ids)

@wrong("zeros stand at the end|early|left|shift|one token|entry 0|place|position|direction")
def token_logprobs(logits, ids):
    _same(logits, ids)
    picked = _pick(_lsm(logits)[:, :-1], ids[:, 1:])
    return torch.cat([picked, torch.zeros_like(picked[:, :1])], 1)

@wrong("log|probabilit")
def token_logprobs(logits, ids):
    _same(logits, ids)
    return tokens.shift_right(torch.ones_like(logits[..., 0])) * _pick(tokens.shift_right(_lsm(logits).exp()), ids)

@wrong("normali|softmax|raw|logits|logsumexp")
def token_logprobs(logits, ids):
    _same(logits, ids)
    return _pick(tokens.shift_right(logits.to(torch.promote_types(logits.dtype, torch.float32))), ids)

@wrong("axis|dim|over time|over the|vocab|batch|token")
def token_logprobs(logits, ids):
    _same(logits, ids)
    x = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), 1)
    return _pick(tokens.shift_right(x), ids)

@wrong("float32|bf16|bfloat16|dtype|precision|type")
def token_logprobs(logits, ids):
    _same(logits, ids)
    return _pick(tokens.shift_right(torch.log_softmax(logits, -1)), ids)

@wrong("inf|underflow|log_softmax|small|log of 0|nan")
def token_logprobs(logits, ids):
    _same(logits, ids)
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    picked = _pick(x[:, :-1].softmax(-1).log(), ids[:, 1:])
    return F.pad(picked, (1, 0))

@wrong("float64|double|dtype|precision|type")
def token_logprobs(logits, ids):
    _same(logits, ids)
    return _pick(tokens.shift_right(torch.log_softmax(logits.float(), -1)), ids)

@wrong("sign|minus|negativ")
def token_logprobs(logits, ids):
    _same(logits, ids)
    return -_pick(tokens.shift_right(_lsm(logits)), ids)

@wrong("shape|t - 1|shorter|too few|entry 0|too short")
def token_logprobs(logits, ids):
    _same(logits, ids)
    return _pick(_lsm(logits)[:, :-1], ids[:, 1:])

@wrong("valueerror|raise|refuse|error|accept")
def token_logprobs(logits, ids):
    t = min(logits.shape[1], ids.shape[1])
    return _pick(tokens.shift_right(_lsm(logits))[:, :t], ids[:, :t])

@wrong("entry 0|first|token 0|nothing before|column 0")
def token_logprobs(logits, ids):
    _same(logits, ids)
    x = tokens.shift_right(logits).to(torch.promote_types(logits.dtype, torch.float32))
    return _pick(x.log_softmax(-1), ids)

@wrong("gradient|detach")
def token_logprobs(logits, ids):
    _same(logits, ids)
    with torch.no_grad(): return _pick(tokens.shift_right(_lsm(logits)), ids)

@wrong("likeliest|largest|max|ids|own token|its token|each id")
def token_logprobs(logits, ids):
    _same(logits, ids)
    return tokens.shift_right(_lsm(logits)).amax(-1)

@wrong("twice|two|shift|too far|2|one place")
def token_logprobs(logits, ids):
    _same(logits, ids)
    return _pick(tokens.shift_right(tokens.shift_right(_lsm(logits))), ids)

@wrong("cumul|running|sum|each token|single|per token")
def token_logprobs(logits, ids):
    _same(logits, ids)
    return _pick(tokens.shift_right(_lsm(logits)), ids).cumsum(1)

@two("base|log 2|ln 2|factor|bits|nats|shift|entry 0")
def token_logprobs(logits, ids):
    _same(logits, ids)
    return _pick(_lsm(logits), ids) / math.log(2)

@wrong("normali|sum|exp|softmax|logsumexp|max")
def token_logprobs(logits, ids):
    _same(logits, ids)
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return _pick(tokens.shift_right(x - x.amax(-1, keepdim=True)), ids)

# masked_mean
@right
def masked_mean(x, mask):
    if x.shape != mask.shape or not mask.any(): raise ValueError("mask")
    return x[mask].to(torch.promote_types(x.dtype, torch.float32)).mean()

@right
def masked_mean(x, mask):
    if x.shape != mask.shape: raise ValueError("shape")
    if mask.sum() == 0: raise ValueError("empty")
    x = x if x.dtype == torch.float64 else x.float()
    return torch.where(mask, x, torch.zeros_like(x)).sum() / mask.sum()

@right
def masked_mean(x, mask):
    if tuple(x.shape) != tuple(mask.shape): raise ValueError("shape")
    kept = [v for v, m in zip(x.reshape(-1), mask.reshape(-1)) if m]
    if not kept: raise ValueError("no entry counts")
    kept = torch.stack(kept)
    return sum(kept.to(torch.promote_types(x.dtype, torch.float32))) / len(kept)

def _check_mean(x, mask):
    if x.shape != mask.shape: raise ValueError("shape")
    if not mask.any(): raise ValueError("nothing counts")
    return x.to(torch.promote_types(x.dtype, torch.float32))

@wrong("nan|0 \\* |times|product|multipl|masked_fill")
def masked_mean(x, mask): return (_check_mean(x, mask) * mask).sum() / mask.sum()

@wrong("row|sequence mean|each response|token mean|same weight")
def masked_mean(x, mask):
    x = _check_mean(x, mask).masked_fill(~mask, 0)
    return (x.sum(-1) / mask.sum(-1).clamp(min=1)).mean()

@wrong("all entries|every entry|count|masked entries|over length|number|width|denominator|not counted")
def masked_mean(x, mask): return _check_mean(x, mask).masked_fill(~mask, 0).mean()

@wrong("turned|invert|other way|opposite|false|upside|mask")
def masked_mean(x, mask): return _check_mean(x, mask)[~mask].mean()

@wrong("sum|divid|count|number")
def masked_mean(x, mask): return _check_mean(x, mask).masked_fill(~mask, 0).sum()

@wrong("valueerror|raise|no true|without|empty|refuse")
def masked_mean(x, mask):
    if x.shape != mask.shape: raise ValueError("shape")
    x = x.to(torch.promote_types(x.dtype, torch.float32)).masked_fill(~mask, 0)
    return x.sum() / mask.sum().clamp(min=1)

@wrong("nan|skips|hides")
def masked_mean(x, mask): return _check_mean(x, mask).masked_fill(~mask, torch.nan).nanmean()

@wrong("nan|hides|0 in")
def masked_mean(x, mask): return (_check_mean(x, mask).nan_to_num(0) * mask).sum() / mask.sum()

@wrong("float32|bf16|bfloat16|dtype|precision|type|float16")
def masked_mean(x, mask):
    _check_mean(x, mask)
    return x[mask].mean()

@wrong("shape|row|one number|scalar|each")
def masked_mean(x, mask):
    return _check_mean(x, mask).masked_fill(~mask, 0).sum(-1) / mask.sum(-1)

@wrong("shape|valueerror|broadcast|raise")
def masked_mean(x, mask):
    if not mask.any(): raise ValueError("nothing counts")
    x, mask = torch.broadcast_tensors(x.to(torch.promote_types(x.dtype, torch.float32)), mask)
    return x[mask].mean()

@wrong("in place|changed|changes|argument|input|overwr|writes")
def masked_mean(x, mask):
    _check_mean(x, mask)
    with torch.no_grad(): x[~mask] = 0
    return x.to(torch.promote_types(x.dtype, torch.float32)).sum() / mask.sum()

@wrong("n - 1|minus 1|one less|count - 1|count|number")
def masked_mean(x, mask): return _check_mean(x, mask)[mask].sum() / (mask.sum() - 1)

@wrong("gradient|detach|number|tensor")
def masked_mean(x, mask): return torch.tensor(_check_mean(x, mask)[mask].mean().item())

@wrong("mask|pads|counted|all entries|masked entries|forgot")
def masked_mean(x, mask): return _check_mean(x, mask).mean()

@wrong("rows|batch|tokens|number|count|divid")
def masked_mean(x, mask): return _check_mean(x, mask)[mask].sum() / len(x)

# last_token_index
@right
def last_token_index(attention_mask):
    m = attention_mask.bool()
    if not m.any(1).all(): raise ValueError("only padding")
    return m.shape[1] - 1 - m.flip(1).long().argmax(1)

@right
def last_token_index(attention_mask):
    m = attention_mask.long()
    if (m.sum(1) == 0).any(): raise ValueError("only padding")
    return m.cumsum(1).argmax(1)

@right
def last_token_index(attention_mask):
    out = []
    for row in attention_mask.tolist():
        places = [i for i, m in enumerate(row) if m]
        if not places: raise ValueError("a row of pads")
        out.append(places[-1])
    return torch.tensor(out)

def _some(mask):
    if not mask.bool().any(1).all(): raise ValueError("a row holds only padding")
    return mask.bool()

@wrong("left|count|number of|side|sum")
def last_token_index(attention_mask): return _some(attention_mask).sum(1) - 1

@wrong("first|argmax|largest|last")
def last_token_index(attention_mask): return _some(attention_mask).long().argmax(1)

@wrong("from the right|from the end|from the back|flip|other end|counted from|direction|revers")
def last_token_index(attention_mask): return _some(attention_mask).flip(1).long().argmax(1)

@wrong("off by one|one too|1 too|\\+ ?1|one more|by 1|larger")
def last_token_index(attention_mask):
    m = _some(attention_mask)
    return m.shape[1] - m.flip(1).long().argmax(1)

@wrong("valueerror|raise|only pad|no real|refuse|without")
def last_token_index(attention_mask):
    position = torch.arange(attention_mask.shape[1])
    return torch.where(attention_mask.bool(), position, -1).amax(1)

@wrong("valueerror|raise|only pad|a row|one row|refuse|every row")
def last_token_index(attention_mask):
    if not attention_mask.any(): raise ValueError("only padding")
    return torch.where(attention_mask.bool(), torch.arange(attention_mask.shape[1]), -1).amax(1)

@wrong("int|long|dtype|float|type")
def last_token_index(attention_mask):
    m = _some(attention_mask)
    return (m * torch.arange(m.shape[1]).float()).amax(1)

@wrong("bool|0 and 1|int|long|dtype|mask")
def last_token_index(attention_mask):
    if not attention_mask.bool().any(1).all(): raise ValueError("only padding")
    return attention_mask.shape[1] - 1 - torch.where(~attention_mask, 0, 1).flip(1).argmax(1)

@wrong("axis|each row|per row|column|shape|dim")
def last_token_index(attention_mask):
    m = _some(attention_mask)
    return torch.where(m, torch.arange(m.shape[1]), -1).amax(0)

@wrong("gap|hole|inside|count|number of|sum")
def last_token_index(attention_mask):
    m = _some(attention_mask).long()
    return m.argmax(1) + m.sum(1) - 1

@wrong("last column|t ?- ?1|pad|mask|right")
def last_token_index(attention_mask):
    return torch.full((len(_some(attention_mask)),), attention_mask.shape[1] - 1)

@wrong("shape|axis|keepdim|\\(b\\)|b 1")
def last_token_index(attention_mask):
    m = _some(attention_mask)
    return torch.where(m, torch.arange(m.shape[1]), -1).amax(1, keepdim=True)

@wrong("count|number of|pads|left|sum|side")
def last_token_index(attention_mask):
    m = _some(attention_mask)
    return m.shape[1] - 1 - (~m).sum(1)

@wrong("list|tensor|type")
def last_token_index(attention_mask):
    return [int(row.nonzero().max()) for row in _some(attention_mask)]

@wrong("largest|last|one too|end|before|off by one|1 too|next")
def last_token_index(attention_mask):
    m = _some(attention_mask)
    return torch.where(m, torch.arange(m.shape[1]), -1).amax(1).sub(1).clamp(min=0)

@two("left|count|valueerror|raise|sum|only pad|number of|off by|1")
def last_token_index(attention_mask): return attention_mask.long().sum(1)

# fixed_counted
@right
def fixed_counted(ids, lengths, pad):
    place = torch.arange(ids.shape[1])
    return (place > 0) & (place < lengths[:, None])

@right
def fixed_counted(ids, lengths, pad):
    keep = torch.zeros(ids.shape, dtype=torch.bool)
    for row, n in zip(keep, lengths.tolist()): row[1:n] = True
    return keep

@right
def fixed_counted(ids, lengths, pad):
    t = ids.shape[1]
    return torch.tensor([[1 <= i < int(n) for i in range(t)] for n in lengths]).view(len(ids), t)

@wrong("first|position 0|column 0|token 0|at 0|entry 0")
def fixed_counted(ids, lengths, pad): return torch.arange(ids.shape[1]) < lengths[:, None]

@wrong("last|eos|one too few|end|too short|lengths ?- ?1")
def fixed_counted(ids, lengths, pad):
    place = torch.arange(ids.shape[1])
    return (place > 0) & (place < lengths[:, None] - 1)

@wrong("pad|one too many|too long|behind|after the")
def fixed_counted(ids, lengths, pad):
    place = torch.arange(ids.shape[1])
    return (place > 0) & (place <= lengths[:, None])

@wrong("eos|pad|same id|shares|id")
def fixed_counted(ids, lengths, pad):
    keep = ids != pad
    keep[:, 0] = False
    return keep

@wrong("eos|pad|same id|shares|id")
def fixed_counted(ids, lengths, pad):
    place = torch.arange(ids.shape[1])
    return (place > 0) & (place < lengths[:, None]) & (ids != pad)

@wrong("turned|invert|other way|opposite|upside|mask|pads")
def fixed_counted(ids, lengths, pad):
    place = torch.arange(ids.shape[1])
    return (place == 0) | (place >= lengths[:, None])

@wrong("broadcast|shape|size|axis|none|\\[:, none\\]")
def fixed_counted(ids, lengths, pad):
    place = torch.arange(ids.shape[1])
    return (place > 0) & (place < lengths)

@wrong("bool|dtype|type|float|int")
def fixed_counted(ids, lengths, pad):
    place = torch.arange(ids.shape[1])
    return ((place > 0) & (place < lengths[:, None])).float()

@wrong("each row|every row|own|first row|row 0|one length|rows")
def fixed_counted(ids, lengths, pad):
    place = torch.arange(ids.shape[1])
    return ((place > 0) & (place < lengths[0])).expand(ids.shape)

@wrong("each row|every row|own|longest|max|pad|rows")
def fixed_counted(ids, lengths, pad):
    place = torch.arange(ids.shape[1])
    return ((place > 0) & (place < lengths.max())).expand(ids.shape)

@wrong("pad|one too many|eos|behind|shares|id|after the")
def fixed_counted(ids, lengths, pad):
    keep = (ids == pad).cumsum(1) <= 1
    keep[:, 0] = False
    return keep

@wrong("mask|pad|ids|forgot|lengths|behind")
def fixed_counted(ids, lengths, pad):
    keep = torch.ones_like(ids, dtype=torch.bool)
    keep[:, 0] = False
    return keep

@two("first|position 0|one too|pad|last|0")
def fixed_counted(ids, lengths, pad): return torch.arange(ids.shape[1]) <= lengths[:, None]

@wrong("ids|bool|dtype|type|mask|truth values")
def fixed_counted(ids, lengths, pad):
    place = torch.arange(ids.shape[1])
    return ids.masked_fill(~((place > 0) & (place < lengths[:, None])), 0)

# 03 world: prob_right
_gold, _util = world.gold_score, world.utility

@right
def prob_right(question, a, b):
    if world.gold_score(question, b) > world.gold_score(question, a): a, b = b, a
    return 1 / (1 + math.exp(-(world.utility(question, a) - world.utility(question, b)) / .5))

@right
def prob_right(question, a, b):
    gold = [world.gold_score(question, x) for x in (a, b)]
    u = torch.tensor([world.utility(question, x) for x in (a, b)], dtype=torch.double)
    return (u / .5).softmax(0)[gold.index(max(gold))].item()

@right
def prob_right(question, a, b):
    worse, better = sorted((a, b), key=lambda x: world.gold_score(question, x))
    gap = 2 * (world.utility(question, better) - world.utility(question, worse))
    return (1 + math.tanh(gap / 2)) / 2

@wrong("gold|utility|order")
def prob_right(question, a, b):
    if _util(question, b) > _util(question, a): a, b = b, a
    return 1 / (1 + math.exp(-(_util(question, a) - _util(question, b)) / .5))

@wrong("utility|gold")
def prob_right(question, a, b):
    gap = abs(_gold(question, a) - _gold(question, b))
    return 1 / (1 + math.exp(-gap / .5))

@wrong("tau|\\.5|temperature|factor|divid|half")
def prob_right(question, a, b):
    if _gold(question, b) > _gold(question, a): a, b = b, a
    return 1 / (1 + math.exp(-(_util(question, a) - _util(question, b))))

@wrong("tau|\\.5|temperature|factor|divid|half|multipl")
def prob_right(question, a, b):
    if _gold(question, b) > _gold(question, a): a, b = b, a
    return 1 / (1 + math.exp(-(_util(question, a) - _util(question, b)) * .5))

@wrong("better|order|swap|gold|first|b is|either")
def prob_right(question, a, b):
    return 1 / (1 + math.exp(-(_util(question, a) - _util(question, b)) / .5))

@wrong("sign|turned|worse|other way|1 -|wrong|better|swap|minus")
def prob_right(question, a, b):
    if _gold(question, b) > _gold(question, a): a, b = b, a
    return 1 / (1 + math.exp((_util(question, a) - _util(question, b)) / .5))

@wrong("absolute|abs|sign|gold|order|better|utility")
def prob_right(question, a, b):
    return 1 / (1 + math.exp(-abs(_util(question, a) - _util(question, b)) / .5))

@wrong("probab|bool|true|certain|number|sigma|sigmoid|without noise")
def prob_right(question, a, b):
    if _gold(question, b) > _gold(question, a): a, b = b, a
    return float(_util(question, a) > _util(question, b))

@wrong("sigma|sigmoid|probab|gap|1 / \\(1")
def prob_right(question, a, b):
    if _gold(question, b) > _gold(question, a): a, b = b, a
    return (_util(question, a) - _util(question, b)) / .5

@wrong("order|worse|swap|better|other way|turned|1 -|sign|label is wrong")
def prob_right(question, a, b):
    better, worse = sorted((a, b), key=lambda x: _gold(question, x))
    return 1 / (1 + math.exp(-(_util(question, better) - _util(question, worse)) / .5))

@wrong("tau|factor|sigma|sigmoid|tanh|0 to 1|range|probab|1 \\+|scale")
def prob_right(question, a, b):
    if _gold(question, b) > _gold(question, a): a, b = b, a
    return math.tanh((_util(question, a) - _util(question, b)) / .5)

@wrong("sampl|random|exact|probab|bool|certain|0 or 1")
def prob_right(question, a, b):
    if _gold(question, b) > _gold(question, a): a, b = b, a
    return float(world.annotate(question, a, b, random.Random(0)))

@wrong("log|probab|sigma|exp")
def prob_right(question, a, b):
    if _gold(question, b) > _gold(question, a): a, b = b, a
    return -math.log1p(math.exp(-(_util(question, a) - _util(question, b)) / .5))

@two("utility|gold|tau|\\.5|better|swap|order|factor")
def prob_right(question, a, b):
    return 1 / (1 + math.exp(-(_gold(question, a) - _gold(question, b))))

# fixed_answered
@right
def fixed_answered(question, text):
    said = {s.value for s in parse_sentences(text)
            if s.kind == "fact" and (s.animal, s.attribute) == (question.animal, question.attribute)}
    return said == {FACTS[question.animal][question.attribute]}

@right
def fixed_answered(question, text):
    found = False
    for s in parse_sentences(text):
        if s.animal != question.animal or s.attribute != question.attribute: continue
        if s.value != FACTS[question.animal][question.attribute]: return False
        found = True
    return found

def _said(question, text):
    return [s.value for s in parse_sentences(text)
            if s.animal == question.animal and s.attribute == question.attribute]
def _truth(question): return FACTS[question.animal][question.attribute]

@wrong("every|all|false|second|beside|any")
def fixed_answered(question, text): return _truth(question) in _said(question, text)

@wrong("no value|nothing|empty|at least one|none|states no|all\\(")
def fixed_answered(question, text): return all(v == _truth(question) for v in _said(question, text))

@wrong("animal")
def fixed_answered(question, text):
    said = {s.value for s in parse_sentences(text) if s.attribute == question.attribute}
    return said == {_truth(question)}

@wrong("attribute|other fact|asked|another")
def fixed_answered(question, text):
    said = {s.value for s in parse_sentences(text) if s.animal == question.animal}
    return said == {_truth(question)}

@wrong("first|every|second|false|later|all")
def fixed_answered(question, text):
    said = _said(question, text)
    return bool(said) and said[0] == _truth(question)

@wrong("last|every|first|false|all|earlier")
def fixed_answered(question, text):
    said = _said(question, text)
    return bool(said) and said[-1] == _truth(question)

@wrong("word|letters|substring|inside|every|false|parse|animal")
def fixed_answered(question, text): return f" {_truth(question)}" in text

@wrong("twice|repeat|same|again|two")
def fixed_answered(question, text): return _said(question, text) == [_truth(question)]

@wrong("it|pronoun|stands for|resolved")
def fixed_answered(question, text):
    said = {s.value for s in parse_sentences(text) if s.attribute == question.attribute
            and f"the {question.animal}" in s.text.lower()}
    return said == {_truth(question)}

@wrong("junk|other sentence|unknown|phrase|also|besides|other kind|other than|beside|may be stated")
def fixed_answered(question, text):
    sentences = parse_sentences(text)
    return bool(sentences) and all(s.value == _truth(question) and s.animal == question.animal for s in sentences)

@wrong("attribute|other fact|asked|another")
def fixed_answered(question, text):
    facts = [s for s in parse_sentences(text) if s.kind == "fact" and s.animal == question.animal]
    return bool(_said(question, text)) and all(FACTS[s.animal][s.attribute] == s.value for s in facts)

@wrong("false|true|right|value|every|truth|stated|states")
def fixed_answered(question, text): return len(_said(question, text)) > 0

@wrong("bool|set|type|true or false|list")
def fixed_answered(question, text):
    said = _said(question, text)
    return said and [v for v in said if v == _truth(question)] == said and said

@wrong("every|most|half|false|all|majority|more")
def fixed_answered(question, text):
    said = _said(question, text)
    return sum(v == _truth(question) for v in said) * 2 > len(said)

@two("animal|every|false|all|any|attribute|letters|word")
def fixed_answered(question, text):
    return any(s.value == _truth(question) for s in parse_sentences(text))

# 04 sft: sft_loss
@right
def sft_loss(model, seqs):
    n = seqs.response_mask[:, 1:].sum()
    return -logprobs(model, seqs).sum(), n

@right
def sft_loss(model, seqs):
    logits = model(input_ids=seqs.ids, attention_mask=seqs.attention_mask.long()).logits
    keep = seqs.response_mask[:, 1:]
    total = F.cross_entropy(logits[:, :-1][keep].double(), seqs.ids[:, 1:][keep], reduction="sum")
    return total, keep.sum()

@right
def sft_loss(model, seqs):
    counted = seqs.response_mask.clone()
    counted[:, 0] = False
    logp = logprobs(model, seqs)
    return sum(-row[keep].sum() for row, keep in zip(logp, counted)), counted.sum()

@wrong("mean|divid|sum|over the number|apart")
def sft_loss(model, seqs):
    n = seqs.response_mask[:, 1:].sum()
    return -logprobs(model, seqs).sum() / n, n

@wrong("sign|minus|negativ")
def sft_loss(model, seqs): return logprobs(model, seqs).sum(), seqs.response_mask[:, 1:].sum()

@wrong("prompt|attention|response|number|count")
def sft_loss(model, seqs): return -logprobs(model, seqs).sum(), seqs.attention_mask[:, 1:].sum()

@wrong("rows|number|tokens|count|pads")
def sft_loss(model, seqs): return -logprobs(model, seqs).sum(), torch.tensor(len(seqs))

@wrong("first|column 0|nothing (stands )?before|token 0|entry 0|number|count")
def sft_loss(model, seqs): return -logprobs(model, seqs).sum(), seqs.response_mask.sum()

@wrong("prompt|question|response")
def sft_loss(model, seqs):
    logits = model(input_ids=seqs.ids, attention_mask=seqs.attention_mask.long()).logits
    logp = tokens.token_logprobs(logits, seqs.ids)
    return -logp[seqs.attention_mask].sum(), seqs.attention_mask[:, 1:].sum()

@wrong("gradient|detach")
def sft_loss(model, seqs):
    with torch.no_grad(): return -logprobs(model, seqs).sum(), seqs.response_mask[:, 1:].sum()

@wrong("row|each|scalar|shape|one number|summed")
def sft_loss(model, seqs): return -logprobs(model, seqs).sum(1), seqs.response_mask[:, 1:].sum(1)

@wrong("shift|column|one token|last|eos")
def sft_loss(model, seqs):
    keep = seqs.response_mask[:, :-1]
    return -(logprobs(model, seqs)[:, 1:] * keep).sum(), keep.sum()

@wrong("order|swap|turned|first|number|exchang")
def sft_loss(model, seqs): return seqs.response_mask[:, 1:].sum(), -logprobs(model, seqs).sum()

@wrong("eos|last|end")
def sft_loss(model, seqs):
    keep = seqs.response_mask & torch.cat([seqs.response_mask[:, 1:],
                                           torch.zeros_like(seqs.response_mask[:, :1])], 1)
    keep[:, 0] = False
    return -logprobs(model, seqs)[keep].sum(), keep.sum()

@wrong("shift|itself|one token|not shifted")
def sft_loss(model, seqs):
    logits = model(input_ids=seqs.ids, attention_mask=seqs.attention_mask.long()).logits
    labels = seqs.ids.masked_fill(~seqs.response_mask, -100)
    return F.cross_entropy(logits.transpose(1, 2), labels, reduction="sum"), seqs.response_mask[:, 1:].sum()

@wrong("number|numel|pads|count|mask|all entries|width")
def sft_loss(model, seqs): return -logprobs(model, seqs).sum(), torch.tensor(seqs.ids.numel())

@wrong("tuple|number|two|apart|pair|one value|count|both")
def sft_loss(model, seqs): return -logprobs(model, seqs).sum()

@wrong("row|mean|sequence|each response|sum|weight|length")
def sft_loss(model, seqs):
    n = seqs.response_mask[:, 1:].sum(1).clamp(min=1)
    return -(logprobs(model, seqs).sum(1) / n).sum(), seqs.response_mask[:, 1:].sum()

# filter_logits
@right
def filter_logits(logits, sampling):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature == 0:
        out = torch.full_like(x, -torch.inf)
        out[torch.arange(len(x)), x.argmax(1)] = 0.
        return out
    x = x / sampling.temperature
    if sampling.top_k and sampling.top_k < x.shape[1]:
        bar = x.sort(1, descending=True).values[:, sampling.top_k - 1, None]
        x = x.masked_fill(x < bar, -torch.inf)
    prob, order = x.softmax(1).sort(descending=True)
    keep = (prob.cumsum(1) - prob) < sampling.top_p
    x = x.masked_fill(~torch.zeros_like(keep).scatter(1, order, keep), -torch.inf)
    return x.log_softmax(1)

@right
def filter_logits(logits, sampling):
    rows = []
    for row in logits.to(torch.promote_types(logits.dtype, torch.float32)):
        order = row.argsort(descending=True).tolist()
        if sampling.temperature == 0: kept, heat = order[:1], 1.
        else: kept, heat = order[:sampling.top_k or None], sampling.temperature
        prob, before, last = (row[kept] / heat).softmax(0), 0., []
        for p, i in zip(prob.tolist(), kept):
            if before < sampling.top_p - 1e-7 or not last: last.append(i)
            before += p
        out = torch.full_like(row, -torch.inf)
        out[last] = (row[last] / heat).log_softmax(0)
        rows.append(out)
    return torch.stack(rows)

def _filter(logits, sampling, heat=None, k=None, inclusive=True, minus=-torch.inf, promote=True, norm=True):
    "a right one with switches"
    x = logits.to(torch.promote_types(logits.dtype, torch.float32)) if promote else logits
    if sampling.temperature == 0:
        return torch.full_like(x, minus).scatter(1, x.argmax(1, keepdim=True), 0.)
    x = heat(x, sampling.temperature) if heat else x / sampling.temperature
    n = (k or (lambda n: n))(sampling.top_k)
    if 0 < sampling.top_k and 0 < n < x.shape[1]:
        x = torch.full_like(x, minus).scatter(1, (at := x.topk(n, 1).indices), x.gather(1, at))
    prob, order = x.softmax(1).sort(descending=True)
    before = prob.cumsum(1) - prob if inclusive else prob.cumsum(1)
    keep = before < sampling.top_p if sampling.top_p < 1 else torch.ones_like(prob, dtype=torch.bool)
    x = x.masked_fill(~torch.zeros_like(keep).scatter(1, order, keep), minus)
    return x.log_softmax(1) if norm else x

@wrong("temperature|multipl|divid")
def filter_logits(logits, sampling): return _filter(logits, sampling, heat=lambda x, t: x * t)

@wrong("temperature")
def filter_logits(logits, sampling): return _filter(logits, sampling, heat=lambda x, t: x)

@wrong("temperature|order|before|after|first")
def filter_logits(logits, sampling):
    if sampling.temperature == 0: return _filter(logits, sampling)
    x = _filter(logits, sampling, heat=lambda x, t: x)
    return (x / sampling.temperature).log_softmax(1)

@wrong("top.?k|k \\+ 1|one too many|too many")
def filter_logits(logits, sampling): return _filter(logits, sampling, k=lambda n: n + 1)

@wrong("top.?k|k - 1|one too few|too few")
def filter_logits(logits, sampling): return _filter(logits, sampling, k=lambda n: max(1, n - 1))

@wrong("top.?p|cross|before|included|one too few|nucleus|reach|alone|too few")
def filter_logits(logits, sampling): return _filter(logits, sampling, inclusive=False)

@wrong("inf|1e9|finite|-1e|large negative")
def filter_logits(logits, sampling): return _filter(logits, sampling, minus=-1e9)

@wrong("float32|bf16|bfloat16|dtype|precision|type")
def filter_logits(logits, sampling): return _filter(logits, sampling, promote=False)

@wrong("normali|log_softmax|sum to|log-prob|log.?softmax")
def filter_logits(logits, sampling): return _filter(logits, sampling, norm=False)

@wrong("log|probabilit")
def filter_logits(logits, sampling): return _filter(logits, sampling).exp()

@wrong("top.?k|left|order|what|filtered|after|all tokens|unfiltered|first")
def filter_logits(logits, sampling):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature == 0: return _filter(logits, sampling)
    x = x / sampling.temperature
    prob, order = x.softmax(1).sort(descending=True)
    keep = (prob.cumsum(1) - prob) < sampling.top_p
    keep = torch.zeros_like(keep).scatter(1, order, keep)
    if sampling.top_k: keep &= x >= x.topk(min(sampling.top_k, x.shape[1]), 1).values[:, -1:]
    return x.masked_fill(~keep, -torch.inf).log_softmax(1)

@wrong("order|sorted|scatter|token order|back|permut")
def filter_logits(logits, sampling):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature == 0: return _filter(logits, sampling)
    x = _filter(x, sampling.__class__(temperature=sampling.temperature, top_k=sampling.top_k))
    prob = x.softmax(1).sort(descending=True).values
    return x.masked_fill(~((prob.cumsum(1) - prob) < sampling.top_p), -torch.inf).log_softmax(1)

@wrong("ascend|unlikel|least|descend|downwards|smallest|order|rarest|likeliest")
def filter_logits(logits, sampling):
    if sampling.temperature == 0: return _filter(logits, sampling)
    x = _filter(logits, sampling.__class__(temperature=sampling.temperature, top_k=sampling.top_k))
    prob, order = x.softmax(1).sort(descending=False)
    keep = torch.zeros(x.shape, dtype=torch.bool).scatter(1, order, (prob.cumsum(1) - prob) < sampling.top_p)
    return x.masked_fill(~keep, -torch.inf).log_softmax(1)

@wrong("temperature 0|greedy|0|nan|divi|zero")
def filter_logits(logits, sampling):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32)) / sampling.temperature
    return _filter(x, sampling.__class__(top_k=sampling.top_k, top_p=sampling.top_p))

@wrong("temperature 0|greedy|log-prob 0|likeliest|0")
def filter_logits(logits, sampling):
    if sampling.temperature == 0: return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(1)
    return _filter(logits, sampling)

@wrong("top.?k|vocab|larger|more than|range|size|all")
def filter_logits(logits, sampling):
    if sampling.top_k: logits.topk(sampling.top_k, 1)
    return _filter(logits, sampling)

@wrong("top.?k|largest|smallest|likeliest|turned")
def filter_logits(logits, sampling):
    if sampling.temperature == 0 or not sampling.top_k: return _filter(logits, sampling)
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    at = x.topk(min(sampling.top_k, x.shape[1]), 1, largest=False).indices
    x = torch.full_like(x, -torch.inf).scatter(1, at, x.gather(1, at))
    return _filter(x, sampling.__class__(temperature=sampling.temperature, top_p=sampling.top_p))

@wrong("top.?p|ignored|forgot|nucleus|missing")
def filter_logits(logits, sampling):
    return _filter(logits, sampling.__class__(temperature=sampling.temperature, top_k=sampling.top_k))

@wrong("top.?p|threshold|min.?p|cumul|sum|nucleus|before")
def filter_logits(logits, sampling):
    if sampling.temperature == 0: return _filter(logits, sampling)
    x = _filter(logits, sampling.__class__(temperature=sampling.temperature, top_k=sampling.top_k))
    return x.masked_fill(x.exp() < 1 - sampling.top_p, -torch.inf).log_softmax(1)

@wrong("top.?p|one too many|less than|before|cross|<|too many|equal|exactly")
def filter_logits(logits, sampling):
    if sampling.temperature == 0: return _filter(logits, sampling)
    x = _filter(logits, sampling.__class__(temperature=sampling.temperature, top_k=sampling.top_k))
    prob, order = x.softmax(1).sort(descending=True)
    keep = (prob.cumsum(1) - 2 * prob) < sampling.top_p
    keep = torch.zeros_like(keep).scatter(1, order, keep)
    return x.masked_fill(~keep, -torch.inf).log_softmax(1)

@wrong("axis|dim|batch|row")
def filter_logits(logits, sampling): return _filter(logits, sampling).exp().log_softmax(0)

@two("temperature|order|top.?p|cross|before")
def filter_logits(logits, sampling):
    if sampling.temperature == 0: return _filter(logits, sampling)
    return (_filter(logits, sampling, heat=lambda x, t: x, inclusive=False) / sampling.temperature).log_softmax(1)

# fixed_labels
@right
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(1, ids.shape[1])
    keep = (place >= n_prompt[:, None]) & (place < n_real[:, None])
    return torch.where(keep, ids[:, 1:], -100)

@right
def fixed_labels(ids, n_prompt, n_real):
    out = torch.full_like(ids, -100)
    for i, (p, n) in enumerate(zip(n_prompt.tolist(), n_real.tolist())): out[i, p:n] = ids[i, p:n]
    return out[:, 1:]

def _labels(ids, keep): return ids[:, 1:].masked_fill(~keep, -100)

@wrong("eos|end mark|last|one too few|n_real|end")
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(1, ids.shape[1])
    return _labels(ids, (place >= n_prompt[:, None]) & (place < n_real[:, None] - 1))

@wrong("first|one too few|n_prompt|begin|answer|start|late")
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(1, ids.shape[1])
    return _labels(ids, (place > n_prompt[:, None]) & (place < n_real[:, None]))

@wrong("prompt|question|one too many|early")
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(1, ids.shape[1])
    return _labels(ids, (place >= n_prompt[:, None] - 1) & (place < n_real[:, None]))

@wrong("turned|question|prompt|upside|other way|mask")
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(1, ids.shape[1])
    return _labels(ids, (place < n_prompt[:, None]) & (place < n_real[:, None]))

@wrong("pad")
def fixed_labels(ids, n_prompt, n_real):
    return _labels(ids, torch.arange(1, ids.shape[1]) >= n_prompt[:, None])

@wrong("prompt|question")
def fixed_labels(ids, n_prompt, n_real):
    return _labels(ids, torch.arange(1, ids.shape[1]) < n_real[:, None])

@wrong("pad|one too many|n_real|behind|after")
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(1, ids.shape[1])
    return _labels(ids, (place >= n_prompt[:, None]) & (place <= n_real[:, None]))

@wrong("shape|t - 1|shorter|longer|too long|first|width")
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(ids.shape[1])
    return ids.masked_fill(~((place >= n_prompt[:, None]) & (place < n_real[:, None])), -100)

@wrong("shift|j \\+ 1|next|itself|one token|token j|early|late")
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(1, ids.shape[1])
    return ids[:, :-1].masked_fill(~((place >= n_prompt[:, None]) & (place < n_real[:, None])), -100)

@wrong("-100|ignore|0 instead|is 0|0")
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(1, ids.shape[1])
    return ids[:, 1:] * ((place >= n_prompt[:, None]) & (place < n_real[:, None]))

@wrong("shift|mask|one|place|arange|early|column|late|j \\+ 1")
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(ids.shape[1] - 1)
    return _labels(ids, (place >= n_prompt[:, None]) & (place < n_real[:, None]))

@wrong("or|and|prompt|pad|question|both")
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(1, ids.shape[1])
    return _labels(ids, (place >= n_prompt[:, None]) | (place < n_real[:, None]))

@wrong("in place|changed|changes|argument|input|overwr|writes")
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(ids.shape[1])
    ids[~((place >= n_prompt[:, None]) & (place < n_real[:, None]))] = -100
    return ids[:, 1:]

@wrong("row|each|own|first|shortest|longest|batch|lengths")
def fixed_labels(ids, n_prompt, n_real):
    out = torch.full_like(ids, -100)
    out[:, n_prompt.min():n_real.max()] = ids[:, n_prompt.min():n_real.max()]
    return out[:, 1:]

@wrong("n_real|answer|length|sum|total|count|pad|prompt")
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(1, ids.shape[1])
    return _labels(ids, (place >= n_prompt[:, None]) & (place < (n_prompt + n_real)[:, None]))

# 05 reward: pooled_scores
@right
def pooled_scores(model, seqs):
    last = tokens.last_token_index(seqs.attention_mask)
    return model(seqs).gather(1, last[:, None])[:, 0]

@right
def pooled_scores(model, seqs):
    scores, m = model(seqs), seqs.attention_mask
    if not m.any(1).all(): raise ValueError("a row of pads")
    is_last = m & (m.flip(1).cumsum(1).flip(1) == 1)
    return scores.masked_fill(~is_last, 0.).sum(1)

def _checked(seqs):
    tokens.last_token_index(seqs.attention_mask)
    return torch.arange(len(seqs))

@wrong("left|count|number of|side|pad")
def pooled_scores(model, seqs):
    rows = _checked(seqs)
    return model(seqs)[rows, seqs.attention_mask.sum(1) - 1]

@wrong("pad|last column|last real|right|mask")
def pooled_scores(model, seqs):
    _checked(seqs)
    return model(seqs)[:, -1]

@wrong("mean|average|last")
def pooled_scores(model, seqs):
    _checked(seqs)
    return (model(seqs) * seqs.attention_mask).sum(1) / seqs.attention_mask.sum(1)

@wrong("first|last|prompt")
def pooled_scores(model, seqs):
    rows = _checked(seqs)
    return model(seqs)[rows, seqs.attention_mask.long().argmax(1)]

@wrong("before|eos|one too|off by one|early|last|one token")
def pooled_scores(model, seqs):
    return model(seqs)[torch.arange(len(seqs)), tokens.last_token_index(seqs.attention_mask) - 1]

@wrong("shape|b b|b, b|pair|each row|one number")
def pooled_scores(model, seqs): return model(seqs)[:, tokens.last_token_index(seqs.attention_mask)]

@wrong("sum|last|all")
def pooled_scores(model, seqs):
    _checked(seqs)
    return (model(seqs) * seqs.attention_mask).sum(1)

@wrong("valueerror|raise|only pad|refuse|row of pad")
def pooled_scores(model, seqs):
    place = torch.arange(seqs.ids.shape[1])
    last = (seqs.attention_mask * place).amax(1)
    return model(seqs)[torch.arange(len(seqs)), last]

@wrong("gradient|detach")
def pooled_scores(model, seqs):
    last = tokens.last_token_index(seqs.attention_mask)
    with torch.no_grad(): return model(seqs)[torch.arange(len(seqs)), last]

@wrong("shape|keep|axis|\\(b\\)|b 1")
def pooled_scores(model, seqs):
    last = tokens.last_token_index(seqs.attention_mask)
    return model(seqs).gather(1, last[:, None])

@wrong("max|largest|last|highest")
def pooled_scores(model, seqs):
    _checked(seqs)
    return model(seqs).masked_fill(~seqs.attention_mask, -torch.inf).amax(1)

@wrong("response|empty|prompt|valueerror|attention|real|cut|only pad|error")
def pooled_scores(model, seqs):
    last = tokens.last_token_index(seqs.response_mask)
    return model(seqs)[torch.arange(len(seqs)), last]

@wrong("sigmoid|raw|0 to 1|score|squash|σ")
def pooled_scores(model, seqs):
    last = tokens.last_token_index(seqs.attention_mask)
    return model(seqs)[torch.arange(len(seqs)), last].sigmoid()

@wrong("after|one too|off by one|pad|late|next|index|last|one token")
def pooled_scores(model, seqs):
    last = (tokens.last_token_index(seqs.attention_mask) + 1).clamp(max=seqs.ids.shape[1] - 1)
    return model(seqs)[torch.arange(len(seqs)), last]

# bradley_terry_loss
@right
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("shapes")
    chosen, rejected = at_least_float32(chosen, rejected)
    return softplus(rejected - chosen + margin) + center_coef * (chosen + rejected)**2

@right
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("shapes")
    chosen, rejected = at_least_float32(chosen, rejected)
    gap = chosen - rejected - margin
    zero = torch.zeros_like(gap)
    return torch.logaddexp(zero, -gap) + center_coef * (chosen + rejected).square()

def _scores(chosen, rejected):
    if chosen.shape != rejected.shape: raise ValueError("shapes")
    return at_least_float32(chosen, rejected)

@wrong("sign|turned|swap|rejected|order|other way|exchang")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return -logsigmoid(r - c - margin) + center_coef * (c + r)**2

@wrong("sign|minus|negativ")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return logsigmoid(c - r - margin) + center_coef * (c + r)**2

@wrong("margin")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return -logsigmoid(c - r + margin) + center_coef * (c + r)**2

@wrong("margin")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return -logsigmoid(c - r) + center_coef * (c + r)**2

@wrong("cent|c \\(|center_coef|second term|term")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return -logsigmoid(c - r - margin)

@wrong("cent|sum|difference|r_w \\+ r_l|\\+")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return -logsigmoid(c - r - margin) + center_coef * (c - r)**2

@wrong("cent|square|power|\\(r_w")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return -logsigmoid(c - r - margin) + center_coef * (c**2 + r**2)

@wrong("inf|overflow|600|logsigmoid|log of 0|far apart|large")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return -torch.sigmoid(c - r - margin).log() + center_coef * (c + r)**2

@wrong("mean|shape|each pair|per pair|one loss|one number")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return (-logsigmoid(c - r - margin) + center_coef * (c + r)**2).mean()

@wrong("valueerror|raise|shape|broadcast|refuse")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    return -logsigmoid(chosen - rejected - margin) + center_coef * (chosen + rejected)**2

@wrong("log|sigmoid|probab")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return 1 - torch.sigmoid(c - r - margin) + center_coef * (c + r)**2

@wrong("hinge|sigmoid|log|relu|logistic|smooth|flat|0 where|zero")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return torch.relu(margin + 1 - (c - r)) + center_coef * (c + r)**2

@wrong("cent|sign|minus|\\+")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return -logsigmoid(c - r - margin) - center_coef * (c + r)**2

@wrong("gradient|detach")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return -logsigmoid(c - r.detach() - margin) + center_coef * (c + r)**2

@wrong("cent|mean|batch|each|pair")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return -logsigmoid(c - r - margin) + center_coef * ((c + r)**2).mean()

@wrong("cent|half|mean|factor|/ 2|2")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return -logsigmoid(c - r - margin) + center_coef * ((c + r) / 2)**2

@wrong("margin|outside|inside|minus|gap")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return -logsigmoid(c - r) + margin + center_coef * (c + r)**2

@wrong("softmax|log|both|sign|minus|sigmoid|gap|sum|normali|-log")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return torch.log1p((c - r - margin).exp()) + center_coef * (c + r)**2

@two("margin|cent|difference|sum")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    c, r = _scores(chosen, rejected)
    return -logsigmoid(c - r + margin) + center_coef * (c - r)**2

# calibration_bins
@right
def calibration_bins(chosen, rejected, n_bins=10):
    gap = chosen - rejected
    if not gap.isfinite().all(): raise ValueError("scores are to be finite")      # the stub asks for it: added later
    sure = gap.abs().sigmoid()
    correct = (gap > 0).to(sure) + .5 * (gap == 0).to(sure)
    index = ((sure - .5) / (.5 / n_bins)).floor().long().clamp(max=n_bins - 1)
    here = [index == k for k in range(n_bins)]
    here = [h for h in here if h.any()]
    return (torch.stack([sure[h].mean() for h in here]), torch.stack([correct[h].mean() for h in here]),
            torch.stack([h.sum() for h in here]))

@right
def calibration_bins(chosen, rejected, n_bins=10):
    if not (chosen - rejected).isfinite().all(): raise ValueError("scores are to be finite")
    sure = torch.sigmoid((chosen - rejected).abs())
    won = ((chosen - rejected).sign() + 1) / 2
    index = ((sure - .5) * 2 * n_bins).long().clamp(max=n_bins - 1)
    which, at, n = index.unique(return_inverse=True, return_counts=True)
    def mean(x): return torch.zeros(len(which)).to(x).index_add(0, at, x) / n
    return mean(sure), mean(won), n

def _bins(chosen, rejected, n_bins, sure=None, won=None, index=None, keep=lambda h: h.any(), low=.5):
    gap = chosen - rejected
    if not gap.isfinite().all(): raise ValueError("scores are to be finite")
    sure = gap.abs().sigmoid() if sure is None else sure(gap)
    won = (gap.sign() + 1) / 2 if won is None else won(gap)
    at = ((sure - low) / ((1 - low) / n_bins)).long().clamp(0, n_bins - 1) if index is None else index(sure)
    here = [h for h in (at == k for k in range(n_bins)) if keep(h)]
    def mean(x): return torch.stack([x[h].mean() for h in here])
    return mean(sure), mean(won), torch.stack([h.sum() for h in here])

@wrong("confidence|abs|sigmoid|0 to 1|\\.5")
def calibration_bins(chosen, rejected, n_bins=10): return _bins(chosen, rejected, n_bins, sure=torch.sigmoid)

@wrong("tie|half|equal|1/2|\\.5")
def calibration_bins(chosen, rejected, n_bins=10):
    return _bins(chosen, rejected, n_bins, won=lambda g: (g > 0).float())

@wrong("tie|half|equal|1/2|\\.5")
def calibration_bins(chosen, rejected, n_bins=10):
    return _bins(chosen, rejected, n_bins, won=lambda g: (g >= 0).float())

@wrong("0 to 1|0 and 1|\\.5|width|between|bin")
def calibration_bins(chosen, rejected, n_bins=10): return _bins(chosen, rejected, n_bins, low=0.)

@wrong("empty|left out|nan|no pair|leave out")
def calibration_bins(chosen, rejected, n_bins=10):
    return _bins(chosen, rejected, n_bins, keep=lambda h: True)

@wrong("confidence of 1|last bin|1 belongs|lost|also 1|edge|upper|of 1|missing|dropped")
def calibration_bins(chosen, rejected, n_bins=10):
    return _bins(chosen, rejected, n_bins, index=lambda s: ((s - .5) * 2 * n_bins).long())

@wrong("edge|lower|belongs|round|upper|next bin|boundary|bin")
def calibration_bins(chosen, rejected, n_bins=10):
    return _bins(chosen, rejected, n_bins,
                 index=lambda s: (((s - .5) * 2 * n_bins).ceil() - 1).long().clamp(0, n_bins - 1))

@wrong("round|bin|down|floor")
def calibration_bins(chosen, rejected, n_bins=10):
    return _bins(chosen, rejected, n_bins,
                 index=lambda s: ((s - .5) * 2 * n_bins).round().long().clamp(0, n_bins - 1))

@wrong("middle|centre|center|mean|mid")
def calibration_bins(chosen, rejected, n_bins=10):
    def index(s): return ((s - .5) * 2 * n_bins).long().clamp(0, n_bins - 1)
    _, acc, n = _bins(chosen, rejected, n_bins)
    at = index((chosen - rejected).abs().sigmoid()).unique()
    return .5 + (at + .5) * .5 / n_bins, acc, n

@wrong("turned|wrong|1 -|right|rejected|sign|other way|error|swap|accuracy|less")
def calibration_bins(chosen, rejected, n_bins=10):
    return _bins(chosen, rejected, n_bins, won=lambda g: (1 - g.sign()) / 2)

@wrong("share|number|count|how many|pairs|fraction|divid|proportion")
def calibration_bins(chosen, rejected, n_bins=10):
    sure, acc, n = _bins(chosen, rejected, n_bins)
    return sure, acc, n / n.sum()

@wrong("order|swap|accuracy|confidence|exchang|turned|first")
def calibration_bins(chosen, rejected, n_bins=10):
    sure, acc, n = _bins(chosen, rejected, n_bins)
    return acc, sure, n

@wrong("sum|mean|number|divid|count")
def calibration_bins(chosen, rejected, n_bins=10):
    sure, acc, n = _bins(chosen, rejected, n_bins)
    return sure, acc * n, n

@wrong("sigmoid|gap|confidence|probab")
def calibration_bins(chosen, rejected, n_bins=10):
    return _bins(chosen, rejected, n_bins, sure=lambda g: g.abs(),
                 index=lambda s: ((s.sigmoid() - .5) * 2 * n_bins).long().clamp(0, n_bins - 1))

@wrong("equal|width|quantile|same number|size|bins|pairs")
def calibration_bins(chosen, rejected, n_bins=10):
    sure = (chosen - rejected).abs().sigmoid()
    won = ((chosen - rejected).sign() + 1) / 2
    parts = [p for p in sure.argsort().tensor_split(n_bins) if len(p)]
    return (torch.stack([sure[p].mean() for p in parts]), torch.stack([won[p].mean() for p in parts]),
            torch.tensor([len(p) for p in parts]))

@wrong("order|descend|ascend|revers|first|direction|turned|last")
def calibration_bins(chosen, rejected, n_bins=10):
    return tuple(x.flip(0) for x in _bins(chosen, rejected, n_bins))

@wrong("n_bins|10|number of bins|default|how many bins|bins")
def calibration_bins(chosen, rejected, n_bins=10): return _bins(chosen, rejected, 10)

@two("tie|half|empty|left out|nan|equal")
def calibration_bins(chosen, rejected, n_bins=10):
    return _bins(chosen, rejected, n_bins, won=lambda g: (g > 0).float(), keep=lambda h: True)

# 06 best policy: exact_gradient
def _trained(model): return {name: p for name, p in model.named_parameters() if p.requires_grad}

@right
def exact_gradient(model, world, reward):
    trained = _trained(model)
    grads = torch.autograd.grad(expectation(all_logprobs(model, world), reward), list(trained.values()))
    return dict(zip(trained, grads))

@right
def exact_gradient(model, world, reward): # the score-function identity, summed exactly
    logp = all_logprobs(model, world)
    weight = logp.detach().exp() * reward.detach()
    trained = _trained(model)
    grads = torch.autograd.grad((weight * logp).sum(), list(trained.values()))
    return {name: g for name, g in zip(trained, grads)}

def _grads(model, value):
    trained = _trained(model)
    return dict(zip(trained, torch.autograd.grad(value, list(trained.values()))))

@wrong("sign|minus|negativ|descent|loss")
def exact_gradient(model, world, reward): return _grads(model, -expectation(all_logprobs(model, world), reward))

@wrong("weight|probab|exp|each response|mean|expect|π|pi")
def exact_gradient(model, world, reward): return _grads(model, (all_logprobs(model, world) * reward).mean())

@wrong("log|probab|expect|π|exp|weight")
def exact_gradient(model, world, reward): return _grads(model, (all_logprobs(model, world) * reward).sum())

@wrong("\\.grad|leave|backward|fills|alone|side")
def exact_gradient(model, world, reward):
    expectation(all_logprobs(model, world), reward).backward()
    return {name: p.grad for name, p in _trained(model).items()}

@wrong("frozen|requires_grad|left out|error")
def exact_gradient(model, world, reward):
    names, params = zip(*model.named_parameters())
    grads = torch.autograd.grad(expectation(all_logprobs(model, world), reward), params, allow_unused=True)
    return dict(zip(names, grads))

@wrong("number|n|divid|mean|factor|count")
def exact_gradient(model, world, reward):
    return _grads(model, expectation(all_logprobs(model, world), reward) / len(reward))

@wrong("dict|name|list|type")
def exact_gradient(model, world, reward):
    return list(_grads(model, expectation(all_logprobs(model, world), reward)).values())

@wrong("twice|factor|product|2|both|square|two|log")
def exact_gradient(model, world, reward):
    logp = all_logprobs(model, world)
    return _grads(model, (logp.exp() * reward * logp).sum())

@wrong("lacks|first|one parameter|every parameter|missing|name|key|only")
def exact_gradient(model, world, reward):
    return dict(list(_grads(model, expectation(all_logprobs(model, world), reward)).items())[:1])

@wrong("\\.grad|adds|accumul|zero|left|alone|fills")
def exact_gradient(model, world, reward):
    before = {n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}
    expectation(all_logprobs(model, world), reward).backward()
    out = {name: p.grad.clone() for name, p in _trained(model).items()}
    for n, p in model.named_parameters():
        if before[n] is None: p.grad = torch.zeros_like(p)
    return out

@wrong("log|jensen|expect|divid|normali|factor|value")
def exact_gradient(model, world, reward):
    value = expectation(all_logprobs(model, world), reward)
    return _grads(model, value.abs().log())

@wrong("constant|reward|baseline|centred|mean|standard|normali|scale|factor")
def exact_gradient(model, world, reward):
    r = (reward - reward.mean()) / reward.std()
    return _grads(model, expectation(all_logprobs(model, world), r))

@two("sign|minus|weight|probab|mean|expect|exp")
def exact_gradient(model, world, reward): return _grads(model, -(all_logprobs(model, world) * reward).mean())

# optimal_policy
def _beta(beta):
    if not beta > 0: raise ValueError(f"beta must be above 0, got {beta}")

@right
def optimal_policy(ref_logp, reward, beta):
    if not beta > 0: raise ValueError("beta")
    x = ref_logp + reward / beta
    return x.log_softmax(-1), x.logsumexp(-1)

@right
def optimal_policy(ref_logp, reward, beta):
    if beta <= 0: raise ValueError("beta must be above 0")
    x = reward / beta + ref_logp
    top = x.max()
    log_z = top + (x - top).exp().sum().log()
    return x - log_z, log_z

@wrong("beta|β|divid|multipl")
def optimal_policy(ref_logp, reward, beta):
    _beta(beta)
    x = ref_logp + reward * beta
    return x.log_softmax(-1), x.logsumexp(-1)

@wrong("beta|β|divid")
def optimal_policy(ref_logp, reward, beta):
    _beta(beta)
    x = ref_logp + reward
    return x.log_softmax(-1), x.logsumexp(-1)

@wrong("sign|minus|negativ|reward")
def optimal_policy(ref_logp, reward, beta):
    _beta(beta)
    x = ref_logp - reward / beta
    return x.log_softmax(-1), x.logsumexp(-1)

@wrong("reference|ref|prior|π_ref")
def optimal_policy(ref_logp, reward, beta):
    _beta(beta)
    x = reward / beta
    return x.log_softmax(-1), x.logsumexp(-1)

@wrong("beta|β|log z|value|second|factor|times")
def optimal_policy(ref_logp, reward, beta):
    _beta(beta)
    x = ref_logp + reward / beta
    return x.log_softmax(-1), beta * x.logsumexp(-1)

@wrong("normali|log z|sum to|minus")
def optimal_policy(ref_logp, reward, beta):
    _beta(beta)
    x = ref_logp + reward / beta
    return x, x.logsumexp(-1)

@wrong("overflow|inf|log|nan|large|exp")
def optimal_policy(ref_logp, reward, beta):
    _beta(beta)
    w = ref_logp.exp() * (reward / beta).exp()
    return (w / w.sum()).log(), w.sum().log()

@wrong("log|probabilit|exp")
def optimal_policy(ref_logp, reward, beta):
    _beta(beta)
    x = ref_logp + reward / beta
    return x.softmax(-1), x.logsumexp(-1)

@wrong("valueerror|raise|beta|above 0|refuse")
def optimal_policy(ref_logp, reward, beta):
    x = ref_logp + reward / beta
    return x.log_softmax(-1), x.logsumexp(-1)

@wrong("valueerror|raise|0|above|refuse|negativ")
def optimal_policy(ref_logp, reward, beta):
    if beta < 0: raise ValueError("beta")
    x = ref_logp + reward / max(beta, 1e-8)
    return x.log_softmax(-1), x.logsumexp(-1)

@wrong("log|z|second|exp")
def optimal_policy(ref_logp, reward, beta):
    _beta(beta)
    x = ref_logp + reward / beta
    return x.log_softmax(-1), x.logsumexp(-1).exp()

@wrong("log|exp|ref|probabilit|plus|log-prob")
def optimal_policy(ref_logp, reward, beta):
    _beta(beta)
    x = ref_logp.exp() * reward / beta
    return x.log_softmax(-1), x.logsumexp(-1)

@wrong("mean|log n|sum|z|divid|number|log 3|log\\(n|constant|differ")
def optimal_policy(ref_logp, reward, beta):
    _beta(beta)
    x = ref_logp + reward / beta
    return x.log_softmax(-1), x.logsumexp(-1) - math.log(len(x))

@wrong("beta|β|both|sum|bracket|ref|divid|temperature")
def optimal_policy(ref_logp, reward, beta):
    _beta(beta)
    x = (ref_logp + reward) / beta
    return x.log_softmax(-1), x.logsumexp(-1)

# best_of_n_policy
def _n(n):
    if n < 1: raise ValueError(f"n must be 1 or more, got {n}")

@right
def best_of_n_policy(logp, score, n):
    if n < 1: raise ValueError("n")
    p, order = logp.exp(), score[:, None] - score
    own = (p * (order == 0)).sum(1)
    upto = (p * (order >= 0)).sum(1)
    below = (upto - own).clamp(min=0)
    return logp - own.log() + (upto**n - below**n).log() if (p > 0).all() else torch.where(
        p > 0, logp - own.log() + (upto**n - below**n).log(), -torch.inf)

@right
def best_of_n_policy(logp, score, n): # score by score, upwards
    if n < 1: raise ValueError("n")
    p, out, below = logp.exp(), torch.full_like(logp, -torch.inf), 0.
    for s in score.unique():
        here = (score == s) & (p > 0)
        mass = p[here].sum()
        if mass == 0: continue
        won = (below + mass)**n - below**n
        out[here] = (p[here] / mass * won).log()
        below = below + mass
    return out

def _bon(logp, score, n, high=lambda o: o >= 0, own=lambda o: o == 0, share=True, won=None, log=True):
    p, order = logp.exp(), score[:, None] - score
    l, u = (p * own(order)).sum(1), (p * high(order)).sum(1)
    w = won(u, l, n) if won else u**n - (u - l).clamp(min=0)**n
    out = torch.where(p > 0, (logp - l.log() if share else 0 * logp) + w.log(), -torch.inf)
    return out if log else out.exp()

@wrong("at most|at least|lower|turned|direction|worst|lowest|sign|other way|below|above")
def best_of_n_policy(logp, score, n):
    _n(n)
    return _bon(logp, score, n, high=lambda o: o <= 0)

@wrong("at most|own|strict|equal|tie|below|includ|<|only pow")
def best_of_n_policy(logp, score, n):
    _n(n)
    return _bon(logp, score, n, high=lambda o: o > 0, won=lambda u, l, n: (u + 0)**n)

@wrong("tie|equal|share|proportion|same score|own score|exactly")
def best_of_n_policy(logp, score, n):
    _n(n)
    return _bon(logp, score, n, share=False)

@wrong("log|probabilit|exp")
def best_of_n_policy(logp, score, n):
    _n(n)
    return _bon(logp, score, n, log=False)

@wrong("n\\b|power|times|approx|n u|derivative|n - 1")
def best_of_n_policy(logp, score, n):
    _n(n)
    return _bon(logp, score, n, won=lambda u, l, n: n * u**(n - 1) * l)

@wrong("u - l|minus|second|subtract|below|lower|exactly|term|\\(u")
def best_of_n_policy(logp, score, n):
    _n(n)
    return _bon(logp, score, n, won=lambda u, l, n: u**n)

@wrong("power|u - l|\\*\\*|exponent|n\\b|minus")
def best_of_n_policy(logp, score, n):
    _n(n)
    return _bon(logp, score, n, won=lambda u, l, n: (u - (u - l).clamp(min=0))**n)

@wrong("valueerror|raise|1 or more|refuse|n\\b")
def best_of_n_policy(logp, score, n): return _bon(logp, score, n)

@wrong("nan|inf|probability 0|0 stay|log of 0|zero")
def best_of_n_policy(logp, score, n):
    _n(n)
    p, order = logp.exp(), score[:, None] - score
    l, u = (p * (order == 0)).sum(1), (p * (order >= 0)).sum(1)
    return logp - l.log() + (u**n - (u - l).clamp(min=0)**n).log()

@wrong("n - 1|off by one|one too few|power|one less|samples|n\\b")
def best_of_n_policy(logp, score, n):
    _n(n)
    return _bon(logp, score, max(1, n - 1))

@wrong("n \\+ 1|off by one|one too many|power|one more|n\\b")
def best_of_n_policy(logp, score, n):
    _n(n)
    return _bon(logp, score, n + 1)

@wrong("tie|equal|share|proportion|evenly|same score|split")
def best_of_n_policy(logp, score, n):
    _n(n)
    p, order = logp.exp(), score[:, None] - score
    l, u = (p * (order == 0)).sum(1), (p * (order >= 0)).sum(1)
    k = ((order == 0) & (p > 0)[None]).sum(1)
    w = u**n - (u - l).clamp(min=0)**n
    return torch.where(p > 0, (w / k).log(), -torch.inf)

@wrong("tie|equal|first|order|index|same score|sort|share")
def best_of_n_policy(logp, score, n):
    _n(n)
    order = score.argsort(stable=True)
    u = logp.exp()[order].cumsum(0)
    w = u**n - torch.cat([u.new_zeros(1), u[:-1]])**n
    out = torch.empty_like(logp)
    out[order] = w.log()
    return torch.where(logp.exp() > 0, out, -torch.inf)

@wrong("approx|exp|tilt|softmax|formula|score|kl|normali|power")
def best_of_n_policy(logp, score, n):
    _n(n)
    return (logp + score * math.log(n)).log_softmax(0)

@wrong("exp\\(logp\\)|own|exactly|equal|probabilit|tie|same score|one response|itself|score")
def best_of_n_policy(logp, score, n):
    _n(n)
    p, order = logp.exp(), score[:, None] - score
    u = (p * (order >= 0)).sum(1)
    return torch.where(p > 0, (u**n - (u - p).clamp(min=0)**n).log(), -torch.inf)

@wrong("axis|column|other way|turned|direction|at most|at least|transpos|lower|worst|sum over")
def best_of_n_policy(logp, score, n):
    _n(n)
    p, order = logp.exp(), score[:, None] - score
    l, u = (p[:, None] * (order == 0)).sum(0), (p[:, None] * (order >= 0)).sum(0)
    w = u**n - (u - l).clamp(min=0)**n
    return torch.where(p > 0, logp - l.log() + w.log(), -torch.inf)

@wrong("probab|number|count|weight|rank|uniform|share of responses|logp")
def best_of_n_policy(logp, score, n):
    _n(n)
    order = score[:, None] - score
    l, u = (order == 0).double().mean(1), (order >= 0).double().mean(1)
    out = logp.double() - (logp.exp() * (order == 0)).sum(1).log() + (u**n - (u - l).clamp(min=0)**n).log()
    return torch.where(logp.exp() > 0, out, -torch.inf).to(logp)

@wrong("n\\b|log|power|times|multipl|linear")
def best_of_n_policy(logp, score, n):
    _n(n)
    return _bon(logp, score, n, won=lambda u, l, n: n * u - n * (u - l))

@wrong("sum to|normali|share|first|log|probab|logp|p\\b|times|minus l|l\\.log|divid|proportion")
def best_of_n_policy(logp, score, n):
    _n(n)
    p, order = logp.exp(), score[:, None] - score
    l, u = (p * (order == 0)).sum(1), (p * (order >= 0)).sum(1)
    return torch.where(p > 0, logp + (u**n - (u - l).clamp(min=0)**n).log(), -torch.inf)

@wrong("highest|best|one response|max|certain|always|0 elsewhere|argmax|n\\b")
def best_of_n_policy(logp, score, n):
    _n(n)
    best = score == score[logp > -torch.inf].max()
    return logp.masked_fill(~best, -torch.inf).log_softmax(0)

@wrong("miss|1 -|at least|above|worst|lower|complement|u\\b|at most|power")
def best_of_n_policy(logp, score, n):
    _n(n)
    p, order = logp.exp(), score[:, None] - score
    l = (p * (order == 0)).sum(1)
    w = 1 - (1 - l).clamp(min=0)**n
    return torch.where(p > 0, logp - l.log() + w.log(), -torch.inf)

@two("at most|tie|equal|share|turned|lower|worst|direction")
def best_of_n_policy(logp, score, n):
    _n(n)
    return _bon(logp, score, n, high=lambda o: o <= 0, share=False)

# fixed_prefix_value
@right
def fixed_prefix_value(probs, reward, beta):
    return beta * (probs.log() + reward / beta).masked_fill(probs == 0, -torch.inf).logsumexp(0)

@right
def fixed_prefix_value(probs, reward, beta):
    kept = probs > 0
    x = reward[kept] / beta
    return beta * (x.max() + (probs[kept] * (x - x.max()).exp()).sum().log())

@wrong("beta|β|front|times|factor")
def fixed_prefix_value(probs, reward, beta): return (probs.log() + reward / beta).logsumexp(0)

@wrong("mean|exp|soft|log|linear")
def fixed_prefix_value(probs, reward, beta): return torch.where(probs > 0, probs * reward, 0.).sum()

@wrong("overflow|inf|300|large|logsumexp|nan|exp")
def fixed_prefix_value(probs, reward, beta): return beta * (probs * (reward / beta).exp()).sum().log()

@wrong("beta|β|divid|multipl")
def fixed_prefix_value(probs, reward, beta): return beta * (probs.log() + reward * beta).logsumexp(0)

@wrong("beta|β|divid")
def fixed_prefix_value(probs, reward, beta): return beta * (probs.log() + reward).logsumexp(0)

@wrong("probab|weight|number|count|mean|probs")
def fixed_prefix_value(probs, reward, beta): return beta * (reward / beta).logsumexp(0)

@wrong("probab|log|exp|weight")
def fixed_prefix_value(probs, reward, beta): return beta * (probs + reward / beta).logsumexp(0)

@wrong("sign|minus|negativ")
def fixed_prefix_value(probs, reward, beta): return -beta * (probs.log() - reward / beta).logsumexp(0)

@wrong("probability 0|1e-|clamp|adds nothing|zero|0 |small")
def fixed_prefix_value(probs, reward, beta):
    return beta * ((probs + 1e-8).log() + reward / beta).logsumexp(0)

@wrong("log|exp|z\\b")
def fixed_prefix_value(probs, reward, beta): return beta * (probs.log() + reward / beta).logsumexp(0).exp()

@wrong("mean|number|k\\b|divid|log k|sum|uniform|count|probab")
def fixed_prefix_value(probs, reward, beta):
    return beta * ((probs.log() + reward / beta).logsumexp(0) - math.log(len(probs)))

@wrong("max|best|hard|largest|log|soft|probab")
def fixed_prefix_value(probs, reward, beta): return reward[probs > 0].max()

@wrong("beta|β|divid|multipl|front|square")
def fixed_prefix_value(probs, reward, beta): return (probs.log() + reward / beta).logsumexp(0) / beta

@wrong("times|product|log|nan|probab|plus|exponent|inside|weight|multipl")
def fixed_prefix_value(probs, reward, beta): return beta * (probs * reward / beta).logsumexp(0)

# 07 kl: kl_k1
@right
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes differ")
    dtype = torch.promote_types(torch.promote_types(logp.dtype, ref_logp.dtype), torch.float32)
    return logp.to(dtype) - ref_logp.to(dtype)

@right
def kl_k1(logp, ref_logp):
    a, b = at_least_float32(logp, ref_logp)
    return -(b - a)

@wrong("sign|turned|order|other way|swap|ref|first")
def kl_k1(logp, ref_logp):
    a, b = at_least_float32(logp, ref_logp)
    return b - a

@wrong("valueerror|raise|shape|broadcast|refuse")
def kl_k1(logp, ref_logp): return logp.to(torch.promote_types(logp.dtype, torch.float32)) - ref_logp

@wrong("float32|bf16|bfloat16|dtype|precision|type")
def kl_k1(logp, ref_logp):
    at_least_float32(logp, ref_logp)
    return logp - ref_logp

@wrong("float32|bf16|bfloat16|dtype|precision|before|round")
def kl_k1(logp, ref_logp):
    at_least_float32(logp, ref_logp)
    d = logp - ref_logp
    return d.to(torch.promote_types(d.dtype, torch.float32))

@wrong("exp|ratio|log")
def kl_k1(logp, ref_logp):
    a, b = at_least_float32(logp, ref_logp)
    return (a - b).exp()

@wrong("probab|weight|exp|times|π|sample|factor|pi\\b|expect")
def kl_k1(logp, ref_logp):
    a, b = at_least_float32(logp, ref_logp)
    return a.exp() * (a - b)

@wrong("abs|sign|absolute")
def kl_k1(logp, ref_logp):
    a, b = at_least_float32(logp, ref_logp)
    return (a - b).abs()

@wrong("k3|exp\\(-d\\)|exp|k1|term")
def kl_k1(logp, ref_logp):
    a, b = at_least_float32(logp, ref_logp)
    return (b - a).exp() - 1 + (a - b)

@wrong("square|k2|/ 2|power|half")
def kl_k1(logp, ref_logp):
    a, b = at_least_float32(logp, ref_logp)
    return (a - b)**2 / 2

@wrong("mean|shape|each|sum|one number|per token")
def kl_k1(logp, ref_logp):
    a, b = at_least_float32(logp, ref_logp)
    return (a - b).mean()

@wrong("clamp|negativ|below 0|0 or more|sign|relu")
def kl_k1(logp, ref_logp):
    a, b = at_least_float32(logp, ref_logp)
    return (a - b).clamp(min=0)

@wrong("gradient|detach")
def kl_k1(logp, ref_logp):
    a, b = at_least_float32(logp, ref_logp)
    return (a - b).detach()

@wrong("divid|ratio|quotient|minus|difference|log")
def kl_k1(logp, ref_logp):
    a, b = at_least_float32(logp, ref_logp)
    return a / b

@wrong("float64|double|dtype|precision|type")
def kl_k1(logp, ref_logp):
    at_least_float32(logp, ref_logp)
    return logp.float() - ref_logp.float()

# kl_k3
@right
def kl_k3(logp, ref_logp):
    a, b = at_least_float32(logp, ref_logp)
    return torch.expm1(b - a) + a - b

@right
def kl_k3(logp, ref_logp):
    d = kl.kl_k1(logp, ref_logp)
    return torch.special.expm1(-d) + d

@wrong("sign|exponent|exp\\(d|turned|\\+d|-d|other way")
def kl_k3(logp, ref_logp):
    d = kl.kl_k1(logp, ref_logp)
    return torch.expm1(d) + d

@wrong("sign|exponent|turned|ratio|other way|swap|exp\\(d|forward|direction|inver|d for|order|-d")
def kl_k3(logp, ref_logp):
    d = kl.kl_k1(logp, ref_logp)
    return torch.expm1(d) - d

@wrong("- ?1|minus 1|term|one|constant|off by 1")
def kl_k3(logp, ref_logp):
    d = kl.kl_k1(logp, ref_logp)
    return (-d).exp() + d

@wrong("\\+ ?d|term|d\\b|k1|missing")
def kl_k3(logp, ref_logp): return torch.expm1(-kl.kl_k1(logp, ref_logp))

@wrong("exp|term|k1")
def kl_k3(logp, ref_logp): return kl.kl_k1(logp, ref_logp)

@wrong("k2|square|exp")
def kl_k3(logp, ref_logp): return kl.kl_k1(logp, ref_logp)**2 / 2

@wrong("valueerror|raise|shape|broadcast|refuse")
def kl_k3(logp, ref_logp):
    d = logp.to(torch.promote_types(logp.dtype, torch.float32)) - ref_logp
    return torch.expm1(-d) + d

@wrong("float32|bf16|bfloat16|dtype|precision|type")
def kl_k3(logp, ref_logp):
    at_least_float32(logp, ref_logp)
    d = logp - ref_logp
    return torch.expm1(-d) + d

@wrong("sign|minus d|\\+ ?d|- ?d|term|d\\b")
def kl_k3(logp, ref_logp):
    d = kl.kl_k1(logp, ref_logp)
    return torch.expm1(-d) - d

@wrong("ratio|weight|π|factor|times|probab|pi\\b|importance")
def kl_k3(logp, ref_logp):
    d = kl.kl_k1(logp, ref_logp)
    return logp.exp() * (torch.expm1(-d) + d)

@wrong("gradient|detach")
def kl_k3(logp, ref_logp):
    d = kl.kl_k1(logp, ref_logp)
    return torch.expm1(-d.detach()) + d

@wrong("sign|minus|negativ")
def kl_k3(logp, ref_logp):
    d = kl.kl_k1(logp, ref_logp)
    return -(torch.expm1(-d) + d)

@wrong("clamp|clip|limit|large|10|bound|cut")
def kl_k3(logp, ref_logp):
    d = kl.kl_k1(logp, ref_logp)
    return torch.clamp(torch.expm1(-d) + d, max=1.)

@wrong("mean|shape|each|sum|one number|per token")
def kl_k3(logp, ref_logp):
    d = kl.kl_k1(logp, ref_logp)
    return (torch.expm1(-d) + d).mean()

@wrong("log|ratio|exp|d\\b")
def kl_k3(logp, ref_logp):
    ratio = kl.kl_k1(logp, ref_logp)
    return ratio - 1 - ratio.abs().clamp(min=1e-8).log()

@wrong("factor|half|2|twice|/ 2")
def kl_k3(logp, ref_logp):
    d = kl.kl_k1(logp, ref_logp)
    return (torch.expm1(-d) + d) / 2

# token_rewards
@right
def token_rewards(score, penalty, mask):
    if penalty.shape != mask.shape or score.shape != mask.shape[:1]: raise ValueError("shapes")
    dtype = torch.promote_types(torch.promote_types(score.dtype, penalty.dtype), torch.float32)
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return penalty.to(dtype) + last * score.to(dtype)[:, None]

@right
def token_rewards(score, penalty, mask):
    if penalty.shape != mask.shape: raise ValueError("penalty and mask")
    if score.shape != penalty.shape[:1]: raise ValueError("score")
    dtype = torch.promote_types(torch.promote_types(score.dtype, penalty.dtype), torch.float32)
    out = penalty.to(dtype).clone()
    for i, row in enumerate(mask):
        places = row.nonzero()[:, 0]
        if len(places): out[i, places[-1]] = out[i, places[-1]] + score[i].to(dtype)
    return out

def _tr(score, penalty, mask):
    if penalty.shape != mask.shape or score.shape != mask.shape[:1]: raise ValueError("shapes")
    dtype = torch.promote_types(torch.promote_types(score.dtype, penalty.dtype), torch.float32)
    return score.to(dtype), penalty.to(dtype), mask & (mask.flip(1).cumsum(1).flip(1) == 1)

@wrong("last column|pad|last response|right|column")
def token_rewards(score, penalty, mask):
    s, p, _ = _tr(score, penalty, mask)
    out = p.clone()
    out[:, -1] = out[:, -1] + s
    return out

@wrong("left|count|number of|pad|side|place|last|empty")
def token_rewards(score, penalty, mask):
    s, p, _ = _tr(score, penalty, mask)
    out = p.clone()
    at = (mask.sum(1) - 1).clamp(min=0)
    out[torch.arange(len(out)), at] += s * mask.any(1)
    return out

@wrong("first")
def token_rewards(score, penalty, mask):
    s, p, _ = _tr(score, penalty, mask)
    return p + (mask & (mask.cumsum(1) == 1)) * s[:, None]

@wrong("every|each token|all|last")
def token_rewards(score, penalty, mask):
    s, p, _ = _tr(score, penalty, mask)
    return p + mask * s[:, None]

@wrong("penalty|replac|instead|add|overwr|plus|lost")
def token_rewards(score, penalty, mask):
    s, p, last = _tr(score, penalty, mask)
    return torch.where(last, s[:, None].expand_as(p), p)

@wrong("penalty|missing|term|forgot")
def token_rewards(score, penalty, mask):
    s, p, last = _tr(score, penalty, mask)
    return last * s[:, None] + 0 * p

@wrong("sign|minus|score|negativ")
def token_rewards(score, penalty, mask):
    s, p, last = _tr(score, penalty, mask)
    return p - last * s[:, None]

@wrong("sign|penalty|minus|twice|negativ")
def token_rewards(score, penalty, mask):
    s, p, last = _tr(score, penalty, mask)
    return last * s[:, None] - p

@wrong("empty|no score|without|no response|no token")
def token_rewards(score, penalty, mask):
    s, p, _ = _tr(score, penalty, mask)
    at = torch.where(mask, torch.arange(mask.shape[1]), -1).amax(1)
    out = p.clone()
    out[torch.arange(len(out)), at] += s
    return out

@wrong("valueerror|raise|shape|broadcast|refuse")
def token_rewards(score, penalty, mask):
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return (penalty + last * score.reshape(-1, 1)).to(torch.promote_types(penalty.dtype, torch.float32))

@wrong("float32|bf16|bfloat16|dtype|precision|type")
def token_rewards(score, penalty, mask):
    _, _, last = _tr(score, penalty, mask)
    return penalty + last * score[:, None]

@wrong("in place|changed|changes|argument|input|overwr|writes|16 bits")
def token_rewards(score, penalty, mask):
    s, _, last = _tr(score, penalty, mask)
    penalty += last * s[:, None]
    return penalty

@wrong("before|one token|early|shift|eos|off by one|last")
def token_rewards(score, penalty, mask):
    s, p, last = _tr(score, penalty, mask)
    return p + torch.cat([last[:, 1:], torch.zeros_like(last[:, :1])], 1) * s[:, None]

@wrong("divid|length|each token|spread|every|share|number of|all|mean")
def token_rewards(score, penalty, mask):
    s, p, _ = _tr(score, penalty, mask)
    return p + mask * (s / mask.sum(1).clamp(min=1))[:, None]

@wrong("after|one token|late|shift|pad|off by one|behind|last")
def token_rewards(score, penalty, mask):
    s, p, last = _tr(score, penalty, mask)
    return p + tokens.shift_right(last) * s[:, None]

@wrong("sum|row|return|shape|each token|token")
def token_rewards(score, penalty, mask):
    s, p, last = _tr(score, penalty, mask)
    return p.sum(1) + s

@wrong("gap|last|inside|run|first|end|several|more than one|twice")
def token_rewards(score, penalty, mask):
    s, p, _ = _tr(score, penalty, mask)
    ends = mask & ~torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], 1)
    return p + (ends & (ends.cumsum(1) == 1)) * s[:, None]

@two("first|sign|penalty|minus|last")
def token_rewards(score, penalty, mask):
    s, p, _ = _tr(score, penalty, mask)
    return (mask & (mask.cumsum(1) == 1)) * s[:, None] - p

# 08 ppo: clipped_policy_loss
@right
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    new, old, adv = at_least_float32(logp, old_logp, advantage)
    ratio = torch.exp(new - old)
    return torch.max(-adv * ratio, -adv * torch.clamp(ratio, 1.0 - cliprange, 1.0 + cliprange))

@right
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2): # stopped where the move was made
    new, old, adv = at_least_float32(logp, old_logp, advantage)
    ratio = (new - old).exp()
    up = ratio.clamp(max=1 + cliprange)
    down = ratio.clamp(min=1 - cliprange)
    return -torch.where(adv >= 0, up * adv, down * adv)

@wrong("max|min|larger|smaller|pessimis")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    rho = (n - o).exp()
    return -torch.maximum(rho * a, rho.clamp(1 - cliprange, 1 + cliprange) * a)

@wrong("sign|minus|negativ")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    rho = (n - o).exp()
    return torch.minimum(rho * a, rho.clamp(1 - cliprange, 1 + cliprange) * a)

@wrong("clip|missing|never|forgot")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    return -(n - o).exp() * a

@wrong("min|unclipped|always|clip")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    return -(n - o).exp().clamp(1 - cliprange, 1 + cliprange) * a

@wrong("turned|old|inver|other way|swap|1 / |order|ratio")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    rho = (o - n).exp()
    return -torch.minimum(rho * a, rho.clamp(1 - cliprange, 1 + cliprange) * a)

@wrong("exp|log|ratio")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    rho = n - o
    return -torch.minimum(rho * a, rho.clamp(1 - cliprange, 1 + cliprange) * a)

@wrong("exp|log|ratio|divid|quotient")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    rho = n / o
    return -torch.minimum(rho * a, rho.clamp(1 - cliprange, 1 + cliprange) * a)

@wrong("clip|1 -|1 \\+|range|epsilon|ε|around 1|bounds|one")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    rho = (n - o).exp()
    return -torch.minimum(rho * a, rho.clamp(-cliprange, cliprange) * a)

@wrong("gradient|detach")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    rho = (n - o).exp().detach()
    return -torch.minimum(rho * a, rho.clamp(1 - cliprange, 1 + cliprange) * a) + 0 * n

@wrong("gradient|detach")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    rho = (n - n.detach()).exp()
    return -torch.minimum(rho * a, rho.clamp(1 - cliprange, 1 + cliprange) * a)

@wrong("float32|bf16|bfloat16|dtype|precision|type")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    rho = (logp - old_logp).exp()
    return -torch.minimum(rho * advantage, rho.clamp(1 - cliprange, 1 + cliprange) * advantage)

@wrong("mean|shape|each token|one number|per token")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    rho = (n - o).exp()
    return -torch.minimum(rho * a, rho.clamp(1 - cliprange, 1 + cliprange) * a).mean()

@wrong("lower|below|1 -|one side|upper|clip|min")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    rho = (n - o).exp()
    return -torch.minimum(rho * a, rho.clamp(max=1 + cliprange) * a)

@wrong("log|space|clip|range|ratio|exp")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    d = n - o
    return -torch.minimum(d.exp() * a, d.clamp(-cliprange, cliprange).exp() * a)

@wrong("default|\\.2|\\.1|cliprange|clip range")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.1):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    rho = (n - o).exp()
    return -torch.minimum(rho * a, rho.clamp(1 - cliprange, 1 + cliprange) * a)

@wrong("advantage|min|ratio|sign|inside|outside|product|times a|before")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    rho = (n - o).exp()
    return -torch.minimum(rho, rho.clamp(1 - cliprange, 1 + cliprange)) * a

@wrong("ratio|log|logp|importance|exp|old")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    return -n * a + 0 * o

@wrong("normali|whiten|advantage|mean|standard")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    a = (a - a.mean()) / (a.std() + 1e-8)
    rho = (n - o).exp()
    return -torch.minimum(rho * a, rho.clamp(1 - cliprange, 1 + cliprange) * a)

@two("sign|max|min|minus|smaller|larger")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    n, o, a = at_least_float32(logp, old_logp, advantage)
    rho = (n - o).exp()
    return torch.maximum(rho * a, rho.clamp(1 - cliprange, 1 + cliprange) * a)

# gae
@right
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = [x.masked_fill(~mask, 0) for x in at_least_float32(reward, value)]
    adv = torch.zeros_like(value)
    run, nxt = torch.zeros_like(value[:, 0]), torch.zeros_like(value[:, 0])
    for i in reversed(range(mask.shape[1])):
        here = mask[:, i]
        delta = reward[:, i] + gamma * nxt - value[:, i]
        run = torch.where(here, delta + gamma * lam * run, run)
        nxt = torch.where(here, value[:, i], nxt)
        adv[:, i] = torch.where(here, run, 0.)
    return adv, torch.where(mask, adv + value, 0.)

@right
def gae(reward, value, mask, gamma=1., lam=.95): # row by row, over the tokens that count
    reward, value = at_least_float32(reward, value)
    adv, ret = torch.zeros_like(value), torch.zeros_like(value)
    for b in range(len(mask)):
        at = mask[b].nonzero()[:, 0]
        r, v = reward[b, at], value[b, at]
        follows = torch.cat([v[1:], v.new_zeros(1)])
        delta = r + gamma * follows - v
        a = torch.stack([sum((gamma * lam)**k * delta[i + k] for k in range(len(at) - i))
                         for i in range(len(at))]) if len(at) else v
        adv[b, at], ret[b, at] = a, a + v
    return adv, ret

@right
def gae(reward, value, mask, gamma=1., lam=.95): # one matrix of powers per row
    reward, value = at_least_float32(reward, value)
    r, v = reward.masked_fill(~mask, 0), value.masked_fill(~mask, 0)
    place = mask.cumsum(1) - 1                                               # (b t)
    gap = place[:, None] - place[:, :, None]                                 # (b i j)
    both = mask[:, None] & mask[:, :, None]
    nxt = (v[:, None] * (both & (gap == 1))).sum(-1)
    delta = r + gamma * nxt - v
    power = torch.where(both & (gap >= 0), (gamma * lam) ** gap.clamp(min=0).to(v), 0.)
    adv = (power * delta[:, None]).sum(-1)
    return adv, (adv + v) * mask

def _gae(reward, value, mask, gamma=1., lam=.95, forward=False, hold=True, fill=True, end=None, decay=None,
         delta=None, ret=None, dtype=True, start=0., order=None):
    "a right one with switches"
    r, v = at_least_float32(reward, value) if dtype else (reward, value)
    if fill: r, v = r.masked_fill(~mask, 0), v.masked_fill(~mask, 0)
    adv = torch.zeros_like(v)
    run = torch.zeros_like(v[:, 0])
    nxt = v[:, -1].clone() if end == "last" else torch.zeros_like(run) + start
    columns = range(mask.shape[1])
    for i in columns if forward else reversed(columns):
        here = mask[:, i] if hold else torch.ones_like(mask[:, i])
        d = delta(r[:, i], nxt, v[:, i]) if delta else r[:, i] + gamma * nxt - v[:, i]
        run = torch.where(here, d + (gamma * lam if decay is None else decay) * run, run)
        nxt = torch.where(here, v[:, i], nxt)
        adv[:, i] = run
    adv = adv.masked_fill(~mask, 0) if fill else adv
    out = ret(adv, v, r) if ret else adv + v
    return adv, out.masked_fill(~mask, 0) if fill else out

@wrong("direction|forward|backward|last column|from the (end|right|last)|order|time|first to")
def gae(reward, value, mask, gamma=1., lam=.95): return _gae(reward, value, mask, gamma, lam, forward=True)

@wrong("λ|lam|decay")
def gae(reward, value, mask, gamma=1., lam=.95): return _gae(reward, value, mask, gamma, lam, decay=gamma)

@wrong("γ|gamma|discount|decay")
def gae(reward, value, mask, gamma=1., lam=.95): return _gae(reward, value, mask, gamma, lam, decay=lam)

@wrong("γ|gamma|discount|v_\\{?i ?\\+ ?1|next value")
def gae(reward, value, mask, gamma=1., lam=.95):
    return _gae(reward, value, mask, gamma, lam, delta=lambda r, n, v: r + n - v)

@wrong("γ|gamma|discount")
def gae(reward, value, mask, gamma=1., lam=.95): return _gae(reward, value, mask, 1., lam)

@wrong("next value|v_\\{?i ?\\+ ?1|v_next|value of the next|γ v|gamma \\* v|term|follow|δ|bootstrap")
def gae(reward, value, mask, gamma=1., lam=.95):
    return _gae(reward, value, mask, gamma, lam, delta=lambda r, n, v: r - v)

@wrong("v_i\\b|own value|minus v|value|term|baseline|- v|critic|subtract")
def gae(reward, value, mask, gamma=1., lam=.95):
    return _gae(reward, value, mask, gamma, lam, delta=lambda r, n, v: r + gamma * n)

@wrong("sign|δ|delta|turned|minus|v_i|next|swap")
def gae(reward, value, mask, gamma=1., lam=.95):
    return _gae(reward, value, mask, gamma, lam, delta=lambda r, n, v: r - gamma * n + v)

@wrong("gap|stepped over|tool|skip|hole|cuts|stops|inside|ends")
def gae(reward, value, mask, gamma=1., lam=.95):
    r, v = [x.masked_fill(~mask, 0) for x in at_least_float32(reward, value)]
    adv, run, nxt = torch.zeros_like(v), torch.zeros_like(v[:, 0]), torch.zeros_like(v[:, 0])
    for i in reversed(range(mask.shape[1])):
        run = (r[:, i] + gamma * nxt - v[:, i] + gamma * lam * run) * mask[:, i]
        nxt = v[:, i] * mask[:, i]
        adv[:, i] = run
    return adv, (adv + v) * mask

@wrong("gap|stepped over|tool|skip|hole|decay|discount|inside|counts|λ|lam|γ")
def gae(reward, value, mask, gamma=1., lam=.95): return _gae(reward, value, mask, gamma, lam, hold=False)

@wrong("gap|stepped over|tool|next value|hole|inside|follows|v_next|next")
def gae(reward, value, mask, gamma=1., lam=.95):
    r, v = [x.masked_fill(~mask, 0) for x in at_least_float32(reward, value)]
    delta = r + gamma * torch.cat([v[:, 1:], torch.zeros_like(v[:, :1])], 1) - v
    adv, run = torch.zeros_like(v), torch.zeros_like(v[:, 0])
    for i in reversed(range(mask.shape[1])):
        run = torch.where(mask[:, i], delta[:, i] + gamma * lam * run, run)
        adv[:, i] = run * mask[:, i]
    return adv, (adv + v) * mask

@wrong("nan|mask|pads|anything|0 \\*|times|multipl")
def gae(reward, value, mask, gamma=1., lam=.95):
    r, v = at_least_float32(reward, value)
    return _gae(r * mask, v * mask, mask, gamma, lam, fill=False)

@wrong("mask|pads|prompt|outside|nan|0 where|anything")
def gae(reward, value, mask, gamma=1., lam=.95):
    r, v = at_least_float32(reward, value)
    return _gae(r, v, torch.ones_like(mask), gamma, lam)

@wrong("return|\\+ v|value|a \\+ v|second|g\\b")
def gae(reward, value, mask, gamma=1., lam=.95):
    return _gae(reward, value, mask, gamma, lam, ret=lambda a, v, r: a)

@wrong("return|a \\+ v|sign|minus|second|- v")
def gae(reward, value, mask, gamma=1., lam=.95):
    return _gae(reward, value, mask, gamma, lam, ret=lambda a, v, r: a - v)

@wrong("return|monte carlo|reward to go|a \\+ v|sum of rewards|second|λ|lam")
def gae(reward, value, mask, gamma=1., lam=.95):
    def to_go(a, v, r):
        out, run = torch.zeros_like(r), torch.zeros_like(r[:, 0])
        for i in reversed(range(r.shape[1])):
            run = torch.where(mask[:, i], r[:, i] + gamma * run, run)
            out[:, i] = run
        return out
    return _gae(reward, value, mask, gamma, lam, ret=to_go)

@wrong("after the last|bootstrap|last|v = 0|end|0 after|terminal|follows|beyond")
def gae(reward, value, mask, gamma=1., lam=.95):
    r, v = [x.masked_fill(~mask, 0) for x in at_least_float32(reward, value)]
    last = torch.stack([row[m][-1] if m.any() else row.sum() * 0 for row, m in zip(v, mask)])
    return _gae(reward, value, mask, gamma, lam, start=last)

@wrong("float32|bf16|bfloat16|dtype|precision|type")
def gae(reward, value, mask, gamma=1., lam=.95): return _gae(reward, value, mask, gamma, lam, dtype=False)

@wrong("order|swap|first|exchang|turned|advantage|return|a \\+ v")
def gae(reward, value, mask, gamma=1., lam=.95): return _gae(reward, value, mask, gamma, lam)[::-1]

@wrong("gradient|detach")
def gae(reward, value, mask, gamma=1., lam=.95):
    return _gae(reward.detach(), value.detach(), mask, gamma, lam)

@wrong("whiten|normali|mean|standard|std|scale|subtract")
def gae(reward, value, mask, gamma=1., lam=.95):
    adv, ret = _gae(reward, value, mask, gamma, lam)
    x = adv[mask]
    return torch.where(mask, (adv - x.mean()) / (x.std() + 1e-8), 0.), ret

@wrong("shift|one token|v_\\{?i ?\\+ ?1|after|before|value|next|early|late|own")
def gae(reward, value, mask, gamma=1., lam=.95): # takes V of the state after the token
    r, v = [x.masked_fill(~mask, 0) for x in at_least_float32(reward, value)]
    before = tokens.shift_right(v)
    adv, run = torch.zeros_like(v), torch.zeros_like(v[:, 0])
    for i in reversed(range(mask.shape[1])):
        run = torch.where(mask[:, i], r[:, i] + gamma * v[:, i] - before[:, i] + gamma * lam * run, run)
        adv[:, i] = run * mask[:, i]
    return adv, (adv + v) * mask

@wrong("δ|delta|error|sum|one step|running|λ|lam|a_\\{?i|add")
def gae(reward, value, mask, gamma=1., lam=.95):
    return _gae(reward, value, mask, gamma, lam, decay=0.)

@wrong("λ|lam|1 -|factor|average|weight")
def gae(reward, value, mask, gamma=1., lam=.95):
    return _gae(reward, value, mask, gamma, lam, delta=lambda r, n, v: (1 - lam) * (r + gamma * n - v))

@wrong("return|masked|pads|0 where|outside|mask|prompt|zero")
def gae(reward, value, mask, gamma=1., lam=.95):
    adv, _ = _gae(reward, value, mask, gamma, lam)
    return adv, adv + at_least_float32(reward, value)[1]

@wrong("in place|changed|changes|argument|input|overwr|writes")
def gae(reward, value, mask, gamma=1., lam=.95):
    with torch.no_grad():
        reward[~mask] = 0
        value[~mask] = 0
    return _gae(reward, value, mask, gamma, lam)

@wrong("default|lam|λ|\\.95")
def gae(reward, value, mask, gamma=1., lam=1.): return _gae(reward, value, mask, gamma, lam)

@wrong("last column|one short|t - 1|last token|missing|skip|never|range|column|final")
def gae(reward, value, mask, gamma=1., lam=.95):
    r, v = [x.masked_fill(~mask, 0) for x in at_least_float32(reward, value)]
    adv, run = torch.zeros_like(v), torch.zeros_like(v[:, 0])
    for i in reversed(range(mask.shape[1] - 1)):
        delta = r[:, i] + gamma * v[:, i + 1] - v[:, i]
        run = torch.where(mask[:, i], delta + gamma * lam * run, run)
        adv[:, i] = run * mask[:, i]
    return adv, (adv + v) * mask

@wrong("row|next row|carr|flat|batch|other row|response|leak")
def gae(reward, value, mask, gamma=1., lam=.95):
    r, v = [x.masked_fill(~mask, 0) for x in at_least_float32(reward, value)]
    adv, run, nxt = torch.zeros_like(v), 0., 0.
    for b in reversed(range(len(v))):
        for i in reversed(range(v.shape[1])):
            if not mask[b, i]: continue
            run = r[b, i] + gamma * nxt - v[b, i] + gamma * lam * run
            adv[b, i], nxt = run, v[b, i]
    return adv, (adv + v) * mask

@wrong("γ|gamma|λ|lam|swap|exchang|order|discount")
def gae(reward, value, mask, gamma=1., lam=.95): return _gae(reward, value, mask, lam, gamma)

@wrong("power|square|twice|λ|lam|γ|gamma|decay|discount")
def gae(reward, value, mask, gamma=1., lam=.95):
    return _gae(reward, value, mask, gamma, lam, decay=(gamma * lam)**2)

@wrong("reward|last|score|every token|each token|only")
def gae(reward, value, mask, gamma=1., lam=.95):
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return _gae(torch.where(last, reward, 0.), value, mask, gamma, lam)

@two("direction|forward|λ|lam|backward|γ|gamma|order|time")
def gae(reward, value, mask, gamma=1., lam=.95):
    return _gae(reward, value, mask, gamma, lam, forward=True, decay=lam)

@two("return|γ|gamma|next value|a \\+ v|discount|second")
def gae(reward, value, mask, gamma=1., lam=.95):
    return _gae(reward, value, mask, gamma, lam, delta=lambda r, n, v: r + n - v, ret=lambda a, v, r: a)

# ppo_rewards
@right
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    return kl.token_rewards(score.detach(), kl.kl_penalty(logp, ref_logp, mask, beta), mask)

@right
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    s, = at_least_float32(score.detach())
    a, b = at_least_float32(logp.detach(), ref_logp.detach())
    out = torch.where(mask, beta * (b - a), 0.)
    for i in range(len(mask)):
        at = mask[i].nonzero()[:, 0]
        if len(at): out[i, at[-1]] += s[i]
    return out

def _pen(logp, ref_logp, mask, beta): return kl.kl_penalty(logp, ref_logp, mask, beta)

@wrong("sign|turned|order|swap|other way|ref|minus")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    return kl.token_rewards(score.detach(), _pen(ref_logp, logp, mask, beta), mask)

@wrong("gradient|detach|score|data")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    return kl.token_rewards(score, _pen(logp, ref_logp, mask, beta), mask)

@wrong("gradient|detach|data|penalty|log")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    return kl.token_rewards(score.detach(), torch.where(mask, -beta * (logp - ref_logp), 0.), mask)

@wrong("default|beta|β|\\.1|forgot|passed")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    return kl.token_rewards(score.detach(), _pen(logp, ref_logp, mask, .1), mask)

@wrong("every|each token|all|last|spread")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    return _pen(logp, ref_logp, mask, beta) + mask * score.detach()[:, None]

@wrong("penalty|missing|kl|term|beta|β")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    return kl.token_rewards(score.detach(), torch.zeros_like(logp), mask)

@wrong("score|missing|term|last")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1): return _pen(logp, ref_logp, mask, beta) + 0 * score.detach()[:, None]

@wrong("last column|pad|last response|right|column|t - 1")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    out = _pen(logp, ref_logp, mask, beta)
    out[:, -1] += score.detach()
    return out

@wrong("sign|minus|plus|penalty|negativ|twice")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    return kl.token_rewards(score.detach(), -_pen(logp, ref_logp, mask, beta), mask)

@wrong("first|last")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    first = mask & (mask.cumsum(1) == 1)
    return _pen(logp, ref_logp, mask, beta) + first * score.detach()[:, None]

@wrong("k3|k1|exp|estimator|d\\b")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    return kl.token_rewards(score.detach(), kl.kl_penalty(logp, ref_logp, mask, beta, kl.kl_k3), mask)

@wrong("sum|whole|last|each token|response|every token|per token")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    total = _pen(logp, ref_logp, mask, beta).sum(1)
    return kl.token_rewards(score.detach() + total, torch.zeros_like(logp), mask)

@wrong("replac|instead|penalty|overwr|last|lost|add|plus")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return torch.where(last, score.detach()[:, None].expand(mask.shape), _pen(logp, ref_logp, mask, beta))

@wrong("beta|β|score|both|times|factor|scale")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    return kl.token_rewards(beta * score.detach(), _pen(logp, ref_logp, mask, beta), mask)

@wrong("nan|mask|0 \\*|anything|times|pads")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    return kl.token_rewards(score.detach(), (-beta * (logp - ref_logp)).detach() * mask, mask)

@wrong("count|left|number of|place|prompt|sum|last")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    out = _pen(logp, ref_logp, mask, beta)
    out[torch.arange(len(out)), (mask.sum(1) - 1).clamp(min=0)] += score.detach() * mask.any(1)
    return out

# ppo_loss
@right
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    each = (ppo.clipped_policy_loss(logp, old_logp, advantage, cliprange)
            + vf_coef * ppo.clipped_value_loss(value, old_value, returns, cliprange_value))
    return each[mask].mean()

@right
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    keep = [at_least_float32(x)[0][mask] for x in (logp, old_logp, advantage, value, old_value, returns)]
    new, old, a, v, v_old, g = keep
    rho = (new - old).exp()
    policy = torch.max(-a * rho, -a * rho.clamp(1 - cliprange, 1 + cliprange)).mean()
    near = torch.min(torch.max(v, v_old - cliprange_value), v_old + cliprange_value)
    critic = .5 * torch.max((v - g)**2, (near - g)**2).mean()
    return policy + vf_coef * critic

def _pl(policy, critic, mask): return tokens.masked_mean(policy + critic, mask)

@wrong("value|missing|term|critic|vf_coef|c l")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return tokens.masked_mean(ppo.clipped_policy_loss(logp, old_logp, advantage, cliprange), mask)

@wrong("vf_coef|c\\b|weight|factor|value|coef")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return _pl(ppo.clipped_policy_loss(logp, old_logp, advantage, cliprange),
               ppo.clipped_value_loss(value, old_value, returns, cliprange_value), mask)

@wrong("mask|pads|prompt|all entries|every|counted")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return (ppo.clipped_policy_loss(logp, old_logp, advantage, cliprange)
            + vf_coef * ppo.clipped_value_loss(value, old_value, returns, cliprange_value)).mean()

@wrong("row|sequence|each response|token mean|same weight|whole batch")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    each = (ppo.clipped_policy_loss(logp, old_logp, advantage, cliprange)
            + vf_coef * ppo.clipped_value_loss(value, old_value, returns, cliprange_value)).masked_fill(~mask, 0)
    return (each.sum(1) / mask.sum(1).clamp(min=1)).mean()

@wrong("cliprange_value|clip range|cliprange|value|own|ε_v|range")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return _pl(ppo.clipped_policy_loss(logp, old_logp, advantage, cliprange),
               vf_coef * ppo.clipped_value_loss(value, old_value, returns, cliprange), mask)

@wrong("cliprange|clip range|own|passed|default|range|ε")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return _pl(ppo.clipped_policy_loss(logp, old_logp, advantage),
               vf_coef * ppo.clipped_value_loss(value, old_value, returns, cliprange_value), mask)

@wrong("swap|exchang|clip range|cliprange|own|turned|range")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return _pl(ppo.clipped_policy_loss(logp, old_logp, advantage, cliprange_value),
               vf_coef * ppo.clipped_value_loss(value, old_value, returns, cliprange), mask)

@wrong("sign|minus|value|negativ")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return _pl(ppo.clipped_policy_loss(logp, old_logp, advantage, cliprange),
               -vf_coef * ppo.clipped_value_loss(value, old_value, returns, cliprange_value), mask)

@wrong("sum|mean|number|divid|count")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    each = (ppo.clipped_policy_loss(logp, old_logp, advantage, cliprange)
            + vf_coef * ppo.clipped_value_loss(value, old_value, returns, cliprange_value))
    return each[mask].sum()

@wrong("clip|value|unclipped|max|old_value|old value")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return _pl(ppo.clipped_policy_loss(logp, old_logp, advantage, cliprange),
               vf_coef * (value - returns)**2 / 2 + 0 * old_value, mask)

@wrong("half|/ 2|factor|twice|2|\\.5|value")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return _pl(ppo.clipped_policy_loss(logp, old_logp, advantage, cliprange),
               2 * vf_coef * ppo.clipped_value_loss(value, old_value, returns, cliprange_value), mask)

@wrong("order|old|returns|swap|exchang|argument|turned|old_value")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return _pl(ppo.clipped_policy_loss(logp, old_logp, advantage, cliprange),
               vf_coef * ppo.clipped_value_loss(value, returns, old_value, cliprange_value), mask)

@wrong("nan|mask|0 \\*|times|multipl|anything")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    each = (ppo.clipped_policy_loss(logp, old_logp, advantage, cliprange)
            + vf_coef * ppo.clipped_value_loss(value, old_value, returns, cliprange_value))
    return (each * mask).sum() / mask.sum()

@wrong("gradient|detach|value|critic")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return _pl(ppo.clipped_policy_loss(logp, old_logp, advantage, cliprange),
               vf_coef * ppo.clipped_value_loss(value.detach(), old_value, returns, cliprange_value), mask)

@wrong("policy|weight|both|vf_coef|coef|1 -|factor|c\\b")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return _pl((1 - vf_coef) * ppo.clipped_policy_loss(logp, old_logp, advantage, cliprange),
               vf_coef * ppo.clipped_value_loss(value, old_value, returns, cliprange_value), mask)

@two("mask|pads|vf_coef|coef|all entries|factor|weight|every|c\\b")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return (ppo.clipped_policy_loss(logp, old_logp, advantage, cliprange)
            + ppo.clipped_value_loss(value, old_value, returns, cliprange_value)).mean()

# 09 grpo: leave_one_out
def _sums(reward, group, nan=True):
    "sum and number of the scored rewards of each row's group"
    scored = ~reward.isnan() if nan else torch.ones_like(reward, dtype=torch.bool)
    same = (group[:, None] == group) & scored
    return (same * reward.nan_to_num(0.)).sum(1), same.sum(1).to(reward)

@right
def leave_one_out(reward, group):
    out = torch.zeros_like(reward)
    for i in range(len(reward)):
        if reward[i].isnan(): continue
        others = [j for j in range(len(reward)) if j != i and group[j] == group[i] and not reward[j].isnan()]
        if others: out[i] = reward[i] - reward[others].mean()
    return out

@right
def leave_one_out(reward, group):
    total, n = _sums(reward, group)
    a = (reward * n - total) / (n - 1)
    return torch.where(reward.isnan() | (n < 2), torch.zeros_like(a), a)

@right
def leave_one_out(reward, group):
    a = grpo.group_centered(reward, group)
    _, n = _sums(reward, group)
    return a * torch.where(n > 1, n / (n - 1).clamp(min=1), 0.)

@wrong("own|itself|leave|others|whole group|n - 1|dr. grpo|included|g - 1")
def leave_one_out(reward, group):
    total, n = _sums(reward, group)
    return (reward - total / n).nan_to_num(0.)

@wrong("n - 1|others|divid|number|g - 1|count")
def leave_one_out(reward, group):
    total, n = _sums(reward, group)
    return torch.where(n > 1, reward - (total - reward) / n, 0.).nan_to_num(0.)

@wrong("sign|minus|negativ|turned")
def leave_one_out(reward, group):
    total, n = _sums(reward, group)
    return ((total - reward) / (n - 1) - reward).nan_to_num(0., 0., 0.)

@wrong("batch|group|all rows|prompt")
def leave_one_out(reward, group):
    n, total = (~reward.isnan()).sum(), reward.nansum()
    return (reward - (total - reward) / (n - 1)).nan_to_num(0., 0., 0.)

@wrong("nan|not scored|counted|nobody scored")
def leave_one_out(reward, group):
    total, n = _sums(reward, group, nan=False)
    a = (reward - (total - reward) / (n - 1)).nan_to_num(0., 0., 0.)
    return a

@wrong("nan|not scored|0 as|counted|as 0|nobody scored")
def leave_one_out(reward, group):
    reward = reward.nan_to_num(0.)
    total, n = _sums(reward, group)
    return (reward - (total - reward) / (n - 1)).nan_to_num(0., 0., 0.)

@wrong("nan|inf|alone|single|one answer|divi|0")
def leave_one_out(reward, group):
    total, n = _sums(reward, group)
    return torch.where(reward.isnan(), 0., reward - (total - reward) / (n - 1))

@wrong("alone|single|one answer|its own reward|baseline of 0|n - 1")
def leave_one_out(reward, group):
    total, n = _sums(reward, group)
    return (reward - (total - reward) / (n - 1).clamp(min=1)).nan_to_num(0.)

@wrong("std|standard|normali|divid|deviation|spread")
def leave_one_out(reward, group):
    total, n = _sums(reward, group)
    a = (reward - (total - reward) / (n - 1)).nan_to_num(0., 0., 0.)
    return a / (a.std() + 1e-4)

@wrong("neighbour|consecut|stand together|order|group|next to|view|adjacent|apart")
def leave_one_out(reward, group):
    k = int((group == group[0]).sum())
    if len(reward) % k: raise RuntimeError(f"shape [{-1}, {k}] is invalid for input of size {len(reward)}")
    r = reward.view(-1, k)
    return (r - (r.sum(1, keepdim=True) - r) / (k - 1)).flatten().nan_to_num(0., 0., 0.)

@wrong("baseline|minus|reward|own|mean of|r_i|missing|subtract|difference")
def leave_one_out(reward, group):
    total, n = _sums(reward, group)
    return ((total - reward) / (n - 1)).nan_to_num(0., 0., 0.)

@wrong("nan|whole group|all|others|skips|not scored|left out|zero")
def leave_one_out(reward, group):
    same = group[:, None] == group
    total, n = (same * reward).sum(1), same.sum(1)
    return (reward - (total - reward) / (n - 1)).nan_to_num(0., 0., 0.)

@wrong("sum|mean|divid|number of others|n - 1|count")
def leave_one_out(reward, group):
    total, n = _sums(reward, group)
    return torch.where(n > 1, reward - (total - reward), 0.).nan_to_num(0.)

@wrong("previous|before|earlier|later|others|all others|index|order|only")
def leave_one_out(reward, group):
    out = torch.zeros_like(reward)
    for i in range(len(reward)):
        if reward[i].isnan(): continue
        others = [j for j in range(i) if group[j] == group[i] and not reward[j].isnan()]
        if others: out[i] = reward[i] - reward[others].mean()
    return out

@two("group|batch|own|itself|whole|n - 1|others")
def leave_one_out(reward, group): return (reward - reward.nanmean()).nan_to_num(0.)

# group_normalised
def _gn(reward, group, ddof=1, eps=1e-4, center=True, put=None, var=False):
    total, n = _sums(reward, group)
    off = reward - total / n
    square, _ = _sums(off**2, group)
    var_ = square / (n - ddof)
    std = var_ if var else var_.sqrt()
    scale = put(std) if put else std + eps
    return ((off if center else reward) / scale).nan_to_num(0., 0., 0.)

@right
def group_normalised(reward, group):
    out = torch.zeros_like(reward)
    for g in group.unique():
        rows = (group == g) & ~reward.isnan()
        if rows.sum() < 2: continue
        r = reward[rows]
        out[rows] = (r - r.mean()) / (r.std() + 1e-4)
    return out

@right
def group_normalised(reward, group):
    off = grpo.group_centered(reward, group)
    same = (group[:, None] == group) & ~reward.isnan() & ~reward.isnan()[:, None]
    n = same.sum(1)
    var = (same * off[None]**2).sum(1) / (n - 1).clamp(min=1)
    return torch.where(n > 1, off / (var.sqrt() + 1e-4), 0.)

@wrong("n - 1|n\\b|g - 1|unbiased|correction|bessel|population")
def group_normalised(reward, group): return _gn(reward, group, ddof=0)

@wrong("1e-4|epsilon|eps|equal|added|10")
def group_normalised(reward, group): return _gn(reward, group, eps=0.)

@wrong("1e-4|epsilon|eps|1e-8|added|10|too small")
def group_normalised(reward, group): return _gn(reward, group, eps=1e-8)

@wrong("inside|root|under|1e-4|epsilon|eps|sqrt|added|variance")
def group_normalised(reward, group):
    return _gn(reward, group, put=lambda s: (s**2 + 1e-4).sqrt())

@wrong("variance|root|sqrt|standard|square")
def group_normalised(reward, group): return _gn(reward, group, var=True)

@wrong("mean|cent|subtract|minus")
def group_normalised(reward, group): return _gn(reward, group, center=False)

@wrong("std|standard|divid|deviation|dr. grpo")
def group_normalised(reward, group): return grpo.group_centered(reward, group)

@wrong("batch|group|all rows|each group|own")
def group_normalised(reward, group):
    off = grpo.group_centered(reward, group)
    return (off / (reward[~reward.isnan()].std() + 1e-4)).nan_to_num(0.)

@wrong("batch|group|all rows|prompt|mean")
def group_normalised(reward, group):
    r = reward[~reward.isnan()]
    return ((reward - r.mean()) / (r.std() + 1e-4)).nan_to_num(0.)

@wrong("nan|not scored|counted|as 0|nobody scored")
def group_normalised(reward, group): return _gn(reward.nan_to_num(0.), group)

@wrong("nan|single|alone|one answer|0")
def group_normalised(reward, group):
    out = torch.zeros_like(reward)
    for g in group.unique():
        rows = (group == g) & ~reward.isnan()
        out[rows] = (reward[rows] - reward[rows].mean()) / (reward[rows].std() + 1e-4)
    return out

@wrong("sign|minus|negativ|turned")
def group_normalised(reward, group): return -_gn(reward, group)

@wrong("cut off|clip|clamp|limit|bound|range")
def group_normalised(reward, group): return _gn(reward, group).clamp(-1, 1)

@wrong("max|range|1e-4|clamp|epsilon|eps|std|added|instead")
def group_normalised(reward, group): return _gn(reward, group, put=lambda s: s.clamp(min=1e-4))

@wrong("abs|mean absolute|deviation|square|root|std|standard")
def group_normalised(reward, group):
    total, n = _sums(reward, group)
    off = reward - total / n
    dev = _sums(off.abs(), group)[0] / n
    return (off / (dev + 1e-4)).nan_to_num(0., 0., 0.)

@wrong("nan|count|n\\b|not scored|number|group size")
def group_normalised(reward, group):
    total, _ = _sums(reward, group)
    n = (group[:, None] == group).sum(1)
    off = reward - total / n
    std = (_sums(off**2, group)[0] / (n - 1)).sqrt()
    return (off / (std + 1e-4)).nan_to_num(0., 0., 0.)

@two("n - 1|n\\b|1e-4|epsilon|eps|population|added")
def group_normalised(reward, group): return _gn(reward, group, ddof=0, eps=1e-8)

# loss_weights
@right
def loss_weights(mask, loss_type, max_length):
    if loss_type == "dapo": return mask / mask.sum().clamp(min=1)
    if loss_type == "grpo": return mask / mask.sum(1, keepdim=True).clamp(min=1) / len(mask)
    if loss_type == "dr_grpo": return mask / (max_length * len(mask))
    raise ValueError(f"unknown loss_type {loss_type!r}")

@right
def loss_weights(mask, loss_type, max_length):
    m = mask.float()
    n = torch.tensor([max(int(row.sum()), 1) for row in mask])
    table = dict(dapo=m / max(int(mask.sum()), 1), grpo=m / n[:, None] / m.shape[0], dr_grpo=m / max_length / m.shape[0])
    if loss_type not in table: raise ValueError(loss_type)
    return table[loss_type]

def _lw(mask, loss_type, max_length, dapo=None, grpo=None, dr=None, other=None):
    m = mask.float()
    if loss_type == "dapo": return (dapo or (lambda m: m / m.sum().clamp(min=1)))(m)
    if loss_type == "grpo": return (grpo or (lambda m: m / m.sum(1, keepdim=True).clamp(min=1) / len(m)))(m)
    if loss_type == "dr_grpo": return (dr or (lambda m: m / max_length / len(m)))(m)
    if other: return other(m)
    raise ValueError(loss_type)

@wrong("answers|rows|number of|batch|divid|b\\b|responses")
def loss_weights(mask, loss_type, max_length):
    return _lw(mask, loss_type, max_length, grpo=lambda m: m / m.sum(1, keepdim=True).clamp(min=1))

@wrong("nan|empty|without a token|0/0|clamp|no token")
def loss_weights(mask, loss_type, max_length):
    return _lw(mask, loss_type, max_length, grpo=lambda m: m / m.sum(1, keepdim=True) / len(m))

@wrong("answers|rows|number of|batch|divid|b\\b|responses")
def loss_weights(mask, loss_type, max_length):
    return _lw(mask, loss_type, max_length, dr=lambda m: m / max_length)

@wrong("width|columns|t\\b|max_length|constant|l\\b|longest")
def loss_weights(mask, loss_type, max_length):
    return _lw(mask, loss_type, max_length, dr=lambda m: m / m.shape[1] / len(m))

@wrong("swap|exchang|dapo|grpo|turned|names")
def loss_weights(mask, loss_type, max_length):
    return _lw(mask, {"dapo": "grpo", "grpo": "dapo"}.get(loss_type, loss_type), max_length)

@wrong("all tokens|pads|numel|true|number of tokens|masked|entries|count|every")
def loss_weights(mask, loss_type, max_length):
    return _lw(mask, loss_type, max_length, dapo=lambda m: m / m.numel())

@wrong("valueerror|raise|another word|error|refuse|unknown")
def loss_weights(mask, loss_type, max_length):
    return _lw(mask, loss_type, max_length, other=lambda m: m / max_length / len(m))

@wrong("mask|0 where|masked|pads")
def loss_weights(mask, loss_type, max_length):
    return _lw(mask, loss_type, max_length, grpo=lambda m: torch.ones_like(m) / m.sum(1, keepdim=True).clamp(min=1) / len(m))

@wrong("axis|column|row|each answer|dim|own tokens|keepdim")
def loss_weights(mask, loss_type, max_length):
    return _lw(mask, loss_type, max_length, grpo=lambda m: m / m.sum(0, keepdim=True).clamp(min=1) / len(m))

@wrong("longest|max|own|n\\b|each answer|its tokens|length|constant")
def loss_weights(mask, loss_type, max_length):
    return _lw(mask, loss_type, max_length, grpo=lambda m: m / m.sum(1).max().clamp(min=1) / len(m))

@wrong("answers|rows|dapo|twice|number of|divid|batch|b\\b")
def loss_weights(mask, loss_type, max_length):
    return _lw(mask, loss_type, max_length, dapo=lambda m: m / m.sum().clamp(min=1) / len(m))

@wrong("valueerror|raise|keyerror|another word|error")
def loss_weights(mask, loss_type, max_length):
    return {k: _lw(mask, k, max_length) for k in ("dapo", "grpo", "dr_grpo")}[loss_type]

@wrong("empty|rows|answers|without|number of|counted|b\\b")
def loss_weights(mask, loss_type, max_length):
    n = mask.any(1).sum().clamp(min=1)
    return _lw(mask, loss_type, max_length, grpo=lambda m: m / m.sum(1, keepdim=True).clamp(min=1) / n)

@wrong("shape|row|each token|b\\b|keepdim|t\\b")
def loss_weights(mask, loss_type, max_length):
    return _lw(mask, loss_type, max_length, grpo=lambda m: 1 / m.sum(1).clamp(min=1) / len(m))

@wrong("nan|empty|masked|no token|0/0|clamp|without")
def loss_weights(mask, loss_type, max_length):
    return _lw(mask, loss_type, max_length, dapo=lambda m: m / m.sum())

@two("answers|rows|width|max_length|constant|number of|columns|l\\b|divid")
def loss_weights(mask, loss_type, max_length):
    return _lw(mask, loss_type, max_length, dr=lambda m: m / m.shape[1])

# cispo_loss
@right
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    with torch.no_grad(): w = torch.clamp(ratio, 1 - epsilon, 1 + epsilon_high)
    return -w * advantage * torch.log(ratio)

@right
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    r = ratio.detach()
    w = torch.where(r < 1 - epsilon, 1 - epsilon, torch.where(r > 1 + epsilon_high, 1 + epsilon_high, r))
    return advantage * ratio.log() * -w

@wrong("detach|gradient|sg")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    return -ratio.clamp(1 - epsilon, 1 + epsilon_high) * advantage * ratio.log()

@wrong("log|ρ")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    return -ratio.clamp(1 - epsilon, 1 + epsilon_high).detach() * advantage * ratio

@wrong("log|missing|term|gradient|clip")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    return -ratio.clamp(1 - epsilon, 1 + epsilon_high) * advantage

@wrong("sign|minus|negativ")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    return ratio.clamp(1 - epsilon, 1 + epsilon_high).detach() * advantage * ratio.log()

@wrong("clip|weight|clamp")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2): return -ratio.detach() * advantage * ratio.log()

@wrong("epsilon_high|ε_high|high|upper|own end|epsilon|ends")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    return -ratio.clamp(1 - epsilon, 1 + epsilon).detach() * advantage * ratio.log()

@wrong("ppo|min|detach|weight|clipped loss|log|clipped")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    c = ratio.clamp(1 - epsilon, 1 + epsilon_high)
    return -torch.minimum(ratio * advantage, c * advantage)

@wrong("detach|gradient|log|inside|all|nothing|no gradient")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    return -(ratio.clamp(1 - epsilon, 1 + epsilon_high) * ratio.log()).detach() * advantage + 0 * ratio

@wrong("log|clip|ρ|unclipped|gradient|beyond")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    w = ratio.clamp(1 - epsilon, 1 + epsilon_high)
    return -w.detach() * advantage * w.log()

@wrong("lower|min|below|1 -|upper only|one side|at least|no effect")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    return -ratio.clamp(max=1 + epsilon_high).detach() * advantage * ratio.log()

@wrong("clip|weight|missing|factor|forgot")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2): return -advantage * ratio.log() + 0 * ratio

@wrong("mean|shape|each token|per token|one number")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    return (-ratio.clamp(1 - epsilon, 1 + epsilon_high).detach() * advantage * ratio.log()).mean()

@wrong("swap|exchang|epsilon|ends|turned|high|lower|upper")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    return -ratio.clamp(1 - epsilon_high, 1 + epsilon).detach() * advantage * ratio.log()

@wrong("advantage|sign|abs|min|max|pessimis|weight|only|negative")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    w = torch.where(advantage > 0, ratio.clamp(max=1 + epsilon_high), ratio.clamp(min=1 - epsilon)).detach()
    return -w * advantage * ratio.log()

@wrong("clip|1 \\+|range|weight|around|-ε|log")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    return -ratio.log().clamp(-epsilon, epsilon_high).exp().detach() * advantage * ratio.log()

@two("detach|gradient|sign|minus|sg")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    return ratio.clamp(1 - epsilon, 1 + epsilon_high) * advantage * ratio.log()

# fixed_groups
@right
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return (r - (r.sum(1, keepdim=True) - r) / (k - 1)).flatten()

@right
def fixed_groups(reward, k):
    out = []
    for i in range(0, len(reward), k):
        g = reward[i:i + k]
        out += [g[j] - torch.cat([g[:j], g[j + 1:]]).mean() for j in range(k)]
    return torch.stack(out)

@wrong("group|prompt|column|view|axis|row|different")
def fixed_groups(reward, k):
    r = reward.view(k, -1)
    return (r - (r.sum(0) - r) / (k - 1)).flatten()

@wrong("axis|column|sum\\(0|other prompt|prompt|different")
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return (r - (r.sum(0) - r) / max(len(r) - 1, 1)).flatten()

@wrong("n - 1|k - 1|own|itself|others|whole|mean of")
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return (r - r.mean(1, keepdim=True)).flatten()

@wrong("k - 1|divid|number of others|k\\b|others")
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return (r - (r.sum(1, keepdim=True) - r) / k).flatten()

@wrong("shape|flat|row|one row|\\(b\\)|p k")
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return r - (r.sum(1, keepdim=True) - r) / (k - 1)

@wrong("sign|minus|turned|negativ")
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return ((r.sum(1, keepdim=True) - r) / (k - 1) - r).flatten()

@wrong("columns|order|transpos|flat|permut|interleav|k answers|place")
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return (r - (r.sum(1, keepdim=True) - r) / (k - 1)).T.flatten()

@wrong("broadcast|axis|keepdim|row|prompt|shape|size")
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return (r - (r.sum(1) - r) / (k - 1)).flatten()

@wrong("itself|own|minus|sum of the others|others|- r|includ")
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return (r - r.sum(1, keepdim=True) / (k - 1)).flatten()

@wrong("std|standard|normali|divid|deviation")
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return ((r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-4)).flatten()

@wrong("batch|all|prompt|group|whole")
def fixed_groups(reward, k): return reward - (reward.sum() - reward) / (len(reward) - 1)

@wrong("interleav|stride|every k|group|prompt|consecut|view|order|different")
def fixed_groups(reward, k):
    p = len(reward) // k
    r = reward.view(k, p).T
    return (r - (r.sum(1, keepdim=True) - r) / (k - 1)).T.flatten()

@wrong("in place|changed|changes|argument|input|overwr|writes")
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    r -= (r.sum(1, keepdim=True) - r) / (k - 1)
    return reward

@wrong("sum|mean|divid|k - 1")
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return (r - (r.sum(1, keepdim=True) - r)).flatten()

# 10 dpo: sequence_logprobs
# dpo_loss
@right
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    if not beta > 0: raise ValueError("beta")
    return softplus(-beta * dpo.log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected))

@right
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    if beta <= 0: raise ValueError("beta must be above 0")
    pc, pr, rc, rr = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    both = torch.stack([beta * (pc - rc), beta * (pr - rr)], -1)
    return -both.log_softmax(-1)[..., 0]

def _dpo(pc, pr, rc, rr, beta, check=True):
    if check and not beta > 0: raise ValueError("beta must be above 0")
    return at_least_float32(pc, pr, rc, rr)

@wrong("sign|turned|rejected|swap|other way|order|exchang")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    return -logsigmoid(-beta * ((a - c) - (b - d)))

@wrong("sign|minus|negativ")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    return logsigmoid(beta * ((a - c) - (b - d)))

@wrong("ref")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    return -logsigmoid(beta * (a - b)) + 0 * (c + d)

@wrong("beta|β")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    return -logsigmoid((a - c) - (b - d))

@wrong("beta|β|divid|multipl")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    return -logsigmoid(((a - c) - (b - d)) / beta)

@wrong("beta|β|outside|inside|front|factor")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    return -beta * logsigmoid((a - c) - (b - d))

@wrong("inf|overflow|-300|logsigmoid|log of 0|underflow|large")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    return -torch.sigmoid(beta * ((a - c) - (b - d))).log()

@wrong("valueerror|raise|beta|above 0|refuse")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta, check=False)
    return -logsigmoid(beta * ((a - c) - (b - d)))

@wrong("valueerror|raise|0|above|refuse")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    if beta < 0: raise ValueError("beta")
    a, b, c, d = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return -logsigmoid(beta * ((a - c) - (b - d)))

@wrong("mean|shape|each pair|per pair|one number")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    return -logsigmoid(beta * ((a - c) - (b - d))).mean()

@wrong("ref|sign|plus|minus|ref_rejected|bracket|parenthes")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    return -logsigmoid(beta * (a - c - b - d))

@wrong("ref|swap|exchang|crossed|turned|order|sign")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    return -logsigmoid(beta * ((a - d) - (b - c)))

@wrong("ipo|square|sigmoid|log|sigmoid")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    return ((a - c) - (b - d) - 1 / (2 * beta))**2

@wrong("log|sigmoid|1 -|weight of the gradient")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    return 1 - torch.sigmoid(beta * ((a - c) - (b - d)))

@wrong("gradient|detach|rejected")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    return -logsigmoid(beta * ((a - c) - (b.detach() - d)))

@wrong("float32|bf16|bfloat16|dtype|precision|type")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    if not beta > 0: raise ValueError("beta")
    return -logsigmoid(beta * ((policy_chosen - ref_chosen) - (policy_rejected - ref_rejected)))

@wrong("hinge|log|sigmoid|relu|0 where|smooth")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    return torch.relu(1 - beta * ((a - c) - (b - d)))

@wrong("default|beta|β|\\.1|\\.5")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.5):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    return -logsigmoid(beta * ((a - c) - (b - d)))

@wrong("exp|ratio|log")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    return -logsigmoid(beta * ((a - c).exp() - (b - d).exp()))

@wrong("smooth|label|rejected|mix|second|term|0\\.1")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    x = beta * ((a - c) - (b - d))
    return -.9 * logsigmoid(x) - .1 * logsigmoid(-x)

@two("ref|beta|β")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    a, b, c, d = _dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta)
    return -logsigmoid(a - b) + 0 * (c + d)

# 12 doctor: kl_is_negative
@right
def kl_is_negative(kl):
    return bool(kl.mean() + 2 * kl.std() / len(kl)**.5 < 0)

@right
def kl_is_negative(kl):
    x = kl.double().numpy()
    return bool(x.mean() < -2 * np.sqrt(x.var(ddof=1) / x.size))

@wrong("root|sqrt|standard error|square root|n\\b|deviation")
def kl_is_negative(kl): return bool(kl.mean() < -2 * kl.std())

@wrong("two|2|one standard error|twice|factor")
def kl_is_negative(kl): return bool(kl.mean() < -kl.std() / len(kl)**.5)

@wrong("error|noise|standard|two")
def kl_is_negative(kl): return bool(kl.mean() < 0)

@wrong("sign|above|positive|turned|below|negativ|other way")
def kl_is_negative(kl): return bool(kl.mean() > 2 * kl.std() / len(kl)**.5)

@wrong("n - 1|correction|unbiased|population|ddof|torch.std|divid")
def kl_is_negative(kl): return bool(kl.mean() < -2 * kl.std(correction=0) / len(kl)**.5)

@wrong("root|sqrt|square root|n\\b|divid")
def kl_is_negative(kl): return bool(kl.mean() < -2 * kl.std() / len(kl))

@wrong("any|one value|mean|some|min|single")
def kl_is_negative(kl): return bool((kl < -2 * kl.std() / len(kl)**.5).any())

@wrong("abs|sign|above|positive|either side|below|absolute|differs")
def kl_is_negative(kl): return bool(kl.mean().abs() > 2 * kl.std() / len(kl)**.5)

@wrong("variance|root|sqrt|std|standard deviation|square")
def kl_is_negative(kl): return bool(kl.mean() < -2 * kl.var() / len(kl)**.5)

@wrong("sum|mean|divid")
def kl_is_negative(kl): return bool(kl.sum() < -2 * kl.std() / len(kl)**.5)

@wrong("median|mean")
def kl_is_negative(kl): return bool(kl.median() < -2 * kl.std() / len(kl)**.5)

@wrong("sign|plus|minus|below|upper|wrong side|positive|other way|turned|above|always|too early|alarm|added to the mean")
def kl_is_negative(kl): return bool(kl.mean() - 2 * kl.std() / len(kl)**.5 < 0)

@wrong("three|3|two|2|factor|twice")
def kl_is_negative(kl): return bool(kl.mean() < -3 * kl.std() / len(kl)**.5)

@wrong("n - 1|root|divid|sqrt|n\\b|number")
def kl_is_negative(kl): return bool(kl.mean() < -2 * kl.std() / (len(kl) - 1)**.5)

@two("root|two|2|standard error|sqrt|n\\b|factor")
def kl_is_negative(kl): return bool(kl.mean() < -kl.std())

# flat_while_moving
@right
def flat_while_moving(reward, kl, nats, gain):
    h = len(kl) // 2
    def up(x): return (x[h:].mean() - x[:h].mean()).item()
    return up(kl) > nats and up(reward) < gain

@right
def flat_while_moving(reward, kl, nats, gain):
    n = len(reward)
    first = torch.arange(n) < n // 2
    moved = kl[~first].sum() / (n - n // 2) - kl[first].sum() / (n // 2)
    won = reward[~first].sum() / (n - n // 2) - reward[first].sum() / (n // 2)
    return bool((moved > nats) & (won < gain))

def _fw(reward, kl, nats, gain, up=None, up_r=None, join=None):
    def grown(x):
        h = len(x) // 2
        return x[h:].mean() - x[:h].mean()
    a, b = (up or grown)(kl) > nats, (up_r or up or grown)(reward) < gain
    return bool(join(a, b) if join else a & b)

@wrong("or|both|and")
def flat_while_moving(reward, kl, nats, gain): return _fw(reward, kl, nats, gain, join=lambda a, b: a | b)

@wrong("middle|odd|second half|half")
def flat_while_moving(reward, kl, nats, gain):
    h = (len(kl) + 1) // 2
    return _fw(reward, kl, nats, gain, up=lambda x: x[h:].mean() - x[:h].mean())

@wrong("level|growth|grew|first half|difference|minus")
def flat_while_moving(reward, kl, nats, gain):
    return _fw(reward, kl, nats, gain, up=lambda x: x[len(x) // 2:].mean(),
               up_r=lambda x: x[len(x) // 2:].mean() - x[:len(x) // 2].mean())

@wrong("last|first|mean|half|ends|one value|noise|single")
def flat_while_moving(reward, kl, nats, gain): return _fw(reward, kl, nats, gain, up=lambda x: x[-1] - x[0])

@wrong("sign|turned|order|first|second|minus|fell|other way|direction")
def flat_while_moving(reward, kl, nats, gain):
    return _fw(reward, kl, nats, gain, up=lambda x: x[:len(x) // 2].mean() - x[len(x) // 2:].mean())

@wrong("abs|absolute|fell|falls|sign|drop|less")
def flat_while_moving(reward, kl, nats, gain):
    return _fw(reward, kl, nats, gain,
               up_r=lambda x: (x[len(x) // 2:].mean() - x[:len(x) // 2].mean()).abs())

@wrong("reward|kl|swap|exchang|turned|argument")
def flat_while_moving(reward, kl, nats, gain): return _fw(kl, reward, nats, gain)

@wrong("nats|gain|swap|exchang|threshold")
def flat_while_moving(reward, kl, nats, gain): return _fw(reward, kl, gain, nats)

@wrong("reward|gain|missing|forgot|both|second condition|only kl")
def flat_while_moving(reward, kl, nats, gain): return _fw(reward, kl, nats, gain, join=lambda a, b: a)

@wrong("kl|nats|missing|forgot|both|only the reward")
def flat_while_moving(reward, kl, nats, gain): return _fw(reward, kl, nats, gain, join=lambda a, b: b)

@wrong("sum|mean|divid")
def flat_while_moving(reward, kl, nats, gain):
    return _fw(reward, kl, nats, gain, up=lambda x: x[len(x) // 2:].sum() - x[:len(x) // 2].sum())

@wrong("abs|absolute|sign|fell|grew|shrink|drop|growth")
def flat_while_moving(reward, kl, nats, gain):
    h = len(kl) // 2
    return bool((kl[h:].mean() - kl[:h].mean()).abs() > nats and reward[h:].mean() - reward[:h].mean() < gain)

@wrong("level|growth|grew|first half|difference|minus|reward")
def flat_while_moving(reward, kl, nats, gain):
    return _fw(reward, kl, nats, gain, up=lambda x: x[len(x) // 2:].mean() - x[:len(x) // 2].mean(),
               up_r=lambda x: x[len(x) // 2:].mean())

@wrong("middle|odd|left out|dropped|second half|skip")
def flat_while_moving(reward, kl, nats, gain):
    h, k = len(kl) // 2, (len(kl) + 1) // 2
    return _fw(reward, kl, nats, gain, up=lambda x: x[k:].mean() - x[:h].mean())

@wrong("sign|<|>|more|less|turned|reward|gain|compar")
def flat_while_moving(reward, kl, nats, gain):
    return _fw(reward, kl, nats, gain, join=lambda a, b: a & ~b)

@wrong("median|mean")
def flat_while_moving(reward, kl, nats, gain):
    return _fw(reward, kl, nats, gain, up=lambda x: x[len(x) // 2:].median() - x[:len(x) // 2].median())

@two("or|middle|odd|both|and|half")
def flat_while_moving(reward, kl, nats, gain):
    h = (len(kl) + 1) // 2
    return _fw(reward, kl, nats, gain, up=lambda x: x[h:].mean() - x[:h].mean(), join=lambda a, b: a | b)

# 13 judge: judge_messages
@right
def judge_messages(tokenizer, prompt, answers):
    return [prompt.render(*(escape_special_tokens(tokenizer, text) for text in texts)) for texts in answers]

@right
def judge_messages(tokenizer, prompt, answers):
    out = []
    for texts in answers:
        safe = []
        for text in texts: safe.append(escape_special_tokens(tokenizer, text))
        out.append(prompt.render(*safe))
    return out

@wrong("escape|special")
def judge_messages(tokenizer, prompt, answers): return [prompt.render(*texts) for texts in answers]

@wrong("question|prompt|escape|every|first text|each|both")
def judge_messages(tokenizer, prompt, answers):
    return [prompt.render(texts[0], *[escape_special_tokens(tokenizer, t) for t in texts[1:]]) for texts in answers]

@wrong("template|after|before|whole message|escape|first|own special|rendered")
def judge_messages(tokenizer, prompt, answers):
    return [escape_special_tokens(tokenizer, prompt.render(*texts)) for texts in answers]

@wrong("three|second|pairwise|pair|apart|all texts|answers|two|argument")
def judge_messages(tokenizer, prompt, answers):
    return [prompt.render(escape_special_tokens(tokenizer, t[0]), escape_special_tokens(tokenizer, t[1])) for t in answers]

@wrong("order|swap|question|turned|exchang|revers|response")
def judge_messages(tokenizer, prompt, answers):
    return [prompt.render(*[escape_special_tokens(tokenizer, t) for t in texts[::-1]]) for texts in answers]

@wrong("list|first|every|all|one message|answers|only")
def judge_messages(tokenizer, prompt, answers):
    return [prompt.render(*[escape_special_tokens(tokenizer, t) for t in texts]) for texts in answers[:1]]

@wrong("delet|remov|strip|<unk>|escape|lost|replace")
def judge_messages(tokenizer, prompt, answers):
    def clean(t):
        for s in sorted(tokenizer.all_special_tokens, key=len, reverse=True): t = t.replace(s, "")
        return t
    return [prompt.render(*[clean(t) for t in texts]) for texts in answers]

@wrong("eos|special|every|other|<\\|assistant|all|escape|only")
def judge_messages(tokenizer, prompt, answers):
    return [prompt.render(*[t.replace(tokenizer.eos_token, tokenizer.unk_token or "<unk>") for t in texts])
            for texts in answers]

@wrong("list|one text|join|messages|string|type|str")
def judge_messages(tokenizer, prompt, answers):
    return "\n".join(prompt.render(*[escape_special_tokens(tokenizer, t) for t in texts]) for texts in answers)

@wrong("twice|template|whole message|special|own|after|rendered|again")
def judge_messages(tokenizer, prompt, answers):
    return [escape_special_tokens(tokenizer, prompt.render(*[escape_special_tokens(tokenizer, t) for t in texts]))
            for texts in answers]

@wrong("strip|white|space|chang|text|trim")
def judge_messages(tokenizer, prompt, answers):
    return [prompt.render(*[escape_special_tokens(tokenizer, t).strip() for t in texts]) for texts in answers]

@wrong("ids|token|text|messages|encode|type|str|list")
def judge_messages(tokenizer, prompt, answers):
    return [tokenizer(prompt.render(*[escape_special_tokens(tokenizer, t) for t in texts])).input_ids
            for texts in answers]

@wrong("lower|case|chang|text")
def judge_messages(tokenizer, prompt, answers):
    return [prompt.render(*[escape_special_tokens(tokenizer, t.lower()) for t in texts]) for texts in answers]

@wrong("template|render|jinja|pairwise|prompt|message|missing")
def judge_messages(tokenizer, prompt, answers):
    return [" ".join(escape_special_tokens(tokenizer, t) for t in texts) for texts in answers]

# parse_score
@right
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    places = list(score_regex(pattern, high).finditer(text))
    if not places: return None
    number = places[-1 if last else 0][1]
    if number is None or not low <= float(number) <= high: return None
    return float(number)

@right
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    found = None
    for match in score_regex(pattern, high).finditer(text):
        found = match
        if not last: break
    try: value = float(found[1])
    except TypeError: return None
    return value if low <= value <= high else None

@wrong("last|first")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    match = score_regex(pattern, high).search(text)
    if not match or match[1] is None: return None
    return float(match[1]) if low <= float(match[1]) <= high else None

@wrong("place|without a|good number|none|empty|ends in|skips|last")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    found = [m[1] for m in score_regex(pattern, high).finditer(text) if m[1] is not None]
    if not found: return None
    x = float(found[-1 if last else 0])
    return x if low <= x <= high else None

@wrong("range|outside|low|high|45|place|skips|last")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    found = [float(m[1]) for m in score_regex(pattern, high).finditer(text) if m[1] is not None]
    found = [x for x in found if low <= x <= high]
    return found[-1 if last else 0] if found else None

@wrong("range|outside|low|high|45")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    places = list(score_regex(pattern, high).finditer(text))
    if not places or places[-1 if last else 0][1] is None: return None
    return float(places[-1 if last else 0][1])

@wrong("clamp|range|outside|none|clip|low|high")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    places = list(score_regex(pattern, high).finditer(text))
    if not places or places[-1 if last else 0][1] is None: return None
    return min(max(float(places[-1 if last else 0][1]), low), high)

@wrong("\\b0\\b|zero|false|if number|falsy")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    places = list(score_regex(pattern, high).finditer(text))
    if not places or not places[-1 if last else 0][1]: return None
    x = float(places[-1 if last else 0][1])
    return x if x and low <= x <= high else None

@wrong("none|no place|empty|index|no score|without|list")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    number = list(score_regex(pattern, high).finditer(text))[-1 if last else 0][1]
    if number is None or not low <= float(number) <= high: return None
    return float(number)

@wrong("none|no good number|float\\(none|without a|typeerror|empty|number")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    places = list(score_regex(pattern, high).finditer(text))
    if not places: return None
    x = float(places[-1 if last else 0][1])
    return x if low <= x <= high else None

@wrong("edge|high|low|inclus|<=|limit|boundary|5|range|equal|itself")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    places = list(score_regex(pattern, high).finditer(text))
    if not places or places[-1 if last else 0][1] is None: return None
    x = float(places[-1 if last else 0][1])
    return x if low <= x < high else None

@wrong("low\\b|below|negativ|range|lower|minimum")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    places = list(score_regex(pattern, high).finditer(text))
    if not places or places[-1 if last else 0][1] is None: return None
    x = float(places[-1 if last else 0][1])
    return x if x <= high else None

@wrong("last|first|turned|other way|order")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    places = list(score_regex(pattern, high).finditer(text))
    if not places or places[0 if last else -1][1] is None: return None
    x = float(places[0 if last else -1][1])
    return x if low <= x <= high else None

@wrong("int|whole|decimal|fraction|float|round|point|half")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    places = list(score_regex(pattern, high).finditer(text))
    if not places or places[-1 if last else 0][1] is None: return None
    x = float(int(float(places[-1 if last else 0][1])))
    return x if low <= x <= high else None

@wrong("pattern|ignor|score:|place|words|other|literal|range|scale|4 / ?10|out of")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    found = re.findall(r"Score:\s*(-?\d+(?:\.\d+)?)", text)
    if not found: return None
    x = float(found[-1 if last else 0])
    return x if low <= x <= high else None

@wrong("pattern|place|any number|score:|words|number")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    found = re.findall(r"\d+(?:\.\d+)?", text)
    if not found: return None
    x = float(found[-1 if last else 0])
    return x if low <= x <= high else None

@wrong("float|text|string|str|type|number")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    places = list(score_regex(pattern, high).finditer(text))
    if not places or places[-1 if last else 0][1] is None: return None
    x = places[-1 if last else 0][1]
    return x if low <= float(x) <= high else None

@wrong("none|\\b0\\b|0 instead|no score|zero|holds no")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    places = list(score_regex(pattern, high).finditer(text))
    if not places or places[-1 if last else 0][1] is None: return 0.
    x = float(places[-1 if last else 0][1])
    return x if low <= x <= high else 0.

@wrong("none|nan|no score")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    places = list(score_regex(pattern, high).finditer(text))
    if not places or places[-1 if last else 0][1] is None: return math.nan
    x = float(places[-1 if last else 0][1])
    return x if low <= x <= high else math.nan

@wrong("mean|average|last|several|max|place")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    found = [float(m[1]) for m in score_regex(pattern, high).finditer(text) if m[1] is not None]
    if not found: return None
    x = sum(found) / len(found)
    return x if low <= x <= high else None

@wrong("rescale|scale|divid|0 to 1|normali|low to high|high")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    places = list(score_regex(pattern, high).finditer(text))
    if not places or places[-1 if last else 0][1] is None: return None
    x = float(places[-1 if last else 0][1])
    return (x - low) / (high - low) if low <= x <= high else None

@two("last|first|range|outside|low|high|place")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    match = score_regex(pattern, high).search(text)
    return float(match[1]) if match and match[1] is not None else None

# agreement
def _agree(verdicts, true, **other):
    score = verdicts.score()
    known = ~score.isnan()
    s, t = score[known].double(), true[known].double()
    r = s.round()
    p_o = (r == t).double().mean().item()
    p_e = (r[:, None] == t).double().mean().item()
    out = dict(
        parse_rate=verdicts.parse_rate(), n_unparsed=int((~known).sum()), vote_std=verdicts.vote_std(),
        pearson_r=torch.corrcoef(torch.stack([s, t]))[0, 1].item(), exact_match=p_o,
        kappa=math.nan if p_e == 1 else (p_o - p_e) / (1 - p_e), bias=(s - t).mean().item(),
        pair_accuracy=judge.pair_accuracy(score, true))
    facts = dict(score=score, known=known, s=s, t=t, r=r, p_o=p_o, p_e=p_e, verdicts=verdicts, true=true)
    return out | {name: fn(facts) for name, fn in other.items()}

@right
def agreement(verdicts, true): return _agree(verdicts, true)

@right
def agreement(verdicts, true):
    rows = [(s, t) for s, t in zip(verdicts.score().double().tolist(), true.tolist()) if not math.isnan(s)]
    s, t = [np.array(x, dtype=float) for x in zip(*rows)]
    whole = np.round(s)                                      # half to even, as torch
    p_o = float((whole == t).mean())
    p_e = sum(float((whole == k).mean() * (t == k).mean()) for k in set(whole) | set(t))
    a, b = s - s.mean(), t - t.mean()
    with np.errstate(all="ignore"): pearson = float((a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()))
    won = [.5 if s[i] == s[j] else float(s[i] > s[j]) for i in range(len(s)) for j in range(len(s)) if t[i] > t[j]]
    return dict(
        parse_rate=verdicts.parse_rate(), n_unparsed=len(true) - len(rows), vote_std=verdicts.vote_std(),
        pearson_r=pearson, exact_match=p_o, kappa=(p_o - p_e) / (1 - p_e) if abs(p_e - 1) > 1e-12 else math.nan,
        bias=float((s - t).mean()), pair_accuracy=float(np.mean(won)) if won else math.nan)

def _kappa(p_o, p_e): return math.nan if p_e == 1 else (p_o - p_e) / (1 - p_e)

@wrong("kappa|p_e|1 - p_e|denominator|divid")
def agreement(verdicts, true): return _agree(verdicts, true, kappa=lambda f: f["p_o"] - f["p_e"])

@wrong("kappa|p_e|frequenc|uniform|chance|classes|1/")
def agreement(verdicts, true): return _agree(verdicts, true, kappa=lambda f: _kappa(f["p_o"], 1 / 6))

@wrong("kappa|nan|p_e|division|1\\b|zero")
def agreement(verdicts, true):
    return _agree(verdicts, true, kappa=lambda f: 0. if f["p_e"] == 1 else _kappa(f["p_o"], f["p_e"]))

@wrong("bias|sign|order|turned|minus")
def agreement(verdicts, true): return _agree(verdicts, true, bias=lambda f: (f["t"] - f["s"]).mean().item())

@wrong("bias|absolute|abs|sign")
def agreement(verdicts, true): return _agree(verdicts, true, bias=lambda f: (f["s"] - f["t"]).abs().mean().item())

@wrong("bias|round")
def agreement(verdicts, true): return _agree(verdicts, true, bias=lambda f: (f["r"] - f["t"]).mean().item())

@wrong("exact_match|exact match|round")
def agreement(verdicts, true):
    return _agree(verdicts, true, exact_match=lambda f: (f["s"] == f["t"]).double().mean().item())

@wrong("exact_match|exact match|left out|unparsed|nan|without a score|all rows|known|counted")
def agreement(verdicts, true):
    return _agree(verdicts, true, exact_match=lambda f: (f["score"].round() == f["true"]).double().mean().item())

@wrong("n_unparsed|number|replies|answers|count|votes")
def agreement(verdicts, true):
    return _agree(verdicts, true, n_unparsed=lambda f: int(f["verdicts"].votes.isnan().sum()))

@wrong("n_unparsed|count|number|share|turned|known|parsed")
def agreement(verdicts, true): return _agree(verdicts, true, n_unparsed=lambda f: int(f["known"].sum()))

@wrong("parse_rate|parse rate|replies|answers|share")
def agreement(verdicts, true):
    return _agree(verdicts, true, parse_rate=lambda f: f["known"].double().mean().item())

@wrong("pearson|round|correlation")
def agreement(verdicts, true):
    return _agree(verdicts, true, pearson_r=lambda f: torch.corrcoef(torch.stack([f["r"], f["t"]]))[0, 1].item())

@wrong("pearson|rank|spearman|correlation")
def agreement(verdicts, true):
    def ranks(x): return ((x[:, None] > x).double().sum(1) + ((x[:, None] == x).double().sum(1) + 1) / 2)
    return _agree(verdicts, true,
                  pearson_r=lambda f: torch.corrcoef(torch.stack([ranks(f["s"]), ranks(f["t"])]))[0, 1].item())

@wrong("pearson|covarian|correlation|standard|divid|normali|std")
def agreement(verdicts, true):
    return _agree(verdicts, true, pearson_r=lambda f: torch.cov(torch.stack([f["s"], f["t"]]))[0, 1].item())

@wrong("pair_accuracy|pair accuracy|round|tie")
def agreement(verdicts, true):
    return _agree(verdicts, true, pair_accuracy=lambda f: judge.pair_accuracy(f["r"], f["t"]))

@wrong("key|missing|kappa|dict")
def agreement(verdicts, true):
    out = _agree(verdicts, true)
    del out["kappa"]
    return out

@wrong("round|half|even|up|2\\.5|kappa|exact")
def agreement(verdicts, true):
    def up(x): return (x + .5).floor()
    return _agree(verdicts, true, exact_match=lambda f: (up(f["s"]) == f["t"]).double().mean().item(),
                  kappa=lambda f: _kappa((up(f["s"]) == f["t"]).double().mean().item(),
                                         (up(f["s"])[:, None] == f["t"]).double().mean().item()))

@wrong("round|floor|down|int|trunc|exact|kappa")
def agreement(verdicts, true):
    return _agree(verdicts, true, exact_match=lambda f: (f["s"].floor() == f["t"]).double().mean().item(),
                  kappa=lambda f: _kappa((f["s"].floor() == f["t"]).double().mean().item(),
                                         (f["s"].floor()[:, None] == f["t"]).double().mean().item()))

@wrong("vote_std|std|n - 1|population|spread|votes")
def agreement(verdicts, true):
    return _agree(verdicts, true, vote_std=lambda f: f["s"].std().item())

@wrong("swap|order|pair|turned|true|argument|exchang|sign")
def agreement(verdicts, true):
    return _agree(verdicts, true, pair_accuracy=lambda f: judge.pair_accuracy(f["true"][f["known"]], f["score"][f["known"]]))

@wrong("kappa|p_e|squared|scott|same rater|both|frequenc|marginal|independent")
def agreement(verdicts, true):
    def scott(f):
        both = torch.cat([f["r"], f["t"]])
        return _kappa(f["p_o"], sum(((both == k).double().mean()**2).item() for k in both.unique()))
    return _agree(verdicts, true, kappa=scott)

@two("kappa|bias|p_e|sign|denominator|order")
def agreement(verdicts, true):
    return _agree(verdicts, true, kappa=lambda f: f["p_o"] - f["p_e"], bias=lambda f: (f["t"] - f["s"]).mean().item())

# 14 self-reward: choose_pairs
def _max_min(score): return score.index(max(score)), score.index(min(score))

@right
def choose_pairs(scores, select=_max_min):
    out = []
    for p, row in enumerate(scores):
        known = [i for i, s in enumerate(row) if not math.isnan(s)]
        if len(known) < 2: continue
        a, b = select([row[i] for i in known])
        if row[known[a]] != row[known[b]]: out.append((p, known[a], known[b]))
    return out

@right
def choose_pairs(scores, select=_max_min):
    def one(p):
        places, values = zip(*[(i, s) for i, s in enumerate(scores[p]) if s == s]) or ((), ())
        best, worst = select(list(values))
        return (p, places[best], places[worst]), values[best] == values[worst]
    found = [one(p) for p in range(len(scores)) if sum(s == s for s in scores[p]) > 1]
    return [pair for pair, equal in found if not equal]

def _known(row): return [i for i, s in enumerate(row) if not math.isnan(s)]

@wrong("place|among|short list|all its candidates|index|known|nan")
def choose_pairs(scores, select=_max_min):
    out = []
    for p, row in enumerate(scores):
        short = [row[i] for i in _known(row)]
        if len(short) < 2: continue
        a, b = select(short)
        if short[a] != short[b]: out.append((p, a, b))
    return out

@wrong("break|next prompt|continue|another prompt|ends|stops|later|after|rest|other prompt")
def choose_pairs(scores, select=_max_min):
    out = []
    for p, row in enumerate(scores):
        known = _known(row)
        if len(known) < 2: break
        a, b = select([row[i] for i in known])
        if row[known[a]] != row[known[b]]: out.append((p, known[a], known[b]))
    return out

@wrong("equal|tie|same score|alike")
def choose_pairs(scores, select=_max_min):
    out = []
    for p, row in enumerate(scores):
        known = _known(row)
        if len(known) < 2: continue
        a, b = select([row[i] for i in known])
        if known[a] != known[b]: out.append((p, known[a], known[b]))
        else: out.append((p, known[0], known[-1]))
    return out

@wrong("equal|tie|same")
def choose_pairs(scores, select=_max_min):
    out = []
    for p, row in enumerate(scores):
        known = _known(row)
        if len(known) < 2: continue
        a, b = select([row[i] for i in known])
        out.append((p, known[a], known[b]))
    return out

@wrong("nan|no score|whole prompt|others stay|left out|skips|candidate")
def choose_pairs(scores, select=_max_min):
    out = []
    for p, row in enumerate(scores):
        if len(row) < 2 or any(map(math.isnan, row)): continue
        a, b = select(row)
        if row[a] != row[b]: out.append((p, a, b))
    return out

@wrong("nan|0|no score|counted|worst")
def choose_pairs(scores, select=_max_min):
    out = []
    for p, row in enumerate(scores):
        row = [0. if math.isnan(s) else s for s in row]
        if len(row) < 2: continue
        a, b = select(row)
        if row[a] != row[b]: out.append((p, a, b))
    return out

@wrong("swap|order|turned|rejected|worst|exchang|chosen")
def choose_pairs(scores, select=_max_min):
    out = []
    for p, row in enumerate(scores):
        known = _known(row)
        if len(known) < 2: continue
        a, b = select([row[i] for i in known])
        if row[known[a]] != row[known[b]]: out.append((p, known[b], known[a]))
    return out

@wrong("select|rule|ignor|argument|max_min")
def choose_pairs(scores, select=_max_min):
    out = []
    for p, row in enumerate(scores):
        known = _known(row)
        if len(known) < 2: continue
        a, b = max(known, key=lambda i: row[i]), min(known, key=lambda i: row[i])
        if row[a] != row[b]: out.append((p, a, b))
    return out

@wrong("prompt|number|index|count|enumerate|place|running|first entry|position")
def choose_pairs(scores, select=_max_min):
    out = []
    for row in scores:
        known = _known(row)
        if len(known) < 2: continue
        a, b = select([row[i] for i in known])
        if row[known[a]] != row[known[b]]: out.append((len(out), known[a], known[b]))
    return out

@wrong("score|place|index|position|values")
def choose_pairs(scores, select=_max_min):
    out = []
    for p, row in enumerate(scores):
        known = _known(row)
        if len(known) < 2: continue
        a, b = select([row[i] for i in known])
        if row[known[a]] != row[known[b]]: out.append((p, row[known[a]], row[known[b]]))
    return out

@wrong("none|no pair|left out|skip|list|each prompt|fewer")
def choose_pairs(scores, select=_max_min):
    out = []
    for p, row in enumerate(scores):
        known = _known(row)
        if len(known) < 2:
            out.append(None)
            continue
        a, b = select([row[i] for i in known])
        out.append((p, known[a], known[b]) if row[known[a]] != row[known[b]] else None)
    return out

@wrong("two|fewer|one score|single|alone|empty|none|error|max")
def choose_pairs(scores, select=_max_min):
    out = []
    for p, row in enumerate(scores):
        known = _known(row)
        a, b = select([row[i] for i in known])
        if row[known[a]] != row[known[b]]: out.append((p, known[a], known[b]))
    return out

@wrong("two|fewer|three|2|exactly")
def choose_pairs(scores, select=_max_min):
    out = []
    for p, row in enumerate(scores):
        known = _known(row)
        if len(known) <= 2: continue
        a, b = select([row[i] for i in known])
        if row[known[a]] != row[known[b]]: out.append((p, known[a], known[b]))
    return out

@wrong("gap|difference|\\.5|margin|equal|small|close|lost|half")
def choose_pairs(scores, select=_max_min):
    out = []
    for p, row in enumerate(scores):
        known = _known(row)
        if len(known) < 2: continue
        a, b = select([row[i] for i in known])
        if abs(row[known[a]] - row[known[b]]) > .5: out.append((p, known[a], known[b]))
    return out

@wrong("nan|equals itself|isnan|not even|== |no score|compar")
def choose_pairs(scores, select=_max_min):
    out = []
    for p, row in enumerate(scores):
        known = [i for i, s in enumerate(row) if s != math.nan]
        if len(known) < 2: continue
        a, b = select([row[i] for i in known])
        if row[known[a]] != row[known[b]]: out.append((p, known[a], known[b]))
    return out

@wrong("0|zero|false|falsy|score of 0|if s")
def choose_pairs(scores, select=_max_min):
    out = []
    for p, row in enumerate(scores):
        known = [i for i, s in enumerate(row) if s and not math.isnan(s)]
        if len(known) < 2: continue
        a, b = select([row[i] for i in known])
        if row[known[a]] != row[known[b]]: out.append((p, known[a], known[b]))
    return out

@two("break|swap|order|next prompt|rejected|turned|continue|equal|chosen|another prompt|ends")
def choose_pairs(scores, select=_max_min):
    out = []
    for p, row in enumerate(scores):
        known = _known(row)
        if len(known) < 2: break
        a, b = select([row[i] for i in known])
        if row[known[a]] != row[known[b]]: out.append((p, known[b], known[a]))
    return out

# replay_loss
@right
def replay_loss(pair_loss, old_logp, weight, mean_length): return pair_loss - weight / mean_length * old_logp.sum()

@right
def replay_loss(pair_loss, old_logp, weight, mean_length):
    return pair_loss + sum(-row.sum() * (weight / mean_length) for row in old_logp)

@wrong("sign|minus|negativ|plus")
def replay_loss(pair_loss, old_logp, weight, mean_length): return pair_loss + weight / mean_length * old_logp.sum()

@wrong("mean|sum|divid|number")
def replay_loss(pair_loss, old_logp, weight, mean_length): return pair_loss - weight / mean_length * old_logp.mean()

@wrong("mean_length|length|t\\b|divid")
def replay_loss(pair_loss, old_logp, weight, mean_length): return pair_loss - weight * old_logp.sum()

@wrong("weight|w\\b|factor")
def replay_loss(pair_loss, old_logp, weight, mean_length): return pair_loss - old_logp.sum() / mean_length

@wrong("row|own length|each example|long|same|mean_length|one t|t̄")
def replay_loss(pair_loss, old_logp, weight, mean_length):
    n = (old_logp != 0).sum(1).clamp(min=1)
    return pair_loss - weight * (old_logp.sum(1) / n).sum()

@wrong("many numbers|shape|scalar|row|each|sum|one number|\\(\\)")
def replay_loss(pair_loss, old_logp, weight, mean_length): return pair_loss - weight / mean_length * old_logp.sum(1)

@wrong("batch|rows|divid|number of|mean|b\\b|pairs")
def replay_loss(pair_loss, old_logp, weight, mean_length):
    return pair_loss - weight / mean_length * old_logp.sum(1).mean()

@wrong("pair|dpo|missing|term|first")
def replay_loss(pair_loss, old_logp, weight, mean_length): return -weight / mean_length * old_logp.sum() + 0 * pair_loss

@wrong("replay|old|missing|term|second")
def replay_loss(pair_loss, old_logp, weight, mean_length): return pair_loss + 0 * old_logp.sum()

@wrong("exp|log|probab")
def replay_loss(pair_loss, old_logp, weight, mean_length):
    return pair_loss - weight / mean_length * old_logp.exp().sum()

@wrong("gradient|detach")
def replay_loss(pair_loss, old_logp, weight, mean_length):
    return pair_loss - weight / mean_length * old_logp.detach().sum()

@wrong("both|weight|pair|bracket|factor|scale|dpo")
def replay_loss(pair_loss, old_logp, weight, mean_length): return weight * (pair_loss - old_logp.sum() / mean_length)

@wrong("turned|multipl|divid|weight|mean_length|invers|swap")
def replay_loss(pair_loss, old_logp, weight, mean_length): return pair_loss - mean_length / weight * old_logp.sum()

@wrong("1 -|weight|average|mix|pair|share|factor")
def replay_loss(pair_loss, old_logp, weight, mean_length):
    return (1 - weight) * pair_loss - weight / mean_length * old_logp.sum()

@wrong("divid|rows|n\\b|mean|n times|pairs|number of|sum|both|batch")
def replay_loss(pair_loss, old_logp, weight, mean_length):
    return (pair_loss - weight / mean_length * old_logp.sum()) / len(old_logp)

# 15 spin: spin_loss
@right
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    t = beta * ((real - opponent_real.detach()) - (generated - opponent_generated.detach()))
    return -logsigmoid(t)

@right
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    with torch.no_grad(): shift = opponent_real - opponent_generated
    t = beta * (real - generated - shift)
    return torch.logaddexp(torch.zeros_like(t), -t)

def _t(r, g, o_r, o_g, detach=True):
    if detach: o_r, o_g = o_r.detach(), o_g.detach()
    return (r - o_r) - (g - o_g)

@wrong("gradient|detach|data|opponent")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return softplus(-beta * _t(real, generated, opponent_real, opponent_generated, detach=False))

@wrong("sign|minus|turned|other way|swap|order|exchang")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return softplus(beta * _t(real, generated, opponent_real, opponent_generated))

@wrong("beta|β|λ|lambda")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return softplus(-_t(real, generated, opponent_real, opponent_generated))

@wrong("beta|β|divid|λ|multipl")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return softplus(-_t(real, generated, opponent_real, opponent_generated) / beta)

@wrong("opponent|reference|missing|term")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return softplus(-beta * (real - generated)) + 0 * opponent_real.detach()

@wrong("mean|shape|per pair|each pair|one number")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return softplus(-beta * _t(real, generated, opponent_real, opponent_generated)).mean()

@wrong("overflow|inf|softplus|large|exp")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return (1 + (-beta * _t(real, generated, opponent_real, opponent_generated)).exp()).log()

@wrong("sign|minus|negativ|above 0")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return -softplus(-beta * _t(real, generated, opponent_real, opponent_generated))

@wrong("opponent|swap|exchang|crossed|turned|order|generated")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return softplus(-beta * _t(real, generated, opponent_generated, opponent_real))

@wrong("gradient|detach|generated|too much|player")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return softplus(-beta * _t(real, generated.detach(), opponent_real, opponent_generated))

@wrong("gradient|detach|too much|real|player|all")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return softplus(-beta * _t(real.detach(), generated.detach(), opponent_real, opponent_generated)) + 0 * real + 0 * generated

@wrong("default|beta|β|\\.1|1\\b")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=.1):
    return softplus(-beta * _t(real, generated, opponent_real, opponent_generated))

@wrong("log|exp|sigmoid|1 \\+|σ")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return torch.sigmoid(-beta * _t(real, generated, opponent_real, opponent_generated))

@wrong("beta|β|outside|front|inside|factor")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return beta * softplus(-_t(real, generated, opponent_real, opponent_generated))

@wrong("sign|plus|minus|opponent_generated|bracket|opponent|parenthes")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return softplus(-beta * (real - opponent_real.detach() - generated - opponent_generated.detach()))

@two("sign|beta|β|turned|other way|minus")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return softplus(_t(real, generated, opponent_real, opponent_generated))

# best_reply
@right
def best_reply(p_opponent, p_real, beta):
    w = p_opponent * (p_real / p_opponent)**(1 / beta)
    return w / w.sum()

@right
def best_reply(p_opponent, p_real, beta):
    a, b = p_opponent.log(), p_real.log()
    return (a + (b - a) / beta).softmax(-1)

@wrong("normali|sum|divid")
def best_reply(p_opponent, p_real, beta): return p_opponent * (p_real / p_opponent)**(1 / beta)

@wrong("beta|β|1 /|power|exponent|invers")
def best_reply(p_opponent, p_real, beta):
    w = p_opponent * (p_real / p_opponent)**beta
    return w / w.sum()

@wrong("ratio|turned|invers|swap|exchang|other way|order")
def best_reply(p_opponent, p_real, beta):
    w = p_opponent * (p_opponent / p_real)**(1 / beta)
    return w / w.sum()

@wrong("opponent|missing|factor|front|p_t|weight")
def best_reply(p_opponent, p_real, beta):
    w = (p_real / p_opponent)**(1 / beta)
    return w / w.sum()

@wrong("real|opponent|writer|front|swap|factor|weight|p_t")
def best_reply(p_opponent, p_real, beta):
    w = p_real * (p_real / p_opponent)**(1 / beta)
    return w / w.sum()

@wrong("power|only the ratio|all|product|bracket|under|opponent|exponent")
def best_reply(p_opponent, p_real, beta):
    w = (p_opponent * (p_real / p_opponent))**(1 / beta)
    return w / w.sum()

@wrong("beta|β|power|exponent|missing|ignored")
def best_reply(p_opponent, p_real, beta):
    w = p_opponent * (p_real / p_opponent)
    return w / w.sum()

@wrong("power|times|factor|multipl|exponent|divid|beta|exp of")
def best_reply(p_opponent, p_real, beta):
    w = p_opponent * ((p_real / p_opponent) / beta).exp()
    return w / w.sum()

@wrong("max|sum|normali|divid|largest")
def best_reply(p_opponent, p_real, beta):
    w = p_opponent * (p_real / p_opponent)**(1 / beta)
    return w / w.max()

@wrong("softmax|exp|log|sum|normali|divid")
def best_reply(p_opponent, p_real, beta): return (p_opponent * (p_real / p_opponent)**(1 / beta)).softmax(-1)

@wrong("log|probabilit|exp")
def best_reply(p_opponent, p_real, beta):
    w = p_opponent * (p_real / p_opponent)**(1 / beta)
    return (w / w.sum()).log()

@wrong("swap|opponent|real|exchang|argument|order|turned|ratio")
def best_reply(p_opponent, p_real, beta):
    w = p_real * (p_opponent / p_real)**(1 / beta)
    return w / w.sum()

@wrong("mean|sum|number|normali|divid|factor|n\\b")
def best_reply(p_opponent, p_real, beta):
    w = p_opponent * (p_real / p_opponent)**(1 / beta)
    return w / w.mean()

@wrong("mix|linear|average|geometric|power|log|sum|ratio|between")
def best_reply(p_opponent, p_real, beta):
    w = (1 - 1 / beta) * p_opponent + p_real / beta
    return w / w.sum()

@wrong("integer|int|//|whole|1 /|beta|power|exponent")
def best_reply(p_opponent, p_real, beta):
    w = p_opponent * (p_real / p_opponent)**(1 // beta)
    return w / w.sum()

@two("normali|beta|β|sum|power|divid|exponent")
def best_reply(p_opponent, p_real, beta): return p_opponent * (p_real / p_opponent)**beta

# spin_game
def _reply(p_opponent, p_real, beta):
    w = p_opponent * (p_real / p_opponent)**(1 / beta)
    return w / w.sum()

@right
def spin_game(p_first, p_real, beta, n):
    players = [p_first]
    for _ in range(n): players.append(_reply(players[-1], p_real, beta))
    return players

@right
def spin_game(p_first, p_real, beta, n):
    return list(itertools.accumulate(range(n), lambda p, _: _reply(p, p_real, beta), initial=p_first))

@wrong("first|n \\+ 1|begin|missing|start|one too few|length")
def spin_game(p_first, p_real, beta, n):
    players, p = [], p_first
    for _ in range(n):
        p = _reply(p, p_real, beta)
        players.append(p)
    return players

@wrong("last player|opponent|first|players\\[-1\\]|always|same|stays")
def spin_game(p_first, p_real, beta, n):
    return [p_first] + [_reply(p_first, p_real, beta) for _ in range(n)]

@wrong("n\\b|one too few|n - 1|n \\+ 1|off by one|length|too short")
def spin_game(p_first, p_real, beta, n):
    players = [p_first]
    for _ in range(n - 1): players.append(_reply(players[-1], p_real, beta))
    return players

@wrong("n\\b|one too many|n \\+ 1|n \\+ 2|off by one|length|too long")
def spin_game(p_first, p_real, beta, n):
    players = [p_first]
    for _ in range(n + 1): players.append(_reply(players[-1], p_real, beta))
    return players

@wrong("list|last|only|all players|players|tensor|type")
def spin_game(p_first, p_real, beta, n):
    p = p_first
    for _ in range(n): p = _reply(p, p_real, beta)
    return p

@wrong("swap|argument|order|writer|real|exchang|opponent|turned")
def spin_game(p_first, p_real, beta, n):
    players = [p_first]
    for _ in range(n): players.append(_reply(p_real, players[-1], beta))
    return players

@wrong("beta|β|default|forgot|1\\b")
def spin_game(p_first, p_real, beta, n):
    players = [p_first]
    for _ in range(n): players.append(_reply(players[-1], p_real, 1.))
    return players

@wrong("list|tensor|stack|type")
def spin_game(p_first, p_real, beta, n):
    players = [p_first]
    for _ in range(n): players.append(_reply(players[-1], p_real, beta))
    return torch.stack(players)

@wrong("writer|real|stays|same|previous|data|changes")
def spin_game(p_first, p_real, beta, n):
    players = [p_first]
    for _ in range(n):
        players.append(_reply(players[-1], p_real, beta))
        p_real = players[-1]
    return players

@wrong("two|before last|last player|players\\[-1\\]|-2|opponent|iteration|previous|one before")
def spin_game(p_first, p_real, beta, n):
    players = [p_first]
    for _ in range(n): players.append(_reply(players[max(0, len(players) - 2)], p_real, beta))
    return players

@wrong("order|revers|turned|first|backward|direction")
def spin_game(p_first, p_real, beta, n):
    players = [p_first]
    for _ in range(n): players.append(_reply(players[-1], p_real, beta))
    return players[::-1]

@wrong("writer|last|real|extra|one too many|n \\+ 1|length|too long|p_real")
def spin_game(p_first, p_real, beta, n):
    players = [p_first]
    for _ in range(n): players.append(_reply(players[-1], p_real, beta))
    return players + [p_real]

@wrong("first|writer|real|start|begin|p_first")
def spin_game(p_first, p_real, beta, n):
    players = [p_real]
    for _ in range(n): players.append(_reply(players[-1], p_real, beta))
    return players

@wrong("beta|β|each|iteration|grow|constant|same|power|chang")
def spin_game(p_first, p_real, beta, n):
    players = [p_first]
    for i in range(n): players.append(_reply(players[-1], p_real, beta * (i + 1)))
    return players

@two("first|n\\b|length|begin|n \\+ 1|last player|opponent|missing|one too few")
def spin_game(p_first, p_real, beta, n): return [_reply(p_first, p_real, beta) for _ in range(n)]

# 16 q-learning: bellman_targets
@right
def bellman_targets(x, value, config):
    d, last = discounts(x, config), x.last()
    cut = last & ~x.ended[:, None] if config.on_truncation == "bootstrap" else torch.zeros_like(last)
    follows = torch.where(~last | cut, value, 0.)
    y = x.reward + d * follows
    for _ in range(config.n_step - 1): y = torch.where(last, y, x.reward + d * x.ahead(y))
    if config.mc_bound:
        g = ql.monte_carlo_returns(x, d)
        y = torch.where(cut.any(1, keepdim=True), y, torch.maximum(y, g))
    return y.masked_fill(~x.mask, 0.)

@right
def bellman_targets(x, value, config): # token by token
    d, out = discounts(x, config), torch.zeros_like(x.reward)
    for b in range(len(out)):
        at = x.mask[b].nonzero()[:, 0].tolist()
        boot = config.on_truncation == "bootstrap" and not x.ended[b]
        for k, i in enumerate(at):
            total, factor, place = 0., 1., k
            for _ in range(config.n_step):
                total = total + factor * x.reward[b, at[place]]
                factor = factor * d[b, at[place]]
                if place == len(at) - 1: break
                place += 1
            else: place -= 1
            end = min(k + config.n_step, len(at)) - 1
            if end < len(at) - 1 or boot: total = total + factor * value[b, at[end]]
            if config.mc_bound and not boot:
                g = 0.
                for j in reversed(at[k:]): g = x.reward[b, j] + d[b, j] * g
                total = torch.maximum(torch.as_tensor(total), torch.as_tensor(g))
            out[b, i] = total
    return out

def _bt(x, value, config, disc=None, follows=None, steps=None, n=None, bound=None, cut=None, fill=True, sign=1,
        reward=None, bounded=None):
    "a right one with switches"
    d, last = discounts(x, config) if disc is None else disc, x.last()
    boot = config.on_truncation == "bootstrap"
    cut_ = last & ~x.ended[:, None] & boot if cut is None else cut(x, last, boot)
    v = torch.where(~last | cut_, value, 0.) if follows is None else follows(value, last, cut_)
    r = x.reward if reward is None else reward
    y = r + sign * d * v
    for _ in range((config.n_step if n is None else n) - 1):
        y = torch.where(last, y, r + d * x.ahead(y)) if steps is None else steps(y, r, d, last)
    if config.mc_bound if bounded is None else bounded:
        g = ql.monte_carlo_returns(x, d)
        y = torch.where(cut_.any(1, keepdim=True), y, torch.maximum(y, g)) if bound is None else bound(y, g, cut_)
    return y.masked_fill(~x.mask, 0.) if fill else y

@wrong("last|nothing follows|terminal|eos|after the|end")
def bellman_targets(x, value, config): return _bt(x, value, config, follows=lambda v, last, cut: v)

@wrong("γ|gamma|discount")
def bellman_targets(x, value, config): return _bt(x, value, config, disc=torch.ones_like(x.reward))

@wrong("truncat|bootstrap|on_truncation|without eos|cut")
def bellman_targets(x, value, config):
    return _bt(x, value, config, cut=lambda x, last, boot: torch.zeros_like(last))

@wrong("truncat|bootstrap|terminal|on_truncation|setting")
def bellman_targets(x, value, config):
    return _bt(x, value, config, cut=lambda x, last, boot: last & ~x.ended[:, None])

@wrong("turned|ended|truncat|bootstrap|eos|opposite|other way")
def bellman_targets(x, value, config):
    return _bt(x, value, config, cut=lambda x, last, boot: last & x.ended[:, None] & boot)

@wrong("ended|eos|bootstrap|last|every row|truncat|nothing follows")
def bellman_targets(x, value, config):
    return _bt(x, value, config, cut=lambda x, last, boot: last & boot)

@wrong("n_step|n-step|steps|n - 1|one too many|too many")
def bellman_targets(x, value, config): return _bt(x, value, config, n=config.n_step + 1)

@wrong("n_step|n-step|steps|ignor|more than one|one step")
def bellman_targets(x, value, config): return _bt(x, value, config, n=1)

@wrong("n_step|n-step|discount|γ|gamma|rewards|steps")
def bellman_targets(x, value, config):
    return _bt(x, value, config, steps=lambda y, r, d, last: torch.where(last, y, r + x.ahead(y)))

@wrong("last|stop|n_step|n-step|steps|truncat|bootstrap|end")
def bellman_targets(x, value, config):
    return _bt(x, value, config, steps=lambda y, r, d, last: r + d * x.ahead(y))

@wrong("mc_bound|monte carlo|bound|return|setting|g_i")
def bellman_targets(x, value, config): return _bt(x, value, config, bounded=False)

@wrong("mc_bound|monte carlo|bound|setting|always|off")
def bellman_targets(x, value, config): return _bt(x, value, config, bounded=True)

@wrong("min|max|at least|at most|bound|turned|lower|mc_bound")
def bellman_targets(x, value, config):
    return _bt(x, value, config, bound=lambda y, g, cut: torch.where(cut.any(1, keepdim=True), y, torch.minimum(y, g)))

@wrong("bootstrap|truncat|not bounded|bound|part of its return|mc_bound")
def bellman_targets(x, value, config):
    return _bt(x, value, config, bound=lambda y, g, cut: torch.maximum(y, g))

@wrong("bootstrap|truncat|row|bound|whole|last token|mc_bound")
def bellman_targets(x, value, config):
    return _bt(x, value, config, bound=lambda y, g, cut: torch.where(cut, y, torch.maximum(y, g)))

@wrong("outside|mask|prompt|pads|0\\b")
def bellman_targets(x, value, config): return _bt(x, value, config, fill=False)

@wrong("shift|one token|after token|value\\[|i \\+ 1|next|late|early|entry i|twice")
def bellman_targets(x, value, config): return _bt(x, shift_left(value), config)

@wrong("shift|one token|after token|before|value|i - 1|early|entry i|late")
def bellman_targets(x, value, config): return _bt(x, tokens.shift_right(value), config)

@wrong("reward|missing|r_i|term")
def bellman_targets(x, value, config): return _bt(x, value, config, reward=torch.zeros_like(x.reward))

@wrong("reward|negativ|sign|clamp|positive|below 0")
def bellman_targets(x, value, config): return _bt(x, value, config, reward=x.reward.clamp(min=0))

@wrong("sign|minus|plus|negativ|value")
def bellman_targets(x, value, config): return _bt(x, value, config, sign=-1)

@wrong("discount|γ|gamma|response|token|discount_per|once|per")
def bellman_targets(x, value, config):
    return _bt(x, value, config, disc=torch.full_like(x.reward, config.gamma))

@wrong("discount|γ|gamma|response|token|discount_per|last|per|every token")
def bellman_targets(x, value, config):
    return _bt(x, value, config, disc=torch.where(x.last(), config.gamma, 1.).to(x.reward))

@wrong("reward|γ|gamma|discount|both|bracket|r_i|factor")
def bellman_targets(x, value, config):
    d = discounts(x, config)
    return _bt(x, value, config, reward=d * x.reward)

@wrong("monte carlo|return|value|replac|bound|bootstrap|y_i|max|g_i|observed|ignored")
def bellman_targets(x, value, config):
    return ql.monte_carlo_returns(x, discounts(x, config)).masked_fill(~x.mask, 0.)

@wrong("mean|average|max|bound|at least|half|monte carlo")
def bellman_targets(x, value, config):
    return _bt(x, value, config, bound=lambda y, g, cut: torch.where(cut.any(1, keepdim=True), y, (y + g) / 2))

@wrong("in place|changed|changes|argument|input|overwr|writes|value")
def bellman_targets(x, value, config):
    value[x.last()] = value[x.last()] * 0 if config.on_truncation == "terminal" else value[x.last()]
    return _bt(x, value, config)

@wrong("reward|last|every|middle|each token|only|score")
def bellman_targets(x, value, config):
    return _bt(x, value, config, reward=x.reward * x.last())

@wrong("where|reward|value|either|where a reward|!=|not 0|both|plus|sum|instead")
def bellman_targets(x, value, config):
    return _bt(x, value, config, follows=lambda v, last, cut: torch.where((~last | cut) & (x.reward == 0), v, 0.))

@two("last|γ|gamma|nothing follows|discount|terminal|eos|end")
def bellman_targets(x, value, config):
    return _bt(x, value, config, disc=torch.ones_like(x.reward), follows=lambda v, last, cut: v)

@two("n_step|n-step|bound|mc_bound|monte carlo|steps")
def bellman_targets(x, value, config): return _bt(x, value, config, n=1, bounded=False)

# q_loss
@right
def q_loss(nets, x, config):
    hidden = hidden_states(nets.online, x.seqs)
    y = ql.bellman_targets(x, next_values(nets, x, hidden, config), config)
    at = x.positions()
    q, rest = q_terms(nets.online.get_output_embeddings(), tokens.shift_right(hidden)[at], x.seqs.ids[at],
                      nets.allowed, config.min_return)
    td = (q - y[at])**2
    loss = td.sum() / 2 + config.alpha / 2 * rest.sum()
    log = dict(td_loss=td.sum(), conservative_loss=rest.sum(), q_values=q.sum(), td_target=y[at].sum())
    return loss, torch.tensor(len(q)), {k: v.detach() for k, v in log.items()}

@right
def q_loss(nets, x, config): # from all logits, by hand
    hidden = hidden_states(nets.online, x.seqs)
    with torch.no_grad(): y = ql.bellman_targets(x, next_values(nets, x, hidden, config), config)[x.mask]
    head = nets.online.get_output_embeddings()
    every = head(tokens.shift_right(hidden)[x.mask])[:, nets.allowed]
    index = nets.allowed.cumsum(0) - 1
    own = torch.zeros_like(every, dtype=torch.bool).scatter(1, index[x.seqs.ids[x.mask]][:, None], True)
    q = every[own]
    rest = ((every[~own].view(len(q), -1) - config.min_return)**2).mean(1)
    td = (q - y).square()
    return ((td + config.alpha * rest) / 2).sum(), x.mask.sum(), dict(
        td_loss=td.detach().sum(), conservative_loss=rest.detach().sum(), q_values=q.detach().sum(), td_target=y.sum())

def _q(nets, x, config, state=None, head=None, target=None, taken=None, at=None, td=None, mix=None, n=None, log=None,
       low=None, allowed=None):
    "a right one with switches"
    hidden = hidden_states(nets.online, x.seqs)
    value = next_values(nets, x, hidden, config)
    y = ql.bellman_targets(x, value, config) if target is None else target(hidden, value)
    m = x.mask if at is None else at
    before = tokens.shift_right(hidden) if state is None else state(hidden)
    q, rest = q_terms((head or nets.online).get_output_embeddings(), before[m],
                      (x.seqs.ids if taken is None else taken)[m], nets.allowed if allowed is None else allowed,
                      config.min_return if low is None else low)
    square = (q - y[m])**2 if td is None else td(q, y[m])
    loss = square.sum() / 2 + config.alpha / 2 * rest.sum() if mix is None else mix(square, rest)
    sums = dict(td_loss=square.sum(), conservative_loss=rest.sum(), q_values=q.sum(), td_target=y[m].sum())
    sums = {k: v.detach() for k, v in sums.items()}
    return loss, m.sum() if n is None else n, log(sums) if log else sums

@wrong("shift|state|before|after|one token|reading|which state|chose")
def q_loss(nets, x, config): return _q(nets, x, config, state=lambda h: h)

@wrong("shift|state|before|direction|left|one token|after|other way|which state")
def q_loss(nets, x, config): return _q(nets, x, config, state=shift_left)

@wrong("half|½|/ 2|1/2|factor|twice|2|halved")
def q_loss(nets, x, config): return _q(nets, x, config, mix=lambda td, rest: td.sum() + config.alpha * rest.sum())

@wrong("half|½|/ 2|1/2|factor|conservative|alpha")
def q_loss(nets, x, config): return _q(nets, x, config, mix=lambda td, rest: td.sum() / 2 + config.alpha * rest.sum())

@wrong("half|½|/ 2|1/2|factor|td|first term|square")
def q_loss(nets, x, config): return _q(nets, x, config, mix=lambda td, rest: td.sum() + config.alpha / 2 * rest.sum())

@wrong("alpha|α|conservative|weight")
def q_loss(nets, x, config): return _q(nets, x, config, mix=lambda td, rest: td.sum() / 2 + rest.sum() / 2)

@wrong("conservative|missing|term|alpha|second")
def q_loss(nets, x, config): return _q(nets, x, config, mix=lambda td, rest: td.sum() / 2)

@wrong("td|missing|term|first|bellman|\\(q - y\\)")
def q_loss(nets, x, config): return _q(nets, x, config, mix=lambda td, rest: config.alpha / 2 * rest.sum())

@wrong("sign|minus|conservative|plus|negativ")
def q_loss(nets, x, config):
    return _q(nets, x, config, mix=lambda td, rest: td.sum() / 2 - config.alpha / 2 * rest.sum())

@wrong("mean|sum|divid|number|summed")
def q_loss(nets, x, config):
    return _q(nets, x, config, mix=lambda td, rest: td.mean() / 2 + config.alpha / 2 * rest.mean())

@wrong("conservative|mean|sum|divid|number|alpha")
def q_loss(nets, x, config):
    return _q(nets, x, config, mix=lambda td, rest: td.sum() / 2 + config.alpha / 2 * rest.mean())

@wrong("target|online|head|network|gradient|output_embeddings|no gradient")
def q_loss(nets, x, config): return _q(nets, x, config, head=nets.target)

@wrong("target|gradient|detach|constant|online|next|semi")
def q_loss(nets, x, config):
    def target(hidden, value):
        logits = nets.online.get_output_embeddings()(hidden).masked_fill(~nets.allowed, -torch.inf)
        return ql.bellman_targets(x, logits.amax(-1), config)
    return _q(nets, x, config, target=target)

@wrong("target|online|network|next_values|values")
def q_loss(nets, x, config):
    def target(hidden, value):
        logits = nets.online.get_output_embeddings()(hidden).masked_fill(~nets.allowed, -torch.inf)
        return ql.bellman_targets(x, logits.amax(-1).detach(), config)
    return _q(nets, x, config, target=target)

@wrong("td|square|absolute|abs|power|\\*\\*2|huber")
def q_loss(nets, x, config): return _q(nets, x, config, td=lambda q, y: (q - y).abs())

@wrong("gradient|detach|too much|td|online|q\\b")
def q_loss(nets, x, config): return _q(nets, x, config, td=lambda q, y: (q.detach() - y)**2)

@wrong("prompt|mask|attention|response|positions|tokens|number")
def q_loss(nets, x, config):
    at = x.attention_mask.clone()
    at[:, 0] = False
    return _q(nets, x, config, at=at)

@wrong("eos|last|end|final")
def q_loss(nets, x, config): return _q(nets, x, config, at=x.mask & ~x.last())

@wrong("number|tokens|rows|count|second")
def q_loss(nets, x, config): return _q(nets, x, config, n=torch.tensor(len(x)))

@wrong("number|tokens|count|second|numel|pads|attention|prompt")
def q_loss(nets, x, config): return _q(nets, x, config, n=x.attention_mask.sum())

@wrong("gradient|detach|log|sums|without gradient|dict|metric|graph")
def q_loss(nets, x, config):
    hidden = hidden_states(nets.online, x.seqs)
    y = ql.bellman_targets(x, next_values(nets, x, hidden, config), config)
    q, rest = q_terms(nets.online.get_output_embeddings(), tokens.shift_right(hidden)[x.mask], x.seqs.ids[x.mask],
                      nets.allowed, config.min_return)
    td = (q - y[x.mask])**2
    return td.sum() / 2 + config.alpha / 2 * rest.sum(), x.mask.sum(), dict(
        td_loss=td.sum(), conservative_loss=rest.sum(), q_values=q.sum(), td_target=y[x.mask].sum())

@wrong("key|name|td_loss|dict|log|missing|td_target")
def q_loss(nets, x, config):
    return _q(nets, x, config, log=lambda s: dict(td=s["td_loss"], cql=s["conservative_loss"], q=s["q_values"], y=s["td_target"]))

@wrong("td_loss|half|/ 2|factor|log|conservative_loss|2|½")
def q_loss(nets, x, config):
    return _q(nets, x, config, log=lambda s: s | dict(td_loss=s["td_loss"] / 2))

@wrong("conservative_loss|alpha|α|log|factor|half|2")
def q_loss(nets, x, config):
    return _q(nets, x, config, log=lambda s: s | dict(conservative_loss=config.alpha / 2 * s["conservative_loss"]))

@wrong("mean|sum|log|divid|number")
def q_loss(nets, x, config):
    return _q(nets, x, config, log=lambda s: {k: v / x.mask.sum() for k, v in s.items()})

@wrong("min_return|r_min|lowest|0\\b|conservative|pull")
def q_loss(nets, x, config): return _q(nets, x, config, low=0.)

@wrong("allowed|disallowed|pad|actions|m - 1|every|conservative")
def q_loss(nets, x, config): return _q(nets, x, config, allowed=torch.ones_like(nets.allowed))

@wrong("taken|next token|ids|action|shift|own|one token|other token")
def q_loss(nets, x, config):
    return _q(nets, x, config, taken=torch.where(shift_left(x.mask), shift_left(x.seqs.ids), x.seqs.ids))

@wrong("target|reward|bellman|values|missing|y_i")
def q_loss(nets, x, config): return _q(nets, x, config, target=lambda hidden, value: value)

@wrong("target|reward|bellman|values|missing|monte carlo|n_step|bound|bootstrap")
def q_loss(nets, x, config): return _q(nets, x, config, target=lambda hidden, value: x.reward)

@wrong("target|n_step|bound|monte carlo|discount|bellman|γ|setting")
def q_loss(nets, x, config):
    return _q(nets, x, config, target=lambda hidden, value: (x.reward + config.gamma * value) * x.mask)

@two("half|shift|state|before|½|factor|/ 2|one token|after|2")
def q_loss(nets, x, config):
    return _q(nets, x, config, state=lambda h: h, mix=lambda td, rest: td.sum() + config.alpha * rest.sum())

# fixed_soft_update
@right
def fixed_soft_update(slow, fast, rate, step): return [torch.lerp(a.detach(), b.detach(), rate) for a, b in zip(slow, fast)]

@right
def fixed_soft_update(slow, fast, rate, step):
    with torch.no_grad(): return [(1 - rate) * a + rate * b for a, b in zip(slow, fast)]

def _su(slow, fast, f): return [f(a.detach(), b.detach()) for a, b in zip(slow, fast)]

@wrong("turned|swap|1 - rate|other way|share|exchang|rate")
def fixed_soft_update(slow, fast, rate, step): return _su(slow, fast, lambda a, b: rate * a + (1 - rate) * b)

@wrong("gradient|detach|online")
def fixed_soft_update(slow, fast, rate, step): return [a + rate * (b - a) for a, b in zip(slow, fast)]

@wrong("sign|minus|turned|away|direction|other way")
def fixed_soft_update(slow, fast, rate, step): return _su(slow, fast, lambda a, b: a + rate * (a - b))

@wrong("step|every|10|start|100|makes no difference")
def fixed_soft_update(slow, fast, rate, step):
    if step % 10: return slow
    return _su(slow, fast, lambda a, b: a + rate * (b - a))

@wrong("step|start|100|replac|copy|makes no difference")
def fixed_soft_update(slow, fast, rate, step):
    if step <= 100: return [b.detach().clone() for b in fast]
    return _su(slow, fast, lambda a, b: a + rate * (b - a))

@wrong("in place|new tensor|changed|changes|argument|input|overwr")
def fixed_soft_update(slow, fast, rate, step):
    with torch.no_grad():
        for a, b in zip(slow, fast): a.lerp_(b, rate)
    return slow

@wrong("copy|rate|replac|share|all the way|whole|learner itself")
def fixed_soft_update(slow, fast, rate, step): return [b.detach().clone() for b in fast]

@wrong("target|slow|moves|rate|missing|term|factor|scale|online|a\\b|1 - rate|plus|sum")
def fixed_soft_update(slow, fast, rate, step): return _su(slow, fast, lambda a, b: a + rate * b)

@wrong("step|rate|divid|decay|makes no difference|1 /")
def fixed_soft_update(slow, fast, rate, step): return _su(slow, fast, lambda a, b: a + rate / step * (b - a))

@wrong("list|tensor|none|return|type")
def fixed_soft_update(slow, fast, rate, step):
    with torch.no_grad():
        for a, b in zip(slow, fast): a.copy_(a + rate * (b - a))

@wrong("first|every weight|each weight|all|only|one weight|length|missing")
def fixed_soft_update(slow, fast, rate, step): return _su(slow[:1], fast[:1], lambda a, b: a + rate * (b - a))

@wrong("power|step|\\*\\*|rate|bias|makes no difference|correct")
def fixed_soft_update(slow, fast, rate, step):
    return _su(slow, fast, lambda a, b: a + (1 - (1 - rate)**step) * (b - a))

@wrong("gradient|detach|online|through")
def fixed_soft_update(slow, fast, rate, step): return [torch.lerp(a, b, rate) for a, b in zip(slow, fast)]

@wrong("half|2|twice|rate|factor")
def fixed_soft_update(slow, fast, rate, step): return _su(slow, fast, lambda a, b: a + rate * (b - a) / 2)

@wrong("stays|unchanged|nothing|moves|target|rate|online|slow")
def fixed_soft_update(slow, fast, rate, step): return [a.detach().clone() for a in slow]

@two("gradient|detach|turned|swap|1 - rate|rate|online")
def fixed_soft_update(slow, fast, rate, step): return [rate * a + (1 - rate) * b for a, b in zip(slow, fast)]

# 17 arithmetic: fixed_number_reward
@right
def fixed_number_reward(reply, right):
    found = re.findall(r"\d+", reply)
    return float(bool(found) and found[-1] == right)

@right
def fixed_number_reward(reply, right):
    last, run = "", ""
    for c in reply + " ":
        if c in "0123456789": run += c
        elif run: last, run = run, ""
    return 1. if last and last == right else 0.

@wrong("first|last")
def fixed_number_reward(reply, right):
    found = re.search(r"\d+", reply)
    return float(found is not None and found[0] == right)

@wrong("without a number|no number|\\.5|none|empty")
def fixed_number_reward(reply, right):
    found = re.findall(r"\d+", reply)
    return float(found[-1] == right) if found else .5

@wrong("no number|empty|without|index|list|none")
def fixed_number_reward(reply, right): return float(re.findall(r"\d+", reply)[-1] == right)

@wrong("value|text|550|zero|digit by digit|leading|int|compare|digits")
def fixed_number_reward(reply, right):
    found = re.findall(r"\d+", reply)
    return float(bool(found) and int(found[-1]) == int(right))

@wrong("digit|together|last digit|\\+|number|single|whole")
def fixed_number_reward(reply, right):
    found = re.findall(r"\d", reply)
    return float(bool(found) and found[-1] == right)

@wrong("ends|end|suffix|digits that stand|part|together|longer|inside|whole number")
def fixed_number_reward(reply, right): return float(reply.strip().endswith(right))

@wrong("any|last|in\\b|somewhere|anywhere|other number|question")
def fixed_number_reward(reply, right): return float(right in re.findall(r"\d+", reply))

@wrong("inside|part|substring|in\\b|last|anywhere|contains|number")
def fixed_number_reward(reply, right): return float(right in reply)

@wrong("float|decimal|point|\\.|digits|together")
def fixed_number_reward(reply, right):
    found = re.findall(r"\d+\.?\d*", reply)
    return float(bool(found) and found[-1] == right)

@wrong("after|text behind|end of|behind|follow|last number|anything")
def fixed_number_reward(reply, right):
    found = re.search(r"(\d+)\s*$", reply)
    return float(found is not None and found[1] == right)

@wrong("equals|=|sign|last number|without|split")
def fixed_number_reward(reply, right):
    parts = reply.split("=")
    found = re.findall(r"\d+", parts[1]) if len(parts) > 1 else []
    return float(bool(found) and found[-1] == right)

@wrong("share|part|digit|partial|digit by digit|else 0|1 or 0|credit")
def fixed_number_reward(reply, right):
    found = re.findall(r"\d+", reply)
    if not found: return 0.
    return sum(a == b for a, b in zip(found[-1], right)) / max(len(found[-1]), len(right))

@wrong("-1|negativ|0\\b|wrong|else 0")
def fixed_number_reward(reply, right):
    found = re.findall(r"\d+", reply)
    if not found: return 0.
    return 1. if found[-1] == right else -1.

@wrong("together|joined|all digits|join|number|last|separate")
def fixed_number_reward(reply, right): return float("".join(re.findall(r"\d", reply)) == right)

@wrong("minus|sign|-|digits|negativ")
def fixed_number_reward(reply, right):
    found = re.findall(r"-?\d+", reply)
    return float(bool(found) and found[-1] == right)

@two("first|\\.5|no number|without|last|none|value|int")
def fixed_number_reward(reply, right):
    found = re.search(r"\d+", reply)
    if found is None: return .5
    return float(int(found[0]) == int(right))

# reward_until_wrong
@right
def reward_until_wrong(answer, want):
    out, good = [], True
    for i, token in enumerate(answer):
        good = good and i < len(want) and token == want[i]
        out.append(1 / len(want) if good else 0.)
    return out

@right
def reward_until_wrong(answer, want):
    return [1 / len(want) if answer[:i + 1] == want[:i + 1] else 0. for i in range(len(answer))]

@wrong("after|luck|every token before|before it|flag|later|until|wrong one|rise")
def reward_until_wrong(answer, want):
    return [1 / len(want) if i < len(want) and t == want[i] else 0. for i, t in enumerate(answer)]

@wrong("len\\(want\\)|answer|length|divid|share")
def reward_until_wrong(answer, want):
    return [1 / len(answer) if answer[:i + 1] == want[:i + 1] else 0. for i in range(len(answer))]

@wrong("longer|index|end of|beyond|range|behind|after its end")
def reward_until_wrong(answer, want):
    out, good = [], True
    for i, t in enumerate(answer):
        good = good and t == want[i]
        out.append(1 / len(want) if good else 0.)
    return out

@wrong("each token|length|longer|short|every token of|list|too few|missing|one for|per token")
def reward_until_wrong(answer, want):
    out, good = [], True
    for a, w in zip(answer, want):
        good = good and a == w
        out.append(1 / len(want) if good else 0.)
    return out

@wrong("share|1 /|divid|len|1 in all|factor")
def reward_until_wrong(answer, want):
    return [1. if answer[:i + 1] == want[:i + 1] else 0. for i in range(len(answer))]

@wrong("each token|stop|missing|length|short|list|break|every token of|too few|one for")
def reward_until_wrong(answer, want):
    out = []
    for i in range(len(answer)):
        if answer[:i + 1] != want[:i + 1]: break
        out.append(1 / len(want))
    return out

@wrong("last|end|all|sum|each|sparse|whole|every|one token")
def reward_until_wrong(answer, want):
    return [0.] * (len(answer) - 1) + [float(answer == want)] if answer else []

@wrong("sum|list|each token|one number|all|type")
def reward_until_wrong(answer, want):
    return sum(1 / len(want) for i in range(len(answer)) if answer[:i + 1] == want[:i + 1])

@wrong("it\\b|itself|first wrong|one too many|late|before|wrong one|and every|off by one")
def reward_until_wrong(answer, want):
    return [1 / len(want) if i < len(want) and answer[:i] == want[:i] else 0. for i in range(len(answer))]

@wrong("right to left|from the end|back|order|direction|last|suffix|revers|before")
def reward_until_wrong(answer, want):
    return [1 / len(want) if answer[i:] == want[i:] else 0. for i in range(len(answer))]

@wrong("eos|end|last|len|included|minus 1|- 1")
def reward_until_wrong(answer, want):
    return [1 / max(len(want) - 1, 1) if answer[:i + 1] == want[:i + 1] else 0. for i in range(len(answer))]

@wrong("whole|all|partial|until|right answer|before it|share|every|flawless")
def reward_until_wrong(answer, want): return [1 / len(want) if answer == want else 0. for _ in answer]

@wrong("-|negativ|0\\b|wrong|else 0|minus")
def reward_until_wrong(answer, want):
    return [1 / len(want) if answer[:i + 1] == want[:i + 1] else -1 / len(want) for i in range(len(answer))]

@wrong("cumul|running|sum|each token|grow")
def reward_until_wrong(answer, want):
    return [(i + 1) / len(want) if answer[:i + 1] == want[:i + 1] else 0. for i in range(len(answer))]

@wrong("same place|place|anywhere|in\\b|position|order")
def reward_until_wrong(answer, want):
    out, good = [], True
    for t in answer:
        good = good and t in want
        out.append(1 / len(want) if good else 0.)
    return out

@two("len|after|before|length|divid|luck|until|flag|share|wrong one")
def reward_until_wrong(answer, want):
    return [1 / len(answer) if i < len(want) and t == want[i] else 0. for i, t in enumerate(answer)]

# 18 q faults: fixed_target
@right
def fixed_target(reward, value, last, gamma):
    return reward + gamma * torch.where(last, torch.zeros_like(value), value).detach()

@right
def fixed_target(reward, value, last, gamma):
    v = value.detach().clone()
    v[last] = 0
    return reward + v * gamma

@wrong("nan|\\*|times|multipl|last")
def fixed_target(reward, value, last, gamma): return reward + gamma * value.detach() * ~last

@wrong("last|nothing follows|end|terminal")
def fixed_target(reward, value, last, gamma): return reward + gamma * value.detach()

@wrong("gradient|detach|constant|value")
def fixed_target(reward, value, last, gamma): return reward + gamma * value.masked_fill(last, 0.)

@wrong("γ|gamma")
def fixed_target(reward, value, last, gamma): return reward + value.detach().masked_fill(last, 0.)

@wrong("turned|last|other way|opposite|~|invert")
def fixed_target(reward, value, last, gamma): return reward + gamma * value.detach().masked_fill(~last, 0.)

@wrong("negativ|sign|reward|positive|> 0|below 0|cost")
def fixed_target(reward, value, last, gamma):
    v = gamma * value.detach().masked_fill(last, 0.)
    return torch.where(reward > 0, reward, v)

@wrong("reward|either|where|value|plus|sum|both|instead|not 0|!=")
def fixed_target(reward, value, last, gamma):
    v = gamma * value.detach().masked_fill(last, 0.)
    return torch.where(reward != 0, reward, v)

@wrong("γ|gamma|every token|where a reward|front|only")
def fixed_target(reward, value, last, gamma):
    v = value.detach().masked_fill(last, 0.)
    return torch.where(reward != 0, reward + gamma * v, v)

@wrong("shift|i \\+ 1|next|one token|value\\[i|after|twice|left")
def fixed_target(reward, value, last, gamma):
    v = torch.cat([value[:, 1:], torch.zeros_like(value[:, :1])], 1).detach()
    return reward + gamma * v.masked_fill(last, 0.)

@wrong("γ|gamma|reward|both|bracket")
def fixed_target(reward, value, last, gamma): return gamma * (reward + value.detach().masked_fill(last, 0.))

@wrong("reward|missing|term")
def fixed_target(reward, value, last, gamma): return gamma * value.detach().masked_fill(last, 0.) + 0 * reward

@wrong("sign|minus|plus|negativ")
def fixed_target(reward, value, last, gamma): return reward - gamma * value.detach().masked_fill(last, 0.)

@wrong("nan|hides|last|nothing follows")
def fixed_target(reward, value, last, gamma): return reward + gamma * value.detach().nan_to_num(0.)

@wrong("last|reward|0\\b|missing|nothing|whole")
def fixed_target(reward, value, last, gamma):
    return (reward + gamma * value.detach()).masked_fill(last, 0.)

@wrong("in place|changed|changes|argument|input|overwr|writes")
def fixed_target(reward, value, last, gamma):
    v = value.detach()
    v[last] = 0.
    return reward + gamma * v

@wrong("max|plus|sum|instead|larger|add")
def fixed_target(reward, value, last, gamma):
    return torch.maximum(reward, gamma * value.detach().masked_fill(last, 0.))

@wrong("last column|row|column|pads|last")
def fixed_target(reward, value, last, gamma):
    v = value.detach().clone()
    v[:, -1] = 0.
    return reward + gamma * v

@two("γ|gamma|last|gradient|detach|nothing follows|end")
def fixed_target(reward, value, last, gamma): return reward + value.detach()

# fixed_pull
@right
def fixed_pull(q, ids, mask, lowest):
    square = (q - lowest)**2
    taken = square.gather(-1, ids[..., None])[..., 0]
    return ((square.sum(-1) - taken) / (q.shape[-1] - 1))[mask].mean()

@right
def fixed_pull(q, ids, mask, lowest):
    other = torch.arange(q.shape[-1]) != ids[..., None]
    each = (torch.where(other, q - lowest, 0.)**2).sum(-1) / other.sum(-1)
    return torch.where(mask, each, 0.).sum() / mask.sum()

def _fp(q, ids, mask, lowest, over=1, put=None):
    square = (q - lowest)**2
    taken = square.gather(-1, ids[..., None])[..., 0]
    each = (square.sum(-1) - taken) / (q.shape[-1] - over)
    return each[mask].mean() if put is None else put(each, square, taken)

@wrong("taken|other|all but|data|own action|turned")
def fixed_pull(q, ids, mask, lowest): return _fp(q, ids, mask, lowest, put=lambda e, s, t: t[mask].mean())

@wrong("taken|all actions|all but|minus|others|every action")
def fixed_pull(q, ids, mask, lowest): return _fp(q, ids, mask, lowest, put=lambda e, s, t: s.mean(-1)[mask].mean())

@wrong("m - 1|v - 1|- 1|n - 1|number of|divid|others")
def fixed_pull(q, ids, mask, lowest): return _fp(q, ids, mask, lowest, over=0)

@wrong("mask|pads|all tokens|counted|prompt|every")
def fixed_pull(q, ids, mask, lowest): return _fp(q, ids, mask, lowest, put=lambda e, s, t: e.mean())

@wrong("sum|mean|divid|number")
def fixed_pull(q, ids, mask, lowest): return _fp(q, ids, mask, lowest, put=lambda e, s, t: e[mask].sum())

@wrong("mask|all|divid|number|numel|pads|entries|counted|mean")
def fixed_pull(q, ids, mask, lowest): return _fp(q, ids, mask, lowest, put=lambda e, s, t: (e * mask).mean())

@wrong("lowest|r_min|0\\b|minus|pulled")
def fixed_pull(q, ids, mask, lowest): return _fp(q, ids, mask, 0., )

@wrong("lowest|sign|plus|minus|r_min")
def fixed_pull(q, ids, mask, lowest): return _fp(q, ids, mask, -lowest)

@wrong("square|abs|absolute|power|\\*\\*")
def fixed_pull(q, ids, mask, lowest):
    off = (q - lowest).abs()
    taken = off.gather(-1, ids[..., None])[..., 0]
    return ((off.sum(-1) - taken) / (q.shape[-1] - 1))[mask].mean()

@wrong("square|order|first|mean|before|after|inside|jensen|power")
def fixed_pull(q, ids, mask, lowest):
    taken = q.gather(-1, ids[..., None])[..., 0]
    return (((q.sum(-1) - taken) / (q.shape[-1] - 1) - lowest)**2)[mask].mean()

@wrong("row|response|token|each row|same weight|mean over")
def fixed_pull(q, ids, mask, lowest):
    return _fp(q, ids, mask, lowest, put=lambda e, s, t: ((e * mask).sum(1) / mask.sum(1).clamp(min=1)).mean())

@wrong("sum|mean over|actions|divid|v - 1|number of|others|m - 1")
def fixed_pull(q, ids, mask, lowest):
    return _fp(q, ids, mask, lowest, put=lambda e, s, t: (s.sum(-1) - t)[mask].mean())

@wrong("mask|turned|other way|opposite|invert")
def fixed_pull(q, ids, mask, lowest): return _fp(q, ids, mask, lowest, put=lambda e, s, t: e[~mask].mean())

@wrong("lowest|taken|subtract|minus|mask|zeroed|0\\b|r_min|counts|action")
def fixed_pull(q, ids, mask, lowest):
    other = q.scatter(-1, ids[..., None], 0.)
    return (((other - lowest)**2).sum(-1) / (q.shape[-1] - 1))[mask].mean()

@wrong("gradient|detach|constant")
def fixed_pull(q, ids, mask, lowest): return _fp(q.detach(), ids, mask, lowest)

@wrong("half|/ 2|factor|2|½")
def fixed_pull(q, ids, mask, lowest): return _fp(q, ids, mask, lowest) / 2

@two("m - 1|v - 1|mask|number of|divid|pads|all tokens|- 1|entries|mean")
def fixed_pull(q, ids, mask, lowest): return _fp(q, ids, mask, lowest, over=0, put=lambda e, s, t: e.mean())

# 19 your model: short_right
@right
def short_right(prompts, responses, answer):
    out = []
    for text, want in zip(responses, answer):
        found = re.findall(r"\d+", text)
        if not found or found[-1] != str(want): out.append(0.)
        else: out.append(1. if len(text.split()) <= 12 else .5)
    return out

@right
def short_right(prompts, responses, answer):
    def one(text, want):
        digits = re.search(r"(\d+)\D*$", text)
        if digits is None or digits[1] != f"{want}": return 0
        return .5 if len(text.split()) > 12 else 1
    return [one(*each) for each in zip(responses, answer)]

def _sr(responses, answer, number=None, same=None, pay=None):
    out = []
    for text, want in zip(responses, answer):
        found = re.findall(r"\d+", text)
        got = (number or (lambda f: f[-1]))(found) if found else None
        ok = got is not None and (same or (lambda g, w: g == str(w)))(got, want)
        n = len(text.split())
        out.append(pay(ok, n, text) if pay else float(ok) * (1. if n <= 12 else .5))
    return out

@wrong("first|last number|last")
def short_right(prompts, responses, answer): return _sr(responses, answer, number=lambda f: f[0])

@wrong("text|number|type|str|int|compare|file")
def short_right(prompts, responses, answer): return _sr(responses, answer, same=lambda g, w: g == w)

@wrong("text|number|type|str|int|compare|file")
def short_right(prompts, responses, answer): return _sr(responses, answer, same=lambda g, w: int(g) == w)

@wrong("wrong|short|0\\b|earns|however")
def short_right(prompts, responses, answer):
    return _sr(responses, answer, pay=lambda ok, n, t: (1. if n <= 12 else .5) if ok else (.5 if n <= 12 else 0.))

@wrong("12|twelve|at most|less than|<=|exactly|words")
def short_right(prompts, responses, answer):
    return _sr(responses, answer, pay=lambda ok, n, t: float(ok) * (1. if n < 12 else .5))

@wrong("12|twelve|13|words|at most|one too many|<=")
def short_right(prompts, responses, answer):
    return _sr(responses, answer, pay=lambda ok, n, t: float(ok) * (1. if n <= 13 else .5))

@wrong("words|characters|letters|length|split|long")
def short_right(prompts, responses, answer):
    return _sr(responses, answer, pay=lambda ok, n, t: float(ok) * (1. if len(t) <= 12 else .5))

@wrong("longer|\\.5|half|0\\b|beyond|long")
def short_right(prompts, responses, answer): return _sr(responses, answer, pay=lambda ok, n, t: float(ok and n <= 12))

@wrong("length|long|\\.5|12|twelve|ignored|beyond|words")
def short_right(prompts, responses, answer): return _sr(responses, answer, pay=lambda ok, n, t: float(ok))

@wrong("no number|empty|index|without|list|none")
def short_right(prompts, responses, answer):
    return [float(re.findall(r"\d+", t)[-1] == str(w)) * (1. if len(t.split()) <= 12 else .5)
            for t, w in zip(responses, answer)]

@wrong("digit|together|whole|single|\\+|last digit|number")
def short_right(prompts, responses, answer):
    return _sr(responses, answer, number=lambda f: f[-1][-1])

@wrong("any|last|anywhere|in\\b|inside|contains|substring|number")
def short_right(prompts, responses, answer):
    return [(1. if len(t.split()) <= 12 else .5) if str(w) in t else 0. for t, w in zip(responses, answer)]

@wrong("prompt|response|words|count|question|argument")
def short_right(prompts, responses, answer):
    out = []
    for p, t, w in zip(prompts, responses, answer):
        found = re.findall(r"\d+", t)
        n = len((str(p) + " " + t).split())
        out.append((1. if n <= 12 else .5) if found and found[-1] == str(w) else 0.)
    return out

@wrong("first|one|list|each|every|all|mean|number|type")
def short_right(prompts, responses, answer):
    x = _sr(responses, answer)
    return sum(x) / max(len(x), 1)

@wrong("turned|longer|short|\\.5|swap|other way|12|1\\b")
def short_right(prompts, responses, answer):
    return _sr(responses, answer, pay=lambda ok, n, t: float(ok) * (.5 if n <= 12 else 1.))

@wrong("-|negativ|0\\b|wrong|minus|earns")
def short_right(prompts, responses, answer):
    return _sr(responses, answer, pay=lambda ok, n, t: (1. if n <= 12 else .5) if ok else -1.)

@wrong("words|space|split|count|punctuation|between|double|12")
def short_right(prompts, responses, answer):
    return _sr(responses, answer, pay=lambda ok, n, t: float(ok) * (1. if t.count(" ") <= 12 else .5))

@wrong("text|number|value|text with text|leading|type|int|zero|digits|file|str|spell|error")
def short_right(prompts, responses, answer): return _sr(responses, answer, same=lambda g, w: [int(g)] == [w] or [g] == w)

@two("first|last|\\.5|beyond|longer|long")
def short_right(prompts, responses, answer):
    return _sr(responses, answer, number=lambda f: f[0], pay=lambda ok, n, t: float(ok and n <= 12))

# 21 distillation: forward_kl
@right
def forward_kl(logp, teacher_logp, token): return (teacher_logp.exp() * (teacher_logp - logp)).sum(-1)

@right
def forward_kl(logp, teacher_logp, token):
    return F.kl_div(logp, teacher_logp, reduction="none", log_target=True).sum(-1)

@right
def forward_kl(logp, teacher_logp, token):
    p = teacher_logp.exp()
    return torch.einsum("...v,...v->...", p, teacher_logp) - torch.einsum("...v,...v->...", p, logp)

@wrong("reverse|student|weight|turned|swap|direction|other")
def forward_kl(logp, teacher_logp, token): return (logp.exp() * (logp - teacher_logp)).sum(-1)

@wrong("sign|minus|negativ|turned")
def forward_kl(logp, teacher_logp, token): return (teacher_logp.exp() * (logp - teacher_logp)).sum(-1)

@wrong("weight|student|teacher")
def forward_kl(logp, teacher_logp, token): return (logp.exp() * (teacher_logp - logp)).sum(-1)

@wrong("sum|mean|divid|number|v\\b")
def forward_kl(logp, teacher_logp, token): return (teacher_logp.exp() * (teacher_logp - logp)).mean(-1)

@wrong("axis|last|sum|shape|each place|one number|all")
def forward_kl(logp, teacher_logp, token): return (teacher_logp.exp() * (teacher_logp - logp)).sum()

@wrong("exp|probab|weight|log")
def forward_kl(logp, teacher_logp, token): return (teacher_logp * (teacher_logp - logp)).sum(-1)

@wrong("entropy|teacher|cross|term|missing|constant")
def forward_kl(logp, teacher_logp, token): return -(teacher_logp.exp() * logp).sum(-1)

@wrong("gradient|detach|student")
def forward_kl(logp, teacher_logp, token): return (teacher_logp.exp() * (teacher_logp - logp.detach())).sum(-1)

@wrong("token|sampled|not read|sum|gather|all|v\\b|single")
def forward_kl(logp, teacher_logp, token):
    return (teacher_logp.exp() * (teacher_logp - logp)).gather(-1, token[..., None])[..., 0]

@wrong("weight|probab|teacher|exp|π_t|missing")
def forward_kl(logp, teacher_logp, token): return (teacher_logp - logp).sum(-1)

@wrong("abs|absolute|sign|negativ")
def forward_kl(logp, teacher_logp, token): return (teacher_logp.exp() * (teacher_logp - logp).abs()).sum(-1)

@wrong("ratio|divid|quotient|log|difference|minus")
def forward_kl(logp, teacher_logp, token): return (teacher_logp.exp() * (teacher_logp / logp).log()).sum(-1)

@wrong("half|symmetr|jensen|both|mean|reverse|average")
def forward_kl(logp, teacher_logp, token):
    return ((teacher_logp.exp() - logp.exp()) * (teacher_logp - logp)).sum(-1) / 2

@wrong("batch|mean|shape|each place|one number|average|reduction")
def forward_kl(logp, teacher_logp, token): return F.kl_div(logp, teacher_logp, reduction="batchmean", log_target=True)

@wrong("log|target|exp|probab|weight")
def forward_kl(logp, teacher_logp, token): return F.kl_div(logp.exp(), teacher_logp.exp(), reduction="none").sum(-1)

@wrong("keep|shape|axis|last|1\\b")
def forward_kl(logp, teacher_logp, token): return (teacher_logp.exp() * (teacher_logp - logp)).sum(-1, keepdim=True)

@wrong("axis|first|dim|last|row|shape")
def forward_kl(logp, teacher_logp, token): return (teacher_logp.exp() * (teacher_logp - logp)).sum(0)

@two("sign|weight|student|teacher|reverse|mean|sum")
def forward_kl(logp, teacher_logp, token): return (logp.exp() * (logp - teacher_logp)).mean(-1)

# sampled_kl
@right
def sampled_kl(logp, teacher_logp, token):
    mine = logp.gather(-1, token[..., None])[..., 0]
    r = (teacher_logp.gather(-1, token[..., None])[..., 0] - mine).detach()
    return -r * mine

@right
def sampled_kl(logp, teacher_logp, token):
    own = F.one_hot(token, logp.shape[-1]).bool()
    a, b = logp.masked_fill(~own, 0).sum(-1), teacher_logp.masked_fill(~own, 0).sum(-1)
    with torch.no_grad(): gap = a - b
    return gap * a

def _two_at(logp, teacher_logp, token): return _pick(logp, token), _pick(teacher_logp, token)

@wrong("detach|gradient|constant")
def sampled_kl(logp, teacher_logp, token):
    a, b = _two_at(logp, teacher_logp, token)
    return -(b - a) * a

@wrong("sign|minus|negativ")
def sampled_kl(logp, teacher_logp, token):
    a, b = _two_at(logp, teacher_logp, token)
    return (b - a).detach() * a

@wrong("log|gradient|times|factor|missing|r\\b|constant|log π")
def sampled_kl(logp, teacher_logp, token):
    a, b = _two_at(logp, teacher_logp, token)
    return a - b

@wrong("detach|gradient|constant|all|nothing|too much|student")
def sampled_kl(logp, teacher_logp, token):
    a, b = _two_at(logp, teacher_logp, token)
    return (-(b - a) * a).detach()

@wrong("student|reward|minus|missing|term|- log|r\\b")
def sampled_kl(logp, teacher_logp, token):
    a, b = _two_at(logp, teacher_logp, token)
    return -b.detach() * a

@wrong("exp|ratio|log|difference")
def sampled_kl(logp, teacher_logp, token):
    a, b = _two_at(logp, teacher_logp, token)
    return -(b - a).exp().detach() * a

@wrong("probab|exp|log")
def sampled_kl(logp, teacher_logp, token):
    a, b = _two_at(logp, teacher_logp, token)
    return -(b - a).detach() * a.exp()

@wrong("mean|shape|each|one number|per token")
def sampled_kl(logp, teacher_logp, token):
    a, b = _two_at(logp, teacher_logp, token)
    return (-(b - a).detach() * a).mean()

@wrong("sampled|token|gather|all|sum|v\\b|every")
def sampled_kl(logp, teacher_logp, token): return (-(teacher_logp - logp).detach() * logp).sum(-1)

@wrong("likeliest|argmax|max|sampled|token|largest")
def sampled_kl(logp, teacher_logp, token): return _two_at_max(logp, teacher_logp)

def _two_at_max(logp, teacher_logp):
    a, b = _two_at(logp, teacher_logp, logp.argmax(-1))
    return -(b - a).detach() * a

@wrong("teacher|student|log|swap|exchang|multipl|which")
def sampled_kl(logp, teacher_logp, token):
    a, b = _two_at(logp, teacher_logp, token)
    return -(b - a).detach() * b + 0 * a

@wrong("shape|broadcast|squeeze|keep|axis|1\\b")
def sampled_kl(logp, teacher_logp, token):
    a, b = logp.gather(-1, token[..., None]), teacher_logp.gather(-1, token[..., None])
    return -(b - a).detach() * a

@wrong("clamp|clip|negativ|sign|positive|0\\b|relu")
def sampled_kl(logp, teacher_logp, token):
    a, b = _two_at(logp, teacher_logp, token)
    return -(b - a).detach().clamp(min=0) * a

@wrong("baseline|mean|constant|subtract|minus|cent")
def sampled_kl(logp, teacher_logp, token):
    a, b = _two_at(logp, teacher_logp, token)
    r = (b - a).detach()
    return -(r - r.mean()) * a

@wrong("sum|whole|later|to go|cumul|each|response|own")
def sampled_kl(logp, teacher_logp, token):
    a, b = _two_at(logp, teacher_logp, token)
    r = (b - a).detach()
    return -r.flip(-1).cumsum(-1).flip(-1) * a

@wrong("reward|r\\b|detach|gradient|student|constant|which|teacher|wrong one")
def sampled_kl(logp, teacher_logp, token):
    a, b = _two_at(logp, teacher_logp, token)
    return -(b - a) * a.detach()

@two("detach|gradient|sign|constant|minus")
def sampled_kl(logp, teacher_logp, token):
    a, b = _two_at(logp, teacher_logp, token)
    return (b - a) * a

# fixed_alignment
@right
def fixed_alignment(x, mask):
    n = mask.sum(1)
    out = x.new_zeros(len(x), int(n.max()))
    out[torch.arange(out.shape[1]) < n[:, None]] = x[mask]
    return out

@right
def fixed_alignment(x, mask):
    rows = [row[m] for row, m in zip(x, mask)]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

@right
def fixed_alignment(x, mask):
    r = int(mask.sum(1).max())
    order = (~mask).long().sort(dim=1, stable=True).indices
    return x.masked_fill(~mask, 0).gather(1, order)[:, :r]

def _left(x, mask):
    out = x.new_zeros(x.shape)
    out[torch.arange(x.shape[1]) < mask.sum(1)[:, None]] = x[mask]
    return out

@wrong("left|column|move|place|shift|where they")
def fixed_alignment(x, mask): return x.masked_fill(~mask, 0)

@wrong("wide|width|longest|r\\b|shape|columns|t\\b")
def fixed_alignment(x, mask): return _left(x, mask)

@wrong("right|left|side|end|column 0|behind|front")
def fixed_alignment(x, mask):
    r, n = int(mask.sum(1).max()), mask.sum(1)
    out = x.new_zeros(len(x), r)
    out[torch.arange(r) >= r - n[:, None]] = x[mask]
    return out

@wrong("0\\b|nan|behind|fill|pad|zero")
def fixed_alignment(x, mask):
    r, n = int(mask.sum(1).max()), mask.sum(1)
    out = torch.full((len(x), r), torch.nan, dtype=x.dtype)
    out[torch.arange(r) < n[:, None]] = x[mask]
    return out

@wrong("flat|row|shape|one row|1-d|list")
def fixed_alignment(x, mask): return x[mask]

@wrong("first|gap|start|inside|hole|mask|where|behind|other values|after")
def fixed_alignment(x, mask):
    r, start = int(mask.sum(1).max()), mask.long().argmax(1)
    at = start[:, None] + torch.arange(r)
    n = mask.sum(1)
    out = F.pad(x, (0, r)).gather(1, at)
    return out.masked_fill(torch.arange(r) >= n[:, None], 0)

@wrong("behind|0\\b|zero|pad|shorter|rest|other values|fill|copied")
def fixed_alignment(x, mask):
    r = int(mask.sum(1).max())
    order = (~mask).long().sort(dim=1, stable=True).indices
    return x.gather(1, order)[:, :r]

@wrong("order|sort|revers|largest|descend|own order|turned|sequence")
def fixed_alignment(x, mask): return _left(x, mask).flip(1)[:, x.shape[1] - int(mask.sum(1).max()):]

@wrong("order|sort|own order|largest|descend|sequence|value")
def fixed_alignment(x, mask):
    y = x.masked_fill(~mask, -torch.inf).sort(1, descending=True).values[:, :int(mask.sum(1).max())]
    return y.masked_fill(y == -torch.inf, 0)

@wrong("width|shortest|longest|min|cut|lost|r\\b|columns")
def fixed_alignment(x, mask): return _left(x, mask)[:, :int(mask.sum(1).min())]

@wrong("mask|turned|other way|opposite|invert|false")
def fixed_alignment(x, mask): return _left(x, ~mask)[:, :int((~mask).sum(1).max())]

@wrong("one too|width|r\\b|longest|r \\+ 1|columns|shape|wide|off by one")
def fixed_alignment(x, mask):
    return F.pad(_left(x, mask), (0, 1))[:, :int(mask.sum(1).max()) + 1]

@wrong("one too|width|r\\b|longest|r - 1|columns|shape|wide|last|lost|off by one")
def fixed_alignment(x, mask): return _left(x, mask)[:, :max(int(mask.sum(1).max()) - 1, 0)]

@wrong("gradient|detach")
def fixed_alignment(x, mask): return _left(x.detach(), mask)[:, :int(mask.sum(1).max())]

@wrong("list|tensor|shape|type|pad")
def fixed_alignment(x, mask): return [row[m] for row, m in zip(x, mask)]

@wrong("row|fill|view|reshape|other row|flat|mixed|leak|next row|row by row|order")
def fixed_alignment(x, mask):
    r = int(mask.sum(1).max())
    flat = x[mask]
    return F.pad(flat, (0, len(x) * r - len(flat))).view(len(x), r)

@wrong("column|row|first row|each row|own|all rows|every row|same")
def fixed_alignment(x, mask):
    keep = mask.any(0)
    return x.masked_fill(~mask, 0)[:, keep]

@wrong("0\\b|zero|value|where|mask|equal|lost|drops")
def fixed_alignment(x, mask):
    y = x.masked_fill(~mask, 0)
    return _left(y, (y != 0))[:, :int(mask.sum(1).max())]

@two("right|behind|wide|width|left|r\\b|longest|side|columns|front")
def fixed_alignment(x, mask): return _left(x.flip(1), mask.flip(1)).flip(1)
