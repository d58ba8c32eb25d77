"""A seventh battery, part a: written from stubs and task texts alone, without sight of the check. OWN: False where a wrong answer is a right text with one edit."""
import math, random, re, torch
import torch.nn.functional as F
from battery_maker import battery
from einops import rearrange, reduce, repeat
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from rlhf_nb.base.batches import at_least_float32, host_rows, send_to
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.models import ScalarModel
from rlhf_nb.base.sampling import SamplingParams
from rlhf_nb.base.settings import check_number
from rlhf_nb.kl import kl_k1, kl_k2, kl_penalty
from rlhf_nb.tokens import (Seqs, _kept, last_token_index, make_seqs, masked_mean, masked_sum, shift_right,
                            token_logprobs)
from rlhf_nb.world import CRITERIA, FLATTERY_BONUS, annotate, criteria, gold_score, utility
from rlhf_nb.worlds.oracle import MicroWorld, all_logprobs, expectation
from rlhf_nb.worlds.world_text import FACTS, PHRASES, SENTENCES, VALUES, Question, parse_sentences

WRONG, RIGHT, SLIPS, OWN, wrong, right, edits = battery(globals())

# ---------------------------------------------------------------- 02 shift_right
edits("shift_right", '''
def shift_right(x):
    out = torch.zeros_like(x)
    out[:, 1:] = x[:, :-1]
    return out
''',
    ("shifts to the left: row i of the result is row i+1 of x", r"left|direction|wrong way|row i ?\+ ?1|next row|row i-1|row i - 1",
     "out[:, 1:] = x[:, :-1]", "out[:, :-1] = x[:, 1:]"),
    ("shifts by two rows", r"two|by 2|twice|row i-1|row i - 1|one row", "out[:, 1:] = x[:, :-1]", "out[:, 2:] = x[:, :-2]"),
    ("shifts the batch axis, not the time axis", r"axis 0|axis 1|batch|time axis|other row|rows of the batch|dim|sequence",
     "out[:, 1:] = x[:, :-1]", "out[1:] = x[:-1]"),
    ("detaches: no gradient flows through the shift", r"gradient|detach|backward|requires_grad|autograd",
     "x[:, :-1]", "x[:, :-1].detach()"),
    ("puts -100 into row 0, not 0", r"row 0|first row|-100|must be 0|is 0|zero", "torch.zeros_like(x)", "torch.full_like(x, -100)"))
right("shift_right", '''
def shift_right(x):
    at = torch.arange(x.shape[1], device=x.device) - 1
    moved = x.index_select(1, at.clamp(min=0))
    first = (at < 0).view(1, -1, *[1] * (x.dim() - 2))
    return moved.masked_fill(first, 0)
''')
right("shift_right", '''
def shift_right(x):
    y = torch.roll(x, 1, dims=1).clone()
    y[:, :1] = torch.zeros_like(y[:, :1])
    return y
''')
wrong("shift_right", "rolls round: row 0 holds the last row of x", r"row 0|first row|wrap|last row|roll|must be 0|is 0|zero", '''
def shift_right(x):
    return torch.roll(x, shifts=1, dims=1)
''')
wrong("shift_right", "shifts the last axis, which is not time when there are further axes",
      r"last axis|axis 1|further ax|time axis|any number of|3-d|three|dim|vocab|\(b t v\)|\(b t \.\.\.\)", '''
def shift_right(x):
    return F.pad(x, (1, 0))[..., :-1]
''')
wrong("shift_right", "keeps the last row: the result is one row longer than x", r"shape|longer|length|last row|one (row|column) (too|more)|same", '''
def shift_right(x):
    zero = torch.zeros_like(x[:, :1])
    return torch.cat([zero, x], dim=1)
''')
wrong("shift_right", "the zeros are float32, so a bool or an integer becomes a float", r"dtype|type|bool|float|int", '''
def shift_right(x):
    b, _, *rest = x.shape
    zeros = torch.zeros(b, 1, *rest)
    return torch.cat((zeros, x[:, :-1]), 1)
''')
wrong("shift_right", "repeats the first row in row 0 where 0 must stand", r"row 0|first row|repeat|must be 0|is 0|zero", '''
def shift_right(x):
    rows = [x[:, max(i - 1, 0)] for i in range(x.shape[1])]
    return torch.stack(rows, dim=1)
''')
wrong("shift_right", "writes into the tensor that it was given", r"in place|in-place|input|changed|mutat|modif|written|caller|copy|clone", '''
def shift_right(x):
    with torch.no_grad():
        for i in range(x.shape[1] - 1, 0, -1):
            x[:, i] = x[:, i - 1]
        x[:, 0] = 0
    return x
''')
wrong("shift_right", "multiplies row 0 by zero, so a nan or inf of the last row stays there as nan", r"nan|inf|row 0|first row|multipl|0 ?[·*x×] ?", '''
def shift_right(x):
    t = x.shape[1]
    keep = torch.arange(t, device=x.device) > 0
    keep = keep.view(1, t, *(1 for _ in x.shape[2:]))
    return x.roll(1, 1) * keep
''')
wrong("shift_right", "copies from left to right in one buffer, so row 0 of x fills every row", r"row i-1|row i - 1|row 2|first row|overwr|copied|same row|every row|all rows|previous|shift", '''
def shift_right(x):
    out = x.clone()
    for i in range(1, x.shape[1]):
        out[:, i] = out[:, i - 1]
    out[:, 0] = 0
    return out
''')
wrong("shift_right", "works for (b t) only and fails on further axes", r"further ax|any number|ax(i|e)s|\(b t v\)|3-d|dim|unpack|shape|\(b t \.\.\.\)", '''
def shift_right(x):
    b, t = x.shape
    return torch.cat([x.new_zeros(b, 1), x[:, :t - 1]], dim=1)
''')

# ---------------------------------------------------------------- 02 token_logprobs
edits("token_logprobs", '''
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape:
        raise ValueError(f"logits {tuple(logits.shape)} do not fit ids {tuple(ids.shape)}")
    wide = torch.promote_types(logits.dtype, torch.float32)
    logp = logits.to(wide).log_softmax(-1)
    picked = logp[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    first = torch.zeros_like(logp[:, :1, 0])
    return torch.cat([first, picked], dim=1)
''',
    ("puts the 0 at the end, so entry i belongs to token i+1", r"entry 0|entry i|shift|token i|column|first|belongs|end",
     "[first, picked]", "[picked, first]"),
    ("leaves bf16 logits in bf16", r"float32|bf16|bfloat16|precision|dtype|digits",
     "logits.to(wide).log_softmax(-1)", "logits.log_softmax(-1)"),
    ("normalises over the time axis, not over the vocabulary", r"axis|vocab|time|last ax|normali|dim|over the tokens|sum to 1|\.693",
     "log_softmax(-1)", "log_softmax(1)"),
    ("returns the raw logits of the tokens, without log_softmax", r"normali|log_softmax|softmax|logit|constant|adding|added|\+ ?7|sum to 1",
     "logits.to(wide).log_softmax(-1)", "logits.to(wide)"),
    ("forms the probability first, so an improbable token gets -inf", r"-?inf|underflow|log_softmax|improbable|probab|finite|−∞",
     "logits.to(wide).log_softmax(-1)", "logits.to(wide).softmax(-1).log()"),
    ("gives the negative log-prob", r"sign|negative|minus|0 or less|above 0|positive", "[first, picked]", "[first, -picked]"),
    ("does not refuse logits and ids of different (b t)", r"valueerror|refus|raise|shape|differ|must share|\(b t\)",
     'raise ValueError(f"logits {tuple(logits.shape)} do not fit ids {tuple(ids.shape)}")', "ids = ids[:, :logits.shape[1]]"))
right("token_logprobs", '''
def token_logprobs(logits, ids):
    if ids.shape != logits.shape[:-1]: raise ValueError("logits and ids need the same (b t)")
    if logits.dtype in (torch.float16, torch.bfloat16): logits = logits.float()
    out = logits.new_zeros(ids.shape)
    nll = F.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
    out[:, 1:] = -nll
    return out
''')
right("token_logprobs", '''
def token_logprobs(logits, ids):
    if tuple(logits.shape[:2]) != tuple(ids.shape):
        raise ValueError("token_logprobs: one row of logits for each id, please")
    wide = torch.promote_types(torch.float32, logits.dtype)
    rows = []
    for scores, row in zip(logits, ids):
        logp = torch.log_softmax(scores, dim=-1, dtype=wide)
        line = [logp.new_zeros(())]
        for i in range(1, len(row)): line.append(logp[i - 1, row[i]])
        rows.append(torch.stack(line))
    return torch.stack(rows)
''')
wrong("token_logprobs", "does not shift: entry i asks how probable token i is after token i itself", r"shift|entry 0|after token|before|slip|token i|not shifted", '''
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError("shapes differ")
    logp = logits.log_softmax(-1, torch.promote_types(logits.dtype, torch.float32))
    return logp.gather(-1, ids[..., None])[..., 0]
''')
wrong("token_logprobs", "drops entry 0: the result has t-1 columns", r"shape|column|entry 0|t ?- ?1|\(b t\)|shorter|length", '''
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError("shapes differ")
    if logits.dtype != torch.float64: logits = logits.float()
    return -F.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
''')
wrong("token_logprobs", "shifts the logits and normalises afterwards, so entry 0 is -log v, not 0", r"entry 0|first|must be 0|is 0|uniform|-log|log\(1/|zero", '''
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError("logits and ids differ in (b t)")
    before = shift_right(logits)
    wide = torch.promote_types(before.dtype, torch.float32)
    return before.log_softmax(-1, wide).gather(2, ids.unsqueeze(2)).squeeze(2)
''')
wrong("token_logprobs", "takes the likeliest token's log-prob, not that of the token that stands there", r"ids|likeliest|max|token that|picked|gather|which token|of the token|token i", '''
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError("logits and ids differ in (b t)")
    wide = torch.promote_types(logits.dtype, torch.float32)
    return shift_right(logits.log_softmax(-1, wide)).max(-1).values
''')
wrong("token_logprobs", "gives probabilities, not their logs", r"log|probabilit|0 or less|negative", '''
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError("logits and ids differ in (b t)")
    probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(-1)
    return shift_right(probs).gather(-1, ids[..., None])[..., 0]
''')
wrong("token_logprobs", "runs without gradient, so no loss can train on it", r"gradient|no_grad|detach|backward|requires_grad|autograd", '''
@torch.no_grad()
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError("logits and ids differ in (b t)")
    wide = torch.promote_types(logits.dtype, torch.float32)
    logp = shift_right(logits.log_softmax(-1, wide))
    return torch.take_along_dim(logp, ids[..., None], -1).squeeze(-1)
''')
wrong("token_logprobs", "adds the log-probs up along the row: entry i is that of the whole prefix", r"sum|cumul|prefix|add|each token|one token|token i|alone", '''
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError("logits and ids differ in (b t)")
    wide = torch.promote_types(logits.dtype, torch.float32)
    logp = shift_right(logits.log_softmax(-1, wide)).gather(-1, ids[..., None])[..., 0]
    return logp.cumsum(1)
''')
wrong("token_logprobs", "takes id 0 for the pad and gives such tokens 0", r"id 0|pad|token 0|word 0|every id|any id|masked", '''
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError("logits and ids differ in (b t)")
    wide = torch.promote_types(logits.dtype, torch.float32)
    logp = shift_right(logits.log_softmax(-1, wide)).gather(-1, ids[..., None])[..., 0]
    return logp * (ids != 0)
''')

# ---------------------------------------------------------------- 02 masked_mean
edits("masked_mean", '''
def masked_mean(x, mask):
    if x.shape != mask.shape: raise ValueError("x and mask must have one shape")
    if mask.dtype != torch.bool: raise ValueError("the mask must be bool")
    if not mask.any(): raise ValueError("the mask has no True entry")
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    kept = torch.where(mask, x, torch.zeros_like(x))
    return kept.sum() / mask.sum()
''',
    ("multiplies by the mask, so a masked nan reaches the mean", r"nan|inf|masked|multipl", "torch.where(mask, x, torch.zeros_like(x))", "x * mask"),
    ("divides by all entries, not by the True ones", r"divid|number of|count|true entr|numel|all entries|pads|denominator|mean", "mask.sum()", "mask.numel()"),
    ("divides by the number of rows", r"rows|divid|number of|count|token|denominator|mean", "/ mask.sum()", "/ len(mask)"),
    ("keeps the False entries", r"false|invert|mask|wrong entries|turned|opposite|mean", "torch.where(mask, x, torch.zeros_like(x))",
     "torch.where(mask, torch.zeros_like(x), x)"),
    ("gives nan for a mask without True, where ValueError is asked for", r"valueerror|refus|raise|no entry|empty|without|nothing|no true|0/0",
     '    if not mask.any(): raise ValueError("the mask has no True entry")\n', ""),
    ("stays in bf16", r"float32|bf16|bfloat16|precision|dtype|fp16|half", "    x = x.to(torch.promote_types(x.dtype, torch.float32))\n", ""),
    ("lets a mask of another shape broadcast", r"shape|broadcast|valueerror|differ|refus",
     '    if x.shape != mask.shape: raise ValueError("x and mask must have one shape")\n', ""),
    ("counts the kept entries that are not 0, so a loss of 0 is left out of the count", r"zero|\b0\b|count|number of|divid|denominator|true entr",
     "/ mask.sum()", "/ (kept != 0).sum()"))
right("masked_mean", '''
def masked_mean(x, mask):
    if mask.shape != x.shape: raise ValueError(f"mask {tuple(mask.shape)}, x {tuple(x.shape)}")
    if mask.dtype is not torch.bool: raise ValueError("masks are bool")
    chosen = x[mask]
    if chosen.numel() == 0: raise ValueError("a mean over nothing")
    return chosen.to(torch.promote_types(x.dtype, torch.float32)).mean()
''')
right("masked_mean", '''
def masked_mean(x, mask):
    if list(mask.shape) != list(x.shape): raise ValueError("mask and x differ in shape")
    values = [v for v, m in zip(x.flatten(), mask.flatten().tolist()) if m is True]
    if not values: raise ValueError("no entry of the mask is True")
    values = torch.stack(values)
    if values.dtype != torch.float64: values = values.float()
    return values.sum() / len(values)
''')
wrong("masked_mean", "takes the mean of the row means: the sequence mean", r"row mean|sequence mean|rows|same weight|every token|each token|mean of|token mean|5\.5", '''
def masked_mean(x, mask):
    if not mask.any(): raise ValueError("no True entry")
    rows = masked_sum(x, mask) / mask.sum(-1).clamp(min=1)
    return rows[mask.any(-1)].mean()
''')
wrong("masked_mean", "turns a nan that counts into 0", r"nan|counts|hidden|hide|real nan|unmasked", '''
def masked_mean(x, mask):
    if x.shape != mask.shape: raise ValueError("x and mask differ in shape")
    if not mask.any(): raise ValueError("no True entry")
    clean = torch.nan_to_num(x.to(torch.promote_types(x.dtype, torch.float32)), nan=0.)
    return clean[mask].sum() / mask.sum()
''')
wrong("masked_mean", "gives one mean per row", r"shape|one number|per row|rows|scalar|\(\)|single", '''
def masked_mean(x, mask):
    if not mask.any(): raise ValueError("no True entry")
    return _kept(x, mask).sum(-1) / mask.sum(-1).clamp(min=1)
''')
wrong("masked_mean", "overwrites the masked entries of x itself", r"in place|in-place|input|changed|mutat|modif|overwr|caller|copy|clone", '''
def masked_mean(x, mask):
    if x.shape != mask.shape: raise ValueError("x and mask differ in shape")
    if not mask.any(): raise ValueError("no True entry")
    x.detach()[~mask] = 0
    wide = torch.promote_types(x.dtype, torch.float32)
    return x.to(wide)[mask].sum() / mask.sum()
''')
wrong("masked_mean", "returns a Python number, so no gradient flows", r"tensor|gradient|item|float|detach|backward|number", '''
def masked_mean(x, mask):
    if x.shape != mask.shape: raise ValueError("x and mask differ in shape")
    if not mask.any(): raise ValueError("no True entry")
    values = x[mask].tolist()
    return sum(values) / len(values)
''')
wrong("masked_mean", "refuses a batch in which a single row is empty", r"row|empty|refus|valueerror|raise|no entry|any row|allowed", '''
def masked_mean(x, mask):
    if not mask.any(-1).all(): raise ValueError("a row of the mask holds no True entry")
    return _kept(x, mask).sum() / mask.sum()
''')
wrong("masked_mean", "refuses a nan that counts instead of giving nan", r"nan|refus|valueerror|raise", '''
def masked_mean(x, mask):
    if not mask.any(): raise ValueError("no True entry")
    kept = _kept(x, mask)
    if kept.isnan().any(): raise ValueError("x holds nan")
    return kept.sum() / mask.sum()
''')
wrong("masked_mean", "works for (b t) only, not for any shape", r"any shape|1-d|one ax|dim|shape|\(t\)|axes|axis", '''
def masked_mean(x, mask):
    if not mask.any(): raise ValueError("no True entry")
    total, n = 0., 0
    for values, keep in zip(_kept(x, mask).sum(dim=1), mask.sum(dim=1)):
        total, n = total + values, n + keep
    return total / n
''')
wrong("masked_mean", "adds up and never divides", r"sum|divid|mean|number of|count", '''
def masked_mean(x, mask):
    if not mask.any(): raise ValueError("no True entry")
    return masked_sum(x, mask).sum()
''')

