"Answers to the exercises of the chapter on the world that learners might give, wrong and right."
import math, torch
from statistics import NormalDist
from rlhf_nb.world import criteria, gold_score, utility
from rlhf_nb.worlds.world_text import FACTS, VALUES, fact_sentence, parse_sentences

def truth(q): return FACTS[q.animal][q.attribute]

def letters(question, text): return truth(question).lower() in text.lower()
def whole_word(question, text):
    cleaned = "".join(c if c.isalpha() else " " for c in text)
    return truth(question) in cleaned.split()
def one_is_enough(question, text):
    return any(s.animal == question.animal and s.attribute == question.attribute
               and s.value == truth(question) for s in parse_sentences(text))
def anybody(question, text):
    values = {s.value for s in parse_sentences(text) if s.attribute == question.attribute}
    return values == {truth(question)}
def any_attribute(question, text):
    values = {s.value for s in parse_sentences(text) if s.animal == question.animal}
    return values == {truth(question)}
def no_false(question, text):
    return all(s.value == truth(question) for s in parse_sentences(text)
               if (s.animal, s.attribute) == (question.animal, question.attribute))
def by_name_only(question, text):
    values = {s.value for s in parse_sentences(text) if s.attribute == question.attribute
            and s.text.find(question.animal) >= 0}
    return values == {truth(question)}
def exactly_once(question, text):
    values = [s.value for s in parse_sentences(text)
            if (s.animal, s.attribute) == (question.animal, question.attribute)]
    return len(values) == 1 and values[0] == truth(question)
def first_only(question, text):
    for s in parse_sentences(text):
        if (s.animal, s.attribute) == (question.animal, question.attribute):
            return s.value == truth(question)
    return False
def last_only(question, text):
    found = False
    for s in parse_sentences(text):
        if (s.animal, s.attribute) == (question.animal, question.attribute):
            found = s.value == truth(question)
    return found
def anything(question, text):
    return any((s.animal, s.attribute) == (question.animal, question.attribute) for s in parse_sentences(text))
def one_sentence(question, text): # knows one of the two ways to say it
    return fact_sentence(question.animal, question.attribute, truth(question), 0).text in text

def ordered(question, a, b): return (a, b) if gold_score(question, a) > gold_score(question, b) else (b, a)
def sigmoid(x): return 1 / (1 + math.exp(-x))
def no_tau(question, a, b):
    a, b = ordered(question, a, b)
    return sigmoid(utility(question, a) - utility(question, b))
def times_tau(question, a, b):
    a, b = ordered(question, a, b)
    return sigmoid(.5 * (utility(question, a) - utility(question, b)))
def for_a(question, a, b): return sigmoid((utility(question, a) - utility(question, b)) / .5)
def by_gold(question, a, b): return sigmoid(abs(gold_score(question, a) - gold_score(question, b)) / .5)
def by_taste(question, a, b): return sigmoid(abs(utility(question, a) - utility(question, b)) / .5)
def wrong_side(question, a, b):
    better, worse = ordered(question, a, b)
    return sigmoid((utility(question, worse) - utility(question, better)) / .5)
def certain(question, a, b):
    a, b = ordered(question, a, b)
    return 1. if utility(question, a) > utility(question, b) else 0.
def ratio(question, a, b):
    a, b = ordered(question, a, b)
    total = utility(question, a) + utility(question, b)
    return utility(question, a) / total if total else 0.
def normal(question, a, b):
    a, b = ordered(question, a, b)
    return NormalDist().cdf((utility(question, a) - utility(question, b)) / .5)
def squashed(question, a, b):
    a, b = ordered(question, a, b)
    return math.tanh((utility(question, a) - utility(question, b)) / .5)

WRONG = {
    "fixed_answered": [
        ("letters are found anywhere, even in `hope`: read sentences", letters),
        ("the word alone proves nothing: who, and what about it?", whole_word),
        ("a second, false value spoils it", one_is_enough),
        ("whose home is it? the fact must be about the animal asked for", anybody),
        ("other attributes may be stated too: look at the one asked for", any_attribute),
        ("saying nothing is no answer", no_false),
        ("`It` is the animal named last: parse_sentences knows", by_name_only),
        ("to say it twice is no fault here: compare sets", exactly_once),
        ("only the first value is looked at", first_only),
        ("only the last value is looked at", last_only),
        ("it says yes to whatever is stated", anything), ("", one_sentence)],
    "prob_right": [
        ("the gap is not divided by tau", no_tau), ("the gap is multiplied by tau", times_tau),
        ("that is the probability for a, not for the better one", for_a),
        ("the annotator compares utility, not the gold score", by_gold),
        ("the better one has the higher gold score, not the higher utility: the difference keeps its sign, without abs, and may be below 0", by_taste),
        ("that is the probability that the label is wrong: the sign is turned, it is better minus worse", wrong_side),
        ("that is the choice without noise", certain),
        ("that is a share of points: the choice depends on their difference", ratio),
        ("the difference is squashed by another curve: it is 1 / (1 + exp(-gap / tau))", normal),
        ("tanh goes from -1 to 1: a probability does not", squashed)]}

def right_answered_loop(question, text):
    found = False
    for s in parse_sentences(text):
        if s.kind != "fact" or s.animal != question.animal or s.attribute != question.attribute: continue
        if s.value != truth(question): return False
        found = True
    return found
def right_answered_criteria(question, text): return criteria(question, text)["Answered"]
def right_answered_count(question, text):
    values = [s.value for s in parse_sentences(text) if s.animal == question.animal and s.attribute == question.attribute]
    return len(values) > 0 and values.count(truth(question)) == len(values)

def right_prob_torch(question, a, b):
    gap = utility(question, a) - utility(question, b)
    if gold_score(question, b) > gold_score(question, a): gap = -gap
    return torch.sigmoid(torch.tensor(gap / .5, dtype=torch.double)).item()
def right_prob_softmax(question, a, b):
    better, worse = sorted((a, b), key=lambda text: -gold_score(question, text))
    u = torch.tensor([utility(question, better), utility(question, worse)], dtype=torch.double)
    return float((2 * u).softmax(0)[0])

RIGHT = {
    "fixed_answered": [right_answered_loop, right_answered_criteria, right_answered_count],
    "prob_right": [right_prob_torch, right_prob_softmax]}
