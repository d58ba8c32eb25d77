"""What one GPU does with a 1B GPT-NeoX: precision, a DPO step, a PPO step, decoding, memory against the estimate.

    python benchmarks/gpu.py [--json FILE] [--peak-tflops X --peak-gb-s Y]
    python benchmarks/gpu.py --device cpu --tiny      # the same lines on a model of two narrow layers, to test them

Weights are random (speed does not depend on them) and come from the config alone. Shares of the peak count 6
operations per weight and trained token, and the weights' bytes once per decoding step.
"""
import argparse, json, sys, time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
from rlhf_nb.dpo import dpo_loss, make_pair_loss, precompute_ref_logprobs
from rlhf_nb.base.learning import TrainConfig, make_trainer, train_step
from rlhf_nb.base.batches import PreferencePairs
from rlhf_nb.run.memory_plan import plan_memory
from rlhf_nb.base.models import ScalarModel, disable_dropout, frozen_copy
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.trainers.ppo_trainer import PPOConfig, RLTask, ppo_rollout, ppo_update
from rlhf_nb.base.sampling import SamplingParams, generate_many, static_decoding
from rlhf_nb.tokens import make_seqs

PEAKS = {"H200": (989, 4800), "H100": (989, 3350), "A100": (312, 2039)}   # dense bf16 TFLOP/s, GB/s, of the data sheets
TOKENIZER = SimpleNamespace(pad_token_id=1, eos_token_id=0, decode=str)

@dataclass(frozen=True)
class Size:
    config: GPTNeoXConfig
    rows: int       # pairs of a DPO step, responses of a PPO step
    micro: int      # of them in memory at once
    prompt: int     # tokens
    response: int
    steps: int      # timed, after one that is not

def sizes(tiny):
    shape = dict(hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, vocab_size=512) if tiny else \
        dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=8, vocab_size=50304)
    config = GPTNeoXConfig(max_position_embeddings=1024, tie_word_embeddings=False, pad_token_id=1, eos_token_id=0, bos_token_id=2,
                           **shape)
    return Size(config, 4, 2, 12, 8, 1) if tiny else Size(config, 64, 8, 448, 64, 3)

def peaks(args):
    name = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    found = next((x for k, x in PEAKS.items() if k in name), (None, None))
    return name, args.peak_tflops or found[0], args.peak_gb_s or found[1]

def timed(fn, device): # result, seconds, peak bytes of the GPU
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    out = fn()
    if cuda: torch.cuda.synchronize()
    return out, time.perf_counter() - begin, torch.cuda.max_memory_allocated() if cuda else None

def policy(size, device):
    torch.manual_seed(0)
    with torch.device(device): model = GPTNeoXForCausalLM(size.config)
    return model.eval()

def some_rows(size, n, seed=0):
    ids = torch.randint(2, size.config.vocab_size, (n, size.prompt + size.response), generator=torch.Generator().manual_seed(seed))
    return make_seqs(ids[:, :size.prompt].tolist(), ids[:, size.prompt:].tolist(), 1)

def precision(size, device): # log-probs in bfloat16 against float32, the same weights and rows
    model, seqs = policy(size, device), some_rows(size, size.micro)
    with torch.no_grad():
        want = logprobs(model, seqs)
        with torch.autocast(device.type, torch.bfloat16): cast = logprobs(model, seqs)
        whole = logprobs(model.bfloat16(), seqs)
    of = lambda x: dict(mean=(x - want).abs().mean().item(), largest=(x - want).abs().max().item())
    return dict(autocast=of(cast.float()), bf16_weights=of(whole.float()), unit="nats per token")

def share(flops, seconds, peak): return flops / seconds / (peak * 1e12) if peak else None

def dpo(size, device, peak):
    model = policy(size, device).requires_grad_()
    pairs = PreferencePairs(some_rows(size, size.rows), some_rows(size, size.rows, 1))
    with torch.autocast(device.type, torch.bfloat16): data = precompute_ref_logprobs(model, pairs, size.micro)
    trainer = make_trainer(disable_dropout(model), TrainConfig(1e-6, mixed_precision="bf16", micro_batch_size=size.micro))
    step = partial(train_step, trainer, data, make_pair_loss(dpo_loss))
    step()
    _, seconds, peak_bytes = timed(lambda: [step() for _ in range(size.steps)], device)
    n, tokens = sum(p.numel() for p in model.parameters()), 2 * size.rows * (size.prompt + size.response)
    plan = plan_memory(size.config, 2 * size.micro, size.prompt + size.response, bf16=True)
    return dict(seconds=seconds / size.steps, tokens_per_second=tokens * size.steps / seconds,
                share_of_peak=share(6 * n * tokens * size.steps, seconds, peak), peak_gb=gb(peak_bytes), estimated_gb=gb(plan.total))

