"Exercises of the chapter on Q-learning."
from dataclasses import replace
import torch
from torch import Generator, tensor
from rlhf_nb import qlearning
from rlhf_nb.book.checks import Exercise, ProofKind
from rlhf_nb.exercises.tokens import MASK, normal
from rlhf_nb.worlds.oracle import TabularLM, micro_world
from rlhf_nb.base.q_networks import (Episodes, QConfig, QNets, discounts, hidden_states, next_values, q_network,
                                q_terms, shift_left)
from rlhf_nb.tokens import Seqs, shift_right

def _draw(seed, *size): return torch.randint(-8, 9, size, generator=Generator().manual_seed(seed)) / 4

class QTargets(ProofKind):
    asks, chapter = "targets of Q-learning", "qlearning"
    takes = dict(rewards="rewards reward r", done="done dones terminal terminated terminals is_last",
                 gamma="gamma discount",
                 next_q="next_q q_next next_q_values next_qs q_next_values target_q")
    defaults = dict(gamma=.99)
    right = dict(best=dict(most="r + γ max Q", soft="r + γ log Σ exp Q", expected="r + γ Σ softmax(Q) Q"),
                 end=dict(stops=""), form=dict(plain=""))
    wrong = dict(
        best=dict(mean="the mean over next tokens, not the best", least="the worst next token, not the best",
                  first="the value of token 0, whatever it is worth",
                  total="the sum over next tokens, not the best"),
        end=dict(goes="nothing follows the last token of a response that ended",
                 inverted="done is upside down: the next value counts only where there is none"),
        form=dict(undiscounted="gamma is missing", both="the reward of token i itself is not discounted",
                  no_reward="the reward is missing",
                  minus="the next value is subtracted", shifted="value[i] is what follows token i already: no shift",
                  dropped="the last token's reward is dropped together with its next value"))
    known = {"the Bellman target": dict(best="most")}
    def case(self, seed, gamma, mask=MASK, learns=False):
        done = mask & ~torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], 1)
        return dict(rewards=normal(seed, *mask.shape), next_q=normal(seed + 1, *mask.shape,
            4).requires_grad_(learns), done=done, gamma=gamma)
    def cases(self, given): return {"three responses": self.case(0, .9), "another discount": self.case(10,
        .6)}
    def edges(self, given): return {"one row": self.case(20, .9, MASK[:1]),
                                    "no gradient through the target": self.case(30, .9, learns=True)}
    def compute(self, a, c):
        q, r, g = a.next_q.detach(), a.rewards, a.gamma
        v = dict(most=q.amax(-1), mean=q.mean(-1), soft=q.logsumexp(-1), least=q.amin(-1), first=q[..., 0],
                 total=q.sum(-1), expected=(q.softmax(-1) * q).sum(-1))[c["best"]]
        on = dict(stops=~a.done, goes=torch.ones_like(a.done), inverted=a.done)[c["end"]]
        return dict(plain=r + g * on * v, undiscounted=r + on * v, both=g * (r + on * v),
                    no_reward=g * on * v, minus=r - g * on * v,
                    shifted=r + g * on * v.roll(-1, 1), dropped=on * (r + g * v))[c["form"]]

# ------------------------------------------------------------ fixed_soft_update
def _follow(slow, fast, rate, step, start=0, every=1, old=None, detach=True):
    "The copy after a step; up to `start` it is set equal, and only every so many steps."
    if step % every: return list(slow)
    if detach: fast = [b.detach() for b in fast]
    if step <= start: return [b.clone() for b in fast]
    return [(1 - rate if old is None else old(rate)) * a + rate * b for a, b in zip(slow, fast)]

def _weights(seed, rate, step, dtype=torch.float32):
    slow = [_draw(seed, 2, 3).to(dtype), _draw(seed + 1, 5).to(dtype)]
    return slow, [_draw(seed + 2, 2, 3).to(dtype), _draw(seed + 3, 5).to(dtype)], rate, step

def _learning(seed, rate, step):
    slow, fast, rate, step = _weights(seed, rate, step)
    return slow, [w.requires_grad_() for w in fast], rate, step

