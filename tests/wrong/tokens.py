"Answers to the exercises of the chapter on tokens that learners might give, wrong and right."
import einops, torch
from torch.nn import functional as F
from rlhf_nb.tokens import masked_sum

# shift_right

def left(x): return torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], dim=1)
def padded(x): return torch.nn.functional.pad(x[:, :-1], (1, 0))
def rolled(x): return torch.roll(x, shifts=1, dims=1)
def as_it_is(x):
    out = torch.zeros_like(x)
    out[:, :] = x
    return out
def sliced(x): return x[:, :-1]
def one_more(x):
    zeros = torch.zeros_like(x)[:, 0].unsqueeze(1)
    return torch.cat((zeros, x), dim=1)
def repeated(x):
    out = x.clone()
    out[:, 1:] = x[:, :-1]
    return out
def rows_moved(x): return torch.cat([torch.zeros_like(x[:1]), x[:-1]])
def last_axis(x): return torch.cat([torch.zeros_like(x[..., :1]), x[..., :-1]], dim=-1)
def twice(x):
    out = torch.zeros_like(x)
    out[:, 2:] = x[:, :-2]
    return out
def data_only(x):
    out = torch.zeros_like(x.data)
    out[:, 1:] = x.data[:, :-1]
    return out
def new_zeros(x):       # float zeros: a mask and ids change their type
    return torch.cat([torch.zeros(x.shape[0], 1, *x.shape[2:]), x[:, :-1]], dim=1)

def right_shift_loop(x):
    out = torch.zeros_like(x)
    for i in range(1, x.shape[1]): out[:, i] = x[:, i - 1]
    return out
def right_shift_roll(x):
    out = x.roll(1, dims=1).clone()
    out[:, 0] = 0
    return out
def right_shift_einops(x):
    y = einops.rearrange(x, "b t ... -> t b ...")
    return einops.rearrange(torch.cat([torch.zeros_like(y[:1]), y[:-1]]), "t b ... -> b t ...")

# token_logprobs

def same_shape(logits, ids):
    if logits.shape[:-1] != ids.shape: raise ValueError("shapes")
