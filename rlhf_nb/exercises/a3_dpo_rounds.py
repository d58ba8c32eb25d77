"What must hold of DPO of one's own: the loss, pairs from the policy as it is now, and a second round that gains."
import math
from functools import partial
import torch
from torch import tensor
from rlhf_nb.exercises.properties import Properties, close, gradient, like, need, seeded, shown, weights_of
from rlhf_nb.tokens import make_seqs
from rlhf_nb.worlds.oracle import all_logprobs, bigram_lm, expectation, micro_world, to_tabular_lm

PART = partial(Properties, "A3_dpo_rounds")
WORLD, SMALL = micro_world(), micro_world(("good", "bad", "."), 2)
INDEX = {y: i for i, y in enumerate(WORLD.responses())}

def rows_of(world, *responses, prompt=(), pads=0): # ids, mask, response
    x = make_seqs([[world.start, *prompt]] * len(responses), [[*y] for y in responses], world.pad)
    return tuple(torch.nn.functional.pad(t, (0, pads), value=v) for t, v in
                 ((x.ids, world.pad), (x.attention_mask, False), (x.response_mask, False)))

def _noise(world, seed): return torch.randn(len(world.responses()), generator=seeded(seed, 1)).double().log_softmax(0)

# ---- the loss
_A, _B = ((0, 1, 3), (1, 3)), ((2, 3), (0, 0, 2))
def _two(seed): return to_tabular_lm(WORLD, _noise(WORLD, seed)), bigram_lm(WORLD)
def _gaps(policy, ref): # of both pairs, from the exact log-probs of the responses
    d = all_logprobs(policy, WORLD) - all_logprobs(ref, WORLD)
    return torch.stack([d[INDEX[a]] - d[INDEX[b]] for a, b in zip(_A, _B)])

def _misread(policy, ref): # what the loss would be
    def total(model, rows, at): # log-probs of the response, read at another place than the logits before it
        logp = model(input_ids=rows[0]).logits.log_softmax(-1).roll(at, 1).gather(-1, rows[0][..., None])[..., 0]
        return torch.where(rows[2], logp, 0.).sum(1)
    def cost(gap): return -torch.nn.functional.logsigmoid(gap)
    def at(i): return cost(.3 * torch.stack([s * total(m, x, i) for s, m, x in (
        (1, policy, a), (-1, ref, a), (-1, policy, b), (1, ref, b))]).sum(0)).mean()
    a, b = rows_of(WORLD, *_A), rows_of(WORLD, *_B)
    gaps, half = _gaps(policy, ref), all_logprobs(policy, WORLD)
    own = torch.stack([half[INDEX[x]] - half[INDEX[y]] for x, y in zip(_A, _B)])
    return {"no shift: logits at position i - 1 predict token i": at(0), "the shift goes the wrong way: logits at position i - 1 predict token i": at(-1),
            "the sides are exchanged": cost(-.3 * gaps).mean(), "beta is missing": cost(gaps).mean(), "the sum over pairs, not the mean": cost(.3 * gaps).sum(),
            "the reference is missing": cost(.3 * own).mean(), "beta times the loss: it belongs inside": .3 * cost(gaps).mean()}

def worked(f, seed):
    policy, ref = _two(seed)
    want = -torch.nn.functional.logsigmoid(.3 * _gaps(policy, ref)).mean()
    got = f(policy, ref, rows_of(WORLD, *_A), rows_of(WORLD, *_B), .3)
    need(isinstance(got, torch.Tensor) and got.ndim == 0, f"one number is wanted, the mean over pairs, got {shown(got)}")
    need(close(got, want), f"got {shown(got)}, want {shown(want)}" + (like(got, _misread(policy, ref))
         or ": -log sigma(beta times the gap of the log-ratios), the mean over pairs"))
    weights = list(policy.parameters())
    need(close(gradient(got, weights), gradient(want, weights)), "the value is right, its gradient is not")

def same_models(f, seed):
    got = f(bigram_lm(WORLD), bigram_lm(WORLD), rows_of(WORLD, *_A), rows_of(WORLD, *_B), .7)
    need(close(got, math.log(2)), f"while policy and reference are one the loss is {shown(got)}, want ln 2 = 0.6931, whatever is asked")

def turned(f, seed):
    policy, ref = _two(seed)
    there, back = (f(policy, ref, *x, .3) for x in ((rows_of(WORLD, *_A), rows_of(WORLD, *_B)), (rows_of(WORLD, *_B), rows_of(WORLD, *_A))))
    want = -.3 * _gaps(policy, ref).mean()
    need(close(there - back, want), f"with the sides exchanged the loss changes by {shown(there - back)}, want {shown(want)}")

