"Answers to the exercises of the chapter on the world that learners might give, each wrong."
import math
from statistics import NormalDist
from rlhf_nb.world import gold_score, utility
from rlhf_nb.world_text import FACTS, VALUES, fact_sentence, parse_sentences

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

def twice(questions, responses, n):
    repeated = [q for q in questions for _ in range(n)]
    return [gold_score(*pair) for pair in zip(repeated, responses)]
def cycled(questions, responses, n):
    if len(questions) != len(responses): raise ValueError("one question per response")
    repeated = questions[:max(1, len(questions) // n)] * n
    return [gold_score(q, r) for q, r in zip(repeated, responses)]
def only_first(questions, responses, n):
    if len(questions) != len(responses): raise ValueError("one question per response")
    return [gold_score(questions[0], r) for r in responses]
def in_rows(questions, responses, n):
    if len(questions) != len(responses): raise ValueError("one question per response")
    repeated = [q for q in questions[::n] for _ in range(n)]
    return [gold_score(q, r) for q, r in zip(repeated, responses)]
def silent(questions, responses, n):
    return [gold_score(q, r) for q, r in zip(questions, responses)]
def asserts(questions, responses, n):
    assert len(questions) == len(responses)
    return [gold_score(q, r) for q, r in zip(questions, responses)]
def liked(questions, responses, n):
    return [utility(q, r) for q, r in zip(questions, responses, strict=True)]
def group_means(questions, responses, n):
    scores, out = [gold_score(q, r) for q, r in zip(questions, responses, strict=True)], []
    for i in range(0, len(scores), n): out += [sum(scores[i:i + n]) / n] * n
    return out
def advantages(questions, responses, n):
    scores, out = [gold_score(q, r) for q, r in zip(questions, responses, strict=True)], []
    for i in range(0, len(scores), n):
        mean = sum(scores[i:i + n]) / n
        out += [s - mean for s in scores[i:i + n]]
    return out
def average(questions, responses, n):
    scores = [gold_score(q, r) for q, r in zip(questions, responses, strict=True)]
    return sum(scores) / len(scores) if scores else 0.
def turned(questions, responses, n):
    if len(questions) != len(responses): raise ValueError("one question per response")
    return [gold_score(q, r) for q, r in zip(questions, reversed(responses))]
def index_error(questions, responses, n):
    return [gold_score(questions[i], r) for i, r in enumerate(responses)]

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
    "fixed_scores": [
        ("they are repeated once too often: there is a question for each response already", twice),
        ("the whole list is repeated: whose turn is it then?", cycled),
        ("every response is scored by the first question", only_first),
        ("do not count on rows of n: response i answers questions[i]", in_rows),
        ("zip stops at the shorter list and says nothing: raise", silent),
        ("raise a ValueError: an assert is for tests", asserts),
        ("that is the annotator's utility: the true score is gold_score", liked),
        ("that is the mean of each question: one score for each response", group_means),
        ("that is the distance to the question's mean: the score itself is wanted", advantages),
        ("one score for each response, not one for all", average),
        ("the order is turned round", turned), ("", index_error)],
    "prob_right": [
        ("the gap is not divided by tau", no_tau), ("the gap is multiplied by tau", times_tau),
        ("that is the probability for a, not for the better one", for_a),
        ("he compares utility, not the true score", by_gold),
        ("the better one is better in truth, not to his taste: order them by gold_score", by_taste),
        ("that is the probability that he is wrong", wrong_side),
        ("that is what he would choose without noise", certain),
        ("that is a share of points: his choice depends on their difference", ratio),
        ("the difference is squashed by another curve: it is 1 / (1 + exp(-gap / tau))", normal),
        ("tanh goes from -1 to 1: a probability does not", squashed)]}