fixed_soft_update = Exercise(
    reference=_follow,
    cases={"step 7": _weights(0, .25, 7), "step 20": _weights(10, .25, 20),
           "step 100": _weights(20, .5, 100), "step 103": _weights(30, .25, 103),
           "step 250": _weights(40, .25, 250), "a learner with gradients": _learning(50, .25, 130),
           "rate .02": _weights(60, .02, 3), "bf16": _weights(70, .5, 1, torch.bfloat16)},
    mistakes={
        "it still copies the learner outright, every tenth step up to step 100":
            lambda *x: _follow(*x, start=100, every=10),
        "the first 100 steps are still a plain copy": lambda *x: _follow(*x, start=100),
        "it moves at every tenth step only: the share is meant for each step":
            lambda *x: _follow(*x, every=10),
        "turned round: that keeps the share `rate` of the old copy":
            lambda s, f, rate, n: _follow(s, f, 1 - rate, n),
        "what moves is a share of the difference: the old copy has to shrink by as much":
            lambda *x: _follow(*x, old=lambda rate: 1),
        "gradient flows through the copy: it is data": lambda *x: _follow(*x, detach=False),
        "only the first weight comes back: is the return inside the loop?": lambda *x: _follow(*x)[:1],
        "it never moves": lambda s, f, rate, n: _follow(s, f, 0., n),
        "it moves away from the learner": lambda s, f, rate, n: _follow(s, f, -rate, n),
        "that is the learner itself, a copy of the online network whatever the rate": lambda s, f, rate, n: _follow(s, f, 1., n),
        "halfway at each step, whatever the rate: the share is `rate`": lambda s, f, rate, n: _follow(s, f, .5, n),
        "the old weight is missing: that is the share of the difference alone, to be added to it": lambda *x: [
            y - a for y, a in zip(_follow(*x), x[0])],
        "the old weight is missing: that is the share of the online network alone": lambda *x: _follow(*x, old=lambda rate: 0),
        "the first weight alone moves: each of the list has to": lambda *x: [*_follow(*x)[:1], *[a.clone() for a in x[0][1:]]],
        "the last weight alone moves: each of the list has to": lambda *x: [*[a.clone() for a in x[0][:-1]], *_follow(*x)[-1:]],
        "the step makes no difference: the rate does not fall with it": lambda s, f, rate, n: _follow(s, f, rate / n, n),
        "the step makes no difference: the rate does not grow with it": lambda s, f, rate, n: _follow(s, f, min(rate * n, 1.), n),
        "the step makes no difference: no power of the rate": lambda s, f, rate, n: _follow(s, f, 1 - (1 - rate)**n, n),
        "the step makes no difference: no power of the share, rate^step": lambda s, f, rate, n: _follow(s, f, rate**n, n),
        "the step makes no difference: nothing is corrected for the start, as Adam does": lambda s, f, rate, n: _follow(s, f, rate / (1 - (1 - rate)**n), n),
        "the step makes no difference: behind step 100 it still moves": lambda s, f, rate, n: _follow(s, f, rate if n <= 100 else 0., n),
        "the step makes no difference: up to step 100 it moves, too": lambda s, f, rate, n: _follow(s, f, rate if n > 100 else 0., n),
        "the step makes no difference: the first one is no plain copy": lambda s, f, rate, n: _follow(s, f, rate if n > 1 else 1., n),
        "each weight moves by its own difference, not by the mean of all": lambda s, f, rate, n: [
            a + rate * (b.detach() - a).mean() for a, b in zip(s, f)],
        "a share of the difference, not its sign alone": lambda s, f, rate, n: [a + rate * (b.detach() - a).sign() for a, b in zip(s, f)],
        "a share of the difference, not of its absolute value": lambda s, f, rate, n: [a + rate * (b.detach() - a).abs() for a, b in zip(s, f)],
        "a share of the difference, not of its square": lambda s, f, rate, n: [a + rate * (b.detach() - a)**2 for a, b in zip(s, f)],
        "the share counts once, it is not squared": lambda s, f, rate, n: _follow(s, f, rate**2, n),
        "the share is `rate`, not its root": lambda s, f, rate, n: _follow(s, f, rate**.5, n),
        "the same weight of the other list: the order of one is turned round": lambda s, f, rate, n: [
            a + rate * (b.detach() - a) for a, b in zip(s, f[::-1])],
        "that is one tensor: a list of tensors is asked for": lambda *x: torch.cat([y.flatten() for y in _follow(*x)]),
        "a list is asked for, not a tuple": lambda *x: tuple(_follow(*x))})

