"Wrong answers to the exercise of the chapter on a model of one's own."
import re

def numbers(text): return re.findall(r"\d+", text)
def worth(text): return 1. if len(text.split()) <= 12 else .5
def first(prompts, responses, answer):
    return [worth(x) if numbers(x)[:1] == [str(y)] else 0. for x, y in zip(responses, answer)]
def anywhere(prompts, responses, answer):
    return [worth(x) if str(y) in x else 0. for x, y in zip(responses, answer)]
def one_for_all(prompts, responses, answer):
    found = right_list(prompts, responses, answer)
    return sum(found) / max(1, len(found))
def stops(prompts, responses, answer):
    return [worth(x) if numbers(x)[-1] == str(y) else 0. for x, y in zip(responses, answer)]
def pays_for_brevity(prompts, responses, answer):
    return [.5 * (numbers(x)[-1:] == [str(y)]) + .5 * (len(x.split()) <= 12) for x, y in zip(responses, answer)]
def letters(prompts, responses, answer):
    return [(1. if len(x) <= 12 else .5) if numbers(x)[-1:] == [str(y)] else 0. for x, y in zip(responses, answer)]
def below_twelve(prompts, responses, answer):
    return [(1. if len(x.split()) < 12 else .5) if numbers(x)[-1:] == [str(y)] else 0. for x, y in zip(responses, answer)]
def nothing_for_long(prompts, responses, answer):
    return [float(numbers(x)[-1:] == [str(y)] and len(x.split()) <= 12) for x, y in zip(responses, answer)]
def any_length(prompts, responses, answer): return [float(numbers(x)[-1:] == [str(y)]) for x, y in zip(responses, answer)]
def of_two_kinds(prompts, responses, answer):
    return [worth(x) if numbers(x)[-1:] == [y] else 0. for x, y in zip(responses, answer)]

def right_list(prompts, responses, answer):
    found = []
    for i, text in enumerate(responses):
        last = None
        for m in re.finditer("[0-9]+", text): last = int(m[0])
        found.append(0. if last != int(answer[i]) else 1. - .5 * (len(text.split()) > 12))
    return found
def right_short(prompts, responses, answer):
    return [worth(x) * (([None] + [int(n) for n in numbers(x)])[-1] == int(y)) for x, y in zip(responses, answer)]

RIGHT = {"short_right": [right_list, right_short]}
WRONG = {"short_right": [
    ("the *last* number is the answer, the first may repeat the question", first),
    ("the answer somewhere in the text is not enough: 2 is in 12", anywhere),
    ("one number for each response, not one for all", one_for_all),
    ("a response without a number earns 0, and must not stop the run", stops),
    ("a short answer that is wrong earns nothing: else the policy learns to be short", pays_for_brevity),
    ("letters are counted, not words", letters),
    ("twelve words are still short", below_twelve),
    ("a long right answer earns .5, not 0", nothing_for_long),
    ("length is not looked at", any_length),
    ("10 and \"10\" are not equal in Python: compare text with text", of_two_kinds)]}
