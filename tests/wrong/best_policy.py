"Answers to the exercises of the chapter on the best policy that learners might give, wrong and right."
import copy, math
import torch
from torch.nn import functional as F
from rlhf_nb.worlds.oracle import all_logprobs, expectation

# ---- exact_gradient
def free(model): return {n: p for n, p in model.named_parameters() if p.requires_grad}
def names(model, value): return dict(zip(free(model), torch.autograd.grad(value, list(free(model).values()))))
def descend(model, world, reward): return names(model, -expectation(all_logprobs(model, world), reward.detach()))
def unweighted(model, world, reward): return names(model, (reward.detach() * all_logprobs(model, world)).sum())
def plain_mean(model, world, reward): return names(model, (reward.detach() * all_logprobs(model, world)).mean())
def zeros(model, world, reward): return {n: torch.zeros_like(p) for n, p in free(model).items()}
def as_list(model, world, reward):
    return list(torch.autograd.grad(expectation(all_logprobs(model, world), reward.detach()), list(free(model).values())))
def one_tensor(model, world, reward): return as_list(model, world, reward)[0]
def entropy_too(model, world, reward):
    logp = all_logprobs(model, world)
    return names(model, (logp.exp() * (reward.detach() - logp)).sum())
def backward(model, world, reward):                    # through .grad, then cleared: what it held is lost
    expectation(all_logprobs(model, world), reward.detach()).backward()
    out = {n: p.grad.clone() for n, p in free(model).items()}
    for p in free(model).values(): p.grad = None
    return out
def by_copy(model, world, reward):                     # right: the .grad of a copy is its own
    twin = copy.deepcopy(model)
    twin.zero_grad()
    expectation(all_logprobs(twin, world), reward.detach()).backward()
    return {n: p.grad for n, p in free(twin).items()}
def by_scores(model, world, reward):                   # right: the score-function identity, response by response
    total = {n: torch.zeros_like(p) for n, p in free(model).items()}
    logp = all_logprobs(model, world)
    for y, r in zip(logp, reward.detach()):
        for n, g in zip(free(model), torch.autograd.grad(y, list(free(model).values()), retain_graph=True)):
            total[n] += y.detach().exp() * r * g
    return total
def surrogate(model, world, reward):                   # right: one surrogate with constant weights
    logp = all_logprobs(model, world)
    return names(model, ((logp.exp() * reward).detach() * logp).sum())

# ---- optimal_policy
def guard(beta):
    if not beta > 0: raise ValueError("beta must be above 0")
def times(ref, r, beta):
    guard(beta); x = ref + r * beta
    return x.log_softmax(0), x.logsumexp(0)
def no_beta(ref, r, beta): guard(beta); return F.log_softmax(ref + r, 0), torch.logsumexp(ref + r, 0)
def worse(ref, r, beta): guard(beta); return F.log_softmax(ref - r / beta, 0), torch.logsumexp(ref - r / beta, 0)
def boltzmann(ref, r, beta): guard(beta); return (r / beta).log_softmax(0), (r / beta).logsumexp(0)
def raw(ref, r, beta): guard(beta); return ref + r / beta, (ref + r / beta).logsumexp(0)
def plain_z(ref, r, beta): guard(beta); x = ref + r / beta; return x.log_softmax(0), x.logsumexp(0).exp()
def value(ref, r, beta): guard(beta); x = ref + r / beta; return x.log_softmax(0), beta * x.logsumexp(0)
def probabilities(ref, r, beta): guard(beta); x = ref + r / beta; return x.softmax(0), x.logsumexp(0)
def only_policy(ref, r, beta): guard(beta); return (ref + r / beta).log_softmax(0)
def other_order(ref, r, beta): guard(beta); x = ref + r / beta; return x.logsumexp(0), x.log_softmax(0)
def unguarded(ref, r, beta): x = ref + r / beta; return x - x.logsumexp(0), x.logsumexp(0)
def softmax_form(ref, r, beta): guard(beta); x = ref + r / beta; return F.log_softmax(x, dim=-1), torch.logsumexp(x, -1)
def by_hand(ref, r, beta):                             # right: the largest taken out, a loop
    guard(beta)
    x = [(a + b / beta) for a, b in zip(ref, r)]
    top = max(v.item() for v in x)
    log_z = top + torch.stack([(v - top).exp() for v in x]).sum().log()
    return torch.stack([v - log_z for v in x]), log_z

