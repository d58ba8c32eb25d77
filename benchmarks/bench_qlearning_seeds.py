"""Q-learning from a log of the embedded world, over seeds, beside two controls.

    python benchmarks/bench_qlearning_seeds.py               # 3 seeds, 10 CPU minutes
    python benchmarks/bench_qlearning_seeds.py --seeds 1 --only main

Every seed logs 4,000 answers of the shipped SFT model to training questions, scored with the true
score / 5, and learns from that log alone. Judged on 48 held-out questions, 8 answers each at
temperature 1 (one each where greedy), by the true score. HL-Gauss has 21 bins and the best alpha of
1, 10, 100, 300 and 1000 on seed 0 (greedy 2.79, 3.21, 4.00, 3.81, 3.50; lr 4e-3 at alpha 1: 1.00;
squared error at alpha 1: 5.00). Controls: greedy SFT, and SFT on the best quarter of the same log.
Temperatures and settings were chosen on seed 0 with training questions; the table is made with seeds
from --first on. It goes to stdout, the numbers to
nbs/results/qlearning.json, from which the chapter draws.
"""
import argparse, copy, json, random, statistics, time
from dataclasses import asdict
from pathlib import Path
import torch
from rlhf_nb.base.learning import TrainConfig
from rlhf_nb.base.models import frozen_copy, load_bundled
from rlhf_nb.base.q_networks import QNets, make_episodes, q_network
from rlhf_nb.trainers.q_trainer import QPolicy, train_q
from rlhf_nb.base.q_networks import QConfig
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.sft import train_sft as imitate
from rlhf_nb.world import gold_rewards
from rlhf_nb.worlds.world_text import TEST, TRAIN, prompt_ids

RECIPE = TrainConfig(lr=1e-3, n_steps=300, batch_size=64, micro_batch_size=64)
IMITATE = TrainConfig(lr=1e-3, n_steps=100, batch_size=64, micro_batch_size=64)
N_LOG, TAU, TAU_REF, BINS = 4000, .02, .05, 21
RUNS = {"main": QConfig(), "no conservative term": QConfig(alpha=0.),
        "LM head kept": QConfig(), "no MC bound": QConfig(mc_bound=False),
        "double": QConfig(double_q=True), "dueling head": QConfig(),
        "HL-Gauss, alpha 100": QConfig(alpha=100.),
        "gamma .95": QConfig(gamma=.95), "gamma .95 by response": QConfig(gamma=.95, discount_per="response")}


def plain(pairs): return {k: v for k, v in pairs if not callable(v)}      # what JSON can hold


def seeded(seed): return torch.Generator().manual_seed(seed)


def answers(policy, tokenizer, asked, config, seed):
    prompts = [prompt_ids(tokenizer, q) for q in asked]
    return generate_many(policy, prompts, tokenizer, config, seeded(seed), 128)[0]


def measure(policy, tokenizer, greedy=False, questions=TEST):
    "Mean gold and length on held-out questions; a greedy answer has no chance in it."
    asked = [q for q in questions for _ in range(1 if greedy else 8)]
    seqs = answers(policy, tokenizer, asked, SamplingParams(temperature=1. - greedy), 1)
    return dict(gold=gold_rewards(tokenizer, asked, seqs).mean().item(),
                length=seqs.response_mask.sum(1).float().mean().item())


def logged(sft, tokenizer, seed):
    "Somebody else's behaviour, and what it was worth."
    asked = random.Random(seed).choices(TRAIN, k=N_LOG)
    seqs = answers(sft, tokenizer, asked, SamplingParams(), seed)
    return seqs, gold_rewards(tokenizer, asked, seqs)


def networks(name, sft, tokenizer):
    q = q_network(sft, dueling=name == "dueling head", n_bins=BINS * name.startswith("HL-Gauss"))
    if name == "LM head kept": q.get_output_embeddings().load_state_dict(
        sft.get_output_embeddings().state_dict())
    return QNets(q, [tokenizer.pad_token_id])