# ------------------------------------------------------------------ bellman_targets
def _targets(x, value, config, over=None, gamma=None, own=1., bound=torch.maximum, bounded=None, steps=None,
             inside=True, ahead=lambda v: v, back=lambda x, g: qlearning.monte_carlo_returns(x, g), keep=1., ends_at=None,
             then=lambda x, y: x.ahead(y), taken=lambda x, v: v):
    "The target, with a switch for every slip."
    g, last = discounts(x, config) if gamma is None else gamma, x.last() if ends_at is None else ends_at(x)
    ends = (x.ended[:, None] | (config.on_truncation == "terminal")) if over is None else over(x, config)
    one = own * x.reward + keep * g * taken(x, ahead(value)).masked_fill(last & ends, 0.)
    y = one
    for _ in range((config.n_step if steps is None else steps) - 1):
        y = torch.where(last, one, own * x.reward + g * then(x, y))
    if config.mc_bound and bound is not None:
        seen = back(x, g)
        where = (x.ended[:, None] | (config.on_truncation == "terminal")) if bounded is None else bounded
        y = torch.where(torch.as_tensor(where), bound(y, seen), y)
    return y.masked_fill(~x.mask, 0.) if inside else y

def _episodes(seed, *rows, dtype=torch.float32): # p: prompt, r: response, e: eos, .: pad
    "Quarters as rewards and values; nan in every value that must not be read by an ended row."
    real, mask = (tensor([[c in kinds for c in row] for row in rows]) for kinds in ("pre", "re"))
    ended = tensor(["e" in row for row in rows])
    ids = torch.zeros(mask.shape, dtype=torch.long)
    x = Episodes(Seqs(ids, real, mask), (_draw(seed, *mask.shape) * mask).to(dtype), ended)
    value = _draw(seed + 1, *mask.shape).to(dtype)
    value[~mask | (x.last() & ended[:, None])] = torch.nan
    return x, value

_dense = (Episodes(Seqs(torch.zeros(2, 4).long(), torch.ones(2, 4).bool(), tensor([[False, True, True, True]] * 2)),
                   tensor([[0., .2, -.4, 1.]] * 2), tensor([True, False])),
          tensor([[7., .6, .8, 9.]] * 2))
_ROWS = ("prrre.", "pprrrr", "..pre.", "prrrrr")
def _over_steps(x, v, c, f): # of the targets of one step, two, ...
    y = f(torch.stack([_targets(x, v, c, steps=n + 1, bound=None) for n in range(c.n_step)]))
    whole = x.ended[:, None] | (c.on_truncation == "terminal")
    return (torch.where(whole, y.maximum(qlearning.monte_carlo_returns(x, discounts(x, c))), y) if c.mc_bound else y).masked_fill(~x.mask, 0.)
def _short_end(x, v, c): # one step, where n are not left
    left = x.mask.flip(1).cumsum(1).flip(1)
    return torch.where(left >= c.n_step, _targets(x, v, c), _targets(x, v, c, steps=1))
def _so_far(x, g): # what was discounted before token i
    g = torch.where(x.mask, g, 1.)
    return torch.cat([torch.ones_like(g[:, :1]), g.cumprod(1)[:, :-1]], 1)

