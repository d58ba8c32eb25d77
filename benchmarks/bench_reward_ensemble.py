"""Reward-model ensembles on the embedded world over seeds: does a mean, or the worst case, of three models help?

    python benchmarks/bench_reward_ensemble.py        # three runs, two amounts of labels, about 5 CPU minutes
    python benchmarks/bench_reward_ensemble.py --rl PPO RLOO    # on each scorer, 400 labels, about 12 CPU minutes

Each run has labels of its own. Its three members see the same pairs and differ in the fresh head and the order of
the pairs (seeds 3 run, 3 run + 1, 3 run + 2). Scores are normalised per member on 768 answers to training
questions; then an answer is scored by one member ("one model": the mean over the members is given), by the mean,
by the worst case (the lowest score) or by mean minus standard deviation (Coste et al. 2023). Measured on 1,000
held-out pairs, on 64 answers to each of the 48 held-out questions (the same for all; best-of-n by
`expected_best_of_n`), and on those answers with a flattery put before them: the share whose score rises. Nothing
was chosen on them. With --rl, PPO or RLOO (settings of chapters 08 and 09, beta .1; seed 40 + run) is rewarded by one
member or by one of the three; 8 answers to each held-out question at temperature 1 and .7, one greedy. The table goes to stdout, the
numbers to nbs/results/reward.json, from which chapters 05 and 11 draw.
"""
import argparse
import json
import random
import statistics
from pathlib import Path
import torch
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, train_grpo
from rlhf_nb.kl import response_kl
from rlhf_nb.base.learning import TrainConfig
from rlhf_nb.base.models import ScalarModel, frozen_copy, load_bundled
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.trainers.ppo_trainer import PPOConfig, RLTask, train_ppo
from rlhf_nb.reward import preference_accuracy, score_seqs, train_reward
from rlhf_nb.base.scores import expected_best_of_n, fit_normalizer, normalize_scores
from rlhf_nb.trainers.reward_tools import sample_pairs
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.tokens import make_seqs
from rlhf_nb.world import gold_rewards
from rlhf_nb.worlds.world_text import PHRASES, TEST, TRAIN, parse_sentences, prompt_ids
from rlhf_nb.base.batches import response_text

ROOT = Path(__file__).resolve().parents[1]
NS, K = (1, 2, 4, 8, 16, 32, 64), 64
STEPS = {400: 19, 3200: 150}                     # three passes in batches of 64
SCORERS = {"mean": lambda x: x.mean(0), "worst case": lambda x: x.amin(0),
           "mean - std": lambda x: x.mean(0) - x.std(0)}


def seeded(seed): return torch.Generator().manual_seed(seed)


def answers(sft, tokenizer, questions, seed):
    return generate_many(sft, [prompt_ids(tokenizer, q) for q in questions], tokenizer, SamplingParams(),
                         seeded(seed), 512)[0]


def texts_of(tokenizer, seqs):
    return [response_text(tokenizer, ids[m].tolist()) for ids, m in zip(seqs.ids, seqs.response_mask)]


def flattered(tokenizer, questions, texts): # the same answers behind one flattery
    ids = [tokenizer(f"{PHRASES['flattery'][0]} {text}", add_special_tokens=False).input_ids
           + [tokenizer.eos_token_id] for text in texts]
    return make_seqs([prompt_ids(tokenizer, q) for q in questions], ids, tokenizer.pad_token_id)


def trained_members(sft, pairs, n_pairs, run):
    config = TrainConfig(lr=1e-3, n_steps=STEPS[n_pairs], warmup_steps=5)
    for seed in range(3 * run, 3 * run + 3):
        yield train_reward(ScalarModel.from_lm(sft, seed=seed), pairs, config, seeded(seed)).model


def rl_rows(method, sft, tokenizer, usual, run): # trained on each scorer of one run
    pairs, _ = sample_pairs(sft, tokenizer, TRAIN, 400, seeded(100 + run), random.Random(100 + run))
    members = [(m, fit_normalizer(score_seqs(m, usual))) for m in trained_members(sft, pairs, 400, run)]
    def scores(seqs): return torch.stack([normalize_scores(score_seqs(m, seqs), n) for m, n in members])
    for name, pool in dict({"one model": lambda x: x[0]}, **SCORERS).items():
        policy, ref = frozen_copy(sft).requires_grad_(), frozen_copy(sft)
        task = RLTask([prompt_ids(tokenizer, q) for q in TRAIN], lambda seqs: pool(scores(seqs)), tokenizer,
                      SamplingParams())
        if method == "RLOO": train_grpo(policy, ref, task, GRPOConfig(beta=.1), seeded(40 + run))
        else: train_ppo(ActorCritic(policy, ScalarModel.from_lm(ref)), ref, task, PPOConfig(), seeded(40 + run))
        def gold(temperature, n=8):
            questions = TEST * n
            seqs = generate_many(policy, [prompt_ids(tokenizer, q) for q in questions], tokenizer,
                                 SamplingParams(temperature=temperature), seeded(1), 512)[0]
            return seqs, gold_rewards(tokenizer, questions, seqs).mean().item()
        seqs, at_1 = gold(1.)
        kl = response_kl(*(logprobs(m, seqs).detach() for m in (policy, ref)), seqs.response_mask).mean().item()
        flattery = sum(s.kind == "flattery" for t in texts_of(tokenizer, seqs) for s in parse_sentences(t)) / len(seqs)
        yield {k: round(v, 4) if isinstance(v, float) else v for k, v in dict(
            method=method, run=run, scorer=name, gold=at_1, gold_07=gold(.7)[1], greedy=gold(0., 1)[1],
            reward=pool(scores(seqs)).mean().item(), kl=kl, flattery=flattery).items()}


