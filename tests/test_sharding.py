"""Two processes with split weights (FSDP) make the run that one makes, keep half of its state, and write its checkpoints.

This file is also a program that processes run: python test_sharding.py OUT NAME..."""
import json, os, sys
from pathlib import Path
import pytest, torch
import test_processes
from test_processes import CONFIG, DPO, PATIENCE, PPO, ROOT, RUNS, ends, home, opened, result, rows, seeded, start, task_of
from rlhf_nb.learning import list_checkpoints, make_trainer, train_step
from rlhf_nb.models import add_lora, checkpoint_layers, load_bundled, weight_hash
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.ppo_trainer import PPOConfig, train_ppo
from rlhf_nb.processes import check_launch, plain_launch, process_index, sharded_launch
from rlhf_nb.rl_recipes import make_critic
from rlhf_nb.sft import sft_loss, train_sft
from rlhf_nb.sharding import gather_state, split_state

FSDP = dict(ACCELERATE_USE_FSDP="true", FSDP_VERSION="2", FSDP_CPU_RAM_EFFICIENT_LOADING="true")
pytestmark = pytest.mark.usefixtures("one_thread")

def lora_ppo(): # adapters learn in policy and critic; the reference is the policy without them
    lm, tokenizer = opened("sft")
    lm = add_lora(lm.requires_grad_(), 2)
    model = ActorCritic(lm, make_critic(lm, 2))
    return train_ppo(model, lm, task_of(tokenizer), PPOConfig(n_iterations=2, n_prompts=5, micro_batch_size=2), seeded())

def tied(): # one tensor is both embedding and head; layers are computed again
    from transformers import LlamaConfig, LlamaForCausalLM
    _, tokenizer = load_bundled("base")
    torch.manual_seed(0)
    lm = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, pad_token_id=tokenizer.pad_token_id, tie_word_embeddings=True)).double()
    checkpoint_layers(lm)
    return train_sft(lm, rows(tokenizer, 22), CONFIG, seeded())

def dropout_off(): # what changes in the model between steps reaches the copy
    model, tokenizer = load_bundled("base")
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout): part.p = .5
    trainer = make_trainer(model.train().double().requires_grad_(), CONFIG)
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout): part.p = 0.
    train_step(trainer, rows(tokenizer, 5), sft_loss)
    with torch.no_grad(): model.get_output_embeddings().weight.mul_(.5)
    train_step(trainer, rows(tokenizer, 5), sft_loss)
    return trainer

MORE = dict(lora_ppo=lora_ppo, tied=tied, dropout_off=dropout_off)

@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    out = tmp_path_factory.mktemp("sharded")
    ends(start(out, *RUNS, *MORE, module=__file__, more=FSDP))
    return [json.loads((out/f"{i}.json").read_text()) for i in range(2)]

@pytest.mark.parametrize("name", RUNS | MORE)
def test_two_processes_with_split_weights_make_the_run_of_one(name, of_two):
    test_processes.scored.clear()
    want = result((RUNS | MORE)[name]())
    for index, found in enumerate(of_two):
        got = found[name]
        assert got["sharded"] and len(got["log"]) == len(want["log"]) > 0
        for a, b in zip(got["log"], want["log"]):
            assert a.keys() == b.keys()
            for k in b: assert a[k] == pytest.approx(b[k], abs=1e-5, rel=1e-6), (index, b.get("step"), k)
        gap = (torch.tensor(got["weights"]) - torch.tensor(want["weights"])).abs().max()
        assert gap < 1e-5, gap
    assert of_two[0][name]["weights"] == of_two[1][name]["weights"]              # to the last bit

def numbers(tensors): return sum(getattr(x, "to_local", lambda: x)().numel() for x in tensors)

def kept(out): # what a process has in a step, between layers, and afterwards
    model, tokenizer = load_bundled("base")
    trainer, seen = make_trainer(model.requires_grad_(), CONFIG), {}
    n = sum(p.numel() for p in model.parameters())
    params = [p for group in trainer.optimizer.param_groups for p in group["params"]]
    def loss_fn(lm, part):
        assert lm is not model
        found = sft_loss(lm, part)
        seen["layer"] = sum(p.to_local().numel() if hasattr(p, "to_local") else p.numel()
                            for p in lm.base_model.layers[0].parameters())       # it has computed, and let go
        seen["whole"] = sum(p.untyped_storage().nbytes() for p in model.parameters())
        return found
    before = [p.clone() for p in model.parameters()]
    train_step(trainer, rows(tokenizer, 7), loss_fn)
    layer = sum(p.numel() for p in model.base_model.layers[0].parameters())
    seen = dict(whole=seen["whole"], layer=seen["layer"] / layer, weights=numbers(params) / n,
                averages=numbers(x["exp_avg"] for x in trainer.optimizer.state.values()) / n,
                gradients=numbers(p.grad for p in params) / n,
                moved=min((a - b).abs().max().item() for a, b in zip(model.parameters(), before)))
    seen["loaded"] = weight_hash(load_bundled("sft")[0])                         # transformers would read nothing in process 1
    state = gather_state(trainer.optimizer.state_dict())
    seen["gathered"] = sum(x["exp_avg"].numel() for x in state["state"].values()) / n
    Path(out, f"kept{process_index()}.json").write_text(json.dumps(seen))

