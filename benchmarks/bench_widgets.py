"""What looking costs: CPU time per frame of every view, and of a dashboard on a tiny PPO loop.

    python benchmarks/bench_widgets.py [--rounds 60] [--out benchmarks/results/widgets.json]

The loop runs in a real Jupyter kernel, so that every drawing is also packed and sent. With and
without a dashboard in turn (A B B A ...), the same seeds, CPU time of all threads of the kernel."""
import argparse, json, math, os, platform, statistics as st, sys, time
from pathlib import Path
os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

def per_frame(draw, rounds=7, seconds=.15):
    "Milliseconds of CPU time: median of the rounds, after a first drawing."
    draw()
    n, began = 0, time.process_time()
    while time.process_time() - began < seconds: draw(); n += 1
    rows = []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(n): draw()
        rows.append(1e3 * (time.process_time() - began) / n)
    return round(st.median(rows), 3)

def frames():
    "Views at the size of the chapters, or larger."
    import torch
    from rlhf_nb.show import inspectors as i, rollout_view as r
    from rlhf_nb.show.dashboard import Dashboard, Sweep, dashboard_page, sweep_page
    from rlhf_nb.show.labels import LabelSession, label_page
    from rlhf_nb.show.ledger import Ledger, ledger_page
    from rlhf_nb.judge import WORLD_PROMPT
    from rlhf_nb.base.sampling import SamplingParams
    generator = torch.Generator().manual_seed(0)
    names = [f"metric {k}" for k in range(8)]
    def dashboard(n): return Dashboard(names, rows=[
        {k: math.sin(j / 50 + m) for m, k in enumerate(names)} for j in range(n)], samples=["a sample of text"] * 2)
    ledger = Ledger([" word"] * 40, {f"channel {k}": [math.sin(k + j) for j in range(40)] for k in range(10)},
                    {"a sum": (1., 1.)})
    sweep = Sweep(None, names[:3], {f"beta {k}": dashboard(12).rows for k in range(4)})
    session = LabelSession([("question", "one answer " * 20, "another " * 20)], "none.jsonl")
    prefixes = Ledger([" word"] * 60, {"prefix score": [math.sin(j) for j in range(60)]}, {}, framed=56)
    long = Ledger([" word"] * 300, {f"channel {k}": [math.sin(k + j) for j in range(300)] for k in range(8)}, {})
    table = r.as_table([dict(prompt="a question", response=" word" * 300, reward=math.sin(j), length=300, tokens=[
        " word"] * 300, channels={"KL": [math.sin(j + m) for m in range(300)]}) for j in range(1000)])
    z, s = torch.randn(8, generator=generator), torch.linspace(-1, 1, 8)
    samples, arrows = i.kl_samples(z, s, (1., 1.), 16, generator), i.kl_gradients(z, s, 1., 1.)
    replies = [["Relevant: yes. Clean: no. Score: 3"] * 3] * 6
    words, logits = [f"w{k}" for k in range(213)], torch.randn(213, generator=generator)
    small, large = dashboard(200), dashboard(5000)
    return {
        "token ledger, two responses, 40 tokens, 10 channels": lambda: ledger_page({"a": ledger, "b": ledger}),
        "label session": lambda: label_page(session),
        "dashboard, 8 panels, 200 points": lambda: dashboard_page(small),
        "dashboard, 8 panels, 5000 points": lambda: dashboard_page(large),
        "sweep, 3 panels, 4 settings": lambda: sweep_page(sweep),
        "reward, 60 tokens": lambda: i.reward_page({"a": prefixes}, {"a": {"kind": True}}),
        "KL, 3 histograms of 400": lambda: i.kl_page(samples, arrows),
        "judge, 18 replies": lambda: i.judge_page(WORLD_PROMPT, ["answer"] * 6, replies, torch.arange(6.)),
        "next token, 213 words": lambda: i.next_page(words, logits, SamplingParams(top_k=9)),
    }, {"token ledger, 16 responses of 300 tokens, 8 channels": lambda: ledger_page({str(k): long for k in range(16)}),
        "1,000 rollouts of 300 tokens opened": lambda: r.show_rollouts(table),
        "KL: 400 batches of 16 drawn anew": lambda: i.kl_samples(z, s, (1., 1.), 16, generator),
        "KL: gradients": lambda: i.kl_gradients(z, s, 1., 1.)}