bellman_targets = Exercise(
    reference=qlearning.bellman_targets,
    cases={"the worked rows": (*_dense, QConfig(gamma=.5)),
           "the worked rows, no bound": (*_dense, QConfig(gamma=.5, mc_bound=False)),
           "the worked rows, two steps": (*_dense, QConfig(gamma=.5, mc_bound=False, n_step=2)),
           "the worked rows, bootstrap": (*_dense, QConfig(gamma=.5, mc_bound=False, on_truncation="bootstrap")),
           "bootstrap and bound": (*_episodes(10, *_ROWS), QConfig(gamma=.5, on_truncation="bootstrap")),
           "pads on both sides": (*_episodes(20, "..prre", "prre..", "prrrr."), QConfig(gamma=.75)),
           "gamma per response": (*_episodes(30, *_ROWS), QConfig(gamma=.5, discount_per="response",
                                                                 on_truncation="bootstrap", mc_bound=False)),
           "three steps and bound": (*_episodes(40, *_ROWS), QConfig(gamma=.5, n_step=3)),
           "two steps over a gap": (*_episodes(80, "prr.pre", "pr.rr..", "prrrr.."), QConfig(gamma=.5, n_step=2, mc_bound=False)),
           "one row": (*_episodes(50, "pre"), QConfig(gamma=.5)),
           "gamma 1, float64": (*_episodes(60, *_ROWS, dtype=torch.float64), QConfig(gamma=1., mc_bound=False)),
           "two steps, bootstrap": (*_episodes(70, *_ROWS), QConfig(gamma=.5, n_step=2, mc_bound=False,
                                                                    on_truncation="bootstrap"))},
    mistakes={
        QTargets.wrong["end"]["goes"]: lambda *x: _targets(
            *x, over=lambda x, c: tensor(False)),
        "a truncated response goes on when on_truncation is bootstrap": lambda *x: _targets(
            *x, over=lambda x, c: tensor(True)),
        "a truncated response is over, unless on_truncation is bootstrap": lambda *x: _targets(
            *x, over=lambda x, c: x.ended[:, None]),
        QTargets.wrong["form"]["undiscounted"]: lambda x, v, c: _targets(x, v, c, gamma=torch.ones_like(x.reward)),
        "gamma acts where `discounts` tells: per token or per response": lambda x, v, c: _targets(
            x, v, c, gamma=torch.full_like(x.reward, c.gamma)),
        QTargets.wrong["form"]["both"]: lambda x, v, c: _targets(x, v, c, own=c.gamma),
        "the bound is missing: y is at least the observed return": lambda *x: _targets(*x, bound=None),
        "the bound is a lower one: take the maximum": lambda *x: _targets(*x, bound=torch.minimum),
        "a response that bootstraps has no bound: only a part of its return was seen": lambda *x: _targets(
            *x, bounded=True),
        "the bound is the discounted return: gamma counts there as well": lambda *x: _targets(
            *x, back=lambda x, g: qlearning.monte_carlo_returns(x, torch.ones_like(g))),
        "the bound is the whole return from token i on, not its reward": lambda *x: _targets(*x, back=lambda x, g: x.reward),
        "the bound is the return from token i on, not from the first": lambda *x: _targets(
            *x, back=lambda x, g: qlearning.monte_carlo_returns(x, g).where(x.mask & (x.mask.cumsum(1) == 1), 0.).sum(1, keepdim=True)),
        "the bound is the return from token i on, with its own reward": lambda *x: _targets(
            *x, back=lambda x, g: shift_left(qlearning.monte_carlo_returns(x, g))),
        "the reward counts whole: no weighted mean of reward and value": lambda x, v, c: _targets(x, v, c, own=1 - discounts(x, c)),
        "the value counts gamma, not 1 - gamma": lambda x, v, c: _targets(x, v, c, gamma=1 - discounts(x, c)),
        "gamma counts once before a value, not twice": lambda x, v, c: _targets(x, v, c, keep=discounts(x, c)),
        "n_step is not used": lambda *x: _targets(*x, steps=1),
        "n_step is one too many": lambda x, v, c: _targets(x, v, c, steps=c.n_step + 1),
        "outside the response the target is 0": lambda *x: _targets(*x, inside=False),
        QTargets.wrong["form"]["shifted"]: lambda *x: _targets(*x, ahead=shift_left),
        "the token after a gap is the next one of the response: that is the next column, x.ahead steps over": lambda *x: _targets(*x, then=lambda x, y: shift_left(y)),
        "a truncated response goes on when on_truncation is bootstrap, and has no bound then: that ends every row":
            lambda *x: _targets(*x, over=lambda x, c: torch.tensor(True), bounded=True),
        "a truncated response is over, unless on_truncation is bootstrap: bounded, too": lambda *x: _targets(
            *x, over=lambda x, c: x.ended[:, None], bounded=x[0].ended[:, None]),
        "the last token is that of the response, behind which nothing follows: that is the last column":
            lambda *x: _targets(*x, ends_at=lambda x: (torch.arange(x.mask.shape[1]) == x.mask.shape[1] - 1).expand(x.mask.shape)),
        "the value counts once, at the end of the n rewards, not at every step on the way": lambda x, v, c: _targets(
            x, v, c, then=lambda x, y: x.ahead(y) + v.masked_fill(x.last() & (x.ended[:, None] | (c.on_truncation == "terminal")), 0.)),
        "near the end, where fewer than n_step rewards are left, all of them are summed: it does not fall back to one step": _short_end,
        "of one to n_step steps the last one is taken, not the largest of them": lambda x, v, c: _over_steps(x, v, c, lambda y: y.amax(0)),
        "of one to n_step steps the last one is taken, not their mean": lambda x, v, c: _over_steps(x, v, c, lambda y: y.mean(0)),
        "of one to n_step steps the last one is taken, not the smallest of them": lambda x, v, c: _over_steps(x, v, c, lambda y: y.amin(0)),
        "the discount counts from token i on, not from the start of the response: no gamma^k on the target of token k": lambda x, v, c:
            _targets(x, v, c) * _so_far(x, discounts(x, c)),
        "with bootstrap the rows that ended are bounded, too: only one that bootstraps has no bound": lambda x, v, c: _targets(
            x, v, c, bounded=c.on_truncation == "terminal"),
        "the bound is asked for by mc_bound, it is not always there": lambda x, v, c: _targets(x, v, replace(c, mc_bound=True)),
        "n_step is one too few": lambda x, v, c: _targets(x, v, c, steps=max(c.n_step - 1, 1)),
        "gamma stands where `discounts` tells: that is gamma^n for all n steps at once": lambda x, v, c: _targets(
            x, v, c, gamma=discounts(x, c)**c.n_step),
        "the sign of the value: what follows is added": lambda x, v, c: _targets(x, -v, c, bound=None) if not c.mc_bound else _targets(x, -v, c),
        "the reward is missing: y is reward and value": lambda x, v, c: _targets(x, v, c, own=0.),
        "that reward counts twice": lambda x, v, c: _targets(x, v, c, own=2.),
        "the value is missing: that is the reward alone": lambda x, v, c: _targets(x, torch.zeros_like(v), c),
        "the value after token i stands at i: that reads it one token late": lambda x, v, c: _targets(
            x, v, c, ahead=lambda v: torch.cat([torch.zeros_like(v[:, :1]), v[:, :-1]], 1)),
        "y is at least the observed return: their mean is something else": lambda *x: _targets(*x, bound=lambda y, seen: (y + seen) / 2),
        "y is at least the observed return: their sum is something else": lambda *x: _targets(*x, bound=lambda y, seen: y + seen),
        "y may be below 0, and below min_return: nothing is cut off": lambda x, v, c: _targets(x, v, c).clamp(min=c.min_return),
        "one number for each token: that is one for each response": lambda *x: _targets(*x).sum(1),
        "where the mask is False the target is 0, not left out: the shape stays (b t)": lambda x, v, c: _targets(x, v, c)[x.mask],
        "y is at least the observed return, it is not replaced by it": lambda *x: _targets(*x, bound=lambda y, seen: seen),
        "that is the observed return alone: Bellman's target looks at a value": lambda x, v, c:
            qlearning.monte_carlo_returns(x, discounts(x, c)).masked_fill(~x.mask, 0.),
        "a row that bootstraps has no bound at any token: that leaves it out at the last one only": lambda x, v, c: _targets(
            x, v, c, bounded=~(x.last() & ~x.ended[:, None] & (c.on_truncation == "bootstrap"))),
        "every token has a reward, not only the last one": lambda x, v, c: _targets(Episodes(x.seqs, x.reward * x.last(), x.ended), v, c,
            back=lambda _, g: qlearning.monte_carlo_returns(x, g)),
        "reward and value add up: a token with a reward has a value, too": lambda *x: _targets(
            *x, taken=lambda x, v: v.masked_fill(x.reward != 0, 0.))})

