"""The way of one setting through the package, from the command line to saved weights.

    python scripts/walk_setting.py                # --beta of `rlhf-nb train dpo`
    python scripts/walk_setting.py --key lr --places

A tiny run is watched until its weights are saved: a function lies on the way if one of its arguments
is the setting, or holds it. The functions are listed in the order in which it first came to them. A move leads into another
module; a climb into one that is imported, over however many steps, by the module before.
"""
import argparse, contextlib, dataclasses, functools, importlib, inspect, io, json, re, sys
import tempfile, types
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VALUES = dict(beta=.1370001, lr=1.370001e-4, seed=1370001)
ROWS = [dict(prompt=f"Is {i} even?", chosen="Yes." if i % 2 else "No.", rejected="Maybe.") for i in range(24)]

def holds(x, value, depth=4)->bool: # x is the setting, or it lies somewhere inside
    if isinstance(x, (int, float)): return x == value
    if isinstance(x, str): return x == str(value)   # a text about it is not the setting
    if depth == 0: return False
    if isinstance(x, dict): inner = list(x.values())[:80]
    elif isinstance(x, (list, tuple)): inner = x[:80]
    elif isinstance(x, functools.partial): inner = [*x.args, *x.keywords.values(), x.func]
    elif inspect.isfunction(x): inner = [c.cell_contents for c in x.__closure__ or () if _filled(c)]
    elif dataclasses.is_dataclass(x) or isinstance(x, (types.SimpleNamespace, argparse.Namespace)): inner = list(vars(x).values())
    else: return False
    return any(holds(y, value, depth - 1) for y in inner)

def _filled(cell):
    try: return cell.cell_contents is not None
    except ValueError: return False

def watched(call, value, saved)->list: # (module, function) in the order of their first meeting with the setting
    found, asked = [], Counter()
    def profile(frame, event, arg):
        code, name = frame.f_code, frame.f_globals.get("__name__", "")
        if event != "call" or not name.startswith("rlhf_nb.") or asked[code] >= 25: return
        asked[code] += 1
        names = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
        if code.co_name.startswith("<") or not any(holds(frame.f_locals.get(n), value) for n in names): return
        asked[code] = 25
        if saved(): return
        found.append((name.removeprefix("rlhf_nb."), code.co_name))
    sys.setprofile(profile)
    try: call()
    finally: sys.setprofile(None)
    return found

def heights(root)->dict: # module -> longest chain of imports below it
    sys.path.insert(0, str(ROOT/"scripts"))
    import house
    known = house.modules(root)
    arrows = {name: {o for o, _, _ in house.imports(name, tree, known)} - {name} for name, tree in known.items()}
    @functools.cache
    def height(name): return 1 + max((height(o) for o in arrows[name]), default=0)
    return {name: height(name) for name in known}

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key", choices=VALUES, default="beta", help="the setting that is followed")
    parser.add_argument("--method", default="dpo")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    parser.add_argument("--places", action="store_true", help="print every function on the way")
    a = parser.parse_args()
    sys.path.insert(0, str(root := a.root.resolve()))
    module, name = re.search(r"rlhf-nb=([\w.]+):(\w+)", (root/"settings.ini").read_text("utf-8")).groups()
    command = getattr(importlib.import_module(module), name)
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "rows.jsonl")
        rows.write_text("\n".join(map(json.dumps, ROWS)), "utf-8")
        words = ["train", a.method, str(rows), "-o", f"{folder}/run", "--max-steps", "2", f"--{a.key}", str(VALUES[a.key])]
        with contextlib.redirect_stdout(said := io.StringIO()), contextlib.redirect_stderr(said):
            way = watched(lambda: command(words), VALUES[a.key], lambda: any(Path(folder, "run").glob("*.safetensors")))
        assert list(Path(folder, "run").glob("*.safetensors")), said.getvalue()
    rooms, high = [m for m, _ in way], heights(root)
    moves = [(x, y) for x, y in zip(rooms, rooms[1:]) if x != y]
    climbs = [(x, y) for x, y in moves if high.get(y, 0) > high.get(x, 0)]
    if a.places:
        for module, function in way: print(f"  {high.get(module, 0):3}  {module}.{function}")
    print(f"--{a.key} of train {a.method}: {len(way)} functions, {len(set(rooms))} modules, {len(moves)} moves, "
          f"{len(climbs)} climbs")

if __name__ == "__main__": main()
