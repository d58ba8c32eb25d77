"What must hold of a judge of one's own that compares two answers: its parser, both orders, and a model without a favourite place."
import random
from functools import partial
import torch
from torch import tensor
from rlhf_nb.base.models import load_bundled
from rlhf_nb.exercises.properties import Properties, close, need, seeded, shown, weights_of
from rlhf_nb.world import gold_score
from rlhf_nb.worlds.world_text import TEST, TRAIN, demonstrate

PART = partial(Properties, "A4_pair_judge")

# ---- the parser
def _reads(f, texts): # reply -> winner
    for text, want in texts.items():
        got = f(text)
        need(got == want and type(got) is type(want), f"{text!r}: got {got!r}, want {want!r}")

def verdicts(f, seed): _reads(f, {"Answer: 1": 1, "Answer: 2": 2, "Both name it. Answer: 2": 2, "It is polite.\nAnswer: 1": 1,
                                  "Answer: 2 ": 2, "Answer: 1.": 1, "Answer: 2.\n": 2})
def last_counts(f, seed): _reads(f, {"Answer: 1 looks better at first. Answer: 2": 2, "Answer: 2? No.\nAnswer: 1.": 1})
def no_verdict(f, seed): _reads(f, dict.fromkeys(["", "The first.", "Answer:", "Answer: 3", "Answer: 12", "Answer: 1/2", "Answer: 1.5",
    "Answer: one", "1", "Answer: 1 or 2", "Answer: 2 is worse than the other", "Answer: 0", "MyAnswer: 1"]))

parse_winner = PART("parse_winner", {
    "a verdict at the end is read": verdicts, "what was said before it does not count": last_counts,
    "anything else at the end gives None": no_verdict})

# ---- both orders
_PAIRS = [("q0", "good", "bad"), ("q1", "bad", "good"), ("q2", "fair", "bad"), ("q3", "good", "fair"), ("q4", "bad", "fair")]
_WORTH = dict(good=2, fair=1, bad=0)

def _asked(f, judge, pairs=_PAIRS): # what came back, the trios of each call
    calls = []
    def ask(trios):
        calls.append([tuple(t) for t in trios])
        return [judge(*t) for t in trios]
    got = f(ask, pairs)
    need(isinstance(got, torch.Tensor) and got.shape == (len(pairs),) and got.is_floating_point(),
         f"a number for each pair, a float tensor (b), is wanted, got {shown(got)}")
    return got, calls

def _fair(q, a, b): return f"Answer: {1 if _WORTH[a] > _WORTH[b] else 2}"

def fair_judge(f, seed):
    got, calls = _asked(f, _fair)
    need(close(got, tensor([1., 0., 1., 1., 0.])), f"a judge that is right names {got.tolist()}, want 1, 0, 1, 1, 0: 1 where the first is better")
    every = sorted(t for call in calls for t in call)
    want = sorted([*_PAIRS, *((q, b, a) for q, a, b in _PAIRS)])
    need(every == want, "each pair is asked once as it stands and once turned, the question in front of both")

def one_place(f, seed):
    for k in (1, 2):
        got, _ = _asked(f, lambda *t: f"Answer: {k}")
        need(close(got, tensor([.5] * 5)), f"a judge that always names place {k} knows nothing; got {got.tolist()}, want .5 everywhere")

def turned(f, seed):
    rng = random.Random(seed)
    said = {(q, *x): rng.choice(["Answer: 1", "Answer: 2", "well"]) for q, a, b in _PAIRS for x in ((a, b), (b, a))}
    there, _ = _asked(f, lambda *t: said[t])
    back, _ = _asked(f, lambda *t: said[t], [(q, b, a) for q, a, b in _PAIRS])
    need(close(back, 1 - there), f"with the answers exchanged {there.tolist()} becomes {back.tolist()}, want one less each of them")

def unread(f, seed):
    got, _ = _asked(f, lambda *t: "I cannot say.")
    need(close(got, tensor([.5] * 5)), f"where no reply can be read: got {got.tolist()}, want .5")
    got, _ = _asked(f, lambda q, a, b: "hm" if _WORTH[a] > _WORTH[b] else _fair(q, a, b))
    need(close(got, tensor([.75, .25, .75, .75, .25])), f"one order unread, the other for the better one: got {got.tolist()}, want .75 and .25")

