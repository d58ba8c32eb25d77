"""What a training step costs beyond the bare arithmetic: SFT and reward model.

    python benchmarks/bench_sft_reward.py                       # tiny, fp32, one thread
    python benchmarks/bench_sft_reward.py --pairs 60 --json out.json

Bare: the same transformers modules, the same shapes and weights, AdamW, and nothing
else (no masks, no clipping, no log). Ours: `train_step` of rlhf_nb.base.learning with `sft_loss`
and `reward_loss`. Both take turns in one process; each turn gives one ratio, and the
table shows the median ratio.
"""
import argparse, copy, gc, json, os, statistics, time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from rlhf_nb.base.learning import TrainConfig, make_trainer, train_step
from rlhf_nb.base.models import ScalarModel
from rlhf_nb.reward import reward_loss
from rlhf_nb.sft import sft_loss
from rlhf_nb.base.batches import PreferencePairs
from rlhf_nb.tokens import Seqs

SIZES = dict(tiny=dict(hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
                       vocab_size=512, intermediate_size=384),
             small=dict(hidden_size=512, num_hidden_layers=6, num_attention_heads=8,
                        vocab_size=8192, intermediate_size=1408))
ROWS, LENGTH, PROMPT, LR = 16, 64, 16, 1e-5


def language_model(size, device):
    config = LlamaConfig(**SIZES[size], max_position_embeddings=1024, pad_token_id=0,
                         eos_token_id=1, bos_token_id=2, tie_word_embeddings=False)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return LlamaForCausalLM(config).to(device).train()


def tokens(n, vocab, generator, device):
    return torch.randint(4, vocab, (n, ROWS, LENGTH), generator=generator).to(device)


def seqs(ids, first):
    "Full rows: no pads, response from position `first` on."
    mask = torch.ones_like(ids, dtype=torch.bool)
    return Seqs(ids, mask, (torch.arange(LENGTH, device=ids.device) >= first) & mask)


def bare_sft(model, ids):
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0., fused=True)
    def step(i):
        states = model.model(input_ids=ids[i], use_cache=False).last_hidden_state[:, :-1]
        loss = F.cross_entropy(model.lm_head(states).flatten(0, 1), ids[i][:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step


def our_sft(model, ids):
    trainer = make_trainer(model, TrainConfig(lr=LR, n_steps=10**6, warmup_steps=0, batch_size=ROWS))
    return lambda i: train_step(trainer, seqs(ids[i], 1), sft_loss)["loss"]


def bare_reward(model, ids):
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0., fused=True)
    def step(i):
        both = torch.cat([ids[0][i], ids[1][i]])
        states = model.backbone(input_ids=both, use_cache=False).last_hidden_state[:, -1]
        chosen, rejected = model.score(states)[..., 0].chunk(2)
        loss = -F.logsigmoid(chosen - rejected).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step


def our_reward(model, ids):
    trainer = make_trainer(model, TrainConfig(lr=LR, n_steps=10**6, warmup_steps=0, batch_size=ROWS))
    loss = lambda model, pairs: reward_loss(model, pairs, center_coef=0.)
    return lambda i: train_step(trainer, PreferencePairs(seqs(ids[0][i], PROMPT),
                                           seqs(ids[1][i], PROMPT)), loss)["loss"]


def timed(step, i, device):
    sync = torch.cuda.synchronize if device == "cuda" else lambda: None
    sync()
    wall, cpu = time.perf_counter(), time.process_time()
    loss = float(step(i))
    sync()
    return time.perf_counter() - wall, time.process_time() - cpu, loss


def measure(task, size, pairs, warmup, device):
    generator = torch.Generator().manual_seed(7)
    draw = lambda: tokens(pairs + warmup, SIZES[size]["vocab_size"], generator, device)
    base = language_model(size, device)
    if task == "sft": model, data, makers = base, draw(), (bare_sft, our_sft)
    else:
        model, data = ScalarModel.from_lm(base, seed=2), (draw(), draw())
        makers = bare_reward, our_reward
    steps = [make(copy.deepcopy(model), data) for make in makers]
    rows = []
    gc.disable()
    for i in range(pairs + warmup):
        order = (0, 1) if i % 2 else (1, 0)       # neither always goes first
        took = {k: timed(steps[k], i, device) for k in order}
        if not i: assert abs(took[0][2] / took[1][2] - 1) < 1e-4, "not the same loss"
        if i >= warmup: rows.append((took[0], took[1]))
        gc.collect()
    gc.enable()
    median = lambda f: statistics.median(map(f, rows))
    ratios = sorted(ours[0] / bare[0] for bare, ours in rows)
    return dict(task=task, size=size, device=device, turns=pairs,
                bare_ms=1e3 * median(lambda r: r[0][0]), our_ms=1e3 * median(lambda r: r[1][0]),
                times_bare=statistics.median(ratios),
                times_bare_quartiles=[ratios[len(ratios) // 4], ratios[-len(ratios) // 4]],
                times_bare_cpu=median(lambda r: r[1][1] / r[0][1]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=40, help="measured turns (40)")
    parser.add_argument("--warmup", type=int, default=4, help="turns not counted (4)")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", help="also write the numbers to this file")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    rows = [measure(task, a.size, a.pairs, a.warmup, a.device) for task in ("sft", "reward")]
    print(f"{'step':8}{'bare ms':>10}{'ours ms':>10}{'x bare':>9}{'quartiles':>15}{'x bare (CPU s)':>16}")
    for r in rows:
        low, high = r["times_bare_quartiles"]
        print(f"{r['task']:8}{r['bare_ms']:10.1f}{r['our_ms']:10.1f}{r['times_bare']:9.3f}"
              f"{low:8.3f}-{high:.3f}{r['times_bare_cpu']:15.3f}")
    out = dict(torch=torch.__version__, threads=a.threads, load=os.getloadavg(), rows=rows)
    print(json.dumps(out))
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f: json.dump(out, f, indent=1)


if __name__ == "__main__": main()
