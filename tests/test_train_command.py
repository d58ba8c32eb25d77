"One command, five tasks: recipes against flags, plans that write nothing, runs of DPO and rewards with margins."
import json, re, tomllib
from dataclasses import asdict, fields, replace
from pathlib import Path
import pytest, torch
from transformers import AutoModelForCausalLM
from rlhf_nb import recipes
from rlhf_nb.models import weight_hash
from rlhf_nb.recipes import RunConfig, train
from rlhf_nb.rl_recipes import RLRunConfig
from rlhf_nb.train_command import RECIPES, _config_of, read_recipe, resumed_config
from rlhf_nb.runs import write_marker
from rlhf_nb.workbook import main
from test_recipes import data, parsed, runs                 # fixtures

@pytest.mark.parametrize("name", RECIPES)
def test_every_shipped_recipe_is_a_config(name):
    found = read_recipe(name)
    kind = RLRunConfig if found["task"] in ("ppo", "grpo") else RunConfig
    config = kind(**dict(data="d.jsonl", output_dir="o", reward="a:b") | found) if kind is RLRunConfig else kind(
        **dict(data="d.jsonl", output_dir="o") | found)
    assert config.task == found["task"] and "about" in tomllib.loads(RECIPES[name])

def test_a_recipe_says_the_same_as_flags_and_flags_win(tmp_path):
    path = tmp_path/"r.toml"
    path.write_text('about = "x"\ntask = "dpo"\ndata = "p.jsonl"\nmodel = "m"\nlora_r = 8\nbeta = 0.3\nseed = 4\nstrict = false\n'
                    'gradient_checkpointing = true\n')
    flags = "train dpo p.jsonl -o o --model m --lora-r 8 --beta .3 --seed 4 --skip-invalid --gradient-checkpointing"
    assert _config_of(parsed(f"train dpo -o o --recipe {path}")) == _config_of(parsed(flags))
    config = _config_of(parsed(f"train dpo q.jsonl -o o --recipe {path} --beta .1 --seed 5"))
    assert (config.data, config.beta, config.seed, config.lora_r) == ("q.jsonl", .1, 5, 8)    # .1 is the default, and was given

@pytest.mark.parametrize("text, error", [
    ('task = "dpo"\nlora_rank = 4\n', "unknown field 'lora_rank', the nearest is 'lora_r'"), ("task = [", "is no TOML"),
    ("lora_r = 4\n", "task must be one of"), ('task = "kto"\n', "task must be one of sft"), ('task = "sft"\nreward = "a:b"\n', "unknown field 'reward'")])
def test_a_recipe_that_is_no_good(text, error, tmp_path, capfd):
    path = tmp_path/"r.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(error)): read_recipe(str(path))
    assert main(["train", "dpo", "d.jsonl", "-o", str(tmp_path/"o"), "--recipe", str(path)]) == 2
    assert "Traceback" not in capfd.readouterr().err
    with pytest.raises(ValueError, match="smollm2-dpo"): read_recipe("smolm2-dpo")

def test_list_and_words(capfd, tmp_path):
    assert main(["train", "--list"]) == 0
    said = capfd.readouterr().out
    assert all(name in said for name in RECIPES)
    assert main(["train", "--list", "tldr-ppo"]) == 0 and 'task = "ppo"' in capfd.readouterr().out
    assert main(["train", "--list", "nothing"]) == 2
    assert main(["train", "sft", "d.jsonl", "-o", str(tmp_path/"o"), "--recipe", "tldr-ppo"]) == 2
    assert "is for ppo: rlhf-nb train ppo" in capfd.readouterr().err
    with pytest.raises(SystemExit): main(["train", "ppo", "d.jsonl", "-o", "o"])
    assert "ppo needs --model and --reward" in capfd.readouterr().err
    with pytest.raises(SystemExit): main(["train"])
    assert "name a task: sft, reward, dpo, ppo, grpo" in capfd.readouterr().err

