"""Kills, deaths at chosen writes, full disks, and one of two ranks that dies or hangs: is anything lost, half written, stuck, or other than it was?

`python scripts/long_trials.py --kills 1000 --deaths 300 --full 100 --ranks 30` goes on where it was stopped, and writes counts to
benchmarks/results/kills.json. A process that has imported everything is forked for each trial, and the child dies: of SIGKILL at a
random moment; of SIGKILL at its n-th operation on the disk, or in the middle of a write, at a chosen size of file (SIGXFSZ); or
no file may be larger than that (EFBIG, as on a full disk). Of two ranks that train together one is killed (SIGKILL) or hangs (SIGSTOP) at
a random moment; RLHF_NB_PATIENCE is 20 seconds. Then the same command runs to its end. Each has its own counts:

dead      the child did die (it ended before, otherwise; those are run on until the wanted number has died)
lost      an input, or what was finished before, is not there any more, or not as it was
half      a file under its final name is cut off after the death
stuck     the command after it does not end well within two minutes, or in words that name no remedy; a rank outlives the other by a minute
unequal   what it leaves is not, bit for bit, what the uninterrupted command leaves (times, and names of folders, left out)
raw       a full disk, or a rank whose other one is gone, ended in Python's own words"""
import argparse, io, json, os, random, re, resource, shutil, signal, sys, tempfile, time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT/"tests"), str(ROOT/"scripts")]
import torch
from safetensors import safe_open
import tiny_runs
from reproduce import reproduce
from rlhf_nb.base.files import atomic_write
from rlhf_nb.book.command import _LATE, main, make_parser
from rlhf_nb.show.labels import LabelSession, add_label
from conftest import free_port
from tiny_runs import METHOD_NAMES, fill_home, fork, tiny, write_lines

# ---- what is run: name -> a function of nothing, in a folder of its own; what it writes lies in `out`
def shell(*words): return lambda: main([*map(str, words)])
def train(method, **more): return lambda: tiny_runs.run(tiny(method, **more), "out") and 0

PAIRS = [(f"The {a}", f"{a} flies", f"{a} hops") for a in tiny_runs.WORDS[:6]]
def label_all():
    session = LabelSession(PAIRS, Path("out/mine.jsonl"))
    while (i := len(session.labels)) < len(PAIRS): add_label(session, ["left", "right", "neither"][i % 3])

CLAIM = dict(id="toy", command="python -S -c \"import sys; f = open(sys.argv[1], 'w'); f.write(sys.argv[2]); f.close()\" '{out}' "
    "'[{{\"seed\": 10, \"x\": 1.5, \"name\": \"a\"}}, {{\"seed\": 11, \"x\": 2.5, \"name\": \"a\"}}]'",
    rows="rows.json", a=dict(name="a"), measure="x", fails_if="<= 0")
def reproduce_all(): reproduce([CLAIM, CLAIM | dict(command=CLAIM["command"].replace("2.5", "3.5"))], range(10, 12), "out")

PIPELINE = """model = "m"
data = "pairs.jsonl"
eval_rows = 6
[[stage]]
method = "sft"
n_steps = 4
batch_size = 8
eval_every = 2
[[stage]]
method = "reward"
n_steps = 4
batch_size = 8
[[stage]]
method = "grpo"
n_iterations = 2
n_prompts = 4
num_generations = 3
max_new_tokens = 5
reward = "stage 2"
"""
SWEEP = 'model = "m"\ndata = "pairs.jsonl"\neval_rows = 6\nn_steps = 3\nbatch_size = 8\nlr = [1e-3, 3e-3]\n'
SHELL_GRPO = ("train grpo pairs.jsonl -o out --model m --reward tiny_rules:even --n-iterations 2 --n-prompts 4 --num-generations 3 "
              "--max-new-tokens 5 --eval-rows 6").split()

COMMANDS = {f"train {m}": train(m) for m in METHOD_NAMES} | {
    "train grpo in the shell, its reward in a process": shell(*SHELL_GRPO),
    "train dpo --overwrite": lambda: tiny_runs.run(tiny("dpo"), "out", overwrite=True) and 0,
    "pipeline": shell("pipeline", "run", "p.toml", "-o", "out"),
    "sweep": shell("sweep", "dpo", "--settings", "s.toml", "--seeds", 2, "-o", "out"),
    "export": shell("export", "done", "--to", "trl", "-o", "out"),
    "judge": shell("judge", "pairs.jsonl", "m", "--prompts", "pairs.jsonl", "--judge", "rm", "-o", "out", "--max-new-tokens", 4),
    "best-of-n": shell("best-of-n", "m", "rm", "pairs.jsonl", "-n", 2, "--max-prompts", 4, "--max-new-tokens", 4, "-o", "out/best.jsonl"),
    "show": shell("show", "done", "-o", "out/page.html"),
    "compare": shell("compare", "done", "done2"),
    "verify": shell("verify", "done"),
    "copy": shell("copy", "out", "--exercises"),
    "copy --update": shell("copy", "out", "--update"),
    "check": shell("check", "kl", "--dir", "out"),
    "labels": label_all,
    "reproduce": reproduce_all}
