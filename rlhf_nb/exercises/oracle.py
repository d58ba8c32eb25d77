"Exercises of the chapter on the world where everything is known."
import torch
from torch import nan, tensor
from rlhf_nb.checks import Exercise
from rlhf_nb.oracle import BIGRAM_PROBS, MicroWorld, micro_world, states
from rlhf_nb.tokens import Seqs, make_seqs, shift_right

def _gen(seed): return torch.Generator().manual_seed(seed)
def _random(*shape, seed): return torch.randn(*shape, generator=_gen(seed)).double()

# ---- the clinic: what the critic may know

def _gap(values, reward, seqs, shift=1, keep=lambda s: s.response_mask, moves=False,
         prediction=None):
    out = torch.zeros_like(values)
    if not moves: values = values.detach()
    for i, mask in enumerate(keep(seqs)):
        for j in mask.nonzero()[:, 0].tolist():
            value = values[i, min(max(j - shift, 0), len(mask) - 1)]
            if prediction: value = prediction(values[i], seqs.response_mask[i])
            out[i, j] = reward[i] - value
    return out

_three = make_seqs([[4, 5], [6], [2, 3]], [[7, 8, 1], [3, 1], []], pad=0)
_one = make_seqs([[4]], [[2, 3, 1]], pad=0)
_sides = Seqs(tensor([[0, 0, 5, 6, 7, 1], [0, 4, 8, 3, 1, 0]]),
              tensor([[0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0]]).bool(),
              tensor([[0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 1, 0]]).bool())
def _values(seqs, seed): return _random(*seqs.ids.shape, seed=seed)
_r = tensor([2., -1., .5]).double()

fixed_baseline = Exercise(
    reference=_gap,
    cases={"three rows, one response empty": (_values(_three, 0), _r, _three),
           "a critic that is being trained": (_values(_three, 1).requires_grad_(), _r, _three),
           "one row": (_values(_one, 2), _r[:1], _one),
           "pads on both sides": (_values(_sides, 5), _r[:2], _sides),
           "nan on the pads": (_values(_three, 3).masked_fill(~_three.attention_mask, nan), _r, _three),
           "bf16": (_values(_three, 4).bfloat16(), _r.bfloat16(), _three)},
    mistakes={
        "no shift: what the critic predicts after word i it predicts knowing word i":
            lambda *a: _gap(*a, shift=0),
        "the shift goes the wrong way: even the next word is known": lambda *a: _gap(*a, shift=-1),
        "one shift too many: word i - 1 has been read": lambda *a: _gap(*a, shift=2),
        "turn the sign: better than expected is above 0": lambda *a: -_gap(*a),
        "the prompt was not chosen: 0 there": lambda *a: _gap(*a, keep=lambda s: s.attention_mask),
        "prompt and pads must be 0":
            lambda *a: _gap(*a, keep=lambda s: torch.ones_like(s.response_mask)),
        "0 times nan is nan: choose with the mask, do not multiply":
            lambda v, r, s: (r[:, None] - shift_right(v.detach())) * s.response_mask,
        "it is a constant for the policy: detach the values": lambda *a: _gap(*a, moves=True),
        "the reward is missing: that is the critic's prediction alone": lambda v, r, s: _gap(v, 0 * r, s),
        "the critic is missing: take off what it predicted before each word":
            lambda *a: _gap(*a, prediction=lambda v, m: 0.),
        "an average over the response knows every word of it": lambda *a: _gap(
            *a, prediction=lambda v, m: v[m].mean()),
        "that is its prediction before the first word: take the one before each":
            lambda *a: _gap(*a, prediction=lambda v, m: v[m.int().argmax() - 1])})

# ---- regret

def _kl(p, q): # both (n) log-probs; where p is 0 nothing is added
    return sum((a.exp() * (a - b) for a, b in zip(p, q) if a > -torch.inf), torch.zeros_like(p[0]))
def _mean(logp, x): return sum((a.exp() * b for a, b in zip(logp, x)), torch.zeros_like(x[0]))
def _best(ref, reward, beta):
    tilted = ref + reward / beta
    return tilted - tilted.logsumexp(0), beta * tilted.logsumexp(0)

def _regret(logp, ref, reward, beta, top=lambda best, value, reward, beta: value,
            price=lambda logp, ref, beta: beta * _kl(logp, ref), mean=_mean):
    best, value = _best(ref, reward, beta)
    return top(best, value, reward, beta) - mean(logp, reward) + price(logp, ref, beta)

