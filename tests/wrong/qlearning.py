"Wrong answers to the exercises of the chapter on Q-learning."
import torch
from rlhf_nb.qlearning import bellman_targets as right_targets, monte_carlo_returns
from rlhf_nb.base.q_networks import discounts, hidden_states, next_values, q_terms, shift_left
from rlhf_nb.tokens import shift_right

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

# bellman_targets(x, value, config)
def bootstraps(x, config): return ~x.ended[:, None] & (config.on_truncation == "bootstrap")
def build(x, value, config, follows, g, floor=torch.maximum, n=None, r=None):
    r = x.reward if r is None else r
    one = r + g * torch.where(follows, value, torch.zeros_like(value))
    y = one
    for _ in range((n or config.n_step) - 1): y = torch.where(x.last(), one, r + g * x.ahead(y))
    if config.mc_bound and floor:
        y = torch.where(bootstraps(x, config), y, floor(y, monte_carlo_returns(x, g)))
    return torch.where(x.mask, y, torch.zeros_like(y))
def goes_on(x, config): return ~x.last() | bootstraps(x, config)
def never_over(x, value, config):
    return build(x, value, config, torch.ones_like(x.mask), discounts(x, config))
def always_over(x, value, config): return build(x, value, config, ~x.last(), discounts(x, config))
def cut_goes_on(x, value, config):
    return build(x, value, config, ~x.last() | ~x.ended[:, None], discounts(x, config))
def no_gamma(x, value, config): return build(x, value, config, goes_on(x, config), torch.ones_like(x.reward))
def gamma_everywhere(x, value, config):
    return build(x, value, config, goes_on(x, config), config.gamma * torch.ones_like(x.reward))
def reward_discounted(x, value, config):
    g = discounts(x, config)
    one = config.gamma * x.reward + g * torch.where(goes_on(x, config), value, torch.zeros_like(value))
    y = one
    for _ in range(config.n_step - 1): y = torch.where(x.last(), one, config.gamma * x.reward + g * x.ahead(y))
    if config.mc_bound: y = torch.where(bootstraps(x, config), y, y.maximum(monte_carlo_returns(x, g)))
    return torch.where(x.mask, y, torch.zeros_like(y))
def no_bound(x, value, config): return build(x, value, config, goes_on(x, config), discounts(x, config), None)
def ceiling(x, value, config):
    return build(x, value, config, goes_on(x, config), discounts(x, config), torch.minimum)
def bound_for_all(x, value, config):
    y = no_bound(x, value, config)
    return y.maximum(monte_carlo_returns(x, discounts(x, config))) if config.mc_bound else y
def one_step_only(x, value, config): return build(x, value, config, goes_on(x, config), discounts(x, config), n=1)
def one_more_step(x, value, config):
    return build(x, value, config, goes_on(x, config), discounts(x, config), n=config.n_step + 1)
def value_of_next(x, value, config): return right_targets(x, shift_left(value), config)

def targets_by_loop(x, value, config):
    g, y = discounts(x, config), torch.zeros_like(x.reward)
    for b in range(len(x.reward)):
        at = x.mask[b].nonzero().flatten().tolist()
        open_end = bool(bootstraps(x, config)[b])
        for k, i in enumerate(at):
            total, weight = 0., 1.
            for step, j in enumerate(at[k:]):
                total, weight = total + weight * x.reward[b, j], weight * g[b, j]
                if j == at[-1]:
                    if open_end: total = total + weight * value[b, j]
                    break
                if step + 1 == config.n_step:
                    total = total + weight * value[b, j]
                    break
            seen = 0.
            for j in reversed(at[k:]): seen = x.reward[b, j] + g[b, j] * seen
            y[b, i] = max(total, seen) if config.mc_bound and not open_end else total
    return y
def targets_from_behind(x, value, config):
    "Columns from the end backwards, in float64."
    g, last, n = discounts(x, config).double(), x.last(), config.n_step
    r, v = x.reward.double(), torch.where(goes_on(x, config), value.double(), 0.)
    one = r + g * v
    y = one.clone()
    for _ in range(n - 1):
        later = x.ahead(y)
        y = torch.where(last, one, r + g * later)
    if config.mc_bound:
        seen = monte_carlo_returns(x, discounts(x, config)).double()
        y = torch.where(bootstraps(x, config), y, torch.maximum(y, seen))
    return torch.where(x.mask, y, 0.).to(x.reward.dtype)

# q_loss(nets, x, config)
def parts(nets, x, config, hidden=None, values=None):
    hidden = hidden_states(nets.online, x.seqs) if hidden is None else hidden
    y = right_targets(x, next_values(nets, x, hidden, config) if values is None else values, config)[x.mask]
    q, others = q_terms(nets.online.get_output_embeddings(), shift_right(hidden)[x.mask], x.seqs.ids[x.mask],
                        nets.allowed, config.min_return)
    return y, q, others
def sums(y, q, others):
    return dict(td_loss=((q - y)**2).sum().detach(), conservative_loss=others.sum().detach(),
                q_values=q.sum().detach(), td_target=y.sum())
def whole(nets, x, config, change):
    y, q, others = parts(nets, x, config)
    return change((q - y).square(), others), x.mask.sum(), sums(y, q, others)
