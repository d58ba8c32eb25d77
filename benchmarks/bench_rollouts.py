"""What looking at a large dump costs: 10,000 responses of 500 tokens as a kept run, as JSONL, and as Parquet.

    python benchmarks/bench_rollouts.py [--rows 10000] [--tokens 500] [--out benchmarks/results/rollouts.json]

Each file is opened in a process of its own: seconds of CPU and peak memory of `show_rollouts` until the first picture
(without imports and what they take), then milliseconds of CPU of each gesture, and megabytes of the largest picture;
in another process seconds of CPU of `show_kl` on the log-probs that were kept."""
import argparse, json, os, subprocess, sys, tempfile, time
from pathlib import Path
os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")

def make(folder, n, t, group=8, per_step=200):
    "The same responses three times, and the run once more with other numbers."
    import pyarrow as pa, pyarrow.parquet as pq, torch
    from safetensors.torch import save_file
    g, tables = torch.Generator().manual_seed(0), []
    words = {k: f" w{k}" for k in range(3, 5000)}
    lines = (folder/"dump.jsonl").open("w")
    for run in ("run", "run_2"):
        (folder/run/"rollouts").mkdir(parents=True)
        for step in range(n // per_step):
            ids = torch.randint(3, 5000, (per_step, t), generator=g)
            x = dict(zip(("log-prob", "reference", "advantage"), -torch.rand(3, per_step, t, generator=g).exp()))
            rewards = torch.randn(per_step, generator=g)
            x["advantage"] = (rewards - rewards.mean())[:, None].expand(-1, t).contiguous()      # as GRPO has them
            groups = torch.arange(per_step) // group
            texts = [(f"question {(step * per_step // group + k // group) % 500}: what is it?", "".join(words[j] for j in row))
                     for k, row in enumerate(ids.tolist())]
            numbers = dict(reward=rewards, group=groups.int(), length=torch.full((per_step,), t), prompt_length=torch.full((per_step,), 8),
                           KL=(x["log-prob"] - x["reference"]).sum(1), advantage=x["advantage"].mean(1))
            save_file({k: v.flatten() for k, v in x.items()} | {f"row/{k}": v for k, v in numbers.items()} | dict(
                ids=ids.flatten().int(), prompt_ids=torch.full((8 * per_step,), 5).int()), folder/run/f"rollouts/{step:06d}.safetensors",
                {"rollout": json.dumps(dict(step=step, texts=texts, words=json.dumps(words)))})
            if run == "run_2": continue
            def rows(rounded): return [dict(step=step, prompt=p, response=r, reward=rewards[k].item(), group=groups[k].item(), ids=ids[k].tolist()) | {
                name: [*map(rounded, x[c][k].tolist())] for name, c in (("logprobs", "log-prob"), ("ref_logprobs", "reference"), ("advantages", "advantage"))}
                for k, (p, r) in enumerate(texts)]
            lines.writelines(json.dumps(row) + "\n" for row in rows(lambda v: round(v, 6)))
            tables.append(pa.Table.from_pylist(rows(float)))
    lines.close()
    pq.write_table(pa.concat_tables(tables), folder/"dump.parquet")

def peak(): # MB of this process; ru_maxrss is that of the one which started it, too
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) // 1024

def look(source):
    "One process: opened, then each gesture; peak memory less what the imports took."
    from rlhf_nb.show import rollout_view as r
    from rlhf_nb.show.live_view import still_page
    import pyarrow.parquet
    before, began = peak(), time.process_time()
    view = r.show_rollouts(source)
    still_page(view.still(), "v")
    found, largest = {"first picture, s": round(time.process_time() - began, 2),
                      "memory, MB": peak() - before, "with the imports, MB": peak()}, 0
    c = view.c
    def act(name, do):
        nonlocal largest
        began = time.process_time()
        do()
        page = still_page(view.still(), "v")
        found[f"{name}, ms"], largest = round(1e3 * (time.process_time() - began)), max(largest, len(page) / 2**20)
    act("next page", lambda: c.on.click())
    act("open another row", lambda: setattr(c.opened, "index", 3))
    act("with its group", lambda: setattr(c.look, "value", "group"))
    act("another row, with its group", lambda: setattr(c.opened, "index", 5))
    act("its prompt over the run", lambda: setattr(c.look, "value", "run"))
    act("another row, its prompt over the run", lambda: setattr(c.opened, "index", 4))
    act("alone again", lambda: setattr(c.look, "value", ""))
    act("sort by another column", lambda: setattr(c.sort, "value", next(k for k in c.sort.options if "advantage" in k[1])[1]))
    act("a text that few hold", lambda: setattr(c.text, "value", "question 77:"))
    act("largest last", lambda: setattr(c.largest_first, "value", False))
    return found | {"largest picture, MB": round(largest, 2)}

def look_kl(source):
    "Another process: the first picture of what was kept of the KL."
    from rlhf_nb.show.token_kl import show_kl
    from rlhf_nb.show.live_view import still_page
    import pyarrow.parquet
    before, began = peak(), time.process_time()
    still_page(show_kl(source).still(), "v")
    return {"show_kl, first picture, s": round(time.process_time() - began, 2), "show_kl, memory, MB": peak() - before}

def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--rows", type=int, default=10_000)
    args.add_argument("--tokens", type=int, default=500)
    args.add_argument("--look", nargs="+", help=argparse.SUPPRESS)
    args.add_argument("--look-kl", help=argparse.SUPPRESS)
    args.add_argument("--keep", type=Path, help="a folder for the files, or where they are already")
    args.add_argument("--out", type=Path, default=Path(__file__).parent/"results/rollouts.json")
    args = args.parse_args()
    if args.look_kl: return print(json.dumps(look_kl(args.look_kl)))
    if args.look: return print(json.dumps(look(args.look[0] if len(args.look) == 1 else {Path(x).name: x for x in args.look})))
    with tempfile.TemporaryDirectory() as folder:
        folder, result = args.keep or Path(folder), dict(rows=args.rows, tokens=args.tokens, load=round(os.getloadavg()[0], 1))
        if not (folder/"dump.parquet").exists(): make(folder, args.rows, args.tokens)
        for name, files in (("kept run", ["run"]), ("JSONL", ["dump.jsonl"]), ("Parquet", ["dump.parquet"]),
                            ("two runs joined by prompt", ["run", "run_2"])):
            looks = ["--look", *(str(folder/x) for x in files)], *[["--look-kl", str(folder/files[0])]] * (len(files) == 1)
            for look_at in looks:
                done = subprocess.run([sys.executable, __file__, *look_at], capture_output=True, text=True)
                if done.returncode: sys.exit(done.stderr)
                result[name] = result.get(name, {}) | json.loads(done.stdout.splitlines()[-1])
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))

if __name__ == "__main__": main()
