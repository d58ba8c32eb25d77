"Answers to the exercises of the chapter on the oracle that learners might give, each wrong."
import torch
from rlhf_nb.oracle import expectation, optimal_policy, optimal_q, states
from rlhf_nb.tokens import masked_mean_rows, shift_right

def same_time(values, reward, seqs):
    return (reward[:, None] - values.detach()).masked_fill(~seqs.response_mask, 0)
def next_time(values, reward, seqs):
    later = torch.cat([values[:, 1:], values[:, -1:]], 1).detach()
    return (reward[:, None] - later).masked_fill(~seqs.response_mask, 0)
def two_before(values, reward, seqs):
    early = torch.cat([values[:, :1], values[:, :1], values[:, :-2]], 1).detach()
    return (reward[:, None] - early).masked_fill(~seqs.response_mask, 0)
def minus(values, reward, seqs):
    return (shift_right(values.detach()) - reward[:, None]).masked_fill(~seqs.response_mask, 0)
def with_prompt(values, reward, seqs):
    early = torch.cat([values[:, :1], values[:, :-1]], 1).detach()
    return (reward[:, None] - early).masked_fill(~seqs.attention_mask, 0)
def unmasked(values, reward, seqs):
    return reward[:, None] - torch.cat([values[:, :1], values[:, :-1]], 1).detach()
def multiplied(values, reward, seqs):
    return (reward[:, None] - shift_right(values.detach())) * seqs.response_mask
def attached(values, reward, seqs):
    return (reward[:, None] - shift_right(values)).masked_fill(~seqs.response_mask, 0)
def prediction(values, reward, seqs):
    return -shift_right(values.detach()).masked_fill(~seqs.response_mask, 0)
def pooled(values, reward, seqs):
    mean = masked_mean_rows(values.detach(), seqs.response_mask)
    return (reward - mean)[:, None].masked_fill(~seqs.response_mask, 0)
def of_prompt(values, reward, seqs):
    last = (seqs.response_mask.int().argmax(1) - 1).clamp(min=0)
    value = values.detach().gather(1, last[:, None])
    return (reward[:, None] - value).masked_fill(~seqs.response_mask, 0)
def no_baseline(values, reward, seqs):
    return reward[:, None] * seqs.response_mask

def swapped(logp, ref_logp, reward, beta):
    best, _ = optimal_policy(ref_logp, reward, beta)
    return beta * expectation(best, best - logp)
def no_beta(logp, ref_logp, reward, beta):
    best, _ = optimal_policy(ref_logp, reward, beta)
    return expectation(logp, logp - best)
def negative(logp, ref_logp, reward, beta):
    _, log_z = optimal_policy(ref_logp, reward, beta)
    return expectation(logp, reward) - beta * expectation(logp, logp - ref_logp) - beta * log_z
def for_free(logp, ref_logp, reward, beta):
    return beta * optimal_policy(ref_logp, reward, beta)[1] - expectation(logp, reward)
def bonus(logp, ref_logp, reward, beta):
    _, log_z = optimal_policy(ref_logp, reward, beta)
    return beta * log_z - expectation(logp, reward) - beta * expectation(logp, logp - ref_logp)
def forward_kl(logp, ref_logp, reward, beta):
    _, log_z = optimal_policy(ref_logp, reward, beta)
    kl = (ref_logp.exp() * (ref_logp - logp)).sum()
    return beta * log_z - (expectation(logp, reward) - beta * kl)
def whole_kl(logp, ref_logp, reward, beta):
    _, log_z = optimal_policy(ref_logp, reward, beta)
    return beta * log_z - expectation(logp, reward) + expectation(logp, logp - ref_logp)
def best_reward(logp, ref_logp, reward, beta):
    best, _ = optimal_policy(ref_logp, reward, beta)
    return expectation(best, reward) - expectation(logp, reward - beta * (logp - ref_logp))
def highest(logp, ref_logp, reward, beta):
    return reward.max() - expectation(logp, reward - beta * (logp - ref_logp))
def plain_log_z(logp, ref_logp, reward, beta):
    _, log_z = optimal_policy(ref_logp, reward, beta)
    return log_z - expectation(logp, reward - beta * (logp - ref_logp))
def best_value(logp, ref_logp, reward, beta): return beta * optimal_policy(ref_logp, reward, beta)[1]
def of_logs(logp, ref_logp, reward, beta):
    kl = expectation(logp, logp - ref_logp)
    return beta * optimal_policy(ref_logp, reward, beta)[1] - ((logp * reward).sum() - beta * kl)

