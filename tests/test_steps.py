"""The search in a reference's steps: a twin that does the same, one step done otherwise, two, a formula; or the place of a difference."""
import pytest, torch
from torch import tensor
from rlhf_nb.book.checks import Exercise, grade, record_call, values_match
from rlhf_nb.exercises import best_policy, grpo, kl, ppo, qlearning, tools
from rlhf_nb.exercises.otherwise import all_changes
from rlhf_nb.exercises.twin import Steps

@pytest.fixture(autouse=True)
def only_this_search(monkeypatch): # the one in an answer's own text has tests of its own
    monkeypatch.setattr("rlhf_nb.exercises.steps.repair", lambda *args: "")

def noise(seed, *size): return torch.randn(*size, generator=torch.Generator().manual_seed(seed))

@pytest.mark.parametrize("exercise", [ppo.gae, ppo.ppo_loss, qlearning.bellman_targets, qlearning.q_loss, best_policy.best_of_n_policy, tools.turn_advantages,
                                      grpo.loss_weights, tools.majority_vote])
def test_a_twin_does_what_its_reference_does_gradients_and_errors_too(exercise):
    steps = Steps(exercise.reference)
    for args in exercise.cases.values():
        want, got = record_call(exercise.reference, args), record_call(lambda *a: steps.run(a), args)
        assert want.error == got.error and values_match([got.out, got.gradients], [want.out, want.gradients]) and want.mutated == got.mutated
    assert len(steps.steps) > 10

def discounted(reward, mask, gamma=.9): # (b t)
    total, out = torch.zeros_like(reward[:, 0]), []
    for i in reversed(range(reward.shape[1])):
        total = torch.where(mask[:, i], reward[:, i] + gamma * total, total)
        out.append(total.masked_fill(~mask[:, i], 0.))
    return torch.stack(out[::-1], 1)

def case(seed, b, t, *gamma): return noise(seed, b, t).double().requires_grad_(), noise(seed + 9, b, t) > -.6, *gamma
ASK = Exercise(discounted, {"three rows": case(0, 3, 5, .5), "two rows": case(1, 2, 4, .8), "no gamma given": case(2, 2, 4)}, {})

def loop(reward, mask, gamma=.9, add=lambda r, g, total: r + g * total, keep=lambda x, m: x.masked_fill(~m, 0.), step=torch.where):
    total, out = torch.zeros_like(reward[:, 0]), []
    for i in reversed(range(reward.shape[1])):
        total = step(mask[:, i], add(reward[:, i], gamma, total), total)
        out.append(keep(total, mask[:, i]))
    return torch.stack(out[::-1], 1)

@pytest.mark.parametrize("answer, said", [
    (lambda r, m, g=.5: loop(r, m, g), "the default of g is 0.5: 0.9 is asked for; no gamma given: "),
    (lambda r, m, g=.9: loop(r, m, g).sum(1), "one number for each row comes back"), (lambda r, m, g=.9: loop(r, m, g)[m], "one flat row comes back"),
    (lambda r, m, g=.9: loop(r, m, g, add=lambda r, g, t: r - g * t), "reward - gamma x total stands where reward + (gamma x total) should; "),
    (lambda r, m, g=.9: loop(r, m, g, keep=lambda x, m: x), "where m is False, 0 is wanted; "),
    (lambda r, m, g=.9: loop(r, m, g, add=lambda r, g, t: r.detach() + g * t), "no gradient flows"),
    (lambda r, m, g=.9: loop(r, m, g, add=lambda r, g, t: (1 - g) * r + g * t), "total is multiplied by 1 - gamma"),
    (lambda r, m, g=.9: loop(r, m, g, add=lambda r, g, t: r - (g + t)), "two slips: ")])
def test_one_step_done_otherwise_is_said_in_words(answer, said): assert said in grade(answer, ASK), grade(answer, ASK)

