"What must hold of GRPO of one's own: advantages, one update in micro-batches, and a policy near the best there is."
from functools import partial
import torch
from torch import tensor
from rlhf_nb.base.models import load_bundled
from rlhf_nb.exercises.properties import Properties, close, like, kept_mib, need, seeded, shown, weights_of
from rlhf_nb.tokens import make_seqs
from rlhf_nb.worlds.oracle import all_logprobs, bigram_lm, expectation, micro_world

PART = partial(Properties, "A2_grpo_update")
WORLD = micro_world()

# ---- advantages
def _groups(f, seed, shape=(4, 5), scale=True): # rewards (groups, size), advantages alike
    reward = torch.randn(*shape, generator=seeded(seed, 1)).double() * 2
    got = f(reward.flatten(), shape[1], scale)
    need(getattr(got, "shape", None) == (shape[0] * shape[1],), f"one advantage for each reward (b) is wanted, got {shown(got)}")
    return reward, got.view(shape)

def level_of_a_group(f, seed):
    for scale in (True, False):
        reward, got = _groups(f, seed, scale=scale)
        need(close(got.sum(1), torch.zeros(4)), f"the sums over groups are {[round(x, 3) for x in got.sum(1).tolist()]}, want 0")
        moved = f((reward + tensor([[5.], [-3.], [0.], [9.]])).flatten(), 5, scale).view(4, 5)
        need(close(moved, got), "a number added to all rewards of one group changes advantages")

def size_of_a_reward(f, seed):
    reward, got = _groups(f, seed)
    times = f((reward * 3).flatten(), 5, True).view(4, 5)
    need(close(times, got, 1e-2), "three times the rewards give other advantages, though they are divided by the standard deviation")
    _, plain = _groups(f, seed, scale=False)
    need(close(f((reward * 3).flatten(), 5, False).view(4, 5), 3 * plain),
         "without the division three times the rewards give three times the advantages; these do not")

def worked_group(f, seed):
    got = f(tensor([1., 0., 0., 3.]), 4, True)
    want = (tensor([1., 0., 0., 3.]) - 1) / 2**.5
    need(close(got, want, 1e-3), f"1, 0, 0, 3 have mean 1 and standard deviation sqrt(6/3) = 1.414; got "
         f"{[round(x, 3) for x in got.tolist()]}, want {[round(x, 3) for x in want.tolist()]}")
    need(close(f(tensor([1., 0., 0., 3.]), 4, False), tensor([0., -1., -1., 2.])), "without the division they are 0, -1, -1, 2")

def equal_rewards(f, seed):
    got = f(tensor([2., 2., 2., 1., 0., 5.]), 3, True)
    need(close(got[:3], torch.zeros(3)), f"a group whose rewards are equal teaches nothing: got {got[:3].tolist()}, want 0")

group_advantages = PART("group_advantages", {
    "a group's advantages sum to 0, and only its own rewards count": level_of_a_group,
    "with `scale` the size of the rewards does not count, and without `scale` it does": size_of_a_reward,
    "a worked group gives the numbers worked by hand": worked_group, "equal rewards give 0": equal_rewards})

# ---- one update
REWARD = tensor([sum({0: .5, 1: 1., 2: -1.}.get(w, 0.) * (i + 1) for i, w in enumerate(y)) - (y[-1] != WORLD.eos)
                 for y in WORLD.responses()], dtype=torch.double)
LENGTHS = WORLD.seqs.response_mask.sum(1).double()

def rows_of(seqs): return seqs.ids, seqs.attention_mask, seqs.response_mask
def token_logprobs(policy, ids, mask): # (b t), 0 for the first token
    logp = policy(input_ids=ids, attention_mask=mask.long()).logits.log_softmax(-1)
    return torch.nn.functional.pad(logp[:, :-1].gather(-1, ids[:, 1:, None])[..., 0], (1, 0)).detach()

def _step(f, policy, rows, advantage, old=None, clip=.2, micro=64, lr=1.): # what the weights have changed by, what came back
    old = token_logprobs(policy, *rows[:2]) if old is None else old
    before, optimizer = weights_of(policy), torch.optim.SGD(policy.parameters(), lr=lr)
    for p in policy.parameters(): p.grad = torch.full_like(p, .3)                      # of an update before
    said = f(policy, optimizer, rows, old, advantage, clip, micro)
    change = weights_of(policy) - before
    need(not close(change, torch.zeros_like(change), 1e-9), "the weights are as before: was optimizer.step() called?")
    return change, said

def _listed(): # all responses, advantages that make the sum over rows an expectation: b |y| pi(y) r(y)
    policy = bigram_lm(WORLD)
    logp = all_logprobs(policy, WORLD)
    want = torch.autograd.grad(expectation(logp, REWARD), list(policy.parameters()))
    return policy, rows_of(WORLD.seqs), 40 * LENGTHS * logp.detach().exp() * REWARD, torch.cat([g.flatten() for g in want])

