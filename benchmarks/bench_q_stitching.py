"""A log on which Q has to combine rows, and the soft backup learned from a log. Rows of Experiments.

    python benchmarks/bench_q_stitching.py                   # 3 seeds, about 9 CPU minutes; resumable

Every seed logs 4,000 answers of the shipped SFT model to training questions (true score 0 to 5) and keeps those of at
most `cap` points: below 5 the best answer is nowhere in the log, its parts are, in different rows. Greedy answers to 48
held-out questions, true score per question, of

    Q            greedy Q after 300 steps of 64 on all kept rows; target "return" is Q fitted to the returns seen, without
                 any Bellman backup (of as many tokens as an answer has)
    copy top     SFT on the kept rows that have `cap` points, 100 steps of 64

and, on the whole log, Q with the soft backup or the hard one (beta .05, no Monte Carlo bound, which a soft value may fall below): 8
answers to each question by the reference times exp(Q / beta), their score, KL to the reference in nats, and
score / 5 - beta KL, which a soft policy maximises. Rows go to nbs/results/stitching.jsonl, from which chapter 16 prints.
"""
import argparse, copy
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
from rlhf_nb.worlds.world_text import TEST

BASE = dict(n_log=N_LOG, cap=4, lr=RECIPE.lr, batch_size=RECIPE.batch_size)


@lru_cache(8)
def start(seed):
    sft, tokenizer = load_bundled("sft")
    sft = frozen_copy(sft)
    return sft, tokenizer, *logged(sft, tokenizer, seed)


def judged(policy, tokenizer, sft, temperature):
    asked = [q for q in TEST for _ in range(8 if temperature else 1)]
    seqs = answers(policy, tokenizer, asked, SamplingParams(temperature=temperature), 1)
    score = gold_rewards(tokenizer, asked, seqs).view(len(TEST), -1).mean(1)
    found = dict(score=score.tolist(), length=seqs.response_mask.sum(1).float().mean().item())
    if not temperature: return found
    def said(model, x): return token_logprobs(
        model(x.ids, x.attention_mask).logits, x.ids).masked_fill(~x.response_mask, 0.).sum(1)
    with torch.no_grad(): kl = torch.cat([said(policy, x) - said(sft, x) for x in (seqs[i:i + 64] for i in range(0, len(seqs), 64))])
    kl = kl.view(len(TEST), -1).mean(1)
    return found | dict(kl=kl.tolist(), objective=(score / 5 - .05 * kl).tolist())


def by_copying(s, seed):
    sft, tokenizer, seqs, gold = start(seed)
    seqs, gold = seqs[gold <= s["cap"]], gold[gold <= s["cap"]]
    top = gold == s["cap"]
    model = copy.deepcopy(sft).requires_grad_()
    train_sft(model, seqs[top], IMITATE, seeded(seed))
    return judged(model.eval(), tokenizer, sft, 0.) | dict(n_rows=len(seqs[top]))


def by_q(s, seed):
    sft, tokenizer, seqs, gold = start(seed)
    seqs, gold = seqs[gold <= s["cap"]], gold[gold <= s["cap"]]
    config = QConfig(mc_bound=s["mc_bound"], beta=s["beta"], n_step=128 if s["target"] == "return" else 1)
    nets = QNets(q_network(sft), [tokenizer.pad_token_id], sft if s["beta"] else None)
    train_q(nets, make_episodes(seqs, gold / 5, tokenizer.eos_token_id), RECIPE, config, seeded(seed))
    if s["policy"] == "greedy": policy = QPolicy(nets, 0.)
    else: policy = QPolicy(nets, .05, ref=sft)
    return judged(policy, tokenizer, sft, float(s["policy"] != "greedy")) | dict(n_rows=len(seqs))


def experiments(home):
    q = Experiment("Q", by_q, BASE | dict(n_steps=RECIPE.n_steps, policy="greedy", mc_bound=True, beta=0., target="bellman"), home)
    sft = Experiment("copy", by_copying, BASE | dict(n_steps=IMITATE.n_steps, rows="top"), home)
    for cap in 4, 5, 3: yield from (q.but(cap=cap), sft.but(cap=cap))
    for cap in 4, 3: yield q.but(cap=cap, target="return")
    for beta in .05, 0.: yield q.but(cap=5, mc_bound=False, beta=beta, policy="reference x exp(Q/.05)")


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("--seeds", type=int, nargs="+", default=range(20, 23))
    args.add_argument("--home", type=Path, default=Path(__file__).parents[1]/"nbs/results/stitching.jsonl")
    args = args.parse_args()
    torch.set_num_threads(1)
    for x in experiments(args.home):
        for seed in args.seeds:
            row, = x.over([seed])
            means = {k: round(sum(v) / len(v), 3) for k, v in row["found"].items() if isinstance(v, list)}
            print(f"seed {seed} {x.name:6} {x.settings} {means}", flush=True)


if __name__ == "__main__": main()