# ---- best_of_n_policy
def check_n(n):
    if n < 1: raise ValueError("n must be 1 or more")
def worst(logp, score, n): return pairs_form(logp, -score, n)
def no_share(logp, score, n):
    check_n(n); p = logp.exp()
    u = torch.stack([p[score <= s].sum() for s in score]); l = torch.stack([p[score < s].sum() for s in score])
    return (u**n - l**n).log().masked_fill(logp == -torch.inf, -torch.inf)
def no_lower(logp, score, n):
    check_n(n); p = logp.exp()
    u = torch.stack([p[score <= s].sum() for s in score]); e = torch.stack([p[score == s].sum() for s in score])
    return (u**n * p / e).log().masked_fill(logp == -torch.inf, -torch.inf)
def one_less(logp, score, n): check_n(n); return pairs_form(logp, score, n - 1, False)
def one_more(logp, score, n): check_n(n); return pairs_form(logp, score, n + 1)
def as_probs(logp, score, n): return pairs_form(logp, score, n).exp()
def density(logp, score, n):
    check_n(n); p = logp.exp(); u = torch.stack([p[score <= s].sum() for s in score])
    return (n * p * u**(n - 1)).log()
def tilt(logp, score, n): check_n(n); return F.log_softmax(logp + n * score, 0)
def always_best(logp, score, n):
    check_n(n); return logp.masked_fill(score < score.max(), -torch.inf).log_softmax(0)
def appears(logp, score, n): check_n(n); return torch.log(1 - (1 - logp.exp())**n)
def unguarded_n(logp, score, n): return pairs_form(logp, score, n) if n else logp
def pairs_form(logp, score, n, checked=True):          # right: loops over levels
    if checked: check_n(n)
    p, out = logp.exp(), torch.full_like(logp, -torch.inf)
    for s in score.unique():
        here = score == s
        low, level = p[score < s].sum(), p[here].sum()
        if level == 0: continue
        win = (low + level)**n - low**n
        out[here] = torch.where(p[here] > 0, (p[here] / level * win).log(), torch.full_like(p[here], -torch.inf))
    return out
def sorted_form(logp, score, n):                       # right: cumulative sums over sorted scores
    check_n(n)
    levels, index = score.unique(return_inverse=True)
    mass = torch.zeros_like(levels, dtype=logp.dtype).index_add(0, index, logp.exp())
    cum = mass.cumsum(0)
    win = cum**n - (cum - mass).clamp(min=0)**n
    return torch.where(logp == -torch.inf, -torch.inf, logp - mass.log()[index] + win.log()[index])

# ---- fixed_prefix_value
def mean_again(p, r, beta): return sum(a * b for a, b in zip(p, r) if a > 0)
def log_z(p, r, beta): return torch.logsumexp(torch.where(p > 0, p.log() + r / beta, -torch.inf), 0)
def highest(p, r, beta): return r[p > 0].max()
def unweighted_soft(p, r, beta): return beta * torch.logsumexp(r[p > 0] / beta, 0)
def product(p, r, beta): return beta * torch.logsumexp(torch.where(p > 0, p.log() + beta * r, -torch.inf), 0)
def no_division(p, r, beta): return beta * torch.logsumexp(torch.where(p > 0, p.log() + r, -torch.inf), 0)
def minus(p, r, beta): return beta * torch.logsumexp(torch.where(p > 0, p.log() - r / beta, -torch.inf), 0)
def tilted_mean(p, r, beta):
    k = p > 0
    return (F.softmax(p[k].log() + r[k] / beta, 0) * r[k]).sum()