# ------------------------------------------------------------------ q_loss
def _loss(nets, x, config, shift=shift_right, size=lambda td: td.sum() / 2, half=True, alpha=True, lowest=None,
          learner="online", slow=None, where=None, count=None, values=lambda v: v, targets=None, actions=lambda rest, q, m, low: rest,
          error=torch.square, weight=lambda alpha: alpha, each=lambda x, mask: x, body=lambda h: h, taken=lambda x: x.seqs.ids,
          log=lambda x: x.detach(), reads=next_values):
    mask = x.mask if where is None else where(x)
    hidden = hidden_states(getattr(nets, learner), x.seqs)
    given = nets if slow is None else slow(nets)
    y = (targets or qlearning.bellman_targets)(x, values(reads(given, x, hidden, config)), config)[mask]
    low = config.min_return if lowest is None else lowest
    q, others = q_terms(getattr(nets, learner).get_output_embeddings(), body(shift(hidden))[mask], taken(x)[mask],
                        nets.allowed, low)
    td, m, pulls = (q - y)**2, nets.allowed.sum(), each(others, mask)
    pulls = actions(pulls, q, m, low)
    pull = (weight(config.alpha) if alpha else 1.) * (pulls.mean() if size(torch.ones(2)) < 1 else pulls.sum())
    return size(each(error(q - y), mask)) + (pull / 2 if half else pull), mask.sum() if count is None else count(x), dict(
        td_loss=log(td).sum(), conservative_loss=log(others).sum(), q_values=log(q).sum(),
        td_target=y.sum())

