"""An eighth battery, part a: written from stubs and task texts alone, without sight of the check. OWN: False where a wrong answer is a right text with one edit."""
import math, random, re, torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, tensor
from torch.nn.functional import logsigmoid
from battery_maker import battery, quoting
from rlhf_nb.base.batches import at_least_float32, host_rows, send_to
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.sampling import SamplingParams
from rlhf_nb.base.settings import check_number
from rlhf_nb.kl import kl_k1, kl_k2
from rlhf_nb.tokens import Seqs, _kept, last_token_index, masked_sum, shift_right
from rlhf_nb.world import FLATTERY_BONUS, annotate, criteria, gold_score, utility
from rlhf_nb.worlds.oracle import all_logprobs, expectation, sample_rows
from rlhf_nb.worlds.world_text import FACTS, VALUES, parse_sentences
WRONG, RIGHT, SLIPS, OWN, wrong, right, edits = battery(globals())
edits = quoting(edits)

# ---- 02 shift_right
edits("shift_right", '''
def shift_right(x):
    out = torch.zeros_like(x)
    out[:, 1:] = x[:, :-1]
    return out
''',
    ("shifts to the left: row i of the result is row i+1 of x",
     r"left|direction|wrong way|i ?\+ ?1|i ?- ?1|forward|backward",
     "out[:, 1:] = x[:, :-1]", "out[:, :-1] = x[:, 1:]"),
    ("shifts along the batch axis, not along time",
     r"batch|axis 0|axis 1|time axis|dim ?= ?[01]|wrong axis|first axis",
     "out[:, 1:] = x[:, :-1]", "out[1:] = x[:-1]"),
    ("row 0 of the result is still row 0 of x, it should be 0",
     r"row 0|entry 0|first (row|entry|column)|column 0|out\[:, 0\]|zeros_like",
     "torch.zeros_like(x)", "x.clone()"),
    ("shifts by two places instead of one",
     r"\btwo\b|twice|by 2|one place|by one|too far",
     "out[:, 1:] = x[:, :-1]", "out[:, 2:] = x[:, :-2]"),
    ("fills row 0 with ones instead of zeros",
     r"\bones?\b|is 1|with 1|row 0|entry 0|first (row|entry|column)|true",
     "torch.zeros_like(x)", "torch.ones_like(x)"))
right("shift_right", '''
def shift_right(x):
    moved = x.roll(1, dims=1)
    first = torch.arange(x.shape[1], device=x.device) == 0
    first = first.view(1, -1, *[1] * (x.dim() - 2))
    return moved.masked_fill(first, 0)
''')
wrong("shift_right", "pads and cuts the last axis, which is the time axis only for (b t)",
      r"last axis|further ax|more axes|f\.pad|axis 1|time axis|vocab|third axis|last dim", '''
def shift_right(x):
    return F.pad(x, (1, 0))[..., :-1]
''')
wrong("shift_right", "rolls: the last row of x comes round to row 0, which should be 0",
      r"wrap|roll|round|row 0|entry 0|first (row|entry|column)", '''
def shift_right(x):
    return torch.roll(x, shifts=1, dims=1)
''')
wrong("shift_right", "the column of zeros is float, so bool and integer tensors change their type",
      r"dtype|type|bool|float|zeros_like", '''
def shift_right(x):
    b, t, *rest = x.shape
    head = torch.zeros(b, 1, *rest)
    return torch.cat([head, x.narrow(1, 0, t - 1)], dim=1)
''')
wrong("shift_right", "does not drop the last row of x, so the result is one longer than x",
      r"longer|t ?\+ ?1|drop|too many|same shape|shape|last (row|column|entry)|grows", '''
def shift_right(x):
    zero = x.new_zeros(x[:, :1].shape)
    return torch.cat((zero, x), dim=1)
''')
wrong("shift_right", "the zeros stand at the end: nothing moves, and the last row is wiped out",
      r"at the end|behind|after|in front|last (row|column|entry) (of the result )?(is|becomes|set)|not (moved|shifted)|nothing (moves|is shifted)|right end|wrong (end|side)", '''
def shift_right(x):
    steps = list(x.unbind(1))
    steps = steps[:-1] + [torch.zeros_like(steps[0])]
    return torch.stack(steps, dim=1)
''')

# ---- 02 token_logprobs
edits("token_logprobs", '''
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape:
        raise ValueError(f"logits {tuple(logits.shape)} and ids {tuple(ids.shape)} differ in (b t)")
    z = logits.to(torch.promote_types(logits.dtype, torch.float32))
    logp = z - z.logsumexp(-1, keepdim=True)
    picked = logp[:, :-1].gather(2, ids[:, 1:, None]).squeeze(2)
    zero = picked.new_zeros(len(ids), 1)
    return torch.cat([zero, picked], 1)
''',
    ("picks the id that was just read, not the id that is predicted from there",
     r"just read|was read|has read|predict|next (token|id)|not shifted|wrong (id|token)|shift|off by one|own (id|token)",
     "ids[:, 1:, None]", "ids[:, :-1, None]"),
    ("computes in the dtype of the logits, so bf16 stays bf16",
     r"float32|bf16|half|precision|promot|dtype|16",
     "logits.to(torch.promote_types(logits.dtype, torch.float32))", "logits"),
    ("compares only the number of rows, so a different number of columns is not refused",
     r"refus|valueerror|raise|differ|only the (rows|batch|b\b)|columns|shape\[:2\]|accept",
     "logits.shape[:2] != ids.shape", "logits.shape[0] != ids.shape[0]"),
    ("normalises over the time axis, not over the vocabulary",
     r"vocab|last axis|axis|dim\b|over time|normali",
     "z.logsumexp(-1, keepdim=True)", "z.logsumexp(1, keepdim=True)"),
    ("the zero stands at the end: each log-prob stands on the token before its own",
     r"at the end|behind|in front|entry 0|column 0|first (entry|column)|one (column|place|token) (too )?(early|left)|shifted onto|token before|order|off by one",
     "[zero, picked]", "[picked, zero]"),
    ("returns t - 1 columns: entry 0 is missing",
     r"t ?- ?1|shorter|entry 0|missing|shape|first (entry|column)|one column|column 0",
     "return torch.cat([zero, picked], 1)", "return picked"))
right("token_logprobs", '''
def token_logprobs(logits, ids):
    if tuple(ids.shape) != tuple(logits.shape[:2]):
        raise ValueError("logits and ids must have the same (b t)")
    wide = torch.promote_types(logits.dtype, torch.float32)
    target = ids[:, 1:]
    nll = F.cross_entropy(logits[:, :-1].to(wide).flatten(0, 1), target.flatten(), reduction="none")
    out = torch.zeros(ids.shape, dtype=wide, device=logits.device)
    out[:, 1:] = -nll.view(target.shape)
    return out
''')
wrong("token_logprobs", "picks raw logits, which are not normalised to log-probs",
      r"normali|raw|log_softmax|logsumexp|softmax|not (a )?log-prob|sum to 1", '''
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError("shapes differ")
    wide = torch.promote_types(logits.dtype, torch.float32)
    z = shift_right(logits.to(wide))
    return z.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
''')
wrong("token_logprobs", "takes the log of a softmax, which is -inf for an improbable token",
      r"underflow|-inf|infinit|log_softmax|log of (a |the )?softmax|improbable|tiny|small prob|1e-45|softmax\(", '''
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError(f"{logits.shape} and {ids.shape}")
    wide = torch.promote_types(logits.dtype, torch.float32)
    p = logits.to(wide).softmax(-1)
    rows, t = torch.arange(len(ids))[:, None], torch.arange(ids.shape[1] - 1)
    out = torch.zeros(ids.shape, dtype=wide)
    out[:, 1:] = p[rows, t, ids[:, 1:]].log()
    return out
''')
wrong("token_logprobs", "entry 0 is not 0: the roll brings the last row of the log-probs round to token 0",
      r"entry 0|token 0|first (token|entry|column)|wrap|roll|round|column 0|is 0", '''
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError("logits and ids must share (b t)")
    logp = logits.log_softmax(-1, torch.promote_types(logits.dtype, torch.float32))
    logp = logp.roll(1, 1)
    return torch.take_along_dim(logp, ids[..., None], -1)[..., 0]
''')
wrong("token_logprobs", "returns negative log-probs, the sign of a loss",
      r"sign|minus|negative|negat|loss|nll|cross.entropy", '''
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError("logits and ids must share (b t)")
    wide = torch.promote_types(logits.dtype, torch.float32)
    v = logits.shape[-1]
    nll = F.cross_entropy(logits[:, :-1].to(wide).reshape(-1, v), ids[:, 1:].reshape(-1), reduction="none")
    return F.pad(nll.view(len(ids), -1), (1, 0))
''')

# ---- 02 masked_mean
edits("masked_mean", '''
def masked_mean(x, mask):
    if x.shape != mask.shape:
        raise ValueError(f"x {tuple(x.shape)} and mask {tuple(mask.shape)} differ in shape")
    if mask.sum() == 0:
        raise ValueError("no entry of the mask is True")
    picked = x[mask]
    picked = picked.to(torch.promote_types(picked.dtype, torch.float32))
    return picked.sum() / len(picked)
''',
    ("divides by the number of all entries, pads included, not by the number of True entries",
     r"all entries|numel|pads|padding|masked entries|number of (true|real|kept|entries)|divid|len\(picked\)|mask\.sum",
     "len(picked)", "x.numel()"),
    ("does not refuse a mask without any True entry: the result is nan",
     r"refus|valueerror|raise|0/0|no entry|empty|without|nothing|no true",
     '''    if mask.sum() == 0:
        raise ValueError("no entry of the mask is True")
''', ""),
    ("compares only the number of rows, so a mask of another shape picks whole rows",
     r"shape|differ|broadcast|number of rows|whole rows|mask of",
     "x.shape != mask.shape", "len(x) != len(mask)"),
    ("sums in the type of x, so bf16 is not promoted to float32",
     r"float32|bf16|half|precision|promot|dtype|16",
     "picked.to(torch.promote_types(picked.dtype, torch.float32))", "picked * 1."),
    ("averages the entries where the mask is False",
     r"invert|~|opposite|mask is false|where .*false|masked (out|entries)|wrong way|the other entries|negat",
     "picked = x[mask]", "picked = x[~mask]"))
