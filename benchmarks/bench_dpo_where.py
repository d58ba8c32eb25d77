"""DPO's chosen log-probs fall for two reasons: where does the probability go, and what do the labels say of it?

    python benchmarks/bench_dpo_where.py                    # three seeds, about 5 CPU minutes

Near-equal pairs are those of bench_dpo_family.py (2048, one pass), own pairs those of bench_dpo_seeds.py (4096). On
near-equal pairs DPO + NLL and NLL alone are the controls: other losses, the same pairs, order and steps.
Found: change of the mean log-prob, nats, of unseen answers of the SFT model that are good (gold 5) and bad (gold 0
or 1), the same for all runs; of 384 sampled answers gold, KL, and the annotator's utility, which is what labels of
own pairs measure. Rows lie in nbs/results/dpo_where.jsonl as they are made.
"""
import argparse
from functools import partial
from pathlib import Path
import torch
from bench_dpo_family import losses, make_part, train
from bench_dpo_seeds import BATCH, LR, make_data, measure, seeded
from rlhf_nb.base.batches import response_text
from rlhf_nb.base.learning import TrainConfig, fit, make_trainer
from rlhf_nb.base.models import frozen_copy, load_bundled
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.dpo import dpo_loss, make_pair_loss, sequence_logprobs
from rlhf_nb.run.evidence import Experiment
from rlhf_nb.world import gold_rewards, utility
from rlhf_nb.worlds.world_text import TEST, prompt_ids

OUT = Path(__file__).parents[1]/"nbs/results/dpo_where.jsonl"


@torch.no_grad()
def run(settings, seed, loss="DPO"):
    (policy, tokenizer), ref = load_bundled("sft"), frozen_copy(load_bundled("sft")[0])
    def answers(model, n, seed):
        asked = TEST * n
        return asked, generate_many(model, [prompt_ids(tokenizer, q) for q in asked], tokenizer,
                                    SamplingParams(), seeded(seed), 128)[0]
    asked, unseen = answers(ref, 16, 900)
    gold = gold_rewards(tokenizer, asked, unseen)
    sides = dict(good=unseen[gold == 5], bad=unseen[gold <= 1])
    with torch.enable_grad():
        if settings["pairs"] == "near":
            train(policy, make_part("near", ref, tokenizer, seed)[0], losses("near", ref, None)[loss], seed)
        if settings["pairs"] == "own":
            data = make_data(seed)[2]
            n_steps = settings["passes"] * len(data) // BATCH
            config = TrainConfig(lr=LR, n_steps=n_steps, batch_size=BATCH, micro_batch_size=BATCH)
            trainer = make_trainer(policy, config)
            policy.eval()
            fit(trainer, data, make_pair_loss(dpo_loss), seeded(seed))
    found = {k: (sequence_logprobs(policy, x) - sequence_logprobs(ref, x)).mean().item() for k, x in sides.items()}
    asked, said = answers(policy, 8, 1)
    texts = [response_text(tokenizer, ids[m].tolist()) for ids, m in zip(said.ids, said.response_mask)]
    found["utility"] = sum(map(utility, asked, texts)) / len(texts)
    return found | measure(policy, ref, tokenizer) | measure(policy, ref, tokenizer, True)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("--seeds", type=int, default=3)
    args.add_argument("--first", type=int, default=40)
    args.add_argument("--json", type=Path, default=OUT)
    args = args.parse_args()
    torch.set_num_threads(1)
    own = Experiment("DPO", run, dict(pairs="own", passes=1), args.json)
    controls = [Experiment(name, partial(run, loss=name), dict(pairs="near", passes=1), args.json)
                for name in ("DPO + NLL", "NLL alone")]
    for x in (own.but(pairs="none"), own, own.but(passes=3), own.but(pairs="near"), *controls):
        for row in x.over(range(args.first, args.first + args.seeds)):
            print(row["name"], row["settings"], row["seed"], {k: round(v, 2) for k, v in row["found"].items()}, flush=True)


if __name__ == "__main__": main()
