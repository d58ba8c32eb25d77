"""The counts that keep the house in order, from the code's own syntax trees.

    python scripts/house.py            # the table
    python scripts/house.py --places   # and where each number comes from
    python scripts/house.py --json     # for a machine

The street: a module imports only from what stands before it in STREET; a folder is one
floor, and inside a floor no module imports in a circle. Imports inside functions count,
and so do modules named in a text such as "run.train_command" beside an `import_module`.
"""
import argparse, ast, json, re, statistics, sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STREET = """tokens base data worlds kl sft reward ppo grpo rubrics off_policy distillation dpo world arithmetic tools best_policy judge
qlearning spin self_reward compare win_rate show trainers run book""".split()    # from the ground up
COURSE = [floor for floor in STREET if not (ROOT/"rlhf_nb"/floor).is_dir()]
LIMITS = {"package lines": 18_000, "helpers used once (engine)": 40, "helper names with two meanings": 0, "copies of six lines": 0,
          "engine notebooks without a first paragraph": 0, "chapters' definitions without an output": 10,
          "chapters' definitions without a check": 10}   # kept by tests/test_project.py; the last two of about 110

def modules(root=ROOT)->dict: # dotted name below the package -> syntax tree
    package = root/"rlhf_nb"
    files = [f for f in sorted(package.rglob("*.py")) if f.name not in ("_modidx.py", "__main__.py")
             and "exercises" not in f.parts and f.name != "__init__.py"]
    return {".".join(f.relative_to(package).with_suffix("").parts): ast.parse(f.read_text("utf-8"))
            for f in files}

def floor(name): return name.split(".")[0]

def resolved(name, node)->str: # the package that `from` names, as a dotted name below ours
    if not node.level: return (node.module or "").removeprefix("rlhf_nb").strip(".")
    parts = name.split(".")[:-node.level]
    return ".".join([*parts, *(node.module or "").split(".")]).strip(".")

def imports(name, tree, known): # (module, name or "", line) of every import of ours, lazy ones too
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("rlhf_nb")):
            where = resolved(name, node)
            for alias in node.names:
                inner = f"{where}.{alias.name}".strip(".")
                if inner in known: yield inner, "", node.lineno
                elif where in known: yield where, alias.name, node.lineno
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found = alias.name.removeprefix("rlhf_nb.")
                if found in known: yield found, "", node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(
                r"(rlhf_nb\.)?(\w+\.)?\w+(:\w+)?", node.value): # of a lazy table
            found = node.value.partition(":")[0].removeprefix("rlhf_nb.")
            if found in known and "." in found and found != name: yield found, "", node.lineno

def circles(arrows)->list: # of a graph: name -> names it points to; each as the names in it
    found, state, path = [], {}, []
    def visit(n):
        state[n] = 1
        path.append(n)
        for m in sorted(arrows.get(n, ())):
            if state.get(m) == 1: found.append(path[path.index(m):] + [m])
            elif m not in state: visit(m)
        path.pop()
        state[n] = 2
    for n in sorted(arrows): n in state or visit(n)
    return found

def functions(tree): # (name, lines, is private) of every function and method
    return [(n.name, n.end_lineno - n.lineno + 1) for n in ast.walk(tree)
            if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]

