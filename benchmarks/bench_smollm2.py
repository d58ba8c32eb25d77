"""A real model and real preferences, on a CPU: SmolLM2-135M-Instruct, for chapter 19.

    rlhf-nb fetch smollm2 smollm2
    python benchmarks/bench_smollm2.py --model smollm2 --prefs PAIRS.jsonl           # about 35 CPU minutes
    python benchmarks/bench_smollm2.py --model smollm2 --part grpo                   # 5, without preferences

float32, one thread, seed 0, LoRA of rank 16 by `rlhf-nb train`, each run once. PAIRS has rows of prompt, chosen,
rejected; the published numbers are of 900 rows from rasbt/LLMs-from-scratch (ch07, Apache-2.0), in which the chosen
answer is the politer one of two. 180 of its pairs, split off by prompt, are never trained on.

    reward   320 pairs, one pass (20 steps of 16); on the same pairs a tiny model from scratch, and two linear models
             of the pairs' differences: counts of words, and the last hidden state of the fetched model (the head alone);
             the tiny model also on all pairs, with 100 held out, three seeds
    fitted   the same pairs again, from the head alone in place of random weights: 12 steps of 16
    dpo      192 other pairs, one pass (12 steps of 16), beta .1
    sft      the chosen side of those 192, as many steps, same learning rate: what imitation alone would do
    answers  of the three policies to 40 held-out prompts, greedily and at temperatures .5 and 1 (2 each, 40 tokens),
             scored by the model of `fitted`, which has seen none of the pairs of DPO; length; KL to the fetched model
    grpo     sums of two digits from 1 to 9: 53 to learn from, 8 that the run holds out, 20 that it never sees, each
             evaluated greedily and at temperatures .5 and 1 (8 answers); the reward is 1 if the last number of the
             answer is the sum

Numbers go to nbs/results/smollm2.json, part by part. A finished training run is not run again, an interrupted one
goes on; CPU seconds are of the parts that ran.
"""
import argparse, json, os, random, re, sys, time
from collections import Counter
from pathlib import Path
import torch
from torch.nn.functional import logsigmoid
from rlhf_nb.data.text import encode_prompt, load_pairs
from rlhf_nb.dpo import log_ratio_gap, precompute_ref_logprobs
from rlhf_nb.kl import response_kl
from rlhf_nb.base.learning import TrainConfig
from rlhf_nb.base.models import (ScalarModel, add_lora, eval_mode, load_lm, load_reward_model, load_tokenizer,
    merge_adapters, save_reward_model)
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.run.start import add_scalar_head
from rlhf_nb.run.text_rewards import decode_seqs
from rlhf_nb.reward import preference_accuracy, score_pairs, score_seqs, train_reward
from rlhf_nb.trainers.reward_tools import length_bias
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.tokens import last_token_index
from rlhf_nb.book.command import main as shell

ROOT = Path(__file__).resolve().parents[1]
ASK = "What is {a} plus {b}? Answer with the number only."
REWARD = '''"The reward of the sums."
import re

def right(prompts, responses, answer):
    "1 if the last number of a response is the answer, else 0."
    last = [(re.findall(r"\\d+", text) or [""])[-1] for text in responses]
    return [float(x == str(y)) for x, y in zip(last, answer)]
'''
TEMPERATURES = 0., .5, 1.
N_TEST, N_REWARD, N_DPO, N_EVAL = 180, 320, 192, 20      # pairs; N_EVAL: what a run holds out of its own file
SIZES = 40, 80, 160, 320                                 # pairs that a linear model learns from
LORA = ["--lora-r", 16, "--max-length", 128, "--micro-batch-size", 8, "--batch-size", 16, "--eval-rows", N_EVAL]


def train(*words):
    line = " ".join(map(str, words))
    print("$ rlhf-nb train", line, flush=True)
    began, out = time.process_time(), Path(words[words.index("-o") + 1])
    took = out.with_name(out.name + "_cpu_s.txt")
    if not took.is_file():
        status = shell(["train", *map(str, words)])
        if status: sys.exit(status)
        took.write_text(str(round(time.process_time() - began)))
    return run_of(out)["results"] | dict(cpu_s=int(took.read_text()))


def run_of(folder): return json.loads((Path(folder)/"run.json").read_text("utf-8"))


def log_of(folder): return [json.loads(line) for line in (Path(folder)/"log.jsonl").read_text("utf-8").splitlines()]


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def mean_and_error(x): return dict(mean=x.mean().item(), standard_error=(x.std() / len(x)**.5).item())


