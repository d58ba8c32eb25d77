"Exercises of the chapter on PPO."
import math
import torch
from torch import Generator, tensor
from rlhf_nb import ppo
from rlhf_nb.book.checks import Exercise, ProofKind
from rlhf_nb.exercises.kl import LOGP, REF
from rlhf_nb.kl import token_rewards
from rlhf_nb.tokens import shift_right
from rlhf_nb.exercises.tokens import (
    EMPTY, MASK, MASK_NAMES, MEAN_SLIPS, MEANS, mean_over, normal, read_mask, widened)

nan, inf = math.nan, math.inf

def mask_of(*rows): return tensor([[c == "r" for c in row] for row in rows])

def randn(seed, *size, scale=1.): return scale * torch.randn(*size, generator=Generator().manual_seed(seed))

class PolicyLoss(ProofKind):
    asks, chapter = "policy loss", "ppo"
    takes = dict(logp=LOGP, advantages="advantages advantage adv advs", mask=MASK_NAMES, ref_logp=REF,
        old_logp="old_logp old_logprobs old_log_probs old_logps old_per_token_logps old_log_prob logp_old "
                 "log_probs_old logprobs_old sampling_logprobs",
        epsilon="epsilon eps cliprange clip_range clip_eps epsilon_low clip_coef clip_ratio clip_epsilon "
                "clip_param",
        epsilon_high="epsilon_high eps_high clip_high cliprange_high clip_ratio_high",
        beta="beta kl_coef kl_coeff kl_beta",
        max_length="max_length max_len max_completion_length max_tokens")
    defaults, stable = dict(epsilon=.2, epsilon_high="epsilon", beta=.04, max_length=7), ("an empty response",)
    needs = dict(kl="ref_logp", ratio="old_logp")
    right = dict(
        ratio=dict(first="ratio to the policy itself, right in the first step on a rollout",
                   token="ratio of each token",
                   response="geometric mean ratio of each response", whole="ratio of each whole response"),
        clip=dict(least="minimum of clipped and unclipped", none="no clip",
                  score="advantage x log π without a ratio",
                  cispo="clipped weight without gradient x log π",
                  cispo_high="weight clipped at its upper end, without gradient, x log π",
                  weight="weight without gradient x log π",
                  dual="minimum of clipped and unclipped, dual clip at 3",
                  narrow="minimum of clipped and unclipped, at 1 - 3e-4 and 1 + 4e-4"),
        mean=MEANS, sign=dict(loss=""),
        kl=dict(none="", k3="β k3 in the loss", k2="β k2 in the loss", weighted="β ratio x k3 in the loss"))
    wrong = dict(
        ratio=dict(inverted="the ratio is the wrong way round: now over when sampled",
                   log="that is the log-ratio: exp is missing", linear="1 + d is no ratio: take exp of d",
                   quotient="a quotient of log-probs is no ratio: take exp of their difference",
                   frozen="no gradient reaches the policy"),
        clip=dict(only="only the clipped product: where the policy moved the wrong way the gradient must flow",
                  most="take the smaller gain, not the larger", zero="the clip is around 1, not around 0",
                  upper="the ratio may also not fall below 1 - eps", lower="the ratio may also not rise above 1 + eps",
                  logs="clip the ratio, not its log", smaller="the smaller product, not the smaller ratio: where A is below 0 these differ",
                  fixed="the advantage alone: there is no ratio in it, and no gradient"),
        mean=MEAN_SLIPS, sign=dict(gain="the sign: a loss is minus the gain"),
        kl=dict(missing="k3 has a - 1: where both agree the KL term is 0", square="k2 is half the square: the KL term counts twice",
                k1="k1 in the loss: its expected gradient is 0, so nothing holds the policy",
                flipped="k3 upside down: it is exp(-d) - 1 + d with d = log π - log π_ref",
                reversed="the KL term is log π_ref - log π",
                minus="the KL term is subtracted: drifting away is rewarded",
                unweighted="β is not applied to the KL term",
                frozen="the KL term is detached: a number for the log only"))
    known = {
        "GRPO (Shao et al. 2024)": dict(ratio="token", clip="least", mean="response_mean", kl="k3"),
        "GRPO without its KL term": dict(ratio="token", clip="least", mean="response_mean", kl="none"),
        "PPO's policy loss, and DAPO's": dict(ratio="token", clip="least", mean="token_mean", kl="none"),
        "Dr. GRPO (Liu et al. 2025)": dict(ratio="token", clip="least", mean="constant", kl="none"),
        "GSPO (Zheng et al. 2025)": dict(ratio="response", clip="least", mean="response_mean", kl="none"),
        "GSPO (Zheng et al. 2025) with its own clip": dict(ratio="response", clip="narrow", mean="response_mean", kl="none"),
        "CISPO (MiniMax 2025)": dict(ratio="token", clip="cispo", mean="token_mean", kl="none"),
        "REINFORCE": dict(clip="score", mean="response_sum", kl="none")}
    forms = [dict, lambda case: case | dict(advantages=case["advantages"][:, None].repeat(1,
        case["mask"].shape[1]))]
    def case(self, seed, scale, epsilon=.2, mask=MASK, each=1.):
        logp = -normal(seed, *mask.shape).abs()
        return dict(logp=logp.requires_grad_(), old_logp=logp.detach() + normal(seed + 1, *mask.shape,
            scale=scale),
            advantages=each * normal(seed + 2, len(mask)), mask=mask, epsilon=epsilon,
            epsilon_high=1.4 * epsilon,
            ref_logp=logp.detach() + normal(seed + 3, *mask.shape, scale=.5), beta=.2 + .1 * epsilon,
            max_length=7)
    def cases(self, given): return {
        "three responses": self.case(0, .4), "far from the old policy": self.case(10, 1.6),
        "another clip": self.case(20, .3, .1), "large advantages": self.case(40, .5, each=-3.)}
    def edges(self, given): return {
        "on the old policy": self.case(30, 0.), "an empty response": self.case(50, .4, mask=EMPTY),
        "one response": self.case(60, .4, mask=MASK[:1]), "log-ratios of 30": self.case(70, 12.)}
    def compute(self, a, c):
        m = read_mask(a.mask, c["mean"])
        logp, old, ref = (x.masked_fill(~m, 0.) for x in (a.logp, a.old_logp, a.ref_logp))
        d, advantage = logp - old, a.advantages.reshape(len(m), -1)
        total = d.sum(1, keepdim=True)
        ratio = dict(linear=1 + d, log=d, quotient=logp / old.where(m, 1.))[c["ratio"]] if c["ratio"] in (
            "linear", "log", "quotient") else dict(
            token=lambda: d, whole=lambda: total, response=lambda: total / m.sum(1, keepdim=True).clamp(min=1),
            first=lambda: logp - logp.detach(), inverted=lambda: -d, frozen=d.detach)[c["ratio"]]().expand_as(d).exp()
        low, high = 1 - a.epsilon, 1 + a.epsilon_high
        clipped, free = ratio.clamp(low, high), ratio * advantage
        near = clipped * advantage
        gain = dict(
            least=lambda: torch.minimum(free, near), none=lambda: free, score=lambda: advantage * logp, only=lambda: near,
            cispo=lambda: clipped.detach() * advantage * logp, weight=lambda: ratio.detach() * advantage * logp,
            cispo_high=lambda: ratio.clamp(max=high).detach() * advantage * logp, most=lambda: torch.maximum(free, near),
            dual=lambda: torch.where(advantage < 0, torch.maximum(torch.minimum(free, near), 3. * advantage), torch.minimum(free, near)),
            narrow=lambda: torch.minimum(free, ratio.clamp(1 - 3e-4, 1 + 4e-4) * advantage),
            upper=lambda: torch.minimum(free, ratio.clamp(max=high) * advantage),
            lower=lambda: torch.minimum(free, ratio.clamp(min=low) * advantage),
            zero=lambda: torch.minimum(free, ratio.clamp(-a.epsilon, a.epsilon_high) * advantage),
            logs=lambda: torch.minimum(free, ratio.log().clamp(-a.epsilon, a.epsilon_high).exp() * advantage),
            smaller=lambda: torch.where(advantage < 0, torch.maximum(free, near), torch.minimum(free, near)),
            fixed=lambda: (0 * ratio + 1) * advantage)[c["clip"]]()
        far = logp - ref
        def k3(): return torch.exp(-far) - 1 + far
        kl = dict(none=lambda: 0., k3=k3, k2=lambda: far**2 / 2, k1=lambda: far, weighted=lambda: ratio * k3(),
                  flipped=lambda: torch.expm1(far) - far, reversed=lambda: -far, minus=lambda: -k3(), unweighted=lambda: k3() / a.beta,
                  frozen=lambda: k3().detach(), missing=lambda: k3() + 1, square=lambda: far**2)[c["kl"]]()
        return mean_over(a.beta * kl + (gain if c["sign"] == "gain" else -gain), a.mask, c["mean"], a.max_length)

