"""SPIN on the embedded world over seeds, and plain imitation of the same demonstrations beside it.

    python benchmarks/bench_spin_seeds.py              # 3 seeds of every run, about 9 CPU minutes
    python benchmarks/bench_spin_seeds.py --only SPIN  # one run, the others stay as they are in the file
    python benchmarks/bench_spin_seeds.py --only "imitation, then SPIN"    # and its control

Every seed starts from the shipped SFT model and draws its own 2048 demonstrations of quality .9 (their
true score is 4.2), the opponents' answers and the batches. After each iteration: 48 held-out questions,
16 answers each at temperature 1 and one greedy answer; accuracy of telling held-out demonstrations from the
opponent's answers. Imitation sees as many demonstrations as SPIN's steps do, repetitions counted.
"imitation, then ..." starts where the paper does, after imitation of the same demonstrations: SPIN, or as many
batches of imitation again (25 of 64). SPIN is measured after each of its three
iterations, imitation at the end, both at temperature .5, too.
Settings were chosen on seeds 50 and 51 with questions taken from the training ones.
The table goes to stdout, the numbers to nbs/results/spin.json, from which the chapter draws.
"""
import argparse
import json
import random
import statistics
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
import torch
from rlhf_nb import spin
from rlhf_nb.dpo import dpo_loss
from rlhf_nb.kl import response_kl
from rlhf_nb.base.learning import TrainConfig
from rlhf_nb.base.models import frozen_copy, load_bundled
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.sampling import SamplingParams, generate_many, in_batches
from rlhf_nb.sft import train_sft
from rlhf_nb.spin import SPINConfig, SPINData, train_spin
from rlhf_nb.world import gold_rewards
from rlhf_nb.worlds.world_text import TEST, TRAIN, demonstrations, prompt_ids

HARD = dict(lr=1e-3, mix_previous=False)   # near the optimum of each iteration
RUNS = {"SPIN": SPINConfig(),
        "β = 1, trained hard": SPINConfig(**HARD),
        "β = .1, trained hard": SPINConfig(**HARD, beta=.1),
        "β = 1, hard, mean for sum": SPINConfig(**HARD)}
CONTROL = TrainConfig(lr=2e-3, n_steps=112, warmup_steps=10)
# where the paper starts: imitation of the same data has ended; then SPIN, or as many batches of imitation
AFTER = {"imitation, then SPIN": SPINConfig(n_iterations=3, n_pairs=320, lr=1e-3),
         "imitation, then imitation": TrainConfig(lr=2e-3, n_steps=25, warmup_steps=10)}


def plain(pairs): return {k: v for k, v in pairs if not callable(v)}      # what JSON can hold


def seeded(seed): return torch.Generator().manual_seed(seed)


def measure(policy, ref, tokenizer, n=16):
    many = [q for q in TEST for _ in range(n)]
    def answer(questions, sampling):
        prompts = [prompt_ids(tokenizer, q) for q in questions]
        seqs = generate_many(policy, prompts, tokenizer, sampling, seeded(1), 128)[0]
        return seqs, gold_rewards(tokenizer, questions, seqs).mean().item()
    seqs, gold = answer(many, SamplingParams(64))
    _, greedy = answer(TEST, SamplingParams(64, temperature=0.))
    with torch.no_grad():
        logp, ref_logp = (in_batches(partial(logprobs, m), seqs) for m in (policy, ref))
    return dict(gold=gold, greedy=greedy, kl=response_kl(logp, ref_logp, seqs.response_mask).mean().item(),
                length=seqs.response_mask.sum(1).float().mean().item())


def mean_for_sum(beta):
    "The fault: log-ratios divided by the length of the response."
    def loss_fn(model, batch):
        sides = batch.pairs.chosen, batch.pairs.rejected
        n = [s.response_mask.sum(1) for s in sides]
        logp = [logprobs(model, s).sum(1) for s in sides]
        each = dpo_loss(logp[0] / n[0], logp[1] / n[1], batch.ref_chosen / n[0], batch.ref_rejected / n[1], beta=beta)
        return each.sum(), len(each)
    return loss_fn


def run(name, seed):
    ref, tokenizer = load_bundled("sft")
    policy, rng = frozen_copy(ref).requires_grad_(), random.Random(seed)
    real, held_out = (demonstrations(tokenizer, qs, n, rng, quality=.9) for qs, n in ((TRAIN, 2048), (TEST, 256)))
    seconds, began = 0., time.process_time()
    curve = [dict(iteration=0, seconds=0., **measure(policy, ref, tokenizer))]
    if name == "SFT model": return dict(run=name, seed=seed, curve=curve)
    def measure_player(row, pairs):
        nonlocal seconds, began
        seconds += time.process_time() - began
        curve.append(dict(iteration=row["iteration"], accuracy=row["accuracy"], margin=row["margin"],
                          seconds=seconds, **measure(policy, ref, tokenizer)))
        began = time.process_time()
    began = time.process_time()
    if name == "imitation":
        train_sft(policy, real, CONTROL, seeded(seed))
        measure_player(dict(iteration=1, accuracy=None, margin=None), None)
    else:
        right = spin.make_spin_loss
        try:
            if "mean" in name: spin.make_spin_loss = mean_for_sum
            train_spin(policy, SPINData(real, held_out, tokenizer), RUNS[name], seed, callback=measure_player)
        finally: spin.make_spin_loss = right
    return dict(run=name, seed=seed, curve=curve)


