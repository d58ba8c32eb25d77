"PPO and GRPO from a file: interrupted and resumed, with LoRA and bf16, refused before anything is written."
import importlib, json, os, shutil, signal, sys
from dataclasses import replace
from pathlib import Path
import pytest, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from rlhf_nb import models, recipes, rl_recipes, sampling
from rlhf_nb.models import load_bundled, save_reward_model, weight_hash
from rlhf_nb.ppo_trainer import RewardError
from rlhf_nb.rl_recipes import RLRunConfig, held_out_rewards, make_critic, rl_config, train_rl
from rlhf_nb.runs import foreign_files
from rlhf_nb.workbook import main
from rlhf_nb.world_text import TRAIN
from test_runs import dies_at

RULES = "def short(prompts, responses): return [-len(r) / 100 for r in responses]\n"

pytestmark = pytest.mark.usefixtures("one_thread")

@pytest.fixture(scope="module")
def home(tmp_path_factory):
    "A folder with a policy, a reward model, prompts, and a reward function."
    home = tmp_path_factory.mktemp("rl")
    lm, tokenizer = load_bundled("sft")
    lm.save_pretrained(home/"sft"); tokenizer.save_pretrained(home/"sft")
    save_reward_model(*load_bundled("reward"), home/"rm")
    (home/"prompts.jsonl").write_text("".join(json.dumps(dict(prompt=q.text, kind="q")) + "\n" for q in TRAIN[:24]))
    (home/"rules_rl.py").write_text(RULES)
    return home

@pytest.fixture(autouse=True)
def inside(home, monkeypatch): monkeypatch.chdir(home)

def small(tmp_path, task="grpo", **more):
    settings = dict(reward="rules_rl:short", n_iterations=3, n_prompts=4, max_new_tokens=8, micro_batch_size=16,
                    eval_rows=6, beta=.01)
    if task == "grpo": settings |= dict(num_generations=4)
    return RLRunConfig(task, "prompts.jsonl", str(tmp_path/"run"), "sft", **settings | more)

@pytest.mark.parametrize("task, more", [("ppo", {}), ("grpo", {}), ("ppo", dict(reward="rm")), ("grpo", dict(lora_r=4)),
    ("ppo", dict(lora_r=4, mixed_precision="bf16")), ("ppo", dict(mixed_precision="bf16", gradient_checkpointing=True, reward="rm"))],
    ids=str)
