"Exercises of the chapter on data."
import re
from functools import partial
from rlhf_nb.checks import Exercise

# ---- a conversation in one string

ROLES = {"Human": "user", "Assistant": "assistant"}

def _chat(text, roles=ROLES, colons=1, turn="\n\n", strip=False, colon=": ", skip=1):
    chat = []
    for part in text.split(turn)[skip:]:
        who, content = part.split(colon, colons)[:2]
        chat.append(dict(role=roles.get(who, who), content=content.strip() if strip else content))
    return chat

def _pieces(text): # every part of a content is a turn of its own
    return [dict(role=ROLES.get(p.split(": ")[0], "user"), content=p.split(": ")[-1])
            for p in text.split("\n\n")[1:]]

def _mentions(text): # any mention of a name begins a turn
    parts = re.split(r"\s*(Human|Assistant): ", text)[1:]
    return [dict(role=ROLES[who], content=content) for who, content in zip(parts[::2], parts[1::2])]

def _stripped(text):
    if not text: raise ValueError("no turn in it")
    return _chat(text, strip=True)

from_string = Exercise(
    reference=_chat,
    cases={"one exchange": ("\n\nHuman: Hi.\n\nAssistant: Hello!",),
           "a colon in the content": ("\n\nHuman: What time is it?\n\nAssistant: It is 10:30.",),
           "a colon and a space": ("\n\nHuman: Finish: one, two\n\nAssistant: So: three",),
           "two exchanges": ("\n\nHuman: A.\n\nAssistant: B.\n\nHuman: C.\n\nAssistant: D.",),
           "spaces that belong to it": ("\n\nHuman:  x \n\nAssistant: y\n z",),
           "a name is mentioned": ("\n\nHuman: I said Human: hi\n\nAssistant: Oh",),
           "nothing": ("",)},
    mistakes={
        "split at the first colon only": lambda t: _chat(t, colons=-1),
        "the roles are user and assistant": lambda t: _chat(t, roles={}),
        "the roles are swapped": lambda t: _chat(
            t, roles={"Human": "assistant", "Assistant": "user"}),
        "a turn begins after an empty line, not after each line end":
            lambda t: _chat(t.replace("\n\n", "\n"), turn="\n"),
        "nothing may be stripped: spaces and line ends belong to the content":
            lambda t: _chat(t, strip=True),
        "two things: nothing may be stripped, and an empty text has no turns": _stripped,
        "one space belongs to the mark, after the colon": lambda t: _chat(t, colon=":"),
        "before the first empty line there is nothing: that part is no turn":
            lambda t: _chat(t, skip=0),
        "the first turn is missing": lambda t: _chat(t, skip=2),
        "a name inside the content begins no turn": _mentions,
        "the content begins after the first colon, not after the last": _pieces})

# ---- annotators who disagree

def _contested(rows, seen=lambda rows, i: rows):
    return sum((p, b, a) in seen(rows, i) for i, (p, a, b) in enumerate(rows))

def _any_order(rows):
    sets = [(p, frozenset((a, b))) for p, a, b in rows]
    return sum(sets.count(x) > 1 for x in sets)

contested = Exercise(
    reference=_contested,
    cases={"two who disagree": ([("p", "a", "b"), ("p", "b", "a"), ("q", "a", "b")],),
           "the same row twice, and its opposite": (
               [("p", "a", "b"), ("p", "b", "a"), ("q", "a", "b"), ("q", "b", "c"), ("p", "a", "b")],),
           "agreed twice": ([("p", "a", "b"), ("p", "a", "b"), ("p", "a", "c")],),
           "opposite answers to other prompts": ([("p", "a", "b"), ("q", "b", "a")],),
           "two prompts": ([("p", "a", "b"), ("p", "b", "a"), ("q", "c", "d"), ("q", "d", "c")],),
           "nothing": ([],), "four rows of one pair": (
               [("p", "a", "b"), ("p", "b", "a"), ("p", "b", "a"), ("p", "b", "a")],)},
    mistakes={
        "count both rows of an opposite pair": lambda r: _contested(r, lambda r, i: r[:i]),
        "count both rows: the earlier ones were never compared with what follows":
            lambda r: _contested(r, lambda r, i: r[i + 1:]),
        "rows that occur twice count twice": lambda r: _contested(list(set(r))),
        "the prompt must be the same": lambda r: _contested([("", a, b) for _, a, b in r]),
        "those are repetitions: the opposite has its answers in the other order":
            lambda r: sum(r.count(row) > 1 for row in r),
        "those are repetitions too: the order of the answers matters": _any_order,
        "rows, not pairs of rows": lambda r: _contested(r) // 2,
        "rows, not prompts": lambda r: len({p for p, a, b in r if (p, b, a) in r}),
        "that is whether, not how many": lambda r: _contested(r) > 0})

# ---- the clinic: pairs that are cut until they are equal

def _side(prompt, answer, max_length, longest, least=4, tail=True, ends=True):
    n = min(len(prompt), max(max_length - longest, max_length // least))
    kept = prompt[len(prompt) - n:] if tail else prompt[:n]
    left = max_length - n
    return kept + (answer[:left] if ends else answer[max(0, len(answer) - left):])

def _cut(prompt, chosen, rejected, max_length, side=_side, drop=True):
    longest = max(len(chosen), len(rejected))
    pair = tuple(side(prompt, answer, max_length, longest) for answer in (chosen, rejected))
    return None if drop and pair[0] == pair[1] else pair

def _end_off(prompt, answer, max_length, longest): return (prompt + answer)[:max_length]

_p = list(range(10, 22))                                                   # 12 tokens
fixed_pair = Exercise(
    reference=_cut,
    cases={"all fits": ([1, 2, 3], [4, 5, 9], [6, 9], 16),
           "a long prompt": (_p, [4, 5, 9], [6, 7, 8, 9], 12),
           "a prompt that alone fills max_length": (_p, [4, 5, 9], [6, 9], 12),
           "both are long": (_p, [4, 5, 6, 7, 8, 9], [4, 7, 7, 7, 7, 7, 9], 8),
           "only the ends differ": (_p, [4, 4, 4, 4, 4, 5, 9], [4, 4, 4, 4, 4, 6, 9], 5),
           "an empty answer": (_p, [], [6, 6, 9], 8), "equal from the start": ([1], [4, 9], [4, 9], 8)},
    mistakes={
        "it still cuts the end off, and with a long prompt both sides are equal":
            lambda *a: _cut(*a, side=_end_off),
        "it still cuts the end off; equal pairs are kept":
            lambda *a: _cut(*a, side=_end_off, drop=False),
        "cut the start off, but of the prompt only, and no more than its part":
            lambda *a: _cut(*a, side=lambda p, x, max_length, longest: (p + x)[-max_length:]),
        "a pair whose rows are equal gives None": lambda *a: _cut(*a, drop=False),
        "the prompt loses its start: the question comes last":
            lambda *a: _cut(*a, side=partial(_side, tail=False)),
        "both answers keep the same prompt: leave tokens for the longer one":
            lambda *a: _cut(*a, side=lambda p, x, max_length, longest: _side(p, x, max_length, len(x))),
        "a quarter of max_length stays with the prompt": lambda *a: _cut(*a, side=partial(_side, least=99)),
        "a quarter of max_length, not half of it": lambda *a: _cut(*a, side=partial(_side, least=2)),
        "an answer loses its end, not its start": lambda *a: _cut(*a, side=partial(_side, ends=False))})