# ---------------------------------------------------------------- 02 last_token_index
edits("last_token_index", '''
def last_token_index(attention_mask):
    real = attention_mask.bool()
    if not real.any(1).all(): raise ValueError("a row holds only padding")
    t = real.shape[1]
    from_the_end = real.flip(1).int().argmax(1)
    return t - 1 - from_the_end
''',
    ("finds the first real token", r"first|last|largest|end|earliest|right", "real.flip(1).int().argmax(1)", "t - 1 - real.int().argmax(1)"),
    ("is one too far to the right", r"off by one|one (too|column|further|place)|beyond|t-1|t - 1|out of range|pad|past", "return t - 1 - from_the_end", "return t - from_the_end"),
    ("refuses only if every row is padding, so one empty row gets a number", r"row|only padding|valueerror|refus|raise|empty", "real.any(1).all()", "real.any()"),
    ("gives (b 1), not (b)", r"shape|\(b\)|\(b 1\)|keepdim|axis|dim", "argmax(1)", "argmax(1, keepdim=True)"),
    ("counts from the end: negative positions", r"negative|from the end|0 to t|below 0|-1|range", "return t - 1 - from_the_end", "return -1 - from_the_end"),
    ("works per column: one position for each column, not for each row", r"column|row|axis|shape|\(b\)|dim",
     "real.flip(1).int().argmax(1)\n    return t - 1 - from_the_end", "real.flip(0).int().argmax(0)\n    return len(real) - 1 - from_the_end"))
right("last_token_index", '''
def last_token_index(attention_mask):
    seen = attention_mask.long().cumsum(1)
    total = attention_mask.long().sum(1, keepdim=True)
    if (total == 0).any(): raise ValueError("last_token_index: a row without a real token")
    return (seen == total).long().argmax(1)
''')
right("last_token_index", '''
def last_token_index(attention_mask):
    found = []
    for number, row in enumerate(attention_mask.tolist()):
        real = [i for i, m in enumerate(row) if m]
        if not real: raise ValueError(f"row {number} holds only padding")
        found.append(real[-1])
    return torch.tensor(found, dtype=torch.long, device=attention_mask.device)
''')
wrong("last_token_index", "counts the real tokens, which is the position only with pads on the right", r"left|count|number of|pads|padding|side", '''
def last_token_index(attention_mask):
    lengths = attention_mask.sum(1)
    if (lengths == 0).any(): raise ValueError("a row holds only padding")
    return lengths - 1
''')
wrong("last_token_index", "takes the place before the first pad, which fails with no pad or pads on the left", r"first pad|no pad|left|without pad|full row|padding|side|pads", '''
def last_token_index(attention_mask):
    mask = attention_mask.bool()
    if not mask.any(1).all(): raise ValueError("a row holds only padding")
    return (~mask).int().argmax(dim=1) - 1
''')
wrong("last_token_index", "gives 0 for a row of pads, where ValueError is asked for", r"valueerror|refus|raise|only padding|empty|row of pads|no real", '''
def last_token_index(attention_mask):
    position = torch.arange(attention_mask.shape[1], device=attention_mask.device)
    return (position * attention_mask).amax(1)
''')
wrong("last_token_index", "takes position 0 for 'no token' and refuses a row whose only token is the first", r"position 0|first|single|one token|refus|valueerror|raise|only token|column 0", '''
def last_token_index(attention_mask):
    position = torch.arange(attention_mask.shape[1], device=attention_mask.device)
    last = (position * attention_mask.long()).amax(1)
    if (last == 0).any(): raise ValueError("a row holds only padding")
    return last
''')
wrong("last_token_index", "fails on a mask of 0 and 1", r"0 and 1|int|bool|dtype|float|where|type|numbers", '''
def last_token_index(attention_mask):
    position = torch.arange(attention_mask.shape[1], device=attention_mask.device)
    last = torch.where(attention_mask, position, -1).amax(1)
    if (last < 0).any(): raise ValueError("a row holds only padding")
    return last
''')
wrong("last_token_index", "leaves rows of pads out, so the result is shorter, where ValueError is asked for", r"valueerror|refus|raise|only padding|empty|drop|fewer|shorter|left out", '''
def last_token_index(attention_mask):
    rows = [row.nonzero().flatten() for row in attention_mask]
    return torch.stack([at.max() for at in rows if len(at)])
''')
wrong("last_token_index", "raises IndexError for a row of pads, not ValueError", r"valueerror|indexerror|only padding|raise|refus|kind of error|row of pads", '''
def last_token_index(attention_mask):
    return torch.stack([row.nonzero()[-1, 0] for row in attention_mask])
''')
wrong("last_token_index", "always gives the last column", r"last column|t-1|t - 1|pads? on the right|right|pad|always", '''
def last_token_index(attention_mask):
    if not attention_mask.bool().any(1).all(): raise ValueError("a row holds only padding")
    b, t = attention_mask.shape
    return torch.full((b,), t - 1, device=attention_mask.device)
''')
wrong("last_token_index", "gives positions as floats, which cannot index", r"float|dtype|int|index|whole|long", '''
def last_token_index(attention_mask):
    mask = attention_mask.float()
    if (mask.sum(1) == 0).any(): raise ValueError("a row holds only padding")
    return (mask * torch.arange(mask.shape[1], device=mask.device)).max(dim=1).values
''')

# ---------------------------------------------------------------- 02 fixed_counted
edits("fixed_counted", '''
def fixed_counted(ids, lengths, pad):
    place = torch.arange(ids.shape[1], device=ids.device)
    real = place < lengths.unsqueeze(1)
    first = place == 0
    return real & ~first
''',
    ("counts token 0 as well", r"position 0|first|token 0|column 0|at 0|entry 0", "real & ~first", "real"),
    ("counts one pad after the end", r"pad|one too|lengths|beyond|off by one|end|last", "place < lengths", "place <= lengths"),
    ("leaves the last real token out, which is eos", r"last|eos|end|lengths - 1|one too few|off by one", "place < lengths.unsqueeze(1)", "place < lengths.unsqueeze(1) - 1"),
    ("is the wrong way round: True where the loss must not count", r"opposite|invert|turned|round|false|true|pads", "real & ~first", "~(real & ~first)"),
    ("compares lengths along the time axis", r"shape|broadcast|\[:, none\]|column|axis|size|each row|row", "lengths.unsqueeze(1)", "lengths"),
    ("takes the longest row's length for every row", r"max|longest|each row|own length|every row|pads|lengths", "lengths.unsqueeze(1)", "lengths.max()[None, None].expand(len(ids), 1)"),
    ("still drops every token whose id is pad, so a shared eos is lost", r"eos|shared|id of|share|pad|end", "return real & ~first", "return real & ~first & (ids != pad)"),
    ("drops tokens 0 and 1", r"position 1|token 1|at 1|first|second|column 1|two", "place == 0", "place <= 1"))
right("fixed_counted", '''
def fixed_counted(ids, lengths, pad):
    keep = torch.zeros(ids.shape, dtype=torch.bool, device=ids.device)
    for row, n in zip(keep, lengths.tolist()):
        row[1:n] = True
    return keep
''')
right("fixed_counted", '''
def fixed_counted(ids, lengths, pad):
    b, t = ids.shape
    return torch.tensor([[1 <= i <= n - 1 for i in range(t)] for n in lengths.tolist()],
                        device=ids.device).view(b, t)
''')
wrong("fixed_counted", "keeps the fault: counts what is not pad", r"eos|shared|share|id of|pad|end", '''
def fixed_counted(ids, lengths, pad):
    keep = torch.ne(ids, pad)
    return torch.cat([torch.zeros_like(keep[:, :1]), keep[:, 1:]], dim=1)
''')
wrong("fixed_counted", "returns whole numbers, not bool", r"bool|dtype|type|int|float", '''
def fixed_counted(ids, lengths, pad):
    out = torch.zeros_like(ids)
    for i, n in enumerate(lengths.tolist()): out[i, 1:n] = 1
    return out
''')
wrong("fixed_counted", "counts from the right, as if the pads stood on the left", r"left|right|side|pads|padded|end of the row", '''
def fixed_counted(ids, lengths, pad):
    t = ids.shape[1]
    keep = repeat(torch.arange(t), "t -> b t", b=len(ids)) >= t - lengths[:, None]
    keep[:, 0] = False
    return keep
''')
wrong("fixed_counted", "reads up to the first pad id, so an own pad is counted once and an eos inside cuts the row", r"first pad|pad|lengths|one too|beyond|eos|inside|id", '''
def fixed_counted(ids, lengths, pad):
    seen = (ids == pad).long().cumsum(1)
    up_to_first = (seen == 0) | ((seen == 1) & (ids == pad))
    up_to_first[:, 0] = False
    return up_to_first
''')
wrong("fixed_counted", "writes the marks into ids", r"in place|in-place|input|changed|mutat|modif|overwr|ids|copy|clone", '''
def fixed_counted(ids, lengths, pad):
    for row, n in zip(ids, lengths):
        row.zero_()
        row[1:n] = 1
    return ids.bool()
''')
wrong("fixed_counted", "takes the first row's length for all rows", r"each row|own length|every row|first row|lengths|row", '''
def fixed_counted(ids, lengths, pad):
    row = [0 < i < int(lengths[0]) for i in range(ids.shape[1])]
    return torch.tensor([row for _ in lengths])
''')
wrong("fixed_counted", "drops the first row of the batch, not the first column", r"first row|row 0|column|axis|position 0|token 0|entry 0|first", '''
def fixed_counted(ids, lengths, pad):
    keep = torch.arange(ids.shape[1]) < lengths[:, None]
    keep[0] = False
    return keep
''')

# ---------------------------------------------------------------- 03 prob_right
edits("prob_right", '''
def prob_right(question, a, b):
    better, worse = sorted((a, b), key=lambda text: gold_score(question, text), reverse=True)
    gap = utility(question, better) - utility(question, worse)
    x = gap / .5
    return 1 / (1 + math.exp(-x))
''',
    ("multiplies by tau instead of dividing", r"divid|tau|τ|\.5|temperature|noise|multipl", "gap / .5", "gap * .5"),
    ("leaves tau out", r"divid|tau|τ|\.5|temperature|noise", "gap / .5", "gap"),
    ("gives the probability of preferring the worse answer", r"sign|worse|better|wrong label|turned|opposite|order|other way|1 -|1 −", "math.exp(-x)", "math.exp(x)"),
    ("orders the two by utility, not by gold score", r"gold|order|utility|better", "gold_score(question, text)", "utility(question, text)"),
    ("puts the gold scores into the sigma, not the utilities", r"utilit|gold|flatter|gap|annotator",
     "utility(question, better) - utility(question, worse)", "gold_score(question, better) - gold_score(question, worse)"),
    ("takes the size of the gap, so the result never falls below .5", r"abs|sign|below \.5|never|size|worse|negative|flatter", "gap / .5", "abs(gap) / .5"),
    ("gives the log of the probability", r"log|0 to 1|probability|negative|nats", "return 1 / (1 + math.exp(-x))", "return -math.log1p(math.exp(-x))"),
    ("uses base 10, as chess ratings do", r"base|10|\be\b|exp|sigma|σ|logistic|formula", "math.exp(-x)", "10**-x"))
right("prob_right", '''
def prob_right(question, a, b):
    gap = utility(question, a) - utility(question, b)
    if gold_score(question, b) > gold_score(question, a): gap = -gap
    return torch.sigmoid(torch.tensor(gap / .5, dtype=torch.double)).item()
''')
right("prob_right", '''
def prob_right(question, a, b):
    texts = [a, b]
    gold = [gold_score(question, t) for t in texts]
    better = gold.index(max(gold))
    u = [utility(question, t) * 2 for t in texts]
    top = max(u)
    strength = [math.exp(v - top) for v in u]
    return strength[better] / sum(strength)
''')
wrong("prob_right", "takes a for the better one, whichever it is", r"order|swap|either|a is|b is|better|first|gold", '''
def prob_right(question, a, b):
    gap = utility(question, a) - utility(question, b)
    return 1 / (1 + math.exp(-gap / .5))
''')
wrong("prob_right", "gives 1 or 0: a choice without noise", r"noise|0 or 1|1 or 0|probabilit|between|certain|choice|sigma|σ", '''
def prob_right(question, a, b):
    better, worse = (a, b) if gold_score(question, a) > gold_score(question, b) else (b, a)
    return float(utility(question, better) > utility(question, worse))
''')
wrong("prob_right", "samples one choice and returns it", r"sampl|random|probabilit|choice|0 or 1|1 or 0|between|bool|true", '''
def prob_right(question, a, b):
    if gold_score(question, a) < gold_score(question, b): a, b = b, a
    return float(annotate(question, a, b, random.Random(0)))
''')
wrong("prob_right", "uses the normal distribution (Thurstone), not the logistic one", r"logistic|sigma|σ|normal|exp|bradley|formula|thurstone", '''
def prob_right(question, a, b):
    if gold_score(question, a) < gold_score(question, b): a, b = b, a
    z = (utility(question, a) - utility(question, b)) / .5
    return .5 * (1 + math.erf(z / math.sqrt(2)))
''')
wrong("prob_right", "divides the utility by the sum of both instead of using their exponentials", r"exp|sigma|σ|share|ratio|sum|bradley|formula|divid|gap|difference", '''
def prob_right(question, a, b):
    better, worse = (a, b) if gold_score(question, a) > gold_score(question, b) else (b, a)
    u, v = utility(question, better), utility(question, worse)
    return u / (u + v) if u + v else .5
''')
wrong("prob_right", "rounds to two digits", r"round|digit|exact|precis|decimal|\.0025", '''
def prob_right(question, a, b):
    if gold_score(question, a) < gold_score(question, b): a, b = b, a
    odds = math.exp((utility(question, a) - utility(question, b)) / .5)
    return round(odds / (1 + odds), 2)
''')
wrong("prob_right", "gives per cent", r"per ?cent|%|0 to 1|100|probabilit", '''
def prob_right(question, a, b):
    if gold_score(question, a) < gold_score(question, b): a, b = b, a
    return 100 * torch.tensor((utility(question, a) - utility(question, b)) / .5).double().sigmoid().item()
''')

# ---------------------------------------------------------------- 03 fixed_answered
edits("fixed_answered", '''
def fixed_answered(question, text):
    truth = FACTS[question.animal][question.attribute]
    values = []
    for s in parse_sentences(text):
        if s.animal == question.animal and s.attribute == question.attribute:
            values.append(s.value)
    return bool(values) and all(v == truth for v in values)
''',
    ("is satisfied with one true value, whatever false one stands beside it", r"false value|second|beside|every|all|hedg|sea|two|other value|false",
     "all(v == truth for v in values)", "any(v == truth for v in values)"),
    ("says True of a reply that states no value", r"no value|nothing|empty|at least one|without|none|excuse|states no", "bool(values) and ", ""),
    ("reads facts about other animals", r"animal|owl|another|other", "s.animal == question.animal and ", ""),
    ("reads every attribute of the animal, not only the one asked for", r"attribute|asked for|other fact|red|colour|food|more", " and s.attribute == question.attribute", ""),
    ("looks at the last value only", r"first|last|every|all|order|earlier|one of|false value|false", "all(v == truth for v in values)", "values[-1] == truth"),
    ("looks at the first value only", r"first|last|every|all|order|later|second|one of|false value|false", "all(v == truth for v in values)", "values[0] == truth"),
    ("refuses a true value that is stated twice", r"twice|repeat|same|two forms|again", "bool(values) and ", "len(values) == 1 and "),
    ("takes the majority of the values", r"majority|every|all|most|false value|beside|false", "all(v == truth for v in values)", "2 * values.count(truth) > len(values)"))
