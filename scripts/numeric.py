"""What every function of the course that takes tensors and numbers gives at the ends of arithmetic: docs/numeric.md.

`python scripts/numeric.py` writes the page, `--check` says whether it is what would be written. Parameters are made from the
comments beside them: `(b t)` is 2 by 3, `(b)` is 2; a parameter of type Tensor that is called mask is all True, ids, groups and
numbers of rows are whole numbers, all others hold the value of the column in each place; a ratio is at least 1e-4, and a log-prob
at most 0. A function whose docstring or comments say nan gives it where it says so."""
import inspect, re, sys, traceback, warnings
from importlib import import_module
from pathlib import Path
import torch

MODULES = "tokens sft reward kl ppo grpo dpo judge self_reward spin qlearning distillation best_policy".split()
CASES = {"0": 0., "1e30": 1e30, "-1e30": -1e30, "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan"), "empty": .5, "one row": .5}
DTYPES = dict(float32=torch.float32, bf16=torch.bfloat16, float16=torch.float16)
PAGE = Path(__file__).resolve().parents[1]/"docs/numeric.md"
SIZES = dict(b=2, t=3, v=5, n=2, g=2, k=2, s=3, p=2)

def shapes(fn): # parameter -> (kind, axes or None) from its line; None where a required one is no tensor or number
    found, source = {}, inspect.getsource(fn)
    for p in inspect.signature(fn).parameters.values():
        line = re.search(rf"^\s*(?:\*)?{p.name}:.*$|[(,]\s*{p.name}:.*$", source, re.M)
        axes = re.search(r"#.*?\(([a-z0-9 ]+)\)", line[0]) if line else None
        kind = "Tensor" if p.annotation is torch.Tensor else "number" if p.annotation in (float, int) else ""
        if kind == "Tensor" and axes: found[p.name] = kind, axes[1].split()
        elif p.default is not p.empty: continue
        elif kind == "number": found[p.name] = kind, None
        else: return None
    return found if any(axes for _, axes in found.values()) else None

def made(name, axes, case, dtype):
    size = SIZES | dict(b=0 if case == "empty" else 1 if case == "one row" else 2)
    shape = [size.get(a, 2) if not a.isdigit() else int(a) for a in axes]
    if re.search(r"mask|done|is_|desirable", name): return torch.ones(shape, dtype=torch.bool)
    if re.search(r"ids|group|index|rows|action|token$", name): return torch.zeros(shape, dtype=torch.long)
    value = CASES[case]
    if name == "ratio": value = max(value, 1e-4) if value == value else value       # a ratio is above 0
    if "logp" in name and value == 1e30: value = 0.                                  # and a log-prob at most 0
    x = torch.full(shape, value).to(dtype)
    return x if case not in ("empty", "one row") else x + torch.arange(x.numel()).view(shape).to(dtype) / 8

def word(fn, wanted, case, dtype):
    "finite, nan, inf, an error of ours, or Python's or torch's own error."
    if case in ("1e30", "-1e30") and dtype == torch.float16: return ""      # it is inf there
    args = {k: made(k, axes, case, dtype) if axes else 1 for k, (_, axes) in wanted.items()}
    try: x = fn(**args)
    except Exception as e:
        last = traceback.extract_tb(e.__traceback__)[-1]
        near = Path(last.filename).read_text("utf-8").split("\n")[max(last.lineno - 4, 0):last.lineno]
        ours = "rlhf_nb" in last.filename and any("raise " in line for line in near)
        return "refused" if ours and isinstance(e, (ValueError, TypeError, IndexError)) else "error"
    flat = [y for y in ([x] if not isinstance(x, (tuple, list, dict)) else x.values() if isinstance(x, dict) else x)]
    flat = [torch.as_tensor(y, dtype=torch.float64) if isinstance(y, (int, float)) else y for y in flat]
    flat = [y.double() for y in flat if isinstance(y, torch.Tensor)]
    if any(y.isnan().any() for y in flat): return "nan"
    return "inf" if any(y.isinf().any() for y in flat) else "finite"

def says(fn, word): return bool(re.search(rf"\b{word}\b", inspect.getsource(fn).split('"""')[0] + (fn.__doc__ or "")))

def functions():
    for module in MODULES:
        home = import_module(f"rlhf_nb.{module}")
        for name in home.__all__:
            fn = getattr(home, name)
            if inspect.isfunction(fn) and fn.__module__ == home.__name__ and (wanted := shapes(fn)): yield module, name, fn, wanted

def table():
    "Rows of (module, function, {case: words of the three formats, one if all agree}); `nan, said` where a docstring says so."
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module, name, fn, wanted in functions():
            cells = {}
            for case in CASES:
                words = [word(fn, wanted, case, dtype) for dtype in DTYPES.values()]
                words = [f"{w}, said" if w in ("nan", "inf") and says(fn, w) else w for w in words]
                said = [w for w in words if w]
                cells[case] = said[0] if len(set(said)) == 1 else ", ".join(f"{w} in {k}" for k, w in zip(DTYPES, words) if w)
            rows.append((module, name, cells))
    return rows

def page(rows):
    head = """# What functions do at the ends of arithmetic

Each function of the course that takes tensors is called with every place of its tensors at one value, in float32, bf16 and float16; masks are
all True. *finite*: every number of the result is; *refused*: it raises and says why; *error*: torch's own words. `1e30` is not tried in
float16, where it is infinite. `python scripts/numeric.py` writes this page, and a test holds it to the functions.

"""
    lines = [f"| function | {' | '.join(CASES)} |", "|---" * (len(CASES) + 1) + "|"]
    lines += [f"| `{module}.{name}` | " + " | ".join(cells.values()) + " |" for module, name, cells in rows]
    return head + "\n".join(lines) + "\n"

if __name__ == "__main__":
    text = page(table())
    if "--check" in sys.argv: sys.exit(0 if PAGE.read_text("utf-8") == text else f"{PAGE} is not what scripts/numeric.py writes: run it")
    PAGE.write_text(text, "utf-8")
    print(text)
