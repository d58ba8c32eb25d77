"The parts of the learner's own trainer, my_rlhf.py, on worlds in which every answer is listed."
import copy, importlib.util, inspect
from types import SimpleNamespace
import torch
from rlhf_nb.base.files import notebooks
from rlhf_nb.base.models import ScalarModel, frozen_copy
from rlhf_nb.base.sampling import SamplingParams
from rlhf_nb.book.checks import Exercise
from rlhf_nb.exercises.dpo import DPO
from rlhf_nb.exercises.grpo import OTHERS, Advantages
from rlhf_nb.exercises.ppo import GAE, PolicyLoss, ValueLoss
from rlhf_nb.exercises.tokens import Logprobs
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.tokens import make_seqs
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, train_grpo
from rlhf_nb.trainers.ppo_trainer import PPOConfig, RLTask
from rlhf_nb.trainers import ppo_trainer
from rlhf_nb.worlds.oracle import all_logprobs, bigram_lm, expectation, micro_tokenizer, micro_world, to_tabular_lm

def load(file): # a module, run anew
    spec = importlib.util.spec_from_file_location("my_rlhf", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

OURS = load(notebooks()/"my_rlhf.py")
WORLD = micro_world()
tensor = torch.tensor

def probe(module, name): # a part of this module, called as its check does; all other parts are ours
    if name not in PARTS: return trained(module, name)
    def run(*args):
        others = {k: vars(module).get(k) for k in PARTS if k != name}
        vars(module).update({k: vars(OURS)[k] for k in others})
        try: return _CALLS.get(name, lambda f, *args: f(*args))(vars(module)[name], *args)
        finally: vars(module).update(others)
    run.__name__ = f"my {name}"
    return run

# ---- the whole, against the package and the exact sum

def _praise(words): # kind +1, rude -1, doubled by each very in front; cut -1
    total, times = 0., 1.
    for word in words:
        if word == "very": times *= 2
        else: total, times = total + times * {"kind": 1, "rude": -1}.get(word, 0), 1.
    return total - (words[-1] != ".")

def own_curve(
    module,     # as `check_parts` returns it
    method:str, # "ppo", with a KL, or "groups", without
    seed:int=0,
)->dict[str,list[float]]: # yours, the package's, and the best there is: J after each rollout
    "The learner's whole trainer beside the package's, both measured by the exact sum."
    world, beta = micro_world(), .5 * (method == "ppo")
    start = bigram_lm(world).float()
    ref_logp = all_logprobs(start, world).detach()
    reward = tensor([_praise([*filter(None, row)]) for row in world.texts()])
    worth = dict(zip(world.responses(), reward.tolist()))
    def reward_fn(ids, mask, response):
        return tensor([worth[tuple(row[kept].tolist())] for row, kept in zip(ids, response)])
    found = {"yours": [], "the package's": []}
    def see(policy, name):
        logp = all_logprobs(policy, world).detach()
        found[name].append(expectation(logp, reward - beta * (logp - ref_logp)).item())
    policy, twin = bigram_lm(world).float(), bigram_lm(world).float()
    own = dict(lr=.1, beta=beta, epochs=4) if beta else dict(lr=.1)
    (module.train_ppo if beta else module.train_groups)(
        policy, reward_fn, [[world.start]], 3, world.eos, world.pad, torch.Generator().manual_seed(seed),
        n_rollouts=40, see=lambda i: see(policy, "yours"), **own)
    task = RLTask([[world.start]], lambda x: reward_fn(x.ids, x.attention_mask, x.response_mask),
                  micro_tokenizer(world), SamplingParams(3))
    model = ActorCritic(twin, ScalarModel.from_lm(twin)) if beta else twin
    config = (PPOConfig(n_iterations=40, n_prompts=64, n_epochs=4, lr=.1, beta=beta, lam=.95) if beta else
              GRPOConfig(n_iterations=40, n_prompts=8, num_generations=8, num_iterations=1, lr=.1, beta=0.))
    (ppo_trainer.train_ppo if beta else train_grpo)(model, frozen_copy(start), task, config,
        torch.Generator().manual_seed(seed), callback=lambda *_: see(twin, "the package's"))
    best = beta * torch.logsumexp(ref_logp + reward / beta, 0) if beta else reward.max()
    return found | {"the best there is": [best.item()] * 40}

def trained(module, name:str): # -> a function: whether a loop of this file, on its own parts, ends where the package's does
    def ends_like_ours()->bool:
        curves = own_curve(module, name.removeprefix("train_"))
        return curves["yours"][-1] > curves["the package's"][-1] - .1
    return ends_like_ours

# ---- how a part is called, and what is looked at

def _on_real_tokens(f, model, ids, mask):
    logp = f(model, ids, mask)
    return torch.where(mask, logp, 0.) if getattr(logp, "shape", None) == mask.shape else logp

def _stepped(n_models, frozen=0): # the first n learn, the next are only read
    def run(f, *args):
        learn, read, rest = args[:n_models], args[n_models:n_models + frozen], args[n_models + frozen:]
        weights = [p for m in learn for p in m.parameters()]
        optimizer = torch.optim.SGD(weights, lr=.5)
        for p in weights: p.grad = torch.full_like(p, .25)          # left over from a step before
        loss = f(*learn, *read, optimizer, *rest)
        return {"loss": loss.item() if hasattr(loss, "item") else loss,
                "weights after the step": [p.detach().clone() for p in weights],
                "weights of the reference": [p.detach().clone() for m in read for p in m.parameters()]}
    return run

def _sampled(f, model, prompts, max_new, n): # n rows of each prompt, against the exact distribution
    many = [p for p in prompts for _ in range(n)]
    ids, mask, response = f(model, many, max_new, WORLD.eos, WORLD.pad, torch.Generator().manual_seed(0))
    rows = [row[m].tolist() for row, m in zip(ids, mask)]
    wrote = [row[r].tolist() for row, r in zip(ids, response)]
    often = True
    for k, p in enumerate(prompts):
        mine = wrote[k * n:(k + 1) * n]
        chances = dict(_chances(model, p, max_new))
        seen = {y: mine.count(list(y)) for y in chances}
        cells = [(seen[y], n * c) for y, c in chances.items() if n * c > 5]        # chi-squared, 4.5 sigma
        far = sum((k - m)**2 / m for k, m in cells) - len(cells)
        often &= sum(seen.values()) == n and far < 4.5 * (2 * len(cells))**.5
    return {"every row begins with its prompt": all(row[:len(p)] == p for row, p in zip(rows, many)),
            "mask and response are bool": mask.dtype == response.dtype == torch.bool,
            "the mask is True on the prompt and on all that was written":
                all(len(row) == len(p) + len(y) for row, p, y in zip(rows, many, wrote)),
            "no response is longer than max_new": max(map(len, wrote)) <= max_new,
            "a response ends with its eos, and has it in": all(WORLD.eos not in y[:-1] for y in wrote)
                and all(len(y) == max_new or y[-1:] == [WORLD.eos] for y in wrote),
            "behind a response stand pads": bool((ids[~mask] == WORLD.pad).all()),
            "a prompt has more than one response": all(len({*map(tuple, wrote[k * n:(k + 1) * n])}) > 1 for k in range(len(prompts))),
            "each response comes as often as the model says": often}

def _chances(model, prompt, left, so_far=()): # every response and its probability
    ids = tensor([[*prompt, *so_far]])
    probs = model(input_ids=ids).logits[0, -1].softmax(-1)
    for word in range(WORLD.eos + 1):
        y, p = (*so_far, word), probs[word].item()
        if word == WORLD.eos or left == 1: yield y, p
        else: yield from ((z, p * c) for z, c in _chances(model, prompt, left - 1, y))

def _looped(f, policy, prompts, max_new, n_rollouts, n_prompts, size, lr): # what a loop does, as its reward function sees it
    policy, twin, asked, seen, same = copy.deepcopy(policy), copy.deepcopy(policy), [], [], []
    def weights(): return [p.detach().clone() for p in policy.parameters()]
    def reward_fn(ids, mask, response):
        reward = (ids * response).sum(1) % 5 / 2
        asked.append(((ids.clone(), mask.clone(), response.clone()), reward, weights()))
        return reward
    f(policy, reward_fn, prompts, max_new, WORLD.eos, WORLD.pad, torch.Generator().manual_seed(0), n_rollouts=n_rollouts,
      n_prompts=n_prompts, size=size, lr=lr, see=lambda i: seen.append((i, len(asked))))
    drawn = [[tuple(row[kept].tolist()) for row, kept in zip(rows[0], rows[1] & ~rows[2])] for rows, *_ in asked]
    in_groups = all(len(row) == n_prompts * size and all(len({*row[k:k + size]}) == 1 for k in range(0, len(row), size))
                    for row in drawn)
    optimizer, after = torch.optim.Adam(twin.parameters(), lr=lr), [*(w for *_, w in asked[1:]), weights()]
    for (rows, reward, _), found in zip(asked * in_groups, after):  # the same steps again, by ours
        OURS.group_step(twin, optimizer, *rows, OURS.logprobs(twin, *rows[:2]).detach(), reward, size)
        same.append(all(torch.allclose(p, q, atol=1e-4) for p, q in zip(twin.parameters(), found)))
    return {"reward_fn is asked once in a rollout": len(asked) == n_rollouts,
            "a rollout has size answers to each of n_prompts prompts, those to one prompt side by side": in_groups,
            "rollouts differ in their prompts": len(prompts) == 1 or len({*map(tuple, drawn)}) > 1,
            "the first rollout ends in one group_step": same[:1] == [True],
            "each rollout does, with one optimizer for all": same == [True] * n_rollouts,
            "the policy has a gradient": any(p.grad is not None for p in policy.parameters()),
            "see(i) comes after rollout i": seen == [(i, i + 1) for i in range(n_rollouts)]}

_CALLS = dict(logprobs=_on_real_tokens, rollout=_sampled, sft_step=_stepped(1), reward_step=_stepped(1),
              ppo_step=_stepped(2), group_step=_stepped(1), train_groups=_looped, dpo_step=_stepped(1, 1))

# ---- cases

def _rows(prompts, responses): # ids, mask, response
    x = make_seqs([[WORLD.start] + p for p in prompts], responses, pad=WORLD.pad)
    return x.ids, x.attention_mask, x.response_mask

_A, _B, _C = [0, 1, 3], [2, 3], [1]
_LM = bigram_lm(WORLD).float()
_OTHER = to_tabular_lm(WORLD, (torch.linspace(0, 1, 40)**2).log_softmax(-1))  # another policy
_THREE, _ONE = _rows([[], [0], [1]], [_A, _B, _C]), _rows([[0]], [_B])
class _Sums(torch.nn.Module): # a score that pads change
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.linspace(-.5, .7, WORLD.vocab_size))
    def forward(self, ids, mask): return self.w[ids].cumsum(1)

