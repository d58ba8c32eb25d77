"""What a reward in a process of its own costs: CPU seconds of its calls, parent and child, over those of sampling the same responses.

    python benchmarks/bench_reward_process.py --json benchmarks/results/reward_process.json

The reward checks sums, 128 of them a call; a rollout is 128 responses of up to 16 tokens by the shipped model `sft`, sampled only, as
a rollout with log-probs and updates takes longer."""
import argparse, json, os, resource, tempfile, time
from importlib.metadata import version
from pathlib import Path
from torch import Generator
import torch
from rlhf_nb.base.models import load_bundled
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.run.reward_process import RewardProcess, load_reward_function

CODE = """import re
def right(prompts, responses, answer):
    return [float(a in re.findall(r"\\\\d+", r)) for a, r in zip(answer, responses)]
"""

def cpu(who): return sum(resource.getrusage(who)[:2])

def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--json", default="")
    p.add_argument("--calls", type=int, default=200)
    args = p.parse_args()
    torch.set_num_threads(1)
    os.chdir(tempfile.mkdtemp())
    Path("sums_bench.py").write_text(CODE)
    n = 128
    rows = dict(prompts=[f"What is {i} + {i}?" for i in range(n)], responses=[f"It is {2 * i}, I think." for i in range(n)],
                answer=[str(2 * i) for i in range(n)])
    lm, tokenizer = load_bundled("sft")
    prompts = [tokenizer("Where does the fox live?")["input_ids"]] * n
    def sample(): generate_many(lm, prompts, tokenizer, SamplingParams(16), Generator().manual_seed(0))
    sample()
    began = time.process_time()
    for _ in range(5): sample()
    rollout = (time.process_time() - began) / 5
    here = load_reward_function("sums_bench:right")
    began = time.process_time()
    for _ in range(args.calls): here(**rows)
    inside = (time.process_time() - began) / args.calls
    before = cpu(resource.RUSAGE_CHILDREN)
    one = RewardProcess("sums_bench:right", 60.)
    one.close()
    start = cpu(resource.RUSAGE_CHILDREN) - before
    before, began = cpu(resource.RUSAGE_CHILDREN), time.process_time()
    there = RewardProcess("sums_bench:right", 60.)
    for _ in range(args.calls): there(**rows)
    parent = time.process_time() - began
    there.close()
    outside = (parent + cpu(resource.RUSAGE_CHILDREN) - before - start) / args.calls
    found = dict(rows=n, rollout_cpu_seconds=round(rollout, 4), in_this_process=round(inside, 6), in_its_own=round(outside, 6),
                 start_cpu_seconds=round(start, 4), share_of_a_rollout=round((outside - inside) / rollout, 5), torch=version("torch"))
    print(json.dumps(found, indent=1))
    if args.json: Path(args.json).write_text(json.dumps(found, indent=1) + "\n")

if __name__ == "__main__": main()
