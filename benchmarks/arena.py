"""The rows of chapter 11's arena: every search on the tuning seed, then the winner on five other seeds.

    python benchmarks/arena.py                    # all methods; about 1.3 CPU hours, goes on where it was stopped
    python benchmarks/arena.py --method PPO RLOO  # these, in every panel
    python benchmarks/arena.py --seeds 80 81 82 83 84 -o fresh.jsonl  # winners as shipped, on other seeds

The rows go to nbs/results/arena.jsonl, which chapter 11 and `rlhf-nb compare` read. A row is known by method,
settings and seed (`run.evidence`): delete the rows of a method whose code you change.
"""
import argparse
import torch
from rlhf_nb.book.compare_runs import ARENA, CONTENDERS, REPORTED, TUNED, search, winner
from dataclasses import replace

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--method", nargs="+", default=[*{c.name: 0 for c in CONTENDERS.values()}], metavar="NAME")
    p.add_argument("--seeds", nargs="+", type=int, default=[*REPORTED], metavar="N", help="of the reported runs")
    p.add_argument("-o", "--out", default=str(ARENA), metavar="FILE", help="for the reported rows")
    args = p.parse_args()
    torch.set_num_threads(1)
    for c in CONTENDERS.values():
        if c.name not in args.method: continue
        for experiment in search(c) if c.grid else []:
            for row in experiment.over(TUNED): show(row)
        best = replace(winner(c), home=args.out)              # with PPO's other lambda, too: one knob, two rewards
        for seed in args.seeds:
            for x in [best.but(lam=lam) for lam in (.8, 1.)] if c.name == "PPO" else [best]:
                for row in x.over([seed]): show(row)

def show(row):
    told = {k: x for k, x in row["settings"].items() if k not in ("start", "samples")}
    print(row["name"], told, row["seed"], f"true score {row['found']['gold']:.2f}, {row['cpu_seconds']} CPU s", flush=True)

if __name__ == "__main__": main()