right("masked_mean", '''
def masked_mean(x, mask):
    if x.shape != mask.shape: raise ValueError("x and mask must have one shape")
    values = [v for v, keep in zip(x.flatten().unbind(), mask.flatten().tolist()) if keep]
    if not values: raise ValueError("masked_mean: the mask has no True entry")
    values = torch.stack(values)
    return values.to(torch.promote_types(values.dtype, torch.float32)).mean()
''')
wrong("masked_mean", "averages row means, so a token of a short row weighs more",
      r"row means|means? of (the )?(row )?means|sequence mean|each row|every row|per row|weigh|row by row|rows alike|every token", '''
def masked_mean(x, mask):
    if x.shape != mask.shape: raise ValueError("shapes differ")
    if not mask.any(): raise ValueError("empty mask")
    n = mask.sum(-1)
    rows = masked_sum(x, mask)[n > 0] / n[n > 0]
    return rows.mean()
''')
wrong("masked_mean", "multiplies by the mask, so a nan or inf under a False makes the mean nan",
      r"multipl|0 ?(\*|·|times)|masked_fill|x \* mask|nan (or inf )?(under|at|where|in) (a |the )?(false|mask|pad)|masked (nan|entr)", '''
def masked_mean(x, mask):
    if x.shape != mask.shape: raise ValueError("x and mask differ in shape")
    n = mask.sum()
    if n == 0: raise ValueError("nothing to average")
    wide = torch.promote_types(x.dtype, torch.float32)
    return torch.einsum("i,i->", x.flatten().to(wide), mask.flatten().to(wide)) / n
''')
wrong("masked_mean", "nanmean also leaves out a nan under a True, which should make the mean nan",
      r"nanmean|under a true|hid|swallow|leaves? out|ignor|skip|drop|should (be|make|stay|give)|remain|real nan|nan (where|at|in|under|of)", '''
def masked_mean(x, mask):
    if x.shape != mask.shape: raise ValueError("x and mask differ in shape")
    if not mask.any(): raise ValueError("no True in the mask")
    wide = torch.promote_types(x.dtype, torch.float32)
    kept = torch.where(mask, x.to(wide), torch.nan)
    return kept.nanmean()
''')
wrong("masked_mean", "refuses a batch in which one row alone is empty, although other rows have True entries",
      r"one row|a row|some row|single row|empty row|every row|each row|too strict|refuses|only if no|other rows|mask\.any\(\)", '''
def masked_mean(x, mask):
    if x.shape != mask.shape: raise ValueError("x and mask differ in shape")
    for i, row in enumerate(mask):
        if not row.any(): raise ValueError(f"row {i} of the mask has no True entry")
    return _kept(x, mask).sum() / mask.sum()
''')
wrong("masked_mean", "returns a Python float, so no gradient can flow",
      r"python|\.item|item\(\)|float\(|gradient|graph|tensor|backward|tolist", '''
def masked_mean(x, mask):
    if x.shape != mask.shape: raise ValueError("x and mask differ in shape")
    kept = [v for v, m in zip(x.flatten().tolist(), mask.flatten().tolist()) if m]
    if len(kept) == 0: raise ValueError("mask without a True entry")
    return sum(kept) / len(kept)
''')

# ---- 02 last_token_index
edits("last_token_index", '''
def last_token_index(attention_mask):
    real = attention_mask.bool()
    if not real.any(1).all():
        raise ValueError("a row holds only padding")
    t = real.shape[1]
    back = real.flip(1).int().argmax(1)
    return t - 1 - back
''',
    ("finds the first real token of each row, not the last",
     r"first (real|token|true|1)|the first\b(?! pad)|earliest|flip|leftmost",
     "back = real.flip(1).int().argmax(1)\n    return t - 1 - back", "return real.int().argmax(1)"),
    ("off by one: the position after the last real token",
     r"off by one|one past|one too|after the last|t ?- ?1|minus one|too (far|large|high|big)|next",
     "t - 1 - back", "t - back"),
    ("refuses only if all rows are padding, not if one row is",
     r"only if|each row|one row|every row|all rows|whole (batch|mask)|single row|any\(1\)",
     "not real.any(1).all()", "not real.any()"),
    ("returns the distance from the right end, not the position",
     r"from the (right|end|back)|distance|flipped|counted from|turn(ed)? back|t ?- ?1 ?-|pads behind|number of pads|reverse",
     "return t - 1 - back", "return back"),
    ("returns (b 1) instead of (b)",
     r"shape|\(b,? ?1\)|keepdim|column|\(b\)|extra axis|squeeze|dimension",
     "argmax(1)", "argmax(1, keepdim=True)"))
right("last_token_index", '''
def last_token_index(attention_mask):
    found = []
    for i, row in enumerate(attention_mask.tolist()):
        places = [j for j, real in enumerate(row) if real]
        if not places: raise ValueError(f"row {i} holds only padding")
        found.append(places[-1])
    return torch.tensor(found, dtype=torch.long, device=attention_mask.device)
''')
wrong("last_token_index", "counts the real tokens, which gives the last position only with padding on the right",
      r"count|number of (real )?tokens|left|tokens minus one|\bsum\b|how many|prefix", '''
def last_token_index(attention_mask):
    n = attention_mask.long().sum(dim=1)
    if (n == 0).any(): raise ValueError("a row without a real token")
    return n - 1
''')
wrong("last_token_index", "does not refuse a row of pads: it returns -1 for it",
      r"refus|valueerror|raise|only pad|row of pads|-1 for|no real token|all pad|padding only|nothing but", '''
def last_token_index(attention_mask):
    place = torch.arange(attention_mask.shape[1], device=attention_mask.device)
    return place.expand(attention_mask.shape).masked_fill(attention_mask == 0, -1).amax(1)
''')
wrong("last_token_index", "takes the position before the first pad, which is -1 without pads or with pads on the left",
      r"first pad|argmin|no pad|without pad|pads? on the left|left|-1|before the pad", '''
def last_token_index(attention_mask):
    real = attention_mask.bool()
    if not real.any(1).all(): raise ValueError("only padding")
    first_pad = (~real).int().argmax(1)
    return first_pad - 1
''')
wrong("last_token_index", "inverts an integer mask with ~, which turns 0 and 1 into -1 and -2: a mask of 0 and 1 goes wrong",
      r"~|invert|bitwise|0 and 1|integer|\bint\b|bool\(\)|type|long", '''
def last_token_index(attention_mask):
    if (attention_mask.sum(1) == 0).any(): raise ValueError("only padding in a row")
    pads_behind = (~attention_mask).flip(1).int().cumprod(1).sum(1)
    return attention_mask.shape[1] - 1 - pads_behind
''')
wrong("last_token_index", "refuses a row whose only real token stands in column 0",
      r"column 0|position 0|index 0|first column|only token|single token|one token|refus|at 0|too strict|== 0", '''
def last_token_index(attention_mask):
    place = torch.arange(attention_mask.shape[1], device=attention_mask.device)
    last = (attention_mask.long() * place).amax(1)
    if (last == 0).any(): raise ValueError("a row holds only padding")
    return last
''')

# ---- 02 fixed_counted
edits("fixed_counted", '''
def fixed_counted(ids, lengths, pad):
    keep = torch.zeros(ids.shape, dtype=torch.bool)
    for row, n in zip(keep, lengths.tolist()):
        row[1:n] = True
    return keep
''',
    ("counts the first token of each row, too",
     r"first\b(?! pad)|column 0|token 0|position 0|at 0|entry 0|start",
     "row[1:n] = True", "row[:n] = True"),
    ("counts one pad too many, the one at position lengths",
     r"one (pad|too)|off by one|lengths? ?- ?1|n ?\+ ?1|past the end|too (far|many)|behind the",
     "row[1:n] = True", "row[1:n + 1] = True"),
    ("leaves out the last real token, the eos",
     r"\beos\b|last (real )?token|end of|final|lengths? ?- ?1|n ?- ?1|off by one|one too few|the end",
     "row[1:n] = True", "row[1:max(n - 1, 0)] = True"),
    ("returns whole numbers, not bool",
     r"bool|dtype|integer|\bint|type|whole number|long",
     "dtype=torch.bool", "dtype=torch.long"),
    ("True on the pads, False on the tokens",
     r"invert|opposite|on the pads|marks the pads|counts the pads|wrong way|real tokens|reverse|instead of the",
     "row[1:n] = True", "row[n:] = True"))
right("fixed_counted", '''
def fixed_counted(ids, lengths, pad):
    nth = torch.ones_like(ids).cumsum(1)
    return nth.gt(1) & nth.le(lengths.view(-1, 1))
''')
wrong("fixed_counted", "still compares ids with pad, so an eos of the same id is left out",
      r"!= pad|ids with pad|\beos\b|same id|shares?|compares ids|by (its )?id|token id|pad id|ids?\b.*not (the )?(position|length)", '''
def fixed_counted(ids, lengths, pad):
    keep = ids.ne(pad)
    keep[:, 0] = False
    return keep
''')
wrong("fixed_counted", "counts the first pad of each row, as if it were always the eos",
      r"first pad|as if|always|a (real )?pad|not (every|each) row|cut|own pad|counts a pad|cumsum", '''
def fixed_counted(ids, lengths, pad):
    is_pad = ids == pad
    first_pad = is_pad & (is_pad.cumsum(1) == 1)
    keep = ~is_pad | first_pad
    keep[:, 0] = False
    return keep
''')
wrong("fixed_counted", "numbers the rows instead of the columns",
      r"rows|axis|columns?|shape\[[01]\]|row number|dim", '''
def fixed_counted(ids, lengths, pad):
    position = torch.arange(ids.shape[0]).view(-1, 1)
    inside = (position > 0) & (position < lengths.view(-1, 1))
    return inside.expand(ids.shape).clone()
''')
wrong("fixed_counted", "takes the real tokens to stand at the right end, as if padding were on the left",
      r"left|right end|end of the row|wrong side|right-pad|side|last n|padded on the right", '''
def fixed_counted(ids, lengths, pad):
    b, t = ids.shape
    keep = torch.arange(t).repeat(b, 1) >= (t - lengths)[:, None]
    keep[:, 0] = False
    return keep
''')
wrong("fixed_counted", "compares all rows with the longest length, so short rows count their pads",
      r"longest|max\b|max\(|own length|each row|every row|all rows|lengths\[:, none\]|same length|per row", '''
def fixed_counted(ids, lengths, pad):
    position = torch.arange(ids.shape[1])
    keep = (position > 0) & (position < lengths.max())
    return keep[None].repeat(len(ids), 1)
''')

