"""Two CPU processes make the run that one process makes; what dies ends the run; what cannot be split is refused.

This file is also the program that the processes run: python test_processes.py OUT NAME..."""
import json, os, random, signal, socket, subprocess, sys
from pathlib import Path
import pytest, torch
from torch.nn.utils import parameters_to_vector
from rlhf_nb import processes
from rlhf_nb.dpo import precompute_ref_logprobs
from rlhf_nb.dpo_tools import train_dpo
from rlhf_nb.grpo_trainer import GRPOConfig, train_grpo
from rlhf_nb.learning import (EvalConfig, TrainConfig, accumulate_gradients, fit, list_checkpoints, make_trainer,
    train_step)
from rlhf_nb.memory import PreferencePairs
from rlhf_nb.models import ScalarModel, choose_placement, frozen_copy, load_bundled
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.ppo_trainer import PPOConfig, RLTask, train_ppo
from rlhf_nb.processes import (check_launch, gather_objects, gather_rows, in_first_process, own_rows, process_count,
    process_index, require_one_process, require_same, sum_gradients)
from rlhf_nb.reward import train_reward
from rlhf_nb.sampling import SamplingParams, generate_many
from rlhf_nb.sft import sft_loss, train_sft
from rlhf_nb.world_text import TRAIN, demonstrations, prompt_ids
from conftest import until

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 600    # seconds, on a machine that may be very busy
CONFIG = TrainConfig(lr=1e-3, n_steps=5, batch_size=7, micro_batch_size=3)     # 22 rows: 7, 7, 7, 1, then the next epoch

def seeded(n=0): return torch.Generator().manual_seed(n)
def rows(tokenizer, n, seed=0): return demonstrations(tokenizer, TRAIN, n, random.Random(seed))

def opened(name): # in float64: AdamW divides by the size of a gradient, and where that is 1e-8 rounding counts
    model, tokenizer = load_bundled(name)
    return model.double(), tokenizer

def sft():
    model, tokenizer = load_bundled("base")
    return train_sft(model.requires_grad_(), rows(tokenizer, 22), CONFIG, seeded(), rows(tokenizer, 5, 1))

def reward():
    model, tokenizer = opened("base")
    pairs = PreferencePairs(rows(tokenizer, 22), rows(tokenizer, 22, 1))
    return train_reward(ScalarModel.from_lm(model), pairs, CONFIG, seeded())

def dpo():
    model, tokenizer = opened("sft")
    pairs = precompute_ref_logprobs(model, PreferencePairs(rows(tokenizer, 22), rows(tokenizer, 22, 1)))
    return train_dpo(model.requires_grad_(), pairs, CONFIG, seeded())

scored = []
def task_of(tokenizer):
    def reward_fn(seqs):
        scored.append(len(seqs))
        return seqs.response_mask.sum(1) / 10 + (seqs.ids == 7).sum(1)
    return RLTask([prompt_ids(tokenizer, q) for q in TRAIN[:9]], reward_fn, tokenizer, SamplingParams(10))

def ppo(folder=None):
    lm, tokenizer = opened("sft")
    config = PPOConfig(n_iterations=2, n_prompts=6, n_epochs=2, n_minibatches=2, micro_batch_size=2, whiten_rewards=True,
                       missing_eos_penalty=1., entropy_coef=.01)
    model = ActorCritic(lm.requires_grad_(), ScalarModel.from_lm(lm, 0))
    return train_ppo(model, frozen_copy(lm), task_of(tokenizer), config, seeded(), folder)

def grpo(folder=None, **more):
    lm, tokenizer = opened("sft")
    config = GRPOConfig(n_iterations=2, n_prompts=3, num_generations=4, micro_batch_size=3, **more)
    return train_grpo(lm.requires_grad_(), frozen_copy(lm), task_of(tokenizer), config, seeded(), folder)

def grpo_dynamic(): return grpo(dynamic_sampling=2, importance_sampling_cap=2., loss_type="grpo", kl_in_loss=True)

RUNS = dict(sft=sft, reward=reward, dpo=dpo, ppo=ppo, grpo=grpo, grpo_dynamic=grpo_dynamic)