_SCORES = OURS.Scores(_LM)
with torch.no_grad(): _SCORES.head.weight.copy_(torch.linspace(-.4, .6, _SCORES.head.weight.numel())[None])
_logp = OURS.logprobs(_LM, *_THREE[:2]).detach()
_old = torch.where(_THREE[2], _logp + tensor([[.4], [-.5], [.1]]), 0.)
_adv = torch.where(_THREE[2], tensor([[1.], [-2.], [.5]]) * torch.linspace(.5, 1.5, _logp.shape[1]), 0.)
_FOUR = _rows([[], [], [0], [0]], [_A, _C, _B, [1, 3]])
_old4 = OURS.logprobs(_LM, *_FOUR[:2]).detach() + tensor([[.4], [-.5], [.1], [-.3]])
_r, _v = torch.arange(12.).view(3, 4) / 7 - .5, torch.linspace(1, -1, 12).view(3, 4)
_m = tensor([[0, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]]).bool()

def _variant(name, **more): # ours with other globals, such as another function that it calls
    def run(*args):
        fn = vars(OURS)[name]
        g = type(fn)(fn.__code__, vars(OURS) | more, fn.__name__, fn.__defaults__, fn.__closure__)
        return _CALLS.get(name, lambda f, *a: f(*a))(g, *args)
    return run

