"""Memory and time of DPO that learns from a pair store, beside pairs held in memory.

    python benchmarks/bench_store.py        # under 2 minutes

Each line is a process of its own: 20 steps of 64 pairs on the shipped SFT model. `private` is the
growth of memory that belongs to the process alone (RssAnon) over what it had after 20 steps on
1,280 pairs, looked at in the middle of every step; pages of the mapped files, which the system may drop
at any time, are `mapped` (RssFile). Read times are CPU milliseconds per batch of 64. The table goes
to stdout, the numbers to nbs/results/store.json, from which the chapter draws.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
import torch
from rlhf_nb.dpo import PairsWithRef, make_pair_loss, dpo_loss
from rlhf_nb.base.learning import TrainConfig, fit, make_trainer
from rlhf_nb.base.models import load_bundled
from rlhf_nb.data.store import create_store, open_store
from rlhf_nb.base.batches import PreferencePairs
from rlhf_nb.tokens import make_seqs
from rlhf_nb.worlds.world_text import TRAIN, demonstrate, prompt_ids

SIZES = (4_000, 16_000, 64_000, 256_000)

def resident(kind):
    line = next(x for x in open("/proc/self/status") if x.startswith(kind))
    return int(line.split()[1]) / 1024

def some_pairs(tokenizer, n):
    rng = random.Random(0)
    questions = rng.choices(TRAIN, k=n)
    prompts = [prompt_ids(tokenizer, q) for q in questions]
    sides = [[tokenizer(demonstrate(q, rng)).input_ids + [tokenizer.eos_token_id] for q in questions]
             for _ in range(2)]
    return PreferencePairs(*[make_seqs(prompts, side, tokenizer.pad_token_id) for side in sides])

def fill(folder, n):
    _, tokenizer = load_bundled("sft")
    block = some_pairs(tokenizer, SIZES[0])
    zeros = torch.full((len(block),), -30.)
    store = create_store(folder, tokenizer, ("ref_chosen", "ref_rejected"))
    while len(store) < n: store.append(block, ref_chosen=zeros, ref_rejected=zeros)

def one(folder, where):
    torch.set_num_threads(1)
    model, tokenizer = load_bundled("sft")
    store, loss_fn = open_store(folder, tokenizer), make_pair_loss(dpo_loss)
    def train(pairs, n_steps, peak):
        def measured(model, part):
            out = loss_fn(model, part)
            peak.append((resident("RssAnon"), resident("RssFile")))
            return out
        n = len(pairs)
        data = PairsWithRef(pairs, *[store.column(name)[:n] for name in store.columns])
        fit(make_trainer(model, TrainConfig(lr=1e-4, n_steps=n_steps)), data, measured,
            torch.Generator().manual_seed(0))
    train(store[:1280], 20, [])
    before, peak = (resident("RssAnon"), resident("RssFile")), []
    data = store if where == "store" else store[:]
    train(data, 20, peak)
    generator, reads = torch.Generator().manual_seed(1), []
    for _ in range(50):
        rows = torch.randint(len(store), (64,), generator=generator)
        began = time.process_time()
        data[rows]
        reads.append(1000 * (time.process_time() - began))
    print(json.dumps(dict(pairs=len(store), where=where, read_ms=sorted(reads)[25],
                          private=max(p for p, _ in peak) - before[0],
                          mapped=max(m for _, m in peak) - before[1],
                          disk=sum(f.stat().st_size for f in Path(folder).iterdir()) / 2**20)))

def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=2)
    args = parser.parse_args()
    if args.one: return one(*args.one)
    rows = []
    with tempfile.TemporaryDirectory() as temp:
        for n in SIZES:
            folder = Path(temp)/str(n)
            fill(folder, n)
            for where in ("store", "memory"):
                printed = subprocess.run([sys.executable, __file__, "--one", folder, where],
                                      capture_output=True, text=True, check=True).stdout
                rows.append(row := json.loads(printed.splitlines()[-1]))
                print("{pairs:8,} pairs, {disk:5.1f} MB on disk, from {where:6}: private {private:6.1f} "
                      "MB, mapped {mapped:5.1f} MB, {read_ms:.2f} ms per batch".format(**row), flush=True)
    out = Path(__file__).resolve().parents[1]/"nbs/results/store.json"
    out.write_text(json.dumps(dict(command="python benchmarks/bench_store.py", rows=rows), indent=1) + "\n")

if __name__ == "__main__": main()
