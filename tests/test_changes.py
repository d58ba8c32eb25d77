"The search for what was done differently: one change, on all cases, or silence."
import pytest, torch
from dataclasses import dataclass
from torch import tensor
from rlhf_nb.book.changes import find_change, leaf_changes, named_leaves, spoken
from rlhf_nb.book.checks import Exercise, grade, values_match

@pytest.fixture(autouse=True)
def only_this_search(monkeypatch): # the one in an answer's own text has tests of its own
    monkeypatch.setattr("rlhf_nb.exercises.steps.repair", lambda *args: "")

@dataclass(frozen=True)
class Batch:
    mask:torch.Tensor
    beta:float

def cost(logp, ref, batch): return batch.beta * ((logp - ref) * batch.mask).sum(1)
def noise(seed, *size): return torch.randn(*size, generator=torch.Generator().manual_seed(seed))
CASES = {"two rows": (noise(0, 2, 4), noise(1, 2, 4), Batch(tensor([[0, 1, 1, 0], [0, 0, 1, 1]]).bool(), .3)),
         "one row": (noise(2, 1, 5), noise(3, 1, 5), Batch(tensor([[0, 1, 0, 1, 0]]).bool(), 2.)),
         "beta 1": (noise(4, 3, 3), noise(5, 3, 3), Batch(tensor([[0, 1, 1], [0, 1, 0], [1, 1, 1]]).bool(), 1.))}
ASK = Exercise(cost, CASES, {})

@pytest.mark.parametrize("answer, said", [
    (lambda logp, ref, batch: -cost(logp, ref, batch), "the sign of the result is turned; one row: entry [0] got"),
    (lambda logp, ref, batch: cost(logp, ref, batch) / 2, "the result counts half"),
    (lambda logp, ref, batch: cost(logp, ref, batch) * .7, "the result is 0.7 times what it should be"),
    (lambda logp, ref, batch: cost(logp, ref, batch) / batch.mask.sum(1), "the result is divided by the number of True in each row of batch.mask"),
    (lambda logp, ref, batch: cost(logp, ref, batch) / batch.mask.shape[1], "the result is divided by the width of batch.mask"),
    (lambda logp, ref, batch: cost(logp, ref, batch) / batch.beta, "the result is divided by batch.beta"),
    (lambda logp, ref, batch: batch.beta**2 * ((logp - ref) * batch.mask).sum(1), "the result is multiplied by batch.beta"),
    (lambda logp, ref, batch: cost(logp, 0 * ref, batch), "ref is not used: as if it were 0"),
    (lambda logp, ref, batch: batch.beta * ((logp + ref) * batch.mask).sum(1), "the sign of ref is turned"),
    (lambda logp, ref, batch: batch.beta * (logp - ref).sum(1), "batch.mask is not used: all counts"),
    (lambda logp, ref, batch: batch.beta * ((logp - ref) * ~batch.mask).sum(1), "batch.mask is upside down"),
    (lambda logp, ref, batch: batch.beta * ((logp - ref)[:, 1:] * batch.mask[:, :-1]).sum(1), "batch.mask stands one place late, with 0 in front"),
    (lambda logp, ref, batch: batch.beta * ((logp - ref) * (batch.mask & (batch.mask.cumsum(1) > 1))).sum(1),
     "the first True of each row is missing in batch.mask"),
    (lambda logp, ref, batch: batch.beta * ((logp.exp() - ref) * batch.mask).sum(1), "exp of logp is taken"),
    (lambda logp, ref, batch: batch.beta * ((logp - ref).abs() * batch.mask).sum(1), "the absolute value of logp - ref is taken"),
    (lambda logp, ref, batch: batch.beta * ((logp - ref) * batch.mask).amax(1), "amax stands where sum should, in sum((logp - ref) x mask)"),
    (lambda logp, ref, batch: batch.beta * ((logp - ref / 2) * batch.mask).sum(1), "ref counts half"),
    (lambda logp, ref, batch: batch.beta * ((logp - ref)**3 * batch.mask).sum(1), "two rows: entry [0] got")])
