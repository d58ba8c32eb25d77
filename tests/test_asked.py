"The sentence of a task that an answer breaks is told where it breaks no other."
import torch
from importlib import import_module
from pathlib import Path
from rlhf_nb.book.checks import Exercise, grade
from rlhf_nb.exercises import best_policy
from rlhf_nb.exercises.asked import asks, place_of

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
