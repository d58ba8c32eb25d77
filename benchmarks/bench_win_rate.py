"""Answers of all models of chapter 11, three judges on them, how often intervals hold the truth, rankings.

    python benchmarks/bench_win_rate.py                       # all parts, three seeds, about half a CPU hour
    python benchmarks/bench_win_rate.py --part answers --seeds 1

answers: each method of chapter 11 with the setting that its search chose, trained anew with each seed; 8 answers at
temperature 1 to each of 48 held-out questions; true score, score of the shipped reward model, points of the shipped judge
(one greedy reply; 0 where it holds no score, and how many those are), tokens. A digit or a number for each answer,
question by question. pairs: a judge that compares two answers, trained from the shipped judge on 4,480 pairs of which the
better one stood first in 65 of 100; it reads 384 pairs of three contests in both orders. contests: what each judge says of them, against the true score. coverage: of each contest all
3,072 pairs of two answers to one question are a population whose win rate is known; 2,000 samples of 500 pairs, 50 of them
labelled; how often 95 % intervals hold it. moved: the same where the labels are of another contest. ranking:
Bradley-Terry strengths of all models by each judge, and how many pairs of models they order as the true score does.

Texts are not kept: `pairs` needs `answers` in the same call. Seeds change models, data and samples. Numbers go to nbs/results/win_rate.json, from which the chapter draws.
"""
import argparse, json, random, time
from functools import cache
from pathlib import Path
import torch
import arena
from rlhf_nb.base.batches import response_text
from rlhf_nb.base.learning import TrainConfig, fit, make_trainer
from rlhf_nb.base.models import load_bundled
from rlhf_nb.base.sampling import SamplingParams
from rlhf_nb.book.compare_runs import CONTENDERS, winner
from rlhf_nb.compare import best_of_n_responses, length_controlled_win_rate
from rlhf_nb.judge import JudgeConfig, judge_answers
from rlhf_nb.reward import score_seqs
from rlhf_nb.sft import sft_loss
from rlhf_nb.trainers.judge_tools import PairwisePrompt, compare_answers, judge_demonstrations
from rlhf_nb.win_rate import bradley_terry_scores, prediction_powered, rogan_gladen, tuned_lam
from rlhf_nb.world import gold_rewards, gold_score
from rlhf_nb.worlds.world_text import TEST, TRAIN, demonstrate

OUT = Path(__file__).parents[1]/"nbs/results/win_rate.json"
MANY = 8
QUESTIONS = [q for q in TEST for _ in range(MANY)]
MODELS = [c for c in CONTENDERS.values() if c.name != "SFT" or c.signal == "reward model"]
CONTESTS = [("RLOO, reward model", "PPO, reward model"), ("GRPO, reward model", "SFT"), ("DPO", "SFT"),
            ("Q-learning, reward model", "PPO, reward model")]         # B, A
READ = [("PPO, reward model", "SFT"), *CONTESTS[2:]]                   # by the judge that compares
GREEDY = JudgeConfig(n_votes=1, sampling=SamplingParams(64, temperature=0.))
PAIR = PairwisePrompt("""
    Which answer is wise?
    Question: {{ prompt }}
    Answer: {{ first }}
    Answer: {{ second }}
    """, "Answer: {{ winner }}")
RM, TOK = load_bundled("reward")
JUDGE, _ = load_bundled("judge")


def seeded(seed): return torch.Generator().manual_seed(seed)
TWICE = [x for x in {c.name for c in MODELS} if sum(c.name == x for c in MODELS) > 1]
def name_of(c):
    return c.name + f", {c.signal}" * (c.name in TWICE)
def texts(seqs): return [response_text(TOK, ids[m].tolist()) for ids, m in zip(seqs.ids, seqs.response_mask)]
def digits(x): return "".join(str(int(v)) for v in x)
def shown(seed, name): return {r["run"]: r for r in SAVED["answers"] if r["seed"] == seed}[name]


def answers(seed):
    for c in MODELS:
        settings, task = winner(c), arena.task_told(c.signal)
        policy = arena.TRAIN[c.name](task, settings, seed, lambda rollout, policy: None)
        with torch.no_grad():
            seqs, _ = best_of_n_responses(policy, task, QUESTIONS, settings.get("n", 1), seed=seed)
            said = texts(seqs)
            points = judge_answers(JUDGE, TOK, [(q.text, x) for q, x in zip(QUESTIONS, said)], GREEDY, seeded(0)).score()
            yield dict(run=name_of(c), signal=c.signal, gold=digits(gold_rewards(TOK, QUESTIONS, seqs)),
                       judge=digits(points.nan_to_num(0)), unread=int(points.isnan().sum()),
                       rm=[round(x, 2) for x in score_seqs(RM, seqs).tolist()], length=seqs.response_mask.sum(1).tolist(), text=said)