class ValueLoss(ProofKind):
    asks, chapter = "value loss", "ppo"
    takes = dict(values="values value v vpreds new_values value_preds", returns="returns return_ ret targets",
        old_values="old_values old_value values_old old_v old_vpreds", mask=MASK_NAMES,
        epsilon="epsilon eps cliprange_value cliprange clip_range value_clip vf_clip clip_range_vf")
    defaults, needs, stable = dict(epsilon=.2), dict(clip="old_values"), ("an empty response",)
    right = dict(clip=dict(none="squared error", most="maximum of clipped and unclipped squared error"),
                 factor=dict(half="halved", one="not halved"), target=dict(returns=""), error=dict(square=""), mean=MEANS)
    wrong = dict(
        clip=dict(least="the minimum in place of the maximum: the clip rewards staying wrong",
                  only="clipped only: beyond the clip no gradient brings the value back",
                  around="clipped around 0, not around the old value"),
        factor=dict(minus="the sign: minimising this makes the critic worse"), mean=MEAN_SLIPS,
        error=dict(absolute="the absolute error: its minimum is the median, not the mean"),
        target=dict(apart="values and returns are shifted against each other by one place", old="the target is the old value, not the return",
                    sum="the old value is added to a return, which holds it already"))
    known = {"PPO's clipped value loss": dict(clip="most"), "the squared error": dict(clip="none")}
    def case(self, seed, scale, epsilon=.2, mask=MASK):
        old = normal(seed, *mask.shape)
        return dict(values=(old + normal(seed + 1, *mask.shape, scale=scale)).requires_grad_(), old_values=old,
                    returns=normal(seed + 2, *mask.shape), mask=mask, epsilon=epsilon)
    def cases(self, given): return {"three responses": self.case(0, .5), "another clip": self.case(10, .4,
        .1),
                                    "far from the old values": self.case(20, 2., .3)}
    def edges(self, given): return {"an empty response": self.case(30, .4, mask=EMPTY),
                                    "one response": self.case(40, .4, mask=MASK[:1])}
    def compute(self, a, c):
        seen, v0 = a.mask, a.values
        if c["target"] == "apart": seen, v0 = seen & (torch.arange(seen.shape[1]) > 0), v0.roll(1, 1)
        m = read_mask(seen, c["mean"])
        v, old, g = (x.masked_fill(~m, 0.) for x in (v0, a.old_values, a.returns))
        target = dict(old=old, sum=g + old).get(c["target"], g)
        free, near = (v - target)**2, (old + (v - old).clamp(-a.epsilon, a.epsilon) - target)**2
        x = dict(most=torch.maximum(free, near), none=free, least=torch.minimum(free, near), only=near,
                 around=torch.maximum(free, (v.clamp(-a.epsilon, a.epsilon) - target)**2))[c["clip"]]
        if c["error"] == "absolute": x = (v - target).abs()
        return mean_over(x * dict(half=.5, one=1., minus=-.5)[c["factor"]], seen, c["mean"])

