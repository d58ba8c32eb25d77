"""Critic-free methods over seeds: on the embedded world against the reward model, and on sums.

    python benchmarks/bench_grpo_seeds.py                       # both, three seeds
    python benchmarks/bench_grpo_seeds.py --part world --seeds 1

World: every run starts from the shipped SFT model and learns from the shipped reward model; 18
rollouts of 128 responses, as PPO has; 48 held-out questions, 8 answers each at temperature 1 and .7,
one greedy answer each. Seeds change prompts, samples and minibatches.

Sums: every run starts from a model that imitated a log in which a share of the writers carries
(`carry_prob`); 60 rollouts of 128 responses, right or wrong decides the reward; 180 held-out sums,
64 samples each at temperature 1, one greedy. Beside them filtered copying of as many samples, and
copying the right rows of the log, which samples nothing.

Form: one answer in five of the log closes with =; 60 rollouts of RLOO whose reward asks for the right digits
in that form, for these and for the form, or for the form alone.

Tables go to stdout, numbers to nbs/results/grpo.json, from which the chapter draws.
"""
import argparse, copy, json, random, statistics, time
from pathlib import Path
import torch
from rlhf_nb.arithmetic import Sum, noisy_answer, solve, sum_tokenizer
from rlhf_nb.grpo import group_normalised, mean_baseline, pass_at_k
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, train_grpo
from rlhf_nb.kl import response_kl
from rlhf_nb.base.learning import TrainConfig
from rlhf_nb.base.models import ScalarModel, frozen_copy, load_bundled, tiny_lm
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.trainers.ppo_trainer import PPOConfig, RLTask, train_ppo
from rlhf_nb.reward import score_seqs
from rlhf_nb.base.scores import fit_normalizer
from rlhf_nb.trainers.reward_tools import make_reward_fn
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.sft import train_sft
from rlhf_nb.base.batches import pad_and_eos, response_text
from rlhf_nb.tokens import make_seqs
from rlhf_nb.world import gold_rewards
from rlhf_nb.worlds.world_text import TEST, TRAIN, parse_sentences, prompt_ids

def no_baseline(reward, group): return reward.nan_to_num(0.) # REINFORCE as it was
OUT = Path(__file__).parents[1]/"nbs/results/grpo.json"
G = GRPOConfig
GRPO = dict(advantage_fn=group_normalised, loss_type="grpo", kl_in_loss=True)
RLOO = G(beta=.1)
WORLD = {"PPO, lambda .8": PPOConfig(), "PPO, lambda 1": PPOConfig(lam=1.), "RLOO": RLOO,
         "RLOO, beta .3": G(), "GRPO": G(beta=.1, **GRPO),
         "RLOO + std": G(beta=.1, advantage_fn=group_normalised),
         "RLOO + 1/|o|": G(beta=.1, loss_type="grpo"),
         "RLOO + k3 in loss": G(beta=.1, kl_in_loss=True),
         "RLOO + clip-higher": G(beta=.1, epsilon_high=.28),
         "RLOO + sequence ratio": G(beta=.1, importance_sampling_level="sequence"),
         "RLOO + sequence ratio, 4e-4": G(beta=.1, importance_sampling_level="sequence", epsilon=3e-4, epsilon_high=4e-4),
         **{f"8 steps{name}": G(beta=.1, num_iterations=8, **more) for name, more in {
             "": {}, ", clip-higher": dict(epsilon_high=.28), ", clip .6": dict(epsilon=.6, epsilon_high=.6),
             ", cispo": dict(token_loss="cispo")}.items()}}
SUMS = dict(n_iterations=60, beta=0., num_iterations=4, lr=3e-4)
CRITIC_FREE = {"RLOO, 16 x 8": G(**SUMS), "GRPO, 16 x 8": G(**SUMS, **GRPO | dict(kl_in_loss=False)),
               "RLOO, 64 x 2": G(n_prompts=64, num_generations=2, **SUMS),
               "RLOO, 16 x 8, dynamic": G(dynamic_sampling=2, **SUMS),
               **{f"{name}, 128 x 1": G(n_prompts=128, num_generations=1, advantage_fn=fn, **SUMS) for name, fn in (
                   ("mean baseline", mean_baseline), ("no baseline", no_baseline))}}