def of_right(chosen, rejected):
    p, n = preference_accuracy(chosen, rejected), len(chosen)
    return dict(accuracy=p, standard_error=(p * (1 - p) / n)**.5, n=n)


def split(a):
    "Write the files of the parts; prompts of one never occur in another. Gives the pairs of each."
    rows = [json.loads(line) for line in a.prefs.read_text("utf-8").splitlines()]
    rows = [dict(prompt=r["prompt"], chosen=r["chosen"], rejected=r["rejected"])
            for r in rows if r["chosen"] != r["rejected"]]
    order = sorted({r["prompt"] for r in rows})
    random.Random(0).shuffle(order)
    place = {p: i for i, p in enumerate(order)}
    rows.sort(key=lambda r: place[r["prompt"]])                    # stable: a prompt's rows stay together
    parts = {}
    for name, n in ("test", N_TEST), ("reward", N_REWARD + N_EVAL), ("dpo", N_DPO + N_EVAL):
        while rows[n - 1]["prompt"] == rows[n]["prompt"]: n += 1
        parts[name], rows = rows[:n], rows[n:]
        write_rows(a.out/f"{name}.jsonl", parts[name])
    return parts


# ---- reward

def words_of(text): return Counter(re.findall(r"\w+|[^\w\s]", text.lower()))


def fit_linear(x, l2):
    "Weights w (d) of the logistic regression sigma(w . x) = 1 on the differences x (n d), with a ridge."
    w = torch.zeros(x.shape[1], requires_grad=True)
    best = torch.optim.LBFGS([w], max_iter=200, line_search_fn="strong_wolfe")
    def loss():
        best.zero_grad()
        total = -logsigmoid(x @ w).mean() + l2 * w.square().sum() / 2
        total.backward()
        return total
    best.step(loss)
    return w.detach()


def choose_linear(x, folds=5):
    "The ridge with the best accuracy in cross-validation, and the weights that it gives on all rows."
    parts = torch.arange(len(x)) % folds
    def held_out(l2): return sum((x[parts == k] @ fit_linear(x[parts != k], l2) > 0).sum().item() for k in range(folds))
    l2 = max((1e-3, 1e-2, 1e-1, 1.), key=held_out)
    return fit_linear(x, l2)


def learning_curve(learn, test, seeds=5):
    "Accuracy of a linear model on test differences, for several sizes and orders of the training differences."
    found = []
    for n in SIZES:
        orders = [torch.randperm(len(learn), generator=torch.Generator().manual_seed(s)) for s in range(seeds)]
        if n >= len(learn): orders = [torch.arange(len(learn))]
        right = [preference_accuracy(test @ choose_linear(learn[order[:n]]), torch.zeros(len(test))) for order in orders]
        found.append(dict(pairs=n, accuracy=sum(right) / len(right), lowest=min(right), highest=max(right)))
    return found


@torch.no_grad()
def last_states(lm, seqs, batch_size=16):
    "Hidden state (b d) that a scalar head would read: of the last real token."
    order, parts = seqs.lengths().argsort(), []
    for rows in order.split(batch_size):
        x = seqs[rows].trim()
        out = lm.base_model(input_ids=x.ids, attention_mask=x.attention_mask.long(), use_cache=False)
        parts.append(out.last_hidden_state[torch.arange(len(x)), last_token_index(x.attention_mask)])
    return torch.cat(parts)[order.argsort()]


def counted(rows, known):
    "How often each known word occurs in the chosen answer, less how often in the rejected one (n d)."
    return torch.tensor([[float(c[w] - d[w]) for w in known] for r in rows
                         for c, d in [(words_of(r["chosen"]), words_of(r["rejected"]))]])


def word_weights(rows):
    "Words of the answers, and the weight of each in the linear model of their counts."
    known = sorted({w for r in rows for side in ("chosen", "rejected") for w in words_of(r[side])})
    return known, choose_linear(counted(rows, known))


