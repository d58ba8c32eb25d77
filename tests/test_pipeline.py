"A run that is killed, refused, overwritten, on a full disk; several in a row."
import importlib, json, os, re, shutil, signal, sys, pytest, torch
from pathlib import Path
from rlhf_nb.base.folder import foreign_files
from rlhf_nb.base.models import load_lm, load_reward_model, tiny_lm
from rlhf_nb.book.command import main
from rlhf_nb.data.store import join_chunks, read_chunks
from rlhf_nb.data.text import train_tokenizer
from rlhf_nb.run import methods, pipeline
from rlhf_nb.run.pipeline import require_valid, resolve, rows_of, table_of
from rlhf_nb.run.stages import Stage, StageError, read_stages, to_toml
from rlhf_nb.trainers.ppo_trainer import RewardError
from disks import dies_at, disk_of
from tiny_runs import (TINY, content, fork, in_a_row, pair_rows, patch_everywhere, rows_in, run, run_all, status_of, tiny, tokenizer,
    until_done, weights, write_lines)

POSIX = pytest.mark.skipif(os.name == "nt", reason="POSIX")
pytestmark = pytest.mark.usefixtures("one_thread", "no_curves", "inside")
def one(seed=0, **more): return tiny("reward", n_steps=1, eval_every=1, seed=seed, **more)
def two(): return in_a_row(tiny("sft"), tiny("rdpo"))
def three(): return in_a_row(tiny("sft"), tiny("spin"), tiny("spin"))

def begin(work, name="fit"): # Ctrl-C before the first step
    def stop(*args, **more): raise KeyboardInterrupt
    with pytest.MonkeyPatch.context() as patch:
        patch_everywhere(patch, name, lambda real: stop)
        with pytest.raises(KeyboardInterrupt): work()

@pytest.mark.parametrize("method", ["ppo", "grpo"])
def test_prompts_of_several_messages_are_trained_on_and_shown_as_lines(method):
    rows = [dict(prompt=[dict(role="system", content="Be brief."), dict(role="user", content=x["prompt"]),
                         dict(role="assistant", content=x["chosen"]), dict(role="user", content=x["rejected"])]) for x in pair_rows()]
    write_lines("turns.jsonl", rows)
    tok = train_tokenizer([str(rows)])
    for each in (tiny_lm(tok, hidden=16, layers=1), tok): each.save_pretrained("mm")
    Path("few.py").write_text("def seen(prompts, responses): return [len(p) + i / 9 for i, p in enumerate(prompts)]\n")
    said = pipeline.format_done(pipeline.train(tiny(method, data="turns.jsonl", model="mm", reward="few:seen"), "o", tell=print))
    one = json.loads(Path("o/samples.jsonl").read_text("utf-8").splitlines()[0])["prompt"]
    assert one in [x["prompt"] for x in rows]                       # as messages, for who reads the file
    assert f"\nsystem: Be brief.\nuser: {one[1]['content']}\nassistant: {one[2]['content']}\nuser: {one[3]['content']}\n" in said

# ---- one run dies
def test_a_new_run_dies_at_the_disk_and_goes_on():
    run(one(), "whole")
    k, died = 0, True
    while died:
        out = f"o{k}"
        died = dies_at(k, lambda: run(one(), out))
        if died:
            try: run(one(), out)
            except ValueError as e: assert "holds a finished run" in str(e)      # died while it cleaned up
        assert weights(out) == weights("whole") and content(out).keys() == content("whole").keys() and not foreign_files(out), k
        k += 9
    assert k > 50

def test_overwrite_goes_on_beside_the_old_run_with_the_same_settings_only(tmp_path):
    run(one(), "o")
    before = content("o")
    assert dies_at(45, lambda: run(one(1), "o", overwrite=True))
    with pytest.raises(ValueError, match=r"seed was 1, got 2.*delete .*o.new-\w+ to begin anew"): run(one(2), "o", overwrite=True)
    with pytest.raises(ValueError, match="finished run"): run(one(), "o")
    assert content("o") == before
    run(one(1), "o", overwrite=True)
    assert json.loads(Path("o/run.json").read_text())["settings"]["seed"] == 1 and not list(Path(".").glob("o.*"))
    assert "\n# o\n" in Path("o/README.md").read_text()