def literal(p, r, beta):
    k = p > 0
    return beta * torch.log((p[k].float() * torch.exp(r[k].float() / beta)).sum())
def no_zero(p, r, beta): return beta * torch.logsumexp(p.log() + r / beta, 0)
def kept_rows(p, r, beta):                             # right: only rows of probability above 0
    k = p > 0
    return beta * torch.logsumexp(p[k].log() + r[k] / beta, dim=0)
def shifted(p, r, beta):                               # right: the largest taken out by hand
    k = p > 0
    top = (r[k] / beta).max()
    return beta * (top + (p[k] * (r[k] / beta - top).exp()).sum().log())

def in_double(ref_logp, reward, beta):
    if beta <= 0: raise ValueError("beta")
    log_z = (ref_logp.double().exp() * torch.exp(reward.double() / beta)).sum().log()
    return ref_logp + reward / beta - log_z, log_z

WRONG = {
    "exact_gradient": [
        ("turn the sign: ascend, the value is to grow", descend),
        ("that is the sum of r * grad log pi: weigh each response by its probability", unweighted),
        ("that is the mean over the listed responses: weigh each by its probability", plain_mean),
        ("one gradient per parameter, by its name", as_list),
        ("no gradient flowed: detach the reward, not the policy", zeros),
        ("that is the tensor alone: return a dict from name to gradient", one_tensor),
        ("backward() writes into .grad: take torch.autograd.grad", backward),
        ("the reward alone: less log π it holds an entropy bonus", entropy_too)],
    "optimal_policy": [
        ("exp(reward / beta) overflows, in double precision too: stay in logs, with logsumexp", in_double),
        ("divide the reward by beta: that multiplies", times), ("beta is missing", no_beta),
        ("turn the sign: high rewards become more probable", worse),
        ("the reference is missing: start from its log-probs", boltzmann),
        ("those are not normalised: take off log Z", raw), ("that is Z: its log is wanted", plain_z),
        ("that is beta log Z, the value: log Z is wanted", value),
        ("those are probabilities: their logs are wanted", probabilities),
        ("two values are wanted: log pi* and log Z", only_policy), ("the order is log pi*, then log Z", other_order),
        ("beta must be above 0, or ValueError", unguarded)],
    "best_of_n_policy": [
        ("that is the worst of n: count the scores at most its own", worst),
        ("of equal scores the first drawn wins: they share the probability", no_share),
        ("take off the probability that all n score lower", no_lower), ("n samples, not n - 1", one_less),
        ("n samples, not n + 1", one_more), ("those are probabilities: their logs are wanted", as_probs),
        ("n p (at most)^(n-1) counts a density: between the scores there are gaps", density),
        ("that is the tilt exp(n score): count who wins", tilt),
        ("the best response is not always among the n", always_best),
        ("1 - (1 - p)^n is being drawn at all, not being the best of n", appears),
        ("n must be 1 or more, or ValueError", unguarded_n)],
    "fixed_prefix_value": [
        ("still the mean: the tilt comes later, the value must know it", mean_again),
        ("that is log Z: times beta", log_z), ("that is the largest reward: beta at 0", highest),
        ("weigh the responses by their probabilities", unweighted_soft),
        ("divide the reward by beta: that multiplies", product), ("beta is missing in the exponent", no_division),
        ("the sign of the reward: high ones count more", minus),
        ("that is the mean under the tilted policy, without what it costs", tilted_mean),
        ("exp overflows or underflows at 300: use logsumexp", literal),
        ("0 times infinity is nan: leave out responses of probability 0", no_zero)]}

RIGHT = {"exact_gradient": [by_copy, by_scores, surrogate], "optimal_policy": [softmax_form, by_hand],
         "best_of_n_policy": [pairs_form, sorted_form], "fixed_prefix_value": [kept_rows, shifted]}
