"""Figures of the toy on a real model, SmolLM2-135M-Instruct, for the folds of chapters 01, 04, 05 and 13. Resumable.

    rlhf-nb fetch smollm2 smollm2
    python benchmarks/bench_twins.py --model smollm2 --prefs PAIRS.jsonl        # about half an hour of CPU, 18 minutes of it the judge's

PAIRS as in bench_smollm2.py, and split by it: `test` pairs were never trained on. Parts, in nbs/results/twins.json:

    answers   01: four answers at temperature 1 to each of 8 prompts, 40 tokens at most; the reward is a linear model of the
              last hidden state, fitted on 320 other pairs (bench_smollm2_road.py); a second one counts words
    sft       04: the chat template as the model sees it, and nats per token of the template, of the user's words and of the
              answer, before and after SFT on 96 chosen answers (48 steps of 2, LoRA; seed 1 of bench_smollm2_road.py);
              40 test rows
    length    05: how often the chosen answer of a pair has more tokens, in all pairs
    judge     13: which of two answers is politer? All pairs in both orders, greedy replies of 10 tokens at most, and the
              probabilities of 1 and 2 where the reply has begun with "The more polite answer is number"

Chapters 07 and 10 draw theirs from nbs/results/smollm2_road.jsonl. A part that is in the file is not run again.
"""
import argparse, json
from pathlib import Path
import torch
import bench_smollm2_road as road
from bench_smollm2 import ROOT, counted, last_states, split
from rlhf_nb.base.logprobs import logprobs, response_states
from rlhf_nb.base.models import eval_mode, load_lm
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.data.text import encode_prompt, load_pairs
from rlhf_nb.judge import judge_messages, parse_votes
from rlhf_nb.run.text_rewards import decode_seqs
from rlhf_nb.tokens import Seqs, make_seqs
from rlhf_nb.trainers.judge_tools import PairwisePrompt

PLAIN = """Which answer is more polite, 1 or 2?
Question: {{ prompt }}
Answer 1: {{ first }}
Answer 2: {{ second }}
Reply with the number only."""
BEGUN = "The more polite answer is number "        # what the reply begins with where its next token is read


def chat(tokenizer, question): return encode_prompt(tokenizer, [dict(role="user", content=question)])


def pairs_of(a):
    "Rows of the file whose two answers differ; how many are left out."
    rows = [json.loads(line) for line in a.prefs.read_text("utf-8").splitlines()]
    kept = [r for r in rows if r["chosen"] != r["rejected"]]
    return kept, len(rows) - len(kept)


def mean_and_error(x):
    x = torch.as_tensor(x, dtype=torch.float64)
    return dict(mean=x.mean().item(), standard_error=(x.std() / len(x)**.5).item(), n=len(x))


def answers(a, lm, tokenizer):
    asked = road.questions_of(a)[:8]
    seqs = generate_many(lm, [chat(tokenizer, q) for q in asked for _ in range(4)], tokenizer, SamplingParams(40),
                         torch.Generator().manual_seed(2), 32)[0]
    said = [text for _, text in decode_seqs(tokenizer, seqs)]
    words, weights, head = road.judges(a, lm, tokenizer)
    reward = last_states(lm.eval(), seqs) @ head
    polite = counted([dict(chosen=x, rejected="") for x in said], words) @ weights
    return [dict(prompt=q, answers=said[4 * i:4 * i + 4], reward=reward[4 * i:4 * i + 4].tolist(),
                 words=polite[4 * i:4 * i + 4].tolist()) for i, q in enumerate(asked)]


@torch.no_grad()
def token_losses(lm, seqs):
    "Nats (b t) of every token but the first of each row, prompt included."
    every = Seqs(seqs.ids, seqs.attention_mask, seqs.attention_mask & (torch.arange(seqs.ids.shape[1]) > 0))
    with eval_mode(lm): return torch.cat([-logprobs(lm, every[i:i + 8]) for i in range(0, len(seqs), 8)])


def kinds_of(tokenizer, seqs, questions):
    "Masks (b t) of the template's tokens, of the user's words, and of the answer; the first token is in none."
    frame, one = chat(tokenizer, ""), chat(tokenizer, questions[0])    # the template around nothing, and around a question
    before = next((i for i, (x, y) in enumerate(zip(frame, one)) if x != y), len(frame))
    after = len(frame) - before
    place = torch.arange(seqs.ids.shape[1])
    real = seqs.attention_mask & (place > 0)
    n = torch.tensor([len(chat(tokenizer, q)) for q in questions])[:, None]
    user = (place >= before) & (place < n - after)
    return {"template": real & ~user & ~seqs.response_mask, "user's words": user & real, "answer": seqs.response_mask}


def sft(a, lm, tokenizer):
    pairs = load_pairs(a.out/"test.jsonl", tokenizer, 192)[0][:40]
    questions = [r["prompt"] for r in split(a)["test"]][:40]
    masks = kinds_of(tokenizer, pairs.chosen, questions)
    after, _ = load_lm(road.trained(a, "SFT", road.STEPS | road.RECIPE, 1)[0])
    losses = {"fetched": token_losses(lm, pairs.chosen), "after SFT": token_losses(after, pairs.chosen)}
    found = {}
    for kind, mask in masks.items():
        per_row = {name: (x * mask).sum(1) / mask.sum(1) for name, x in losses.items()}
        found[kind] = {name: mean_and_error(x) for name, x in per_row.items()} | dict(
            less=mean_and_error(per_row["after SFT"] - per_row["fetched"]), tokens=mask.sum().item())
    first = pairs.chosen[:1].trim()
    return dict(losses=found, text=tokenizer.decode(first.ids[0].tolist()),
                pieces=[tokenizer.decode([i]) for i in first.ids[0].tolist()],
                answer=first.response_mask[0].int().tolist())