def shapes(tree)->dict: # private functions of a module: name -> times used in it
    own = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)
           and n.name.startswith("_") and not n.name.startswith("__")}
    used = Counter(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    return {name: used[name] for name in own}

def copies(root=ROOT, least=6)->list: # runs of lines that stand in two places
    seen = defaultdict(list)
    for path in sorted((root/"rlhf_nb").rglob("*.py")):
        if path.name in ("_modidx.py", "__init__.py") or "exercises" in path.parts: continue
        kept, inside = [], False
        for i, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            text = " ".join(line.split())
            if inside or text.startswith(("from ", "import ")):
                inside = "(" in text and ")" not in text or inside and ")" not in text
                continue
            if len(text) > 3 and not text.startswith("#"): kept.append((i, text))
        for k in range(len(kept) - least + 1):
            seen["\n".join(t for _, t in kept[k:k + least])].append((path.relative_to(root).as_posix(), kept[k][0]))
    return [places for places in seen.values() if len(places) > 1]

def count(root=ROOT)->dict: # every number, and the places it comes from
    known = modules(root)
    arrows, floors, up, private, star = defaultdict(set), defaultdict(set), [], [], []
    for name, tree in known.items():
        for other, what, line in imports(name, tree, known):
            if other != name: arrows[name].add(other)
            if what == "*": star.append(f"{name}:{line}")
            if what.startswith("_") and not what.startswith("__"): private.append(f"{name}:{line} {other}.{what}")
            a, b = floor(name), floor(other)
            if a == b: continue
            floors[a].add(b)
            course = a in COURSE and b in COURSE
            if not course and STREET.index(b) > STREET.index(a): up.append(f"{name}:{line} -> {other}")
    meanings = defaultdict(set)
    for name, tree in known.items():
        for n in tree.body:
            if isinstance(n, ast.FunctionDef) and n.name.startswith("_"): meanings[n.name].add(name)
    once = [f"{name}.{fn}" for name, tree in known.items() for fn, n in shapes(tree).items()
            if n == 1 and floor(name) not in COURSE]
    lengths = {"course": [], "engine": []}
    for name, tree in known.items():
        lengths["course" if floor(name) in COURSE else "engine"] += [n for _, n in functions(tree)]
    def lines(files): return sum(len(f.read_text("utf-8").splitlines()) for f in files)
    package = [f for f in (root/"rlhf_nb").rglob("*.py") if f.name != "_modidx.py" and "exercises" not in f.parts]
    tests = [f for f in (root/"tests").rglob("*.py") if "wrong" not in f.parts]
    doubled, private_def = copies(root), sum(
        isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name.startswith("_") for t in known.values() for n in t.body)
    silent = [f.relative_to(root).as_posix() for f in sorted((root/"nbs/engine").glob("*/*.ipynb"))
              if not _first_paragraph(f)]
    p95 = {k: sorted(v)[int(.95 * len(v))] for k, v in lengths.items()}
    chapters = [x for f in sorted((root/"nbs").glob("[0-9]*.ipynb")) for x in definitions(f)]
    return {
        "package lines": (lines(package), []), "test lines": (lines(tests), []),
        **{f"  {k}": (n, []) for k, n in sorted(_by_floor(package, root).items(), key=lambda x: -x[1])},
        "modules at the top": (len([n for n in known if "." not in n]), []),
        "folders at the top": (len([f for f in STREET if f not in COURSE]), []),
        "arrows between modules": (sum(map(len, arrows.values())), []),
        "arrows between floors": (sum(map(len, floors.values())), []),
        "circles of modules": (len(x := circles(arrows)), [" -> ".join(c) for c in x]),
        "circles of floors": (len(x := circles(floors)), [" -> ".join(c) for c in x]),
        "imports that go up": (len(up), up), "private names that cross": (len(private), private),
        "star imports": (len(star), star),
        "private definitions": (private_def, []),
        "public definitions": (sum(isinstance(n, (ast.FunctionDef, ast.ClassDef)) and not n.name.startswith("_")
                                   for t in known.values() for n in t.body), []),
        "helpers used once (engine)": (len(once), once),
        "helper names with two meanings": (len(x := sorted(f"{k}: {', '.join(sorted(v))}" for k, v in
                                                           meanings.items() if len(v) > 1)), x),
        "copies of six lines": (len(doubled), [" ~ ".join(f"{f}:{i}" for f, i in places) for places in doubled]),
        **{f"function length, {k}: median, p95, max": (f"{statistics.median(v):.0f}, {p95[k]}, {max(v)}", [])
           for k, v in lengths.items()},
        "engine notebooks without a first paragraph": (len(silent), silent),
        "chapters' public definitions": (len(chapters), []),
        **{f"chapters' definitions without {what}": (len(x := [name[0] for name in chapters if not name[k]]), x)
           for k, what in ((1, "an output"), (2, "a check"))}}

def definitions(file): # (name, shown, checked within 4 cells) of every public definition of a chapter
    cells = json.loads(file.read_text("utf-8"))["cells"]
    for i, cell in enumerate(cells):
        text, near = "".join(cell["source"]), [c for c in cells[i:i + 5] if c["cell_type"] == "code"]
        for node in ast.parse(text).body if cell["cell_type"] == "code" and "#| export" in text else []:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                yield (f"{file.stem}: {node.name}", any(c["outputs"] for c in near),
                       any(re.search(r"\bassert|\b(check|refuses)\(", "".join(c["source"])) for c in near))

def _by_floor(files, root): # lines
    found = Counter()
    for f in files:
        parts = f.relative_to(root/"rlhf_nb").parts
        found[parts[0] if len(parts) > 1 else "course and package"] += len(f.read_text("utf-8").splitlines())
    return found

def _first_paragraph(file)->bool: # prose beside title and one sentence, before the first shown code
    for cell in json.loads(file.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code" and not cell["metadata"].get("jupyter", {}).get("source_hidden"): return False
        if cell["cell_type"] != "markdown": continue
        plain = [line for line in text.splitlines() if line.strip() and not re.match(r"\s*([#>|]|\*\*)", line)]
        if len(" ".join(plain).split()) >= 12: return True
    return False

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--root", type=Path, default=ROOT)
    a = parser.parse_args()
    found = count(a.root.resolve())
    if a.json: return print(json.dumps({k.strip(): n for k, (n, _) in found.items()}, indent=1))
    for name, (n, places) in found.items():
        print(f"{name:46}{n:>14}" if isinstance(n, str) else f"{name:46}{n:>8,}")
        if a.places: print("".join(f"      {place}\n" for place in places), end="")

if __name__ == "__main__": main()
