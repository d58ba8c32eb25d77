"Answers to the exercises of the chapter on tokens that learners might give, each wrong."
import torch
from torch.nn import functional as F
from rlhf_nb.memory import masked_mean_rows
from rlhf_nb.tokens import (
    last_token_index, masked_mean, masked_sum, shift_right, token_logprobs)

def no_shift(logits, seqs):
    logp = logits.log_softmax(-1).gather(-1, seqs.ids.unsqueeze(-1)).squeeze(-1)
    return (logp * seqs.response_mask).sum(1)
def wrong_way(logits, seqs):
    z = torch.cat([logits[:, 1:], torch.zeros_like(logits[:, :1])], 1).log_softmax(-1)
    logp = z.gather(-1, seqs.ids.unsqueeze(-1)).squeeze(-1)
    logp[:, -1] = 0
    return (logp * seqs.response_mask).sum(1)
def mean_of_rows(logits, seqs):
    return masked_mean_rows(token_logprobs(logits, seqs.ids), seqs.response_mask)
def with_prompt(logits, seqs):
    return masked_sum(token_logprobs(logits, seqs.ids), seqs.attention_mask)
def unmasked(logits, seqs):
    return token_logprobs(logits, seqs.ids).sum(-1)
def sliced_mask(logits, seqs):      # logits are cut, and the mask at the wrong end
    logp = logits[:, :-1].log_softmax(-1).gather(-1, seqs.ids[:, 1:, None])[..., 0]
    return (logp * seqs.response_mask[:, :-1]).sum(1)
def other_slice(logits, seqs):
    logp = token_logprobs(logits, seqs.ids)
    return (logp[:, :-1] * seqs.response_mask[:, 1:]).sum(1)
def raw(logits, seqs):
    z = shift_right(logits).gather(-1, seqs.ids[..., None])[..., 0]
    return masked_sum(z, seqs.response_mask)
def probabilities(logits, seqs):
    p = F.softmax(logits[:, :-1], -1).gather(-1, seqs.ids[:, 1:, None])[..., 0]
    return (p * seqs.response_mask[:, 1:]).sum(1)
def loss_like(logits, seqs):
    z, y = logits[:, :-1].float().transpose(1, 2), seqs.ids[:, 1:]
    return (F.cross_entropy(z, y, reduction="none") * seqs.response_mask[:, 1:]).sum(1)
@torch.no_grad()
def frozen(logits, seqs):
    return masked_sum(token_logprobs(logits, seqs.ids), seqs.response_mask)
def one_number(logits, seqs):
    return masked_sum(token_logprobs(logits, seqs.ids), seqs.response_mask).sum()

def argmax_only(mask): return mask.int().argmax(dim=1)
def row_length(mask):
    return torch.where(mask.any(1), mask.int().argmax(1), torch.tensor(mask.shape[1]))
def end(mask):
    out = []
    for row in mask:
        where = row.nonzero().flatten()
        out.append(int(where[-1]) if len(where) else -1)
    return torch.tensor(out)
def before_it(mask):
    first = torch.where(mask.any(1), mask.int().argmax(1), -1)
    return first - 1
def from_one(mask):
    return torch.tensor([row.index(True) + 1 if True in row else -1 for row in mask.tolist()])
def count_prompt(mask): return mask.shape[1] - mask.sum(1)
def columns(mask): return torch.where(mask.any(0), mask.int().argmax(0), -1)
def whether(mask): return mask.sum(1) > 0
def last_of_all(mask): return last_token_index(mask | ~mask)

def whole_batch(x, mask):
    mean = masked_mean(x, mask)
    std = masked_mean((x - mean)**2, mask).sqrt()
    return torch.where(mask, (x - mean) / (std + 1e-6), torch.zeros_like(x))
def unbiased(x, mask):
    out = torch.zeros_like(x)
    for i in range(len(x)):
        row = x[i][mask[i]]
        if len(row) > 1: out[i, mask[i]] = (row - row.mean()) / (row.std() + 1e-8)
    return out
def centred(x, mask):
    return (x - masked_mean_rows(x, mask)[:, None]).masked_fill(~mask, 0)
def by_variance(x, mask):
    mean = masked_mean_rows(x, mask)[:, None]
    var = masked_mean_rows((x - mean)**2, mask)[:, None]
    return ((x - mean) / (var + 1e-8)).masked_fill(~mask, 0)