def test_a_change_is_said_with_the_smallest_case_and_what_is_none_gets_numbers(answer, said):
    assert grade(answer, ASK).startswith(said), grade(answer, ASK)

def test_a_change_must_fit_where_the_answer_is_right_as_well():
    def not_at_1(logp, ref, batch): return cost(logp, ref, batch) * (1 if batch.beta == 1 else -1)
    assert "sign" not in grade(not_at_1, ASK)

def test_of_two_results_the_wrong_one_is_meant():
    ask = Exercise(lambda *x: dict(a=cost(*x), b=cost(*x) + 1), CASES, {})
    assert grade(lambda logp, ref, batch: dict(a=cost(logp, ref, batch), b=cost(logp, ref.exp(), batch) + 1), ask).startswith(
        "of the result ['b']: exp of ref is taken; ")
    assert grade(lambda logp, ref, batch: dict(a=cost(logp, ref, batch)), ask).startswith("the dict lacks 'b'; ")
    assert grade(lambda logp, ref, batch: dict(a=cost(logp, ref, batch), b=cost(logp, ref, batch) + 1, c=1.), ask).startswith(
        "the dict has a key too many, 'c'; ")

CENTRED = Exercise(lambda x, m: (x * m).cumsum(1), {str(k): (noise(k, 3, 5), noise(k + 1, 3, 5) > -.5) for k in (1, 2)}, {})
@pytest.mark.parametrize("answer, said", [
    (lambda x, m: (lambda y: (y - y.mean()) / y.std())((x * m).cumsum(1)), "the result is whitened: less its mean, over its standard deviation; "),
    (lambda x, m: (lambda y: torch.where(m, (y - y[m].mean()) / y[m].std(), y))((x * m).cumsum(1)),
     "the result is whitened: less its mean, over its standard deviation (of what m holds); "),
    (lambda x, m: (x * m).cumsum(1).clamp(-.5, .5), "the result is cut off below -0.5 and above 0.5; "),
    (lambda x, m: (x / m.sum(1, True) * m).cumsum(1), "the result is divided by the number of True in a row of m; "),
    (lambda x, m: (((x * m).sum(1, True)) * (m & (m.flip(1).cumsum(1).flip(1) == 1))).cumsum(1), "all of x in a row stands at the last True of m; ")])
def test_a_spread_a_bound_and_what_was_moved_have_names(answer, said): assert grade(answer, CENTRED).startswith(said), grade(answer, CENTRED)

def test_groups_read_in_the_wrong_order_a_median_and_two_parts_that_are_exchanged():
    ask = Exercise(lambda x, k: x.view(-1, k).mean(1), {str(k): (noise(k, 12), k) for k in (2, 3, 4)}, {})
    assert grade(lambda x, k: x.view(k, -1).mean(0), ask).startswith("x is read down columns of k, not along rows; ")
    assert grade(lambda x, k: x.view(-1, k).median(1).values, ask).startswith("median stands where mean should, in mean(x); ")
    both = Exercise(lambda x, k: dict(low=x.amin(), high=x.amax(), sum=x.sum()), {str(k): (noise(k, 12), k) for k in (2, 3, 4)}, {})
    assert grade(lambda x, k: dict(low=x.amax(), high=x.amin(), sum=x.sum()), both).startswith("two parts of the result are exchanged, 'low' and 'high'; ")

def test_whole_numbers_are_changed_too():
    def of_group(r, g): return torch.stack([r[g == x].mean() for x in g])
    ask = Exercise(of_group, {str(k): (noise(k, 6), tensor([0, 0, 1, 1, 2, 2])) for k in (1, 2)}, {})
    assert grade(lambda r, g: r.mean().expand(6) * 1, ask).startswith("the mean of ")
    assert grade(lambda r, g: of_group(r, g.roll(1)), ask).startswith("g stands one place late; ")