IN_KERNEL = '''
import copy, json, time, torch
from rlhf_nb.base.models import ScalarModel, frozen_copy, load_bundled
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.trainers.ppo_trainer import PPOConfig, RLTask, train_ppo
from rlhf_nb.reward import score_seqs
from rlhf_nb.base.scores import fit_normalizer
from rlhf_nb.trainers.reward_tools import make_reward_fn
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.show.dashboard import Dashboard, show_dashboard, dashboard_callback
from rlhf_nb.worlds.world_text import TRAIN, prompt_ids
from IPython.display import display
torch.set_num_threads(1)
(policy, tokenizer), (rm, _) = load_bundled("sft"), load_bundled("reward")
ref, prompts = frozen_copy(policy), [prompt_ids(tokenizer, q) for q in TRAIN]
first, _ = generate_many(ref, prompts, tokenizer, SamplingParams(), torch.Generator().manual_seed(2))
reward_fn = make_reward_fn(rm, fit_normalizer(score_seqs(rm, first)))
task = RLTask(prompts, reward_fn, tokenizer, SamplingParams())
NAMES = ["objective/scores", "objective/kl", "policy/entropy_avg", "policy/clipfrac_avg",
         "loss/value_avg", "objective/kl_coef", "tokens per second", "GPU memory, MB"]
inside = []
def loop(with_dashboard):
    model = ActorCritic(copy.deepcopy(policy).requires_grad_(), ScalarModel.from_lm(ref))
    callback = lambda row, roll: None
    if with_dashboard:
        dashboard = Dashboard(NAMES)
        display(show_dashboard(dashboard))
        inner = dashboard_callback(dashboard, tokenizer, str)
        def callback(row, roll):
            began = time.thread_time()
            inner(row, roll)
            inside.append(time.thread_time() - began)
    began = time.process_time()
    train_ppo(model, ref, task, PPOConfig(n_iterations=ITERATIONS, n_prompts=32),
              torch.Generator().manual_seed(3), callback=callback)
    return time.process_time() - began
loop(False); loop(True); inside.clear()
rows = []
for i in range(ROUNDS):
    pair = {}
    for with_dashboard in ((False, True) if i % 2 == 0 else (True, False)): pair[with_dashboard] = loop(with_dashboard)
    rows.append([pair[False], pair[True]])
print("RESULT" + json.dumps([rows, inside]))
'''

def on_a_loop(rounds, iterations=10):
    "The tiny PPO loop in a kernel of its own."
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell, new_notebook
    source = IN_KERNEL.replace("ROUNDS", str(rounds)).replace("ITERATIONS", str(iterations))
    nb = new_notebook(cells=[new_code_cell(source)])
    NotebookClient(nb, timeout=1800, kernel_name="python3").execute()
    text = "".join(o.get("text", "") for o in nb.cells[0].outputs if o.output_type == "stream")
    rows, inside = json.loads(text.split("RESULT")[1])
    step = st.median(a for a, _ in rows) / iterations
    ratios = [b / a - 1 for a, b in rows]
    return {"rounds": rounds, "iterations": iterations, "ms_per_iteration": round(1e3 * step, 2),
            "ms_in_callback": round(1e3 * st.mean(inside), 3),
            "share_in_callback": round(st.mean(inside) / step, 5),
            "paired_overhead_median": round(st.median(ratios), 5),
            "paired_overhead_all": [round(r, 4) for r in ratios]}

def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--rounds", type=int, default=60)
    args.add_argument("--out", type=Path, default=Path(__file__).parent/"results/widgets.json")
    args = args.parse_args()
    views, work = frames()
    result = {"ms_per_frame": {k: per_frame(f) for k, f in views.items()},
              "ms_of_what_is_drawn": {k: per_frame(f) for k, f in work.items()},
              "dashboard_on_a_tiny_ppo_loop": on_a_loop(args.rounds),
              "machine": f"{platform.machine()}, Python {platform.python_version()}, one thread"}
    from matplotlib import pyplot as plt
    result["figures_left_open"] = len(plt.get_fignums())
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))

if __name__ == "__main__": main()
