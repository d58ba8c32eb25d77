"What one change of an answer's own code mends is said, with its line; what fits by luck is not."
import pytest, torch
from rlhf_nb.book.checks import Exercise, grade, record_call, values_match
from rlhf_nb.exercises.mend import advice, find_mend, switches_off

def noise(seed, *shape): return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))

SUMS = Exercise(lambda x: x.flip(-1).cumsum(-1).flip(-1), {str(k): (noise(k, 2, k),) for k in (2, 3, 4, 5)}, {})
def from_the_end(x): # a loop, where the reference has none
    total, out = torch.zeros(len(x)), []
    for i in reversed(range(x.shape[1])):
        total = x[:, i] - total
        out.insert(0, total)
    return torch.stack(out, 1)

def test_the_line_of_a_loop_that_mends_an_answer_is_said():
    assert grade(from_the_end, SUMS).startswith("one change makes yours right: x + total in place of x - total (line 4); 2: entry [0, 0] got ")

WORDS = Exercise(lambda words: [len(w) for w in words], {"none": ([],), **{w: (w.split(),) for w in ("a b", "abc", "ab c def", "d ef", "abcd")}}, {})
def longest_first(words):
    found = []
    for w in words:
        n = 0
        while n < len(w) - 1: n += 1
        found.append(n)
    return found

def test_code_that_a_change_makes_endless_costs_no_verdict():
    calls, wants = [{k: record_call(f, args) for k, args in WORDS.cases.items()} for f in (longest_first, WORDS.reference)]
    wrong = [k for k in calls if calls[k] != wants[k]]
    said = find_mend(longest_first, WORDS.reference, WORDS.cases, calls, wants, wrong, ["words"], record_call, values_match, dict)
    assert isinstance(said, tuple)                                    # n += 0 and n >= 0 never end

def test_what_fits_the_cases_alone_is_not_said():
    cases = {str(k): (torch.tensor([2., 2., k / 4]), 2.) for k in range(5)}     # twos: b + b, b x b, b ^ b
    ask = Exercise(lambda a, b: a.sum() + b + b, cases, {})
    def product(a, b): return a.sum() + b * b * a[0]
    said = grade(product, ask)
    assert "one change" not in said and "two changes" not in said, said

@pytest.mark.parametrize("words, said", [
    ("a + b stands where a - b should", "a + b in place of a - b"), ("the sign of b is turned: a - b stands where a + b should", "a - b in place of a + b"),
    ("b is missing in a x b: only a is there", "only a in place of a x b: b is too much"), ("clamp is missing: x stands there as it is", "x as it is: clamp is too much"),
    ("γ is not used: as if it were 1", "1 in place of γ"), ("no gradient flows through x: it is detached", "x is detached")])
def test_what_a_change_does_is_said_as_advice(words, said): assert advice(words) == said

def test_a_comparison_that_never_holds_is_no_advice():
    assert switches_off("a = 0 stands where a < 0 should") and switches_off("t >= 0 stands where t = 0 should")
    assert not switches_off("a <= 0 stands where a < 0 should")

def test_one_value_wherever_another_is_right_is_said():
    cases = {w: ([w, w + "b", "b"],) for w in ("a", "bab", "cc", "b")}
    ask = Exercise(lambda words: [1. if w == "b" else 0. for w in words], cases, {})
    def fined(words): return [float(len(w) == 1 and w > "a" and w < "c") * 2 - 1 for w in words]
    assert grade(fined, ask).startswith("-1 comes back wherever 0 is right; ")

def test_an_argument_that_a_call_leaves_at_its_default_is_named():
    def clipped(x, most=.2): return x.clamp(-most, most)
    cases = {str(k): (noise(k, 6), .1 * k) for k in range(1, 6)}
    ask = Exercise(lambda x, most: clipped(x * 2, most), cases, {})
    def forgot(x, most): return clipped(x * 2)
    assert "most is not passed to clipped, which takes its default, 0.2" in grade(forgot, ask)

def test_both_ways_at_once_are_seen():
    cases = {str(k): (noise(k, 5), noise(k + 9, 5)) for k in range(4)}
    ask = Exercise(lambda p, q: (p.exp() * (p - q)).sum(), cases, {})
    def both(p, q): return ((p.exp() * (p - q)).sum() + (q.exp() * (q - p)).sum()) / 2
    assert grade(both, ask).startswith("the mean of the right result and of what comes out if p and q are exchanged")
