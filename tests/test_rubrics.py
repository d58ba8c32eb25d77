"Rubrics: shares and sums by hand, invariances, gradients by exact sums, the chapter's commands."
import json, math, re, pytest, torch
from itertools import product
from pathlib import Path
from torch import tensor
from torch.testing import assert_close
from rlhf_nb.book.command import main
from rlhf_nb.grpo import group_normalised
from rlhf_nb.rubrics import normalised_sum, rubric_reward
from rlhf_nb.trainers.ppo_trainer import WeightedRewards
from tiny_runs import rows_in

ROOT = Path(__file__).resolve().parents[1]
NAN = math.nan
def seeded(seed=0): return torch.Generator().manual_seed(seed)

# ---- one number of a list
def test_points_by_hand_with_a_fault_and_a_gate():
    marks = tensor([[1., 0, 0], [1, 1, 1], [0, 1, 0], [1, 0, 1], [1, 1, 0]])
    weights, gate = tensor([3., 1, -2]), tensor([1, 0, 0]).bool()
    assert_close(rubric_reward(marks, weights, gate), tensor([.75, .5, 0., .25, 1.]))
    assert_close(rubric_reward(marks, weights, ~gate), tensor([0., .5, 0., 0., 0.]))
    assert_close(rubric_reward(marks, weights, gate & False), tensor([.75, .5, .25, .25, 1.]))
    assert_close(rubric_reward(marks.double(), 7 * weights.double(), gate), tensor([.75, .5, 0., .25, 1.]).double())   # points have no unit

def test_all_gates_are_all_or_nothing_and_a_gate_only_takes():
    marks, weights = torch.randint(2, (64, 5), generator=seeded()).float(), torch.rand(5, generator=seeded(1)) + .1
    assert_close(rubric_reward(marks, weights, torch.ones(5).bool()), marks.all(1).float())
    free = rubric_reward(marks, weights, torch.zeros(5).bool())
    for k in range(5):
        gated = rubric_reward(marks, weights, torch.arange(5) == k)
        assert_close(gated, free * marks[:, k])
        assert (gated <= free).all() and (gated < free).any()

# ---- several rewards, each in its group
def test_normalised_sum_by_hand():
    rewards = tensor([[0., 0], [0, 1], [0, 1], [1, 1]])
    assert_close(normalised_sum(rewards, tensor([1., 2]), torch.zeros(4)), tensor([-3.5, .5, .5, 2.5]), rtol=1e-3, atol=0)
    pairs = tensor([[0., 0], [0, 1], [0, 0], [1, 1]])                       # the GDPO paper's example: sums 1 and 2 are told apart
    h = .5**.5
    assert_close(normalised_sum(pairs, torch.ones(2), tensor([0, 0, 1, 1])), tensor([-h, h, -2 * h, 2 * h]), rtol=1e-3, atol=0)
    some = normalised_sum(tensor([[NAN, NAN], [1., 3], [4, NAN], [0, 7]]), torch.ones(2), torch.zeros(4))
    s = (13 / 3)**.5                                                        # std of 1, 4, 0
    assert_close(some, tensor([NAN, -2 / 3 / s - h, 7 / 3 / s, -5 / 3 / s + h]), rtol=1e-3, atol=0, equal_nan=True)

def test_units_order_and_one_reward():
    x, group = torch.rand(12, 3, generator=seeded(2)).double(), tensor([0, 1, 2] * 4)
    w = tensor([1., -.5, 3]).double()
    a, order = normalised_sum(x, w, group), torch.randperm(12, generator=seeded(3))
    assert_close(normalised_sum(x * tensor([1., 100, 1000]) + tensor([5., -7, 0]), w, group), a, rtol=2e-3, atol=2e-3)
    assert_close(normalised_sum(x[order], w, group[order] + 4), a[order])
    assert_close(normalised_sum(x[:, :1], w[:1], group), group_normalised(x[:, 0], group))
    assert_close(normalised_sum(x, 2 * w, group), 2 * a)
    parts = WeightedRewards({str(k): (w[k].item(), lambda seqs, k=k: x[:, k]) for k in range(3)})
    parts(None)
    assert_close(parts.apart(4), normalised_sum(x.float(), w.float(), torch.arange(12) // 4))

@pytest.mark.parametrize("k", [2, 3, 4])
def test_apart_each_item_is_pushed_along_its_own_gradient_exactly(k):
    "All groups of k of six answers with any probabilities; what chapter 22 shows on the tree."
    z = torch.randn(6, generator=seeded(k)).double().requires_grad_()
    marks = tensor([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [1, 1, 1]]).double()
    p, total = z.softmax(0).detach(), 0.
    for rows in product(range(6), repeat=k):
        a = normalised_sum(marks[list(rows)], tensor([1., 2, .5]).double(), torch.zeros(k))
        total = total + p[list(rows)].prod() * sum(a[i] * z.log_softmax(0)[r] for i, r in enumerate(rows)) / k
    got, = torch.autograd.grad(total, z, retain_graph=True)
    want = 0.
    for w, m in zip((1., 2., .5), marks.T):
        q, push = (p @ m).item(), 0.
        for j in range(1, k): # j of k meet it: those above by 1 - j/k, the others below by j/k, over the std of the group
            std = math.sqrt(j * (k - j) / k / (k - 1)) + 1e-4
            push += math.comb(k, j) * q**j * (1 - q)**(k - j) * j * (1 - j / k) / std
        own, = torch.autograd.grad((z.softmax(0) * m).sum(), z, retain_graph=True)
        want = want + w * push / (k * q * (1 - q)) * own
    assert_close(got, want)

# ---- the chapter
RULES = """
def right(prompts, responses): return [float(len(x) % 3) for x in responses]
def polite(prompts, responses): return [None if len(x) % 2 else 1. for x in responses]
"""

@pytest.mark.usefixtures("one_thread", "no_curves", "inside")
def test_every_command_of_the_chapter_runs():
    "On a tiny model; the dry run leaves nothing, and the log has mean and spread of each reward."
    text = "\n".join("".join(c["source"]) for c in json.loads((ROOT/"nbs/22_rubrics.ipynb").read_text("utf-8"))["cells"])
    lines = re.findall(r"^rlhf-nb (train .*)$", text.replace("\\\n", ""), re.M)
    assert len(lines) == 2
    Path("rules22.py").write_text(RULES)
    small = "--n-iterations 2 --n-prompts 4 --eval-rows 6 --max-new-tokens 4".split()
    for line in sorted(lines, key=lambda x: "--dry-run" not in x):
        for a, b in (("prompts.jsonl", "pairs.jsonl"), ("runs/list", "o"), ("runs/sft", "m"), ("rules:", "rules22:"), ('"', "")): line = line.replace(a, b)
        assert main([*line.split(), *small]) == 0 and Path("o/run.json").exists() == ("--dry-run" not in line)
    rows = [row for row in rows_in(next(Path("o").rglob("*log.jsonl"))) if "iteration" in row]
    assert len(rows) == 2 and all(f"rewards/rules22:{k}/{x}" in row for row in rows for k in ("right", "polite") for x in ("mean", "std"))