def length(a, lm, tokenizer):
    rows, left_out = pairs_of(a)
    n = [[len(tokenizer(r[side])["input_ids"]) for side in ("chosen", "rejected")] for r in rows]
    more = torch.tensor([float(c - r) for c, r in n])
    return dict(more_tokens=mean_and_error(more), longer=mean_and_error((more[more != 0] > 0).double()),
                same=(more == 0).sum().item(), left_out=left_out)


def verdicts(first, right): # both (2 n): what stands first is preferred; the politer one is; nan: unread
    read, one = ~right.isnan().any(0), right[0][~right[0].isnan()]
    agreed = right[:, read].mean(0)
    return dict(asked=right.numel(), unread=right.isnan().sum().item(), named_first=mean_and_error((x := first.nanmean(0))[~x.isnan()]),
                one_order=mean_and_error(one), both_orders=mean_and_error(agreed), by_place=mean_and_error((agreed == .5).double()))


@torch.no_grad()
def next_is_1(lm, tokenizer, prompts, batch_size=16):
    "Probability (n) of 1 against 2 as the next token of a reply that has begun."
    begun, one, two = (tokenizer(BEGUN + x, add_special_tokens=False)["input_ids"] for x in ("", "1", "2"))
    assert one[:-1] == two[:-1] and len(one) in (len(begun), len(begun) + 1), "1 and 2 are no single tokens"
    seqs = make_seqs([p + one[:-1] for p in prompts], [[one[-1]]] * len(prompts), tokenizer.pad_token_id)
    order, parts = seqs.lengths().argsort(), []
    for rows in order.split(batch_size):
        head, states, _ = response_states(lm, seqs[rows].trim())       # one state a row
        logits = head(states)
        parts.append((logits[:, one[-1]] - logits[:, two[-1]]).sigmoid())
    return torch.cat(parts)[order.argsort()]


def judge(a, lm, tokenizer):
    rows = pairs_of(a)[0][:a.pairs]                                        # all: nothing is trained
    prompt = PairwisePrompt(PLAIN, lambda reply: next((int(c) for c in reply if c in "12"), None))
    messages = [m for x, y in (("chosen", "rejected"), ("rejected", "chosen"))
                for m in judge_messages(tokenizer, prompt, [(r["prompt"], r[x], r[y]) for r in rows])]
    prompts = [chat(tokenizer, m) for m in messages]
    seqs = generate_many(lm, prompts, tokenizer, SamplingParams(a.reply, temperature=0.), torch.Generator().manual_seed(0), 32)[0]
    said = [text for _, text in decode_seqs(tokenizer, seqs)]              # a reply may be cut: the number stands early
    first = parse_votes(prompt, [[text] for text in said]).votes[:, 0].view(2, -1)
    chance = next_is_1(lm.eval(), tokenizer, prompts).view(2, -1)
    found = {}
    for name, x in {"its reply": first, "the likelier number": (chance > .5).float()}.items():
        found[name] = verdicts(x, torch.stack([x[0], 1 - x[1]]))
    mean = (chance[0] + 1 - chance[1]) / 2
    found["mean probability of both orders"] = dict(both_orders=mean_and_error((mean > .5).double()), first=mean_and_error(chance.mean(0)))
    return found | dict(replies=said[::max(1, len(said) // 12)], message=messages[0])


PARTS = dict(length=length, answers=answers, judge=judge, sft=sft)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, type=Path, help="folder that `rlhf-nb fetch smollm2` made")
    p.add_argument("--prefs", required=True, type=Path)
    p.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    p.add_argument("--pairs", type=int, help="of the judge, at most; all unless told")
    p.add_argument("--reply", type=int, default=10, help="tokens of a verdict, at most")
    p.add_argument("--again", action="store_true", help="run parts that are in the file")
    p.add_argument("--out", type=Path, default=Path("runs/road"), help="folder of runs, that of bench_smollm2_road.py")
    p.add_argument("--json", type=Path, default=ROOT/"nbs/results/twins.json")
    a = p.parse_args()
    torch.set_num_threads(1)
    a.model, a.out, a.prefs = a.model.resolve(), a.out.resolve(), a.prefs.resolve()
    a.out.mkdir(parents=True, exist_ok=True)
    lm, tokenizer = load_lm(a.model, pad_token="<pad>")
    for part in a.part:
        found = json.loads(a.json.read_text("utf-8")) if a.json.is_file() else {}
        if part in found and not a.again: continue
        split(a)
        found[part] = PARTS[part](a, lm, tokenizer)
        found = json.loads(a.json.read_text("utf-8") if a.json.is_file() else "{}") | {part: found[part]}
        a.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
        print(part, "done", flush=True)


if __name__ == "__main__": main()
