"""A log on which Q has to combine rows, and the soft backup learned from a log. Rows of Experiments.

    python benchmarks/bench_q_stitching.py                   # 3 seeds, about 6 CPU minutes; resumable
    python benchmarks/bench_q_stitching.py --backups         # the two backups: search and 5 seeds, about 12 CPU minutes

Every seed logs 4,000 answers of the shipped SFT model to training questions (true score 0 to 5) and keeps those of at
most `cap` points: below 5 the best answer is nowhere in the log, its parts are, in different rows. Greedy answers to 48
held-out questions, true score per question, of

    Q            greedy Q after 300 steps of 64 on all kept rows; target "return" is Q fitted to the returns seen, without
                 any Bellman backup (of as many tokens as an answer has)
    copy top     SFT on the kept rows that have `cap` points, 100 steps of 64, and 300
    start        the model that wrote the log, not trained at all

With --backups: on the whole log, Q with the soft backup or the hard one (beta .05, no Monte Carlo bound, which a soft
value may fall below): 8 answers to each of 48 questions by the reference times exp(Q / beta), their score, KL to the
reference in nats, and score / 5 - beta KL, which a soft policy maximises. Each backup is run at every rate of RATES (of
the target network) on seed 0 and training questions; the best rate of each is then run on five other seeds and the
held-out questions. Rows go to nbs/results/stitching.jsonl, from which chapter 16 prints.
"""
import argparse, copy, random, statistics
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
import torch
from bench_qlearning_seeds import IMITATE, N_LOG, RECIPE, answers, logged, seeded
from rlhf_nb.base.models import frozen_copy, load_bundled
from rlhf_nb.base.q_networks import QConfig, QNets, make_episodes, q_network
from rlhf_nb.base.sampling import SamplingParams
from rlhf_nb.run.evidence import Experiment
from rlhf_nb.sft import train_sft
from rlhf_nb.tokens import token_logprobs
from rlhf_nb.trainers.q_trainer import QPolicy, train_q
from rlhf_nb.world import gold_rewards
from rlhf_nb.worlds.world_text import TEST, TRAIN

BASE = dict(n_log=N_LOG, cap=4, lr=RECIPE.lr, batch_size=RECIPE.batch_size)
QUESTIONS = dict(held_out=TEST, training=random.Random(0).sample(TRAIN, len(TEST)))
RATES = .02, .05, .1, .3


@lru_cache(8)
def start(seed):
    sft, tokenizer = load_bundled("sft")
    sft = frozen_copy(sft)
    return sft, tokenizer, *logged(sft, tokenizer, seed)


def judged(policy, tokenizer, sft, temperature, questions=TEST):
    asked = [q for q in questions for _ in range(8 if temperature else 1)]
    seqs = answers(policy, tokenizer, asked, SamplingParams(temperature=temperature), 1)
    score = gold_rewards(tokenizer, asked, seqs).view(len(questions), -1).mean(1)
    found = dict(score=score.tolist(), length=seqs.response_mask.sum(1).float().mean().item())
    if not temperature: return found
    def said(model, x): return token_logprobs(
        model(x.ids, x.attention_mask).logits, x.ids).masked_fill(~x.response_mask, 0.).sum(1)
    with torch.no_grad(): kl = torch.cat([said(policy, x) - said(sft, x) for x in (seqs[i:i + 64] for i in range(0, len(seqs), 64))])
    kl = kl.view(len(questions), -1).mean(1)
    return found | dict(kl=kl.tolist(), objective=(score / 5 - .05 * kl).tolist())


def untrained(s, seed):
    sft, tokenizer, *_ = start(seed)
    return judged(sft, tokenizer, sft, 0.)


def by_copying(s, seed):
    sft, tokenizer, seqs, gold = start(seed)
    seqs, gold = seqs[gold <= s["cap"]], gold[gold <= s["cap"]]
    top = gold == s["cap"]
    model = copy.deepcopy(sft).requires_grad_()
    train_sft(model, seqs[top], replace(IMITATE, n_steps=s["n_steps"]), seeded(seed))
    return judged(model.eval(), tokenizer, sft, 0.) | dict(n_rows=len(seqs[top]))


def learned(seed, cap, config):
    sft, tokenizer, seqs, gold = start(seed)
    seqs, gold = seqs[gold <= cap], gold[gold <= cap]
    nets = QNets(q_network(sft), [tokenizer.pad_token_id], sft if config.beta else None)
    train_q(nets, make_episodes(seqs, gold / 5, tokenizer.eos_token_id), RECIPE, config, seeded(seed))
    return nets, tokenizer, sft, len(seqs)


def by_q(s, seed):
    config = QConfig(mc_bound=s["mc_bound"], beta=s["beta"], n_step=128 if s["target"] == "return" else 1)
    nets, tokenizer, sft, n = learned(seed, s["cap"], config)
    return judged(QPolicy(nets, 0.), tokenizer, sft, 0.) | dict(n_rows=n)


def by_backup(s, seed):
    config = QConfig(mc_bound=False, beta=s["beta"], target_update_rate=s["target_update_rate"])
    nets, tokenizer, sft, _ = learned(seed, s["cap"], config)
    return judged(QPolicy(nets, .05, ref=sft), tokenizer, sft, 1., QUESTIONS[s["questions"]])


def experiments(home):
    q = Experiment("Q", by_q, BASE | dict(n_steps=RECIPE.n_steps, policy="greedy", mc_bound=True, beta=0., target="bellman"), home)
    sft = Experiment("copy", by_copying, BASE | dict(n_steps=IMITATE.n_steps, rows="top"), home)
    for cap in 4, 5, 3: yield from (q.but(cap=cap), sft.but(cap=cap))
    for cap in 4, 3: yield q.but(cap=cap, target="return")
    for cap in 4, 5, 3: yield sft.but(cap=cap, n_steps=q.settings["n_steps"])


def start_row(home): return Experiment("start", untrained, dict(n_log=N_LOG), home)    # the same for each seed


def told(x, seeds):
    for seed in seeds:
        row, = x.over([seed])
        means = {k: round(statistics.mean(v), 3) for k, v in row["found"].items() if isinstance(v, list)}
        print(f"seed {seed} {x.name:6} {x.settings} {means}", flush=True)
    return means


def backups(home, seeds):
    base = BASE | dict(cap=5, n_steps=RECIPE.n_steps, policy="reference x exp(Q/.05)", mc_bound=False, beta=0.,
                       target_update_rate=.02, questions="training")
    x = Experiment("backup", by_backup, base, home)
    for beta in .05, 0.:
        best = max(RATES, key=lambda rate: told(x.but(beta=beta, target_update_rate=rate), [0])["objective"])
        told(x.but(beta=beta, target_update_rate=best, questions="held_out"), seeds)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("--seeds", type=int, nargs="+")
    args.add_argument("--backups", action="store_true")
    args.add_argument("--home", type=Path, default=Path(__file__).parents[1]/"nbs/results/stitching.jsonl")
    args = args.parse_args()
    torch.set_num_threads(1)
    if args.backups: backups(args.home, args.seeds or range(20, 25))
    else:
        for x in experiments(args.home): told(x, args.seeds or range(20, 23))
        told(start_row(args.home), (args.seeds or range(20, 23))[:1])


if __name__ == "__main__": main()
