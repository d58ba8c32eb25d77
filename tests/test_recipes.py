"Runs end to end on files small and real, interrupted, refused, with LoRA, and through the command line."
import argparse, json, os, random, re, resource, shutil, signal, subprocess, sys, time
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
import pytest, torch
from torch.testing import assert_close
from transformers import (AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, MixtralConfig,
    MixtralForCausalLM)
from rlhf_nb import recipes
from rlhf_nb.data import prompts_of
from rlhf_nb.models import Placement, load_reward_model, tiny_lm, weight_hash
from rlhf_nb.recipes import (TASKS, BestOfNConfig, BestOfNResult, RunConfig, add_best_of_n_parser, add_scalar_head,
                             begin_model, decode_seqs, default_train_config, format_best_of_n,
                             results_of, run_best_of_n, score_texts, train, write_best_of_n)
from rlhf_nb.reward import score_seqs
from rlhf_nb.train_command import add_train_parser
from rlhf_nb.sampling import SamplingParams
from rlhf_nb.runs import foreign_files, open_run, read_folder
from rlhf_nb.workbook import main
from test_runs import dies_at

POSIX = pytest.mark.skipif(os.name == "nt", reason="POSIX")
REAL = Path(__file__).resolve().parents[2]/"shared/data/instruction_preferences.jsonl"
SHORT = dict(max_steps=12, batch_size=8)

pytestmark = pytest.mark.usefixtures("one_thread")

@pytest.fixture(scope="module")
def data(tmp_path_factory):
    "60 pairs: the chosen side is polite."
    path, rng = tmp_path_factory.mktemp("data")/"pairs.jsonl", random.Random(0)
    with path.open("w") as file:
        for i in range(60):
            thing = f"{rng.choice(['red', 'blue', 'old'])} {rng.choice(['house', 'car', 'tree'])}"
            row = dict(prompt=f"Where is the {thing} number {i}?", chosen=f"Gladly: the {thing} is here.",
                       rejected=f"The {thing}? No idea.")
            file.write(json.dumps(row) + "\n")
    return path

@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    "One finished run of each task."
    out = tmp_path_factory.mktemp("runs")
    sft = train(RunConfig("sft", str(data), str(out/"sft"), **SHORT))
    return sft, train(RunConfig("reward", str(data), str(out/"reward"), **SHORT))

def test_folders_load_in_transformers(runs):
    sft, reward = runs
    lm = AutoModelForCausalLM.from_pretrained(sft.config.output_dir)
    assert weight_hash(lm) == weight_hash(sft.model)
    classifier = AutoModelForSequenceClassification.from_pretrained(reward.config.output_dir, num_labels=1)
    tokenizer = AutoTokenizer.from_pretrained(reward.config.output_dir)
    texts = [f"{tokenizer.bos_token}<|user|>{p}<|assistant|>{a}{tokenizer.eos_token}"
             for p, a in decode_seqs(reward.tokenizer, reward.held_out.rejected)]
    batch = tokenizer(texts, return_tensors="pt", padding=True, padding_side="right", return_token_type_ids=False)
    with torch.no_grad(): theirs = classifier.eval()(**batch).logits[:, 0]
    assert_close(theirs, score_seqs(reward.model, reward.held_out.rejected), atol=1e-5, rtol=0)

def test_what_lies_in_the_folder(runs, data):
    for run in runs:
        out = Path(run.config.output_dir)
        files = sorted(path.relative_to(out).as_posix() for path in out.rglob("*"))
        log = [json.loads(line) for line in (out/"log.jsonl").read_text().splitlines()]
        assert [row["step"] for row in log if "loss" in row] == list(range(1, 13))
        facts = json.loads((out/"run.json").read_text())
        assert facts["results"] == run.results and facts["settings"]["max_steps"] == 12 and facts["format"] == 2
        assert sorted([*facts["files"], "run.json"]) == files and not foreign_files(out)
        rows = [json.loads(line) for line in data.read_text().splitlines()]
        held = [json.loads(line) for line in (out/"held_out.jsonl").read_text().splitlines()]
        assert len(held) == len(run.held_out) == run.results["n_eval"] == 12 and all(r in rows for r in held)

def test_both_tasks_hold_out_the_same_rows(runs):
    sft, reward = runs
    assert sorted(prompts_of(sft.held_out)) == sorted(prompts_of(reward.held_out.chosen))

def test_results_are_those_of_the_saved_model(runs):
    for run in runs:
        again = TASKS[run.config.task].eval_fn(run.model, run.held_out)
        assert all(run.results[k] == v for k, v in again.items())
    assert runs[1].results["eval_accuracy"] > .9                # an easy file
    made = results_of(runs[1].trainer, dict(eval_accuracy=.75), 12)
    assert made["standard_error"] == pytest.approx(.125)            # sqrt(.75 * .25 / 12)

def test_default_train_config(data):
    lm, _ = begin_model(RunConfig("sft", str(data), ""))
    for config, want in [(RunConfig("sft", "", ""), (200, 3e-3)), (RunConfig("reward", "", ""), (100, 2e-3)),
                      (RunConfig("sft", "", "", model="x"), (75, 1.5e-3)),
                      (RunConfig("reward", "", "", model="x", lora_r=4), (75, 1e-2)),
                      (RunConfig("reward", "", "", batch_size=16), (200, 2e-3)),
                      (RunConfig("reward", "", "", max_steps=3, lr=.5), (3, .5))]:
        got = default_train_config(config, 800, lm)
        assert (got.n_steps, pytest.approx(got.lr)) == want
        assert got.mixed_precision == "no" and got.batch_size == config.batch_size and got.micro_batch_size == 64
    assert default_train_config(RunConfig("sft", "", ""), 10, lm).n_steps == 50
    wide = tiny_lm(begin_model(RunConfig("sft", str(data), ""))[1], hidden=1024, layers=1)
    assert default_train_config(RunConfig("sft", "", ""), 800, wide).micro_batch_size == 8
    assert default_train_config(RunConfig("sft", "", ""), 800, wide).lr == pytest.approx(3e-3 / 16)

def test_bfloat16_on_a_gpu_that_has_it(data, monkeypatch):
    lm, _ = begin_model(RunConfig("sft", str(data), ""))
    monkeypatch.setattr(recipes, "choose_placement", lambda name: Placement(torch.device("cpu"), torch.bfloat16))
    assert default_train_config(RunConfig("sft", "", "", model="x"), 99, lm).mixed_precision == "bf16"
    assert default_train_config(RunConfig("sft", "", "", model="x", lora_r=4), 99, lm).mixed_precision == "no"

