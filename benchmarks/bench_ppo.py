"""What a PPO step costs beyond the bare arithmetic, and what each token of the rollout costs.

    python benchmarks/bench_ppo.py                       # tiny Llama, one thread, 3 minutes
    python benchmarks/bench_ppo.py --turns 9 --json out.json
    python benchmarks/bench_ppo.py --size small --minibatches 1 --turns 1        # 2 minutes

One step: 64 prompts of 16 tokens, 32 new tokens each, reference, critic and reward model read them, 4 epochs of
1 or 4 minibatches. Bare: the same transformers modules, shapes and weights, a loop with a KV cache,
AdamW, and nothing else: no masks, entropy, metrics, gradient clipping. Ours: `collect_rollout` and `ppo_update`, in fp32
and with bf16 autocast (attention by plain matrix products: on a CPU the backward pass of fused bf16
attention was measured to take half of all the time). They take turns in one process; CPU seconds,
median of the ratios to the bare fp32 step of the same turn.
"""
import argparse, copy, gc, json, os, statistics, time
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
from types import SimpleNamespace
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
from rlhf_nb.base.learning import TrainConfig, make_trainer
from rlhf_nb.base.models import ScalarModel, frozen_copy
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.trainers.ppo_trainer import PPOConfig, ppo_update
from rlhf_nb.reward import pooled_scores
from rlhf_nb.base.sampling import SamplingParams, cache_name, collect_rollout, generate

SIZES = dict(tiny=dict(hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
                       vocab_size=512, intermediate_size=384),
             small=dict(hidden_size=512, num_hidden_layers=6, num_attention_heads=8,
                        vocab_size=8192, intermediate_size=1408))
ROWS, PROMPT, NEW, EPOCHS, LR = 64, 16, 32, 4, 1e-5
NEVER = SimpleNamespace(pad_token_id=0, eos_token_id=10**9)     # no row ends early


def make_models(size, device):
    config = LlamaConfig(**SIZES[size], max_position_embeddings=1024, pad_token_id=0,
                         eos_token_id=1, bos_token_id=2, tie_word_embeddings=False)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        lm = LlamaForCausalLM(config).to(device).eval()
    critic, rm = [ScalarModel.from_lm(lm, seed).to(device).eval() for seed in (2, 3)]
    return SimpleNamespace(policy=lm, ref=frozen_copy(lm), critic=critic, rm=frozen_copy(rm))


# ---------------------------------------------------------------- bare

@torch.no_grad()
def bare_generate(policy, prompts):
    cache, ids, tokens, logp = DynamicCache(), prompts, [prompts], []
    for _ in range(NEW):
        out = policy(input_ids=ids, use_cache=True, logits_to_keep=1, **{cache_name(policy): cache})
        now = out.logits[:, -1].log_softmax(-1)
        ids = torch.multinomial(now.exp(), 1)
        tokens.append(ids)
        logp.append(now.gather(1, ids))
    return torch.cat(tokens, 1), torch.cat(logp, 1)


def of_response(x): return x[:, PROMPT - 1:-1]


def bare_logprobs(lm, x):
    states = of_response(lm.model(input_ids=x, use_cache=False).last_hidden_state)
    return lm.lm_head(states).log_softmax(-1).gather(-1, x[:, PROMPT:, None])[..., 0]


def bare_step(m, minibatches):
    optimizer = torch.optim.AdamW([*m.policy.parameters(), *m.critic.parameters()], lr=LR,
                                  weight_decay=0., fused=True)
    def scalar(model, x):
        return model.score(model.backbone(input_ids=x, use_cache=False).last_hidden_state)[..., 0]
    def step(prompts):
        x, old = bare_generate(m.policy, prompts)
        with torch.no_grad():
            reward = -.05 * (old - bare_logprobs(m.ref, x))
            v0 = of_response(scalar(m.critic, x))
            reward[:, -1] += scalar(m.rm, x)[:, -1]
            a, later = torch.empty_like(reward), 0.
            for t in reversed(range(NEW)):
                later = reward[:, t] + (v0[:, t + 1] if t < NEW - 1 else 0.) - v0[:, t] + .95 * later
                a[:, t] = later
            returns, a = a + v0, (a - a.mean()) * (a.var() + 1e-8).rsqrt()
        for _ in range(EPOCHS):
            for rows in torch.randperm(ROWS).chunk(minibatches):
                ratio = (bare_logprobs(m.policy, x[rows]) - old[rows]).exp()
                v = of_response(scalar(m.critic, x[rows]))
                gain = torch.minimum(ratio * a[rows], ratio.clamp(.8, 1.2) * a[rows]).mean()
                near = v0[rows] + (v - v0[rows]).clamp(-.2, .2)
                error = torch.maximum((v - returns[rows])**2, (near - returns[rows])**2).mean() / 2
                (.1 * error - gain).backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
    return step