class GAE(ProofKind):
    asks, chapter = "generalized advantage estimates", "ppo"
    parts = 2
    takes = dict(rewards="rewards reward r token_rewards", values="values value v old_values", mask=MASK_NAMES,
                 gamma="gamma discount", lam="lam lambda_ lmbda gae_lambda lambd lamb")
    defaults = dict(gamma=1., lam=.95)
    right = dict(form=dict(both="advantages and returns", advantages="advantages"), end=dict(zero=""),
        way=dict(backward=""), delta=dict(td=""), trace=dict(both=""), discount=dict(both=""), gap=dict(over=""),
        sign=dict(plus=""), read=dict(masked=""), returns=dict(sum=""),
        white=dict(none="", mask="whitened over the response tokens", scaled="divided by their deviation"))
    wrong = dict(
        end=dict(lost="the last token's reward is lost", own="after the last token the value is 0", pad="nothing follows the last token: the value behind it is no part"),
        way=dict(forward="the sum looks ahead, not back"),
        delta=dict(no_next="delta: the discounted next value is missing", undiscounted="gamma is missing in delta: it discounts the next value as well",
                   minus="the signs of the two values are exchanged", late="this token's value and the next one's are exchanged",
                   no_value="delta: take the value of the token itself off",
                   lam="lambda has no place in delta: gamma alone discounts the next value"),
        trace=dict(lam="gamma is missing in the sum: it discounts the next advantage as well", gamma="lambda is missing",
                   none="that is delta alone: later deltas count in part", squared="lambda is applied twice"),
        discount=dict(missing="gamma is missing"), gap=dict(
            stops="step over a gap in the mask: the next token is the next one that the mask holds",
            counts="step over a gap in the mask: gamma and lambda do not count its positions"),
        sign=dict(minus="the sign: reward and next value minus value"),
        form=dict(swapped="the other way round: first advantages, then returns"),
        white=dict(all="whitened over all positions: padding is in mean and deviation",
                   back="the mean is added back after whitening: advantages are not centred"),
        returns=dict(white="returns are made of whitened advantages: add the values to the raw ones",
                     same="returns are A + V: the value is missing", difference="returns are A + V, not A - V",
                     reward="returns are A + V: that is the reward plus V",
                     rest="returns are A + V, for lambda below 1 not the sum of rewards",
                     open="returns stand outside of the mask, too: prompt and pads get 0"),
        read=dict(all="where the mask is False rewards and values must not count"))
    known = {"GAE (Schulman et al. 2016)": dict(white="none"), "whitened GAE": dict(white="mask")}
    def case(self, seed, gamma, lam, mask=MASK):
        return dict(rewards=normal(seed, *mask.shape), values=normal(seed + 1, *mask.shape), mask=mask,
                    gamma=gamma, lam=lam)
    def cases(self, given): return {"three responses": self.case(0, .9, .8), "no discount": self.case(10, 1.,
        .95),
                                    "one step": self.case(20, .7, 0.), "to the end": self.case(30, .8, 1.),
        "a gap in a response": self.case(60, .9, .8, tensor([[0, 1, 1, 0, 1, 1], [1, 1, 0, 0, 1, 0]]).bool())}
    def edges(self, given):
        unscored = self.case(70, .9, .8)
        unscored["rewards"][1, 2] = nan                                           # in a response
        return {"an empty response": self.case(40, .9, .8, EMPTY), "padding on the left": self.case(50, .9, .8, MASK.flip(1)),
                "a reward that is nan": unscored}
    def compute(self, a, c):
        m, v0, g = a.mask, a.values, 1. if c["discount"] == "missing" else a.gamma
        read = m if c["read"] == "masked" else torch.ones_like(m)
        r, v = (x.masked_fill(~read, 0.) for x in (a.rewards, v0))
        if c["end"] == "lost": r = r.masked_fill(m & (m.flip(1).cumsum(1).flip(1) == 1), 0.)
        held = read | (c["gap"] == "counts")
        zero, t, fwd = torch.zeros_like(v[:, 0]), m.shape[1], c["way"] == "forward"
        def swept(lam, forward=False): # errors summed from the end, or from the start
            following, later, out, none = zero, zero, {}, torch.ones_like(m[:, 0])
            for i in range(t) if forward else range(t)[::-1]:
                after, last = (v0[:, i + 1], ~m[:, i + 1]) if i + 1 < t else (zero, torch.ones_like(m[:, 0]))
                near = after.masked_fill(last, 0.) if forward else following
                if c["gap"] == "stops": near, later = near.masked_fill(last, 0.), later.masked_fill(last, 0.)
                follows = dict(pad=after, own=torch.where(none, v[:, i], near)).get(c["end"], near)
                delta = dict(td=r[:, i] + g * follows - v[:, i], no_next=r[:, i] - v[:, i], undiscounted=r[:, i] + follows - v[:, i],
                             minus=r[:, i] - g * follows + v[:, i], no_value=r[:, i] + g * follows,
                             late=r[:, i] + g * v[:, i] - follows, lam=r[:, i] + g * a.lam * follows - v[:, i])[c["delta"]]
                out[i] = delta + dict(both=g * lam, lam=lam, gamma=g, none=0., squared=g * lam**2)[c["trace"]] * later
                later, none = torch.where(held[:, i], out[i], later), none & ~m[:, i]
                following = torch.where(held[:, i], v[:, i], following)
            return torch.stack([out[i] for i in range(t)], 1).masked_fill(~m, 0.) * (-1 if c["sign"] == "minus" else 1)
        raw = swept(a.lam, fwd)
        over = raw.flatten() if c["white"] == "all" else raw[m]
        shift = 0. if c["white"] == "scaled" else over.mean()
        white = raw if c["white"] == "none" else (raw - shift) / (over.std() + 1e-8) + (
            shift if c["white"] == "back" else 0.)
        back = dict(sum=lambda: raw + v0, white=lambda: white + v0, same=lambda: white, difference=lambda: raw - v0,
                    reward=lambda: r + v0, open=lambda: raw, rest=lambda: swept(1.) + v0)[c["returns"]]()
        both = white.masked_fill(~m, 0.), raw + v0 if c["returns"] == "open" else back.masked_fill(~m, 0.)
        return dict(both=both, swapped=both[::-1]).get(c["form"], both[0])

# ------------------------------------------------------------------ clipped_policy_loss
def _moved(logp, old_logp, advantage, cliprange=.2):
    logp, old_logp, advantage = map(widened, (logp, old_logp, advantage))
    return dict(logp=logp, old_logp=old_logp, advantages=advantage, ref_logp=logp, mask=torch.ones_like(logp).bool(),
                epsilon=cliprange, epsilon_high=cliprange, beta=0., max_length=1)

