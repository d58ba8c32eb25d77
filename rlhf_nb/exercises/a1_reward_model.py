"What must hold of a reward model of one's own: rows, loss, and a model that orders answers nobody trained on."
import copy, math, random
from functools import partial
import torch
from torch import nn, tensor
from rlhf_nb.base.models import load_bundled
from rlhf_nb.exercises.properties import Properties, close, gradient, kept_mib, need, seeded, shown, weights_of
from rlhf_nb.world import annotate, utility
from rlhf_nb.worlds.world_text import TEST, TRAIN, demonstrate, make_tokenizer, prompt_ids

PART = partial(Properties, "A1_reward_model")

# ---- rows
def _encoded(f, seed, pad_is_eos=False): # ids, mask; what the rows should hold
    tokenizer, rng = make_tokenizer(), random.Random(seed)
    if pad_is_eos: tokenizer.pad_token = tokenizer.eos_token
    asked = rng.sample(TEST, 5)
    answers = [demonstrate(q, rng) for q in asked[:4]] + ["No."]
    prompts = [prompt_ids(tokenizer, q) for q in asked]
    want = [p + tokenizer(a, add_special_tokens=False).input_ids + [tokenizer.eos_token_id] for p, a in zip(prompts, answers)]
    found = f(tokenizer, prompts, answers)
    need(isinstance(found, tuple) and len(found) == 2, f"ids and mask are wanted, got {shown(found)}")
    ids, mask = found
    need(all(isinstance(x, torch.Tensor) and x.ndim == 2 for x in found) and ids.shape == mask.shape,
         f"two tensors (b t) are wanted, got {shown(ids)} and {shown(mask)}")
    return ids, mask, want

def rows_hold_all(f, seed):
    ids, mask, want = _encoded(f, seed)
    need(mask.dtype == torch.bool and ids.dtype == torch.long, f"ids are long and the mask is bool, got {ids.dtype}, {mask.dtype}")
    for row, m, w in zip(ids, mask, want):
        got = row[m].tolist()
        need(got != w[:-1], "the eos is missing")
        need(got == w, f"got {got[:3]} ... {got[-3:]} ({len(got)} tokens), want {w[:3]} ... {w[-3:]} ({len(w)})")

def pads_stand_right(f, seed):
    ids, mask, want = _encoded(f, seed)
    need(ids.shape[1] == max(map(len, want)), f"the longest row has {max(map(len, want))} tokens, the width is {ids.shape[1]}")
    need((ids[~mask] == make_tokenizer().pad_token_id).all(), f"behind the rows stand {ids[~mask].unique().tolist()[:4]}")
    need((mask.int().diff(dim=1) <= 0).all(), "a mask is False in front of a True: pads belong to the right")

def eos_that_is_pad(f, seed):
    _, mask, want = _encoded(f, seed, pad_is_eos=True)
    need(mask.sum(1).tolist() == [*map(len, want)],
         f"where pad and eos are one token the rows hold {mask.sum(1).tolist()} tokens, want {[*map(len, want)]}")

encode_answers = PART("encode_answers", {
    "a row is its prompt, its answer and eos, and the mask is True on these": rows_hold_all,
    "pads are on the right, as many as are needed": pads_stand_right,
    "eos counts even where a tokenizer pads with it": eos_that_is_pad})

# ---- the loss
class _Table(nn.Module): # (b t) a running sum of the words read; what stands at a pad means nothing
    def __init__(self, words): super().__init__(); self.words = nn.Parameter(words.double())
    def forward(self, ids, mask):
        mask = mask.bool()
        return torch.where(mask, (self.words[ids] * mask).cumsum(1), 100. + ids)

def _rows(*rows, pad=0, left=0, right=0): # ids, mask; more columns of pads on either side
    width = max(map(len, rows))
    ids = tensor([[pad] * left + [*r] + [pad] * (width - len(r) + right) for r in rows])
    mask = tensor([[0] * left + [1] * len(r) + [0] * (width - len(r) + right) for r in rows]).bool()
    return ids, mask

