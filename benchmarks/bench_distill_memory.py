"""Peak memory and CPU time of the loss of distillation, forward and backward, in chunks and in one piece.

    python benchmarks/bench_distill_memory.py [--json FILE] [--runs N]

Student and teacher are two GPT-NeoX models of one layer, width 64, vocabulary 50304; 8 answers of 256 tokens
behind a prompt of one token, fp32, one thread. In chunks: `token_divergence` with the logits that `logits_budget`
allows, 64 MB by default. In one piece: the same call with a budget that the logits of both models fit. Each run is a
process of its own. Memory is the process's high-water mark (VmHWM) above what it held before the call, set back just
then (/proc/self/clear_refs), so this runs on Linux only; two gradients of (v d), 25 MB, are part of it. malloc gives
back what is freed (MALLOC_MMAP_THRESHOLD_); the last rows show what glibc keeps where nobody asks it to.
Loss and length of the gradient are kept, too, because all ways must agree in them.
"""
import argparse, json, math, os, statistics, subprocess, sys, time
os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
from bench_memory import status

V, B, T, D = 50304, 8, 256, 64
WAYS = {"in one piece": 1e9, "in chunks, 256 MB": 256., "in chunks, 64 MB": 64., "in chunks, 16 MB": 16.}
TWO = ["in one piece", "in chunks, 64 MB"]
LOSSES = ["reverse_kl", "forward_kl", "sampled_kl"]
GIVES_BACK = dict(MALLOC_MMAP_THRESHOLD_="65536", MALLOC_TRIM_THRESHOLD_="65536")
GOAL = 8    # times less memory in chunks of the default budget than in one piece


def measure(loss, budget):
    "One call in this process: peak above the start, CPU seconds, and what came out."
    import torch
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
    from rlhf_nb.base.logprobs import logits_budget
    from rlhf_nb.distillation import DIVERGENCES
    from rlhf_nb.tokens import make_seqs
    from rlhf_nb.trainers.distill_trainer import Taught, token_divergence
    torch.set_num_threads(1)
    def lm(seed):
        torch.manual_seed(seed)
        return GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=V, hidden_size=D, intermediate_size=4 * D, num_hidden_layers=1,
            num_attention_heads=4, eos_token_id=0, pad_token_id=1, initializer_range=.1)).eval()
    student, teacher = lm(0), lm(1).requires_grad_(False)
    rows = torch.randint(2, V, (B, T), generator=torch.Generator().manual_seed(0)).tolist()
    def taught(n): return Taught(*[make_seqs([[2]] * B, [row[:n] for row in rows], 1)] * 2)
    def step(x):
        each, _ = token_divergence(student, teacher, x, DIVERGENCES[loss])
        each.mean().backward()
        return each
    step(taught(2))                                                # warm up; the heads are looked at
    student.zero_grad(set_to_none=True)
    x = taught(T)
    with open("/proc/self/clear_refs", "w") as f: f.write("5")
    start, cpu = status("VmRSS"), time.process_time()
    with logits_budget(budget): each = step(x)
    cpu, peak = time.process_time() - cpu, status("VmHWM") - start
    assert len(each) == B * T
    norm = math.sqrt(sum(p.grad.double().square().sum().item() for p in student.parameters()))
    return dict(peak_mb=peak, cpu_s=cpu, value=each.double().mean().item(), grad_norm=norm)


def measured(loss, way, runs, env):
    "The medians of several processes."
    command = [sys.executable, __file__, "--one", loss, way]
    out = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | env).stdout)
           for _ in range(runs)]
    return {key: round(statistics.median(row[key] for row in out), 6 if key in ("value", "grad_norm") else 1)
            for key in out[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the rows to this file")
    parser.add_argument("--runs", type=int, default=3, help="processes for each row (median)")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one: return print(json.dumps(measure(args.one[0], WAYS[args.one[1]])))

    whole = B * T * V * 4 / 2**20
    print(f"V {V}, b {B}, t {T}, d {D}, fp32, forward + backward, 1 thread, median of {args.runs}; "
          f"logits of one model: {whole:.0f} MB\n\n{'loss':12}{'logits':20}{'malloc':12}{'peak MB':>9}{'CPU s':>8}"
          f"{'value':>11}{'|grad|':>11}")
    rows = []
    for loss, way, malloc in [*((LOSSES[0], way, "gives back") for way in WAYS), *((loss, way, "gives back") for loss in LOSSES[1:] for way in TWO),
                              *((LOSSES[0], way, "as it comes") for way in TWO)]:
        x = measured(loss, way, args.runs, GIVES_BACK if malloc == "gives back" else {})
        rows.append(dict(loss=loss, logits=way, malloc=malloc) | x)
        print(f"{loss:12}{way:20}{malloc:12}{x['peak_mb']:9.0f}{x['cpu_s']:8.1f}{x['value']:11.6f}{x['grad_norm']:11.6f}", flush=True)
    peak = {(r["loss"], r["logits"]): r["peak_mb"] for r in rows if r["malloc"] == "gives back"}
    met = all(GOAL * peak[loss, TWO[1]] <= peak[loss, TWO[0]] for loss in LOSSES)
    print(f"\ngoal: {GOAL} times less memory in chunks of the default budget: {'met' if met else 'MISSED'}")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(dict(command=f"python benchmarks/bench_distill_memory.py --runs {args.runs}", size=dict(v=V, b=B, t=T, d=D), runs=args.runs,
                           logits_mb=round(whole), rows=rows), f, indent=1)
            f.write("\n")
    sys.exit(not met)


if __name__ == "__main__": main()
