"""From a key to a changed picture in a real browser: sliders of the course in JupyterLab.

    python benchmarks/bench_lab_latency.py [--label after] [--keys 15] [--out benchmarks/results/lab_latency.json]

Each chapter runs in JupyterLab up to its last control. Then a slider's handle has the focus and the right or
left arrow is pressed. Milliseconds from the browser's `keydown` to the first frame with another, decoded picture (or
text): kernel, matplotlib, messages and drawing together; median, and the slowest of the keys. A busy machine
is slower, so the load average stands beside each row (bench_sliders.py counts CPU time instead). The lowest height of
the output while the slider moves is kept as well: a page does not jump where it is the height at rest.

"start" presses Start of a dashboard whose run is PPO of the shipped model, in a notebook of its own for each press: milliseconds
from the click to the first frame in which the page says another thing, and to the first iteration.

Needs what `make browser` installs."""
import argparse, json, os, re, shutil, statistics, sys, tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT/"tests"))
SLIDERS = {     # chapter -> sliders of its page, counted from 0, with the name of what each draws
    "06_best_policy": {0: "best_at(beta)", 1: "best_of(n)"},
    "07_kl": {0: "inspect_kl(drift)", 1: "inspect_kl(batch)"},
    "08_ppo": {0: "clip_region(cliprange)"},
    "15_spin": {0: "show_pair"},
    "16_qlearning": {0: "tree_at(gamma)", 1: "inspect(row)"}}

WATCH = """n => {
    const slider = document.querySelectorAll('.jp-Notebook .widget-slider')[n]
    const area = slider.closest('.jp-Cell').querySelector('.jp-OutputArea .jupyter-widgets .jp-OutputArea, .widget-output')
    const look = () => (area.querySelector('img')?.src || '') + area.innerText + (area.querySelector('svg[role=img]')?.innerHTML || '')
    window.watched = {area, ms: [], heights: [], rest: area.offsetHeight}
    let seen = look()
    const frame = () => { window.watched.heights.push(area.offsetHeight); requestAnimationFrame(frame) }
    requestAnimationFrame(frame)
    let began = null
    slider.addEventListener('keydown', () => { began = performance.now() }, true)
    new MutationObserver(async () => {
        if (began === null || look() == seen) return
        const image = area.querySelector('img')
        if (image) { try { await image.decode() } catch { return } }
        if (began === null || look() == seen) return
        seen = look()
        const from = began
        began = null
        requestAnimationFrame(() => window.watched.ms.push(performance.now() - from))
    }).observe(area, {subtree: true, childList: true, attributes: true, characterData: true})
}"""

def first_part(file, out):
    "A chapter up to its last control."
    import nbformat
    nb = nbformat.read(file, 4)
    last = max(i for i, c in enumerate(nb.cells) if c.cell_type == "code" and re.search(r"^interact\(", c.source, re.M))
    nb.cells = nb.cells[:last + 1]
    for c in nb.cells:
        if c.cell_type == "code": c.outputs = []
    nbformat.write(nb, out)

def measure(page, n, keys):
    "Milliseconds of each key; lowest height of the output, and its height at rest."
    page.wait_for_function("n => document.querySelectorAll('.jp-Notebook .widget-slider').length > n", arg=n)
    handle = page.locator(".jp-Notebook .widget-slider").nth(n).locator(".noUi-handle")
    handle.scroll_into_view_if_needed()
    page.evaluate(WATCH, n)
    handle.focus()
    for k in range(keys + 1):
        handle.press("ArrowRight" if k % 8 < 4 else "ArrowLeft")      # there and back: never at an end for long
        page.wait_for_function("n => window.watched.ms.length > n", arg=k, timeout=60_000)
    ms, heights, rest = page.evaluate("[window.watched.ms, window.watched.heights, window.watched.rest]")
    return ms[1:], min(heights), rest

FROM_CLICK = """() => {
    const page = document.querySelector('.jp-OutputArea .rlhf-view, .jp-OutputArea .widget-vbox')
    const was = page.innerText, found = window.found = {}
    const start = [...page.querySelectorAll('button')].find(b => b.innerText.trim() == 'Start')
    start.addEventListener('click', () => { found.began = performance.now() }, true)
    new MutationObserver(() => {
        const now = page.innerText, ms = performance.now() - found.began
        if (!found.first && now != was) requestAnimationFrame(() => { found.first ??= performance.now() - found.began; found.said = now })
        if (!found.iteration && /running, [1-9]/.test(now)) found.iteration = ms
    }).observe(page, {subtree: true, childList: true, characterData: true, attributes: true})
}"""

