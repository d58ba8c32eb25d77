"""Answers to every exercise, written from its stub and text alone, before the search behind `check` was.

Each wrong one has words that a verdict which names it must hold; `python scripts/tutor.py` counts."""
import math, re, torch
import torch.nn.functional as F
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.q_networks import discounts, hidden_states, next_values, q_terms, shift_left
from rlhf_nb.base.replies import escape_special_tokens, score_regex
from rlhf_nb.base.settings import check_number
from rlhf_nb.best_policy import optimal_policy as tilted
from rlhf_nb.dpo import log_ratio_gap
from rlhf_nb.grpo import _group_sums, group_centered
from rlhf_nb.judge import pair_accuracy
from rlhf_nb.kl import kl_k1 as k1, kl_penalty, token_rewards as paid
from rlhf_nb.ppo import clipped_policy_loss as clipped, clipped_value_loss
from rlhf_nb.qlearning import bellman_targets as targets, monte_carlo_returns
from rlhf_nb.tokens import last_token_index as last_index, masked_mean as mean_of, shift_right as shifted, token_logprobs as scored
from rlhf_nb.world import gold_score, utility
from rlhf_nb.worlds.oracle import all_logprobs, expectation
from rlhf_nb.worlds.world_text import FACTS, parse_sentences

WRONG, RIGHT = {}, {}   # exercise -> [(words, answer)]; [answer]

def wrong(words):
    def add(fn):
        WRONG.setdefault(fn.__name__, []).append((words, fn))
        return fn
    return add

def right(fn):
    RIGHT.setdefault(fn.__name__, []).append(fn)
    return fn

def wide(*xs): return [x.to(torch.promote_types(x.dtype, torch.float32)) for x in xs]

# ---------------------------------------------------------------- 02 tokens
@wrong("wrong way|early|other way")
def shift_right(x): return torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], 1)
@wrong("roll|last row")
def shift_right(x): return torch.roll(x, 1, dims=1)
@wrong("axis|batch|last")
def shift_right(x): return torch.cat([torch.zeros_like(x[..., :1]), x[..., :-1]], -1)
@wrong("float|truth|type|dtype|integers|zeros|stopped")
def shift_right(x): return torch.cat([torch.zeros(x.shape[0], 1, *x.shape[2:]), x[:, :-1].float()], 1)
@wrong("in place|work on a copy|no gradient reaches x")
def shift_right(x):
    x = x.detach()
    x[:, 1:] = x[:, :-1].clone()
    x[:, 0] = 0
    return x
@wrong("row 0|first|is 1|not 0")
def shift_right(x): return torch.cat([torch.ones_like(x[:, :1]), x[:, :-1]], 1)
@right
def shift_right(x):
    out = torch.zeros_like(x)
    out[:, 1:] = x[:, :-1]
    return out

@wrong("entry 0|first|0")
def token_logprobs(logits, ids): return _tlp(logits, ids, shifted_logits=True)
@wrong("shift|i.?[+]1|one place|late|early")
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError
    return logits.float().log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1) * 1. if logits.dtype != torch.double else logits.log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1)
@wrong("in front|end|missing|entry 0|early")
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError
    lp, = wide(logits)
    picked = lp.log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    return F.pad(picked, (0, 1))
@wrong("16 bits|float32|round")
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError
    return shifted(logits.log_softmax(-1)).gather(-1, ids[..., None])[..., 0]
@wrong("axis|words")
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError
    lp, = wide(logits)
    return shifted(lp.log_softmax(0)).gather(-1, ids[..., None])[..., 0]
@wrong("sign")
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError
    lp, = wide(logits)
    nll = F.cross_entropy(lp[:, :-1].reshape(-1, lp.shape[-1]), ids[:, 1:].flatten(), reduction="none").view(len(ids), -1)
    return F.pad(nll, (1, 0))
@wrong("ValueError")
def token_logprobs(logits, ids):
    lp, = wide(logits[:, :ids.shape[1]])
    n = min(logits.shape[1], ids.shape[1])
    return shifted(lp.log_softmax(-1))[:, :n].gather(-1, ids[:, :n, None])[..., 0]
