"""DPO on a JSONL file of real preferences, from a tiny model that was first taught the chosen answers.

    python benchmarks/bench_dpo_real.py preferences.jsonl              # three seeds, 2 CPU minutes
    python benchmarks/bench_dpo_real.py preferences.jsonl --json nbs/results/dpo_real.json

A seed holds out other prompts. Before: how often the taught model finds the chosen answer likelier than the
rejected one; after: the same, and how often DPO's implicit reward prefers it. Greedy answers to held-out
prompts stand side by side.
"""
import argparse
import json
import statistics
from functools import partial
from pathlib import Path
import torch
from rlhf_nb.data.text import load_pairs, prompts_of, read_texts, split_by_prompt, train_tokenizer
from rlhf_nb.dpo import make_pair_loss, dpo_loss, precompute_ref_logprobs
from rlhf_nb.trainers.dpo_tools import train_dpo
from rlhf_nb.base.learning import TrainConfig, evaluate_pairs
from rlhf_nb.base.models import frozen_copy, tiny_lm
from rlhf_nb.base.settings import weight_hash
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.sft import mean_loss, train_sft


def seeded(seed): return torch.Generator().manual_seed(seed)


def answers(model, tokenizer, prompts):
    seqs, _ = generate_many(model, prompts, tokenizer, SamplingParams(40, temperature=0.), seeded(0))
    return [tokenizer.decode(r[m].tolist(), skip_special_tokens=True) for r, m in zip(seqs.ids, seqs.response_mask)]


def likelier(x):
    won, tied = x.ref_chosen > x.ref_rejected, x.ref_chosen == x.ref_rejected
    return (won + .5 * tied).mean().item()


def run(path, seed, beta):
    tokenizer = train_tokenizer(read_texts(path), 2000)
    pairs, report = load_pairs(path, tokenizer, 128)
    learn, test = split_by_prompt(prompts_of(pairs.chosen), 150, seed)
    train, held = pairs[learn], pairs[test]
    lm = tiny_lm(tokenizer, seed=seed)
    train_sft(lm, train.chosen, TrainConfig(lr=3e-3, n_steps=5 * len(train) // 32, batch_size=32), seeded(seed))
    ref = frozen_copy(lm)
    mark, data, eval_data = weight_hash(ref), precompute_ref_logprobs(ref, train), precompute_ref_logprobs(ref, held)
    loss = partial(dpo_loss, beta=beta)
    train_dpo(lm, data, TrainConfig(lr=5e-4, n_steps=2 * len(train) // 32, batch_size=32), seeded(seed), loss)
    assert weight_hash(ref) == mark, "the reference has moved"
    after = evaluate_pairs(lm, eval_data, make_pair_loss(loss))
    show = [list(p) for p in dict.fromkeys(prompts_of(held.chosen))][:6]
    samples = zip(show, answers(ref, tokenizer, show), answers(lm, tokenizer, show))
    return dict(seed=seed, kept=report.kept, held=len(held), sft_loss=mean_loss(ref, held.chosen),
        likelier_before=likelier(eval_data), likelier_after=likelier(precompute_ref_logprobs(lm, held)),
        accuracy=after["rewards/accuracies"], loss=after["loss"], margin=after["rewards/margins"],
        samples=[dict(prompt=tokenizer.decode(p, skip_special_tokens=True), sft=a, dpo=b) for p, a, b in samples])


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("path")
    args.add_argument("--seeds", type=int, default=3)
    args.add_argument("--first", type=int, default=0)
    args.add_argument("--beta", type=float, default=.1)
    args.add_argument("--json", type=Path)
    args = args.parse_args()
    torch.set_num_threads(1)
    rows = [run(args.path, seed, args.beta) for seed in range(args.first, args.first + args.seeds)]
    for k in ("sft_loss", "likelier_before", "likelier_after", "accuracy", "loss", "margin"):
        x = [r[k] for r in rows]
        print(f"{k:16} {statistics.mean(x):.3f} +- {statistics.stdev(x) if len(x) > 1 else 0:.3f}")
    for s in rows[0]["samples"]: print(f"{s['prompt']}\n    sft  {s['sft']}\n    dpo  {s['dpo']}")
    if args.json: args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__": main()