def two(method, words): return shell("train", method, "pairs.jsonl", "-o", "out", "--model", "m", "--eval-rows", 6, *words.split())
OF_RL = "--reward tiny_rules:even --n-iterations 2 --n-prompts 4 --max-new-tokens 5 --eval-every 1"
RANKS = {f"{name}, two ranks": command for name, command in {
    **{f"train {m}": two(m, "--n-steps 4 --batch-size 8 --eval-every 2") for m in ("sft", "reward", "dpo")},
    **{f"train {m}": two(m, OF_RL) for m in ("ppo", "grpo")}, "pipeline": COMMANDS["pipeline"]}.items()}
SLOW = {"check": 8, "train grpo in the shell, its reward in a process": 4, "sweep": 2, "copy": 2, "copy --update": 2, "pipeline": 2} # trials fewer by

def fill(home):
    fill_home(home)
    (home/"p.toml").write_text(PIPELINE)
    (home/"s.toml").write_text(SWEEP)
    os.chdir(home)
    for name, seed in (("done", 0), ("done2", 1)): tiny_runs.run(tiny("grpo", seed=seed), name)

def before(name, folder, home): # the folder as a user has it when the command is given
    if name.startswith(("copy --update", "check")):
        shutil.copytree(home/"workbook", folder/"out")
    if name == "train dpo --overwrite": shutil.copytree(home/"done", folder/"out")
    for path in home.iterdir():
        if path.is_dir(): (folder/path.name).symlink_to(path)
        else: shutil.copy(path, folder)
    if name in ("best-of-n", "show"): (folder/"out").mkdir()
    (folder/"notes.txt").write_text("years of work")

# ---- what it leaves
def flat(x, at=()): # place -> value, of JSON
    if isinstance(x, dict): return {k: v for key in x if key != "README.md" and "seconds" not in key for k, v in flat(x[key], (*at, key)).items()}
    if isinstance(x, list): return {k: v for i, y in enumerate(x) for k, v in flat(y, (*at, i)).items()}
    return {at: repr(x)}

def parsed(path, data): # of JSON its values, else the hash of the bytes
    with suppress(ValueError):
        if path.endswith("progress.jsonl"): return {(r["exercise"],): r["verdict"] for r in map(json.loads, filter(bytes.strip, data.splitlines()))}
        if path.endswith((".json", ".ipynb")): return flat(json.loads(data))
        if path.endswith(".jsonl"): return flat([json.loads(x) for x in data.splitlines()])
        if path.endswith((".md", ".toml", ".py", ".html")): return flat([x for x in data.decode().splitlines() if "seconds" not in x])
    return {(): sha256(data).hexdigest()}

def left(folder): # file -> its values
    files = {p.relative_to(folder).as_posix(): p for p in sorted((folder/"out").rglob("*"))
             if p.is_file() and p.name not in ("lock", ".unfinished") and "__pycache__" not in p.parts and not p.name.endswith(".lock")}
    return {k: parsed(k, p.read_bytes()) for k, p in files.items()}

def same_in_both(a, b): # what a second run of the same command leaves as the first did
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    return {k: {at: v for at, v in a[k].items() if b[k].get(at) == v} for k in a}

def differs(found, want): # in words; "" if not
    names = found.keys() ^ want.keys()
    if names: return f"files: {sorted(names)[:3]}"
    return next((f"{k} at {at}: {found[k].get(at)!s:.120}, not {v:.120}" for k in want for at, v in want[k].items() if found[k].get(at) != v), "")

def half_written(folder, want):
    for k in want:
        path, name = folder/k, Path(k).name
        if not path.exists() or name in ("trainer_log.jsonl", ".rlhf-nb-progress.jsonl"): continue  # lines are added to these
        try:
            data = path.read_bytes()
            if k.endswith((".json", ".ipynb")): json.loads(data)
            if k.endswith(".jsonl"): [json.loads(x) for x in data.splitlines()]
            if k.endswith(".jsonl") and data and not data.endswith(b"\n"): return k
            if k.endswith(".html") and b"</html>" not in data[-200:]: return k
            if k.endswith(".safetensors"):
                with safe_open(path, "pt") as f: [f.get_tensor(n) for n in f.keys()]
            if not data and want[k] != {(): sha256(b"").hexdigest()}: return k
        except Exception as e: return f"{k}: {e!r:.80}"
    return ""