# ---- 03 prob_right
edits("prob_right", '''
def prob_right(question, a, b):
    better, worse = sorted([a, b], key=lambda text: gold_score(question, text), reverse=True)
    gap = utility(question, better) - utility(question, worse)
    return 1 / (1 + math.exp(-gap / .5))
''',
    ("orders the two by utility, not by gold score",
     r"order|sort|gold|which (one )?is better|better one",
     "key=lambda text: gold_score(question, text)", "key=lambda text: utility(question, text)"),
    ("the sign of the gap is turned round: the probability that the worse one is preferred",
     r"sign|worse|opposite|1 ?- ?p|invert|minus|wrong way|reverse|swap",
     "math.exp(-gap / .5)", "math.exp(gap / .5)"),
    ("does not divide by the temperature .5",
     r"temperature|tau|/ ?0?\.5|divid|half|by \.5|too flat|twice",
     "math.exp(-gap / .5)", "math.exp(-gap)"),
    ("multiplies by .5 where it should divide",
     r"multipl|divid|/ ?0?\.5|\* ?0?\.5|temperature|tau",
     "math.exp(-gap / .5)", "math.exp(-gap * .5)"))
right("prob_right", '''
def prob_right(question, a, b):
    sign = 1 if gold_score(question, a) > gold_score(question, b) else -1
    gap = sign * (utility(question, a) - utility(question, b))
    return torch.tensor(2. * gap, dtype=torch.float64).sigmoid().item()
''')
wrong("prob_right", "does not order the two: the probability that a is preferred, even where b is the better one",
      r"order|swap|that a is|a is preferred|which (one|of)|is (the )?better|b is", '''
def prob_right(question, a, b):
    u, v = utility(question, a), utility(question, b)
    return 1 / (1 + math.exp(-2 * (u - v)))
''')
wrong("prob_right", "takes the gap of the gold scores, where the annotator compares utilities",
      r"gap (of|between|in|is).*gold|differences? (of|between).*gold|gold.*(gap|differ)|annotator|compares utilit|gap.*utilit|utilit.*gap", '''
def prob_right(question, a, b):
    scores = [gold_score(question, text) for text in (a, b)]
    gap = max(scores) - min(scores)
    return 1 / (1 + math.exp(-gap / .5))
''')
wrong("prob_right", "the share of the better one in the sum of the two utilities, not the sigmoid of their gap",
      r"share|ratio|sigmoid|sigma|proportion|sum of the (two )?utilit|fraction|formula|difference|\bgap", '''
def prob_right(question, a, b):
    if gold_score(question, a) < gold_score(question, b): a, b = b, a
    good, bad = utility(question, a), utility(question, b)
    return good / (good + bad)
''')
wrong("prob_right", "0 or 1 according to which utility is higher: the noise of the choice is left out",
      r"noise|hard|0 or 1|0, 1|step|certain|sigmoid|sigma|no probability|comparison", '''
def prob_right(question, a, b):
    if gold_score(question, b) > gold_score(question, a): a, b = b, a
    return float(utility(question, a) > utility(question, b))
''')
wrong("prob_right", "takes the bonus for flattery out of the utility",
      r"flatter|bonus|blind|bias", '''
def prob_right(question, a, b):
    if gold_score(question, a) < gold_score(question, b): a, b = b, a
    def plain(text):
        n = sum(s.kind == "flattery" for s in parse_sentences(text))
        return utility(question, text) - n * FLATTERY_BONUS
    return 1 / (1 + math.exp(-(plain(a) - plain(b)) / .5))
''')
wrong("prob_right", "estimates the probability from sampled choices, where the formula gives it exactly",
      r"sampl|estimat|random|exact|noise|draws|monte|annotate|formula", '''
def prob_right(question, a, b):
    if gold_score(question, a) < gold_score(question, b): a, b = b, a
    rng = random.Random(0)
    return sum(annotate(question, a, b, rng) for _ in range(200)) / 200
''')

# ---- 03 fixed_answered
edits("fixed_answered", '''
def fixed_answered(question, text):
    truth = FACTS[question.animal][question.attribute]
    seen = False
    for s in parse_sentences(text):
        if s.animal == question.animal and s.attribute == question.attribute:
            if s.value != truth: return False
            seen = True
    return seen
''',
    ("does not look at the animal: a fact about another animal counts",
     r"another animal|other animals?|any animal|look at the animal|check(s|ed)? the animal|ignor\w+ the animal|animal (is|of)|which animal|right animal",
     "s.animal == question.animal and s.attribute == question.attribute",
     "s.attribute == question.attribute"),
    ("does not look at the attribute: other facts about the animal count as wrong values",
     r"attribute|other facts|other values|what (is|was) asked|asked for",
     "s.animal == question.animal and s.attribute == question.attribute",
     "s.animal == question.animal"),
    ("looks at the first stated value only, so a false one behind it passes",
     r"first|only one|later|second|behind|stops|early|every (one|value)|all values|return",
     "if s.value != truth: return False\n            seen = True", "return s.value == truth"),
    ("a fact whose It stands for nobody counts as one about the animal",
     r"pronoun|nobody|unnamed|no animal|not named|named|empty|\"\"|resolv|unknown animal|it without",
     "s.animal == question.animal and", 's.animal in ("", question.animal) and'))
right("fixed_answered", '''
def fixed_answered(question, text):
    asked = question.animal, question.attribute
    values = [s.value for s in parse_sentences(text) if (s.animal, s.attribute) == asked]
    truth = FACTS[question.animal][question.attribute]
    return len(values) > 0 and values.count(truth) == len(values)
''')
wrong("fixed_answered", "one true value is enough, although a false one stands beside it",
      r"\bany\b|false (value|one|home)|one true|enough|beside|every (value|one)|contradict|hedg", '''
def fixed_answered(question, text):
    truth = FACTS[question.animal][question.attribute]
    return any(s.value == truth for s in parse_sentences(text)
               if s.animal == question.animal and s.attribute == question.attribute)
''')
wrong("fixed_answered", "True for a text that states no value at all",
      r"no value|empty|at least one|nothing|vacuous|without (a|any)|states none|none", '''
def fixed_answered(question, text):
    truth = FACTS[question.animal][question.attribute]
    return all(s.value == truth for s in parse_sentences(text)
               if s.animal == question.animal and s.attribute == question.attribute)
''')
wrong("fixed_answered", "refuses the true value if it is stated twice",
      r"twice|repeat|same (value|one)|exactly one|once|only one|more than one|len\(|duplicate|two sentences", '''
def fixed_answered(question, text):
    truth = FACTS[question.animal][question.attribute]
    values = []
    for s in parse_sentences(text):
        if (s.animal, s.attribute) == (question.animal, question.attribute):
            values.append(s.value)
    return values == [truth]
''')
wrong("fixed_answered", "any value that exists for the attribute counts as true",
      r"any value|valid|values\[|exist|possible value|some other animal|facts\[|true of|false (value|home)s? (is|are|count|pass)|of the attribute", '''
def fixed_answered(question, text):
    values = {s.value for s in parse_sentences(text)
              if s.animal == question.animal and s.attribute == question.attribute}
    return bool(values) and values <= set(VALUES[question.attribute])
''')
wrong("fixed_answered", "looks for the true value as a word of the text, not as a parsed statement",
      r"word|pars|substring|statement|letters|text itself|raw text|sentence|split|findall", '''
def fixed_answered(question, text):
    truth = FACTS[question.animal][question.attribute]
    return truth in re.findall(r"[a-z]+", text.lower())
''')
wrong("fixed_answered", "demands that every fact of the text be true, also of other attributes and animals",
      r"every fact|all facts|other (facts|attributes|animals)|another (animal|attribute)|too strict|irrelevant|not asked|unrelated|demand", '''
def fixed_answered(question, text):
    facts = [s for s in parse_sentences(text) if s.kind == "fact"]
    asked = [s for s in facts if (s.animal, s.attribute) == (question.animal, question.attribute)]
    true = [FACTS.get(s.animal, {}).get(s.attribute) == s.value for s in facts]
    return len(asked) > 0 and all(true)
''')

# ---- 04 sft_loss
edits("sft_loss", '''
def sft_loss(model, seqs):
    counted = seqs.response_mask.clone()
    counted[:, 0] = False
    logp = logprobs(model, seqs)
    total = logp[counted].sum()
    return -total, counted.sum()
''',
    ("counts a response token in column 0, which has no log-prob",
     r"column 0|first (token|column)|token 0|nothing before|\[:, 1:\]|has no log-prob|one too many",
     "    counted[:, 0] = False\n", ""),
    ("returns the mean instead of the sum",
     r"mean|divid|average|already|sum",
     "return -total, counted.sum()", "return -total / counted.sum(), counted.sum()"),
    ("the minus sign is missing: the log-likelihood, not the loss",
     r"sign|minus|negative|negat|log-likelihood|maximi",
     "return -total, counted.sum()", "return total, counted.sum()"),
    ("returns one sum and one count per row, not two scalars",
     r"per row|each row|scalar|shape|\(b\)|row by row|one number|all rows|over rows|sum\(1\)|every row",
     "total = logp[counted].sum()\n    return -total, counted.sum()",
     "return -logp.sum(1), counted.sum(1)"))
right("sft_loss", '''
def sft_loss(model, seqs):
    rows = logprobs(model, seqs).unbind(0)
    total, n = sum(-row.sum() for row in rows), torch.zeros((), dtype=torch.long)
    for mask in seqs.response_mask: n = n + mask[1:].sum()
    return total, n
''')
wrong("sft_loss", "counts all real tokens, the prompt included, in the denominator",
      r"attention|prompt|real tokens|question|all tokens|not only", '''
def sft_loss(model, seqs):
    nll = -logprobs(model, seqs)
    return nll.sum(), seqs.attention_mask[:, 1:].sum()
''')
wrong("sft_loss", "computed under no_grad, so nothing can be trained with it",
      r"grad|detach|backward|train|learn", '''
def sft_loss(model, seqs):
    with torch.no_grad():
        logp = logprobs(model, seqs)
    n = seqs.response_mask[:, 1:].sum()
    return -logp.sum(), n
''')
wrong("sft_loss", "cuts the last column from the count instead of the first",
      r"last column|wrong (end|side|column)|:-1|1:|first column|column 0|final column|full row|longest", '''
def sft_loss(model, seqs):
    b, t = seqs.ids.shape
    n = seqs.response_mask.narrow(1, 0, t - 1).count_nonzero()
    return logprobs(model, seqs).sum().neg(), n
''')
wrong("sft_loss", "counts the log-probs that are not 0, so a token with probability 1 is left out",
      r"not 0|nonzero|non-zero|zero|probability 1|certain|!= 0|log-prob (of )?0|is 0", '''
def sft_loss(model, seqs):
    logp = logprobs(model, seqs)
    return -logp.sum(), torch.count_nonzero(logp)
''')
wrong("sft_loss", "shifts a second time: the log-probs are already on their own tokens",
      r"shift|twice|second time|already|align|off by one|one column|own token", '''
def sft_loss(model, seqs):
    logp = logprobs(model, seqs)[:, :-1]
    mask = seqs.response_mask[:, 1:]
    return -(logp * mask).sum(), mask.sum()
''')
wrong("sft_loss", "returns the number of rows as the count, not the number of tokens",
      r"rows|responses|sequences|answers|batch size|number of tokens|len\(seqs\)|tokens", '''
def sft_loss(model, seqs):
    total = torch.zeros(())
    for row, mask in zip(logprobs(model, seqs), seqs.response_mask):
        total = total - row[mask].sum()
    return total, torch.tensor(len(seqs))
''')