right("fixed_answered", '''
def fixed_answered(question, text):
    truth, found = FACTS[question.animal][question.attribute], False
    for s in parse_sentences(text):
        if (s.animal, s.attribute) != (question.animal, question.attribute): continue
        if s.value != truth: return False
        found = True
    return found
''')
right("fixed_answered", '''
def fixed_answered(question, text):
    stated = {s.value for s in parse_sentences(text) if s.kind == "fact"
              and s.animal == question.animal and s.attribute == question.attribute}
    return len(stated) == 1 and FACTS[question.animal][question.attribute] in stated
''')
wrong("fixed_answered", "compares whole words, so a false value beside the true one or another animal passes", r"word|false value|beside|animal|hedg|every|list|sea|owl|false", '''
def fixed_answered(question, text):
    truth = FACTS[question.animal][question.attribute]
    return truth in re.findall("[a-z]+", text.lower())
''')
wrong("fixed_answered", "does not resolve 'It'", r"\bit\b|resolve|named last|pronoun|parse", '''
def fixed_answered(question, text):
    pieces = [p.strip() for p in re.findall(r"[^.!?]+[.!?]", text)]
    known = [SENTENCES[p] for p in pieces if p in SENTENCES]
    values = {s.value for s in known if s.animal == question.animal
              and s.attribute == question.attribute}
    return values == {FACTS[question.animal][question.attribute]}
''')
wrong("fixed_answered", "wants every fact of the reply to be true, also those that were not asked for", r"attribute|asked for|other fact|true|every fact|not asked|another|animal", '''
def fixed_answered(question, text):
    facts = [s for s in parse_sentences(text) if s.kind == "fact" and s.animal]
    about = [s for s in facts if (s.animal, s.attribute) == (question.animal, question.attribute)]
    return bool(about) and all(FACTS[s.animal][s.attribute] == s.value for s in facts)
''')
wrong("fixed_answered", "wants every fact to be about the animal asked for", r"animal|owl|another|relevant|other|beside", '''
def fixed_answered(question, text):
    truth = FACTS[question.animal][question.attribute]
    facts = [s for s in parse_sentences(text) if s.kind == "fact"]
    if any(s.animal != question.animal for s in facts): return False
    return {s.value for s in facts if s.attribute == question.attribute} == {truth}
''')
wrong("fixed_answered", "accepts a true fact about another animal", r"animal|owl|another|other", '''
def fixed_answered(question, text):
    same = [s for s in parse_sentences(text) if s.attribute == question.attribute and s.animal]
    right = [s.value == FACTS[s.animal][question.attribute] for s in same]
    return len(right) > 0 and all(right)
''')
wrong("fixed_answered", "asks whether the value is possible for the attribute, not whether it is true", r"true|false value|false|fact|possible|any value|wrong", '''
def fixed_answered(question, text):
    values = [s.value for s in parse_sentences(text)
              if s.animal == question.animal and s.attribute == question.attribute]
    return len(set(values)) == 1 and values[0] in VALUES[question.attribute]
''')
wrong("fixed_answered", "refuses a reply that holds anything besides the fact", r"other sentence|polite|beside|sentence|courte|opener|closing|closer|greeting|anything else|alone|true value", '''
def fixed_answered(question, text):
    truth = FACTS[question.animal][question.attribute]
    return all((s.animal, s.attribute, s.value) == (question.animal, question.attribute, truth)
               for s in parse_sentences(text)) and len(parse_sentences(text)) > 0
''')

# ---------------------------------------------------------------- 04 sft_loss
edits("sft_loss", '''
def sft_loss(model, seqs):
    logp = logprobs(model, seqs)
    counted = seqs.response_mask.clone()
    counted[:, 0] = False
    total = -logp[counted].sum()
    return total, counted.sum()
''',
    ("counts a response token in column 0, which has nothing before it", r"first (token|column)|column 0|nothing before|token 0|\[:, ?1:\]|before it|number", "    counted[:, 0] = False\n", ""),
    ("has the wrong sign: a log-likelihood, not a loss", r"sign|negative|minus|positive|0 or more|above 0|−|likelihood", "-logp[counted]", "logp[counted]"),
    ("returns the mean in place of the sum", r"sum|mean|divid|division|average", "logp[counted].sum()", "logp[counted].mean()"),
    ("counts all real tokens, those of the prompt too", r"prompt|number|attention|count|response|denominator", "return total, counted.sum()", "return total, seqs.attention_mask[:, 1:].sum()"),
    ("counts the rows, not the tokens", r"rows|number|count|token|denominator|sequences", "return total, counted.sum()", "return total, torch.tensor(len(seqs))"),
    ("changes the mask that it was given", r"in place|in-place|input|changed|mutat|modif|overwr|mask|copy|clone", "seqs.response_mask.clone()", "seqs.response_mask"),
    ("returns the number first", r"order|swap|first|exchang|two results|sum|number|pair", "return total, counted.sum()", "return counted.sum(), total"),
    ("counts every place of the tensor, pads and prompt too", r"pad|prompt|number|count|response|numel|denominator", "return total, counted.sum()", "return total, torch.tensor(counted.numel())"))
right("sft_loss", '''
def sft_loss(model, seqs):
    logp = logprobs(model, seqs)
    total, n = logp.new_zeros(()), seqs.ids.new_zeros(())
    for row, mask in zip(logp, seqs.response_mask):
        total = total - row[1:][mask[1:]].sum()
        n = n + mask[1:].count_nonzero()
    return total, n
''')
right("sft_loss", '''
def sft_loss(model, seqs):
    nll = logprobs(model, seqs).neg()
    keep = seqs.response_mask & (torch.arange(seqs.ids.shape[1], device=nll.device) > 0)
    return torch.einsum("bt,bt->", nll, keep.to(nll.dtype)), torch.count_nonzero(keep)
''')
wrong("sft_loss", "carries no gradient", r"gradient|no_grad|detach|backward|requires_grad|autograd|train", '''
def sft_loss(model, seqs):
    with torch.no_grad():
        nll = -logprobs(model, seqs)
    return nll.sum(), seqs.response_mask[:, 1:].sum()
''')
wrong("sft_loss", "returns one number, the mean, not the sum and the number", r"two|tuple|pair|separately|sum|number|mean|unpack|iterat", '''
def sft_loss(model, seqs):
    return -masked_mean(logprobs(model, seqs), seqs.response_mask)
''')
wrong("sft_loss", "takes the prompt's tokens into the sum", r"prompt|response|question|mask|only", '''
def sft_loss(model, seqs):
    everything = Seqs(seqs.ids, seqs.attention_mask, seqs.attention_mask)
    return -logprobs(model, everything).sum(), seqs.response_mask[:, 1:].sum()
''')
wrong("sft_loss", "shifts a second time, so the first response token is lost", r"shift|first|column|again|already|twice|lost|sum", '''
def sft_loss(model, seqs):
    logp, mask = logprobs(model, seqs)[:, 1:], seqs.response_mask
    return -torch.where(mask[:, :-1], logp, 0.).sum(), mask[:, 1:].sum()
''')
wrong("sft_loss", "leaves eos out of the loss", r"eos|end|last|stop|final", '''
def sft_loss(model, seqs):
    mask = seqs.response_mask
    ends = F.pad(mask[:, 1:], (0, 1)) & mask           # a response token follows
    logp = logprobs(model, seqs)
    return -(logp * ends).sum(), mask[:, 1:].sum()
''')
wrong("sft_loss", "adds up the means of the rows", r"row|mean|sum|divid|same weight|weigh|each token", '''
def sft_loss(model, seqs):
    n = seqs.response_mask[:, 1:].sum(1)
    rows = -logprobs(model, seqs).sum(1) / n.clamp(min=1)
    return rows.sum(), n.sum()
''')
wrong("sft_loss", "keeps one sum and one number per row", r"row|scalar|shape|all rows|at once|\(b\)|one number|single|two numbers", '''
def sft_loss(model, seqs):
    logp = logprobs(model, seqs)
    return -reduce(logp, "b t -> b", "sum"), seqs.response_mask[:, 1:].sum(1)
''')
wrong("sft_loss", "counts the log-probs that are not 0, so a certain token is not counted", r"certain|probability 1|log-prob (of )?0|zero|not 0|number|count", '''
def sft_loss(model, seqs):
    logp = logprobs(model, seqs)
    return -logp.sum(), (logp != 0).sum()
''')
wrong("sft_loss", "adds up 1 - p, not -log p", r"log|probabilit|likelihood|nats|sum|1 - p", '''
def sft_loss(model, seqs):
    mask = seqs.response_mask.clone(); mask[:, 0] = False
    p = logprobs(model, seqs).exp()
    return (1 - p)[mask].sum(), mask.sum()
''')

# ---------------------------------------------------------------- 04 filter_logits
edits("filter_logits", '''
def filter_logits(logits, sampling):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature == 0:
        best = F.one_hot(x.argmax(1), x.shape[1]).bool()
        return torch.zeros_like(x).masked_fill(~best, -torch.inf)
    x = x / sampling.temperature
    if sampling.top_k:
        k = min(sampling.top_k, x.shape[1])
        kth = x.sort(dim=1, descending=True).values[:, k - 1:k]
        x = x.masked_fill(x < kth, -torch.inf)
    if sampling.top_p < 1:
        prob, order = x.softmax(1).sort(dim=1, descending=True)
        before = prob.cumsum(1) - prob
        keep = torch.zeros_like(x, dtype=torch.bool).scatter(1, order, before < sampling.top_p)
        x = x.masked_fill(~keep, -torch.inf)
    return x.log_softmax(1)
''',
    ("drops the token that crosses top_p", r"cross|top.?p|nucleus|before|reach|included", "before = prob.cumsum(1) - prob", "before = prob.cumsum(1)"),
    ("does not bring the top-p mask back into token order", r"order|sorted|scatter|back|place|top.?p|nucleus|wrong token", ".scatter(1, order, before < sampling.top_p)", " | (before < sampling.top_p)"),
    ("does not normalise at the end", r"normali|log_softmax|sum to 1|logits|log-prob", "return x.log_softmax(1)", "return x"),
    ("returns probabilities, not log-probs", r"log|probabilit|nats|-inf|−∞", "return x.log_softmax(1)", "return x.softmax(1)"),
    ("multiplies the logits by the temperature", r"temperature|divid|multipl|½|\bt\b", "x / sampling.temperature", "x * sampling.temperature"),
    ("drops the k-th token as well", r"top.?k|k.th|one too few|largest|keep|\bk\b", "x < kth", "x <= kth"),
    ("fails when top_k is larger than the vocabulary", r"top.?k|vocab|larger|more than|range|keep|\bk\b", "min(sampling.top_k, x.shape[1])", "sampling.top_k"),
    ("sorts upwards, so top-p keeps the least likely tokens", r"descending|downwards|order|sort|likeli|top.?p|nucleus|least", "x.softmax(1).sort(dim=1, descending=True)", "x.softmax(1).sort(dim=1)"),
    ("leaves filtered tokens a log-prob of about -10000, not -inf", r"-inf|inf|−∞|cannot be drawn|finite|never", "-torch.inf", "-1e4"),
    ("writes 0 over the logits that top-k drops", r"top.?k|-inf|inf|−∞|dropped|removed|\b0\b|cannot be drawn|keep", "x.masked_fill(x < kth, -torch.inf)", "x.masked_fill(x < kth, 0.)"),
    ("gives 1 and 0 at temperature 0, not 0 and -inf", r"temperature 0|greedy|log-prob 0|log|-inf|−∞", "torch.zeros_like(x).masked_fill(~best, -torch.inf)", "best.to(x)"),
    ("stays in bf16", r"float32|bf16|bfloat16|precision|dtype|half", "logits.to(torch.promote_types(logits.dtype, torch.float32))", "logits.clone()"),
    ("normalises over the batch", r"axis|batch|rows|row|normali|sum to 1|dim", "return x.log_softmax(1)", "return x.log_softmax(0)"))
right("filter_logits", '''
def filter_logits(logits, sampling):
    wide = logits.double() if logits.dtype == torch.float64 else logits.float()
    rows = []
    for z in wide:
        v = len(z)
        if sampling.temperature == 0: kept, z = [int(z.argmax())], torch.zeros_like(z)
        else:
            z = z / sampling.temperature
            kept = z.argsort(descending=True).tolist()
            if sampling.top_k: kept = kept[:sampling.top_k]
            if sampling.top_p < 1:
                total, nucleus = 0., []
                for i, p in zip(kept, z[kept].softmax(0).tolist()):
                    if total >= sampling.top_p: break
                    nucleus.append(i); total += p
                kept = nucleus
        out = torch.full_like(z, -torch.inf)
        out[kept] = z[kept].log_softmax(0)
        rows.append(out)
    return torch.stack(rows)
''')
right("filter_logits", '''
def filter_logits(logits, sampling):
    x = logits.to(torch.promote_types(torch.float32, logits.dtype))
    if sampling.temperature == 0:
        column = torch.arange(x.shape[1], device=x.device)
        return torch.where(column == x.argmax(1)[:, None], x.new_zeros(()), -torch.inf)
    z, order = (x / sampling.temperature).sort(dim=1, descending=True)
    if sampling.top_k: z[:, sampling.top_k:] = -torch.inf
    if sampling.top_p < 1:
        p = z.softmax(1)
        reached = F.pad(p.cumsum(1), (1, 0))[:, :-1] >= sampling.top_p
        z = z.masked_fill(reached, -torch.inf)
    return torch.empty_like(x).scatter(1, order, z.log_softmax(1))
''')
wrong("filter_logits", "cuts by top-p first and by top-k afterwards", r"order|top.?k|first|what (top-k|is left)|left|then|before", '''
def filter_logits(logits, sampling):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature == 0:
        return torch.full_like(x, -torch.inf).scatter(1, x.argmax(1, keepdim=True), 0.)
    z, order = (x / sampling.temperature).sort(dim=1, descending=True)
    p = z.softmax(1)
    if sampling.top_p < 1: z = z.masked_fill(p.cumsum(1) - p >= sampling.top_p, -torch.inf)
    if sampling.top_k: z[:, sampling.top_k:] = -torch.inf
    return torch.empty_like(z).scatter(1, order, z.log_softmax(1))
''')
wrong("filter_logits", "finds the nucleus at temperature 1 and applies the temperature after it", r"temperature|order|first|top.?p|nucleus|½|before|after", '''
def filter_logits(logits, sampling):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature == 0:
        return torch.full_like(x, -torch.inf).scatter(1, x.argmax(1, keepdim=True), 0.)
    z, order = x.sort(dim=1, descending=True)
    if sampling.top_k: z[:, sampling.top_k:] = -torch.inf
    if sampling.top_p < 1:
        p = z.softmax(1)
        z = z.masked_fill(p.cumsum(1) - p >= sampling.top_p, -torch.inf)
    z = z / sampling.temperature
    return torch.empty_like(z).scatter(1, order, z.log_softmax(1))
''')
wrong("filter_logits", "has no greedy case: temperature 0 divides by 0", r"temperature 0|greedy|nan|divid|zero", '''
def filter_logits(logits, sampling):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32)) / sampling.temperature
    v = x.shape[1]
    z, order = x.sort(dim=1, descending=True)
    if sampling.top_k: z = torch.where(torch.arange(v) < sampling.top_k, z, -torch.inf)
    if sampling.top_p < 1:
        p = z.softmax(1)
        z = torch.where(p.cumsum(1) - p < sampling.top_p, z, -torch.inf)
    return z.gather(1, order.argsort(1)).log_softmax(1)
''')
wrong("filter_logits", "keeps tokens with at least top_p times the largest probability (min-p, another method)", r"top.?p|nucleus|sum|cumul|before|reach|min.?p|largest|keep", '''
def filter_logits(logits, sampling):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature == 0:
        return torch.full_like(x, -torch.inf).scatter(1, x.argmax(1, keepdim=True), 0.)
    x = x / sampling.temperature
    if 0 < sampling.top_k < x.shape[1]:
        x = x.masked_fill(x < x.topk(sampling.top_k).values[:, -1:], -torch.inf)
    if sampling.top_p < 1:
        prob = x.softmax(1)
        x = x.masked_fill(prob < sampling.top_p * prob.amax(1, keepdim=True), -torch.inf)
    return x.log_softmax(1)
''')
wrong("filter_logits", "takes one top-k threshold for the whole batch", r"row|batch|each|threshold|top.?k|every", '''
def filter_logits(logits, sampling):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature == 0:
        return torch.full_like(x, -torch.inf).scatter(1, x.argmax(1, keepdim=True), 0.)
    x = x / sampling.temperature
    if 0 < sampling.top_k < x.shape[1]:
        x = torch.where(x >= x.topk(sampling.top_k).values.min(), x, -torch.inf)
    if sampling.top_p < 1:
        prob, order = x.softmax(1).sort(descending=True)
        cut = prob.cumsum(1) - prob >= sampling.top_p
        x = x.masked_fill(cut.scatter(1, order, cut), -torch.inf)
    return x.log_softmax(1)
''')
wrong("filter_logits", "divides the caller's logits in place", r"in place|in-place|input|changed|mutat|modif|overwr|logits|copy|clone", '''
def filter_logits(logits, sampling):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature == 0:
        return torch.full_like(x, -torch.inf).scatter(1, x.argmax(1, keepdim=True), 0.)
    x /= sampling.temperature
    z, order = x.sort(dim=1, descending=True)
    if sampling.top_k: z[:, sampling.top_k:] = -torch.inf
    if sampling.top_p < 1:
        p = z.softmax(1)
        z = z.masked_fill(p.cumsum(1) - p >= sampling.top_p, -torch.inf)
    return torch.empty_like(z).scatter(1, order, z.log_softmax(1))
''')

