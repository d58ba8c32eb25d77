"What `check` sees and says, of one answer and of a whole notebook."
import json, nbformat, pytest, torch
from dataclasses import dataclass
from importlib import import_module
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from rlhf_nb.base.files import notebooks
from rlhf_nb.book import checks
from rlhf_nb.book.checks import (
    CHECK, MEMORY, PROGRESS, Exercise, check, check_notebook, copy_argument, expect_error, grade, needed, record_call, values_match)
from rlhf_nb.exercises.repair import repair

def test_expect_error_wants_an_error(capsys):
    expect_error(int, "seven")
    assert "seven" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="int let this through"): expect_error(int, "7")
    with pytest.raises(ZeroDivisionError): expect_error(lambda: 1/0)       # a bug is no refusal

@dataclass
class Point:
    x:float
    y:torch.Tensor

@pytest.mark.parametrize("got, want, same", [
    (1, 1., True), (1.00001, 1., True), (1.01, 1., False), (float("nan"), float("nan"), True),
    (float("nan"), 1., False), (1., float("nan"), False), ("a", "a", True), ("a", "b", False),
    (True, False, False), ([1., 2.], [1., 2.], True), ((1., 2.), [1., 2.], False),
    ([1.], [1., 2.], False), ({"a": 1.}, {"a": 1.}, True), ({"a": 1.}, {"b": 1.}, False),
    ({"a": 1., "b": 2.}, {"a": 1.}, False), (None, 1., False), ("a", 1., False),
    (torch.ones(2), torch.ones(2), True), (torch.ones(2), torch.ones(2, 1), False),
    (torch.ones(1), torch.ones(3), False), (torch.tensor(1.), 1., True),
    (torch.tensor([1, 2]), torch.tensor([1., 2.]), False), (torch.tensor([1., 2.]), torch.tensor([1, 2]), False),
    ([1., 2.], torch.tensor([1., 2.]), False), ((1.,), torch.ones(1), False), (1, torch.tensor(1.), True),
    (torch.tensor([float("nan")]), torch.tensor([float("nan")]), True),
    (torch.tensor([1., 2.]), torch.tensor([1., 2.1]), False),
    (torch.tensor([0.]), torch.tensor([1e-2]), False),
    (torch.tensor([0., 1.]), torch.tensor([False, True]), False), (torch.tensor(True), True, True),
    (Point(1., torch.ones(2)), Point(1., torch.ones(2)), True),
    (Point(1., torch.ones(2)), Point(1., torch.zeros(2)), False),
    ({"x": 1., "y": torch.ones(2)}, Point(1., torch.ones(2)), False), ("a", torch.ones(1), False),
    ((torch.ones(2), "a"), (torch.ones(2), "b"), False),
    (torch.ones(1).bfloat16(), torch.ones(1), False), (torch.ones(1).half(), torch.ones(1).double(), False),
    (torch.tensor([1.01]).bfloat16(), torch.ones(1), False), (torch.tensor([1.01]), torch.ones(1).bfloat16(), True),
    (torch.tensor([1.01]).bfloat16(), torch.ones(1).bfloat16(), True),      # the tolerance is that of the wanted dtype
    (torch.tensor([1.1]).bfloat16(), torch.ones(1).bfloat16(), False)])
def test_values_match(got, want, same): assert values_match(got, want) is same

def mean(x): return x.sum() / len(x)
def total(x): return x.sum()
def detached(x): return x.detach().mean()
def unfinished(x): raise NotImplementedError
def spoils(x): return x.mul_(0).sum()
def spoils_but_right(x):
    y = x.mean()
    x += 1
    return y