def _moves(seed, *size, dtype=torch.float32, cliprange=.2, scale=.4):
    old = -3 * torch.rand(*size, generator=Generator().manual_seed(seed))
    now = old + randn(seed + 1, *size, scale=scale)
    return now.to(dtype).requires_grad_(), old.to(dtype), randn(seed + 2, *size).to(dtype), cliprange

_hand = (tensor([[1.5, 1.5, .5, .5]]).log().requires_grad_(), torch.zeros(1, 4), tensor([[1., -1., -1., 1.]]), .2)
clipped_policy_loss = Exercise(
    reference=ppo.clipped_policy_loss,
    cases={"four tokens by hand": _hand, "two rows": _moves(0, 2, 5), "one row": _moves(3, 1, 6),
           "another clip range": _moves(6, 3, 4, cliprange=.05), "one token": _moves(9, 1, 1),
           "nothing has moved, advantages of 0": (tensor([[-1., -2.]]).requires_grad_(), tensor([[-1., -2.]]),
                                                  tensor([[1., 0.]]), .2),
           "log-probs of -300": (tensor([[-300., -301.]]).requires_grad_(), tensor([[-300.1, -299.]]),
                                 tensor([[2., -2.]]), .2), "the clip range of the stub": _moves(18, 2, 4, scale=1.)[:3],
           "a ratio that overflows": (tensor([[0., 0.]]), tensor([[-1000., -1000.]]), tensor([[1., -1.]]), .2),
           "bf16, log-probs of unlike size": tuple(tensor([x]).bfloat16() for x in ([-.05, -.3], [-.4, -.15], [1., -2.])) + (2.,),
           "float64": _moves(12, 2, 3, dtype=torch.float64), "bf16": _moves(15, 2, 4, dtype=torch.bfloat16)},
    mistakes=PolicyLoss().told(_moved, "sign ratio clip", {
        "the ratio is not clipped": dict(clip="none"), "the loss of each token, not their mean": dict(mean="token_mean"),
        "the loss of each token, not their sum": dict(mean="token_sum"),
        "the loss of each token, not one number per row": dict(mean="responses"),
        "a ratio for each token: that is the geometric mean of a row's ratios, as GSPO has it": dict(ratio="response"),
        "a ratio for each token: that is the product of a row's ratios, that of the whole response": dict(ratio="whole"),
        "the ratio is to the old policy, not to the policy itself, where it is always 1": dict(ratio="first"),
        "that is CISPO, a clipped weight without gradient times log π: the gradient flows through the ratio": dict(clip="cispo"),
        "the gradient flows through the ratio: that is the ratio without gradient times log π": dict(clip="weight"),
        "that is REINFORCE, advantage x log π: there is no ratio in it": dict(clip="score"),
        "that is the dual clip, at 3: where A is below 0 a large ratio has no bound": dict(clip="dual")}, ratio="token", mean="tokens") | {
        "the log-ratio is not cut off before exp: it may overflow": lambda a, b, A, e=.2: ppo.clipped_policy_loss(
            widened(b) + (widened(a) - widened(b)).clamp(-20, 20), widened(b), widened(A), e),
        "the log-ratio is not cut off before exp, at 10: it may overflow": lambda a, b, A, e=.2: ppo.clipped_policy_loss(
            widened(b) + (widened(a) - widened(b)).clamp(-10, 10), widened(b), widened(A), e),
        "the absolute advantage has lost whether a token was good": lambda a, b, A, e=.2: ppo.clipped_policy_loss(a, b, A.abs(), e),
        "advantages are taken as they are: they are not whitened here": lambda a, b, A, e=.2: ppo.clipped_policy_loss(
            a, b, (A - A.mean()) / (A.std() + 1e-8) if A.numel() > 1 else A, e),
        "the clip is 1 - ε to 1 + ε, not 1 / (1 + ε) to 1 + ε": lambda a, b, A, e=.2: (lambda r, A: -torch.minimum(
            r * A, r.clamp(1 / (1 + e), 1 + e) * A))((widened(a) - widened(b)).exp(), widened(A)),
        "beyond the clip the loss is flat, it is not 0": lambda a, b, A, e=.2: (lambda r, A: -torch.where(
            (r >= 1 - e) & (r <= 1 + e), r * A, 0.))((widened(a) - widened(b)).exp(), widened(A)),
        "the advantage is no part of the ratio: (ratio - 1) A lacks the 1": lambda a, b, A, e=.2: (lambda r, A: -torch.minimum(
            (r - 1) * A, (r.clamp(1 - e, 1 + e) - 1) * A))((widened(a) - widened(b)).exp(), widened(A)),
        "cliprange is an argument, not always .2": lambda a, b, A, e=.2: ppo.clipped_policy_loss(a, b, A, .2)})

# ------------------------------------------------------------------ gae
def _steps(reward, value, mask, gamma=1., lam=.95):
    return dict(rewards=widened(reward), values=widened(value), mask=mask, gamma=gamma, lam=lam)

def _swept(reward, value, mask, gamma=1., lam=.95, follows=lambda v, near, i: near, short=0, keep=lambda g, l: g * l,
           own=lambda v, i: v[:, i]):
    r, v = (widened(x).masked_fill(~mask, 0.) for x in (reward, value))
    adv, run, near = torch.zeros_like(v), torch.zeros_like(v[:, 0]), torch.zeros_like(v[:, 0])
    for i in reversed(range(mask.shape[1] - short)):
        here = mask[:, i]
        run = torch.where(here, r[:, i] + gamma * follows(v, near, i) - (own(v, i) if own else near) + keep(gamma, lam) * run, run)
        near = torch.where(here, v[:, i], near)
        adv[:, i] = run
    adv = adv.masked_fill(~mask, 0.)
    return adv, (adv + v).masked_fill(~mask, 0.)

def _gapped(reward, value, mask, gamma=1., lam=.95, stops=False, first=None):
    r, v = (widened(x).masked_fill(~mask, 0.) for x in (reward, value))
    adv, run, near = torch.zeros_like(v), torch.zeros_like(v[:, 0]), first(v) if first else torch.zeros_like(v[:, 0])
    for i in reversed(range(mask.shape[1])):
        here, zero = mask[:, i], torch.zeros_like(near)
        adv[:, i] = torch.where(here, r[:, i] + gamma * near - v[:, i] + gamma * lam * run, zero)
        run = torch.where(here, adv[:, i], zero if stops else run)
        near = torch.where(here, v[:, i], near)
    return adv, adv + v