def pads_and_prompt(f, seed):
    policy, ref = _two(seed)
    plain = f(policy, ref, rows_of(WORLD, *_A), rows_of(WORLD, *_B), .3)
    more = f(policy, ref, rows_of(WORLD, *_A, pads=2), rows_of(WORLD, *_B, pads=1), .3)
    need(close(plain, more), f"more columns of pads: {shown(more)}, without them {shown(plain)}")
    got = f(policy, ref, rows_of(WORLD, (1, 3), prompt=(0,)), rows_of(WORLD, (2, 3), prompt=(1,)), .3)
    a, b = (rows_of(WORLD, (1, 3), prompt=(0,)), rows_of(WORLD, (2, 3), prompt=(1,)))
    def total(model, rows):
        logp = torch.nn.functional.pad(model(input_ids=rows[0]).logits.log_softmax(-1)[:, :-1].gather(-1, rows[0][:, 1:, None])[..., 0], (1, 0))
        return [(logp * m).sum() for m in (rows[2], rows[1])]
    want, all_counted = (-torch.nn.functional.logsigmoid(.3 * (w - x - y + z)) for w, x, y, z in zip(
        total(policy, a), total(ref, a), total(policy, b), total(ref, b)))
    need(close(got, want), f"two prompts that differ: got {shown(got)}, want {shown(want)}" + like(
        got, {"only tokens of the response count": all_counted}))

def reference_rests(f, seed):
    policy, ref = _two(seed)
    f(policy, ref, rows_of(WORLD, *_A), rows_of(WORLD, *_B), .3).backward()
    need(ref.head.weight.grad is None or not ref.head.weight.grad.any(), "a gradient reaches the reference")
    need(policy.head.weight.grad is not None and policy.head.weight.grad.any(), "no gradient reaches the policy")

def best_policy(f, seed):
    "Comparisons by sigma(r_a - r_b), all listed: the gradient is 0 at ref exp(r / beta) / Z, and not at the reference."
    logp, beta = _noise(SMALL, seed), .5
    reward = torch.randn(7, generator=seeded(seed, 2)).double()
    ref, best = to_tabular_lm(SMALL, logp), to_tabular_lm(SMALL, (logp + reward / beta).log_softmax(0))
    def slope(policy):
        total = 0.
        for i, a in enumerate(SMALL.responses()):
            for j, b in enumerate(SMALL.responses()):
                if i != j: total = total + torch.sigmoid(reward[i] - reward[j]) * f(policy, ref, rows_of(SMALL, a), rows_of(SMALL, b), beta)
        return gradient(total, policy.parameters()).norm().item()
    at_best, at_ref = slope(best), slope(to_tabular_lm(SMALL, logp))
    need(at_best < 1e-4 * at_ref, f"the slope is {at_best:.3g} at the best policy of chapter 06 and {at_ref:.3g} at the reference, want 0 there")

dpo_loss = PART("dpo_loss", {
    "its value and gradient are those worked by hand": worked, "while policy and reference are the same, it is ln 2": same_models,
    "exchanging the sides changes it by beta times the mean gap": turned,
    "pads and prompts do not count": pads_and_prompt, "the reference gets no gradient": reference_rests,
    "with all comparisons listed, its minimum is the best policy of chapter 06": best_policy})

# ---- pairs
REWARD = tensor([sum({0: .5, 1: 1., 2: -1.}.get(w, 0.) * (i + 1) for i, w in enumerate(y)) - (y[-1] != WORLD.eos)
                 for y in WORLD.responses()], dtype=torch.double)

def _asker(asked, reward=REWARD): # prefers(a, b): writes down what it was asked
    def prefers(a, b):
        y = [tuple(int(w) for w in x) for x in (a, b)]
        strange = [x for x in y if x not in INDEX]
        need(not strange, f"prefers was given {strange[:1]}: a response has no prompt, no pad, and ends with its first eos")
        need(y[0] != y[1], "prefers was asked about two answers that are the same: draw again")
        asked.append((*y, bool(reward[INDEX[y[0]]] > reward[INDEX[y[1]]])))
        return asked[-1][2]
    return prefers

def _made(f, seed, n=200):
    asked, policy = [], bigram_lm(WORLD).float()
    found = f(policy, _asker(asked), [WORLD.start], n, WORLD.max_len, WORLD.eos, WORLD.pad, seeded(seed, 3))
    need(isinstance(found, tuple) and len(found) == 2 and all(len(x) == 3 for x in found),
         "chosen and rejected are wanted, each (ids, mask, response)")
    texts = [[tuple(row[r].tolist()) for row, r in zip(ids, response)] for ids, _, response in found]
    return asked, found, texts

