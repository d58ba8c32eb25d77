"""From a file of preferences to a better policy, on SmolLM2-135M: for chapter 19. Rows of Experiments; resumable.

    python benchmarks/bench_smollm2_road.py --model smollm2 --prefs PAIRS.jsonl --part tried    # one seed, 8 CPU minutes
    python benchmarks/bench_smollm2_road.py --model smollm2 --prefs PAIRS.jsonl                 # three others and the control, 25
    python benchmarks/bench_smollm2_road.py --model smollm2 --prefs PAIRS.jsonl --methods best first         # 5

The pairs are those of bench_smollm2.py: the first 96 of DPO's for the policy, 320 others for the judges. `tried` measures
the recipe's rate, 2e-4, on seed 0 and the first 40 of the prompts that nothing was trained on; the rest takes it to seeds
1, 2 and 3 and to 40 other prompts. The control is SFT on the chosen answers of the same pairs: as many steps, rows in a
step, the same rate and LoRA. "fetched" is the model without training. Twice the rate (`--lr 4e-4 --methods DPO`) was run
before the recipe's on those 40 prompts; its rows stay.

"best" is the best of 8 answers of the fetched model to each held-out prompt (`rlhf-nb best-of-n`, its temperature of .7, the
seed that of the samples; nothing was chosen on the tuning prompts), "first" the first of the same 8. The scorer that picks is a
tiny model from scratch with a tokenizer of its own (`rlhf-nb train reward`, .85 ± .06 right of 40 pairs held out), fitted on what
is left of the file: 279 pairs of prompts that neither the judges nor DPO have. So judges and scorer share the kind of pairs,
and no pair, prompt or weight (words are what the counts and the tiny model read). `right_of_all`: which part of the 8 is right.

"picks" is SFT on the best of 8 answers of the fetched model (sampled once, at most 40 tokens, same scorer) to the prompts of the
96 pairs; its control, "random", is SFT on one of the same 8, number `seed`. Both take DPO's steps, the recipe's rate and LoRA, and
nothing was tuned (`--methods picks random`: about 6 CPU minutes of samples and 3 a run).

One answer to each prompt, of 32 tokens at most, greedily and at temperature 1. Two judges, neither of which has seen a
pair of the policy's: a linear model of word counts, and one of the last hidden state of the fetched model (.88 and .83 of
180 held-out pairs, bench_smollm2.py). `won` is 1 where a judge prefers the answer to the fetched model's, .5 where it is
the same. `right`: do the answers to questions of fact hold the right word? `shared`: which part of the words of the
file's own reference answer stands in the answer. At temperature 1 the KL to the fetched model, summed over the answer:
exactly (over the vocabulary at each token), by k1 and by k3. Rows go to nbs/results/smollm2_road.jsonl.
"""
import argparse, json, re
from pathlib import Path
import torch
from bench_smollm2 import (N_REWARD, ROOT, choose_linear, counted, last_states, log_of, split, train, word_weights,
    write_rows)
from rlhf_nb.base.logprobs import excluded_token, response_states
from rlhf_nb.base.models import eval_mode, load_lm
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.data.text import encode_prompt, load_pairs
from rlhf_nb.book.command import main as shell
from rlhf_nb.kl import exact_kl, kl_k1, kl_k3
from rlhf_nb.run.evidence import Experiment
from rlhf_nb.run.text_rewards import decode_seqs
from rlhf_nb.tokens import make_seqs

FACTS = {1: "threw", 2: "cheap", 3: "students", 6: "ohm", 7: "8,?000", 8: "blunt|dull", 10: "1, 4, 9", 14: "0[.]8", 20: "Ankara",
         21: "lephant.*ion.*ebra", 23: "H2O2", 24: "quickly", 30: "contract", 36: "Beijing", 39: "56",
         41: "[Bb]ird", 42: r"\bFe\b", 43: "thought", 45: "Ottawa", 50: r"\bfroze\b", 53: "[Nn]ewton", 57: "[Dd]ecrease",
         59: r"\b7\b|seven", 60: "geese", 62: "hotosynthesis", 64: r"\b[Oo]ld|elderly", 66: r"0?[.]2\b", 70: "Apple.*Banana.*Cherry",
         72: r"\b9\b|nine", 77: r"\b100\b", 78: "won[’']t", 81: "H2O|H₂O", 84: "[Cc]ómo est", 86: "marsupial|Marsupial",
         88: "water cycle|hydrologic|vaporation", 91: "eating", 95: r"\bswam\b", 98: r"7,?000\b", 99: "Mexico City|Ciudad de M",
         100: "iblioteca", 104: "yan.*agenta.*ellow", 108: r"\b[Hh]ard|[Rr]ough|[Ff]irm", 109: r"\b[Ll]ow\b", 111: r"\b[Hh]ard|[Rr]ough|[Ff]irm"}