# ---------------------------------------------------------------- 04 fixed_labels
edits("fixed_labels", '''
def fixed_labels(ids, n_prompt, n_real):
    t = ids.shape[1]
    token = torch.arange(t, device=ids.device).expand_as(ids)
    answer = (token >= n_prompt[:, None]) & (token < n_real[:, None])
    labels = torch.where(answer, ids, -100)
    return labels[:, 1:]
''',
    ("is not shifted: one label for each token, not for each next token", r"shape|shift|t ?- ?1|shorter|column|j ?\+ ?1|next", "return labels[:, 1:]", "return labels"),
    ("cuts the last column off instead of the first: entry j is token j", r"shift|j ?\+ ?1|next|token j|column|first|predict", "return labels[:, 1:]", "return labels[:, :-1]"),
    ("loses the first token of the answer", r"first|begin|n_prompt|one too|answer|start", "token >= n_prompt", "token > n_prompt"),
    ("learns the last token of the question", r"question|prompt|n_prompt|one too|last|begin", "token >= n_prompt[:, None]", "token >= n_prompt[:, None] - 1"),
    ("loses the end mark", r"end|eos|last|n_real|stop", "token < n_real[:, None]", "token < n_real[:, None] - 1"),
    ("learns one pad after the end", r"pad|n_real|beyond|one too|after", "token < n_real", "token <= n_real"),
    ("learns the pads", r"pad|n_real|after the end", " & (token < n_real[:, None])", ""),
    ("writes 0 where -100 is asked for", r"-100|ignore|−100", "torch.where(answer, ids, -100)", "torch.where(answer, ids, 0)"),
    ("takes n_real for the length of the answer", r"pad|n_real|length|first n_real|after the end|question", "token < n_real[:, None]", "token < (n_prompt + n_real)[:, None]"),
    ("joins the two conditions by 'or'", r"\bor\b|\band\b|question|prompt|pad|both", ") & (", ") | ("))
right("fixed_labels", '''
def fixed_labels(ids, n_prompt, n_real):
    labels = torch.full_like(ids, -100)
    for new, row, start, end in zip(labels, ids, n_prompt.tolist(), n_real.tolist()):
        new[start:end] = row[start:end]
    return labels[:, 1:].clone()
''')
right("fixed_labels", '''
def fixed_labels(ids, n_prompt, n_real):
    out = [[token if start <= j + 1 < end else -100 for j, token in enumerate(row[1:])]
           for row, start, end in zip(ids.tolist(), n_prompt.tolist(), n_real.tolist())]
    return torch.tensor(out, dtype=ids.dtype, device=ids.device).view(len(ids), ids.shape[1] - 1)
''')
wrong("fixed_labels", "numbers the reading token, not the predicted one, so the answer begins one place late", r"shift|first|one (too|place)|place|column|j ?\+ ?1|predict|begin|pad", '''
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(ids.shape[1] - 1)
    keep = (place >= n_prompt[:, None]) & (place < n_real[:, None])
    return ids[:, 1:].masked_fill(~keep, -100)
''')
wrong("fixed_labels", "keeps the fault: learns the question", r"question|prompt|upside|turned|answer|in_prompt", '''
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(1, ids.shape[1])
    in_prompt = place < n_prompt[:, None]
    return torch.where(in_prompt & (place < n_real[:, None]), ids[:, 1:], -100)
''')
wrong("fixed_labels", "takes id 0 for the pad instead of reading n_real", r"pad|id 0|n_real|token 0|any pad|id", '''
def fixed_labels(ids, n_prompt, n_real):
    labels = ids[:, 1:].clone()
    labels[labels == 0] = -100
    for row, n in zip(labels, n_prompt.tolist()): row[:n - 1] = -100
    return labels
''')
wrong("fixed_labels", "writes -100 into the ids that it was given", r"in place|in-place|input|changed|mutat|modif|overwr|ids|copy|clone", '''
def fixed_labels(ids, n_prompt, n_real):
    for row, start, end in zip(ids, n_prompt, n_real):
        row[:start] = -100
        row[end:] = -100
    return ids[:, 1:]
''')
wrong("fixed_labels", "returns the mask, not the labels", r"mask|bool|token|ids|-100|label|dtype", '''
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(1, ids.shape[1])
    return (place >= n_prompt[:, None]) & (place < n_real[:, None])
''')
wrong("fixed_labels", "uses the first row's two numbers for all rows", r"each row|first row|own|every row|row", '''
def fixed_labels(ids, n_prompt, n_real):
    start, end = int(n_prompt[0]), int(n_real[0])
    labels = ids.clone()
    labels[:, :start] = -100
    labels[:, end:] = -100
    return labels[:, 1:]
''')
wrong("fixed_labels", "compares the two numbers of a row along the columns", r"shape|broadcast|\[:, none\]|column|axis|size|row", '''
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(1, ids.shape[1])
    keep = torch.logical_and(place >= n_prompt, place < n_real)
    return ids[:, 1:].masked_fill(~keep, -100)
''')

# ---------------------------------------------------------------- 05 pooled_scores
edits("pooled_scores", '''
def pooled_scores(model, seqs):
    scores = model(seqs)
    last = last_token_index(seqs.attention_mask).to(scores.device)
    rows = torch.arange(len(scores), device=scores.device)
    return scores[rows, last]
''',
    ("reads the last column, which is a pad in shorter rows", r"pad|last (real|column)|right|column|shorter", "scores[rows, last]", "scores[:, -1]"),
    ("takes column `last` of every row: (b b)", r"shape|\(b b\)|\(b\)|pairs|one number|each row", "scores[rows, last]", "scores[:, last]"),
    ("asks for the last response token, so a row with an empty response is refused", r"response|empty|attention|refus|prompt|real token", "seqs.attention_mask", "seqs.response_mask"),
    ("reads the token before the last one", r"last|eos|before|one too|end|off by one", "scores[rows, last]", "scores[rows, last - 1]"),
    ("detaches: nothing can be trained", r"gradient|detach|backward|requires_grad|autograd|train", "scores = model(seqs)", "scores = model(seqs).detach()"),
    ("gives (b 1), not (b)", r"shape|\(b\)|\(b 1\)|dim|axis", "scores[rows, last]", "scores[rows, last][:, None]"),
    ("squeezes the score into 0 to 1", r"sigmoid|raw|0 to 1|between|score|squash", "return scores[rows, last]", "return scores[rows, last].sigmoid()"),
    ("shifts the scores first, as a critic does, and so reads what was said before the last token", r"shift|last|before|eos|one too|end", "model(seqs)", "shift_right(model(seqs))"))
right("pooled_scores", '''
def pooled_scores(model, seqs):
    scores, kept = model(seqs), seqs.attention_mask
    out = []
    for i in range(len(scores)):
        real = scores[i][kept[i].to(scores.device)]
        if not len(real): raise ValueError(f"row {i} holds only padding")
        out.append(real[-1])
    return torch.stack(out)
''')
right("pooled_scores", '''
def pooled_scores(model, seqs):
    mask = seqs.attention_mask
    if not mask.any(1).all(): raise ValueError("pooled_scores: a row holds only padding")
    later = mask.flip(1).long().cumsum(1).flip(1)          # real tokens from here on
    is_last = mask & (later == 1)
    scores = model(seqs)
    return scores.masked_fill(~is_last, 0.).sum(1)
''')
wrong("pooled_scores", "counts the real tokens and uses the count as a place: wrong with pads on the left", r"left|count|number of|pads|padding|side", '''
def pooled_scores(model, seqs):
    n_real = seqs.attention_mask.sum(1)
    if (n_real == 0).any(): raise ValueError("a row holds only padding")
    return model(seqs).gather(1, n_real[:, None] - 1)[:, 0]
''')
wrong("pooled_scores", "averages over the real tokens", r"mean|average|last|one token|only", '''
def pooled_scores(model, seqs):
    n = seqs.attention_mask.sum(1)
    if (n == 0).any(): raise ValueError("a row holds only padding")
    return model(seqs).masked_fill(~seqs.attention_mask, 0.).sum(1) / n
''')
wrong("pooled_scores", "takes the largest score of the real tokens", r"max|largest|highest|last|one token|only", '''
def pooled_scores(model, seqs):
    last_token_index(seqs.attention_mask)             # refuses a row of pads
    return model(seqs).masked_fill(~seqs.attention_mask, -torch.inf).amax(1)
''')
wrong("pooled_scores", "adds up the scores of all real tokens", r"sum|add|last|one token|only", '''
def pooled_scores(model, seqs):
    if not seqs.attention_mask.any(1).all(): raise ValueError("a row holds only padding")
    scores = model(seqs)
    return torch.stack([row[mask].sum() for row, mask in zip(scores, seqs.attention_mask)])
''')
wrong("pooled_scores", "does not refuse a row of pads: it reads column 0", r"valueerror|refus|raise|only pad|empty|row of pads", '''
def pooled_scores(model, seqs):
    scores = model(seqs)
    place = torch.arange(scores.shape[1], device=scores.device) * seqs.attention_mask
    return torch.take_along_dim(scores, place.argmax(1, keepdim=True), 1).squeeze(1)
''')
wrong("pooled_scores", "looks for the first id 0 and reads the token before it", r"pad|id 0|mask|first|left|token 0", '''
def pooled_scores(model, seqs):
    if not seqs.attention_mask.any(1).all(): raise ValueError("a row holds only padding")
    ends = (seqs.ids == 0).int().argmax(1) - 1
    return model(seqs)[torch.arange(len(seqs)), ends]
''')
wrong("pooled_scores", "reads the first real token", r"first|last|end|eos", '''
def pooled_scores(model, seqs):
    if not seqs.attention_mask.any(1).all(): raise ValueError("a row holds only padding")
    first = seqs.attention_mask.int().argmax(1)
    return model(seqs)[torch.arange(len(seqs)), first]
''')
wrong("pooled_scores", "gives nan for a row of pads, where ValueError is asked for", r"valueerror|refus|raise|only pad|empty|nan|row of pads", '''
def pooled_scores(model, seqs):
    scores = model(seqs)
    nothing = scores.new_tensor(torch.nan)
    return torch.stack([row[mask][-1] if mask.any() else nothing
                        for row, mask in zip(scores, seqs.attention_mask)])
''')

# ---------------------------------------------------------------- 05 bradley_terry_loss
edits("bradley_terry_loss", '''
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("two scores per pair are needed")
    gap = chosen - rejected - margin
    loss = F.softplus(-gap)
    if center_coef != 0: loss = loss + center_coef * (chosen + rejected)**2
    return loss
''',
    ("prefers the rejected side", r"sign|rejected|order|chosen|swap|wrong way|preferred", "chosen - rejected - margin", "rejected - chosen - margin"),
    ("adds the margin to the gap instead of asking for more", r"margin|\bm\b", "- rejected - margin", "- rejected + margin"),
    ("averages over the pairs", r"mean|shape|each pair|per pair|\(b\)|one loss|scalar", "return loss", "return loss.mean()"),
    ("centres the difference, not the sum", r"cent(er|re|ring)|sum|r_w \+ r_l|\bc\b|zero|\+ r", "(chosen + rejected)**2", "(chosen - rejected)**2"),
    ("centres each score by itself", r"cent(er|re|ring)|sum|r_w \+ r_l|\bc\b|square|\+ r", "(chosen + rejected)**2", "(chosen**2 + rejected**2)"),
    ("centres the absolute sum, without the square", r"cent(er|re|ring)|squar|\bc\b|\*\*2|²", "(chosen + rejected)**2", "(chosen + rejected).abs()"),
    ("subtracts the centring term", r"cent(er|re|ring)|sign|\bc\b|subtract|added", "loss + center_coef", "loss - center_coef"),
    ("centres the batch mean, not each pair", r"cent(er|re|ring)|each pair|batch|mean|\bc\b", "(chosen + rejected)**2", "(chosen + rejected).mean()**2"),
    ("does not refuse two tensors of different shape", r"shape|valueerror|refus|raise|broadcast|differ",
     '    if chosen.shape != rejected.shape: raise ValueError("two scores per pair are needed")\n', ""),
    ("gives bits, not nats", r"nats|bits|log|base|\.6931|ln 2", "F.softplus(-gap)", "F.softplus(-gap) / math.log(2)"),
    ("fails on one margin per pair", r"margin|\(b\)|tensor|scalar|each pair|one number", "- rejected - margin", "- rejected - float(margin)"),
    ("takes the margin off the loss, not off the gap", r"margin|\bm\b|inside|gap", "chosen - rejected - margin\n    loss = F.softplus(-gap)", "chosen - rejected\n    loss = F.softplus(-gap) - margin"))
right("bradley_terry_loss", '''
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if rejected.shape != chosen.shape:
        raise ValueError(f"chosen {tuple(chosen.shape)} and rejected {tuple(rejected.shape)}")
    short = rejected - chosen + margin
    loss = torch.logaddexp(torch.zeros_like(short), short)
    return loss if center_coef == 0 else loss + center_coef * (chosen + rejected).square()
''')
right("bradley_terry_loss", '''
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.size() != rejected.size(): raise ValueError("chosen and rejected differ in shape")
    both = torch.stack([chosen - margin, rejected], dim=-1)
    nll = -both.log_softmax(-1)[..., 0]
    if not center_coef: return nll
    both = torch.stack([chosen, rejected])
    return nll + both.sum(0)**2 * center_coef
''')
wrong("bradley_terry_loss", "takes the log of a sigmoid that is already 0: infinite where scores are far apart", r"inf|finite|600|far apart|logsigmoid|underflow|large", '''
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("shapes differ")
    p = torch.sigmoid(chosen - rejected - margin)
    loss = -torch.log(p)
    return loss + center_coef * (chosen + rejected)**2 if center_coef else loss
''')
wrong("bradley_terry_loss", "clamps the gap at 30, so a large gap has no gradient and too small a loss", r"clamp|600|gradient|large|far apart|clip|30|finite", '''
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("shapes differ")
    gap = (chosen - rejected - margin).clamp(-30, 30)
    loss = -gap.sigmoid().log()
    return loss + center_coef * (chosen + rejected)**2 if center_coef else loss
''')
wrong("bradley_terry_loss", "is a hinge loss", r"hinge|logsigmoid|sigmoid|\.6931|formula|log|relu|σ|gap 0", '''
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("shapes differ")
    hinge = torch.relu(margin - (chosen - rejected))
    return hinge + center_coef * (chosen + rejected)**2 if center_coef else hinge
''')
wrong("bradley_terry_loss", "has the wrong sign: the log-likelihood", r"sign|negative|minus|0 or more|above 0|likelihood|−", '''
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("shapes differ")
    center = center_coef * (chosen + rejected)**2 if center_coef else 0.
    return logsigmoid(chosen - rejected - margin) + center
''')
wrong("bradley_terry_loss", "returns the probability of a wrong order, not the negative log", r"log|probabilit|nats|sigmoid|likelihood|\.6931", '''
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("shapes differ")
    missed = 1 - (chosen - rejected - margin).sigmoid()
    return missed + center_coef * (chosen + rejected)**2 if center_coef else missed
''')
wrong("bradley_terry_loss", "scales the gap by .1, as DPO does", r"scale|gap|\.1\b|beta|β|dpo|multipl|factor|\.3133", '''
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("shapes differ")
    loss = -logsigmoid(.1 * (chosen - rejected - margin))
    return loss + center_coef * (chosen + rejected)**2 if center_coef else loss
''')
wrong("bradley_terry_loss", "compares every chosen score with every rejected one", r"shape|each pair|\(b\)|\(b b\)|same pair|every", '''
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("shapes differ")
    gap = chosen[:, None] - rejected[None]
    loss = -logsigmoid(gap - margin).mean(1)
    return loss + center_coef * (chosen + rejected)**2 if center_coef else loss
''')

