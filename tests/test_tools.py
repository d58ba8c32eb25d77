"Tools and turns: the calculator, turns and their credit by hand and by enumeration, votes; every command of the chapter."
import importlib, itertools, json, re, sys, pytest, torch
from pathlib import Path
from torch import tensor
from torch.testing import assert_close
from rlhf_nb.base.models import tiny_lm
from rlhf_nb.base.sampling import SamplingParams, generate
from rlhf_nb.book.command import main
from rlhf_nb.tools import calculator, majority_vote, tool_tokenizer, turn_advantages, turn_numbers
from tiny_runs import write_lines

ROOT = Path(__file__).resolve().parents[1]
TOK = tool_tokenizer()
NAN = float("nan")
def encode(text): return TOK(text).input_ids
def seeded(seed=0): return torch.Generator().manual_seed(seed)

@pytest.mark.parametrize("a", [0, 7, 10, 47, 95, 99])
@pytest.mark.parametrize("b", [0, 8, 15, 99])
def test_the_calculator_adds(a, b):
    call = f"{str(a)[::-1]}+{str(b)[::-1]}?"
    said = TOK.decode(calculator(TOK)([], [encode("1+1?"), encode(":2;"), encode(call)]))
    assert said[0] + said[-1] == ":;" and int(said[1:-1][::-1]) == a + b

@pytest.mark.parametrize("text", ["74+8", "74+?", "+8?", "?", "74?", "74+8?9", "74=8?"])
def test_what_is_no_call_gets_nothing(text): assert calculator(TOK)([], [encode(text)]) == []

def test_a_call_cut_off_in_another_part_is_none():
    assert calculator(TOK)([], [encode("74+"), encode(":2;"), encode("8?")]) == []      # the sum is not the model's newest part
    assert calculator(TOK)([], [encode("7?"), encode("5+8"), encode("?")]) == []         # nor is what another tool said
    assert TOK.decode(calculator(TOK)([], [encode("5+74+8?")])) == ":55;"               # of a longer sum the last two

def test_it_answers_in_a_rollout_until_the_limit():
    lm = tiny_lm(TOK, hidden=32, layers=1)
    with torch.no_grad(): lm.get_output_embeddings().weight.zero_()                     # all tokens alike
    seqs, _ = generate(lm, [encode("12+3=")] * 400, TOK, SamplingParams(12), seeded(1), calculator(TOK))
    texts = [TOK.decode(ids[real].tolist(), skip_special_tokens=True) for ids, real in zip(seqs.ids, seqs.attention_mask)]
    assert sum(bool(re.search(r"\d\+\d\?:\d+;", t)) for t in texts) >= 1
    gaps = [TOK.decode(ids[real & ~mask & (mask.cumsum(0) > 0)].tolist()) for ids, real, mask in
            zip(seqs.ids, seqs.attention_mask, seqs.response_mask)]
    for text, gap in zip(texts, gaps):
        assert re.fullmatch(r"(:\d+;)*(:\d*)?", gap) and gap in text or gap.count(":") > 1

# ---- turns
def test_turn_numbers_of_random_masks_are_those_of_a_loop():
    mask = torch.rand(50, 12, generator=seeded()) < .5
    got = turn_numbers(mask)
    for row, numbers in zip(mask.tolist(), got.tolist()):
        runs = [[j for j, _ in run] for on, run in itertools.groupby(enumerate(row), key=lambda x: x[1]) if on]
        want = [-1] * 12
        for k, run in enumerate(runs):
            for j in run: want[j] = k
        assert numbers == want

def test_one_turn_is_the_centred_reward_of_the_response():
    from rlhf_nb.grpo import group_centered
    reward, group = tensor([1., 0., 4., 2.]), tensor([3, 3, 5, 5])
    mask = tensor([[0, 1, 1], [0, 1, 0], [0, 1, 1], [0, 1, 1]]).bool()
    assert_close(turn_advantages(reward[:, None], group, turn_numbers(mask)), group_centered(reward, group)[:, None] * mask)

def test_advantages_by_hand():
    turn = tensor([[0, -1, 1, 1], [0, -1, 1, -1], [0, 0, -1, -1]])
    got = turn_advantages(tensor([[1., 2.], [0., 1.], [1., NAN]]), tensor([7, 7, 7]), turn)
    assert_close(got, tensor([[4/3, 0, .5, .5], [-2/3, 0, -.5, 0], [-2/3, -2/3, 0, 0]]))