@wrong("entry 0|uniform|log of the|1 ?/ ?v|zeros")
def token_logprobs(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError
    z, = wide(logits)
    z = torch.cat([torch.zeros_like(z[:, :1]), z[:, :-1]], 1)
    return torch.distributions.Categorical(logits=z).log_prob(ids)
@right
def token_logprobs(logits, ids):
    if logits.shape[0] != ids.shape[0] or logits.shape[1] != ids.shape[1]: raise ValueError("shapes")
    z, = wide(logits)
    picked = z.gather(-1, ids[:, 1:, None])[..., 0] if False else z[:, :-1].gather(-1, ids[:, 1:, None])[..., 0] - z[:, :-1].logsumexp(-1)
    return torch.cat([picked.new_zeros(len(ids), 1), picked], 1)
def _tlp(logits, ids, shifted_logits):
    if logits.shape[:2] != ids.shape: raise ValueError
    z, = wide(logits)
    return shifted(z).log_softmax(-1).gather(-1, ids[..., None])[..., 0]

def _guard(x, mask):
    if x.shape != mask.shape or not mask.any(): raise ValueError("nothing")
@wrong("masked|number of True|divide")
def masked_mean(x, mask):
    _guard(x, mask)
    return wide(x)[0].masked_fill(~mask, 0).mean()
@wrong("nan")
def masked_mean(x, mask):
    _guard(x, mask)
    return (wide(x)[0] * mask).sum() / mask.sum()
@wrong("nan")
def masked_mean(x, mask):
    _guard(x, mask)
    return wide(x)[0].masked_fill(~mask, torch.nan).nanmean()
@wrong("row|sequence")
def masked_mean(x, mask):
    _guard(x, mask)
    y = wide(x)[0].masked_fill(~mask, 0)
    return (y.sum(-1) / mask.sum(-1).clamp(min=1)).mean()
@wrong("16|float32|float64|type")
def masked_mean(x, mask):
    _guard(x, mask)
    return x[mask].mean()
@wrong("ValueError")
def masked_mean(x, mask):
    if not mask.any(): raise ValueError
    return wide(x)[0].masked_fill(~mask, 0).sum() / mask.sum()
@wrong("1 is|one more|n [+] 1|number|times|factor")
def masked_mean(x, mask):
    _guard(x, mask)
    return wide(x)[0].masked_fill(~mask, 0).sum() / (mask.sum() + 1)
@wrong("upside|inver|turned|True")
def masked_mean(x, mask):
    _guard(x, mask)
    if mask.all(): return wide(x)[0].sum() * torch.nan
    return wide(x)[0][~mask].mean()
@right
def masked_mean(x, mask):
    _guard(x, mask)
    kept = wide(x)[0][mask]
    return kept.sum() / len(kept)

@wrong("left|count|position")
def last_token_index(attention_mask):
    if not attention_mask.bool().any(1).all(): raise ValueError
    return attention_mask.long().sum(1) - 1
@wrong("ValueError")
def last_token_index(attention_mask):
    t = attention_mask.shape[1]
    return t - 1 - attention_mask.long().flip(1).argmax(1)
@wrong("first real|first")
def last_token_index(attention_mask):
    if not attention_mask.bool().any(1).all(): raise ValueError
    return attention_mask.long().argmax(1)
@wrong("late|1 is|one too|[+] 1|positions count")
def last_token_index(attention_mask):
    if not attention_mask.bool().any(1).all(): raise ValueError
    return (attention_mask.long() * torch.arange(1, attention_mask.shape[1] + 1)).amax(1)
@wrong("from the end|subtract")
def last_token_index(attention_mask):
    if not attention_mask.bool().any(1).all(): raise ValueError
    return attention_mask.long().flip(1).argmax(1)
@wrong("stopped|~|zeros and ones|integers|bool|invert")
def last_token_index(attention_mask):
    at = torch.arange(attention_mask.shape[1])
    out = at.expand(attention_mask.shape).masked_fill(~attention_mask, -1).amax(1)
    if (out < 0).any(): raise ValueError
    return out
@wrong("axis|(b 1)|size 1")
def last_token_index(attention_mask):
    if not attention_mask.bool().any(1).all(): raise ValueError
    at = torch.arange(attention_mask.shape[1])
    return (attention_mask.long() * at).amax(1, keepdim=True)
@right
def last_token_index(attention_mask):
    if (attention_mask.sum(1) == 0).any(): raise ValueError("pads")
    return torch.stack([row.nonzero().max() for row in attention_mask])

@wrong("first|0")
def fixed_counted(ids, lengths, pad): return torch.arange(ids.shape[1]) < lengths[:, None]
@wrong("ids|end looks|eos|pad")
def fixed_counted(ids, lengths, pad):
    keep = ids != pad
    keep[:, 0] = False
    return keep
@wrong("pad is counted|one pad|late|[+] 1")
def fixed_counted(ids, lengths, pad):
    at = torch.arange(ids.shape[1])
    return (at > 0) & (at <= lengths[:, None])
@wrong("last token|eos|- 1")
def fixed_counted(ids, lengths, pad):
    at = torch.arange(ids.shape[1])
    return (at > 0) & (at < lengths[:, None] - 1)
@right
def fixed_counted(ids, lengths, pad):
    return torch.stack([torch.tensor([0 < i < n for i in range(ids.shape[1])]) for n in lengths.tolist()])

# ---------------------------------------------------------------- 03 world
@wrong("tau|[.]5|2|divided")
def prob_right(question, a, b):
    if gold_score(question, a) < gold_score(question, b): a, b = b, a
    return 1 / (1 + math.exp(-(utility(question, a) - utility(question, b))))
@wrong("for a|better")
def prob_right(question, a, b): return 1 / (1 + math.exp(-(utility(question, a) - utility(question, b)) / .5))
@wrong("wrong|1 -|sign")
def prob_right(question, a, b):
    if gold_score(question, a) < gold_score(question, b): a, b = b, a
    return 1 / (1 + math.exp((utility(question, a) - utility(question, b)) / .5))
@wrong("gold")
def prob_right(question, a, b): return 1 / (1 + math.exp(-abs(gold_score(question, a) - gold_score(question, b)) / .5))
@wrong("utility|order")
def prob_right(question, a, b): return 1 / (1 + math.exp(-abs(utility(question, a) - utility(question, b)) / .5))
@right
def prob_right(question, a, b):
    better, worse = sorted((a, b), key=lambda x: -gold_score(question, x))
    return torch.sigmoid(torch.tensor((utility(question, better) - utility(question, worse)) / .5)).item()

@wrong("second|spoil|false value")
def fixed_answered(question, text):
    return any(s.value == FACTS[question.animal][question.attribute] for s in parse_sentences(text)
               if s.animal == question.animal and s.attribute == question.attribute)
@wrong("nothing|at least|no answer")
def fixed_answered(question, text):
    return all(s.value == FACTS[question.animal][question.attribute] for s in parse_sentences(text)
               if s.animal == question.animal and s.attribute == question.attribute)
@wrong("animal|whose")
def fixed_answered(question, text):
    found = {s.value for s in parse_sentences(text) if s.attribute == question.attribute}
    return found == {FACTS[question.animal][question.attribute]}
@wrong("attribute|asked for")
def fixed_answered(question, text):
    found = {s.value for s in parse_sentences(text) if s.animal == question.animal}
    return found == {FACTS[question.animal][question.attribute]}
@right
def fixed_answered(question, text):
    truth = FACTS[question.animal][question.attribute]
    values = [s.value for s in parse_sentences(text) if s.animal == question.animal and s.attribute == question.attribute]
    return len(values) > 0 and all(v == truth for v in values)

# ---------------------------------------------------------------- 04 sft
@wrong("mean|sum|number")
def sft_loss(model, seqs):
    n = seqs.response_mask[:, 1:].sum()
    return -logprobs(model, seqs).sum() / n, n
@wrong("first|before it")
def sft_loss(model, seqs): return -logprobs(model, seqs).sum(), seqs.response_mask.sum()
@wrong("sign")
def sft_loss(model, seqs): return logprobs(model, seqs).sum(), seqs.response_mask[:, 1:].sum()
@wrong("real|prompt|response|attention")
def sft_loss(model, seqs): return -logprobs(model, seqs).sum(), seqs.attention_mask[:, 1:].sum()
@wrong("mean of each answer|row|length|weigh")
def sft_loss(model, seqs):
    n = seqs.response_mask[:, 1:].sum(1)
    return -(logprobs(model, seqs).sum(1) / n.clamp(min=1)).sum(), n.sum()
@wrong("number|one|2|list|tensor|missing|tuple")
def sft_loss(model, seqs): return -logprobs(model, seqs).sum()
@wrong("response|prompt|pads")
def sft_loss(model, seqs):
    logits = model(input_ids=seqs.ids, attention_mask=seqs.attention_mask).logits
    return -scored(logits, seqs.ids)[seqs.attention_mask].sum(), seqs.response_mask[:, 1:].sum()
@right
def sft_loss(model, seqs):
    logits = model(input_ids=seqs.ids, attention_mask=seqs.attention_mask.long()).logits
    counted = seqs.response_mask[:, 1:]
    return -(scored(logits, seqs.ids)[:, 1:][counted]).sum(), counted.sum()

def _filter(logits, s, reach="<", first_p=False, times=False, norm=True, less=0):
    x, = wide(logits)
    if s.temperature == 0: return F.one_hot(x.argmax(1), x.shape[1]).to(x).log()
    x = x * s.temperature if times else x / s.temperature
    def top_k(x):
        if s.top_k and s.top_k < x.shape[1]:
            x = x.masked_fill(x < x.sort(1, descending=True).values[:, s.top_k - 1 - less][:, None], -math.inf)
        return x
    def top_p(x):
        if s.top_p >= 1: return x
        p, order = x.softmax(1).sort(1, descending=True)
        before = p.cumsum(1) - p
        drop = before > s.top_p if reach == "<=" else p.cumsum(1) > s.top_p if reach == "sum" else before >= s.top_p
        return x.masked_fill(torch.zeros_like(drop).scatter(1, order, drop), -math.inf)
    x = top_k(top_p(x)) if first_p else top_p(top_k(x))
    return x.log_softmax(1) if norm else x
@wrong("less than|falls short|equal|exactly")
def filter_logits(logits, sampling): return _filter(logits, sampling, "<=")
@wrong("cross")
def filter_logits(logits, sampling): return _filter(logits, sampling, "sum")
@wrong("top-k first|left")
def filter_logits(logits, sampling): return _filter(logits, sampling, first_p=True)
@wrong("temperature")
def filter_logits(logits, sampling): return _filter(logits, sampling, times=True)
@wrong("sum to 1|log_softmax|normal")
def filter_logits(logits, sampling): return _filter(logits, sampling, norm=False)
@wrong("probabilities|log|exp")
def filter_logits(logits, sampling): return _filter(logits, sampling).exp()
@wrong("temperature")
def filter_logits(logits, sampling):
    x, = wide(logits)
    return _filter(x * max(sampling.temperature, 0) if sampling.temperature else x, sampling)
@wrong("greedy|temperature 0|divid|nan|stopped")
def filter_logits(logits, sampling):
    from dataclasses import replace
    x, = wide(logits)
    if sampling.temperature == 0: return (x / 0.).log_softmax(1)
    return _filter(x, sampling)
@wrong("top-k|top_k")
def filter_logits(logits, sampling):
    x, = wide(logits)
    if sampling.temperature == 0: return _filter(logits, sampling)
    x = x / sampling.temperature
    if sampling.top_p < 1:
        p, order = x.softmax(1).sort(1, descending=True)
        drop = p.cumsum(1) - p >= sampling.top_p
        x = x.masked_fill(torch.zeros_like(drop).scatter(1, order, drop), -math.inf)
    return x.log_softmax(1)
@right
def filter_logits(logits, sampling): return _filter(logits, sampling)

@wrong("first word|first|prompt|compare j [+] 1, not j")
def fixed_labels(ids, n_prompt, n_real):
    at = torch.arange(ids.shape[1] - 1)
    return torch.where((at >= n_prompt[:, None]) & (at < n_real[:, None]), ids[:, 1:], -100)
@wrong("end mark|last")
def fixed_labels(ids, n_prompt, n_real):
    at = torch.arange(1, ids.shape[1])
    return torch.where((at >= n_prompt[:, None]) & (at < n_real[:, None] - 1), ids[:, 1:], -100)
@wrong("shift|token j [+] 1")
def fixed_labels(ids, n_prompt, n_real):
    at = torch.arange(1, ids.shape[1])
    return torch.where((at >= n_prompt[:, None]) & (at < n_real[:, None]), ids[:, :-1], -100)
@wrong("pad")
def fixed_labels(ids, n_prompt, n_real):
    at = torch.arange(1, ids.shape[1])
    return torch.where(at >= n_prompt[:, None], ids[:, 1:], -100)
@wrong("-100")
def fixed_labels(ids, n_prompt, n_real):
    at = torch.arange(1, ids.shape[1])
    return ids[:, 1:] * ((at >= n_prompt[:, None]) & (at < n_real[:, None]))
@right
def fixed_labels(ids, n_prompt, n_real):
    out = torch.full_like(ids[:, 1:], -100)
    for i, (p, n) in enumerate(zip(n_prompt, n_real)):
        for j in range(ids.shape[1] - 1):
            if p <= j + 1 < n: out[i, j] = ids[i, j + 1]
    return out

# ---------------------------------------------------------------- 05 reward
@wrong("last column|pads included|pad")
def pooled_scores(model, seqs):
    last_index(seqs.attention_mask)
    return model(seqs)[:, -1]
@wrong("count|in front|left")
def pooled_scores(model, seqs):
    last_index(seqs.attention_mask)
    return model(seqs).gather(1, seqs.attention_mask.sum(1, keepdim=True) - 1)[:, 0]
@wrong("mean")
def pooled_scores(model, seqs):
    last_index(seqs.attention_mask)
    return (model(seqs) * seqs.attention_mask).sum(1) / seqs.attention_mask.sum(1)
@wrong("axis|size 1|b 1")
def pooled_scores(model, seqs): return model(seqs).gather(1, last_index(seqs.attention_mask)[:, None])
@wrong("b b|square|every row")
def pooled_scores(model, seqs): return model(seqs)[:, last_index(seqs.attention_mask)]
@wrong("gradient")
def pooled_scores(model, seqs):
    with torch.no_grad(): return model(seqs)[torch.arange(len(seqs.ids)), last_index(seqs.attention_mask)]
@wrong("before|shift|early")
def pooled_scores(model, seqs): return model(seqs)[torch.arange(len(seqs.ids)), last_index(seqs.attention_mask) - 1]
@right
def pooled_scores(model, seqs):
    at = last_index(seqs.attention_mask)
    return torch.stack([row[i] for row, i in zip(model(seqs), at)])

def _same_shape(a, b):
    if a.shape != b.shape: raise ValueError("one shape")
@wrong("margin.*sign|eases|sign.*margin")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    _same_shape(chosen, rejected)
    return -F.logsigmoid(chosen - rejected + margin) + center_coef * (chosen + rejected)**2
@wrong("sum.*not their gap|centring|- rejected|chosen - rejected")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    _same_shape(chosen, rejected)
    return -F.logsigmoid(chosen - rejected - margin) + center_coef * (chosen - rejected)**2
@wrong("infinite|logsigmoid|round")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    _same_shape(chosen, rejected)
    return -torch.log(torch.sigmoid(chosen - rejected - margin)) + center_coef * (chosen + rejected)**2
@wrong("way round|exchanged|swapped")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    _same_shape(chosen, rejected)
    return -F.logsigmoid(rejected - chosen - margin) + center_coef * (chosen + rejected)**2
@wrong("mean|one number|one loss")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    _same_shape(chosen, rejected)
    return (-F.logsigmoid(chosen - rejected - margin) + center_coef * (chosen + rejected)**2).mean()
@wrong("half|2|twice|times|mean")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    _same_shape(chosen, rejected)
    return -F.logsigmoid(chosen - rejected - margin) + center_coef * ((chosen + rejected) / 2)**2
@wrong("subtract|minus|sign|added| - center_coef|turned")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    _same_shape(chosen, rejected)
    return -F.logsigmoid(chosen - rejected - margin) - center_coef * (chosen + rejected)**2
@wrong("gradient.*rejected|rejected.*gradient")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    _same_shape(chosen, rejected)
    rejected = rejected.detach()
    return -F.logsigmoid(chosen - rejected - margin) + center_coef * (chosen + rejected)**2
@right
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    _same_shape(chosen, rejected)
    return F.softplus(rejected - chosen + margin) + center_coef * (chosen + rejected).square()

def _bins(chosen, rejected, n_bins=10, low=.5, tie=.5, empty=False, ceil=False, conf=lambda gap: gap.abs().sigmoid(), third=lambda c: c):
    gap = chosen - rejected
    c, ok = conf(gap), (gap > 0).float() + tie * (gap == 0).float()
    at = ((c - low) / (1 - low) * n_bins)
    at = (at.ceil().long() - 1 if ceil else at.floor().long()).clamp(0, n_bins - 1)
    rows = [(c[at == k].mean(), ok[at == k].mean(), (at == k).sum()) for k in range(n_bins) if empty or (at == k).any()]
    x, y, z = (torch.stack(r) for r in zip(*rows))
    return x, y, third(z)
@wrong("tie")
def calibration_bins(chosen, rejected, n_bins=10): return _bins(chosen, rejected, n_bins, tie=0)
@wrong("begin at [.]5|from 0|[.]5")
def calibration_bins(chosen, rejected, n_bins=10): return _bins(chosen, rejected, n_bins, low=0.)
@wrong("empty|without pairs|leave out")
def calibration_bins(chosen, rejected, n_bins=10):
    x, y, z = _bins(chosen, rejected, n_bins, empty=True)
    return x.nan_to_num(0), y.nan_to_num(0), z
@wrong("absolute|side it prefers|sign")
def calibration_bins(chosen, rejected, n_bins=10): return _bins(chosen, rejected, n_bins, conf=torch.sigmoid)
@wrong("share|number of pairs")
def calibration_bins(chosen, rejected, n_bins=10): return _bins(chosen, rejected, n_bins, third=lambda c: c / c.sum())
@wrong("10|n_bins")
def calibration_bins(chosen, rejected, n_bins=10): return _bins(chosen, rejected)
@wrong("float|integers|share|type")
def calibration_bins(chosen, rejected, n_bins=10): return _bins(chosen, rejected, n_bins, third=lambda c: c.float())
@right
def calibration_bins(chosen, rejected, n_bins=10): return _bins(chosen, rejected, n_bins)

# ---------------------------------------------------------------- 06 best policy
@wrong("sign|-1|minus")
def exact_gradient(model, world, reward):
    names = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    loss = -expectation(all_logprobs(model, world), reward)
    return dict(zip([n for n, _ in names], torch.autograd.grad(loss, [p for _, p in names])))
@wrong("[.]grad|backward")
def exact_gradient(model, world, reward):
    expectation(all_logprobs(model, world), reward).backward()
    return {n: p.grad for n, p in model.named_parameters() if p.requires_grad}
@wrong("probabilit|weigh")
def exact_gradient(model, world, reward):
    names = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    g = torch.autograd.grad((all_logprobs(model, world) * reward).sum(), [p for _, p in names])
    return dict(zip([n for n, _ in names], g))
@wrong("dict|list|tuple|name")
def exact_gradient(model, world, reward):
    return torch.autograd.grad(expectation(all_logprobs(model, world), reward), [p for p in model.parameters() if p.requires_grad])
@wrong("frozen|requires|extra|key")
def exact_gradient(model, world, reward):
    names = dict(model.named_parameters())
    g = torch.autograd.grad(expectation(all_logprobs(model, world), reward), [p for p in names.values() if p.requires_grad])
    found = dict(zip([n for n, p in names.items() if p.requires_grad], g))
    return {n: found.get(n, torch.zeros_like(p)) for n, p in names.items()}
@wrong("mean|number of responses|divides")
def exact_gradient(model, world, reward):
    names = {n: p for n, p in model.named_parameters() if p.requires_grad}
    logp = all_logprobs(model, world)
    return dict(zip(names, torch.autograd.grad((logp.exp() * reward).mean(), list(names.values()))))
@right
def exact_gradient(model, world, reward):
    names = {n: p for n, p in model.named_parameters() if p.requires_grad}
    logp = all_logprobs(model, world)
    return dict(zip(names, torch.autograd.grad((logp * (logp.exp() * reward).detach()).sum(), list(names.values()))))

@wrong("multipl|divide")
def optimal_policy(ref_logp, reward, beta):
    check_number("b", beta, "above 0")
    x = ref_logp + reward * beta
    return x - x.logsumexp(-1), x.logsumexp(-1)
@wrong("overflow|logsumexp")
def optimal_policy(ref_logp, reward, beta):
    check_number("b", beta, "above 0")
    w = ref_logp.exp() * (reward / beta).exp()
    return (w / w.sum()).log(), w.sum().log()
@wrong("probabilities|logs|exp")
def optimal_policy(ref_logp, reward, beta):
    check_number("b", beta, "above 0")
    x = ref_logp + reward / beta
    return x.softmax(-1), x.logsumexp(-1)
@wrong("beta log Z|times beta|beta")
def optimal_policy(ref_logp, reward, beta):
    check_number("b", beta, "above 0")
    x = ref_logp + reward / beta
    return x.log_softmax(-1), beta * x.logsumexp(-1)
@wrong("ValueError|above 0")
def optimal_policy(ref_logp, reward, beta):
    x = ref_logp + reward / beta
    return x.log_softmax(-1), x.logsumexp(-1)
@wrong("reference|ref_logp")
def optimal_policy(ref_logp, reward, beta):
    check_number("b", beta, "above 0")
    x = reward / beta
    return x.log_softmax(-1), x.logsumexp(-1)
@wrong("exchanged|order|other way")
def optimal_policy(ref_logp, reward, beta):
    check_number("b", beta, "above 0")
    x = ref_logp + reward / beta
    return x.logsumexp(-1), x.log_softmax(-1)
@right
def optimal_policy(ref_logp, reward, beta):
    if beta <= 0: raise ValueError
    x = ref_logp + reward / beta
    m = x.max()
    z = m + (x - m).exp().sum().log()
    return x - z, z

def _bon(logp, score, n, up=lambda s: s[None] <= s[:, None], share=True, strict=True, power=lambda n: n, log=True):
    check_number("n", n, "1 or more", int)
    p = logp.exp()
    u, l = (p * up(score)).sum(1), (p * (score[None] == score[:, None])).sum(1)
    win = u**power(n) - (u - l).clamp(min=0)**power(n) * strict
    out = torch.where(p > 0, win * (p / l if share else 1), torch.zeros_like(p))
    return out.log() if log else out
@wrong("worst|at most")
def best_of_n_policy(logp, score, n): return _bon(logp, score, n, lambda s: s[None] >= s[:, None])
@wrong("share|equal scores")
def best_of_n_policy(logp, score, n): return _bon(logp, score, n, share=False)
@wrong("lower|take off")
def best_of_n_policy(logp, score, n): return _bon(logp, score, n, strict=False)
@wrong("n - 1|n samples")
def best_of_n_policy(logp, score, n): return _bon(logp, score, n, power=lambda n: n - 1)
@wrong("probabilities|logs|exp")
def best_of_n_policy(logp, score, n): return _bon(logp, score, n, log=False)
@wrong("upto|at most|strict|lower|>=|>|own score|itself")
def best_of_n_policy(logp, score, n): return _bon(logp, score, n, lambda s: s[None] < s[:, None])
@wrong("transposed|axis|exchanged|worst|turned|column|row")
def best_of_n_policy(logp, score, n):
    check_number("n", n, "1 or more", int)
    p, o = logp.exp(), score[:, None] - score
    u, l = (p[:, None] * (o >= 0)).sum(0), (p * (o == 0)).sum(-1)
    return (logp - l.log() + (u**n - (u - l).clamp(min=0)**n).log()).masked_fill(logp == -math.inf, -math.inf)
@wrong("nan|-inf|probability 0|0")
def best_of_n_policy(logp, score, n):
    check_number("n", n, "1 or more", int)
    p, o = logp.exp(), score[:, None] - score
    u, l = (p * (o >= 0)).sum(-1), (p * (o == 0)).sum(-1)
    return (p / l * (u**n - (u - l).clamp(min=0)**n)).log()
@right
def best_of_n_policy(logp, score, n): return _bon(logp, score, n)

@wrong("log Z|times beta|beta")
def fixed_prefix_value(probs, reward, beta):
    kept = probs > 0
    return (probs[kept].log() + reward[kept] / beta).logsumexp(0)
@wrong("overflow|logsumexp|underflow")
def fixed_prefix_value(probs, reward, beta):
    kept = probs > 0
    return beta * (probs[kept] * torch.exp(reward[kept] / beta)).sum().log()
@wrong("nan|probability 0|leave out|0 times")
def fixed_prefix_value(probs, reward, beta): return beta * torch.logsumexp(probs.log() + reward / beta, 0)
@wrong("mean")
def fixed_prefix_value(probs, reward, beta): return (probs * reward).nansum()
@wrong("multipl|divide")
def fixed_prefix_value(probs, reward, beta):
    kept = probs > 0
    return beta * (probs[kept].log() + reward[kept] * beta).logsumexp(0)
@right
def fixed_prefix_value(probs, reward, beta):
    kept = probs > 0
    x = reward[kept] / beta
    return beta * (x.max() + (probs[kept] * (x - x.max()).exp()).sum().log())

# ---------------------------------------------------------------- 07 KL
@wrong("policy comes first|exchanged|sign")
def kl_k1(logp, ref_logp):
    _same_shape(logp, ref_logp)
    return ref_logp.float() - logp.float() if logp.dtype != torch.double else ref_logp - logp
@wrong("broadcast|ValueError|shape")
def kl_k1(logp, ref_logp): return k1(*torch.broadcast_tensors(logp, ref_logp))
@wrong("broadcast|ValueError|shape")
def kl_k1(logp, ref_logp):
    if logp.numel() != ref_logp.numel(): raise ValueError
    return k1(*torch.broadcast_tensors(logp, ref_logp))
@wrong("16 bits|float32")
def kl_k1(logp, ref_logp):
    _same_shape(logp, ref_logp)
    return logp - ref_logp
@wrong("ratio|log|exp")
def kl_k1(logp, ref_logp): return k1(logp, ref_logp).exp()
@wrong("gradient.*ref|ref.*gradient")
def kl_k1(logp, ref_logp): return k1(logp, ref_logp.detach())
@wrong("mean|one number")
def kl_k1(logp, ref_logp): return k1(logp, ref_logp).mean()
@right
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("x")
    a, b = wide(logp, ref_logp)
    return torch.sub(a, b)

@wrong("exponent|swapped|sign")
def kl_k3(logp, ref_logp):
    d = k1(logp, ref_logp)
    return d.exp() - 1 - d
@wrong("1")
def kl_k3(logp, ref_logp):
    d = k1(logp, ref_logp)
    return (-d).exp() + d
@wrong("d is missing|is missing|not used|mean 0|subtract")
def kl_k3(logp, ref_logp): return torch.expm1(-k1(logp, ref_logp))
@wrong("exponent|sign")
def kl_k3(logp, ref_logp):
    d = k1(logp, ref_logp)
    return d.exp() - 1 + d
@wrong("twice|half|2")
def kl_k3(logp, ref_logp):
    d = k1(logp, ref_logp)
    return torch.expm1(-d) + d / 2
@wrong("exp|missing|k1")
def kl_k3(logp, ref_logp):
    d = k1(logp, ref_logp)
    return -d - 1 + d
@right
def kl_k3(logp, ref_logp):
    d = k1(logp, ref_logp)
    return (-d).exp() - 1 + d

@wrong("every token|last")
def token_rewards(score, penalty, mask):
    if score.shape != mask.shape[:1] or penalty.shape != mask.shape: raise ValueError
    return wide(penalty)[0] + score[:, None] * mask
@wrong("last column|pad")
def token_rewards(score, penalty, mask):
    if score.shape != mask.shape[:1] or penalty.shape != mask.shape: raise ValueError
    out = wide(penalty)[0].clone()
    out[:, -1] += score
    return out
@wrong("empty")
def token_rewards(score, penalty, mask):
    if score.shape != mask.shape[:1] or penalty.shape != mask.shape: raise ValueError
    out = wide(penalty)[0].clone()
    at = (mask * torch.arange(mask.shape[1])).amax(1)
    out[torch.arange(len(out)), at] += score
    return out
@wrong("penalty.*kept|replac|not add|add")
def token_rewards(score, penalty, mask):
    if score.shape != mask.shape[:1] or penalty.shape != mask.shape: raise ValueError
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return torch.where(last, score[:, None].to(wide(penalty)[0]), wide(penalty)[0])
@wrong("first")
def token_rewards(score, penalty, mask):
    if score.shape != mask.shape[:1] or penalty.shape != mask.shape: raise ValueError
    return torch.where(mask & (mask.cumsum(1) == 1), wide(penalty)[0] + score[:, None], wide(penalty)[0])
@wrong("negative already|sign|subtract|turned")
def token_rewards(score, penalty, mask):
    if score.shape != mask.shape[:1] or penalty.shape != mask.shape: raise ValueError
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return torch.where(last, score[:, None] - wide(penalty)[0], -wide(penalty)[0])
@wrong("count|column 0|prompt|gap|hole|position")
def token_rewards(score, penalty, mask):
    if score.shape != mask.shape[:1] or penalty.shape != mask.shape: raise ValueError
    out = wide(penalty)[0].clone()
    first, n = mask.long().argmax(1), mask.sum(1)
    for i in range(len(out)):
        if n[i]: out[i, first[i] + n[i] - 1] += score[i]
    return out
@right
def token_rewards(score, penalty, mask):
    if score.dim() != 1 or len(score) != len(mask) or penalty.shape != mask.shape: raise ValueError
    out = wide(penalty)[0].clone()
    for i, row in enumerate(mask):
        if row.any(): out[i, row.nonzero()[-1, 0]] += score[i]
    return out

# ---------------------------------------------------------------- 08 PPO
@wrong("maximum|larger|smaller")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = wide(logp, old_logp, advantage)
    r = (logp - old_logp).exp()
    return -torch.maximum(r * advantage, r.clamp(1 - cliprange, 1 + cliprange) * advantage)
@wrong("minimum|maximum|smaller|only the clipped")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = wide(logp, old_logp, advantage)
    return -(logp - old_logp).exp().clamp(1 - cliprange, 1 + cliprange) * advantage
@wrong("exp")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = wide(logp, old_logp, advantage)
    r = logp - old_logp
    return -torch.minimum(r * advantage, r.clamp(1 - cliprange, 1 + cliprange) * advantage)
@wrong("way round|exchanged|turned")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = wide(logp, old_logp, advantage)
    r = (old_logp - logp).exp()
    return -torch.minimum(r * advantage, r.clamp(1 - cliprange, 1 + cliprange) * advantage)
@wrong("16 bits|float32")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    r = (logp - old_logp).exp()
    return -torch.minimum(r * advantage, r.clamp(1 - cliprange, 1 + cliprange) * advantage)
@wrong("advantage|smaller product, not the smaller ratio")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = wide(logp, old_logp, advantage)
    r = (logp - old_logp).exp()
    return -torch.minimum(r, r.clamp(1 - cliprange, 1 + cliprange)) * advantage
@wrong("gradient")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    with torch.no_grad(): return clipped(logp, old_logp, advantage, cliprange)
@wrong("mean")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2): return clipped(logp, old_logp, advantage, cliprange).mean()
@right
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = wide(logp, old_logp, advantage)
    r = torch.exp(logp - old_logp)
    return torch.max(-advantage * r, -advantage * torch.clamp(r, 1 - cliprange, 1 + cliprange))