def td_not_halved(nets, x, config): return whole(nets, x, config, lambda td, o: td.sum() + config.alpha / 2 * o.sum())
def pull_not_halved(nets, x, config): return whole(nets, x, config, lambda td, o: td.sum() / 2 + config.alpha * o.sum())
def alpha_forgotten(nets, x, config): return whole(nets, x, config, lambda td, o: (td / 2 + o / 2).sum())
def mean_loss(nets, x, config): return whole(nets, x, config, lambda td, o: (td / 2 + config.alpha / 2 * o).mean())
def unshifted(nets, x, config, move=lambda h: h):
    hidden = hidden_states(nets.online, x.seqs)
    y = right_targets(x, next_values(nets, x, hidden, config), config)[x.mask]
    q, others = q_terms(nets.online.get_output_embeddings(), move(hidden)[x.mask], x.seqs.ids[x.mask],
                        nets.allowed, config.min_return)
    return ((q - y)**2 / 2 + config.alpha / 2 * others).sum(), x.mask.sum(), sums(y, q, others)
def shifted_left(nets, x, config): return unshifted(nets, x, config, shift_left)
def pulled_to_zero(nets, x, config):
    hidden = hidden_states(nets.online, x.seqs)
    y = right_targets(x, next_values(nets, x, hidden, config), config)[x.mask]
    q, others = q_terms(nets.online.get_output_embeddings(), shift_right(hidden)[x.mask], x.seqs.ids[x.mask],
                        nets.allowed, 0.)
    return ((q - y)**2 / 2 + config.alpha / 2 * others).sum(), x.mask.sum(), sums(y, q, others)
def trains_the_target(nets, x, config):
    hidden = hidden_states(nets.target, x.seqs)
    y = right_targets(x, next_values(nets, x, hidden, config), config)[x.mask]
    q, others = q_terms(nets.target.get_output_embeddings(), shift_right(hidden)[x.mask], x.seqs.ids[x.mask],
                        nets.allowed, config.min_return)
    return ((q - y)**2 / 2 + config.alpha / 2 * others).sum(), x.mask.sum(), sums(y, q, others)
def counts_rows(nets, x, config):
    loss, _, metrics = whole(nets, x, config, lambda td, o: (td / 2 + config.alpha / 2 * o).sum())
    return loss, torch.tensor(len(x.reward)), metrics
def counts_all(nets, x, config):
    loss, _, metrics = whole(nets, x, config, lambda td, o: (td / 2 + config.alpha / 2 * o).sum())
    return loss, torch.tensor(x.mask.numel()), metrics

def loss_in_one_line(nets, x, config):
    y, q, others = parts(nets, x, config)
    return (.5 * (q - y)**2 + .5 * config.alpha * others).sum(), x.mask.sum(), sums(y, q, others)
def loss_from_a_table(nets, x, config):
    "All Q-values at once, as a table (b t v)."
    hidden, ids, mask = hidden_states(nets.online, x.seqs), x.seqs.ids, x.mask
    y = right_targets(x, next_values(nets, x, hidden, config), config)
    table = nets.online.get_output_embeddings()(shift_right(hidden))
    q = table.gather(-1, ids.clamp(max=table.shape[-1] - 1)[..., None])[..., 0]
    square = (table - config.min_return)**2 * nets.allowed
    others = (square.sum(-1) - (q - config.min_return)**2) / (nets.allowed.sum() - 1)
    q, y, others = q[mask], y[mask], others[mask]
    return ((q - y)**2).sum() / 2 + config.alpha / 2 * others.sum(), mask.sum(), sums(y, q, others)

# fixed_soft_update, right
def by_lerp(slow, fast, rate, step): return [torch.lerp(a, b.detach(), rate) for a, b in zip(slow, fast)]
def by_loop(slow, fast, rate, step):
    moved = []
    for i in range(len(slow)):
        with torch.no_grad(): moved.append((1 - rate) * slow[i] + rate * fast[i])
    return moved

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
        ("that is the learner itself, a copy of the online network whatever the rate", hard_copy)],
    "bellman_targets": [
        ("nothing follows the last token of a response that ended", never_over),
        ("a truncated response goes on when on_truncation is bootstrap", always_over),
        ("a truncated response is over, unless on_truncation is bootstrap", cut_goes_on),
        ("gamma is missing", no_gamma),
        ("gamma acts where `discounts` tells: per token or per response", gamma_everywhere),
        ("the reward of token i itself is not discounted", reward_discounted),
        ("the bound is missing: y is at least the observed return", no_bound),
        ("the bound is a lower one: take the maximum", ceiling),
        ("a response that bootstraps has no bound: only a part of its return was seen", bound_for_all),
        ("n_step is not used", one_step_only),
        ("n_step is one too many", one_more_step),
        ("value[i] is what follows token i already: no shift", value_of_next)],
    "q_loss": [
        ("shifted by one: the state that chose token i is the one before it", unshifted),
        ("shifted the wrong way: the state that chose token i is the one before it", shifted_left),
        ("the squared error is not halved", td_not_halved),
        ("the conservative term is not halved", pull_not_halved),
        ("alpha is missing", alpha_forgotten),
        ("that is the mean: the loss is summed, and the number of tokens comes beside it", mean_loss),
        ("the other actions are pulled to min_return, not to 0", pulled_to_zero),
        ("the target network is never trained: Q of the token comes from the online network", trains_the_target),
        ("the second result is the number of response tokens, not of rows", counts_rows),
        ("the second result is the number of response tokens, without pads and prompts", counts_all)]}

RIGHT = {"fixed_soft_update": [by_lerp, by_loop], "bellman_targets": [targets_by_loop, targets_from_behind],
         "q_loss": [loss_in_one_line, loss_from_a_table]}