@pytest.mark.parametrize("task", ["sft", "reward"])
def test_lora_in_bfloat16_trains_adapters_and_saves_a_plain_model(task, runs, data, tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "choose_placement", lambda name: Placement(torch.device("cpu"), torch.bfloat16))
    config = RunConfig(task, str(data), str(tmp_path/"x"), model=runs[0].config.output_dir, lora_r=4, **SHORT)
    run = train(config)
    trained = {n for n, p in run.model.named_parameters() if p.requires_grad}
    assert trained and all("lora" in n or n == "score.weight" for n in trained)
    frozen = [p for p in run.model.parameters() if not p.requires_grad]
    assert frozen and all(p.dtype == torch.bfloat16 for p in frozen)
    kind = AutoModelForCausalLM if task == "sft" else AutoModelForSequenceClassification
    model, info = kind.from_pretrained(config.output_dir, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    start = AutoModelForCausalLM.from_pretrained(runs[0].config.output_dir)
    assert not any("lora" in n for n, _ in model.named_parameters())
    a, b = (m.base_model.layers[0].attention.dense.weight.float() for m in (model, start))
    assert (a - b).abs().max() > 1e-3                                # merged, not lost
    if task == "reward":
        again = score_seqs(load_reward_model(config.output_dir), run.held_out.chosen)
        assert_close(again, score_seqs(run.model, run.held_out.chosen), atol=.1, rtol=.05)

def test_head_borrows_the_body(data):
    lm, _ = begin_model(RunConfig("reward", str(data), ""))
    before = torch.get_rng_state()
    model = add_scalar_head(lm, seed=3)
    assert torch.equal(before, torch.get_rng_state()) and model.backbone is lm.base_model
    assert torch.equal(add_scalar_head(lm, 3).score.weight, model.score.weight)
    assert not torch.equal(add_scalar_head(lm, 4).score.weight, model.score.weight)

def test_dropout_only_from_scratch_and_saved(runs, data):
    lm, _ = begin_model(RunConfig("reward", str(data), ""))
    assert {m.p for m in lm.modules() if isinstance(m, torch.nn.Dropout)} >= {.2}
    assert AutoModelForCausalLM.from_pretrained(runs[0].config.output_dir).config.hidden_dropout == .2
    assert not runs[0].model.training and not runs[1].model.training

def test_same_seed_same_weights_another_seed_another_run(runs, data, tmp_path):
    config = replace(runs[1].config, output_dir=str(tmp_path/"a"))
    torch.rand(3)                                                   # the global state plays no part
    assert weight_hash(train(config).model) == weight_hash(runs[1].model)
    other = train(replace(config, output_dir=str(tmp_path/"b"), seed=1))
    assert prompts_of(other.held_out.chosen) != prompts_of(runs[1].held_out.chosen)

def test_global_random_state_is_left_alone(data, tmp_path):
    before = torch.get_rng_state()
    train(RunConfig("reward", str(data), str(tmp_path/"x"), max_steps=2))
    assert torch.equal(before, torch.get_rng_state())

def begin_run(config):
    "The folder of a run that was interrupted before its first step."
    with pytest.raises(KeyboardInterrupt):
        with open_run(config.output_dir, recipes._PROGRAM, files=recipes._FILES, settings=recipes._settings(config)):
            raise KeyboardInterrupt

def test_folders_that_are_refused(data, runs, tmp_path):
    config, check = RunConfig("sft", str(data), str(tmp_path/"run")), recipes._check_folder
    assert not check(config)
    assert not (tmp_path/"run").exists()                            # looking makes nothing
    begin_run(config)
    assert check(config) and check(replace(config, data=str(data.parent/"."/"pairs.jsonl")))
    longer, n = tmp_path/"pairs.jsonl", torch.get_num_threads()
    longer.write_text(data.read_text() + '{"prompt": "a", "chosen": "b", "rejected": "c"}\n')
    for change, error in [(dict(seed=5), "seed was 0, got 5"), (dict(task="reward"), "task was 'sft'"), (dict(lr=.5), "lr was 0.0"),
                          (dict(data=str(longer)), "is not the file that the run in .* began with"), (dict(model=runs[0].config.output_dir), "model was ''")]:
        with pytest.raises(ValueError, match=f"{error}.*--overwrite to begin anew"): check(replace(config, **change))
        with pytest.raises(ValueError, match=error): train(replace(config, **change))
        assert not check(replace(config, **change), overwrite=True)
    torch.set_num_threads(n + 1)
    try:
        with pytest.raises(ValueError, match=rf"num_threads was {n}, got {n + 1}.*set_num_threads\({n}\)"): check(config)
    finally: torch.set_num_threads(n)
    mine = tmp_path/"mine"
    mine.mkdir(); (mine/"thesis.txt").write_text("years of work"); (mine/"run.json").write_text('{"results": {}}')
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="another program or version: its format is None"):
            train(replace(config, output_dir=str(mine)), overwrite)
        with pytest.raises(ValueError, match="pairs.jsonl is a file"): train(replace(config, output_dir=str(longer)), overwrite)
    assert (mine/"thesis.txt").exists() and (mine/"run.json").read_text() == '{"results": {}}'

def test_a_changed_model_is_another_run(data, runs, tmp_path):
    shutil.copytree(runs[0].config.output_dir, tmp_path/"m")
    config = RunConfig("reward", str(data), str(tmp_path/"run"), model=str(tmp_path/"m"))
    begin_run(config)
    with (tmp_path/"m"/"model.safetensors").open("r+b") as file: file.seek(-1, 2); file.write(b"\x00")
    with pytest.raises(ValueError, match="model.safetensors was"): train(config)

@pytest.mark.parametrize("out", [".", "..", "data", "data/pairs.jsonl", "m"])
def test_an_output_that_holds_what_is_read(data, runs, tmp_path, monkeypatch, capfd, out):
    (tmp_path/"here"/"data").mkdir(parents=True)
    monkeypatch.chdir(tmp_path/"here")
    shutil.copy(data, "data/pairs.jsonl"); shutil.copytree(runs[0].config.output_dir, "m")
    before = {p: p.read_bytes() for p in Path(".").rglob("*") if p.is_file()}
    for more in ([], ["--overwrite"], ["--dry-run"]):
        assert main(["train", "reward", "data/pairs.jsonl", "--model", "m", "-o", out, "--max-steps", "1", *more]) == 2
        assert "name another output" in capfd.readouterr().err
    assert before == {p: p.read_bytes() for p in Path(".").rglob("*") if p.is_file()}

# ---- overwritten, killed, on a full disk

def small(data, tmp_path, **more):
    few = tmp_path/"few.jsonl"
    if not few.exists(): few.write_text("".join(data.read_text().splitlines(True)[:12]))
    return RunConfig("reward", str(few), str(tmp_path/"run"), **dict(max_steps=2, batch_size=4) | more)

def content(folder): return {p.relative_to(folder).as_posix(): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}

def weights(folder): return (Path(folder)/"model.safetensors").read_bytes()

def test_a_new_run_dies_at_the_disk_and_goes_on(data, tmp_path):
    config, k = small(data, tmp_path), 0
    train(replace(config, output_dir=str(tmp_path/"whole")))
    while True:
        now = replace(config, output_dir=str(tmp_path/str(k)))
        died = dies_at(k, lambda: train(now))
        if died:
            try: train(now)
            except ValueError as e: assert "holds a finished run" in str(e)      # died while it cleaned up
        assert weights(now.output_dir) == weights(tmp_path/"whole"), k
        assert set(content(now.output_dir)) == set(content(tmp_path/"whole")) and not foreign_files(now.output_dir)
        shutil.rmtree(now.output_dir)
        if not died: break
        k += 3
    assert k > 60

@pytest.mark.parametrize("start", [0, 1])
def test_overwrite_dies_at_the_disk_and_one_run_is_whole(data, tmp_path, start):
    old, new = small(data, tmp_path), small(data, tmp_path, seed=1)
    train(replace(new, output_dir=str(tmp_path/"new"))); train(old)
    out, want = Path(old.output_dir), weights(tmp_path/"new")
    shutil.copytree(out, tmp_path/"old")
    k, died = start, True
    while died:
        died = dies_at(k, lambda: train(new, overwrite=True))
        beside = [p for p in tmp_path.iterdir() if p.name.startswith("run.")]
        if out.exists(): assert weights(out) == want or {**content(out), "lock": b""} == content(tmp_path/"old"), k
        else: assert sorted(p.name.split("-")[0] for p in beside) == ["run.new", "run.old"]
        if died: train(new, overwrite=True)
        assert weights(out) == want and not foreign_files(out), k
        assert not [p for p in tmp_path.iterdir() if p.name.startswith("run.")]
        shutil.rmtree(out); shutil.copytree(tmp_path/"old", out)
        k += 5 if k < 50 else 2
    assert k > 80