def no_shift(logits, ids):
    same_shape(logits, ids)
    return logits.float().log_softmax(-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
def wrong_way(logits, ids):
    same_shape(logits, ids)
    z = logits.float().log_softmax(-1)
    z = torch.cat([z[:, 1:], torch.zeros_like(z[:, :1])], 1)
    return z.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
def raw(logits, ids):
    same_shape(logits, ids)
    z = torch.cat([torch.zeros_like(logits[:, :1]), logits[:, :-1]], 1).float()
    return z.gather(2, ids[:, :, None]).squeeze(2)
def probabilities(logits, ids):
    same_shape(logits, ids)
    p = F.softmax(logits[:, :-1].float(), dim=-1).gather(2, ids[:, 1:, None]).squeeze(2)
    return F.pad(p, (1, 0))
def log_of_softmax(logits, ids):
    same_shape(logits, ids)
    p = F.softmax(logits[:, :-1].float(), dim=-1).log().gather(2, ids[:, 1:, None]).squeeze(2)
    return F.pad(p, (1, 0))
def logits_shifted(logits, ids):
    same_shape(logits, ids)
    z = torch.cat([torch.zeros_like(logits[:, :1]), logits[:, :-1]], 1)
    return z.float().log_softmax(-1).gather(-1, ids[..., None])[..., 0]
def loss_like(logits, ids):
    same_shape(logits, ids)
    nll = F.cross_entropy(logits[:, :-1].float().transpose(1, 2), ids[:, 1:], reduction="none")
    return F.pad(nll, (1, 0))
def shorter(logits, ids):
    same_shape(logits, ids)
    return logits[:, :-1].float().log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
def over_time(logits, ids):
    same_shape(logits, ids)
    z = logits.float().log_softmax(dim=1)
    z = torch.cat([torch.zeros_like(z[:, :1]), z[:, :-1]], 1)
    return z.gather(-1, ids[..., None])[..., 0]
def both_moved(logits, ids):
    same_shape(logits, ids)
    z = logits.float().log_softmax(-1)
    z = torch.cat([torch.zeros_like(z[:, :1]), z[:, :-1]], 1)
    y = torch.cat([torch.zeros_like(ids[:, :1]), ids[:, :-1]], 1)
    return z.gather(-1, y[..., None])[..., 0]
def per_row(logits, ids):
    same_shape(logits, ids)
    logp = logits[:, :-1].float().log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    return logp.sum(-1)
def greedy(logits, ids):
    same_shape(logits, ids)
    top = logits.float().log_softmax(-1).max(-1).values
    return torch.cat([torch.zeros_like(top[:, :1]), top[:, :-1]], 1)
@torch.no_grad()
def frozen(logits, ids): return right_logp_cross(logits, ids)
def unguarded(logits, ids):
    t = min(logits.shape[1], ids.shape[1])
    return right_logp_cross(logits[:, :t], ids[:, :t])

def right_logp_cross(logits, ids):
    same_shape(logits, ids)
    z = logits if logits.dtype == torch.float64 else logits.float()
    nll = F.cross_entropy(z[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
    return F.pad(-nll, (1, 0))
def right_logp_double(logits, ids):
    same_shape(logits, ids)
    z = logits.double()
    logp = z - z.logsumexp(-1, keepdim=True)
    picked = logp[:, :-1].gather(-1, einops.rearrange(ids[:, 1:], "b t -> b t 1"))
    return torch.cat([torch.zeros_like(z[:, :1, 0]), picked[..., 0]], 1)
def right_logp_loop(logits, ids):
    same_shape(logits, ids)
    rows = []
    for z, y in zip(logits.double(), ids):
        rows.append(torch.stack([z[0, 0] * 0 if i == 0 else z[i - 1].log_softmax(0)[y[i]]
                                 for i in range(len(y))]))
    return torch.stack(rows)

# masked_mean

def guarded(x, mask):
    if x.shape != mask.shape: raise ValueError("one shape")
    if mask.sum() == 0: raise ValueError("nothing")
def by_size(x, mask):
    guarded(x, mask)
    return x.float().masked_fill(~mask, 0).mean()
def no_mask(x, mask):
    guarded(x, mask)
    return x.float().mean()
def rows_alike(x, mask):
    guarded(x, mask)
    x = x.float().masked_fill(~mask, 0)
    if x.dim() != 2: return x.sum() / mask.sum()
    return (x.sum(1) / mask.sum(1).clamp(min=1)).mean()
def each_row(x, mask):
    guarded(x, mask)
    return masked_sum(x, mask) / mask.sum(-1)
def only_sum(x, mask):
    guarded(x, mask)
    return torch.where(mask, x, 0.).float().sum()
def by_rows(x, mask):
    guarded(x, mask)
    return torch.where(mask, x, 0.).float().sum() / x.shape[0]
def times(x, mask):
    guarded(x, mask)
    return (x.float() * mask.float()).sum() / mask.sum()
def as_typed_first(x, mask): return (x * mask).sum() / mask.sum()
def inverted(x, mask):
    guarded(x, mask)
    return x.float().masked_fill(mask, 0).sum() / (~mask).sum()
def nan_for_nothing(x, mask):
    if x.shape != mask.shape: raise ValueError("one shape")
    return x.float().masked_fill(~mask, 0).sum() / mask.sum()
def zero_for_nothing(x, mask):
    if x.shape != mask.shape: raise ValueError("one shape")
    return x.float().masked_fill(~mask, 0).sum() / mask.sum().clamp(min=1)
def any_shape(x, mask):
    if not mask.any(): raise ValueError("empty")
    return x.float().masked_fill(~mask, 0).sum() / mask.sum()
def no_checks(x, mask):
    keep = mask.bool()
    return x.float().masked_fill(~keep, 0).sum() / keep.sum()
def sixteen_bits(x, mask):
    guarded(x, mask)
    total = torch.zeros((), dtype=x.dtype)
    for v in x[mask]: total = total + v
    return total / mask.sum().to(x.dtype)
def number_only(x, mask):
    guarded(x, mask)
    return torch.tensor(x[mask].double().mean().item())

def right_mean_pick(x, mask):
    guarded(x, mask)
    return (x if x.dtype == torch.float64 else x.float())[mask].mean()
def right_mean_rows(x, mask):
    guarded(x, mask)
    total = masked_sum(x.reshape(1, -1), mask.reshape(1, -1))[0]
    return total / mask.sum()
def right_mean_double(x, mask):
    guarded(x, mask)
    kept = torch.where(mask, x.double(), torch.zeros((), dtype=torch.double))
    return einops.reduce(kept, "... -> ", "sum") / mask.sum()
def right_mean_loop(x, mask):
    guarded(x, mask)
    total, n = torch.zeros((), dtype=torch.double), 0
    for v, on in zip(x.flatten(), mask.flatten()):
        if on: total, n = total + v.double(), n + 1
    return total / n

# last_token_index

def some(mask):
    if not mask.bool().any(1).all(): raise ValueError("pads only")
def counted_end(mask):
    some(mask)
    return mask.long().sum(dim=1) - 1
def how_many(mask):
    some(mask)
    return mask.sum(-1)
def first_pad(mask):
    some(mask)
    return (mask == 0).int().argmax(1) - 1
def first_token(mask):
    some(mask)
    return mask.int().argmax(dim=1)
def last_column(mask):
    some(mask)
    return torch.full((len(mask),), mask.shape[1] - 1)
def from_one(mask):
    some(mask)
    return torch.tensor([max(i + 1 for i, on in enumerate(row) if on) for row in mask.tolist()])
def too_early(mask):
    some(mask)
    return mask.shape[1] - mask.flip(1).int().argmax(1) - 2
def from_the_end(mask):
    some(mask)
    return mask.flip(1).int().argmax(1)
def minus_one(mask):
    position = torch.arange(mask.shape[1])
    return torch.where(mask.bool(), position, -1).amax(1)
def flipped_argmax(mask): return mask.shape[1] - 1 - mask.flip([1]).int().argmax(1)
def by_columns(mask):
    some(mask.T)
    position = torch.arange(mask.shape[0])[:, None]
    return torch.where(mask.bool(), position, -1).amax(0)
def over_the_batch(mask):
    some(mask)
    return mask.nonzero()[:, 1].max()

def right_last_flip(mask):
    some(mask)
    return mask.shape[1] - 1 - mask.int().flip(1).argmax(1)
def right_last_loop(mask):
    some(mask)
    return torch.stack([row.nonzero()[-1, 0] for row in mask])
def right_last_cumsum(mask):
    some(mask)
    return mask.int().cumsum(1).argmax(1)
def right_last_product(mask):
    some(mask)
    return (mask.long() * torch.arange(mask.shape[1])).amax(1)

# fixed_counted

def by_ids(ids, lengths, pad):
    keep = (ids != pad)
    return torch.cat([torch.zeros_like(keep[:, :1]), keep[:, 1:]], dim=1)
def first_too(ids, lengths, pad): return torch.arange(ids.shape[1])[None] < lengths[:, None]
def no_end(ids, lengths, pad):
    pos = torch.arange(ids.shape[1]).expand_as(ids)
    return (pos > 0) & (pos < lengths.unsqueeze(1) - 1)
def one_pad(ids, lengths, pad):
    pos = torch.arange(ids.shape[1]).expand_as(ids)
    return (pos > 0) & (pos <= lengths.unsqueeze(1))
def longest(ids, lengths, pad):
    keep = torch.zeros(ids.shape, dtype=torch.bool)
    keep[:, 1:lengths.max()] = True
    return keep
def everything(ids, lengths, pad):
    keep = torch.ones(ids.shape, dtype=torch.bool)
    keep[:, 0] = False
    return keep
def first_end(ids, lengths, pad):
    keep = torch.zeros_like(ids, dtype=torch.bool)
    for i, row in enumerate(ids.tolist()):
        for j in range(1, int(lengths[i])):
            keep[i, j] = True
            if row[j] == 1: break
    return keep
def where_pads_are(ids, lengths, pad):
    pos = torch.arange(ids.shape[1]).expand_as(ids)
    return (pos < 1) | (pos >= lengths[:, None])
def all_but_pads(ids, lengths, pad): return ids != pad

def right_counted_loop(ids, lengths, pad):
    keep = torch.zeros_like(ids, dtype=torch.bool)
    for row, n in zip(keep, lengths): row[1:n] = True
    return keep
def right_counted_cumsum(ids, lengths, pad):
    position = torch.ones_like(ids).cumsum(1)
    return (position > 1) & (position <= einops.rearrange(lengths, "b -> b 1"))

WRONG = {
    "shift_right": [
        ("the wrong way: row i of the result is row i-1 of x, not row i+1", left),
        ("that pads the last axis, as F.pad does: time is axis 1", padded),
        ("row 0 is 0, not the last row: that is torch.roll", rolled),
        ("nothing has moved", as_it_is),
        ("the shape stays (b t ...): the zeros in front are missing", sliced),
        ("the shape stays (b t ...): drop the last row", one_more),
        ("row 0 is 0: that repeats the first row", repeated),
        ("that moves the rows of the batch: time is axis 1", rows_moved),
        ("that moves the last axis: time is axis 1", last_axis),
        ("two steps: move by one", twice),
        ("no gradient reaches x: do not detach", data_only), ("", new_zeros)],
    "token_logprobs": [
        ("no shift: row i of the logits predicts token i+1", no_shift),
        ("the shift goes the wrong way: token i is predicted by row i-1", wrong_way),
        ("those are logits: log_softmax makes log-probs of them", raw),
        ("those are probabilities: take their log", probabilities),
        ("the log of softmax is -inf where a probability underflows: use log_softmax", log_of_softmax),
        ("entry 0 is 0: shift log-probs, not logits (zeros are logits too)", logits_shifted),
        ("turn the sign: a log-prob is never above 0", loss_like),
        ("entry 0 is missing: the result is (b t)", shorter),
        ("softmax runs over the words, the last axis", over_time),
        ("the ids moved as well: only the logits shift", both_moved),
        ("that is one number per response: keep one per token", per_row),
        ("that is the log-prob of the most probable token: pick that of ids", greedy),
        ("no gradient reaches the logits: do not detach", frozen),
        ("logits and ids must share (b t), or ValueError", unguarded)],
    "masked_mean": [
        ("the masked entries count: divide by the number of True", by_size),
        ("the mask is not used", no_mask),
        ("that is the sequence mean, each row alike: every token has the same weight", rows_alike),
        ("one number for all, not one per row", each_row),
        ("that is the sum: divide", only_sum),
        ("that divides by the number of rows, not of tokens", by_rows),
        ("0 times nan is nan: write 0 where the mask is False, do not multiply", times),
        ("0 times nan is nan: write 0 where the mask is False; and check the mask, as the task asks", as_typed_first),
        ("upside down: True is what counts", inverted),
        ("without any True it must raise ValueError", nan_for_nothing),
        ("without any True it must raise ValueError, not give 0", zero_for_nothing),
        ("two things: a mask without True and one of another shape raise ValueError", no_checks),
        ("one mask for all rows broadcasts silently: x and mask of two shapes raise ValueError", any_shape),
        ("a sum of 300 numbers in 16 bits is wrong: compute in float32", sixteen_bits),
        ("no gradient reaches x: do not detach", number_only)],
    "last_token_index": [
        ("counting fails with pads on the left: tokens - 1 is no position", counted_end),
        ("that is the number of tokens, not a position", how_many),
        ("the first pad may stand in front: first pad - 1 is no end", first_pad),
        ("that is the first real token", first_token),
        ("that is the last column, padding or not", last_column),
        ("one too late: positions count from 0", from_one),
        ("one too early", too_early),
        ("counted from the end: subtract it from t - 1", from_the_end),
        ("a row of pads must raise ValueError: it has no last token", minus_one),
        ("a row of pads must raise ValueError: argmax answers 0 or t - 1 there", flipped_argmax),
        ("one number for each row, not for each column", by_columns),
        ("one number for each row, not one for the batch", over_the_batch)],
    "fixed_counted": [
        ("it still goes by the ids: where pad is eos, the end looks like padding", by_ids),
        ("the first token is counted: nothing precedes it", first_too),
        ("the last token of each row is missing, and it is the eos", no_end),
        ("one pad is counted: the last token is at lengths - 1", one_pad),
        ("each row ends at its own length, not at the longest", longest),
        ("the pads are counted", everything),
        ("it ends at the first eos: a row may hold two turns", first_end),
        ("upside down: True is what the loss counts", where_pads_are), ("", all_but_pads)]}

RIGHT = {
    "shift_right": [right_shift_loop, right_shift_roll, right_shift_einops],
    "token_logprobs": [right_logp_cross, right_logp_double, right_logp_loop],
    "masked_mean": [right_mean_pick, right_mean_rows, right_mean_double, right_mean_loop],
    "last_token_index": [right_last_flip, right_last_loop, right_last_cumsum, right_last_product],
    "fixed_counted": [right_counted_loop, right_counted_cumsum]}
