"""DPO's relatives on the embedded world, where the share of wrong labels is known; displacement; a moving reference.

    nice -n 5 python benchmarks/bench_dpo_family.py             # three seeds, about 20 CPU minutes
    python benchmarks/bench_dpo_family.py --seeds 1             # one seed
    python benchmarks/bench_dpo_family.py --only moving         # one part
    python benchmarks/bench_dpo_family.py --more                # the whole family on the annotator's labels, too

Every run starts from the shipped SFT model and takes one pass over 2048 pairs, 64 at a time, at learning rate 1e-3;
runs of one part differ in the loss alone. Parts:
  family    pairs of the model's own answers with the annotator's labels
  flipped   the same pairs, and .3 of the labels turned round at random
  near      the chosen answer is a careful writer's, the rejected one the same with one fact made false
  moving    part family with the reference replaced by the policy every k steps, measured on the way
  round     after part family's DPO a second round: 2048 pairs more, of its own answers or again of the SFT model's;
            in both the reference of the round is the policy at its start
Seeds change pairs, labels and order. 48 held-out questions, 8 answers each at temperature 1, and one greedy answer
each; changes of log-probs on 256 held-out pairs of the same kind. Rows are added to nbs/results/dpo_family.json as
they are made, so that a run that was stopped goes on.
"""
import argparse
import json
import random
import time
from functools import partial
from pathlib import Path
import torch
from bench_dpo_seeds import BATCH, LR, measure, seeded
from rlhf_nb.dpo import PairsWithRef, dpo_loss, make_pair_loss, pair_logprobs, precompute_ref_logprobs, sequence_logprobs
from rlhf_nb.trainers.dpo_tools import (cdpo_loss, hinge_loss, ipo_loss, kto_baseline, kto_loss,
                               make_reference_free_loss, orpo_loss, robust_dpo_loss, simpo_loss)
from rlhf_nb.base.learning import TrainConfig, evaluate_pairs, fit, make_trainer, train_step
from rlhf_nb.base.models import frozen_copy, load_bundled
from rlhf_nb.trainers.reward_tools import sample_pairs
from rlhf_nb.base.batches import PreferencePairs, concat_seqs
from rlhf_nb.tokens import make_seqs
from rlhf_nb.world import gold_score
from rlhf_nb.worlds.world_text import FACTS, TEST, TRAIN, VALUES, demonstrate, prompt_ids

N, FLIP = 2048, .3
ORDER = [      # the first rows first: a run that is stopped early has seeds of those
    [("flipped", "DPO"), ("flipped", "cDPO"), ("flipped", "robust"), ("family", "DPO"), ("family", "DPO per token, beta 2")],
    [("moving", 0), ("moving", 1)], [("near", "DPO"), ("near", "DPO + NLL"), ("near", "NLL alone")],
    [("family", "R-DPO .01"), ("family", "R-DPO .03")],
    [("flipped", name) for name in ("hinge", "IPO", "SimPO", "ORPO", "KTO")],
    [("round", "own answers"), ("round", "the SFT model's")]]
MORE = [     # not in the chapter: --more
    [("family", name) for name in ("cDPO", "robust", "hinge", "IPO", "SimPO", "ORPO", "KTO")]]


def nll_loss(model, x):
    "DPO at beta .1 and the negative log-likelihood per token of the chosen answer (Pang et al. 2024)."
    chosen, rejected = pair_logprobs(model, x.pairs)
    tokens = x.pairs.chosen.response_mask.sum(1)
    loss = dpo_loss(chosen, rejected, x.ref_chosen, x.ref_rejected) - chosen / tokens
    return loss.sum(), len(x), {}


def nll_alone(model, x):
    "The control of the above: imitation of the chosen answer, without DPO."
    chosen, _ = pair_logprobs(model, x.pairs)
    return -(chosen / x.pairs.chosen.response_mask.sum(1)).sum(), len(x), {}


def length_loss(model, x, alpha):
    "R-DPO: the gap plus alpha per token by which the chosen answer is longer (Park et al. 2024)."
    chosen, rejected = pair_logprobs(model, x.pairs)
    c, r = [side.response_mask.sum(1) for side in (x.pairs.chosen, x.pairs.rejected)]
    loss = dpo_loss(chosen + alpha / .1 * c, rejected + alpha / .1 * r, x.ref_chosen, x.ref_rejected, beta=.1)
    return loss.sum(), len(x), {}


