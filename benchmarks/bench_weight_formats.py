"""What fewer bits for the weights cost on the tiny world: exact KL per answer and true score, paired by question.

    python benchmarks/bench_weight_formats.py [--json FILE] [--samples N]

The SFT model of the package, computed in float32 from weights that were stored in another format, and in bfloat16
throughout. KL: at each token of an answer sampled from the float32 model the exact sum over the vocabulary, added up over the answer;
score: the same random numbers for both models, temperature 1. Errors are standard errors over the 48 test questions.
4bit and 8bit need bitsandbytes.
"""
import argparse, copy, json, statistics
from importlib.util import find_spec
from pathlib import Path
import torch
from torch import Generator
from rlhf_nb.base.models import load_lm
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.run.start import path_of
from rlhf_nb.tokens import shift_right
from rlhf_nb.world import gold_rewards
from rlhf_nb.worlds.world_text import TEST, prompt_ids


def formats():
    "{name: model}"
    path = path_of("sft")
    bf16 = load_lm(path)[0].to(torch.bfloat16)
    found = {"bfloat16 weights, computed in float32": copy.deepcopy(bf16).float(), "bfloat16 weights, computed in bfloat16": bf16}
    if find_spec("bitsandbytes"): found |= {f"{n} (bitsandbytes)": load_lm(path, load_in=n)[0] for n in ("8bit", "4bit")}
    return found


@torch.no_grad()
def logps(model, seqs):
    return model(input_ids=seqs.ids, attention_mask=seqs.attention_mask.long()).logits.double().log_softmax(-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the table to this file")
    parser.add_argument("--samples", type=int, default=8, help="answers to each question")
    args = parser.parse_args()
    torch.set_num_threads(1)
    whole, tokenizer = load_lm(path_of("sft"))
    questions = [q for q in TEST for _ in range(args.samples)]
    prompts = [prompt_ids(tokenizer, q) for q in questions]

    def answers(model): return generate_many(model, prompts, tokenizer, SamplingParams(40), Generator().manual_seed(0))[0]
    def by_question(x): return x.double().view(len(TEST), -1).mean(1)
    def told(x): return dict(mean=x.mean().item(), standard_error=(x.std() / len(x)**.5).item())
    seqs = answers(whole)
    p, gold = logps(whole, seqs), by_question(gold_rewards(tokenizer, questions, seqs))
    table = {"float32": dict(score=told(gold))}
    print(f"{'':40}{'KL, nats an answer':>22}{'score':>16}{'score less float32':>22}\n{'float32':40}{'':22}{gold.mean():10.3f}")
    for name, model in formats().items():
        kl = shift_right((p.exp() * (p - logps(model, seqs))).sum(-1)) * seqs.response_mask
        score = by_question(gold_rewards(tokenizer, questions, answers(model)))
        row = table[name] = dict(kl=told(by_question(kl.sum(1))), score=told(score), score_less_float32=told(score - gold))
        a, b = row["kl"], row["score_less_float32"]
        print(f"{name:40}{a['mean']:12.5f} ± {a['standard_error']:.5f}{score.mean():14.3f}{b['mean']:+13.3f} ± {b['standard_error']:.3f}", flush=True)
    if args.json: Path(args.json).write_text(json.dumps(dict(samples=args.samples, rows=table), indent=1) + "\n")


if __name__ == "__main__": main()
