"`rlhf-nb train` and `rlhf-nb pipeline`: flags, recipes, help, plans, resume, signals; a mistake is one sentence."
import json, os, re, shutil, signal, subprocess, sys, tomllib, pytest
from pathlib import Path
from conftest import until
from rlhf_nb.base.folder import write_marker
from rlhf_nb.book.command import main
from rlhf_nb.base.sampling import SamplingParams
from rlhf_nb.run.methods import WORLD_REGISTRY
from rlhf_nb.run.stages import Stage, keys_of, read_stages, to_toml
from rlhf_nb.trainers.judge_tools import ADDITIVE_PROMPT
from rlhf_nb.run.train_command import ABOUT, RECIPES, parse_flags, resumed
from test_runs import dies_at
from tiny_runs import METHOD_NAMES, SMALL, content, fork, needed, other_value, patch_everywhere, rows_in, run, run_all, status_of, tiny, weights

POSIX = pytest.mark.skipif(os.name == "nt", reason="POSIX")
pytestmark = pytest.mark.usefixtures("one_thread", "no_curves", "inside")

def as_flags(said):
    return [word for k, x in said.items() if k != "data" for word in (
        [f"--{k.replace('_', '-')}"] if x is True else [f"--no-{k.replace('_', '-')}"] if x is False
        else [f"--{k.replace('_', '-')}", str(x)])]

def line(method, out, *more, **said): # a tiny run
    said = dict(data="pairs.jsonl", model="m", eval_rows=6) | SMALL[method] | said
    return ["train", method, said.pop("data"), "-o", str(out), *as_flags(said), *more]

def says(capfd, words, status, *texts): # and ends with this status
    assert main([str(x) for x in words]) == status, words
    out = capfd.readouterr()
    for text in texts: assert text in " ".join((out.out + out.err).split()), (text, out)
    assert "Traceback" not in out.err
    return out.out + out.err

# ---- flags
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_every_key_of_every_method_is_a_flag_with_its_help(method, capfd):
    "All at once, with values that are no defaults; none of them: nothing was said."
    said = {}
    for key in keys_of(method): said |= other_value(method, key)
    for left_out in ("advantage_fn", "multi_objective_aggregation") if method == "grpo" else ("margins",) if method == "reward" else ("",):  # these exclude each other
        given = {k: x for k, x in said.items() if k not in needed(method) and k != left_out}
        stage, run = parse_flags(method, [said["data"], "-o", "out", *as_flags(needed(method) | given), "--overwrite"])
        assert stage == Stage(method, needed(method) | given) and (run.output_dir, run.overwrite, run.dry_run) == ("out", True, False)
    assert parse_flags(method, [said["data"], "-o", "out", *as_flags(needed(method))])[0] == Stage(method, needed(method))
    assert main(["train", method, "--help"]) == 0
    text = " ".join(capfd.readouterr().out.replace("│", " ").split())
    for key, (_, field, default) in keys_of(method).items():
        name = "DATA" if key == "data" else f"--no-{key}" if default is True else f"--{key}"
        found = re.search(rf"{name.replace('_', '-')}\b.*?\((required|default: .*?)\)", text)
        assert found, key
        if type(default) in (int, float) and default == field.default and "default: " in found[1]:
            number = re.fullmatch(r"default: ([-\d.e]+)", found[1])
            assert not number or float(number[1]) == default, key

def test_the_help_of_all_methods_loads_no_torch():
    code = "import sys; from rlhf_nb.book.command import main; main(['train', '--help']); main(['train', '--list']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(re.search(rf"^  {method} ", done.stdout, re.M) for method in METHOD_NAMES) and set(ABOUT) == set(METHOD_NAMES)

def test_other_names_of_flags():
    want = parse_flags("grpo", "d --output-dir o --lr .5 --model m --num-generations 4 --reward a:b".split())
    for words in ("d -o o --learning-rate .5 --model-name-or-path m -n 4 --reward a:b", "d --out=o --lr=.5 --model=m --num_generations=4 --reward=a:b"):
        assert parse_flags("grpo", words.split())[0] == want[0]
    assert parse_flags("sft", "d --output_dir o --max-steps 3".split())[0].said == dict(data="d", n_steps=3)

