"""Does a judge favour the answers of its own model? Models that both answer and mark, each marking the others' answers, too.

    python benchmarks/bench_self_preference.py --judges /tmp/judges     # about 3 CPU minutes, and 50 s for each new judge

Seeds are trainings from the shipped base with other demonstrations, judgements and batches (`bench_judge_seeds.py`,
kept in --judges). Two parts:
  alike    each seed against the next one
  manners  of each seed two models, trained 150 steps on: one imitates courteous careful writers, the other careful
           writers without courtesy; both go on learning the same true marks
Each of two models answers the 48 held-out questions eight times at temperature 1, and marks the answers of both with one
greedy reply. *Self* is how much more each gives its own answers than the other does: (a of a - a of b - b of a + b of b) / 2,
in which neither the quality of the answers nor the leniency of a judge counts. *Slope*: of one and the same answer, how
many points more the judge gives to whom it is one nat more probable per token than to the other.
Numbers go to stdout and to nbs/results/self_preference.json.
"""
import argparse, itertools, json, random, statistics, tempfile, time
from pathlib import Path
import torch
from bench_judge_seeds import trained
from rlhf_nb.base.batches import concat_seqs, response_text
from rlhf_nb.base.learning import TrainConfig, fit, make_trainer
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.sampling import SamplingParams, generate_many, in_batches
from rlhf_nb.judge import JudgeConfig, judge_answers
from rlhf_nb.sft import sft_loss
from rlhf_nb.tokens import make_seqs
from rlhf_nb.world import criteria, gold_score, judge_examples
from rlhf_nb.worlds.world_text import TEST, TRAIN, demonstrate, prompt_ids

ROOT = Path(__file__).resolve().parents[1]
GREEDY = JudgeConfig(n_votes=1, sampling=SamplingParams(64, temperature=0.))
ASKED = [q for q in TEST for _ in range(8)]


def seeded(seed): return torch.Generator().manual_seed(seed)


@torch.no_grad()
def table(models, seed): # marks, log-probs per token: (judge, author, answer); true scores: (author, answer)
    marks, nats, gold = [[] for _ in models], [[] for _ in models], []
    for author, (writer, tokenizer) in enumerate(models):
        prompts = [prompt_ids(tokenizer, q) for q in ASKED]
        seqs, _ = generate_many(writer, prompts, tokenizer, SamplingParams(), seeded(500 + 2 * seed + author), 128)
        texts = [response_text(tokenizer, ids[m].tolist()) for ids, m in zip(seqs.ids, seqs.response_mask)]
        gold.append(torch.tensor([gold_score(q, text) for q, text in zip(ASKED, texts)]))
        for judge, (model, _) in enumerate(models):
            marks[judge].append(judge_answers(model, tokenizer, [(q.text, x) for q, x in zip(ASKED, texts)], GREEDY, seeded(0)).score())
            own = in_batches(lambda s: (logprobs(model, s) * s.response_mask).sum(1) / s.response_mask.sum(1), seqs)
            nats[judge].append(own)
    return [torch.stack([torch.stack(x) for x in y]) for y in (marks, nats)] + [torch.stack(gold)]


def mannered(model, tokenizer, courteous, seed): # goes on as a writer with or without courtesy, and as the same judge
    rng, rows = random.Random(seed), []
    while len(rows) < 2400:
        q = rng.choice(TRAIN)
        text = demonstrate(q, rng, 1.)
        if criteria(q, text)["Courteous"] == courteous: rows.append((q, text))
    end = [tokenizer.eos_token_id]
    data = make_seqs([prompt_ids(tokenizer, q) for q, _ in rows],
                     [tokenizer.encode(text, add_special_tokens=False) + end for _, text in rows], tokenizer.pad_token_id)
    data = concat_seqs([data, judge_examples(tokenizer, TRAIN, 2400, random.Random(200 + seed))], tokenizer.pad_token_id)
    trainer = make_trainer(model.requires_grad_(), TrainConfig(lr=1e-3, n_steps=150, batch_size=32, micro_batch_size=32))
    fit(trainer, data, sft_loss, seeded(seed))
    return model.eval()


def compared(models, seed):
    marks, nats, gold = table(models, seed)
    own = (marks[0, 0] - marks[0, 1] - marks[1, 0] + marks[1, 1]) / 2
    d, h = (marks[0] - marks[1]).flatten(), (nats[0] - nats[1]).flatten()
    d, h = (x[~d.isnan()] for x in (d, h))
    slope = (((d - d.mean()) * (h - h.mean())).sum() / (h - h.mean()).square().sum()).item()
    off = (marks - gold).nanmean(2)
    return dict({"self": own.nanmean().item()}, slope=slope, std_nats=h.std().item(), parsed=len(d) / marks[0].numel(),
                lenient=off.mean().item(), gold_a=gold[0].mean().item(), gold_b=gold[1].mean().item())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--first", type=int, default=110)
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--judges", type=Path, help="where retrained judges lie or will lie")
    p.add_argument("--json", type=Path, default=ROOT/"nbs/results/self_preference.json")
    args = p.parse_args()
    torch.set_num_threads(1)
    rows, seeds = [], range(args.first, args.first + args.seeds)
    with tempfile.TemporaryDirectory() as temp:
        for seed, other in zip(seeds, [*seeds[1:], seeds[0]]):
            shelf = args.judges or Path(temp)
            for part in ("alike", "manners"):
                began, models = time.process_time(), [trained(seed, shelf), trained(other if part == "alike" else seed, shelf)]
                if part == "manners": models = [(mannered(m, t, c, seed), t) for (m, t), c in zip(models, (True, False))]
                rows.append(dict(run=part, seed=seed, **compared(models, seed), cpu_s=time.process_time() - began))
                print({k: round(v, 3) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True)
    for part, key in itertools.product(("alike", "manners"), ("self", "slope")):
        x = [r[key] for r in rows if r["run"] == part]
        if len(x) > 1: print(f"{part} {key}: {statistics.mean(x):+.3f} ± {statistics.stdev(x) / len(x)**.5:.3f}")
    args.json.write_text(json.dumps(dict(command="python benchmarks/bench_self_preference.py", answers=len(ASKED),
                                         rows=rows), indent=1) + "\n", "utf-8")


if __name__ == "__main__": main()
