"""Record what public trainers compute: `python tests/peers/record.py PACKAGE [FOLDER]` writes numbers/PACKAGE-VERSION.json.

PACKAGE is a key of `ADAPTERS`; FOLDER holds it where it is not installed (pip install --no-deps --target FOLDER).
Each row has the card of `prove` in words, and each case of `prove` with inputs, result and gradients. Then
`python tests/peers/record.py page` writes docs/trainers.md from all that is recorded, without any of them.
"""
import json, sys
from importlib.metadata import version
from pathlib import Path
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

def plain(x): # JSON of a value, to 12 digits
    if isinstance(x, (tuple, list)): return [plain(y) for y in x]
    if isinstance(x, torch.Tensor): return plain(x.tolist())
    return float(f"{x:.12g}") if isinstance(x, float) else x

def recorded(what, kind, fn):
    import inspect
    from rlhf_nb.book.prove import prove
    from rlhf_nb.exercises.kinds import PROOF_KINDS
    it, proof, cases = PROOF_KINDS[kind], prove(fn, kind), {}
    ours = {name: arg for arg, words in it.takes.items() for name in words.split()}
    names = {ours[p]: p for p in inspect.signature(fn).parameters}
    for name, case in it.cases(set(names)).items():
        case = {k: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for k, x in case.items()}
        given = {k: x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
                 for k, x in case.items()}
        out = fn(**{names[k]: x for k, x in given.items() if k in names})
        first = out[0] if isinstance(out, tuple) else out
        weight = torch.linspace(1., 2., first.numel()).double().view(first.shape)      # of a sum that has gradients
        learn = [k for k, x in given.items() if k in names and isinstance(x, torch.Tensor) and x.requires_grad]
        grads = torch.autograd.grad((first * weight).sum(), [given[k] for k in learn]) if learn else []
        cases[name] = dict(given={k: plain(given[k]) for k in names}, out=plain(out),
                           gradient=dict(zip(learn, plain(list(grads)))))
    return dict(what=what, kind=kind, verdict=proof.verdict, definition=proof.definition, mistakes=proof.mistakes,
                fragile=proof.fragile, cases=cases)

def record(package, folder=None):
    if folder: sys.path.append(folder)
    from adapters import rows_of
    rows = [recorded(*row) for row in rows_of(package)]
    facts = dict(package=package, version=version(package), torch=torch.__version__.split("+")[0], rows=rows)
    (HERE/"numbers").mkdir(exist_ok=True)
    (HERE/f"numbers/{package}-{facts['version']}.json").write_text(json.dumps(facts, separators=(",", ":")) + "\n", "utf-8")
    for row in rows: print(f"{row['verdict']:8} {row['what']}: {row['definition'] or row['mistakes'][0]}")

def all_recorded(): return [json.loads(x.read_text("utf-8")) for x in sorted((HERE/"numbers").glob("*.json"))]

def page(): # text of docs/trainers.md
    from ours import ADJUSTED, BY_DESIGN, OURS
    rows = [(facts["package"], row["what"]) for facts in all_recorded() for row in facts["rows"]]
    same, near = sum(key in OURS for key in rows), sum(key in ADJUSTED for key in rows)
    said = dict(exact="", mistake="; ".join, unknown="; ".join)
    text = ["# What public trainers compute\n", "`rlhf-nb prove` was given functions of public packages, as they are "
        "installed by pip; `tests/peers/adapters.py` calls each in at most ten lines. A row says which definition a "
        "function computes, to 1e-6 in value and gradient on every case. The third column names edges where it leaves "
        "that definition, as measured. The last says whether this package gives the same numbers: inputs, results and "
        "gradients are recorded in `tests/peers/numbers`, and a test compares them to 1e-6 without any of these "
        "packages. What pip does not bring is not here.\n",
        f"## Agrees to 1e-6\n\nOf {len(rows)} rows this package gives {same} as they are recorded, in value and gradient, "
        f"and {near} after the one step that the last column names; {len(rows) - same - near} it has no function for.\n"]
    for facts in all_recorded():
        text += [f"## {facts['package']} {facts['version']}\n", "| function | what it computes | at the edge | "
                 "this package |", "|---|---|---|---|"]
        for row in facts["rows"]:
            key = facts["package"], row["what"]
            found = row["definition"] + "".join(f". **{x}**" for x in row["mistakes"])
            ours = "the same" if key in OURS else BY_DESIGN.get(key, "has no such function")
            text += [f"| `{row['what']}` | {found} | {'; '.join(row['fragile']).replace('|', '/')} | {ours} |"]
        text.append("")
    text += ["Recorded by `python tests/peers/record.py PACKAGE`, written by `python tests/peers/record.py page`."]
    return "\n".join(text) + "\n"

if __name__ == "__main__":
    if sys.argv[1:] == ["page"]: (HERE.parents[1]/"docs/trainers.md").write_text(page(), "utf-8")
    else: record(*sys.argv[1:])
