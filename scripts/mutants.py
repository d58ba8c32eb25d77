"""Do the tests notice a wrong line? A fixed list of one-line mutants, each run against its tests.

    python scripts/mutants.py                                # all, two at a time
    python scripts/mutants.py --module ppo base.logprobs run # of these modules or floors
    python scripts/mutants.py --number 3 17 --workers 1      # by place in the list
    python scripts/mutants.py --sample 20                    # some, always the same ones
    python scripts/mutants.py --against 7ba2e2f              # in an older commit, by its own tests
    python scripts/mutants.py --json benchmarks/results/mutants.json   # keep, beside what it holds
    python scripts/mutants.py --list                         # only show them

The list is scripts/mutants.toml: a module, a line of it as it stands (without indentation and
trailing comment), the wrong line, why that is wrong, and the tests that should fail, the likeliest
first. The checkout is never edited: each worker has a copy of it in a temporary folder, changes one
line there, and runs one test file after the other with `pytest -x` in a new process. A mutant is
caught if a test fails (that passes without the mutant: this is run too) or does not end; it has
escaped if all pass. In an older commit a line is looked for in the whole package, since lines move
between modules; lines that it lacks, or has more than once, do not count there.
"""
import argparse, ast, importlib, importlib.util, json, os, random, re, resource, shutil, signal
import subprocess, sys, tempfile, time, tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_BY_WORK = shutil.ignore_patterns(".git", ".venv", "runs", "rlhf-workbook", "build", "dist", "*.egg-info",
                                      "__pycache__", ".pytest_cache", ".ipynb_checkpoints", "_docs", "_proc")
HEAVY = """torch transformers.models.llama.modeling_llama transformers.models.gpt2.modeling_gpt2 transformers.generation
accelerate peft tokenizers jinja2 einops matplotlib.pyplot ipywidgets nbformat tyro pytest""".split() # imported once, then forked

@dataclass(frozen=True)
class Mutant:
    number:int       # place in the list, from 1
    module:str       # such as base.logprobs
    line:str         # as it stands
    wrong:str
    why:str
    tests:tuple[str,...] # names of test files, the likeliest first: ppo for tests/test_ppo.py
    @property
    def floor(self): return self.module.split(".")[0] if "." in self.module else "course"
    @property
    def key(self): return f"{self.module}: {self.line} -> {self.wrong}"

def read_list(file=ROOT/"scripts/mutants.toml")->list[Mutant]:
    rows = [(module, row) for module, rows in tomllib.loads(file.read_text("utf-8")).items() for row in rows]
    return [Mutant(i, module, **row | dict(tests=tuple(row["tests"]))) for i, (module, row) in enumerate(rows, 1)]

def at(text, line)->list[int]: # numbers of the lines of a file that read so, whatever comment follows
    return [i for i, s in enumerate(map(str.strip, text.splitlines()))
            if s == line or s.startswith(line) and re.match(r"\s*#", s[len(line):])]

def file_of(root, module): return root/"rlhf_nb"/f"{module.replace('.', '/')}.py"

def mutate(text, mutant)->str: # the file with the wrong line; ValueError with words how to mend the list
    places = at(text, mutant.line)
    if len(places) != 1: raise ValueError(
        f"scripts/mutants.toml, {mutant.number}: `{mutant.line}` stands {len(places)} times in {mutant.module}: "
        + ("write another line of the same thought, or drop the mutant" if places else
           "copy the line as it reads now, or name the module that it has moved to"))
    lines = text.splitlines(keepends=True)
    [i] = places
    lines[i] = lines[i].replace(mutant.line, mutant.wrong, 1)
    changed = "".join(lines)
    if mutant.wrong.split() == mutant.line.split(): raise ValueError(
        f"scripts/mutants.toml, {mutant.number}: `{mutant.wrong}` is the line itself")
    ast.parse(changed)
    return changed

def find(root, mutant, moved)->Path|None: # the file to change; None: an older commit lacks the line
    home = file_of(root, mutant.module)
    if not moved: return home
    found = [f for f in sorted((root/"rlhf_nb").rglob("*.py")) if f.name != "_modidx.py"
             and len(at(f.read_text("utf-8"), mutant.line)) == 1]
    same = [f for f in found if f.name == home.name]
    return (same or found)[0] if len(same or found) == 1 else None

