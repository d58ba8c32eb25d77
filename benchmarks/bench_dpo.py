"""What a DPO step costs beyond the bare arithmetic, with a live and with a precomputed reference.

    python benchmarks/bench_dpo.py                     # tiny, fp32, one thread
    python benchmarks/bench_dpo.py --turns 60 --json out.json

Bare: the same transformers modules, shapes and weights, one forward for both sides, the head on response
positions only, AdamW, and nothing else (no masks, no clipping, no log). `live` asks the frozen
reference at each step, in both; `stored` has its log-probs from before, in both. All take turns in one
process; each turn gives one ratio of CPU seconds, and the table shows the median ratio.
"""
import argparse, copy, gc, json, os, statistics, time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from torch.nn import functional as F

from bench_sft_reward import LR, PROMPT, ROWS, SIZES, language_model, seqs, tokens
from rlhf_nb.dpo import PairsWithRef, make_pair_loss, dpo_loss, precompute_ref_logprobs
from rlhf_nb.base.learning import TrainConfig, make_trainer, train_step
from rlhf_nb.base.models import frozen_copy
from rlhf_nb.base.batches import PreferencePairs


def both_sides(model, ids):
    "Summed log-probs of the responses, (b) chosen and (b) rejected."
    states = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, PROMPT - 1:-1]
    logp = model.lm_head(states).log_softmax(-1)
    return logp.gather(-1, ids[:, PROMPT:, None])[..., 0].sum(1).chunk(2)


def bare(model, ref, data, stored):
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0., fused=True)
    def step(i):
        ids = torch.cat([data[0][i], data[1][i]])
        if stored: ref_c, ref_r = stored[i]
        else:
            with torch.no_grad(): ref_c, ref_r = both_sides(ref, ids)
        chosen, rejected = both_sides(model, ids)
        loss = -F.logsigmoid(.1 * (chosen - ref_c - rejected + ref_r)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step


def pairs(data, i): return PreferencePairs(seqs(data[0][i], PROMPT), seqs(data[1][i], PROMPT))


def ours(model, ref, data, stored):
    trainer = make_trainer(model, TrainConfig(lr=LR, n_steps=10**6, warmup_steps=0, batch_size=ROWS))
    loss = make_pair_loss(dpo_loss)
    def step(i):
        x = pairs(data, i)
        batch = PairsWithRef(x, *stored[i]) if stored else precompute_ref_logprobs(ref, x)
        return train_step(trainer, batch, loss)["loss"]
    return step


def timed(step, i):
    began = time.process_time()
    loss = float(step(i))
    return time.process_time() - began, loss


def measure(kind, size, turns, warmup):
    generator = torch.Generator().manual_seed(7)
    data = [tokens(turns + warmup, SIZES[size]["vocab_size"], generator, "cpu") for _ in range(2)]
    base = language_model(size, "cpu").eval()
    ref, stored = frozen_copy(base), None
    if kind == "stored":
        stored = [(x.ref_chosen, x.ref_rejected) for x in (precompute_ref_logprobs(ref, pairs(data, i)) for i in range(turns + warmup))]
    steps = [make(copy.deepcopy(base), ref, data, stored) for make in (bare, ours)]
    ratios, seconds = [], []
    gc.disable()
    for i in range(turns + warmup):
        took = {k: timed(steps[k], i) for k in ((0, 1) if i % 2 else (1, 0))}     # neither always goes first
        assert i or abs(took[0][1] / took[1][1] - 1) < 1e-4, "not the same loss"
        if i >= warmup:
            ratios.append(took[1][0] / took[0][0])
            seconds.append((took[0][0], took[1][0]))
        gc.collect()
    gc.enable()
    ratios.sort()
    return dict(kind=kind, size=size, turns=turns, bare_ms=1e3 * statistics.median(s[0] for s in seconds),
                our_ms=1e3 * statistics.median(s[1] for s in seconds), times_bare=statistics.median(ratios),
                quartiles=[ratios[len(ratios) // 4], ratios[-len(ratios) // 4]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=4, help="turns not counted (4)")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--json", help="also write the numbers to this file")
    a = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(kind, a.size, a.turns, a.warmup) for kind in ("live", "stored")]
    print(f"{'reference':12}{'bare ms':>10}{'ours ms':>10}{'x bare':>9}{'quartiles':>16}")
    for r in rows:
        print(f"{r['kind']:12}{r['bare_ms']:10.1f}{r['our_ms']:10.1f}{r['times_bare']:9.3f}"
              f"{r['quartiles'][0]:9.3f}-{r['quartiles'][1]:.3f}")
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f: json.dump(dict(torch=torch.__version__, rows=rows), f, indent=1)


if __name__ == "__main__": main()