def linear_models(a, parts):
    learn, test = parts["reward"][:N_REWARD], parts["test"]
    known, weights = word_weights(learn)
    words, words_test = counted(learn, known), counted(test, known)
    order = weights.argsort()
    kept = a.out/"states.pt"
    if not kept.is_file():
        lm, tokenizer = load_lm(a.model, pad_token="<pad>")
        states = []
        for name, n in ("reward", N_REWARD), ("test", len(test)):
            pairs = load_pairs(a.out/f"{name}.jsonl", tokenizer, 128)[0][:n]
            states.append(last_states(lm.eval(), pairs.chosen) - last_states(lm, pairs.rejected))
        torch.save(states, kept)
    found = {}
    for name, (x, y) in dict(words=(words, words_test), head=torch.load(kept)).items():
        found[name] = judged(a, y @ choose_linear(x)) | dict(curve=learning_curve(x, y))
    return found | dict(top_words=dict(rejected=[known[i] for i in order[:10].tolist()],
                                       chosen=[known[i] for i in order.flip(0)[:10].tolist()]))


def scored(a, name, max_length=128):
    "Differences (n) of a reward model's scores of the test pairs, chosen less rejected; kept beside the runs."
    kept, folder = a.out/f"{name}_test.json", a.out/name
    if not kept.is_file():
        scores = score_pairs(load_reward_model(folder), load_pairs(a.out/"test.jsonl", load_tokenizer(folder), max_length)[0])
        kept.write_text(json.dumps([round(x, 4) for x in (scores[0] - scores[1]).tolist()]))
    return torch.tensor(json.loads(kept.read_text()))


def judged(a, gap):
    "Accuracy on the test pairs, with its standard error, and apart for pairs whose chosen side has more or fewer tokens."
    tokenizer = load_tokenizer(a.model)
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    pairs = load_pairs(a.out/"test.jsonl", tokenizer, 128)[0]
    return of_right(gap, torch.zeros(len(gap))) | dict(length=length_bias(pairs, gap, torch.zeros(len(gap))))


def worst(a, gap, n=4):
    rows = [json.loads(line) for line in (a.out/"test.jsonl").read_text("utf-8").splitlines()]
    return [dict(rows[i], gap=gap[i].item()) for i in gap.argsort()[:n].tolist()]


