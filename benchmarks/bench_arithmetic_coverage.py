"""How many right carries does a method need, and is Q short of steps, hurt by wrong rows, or by alpha? Over seeds.

    python benchmarks/bench_arithmetic_coverage.py                    # 5 seeds, about 15 CPU minutes; resumable
    python benchmarks/bench_arithmetic_coverage.py --seeds 22 --only Q

Every run draws 6,000 rows over the sums of 80 % of all operand pairs; a writer of the log carries with probability
`carry_prob`. A model is trained from scratch to copy the log (800 steps); from it start a copy of the right rows, and
Q-learning with sparse rewards: as many `steps`, batches as they come or with `right_share` of each drawn from the right
rows and the rest from all (at .5 and `carry_prob` .1, 76 % of a batch is right in place of 52 %, and wrong rows with a
carry fall from 26 of 64 to 13), and a conservative term of weight `alpha`. Greedy answers to the 180 held-out pairs of operands. A row holds the
shares of right answers (all, without a carry, with one), the right carry rows of the log, and the CPU seconds of
the last training. Rows go to nbs/results/arithmetic_coverage.jsonl, from which the chapter draws.
"""
import argparse, copy, random, time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
import torch
from bench_arithmetic_seeds import COPY, LEARN, N_LOG, RULES, measure, seeded, split
from rlhf_nb.arithmetic import Sum, addition_dataset, solver_rewards, sum_tokenizer
from rlhf_nb.base.learning import train_step
from rlhf_nb.base.models import tiny_lm
from rlhf_nb.base.q_networks import QNets, make_episodes, q_network
from rlhf_nb.qlearning import q_loss
from rlhf_nb.run.evidence import Experiment
from rlhf_nb.sft import train_sft
from rlhf_nb.trainers.q_trainer import QPolicy, make_q_trainer, train_q

SETTINGS = dict(carry_prob=.1, n_log=N_LOG, copy_steps=COPY.n_steps, steps=LEARN.n_steps, lr=LEARN.lr, batch_size=LEARN.batch_size)


@lru_cache(1)
def start(carry_prob, seed):
    "The log, its rewards, and a model that copies it all."
    tokenizer = sum_tokenizer()
    every = [Sum(a, b) for a in range(10, 100) for b in range(10)]
    random.Random(0).shuffle(every)
    held_out, seen = every[:180], every[180:]
    asked, seqs = addition_dataset(tokenizer, seen, N_LOG, random.Random(seed), carry_prob)
    reward = solver_rewards(tokenizer, asked, seqs, dense=False)
    imitator = tiny_lm(tokenizer, seed=seed)
    train_sft(imitator, seqs, COPY, seeded(seed))
    return tokenizer, held_out, asked, seqs, reward, imitator


def judged(s, seed, train):
    tokenizer, held_out, asked, seqs, reward, imitator = start(s["carry_prob"], seed)
    right, carries, began = reward.sum(1) > 0, torch.tensor([x.carries for x in asked]), time.process_time()
    policy = train(tokenizer, seqs, reward, right, imitator)
    took = time.process_time() - began
    found = split(right.float(), carries) if policy is None else measure(policy, tokenizer, held_out)
    return found | dict(right_carry_rows=int((right & carries).sum()), trained_s=round(took, 1))


def copied(s, seed):
    def train(tokenizer, seqs, reward, right, imitator):
        chosen = copy.deepcopy(imitator)
        train_sft(chosen, seqs[right], replace(LEARN, n_steps=s["steps"]), seeded(seed))
        return chosen
    return judged(s, seed, train)


def learned(s, seed):
    config = replace(RULES, alpha=s["alpha"])
    def train(tokenizer, seqs, reward, right, imitator):
        nets = QNets(q_network(imitator), tokenizer.convert_tokens_to_ids(["<pad>", "+", "="]))
        data, plan = make_episodes(seqs, reward, tokenizer.eos_token_id), replace(LEARN, n_steps=s["steps"])
        if not s["right_share"]: train_q(nets, data, plan, config, seeded(seed))
        else:
            trainer, generator, good = make_q_trainer(nets, plan, config), seeded(seed), right.nonzero()[:, 0]
            n = int(plan.batch_size * s["right_share"])
            for _ in range(plan.n_steps):
                rows = torch.randint(len(data), (plan.batch_size,), generator=generator)
                rows[:n] = good[torch.randint(len(good), (n,), generator=generator)]
                train_step(trainer, data[rows], lambda nets, x: q_loss(nets, x, config))
        return QPolicy(nets, 0.)
    return judged(s, seed, train)


def experiments(home):
    def made(name, run, **more): return Experiment(name, run, SETTINGS | more, home)
    q = made("Q", learned, alpha=1., right_share=0.)
    for carry_prob in .1, .03, .4:
        same = dict(carry_prob=carry_prob)
        yield made("log", lambda s, seed: judged(s, seed, lambda *_: None), **same)
        yield made("copy", lambda s, seed: judged(s, seed, lambda *x: x[-1]), **same)
        yield made("copy the right rows", copied, **same)
        yield q.but(**same)
        if carry_prob == .1:
            for changed in (dict(steps=1200), dict(right_share=.5), dict(steps=1200, right_share=.5), dict(alpha=.1),
                            dict(alpha=0.)): yield q.but(**changed)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("--seeds", type=int, nargs="+", default=range(20, 25))
    args.add_argument("--only", nargs="+", help="names of the experiments")
    args.add_argument("--alphas", nargs="+", type=float, help="of Q, which then trains as long as the copy and on all rows alone")
    args.add_argument("--shares", type=float, nargs="+", default=(.1, .03, .4), help="values of carry_prob")
    args.add_argument("--home", type=Path, default=Path(__file__).parents[1]/"nbs/results/arithmetic_coverage.jsonl")
    args = args.parse_args()
    torch.set_num_threads(1)
    for carry_prob in args.shares:                         # one start serves all runs of a seed
        for seed in args.seeds:
            for x in experiments(args.home):
                if x.settings["carry_prob"] != carry_prob or args.only and x.name not in args.only: continue
                plain = x.settings["steps"] == SETTINGS["steps"] and not x.settings.get("right_share")
                if args.alphas and x.name == "Q" and not (plain and x.settings["alpha"] in args.alphas): continue
                row, = x.over([seed])
                changed = {k: row["settings"][k] for k in ("steps", "right_share", "alpha") if k in row["settings"]}
                print(f"seed {seed} carry {carry_prob:<4} {x.name:20} {changed} carry sums {row['found']['carry']:.2f}", flush=True)


if __name__ == "__main__": main()
