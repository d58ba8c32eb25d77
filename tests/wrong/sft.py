"Answers to the exercises of the chapter on supervised fine-tuning that learners might give, each wrong."
import torch
from torch.nn import functional as F
from rlhf_nb.base.batches import masked_mean_rows
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.tokens import Seqs, masked_mean, token_logprobs

def _places(ids): return torch.arange(1, ids.shape[1])[None]         # of the predicted tokens
def swapped(ids, n_prompt, n_real):
    return ids[:, 1:].masked_fill(_places(ids) >= n_prompt[:, None], -100)
def slipped(ids, n_prompt, n_real):
    place = torch.arange(ids.shape[1] - 1)
    keep = (place >= n_prompt[:, None]) & (place < n_real[:, None] - 1)
    return ids[:, 1:].masked_fill(~keep, -100)
def both_slipped(ids, n_prompt, n_real):
    place = torch.arange(ids.shape[1] - 1)
    keep = (place >= n_prompt[:, None]) & (place < n_real[:, None])
    return ids[:, 1:].masked_fill(~keep, -100)
def last_of_prompt(ids, n_prompt, n_real):
    keep = (_places(ids) >= n_prompt[:, None] - 1) & (_places(ids) < n_real[:, None])
    return torch.where(keep, ids[:, 1:], -100)
def no_end(ids, n_prompt, n_real):
    place = torch.arange(ids.shape[1] - 1)
    keep = (place >= n_prompt[:, None] - 1) & (place < n_real[:, None] - 2)
    return ids[:, 1:].masked_fill(~keep, -100)
def one_pad(ids, n_prompt, n_real):
    keep = (_places(ids) >= n_prompt[:, None]) & (_places(ids) <= n_real[:, None])
    return ids[:, 1:].masked_fill(~keep, -100)
def all_pads(ids, n_prompt, n_real):
    return ids[:, 1:].masked_fill(_places(ids) < n_prompt[:, None], -100)
def not_shifted(ids, n_prompt, n_real):
    keep = (_places(ids) >= n_prompt[:, None]) & (_places(ids) < n_real[:, None])
    return ids[:, :-1].masked_fill(~keep, -100)
def prompt_too(ids, n_prompt, n_real):
    return ids[:, 1:].masked_fill(_places(ids) >= n_real[:, None], -100)
def too_wide(ids, n_prompt, n_real):
    place = torch.arange(1, ids.shape[1] + 1)
    keep = (place >= n_prompt[:, None]) & (place < n_real[:, None])
    return ids.roll(-1, 1).masked_fill(~keep, -100)
def zeros(ids, n_prompt, n_real):
    keep = (_places(ids) >= n_prompt[:, None]) & (_places(ids) < n_real[:, None])
    return ids[:, 1:] * keep
def by_pad_id(ids, n_prompt, n_real):
    keep = (_places(ids) >= n_prompt[:, None]) & (ids[:, 1:] != 0)
    return ids[:, 1:].masked_fill(~keep, -100)

def by_rows(ids, n_prompt, n_real):
    out = torch.full((ids.shape[0], ids.shape[1] - 1), -100)
    for b in range(len(ids)):
        p, n = n_prompt[b].item(), n_real[b].item()
        for j in range(ids.shape[1] - 1):
            if p <= j + 1 < n: out[b, j] = ids[b, j + 1]
    return out
def cut_behind(ids, n_prompt, n_real):
    at = torch.arange(ids.shape[1]).expand_as(ids)
    full = torch.where((at >= n_prompt.unsqueeze(1)) & (at < n_real.unsqueeze(1)), ids, -100)
    return full[:, 1:]

# ---- sft_loss

def averaged(model, seqs):
    logp = logprobs(model, seqs)
    return -masked_mean(logp, seqs.response_mask), seqs.response_mask[:, 1:].sum()
def positive(model, seqs): return logprobs(model, seqs).sum(), seqs.response_mask[:, 1:].sum()
def whole_text(model, seqs):
    everything = Seqs(seqs.ids, seqs.attention_mask, seqs.attention_mask)
    return -logprobs(model, everything).sum(), seqs.attention_mask[:, 1:].sum()
