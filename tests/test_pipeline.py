"Stages, their files, and a run that is killed again and again."
import json, math, os, random, resource, shutil, signal, subprocess, sys, time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest, torch

from rlhf_nb import pipeline as module
from rlhf_nb.judge import JudgePrompt
from rlhf_nb.learning import TrainConfig
from rlhf_nb.models import load_lm, tiny_lm, weight_hash
from rlhf_nb.pipeline import (SFT, ConcatPairs, ExternalRewardDPO, Pipeline, PipelineError, Registry, RewardPPO, SelfPlay,
    SelfRewardDPO, StageEval, clean, kl_reference, from_toml, manifest, validate_pipeline, run_pipeline, to_toml)
from rlhf_nb.runs import foreign_files
from rlhf_nb.sampling import SamplingParams
from rlhf_nb.store import create_store, open_store
from rlhf_nb.memory import PreferencePairs
from rlhf_nb.tokens import Seqs, make_seqs
from rlhf_nb.world_text import make_tokenizer
from test_runs import dies_at

POSIX = pytest.mark.skipif(os.name == "nt", reason="POSIX")

# ---- a world so small that a whole pipeline takes seconds

@lru_cache
def tokenizer(): return make_tokenizer()

def demos(t):
    rng = random.Random(0)
    def ids(n): return [rng.randrange(10, 200) for _ in range(n)]
    return make_seqs([ids(rng.randrange(2, 5)) for _ in range(24)],
                     [ids(rng.randrange(1, 6)) + [t.eos_token_id] for _ in range(24)], t.pad_token_id)

def even(t): # pays for even tokens: a random model's answers differ in it
    return lambda seqs: ((seqs.ids % 2 == 0) & seqs.response_mask).sum(1).float()

def measure(t):
    return lambda model: {"norm": sum(p.norm().item() for p in model.parameters())}

JUDGE = JudgePrompt("{{ prompt }} {{ response }}", lambda reply: float(len(reply) % 6))
TINY = Registry(dict(tiny=demos), dict(tiny=["cat", "owl sleeps", "fox"]), dict(even=even),
             dict(tiny=JUDGE), dict(norm=measure))
SHORT = SamplingParams(6)
FIVE = (SFT("tiny", train_config=TrainConfig(lr=1e-2, n_steps=7, batch_size=8, warmup_steps=2), eval=StageEval("norm", eval_every=3)),
        SelfPlay("tiny", n_pairs=12, chunk_size=4, max_new_tokens=6, batch_size=4, eval=StageEval(eval_every=2)),
        SelfPlay("tiny", n_pairs=12, chunk_size=4, max_new_tokens=6, batch_size=4, eval=StageEval(eval_every=2)),
        ExternalRewardDPO("tiny", "even", n_prompts=24, n_pairs=12, num_generations=3, chunk_size=4, sampling=SHORT,
                          batch_size=4, eval=StageEval(eval_every=2)),
        SelfRewardDPO("tiny", "tiny", "tiny", n_votes=2, judge_sampling=SHORT, n_prompts=16, n_pairs=8,
                      num_generations=3, chunk_size=4, sampling=SHORT, batch_size=4, eval=StageEval(eval_every=2)),
        RewardPPO("tiny", "even", n_iterations=3, n_prompts=8, max_new_tokens=5, n_epochs=1))

def seed_model(folder):
    "SFT starts from a random model that ends its answers now and then."
    model = tiny_lm(tokenizer(), hidden=16, layers=1)
    with torch.no_grad():
        model.base_model.final_layer_norm.bias += .5
        model.get_output_embeddings().weight[tokenizer().eos_token_id] += .5
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout): part.p = .1
    model.config.hidden_dropout = .1                     # so that dropout is resumed, too
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return str(folder)

@pytest.fixture(scope="module")
def begin(tmp_path_factory): return seed_model(tmp_path_factory.mktemp("seed")/"model")

def weights(out):
    return {f.parent.name: f.read_bytes() for f in sorted(Path(out).glob("0*/model.safetensors"))}

# ---- killed

