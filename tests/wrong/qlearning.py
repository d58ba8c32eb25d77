"Wrong answers to the exercises of the chapter on Q-learning."
import torch

# fixed_soft_update(slow, fast, rate, step)
def as_it_was(slow, fast, rate, step):
    if step % 10 != 0: return slow
    if step <= 100: return [new.detach().clone() for new in fast]
    return [old + rate * (new.detach() - old) for old, new in zip(slow, fast)]
def no_more_every(slow, fast, rate, step):
    if step <= 100: return [new.detach().clone() for new in fast]
    return [torch.lerp(old, new.detach(), rate) for old, new in zip(slow, fast)]
def no_more_start(slow, fast, rate, step):
    if step % 10: return slow
    return [torch.lerp(old, new.detach(), rate) for old, new in zip(slow, fast)]
def ema_the_other_way(slow, fast, rate, step):
    return [rate * old + (1 - rate) * new.detach() for old, new in zip(slow, fast)]
def only_adds(slow, fast, rate, step):
    return [old + rate * new.detach() for old, new in zip(slow, fast)]
def with_graph(slow, fast, rate, step):
    return [old.lerp(new, rate) for old, new in zip(slow, fast)]
def frozen_for_good(slow, fast, rate, step): return [old.clone() for old in slow]
def sign_of_the_gap(slow, fast, rate, step):
    return [old - rate * (new.detach() - old) for old, new in zip(slow, fast)]
def hard_copy(slow, fast, rate, step): return [new.detach().clone() for new in fast]

# target_row(reward, value, gamma)
def total(reward, gamma, i, first=None):
    said = 0. * reward[0]
    for j in reversed(range(i if first is None else first, len(reward))): said = reward[j] + gamma * said
    return said
def no_bound(reward, value, gamma):
    y = reward + gamma * value
    return torch.cat([y[:-1], reward[-1:]])
def never_over(reward, value, gamma):
    return torch.stack([torch.maximum(reward[i] + gamma * value[i], total(reward, gamma, i))
                        for i in range(len(reward))])
def one_step(reward, value, gamma, i): return reward[i] if i == len(reward) - 1 else reward[i] + gamma * value[i]
def no_gamma(reward, value, gamma):
    return torch.stack([torch.maximum(one_step(reward, value, 1., i), reward[i:].sum())
                        for i in range(len(reward))])
def undiscounted_floor(reward, value, gamma):
    return torch.stack([torch.maximum(one_step(reward, value, gamma, i), reward[i:].sum())
                        for i in range(len(reward))])
def value_undiscounted(reward, value, gamma):
    return torch.stack([torch.maximum(one_step(reward, value, 1., i), total(reward, gamma, i))
                        for i in range(len(reward))])
def all_discounted(reward, value, gamma):
    y = []
    for i in range(len(reward)):
        one = gamma * (reward[i] + (value[i] if i < len(reward) - 1 else 0.))
        y.append(torch.maximum(one, total(reward, gamma, i)))
    return torch.stack(y)
def ceiling(reward, value, gamma):
    return torch.stack([torch.minimum(one_step(reward, value, gamma, i), total(reward, gamma, i))
                        for i in range(len(reward))])
def monte_carlo(reward, value, gamma):
    return torch.stack([total(reward, gamma, i) for i in range(len(reward))])
def later_rewards(reward, value, gamma):
    n, y = len(reward), []
    for i in range(n):
        seen = sum((gamma**(j - i) * reward[j] for j in range(i + 1, n)), torch.zeros_like(reward[0]))
        y.append(torch.maximum(one_step(reward, value, gamma, i), seen))
    return torch.stack(y)
def from_the_start(reward, value, gamma):
    weights = gamma**torch.arange(len(reward)).to(reward)
    return torch.stack([torch.maximum(one_step(reward, value, gamma, i), (weights * reward)[i:].sum())
                        for i in range(len(reward))])
def value_of_next(reward, value, gamma):
    later = torch.cat([value[1:], 0 * value[:1]])
    return torch.stack([torch.maximum(reward[i] + gamma * later[i], total(reward, gamma, i))
                        for i in range(len(reward))])