@pytest.mark.parametrize("words, error", [
    ("sft d -o o --lrr 3", "--lr"), ("sft d -o o --lora-rank=4", "--lora-r"), ("sft d -o o --zzz", "Unrecognized options: --zzz"),
    ("sft d -o o --reward a:b", "Unrecognized options: --reward"), ("sft d", "-o STR, --out STR"), ("sft -o o", "DATA"), ("ppo d -o o", "--reward"),
    ("sftt d -o o", "no method 'sftt'; did you mean 'sft'?"), ("--lisst", "did you mean '--list'?"), ("zzz", "there are sft, reward, dpo"), ("", "methods:"),
    ("sft d -o o --n-steps many", "'many'"), ("sft d -o o --n-steps 0", "n_steps must be above 0, got 0"), ("sft d -o o --lr -1", "lr must be above 0"),
    ("sft d -o o --lr nan", "lr must be a finite number"), ("sft d -o o --optimizer SDG", "invalid choice 'SDG' for argument '--optimizer'"),
    ("dpo d -o o --loss orpo --weight -1", "Odds.weight must be 0 or more"), ("dpo d -o o --loss_type robustt", "did you mean 'robust_dpo'?"),
    ("dpo d -o o --loss_type robust --label_smoothing -1", "NoisyGap.label_smoothing"), ("dpo d -o o --loss sigmoid --beta -1", "Gap.beta"),
    ("grpo d -o o --reward a:b --loss-type dappo", "'dapo'"), ("--resume", "no method '--resume'")])
def test_a_wrong_command_line(words, error, capfd): says(capfd, ["train", *words.split()], 2, error)

@pytest.mark.parametrize("words, error", [
    ("reward none.jsonl -o x", "no file none.jsonl"), ("reward pairs.jsonl -o x --lora-r 4", "--model"), ("sft pairs.jsonl -o x --model ./none", "no folder"),
    ("reward pairs.jsonl -o x --eval-rows 24", "eval_rows must leave rows on both sides, got 24 of 24 rows"), ("sft pairs.jsonl -o x --eval-rows 60", "60 of 24 rows"),
    ("sft pairs.jsonl -o x --model rm", "rm is a reward model, which says nothing: name a language model"),
    ("dpo pairs.jsonl -o x --model rm", "rm is a reward model, which says nothing"), ("kto thumbs.jsonl -o x", "kto adapts a model that has learned before"),
    ("ppo pairs.jsonl -o x --reward tiny_rules:even", "ppo adapts a model that has learned before: name it with model"),
    ("sft pairs.jsonl -o x --model m --max-length 2000", "reads 1024 tokens, max_length 2000: lower max_length"),
    ("grpo pairs.jsonl -o x --model m --reward tiny_rules:even --max-length 1020", "max_length 1020 and max_new_tokens 64 make 1084: lower max_length"),
    ("sft pairs.jsonl -o x --stop-token .", "has a stop token of its own"), ("sft pairs.jsonl -o x --model m --stop-token nope", "'nope' is no token that can end a response"),
    ("sft pairs.jsonl -o x --model m --stop-token <pad>", "'<pad>' is no token that can end a response"), ("sft pairs.jsonl -o pairs.jsonl/x", "is a file, so"),
    ("sft pairs.jsonl -o x --model m --lora-r 2 --lora-targets dense,no_such", "no layer of this model is called 'no_such': LoRA can adapt dense, "),
    ("reward pairs.jsonl -o x --margins", "has no margins: add a column"), ("sft pairs.jsonl -o x --tf32 --device cpu", "tf32 is a number format of NVIDIA GPUs"),
    ("sft pairs.jsonl -o x --report-to tensorbord", "no tracker 'tensorbord'"), ("sft pairs.jsonl -o x --push-to-hub a/b/c", "--push-to-hub: "),
    ("sft pairs.jsonl -o x --device cuda:9", "cuda"), ("q pairs.jsonl -o x --model m", "has no column 'reward', the reward of an answer"),
    ("kto pairs.jsonl -o x --model m", "label"), ("sft pairs.jsonl -o x --measure nowhere", "measure: no file nowhere"),
    ("sft pairs.jsonl -o x --model smollm2", "no folder smollm2: `rlhf-nb fetch smollm2 smollm2` makes it"),
    *[(f"grpo pairs.jsonl -o x --model m --reward {x}", words) for x, words in (
        ("tiny_rules:evn", "reward: tiny_rules has no function 'evn', the nearest is 'even'"), ("nowhere:f", "reward: no module 'nowhere'"),
        ("tiny_rules", "tiny_rules.py holds functions: name one of them, tiny_rules:FUNCTION"), ("./nowhere", "reward: no folder './nowhere'"),
        ("wants:f", "missing a required argument: 'answer'"), ("m", "no reward model"))],
    ("self_reward pairs.jsonl -o x --model m --judge-prompt nobody", "judge_prompt: no judge prompt 'nobody'"), ("spin pairs.jsonl -o x --model nowhere --n-iterations 2", "nowhere")])