SUMS_RUNS = ["start", "copy the right rows", "filtered copying", *CRITIC_FREE]
COPY = TrainConfig(lr=3e-3, n_steps=800, batch_size=64, micro_batch_size=64)
LEARN = TrainConfig(lr=3e-3, n_steps=400, batch_size=64, micro_batch_size=64)


def seeded(seed): return torch.Generator().manual_seed(seed)


# ---- the embedded world

def measure(policy, ref, proxy, tokenizer, temperature=1., n=8):
    questions = TEST * n
    seqs, _ = generate_many(policy, [prompt_ids(tokenizer, q) for q in questions], tokenizer,
                            SamplingParams(temperature=temperature), seeded(1), 128)
    gold = gold_rewards(tokenizer, questions, seqs).mean().item()
    if temperature != 1: return gold
    texts = [response_text(tokenizer, ids[m].tolist()) for ids, m in zip(seqs.ids, seqs.response_mask)]
    with torch.no_grad():
        kl = response_kl(logprobs(policy, seqs), logprobs(ref, seqs), seqs.response_mask)
    flattery = sum(s.kind == "flattery" for t in texts for s in parse_sentences(t)) / len(texts)
    return dict(gold=gold, proxy=proxy(seqs).mean().item(), kl=kl.mean().item(), flattery=flattery,
                length=seqs.response_mask.sum(1).float().mean().item())


def world_run(name, seed):
    config = WORLD[name]
    (policy, tokenizer), (rm, _) = load_bundled("sft"), load_bundled("reward")
    ref = frozen_copy(policy)
    first, _ = generate_many(ref, [prompt_ids(tokenizer, q) for q in TEST * 8], tokenizer,
                             SamplingParams(), seeded(0), 128)
    proxy = make_reward_fn(rm, fit_normalizer(score_seqs(rm, first)))
    task = RLTask([prompt_ids(tokenizer, q) for q in TRAIN], proxy, tokenizer, SamplingParams())
    policy.requires_grad_()
    began = time.process_time()
    if isinstance(config, PPOConfig):
        trainer = train_ppo(ActorCritic(policy, ScalarModel.from_lm(ref)), ref, task, config, seeded(seed))
    else: trainer = train_grpo(policy, ref, task, config, seeded(seed))
    cpu, rows = time.process_time() - began, trainer.log.rows
    clipped = [[step.get(f"clip_ratio/{end}_mean", 0.) for end in ("low", "high")] # shares of tokens, at the last step of
               for step, row in zip(rows, rows[1:]) if "iteration" in row]         # each rollout: the row before its own
    low, high = [statistics.mean(x) for x in zip(*clipped)]
    return dict(run=name, seed=seed, cpu_s=cpu, **measure(policy, ref, proxy, tokenizer), clip_low=low, clip_high=high,
                gold_07=measure(policy, ref, proxy, tokenizer, .7),
                greedy=measure(policy, ref, proxy, tokenizer, 0., 1))


# ---- sums

TOKENIZER = sum_tokenizer()
PAD, EOS = pad_and_eos(TOKENIZER)
EVERY = [Sum(a, b) for a in range(10, 100) for b in range(10)]
random.Random(0).shuffle(EVERY)
HELD, SEEN = EVERY[:180], EVERY[180:]
CARRY = torch.tensor([s.carries for s in HELD])
PROMPT = {s: TOKENIZER(s.question).input_ids for s in EVERY}
ANSWER = {tuple(PROMPT[s]): TOKENIZER(solve(s.question)).input_ids + [EOS] for s in EVERY}


def solved(seqs): # Seqs -> (b) 1. where the answer is right, else 0.
    prompt = seqs.attention_mask & ~seqs.response_mask
    return torch.tensor([float(ids[r].tolist() == ANSWER[tuple(ids[p].tolist())])
                         for ids, p, r in zip(seqs.ids, prompt, seqs.response_mask)])


def sample(policy, sums, n=1, temperature=1., generator=None):
    seqs, _ = generate_many(policy, [PROMPT[s] for s in sums for _ in range(n)], TOKENIZER,
                            SamplingParams(5, temperature=temperature), generator or seeded(1), 512)
    return seqs, solved(seqs).view(-1, n)


