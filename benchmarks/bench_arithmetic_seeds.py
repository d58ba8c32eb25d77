"""Sums paid by a solver, over seeds: what copying and what Q-learning make of one log.

    python benchmarks/bench_arithmetic_seeds.py            # 5 seeds, 4 CPU minutes

Every seed draws a log of 6,000 answers to the sums of 80 % of all operand pairs and its own first
weights. A model is trained from scratch to copy the log; from its body start Q-learning with sparse
and with dense pay, and a copy of the right rows only. Greedy answers to the 180 held-out pairs of
operands; `log` is what the writers themselves got right. The numbers go to
nbs/results/arithmetic.json, which the chapter prints.
"""
import argparse, copy, json, random, time
from dataclasses import asdict
from pathlib import Path
import torch
from rlhf_nb.arithmetic import Sum, solver_rewards, addition_dataset, sum_tokenizer
from rlhf_nb.base.learning import TrainConfig
from rlhf_nb.base.models import tiny_lm
from rlhf_nb.base.q_networks import QNets, make_episodes, q_network
from rlhf_nb.trainers.q_trainer import QPolicy, train_q
from rlhf_nb.base.q_networks import QConfig
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.sft import train_sft

COPY = TrainConfig(lr=3e-3, n_steps=800, batch_size=64, micro_batch_size=64)
LEARN = TrainConfig(lr=3e-3, n_steps=400, batch_size=64, micro_batch_size=64)
RULES, N_LOG = QConfig(gamma=1., target_update_rate=.1), 6000


def plain(pairs): return {k: v for k, v in pairs if not callable(v)}      # what JSON can hold


def seeded(seed): return torch.Generator().manual_seed(seed)


def split(x, carries):
    return dict(all=x.mean().item(), no_carry=x[~carries].mean().item(), carry=x[carries].mean().item())


def measure(policy, tokenizer, sums):
    prompts = tokenizer([s.question for s in sums]).input_ids
    sampling = SamplingParams(max_new_tokens=5, temperature=0.)
    seqs, _ = generate_many(policy, prompts, tokenizer, sampling, seeded(0), 256)
    paid = solver_rewards(tokenizer, sums, seqs, dense=False).sum(1)
    return split(paid, torch.tensor([s.carries for s in sums]))


def run(seed):
    tokenizer = sum_tokenizer()
    every = [Sum(a, b) for a in range(10, 100) for b in range(10)]
    random.Random(0).shuffle(every)
    held_out, seen = every[:180], every[180:]
    asked, seqs = addition_dataset(tokenizer, seen, N_LOG, random.Random(seed))
    pays = {way: solver_rewards(tokenizer, asked, seqs, way == "dense") for way in ("sparse", "dense")}
    right = pays["sparse"].sum(1)
    carries = torch.tensor([s.carries for s in asked])
    yield dict(run="log", seed=seed, cpu_s=0., **split(right, carries))
    copyist, began = tiny_lm(tokenizer, seed=seed), time.process_time()
    train_sft(copyist, seqs, COPY, seeded(seed))
    yield dict(run="copy", seed=seed, cpu_s=time.process_time() - began,
               **measure(copyist, tokenizer, held_out))
    chosen, began = copy.deepcopy(copyist), time.process_time()
    train_sft(chosen, seqs[right > 0], LEARN, seeded(seed))
    yield dict(run="copy the right", seed=seed, cpu_s=time.process_time() - began,
               **measure(chosen, tokenizer, held_out))
    never = tokenizer.convert_tokens_to_ids(["<pad>", "+", "="])
    for way, pay in pays.items():
        nets, began = QNets(q_network(copyist), never), time.process_time()
        train_q(nets, make_episodes(seqs, pay, tokenizer.eos_token_id), LEARN, RULES, seeded(seed))
        yield dict(run=f"Q {way}", seed=seed, cpu_s=time.process_time() - began,
                   **measure(QPolicy(nets, 0.), tokenizer, held_out))


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("--seeds", type=int, default=5)
    args.add_argument("--first", type=int, default=20, help="the first seed")
    args.add_argument("--json", type=Path, default=Path(__file__).parents[1]/"nbs/results/arithmetic.json")
    args = args.parse_args()
    torch.set_num_threads(1)
    rows = []
    for seed in range(args.first, args.first + args.seeds):
        for row in run(seed):
            rows.append(row)
            print(f"seed {seed} {row['run']:16} all {row['all']:.2f}  no carry {row['no_carry']:.2f}  "
                  f"carry {row['carry']:.2f}  CPU {row['cpu_s']:.1f} s", flush=True)
    out = dict(command="python benchmarks/bench_arithmetic_seeds.py", settings=dict(
        n_log=N_LOG, copy=asdict(COPY, dict_factory=plain), learn=asdict(LEARN, dict_factory=plain), rules=asdict(RULES, dict_factory=plain)), rows=rows)
    args.json.parent.mkdir(exist_ok=True)
    args.json.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__": main()