def without_reference(loss):
    of_pairs = make_reference_free_loss(loss)
    return lambda model, x: of_pairs(model, x.pairs)


def make_kto(ref, pad):
    "Both answers as thumbs; z_0 from each prompt of the batch with the next row's answer."
    def loss_fn(model, x):
        mismatched = []
        for side in (x.pairs.chosen, x.pairs.rejected):
            rows = [(i[a & ~m].tolist(), i[m].tolist()) for i, a, m in zip(side.ids, side.attention_mask, side.response_mask)]
            mismatched.append(make_seqs([p for p, _ in rows], [y for _, y in rows[1:] + rows[:1]], pad))
        both = concat_seqs(mismatched, pad)
        with torch.no_grad(): z = kto_baseline(sequence_logprobs(model, both), sequence_logprobs(ref, both))
        policy, at_ref = torch.cat(pair_logprobs(model, x.pairs)), torch.cat([x.ref_chosen, x.ref_rejected])
        thumbs = torch.arange(len(policy)) < len(x)
        return kto_loss(policy, at_ref, thumbs, z).sum(), len(x), {}
    return loss_fn


def losses(part, ref, pad):
    eps = FLIP if part == "flipped" else .1
    known = {"DPO": make_pair_loss(dpo_loss),
             "cDPO": make_pair_loss(partial(cdpo_loss, label_smoothing=eps)),
             "robust": make_pair_loss(partial(robust_dpo_loss, label_smoothing=eps)),
             "hinge": make_pair_loss(hinge_loss), "IPO": make_pair_loss(ipo_loss)}
    nll = {"DPO": known["DPO"], "DPO + NLL": nll_loss, "NLL alone": nll_alone}
    if part == "near": return nll
    per_token = make_pair_loss(partial(dpo_loss, beta=2.), per_token=True)
    known |= {f"R-DPO {name}": partial(length_loss, alpha=float(name)) for name in (".01", ".03")}
    return {**known, **nll, "DPO per token, beta 2": per_token, "KTO": make_kto(ref, pad),
            "SimPO": without_reference(simpo_loss), "ORPO": without_reference(orpo_loss)}


def written_pairs(tokenizer, questions, n, seed):
    "Chosen: a careful writer's answer. Rejected: the same with its fact made false."
    rng, rows = random.Random(seed), []
    while len(rows) < n:
        for q in rng.choices(questions, k=256):
            text, value = demonstrate(q, rng, 1.), FACTS[q.animal][q.attribute]
            others = sorted(set(VALUES[q.attribute]) - {value})
            other = text.replace(f" {value}", f" {rng.choice(others)}")
            if gold_score(q, other) < gold_score(q, text): rows.append((q, text, other))
    prompts, end = [prompt_ids(tokenizer, q) for q, *_ in rows[:n]], [tokenizer.eos_token_id]
    sides = [[tokenizer.encode(r[k], add_special_tokens=False) + end for r in rows[:n]] for k in (1, 2)]
    return PreferencePairs(*[make_seqs(prompts, side, tokenizer.pad_token_id) for side in sides])


def turned_round(data, share, seed):
    "The same pairs, a share of them with chosen and rejected swapped."
    swap = torch.rand(len(data), generator=seeded(seed)) < share
    both = [torch.where(swap, b, a) for a, b in ((data.ref_chosen, data.ref_rejected), (data.ref_rejected, data.ref_chosen))]
    c, r = data.pairs.chosen, data.pairs.rejected
    joined, n, i = concat_seqs([c, r], 0), len(data), torch.arange(len(data))
    return PairsWithRef(PreferencePairs(joined[torch.where(swap, i + n, i)], joined[torch.where(swap, i, i + n)]), *both)


