"""A checklist as the reward, over seeds: an item left out, gates, rewards summed or apart, a judge that reads the list.

    python benchmarks/bench_rubrics.py                      # three seeds, about eight CPU minutes
    python benchmarks/bench_rubrics.py --seeds 1 --json /tmp/one.json

GRPO with `train_grpo`: 8 questions, 8 responses each, one step per rollout, 24 steps, no KL, advantages normalised in their
group. Runs differ in the reward alone, but for GDPO. *all five*: the sum of the five criteria. *without X*: the other four. *X is
a gate*: the sum, 0 where X is not met. *all or nothing*: 1 where all five are met. *apart, no batch step*: five rewards, each
normalised in its group, then summed. *apart*: the same, and then divided by the standard deviation of the batch (GDPO). *Courteous
pays 10*: that item is 10 or 0 in place of 1 or 0. *the judge's list*: the five verdicts that the bundled judge writes (greedy), in
place of the true ones. *the reward model*: the bundled one's score.

Everywhere: 48 held-out questions, 8 answers each at temperature 1. Seeds change prompts and samples. Numbers go to
nbs/results/rubrics.json, from which the chapter draws.
"""
import argparse, copy, json, re, time
from pathlib import Path
import torch
from rlhf_nb.base.batches import response_text
from rlhf_nb.base.models import frozen_copy, load_bundled
from rlhf_nb.base.replies import generate_replies
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.grpo import group_centered, group_normalised
from rlhf_nb.judge import WORLD_PROMPT, JudgeConfig, judge_messages
from rlhf_nb.reward import score_seqs
from rlhf_nb.rubrics import normalised_sum, rubric_reward
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, train_grpo
from rlhf_nb.trainers.ppo_trainer import RLTask, WeightedRewards
from rlhf_nb.world import CRITERIA, criteria
from rlhf_nb.worlds.world_text import TEST, TRAIN, prompt_ids

OUT = Path(__file__).parents[1]/"nbs/results/rubrics.json"
(SFT, TOK), (JUDGE, _), (RM, _) = (load_bundled(name) for name in ("sft", "judge", "reward"))
NAMES = list(CRITERIA)
PROMPTS = [prompt_ids(TOK, q) for q in TRAIN]
KNOWN = {tuple(p): q for p, q in zip(PROMPTS, TRAIN)}
QUESTIONS = [q for q in TEST for _ in range(8)]
ASKED = [prompt_ids(TOK, q) for q in QUESTIONS]
GREEDY = JudgeConfig(n_votes=1, sampling=SamplingParams(64, temperature=0.))


def seeded(seed): return torch.Generator().manual_seed(seed)
def texts_of(seqs): return [response_text(TOK, ids[m].tolist()) for ids, m in zip(seqs.ids, seqs.response_mask)]
def asked_of(seqs): return [KNOWN[tuple(ids[m].tolist())] for ids, m in zip(seqs.ids, seqs.attention_mask & ~seqs.response_mask)]
def true_marks(questions, texts): return torch.tensor([list(criteria(*x).values()) for x in zip(questions, texts)]).float()      # (b 5)
def judged_marks(questions, texts): # (b 5); an item without a verdict, and a reply that was cut, count as not met
    pairs = list(zip([q.text for q in questions], texts))
    each = dict.fromkeys(pairs)                                    # equal answers are read once
    replies = generate_replies(JUDGE, TOK, judge_messages(TOK, WORLD_PROMPT, list(each)), GREEDY, seeded(0))
    def last(reply, name): return (re.findall(rf"\b{name}: (yes|no)\b", reply or "") or ["no"])[-1]
    found = {pair: [float(last(reply, name) == "yes") for name in NAMES] for pair, (reply,) in zip(each, replies)}
    return torch.tensor([found[pair] for pair in pairs])


def measured(model):
    seqs = generate_many(model, ASKED, TOK, SamplingParams(), seeded(1), 128)[0]
    texts = texts_of(seqs)
    marks, judged = true_marks(QUESTIONS, texts), judged_marks(QUESTIONS, texts)
    return dict(gold=marks.sum(1).mean().item(), all_met=marks.all(1).float().mean().item(), words=sum(len(t.split()) for t in texts) / len(texts),
                **dict(zip(NAMES, marks.mean(0).tolist())), judge=judged.sum(1).mean().item(),
                **{f"judge {k}": x for k, x in zip(NAMES, judged.mean(0).tolist())})