@POSIX
@pytest.mark.parametrize("limit", [1_100, 5_000, 20_000])
@pytest.mark.parametrize("several", [False, True], ids=["train", "pipeline"])
@pytest.mark.one_in(3)
def test_a_full_disk_says_so_and_the_command_goes_on(limit, several, capfd):
    Path("p.toml").write_text(to_toml(in_a_row(one(), one())))
    words = ["pipeline", "run", "p.toml", "-o"] if several else ["train", "reward", "pairs.jsonl", "--model", "m", "--n-steps", "1", "--eval-rows", "6", "-o"]
    assert main([*words, "o"]) in (0, None)
    before = content("o")
    capfd.readouterr()
    for more in (["new"], ["o", "--overwrite"]):
        with disk_of(limit): assert main([*words, *more]) == 2
        err = capfd.readouterr().err
        assert ("may not grow" in err or "no room" in err) and "a run to be replaced are whole" in err, err
    assert content("o") == before
    assert main([*words, "new"]) in (0, None) and main([*words, "o", "--overwrite"]) in (0, None)
    assert weights("new") == weights("o") == {k: x for k, x in weights("o").items()} and not list(Path(".").glob("o.*"))

# ---- whose folder is it
def test_what_is_another_run(inside):
    begin(lambda: run(one(), "o"))
    same = one()
    n, pairs = torch.get_num_threads(), Path("pairs.jsonl").read_text()
    def refused(words, stage=same):
        with pytest.raises(ValueError, match=f"{words}.*--overwrite to begin anew"): run(stage, "o")
    refused("seed was 0, got 5", one(5)), refused("lr was 0.001, got 0.5", one(lr=.5)), refused("lora_r was 0, got 2", one(lora_r=2))
    refused("mixed_precision was 'auto', got 'bf16'", one(mixed_precision="bf16")), refused("method was 'reward', got 'dpo'", tiny("dpo", n_steps=1, eval_every=1))
    Path("pairs.jsonl").write_text(pairs + pairs.split("\n")[0].replace("owl", "fox") + "\n")
    refused("pairs.jsonl is not the file that the run in o began with")
    Path("pairs.jsonl").write_text(pairs)
    for name in ("model.safetensors", "config.json"):
        kept = Path("m", name).read_bytes()
        Path("m", name).write_bytes(kept[:-1] + b"\x00" if name[0] == "m" else kept + b" ")
        refused(f"m/{name} is not the file that the run in o began with")
        Path("m", name).write_bytes(kept)
    torch.set_num_threads(n + 1)
    try: refused(rf"num_threads was {n}, got {n + 1}.*set_num_threads\({n}\)")
    finally: torch.set_num_threads(n)
    (inside/"sub").mkdir(); shutil.copy("pairs.jsonl", "sub")
    assert run(one(data="sub/../pairs.jsonl", report_to=""), "o").results["steps"] == 1             # another way to the same file

def test_a_reward_a_judge_prompt_and_a_measure_are_known_by_their_files(tmp_path):
    Path("judge.jinja").write_text("{{ prompt }} {{ response }}")
    rl, judged = tiny("grpo"), tiny("self_reward", judge_prompt="judge.jinja", judge_pattern="{{ reward }}")
    scored = tiny("rdpo", reward="rm", measure="norm")
    def facts(stage): return pipeline.identity(stage, resolve(stage))
    for stage, file in ((rl, "tiny_rules.py"), (judged, "judge.jinja"), (scored, "rm/model.safetensors"), (scored, "rm/config.json")):
        before, kept = facts(stage), Path(file).read_bytes()
        Path(file).write_bytes(kept + b" ")
        assert facts(stage) != before, file
        Path(file).write_bytes(kept)
        assert facts(stage) == before
    long = "{{ prompt }}{{ response }}" + "word " * 2000          # a text is no path
    assert facts(tiny("self_reward", judge_prompt=long))["judge_prompt"] == long

def test_folders_that_are_refused(inside, tmp_path):
    for call in (run, lambda stage, out: run_all([stage], out)):
        with pytest.raises(ValueError, match="pairs.jsonl is a file|name another output"): call(one(), "pairs.jsonl")
    for name in ("pipeline.toml", "work/thesis.txt", "01-reward/thesis.txt", "work.json"):
        out = tmp_path/name.replace("/", "-")
        (out/name).parent.mkdir(parents=True)
        (out/name).write_text(to_toml([one()]))
        for overwrite in (False, True):
            with pytest.raises(ValueError, match="no run of ours"): run_all([one()], out, overwrite=overwrite)
        assert content(out) == {name: to_toml([one()]).encode()}
    run(one(), "single"), run_all([one()], "several")
    with pytest.raises(ValueError, match="holds a run of one stage, not a pipeline"): run_all([one()], "single")
    with pytest.raises(ValueError, match="holds a pipeline, not a run of one stage"): run(one(), "several")