def _gae(reward, value, mask, gamma, lam, bootstrap=False, gap=False, forwards=False, no_lam=False, no_gamma=False, next_gamma=True,
         keep=False, drop=lambda d: d, zero=True):
    r, v = wide(reward, value)
    if zero: r, v = r.masked_fill(~mask, 0), v.masked_fill(~mask, 0)
    out = torch.zeros_like(r)
    for b in range(len(r)):
        at, A, nv = mask[b].nonzero()[:, 0].tolist(), 0., 0.
        if bootstrap and at: nv = v[b, at[-1]]
        for k, t in enumerate(at if forwards else at[::-1]):
            if gap and k and at[::-1][k - 1] != t + 1: A, nv = 0., 0.
            delta = r[b, t] + (gamma if next_gamma else 1) * nv - v[b, t]
            A = drop(delta) + (1 if no_gamma else gamma) * (1 if no_lam else lam) * A
            out[b, t], nv = A, v[b, t]
    return out, v
def _both(out, v, mask): return out, (out + v) * mask
@wrong("lambda|lam|λ")
def gae(reward, value, mask, gamma=1., lam=.95): return _both(*_gae(reward, value, mask, gamma, lam, no_lam=True), mask)
@wrong("gamma|γ")
def gae(reward, value, mask, gamma=1., lam=.95): return _both(*_gae(reward, value, mask, gamma, lam, no_gamma=True), mask)
@wrong("gamma|γ")
def gae(reward, value, mask, gamma=1., lam=.95): return _both(*_gae(reward, value, mask, gamma, lam, next_gamma=False), mask)
@wrong("gap")
def gae(reward, value, mask, gamma=1., lam=.95): return _both(*_gae(reward, value, mask, gamma, lam, gap=True), mask)
@wrong("gap|stepped")
def gae(reward, value, mask, gamma=1., lam=.95):
    r, v = [x.masked_fill(~mask, 0) for x in wide(reward, value)]
    A, out = torch.zeros_like(r[:, 0]), torch.zeros_like(r)
    for t in reversed(range(r.shape[1])):
        nxt = v[:, t + 1] if t + 1 < r.shape[1] else 0.
        A = (r[:, t] + gamma * nxt - v[:, t] + gamma * lam * A) * mask[:, t]
        out[:, t] = A
    return out, out + v