def _policy(n, seed): return _random(n, seed=seed).log_softmax(0)
_zero_prob = tensor([.5, .5, 0., 0.]).double().log()
regret = Exercise(
    reference=_regret,
    cases={"four responses": (_policy(4, 0), _policy(4, 1), _random(4, seed=2), .5),
           "a large beta": (_policy(5, 3), _policy(5, 4), _random(5, seed=5), 3.),
           "a small beta": (_policy(5, 6), _policy(5, 7), _random(5, seed=8), .1),
           "the reference itself": (_policy(3, 9), _policy(3, 9), _random(3, seed=10), .5),
           "responses of probability 0": (_zero_prob, _policy(4, 11), _random(4, seed=12), .4)},
    mistakes={
        "that is beta KL(best || policy): swap them":
            lambda p, ref, r, beta: beta * _kl(_best(ref, r, beta)[0], p),
        "that is KL(policy || best): multiply by beta": lambda *a: _regret(*a) / a[-1],
        "turn the sign: nothing is better than the best": lambda *a: -_regret(*a),
        "the KL penalty is missing": lambda *a: _regret(*a, price=lambda *_: 0.),
        "the KL penalty has the wrong sign": lambda *a: _regret(
            *a, price=lambda p, ref, beta: -beta * _kl(p, ref)),
        "the KL is the wrong way round: KL(policy || reference)": lambda *a: _regret(
            *a, price=lambda p, ref, beta: beta * _kl(ref, p)),
        "each nat of KL costs beta": lambda *a: _regret(*a, price=lambda p, ref, beta: _kl(p, ref)),
        "the best policy pays the KL penalty as well: its value is beta log Z": lambda *a: _regret(
            *a, top=lambda best, value, r, beta: _mean(best, r)),
        "no policy gets the highest reward without KL: the best value is beta log Z":
            lambda *a: _regret(*a, top=lambda best, value, r, beta: r.max()),
        "that is log Z: times beta it is the best value": lambda *a: _regret(
            *a, top=lambda best, value, r, beta: value / beta),
        "that is the best value: take off the value of the policy": lambda p, ref, r, beta:
            _best(ref, r, beta)[1],
        "those are logs: exp makes probabilities of them": lambda *a: _regret(
            *a, mean=lambda logp, x: (logp * x).sum()),
        "0 times infinity is nan: leave out responses of probability 0": lambda p, ref, r, beta:
            _best(ref, r, beta)[1] - (p.exp() * (r - beta * (p - ref))).sum()})

# ---- the Q of a policy

def _q(world, probs, reward, after=lambda c, q, words: (c * q)[:words].sum(), own=False,
       fill=0., result=lambda q, mean: q):
    q, index = torch.full_like(probs, fill), {s: i for i, s in enumerate(states(world))}
    rows, words = {y: i for i, y in enumerate(world.responses())}, len(world.words)
    for state in reversed(states(world)):
        i = index[state]
        for w in range(words):
            then = index.get((*state, w))
            q[i, w] = reward[rows[(*state, w)]] if then is None else after(
                probs[i if own else then], q[then], words)
    q[:, :words] = result(q[:, :words], (probs * q)[:, :words].sum(1, keepdim=True))
    return q

def _ended_only(world, probs, reward):
    ended = tensor([y[-1] == world.eos for y in world.responses()])
    return _q(world, probs, reward * ended)

def _case(words, length, seed):
    world = micro_world(words, length)
    probs = torch.zeros(len(states(world)), world.vocab_size).double()
    probs[:, :len(words)] = _random(len(probs), len(words), seed=seed).softmax(1)
    return world, probs, _random(len(world.seqs), seed=seed + 50)

def _bigram():
    world, _, reward = _case(tuple(list(BIGRAM_PROBS)[1:]) + (".",), 3, 0)
    rows = [BIGRAM_PROBS[world.words[s[-1]] if s else ""] for s in states(world)]
    return world, tensor([[*row, 0., 0.] for row in rows]).double(), reward

def _sure(world:MicroWorld, probs, reward): # always the same word
    return world, (probs == probs.max(1, keepdim=True).values).double(), reward

policy_q = Exercise(
    reference=_q,
    cases={"the micro world": _bigram(), "two words": _case(("yes", "."), 3, 1),
           "one choice only": _case(("no", "yes", "."), 1, 2), "two choices": _case(("a", "b", "."), 2, 3),
           "a policy that is sure": _sure(*_case(("a", "b", "."), 3, 4))},
    mistakes={
        "that is the best word, not the mean": lambda *a: _q(*a, after=lambda c, q, n: q[:n].max()),
        "weigh the words by the policy's probabilities": lambda *a: _q(*a, after=lambda c, q, n: q[:n].mean()),
        "that is the sum over words, without their probabilities":
            lambda *a: _q(*a, after=lambda c, q, n: q[:n].sum()),
        "that follows the most probable word only": lambda *a: _q(
            *a, after=lambda c, q, n: q[c[:n].argmax()]),
        "those are the probabilities before the word: take the state after it": lambda *a: _q(*a, own=True),
        "what comes later is missing: only the last word is rewarded":
            lambda *a: _q(*a, after=lambda c, q, n: 0.),
        "a response that is cut is complete too": _ended_only,
        "a reward is worth the same however late: no gamma": lambda *a: _q(
            *a, after=lambda c, q, n: .9 * (c * q)[:n].sum()),
        "that is the mean of the state: one number for each word":
            lambda *a: _q(*a, result=lambda q, mean: mean),
        "that is the advantage: do not take the state's mean off":
            lambda *a: _q(*a, result=lambda q, mean: q - mean),
        "0, not nan, for start and pad": lambda *a: _q(*a, fill=nan)})