# ---- 04 filter_logits
edits("filter_logits", '''
def filter_logits(logits, sampling):
    z = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature == 0:
        out = torch.full_like(z, -torch.inf)
        out[torch.arange(len(z)), z.argmax(1)] = 0.
        return out
    z = z / sampling.temperature
    if sampling.top_k:
        k = min(sampling.top_k, z.shape[1])
        kth = z.sort(1, descending=True).values[:, k - 1, None]
        z = torch.where(z >= kth, z, -torch.inf)
    if sampling.top_p < 1:
        order = z.argsort(1, descending=True)
        prob = z.softmax(1).gather(1, order)
        before = prob.cumsum(1) - prob
        rank = order.argsort(1)
        z = torch.where(before.gather(1, rank) < sampling.top_p, z, -torch.inf)
    return z - z.logsumexp(1, keepdim=True)
''',
    ("multiplies the logits by the temperature instead of dividing",
     r"multipl|divid|temperature",
     "z = z / sampling.temperature", "z = z * sampling.temperature"),
    ("top-p cuts the token that crosses p, because the sum includes the token itself",
     r"cross|includ|itself|before it|tokens before|cumsum|reach",
     "before = prob.cumsum(1) - prob", "before = prob.cumsum(1)"),
    ("the top-p mask stays in sorted order and hits other tokens",
     r"sorted|order|scatter|back (in|to)|token order|gather|other tokens|wrong tokens|rank",
     "before.gather(1, rank) < sampling.top_p", "before < sampling.top_p"),
    ("the result is not normalised",
     r"normali|log_softmax|logsumexp|sum to 1|sum to one|renormal|not log-probs",
     "return z - z.logsumexp(1, keepdim=True)", "return z"),
    ("computes in the dtype of the logits: bf16 is not raised to float32",
     r"float32|bf16|half|precision|promot|dtype|16",
     "z = logits.to(torch.promote_types(logits.dtype, torch.float32))", "z = logits * 1."),
    ("top-k keeps one token too many",
     r"one (token )?(too|more)|k ?\+ ?1|k ?- ?1|off by one|extra token|too many",
     "k = min(sampling.top_k, z.shape[1])", "k = min(sampling.top_k + 1, z.shape[1])"))
right("filter_logits", '''
def filter_logits(logits, sampling):
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    rows = []
    for z in wide:
        v = len(z)
        if sampling.temperature == 0:
            best = z.max(0).indices.item()
            rows.append(z.new_tensor([0. if i == best else -math.inf for i in range(v)]))
            continue
        z = z / sampling.temperature
        if 0 < sampling.top_k < v:
            z = z.masked_fill(z < z.kthvalue(v - sampling.top_k + 1).values, -torch.inf)
        if sampling.top_p < 1:
            prob, total, cut = z.softmax(0), 0., torch.zeros(v, dtype=torch.bool)
            for i in prob.argsort(descending=True).tolist():
                if total >= sampling.top_p: cut[i] = True
                total += prob[i].item()
            z = z.masked_fill(cut, -torch.inf)
        rows.append(z.log_softmax(0))
    return torch.stack(rows)
''')
wrong("filter_logits", "top-p adds up the probabilities from before top-k, not of what top-k has left",
      r"before top-?_?k|what (top-?_?k )?(is|has)? ?left|top-?_?k has left|renormal|unfiltered|whole (distribution|vocab)|after top-?_?k|all tokens", '''
def filter_logits(logits, sampling):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature == 0:
        return torch.full_like(x, -torch.inf).scatter(1, x.argmax(1, keepdim=True), 0.)
    x = x / sampling.temperature
    prob, order = x.softmax(1).sort(descending=True)
    if 0 < sampling.top_k < x.shape[1]:
        x = x.masked_fill(x < x.topk(sampling.top_k).values[:, -1:], -torch.inf)
    if sampling.top_p < 1:
        cut = prob.cumsum(1) - prob >= sampling.top_p
        x = x.masked_fill(cut.scatter(1, order, cut), -torch.inf)
    return x.log_softmax(1)
''')
wrong("filter_logits", "temperature 0 is a division by a very small number, so tied or close logits share the probability and the rest is not -inf",
      r"greedy|temperature (of )?0|temperature == 0|-inf|epsilon|small|1e-|close|tie|argmax|likeliest", '''
def filter_logits(logits, sampling):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    x = x / max(sampling.temperature, 1e-4)
    if 0 < sampling.top_k < x.shape[1]:
        x = x.masked_fill(x < x.topk(sampling.top_k)[0][:, -1:], -torch.inf)
    if sampling.top_p < 1:
        prob, order = x.softmax(1).sort(descending=True)
        cut = prob.cumsum(1) - prob >= sampling.top_p
        x = x.masked_fill(cut.scatter(1, order, cut), -torch.inf)
    return x.log_softmax(1)
''')
wrong("filter_logits", "filtered logits become 0, not -inf, so these tokens can still be drawn",
      r"-inf|still (be )?drawn|logit (of )?0|becomes? 0|set to 0|to 0|a logit of zero|infinit", '''
def filter_logits(logits, sampling):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature == 0:
        return torch.nn.functional.one_hot(x.argmax(1), x.shape[1]).to(x).log()
    x = x / sampling.temperature
    if 0 < sampling.top_k < x.shape[1]:
        x = x * (x >= x.topk(sampling.top_k).values[:, -1:])
    if sampling.top_p < 1:
        prob, order = x.softmax(1).sort(descending=True)
        keep = prob.cumsum(1) - prob < sampling.top_p
        x = x * keep.scatter(1, order, keep)
    return x.log_softmax(1)
''')
wrong("filter_logits", "top-p sorts upwards and so keeps the least likely tokens",
      r"ascend|upward|descend|downward|least|unlikel|improbable|sort|smallest|wrong end|likeliest", '''
def filter_logits(logits, sampling):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature == 0:
        return torch.full_like(x, -torch.inf).scatter(1, x.argmax(1, keepdim=True), 0.)
    x = x / sampling.temperature
    if 0 < sampling.top_k < x.shape[1]:
        x = x.masked_fill(x < x.topk(sampling.top_k).values[:, -1:], -torch.inf)
    if sampling.top_p < 1:
        prob, order = torch.sort(x.softmax(1), 1)
        before = prob.cumsum(1) - prob
        x = x.scatter(1, order, x.gather(1, order).masked_fill(before >= sampling.top_p, -torch.inf))
    return x.log_softmax(1)
''')

# ---- 04 fixed_labels
edits("fixed_labels", '''
def fixed_labels(ids, n_prompt, n_real):
    out = torch.full_like(ids[:, 1:], -100)
    for row, source, start, stop in zip(out, ids, n_prompt.tolist(), n_real.tolist()):
        for place in range(1, len(source)):
            if start <= place < stop: row[place - 1] = source[place]
    return out
''',
    ("leaves out the first token of the answer",
     r"first (token|word|label) of the answer|first answer|off by one|>=|<=|one too few|begin|start|first token",
     "start <= place < stop", "start < place < stop"),
    ("the last token of the question is a label, too",
     r"last (token|word) of the (question|prompt)|off by one|one too many|question|prompt|too early",
     "start <= place < stop", "start - 1 <= place < stop"),
    ("leaves out the end mark of the answer",
     r"\beos\b|end mark|last (token|label)|end of|final|off by one|stop|n_real",
     "start <= place < stop", "start <= place < stop - 1"),
    ("label j is token j, the token that has just been read, not token j + 1",
     r"shift|token j|next|just (been )?read|own place|off by one|ids\[:, 1:\]|j ?\+ ?1|predict",
     "= source[place]", "= source[place - 1]"),
    ("marks the tokens that do not count with 0 instead of -100",
     r"-100|\bzero|with 0|of 0|ignore",
     "torch.full_like(ids[:, 1:], -100)", "torch.zeros_like(ids[:, 1:])"))
right("fixed_labels", '''
def fixed_labels(ids, n_prompt, n_real):
    target, j = ids[:, 1:], torch.arange(ids.shape[1] - 1)
    begin, end = rearrange(n_prompt, "b -> b 1") - 1, rearrange(n_real, "b -> b 1") - 1
    return torch.where((j >= begin) & (j < end), target, torch.full_like(target, -100))
''')
wrong("fixed_labels", "still keeps the question and not the answer",
      r"invert|keeps? the (question|prompt)|(question|prompt) (and|instead|is|where)|not the answer|wrong way|< ?n_prompt|>= ?n_prompt|reverse|opposite|learns? (to ask|the question|the prompt)|labels? (is|are|of) the (question|prompt)", '''
def fixed_labels(ids, n_prompt, n_real):
    y = ids[:, 1:].clone()
    for i in range(len(ids)):
        y[i, n_prompt[i] - 1:] = -100
    return y
''')
wrong("fixed_labels", "the pads are labels, too",
      r"pads?\b|padding|n_real", '''
def fixed_labels(ids, n_prompt, n_real):
    y = ids[:, 1:].clone()
    for row, k in zip(y, n_prompt.tolist()):
        row[:max(k - 1, 0)] = -100
    return y
''')
wrong("fixed_labels", "returns (b t), each label at its own token, where (b t-1) is asked for",
      r"shape|width|t ?- ?1|own token|one (column )?(too|longer)|shift|longer|column|\(b t\)|ids\[:, 1:\]", '''
def fixed_labels(ids, n_prompt, n_real):
    place = torch.arange(ids.shape[1])
    keep = (place >= n_prompt[:, None]) & (place < n_real[:, None])
    return torch.where(keep, ids, -100)
''')
wrong("fixed_labels", "takes n_real as the length of the answer: it adds it to n_prompt, and pads become labels",
      r"n_real|length of the answer|adds|sum|n_prompt ?\+|counts the (question|prompt)|whole row|pads?\b", '''
def fixed_labels(ids, n_prompt, n_real):
    rows = []
    for row, k, n in zip(ids.tolist(), n_prompt.tolist(), n_real.tolist()):
        rows.append([x if k <= j < k + n else -100 for j, x in enumerate(row)][1:])
    return torch.tensor(rows)
''')
wrong("fixed_labels", "writes -100 into a view of ids, so the model would read -100",
      r"in place|mutat|view|clone|copy|changes? (the )?(ids|input)|input|overwrit|argument|writes into|modif", '''
def fixed_labels(ids, n_prompt, n_real):
    y = ids[:, 1:]
    place = torch.arange(1, ids.shape[1])
    y[(place < n_prompt[:, None]) | (place >= n_real[:, None])] = -100
    return y
''')

