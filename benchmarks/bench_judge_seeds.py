"""The judge on the embedded world over seeds: how well it can be read, and how well it judges.

    python benchmarks/bench_judge_seeds.py --judges /tmp/judges   # about 4 CPU minutes
    python benchmarks/bench_judge_seeds.py --seeds 0              # the shipped one only

Seed 0 is the shipped checkpoint. Every other seed is the same training from the shipped base with
other demonstrations, judgements and batches (scripts/make_checkpoints.py, 50 CPU s), kept in
--judges for the next time. Each marks 384 answers of mixed quality to the 48 held-out questions;
the answers are the same for all seeds, the judge's random numbers are its own. Nothing was chosen on them.
The table goes to stdout, the numbers to nbs/results/judge.json, from which the chapter draws.
"""
import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
import torch
from rlhf_nb.judge import JudgeConfig, agreement, judge_answers
from rlhf_nb.base.models import load_lm
from rlhf_nb.base.sampling import SamplingParams
from rlhf_nb.world import gold_score
from rlhf_nb.worlds.world_text import TEST, demonstrate

ROOT = Path(__file__).resolve().parents[1]
WAYS = {"one greedy reply": JudgeConfig(n_votes=1, sampling=SamplingParams(64, temperature=0.)),
        "one reply": JudgeConfig(n_votes=1), "mean of 3": JudgeConfig(n_votes=3),
        "mean of 8": JudgeConfig(n_votes=8),
        "3 at T 1, top-p 1": JudgeConfig(n_votes=3, sampling=SamplingParams(64))}


def trained(seed, shelf, n=12_000):
    "The judge of a seed and n judgements, made from the shipped base where it does not lie on the shelf."
    if (seed, n) == (0, 12_000): return load_lm(ROOT / "rlhf_nb/checkpoints/judge")
    folder = shelf / (str(seed) if n == 12_000 else f"{seed}-{n}")
    if not (folder / "judge/model.safetensors").exists():
        sys.path.insert(0, str(ROOT / "scripts"))
        from make_checkpoints import make
        shutil.copytree(ROOT / "rlhf_nb/checkpoints/base", folder / "base", dirs_exist_ok=True)
        make("judge", folder, seed, n=n)
    return load_lm(folder / "judge")


def answers(n=384, seed=5):
    rng = random.Random(seed)
    return [(q, demonstrate(q, rng)) for q in rng.choices(TEST, k=n)]


def run(seed, shelf):
    model, tokenizer = trained(seed, shelf)
    items, rows = answers(), []
    texts = [(question.text, response) for question, response in items]
    true = torch.tensor([gold_score(*item) for item in items])
    for way, judge in WAYS.items():
        began = time.process_time()
        generator = torch.Generator().manual_seed(1000 + seed)
        verdicts = judge_answers(model, tokenizer, texts, judge, generator)
        vote_std = verdicts.vote_std() if judge.n_votes > 1 else None
        rows.append(dict(way=way, seed=seed, **agreement(verdicts, true) | {"vote_std": vote_std},
                         cpu_s=time.process_time() - began))
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    p.add_argument("--judges", type=Path, help="where retrained judges lie or will lie")
    p.add_argument("--json", type=Path, default=ROOT / "nbs/results/judge.json")
    args = p.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temp:
        rows = [row for seed in args.seeds for row in run(seed, args.judges or Path(temp))]
    names = ("parse_rate", "pearson_r", "pair_accuracy", "exact_match", "bias", "vote_std")
    print(f"{'':20}" + "".join(f"{name:>22}" for name in names))
    for way in WAYS:
        mine = [row for row in rows if row["way"] == way]
        cells = []
        for name in names:
            found = [row[name] for row in mine]
            cells.append("-" if found[0] is None else
                         " ".join(f"{x:.3f}" for x in found))
        print(f"{way:20}" + "".join(f"{cell:>22}" for cell in cells))
    if len(args.seeds) > 1:
        mine = [row["pearson_r"] for row in rows if row["way"] == "mean of 3"]
        print(f"Pearson r of the mean of 3: {statistics.mean(mine):.3f} +- {statistics.stdev(mine):.3f}")
    settings = {way: dict(n_votes=j.n_votes, temperature=j.sampling.temperature, top_p=j.sampling.top_p)
                for way, j in WAYS.items()}
    rounded = [{k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}
               for row in rows]
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(dict(
        command="python benchmarks/bench_judge_seeds.py", answers=384, settings=settings,
        rows=rounded), indent=1) + "\n")


if __name__ == "__main__": main()
