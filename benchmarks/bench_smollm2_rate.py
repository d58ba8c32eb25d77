"""DPO on SmolLM2-135M at the shipped recipe's learning rate, for chapter 19: politer, and still right? Rows of Experiments.

    python benchmarks/bench_smollm2_rate.py --model smollm2 --prefs PAIRS.jsonl     # 3 seeds, about 20 CPU minutes; resumable

The pairs, prompts and settings are those of bench_smollm2.py (192 pairs, 12 steps of 16, LoRA, beta .1), only the learning
rate and the seed change. Answers to 40 held-out prompts, greedy and at temperature 1: politeness by word counts, KL to the
fetched model in nats (at temperature 1), and whether the answers to 15 questions of fact hold the right word, greedily and
at temperatures .5 and 1. "fetched" is the model without training. Rows go to nbs/results/smollm2_rate.jsonl.
"""
import argparse, re
from pathlib import Path
from types import SimpleNamespace
import torch
from bench_smollm2 import LORA, N_DPO, N_REWARD, ROOT, counted, kl_of, split, train, word_weights
from rlhf_nb.data.text import encode_prompt
from rlhf_nb.base.models import load_lm
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.run.evidence import Experiment
from rlhf_nb.run.text_rewards import decode_seqs

FACTS = {1: "threw", 2: "cheap", 3: "students", 6: "ohm", 7: "8,?000", 8: "blunt|dull", 10: "1, 4, 9", 14: "0[.]8", 20: "Ankara",
         21: "lephant.*ion.*ebra", 23: "H2O2", 24: "quickly", 30: "contract", 36: "Beijing", 39: "56"}


def measured(a, lm, ref, tokenizer):
    parts = split(a)
    questions = list(dict.fromkeys(r["prompt"] for r in parts["test"]))[:40]
    prompts = [encode_prompt(tokenizer, [dict(role="user", content=q)]) for q in questions]
    known, weights = word_weights(parts["reward"][:N_REWARD])
    found, right = {}, []
    for t in 0., .5, 1.:
        at = [*FACTS] if t == .5 else range(40)
        seqs = generate_many(lm, [prompts[i] for i in at], tokenizer, SamplingParams(40, temperature=t),
                             torch.Generator().manual_seed(1), 40)[0]
        said = dict(zip(at, [text for _, text in decode_seqs(tokenizer, seqs)]))
        right += [float(bool(re.search(FACTS[i], said[i]))) for i in FACTS]
        if t == .5: continue
        rows = [dict(chosen=x, rejected="") for x in said.values()]
        found[f"words T {t:g}"] = (counted(rows, known) @ weights).tolist()
        if t: found["kl"] = kl_of(lm, ref, seqs).tolist()
        else: found["answers"] = list(said.values())
    return found | dict(right=right)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--model", required=True, type=Path)
    p.add_argument("--prefs", required=True, type=Path)
    p.add_argument("--rates", type=float, nargs="+", default=[2e-4])
    p.add_argument("--seeds", type=int, nargs="+", default=range(3))
    p.add_argument("--out", type=Path, default=Path("runs/smollm2_rate"))
    p.add_argument("--home", type=Path, default=ROOT/"nbs/results/smollm2_rate.jsonl")
    a = p.parse_args()
    torch.set_num_threads(1)
    a.out.mkdir(parents=True, exist_ok=True)
    ref, tokenizer = load_lm(a.model, pad_token="<pad>")

    def run(s, seed):
        split(a)
        folder = a.out/f"dpo_{s['lr']:g}_{seed}"
        kept = train("dpo", a.out/"dpo.jsonl", "-o", folder, "--model", a.model, *LORA, "--lr", s["lr"], "--seed", seed,
                     "--max-steps", s["n_steps"])
        return measured(a, load_lm(folder)[0], ref, tokenizer) | dict(eval_accuracy=kept["eval_accuracy"])
    fetched = Experiment("fetched", lambda s, seed: measured(a, ref, ref, tokenizer), dict(n_prompts=40), a.home)
    dpo = Experiment("DPO", run, dict(lr=2e-4, n_pairs=N_DPO, n_steps=N_DPO // 16, lora_r=16, beta=.1, n_prompts=40), a.home)
    for x, seeds in ((fetched, [0]), *((dpo.but(lr=r), a.seeds) for r in a.rates)):
        for seed in seeds:
            row, = x.over([seed])
            print(x.name, x.settings, seed, {k: round(sum(v) / len(v), 3) for k, v in row["found"].items()
                                             if k not in ("answers", "eval_accuracy")}, flush=True)


if __name__ == "__main__": main()
