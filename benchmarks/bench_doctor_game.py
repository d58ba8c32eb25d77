"""Sick and healthy runs for the doctor game of chapter 12: real trainings, each with the faults that it is said to have.

    python benchmarks/bench_doctor_game.py            # all runs, about 10 CPU minutes; finished ones are kept
    python benchmarks/bench_doctor_game.py --only shifted eos_masked   # those whose faults hold one of these

One trainer in the manner of RLOO, whole on this page, so that a fault is one line of it: 12 rollouts of 16 questions with
4 answers each, from the shipped SFT model; the reward is a program that marks the answer, in two causes the reward
model. Everything that the player sees is measured in
the run itself: the log is free, the rest has a price. Written to nbs/results/doctor_game.json: causes (what is wrong, how
to fix it, chapter, an issue of a real project), measurements with prices, and runs.
"""
import argparse, copy, json, random
from pathlib import Path
import torch
from rlhf_nb.base.batches import response_text
from rlhf_nb.base.files import atomic_write
from rlhf_nb.base.logprobs import logprobs_and_entropy
from rlhf_nb.base.models import load_bundled
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.base.scores import fit_normalizer, normalize_scores
from rlhf_nb.grpo import clipped_token_loss, leave_one_out
from rlhf_nb.reward import score_seqs
from rlhf_nb.tokens import masked_sum
from rlhf_nb.world import gold_rewards
from rlhf_nb.worlds.world_text import TEST, TRAIN, demonstrations, prompt_ids

OUT = Path(__file__).parents[1]/"nbs/results/doctor_game.json"
N_ROLLOUTS, N_PROMPTS, GROUP, BETA, LR, LENGTH = 12, 16, 4, .1, 1e-3, 40

# key -> what is wrong, how to fix it, chapter, an issue where people met it ("": none was found)
CAUSES = {
    "healthy": ("nothing: this run is healthy", "leave it alone", "12", ""),
    "shifted": ("log-probs are read one position late: each token gets the probability of another place",
                "gather the logits of position t-1 for token t", "02", "https://github.com/wyf3/llm_related/issues/33"),
    "kl_sign": ("the KL is added to the score, so the policy is paid for leaving the reference",
                "subtract beta times the KL", "07", "https://github.com/Unakar/Logic-RL/issues/58"),
    "beta_lost": ("the KL is logged, but no penalty reaches the reward", "pass beta on: score minus beta times KL", "07", ""),
    "broadcast": ("one reward, the group's mean, is given to every answer of a group",
                  "keep a reward for each answer", "09", "https://github.com/huggingface/trl/issues/6533"),
    "wrong_groups": ("answers are compared with answers to other questions", "number the groups in the order of the rows",
                     "09", "https://github.com/StarsfieldAI/R1-V/issues/67"),
    "no_baseline": ("no mean is subtracted: the reward itself is the advantage",
                    "subtract the mean of the group's other answers", "09", ""),
    "reward_sign": ("the reward has the wrong sign", "turn the sign of the reward", "05", ""),
    "shuffled": ("rewards belong to other rows: sorted to be scored, and not put back",
                 "undo the sort after scoring", "08", "https://github.com/huggingface/trl/issues/204"),
    "pad_score": ("the score is read in the last column, which is padding in most rows",
                  "read the score at the last token that is no padding", "05", "https://github.com/huggingface/trl/issues/2778"),
    "prompt_mask": ("the loss counts the prompt's tokens, too", "mask the prompt", "02", ""),
    "eos_masked": ("the loss leaves eos out, so nothing teaches the policy to stop", "count eos as part of the answer", "04",
                   "https://github.com/mlabonne/llm-course/issues/33"),
    "temperature": ("sampled at temperature .5, scored at 1", "score at the temperature of sampling", "08",
                    "https://github.com/huggingface/trl/issues/4159"),
    "stale": ("answers come from a policy that is six rollouts old, without a correction",
              "sample from the present policy, or weight by the ratio", "20", "https://github.com/THUDM/slime/issues/1800"),
    "lr_high": ("the learning rate is thirty times too high", "lower the learning rate", "04", ""),
    "lr_zero": ("the learning rate is next to 0: a slip in the exponent", "raise the learning rate", "04", ""),
    "no_zero_grad": ("gradients of all earlier steps are added up", "zero the gradient after each step", "04",
                     "https://github.com/tenstorrent/tt-blacksmith/pull/711"),
    "ref_moves": ("the reference is the policy itself, not a frozen copy", "freeze a copy of the SFT model before training", "07",
                  "https://github.com/irom-princeton/dppo/issues/47"),
    "length_bonus": ("the reward pays for every token", "take the length out of the reward", "05", ""),
    "fooled": ("the reward model is fooled: it pays for flattery", "stop at the peak of the true score, raise beta, retrain the "
               "reward model on what the policy samples now", "08", "https://github.com/huggingface/trl/issues/6350"),
}
# key -> what is measured, price in points
PRICES = {"mask": ("two answers of the last rollout: which tokens the loss counts", 1),
          "bill": ("four answers of rollout 6: score, KL, and the number that the trainer compares", 1),
          "group": ("the answers to two questions of rollout 6: that number and the advantage", 1),
          "alone": ("six answers scored in their batch, and again one by one", 1),
          "ratio": ("ratios of the policy to the log-probs it learns from, before the first step", 1),
          "surprise": ("mean of -log pi over sampled tokens beside the entropy, at the same places", 1),
          "weights": ("gradient norm and change of the weights, by rollout", 1),
          "distance": ("KL of the last policy to the SFT model, measured again from the two checkpoints", 1),
          "samples": ("four answers to unseen questions after training, with their rewards", 2),
          "truth": ("the true score on unseen questions, before and after", 3)}