def refused(out): # a step that is not taken, and an empty one, leave the weights alone
    model, tokenizer = load_bundled("base")
    trainer, data, said = make_trainer(model.requires_grad_(), CONFIG), rows(tokenizer, 7), []
    before = [p.clone() for p in model.parameters()]
    no_words = type(data)(data.ids, data.attention_mask, torch.zeros_like(data.response_mask))
    def broken(lm, x):
        loss, n = sft_loss(lm, x)
        return loss * torch.inf, n
    for batch, loss_fn in (data, broken), (no_words, sft_loss):
        try: train_step(trainer, batch, loss_fn)
        except ValueError as e: said.append(str(e))
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    Path(out, f"refused{process_index()}.json").write_text(json.dumps(said))

def test_a_process_keeps_half_and_a_refused_step_changes_nothing(tmp_path):
    ends(start(tmp_path, "kept", "refused", module=__file__, more=FSDP))
    for i in range(2):
        seen = json.loads((tmp_path/f"kept{i}.json").read_text())
        assert seen["loaded"] == weight_hash(load_bundled("sft")[0])
        assert seen["whole"] == 0 and seen["moved"] > 0
        for name in ("weights", "averages", "gradients", "layer"): assert .4 < seen[name] < .6, (name, seen)
        assert seen["gathered"] == (0 if i else 1)                               # one process writes the file
        first, second = json.loads((tmp_path/f"refused{i}.json").read_text())
        assert "was not taken: loss inf" in first and "counts nothing" in second

def test_a_killed_run_goes_on_as_if_it_had_not_been(tmp_path):
    started = start(tmp_path, "dies", "kill", module=test_processes.__file__, more=FSDP)
    said = [p.communicate(timeout=PATIENCE) for p in started]
    assert started[1].returncode == -9 and "stops because another one has ended" in said[0][1], said
    [checkpoint] = list_checkpoints(tmp_path/"run")
    assert checkpoint.name.endswith("step-2")
    state = torch.load(checkpoint/"state.pt", weights_only=True)["optimizer"]["state"]
    model, _ = load_bundled("base")
    assert [x["exp_avg"].shape for x in state.values()] == [p.shape for p in model.parameters()]   # whole ones
    ends(start(tmp_path, "goes_on", module=test_processes.__file__, more=FSDP))
    want = result(test_processes.sft_without_evaluation())["weights"]
    for i in range(2):
        found = json.loads((tmp_path/f"went{i}.json").read_text())
        assert found["first"] == 3 and (torch.tensor(found["weights"]) - torch.tensor(want)).abs().max() < 1e-5

@pytest.mark.parametrize("words, gap", [(DPO, 1e-5), (PPO + ("--lora-r", "2"), 1e-3)], ids=["dpo", "ppo_lora"])
def test_the_command_with_split_weights(words, gap, home, monkeypatch, capfd):
    import subprocess
    from safetensors.torch import load_file
    from rlhf_nb.workbook import main
    monkeypatch.chdir(home)
    line = lambda out: ["train", *words, "-o", str(home/out), "--device", "cpu"]
    assert main(line("out1")) == 0
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "rlhf_nb",
        *line("out2")], env=os.environ | FSDP | dict(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", PYTHONPATH=str(ROOT)),
        capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    one, two = [load_file(home/f"out{n}"/"model.safetensors") for n in (1, 2)]
    assert one.keys() == two.keys() and max((one[k] - two[k]).abs().max() for k in one) < gap

# ---- in one process

@pytest.mark.parametrize("env, words", [
    (dict(FSDP_VERSION="1"), "FSDP version 1 is not supported: add --fsdp_version 2"), (dict(), "version 1 is not"),
    (dict(FSDP_VERSION="2", FSDP_OFFLOAD_PARAMS="true"), "leave fsdp_offload_params out"),
    (dict(FSDP_VERSION="2", FSDP_ACTIVATION_CHECKPOINTING="True"), "use --gradient-checkpointing")])
def test_settings_that_would_be_ignored_are_refused(env, words, monkeypatch):
    for k, v in (dict(ACCELERATE_USE_FSDP="true", WORLD_SIZE="2") | env).items(): monkeypatch.setenv(k, v)
    with pytest.raises(ValueError, match=words): check_launch("cpu")

def test_what_the_launcher_asks_for(monkeypatch):
    assert not sharded_launch()
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert not sharded_launch()                                                  # one process keeps all anyway
    check_launch("cpu")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert sharded_launch()
    with plain_launch(): assert not sharded_launch() and "ACCELERATE_USE_FSDP" not in os.environ
    assert sharded_launch()

def test_without_split_weights_a_state_stays_as_it_is():
    model, tokenizer = load_bundled("base")
    trainer = make_trainer(model.requires_grad_(), CONFIG)
    train_step(trainer, rows(tokenizer, 3), sft_loss)
    state = trainer.optimizer.state_dict()
    for other in gather_state(state), split_state(state, trainer.optimizer):
        assert other["param_groups"] == state["param_groups"]
        for i, x in state["state"].items(): assert all(torch.equal(x[k], other["state"][i][k]) for k in x)

if __name__ == "__main__":
    torch.set_num_threads(1)
    out, found = sys.argv[1], {}
    for name in sys.argv[2:]:
        if name not in RUNS | MORE: globals()[name](out); continue
        test_processes.scored.clear()
        trainer = (RUNS | MORE)[name]()
        found[name] = result(trainer) | dict(sharded=trainer.sharded is not None)
    if found: Path(out, f"{process_index()}.json").write_text(json.dumps(found))