def real_count(model, seqs): return -logprobs(model, seqs).sum(), seqs.attention_mask[:, 1:].sum()
def cells(model, seqs):
    logp = logprobs(model, seqs)[:, 1:]
    return -logp.sum(), torch.tensor(logp.numel())
def rows_count(model, seqs): return -logprobs(model, seqs).sum(), torch.tensor(seqs.ids.shape[0])
def first_counted(model, seqs): return -logprobs(model, seqs).sum(), seqs.response_mask.sum()
def row_means(model, seqs):
    logp, mask = logprobs(model, seqs), seqs.response_mask.clone()
    mask[:, 0] = False
    return -masked_mean_rows(logp, mask).sum(), mask.sum()
def same_place(model, seqs):
    logits = model(input_ids=seqs.ids, attention_mask=seqs.attention_mask.long()).logits
    nll = F.cross_entropy(logits.flatten(0, 1), seqs.ids.flatten(), reduction="none")
    return nll[seqs.response_mask.flatten()].sum(), seqs.response_mask[:, 1:].sum()
def as_number(model, seqs):
    with torch.no_grad(): total = -logprobs(model, seqs).sum()
    return total, seqs.response_mask[:, 1:].sum()
def turned(model, seqs): return seqs.response_mask[:, 1:].sum(), -logprobs(model, seqs).sum()
def loss_only(model, seqs): return -logprobs(model, seqs).sum()
def each_row(model, seqs): return -logprobs(model, seqs).sum(1), seqs.response_mask[:, 1:].sum(1)
def without_last(model, seqs):
    mask = seqs.response_mask & seqs.response_mask.roll(-1, 1)
    mask[:, -1] = False
    return -logprobs(model, Seqs(seqs.ids, seqs.attention_mask, mask)).sum(), mask[:, 1:].sum()
def one_less(model, seqs):
    n = seqs.response_mask.sum(-1) - 1
    return -logprobs(model, seqs).sum(), n.clamp(min=0).sum()

def looped(model, seqs):
    total, n = 0., 0
    for row, mask in zip(logprobs(model, seqs), seqs.response_mask):
        for i in range(1, len(row)):
            if mask[i]: total, n = total - row[i], n + 1
    return torch.as_tensor(total), torch.tensor(n)
def by_hand(model, seqs):
    logits = model(input_ids=seqs.ids, attention_mask=seqs.attention_mask.long()).logits
    logp = token_logprobs(logits, seqs.ids)
    keep = seqs.response_mask.clone()
    keep[:, 0] = False
    return -logp[keep].sum(), keep.sum()
def crossed(model, seqs):
    logits = model(input_ids=seqs.ids).logits[:, :-1].transpose(1, 2)
    y = seqs.ids.masked_fill(~seqs.response_mask, -100)[:, 1:]
    return F.cross_entropy(logits, y, reduction="sum"), (y != -100).sum()

# ---- filter_logits

def _parts(logits, s, t=True, k=True, p=True):
    x = logits.float()
    if s.temperature == 0: return torch.zeros_like(x).scatter(-1, x.argmax(-1)[:, None], 1).log()
    if t: x = x / s.temperature
    if k and s.top_k: x = by_threshold(x, s.top_k)
    if p and s.top_p < 1: x = by_sum(x, s.top_p)
    return torch.log_softmax(x, dim=-1)
def by_threshold(x, k):
    values = torch.topk(x, min(k, x.shape[-1]), dim=-1).values
    return torch.where(x < values[:, [-1]], -torch.inf, x)
def by_sum(x, p, keep=lambda before, prob, p: before < p):
    prob, at = torch.sort(torch.softmax(x, -1), dim=-1, descending=True)
    before = torch.cumsum(prob, -1) - prob
    rows = []
    for b in range(len(x)):
        row = torch.full_like(x[b], -torch.inf)
        kept = at[b][keep(before[b], prob[b], p)]
        row[kept] = x[b][kept]
        rows.append(row)
    return torch.stack(rows)

