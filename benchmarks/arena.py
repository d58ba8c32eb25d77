"""The rows of chapter 11's arena: every search on the tuning seed, then the winner on five other seeds.

    python benchmarks/arena.py                    # all methods; about 1.3 CPU hours, goes on where it was stopped
    python benchmarks/arena.py --method PPO RLOO  # these, in every panel; --signal "true score": in this one
    python benchmarks/arena.py --seeds 80 81 82 83 84 -o fresh.jsonl  # winners as shipped, on other seeds
    python benchmarks/arena.py --answers nbs/results/arena_answers.json   # what chapter 11 shows of six of them

The rows go to nbs/results/arena.jsonl, which chapter 11 and `rlhf-nb compare` read. A row is known by method,
settings and seed (`run.evidence`): delete the rows of a method whose code you change. To add a method, write its
function below into TRAIN, and what it may use and its grid as a line of nbs/results/arena_methods.jsonl.

While settings are tried a run is looked at in short: 384 answers to 48 training questions. A reported run gets the
whole evaluation of chapter 11 on the 48 held-out questions, and RL is looked at six times on its way (192 answers
each). Seconds of training leave that out. `proxy` is always the bundled reward model's score, and KL is always
measured from the SFT model.
"""
import argparse, json, random, time
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
import torch
from torch import Generator
from rlhf_nb.base.batches import response_text
from rlhf_nb.base.files import atomic_write
from rlhf_nb.base.learning import TrainConfig
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.models import ScalarModel, frozen_copy, load_bundled
from rlhf_nb.base.q_networks import QConfig, QNets, make_episodes, q_network
from rlhf_nb.base.sampling import SamplingParams, in_batches
from rlhf_nb.base.scores import best_of_n_kl, expected_best_of_n, fit_normalizer, normalize_scores
from rlhf_nb.book.compare_runs import ARENA, CONTENDERS, REPORTED, winner
from rlhf_nb.compare import best_of_n_responses, make_compare_task, measure_policy
from rlhf_nb.dpo import dpo_loss, precompute_ref_logprobs
from rlhf_nb.grpo import LOSS_WEIGHTS, group_normalised
from rlhf_nb.kl import response_kl
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.run.evidence import Experiment
from rlhf_nb.sft import train_sft
from rlhf_nb.trainers.dpo_tools import train_dpo
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, train_grpo
from rlhf_nb.trainers.ppo_trainer import PPOConfig, RLTask, train_ppo
from rlhf_nb.trainers.q_trainer import QPolicy, train_q
from rlhf_nb.trainers.reward_tools import sample_pairs
from rlhf_nb.world import gold_rewards
from rlhf_nb.worlds import world_text
from rlhf_nb.worlds.world_text import demonstrations, prompt_ids

TUNED = [60]              # seed of the search; REPORTED are others
SAMPLED = 18 * 128        # responses that every method may sample
SIGNALS = [*dict.fromkeys(signal for _, signal in CONTENDERS)]

# ---- what a method is told

def true_reward(tokenizer, normalizer): # -> function: Seqs of b rows -> (b) true scores, normalised
    by_prompt = {tuple(prompt_ids(tokenizer, q)): q for q in (*world_text.TRAIN, *world_text.TEST)}
    def reward_fn(seqs):
        prompt = seqs.attention_mask & ~seqs.response_mask
        questions = [by_prompt[tuple(row[mask].tolist())] for row, mask in zip(seqs.ids, prompt)]
        return normalize_scores(gold_rewards(tokenizer, questions, seqs), normalizer)
    return reward_fn

@lru_cache(2)
def task_told(signal): # whose reward is what this signal says: mean 0 and std 1 on 384 SFT answers, either way
    task = make_compare_task()
    if signal != "true score": return task
    questions = random.Random(0).choices(task.train, k=384)
    score = gold_rewards(task.tokenizer, questions, best_of_n_responses(task.sft, task, questions)[0])
    return replace(task, reward_fn=true_reward(task.tokenizer, fit_normalizer(score)))

# ---- a method takes the task, settings, a seed and a function that may look at the policy on its way

def seeded(seed): return Generator().manual_seed(seed)
def start(task): return frozen_copy(task.sft).requires_grad_()
def steps(lr, n_steps): return TrainConfig(lr=lr, n_steps=n_steps, batch_size=64, micro_batch_size=64)
def nothing(task, s, seed, look): return task.sft

def copied(task, rows, s, seed): # the start after imitating these rows
    policy = start(task)
    train_sft(policy, rows, steps(s["lr"], s["n_steps"]), seeded(seed))
    return policy.eval()