def test_a_typo_leaves_the_old_run_as_it_is(runs, data, tmp_path, capfd):
    config = small(data, tmp_path)
    train(config)
    before = content(config.output_dir)
    for words in (["nowhere.jsonl"], [config.data, "--model", "./none"], [config.data, "--lora-r", "4"],
                  [config.data, "--eval-rows", "60"], [config.data, "--max-length", "5000"]):
        assert main(["train", "reward", *words, "-o", config.output_dir, "--overwrite"]) == 2
        assert content(config.output_dir) == before and len(list(tmp_path.iterdir())) == 2, words

def test_overwrite_goes_on_beside_the_old_run_with_the_same_settings_only(data, tmp_path, monkeypatch):
    config, new = small(data, tmp_path), small(data, tmp_path, seed=1)
    train(config)
    before = content(config.output_dir)
    assert dies_at(40, lambda: train(new, overwrite=True))
    with pytest.raises(ValueError, match=r"seed was 1, got 2.*delete .*run.new-\w+ to begin anew"):
        train(replace(new, seed=2), overwrite=True)
    with pytest.raises(ValueError, match="finished run"): train(config)
    assert content(config.output_dir) == before
    train(new, overwrite=True)
    assert read_folder(config.output_dir, "run.json", recipes._PROGRAM)["settings"]["seed"] == 1
    assert len(list(tmp_path.iterdir())) == 2

def test_foreign_files_are_not_overwritten(data, tmp_path):
    config = small(data, tmp_path)
    train(config)
    (Path(config.output_dir)/"notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds notes.txt, which is no file of this run"): train(config, overwrite=True)
    assert (Path(config.output_dir)/"notes.txt").read_text() == "mine"

def test_a_file_of_somebody_else_in_the_place_of_the_model(data, tmp_path):
    config = small(data, tmp_path)
    begin_run(config)
    (Path(config.output_dir)/"config.json").write_text("mine")
    with pytest.raises(ValueError, match="config.json is not of this run: move it away"): train(config)
    assert (Path(config.output_dir)/"config.json").read_text() == "mine"
    (Path(config.output_dir)/"config.json").unlink()
    train(config)
    assert not foreign_files(config.output_dir)

@pytest.mark.parametrize("where", ["run.json", "work/work.json"])
@pytest.mark.parametrize("text", ["", "{", '{"format": 2, "program": "rlhf-nb train"', "\x00" * 99, "[]", '{"format": 1}'])
def test_a_damaged_marker_is_named(data, tmp_path, where, text):
    config = small(data, tmp_path)
    assert dies_at(45, lambda: train(config))
    path = Path(config.output_dir)/where
    path.write_text(text)
    for overwrite in (False, True) if where == "run.json" else (False,):
        with pytest.raises(ValueError, match=rf"{path.name} is (damaged|of another program or version)"): train(config, overwrite)
    assert path.read_text() == text