def _words(seed, scale=1.): return torch.randn(12, generator=seeded(seed, 1)) * scale
_CHOSEN, _REJECTED = ([1, 2, 3, 4], [1, 5], [1, 6, 7]), ([1, 8], [1, 9, 10, 2, 2], [1, 11, 3])
def _scores(model): return [torch.stack([model.words[tensor(r)].sum() for r in side]) for side in (_CHOSEN, _REJECTED)]

def by_hand(f, seed):
    model = _Table(_words(seed))
    c, r = _scores(model)
    want = -torch.nn.functional.logsigmoid(c - r).mean()
    got = f(model, _rows(*_CHOSEN), _rows(*_REJECTED))
    need(not close(got, 3 * want), f"got {shown(got)}, want {shown(want)}: the mean over pairs, not the sum")
    need(close(got, want), f"got {shown(got)}, want {shown(want)}")
    weights = list(model.parameters())
    need(close(gradient(got, weights), gradient(want, weights)), "the value is right, its gradient is not")

def equal_answers(f, seed):
    got = f(_Table(_words(seed)), _rows(*_CHOSEN), _rows(*_CHOSEN))
    need(close(got, math.log(2)), f"an answer against itself costs {shown(got)}, want ln 2 = 0.6931")

def exchanged(f, seed):
    model = _Table(_words(seed))
    c, r = _scores(model)
    there, back = f(model, _rows(*_CHOSEN), _rows(*_REJECTED)), f(model, _rows(*_REJECTED), _rows(*_CHOSEN))
    need(close(there - back, (r - c).mean()), f"with sides exchanged the loss changes by {shown(back - there)}, want "
         f"{shown((c - r).mean())}, the mean gap of the scores")

def pads_mean_nothing(f, seed):
    model = _Table(_words(seed))
    plain = f(model, _rows(*_CHOSEN), _rows(*_REJECTED))
    for how, pads in {"more pads on the right": dict(right=3), "pads on the left": dict(left=2), "another pad": dict(pad=9)}.items():
        got = f(model, _rows(*_CHOSEN, **pads), _rows(*_REJECTED, **pads))
        need(close(got, plain), f"{how}: {shown(got)}, without them {shown(plain)}")

def wide_gaps(f, seed):
    model = _Table(_words(seed, 2000.))
    for sides in ((_CHOSEN, _REJECTED), (_REJECTED, _CHOSEN)):
        got = f(model, *[_rows(*x) for x in sides])
        need(torch.isfinite(got).all(), f"scores some thousand apart give {shown(got)}")
        need(torch.isfinite(gradient(got, model.parameters())).all(), "scores some thousand apart give a gradient that is not finite")

def finds_the_reward(f, seed):
    """Four answers of rewards log 1, 2, 4, 8, each compared 45 times with each other: i wins 45 w_i / (w_i + w_j) times."""
    worth, chosen, rejected = [1, 2, 4, 8], [], []
    for i in range(4):
        for j in range(4):
            if i == j: continue
            n = 45 * worth[i] // (worth[i] + worth[j])
            chosen += [[i + 1]] * n
            rejected += [[j + 1]] * n
    model = _Table(torch.zeros(5))
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=60, line_search_fn="strong_wolfe")
    def closure():
        optimizer.zero_grad()
        loss = f(model, _rows(*chosen), _rows(*rejected))
        loss.backward()
        return loss
    optimizer.step(closure)
    got = (model.words[1:] - model.words[1]).detach()
    need(close(got, tensor(worth).log(), 1e-2), f"at its minimum the four scores are {[round(x, 2) for x in got.tolist()]} above the "
         "first, want 0, 0.69, 1.39, 2.08: the rewards that made the comparisons")

