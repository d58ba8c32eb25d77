"""A real model, on a CPU: SmolLM2-135M-Instruct learns to add by GRPO, for chapter 19.

    rlhf-nb fetch smollm2 smollm2
    python benchmarks/bench_smollm2.py --model smollm2                  # about 8 CPU minutes

`rlhf-nb train grpo` with LoRA of rank 16, float32, one thread, seed 0, on sums of two digits from 1 to 9: 53 to learn
from, 8 that the run holds out itself, 20 that it never sees. The reward is 1 if the last number of the answer is the
sum. The 20 are evaluated before and after, greedily and at temperatures .5 and 1 (8 answers each), with the 12 tokens
of the training and greedily with 64. Numbers and answers go to nbs/results/smollm2.json, from which the chapter draws.
"""
import argparse, json, os, random, re, sys, time
from pathlib import Path
import torch
from rlhf_nb.data import encode_prompt
from rlhf_nb.models import load_lm
from rlhf_nb.recipes import decode_seqs
from rlhf_nb.sampling import SamplingParams, generate_many
from rlhf_nb.workbook import main as shell

ROOT = Path(__file__).resolve().parents[1]
ASK = "What is {a} plus {b}? Answer with the number only."
REWARD = '''"The reward of the sums."
import re

def right(prompts, responses, answer):
    "1 if the last number of a response is the answer, else 0."
    last = [(re.findall(r"\\d+", text) or [""])[-1] for text in responses]
    return [float(x == str(y)) for x, y in zip(last, answer)]
'''
TEMPERATURES = 0., .5, 1.


def train(*words):
    print("$ rlhf-nb train", *words, flush=True)
    began = time.process_time()
    status = shell(["train", *map(str, words)])
    if status: sys.exit(status)
    return time.process_time() - began


def run_of(folder): return json.loads((Path(folder)/"run.json").read_text("utf-8"))


def log_of(folder): return [json.loads(line) for line in (Path(folder)/"log.jsonl").read_text("utf-8").splitlines()]


def answers(lm, tokenizer, questions, temperature, n_tokens):
    prompts = [encode_prompt(tokenizer, [dict(role="user", content=q)]) for q in questions]
    seqs = generate_many(lm, prompts, tokenizer, SamplingParams(n_tokens, temperature=temperature),
                         torch.Generator().manual_seed(1), 64)[0]
    return [text for _, text in decode_seqs(tokenizer, seqs)]


def grpo(a):
    sums = [(x, y) for x in range(1, 10) for y in range(1, 10)]
    random.Random(0).shuffle(sums)
    held, learn = sums[:20], sums[20:]
    (a.out/"sums.jsonl").write_text("".join(json.dumps(dict(prompt=ASK.format(a=x, b=y), answer=x + y)) + "\n"
                                            for x, y in learn))
    (a.out/"sums_reward.py").write_text(REWARD)
    here = Path.cwd()
    os.chdir(a.out)                                  # where the reward is looked for
    try: cpu = train("grpo", "sums.jsonl", "-o", "grpo", "--model", a.model, "--lora-r", 16, "--reward", "sums_reward:right",
                     "--n-iterations", a.iterations, "--n-prompts", 4, "--num-generations", 8, "--max-new-tokens", 12,
                     "--lr", "3e-4", "--beta", 0, "--n-epochs", 1, "--eval-rows", 8, "--micro-batch-size", 16)
    finally: os.chdir(here)
    found = {}
    for name, folder in ("before", a.model), ("after", a.out/"grpo"):
        lm, tokenizer = load_lm(folder, pad_token="<pad>" if name == "before" else None)
        for t, n_tokens in [(t, 12) for t in TEMPERATURES] + [(0., 64)]:    # 64: room to explain
            n = 8 if t else 1
            said = answers(lm, tokenizer, [ASK.format(a=x, b=y) for x, y in held for _ in range(n)], t, n_tokens)
            right = [float((re.findall(r"\d+", text) or [""])[-1] == str(x + y))
                     for text, (x, y) in zip(said, [s for s in held for _ in range(n)])]
            by_sum = torch.tensor(right).view(-1, n).mean(1)
            found[f"{name}, T {t:g}" + ", 64 tokens" * (n_tokens > 12)] = dict(
                accuracy=by_sum.mean().item(), standard_error=(by_sum.std() / len(by_sum)**.5).item(),
                answers=said[::n][:8])
    keep = ("iteration", "reward", "kl", "entropy", "completions/mean_length", "frac_reward_zero_std")
    curve = [{k: row[k] for k in keep if k in row} for row in log_of(a.out/"grpo") if "iteration" in row]
    return run_of(a.out/"grpo")["results"] | dict(cpu_s=cpu, held_out=held, found=found, curve=curve)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, type=Path, help="folder that `rlhf-nb fetch smollm2` made")
    p.add_argument("--iterations", type=int, default=12, help="rollouts")
    p.add_argument("--out", type=Path, default=Path("runs/smollm2"), help="folder of the run")
    p.add_argument("--json", type=Path, default=ROOT/"nbs/results/smollm2.json")
    a = p.parse_args()
    a.model, a.out = a.model.resolve(), a.out.resolve()
    a.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    found = dict(command="python benchmarks/bench_smollm2.py --model smollm2", **grpo(a))
    a.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for name, x in found["found"].items(): print(f"{name:24}{x['accuracy']:6.2f} ± {x['standard_error']:.2f}")


if __name__ == "__main__": main()
