"""Best-of-n on the embedded world: gold and proxy of the picked answer against n, 3 seeds.

    python benchmarks/bench_best_of_n.py            # the shipped reward model, 1 minute
    python benchmarks/bench_best_of_n.py --retrain  # new pairs and a new model per seed

48 held-out questions, 64 answers each from the shipped SFT model at temperature 1. The value
at n is the mean over every way to take n of the 64. Proxy: scores of the reward model with mean
0 and std 1 on the answers themselves. The table goes to stdout, all numbers to --json.
"""
import argparse
import json
import random
import time
from pathlib import Path
import torch
from rlhf_nb.base.learning import TrainConfig
from rlhf_nb.base.models import ScalarModel, load_bundled
from rlhf_nb.reward import (
    preference_accuracy, calibration_bins, score_seqs, score_pairs, train_reward)
from rlhf_nb.base.scores import best_of_n_kl, expected_best_of_n, fit_normalizer, normalize_scores
from rlhf_nb.trainers.reward_tools import length_bias, sample_pairs
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.world import gold_rewards
from rlhf_nb.worlds.world_text import TEST, TRAIN, prompt_ids

NS = (1, 2, 4, 8, 16, 32, 64)
CONFIG = TrainConfig(lr=1e-3, n_steps=187, batch_size=64)


def seeded(seed): return torch.Generator().manual_seed(seed)


def reward_model(seed, retrain, sft, tokenizer):
    "The shipped reward model, or one fitted to 4000 new pairs; CPU seconds of each part."
    if not retrain: return load_bundled("reward")[0], {}
    began = time.process_time()
    pairs, _ = sample_pairs(sft, tokenizer, list(TRAIN), 4000, seeded(seed),
                            random.Random(seed))
    sampled = time.process_time()
    model = ScalarModel.from_lm(sft, seed)
    train_reward(model, pairs, CONFIG, seeded(seed))
    return model, dict(pairs_cpu_s=sampled - began, train_cpu_s=time.process_time() - sampled)


def held_out(model, seed, sft, tokenizer):
    "How good it is on 1000 labelled pairs of questions it never saw."
    pairs, questions = sample_pairs(sft, tokenizer, list(TEST), 1000, seeded(1000 + seed),
                                random.Random(1000 + seed))
    chosen, rejected = score_pairs(model, pairs)
    gold = [gold_rewards(tokenizer, questions, s) for s in (pairs.chosen, pairs.rejected)]
    differ, sign = gold[0] != gold[1], (gold[0] - gold[1]).sign()
    r = torch.corrcoef(torch.stack([torch.cat([chosen, rejected]), torch.cat(gold)]))[0, 1]
    sure, right, count = calibration_bins(chosen, rejected)
    return dict(labels=preference_accuracy(chosen, rejected),
                gold_order=preference_accuracy((sign * chosen)[differ], (sign * rejected)[differ]),
                labels_agree_with_gold=preference_accuracy(*[g[differ] for g in gold]), r_gold=r.item(),
                ece=((sure - right).abs() * count / count.sum()).sum().item(),      # Guo et al. 2017, eq. 3
                length_bias=length_bias(pairs, chosen, rejected))


def curve(model, seed, sft, tokenizer, k=64):
    "Gold, proxy and flatteries of the best of n."
    questions = [q for q in TEST for _ in range(k)]
    seqs, _ = generate_many(sft, [prompt_ids(tokenizer, q) for q in questions], tokenizer,
                            SamplingParams(), seeded(2000 + seed), 512)
    score = score_seqs(model, seqs)
    proxy = normalize_scores(score, fit_normalizer(score)).view(-1, k)
    gold = gold_rewards(tokenizer, questions, seqs).view(-1, k)
    at = lambda value: [expected_best_of_n(proxy, value, n).mean().item() for n in NS]
    return dict(gold=at(gold), proxy=at(proxy), ceiling=[
        expected_best_of_n(gold, gold, n).mean().item() for n in NS])


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--seeds", type=int, default=3)
    ask.add_argument("--retrain", action="store_true", help="fit a reward model per seed")
    ask.add_argument("--json", type=Path, default=None, help="where to write all numbers")
    args = ask.parse_args()
    torch.set_num_threads(1)
    sft, tokenizer = load_bundled("sft")
    runs = []
    for seed in range(args.seeds):
        model, cost = reward_model(seed, args.retrain, sft, tokenizer)
        runs.append(dict(seed=seed, **cost, **held_out(model, seed, sft, tokenizer),
                         **curve(model, seed, sft, tokenizer)))
        print(f"seed {seed}  labels {runs[-1]['labels']:.3f}  gold order "
              f"{runs[-1]['gold_order']:.3f}  r(gold) {runs[-1]['r_gold']:.3f}  "
              f"ece {runs[-1]['ece']:.3f}  " + "  ".join(f"{k} {v:.1f}" for k, v in cost.items()))
    print(f"\n{'n':>3} {'KL <=':>7} {'gold':>14} {'proxy':>14} {'picked by gold':>15}")
    for i, n in enumerate(NS):
        cells = []
        for name in ("gold", "proxy", "ceiling"):
            x = torch.tensor([run[name][i] for run in runs])
            sd = x.std().item() if len(x) > 1 else 0.
            cells.append(f"{x.mean().item():6.2f} +- {sd:.2f}")
        print(f"{n:3d} {best_of_n_kl(n):7.3f} " + " ".join(f"{c:>14}" for c in cells))
    result = dict(retrained=args.retrain, n=NS, kl=[best_of_n_kl(n) for n in NS], runs=runs)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    else: print("\n" + json.dumps(result))


if __name__ == "__main__": main()