def measure_half(policy, ref, tokenizer):
    "The same measurements, and the true score at temperature .5."
    questions = [q for q in TEST for _ in range(16)]
    prompts = [prompt_ids(tokenizer, q) for q in questions]
    seqs = generate_many(policy, prompts, tokenizer, SamplingParams(64, temperature=.5), seeded(1), 128)[0]
    return measure(policy, ref, tokenizer) | {"half": gold_rewards(tokenizer, questions, seqs).mean().item()}


def run_after(seed):
    "Two runs that start from the same imitation of the seed's demonstrations."
    ref, tokenizer = load_bundled("sft")
    start, rng = frozen_copy(ref).requires_grad_(), random.Random(seed)
    real, held_out = (demonstrations(tokenizer, qs, n, rng, quality=.9) for qs, n in ((TRAIN, 2048), (TEST, 256)))
    train_sft(start, real, CONTROL, seeded(seed))
    first = dict(iteration=0, seconds=0., **measure_half(start, ref, tokenizer))
    for name, config in AFTER.items():
        policy, curve = frozen_copy(start).requires_grad_(), [first]
        seconds, began = 0., time.process_time()
        def measure_player(row, pairs):
            nonlocal seconds, began
            seconds += time.process_time() - began
            curve.append(dict(iteration=row["iteration"], accuracy=row["accuracy"], margin=row["margin"],
                              seconds=seconds, **measure_half(policy, ref, tokenizer)))
            began = time.process_time()
        if isinstance(config, SPINConfig):
            train_spin(policy, SPINData(real, held_out, tokenizer), config, seed, callback=measure_player)
        else:
            train_sft(policy, real, config, seeded(seed + 100))
            measure_player(dict(iteration=3, accuracy=None, margin=None), None)
        yield dict(run=name, seed=seed, curve=curve)


def table(rows, names):
    keys = ("gold", "greedy", "length", "kl", "seconds")
    print(f"{'run':27}" + "".join(f"{k:>16}" for k in keys) + "   gold by iteration; accuracy")
    for name in (n for n in names if any(r["run"] == n for r in rows)):
        mine = [r["curve"] for r in rows if r["run"] == name]
        cells = [[c[-1][k] for c in mine] for k in keys]
        std = [statistics.stdev(c) if len(c) > 1 else 0. for c in cells]
        by = [[statistics.mean(x) for x in zip(*([p[k] or 0. for p in c if k in p] for c in mine))]
              for k in ("gold", "accuracy")]
        print(f"{name:27}" + "".join(f"{statistics.mean(c):9.2f} +-{s:4.2f}" for c, s in zip(cells, std))
              + "   " + " ".join(f"{x:.2f}" for x in by[0]) + "; " + " ".join(f"{x:.2f}" for x in by[1]))


def main():
    names = ["SFT model", "imitation", *RUNS, *AFTER]
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("--seeds", type=int, default=3)
    args.add_argument("--first", type=int, default=20, help="the first seed")
    args.add_argument("--only", choices=names, nargs="+", help="runs by name; the others are kept as they are in the file")
    args.add_argument("--json", type=Path, default=Path(__file__).parents[1]/"nbs/results/spin.json")
    args = args.parse_args()
    torch.set_num_threads(1)
    chosen = args.only or names
    old = json.loads(args.json.read_text())["rows"] if args.only and args.json.exists() else []
    rows = [r for r in old if r["run"] not in chosen]
    if set(chosen) & set(AFTER):                      # the two share their start, so both are made
        rows = [r for r in rows if r["run"] not in AFTER]
        for seed in range(args.first, args.first + args.seeds):
            rows += run_after(seed)
            print(seed, [r["curve"] for r in rows[-2:]], flush=True)
    for name in [name for name in chosen if name not in AFTER]:
        rows += [run(name, seed) for seed in range(args.first, args.first + args.seeds)]
        table(rows, [name])
    rows.sort(key=lambda r: names.index(r["run"]))
    print()
    table(rows, names)
    settings = {name: asdict(config, dict_factory=plain) for name, config in (RUNS | AFTER | {"imitation": CONTROL}).items()}
    args.json.write_text(json.dumps(dict(
        command="python benchmarks/bench_spin_seeds.py", settings=settings, rows=rows), indent=1,
        ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__": main()