def exact_gradient(f, seed):
    policy, rows, advantage, want = _listed()
    got, _ = _step(f, policy, rows, advantage)
    need(not close(got, -want), "the step goes down where it should go up: the loss is minus the gain")
    need(close(got, want), f"with all 40 responses, weighted by their probabilities, the step is {(got @ want / (want @ want)).item():.3g} "
         f"times the exact gradient along it, and {((got - got @ want / (want @ want) * want).norm() / want.norm()).item():.3g} of its length beside it")

def _off_policy(seed): # rows of unequal length, old log-probs that differ, advantages
    rows = rows_of(WORLD.seqs[torch.randperm(40, generator=seeded(seed, 2))[:12]])
    policy = bigram_lm(WORLD)
    old = token_logprobs(policy, *rows[:2]) + .3 * torch.randn(rows[0].shape, generator=seeded(seed, 3)).double()
    return policy, rows, torch.randn(12, generator=seeded(seed, 4)).double(), old

def micro_batches(f, seed):
    found = []
    for micro in (12, 1, 5):
        policy, rows, advantage, old = _off_policy(seed)
        found.append(_step(f, policy, rows, advantage, old, micro=micro))
    for micro, (change, said) in zip((1, 5), found[1:]):
        need(close(change, found[0][0]), f"12 rows in micro-batches of {micro} change the weights {change.norm() / found[0][0].norm():.3g} "
             "times as much as at once, or elsewhere: each answer counts 1/b, whatever stands beside it")
        need(close(said, found[0][1]), f"the loss is {shown(found[0][1])}, in micro-batches of {micro} {shown(said)}")

def pads_and_prompt(f, seed):
    policy, rows, advantage, old = _off_policy(seed)
    plain, _ = _step(f, policy, rows, advantage, old)
    def wide(x, value): return torch.nn.functional.pad(x, (0, 2), value=value)
    policy = bigram_lm(WORLD)
    more, _ = _step(f, policy, (wide(rows[0], WORLD.pad), wide(rows[1], False), wide(rows[2], False)), advantage, wide(old, 7.))
    need(close(more, plain), "two more columns of pads change the step")
    two = make_seqs([[WORLD.start, 0]] * 2, [[1, 3], [2, 3]], WORLD.pad)
    policy = bigram_lm(WORLD)
    _step(f, policy, rows_of(two), tensor([1., 2.]).double())
    start = bigram_lm(WORLD)
    same = close(policy.head.weight[:, 0], start.head.weight[:, 0])                   # the state before the prompt's second word
    need(same, "a prompt's own word has become more probable: only tokens of the response are learned")

def worked_loss(f, seed):
    policy, rows, advantage, old = _off_policy(seed)
    ratio = (token_logprobs(policy, *rows[:2]) - old).exp()
    gain = torch.minimum(ratio * advantage[:, None], ratio.clamp(.8, 1.2) * advantage[:, None])
    want = -(torch.where(rows[2], gain, 0.).sum(1) / rows[2].sum(1)).mean().item()
    def at(shift): # the loss, if the log-probs were read there
        logp = policy(input_ids=rows[0], attention_mask=rows[1].long()).logits.log_softmax(-1).roll(shift, 1).gather(-1, rows[0][..., None])[..., 0]
        rho = torch.where(rows[2], logp.detach() - old, 0.).exp()
        part = torch.minimum(rho * advantage[:, None], rho.clamp(.8, 1.2) * advantage[:, None])
        return -(torch.where(rows[2], part, 0.).sum(1) / rows[2].sum(1)).mean()
    held = torch.where(rows[2], gain, 0.)
    others = {"no shift: logits at position i - 1 predict token i": at(0), "the shift goes the wrong way: logits at position i - 1 predict token i": at(-1),
              "turn the sign: the loss is minus the gain": -want, "that is the mean over all tokens, not over each answer's first": -held.sum() / rows[2].sum(),
              "that is the sum over each answer's tokens": -held.sum(1).mean(), "that is the sum over answers": want * len(held),
              "the ratio is not clipped": -(torch.where(rows[2], ratio * advantage[:, None], 0.).sum(1) / rows[2].sum(1)).mean()}
    _, said = _step(f, policy, rows, advantage, old)
    need(isinstance(said, float), f"the loss comes back as a float, got {shown(said)}")
    need(close(said, want), f"the loss is {shown(said)}, want {shown(want)}" + (
        like(said, others) or ": the mean over each answer's tokens, then over answers"))

