"Wrong answers to the exercises of the chapter on sums."
import math, re

# fixed_number_reward(reply, right)
def as_it_was(reply, right):
    found = re.search(r"\d+", reply)
    if found is None: return .5
    return float(found[0] == right)
def zero_but_first(reply, right):
    found = re.search(r"\d+", reply)
    return 1. if found and found.group() == right else 0.
def last_but_half(reply, right):
    found = re.findall(r"\d+", reply)
    if not found: return .5
    return 1. if found[-1] == right else 0.
def nan_for_none(reply, right):
    found = re.findall(r"\d+", reply)
    return float(found[-1] == right) if found else math.nan
def inside_last(reply, right):
    found = re.findall(r"\d+", reply)
    return float(bool(found) and right in found[-1])
def anywhere(reply, right): return 1. if right in reply else 0.
def any_number(reply, right): return float(any(n == right for n in re.findall(r"\d+", reply)))
def by_value(reply, right):
    found = re.findall(r"\d+", reply)
    return float(bool(found) and int(found[-1][::-1]) == int(right[::-1]))
def one_digit(reply, right):
    found = re.findall(r"\d", reply)
    return float(bool(found) and found[-1] == right)
def begins(reply, right):
    found = re.findall(r"\d+", reply)
    return float(bool(found) and found[-1][:len(right)] == right)
def ends(reply, right):
    found = re.findall(r"\d+", reply)
    return float(bool(found) and found[-1].endswith(right))
def minus_one(reply, right):
    found = re.findall(r"[0-9]+", reply)
    if not found: return -1.
    return float(found[-1] == right)

# reward_until_wrong(said, want)
def dense(said, want):
    return [(i < len(want) and a == want[i]) / len(want) for i, a in enumerate(said)]
def prefix(said, want):
    n = 0
    while n < min(len(said), len(want)) and said[n] == want[n]: n += 1
    return n
def by_own_length(said, want): return [(i < prefix(said, want)) / len(said) for i in range(len(said))]
def whole_points(said, want): return [1. if i < prefix(said, want) else 0. for i in range(len(said))]
def without_eos(said, want):
    return [1 / (len(want) - 1) if i < prefix(said, want) and a != 1 else 0. for i, a in enumerate(said)]
def one_too_many(said, want):
    return [1 / len(want) if i <= prefix(said, want) and i < len(want) else 0. for i in range(len(said))]
def backwards(said, want):
    paid, n = [0.] * len(said), min(len(said), len(want))
    for i in reversed(range(n)):
        if said[i] != want[i]: break
        paid[i] = 1 / len(want)
    return paid
def at_last(said, want):
    paid = [0.] * len(said)
    if said: paid[-1] = prefix(said, want) / len(want)
    return paid
def zipped(said, want):
    paid, good = [], True
    for a, b in zip(said, want):
        good = good and a == b
        paid.append(good / len(want))
    return paid
def runs_out(said, want):
    paid, good = [], True
    for i, a in enumerate(said):
        good = good and a == want[i]
        paid.append(1 / len(want) if good else 0.)
    return paid
def all_or_nothing(said, want): return [(said == want) / len(want) for _ in said]
def sum_of_it(said, want): return prefix(said, want) / len(want)

def as_integers(reply, right):
    found = re.findall(r"\d+", reply)
    return float(bool(found) and int(found[-1]) == int(right))
def right_places(said, want): return [(a == b) / len(want) for a, b in zip(said, want)]

WRONG = {
    "fixed_number_reward": [
        ("it still takes the first number and pays half for none", as_it_was),
        ("that is the first number, and it may stand in the question: take the last", zero_but_first),
        ("no number is no answer: it earns 0, not half", last_but_half),
        ("no number earns 0: nan is no pay", nan_for_none),
        ("no number earns 0, not -1", minus_one),
        ("55 is found inside 555: compare the whole number", inside_last),
        ("the right answer anywhere in the reply is not an answer", anywhere),
        ("any number of the reply is paid: only the last one is the answer", any_number),
        ("550 is not 55: units come first, so compare digits, not values", by_value),
        ("055 is not 55: compare digits, not values", as_integers),
        ("that is the last digit alone", one_digit),
        ("it begins like the answer: compare the whole number", begins),
        ("it ends like the answer: compare the whole number", ends)],
    "reward_until_wrong": [
        ("a right token behind a wrong one earns nothing", dense),
        ("every right place is paid: stop at the first wrong one, and keep one number for each token",
         right_places),
        ("shares are of the right answer's length, not of what was said", by_own_length),
        ("each token earns its share: a right answer earns 1 in all", whole_points),
        ("eos is a token of the answer and earns its share", without_eos),
        ("the first wrong token is paid, too", one_too_many),
        ("counted from the end: a wrong beginning spoils all", backwards),
        ("that pays all of it at the end", at_last),
        ("one number for each token of `answer`, also beyond the end of `want`, where zip ends: the list is too short", zipped),
        ("behind the end of the right answer all is wrong: want[i] stops there", runs_out),
        ("all or nothing, the whole answer: each right token before the first wrong one earns its part", all_or_nothing),
        ("that is one number, a sum: a list with one number for each token", sum_of_it)]}

# right, in other ways
def last_by_split(reply, right):
    parts = [p for p in re.split(r"[^0-9]+", reply) if p]
    return 1. if parts and parts[-1] == right else 0.
def last_by_finditer(reply, right):
    last = None
    for match in re.finditer("[0-9]+", reply): last = match.group()
    return float(last == right)
def by_prefix(said, want):
    n = prefix(said, want)
    return [1 / len(want)] * n + [0.] * (len(said) - n)
def by_all(said, want):
    return [1 / len(want) if i < len(want) and said[:i + 1] == want[:i + 1] else 0. for i in range(len(said))]

RIGHT = {"fixed_number_reward": [last_by_split, last_by_finditer], "reward_until_wrong": [by_prefix, by_all]}
