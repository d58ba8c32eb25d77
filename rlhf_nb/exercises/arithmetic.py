"Exercises of the chapter on sums."
import re
from rlhf_nb.book.checks import Exercise

# ------------------------------------------------------------------ fixed_number_reward
def _pay(reply, right, which=-1, none=0., same=str.__eq__, digits=r"\d+"):
    found = re.findall(digits, reply)
    return float(same(found[which], right)) if found else none

fixed_number_reward = Exercise(
    reference=_pay,
    cases={"right": ("74+8=55", "55"), "the carry is forgotten": ("74+8=54", "55"),
           "too long": ("74+8=555", "55"), "too long, at the other end": ("13+4=155", "55"),
           "nothing said": ("", "55"), "a word and no number": ("many", "55"),
           "stopped at once": ("55+0=", "55"), "the answer stands in front": ("55+0=54", "55"),
           "in words": ("first 5, then 55.", "55"), "a zero too much": ("74+8=550", "55"),
           "a number alone": ("5", "5"), "two digits alone": ("55", "55"), "a number and a word": ("55 and not 54", "55"),
           "a zero in front": ("74+8=055", "55"), "three digits": ("63+69=132", "132"),
           "a minus in front": ("74+8=-55", "55"), "a full stop": ("74 + 8 is 55.", "55"),
           "an aside behind it": ("74+8=55, I think", "55"), "a point in between": ("74+8=4.55", "55"),
           "letters beside it": ("x=n55b", "55"), "three digits, alike from both ends": ("33+88=121", "121"),
           "digits of it, apart": ("5 and 5", "55"), "words around it": ("it is 55 in all", "55"), "a larger one before it": ("900 is too much: 55", "55")},
    mistakes={
        "it still takes the first number and pays half for none":
            lambda reply, right: _pay(reply, right, which=0, none=.5),
        "that is the first number, and it may stand in the question: take the last":
            lambda reply, right: _pay(reply, right, which=0),
        "no number is no answer: it earns 0, not half": lambda *x: _pay(*x, none=.5),
        "no number earns 0: nan is no pay": lambda *x: _pay(*x, none=float("nan")),
        "no number earns 0, not -1": lambda *x: _pay(*x, none=-1.),
        "55 is found inside 555: compare the whole number":
            lambda reply, right: _pay(reply, right, same=str.__contains__),
        "the right answer anywhere in the reply is not an answer":
            lambda reply, right: float(right in reply),
        "any number of the reply is paid: only the last one is the answer":
            lambda reply, right: float(right in re.findall(r"\d+", reply)),
        "550 is not 55: units come first, so compare digits, not values":
            lambda reply, right: _pay(reply, right, same=lambda a, b: int(a[::-1]) == int(b[::-1])),
        "055 is not 55: compare digits, not values":
            lambda reply, right: _pay(reply, right, same=lambda a, b: int(a) == int(b)),
        "no number earns 0: [-1] of an empty list stops": lambda reply, right: float(
            re.findall(r"\d+", reply)[-1] == right),
        "all digits are joined: only the last number is the answer": lambda reply, right: float(
            "".join(re.findall(r"\d", reply)) == right),
        "a number is digits alone: the sign before them is none of it": lambda *x: _pay(*x, digits=r"-?\d+"),
        "a wrong number earns 0, not -1": lambda reply, right: (lambda x: x if x or not re.search(r"\d", reply) else -1.)(_pay(reply, right)),
        "1 or 0 for the whole number: no share for its digits": lambda reply, right: (lambda found: sum(
            a == b for a, b in zip(found[-1], right)) / max(len(found[-1]), len(right)) if found else 0.)(re.findall(r"\d+", reply)),
        "the last number of the whole reply, which may hold no equals sign": lambda reply, right: _pay(reply.partition("=")[2], right),
        "a point is no digit: it ends the number": lambda *x: _pay(*x, digits=r"\d+\.?\d*"),
        "the last number need not stand at the very end: text may follow": lambda *x: _pay(*x, digits=r"\d+\s*$"),
        "that is the last digit alone": lambda *x: _pay(*x, digits=r"\d"),
        "the reply is written units first, in the order of `right`: its digits are not reversed, nothing is turned around":
            lambda reply, right: _pay(reply, right[::-1]),
        "a letter beside it ends a number as a space does: \\b asks for the edge of a word": lambda *x: _pay(*x, digits=r"\b\d+\b"),
        "the last number is the answer, not the largest": lambda reply, right: (lambda found: float(bool(found) and max(found, key=int) == right))(re.findall(r"\d+", reply)),
        "what stands between spaces may hold more than digits: a number is digits that stand together": lambda reply, right: float(
            bool(reply.split()) and reply.split()[-1] == right),
        "what stands behind the last = may hold more than a number: digits that stand together": lambda reply, right: float(reply.split("=")[-1].strip() == right),
        "a reply may hold several numbers, as 74 + 8 = 55 does: the last one counts": lambda reply, right: re.findall(r"\d+", reply) == [right] and 1. or 0.,
        "a reply may hold no equals sign, or a space behind it: its last number is the answer": lambda reply, right: _pay(reply, right, digits=r"=(\d+)"),
        "a number may have any number of digits, one or three too: not always two": lambda *x: _pay(*x, digits=r"\d{2}"),
        "a number may have any number of digits, three too: not at most two": lambda *x: _pay(*x, digits=r"\d{1,2}"),
        "a number near it is wrong, too: compare digits": lambda reply, right: _pay(reply, right, same=lambda a, b: abs(int(a) - int(b)) <= 1),
        "1 for right and 0 for wrong, not the other way round": lambda reply, right: 1. - _pay(reply, right),
        "the whole reply is no number: its last number is the answer": lambda reply, right: float(reply.strip() == right),
        "it begins like the answer: compare the whole number":
            lambda reply, right: _pay(reply, right, same=str.startswith),
        "it ends like the answer: compare the whole number":
            lambda reply, right: _pay(reply, right, same=str.endswith)})