@POSIX
@pytest.mark.parametrize("limit", [1_100, 5_000, 100_000, 400_000])
def test_a_full_disk_says_so_and_the_command_goes_on(data, tmp_path, limit, capfd):
    config, old = small(data, tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    line = ["train", "reward", config.data, "--max-steps", "2", "--batch-size", "4", "-o"]
    assert main([*line, str(tmp_path/"whole")]) == 0
    train(replace(config, seed=1))
    before, handler = content(config.output_dir), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    capfd.readouterr()
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
    try:
        for words in ([str(tmp_path/"new")], [config.output_dir, "--overwrite"]):
            assert main([*line, *words]) == 2
            err = capfd.readouterr().err
            assert re.search("may not grow|no room", err) and "a run to be replaced are whole" in err, err
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert content(config.output_dir) == before
    assert main([*line, str(tmp_path/"new")]) == 0 and main([*line, config.output_dir, "--overwrite"]) == 0
    assert weights(tmp_path/"new") == weights(tmp_path/"whole") == weights(config.output_dir)

def test_one_process_at_a_time(data, tmp_path):
    config = small(data, tmp_path)
    train(config)
    with open_run(config.output_dir, recipes._PROGRAM):
        for overwrite in (False, True):
            with pytest.raises(ValueError, match="finished run" if not overwrite else "by another process"): train(config, overwrite)

def test_the_lock_is_free_after_an_error(data, tmp_path, monkeypatch):
    config = small(data, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(recipes, "results_of", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError) as kept: train(config)
    train(config)                                                   # though the traceback still holds the frames

# ---- best-of-n writes over nothing

def test_best_of_n_writes_over_nothing(runs, data, tmp_path, monkeypatch, capfd):
    sft, reward = (run.config.output_dir for run in runs)
    prompts, out = tmp_path/"prompts.jsonl", tmp_path/"picks.jsonl"
    prompts.write_text("".join(data.read_text().splitlines(True)[:3]))
    shutil.copy(prompts, tmp_path/"mine.jsonl")
    line = ["best-of-n", sft, reward, str(prompts), "-n", "2", "--max-new-tokens", "5", "-o"]
    with monkeypatch.context() as patch:
        patch.setattr(recipes, "run_best_of_n", lambda config: 1 / 0)  # refused before anything is sampled
        for path in (prompts, tmp_path, Path(sft), tmp_path/"mine.jsonl", data):
            before = path.read_bytes() if path.is_file() else sorted(path.iterdir())
            for more in ([], ["--overwrite"]):
                assert main([*line, str(path), *more]) == 2
                assert re.search("name a(nother output| new file)", capfd.readouterr().err)
            assert before == (path.read_bytes() if path.is_file() else sorted(path.iterdir()))
    assert main([*line, str(out)]) == 0
    first = out.read_text()
    assert main([*line, str(out)]) == 2 and "exists: name a new file, or use --overwrite" in capfd.readouterr().err
    assert main([*line, str(out), "--overwrite", "--seed", "1"]) == 0 and out.read_text() != first
    assert main(["best-of-n", sft, reward, str(out), "-n", "2", "-o", str(out), "--overwrite"]) == 2
    assert "which is read" in capfd.readouterr().err

def test_best_of_n_writes_whole_or_not_at_all(tmp_path):
    one = BestOfNResult(["p"], [["a", "b"]], torch.tensor([[1., 2.]]))
    two = BestOfNResult(["p", "q"], [["a", "b"]] * 2, torch.tensor([[1., 2.]] * 2))
    path = tmp_path/"picks.jsonl"
    write_best_of_n(one, path)
    before, k = path.read_text(), 0
    while dies_at(k, lambda: write_best_of_n(two, path, overwrite=True)):
        assert path.read_text() == before or k > 2 and len(path.read_text().splitlines()) == 2
        k += 1
    assert k >= 3 and len(path.read_text().splitlines()) == 2
    for bad in ("", "notes", "[1]", '{"prompt": "p"}', path.read_text() + "{}"):
        mine = tmp_path/"mine"
        mine.write_text(bad)
        with pytest.raises(ValueError, match="was not written by best-of-n"): write_best_of_n(one, mine, overwrite=True)
        assert mine.read_text() == bad

# ---- code that came with a model, signals

CODE = """
import sys
from rlhf_nb.workbook import main
sys.exit(main(sys.argv[1:]))
"""

def test_code_of_a_model_never_runs_because_standard_input_says_y(folder_with_code, press_y, runs, data, tmp_path):
    ran, sft = folder_with_code/"ran", runs[0].config.output_dir
    for words in (["train", "sft", str(data), "-o", str(tmp_path/"x"), "--model", str(folder_with_code)],
                  ["best-of-n", str(folder_with_code), sft, str(data)], ["best-of-n", sft, str(folder_with_code), str(data)]):
        done = press_y(CODE, *words)
        assert not ran.exists() and done.returncode == 2 and "trust_remote_code" in done.stderr, (words, done.stderr)

@POSIX
@pytest.mark.parametrize("name, status", [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_stops_the_command_as_a_whole_and_it_goes_on(data, tmp_path, name, status):
    line = ["train", "reward", str(data), "-o", str(tmp_path/"x"), "--max-steps", "80", "--batch-size", "8"]
    code = "import torch; torch.set_num_threads(1)" + CODE
    with subprocess.Popen([sys.executable, "-c", code, *line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        end = time.time() + 120
        while time.time() < end and not list((tmp_path/"x"/"work").glob("checkpoints/*-step-*[0-9]")) and process.poll() is None:
            time.sleep(.02)
        process.send_signal(getattr(signal, name))
        out, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    assert "the same command goes on" in out and "Traceback" not in err and "Error" not in err
    assert main(line) == 0

def test_bad_data_leaves_no_folder_and_an_old_run_as_it_is(runs, tmp_path):
    bad = tmp_path/"bad.jsonl"
    bad.write_text('{"prompt": "a"}\n')
    with pytest.raises(ValueError, match="bad.jsonl:1"): train(RunConfig("reward", str(bad), str(tmp_path/"x")))
    assert not (tmp_path/"x").exists()
    before = sorted(p.name for p in Path(runs[1].config.output_dir).iterdir())
    with pytest.raises(ValueError): train(replace(runs[1].config, data=str(bad)), overwrite=True)
    assert sorted(p.name for p in Path(runs[1].config.output_dir).iterdir()) == before

def test_a_finished_run_is_refused_before_anything_is_read(runs, monkeypatch):
    def begin(config): raise AssertionError("read")
    monkeypatch.setattr(recipes, "begin_model", begin)
    with pytest.raises(ValueError, match="finished"): train(runs[0].config)

def test_the_seed_chooses_the_batches(data, tmp_path, monkeypatch):
    seen, real = [], recipes.fit
    def spy(trainer, rows, loss, generator, *args, **kwargs):
        seen.append(generator.initial_seed())
        return real(trainer, rows, loss, generator, *args, **kwargs)
    monkeypatch.setattr(recipes, "fit", spy)
    train(RunConfig("sft", str(data), str(tmp_path/"x"), max_steps=1, seed=5))
    assert seen == [5]

def test_begin_model_refuses(data, runs):
    for change, words in [(dict(lora_r=4), "--model"), (dict(max_length=2000), "1024"),
                          (dict(model="./none"), "no folder"), (dict(device="cuda:9"), "cuda"),
                          (dict(data="none.jsonl"), "no file")]:
        with pytest.raises((ValueError, OSError), match=words): begin_model(replace(RunConfig("reward", str(data), ""), **change))

def test_a_model_without_a_pad_of_its_own_gets_one(runs, data, tmp_path):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(runs[0].config.output_dir), AutoTokenizer.from_pretrained(runs[0].config.output_dir)
    tokenizer.pad_token = tokenizer.eos_token
    model.save_pretrained(tmp_path/"m"); tokenizer.save_pretrained(tmp_path/"m")
    run = train(RunConfig("reward", str(data), str(tmp_path/"x"), model=str(tmp_path/"m"), **SHORT))
    assert run.tokenizer.pad_token_id != run.tokenizer.eos_token_id
    assert AutoModelForSequenceClassification.from_pretrained(run.config.output_dir, num_labels=1).config.pad_token_id == run.tokenizer.pad_token_id

def test_killed_run_goes_on_and_ends_the_same(data, tmp_path):
    "A process killed by -9; the same command takes the rest of the steps and no others."
    config = RunConfig("reward", str(data), str(tmp_path/"cut"), max_steps=120, batch_size=8)
    words = ["train", "reward", config.data, "--output-dir", config.output_dir, "--max-steps", "120", "--batch-size", "8"]
    code = f"import torch; torch.set_num_threads(1); from rlhf_nb.workbook import main; main({words!r})"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    checkpoints, end = Path(config.output_dir)/"work"/"checkpoints", time.time() + 120
    while time.time() < end and not list(checkpoints.glob("*-step-*[0-9]")) and process.poll() is None: time.sleep(.02)
    assert process.poll() is None, process.stdout.read().decode()
    process.send_signal(signal.SIGKILL); process.wait()
    begun = int(sorted(checkpoints.glob("*-step-*[0-9]"))[-1].name.split("-")[-1])
    assert 0 < begun < 120 and "results" not in json.loads((Path(config.output_dir)/"run.json").read_text())
    with pytest.raises(ValueError, match="max_steps"): train(replace(config, max_steps=121))
    run = train(config)
    whole = train(replace(config, output_dir=str(tmp_path/"whole")))
    assert weight_hash(run.model) == weight_hash(whole.model)
    steps = [json.loads(line)["step"] for line in (Path(config.output_dir)/"log.jsonl").read_text().splitlines() if '"lr"' in line]
    assert steps == list(range(1, 121))
    for key in ("eval_loss", "eval_accuracy", "steps", "n_eval"): assert run.results[key] == whole.results[key]

def test_best_of_n(runs, tmp_path):
    sft, reward = runs
    config = BestOfNConfig(sft.config.output_dir, reward.config.output_dir, str(Path(reward.config.output_dir)/"held_out.jsonl"), num_generations=4, max_prompts=5, sampling=SamplingParams(20))
    picks = run_best_of_n(config)
    assert picks.score.shape == (5, 4) and [len(a) for a in picks.answers] == [4] * 5
    assert len({a for answers in picks.answers for a in answers}) > 5
    assert picks.score.mean().abs() < 1e-5 and torch.equal(picks.score, run_best_of_n(config).score)
    held = [json.loads(x)["prompt"] for x in (Path(reward.config.output_dir)/"held_out.jsonl").open()]
    assert picks.prompts == held[:5]                                # in the order of the file
    write_best_of_n(picks, tmp_path/"deep"/"picks.jsonl")
    for line, answers, score in zip((tmp_path/"deep"/"picks.jsonl").open(), picks.answers, picks.score):
        row = json.loads(line)
        assert row["response"] == answers[int(score.argmax())] and row["answers"] == answers

def test_best_of_n_between_tokenizers(runs, data, tmp_path, monkeypatch):
    "The reward model reads text: its own tokenizer may have any ids."
    other = data.parent/"other.jsonl"
    other.write_text(data.read_text().replace("Where", "Whither").replace("Gladly", "Certainly, it is my pleasure"))
    reward = train(RunConfig("reward", str(other), str(tmp_path/"r"), **SHORT))
    assert reward.tokenizer.get_vocab() != runs[0].tokenizer.get_vocab()
    calls, real = [], recipes.score_texts
    monkeypatch.setattr(recipes, "score_texts", lambda *args: calls.append(args) or real(*args))
    picks = run_best_of_n(BestOfNConfig(runs[0].config.output_dir, reward.config.output_dir, str(data), num_generations=2, max_prompts=3, sampling=SamplingParams(20)))
    assert picks.score.shape == (3, 2)
    (_, tokenizer), prompts, answers, _ = calls[0]
    assert tokenizer.get_vocab() == reward.tokenizer.get_vocab()
    assert [tokenizer.decode(p, skip_special_tokens=True) for p in prompts[::2]] == picks.prompts
    assert [a for a, _ in answers] == [a for row in picks.answers for a in row]

def test_scores_of_texts(runs):
    _, run = runs
    seqs = run.held_out.rejected
    prompts, texts = [list(p) for p in prompts_of(seqs)], [a for _, a in decode_seqs(run.tokenizer, seqs)]
    got = score_texts((run.model, run.tokenizer), prompts, [(a, True) for a in texts], 256)
    assert_close(got, score_seqs(run.model, seqs))
    cut = score_texts((run.model, run.tokenizer), prompts, [(a, False) for a in texts], 256)
    assert (cut - got).abs().min() > 0                              # an answer without its end
    long = [(a * 50, True) for a in texts]
    short, whole = [score_texts((run.model, run.tokenizer), prompts, long, n) for n in (40, 900)]
    assert (short - whole).abs().max() > 1e-3                       # cut to the room there is

def test_format_best_of_n():
    picks = BestOfNResult(["p", "q"], [["a", "b", "c"], ["d", "e", "f"]], torch.tensor([[1., 2., 4.], [3., 0., 0.]]))
    text = format_best_of_n(picks, 1)
    # best of 1: means 7/3 and 1; of 2: (2 + 4 + 4) / 3 and (3 + 3 + 0) / 3; of 3: 4 and 3
    for n, value in ((1, "+1.67"), (2, "+2.67"), (3, "+3.50")): assert re.search(rf"^ +{n}  \{value}$", text, re.M)
    assert "+4.00  best   c" in text and "+1.00  first  a" in text and "q" not in text.split()

@pytest.mark.parametrize("words,error", [
    ("train reward none.jsonl -o x", "no file none.jsonl"),
    ("train reward {data} -o {reward}", "finished run"),
    ("train reward {data} -o x --lora-r 4", "--model"),
    ("train sft {data} -o x --model ./none", "no folder"),
    ("train reward {data} -o x --eval-rows 60", "60 of 60 rows"),
    ("best-of-n {sft} {sft} {data}", "no reward model"),
    ("best-of-n {sft} {reward} none.jsonl", "no file"),
])
def test_command_line_refuses_in_one_message(words, error, runs, data, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    line = words.format(data=data, sft=runs[0].config.output_dir, reward=runs[1].config.output_dir).split()
    assert main(line) == 2
    err = capfd.readouterr().err
    assert error in err and err.startswith(f"rlhf-nb {line[0]}: ") and "Traceback" not in err
    assert not Path("x").exists()

@pytest.mark.parametrize("words", ["train reward", "train reward x", "train", "train kto x -o y", "train ppo x -o y", "train sft x -o y --max-steps 0",
    "train sft x -o y --max-steps many", "train sft x -o y --lr -1", "train sft x -o y --lr nan", "best-of-n a b"])
def test_command_line_usage_errors(words, capfd):
    with pytest.raises(SystemExit) as e: main(words.split())
    assert e.value.code == 2 and "usage: rlhf-nb" in capfd.readouterr().err

def test_command_line(data, tmp_path, capfd):
    out = tmp_path/"r"
    assert main(["train", "reward", str(data), "--output-dir", str(out), "--max-steps", "3", "--eval-rows", "7", "--seed", "2"]) == 0
    shown = capfd.readouterr()
    assert "60 of 60 rows kept" in shown.out and "53 to learn from, 7 held out" in shown.out and "accuracy" in shown.out
    assert "surest" in shown.out and shown.err == ""
    assert main(["train", "reward", str(data), "--output-dir", str(out), "--max-steps", "3", "--overwrite"]) == 0
    for command in (["train", "sft"], ["train", "reward"], ["train", "dpo"], ["train", "ppo"], ["train", "grpo"], ["best-of-n"]):
        with pytest.raises(SystemExit) as e: main([*command, "--help"])
        assert e.value.code == 0 and "example" in capfd.readouterr().out

def parsed(words):
    parser = argparse.ArgumentParser()
    sub = parser.add_subparsers()
    add_train_parser(sub), add_best_of_n_parser(sub)
    return parser.parse_args(words.split())

def test_every_option_arrives_in_the_field_of_its_name():
    "The command line and the fields are matched as strings; no value here is a default."
    args = parsed("train reward d.jsonl -o out --model m --max-steps 3 --learning-rate .5 --batch-size 4 --micro-batch-size 2 "
                  "--max-length 99 --eval-rows 7 --lora-r 6 --device cpu --seed 5 --skip-invalid --mixed-precision bf16 "
                  "--gradient-checkpointing --margins --beta .3 --turns last --warmup-steps 4 --final-lr-frac .5 "
                  "--weight-decay .2 --max-grad-norm 2.5 --tf32 --max-logits-mb 9 --report-to tensorboard --push-to-hub me/it "
                  "--lora-targets q,v --stop-token .")
    got = recipes._take(RunConfig, args)
    assert got == dict(task="reward", data="d.jsonl", output_dir="out", model="m", max_steps=3, lr=.5, batch_size=4,
        micro_batch_size=2, max_length=99, eval_rows=7, lora_r=6, device="cpu", seed=5, strict=False,
        mixed_precision="bf16", gradient_checkpointing=True, margins=True, beta=.3, turns="last", warmup_steps=4, final_lr_frac=.5,
        weight_decay=.2, max_grad_norm=2.5, tf32=True, max_logits_mb=9., report_to="tensorboard", push_to_hub="me/it",
        lora_targets="q,v", stop_token=".")
    start = asdict(RunConfig("sft", "", ""))
    assert got.keys() == start.keys() and all(got[name] != start[name] for name in got)
    short = parsed("train sft d.jsonl --out out --model-name-or-path m --lr .25")
    assert (short.output_dir, short.model, short.lr, short.task) == ("out", "m", .25, "sft")
    plain = parsed("train sft d -o o")
    assert RunConfig(**recipes._take(RunConfig, plain)) == RunConfig("sft", "d", "o")
    args = parsed("best-of-n a b c -n 3 --max-prompts 9 --max-length 77 --device cpu --seed 4 --skip-invalid -o picks.jsonl")
    got = BestOfNConfig(**recipes._take(BestOfNConfig, args))
    assert got == BestOfNConfig("a", "b", "c", 3, 9, max_length=77, device="cpu", seed=4, strict=False)
    assert parsed("best-of-n a b c --num-generations 5").num_generations == 5 and args.output == "picks.jsonl"
    args = parsed("best-of-n a b c")
    assert BestOfNConfig(**recipes._take(BestOfNConfig, args)) == BestOfNConfig("a", "b", "c")

def test_help_prints_every_default():
    parser = argparse.ArgumentParser()
    sub = parser.add_subparsers()
    add_train_parser(sub), add_best_of_n_parser(sub)
    tasks = sub.choices["train"]._subparsers._group_actions[0].choices
    for command in (*tasks.values(), sub.choices["best-of-n"]):
        options = [a for a in command._actions if a.option_strings and a.dest != "help" and a.help != argparse.SUPPRESS]
        assert len(options) >= 9
        for a in options:
            assert "(required)" in a.help if a.required else "(default: " in a.help, a.dest
            plain = re.search(r"\(default: ([\d.]+)\)", a.help)
            assert not plain or float(plain[1]) == a.default, a.dest     # the help tells the true number
    assert len(tasks) == 5

def test_underscore_and_hyphen_alike(data, tmp_path, capfd):
    line = ["train", "reward", str(data), "--output_dir", str(tmp_path/"a_b"), "--max_steps=2", "--eval_rows", "7"]
    assert main(line) == 0 and (tmp_path/"a_b"/"config.json").exists() and "7 held out" in capfd.readouterr().out

def test_dry_run_writes_nothing(data, runs, tmp_path, capfd):
    out = tmp_path/"r"
    line = ["train", "reward", str(data), "-o", str(out), "--dry-run", "--seed", "3"]
    assert main(line) == 0 and not out.exists() and not list(tmp_path.iterdir())
    text = capfd.readouterr().out
    for want in ("48 to learn from, 12 held out", "steps     50", "seed=3", "lr=0.002", "nothing was trained"): assert want in text
    assert main([*line, "--lora-r", "4"]) == 2 and main([*line[:4], runs[0].config.output_dir, "--dry-run"]) == 2

@pytest.mark.parametrize("change, error", [(dict(task="kto"), "task must be one of"), (dict(lr=-1.), "lr must be 0 or more"),
    (dict(batch_size=0), "batch_size must be above 0"), (dict(max_steps=2.5), "max_steps must be a whole number"),
    (dict(strict=1), "strict must be True or False"), (dict(lr=float("nan")), "lr must be a finite number")])
def test_a_config_checks_its_fields(change, error):
    with pytest.raises((ValueError, TypeError), match="RunConfig." + error):
        RunConfig(**{**dict(task="sft", data="", output_dir=""), **change})

def test_a_best_of_n_config_checks_its_fields():
    for name in ("num_generations", "max_prompts", "max_length"):
        with pytest.raises(ValueError, match=f"BestOfNConfig.{name} must be above 0"): BestOfNConfig("a", "b", "c", **{name: 0})

def test_skip_invalid(data, tmp_path, capfd):
    path = tmp_path/"some.jsonl"
    path.write_text("{oops\n" + data.read_text())
    assert main(["train", "sft", str(path), "--output-dir", str(tmp_path/"x"), "--max-steps", "2"]) == 2
    assert "some.jsonl:1: broken JSON" in capfd.readouterr().err
    assert main(["train", "sft", str(path), "--output-dir", str(tmp_path/"x"), "--max-steps", "2", "--skip-invalid"]) == 0
    assert "dropped: broken JSON" in capfd.readouterr().out
    run = train(RunConfig("sft", str(path), str(tmp_path/"y"), max_steps=2, strict=False))
    held = [json.loads(x)["prompt"] for x in (tmp_path/"y"/"held_out.jsonl").open()]
    assert held == [prompt for prompt, _ in decode_seqs(run.tokenizer, run.held_out)]

def test_ctrl_c_says_how_to_go_on(data, tmp_path, monkeypatch, capfd):
    def stop(*args): raise KeyboardInterrupt
    monkeypatch.setitem(TASKS, "reward", replace(TASKS["reward"], loss=stop))
    assert main(["train", "reward", str(data), "--output-dir", str(tmp_path/"x"), "--max-steps", "2"]) == 130
    assert "goes on" in capfd.readouterr().out

@pytest.mark.skipif(not REAL.is_file(), reason="the real preference file is not here")
def test_real_file(tmp_path):
    "The file's own word on politeness: nine in ten held-out pairs are put in the right order."
    run = train(RunConfig("reward", str(REAL), str(tmp_path/"r")))
    assert len(run.held_out) == 100 and run.report.kept == 895
    assert run.results["eval_accuracy"] >= .85

# ---- schedule, trackers, budget: from a config to where they act

def test_settings_of_the_steps_arrive(runs):
    given = dict(warmup_steps=4, final_lr_frac=.5, weight_decay=.2, max_grad_norm=float("inf"))
    got = default_train_config(RunConfig("sft", "d", "o", **given), 100, runs[0].model)
    assert {name: getattr(got, name) for name in given} == given
    start = default_train_config(RunConfig("sft", "d", "o"), 100, runs[0].model)
    assert (start.warmup_steps, start.final_lr_frac, start.weight_decay, start.max_grad_norm) == (20, .05, 0., 1.)

def test_a_dry_run_counts_the_budget_and_checks_trackers_and_hub(data, tmp_path, capfd):
    line = ["train", "sft", str(data), "-o", str(tmp_path/"r"), "--dry-run"]
    assert main([*line, "--max-logits-mb", "1024"]) == 0 and "logits 2.0 GB" in capfd.readouterr().out
    for more, error in ((["--report-to", "tensorbord"], "no tracker 'tensorbord'"), (["--push-to-hub", "a/b/c"], "--push-to-hub: "),
                        (["--tf32", "--device", "cpu"], "tf32 is a number format")):
        assert main([*line, *more]) == 2 and error in capfd.readouterr().err
    assert not list(tmp_path.iterdir())

def test_an_interrupted_run_may_report_elsewhere_when_it_goes_on(data, tmp_path, monkeypatch):
    config = RunConfig("sft", str(data), str(tmp_path/"r"), **SHORT)
    def cut(*args): raise KeyboardInterrupt
    with monkeypatch.context() as m:
        m.setattr(recipes, "fit", cut)
        with pytest.raises(KeyboardInterrupt): train(config)
    with pytest.raises(ValueError, match="weight_decay was 0.0, got 0.5"): train(replace(config, weight_decay=.5))
    monkeypatch.setattr(recipes, "open_trackers", lambda *args: recipes.nullcontext(lambda row: None))
    monkeypatch.setattr(recipes, "check_trackers", lambda names: [])
    assert train(replace(config, report_to="wandb")).trainer.step == 12

def test_what_a_tracker_wrote_before_a_stop_is_of_the_run(data, tmp_path, monkeypatch):
    config = RunConfig("sft", str(data), str(tmp_path/"r"), **SHORT)
    def cut(*args):
        (tmp_path/"r/tracking").mkdir()
        (tmp_path/"r/tracking/events").write_text("x")
        raise KeyboardInterrupt
    with monkeypatch.context() as m:
        m.setattr(recipes, "fit", cut)
        with pytest.raises(KeyboardInterrupt): train(config)
    assert not foreign_files(tmp_path/"r")
    train(config, overwrite=True)                              # nothing is in the way
    assert not (tmp_path/"r/tracking").exists() and (tmp_path/"r/README.md").exists()

def test_what_a_tracker_wrote_before_a_kill_is_of_the_run_and_what_others_put_there_is_not(data, tmp_path, monkeypatch):
    config, seen = RunConfig("sft", str(data), str(tmp_path/"r"), report_to="tensorboard", **SHORT), []
    @contextmanager
    def opened(names, place, settings):
        place.mkdir(exist_ok=True)
        (place/f"events{len(seen)}").write_text("x")
        seen.append(1)
        yield lambda row: None
    monkeypatch.setattr(recipes, "open_trackers", opened)
    monkeypatch.setattr(recipes, "check_trackers", lambda names: [])
    def killed(*args):
        shutil.copytree(tmp_path/"r", tmp_path/"as_it_was")
        raise KeyboardInterrupt
    with monkeypatch.context() as m:
        m.setattr(recipes, "fit", killed)
        with pytest.raises(KeyboardInterrupt): train(config)
    assert not foreign_files(tmp_path/"as_it_was")               # as SIGKILL leaves it
    (tmp_path/"r/tracking/notes.txt").write_text("mine")
    train(config)
    assert [p.name for p in foreign_files(tmp_path/"r")] == ["notes.txt"]
    files = json.loads((tmp_path/"r/run.json").read_text())["files"]
    assert {"tracking/events0", "tracking/events1"} <= set(files) and len(files) == len(set(files))
    with pytest.raises(ValueError, match="holds tracking/notes.txt, which is no file of this run"): train(config, overwrite=True)

def test_lora_targets_are_the_layers_that_learn(runs, data, tmp_path, capfd):
    line = ["train", "sft", str(data), "-o", str(tmp_path/"r"), "--model", runs[0].config.output_dir, "--lora-r", "2",
            "--lora-targets", "query_key_value, dense", "--max-steps", "2"]
    assert main([*line, "--dry-run"]) == 0
    planned = int(re.search(r"([\d,]+) of [\d,]+ weights trained", capfd.readouterr().out)[1].replace(",", ""))
    config = RunConfig("sft", str(data), str(tmp_path/"s"), runs[0].config.output_dir, lora_r=2, lora_targets="query_key_value,dense")
    trained = {n: p.numel() for n, p in begin_model(config)[0].named_parameters() if p.requires_grad}
    assert trained and all(re.search(r"(query_key_value|dense)\.lora", n) for n in trained) and planned == sum(trained.values())
    every = {n for n, p in begin_model(replace(config, lora_targets="all-linear"))[0].named_parameters() if p.requires_grad}
    assert len(every) > len(trained)
    assert main(line) == 0
    for names in ("no_such_layer", "dense,no_such_layer"):             # peft would leave out the second in silence
        with pytest.raises(ValueError, match="no layer of this model is called 'no_such_layer': LoRA can adapt dense, "):
            begin_model(replace(config, lora_targets=names))
        assert main([*line[:7], "--lora-r", "2", "--lora-targets", names, "--dry-run"]) == 2
    begin_model(replace(config, lora_targets="attention.dense"))
    assert main([*line[:7], "--lora-r", "2", "--lora-targets", "attention.dense", "--dry-run", "--overwrite"]) == 0
    planned = int(re.findall(r"([\d,]+) of [\d,]+ weights trained", capfd.readouterr().out)[-1].replace(",", ""))
    assert planned == sum(p.numel() for p in begin_model(replace(config, lora_targets="attention.dense"))[0].parameters() if p.requires_grad)

def test_a_process_that_dies_waits_for_no_other_on_its_way_out(data, tmp_path, monkeypatch):
    "Another one may wait for it elsewhere: an exchange here would never end."
    def exchange(*args): raise AssertionError("an exchange")
    monkeypatch.setattr(recipes, "in_first_process", exchange)
    for number in (0, 1):
        monkeypatch.setattr(recipes, "process_index", lambda: number)
        listed = []
        monkeypatch.setattr(recipes, "_list_files", lambda *args: listed.append(args))
        with pytest.raises(ZeroDivisionError), recipes._reported(RunConfig("sft", str(data), "o"), tmp_path): 1 / 0
        assert len(listed) == 1 - number

# ---- from a fitted reward model

@pytest.mark.parametrize("lora", [dict(), dict(lora_r=2), dict(lora_r=2, gradient_checkpointing=True, mixed_precision="bf16")], ids=str)
def test_a_fitted_reward_model_goes_on_from_its_head(runs, data, tmp_path, capfd, lora):
    "Before the first step it scores as it did; a language model gets a new head, and does not."
    old = runs[1]
    config = RunConfig("reward", str(data), str(tmp_path/"r"), model=old.config.output_dir, **SHORT, **lora)
    capfd.readouterr()
    recipes._print_plan(config)
    plan = capfd.readouterr().out
    run, drawn = train(config), train(RunConfig("reward", str(data), str(tmp_path/"d"), model=runs[0].config.output_dir, **SHORT))
    first, new = (x.trainer.log.rows[0]["eval_loss"] for x in (run, drawn))
    close = .02 if "mixed_precision" in lora else 1e-5
    assert abs(first - old.results["eval_loss"]) < close < .1 < abs(new - old.results["eval_loss"])
    words = "goes on from its fitted head"
    assert words in plan and words in recipes._table_of(run) and words not in recipes._table_of(drawn)
    n_all, n_trained = (sum(p.numel() for p in run.model.parameters() if p.requires_grad or every) for every in (True, False))
    assert f"{n_trained:,} of {n_all:,} weights trained" in plan                  # the plan counts the same
    assert ("lora" in " ".join(n for n, p in run.model.named_parameters() if p.requires_grad)) == bool(lora)
    saved, info = AutoModelForSequenceClassification.from_pretrained(config.output_dir, num_labels=1, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not list(Path(config.output_dir).glob("adapter*"))
    assert_close(score_seqs(load_reward_model(config.output_dir), run.held_out.chosen), score_seqs(run.model, run.held_out.chosen),
                 atol=10 * close, rtol=.05 if lora else 1e-4)
    start = load_reward_model(old.config.output_dir)
    assert not torch.equal(load_reward_model(config.output_dir).score.weight, start.score.weight)      # and it learned

@pytest.mark.parametrize("lora", [dict(), dict(lora_r=2)], ids=str)
def test_a_fitted_reward_model_that_was_stopped_ends_the_same(runs, data, tmp_path, monkeypatch, lora):
    config = RunConfig("reward", str(data), str(tmp_path/"r"), model=runs[1].config.output_dir, max_steps=20, batch_size=8, **lora)
    whole, real = train(replace(config, output_dir=str(tmp_path/"whole"))), recipes.make_trainer
    def cut(*args):
        trainer = real(*args)
        def stop(row):
            if row.get("step") == 14 and "loss" in row: raise ZeroDivisionError
        trainer.log.listeners.append(stop)
        return trainer
    monkeypatch.setattr(recipes, "make_trainer", cut)
    with pytest.raises(ZeroDivisionError): train(config)
    monkeypatch.setattr(recipes, "make_trainer", real)
    assert weight_hash(train(config).model) == weight_hash(whole.model)

def test_a_reward_model_without_a_pad_gets_one_and_goes_on(runs, data, tmp_path):
    old = runs[1]
    model, tokenizer = load_reward_model(old.config.output_dir), AutoTokenizer.from_pretrained(old.config.output_dir)
    recipes.save_reward_model(model, tokenizer, tmp_path/"m")
    for file in (tmp_path/"m").glob("tokenizer*.json"): file.write_text(file.read_text("utf-8").replace("<pad>", "<hole>"), "utf-8")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path/"m")
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(tmp_path/"m")
    run = train(RunConfig("reward", str(data), str(tmp_path/"r"), model=str(tmp_path/"m"), **SHORT))
    assert abs(run.trainer.log.rows[0]["eval_loss"] - old.results["eval_loss"]) < 1e-5
    saved = load_reward_model(tmp_path/"r")
    assert saved.backbone.config.pad_token_id == run.tokenizer.pad_token_id == len(run.tokenizer) - 1
    assert saved.backbone.get_input_embeddings().weight.shape[0] == len(run.tokenizer)

@pytest.mark.parametrize("task", ["sft", "dpo"])
def test_a_reward_model_is_no_start_for_other_tasks(runs, data, tmp_path, task, capfd):
    "Not even one whose embeddings are tied, which has all the weights of a language model."
    line = ["train", task, str(data), "-o", str(tmp_path/"r"), "--model", runs[1].config.output_dir]
    for words in (line, [*line, "--dry-run"]):
        assert main(words) == 2 and "is a reward model, which says nothing: name a language model" in capfd.readouterr().err
    assert not (tmp_path/"r").exists()

# ---- settings that would not be read

@pytest.mark.parametrize("task, change, words", [("sft", dict(margins=True), "margins is a setting of reward, which sft would not read"),
    ("reward", dict(turns="last"), "turns is a setting of sft"), ("sft", dict(beta=.2), "beta is a setting of dpo"),
    ("sft", dict(lora_targets="q_proj"), "lora_r is 0")])
def test_a_setting_of_another_task_is_refused(task, change, words):
    with pytest.raises(ValueError, match=words): RunConfig(task, "d", "o", **change)

def test_a_stop_token_ends_what_is_learned(runs, data, tmp_path):
    config = RunConfig("sft", str(data), str(tmp_path/"r"), model=runs[0].config.output_dir, stop_token="?", **SHORT)
    run = train(config)
    ids, end = run.held_out.ids, run.held_out.attention_mask.sum(1) - 1
    assert run.tokenizer.decode(ids[0, end[0]]) == "?" and run.results["n_eval"] == len(ids)
    assert {run.tokenizer.decode(i) for i in ids[torch.arange(len(ids)), end]} == {"?"}
    assert AutoTokenizer.from_pretrained(tmp_path/"r").eos_token == "?"
    with pytest.raises(ValueError, match="has a stop token of its own"): train(replace(config, model="", output_dir=str(tmp_path/"s")))

def test_too_long_says_what_adds_up(runs, data, tmp_path, capfd):
    "In words that are right for a flag and for a line of a TOML file."
    with pytest.raises(ValueError, match="reads 1024 tokens, max_length 2000: lower max_length"):
        train(RunConfig("sft", str(data), str(tmp_path/"r"), model=runs[0].config.output_dir, max_length=2000))

def test_experts_are_told_that_nothing_balances_them(runs, data, tmp_path, capfd):
    "By the plan and by the run; a model without experts is told nothing."
    t = AutoTokenizer.from_pretrained(runs[0].config.output_dir)
    size = dict(vocab_size=len(t), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)
    moe = MixtralForCausalLM(MixtralConfig(num_local_experts=3, num_experts_per_tok=1, pad_token_id=0, bos_token_id=1, eos_token_id=2, **size))
    moe.save_pretrained(tmp_path/"moe"); t.save_pretrained(tmp_path/"moe")
    (tmp_path/"rule_moe.py").write_text("def f(prompts, responses): return [0.] * len(prompts)\n")
    words = "3 experts in a layer: no load-balancing loss is added"
    for model, wanted in (("moe", 1), (runs[0].config.output_dir, 0)):
        line = ["train", "sft", str(data), "-o", str(tmp_path/f"o{wanted}"), "--model", str(tmp_path/model), "--max-steps", "1"]
        for more in (["--dry-run"], []):
            assert main([*line, *more]) == 0 and capfd.readouterr().out.count(words) == wanted
    assert main(["train", "grpo", str(data), "-o", str(tmp_path/"g"), "--model", str(tmp_path/"moe"), "--reward", runs[1].config.output_dir, "--dry-run"]) == 0
    assert capfd.readouterr().out.count(words) == 1
    (tmp_path/"p.toml").write_text(f'model = "{tmp_path/"moe"}"\n[[stage]]\nkind = "PreferenceDPO"\ndata = "{data}"\nmax_steps = 1\n')
    assert main(["pipeline", "run", str(tmp_path/"p.toml"), "-o", str(tmp_path/"p")]) in (0, None) and capfd.readouterr().out.count(words) == 1

# ---- rows without a prompt, margins

def test_texts_alone_are_held_out_as_any_other_rows(data, runs, tmp_path):
    "Their prompt is the start token, the same for all: they are told apart by the text; equal ones stay together."
    rows = [dict(text=json.loads(x)["chosen"] + f" {i}") for i, x in enumerate(data.read_text().splitlines())]
    (tmp_path/"t.jsonl").write_text("".join(json.dumps(x) + "\n" for x in rows))
    run = train(RunConfig("sft", str(tmp_path/"t.jsonl"), str(tmp_path/"r"), model=runs[0].config.output_dir, **SHORT))
    assert run.results["n_eval"] == 12 and run.trainer.n_rows == 48
    held = [json.loads(x) for x in (tmp_path/"r"/"held_out.jsonl").read_text().splitlines()]
    assert len(held) == 12 and all(x in rows for x in held)
    scratch = train(RunConfig("sft", str(tmp_path/"t.jsonl"), str(tmp_path/"s"), **SHORT))
    assert scratch.results["n_eval"] == 12

def test_margins_are_read_before_a_folder_is_made(data, tmp_path, capfd):
    line = ["train", "reward", str(data), "-o", str(tmp_path/"r"), "--margins"]
    for more in (["--dry-run"], []):
        assert main([*line, *more]) == 2 and "has no margins: add a column" in capfd.readouterr().err and not (tmp_path/"r").exists()

def test_too_few_rows_in_the_words_of_a_config(data, tmp_path, capfd):
    (tmp_path/"one.jsonl").write_text(data.read_text().splitlines()[0] + "\n")
    assert main(["train", "reward", str(tmp_path/"one.jsonl"), "-o", str(tmp_path/"r")]) == 2
    assert "eval_rows must leave rows on both sides, got 1 of 1 rows" in capfd.readouterr().err

def test_a_tokenizer_with_more_tokens_than_the_model(runs, data, tmp_path, capfd):
    "Of a model to start from, also in a plan; of a reward model that reads responses."
    sft, reward = (Path(shutil.copytree(run.config.output_dir, tmp_path/name)) for run, name in zip(runs, ("sft", "rm")))
    for folder in (sft, reward):
        t = recipes.train_tokenizer([f"word{i} thing{i * 7}" for i in range(900)], 1500)
        t.save_pretrained(folder)
    words = "has token ids up to 1499, its model embeds"
    for task, model in (("sft", sft), ("reward", sft), ("reward", reward)):
        for more in (["--dry-run"], []):
            assert main(["train", task, str(data), "-o", str(tmp_path/"o"), "--model", str(model), *more]) == 2
            assert words in capfd.readouterr().err and not (tmp_path/"o").exists()
    line = ["train", "grpo", str(data), "-o", str(tmp_path/"o"), "--model", runs[0].config.output_dir, "--reward", str(reward)]
    assert main(line) == 2 and words in capfd.readouterr().err and not (tmp_path/"o").exists()
    assert main(["best-of-n", runs[0].config.output_dir, str(reward), str(data), "-n", "2"]) == 2 and words in capfd.readouterr().err

def test_a_folder_in_a_file_is_refused_by_a_plan_too(data, tmp_path, capfd):
    (tmp_path/"thesis").write_text("x")
    for more in (["--dry-run"], []):
        assert main(["train", "sft", str(data), "-o", str(tmp_path/"thesis"/"run"), *more]) == 2
        assert "thesis is a file, so" in capfd.readouterr().err

def test_a_run_whose_data_are_gone_is_told_so(data, tmp_path, monkeypatch, capfd):
    file = tmp_path/"d.jsonl"
    file.write_text(data.read_text())
    config, real = RunConfig("sft", str(file), str(tmp_path/"a"), **SHORT), recipes.finish_run
    monkeypatch.setattr(recipes, "finish_run", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt): train(config)
    monkeypatch.setattr(recipes, "finish_run", real)
    file.write_text(data.read_text().replace("red", "green"))
    assert main(["train", "--resume", config.output_dir]) == 2 and "is not the file that the run in" in capfd.readouterr().err
    file.unlink()
    assert main(["train", "--resume", config.output_dir]) == 2 and f"no file {file}" in capfd.readouterr().err
    file.write_text(data.read_text())
    assert main(["train", "--resume", config.output_dir]) == 0                    # nothing was lost