def train(policy, data, loss_fn, seed):
    trainer = make_trainer(policy, TrainConfig(lr=LR, n_steps=N // BATCH, batch_size=BATCH, micro_batch_size=BATCH))
    policy.eval()
    fit(trainer, data, loss_fn, seeded(seed))
    return trainer


def moving(data, ref, tokenizer, every, seed):
    "Rows of one run whose reference is the policy of the last multiple of `every` steps; 0: it never moves."
    policy, _ = load_bundled("sft")
    trainer = make_trainer(policy, TrainConfig(lr=LR, n_steps=N // BATCH, batch_size=BATCH, micro_batch_size=BATCH))
    policy.eval()
    at, loss_fn = ref, make_pair_loss(dpo_loss)
    order = torch.randperm(len(data), generator=seeded(seed)).split(BATCH)
    for k, rows in enumerate(order):
        if every and k and k % every == 0: at = frozen_copy(policy)
        batch = data[rows]
        row = train_step(trainer, batch if at is ref else precompute_ref_logprobs(at, batch.pairs), loss_fn)
        if k + 1 in (8, 16, 32): yield dict(step=k + 1, loss=row["loss"], **measure(policy, ref, tokenizer))


def second_round(name, data, ref, tokenizer, seed):
    "The policy after a round of DPO on `data` and another one on pairs of its own answers, or of the first reference's."
    loss_fn = make_pair_loss(dpo_loss)
    policy = train(load_bundled("sft")[0], data, loss_fn, seed).model
    start, fresh = frozen_copy(policy), seed + 1000
    pairs, _ = sample_pairs(start if name == "own answers" else ref, tokenizer, TRAIN, N, seeded(fresh), random.Random(fresh))
    return train(policy, precompute_ref_logprobs(start, pairs), loss_fn, fresh).model


def make_part(part, ref, tokenizer, seed):
    "Training pairs and held-out pairs of a part, with the reference's log-probs."
    if part == "near": made = [written_pairs(tokenizer, q, n, s) for q, n, s in (
        (TRAIN, N, seed), (TEST, 256, seed + 500))]
    else: made = [sample_pairs(ref, tokenizer, q, n, seeded(s), random.Random(s))[0] for q, n, s in (
        (TRAIN, N, seed), (TEST, 256, seed + 500))]
    data, held = [precompute_ref_logprobs(ref, x) for x in made]
    if part == "flipped": data = turned_round(data, FLIP, seed)
    return data, held


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("--seeds", type=int, default=3)
    args.add_argument("--first", type=int, default=40)
    args.add_argument("--only", default="", help="one part: family, flipped, near, moving or round")
    args.add_argument("--runs", nargs="+", help="runs by name (default: all)")
    args.add_argument("--more", action="store_true")
    args.add_argument("--json", type=Path, default=Path(__file__).parents[1]/"nbs/results/dpo_family.json")
    args = args.parse_args()
    torch.set_num_threads(1)
    out = json.loads(args.json.read_text()) if args.json.exists() else dict(
        command="python benchmarks/bench_dpo_family.py", settings=dict(pairs=N, batch_size=BATCH, lr=LR, flipped=FLIP), rows=[])
    def add(**row):
        out["rows"].append(row)
        args.json.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")
        print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    def have(**keys): return any(all(r.get(k) == v for k, v in keys.items()) for r in out["rows"])
    ref, tokenizer = load_bundled("sft")
    ref, last = frozen_copy(ref), {}
    seeds = range(args.first, args.first + args.seeds)
    for part, name, seed in [(part, name, seed) for names in ORDER + MORE * args.more for seed in seeds for part, name in names]:
        if args.only not in ("", part) or args.runs and name not in args.runs or have(part=part, run=name, seed=seed): continue
        if last.get("key") != (part, seed): last = dict(key=(part, seed), made=make_part(part, ref, tokenizer, seed))
        data, held = last["made"]
        if part == "moving":
            for row in list(moving(data, ref, tokenizer, name, seed)): add(part=part, run=name, seed=seed, **row)
            continue
        began, policy = time.process_time(), load_bundled("sft")[0]
        if part == "round": policy = second_round(name, data, ref, tokenizer, seed)
        else: train(policy, data, losses(part, ref, tokenizer.pad_token_id)[name], seed)
        seconds = time.process_time() - began
        at = evaluate_pairs(policy, held, make_pair_loss(partial(dpo_loss, beta=1.)))
        add(part=part, run=name, seed=seed, cpu_s=seconds, **measure(policy, ref, tokenizer),
            **measure(policy, ref, tokenizer, True), chosen=at["rewards/chosen"], rejected=at["rewards/rejected"],
            accuracy=at["rewards/accuracies"])


if __name__ == "__main__": main()
