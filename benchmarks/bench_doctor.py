"""PPO with a fault, over seeds: the runs of cases 3 and 4 of the training doctor.

    python benchmarks/bench_doctor.py                       # three seeds, about 2 CPU minutes
    python benchmarks/bench_doctor.py --first 10 --seeds 3

Every run starts from the shipped SFT model, 64 answers a rollout; those of one case have one schedule and differ in
the named setting alone. Rows (found: a number per rollout, and the KL of the last) lie in nbs/results/doctor.jsonl
as they are made; a run that was stopped goes on.
"""
import argparse, random
from pathlib import Path
import torch
from rlhf_nb.base.models import ScalarModel, frozen_copy, load_bundled
from rlhf_nb.base.sampling import SamplingParams
from rlhf_nb.base.scores import fit_normalizer
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.reward import score_seqs
from rlhf_nb.run.evidence import Experiment
from rlhf_nb.trainers.ppo_trainer import PPOConfig, RLTask, train_ppo
from rlhf_nb.trainers.reward_tools import make_reward_fn
from rlhf_nb.worlds.world_text import TRAIN, demonstrations, prompt_ids

OUT = Path(__file__).parents[1]/"nbs/results/doctor.jsonl"


def short_run(settings, seed):
    (policy, tokenizer), (rm, _) = load_bundled("sft"), load_bundled("reward")
    ref = frozen_copy(policy)
    shown = demonstrations(tokenizer, TRAIN, 512, random.Random(0))
    score = make_reward_fn(rm, fit_normalizer(score_seqs(rm, shown)))
    def lost_order(seqs): return score(seqs[seqs.response_mask.sum(1).argsort()])
    reward = dict(model=score, another_row=lost_order, times_100=lambda seqs: 100 * score(seqs))[settings["reward"]]
    task = RLTask([prompt_ids(tokenizer, q) for q in TRAIN], reward, tokenizer, SamplingParams())
    config = PPOConfig(n_prompts=64, max_kl=1e9, n_iterations=settings["n_iterations"], beta=settings["beta"])
    model = ActorCritic(policy.requires_grad_(), ScalarModel.from_lm(ref))
    rows = [r for r in train_ppo(model, ref, task, config, torch.Generator().manual_seed(seed)).log.rows
            if "iteration" in r]
    found = {name: [r[key] for r in rows] for name, key in dict(
        scores="objective/scores", kl="objective/kl", value_loss="loss/value_avg").items()}
    return found | dict(last_kl=found["kl"][-1])


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("--seeds", type=int, default=3)
    args.add_argument("--first", type=int, default=0)
    args.add_argument("--json", type=Path, default=OUT)
    args = args.parse_args()
    torch.set_num_threads(1)
    base = Experiment("PPO", short_run, dict(reward="model", beta=.1, n_iterations=8), args.json)
    long = base.but(n_iterations=18)
    large = long.but(reward="times_100")                   # its control: beta times 100 as well
    for run in (base, base.but(reward="another_row"), long, large, long.but(beta=0.), large.but(beta=10.)):
        for row in run.over(range(args.first, args.first + args.seeds)):
            print(row["settings"], row["seed"], f"last KL {row['found']['last_kl']:.2f}", flush=True)


if __name__ == "__main__": main()
