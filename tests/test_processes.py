"""Two CPU processes make the run that one process makes; what dies ends the run and
goes on later; a signal waits for its step; what cannot be split is refused."""
import json, os, re, signal, subprocess, sys, threading, time, pytest, torch
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from torch.nn.utils import parameters_to_vector
from rlhf_nb.base import processes
from rlhf_nb.base.checkpoints import list_checkpoints, restore_checkpoint, save_checkpoint
from rlhf_nb.base.learning import EvalConfig, TrainConfig, accumulate_gradients, fit, make_trainer, train_step
from rlhf_nb.base.models import add_lora, checkpoint_layers, load_bundled
from rlhf_nb.base.processes import (check_launch, gather_objects, gather_rows, in_first_process, own_rows,
    process_index, require_one_process, require_same, stop_after_step, stop_if_asked, sum_gradients)
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.run.methods import make_critic
from rlhf_nb.run.stages import Stage, to_toml
from rlhf_nb.sft import sft_loss, train_sft
from rlhf_nb.tokens import Seqs
from rlhf_nb.trainers.ppo_trainer import PPOConfig, train_ppo
from conftest import PATIENCE, ROOT, first_only, free_port, until
from tiny_runs import METHOD_NAMES, content, fork, in_a_row, rows_in, run, run_all, status_of, tiny, weights
from trainer_runs import CONFIG, RUNS, inserts, rows, scored, seeded, task_of

pytestmark = pytest.mark.usefixtures("one_thread", "no_curves")

# ---- runs: in float64, as AdamW divides by the size of a gradient, and where that is 1e-8 rounding counts
def ppo_lora(lm, tokenizer, generator, move): # adapters in policy and critic, the reference is the policy without them; a tool speaks
    lm, config = add_lora(lm, 2), PPOConfig(n_iterations=2, n_prompts=5, micro_batch_size=2)
    return train_ppo(ActorCritic(lm, make_critic(lm, 2)), lm, replace(task_of(tokenizer, 9), environment=inserts), config, generator)

def tied(lm, tokenizer, generator, move): # one tensor is both embedding and head; layers are computed again
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(0)
    lm = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, pad_token_id=tokenizer.pad_token_id, tie_word_embeddings=True)).double()
    checkpoint_layers(lm)
    return train_sft(lm, rows(tokenizer), CONFIG, generator)

ALL = RUNS | dict(ppo_lora=ppo_lora, tied=tied)

def trained(name):
    lm, tokenizer = load_bundled("sft")
    return ALL[name](lm.double().requires_grad_(), tokenizer, seeded(), lambda model: model)

@cache
def result(name): # log, weights, how many rows were scored
    scored.clear()
    trainer = trained(name)
    log = [{k: v for k, v in row.items() if k != "seconds"} for row in trainer.log.rows]
    return dict(log=log, weights=parameters_to_vector(trainer.model.parameters()).tolist(), scored=list(scored))

# ---- two processes
def start(out, work, more={}):
    "Two processes, as a launcher starts them: work(rank) in each."
    port = str(free_port())
    out.mkdir(exist_ok=True)
    def begin(rank):
        os.environ.update(dict(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port) | more, RANK=rank, LOCAL_RANK=rank)
        return work(rank)
    return [fork(partial(begin, rank), out/f"said{rank}") for rank in "01"]

def ended(out, pids): return [(status_of(pid), (out/f"said{i}").read_text()) for i, pid in enumerate(pids)]

def found_by_both(out, *words, more={}):
    "What both processes found, by name: [process 0, process 1]."
    def work(rank):
        found = {name: result.__wrapped__(name) if name in ALL else globals()[name](out) for name in words}
        (out/f"{rank}.json").write_text(json.dumps(found))
    said = ended(out, start(out, work, more))
    assert [code for code, _ in said] == [0, 0], said
    return [json.loads((out/f"{i}.json").read_text()) for i in range(2)]

@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    return found_by_both(tmp_path_factory.mktemp("two"), *ALL, "differ", "several")