@cache
def pairwise_judge(seed):
    rng, rows = random.Random(seed), []
    while len(rows) < 32 * 140:
        q = rng.choice(TRAIN)
        a, b = sorted((demonstrate(q, rng), demonstrate(q, rng)), key=lambda x: -gold_score(q, x))
        if gold_score(q, a) > gold_score(q, b):
            first = rng.random() < .65
            rows.append(((q.text, *((a, b) if first else (b, a))), f"Answer: {1 if first else 2}"))
    trainer = make_trainer(load_bundled("judge")[0], TrainConfig(2e-3, 140, 32))
    fit(trainer, judge_demonstrations(TOK, PAIR, rows), sft_loss, seeded(seed))
    return trainer.model.eval()


def pairs(seed):
    once = JudgeConfig(PAIR, 1, SamplingParams(4, temperature=0.))
    for b, a in READ:
        trios = [(q.text, y, x) for q, x, y in zip(QUESTIONS, shown(seed, a)["text"], shown(seed, b)["text"])]
        votes = compare_answers(pairwise_judge(seed), TOK, trios, once, seeded(0))
        yield dict(run=f"{b} - {a}", first=digits(2 * votes.as_first[:, 0]), second=digits(2 * votes.as_second[:, 0]))


# ------------------------------------------------------------------ what follows from the answers
def numbers(row, key): return torch.tensor([float(x) for x in row[key]])
def versus(b, a, key): # (3072) 1 where b's answer is better, .5 a tie: all pairs of two answers to one question
    x, y = (numbers(r, key).view(-1, MANY) for r in (b, a))
    return ((x[:, :, None] - y[:, None]).sign() + 1).flatten() / 2
JUDGES = {"reward model": "rm", "points": "judge"}


def contests(seed):
    asked = {r["run"]: r for r in SAVED.get("pairs", []) if r["seed"] == seed}
    for b, a in CONTESTS:
        x, y, both = shown(seed, b), shown(seed, a), asked.get(f"{b} - {a}")
        gold = versus(x, y, "gold")
        gap = (numbers(x, "length").view(-1, MANY)[:, :, None] - numbers(y, "length").view(-1, MANY)[:, None]).flatten()
        said = {name: (versus(x, y, key), gold, gap) for name, key in JUDGES.items()}
        if both:
            first, second = (numbers(both, k) / 2 for k in ("first", "second"))
            same = ((numbers(x, "gold") - numbers(y, "gold")).sign() + 1) / 2     # of the 384 pairs that were read
            said |= {"pairwise, B first": (first, same, None), "pairwise, B second": (second, same, None),
                     "pairwise, both orders": ((first + second) / 2, same, None)}
        for name, (judge, true, gap) in said.items():
            yield dict(run=name, contest=f"{b} - {a}", win=judge.mean().item(), gold=true.mean().item(),
                       error=judge.mean().item() - true.mean().item(), ties=(judge == .5).double().mean().item(),
                       correlation=torch.corrcoef(torch.stack([judge, true]))[0, 1].item(), **({} if gap is None else dict(
                       equal_length=length_controlled_win_rate(judge, gap),
                       gold_equal_length=length_controlled_win_rate(true, gap))))


def drawn(gold, judge, sims, n, generator): # (sims n) each, with replacement
    rows = torch.randint(len(gold), (sims, n), generator=generator)
    return gold[rows], judge[rows]


def estimates(judge, labelled, gold): # name -> (estimate, standard error), (sims) each
    every = torch.cat([judge, labelled], -1)
    lam = tuned_lam(labelled, gold, judge.shape[-1])
    rg = rogan_gladen(judge, labelled, gold)
    slope = (rg - gold.mean(-1)) / (judge.mean(-1) - labelled.mean(-1))       # its lambda: the chapter shows why
    return {"judge alone": (every.mean(-1), every.std(-1) / every.shape[-1]**.5),
            "labels alone": (gold.mean(-1), gold.std(-1) / gold.shape[-1]**.5),
            "prediction-powered": prediction_powered(judge, labelled, gold),
            "tuned": prediction_powered(judge, labelled, gold, lam),
            "Rogan-Gladen": (rg, prediction_powered(judge, labelled, gold, slope)[1])}