def as_preferred(f, seed):
    asked, found, (chosen, rejected) = _made(f, seed)
    need(len(chosen) == len(rejected) == 200, f"200 pairs are wanted, got {len(chosen)} and {len(rejected)}")
    want = [(a, b) if first else (b, a) for a, b, first in asked]
    need([*zip(chosen, rejected)] == want[:200], "chosen is not the answer that prefers(a, b) named: True is for a")
    for ids, mask, response in found:
        rows = [row[m].tolist() for row, m in zip(ids, mask)]
        need(mask.dtype == response.dtype == torch.bool, "both masks are bool")
        need(all(row[:1] == [WORLD.start] for row in rows), "a row begins with the prompt")
        need((response & ~mask).sum() == 0 and not response[:, 0].any(), "response is True on the response's tokens alone")

def as_often_as_the_policy_says(f, seed):
    asked, *_ = _made(f, seed, 800)
    probs = all_logprobs(bigram_lm(WORLD), WORLD).exp().detach()
    both = probs[:, None] * probs * (1 - torch.eye(40))
    want = both.sum(1) / both.sum()                                       # of the first answer, unequal ones kept
    for side in (0, 1):
        seen = torch.zeros(40).double()
        for row in asked: seen[INDEX[row[side]]] += 1
        n, big = len(asked), len(asked) * want > 5
        far = ((seen - n * want)[big]**2 / (n * want)[big]).sum() - big.sum()
        need(far < 5 * (2 * big.sum())**.5, f"the {('first', 'second')[side]} answers do not come as often as the policy says: "
             "sample both at temperature 1, and drop only those that are equal")

def repeatable(f, seed):
    one, two = (_made(f, seed, 20)[2] for _ in range(2))
    need(one == two, "the same generator gives other pairs: draw from it alone")

make_pairs = PART("make_pairs", {
    "the preferred answer is chosen, and a row is prompt and response": as_preferred,
    "answers come as often as the policy says, except that equal ones are left out": as_often_as_the_policy_says,
    "the same generator gives the same pairs": repeatable})

# ---- rounds
SECONDS, PAIRS, FIRST, SECOND = 20., 256, .45, .7

def play(f, seed, n_rounds):
    policy, asked = bigram_lm(WORLD).float(), []
    f(policy, _asker(asked), [WORLD.start], WORLD.max_len, WORLD.eos, WORLD.pad, .5, seeded(seed, 4), n_rounds)
    return policy, asked

def value(policy): return expectation(all_logprobs(policy, WORLD).double(), REWARD).item()

def no_round(f, seed):
    need(close(weights_of(play(f, seed, 0)[0]), weights_of(bigram_lm(WORLD).float())), "after 0 rounds the policy has changed")

def asks_about_itself(f, seed):
    _, asked = play(f, seed, 2)
    need(len(asked) <= 2 * PAIRS, f"two rounds ask about {len(asked)} pairs, {2 * PAIRS} are the limit")
    half = len(asked) // 2
    first, second = (sum(REWARD[INDEX[y]].item() for *pair, _ in part for y in pair) / max(1, 2 * len(part))
                     for part in (asked[:half], asked[half:]))
    need(second > first + .3, f"the answers of round 1 are worth {first:.2f} on average, those of round 2 {second:.2f}: the second "
         "round samples from the policy that the first has made")

def gains_each_round(f, seed):
    start, best = value(bigram_lm(WORLD)), REWARD.max().item()
    for k in range(3):
        one, two = ((value(play(f, 3 * seed + k, n)[0]) - start) / (best - start) for n in (1, 2))
        need(one >= FIRST, f"seed {3 * seed + k}: one round covers {one:.0%} of the way to the best, the bar is {FIRST:.0%}")
        need(two >= SECOND, f"seed {3 * seed + k}: two rounds make {two:.0%} of the way (one made {one:.0%}), the bar is {SECOND:.0%}")

dpo_rounds = PART("dpo_rounds", {
    "without a round nothing changes": no_round, f"a round asks about at most {PAIRS} pairs, sampled from the policy as it is at that time": asks_about_itself,
    f"one round covers {FIRST:.0%} of the way to the best possible score, and two cover {SECOND:.0%}, by the exact sum, on three seeds":
        gains_each_round}, SECONDS)