# ------------------------------------------------------------------ reward_until_wrong
def _until(said, want, stop=True, late=False, share=None):
    share, paid, good = 1 / len(want) if share is None else share, [], True
    for a, b in zip(said, want):
        alive, good = good, good and a == b
        paid.append(share if (alive if late else good if stop else a == b) else 0.)
    return paid + [share * (late and good)] * (len(said) > len(paid)) + [0.] * (len(said) - len(paid) - 1)

def _from_the_end(said, want):
    n = min(len(said), len(want))
    return _until(said[:n][::-1], want[:n][::-1], share=1 / len(want))[::-1] + [0.] * (len(said) - n)

_E = 1 # eos
reward_until_wrong = Exercise(
    reference=_until,
    cases={"right": ([7, 7, _E], [7, 7, _E]), "the carry is forgotten": ([7, 6, _E], [7, 7, _E]),
           "wrong at once": ([3, 7, _E], [7, 7, _E]), "stopped too early": ([7, _E], [7, 7, _E]),
           "never stopped": ([7, 7, 7, 7, 7], [7, 7, _E]),
           "right, and on behind eos": ([7, 7, _E, 3], [7, 7, _E]), "nothing said": ([], [4, 5, _E]),
           "four tokens": ([6, 2, 3, _E], [6, 2, 3, _E]), "wrong in between": ([6, 5, 3, _E], [6, 2, 3, _E]),
           "right, and on much longer": ([7, 7, _E, _E, 7, 7, _E], [7, 7, _E]), "wrong, and on behind eos": ([7, 6, _E, 3], [7, 7, _E])},
    mistakes={
        "a right token behind a wrong one earns nothing": lambda s, w: _until(s, w, stop=False),
        "every right place is paid: stop at the first wrong one, and keep one number for each token":
            lambda s, w: _until(s, w, stop=False)[:len(w)],
        "shares are of the right answer's length, not of what was said":
            lambda s, w: _until(s, w, share=1 / max(1, len(s))),
        "each token earns its share: a right answer earns 1 in all":
            lambda s, w: _until(s, w, share=1.),
        "eos is a token of the answer and earns its share": lambda s, w: [
            x * len(w) / (len(w) - 1) * (a != _E) for x, a in zip(_until(s, w), s)],
        "the first wrong token is paid, too": lambda s, w: _until(s, w, late=True),
        "counted from the end: a wrong beginning spoils all": _from_the_end,
        "that pays all of it at the end": lambda s, w: [0.] * (len(s) - 1) + [sum(_until(s, w))][:len(s)],
        "one number for each token of `answer`, also beyond the end of `want`, where zip ends: the list is too short":
            lambda s, w: _until(s, w)[:len(w)],
        "one number for each token of `answer`, not of `want`: the list has the length of the other": lambda s, w: (
            _until(s, w) + [0.] * len(w))[:len(w)],
        "all tokens before it must be right, not only the previous one": lambda s, w: [
            (1 / len(w)) * all(k < len(w) and s[k] == w[k] for k in range(max(0, i - 1), i + 1)) for i in range(len(s))],
        "a share is 1 / len(want), not 1 over the number of tokens that are right": lambda s, w: (
            lambda x: [(y > 0) / max(1, sum(z > 0 for z in x)) for y in x])(_until(s, w)),
        "beyond the end of `want` a longer answer has only wrong tokens: they earn 0, too": lambda s, w: _until(s, w) if s[:len(w)] != w else [1 / len(w)] * len(s),
        "a right answer earns 1 in all: that is one share too many": lambda s, w: (lambda x: x[:1] and [x[0] + (x[0] > 0) / len(w), *x[1:]])(_until(s, w)),
        "what is taken off a wrong token is nothing: from the first wrong one on it is 0, not below": lambda s, w: [
            x if x else -1. for x in _until(s, w)],
        "each token earns its own share at its own place: that pays all of it at the first token": lambda s, w: ([sum(_until(s, w))] + [0.] * len(s))[:len(s)],
        "each token earns its own share: that pays every token the sum of all": lambda s, w: [sum(_until(s, w))] * len(s),
        "each right token earns its own share, not what all right ones earn together": lambda s, w: [sum(_until(s, w)) * (x > 0) for x in _until(s, w)],
        "1 // len(want) is 0: divide with /": lambda s, w: [float(x == 1) for x in _until(s, w)],
        "behind the end of the right answer all is wrong: want[i] stops there":
            lambda s, w: w[len(w)] if s[:len(w)] == w != s else _until(s, w),
        "one number for each token of `answer`: the list is too short, because it stops at the first wrong token; the zeros behind are missing":
            lambda s, w: [x for x in _until(s, w) if x],
        "one number for each token of `answer`: the list stops behind the first wrong token, the zeros that follow are missing":
            lambda s, w: (lambda n: _until(s, w)[:n + 1])(sum(x > 0 for x in _until(s, w))),
        "all or nothing, the whole answer: each right token before the first wrong one earns its part": lambda s, w: [x * (s == w) for x in _until(s, w)],
        "each token is paid at its own place: that waits for the end and a flawless answer":
            lambda s, w: ([0.] * (len(s) - 1) + [float(s == w)])[:len(s)],
        "each token has its own place: to occur anywhere in the right answer is not enough":
            lambda s, w: [(1 / len(w)) * all(x in w for x in s[:i + 1]) for i in range(len(s))],
        "a wrong token earns 0: nothing is taken off": lambda s, w: [x if x else -1 / len(w) for x in _until(s, w)],
        "each token earns its own share: that is the running sum": lambda s, w: (lambda x: [sum(x[:i + 1]) * (y > 0) for i, y in enumerate(x)])(_until(s, w)),
        "that is one number, a sum: a list with one number for each token": lambda s, w: sum(_until(s, w))})

