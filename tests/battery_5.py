"""A fifth battery: fresh slips over all exercises, more of them for three stars, written from stubs and task texts alone.

Written and committed before any verdict on them was seen; what each regex asks for is the slip itself."""
import collections, math, re, torch
import torch.nn.functional as F
from torch.nn.functional import logsigmoid, softplus
from dataclasses import replace
from rlhf_nb.base.batches import at_least_float32
from rlhf_nb.base.candidates import max_min
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.q_networks import discounts, hidden_states, next_values, q_terms
from rlhf_nb.base.replies import escape_special_tokens, score_regex
from rlhf_nb.grpo import group_centered, group_normalised as normalised_in_group
from rlhf_nb.judge import pair_accuracy
from rlhf_nb.kl import kl_penalty
from rlhf_nb.ppo import clipped_policy_loss as policy_part, clipped_value_loss
from rlhf_nb.qlearning import bellman_targets as right_targets, monte_carlo_returns
from rlhf_nb.tokens import last_token_index as ends, masked_mean as mean_over, shift_right as moved
from rlhf_nb.world import gold_score, utility
from rlhf_nb.worlds.oracle import all_logprobs, expectation
from rlhf_nb.worlds.world_text import FACTS, parse_sentences

WRONG, RIGHT = {}, {}

def wrong(words): # -> decorator; the function bears the name of its exercise
    def keep(fn):
        WRONG.setdefault(fn.__name__, []).append((words, fn))
        return fn
    return keep

def right(fn):
    RIGHT.setdefault(fn.__name__, []).append(fn)
    return fn

# ---------------------------------------------------------------- 02
@wrong("left|direction|other way|wrong way|before|earlier|i - 1|next")
def shift_right(x): return torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], 1)
@wrong("last (row|column|entry)|longer|one (row|column|entry|token) (more|too)|drop")
def shift_right(x): return torch.cat([torch.zeros_like(x[:, :1]), x], 1)
@wrong("first|row 0|entry 0|repeat")
def shift_right(x): return torch.cat([x[:, :1], x[:, :-1]], 1)
@wrong("in place|your input|its input|argument|changes|writes")
def shift_right(x):
    x[:, 1:] = x[:, :-1].clone()
    x[:, 0] = 0
    return x
@right
def shift_right(x):
    y = torch.zeros_like(x)
    for i in range(1, x.shape[1]): y[:, i] = x[:, i - 1]
    return y

def _same(logits, ids):
    if logits.shape[:2] != ids.shape: raise ValueError("shapes")
@wrong("softmax|normalis|raw")
def token_logprobs(logits, ids):
    _same(logits, ids)
    return moved(logits.float()).gather(-1, ids[..., None])[..., 0]
@wrong("log is|logarithm|the log|log\\b|probabilit")
def token_logprobs(logits, ids):
    _same(logits, ids)
    return moved(logits.softmax(-1, torch.promote_types(logits.dtype, torch.float32))).gather(-1, ids[..., None])[..., 0]
@wrong("shift|next|same token|before|one too|row i")
def token_logprobs(logits, ids): # reads the entry of the token just read, and moves that
    _same(logits, ids)
    return moved(logits.log_softmax(-1, torch.promote_types(logits.dtype, torch.float32)).gather(-1, ids[..., None])[..., 0])
@right
def token_logprobs(logits, ids):
    _same(logits, ids)
    z = logits.to(torch.promote_types(logits.dtype, torch.float32))
    out = z.new_zeros(ids.shape)
    out[:, 1:] = z[:, :-1].gather(-1, ids[:, 1:, None])[..., 0] - z[:, :-1].logsumexp(-1)
    return out

@wrong("all entries|number of|count|true entries|whole|every entry")
def masked_mean(x, mask):
    if not mask.any() or mask.shape != x.shape: raise ValueError("nothing")
    return at_least_float32(x)[0].masked_fill(~mask, 0).mean()
@wrong("valueerror|raise|refuse")
def masked_mean(x, mask):
    if mask.shape != x.shape: raise ValueError("shapes")
    return at_least_float32(x)[0].masked_fill(~mask, 0).sum() / mask.sum().clamp(min=1)

@wrong("valueerror|raise|refuse")
def last_token_index(attention_mask): return attention_mask.long().cumsum(1).argmax(1)
@wrong("pad|mask|last column|real")
def last_token_index(attention_mask):
    if (attention_mask.sum(1) == 0).any(): raise ValueError("only pads")
    return torch.full((len(attention_mask),), attention_mask.shape[1] - 1)
@right
def last_token_index(attention_mask):
    rows = []
    for row in attention_mask.tolist():
        if not any(row): raise ValueError("a row of pads")
        rows.append(max(i for i, m in enumerate(row) if m))
    return torch.tensor(rows)

@wrong("first|position 0|entry 0|token 0|column 0")
def fixed_counted(ids, lengths, pad): return torch.arange(ids.shape[1]).expand_as(ids) < lengths[:, None]
@wrong("one too many|first pad|at most|beyond|<|last")
def fixed_counted(ids, lengths, pad):
    i = torch.arange(ids.shape[1])
    return (i > 0) & (i <= lengths[:, None])

# ---------------------------------------------------------------- 03
@wrong("gold")
def prob_right(question, a, b):
    x, y = sorted([utility(question, a), utility(question, b)])
    return 1 / (1 + math.exp(-(y - x) / .5))
@wrong("divid|tau|τ|temperature|/ .5|half")
def prob_right(question, a, b):
    if gold_score(question, a) < gold_score(question, b): a, b = b, a
    return 1 / (1 + math.exp(-(utility(question, a) - utility(question, b)) * .5))

def _values(question, text): return [s.value for s in parse_sentences(text) if (s.animal, s.attribute) == (question.animal, question.attribute)]
@wrong("every|all|any|false|beside")
def fixed_answered(question, text): return any(v == FACTS[question.animal][question.attribute] for v in _values(question, text))
@wrong("nothing|no value|at least one|empty|none")
def fixed_answered(question, text): return all(v == FACTS[question.animal][question.attribute] for v in _values(question, text))
@right
def fixed_answered(question, text):
    v = _values(question, text)
    return len(v) > 0 and v.count(FACTS[question.animal][question.attribute]) == len(v)

# ---------------------------------------------------------------- 04
@wrong("first|nothing before|column 0|entry 0|token 0")
def sft_loss(model, seqs): return -logprobs(model, seqs).sum(), seqs.response_mask.sum()
@wrong("rows|answers|responses|sequences|tokens")
def sft_loss(model, seqs): return -logprobs(model, seqs).sum(), torch.tensor(len(seqs.ids))

def _filter(logits, s, cross=True, final=True, k=lambda k: k):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if s.temperature == 0: return torch.full_like(x, -torch.inf).scatter(1, x.argmax(1, keepdim=True), 0.)
    x = x / s.temperature
    if 0 < k(s.top_k) < x.shape[1]: x = x.masked_fill(x < x.topk(k(s.top_k)).values[:, -1:], -torch.inf)
    if s.top_p < 1:
        p, order = x.softmax(1).sort(descending=True)
        cut = (p.cumsum(1) - p >= s.top_p) if cross else (p.cumsum(1) > s.top_p)
        cut[:, 0] = False
        x = x.masked_fill(cut.scatter(1, order, cut), -torch.inf)
    return x.log_softmax(1) if final else x
@wrong("cross")
def filter_logits(logits, sampling): return _filter(logits, sampling, cross=False)
@wrong("normalis|log_softmax|softmax|sum to 1")
def filter_logits(logits, sampling): return _filter(logits, sampling, final=False)
@wrong("one (token )?(too many|more)|top-k|top_k|k \\+ 1")
def filter_logits(logits, sampling): return _filter(logits, sampling, k=lambda k: k + 1 if k else 0)
@right
def filter_logits(logits, sampling):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    rows = []
    for z in x:
        keep = torch.ones_like(z, dtype=torch.bool)
        if sampling.temperature == 0:
            keep[:] = False
            keep[z.argmax()] = True
        else:
            z = z / sampling.temperature
            if 0 < sampling.top_k < len(z): keep = z >= z.sort(descending=True).values[sampling.top_k - 1]
            if sampling.top_p < 1:
                p, total = z.masked_fill(~keep, -torch.inf).softmax(0), 0.
                for i in p.argsort(descending=True).tolist():
                    if total >= sampling.top_p: keep[i] = False
                    total += p[i].item()
        rows.append(z.masked_fill(~keep, -torch.inf).log_softmax(0))
    return torch.stack(rows)