def multiplied(logits, s):
    if s.temperature == 0: return _parts(logits, s)
    x = logits.float() * s.temperature
    x = by_threshold(x, s.top_k) if s.top_k else x
    return (by_sum(x, s.top_p) if s.top_p < 1 else x).log_softmax(-1)
def no_temperature(logits, s): return _parts(logits, s, t=False)
def no_top_k(logits, s): return _parts(logits, s, k=False)
def no_top_p(logits, s): return _parts(logits, s, p=False)
def cooled_last(logits, s):
    if s.temperature == 0: return _parts(logits, s)
    x = logits.float()
    if s.top_k: x = by_threshold(x, s.top_k)
    if s.top_p < 1: x = by_sum(x, s.top_p)
    return (x / s.temperature).log_softmax(-1)
def nucleus_first(logits, s):
    if s.temperature == 0: return _parts(logits, s)
    x = logits.float() / s.temperature
    if s.top_p < 1: x = by_sum(x, s.top_p)
    if s.top_k: x = by_threshold(x, s.top_k)
    return x.log_softmax(-1)
def short_nucleus(logits, s):
    if s.temperature == 0: return _parts(logits, s)
    x = logits.float() / s.temperature
    if s.top_k: x = by_threshold(x, s.top_k)
    if s.top_p < 1: x = by_sum(x, s.top_p, lambda before, prob, p: before + prob < p)
    return x.log_softmax(-1)
def unsorted(logits, s):
    if s.temperature == 0: return _parts(logits, s)
    x = logits.float() / s.temperature
    if s.top_k: x = by_threshold(x, s.top_k)
    if s.top_p < 1:
        prob = x.softmax(-1).sort(-1, descending=True).values
        x = x.masked_fill(prob.cumsum(-1) - prob >= s.top_p, -torch.inf)
    return x.log_softmax(-1)
def strict(logits, s):
    if s.temperature == 0 or not 0 < s.top_k < logits.shape[1]: return _parts(logits, s)
    x = logits.float() / s.temperature
    x = by_threshold(x, s.top_k + 1)
    return (by_sum(x, s.top_p) if s.top_p < 1 else x).log_softmax(-1)
def raw(logits, s):
    if s.temperature == 0: return _parts(logits, s)
    x = logits.float() / s.temperature
    if s.top_k: x = by_threshold(x, s.top_k)
    return by_sum(x, s.top_p) if s.top_p < 1 else x
def probabilities(logits, s): return torch.exp(_parts(logits, s))
def divided_by_zero(logits, s):
    x = logits.float() / s.temperature
    if s.top_k: x = by_threshold(x, s.top_k)
    if s.top_p < 1: x = by_sum(x, s.top_p)
    return x.log_softmax(-1)
def soft_greedy(logits, s):
    return logits.float().log_softmax(-1) if s.temperature == 0 else _parts(logits, s)
def all_likeliest(logits, s):
    if s.temperature: return _parts(logits, s)
    return (logits.float() == logits.float().max(-1, keepdim=True).values).float().log()
def zero_logits(logits, s): return _parts(logits, s).nan_to_num(neginf=0.)
def always_k(logits, s):
    if s.temperature and not s.top_k: return torch.full_like(logits.float(), -torch.inf)
    return _parts(logits, s)
def first_rows(logits, s):
    out = _parts(logits, s)
    if s.temperature == 0: return out
    x = logits.float() / s.temperature
    return torch.where(out[0].isinf(), -torch.inf, x).log_softmax(-1)

def literal(logits, sampling):
    out = []
    for row in logits.double():
        if sampling.temperature == 0:
            new = torch.full_like(row, -torch.inf)
            new[row.argmax()] = 0.
            out.append(new)
            continue
        row = row / sampling.temperature
        order = sorted(range(len(row)), key=lambda i: -row[i].item())
        if sampling.top_k: order = order[:sampling.top_k]
        prob, total, kept = row[order].softmax(0), 0., []
        for i, p in zip(order, prob.tolist()):
            if total < sampling.top_p: kept.append(i)
            total += p
        new = torch.full_like(row, -torch.inf)
        new[kept] = row[kept] - row[kept].logsumexp(0)
        out.append(new)
    return torch.stack(out).to(torch.promote_types(logits.dtype, torch.float32))