def test_what_cannot_run_is_one_sentence_and_leaves_no_folder(words, error, inside, capfd):
    (inside/"wants.py").write_text("def f(prompts, responses, answer): return [0.] * len(prompts)\n")
    before = content(inside)
    for more in ([], ["--dry-run"], ["--overwrite"]):
        assert says(capfd, ["train", *words.split(), *more], 2, error).startswith("rlhf-nb train: ")
        assert {k: x for k, x in content(inside).items() if "__pycache__" not in k} == before

# ---- plans and runs
def test_a_run_and_its_plan_on_the_command_line(inside, capfd, monkeypatch):
    out = inside/"deep"/"run"
    words, before = line("reward", out, seed=3, lora_r=2), content(inside)
    with monkeypatch.context() as patch:
        patch_everywhere(patch, "load_lm", lambda real: lambda *args: 1 / 0)        # no weights are read
        said = says(capfd, [*words, "--dry-run"], 0, "24 of 24 rows kept", "18 to learn from, 6 held out", "steps 4", "seed=3", "lora_r=2",
                    "needs about", "this machine has free", "nothing was trained or written")
    assert content(inside) == before and not out.exists()
    assert int(re.search(r"([\d,]+) of [\d,]+ weights trained", said)[1].replace(",", "")) < 5000      # adapters alone
    for most, said in (1024, "logits 27 MB"), (1, "logits 2 MB"): says(capfd, [*line("sft", out, max_logits_mb=most), "--dry-run"], 0, said)
    says(capfd, words, 0, "24 of 24 rows kept", "18 to learn from, 6 held out", "accuracy", "surest", str(out))
    says(capfd, words, 2, f"{out} holds a finished run: name another folder, or use --overwrite")
    says(capfd, line("reward", out, "--overwrite", seed=4), 0)
    assert json.loads((out/"run.json").read_text())["settings"]["seed"] == 4

def test_a_dry_run_shows_a_row_as_the_model_will_read_it_under_the_names_that_were_given(inside, capfd):
    (inside/"mine.jsonl").write_text("".join(json.dumps(dict(ask=f"The {w} sleeps", say=f"The {w}", no="fox hop", extra=i)) + "\n"
                                           for i, w in enumerate("owl fox robin bat frog".split())))
    words = ["train", "reward", "mine.jsonl", "-o", "o", "--model", "m", "--eval-rows", "0", "--dry-run"]
    says(capfd, words, 2, 'no "chosen"')
    said = says(capfd, [*words, "--columns", "prompt=ask, chosen=say,rejected=no"], 0, "columns besides the texts: extra")
    assert re.search(r"\nexample +'<\|user\|>The owl<unk><\|assistant\|>The owl<eos>'\nlearned +'The owl<eos>'\n", said)
    says(capfd, [*words, "--columns", "prompt=ask,chosen=say,rejected=none"], 2, 'no "none", the keys are ask, say, no, extra')
    says(capfd, [*words, "--columns", "prompt"], 2, "columns are written name=column")
    words[1:3] = "grpo", "mine.jsonl"
    (inside/"few_rules.py").write_text("def f(prompts, responses, extra): return [0.] * len(prompts)\n")
    said = says(capfd, [*words, "--columns", "prompt=ask", "--reward", "few_rules:f"], 0)
    assert re.search(r"\nexample +'<\|user\|>The owl<unk><\|assistant\|>'\n", said) and "\nlearned" not in said
    (inside/"few_calls.py").write_text("def f(prompts, responses, extra): return [len(prompts) + extra[0] / 4 + .5]\n"
                                       "def g(prompts, responses): return [1 / 0]\n")
    says(capfd, [*words, "--columns", "prompt=ask", "--reward", "few_calls:f"], 0, "reward few_calls:f, 1.5 for the response")
    says(capfd, [*words, "--columns", "prompt=ask", "--reward", "few_calls:g"], 2, "ZeroDivisionError: division by zero")