PLACES = dict(tuning=range(40), held=range(40, 80))         # of the prompts of test.jsonl
N_PAIRS = 96
STEPS = dict(n_steps=48, batch_size=2)
RECIPE = dict(lr=2e-4, beta=.1)
BEST_OF = dict(best_of=8, sampled_tokens=40)                # at best-of-n's own temperature, .7
SCORER = ["--eval-rows", 40]                                # of its pairs, held out


def kept(path, make):
    if not path.is_file(): torch.save(make(), path)
    return torch.load(path)


def questions_of(a): return list(dict.fromkeys(r["prompt"] for r in split(a)["test"]))


def references(a): # prompt -> the file's own answer
    rows = [json.loads(line) for line in a.prefs.read_text("utf-8").splitlines()]
    return {r["prompt"]: r.get("reference", "") for r in rows}


def judges(a, ref, tokenizer):
    "Word -> weight, and the weights (d) of the last hidden state of the fetched model."
    learn = split(a)["reward"][:N_REWARD]
    def states(): # (n d), chosen less rejected
        pairs = load_pairs(a.out/"reward.jsonl", tokenizer, 128)[0][:N_REWARD]
        return last_states(ref.eval(), pairs.chosen) - last_states(ref, pairs.rejected)
    head = kept(a.out/"head.pt", lambda: choose_linear(kept(a.out/"states.pt", states)))
    words, weights = kept(a.out/"words.pt", lambda: word_weights(learn))
    return words, weights, head


@torch.no_grad()
def drift(lm, ref, seqs, batch_size=8):
    "Exact KL, k1 and k3 of samples of lm, each (b), summed over the answer; response tokens (b)."
    found = []
    with eval_mode(lm), eval_mode(ref):
        for i in range(0, len(seqs), batch_size):
            x, both = seqs[i:i + batch_size].trim(), []
            for model in (lm, ref):
                head, states, at = response_states(model, x)
                logits = head(states)
                if (pad := excluded_token(model)) is not None: logits[:, pad] = -torch.inf
                both.append(logits.log_softmax(-1))
            own = [y.gather(1, x.ids.flatten()[at][:, None])[:, 0] for y in both]
            row = at // x.ids.shape[1]
            def total(y): return torch.zeros(len(x)).index_add(0, row, y)
            found.append(torch.stack([total(exact_kl(*both)), total(kl_k1(*own)), total(kl_k3(*own)), total(torch.ones(len(at)))]))
    return torch.cat(found, 1)


def measured(a, lm, ref, tokenizer, place, start=None):
    "Answers of a policy and what is asked of them; `start`: what was found of the fetched model."
    asked = [(i, q) for i, q in enumerate(questions_of(a)) if i in PLACES[place]]
    prompts = [encode_prompt(tokenizer, [dict(role="user", content=q)]) for _, q in asked]
    words, weights, head = judges(a, ref, tokenizer)
    wanted = references(a)
    found, right = {}, []
    for t in 0., 1.:
        seqs = generate_many(lm, prompts, tokenizer, SamplingParams(a.tokens, temperature=t), torch.Generator().manual_seed(1), 64)[0]
        said = [text for _, text in decode_seqs(tokenizer, seqs)]
        scores = dict(words=counted([dict(chosen=x, rejected="") for x in said], words) @ weights,
                      head=last_states(ref.eval(), seqs) @ head)
        for name, x in scores.items():
            found[f"{name} T {t:g}"] = [round(v, 4) for v in x.tolist()]
            if start: found[f"{name} T {t:g} won"] = [(new > old) + .5 * (new == old) if y != z else .5 for new, old, y, z in zip(
                found[f"{name} T {t:g}"], start[f"{name} T {t:g}"], said, start[f"answers T {t:g}"], strict=True)]
        right.append([float(bool(re.search(FACTS[i], x, re.S))) for (i, _), x in zip(asked, said) if i in FACTS])
        found |= {f"answers T {t:g}": said, f"tokens T {t:g}": seqs.response_mask.sum(1).tolist(),
                  f"shared T {t:g}": [shared(x, wanted[q]) for (_, q), x in zip(asked, said)]}
        if t and lm is not ref: found |= {k: [round(v, 5) for v in x.tolist()]
                                          for k, x in zip(("kl", "k1", "k3", "kl_tokens"), drift(lm, ref, seqs))}
    return found | dict(right=[(x + y) / 2 for x, y in zip(*right)])