def test_later_rewards_of_others_and_order_of_rows_change_nothing():
    reward = tensor([[1., 2.], [0., 1.], [1., NAN], [5., 2.]])
    group, turn = tensor([0, 0, 0, 1]), tensor([[-1, 0, -1, 1], [-1, 0, 0, 1], [-1, 0, 0, 0], [0, 0, -1, 1]])
    a = turn_advantages(reward, group, turn)
    order = tensor([2, 0, 3, 1])
    assert_close(turn_advantages(reward[order], group[order], turn[order]), a[order])
    other = reward.clone()
    other[3] = tensor([9., -9.])                                        # another group's
    assert_close(turn_advantages(other, group, turn)[:3], a[:3])
    other = reward.clone()
    other[:, 0] += tensor([4., 4., 4., 4.])                             # what all of a group earn before turn 1
    assert_close(turn_advantages(other, group, turn), a)
    assert (a[turn < 0] == 0).all()

def test_credit_per_turn_has_the_gradient_of_the_sum_with_less_variance():
    "Two turns of three choices by enumeration, groups of two: all 81 pairs of outcomes with their probabilities."
    one, two = (torch.randn(3, generator=seeded(s)).double().requires_grad_() for s in (1, 2))
    r1, r2 = tensor([0., 1., 3.]).double(), torch.randn(3, 3, generator=seeded(3)).double()
    p = one.softmax(0)[:, None] * two.softmax(0)
    exact = torch.cat(torch.autograd.grad((p * (r1[:, None] + r2)).sum(), [one, two]))
    p, turn, found = p.detach(), tensor([[0, -1, 1]] * 2), {}
    score = [[torch.cat(torch.autograd.grad(x.log_softmax(0)[i], [one, two], allow_unused=True, materialize_grads=True)) for i in range(3)]
             for x in (one, two)]
    for name in ("whole", "turns"):
        mean, square = 0., 0.
        for pair in itertools.product(itertools.product(range(3), range(3)), repeat=2):
            reward = torch.stack([torch.stack([r1[i], r2[i, j]]) for i, j in pair])
            a = turn_advantages(reward, tensor([0, 0]), turn)
            if name == "whole": a = turn_advantages(reward.sum(1, keepdim=True), tensor([0, 0]), turn.clamp(max=0))
            g = sum(a[k, 0] * score[0][i] + a[k, 2] * score[1][j] for k, (i, j) in enumerate(pair))   # group of 2: times (n - 1) / n, over 2 rows
            weight = p[pair[0]] * p[pair[1]]
            mean, square = mean + weight * g, square + weight * (g**2).sum()
        found[name] = square - (mean**2).sum()
        assert_close(mean, exact)
    assert found["turns"] < .9 * found["whole"]

# ---- votes
def test_votes_by_hand():
    assert majority_vote(["132", None, "122", "132"]) == "132" and majority_vote([None, None]) is None and majority_vote([]) is None
    assert majority_vote(["7", "5", "5", "7"]) == "7" and majority_vote([None, None, None, "1"]) == "1"

# ---- the page
def page(): return "\n".join("".join(c["source"]) for c in json.loads((ROOT/"nbs/23_tools.ipynb").read_text("utf-8"))["cells"])

def test_every_command_of_the_chapter_runs_with_its_functions(tmp_path, monkeypatch, capsys):
    "The functions as the page prints them, a model that writes calls now and then; the dry run leaves nothing."
    from rlhf_nb.data.text import train_tokenizer
    text = page()
    [code] = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    lines = re.findall(r"^rlhf-nb (train .*)$", text.replace("\\\n", ""), re.M)
    assert len(lines) == 2 and "def calculator" in code and "def right" in code
    monkeypatch.chdir(tmp_path)
    (tmp_path/"tools.py").write_text(code)
    monkeypatch.delitem(sys.modules, "tools", raising=False)
    importlib.invalidate_caches()
    write_lines("sums.jsonl", [dict(prompt=f"{a}+{b}", answer=str(a + b)) for a in range(10, 15) for b in range(4)])
    tok = train_tokenizer(["12+3? 15"] * 3, 262)
    lm = tiny_lm(tok, hidden=16, layers=1)
    with torch.no_grad():
        head = lm.get_output_embeddings().weight.zero_()
        lm.gpt_neox.final_layer_norm.bias += 1.
        for i in [tok.eos_token_id, *tok("1+?", add_special_tokens=False)["input_ids"]]: head[i] += .5
    lm.save_pretrained("m")
    tok.save_pretrained("m")
    small = "--n-iterations 1 --n-prompts 8 --eval-rows 4 --max-new-tokens 24".split()
    for i, line in enumerate(sorted(lines, key=lambda x: "--dry-run" not in x)):
        line = line.replace("runs/tools", "o").replace("runs/sft", "m")
        assert main([*line.split(), *small]) == 0 and Path("o/run.json").exists() == bool(i)
    spec = importlib.util.spec_from_file_location("page_tools", tmp_path/"tools.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    def asked(said): return module.calculator([dict(role="user", content="12+3"), dict(role="assistant", content=said)])
    assert asked("12+3?") == "15" and asked("It is 15") is None and asked("12+?") is None
    assert module.right(["12+3"] * 2, ["12+3?\nuser\n15\nassistant\n15", "12"], answer=["15", "15"]) == [1., 0.]