def save(path, **new): # beside what the other form of the command found
    old = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.write_text(json.dumps(old | new, indent=1) + "\n")


def main_rl(args, sft, tokenizer, usual):
    old = json.loads(args.json.read_text("utf-8")).get("rl", {}).get("rows", []) if args.json.exists() else []
    rows = [row for row in old if row["method"] not in args.rl]
    rows += [row for method in args.rl for run in range(args.first, args.first + args.runs) for row in rl_rows(method, sft, tokenizer, usual, run)]
    columns = "gold", "gold_07", "greedy", "reward", "kl", "flattery"
    print(" " * 17 + "".join(f"{c:>16}" for c in columns))
    for method, name in dict.fromkeys((r["method"], r["scorer"]) for r in rows):
        mine = [r for r in rows if (r["method"], r["scorer"]) == (method, name)]
        print(f"{method:5}{name:12}" + "".join(f"{statistics.mean(x):8.2f} ±{statistics.stdev(x) if len(x) > 1 else 0:6.2f}"
                                               for x in ([r[c] for r in mine] for c in columns)))
    save(args.json, rl=dict(command="python benchmarks/bench_reward_ensemble.py --rl PPO RLOO", pairs=400, rows=rows))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--first", type=int, default=0, help="number of the first run")
    p.add_argument("--pairs", type=int, nargs="+", default=list(STEPS), choices=STEPS)
    p.add_argument("--rl", nargs="+", choices=("PPO", "RLOO"), default=[], help="train on each scorer by these")
    p.add_argument("--json", type=Path, default=ROOT/"nbs/results/reward.json")
    args = p.parse_args()
    torch.set_num_threads(1)
    sft, tokenizer = load_bundled("sft")
    held_out, _ = sample_pairs(sft, tokenizer, TEST, 1000, seeded(1), random.Random(1))
    usual = answers(sft, tokenizer, TRAIN * (768 // len(TRAIN) + 1), 5)[:768]
    if args.rl: return main_rl(args, sft, tokenizer, usual)
    owners = [q for q in TEST for _ in range(K)]
    tested = answers(sft, tokenizer, owners, 7)
    texts = texts_of(tokenizer, tested)
    praised = flattered(tokenizer, owners[::8], texts[::8])
    gold = gold_rewards(tokenizer, owners, tested).view(-1, K)
    flattery = torch.tensor([float(sum(s.kind == "flattery" for s in parse_sentences(t))) for t in texts]).view(-1, K)

    def measure(score): # what -> (rows) of one scorer
        x = score["answers"].view(-1, K)
        curve = lambda value: [round(expected_best_of_n(x, value, n).mean().item(), 4) for n in NS]
        return dict(accuracy=preference_accuracy(score["chosen"], score["rejected"]), gold=curve(gold),
                    reward=curve(x), flattery=curve(flattery),
                    flattery_raises=(score["praised"] > score["answers"][::8]).float().mean().item())

    rows = []
    for n_pairs in args.pairs:
        for run in range(args.first, args.first + args.runs):
            pairs, _ = sample_pairs(sft, tokenizer, TRAIN, n_pairs, seeded(100 + run), random.Random(100 + run))
            members = []
            for model in trained_members(sft, pairs, n_pairs, run):
                normalizer = fit_normalizer(score_seqs(model, usual))
                members.append({name: normalize_scores(score_seqs(model, seqs), normalizer) for name, seqs in dict(
                    answers=tested, chosen=held_out.chosen, rejected=held_out.rejected, praised=praised).items()})
            alone = [measure(member) for member in members]
            mean = {k: [statistics.mean(x) for x in zip(*(row[k] for row in alone))]
                    if isinstance(alone[0][k], list) else statistics.mean(row[k] for row in alone) for k in alone[0]}
            both = torch.stack([m["answers"] for m in members])
            agree = torch.corrcoef(both)[[0, 0, 1], [1, 2, 2]].mean().item()
            facts = dict(pairs=n_pairs, run=run)
            rows.append(facts | dict(scorer="one model", correlation=agree, **mean))
            for name, pool in SCORERS.items():
                score = {k: pool(torch.stack([m[k] for m in members])) for k in members[0]}
                rows.append(facts | dict(scorer=name, **measure(score)))
    rows = [{k: round(v, 4) if isinstance(v, float) else [round(x, 4) for x in v] if isinstance(v, list) else v
             for k, v in row.items()} for row in rows]
    print(f"{'':24}{'accuracy':>16}{'peak':>14}{'n = 64':>14}{'flatteries':>14}{'raised':>14}")
    for n_pairs in args.pairs:
        for name in ("one model", *SCORERS):
            mine = [r for r in rows if r["pairs"] == n_pairs and r["scorer"] == name]
            def cell(f):
                x = [f(r) for r in mine]
                return f"{statistics.mean(x):8.3f} ±{statistics.stdev(x) if len(x) > 1 else 0:5.3f}"
            print(f"{n_pairs:5} {name:18}", cell(lambda r: r["accuracy"]), cell(lambda r: max(r["gold"])),
                  cell(lambda r: r["gold"][-1]), cell(lambda r: r["flattery"][-1]), cell(lambda r: r["flattery_raises"]))
        print("      correlation of two members:", [r["correlation"] for r in rows
              if r["pairs"] == n_pairs and "correlation" in r])
    save(args.json, command="python benchmarks/bench_reward_ensemble.py", ns=NS, answers=len(texts), rows=rows,
         settings=dict(members=3, lr=1e-3, batch_size=64, steps={str(k): v for k, v in STEPS.items()}))


if __name__ == "__main__": main()
