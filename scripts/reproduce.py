"""What the course claims, on which rows it rests, and whether it holds again on fresh seeds: `rlhf-nb reproduce`.

A chapter says that something is better, costs less, or never happens. Such a sentence rests on runs that the reader does
not see, so each has an entry in nbs/claims, a file for each chapter: it names the rows, the control, all that differs, the
estimate, and the inequality that would make the sentence false. Rows of `Experiment` carry all their settings; older files
keep what their author thought of. scripts/claims.py compares every entry with its chapter and its rows.

The fresh seeds are none that anything was chosen by. Claims with the same command share its rows, and what is there is
not run again."""
import argparse, json, math, os, re, subprocess, sys, tomllib
from collections.abc import Iterable
from hashlib import sha256
from html import unescape
from pathlib import Path
from rlhf_nb.base.files import atomic_write, notebooks
from rlhf_nb.base.settings import find
from rlhf_nb.run.evidence import Difference, difference, flatten_settings, read_rows

def read_claims(
    folder:str|Path, # holds the chapters, and claims/08.toml for the chapter whose name begins with 08
)->dict[str,dict]:   # id -> the entry with its `chapter`, the path of a notebook
    "The ledger. Raises ValueError for what is no TOML, a chapter that is not there, an id that stands twice."
    found = {}
    for path in sorted(Path(folder).glob("claims/*.toml")):
        named = sorted(Path(folder).glob(f"{path.stem}*.ipynb"))
        if len(named) != 1: raise ValueError(f"{path}: {len(named)} chapters begin with {path.stem}")
        try: entries = tomllib.loads(path.read_text("utf-8"))["claim"]
        except (tomllib.TOMLDecodeError, KeyError) as e: raise ValueError(f"{path}: no [[claim]]: {e}") from e
        for entry in entries:
            if entry.get("id", "") in found: raise ValueError(f"{path}: the id {entry['id']} stands twice")
            found[entry["id"]] = entry | dict(chapter=named[0])
    return found

def value_at(
    row:dict, # may hold dicts and lists
    path:str, # names and positions with dots between them, such as "curve.-1.kl"; "" is the row itself
):
    "A value inside a row. Raises ValueError for a name or a position that is not there."
    for key in path.split(".") if path else []:
        if isinstance(row, list): row = dict(zip((str(i) for i in range(-len(row), len(row))), 2 * row))
        row = find("value", key, row)
    return row

def _told(row, want, table): # of a row in which the keys `want` were asked for
    if "found" in row: return row["settings"]
    told, label = row.get("settings", {}), "run"
    if isinstance(told, str): told, label = {"settings": told}, ""
    for k, x in want.items():
        if isinstance(x, str) and x in table: told, label = table[x], k
    if isinstance(told, str): told = dict(re.findall(r"(\w+)=(<function \w+|[^,()]+)", told))   # a dataclass
    asked = {k: x for k, x in want.items() if not (told and k == label or k.startswith("settings."))}
    return asked | {k: row[k] for k in ("signal", "labels", "samples") if k in row} | told

def claim_rows(
    claim:dict,    # of the ledger
    side:str,      # "a" or "b"
    path:str|Path, # the results file, that of the ledger or one of fresh seeds
    measure:str,   # path of the value in a row
)->list[dict]:     # name, settings, seed, found: {"value": ...}, as `difference` takes them
    """The rows that a claim names, of `Experiment` (.jsonl) or of an older results file.

    Raises ValueError if there are none, or several of one seed."""
    path, inside = Path(path), claim["rows"].partition(":")[2]
    file = read_rows(path) if path.suffix == ".jsonl" else json.loads(path.read_text("utf-8"))
    rows = value_at(file, inside) if isinstance(file, dict) and inside else file
    if isinstance(rows, dict): rows = find(f"list in {path.name}", "rows", rows)
    table = value_at(file, claim["settings"]) if "settings" in claim else {}
    want, found = flatten_settings(claim[side]), {}
    for row in rows:
        known = flatten_settings(row["settings"] | dict(name=row["name"]) if "found" in row else row)
        if any(known.get(k) != x for k, x in want.items()): continue
        seed, value = row[claim.get("seed", "seed")], value_at(row.get("found", row), measure)
        if seed in found: raise ValueError(
            f"{claim['id']}: several rows of seed {seed} have {want}: name more keys")
        found[seed] = dict(name=row.get("name", ""), seed=seed, settings=_told(row, want, table),
                           found=dict(value=value))
    if not found: raise ValueError(f"{claim['id']}: no row of {path.name} has {want}")
    return list(found.values())