def from_start(p, tmp, presses):
    "Milliseconds from a click on Start to the first change, and to the first iteration."
    from nbformat.v4 import new_code_cell, new_notebook
    import nbformat
    from test_lab_browser import LIVE, open_notebook, run_all, started_lab
    folder = tmp/"start"
    folder.mkdir()
    live = next(x for x in LIVE if "def train():" in x).replace("thread = run_in_background(train, dashboard)", "show_dashboard(dashboard, train)")
    nbformat.write(new_notebook(cells=[new_code_cell(x) for x in (LIVE[0], live)], metadata={
        "kernelspec": {"name": "python3", "display_name": "python3"}}), folder/"start.ipynb")
    found = []
    with started_lab(folder, tmp/"start-own") as lab:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        for _ in range(presses):
            page = browser.new_page(viewport=dict(width=1280, height=1000))
            page.set_default_timeout(600_000)
            open_notebook(page, lab, "start.ipynb")
            run_all(page)
            page.get_by_role("button", name="Start", exact=True).wait_for()
            page.evaluate(FROM_CLICK)
            page.get_by_role("button", name="Start", exact=True).click()
            page.wait_for_function("() => window.found.iteration")
            found.append(page.evaluate("() => window.found"))
            page.evaluate("async () => { await window.jupyterapp.shell.currentWidget.sessionContext.shutdown() }")
            page.close()
        browser.close()
    for x in found: assert "running, 0 iterations" in x["said"], x
    return dict(to_first_change_ms=[round(x["first"]) for x in found], to_first_iteration_ms=[round(x["iteration"]) for x in found],
                load_average=round(os.getloadavg()[0], 1))

def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("chapter", nargs="*", default=list(SLIDERS))
    args.add_argument("--keys", type=int, default=15)
    args.add_argument("--label", default="after")
    args.add_argument("--out", type=Path, default=Path(__file__).parent/"results/lab_latency.json")
    args = args.parse_args()
    from playwright.sync_api import sync_playwright
    from test_lab_browser import open_notebook, run_all, started_lab
    if args.chapter == ["start"]:
        rows = json.loads(args.out.read_text("utf-8")) if args.out.is_file() else {}
        with tempfile.TemporaryDirectory() as tmp, sync_playwright() as p: found = from_start(p, Path(tmp), 3)
        rows.setdefault("Start of a dashboard", {}).setdefault("a click", {})[args.label] = found
        print(found)
        return args.out.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", "utf-8")
    with tempfile.TemporaryDirectory() as tmp, sync_playwright() as p:
        folder = Path(tmp)/"chapters"
        folder.mkdir()
        for name in args.chapter: first_part(ROOT/f"nbs/{name}.ipynb", folder/f"{name}.ipynb")
        if (ROOT/"nbs/results").is_dir(): shutil.copytree(ROOT/"nbs/results", folder/"results")
        with started_lab(folder, Path(tmp)/"own") as lab:
            browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
            for name in args.chapter:
                page = browser.new_page(viewport=dict(width=1280, height=1000))
                page.set_default_timeout(600_000)
                open_notebook(page, lab, f"{name}.ipynb")
                run_all(page)
                for n, control in SLIDERS[name].items():
                    ms, low, rest = measure(page, n, args.keys)
                    rows = json.loads(args.out.read_text("utf-8")) if args.out.is_file() else {}
                    rows.setdefault(name, {}).setdefault(control, {})[args.label] = dict(
                        median_ms=round(statistics.median(ms)), slowest_ms=round(max(ms)), keys=len(ms),
                        lowest_height_px=low, height_at_rest_px=rest, load_average=round(os.getloadavg()[0], 1))
                    print(f"{name:16}{control:24}{statistics.median(ms):6.0f} ms median, {max(ms):.0f} slowest; "
                          f"height {low} of {rest} px", flush=True)
                    args.out.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", "utf-8")
                page.evaluate("async () => { await window.jupyterapp.shell.currentWidget.sessionContext.shutdown() }")
                page.close()
            browser.close()

if __name__ == "__main__": main()