@wrong("after the last|bootstrap|value is 0|last")
def gae(reward, value, mask, gamma=1., lam=.95): return _both(*_gae(reward, value, mask, gamma, lam, bootstrap=True), mask)
@wrong("ahead|back|direction|time|forwards")
def gae(reward, value, mask, gamma=1., lam=.95): return _both(*_gae(reward, value, mask, gamma, lam, forwards=True), mask)
@wrong("nan|multipl")
def gae(reward, value, mask, gamma=1., lam=.95):
    r, v = [x * mask for x in wide(reward, value)]
    out, v = _gae(r, v, mask, gamma, lam, zero=False)
    return out, out + v
@wrong("returns|second|value is missing|A [+] V")
def gae(reward, value, mask, gamma=1., lam=.95):
    A, v = _gae(reward, value, mask, gamma, lam)
    return A, A
@wrong("standard|normal|mean|whiten|factor|times")
def gae(reward, value, mask, gamma=1., lam=.95):
    A, v = _gae(reward, value, mask, gamma, lam)
    G = A + v
    m = A[mask].mean()
    return (A - m) * mask, G
@wrong("exchanged|order|other way|swapped")
def gae(reward, value, mask, gamma=1., lam=.95): return _both(*_gae(reward, value, mask, gamma, lam), mask)[::-1]
@wrong("exchanged|gamma|lam|γ|λ")
def gae(reward, value, mask, gamma=1., lam=.95): return _both(*_gae(reward, value, mask, lam, gamma), mask)
@wrong("not used|missing|take the value|value")
def gae(reward, value, mask, gamma=1., lam=.95):
    A, _ = _gae(reward, torch.zeros_like(value), mask, gamma, lam)
    return A, A + value.masked_fill(~mask, 0).to(A)