def not_centred(x, mask):
    mean = masked_mean_rows(x, mask)[:, None]
    var = masked_mean_rows((x - mean)**2, mask)[:, None]
    out = (x * (var + 1e-8).rsqrt()).masked_fill(~mask, 0)
    return out.masked_fill(mask.sum(1, keepdim=True) < 2, 0)
def rest_left(x, mask):
    mean = masked_mean_rows(x, mask)[:, None]
    var = masked_mean_rows((x - mean)**2, mask)[:, None]
    out = (x - mean) * (var + 1e-8).rsqrt()
    return out.masked_fill(mask.sum(1, keepdim=True) < 2, 0)
def pads_in(x, mask):
    x = torch.where(mask, x, torch.zeros_like(x))
    mean, var = x.mean(1, keepdim=True), x.var(1, correction=0, keepdim=True)
    return ((x - mean) / (var + 1e-8).sqrt()).masked_fill(~mask, 0)
def no_eps(x, mask):
    mean = masked_mean_rows(x, mask)[:, None]
    std = masked_mean_rows((x - mean)**2, mask)[:, None].sqrt()
    return ((x - mean) / std).masked_fill(~mask, 0)
def down(x, mask):
    keep = mask.float()
    n = mask.sum(0).clamp(min=1)
    safe = torch.where(mask, x, torch.zeros_like(x))
    mean = safe.sum(0) / n
    var = ((safe - mean)**2 * keep).sum(0) / n
    return ((safe - mean) * (var + 1e-8).rsqrt()).masked_fill(~mask, 0)

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

def all_false(mask): return torch.tensor([(~row).sum() if row.any() else -1 for row in mask])

WRONG = {
    "response_logprob": [
        ("no shift: row i of the logits predicts token i+1", no_shift),
        ("the shift goes the wrong way: token i is predicted by row i-1", wrong_way),
        ("that is the mean of each response: DPO needs the sum", mean_of_rows),
        ("prompt tokens are in it", with_prompt),
        ("pads are in it: nothing is masked", unmasked),
        ("the mask slipped: the first word of each response is missing", sliced_mask),
        ("the mask slipped: the last prompt token counts, the last word does not", other_slice),
        ("those are logits: log_softmax makes log-probs of them", raw),
        ("those are probabilities: they multiply, their logs add", probabilities),
        ("turn the sign: a log-prob is never above 0", loss_like),
        ("no gradient reaches the logits: do not detach", frozen), 
        ("one number for each response, not one for the batch", one_number)],
    "first_token": [
        ("False entries behind the first True do not count", all_false),
        ("argmax of a row without True is 0: answer -1 there", argmax_only),
        ("a row without True is -1, not the row's length", row_length),
        ("that is the last response token", end),
        ("that is the last prompt token, one too early", before_it),
        ("one too late: positions count from 0", from_one),
        ("that counts False entries: pads behind, or a second question, are False too", count_prompt),
        ("one number for each row, not for each column", columns),
        ("that is True or False: say where", whether), ("", last_of_all)],
    "whiten_rows": [
        ("mean and std are of the whole batch: take them per row", whole_batch),
        ("divided by n - 1: the population std divides by n", unbiased),
        ("the mean is taken off, the scale is not: divide by the std", centred),
        ("that is divided by the variance: take its root", by_variance),
        ("the mean stays in: take it off", not_centred),
        ("the masked entries must be 0", rest_left),
        ("pads are in the mean and in the std", pads_in),
        ("0 / 0 where a row does not vary: add something small under the root", no_eps),
        ("that goes down the columns: the rows are dim 1", down)],
    "fixed_counted": [
        ("it still goes by the ids: where pad is eos, the end looks like padding", by_ids),
        ("the first token is counted: nothing stands before it", first_too),
        ("the last token of each row is missing, and it is the eos", no_end),
        ("one pad is counted: the last token stands at lengths - 1", one_pad),
        ("each row ends at its own length, not at the longest", longest),
        ("the pads are counted", everything),
        ("it ends at the first eos: a row may hold two turns", first_end),
        ("upside down: True is what the loss counts", where_pads_are), ("", all_but_pads)]}