def inputs(folder): return {p.name: sha256(p.read_bytes()).hexdigest() for p in folder.iterdir() if p.is_file()}

def finished(folder): # of a pipeline or a sweep: runs that are done, and their weights; of labels those that are given
    found = {}
    for marker in [*folder.glob("out*/run.json"), *folder.glob("out*/*/run.json")]:
        with suppress(ValueError):
            if "results" in json.loads(marker.read_text()) and (w := marker.parent/"model.safetensors").exists():
                found[marker.parent.name] = sha256(w.read_bytes()).hexdigest()
    for book in folder.glob("out/*.labels"): found |= {f"label {x}": x for x in book.read_text().splitlines()[1:]}
    return found

# ---- how it dies
OPERATIONS = "replace rename mkdir rmdir unlink fsync truncate remove link symlink".split()
def count_operations(at): # the child dies before its n-th operation; 0: never, and how many there were
    seen = [0]
    def tell():
        seen[0] += 1
        if seen[0] == at: os.kill(os.getpid(), signal.SIGKILL)
    for name in OPERATIONS:
        def wrapped(*args, real=getattr(os, name), **kw):
            tell()
            return real(*args, **kw)
        setattr(os, name, wrapped)
    for name in ("write_text", "write_bytes"):
        def write(path, data, *args, real=getattr(Path, name), **kw):
            if seen[0] + 1 == at: real(path, data[:len(data) // 2], *args, **kw)   # half of it, then the end
            tell()
            return real(path, data, *args, **kw)
        setattr(Path, name, write)
    return seen

def on_a_full_disk(command): # what it says is kept elsewhere until it has ended
    out, sys.stdout = sys.stderr, open(os.devnull, "w")
    sys.stderr = io.StringIO()
    try: return command()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        said, sys.stderr = sys.stderr.getvalue(), out
        print(said, file=out, flush=True)

def run_child(name, folder, said, kind="", n=0, more={}):
    def work():
        os.chdir(folder)
        os.environ |= more
        sys.path[:0] = [str(folder)]
        os.environ["PYTHONPATH"] = str(folder)
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if kind in ("write", "count"): seen = count_operations(n)
        if kind in ("size", "full"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (n, resource.RLIM_INFINITY))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL if kind == "size" else signal.SIG_IGN)
        if kind != "full": status = (COMMANDS | RANKS)[name]()
        else: status = on_a_full_disk(COMMANDS[name])
        if kind == "count": Path(folder, ".count").write_text(str(seen[0]))
        return status
    return fork(work, said)

def wait(pid, seconds): # status; None if it had to be ended
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done: return os.waitstatus_to_exitcode(status)
        time.sleep(.005)
    with suppress(OSError): os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

def make_baseline(name, home):
    found = []
    for kind in ("count", ""):
        folder = Path(tempfile.mkdtemp(dir=home.parent))
        before(name, folder, home)
        began = time.monotonic()
        status = wait(run_child(name, folder, str(folder/".said"), kind), 300)
        if name == "check": assert status in (0, 1), (folder/".said").read_text()   # answers that are left to do
        else: assert status == 0, (name, (folder/".said").read_text()[-2000:])
        n = int((folder/".count").read_text()) if kind else n
        found.append(left(folder))
        took, sizes = time.monotonic() - began, [p.stat().st_size for p in (folder/"out").rglob("*") if p.is_file()]
        shutil.rmtree(folder)
    return dict(want=same_in_both(*found), seconds=took, operations=n, sizes=sizes or [4096], status=status)

def trial(name, kind, i, base, home): # -> a row of counts
    rng, folder = random.Random(f"{name} {kind} {i}"), Path(tempfile.mkdtemp(dir=home.parent))
    try:
        before(name, folder, home)
        was, said, row = inputs(folder), str(folder/".said"), dict(command=name, kind=kind, i=i)
        if kind == "kills":
            pid, moment = run_child(name, folder, said), rng.random() * base["seconds"]
            status = wait_then_kill(pid, moment)
        else:
            how = "full" if kind == "full" else rng.choice(["write", "write", "size"] if base["operations"] else ["size"])
            n = rng.randint(1, max(1, base["operations"])) if how == "write" else int(rng.choice(base["sizes"]) * rng.random())
            status = wait(run_child(name, folder, said, how, n), 120)
            row |= dict(how=how, n=n)
        (folder/".count").unlink(missing_ok=True)
        words = Path(said).read_text(errors="replace") if Path(said).exists() else ""
        with suppress(OSError): os.unlink(said)
        row["dead"] = status is not None and (status < 0 or kind == "full" and status != base["status"])
        row["stuck"] = "the first one hung" if status is None else ""
        row["raw"] = words[-300:] if kind == "full" and row["dead"] and ("Traceback" in words or status < 0) and not re.search(
            r"(OSError|ValueError): .*(no room|may not grow|File too large)", words) else ""
        row["half"], done = half_written(folder, base["want"]), finished(folder)
        if name == "train dpo --overwrite": row["lost"] = "" if set(done.values()) & base["whole"] else "neither old nor new"
        for again in range(2):                                      # a lock of a child that is about to end may be held still
            status = wait(run_child(name, folder, said), 120)
            words = Path(said).read_text(errors="replace")
            if status == base["status"] or "is in use" not in words and "another process" not in words: break
            time.sleep(1)
        os.unlink(said)
        if name == "export" and "is not empty" in words or name == "best-of-n" and " exists: name a new" in words: status = 0
        if name.startswith("train") and "finished run" in words: status = base["status"]   # it had come to its end: compared below
        row["stuck"] = row["stuck"] or (f"status {status}: {words[-300:]}" if status != base["status"] else "")
        row["unequal"] = "" if row["stuck"] else differs(left(folder), base["want"])
        gone, later = {k for k, v in was.items() if inputs(folder).get(k) != v}, finished(folder)
        gone |= {k for k, v in done.items() if later.get(k) != v and name != "train dpo --overwrite"}
        row["lost"] = row.get("lost") or ", ".join(sorted(gone))
        return row
    finally: shutil.rmtree(folder, ignore_errors=True)

def start_ranks(name, folder, patience):
    of_both = dict(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), RLHF_NB_PATIENCE=str(patience))
    return [run_child(name, folder, str(folder/f".said{rank}"), more=of_both | dict(RANK=rank, LOCAL_RANK=rank)) for rank in "01"]