@pytest.mark.parametrize("name", ALL)
def test_two_processes_make_the_run_of_one(name, of_two):
    both, want = [x[name] for x in of_two], result(name)
    near = 1e-6 if name in ("ppo", "grpo_dynamic", "gdpo", "tools", "ppo_lora", "distill") else 1e-5   # lag, environment, teacher
    for index, got in enumerate(both):
        assert len(got["log"]) == len(want["log"]) > 0
        for a, b in zip(got["log"], want["log"]):
            assert a.keys() == b.keys()
            for k in b: assert a[k] == pytest.approx(b[k], abs=near, rel=1e-6), (index, b.get("step"), k)
        assert (torch.tensor(got["weights"]) - torch.tensor(want["weights"])).abs().max() < near
    assert both[0]["weights"] == both[1]["weights"] and both[0]["log"] == both[1]["log"]    # to the last bit
    if name == "ppo": assert [x["scored"] for x in both] == [[3, 3, 3]] * 2             # of 6 responses, three times: lag 1
    if name == "grpo": assert [x["scored"] for x in both] == [[8, 8], [4, 4]]               # whole groups of 4

def message_of(fn):
    try: fn()
    except Exception as e: return f"{type(e).__name__}: {e}"

def no_words(x): return Seqs(x.ids, x.attention_mask, torch.zeros_like(x.response_mask))

def differ(out): # name -> message
    model, tokenizer = load_bundled("base")
    data = rows(tokenizer, 9)
    trainer = make_trainer(model.requires_grad_(), CONFIG)
    said = dict(data=message_of(lambda: fit(trainer, rows(tokenizer, 9, process_index()), sft_loss, seeded())),
                seed=message_of(lambda: fit(trainer, data, sft_loss, seeded(process_index()))))
    with torch.no_grad(): model.get_output_embeddings().weight[0, 0] += process_index()
    def full(): raise OSError(28, "no room is left")
    return said | dict(writer=message_of(lambda: in_first_process(full)), weights=message_of(lambda: make_trainer(model, CONFIG)),
                       empty=message_of(lambda: train_step(trainer, data[:0], sft_loss)),
                       weightless=message_of(lambda: train_step(trainer, no_words(data), sft_loss)))

def several(out): # sums, unused weights, evaluation by process 0, sampling fewer rows than processes
    model, tokenizer = load_bundled("base")
    model.requires_grad_().register_parameter("spare", torch.nn.Parameter(torch.ones(2)))
    trainer = make_trainer(model, TrainConfig(weight_decay=.1))
    accumulate_gradients(trainer, rows(tokenizer, 1), sft_loss)
    assert model.spare.grad is None and model.get_output_embeddings().weight.grad.abs().sum() > 0
    trainer.optimizer.zero_grad()
    eval_config = EvalConfig(lambda model: dict(process=process_index(), x=torch.tensor(process_index() + .5)))
    def loss_fn(model, x):
        if trainer.step > 0: trainer.stop_reason = "test"
        return sft_loss(model, x)
    fit(trainer, rows(tokenizer, 4), loss_fn, seeded(), eval_config, out/"here")
    seqs, _ = generate_many(model, [[5, 6]], tokenizer, SamplingParams(4), seeded(3))
    torch.manual_seed(process_index())                                           # dropout's numbers, of each process
    save_checkpoint(out/"there", trainer, seeded())
    want = torch.rand(3)
    restore_checkpoint(out/"there", trainer, seeded())
    assert torch.equal(torch.rand(3), want)
    return dict(log=[{k: v for k, v in r.items() if k in ("process", "x", "step")} for r in trainer.log.rows], ids=seqs.ids.tolist(),
                rand=want.tolist(), files=sorted(p.name for p in (out/"here").rglob("*")))

def test_what_two_processes_share_and_refuse(of_two):
    for i, found in enumerate(of_two):
        said = found["differ"]
        assert "differ in the data: process 1 has not what process 0 has" in said["data"]
        assert "differ in the generator" in said["seed"] and "differ in the weights to start from" in said["weights"]
        assert said["writer"] == ("ConnectionError: process 0 has stopped: " if i else "OSError: ") + "[Errno 28] no room is left"
        assert "at least one row" in said["empty"] and "counts nothing" in said["weightless"]
    a, b = [x["several"] for x in of_two]
    assert a.pop("rand") != b.pop("rand") and a == b
    assert a["log"][0] == dict(step=0, process=0, x=.5) and a["log"][1]["step"] == 1
    assert "trainer_log.jsonl" in a["files"] and sum("step" in name for name in a["files"]) == 1

