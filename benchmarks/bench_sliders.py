"""How long a key takes to become a changed picture: every slider, list and toggle of the course's chapters.

    python benchmarks/bench_sliders.py [CHAPTER ...] [--out benchmarks/results/sliders.json] [--label after]

A chapter is run up to its last control, in a process of its own; then each control takes other values, one
after the other, and the function behind it is called and its picture made as the notebook makes it
(figures in PNG, pages in HTML). Milliseconds: median of nine, after a first one; CPU time of the thread, so that
a busy machine measures the same as an idle one; widgets on the way to the browser not counted (1 to 5 ms)."""
import argparse, json, os, re, subprocess, sys, time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

def values(widget, n=10):
    "Other values of a control, spread over its range."
    if hasattr(widget, "options"):
        options = list(widget._options_values)
        return [options[(i + 1) % len(options)] for i in range(n)]
    if hasattr(widget, "base"): return [widget.base ** (widget.min + (widget.max - widget.min) * (i + .5) / n) for i in range(n)]
    if hasattr(widget, "min"):
        spread = [widget.min + (widget.max - widget.min) * (7 * i % n + .5) / n for i in range(n)]
        return [type(widget.value)(v) for v in spread]
    if isinstance(widget.value, bool): return [i % 2 == 0 for i in range(n)]
    return [widget.value + (" it" * (i % 3 + 1) if " " in widget.value else "") for i in range(n)]

def measure(chapter):
    "A chapter run here; {control: milliseconds}."
    import nbformat, ipywidgets
    from IPython.core.interactiveshell import InteractiveShell
    import matplotlib
    from IPython.core.pylabtools import select_figure_formats
    matplotlib.use("agg")
    from matplotlib import pyplot as plt
    shell = InteractiveShell.instance()
    select_figure_formats(shell, {"png"}, bbox_inches="tight")      # as in a notebook
    os.chdir(ROOT/"nbs")
    controls = []
    class Recorder:
        def __call__(self, f, **given):
            controls.append((f, ipywidgets.interactive(f, dict(manual=True), **given)))
            return f
    ipywidgets.interact = Recorder()
    cells = [c.source for c in nbformat.read(chapter, 4).cells if c.cell_type == "code"]
    last = max(i for i, s in enumerate(cells) if re.search(r"^interact\(", s, re.M))
    shell.display_pub.publish = lambda *a, **k: None
    found = {}
    for source in cells[:last + 1]:
        done = shell.run_cell(source, silent=True)
        done.raise_error()
        plt.close("all")
        while controls:                            # at once: later cells may change what it draws
            f, box = controls.pop(0)
            named = {w._kwarg: w for w in box.children if hasattr(w, "_kwarg")}
            for name, widget in named.items():
                times = []
                for value in values(widget):
                    at = {k: w.value for k, w in named.items()} | {name: value}
                    began = time.thread_time()
                    made = f(**at)
                    figures = [plt.figure(n) for n in plt.get_fignums()]
                    for shown in ([made] if made is not None else []) + [x for x in figures if x is not made]:
                        shell.display_formatter.format(shown)
                    times.append(1e3 * (time.thread_time() - began))
                    plt.close("all")
                found[f"{f.__name__}({name})"] = round(sorted(times[1:])[len(times) // 2 - 1], 1)
    return found

def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("chapter", nargs="*", type=Path)
    args.add_argument("--out", type=Path, default=Path(__file__).parent/"results/sliders.json")
    args.add_argument("--label", default="after")
    args.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = args.parse_args()
    if args.one: return print("RESULT" + json.dumps(measure(args.chapter[0].resolve())))
    files = [f.resolve() for f in args.chapter] or [
        f for f in sorted((ROOT/"nbs").glob("[0-9]*.ipynb")) if re.search(r'"interact\(', f.read_text("utf-8"))]
    for file in files:
        done = subprocess.run([sys.executable, __file__, str(file), "--one"], capture_output=True, text=True, env=os.environ | dict(
            OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", PYTHONWARNINGS="ignore"))
        found = re.search(r"RESULT(.*)", done.stdout)
        if not found: print(f"{file.stem}: failed\n{(done.stdout + done.stderr)[-1500:]}"); continue
        rows = json.loads(args.out.read_text("utf-8")) if args.out.is_file() else {}
        for control, ms in json.loads(found[1]).items():
            rows.setdefault(file.stem, {}).setdefault(control, {})[args.label] = ms
            print(f"{file.stem:18}{control:32}{ms:8.1f} ms", flush=True)
        args.out.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", "utf-8")

if __name__ == "__main__": main()