def controls(sft, tokenizer, seed, seqs, gold):
    "What the same log gives to those who only imitate."
    rows = [dict(run="behaviour", policy="log", seed=seed, gold=gold.mean().item(),
                 length=seqs.response_mask.sum(1).float().mean().item(), cpu_s=0.)]
    best, began = copy.deepcopy(sft).requires_grad_(), time.process_time()
    imitate(best, seqs[gold.argsort(descending=True)[:N_LOG // 4]], IMITATE, seeded(seed))
    seconds = time.process_time() - began
    for name, model, cpu in (("SFT", sft, 0.), ("SFT, best quarter", best, seconds)):
        for policy in ("sampled", "greedy"): rows.append(dict(
            run=name, policy=policy, seed=seed, cpu_s=cpu, **measure(model, tokenizer, policy == "greedy")))
    return rows


def run(name, sft, tokenizer, seed, data):
    "One training run, judged as three policies."
    nets, began = networks(name, sft, tokenizer), time.process_time()
    trainer = train_q(nets, data, RECIPE, RUNS[name], seeded(seed))
    cpu = time.process_time() - began
    end = trainer.log.rows[-20:]
    keys = dict(td="td_loss", others="conservative_loss", q="q_values", target="td_target")
    facts = {k: statistics.mean(row[name] for row in end) for k, name in keys.items()}
    curve = [dict(step=r["step"], q=r["q_values"], target=r["td_target"]) for r in trainer.log.rows[::10]]
    ways = {"greedy": QPolicy(nets, 0.), "softmax(Q/tau)": QPolicy(nets, TAU),
            "reference x exp(Q/tau)": QPolicy(nets, TAU_REF, ref=sft)}
    return [dict(run=name, policy=way, seed=seed, cpu_s=cpu, **measure(p, tokenizer, way == "greedy"),
                 **facts, curve=curve) for way, p in ways.items()]


def table(rows):
    print(f"{'run':24}{'policy':24}{'gold':>14}{'length':>10}{'CPU s':>8}")
    for name, policy in dict.fromkeys((r["run"], r["policy"]) for r in rows):
        mine = [r for r in rows if (r["run"], r["policy"]) == (name, policy)]
        gold = [r["gold"] for r in mine]
        spread = statistics.stdev(gold) if len(gold) > 1 else 0.
        length, cpu = (statistics.mean(r[k] for r in mine) for k in ("length", "cpu_s"))
        print(f"{name:24}{policy:24}{statistics.mean(gold):8.2f}+-{spread:4.2f}{length:10.1f}{cpu:8.1f}")


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("--seeds", type=int, default=3)
    args.add_argument("--first", type=int, default=20, help="the first seed")
    args.add_argument("--only", choices=RUNS, nargs="+", help="these runs; the others stay as they are in the file")
    args.add_argument("--json", type=Path, default=Path(__file__).parents[1]/"nbs/results/qlearning.json")
    args = args.parse_args()
    torch.set_num_threads(1)
    sft, tokenizer = load_bundled("sft")
    sft, names = frozen_copy(sft), args.only or list(RUNS)
    old = json.loads(args.json.read_text())["rows"] if args.only and args.json.exists() else []
    seeds = range(args.first, args.first + args.seeds)
    made = []
    for seed in seeds:
        seqs, gold = logged(sft, tokenizer, seed)
        if not args.only or "main" in names: made += controls(sft, tokenizer, seed, seqs, gold)
        data = make_episodes(seqs, gold / 5, tokenizer.eos_token_id)
        for name in names:
            made += run(name, sft, tokenizer, seed, data)
            print(f"seed {seed} {name}: " + ", ".join(f"{r['policy']} {r['gold']:.2f}" for r in made[-3:]), flush=True)
    done = {(r["run"], r["seed"]) for r in made}
    rows = [r for r in old if (r["run"], r["seed"]) not in done] + made
    table(rows)
    out = dict(command="python benchmarks/bench_qlearning_seeds.py", settings=dict(
        n_log=N_LOG, tau=TAU, tau_ref=TAU_REF, recipe=asdict(RECIPE, dict_factory=plain), imitate=asdict(IMITATE, dict_factory=plain),
        runs={k: asdict(v, dict_factory=plain) for k, v in RUNS.items()}), rows=rows)
    args.json.parent.mkdir(exist_ok=True)
    args.json.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__": main()