@pytest.mark.parametrize("method, names", [("grpo", ("log.jsonl", "held_out.jsonl")), ("reward", ("samples.jsonl",))])
def test_a_file_is_ours_from_when_it_is_written(method, names, capfd):
    "Between a kill and the resume somebody put files of these names into the folder, and a note into `work`."
    begin(lambda: run(tiny(method), "o"), "train_grpo" if method == "grpo" else "fit")
    Path("o/work/notes.txt").write_text("mine")
    for name in names:
        assert not Path("o", name).exists()
        Path("o", name).write_text("mine")
        with pytest.raises(ValueError, match=f"{name} is not of this run: move it away"): run(tiny(method), "o")
        assert Path("o", name).read_text() == "mine"
        Path("o", name).unlink()
    run(tiny(method), "o")
    assert "notes.txt is of somebody else: it is" in capfd.readouterr().out and Path("o/kept/notes.txt").read_text() == "mine"
    assert [p.name for p in foreign_files("o")] == ["notes.txt"]

@pytest.mark.parametrize("line", ["{broken", '{"prompt": "a"}', "17"])
@pytest.mark.one_in(3)
def test_damaged_samples_are_named_and_may_be_moved_away(line):
    begin(lambda: run(tiny("grpo"), "o"), "train_grpo")
    path = Path("o/samples.jsonl")
    path.write_text(path.read_text("utf-8") + line + "\n", "utf-8")
    with pytest.raises(ValueError, match="samples.jsonl:7 is damaged: bring the file back from a copy, or move it away"): run(tiny("grpo"), "o")
    path.unlink()
    run(tiny("grpo"), "o")

def test_what_somebody_put_among_the_checkpoints_is_kept(capfd):
    "A copy of a checkpoint, a note beside it and one in it: `work` goes in the end, they do not; --overwrite refuses."
    assert dies_at(62, lambda: run(tiny("sft"), "o"))
    place = Path("o/work/checkpoints")
    last = sorted(place.glob("*-step-*[0-9]"))[-1]
    shutil.copytree(last, place/"my-best")
    for note in (place/"note.txt", last/"note.txt"): note.write_text("years of work")
    with pytest.raises(ValueError, match=r"holds work.checkpoints.*which is no file of this run: move it away"): run(tiny("sft"), "o", overwrite=True)
    best = (place/"my-best/model.safetensors").read_bytes()
    run(tiny("sft"), "o")
    assert "is of somebody else: it is" in capfd.readouterr().out and not Path("o/work").exists()
    assert {x for x in content("o/kept") if x.endswith("txt")} == {f"{last.name}/note.txt", "note.txt"}
    assert content("o/kept")["my-best/model.safetensors"] == best
    with pytest.raises(ValueError, match=r"holds kept.*which is no file of this run: move it away"): run(tiny("sft"), "o", overwrite=True)

def test_a_mistake_leaves_the_old_run_as_it_is(monkeypatch):
    Path("bad.jsonl").write_text('{"prompt": "a"}\n')
    run(one(), "o"), run_all([one()], "several")
    before = content(".")
    for change in (dict(data="bad.jsonl"), dict(data="nowhere.jsonl"), dict(model="./none"), dict(eval_rows=60), dict(max_length=5000), dict(lora_r=2, lora_targets="x")):
        with pytest.raises((ValueError, OSError)): run(one(**change), "o", overwrite=True)
        with pytest.raises(StageError, match="stage 1"): run_all([one(**change)], "several", overwrite=True)
    patch_everywhere(monkeypatch, "begin_model", lambda real: lambda s: 1 / 0)
    with pytest.raises(ValueError, match="finished"): run(one(), "o")           # before anything is read
    monkeypatch.setattr(shutil, "disk_usage", lambda place: type("Free", (), dict(free=1000))())
    with pytest.raises(ValueError, match="GB free: make room"): run(one(1), "new")
    with pytest.raises(StageError, match="disk: .*GB free: make room"): run_all([one(1)], "new")
    assert content(".") == before

def test_the_seed_alone_makes_the_numbers(tmp_path):
    before, a = torch.get_rng_state(), run(tiny("sft"), "a")
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)                                                   # the global state plays no part
    b, c = run(tiny("sft"), "b"), run(tiny("sft", seed=1), "c")
    assert weights("a") == weights("b") != weights("c") and rows_in("a/held_out.jsonl") != rows_in("c/held_out.jsonl")
    assert not torch.equal(run(tiny("sft", model=""), "d").model.get_input_embeddings().weight, run(tiny("sft", model="", seed=1), "e").model.get_input_embeddings().weight)

# ---- rewards of one's own
MOODY = "import sys\ncalls = 0\ndef short(prompts, responses):\n    global calls\n    calls += 1\n    if {fails}: {fault}\n    return [-len(r) / 10 for r in responses]\n"