def plain_sum(logp, ref_logp, reward, beta):
    best = beta * torch.logsumexp(ref_logp + reward / beta, 0)
    return best - (logp.exp() * reward).sum() + beta * (logp.exp() * (logp - ref_logp)).sum()

def walk(world, probs, reward, follow):
    number, n = {s: i for i, s in enumerate(states(world))}, len(world.words)
    done, q = {y: r for y, r in zip(world.responses(), reward)}, torch.zeros_like(probs)
    for s in sorted(number, key=len, reverse=True):
        for w in range(n):
            y = (*s, w)
            q[number[s], w] = done[y] if y in done else follow(
                probs[number[y], :n], q[number[y], :n], probs[number[s], :n])
    return q
def best_word(world, probs, reward): return optimal_q(world, reward).nan_to_num()
def any_word(world, probs, reward): return walk(world, probs, reward, lambda p, q, old: q.mean())
def all_words(world, probs, reward): return walk(world, probs, reward, lambda p, q, old: sum(q))
def likeliest(world, probs, reward): return walk(world, probs, reward, lambda p, q, old: q[p.argmax()])
def old_probs(world, probs, reward): return walk(world, probs, reward, lambda p, q, old: old @ q)
def last_word(world, probs, reward): return walk(world, probs, reward, lambda p, q, old: 0)
def only_ended(world, probs, reward):
    ended = torch.tensor([y[-1] == world.eos for y in world.responses()])
    return walk(world, probs, reward * ended, lambda p, q, old: (p * q).sum())
def impatient(world, probs, reward): return walk(world, probs, reward, lambda p, q, old: .9 * (p @ q))
def state_value(world, probs, reward):
    q, n = walk(world, probs, reward, lambda p, q, old: p @ q), len(world.words)
    v = (probs * q).sum(1, keepdim=True).expand_as(q).clone()
    v[:, n:] = 0
    return v
def advantage(world, probs, reward):
    q, n = walk(world, probs, reward, lambda p, q, old: p @ q), len(world.words)
    q[:, :n] -= (probs * q).sum(1, keepdim=True)
    return q
def with_nan(world, probs, reward):
    q = walk(world, probs, reward, lambda p, q, old: p @ q)
    q[:, len(world.words):] = torch.nan
    return q
def worst_word(world, probs, reward): return walk(world, probs, reward, lambda p, q, old: q.min())

WRONG = {
    "fixed_baseline": [
        ("no shift: what the critic predicts after word i it predicts knowing word i", same_time),
        ("the shift goes the wrong way: even the next word is known", next_time),
        ("one shift too many: word i - 1 has been read", two_before),
        ("turn the sign: better than expected is above 0", minus),
        ("the prompt was not chosen: 0 there", with_prompt),
        ("prompt and pads must be 0", unmasked),
        ("0 times nan is nan: choose with the mask, do not multiply", multiplied),
        ("it is a constant for the policy: detach the values", attached),
        ("the reward is missing: that is the critic's prediction alone", prediction),
        ("an average over the response knows every word of it", pooled),
        ("that is its prediction before the first word: take the one before each", of_prompt),
        ("the critic is missing: take off what it predicted before each word", no_baseline)],
    "regret": [
        ("that is beta KL(best || policy): swap them", swapped),
        ("that is KL(policy || best): multiply by beta", no_beta),
        ("turn the sign: nothing is better than the best", negative),
        ("the KL penalty is missing", for_free), ("the KL penalty has the wrong sign", bonus),
        ("the KL is the wrong way round: KL(policy || reference)", forward_kl),
        ("each nat of KL costs beta", whole_kl),
        ("the best policy pays the KL penalty as well: its value is beta log Z", best_reward),
        ("no policy gets the highest reward without KL: the best value is beta log Z", highest),
        ("that is log Z: times beta it is the best value", plain_log_z),
        ("that is the best value: take off the value of the policy", best_value),
        ("those are logs: exp makes probabilities of them", of_logs),
        ("0 times infinity is nan: leave out responses of probability 0", plain_sum)],
    "policy_q": [
        ("that is the best word, not the mean", best_word),
        ("weigh the words by the policy's probabilities", any_word),
        ("that is the sum over words, without their probabilities", all_words),
        ("that follows the most probable word only", likeliest),
        ("those are the probabilities before the word: take the state after it", old_probs),
        ("what comes later is missing: only the last word is rewarded", last_word),
        ("a response that is cut is complete too", only_ended),
        ("a reward is worth the same however late: no gamma", impatient),
        ("that is the mean of the state: one number for each word", state_value),
        ("that is the advantage: do not take the state's mean off", advantage),
        ("0, not nan, for start and pad", with_nan), ("", worst_word)]}