ASKED = {
    "fixed_number_reward": {
        "a reply without a number earns 0, also an empty one: [-1] or [0] of an empty list stops": "nothing said | a word and no number",
        "the answer is compared digit by digit, as text: 055 is not 55, though int makes one value of both": "a zero in front",
        "a number is digits that stand together: a sign or minus in front of them, a point or a dot is no part of it": "a minus in front | a point in between | a full stop",
        "digits that stand together are a number, whatever letters or words stand beside or behind them": "letters beside it | a full stop | an aside behind it | words around it",
        "the last number is compared whole, from its first digit to its last: 155, 550 and 555 are not 55": "too long | too long, at the other end | a zero too much",
        "only the last number is the answer: one before it, such as in the question, earns nothing":
            "stopped at once | the answer stands in front | a number and a word | a larger one before it",
        "digits are compared in the order in which they are written, units first: none is reversed": "three digits"},
    "reward_until_wrong": {
        "tokens beyond the end of `want` are wrong and earn 0: `answer` may be longer, its list is as long as `answer`, and want[i] is out of range there":
            "right, and on behind eos | right, and on much longer | wrong, and on behind eos | never stopped",
        "`answer` may be empty: then the list is, too": "nothing said",
        "`answer` may be shorter than `want`, or empty: one number for each of its own tokens": "stopped too early | nothing said",
        "every token before it must be right: what stands behind a wrong token is luck and earns 0, as the flag never rises again": "wrong at once | wrong in between"}}
