"""Peak memory and CPU time of one Q-learning loss, forward and backward.

    python benchmarks/bench_qlearning.py [--json FILE] [--runs N]

Vocabulary 50304, batch 8, length 512, GPTNeoX of 2 layers and width 64, fp32, one thread. Every
run is a process of its own; memory is the process's high-water mark (VmHWM), set back just before
the work starts (/proc/self/clear_refs), so this runs on Linux only. `bare` is what no Q-learning
can do without: two forward passes to the logits (online and target) and one backward pass, here
of the taken values alone. `literal` adds maximum and conservative term on all logits at once.
"""
import argparse, json, os, statistics, subprocess, sys, time
os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
V, B, T, D = 50304, 8, 512, 64
METHODS = {"bare: two forwards, one backward": "bare", "literal": "literal", "ours": "ours",
           "ours, double": "double", "ours, dueling head": "dueling",
           "ours, any head module": "module"}
GOAL_MB, GOAL_TIME = 250, 1.15


def status(field):
    "A line of /proc/self/status, in MB."
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def networks(method):
    "Two networks whose Q-values are not all zero."
    import torch
    from torch import nn
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
    from rlhf_nb.base.q_networks import QNets, q_network
    config = GPTNeoXConfig(vocab_size=V, hidden_size=D, num_hidden_layers=2, num_attention_heads=4,
                           intermediate_size=4 * D, max_position_embeddings=T, rotary_pct=1.)
    torch.manual_seed(0)
    q = q_network(GPTNeoXForCausalLM(config), dueling=method == "dueling")
    head = q.get_output_embeddings()
    for p in head.parameters(): nn.init.normal_(p, std=.1)
    if method == "module":       # a head whose weights cannot be read off
        class Head(nn.Sequential): weight = property(lambda self: self[0].weight)
        q.set_output_embeddings(Head(head))
    return QNets(q, disallowed=[0])


def literal(nets, x, config, bare=False):
    "The loss with all logits at once, (b t v)."
    from rlhf_nb.qlearning import bellman_targets
    from rlhf_nb.tokens import shift_right
    import torch
    ids, mask = x.seqs.ids, x.mask
    def logits(net): return net(input_ids=ids, attention_mask=x.attention_mask.long()).logits
    q = logits(nets.online)
    with torch.no_grad(): slow = logits(nets.target)
    said = shift_right(q).gather(-1, ids[..., None])[..., 0]
    if bare: return said.masked_fill(~mask, 0.).sum()
    value = slow.masked_fill(~nets.allowed, -torch.inf).amax(-1)
    y = bellman_targets(x, value, config)
    free = shift_right(q)[..., nets.allowed]
    rest = ((free - config.min_return)**2).sum(-1) - (said - config.min_return)**2
    loss = (said - y)**2 / 2 + config.alpha / 2 * rest / (free.shape[-1] - 1)
    return loss.masked_fill(~mask, 0.).sum()


def measure(method):
    "One method in this process: peak above the start, CPU seconds, and what came out."
    import torch
    from rlhf_nb.base.q_networks import make_episodes
    from rlhf_nb.base.q_networks import QConfig
    from rlhf_nb.qlearning import q_loss
    from rlhf_nb.tokens import Seqs
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    nets = networks(method)
    def batch(b, t):
        ids = torch.randint(3, V, (b, t), generator=generator)
        mask = torch.ones(b, t, dtype=torch.bool)
        response = mask.clone()
        response[:, :4] = False
        return make_episodes(Seqs(ids, mask, response), torch.rand(b, generator=generator), eos=2)
    config = QConfig(double_q=method == "double")
    def step(x):
        if method in ("bare", "literal"): return literal(nets, x, config, method == "bare")
        return q_loss(nets, x, config)[0]
    step(batch(1, 8)).backward()                                     # warm up
    nets.zero_grad()
    x = batch(B, T)
    with open("/proc/self/clear_refs", "w") as f: f.write("5")
    start, cpu = status("VmRSS"), time.process_time()
    loss = step(x)
    loss.backward()
    cpu = time.process_time() - cpu
    norm = sum(p.grad.double().square().sum() for p in nets.online.parameters())**.5
    return dict(peak_mb=status("VmHWM") - start, cpu_s=cpu, loss=float(loss), grad_norm=float(norm))


def measured(method, runs):
    "Medians over several processes."
    command = [sys.executable, __file__, "--one", method]
    out = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
           for _ in range(runs)]
    return {key: statistics.median(row[key] for row in out) for key in out[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the table to this file")
    parser.add_argument("--runs", type=int, default=3, help="processes per method (median)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one: return print(json.dumps(measure(args.one)))
    print(f"V {V}, b {B}, t {T}, d {D}, 2 layers, fp32, forward + backward, 1 thread, median of "
          f"{args.runs}; all logits of one network: {B*T*V*4/2**20:.0f} MB\n")
    print(f"{'':34}{'peak MB':>9}{'CPU s':>8}{'/ bare':>8}{'loss':>14}{'|grad|':>12}")
    table = {}
    for name, method in METHODS.items():
        row = table[method] = measured(method, args.runs)
        row["cpu_ratio"] = row["cpu_s"] / table["bare"]["cpu_s"]
        print(f"{name:34}{row['peak_mb']:9.0f}{row['cpu_s']:8.2f}{row['cpu_ratio']:8.2f}"
              f"{row['loss']:14.4f}{row['grad_norm']:12.4f}", flush=True)
    ours = [table[m] for m in ("ours", "double", "dueling")]
    met = max(r["peak_mb"] for r in ours) <= GOAL_MB and max(r["cpu_ratio"] for r in ours) <= GOAL_TIME
    print(f"\ngoal: peak <= {GOAL_MB} MB and CPU <= {GOAL_TIME} of bare: {'met' if met else 'missed'}")
    if args.json: open(args.json, "w").write(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__": main()