def shared(answer, reference): # part of the reference's words
    wanted = set(re.findall(r"\w+", reference.lower()))
    return len(wanted & set(re.findall(r"\w+", answer.lower()))) / len(wanted) if wanted else 1.


def ask_best(a, prompts, data, n_tokens, seed):
    if data.is_file(): return
    line = ["best-of-n", a.model, a.out/"scorer", prompts, "-n", BEST_OF["best_of"], "--max-new-tokens", n_tokens, "--seed", seed, "-o", data]
    print("$ rlhf-nb", *line, flush=True)
    if shell([str(x) for x in line]): raise SystemExit("best-of-n: see above")


def picks(a, sample=True):
    "File of the best of n answers to the policy's prompts, by a scorer of pairs that nothing else is fitted on; by two commands."
    parts, data, scorer = split(a), a.out/"picks.jsonl", a.out/"scorer"
    own = list(dict.fromkeys(r["prompt"] for r in parts["dpo"][:N_PAIRS]))
    known = {r["prompt"] for r in parts["test"] + parts["reward"]} | set(own)
    rest = [{k: r[k] for k in ("prompt", "chosen", "rejected")} for r in map(json.loads, open(a.prefs, encoding="utf-8"))
            if r["prompt"] not in known and r["chosen"] != r["rejected"]]
    write_rows(a.out/"scorer.jsonl", rest)
    write_rows(a.out/"asked.jsonl", [dict(prompt=q) for q in own])
    train("reward", a.out/"scorer.jsonl", "-o", scorer, *SCORER)
    if sample: ask_best(a, a.out/"asked.jsonl", data, BEST_OF["sampled_tokens"], 0)
    return data


def best_of(a, which, ref, tokenizer, place, seed, start):
    "As `measured`, of the best of n answers to each prompt, or of the first of the same n, and how often all n are right."
    asked = [(i, q) for i, q in enumerate(questions_of(a)) if i in PLACES[place]]
    picks(a, sample=False)
    data, of = a.out/f"{place}_{seed}_best.jsonl", a.out/f"{place}.jsonl"
    write_rows(of, [dict(prompt=q) for _, q in asked])
    ask_best(a, of, data, a.tokens, seed)
    rows = [json.loads(line) for line in data.read_text("utf-8").splitlines()]
    said = [r["response"] if which == "best" else r["answers"][0] for r in rows]
    ids = [tokenizer(x, add_special_tokens=False)["input_ids"] for x in said]
    ids = [x + [tokenizer.eos_token_id] * (len(x) < a.tokens) for x in ids]       # a shorter one has ended by itself
    seqs = make_seqs([encode_prompt(tokenizer, [dict(role="user", content=q)]) for _, q in asked], ids, tokenizer.pad_token_id)
    words, weights, head = judges(a, ref, tokenizer)
    scores = dict(words=counted([dict(chosen=x, rejected="") for x in said], words) @ weights, head=last_states(ref.eval(), seqs) @ head)
    wanted, found = references(a), dict(answers=said, tokens=[len(x) for x in ids])
    for name, x in scores.items():
        found[name] = [round(v, 4) for v in x.tolist()]
        for t in "01": found[f"{name} T {t} won"] = [.5 if y == z else (new > old) + .5 * (new == old) for new, old, y, z in zip(
            found[name], start[f"{name} T {t}"], said, start[f"answers T {t}"], strict=True)]
    def right(i, x): return float(bool(re.search(FACTS[i], x, re.S)))
    facts = [(i, x, r["answers"]) for (i, _), x, r in zip(asked, said, rows) if i in FACTS]
    return found | dict(shared=[shared(x, wanted[q]) for (_, q), x in zip(asked, said)], right=[right(i, x) for i, x, _ in facts],
                        right_of_all=[sum(right(i, y) for y in all_n) / len(all_n) for i, _, all_n in facts])