def _white(x, mask, ddof):
    return ((x - x[mask].mean()) / (x[mask].std(correction=ddof) + 1e-8)).masked_fill(~mask, 0.)

def _column(v, near, i): return v[:, i + 1] if i + 1 < v.shape[1] else torch.zeros_like(near)

def _wild(seed, *rows, gamma=.9, lam=.8, fill=nan, dtype=torch.float32):
    mask = mask_of(*rows)
    r, v = [randn(seed + k, *mask.shape).masked_fill(~mask, fill).to(dtype) for k in (0, 1)]
    return r, v, mask, gamma, lam

gae = Exercise(
    reference=ppo.gae,
    cases={"the row of the text": (tensor([[0., 0., 1.]]), tensor([[.5, .5, .5]]), mask_of("rrr"), 1., .95),
           "prompt and pads hold 9": _wild(0, "pprrr.", "prr...", fill=9.),
           "prompt and pads hold nan": _wild(2, "prrr..", "pprrrr"),
           "pads on both sides": _wild(4, "..prr.", "prrrr.", ".ppprr"),
           "a gap in a response": _wild(6, "prr..rr", "prrrrr.", "pr.r.r."),
           "a gap, prompt and pads hold 0": _wild(8, "prr..rr", "prrrrr.", fill=0.),
           "an empty response": _wild(10, "ppp..", "pprrr"), "one token": _wild(12, "r"),
           "gamma and lambda of the stub": _wild(26, "prrrr", "pprr.", fill=0.)[:3],
           "lambda 0": _wild(14, "prrr", "pprr", lam=0.), "lambda 1": _wild(16, "prrr", "pprr", lam=1.),
           "gamma 1": _wild(18, "prrrr", gamma=1.), "inf at a pad": _wild(20, "prrr..", "prrrrr", fill=inf),
           "values of -300": (tensor([[-300., 2.]]), tensor([[-299., -301.]]), mask_of("rr"), .99, .95),
           "float64": _wild(22, "prr.", dtype=torch.float64), "bf16": _wild(24, "prrrr", "prr..", dtype=torch.bfloat16)},
    mistakes=GAE().told(_steps, "end way delta trace discount gap sign returns read form",
                        {"two results: advantages and returns": dict(form="advantages")}, "white open") | {
        "0 times nan is nan: write 0 where the mask is False, do not multiply": lambda r, v, m, g=1., l=.95: tuple(
            x + torch.where(m, 0., 0. * (r + v)) for x in ppo.gae(r, v, m, g, l)),
        "gamma and lambda are 1 and .95 where nobody gives them": lambda r, v, m, g=.99, l=1.: ppo.gae(r, v, m, g, l),
        "behind a gap the next token's value follows, not what stands in the next column": lambda *a: _swept(*a, follows=_column),
        "a token's value is V of the state before it, as it stands in its column: shifted once more":
            lambda *a: _swept(*a, follows=lambda v, near, i: v[:, i], own=lambda v, i: v[:, i - 1] if i else torch.zeros_like(v[:, 0])),
        "the last token is one, too: the loop begins one column late": lambda *a: _swept(*a, short=1, follows=_column),
        "the sum is weighted by gamma times lambda, not by gamma + lambda - 1": lambda *a: _swept(*a, keep=lambda g, l: g + l - 1),
        "a gap is stepped over: the advantage behind it is lost": lambda *a: _gapped(*a, stops=True),
        "after the last token V is 0: that begins with the value in the last column":
            lambda *a: _gapped(*a, first=lambda v: v[:, -1]),
        "prompt and pads are left out of the sum: it runs over them here, and fills them": lambda r, v, m, g=1., l=.95: (
            lambda adv: (adv, adv + v.masked_fill(~m, 0.).to(adv.dtype)))(_swept(
                widened(r).masked_fill(~m, 0.), widened(v).masked_fill(~m, 0.), m | True, g, l)[0]),
        "advantages are not whitened here": lambda r, v, m, g=1., l=.95: (lambda a, ret: (_white(a, m, 1), ret))(*ppo.gae(r, v, m, g, l)),
        "advantages are not whitened here, nor with the deviation over n": lambda r, v, m, g=1., l=.95: (
            lambda a, ret: (_white(a, m, 0), ret))(*ppo.gae(r, v, m, g, l)),
        "advantages are not whitened, and returns are made of the raw ones": lambda r, v, m, g=1., l=.95: (lambda a, ret: (
            _white(a, m, 1), (_white(a, m, 1) + ret - a).masked_fill(~m, 0.)))(*ppo.gae(r, v, m, g, l)),
        "advantages keep their mean": lambda r, v, m, g=1., l=.95: (lambda a, ret: (
            (a - a[m].mean()).masked_fill(~m, 0.), ret))(*ppo.gae(r, v, m, g, l)),
        "lambda weighs the next advantage, not 1 - lambda": lambda *a: _swept(*a, keep=lambda g, l: g * (1 - l)),
        "the next advantage is weighed by gamma times lambda, not by 1 - gamma times lambda": lambda *a: _swept(*a, keep=lambda g, l: 1 - g * l),
        "gamma and lambda are the wrong way round": lambda r, v, m, g=1., l=.95: ppo.gae(r, v, m, l, g),
        "an exponential mean has the factor 1 - lambda, GAE's sum has not": lambda r, v, m, g=1., l=.95: (lambda a, ret: (
            (1 - l) * a, (1 - l) * a + ret - a))(*ppo.gae(r, v, m, g, l)),
        "returns and advantages are both wanted: the first are advantages, A = G - V, here returns": lambda *a: (
            lambda adv, ret: (ret, ret))(*ppo.gae(*a)),
        "delta takes off the token's own value: that takes off the next one's": lambda *a: _swept(*a, own=None),
        "returns are A + V, not the sum of rewards from here on, without gamma": lambda r, v, m, g=1., l=.95: (
            ppo.gae(r, v, m, g, l)[0], widened(r).masked_fill(~m, 0.).flip(1).cumsum(1).flip(1).masked_fill(~m, 0.)),
        "the second are returns, A + V: those are the values": lambda r, v, m, *a: (
            ppo.gae(r, v, m, *a)[0], widened(v).masked_fill(~m, 0.)),
        "advantages are not clipped": lambda *a: (lambda adv, ret: (adv.clamp(-1, 1), adv.clamp(-1, 1) + ret - adv))(*ppo.gae(*a)),
        "prompt and pads get 0": lambda r, v, m, g=1., l=.95: tuple(x + 5. * ~m for x in ppo.gae(r, v, m, g, l)),
        "sums in 16 bits lose digits: go to float32 first": lambda r, v, m, g=1., l=.95: tuple(
            x.to(r.dtype) for x in ppo.gae(r, v, m, g, l))})