def test_time_that_runs_backwards():
    x = {"a": (noise(6, 2, 4),), "b": (noise(7, 1, 3),)}
    ask = Exercise(lambda x: x.cumsum(1), x, {})
    assert grade(lambda x: x.flip(1).cumsum(1).flip(1), ask).startswith("it runs along time in the wrong direction; b: ")

def gain(r, advantage, low, high): return -torch.minimum(r * advantage, r.clamp(1 - low, 1 + high) * advantage)
MOVES = {str(k): ((noise(k, 3, 4) / 2).exp(), noise(k + 9, 3, 4), .1 + .1 * k, .3) for k in (1, 2, 3)}
@pytest.mark.parametrize("answer, said", [
    (lambda r, A, e, h: -torch.maximum(r * A, r.clamp(1 - e, 1 + h) * A), "maximum stands where minimum should, in minimum(r x advantage, clamp(r) x advantage)"),
    (lambda r, A, e, h: -torch.minimum(r * A, r.clamp(max=1 + h) * A), "e has no effect: as if there were no limit")])
def test_an_operation_that_differs_is_said_in_its_own_words(answer, said):
    assert said in grade(answer, Exercise(gain, MOVES, {})), grade(answer, Exercise(gain, MOVES, {}))

def test_comparisons_axes_and_curves_are_tried():
    def upto(score): return (score[:, None] >= score).double().sum(-1)
    x = {str(k): (noise(k, 4).round(decimals=0).double(),) for k in (3, 4, 5)}
    assert grade(lambda s: (s[:, None] > s).double().sum(-1), Exercise(upto, x, {})).startswith("score > score stands where score >= score should; ")
    z = {str(k): (noise(k, 3, 5),) for k in (1, 2)}
    ask = Exercise(lambda z: z.log_softmax(-1), z, {})
    assert grade(lambda z: z.log_softmax(0), ask).startswith("log softmax(z) runs over axis 0, not -1; ")
    ask = Exercise(lambda z: torch.nn.functional.softplus(-z), z, {})
    assert grade(lambda z: torch.sigmoid(-z), ask).startswith("sigmoid stands where softplus should, in softplus(-z); ")

def test_luck_is_no_reason():
    "Truth values and single numbers fit something by chance."
    truths = Exercise(lambda x: x > 0, {"a": (tensor([1., -2., 3.]),), "b": (tensor([-1., 4.]),)}, {})
    assert grade(lambda x: x < 0, truths).startswith("a: entry [0] got False, want True")
    one = Exercise(lambda x: x.sum(), {"a": (tensor([1., 2.]),), "b": (tensor([3., 3.]),)}, {})
    assert grade(lambda x: x.sum() * 2, one).startswith("a: got 6, want 3")

def test_leaves_have_paths_that_can_be_said():
    found = named_leaves((Batch(tensor([[True]]), .5), [1, dict(k=2.)]))
    assert [*found] == [(0, "mask"), (0, "beta"), (1, 0), (1, 1, "k")] and found[1, 1, "k"] == 2.
    assert spoken((1, 1, "k"), ["batch", "rest"]) == "rest[1].k" and spoken((2, 0), ["batch"]) == "argument 3[0]"
    layer = torch.nn.Linear(2, 1)
    assert [*named_leaves((layer,))] == [(0, "weight"), (0, "bias")]
    assert leaf_changes(.25)["{} is squared"](.25) == .0625 and leaf_changes("text" == 1) == {}

def two(a, b): return (a * a.detach()).sum() * 3 + b.sum()
W = tensor([1., 2.], requires_grad=True)
@pytest.mark.parametrize("answer, said", [
    (lambda a, b: two(a, b.detach()), "no gradient reaches b; "), (lambda a, b: (a * a).sum() * 3 + b.sum(), "the gradient of a is 2 times what it should be; "),
    (lambda a, b: (a.detach()**2).sum() * 3 + b.sum().detach(), "no gradient flows back"),
    (lambda a, b: two(a, b.detach() + (b - b.detach())**2), "no gradient reaches b; "),
    (lambda a, b: (a.detach()**2).sum() * 3 + (a - a.detach()) @ tensor([7., 1.]) + b.sum(), "the gradient of a is not right; ")])