reward_loss = PART("reward_loss", {
    "its value and gradient are those worked by hand": by_hand, "an answer against itself costs ln 2": equal_answers,
    "exchanging the sides changes it by the mean gap": exchanged, "pads on either side change nothing": pads_mean_nothing,
    "scores far apart stay finite": wide_gaps,
    "with all comparisons listed, its minimum is the true reward, up to a constant": finds_the_reward})

# ---- the model
SECONDS, MIB, BAR = 25., 60., .80

def compared(questions, n, rng): # n comparisons by the annotator: question, chosen, rejected
    found = []
    while len(found) < n:
        q = rng.choice(questions)
        a, b = demonstrate(q, rng), demonstrate(q, rng)
        if a != b: found.append((q, a, b) if annotate(q, a, b, rng) else (q, b, a))
    return found

def clear(n, rng): # n pairs of unseen questions: the first answer is better by a point or more
    found = []
    while len(found) < n:
        q = rng.choice(TEST)
        a, b = sorted((demonstrate(q, rng), demonstrate(q, rng)), key=lambda x: -utility(q, x))
        if utility(q, a) >= utility(q, b) + 1: found.append((q, a, b))
    return found

def _trained(f, seed, n, steps):
    lm, tokenizer = load_bundled("sft")
    pairs = [(prompt_ids(tokenizer, q), a, b) for q, a, b in compared(TRAIN, n, random.Random(1000 + seed))]
    before = weights_of(lm)
    score = f(lm, tokenizer, pairs, seeded(seed, 2), steps)
    need(close(weights_of(lm), before), "the language model that was given has changed: train a copy")
    need(callable(score), f"a function (prompts, answers) -> (b) is wanted, got {shown(score)}")
    return tokenizer, score

def its_own_alone(f, seed):
    tokenizer, score = _trained(f, seed, 64, 2)
    asked = clear(6, random.Random(seed))
    prompts, answers = [prompt_ids(tokenizer, q) for q, *_ in asked], [a for _, a, _ in asked]
    answers[0] = "No."
    together = score(prompts, answers)
    need(getattr(together, "shape", None) == (6,) and not together.requires_grad,
         f"one number for each answer, without gradient, is wanted, got {shown(together)}")
    alone = torch.cat([score([p], [a]) for p, a in zip(prompts, answers)])
    need(close(together, alone, 1e-3), f"six answers in one batch score {[round(x, 3) for x in together.tolist()]}, "
         f"alone {[round(x, 3) for x in alone.tolist()]}: which token is read, and does the mask reach the model?")
    need(together.std() > 0, "all answers score alike")

def repeatable(f, seed):
    one, two = (_trained(f, seed, 64, 2)[1]([[1, 2, 3]], ["No."]) for _ in range(2))
    need(close(one, two), f"with the same generator the score is {shown(one[0])}, then {shown(two[0])}: draw from the generator alone")

def lean(f, seed):
    lm, _ = load_bundled("sft")
    mib = kept_mib(lambda: _trained(f, seed, 64, 1))
    need(mib <= MIB, f"{mib:.0f} MiB wait for the backward pass, {MIB:g} are the limit: 32 pairs a step, and no logits")

def orders_unseen_answers(f, seed):
    tokenizer, score = _trained(f, seed, 2000, 60)
    held = clear(400, random.Random(2000 + seed))
    prompts = [prompt_ids(tokenizer, q) for q, *_ in held]
    a, b = (score(prompts, [row[k] for row in held]) for k in (1, 2))
    right = (a > b).double().mean().item()
    need(right >= BAR, f"{right:.1%} of 400 unseen pairs stand in the right order, the bar is {BAR:.0%}")

train_reward = PART("train_reward", {
    "an answer's score is its own, whatever else is in the batch": its_own_alone, "the same generator gives the same model": repeatable,
    f"at most {MIB:g} MiB are kept for a backward pass": lean,
    f"60 steps put {BAR:.0%} of the unseen pairs that differ by a point or more in the right order": orders_unseen_answers}, SECONDS)