now = []
def fragile_loss(model, x): # process 1 dies in its third and last step, behind a checkpoint
    how = os.environ.get("HOW") if process_index() and now[0].step == 2 else ""
    if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if how == "raise": raise ValueError("this row is not good")
    if how == "hang": time.sleep(1e5)
    return sft_loss(model, x)
def fragile(out):
    model, tokenizer = load_bundled("base")
    now[:] = [make_trainer(model.requires_grad_(), CONFIG)]
    fit(now[0], rows(tokenizer), fragile_loss, seeded(), folder=out/"run", eval_every=1)
    return dict(weights=parameters_to_vector(model.parameters()).tolist(), seconds=[row["seconds"] for row in now[0].log.rows])

@pytest.mark.parametrize("how", ["raise", "kill", "hang"])
def test_a_process_that_dies_or_hangs_ends_the_run_which_goes_on_with_as_many(how, tmp_path):
    pids = start(tmp_path, lambda rank: fragile(tmp_path) and 0, dict(HOW=how, RLHF_NB_PATIENCE="5" if how == "hang" else "300"))
    if how == "hang": # the first ends by itself; a launcher ends the other one then
        code, first = ended(tmp_path, pids[:1])[0]
        os.kill(pids[1], signal.SIGKILL)
        (other, second), = [(status_of(pids[1]), "")]
    else: (code, first), (other, second) = ended(tmp_path, pids)
    assert [code, other] == [1, 1 if how == "raise" else -9]
    assert "stops because another one has ended" in first and "last checkpoint is whole" in first
    assert how != "hang" or "hung for 5 s" in first
    assert how != "raise" or "this row is not good" in second
    [checkpoint] = list_checkpoints(tmp_path/"run")
    state = torch.load(checkpoint/"state.pt", weights_only=True)["optimizer"]["state"]
    model, _ = load_bundled("base")
    assert checkpoint.name.endswith("step-2") and [x["exp_avg"].shape for x in state.values()] == [p.shape for p in model.parameters()]
    with pytest.raises(ValueError, match="n_processes was 2, got 1"): fragile(tmp_path)
    saved, want = [row["seconds"] for row in rows_in(tmp_path/"run/trainer_log.jsonl")], fragile(tmp_path/"whole")["weights"]
    for found in found_by_both(tmp_path, "fragile"):
        assert (torch.tensor(found["fragile"]["weights"]) - torch.tensor(want)).abs().max() < 1e-5
        assert found["fragile"]["seconds"][:2] == saved                          # of the steps before

def test_process_0_may_work_alone_for_long_and_is_not_awaited_when_it_stands_still(tmp_path):
    def work(rank):
        assert in_first_process(lambda: time.sleep(6) or 7) == 7                  # longer than the patience
        print("it was awaited")
        in_first_process(lambda: os.kill(os.getpid(), signal.SIGSTOP))
    pids = start(tmp_path, work, dict(RLHF_NB_PATIENCE="5"))
    code, said = status_of(pids[1]), (tmp_path/"said1").read_text()
    os.kill(pids[0], signal.SIGKILL)
    assert (code, status_of(pids[0])) == (1, -9) and "it was awaited" in said and "hung for 5 s" in said

# ---- the command, by torch's own launcher
ROWS = dict(data="pairs.jsonl", device="cpu", eval_rows=4)
PIPELINE = to_toml([Stage("dpo", ROWS | dict(model="sft", n_steps=3, batch_size=5)),
    Stage("ppo", ROWS | dict(reward="tiny_rules:even", n_iterations=2, n_prompts=4, max_new_tokens=6, eval_every=1))])
DPO = ("train", "dpo", "pairs.jsonl", "--model", "sft", "--eval-rows", "4", "--batch-size", "5", "--device", "cpu")
PPO = ("train", "ppo", "pairs.jsonl", "--model", "sft", "--reward", "tiny_rules:even", "--n-iterations", "2", "--n-prompts", "4",
       "--max-new-tokens", "6", "--eval-rows", "4", "--eval-every", "1", "--device", "cpu", "--lora-r", "2")

TORCHRUN = "torch.distributed.run --standalone --nproc-per-node 2 -m rlhf_nb".split()
ACCELERATE = "accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no -m rlhf_nb".split()

