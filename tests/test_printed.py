"Commands that a sentence of a chapter names in passing, run as printed with tiny models and files."
import contextlib, io, json, re, shlex, shutil, pytest
from pathlib import Path
from rlhf_nb.book.command import main
from rlhf_nb.run.methods import WORLD_REGISTRY
from rlhf_nb.run.train_command import RECIPES
from tiny_runs import JUDGE, pair_rows, rows_in, write_lines

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.usefixtures("one_thread", "no_curves", "inside")
SMALL = "--n-steps 2 --batch-size 4 --eval-rows 4".split()

def in_text(name, words): # the one command of a page, in backticks, that begins so
    cells = json.loads((ROOT/f"nbs/{name}.ipynb").read_text("utf-8"))["cells"]
    text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    [line] = re.findall(rf"`rlhf-nb ({re.escape(words)}[^`]*)`", re.sub(r"\s+", " ", text))       # a line may end in a command
    return line.split()

def test_ratings_are_learned_from_their_column():
    write_lines("rated.jsonl", [dict(prompt=x["prompt"], response=x["chosen"], stars=i % 5 + 1) for i, x in enumerate(pair_rows())])
    for more in ([], ["--n-bins", "5", "-o", "o"]):
        assert main([*in_text("05_reward", "train reward rated"), "--model", "m", *SMALL, *more]) == 0
    plain, bins = (json.loads(Path(x, "run.json").read_text())["results"] for x in ("runs/rated", "o"))
    assert plain["eval_loss"] == pytest.approx(plain["eval_mse"]) and bins["eval_loss"] != pytest.approx(bins["eval_mse"])

def test_all_turns_of_a_chat_are_an_episode():
    rows = [dict(x, reward=i % 3) for i, x in enumerate(rows_in("chats.jsonl"))]
    write_lines("chats.jsonl", rows)
    line = [x.replace("runs/sft", "m") for x in in_text("16_qlearning", "train q chats")]
    assert main([*line, *SMALL]) == 0 and json.loads(Path("runs/q/run.json").read_text())["settings"]["turns"] == "all"

def test_the_recipe_of_self_rewarding_is_printed_and_run(monkeypatch, capsys):
    "As it is shipped, with a tiny model and judge, files of ours and fewer answers in the place of the paper's."
    assert main(in_text("14_self_reward", "train --list")) == 0
    small = re.sub(r"(ift_eft|prompts)\.jsonl", "pairs.jsonl", capsys.readouterr().out.replace("meta-llama/Llama-2-70b-hf", "m"))
    for key, n in dict(n_prompts=12, n_pairs=6, batch_size=3, n_steps=2, max_new_tokens=5, judge_max_new_tokens=5, max_length=64).items():
        assert re.search(rf"^{key} = ", small, re.M) or key == "n_steps", key
        small = re.sub(rf"^{key} = .*$", f"{key} = {n}", small, flags=re.M)
    monkeypatch.setitem(RECIPES, "self-rewarding", small)
    monkeypatch.setitem(WORLD_REGISTRY.judges, "additive", JUDGE)
    assert main([*in_text("14_self_reward", "pipeline run")]) == 0
    steps = [json.loads(Path(f"runs/paper/{x}/run.json").read_text())["results"] for x in ("01-sft", "02-self_reward", "03-self_reward")]
    assert steps[0]["steps"] > 0 and all(x["pairs"] > 0 for x in steps[1:])

def test_a_kind_of_attention_is_chosen_or_refused_in_a_sentence(capsys):
    [option] = re.findall(r"`(--attn-implementation \w+)`", (ROOT/"nbs/19_your_model.ipynb").read_text("utf-8"))
    line = ["train", "dpo", "pairs.jsonl", "-o", "o", "--model", "m", *SMALL]
    assert main([*line, *option.split()]) == 2
    said = capsys.readouterr().err
    assert "attn_implementation 'flash_attention_2': leave it out" in said and "Traceback" not in said and not Path("o/run.json").exists()
    assert main([*line, "--attn-implementation", "eager"]) == 0

def test_the_road_of_chapter_19_is_the_command_that_was_measured(monkeypatch):
    "As printed, with a tiny model in the recipe's folder and two steps; the benchmark ran the same words."
    text = "\n".join("".join(c["source"]) for c in json.loads((ROOT/"nbs/19_your_model.ipynb").read_text("utf-8"))["cells"])
    [line] = re.findall(r"^rlhf-nb (train dpo pairs_96[^`]*?)\n```", text, re.M)
    words = line.replace("\\\n", " ").split()
    write_lines("pairs_96.jsonl", pair_rows()[:6])
    shutil.copytree("m", "smollm2")
    assert main([*words, "--max-steps", "2"]) == 0
    saved = json.loads(Path("runs/road/run.json").read_text())["settings"]
    measured = [json.loads(x)["settings"] for x in (ROOT/"nbs/results/smollm2_road.jsonl").read_text("utf-8").splitlines()]
    [row] = [json.loads(y) for y in {json.dumps(x, sort_keys=True) for x in measured if x.get("beta") and x["prompts"] == "held"
                                     and x["lr"] == saved["lr"]}]
    assert {k: saved[k] for k in ("lr", "batch_size", "lora_r", "beta")} == {k: row[k] for k in ("lr", "batch_size", "lora_r", "beta")}
    assert f"--max-steps {row['n_steps']}" in line and saved["model"] == "smollm2" and saved["eval_rows"] == 0