def one_call(f, seed):
    _, calls = _asked(f, _fair)
    need(len(calls) == 1, f"the judge was called {len(calls)} times: all trios of both orders go in one batch")

both_orders = PART("both_orders", {
    "a judge that is right stays right and is asked in both orders": fair_judge, "a favourite position decides nothing": one_place,
    "exchanging the answers turns the share into 1 minus the share": turned, "a reply that cannot be read counts as half a vote for each": unread,
    "everything is asked in one batch": one_call})

# ---- the judge
# of eight seeds ours finds .72 to .85 and names place 1 in .40 to .55; of four, trained as given, .60 to .69 and .76 to .86
SECONDS, BAR, BIAS = 30., .65, .2

def compared(questions, n, rng, first): # n pairs three points or more apart; how often the better one stands first
    found = []
    while len(found) < n:
        q = rng.choice(questions)
        a, b = sorted((demonstrate(q, rng), demonstrate(q, rng)), key=lambda x: -gold_score(q, x))
        if gold_score(q, a) < gold_score(q, b) + 3: continue
        found.append((q.text, a, b, 1) if rng.random() < first else (q.text, b, a, 2))
    return found

def _trained(f, seed, n, steps):
    lm, tokenizer = load_bundled("judge")
    before = weights_of(lm)
    ask = f(lm, tokenizer, compared(TRAIN, n, random.Random(1000 + seed), .8), seeded(seed, 2), steps)
    need(close(weights_of(lm), before), "the language model that was given has changed: train a copy")
    need(callable(ask), f"a function, trios -> replies, is wanted, got {shown(ask)}")
    return ask

def alone_as_in_a_batch(f, seed):
    ask = _trained(f, seed, 64, 2)
    trios = [row[:3] for row in compared(TEST, 6, random.Random(seed), .5)]
    together = ask(trios)
    need(isinstance(together, list) and len(together) == 6 and all(isinstance(x, str) for x in together),
         f"a list with a text for each trio is wanted, got {shown(together)}")
    alone = [ask([t])[0] for t in trios]
    need(alone == together, f"alone the replies are {alone[:3]}, in a batch {together[:3]}: do pads reach the model?")
    need(ask(trios) == together, "asked twice it says other things: greedy, without chance")

def finds_the_better(f, seed):
    ask = _trained(f, seed, 1500, 90)
    rows = compared(TEST, 200, random.Random(2000 + seed), .5)
    trios = [row[:3] for row in rows]
    replies = ask(trios + [(q, b, a) for q, a, b in trios])
    unread = [x for x in replies if x.strip().rstrip(".")[-9:] not in ("Answer: 1", "Answer: 2")]
    need(not unread, f"{len(unread)} of {len(replies)} replies hold no verdict, such as {unread[:1]}")
    says = tensor([x.strip().rstrip(".")[-1] == "1" for x in replies]).double()
    bias = says.mean().item() - .5
    need(abs(bias) <= BIAS, f"in both orders place 1 is named in {says.mean():.0%} of the replies, want {.5 - BIAS:.0%} to {.5 + BIAS:.0%}: in "
         "four of five training pairs the better answer stood first; what can be done about the data?")
    lone = sum(ask([t])[0] == r for t, r in zip(trios[:40], replies))
    need(lone >= 38, f"{40 - lone} of 40 replies are others when a trio is asked alone: do pads reach the model?")
    share = (says[:200] + 1 - says[200:]) / 2
    better = tensor([row[3] == 1 for row in rows])
    right = torch.where(share == .5, .5, ((share > .5) == better).double()).mean().item()
    need(right >= BAR, f"asked in both orders it finds the better answer of {right:.1%} of unseen pairs (a tie is half right), the bar is {BAR:.0%}")

train_judge = PART("train_judge", {
    "it says the same alone, in a batch, and when asked twice": alone_as_in_a_batch,
    f"90 steps on pairs with a favourite position find {BAR:.0%} of the better answers, and {.5 - BIAS:.0%} to {.5 + BIAS:.0%} of the replies name position 1":
        finds_the_better}, SECONDS)