def said_by(folder, rank):
    words = (folder/f".said{rank}").read_text(errors="replace")
    os.unlink(folder/f".said{rank}")
    return words

def run_ranks(name, folder): # "" if both end well, else what they say
    states = [wait(pid, 120) for pid in start_ranks(name, folder, 100)]
    words = [said_by(folder, rank) for rank in "01"]
    return "" if states == [0, 0] or all("finished run" in x for x in words) else f"status {states}: {' | '.join(x[-200:] for x in words)}"

def ranks_baseline(name, home):
    found = []
    for _ in range(2):
        folder = Path(tempfile.mkdtemp(dir=home.parent))
        before(name, folder, home)
        began = time.monotonic()
        assert not (words := run_ranks(name, folder)), (name, words)
        took = time.monotonic() - began
        found.append(left(folder))
        shutil.rmtree(folder)
    return dict(want=same_in_both(*found), seconds=took)

def trial_of_ranks(name, i, base, home):
    rng, folder = random.Random(f"{name} {i}"), Path(tempfile.mkdtemp(dir=home.parent))
    try:
        before(name, folder, home)
        was, row = inputs(folder), dict(command=name, kind="ranks", i=i, how=rng.choice(["kill", "hang"]), rank=rng.randrange(2))
        pids, moment = start_ranks(name, folder, 20), rng.random() * base["seconds"]
        time.sleep(moment)
        end, other = pids[row["rank"]], pids[1 - row["rank"]]
        os.kill(end, signal.SIGSTOP if row["how"] == "hang" else signal.SIGKILL)
        began, status = time.monotonic(), wait(other, 60)
        row |= dict(other=status, seconds=round(time.monotonic() - began, 1))
        with suppress(OSError): os.killpg(end, signal.SIGKILL)
        row["dead"] = os.waitstatus_to_exitcode(os.waitpid(end, 0)[1]) < 0
        words = [said_by(folder, rank) for rank in "01"][1 - row["rank"]]
        told = "Traceback" not in words and ("has ended" in words or "has stopped" in words)
        row["stuck"] = f"the other one goes on: {words[-200:]}" if status is None else ""
        row["raw"] = "" if status in (0, None) or told else f"status {status}: {words[-300:]}"
        row["half"], done = half_written(folder, base["want"]), finished(folder)
        row["stuck"] = row["stuck"] or run_ranks(name, folder)
        row["unequal"] = "" if row["stuck"] else differs(left(folder), base["want"])
        later = inputs(folder) | finished(folder)
        row["lost"] = ", ".join(sorted(k for k, v in (was | done).items() if later.get(k) != v))
        return row
    finally: shutil.rmtree(folder, ignore_errors=True)

