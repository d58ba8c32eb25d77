"""Self-rewarding on the embedded world over seeds: M1 to M4, with and without old examples.

    python benchmarks/bench_self_reward_seeds.py --judges /tmp/judges        # 25 CPU minutes
    python benchmarks/bench_self_reward_seeds.py --only replay --seeds 0     # one run
    python benchmarks/bench_self_reward_seeds.py --only "random pairs" "replay alone" --last --shipped   # 5 minutes
    python benchmarks/bench_self_reward_seeds.py --only "few judgements" "few judgements, replay alone" --last   # 12 for five seeds

Every seed has an M1 of its own: seed 0 is the shipped judge, the others are made from the shipped
base with other demonstrations, judgements and batches (as in bench_judge_seeds.py, kept in
--judges for the next time). The seed also changes prompts, samples, judgements and batches of the
loop. Two controls change one thing of "replay": "random pairs" are selected by random marks, and "replay
alone" takes as many steps as 768 pairs would give, on the old examples, and sees no pair.
The M1 of "few judgements", and of its control, learned from 2,000 judgements in place of 12,000: a third of its rows, as in the paper. Measured on the 48 held-out questions:
16 answers each at temperature 1 ("gold", "length"), 8 at .7 and top-p .9 ("cool"), one greedy answer each,
KL to M1 per answer, and the model as judge of 256 answers of mixed quality ("parse", "judge_r");
own_parse and vote_std are those of the loop itself, on what it sampled. Temperature and weight of
replay were chosen on training questions with seeds 31 and 32, after .7 and 1 had failed on the
held-out ones (gold stood still, one judge parsed .96). The table goes to stdout, the numbers to
nbs/results/self_reward.json, from which the chapter draws.
"""
import argparse
import json
import random
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
import torch
from bench_judge_seeds import ROOT, answers, trained
from rlhf_nb.judge import JudgeConfig, agreement, judge_answers
from rlhf_nb.trainers.judge_tools import function_scorer, judge_scorer
from rlhf_nb.base.replies import generate_replies
from rlhf_nb.kl import response_kl
from rlhf_nb.base.learning import named_generator
from rlhf_nb.base.models import frozen_copy
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.trainers.self_reward_tools import replay_examples, train_online_dpo
from rlhf_nb.self_reward import SMALL, SelfRewardConfig, SelfRewardTask, self_reward_iteration
from rlhf_nb.sft import train_sft
from rlhf_nb.world import gold_rewards, gold_score
from rlhf_nb.worlds.world_text import TEST, TRAIN, judge_prompt, prompt_ids

RUNS = {"replay": SMALL, "no replay": replace(SMALL, replay_weight=0.),
        "cooler": SelfRewardConfig(replay_weight=1.),
        "online": replace(SMALL, num_generations=2, n_pairs=1024),
        "random pairs": SMALL, "replay alone": SMALL,
        "few judgements": SMALL, "few judgements, replay alone": SMALL}
COOL = SamplingParams(temperature=.7, top_p=.9)


def seeded(seed): return torch.Generator().manual_seed(seed)


@torch.no_grad()
def measure(model, first, tokenizer):
    questions, fewer = [[q for q in TEST for _ in range(n)] for n in (16, 8)]
    seqs, cool, greedy = [generate_many(model, [prompt_ids(tokenizer, q) for q in some], tokenizer, sampling,
                                        seeded(1), 128)[0]
                          for some, sampling in ((questions, SamplingParams()), (fewer, COOL),
                                                 (TEST, SamplingParams(temperature=0.)))]
    kl = response_kl(logprobs(model, seqs), logprobs(first, seqs), seqs.response_mask)
    items = answers(256)
    true = torch.tensor([gold_score(*item) for item in items])
    marks = judge_answers(model, tokenizer, [(q.text, a) for q, a in items], JudgeConfig(), seeded(2))
    known = ~marks.score().isnan()
    r = agreement(marks, true)["pearson_r"] if known.sum() > 9 else 0.
    return dict(gold=gold_rewards(tokenizer, questions, seqs).mean().item(),
                greedy=gold_rewards(tokenizer, list(TEST), greedy).mean().item(),
                cool=gold_rewards(tokenizer, fewer, cool).mean().item(),
                length=seqs.response_mask.sum(1).float().mean().item(),
                kl=kl.mean().item(), parse=marks.parse_rate(), judge_r=r if r == r else 0.)


def replies(model, tokenizer, n=4):
    "What the model replies as a judge, word by word."
    items = answers(n, seed=6)
    rows = generate_replies(model, tokenizer, [judge_prompt(*item) for item in items],
                            JudgeConfig(n_votes=1), seeded(3))
    return [row[0] for row in rows]


def iteration(name, model, tokenizer, task, config, make_generator):
    "One iteration; with random marks in the place of the model's own if the run says so."
    rng, scorer = random.Random(make_generator("marks").initial_seed()), judge_scorer(model, tokenizer, config.judge)
    if name == "random pairs": scorer = function_scorer(lambda prompt, response: rng.random())
    return self_reward_iteration(model, task, config, scorer, make_generator)


