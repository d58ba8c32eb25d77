"""Entropy, pass@k and true score along training: a law, a clip and alarms, over seeds.

    python benchmarks/bench_entropy.py                       # both parts, about ten CPU minutes
    python benchmarks/bench_entropy.py --part law --seeds 1

law: RLOO on sums, right or wrong is the reward, from a model that imitated a log in which 40 % of the writers carry; 60 rollouts
of 128 answers, no KL, eight steps, so that the clip has work. The runs differ in the upper clip range alone: .2, .28
(clip-higher), 1e6 (none). Before the first rollout and after every fourth: 16 answers to each of 180 held-out sums, their
entropy in nats per token, pass@1 and, of sums with a carry, pass@16; and the shares of clipped tokens of each rollout.

alarms: RLOO on the world, 40 rollouts of 64 answers, two steps. The reward is the shipped reward model's with beta 0, .1 or .3,
or the true score with beta 0, which cannot be over-optimised. Of each rollout, what a log has (reward and its standard deviation,
KL, entropy, length), and the true score of 48 of its answers and, apart, of the 16 others: a spot check.

Each row has its settings, seed and CPU seconds. Numbers go to nbs/results/entropy.json.
"""
import argparse, copy, json, time
from pathlib import Path
import torch
from bench_grpo_seeds import CARRY, HELD, PROMPT, SEEN, SUMS, TOKENIZER, imitate, sample, seeded, solved
from rlhf_nb.base.logprobs import logprobs_and_entropy
from rlhf_nb.base.models import frozen_copy, load_bundled
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.base.scores import fit_normalizer
from rlhf_nb.grpo import pass_at_k
from rlhf_nb.reward import score_seqs
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, train_grpo
from rlhf_nb.trainers.ppo_trainer import RLTask
from rlhf_nb.trainers.reward_tools import make_reward_fn
from rlhf_nb.world import gold_rewards
from rlhf_nb.worlds.world_text import TRAIN, prompt_ids

OUT = Path(__file__).parents[1]/"nbs/results/entropy.json"
CLIPS = {"clip .2": .2, "clip-higher .28": .28, "no clip above": 1e6}
REWARDS = {"reward model, beta 0": ("model", 0.), "reward model, beta .1": ("model", .1),
           "reward model, beta .3": ("model", .3), "true score, beta 0": ("true", 0.)}
KEPT = dict(reward="reward", spread="reward_std", kl="objective/kl", entropy="entropy", length="completions/mean_length")


def columns(rows): return {k: [r[k] for r in rows] for k in rows[0]}


def look(policy): # at the held-out sums
    seqs, right = sample(policy, HELD, 16)
    with torch.no_grad(): _, entropy = logprobs_and_entropy(policy, seqs)
    at = pass_at_k(right.sum(1), 16, 16)[CARRY]
    return dict(entropy=entropy[seqs.response_mask].mean().item(), pass_1=right.mean().item(), pass_16_carry=at.mean().item())


def law(seed, clips=CLIPS):
    start, _ = imitate(.4, seed)
    task = RLTask([PROMPT[s] for s in SEEN], solved, TOKENIZER, SamplingParams(5))
    for name, high in [x for x in CLIPS.items() if x[0] in clips]:
        policy, more = copy.deepcopy(start), dict(num_iterations=8, epsilon_high=high)
        seen, clipped = [look(policy)], []
        def callback(row, roll):
            clipped.append({end: row.get(f"clip_ratio/{end}_mean", 0.) for end in ("low", "high")})
            if row["iteration"] % 4 == 0: seen.append(look(policy))
        train_grpo(policy.requires_grad_(), frozen_copy(policy), task, GRPOConfig(**SUMS | more), seeded(seed), callback=callback)
        yield dict(run=name, settings=SUMS | more, **columns(seen), clip=columns(clipped))


def alarms(seed):
    (sft, tokenizer), (rm, _) = load_bundled("sft"), load_bundled("reward")
    prompts = [prompt_ids(tokenizer, q) for q in TRAIN]
    asked = {tuple(p): q for p, q in zip(prompts, TRAIN)}
    before, _ = generate_many(sft, prompts[:256], tokenizer, SamplingParams(), seeded(0), 128)
    def true_score(seqs):
        questions = [asked[tuple(ids[p].tolist())] for ids, p in zip(seqs.ids, seqs.attention_mask & ~seqs.response_mask)]
        return gold_rewards(tokenizer, questions, seqs)
    rewards = dict(model=make_reward_fn(rm, fit_normalizer(score_seqs(rm, before))), true=true_score)
    for name, (reward, beta) in REWARDS.items():
        policy, seen = copy.deepcopy(sft).requires_grad_(), []
        settings = dict(n_iterations=40, n_prompts=16, num_generations=4, num_iterations=2, lr=1e-3, beta=beta)
        def callback(row, roll):
            gold = true_score(roll.seqs)
            seen.append({k: row[key] for k, key in KEPT.items()} | dict(gold=gold[16:].mean().item(), spot=gold[:16].mean().item()))
        train_grpo(policy, frozen_copy(sft), RLTask(prompts, rewards[reward], tokenizer, SamplingParams()), GRPOConfig(**settings),
                   seeded(seed), callback=callback)
        yield dict(run=name, settings=settings | dict(reward=reward), **columns(seen))


PARTS = dict(law=law, alarms=alarms)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, nargs="+", default=[*PARTS])
    parser.add_argument("--seeds", type=int, default=5, help="how many (default: 5)")
    parser.add_argument("--first", type=int, default=40, help="the first of them (default: 40)")
    parser.add_argument("--clips", choices=CLIPS, nargs="+", default=[*CLIPS], metavar="CLIP", help="of the law: runs by name (default: all)")
    parser.add_argument("--json", type=Path, default=OUT, help="default: nbs/results/entropy.json")
    a = parser.parse_args()
    torch.set_num_threads(1)
    saved = json.loads(a.json.read_text("utf-8")) if a.json.is_file() else {}
    for part in a.part:
        saved[part], began = [], time.process_time()
        for seed in range(a.first, a.first + a.seeds):
            for row in law(seed, a.clips) if part == "law" else PARTS[part](seed):
                saved[part].append(row | dict(seed=seed, cpu_s=round(time.process_time() - began, 2)))
                began = time.process_time()
                shown = {k: [round(x, 2) for x in v[::4]] for k, v in row.items() if isinstance(v, list)}
                print(part, row["run"], seed, shown, flush=True)
            text = json.dumps(saved | dict(command="python benchmarks/bench_entropy.py"))
            short = json.loads(text, parse_float=lambda x: float(f"{float(x):.5g}"))     # five digits are enough
            a.json.write_text(json.dumps(short) + "\n", "utf-8")


if __name__ == "__main__": main()