RUNS = [(f,) for f in CAUSES for _ in range(4 if f == "healthy" else 2)] + [
    ("eos_masked", "ref_moves"), ("shuffled", "prompt_mask"), ("temperature", "no_baseline"),
    ("length_bonus", "stale"), ("beta_lost", "wrong_groups"), ("lr_zero", "wrong_groups")]


def sick_run(faults, seed): # -> log, measures: all texts
    (policy, tokenizer), (rm, _) = load_bundled("sft"), load_bundled("reward")
    ref, bare = copy.deepcopy(policy), copy.deepcopy(policy)
    normalizer = fit_normalizer(score_seqs(rm, demonstrations(tokenizer, TRAIN, 512, random.Random(0))))
    generator, rng = torch.Generator().manual_seed(seed), random.Random(seed)
    sampling = SamplingParams(LENGTH, temperature=.5 if "temperature" in faults else 1.)
    lr = LR * (30 if "lr_high" in faults else 1e-7 if "lr_zero" in faults else 1)
    optimizer = torch.optim.Adam(policy.requires_grad_().parameters(), lr=lr)
    old_policies, log, seen = [], [], {k: [] for k in PRICES}
    def words(ids): return response_text(tokenizer, ids.tolist())
    def sample(model, questions):
        return generate_many(model, [prompt_ids(tokenizer, q) for q in questions], tokenizer, sampling, generator, 64)
    def states(model, seqs):
        logp, entropy = logprobs_and_entropy(model, seqs)
        if "shifted" not in faults: return logp, entropy
        logits = model(input_ids=seqs.ids, attention_mask=seqs.attention_mask.long()).logits.log_softmax(-1)
        return logits.gather(2, seqs.ids[..., None])[..., 0] * seqs.response_mask, entropy
    def score(seqs, asked):
        if "pad_score" in faults: found = normalize_scores(rm(seqs)[:, -1].detach(), normalizer)
        elif "fooled" in faults: found = normalize_scores(score_seqs(rm, seqs), normalizer)
        else: found = (gold_rewards(tokenizer, asked, seqs) - 2.7) / 1.5
        if "length_bonus" in faults: found = found + .1 * (seqs.response_mask.sum(1) - 20)
        if "shuffled" in faults: found = found[seqs.response_mask.sum(1).argsort(stable=True).argsort(stable=True).flip(0)]
        return -found if "reward_sign" in faults else found
    def flat(): return torch.cat([p.detach().flatten() for p in policy.parameters()])
    def truth(model): # always at temperature 1, by one seed
        asked = [q for q in TEST for _ in range(2)]
        seqs = generate_many(model, [prompt_ids(tokenizer, q) for q in asked], tokenizer, SamplingParams(LENGTH),
                             torch.Generator().manual_seed(1), 96)[0]
        gold = gold_rewards(tokenizer, asked, seqs)
        return f"{gold.mean():.2f} +- {gold.std() / len(gold)**.5:.2f}"
    seen["truth"].append(f"before {truth(policy.eval())}")
    for i in range(1, N_ROLLOUTS + 1):
        questions = [q for q in rng.choices(TRAIN, k=N_PROMPTS) for _ in range(GROUP)]
        old_policies = [*old_policies, copy.deepcopy(policy)][-7:]
        sampler = old_policies[0] if "stale" in faults else policy
        seqs, sampled_logp = sample(sampler, questions)
        response = seqs.response_mask
        mask = response & (seqs.ids != tokenizer.eos_token_id) if "eos_masked" in faults else response
        if "prompt_mask" in faults: mask = seqs.attention_mask.clone().index_fill_(1, torch.tensor([0]), False)
        with torch.no_grad():
            old, entropy = states(policy, seqs)
            ref_logp = old if "ref_moves" in faults else states(ref, seqs)[0]
            kept = sampled_logp if {"temperature", "stale"} & {*faults} else old   # what the ratio compares with
            raw, kl = score(seqs, questions), ((old - ref_logp) * response).sum(1)
        weight = 0. if "beta_lost" in faults else -BETA if "kl_sign" in faults else BETA
        told = raw - weight * kl
        group = torch.arange(N_PROMPTS).repeat_interleave(GROUP)
        if "wrong_groups" in faults: group = torch.arange(N_PROMPTS).repeat(GROUP)
        if "broadcast" in faults: told = told.view(-1, GROUP).mean(1).repeat_interleave(GROUP)
        advantage = told if "no_baseline" in faults else leave_one_out(told, group)
        before, norms, clipped = flat(), [], []
        for step in range(2):
            full = whole_logp(policy, seqs) if "prompt_mask" in faults else states(policy, seqs)[0]
            base = whole_logp(ref, seqs) if "prompt_mask" in faults and not step else None
            if base is not None: kept = full.detach()
            ratio = ((full - kept) * mask).exp()
            loss = masked_sum(clipped_token_loss(ratio, advantage[:, None].expand_as(full), .2, .2), mask).sum() / mask.sum()
            if not step: first = ratio.detach()[mask]
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.).item())
            optimizer.step()
            if "no_zero_grad" not in faults: optimizer.zero_grad()
            clipped.append(((ratio - 1).abs() > .2)[mask].float().mean().item())
        ended = ((seqs.ids == tokenizer.eos_token_id) & response).any(1)
        log.append({"reward": raw.mean().item(), "reward std": raw.std().item(), "KL": kl.mean().item(),
                    "entropy": (entropy * response).sum().item() / response.sum().item(),
                    "length": response.sum(1).float().mean().item(), "ended": ended.float().mean().item(),
                    "beyond clip": sum(clipped) / 2})
        if i in (1, 4, 8, 12):
            seen["ratio"].append(f"rollout {i:2}: mean {first.mean():.3f}, {((first - 1).abs() > .2).float().mean():.0%} "
                                 f"of tokens beyond 1 +- .2")
            n = response.sum()
            seen["surprise"].append(f"rollout {i:2}: -log pi {-(old * response).sum() / n:.2f}, entropy "
                                    f"{(entropy * response).sum() / n:.2f} nats a token")
            seen["weights"].append(f"rollout {i:2}: gradient norm {norms[0]:.3f}, weights changed by "
                                   f"{(flat() - before).norm() / before.norm():.1e} of their norm")
        if i == 6:
            seen["bill"] += [f"score {raw[j]:+.2f}   KL {kl[j]:+.2f}   compared {told[j]:+.2f}" for j in (0, 5, 10, 15)]
            for q in (0, 1):
                rows = range(q * GROUP, (q + 1) * GROUP)
                seen["group"] += [questions[q * GROUP].text] + [
                    f"   compared {told[j]:+.2f}   advantage {advantage[j]:+.2f}" for j in rows]
            batch = seqs[torch.arange(6)]
            whole = score(batch, questions[:6])
            single = torch.cat([score(seqs[[j]].trim(), [questions[j]]) for j in range(6)])
            seen["alone"] += [f"in the batch {a:+.2f}   alone {b:+.2f}" for a, b in zip(whole, single)]
    for j in (0, 1):
        row = seqs[[j]].trim()
        shown = [tokenizer.convert_ids_to_tokens(t) for t in row.ids[0].tolist()]
        counted = mask[j][seqs.attention_mask[j]].tolist()
        seen["mask"].append(" ".join(f"[{t}]" if c else t for t, c in zip(shown, counted)) + "     [counted]")
    asked = [q for q in TEST for _ in range(2)]
    seqs, _ = sample(policy.eval(), asked)
    with torch.no_grad():
        logp, base = (logprobs_and_entropy(m, seqs)[0] for m in (policy, bare))
        seen["distance"].append(f"{((logp - base) * seqs.response_mask).sum(1).mean():.2f} nats per answer")
        reward = score(seqs, asked)
    for j in (0, 2, 4, 6):
        seen["samples"].append(f"{asked[j].text} -> {words(seqs.ids[j][seqs.response_mask[j]])} (reward {reward[j]:+.2f})")
    seen["truth"].append(f"after {truth(policy)}")
    return log, {k: "\n".join(x) for k, x in seen.items()}