def test_rows_that_cannot_be_read_stop_a_run_or_are_left_out(inside, capfd):
    (inside/"some.jsonl").write_text("{oops\n" + (inside/"pairs.jsonl").read_text())
    says(capfd, line("sft", "x", data="some.jsonl"), 2, "some.jsonl:1: broken JSON")
    assert not Path("x").exists()
    says(capfd, line("sft", "x", "--skip-invalid", data="some.jsonl"), 0, "dropped: broken JSON")
    held, rows = rows_in("x/held_out.jsonl"), rows_in("pairs.jsonl")
    assert len(held) == 6 and all(x in rows for x in held)              # the lines that were held out, not their neighbours

def test_several_iterations_are_a_pipeline_of_train(inside, capfd):
    "As one stage for each, every one in a folder of its own; the next begins with what the one before left."
    words = line("spin", "o", n_iterations=2)
    said = says(capfd, [*words, "--dry-run"], 0, "01-spin", "02-spin", "dry run: nothing was trained or written")
    assert not Path("o").exists() and said.count("needs about") == 2
    says(capfd, words, 0, "01-spin: stage 1 of 2", "02-spin: stage 2 of 2")
    assert set(weights("o")) == {"01-spin/model.safetensors", "02-spin/model.safetensors"} and len(set(weights("o").values())) == 2
    assert f'model = "{Path("o/01-spin")}"' in Path("o/02-spin/README.md").read_text()

# ---- recipes
def test_a_recipe_says_the_same_as_flags_and_flags_win(inside):
    said = dict(data="p.jsonl", model="m", lora_r=8, beta=.3, seed=4, skip_invalid=True, gradient_checkpointing=True)
    (inside/"r.toml").write_text('about = "x"\n' + to_toml([Stage("dpo", said)]))
    assert parse_flags("dpo", ["-o", "o", "--recipe", "r.toml"])[0] == parse_flags("dpo", ["p.jsonl", "-o", "o", *as_flags(said)])[0] == Stage("dpo", said)
    stage, _ = parse_flags("dpo", "q.jsonl -o o --recipe r.toml --beta .1 --seed 5".split())
    assert stage.said == said | dict(data="q.jsonl", beta=.1, seed=5)                 # .1 is the default, and was given
    steps = dict(lr=1e-3, n_steps=300)                         # the defaults of a trainer, which are not those of a method
    (inside/"r.toml").write_text(to_toml([Stage("dpo", dict(data="d") | steps)]))
    for words in ("--recipe r.toml", "d --lr .001 --n-steps 300"):
        assert parse_flags("dpo", ["-o", "o", *words.split()])[0].said == dict(data="d") | steps

@pytest.mark.parametrize("text, error", [
    ("method = [", "is no TOML"), ("lora_r = 4", "is for None"), ('method = "sftt"', "is for 'sftt'"), ('method = "dpo"', "the recipe r.toml is for 'dpo': rlhf-nb train dpo"),
    ('method = "sft"\nlora_rank = 4', "sft has no key 'lora_rank'; did you mean 'lora_r'"), ('method = "sft"\n[model]\na = 1', "model must be a text"),
    ('method = "sft"\nn_steps = "4"', "n_steps must be a whole number, got '4'"), ('method = "sft"\nn_steps = -1', "n_steps must be above 0"),
    ('method = "sft"\nmodel = "\xe9"', "r.toml: not UTF-8: byte 0xe9 at line 2, column 10"), ('[[stage]]\nmethod = "sft"', "rlhf-nb pipeline run r.toml")])