def launched(*words, by=TORCHRUN):
    return subprocess.Popen([sys.executable, "-m", *by, *words], start_new_session=True,
        env=os.environ | dict(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", PYTHONPATH=str(ROOT)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

@pytest.mark.parametrize("words", first_only([PPO, ("pipeline", "run", "both.toml")]), ids=["train", "pipeline"])
def test_the_command_makes_one_run_with_two_processes(words, inside, capfd):
    from safetensors.torch import load_file
    from rlhf_nb.book.command import main
    def told(text): return re.findall(r"^(\w+)(?=:? )", text, re.M)
    Path("both.toml").write_text(PIPELINE)
    assert main([*words, "-o", "one"]) == 0
    printed = capfd.readouterr().out
    if words != PPO:
        process = launched(*words, "-o", "two", by=ACCELERATE)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
    else:
        (code, out), (other, silent) = ended(inside, start(inside, lambda rank: main([*words, "-o", "two"])))
        assert code == other == 0, (out, silent)
        assert not told(silent)
    assert told(out) == told(printed) != []                                      # one of the two prints
    one, two = [{k: x for k, x in content(name).items() if "curves" not in k} for name in ("one", "two")]
    assert one.keys() == two.keys() and any(name.endswith("held_out.jsonl") for name in one)
    for name in weights("one"):                                                  # in float32: see `opened`
        a, b = load_file(f"one/{name}"), load_file(f"two/{name}")
        assert a.keys() == b.keys() and max((a[k] - b[k]).abs().max() for k in a) < 1e-3
    for name in one:
        facts = [json.loads(x[name]).get("results", {}) for x in (one, two) if name.endswith("run.json")]
        for k, x in facts[0].items() if facts else ():
            if isinstance(x, float) and k != "seconds": assert facts[1][k] == pytest.approx(x, abs=1e-2), k

SHARED = "sft reward dpo simpo orpo kto q ppo grpo distill".split()

def test_a_stage_of_each_method_is_the_same_run_with_two_processes(inside):
    """Without dropout, whose masks are each process's own. SGD, which leaves a rounded sum as it is: AdamW divides by gradients
    near 0, so that in float32 one weight of 100,000 differs by 1e-5, also between one process and itself in two micro-batches."""
    from safetensors.torch import load_file
    config = inside/"m/config.json"
    config.write_text(re.sub(r'(dropout": )0\.\d+', r"\g<1>0.0", config.read_text()))
    def work(out):
        for method in SHARED: run(tiny(method, device="cpu", mixed_precision="no", optimizer="SGD", lr=.02), f"{out}/{method}")
    said = ended(inside, start(inside, lambda rank: work("two")))
    assert [code for code, _ in said] == [0, 0], said
    work("one")
    begin = load_file("m/model.safetensors")
    for name in weights("one"):
        a, b = load_file(f"one/{name}"), load_file(f"two/{name}")
        moved = max(((a[k] - begin[k]).abs().max().item() for k in a.keys() & begin.keys()), default=1)
        gap = max((a[k] - b[k]).abs().max().item() for k in a)
        assert gap < min(1e-6, moved / 1000), (name, gap, moved)
    assert {name.split("/")[0] for name in weights("one")} == {*SHARED} and {*METHOD_NAMES} - {*SHARED} == {
        "ipo", "hinge", "cdpo", "robust_dpo", "spin", "rdpo", "self_reward"}     # dpo with another loss; those of one process

def test_ctrl_c_ends_both_after_a_step_that_is_saved(inside):
    "The terminal sends it to the launcher and to both processes, and the launcher to both again."
    process, log = launched(*DPO, "--n-steps", "100000", "-o", "out"), Path("out/log.jsonl")
    until(lambda: process.poll() is not None or log.exists() and log.read_text().count("\n") > 3, lambda: log.exists())
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert err.count("stopping after this step, which is saved") == 1 and "rlhf_nb/" not in err, err
    steps = log.read_text().count("\n") - 1                                      # the first row is an evaluation
    [checkpoint] = list_checkpoints("out/work/checkpoints")
    assert checkpoint.name.endswith(f"step-{steps}") and "the last checkpoint of out is whole" in out

def test_a_lone_launch_is_refused_by_the_command(inside, monkeypatch, capfd):
    from rlhf_nb.book.command import main
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True"); monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    for words in (DPO, ("pipeline", "run", "both.toml")):
        Path("both.toml").write_text(PIPELINE)
        assert main([*words, "-o", "out"]) == 2 and "use torchrun --nproc-per-node 2" in capfd.readouterr().err
    assert not Path("out").exists()

# ---- in one process
@pytest.mark.parametrize("said", ["0", "-3", "soon", "1e3", ""])
def test_a_patience_that_is_no_number_of_seconds_is_refused(said, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RLHF_NB_PATIENCE", said)
    with pytest.raises(ValueError, match=f"whole number of seconds above 0, got '{said}'"): gather_objects([1])

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

TWO = dict(WORLD_SIZE="2", RANK="1", LOCAL_RANK="1")

@pytest.mark.parametrize("env, device, words", [
    (dict(ACCELERATE_USE_DEEPSPEED="true", WORLD_SIZE="2"), "cpu", "DEEPSPEED is not supported, .*TRL, verl or OpenRLHF"),
    (dict(ACCELERATE_USE_MEGATRON_LM="1"), "cpu", "MEGATRON_LM is not supported"), (dict(ACCELERATE_USE_FSDP="true"), "cpu", "FSDP is not supported"),
    (dict(ACCELERATE_USE_CPU="True", MASTER_ADDR="127.0.0.1"), "cpu", "starts one process .* use torchrun"),
    (TWO, "cuda:0", "process 1 of this machine trains on cuda:0: move its models to cuda:1"), (TWO, "cuda", "trains on cuda: move"),
    ({}, "cuda:3", ""), (TWO, "cuda:1", ""), (dict(WORLD_SIZE="2", LOCAL_RANK="0"), "cuda", ""), (dict(WORLD_SIZE="9"), "cpu", ""),
    (dict(ACCELERATE_USE_CPU="True"), "cpu", "")])
def test_launches_that_are_refused_and_those_that_are_not(env, device, words, monkeypatch):
    for k, v in env.items(): monkeypatch.setenv(k, v)
    if not words: return check_launch(device)
    with pytest.raises(ValueError, match=words): check_launch(device)

def refusals():
    "Every loop that works in one process only, called with nothing that it could read."
    from rlhf_nb.run.best_of_n import run_best_of_n
    from rlhf_nb.spin import train_spin
    from rlhf_nb.trainers.self_reward_tools import train_online_dpo
    return {"best-of-n": lambda: run_best_of_n(None), "train_spin": lambda: train_spin(*[None] * 4),
            "train_online_dpo": lambda: train_online_dpo(*[None] * 5), "a stage of spin": lambda: run(tiny("spin"), "out"),
            "the pipeline cannot run\nstage 2 \\(rdpo\\): a stage of rdpo": lambda: run_all(in_a_row(tiny("sft"), tiny("rdpo")), "out")}

@pytest.mark.parametrize("name", refusals())
def test_loops_of_one_process_say_so_before_they_begin(name, monkeypatch, inside):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=f"^{name} runs in one process, got 2: start it with python"): refusals()[name]()
    assert not Path("out").exists()

# ---- a signal: the step is finished and saved, or left at once the second time
def test_the_first_waits_and_the_second_does_not(capfd):
    before, done = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), stop_after_step():
        signal.raise_signal(signal.SIGINT)
        done.append("the rest of the step")
        stop_if_asked(lambda: done.append("saved"))
    assert done == ["the rest of the step", "saved"] and "again: stop at once" in capfd.readouterr().err
    with pytest.raises(KeyboardInterrupt), stop_after_step():
        for _ in range(2): signal.raise_signal(signal.SIGINT)
        done.append("never")
    stop_if_asked(lambda: done.append("never"))                                  # nothing is left over
    with stop_after_step(): stop_if_asked(lambda: done.append("never"))
    assert "never" not in done and signal.getsignal(signal.SIGINT) is before

def test_other_handlers_are_left_alone_and_nesting_and_threads_do_no_harm():
    old, errors = signal.getsignal(signal.SIGTERM), []
    with stop_after_step():
        assert old != signal.SIG_DFL or signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        inner = signal.getsignal(signal.SIGINT)
        with stop_after_step(): assert signal.getsignal(signal.SIGINT) is inner
        assert signal.getsignal(signal.SIGINT) is inner
    def work():
        try:
            with stop_after_step(): stop_if_asked()
        except Exception as e: errors.append(e)
    thread = threading.Thread(target=work); thread.start(); thread.join()
    assert not errors