def measure_claim(
    claim:dict,    # of the ledger, with `rows`
    path:str|Path, # the results file
)->Difference:     # a - b; a alone, if the claim names no b
    "What the rows of a claim say. Raises ValueError for rows, seeds or settings that are not there."
    paths = claim["measure"] if isinstance(claim["measure"], list) else [claim["measure"]] * 2
    a = claim_rows(claim, "a", path, paths[0])
    if "b" in claim: b = claim_rows(claim, "b", path, paths[1])
    else:
        nothing = {r["seed"]: [0.] * len(x) if isinstance(x := r["found"]["value"], list) else 0. for r in a}
        b = [r | dict(found=dict(value=nothing[r["seed"]])) for r in a]
    return difference(a, b, "value", claim.get("differs", []))

def printed_claim(
    claim:dict, # of the ledger, with `cell`
)->tuple[float,float]: # estimate, its error; the error is 0 where the claim says that it is exact
    "What the cell of a claim prints. Raises ValueError if the cell or the words are not there."
    cells = {c["id"]: c for c in json.loads(claim["chapter"].read_text("utf-8"))["cells"]}
    text = ""
    for o in find(f"cell in {claim['chapter'].name}", claim["cell"], cells).get("outputs", []):
        data = o.get("data", {})
        html = unescape(re.sub("<[^>]+>", " ", "".join(data.get("text/html", ""))))
        text += "".join(o.get("text", "")) + "".join(data.get("text/plain", "")) + html + "\n"
    def number(pattern):
        if not (m := re.search(pattern, text)): raise ValueError(
            f"{claim['id']}: cell {claim['cell']} prints nothing like {pattern}")
        x = [float(g.replace("−", "-")) for g in m.groups()]
        return x[0], x[1] if len(x) > 1 else 0. if "exact" in claim else math.nan
    (x, error), (y, other) = (number(claim[k]) if k in claim else (0., 0.) for k in ("prints", "minus"))
    return x - y, math.hypot(error, other)

def claim_verdict(
    fails_if:str, # "<= .3", ">= 0", "outside -.1 .1" or "!= 0"
    mean:float,
    error:float,  # standard
)->str:           # "holds" by two errors, "suggests" by less, "fails"
    "Does what was measured bear a sentence that is false if `fails_if`? Raises ValueError for another word."
    word, *numbers = fails_if.split()
    low, high, x = mean - 2 * error, mean + 2 * error, [float(t) for t in numbers]
    sure, likely = find("fails_if", word, {
        "<=": lambda: (low > x[0], mean > x[0]), ">=": lambda: (high < x[0], mean < x[0]),
        "outside": lambda: (x[0] <= low and high <= x[1], x[0] <= mean <= x[1]),
        "!=": lambda: (low <= x[0] <= high, False)})()
    return "holds" if sure else "suggests" if likely else "fails"