@pytest.mark.parametrize("method, fault", [
    ("ppo", "raise KeyError('who')"), ("grpo", "sys.exit(3)"), ("ppo", "return [0.]"), ("grpo", "return [float('inf')] * len(responses)"),
    ("grpo", "return [float('nan')] * len(responses)")])
def test_a_run_goes_on_with_a_mended_reward_and_with_no_other(method, fault, inside, capfd):
    "The failing code could not go on, so the new one may; the result is that of a reward that never failed."
    def write(name, fails):
        Path(name).write_text(MOODY.format(fails=fails, fault=fault))
        sys.modules.pop(name.removesuffix(".py"), None); importlib.invalidate_caches()
    stage, few = tiny(method, reward="moody:short", n_iterations=3, eval_every=0), tiny(method, reward="moody:short", n_iterations=3, eval_every=0, n_prompts=2)
    write("calm.py", "False"); write("moody.py", "calls >= 3")                   # before, rollout 1, rollout 2
    run(tiny(method, reward="calm:short", n_iterations=3, eval_every=0), "whole")
    with pytest.raises(RewardError, match="Checkpoints are whole: mend moody:short, and the same command goes on"): run(stage, "o")
    with pytest.raises(ValueError, match="n_prompts was 4, got 2"): run(few, "o")
    write("moody.py", "calls >= 99")
    done = run(stage, "o", tell=print)
    assert "moody.py was changed: the run goes on with the new one" in capfd.readouterr().out
    assert weights("o") == weights("whole") and done.results["iterations"] == 3
    marker = json.loads(Path("o/run.json").read_text())
    assert len(marker["rewards_before"]) == 1 and marker["rewards_before"][0] != marker["settings"]["moody.py"] and marker["reward_failed"] is False
    begin(lambda: run(stage, "o", overwrite=True), f"train_{method}")
    write("moody.py", "calls >= 98")                                             # that never failed: another run
    with pytest.raises(ValueError, match=r"moody.py is not the file .* or delete .*o.new-\w+ to begin anew"): run(stage, "o", overwrite=True)

@pytest.mark.parametrize("reward, first, file", [("pkg.judge:short", "pkg/judge.py", "pkg/__init__.py"), ("pkg.judge:short", "pkg/judge.py", "pkg/judge.py"),
                                                 ("outer:short", "outer.py", "inner.py")])
def test_a_reward_that_imports_changed_code_is_another_run(reward, first, file, inside):
    "A package and a helper count as the reward's own file does; the file that differs is named."
    Path("pkg").mkdir()
    Path("pkg/__init__.py").write_text(""); Path("inner.py").write_text("SCALE = 10\n"); Path("outer.py").write_text("")
    Path(first).write_text("import inner\ndef short(prompts, responses): return [-len(r) / inner.SCALE for r in responses]\n")
    stage = tiny("grpo", reward=reward, n_iterations=2, eval_every=0)
    begin(lambda: run(stage, "o"), "train_grpo")
    before = Path(file).read_text()
    Path(file).write_text(before + "# changed\n")
    with pytest.raises(ValueError, match=f"{file} is not the file that the run in o began with"): run(stage, "o")
    Path(file).write_text(before)
    assert run(stage, "o").results["iterations"] == 2

@pytest.mark.parametrize("method", ["ppo", "grpo"])
def test_the_samples_of_a_rollout_come_with_its_checkpoint(method, monkeypatch):
    "A kill, or a reward that fails, in the evaluation of a rollout: after it, no sample is missing and none comes twice."
    stage = tiny(method, n_iterations=3)
    run(stage, "whole")
    assert sorted({row["iteration"] for row in rows_in("whole/samples.jsonl")}) == [0, 1, 2, 3, 4] and len(rows_in("whole/samples.jsonl")) == 30
    class Killed(BaseException): pass
    real, left = pipeline._keep_samples, [2, 2, 3]
    def dies(folder, iteration, rows):
        if iteration not in left or len(left) == 2: real(folder, iteration, rows)        # the second death comes behind it
        if iteration in left: raise left.remove(iteration) or (Killed if iteration == 2 else RewardError)("now")
    monkeypatch.setattr(pipeline, "_keep_samples", dies)
    for error in (Killed, Killed, RewardError):
        with pytest.raises(error): run(stage, "o")
    run(stage, "o")
    for name in ("samples.jsonl", "held_out.jsonl", "model.safetensors"):
        assert Path("o", name).read_bytes() == Path("whole", name).read_bytes(), name

