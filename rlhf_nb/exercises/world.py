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
           "something else is false": (_where, "The fox lives in the forest. It is green."),
           "two right, one false": (_where, "The fox lives in the forest. It lives in the sea. You will find the fox in the forest."),
           "two homes": (_where, "The fox lives in the forest. It lives in the sea."),
           "the false one first": (_where, "The fox lives in the sea. You will find the fox in the forest."),
           "another animal's home": (_where, "Hello! The deer lives in the forest. It is brown."),
           "the wrong one": (_how, "Hello! The frog loves to swim. It is green."),
           "about something else": (_where, "Hello! The fox is red."), "nothing": (_how, ""),
           "every word there is": (_where, " ".join(v for vs in VALUES.values() for v in vs)),
           "a polite frog": (_how, "The frog is green. I hope this helps."),
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
        "the better one has the higher gold score, not the higher utility: order them by gold_score":
            lambda *x: _right(*x, better=utility),
        "that is the probability that the label is wrong": lambda *x: 1 - _right(*x),
        "that is the choice without noise":
            lambda *x: _right(*x, prob=lambda gap, tau: float(gap > 0)),
        "that is a share of points: the choice depends on their difference": _share,
        "the difference is squashed by another curve: it is 1 / (1 + exp(-gap / tau))":
            lambda *x: _right(*x, prob=lambda gap, tau: .5 + .5 * math.erf(gap / tau / math.sqrt(2))),
        "tanh goes from -1 to 1: a probability does not":
            lambda *x: _right(*x, prob=lambda gap, tau: math.tanh(gap / tau))})
