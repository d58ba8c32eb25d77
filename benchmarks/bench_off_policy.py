"""Off-policy over seeds: how old rollouts may be, and what each correction repairs.

    python benchmarks/bench_off_policy.py                      # three seeds, about twelve CPU minutes
    python benchmarks/bench_off_policy.py --seeds 1 --json /tmp/one.json

RLOO on the true score with `train_grpo`, one step per rollout of 64 responses, 36 steps, no KL; responses are
0, 3, 6 or 12 rollouts old. *ignored* takes the sampler's responses for the learner's; *clip alone* is PPO's clip against
the sampler; the four modes weigh by importance ratios.

Everywhere: 48 held-out questions, 8 answers each at temperature 1; one greedy answer each. Seeds change prompts and
samples. Numbers go to nbs/results/off_policy.json, from which the chapter draws.
"""
import argparse, copy, json, time
from pathlib import Path
import torch
from rlhf_nb.base.models import frozen_copy, load_bundled
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, train_grpo
from rlhf_nb.trainers.ppo_trainer import RLTask
from rlhf_nb.world import gold_rewards
from rlhf_nb.worlds.world_text import TEST, TRAIN, prompt_ids

OUT = Path(__file__).parents[1]/"nbs/results/off_policy.json"
SFT, TOK = load_bundled("sft")
PROMPTS = [prompt_ids(TOK, q) for q in TRAIN]
KNOWN = {tuple(p): q for p, q in zip(PROMPTS, TRAIN)}
QUESTIONS = [q for q in TEST for _ in range(8)]
ASKED = [prompt_ids(TOK, q) for q in QUESTIONS]
MODES = {"ignored": dict(importance_sampling_cap=1., importance_sampling_min=1.), "clip alone": {},
         "token, truncated at 2": dict(importance_sampling_cap=2.),
         "token, masked beyond .5 and 2": dict(importance_sampling_cap=2., importance_sampling_min=.5, importance_sampling_mode="token_mask"),
         "response, truncated at 2": dict(importance_sampling_cap=2., importance_sampling_mode="sequence_truncate"),
         "response, masked beyond 3": dict(importance_sampling_cap=3., importance_sampling_mode="sequence_mask")}
NAME = "sampling/importance_sampling_ratio/"


def seeded(seed): return torch.Generator().manual_seed(seed)
def true_score(seqs):
    prompt = seqs.attention_mask & ~seqs.response_mask
    return gold_rewards(TOK, [KNOWN[tuple(ids[p].tolist())] for ids, p in zip(seqs.ids, prompt)], seqs)


def measured(model):
    def score(questions, asked, temperature):
        seqs = generate_many(model, asked, TOK, SamplingParams(temperature=temperature), seeded(1), 128)[0]
        return gold_rewards(TOK, questions, seqs).mean().item()
    return dict(gold=score(QUESTIONS, ASKED, 1.), greedy=score(TEST, ASKED[::8], 0.))


def trained(seed, mode, lag):
    policy, path = copy.deepcopy(SFT).requires_grad_(), []
    config = GRPOConfig(n_iterations=36, n_prompts=16, num_generations=4, num_iterations=1, beta=0., lr=2e-3, warmup_steps=0,
                        lag=lag, **MODES[mode])
    def callback(row, roll):
        if row["iteration"] % 12 == 0: path.append(dict(step=row["iteration"], **measured(policy)))
    rows = [row for row in train_grpo(policy, frozen_copy(SFT), RLTask(PROMPTS, true_score, TOK, SamplingParams()), config, seeded(seed),
                                      callback=callback).log.rows if "iteration" in row]
    def late(name): # mean over the last 24 rollouts; what fresh responses have by definition
        found = [row[name] for row in rows[12:] if name in row]
        return sum(found) / len(found) if found else dict(max=1., mean=1., outside=0.).get(name.split("/")[-1], 1.)
    kept = dict(ess=late("sampling/effective_sample_size"), ratio_max=late(NAME + "max"), ratio_mean=late(NAME + "mean"), outside=late(NAME + "outside"))
    return dict(run=mode, lag=lag, lr=2e-3, **path[-1], **kept, path=path, reward=[row["reward"] for row in rows],
                ess_path=[row.get("sampling/effective_sample_size", 1.) for row in rows])


def lag(seed, only=None): # these corrections of answers twelve rollouts old; all runs if None
    if only:
        for mode in only: yield trained(seed, mode, 12)
        return
    yield dict(trained(seed, "ignored", 0), run="fresh")
    for k in (3, 6, 12):
        for mode in ("ignored", "response, truncated at 2"): yield trained(seed, mode, k)
    for mode in MODES:
        if mode not in ("ignored", "response, truncated at 2"): yield trained(seed, mode, 12)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="how many (default: 3)")
    parser.add_argument("--first", type=int, default=40, help="the first of them (default: 40)")
    parser.add_argument("--only", nargs="+", choices=MODES, metavar="MODE", help="corrections by name, at an age of twelve (default: all runs)")
    parser.add_argument("--json", type=Path, default=OUT, help="default: nbs/results/off_policy.json")
    a = parser.parse_args()
    torch.set_num_threads(1)
    saved = dict(lag=[])
    for seed in range(a.first, a.first + a.seeds):
        began = time.process_time()
        for row in lag(seed, a.only):
            saved["lag"].append(row | dict(seed=seed, cpu_s=round(time.process_time() - began, 2)))
            began = time.process_time()
            print(row["run"], row["lag"], seed, {k: round(v, 2) for k, v in row.items() if isinstance(v, float)}, flush=True)
    saved |= dict(command="python benchmarks/bench_off_policy.py")
    a.json.write_text(json.dumps(saved, indent=1) + "\n", "utf-8")


if __name__ == "__main__": main()