# ------------------------------------------------------------------ ppo_rewards
def _rewards(score, logp, ref_logp, mask, beta=.1, cost=lambda d: d, data=True, at=None, penalised=None, sign=-1):
    kind = torch.promote_types(logp.dtype, torch.float32)
    if data: score, logp, ref_logp = score.detach(), logp.detach(), ref_logp.detach()
    d = (logp.to(kind) - ref_logp).masked_fill(~(mask if penalised is None else penalised), 0.)
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1) if at is None else at
    return (sign * beta * cost(d)).masked_fill(~(mask if penalised is None else penalised), 0.) + torch.where(
        last, score[:, None].to(kind), torch.zeros((), dtype=kind))

def _first(mask): return mask & (mask.cumsum(1) == 1)
def _run_end(mask): # of the first run
    run = mask & ((mask.cumsum(1) > 0) & ~mask).cumsum(1).eq(0)
    return run & (run.flip(1).cumsum(1).flip(1) == 1)
def _counted_place(mask): # the number of response tokens - 1, as a column
    return (torch.arange(mask.shape[1]) == mask.sum(1, True) - 1) & mask.any(1, True)
def _or_first(mask): # the last True, or column 0
    return mask & (mask.flip(1).cumsum(1).flip(1) == 1) | (torch.arange(mask.shape[1]) == 0) & ~mask.any(1, True)
def _or_last(mask): # the last True, or the last column
    return mask & (mask.flip(1).cumsum(1).flip(1) == 1) | _last_column(mask) & ~mask.any(1, True)
def _last_column(mask): return (torch.arange(mask.shape[1]) == mask.shape[1] - 1).expand(mask.shape)

def _played(seed, *rows, beta=.3, fill=nan, dtype=torch.float32):
    mask = mask_of(*rows)
    logps = [(-3 * torch.rand(mask.shape, generator=Generator().manual_seed(seed + k))).masked_fill(
        tensor([[c == "." for c in row] for row in rows]), fill).to(dtype).requires_grad_() for k in (0, 1)]
    return randn(seed + 2, len(mask)).to(dtype).requires_grad_(), *logps, mask, beta

ppo_rewards = Exercise(
    reference=ppo.ppo_rewards,
    cases={"the row of the text": (tensor([2.]), tensor([[-1., -1.]]), tensor([[-1.5, -1.5]]), mask_of("rr"), .2),
           "two rows": _played(0, "prrr.", "pprrr"), "pads on both sides": _played(3, "..prr.", "pprrrr", ".prrr."),
           "an empty response": _played(6, "ppp..", "pprrr"), "one row": _played(9, "prrrr"),
           "inf at a pad": _played(12, "prr..", "prrrr", fill=inf), "beta 0": _played(15, "prr", "ppr", beta=0.),
           "log-probs of -300": (tensor([1., 0.]), tensor([[-300., -1.], [-2., -300.]]),
                                 tensor([[-301., -1.], [-2., -298.]]), mask_of("rr", "rr"), .1),
           "a gap in a response": _played(24, "prr.rr", "prrrr."),
           "float64": _played(18, "prr.", dtype=torch.float64), "bf16": _played(21, "prrr", "pprr", dtype=torch.bfloat16)},
    mistakes={
        "the sign: leaving the reference costs": lambda *x: _rewards(*x, sign=1),
        "the sign: leaving the reference costs; `kl_penalty` has it, and mask and detach":
            lambda s, a, b, m, beta: token_rewards(s, beta * (a - b), m),
        "the sign: leaving the reference costs; and the score carries a gradient: detach it": lambda s, a, b, m, beta: _rewards(
            s, a.detach(), b.detach(), m, beta, data=False, sign=1),
        "beta is missing": lambda s, a, b, m, beta: _rewards(s, a, b, m, 1.),
        "beta is an argument, not always .1": lambda s, a, b, m, beta: _rewards(s, a, b, m, .1),
        "beta is the price of the KL: the score has no factor": lambda s, a, b, m, beta: _rewards(beta * s, a, b, m, beta),
        "rewards are data: no gradient flows through them": lambda *x: _rewards(*x, data=False),
        "the score carries a gradient as well: detach it": lambda s, a, b, m, beta: _rewards(s, a.detach(), b.detach(), m, beta, data=False),
        "the score stands at the last response token alone": lambda *x: _rewards(*x, at=x[3]),
        "the score stands at the last response token, not at the first": lambda *x: _rewards(*x, at=_first(x[3])),
        "the score stands at the last response token, not in the last column": lambda *x: _rewards(*x, at=_last_column(x[3])),
        "the score stands at the last response token, not in the last column; and it carries a gradient: detach it":
            lambda s, a, b, m, beta: _rewards(s, a.detach(), b.detach(), m, beta, data=False, at=_last_column(m)),
        "the score is missing": lambda *x: _rewards(*x, at=x[3] & False),
        "a gap does not end a response: the score stands at the mask's last True, not where its first run ends":
            lambda *x: _rewards(*x, at=_run_end(x[3])),
        "counted from column 0: prompt and left pads stand before the response, so the number of tokens is no place":
            lambda *x: _rewards(*x, at=_counted_place(x[3])),
        "an empty response gets no score: there is no last token, and the first column is none": lambda *x: _rewards(*x, at=_or_first(x[3])),
        "an empty response gets no score: there is no last token, and the last column is none": lambda *x: _rewards(*x, at=_or_last(x[3])),
        "the score stands at the last response token, not in the last column of a row that has one":
            lambda *x: _rewards(*x, at=_last_column(x[3]) & x[3].any(1, True)),
        "the score stands at the last response token: that is one place earlier": lambda *x: _rewards(
            *x, at=torch.nn.functional.pad((x[3] & (x[3].flip(1).cumsum(1).flip(1) == 1))[:, 1:], (0, 1))),
        "the score stands at the last response token: that is one place later": lambda *x: _rewards(
            *x, at=torch.nn.functional.pad((x[3] & (x[3].flip(1).cumsum(1).flip(1) == 1))[:, :-1], (1, 0))),
        "the score stands whole at the last token: it is not spread over all": lambda s, a, b, m, beta: _rewards(
            s / m.sum(1).clamp(min=1), a, b, m, beta, at=m),
        "those are returns, sums from here on: a reward is what the token itself gets": lambda *x: _rewards(*x).flip(1).cumsum(1).flip(1),
        "the score is added, not taken off": lambda s, *x: _rewards(-s, *x),
        "the score is taken as it is: its mean is not subtracted": lambda s, *x: _rewards(s - s.mean(), *x),
        "the score is taken as it is: it is not whitened": lambda s, *x: _rewards(
            (s - s.mean()) / (s.std() + 1e-8) if len(s) > 1 else s, *x),
        "that is k2, half the square: the penalty is the log-ratio itself": lambda *x: _rewards(*x, cost=lambda d: d**2 / 2),
        "that is the square of the log-ratio: the penalty is the log-ratio itself": lambda *x: _rewards(*x, cost=torch.square),
        "the penalty is not cut off at 0: a token less probable than under the reference gets a refund": lambda *x: _rewards(
            *x, cost=lambda d: d.clamp(min=0)),
        "the price is log π - log π_ref: log π alone is an entropy bonus": lambda s, a, b, m, beta: _rewards(s, a, 0 * a, m, beta),
        "the price is log π - log π_ref: only log π_ref is in it": lambda s, a, b, m, beta: _rewards(s, 0 * b, b, m, beta),
        "the price is weighed by beta alone, not by the policy's probability": lambda s, a, b, m, beta: _rewards(
            s, (a - b) * a.exp(), 0 * b, m, beta),
        "the KL penalty is missing": lambda s, a, b, m, beta: _rewards(s, a, b, m, 0.),
        "the last token pays its KL as well: the score is added to that, it does not stand in its place": lambda *x: _rewards(*x, penalised=x[3] & (x[3].flip(1).cumsum(1).flip(1) > 1)),
        "prompt tokens cost nothing": lambda s, a, b, m, beta: _rewards(s, a, b, m, beta, penalised=m | ~(a - b).isnan()),
        "nan at a pad gets through: choose with the mask, do not multiply": lambda s, a, b, m, beta: (
            -beta * (a.detach().float() - b.detach()) * m + _rewards(s, a, a, m, 0.).nan_to_num(0.)),
        "that is k3: the penalty is the log-ratio itself": lambda *x: _rewards(*x, cost=lambda d: torch.expm1(-d) + d),
        "that is the ratio: its log costs": lambda *x: _rewards(*x, cost=torch.exp),
        "a token below the reference gets a refund: no absolute value": lambda *x: _rewards(*x, cost=torch.abs),
        "one reward per token, not one per answer": lambda *x: _rewards(*x).sum(1),
        "the rewards are not divided by the length of the answer":
            lambda *x: _rewards(*x) / x[3].sum(1, keepdim=True).clamp(min=1),
        "the whole penalty stands at the last token: each token pays its own": lambda *x: torch.where(
            x[3] & (x[3].flip(1).cumsum(1).flip(1) == 1), _rewards(*x).sum(1, keepdim=True), 0.)})

