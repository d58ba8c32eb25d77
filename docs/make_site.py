"""make docs: the site, from the notebooks and the pages of this folder.

nbdev processes the notebooks, adapter.py makes pages of them, Sphinx makes the site with
every warning an error, finish.py adds sizes, names and the search, audit.py reads it as a browser would.
Nothing is fetched."""
import argparse, ast, json, os, re, shutil, subprocess, sys, tempfile, time, tomllib, warnings
from contextlib import chdir
from dataclasses import replace
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import adapter, audit, finish, moving
from adapter import Fault, Site, module_of

PAGES = "glossary", "papers", "checked", "claimed", "numeric", "trainers", "teaching"

def stage(root:Path, folder:Path):
    "Copies of the notebooks, ready for nbdev, and as a learner downloads them."
    import nbformat
    from rlhf_nb.book.copies import learners_copy
    (folder/"nbs").mkdir(parents=True)
    (folder/"files").mkdir()
    shutil.copy(root/"pyproject.toml", folder)
    repo = tomllib.loads((root/"pyproject.toml").read_text("utf-8"))["project"]["urls"]["Repository"].rstrip("/")
    for file in sorted([*(root/"nbs").glob("[!._]*.ipynb"), *(root/"nbs/engine").glob("*/[!._]*.ipynb")]):
        nb = adapter.read(file)
        nbformat.write(adapter.installing(learners_copy(nb), repo, file.name), folder/"files"/file.name)
        nbformat.write(adapter.staged(nb), folder/"nbs"/file.name)

def process(root:Path, folder:Path):
    "nbdev's own processors: hidden cells go, show_doc runs, names are linked."
    from fastcore.nbio import read_nb, write_nb
    from nbdev import config, processors
    processors.get_config = cache(config.get_config)            # it reads pyproject.toml at every cell
    (folder/"_proc").mkdir()
    with chdir(root), warnings.catch_warnings():    # nbdev finds lines of source from there
        warnings.simplefilter("ignore")
        for file in sorted((folder/"nbs").glob("*.ipynb")):
            processors.FilterDefaults()(nb := read_nb(file))
            write_nb(nb, folder/"_proc"/file.name)

def facts(root:Path, processed:dict)->Site:
    urls = tomllib.loads((root/"pyproject.toml").read_text("utf-8"))["project"]["urls"]
    modules = {name: (number, file) for file in processed for number, name in [module_of(file)]
               if name != "index"}
    names = {f"{module_of(file)[1]}.{e.name}" for file, nb in processed.items() for e in adapter.shown(nb)}
    return Site(urls["Repository"].rstrip("/"), urls["Homepage"].rstrip("/"), modules, frozenset(names))

def constants(file:Path, shown:set)->list[str]:
    "What a module exports and show_doc does not show."
    for node in ast.parse(file.read_text("utf-8")).body if file.is_file() else []:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return [n for n in ast.literal_eval(node.value) if n not in shown]
    return []

def card_facts()->dict[str, dict]:
    "chapter -> picture, alt text and what people type, from cards.toml."
    return tomllib.loads((HERE/"cards.toml").read_text("utf-8"))