def reward(a):
    parts = split(a)
    results = train("reward", a.out/"reward.jsonl", "-o", a.out/"reward", "--model", a.model, *LORA,
                    "--lr", "5e-4", "--max-steps", N_REWARD // 16)
    gap = scored(a, "reward")
    curve = [{k: row[k] for k in ("step", "loss", "accuracy", "eval_loss", "eval_accuracy") if k in row}
             for row in log_of(a.out/"reward")]
    found = dict(smollm2=results | judged(a, gap) | dict(curve=curve, worst=worst(a, gap)))
    tiny = train("reward", a.out/"reward.jsonl", "-o", a.out/"reward_tiny", "--eval-rows", N_EVAL)
    found["tiny"] = tiny | judged(a, scored(a, "reward_tiny", 256))
    found["tiny_all"] = [train("reward", a.prefs, "-o", a.out/f"reward_all_{seed}", "--skip-invalid", "--eval-rows", 100,
                               "--seed", seed) for seed in range(3)]
    longer = torch.tensor([float(len(r["chosen"]) - len(r["rejected"])) for r in parts["test"]])
    found["longer"] = of_right(longer, torch.zeros(len(longer)))
    return found | linear_models(a, parts) | dict(pairs=dict(learned=N_REWARD, test=len(parts["test"])))


def fitted(a):
    "Linear probing, then fine-tuning (Kumar et al. 2022): LoRA from a head that the frozen model has been given."
    split(a)
    folder, took = a.out/"fitted", a.out/"fitted.json"
    if not took.is_file():
        began = time.process_time()
        lm, tokenizer = load_lm(a.model, pad_token="<pad>")
        lm = add_lora(lm, 16, 0)
        model = add_scalar_head(lm)
        model.score.weight.data[0] = choose_linear(torch.load(a.out/"states.pt")[0])    # of the part reward
        pairs = load_pairs(a.out/"reward.jsonl", tokenizer, 128)[0][:N_REWARD]
        config = TrainConfig(lr=5e-4, n_steps=12, batch_size=16, micro_batch_size=8)
        trainer = train_reward(model, pairs, config, torch.Generator().manual_seed(0))
        body = merge_adapters(merge_adapters(lm).base_model)
        save_reward_model(ScalarModel(body, model.score), tokenizer, folder)
        took.write_text(json.dumps(dict(steps=trainer.step, cpu_s=round(time.process_time() - began),
            curve=[{k: row[k] for k in ("step", "loss", "accuracy")} for row in trainer.log.rows])))
    gap = scored(a, "fitted")
    return judged(a, gap) | json.loads(took.read_text()) | dict(worst=worst(a, gap))


# ---- DPO, and its control

def implicit(a, folder, ref):
    "Accuracy and margin of beta log pi / pi_ref on the first 100 test pairs."
    lm, tokenizer = load_lm(folder)
    pairs = load_pairs(a.out/"test.jsonl", tokenizer, 128)[0][:100]
    mine = precompute_ref_logprobs(lm, pairs, 8)
    ratio = [x - y for x, y in zip((mine.ref_chosen, mine.ref_rejected), ref)]
    gap = log_ratio_gap(mine.ref_chosen, mine.ref_rejected, *ref)
    return of_right(gap, torch.zeros(len(gap))) | dict(
        margin=mean_and_error(.1 * gap), chosen=mean_and_error(.1 * ratio[0]), rejected=mean_and_error(.1 * ratio[1]))


def reference(a):
    "Log-probs of the first 100 test pairs under the fetched model, kept beside the runs."
    kept = a.out/"reference.pt"
    if not kept.is_file():
        lm, tokenizer = load_lm(a.model, pad_token="<pad>")
        pairs = load_pairs(a.out/"test.jsonl", tokenizer, 128)[0][:100]
        x = precompute_ref_logprobs(lm, pairs, 8)
        n = [side.response_mask.sum(1) for side in (pairs.chosen, pairs.rejected)]
        torch.save((x.ref_chosen, x.ref_rejected, *n), kept)
    return torch.load(kept)


def dpo(a):
    split(a)
    results = train("dpo", a.out/"dpo.jsonl", "-o", a.out/"dpo", "--model", a.model, *LORA,
                    "--lr", "1e-3", "--max-steps", N_DPO // 16)
    began = time.process_time()
    chosen, rejected, n_chosen, n_rejected = reference(a)
    curve = [{k: row[k] for k in ("step", "loss", "rewards/accuracies", "rewards/margins", "rewards/chosen",
              "rewards/rejected", "eval_accuracy") if k in row} for row in log_of(a.out/"dpo")]
    return results | implicit(a, a.out/"dpo", (chosen, rejected)) | dict(
        reference_prefers=of_right(chosen, rejected), reference_prefers_per_token=of_right(chosen / n_chosen, rejected / n_rejected),
        curve=curve, test_cpu_s=round(time.process_time() - began))


def sft(a):
    rows = split(a)["dpo"]
    write_rows(a.out/"sft.jsonl", [dict(prompt=r["prompt"], completion=r["chosen"]) for r in rows])
    results = train("sft", a.out/"sft.jsonl", "-o", a.out/"sft", "--model", a.model, *LORA,
                    "--lr", "1e-3", "--max-steps", N_DPO // 16)
    return results | implicit(a, a.out/"sft", reference(a)[:2])


# ---- answers

def answers(a):
    began = time.process_time()
    questions = list(dict.fromkeys(r["prompt"] for r in split(a)["test"]))[:40]
    rm = load_reward_model(a.out/"fitted")
    ref, tokenizer = load_lm(a.model, pad_token="<pad>")
    prompts = [encode_prompt(tokenizer, [dict(role="user", content=q)]) for q in questions]
    found = {}
    for name, folder in ("fetched", None), ("SFT", a.out/"sft"), ("DPO", a.out/"dpo"):
        lm = load_lm(folder)[0] if folder else ref
        for t in TEMPERATURES:
            n = 2 if t else 1
            seqs = generate_many(lm, [p for p in prompts for _ in range(n)], tokenizer, SamplingParams(40, temperature=t),
                                 torch.Generator().manual_seed(1), 40)[0]
            said = [text for _, text in decode_seqs(tokenizer, seqs)]
            by_prompt = lambda x: mean_and_error(x.float().view(-1, n).mean(1))
            row = dict(score=by_prompt(score_seqs(rm, seqs, 16)), tokens=by_prompt(seqs.response_mask.sum(1)),
                       cut=by_prompt((seqs.response_mask.sum(1) == 40)), answers=said[::n])
            if t == 1 and folder: row["kl"] = by_prompt(kl_of(lm, ref, seqs))
            found[f"{name}, T {t:g}"] = row
            print(name, t, {k: v for k, v in row.items() if k != "answers"}, said[:3], flush=True)
    found = dict(prompts=questions, found=found, cpu_s=round(time.process_time() - began))
    return with_words(found, split(a)["reward"][:N_REWARD])


def with_words(answers, rows):
    "A second judge that has no layers: the weights of the words of the first answer to each prompt."
    known, weights = word_weights(rows)
    for row in answers["found"].values():
        row["words"] = mean_and_error(counted([dict(chosen=x, rejected="") for x in row["answers"]], known) @ weights)
    return answers


@torch.no_grad()
def kl_of(lm, ref, seqs, batch_size=16):
    "Sum over the response of log pi - log pi_ref (b), at samples of lm."
    with eval_mode(lm), eval_mode(ref):
        return torch.cat([response_kl(logprobs(lm, x), logprobs(ref, x), x.response_mask)
                          for x in (seqs[i:i + batch_size] for i in range(0, len(seqs), batch_size))])


# ---- GRPO

def sampled(lm, tokenizer, questions, temperature, n_tokens):
    prompts = [encode_prompt(tokenizer, [dict(role="user", content=q)]) for q in questions]
    seqs = generate_many(lm, prompts, tokenizer, SamplingParams(n_tokens, temperature=temperature),
                         torch.Generator().manual_seed(1), 64)[0]
    return [text for _, text in decode_seqs(tokenizer, seqs)]


def grpo(a):
    sums = [(x, y) for x in range(1, 10) for y in range(1, 10)]
    random.Random(0).shuffle(sums)
    held, learn = sums[:20], sums[20:]
    write_rows(a.out/"sums.jsonl", [dict(prompt=ASK.format(a=x, b=y), answer=x + y) for x, y in learn])
    (a.out/"sums_reward.py").write_text(REWARD)
    here = Path.cwd()
    os.chdir(a.out)                                  # where the reward is looked for
    try: results = train("grpo", "sums.jsonl", "-o", "grpo", "--model", a.model, "--lora-r", 16, "--reward",
                         "sums_reward:right", "--n-iterations", a.iterations, "--n-prompts", 4, "--num-generations", 8,
                         "--max-new-tokens", 12, "--lr", "3e-4", "--beta", 0, "--num-iterations", 1, "--eval-rows", 8,
                         "--micro-batch-size", 16)
    finally: os.chdir(here)
    found = {}
    for name, folder in ("before", a.model), ("after", a.out/"grpo"):
        lm, tokenizer = load_lm(folder, pad_token="<pad>" if name == "before" else None)
        for t, n_tokens in [(t, 12) for t in TEMPERATURES] + [(0., 64)]:    # 64: room to explain
            n = 8 if t else 1
            said = sampled(lm, tokenizer, [ASK.format(a=x, b=y) for x, y in held for _ in range(n)], t, n_tokens)
            right = [float((re.findall(r"\d+", text) or [""])[-1] == str(x + y))
                     for text, (x, y) in zip(said, [s for s in held for _ in range(n)])]
            found[f"{name}, T {t:g}" + ", 64 tokens" * (n_tokens > 12)] = dict(
                accuracy=sum(right) / len(right), answers=said[::n][:8],
                standard_error=mean_and_error(torch.tensor(right).view(-1, n).mean(1))["standard_error"])
    keep = ("iteration", "reward", "objective/kl", "entropy", "completions/mean_length", "frac_reward_zero_std")
    curve = [{k.removeprefix("objective/"): row[k] for k in keep if k in row} for row in log_of(a.out/"grpo") if "iteration" in row]
    return results | dict(held_out=held, found=found, curve=curve)


PARTS = dict(reward=reward, fitted=fitted, dpo=dpo, sft=sft, answers=answers, grpo=grpo)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, type=Path, help="folder that `rlhf-nb fetch smollm2` made")
    p.add_argument("--prefs", type=Path, help="pairs, for all parts but grpo")
    p.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    p.add_argument("--iterations", type=int, default=12, help="rollouts of grpo")
    p.add_argument("--out", type=Path, default=Path("runs/smollm2"), help="folder of the runs")
    p.add_argument("--json", type=Path, default=ROOT/"nbs/results/smollm2.json")
    a = p.parse_args()
    if not a.prefs and set(a.part) != {"grpo"}: p.error("all parts but grpo need --prefs")
    a.model, a.out = a.model.resolve(), a.out.resolve()
    a.prefs = a.prefs and a.prefs.resolve()
    a.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for part in a.part:
        found = json.loads(a.json.read_text("utf-8")) if a.json.is_file() else {}
        found |= {"command": "python benchmarks/bench_smollm2.py --model smollm2 --prefs PAIRS.jsonl", part: PARTS[part](a)}
        a.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
        print(f"{part}: {json.dumps({k: v for k, v in found[part].items() if not isinstance(v, (list, dict))})}", flush=True)


if __name__ == "__main__": main()