def imitate(carry_prob, seed, closed=0.): # the policy to start from, and the log; closed: the share of answers in the form
    rng, form = random.Random(seed), random.Random(seed)
    sums = rng.choices(SEEN, k=6000)
    answers = [TOKENIZER(noisy_answer(s, rng, carry_prob) + "=" * (form.random() < closed)).input_ids + [EOS] for s in sums]
    log = make_seqs([PROMPT[s] for s in sums], answers, PAD)
    lm = tiny_lm(TOKENIZER, seed=seed)
    train_sft(lm, log, COPY, seeded(seed))
    return lm.eval(), log


def sums_measure(policy, n=64):
    greedy = sample(policy, HELD, 1, 0.)[1][:, 0]
    right = sample(policy, HELD, n)[1].sum(1)
    out = dict(greedy=greedy.mean().item(), greedy_carry=greedy[CARRY].mean().item())
    for k in (1, 4, 16, 64):
        x = pass_at_k(right, n, k)
        out |= {f"pass@{k}": x.mean().item(), f"pass@{k} carry": x[CARRY].mean().item()}
    return out


def reinforce(policy, config, seed, reward=solved):
    flat, drawn = [], []
    task = RLTask([PROMPT[s] for s in SEEN], reward, TOKENIZER, SamplingParams(5))
    def look(row, roll): flat.append(row["frac_reward_zero_std"]); drawn.append(row["n_responses"])
    train_grpo(policy.requires_grad_(), frozen_copy(policy), task, config, seeded(seed), callback=look)
    return dict(responses=sum(drawn), flat=[statistics.mean(flat[i:i + 10]) for i in range(0, len(flat), 10)])


def noise(policy, seed, n=400): # of one answer's gradient under three constant baselines; both kinds' squared size
    seqs, right = sample(policy, random.Random(seed).choices(SEEN, k=n), 1, 1., seeded(seed))
    score, params = (logprobs(policy, seqs) * seqs.response_mask).sum(1), [x for x in policy.parameters() if x.requires_grad]
    g = torch.stack([torch.cat([x.flatten() for x in torch.autograd.grad(s, params, retain_graph=True)]) for s in score])
    r, size = right[:, 0], g.square().sum(1)
    best = ((r * size).mean() / size.mean()).item()
    def variance(b): return (((r - b)[:, None] * g).var(0).sum()).item()
    return dict(best=best, mean=r.mean().item(), right=size[r > 0].mean().item(), wrong=size[r == 0].mean().item(),
                at_0=variance(0.), at_mean=variance(r.mean().item()), at_best=variance(best))


def filtered_copying(policy, seed, rounds=6, n=1280, steps=40): # expert iteration
    generator = seeded(seed)
    for _ in range(rounds):
        rows = torch.randint(len(SEEN), (n,), generator=generator).tolist()
        seqs, right = sample(policy, [SEEN[i] for i in rows], 1, 1., generator)
        config = TrainConfig(lr=1e-3, n_steps=steps, batch_size=64, micro_batch_size=64,
                             warmup_steps=5, final_lr_frac=1.)
        train_sft(policy.requires_grad_(), seqs[right[:, 0] > 0], config, generator)
        policy.eval()
    return dict(responses=rounds * n)


def sums_runs(carry_prob, seed, only):
    lm, log = imitate(carry_prob, seed)
    def row(name, policy, began, **more):
        return dict(run=name, carry_prob=carry_prob, seed=seed, cpu_s=time.process_time() - began,
                    **sums_measure(policy), **more)
    if "start" in only:
        yield row("start", lm, time.process_time(), responses=0, noise=noise(copy.deepcopy(lm).requires_grad_(), seed))
    policy, began = copy.deepcopy(lm), time.process_time()
    if "copy the right rows" in only:
        train_sft(policy.requires_grad_(), log[solved(log) > 0], LEARN, seeded(seed))
        yield row("copy the right rows", policy.eval(), began, responses=0)
    policy, began = copy.deepcopy(lm), time.process_time()
    if "filtered copying" in only: yield row("filtered copying", policy, began, **filtered_copying(policy, seed))
    for name in (name for name in CRITIC_FREE if name in only):
        config = CRITIC_FREE[name]
        policy, began = copy.deepcopy(lm), time.process_time()
        more = reinforce(policy, config, seed)
        yield row(name, policy.eval(), began, **more)