def write_pages(root:Path, folder:Path, out:Path)->Site:
    "Everything that Sphinx reads."
    processed = {f.name: json.loads(f.read_text("utf-8")) for f in sorted((folder/"_proc").glob("*.ipynb"))}
    site = facts(root, processed)
    (out/"api").mkdir(parents=True)
    short = adapter.table_names((root/"README.md").read_text("utf-8"))
    missing = [n for n in site.modules if n not in short]
    if missing: raise Fault(f"nbs/index.ipynb has no row for {', '.join(missing)}")
    captions = {}
    for name in short: captions.setdefault(adapter.shelf(name), []).append(name)
    for file, nb in processed.items():
        name = module_of(file)[1]
        made = adapter.chapter(nb, site, file, (folder/"nbs"/file).read_text("utf-8"))
        for n, (behind, words, block) in enumerate(moving.BLOCKS.get(name, [])):
            at = [c["id"] for c in made["cells"]].index(behind)
            if words: made["cells"].insert(at + 1, dict(cell_type="markdown", id=f"laboratory-{n}", metadata={}, source=words + block()))
            else:
                made["cells"][at]["outputs"] = [dict(output_type="display_data", metadata={}, data={"text/html": block()})]
                made["cells"] = [c for c in made["cells"] if c["id"] != f"still-{behind}"]     # it moves here, too
        (out/f"{name}.ipynb").write_text(json.dumps(made), "utf-8")
        if name == "index": continue
        lead = re.search(r"\{\.lead\}\n(.*)", made["cells"][0]["source"])[1]
        shown = adapter.shown(nb)
        rest = constants((root/"rlhf_nb").joinpath(*adapter.dotted(name).split(".")).with_suffix(".py"), {e.name for e in shown})
        (out/"api"/f"{name}.md").write_text(adapter.reference(shown, rest, site, name, lead), "utf-8")
    in_order = [n for names in captions.values() for n in names]
    (out/"api/index.md").write_text("# Reference\n\n{.lead}\nEvery exported function and class, module by module.\n\n"
        "```{toctree}\n:maxdepth: 1\n\n" + "\n".join(in_order) + "\n```\n", "utf-8")
    written = {name: (root/"nbs"/adapter.place(file)).read_text("utf-8") for name, (_, file) in site.modules.items()}
    for name in PAGES:
        text = (HERE/f"{name}.md").read_text("utf-8")
        if name == "papers": text = adapter.papers(text, site, f"docs/{name}.md", written)
        if name == "claimed": text = adapter.claimed(text, root)
        (out/f"{name}.md").write_text(adapter.page(text, site, f"docs/{name}.md", root/"tests"), "utf-8")
    index = adapter.landing(json.loads((out/"index.ipynb").read_text("utf-8")), given := card_facts(), moving.model_block())
    toc = adapter.toctree({**captions, "Reference": [*PAGES, "api/index"]}, short)
    index["cells"].append(dict(cell_type="markdown", id="toc", metadata={}, source=toc))
    (out/"index.ipynb").write_text(json.dumps(index), "utf-8")
    shutil.copytree(root/"nbs/images", out/"images")
    shutil.copytree(folder/"files", out/"files")
    shutil.copytree(HERE/"static", out/"_static")
    shutil.copytree(HERE/"templates", out/"templates")
    (out/"_static/models.js").write_text(moving.models_js(), "utf-8")
    (out/"_static/cards").mkdir()
    for name, card in given.items():
        file = site.modules[name][1] if name in site.modules else f"{name}.ipynb"
        picture = adapter.picture(json.loads(written[name]) if name in written else {"cells": []}, card["cell"], file)
        (out/f"_static/cards/{name}.png").write_bytes(finish.thumbnail(picture))
    for file in ("conf.py", "mathml.py"): shutil.copy(HERE/file, out)
    return replace(site, short=short)

def in_source(line:str, pages:Path)->str:
    "`kl.ipynb:120003: WARNING: ...` -> the cell and the line that an author knows."
    hit = re.search(r"([\w/-]+)\.ipynb:(\d+):\s*(.*)", line)
    if not hit: return line.replace(f"{pages}/", "")
    name, at, said = Path(hit[1]).name, int(hit[2]), hit[3]
    cells = json.loads((pages/f"{name}.ipynb").read_text("utf-8"))["cells"]
    cell = cells[min(at // 10000, len(cells)) - 1]
    return f"{name}.ipynb, cell {cell['id']}, line {at % 10000}: {said}"

def sphinx(pages:Path, out:Path):
    "Each warning is an error, named with page and line."
    said = pages.parent/"warnings.txt"
    done = subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-w", said,
                           "-d", pages.parent/"trees", pages, out], capture_output=True, text=True,
                          env=os.environ | dict(NO_COLOR="1"))
    lines = [in_source(l, pages) for l in said.read_text("utf-8").splitlines() if l.strip()] if said.exists() else []
    if done.returncode: raise Fault("\n".join(lines) or done.stderr[-3000:])

def build(root:Path, out:Path)->dict:
    "The whole site in `out`; raises Fault with everything that is wrong, and then `out` stays as it was."
    if out.exists() and not (out/".nojekyll").is_file(): raise Fault(
        f"{out} exists and is not a site built here before, so it is left alone: name a new folder")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp).resolve()
        stage(root, folder)
        process(root, folder)
        site = write_pages(root, folder, folder/"pages")
        sphinx(folder/"pages", folder/"html")
        done = finish.finish(folder/"html", site.short, {name: c.get("asked", []) for name, c in card_facts().items()})
        (folder/"html/.nojekyll").touch()       # GitHub: leave folders with _ alone
        faults, outside = audit.audit(folder/"html", site.host)
        if faults or outside: raise Fault("\n".join(faults + [f"{o}: fetched from outside" for o in outside]))
        shutil.rmtree(out, ignore_errors=True)
        shutil.move(folder/"html", out)
    files = [f for f in out.rglob("*") if f.is_file()]
    return done | dict(notebooks=len(site.modules), names=len(site.names), pages=sum(f.suffix == ".html" for f in files),
                megabytes=round(sum(f.stat().st_size for f in files) / 1e6, 1), outside=len(outside),
                seconds=round(time.perf_counter() - began))

def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE.parent/"_docs")
    a = parser.parse_args()
    os.environ |= dict(MPLBACKEND="agg", HF_HUB_OFFLINE="1", PYTHONWARNINGS="ignore")
    try: made = build(HERE.parent, a.out.resolve())
    except Fault as e: sys.exit(f"The site was not built:\n{e}")
    print("{notebooks} notebooks, {names} names, {pages} pages, {sections} sections, {megabytes} MB, requests to other machines: "
          "{outside}, {seconds} s".format(**made) + f"\n{a.out/'index.html'}")

if __name__ == "__main__": main()