def test_a_recipe_that_is_no_good_is_named(text, error, inside, capfd):
    (inside/"r.toml").write_bytes(text.encode("latin-1"))
    said = says(capfd, ["train", "sft", "pairs.jsonl", "-o", "x", "--recipe", "r.toml"], 2, error)
    assert said.startswith("rlhf-nb train: ") and "r.toml" in said and not Path("x").exists()

def test_the_list_of_recipes(capfd):
    assert all(name in says(capfd, ["train", "--list"], 0) for name in RECIPES)
    assert 'method = "ppo"' in says(capfd, ["train", "--list", "tldr-ppo"], 0)
    says(capfd, ["train", "--list", "smolm2-dpo"], 2, "no recipe 'smolm2-dpo'", "smollm2-dpo")
    says(capfd, "train dpo d.jsonl -o o --recipe smollm2-dpo".split(), 2, "no folder smollm2: `rlhf-nb fetch smollm2 smollm2` makes it")

ONE_STAGE = [name for name, text in RECIPES.items() if "[[stage]]" not in text]

def test_the_paper_of_self_rewarding_is_a_recipe(inside, capfd):
    "Its numbers are those of section 3.1; planned with a tiny model, and run with reduced numbers."
    text = RECIPES["self-rewarding"]
    m1, *rest = stages = read_stages(text)
    assert [x.method for x in stages] == ["sft", "self_reward", "self_reward"] and m1.said["final_lr_frac"] * 5.5e-6 == pytest.approx(1.1e-6)
    for stage, n in zip(rest, (3964, 6942), strict=True):
        said = stage.said
        assert (said["n_pairs"], said["n_prompts"]) == (n, 4 * n) and not {"model", "replay"} & said.keys()
        assert [said[k] for k in "num_generations temperature top_p n_votes judge_temperature judge_top_p".split()] == [4, .7, .9, 3, .7, .9]
        assert [said[k] for k in "beta batch_size lr".split()] == [.1, 16, 1e-6] and said["lr"] * said["final_lr_frac"] == pytest.approx(1e-7)
        assert WORLD_REGISTRY.judges[said["judge_prompt"]] is ADDITIVE_PROMPT
    assert "self-rewarding" in says(capfd, ["train", "--list"], 0, "pipeline")
    says(capfd, ["pipeline", "run", "self-rewarding", "-o", "o", "--dry-run"], 1, "self-rewarding: the pipeline cannot run", "stage 1 (sft)")
    says(capfd, "train self_reward pairs.jsonl -o o --recipe self-rewarding".split(), 2, "rlhf-nb pipeline run self-rewarding")
    small = text.replace("meta-llama/Llama-2-70b-hf", "m").replace("512", "16").replace("1024", "64")
    for name in ("prompts", "ift_eft"): small = small.replace(f"{name}.jsonl", "pairs.jsonl")
    (inside/"small.toml").write_text(small)
    said = " ".join(says(capfd, ["pipeline", "run", "small.toml", "-o", "o", "--dry-run"], 0, "dry run: nothing was trained").split())
    assert all(x in said for x in ("906", "n_pairs=3964", "n_pairs=6942", "n_prompts=27768", "judge_prompt=additive")) and not Path("o").exists()
    less = dict(n_prompts=12, n_pairs=6, chunk_size=4, batch_size=3, judge_prompt="tiny", n_steps=2, eval_rows=6, lr=1e-3)
    rows = run_all([Stage(x.method, x.said | {k: v for k, v in less.items() if k in keys_of(x.method)
        and (k != "n_steps" or x.method == "sft")}) for x in read_stages(small)], "o")
    assert [row["stage"] for row in rows] == ["01-sft", "02-self_reward", "03-self_reward"] and rows[1]["pairs"] > 0 < rows[2]["pairs"]
    assert weights("o/01-sft") != weights("o/02-self_reward") != weights("o/03-self_reward")