# ---------------------------------------------------------------- 05 calibration_bins
edits("calibration_bins", '''
def calibration_bins(chosen, rejected, n_bins=10):
    gap = chosen - rejected
    if not gap.isfinite().all(): raise ValueError("calibration_bins: a score is not finite")
    confidence = torch.sigmoid(gap.abs())
    right = torch.where(gap == 0, .5, (gap > 0).float())
    index = ((confidence - .5) * 2 * n_bins).floor().long().clamp(max=n_bins - 1)
    means, shares, counts = [], [], []
    for k in range(n_bins):
        here = index == k
        n = int(here.sum())
        if n == 0: continue
        means.append(confidence[here].mean().item())
        shares.append(right[here].mean().item())
        counts.append(n)
    return torch.tensor(means), torch.tensor(shares), torch.tensor(counts, dtype=torch.long)
''',
    ("takes the gap with its sign, so a pair in the wrong order has a confidence below .5", r"abs|\|r|sign|below \.5|confiden|wrong order|negative", "torch.sigmoid(gap.abs())", "torch.sigmoid(gap)"),
    ("cuts 0 to 1 into bins, not .5 to 1", r"\.5|width|edges?|between|0 to 1|bins?", "(confidence - .5) * 2 * n_bins", "confidence * n_bins"),
    ("counts a tie as wrong", r"tie|half|equal", "torch.where(gap == 0, .5, (gap > 0).float())", "(gap > 0).float()"),
    ("counts a tie as right", r"tie|half|equal", "torch.where(gap == 0, .5, (gap > 0).float())", "(gap >= 0).float()"),
    ("refuses nan but not inf", r"inf|finite|valueerror|refus|raise", "if not gap.isfinite().all()", "if gap.isnan().any()"),
    ("puts a confidence of 1 into a bin of its own", r"confidence (of )?1|last|also 1|\b1\b|own|saturat|upper|lost|leave", ".clamp(max=n_bins - 1)\n    means, shares, counts = [], [], []\n    for k in range(n_bins)",
     "\n    means, shares, counts = [], [], []\n    for k in range(n_bins + 1)"),
    ("gives each bin its upper edge, not its lower one", r"edge|lower|upper|bound|holds", "((confidence - .5) * 2 * n_bins).floor().long().clamp(max=n_bins - 1)",
     "(((confidence - .5) * 2 * n_bins).ceil().long() - 1).clamp(0, n_bins - 1)"),
    ("keeps empty bins with zeros", r"empty|left out|shape|length|zero|number of bins|bins", "if n == 0: continue", "if n == 0: means.append(0.); shares.append(0.); counts.append(0); continue"),
    ("gives the share of the pairs in a bin, not their number", r"pairs|number|count|share|fraction|whole", "torch.tensor(counts, dtype=torch.long)", "torch.tensor(counts) / max(sum(counts), 1)"),
    ("gives the accuracy first", r"order|swap|first|second|exchang|confidence|accuracy", "return torch.tensor(means), torch.tensor(shares)", "return torch.tensor(shares), torch.tensor(means)"),
    ("divides the gap by .5 as the annotator does", r"gap|confiden|sigmoid|\.5|temperature|σ|scale|divid", "torch.sigmoid(gap.abs())", "torch.sigmoid(gap.abs() / .5)"),
    ("counts a pair as right whenever the model is confident", r"right|accura|chosen|order|always|correct|label", "torch.where(gap == 0, .5, (gap > 0).float())", "torch.where(gap == 0, .5, (confidence > .5).float())"))
right("calibration_bins", '''
def calibration_bins(chosen, rejected, n_bins=10):
    if not (chosen.isfinite().all() and rejected.isfinite().all()):
        raise ValueError("scores must be finite")
    gap = chosen - rejected
    confidence, right = gap.abs().sigmoid(), (gap.sign() + 1) / 2
    index = ((confidence - .5) * 2 * n_bins).long().clamp(max=n_bins - 1)
    used, inverse, count = index.unique(return_inverse=True, return_counts=True)
    def mean(x): return torch.zeros(len(used)).index_add(0, inverse, x.float()) / count
    return mean(confidence), mean(right), count
''')
right("calibration_bins", '''
def calibration_bins(chosen, rejected, n_bins=10):
    pairs = list(zip(chosen.tolist(), rejected.tolist()))
    if not all(math.isfinite(x) for pair in pairs for x in pair): raise ValueError("not finite")
    bins = {}
    for (w, l), c in zip(pairs, (chosen - rejected).abs().sigmoid()):
        k = min(int((c - .5) * 2 * n_bins), n_bins - 1)
        bins.setdefault(k, []).append((c.item(), 1. if w > l else 0. if w < l else .5))
    rows = [bins[k] for k in sorted(bins)]
    means = [[sum(column) / len(row) for column in zip(*row)] for row in rows]
    return (torch.tensor([m[0] for m in means]), torch.tensor([m[1] for m in means]),
            torch.tensor([len(row) for row in rows], dtype=torch.long))
''')
wrong("calibration_bins", "loses the pairs with a confidence of exactly 1", r"confidence (of )?1|last|also 1|\b1\b|saturat|upper|lost|edge", '''
def calibration_bins(chosen, rejected, n_bins=10):
    gap = chosen - rejected
    if not gap.isfinite().all(): raise ValueError("not finite")
    confidence, right = gap.abs().sigmoid(), (gap > 0).float() + .5 * (gap == 0)
    place, out = (confidence - .5) * 2 * n_bins, []
    for k in range(n_bins):
        here = (k <= place) & (place < k + 1)
        if here.any(): out.append((confidence[here].mean(), right[here].mean(), here.sum()))
    a, b, c = zip(*out) if out else ((), (), ())
    return torch.tensor(a), torch.tensor(b), torch.tensor(c, dtype=torch.long)
''')
wrong("calibration_bins", "makes bins with equal numbers of pairs, not of equal width", r"equal width|width|bins?|number|edges?|count|quantile", '''
def calibration_bins(chosen, rejected, n_bins=10):
    gap = chosen - rejected
    if not gap.isfinite().all(): raise ValueError("not finite")
    confidence, order = gap.abs().sigmoid().sort()
    right = ((gap > 0).float() + .5 * (gap == 0))[order]
    parts = [(c.mean(), r.mean(), len(c)) for c, r in zip(confidence.chunk(n_bins), right.chunk(n_bins))]
    a, b, n = zip(*parts)
    return torch.stack(a), torch.stack(b), torch.tensor(n)
''')
wrong("calibration_bins", "gives the middle of each bin, not the mean confidence of its pairs", r"middle|mean confidence|cent(er|re)|midpoint|confidence|average", '''
def calibration_bins(chosen, rejected, n_bins=10):
    gap = chosen - rejected
    if not gap.isfinite().all(): raise ValueError("not finite")
    index = ((gap.abs().sigmoid() - .5) * 2 * n_bins).long().clamp(max=n_bins - 1)
    right = (gap > 0).double() + .5 * (gap == 0)
    count = torch.bincount(index, minlength=n_bins)
    accuracy = torch.bincount(index, right, minlength=n_bins) / count
    middle, kept = .5 + (torch.arange(n_bins) + .5) / (2 * n_bins), count > 0
    return middle[kept], accuracy[kept].float(), count[kept]
''')
wrong("calibration_bins", "divides the sums by all pairs, not by those of the bin", r"divid|mean|bin|all pairs|own|count|average", '''
def calibration_bins(chosen, rejected, n_bins=10):
    gap = chosen - rejected
    if not gap.isfinite().all(): raise ValueError("not finite")
    confidence, right = gap.abs().sigmoid(), (gap > 0).float() + .5 * (gap == 0)
    index = ((confidence - .5) * 2 * n_bins).long().clamp(max=n_bins - 1)
    member = F.one_hot(index, n_bins).float()                     # (b n)
    kept = member.any(0)
    return (confidence @ member / len(gap))[kept], (right @ member / len(gap))[kept], member.sum(0).long()[kept]
''')
wrong("calibration_bins", "leaves pairs with infinite or nan scores out, where ValueError is asked for", r"inf|nan|finite|valueerror|refus|raise", '''
def calibration_bins(chosen, rejected, n_bins=10):
    gap = chosen - rejected
    gap = gap[gap.isfinite()]
    confidence, right = gap.abs().sigmoid(), (gap > 0).float() + .5 * (gap == 0)
    index = ((confidence - .5) * 2 * n_bins).long().clamp(max=n_bins - 1)
    used, inverse, count = index.unique(return_inverse=True, return_counts=True)
    sums = [torch.zeros(len(used)).index_add(0, inverse, x.float()) for x in (confidence, right)]
    return sums[0] / count, sums[1] / count, count
''')
wrong("calibration_bins", "leaves ties out altogether", r"tie|half|equal|pairs|left out|number", '''
def calibration_bins(chosen, rejected, n_bins=10):
    gap = chosen - rejected
    if not gap.isfinite().all(): raise ValueError("not finite")
    gap = gap[gap != 0]
    confidence, right = gap.abs().sigmoid(), (gap > 0).float()
    index = ((confidence - .5) * 2 * n_bins).long().clamp(max=n_bins - 1)
    used, inverse, count = index.unique(return_inverse=True, return_counts=True)
    sums = [torch.zeros(len(used)).index_add(0, inverse, x.float()) for x in (confidence, right)]
    return sums[0] / count, sums[1] / count, count
''')

# ---------------------------------------------------------------- 06 exact_gradient
edits("exact_gradient", '''
def exact_gradient(model, world, reward):
    logp = all_logprobs(model, world)
    value = expectation(logp, reward.detach())
    grads = {}
    for name, p in model.named_parameters():
        if not p.requires_grad: continue
        grads[name], = torch.autograd.grad(value, p, retain_graph=True)
    return grads
''',
    ("lets the gradient flow through the reward, which is a constant", r"reward|constant|detach", "reward.detach()", "reward"),
    ("has the sign of a loss: it points downhill", r"sign|minus|negative|descen|loss|downhill|-1|opposite", "torch.autograd.grad(value, p,", "torch.autograd.grad(-value, p,"),
    ("divides by the number of responses", r"mean|divid|number of|sum|size|factor|too small|expectation", "expectation(logp, reward.detach())", "expectation(logp, reward.detach()) / len(reward)"),
    ("names only the end of each name, so `head.weight` is `weight`", r"name|key|head\.weight", "grads[name],", "grads[name.split('.')[-1]],"),
    ("standardises the rewards first", r"standard|normali|whiten|std|scale|reward|size|factor", "reward.detach()", "((reward - reward.mean()) / reward.std()).detach()"),
    ("forgets the probabilities: sums r log π over the responses", r"probab|weight|π|expectation|exp|sum", "expectation(logp, reward.detach())", "(logp * reward.detach()).sum()"),
    ("divides each log-prob by the length of its response", r"length|token|divid|normali|log-prob|probab", "logp = all_logprobs(model, world)", "logp = all_logprobs(model, world) / world.seqs.response_mask.sum(1)"))
right("exact_gradient", '''
def exact_gradient(model, world, reward):
    free = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    logp = all_logprobs(model, world)
    weight = torch.where(logp > -torch.inf, logp.exp() * reward, 0.).detach()
    surrogate = (weight * logp.clamp(min=-1e30)).sum()         # grad of it: E[r grad log pi]
    grads = torch.autograd.grad(surrogate, [p for _, p in free])
    return {n: g for (n, _), g in zip(free, grads)}
''')
right("exact_gradient", '''
def exact_gradient(model, world, reward):
    import copy
    twin = copy.deepcopy(model)
    twin.zero_grad(set_to_none=True)
    expectation(all_logprobs(twin, world), reward.detach()).backward()
    return {name: p.grad for name, p in twin.named_parameters() if p.requires_grad}
''')
wrong("exact_gradient", "fills .grad of the model", r"\.grad|alone|backward|fill|accumul|left", '''
def exact_gradient(model, world, reward):
    expectation(all_logprobs(model, world), reward.detach()).backward()
    return {n: p.grad for n, p in model.named_parameters() if p.requires_grad}
''')
wrong("exact_gradient", "returns zeros for frozen parameters instead of leaving them out", r"frozen|requires_grad|left out|leave|names|keys", '''
def exact_gradient(model, world, reward):
    named = dict(model.named_parameters())
    free = {n: p for n, p in named.items() if p.requires_grad}
    value = expectation(all_logprobs(model, world), reward.detach())
    found = dict(zip(free, torch.autograd.grad(value, list(free.values()))))
    return {n: found.get(n, torch.zeros_like(p)) for n, p in named.items()}
''')
wrong("exact_gradient", "unfreezes every parameter of the model", r"frozen|requires_grad|unfr|left out|leave|names|keys", '''
def exact_gradient(model, world, reward):
    for p in model.parameters(): p.requires_grad_()
    value = expectation(all_logprobs(model, world), reward.detach())
    grads = torch.autograd.grad(value, list(model.parameters()))
    return {n: g for (n, _), g in zip(model.named_parameters(), grads)}
''')
wrong("exact_gradient", "returns a tuple of gradients without names", r"dict|name|tuple|key|type|mapping", '''
def exact_gradient(model, world, reward):
    value = expectation(all_logprobs(model, world), reward.detach())
    return torch.autograd.grad(value, [p for p in model.parameters() if p.requires_grad])
''')
wrong("exact_gradient", "does not hold π constant in the score-function form, so r (1 + log π) stands where r should", r"score|log|twice|detach|constant|π|entrop|surrogate|finite|nudg|off", '''
def exact_gradient(model, world, reward):
    free = {n: p for n, p in model.named_parameters() if p.requires_grad}
    logp = all_logprobs(model, world)
    surrogate = expectation(logp, reward.detach() * logp)
    return dict(zip(free, torch.autograd.grad(surrogate, list(free.values()))))
''')
wrong("exact_gradient", "estimates the gradient from 256 samples", r"sampl|exact|noise|random|estimat|nudg|differ", '''
def exact_gradient(model, world, reward):
    free = {n: p for n, p in model.named_parameters() if p.requires_grad}
    logp = all_logprobs(model, world)
    drawn = torch.multinomial(logp.detach().exp(), 256, replacement=True)
    mean = (reward.detach()[drawn] * logp[drawn]).mean()
    return dict(zip(free, torch.autograd.grad(mean, list(free.values()))))
''')
wrong("exact_gradient", "takes the gradient for the first free parameter only", r"parameter|names|every|each|missing|key|all", '''
def exact_gradient(model, world, reward):
    name, p = next((n, p) for n, p in model.named_parameters() if p.requires_grad)
    value = expectation(all_logprobs(model, world), reward.detach())
    return {name: torch.autograd.grad(value, p)[0]}
''')