def reproduce(
    claims:Iterable[dict], # of the ledger; those without a command are left out
    seeds:range,           # none of them was used to choose anything
    out:str|Path,          # keeps rows and report.json; what is there is not run again
)->list[dict]:             # id, estimate, error, pairs, verdict, seeds, cpu_seconds of its command, which others may share
    "Run the commands behind claims on fresh seeds. Raises ValueError for a command that fails."
    out, report = Path(out), []
    out.mkdir(parents=True, exist_ok=True)
    for claim in claims:
        if "command" not in claim: continue
        key = sha256(f"{claim['command']} {seeds}".encode()).hexdigest()[:12]
        rows = out/f"{key}{Path(claim['rows'].partition(':')[0]).suffix}"
        spent = rows.with_suffix(".cpu")           # seconds of all tries
        if not rows.exists():
            part = rows.with_stem(key + "-part")   # what a killed run left: the command may go on from it
            began = sum(os.times()[2:4])   # of children, user and system
            told = claim["command"].format(first=seeds[0], n=len(seeds), seeds=" ".join(map(str, seeds)),
                                           out=part.resolve())
            told = told.replace("python ", f'"{sys.executable}" ', 1)   # this one, not the first of the PATH
            print(f"{claim['command']}    seeds {seeds[0]} to {seeds[-1]}", flush=True)
            n = subprocess.run(told, shell=True, cwd=notebooks().parent).returncode
            before = float(spent.read_text()) if spent.exists() else 0.
            atomic_write(spent, f"{before + sum(os.times()[2:4]) - began:.1f}\n")
            if n: raise ValueError(
                f"{claim['id']}: its command ended with status {n}; start again, finished rows stay")
            part.rename(rows)
        d = measure_claim(claim, rows)
        verdict = claim_verdict(claim["fails_if"], d.mean, d.error) if not d.unsaid else "fails"
        report.append(dict(id=claim["id"], estimate=d.mean, error=d.error, pairs=d.pairs, verdict=verdict,
                           seeds=list(seeds), cpu_seconds=float(spent.read_text()) if spent.exists() else None))
        atomic_write(out/"report.json", json.dumps(report, indent=1) + "\n")
    return report

def add_reproduce_parser(sub):
    "Add the command `rlhf-nb reproduce` to the subparsers."
    p = sub.add_parser("reproduce", help="run what a sentence of the course rests on, on fresh seeds",
        description="Run the command behind a claim of nbs/claims on other seeds; say whether it held.\n"
            "holds: by two standard errors; suggests: by less; fails: not at all. Needs a checkout.",
        epilog="examples:\n  rlhf-nb reproduce\n"
            "  rlhf-nb reproduce 08-lambda --seeds 10-14\n  rlhf-nb reproduce --all   (hours; it resumes)")
    p.add_argument("claim", nargs="*", metavar="CLAIM", help="its id (default: list all)")
    p.add_argument("--all", action="store_true", help="every claim that has a command")
    p.add_argument("--seeds", default="10-14", metavar="FIRST-LAST", help="(default: %(default)s)")
    p.add_argument("-o", "--output-dir", "--out", default="runs/reproduce", metavar="DIR",
                   help="keeps rows and report.json (default: %(default)s)")
    def run(args):
        ledger = read_claims(notebooks())
        chosen = list(ledger.values()) if args.all else [find("claim", name, ledger) for name in args.claim]
        if not chosen:
            for claim in ledger.values(): print(f"{claim['id']:28}{' '.join(claim['sentence'].split())}")
            return
        if not (m := re.fullmatch(r"(\d+)-(\d+)", args.seeds)) or not 0 < int(m[2]) - int(m[1]) < 1000:
            raise ValueError(f"--seeds {args.seeds}: write the first and the last, such as 10-14, of 1000")
        report = reproduce(chosen, range(int(m[1]), int(m[2]) + 1), args.output_dir)
        for r in report: print(f"{r['id']:28}{r['estimate']:+8.3g} ± {r['error']:<8.2g}{r['verdict']}")
        held = sum(r["verdict"] == "holds" for r in report)
        print(f"{held} of {len(report)} held; {len(chosen) - len(report)} have no command",
              f"report: {Path(args.output_dir)/'report.json'}", sep="\n")
        return int(any(r["verdict"] == "fails" for r in report))
    p.set_defaults(func=run)