# epsilon_greedy(q, allowed, epsilon)
def forbidden_best(q, allowed, epsilon):
    p = epsilon * allowed / allowed.sum()
    p[q.argmax()] += 1 - epsilon
    return p
def chance_for_all(q, allowed, epsilon):
    p = torch.full((len(q),), epsilon / len(q))
    p[torch.where(allowed, q, -torch.inf).argmax()] += 1 - epsilon
    return p
def mask_forgotten(q, allowed, epsilon):
    p = torch.full((len(q),), epsilon / len(q))
    p[q.argmax()] += 1 - epsilon
    return p
def others_only(q, allowed, epsilon):
    best = torch.where(allowed, q, -torch.inf).argmax()
    p = epsilon * allowed / max(1, allowed.sum() - 1)
    p[best] = 1 - epsilon
    return p
def overwritten(q, allowed, epsilon):
    p = epsilon * allowed / allowed.sum()
    p[q.masked_fill(~allowed, -torch.inf).argmax()] = 1 - epsilon
    return p
def epsilon_greedily(q, allowed, epsilon):
    p = (1 - epsilon) * allowed / allowed.sum()
    p[q.masked_fill(~allowed, -torch.inf).argmax()] += epsilon
    return p
def times_mask(q, allowed, epsilon):
    p = epsilon * allowed / allowed.sum()
    p[(q * allowed).argmax()] += 1 - epsilon
    return p
def soft(q, allowed, epsilon):
    greedy = q.float().masked_fill(~allowed, -torch.inf).softmax(0)
    return (1 - epsilon) * greedy + epsilon * allowed / allowed.sum()
def greedily(q, allowed, epsilon):
    return torch.nn.functional.one_hot(q.masked_fill(~allowed, -torch.inf).argmax(), len(q)).float()
def worst(q, allowed, epsilon):
    p = epsilon * allowed / allowed.sum()
    p[q.masked_fill(~allowed, torch.inf).argmin()] += 1 - epsilon
    return p

WRONG = {
    "fixed_soft_update": [
        ("it still copies the learner outright, every tenth step up to step 100", as_it_was),
        ("the first 100 steps are still a plain copy", no_more_every),
        ("it moves at every tenth step only: the share is meant for each step", no_more_start),
        ("turned round: that keeps the share `rate` of the old copy", ema_the_other_way),
        ("what moves is a share of the difference: the old copy has to shrink by as much", only_adds),
        ("gradient flows through the copy: it is data", with_graph),
        ("it never moves", frozen_for_good),
        ("it moves away from the learner", sign_of_the_gap),
        ("that is the learner itself", hard_copy)],
    "target_row": [
        ("the bound is missing: y is never below what was really earned", no_bound),
        ("nothing follows the last token: its target is its reward", never_over),
        ("gamma is missing", no_gamma),
        ("gamma is missing in what was earned", undiscounted_floor),
        ("gamma is missing in front of the value", value_undiscounted),
        ("the reward of token i itself is not discounted", all_discounted),
        ("the bound is a floor, not a ceiling", ceiling),
        ("that is only what was earned: the value is missing", monte_carlo),
        ("what was earned from token i on begins with reward[i]", later_rewards),
        ("gamma counts steps from token i, not from the start", from_the_start),
        ("value[i] is what stands after token i: value[i + 1] is one too late", value_of_next)],
    "epsilon_greedy": [
        ("a forbidden action is the best one: look at the allowed ones only", forbidden_best),
        ("forbidden actions are drawn by chance", chance_for_all),
        ("nothing is forbidden: `allowed` is not looked at", mask_forgotten),
        ("chance may pick the best action as well", others_only),
        ("the chances do not sum to 1: the best action has its share of epsilon on top", overwritten),
        ("epsilon is the share of chance, not of the best", epsilon_greedily),
        ("a forbidden action counted as 0 beats all below zero: minus infinity never wins", times_mask),
        ("that is a softmax: the best action takes all that is not chance", soft),
        ("that is greedy: epsilon is not looked at", greedily),
        ("that is the worst action", worst)]}