def whole_logp(model, seqs): # of every token that is no padding, the prompt's included
    logits = model(input_ids=seqs.ids, attention_mask=seqs.attention_mask.long()).logits[:, :-1].log_softmax(-1)
    logp = logits.gather(2, seqs.ids[:, 1:, None])[..., 0]
    return torch.nn.functional.pad(logp, (1, 0)) * seqs.attention_mask


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--only", nargs="+", metavar="FAULT", help="run these anew")
    p.add_argument("-o", "--out", type=Path, default=OUT)
    args = p.parse_args()
    torch.set_num_threads(1)
    kept = {} if not args.out.exists() else {(tuple(r["faults"]), r["seed"]): r for r in json.loads(args.out.read_text())["runs"]}
    runs, n = [], {}
    for faults in RUNS:
        seed = n[faults] = n.get(faults, 99) + 1
        row = kept.get((faults, seed))
        if row is None or args.only and {*faults} & {*args.only}:
            log, seen = sick_run(faults, seed)
            row = dict(faults=list(faults), seed=seed, log=[{k: round(x, 3) for k, x in r.items()} for r in log], seen=seen)
            print(faults, seed, log[-1], seen["truth"].replace("\n", ", "), flush=True)
        runs.append(row)
        atomic_write(args.out, json.dumps(dict(
            causes={k: dict(zip(("wrong", "fix", "chapter", "issue"), x)) for k, x in CAUSES.items()},
            prices={k: dict(zip(("what", "price"), x)) for k, x in PRICES.items()}, runs=runs), indent=1) + "\n")


if __name__ == "__main__": main()