# ------------------------------------------------------------------ ppo_loss
def _loss(logp, old_logp, advantage, value, old_value, returns, mask, e=.2, ev=.2, c=.1, over=None, sign=1,
          where=None):
    keep = mask if where is None else where
    kind = torch.promote_types(logp.dtype, torch.float32)
    x = [y.masked_fill(~keep, 0.).to(kind) for y in (logp, old_logp, advantage, value, old_value, returns)]
    each = sign * ppo.clipped_policy_loss(*x[:3], e) + c * ppo.clipped_value_loss(*x[3:], ev)
    return over(each.masked_fill(~keep, 0.), keep) if over else each.masked_fill(~keep, 0.).sum() / keep.sum().clamp(min=1)

def _batch(seed, *rows, e=.2, ev=.3, c=.5, fill=nan, dtype=torch.float32, data=()):
    mask, pad = mask_of(*rows), tensor([[ch == "." for ch in row] for row in rows])
    old = -3 * torch.rand(mask.shape, generator=Generator().manual_seed(seed))
    old_value = randn(seed + 3, *mask.shape)
    x = [old + randn(seed + 1, *mask.shape, scale=.4), old, randn(seed + 2, *mask.shape),
         old_value + randn(seed + 4, *mask.shape, scale=.4), old_value, randn(seed + 5, *mask.shape)]
    return *[y.masked_fill(pad, fill).to(dtype) for y in x], mask, e, ev, c

def _live(args): # with gradients for what is trained
    return tuple(x.requires_grad_() if i in (0, 3) else x for i, x in enumerate(args))

_text = (tensor([[1.5, .5]]).log().requires_grad_(), torch.zeros(1, 2), tensor([[1., -1.]]), tensor([[.5, .3]]).requires_grad_(),
         torch.zeros(1, 2), tensor([[1., .3]]), mask_of("rr"), .2, .2, .1)
