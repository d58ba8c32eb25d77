"""How many right rows does a method need? Q-learning against copying the right rows, over seeds.

    python benchmarks/bench_arithmetic_coverage.py         # 3 seeds, about 8 CPU minutes
    python benchmarks/bench_arithmetic_coverage.py --seeds 1 --first 22 --shares .03   # one of them

One thing changes along a sweep: the probability that a writer of the log carries (.1, .03; .4 is in
arithmetic.json, with the same settings and seeds).
Every run draws 6,000 rows over the sums of 80 % of all operand pairs. A model is trained from scratch
to copy the log (800 steps); from it start a copy of the right rows, and Q-learning with sparse rewards
from all rows, 400 steps each. At .1 one more run changes two settings of Q-learning, so that the
right rows are seen: half of every batch from them, and 1,200 steps. Greedy answers to the 180 held-out
pairs of operands. The numbers go to nbs/results/arithmetic_coverage.json, from which the chapter draws;
rows of other seeds and shares stay there.
"""
import argparse, copy, json, random, time
from dataclasses import asdict, replace
from pathlib import Path
import torch
from bench_arithmetic_seeds import COPY, LEARN, N_LOG, RULES, measure, seeded, split
from rlhf_nb.arithmetic import Sum, addition_dataset, solver_rewards, sum_tokenizer
from rlhf_nb.base.learning import train_step
from rlhf_nb.base.models import tiny_lm
from rlhf_nb.base.q_networks import QNets, make_episodes, q_network
from rlhf_nb.trainers.q_trainer import QPolicy, make_q_trainer, train_q
from rlhf_nb.qlearning import q_loss
from rlhf_nb.sft import train_sft

SHARES = (.1, .03)


def plain(pairs): return {k: v for k, v in pairs if not callable(v)}      # what JSON can hold


def train_balanced(nets, data, right, n_steps, seed):
    "Q-learning with half of every batch drawn from the right rows."
    trainer, generator = make_q_trainer(nets, replace(LEARN, n_steps=n_steps), RULES), seeded(seed)
    good, n = right.nonzero()[:, 0], LEARN.batch_size
    for _ in range(n_steps):
        rows = torch.randint(len(data), (n,), generator=generator)
        rows[:n // 2] = good[torch.randint(len(good), (n // 2,), generator=generator)]
        train_step(trainer, data[rows], lambda nets, x: q_loss(nets, x, RULES))


def run(carry_prob, seed):
    tokenizer = sum_tokenizer()
    every = [Sum(a, b) for a in range(10, 100) for b in range(10)]
    random.Random(0).shuffle(every)
    held_out, seen = every[:180], every[180:]
    asked, seqs = addition_dataset(tokenizer, seen, N_LOG, random.Random(seed), carry_prob)
    reward = solver_rewards(tokenizer, asked, seqs, dense=False)
    right, carries = reward.sum(1) > 0, torch.tensor([s.carries for s in asked])
    n_right = int((right & carries).sum())
    def row(name, began, **numbers):
        return dict(run=name, carry_prob=carry_prob, seed=seed, right_carry_rows=n_right,
                    cpu_s=time.process_time() - began, **numbers)
    yield row("log", time.process_time(), **split(right.float(), carries))
    imitator, began = tiny_lm(tokenizer, seed=seed), time.process_time()
    train_sft(imitator, seqs, COPY, seeded(seed))
    yield row("copy", began, **measure(imitator, tokenizer, held_out))
    chosen, began = copy.deepcopy(imitator), time.process_time()
    train_sft(chosen, seqs[right], LEARN, seeded(seed))
    yield row("copy the right rows", began, **measure(chosen, tokenizer, held_out))
    disallowed = tokenizer.convert_tokens_to_ids(["<pad>", "+", "="])
    data = make_episodes(seqs, reward, tokenizer.eos_token_id)
    nets, began = QNets(q_network(imitator), disallowed), time.process_time()
    train_q(nets, data, LEARN, RULES, seeded(seed))
    yield row("Q", began, **measure(QPolicy(nets, 0.), tokenizer, held_out))
    if carry_prob == .1:
        nets, began = QNets(q_network(imitator), disallowed), time.process_time()
        train_balanced(nets, data, right, 1200, seed)
        yield row("Q, half of each batch right, 1,200 steps", began,
                  **measure(QPolicy(nets, 0.), tokenizer, held_out))


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("--seeds", type=int, default=3)
    args.add_argument("--first", type=int, default=20, help="the first seed")
    args.add_argument("--json", type=Path,
                      default=Path(__file__).parents[1]/"nbs/results/arithmetic_coverage.json")
    args.add_argument("--shares", type=float, nargs="+", default=SHARES)
    args = args.parse_args()
    torch.set_num_threads(1)
    old = json.loads(args.json.read_text())["rows"] if args.json.exists() else []
    seeds = range(args.first, args.first + args.seeds)
    rows = [r for r in old if r["seed"] not in seeds or r["carry_prob"] not in args.shares]
    for seed in seeds:
        for carry_prob in args.shares:
            for r in run(carry_prob, seed):
                rows.append(r)
                print(f"seed {seed} carry {carry_prob:<4} {r['run']:42} all {r['all']:.2f}  "
                      f"carry {r['carry']:.2f}  CPU {r['cpu_s']:.1f} s", flush=True)
    rows.sort(key=lambda r: (-r["carry_prob"], r["seed"]))
    out = dict(command="python benchmarks/bench_arithmetic_coverage.py", settings=dict(
        n_log=N_LOG, n_held_out=180, copy=asdict(COPY, dict_factory=plain),
        learn=asdict(LEARN, dict_factory=plain), rules=asdict(RULES, dict_factory=plain)), rows=rows)
    args.json.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__": main()