def median(x): return x.sort().values[len(x) // 2]

AVERAGE = Exercise(torch.mean, {"plain": (torch.tensor([1., 2., 3.]),),
                                "skew": (torch.tensor([1., 2., 9.]),)},
                   {"divide by the length": total, "that is the median": median})

@pytest.mark.parametrize("answer, want", [
    (mean, "right"), (total, "divide by the length"), (unfinished, "not done yet"),
    (lambda x: None, "nothing comes back: is there a return?"), (lambda x: x.nope, "plain: stopped with AttributeError"),
    (spoils, "it changes its argument in place: work on a copy; plain: got 0, want 2; see exercises.spoils.cases[\"plain\"]"),
    (spoils_but_right, "right, but it changes its arguments"),
    (lambda x: x.max() - 1, "right on 1 of 2 cases; skew: got 8"),      # by luck, and no mistake gives the other
    (lambda x: x[None].mean(1), "the numbers are right, but the shape has an axis of size 1 too many; plain: got shape (1), want 2"),
    (median, "that is the median"),
    (lambda x: x[1] * 1, "that is the median"), (lambda x: x[1] + (x[2] > 5), "right on 1 of 2")])
def test_grade(answer, want):
    assert grade(answer, AVERAGE).startswith(want)
    assert AVERAGE.cases["plain"][0].tolist() == [1., 2., 3.]        # whatever the answer does

def test_the_mistake_that_explains_most_is_named_and_of_twins_the_first():
    mistakes = {"the opposite": lambda x: -x, "no sign": abs, "no sign either": abs}
    assert grade(abs, Exercise(lambda x: x, {"below": (-1.,), "above": (2.,)}, mistakes)) == "no sign"

def test_one_case_left_out_is_not_the_whole():
    ask = Exercise(lambda x: x, {"below": (-1.,), "above": (2.,)}, {})
    def half_done(x):
        if x < 0: raise NotImplementedError
        return x
    def half_returned(x):
        if x > 0: return x
    assert grade(half_done, ask) == (
        "right on 1 of 2 cases; below: stopped with NotImplementedError; see exercises.half_done.cases[\"below\"]")
    assert grade(half_returned, ask) == (
        "`if x > 0` is one too many: what stands in it always holds; below: got None, want -1; "
        "see exercises.half_returned.cases[\"below\"]")

def test_the_one_edit_that_mends_an_answer_is_said():
    cases = {"three": (torch.tensor([1., 2., 6.]),), "four": (torch.tensor([5., -2., 0., 4.]),)}
    ask = Exercise(lambda x: (x - x.min()) / (x.max() - x.min()), cases, {})
    def scaled(x):
        low = x.min()
        return (x - low) / (x.max() - x.mean())
    assert "mean" in grade(scaled, ask).partition(";")[0] and "min" in grade(scaled, ask).partition(";")[0]
    def said(answer): return repair(answer, ask, {k: record_call(ask.reference, x) for k, x in cases.items()}, [*cases], record_call, values_match)
    def counts(x):
        n = 0
        while n < 3: n += 1                       # turned round it would never end: an edited loop has an end all the same
        return (x - x.min()) / (x.max() - x.min()) * n
    assert said(counts) and said(scaled) in grade(scaled, ask)
    def writes(x):
        with open(__file__) as file: file.read(1)
        return (x - x.min()) / (x.max() - x.mean())
    assert said(writes) == ""                     # what touches files is not edited and run again
    assert said(lambda x: x.cos().erf()) == ""

def twice(w, x): return w.roll(2, 0) * x.detach()
def flowing(w, x): return w.roll(1, 0) * x
@pytest.mark.parametrize("answer, words", [
    (twice, "2 stands where 1 should, in w.roll(2, 0)"), (flowing, "a gradient flows through x: detach it")])
def test_an_edit_is_right_in_its_gradients_too_and_a_number_says_where_it_stands(answer, words):
    def leaf(*x): return torch.tensor(x, requires_grad=True)
    cases = {"three": (leaf(1., 2., 6.), leaf(3., 1., 2.)), "four": (leaf(5., 2., 1., 4.), leaf(1., 7., 2., 3.))}
    ask = Exercise(lambda w, x: w.roll(1, 0) * x.detach(), cases, {})
    wants = {k: record_call(ask.reference, x) for k, x in cases.items()}
    assert repair(answer, ask, wants, [*cases], record_call, values_match) == words

def test_a_missing_refusal_does_not_hide_another_slip():
    def careful(x):
        if not len(x): raise ValueError("empty")
        return x / x.sum()
    ask = Exercise(careful, {"none": (torch.zeros(0),), "two": (torch.tensor([1., 3.]),), "three": (torch.tensor([5., 2., 9.]),)}, {})
    said = grade(lambda x: x / x.mean(), ask)
    assert said.startswith("mean stands where sum should") and said.endswith("; and besides nothing is raised where the task asks for ValueError, none")
    assert "besides" not in grade(lambda x: x / x.sum(), ask)

def test_what_the_reference_changes_an_answer_may_change():
    assert grade(lambda xs: xs.sort(), Exercise(list.sort, {"two": ([2, 1],)}, {})) == "right"

def test_gradients_are_compared():
    x = torch.tensor([1., 2., 4.], requires_grad=True)
    ask = Exercise(lambda x: (x**2).mean(), {"leaf": (x,)}, {"do not detach": detached})
    assert grade(lambda x: (x * x).sum() / 3, ask) == "right"
    assert grade(lambda x: (x * x.detach()).mean(), ask) == (
        "the gradient of x is 0.5 times what it should be; leaf: the value is right, its gradient is not")
    half = Exercise(lambda x: (x**2).mean(), {"leaf": (x,)}, {"half of it flows": lambda x: (x * x.detach()).mean()})
    assert grade(lambda x: (x.detach() * x).sum() / 3, half) == "half of it flows"
    swapped = Exercise(lambda x: x * 1, {"equal numbers": (torch.ones(2, requires_grad=True),)}, {})
    assert "gradient" in grade(lambda x: x.flip(0), swapped)

def test_gradients_of_modules_and_inside_dataclasses():
    torch.manual_seed(0)
    policy, ref = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    x = torch.randn(3, 2)
    def gap(policy, ref, x): return policy(x) - ref(x).detach()
    ask = Exercise(gap, {"two models": (policy, ref, x)},
                   {"nothing may flow into the reference": lambda p, r, x: p(x) - r(x)})
    def flows(policy, ref, x): return policy(x) - ref(x)
    def stops(policy, ref, x):
        with torch.no_grad(): back = ref(x)
        return policy(x) - back
    assert grade(flows, ask) == "nothing may flow into the reference"
    assert grade(stops, ask) == "right" and policy.weight.grad is None
    point = Point(1., torch.ones(2, requires_grad=True))
    assert record_call(lambda p: p.y * 2, (point,)).gradients[0].tolist() == [2., 4.]
    assert [g.tolist() for g in record_call(lambda p, q: p.y * 2, (point, point)).gradients] == [[2., 4.], [0., 0.]]
    assert record_call(lambda p: 7, (point,)).gradients[0].tolist() == [0., 0.]

def test_a_changed_argument_is_seen_in_lists_dicts_and_dataclasses():
    def grows(xs):
        xs.append(xs[0] * 2)
        return xs[0] * 1
    def moves(p):
        p.x += 1
        return p.y * 1
    def forgets(d): return d.pop("a") * 1
    x = torch.ones(2, requires_grad=True)
    for answer, right, arg in ((grows, lambda xs: xs[0] * 1, [x]), (moves, lambda p: p.y * 1, Point(1., x)),
                               (forgets, lambda d: d["a"] * 1, {"a": 2.})):
        assert grade(answer, Exercise(right, {"one": (arg,)}, {})).startswith("right, but it changes")

def test_a_changed_grad_of_a_module_is_seen():
    def slope(model): return [g for g in torch.autograd.grad(model(torch.ones(1, 2)).sum(), list(model.parameters()))]
    def backward(model):
        model.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        return [p.grad.clone() for p in model.parameters()]
    ask = Exercise(slope, {"a layer": (torch.nn.Linear(2, 1),)}, {})
    changes = "right, but it changes its arguments, or their .grad"
    assert grade(slope, ask) == "right" and grade(backward, ask).startswith(changes)
    def clears(model):
        out = backward(model)
        model.zero_grad()
        return out
    used = torch.nn.Linear(2, 1)
    used(torch.ones(1, 2)).sum().backward()
    assert grade(clears, ask) == "right" and grade(clears, Exercise(slope, {"with a .grad": (used,)}, {})).startswith(changes)

def test_what_an_answer_leaves_behind_never_stops_a_check():
    x = torch.tensor([1., 2.], requires_grad=True)
    ask = Exercise(lambda x: (x**2).sum(), {"leaf": (x,)}, {})
    def steps_itself(x):
        (loss := (x**2).sum()).backward()
        return loss
    assert "leaf: stopped with RuntimeError: Trying to backward" in grade(steps_itself, ask)
    assert grade(lambda x: exit(), ask) == "leaf: stopped with SystemExit: None"
    def stopped(x): raise KeyboardInterrupt                       # the learner's own hand
    with pytest.raises(KeyboardInterrupt): grade(stopped, ask)

def test_a_verdict_is_one_line_and_not_a_page():
    ask = Exercise(lambda x: {"x": x}, {"big": (torch.zeros(9, 9),)}, {})
    def explains(x): raise ValueError("\n".join("a long story" for _ in range(50)))
    for answer in (lambda x: {"x": x + 1}, explains):
        assert "\n" not in grade(answer, ask) and 30 < len(grade(answer, ask)) < 400
    assert grade(lambda x: "a\nb", Exercise(lambda x: "a b", {"text": (1,)}, {})) == (r"text: got 'a\nb', want 'a b'")

SLIPS = Exercise(lambda x: (x * 2).sum(1), {"three rows": (torch.tensor([[1., 2.], [3., 5.], [2., 9.]]),),
                                           "one row": (torch.tensor([[4., 5.]]),)}, {})
LEAF = Exercise(lambda x: x**2, {"a leaf": (torch.tensor([1., 3.], requires_grad=True),)}, {})
ABOVE = Exercise(lambda x: x > 2, {"three": (torch.tensor([1., 2., 3.]),)}, {})
PARTS = Exercise(lambda x: [x, x + 1], {"two": (torch.tensor([1., 2.]),)}, {})

@pytest.mark.parametrize("ask, answer, want", [
    (SLIPS, lambda x: (x * 2).sum(1, keepdim=True), "the numbers are right, but the shape has an axis of size 1 too many; three rows: got shape (3 1), want shape (3)"),
    (SLIPS, lambda x: (x * 2).sum(), "one number comes back where one per row is wanted"),
    (SLIPS, lambda x: (x * 2).sum(1).tolist(), "a list comes back where a tensor is wanted"),
    (SLIPS, lambda x: (x * 2).sum(1).long(), "integers come back where floats are wanted"),
    (SLIPS, lambda x: (x * 3).sum(1).numpy(), "a ndarray comes back where a tensor is wanted"),
    (SLIPS, lambda x: (x * 2).sum(1).half(), "16 bits come back where float32 is wanted"),
    (SLIPS, None, "no function of this name: run its cell first"),
    (SLIPS, lambda x: x.mul_(2).sum(1) + 1, "it changes its argument in place"),
    (SLIPS, lambda x: (x[:, :1] * 2 + x[:, 1] * 2), "a square comes back where a row is wanted"),
    (AVERAGE, lambda x: x * 1, "many numbers come back where one is wanted"),
    (LEAF, lambda x: x.detach()**2, "no gradient flows back"), (LEAF, lambda x: x.mul_(x), "it changes its argument in place"),
    (Exercise(lambda x: x.detach()**2, LEAF.cases, {}), lambda x: x**2, "a gradient flows back where none may"),
    (ABOVE, lambda x: (x > 2).float(), "floats come back where truth values are wanted"),
    (ABOVE, lambda x: (x > 2).long(), "integers come back where truth values are wanted"),
    (Exercise(lambda x: (x > 2).float(), ABOVE.cases, {}), lambda x: x > 2, "truth values come back where floats are wanted"),
    (Exercise(lambda x: x.view(2, 2), {"four": (torch.arange(4.),)}, {}), lambda x: x * 1, "the numbers are right, but not their shape"),
    (Exercise(lambda x: x, {"four": (torch.arange(4.),)}, {}), lambda x: x[1:], "the numbers are right, but the first along axis 0 is missing"),
    (Exercise(lambda x: x[:, :-1], {"six": (torch.arange(6.).view(2, 3),)}, {}), lambda x: x, "the numbers are right, but the last along axis 1 is one too many"),
    (Exercise(lambda x: x.float() / 3, {"16": (torch.tensor([1., 5.]).bfloat16(),), "32": (torch.tensor([2.]),)}, {}),
     lambda x: (x / 3).float(), "16 bits are too few: go to float32 before you compute; 16: entry [0] got"),
    (Exercise(lambda x: {}[x], {"one": (1.,)}, {}), lambda x: x, "nothing is raised where the task asks for KeyError"),
    (PARTS, lambda x: (x, x + 1), "a tuple comes back where a list is wanted"),
    (PARTS, lambda x: [x, (x + 1)[None]], "the numbers are right, but the shape has an axis"),
    (Exercise(lambda x: x.T, {"a": (torch.arange(6.).view(2, 3),)}, {}), lambda x: x * 1, "rows and columns are exchanged")])
def test_slips_of_any_task_have_a_name(ask, answer, want):
    assert grade(answer, ask).startswith(want), grade(answer, ask)

def test_a_mistake_that_explains_most_is_named_with_the_rest():
    cases = {str(k): (float(k),) for k in range(1, 11)}
    ask = Exercise(lambda x: x, cases, {"doubled": lambda x: 2 * x})
    def wrong(n): return eval("lambda x: 2 * x if x <= n else 2 * x + 1", {"n": n})     # no source: nothing can be mended in it
    assert grade(wrong(10), ask) == "doubled"
    assert grade(wrong(8), ask) == "mostly: doubled, and 9: got 19, want 9"
    assert grade(wrong(5), ask) == "much like: doubled, but 6: got 13, want 6"
    assert grade(wrong(4), ask) == "1: got 2, want 1"
    assert grade(eval("lambda x: 2 * x + (x <= 2)"), ask) == "mostly: doubled, and 1: got 3, want 1"      # wherever the others stand

@pytest.mark.parametrize("reference, mistake, answer, said", [   # three cases of truth values prove nothing, of numbers they do
    (lambda x: x > 9, lambda x: x > 5, lambda x: x > 6, "7: got True, want False"),
    (lambda x: x * 1., lambda x: x + (x > 5) * x, lambda x: x + (x > 6) * x, "much like: m; 7: got 14, want 7")])
def test_a_mistake_that_errs_elsewhere_is_named_by_few_cases_only_where_they_show_numbers(reference, mistake, answer, said):
    ask = Exercise(reference, {str(k): (float(k),) for k in range(1, 10)}, {"m": mistake})
    assert said in grade(answer, ask) and grade(mistake, ask) == "m", grade(answer, ask)

def test_a_gradient_that_an_argument_written_in_place_spoils_is_said_so():
    def answer(x):
        with torch.no_grad(): x[x < 0] = 0
        return x.sum()
    ask = Exercise(lambda x: x.clamp(min=0).sum(), {"a": (torch.tensor([1., -2.], requires_grad=True),)}, {})
    assert grade(answer, ask).startswith("it changes its argument in place")

def test_nan_wins_a_name_only_where_no_other_mistake_gives_it():
    nan = float("nan")
    cases = {"plain": (1.,), "under the mask": (nan,)}
    right = lambda x: x if x == x else 0.
    leaks, other = lambda x: x, lambda x: x + 0 * nan if x != x else x
    assert grade(lambda x: x * 1, Exercise(right, cases, {"it leaks": leaks})) == "it leaks"
    assert grade(lambda x: x * 1, Exercise(right, cases, {"it leaks": leaks, "so does this": other})) == (
        "right on 1 of 2 cases; under the mask: got nan, want 0")
    ask = Exercise(right, cases | {"two": (2.,)}, {"nan": lambda x: nan if x != 2 else 5.})
    assert grade(lambda x: nan if x != 2 else 7., ask) == "plain: got nan, want 1"   # two of three, by nan alone

def test_the_first_entry_that_differs_with_four_digits():
    x = torch.zeros(2, 3, dtype=torch.float64)
    def shifted(x):
        y = x.clone()
        y[1, 2] += 1 / 3
        return y
    assert grade(shifted, Exercise(lambda x: x * 1, {"a": (x,)}, {})).endswith(
        'a: entry [1, 2] got 0.3333, want 0; see exercises.shifted.cases["a"]')
    deep = Exercise(lambda x: {"k": (x, 1.)}, {"a": (x,)}, {})
    assert grade(lambda x: {"k": (shifted(x), 1.)}, deep).endswith("a: entry ['k'][0][1, 2] got 0.3333, want 0")
    assert "got 1.00012, want 1" in grade(lambda x: 1.00012, Exercise(lambda x: 1., {"a": (x,)}, {}))

def test_an_error_can_be_the_right_answer():
    def careful(x):
        if x < 0: raise ValueError("no")
        return x
    ask = Exercise(careful, {"below zero": (-1.,), "above": (1.,)}, {"refuse what is below zero": lambda x: x})
    assert grade(careful, ask) == "right"
    assert grade(lambda x: x * 1, ask) == "refuse what is below zero"
    assert grade(lambda x: abs(x), ask).endswith("should raise ValueError, got 1")

def test_a_missing_return_is_named_where_other_cases_must_be_refused():
    def root(x):
        if x < 0: raise ValueError("no")
        return x**.5
    def forgot(x):
        if x < 0: raise ValueError("no")
        x**.5
    ask = Exercise(root, {"four": (4.,), "below zero": (-1.,)}, {})
    assert grade(forgot, ask) == "nothing comes back: is there a return?"
    quiet = Exercise(lambda x: None, {"one": (1,)}, {})           # nothing is what should come
    assert grade(lambda x: None, quiet) == "right" and "got 1" in grade(lambda x: 1, quiet)

def test_another_error_is_another_answer():
    def careful(x): raise ValueError("no")
    def careless(x): return len(x)                                # TypeError
    ask = Exercise(careful, {"a number": (-1.,)}, {})
    assert grade(careful, ask) == "right"
    assert grade(careless, ask) == (
        "TypeError is raised where the task asks for ValueError; a number: stopped with TypeError, should raise ValueError; see exercises.careless.cases[\"a number\"]")
    def bare(x): raise IndexError                                 # an error without a word
    ask = Exercise(float, {"a number": (-1.,)}, {})
    assert grade(bare, ask) == "a number: stopped with IndexError; see exercises.bare.cases[\"a number\"]"

def test_each_side_draws_from_its_own_copy_of_a_generator_in_its_state():
    def draw(generator): return torch.rand(3, generator=generator)
    generator = torch.Generator().manual_seed(3)
    draw(generator)
    assert grade(draw, Exercise(draw, {"a generator": (generator,)}, {})) == "right"
    assert torch.equal(draw(copy_argument(generator)), draw(generator))

def test_check_hands_back_what_is_right_and_is_loud_only_when_strict(capsys, monkeypatch):
    monkeypatch.delenv("RLHF_NB_STRICT", raising=False)
    assert check(total, AVERAGE) is check(unfinished, AVERAGE) is torch.mean       # the reference
    monkeypatch.setenv("RLHF_NB_STRICT", "1")
    assert check(mean, AVERAGE) is mean
    for answer in (total, unfinished):
        with pytest.raises(AssertionError, match=answer.__name__): exec("check(answer, AVERAGE)", space := dict(
            check=check, answer=answer, AVERAGE=AVERAGE))
        assert space[answer.__name__] is torch.mean            # later cells go on with it
    printed = capsys.readouterr().out.splitlines()
    ours = "(the cells below use ours until your {} is right)".format
    assert printed[:5] == ["total: divide by the length", ours("total"), "unfinished: not done yet",
                           ours("unfinished"), "mean: right"]

@pytest.mark.parametrize("chapter", sorted(p.stem[3:] for p in (notebooks()).glob("[0-9][0-9]_*.ipynb")))
def test_a_check_cell_that_runs_twice_does_not_take_ours_for_yours(chapter, tmp_path, monkeypatch, capsys):
    "The first run puts the reference in the stub's place."
    monkeypatch.delenv("RLHF_NB_STRICT", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path/MEMORY).touch()
    monkeypatch.setattr(checks, "grade", lambda answer, exercise: "not done yet" if answer is stub else "right")
    def stub(*args): raise NotImplementedError
    [file] = notebooks().glob(f"[0-9][0-9]_{chapter}.ipynb")
    cells = [c.source for c in nbformat.read(file, 4).cells if CHECK.search(c.source)]
    for source in cells:
        name = CHECK.search(source)[1]
        space = dict(check=check, exercises=import_module(f"rlhf_nb.exercises.{chapter}"), **{name: stub})
        for _ in range(2): exec(CHECK.search(source)[0], space)
        assert capsys.readouterr().out.splitlines() == [f"{name}: not done yet", f"(the cells below use ours until your {name} is right)",
                                                        f"{name}: this is ours: run the cell with your answer first"]
    if cells: assert [*progress_of(tmp_path)] == ["not done yet"] * len(cells)

def progress_of(folder): # the verdicts that were written down
    return [json.loads(x)["verdict"] for x in (folder/PROGRESS).read_text("utf-8").splitlines() if x]

def test_progress_is_kept_only_in_a_learners_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("RLHF_NB_STRICT", raising=False)
    monkeypatch.chdir(tmp_path)
    check(mean, AVERAGE)
    assert not list(tmp_path.iterdir())
    (tmp_path/".rlhf-nb.json").write_text("{}")
    check(total, AVERAGE)
    check(mean, AVERAGE)
    rows = [json.loads(l) for l in (tmp_path/".rlhf-nb-progress.jsonl").read_text().splitlines() if l]
    assert [(r["exercise"], r["verdict"]) for r in rows] == [("total", "divide by the length"), ("mean", "right")]

# ---- a whole notebook
SETUP = """from rlhf_nb.book.checks import Exercise, check
class exercises: a = b = c = d = Exercise(lambda x: 2 * x, {"three": (3,)}, {"that is the square": lambda x: x**2})"""

def graded(tmp_path, setup=SETUP, timeout=60, **cells): # verdicts of one notebook
    every = [new_code_cell(setup), new_code_cell("1 / 0  # slow things")]
    for name, source in cells.items():
        every += [new_code_cell(source if "def " in source else f"def {name}(x):\n    {source}"),
                  new_code_cell(f"check({name}, exercises.{name})")]
    nbformat.write(new_notebook(cells=every), tmp_path/"four.ipynb")
    return check_notebook(tmp_path/"four.ipynb", timeout=timeout)

def test_needed_are_answers_and_whatever_is_marked_or_only_defines():
    run = ["#| hide\nthree = 3", "#| export\nfour = 4", "def f(x): return x\nprint(f(1))",
           "def g(): pass", "import os", "def f(x) return"]
    not_run = ["import os\nprint(1)", "x = 1", "%time def g(): pass", "", "def ff(x): return x\nff(1)"]
    cells = [new_code_cell(source) for source in run + not_run] + [new_markdown_cell("def f")]
    assert needed(new_notebook(cells=cells), ["f"]) == run

def test_a_notebook_is_graded_by_its_answers_alone(tmp_path):
    found = graded(tmp_path, a="return x + x", b="def b(x): raise NotImplementedError", c="return x * x", d="def d(x) return x")
    assert found.pop("d").startswith("its cell stopped with SyntaxError")
    assert found == dict(a="right", b="not done yet", c="that is the square")
    assert graded(tmp_path, a="def other(x): return x") == {"a": "no cell defines it"}
    setup = "from rlhf_nb.exercises import no_such_room as exercises"
    assert "ImportError: cannot import name 'no_such_room'" in graded(tmp_path, setup, a="return x")["a"]

def test_an_answer_finds_its_folder_no_screen_and_may_be_noisy(tmp_path):
    assert set(graded(tmp_path, a="import os\ndef a(x): return os.path.isfile('four.ipynb') * (os.environ['MPLBACKEND'] == 'agg') * 2 * x",
        b="import os\n    os.system('echo noise')\n    os.write(1, b'\\xff')\n    print('noise')\n    return 2 * x",
        c="two = 2\ndef c(x): return two * x\nprint(c(of_a_slow_cell))", d="def d(x): return 2 * x\nexit()").values()) == {"right"}

def test_an_answer_without_an_end_costs_no_other_its_verdict(tmp_path):
    "`sum(range())` never lets another thread of Python go on; the rest end the process in their own ways."
    end = "no end after 2 s: an endless loop?"
    assert graded(tmp_path, timeout=2, a="sum(range(10**18))", b="while True: pass", c="raise KeyboardInterrupt", d="return x + x") == dict(
        a=end, b=end, c="Python stopped: KeyboardInterrupt", d="right")
    assert graded(tmp_path, a="import os; os._exit(3)", b="import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", c="exit()", d="return x + x") == dict(
        a="Python stopped: exit status 3", b="Python stopped: SIGSEGV", c='three: stopped with SystemExit: None; see exercises.c.cases["three"]', d="right")