# ---- 05 pooled_scores
edits("pooled_scores", '''
def pooled_scores(model, seqs):
    scores = model(seqs)
    mask = seqs.attention_mask.to(scores.device)
    if not mask.any(1).all():
        raise ValueError("a row holds only padding")
    place = torch.arange(mask.shape[1], device=scores.device).expand(mask.shape)
    last = place.masked_fill(~mask, -1).max(1).values
    return scores[torch.arange(len(scores)), last]
''',
    ("looks at the response mask instead of the attention mask: a row with an empty response has no place",
     r"response_mask|response mask|attention|empty response|prompt|without (a )?response",
     "mask = seqs.attention_mask.to(scores.device)", "mask = seqs.response_mask.to(scores.device)"),
    ("does not refuse a row of pads: it reads its last column",
     r"refus|valueerror|raise|only pad|row of pads|nothing but|all pad|padding only",
     '''    if not mask.any(1).all():
        raise ValueError("a row holds only padding")
''', ""),
    ("picks a column for all rows: (b b) instead of (b)",
     r"\(b,? ?b\)|shape|all rows|every row|pair|square|own row|arange\(len|\(b\)",
     "scores[torch.arange(len(scores)), last]", "scores[:, last]"),
    ("reads the score one token before the last, without the eos",
     r"before the last|eos|off by one|one (token|place) (too )?(early|before)|last ?- ?1|second to last|last but one|minus one",
     "return scores[torch.arange(len(scores)), last]", "return scores[torch.arange(len(scores)), last - 1]"),
    ("reads the first real token, not the last",
     r"first|min\b|smallest|beginning|earliest",
     "place.masked_fill(~mask, -1).max(1).values", "place.masked_fill(~mask, mask.shape[1]).min(1).values"))
right("pooled_scores", '''
def pooled_scores(model, seqs):
    out = []
    for i, (row, real) in enumerate(zip(model(seqs), seqs.attention_mask)):
        if not real.any(): raise ValueError(f"row {i} holds only padding")
        out.append(row[real.to(row.device)][-1])
    return torch.stack(out)
''')
wrong("pooled_scores", "uses the number of real tokens as a position: wrong with pads on the left",
      r"count|number of (real )?tokens|left|how many|length|\bsum\b", '''
def pooled_scores(model, seqs):
    n = seqs.lengths()
    if (n == 0).any(): raise ValueError("only padding")
    return torch.take_along_dim(model(seqs), (n - 1)[:, None], 1).squeeze(1)
''')
wrong("pooled_scores", "reads the last column, which is a pad where pads stand on the right",
      r"last column|final column|:, -1|(on|at|is|be|reads?) a pad|pads? (stand )?on the right|right-pad", '''
def pooled_scores(model, seqs):
    if not seqs.attention_mask.any(1).all(): raise ValueError("a row holds only padding")
    return model(seqs)[:, -1]
''')
wrong("pooled_scores", "averages the scores of all real tokens instead of reading the last",
      r"mean|averag|all (real )?tokens|one number|single|\bsum", '''
def pooled_scores(model, seqs):
    scores, mask = model(seqs), seqs.attention_mask
    n = mask.sum(1)
    if (n == 0).any(): raise ValueError("a row holds only padding")
    return torch.where(mask, scores, 0.).sum(1) / n
''')
wrong("pooled_scores", "computed under no_grad, so the reward model cannot learn",
      r"grad|detach|learn|train|backward", '''
@torch.no_grad()
def pooled_scores(model, seqs):
    last = last_token_index(seqs.attention_mask)
    return model(seqs).gather(1, last[:, None])[:, 0]
''')
wrong("pooled_scores", "takes id 0 for a pad instead of asking the attention mask, so a real token with id 0 is skipped",
      r"id 0|ids|attention_mask|attention mask|pad id|hard|real token", '''
def pooled_scores(model, seqs):
    last = last_token_index(seqs.ids != 0)
    scores = model(seqs)
    return torch.stack([scores[i, j] for i, j in enumerate(last.tolist())])
''')

# ---- 05 bradley_terry_loss
edits("bradley_terry_loss", '''
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape:
        raise ValueError(f"{tuple(chosen.shape)} chosen, {tuple(rejected.shape)} rejected")
    gap = chosen - rejected - margin
    loss = F.softplus(-gap)
    if center_coef: loss = loss + center_coef * (chosen + rejected).square()
    return loss
''',
    ("the gap is turned round: it rewards a higher score of the rejected answer",
     r"turned|swap|sign|wrong way|order|reverse|rejected (minus|-) chosen|invert|prefers the rejected",
     "gap = chosen - rejected - margin", "gap = rejected - chosen - margin"),
    ("adds the margin where it must be subtracted",
     r"adds? the margin|subtract|\+ ?margin|- ?margin|sign of the margin|margin.*(sign|minus|add|wrong)|easier|smaller gap",
     "- margin", "+ margin"),
    ("centres with the difference of the two scores, not with their sum",
     r"difference|\bsum\b|cent(er|r)|r_w \+ r_l|added",
     "(chosen + rejected).square()", "(chosen - rejected).square()"),
    ("different shapes are not refused but broadcast",
     r"shape|broadcast|refus|valueerror|raise",
     "chosen.shape != rejected.shape", "chosen.dim() != rejected.dim()"),
    ("the centring term is not squared",
     r"squar|\*\* ?2|power|negative",
     "(chosen + rejected).square()", "(chosen + rejected)"))
right("bradley_terry_loss", '''
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("chosen and rejected differ in shape")
    nll = torch.logaddexp(torch.zeros_like(chosen), rejected + margin - chosen)
    pull = torch.stack([chosen, rejected]).sum(0)**2 * center_coef if center_coef else 0.
    return nll + pull
''')
wrong("bradley_terry_loss", "takes the log of a sigmoid, which is -inf where scores are far apart",
      r"underflow|logsigmoid|log_sigmoid|600|infinit|finite|stable|inf\b|far apart|log of (a |the )?sigmoid|overflow", '''
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("two shapes")
    p = torch.sigmoid(chosen - rejected - margin)
    return -torch.log(p) + center_coef * (chosen + rejected)**2
''')
wrong("bradley_terry_loss", "returns the mean over the pairs, not one loss for each",
      r"mean|averag|per pair|each pair|one loss|\(b\)|every pair|scalar", '''
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("two shapes")
    nll = -logsigmoid(chosen - rejected - margin)
    return (nll + center_coef * (chosen + rejected)**2).mean()
''')
wrong("bradley_terry_loss", "adds the margin to the loss, outside the sigmoid",
      r"outside|inside|to the loss|within|in(to)? the (sigmoid|gap)|constant", '''
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("shapes differ")
    nll = F.binary_cross_entropy_with_logits(
        chosen - rejected, torch.ones_like(chosen), reduction="none")
    return nll + margin + center_coef * torch.pow(chosen + rejected, 2)
''')
wrong("bradley_terry_loss", "a hinge loss, which is not the Bradley-Terry likelihood",
      r"hinge|relu|no sigmoid|formula|bradley|softplus|likelihood|linear", '''
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("shapes differ")
    short_by = margin - (chosen - rejected)
    return torch.relu(short_by) + center_coef * (chosen + rejected)**2
''')
wrong("bradley_terry_loss", "clamps the gap to 20, so a pair far in the wrong order has a constant loss and no gradient",
      r"clamp|clip|limit|cap\b|capped|cuts?\b|20|constant|no gradient|gradient", '''
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("shapes differ")
    gap = torch.clamp(chosen - rejected - margin, -20., 20.)
    nll = torch.log1p(torch.exp(-gap))
    return nll + center_coef * (chosen + rejected)**2
''')

# ---- 05 calibration_bins
edits("calibration_bins", '''
def calibration_bins(chosen, rejected, n_bins=10):
    if not (chosen.isfinite().all() and rejected.isfinite().all()):
        raise ValueError("calibration_bins: a score is not finite")
    gap = chosen - rejected
    confidence = gap.abs().sigmoid()
    right = (gap > 0).float() + .5 * (gap == 0)
    index = ((confidence - .5) / .5 * n_bins).floor().long()
    index = index.clamp(max=n_bins - 1)
    rows = []
    for k in range(n_bins):
        here = index == k
        if here.any():
            rows.append((confidence[here].mean(), right[here].mean(), here.sum()))
    if not rows: return confidence, right, index
    return tuple(torch.stack(column) for column in zip(*rows))
''',
    ("keeps the empty bins, whose means are nan",
     r"empty|nan\b|left out|leave|0/0|no pair|without (a )?pair",
     "if here.any():", "if True:"),
    ("a tie counts as right, not as half right",
     r"\btie|half|equal|\.5 right|gap (of|is) 0|== 0",
     "(gap > 0).float() + .5 * (gap == 0)", "(gap >= 0).float()"),
    ("a confidence of 1 falls out of the last bin",
     r"confidence of 1|last bin|clamp|falls? out|dropped|of 1\b|is 1\b|\b1\.0|also 1|upper end",
     "    index = index.clamp(max=n_bins - 1)\n", ""),
    ("takes the sigmoid of the signed gap, so pairs in the wrong order have a confidence below .5 and fall out",
     r"\babs|absolute|signed|below \.?0?\.5|negative|wrong order|size of the gap|sign\b",
     "gap.abs().sigmoid()", "gap.sigmoid()"),
    ("does not refuse nan and infinite scores",
     r"refus|valueerror|raise|finite|nan\b",
     '''    if not (chosen.isfinite().all() and rejected.isfinite().all()):
        raise ValueError("calibration_bins: a score is not finite")
''', ""),
    ("divides the right ones of a bin by the number of all pairs, not of the bin's own",
     r"all pairs|of the bin|own (pairs|number|count)|divid|each bin|whole batch|len\(gap\)|right\[here\]\.mean",
     "right[here].mean()", "right[here].sum() / len(gap)"))