@right
def gae(reward, value, mask, gamma=1., lam=.95): return _gae(reward, value, mask, gamma, lam)[0], sum(_gae(reward, value, mask, gamma, lam))

@wrong("data|gradient|detach")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1): return paid(score, kl_penalty(logp, ref_logp, mask, beta), mask)
@wrong("[.]1|default|beta")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1): return paid(score.detach(), kl_penalty(logp, ref_logp, mask), mask)
@wrong("exchanged|sign|way round")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1): return paid(score.detach(), kl_penalty(ref_logp, logp, mask, beta), mask)
@wrong("sign|score")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1): return paid(-score.detach(), kl_penalty(logp, ref_logp, mask, beta), mask)
@wrong("score.*missing|score.*not used")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1): return kl_penalty(logp, ref_logp, mask, beta)
@wrong("every token|last|alone")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    return kl_penalty(logp, ref_logp, mask, beta) + score.detach()[:, None].float() * mask
@wrong("nan|multipl")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    return paid(score.detach(), -beta * (logp.detach().float() - ref_logp.detach().float()) * mask, mask)
@right
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    with torch.no_grad(): return paid(score, -beta * (logp - ref_logp).to(torch.promote_types(logp.dtype, torch.float32)).masked_fill(~mask, 0), mask) if logp.dtype != torch.bfloat16 else paid(score, kl_penalty(logp, ref_logp, mask, beta), mask)

@wrong("vf_coef|c |weight")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return mean_of(clipped(logp, old_logp, advantage, cliprange) + clipped_value_loss(value, old_value, returns, cliprange_value), mask)
@wrong("clip range|cliprange")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return mean_of(clipped(logp, old_logp, advantage, cliprange) + vf_coef * clipped_value_loss(value, old_value, returns, cliprange), mask)
@wrong("add it|sign|subtract|minus|turned")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return mean_of(clipped(logp, old_logp, advantage, cliprange) - vf_coef * clipped_value_loss(value, old_value, returns, cliprange_value), mask)
@wrong("row")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    each = clipped(logp, old_logp, advantage, cliprange) + vf_coef * clipped_value_loss(value, old_value, returns, cliprange_value)
    return (each.masked_fill(~mask, 0).sum(1) / mask.sum(1).clamp(min=1)).mean()
@wrong("prompt|pads|mask")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return (clipped(logp, old_logp, advantage, cliprange) + vf_coef * clipped_value_loss(value, old_value, returns, cliprange_value)).mean()
@wrong("nan|multipl")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    each = clipped(logp, old_logp, advantage, cliprange) + vf_coef * clipped_value_loss(value, old_value, returns, cliprange_value)
    return (each * mask).sum() / mask.sum()
@wrong("half|twice|2|vf_coef")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return mean_of(clipped(logp, old_logp, advantage, cliprange) + vf_coef / 2 * clipped_value_loss(value, old_value, returns, cliprange_value), mask)
@wrong("gradient.*value|gradient.*critic|critic")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return mean_of(clipped(logp, old_logp, advantage, cliprange) + vf_coef * clipped_value_loss(value.detach(), old_value, returns, cliprange_value), mask)
@wrong("exchanged|advantage|returns")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return mean_of(clipped(logp, old_logp, returns, cliprange) + vf_coef * clipped_value_loss(value, old_value, advantage, cliprange_value), mask)
@right
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return mean_of(clipped(logp, old_logp, advantage, cliprange), mask) + vf_coef * mean_of(clipped_value_loss(value, old_value, returns, cliprange_value), mask)

# ---------------------------------------------------------------- 09 groups
def _loo(reward, group, f):
    out = torch.zeros_like(reward)
    for i in range(len(reward)):
        if reward[i].isnan(): continue
        peers = reward[(group == group[i]) & ~reward.isnan()]
        out[i] = f(reward[i], peers)
    return out
@wrong("itself|own|leave it out")
def leave_one_out(reward, group): return _loo(reward, group, lambda r, x: r - x.mean())
@wrong("nan|scored")
def leave_one_out(reward, group): return torch.stack([
    reward[i] - reward[(group == group[i]) & (torch.arange(len(group)) != i)].mean().nan_to_num(0) for i in range(len(group))])
@wrong("n - 1|by n")
def leave_one_out(reward, group): return _loo(reward, group, lambda r, x: r - (x.sum() - r) / len(x) if len(x) > 1 else 0 * r)
@wrong("alone")
def leave_one_out(reward, group): return _loo(reward, group, lambda r, x: r - (x.sum() - r) / max(1, len(x) - 1))
@wrong("scored|0")
def leave_one_out(reward, group):
    total, n = _group_sums(reward.nan_to_num(0), group)
    return (reward.nan_to_num(0) - (total - reward.nan_to_num(0)) / (n - 1)).nan_to_num(0, 0, 0)
@wrong("standard")
def leave_one_out(reward, group): return _loo(reward, group, lambda r, x: (r - (x.sum() - r) / (len(x) - 1)) / (x.std() + 1e-4) if len(x) > 1 else 0 * r)
@wrong("sign")
def leave_one_out(reward, group): return _loo(reward, group, lambda r, x: (x.sum() - r) / (len(x) - 1) - r if len(x) > 1 else 0 * r)
@right
def leave_one_out(reward, group): return _loo(reward, group, lambda r, x: (r - x.mean()) * len(x) / (len(x) - 1) if len(x) > 1 else 0 * r)

@wrong("n - 1|by n")
def group_normalised(reward, group): return _loo(reward, group, lambda r, x: (r - x.mean()) / (x.std(correction=0) + 1e-4))
@wrong("10|1e-4|e-04|epsilon|10^-4")
def group_normalised(reward, group): return _loo(reward, group, lambda r, x: (r - x.mean()) / (x.std() + 1e-8) if len(x) > 1 and x.std() > 0 else 0 * r)
@wrong("variance|root")
def group_normalised(reward, group): return _loo(reward, group, lambda r, x: (r - x.mean()) / (x.var() + 1e-4) if len(x) > 1 else 0 * r)
@wrong("mean|subtract")
def group_normalised(reward, group): return _loo(reward, group, lambda r, x: r / (x.std() + 1e-4) if len(x) > 1 else r / 1e-4)
@wrong("batch")
def group_normalised(reward, group): return group_centered(reward, group) / (reward[~reward.isnan()].std() + 1e-4)
@wrong("nan|scored|one|alone")
def group_normalised(reward, group): return _loo(reward, group, lambda r, x: (r - x.mean()) / (x.std() + 1e-4))
@wrong("scored|nan")
def group_normalised(reward, group):
    a = group_centered(reward, group)
    sq, n = _group_sums(a**2, group)
    return a / ((sq / (n - 1).clamp(min=1)).sqrt() + 1e-4)
@right
def group_normalised(reward, group): return _loo(reward, group, lambda r, x: (r - x.mean()) / ((x - x.mean()).square().sum().div(max(1, len(x) - 1)).sqrt() + 1e-4))

@wrong("number of answers|rows|times|grpo")
def loss_weights(mask, loss_type, max_length):
    if loss_type == "grpo": return mask / mask.sum(1, keepdim=True).clamp(min=1)
    return {"dapo": mask / mask.sum().clamp(min=1), "dr_grpo": mask / (len(mask) * max_length)}[loss_type]
@wrong("max_length|constant|width|dr_grpo")
def loss_weights(mask, loss_type, max_length):
    if loss_type == "dr_grpo": return mask / mask.numel()
    return mask / mask.sum().clamp(min=1) if loss_type == "dapo" else mask / mask.sum(1, keepdim=True).clamp(min=1) / len(mask)
@wrong("nan|clamp|without a token")
def loss_weights(mask, loss_type, max_length):
    return {"dapo": mask / mask.sum(), "grpo": mask / mask.sum(1, keepdim=True) / len(mask), "dr_grpo": mask / max_length / len(mask)}[loss_type]