def _swapped(nets): # the online network gives the values, too
    twin = object.__new__(QNets)
    torch.nn.Module.__init__(twin)
    twin.online, twin.target, twin.ref, twin.disallowed = nets.online, nets.online, nets.ref, nets.disallowed
    twin.register_buffer("allowed", nets.allowed)
    return twin

def _nets(seed, double=False, learns=False):
    world = micro_world(max_len=2)
    lm, generator = TabularLM(world), Generator().manual_seed(seed)
    if learns: lm.base_model = _Body(lm.base_model, seed)
    nets = QNets(q_network(lm), [world.start, world.pad])
    with torch.no_grad():
        for net in (nets.online, nets.target):
            w = net.get_output_embeddings().weight
            w.copy_(torch.randint(-8, 9, w.shape, generator=generator) / 4)
    return nets.double() if double else nets

def _play(seed, config, *rows, left=0, double=False, learns=False): # words of each row: 3 is eos
    world, n = micro_world(max_len=2), max(map(len, rows)) + 1 + left
    ids, real, mask = (torch.full((len(rows), n), fill) for fill in (world.pad, False, False))
    for i, row in enumerate(rows):
        ids[i, left:left + 1 + len(row)] = tensor([world.start, *row])
        real[i, left:left + 1 + len(row)], mask[i, left + 1:left + 1 + len(row)] = True, True
    reward = _draw(seed + 7, *ids.shape) * mask
    ended = tensor([3 in row for row in rows])
    return _nets(seed, double, learns), Episodes(Seqs(ids, real, mask), reward.double() if double else reward, ended), config

class _Body(torch.nn.Module): # one that learns, which the table's does not
    def __init__(self, table, seed):
        super().__init__()
        self.table, self.config = table, table.config
        self.mix = torch.nn.Parameter(normal(seed, self.config.hidden_size, self.config.hidden_size))
    def forward(self, *args, **kwargs):
        out = self.table(*args, **kwargs)
        out.last_hidden_state = out.last_hidden_state @ self.mix
        return out

def _loss_of(nets, x, config, f, log=True): # f: another conservative term, of its own, Q, the best other Q, m and the minimum
    at = x.positions()
    hidden = hidden_states(nets.online, x.seqs)
    y = qlearning.bellman_targets(x, next_values(nets, x, hidden, config), config)[at]
    head, before, taken = nets.online.get_output_embeddings(), shift_right(hidden)[at], x.seqs.ids[at]
    q, rest = q_terms(head, before, taken, nets.allowed, config.min_return)
    barred = ~nets.allowed | (torch.arange(len(nets.allowed)) == taken[:, None])
    best = head(before).masked_fill(barred, -torch.inf).amax(1)
    other, td = f(rest, q, best, nets.allowed.sum(), config.min_return), (q - y)**2
    return td.sum() / 2 + config.alpha / 2 * other.sum(), x.mask.sum(), {k: v.detach().sum() for k, v in dict(
        td_loss=td, conservative_loss=other if log else rest, q_values=q, td_target=y).items()}