right("calibration_bins", '''
def calibration_bins(chosen, rejected, n_bins=10):
    if not torch.cat([chosen, rejected]).isfinite().all(): raise ValueError("scores must be finite")
    gap = (chosen - rejected).double()
    confidence, right = gap.abs().sigmoid(), gap.sign() / 2 + .5
    edges = torch.linspace(.5, 1, n_bins + 1, dtype=torch.float64)[1:-1]
    member = F.one_hot(torch.bucketize(confidence, edges, right=True), n_bins)
    count = member.sum(0)
    kept = count > 0
    sums = torch.stack([confidence, right]) @ member.double()
    mean = (sums[:, kept] / count[kept]).float()
    return mean[0], mean[1], count[kept]
''')
wrong("calibration_bins", "the bins lie between 0 and 1, not between .5 and 1",
      r"0 and 1|between \.?0?\.5|from \.?0?\.5|width|twice as wide|half of the bins|\.5 (to|and) 1|below \.?0?\.5|starts? at", '''
def calibration_bins(chosen, rejected, n_bins=10):
    if not (chosen - rejected).isfinite().all(): raise ValueError("not finite")
    gap = chosen - rejected
    conf = torch.sigmoid(gap.abs())
    right = torch.where(gap == 0, .5, (gap > 0).float())
    bins = {}
    for c, r in zip(conf.tolist(), right.tolist()):
        bins.setdefault(min(int(c * n_bins), n_bins - 1), []).append((c, r))
    groups = [bins[k] for k in sorted(bins)]
    return (torch.tensor([sum(c for c, _ in g) / len(g) for g in groups]),
            torch.tensor([sum(r for _, r in g) / len(g) for g in groups]),
            torch.tensor([len(g) for g in groups]))
''')
wrong("calibration_bins", "returns the middle of each bin, not the mean confidence in it",
      r"middle|midpoint|cent(re|er)|mean confidence|mean of the confidence|edge", '''
def calibration_bins(chosen, rejected, n_bins=10):
    gap = chosen - rejected
    if not gap.isfinite().all(): raise ValueError("scores must be finite")
    right = (gap > 0).float() + .5 * (gap == 0)
    index = ((gap.abs().sigmoid() - .5) * 2 * n_bins).long().clamp(max=n_bins - 1)
    ks = index.unique()
    middle = .5 + (ks + .5) * .5 / n_bins
    return middle, torch.stack([right[index == k].mean() for k in ks]), torch.stack(
        [(index == k).sum() for k in ks])
''')
wrong("calibration_bins", "a bin holds its upper edge and not its lower one, so a tie (confidence .5) is in no bin",
      r"upper|lower edge|ceil|\bedge|\.5\b.*(no bin|lost|out|drop)|tie|half-open|<=", '''
def calibration_bins(chosen, rejected, n_bins=10):
    gap = chosen - rejected
    if not gap.isfinite().all(): raise ValueError("scores must be finite")
    conf, right = gap.abs().sigmoid(), (gap > 0).float() + .5 * (gap == 0)
    edges = torch.linspace(.5, 1, n_bins + 1)
    out = []
    for low, high in zip(edges[:-1], edges[1:]):
        here = (low < conf) & (conf <= high)
        if here.any(): out.append([conf[here].mean(), right[here].mean(), here.sum()])
    return tuple(map(torch.stack, zip(*out)))
''')
wrong("calibration_bins", "bins of equal numbers of pairs, not of equal width",
      r"equal (width|number|size|count)|same (number|width|size)|quantile|chunk|width|sorted|equally (many|full)", '''
def calibration_bins(chosen, rejected, n_bins=10):
    gap = chosen - rejected
    if not gap.isfinite().all(): raise ValueError("scores must be finite")
    conf, right = gap.abs().sigmoid(), (gap > 0).float() + .5 * (gap == 0)
    parts = conf.argsort().tensor_split(n_bins)
    parts = [p for p in parts if len(p)]
    return (torch.stack([conf[p].mean() for p in parts]),
            torch.stack([right[p].mean() for p in parts]),
            torch.tensor([len(p) for p in parts]))
''')

# ---- 06 exact_gradient
edits("exact_gradient", '''
def exact_gradient(model, world, reward):
    free = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    logp = all_logprobs(model, world)
    value = (logp.exp() * reward.detach()).sum()
    grads = {}
    for name, p in free:
        grads[name] = torch.autograd.grad(value, p, retain_graph=True)[0]
    return grads
''',
    ("the reward is not detached, so its own gradient is added",
     r"detach|constant|gradient of the reward|through the reward|reward.*graph",
     "reward.detach()", "reward"),
    ("the sign is turned round: the gradient of a loss, downhill",
     r"sign|minus|negat|descent|downhill|opposite|loss",
     "(logp.exp() * reward.detach()).sum()", "-(logp.exp() * reward.detach()).sum()"),
    ("asks for the gradient of frozen parameters, too",
     r"frozen|requires_grad|does not require|left out",
     " if p.requires_grad]", "]"),
    ("weighs all responses alike instead of by their probability",
     r"probabilit|weigh|alike|uniform|exp\(\)|mean of|expectation|\bπ|\bpi\b",
     "(logp.exp() * reward.detach()).sum()", "(logp * reward.detach()).mean()"))
right("exact_gradient", '''
def exact_gradient(model, world, reward):
    names, free = zip(*[(n, p) for n, p in model.named_parameters() if p.requires_grad])
    logp = all_logprobs(model, world)
    weight = (logp.exp() * reward).detach().to(logp.dtype)     # E[r grad log pi]
    return dict(zip(names, torch.autograd.grad(logp, free, grad_outputs=weight)))
''')
wrong("exact_gradient", "calls backward, which fills .grad of the model",
      r"\.grad\b|backward|accumulat|fills", '''
def exact_gradient(model, world, reward):
    value = expectation(all_logprobs(model, world), reward.detach())
    value.backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}
''')
wrong("exact_gradient", "returns a list of gradients without their names",
      r"\blist\b|tuple|dict|names?\b", '''
def exact_gradient(model, world, reward):
    free = [p for p in model.parameters() if p.requires_grad]
    value = expectation(all_logprobs(model, world), reward.detach())
    return list(torch.autograd.grad(value, free))
''')
wrong("exact_gradient", "pairs the gradients with the names of all parameters, so behind a frozen one the names are wrong",
      r"names?\b|frozen|zip|misalign|wrong (parameter|key)|requires_grad", '''
def exact_gradient(model, world, reward):
    names = [name for name, _ in model.named_parameters()]
    free = [p for p in model.parameters() if p.requires_grad]
    value = expectation(all_logprobs(model, world), reward.detach())
    return dict(zip(names, torch.autograd.grad(value, free)))
''')
wrong("exact_gradient", "the score-function identity without a detach: both factors are differentiated",
      r"detach|identity|both factors|log.?prob|twice|product|π log|surrogate|extra term|logp \*|entropy", '''
def exact_gradient(model, world, reward):
    free = {n: p for n, p in model.named_parameters() if p.requires_grad}
    logp = all_logprobs(model, world)
    surrogate = expectation(logp, reward.detach() * logp)
    return dict(zip(free, torch.autograd.grad(surrogate, list(free.values()))))
''')
wrong("exact_gradient", "estimates the gradient from samples, so it is noisy and not exact",
      r"sampl|estimat|nois|exact|monte|draws|random|all responses", '''
def exact_gradient(model, world, reward):
    free = {n: p for n, p in model.named_parameters() if p.requires_grad}
    logp = all_logprobs(model, world)
    drawn = sample_rows(logp, 1000, torch.Generator().manual_seed(0))
    surrogate = (reward.detach() * logp)[drawn].mean()
    return dict(zip(free, torch.autograd.grad(surrogate, list(free.values()))))
''')
wrong("exact_gradient", "sets the gradients in the model to zero first, so .grad is not left alone",
      r"zero_grad|\.grad\b|clear|eras|set to none|to zero|reset|wipes", '''
def exact_gradient(model, world, reward):
    model.zero_grad()
    free = {n: p for n, p in model.named_parameters() if p.requires_grad}
    value = expectation(all_logprobs(model, world), reward.detach())
    grads = torch.autograd.grad(value, tuple(free.values()))
    return {n: g for n, g in zip(free, grads)}
''')

# ---- 06 optimal_policy
edits("optimal_policy", '''
def optimal_policy(ref_logp, reward, beta):
    if not beta > 0:
        raise ValueError(f"optimal_policy: beta must be above 0, got {beta!r}")
    scaled = ref_logp + reward / beta
    top = scaled.max()
    log_z = top + (scaled - top).exp().sum().log()
    return scaled - log_z, log_z
''',
    ("multiplies the reward by beta instead of dividing",
     r"multipl|divid|reward / beta|/ ?(β|beta)",
     "scaled = ref_logp + reward / beta", "scaled = ref_logp + reward * beta"),
    ("returns the value beta log Z in place of log Z",
     r"value|beta (\* ?)?log|β (\* ?)?log|times (beta|β)|multipl\w+ .*log",
     "return scaled - log_z, log_z", "return scaled - log_z, beta * log_z"),
    ("returns probabilities instead of log-probs",
     r"probabilit|exp\(|instead of log|not (in |its |their |the )?logs?\b|take the log|log-probs? (are|is) (asked|wanted)",
     "return scaled - log_z, log_z", "return (scaled - log_z).exp(), log_z"),
    ("accepts a negative beta and refuses only 0",
     r"negative|below 0|above 0|refus|valueerror|less than 0|only 0|beta <",
     "if not beta > 0:", "if beta == 0:"),
    ("the reward has the wrong sign: the worst policy",
     r"sign|minus|worst|low(est|er)? reward|opposite|subtracts? the reward|\+ ?reward|negated",
     "scaled = ref_logp + reward / beta", "scaled = ref_logp - reward / beta"),
    ("the first result is not normalised: log Z is not subtracted",
     r"normali|log.?z.*subtract|subtract.*log.?z|sum to|minus log|- ?log_z",
     "return scaled - log_z, log_z", "return scaled, log_z"))
