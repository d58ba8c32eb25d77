"""From a key to a picture in the pages of the site, which have no kernel, and each of the four models in the page: 40 tokens, size.

    python benchmarks/bench_page_latency.py [--keys 15] [--out benchmarks/results/page_latency.json]

The first slider of each picture moves by a step; milliseconds from its `input` event to the frame after
the new picture, median, beside a bare key: one that changes a line of text on the same page. Their ratio depends little
on the machine. Needs what `make browser` installs."""
import argparse, gzip, json, os, shutil, statistics as st, sys, tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT/"tests"), str(ROOT/"docs")]

NAMES = "sft", "base", "reward", "judge"
FRAME = "const frame = () => new Promise(f => requestAnimationFrame(() => setTimeout(f)))"
KEYS = """async ([n, keys]) => { %s
    const box = document.querySelectorAll('[data-knobs]')[n], slider = box.querySelector('input[type=range]')
    const line = document.createElement('p'), found = {picture: [], bare: []}
    document.body.prepend(line)
    for (let k = 0; k < keys; k++) for (const what of ['picture', 'bare']) {
        await frame()
        const old = box.querySelector('.picture').innerHTML, began = performance.now()
        if (what == 'bare') line.textContent = k
        else { const at = slider.value
            slider.stepUp(); if (slider.value == at) slider.value = slider.min
            slider.dispatchEvent(new Event('input', {bubbles: true}))
            if (box.querySelector('.picture').innerHTML == old) continue }
        await frame()
        found[what].push(performance.now() - began) }
    line.remove()
    return found }""" % FRAME
FORTY = """async ([name, keys]) => { const kit = await rlhfPage.load(), found = []
    for (let k = 0; k < keys; k++) { const ids = Array.from({length: 40}, (_, i) => 3 + (7 * i + 31 * k) % 190), began = performance.now()
        kit[name].read(ids); found.push(performance.now() - began) }
    return found }"""
TYPED = """async keys => { %s
    const f = document.querySelector('form.model input'), found = []
    for (let k = 0; k < keys; k++) { f.value = 'You will find it in the pond' + ' it'.repeat(k %% 9); await frame()
        const began = performance.now(); f.dispatchEvent(new Event('input')); await frame(); found.push(performance.now() - began) }
    return found }""" % FRAME

def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--keys", type=int, default=15)
    args.add_argument("--out", type=Path, default=Path(__file__).parent/"results/page_latency.json")
    args = args.parse_args()
    from playwright.sync_api import sync_playwright
    import moving
    from test_site_models import write_place
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as p:
        place = write_place(Path(folder))
        browser = p.chromium.launch(executable_path=shutil.which(os.environ.get("CHROMIUM") or "chromium"), args=["--no-sandbox", "--disable-gpu"])
        page, rows = browser.new_page(viewport=dict(width=1000, height=900)), {}
        for name in moving.BLOCKS:
            page.goto((place/f"{name}.html").as_uri())
            for n in range(page.locator("[data-knobs]").count()):      # what trains in the page has none
                x = {k: st.median(v) for k, v in page.evaluate(KEYS, [n, args.keys]).items() if v}
                if "picture" in x: rows[f"{name}, picture {n}"] = {k: round(v, 1) for k, v in x.items()} | dict(
                    times_a_bare_key=round(x["picture"] / x["bare"], 2))
        page.goto((place/"model.html").as_uri())
        page.wait_for_selector("[data-ready]")
        result = dict(keys=args.keys, load=round(os.getloadavg()[0], 1), ms_from_key_to_picture=rows,
                      ms_of_40_tokens={k: round(st.median(page.evaluate(FORTY, [k, args.keys])), 1) for k in NAMES},
                      kB_with_gzip={k: round(len(gzip.compress((moving.SHIPPED/k/"model.safetensors").read_bytes())) / 1e3) for k in NAMES} | {
                          "all and the vocabulary": round(len(gzip.compress((place/"models.js").read_bytes())) / 1e3)},
                      ms_from_key_to_the_first_screen=round(st.median(page.evaluate(TYPED, args.keys)), 1))
        browser.close()
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))

if __name__ == "__main__": main()