# ---------------------------------------------------------------- ours

def our_step(m, minibatches, mixed_precision):
    model = ActorCritic(m.policy, m.critic)
    config = PPOConfig(n_prompts=ROWS, n_epochs=EPOCHS, n_minibatches=minibatches, micro_batch_size=ROWS, beta=.05,
                       lam=.95, mixed_precision=mixed_precision)
    trainer = make_trainer(model, TrainConfig(lr=LR, n_steps=10**6, warmup_steps=0, final_lr_frac=1.,
                                              micro_batch_size=ROWS, mixed_precision=mixed_precision))
    generator = torch.Generator().manual_seed(0)
    def step(prompts):
        with trainer.autocast:
            roll = collect_rollout(m.policy, m.ref, prompts.tolist(), lambda s: pooled_scores(m.rm, s), NEVER,
                                   SamplingParams(NEW), generator, batch_size=ROWS)
        ppo_update(trainer, roll, config, NEVER.eos_token_id, generator)
    def plain(prompts):
        with sdpa_kernel(SDPBackend.MATH): step(prompts)
    return plain if mixed_precision == "bf16" and next(m.policy.parameters()).device.type == "cpu" else step


def cpu(step, *args):
    began = time.process_time()
    step(*args)
    return time.process_time() - began


def compare(size, minibatches, turns, device):
    base = make_models(size, device)
    steps = {"bare": bare_step(copy.deepcopy(base), minibatches),
             "ours": our_step(copy.deepcopy(base), minibatches, "no"),
             "ours bf16": our_step(copy.deepcopy(base), minibatches, "bf16")}
    generator = torch.Generator().manual_seed(7)
    rows = []
    gc.disable()
    for i in range(turns + 1):
        prompts = torch.randint(4, SIZES[size]["vocab_size"], (ROWS, PROMPT), generator=generator).to(device)
        names = list(steps)[i % 3:] + list(steps)[:i % 3]           # each goes first in turn
        took = {name: cpu(steps[name], prompts) for name in names}
        if i: rows.append(took)                                     # the first one warms up
        gc.collect()
    gc.enable()
    return {name: dict(cpu_s=statistics.median(r[name] for r in rows),
                       times_bare=statistics.median(r[name] / r["bare"] for r in rows))
            for name in steps}


def decode(size, turns, device):
    "CPU microseconds per sampled token, bare loop and ours."
    m, generator = make_models(size, device), torch.Generator().manual_seed(7)
    rows = []
    for i in range(turns + 1):
        prompts = torch.randint(4, SIZES[size]["vocab_size"], (ROWS, PROMPT), generator=generator).to(device)
        bare = cpu(bare_generate, m.policy, prompts)
        ours = cpu(generate, m.policy, prompts.tolist(), NEVER, SamplingParams(NEW), generator)
        if i: rows.append((bare, ours))
    each = 1e6 / ROWS / NEW
    return dict(bare_us=each * statistics.median(b for b, _ in rows),
                ours_us=each * statistics.median(o for _, o in rows),
                times_bare=statistics.median(o / b for b, o in rows))


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("--size", choices=SIZES, default="tiny")
    args.add_argument("--turns", type=int, default=6)
    args.add_argument("--minibatches", type=int, nargs="+", default=[1, 4])
    args.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    args.add_argument("--json")
    args = args.parse_args()
    torch.set_num_threads(1)
    result = dict(size=args.size, torch=torch.__version__)
    for n in args.minibatches:
        result[f"{n} minibatches"] = got = compare(args.size, n, args.turns, args.device)
        for name, row in got.items():
            print(f"{n} minibatches  {name:10} {row['cpu_s']:7.3f} s   {row['times_bare']:.3f} of bare", flush=True)
    result["decode"] = d = decode(args.size, args.turns, args.device)
    print(f"decode: bare {d['bare_us']:.1f} us per token, ours {d['ours_us']:.1f} ({d['times_bare']:.2f} of bare)")
    if args.json: open(args.json, "w").write(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__": main()