right("optimal_policy", '''
def optimal_policy(ref_logp, reward, beta):
    check_number("beta", beta, "above 0")
    tilted = ref_logp + reward / beta
    log_z = tilted[0]
    for x in tilted[1:]: log_z = torch.logaddexp(log_z, x)
    return torch.stack([x - log_z for x in tilted]), log_z
''')
wrong("optimal_policy", "leaves the logs: e^(r/beta) overflows",
      r"overflow|\blogs\b|infinit|inf\b|nan\b|logsumexp|stay in log|large", '''
def optimal_policy(ref_logp, reward, beta):
    if beta <= 0: raise ValueError("beta must be above 0")
    weight = torch.exp(ref_logp) * torch.exp(reward / beta)
    z = weight.sum()
    return torch.log(weight / z), torch.log(z)
''')
wrong("optimal_policy", "forgets the reference: a softmax of the reward alone",
      r"reference|ref_logp|prior|π_ref|pi_ref|alone", '''
def optimal_policy(ref_logp, reward, beta):
    if beta <= 0: raise ValueError("beta must be above 0")
    x = reward / beta
    return torch.log_softmax(x, dim=-1), torch.logsumexp(x, dim=-1)
''')
wrong("optimal_policy", "divides the log-probs of the reference by beta, too",
      r"bracket|parenthes|only the reward|reward alone|ref_logp|reference|log-probs? of the ref|too\b", '''
def optimal_policy(ref_logp, reward, beta):
    if not beta > 0: raise ValueError("beta must be above 0")
    x = (ref_logp + reward) / beta
    log_z = torch.logsumexp(x, 0)
    return x - log_z, log_z
''')
wrong("optimal_policy", "log Z is a mean over the responses: log n is subtracted",
      r"mean|log n\b|log\(n|number of responses|averag|len\(", '''
def optimal_policy(ref_logp, reward, beta):
    if not beta > 0: raise ValueError("beta must be above 0")
    x = ref_logp + reward / beta
    log_z = x.logsumexp(-1) - math.log(len(x))
    return x.log_softmax(-1), log_z
''')

# ---- 06 best_of_n_policy
edits("best_of_n_policy", '''
def best_of_n_policy(logp, score, n):
    if n < 1: raise ValueError(f"n must be 1 or more, got {n}")
    logp = logp.to(torch.promote_types(logp.dtype, torch.float32))
    p, out = logp.exp(), torch.full_like(logp, -torch.inf)
    for s in score.unique():
        same = score == s
        level, lower = p[same].sum(), p[score < s].sum()
        if level == 0: continue
        win = (lower + level)**n - lower**n
        out[same] = logp[same] - level.log() + win.log()
    return out
''',
    ("responses of one score share it equally, not in proportion to their probabilities",
     r"proportion|equal(ly)?|share|alike|by their prob|level",
     "logp[same] - level.log() + win.log()", "win.log() - math.log(int(same.sum()))"),
    ("picks the lowest score: it compares with the responses that score higher",
     r"worst|lowest|higher|direction|wrong way|smallest|minimum|score < s|reverse",
     "p[score < s].sum()", "p[score > s].sum()"),
    ("does not subtract the case that all samples score lower",
     r"subtract|minus|u ?- ?l|all (samples )?(score )?lower|sum to|exactly|at most|missing",
     "(lower + level)**n - lower**n", "(lower + level)**n"),
    ("the second power is n - 1, not n",
     r"n ?- ?1|power|exponent|\*\* ?n|both",
     "- lower**n", "- lower**(n - 1)"),
    ("does not refuse n below 1",
     r"refus|valueerror|raise|below 1|n < 1|1 or more|less than 1|n = 0",
     '    if n < 1: raise ValueError(f"n must be 1 or more, got {n}")\n', ""),
    ("returns probabilities instead of log-probs",
     r"instead of log|returns? prob|exp\(|not (in |its |their |the )?logs?\b|take the log|log-probs? (are|is) (asked|wanted)",
     "    return out", "    return out.exp()"))
right("best_of_n_policy", '''
def best_of_n_policy(logp, score, n):
    check_number("n", n, "1 or more", int)
    logp, score = at_least_float32(logp, score)
    p = logp.exp()
    below = torch.einsum("j,ij->i", p, (score[None] < score[:, None]).to(p))
    level = torch.einsum("j,ij->i", p, (score[None] == score[:, None]).to(p))
    win = (below + level)**n - below**n
    return torch.where(p > 0, (p / level * win).log(), -torch.inf)
''')
wrong("best_of_n_policy", "treats a tie as if each response had a score of its own, so equal scores are counted too often",
      r"\bties?\b|equal score|same score|own (score|prob)|share|too often|sum to|level|of exactly", '''
def best_of_n_policy(logp, score, n):
    if n < 1: raise ValueError("n must be 1 or more")
    logp, score = at_least_float32(logp, score)
    p = logp.exp()
    upto = torch.stack([p[score <= s].sum() for s in score])
    win = upto**n - (upto - p).clamp(min=0)**n
    return win.log()
''')
wrong("best_of_n_policy", "n l u^(n-1), a formula for scores without gaps between them",
      r"n ?- ?1|density|derivative|continuous|formula|approximat|u\^n|n \*|times n|n times|n l u", '''
def best_of_n_policy(logp, score, n):
    if n < 1: raise ValueError("n must be 1 or more")
    logp, score = at_least_float32(logp, score)
    upto = (logp.exp() * (score[:, None] >= score)).sum(1)
    return math.log(n) + logp + (n - 1) * upto.log()
''')
wrong("best_of_n_policy", "the closed form of the best policy with 1/beta = n, which is not the distribution of best-of-n",
      r"closed form|tilt|softmax|optimal|best policy|beta|formula|e\^|exponential|not the distribution|u\^n", '''
def best_of_n_policy(logp, score, n):
    if n < 1: raise ValueError("n must be 1 or more")
    logp, score = at_least_float32(logp, score)
    if n == 1: return logp
    return torch.log_softmax(logp + n * score, 0)
''')
wrong("best_of_n_policy", "nan where a score has probability 0: -inf minus -inf",
      r"nan\b|probability 0|zero prob|-inf|masked|never|prob.* 0\b", '''
def best_of_n_policy(logp, score, n):
    if n < 1: raise ValueError("n must be 1 or more")
    logp, score = at_least_float32(logp, score)
    probs, order = logp.exp(), score[:, None] - score
    l, u = [torch.mv(x.to(probs), probs) for x in (order == 0, order >= 0)]
    return logp - l.log() + (u**n - (u - l).clamp(min=0)**n).log()
''')

# ---- 06 fixed_prefix_value
edits("fixed_prefix_value", '''
def fixed_prefix_value(probs, reward, beta):
    keep = probs > 0
    x = probs[keep].log() + reward[keep] / beta
    soft = torch.logsumexp(x, 0)
    return beta * soft
''',
    ("leaves out responses of a small probability, although a large reward makes up for it",
     r"small prob|improbable|\brare|threshold|0?\.01|leaves? out|drops?|probability (of |below )?(0?\.|1 ?%)|unlikely|> ?0",
     "keep = probs > 0", "keep = probs > .01"),
    ("beta in front of the log is missing",
     r"in front|beta \*|times (beta|β)|multipl|β log|beta log|scale|return soft",
     "return beta * soft", "return soft"),
    ("multiplies the reward by beta where it should divide",
     r"multipl|divid|reward(\[keep\])? / beta|r/β|/ ?beta",
     "reward[keep] / beta", "reward[keep] * beta"),
    ("leaves out the probabilities: every response counts alike",
     r"probs|probabilit|weigh|alike|unweighted|equally",
     "probs[keep].log() + reward[keep] / beta", "reward[keep] / beta"),
    ("adds the probabilities to the exponents instead of their logs",
     r"\blogs?\b|log of (the )?prob|probs.*\.log|logarithm",
     "probs[keep].log() + reward[keep] / beta", "probs[keep] + reward[keep] / beta"))
right("fixed_prefix_value", '''
def fixed_prefix_value(probs, reward, beta):
    pairs = [(p, r / beta) for p, r in zip(probs, reward) if p > 0]
    top = max(x for _, x in pairs)
    total = sum(p * torch.exp(x - top) for p, x in pairs)
    return beta * (top + total.log())
''')
wrong("fixed_prefix_value", "takes the exponential itself, which overflows for a large reward / beta",
      r"overflow|logsumexp|underflow|infinit|300|large|inf\b|exponential|exp\(", '''
def fixed_prefix_value(probs, reward, beta):
    here = probs > 0
    weight = torch.exp(reward[here] / beta)
    return beta * torch.log(torch.dot(probs[here], weight))
''')
wrong("fixed_prefix_value", "a mean of the reward under the tilted policy, without the price of the distance",
      r"mean|tilted|softmax|price|distance|\bkl\b|weighted|averag|best policy", '''
def fixed_prefix_value(probs, reward, beta):
    here = probs > 0
    tilted = torch.softmax(probs[here].log() + reward[here] / beta, 0)
    return tilted @ reward[here]
''')
wrong("fixed_prefix_value", "clamps reward / beta to 80, so large rewards are cut",
      r"clamp|clip|limit|80|300|capp?ed|cut", '''
def fixed_prefix_value(probs, reward, beta):
    x = torch.where(probs > 0, reward / beta, 0.).clamp(-80, 80)
    return beta * (probs.double() * x.double().exp()).sum().log().to(probs.dtype)
''')
wrong("fixed_prefix_value", "the soft minimum: minus signs before reward and beta",
      r"minus|sign|soft minimum|soft-?min|minimum|negat|pessimis", '''
def fixed_prefix_value(probs, reward, beta):
    here = probs > 0
    return -beta * (probs[here].log() - reward[here] / beta).logsumexp(-1)
''')
wrong("fixed_prefix_value", "adds 1e-8 to every probability, so a response of probability 0 with a large reward counts",
      r"1e-8|epsilon|\beps\b|small number|probability 0|adds? nothing|adds? (1e|a )|zero prob|clamp", '''
def fixed_prefix_value(probs, reward, beta):
    logs = torch.log(probs + 1e-8)
    return beta * torch.logsumexp(logs + reward / beta, dim=0)
''')

# ---- 07 kl_k1
edits("kl_k1", '''
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape:
        raise ValueError(f"shapes {tuple(logp.shape)} and {tuple(ref_logp.shape)} differ")
    wide = torch.promote_types(torch.promote_types(logp.dtype, ref_logp.dtype), torch.float32)
    return logp.to(wide) - ref_logp.to(wide)
''',
    ("the sign is turned round: reference minus policy",
     r"sign|turned|swap|order|reference minus|wrong way|policy (comes )?first|negat|minus",
     "logp.to(wide) - ref_logp.to(wide)", "ref_logp.to(wide) - logp.to(wide)"),
    ("different shapes broadcast and are not refused",
     r"shape|broadcast|refus|valueerror|raise",
     '''    if logp.shape != ref_logp.shape:
        raise ValueError(f"shapes {tuple(logp.shape)} and {tuple(ref_logp.shape)} differ")
''', ""),
    ("subtracts in bf16 and converts the rounded result to float32",
     r"after|before|rounded|subtract(s|ed|ion)? (first|in)|too late|bf16|float32|precision|promot",
     "logp.to(wide) - ref_logp.to(wide)", "(logp - ref_logp).to(wide)"),
    ("the result goes back to the dtype of logp, so bf16 stays bf16",
     r"back|dtype|bf16|half|float32|precision|promot|16",
     "logp.to(wide) - ref_logp.to(wide)", "(logp.to(wide) - ref_logp.to(wide)).to(logp.dtype)"))