# ---------------------------------------------------------------- 06 optimal_policy
edits("optimal_policy", '''
def optimal_policy(ref_logp, reward, beta):
    if not beta > 0: raise ValueError(f"beta must be above 0, got {beta}")
    tilted = ref_logp + reward / beta
    log_z = tilted.logsumexp(0)
    return tilted.log_softmax(0), log_z
''',
    ("returns Z, not log Z", r"\blog z\b|\bz\b|log_z|exp", "return tilted.log_softmax(0), log_z", "return tilted.log_softmax(0), log_z.exp()"),
    ("returns β log Z, the value, not log Z", r"\blog z\b|\bz\b|log_z|beta|β|value|twice|factor", "return tilted.log_softmax(0), log_z", "return tilted.log_softmax(0), beta * log_z"),
    ("multiplies the reward by beta", r"divid|beta|β|multipl|/ ?β", "reward / beta", "reward * beta"),
    ("accepts every beta", r"valueerror|refus|raise|above 0|beta|β", '    if not beta > 0: raise ValueError(f"beta must be above 0, got {beta}")\n', ""),
    ("accepts a beta of 0", r"valueerror|refus|raise|above 0|beta|β|\b0\b|zero", "if not beta > 0", "if beta < 0"),
    ("subtracts the reward, so the worst response is made likely", r"sign|minus|worst|reward|opposite|tilt|negative", "ref_logp + reward / beta", "ref_logp - reward / beta"),
    ("leaves the reference out", r"reference|ref_logp|π_ref|prior|ref", "ref_logp + reward / beta", "reward / beta"),
    ("divides the reference's log-probs by beta as well", r"reference|ref_logp|π_ref|divid|beta|β|both", "ref_logp + reward / beta", "(ref_logp + reward) / beta"),
    ("does not subtract log Z: the probabilities do not sum to 1", r"sum to 1|normali|log z|log_z|minus|subtract", "return tilted.log_softmax(0), log_z", "return tilted, log_z"),
    ("returns probabilities, not their logs", r"log|probab|exp", "return tilted.log_softmax(0), log_z", "return tilted.softmax(0), log_z"),
    ("takes the mean instead of the sum in Z", r"mean|sum|\blog z\b|log_z|number of|log n|\bz\b", "log_z = tilted.logsumexp(0)", "log_z = tilted.logsumexp(0) - math.log(len(tilted))"),
    ("clamps r / β at 80", r"clamp|overflow|large|clip|inf|r ?/ ?β|80|finite|beta", "reward / beta", "(reward / beta).clamp(-80, 80)"))
right("optimal_policy", '''
def optimal_policy(ref_logp, reward, beta):
    check_number("beta", beta, "above 0")
    tilted = torch.add(ref_logp, reward, alpha=1 / beta)
    top = tilted.max()
    log_z = top + (tilted - top).exp().sum().log()
    return tilted - log_z, log_z
''')
right("optimal_policy", '''
def optimal_policy(ref_logp, reward, beta):
    if not (beta > 0): raise ValueError("optimal_policy needs a beta above 0")
    log_z = ref_logp.new_tensor(-torch.inf)
    for l, r in zip(ref_logp, reward): log_z = torch.logaddexp(log_z, l + r / beta)
    return F.log_softmax(ref_logp + reward / beta, dim=-1), log_z
''')
wrong("optimal_policy", "leaves the logs, so exp(r / β) overflows", r"overflow|inf|nan|logs?|finite|large|logsumexp", '''
def optimal_policy(ref_logp, reward, beta):
    if not beta > 0: raise ValueError("beta must be above 0")
    weight = ref_logp.exp() * (reward / beta).exp()
    z = weight.sum()
    return (weight / z).log(), z.log()
''')
wrong("optimal_policy", "returns log Z first", r"order|first|swap|shape|second|exchang|\(n\)", '''
def optimal_policy(ref_logp, reward, beta):
    check_number("optimal_policy: beta", beta, "above 0")
    log_z = torch.logsumexp(ref_logp + reward / beta, -1)
    return log_z, ref_logp + reward / beta - log_z
''')
wrong("optimal_policy", "subtracts the mean reward first, which changes log Z", r"log z|log_z|mean|cent(er|re)|baseline|constant|\bz\b", '''
def optimal_policy(ref_logp, reward, beta):
    check_number("optimal_policy: beta", beta, "above 0")
    advantage = reward - reward.mean()
    tilted = ref_logp + advantage / beta
    log_z = tilted.logsumexp(-1)
    return tilted - log_z, log_z
''')
wrong("optimal_policy", "adds the reward into the caller's ref_logp", r"in place|in-place|input|changed|mutat|modif|overwr|ref_logp|copy|clone", '''
def optimal_policy(ref_logp, reward, beta):
    check_number("optimal_policy: beta", beta, "above 0")
    ref_logp += reward / beta
    log_z = ref_logp.logsumexp(-1)
    return ref_logp - log_z, log_z
''')
wrong("optimal_policy", "puts all probability on the best response, as if there were no penalty", r"best response|argmax|softmax|sum|all|π\*|-inf|tilt|probab", '''
def optimal_policy(ref_logp, reward, beta):
    check_number("optimal_policy: beta", beta, "above 0")
    tilted = ref_logp + reward / beta
    best = torch.full_like(tilted, -torch.inf)
    best[tilted.argmax()] = 0.
    return best, tilted.logsumexp(-1)
''')
wrong("optimal_policy", "raises AssertionError, not ValueError", r"valueerror|assert|refus|raise|above 0|beta|β", '''
def optimal_policy(ref_logp, reward, beta):
    assert beta > 0, "beta must be above 0"
    tilted = ref_logp + reward / beta
    log_z = tilted.logsumexp(-1)
    return tilted - log_z, log_z
''')

# ---------------------------------------------------------------- 06 best_of_n_policy
edits("best_of_n_policy", '''
def best_of_n_policy(logp, score, n):
    if n < 1: raise ValueError(f"n must be 1 or more, got {n}")
    logp, score = at_least_float32(logp, score)
    probs = logp.exp()
    levels, which = score.unique(return_inverse=True)          # sorted upwards
    level = torch.zeros_like(levels).to(probs).index_add(0, which, probs)
    upto = level.cumsum(0)
    lower = (upto - level).clamp(min=0)
    win = upto**n - lower**n
    share = logp - level.log()[which]
    return (share + win.log()[which]).masked_fill(probs == 0, -torch.inf)
''',
    ("raises to n - 1, one draw too few", r"power|\bn\b|exponent|n ?- ?1|\*\*|draws|\.36", "win = upto**n - lower**n", "win = upto**(n - 1) - lower**(n - 1)"),
    ("gives each response its whole level: ties do not share", r"tie|share|equal|sum to 1|proportion", "share = logp - level.log()[which]", "share = torch.zeros_like(logp)"),
    ("lets tied responses share equally, not in proportion", r"tie|share|proportion|equal|3 : 5|\.24", "share = logp - level.log()[which]", "share = -which.bincount().to(logp).log()[which]"),
    ("returns probabilities, not logs", r"log|probab|-inf", "return (share + win.log()[which]).masked_fill(probs == 0, -torch.inf)", "return (share + win.log()[which]).masked_fill(probs == 0, -torch.inf).exp()"),
    ("gives nan for a response of probability 0", r"nan|probability 0|-inf|−∞|zero|never", ".masked_fill(probs == 0, -torch.inf)", ""),
    ("accepts n = 0", r"valueerror|refus|raise|1 or more|\bn\b", '    if n < 1: raise ValueError(f"n must be 1 or more, got {n}")\n', ""),
    ("picks the lowest score", r"lowest|worst|highest|order|reverse|lower|at most|direction", "levels, which = score.unique(", "levels, which = (-score).unique("),
    ("compares rounded scores, so close scores are tied", r"round|close|tie|equal|score|differ", "score.unique(", "score.round().unique("),
    ("never subtracts (u - l)^n: the probability that the best is at most this", r"\bu\b|\bl\b|subtract|at most|sum to 1|lower|cumul|\(u - l\)|exactly", "win = upto**n - lower**n", "win = upto**n"))
right("best_of_n_policy", '''
def best_of_n_policy(logp, score, n):
    check_number("n", n, "1 or more", int)
    logp, score = at_least_float32(logp, score)
    p, out = logp.exp(), []
    for i in range(len(p)):
        exactly = p[score == score[i]].sum()
        below = p[score < score[i]].sum()
        won = (below + exactly)**n - below**n
        out.append((p[i] / exactly * won).log() if p[i] > 0 else p.new_tensor(-torch.inf))
    return torch.stack(out)
''')
right("best_of_n_policy", '''
def best_of_n_policy(logp, score, n):
    if not n >= 1: raise ValueError("best_of_n_policy draws at least one response")
    logp, score = at_least_float32(logp, score)
    p = logp.exp()
    same = score[:, None].eq(score).to(p)
    lower = score[:, None].gt(score).to(p)
    l, below = torch.einsum("ij,j->i", same, p), torch.einsum("ij,j->i", lower, p)
    # a^n - b^n = (a - b) (a^(n-1) + a^(n-2) b + ... + b^(n-1)), and a - b is l
    total = sum((below + l)**(n - 1 - k) * below**k for k in range(n))
    return torch.where(p > 0, logp + total.log(), -torch.inf)
''')
wrong("best_of_n_policy", "takes the density formula n p u^(n-1), which holds without ties and jumps only", r"sum to 1|\bu\b|\bl\b|formula|continuous|discrete|density|tie|\.36|probab", '''
def best_of_n_policy(logp, score, n):
    check_number("best_of_n_policy: n", n, "1 or more", int)
    logp, score = at_least_float32(logp, score)
    upto = (logp.exp() * (score[:, None] >= score)).sum(-1)
    return (logp + math.log(n) + (n - 1) * upto.log()).masked_fill(logp == -torch.inf, -torch.inf)
''')
wrong("best_of_n_policy", "gives the probability that the response is drawn at all in n tries", r"score|drawn|at least once|sum to 1|best|picked|compar|1 - \(1", '''
def best_of_n_policy(logp, score, n):
    check_number("best_of_n_policy: n", n, "1 or more", int)
    logp, score = at_least_float32(logp, score)
    return (1 - (1 - logp.exp())**n).log()
''')
wrong("best_of_n_policy", "lets the first response of the list win a tie", r"tie|share|equal|first|proportion|drawn|list", '''
def best_of_n_policy(logp, score, n):
    check_number("best_of_n_policy: n", n, "1 or more", int)
    logp, score = at_least_float32(logp, score)
    p, m = logp.exp(), len(logp)
    order = sorted(range(m), key=lambda i: (score[i].item(), -i))
    out, below = p.new_zeros(m), p.new_zeros(())
    for i in order:
        out[i] = (below + p[i])**n - below**n
        below = below + p[i]
    return out.log()
''')
wrong("best_of_n_policy", "takes the response's own probability for l, so ties are counted wrongly", r"tie|\bl\b|equal|score|own|exactly|sum to 1|share", '''
def best_of_n_policy(logp, score, n):
    check_number("best_of_n_policy: n", n, "1 or more", int)
    logp, score = at_least_float32(logp, score)
    p = logp.exp()
    upto = torch.stack([p[score <= s].sum() for s in score])
    return (upto**n - (upto - p).clamp(min=0)**n).log().masked_fill(p == 0, -torch.inf)
''')
wrong("best_of_n_policy", "tilts by n times the score, as the best policy at β = 1/n does", r"best.of|tilt|formula|exp|\bu\b|rank|order|\.36|softmax", '''
def best_of_n_policy(logp, score, n):
    check_number("best_of_n_policy: n", n, "1 or more", int)
    logp, score = at_least_float32(logp, score)
    return (logp + (n - 1) * score).log_softmax(-1)
''')
wrong("best_of_n_policy", "makes u the probability of a lower score only", r"\bu\b|at most|lower|strict|own|nan|equal|includ|\.36|sum to 1", '''
def best_of_n_policy(logp, score, n):
    check_number("best_of_n_policy: n", n, "1 or more", int)
    logp, score = at_least_float32(logp, score)
    p, order = logp.exp(), score[:, None] - score
    level = (p * (order == 0)).sum(-1)
    upto = (p * (order > 0)).sum(-1)
    gain = upto**n - (upto - level).clamp(min=0)**n
    return (logp - level.log() + gain.log()).masked_fill(p == 0, -torch.inf)
''')
wrong("best_of_n_policy", "raises AssertionError for n = 0", r"valueerror|assert|refus|raise|1 or more|\bn\b", '''
def best_of_n_policy(logp, score, n):
    assert n >= 1
    logp, score = at_least_float32(logp, score)
    p, order = logp.exp(), score[:, None] - score
    level = (p * (order == 0)).sum(-1)
    upto = (p * (order >= 0)).sum(-1)
    gain = upto**n - (upto - level).clamp(min=0)**n
    return (logp - level.log() + gain.log()).masked_fill(p == 0, -torch.inf)
''')

# ---------------------------------------------------------------- 06 fixed_prefix_value
edits("fixed_prefix_value", '''
def fixed_prefix_value(probs, reward, beta):
    here = probs > 0
    x = probs[here].log() + reward[here] / beta
    return beta * torch.logsumexp(x, dim=0)
''',
    ("leaves beta out in front", r"beta|β|front|multipl|scale|factor|times", "return beta * ", "return "),
    ("multiplies the reward by beta inside", r"beta|β|divid|inside|reward ?/|multipl", "reward[here] / beta", "reward[here] * beta"),
    ("has the wrong sign of the reward", r"sign|minus|negative|reward|opposite|worst", "+ reward[here] / beta", "- reward[here] / beta"),
    ("clamps reward / beta at 80", r"clamp|300|overflow|large|clip|inf|80|finite", "reward[here] / beta", "(reward[here] / beta).clamp(-80, 80)"),
    ("does not weigh by the probabilities", r"probs|probab|weigh|weight|sum", "probs[here].log() + ", ""),
    ("takes the log to base 2", r"base|log|natural|ln|bits|factor|\.6625", "torch.logsumexp(x, dim=0)", "torch.logsumexp(x, dim=0) / math.log(2)"),
    ("stops before the log", r"\blog\b|exp|sum|inf|overflow", "torch.logsumexp(x, dim=0)", "x.exp().sum()"))
right("fixed_prefix_value", '''
def fixed_prefix_value(probs, reward, beta):
    keep = probs > 0
    p, x = probs[keep], reward[keep] / beta
    top = x.max()
    return beta * (top + (p * (x - top).exp()).sum().log())
''')
right("fixed_prefix_value", '''
def fixed_prefix_value(probs, reward, beta):
    total = probs.new_tensor(-torch.inf)
    for p, r in zip(probs, reward):
        if p > 0: total = torch.logaddexp(total, p.log() + r / beta)
    return total * beta
''')
wrong("fixed_prefix_value", "keeps the fault: the mean reward", r"mean|soft|\bexp\b|log|average|tilt|bug|\.6625", '''
def fixed_prefix_value(probs, reward, beta):
    return torch.dot(probs, reward.masked_fill(probs == 0, 0.).to(probs.dtype))
''')
wrong("fixed_prefix_value", "forms exp(reward / beta), which overflows at 300", r"overflow|300|inf|logsumexp|finite|large", '''
def fixed_prefix_value(probs, reward, beta):
    keep = probs > 0
    return beta * (probs[keep] * torch.exp(reward[keep] / beta)).sum().log()
''')
wrong("fixed_prefix_value", "lets the reward of a response with probability 0 in: an infinite one makes nan", r"probability 0|nan|inf|whatever|zero|adds nothing", '''
def fixed_prefix_value(probs, reward, beta):
    return beta * torch.logsumexp(probs.log() + reward / beta, -1)
''')
wrong("fixed_prefix_value", "adds 1e-8 to the probabilities, so a response of probability 0 counts", r"probability 0|adds nothing|whatever|1e-8|epsilon|zero|\beps\b", '''
def fixed_prefix_value(probs, reward, beta):
    return beta * ((probs + 1e-8).log() + reward / beta).logsumexp(-1)
''')
wrong("fixed_prefix_value", "takes the largest reward that can follow: the value at β = 0", r"max|largest|best|sum|soft|log|mean|\.6625", '''
def fixed_prefix_value(probs, reward, beta):
    return reward.masked_fill(probs <= 0, -torch.inf).amax(-1)
''')
wrong("fixed_prefix_value", "puts the probability into the exponent", r"probab|weigh|exponent|probs|sum|outside", '''
def fixed_prefix_value(probs, reward, beta):
    terms = [p * r / beta for p, r in zip(probs, reward) if p > 0]
    return beta * torch.stack(terms).logsumexp(0)
''')
wrong("fixed_prefix_value", "treats the probabilities as logits", r"probab|log|logit|softmax|weigh|probs", '''
def fixed_prefix_value(probs, reward, beta):
    logp = F.log_softmax(probs, dim=-1).masked_fill(probs == 0, -torch.inf)
    x = torch.where(probs > 0, logp + reward / beta, -torch.inf)
    return beta * x.logsumexp(-1)
''')
wrong("fixed_prefix_value", "stops after the second term of the series: mean + variance / 2β", r"variance|series|approx|exact|log|exp|soft|mean|\.6625", '''
def fixed_prefix_value(probs, reward, beta):
    r = reward.masked_fill(probs == 0, 0.)
    mean = (probs * r).sum()
    return mean + (probs * (r - mean)**2).sum() / (2 * beta)
''')
wrong("fixed_prefix_value", "shifts by the largest reward of all, also of a response of probability 0, so the rest underflows", r"probability 0|underflow|-inf|inf|whatever|adds nothing|zero|nan", '''
def fixed_prefix_value(probs, reward, beta):
    x = reward / beta
    top = x.max()
    return beta * (top + (probs * torch.exp(x - top)).sum().log())
''')