def plain(logits, sampling): return _parts(logits.double(), sampling).to(
    torch.promote_types(logits.dtype, torch.float32))
def shifted_sum(logits, sampling):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature == 0:
        return F.one_hot(x.argmax(-1), x.shape[-1]).to(x.dtype).log()
    x = x / sampling.temperature
    if sampling.top_k: x = torch.where(
        x >= x.sort(-1, descending=True).values[:, [min(sampling.top_k, x.shape[1]) - 1]], x, -torch.inf)
    values, at = x.sort(-1, descending=True)
    before = F.pad(values.softmax(-1).cumsum(-1), (1, 0))[:, :-1]
    values = torch.where((before < sampling.top_p) | (sampling.top_p == 1), values, -torch.inf)
    return values.gather(1, at.argsort(1)).log_softmax(-1)

def nonzero(model, seqs):
    logp = logprobs(model, seqs)
    return -logp.sum(), logp.count_nonzero()

WRONG = {
    "fixed_labels": [
        ("it still learns the questions: kept and masked are swapped", swapped),
        ("label j is token j + 1: the first word of each answer is missing", slipped),
        ("label j belongs to token j + 1: compare j + 1, not j, with both borders", both_slipped),
        ("the last token of the prompt was given, it is no label", last_of_prompt),
        ("the end mark must be learned too", no_end),
        ("one pad is a label: the last token stands at n_real - 1", one_pad),
        ("pads are no labels", all_pads), ("no shift: label j is token j + 1; the borders fit, but the ids are not shifted", not_shifted),
        ("the prompt is learned too: mask it", prompt_too),
        ("nothing is predicted behind the last token: t - 1 labels", too_wide),
        ("masked labels are -100, not 0", zeros), ("", by_pad_id)],
    "sft_loss": [
        ("that is the mean: return the sum, and the number beside it", averaged),
        ("turn the sign: the loss is the negative log-likelihood", positive),
        ("the prompt is counted as well: only response tokens are", whole_text),
        ("the number is that of all real tokens: count the response", real_count),
        ("a token of probability 1 has log-prob 0, and it is counted: count the mask", nonzero),
        ("pads are in the number", cells),
        ("the number is that of the answers: count tokens", rows_count),
        ("nothing stands before the first token: it is not counted", first_counted),
        ("that is the mean of each answer, summed: all tokens weigh alike", row_means),
        ("no shift: a token's log-prob comes from the logits of the token before it", same_place),
        ("no gradient reaches the model", as_number),
        ("sum and number are the wrong way round", turned),
        ("only the sum comes back: return the number as well", loss_only),
        ("that is one loss per answer: sum over rows as well", each_row),
        ("the end mark is missing in the sum and in the number: eos, the last token of an answer, must be learned too", without_last),
        ("the number is one too small in each row: only the first column is not counted", one_less)],
    "filter_logits": [
        ("divide by the temperature, do not multiply", multiplied),
        ("the temperature is missing", no_temperature), ("top-k is missing", no_top_k),
        ("top-p is missing", no_top_p),
        ("temperature first, then the filters", cooled_last),
        ("top-k first, then top-p of what it left", nucleus_first),
        ("the token that crosses top-p is kept", short_nucleus),
        ("the mask is in sorted order: bring it back to the order of the tokens", unsorted),
        ("one token too many is left by top-k", strict),
        ("the probabilities no longer sum to 1: log_softmax at the end", raw),
        ("these are probabilities: return their logs", probabilities),
        ("temperature 0 divides by 0: it is greedy decoding", divided_by_zero),
        ("greedy returns log-probs: 0 for the likeliest, -inf for the rest", soft_greedy),
        ("greedy has one token: of two alike the first", all_likeliest),
        ("what is filtered out has log-prob -inf, not 0", zero_logits),
        ("top_k 0 keeps all", always_k), ("each row has its own cut", first_rows)]}

RIGHT = {
    "fixed_labels": [by_rows, cut_behind],
    "sft_loss": [looped, by_hand, crossed],
    "filter_logits": [literal, plain, shifted_sum]}