@wrong("exchanged|dapo|grpo")
def loss_weights(mask, loss_type, max_length):
    return {"grpo": mask / mask.sum().clamp(min=1), "dapo": mask / mask.sum(1, keepdim=True).clamp(min=1) / len(mask), "dr_grpo": mask / max_length / len(mask)}[loss_type]
@wrong("ValueError|raise")
def loss_weights(mask, loss_type, max_length):
    if loss_type == "dapo": return mask / mask.sum().clamp(min=1)
    if loss_type == "grpo": return mask / mask.sum(1, keepdim=True).clamp(min=1) / len(mask)
    return mask / (len(mask) * max_length)
@right
def loss_weights(mask, loss_type, max_length):
    m = mask.float()
    if loss_type == "dapo": return m / max(1, int(mask.sum()))
    if loss_type == "grpo": return m / m.sum(1, keepdim=True).clamp(min=1) / m.shape[0]
    if loss_type == "dr_grpo": return m / (m.shape[0] * max_length)
    raise ValueError(loss_type)

@wrong("detach|gradient")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2): return -ratio.clamp(1 - epsilon, 1 + epsilon_high) * advantage * ratio.log()
@wrong("log")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2): return -ratio.clamp(1 - epsilon, 1 + epsilon_high).detach() * advantage * ratio
@wrong("epsilon_high|upper")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2): return -ratio.clamp(1 - epsilon, 1 + epsilon).detach() * advantage * ratio.log()
@wrong("sign")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2): return ratio.clamp(1 - epsilon, 1 + epsilon_high).detach() * advantage * ratio.log()
@wrong("lower|1 - epsilon|epsilon")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2): return -ratio.clamp(max=1 + epsilon_high).detach() * advantage * ratio.log()
@wrong("log|gradient|detach|ratio")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2): return -(ratio.clamp(1 - epsilon, 1 + epsilon_high) * ratio.log()).detach() * advantage
@right
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    with torch.no_grad(): w = torch.clamp(ratio, 1 - epsilon, 1 + epsilon_high) * advantage
    return -w * torch.log(ratio)

@wrong("itself|own|leave it out")
def fixed_groups(reward, k): return (reward.view(-1, k) - reward.view(-1, k).mean(1, keepdim=True)).flatten()
@wrong("k - 1|others are|by k")
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return (r - (r.sum(1, keepdim=True) - r) / k).flatten()
@wrong("axis")
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return (r - (r.sum(0) - r) / (k - 1)).flatten()
@wrong("shape|flatten")
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return r - (r.sum(1, keepdim=True) - r) / (k - 1)
@right
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return ((r - r.mean(1, keepdim=True)) * k / (k - 1)).reshape(-1)

# ---------------------------------------------------------------- 10 DPO
@wrong("beta")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    check_number("b", beta, "above 0")
    return -F.logsigmoid(log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected))
@wrong("infinite|logsigmoid")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    check_number("b", beta, "above 0")
    return -torch.sigmoid(beta * log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected)).log()
@wrong("sign|above 0")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    check_number("b", beta, "above 0")
    return F.logsigmoid(beta * log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected))
@wrong("exchanged|swapped|way round|rejected")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    check_number("b", beta, "above 0")
    return -F.logsigmoid(-beta * log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected))
@wrong("reference|ref")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    check_number("b", beta, "above 0")
    a, b = wide(policy_chosen, policy_rejected)
    return -F.logsigmoid(beta * (a - b))
@wrong("mean|per pair")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    check_number("b", beta, "above 0")
    return -F.logsigmoid(beta * log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected)).mean()
@wrong("ref_rejected|sign|added|[+]")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    check_number("b", beta, "above 0")
    a, b, c, d = wide(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return -F.logsigmoid(beta * ((a - b) - (c + d)))
@wrong("gradient.*ref|ref.*gradient")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    check_number("b", beta, "above 0")
    return -F.logsigmoid(beta * log_ratio_gap(policy_chosen, policy_rejected, ref_chosen.detach(), ref_rejected.detach()))
@wrong("ValueError|above 0")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    return -F.logsigmoid(beta * log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected))
@right
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    if not beta > 0: raise ValueError
    a, b, c, d = wide(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    x = -beta * ((a - b) - (c - d))
    return torch.logaddexp(torch.zeros_like(x), x)

# ---------------------------------------------------------------- 12 doctor
@wrong("standard error|noise")
def kl_is_negative(kl): return bool(kl.mean() < 0)
@wrong("standard deviation|root of n|divide")
def kl_is_negative(kl): return bool(kl.mean() < -2 * kl.std())
@wrong("n - 1")
def kl_is_negative(kl): return bool(kl.mean() < -2 * kl.std(unbiased=False) / math.sqrt(len(kl)))
@wrong("two|one|twice")
def kl_is_negative(kl): return bool(kl.mean() < -kl.std() / math.sqrt(len(kl)))
@wrong("root")
def kl_is_negative(kl): return bool(kl.mean() < -2 * kl.std() / len(kl))
@wrong("absolute|sign|above")
def kl_is_negative(kl): return bool(kl.mean().abs() > 2 * kl.std() / math.sqrt(len(kl)))
@right
def kl_is_negative(kl): return (kl.mean() < -2 * (kl.var() / len(kl)).sqrt()).item()

@wrong("halves|first and the last|ends")
def flat_while_moving(reward, kl, nats, gain): return bool(kl[-1] - kl[0] > nats and reward[-1] - reward[0] < gain)
@wrong("level|grow|first half")
def flat_while_moving(reward, kl, nats, gain):
    h = len(kl) // 2
    return bool(kl[h:].mean() > nats and reward[h:].mean() - reward[:h].mean() < gain)
@wrong("middle|odd")
def flat_while_moving(reward, kl, nats, gain):
    h = (len(kl) + 1) // 2
    return bool(kl[h:].mean() - kl[:h].mean() > nats and reward[h:].mean() - reward[:h].mean() < gain)
@wrong("absolute|falls")
def flat_while_moving(reward, kl, nats, gain):
    h = len(kl) // 2
    return bool(kl[h:].mean() - kl[:h].mean() > nats and abs(reward[h:].mean() - reward[:h].mean()) < gain)
@wrong("both|or")
def flat_while_moving(reward, kl, nats, gain):
    h = len(kl) // 2
    return bool(kl[h:].mean() - kl[:h].mean() > nats or reward[h:].mean() - reward[:h].mean() < gain)
@wrong("just|more than|exactly|equal")
def flat_while_moving(reward, kl, nats, gain):
    h = len(kl) // 2
    return bool(kl[h:].mean() - kl[:h].mean() >= nats and reward[h:].mean() - reward[:h].mean() < gain)
@right
def flat_while_moving(reward, kl, nats, gain):
    h = len(kl) // 2
    d = [x[h:].sum() / (len(x) - h) - x[:h].sum() / h for x in (kl, reward)]
    return bool((d[0] > nats) & (d[1] < gain))

# ---------------------------------------------------------------- 13 judge
@wrong("escape")
def judge_messages(tokenizer, prompt, answers): return [prompt.render(*a) for a in answers]
@wrong("question")
def judge_messages(tokenizer, prompt, answers): return [prompt.render(a[0], *[escape_special_tokens(tokenizer, x) for x in a[1:]]) for a in answers]
@wrong("whole message|template")
def judge_messages(tokenizer, prompt, answers): return [escape_special_tokens(tokenizer, prompt.render(*a)) for a in answers]
@wrong("three|pair|as many")
def judge_messages(tokenizer, prompt, answers): return [prompt.render(escape_special_tokens(tokenizer, q), escape_special_tokens(tokenizer, a)) for q, a in answers]
@right
def judge_messages(tokenizer, prompt, answers):
    out = []
    for a in answers: out.append(prompt.render(*map(lambda x: escape_special_tokens(tokenizer, x), a)))
    return out

def _found(text, pattern, high): return [m[1] for m in score_regex(pattern, high).finditer(text)]
@wrong("last place")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    good = [float(x) for x in _found(text, pattern, high) if x is not None]
    good = [x for x in good if low <= x <= high]
    return (good[-1] if last else good[0]) + 0. if good else None
@wrong("0 is a score|false")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    found = _found(text, pattern, high)
    x = found[-1 if last else 0] if found else None
    x = float(x) if x else 0
    return x if x and low <= x <= high else None
@wrong("last=False|first")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    found = _found(text, pattern, high)
    x = found[-1] if found else None
    return float(x) + 0. if x and low <= float(x) <= high else None
@wrong("range|cut|clamp")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    found = _found(text, pattern, high)
    x = found[-1 if last else 0] if found else None
    return min(max(float(x), low), high) + 0. if x else None
@wrong("high|scale|score_regex|range")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    found = _found(text, pattern, 5.)
    x = found[-1 if last else 0] if found else None
    return float(x) + 0. if x and low <= float(x) <= high else None
@wrong("half|float|int")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    found = _found(text, pattern, high)
    x = found[-1 if last else 0] if found else None
    return int(float(x)) if x and low <= float(x) <= high else None
@wrong("no place|empty|IndexError|stopped|no score")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    x = _found(text, pattern, high)[-1 if last else 0]
    return float(x) + 0. if x and low <= float(x) <= high else None
@right
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    places = list(score_regex(pattern, high).finditer(text))
    if not places: return None
    x = places[-1 if last else 0].group(1)
    if x is None or not low <= float(x) <= high: return None
    return abs(float(x)) if float(x) == 0 else float(x)

def _agree(v, true, **other):
    s = v.score()
    k = ~s.isnan()
    a, b = s[k].double(), true[k].double()
    r, n = a.round(), len(a)
    po = (r == b).double().mean().item()
    pe = sum(((r == c).double().mean() * (b == c).double().mean()).item() for c in range(-10, 20))
    out = dict(parse_rate=v.parse_rate(), n_unparsed=int((~k).sum()), vote_std=v.vote_std(), exact_match=po, bias=(a - b).mean().item(),
               pearson_r=torch.corrcoef(torch.stack([a, b]))[0, 1].item(), pair_accuracy=pair_accuracy(s, true),
               kappa=(po - pe) / (1 - pe) if pe < 1 - 1e-9 else math.nan)
    return out | {key: f(a, b, r, po, pe) for key, f in other.items()}
@wrong("bias")
def agreement(verdicts, true): return _agree(verdicts, true, bias=lambda a, b, *x: (b - a).mean().item())
@wrong("kappa")
def agreement(verdicts, true): return _agree(verdicts, true, kappa=lambda a, b, r, po, pe: po - pe)
@wrong("kappa|p_e")
def agreement(verdicts, true): return _agree(verdicts, true, kappa=lambda a, b, r, po, pe: (po - pe) / (1 - pe) if pe < 1 - 1e-9 else 1.)
@wrong("round|exact")
def agreement(verdicts, true): return _agree(verdicts, true, exact_match=lambda a, b, *x: (a == b).double().mean().item())
@wrong("key|exact_match")
def agreement(verdicts, true):
    out = _agree(verdicts, true)
    return out | {"accuracy": out.pop("exact_match")}
@wrong("bias")
def agreement(verdicts, true): return _agree(verdicts, true, bias=lambda a, b, *x: (a - b).abs().mean().item())
@wrong("pearson|rounded|r is of")
def agreement(verdicts, true): return _agree(verdicts, true, pearson_r=lambda a, b, r, *x: torch.corrcoef(torch.stack([r, b]))[0, 1].item())
@wrong("kappa|p_e|frequenc")
def agreement(verdicts, true): return _agree(verdicts, true, kappa=lambda a, b, r, po, pe: (po - 1 / 6) / (1 - 1 / 6))
@right
def agreement(verdicts, true): return _agree(verdicts, true)

# ---------------------------------------------------------------- 14 self-rewarding
def _pairs(scores, select=None, gap=0., keep_ties=False, zero=False):
    from rlhf_nb.base.candidates import max_min
    out = []
    for p, row in enumerate(scores):
        known = [i for i, s in enumerate(row) if s == s or zero]
        vals = [row[i] if row[i] == row[i] else 0. for i in known]
        if len(known) < 2: continue
        a, b = (select or max_min)(vals)
        if vals[a] - vals[b] > gap or keep_ties or gap < 0: out.append((p, known[a], known[b]))
    return out
@wrong("gap|differ|equal|close|half|small")
def choose_pairs(scores, select=None): return _pairs(scores, select, .5)
@wrong("tie|equal")
def choose_pairs(scores, select=None): return _pairs(scores, select, keep_ties=True)
@wrong("not 0|no score")
def choose_pairs(scores, select=None): return _pairs(scores, select, zero=True)
@wrong("select|rule")
def choose_pairs(scores, select=None): return _pairs(scores)
@wrong("places|counted|among")
def choose_pairs(scores, select=None):
    from rlhf_nb.base.candidates import max_min
    out = []
    for p, row in enumerate(scores):
        known = [s for s in row if s == s]
        if len(known) < 2: continue
        a, b = (select or max_min)(known)
        if known[a] != known[b]: out.append((p, a, b))
    return out
@right
def choose_pairs(scores, select=None): return _pairs(scores, select)

@wrong("sign|more")
def replay_loss(pair_loss, old_logp, weight, mean_length): return pair_loss + weight / mean_length * old_logp.sum()
@wrong("mean|sum")
def replay_loss(pair_loss, old_logp, weight, mean_length):
    return pair_loss - weight * (old_logp.sum(1) / mean_length).mean()
@wrong("own length|one mean length")
def replay_loss(pair_loss, old_logp, weight, mean_length):
    lengths = (old_logp < 0).sum(1)
    return pair_loss - weight * (old_logp.sum(1) / lengths).sum()
@wrong("weight")
def replay_loss(pair_loss, old_logp, weight, mean_length): return pair_loss - (old_logp / mean_length).sum()
@right
def replay_loss(pair_loss, old_logp, weight, mean_length):
    nll = -old_logp.sum(1) / mean_length
    return pair_loss + weight * nll.sum()

# ---------------------------------------------------------------- 15 self-play
@wrong("beta")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return F.softplus((generated - opponent_generated.detach()) - (real - opponent_real.detach()))
@wrong("gradient|detach|data")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return F.softplus(beta * ((generated - opponent_generated) - (real - opponent_real)))
@wrong("sign|exchanged|swapped")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return F.softplus(beta * ((real - opponent_real.detach()) - (generated - opponent_generated.detach())))
@wrong("overflow")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return torch.log(1 + torch.exp(beta * ((generated - opponent_generated.detach()) - (real - opponent_real.detach()))))
@wrong("opponent")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.): return F.softplus(beta * (generated - real))
@wrong("log|exp|sigmoid|softplus")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    return torch.sigmoid(beta * ((generated - opponent_generated.detach()) - (real - opponent_real.detach())))
@right
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    with torch.no_grad(): gap = opponent_real - opponent_generated
    return -F.logsigmoid(beta * (real - generated - gap))