ppo_loss = Exercise(
    reference=ppo.ppo_loss,
    cases={"two tokens": _text, "rows of unlike length": _live(_batch(0, "prrrrrrr", "pr......", "prr.....", fill=0.)),
           "pads on both sides": _live(_batch(10, "..prr.", "prrrr.", ".ppprr", fill=3.)),
           "pads that hold nan": _batch(20, "prrr..", "prrrrr"), "one row": _live(_batch(30, "prrr")),
           "an empty response": _live(_batch(40, "ppp..", "pprrr", fill=1.)),
           "one clip range tight, the other wide": _live(_batch(50, "prrrr", "prrr.", e=.05, ev=9., fill=0.)),
           "the other way round": _live(_batch(60, "prrrr", "prrr.", e=9., ev=.05, fill=0.)),
           "weight 2": _live(_batch(70, "prrr", "pprr", c=2.)), "float64": _live(_batch(80, "prr", dtype=torch.float64)),
           "bf16": _batch(90, "prrr", "pprr", dtype=torch.bfloat16)},
    mistakes={
        "the value loss is missing": lambda *x: _loss(*x[:9], 0.),
        "vf_coef is missing": lambda *x: _loss(*x[:9], 1.),
        "the weight stands at the value loss, not at the policy loss": lambda *x: x[9] * _loss(*x[:9], 1 / x[9]),
        "the value loss is a loss: add it": lambda *x: _loss(*x[:9], -x[9]),
        "the policy loss has its minus already": lambda *x: _loss(*x, sign=-1),
        "the two clip ranges are swapped": lambda *x: _loss(*x[:7], x[8], x[7], x[9]),
        "the value has its own clip range": lambda *x: _loss(*x[:8], x[7], x[9]),
        "the clip ranges are arguments, not always .2": lambda *x: _loss(*x[:7], .2, .2, x[9]),
        "the value loss is not clipped": lambda *x: _loss(*x[:8], 1e9, x[9]),
        "that is the sum: take the mean over response tokens": lambda *x: _loss(*x, over=lambda y, m: y.sum()),
        "tokens weigh the same: that is a mean of the rows' means": lambda *x: _loss(
            *x, over=lambda y, m: (y.sum(1) / m.sum(1).clamp(min=1)).mean()),
        "divide by the number of response tokens, not of all places": lambda *x: _loss(
            *x, over=lambda y, m: y.mean()),
        "divide by the number of response tokens, not of rows": lambda *x: _loss(
            *x, over=lambda y, m: y.sum() / len(m)),
        "prompt and pads are counted": lambda *x: _loss(*x, where=x[6] | True),
        "prompt tokens are counted": lambda *x: _loss(*x, where=x[6] | ~(x[0].isnan() | (x[0] == x[1]))),
        "one number, not one per token": lambda *x: _loss(*x, over=lambda y, m: y),
        "one number, not one per row": lambda *x: _loss(*x, over=lambda y, m: y.sum(1) / m.sum(1).clamp(min=1)),
        "advantages are taken as they are: they are not whitened here": lambda a, b, A, *x: _loss(a, b, _white(A, x[3], 1), *x),
        "advantages are taken as they are: they are not whitened here, nor with the deviation over n": lambda a, b, A, *x: _loss(
            a, b, _white(A, x[3], 0), *x),
        "the value loss is halved in `clipped_value_loss` already: c has no ½ besides": lambda *x: _loss(*x[:9], x[9] / 2),
        "the value loss is halved once: that is twice as much": lambda *x: _loss(*x[:9], x[9] * 2),
        "c weighs the value loss alone: that weighs the sum of both": lambda *x: x[9] * _loss(*x[:9], 1.),
        "c is the share of the value loss beside the whole policy loss: 1 - c is no factor of that": lambda *x: (
            lambda c: (1 - c) * _loss(*x[:9], c / (1 - c) if c != 1 else 0.))(x[9]) if x[9] != 1 else _loss(*x),
        "vf_coef is an argument, not always .1": lambda *x: _loss(*x[:9], .1),
        "vf_coef is an argument, not always .5": lambda *x: _loss(*x[:9], .5),
        "the policy loss is missing": lambda *x: _loss(*x[:2], 0 * x[2], *x[3:]),
        "the policy's ratio is not clipped": lambda *x: _loss(*x[:7], 1e9, *x[8:]),
        "value and old value are the wrong way round": lambda *x: _loss(*x[:3], x[4], x[3], *x[5:]),
        "log-probs now and then are the wrong way round: the ratio is upside down": lambda a, b, *x: _loss(b, a, *x),
        "returns and values are no advantages: the value loss compares with returns": lambda *x: _loss(*x[:5], x[2], *x[6:]),
        "the critic learns returns: that is the error against the old value": lambda *x: _loss(*x[:5], x[4], *x[6:]),
        "one mean for both losses: the value loss is a mean over all places here": lambda *x: _loss(*x[:9], 0.) + x[9] * _loss(
            *x[:2], 0 * x[2], *x[3:9], 1., over=lambda y, m: y.mean()),
        "one mean for both losses: the value loss is a sum here": lambda *x: _loss(*x[:9], 0.) + x[9] * _loss(
            *x[:2], 0 * x[2], *x[3:9], 1., over=lambda y, m: y.sum()),
        "tokens weigh the same: each row's sum is divided by the longest response": lambda *x: _loss(
            *x, over=lambda y, m: y.sum() / len(m) / m.sum(1).max().clamp(min=1)),
        "no gradient reaches the policy": lambda a, *x: _loss(a.detach(), *x),
        "no gradient reaches the critic": lambda a, b, A, v, *x: _loss(a, b, A, v.detach(), *x)})

ASKED = {
    "clipped_policy_loss": {
        "cliprange is .2 where nobody gives it": "the clip range of the stub",
        "a ratio that overflows is inf, and so is the loss where A is below 0: nothing is cut off before exp": "a ratio that overflows",
        "bf16 is raised to float32 first": "bf16"},
    "gae": {
        "gamma is 1 and lambda .95 where nobody gives them": "gamma and lambda of the stub",
        "an empty response has only 0": "an empty response",
        "a gap in a response is stepped over: V and A of the next token that the mask holds follow":
            "a gap in a response | a gap, prompt and pads hold 0",
        "prompt and pads may hold anything, nan too, and get 0: 0 times nan is nan": "prompt and pads hold nan | inf at a pad | pads on both sides | "
            "an empty response | a gap in a response",
        "bf16 is raised to float32 before the sums": "bf16"},
    "ppo_rewards": {
        "an empty response gets no score: all of its row is 0": "an empty response",
        "a gap does not end a response: the score stands at the last True of the mask": "a gap in a response",
        "beta may be 0: the score alone is left": "beta 0",
        "bf16 is raised to float32 before the difference": "bf16",
        "where the mask is False anything may stand, inf and nan too: 0 times nan is nan, so choose with where": "inf at a pad"},
    "ppo_loss": {
        "pads may hold nan: choose with the mask, since 0 times nan is nan": "pads that hold nan",
        "an empty response adds no token": "an empty response",
        "cliprange clips the ratio, cliprange_value the value, each with its own":
            "one clip range tight, the other wide | the other way round | weight 2",
        "float32 at least: bf16 is raised first": "bf16"}}