def counted(truth, mean, error):
    held = ((mean - truth).abs() < 1.96 * error).double()       # an interval that is nan does not hold it
    return dict(coverage=held.mean().item(), width=2 * 1.96 * error.nanmedian().item(), bias=(mean.nanmedian() - truth).item())


def coverage(seed, n=450, m=50, sims=2000):
    for b, a in CONTESTS:
        x, y = shown(seed, b), shown(seed, a)
        gold = versus(x, y, "gold")
        for name, key in JUDGES.items():
            (_, j), (k, l) = [drawn(gold, versus(x, y, key), sims, size, seeded(seed * 1000 + size)) for size in (n, m)]
            for way, found in estimates(j, l, k).items():
                yield dict(run=way, judge=name, contest=f"{b} - {a}", **counted(gold.mean(), *found))


def moved(seed, n=450, m=50, sims=2000):
    for (b, a), (d, c) in (CONTESTS[:2], (CONTESTS[0], CONTESTS[2]), CONTESTS[1::-1], (CONTESTS[3], CONTESTS[2])):
        (x, y), (u, v) = ([shown(seed, name) for name in pair] for pair in ((b, a), (d, c)))
        gold, other = versus(x, y, "gold"), versus(u, v, "gold")
        for name, key in JUDGES.items():
            _, j = drawn(gold, versus(x, y, key), sims, n, seeded(seed * 10))
            k, l = drawn(other, versus(u, v, key), sims, m, seeded(seed * 10 + 1))
            for way, found in estimates(j, l, k).items():
                if way in ("prediction-powered", "Rogan-Gladen"):
                    yield dict(run=way, judge=name, contest=f"{b} - {a}", labels=f"{d} - {c}", **counted(gold.mean(), *found))


def wins_of(seed, key): # (48 k k) share of the 64 pairs of answers to a question that row i wins against column j
    x = torch.stack([numbers(r, key).view(-1, MANY) for r in SAVED["answers"] if r["seed"] == seed])     # (k 48 8)
    won = ((x[:, None, :, :, None] - x[None, :, :, None]).sign() + 1).mean((-1, -2)) / 2
    return won.permute(2, 0, 1) * (1 - torch.eye(len(x)))


def ranking(seed):
    names = [r["run"] for r in SAVED["answers"] if r["seed"] == seed]
    truth = bradley_terry_scores(wins_of(seed, "gold").sum(0))
    off = ~torch.eye(len(names)).bool()
    for name, key in dict(gold="gold", **JUDGES).items():
        s = bradley_terry_scores(wins_of(seed, key).sum(0))
        order = (s[:, None] - s).sign() == (truth[:, None] - truth).sign()
        yield dict(run=name, right_order=order[off].double().mean().item(), best=names[int(s.argmax())],
                   true_rank_of_best=int((truth > truth[s.argmax()]).sum()) + 1, strengths=dict(zip(names, s.tolist())))


PARTS = dict(answers=answers, pairs=pairs, contests=contests, coverage=coverage, moved=moved, ranking=ranking)
SAVED = {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, nargs="+", default=[*PARTS])
    parser.add_argument("--seeds", type=int, default=3, help="how many (default: 3)")
    parser.add_argument("--first", type=int, default=40, help="the first of them (default: 40)")
    parser.add_argument("--only", nargs="+", metavar="RUN", help="these policies, for a few contests (default: all)")
    parser.add_argument("--json", type=Path, default=OUT, help="default: nbs/results/win_rate.json")
    a = parser.parse_args()
    torch.set_num_threads(1)
    if a.only: MODELS[:], CONTESTS[:] = [c for c in MODELS if name_of(c) in a.only], [x for x in CONTESTS if {*x} <= {*a.only}]
    if a.json.is_file(): SAVED.update({k: x for k, x in json.loads(a.json.read_text("utf-8")).items() if k in PARTS})
    for part in a.part:
        SAVED[part] = []
        for seed in range(a.first, a.first + a.seeds):
            began = time.process_time()
            for row in PARTS[part](seed):
                row |= dict(seed=seed, cpu_s=round(time.process_time() - began, 2))
                SAVED[part].append(row)
                began = time.process_time()
                print(part, row["run"], seed, row["cpu_s"], {k: round(v, 3) for k, v in row.items() if isinstance(v, float)}, flush=True)
                kept = {k: [{x: v for x, v in r.items() if x != "text"} for r in rows] for k, rows in SAVED.items()}
                a.json.write_text(json.dumps(kept | dict(command="python benchmarks/bench_win_rate.py")) + "\n", "utf-8")


if __name__ == "__main__": main()
