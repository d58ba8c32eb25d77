"""What a run was said to need (`--dry-run`), and its measured peak, for five runs.

    python benchmarks/bench_memory_plan.py [--json FILE] [--only NAME]

A Llama of 9 million float32 weights, one thread, CPU; 4bit needs bitsandbytes. Each run is a process of its own.
Memory is the process's high-water mark (VmHWM) above what it held before the model was read, set back just then
(/proc/self/clear_refs), so this runs on Linux only. malloc gives back what is freed (MALLOC_MMAP_THRESHOLD_).
"""
import argparse, json, os, subprocess, sys, tempfile
from pathlib import Path

ENV = dict(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", MALLOC_MMAP_THRESHOLD_="65536",
           MALLOC_TRIM_THRESHOLD_="65536", MPLBACKEND="agg")
FIT = dict(n_steps=2, batch_size=8, micro_batch_size=8, max_length=256, eval_rows=0, device="cpu")
RUNS = {"sft": ("sft", FIT), "sft, gradient checkpointing": ("sft", FIT | dict(gradient_checkpointing=True)),
        "dpo, LoRA": ("dpo", FIT | dict(lora_r=8, micro_batch_size=4)),
        "sft, LoRA, 4bit, adamw_8bit": ("sft", FIT | dict(lora_r=8, load_in="4bit", optimizer="adamw_8bit")),
        "ppo": ("ppo", dict(reward="lengths:length", n_iterations=2, n_prompts=8, max_new_tokens=64, max_length=192, micro_batch_size=8,
                            n_epochs=1, n_minibatches=1, eval_rows=0, device="cpu", rollouts_mb=0.))}


def status(field):
    "A line of /proc/self/status, in MB."
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def make(home):
    "A model without a history and rows as long as `max_length`, of the world's words."
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from rlhf_nb.base.models import load_bundled
    _, tokenizer = load_bundled("sft")
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(vocab_size=8192, hidden_size=256, intermediate_size=688, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=tokenizer.bos_token_id)).save_pretrained(home/"model")
    tokenizer.save_pretrained(home/"model")
    said = "The owl is white. It wakes at night. " * 40
    row = dict(prompt="Where is the owl?", chosen=said, rejected=said.replace("owl", "bear"))
    (home/"pairs.jsonl").write_text("\n".join(json.dumps(row | dict(prompt=f"Where is the {x}?")) for x in
                                              "owl bear fox hen crab frog goat wolf".split() for _ in range(2)))
    (home/"asked.jsonl").write_text("\n".join(json.dumps(dict(prompt=said[:740] + f" {x}")) for x in range(8)))
    (home/"lengths.py").write_text("def length(prompts, responses): return [float(len(x)) for x in responses]\n")


def measure(name):
    "One run in this process: planned and measured MB."
    import torch
    torch.set_num_threads(1)
    (torch.randn(4, 4, requires_grad=True) @ torch.randn(4, 4)).sum().backward()
    from rlhf_nb.run import start
    from rlhf_nb.run.pipeline import plan_stage, train
    from rlhf_nb.run.stages import Stage
    method, said = RUNS[name]
    if said.get("load_in"): import bitsandbytes
    import peft, transformers.models.llama.modeling_llama
    stage = Stage(method, dict(data="asked.jsonl" if method == "ppo" else "pairs.jsonl", model="model") | said)
    plans, verdict = [], start.memory_verdict
    start.memory_verdict = lambda plan, *more: plans.append(plan) or verdict(plan, *more)
    plan_stage(stage, "o")
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    done = train(stage, "o")
    peak, plan = status("VmHWM") - before, plans[0]
    return dict(planned_mb=plan.total / 2**20, measured_mb=peak, steps=done.trainer.step,
                **{k: v / 2**20 for k, v in vars(plan).items() if not k.startswith("n_")})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the table to this file")
    parser.add_argument("--only", choices=RUNS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one: return print(json.dumps(measure(args.one)))
    table = {}
    with tempfile.TemporaryDirectory() as home:
        make(Path(home))
        print(f"{'run':30}{'planned MB':>12}{'measured MB':>13}{'ratio':>8}")
        for name in [args.only] if args.only else RUNS:
            done = subprocess.run([sys.executable, os.path.abspath(__file__), "--one", name], cwd=home, env=os.environ | ENV,
                                  capture_output=True, text=True)
            if done.returncode: sys.exit(done.stderr)
            subprocess.run(["rm", "-rf", "o"], cwd=home)
            row = table[name] = json.loads(done.stdout.splitlines()[-1])
            row["ratio"] = row["planned_mb"] / row["measured_mb"]
            print(f"{name:30}{row['planned_mb']:12.0f}{row['measured_mb']:13.0f}{row['ratio']:8.2f}", flush=True)
    if args.json: Path(args.json).write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__": main()
