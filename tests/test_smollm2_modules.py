"What chapters 20 to 24 add, one or two tiny steps each on SmolLM2-135M: the commands run, and numbers are numbers. Long."
import json, math, pytest
from pathlib import Path
from rlhf_nb.book.command import main

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread", "no_curves")]
RULES = '''import torch
from rlhf_nb.rubrics import rubric_reward

def even(prompts, responses): return [float(len(x) % 2) for x in responses]

def rubric(prompts, responses):
    marks = torch.tensor([[float("a" in x), float(len(x) > 9)] for x in responses])
    return rubric_reward(marks, torch.tensor([1., 2.]), torch.tensor([False, True])).tolist()

def second(tokenizer): # after the second token of a turn an environment says 7
    def environment(prompt, parts): return tokenizer(" 7").input_ids if len(parts) == 1 and len(parts[0]) == 2 else []
    return environment

def longer(answers): return [float(len(a) > len(b)) for _, a, b in answers]
'''
# 2 prompts, 2 answers of 8 tokens; the defaults are 256 answers of 64, and two passes over them
TINY = "--lora-r 4 --n-prompts 2 --max-new-tokens 8 --eval-rows 0 --micro-batch-size 4".split()
GROUPS = [*TINY, "-n", "2", "--num-iterations", "1"]

@pytest.fixture
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rules.py").write_text(RULES)
    Path("prompts.jsonl").write_text("".join(json.dumps(dict(prompt=f"Name a {x}.")) + "\n" for x in "bird fish tree city fruit river tool metal planet colour".split()))

@pytest.mark.parametrize("words", [
    "grpo --reward rules:even --n-iterations 3 --lag 2 --importance-sampling-cap 2", "distill --teacher M --n-iterations 2",
    "grpo --reward rules:rubric --n-iterations 1", "grpo --reward rules:even --n-iterations 1 --environment rules:second"],
    ids=["off_policy", "distillation", "rubrics", "tools"])
def test_a_module_trains_a_real_model(inside, smollm2, words):
    method, *more = [str(smollm2) if x == "M" else x for x in words.split()]
    size = TINY if method == "distill" else GROUPS
    assert main(["train", method, "prompts.jsonl", "-o", "o", "--model", str(smollm2), *more, *size]) == 0
    rows = [json.loads(line) for line in Path("o/log.jsonl").read_text("utf-8").splitlines()]
    numbers = [x for row in rows for x in row.values() if isinstance(x, float)]
    assert numbers and all(map(math.isfinite, numbers)) and Path("o/config.json").is_file()

def test_the_judge_command_compares_real_answers(inside, smollm2):
    for name, word in ("a", "short"), ("b", "a longer answer"):
        Path(f"{name}.jsonl").write_text("".join(json.dumps(dict(prompt=json.loads(x)["prompt"], response=word)) + "\n"
                                                 for x in Path("prompts.jsonl").read_text().splitlines()))
    words = ["--prompts", "prompts.jsonl", "--judge", str(smollm2), "-o", "won", "--max-new-tokens", "8"]
    assert main(["judge", "a.jsonl", str(smollm2), *words]) == 0
    assert len(Path("won/judged.jsonl").read_text("utf-8").splitlines()) == 10