@pytest.mark.parametrize("task", ["sft", "reward", "dpo", "ppo", "grpo"])
def test_a_dry_run_of_every_task_reads_no_weights(task, data, runs, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(recipes, "load_lm", lambda *args: 1 / 0)
    (tmp_path/"rules_dry.py").write_text("def f(prompts, responses): return [0.] * len(prompts)\n")
    monkeypatch.chdir(tmp_path)
    line = ["train", task, str(data), "-o", "out", "--model", runs[0].config.output_dir, "--dry-run", "--lora-r", "4"]
    if task in ("ppo", "grpo"): line += ["--reward", "rules_dry:f"]
    assert main(line) == 0 and not Path("out").exists()
    said = capfd.readouterr().out
    n = sum(p.numel() for p in runs[0].model.parameters())
    for words in ("48 to learn from, 12 held out", "60  kept", "needs about", "this machine has free", "nothing was trained or written"):
        assert words in said, said
    assert int(re.search(r"of ([\d,]+) weights trained", said)[1].replace(",", "")) > n       # adapters included

def test_dpo_learns_the_pairs_and_beta_counts(data, runs, tmp_path):
    config = RunConfig("dpo", str(data), str(tmp_path/"a"), model=runs[0].config.output_dir, max_steps=12, batch_size=8, lr=1e-3)
    run = train(config)
    assert run.results["eval_accuracy"] == 1 and run.results["eval_loss"] < .65 and run.results["eval_margin"] > .1
    first = next(row for row in run.trainer.log.rows if "loss" in row)
    assert first["loss"] == pytest.approx(.6931, abs=1e-3) and abs(first["rewards/margins"]) < 1e-4     # dropout is off
    saved = AutoModelForCausalLM.from_pretrained(config.output_dir)
    assert weight_hash(saved) == weight_hash(run.model)
    other = train(replace(config, output_dir=str(tmp_path/"b"), beta=.5))
    assert weight_hash(other.model) != weight_hash(run.model)
    again = train(replace(config, output_dir=str(tmp_path/"c")))
    assert weight_hash(again.model) == weight_hash(run.model)

@pytest.mark.parametrize("task", ["sft", "reward", "dpo"])
def test_gradient_checkpointing_and_accumulation_change_nothing(task, data, runs, tmp_path):
    config = RunConfig(task, str(data), str(tmp_path/"a"), model=runs[0].config.output_dir, max_steps=3, batch_size=8, seed=3)
    def losses(**more):
        run = train(replace(config, output_dir=str(tmp_path/str(len(list(tmp_path.iterdir())))), **more))
        return [row["loss"] for row in run.trainer.log.rows if "loss" in row]
    want = losses()
    assert losses(gradient_checkpointing=True) == pytest.approx(want, rel=1e-4)     # dropout draws the same again
    if task == "dpo": assert losses(micro_batch_size=2) == pytest.approx(want, rel=1e-4)      # and has none here

def test_layers_are_computed_again_in_dpo(data, runs, tmp_path, monkeypatch):
    calls, real = [], recipes.checkpoint_layers
    def spy(model):
        real(model)
        layer = model.base_model.layers[0]
        run = layer._gradient_checkpointing_func
        layer._gradient_checkpointing_func = lambda *args, **kwargs: calls.append(1) or run(*args, **kwargs)
    monkeypatch.setattr(recipes, "checkpoint_layers", spy)
    train(RunConfig("dpo", str(data), str(tmp_path/"a"), model=runs[0].config.output_dir, max_steps=2, batch_size=8, gradient_checkpointing=True))
    assert len(calls) >= 2

def test_margins_of_the_file(data, tmp_path):
    rows = [json.loads(x) | dict(score_chosen=9., score_rejected=1.) for x in data.read_text().splitlines()]
    path = tmp_path/"scored.jsonl"
    path.write_text("".join(json.dumps(x) + "\n" for x in rows))
    config = RunConfig("reward", str(path), str(tmp_path/"a"), max_steps=2, batch_size=8)
    plain, wide = train(config), train(replace(config, output_dir=str(tmp_path/"b"), margins=True))
    first = [next(row["loss"] for row in run.trainer.log.rows if "loss" in row) for run in (plain, wide)]
    assert first[1] > first[0] + 5                                             # a gap of 8 is asked for
    with pytest.raises(ValueError, match="has no margins: add a column"):
        train(RunConfig("reward", str(data), str(tmp_path/"c"), max_steps=2, margins=True))

def test_other_files_train_too(data, runs, tmp_path):
    rows = [json.loads(x) for x in data.read_text().splitlines()]
    (tmp_path/"pairs.json").write_text(json.dumps(rows))
    run = train(RunConfig("sft", str(tmp_path/"pairs.json"), str(tmp_path/"a"), max_steps=12, batch_size=8))
    assert weight_hash(run.model) == weight_hash(runs[0].model)
    assert "JSON" in run.report.tokenized_with and len((tmp_path/"a"/"held_out.jsonl").read_text().splitlines()) == 12

def test_resumed_config_of_a_run(data, tmp_path, monkeypatch):
    config = RunConfig("sft", str(data), str(tmp_path/"a"), max_steps=30, batch_size=8, turns="last")
    real = recipes.finish_run
    monkeypatch.setattr(recipes, "finish_run", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt): train(config)
    monkeypatch.setattr(recipes, "finish_run", real)
    got, place = resumed_config(str(tmp_path/"a"))
    assert got == replace(config, output_dir=str((tmp_path/"a").resolve())) and Path(place).is_dir()
    assert main(["train", "--resume", str(tmp_path/"a")]) == 0
    work, removed = tmp_path/"a"/"work", tmp_path/"a"/"work.removed"        # a kill when all was done but the removal
    write_work = lambda place: (place.mkdir(), write_marker(place/"work.json", "rlhf-nb train", files=[],
        run=json.loads((tmp_path/"a"/"run.json").read_text())["run"]))
    write_work(removed)
    assert main(["train", "--resume", str(tmp_path/"a")]) == 2 and not removed.exists()
    write_work(work)
    assert main(["train", "--resume", str(tmp_path/"a")]) == 0 and not work.exists()
    removed.mkdir(); (removed/"notes.txt").write_text("mine")               # somebody else's
    assert main(["train", "--resume", str(tmp_path/"a")]) == 2 and (removed/"notes.txt").exists()

def test_the_help_of_a_task_shows_what_it_reads(capfd):
    of_one = dict(turns="sft", margins="reward", beta="dpo ppo grpo", critic_lr="ppo", missing_eos_penalty="ppo", n_minibatches="ppo",
                  num_generations="grpo", reward="ppo grpo")
    for task in ("sft", "reward", "dpo", "ppo", "grpo"):
        with pytest.raises(SystemExit): main(["train", task, "--help"])
        shown = capfd.readouterr().out
        for name, tasks in of_one.items():
            assert (f"--{name.replace('_', '-')} " in shown) == (task in tasks.split()), (task, name)

def test_the_help_says_what_a_start_is(capfd):
    "A policy is not made from scratch by PPO; the other tasks begin with a tiny model."
    for task in ("sft", "reward", "dpo", "ppo", "grpo"):
        with pytest.raises(SystemExit): main(["train", task, "--help"])
        words = re.search(r"--model-name-or-path DIR_OR_ID(.*?)--l", " ".join(capfd.readouterr().out.split()).replace("--reward", "--l"))[1]
        assert ("tiny" in words) == (task not in ("ppo", "grpo")) and ("the recipe's" in words) == (task in ("ppo", "grpo")), words

@pytest.mark.parametrize("line, error", [("model = 3", "RunConfig.model must be a text, got 3"), ('max_steps = "4"', "max_steps must be a whole number, got '4'"),
    ("lora_r = 2.5", "lora_r must be a whole number"), ("[model]\na = 1", "model must be a text"), ('strict = "yes"', "strict must be True or False"),
    ("lr = nan", "lr must be a finite number"), ("max_steps = -1", "max_steps must be 0 or more"), ("margins = true", "margins is a setting of reward"),
    ('lora_targets = ["q_proj"]', "lora_targets must be a text"), ("modle = 'a'", "unknown field 'modle', the nearest is 'model'"),
    ("zzz = 1", "unknown field 'zzz', there are lora_r, "), ("model = '\xe9'", "is no TOML: 'utf-8' codec")])
def test_a_wrong_value_of_a_recipe_is_told_with_its_file(line, error, tmp_path, capfd):
    path = tmp_path/"r.toml"
    path.write_bytes(f'task = "sft"\n{line}\n'.encode("latin-1"))
    assert main(["train", "sft", "d.jsonl", "-o", str(tmp_path/"o"), "--recipe", str(path)]) == 2
    said = capfd.readouterr().err
    assert f"rlhf-nb train: {path}" in said and error in said and "Traceback" not in said

@pytest.mark.parametrize("words, error", [("--lrr 3", "no option --lrr, the nearest is --lr"), ("--lora-rank=4", "no option --lora-rank, the nearest is --lora-r"),
    ("--max_step 3 --zzz", "no option --zzz, --help lists"), ("--reward a:b", "no option --reward")])
def test_an_unknown_option_is_told_with_the_nearest(words, error, capfd):
    with pytest.raises(SystemExit) as stop: main(["train", "sft", "d.jsonl", "-o", "o", *words.split()])
    assert stop.value.code == 2 and error in capfd.readouterr().err

def test_a_model_that_a_command_fetches_is_told_with_the_command(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "dpo", "d.jsonl", "-o", "o", "--recipe", "smollm2-dpo"]) == 2
    assert "no folder smollm2: `rlhf-nb fetch smollm2 smollm2` makes it" in capfd.readouterr().err
    Path("smollm2").mkdir()
    assert main(["train", "dpo", "d.jsonl", "-o", "o", "--recipe", "smollm2-dpo"]) == 2 and "tokenizer" in capfd.readouterr().err

@pytest.mark.parametrize("name", RECIPES)
def test_a_dry_run_of_every_shipped_recipe(name, data, runs, tmp_path, capfd, monkeypatch):
    "With a model that is here in place of the one that the recipe names; its other fields arrive."
    monkeypatch.chdir(tmp_path)
    (tmp_path/"rule_rec.py").write_text("def f(prompts, responses): return [0.] * len(prompts)\n")
    found = read_recipe(name)
    line = ["train", found["task"], str(data), "-o", "out", "--recipe", name, "--dry-run"]
    if "model" in found: line += ["--model", runs[0].config.output_dir]
    if found["task"] in ("ppo", "grpo"): line += ["--reward", "rule_rec:f"]
    assert main(line) == 0 and not Path("out").exists()
    said = " ".join(capfd.readouterr().out.split())
    assert "needs about" in said and "48 to learn from, 12 held out" in said
    for key, value in found.items():
        if key in ("lr", "beta", "num_generations", "n_prompts", "micro_batch_size", "missing_eos_penalty"): assert f"{key}={value}" in said, key
