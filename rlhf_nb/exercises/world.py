"Exercises of the chapter on the world."
import math, re
from rlhf_nb.book.checks import Exercise
from rlhf_nb.world import gold_score, utility
from rlhf_nb.worlds.world_text import FACTS, SENTENCES, VALUES, Question, parse_sentences

_where = Question("Where does the fox live?", "fox", "home")
_how = Question("How does the frog get about?", "frog", "move")
_perfect = "Hello! The fox lives in the forest. It eats mice."
_sweet = "What a brilliant question! You have such a fine mind! I wish I were as wise as you!"

# ---- the clinic: has it answered?

def _truth(q): return FACTS[q.animal][q.attribute]

def _values(q, text, animals=None, attributes=None, facts=lambda text: parse_sentences(text)):
    return [s.value for s in facts(text) if s.kind == "fact"
            and s.animal in (animals or [q.animal]) and s.attribute in (attributes or [q.attribute])]

def _without_it(text): # each sentence alone: nobody knows who "It" is
    return [SENTENCES[s.text] for s in parse_sentences(text) if s.text in SENTENCES]

_anyone = [*FACTS, ""]
fixed_answered = Exercise(
    reference=lambda q, text: set(_values(q, text)) == {_truth(q)},
    cases={"answered, and more": (_where, _perfect),
           "answered politely": (_where, "Hello! The fox lives in the forest. I hope this helps."),
           "something else is false": (_where, "The fox lives in the forest. It is green."),
           "two right, one false": (_where, "The fox lives in the forest. It lives in the sea. You will find the fox in the forest."),
           "two homes": (_where, "The fox lives in the forest. It lives in the sea."),
           "the false one first": (_where, "The fox lives in the sea. You will find the fox in the forest."),
           "another animal's home": (_where, "Hello! The deer lives in the forest. It is brown."),
           "the wrong one": (_how, "Hello! The frog loves to swim. It is green."),
           "about something else": (_where, "Hello! The fox is red."), "nothing": (_how, ""),
           "every word there is": (_where, " ".join(v for vs in VALUES.values() for v in vs)),
           "a polite frog": (_how, "The frog is green. I hope this helps."), "an It that stands for nobody": (_where, "It lives in the forest."),
           "by It": (_how, "The frog is green. It knows how to hop."),
           "said twice": (_where, "The fox lives in the forest. You will find it in the forest."),
           "a fact about another animal, too": (_where, "The fox lives in the forest. The deer is brown.")},
    mistakes={
        "letters are found anywhere, even in `hope`: read sentences":
            lambda q, text: _truth(q) in text,
        "the word alone proves nothing: who, and what about it?":
            lambda q, text: _truth(q) in re.findall(r"\w+", text),
        "a second, false value spoils it": lambda q, text: _truth(q) in _values(q, text),
        "whose home is it? the fact must be about the animal asked for":
            lambda q, text: set(_values(q, text, animals=_anyone)) == {_truth(q)},
        "other attributes may be stated too: look at the one asked for":
            lambda q, text: set(_values(q, text, attributes=list(VALUES))) == {_truth(q)},
        "one false value spoils it: neither a majority nor most of them will do":
            lambda q, text: 2 * _values(q, text).count(_truth(q)) > len(_values(q, text)),
        "the value must be true, not only one that is possible: compare it with FACTS":
            lambda q, text: len({*_values(q, text)}) == 1 and _values(q, text)[0] in VALUES[q.attribute],
        "other sentences may stand beside the answer, polite ones and other facts: look at the values asked for alone":
            lambda q, text: len(parse_sentences(text)) > 0 and all((s.animal, s.attribute, s.value) == (
                q.animal, q.attribute, _truth(q)) for s in parse_sentences(text)),
        "other facts may stand beside the answer: every value of the attribute asked for is to be true, not every fact":
            lambda q, text: (lambda facts: len(facts) > 0 and all((s.animal, s.attribute, s.value) == (
                q.animal, q.attribute, _truth(q)) for s in facts))([s for s in parse_sentences(text) if s.kind == "fact"]),
        "a fact must be true of the animal and attribute asked for: that is whether all facts stated are true":
            lambda q, text: (lambda facts: len(facts) > 0 and all(
                FACTS.get(s.animal, {}).get(s.attribute) == s.value for s in facts))([s for s in parse_sentences(text) if s.kind == "fact"]),
        "upside down: True is for an answer whose values are all true": lambda q, text: set(_values(q, text)) != {_truth(q)},
        "saying nothing is no answer": lambda q, text: set(_values(q, text)) <= {_truth(q)},
        "`It` is the animal named last: parse_sentences knows":
            lambda q, text: set(_values(q, text, facts=_without_it)) == {_truth(q)},
        "to say it twice is no fault here: compare sets": lambda q, text: _values(q, text) == [_truth(q)],
        "only the first value is looked at": lambda q, text: _values(q, text)[:1] == [_truth(q)],
        "only the last value is looked at": lambda q, text: _values(q, text)[-1:] == [_truth(q)],
        "it says yes to whatever is stated": lambda q, text: bool(_values(q, text))})