def test_the_picks_of_chapter_19_are_the_commands_that_were_measured():
    "As printed: a scorer from scratch on 48 rows, one step, and a tiny model in the place of SmolLM2."
    text = "\n".join("".join(c["source"]) for c in json.loads((ROOT/"nbs/19_your_model.ipynb").read_text("utf-8"))["cells"])
    [(scorer, best)] = re.findall(r"^rlhf-nb (train reward polite_3.*)\nrlhf-nb (best-of-n smollm2[^`]*?)\n```", text, re.M)
    write_lines("polite_3.jsonl", pair_rows(48))
    write_lines("held.jsonl", [dict(prompt=x["prompt"]) for x in pair_rows(3)])
    shutil.copytree("m", "smollm2")
    assert main([*scorer.split(), "--max-steps", "1"]) == 0
    assert main(best.replace("\\\n", " ").split()) == 0
    assert [r["prompt"] for r in rows_in("best.jsonl")] == [x["prompt"] for x in pair_rows(3)]
    [row] = [json.loads(y) for y in {json.dumps(r["settings"]) for r in rows_in(ROOT/"nbs/results/smollm2_road.jsonl") if r["name"] == "best"}]
    assert f"-n {row['best_of']} --max-new-tokens {row['tokens']} " in best

def test_every_command_that_chapter_19_prints_is_run(inside):
    "In the page's order: a tiny model under each name, one step, small files; the script for TRL is compiled."
    text = "\n".join("".join(c["source"]) for c in json.loads((ROOT/"nbs/19_your_model.ipynb").read_text("utf-8"))["cells"])
    pythia, rows = "cleanrl/EleutherAI_pythia-1b-deduped__", pair_rows()
    for there, here in (("smollm2", "m"), (f"{pythia}sft__tldr", "m"), (f"{pythia}reward__tldr", "rm")): shutil.copytree(here, there)
    for name in ("polite", "polite_2", "polite_3"): write_lines(f"{name}.jsonl", rows)
    for name in ("posts", "held"): write_lines(f"{name}.jsonl", [dict(prompt=x["prompt"]) for x in rows])
    write_lines("sums.jsonl", [dict(prompt=x["prompt"], answer=i) for i, x in enumerate(rows)])
    [rule] = re.findall(r"Path\(\"sums_reward.py\"\).write_text\('''(.*?)'''\)", text, re.S)
    Path("sums_reward.py").write_text(rule.replace("\\\\", "\\"))
    assert main(["train", "sft", "pairs.jsonl", "-o", "runs/picks", "--model", "m", *SMALL]) == 0     # by the chapter's own cells
    few = dict(grpo="--n-iterations 1 --n-prompts 2 --max-new-tokens 3", ppo="--n-iterations 1 --n-prompts 4 --n-minibatches 1 --max-new-tokens 3 --eval-rows 4")
    lines = [x for block in re.findall(r"```bash\n(.*?)```", text, re.S) for x in block.replace("\\\n", " ").splitlines()]
    ran = []
    for words in (shlex.split(x, comments=True) for x in lines):
        program, *words = words
        if program == "head":
            n, source, arrow, target = words
            Path(target).write_text("".join(Path(source).read_text().splitlines(True)[:-int(n)]))
        elif program == "python": compile(Path(words[0]).read_text(), words[0], "exec")
        else:
            assert program == "rlhf-nb", program
            said, target = io.StringIO(), words.pop() if ">" in words else ""
            if target: words.remove(">")
            if words[:2] in (["train", "reward"], ["train", "dpo"]): words += ["--max-steps", "1", "--batch-size", "2", "--eval-rows", "4"]
            if words[0] == "train": words += few.get(words[1], "").split()
            if "7b-lora-dpo" in words: words += ["--model", "m"]
            if words[0] == "best-of-n": words += ["--max-new-tokens", "3"]
            with contextlib.redirect_stdout(said): assert main(words) == 0, words
            if target: Path(target).write_text(said.getvalue())
            ran.append(words[1] if words[0] == "train" else words[0])
    assert ran == "grpo reward dpo dpo reward best-of-n --list ppo ppo dpo export".split()
    [snippet] = [x for x in re.findall(r"```python\n(.*?)```", text, re.S) if "gpu = " in x]
    from rlhf_nb.base.models import choose_placement, load_lm, load_reward_model
    from rlhf_nb.run.text_rewards import score_texts
    scope = dict(choose_placement=choose_placement, load_lm=load_lm, load_reward_model=load_reward_model, score_texts=score_texts,
                 posts=["The owl sleeps TL;DR:", "The fox TL;DR:"], summaries=["owl!", "The fox eats"])
    body, last = snippet.replace('"cuda"', '"cpu"').split("score_texts(", 1)
    exec(f"{body}scores = score_texts({last}", scope)
    assert len(scope["scores"]) == 2 and scope["scores"].isfinite().all()

def test_the_speed_of_sampling_is_the_one_that_was_measured():
    saved = json.loads((ROOT/"benchmarks/results/generation.json").read_text())
    idle, busy = ({x["case"]: x["ratio"] for x in r["results"]} for r in (saved, saved["busy"]))
    text = " ".join("".join(c["source"]) for c in json.loads((ROOT/"nbs/engine/base/sampling.ipynb").read_text("utf-8"))["cells"])
    said = re.findall(r"^\| [^|]+ \| (\d?\.\d+) \| (\d?\.\d+) \| (\d?\.\d+) \|$", text, re.M)
    want = [(idle[x]["transformers"], busy[x]["transformers"], busy[x]["floor"]) for x in idle]
    assert said == [tuple(f"{y:.2f}".lstrip("0") for y in row) for row in want]
    assert abs(idle["all run to 32"]["bare"] - 1) < .03 and all(busy[x]["floor"] > .5 for x in ("all run to 32", "sft answers"))