# ---- several in a row, killed
@POSIX
def test_killed_again_and_again_it_ends_in_the_same_weights():
    def ends(out, left): # in a process that is killed at this fsync
        def fsync(handle, real=os.fsync):
            nonlocal left
            left -= 1
            if not left: os.kill(os.getpid(), signal.SIGKILL)
            return real(handle)
        def work():
            os.fsync = fsync
            run_all(three(), out)
        return status_of(fork(work))
    assert ends("whole", 10**9) == 0
    k, kills, places = 20, 0, set()
    while (status := ends("o", k)) == -signal.SIGKILL:
        kills, k = kills + 1, k + 10
        places.add((len(weights("o")), *sorted(p.name for p in Path("o").glob("*/work/*"))))
        assert kills < 100
    assert status == 0 and weights("o") == weights("whole") and len(set(weights("o").values())) == 3
    assert rows_of("o")[0].keys() == rows_of("whole")[0].keys() and not list(Path("o").rglob("work")) and not foreign_files("o")
    assert kills >= 5 and len(places) > 3, (kills, places)

def test_a_pipeline_dies_at_the_disk_and_its_overwriting_leaves_one_whole(tmp_path):
    run_all(two(), "whole")
    assert until_done(lambda: run_all(two(), "o"), 7, 9) >= 5 and weights("o") == weights("whole")
    other = in_a_row(tiny("sft", seed=1), tiny("rdpo"))
    run_all(other, "other")
    before = content("o")
    for k in range(20, 400, 60):
        died = dies_at(k, lambda: run_all(other, "o", overwrite=True))
        if Path("o").exists(): assert weights("o") == weights("other") or content("o") == before, k
        else: assert sorted(p.name.split("-")[0] for p in Path(".").glob("o.*")) == ["o.new", "o.old"]
        if not died: break
    run_all(other, "o", overwrite=True) if died else None
    assert weights("o") == weights("other") and not foreign_files("o") and not list(Path(".").glob("o.*"))

def test_what_was_sampled_is_not_sampled_again(monkeypatch):
    stage, calls = tiny("rdpo"), []
    def done(): return len(read_chunks("o/work/pairs", tokenizer()))
    k = 30
    while done() < 2:
        assert dies_at(k, lambda: run(stage, "o"))
        k += 3
    first, real = done(), methods.Picked.sample_chunk
    monkeypatch.setattr(methods.Picked, "sample_chunk", lambda self, job, c, generator: calls.append(c) or real(self, job, c, generator))
    run(stage, "o")
    assert calls == list(range(first, len(calls) + first)), (calls, first)

# ---- what a pipeline is
def test_any_order_again_is_free_and_later_stages_may_be_added(capfd):
    stages = in_a_row(tiny("ppo"), tiny("sft"), tiny("rdpo"))
    rows = run_all(stages[:2], "o")
    assert [row["stage"] for row in rows] == ["01-ppo", "02-sft"]
    before = content("o")
    assert run_all(stages[:2], "o") == rows and content("o") == before
    rows = run_all(stages, "o")
    assert len(rows) == 3 and before.items() - {("pipeline.toml", before["pipeline.toml"]), ("run.json", before["run.json"])} <= content("o").items()
    table = table_of(rows).split("\n")
    assert table[0].split()[:4] == ["stage", "rows", "steps", "KL"] and table[0].endswith("held out")
    assert [line.split()[:3] for line in table[1:4]] == [["01-ppo", "18+6", "4"], ["02-sft", "18+6", "4"], ["03-rdpo", "18+6", "2"]]
    assert all("±" in line for line in table[1:4]) and "before" in table[1] and table[4] == "01: took all 4 steps" and "tie" in table[6]
    for place in Path("o").glob("0*"):
        assert {"model.safetensors", "tokenizer.json", "run.json", "log.jsonl", "README.md", "held_out.jsonl"} <= content(place).keys()
        load_lm(place)

def test_a_stage_begins_with_what_the_one_before_left_and_draws_of_its_place(tmp_path):
    run_all(two(), "a"), run_all(in_a_row(tiny("sft", seed=1), tiny("rdpo")), "c")
    run_all(in_a_row(tiny("rdpo", model="a/01-sft")), "b")
    a, b, c = (list(weights(x).values())[-1] for x in "abc")
    assert a != b and a != c and weights("a") != weights("c")        # the seed of a stage is that of its place in the run
    chosen = join_chunks(read_chunks("a/02-rdpo/pairs", tokenizer()), tokenizer().pad_token_id).pairs.chosen
    answers = {tuple(row[m].tolist()) for row, m in zip(chosen.ids, chosen.response_mask)}
    assert len(answers) >= 5                                         # chunk after chunk