# ---------------------------------------------------------------- 07 kl_k1
edits("kl_k1", '''
def kl_k1(logp, ref_logp):
    if tuple(logp.shape) != tuple(ref_logp.shape): raise ValueError("the two shapes differ")
    a = logp.to(torch.promote_types(logp.dtype, torch.float32))
    b = ref_logp.to(torch.promote_types(ref_logp.dtype, torch.float32))
    return torch.sub(a, b)
''',
    ("has the reference first", r"sign|order|first|swap|policy|wrong way|minus|opposite|negative", "torch.sub(a, b)", "torch.sub(b, a)"),
    ("lets different shapes broadcast", r"shape|broadcast|valueerror|refus|raise",
     '    if tuple(logp.shape) != tuple(ref_logp.shape): raise ValueError("the two shapes differ")\n', ""),
    ("compares the numbers of entries only", r"shape|broadcast|valueerror|refus|raise", "tuple(logp.shape) != tuple(ref_logp.shape)", "logp.numel() != ref_logp.numel()"),
    ("subtracts in bf16 and raises the precision afterwards", r"float32|bf16|bfloat16|precision|dtype|digits|before|promot", "torch.sub(a, b)", "(logp - ref_logp).to(a.dtype)"),
    ("takes the absolute value", r"abs|sign|negative|below 0|below zero", "torch.sub(a, b)", "torch.sub(a, b).abs()"),
    ("averages over all entries", r"mean|shape|same shape|each|average|scalar", "torch.sub(a, b)", "torch.sub(a, b).mean()"),
    ("adds up each row", r"sum|shape|same shape|each|row|scalar|token", "torch.sub(a, b)", "torch.sub(a, b).sum(-1)"),
    ("detaches the policy: no gradient", r"gradient|detach|backward|requires_grad|autograd", "torch.sub(a, b)", "torch.sub(a.detach(), b)"),
    ("weighs by the policy's probability", r"weigh|probab|π|expectation|sampl|exp|log-ratio", "torch.sub(a, b)", "a.exp() * torch.sub(a, b)"),
    ("cuts below 0", r"negative|below 0|below zero|sign|clamp|any sign", "torch.sub(a, b)", "torch.sub(a, b).clamp(min=0)"))
right("kl_k1", '''
def kl_k1(logp, ref_logp):
    if logp.size() != ref_logp.size(): raise ValueError("kl_k1: two tensors of one shape, please")
    a, b = at_least_float32(logp, ref_logp)
    return a.add(b, alpha=-1)
''')
right("kl_k1", '''
def kl_k1(logp, ref_logp):
    if not (logp.ndim == ref_logp.ndim and all(m == n for m, n in zip(logp.shape, ref_logp.shape))):
        raise ValueError(f"{list(logp.shape)} and {list(ref_logp.shape)} do not fit")
    def wide(x): return x if x.dtype == torch.float64 else x.float()
    return wide(logp) + -wide(ref_logp)
''')
wrong("kl_k1", "gives the ratio, not its log", r"log|ratio|exp|nats", '''
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes differ")
    a, b = at_least_float32(logp, ref_logp)
    return torch.exp(a - b)
''')
wrong("kl_k1", "divides the two log-probs", r"divid|difference|subtract|minus|ratio|log|quotient", '''
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes differ")
    a, b = at_least_float32(logp, ref_logp)
    return a / b
''')
wrong("kl_k1", "stays in bf16", r"float32|bf16|bfloat16|precision|dtype|digits|promot", '''
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes differ")
    return logp - ref_logp
''')
wrong("kl_k1", "hides a nan where both are -inf", r"nan|-inf|both|inf", '''
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes differ")
    a, b = at_least_float32(logp, ref_logp)
    return torch.where((a == -torch.inf) & (b == -torch.inf), torch.zeros_like(a), a - b)
''')
wrong("kl_k1", "is k3", r"k3|k1|exp|log-ratio|sign|negative|difference|minus", '''
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes differ")
    a, b = at_least_float32(logp, ref_logp)
    return torch.expm1(b - a) - (b - a)
''')
wrong("kl_k1", "changes the caller's log-probs", r"in place|in-place|input|changed|mutat|modif|overwr|copy|clone", '''
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes differ")
    a, b = at_least_float32(logp.detach(), ref_logp)
    a -= b
    return a + logp - logp.detach() if logp.requires_grad else a
''')
wrong("kl_k1", "gives bits", r"nats|bits|log|base|1\.44|factor", '''
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes differ")
    a, b = at_least_float32(logp, ref_logp)
    return (a - b) / math.log(2.)
''')

# ---------------------------------------------------------------- 07 kl_k3
edits("kl_k3", '''
def kl_k3(logp, ref_logp):
    r = -kl_k1(logp, ref_logp)                    # log of ref over policy
    return torch.expm1(r) - r
''',
    ("has the two models swapped", r"sign|order|swap|first|policy|exponent|direction|wrong way|exp\(-d\)|exp\(d\)", "-kl_k1(logp, ref_logp)", "kl_k1(logp, ref_logp)"),
    ("has the wrong sign in front of d", r"sign|\+ ?d|minus|plus|\bd\b|negative", "torch.expm1(r) - r", "torch.expm1(r) + r"),
    ("forgets d", r"\bd\b|\+ d|missing|term|negative|forg|linear", "torch.expm1(r) - r", "torch.expm1(r)"),
    ("forgets the - 1", r"- 1|−1|− 1|\b1\b|term|at d = 0|zero|equal", "torch.expm1(r) - r", "torch.exp(r) - r"),
    ("is k2", r"k2|k3|squar|exp|d²|d\*\*2|formula|parabola", "torch.expm1(r) - r", "r**2 / 2"),
    ("halves k3", r"half|twice|factor|/ ?2|two", "torch.expm1(r) - r", "(torch.expm1(r) - r) / 2"),
    ("holds the exponent constant, so the gradient is wrong", r"gradient|detach|backward|autograd|constant", "torch.expm1(r) - r", "torch.expm1(r.detach()) - r"),
    ("clamps the log-ratio at 5", r"clamp|clip|large|inf|5|explod|up to", "-kl_k1(logp, ref_logp)", "(-kl_k1(logp, ref_logp)).clamp(-5, 5)"),
    ("averages over the tokens", r"mean|shape|same shape|each|average|scalar", "torch.expm1(r) - r", "(torch.expm1(r) - r).mean()"),
    ("adds up each row", r"sum|shape|same shape|each|row|scalar|token", "torch.expm1(r) - r", "(torch.expm1(r) - r).sum(-1)"),
    ("gives bits", r"nats|bits|log|base|factor", "torch.expm1(r) - r", "(torch.expm1(r) - r) / math.log(2)"))
right("kl_k3", '''
def kl_k3(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("kl_k3 needs two tensors of one shape")
    a, b = at_least_float32(logp, ref_logp)
    return (b - a).expm1().add(a - b)
''')
right("kl_k3", '''
def kl_k3(logp, ref_logp):
    d = kl_k1(logp, ref_logp)
    flat = [torch.special.expm1(-x) + x for x in d.reshape(-1)]
    return torch.stack(flat).view(d.shape) if flat else d
''')
wrong("kl_k3", "stays in bf16", r"float32|bf16|bfloat16|precision|dtype|digits|promot", '''
def kl_k3(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes differ")
    d = logp - ref_logp
    return torch.expm1(-d) + d
''')
wrong("kl_k3", "lets different shapes broadcast", r"shape|broadcast|valueerror|refus|raise", '''
def kl_k3(logp, ref_logp):
    wide = torch.promote_types(torch.promote_types(logp.dtype, ref_logp.dtype), torch.float32)
    d = logp.to(wide) - ref_logp.to(wide)
    return torch.expm1(-d) + d
''')
wrong("kl_k3", "forms the probabilities, so an improbable token divides 0 by 0", r"nan|inf|underflow|improbable|probab|log|finite|ratio", '''
def kl_k3(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes differ")
    p, q = [x.exp() for x in at_least_float32(logp, ref_logp)]
    r = q / p
    return r - 1 - r.log()
''')
wrong("kl_k3", "weighs each token by the policy's probability", r"weigh|probab|π|sampl|expectation", '''
def kl_k3(logp, ref_logp):
    d = kl_k1(logp, ref_logp)
    weight = at_least_float32(logp)[0].exp()
    return weight * (torch.expm1(-d) + d)
''')
wrong("kl_k3", "is the absolute log-ratio", r"abs|k3|exp|formula|log-ratio", '''
def kl_k3(logp, ref_logp):
    return torch.abs(kl_k1(logp, ref_logp))
''')
wrong("kl_k3", "carries no gradient", r"gradient|detach|no_grad|backward|requires_grad|autograd", '''
def kl_k3(logp, ref_logp):
    with torch.no_grad():
        d = kl_k1(logp, ref_logp)
        return torch.expm1(-d) + d
''')

# ---------------------------------------------------------------- 07 token_rewards
edits("token_rewards", '''
def token_rewards(score, penalty, mask):
    if penalty.shape != mask.shape or score.shape != mask.shape[:1]:
        raise ValueError("token_rewards: score (b), penalty and mask (b t)")
    penalty = penalty.to(torch.promote_types(penalty.dtype, torch.float32))
    column = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask, column, -1).amax(1, keepdim=True)       # -1: empty
    at_last = column == last
    return penalty + torch.where(at_last, score[:, None], 0.)
''',
    ("gives the score to every response token", r"last|every|each token|one token|once|only", "at_last = column == last", "at_last = mask"),
    ("gives the score to the last column, a pad in shorter rows", r"last (response|token)|pad|column|end", "at_last = column == last", "at_last = (column == len(column) - 1) & (last >= 0)"),
    ("puts the score in place of the last penalty", r"penalty|plus|add|replac|in place of|both|sum|2\.1", "penalty + torch.where(at_last, score[:, None], 0.)", "torch.where(at_last, score[:, None].to(penalty), penalty)"),
    ("subtracts the score", r"sign|minus|plus|subtract|score|negative|add", "penalty + torch.where(", "penalty - torch.where("),
    ("subtracts the penalty, which is negative already", r"penalty|sign|minus|already|negative|β", "return penalty + ", "return -penalty + "),
    ("stays in bf16", r"float32|bf16|bfloat16|precision|dtype|promot", "penalty = penalty.to(torch.promote_types(penalty.dtype, torch.float32))", "score = score.to(penalty)"),
    ("gives an empty response a score in its first column", r"empty|no score|without|response", "torch.where(mask, column, -1)", "torch.where(mask, column, 0)"),
    ("gives the score to the first response token", r"first|last|end", "torch.where(mask, column, -1).amax(1, keepdim=True)", "torch.where(mask, column, 10**6).amin(1, keepdim=True)"),
    ("subtracts the batch mean from the scores", r"mean|cent(er|re)|baseline|score|whiten|batch", "score[:, None]", "(score - score.float().mean())[:, None]"),
    ("does not check the shapes", r"shape|valueerror|refus|raise|broadcast|\(b\)",
     '''    if penalty.shape != mask.shape or score.shape != mask.shape[:1]:
        raise ValueError("token_rewards: score (b), penalty and mask (b t)")
''', ""),
    ("checks the score's shape and not the penalty's", r"shape|penalty|valueerror|refus|raise|broadcast", "penalty.shape != mask.shape or score", "score"))
right("token_rewards", '''
def token_rewards(score, penalty, mask):
    if score.shape != mask.shape[:1] or penalty.shape != mask.shape or mask.dim() != 2:
        raise ValueError("the shapes do not fit")
    wide = torch.promote_types(torch.promote_types(penalty.dtype, torch.float32), score.dtype)
    rows = []
    for s, row, keep in zip(score.to(wide), penalty.to(wide), mask.tolist()):
        if any(keep):
            last = max(i for i, m in enumerate(keep) if m)
            row = torch.cat([row[:last], (row[last] + s)[None], row[last + 1:]])
        rows.append(row)
    return torch.stack(rows)
''')
right("token_rewards", '''
def token_rewards(score, penalty, mask):
    if score.shape != mask.shape[:1]: raise ValueError(f"score {tuple(score.shape)}, mask {tuple(mask.shape)}")
    out, kept = at_least_float32(penalty, mask)[0].clone(), mask.long()
    later = kept.sum(1, keepdim=True) - kept.cumsum(1)         # response tokens behind each
    rows, columns = (mask & (later == 0)).nonzero(as_tuple=True)
    out = out.to(torch.promote_types(out.dtype, score.dtype))
    return out.index_put((rows, columns), score[rows].to(out.dtype), accumulate=True)
''')
wrong("token_rewards", "uses the number of response tokens as a place", r"count|number of|left|prompt|place|last|position", '''
def token_rewards(score, penalty, mask):
    if score.shape != mask.shape[:1] or penalty.shape != mask.shape: raise ValueError("shapes")
    out = at_least_float32(penalty)[0].clone()
    n = mask.sum(1)
    rows = (n > 0).nonzero().flatten()
    out[rows, n[rows] - 1] += score[rows].to(out.dtype)
    return out
''')
wrong("token_rewards", "refuses an empty response", r"empty|refus|no score|response|valueerror|allowed", '''
def token_rewards(score, penalty, mask):
    if score.shape != mask.shape[:1] or penalty.shape != mask.shape: raise ValueError("shapes")
    penalty, = at_least_float32(penalty)
    last = F.one_hot(last_token_index(mask), mask.shape[1]).bool()
    return torch.where(last, penalty + score[:, None], penalty)
''')
wrong("token_rewards", "forgets `mask &`: with one response token the tokens before it get the score, too", r"prompt|mask|one (response )?token|outside|once|before|single|pad", '''
def token_rewards(score, penalty, mask):
    if score.shape != mask.shape[:1] or penalty.shape != mask.shape: raise ValueError("shapes")
    penalty, = at_least_float32(penalty)
    later = mask.flip(1).cumsum(1).flip(1)
    return torch.where(later == 1, penalty + score[:, None], penalty)
''')
wrong("token_rewards", "spreads the score over the response", r"spread|last|divid|length|each|every|only|share", '''
def token_rewards(score, penalty, mask):
    if score.shape != mask.shape[:1] or penalty.shape != mask.shape: raise ValueError("shapes")
    penalty, = at_least_float32(penalty)
    share = score / mask.sum(1).clamp(min=1)
    return penalty + repeat(share, "b -> b t", t=mask.shape[1]) * mask
''')
wrong("token_rewards", "returns the sum of the rewards to come, not the rewards", r"return|sum|to come|cumul|later|reward of each|own", '''
def token_rewards(score, penalty, mask):
    if score.shape != mask.shape[:1] or penalty.shape != mask.shape: raise ValueError("shapes")
    penalty, = at_least_float32(penalty)
    later = mask.flip(1).cumsum(1).flip(1)
    reward = torch.where(mask & (later == 1), penalty + score[:, None], penalty)
    return reward.flip(1).cumsum(1).flip(1)
''')
wrong("token_rewards", "adds the score into the caller's penalty", r"in place|in-place|input|changed|mutat|modif|overwr|penalty|copy|clone", '''
def token_rewards(score, penalty, mask):
    if score.shape != mask.shape[:1] or penalty.shape != mask.shape: raise ValueError("shapes")
    penalty, = at_least_float32(penalty)
    rows, columns = (mask & (mask.flip(1).cumsum(1).flip(1) == 1)).nonzero(as_tuple=True)
    penalty[rows, columns] += score[rows].to(penalty.dtype)
    return penalty
''')