@wrong("100")
def fixed_labels(ids, n_prompt, n_real): # the rest 0
    i = torch.arange(1, ids.shape[1])
    return ids[:, 1:] * ((i >= n_prompt[:, None]) & (i < n_real[:, None]))
@wrong("shift|j \\+ 1|next token|not moved|token j")
def fixed_labels(ids, n_prompt, n_real):
    i = torch.arange(1, ids.shape[1])
    return ids[:, :-1].masked_fill(~((i >= n_prompt[:, None]) & (i < n_real[:, None])), -100)

# ---------------------------------------------------------------- 05
@wrong("max|largest|highest")
def pooled_scores(model, seqs):
    ends(seqs.attention_mask)
    return model(seqs).masked_fill(~seqs.attention_mask.bool(), -torch.inf).amax(1)
@wrong("first real|first|beginning")
def pooled_scores(model, seqs):
    ends(seqs.attention_mask)
    return model(seqs).gather(1, seqs.attention_mask.long().argmax(1)[:, None])[:, 0]
@right
def pooled_scores(model, seqs):
    s = model(seqs)
    return torch.stack([row[i] for row, i in zip(s, ends(seqs.attention_mask).tolist())])

def _pairs(chosen, rejected):
    if chosen.shape != rejected.shape: raise ValueError("pairs")
@wrong("sum|plus|added|difference|\\+|not the gap")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    _pairs(chosen, rejected)
    return -logsigmoid(chosen - rejected - margin) + (center_coef * (chosen - rejected)**2 if center_coef else 0)
@wrong("one (loss|number) per pair|mean|average")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    _pairs(chosen, rejected)
    return (-logsigmoid(chosen - rejected - margin) + (center_coef * (chosen + rejected)**2 if center_coef else 0)).mean()
@wrong("margin")
def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.): # the margin as a factor of the gap
    _pairs(chosen, rejected)
    return -logsigmoid(chosen - rejected) + margin + (center_coef * (chosen + rejected)**2 if center_coef else 0)

def _bins(chosen, rejected, n_bins, right=None, index=None, empty=False):
    gap = chosen - rejected
    if not gap.isfinite().all(): raise ValueError("finite")
    c = gap.abs().sigmoid()
    r = (gap > 0).float() + .5 * (gap == 0) if right is None else right(gap)
    at = ((c - .5) * 2 * n_bins).long().clamp(max=n_bins - 1) if index is None else index(c)
    rows = [(c[at == k].mean(), r[at == k].mean(), (at == k).sum()) for k in range(n_bins) if empty or (at == k).any()]
    return tuple(torch.stack(x) for x in zip(*rows))
@wrong("tie|equal")
def calibration_bins(chosen, rejected, n_bins=10): return _bins(chosen, rejected, n_bins, right=lambda g: (g >= 0).float())
@wrong("empty")
def calibration_bins(chosen, rejected, n_bins=10): return _bins(chosen, rejected, n_bins, empty=True)
@wrong("round|floor|nearest|lower edge")
def calibration_bins(chosen, rejected, n_bins=10):
    return _bins(chosen, rejected, n_bins, index=lambda c: ((c - .5) * 2 * n_bins).round().long().clamp(max=n_bins - 1))

# ---------------------------------------------------------------- 06
@wrong("\\.grad|fill|leave")
def exact_gradient(model, world, reward):
    expectation(all_logprobs(model, world), reward.detach()).backward()
    return {n: p.grad for n, p in model.named_parameters() if p.requires_grad}
@wrong("probab|weigh|mean of the logs?|uniform")
def exact_gradient(model, world, reward):
    free = {n: p for n, p in model.named_parameters() if p.requires_grad}
    return dict(zip(free, torch.autograd.grad((all_logprobs(model, world) * reward.detach()).mean(), list(free.values()))))
@wrong("log")
def exact_gradient(model, world, reward): # of the log of the expectation
    free = {n: p for n, p in model.named_parameters() if p.requires_grad}
    value = expectation(all_logprobs(model, world), reward.detach())
    return dict(zip(free, torch.autograd.grad(value.abs().log(), list(free.values()))))

@wrong("log")
def optimal_policy(ref_logp, reward, beta):
    if not beta > 0: raise ValueError("beta")
    x = ref_logp + reward / beta
    return x - x.logsumexp(-1), x.logsumexp(-1).exp()
@wrong("valueerror|raise|refuse|above 0")
def optimal_policy(ref_logp, reward, beta):
    x = ref_logp + reward / beta
    return x.log_softmax(-1), x.logsumexp(-1)
@wrong("reference|ref_logp")
def optimal_policy(ref_logp, reward, beta):
    if not beta > 0: raise ValueError("beta")
    x = reward / beta
    return x.log_softmax(-1), x.logsumexp(-1)

def _bon(logp, score, n, f=None, upto=None, level=None, share=None, clean=True, wide=True):
    if type(n) is not int or n < 1: raise ValueError("n")
    if wide: logp, score = at_least_float32(logp, score)
    p = logp.exp()
    table = score[None, :] - score[:, None]                             # row i, column j: s_j - s_i
    l = (p * (table == 0)).sum(1) if level is None else level(p, table)
    u = (p * (table <= 0)).sum(1) if upto is None else upto(p, table)
    gain = u**n - (u - l).clamp(min=0)**n if f is None else f(u, l, n)
    out = logp - l.log() + gain.log() if share is None else share(logp, l, gain, table)
    return out.masked_fill(p == 0, -torch.inf) if clean else out
@wrong("lower|at most|higher|above|direction|other way|transpos|turned")
def best_of_n_policy(logp, score, n): return _bon(logp, score, n, upto=lambda p, t: (p * (t >= 0)).sum(1))
@wrong("own|at most|strict|below|<|>|equal")
def best_of_n_policy(logp, score, n): return _bon(logp, score, n, upto=lambda p, t: (p * (t < 0)).sum(1))
@wrong("power|\\bn\\b|n times|draw")
def best_of_n_policy(logp, score, n): return _bon(logp, score, n, f=lambda u, l, n: n * u - n * (u - l))
@wrong("n - 1|power|one too few|\\bn\\b")
def best_of_n_policy(logp, score, n): return _bon(logp, score, n, f=lambda u, l, n: u**(n - 1) - (u - l).clamp(min=0)**(n - 1) if n > 1 else l)
@wrong("minus|subtract|taken off|u - l|lower ones|missing")
def best_of_n_policy(logp, score, n): return _bon(logp, score, n, f=lambda u, l, n: u**n)
@wrong("worst|lowest|minimum|least|sign|turned|other way|direction|higher")
def best_of_n_policy(logp, score, n): return _bon(logp, -score, n)
@wrong("share|divid|level|equal|proportion|logp - l")
def best_of_n_policy(logp, score, n): return _bon(logp, score, n, share=lambda logp, l, gain, t: gain.log())
@wrong("log\\b|logarithm|probabilit")
def best_of_n_policy(logp, score, n): return _bon(logp, score, n, share=lambda logp, l, gain, t: logp.exp() / l * gain, clean=False)
@wrong("alone|miss|1 - |equal|tie|every response|itself|score")
def best_of_n_policy(logp, score, n): # whether it is drawn at all
    return _bon(logp, score, n, f=lambda u, l, n: 1 - (1 - l)**n)
@wrong("nan|-inf|inf|probability 0|never")
def best_of_n_policy(logp, score, n): return _bon(logp, score, n, clean=False)
@wrong("equal parts|number of|count|proportion|evenly")
def best_of_n_policy(logp, score, n):
    return _bon(logp, score, n, share=lambda logp, l, gain, t: gain.log() - (t == 0).sum(1).log())
@wrong("valueerror|raise|refuse")
def best_of_n_policy(logp, score, n): return _bon(logp, score, n if n > 0 else 1)
@wrong("normalis|sum to 1|softmax|times n|n times|factor|power")
def best_of_n_policy(logp, score, n): # first order: density of the maximum
    return _bon(logp, score, n, share=lambda logp, l, gain, t: logp + math.log(n) + (n - 1) * (logp.exp() * (t <= 0)).sum(1).log())
@wrong("u - l|lower|minus|below|at most|power of|\\(u - l\\)")
def best_of_n_policy(logp, score, n): return _bon(logp, score, n, f=lambda u, l, n: u**n - (u**n - l**n).clamp(min=0))
@right
def best_of_n_policy(logp, score, n):
    if not isinstance(n, int) or n < 1: raise ValueError("n")
    logp, score = at_least_float32(logp, score)
    out = torch.full_like(logp, -torch.inf)
    for i in range(len(logp)):
        p = logp.exp()
        if p[i] == 0: continue
        low, same = p[score < score[i]].sum(), p[score == score[i]].sum()
        out[i] = logp[i] - same.log() + ((low + same)**n - low**n).log()
    return out