def test_python_rewards_reward_models_and_stages_by_their_number(inside):
    "A reward model of stage 1 scores for stages 2 and 3; stage 4 measures its KL to stage 2; a reward model moves no policy."
    stages = in_a_row(tiny("reward"), tiny("ppo", reward="stage 1", data="pairs.jsonl"), tiny("rdpo", reward="stage 1"),
                      tiny("grpo", kl_to="stage 2", loss_type="dr_grpo", epsilon_high=.28))
    rows = run_all(stages, "o")
    assert [row["n_eval"] for row in rows] == [6] * 4 and rows[3]["kl"] > 0
    start, policy = (resolve(stages[i], i + 1, "o", [Stage(x.method, x.said | ({} if k else dict(model="m"))) for k, x in enumerate(stages)]) for i in (1, 2))
    assert (start.model, start.reward, policy.model) == ("m", str(Path("o/01-reward")), str(Path("o/02-ppo")))
    scorer, kept = load_reward_model("o/01-reward"), join_chunks(read_chunks("o/03-rdpo/pairs", tokenizer()), tokenizer().pad_token_id)
    got = [methods.score_seqs(scorer, side) for side in (kept.pairs.chosen, kept.pairs.rejected)]
    assert torch.allclose(got[0], kept.columns["chosen_score"], atol=1e-4) and (got[0] > got[1]).all()
    for stages, words in (((tiny("ppo", reward="stage 1"),), "reward: stage 1 is no reward model before it; the stages before it are none"),
                          ((tiny("reward"), tiny("ppo", reward="stage 2")), "stage 2 is no reward model"), ((tiny("sft"), tiny("ppo", reward="stage 1")), "stages before it are sft"),
                          ((tiny("reward"), tiny("sft", model="stage 1")), "model: stage 1 is no policy"), ((tiny("sft"), tiny("dpo", kl_to="stage 0")), "kl_to: stage 0 is no policy")):
        with pytest.raises(StageError, match=re.escape(words)): require_valid(list(stages), registry=TINY)

SEVERAL = """def words(prompts, responses): return [len(r.split()) + 2 for r in responses]
def brief(completions, prompts): return [None if len(r) > 12 else 1. for r in completions]
"""

@pytest.mark.parametrize("method, score", [("ppo", "objective/scores"), ("grpo", "reward")])
def test_several_rewards_are_summed_by_their_weights_and_each_is_in_the_log(method, score, inside, capfd):
    Path("several.py").write_text(SEVERAL)
    rows = run_all(in_a_row(tiny("reward"), tiny(method, reward="stage 1,.5*several:words, -2*several:brief", eval_every=0)), "o")
    row = [json.loads(line) for line in Path(f"o/02-{method}/log.jsonl").read_text().splitlines()][-1]
    model, words, brief = (row[f"rewards/{name}/mean"] for name in (Path("o/01-reward"), "several:words", "several:brief"))
    assert brief == 1 and words > 3 and abs(model) < 3 and rows[1]["reward_after"] != rows[1]["reward_before"]
    low, high = sorted((model + .5 * words - 2, model + .5 * words))          # some answers are brief, some are not
    assert low < row[score] < high
    said = main(["train", method, "pairs.jsonl", "-o", "p", "--model", "m", "--reward", "several:words,2*several:brief", "--dry-run"])
    assert said == 0 and "several:brief, 3 and 1 for the response 'an answer' to the example" in capfd.readouterr().out
    for reward, words in (("several:words,several:words", "names a reward twice or none"), ("half*several:words", "'half' is no weight of a reward"),
                          ("several:words,several:wrods", "no function 'wrods', the nearest is 'words'"), ("several:words,nowhere", "no.*nowhere")):
        with pytest.raises(ValueError, match=words): run(tiny(method, reward=reward), "q")
    begin(lambda: run(tiny(method, reward="tiny_rules:even,.5*several:words"), "r"), f"train_{method}")
    Path("several.py").write_text(SEVERAL + "\n")
    with pytest.raises(ValueError, match="several.py is not the file that the run in .* began with"): run(tiny(method, reward="tiny_rules:even,.5*several:words"), "r")

def test_a_judge_may_be_an_earlier_stage():
    rows = run_all(in_a_row(tiny("sft"), tiny("self_reward", judge="stage 1", num_generations=2)), "o")
    assert rows[1]["steps"] >= 1 and 0 < rows[1]["parsed_frac" if "parsed_frac" in rows[1] else "steps"]