FIRST = {}    # seed of M1 and its judgements -> its measurements


def judgements(name): return 2000 if "few" in name else 12_000        # behind M1


def run(name, seed, shelf, iterations, last=False, shipped=False):
    m1 = 0 if shipped else seed
    n = judgements(name)
    config, (model, tokenizer) = RUNS[name], trained(m1, shelf, n)
    first, model = frozen_copy(model), model.requires_grad_()
    task = SelfRewardTask(tokenizer, [q.text for q in TRAIN],
                          replay_examples(tokenizer, TRAIN, 3000, random.Random(500 + seed)))
    if (m1, n) not in FIRST: FIRST[m1, n] = measure(model, first, tokenizer)
    rows = [dict(run=name, seed=seed, model=1, **FIRST[m1, n])]
    print(rows[-1], flush=True)
    for t in range(1 if name == "online" else iterations):
        began, make_generator = time.process_time(), partial(named_generator, seed, t)
        if name == "online":
            scorer = judge_scorer(first, tokenizer, config.judge)
            train_online_dpo(model, task, config, scorer, make_generator)
            row = dict(prompts=config.n_pairs)
        elif "replay alone" in name:
            train_sft(model, task.replay, config.train_config(config.n_pairs), make_generator("train"))
            row = dict(pairs=0)
        else:
            try: row = iteration(name, model, tokenizer, task, config, make_generator)
            except ValueError as e:                        # no pair left to learn from
                print(e, flush=True)
                break
            row["own_parse"] = row.pop("parse_rate")
        row["cpu_s"] = time.process_time() - began
        measured = {} if last and t + 1 < iterations else measure(model, first, tokenizer)
        rows.append(dict(run=name, seed=seed, model=t + 2, **row, **measured))
        print(rows[-1], flush=True)
    rows[-1]["replies"] = replies(model, tokenizer)
    return rows


def rounded(x):
    if isinstance(x, float): return round(x, 4)
    return {k: rounded(v) for k, v in x.items()} if isinstance(x, dict) else x


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    p.add_argument("--only", choices=RUNS, nargs="+", help="the others are kept as they are in the file")
    p.add_argument("--iterations", type=int, default=3)
    p.add_argument("--judges", type=Path, help="where retrained judges lie or will lie")
    p.add_argument("--last", action="store_true", help="measure M1 and the last model alone; what the "
                   "file holds of the others stays")
    p.add_argument("--shipped", action="store_true", help="every seed starts from the shipped judge")
    p.add_argument("--json", type=Path, default=ROOT / "nbs/results/self_reward.json")
    args = p.parse_args()
    torch.set_num_threads(1)
    names = args.only or list(RUNS)
    old = json.loads(args.json.read_text())["rows"] if args.json.exists() else []
    keys, new = ("gold", "greedy", "cool", "length", "kl", "parse", "judge_r"), []
    for r in old:                       # the shipped M1 is the same in every run: not measured twice
        if r["seed"] == 0 and r["model"] == 1 and "few" not in r["run"] and all(k in r for k in keys):
            FIRST[0, 12_000] = {k: r[k] for k in keys}
    with tempfile.TemporaryDirectory() as temp:
        for name in names:
            for seed in args.seeds: new += run(
                name, seed, args.judges or Path(temp), args.iterations, args.last, args.shipped)
    redone = {(row["run"], row["seed"]) for row in new}
    if args.last:                       # rows of models that were not measured keep what the file holds
        held = {(r["run"], r["seed"], r["model"]): r for r in old}
        new = [held.get((r["run"], r["seed"], r["model"]), {}) | r for r in new]
    rows = [row for row in old if (row["run"], row["seed"]) not in redone] + [rounded(r) for r in new]
    rows.sort(key=lambda row: (list(RUNS).index(row["run"]), row["seed"], row["model"]))
    keys = ("gold", "cool", "greedy", "length", "kl", "parse", "judge_r", "own_parse", "vote_std", "pairs", "cpu_s")
    print(f"{'':10} seed " + "".join(f"{k:>10}" for k in ("model", *keys)))
    for row in rows:
        print(f"{row['run']:10} {row['seed']:4} {row['model']:10}" + "".join(
            f"{row[k]:10.3g}" if k in row else " " * 10 for k in keys))
    args.json.write_text(json.dumps(dict(
        command="python benchmarks/bench_self_reward_seeds.py",
        settings={name: {k: getattr(config, k) for k in (
                  "n_prompts", "n_pairs", "num_generations", "beta", "lr", "batch_size",
                  "replay_weight")} | dict(temperature=config.sampling.temperature, top_p=config.sampling.top_p,
                                                judgements=judgements(name))
                  for name, config in RUNS.items()}, rows=rows), indent=1) + "\n")


if __name__ == "__main__": main()