def test_a_gradient_is_wrong_for_an_argument(answer, said):
    assert grade(answer, Exercise(two, {"two": (W, W.detach().clone().requires_grad_())}, {})).startswith(said)

def test_a_gradient_that_data_should_not_get():
    ask = Exercise(lambda a, b: (a * b.detach()).sum(), {"two": (W, W.detach().clone().requires_grad_())}, {})
    assert grade(lambda a, b: (a * b).sum(), ask).startswith("a gradient flows into b, which is data: detach it; ")

@pytest.mark.parametrize("answer, said", [
    (lambda x, k: x.topk(9).values, "topk asks for more entries than the axis has (given x (2 3), k 2)"),
    (lambda x, k: [].pop(-1) if k == 0 else [1][k], "an index is larger than the list or axis; of nothing even [0] and [-1] are (given x (2 3), k 2)"),
    (lambda x, k: x + torch.ones(4), "two sizes do not go together (given x (2 3), k 2)"),
    (lambda x, k: x if x > 0 else -x, "`if`, `and`, `or`, `not` take one truth value"),
    (lambda x, k: x.masked_fill(torch.ones(2, 3).long(), 0.), "a mask holds whole numbers"),
    (lambda x, k: x * None, "None is used as a value"), (lambda x, k: x / (1 / 0), "a number or a length is 0"),
    (lambda x, k: max([]), "something is empty"), (lambda x, k: torch.stack([]), "something is empty"),
    (lambda x, k: no_such(x), "no cell above defines this name"), (lambda x: x, "the arguments are those of the stub, in its order")])
def test_an_error_says_what_it_means_and_what_was_given(answer, said):
    verdict = grade(answer, Exercise(lambda x, k: x * k, {"six": (torch.ones(2, 3), 2)}, {}))
    assert verdict.startswith("six: stopped with ") and f", because {said}" in verdict, verdict

def test_nan_is_traced_to_what_held_it():
    x = tensor([[1., torch.nan], [3., 4.]])
    mask = tensor([[True, False], [True, True]])
    ask = Exercise(lambda x, mask: x.masked_fill(~mask, 0.), {"a pad": (x, mask), "none": (x.nan_to_num(2.), mask)}, {})
    assert grade(lambda x, mask: x * mask, ask).startswith("nan of x gets through, since 0 times nan is nan: choose with where or masked_fill; a pad")
    ask = Exercise(lambda x: x * 0, {"zero": (torch.zeros(2),)}, {})
    assert grade(lambda x: x / x, ask).startswith("nan comes from 0/0, inf - inf or the log of what is below 0; zero: ")

def test_a_search_leaves_the_cases_as_they_were():
    "A reference that writes into zeros of its own would write into the case, were `zeros_like` left out."
    def others(reward):
        out = torch.zeros_like(reward)
        for i in range(len(reward)): out[i] = reward[i] - (reward.sum() - reward[i]) / (len(reward) - 1)
        return out
    cases = {"four": (tensor([1., 0., 5., 7.]),), "three": (tensor([2., 9., 4.]),)}
    grade(lambda reward: reward.cos() * 3, Exercise(others, cases, {}))
    assert [x.tolist() for x, in cases.values()] == [[1., 0., 5., 7.], [2., 9., 4.]]

def test_a_single_number_among_many_is_explained_and_alone_it_is_not():
    def both(x): return {"rows": x * 2, "n": x.sum()}
    for wide in (12, 2):
        verdict = grade(lambda x: both(x) | {"n": -x.sum()}, Exercise(both, {"one": (noise(0, wide),)}, {}))
        assert "'n'" in verdict and ("sign of the result is turned" in verdict) == (wide == 12), verdict