def wait_then_kill(pid, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done: return os.waitstatus_to_exitcode(status)
        time.sleep(.002)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

FAULTS = "lost half stuck unequal raw".split()
def summary(rows, wanted): # -> what is written
    table = {}
    for r in rows:
        counts = table.setdefault(r["command"], {}).setdefault(r["kind"], dict.fromkeys(["trials", "dead", *FAULTS], 0))
        counts["trials"] += 1
        counts["dead"] += r["dead"]
        for k in FAULTS: counts[k] += bool(r[k])
    total = {kind: {k: sum(x[kind][k] for x in table.values() if kind in x) for k in ["trials", "dead", *FAULTS]} for kind in wanted}
    return dict(wanted=wanted, total=total, commands=table, faults=[r for r in rows if any(r[k] for k in FAULTS)][:50])

def run_trials(wanted, names, rows_file, result, home, seconds):
    "Round after round a trial of each command and kind, until as many have died as are wanted."
    rows = [json.loads(x) for x in rows_file.read_text().splitlines()] if rows_file.exists() else []
    bases, began = {}, time.monotonic()
    def dead(kind, name=None): return sum(r["dead"] for r in rows if r["kind"] == kind and name in (None, r["command"]))
    while any(dead(kind) < n for kind, n in wanted.items()) and time.monotonic() - began < seconds:
        for name in names:
            kinds = {k: n for k, n in wanted.items() if (k == "ranks") == (name in RANKS)}
            if not any(dead(kind) < n for kind, n in kinds.items()): continue
            if name not in bases:
                bases[name] = (ranks_baseline if name in RANKS else make_baseline)(name, home)
                if name == "train dpo --overwrite": bases[name]["whole"] = {
                    sha256((home/"done/model.safetensors").read_bytes()).hexdigest(), bases[name]["want"]["out/model.safetensors"][()]}
            rounds = sum(r["command"] == name for r in rows)
            if rounds and rounds > 3 * sum(r["command"] == names[0] for r in rows) / SLOW.get(name, 1): continue
            for kind, n in kinds.items():
                tries = sum(r["kind"] == kind for r in rows if r["command"] == name)
                if dead(kind) >= n or tries > 10 and not dead(kind, name): continue    # it writes nothing that can be full
                rows.append(row := trial_of_ranks(name, tries, bases[name], home) if kind == "ranks" else trial(name, kind, tries, bases[name], home))
                with open(rows_file, "a") as file: file.write(json.dumps(row) + "\n")
                if any(row[k] for k in FAULTS): print(json.dumps(row), flush=True)
        print({k: dead(k) for k in wanted}, f"{time.monotonic() - began:.0f} s", flush=True)
        atomic_write(result, json.dumps(summary(rows, wanted), indent=1) + "\n")
    atomic_write(result, json.dumps(summary(rows, wanted), indent=1) + "\n")
    return summary(rows, wanted)

if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, n in (("kills", 1000), ("deaths", 300), ("full", 100), ("ranks", 30)): p.add_argument(f"--{name}", type=int, default=n)
    p.add_argument("--only", nargs="*", default=[], help="commands (default: all)")
    p.add_argument("--rows", type=Path, default=ROOT/"runs/kills.jsonl", help="a row for each trial; what is there is not run again")
    p.add_argument("-o", type=Path, default=ROOT/"benchmarks/results/kills.json")
    p.add_argument("--seconds", type=float, default=1e9, help="stop after these")
    a = p.parse_args()
    torch.set_num_threads(1)
    os.environ |= dict(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
    for command in _LATE: make_parser(command)                     # imports what they need
    a.rows.parent.mkdir(parents=True, exist_ok=True)
    names = [n for n in COMMANDS | RANKS if not a.only or n in a.only]
    with tempfile.TemporaryDirectory() as temp:
        home = Path(temp).resolve()/"home"
        home.mkdir()
        fill(home)
        main(["copy", str(home/"workbook"), "--exercises"])
        wanted = dict(kills=a.kills, deaths=a.deaths, full=a.full, ranks=a.ranks)
        print(json.dumps(run_trials(wanted, names, a.rows.resolve(), a.o.resolve(), home, a.seconds)["total"], indent=1))