SERVER = """
import os, sys, traceback, torch
torch.set_num_threads(1)
sys.path[:0] = [{here!r}]
from test_pipeline import FIVE, TINY, Pipeline, run_pipeline
print("ready", flush=True)
for line in sys.stdin:               # one folder per line: a child of our own runs the pipeline there
    pid = os.fork()
    if not pid:
        code = 1
        try:
            run_pipeline(Pipeline({model!r}, FIVE, prompts="tiny", measure="norm"), line.strip(), TINY)
            code = 0
        except BaseException: traceback.print_exc()
        finally: os._exit(code)
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""
@POSIX
def test_killed_at_20_random_moments_it_ends_in_the_same_weights(tmp_path, begin):
    rng, kills, places = random.Random(0), 0, set()
    code = SERVER.format(here=str(Path(__file__).parent), model=begin)
    server = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True, env={**os.environ, "OMP_NUM_THREADS": "1",
                                              "TOKENIZERS_PARALLELISM": "false"})
    assert server.stdout.readline() == "ready\n"
    def begin_in(folder):
        server.stdin.write(f"{folder}\n"); server.stdin.flush()
        return int(server.stdout.readline())
    whole, before = tmp_path/"whole", time.perf_counter()
    begin_in(whole)
    assert server.stdout.readline() == "0\n"
    lasts, wanted = time.perf_counter() - before, weights(whole)
    assert len(wanted) == 6 and len(set(wanted.values())) == 6
    for k in range(30):
        out, status = tmp_path/f"killed{k}", "-1"
        while status != "0":
            pid = begin_in(out)
            time.sleep(rng.random() * lasts / 3 + .1 * lasts)
            try: os.kill(pid, signal.SIGKILL)
            except ProcessLookupError: pass
            status = server.stdout.readline().strip()
            assert status in ("0", "9"), status
            kills += status == "9"
            places.add((len(weights(out)), *sorted(p.name for p in out.glob("work/*"))))
        assert weights(out) == wanted, k
        assert not (out/"work").exists() and len(manifest(out)["stages"]) == 6
        if kills >= 20 and k >= 1: break
        if kills < 3 * (k + 1): lasts *= .7        # the first run was slower than these
    server.stdin.close()
    server.wait()
    assert kills >= 20 and len(places) > 6, (kills, places)

def run_until(k, pipeline, out, registry):
    "Die (by an exception that nothing catches) at the k-th fsync; True when it was reached."
    class Killed(BaseException): pass
    left, real = [k], os.fsync
    def fsync(handle):
        left[0] -= 1
        if left[0] < 0: raise Killed
        return real(handle)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        try: run_pipeline(pipeline, out, registry)
        except Killed: return True
    return False

def some(begin, *names): return Pipeline(begin, tuple(s for s in FIVE if type(s).__name__ in names))

def test_death_at_chosen_calls_to_the_disk(tmp_path, begin):
    pipeline, deaths, work = some(begin, "SFT", "ExternalRewardDPO"), 0, set()
    run_pipeline(pipeline, tmp_path/"whole", TINY)
    while run_until(7 + 3 * deaths, pipeline, tmp_path/"o", TINY):
        deaths += 1
        work.add(tuple(sorted(p.name for p in (tmp_path/"o").glob("*"))))
    assert weights(tmp_path/"o") == weights(tmp_path/"whole") and deaths >= 5 and len(work) >= 2

def test_m1_is_the_model_before_the_first_stage_that_is_no_sft():
    def m1(*stages): return [kl_reference(Pipeline("sft", stages), Path("o"), i) for i in range(len(stages))]
    sft, play = FIVE[:2]
    assert m1(sft, play, sft) == ["", str(Path("o/01-SFT")), str(Path("o/01-SFT"))]
    assert m1(play, sft) == ["sft", "sft"] and m1(sft, sft) == ["", ""]

def test_any_order_and_again_is_free(tmp_path, begin):
    pipeline = Pipeline(begin, (FIVE[5], FIVE[0], FIVE[3]))
    rows = run_pipeline(pipeline, tmp_path/"o", TINY)
    assert [row["stage"] for row in rows] == ["01-RewardPPO", "02-SFT", "03-ExternalRewardDPO"]
    before = weights(tmp_path/"o")
    assert run_pipeline(pipeline, tmp_path/"o", TINY) == rows and weights(tmp_path/"o") == before
    for folder in (tmp_path/"o").glob("0*"):
        names = {p.name for p in folder.iterdir()}
        assert {"model.safetensors", "tokenizer.json", "stage.toml", "stage.json", "log.jsonl"} <= names
        assert from_toml((folder/"stage.toml").read_text()).stages[0] in pipeline.stages
        load_lm(folder)

def test_every_stage_learns_from_the_one_before(tmp_path, begin):
    a = some(begin, "SFT", "ExternalRewardDPO")
    run_pipeline(a, tmp_path/"a", TINY)
    b = Pipeline(str(tmp_path/"a"/"01-SFT"), (a.stages[1],))
    run_pipeline(b, tmp_path/"b", TINY)
    other = run_pipeline(replace(a, seed=1), tmp_path/"c", TINY)
    one, two, three = [sorted(weights(tmp_path/x).items())[-1][1] for x in "abc"]
    assert one != three and weights(tmp_path/"a")["01-SFT"] != weights(tmp_path/"c")["01-SFT"]
    assert two != one                     # the seed of a stage is that of its place in the run

# ---- settings

def test_toml_both_ways(begin):
    whole = Pipeline(begin, FIVE, seed=3, prompts="tiny", measure="norm")
    assert from_toml(to_toml(whole)) == whole
    for name in ("a\"b", "a\nb", "\x7f\x00\t\\", "é 🦊", "# no comment", "[x]", "'''"):
        assert from_toml(to_toml(Pipeline(name, (SFT(name),)))) == Pipeline(name, (SFT(name),))
    for lr in (1e-30, 1., .1, 123456789.123): 
        p = Pipeline("m", (SFT("x", train_config=TrainConfig(lr=lr)),))
        assert from_toml(to_toml(p)) == p
    assert from_toml('model="m"\n[[stage]]\nkind="SFT"\ndata="x"\n[stage.train_config]\nlr=1').stages[0].train_config.lr == 1.

@pytest.mark.parametrize("text, error", [
    ("model=", "no TOML"), ('model="m"', "needs a stage"), ('model="m"\n[stage]\nkind="SFT"', "two brackets"),
    ('model="m"\n[[stage]]\nkind="sft"', "stage 1 has the kind 'sft'"),
    ('model="m"\n[[stage]]\ndata="x"', "stage 1 has the kind None"),
    ('model="m"\n[[stage]]\nkind="SFT"', "stage 1, SFT: .*data"),
    ('model="m"\nseeed=1\n[[stage]]\nkind="SFT"\ndata="x"', "did you mean 'seed'"),
    ('model="m"\n[[stage]]\nkind="SFT"\ndata="x"\ntrain_config=3', "TrainConfig, got 3"),
    ('model="m"\n[[stage]]\nkind="SFT"\ndata="x"\n[stage.train_config]\nlr="a"', "stage 1, SFT, train_config"),
    ('model="m"\nseed=-1\n[[stage]]\nkind="SFT"\ndata="x"', "seed must be 0 or more")])
def test_a_faulty_file_is_refused_in_words(text, error):
    with pytest.raises(PipelineError, match=error): from_toml(text)

@pytest.mark.parametrize("make, error", [
    (lambda: SFT(""), "SFT.data is empty"), (lambda: SFT(3), "SFT.data must be a text"),
    (lambda: SFT("x", max_length=True), "must be a whole number"), (lambda: SFT("x", max_length=2.), "must be a whole number"),
    (lambda: SelfPlay("x", beta=0.), "above 0"), (lambda: SelfPlay("x", mix_previous=1), "must be True or False"),
    (lambda: ExternalRewardDPO("p", "r", num_generations=1), "two candidates"),
    (lambda: ExternalRewardDPO("p", "r", sampling=SamplingParams(temperature=0.)), "two candidates"),
    (lambda: ExternalRewardDPO("p", ""), "reward is empty"), (lambda: ExternalRewardDPO("p", "r", beta=math.nan), "beta"),
    (lambda: SelfRewardDPO("p", "j", "d", replay_weight=-.1), "0 or more"),
    (lambda: SelfRewardDPO("p", "j", "d", judge_sampling=SamplingParams(temperature=0.)), "greedy"),
    (lambda: RewardPPO("p", "r", n_prompts=10, n_minibatches=3), "minibatches"),
    (lambda: StageEval("m", "x", mode="up"), "min"), (lambda: StageEval(monitor="x"), "nothing is measured"),
    (lambda: Pipeline("m", ()), "needs a stage"), (lambda: Pipeline("m", [SFT("x")]), "of type tuple"),
    (lambda: Pipeline("m", (TrainConfig(),)), "stage 1 is")])
def test_a_stage_checks_its_fields_when_it_is_made(make, error):
    with pytest.raises((ValueError, TypeError), match=error): make()

def test_strings_that_are_matched_at_run_time():
    "Names of fields in strings: values that are not the default arrive."
    values = dict(max_new_tokens=7, n_iterations=5, n_prompts=12, n_epochs=3, n_minibatches=4, micro_batch_size=6, lr=.5,
                  beta=.7, temperature=.6)
    stage = RewardPPO("tiny", "even", **values)
    assert {k: getattr(stage.method(), k) for k in values if k != "max_new_tokens"} == {
        k: v for k, v in values.items() if k != "max_new_tokens"}
    assert Pipeline("m", FIVE, seed=0).seed == 0 and replace(FIVE[4], replay_weight=0.).replay_weight == 0
    for name in ("n_pairs", "chunk_size", "lr", "beta", "n_votes"):
        with pytest.raises(ValueError, match=f"SelfRewardDPO.{name} must be above 0"): replace(FIVE[4], **{name: type(
            getattr(FIVE[4], name))(0)})
    keys = from_toml(to_toml(Pipeline("m", FIVE))).stages
    for a, b in zip(keys, FIVE): assert a == b
    for old in ("candidates", "repeats", "judging", "replay", "lam", "look", "every"):
        with pytest.raises(PipelineError, match=f"no field '{old}'"):
            from_toml(f'model = "m"\n[[stage]]\nkind = "SelfRewardDPO"\n{old} = 1')

def test_the_replay_weight_is_used(tmp_path, begin):
    found = set()
    for weight in (0., .5, .9):
        run_pipeline(Pipeline(begin, (replace(FIVE[4], replay_weight=weight),)), tmp_path/str(weight), TINY)
        found |= set(weights(tmp_path/str(weight)).values())
    assert len(found) == 3

def test_what_is_missing_is_told_before_stage_1(tmp_path, begin):
    bad = Pipeline(begin, (FIVE[0], FIVE[1], ExternalRewardDPO("tiny", "./no/reward"),
                           replace(FIVE[4], judge_prompt="nobody"), SelfPlay("tiny", n_pairs=25)), measure="nothing")
    problems = validate_pipeline(bad, TINY)
    for line, want in zip(problems, ("stage 3 (ExternalRewardDPO), reward", "stage 4 (SelfRewardDPO), judge",
                                 "stage 5 (SelfPlay), n_pairs: 25 pairs, only 24", "measure: ")):
        assert line.startswith(want), line
    assert len(problems) == 4
    with pytest.raises(PipelineError, match="stage 3"): run_pipeline(bad, tmp_path/"o", TINY)
    assert not (tmp_path/"o").exists()
    assert validate_pipeline(Pipeline("./nowhere", (FIVE[0],)), TINY)[0].startswith("model: ")

# ---- whose folder is it

def test_another_run_is_refused(tmp_path, begin):
    pipeline, file = some(begin, "SFT", "ExternalRewardDPO"), tmp_path/"held.jsonl"
    file.write_text('{"prompt": "cat", "response": "owl"}\n')
    pipeline = replace(pipeline, stages=(replace(pipeline.stages[0], eval=StageEval(str(file), eval_every=3)),
                                         pipeline.stages[1]))
    assert run_until(40, pipeline, tmp_path/"o", TINY)                  # in stage 1 or 2
    for other in (replace(pipeline, seed=1), replace(pipeline, stages=(SFT("tiny"),))):
        with pytest.raises(ValueError, match="holds another pipeline"): run_pipeline(other, tmp_path/"o", TINY)
    text = file.read_text()
    file.write_text(text + text.replace("owl", "fox"))
    with pytest.raises(ValueError, match="is not the file that stage 1 began with"):
        run_pipeline(pipeline, tmp_path/"o", TINY)
    file.write_text(text)
    longer = replace(pipeline, stages=(*pipeline.stages, FIVE[0]), measure="norm")
    assert len(run_pipeline(longer, tmp_path/"o", TINY)) == 3           # later stages may be added
    (tmp_path/"mine").mkdir()
    (tmp_path/"mine"/"thesis.txt").write_text("x")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="no run of ours"):
            run_pipeline(pipeline, tmp_path/"mine", TINY, overwrite)
    assert (tmp_path/"mine"/"thesis.txt").exists()

def test_overwrite_begins_anew(tmp_path, begin):
    pipeline = some(begin, "SFT")
    run_pipeline(pipeline, tmp_path/"o", TINY)
    with pytest.raises(ValueError, match="another pipeline"): run_pipeline(replace(pipeline, seed=1), tmp_path/"o", TINY)
    before = weights(tmp_path/"o")
    run_pipeline(replace(pipeline, seed=1), tmp_path/"o", TINY, overwrite=True)
    assert weights(tmp_path/"o") != before

def test_clean_keeps_what_is_needed(tmp_path, begin):
    pipeline = some(begin, "SFT", "SelfPlay", "ExternalRewardDPO")      # 4 stages
    run_pipeline(pipeline, tmp_path/"whole", TINY)
    for _ in range(40):                     # a few steps at a time, until the third stage is done
        if (tmp_path/"o"/"03-SelfPlay").exists(): break
        run_until(30, pipeline, tmp_path/"o", TINY)
    assert len(manifest(tmp_path/"o")["stages"]) == 3
    gone = clean(tmp_path/"o", dry_run=True)
    assert {name for name, _ in gone if "work" not in name} == {"02-SelfPlay/model.safetensors", "02-SelfPlay/pairs"}
    assert clean(tmp_path/"o") == gone and clean(tmp_path/"o") == []
    assert set(weights(tmp_path/"o")) == {"01-SFT", "03-SelfPlay"}      # M1, and the last
    run_pipeline(pipeline, tmp_path/"o", TINY)
    assert weights(tmp_path/"o")["04-ExternalRewardDPO"] == weights(tmp_path/"whole")["04-ExternalRewardDPO"]
    clean(tmp_path/"o", keep=2)
    assert set(weights(tmp_path/"o")) == {"03-SelfPlay", "04-ExternalRewardDPO"}
    assert len(manifest(tmp_path/"o")["stages"]) == 4 and (tmp_path/"o"/"01-SFT"/"log.jsonl").exists()
    with pytest.raises(ValueError, match="no run of ours"): clean(tmp_path)
    with pytest.raises(ValueError, match="keep"): clean(tmp_path/"o", keep=0)

# ---- the disk says no

@POSIX
@pytest.mark.parametrize("limit", [3_000, 20_000, 60_000])
def test_a_full_disk_leaves_the_last_good_state(tmp_path, begin, limit):
    "The file size limit of this process stands for the disk; then there is room again."
    pipeline, old = some(begin, "SFT", "ExternalRewardDPO"), resource.getrlimit(resource.RLIMIT_FSIZE)
    run_pipeline(pipeline, tmp_path/"whole", TINY)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
    try:
        with pytest.raises(OSError, match="(may not grow|no room).*the last checkpoint.* are whole"):
            run_pipeline(pipeline, tmp_path/"o", TINY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, before)
    run_pipeline(pipeline, tmp_path/"o", TINY)
    assert weights(tmp_path/"o") == weights(tmp_path/"whole")

@POSIX
def test_a_read_only_folder(tmp_path, begin, monkeypatch):
    if os.geteuid() == 0:                                    # root may write anywhere
        def refuse(self, *args, **kw): raise OSError(30, "Read-only file system")
        monkeypatch.setattr(Path, "mkdir", refuse)
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="read-only|may not write"):
        run_pipeline(some(begin, "SFT"), tmp_path/"o", TINY)
    tmp_path.chmod(0o700)

@POSIX
def test_one_process_at_a_time(tmp_path, begin):
    from rlhf_nb.store import lock_folder
    (tmp_path/"o").mkdir()
    lock = lock_folder(tmp_path/"o")
    with pytest.raises(ValueError, match="being written by another process"):
        run_pipeline(some(begin, "SFT"), tmp_path/"o", TINY)
    lock.close()
    run_pipeline(some(begin, "SFT"), tmp_path/"o", TINY)

# ---- early stopping

def ups_and_downs(values):
    def opener(t):
        left = iter(values)
        return lambda model: {"x": next(left), "print": next(model.parameters()).sum().item()}
    return opener

@pytest.mark.parametrize("mode, values, best, steps", [
    ("max", [0, 3, 5, 4, 4, 9], 2, 4), ("min", [9, 3, 5, 4, 1], 1, 3), ("max", [0, 1, 2, 3, 4, 5, 6, 7], 7, 7)])
def test_the_best_model_is_kept(tmp_path, begin, mode, values, best, steps):
    registry = replace(TINY, measures=dict(x=ups_and_downs([float("nan")] * 0 + list(map(float, values)))))
    registry = replace(registry, measures={"x": lambda t, o=registry.measures["x"]: SEEN.setdefault(str(tmp_path), o(t))})
    stage = replace(FIVE[0], eval=StageEval("x", "x", mode, 2, eval_every=1))
    [row] = run_pipeline(Pipeline(begin, (stage,)), tmp_path/"o", registry)
    log = [json.loads(line) for line in open(tmp_path/"o"/"01-SFT"/"log.jsonl")]
    assert max(r["step"] for r in log) == steps and f"weights of step {best} are kept" in row["stop_reason"]
    kept = next(load_lm(tmp_path/"o"/"01-SFT")[0].parameters()).sum().item()
    looks = {r["step"]: r["print"] for r in log if "print" in r}
    assert abs(kept - looks[best]) < 1e-6 and len(set(looks.values())) == len(looks)
SEEN = {}

def in_two(rank, port, folder, values, result):
    "One of two processes; each has its own opinion, the first one's counts."
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    from rlhf_nb.learning import fit, make_trainer
    from rlhf_nb.sft import sft_loss
    mine = iter(values[rank])
    torch.manual_seed(0)                                  # dropout
    trainer = make_trainer(load_lm(folder)[0], TrainConfig(lr=1e-2, n_steps=9, batch_size=8))
    eval_config = StageEval("m", "x", "max", 2).eval_config(module.on_main_process(lambda model: {"x": next(mine)}))
    fit(trainer, demos(tokenizer()), sft_loss, torch.Generator().manual_seed(0), eval_config, eval_every=1)
    result.put((rank, trainer.step, trainer.best_step, weight_hash(trainer.model)))
    dist.destroy_process_group()

@POSIX
def test_several_processes_stop_together(begin):
    import socket
    import torch.multiprocessing as mp
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    context = mp.get_context("spawn")
    result, values = context.SimpleQueue(), ([1., 2., 5., 4., 4., 9.], [float(i) for i in range(12)])
    workers = [context.Process(target=in_two, args=(rank, port, begin, values, result)) for rank in (0, 1)]
    for w in workers: w.start()
    for w in workers: w.join(120)
    assert [w.exitcode for w in workers] == [0, 0]
    (_, *one), (_, *two) = sorted(result.get() for _ in workers)
    assert one == two and one[:2] == [4, 2]

# ---- parts

def test_concat_pairs_reads_like_one_store(tmp_path):
    t, stores = tokenizer(), []
    d = demos(t)
    pairs = PreferencePairs(d, Seqs(d.ids, d.attention_mask, d.response_mask))
    for k, rows in enumerate((slice(0, 5), slice(5, 24))):
        stores.append(create_store(tmp_path/str(k), t))
        stores[-1].append(pairs[rows])
    both = ConcatPairs(stores)
    assert len(both) == 24 and both.lengths().tolist() == pairs.lengths().tolist()
    for rows in ([23, 0, 5, 4], torch.tensor([1]), [7, 7, 0]):
        got, want = both[torch.as_tensor(rows)].chosen.trim(), d[rows].trim()
        assert torch.equal(got.ids, want.ids) and torch.equal(got.response_mask, want.response_mask)

def test_command_line(tmp_path, begin, capsys, monkeypatch):
    from rlhf_nb.workbook import main
    monkeypatch.setattr(module, "WORLD_REGISTRY", TINY)
    monkeypatch.setattr(module.validate_pipeline, "__defaults__", (TINY,))
    file = tmp_path/"p.toml"
    file.write_text(to_toml(some(begin, "SFT", "ExternalRewardDPO")))
    assert main(["pipeline", "validate", str(file)]) == 0 and "2 stages" in capsys.readouterr().out
    assert main(["pipeline", "run", str(file), "--output-dir", str(tmp_path/"o")]) == 0
    out = capsys.readouterr().out
    assert "01-SFT" in out and "02-ExternalRewardDPO" in out and "tie" in out
    assert main(["pipeline", "clean", str(tmp_path/"o"), "--dry-run"]) == 0
    assert "01-SFT/model.safetensors" in capsys.readouterr().out and len(weights(tmp_path/"o")) == 2
    assert main(["pipeline", "clean", str(tmp_path/"o")]) == 0 and len(weights(tmp_path/"o")) == 1
    file.write_text(file.read_text().replace('"even"', '"odd/one/out"'))
    assert main(["pipeline", "validate", str(file)]) == 1
    assert main(["pipeline", "run", str(file), "--output-dir", str(tmp_path/"p")]) == 1
    assert "stage 2 (ExternalRewardDPO), reward" in capsys.readouterr().err
    file.write_text("model = ")
    for task in (["validate"], ["run", "--out", str(tmp_path/"p")]):
        assert main(["pipeline", task[0], str(file), *task[1:]]) == 1 and "no TOML" in capsys.readouterr().err
    assert main(["pipeline", "validate", str(tmp_path/"none.toml")]) == 2

# ---- random numbers, and work that is kept

def test_every_purpose_has_its_own_generator():
    def drawn(seed, i, what):
        ctx = module.StageContext(Pipeline("m", FIVE, seed=seed), i, TINY, None, None, None, None)
        return torch.rand(3, generator=ctx.generator(what)).tolist()
    purposes = [(0, 0, "chunk 0"), (1, 0, "chunk 0"), (0, 1, "chunk 0"), (0, 0, "chunk 1"), (0, 0, "order 0")]
    assert len({tuple(drawn(*p)) for p in purposes}) == 5 and drawn(*purposes[0]) == drawn(*purposes[0])

def test_chunks_differ_and_random_numbers_come_from_the_seed_alone(tmp_path, begin):
    pipeline = some(begin, "SFT", "ExternalRewardDPO")
    for k in (1, 2):
        torch.manual_seed(k)                               # what was drawn before plays no part
        run_pipeline(pipeline, tmp_path/str(k), TINY)
        after = torch.rand(1)
        assert torch.equal(after, torch.rand(1, generator=torch.Generator().manual_seed(k)))
    assert weights(tmp_path/"1") == weights(tmp_path/"2")
    store = open_store(tmp_path/"1"/"02-ExternalRewardDPO"/"pairs", tokenizer())
    answers = {tuple(row[m].tolist()) for row, m in zip(store[:].chosen.ids, store[:].chosen.response_mask)}
    assert len(answers) > 6                                # three prompts, chunk after chunk

def test_what_was_sampled_is_not_sampled_again(tmp_path, begin, monkeypatch):
    pipeline, out, calls = some(begin, "ExternalRewardDPO"), tmp_path/"o", []
    while not (out/"work"/"pairs").exists() or open_store(out/"work"/"pairs", tokenizer()).totals()["appends"] < 2:
        assert run_until(15, pipeline, out, TINY)
    done = open_store(out/"work"/"pairs", tokenizer()).totals()["appends"]
    real = module.sample_chunk
    monkeypatch.setattr(module, "sample_chunk", lambda ctx, prompts, c, generator: calls.append(c) or real(ctx, prompts, c, generator))
    run_pipeline(pipeline, out, TINY)
    assert calls and calls[0] == done, (calls, done)

def test_dry_run_tells_rows_and_steps_and_writes_nothing(tmp_path, begin, capsys, monkeypatch):
    from rlhf_nb.workbook import main
    monkeypatch.setattr(module, "WORLD_REGISTRY", TINY)
    file, out = tmp_path/"p.toml", tmp_path/"o"
    file.write_text(to_toml(Pipeline(begin, FIVE)))
    line = ["pipeline", "run", str(file), "-o", str(out), "--dry-run"]
    assert main(line) == 0 and not out.exists()
    text = capsys.readouterr().out
    for want in ("n_steps = 7", "01-SFT: 24 rows, 7 steps", "02-SelfPlay: 24 rows, 3 steps", "03-SelfPlay: 24 rows, 6 steps",
                 "04-ExternalRewardDPO: 3 prompts, 3 steps", "05-SelfRewardDPO: 24 rows, 3 prompts, 2 steps",
                 "06-RewardPPO: 3 prompts, 3 steps", "nothing was trained or written"): assert want in text, want
    rows = run_pipeline(from_toml(file.read_text()), out, TINY)
    assert main(line) == 0 and capsys.readouterr().out.count(", finished") == 6
    for row, n in zip(rows, (7, 3, 6, 3, 2)):             # as many as are taken, or more
        log = [json.loads(line) for line in open(out/row["stage"]/"log.jsonl")]
        assert 1 <= max(x["step"] for x in log) <= n, row
    file.write_text(file.read_text().replace('"even"', '"odd/one/out"'))
    assert main(line) == 1

# ---- nothing of others is written over or deleted

def content(folder): return {p.relative_to(folder).as_posix(): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}

def one_step(begin, seed=0):
    return Pipeline(begin, (SFT("tiny", train_config=TrainConfig(n_steps=1, batch_size=8)),), seed=seed)

@pytest.mark.parametrize("out", [".", "..", "data", "data/held.jsonl", "m", "settings"])
def test_an_output_that_holds_what_is_read(tmp_path, begin, monkeypatch, capsys, out):
    from rlhf_nb.workbook import main
    here = tmp_path/"here"
    for name in ("data", "work", "settings"): (here/name).mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setattr(module, "WORLD_REGISTRY", TINY)
    shutil.copytree(begin, "m")
    Path("data/held.jsonl").write_text('{"prompt": "cat", "response": "owl"}\n')
    Path("work/thesis.txt").write_text("years of work")
    Path("manifest.json").write_text("mine")
    stage = replace(FIVE[0], eval=StageEval("data/held.jsonl", eval_every=3))
    Path("settings/pipeline.toml").write_text("# my comment\n" + to_toml(Pipeline("m", (stage,))))
    shutil.copy("settings/pipeline.toml", ".")
    before = content(".")
    for more in ([], ["--overwrite"], ["--dry-run"]):
        assert main(["pipeline", "run", "settings/pipeline.toml", "--out", out, *more]) == 2
        assert "name another output" in capsys.readouterr().err and content(".") == before
    assert main(["pipeline", "run", "pipeline.toml", "-o", "new"]) == 0 and before.items() <= content(".").items()

@pytest.mark.parametrize("name", ["pipeline.toml", "manifest.json", "work/thesis.txt", "01-SFT/thesis.txt", "work.json"])
def test_a_folder_with_our_names_is_not_ours(tmp_path, begin, name):
    path = tmp_path/"o"/name
    path.parent.mkdir(parents=True)
    path.write_text(to_toml(one_step(begin)))
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="no run of ours"): run_pipeline(one_step(begin), tmp_path/"o", TINY, overwrite)
    assert content(tmp_path/"o") == {name: to_toml(one_step(begin)).encode()}

def test_files_that_others_put_into_a_run(tmp_path, begin):
    pipeline, out = some(begin, "SFT", "ExternalRewardDPO"), tmp_path/"o"
    first = replace(pipeline, stages=pipeline.stages[:1])
    run_pipeline(first, out, TINY)
    for name in ("notes.txt", "01-SFT/plot.png", "01-SFT/mine.safetensors", "work/thesis.txt", "02-ExternalRewardDPO/x"):
        (out/name).parent.mkdir(exist_ok=True)
        (out/name).write_text("mine")
        with pytest.raises(ValueError, match=f"holds {name}, which is no file of this run"): run_pipeline(first, out, TINY, True)
        if name[:2] in ("wo", "02"):
            with pytest.raises(ValueError, match="thesis.txt|02-ExternalRewardDPO holds no stage.json"): run_pipeline(pipeline, out, TINY)
        if name[:2] in ("no", "01"): run_pipeline(first, out, TINY)             # going on deletes nothing
        assert (out/name).read_text() == "mine"
        (out/name).unlink()
        if name[:2] in ("wo", "02"): (out/name).parent.rmdir()
    run_pipeline(pipeline, out, TINY)
    for name in ("01-SFT/mine.safetensors", "01-SFT/pairs", "02-ExternalRewardDPO/pairs/mine"): (out/name).write_text("mine")
    run_pipeline(replace(pipeline, stages=(*pipeline.stages, FIVE[0])), out, TINY)
    gone = {name for name, _ in clean(out)}
    assert "01-SFT/model.safetensors" in gone and not any("mine" in name for name in gone) and "02-ExternalRewardDPO/pairs" not in gone
    for name in ("01-SFT/mine.safetensors", "01-SFT/pairs", "02-ExternalRewardDPO/pairs/mine"): assert (out/name).read_text() == "mine"

def test_comments_in_the_settings_of_a_run_stay(tmp_path, begin):
    pipeline, path = one_step(begin), tmp_path/"o"/"pipeline.toml"
    run_pipeline(pipeline, tmp_path/"o", TINY)
    path.write_text("# why: the first try was too long\n" + path.read_text())
    run_pipeline(pipeline, tmp_path/"o", TINY)
    assert path.read_text().startswith("# why")
    path.write_text("")                                       # damaged: our own file, made anew
    run_pipeline(pipeline, tmp_path/"o", TINY)
    assert from_toml(path.read_text()) == pipeline

# ---- --overwrite

@pytest.mark.parametrize("start", [0, 1])
def test_overwrite_dies_at_the_disk_and_one_run_is_whole(tmp_path, begin, start):
    old, new, out = one_step(begin), one_step(begin, seed=1), tmp_path/"o"
    run_pipeline(old, out, TINY); run_pipeline(new, tmp_path/"whole", TINY)
    shutil.copytree(out, tmp_path/"old")
    kept, want, k, died = content(out), weights(tmp_path/"whole"), start, True
    while died:
        died = dies_at(k, lambda: run_pipeline(new, out, TINY, overwrite=True))
        beside = sorted(p.name.split("-")[0] for p in tmp_path.iterdir() if p.name.startswith("o."))
        if out.exists(): assert weights(out) == want or content(out) == kept, k
        else: assert beside == ["o.new", "o.old"]
        if died: run_pipeline(new, out, TINY, overwrite=True)
        assert weights(out) == want and not foreign_files(out), k
        assert not [p for p in tmp_path.iterdir() if p.name.startswith("o.")]
        shutil.rmtree(out); shutil.copytree(tmp_path/"old", out)
        k += 4
    assert k > 60

def test_a_new_run_dies_at_the_disk_and_goes_on(tmp_path, begin):
    pipeline, k, died = one_step(begin), 0, True
    run_pipeline(pipeline, tmp_path/"whole", TINY)
    while died:
        out = tmp_path/str(k)
        died = dies_at(k, lambda: run_pipeline(pipeline, out, TINY))
        if died: run_pipeline(pipeline, out, TINY)
        assert weights(out) == weights(tmp_path/"whole") and set(content(out)) == set(content(tmp_path/"whole")), k
        k += 2
    assert k > 50

def test_a_typo_leaves_the_old_run_as_it_is(tmp_path, begin, monkeypatch, capsys):
    from rlhf_nb.workbook import main
    monkeypatch.setattr(module, "WORLD_REGISTRY", TINY)
    run_pipeline(one_step(begin), tmp_path/"o", TINY)
    before, text, file = content(tmp_path/"o"), to_toml(one_step(begin)), tmp_path/"p.toml"
    for old, new, status in (('data = "tiny"', 'data = "tinny"', 1), ("n_steps", "n_stepps", 1), (begin, "./nowhere", 1),
                             ('measure = ""', 'measure = "nrom"', 1)):
        file.write_text(text.replace(old, new, 1))
        assert main(["pipeline", "run", str(file), "-o", str(tmp_path/"o"), "--overwrite"]) == status
        assert content(tmp_path/"o") == before and not list(tmp_path.glob("o.*")), new
    assert main(["pipeline", "run", str(tmp_path/"q.toml"), "-o", str(tmp_path/"o"), "--overwrite"]) == 2

@POSIX
def test_a_full_disk_leaves_the_run_that_was_to_be_replaced(tmp_path, begin):
    out, old = tmp_path/"o", resource.getrlimit(resource.RLIMIT_FSIZE)
    run_pipeline(one_step(begin), out, TINY)
    before, handler = content(out), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for limit in (100, 2_000, 20_000, 60_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
            with pytest.raises(OSError, match="(may not grow|no room).*a run to be replaced are whole"):
                run_pipeline(one_step(begin, 1), out, TINY, overwrite=True)
            assert content(out) == before
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    run_pipeline(one_step(begin, 1), out, TINY, overwrite=True)
    assert weights(out) != {name: before[f"{name}/model.safetensors"] for name in weights(out)} and not list(tmp_path.glob("o.*"))

# ---- damaged files, other threads, locks, code, signals

@pytest.mark.parametrize("text", ["", "{", "\x00" * 50, "[]", '{"format": 1}', '{"format": 2, "program": "rlhf-nb pipeline"}'])
@pytest.mark.parametrize("name", ["run.json", "01-SFT/stage.json", "work/work.json"])
def test_a_damaged_marker_is_named_with_its_remedy(tmp_path, begin, name, text):
    pipeline, out = some(begin, "SFT", "ExternalRewardDPO"), tmp_path/"o"
    run_pipeline(replace(pipeline, stages=pipeline.stages[:1]), out, TINY)
    assert run_until(12, pipeline, out, TINY) and (out/"work"/"work.json").exists()
    (out/name).write_text(text)
    with pytest.raises(ValueError, match=rf"{name}.* (is damaged|is of another).*(name a new folder|delete .*01-SFT)"):
        run_pipeline(pipeline, out, TINY)
    assert (out/name).read_text() == text
    if name == "01-SFT/stage.json":                           # what the message says helps
        shutil.rmtree(out/"01-SFT")
        assert len(run_pipeline(pipeline, out, TINY)) == 2

@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:len(b) // 2], lambda b: b"\x00" * len(b)])
def test_a_damaged_model_of_a_stage_is_named_with_its_remedy(tmp_path, begin, damage):
    pipeline, out = some(begin, "SFT", "ExternalRewardDPO"), tmp_path/"o"
    run_pipeline(pipeline, tmp_path/"whole", TINY)
    run_pipeline(replace(pipeline, stages=pipeline.stages[:1]), out, TINY)
    path = out/"01-SFT"/"model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="01-SFT is damaged, its model cannot be read: delete it"): run_pipeline(pipeline, out, TINY)
    shutil.rmtree(out/"01-SFT")
    run_pipeline(pipeline, out, TINY)
    assert weights(out) == weights(tmp_path/"whole")

def test_other_threads_are_refused_while_a_stage_is_under_way(tmp_path, begin):
    pipeline, out, n = some(begin, "SFT", "ExternalRewardDPO"), tmp_path/"o", torch.get_num_threads()
    assert run_until(20, pipeline, out, TINY)
    torch.set_num_threads(n + 1)
    try:
        with pytest.raises(ValueError, match=f"began with {n} threads, .* not {n + 1}: set OMP_NUM_THREADS={n}"):
            run_pipeline(pipeline, out, TINY)
    finally: torch.set_num_threads(n)
    run_pipeline(pipeline, out, TINY)

def test_the_locks_are_free_after_an_error(tmp_path, begin, monkeypatch):
    pipeline, out, errors = some(begin, "ExternalRewardDPO"), tmp_path/"o", []     # errors: their frames stay alive
    for name in ("select_pairs", "precompute_ref_logprobs", "evaluate_stage"):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, lambda *args: 1 / 0)
            with pytest.raises(ZeroDivisionError) as e: run_pipeline(pipeline, out, TINY)
            errors.append(e)
    run_pipeline(pipeline, out, TINY)
    (out/"pipeline.toml").write_text("model = ")
    with pytest.raises(ValueError, match="pipeline.toml is damaged .*run the pipeline again") as e: clean(out)
    errors.append(e)
    run_pipeline(pipeline, out, TINY)
    assert clean(out) == []

def test_the_same_data_under_another_name_or_changed_is_noticed(tmp_path, begin):
    "Every file that a stage names is compared by its bytes, the model's files one by one."
    shutil.copytree(begin, tmp_path/"m")
    pipeline, out = one_step(str(tmp_path/"m")), tmp_path/"o"
    assert run_until(6, pipeline, out, TINY) and (out/"work"/"work.json").exists()
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        kept = (tmp_path/"m"/name).read_bytes()
        (tmp_path/"m"/name).write_bytes(kept + b" ")
        with pytest.raises(ValueError, match=f"{name} is not the file that stage 1 began with|model: "): run_pipeline(pipeline, out, TINY)
        (tmp_path/"m"/name).write_bytes(kept)
    run_pipeline(pipeline, out, TINY)

@pytest.mark.parametrize("text", ['model = "m"\nstage = [1]', 'model = "m"\nstage = 3', 'model = "m"\nstages = 3\n[[stage]]\nkind = "SFT"\ndata = "x"',
    'model = "m"\n[[stage]]\nkind = ["SFT"]', 'model = "m"\n[[stage]]\nkind = {a = 1}', "\x00", "[" * 500])
def test_any_toml_is_read_or_refused_in_words(text):
    with pytest.raises(PipelineError): from_toml(text)

PROGRAM = """
import os, sys
sys.path[:0] = [{here!r}]
import torch; torch.set_num_threads(1)
import test_pipeline
test_pipeline.module.WORLD_REGISTRY = test_pipeline.TINY
test_pipeline.module.validate_pipeline.__defaults__ = (test_pipeline.TINY,)
from rlhf_nb.workbook import main
sys.exit(main(sys.argv[1:]))
""".format(here=str(Path(__file__).parent))

def test_code_of_a_model_never_runs_because_standard_input_says_y(folder_with_code, press_y, begin, tmp_path):
    scored = Pipeline(begin, (FIVE[0], replace(FIVE[3], reward=str(folder_with_code))))
    for pipeline in (scored, Pipeline(str(folder_with_code), FIVE[:1])):
        (tmp_path/"p.toml").write_text(to_toml(pipeline))
        done = press_y(PROGRAM, "pipeline", "run", tmp_path/"p.toml", "-o", tmp_path/"o")
        assert done.returncode == 1 and "trust_remote_code" in done.stderr, done.stderr
        assert not (folder_with_code/"ran").exists() and not (tmp_path/"o").exists()

@POSIX
@pytest.mark.parametrize("name, status", [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_stops_the_command_as_a_whole_and_it_goes_on(tmp_path, begin, name, status):
    pipeline = Pipeline(begin, (replace(FIVE[0], train_config=TrainConfig(n_steps=400, batch_size=8)),))
    (tmp_path/"p.toml").write_text(to_toml(pipeline))
    line = [sys.executable, "-c", PROGRAM, "pipeline", "run", str(tmp_path/"p.toml"), "-o", str(tmp_path/"o")]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        end = time.time() + 120
        while time.time() < end and process.poll() is None and not list(
                (tmp_path/"o"/"work").glob("checkpoints/*-step-*[0-9]")): time.sleep(.02)
        process.send_signal(getattr(signal, name))
        out, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    assert "the same command goes on" in out and "Traceback" not in err
    assert manifest(tmp_path/"o")["unfinished"] == 1

@pytest.mark.parametrize("name", ["pipeline", "recipes", "runs"])
def test_every_loader_is_one_of_models(name):
    "They say trust_remote_code=False; a loader of transformers that is called plainly asks standard input."
    text = Path(module.__file__).with_name(f"{name}.py").read_text("utf-8")
    assert ".from_pretrained(" not in text and ".from_config(" not in text