def clipping(f, seed):
    def step(*words, advantage, past=0.): # of one-word answers; the first one's ratio is exp(past)
        rows, policy = rows_of(make_seqs([[WORLD.start]] * 2, [[w] for w in words], WORLD.pad)), bigram_lm(WORLD)
        old = token_logprobs(policy, *rows[:2])
        old[0, 1] -= past
        return _step(f, policy, rows, tensor([advantage] * 2).double(), old)[0]
    for sign, past, ratio in ((1., .5, "1.65"), (-1., -.5, ".61")):
        need(close(step(1, 2, advantage=sign, past=past), step(2, 2, advantage=sign / 2)),
             f"a ratio of {ratio} with an advantage of {sign:g} is past the clip; it is learned from all the same")
        moved, plain = step(1, 2, advantage=-sign, past=past), step(1, 2, advantage=-sign)
        need((moved - plain).norm() > .05 * plain.norm() and not close(moved, step(2, 2, advantage=-sign / 2)),
             f"a ratio of {ratio} with an advantage of {-sign:g} counts in full: the smaller of the two, not the clipped one alone")

MIB = 24.
def lean(f, seed):
    policy, tokenizer = load_bundled("sft")
    policy.requires_grad_()
    ids = torch.randint(6, 200, (64, 48), generator=seeded(seed, 5))
    mask = torch.ones_like(ids, dtype=torch.bool)
    response = torch.arange(48) >= 16 + 0 * ids
    rows = ids, mask, response
    old = token_logprobs(policy, ids, mask)
    advantage = torch.randn(64, generator=seeded(seed, 6))
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
    mib = kept_mib(lambda: f(policy, optimizer, rows, old, advantage, .2, 8), policy.parameters())
    need(mib <= MIB, f"64 rows of 48 tokens in micro-batches of 8 keep {mib:.0f} MiB for the backward pass, {MIB:g} are the limit: "
         "call backward for each micro-batch")

grpo_update = PART("grpo_update", {
    "with all responses listed, the step is the exact gradient of chapter 06": exact_gradient,
    "the loss returned is the one worked by hand": worked_loss,
    "micro-batches change nothing": micro_batches, "nothing is learned from pads and prompt": pads_and_prompt,
    "a token has no gradient beyond the clip and the full gradient within it": clipping,
    f"at most {MIB:g} MiB are kept for a backward pass": lean})

# ---- the whole
SECONDS, BAR, ANSWERS = 20., .8, 64

def play(f, seed, reward=lambda y: REWARD[INDEX[y]].item(), n_rollouts=40):
    policy, asked = bigram_lm(WORLD).float(), []
    def reward_fn(responses):
        need(all(isinstance(y, (list, tuple)) for y in responses), "reward_fn takes a list of responses, each a list of token ids")
        ys = [tuple(int(w) for w in y) for y in responses]
        strange = [y for y in ys if y not in INDEX]
        need(not strange, f"reward_fn was given {strange[:1]}: a response has no prompt, no pad, and ends with its first eos")
        asked.extend(ys)
        return [reward(y) for y in ys]
    f(policy, reward_fn, [WORLD.start], WORLD.max_len, WORLD.eos, WORLD.pad, seeded(seed, 7), n_rollouts)
    return policy, asked
INDEX = {y: i for i, y in enumerate(WORLD.responses())}

def nothing_to_learn(f, seed):
    start = weights_of(bigram_lm(WORLD).float())
    policy, _ = play(f, seed, lambda y: 1., 3)
    need(close(weights_of(policy), start), "where every answer earns the same reward the policy has changed")

def answers_asked(f, seed):
    _, asked = play(f, seed, n_rollouts=3)
    need(len(asked) <= 3 * ANSWERS, f"3 rollouts asked for {len(asked)} rewards, {3 * ANSWERS} are the limit")
    need(len({*asked}) > 3, f"only {len({*asked})} different answers in 3 rollouts: sample, at temperature 1")

def repeatable(f, seed):
    one, two = (weights_of(play(f, seed, n_rollouts=2)[0]) for _ in range(2))
    need(close(one, two), "the same generator gives another policy: draw from it alone")

def near_the_best(f, seed):
    first = expectation(all_logprobs(bigram_lm(WORLD), WORLD), REWARD).item()
    shares = []
    for k in range(3):
        policy, _ = play(f, seed * 3 + k)
        reached = expectation(all_logprobs(policy, WORLD).double(), REWARD).item()
        shares.append((reached - first) / (REWARD.max().item() - first))
    need(sorted(shares)[1] >= BAR, f"40 rollouts made {', '.join(f'{x:.0%}' for x in shares)} of the way from the start to the best "
         f"on three seeds, the bar is {BAR:.0%} in their median")

train_grpo = PART("train_grpo", {
    f"a rollout asks for at most {ANSWERS} rewards": answers_asked, "equal rewards leave the policy as it is": nothing_to_learn,
    "the same generator gives the same policy": repeatable,
    f"40 rollouts cover {BAR:.0%} of the way to the best possible score, by the exact sum, in the median of three seeds": near_the_best}, SECONDS)