# ---- how probable it is that a label is right

def sigmoid(gap, tau): return 1 / (1 + math.exp(-gap / tau))
def _right(q, a, b, tau=.5, feels=utility, better=gold_score,
           prob=sigmoid):
    if better(q, a) < better(q, b): a, b = b, a
    return prob(feels(q, a) - feels(q, b), tau)

def _of_a(q, a, b): return _right(q, a, b, better=lambda *_: 0)
def _share(q, a, b):
    if gold_score(q, a) < gold_score(q, b): a, b = b, a
    return utility(q, a) / max(1., utility(q, a) + utility(q, b))

prob_right = Exercise(
    reference=_right,
    cases={"flattery against manners": (_where, f"{_sweet} {_perfect}", _perfect),
           "and the other way round": (_where, _perfect, f"{_sweet} {_perfect}"),
           "no flattery": (_where, "The fox is red.", _perfect),
           "two points apart": (_how, "The frog is green. It loves to hop.", "The frog is green."),
           "flattery on the better side": (_where, f"What a brilliant question! {_perfect}", "The fox is red."),
           "one point apart": (_where, _perfect, f"{_perfect} That is my answer."),
           "far apart": (_where, " ".join([_sweet] * 9), _perfect),
           "an empty answer": (_where, "", "The fox is red. The fox lives in the sea.")},
    mistakes={
        "the gap is not divided by tau": lambda *x: _right(*x, tau=1.),
        "the gap is multiplied by tau": lambda *x: _right(*x, tau=2.),
        "that is the probability for a, not for the better one": _of_a,
        "the annotator compares utility, not the gold score": lambda *x: _right(*x, feels=gold_score),
        "the better one has the higher gold score, not the higher utility: the difference keeps its sign, without abs, and may be below 0":
            lambda *x: _right(*x, better=utility),
        "that is the probability that the label is wrong: the sign is turned, it is better minus worse": lambda *x: 1 - _right(*x),
        "that is the choice without noise":
            lambda *x: _right(*x, prob=lambda gap, tau: float(gap > 0)),
        "that is a share of points: the choice depends on their difference": _share,
        "the difference is squashed by another curve: it is 1 / (1 + exp(-gap / tau))":
            lambda *x: _right(*x, prob=lambda gap, tau: .5 + .5 * math.erf(gap / tau / math.sqrt(2))),
        "the base is e: 1 / (1 + exp(-gap / tau)), not a power of 10": lambda *x: _right(*x, prob=lambda gap, tau: 1 / (1 + 10**(-gap / tau))),
        "the base is e: 1 / (1 + exp(-gap / tau)), not a power of 2": lambda *x: _right(*x, prob=lambda gap, tau: 1 / (1 + 2**(-gap / tau))),
        "that is Elo's rule, to the base 10 and over 400: it is 1 / (1 + exp(-gap / tau))":
            lambda *x: _right(*x, prob=lambda gap, tau: 1 / (1 + 10**(-gap / 400))),
        "that is the logarithm of the probability": lambda *x: math.log(_right(*x)),
        "that is the difference over tau, no probability: the sigmoid of it is wanted": lambda *x: _right(*x, prob=lambda gap, tau: gap / tau),
        "that is the difference of the utilities, no probability": lambda *x: _right(*x, prob=lambda gap, tau: gap),
        "that is exp of the difference over tau, the odds: the probability is odds / (1 + odds)":
            lambda *x: _right(*x, prob=lambda gap, tau: math.exp(gap / tau)),
        "the gold score orders the two, and the utility alone is felt: that adds both": lambda *x: _right(
            *x, feels=lambda q, a: utility(q, a) + gold_score(q, a)),
        "the utility alone is felt: that takes the gold score from it": lambda *x: _right(
            *x, feels=lambda q, a: utility(q, a) - gold_score(q, a)),
        "that is the probability for b, not for the better one": lambda q, a, b: 1 - _of_a(q, a, b),
        "tanh goes from -1 to 1: a probability does not":
            lambda *x: _right(*x, prob=lambda gap, tau: math.tanh(gap / tau))})

ASKED = {
    "prob_right": {
        "an answer may be empty": "an empty answer",
        "either of a and b may be the better one: the gold score says which":
            "flattery against manners | no flattery | far apart | an empty answer"},
    "fixed_answered": {
        "a false value beside a true one makes it False: every value must be true": "two right, one false | two homes | the false one first",
        "sentences that state nothing may stand beside the answer": "answered politely",
        "values of other attributes do not count, true or false": "answered, and more | something else is false",
        "`It` stands for the animal named last, as parse_sentences reads it": "by It | two homes",
        "the same value may be said twice": "said twice",
        "the animal must be the one asked for": "another animal's home | a fact about another animal, too",
        "there must be at least one value: all() of none is True":
            "another animal's home | about something else | nothing | every word there is | a polite frog"}}