def copy(commit, folder): # the project as it lies here, or as it was committed
    if not commit: return shutil.copytree(ROOT, folder, ignore=LEFT_BY_WORK)
    folder.mkdir()
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True)
    if packed.returncode: sys.exit(f"--against {commit}: {packed.stderr.decode().strip()}")
    subprocess.run(["tar", "-x"], cwd=folder, input=packed.stdout, check=True)

class Failures: # plugin of pytest
    def __init__(self): self.tests = []
    def pytest_runtest_logreport(self, report): self.pytest_collectreport(report)
    def pytest_collectreport(self, report):
        if report.failed: self.tests.append(report.nodeid)

def pytest_in_fork(root, words, said, limit)->int: # process number; it writes what failed to `said`.json
    if pid := os.fork(): return pid
    code = 3
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        os.chdir(root)
        for n in (1, 2): os.dup2(os.open(f"{said}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), n)
        os.environ["PYTHONPATH"] = sys.path[0] = str(root)
        for name in [n for n in sys.modules if n.partition(".")[0] == "rlhf_nb"]: del sys.modules[name]
        importlib.invalidate_caches()
        assert Path(importlib.util.find_spec("rlhf_nb").origin).is_relative_to(root)
        import pytest
        failures = Failures()
        code = int(pytest.main(["-q", "-p", "no:cacheprovider", *words], plugins=[failures]))
        Path(f"{said}.json").write_text(json.dumps(failures.tests))
    finally: os._exit(code)

class Worker:
    "One copy of the project, in which one mutant is tried after the other."
    def __init__(self, commit, folder, limit):
        self.commit, self.root, self.said, self.limit = commit, folder/"project", folder/"said", limit
        folder.mkdir()
        copy(commit, self.root)
        self.pid = None
    def start(self, mutant, runs): # runs: words for pytest, one list after the other until one fails
        self.begun, self.runs, self.undo = time.monotonic(), list(runs), None
        if mutant:
            file = find(self.root, mutant, bool(self.commit))
            self.undo = file, file.read_text("utf-8")
            self.write(mutate(self.undo[1], mutant))
        self.next()
    def write(self, text):
        Path(importlib.util.cache_from_source(self.undo[0])).unlink(missing_ok=True) # two edits in one second
        self.undo[0].write_text(text, "utf-8")
    def next(self): self.pid = pytest_in_fork(self.root, self.runs.pop(0), self.said, self.limit)
    def result(self)->tuple|None: # tests that failed, seconds; None: still at work
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        seconds = time.monotonic() - self.begun
        if not pid and seconds < 20 * self.limit: return None   # on a busy machine, or asleep
        if not pid: self.kill()
        self.pid = None
        code = os.waitstatus_to_exitcode(status) if pid else -signal.SIGKILL
        if code < 0: return self.end([f"no end within {self.limit} s"], seconds)
        if code not in (0, 1, 2, 5): # 2: not importable, or stopped; 5: nothing there without an optional package
            raise RuntimeError(f"pytest ended with {code}:\n{Path(f'{self.said}.txt').read_text('utf-8')[-3000:]}")
        failed = json.loads(Path(f"{self.said}.json").read_text()) or ["the test run was stopped"] * (code == 2)
        if failed or not self.runs: return self.end(failed, seconds)
        self.next()
    def kill(self):
        if not self.pid: return
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
    def end(self, *found):
        self.pid = None
        if self.undo: self.write(self.undo[1])
        return found

def work(workers, jobs): # jobs: (mutant or None, runs); yields (mutant, failed tests, seconds) as they end
    from tqdm import tqdm
    jobs, busy = list(jobs), {}
    with tqdm(total=len(jobs), unit=" runs") as bar:
        while jobs or busy:
            for worker in workers:
                if worker not in busy and jobs:
                    busy[worker] = jobs.pop(0)
                    worker.start(*busy[worker])
                if worker in busy and (found := worker.result()):
                    bar.update()
                    yield busy.pop(worker)[0], *found
            time.sleep(.05)

def table(rows)->str: # share caught of each floor, and what has escaped
    counts = defaultdict(Counter)
    for m, found in rows:
        for floor in (m.floor, "all"): counts[floor][found["result"]] += 1
    lines = [f"{'floor':10}{'mutants':>9}{'caught':>9}{'share':>9}"]
    for floor, n in sorted(counts.items(), key=lambda x: (x[0] == "all", x[0] != "course", x[0])):
        total = n["caught"] + n["escaped"]
        if total: lines.append(f"{floor:10}{total:9}{n['caught']:9}{n['caught'] / total:9.1%}")
    if counts["all"]["absent"]: lines.append(f"{counts['all']['absent']} lines are not in that commit")
    for m, found in rows:
        if found["result"] == "unsure": lines.append(
            f"\nunsure {m.number}, {m.module}: {found['by']} fails without the mutant, too; mend it, run this one again")
        if found["result"] == "escaped": lines.append(
            f"\nescaped {m.number}, {m.module}: {m.why}\n  - {m.line}\n  + {m.wrong}\n  {' '.join(m.tests)}")
    return "\n".join(lines)

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", nargs="+", help="modules, floors, or course")
    parser.add_argument("--number", nargs="+", type=int)
    parser.add_argument("--sample", type=int)
    parser.add_argument("--against", metavar="COMMIT")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=int, default=300, help="seconds of a processor for one test file")
    parser.add_argument("--first", action="store_true", help="only the likeliest test file of each")
    parser.add_argument("--json", type=Path, metavar="OUT", help="rows of the mutants run are replaced, others stay")
    parser.add_argument("--list", action="store_true")
    a = parser.parse_args()
    every = mutants = read_list()
    if a.module: mutants = [m for m in mutants if {m.module, m.floor} & set(a.module)]
    if a.number: mutants = [m for m in mutants if m.number in a.number]
    if a.sample: mutants = sorted(random.Random(0).sample(mutants, min(a.sample, len(mutants))), key=lambda m: m.number)
    if not mutants: sys.exit("no mutant has that module or number: see --list")
    if a.list: return print("\n".join(f"{m.number:4} {m.module}: {m.why}\n   - {m.line}\n   + {m.wrong}" for m in mutants))
    wrong = []
    for m in mutants:
        try: mutate(file_of(ROOT, m.module).read_text("utf-8"), m)
        except (ValueError, OSError, SyntaxError) as e: wrong.append(str(e))
    if wrong: sys.exit("\n".join(wrong))

    os.environ |= dict(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", RLHF_NB_STRICT="1",
                      PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    for name in HEAVY: importlib.import_module(name)
    home = Path(tempfile.mkdtemp(prefix="mutants-"))
    workers, found, sound = [], {}, defaultdict(set)
    try:
        workers = [Worker(a.against, home/str(i), a.limit) for i in range(min(a.workers, len(mutants)))]
        root, jobs = workers[0].root, []
        for m in mutants:
            tests = [f"tests/test_{t}.py" for t in m.tests if (root/f"tests/test_{t}.py").is_file()]
            if not tests or not find(root, m, bool(a.against)): found[m] = dict(result="absent")
            else: jobs.append((m, [["-x", t] for t in tests[:1 if a.first else None]]))
        for m, failed, seconds in work(workers, jobs):
            found[m] = dict(result="caught" if failed else "escaped", by="".join(failed[:1]), seconds=round(seconds, 1))
            if a.json: keep(a.json, a.against or "now", found.items(), every) # a kill loses nothing
            if "::" in found[m]["by"]: sound[found[m]["by"].split("::")[0]].add(found[m]["by"])
        for _, failed, _ in work(workers, [(None, [sorted(tests)]) for tests in sound.values()]):
            for row in found.values():
                if row.get("by") in failed: row["result"] = "unsure"
    finally:
        for worker in workers: worker.kill()
        shutil.rmtree(home, ignore_errors=True)
    rows = sorted(found.items(), key=lambda x: x[0].number)
    print(table(rows))
    if a.json: keep(a.json, a.against or "now", rows, every)

def keep(file, commit, rows, every): # one entry per commit; its rows in the order of the list
    kept = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    old = {row["mutant"]: row for row in kept.get(commit, {}).get("mutants", ())}
    for m, found in rows:
        old[m.key] = dict(mutant=m.key, **found)
    lines = [old[m.key] for m in every if m.key in old]
    n = Counter(row["result"] for row in lines)
    kept[commit] = dict(caught=n["caught"], escaped=n["escaped"], absent=n["absent"],
                        share=round(n["caught"] / max(1, n["caught"] + n["escaped"]), 4), mutants=lines)
    file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")

if __name__ == "__main__": main()