def result(trainer): # log, and weights
    log = [{k: v for k, v in row.items() if k != "seconds"} for row in trainer.log.rows]
    return dict(log=log, weights=parameters_to_vector(trainer.model.parameters()).tolist(), scored=list(scored))

def start(out, *words, n=2, module=__file__, more={}):
    "n processes, as a launcher starts them."
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = os.environ | dict(WORLD_SIZE=str(n), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1",
                            HF_HUB_OFFLINE="1", PYTHONPATH=str(ROOT)) | more
    return [subprocess.Popen([sys.executable, module, str(out), *words], env=env | dict(RANK=str(i), LOCAL_RANK=str(i)),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for i in range(n)]

def ends(started, code=0):
    said = [p.communicate(timeout=PATIENCE) for p in started]
    assert all(p.returncode == code for p in started), said
    return said

@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    "What both processes found: [process 0, process 1], run by name."
    out = tmp_path_factory.mktemp("two")
    ends(start(out, *RUNS))
    return [json.loads((out/f"{i}.json").read_text()) for i in range(2)]

pytestmark = pytest.mark.usefixtures("one_thread")

@pytest.mark.parametrize("name", RUNS)
def test_two_processes_make_the_run_of_one(name, of_two):
    scored.clear()
    want = result(RUNS[name]())
    for index, found in enumerate(of_two):
        got = found[name]
        assert len(got["log"]) == len(want["log"]) > 0
        for a, b in zip(got["log"], want["log"]):
            assert a.keys() == b.keys()
            for k in b: assert a[k] == pytest.approx(b[k], abs=1e-5, rel=1e-6), (index, b.get("step"), k)
        gap = (torch.tensor(got["weights"]) - torch.tensor(want["weights"])).abs().max()
        assert gap < 1e-5, gap
    assert of_two[0][name]["weights"] == of_two[1][name]["weights"]              # to the last bit
    assert of_two[0][name]["log"] == of_two[1][name]["log"]

def test_each_process_scores_its_own_rows(of_two):
    own = [x["ppo"]["scored"] for x in of_two]
    assert own == [[3, 3], [3, 3]]                                               # of 6 responses, twice
    assert [x["grpo"]["scored"][2:] for x in of_two] == [[8, 8], [4, 4]]         # whole groups of 4

def test_one_process_is_untouched(monkeypatch):
    monkeypatch.setattr(processes, "dist", None)                                 # nothing of it is used
    model, tokenizer = load_bundled("base")
    trainer = make_trainer(model.requires_grad_(), CONFIG)
    assert train_step(trainer, rows(tokenizer, 3), sft_loss)["loss"] > 0
    assert gather_objects([1]) == [1] and in_first_process(lambda: 2) == 2 and own_rows() == slice(0, None, 1)
    sum_gradients(list(model.parameters())); require_same("x", 1); require_one_process("it")

def test_gather_rows_puts_back_in_order():
    parts = [(torch.tensor([3, 0]), torch.tensor([[3.], [0.]])), (torch.tensor([1, 2]), torch.tensor([[1.], [2.]]))]
    assert gather_rows(parts, "cpu").tolist() == [[0.], [1.], [2.], [3.]]

@pytest.mark.parametrize("env, device, words", [
    (dict(ACCELERATE_USE_DEEPSPEED="true", WORLD_SIZE="2"), "cpu", "DEEPSPEED is not supported, .*--fsdp_version 2"),
    (dict(ACCELERATE_USE_MEGATRON_LM="1"), "cpu", "MEGATRON_LM is not supported"),
    (dict(ACCELERATE_USE_CPU="True", MASTER_ADDR="127.0.0.1"), "cpu", "starts one process .* use torchrun"),
    (dict(WORLD_SIZE="2", RANK="1", LOCAL_RANK="1"), "cuda:0", "process 1 of this machine trains on cuda:0: move its models to cuda:1"),
    (dict(WORLD_SIZE="2", RANK="1", LOCAL_RANK="1"), "cuda", "trains on cuda: move")])
def test_launches_that_are_refused(env, device, words, monkeypatch):
    for k, v in env.items(): monkeypatch.setenv(k, v)
    with pytest.raises(ValueError, match=words): check_launch(device)

@pytest.mark.parametrize("env, device", [({}, "cuda:3"), (dict(WORLD_SIZE="2", RANK="1", LOCAL_RANK="1"), "cuda:1"),
    (dict(WORLD_SIZE="2", LOCAL_RANK="0"), "cuda"), (dict(ACCELERATE_USE_CPU="True"), "cpu"), (dict(WORLD_SIZE="9"), "cpu")])
def test_launches_that_are_not(env, device, monkeypatch):
    for k, v in env.items(): monkeypatch.setenv(k, v)
    check_launch(device)

def test_each_process_has_its_own_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    assert choose_placement("auto").device == choose_placement("cuda").device == torch.device("cuda")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert choose_placement("auto").device == choose_placement("cuda").device == torch.device("cuda:3")
    assert choose_placement("cuda:1").device == torch.device("cuda:1") and choose_placement("cpu").device.type == "cpu"

def refusals():
    "Every loop that works in one process only, called with nothing that it could read."
    from rlhf_nb.pipeline import run_pipeline
    from rlhf_nb.q_trainer import train_q_online
    from rlhf_nb.recipes import run_best_of_n
    from rlhf_nb.self_reward_runs import fill_store, train_online_dpo
    from rlhf_nb.spin_runs import train_spin
    return {"a pipeline": lambda: run_pipeline(None, ""), "best-of-n": lambda: run_best_of_n(None),
            "train_q_online": lambda: train_q_online(*[None] * 5), "train_spin": lambda: train_spin(*[None] * 4),
            "fill_store": lambda: fill_store(*[None] * 5), "train_online_dpo": lambda: train_online_dpo(*[None] * 5)}

@pytest.mark.parametrize("name", refusals())
def test_loops_of_one_process_say_so(name, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=f"^{name} runs in one process, got 2: start it with python"): refusals()[name]()

# ---- what happens between two real processes

def differ(out): # names -> message
    model, tokenizer = load_bundled("base")
    data, said = rows(tokenizer, 9), {}
    def try_it(name, fn):
        try: fn(); said[name] = "nothing"
        except ValueError as e: said[name] = str(e)
    trainer = make_trainer(model.requires_grad_(), CONFIG)
    try_it("data", lambda: fit(trainer, rows(tokenizer, 9, process_index()), sft_loss, seeded()))
    try_it("seed", lambda: fit(trainer, data, sft_loss, seeded(process_index())))
    with torch.no_grad(): model.get_output_embeddings().weight[0, 0] += process_index()
    def full(): raise OSError(28, "no room is left")
    def write():
        try: in_first_process(full)
        except OSError as e: raise ValueError(f"{type(e).__name__}: {e}")
    try_it("writer", write)
    try_it("weights", lambda: make_trainer(model, CONFIG))
    try_it("empty", lambda: train_step(trainer, data[:0], sft_loss))
    no_words = type(data)(data.ids, data.attention_mask, torch.zeros_like(data.response_mask))
    try_it("weightless", lambda: train_step(trainer, no_words, sft_loss))
    Path(out, f"said{process_index()}.json").write_text(json.dumps(said))

def several(out): # sums, unused weights, evaluation by process 0, sampling fewer rows than processes
    model, tokenizer = load_bundled("base")
    model.requires_grad_()
    spare = model.register_parameter("spare", torch.nn.Parameter(torch.ones(2)))
    trainer = make_trainer(model, TrainConfig(weight_decay=.1))
    accumulate_gradients(trainer, rows(tokenizer, 1), sft_loss)
    assert model.spare.grad is None and model.get_output_embeddings().weight.grad.abs().sum() > 0
    trainer.optimizer.zero_grad()
    eval_config = EvalConfig(lambda model: dict(process=process_index(), x=torch.tensor(process_index() + .5)))
    fit(trainer, rows(tokenizer, 4), lambda m, x: (p := sft_loss(m, x), trainer.step > 0 and setattr(trainer, "stop_reason", "test"))[0],
        seeded(), eval_config, Path(out)/"here")
    seqs, _ = generate_many(model, [[5, 6]], tokenizer, SamplingParams(4), seeded(3))
    torch.manual_seed(process_index())                                           # dropout's numbers, of each process
    from rlhf_nb.learning import restore_checkpoint, save_checkpoint
    save_checkpoint(Path(out)/"there", trainer, seeded())
    want = torch.rand(3)
    restore_checkpoint(Path(out)/"there", trainer, seeded())
    assert torch.equal(torch.rand(3), want)
    state = dict(log=[{k: v for k, v in r.items() if k in ("process", "x", "step")} for r in trainer.log.rows],
                 ids=seqs.ids.tolist(), rand=want.tolist(), files=sorted(p.name for p in Path(out, "here").rglob("*")))
    Path(out, f"several{process_index()}.json").write_text(json.dumps(state))

def test_what_two_processes_share_and_refuse(tmp_path):
    ends(start(tmp_path, "differ", "several"))
    for i in range(2):
        said = json.loads((tmp_path/f"said{i}.json").read_text())
        assert "differ in the data: process 1 has not what process 0 has" in said["data"]
        assert "differ in the generator" in said["seed"] and "differ in the weights to start from" in said["weights"]
        assert said["writer"] == ("ConnectionError: process 0 has stopped: [Errno 28] no room is left" if i else
                                  "OSError: [Errno 28] no room is left")
        assert "at least one row" in said["empty"] and "counts nothing" in said["weightless"]
    a, b = [json.loads((tmp_path/f"several{i}.json").read_text()) for i in range(2)]
    assert a["rand"] != b["rand"] and {k: x for k, x in a.items() if k != "rand"} == {k: x for k, x in b.items() if k != "rand"}
    assert a["log"][0] == dict(step=0, process=0, x=.5) and a["log"][1]["step"] == 1
    model, tokenizer = load_bundled("base")
    assert "trainer_log.jsonl" in a["files"] and sum("step" in name for name in a["files"]) == 1

def dies(out): # process 1 is killed in its third step, behind a checkpoint
    model, tokenizer = load_bundled("base")
    trainer = make_trainer(model.requires_grad_(), CONFIG)
    def loss_fn(model, x):
        if trainer.step == 2 and process_index():
            if sys.argv[3:] == ["kill"]: os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("this row is not good")
        return sft_loss(model, x)
    fit(trainer, rows(tokenizer, 22), loss_fn, seeded(), folder=Path(out)/"run", eval_every=1)

@pytest.mark.parametrize("how", ["kill", "raise"])
def test_a_process_that_dies_ends_the_run_and_the_last_checkpoint_is_whole(how, tmp_path):
    started = start(tmp_path, "dies", how)
    said = [p.communicate(timeout=PATIENCE) for p in started]
    assert started[0].returncode == 1 and started[1].returncode == (-9 if how == "kill" else 1)
    assert "stops because another one has ended" in said[0][1] and "last checkpoint is whole" in said[0][1]
    [checkpoint] = list_checkpoints(tmp_path/"run")
    assert checkpoint.name.endswith("step-2")
    if how == "raise":
        assert "this row is not good" in said[1][1]
        with pytest.raises(ValueError, match="n_processes was 2, got 1"): sft_without_evaluation(tmp_path/"run")
        return
    ends(start(tmp_path, "goes_on"))                                             # from there, to the end of an uninterrupted run
    want = result(sft_without_evaluation())["weights"]
    for i in range(2):
        found = json.loads((tmp_path/f"went{i}.json").read_text())
        assert found["first"] == 3
        assert (torch.tensor(found["weights"]) - torch.tensor(want)).abs().max() < 1e-5

def sft_without_evaluation(folder=None):
    model, tokenizer = load_bundled("base")
    trainer = make_trainer(model.requires_grad_(), CONFIG, may_change=("loss_fn",))
    fit(trainer, rows(tokenizer, 22), sft_loss, seeded(), folder=folder, eval_every=1)
    return trainer

def goes_on(out):
    folder, seen = Path(out)/"run", []
    saved = json.loads((list_checkpoints(folder)[-1]/"trainer_state.json").read_text())
    gather_objects([0])
    def prune(): # the loss that died was another function
        saved["run"] = {k: v for k, v in saved["run"].items() if not k.startswith("loss_fn")}
        (list_checkpoints(folder)[-1]/"trainer_state.json").write_text(json.dumps(saved))
    in_first_process(prune)
    trainer = sft_without_evaluation(folder)
    first = saved["trainer"]["step"] + 1
    Path(out, f"went{process_index()}.json").write_text(json.dumps(result(trainer) | dict(first=first)))

# ---- the command, by torch's own launcher

@pytest.fixture
def home(tmp_path):
    lm, tokenizer = load_bundled("sft")
    lm.save_pretrained(tmp_path/"sft"); tokenizer.save_pretrained(tmp_path/"sft")
    pair = [dict(prompt=q.text, chosen="It lives in the forest. It is red.", rejected=f"No idea {i}.") for i, q in enumerate(TRAIN[:24])]
    (tmp_path/"pairs.jsonl").write_text("".join(json.dumps(x) + "\n" for x in pair))
    (tmp_path/"rules_two.py").write_text("def short(prompts, responses): return [-len(r) / 100 for r in responses]\n")
    return tmp_path

DPO = ("dpo", "pairs.jsonl", "--model", "sft", "--max-steps", "3", "--batch-size", "5", "--eval-rows", "4")
PPO = ("ppo", "pairs.jsonl", "--model", "sft", "--reward", "rules_two:short", "--n-iterations", "2", "--n-prompts", "4",
       "--max-new-tokens", "6", "--eval-rows", "4", "--eval-every", "1")

@pytest.mark.parametrize("words, gap", [(DPO, 1e-5), (PPO, 1e-3)], ids=["dpo", "ppo"])     # in float32: see `opened`
def test_the_command_makes_one_run_with_two_processes(words, gap, home, monkeypatch, capfd):
    from safetensors.torch import load_file
    from rlhf_nb.workbook import main
    monkeypatch.chdir(home)
    line = lambda out: ["train", *words, "-o", str(home/out), "--device", "cpu"]
    assert main(line("out1")) == 0
    printed = capfd.readouterr().out
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "rlhf_nb",
        *line("out2")], env=os.environ | dict(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", PYTHONPATH=str(ROOT)),
        capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(printed.splitlines())            # one of the two prints
    one, two = [load_file(home/f"out{n}"/"model.safetensors") for n in (1, 2)]
    assert one.keys() == two.keys() and max((one[k] - two[k]).abs().max() for k in one) < gap
    facts = [json.loads((home/f"out{n}"/"run.json").read_text()) for n in (1, 2)]
    for k, x in facts[0]["results"].items():
        if isinstance(x, float) and k != "seconds": assert facts[1]["results"][k] == pytest.approx(x, abs=10 * gap), k
    names = [sorted(p.name for p in (home/f"out{n}").iterdir()) for n in (1, 2)]
    assert names[0] == names[1] and "held_out.jsonl" in names[0] and "work" not in names[0]

def test_ctrl_c_ends_both_after_a_step_that_is_saved(home):
    "The terminal sends it to the launcher and to both processes, and the launcher to both again."
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "rlhf_nb", "train",
            *DPO, "-o", "out", "--device", "cpu", "--max-steps", "100000"]
    process = subprocess.Popen(line, cwd=home, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=os.environ | dict(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", PYTHONPATH=str(ROOT)))
    log = home/"out"/"log.jsonl"
    until(lambda: process.poll() is not None or log.exists() and log.read_text().count("\n") > 3, lambda: log.exists())
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert err.count("stopping after this step, which is saved") == 1 and "rlhf_nb/" not in err, err
    steps = log.read_text().count("\n") - 1                                      # the first row is an evaluation
    [checkpoint] = list_checkpoints(home/"out"/"work"/"checkpoints")
    assert checkpoint.name.endswith(f"step-{steps}") and "the last checkpoint of out is whole" in out

def test_a_lone_launch_is_refused_by_the_command(home, monkeypatch, capfd):
    from rlhf_nb.workbook import main
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True"); monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.chdir(home)
    assert main(["train", *DPO, "-o", "out"]) == 2 and "use torchrun --nproc-per-node 2" in capfd.readouterr().err
    assert not (home/"out").exists()

if __name__ == "__main__":
    torch.set_num_threads(1)
    out, names = sys.argv[1], [name for name in sys.argv[2:] if name not in ("kill", "raise")]
    found = {}
    for name in names:
        if name not in RUNS: globals()[name](out)
        else: found[name] = result(RUNS[name]())
    if found: Path(out, f"{process_index()}.json").write_text(json.dumps(found))
