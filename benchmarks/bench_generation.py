"""Generation at batch 64: ours, transformers' generate and a bare decode loop, side by side.

    python benchmarks/bench_generation.py [--runs 15] [--json FILE]

All three use the same weights, prompts and torch in one process on one thread. A run times
each once, in turn; the ratios are medians over runs, so that what else the machine does
hits all alike. "bare" is the model's forward with its cache, softmax and multinomial in a
loop, no stopping, no log-probs, no bookkeeping. Where rows finish early it is no floor: it
runs to the end. "forward" is one: the part of our time that is spent inside the model's own
forward passes, of the rows that are left, so no sampler that calls it takes less.

    all run to 32      the shipped sft model; nobody says eos: every row has 32 new tokens
    sft answers        the same model as it is used: answers of 5 to 45 tokens
    eos probable, 256  untrained, 256 wide and 4 layers deep, eos has probability .1 at each step
"""
import argparse, inspect, json, os, statistics, time
from pathlib import Path
from types import SimpleNamespace
import torch
from torch import nn
from transformers import DynamicCache
from rlhf_nb.base.models import load_bundled, tiny_lm
from rlhf_nb.base.sampling import SamplingParams, cache_name, generate
from rlhf_nb.base.batches import pad_left
from rlhf_nb.worlds.world_text import TRAIN, prompt_ids


class Case:
    "One model, 64 prompts, and the three ways to continue them."
    def __init__(self, model, prompts, special, n):
        self.model, self.prompts, self.special, self.n = model, prompts, special, n
        ids, mask = pad_left(prompts, special.pad_token_id)
        self.ids, self.mask = ids, mask.long()
        self.inside = 0.                                      # CPU seconds in forward passes of `ours`
    def ours(self, seed):
        self.inside = 0.
        def timed(*args, **kwargs):
            start = time.process_time()
            out = forward(*args, **kwargs)
            self.inside += time.process_time() - start
            return out
        timed.__signature__, forward = inspect.signature(self.model.forward), self.model.forward
        self.model.forward = timed
        try: seqs, _ = generate(self.model, self.prompts, self.special, SamplingParams(self.n),
                                torch.Generator().manual_seed(seed))
        finally: del self.model.forward
        return int(seqs.response_mask.sum())
    def transformers(self, seed):
        torch.manual_seed(seed)
        out = self.model.generate(
            self.ids, attention_mask=self.mask, do_sample=True, temperature=1., top_k=0,
            top_p=1., max_new_tokens=self.n, pad_token_id=self.special.pad_token_id,
            eos_token_id=self.special.eos_token_id)[:, self.ids.shape[1]:]
        return int((out != self.special.pad_token_id).sum())
    @torch.no_grad()
    def bare(self, seed):
        torch.manual_seed(seed)
        width = self.ids.shape[1]
        mask = nn.functional.pad(self.mask, (0, self.n), value=1)
        position = (mask.cumsum(1) - 1).clamp(min=0)
        cache, ids, seen = DynamicCache(config=self.model.config), self.ids, width
        for _ in range(self.n):
            out = self.model(
                input_ids=ids, attention_mask=mask[:, :seen], use_cache=True, logits_to_keep=1,
                position_ids=position[:, seen - ids.shape[1]:seen], **{cache_name(self.model): cache})
            ids = torch.multinomial(out.logits[:, -1].softmax(-1), 1)
            seen += 1
        return len(self.prompts) * self.n


def cases():
    sft, tokenizer = load_bundled("sft")
    prompts = [prompt_ids(tokenizer, q) for q in TRAIN[:64]]
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    mute = SimpleNamespace(pad_token_id=pad, eos_token_id=tokenizer.unk_token_id)
    yield "all run to 32", Case(sft, prompts, mute, 32)        # <unk> is never sampled
    yield "sft answers", Case(sft, prompts, tokenizer, 48)
    wide = tiny_lm(tokenizer, hidden=256, layers=4)
    with torch.no_grad():
        wide.lm_head.bias = nn.Parameter(torch.zeros(len(tokenizer)))
        wide.lm_head.bias[eos] = torch.tensor(.1 / .9 * (len(tokenizer) - 1)).log()
        wide.lm_head.bias[pad] = -30.
    yield "eos probable, 256", Case(wide, prompts, tokenizer, 48)


def measure(case, runs):
    "CPU seconds of each way in each run."
    ways, seconds = (case.ours, case.transformers, case.bare), []
    for way in ways: way(0)                                    # warm up
    new_tokens = {way.__name__: 0 for way in ways}
    for seed in range(runs):
        row = {}
        for way in ways[seed % 3:] + ways[:seed % 3]:          # nobody is always first
            start = time.process_time()
            new_tokens[way.__name__] += way(seed)
            row[way.__name__] = time.process_time() - start
            if way == case.ours: row["forward"] = case.inside
        seconds.append(row)
    return seconds, {name: n / runs for name, n in new_tokens.items()}


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--runs", type=int, default=15)
    ask.add_argument("--json", type=Path, default=None, help="where to write all numbers")
    args = ask.parse_args()
    torch.set_num_threads(1)
    results = []
    print(f"{'batch 64, CPU ms (median)':26} {'ours':>8} {'transf.':>8} {'bare':>8}"
          f" {'ours/transf.':>13} {'forward/transf.':>16} {'ours/bare':>10} {'ours tok/s':>11}")
    for name, case in cases():
        seconds, new_tokens = measure(case, args.runs)
        ms = {k: 1e3 * statistics.median(row[k] for row in seconds) for k in seconds[0]}
        ratio = {k: statistics.median(row["ours"] / row[k] for row in seconds)
                 for k in ("transformers", "bare")}
        ratio["floor"] = statistics.median(row["forward"] / row["transformers"] for row in seconds)
        rate = new_tokens["ours"] / ms["ours"] * 1e3
        results.append(dict(case=name, ms=ms, ratio=ratio, tokens=new_tokens, tokens_per_s=rate))
        print(f"{name:26} {ms['ours']:8.1f} {ms['transformers']:8.1f} {ms['bare']:8.1f}"
              f" {ratio['transformers']:13.2f} {ratio['floor']:16.2f} {ratio['bare']:10.2f} {rate:11,.0f}", flush=True)
    result = dict(runs=args.runs, batch=64, torch=torch.__version__, load=os.getloadavg()[0], results=results)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    else: print("\n" + json.dumps(result))


if __name__ == "__main__": main()