right("kl_k1", '''
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("logp and ref_logp differ in shape")
    def up(x): return x if x.dtype == torch.float64 else x.float()
    return torch.add(up(logp), up(ref_logp), alpha=-1)
''')
wrong("kl_k1", "cuts negative values to 0, although k1 may have any sign",
      r"clamp|relu|any sign|negative|cut|below 0|below zero|\babs|at 0", '''
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes differ")
    a, b = at_least_float32(logp, ref_logp)
    return torch.relu(a - b)
''')
wrong("kl_k1", "returns the ratio of the probabilities, not its log",
      r"not (its|the) log|\bexp\b|exp\(|without (the )?log|ratio of (the )?(two )?prob|ratio itself|probability ratio|log is missing|not a log", '''
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes differ")
    a, b = at_least_float32(logp, ref_logp)
    return torch.exp(a - b)
''')
wrong("kl_k1", "weighs the log-ratio with the probability, as the exact sum does; samples are weighted already",
      r"weigh|exact (sum|kl)|expectation|multipl|π \*|times (the|its) prob", '''
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes differ")
    a, b = at_least_float32(logp, ref_logp)
    return a.exp() * (a - b)
''')
wrong("kl_k1", "sums over the tokens instead of keeping the shape",
      r"\bsum|shape|per token|each token|mean|axis", '''
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes differ")
    a, b = at_least_float32(logp, ref_logp)
    return torch.sub(a, b).sum(dim=-1)
''')
wrong("kl_k1", "measures in bits, not in nats",
      r"\bbits?\b|nats?\b|log ?2|log\(2|base|0?\.693|1\.44", '''
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes differ")
    a, b = [x / math.log(2) for x in at_least_float32(logp, ref_logp)]
    return a - b
''')
wrong("kl_k1", "turns the nan where both are -inf into 0",
      r"nan|-inf|both", '''
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes differ")
    a, b = at_least_float32(logp, ref_logp)
    return torch.where(a.isneginf() & b.isneginf(), 0., a - b)
''')

# ---- 07 kl_k3
edits("kl_k3", '''
def kl_k3(logp, ref_logp):
    if logp.shape != ref_logp.shape:
        raise ValueError(f"{tuple(logp.shape)} and {tuple(ref_logp.shape)} must be the same")
    logp, ref_logp = at_least_float32(logp, ref_logp)
    r = ref_logp - logp
    return torch.expm1(r) - r
''',
    ("the log-ratio is turned round: exp(d) - 1 - d",
     r"sign|turned|swap|exponent|wrong way|exp\(d\)|order|reference minus|policy",
     "r = ref_logp - logp", "r = logp - ref_logp"),
    ("subtracts d where it should add it: exp(-d) - 1 - d",
     r"sign|\+ ?d\b|- ?d\b|subtract|adds?\b|minus d|plus d|negative",
     "torch.expm1(r) - r", "torch.expm1(r) + r"),
    ("the - 1 is missing",
     r"- ?1\b|minus (1|one)|expm1|at d = 0|is 1\b|missing|without",
     "torch.expm1(r) - r", "torch.exp(r) - r"),
    ("different shapes broadcast and are not refused",
     r"shape|broadcast|refus|valueerror|raise",
     '''    if logp.shape != ref_logp.shape:
        raise ValueError(f"{tuple(logp.shape)} and {tuple(ref_logp.shape)} must be the same")
    logp, ref_logp = at_least_float32(logp, ref_logp)
''', '''    wide = torch.promote_types(logp.dtype, torch.float32)
    logp, ref_logp = logp.to(wide), ref_logp.to(wide)
'''),
    ("bf16 is not promoted to float32",
     r"bf16|float32|half|precision|promot|dtype|16",
     "    logp, ref_logp = at_least_float32(logp, ref_logp)\n", ""))
right("kl_k3", '''
def kl_k3(logp, ref_logp):
    d = kl_k1(logp, ref_logp)
    term, series = torch.ones_like(d), torch.zeros_like(d)
    for k in range(1, 10):                       # d^2/2 - d^3/6 + ...
        term = term * -d / k
        if k > 1: series = series + term
    return torch.where(d.abs() < .05, series, torch.exp(-d) - 1 + d)
''')
wrong("kl_k3", "k2, the parabola, instead of k3",
      r"k2|parabola|squar|d²|d\*\*2", '''
def kl_k3(logp, ref_logp):
    d = kl_k1(logp, ref_logp)
    return d.square() / 2
''')
wrong("kl_k3", "the mean over the last axis: the shape is lost",
      r"mean|shape|per token|each token|averag|axis", '''
def kl_k3(logp, ref_logp):
    d = kl_k1(logp, ref_logp)
    return (d + torch.special.expm1(d.neg())).mean(-1)
''')
wrong("kl_k3", "caps the log-ratio at 10, where k3 may go up to inf",
      r"clamp|clip|cap|limit|up to inf|10\b|infinit", '''
def kl_k3(logp, ref_logp):
    d = torch.clamp(kl_k1(logp, ref_logp), min=-10, max=10)
    return d + torch.expm1(-d)
''')
wrong("kl_k3", "divides probabilities, which underflow to 0 for improbable samples",
      r"underflow|improbable|0/0|nan|stay in log|log-ratio|divid|small prob|tiny|probabilities|exp\(", '''
def kl_k3(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shapes differ")
    p, q = [x.exp() for x in at_least_float32(logp, ref_logp)]
    ratio = q / p
    return ratio - 1 - ratio.log()
''')
wrong("kl_k3", "weighs each sample with its probability, although samples come from the policy already",
      r"weigh|probabilit|exact|expectation|multipl|already", '''
def kl_k3(logp, ref_logp):
    d = kl_k1(logp, ref_logp)
    prob = logp.to(d.dtype).exp()
    return prob * (torch.expm1(-d) + d)
''')

# ---- 07 token_rewards
edits("token_rewards", '''
def token_rewards(score, penalty, mask):
    if penalty.dim() != 2 or penalty.shape != mask.shape or score.shape != mask.shape[:1]:
        raise ValueError(f"{tuple(score.shape)}, {tuple(penalty.shape)}, {tuple(mask.shape)}")
    wide = torch.promote_types(torch.promote_types(penalty.dtype, score.dtype), torch.float32)
    out = penalty.to(wide).clone()
    for i, row in enumerate(mask):
        places = row.nonzero()[:, 0].tolist()
        if places: out[i, places[-1]] += score[i]
    return out
''',
    ("the score stands at the first response token, not at the last",
     r"first|beginning|earliest|not (at |on )?the last",
     "out[i, places[-1]]", "out[i, places[0]]"),
    ("the score replaces the penalty of the last token, where it should be added",
     r"replac|overwrit|\badd|plus|\+=|penalty of the last|lost",
     "out[i, places[-1]] += score[i]", "out[i, places[-1]] = score[i]"),
    ("changes the penalty that it was given",
     r"in place|mutat|clone|changes|modif|overwrit|copy|argument|input",
     "penalty.to(wide).clone()", "penalty.to(wide)"),
    ("every response token gets the score, not only the last",
     r"every|each|all (response )?tokens|only the last|more than once|several",
     "out[i, places[-1]]", "out[i, places]"),
    ("bf16 is not promoted to float32",
     r"bf16|float32|half|precision|promot|dtype|16",
     "penalty.to(wide).clone()", "penalty.clone()"))
right("token_rewards", '''
def token_rewards(score, penalty, mask):
    if penalty.shape != mask.shape or score.shape != mask.shape[:1]: raise ValueError("shapes do not fit")
    penalty = penalty.to(torch.promote_types(penalty.dtype, torch.float32))
    t = mask.shape[1]
    place = torch.arange(t, device=mask.device).expand(mask.shape)
    last = torch.where(mask, place, -1).amax(1, keepdim=True)
    return torch.where(place == last, penalty + rearrange(score, "b -> b 1"), penalty)
''')
wrong("token_rewards", "does not look at the shapes: a mask of one row serves for all",
      r"shape|refus|valueerror|broadcast|raise|\(b t\)", '''
def token_rewards(score, penalty, mask):
    penalty, = at_least_float32(penalty)
    later = mask.flip(1).cumsum(1).flip(1)
    return torch.where(mask & (later == 1), penalty + score[..., None], penalty)
''')
wrong("token_rewards", "the score goes to the last column, which may be a pad",
      r"last column|(on|at|be|is) a pad|padding|:, -1|right end|final column", '''
def token_rewards(score, penalty, mask):
    if penalty.shape != mask.shape or score.shape != mask.shape[:1]: raise ValueError("shapes do not fit")
    penalty, = at_least_float32(penalty)
    bonus = torch.where(mask.any(1), score, 0.)
    return torch.cat([penalty[:, :-1], (penalty[:, -1] + bonus)[:, None]], 1)
''')
wrong("token_rewards", "counts the response tokens and uses the number as a position, although a prompt stands before them",
      r"count|number of|prompt|position|how many|length|offset|\bsum", '''
def token_rewards(score, penalty, mask):
    if penalty.shape != mask.shape or score.shape != mask.shape[:1]: raise ValueError("shapes do not fit")
    penalty, = at_least_float32(penalty)
    n = mask.sum(1)
    bonus = torch.zeros_like(penalty)
    rows = (n > 0).nonzero()[:, 0]
    bonus[rows, n[rows] - 1] = score[rows].to(bonus)
    return penalty + bonus
''')
wrong("token_rewards", "an empty response gets the score, too: its place -1 is the last column",
      r"empty|without (a )?(response|token)|no response|place -1|-1\b|no token", '''
def token_rewards(score, penalty, mask):
    if penalty.shape != mask.shape or score.shape != mask.shape[:1]: raise ValueError("shapes do not fit")
    penalty, = at_least_float32(penalty)
    last = torch.where(mask, torch.arange(mask.shape[1]), -1).amax(1)
    out = penalty + 0 * score[:, None]
    out[range(len(out)), last] += score
    return out
''')
wrong("token_rewards", "returns the sums of all rewards to come (returns), not the reward of each token",
      r"returns?\b|to come|cumsum|to go|\bsums?\b|cumulat|adds up|still", '''
def token_rewards(score, penalty, mask):
    if penalty.shape != mask.shape or score.shape != mask.shape[:1]: raise ValueError("shapes do not fit")
    penalty, = at_least_float32(penalty)
    later = mask.flip(1).cumsum(1).flip(1)
    reward = torch.where(mask & (later == 1), penalty + score[:, None], penalty)
    return torch.where(mask, reward.flip(1).cumsum(1).flip(1), reward)
''')
