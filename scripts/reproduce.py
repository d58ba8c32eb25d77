"""What the course claims, on which rows it rests, and whether it holds again on fresh seeds: `rlhf-nb reproduce`.

A chapter says that something is better, costs less, or never happens. Such a sentence rests on runs that the reader does
not see, so each has an entry in nbs/claims, a file for each chapter: it names the rows, the control, all that differs, the
estimate, and the inequality that would make the sentence false. Rows of `Experiment` carry all their settings; older files
keep what their author thought of. scripts/claims.py compares every entry with its chapter and its rows.

A claim on what a cell computes from a results file names the `file`, the cells `after` which it runs, and perhaps the
`code` to begin with: they are run on the fresh file. Where there is no command, `again` says how its numbers are made.

The fresh seeds are none that anything was chosen by. Claims with the same command share its rows, and what is there is
not run again."""
import argparse, json, math, os, re, subprocess, sys, tomllib
from collections.abc import Iterable
from hashlib import sha256
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
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

def _together(old, new): # of a dict the parts that were not run again stay as they are
    return json.dumps(old | new if isinstance(old, dict) else new)

def printed_on(
    claim:dict,    # of the ledger, with `cell` and `file`
    path:str|Path, # a results file like that one, of these seeds
    seeds:range,
)->tuple[float,float]: # as `printed_claim`
    """What the cell of a claim prints where another results file lies; rows of `Experiment` are added to the old ones.

    Raises ValueError for a cell that is not there or does not run."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError
    book, results = nbformat.read(claim["chapter"], 4), notebooks()/"results"
    want = [*claim.get("after", []), claim["cell"]]
    book.cells = [c for c in book.cells if c.cell_type == "code" and c.id in want]
    if missing := {*want} - {c.id for c in book.cells}: raise ValueError(f"{claim['id']}: no cells {missing}")
    with TemporaryDirectory() as folder:
        (there := Path(folder)/"results").mkdir()
        for file in results.iterdir():
            if file.name != claim["file"]: (there/file.name).symlink_to(file)
        old, new = ((f/claim["file"] if f == results else f).read_text("utf-8") for f in (results, Path(path)))
        lines = Path(path).suffix == ".jsonl"
        (there/claim["file"]).write_text(old + new if lines else _together(json.loads(old), json.loads(new)), "utf-8")
        code = claim.get("code", "").format(seeds=seeds)
        book.cells.insert(0, nbformat.v4.new_code_cell(
            f"import pathlib, rlhf_nb.base.files as f\nf.notebooks = lambda: pathlib.Path({folder!r})\n{code}"))
        try: NotebookClient(book, timeout=None, kernel_name="python3").execute()
        except CellExecutionError as e: raise ValueError(f"{claim['id']}: {e.ename}: {e.evalue}") from e
        nbformat.write(book, copy := Path(folder)/"cells.ipynb")
        return printed_claim(claim | dict(chapter=copy))

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
        rows = out/f"{key}{Path(claim.get('file') or claim['rows'].partition(':')[0]).suffix}"
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
        if "file" in claim: (mean, error), pairs, unsaid = printed_on(claim, rows, seeds), len(seeds), []
        else: mean, error, pairs, unsaid = (d := measure_claim(claim, rows)).mean, d.error, d.pairs, d.unsaid
        verdict = claim_verdict(claim["fails_if"], mean, error) if not unsaid else "fails"
        report.append(dict(id=claim["id"], estimate=mean, error=error, pairs=pairs, verdict=verdict,
                           seeds=list(seeds), cpu_seconds=float(spent.read_text()) if spent.exists() else None,
                           command=claim["command"]))
        atomic_write(out/"report.json", json.dumps(report, indent=1) + "\n")
    return report

def _row_seconds(command, claims): # of five seeds, from the rows on which these claims rest; 0 if they do not say
    groups = {}                      # of rows that differ in their seeds
    for file in {c.get("file") or c["rows"].partition(":")[0] for c in claims}:
        path, parts = notebooks()/"results"/file, re.findall(r"--part (\w+)", command)
        data = read_rows(path) if path.suffix == ".jsonl" else json.loads(path.read_text("utf-8"))
        data = data if isinstance(data, dict) else {"": data}
        for part in parts or data:
            for r in data[part] if isinstance(data[part], list) and isinstance(data[part][0], dict) else []:
                name, told, s = r.get("run", r.get("name")), r.get("settings", ""), r.get("cpu_s", r.get("cpu_seconds"))
                if s is None or "training" in str(told): continue                     # the arena's search is not run again
                if re.search("--(only|clips|runs)", command) and not re.search(
                    rf'(?<=[ "]){re.escape(str(name))}(?=[ "])', command): continue
                if ("--backups" in command) != (name == "backup") and "stitching" in file: continue
                groups.setdefault(f"{file} {part} {name} {told}", {}).setdefault(r["seed"], []).append(s)
    return sum(5 * sum(map(sum, by_seed.values())) / len(by_seed) for by_seed in groups.values())

def plan(
    claims:Iterable[dict], # of the ledger
    report:list[dict],     # of earlier runs
)->list[tuple]:            # command, its claims, CPU seconds of five seeds, where that is from
    """What each command costs, which is run once for all its claims: measured whole where it was, else the sum over
    the rows that it made once (some leave out their evaluation), else the minutes of three seeds that its script names."""
    measured = {r["command"]: r["cpu_seconds"] * 5 / len(r["seeds"]) for r in report if r.get("cpu_seconds") and "command" in r}
    commands, found = {}, []
    for c in claims:
        if "command" in c: commands.setdefault(c["command"], []).append(c)
    for command, mine in commands.items():
        if command in measured: seconds, how = measured[command], "measured"
        elif seconds := _row_seconds(command, mine): how = "its rows"
        else:
            script = (notebooks().parent/command.split()[1]).read_text("utf-8")
            seconds, how = 60 * 5 / 3 * float(re.search(r"([\d.]+) CPU minutes", script)[1]), "its script says"
        found.append((command, mine, seconds, how))
    return found

def add_reproduce_parser(sub):
    "Add the command `rlhf-nb reproduce` to the subparsers."
    p = sub.add_parser("reproduce", help="run what a sentence of the course rests on, on fresh seeds",
        description="Run the command behind a claim of nbs/claims on other seeds; say whether it held.\n"
            "holds: by two standard errors; suggests: by less; fails: not at all. Needs a checkout.",
        epilog="examples:\n  rlhf-nb reproduce\n"
            "  rlhf-nb reproduce 08-lambda --seeds 10-14\n  rlhf-nb reproduce --all   (hours; it resumes)")
    p.add_argument("claim", nargs="*", metavar="CLAIM", help="its id (default: list all)")
    p.add_argument("--all", action="store_true", help="every claim that has a command")
    p.add_argument("--plan", action="store_true", help="run nothing: the commands, and what five seeds of each cost")
    p.add_argument("--seeds", default="10-14", metavar="FIRST-LAST", help="(default: %(default)s)")
    p.add_argument("-o", "--output-dir", "--out", default="runs/reproduce", metavar="DIR",
                   help="keeps rows and report.json (default: %(default)s)")
    def run(args):
        ledger = read_claims(notebooks())
        chosen = list(ledger.values()) if args.all else [find("claim", name, ledger) for name in args.claim]
        if not chosen:
            for claim in ledger.values(): print(f"{claim['id']:28}{' '.join(claim['sentence'].split())}")
            return
        if args.plan:
            costs = plan(chosen, json.loads((notebooks()/"claims/report.json").read_text("utf-8")))
            for command, claims, seconds, how in costs: print(f"{seconds:6.0f} s  {how:16}{len(claims):3} claims  {command}")
            for how in dict.fromkeys(c[3] for c in costs):
                some = [seconds for *_, seconds, said in costs if said == how]
                print(f"{how:16}{len(some):3} commands, {sum(some) / 3600:.2f} CPU hours of five seeds")
            print(f"{'all':16}{len(costs):3} commands, {sum(c[2] for c in costs) / 3600:.2f} CPU hours of five seeds")
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