@pytest.mark.parametrize("name", ONE_STAGE)
def test_every_shipped_recipe_is_planned_and_runs(name, inside, capfd):
    "With a tiny model in place of the one that it names, and few steps; its other keys arrive."
    found = tomllib.loads(RECIPES[name])
    method = found["method"]
    short = {k: x for k, x in SMALL[method].items() if k in ("n_steps", "n_iterations", "max_new_tokens", "batch_size") or k not in found and k != "eval_every"}
    words = ["train", method, "pairs.jsonl", "-o", "o", "--recipe", name, *as_flags(short | dict(eval_rows=6, max_length=64))]
    if "model" in found or method in ("ppo", "grpo"): words += ["--model", "m"]
    if method in ("ppo", "grpo"): words += ["--reward", "rm", "--n-prompts", "4"]
    said = says(capfd, [*words, "--dry-run"], 0, "18 to learn from, 6 held out", "needs about")
    for key in found.keys() - {"about", "method", "model", "reward", "n_prompts", "max_length", *short}:
        value = found[key] if found[key] is not True else "True"
        assert f"{key}={value}" in " ".join(said.split()), (key, said)
    if "pythia" not in str(found.get("model")): says(capfd, words, 0)

# ---- to go on
def stopping_at(patch, step): # Ctrl-C when this row of a log is written
    def make(real):
        def spy(*args, **more):
            trainer = real(*args, **more)
            trainer.log.listeners.append(lambda row: signal.raise_signal(signal.SIGINT) if step in (row.get("step"), row.get("iteration")) else None)
            return trainer
        return spy
    patch_everywhere(patch, "make_trainer", make)

@pytest.mark.parametrize("words", [("dpo", {}), ("grpo", dict(n_iterations=3)), ("spin", dict(n_iterations=2))], ids=lambda x: x[0])
def test_ctrl_c_says_how_to_go_on_and_the_folder_alone_is_enough(words, inside, capfd, monkeypatch, tmp_path):
    method, more = words
    says(capfd, ["train", "--resume", "o"], 2, "holds no run that can go on")
    says(capfd, line(method, "whole", **more), 0)
    with monkeypatch.context() as patch:
        stopping_at(patch, 2)
        assert main(line(method, "o", **more)) == 130
    said = capfd.readouterr()
    assert "the same command goes on" in said.out
    assert not [x for x in weights("o") if x == "model.safetensors"] and "Traceback" not in said.err
    monkeypatch.chdir(tmp_path)                                                            # from anywhere
    ours = []
    if method == "grpo":                           # a folder of somebody else could name any code
        ours = ["--run-code"]
        for name in ("import_module", "RewardProcess"):
            monkeypatch.setattr(f"rlhf_nb.run.reward_process.{name}", lambda *args: pytest.fail(f"{args[0]} was run"))
        says(capfd, ["train", "--resume", "home/o"], 2, "home/o runs tiny_rules:even in", "home/tiny_rules.py: if it is yours, add --run-code")
        monkeypatch.undo(); monkeypatch.chdir(tmp_path)
    says(capfd, ["train", "--resume", "home/o", *ours], 0)
    assert weights("home/o") == weights("home/whole")
    if method == "spin": says(capfd, ["train", "--resume", "home/o"], 0, "02-spin")           # a pipeline tells its table
    else: says(capfd, ["train", "--resume", "home/o", *ours], 2, "holds a finished run")

def test_what_resume_goes_on_with_and_what_is_left_of_a_kill(inside, capfd, monkeypatch):
    stage = tiny("sft", turns="last")
    with monkeypatch.context() as patch:
        stopping_at(patch, 2)
        with pytest.raises(KeyboardInterrupt): run(stage, "a")
    assert resumed("a")[0] == [stage] and Path(resumed("a")[1]) == inside
    says(capfd, ["train", "--resume", "a"], 0)
    place = Path("a")
    def leave(work): # a kill when all was done but the removal
        work.mkdir()
        write_marker(work/"work.json", "rlhf-nb train", files=[], run=json.loads((place/"run.json").read_text())["run"])
    leave(place/"work.removed")
    says(capfd, ["train", "--resume", "a"], 2, "finished")
    assert not (place/"work.removed").exists()
    leave(place/"work")
    says(capfd, ["train", "--resume", "a"], 0)
    assert not (place/"work").exists()
    (place/"work.removed").mkdir(); (place/"work.removed"/"notes.txt").write_text("mine")           # somebody else's
    says(capfd, ["train", "--resume", "a"], 2)
    assert (place/"work.removed"/"notes.txt").exists()

