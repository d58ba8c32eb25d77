"""Peak memory and CPU time of per-token log-probs, forward and backward.

    python benchmarks/bench_memory.py [--json FILE] [--runs N] [--chunk-size N]

Vocabulary 50304, batch 8, length 512, width 64, fp32, one thread. Each run is a process
of its own. Memory is the process's high-water mark (VmHWM), set back just before the
work starts (/proc/self/clear_refs), so this runs on Linux only.
"""
import argparse, json, os, statistics, subprocess, sys, time
os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
V, B, T, D = 50304, 8, 512, 64
METHODS = {"log_softmax + gather": "literal", "ours": "ours",
           "log_softmax + gather, entropy": "literal_entropy",
           "ours, entropy": "ours_entropy", "ours, any head module": "ours_module"}
GOAL_MB = 150


def status(field):
    "A line of /proc/self/status, in MB."
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def measure(method, chunk_size):
    "One method in this process: peak above the start, CPU seconds, and what came out."
    import torch
    from torch import nn
    from rlhf_nb.base.logprobs import chunked_logprobs, hidden_logprobs
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    head = nn.Linear(D, V, bias=False)
    nn.init.normal_(head.weight, std=.1, generator=generator)
    hidden = torch.randn(B * T, D, generator=generator, requires_grad=True)
    targets = torch.randint(V, (B * T,), generator=generator)
    if method == "ours_module": head = nn.Sequential(head)
    (torch.randn(4, 4, requires_grad=True) @ torch.randn(4, 4)).sum().backward()  # warm up
    entropy = method.endswith("entropy")

    with open("/proc/self/clear_refs", "w") as f: f.write("5")
    start, cpu, wall = status("VmRSS"), time.process_time(), time.perf_counter()
    if method.startswith("literal"):
        logp, h = hidden_logprobs(head, hidden, targets, with_entropy=entropy)
    else: logp, h = chunked_logprobs(head, hidden, targets, chunk_size, with_entropy=entropy)
    (logp.mean() + (h.mean() if entropy else 0)).backward()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    grad = next(head.parameters()).grad
    return dict(peak_mb=status("VmHWM") - start, cpu_s=cpu, wall_s=wall,
                mean_logp=logp.double().mean().item(), grad_norm=grad.double().norm().item())


def measured(method, chunk_size, runs):
    "The medians of several processes."
    command = [sys.executable, __file__, "--one", method, "--chunk-size", str(chunk_size)]
    out = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
           for _ in range(runs)]
    return {key: statistics.median(row[key] for row in out) for key in out[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the table to this file")
    parser.add_argument("--runs", type=int, default=3, help="processes per method (median)")
    parser.add_argument("--chunk-size", type=int, default=64,
                        help="rows whose logits exist at one time")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one: return print(json.dumps(measure(args.one, args.chunk_size)))

    print(f"V {V}, b {B}, t {T}, d {D}, fp32, forward + backward, 1 thread, chunks of "
          f"{args.chunk_size} rows, median of {args.runs}; all logits at once: "
          f"{B*T*V*4/2**20:.0f} MB\n")
    print(f"{'method':32}{'peak MB':>9}{'CPU s':>8}{'/ literal':>11}"
          f"{'mean log-prob':>16}{'|grad W|':>12}")
    table = {}
    for name, method in METHODS.items():
        row = table[method] = measured(method, args.chunk_size, args.runs)
        base = table["literal_entropy" if method.endswith("entropy") else "literal"]
        row["cpu_ratio"] = row["cpu_s"] / base["cpu_s"]
        print(f"{name:32}{row['peak_mb']:9.0f}{row['cpu_s']:8.2f}{row['cpu_ratio']:11.2f}"
              f"{row['mean_logp']:16.6f}{row['grad_norm']:12.6f}", flush=True)
    ours = table["ours"]
    met = ours["peak_mb"] <= GOAL_MB and ours["cpu_ratio"] <= 1
    print(f"\ngoal: peak at most {GOAL_MB} MB and no slower than the literal form: "
          f"{'met' if met else 'MISSED'}")
    if args.json:
        with open(args.json, "w") as f: json.dump(table, f, indent=1)
    sys.exit(not met)


if __name__ == "__main__": main()