@wrong("beta|factor|times")
def fixed_prefix_value(probs, reward, beta): return torch.where(probs > 0, probs.log() + reward / beta, -torch.inf).logsumexp(-1)
@wrong("overflow|logsumexp|infinit|exp\\(")
def fixed_prefix_value(probs, reward, beta): return beta * (probs * (torch.where(probs > 0, reward, 0.) / beta).exp()).sum(-1).log()

# ---------------------------------------------------------------- 07
@wrong("sign|order|swap|turned|exchang|minus")
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shape")
    a, b = at_least_float32(logp, ref_logp)
    return b - a
@wrong("absolute|abs|sign|negative")
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shape")
    a, b = at_least_float32(logp, ref_logp)
    return (a - b).abs()
@wrong("float32|16 bit|bfloat16|precision|first")
def kl_k1(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shape")
    return (logp - ref_logp).float()
@wrong("k2|square|half")
def kl_k3(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shape")
    a, b = at_least_float32(logp, ref_logp)
    return (a - b)**2 / 2
@wrong("- 1|minus 1|one|constant|1 is")
def kl_k3(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shape")
    a, b = at_least_float32(logp, ref_logp)
    return (b - a).exp() + a - b
@right
def kl_k3(logp, ref_logp):
    if logp.shape != ref_logp.shape: raise ValueError("shape")
    r = torch.sub(*reversed(at_least_float32(logp, ref_logp)))
    return r.expm1() - r

def _tr(score, penalty, mask):
    if score.shape != mask.shape[:1] or penalty.shape != mask.shape: raise ValueError("shapes")
    return at_least_float32(penalty)[0]
@wrong("first")
def token_rewards(score, penalty, mask):
    p = _tr(score, penalty, mask)
    return torch.where(mask & (mask.cumsum(1) == 1), p + score[:, None], p)
@wrong("add|plus|penalty|replac|instead")
def token_rewards(score, penalty, mask):
    p = _tr(score, penalty, mask)
    return torch.where(mask & (mask.flip(1).cumsum(1).flip(1) == 1), score[:, None].to(p), p)
@wrong("empty|no (response )?token|without")
def token_rewards(score, penalty, mask):
    p = _tr(score, penalty, mask).clone()
    last = (mask * torch.arange(1, mask.shape[1] + 1)).argmax(1)
    p[torch.arange(len(p)), last] += score.to(p)
    return p
@right
def token_rewards(score, penalty, mask):
    p = _tr(score, penalty, mask).clone()
    for b in range(len(p)):
        at = mask[b].nonzero().flatten().tolist()
        if at: p[b, at[-1]] = p[b, at[-1]] + score[b]
    return p

# ---------------------------------------------------------------- 08
@wrong("min|smaller|max|larger|pessimis")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = at_least_float32(logp, old_logp, advantage)
    r = (logp - old_logp).exp()
    return -torch.maximum(r * advantage, r.clamp(1 - cliprange, 1 + cliprange) * advantage)
@wrong("1 - |lower|below|one side|both|low")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = at_least_float32(logp, old_logp, advantage)
    r = (logp - old_logp).exp()
    return -torch.minimum(r * advantage, r.clamp(max=1 + cliprange) * advantage)
@wrong("ratio|old|revers|swap|turned|exchang|over")
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = at_least_float32(logp, old_logp, advantage)
    r = (old_logp - logp).exp()
    return -torch.minimum(r * advantage, r.clamp(1 - cliprange, 1 + cliprange) * advantage)
@right
def clipped_policy_loss(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, a = at_least_float32(logp, old_logp, advantage)
    r = (logp - old_logp).exp()
    return torch.max(-a * r, -a * torch.clamp(r, 1 - cliprange, 1 + cliprange))

def _adv(reward, value, mask, gamma=1., lam=.95, delta=None, mix=None, gap=True, wide=True, keep=True, start=None):
    if wide: reward, value = at_least_float32(reward, value)
    reward, value = reward.masked_fill(~mask, 0), value.masked_fill(~mask, 0)
    out = torch.zeros_like(reward)
    for b in range(len(reward)):
        a, v = 0., 0. if start is None else start(value[b])
        for i in range(reward.shape[1] - 1, -1, -1):
            if not mask[b, i]:
                if not gap: a, v = 0., 0.
                continue
            d = reward[b, i] + gamma * v - value[b, i] if delta is None else delta(reward[b, i], v, value[b, i], gamma)
            a = d + gamma * lam * a if mix is None else mix(d, a, gamma, lam)
            out[b, i], v = a, value[b, i]
    return out, out + value
@wrong("returns|value|a \\+ v|advantage \\+|missing|\\[1\\]")
def gae(reward, value, mask, gamma=1., lam=.95):
    a, _ = _adv(reward, value, mask, gamma, lam)
    return a, a
@wrong("gap|stepped over|tool")
def gae(reward, value, mask, gamma=1., lam=.95): return _adv(reward, value, mask, gamma, lam, gap=False)
@wrong("sign|minus|value|turned|exchang|swap")
def gae(reward, value, mask, gamma=1., lam=.95): return _adv(reward, value, mask, gamma, lam, delta=lambda r, n, v, g: r - g * n + v)
@wrong("next value|v_?\\{?i ?\\+ ?1|value after|gamma|bootstrap|value")
def gae(reward, value, mask, gamma=1., lam=.95): return _adv(reward, value, mask, gamma, lam, delta=lambda r, n, v, g: r - v)
@wrong("value|v_i|baseline|minus")
def gae(reward, value, mask, gamma=1., lam=.95): return _adv(reward, value, mask, gamma, lam, delta=lambda r, n, v, g: r + g * n)
@wrong("gamma|γ")
def gae(reward, value, mask, gamma=1., lam=.95): return _adv(reward, value, mask, gamma, lam, mix=lambda d, a, g, l: d + l * a)
@wrong("lam|λ")
def gae(reward, value, mask, gamma=1., lam=.95): return _adv(reward, value, mask, gamma, lam, mix=lambda d, a, g, l: d + g * a)
@wrong("1 - |weight|average|mix|delta|factor|lam|λ")
def gae(reward, value, mask, gamma=1., lam=.95): # an average of both
    return _adv(reward, value, mask, gamma, lam, mix=lambda d, a, g, l: (1 - l) * d + g * l * a)
@wrong("last|nothing follows|after|bootstrap|0")
def gae(reward, value, mask, gamma=1., lam=.95): # the last value follows itself
    return _adv(reward, value, mask, gamma, lam, start=lambda v: v[mask[0]][-1] if len(v) == 0 else v[v != 0][-1] if (v != 0).any() else 0.)
@wrong("forward|direction|backward|time|from the (last|end)|order|turned|revers|flip")
def gae(reward, value, mask, gamma=1., lam=.95):
    a, g = _adv(reward.flip(1), value.flip(1), mask.flip(1), gamma, lam)
    return a.flip(1), g.flip(1)
@wrong("returns|rewards|\\[1\\]|monte carlo|reward to go|advantage \\+|a \\+ v")
def gae(reward, value, mask, gamma=1., lam=.95): # returns of rewards alone
    a, _ = _adv(reward, value, mask, gamma, lam)
    return a, _adv(reward, torch.zeros_like(value).masked_fill(~mask, 0), mask, gamma, 1.)[0]
@wrong("normalis|standard|mean|whiten|std")
def gae(reward, value, mask, gamma=1., lam=.95):
    a, g = _adv(reward, value, mask, gamma, lam)
    return ((a - a[mask].mean()) / (a[mask].std() + 1e-8)).masked_fill(~mask, 0), g
@wrong("nan|masked|prompt|pads|0 times|multipl")
def gae(reward, value, mask, gamma=1., lam=.95):
    a, g = _adv(reward * mask, value * mask, mask, gamma, lam)
    return a, (a + value * mask)
@wrong("return|mask|pads|prompt|outside|0")
def gae(reward, value, mask, gamma=1., lam=.95): # the returns keep the values of prompt and pads
    a, _ = _adv(reward, value, mask, gamma, lam)
    return a, a + at_least_float32(value)[0]
@wrong("square|twice|power|gamma|γ|lam|λ|\\*\\*")
def gae(reward, value, mask, gamma=1., lam=.95): return _adv(reward, value, mask, gamma, lam, mix=lambda d, a, g, l: d + (g * l)**2 * a)
@wrong("default|lam|.95|λ")
def gae(reward, value, mask, gamma=1., lam=.9): return _adv(reward, value, mask, gamma, lam)
@right
def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = at_least_float32(reward, value)
    A, G = torch.zeros_like(reward), torch.zeros_like(reward)
    for b, m in enumerate(mask):
        r, v = reward[b][m], value[b][m]
        if not len(r): continue
        d = r + gamma * torch.cat([v[1:], v.new_zeros(1)]) - v
        power = torch.arange(len(d))
        w = torch.where(power[None] >= power[:, None], (gamma * lam)**(power[None] - power[:, None]).clamp(min=0).to(d), 0.)
        A[b, m] = w @ d
        G[b, m] = w @ d + v
    return A, G
@right
def gae(reward, value, mask, gamma=1., lam=.95): return _adv(reward, value, mask, gamma, lam)

@wrong("sign|minus|beta|β|turned|penalty")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    p = -kl_penalty(logp, ref_logp, mask, beta)
    return torch.where(mask & (mask.flip(1).cumsum(1).flip(1) == 1), p + score.detach()[:, None], p)
@wrong("gradient|detach")
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    p = kl_penalty(logp, ref_logp, mask, beta)
    return torch.where(mask & (mask.flip(1).cumsum(1).flip(1) == 1), p + score[:, None], p)
@right
def ppo_rewards(score, logp, ref_logp, mask, beta=.1):
    logp, ref_logp = at_least_float32(logp.detach(), ref_logp.detach())
    r = -beta * (logp - ref_logp).masked_fill(~mask, 0)
    is_last = mask.flip(1).cumsum(1).flip(1).eq(1) & mask
    return r + is_last * score.detach()[:, None].to(r)

@wrong("vf_coef|coefficient|weight|\\bc\\b")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return mean_over(policy_part(logp, old_logp, advantage, cliprange) + clipped_value_loss(value, old_value, returns, cliprange_value), mask)
@wrong("sign|minus|plus|added|subtract|turned")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return mean_over(policy_part(logp, old_logp, advantage, cliprange) - vf_coef * clipped_value_loss(value, old_value, returns, cliprange_value), mask)
@wrong("sum|mean|number of tokens|divid")
def ppo_loss(logp, old_logp, advantage, value, old_value, returns, mask, cliprange=.2, cliprange_value=.2, vf_coef=.1):
    return (policy_part(logp, old_logp, advantage, cliprange) + vf_coef * clipped_value_loss(value, old_value, returns, cliprange_value)).masked_fill(~mask, 0).sum()

# ---------------------------------------------------------------- 09
def _others(r, group, i): return r[(group == group[i]) & (torch.arange(len(r)) != i) & ~r.isnan()]
@wrong("group|prompt|batch")
def leave_one_out(reward, group):
    g = torch.zeros_like(group)
    return torch.stack([reward[i] - _others(reward, g, i).mean() if len(_others(reward, g, i)) and not reward[i].isnan() else torch.tensor(0.) for i in range(len(reward))])
@wrong("alone|single|one answer|only")
def leave_one_out(reward, group):
    return torch.stack([reward[i] - (_others(reward, group, i).mean() if len(_others(reward, group, i)) else 0.) if not reward[i].isnan() else torch.tensor(0.).to(reward) for i in range(len(reward))])
@right
def leave_one_out(reward, group):
    out = torch.zeros_like(reward)
    for i in range(len(reward)):
        rest = _others(reward, group, i)
        if len(rest) and not reward[i].isnan(): out[i] = reward[i] - rest.sum() / len(rest)
    return out

@wrong("1e-4|10\\^-4|0.0001|epsilon|added|small")
def group_normalised(reward, group):
    out = torch.zeros_like(reward)
    for g in group.unique():
        r = reward[(group == g) & ~reward.isnan()]
        if len(r) > 1 and r.std() > 0: out[(group == g) & ~reward.isnan()] = (r - r.mean()) / r.std()
    return out
@wrong("standard deviation|std|divid|spread")
def group_normalised(reward, group): return group_centered(reward, group)
@wrong("batch|group")
def group_normalised(reward, group):
    a = group_centered(reward, group)
    known = a[~reward.isnan()]
    return a / (known.std() + 1e-4) if len(known) > 1 else a

@wrong("dapo|all tokens|every token|masked|number of")
def loss_weights(mask, loss_type, max_length):
    if loss_type == "dapo": return mask / mask.numel()
    if loss_type == "grpo": return mask / mask.sum(1, keepdim=True).clamp(min=1) / len(mask)
    if loss_type == "dr_grpo": return mask / (len(mask) * max_length)
    raise ValueError(loss_type)
@wrong("dr_grpo|answers|rows")
def loss_weights(mask, loss_type, max_length):
    if loss_type == "dapo": return mask / mask.sum().clamp(min=1)
    if loss_type == "grpo": return mask / mask.sum(1, keepdim=True).clamp(min=1) / len(mask)
    if loss_type == "dr_grpo": return mask / max_length
    raise ValueError(loss_type)
@wrong("valueerror|raise|refuse|word|error")
def loss_weights(mask, loss_type, max_length):
    if loss_type == "dapo": return mask / mask.sum().clamp(min=1)
    if loss_type == "grpo": return mask / mask.sum(1, keepdim=True).clamp(min=1) / len(mask)
    return mask / (len(mask) * max_length)

@wrong("1 - |lower|low|below|both|one side")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2): return -ratio.clamp(max=1 + epsilon_high).detach() * advantage * ratio.log()
@wrong("min|ppo|log|clip")
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2): return -torch.minimum(ratio * advantage, ratio.clamp(1 - epsilon, 1 + epsilon_high) * advantage)
@right
def cispo_loss(ratio, advantage, epsilon=.2, epsilon_high=.2):
    with torch.no_grad(): w = torch.clip(ratio, 1 - epsilon, 1 + epsilon_high) * advantage
    return -(w * torch.log(ratio))

@wrong("itself|others|k - 1|leave|own")
def fixed_groups(reward, k):
    r = reward.view(-1, k)
    return (r - r.mean(1, keepdim=True)).flatten()
@wrong("prompt|view|column|same|first")
def fixed_groups(reward, k):
    r = reward.view(k, -1)
    return (r - (r.sum(0) - r) / (k - 1)).flatten()
@right
def fixed_groups(reward, k):
    out = []
    for p in reward.split(k): out += [p[i] - (p.sum() - p[i]) / (k - 1) for i in range(k)]
    return torch.stack(out)

# ---------------------------------------------------------------- 10
@wrong("ref_rejected|reference|missing")
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    a, b, c, d = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return (a - c) - b
@wrong("reference|ref_|swap|exchang|turned")
def log_ratio_gap(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
    a, b, c, d = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return (a - d) - (b - c)
@wrong("sign|minus|turned|swap|chosen")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    if not beta > 0: raise ValueError("beta")
    a, b, c, d = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return -logsigmoid(-beta * (a - b - c + d))
@wrong("log")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    if not beta > 0: raise ValueError("beta")
    a, b, c, d = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return -(beta * (a - b - c + d)).sigmoid()
@wrong("divid|beta|times|multipl")
def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=.1):
    if not beta > 0: raise ValueError("beta")
    a, b, c, d = at_least_float32(policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    return softplus(-(a - b - c + d) / beta)

# ---------------------------------------------------------------- 11, 12
@wrong("report|other|choose|same questions")
def honest_gain(scores, start, chooses):
    best = scores[:, chooses].mean(1).argmax().item()
    g = (scores[best] - start)[chooses]
    return best, g.mean().item(), (g.std() / len(g)**.5).item()
@wrong("differen|start|question by question|paired|subtract")
def honest_gain(scores, start, chooses): # errors of the two, as if unpaired
    best = scores[:, chooses].mean(1).argmax().item()
    a, b = scores[best][~chooses], start[~chooses]
    return best, (a.mean() - b.mean()).item(), ((a.var() + b.var()) / len(a)).sqrt().item()
@wrong("n - 1|unbiased|correction|divides by")
def honest_gain(scores, start, chooses):
    best = scores[:, chooses].mean(1).argmax().item()
    g = (scores[best] - start)[~chooses]
    return best, g.mean().item(), (g.std(correction=0) / len(g)**.5).item()
@right
def honest_gain(scores, start, chooses):
    picks, rest = chooses.nonzero().flatten(), (~chooses).nonzero().flatten()
    best = int(torch.argmax(scores[:, picks].sum(1)))
    d = scores[best, rest] - start[rest]
    return best, float(d.mean()), float(d.var() / len(d))**.5

@wrong("root|standard error|len|\\bn\\b")
def kl_is_negative(kl): return bool(kl.mean() + 2 * kl.std() < 0)
@wrong("two|twice|2|factor")
def kl_is_negative(kl): return bool(kl.mean() + kl.std() / len(kl)**.5 < 0)
@wrong("both|or\\b|and\\b|either")
def flat_while_moving(reward, kl, nats, gain):
    h = len(reward) // 2
    return bool(kl[h:].mean() - kl[:h].mean() > nats or reward[h:].mean() - reward[:h].mean() < gain)
@wrong("odd|middle|half")
def flat_while_moving(reward, kl, nats, gain):
    h = (len(reward) + 1) // 2
    return bool(kl[h:].mean() - kl[:h].mean() > nats and reward[h:].mean() - reward[:h].mean() < gain)

# ---------------------------------------------------------------- 13
@wrong("question|prompt|every|first|each")
def judge_messages(tokenizer, prompt, answers):
    return [prompt.render(*a[:-1], escape_special_tokens(tokenizer, a[-1])) for a in answers]
@wrong("template|after|render|before")
def judge_messages(tokenizer, prompt, answers): return [escape_special_tokens(tokenizer, prompt.render(*a)) for a in answers]

@wrong("0 is|zero|\\b0\\b")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    found = [m[1] for m in score_regex(pattern, high).finditer(text)]
    v = found[-1 if last else 0] if found else None
    v = float(v) if v else 0.
    return v if v and low <= v <= high else None
@wrong("last|first")
def parse_score(text, pattern="Score: {{ reward }}", low=0., high=5., last=True):
    found = [m[1] for m in score_regex(pattern, high).finditer(text)]
    v = found[-1] if found else None
    return float(v) + 0. if v and low <= float(v) <= high else None

def _agree(verdicts, true, bias=lambda s, g: s - g, rounded=torch.round, chance=None, pairs=pair_accuracy):
    s = verdicts.score()
    k = ~s.isnan()
    a, g = s[k].double(), true[k].double()
    r = rounded(a)
    p = (r == g).double().mean().item()
    e = (r[:, None] == g).double().mean().item() if chance is None else chance(r, g)
    return dict(parse_rate=verdicts.parse_rate(), n_unparsed=int((~k).sum()), vote_std=verdicts.vote_std(), pearson_r=torch.corrcoef(torch.stack([a, g]))[0, 1].item(),
                exact_match=p, kappa=(p - e) / (1 - e) if e < 1 else math.nan, bias=bias(a, g).mean().item(), pair_accuracy=pairs(s, true))
@wrong("bias|sign|turned")
def agreement(verdicts, true): return _agree(verdicts, true, bias=lambda s, g: g - s)
@wrong("bias|absolute|abs")
def agreement(verdicts, true): return _agree(verdicts, true, bias=lambda s, g: (s - g).abs())
@wrong("round|half|even")
def agreement(verdicts, true): return _agree(verdicts, true, rounded=lambda x: (x + .5).floor())
@wrong("kappa|p_e|chance|frequenc|uniform")
def agreement(verdicts, true): return _agree(verdicts, true, chance=lambda r, g: 1 / len(g.unique()))

# ---------------------------------------------------------------- 14, 15
@wrong("swap|exchang|order|chosen|turned|rejected")
def choose_pairs(scores, select=max_min):
    out = []
    for p, row in enumerate(scores):
        known = [i for i, s in enumerate(row) if s == s]
        if len(known) < 2: continue
        a, b = (known[k] for k in select([row[i] for i in known]))
        if row[a] != row[b]: out.append((p, b, a))
    return out
@wrong("equal|tie|same")
def choose_pairs(scores, select=max_min):
    out = []
    for p, row in enumerate(scores):
        known = [i for i, s in enumerate(row) if s == s]
        if len(known) >= 2: out.append((p, *(known[k] for k in select([row[i] for i in known]))))
    return out
@wrong("select|rule|given")
def choose_pairs(scores, select=max_min):
    out = []
    for p, row in enumerate(scores):
        known = [i for i, s in enumerate(row) if s == s]
        if len(known) < 2: continue
        a, b = max(known, key=lambda i: row[i]), min(known, key=lambda i: row[i])
        if row[a] != row[b]: out.append((p, a, b))
    return out

@wrong("sign|minus|turned|negative")
def replay_loss(pair_loss, old_logp, weight, mean_length):
    if not mean_length > 0: raise ValueError("T")
    return pair_loss + weight / mean_length * old_logp.sum()
@wrong("sum|mean")
def replay_loss(pair_loss, old_logp, weight, mean_length):
    if not mean_length > 0: raise ValueError("T")
    return pair_loss - weight / mean_length * old_logp.mean()
@wrong("own|each|row|one t|length")
def replay_loss(pair_loss, old_logp, weight, mean_length):
    if not mean_length > 0: raise ValueError("T")
    return pair_loss - weight * (old_logp.sum(1) / (old_logp != 0).sum(1).clamp(min=1)).sum()

@wrong("detach|gradient|data|constant")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.): return softplus(-beta * (real - opponent_real - generated + opponent_generated))
@wrong("opponent|reference")
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.): return softplus(-beta * (real - generated))
@right
def spin_loss(real, generated, opponent_real, opponent_generated, beta=1.):
    t = beta * ((real - opponent_real.detach()) - (generated - opponent_generated.detach()))
    return -F.logsigmoid(t)
@wrong("sum|normalis|divid")
def best_reply(p_opponent, p_real, beta): return p_opponent * (p_real / p_opponent)**(1 / beta)
@wrong("revers|swap|exchang|turned|real|ratio|opponent")
def best_reply(p_opponent, p_real, beta):
    w = p_opponent * (p_opponent / p_real)**(1 / beta)
    return w / w.sum()
def _reply(o, r, beta):
    w = o * (r / o)**(1 / beta)
    return w / w.sum()
@wrong("first|p_first|one (player )?(too few|missing|fewer)|n \\+ 1|begin")
def spin_game(p_first, p_real, beta, n):
    players = [p_first]
    for _ in range(n): players.append(_reply(players[-1], p_real, beta))
    return players[1:]
@wrong("last player|same opponent|first|each")
def spin_game(p_first, p_real, beta, n): return [p_first] + [_reply(p_first, p_real, beta) for _ in range(n)]
@right
def spin_game(p_first, p_real, beta, n): return [p_first] if n == 0 else [p_first, *spin_game_rest(_reply(p_first, p_real, beta), p_real, beta, n - 1)]
def spin_game_rest(p, real, beta, n): return [p] + (spin_game_rest(_reply(p, real, beta), real, beta, n - 1) if n else [])

# ---------------------------------------------------------------- 16
def _target(x, value, config, whole=None, last=None, gamma=None, n=None, bound=None, after=None, fill=True, ahead=None):
    whole = x.ended[:, None] | (config.on_truncation == "terminal") if whole is None else whole
    d = discounts(x, config) if gamma is None else gamma
    last = x.last() if last is None else last
    one = x.reward + d * value.masked_fill(last & whole, 0.)
    y, steps = one, config.n_step if n is None else n
    for _ in range(steps - 1): y = torch.where(last, one, x.reward + d * (x.ahead(y) if ahead is None else ahead(y)))
    if config.mc_bound:
        G = monte_carlo_returns(x, d)
        y = torch.where(whole, torch.maximum(y, G), y) if bound is None else bound(y, G, whole)
    return y.masked_fill(~x.mask, 0.) if fill else y
@wrong("n_step|one step too many|n - 1|once too often|steps?")
def bellman_targets(x, value, config): return _target(x, value, config, n=config.n_step + 1)
@wrong("n_step|several steps|one step|sum of n|steps?")
def bellman_targets(x, value, config): return _target(x, value, config, n=1)
@wrong("min\\b|max|at least|at most|larger|smaller")
def bellman_targets(x, value, config): return _target(x, value, config, bound=lambda y, G, w: torch.where(w, torch.minimum(y, G), y))
@wrong("bound|bootstrap|truncat|cut|part")
def bellman_targets(x, value, config): return _target(x, value, config, bound=lambda y, G, w: torch.maximum(y, G))
@wrong("bound|mc_bound|observed return")
def bellman_targets(x, value, config): return _target(x, value, replace(config, mc_bound=False))
@wrong("truncat|bootstrap|terminal|on_truncation|nothing follows")
def bellman_targets(x, value, config): return _target(x, value, config, whole=torch.ones_like(x.ended)[:, None])
@wrong("truncat|bootstrap|terminal|on_truncation|asked|ended")
def bellman_targets(x, value, config): return _target(x, value, config, whole=x.ended[:, None])
@wrong("truncat|bootstrap|terminal|eos|ended|turned|nothing follows|last")
def bellman_targets(x, value, config): return _target(x, value, config, whole=~x.ended[:, None] | (config.on_truncation == "terminal"))
@wrong("γ|gamma|discount")
def bellman_targets(x, value, config): return _target(x, value, config, gamma=torch.ones_like(x.reward))
@wrong("per|discount_per|γ|gamma|discount|token")
def bellman_targets(x, value, config): return _target(x, value, config, gamma=torch.full_like(x.reward, config.gamma))
@wrong("gap|next column|ahead|turn|response token|stepped")
def bellman_targets(x, value, config): return _target(x, value, config, ahead=lambda y: torch.cat([y[:, 1:], torch.zeros_like(y[:, :1])], 1))
@wrong("outside|prompt|pads|mask")
def bellman_targets(x, value, config): return _target(x, value, config, fill=False)
@wrong("shift|next|before|after|one (too|token)|value\\[")
def bellman_targets(x, value, config): return _target(x, torch.cat([value[:, 1:], torch.zeros_like(value[:, :1])], 1), config)
@wrong("reward")
def bellman_targets(x, value, config): # a reward at the last token only
    return _target(replace(x, reward=x.reward * x.last()), value, config)
@wrong("replac|instead|max|bound|return|at least|larger")
def bellman_targets(x, value, config): return _target(x, value, config, bound=lambda y, G, w: torch.where(w, G, y))
@wrong("last|nothing follows|end of|response")
def bellman_targets(x, value, config): # the last column, not the last token
    at = torch.zeros_like(x.mask)
    at[:, -1] = True
    return _target(x, value, config, last=at)
@right
def bellman_targets(x, value, config):
    d, y = discounts(x, config), torch.zeros_like(x.reward)
    for b, m in enumerate(x.mask):
        at = m.nonzero().flatten().tolist()
        whole = bool(x.ended[b]) or config.on_truncation == "terminal"
        G = 0.
        for k in reversed(range(len(at))):
            G = x.reward[b, at[k]] + d[b, at[k]] * G
            total, f = 0., 1.
            steps = at[k:k + config.n_step]
            for i in steps: total, f = total + f * x.reward[b, i], f * d[b, i]
            if not (steps[-1] == at[-1] and whole): total = total + f * value[b, steps[-1]]
            y[b, at[k]] = max(total, G) if config.mc_bound and whole else total
    return y

def _ql(nets, x, config, state=moved, pull=lambda r, c: c.alpha / 2 * r.sum(), misfit=lambda td: (td**2).sum() / 2, y=None, low=None, n=lambda x: x.mask.sum(), log=None, action=None):
    ids, at = x.seqs.ids, x.positions()
    h = hidden_states(nets.online, x.seqs)
    t = right_targets(x, next_values(nets, x, h, config), config)[at] if y is None else y(nets, x, h, config, at)
    q, rest = q_terms(nets.online.get_output_embeddings(), state(h)[at], ids[at] if action is None else action(ids, at), nets.allowed, config.min_return if low is None else low)
    sums = dict(td_loss=((q - t)**2).sum().detach(), conservative_loss=rest.sum().detach(), q_values=q.sum().detach(), td_target=t.sum().detach())
    return misfit(q - t) + pull(rest, config), n(x), sums if log is None else log(sums, q, t, rest)
@wrong("half|1/2|/ 2|twice|factor 2|factor of 2|½")
def q_loss(nets, x, config): return _ql(nets, x, config, misfit=lambda d: (d**2).sum())
@wrong("alpha|α")
def q_loss(nets, x, config): return _ql(nets, x, config, pull=lambda r, c: r.sum() / 2)
@wrong("conservative|others|alpha|α|second term")
def q_loss(nets, x, config): return _ql(nets, x, config, pull=lambda r, c: 0.)
@wrong("absolute|square|abs")
def q_loss(nets, x, config): return _ql(nets, x, config, misfit=lambda d: d.abs().sum() / 2)
@wrong("min_return|r_min|lowest|lowest possible|0")
def q_loss(nets, x, config): return _ql(nets, x, config, low=0.)
@wrong("tokens|rows|number|count|mask")
def q_loss(nets, x, config): return _ql(nets, x, config, n=lambda x: torch.tensor(len(x.mask)))
@wrong("td_loss|half|square|/ 2")
def q_loss(nets, x, config): return _ql(nets, x, config, log=lambda s, q, t, r: s | dict(td_loss=s["td_loss"] / 2))
@wrong("gradient|detach|q_values")
def q_loss(nets, x, config): return _ql(nets, x, config, log=lambda s, q, t, r: s | dict(q_values=q.sum()))
@wrong("target|reward|value|monte carlo|bootstrap|bellman")
def q_loss(nets, x, config): # regresses on observed returns
    return _ql(nets, x, config, y=lambda nets, x, h, c, at: monte_carlo_returns(x, discounts(x, c))[at])
@wrong("target network|online|slow|target")
def q_loss(nets, x, config):
    def own(nets, x, h, c, at):
        slow = nets.target
        try:
            nets.target = nets.online
            return right_targets(x, next_values(nets, x, h, c), c)[at].detach()
        finally: nets.target = slow
    return _ql(nets, x, config, y=own)
@wrong("shift|before|after|state")
def q_loss(nets, x, config): return _ql(nets, x, config, state=lambda h: moved(moved(h)))
@wrong("sign|minus|plus|added|turned|conservative")
def q_loss(nets, x, config): return _ql(nets, x, config, pull=lambda r, c: -c.alpha / 2 * r.sum())
@wrong("mean|average|divid|sum")
def q_loss(nets, x, config): return _ql(nets, x, config, misfit=lambda d: (d**2).mean() / 2)
@right
def q_loss(nets, x, config):
    m, ids = x.mask, x.seqs.ids
    after = hidden_states(nets.online, x.seqs)
    before = torch.cat([torch.zeros_like(after[:, :1]), after[:, :-1]], 1)
    y = right_targets(x, next_values(nets, x, after, config), config)[m].detach()
    q, rest = q_terms(nets.online.get_output_embeddings(), before[m], ids[m], nets.allowed, config.min_return)
    err = (q - y).square()
    with torch.no_grad(): log = dict(td_loss=err.sum(), conservative_loss=rest.sum(), q_values=q.sum(), td_target=y.sum())
    return .5 * err.sum() + .5 * config.alpha * rest.sum(), m.sum(), {k: v.detach() for k, v in log.items()}

@wrong("rate|1 - |swap|exchang|share|turned")
def fixed_soft_update(slow, fast, rate, step): return [rate * a + (1 - rate) * b.detach() for a, b in zip(slow, fast)]
@wrong("gradient|detach")
def fixed_soft_update(slow, fast, rate, step): return [a + rate * (b - a) for a, b in zip(slow, fast)]
@wrong("in place|new tensor|changes|input|argument|writes")
def fixed_soft_update(slow, fast, rate, step):
    for a, b in zip(slow, fast): a.data.lerp_(b.detach(), rate)
    return list(slow)

# ---------------------------------------------------------------- 17, 18, 19
@wrong("value|text|digit by digit|leading|int|as a number")
def fixed_number_reward(reply, right):
    found = re.findall(r"\d+", reply)
    return float(bool(found) and int(found[-1]) == int(right))
@wrong("last|any|first|anywhere|contain")
def fixed_number_reward(reply, right): return float(right in re.findall(r"\d+", reply))
@wrong("want|answer|divid|length|len")
def reward_until_wrong(answer, want):
    out, ok = [], True
    for i, t in enumerate(answer):
        ok = ok and i < len(want) and t == want[i]
        out.append(1 / len(answer) if ok else 0.)
    return out
@wrong("until|before|after a wrong|luck|every token|first wrong|flag")
def reward_until_wrong(answer, want): return [1 / len(want) if i < len(want) and t == want[i] else 0. for i, t in enumerate(answer)]
@right
def reward_until_wrong(answer, want):
    n = 0
    while n < min(len(answer), len(want)) and answer[n] == want[n]: n += 1
    return [1 / len(want)] * n + [0.] * (len(answer) - n)
@wrong("gamma|γ|discount")
def fixed_target(reward, value, last, gamma): return reward + value.detach().masked_fill(last, 0.)
@wrong("gamma|γ|reward|discount")
def fixed_target(reward, value, last, gamma): return gamma * (reward + value.detach().masked_fill(last, 0.))
@wrong("gradient|detach")
def fixed_target(reward, value, last, gamma): return reward + gamma * value.masked_fill(last, 0.)
@wrong("others|one fewer|m - 1|actions|number|- 1")
def fixed_pull(q, ids, mask, lowest):
    s = (q - lowest)**2
    o = (s.sum(-1) - s.gather(-1, ids[..., None])[..., 0]) / q.shape[-1]
    return (o * mask).sum() / mask.sum()
@wrong("mask|tokens|all places|number")
def fixed_pull(q, ids, mask, lowest):
    s = (q - lowest)**2
    return ((s.sum(-1) - s.gather(-1, ids[..., None])[..., 0]) / (q.shape[-1] - 1)).mean()
@wrong("12|twelve|at most|fewer|<")
def short_right(prompts, responses, answer):
    out = []
    for text, w in zip(responses, answer):
        n = re.findall(r"\d+", text)
        out.append(0. if not n or n[-1] != str(w) else 1. if len(text.split()) < 12 else .5)
    return out
@wrong("str|number|text|int|type")
def short_right(prompts, responses, answer):
    out = []
    for text, w in zip(responses, answer):
        n = re.findall(r"\d+", text)
        out.append(0. if not n or n[-1] != w else 1. if len(text.split()) <= 12 else .5)
    return out

# ---------------------------------------------------------------- 20, 21
@wrong("mask|outside|rubbish")
def importance_ratios(log_ratio, mask, level):
    x = at_least_float32(log_ratio)[0]
    return x.sum(1, keepdim=True).exp() if level == "sequence" else x.masked_fill(~mask, 0).exp()
@wrong("exp|log|ratio")
def importance_ratios(log_ratio, mask, level):
    x = at_least_float32(log_ratio)[0].masked_fill(~mask, 0)
    return x.sum(1, keepdim=True) if level == "sequence" else x
@wrong("shape|\\(b 1\\)|axis|column|keepdim")
def importance_ratios(log_ratio, mask, level):
    x = at_least_float32(log_ratio)[0].masked_fill(~mask, 0)
    return x.sum(1).exp() if level == "sequence" else x.exp()
@right
def importance_ratios(log_ratio, mask, level):
    r = torch.where(mask, at_least_float32(log_ratio)[0], 0.).exp()
    return torch.where(mask, at_least_float32(log_ratio)[0], 0.).sum(1, keepdim=True).exp() if level == "sequence" else r
@wrong("share|divid|\\bn\\b|number")
def effective_sample_size(log_ratio): return 1 / (log_ratio.softmax(0)**2).sum()
@wrong("overflow|scale|inf|softmax|nan")
def effective_sample_size(log_ratio):
    w = log_ratio.exp()
    return w.sum()**2 / (len(w) * (w**2).sum())
@wrong("end itself|at the end|equal|<|>|kept")
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    return ratio.masked_fill((ratio <= floor) | (ratio >= cap), 0.) if how == "mask" else ratio.clamp(floor, cap)
@wrong("floor|below|lower|one side|smallest")
def bounded_weights(ratio, cap, floor=0., how="truncate"): return ratio.masked_fill((ratio < floor) | (ratio > cap), 0.) if how == "mask" else ratio.clamp(max=cap)
@wrong("revers|student|swap|exchang|teacher")
def forward_kl(logp, teacher_logp, token): return (logp.exp() * (logp - teacher_logp)).sum(-1)
@wrong("sum|mean|number of (words|tokens)|divid")
def forward_kl(logp, teacher_logp, token): return (teacher_logp.exp() * (teacher_logp - logp)).mean(-1)
@right
def forward_kl(logp, teacher_logp, token):
    p = teacher_logp.exp()
    return torch.einsum("...v,...v->...", p, teacher_logp) - torch.einsum("...v,...v->...", p, logp)
@wrong("sign|turned|minus")
def sampled_kl(logp, teacher_logp, token):
    a, b = (x.gather(-1, token[..., None])[..., 0] for x in (logp, teacher_logp))
    return (b - a).detach() * a
@wrong("probab|expect|exp|weigh|log")
def sampled_kl(logp, teacher_logp, token):
    a, b = (x.gather(-1, token[..., None])[..., 0] for x in (logp, teacher_logp))
    return (a - b).detach() * a.exp()
@wrong("wide|width|longest|columns|shape")
def fixed_alignment(x, mask):
    out = torch.zeros_like(x)
    out[torch.arange(x.shape[1]) < mask.sum(1)[:, None]] = x[mask]
    return out
@wrong("right|left|end|start|column 0")
def fixed_alignment(x, mask): # moved to the right
    n = mask.sum(1)
    out = x.new_zeros(len(x), int(n.max()))
    out[torch.arange(out.shape[1]) >= out.shape[1] - n[:, None]] = x[mask]
    return out
@right
def fixed_alignment(x, mask): return torch.nn.utils.rnn.pad_sequence([r[m] for r, m in zip(x, mask)], batch_first=True)

# ---------------------------------------------------------------- 22
@wrong("below 0|fault|earned|negative|clamp|above 0")
def rubric_reward(marks, weights, gates): return (weights * marks).sum(1) / weights.sum() * marks[:, gates].prod(1)
@wrong("gate")
def rubric_reward(marks, weights, gates): return (weights * marks).sum(1) / weights.clamp(min=0).sum() * (marks[:, gates].amax(1) if gates.any() else 1)
@wrong("divid|share|all points|normalis")
def rubric_reward(marks, weights, gates): return (weights * marks).sum(1) * marks[:, gates].prod(1)
@right
def rubric_reward(marks, weights, gates):
    total = weights[weights > 0].sum()
    open_ = ((marks == 1) | ~gates).all(1)
    return torch.where(open_, marks @ weights / total, torch.zeros(len(marks)).to(weights))
@wrong("sum(med)? first|separate|each reward|before|after|normalis")
def normalised_sum(rewards, weights, group): return normalised_in_group((rewards * weights).nansum(1), group).masked_fill(rewards.isnan().all(1), math.nan)
@wrong("nan|nobody|no reward|scored")
def normalised_sum(rewards, weights, group): return torch.stack([normalised_in_group(r, group) for r in rewards.T], 1) @ weights
@wrong("weight")
def normalised_sum(rewards, weights, group):
    return torch.stack([normalised_in_group(r, group) for r in rewards.T], 1).sum(1).masked_fill(rewards.isnan().all(1), math.nan)
@right
def normalised_sum(rewards, weights, group):
    out = sum(w * normalised_in_group(rewards[:, k], group) for k, w in enumerate(weights))
    return torch.where((~rewards.isnan()).any(1), out, torch.tensor(math.nan).to(out))
@wrong("last|first")
def parse_rubric(reply, items):
    found = [re.search(rf"\b{re.escape(x)}: (yes|no)\b", reply) for x in items]
    return [float(m[1] == "yes") if m else math.nan for m in found]
@wrong("word|edge|unclean|inside|\\\\b|boundary|another item")
def parse_rubric(reply, items):
    found = [re.findall(rf"{re.escape(x)}: (yes|no)", reply) for x in items]
    return [float(x[-1] == "yes") if x else math.nan for x in found]
@wrong("nan|no verdict|without")
def parse_rubric(reply, items):
    found = [re.findall(rf"\b{re.escape(x)}: (yes|no)\b", reply) for x in items]
    return [float(bool(x) and x[-1] == "yes") for x in found]

# ---------------------------------------------------------------- 23
@wrong("from 0|begins?|start|number 0|one too (high|many)|- 1|counted from")
def turn_numbers(mask):
    b = torch.cat([torch.zeros_like(mask[:, :1]), mask[:, :-1]], 1)
    return (mask & ~b).cumsum(1).masked_fill(~mask, -1)
@wrong("-1|outside|where nothing|gap|not written")
def turn_numbers(mask):
    b = torch.cat([torch.zeros_like(mask[:, :1]), mask[:, :-1]], 1)
    return (mask & ~b).cumsum(1) - 1
def _turn(reward, group, turn, go=None, mean=None, pick=None):
    r = reward.nan_to_num(0.)
    g = r.flip(1).cumsum(1).flip(1) if go is None else go(r)
    g = g.masked_fill(reward.isnan(), math.nan)
    a = torch.zeros_like(g)
    for i in range(len(g)):
        same = g[group == group[i]]
        a[i] = g[i] - (same.nanmean(0) if mean is None else mean(same, g, i))
    return (a.nan_to_num(0.) if pick is None else a).gather(1, turn.clamp(min=0)).masked_fill(turn < 0, 0.)
@wrong("sum over all|whole|total|same for every turn|from (the|a) turn|every turn|before|to go")
def turn_advantages(reward, group, turn): return _turn(reward, group, turn, go=lambda r: r.sum(1, keepdim=True).expand_as(r).clone())
@wrong("group|prompt|batch")
def turn_advantages(reward, group, turn): return _turn(reward, torch.zeros_like(group), turn)
@wrong("mean|baseline|group|less")
def turn_advantages(reward, group, turn): return _turn(reward, group, turn, mean=lambda s, g, i: 0.)
@wrong("turn|all turns|own turn|of that turn|each turn|one mean")
def turn_advantages(reward, group, turn): return _turn(reward, group, turn, mean=lambda s, g, i: s.nanmean())
@wrong("standard deviation|std|divid|normalis")
def turn_advantages(reward, group, turn):
    r = reward.nan_to_num(0.).flip(1).cumsum(1).flip(1).masked_fill(reward.isnan(), math.nan)
    a = torch.stack([normalised_in_group(c, group) for c in r.T], 1)
    return a.gather(1, turn.clamp(min=0)).masked_fill(turn < 0, 0.)
@wrong("itself|others|leave|own")
def turn_advantages(reward, group, turn): # mean of the others
    def others(s, g, i):
        rest = g[(group == group[i]) & (torch.arange(len(g)) != i)]
        return rest.nanmean(0).nan_to_num(0.) if len(rest) else torch.zeros_like(g[0])
    return _turn(reward, group, turn, mean=others)
@wrong("nothing was written|outside|gap|-1|prompt|0")
def turn_advantages(reward, group, turn):
    r = reward.nan_to_num(0.).flip(1).cumsum(1).flip(1).masked_fill(reward.isnan(), math.nan)
    return torch.stack([group_centered(c, group) for c in r.T], 1).gather(1, turn.clamp(min=0))
@wrong("own reward|this turn|itself|include|from (the|a|that) turn|after")
def turn_advantages(reward, group, turn): return _turn(reward, group, turn, go=lambda r: r.flip(1).cumsum(1).flip(1) - r)
@wrong("without|nan|no such turn|that have it|does not have|is not in")
def turn_advantages(reward, group, turn): return _turn(reward, group, turn, mean=lambda s, g, i: s.nan_to_num(0.).mean(0))
@wrong("turn after|next turn|one turn|previous|shift|before|number")
def turn_advantages(reward, group, turn): # each token gets the turn before
    return _turn(reward, group, torch.where(turn > 0, turn - 1, turn))
@wrong("sign|turned|minus")
def turn_advantages(reward, group, turn): return -_turn(reward, group, turn)
@wrong("median|mean")
def turn_advantages(reward, group, turn): return _turn(reward, group, turn, mean=lambda s, g, i: s.nanmedian(0).values)
@right
def turn_advantages(reward, group, turn): return _turn(reward, group, turn)
@right
def turn_advantages(reward, group, turn):
    out = torch.zeros(turn.shape).to(reward)
    for b in range(len(turn)):
        for t in range(turn.shape[1]):
            k = int(turn[b, t])
            if k < 0: continue
            go = [r[k:].nansum() for r, g in zip(reward, group) if g == group[b] and not r[k].isnan()]
            if not reward[b, k].isnan(): out[b, t] = reward[b, k:].nansum() - sum(go) / len(go)
    return out

@wrong("first part|even|odd|turned|alternate|swap|inserted")
def fixed_join(prompt, parts):
    ids, w = list(prompt), [False] * len(prompt)
    for k, p in enumerate(parts): ids, w = ids + list(p), w + [k % 2 == 1] * len(p)
    return ids, w
@wrong("prompt|in place|caller|changes|input|new list|argument")
def fixed_join(prompt, parts):
    w = [False] * len(prompt)
    for k, p in enumerate(parts):
        prompt += p
        w += [k % 2 == 0] * len(p)
    return prompt, w
@wrong("none")
def majority_vote(answers):
    votes = collections.Counter(answers)
    return votes.most_common(1)[0][0] if votes else None
@wrong("first|equal|tie|last")
def majority_vote(answers):
    best = None
    votes = collections.Counter(x for x in answers if x is not None)
    for x, n in votes.items():
        if best is None or n >= votes[best]: best = x
    return best

# ---------------------------------------------------------------- 24
def _pp(judge, labelled, gold, lam, sign=1, m=None, n=None, root=True, sq=True, cor=1):
    lam = torch.as_tensor(lam)
    m, n = m or gold.shape[-1], n or judge.shape[-1]
    e = gold.mean(-1) + sign * lam * (judge.mean(-1) - labelled.mean(-1))
    v = (gold - lam[..., None] * labelled).var(-1, correction=cor) / m + (lam**2 if sq else lam) * judge.var(-1, correction=cor) / n
    return e, v.sqrt() if root else v
@wrong("sign|turned|swap|minus|exchang")
def prediction_powered(judge, labelled, gold, lam=1.): return _pp(judge, labelled, gold, lam, sign=-1)
@wrong("root|variance")
def prediction_powered(judge, labelled, gold, lam=1.): return _pp(judge, labelled, gold, lam, root=False)
@wrong("square|λ²|lam|λ")
def prediction_powered(judge, labelled, gold, lam=1.): return _pp(judge, labelled, gold, lam, sq=False)
@wrong("number|\\bn\\b|\\bm\\b|swap|divid|judge")
def prediction_powered(judge, labelled, gold, lam=1.): return _pp(judge, labelled, gold, lam, n=gold.shape[-1])
@right
def prediction_powered(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    e = (gold - lam[..., None] * labelled).mean(-1) + lam * judge.mean(-1)
    a = (gold - lam[..., None] * labelled).std(-1)**2 / gold.shape[-1]
    b = (lam[..., None] * judge).std(-1)**2 / judge.shape[-1]
    return e, (a + b)**.5

@wrong("swap|exchang|q0|q1|sensitivity|specificity")
def rogan_gladen(judge, labelled, gold):
    q1 = (labelled * gold).sum(-1) / gold.sum(-1)
    q0 = ((1 - labelled) * (1 - gold)).sum(-1) / (1 - gold).sum(-1)
    return (judge.mean(-1) + q1 - 1) / (q0 + q1 - 1)
@wrong("verdict|labels?|gold|predictive|divid|sum")
def rogan_gladen(judge, labelled, gold): # shares of the verdicts, not of the labels
    q1 = (labelled * gold).sum(-1) / labelled.sum(-1)
    q0 = ((1 - labelled) * (1 - gold)).sum(-1) / (1 - labelled).sum(-1)
    return (judge.mean(-1) + q0 - 1) / (q0 + q1 - 1)
@right
def rogan_gladen(judge, labelled, gold):
    sens = (gold * labelled).mean(-1) / gold.mean(-1)
    false_alarm = ((1 - gold) * labelled).mean(-1) / (1 - gold).mean(-1)
    return (judge.mean(-1) - false_alarm) / (sens - false_alarm)
@wrong("share|weigh|mean of|equal")
def fixed_estimate(judge, labelled, gold): return torch.stack([gold[labelled == v].mean() for v in judge.unique()]).mean()
@wrong("labelled|share|all pairs|plain mean|strat")
def fixed_estimate(judge, labelled, gold): return gold.mean()
@wrong("without a label|nan|no label|missing")
def fixed_estimate(judge, labelled, gold): return sum((judge == v).float().mean() * gold[labelled == v].mean() for v in labelled.unique())
def _bt(wins, steps, won=None, centre=True, log=True, check=True):
    if check and not ((wins.sum(-1) > 0) & (wins.sum(-2) > 0)).all(): raise ValueError("all or none")
    p, games = torch.ones_like(wins[..., 0]), wins + wins.mT
    for _ in range(steps):
        p = (wins.sum(-1) if won is None else won(wins)) / (games / (p[..., :, None] + p[..., None, :])).sum(-1)
        p = p / p.mean(-1, keepdim=True)
    s = p.log() if log else p
    return s - s.mean(-1, keepdim=True) if centre else s
@wrong("losses|loses|column|transpos|sign|turned|wins of|axis")
def bradley_terry_scores(wins, steps=100): return _bt(wins, steps, won=lambda w: w.sum(-2))
@wrong("mean 0|mean of|subtract|centr|sum to")
def bradley_terry_scores(wins, steps=100): return _bt(wins, steps, centre=False)
@wrong("log")
def bradley_terry_scores(wins, steps=100): return _bt(wins, steps, log=False)
@wrong("valueerror|raise|refuse|infinite")
def bradley_terry_scores(wins, steps=100): return _bt(wins, steps, check=False)
@right
def bradley_terry_scores(wins, steps=100):
    if (wins.sum(-1) == 0).any() or (wins.sum(-2) == 0).any(): raise ValueError("all or none")
    logs = torch.zeros_like(wins[..., 0])
    for _ in range(steps):
        p = logs.exp()
        p = wins.sum(-1) / ((wins + wins.transpose(-1, -2)) / (p.unsqueeze(-1) + p.unsqueeze(-2))).sum(-1)
        logs = p.log() - p.log().mean(-1, keepdim=True)
    return logs