_FOUR = ([0, 1], [1, 3], [3], [2, 0])
q_loss = Exercise(
    reference=qlearning.q_loss,
    cases={"four rows": _play(0, QConfig(gamma=.5), *_FOUR), "one row": _play(1, QConfig(gamma=.5), [1, 3]),
           "alpha 0": _play(2, QConfig(gamma=.5, alpha=0.), *_FOUR),
           "alpha .5, minimum -2": _play(3, QConfig(gamma=.5, alpha=.5, min_return=-2.), *_FOUR),
           "no bound, gamma 1": _play(4, QConfig(gamma=1., mc_bound=False), *_FOUR),
           "bootstrap": _play(5, QConfig(gamma=.5, on_truncation="bootstrap"), *_FOUR),
           "double_q": _play(6, QConfig(gamma=.5, double_q=True, mc_bound=False), *_FOUR),
           "a body that learns": _play(7, QConfig(gamma=.5, alpha=.5), *_FOUR, learns=True),
           "pads at the left": _play(8, QConfig(gamma=.5, min_return=-1.), *_FOUR, left=2),
           "float64": _play(9, QConfig(gamma=.5), *_FOUR, double=True)},
    mistakes={
        "shifted by one: the state that chose token i is the one before it":
            lambda *x: _loss(*x, shift=lambda h: h),
        "shifted the wrong way: the state that chose token i is the one before it":
            lambda *x: _loss(*x, shift=shift_left),
        "the squared error is not halved": lambda *x: _loss(*x, size=torch.sum),
        "the conservative term is not halved": lambda *x: _loss(*x, half=False),
        "neither the squared error nor the conservative term is halved": lambda *x: _loss(
            *x, size=torch.sum, half=False),
        "no gradient flows through Q of the token: do not detach it": lambda *x: _loss(
            *x, size=lambda td: td.detach().sum() / 2),
        "alpha is missing": lambda *x: _loss(*x, alpha=False),
        "alpha counts once: it is not squared": lambda *x: _loss(*x, weight=lambda alpha: alpha**2),
        "the conservative term is the mean over the other actions, not their sum":
            lambda *x: _loss(*x, actions=lambda rest, q, m, low: rest * (m - 1)),
        "the conservative term leaves out the taken action": lambda *x: _loss(
            *x, actions=lambda rest, q, m, low: (rest * (m - 1) + (q - low)**2) / m),
        "the conservative term is divided by the m - 1 other actions, not by m": lambda *x: _loss(*x, actions=lambda rest, q, m, low: rest * (m - 1) / m),
        "the conservative term pulls the other actions, not the taken one": lambda *x: _loss(*x, actions=lambda rest, q, m, low: (q - low)**2),
        "the conservative term is a mean of squares, without a root": lambda *x: _loss(*x, actions=lambda rest, q, m, low: rest.clamp(min=1e-12).sqrt()),
        "the error is squared, however large: no Huber loss": lambda *x: _loss(
            *x, error=lambda d: torch.where(d.abs() < 1, d**2, 2 * d.abs() - 1)),
        "the error is squared: no absolute value": lambda *x: _loss(*x, error=torch.abs),
        "tokens weigh the same: rows are not divided by their length": lambda *x: _loss(
            *x, each=lambda y, mask: y / mask.sum(1, keepdim=True).expand_as(mask)[mask]),
        "value[i] belongs to the state after token i, as `next_values` gives it: no shift": lambda *x: _loss(*x, values=shift_right),
        "the target is Bellman's, not the observed return alone": lambda *x: _loss(
            *x, targets=lambda x, v, c: qlearning.monte_carlo_returns(x, discounts(x, c))),
        "the target is Bellman's, not the reward alone": lambda *x: _loss(*x, targets=lambda x, v, c: x.reward),
        "the body of the network learns, too: states are not detached": lambda *x: _loss(*x, body=torch.Tensor.detach),
        "that is the mean: the loss is summed, and the number of tokens comes beside it":
            lambda *x: _loss(*x, size=lambda td: td.mean() / 2),
        "the other actions are pulled to min_return, not to 0": lambda *x: _loss(*x, lowest=0.),
        "the target network is never trained: Q of the token comes from the online network":
            lambda *x: _loss(*x, learner="target"),
        "the values come from the target network": lambda *x: _loss(*x, slow=_swapped),
        "the target is data, of the target network: a gradient flows through the online network's values": lambda *x: _loss(
            *x, reads=lambda nets, x, hidden, config: nets.online.get_output_embeddings()(hidden).masked_fill(~nets.allowed, -torch.inf).amax(-1)),
        "the target is Bellman's, not the value alone: the reward is missing": lambda *x: _loss(*x, targets=lambda x, v, c: v),
        "the target is that of `bellman_targets`: r + γ value alone has no bound, no n steps, no end": lambda *x: _loss(
            *x, targets=lambda x, v, c: (x.reward + c.gamma * v) * x.mask),
        "the target is not kept above min_return": lambda *x: _loss(
            *x, targets=lambda x, v, c: qlearning.bellman_targets(x, v, c).clamp(min=c.min_return)),
        "the target of token i stands at i, it is not shifted along with the states": lambda *x: _loss(
            *x, targets=lambda x, v, c: shift_right(qlearning.bellman_targets(x, v, c))),
        "the target of token i stands at i, not that of the next one": lambda *x: _loss(
            *x, targets=lambda x, v, c: shift_left(qlearning.bellman_targets(x, v, c))),
        "the action is token i itself, not the next one: its id is rolled one place": lambda *x: _loss(*x, taken=lambda x: x.seqs.ids.roll(-1, 1)),
        "the action is token i itself, not the one before it": lambda *x: _loss(*x, taken=lambda x: x.seqs.ids.roll(1, 1)),
        "response tokens count alone: prompt tokens count, too, all that are no pads": lambda *x: _loss(*x, where=lambda x: x.attention_mask),
        "the mean square over the others is a mean already: it is divided by m - 1 once more": lambda *x: _loss_of(
            *x, lambda rest, q, best, m, low: rest / (m - 1), log=False),
        "the mean square over the others is a mean already: it is divided by m once more": lambda *x: _loss_of(
            *x, lambda rest, q, best, m, low: rest / m, log=False),
        "the conservative term runs over the m - 1 other actions: the taken one is in it, divided by m": lambda *x: _loss_of(
            *x, lambda rest, q, best, m, low: (rest * (m - 1) + (q - low)**2) / m),
        "the conservative term runs over the m - 1 other actions: the taken one is in it, divided by m - 1": lambda *x: _loss_of(
            *x, lambda rest, q, best, m, low: rest + (q - low)**2 / (m - 1)),
        "the conservative term is the mean over the other actions: that is their sum": lambda *x: _loss_of(
            *x, lambda rest, q, best, m, low: rest * (m - 1)),
        "the conservative term is divided by m - 1, not by m": lambda *x: _loss_of(*x, lambda rest, q, best, m, low: rest * (m - 1) / m),
        "the conservative term pulls the m - 1 others: that pulls the taken action": lambda *x: _loss_of(*x, lambda rest, q, best, m, low: (q - low)**2),
        "the conservative term pulls all m - 1 others: that is the best one of them alone": lambda *x: _loss_of(
            *x, lambda rest, q, best, m, low: (best - low)**2),
        "the conservative term is not subtracted": lambda *x: _loss(*x, weight=lambda alpha: -alpha),
        "every response token counts: eos, the last one, is left out": lambda *x: _loss(*x, where=lambda x: x.mask & ~x.last()),
        "the action is token i itself, not the one after it": lambda *x: _loss(
            *x, taken=lambda x: torch.where(shift_left(x.mask), shift_left(x.seqs.ids), x.seqs.ids)),
        "the state before stands in the same row: that shifts rows": lambda *x: _loss(*x, shift=lambda h: h.roll(1, 0)),
        "the four sums are for the log: they carry no gradient, detach them": lambda *x: _loss(*x, log=lambda x: x),
        "response tokens count alone: all but the first of a row, its prompt too": lambda *x: _loss(
            *x, where=lambda x: x.attention_mask & (torch.arange(x.mask.shape[1]) > 0)),
        "both slips: the state that chose token i is the one before it, and both terms are halved": lambda *x: _loss(
            *x, shift=lambda h: h, size=torch.sum, half=False),
        "the second result is the number of response tokens, not of rows":
            lambda *x: _loss(*x, count=lambda x: tensor(len(x.mask))),
        "the second result is the number of response tokens, without prompts":
            lambda *x: _loss(*x, count=lambda x: x.attention_mask.sum()),
        "the second result is the number of response tokens, without pads and prompts":
            lambda *x: _loss(*x, count=lambda x: tensor(x.mask.numel()))})

ASKED = {
    "fixed_soft_update": {
        "no gradient flows through the new tensors to the online network": "a learner with gradients"},
    "bellman_targets": {
        "the token after i is the response's next one, even over a gap where a tool wrote: `x.ahead` steps over it": "two steps over a gap",
        "gamma acts where `discounts` tells: per token, or once per response": "gamma per response",
        "a row that bootstraps is not bounded, at none of its tokens, and one that ended is, with bootstrap too": "bootstrap and bound"},
    "q_loss": {
        "a gradient flows through the states to the body of the network": "a body that learns"}}
