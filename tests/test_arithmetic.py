"The world of sums: the solver against Python's own, the log, what is paid."
import json, random, pytest, torch
from pathlib import Path
from torch.testing import assert_close
from rlhf_nb.arithmetic import Sum, solve, solver_rewards, addition_dataset, sum_tokenizer, noisy_answer
from rlhf_nb.base.models import tiny_lm
from rlhf_nb.base.batches import pad_and_eos
from rlhf_nb.run.evidence import difference, read_rows
from rlhf_nb.tokens import make_seqs

TOKENIZER = sum_tokenizer()
PAD, EOS = pad_and_eos(TOKENIZER)

def rows(sum, *answers, cut=False):
    ids = TOKENIZER(list(answers)).input_ids
    return make_seqs([TOKENIZER(sum.question).input_ids] * len(ids), [a + [EOS] * (not cut) for a in ids], PAD)

@pytest.mark.parametrize("b", range(10))
def test_the_solver_adds(b):
    for a in range(10, 100): assert int(solve(Sum(a, b).question)[::-1]) == a + b
    assert solve("99+99=") == "891" and solve("0+0=") == "0" and solve("5+05=") == "55"

def test_carries(): assert Sum(47, 3).carries and not Sum(47, 2).carries and Sum(99, 1).carries

def test_the_tokenizer_loses_nothing():
    for s in (Sum(10, 0), Sum(98, 7)):
        ids = TOKENIZER(s.question).input_ids
        assert TOKENIZER.decode(ids) == s.question and len(ids) == 5
        assert max(ids) < len(TOKENIZER) == 14
    tiny_lm(TOKENIZER, hidden=16, layers=1)(torch.tensor([ids]))

def test_pay():
    s = Sum(95, 8)                                           # 103, written 301
    x = rows(s, "301", "391", "3", "3011")
    sparse, dense = (solver_rewards(TOKENIZER, [s] * 4, x, d) for d in (False, True))
    assert sparse.sum(1).tolist() == [1., 0., 0., 0.] and sparse[0, 8] == 1.
    q = .25
    assert_close(dense[:, 5:], torch.tensor([[q, q, q, q, 0], [q, 0, q, q, 0], [q, 0, 0, 0, 0], [q, q, q, 0, 0]]))
    assert (dense[:, :5] == 0).all()

def test_an_answer_that_never_ends_is_not_right():
    s = Sum(47, 8)
    assert solver_rewards(TOKENIZER, [s], rows(s, "55", cut=True), False).sum() == 0
    assert_close(solver_rewards(TOKENIZER, [s], rows(s, "55", cut=True), True).sum(), torch.tensor(2 / 3))

def test_only_the_right_answer_collects_everything():
    s, rng = Sum(68, 7), random.Random(0)
    answers = [noisy_answer(s, rng, slip_prob=.4) for _ in range(200)]
    x = rows(s, *answers)
    dense, sparse = (solver_rewards(TOKENIZER, [s] * 200, x, d).sum(1) for d in (True, False))
    right = torch.tensor([a == solve(s.question) for a in answers])
    assert (sparse == 1).equal(right) and (dense > .999).equal(right) and right.any() and not right.all()

def test_writers_forget_to_carry():
    rng, n = random.Random(0), 4000
    assert {noisy_answer(Sum(47, 8), rng, 1., 0.) for _ in range(20)} == {"55"}
    assert {noisy_answer(Sum(47, 8), rng, 0., 0.) for _ in range(20)} == {"54"}
    assert {noisy_answer(Sum(41, 8), rng, 0., 0.) for _ in range(20)} == {"94"}
    share = sum(noisy_answer(Sum(47, 8), rng, .4, 0.) == "55" for _ in range(n)) / n
    assert abs(share - .4) < .03

def test_the_log_is_what_was_asked():
    asked, x = addition_dataset(TOKENIZER, [Sum(47, 8), Sum(12, 3)], 50, random.Random(0))
    again = addition_dataset(TOKENIZER, [Sum(47, 8), Sum(12, 3)], 50, random.Random(0))[1]
    assert x.ids.equal(again.ids) and len(x) == 50
    for s, row, m in zip(asked, x.ids, x.attention_mask & ~x.response_mask):
        assert TOKENIZER.decode(row[m]) == s.question
    with pytest.raises(ValueError, match="one sum per row"): solver_rewards(TOKENIZER, asked[:3], x, True)

def test_saved_results_hold_the_claims():
    saved = json.loads((Path(__file__).parents[1]/"nbs/results/arithmetic.json").read_text("utf-8"))
    def of(run, key="all"): return [r[key] for r in saved["rows"] if r["run"] == run]
    assert len(of("log")) == 5
    for way in ("Q sparse", "Q dense"):
        assert sum(of(way)) / 5 > max(of("log")) + .05 and sum(x > y for x, y in zip(of(way), of("copy"))) == 5
    assert min(of("copy the right")) > max(of("Q sparse"))

def test_saved_coverage_holds_the_claims():
    saved = read_rows(Path(__file__).parents[1]/"nbs/results/arithmetic_coverage.jsonl")
    def of(name, share, **changed):
        want = dict(carry_prob=share) | (dict(steps=400, right_share=0., alpha=1.) if name == "Q" else {}) | changed
        return [r for r in saved if r["name"] == name and want.items() <= r["settings"].items()]
    def carry(rows): return [r["found"]["carry"] for r in rows]
    for share in .1, .03:
        assert len(of("Q", share)) == 5 and min(carry(of("copy the right rows", share))) > max(carry(of("Q", share)))
    for changed in dict(steps=1200), dict(right_share=.5), dict(steps=1200, right_share=.5):  # each helps, alone and together
        found = difference(of("Q", .1, **changed), of("Q", .1), "carry", list(changed))
        assert found.holds and found.mean > .1 and found.differs.keys() == changed.keys()
    for alpha in .1, 0.: assert difference(of("Q", .1, alpha=alpha), of("Q", .1), "carry", ["alpha"]).mean < 0
    assert not any(r["found"]["no_carry"] for r in of("Q", .1, alpha=0.))                     # on sums that need no carry, too
    low = {share: sorted(round(r["found"]["all"], 2) for r in of("copy", share))[:2] for share in (.03, .4)}
    assert low == {.03: [.17, .45], .4: [.05, .53]}                                           # one imitator of each had collapsed
    again = [[round(r["found"]["carry"], 2) for r in of("Q", .4)], [round(r["carry"], 2) for r in json.loads(
        (Path(__file__).parents[1]/"nbs/results/arithmetic.json").read_text("utf-8"))["rows"] if r["run"] == "Q sparse"]]
    assert max(abs(a - b) for a, b in zip(*again)) < .0501                                    # the same five seeds, in two benchmarks

def test_writers_of_a_log_carry_as_often_as_asked():
    sums = [Sum(a, b) for a in range(10, 100) for b in range(10) if Sum(a, b).carries]
    for share, low, high in ((0., 0., .02), (1., .8, 1.)):
        asked, x = addition_dataset(TOKENIZER, sums, 300, random.Random(0), share)
        right = solver_rewards(TOKENIZER, asked, x, False).sum(1).mean()
        assert low <= right <= high
