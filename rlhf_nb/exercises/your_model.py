"Exercises of the chapter on a model of one's own."
import re
from rlhf_nb.book.checks import Exercise

def _graded(responses, answer, which=-1, size=lambda text: len(text.split()), long=.5, right=None, short=int.__le__, digits=r"\d+"):
    rewards = []
    for text, wanted in zip(responses, answer):
        found = re.findall(digits, text) or [""]
        good = (right or (lambda text, wanted: found[which] == str(wanted)))(text, wanted)
        rewards.append((1. if short(size(text), 12) else long) if good else 0.)
    return rewards

_long = "If you add three to seven, one after the other, then the sum is"     # 14 words
short_right = Exercise(
    reference=lambda prompts, responses, answer: _graded(responses, answer),
    cases={"right, wrong, long": (["7 + 3?"] * 3, ["7 + 3 = 10", "7 + 3 = 11", f"{_long} 10"], [10, 10, 10]),
           "no number": (["?", "?"], ["I do not know.", "4"], [4, 4]), "an empty answer": (["?"], [""], [4]),
           "the answer comes first": (["10 + 1?"], ["10 plus 1 is 12"], [10]), "answers as text": (["?", "?"], ["5", "It is 6."], ["5", "7"]),
           "a part of a number": (["?"], ["It is 12"], [2]), "long and wrong": (["?"], [f"{_long} 9"], [10]),
           "twelve words": (["?"], ["a b c d e f g h i j k 5"], [5]), "thirteen": (["?"], ["a b c d e f g h i j k l 5"], [5]),
           "few long words": (["?"], ["Incontrovertibly, unquestionably, indisputably and incontestably 8"], [8]), "nobody asked": ([], [], []),
           "two questions": (["3 + 4?", "5 + 4?"], ["7", "9"], [7, 9]), "a full stop": (["?"], ["It is 5."], [5]),
           "twelve words, one with a hyphen": (["?"], ["well-known a b c d e f g h i j 5"], [5]),
           "signs between spaces": (["?"], ["1 + 2 + 3 + 4 + 5 + 6 = 21"], [21]), "two spaces": (["?"], ["a  b  c  d  e  f  g  5"], [5]),
           "a long question": ([f"{_long} what? Please say it in a word or two"], ["10"], [10]), "much longer": (["?"], [f"{_long} {_long} {_long} 10"], [10]),
           "a number behind words": (["?"], ["It is 7 I think"], [7]), "a larger number before it": (["?"], ["Not 9 but 5"], [5]), "a number in the middle, another at the end": (["?"], ["5 or 6 or 9"], [6]),
           "fourteen, three of them without letters": (["?"], ["a b c d e f g h i j k = 5 !"], [5]), "a hundred": (["?", "?"], ["It is 100", "1000"], [100, 100]), "answers of two kinds": (["?", "?"], ["5", "7"], ["5", 7])},
    mistakes={
        "words of the response count, not of its prompt": lambda p, r, a: [x and (1. if len(q.split()) <= 12 else .5) for q, x in zip(p, _graded(r, a))],
        "words of the response count, not of its prompt and response together": lambda p, r, a: [
            x and (1. if len(f"{q} {text}".split()) <= 12 else .5) for q, text, x in zip(p, r, _graded(r, a))],
    } | {name: (lambda wrong: lambda prompts, responses, answer: wrong(responses, answer))(wrong) for name, wrong in {
        "the *last* number is the answer, the first may repeat the question": lambda r, a: _graded(r, a, which=0),
        "the answer somewhere in the text is not enough: 2 is in 12":
            lambda r, a: _graded(r, a, right=lambda text, wanted: str(wanted) in text),
        "one number for each response, not one for all": lambda r, a: sum(_graded(r, a)) / max(len(r), 1),
        "a response without a number earns 0, and must not stop the run":
            lambda r, a: _graded(r, a, right=lambda text, wanted: re.findall(r"\d+", text)[-1] == str(wanted)),
        "a short answer that is wrong earns nothing: else the policy learns to be short":
            lambda r, a: [max(x, .5 * (len(text.split()) <= 12)) for x, text in zip(_graded(r, a), r)],
        "letters are counted, not words": lambda r, a: _graded(r, a, size=len),
        "twelve words are still short": lambda r, a: _graded(r, a, short=int.__lt__),
        "a long right answer earns .5, not 0": lambda r, a: _graded(r, a, long=0.),
        "length is not looked at": lambda r, a: _graded(r, a, long=1.),
        "any number of the response is paid: only the last one is its answer": lambda r, a: _graded(
            r, a, right=lambda text, wanted: str(wanted) in re.findall(r"\d+", text)),
        "each response has its own answer: the first one is read for all": lambda r, a: _graded(r, [*a[:1]] * len(r)),
        "the end of a longer number is not the number: digits that stand together, compared whole": lambda r, a: _graded(
            r, a, right=lambda text, wanted: (re.findall(r"\d+", text) or [""])[-1].endswith(str(wanted))),
        "the end of the text is not the last number: a dot or words may follow, and 2 is the end of 12": lambda r, a: _graded(
            r, a, right=lambda text, wanted: text.rstrip(". ").endswith(str(wanted))),
        "the end of the text is not the last number: a dot or words may follow, and 2 is the end of 12, whose digits stand together": lambda r, a: _graded(
            r, a, right=lambda text, wanted: text.endswith(str(wanted))),
        "one number for each response: one without a number is skipped, and the list is too short": lambda r, a: [
            x for x, text in zip(_graded(r, a), r) if re.search(r"\d", text)],
        "words are what stands between spaces: a sign such as + or = is a word, a hyphen splits none": lambda r, a: _graded(r, a, size=lambda text: len(re.findall(r"\w+", text))),
        "words are what stands between spaces, with or without letters": lambda r, a: _graded(r, a, size=lambda text: len(re.findall(r"[A-Za-z]+", text))),
        "words are what stands between spaces: split() without an argument makes no empty words of two spaces": lambda r, a: _graded(
            r, a, size=lambda text: len(text.split(" "))),
        "twelve words are short, and spaces are one fewer than words: that counts spaces": lambda r, a: _graded(r, a, size=lambda text: text.count(" ")),
        "a dot or point is no digit: a number is digits that stand together": lambda r, a: _graded(r, a, digits=r"\d+\.?\d*"),
        "one digit is not the number: digits that stand together": lambda r, a: _graded(r, a, digits=r"\d"),
        "beyond twelve words it is half at once, a fixed .5, not gradually less": lambda r, a: [
            x and min(1., 12 / max(1, len(text.split()))) for x, text in zip(_graded(r, a, long=1.), r)],
        "beyond twelve words it is half at once, a fixed .5, however long: not less with each word": lambda r, a: [
            x and (1. if len(text.split()) <= 12 else 6 / len(text.split())) for x, text in zip(_graded(r, a, long=1.), r)],
        "at most 12 words are short: thirteen are longer": lambda r, a: _graded(r, a, short=lambda n, most: n <= most + 1),
        "the number alone is not asked for: words may stand beside it, and the last number counts": lambda r, a: _graded(r, a, right=lambda text, wanted: text.strip() == str(wanted)),
        "the last word is not the last number: a dot may stand behind it, or words: digits that stand together": lambda r, a: _graded(
            r, a, right=lambda text, wanted: text.split()[-1:] == [str(wanted)]),
        "it begins like the number: digits that stand together are compared whole": lambda r, a: _graded(
            r, a, right=lambda text, wanted: (re.findall(r"\d+", text) or [""])[-1].startswith(str(wanted))),
        "one number for each response: a wrong one keeps its place with 0, or the list is too short": lambda r, a: [x for x in _graded(r, a) if x],
        "wrong earns 0: nothing is taken off": lambda r, a: [x or -1. for x in _graded(r, a)],
        "answers may be text: \"10\" is turned into a number before it is compared with one, or both into text": lambda r, a: _graded(
            r, a, right=lambda text, wanted: [int(x) for x in re.findall(r"\d+", text)][-1:] == [wanted]),
        "the last number counts, not the largest": lambda r, a: _graded(r, a, right=lambda text, wanted: max(re.findall(r"\d+", text), key=int, default="") == str(wanted)),
        "one number for each response, a list, not their sum": lambda r, a: sum(_graded(r, a)),
        "turned round: the short one earns 1": lambda r, a: _graded(r, a, short=int.__gt__),
        "10 and \"10\" are not equal in Python: compare text with text":
            lambda r, a: _graded(r, a, right=lambda text, wanted: (re.findall(r"\d+", text) or [""])[-1] == wanted)}.items()})

ASKED = {
    "short_right": {
        "a wrong answer earns 0, however long or short it is": "long and wrong",
        "a response without a number is wrong: it earns 0, and keeps its place in the list; [-1] of an empty list stops": "no number | an empty answer",
        "answers come from a file: they are numbers or text, so compare text with text, str(answer)": "answers as text | answers of two kinds",
        "no responses, as in an empty batch: the list is empty, too": "nobody asked",
        "a number is digits that stand together: a full stop, a dot or words behind it are no part of it": "a full stop | a number behind words",
        "the whole last number is compared, digits that stand together: 2 is only a part of 12, 100 of 1000": "a part of a number | a hundred",
        "only the last number is the answer: a right one before it, anywhere else, earns nothing": "the answer comes first | a number in the middle, another at the end | a larger number before it",
        "words are what stands between spaces: a sign is one, a hyphen splits none, and two spaces make no empty word":
            "twelve words, one with a hyphen | signs between spaces | two spaces | few long words",
        "at most 12 words: twelve are still short, and thirteen are longer": "twelve words | thirteen | twelve words, one with a hyphen | signs between spaces",
        "words of the response count, not of its prompt": "a long question",
        "each response has its own answer": "two questions"}}