def trained(seed, run, weights=(1.,) * 5, gates=(False,) * 5, pays=(1.,) * 5, read=true_marks, apart=False, model=False,
            batch_step=True):
    memo = {}
    def marks(seqs): # once for all items
        if memo.get("of") is not seqs: memo.update(of=seqs, marks=read(asked_of(seqs), texts_of(seqs)) * torch.tensor(pays))
        return memo["marks"]
    def whole(seqs):
        if apart: return normalised_sum(marks(seqs), torch.tensor(weights), torch.arange(len(seqs)) // 8)      # 0 in each group's mean
        return score_seqs(RM, seqs) if model else rubric_reward(marks(seqs), torch.tensor(weights), torch.tensor(gates))
    parts = {name: (1., lambda seqs, i=i: marks(seqs)[:, i]) for i, name in enumerate(NAMES)}
    policy = copy.deepcopy(SFT).requires_grad_()
    gdpo = apart and batch_step
    config = GRPOConfig(n_iterations=24, n_prompts=8, num_generations=8, num_iterations=1, beta=0., lr=2e-3, warmup_steps=0,
                        advantage_fn=group_centered if apart and not gdpo else group_normalised,
                        multi_objective_aggregation="normalize_then_sum" if gdpo else "sum_then_normalize")
    task = RLTask(PROMPTS, WeightedRewards(parts) if gdpo else whole, TOK, SamplingParams())
    path = [] # true score of each rollout's responses
    def callback(row, roll): path.append(true_marks(asked_of(roll.seqs), texts_of(roll.seqs)).sum(1).mean().item())
    rows = [r for r in train_grpo(policy, frozen_copy(SFT), task, config, seeded(seed), callback=callback).log.rows if "iteration" in r]
    return dict(run=run, lr=2e-3, **measured(policy), first_half=sum(path[:12]) / 12, path=path, reward=[r["reward"] for r in rows],
                silent=[r["frac_reward_zero_std"] for r in rows])


TEN = (1., 1., 1., 10., 1.)                                       # Courteous is the fourth
RUNS = [("all five", {}), *[(f"without {name}", dict(weights=tuple(float(i != j) for j in range(5)))) for i, name in enumerate(NAMES)],
        ("Answered is a gate", dict(gates=tuple(i == 2 for i in range(5)))), ("all or nothing", dict(gates=(True,) * 5)),
        ("apart", dict(apart=True)), ("apart, no batch step", dict(apart=True, batch_step=False)),
        ("Courteous pays 10", dict(pays=TEN)), ("Courteous pays 10, apart", dict(pays=TEN, apart=True)),
        ("Courteous pays 10, apart, no batch step", dict(pays=TEN, apart=True, batch_step=False)),
        ("the judge's list", dict(read=judged_marks)), ("the reward model", dict(model=True))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="how many (default: 3)")
    parser.add_argument("--first", type=int, default=40, help="the first of them (default: 40)")
    parser.add_argument("--only", nargs="+", choices=dict(RUNS), default=[*dict(RUNS)], metavar="RUN", help="runs by name (default: all)")
    parser.add_argument("--json", type=Path, default=OUT, help="default: nbs/results/rubrics.json")
    a = parser.parse_args()
    torch.set_num_threads(1)
    saved = dict(before=measured(SFT), runs=[])
    for seed in range(a.first, a.first + a.seeds):
        for run, settings in [x for x in RUNS if x[0] in a.only]:
            began = time.process_time()
            row = trained(seed, run, **settings)
            saved["runs"].append(row | dict(seed=seed, cpu_s=round(time.process_time() - began, 2)))
            a.json.write_text(json.dumps(saved, indent=1) + "\n", "utf-8")
            print(run, seed, {k: round(v, 2) for k, v in saved["runs"][-1].items() if isinstance(v, float)}, flush=True)
    saved |= dict(command="python benchmarks/bench_rubrics.py")
    a.json.write_text(json.dumps(saved, indent=1) + "\n", "utf-8")


if __name__ == "__main__": main()
