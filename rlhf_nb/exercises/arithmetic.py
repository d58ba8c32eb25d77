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
           "an aside behind it": ("74+8=55, I think", "55")},
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
    return paid + [0.] * (len(said) - len(paid))

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
           "four tokens": ([6, 2, 3, _E], [6, 2, 3, _E]), "wrong in between": ([6, 5, 3, _E], [6, 2, 3, _E])},
    mistakes={
        "a right token behind a wrong one earns nothing": lambda s, w: _until(s, w, stop=False),
        "every right place is paid: stop at the first wrong one, and keep one number per token":
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
        "one number per token that was said, also behind the end of the right answer":
            lambda s, w: _until(s, w)[:len(w)],
        "behind the end of the right answer all is wrong: want[i] stops there":
            lambda s, w: w[len(w)] if s[:len(w)] == w != s else _until(s, w),
        "it stops at the first wrong token: keep one number per token that was said":
            lambda s, w: [x for x in _until(s, w) if x],
        "that pays a flawless answer only": lambda s, w: [x * (s == w) for x in _until(s, w)],
        "each token is paid at its own place: that waits for the end and a flawless answer":
            lambda s, w: ([0.] * (len(s) - 1) + [float(s == w)])[:len(s)],
        "each token has its own place: to occur anywhere in the right answer is not enough":
            lambda s, w: [(1 / len(w)) * all(x in w for x in s[:i + 1]) for i in range(len(s))],
        "a wrong token earns 0: nothing is taken off": lambda s, w: [x if x else -1 / len(w) for x in _until(s, w)],
        "each token earns its own share: that is the running sum": lambda s, w: (lambda x: [sum(x[:i + 1]) * (y > 0) for i, y in enumerate(x)])(_until(s, w)),
        "that is one number: keep one per token": lambda s, w: sum(_until(s, w))})
