"""The second battery is what it says: its right answers agree with one another, its wrong ones with none."""
import warnings
from importlib import import_module
from pathlib import Path
import pytest
import battery_2, battery_7a, battery_7b, battery_7c, battery_8a, battery_8b, battery_8c, battery_inputs as inputs
from rlhf_nb.book.checks import Exercise, grade

@pytest.fixture(scope="module")
def cases(): return inputs.cases()

def same(a, b):
    if a[0] == "error" or b[0] == "error": return a == b
    return inputs.close(a[1], b[1]) and inputs.close(list(a[2]), list(b[2])) and a[3:] == b[3:]

@pytest.mark.parametrize("name", battery_2.WRONG)
def test_right_answers_agree_and_wrong_ones_differ_in_value_gradient_or_what_they_change(name, cases):
    warnings.simplefilter("ignore")
    first, *others = battery_2.RIGHT[name]
    makes = cases[name][::max(1, len(cases[name]) // 12)]
    want = [inputs.does(first, make) for make in makes]
    assert ("error", "another") not in want
    for fn in others: assert all(same(inputs.does(fn, make), w) for make, w in zip(makes, want))
    for words, fn in battery_2.WRONG[name][::8]:
        at = next((i for i, (make, w) in enumerate(zip(makes, want)) if not same(inputs.does(fn, make), w)), None)
        if at is None: at = next((i for i, make in enumerate(cases[name]) if not same(
            inputs.does(fn, make), inputs.does(first, make))), None)
        assert at is not None, f"line {fn.__code__.co_firstlineno}, {words}: it is right on every input"

def test_the_battery_is_as_large_as_it_says_and_serves_every_exercise():
    assert sum(map(len, battery_2.WRONG.values())) >= 600 and sum(map(len, battery_2.RIGHT.values())) >= 110
    assert all(len(battery_2.WRONG[name]) >= 10 and len(battery_2.RIGHT[name]) >= 2 for name in battery_2.WRONG)

BLIND = {"7": [battery_7a, battery_7b, battery_7c], "8": [battery_8a, battery_8b, battery_8c]}   # written without sight of the check
FOUND = {name: x for f in Path(import_module("rlhf_nb.exercises").__file__).parent.glob("[a-z]*.py") if f.stem != "my_rlhf"
         for name, x in vars(import_module(f"rlhf_nb.exercises.{f.stem}")).items() if isinstance(x, Exercise)}

@pytest.mark.parametrize("which, wrong_ones, own, right_ones", [("7", 1_170, 560, 3), ("8", 670, 300, 2)])
def test_a_blind_battery_serves_every_exercise_nearly_half_of_it_in_whole_texts(which, wrong_ones, own, right_ones):
    wrong = {name: m.OWN[name] for m in BLIND[which] for name in m.WRONG}
    assert wrong.keys() == {name for name, x in FOUND.items() if not name.startswith("_")} and min(map(len, wrong.values())) >= 10
    assert sum(map(len, wrong.values())) >= wrong_ones and sum(map(sum, wrong.values())) >= own
    assert all(len(m.SLIPS[name]) == len(m.WRONG[name]) and len(m.RIGHT[name]) >= right_ones for m in BLIND[which] for name in m.WRONG)

@pytest.mark.parametrize("module", BLIND["7"] + BLIND["8"], ids=lambda m: m.__name__)
def test_no_right_answer_of_a_blind_battery_is_refused(module):
    warnings.simplefilter("ignore")
    for name, answers in module.RIGHT.items():
        assert [grade(x, FOUND[name]) for x in answers] == ["right"] * len(answers), name
