"The sentence of a task that an answer breaks is told where it breaks no other."
import re
import pytest, torch
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from rlhf_nb.book.checks import Exercise, grade, record_call, values_match
from rlhf_nb.exercises import best_policy, judge
from rlhf_nb.exercises.asked import asks, place_of, refusing
from rlhf_nb.exercises.slips import REASONS
from rlhf_nb.exercises.steps import hidden
from rlhf_nb.exercises.where import differs_where

def chapters():
    folder = Path(best_policy.__file__).parent
    return [import_module(f"rlhf_nb.exercises.{f.stem}") for f in sorted(folder.glob("[a-z]*.py")) if f.stem != "my_rlhf"]

def test_each_sentence_stands_beside_its_exercise_and_names_cases_that_there_are():
    tables = {m.__name__: m for m in chapters() if hasattr(m, "ASKED")}
    assert tables
    for where, m in tables.items():
        for name, rules in m.ASKED.items():
            ex = getattr(m, name)
            assert isinstance(ex, Exercise) and place_of(ex) == (vars(m), name), (where, name)
            for said, cases in rules.items():
                tries = cases.split(" | ")
                assert tries and {*tries} < {*ex.cases}, (where, name, said, {*tries} - {*ex.cases})
                assert asks(ex, tries).startswith("the task asks: "), (where, name, said)
                other = next(k for k in ex.cases if not any(k in c.split(" | ") for c in rules.values()))
                assert asks(ex, [*tries, other]) == "", (where, name, said)

def test_who_lets_the_first_of_equal_scores_win_is_told_what_the_task_asks_for():
    def best_of_n_policy(logp, score, n):
        if n < 1: raise ValueError(f"n is {n}: it must be 1 or more")
        order = sorted(range(len(score)), key=lambda i: (score[i].item(), -i))
        out, below = torch.full_like(logp, -torch.inf), 0.
        for i in order:
            p = logp[i].exp()
            out[i] = ((below + p)**n - below**n).log()
            below = below + p
        return out
    said = grade(best_of_n_policy, best_policy.best_of_n_policy)
    assert "the task asks: responses of equal score share what their level wins" in said and "; ties: " in said, said

def test_who_errs_elsewhere_too_is_not_told_the_sentence():
    def best_of_n_policy(logp, score, n):
        if n < 1: raise ValueError(f"n is {n}: it must be 1 or more")
        return torch.where(score == score.max(), logp, -torch.inf).log_softmax(0) + .1
    assert "the task asks" not in grade(best_of_n_policy, best_policy.best_of_n_policy)

def test_a_task_of_a_teacher_s_own_has_no_sentences():
    ex = Exercise(reference=abs, cases={"below 0": (-2,), "above": (3,)}, mistakes={})
    assert place_of(ex) == ({}, "") and asks(ex, ["below 0"]) == ""
    assert grade(lambda x: x, ex).endswith("below 0: got -2, want 2")

# ---- what else the check says, and does not say
def test_an_answer_that_draws_at_random_is_told_so():
    def best_of_n_policy(logp, score, n):
        if n < 1: raise ValueError("n")
        return logp + torch.rand(len(logp))
    assert "two runs of one case give two results" in grade(best_of_n_policy, best_policy.best_of_n_policy)

def test_code_that_the_learner_has_not_written_is_not_quoted():
    def mine(logp, n):
        order = logp.sort()
        return order
    assert hidden("a + b stands where a - b should (in escape_special_tokens); two", mine, ["logp", "n"])
    assert not hidden("a + b stands where a - b should (in mine); two", mine, ["logp", "n"])
    assert hidden("good stands where late should, in alive if late else good; x", mine, ["logp", "n"])
    assert not hidden("order stands where logp should, in order + logp; x", mine, ["logp", "n"])
    assert not hidden("the sign is turned", mine, ["logp", "n"])

def test_a_slip_inside_a_given_helper_is_not_made_up():
    from battery_8b import WRONG     # the list is handed over as one text: no sign is turned in escape_special_tokens
    assert "escape_special_tokens)" not in grade(WRONG["judge_messages"][4][1], judge.judge_messages)

def test_a_number_where_minus_infinity_should_stand_is_seen():
    ex = Exercise(reference=lambda x: x.masked_fill(x < 0, -torch.inf), mistakes={}, cases={
        "two": (torch.tensor([1., -2., -3.]),), "four": (torch.tensor([[-1., 4.], [-5., -6.]]),)})
    calls, wants = ({k: record_call(f, x) for k, x in ex.cases.items()} for f in (lambda x: x.masked_fill(x < 0, -1e9), ex.reference))
    assert differs_where(ex.cases, calls, wants, ["x"], values_match) == "a large number stands where -inf should, and everything else is right; "
    calls = {k: record_call(lambda x: x.masked_fill(x < 0, -1e9) + 1, x) for k, x in ex.cases.items()}
    assert "stands where -inf" not in differs_where(ex.cases, calls, wants, ["x"], values_match)
    two = ({k: replace(c, out=(x.masked_fill(x < 0, -1e9), 2.)) for (k, (x,)), c in zip(ex.cases.items(), calls.values())},
           {k: replace(c, out=(c.out, 1.)) for k, c in wants.items()})
    assert "stands where -inf" not in differs_where(ex.cases, *two, ["x"], values_match)     # the number beside it is wrong, too

def test_the_first_mistake_that_does_all_that_an_answer_does_ends_the_search():
    tried = []
    def noted(name, f): return lambda x: (tried.append(name), f(x))[1]
    ex = Exercise(reference=lambda x: x + 1., cases={"a": (torch.tensor([1.]),), "b": (torch.tensor([2.5]),)}, mistakes={
        "one too many": noted("one", lambda x: x + 2.), "doubled": noted("two", lambda x: 2 * x), "tripled": noted("three", lambda x: 3 * x)})
    assert grade(lambda x: 2 * x, ex) == "doubled" and "two" in tried and "three" not in tried

def test_a_call_inside_an_answer_that_fails_is_not_taken_for_the_answer_s_own_arguments():
    def said(message): return next(reason for words, reason in REASONS.items() if re.search(words, message))
    assert said("answer() missing 1 required positional argument: 'n'") == "the arguments are those of the stub, in its order"
    assert "a * takes a list apart" in said("JudgePrompt.render() missing 1 required positional argument: 'response'")

def test_a_mistake_that_refuses_what_the_reference_refuses():
    def reference(x):
        if x < 0: raise ValueError("below 0")
        return x
    [slip] = refusing(reference, {"doubled": lambda x: 2 * x}).values()
    assert slip(3) == 6
    with pytest.raises(ValueError, match="below 0"): slip(-1)