def test_what_is_another_formula_is_written_down_and_what_is_none_is_not_named():
    x = {str(k): (noise(k, 3, 4), noise(k + 5, 3, 4)) for k in (1, 2)}
    ask = Exercise(lambda a, b: (a - b).exp() * a, x, {})
    assert grade(lambda a, b: a.exp() / b, ask).startswith("what comes back is exp of a / b; ")
    assert grade(lambda a, b: torch.erf(a) + b.cos(), ask).startswith("1: entry [0, 0] got ")

def test_without_source_the_operations_are_searched():
    space = dict(torch=torch)
    exec("def ask(a, b): return torch.minimum(a * b, b)", space)
    x = {str(k): (noise(k, 3, 4), noise(k + 5, 3, 4)) for k in (1, 2)}
    assert "maximum and minimum are exchanged" in grade(lambda a, b: torch.maximum(a * b, b), Exercise(space["ask"], x, {}))

def test_truth_values_that_fit_several_steps_are_not_laid_on_one():
    flags = {str(k): (float(k), 3.) for k in range(8)}
    ask = Exercise(lambda a, b: a > b, flags, {})
    said = grade(lambda a, b: a >= b, ask)
    assert not said.startswith("a >= b stands") and said != "right"   # it differs in one case only

def test_a_known_mistake_is_named_only_if_it_acts_so_where_the_answer_is_right():
    ask = Exercise(lambda x: x.mean() > 0, {str(k): (noise(k, 5),) for k in range(12)}, {"never true": lambda x: tensor(False)})
    assert grade(lambda x: (x.mean() > 0) & (x[0] > 9), ask) == "never true"
    assert "never" not in grade(lambda x: x.mean() < 0, ask)

def test_where_nothing_explains_it_the_place_is_told():
    x = {str(k): (noise(k, 3, 4), noise(k + 5, 3, 4) > 0) for k in (1, 2, 3)}
    ask = Exercise(lambda a, m: a * 2, x, {})
    def odd(a, m): return torch.where(a < 0, torch.erf(a).cos(), a * 2)
    assert "it differs only where a is below 0, and there always; " in grade(odd, ask), grade(odd, ask)

def test_a_search_keeps_to_its_time_and_leaves_the_cases_as_they_were():
    before = [x.clone() for args in ppo.gae.cases.values() for x in args[:2]]
    calls = {k: record_call(lambda *a: [torch.erf(x) for x in ppo.gae.reference(*a)], args) for k, args in ppo.gae.cases.items()}
    grade(lambda *a: tuple(torch.erf(x) for x in ppo.gae.reference(*a)), ppo.gae)
    assert all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(before, (x for args in ppo.gae.cases.values() for x in args[:2])))

# ---- no false name

def test_a_score_at_the_last_column_is_not_said_to_be_a_sorted_mask():
    def at_the_end(score, penalty, mask):
        if penalty.shape != mask.shape or score.shape != mask.shape[:1]: raise ValueError
        out = penalty.to(torch.promote_types(penalty.dtype, torch.float32)).clone()
        out[:, -1] += score * mask.any(1)
        return out
    assert grade(at_the_end, kl.token_rewards).startswith("the last column may be a pad")
    unlisted = Exercise(kl.token_rewards.reference, kl.token_rewards.cases, {})
    assert grade(at_the_end, unlisted).startswith("what stands behind the last True of mask counts; ")

def words_of(reference, *args):
    steps = Steps(reference)
    return [words for _, words, _ in all_changes(steps, steps.record(args)[1])]

def test_operands_are_those_of_the_function_not_its_module_and_nobody_turns_a_constant_around():
    words = words_of(lambda a, b, e: torch.exp(torch.minimum(a, b)) * (1 - e), noise(1, 3), noise(2, 3), .2)
    assert "exp is missing: minimum(a, b) stands there as it is" in words and "a and b are exchanged in minimum(a, b)" in words
    assert not any("torch" in w or "turned around" in w for w in words)
    assert "mask is upside down" in words_of(lambda x, mask: x.where(mask, 0.), noise(1, 3), noise(2, 3) > 0)