def test_a_run_whose_data_or_folder_are_gone_is_told_so(inside, capfd):
    text = Path("pairs.jsonl").read_text()
    assert dies_at(40, lambda: run(tiny("sft"), "a"))
    assert Path("a/work/checkpoints").is_dir()
    Path("pairs.jsonl").write_text(text.replace("owl", "bat"))
    says(capfd, ["train", "--resume", "a"], 2, "pairs.jsonl is not the file that the run in", "bring that one back")
    Path("pairs.jsonl").unlink()
    says(capfd, ["train", "--resume", "a"], 2, "no file pairs.jsonl")
    Path("pairs.jsonl").write_text(text)
    shutil.copytree("a", "../b")
    inside.rename("../elsewhere")
    says(capfd, ["train", "--resume", "../b"], 2, "the run was begun in", "which is not there any more")
    Path("../elsewhere").rename(inside)
    says(capfd, ["train", "--resume", "a"], 0)                                              # nothing was lost

@POSIX
def test_sigterm_stops_the_command_as_a_whole_and_it_goes_on(inside, capfd):
    words = line("sft", "o", n_steps=2000)
    pid = fork(lambda: main(words), "said")
    until(lambda: list(Path("o/work/checkpoints").glob("*-step-*[0-9]")), lambda: content(inside).keys())
    os.kill(pid, signal.SIGTERM)
    assert status_of(pid) == 143
    said = Path("said").read_text()
    assert "the same command goes on" in said and "Traceback" not in said and "Error" not in said
    assert resumed("o")[0][0].said["n_steps"] == 2000

def test_code_of_a_model_never_runs_because_standard_input_says_y(folder_with_code, inside):
    mine = str(folder_with_code)
    Path("p.toml").write_text(f'[[stage]]\nmethod = "sft"\ndata = "pairs.jsonl"\nmodel = "{mine}"')
    tasks = [line("sft", inside/"x", model=mine, data=str(inside/"pairs.jsonl")), ["best-of-n", mine, str(inside/"rm"), str(inside/"pairs.jsonl")],
             ["best-of-n", str(inside/"m"), mine, str(inside/"pairs.jsonl")], ["pipeline", "run", str(inside/"p.toml"), "-o", str(inside/"x")],
             ["train", "grpo", str(inside/"pairs.jsonl"), "-o", str(inside/"x"), "--model", str(inside/"m"), "--reward", mine]]
    Path("yes").write_text("y\n" * 50)
    def work():
        os.dup2(os.open("yes", os.O_RDONLY), 0)
        sys.stdin = open(0)
        return [main(words) for words in tasks] != [2, 2, 2, 1, 2]
    assert status_of(fork(work, "said")) == 0 and Path("said").read_text().count("trust_remote_code") >= 5
    assert not (folder_with_code/"ran").exists() and not (inside/"x").exists()

@pytest.mark.parametrize("out", [".", "..", "data", "data/pairs.jsonl", "m"])
def test_an_output_that_holds_what_is_read(out, inside, capfd):
    Path("data").mkdir(), shutil.move("pairs.jsonl", "data/pairs.jsonl")
    Path("data/p.toml").write_text('[[stage]]\nmethod = "reward"\ndata = "data/pairs.jsonl"\nmodel = "m"\nn_steps = 1\n')
    before = content(inside)
    for more in ([], ["--overwrite"], ["--dry-run"]):
        says(capfd, ["train", "reward", "data/pairs.jsonl", "--model", "m", "-o", out, "--n-steps", "1", *more], 2, "name another output")
        says(capfd, ["pipeline", "run", "data/p.toml", "-o", out, *more], 2, "name another output")
    assert content(inside) == before