def test_runs_and_what_they_leave(task, more, tmp_path, capfd):
    config = small(tmp_path, task, **dict(n_iterations=2) | more)
    run = train_rl(config)
    out = Path(config.output_dir)
    saved = AutoModelForCausalLM.from_pretrained(out)
    start = AutoModelForCausalLM.from_pretrained("sft")
    assert AutoTokenizer.from_pretrained(out).get_vocab() == run.tokenizer.get_vocab()
    assert not any("lora" in n for n, _ in saved.named_parameters()) and not foreign_files(out)
    assert weight_hash(saved) != weight_hash(start)                          # it has learned something
    facts = json.loads((out/"run.json").read_text())
    assert facts["results"] == run.results and facts["config"]["task"] == task
    held = [json.loads(x) for x in (out/"held_out.jsonl").read_text().splitlines()]
    assert len(held) == 6 and held[0].keys() == {"prompt", "before", "reward_before", "after", "reward_after"}
    asked = {json.loads(line)["prompt"] for line in open("prompts.jsonl", encoding="utf-8")}
    assert all(row["prompt"] in asked for row in held)                     # as in the file, without the template
    assert sum(x["reward_after"] for x in held) / 6 == pytest.approx(run.results["reward_after"], abs=1e-3)
    log = [json.loads(x) for x in (out/"log.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in log if "iteration" in row] == [1, 2]
    if more.get("mixed_precision") and not more.get("lora_r"):
        ratios = [row["val/ratio"] for row in log if "val/ratio" in row]
        assert abs(ratios[0] - 1) < 1e-4                                      # sampled and learned in one precision
    with pytest.raises(ValueError, match="finished run"): train_rl(config)

@pytest.mark.parametrize("task", ["ppo", "grpo"])
def test_an_interrupted_run_goes_on_and_ends_the_same(task, tmp_path):
    config = small(tmp_path, task, eval_every=1)
    want = weight_hash(train_rl(replace(config, output_dir=str(tmp_path/"whole"))).policy)
    real, seen = rl_recipes._callback, []
    def stopping(*args):
        callback = real(*args)
        def stop(row, roll):
            callback(row, roll)
            if row["iteration"] == 2 and not seen: seen.append(signal.raise_signal(signal.SIGINT))
        return stop
    rl_recipes._callback = stopping
    try:
        with pytest.raises(KeyboardInterrupt): train_rl(config)
    finally: rl_recipes._callback = real
    with pytest.raises(ValueError, match="n_prompts was 4, got 5"): train_rl(replace(config, n_prompts=5))
    Path("rules_rl.py").write_text(RULES + "# changed\n")
    try:
        with pytest.raises(ValueError, match="rules_rl.py is not the file that the run in .*run began with"): train_rl(config)
    finally: Path("rules_rl.py").write_text(RULES)
    run = train_rl(config)
    assert weight_hash(run.policy) == want
    samples = [json.loads(x)["iteration"] for x in Path(config.output_dir, "samples.jsonl").read_text().splitlines()]
    assert sorted(set(samples)) == [0, 1, 2, 3, 4] and len(samples) == 30
    whole = Path(tmp_path/"whole"/"samples.jsonl").read_text()
    assert Path(config.output_dir, "samples.jsonl").read_text() == whole

def test_what_somebody_put_among_the_checkpoints_is_kept(tmp_path, capfd):
    "A copy of a checkpoint, a note beside it and one in it: `work` goes in the end, they do not; --overwrite refuses."
    config = small(tmp_path)
    real, rl_recipes._callback = rl_recipes._callback, lambda *args: lambda row, roll: signal.raise_signal(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt): train_rl(config)
    finally: rl_recipes._callback = real
    place = tmp_path/"run/work/checkpoints"
    [last] = place.glob("*-step-*")
    shutil.copytree(last, place/"my-best")
    for note in (place/"note.txt", last/"note.txt"): note.write_text("years of work")
    with pytest.raises(ValueError, match=r"holds work.checkpoints.*which is no file of this run: move it away"): train_rl(config, overwrite=True)
    weights = (place/"my-best/model.safetensors").read_bytes()
    train_rl(config)
    kept = tmp_path/"run/kept"
    assert "is of somebody else: it is" in capfd.readouterr().out and not (tmp_path/"run/work").exists()
    assert sorted(x.relative_to(kept).as_posix() for x in kept.rglob("*.txt")) == [f"{last.name}/note.txt", "note.txt"]
    assert all(x.read_text() == "years of work" for x in kept.rglob("*.txt"))
    assert (kept/"my-best/model.safetensors").read_bytes() == weights
    with pytest.raises(ValueError, match=r"holds kept.*which is no file of this run: move it away"): train_rl(config, overwrite=True)

MOODY = """
import sys
calls = 0
def short(prompts, responses):
    global calls
    calls += 1
    if {fails}: {fault}
    return [-len(r) / 10 for r in responses]
"""

@pytest.mark.parametrize("task, fault", [
    ("ppo", "raise KeyError('who')"), ("grpo", "raise KeyError('who')"), ("grpo", "sys.exit(3)"), ("ppo", "return [0.]"), ("grpo", "return [0.]"),
    ("ppo", "return [float('nan')] * len(responses)"), ("grpo", "return [float('inf')] * len(responses)")])
def test_a_run_goes_on_with_a_mended_reward_and_with_no_other(task, fault, tmp_path, capfd, monkeypatch):
    "The failing code could not go on, so the new one may; the result is that of a reward that never failed."
    def write(name, fails):
        Path(tmp_path, name).write_text(MOODY.format(fails=fails, fault=fault))
        sys.modules.pop(name.removesuffix(".py"), None); importlib.invalidate_caches()
    for name in ("sft", "prompts.jsonl"): Path(tmp_path, name).symlink_to(Path(name).resolve())
    monkeypatch.chdir(tmp_path)
    write("calm.py", "False"); write("moody.py", "calls >= 3")                   # before, rollout 1, rollout 2
    whole = train_rl(replace(small(tmp_path, task, reward="calm:short"), output_dir=str(tmp_path/"whole")))
    config = small(tmp_path, task, reward="moody:short")
    with pytest.raises(RewardError, match="Checkpoints are whole: mend moody:short, and the same command goes on"): train_rl(config)
    with pytest.raises(ValueError, match="n_prompts was 4, got 5"): train_rl(replace(config, n_prompts=5))
    real, rl_recipes._train_rl_in = rl_recipes._train_rl_in, lambda *args: signal.raise_signal(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt): train_rl(config)       # begun again unmended, stopped before it could fail
    finally: rl_recipes._train_rl_in = real
    write("moody.py", "calls >= 99")
    run = train_rl(config)
    assert "moody.py was changed: the run goes on with the new one" in capfd.readouterr().out
    assert weight_hash(run.policy) == weight_hash(whole.policy) and run.results["iterations"] == 3
    marker = json.loads((tmp_path/"run/run.json").read_text())
    assert len(marker["rewards_before"]) == 1 and marker["rewards_before"][0] != marker["settings"]["moody.py"]
    assert marker["reward_failed"] is False

@pytest.mark.parametrize("task", ["ppo", "grpo"])
def test_the_samples_of_a_rollout_come_with_its_checkpoint(task, tmp_path, monkeypatch):
    "A kill, or a reward that fails, in the evaluation of a rollout: after it, no sample is missing and none comes twice."
    config = small(tmp_path, task, eval_every=1)
    train_rl(replace(config, output_dir=str(tmp_path/"whole")))
    class Killed(BaseException): pass
    real, left = rl_recipes._add_samples, [2, 2, 3]
    def dies(folder, iteration, rows):
        if iteration in left: raise left.remove(iteration) or (Killed if iteration == 2 else RewardError)("now")
        real(folder, iteration, rows)
    monkeypatch.setattr(rl_recipes, "_add_samples", dies)
    for error in (Killed, Killed, RewardError):
        with pytest.raises(error): train_rl(config)
    train_rl(config)
    for name in ("samples.jsonl", "held_out.jsonl", "model.safetensors"):
        assert (tmp_path/"run"/name).read_bytes() == (tmp_path/"whole"/name).read_bytes(), name

def test_a_changed_reward_of_a_run_that_overwrites_another_can_be_helped(home, tmp_path, monkeypatch):
    "Its user gives --overwrite already: the advice is to delete what lies beside the old run."
    config = small(tmp_path, n_iterations=1)
    train_rl(config)
    with monkeypatch.context() as patch:
        patch.setattr(rl_recipes, "_finish_rl", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt): train_rl(config, overwrite=True)
    Path("rules_rl.py").write_text(RULES + "# changed\n")
    try:
        with pytest.raises(ValueError, match=r"rules_rl.py is not the file .* or delete .*run.new-\w+ to begin anew"): train_rl(config, overwrite=True)
    finally: Path("rules_rl.py").write_text(RULES)
    train_rl(config, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]

def test_resume_by_the_folder_alone(tmp_path, capfd):
    out = tmp_path/"r"
    line = ["train", "grpo", "prompts.jsonl", "-o", str(out), "--model", "sft", "--reward", "rules_rl:short", "--n-iterations", "2",
            "--n-prompts", "4", "--num-generations", "2", "--max-new-tokens", "6", "--eval-rows", "4"]
    assert main(["train", "--resume", str(out)]) == 2 and "holds no run that can go on" in capfd.readouterr().err
    def stop(*args): return lambda row, roll: signal.raise_signal(signal.SIGINT)
    real, rl_recipes._callback = rl_recipes._callback, stop
    try: assert main(line) == 130
    finally: rl_recipes._callback = real
    said = capfd.readouterr()
    assert f"rlhf-nb train --resume {out}" in said.out and "saved" in said.err
    os.chdir(tmp_path)                                                        # from anywhere
    assert main(["train", "--resume", str(out)]) == 0
    assert json.loads((out/"run.json").read_text())["results"]["iterations"] == 2
    assert main(["train", "--resume", str(out)]) == 2 and "finished run" in capfd.readouterr().err

@pytest.mark.parametrize("change, error", [
    (dict(reward="rules_rl:long"), "nearest is 'short'"), (dict(reward="nowhere:f"), "no module 'nowhere'"),
    (dict(reward="sft"), "no reward model"), (dict(model="rm"), "rm is a reward model.*name a language model"), (dict(data="none.jsonl"), "no file"),
    (dict(max_length=5000), "reads 1024 tokens, max_length 5000 and max_new_tokens 8 make 5008"), (dict(eval_rows=24), "24 of 24 rows"), (dict(lora_r=0, model="nothing"), "nothing")])
def test_what_is_refused_leaves_nothing(change, error, tmp_path):
    with pytest.raises((ValueError, OSError), match=error): train_rl(replace(small(tmp_path), **change))
    assert not (tmp_path/"run"/"run.json").exists() or not json.loads((tmp_path/"run"/"run.json").read_text()).get("results")

def test_a_full_disk_is_seen_before(tmp_path, monkeypatch):
    monkeypatch.setattr(recipes.shutil, "disk_usage", lambda place: type("Free", (), dict(free=1000))())
    with pytest.raises(ValueError, match="GB free: make room"): train_rl(small(tmp_path))
    assert not (tmp_path/"run").exists()

def test_settings_of_the_method():
    def method(task="ppo", width=2048, **more): return rl_config(RLRunConfig(task, "d", "o", "m", "a:b", **more), width)
    assert method().lr == 3e-6 and method("grpo").lr == 1e-6 and method(width=64).lr == pytest.approx(1e-3)
    assert method(lora_r=4).lr == pytest.approx(3e-5) and method(lr=.5).lr == .5
    assert method(beta=.2, temperature=.7, missing_eos_penalty=1.).missing_eos_penalty == 1.
    assert method("grpo", num_generations=4, n_epochs=3).num_iterations == 3
    for name in ("model", "reward"):
        with pytest.raises(ValueError, match=f"RLRunConfig.{name} is empty"):
            RLRunConfig(**dict(task="ppo", data="d", output_dir="o", model="m", reward="r") | {name: ""})
    with pytest.raises(ValueError, match="task must be one of"): RLRunConfig("sft", "d", "o", "m", "r")

def test_the_critic_shares_nothing_and_learns_adapters_only():
    lm, _ = load_bundled("sft")
    critic = make_critic(lm)
    assert not {p.data_ptr() for p in critic.parameters()} & {p.data_ptr() for p in lm.parameters()}
    small_one = make_critic(lm, lora_r=4)
    trained = [n for n, p in small_one.named_parameters() if p.requires_grad]
    assert trained and all("lora" in n or n == "score.weight" for n in trained)
    few = [n for n, p in make_critic(lm, 4, targets=["dense"]).named_parameters() if p.requires_grad]
    assert few and all("dense.lora" in n or n == "score.weight" for n in few) and len(few) < len(trained)

def test_a_stop_token_ends_responses_and_is_saved(tmp_path):
    run = train_rl(small(tmp_path, n_iterations=1, stop_token=".", eval_rows=4))
    dot = run.tokenizer.convert_tokens_to_ids(".")
    saved = AutoModelForCausalLM.from_pretrained(tmp_path/"run")
    assert run.tokenizer.eos_token_id == dot == saved.generation_config.eos_token_id == saved.config.eos_token_id
    assert AutoTokenizer.from_pretrained(tmp_path/"run").eos_token == "."
    for name in ("no such token", "<pad>"):
        with pytest.raises(ValueError, match=f"'{name}' is no token that can end a response"):
            train_rl(small(tmp_path/"b", stop_token=name))
    assert not (tmp_path/"b").exists()

@pytest.mark.parametrize("task", ["ppo", "grpo"])
def test_settings_reach_the_trainer(task, tmp_path, monkeypatch):
    seen, real = {}, getattr(rl_recipes, f"train_{task}")
    def spy(*args, **more):
        seen.update(config=args[3], logits=models._LOGITS_MB.get(), static=sampling._STATIC.get())
        if seen["static"]: monkeypatch.setattr(torch, "compile", lambda model, dynamic: model)
        return real(*args, **more)
    monkeypatch.setattr(rl_recipes, f"train_{task}", spy)
    given = dict(warmup_steps=2, final_lr_frac=.5, max_grad_norm=.3, weight_decay=.1, generation_batch_size=3, save_every=2)
    train_rl(small(tmp_path, task, n_iterations=1, max_logits_mb=7., compile_decoding=True, **given, **(dict(critic_lr=.5) if task == "ppo" else {})))
    assert {name: getattr(seen["config"], name) for name in given} == given and (seen["logits"], seen["static"]) == (7., True)
    assert models._LOGITS_MB.get() == 64. and getattr(seen["config"], "critic_lr", .5) == .5

def test_tf32_is_for_nvidia_gpus_and_lasts_as_long_as_the_run(tmp_path):
    with pytest.raises(ValueError, match="tf32 is a number format of NVIDIA GPUs, this run is on cpu"): train_rl(small(tmp_path, tf32=True))
    assert not (tmp_path/"run").exists()
    matmul = torch.backends.cuda.matmul
    with pytest.raises(KeyError), recipes.computing(small(tmp_path, tf32=True)):
        assert matmul.allow_tf32
        raise KeyError
    assert not matmul.allow_tf32

def test_the_critic_gets_adapters_where_the_policy_does(tmp_path, monkeypatch):
    seen, real = [], rl_recipes.make_critic
    def spy(*args):
        seen.append(args[3])
        return real(*args)
    monkeypatch.setattr(rl_recipes, "make_critic", spy)
    train_rl(small(tmp_path, "ppo", n_iterations=1, lora_r=2, lora_targets="query_key_value, dense"))
    assert seen == [["query_key_value", "dense"]]

def test_settings_of_the_other_method_are_refused():
    for task, change in (("ppo", dict(num_generations=4)), ("grpo", dict(n_minibatches=2)), ("grpo", dict(critic_lr=1e-4)),
                         ("grpo", dict(missing_eos_penalty=1.))):
        with pytest.raises(ValueError, match=f"{next(iter(change))} is a setting of .*, which {task} would not read: leave it out"):
            RLRunConfig(task, "d", "o", "m", "a:b", **change)

def test_a_reward_model_that_will_not_do_is_told_before_any_work(tmp_path, capfd, monkeypatch):
    "Also by a dry run; no folder is made."
    monkeypatch.setattr(rl_recipes, "open_run", None)
    short = load_bundled("reward")
    short[0].backbone.config.max_position_embeddings = 32
    save_reward_model(*short, tmp_path/"short")
    line = ["train", "grpo", "prompts.jsonl", "-o", str(tmp_path/"run"), "--model", "sft", "--max-length", "30", "--max-new-tokens", "8", "--reward"]
    Path("rules_more.py").write_text("def f(prompts, responses, answer): return [0.] * len(prompts)\n")
    for reward, words, dry in (("sft", "is no reward model", False), ("rules_more:f", "(kind): missing a required argument: 'answer'", True),
                               ("rules_more", "rules_more.py holds functions: name one of them, rules_more:FUNCTION", True), ("./nowhere", "no folder './nowhere'", True),
                               (str(tmp_path/"short"), "reads 32 tokens, max_length 30 and max_new_tokens 8 make 38", True)):
        for more in ([], ["--dry-run"])[:1 + dry]:
            assert main([*line, reward, *more]) == 2 and words in capfd.readouterr().err and not (tmp_path/"run").exists()