def _in_place_of(name, wrong): # a wrong function, called as the part is
    return lambda *args: _CALLS.get(name, lambda f, *a: f(*a))(wrong, *args)

class _NoZero: # an optimizer that forgets nothing
    def __init__(self, inner): self.inner, self.step, self.zero_grad = inner, inner.step, lambda: None

def _kept(name, n): # the gradients of the step before stay; n: place of the optimizer
    return _in_place_of(name, lambda *args: vars(OURS)[name](*args[:n], _NoZero(args[n]), *args[n + 1:]))

def _never(name, n): # no step is taken
    def wrong(*args):
        o = _NoZero(args[n])
        o.zero_grad, o.step = args[n].zero_grad, lambda: None
        return vars(OURS)[name](*args[:n], o, *args[n + 1:])
    return _in_place_of(name, wrong)

def _steps(name, n): return {
    "the gradients of the step before are still there: optimizer.zero_grad()": _kept(name, n),
    "the weights are as before: optimizer.step()": _never(name, n)}

def _descend(loss, optimizer):
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    return loss.item()

def _group_wrong(advantage_of, per_row=False):
    def wrong(policy, optimizer, ids, mask, response, old_logp, reward, size, clip=.2):
        advantage = advantage_of(reward, size)
        ratio = (OURS.logprobs(policy, ids, mask) - old_logp).exp()
        loss = -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
        rows = torch.where(response, loss, 0.).sum(1) / response.sum(1)
        return _descend(rows.mean() if per_row else loss[response].mean(), optimizer)
    return _in_place_of("group_step", wrong)