def test_pay_of_a_half_or_one_is_no_number_that_tells_steps_apart():
    pays = Exercise(lambda text: [1. if len(x.split()) <= 3 else .5 for x in text],
                    {k: (k.split(","),) for k in ("a b,c", "a b c", "a b c d,e f", "one two three four", "xyz xyz,y,z", "a b c d e,f g h,a b c d")}, {})
    assert grade(lambda text: [1. if len(x) <= 6 else .5 for x in text], pays).startswith("right on 5 of 6 cases; xyz xyz,y,z: ")

def test_the_third_number_of_a_list_is_no_place_of_a_difference():
    rows = Exercise(lambda xs: float(sum(xs)), {str(k): ([k, k + 1, 2 * k],) for k in range(1, 9)}, {})
    assert "differs only" not in grade(lambda xs: float(sum(xs) + (xs[1] > 4) * xs[0]**.3), rows)

def test_a_sum_that_is_0_is_not_called_unused():
    parts = Exercise(lambda x: (x * 3 + 1, (x * 2).sum()), {str(k): (noise(k, 3, 3),) for k in range(7)}, {})
    said = grade(lambda x: (torch.erf(x - x.mean()), (x - x.mean()).sum() * 2), parts)
    assert "as if it were" not in said and said.startswith("0: entry [0]"), said

def test_a_known_mistake_that_errs_where_the_answer_is_right_is_not_named():
    ask = Exercise(lambda x: x, {str(k): (float(k),) for k in range(1, 7)}, {"that is 6": lambda x: 6., "more than 5": lambda x: min(x, 5.)})
    assert "that is 6" not in grade(lambda x: x if x != 5 else 6., ask)
    assert grade(lambda x: min(x, 5.), ask) == "more than 5"

def test_words_and_shapes_are_equal_or_not_and_never_larger():
    assert not any(">" in w or "<" in w for w in words_of(lambda x, how: x if how == "a" and x.shape == (3,) else -x, noise(1, 3), "a"))

# ---- what is set apart, and what is cheap

def test_rows_that_run_into_one_another_are_seen():
    def one_row(r, m, g=.9): return loop(r.reshape(1, -1), m.reshape(1, -1), g).view(r.shape)
    assert grade(one_row, ASK).startswith("what is carried along a row goes on into the next row"), grade(one_row, ASK)

def test_16_bits_and_nan_are_said_apart_from_another_slip():
    def ask(x, m): return x.float().masked_fill(~m, 0.) * 2
    m = noise(9, 3, 4) > 0
    cases = {str(k): (noise(k, 3, 4), m) for k in range(3)} | {"bf16": (noise(4, 3, 4).bfloat16(), m), "nan": (noise(5, 3, 4).where(m, torch.nan), m)}
    said = grade(lambda x, m: (x * m * 3).float(), Exercise(ask, cases, {}))
    assert said.startswith("the result is 1.5 times what it should be; and nan or inf of x gets through"), said

def test_a_value_read_at_two_places_is_changed_at_both():
    def ask(x, n): return x.T * n + x.T.exp() + x.sum()
    def other(x, n): return x.T.relu() * n + x.T.relu().exp() + x.sum()
    cases = {str(k): (noise(k, 3 + k, 2), 2.5) for k in range(3)}
    assert grade(other, Exercise(ask, cases, {})).startswith("T is cut off at 0; "), grade(other, Exercise(ask, cases, {}))

def test_a_run_that_writes_into_what_was_recorded_is_noticed_and_undone():
    def ask(x):
        y = x.clone()
        y[0] = 7.
        return y * x.sum()
    steps, x = Steps(ask), noise(1, 4)
    steps.record((x,))
    assert not steps.spoilt()
    for s in steps.steps: # x itself in place of its copy: the write goes into x
        steps.run((x,), {s.number: lambda do, a, k: a[0]}, True)
    assert steps.spoilt()

def test_a_search_that_stops_costs_the_name_and_not_the_verdict():
    from rlhf_nb.exercises import steps as module
    class Odd(Exception): pass
    def odd(*_): raise Odd
    was, module._name_step = module._name_step, odd
    try: said = grade(lambda r, m, g=.9: loop(r, m, g, add=lambda r, g, t: r - g * t), ASK)
    finally: module._name_step = was
    assert "got" in said and isinstance(module.BROKEN.pop(), Odd)
