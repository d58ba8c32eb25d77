"Exercises of the chapter on a model of one's own."
import re
from rlhf_nb.book.checks import Exercise

def _graded(responses, answer, which=-1, size=lambda text: len(text.split()), long=.5, right=None, short=int.__le__):
    rewards = []
    for text, wanted in zip(responses, answer):
        found = re.findall(r"\d+", text) or [""]
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
           "twelve words, one with a hyphen": (["?"], ["well-known a b c d e f g h i j 5"], [5])},
    mistakes={name: (lambda wrong: lambda prompts, responses, answer: wrong(responses, answer))(wrong) for name, wrong in {
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
        "turned round: the short one earns 1": lambda r, a: _graded(r, a, short=int.__gt__),
        "10 and \"10\" are not equal in Python: compare text with text":
            lambda r, a: _graded(r, a, right=lambda text, wanted: (re.findall(r"\d+", text) or [""])[-1] == wanted)}.items()})

ASKED = {
    "short_right": {
        "a wrong answer earns 0, however long or short it is": "long and wrong",
        "a response without a number is wrong: it earns 0": "no number"}}