def own_answers(task, seed): # a log of the SFT model
    questions = random.Random(seed).choices(task.train, k=SAMPLED)
    return questions, best_of_n_responses(task.sft, task, questions, seed=seed)[0]

def imitate_best(task, s, seed, look): # filtered copying, rejection sampling
    _, seqs = own_answers(task, seed)
    best = task.reward_fn(seqs).argsort(descending=True, stable=True)[:int(SAMPLED * s["share"])]
    return copied(task, seqs[best], s, seed)

def imitate_experts(task, s, seed, look):
    return copied(task, demonstrations(task.tokenizer, task.train, 2048, random.Random(seed), quality=.9), s, seed)

def pairs_of(task, seed): # two answers each
    return sample_pairs(task.sft, task.tokenizer, task.train, SAMPLED // 2, seeded(seed), random.Random(seed))[0]

def imitate_chosen(task, s, seed, look): return copied(task, pairs_of(task, seed).chosen, s, seed)

def dpo(task, s, seed, look):
    policy, data = start(task), precompute_ref_logprobs(task.sft, pairs_of(task, seed))
    train_dpo(policy, data, steps(s["lr"], s["n_steps"]), seeded(seed), partial(dpo_loss, beta=s["beta"]))
    return policy.eval()

def rl(task, s, seed, look, **more): # PPO where there is a lambda, else groups
    policy, knobs = start(task), {k: s[k] for k in ("lr", "beta")}
    prompts = [prompt_ids(task.tokenizer, q) for q in task.train]
    inner = RLTask(prompts, task.reward_fn, task.tokenizer, SamplingParams())
    def watch(row, roll): look(row["iteration"], policy)
    if "lam" in s: train_ppo(ActorCritic(policy, ScalarModel.from_lm(task.sft, seed)), task.sft, inner,
        PPOConfig(**knobs, lam=s["lam"]), seeded(seed), callback=watch)
    else: train_grpo(policy, task.sft, inner, GRPOConfig(**knobs, **more, num_generations=s["group"],
        n_prompts=128 // s["group"]), seeded(seed), callback=watch)
    return policy.eval()

@lru_cache(1)
def q_nets(signal, seed, lr, n_steps): # settings that differ only in how answers are drawn share them
    task = task_told("reward model")
    questions, seqs = own_answers(task, seed)
    reward = .5 + .3 * task.reward_fn(seqs)                # mean and std as those of true score / 5, on which
    if signal == "true score": reward = gold_rewards(task.tokenizer, questions, seqs) / 5      # chapter 16 trains
    nets = QNets(q_network(task.sft), [task.tokenizer.pad_token_id])
    data = make_episodes(seqs, reward, task.tokenizer.eos_token_id)
    train_q(nets, data, steps(lr, n_steps), QConfig(), seeded(seed))
    return nets

def q_learning(task, s, seed, look):
    return QPolicy(q_nets(s["signal"], seed, s["lr"], s["n_steps"]), s["temperature"], ref=task.sft)

TRAIN = {"SFT": nothing, "best of n": nothing, "imitate the best": imitate_best, "PPO": rl, "RLOO": rl,
         "GRPO": partial(rl, advantage_fn=group_normalised, loss_type=LOSS_WEIGHTS["grpo"], kl_in_loss=True),
         "Q-learning": q_learning, "imitate the chosen": imitate_chosen, "DPO": dpo, "imitate experts": imitate_experts,
         "judge (M1)": lambda *_: load_bundled("judge")[0].eval()}

# ---- one run

def asked(questions):
    task = task_told("reward model")
    return task.train[::4] if questions == "training" else task.held_out

@lru_cache(4)
@torch.no_grad()
def best_of_n_curve(signal, questions, seed, k=64): # n -> gold, proxy, kl; k responses to each of 48 questions
    "Best-of-n from one pool: the mean over all ways to take n of the k."
    task = task_told(signal)
    many = [q for q in asked(questions) for _ in range(k)]
    seqs, _ = best_of_n_responses(task.sft, task, many, seed=seed)
    chosen_by, proxy = (t.reward_fn(seqs).view(-1, k) for t in (task, task_told("reward model")))
    gold = gold_rewards(task.tokenizer, many, seqs).view(-1, k)
    def mean(value, n): return expected_best_of_n(chosen_by, value, n).mean().item()
    return {n: dict(gold=mean(gold, n), proxy=mean(proxy, n), kl=best_of_n_kl(n))
            for n in CONTENDERS["best of n", signal].grid["n"] if n <= k}

@torch.no_grad()
def look_at(policy, questions, seed, n=8): # gold, proxy, kl; n answers to each
    "The short evaluation at temperature 1: true score, reward model's score, KL to the SFT model."
    task, many = task_told("reward model"), [q for q in questions for _ in range(n)]
    seqs, logp = best_of_n_responses(policy, task, many, seed=seed)
    ref_logp = in_batches(lambda rows: logprobs(task.sft, rows), seqs)
    found = dict(gold=gold_rewards(task.tokenizer, many, seqs), proxy=task.reward_fn(seqs),
                 kl=response_kl(logp, ref_logp, seqs.response_mask))
    return {name: x.mean().item() for name, x in found.items()}

@torch.no_grad()
def run_contender(train, settings, seed): # settings: signal, questions ("training" or "held-out"), the knobs of its grid
    "Train a method and evaluate it: in short on training questions, in full, with its way, on held-out ones."
    signal, questions = settings["signal"], settings["questions"]
    task, last = task_told(signal), questions == "held-out"
    if "n" in settings and not last: return best_of_n_curve(signal, questions, seed)[settings["n"]]
    way, began, pause = [], time.process_time(), 0.
    @torch.no_grad()
    def look(rollout, policy): # a point of the way, six times in a run
        nonlocal pause
        begun = time.process_time()
        if last and rollout % 3 == 0: way.append(look_at(policy, asked(questions), seed, 4))
        pause += time.process_time() - begun
    with torch.enable_grad(): policy = train(task, settings, seed, look)
    spent = time.process_time() - began - pause
    if not last: return look_at(policy, asked(questions), seed)
    found = measure_policy(policy, task_told("reward model"), task.sft, 1, seed)
    if "n" in settings:       # greedy answers are all alike: there is nothing to choose
        way = list(best_of_n_curve(signal, questions, seed).values())
        found = best_of_n_curve(signal, questions, seed)[settings["n"]]
    return found | dict(train_seconds=spent, way_kl=[p["kl"] for p in way], way_gold=[p["gold"] for p in way])

def search(c, home=ARENA): # an Experiment for each setting of its grid, on training questions
    settings = dict(signal=c.signal, start="sft", samples=c.samples, questions="training")
    return [Experiment(c.name, partial(run_contender, TRAIN[c.name]), settings | dict(zip(c.grid, knobs)), home)
            for knobs in product(*c.grid.values())]

SPEAKERS = [(name, "reward model") for name in ("SFT", "PPO", "RLOO", "GRPO", "Q-learning")] + [("DPO", "comparisons")]

def keep_answers(path, questions, seed=REPORTED[0]): # policies of this seed, one answer to each question at temperature 1
    task, said = task_told("reward model"), {}
    for name, signal in SPEAKERS:
        told = winner(CONTENDERS[name, signal])
        policy = TRAIN[name](task_told(signal), told, seed, lambda *_: None)
        seqs, _ = best_of_n_responses(policy, task, questions, seed=seed)
        texts = [response_text(task.tokenizer, row[mask].tolist()) for row, mask in zip(seqs.ids, seqs.response_mask)]
        said[name] = dict(settings=told, seed=seed, answers=texts)
    atomic_write(path, json.dumps(said, indent=1, ensure_ascii=False) + "\n")

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--method", nargs="+", default=[*TRAIN], choices=[*TRAIN], metavar="NAME")
    p.add_argument("--signal", nargs="+", default=[*SIGNALS], choices=SIGNALS, metavar="PANEL", help="by what told")
    p.add_argument("--seeds", nargs="+", type=int, default=[*REPORTED], metavar="N", help="of the reported runs")
    p.add_argument("-o", "--out", default=str(ARENA), metavar="FILE", help="for the reported rows")
    p.add_argument("--answers", metavar="FILE", help="write four answers of six winners, and nothing else")
    args = p.parse_args()
    torch.set_num_threads(1)
    if args.answers: return keep_answers(args.answers, asked("held-out")[:4])
    for c in CONTENDERS.values():
        if c.name not in args.method or c.signal not in args.signal: continue
        first, *_ = tries = search(c)
        for experiment in tries if c.grid else []:
            for row in experiment.over(TUNED): show(row)
        best = replace(first, settings=winner(c), home=args.out)
        for seed in args.seeds:                               # with PPO's other lambda, too: one knob, two rewards
            for x in [best.but(lam=lam) for lam in (.8, 1.)] if c.name == "PPO" else [best]:
                for row in x.over([seed]): show(row)

def show(row):
    told = {k: x for k, x in row["settings"].items() if k not in ("start", "samples")}
    print(row["name"], told, row["seed"], f"true score {row['found']['gold']:.2f}, {row['cpu_seconds']} CPU s", flush=True)

if __name__ == "__main__": main()