# ---- the mistakes of the kinds, in the learner's functions

def _logits(model, ids, mask): return dict(
    logits=model(input_ids=ids, attention_mask=mask.long()).logits, ids=ids, mask=mask)
def _table(reward, size): return dict(rewards=reward, group=torch.arange(len(reward)) // size)
def _moved(policy, critic, optimizer, ids, mask, response, old_logp, advantage, returns, clip=.2, vf=.1):
    logp = OURS.logprobs(policy, ids, mask)
    return dict(logp=logp, old_logp=old_logp, ref_logp=logp, advantages=advantage, mask=response, epsilon=clip,
                epsilon_high=clip, beta=0., max_length=1)
def _valued(policy, critic, optimizer, ids, mask, response, old_logp, advantage, returns, clip=.2, vf=.1):
    value = OURS.values(critic, ids, mask)
    return dict(values=value, old_values=value.detach(), returns=returns, mask=response, epsilon=clip)
def _paired(policy, ref, optimizer, chosen, rejected, beta, mean=False):
    def total(model, ids, mask, response):
        x = torch.where(response, OURS.logprobs(model, ids, mask), 0.).sum(1)
        return x / response.sum(1) if mean else x
    return {f"{who}_{side}": total(model, *rows) if who == "policy" else total(model, *rows).detach() for who, model in
            (("policy", policy), ("ref", ref)) for side, rows in (("chosen", chosen), ("rejected", rejected))} | dict(beta=beta, smooth=0.)

def _ppo_steps(vf=.1): # each loss wrong, beside the other one right
    policy = PolicyLoss().told(_moved, "ratio clip mean sign", {"": {}, "the ratio is not clipped": dict(clip="none"),
        "that weighs each answer alike: take the mean over all response tokens": dict(mean="response_mean")},
        "linear longest padded", ratio="token", mean="token_mean")
    value = ValueLoss().told(_valued, "factor", {"": {}, "the value's error has a half": dict(factor="one")}, mean="token_mean")
    right = policy.pop(""), value.pop("")
    def step(f, g): return _in_place_of("ppo_step", lambda *args: _descend(f(*args) + vf * g(*args), args[2]))
    return {words: step(f, right[1]) for words, f in policy.items()} | {
        words: step(right[0], g) for words, g in value.items()}

def _dpo_steps():
    told = DPO().told(_paired, "form gap beta") | {
        "the log-prob of an answer is the sum over its tokens, not the mean": DPO().told(
            lambda *args: _paired(*args, mean=True), "", {"": {}})[""]}
    return {words: _in_place_of("dpo_step", lambda *args, f=f: _descend(f(*args), args[2])) for words, f in told.items()}

def _group_steps():
    told = Advantages().told(_table, "base sign rows", OTHERS | {"there is no baseline": dict(base="none")}, "order", base="others")
    right = Advantages().told(_table, "", {"": {}}, base="others")[""]
    return {words: _group_wrong(lambda r, n, f=f: f(r, n).float()[:, None]) for words, f in told.items()} | {
        "that weighs each answer alike: take the mean over all response tokens":
            _group_wrong(lambda r, n: right(r, n).float()[:, None], per_row=True)}

def _reward_wrong(turned=False, first=False):
    def wrong(model, optimizer, chosen, rejected):
        def s(ids, mask): return model(ids, mask)[:, -1] if first else OURS.score(model, ids, mask)
        gap = s(*chosen) - s(*rejected)
        return _descend(-torch.nn.functional.logsigmoid(-gap if turned else gap).mean(), optimizer)
    return _in_place_of("reward_step", wrong)

def _sft_wrong(which=lambda mask, response: response, total=False):
    def wrong(model, optimizer, ids, mask, response):
        logp = OURS.logprobs(model, ids, mask)[which(mask, response)]
        return _descend(-(logp.sum() if total else logp.mean()), optimizer)
    return _in_place_of("sft_step", wrong)

def _greedy(model, prompts, max_new, eos, pad, generator):
    def sure(**x):
        out = model(**x)
        out.logits = 1e4 * torch.nn.functional.one_hot(out.logits.argmax(-1), WORLD.vocab_size)
        return out
    return OURS.rollout(sure, prompts, max_new, eos, pad, generator)

def _loop(*changes): # our loop with other lines
    source, names = inspect.getsource(OURS.train_groups), dict(vars(OURS))
    for old, new in changes:
        assert source.count(old) == 1
        source = source.replace(old, new)
    exec(source, names)
    return _in_place_of("train_groups", names["train_groups"])

def _loops():
    head = "    for i in range(n_rollouts):\n"
    draw = "asked = torch.randint(len(prompts), (n_prompts,), generator=generator).tolist()\n"
    make = "optimizer = torch.optim.Adam(policy.parameters(), lr=lr)\n"
    return {"the answers to one prompt stand side by side: for k in asked for _ in range(size)":
                _loop(("for k in asked for _ in range(size)", "for _ in range(size) for k in asked")),
            "a prompt is answered once: answer it `size` times": _loop((" for _ in range(size)", "")),
            "the prompts are the same in each rollout: draw them in the loop": _loop(("        " + draw, ""), (head, "    " + draw + head)),
            "nothing is learned: call group_step": _loop(("        group_step(policy, optimizer, *batch, logp, reward, size)\n", "")),
            "the gradient flows through both log-probs: those of the sampling policy are constants, torch.no_grad()":
                _loop(("with torch.no_grad(): logp, reward", "logp, reward")),
            "the optimizer is made anew in each rollout: it forgets its moments": _loop((head, head + "        " + make)),
            "see(i) is missing": _loop(("        see(i)\n", ""))}

def _endless(model, prompts, max_new, eos, pad, generator): return OURS.rollout(model, prompts, max_new, -1, pad, generator)
def _without(word, ids, mask, response): return ids.where(ids != word, WORLD.pad), mask & (ids != word), response & (ids != word)

_PAIR = (_rows([[], [0]], [_A, _B]), _rows([[], [0]], [_C, [2, 1, 3]]))
_SINGLE = (_rows([[1]], [_A]), _rows([[1]], [_B]))
def _two(rows): return rows[:2]

PARTS = dict(
    logprobs=({"rows of unequal length": (_LM, *_THREE[:2]), "one row": (_LM, *_ONE[:2]), "another model": (_OTHER, *_FOUR[:2])}, {
        words: _in_place_of("logprobs", wrong) for words, wrong in Logprobs().told(
            _logits, "soft shift sign form", {"entry 0 is missing: the result is (b t)": dict(form="short")}).items()}),
    sft_step=({"three answers": (_LM, *_THREE), "one row": (_LM, *_ONE), "another model": (_OTHER, *_FOUR)}, {
        "the prompt is learned, too: only response tokens count": _sft_wrong(lambda mask, response: mask),
        "pads are learned, too: only response tokens count": _sft_wrong(lambda mask, response: torch.ones_like(mask)),
        "that is the sum: take the mean over the response tokens": _sft_wrong(total=True),
        **_steps("sft_step", 1)}),
    rollout=({"two prompts": (_LM, [[WORLD.start], [WORLD.start, 0]], 2, 1500),
              "three tokens": (_LM, [[WORLD.start]], 3, 1500), "one token": (_OTHER, [[WORLD.start]], 1, 800)}, {
        "that is greedy: draw the token from the softmax": _in_place_of("rollout", _greedy),
        "the eos is lost: it is the last token of its response": _in_place_of("rollout", lambda *x: _without(WORLD.eos, *OURS.rollout(*x))),
        "a response goes on behind its eos": _in_place_of("rollout", _endless)}),
    reward_step=({"two pairs": (_Sums(), *map(_two, _PAIR)), "one pair": (_SCORES, *map(_two, _SINGLE))}, {
        "chosen and rejected are swapped": _reward_wrong(turned=True),
        "the score stands at the last real token: use score()": _reward_wrong(first=True),
        **_steps("reward_step", 1)}),
    token_rewards=({"three rows, one of them empty": (tensor([2., -1., 5.]), _r, _v, _m, .3),
                    "one row": (tensor([3.]), _r[:1], _v[:1], _m[:1], .1),
                    "no price": (tensor([2., -1., 5.]), _r, _v, _m, 0.)}, {
        "the sign: a token pays beta times its log-ratio": lambda reward, a, b, m, beta: OURS.token_rewards(reward, b, a, m, beta),
        "the reward comes once, at the last token of the response": lambda reward, a, b, m, beta:
            OURS.token_rewards(0 * reward, a, b, m, beta) + m * reward[:, None],
        "the reward stands in the last column, not at the last token of the response": lambda reward, a, b, m, beta:
            OURS.token_rewards(0 * reward, a, b, m, beta) + reward[:, None] * (torch.arange(m.shape[1]) == m.shape[1] - 1),
        "the reward at the end is missing": lambda reward, *a: OURS.token_rewards(0 * reward, *a),
        "beta is missing": lambda reward, a, b, m, beta: OURS.token_rewards(reward, a, b, m, 1.)}),
    gae=({"three rows": (_r, _v, _m, 1., .9), "a discount": (_r, _v, _m, .8, .5),
          "lambda 0": (_r[:2], _v[:2], _m[:2], .9, 0.), "lambda 1": (_r[:2], _v[:2], _m[:2], .9, 1.)}, {
        **GAE().told(lambda r, v, m, gamma, lam: dict(rewards=r, values=v, mask=m, gamma=gamma, lam=lam),
                     "end way delta trace discount sign returns read form", without="white")}),
    ppo_step=({"three answers": (_LM, _SCORES, *_THREE, _old, _adv, .5 * _adv + .1),
               "one row": (_LM, _SCORES, *(x[:1] for x in (*_THREE, _old, _adv, 2 * _adv))),
               "another policy": (_OTHER, _SCORES, *_THREE, _old, _adv, -_adv)}, {
        **_ppo_steps(), **_steps("ppo_step", 2)}),
    group_step=({"two groups of two": (_LM, *_FOUR, _old4, tensor([1., 0., 2., 3.5]), 2),
                 "one group of four": (_LM, *_FOUR, _old4, tensor([1., 0., 2., 3.5]), 4),
                 "equal rewards": (_LM, *_FOUR, _old4, tensor([2., 2., 2., 2.]), 2)}, {
        **_group_steps(), **_steps("group_step", 1)}),
    train_groups=({"three prompts": (_LM, [[WORLD.start], [WORLD.start, 0], [WORLD.start, 1]], 2, 5, 2, 3, .1),
                   "one prompt": (_OTHER, [[WORLD.start]], 3, 3, 1, 6, .05)}, _loops()),
    dpo_step=({"two pairs": (_LM, _OTHER, *_PAIR, .5), "one pair": (_LM, _OTHER, *_SINGLE, .1),
               "a larger beta": (_OTHER, _LM, *_PAIR, 2.)}, {
        **_dpo_steps(), **_steps("dpo_step", 2)}))

for _name, (_cases, _mistakes) in PARTS.items():
    vars()[_name] = Exercise(reference=probe(OURS, _name), cases=_cases, mistakes=_mistakes)

train_ppo, groups = [Exercise(reference=lambda: True, cases={"40 rollouts, seed 0": ()}, mistakes={
    "it ends more than .1 below the package's curve": lambda: False}) for _ in range(2)]

# ---- a part as `prove` calls a function: log-probs, scores or rewards go in, a loss comes out

class _Says(torch.nn.Module): # a model made of what it says
    def __init__(self, x, form):
        super().__init__()
        self.x, self.form = torch.nn.Parameter(x.detach().clone()), form
    def forward(self, ids=None, mask=None, *, input_ids=None, **rest):
        ids = ids if input_ids is None else input_ids
        out = self.form(self.x, ids)
        return out.repeat(len(ids) // len(out), *[1] * (out.ndim - 1)) if out.ndim < 3 else SimpleNamespace(
            logits=out.repeat(len(ids) // len(out), 1, 1))

def _below(x): return x - x.detach().nan_to_num(0.).max().clamp(min=0.) - 2          # a ratio and a gap stay the same
def _tokens(x, ids): # (b t n): logits by which token k comes next with log-prob x[..., k]; nothing follows the last
    rest = torch.log1p(-x.exp().sum(-1, keepdim=True))
    return torch.nn.functional.pad(torch.cat([x, rest], -1), (0, 0, 0, 1))

def _loss(x, form, step): # what a step says, with the gradient that it left
    model = _Says(x, form)
    loss = torch.as_tensor(step(model, torch.optim.SGD(model.parameters(), lr=0.))).detach().double()
    return loss if model.x.grad is None else loss + ((x - x.detach()).nan_to_num(0.) * model.x.grad).sum()

def losses(module)->dict[str,dict]: # part -> kind -> a function that takes the names of that kind
    "The parts of a learner's my_rlhf.py, for `prove`: models that say what is given stand in for policy and critic."
    def before(x): return torch.nn.functional.pad(x, (1, 0))                         # a prompt of one token
    def batch(mask): return before(torch.zeros_like(mask).long()), before(mask) | True, before(mask)
    def policy(logp, old_logp, step): # step: model, optimizer, the log-probs that it sampled with
        shift = (_below(logp) - logp).detach().nan_to_num(0.).min()
        return _loss(logp, lambda x, ids: _tokens((x + shift)[..., None], ids), lambda model, optimizer: step(
            model, optimizer, before(old_logp + shift)))
    def logprobs(logits, ids): return module.logprobs(
        lambda *args, **rest: SimpleNamespace(logits=logits), ids, torch.ones_like(ids).bool())
    def sft(logits, ids, mask): return _loss(logits, lambda x, ids: x, lambda model, optimizer: module.sft_step(
        model, optimizer, ids, mask | True, mask & (torch.arange(mask.shape[1]) > 0)))
    def sampler(logits, generator):
        def model(ids=None, input_ids=None, **rest):
            ids = ids if input_ids is None else input_ids
            return SimpleNamespace(logits=logits[:1, None].expand(*ids.shape, -1))
        return module.rollout(model, [[0]] * len(logits), 1, -1, 0, generator)[0][:, 1]
    def reward(chosen, rejected):
        at, real = torch.zeros(len(chosen), 1).long(), torch.ones(len(chosen), 1).bool()
        return _loss(torch.stack([chosen, rejected], 1), lambda x, ids: x.repeat(len(ids) // len(x), 1).gather(1, ids),
                     lambda model, optimizer: module.reward_step(model, optimizer, (at, real), (at + 1, real)))
    def kl(logp, ref_logp): return -module.token_rewards(
        torch.zeros(len(logp)).double(), logp, ref_logp, torch.ones_like(logp).bool(), 1.)
    def gae(rewards, values, mask, gamma, lam): # here the tokens of a response stand together
        order = torch.where(mask, 1, 2 * (mask.cumsum(1) > 0)).sort(dim=1, stable=True).indices
        out = module.gae(*(x.gather(1, order) for x in (rewards, values, mask)), gamma, lam)
        return tuple(x.gather(1, order.argsort(1)) for x in out) if isinstance(out, tuple) else out
    def ppo(logp, old_logp, advantages, mask, epsilon):
        silent = _Says(before(0 * mask.double()), lambda x, ids: x)
        each = before(advantages.view(len(mask), -1).expand(mask.shape))
        return policy(logp, old_logp, lambda model, optimizer, old: module.ppo_step(
            model, silent, optimizer, *batch(mask), old, each, 0 * each, epsilon, 0.))
    def value(values, returns, mask):
        none = before(0 * returns)
        still = _Says(none[:, 1:], lambda x, ids: _tokens(x[..., None] - 2, ids))
        return _loss(values, lambda x, ids: torch.nn.functional.pad(x, (0, 1)), lambda critic, optimizer: module.ppo_step(
            still, critic, optimizer, *batch(mask), none - 2, none, before(returns), .2, 1.))
    def grpo(logp, old_logp, advantages, mask, epsilon): # beside each answer one without a token and a reward
        def twice(x): return x.repeat_interleave(2, 0)
        rewards = torch.stack([advantages, 0 * advantages], 1).flatten()
        kept = twice(mask) & (torch.arange(2 * len(mask)) % 2 == 0)[:, None]
        return policy(twice(logp), twice(old_logp), lambda model, optimizer, old: module.group_step(
            model, optimizer, *batch(kept), old, rewards, 2, epsilon))
    def advantages(rewards, group_size): # of one token each: the gradient is -A / n
        logp = torch.zeros(len(rewards), 1).double().requires_grad_()
        loss = policy(logp, logp.detach(), lambda model, optimizer, old: module.group_step(
            model, optimizer, *batch(torch.ones(len(rewards), 1).bool()), old, rewards, group_size))
        return -torch.autograd.grad(loss, logp)[0][:, 0] * len(rewards)
    def dpo(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta):
        def says(x, ids): return _tokens(_below(x)[:, None], ids)
        ref, ids = _Says(torch.stack([ref_chosen, ref_rejected], 1), says), torch.zeros(len(ref_chosen), 2).long()
        real, wrote = torch.ones_like(ids).bool(), torch.arange(2).expand_as(ids) > 0
        return _loss(torch.stack([policy_chosen, policy_rejected], 1), says, lambda model, optimizer: module.dpo_step(
            model, ref, optimizer, (ids, real, wrote), (ids + torch.arange(2), real, wrote), beta))
    found = dict(logprobs=dict(logprobs=logprobs), sft_step=dict(sft=sft), rollout=dict(sampler=sampler),
                 reward_step=dict(reward=reward), token_rewards=dict(kl=kl), gae=dict(gae=gae),
                 ppo_step=dict(ppo=ppo, value=value), group_step=dict(grpo=grpo, advantages=advantages), train_groups={}, dpo_step=dict(dpo=dpo))
    for part, some in found.items():
        for fn in some.values(): fn.__name__ = part
    return found