def gb(x): return x and round(x / 2**30, 3)

def ppo(size, device, peak):
    lm = policy(size, device).requires_grad_()
    model, ref = ActorCritic(lm, ScalarModel.from_lm(lm)), frozen_copy(lm)
    prompts = [row[:size.prompt] for row in some_rows(size, size.rows).ids.tolist()]
    task = RLTask(prompts, lambda seqs: seqs.response_mask.sum(1).float(), TOKENIZER, SamplingParams(size.response))
    config = PPOConfig(n_iterations=2, n_prompts=size.rows, n_epochs=1, micro_batch_size=size.micro, max_kl=1e9, mixed_precision="bf16")
    trainer = make_trainer(model, TrainConfig(1e-6, mixed_precision="bf16", micro_batch_size=size.micro))
    disable_dropout(model)
    generator = torch.Generator().manual_seed(0)
    def rollout():
        with trainer.autocast: return ppo_rollout(trainer, ref, task, config, generator, {})[0]
    roll = rollout()
    ppo_update(trainer, roll, config, 0, generator)
    roll, sampled, _ = timed(rollout, device)
    _, updated, peak_bytes = timed(lambda: ppo_update(trainer, roll, config, 0, generator), device)
    n, tokens = sum(p.numel() for p in model.parameters()), roll.seqs.attention_mask.sum().item()
    plan = plan_memory(size.config, size.micro, size.prompt + size.response, bf16=True, n_frozen=1, critic=True)
    return dict(rollout_seconds=sampled, update_seconds=updated, share_of_peak=share(6 * n * tokens, updated, peak),
                share_of_peak_with_rollout=share(6 * n * tokens, updated + sampled, peak),
                peak_gb=gb(peak_bytes), estimated_gb=gb(plan.total))

def decoding(size, device, peak_gb_s):
    model, found = policy(size, device).to(torch.bfloat16), {}
    size_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    with torch.no_grad(): model.get_output_embeddings().weight[0] = 0      # eos is never the likeliest
    ways = [(1, False), (size.rows, False), (size.rows, True)][:3 if device.type == "cuda" else 2]
    for rows, fixed in ways:                                               # compiling for a CPU measures nothing
        prompts = [row[:size.prompt] for row in some_rows(size, rows).ids.tolist()]
        def run():
            with static_decoding(fixed): return generate_many(
                model, prompts, TOKENIZER, SamplingParams(size.response, 0.), torch.Generator(), rows)[0]
        run()
        seqs, seconds, _ = timed(run, device)
        steps = int(seqs.response_mask.sum(1).max())
        found[f"{rows} rows" + ", compiled" * fixed] = dict(tokens_per_second=seqs.response_mask.sum().item() / seconds, steps_per_second=steps / seconds,
            share_of_bandwidth=size_bytes * steps / seconds / (peak_gb_s * 1e9) if peak_gb_s else None)
    return found

def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="two narrow layers")
    parser.add_argument("--json", type=Path, help="write the numbers to FILE (default: benchmarks/results/gpu.json; "
                        "nowhere with --tiny)")
    parser.add_argument("--peak-tflops", type=float, help="of dense bf16, where the card is not known")
    parser.add_argument("--peak-gb-s", type=float, help="of its memory")
    args = parser.parse_args(argv)
    if args.device == "cuda" and not torch.cuda.is_available():
        return print("benchmarks/gpu.py needs a CUDA device, this machine has none: --device cpu --tiny tests its lines",
                     file=sys.stderr) or 2
    if args.device == "cpu" and not args.tiny:
        return print("benchmarks/gpu.py trains a 1B model, which no CPU does in time: add --tiny", file=sys.stderr) or 2
    (name, tflops, gb_s), size, device = peaks(args), sizes(args.tiny), torch.device(args.device)
    found = dict(device=name, torch=torch.__version__, tiny=args.tiny, peak_tflops=tflops, peak_gb_s=gb_s)
    for part, fn in (("precision", lambda: precision(size, device)), ("dpo", lambda: dpo(size, device, tflops)),
                     ("ppo", lambda: ppo(size, device, tflops)), ("decoding", lambda: decoding(size, device, gb_s))):
        found[part] = fn()
        print(part, json.dumps(found[part], indent=1), flush=True)
        if device.type == "cuda": torch.cuda.empty_cache()
    out = args.json or (None if args.tiny else Path(__file__).parent/"results"/"gpu.json")
    if out: out.write_text(json.dumps(found, indent=1) + "\n")
    return 0

if __name__ == "__main__": raise SystemExit(main())