def in_form(seqs): # Seqs -> (b) 1. where the answer closes with = and ends, and (b) 1. where its digits are right, too
    prompt, close = seqs.attention_mask & ~seqs.response_mask, TOKENIZER("=").input_ids
    said = [(tuple(ids[p].tolist()), ids[r].tolist()) for ids, p, r in zip(seqs.ids, prompt, seqs.response_mask)]
    form = torch.tensor([float(y[-2:] == close + [EOS]) for _, y in said])
    return form, form * torch.tensor([float(y[:-2] == ANSWER[q][:-1]) for q, y in said])


FORM = {"start": None, "right": lambda s: in_form(s)[1], "right + form": lambda s: sum(in_form(s)),
        "form": lambda s: in_form(s)[0]}

def form_runs(seed): # one answer in five closes with =; an answer counts only in that form
    lm, _ = imitate(.4, seed, .2)
    for name, reward in FORM.items():
        policy, began = copy.deepcopy(lm), time.process_time()
        if reward: reinforce(policy, CRITIC_FREE["RLOO, 16 x 8"], seed, reward)
        form, right = in_form(sample(policy.eval(), HELD, 16)[0])
        yield dict(run=name, seed=seed, cpu_s=time.process_time() - began, form=form.mean().item(),
                   right=right.mean().item(), digits=(right.sum() / form.sum()).item())


def table(rows, keys):
    for name in dict.fromkeys(r["run"] for r in rows):
        mine = [r for r in rows if r["run"] == name]
        cells = [f"{k} {statistics.mean(r[k] for r in mine):.2f}"
                 f"±{statistics.stdev([r[k] for r in mine]) if len(mine) > 1 else 0:.2f}" for k in keys]
        print(f"{name:26}", "  ".join(cells), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("world", "sums", "form"), nargs="+", default=["world", "sums", "form"])
    parser.add_argument("--seeds", type=int, default=3, help="how many (default: 3)")
    parser.add_argument("--first", type=int, default=40, help="the first of them (default: 40)")
    parser.add_argument("--only", nargs="+", default=[*WORLD, *SUMS_RUNS], help="runs by name (default: all)")
    parser.add_argument("--json", type=Path, default=OUT, help="default: nbs/results/grpo.json")
    a = parser.parse_args()
    torch.set_num_threads(1)
    saved = json.loads(a.json.read_text("utf-8")) if a.json.is_file() else {}
    seeds = range(a.first, a.first + a.seeds)
    if "world" in a.part:
        rows = [world_run(name, seed) for name in WORLD if name in a.only for seed in seeds]
        table(rows, ("gold", "gold_07", "greedy", "proxy", "kl", "flattery", "cpu_s"))
        kept = [r for r in saved.get("world", []) if r["run"] not in a.only]
        saved["world"] = sorted(kept + rows, key=lambda r: list(WORLD).index(r["run"]))
    if "sums" in a.part:
        rows = [row for p in (.4, .1) for seed in seeds for row in sums_runs(p, seed, a.only)]
        kept = [r for r in saved.get("sums", []) if r["run"] not in a.only]
        saved["sums"] = sorted(kept + rows, key=lambda r: (-r["carry_prob"], r["seed"], SUMS_RUNS.index(r["run"])))
        for p in (.4, .1):
            print(f"carry_prob {p}")
            table([r for r in saved["sums"] if r["carry_prob"] == p],
                  ("greedy", "pass@1", "pass@1 carry", "pass@16 carry", "pass@64 carry", "cpu_s"))
    if "form" in a.part:
        saved["form"] = [row for seed in seeds for row in form_runs(seed)]
        table(saved["form"], ("form", "right", "digits", "cpu_s"))
    saved |= dict(command="python benchmarks/bench_grpo_seeds.py", seeds=list(seeds), settings=dict(
        world={name: repr(config) for name, config in WORLD.items()},
        sums={name: repr(config) for name, config in CRITIC_FREE.items()}))
    a.json.write_text(json.dumps(saved, indent=1) + "\n", "utf-8")


if __name__ == "__main__": main()