def test_what_is_missing_is_told_before_stage_1():
    Path("bad.jsonl").write_text('{"prompt": "a", "chosen": "b"}\n')
    empty = Path(shutil.copytree("m", "judge"))
    (empty/"config.json").write_text("")
    stages = in_a_row(tiny("sft"), tiny("rdpo", reward="./no/reward"), tiny("self_reward", judge_prompt="nobody"), tiny("dpo", data="nowhere.jsonl"),
        tiny("reward", data="bad.jsonl"), tiny("reward", margins=True), tiny("dpo", eval_rows=24), tiny("dpo", max_length=5000), tiny("ppo", stop_token="<pad>"),
        tiny("self_reward", judge="judge"), tiny("self_reward", judge="tiny"), tiny("rdpo", reward="m"), tiny("sft", measure="nothing"), tiny("dpo", kl_to="./no"),
        tiny("self_reward", replay="./no.jsonl"), tiny("grpo", lora_r=2, lora_targets="no_such"), tiny("ppo", max_length=1020), tiny("sft", tf32=True, device="cpu"),
        tiny("sft"), tiny("spin"))
    stages[-2:] = [tiny("sft", model="rm"), tiny("spin", model="./nowhere")]
    with pytest.raises(StageError) as refused: run_all(stages, "o")
    head, *problems = re.split(r"\n(?=stage \d+ \()", str(refused.value))
    wanted = ["stage 2 (rdpo): reward: no folder", "stage 3 (self_reward): judge_prompt: no judge prompt 'nobody': name tiny", "stage 4 (dpo): no file nowhere.jsonl",
        "stage 5 (reward): .*rejected", "stage 6 (reward): .*has no margins", "stage 7 (dpo): eval_rows must", "stage 8 (dpo): this model reads 1024", "stage 9 (ppo): '<pad>' is no token",
        "stage 10 (self_reward): judge: ", "stage 11 (self_reward): judge: judge names the model that judges, 'tiny' is a judge_prompt", "stage 12 (rdpo): reward: m is no reward model",
        "stage 13 (sft): measure: ", "stage 14 (dpo): kl_to: ", "stage 15 (self_reward): replay: no file", "stage 16 (grpo): no layer of this model is called 'no_such'",
        "stage 17 (ppo): this model reads 1024 tokens, max_length 1020 and max_new_tokens 5 make 1025", "stage 18 (sft): tf32", "stage 19 (sft): rm is a reward model", "stage 20 (spin): "]
    assert len(problems) == len(wanted), problems
    for line, want in zip(problems, wanted): assert re.match(want.replace("(", r"\(").replace(")", r"\)"), line.replace("\n", " ")), (line, want)
    assert head == "the pipeline cannot run" and not Path("o").exists()

def test_names_of_shipped_models(monkeypatch):
    "sft, judge and reward are those of the package, unless the folder here has such a name."
    stages = [Stage("self_reward", dict(data="held_out", model="sft", judge_prompt="world", replay="ift_eft", judge="judge", eval_rows=2)),
              Stage("rdpo", dict(data="world", reward="reward")), Stage("rdpo", dict(data="world", reward="gold")), Stage("sft", dict(data="careful", measure="gold"))]
    require_valid(stages)
    assert Path(pipeline.path_of("judge")).is_absolute()
    shutil.copytree("m", "sft")
    assert pipeline.path_of("sft") == "sft"