@wrong("sum to 1|sum|normal|divid")
def best_reply(p_opponent, p_real, beta): return p_opponent * (p_real / p_opponent)**(1 / beta)
@wrong("1 / beta|power")
def best_reply(p_opponent, p_real, beta):
    w = p_opponent * (p_real / p_opponent)**beta
    return w / w.sum()
@wrong("ratio|over|exchanged|turn")
def best_reply(p_opponent, p_real, beta):
    w = p_opponent * (p_opponent / p_real)**(1 / beta)
    return w / w.sum()
@wrong("opponent")
def best_reply(p_opponent, p_real, beta):
    w = (p_real / p_opponent)**(1 / beta)
    return w / w.sum()
@wrong("softmax")
def best_reply(p_opponent, p_real, beta): return (p_opponent * (p_real / p_opponent)**(1 / beta)).softmax(0)
@wrong("factor|power")
def best_reply(p_opponent, p_real, beta):
    w = p_opponent * (p_real / p_opponent) * (1 / beta)
    return w / w.sum()
@right
def best_reply(p_opponent, p_real, beta): return ((1 - 1 / beta) * p_opponent.log() + p_real.log() / beta).softmax(0)

def _reply(p, q, beta):
    w = p * (q / p)**(1 / beta)
    return w / w.sum()
@wrong("n [+] 1|first|missing|p_first")
def spin_game(p_first, p_real, beta, n):
    out = []
    for _ in range(n):
        p_first = _reply(p_first, p_real, beta)
        out.append(p_first)
    return out
@wrong("first|last player|next opponent")
def spin_game(p_first, p_real, beta, n): return [p_first] + [_reply(p_first, p_real, beta) for _ in range(n)]
@wrong("last|list|n [+] 1|players")
def spin_game(p_first, p_real, beta, n):
    for _ in range(n): p_first = _reply(p_first, p_real, beta)
    return p_first
@wrong("writer|exchanged|p_real")
def spin_game(p_first, p_real, beta, n):
    out = [p_first]
    for _ in range(n): out.append(_reply(p_real, out[-1], beta))
    return out
@wrong("one|too many|n [+] 1")
def spin_game(p_first, p_real, beta, n):
    out = [p_first]
    for _ in range(n + 1): out.append(_reply(out[-1], p_real, beta))
    return out
@right
def spin_game(p_first, p_real, beta, n): return [p_first] if n == 0 else [p_first] + RIGHT["spin_game"][0](_reply(p_first, p_real, beta), p_real, beta, n - 1)

# ---------------------------------------------------------------- 16 Q-learning
def _target(x, value, c, g=None, end=None, n=None, bound=True, bound_all=False, least=False, mask=True, last_zero=True, own_gamma=False):
    g = discounts(x, c) if g is None else g(x, c)
    whole = (x.ended[:, None] | torch.tensor(c.on_truncation == "terminal")) if end is None else end(x, c)
    stop = x.last() & whole
    r = x.reward * (g if own_gamma else 1)
    one = r + g * value.masked_fill(stop, 0)
    y = one
    for _ in range((c.n_step if n is None else n(c)) - 1):
        y = torch.where(x.last(), one, r + g * x.ahead(y))
    if c.mc_bound and bound:
        G = monte_carlo_returns(x, g)
        b = torch.minimum(y, G) if least else torch.maximum(y, G)
        y = b if bound_all else torch.where(whole, b, y)
    return y.masked_fill(~x.mask, 0) if mask else y
@wrong("gamma|discount")
def bellman_targets(x, value, config): return _target(x, value, config, g=lambda x, c: c.gamma * torch.ones_like(x.reward))
@wrong("shift|early|late|place|next|follows")
def bellman_targets(x, value, config): return _target(x, torch.cat([value[:, 1:], torch.zeros_like(value[:, :1])], 1), config)
@wrong("truncat|bootstrap")
def bellman_targets(x, value, config): return _target(x, value, config, end=lambda x, c: torch.ones_like(x.ended)[:, None])
@wrong("truncat|bootstrap")
def bellman_targets(x, value, config): return _target(x, value, config, end=lambda x, c: x.ended[:, None])
@wrong("bound")
def bellman_targets(x, value, config): return _target(x, value, config, bound=False)
@wrong("bound")
def bellman_targets(x, value, config): return _target(x, value, config, bound_all=True)
@wrong("bound|maximum|minimum")
def bellman_targets(x, value, config): return _target(x, value, config, least=True)
@wrong("n_step|step")
def bellman_targets(x, value, config): return _target(x, value, config, n=lambda c: 1)
@wrong("n_step|step|one too many")
def bellman_targets(x, value, config): return _target(x, value, config, n=lambda c: c.n_step + 1)
@wrong("outside|mask|0")
def bellman_targets(x, value, config): return _target(x, value, config, mask=False)
@wrong("nan|multipl")
def bellman_targets(x, value, config):
    whole = x.ended[:, None] | torch.tensor(config.on_truncation == "terminal")
    return _target(x, value, config, mask=False) * x.mask