def trained(a, method, s, seed):
    "Folder of a run, trained by the command that the chapter prints, and its log."
    rows, steps = split(a)["dpo"][:N_PAIRS], f"{s['lr']:g}_{s['n_steps']}x{s['batch_size']}"
    how = ["--lora-r", 16, "--max-length", 192, "--micro-batch-size", 4]
    if method == "DPO":
        data, folder = a.out/"pairs.jsonl", a.out/f"dpo_{steps}_{s['beta']:g}_{seed}"
        how = ["--recipe", "smollm2-dpo", "--beta", s["beta"]]
    elif method == "SFT":
        data, folder = a.out/"chosen.jsonl", a.out/f"sft_{steps}_{seed}"
        rows = [dict(prompt=r["prompt"], completion=r["chosen"]) for r in rows]
    else:
        data, folder = picks(a), a.out/f"{method}_{steps}_{seed}"
        if method == "random":
            rows = [dict(prompt=r["prompt"], response=r["answers"][seed]) for r in map(json.loads, open(data, encoding="utf-8"))]
            data = a.out/f"random_{seed}.jsonl"
    if not data.is_file(): write_rows(data, rows)
    results = train("dpo" if method == "DPO" else "sft", data, "-o", folder, *how, "--model", a.model, "--lr", s["lr"],
                    "--batch-size", s["batch_size"], "--max-steps", s["n_steps"], "--eval-rows", 0, "--seed", seed)
    log = [row for row in log_of(folder) if "loss" in row]
    return folder, dict(cpu_s=results["cpu_s"]) | {key: [round(row[key], 5) for row in log] for key in (
        "loss", "rewards/chosen", "rewards/rejected", "rewards/accuracies") if key in log[0]}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, type=Path, help="folder that `rlhf-nb fetch smollm2` made")
    p.add_argument("--prefs", required=True, type=Path, help="rows of prompt, chosen, rejected and, if at hand, reference")
    p.add_argument("--part", choices=["tried", "held"], default="held")
    p.add_argument("--methods", nargs="+", choices=["DPO", "SFT", "best", "first", "picks", "random"], default=["DPO", "SFT"])
    p.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    p.add_argument("--lr", type=float, default=RECIPE["lr"])
    p.add_argument("--tokens", type=int, default=32, help="of an answer, at most")
    p.add_argument("--out", type=Path, default=Path("runs/road"))
    p.add_argument("--home", type=Path, default=ROOT/"nbs/results/smollm2_road.jsonl")
    a = p.parse_args()
    torch.set_num_threads(1)
    a.model, a.out = a.model.resolve(), a.out.resolve()
    a.out.mkdir(parents=True, exist_ok=True)
    ref, tokenizer = load_lm(a.model, pad_token="<pad>")
    place = dict(tried="tuning", held="held")[a.part]
    asked = dict(prompts=place, n_prompts=len(PLACES[place]), tokens=a.tokens)
    fetched = Experiment("fetched", lambda s, seed: measured(a, ref, ref, tokenizer, place), asked, a.home)
    start = fetched.over([0])[0]["found"]

    def run(method):
        def of(s, seed):
            folder, log = trained(a, method, s, seed)
            return measured(a, load_lm(folder)[0], ref, tokenizer, place, start) | dict(log=log)
        return of
    common = dict(n_pairs=N_PAIRS, lora_r=16) | STEPS | asked
    dpo = Experiment("DPO", run("DPO"), common | RECIPE | dict(lr=a.lr), a.home)
    sft = Experiment("SFT", run("SFT"), common | dict(lr=a.lr), a.home)
    own = [Experiment(name, run(name), common | BEST_OF | dict(lr=a.lr), a.home) for name in ("picks", "random")]
    def pick(which):
        return lambda s, seed: best_of(a, which, ref, tokenizer, place, seed, start)
    own += [Experiment(which, pick(which), asked | dict(best_of=BEST_OF["best_of"]), a.home) for which in ("best", "first")]
    seeds = [0] if a.part == "tried" else a.seeds
    methods = [x for x in (dpo, sft, *own) if x.name in a.methods and (x.name in ("DPO", "picks") or a.part == "held")]
    for seed in seeds:
        for x in methods:
            row, = x.over([seed])
            print(x.name, x.settings, seed, {k: round(sum(v) / len(v), 3) for k, v in row["found"].items()
                                             if k != "log" and not isinstance(v[0], str)}, flush=True)


if __name__ == "__main__": main()