def test_another_pipeline_is_refused_and_comments_stay():
    stages = two()
    assert dies_at(120, lambda: run_all(stages, "o"))                   # in stage 1 or 2
    pairs = Path("pairs.jsonl").read_text()
    for other, words in ((in_a_row(tiny("sft", seed=1), tiny("rdpo")), "seed was 0, got 1"), (in_a_row(tiny("dpo"), tiny("rdpo")), "holds 01-sft, which is no stage of this pipeline")):
        with pytest.raises(ValueError, match=words): run_all(other, "o")
    Path("pairs.jsonl").write_text(pairs + pairs.split("\n")[0].replace("owl", "fox") + "\n")
    with pytest.raises(ValueError, match="pairs.jsonl is not the file that the run in .*01-sft began with"): run_all(stages, "o")
    Path("pairs.jsonl").write_text(pairs)
    path = Path("o/pipeline.toml")
    path.write_text("# why: the first try was too long\n" + path.read_text())
    run_all(stages, "o")
    assert path.read_text().startswith("# why")
    path.write_text("")                                       # damaged: our own file, made anew
    run_all(stages, "o")
    assert read_stages(path.read_text()) == stages
    for name in ("model.safetensors", "tokenizer.json"):      # of a stage that is needed
        kept = Path("o/01-sft", name).read_bytes()
        Path("o/01-sft", name).write_bytes(kept[:len(kept) // 2])
        with pytest.raises((ValueError, OSError), match="01-sft"): run_all([*stages, tiny("dpo", model="stage 1")], "o")
        Path("o/01-sft", name).write_bytes(kept)

def test_files_that_others_put_into_a_pipeline():
    stages = two()
    run_all(stages[:1], "o")
    for name in ("notes.txt", "01-sft/plot.png", "01-sft/mine.safetensors", "02-rdpo/x", "work/thesis.txt"):
        path = Path("o", name)
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
        with pytest.raises(ValueError, match=f"holds {name}, which is no file of this run"): run_all(stages[:1], "o", overwrite=True)
        if name[:2] in ("02", "wo"):
            with pytest.raises(ValueError, match="02-rdpo holds x|work holds thesis.txt"): run_all(stages, "o")
        else: run_all(stages[:1], "o")                        # going on deletes nothing
        assert path.read_text() == "mine"
        path.unlink()
        if not any(path.parent.iterdir()): path.parent.rmdir()
    run_all(stages, "o")
    mine = ("01-sft/mine.safetensors", "01-sft/pairs", "02-rdpo/pairs/mine")
    for name in mine: Path("o", name).write_text("mine")
    run_all([*stages, tiny("sft", model="")], "o")
    assert all(Path("o", name).read_text() == "mine" for name in mine)

def test_trackers_card_and_progress_of_a_pipeline(monkeypatch):
    from contextlib import contextmanager
    sent, told = [], []
    @contextmanager
    def opened(names, place, said):
        sent.append((names, place.parent.name, []))
        yield sent[-1][2].append
    monkeypatch.setattr(pipeline, "open_trackers", opened)
    monkeypatch.setattr("rlhf_nb.run.start.check_trackers", lambda names: [])
    stages = in_a_row(*(tiny(x, report_to="wandb") for x in ("sft", "rdpo", "ppo", "grpo", "q")))
    stages[4] = tiny("q", report_to="wandb", model="")
    run_all(stages, "o", tell=lambda text: told.append(str(text)))
    assert [(names, place) for names, place, _ in sent] == [("wandb", f"{i:02d}-{x.method}") for i, x in enumerate(stages, 1)]
    for (_, place, rows), stage in zip(sent, stages):
        assert len([r for r in rows if ("iteration" if stage.method in ("ppo", "grpo") else "loss") in r]) >= 2, place
        assert f"# {place}\n" in Path("o", place, "README.md").read_text()
    text = "\n".join(told)
    for words in ("01-sft: stage 1 of 5", "02-rdpo: stage 2 of 5", "24 of 24 rows kept", "  took all 4 steps", "  chunk 1 of 3: ", "rollout   2  reward ", "held out "):
        assert words in text, (words, text)

# ---- the command
def test_a_pipeline_on_the_command_line(capfd, monkeypatch):
    rules = "tiny_rules:even"
    Path("p.toml").write_text(to_toml(in_a_row(tiny("sft"), tiny("grpo", reward=rules), tiny("spin", n_iterations=2))))
    def ends(status, *words):
        assert (main(["pipeline", *words]) or 0) == status
        out = capfd.readouterr()
        return out.out if not status else out.err
    before = content(".")
    text = ends(0, "run", "p.toml", "-o", "o", "--dry-run")
    assert content(".") == before and text.count("needs about") == 4 and text.count("18 to learn from, 6 held out") == 4 and "nothing was trained or written" in text
    for want in ("steps     4\n", "steps     4\n", "o/01-sft", "o/04-spin", "n_steps=4"): assert want in text.replace(os.sep, "/"), want
    text = ends(0, "run", "p.toml", "--output-dir", "o")
    assert "01-sft: stage 1 of 4" in text and "04-spin" in text and "±" in text
    assert len(weights("o")) == 4
    Path("p.toml").write_text(Path("p.toml").read_text().replace(rules, "odd/one/out"))
    for words in (["run", "p.toml", "-o", "p"], ["run", "p.toml", "-o", "p", "--dry-run"]):
        assert "p.toml: the pipeline cannot run\nstage 2 (grpo): reward: " in ends(1, *words)
    Path("p.toml").write_text("model = ")
    assert "p.toml: no TOML" in ends(1, "run", "p.toml", "--out", "p")
    Path("p.toml").write_bytes(b'model = "\xe9"')
    assert "p.toml: not UTF-8" in ends(1, "run", "p.toml", "-o", "p", "--dry-run")
    assert "no file none.toml" in ends(2, "run", "none.toml", "-o", "p") and not Path("p").exists()

def test_a_wrong_value_is_refused_before_any_model_is_loaded(capfd, monkeypatch):
    for name in ("begin_model", "fake_model"): patch_everywhere(monkeypatch, name, lambda real: None)
    Path("p.toml").write_text('[[stage]]\nmethod = "ppo"\ndata = "world"\nmodel = "sft"\nreward = "gold"\ncliprang = 0.3')
    for words in (["run", "p.toml", "-o", "o", "--dry-run"], ["run", "p.toml", "-o", "o"]):
        assert main(["pipeline", *words]) == 1
        assert "p.toml: stage 1, ppo: ppo has no key 'cliprang'; did you mean 'cliprange'?" in capfd.readouterr().err
    assert not Path("o").exists()