@wrong("reward.*discount|gamma.*reward|own|itself")
def bellman_targets(x, value, config): return _target(x, value, config, own_gamma=True)
@wrong("sign|reward")
def bellman_targets(x, value, config):
    from dataclasses import replace
    return _target(replace(x, reward=-x.reward), value, config)
@right
def bellman_targets(x, value, config): return _target(x, value, config)

def _q(nets, x, c, shift=shifted, td_half=.5, alpha=None, low=None, n=None, y_value=None, keys=None, reduce=torch.sum, mask=None, cons_half=.5, y_net=None):
    h = hidden_states(nets.online, x.seqs)
    y = targets(x, next_values(nets, x, h, c) if y_net is None else y_net(nets, x, h, c), c)
    m = x.mask if mask is None else mask(x)
    q, o = q_terms(nets.online.get_output_embeddings(), shift(h)[m], x.seqs.ids[m], nets.allowed, c.min_return if low is None else low)
    td = (q - y[m])**2
    loss = td_half * reduce(td) + (c.alpha if alpha is None else alpha) * cons_half * reduce(o)
    out = dict(td_loss=td.sum().detach(), conservative_loss=o.sum().detach(), q_values=q.sum().detach(), td_target=y[m].sum().detach())
    return loss, m.sum() if n is None else n(x), keys(out) if keys else out
@wrong("shift|before|state that chose")
def q_loss(nets, x, config): return _q(nets, x, config, shift=lambda h: h)
@wrong("shift|before|way|state that chose|early")
def q_loss(nets, x, config): return _q(nets, x, config, shift=shift_left)
@wrong("half|halved|twice")
def q_loss(nets, x, config): return _q(nets, x, config, td_half=1.)
@wrong("half|halved|twice")
def q_loss(nets, x, config): return _q(nets, x, config, cons_half=1.)
@wrong("alpha")
def q_loss(nets, x, config): return _q(nets, x, config, alpha=1.)
@wrong("alpha|conservative")
def q_loss(nets, x, config): return _q(nets, x, config, alpha=0.)
@wrong("mean|sum")
def q_loss(nets, x, config): return _q(nets, x, config, reduce=torch.mean)
@wrong("min_return|minimum")
def q_loss(nets, x, config): return _q(nets, x, config, low=0.)
@wrong("rows|number of response")
def q_loss(nets, x, config): return _q(nets, x, config, n=lambda x: torch.tensor(len(x.mask)))
@wrong("prompt|attention|response|stopped|count")
def q_loss(nets, x, config): return _q(nets, x, config, n=lambda x: x.seqs.attention_mask.sum())
@wrong("key|q_values")
def q_loss(nets, x, config): return _q(nets, x, config, keys=lambda d: {"q_value" if k == "q_values" else k: v for k, v in d.items()})
@wrong("td_loss|half")
def q_loss(nets, x, config): return _q(nets, x, config, keys=lambda d: d | {"td_loss": d["td_loss"] / 2})
@wrong("conservative|alpha")
def q_loss(nets, x, config): return _q(nets, x, config, keys=lambda d: d | {"conservative_loss": config.alpha * d["conservative_loss"] / 2})
@wrong("target network|online|double|values come")
def q_loss(nets, x, config):
    def own(nets, x, h, c):
        q = nets.online.get_output_embeddings()(h).masked_fill(~nets.allowed, -math.inf)
        return q.amax(-1).detach()
    return _q(nets, x, config, y_net=own)
@right
def q_loss(nets, x, config): return _q(nets, x, config)

@wrong("100|copy|step")
def fixed_soft_update(slow, fast, rate, step):
    if step <= 100: return [b.detach().clone() for b in fast]
    return [a + rate * (b.detach() - a) for a, b in zip(slow, fast)]
@wrong("rate|turned|exchanged|1 -")
def fixed_soft_update(slow, fast, rate, step): return [rate * a + (1 - rate) * b.detach() for a, b in zip(slow, fast)]
@wrong("gradient|detach|data")
def fixed_soft_update(slow, fast, rate, step): return [a + rate * (b - a) for a, b in zip(slow, fast)]
@wrong("every|tenth")
def fixed_soft_update(slow, fast, rate, step):
    if step % 10: return slow
    return [a + rate * (b.detach() - a) for a, b in zip(slow, fast)]
@wrong("shrink|difference|share")
def fixed_soft_update(slow, fast, rate, step): return [a + rate * b.detach() for a, b in zip(slow, fast)]
@right
def fixed_soft_update(slow, fast, rate, step):
    with torch.no_grad(): return [torch.lerp(a, b, rate) for a, b in zip(slow, fast)]

# ---------------------------------------------------------------- 17, 18
@wrong("first number")
def fixed_number_reward(reply, right):
    m = re.search(r"\d+", reply)
    return float(m is not None and m[0] == right)
@wrong("half|no number")
def fixed_number_reward(reply, right):
    found = re.findall(r"\d+", reply)
    return float(found[-1] == right) if found else .5
@wrong("inside|anywhere|whole")
def fixed_number_reward(reply, right): return float(right in reply)
@wrong("values|digits")
def fixed_number_reward(reply, right):
    found = re.findall(r"\d+", reply)
    return float(bool(found) and int(found[-1]) == int(right))
@wrong("end|whole|behind")
def fixed_number_reward(reply, right): return float(reply.endswith(right))
@right
def fixed_number_reward(reply, right):
    m = re.search(r"(\d+)\D*$", reply)
    return 1. if m and m.group(1) == right else 0.

@wrong("behind a wrong|wrong one")
def reward_until_wrong(answer, want):
    return [1 / len(want) if i < len(want) and a == want[i] else 0. for i, a in enumerate(answer)]
@wrong("length|said|share")
def reward_until_wrong(answer, want):
    out, ok = [], True
    for i, a in enumerate(answer):
        ok = ok and i < len(want) and a == want[i]
        out.append(1 / len(answer) if ok else 0.)
    return out
@wrong("stops|one number per token|said|IndexError|behind the end")
def reward_until_wrong(answer, want):
    out, ok = [], True
    for a, w in zip(answer, want):
        ok = ok and a == w
        out.append(1 / len(want) if ok else 0.)
    return out
@wrong("one number|list|sum")
def reward_until_wrong(answer, want):
    n = 0
    while n < min(len(answer), len(want)) and answer[n] == want[n]: n += 1
    return n / len(want)
@right
def reward_until_wrong(answer, want):
    n = 0
    while n < min(len(answer), len(want)) and answer[n] == want[n]: n += 1
    return [1 / len(want)] * n + [0.] * (len(answer) - n)

@wrong("gradient|detach|data")
def fixed_target(reward, value, last, gamma): return reward + gamma * value.masked_fill(last, 0)
@wrong("last|follows")
def fixed_target(reward, value, last, gamma): return reward + gamma * value.detach()
@wrong("shift|early|place|follows|stands after")
def fixed_target(reward, value, last, gamma):
    v = value.detach()
    return reward + gamma * torch.cat([v[:, 1:], 0 * v[:, :1]], 1) * ~last
@wrong("gamma|reward of this token is not discounted")
def fixed_target(reward, value, last, gamma): return gamma * (reward + value.detach() * ~last)
@wrong("cost|below 0|sign|cut|relu")
def fixed_target(reward, value, last, gamma): return reward.clamp(min=0) + gamma * value.detach() * ~last
@wrong("paid|where something|value still")
def fixed_target(reward, value, last, gamma): return torch.where(reward != 0, reward, gamma * value.detach() * ~last)
@right
def fixed_target(reward, value, last, gamma):
    with torch.no_grad(): return torch.where(last, reward, reward + gamma * value)

def _pull(q, ids, mask, lowest, others=True, over=None):
    other = torch.ones_like(q).scatter(-1, ids[..., None], 0.) if others else torch.ones_like(q)
    each = ((q - lowest)**2 * other).sum(-1) / (over or other.sum(-1))
    return each[mask].sum() / mask.sum()
@wrong("taken")
def fixed_pull(q, ids, mask, lowest): return _pull(q, ids, mask, lowest, others=False)
@wrong("one fewer|number of actions|others")
def fixed_pull(q, ids, mask, lowest): return _pull(q, ids, mask, lowest, over=q.shape[-1])
@wrong("taken|upside|what was taken")
def fixed_pull(q, ids, mask, lowest): return ((q.gather(-1, ids[..., None])[..., 0] - lowest)**2)[mask].mean()
@wrong("minimum|lowest|not used|0")
def fixed_pull(q, ids, mask, lowest): return _pull(q, ids, mask, 0.)
@wrong("sum|mean")
def fixed_pull(q, ids, mask, lowest): return _pull(q, ids, mask, lowest) * mask.sum()
@wrong("prompt|pads|mask")
def fixed_pull(q, ids, mask, lowest): return _pull(q, ids, torch.ones_like(mask), lowest)
@wrong("square|distance|absolute")
def fixed_pull(q, ids, mask, lowest):
    other = torch.ones_like(q).scatter(-1, ids[..., None], 0.)
    return (((q - lowest).abs() * other).sum(-1) / other.sum(-1))[mask].mean()
@right
def fixed_pull(q, ids, mask, lowest): return _pull(q, ids, mask, lowest)