# ---------------------------------------------------------------- 08 clipped_policy_loss
edits("clipped_policy_loss", '''
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = at_least_float32(logp, old_logp, advantage)
    ratio = torch.exp(logp - old_logp)
    near = ratio.clip(1 - cliprange, 1 + cliprange)
    return torch.maximum(-ratio * advantage, -near * advantage)
''',
    ("takes the better of the two products, not the worse", r"min|max|smaller|larger|pessimis|worse|clip", "torch.maximum(-ratio * advantage, -near * advantage)", "torch.minimum(-ratio * advantage, -near * advantage)"),
    ("has the sign of an objective", r"sign|minus|negative|loss|objective", "return torch.maximum(-ratio * advantage, -near * advantage)", "return -torch.maximum(-ratio * advantage, -near * advantage)"),
    ("uses the clipped product alone, so a token that must come back has no gradient", r"min|smaller|gradient|come back|clip|unclipped|both|flows", "torch.maximum(-ratio * advantage, -near * advantage)", "-near * advantage"),
    ("does not clip", r"clip|1 \+ ε|1 - ε|beyond|gradient|\.2", "torch.maximum(-ratio * advantage, -near * advantage)", "-ratio * advantage"),
    ("has the old policy above the new one", r"ratio|new over old|old|order|swap|sign|inver|invers", "logp - old_logp", "old_logp - logp"),
    ("uses the log-ratio in place of the ratio", r"ratio|exp|log|ρ", "torch.exp(logp - old_logp)", "1 + logp - old_logp"),
    ("clips the log-ratio at ±ε", r"clip|log|exp|1 \+ ε|1 - ε|bound|1\.2|\.8|ratio", "near = ratio.clip(1 - cliprange, 1 + cliprange)", "near = (logp - old_logp).clip(-cliprange, cliprange).exp()"),
    ("clips the ratio to ±ε, not to 1 ± ε", r"clip|1 \+ ε|1 - ε|bound|1\.2|\.8|around 1|ratio", "ratio.clip(1 - cliprange, 1 + cliprange)", "ratio.clip(-cliprange, cliprange)"),
    ("clips upwards only", r"lower|below|1 - ε|1 −|lowered|clip|both|side|\.8|\.5", "ratio.clip(1 - cliprange, 1 + cliprange)", "ratio.clip(max=1 + cliprange)"),
    ("stays in bf16", r"float32|bf16|bfloat16|precision|dtype|promot|raised", "logp, old_logp, advantage = at_least_float32(logp, old_logp, advantage)", "pass"),
    ("averages over the tokens", r"mean|shape|each token|\(b t\)|average|scalar", "return torch.maximum(-ratio * advantage, -near * advantage)", "return torch.maximum(-ratio * advantage, -near * advantage).mean()"),
    ("passes no gradient", r"gradient|detach|backward|requires_grad|autograd", "torch.exp(logp - old_logp)", "torch.exp(logp - old_logp).detach()"),
    ("ignores the cliprange it is given", r"cliprange|ε|epsilon|clip range|argument|\.2|given", "ratio.clip(1 - cliprange, 1 + cliprange)", "ratio.clip(.8, 1.2)"))
right("clipped_policy_loss", '''
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = at_least_float32(logp, old_logp, advantage)
    ratio = (logp - old_logp).exp()
    low, high = torch.full_like(ratio, 1 - cliprange), torch.full_like(ratio, 1 + cliprange)
    clipped = torch.clamp(ratio, low, high)
    return -torch.stack([ratio * advantage, clipped * advantage]).amin(0)
''')
right("clipped_policy_loss", '''
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    wide = [torch.promote_types(x.dtype, torch.float32) for x in (logp, old_logp, advantage)]
    log_ratio = logp.to(wide[0]) - old_logp.to(wide[1])
    a, rho = advantage.to(wide[2]), torch.exp(log_ratio)
    inside = rho.clamp(min=1 - cliprange).clamp(max=1 + cliprange)
    plain, clipped = rho * a, inside * a
    smaller = torch.where(clipped < plain, clipped, plain)
    return smaller.neg()
''')
wrong("clipped_policy_loss", "takes the smaller ratio before it multiplies: wrong where A is negative", r"negative|product|smaller|min|a < 0|advantage|come back|ratio", '''
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = at_least_float32(logp, old_logp, advantage)
    ratio = (logp - old_logp).exp()
    smaller = torch.minimum(ratio, ratio.clamp(1 - cliprange, 1 + cliprange))
    return -smaller * advantage
''')
wrong("clipped_policy_loss", "uses one ratio for the whole response", r"each token|sequence|response|row|sum|token|own", '''
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = at_least_float32(logp, old_logp, advantage)
    ratio = (logp - old_logp).mean(-1, keepdim=True).exp().expand_as(advantage)
    clipped = ratio.clamp(1 - cliprange, 1 + cliprange)
    return -torch.minimum(ratio * advantage, clipped * advantage)
''')
wrong("clipped_policy_loss", "bounds the loss of negative advantages at 3 |A| (dual clip, another method)", r"3|dual|negative|bound|large ratio|flows|must come back|gradient|clip", '''
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = at_least_float32(logp, old_logp, advantage)
    ratio = (logp - old_logp).exp()
    clipped = ratio.clamp(1 - cliprange, 1 + cliprange)
    worse = torch.minimum(ratio * advantage, clipped * advantage)
    return -torch.where(advantage < 0, torch.maximum(worse, 3 * advantage), worse)
''')
wrong("clipped_policy_loss", "holds the clipped ratio constant and multiplies by log π (CISPO, another method)", r"ratio|log π|logp|constant|detach|gradient|product|formula|min", '''
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = at_least_float32(logp, old_logp, advantage)
    weight = (logp - old_logp).exp().clamp(1 - cliprange, 1 + cliprange).detach()
    return -weight * advantage * logp
''')
wrong("clipped_policy_loss", "whitens the advantages first", r"advantage|whiten|normali|standard|mean|std|scale", '''
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = at_least_float32(logp, old_logp, advantage)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (logp - old_logp).exp()
    clipped = ratio.clamp(1 - cliprange, 1 + cliprange)
    return -torch.minimum(ratio * advantage, clipped * advantage)
''')

# ---------------------------------------------------------------- 08 gae
edits("gae", '''
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = at_least_float32(reward, value)
    reward, value = torch.where(mask, reward, 0.), torch.where(mask, value, 0.)
    b, t = mask.shape
    a_next = v_next = reward.new_zeros(b)
    advantage = torch.zeros_like(reward)
    for i in range(t - 1, -1, -1):
        here = mask[:, i]
        delta = reward[:, i] + gamma * v_next - value[:, i]
        a = delta + gamma * lam * a_next
        advantage[:, i] = torch.where(here, a, 0.)
        a_next = torch.where(here, a, a_next)
        v_next = torch.where(here, value[:, i], v_next)
    return advantage, advantage + value
''',
    ("leaves λ out", r"lam|λ|credit|\.95|\.45", "gamma * lam * a_next", "gamma * a_next"),
    ("leaves γ out where the advantages are carried on", r"gamma|γ|discount", "gamma * lam * a_next", "lam * a_next"),
    ("leaves γ out before the next value", r"gamma|γ|discount", "gamma * v_next", "v_next"),
    ("has the TD error the wrong way round", r"sign|delta|δ|minus|wrong way|td|negative|value", "reward[:, i] + gamma * v_next - value[:, i]", "value[:, i] - reward[:, i] - gamma * v_next"),
    ("starts again at a gap: a token before it sees no later advantage", r"gap|stepped over|tool|inside|next token|masked|skip", "a_next = torch.where(here, a, a_next)", "a_next = torch.where(here, a, 0.)"),
    ("takes 0 for the next value at a gap", r"gap|stepped over|tool|inside|next (token|value)|masked|skip", "v_next = torch.where(here, value[:, i], v_next)", "v_next = value[:, i]"),
    ("begins with the last value as the value after the end", r"after the last|end|bootstrap|last|v = a = 0|after", "a_next = v_next = reward.new_zeros(b)", "a_next, v_next = reward.new_zeros(b), value[:, -1]"),
    ("adds the rewards, not the values, to get the returns", r"return|value|a \+ v|g_t|\bg\b|reward", "return advantage, advantage + value", "return advantage, advantage + reward"),
    ("gives the returns first", r"order|swap|first|exchang|second|advantage|return", "return advantage, advantage + value", "return advantage + value, advantage"),
    ("multiplies by the mask, so a nan at a pad spreads", r"nan|anything|multipl|pads?|masked|inf", "torch.where(mask, reward, 0.), torch.where(mask, value, 0.)", "reward * mask, value * mask"),
    ("keeps running values at masked places instead of 0", r"mask|\b0\b|zero|pad|prompt|gap|false", "advantage[:, i] = torch.where(here, a, 0.)", "advantage[:, i] = torch.where(here, a, a_next)"),
    ("stays in bf16", r"float32|bf16|bfloat16|precision|dtype|promot", "    reward, value = at_least_float32(reward, value)\n", ""),
    ("counts prompt and pads as tokens of the response while it walks", r"mask|pad|prompt|gap|discount|stepped|skip|outside|after the last", "here = mask[:, i]", "here = torch.ones_like(mask[:, i])"))
right("gae", '''
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = at_least_float32(reward, value)
    advantage, returns = torch.zeros_like(reward), torch.zeros_like(reward)
    for row in range(len(mask)):
        a = v = 0.
        for i in reversed(mask[row].nonzero().flatten().tolist()):
            a = reward[row, i] + gamma * v - value[row, i] + gamma * lam * a
            v = value[row, i]
            advantage[row, i] = a
            returns[row, i] = a + v
    return advantage, returns
''')
right("gae", '''
def gae(reward, value, mask, gamma=1., lam=.95):
    wide = torch.promote_types(reward.dtype, torch.float32)
    r, v = reward.to(wide).masked_fill(~mask, 0), at_least_float32(value)[0].masked_fill(~mask, 0)
    order = (~mask).long().argsort(dim=1, stable=True)                  # response tokens to the front
    r_front, v_front = r.gather(1, order), v.gather(1, order)
    v_next = F.pad(v_front, (0, 1))[:, 1:]
    delta = r_front + gamma * v_next - v_front
    step = torch.arange(mask.shape[1])
    apart = (step[None, :] - step[:, None]).to(mask.device)             # (i k): k - i
    weight = torch.where(apart >= 0, torch.tensor(gamma * lam, dtype=torch.double)**apart.clamp(min=0), 0.)
    a_front = torch.einsum("ik,bk->bi", weight.to(delta), delta)
    a = torch.zeros_like(r).scatter(1, order, a_front).masked_fill(~mask, 0)
    return a, a + v
''')
wrong("gae", "masks at the end only, so what stands on prompt and pads leaks into the response", r"pad|prompt|leak|anything|mask|nan|outside|after the last", '''
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = at_least_float32(reward, value)
    v_next = F.pad(value[:, 1:], (0, 1))
    delta, a, columns = reward + gamma * v_next - value, 0., []
    for d in reversed(delta.unbind(1)):
        a = d + gamma * lam * a
        columns.insert(0, a)
    advantage = torch.stack(columns, 1).masked_fill(~mask, 0.)
    return advantage, (advantage + value).masked_fill(~mask, 0.)
''')
wrong("gae", "leaves the values of prompt and pads in the returns", r"return|pad|prompt|mask|\b0\b|zero|nan|outside", '''
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = at_least_float32(reward, value)
    advantage = torch.zeros_like(reward)
    for row, keep in enumerate(mask):
        a = v = 0.
        for i in keep.nonzero().flatten().flip(0).tolist():
            a = reward[row, i] + gamma * v - value[row, i] + gamma * lam * a
            v = value[row, i]
            advantage[row, i] = a
    return advantage, advantage + value
''')
wrong("gae", "walks from left to right", r"order|direction|first|last|left|right|backward|next|later|reverse|earlier", '''
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = [x.masked_fill(~mask, 0.) for x in at_least_float32(reward, value)]
    a = v = reward.new_zeros(len(reward))
    columns = []
    for i in range(reward.shape[1]):
        now = reward[:, i] + gamma * v - value[:, i] + gamma * lam * a
        columns.append(now.masked_fill(~mask[:, i], 0.))
        a = torch.where(mask[:, i], now, a)
        v = torch.where(mask[:, i], value[:, i], v)
    advantage = torch.stack(columns, 1)
    return advantage, advantage + value
''')
wrong("gae", "whitens the advantages", r"whiten|normali|mean|std|standard|scale", '''
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = [x.masked_fill(~mask, 0.) for x in at_least_float32(reward, value)]
    a, advantage = [0.] * len(mask), torch.zeros_like(reward)
    v = [0.] * len(mask)
    for i in reversed(range(mask.shape[1])):
        for b in mask[:, i].nonzero().flatten().tolist():
            a[b] = reward[b, i] + gamma * v[b] - value[b, i] + gamma * lam * a[b]
            v[b] = value[b, i]
            advantage[b, i] = a[b]
    returns = advantage + value
    real = advantage[mask]
    white = (advantage - real.mean()) / (real.std(correction=0) + 1e-8)
    return white.masked_fill(~mask, 0.), returns
''')
wrong("gae", "returns the one-step target r + γ V of the next token, not A + V", r"return|a \+ v|one-step|target|value|g_t|\bg\b", '''
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = [x.masked_fill(~mask, 0.) for x in at_least_float32(reward, value)]
    a = v = reward.new_zeros(len(reward))
    advantages, targets = [], []
    for i in reversed(range(reward.shape[1])):
        keep = mask[:, i]
        target = reward[:, i] + gamma * v
        now = target - value[:, i] + gamma * lam * a
        advantages.insert(0, now.masked_fill(~keep, 0.))
        targets.insert(0, target.masked_fill(~keep, 0.))
        a, v = torch.where(keep, now, a), torch.where(keep, value[:, i], v)
    return torch.stack(advantages, 1), torch.stack(targets, 1)
''')
wrong("gae", "takes the values for those after each token: δ compares with the value before", r"before|after|shift|next|v_\{?i|value|δ|delta|td", '''
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = [x.masked_fill(~mask, 0.) for x in at_least_float32(reward, value)]
    before = shift_right(value)
    delta = reward + gamma * value - before
    a, columns = reward.new_zeros(len(reward)), []
    for i in reversed(range(reward.shape[1])):
        now = delta[:, i] + gamma * lam * a
        columns.insert(0, now.masked_fill(~mask[:, i], 0.))
        a = torch.where(mask[:, i], now, a)
    advantage = torch.stack(columns, 1)
    return advantage, advantage + value
''')
wrong("gae", "overwrites the rewards and values that it was given", r"in place|in-place|input|changed|mutat|modif|overwr|copy|clone", '''
def gae(reward, value, mask, gamma=1., lam=.95):
    with torch.no_grad():
        reward.masked_fill_(~mask, 0.)
        value.masked_fill_(~mask, 0.)
    reward, value = at_least_float32(reward, value)
    a = v = reward.new_zeros(len(reward))
    columns = []
    for i in reversed(range(reward.shape[1])):
        now = reward[:, i] + gamma * v - value[:, i] + gamma * lam * a
        columns.insert(0, now.masked_fill(~mask[:, i], 0.))
        a = torch.where(mask[:, i], now, a)
        v = torch.where(mask[:, i], value[:, i], v)
    advantage = torch.stack(columns, 1)
    return advantage, advantage + value
''')
wrong("gae", "ignores λ and gives Monte Carlo returns minus values", r"lam|λ|monte|\.95|credit", '''
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = [x.masked_fill(~mask, 0.) for x in at_least_float32(reward, value)]
    g, columns = reward.new_zeros(len(reward)), []
    for i in reversed(range(reward.shape[1])):
        g = torch.where(mask[:, i], reward[:, i] + gamma * g, g)
        columns.insert(0, g.masked_fill(~mask[:, i], 0.))
    returns = torch.stack(columns, 1)
    return returns - value, returns
''')
