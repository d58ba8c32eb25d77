"""What each implementation detail of PPO is worth on the embedded world: leave one out, look at the true score.

    python benchmarks/bench_ppo_details.py              # about 20 variants, 2 seeds, 10 minutes
    python benchmarks/bench_ppo_details.py --only "no clip" --seeds 1

The run of the chapter (beta .1, 18 rollouts, shipped SFT and reward model) with one thing changed. A
change is a setting, or a name of rlhf_nb.ppo that is replaced for the run. Held-out questions, 8 answers each.
The table goes to stdout, the numbers to nbs/results/ppo_details.json, from which the chapter draws.
"""
import argparse
import copy
import json
import statistics
from contextlib import contextmanager
from functools import partial
from pathlib import Path
import torch
import rlhf_nb.trainers.ppo_trainer as ppo
from bench_ppo_seeds import answers, measure, seeded
from rlhf_nb.kl import kl_k3
from rlhf_nb.base.learning import TrainConfig
from rlhf_nb.base.models import ScalarModel, frozen_copy, load_bundled
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.trainers.ppo_trainer import PPOConfig, RLTask, train_ppo
from rlhf_nb.reward import score_seqs
from rlhf_nb.base.scores import ScoreNormalizer, fit_normalizer
from rlhf_nb.trainers.reward_tools import make_reward_fn
from rlhf_nb.base.sampling import SamplingParams
from rlhf_nb.worlds.world_text import TRAIN, prompt_ids


def raw(advantage, mask, shift_mean=True): return advantage.masked_fill(~mask, 0.)


SETTINGS = {
    "as it is": {}, "no clip": dict(cliprange=1e9), "no value clip": dict(cliprange_value=1e9),
    "lambda 0": dict(lam=0.), "lambda .95": dict(lam=.95), "lambda 1": dict(lam=1.),
    "rewards whitened": dict(whiten_rewards=True), "score one past eos": dict(score_after_eos=True),
    "k3 in the reward": dict(kl_estimator=kl_k3), "no KL": dict(beta=0.),
    "critic never learns": dict(vf_coef=0.), "one pass": dict(n_epochs=1),
    "four passes": dict(n_epochs=4), "four minibatches": dict(n_minibatches=4),
    "entropy bonus .02": dict(entropy_coef=.02), "temperature .7": dict(temperature=.7),
    "advantages not whitened": {}, "gradient not clipped": {}, "rate falls to 0": {},
    "score not scaled": {}, "critic from the reward model": {}}
NAMES = {"advantages not whitened": ("masked_whiten", raw),
         "gradient not clipped": ("TrainConfig", partial(TrainConfig, max_grad_norm=1e9)),
         "rate falls to 0": ("TrainConfig", lambda *a, **k: TrainConfig(*a, **k | dict(final_lr_frac=0.)))}


@contextmanager
def replaced(name, by):
    old = getattr(ppo, name)
    setattr(ppo, name, by)
    try: yield
    finally: setattr(ppo, name, old)


def start_critic(name, ref, rm, seed):
    return copy.deepcopy(rm).requires_grad_() if "reward model" in name else ScalarModel.from_lm(ref, seed)


def run(name, seed):
    sft, tokenizer = load_bundled("sft")
    ref, rm = frozen_copy(sft), frozen_copy(load_bundled("reward")[0])
    _, seqs = answers(ref, tokenizer, 8, SamplingParams(), 99)
    scaled = make_reward_fn(rm, fit_normalizer(score_seqs(rm, seqs)))
    reward_fn = make_reward_fn(rm, ScoreNormalizer(0., 1.)) if name == "score not scaled" else scaled
    task = RLTask([prompt_ids(tokenizer, q) for q in TRAIN], reward_fn, tokenizer, SamplingParams())
    model = ActorCritic(sft.requires_grad_(), start_critic(name, ref, rm, seed))
    config = PPOConfig(**dict(max_kl=1e4) | SETTINGS[name])
    with replaced(*NAMES.get(name, ("PPOConfig", PPOConfig))):
        train_ppo(model, ref, task, config, seeded(seed))
    return dict(run=name, seed=seed, **measure(sft, ref, scaled, tokenizer),
                **measure(sft, ref, scaled, tokenizer, greedy=True))


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("--seeds", type=int, default=2)
    args.add_argument("--first", type=int, default=50, help="the first seed")
    args.add_argument("--only", choices=SETTINGS, help="one variant; nothing is written")
    args.add_argument("--json", type=Path, default=Path(__file__).parents[1]/"nbs/results/ppo_details.json")
    args = args.parse_args()
    torch.set_num_threads(1)
    rows, keys = [], ("gold", "greedy", "proxy", "kl", "flattery")
    print(f"{'left out or changed':30}" + "".join(f"{k:>9}" for k in keys))
    for name in [args.only] if args.only else SETTINGS:
        mine = [run(name, seed) for seed in range(args.first, args.first + args.seeds)]
        print(f"{name:30}" + "".join(f"{statistics.mean(r[k] for r in mine):9.2f}" for k in keys), flush=True)
        rows += mine
    if not args.only: args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__": main()
