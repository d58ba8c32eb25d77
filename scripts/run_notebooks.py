"""Run every cell of notebooks, each in a process forked from one that has torch imported.

    python scripts/run_notebooks.py                # all, three at a time, those that print most first
    python scripts/run_notebooks.py ppo views      # some of them
    python scripts/run_notebooks.py ppo --tests    # and the tests that a change in it needs

Prints the seconds of processor time of each notebook, what failed and why. A cell under
`#| slow` trains once more what another cell or a test trains as well: it is left out, and so
are the cells that need what it makes; `--slow` runs them, as `make chapter` does, which keeps
what they show. Exit status 1 if anything failed.
"""
import argparse, ast, os, re, resource, signal, subprocess, symtable, sys, time, traceback
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
WORKERS = 3

def warm_up():
    "Import what notebooks import, read a model and draw a figure: a forked process has all that."
    import importlib, pkgutil, rlhf_nb
    for name in (m.name for m in pkgutil.walk_packages(rlhf_nb.__path__, "rlhf_nb.")):
        if not name.endswith("__main__"): importlib.import_module(name)
    for name in "ipywidgets accelerate peft execnb.shell nbdev.process transformers.generation nbclient".split():
        importlib.import_module(name)
    from rlhf_nb.base.models import load_bundled
    from rlhf_nb.show.views import lines
    load_bundled("sft")
    lines([0, 1], {"": [0, 1]}, "", "").savefig(os.devnull, format="png")

def run_all(jobs, workers=WORKERS)->dict: # job -> (whether it passed, seconds of processor time)
    "Call each of `jobs`, name -> function, in a forked process, some at a time, in their order."
    todo, running, found = dict(jobs), {}, {}
    while todo or running:
        while todo and len(running) < workers:
            name = next(iter(todo))
            job = todo.pop(name)
            sys.stdout.flush()
            if not (pid := os.fork()):
                status = 1
                try: status = int(not job())
                except Exception: traceback.print_exc()
                finally: os._exit(status)
            running[pid] = name
        pid, status, used = os.wait4(-1, 0)
        name = running.pop(pid)
        found[name] = status == 0, used.ru_utime + used.ru_stime
        print(f"{found[name][1]:7.1f} s  {name}{'' if status == 0 else '  FAILED'}", flush=True)
    return found

def names_in(source)->tuple[set, set]: # read from outside, bound; of nested scopes what they read
    def walk(table, top=True):
        for name in table.get_symbols():
            if name.is_global() if not top else name.is_referenced(): read.add(name.get_name())
            if top and (name.is_assigned() or name.is_imported()): bound.add(name.get_name())
        for below in table.get_children(): walk(below, False)
    read, bound = set(), set()
    walk(symtable.symtable(source, "cell", "exec"))
    return read, bound

def needs(statements, bound:set)->set: # names that are read before they are bound; adds to `bound`
    found = set()
    for s in statements:
        blocks = [x for x in ("body", "orelse", "handlers", "finalbody") if hasattr(s, x) and not isinstance(
            s, (ast.FunctionDef, ast.ClassDef))]
        if not blocks:
            read, made = names_in(ast.unparse(s))
            found |= read - bound
            bound |= made
            continue
        for x in ast.iter_child_nodes(s):            # what stands before the colon
            if isinstance(x, (ast.expr, ast.withitem)):
                read, made = ({n.id for n in ast.walk(x) if isinstance(n, ast.Name) and isinstance(n.ctx, kind)}
                              for kind in (ast.Load, ast.Store))
                own = {n.id for c in ast.walk(x) if isinstance(c, ast.comprehension) for n in ast.walk(c.target)
                       if isinstance(n, ast.Name)}           # seen inside a comprehension only
                found |= read - bound - own
                bound |= made - own
        for block in blocks: found |= needs(getattr(s, block), bound)
    return found

def left_out(cells)->set: # ids of those under `#| slow`, and of those that need what these make
    out, lost = set(), set()
    for cell in cells:
        if cell.cell_type != "code": continue
        made = set()
        try: needed = needs(ast.parse(cell.source).body, made)
        except SyntaxError: needed = set()                   # %magic
        if re.match(r"(#\|.*\n)*#\|\s*slow\s*\n", cell.source) or needed & lost:
            out.add(cell.id)
            lost |= made
        else: lost -= made
    return out

def seconds(): # of processor time, of this process and of those it waited for
    return sum(x.ru_utime + x.ru_stime for x in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))

def run_notebook(file, slow=False, shown=1e9)->bool: # whether every cell ran
    "Like `nbdev-test`, but in an empty folder; cells that take more than `shown` seconds are listed."
    from execnb.shell import CaptureShell
    from fastcore.xtras import working_directory
    from nbdev.process import NBProcessor
    nb, shell = NBProcessor(file, rm_directives=False, process=True).nb, CaptureShell(file)
    skip = set() if slow else left_out(nb.cells)
    began = [0.]
    def before(cell):
        began[0] = seconds()
        return cell.cell_type != "code" or cell.id in skip
    def after(cell):
        if (used := seconds() - began[0]) > shown: print(f"{used:15.1f} s  {file.stem}: {cell.id}", flush=True)
    try:
        with TemporaryDirectory() as folder, working_directory(folder):
            shell.run_all(nb, exc_stop=True, preproc=before, postproc=after)
        return True
    except BaseException: print(shell.prettytb(fname=file) or traceback.format_exc(), file=sys.stderr)

def tests_for(stem, files)->list: # stem of a notebook; name -> text of the test files
    """The tests that a change in a notebook needs: those called as it is; where there are none,
    the two files in which what it exports is named most often."""
    word = re.sub(r"^\d+_", "", stem)
    if f"test_{word}.py" in files: return [f"test_{word}.py"]
    notebook = next((ROOT/"nbs").rglob(f"{stem}.ipynb")).read_text("utf-8")
    names = re.findall(r'"(?:def|class) ([A-Za-z]\w*)|"([A-Z]{3,}) = ', notebook)
    named = re.compile(rf"\b({'|'.join({a or b for a, b in names} | {word})})\b")
    often = {name: len(named.findall(text)) for name, text in files.items()}
    return sorted(filter(often.get, often), key=often.get, reverse=True)[:2]

def run_tests(stems)->bool:
    files = {f.name: f.read_text("utf-8") for f in sorted((ROOT/"tests").glob("test_*.py"))}
    every = {"test_project.py", "test_exercises.py"}     # what they ask of each notebook
    chosen = {name for stem in stems for name in tests_for(stem, files)} - every
    words = [*(re.sub(r"^\d+_", "", stem) for stem in stems), *chosen]
    print("tests:", *sorted(chosen), flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", "-m", "not slow", "-k", " or ".join(words),
                           *(ROOT/"tests"/name for name in sorted(chosen | every))], cwd=ROOT).returncode == 0

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NB", help="as in `rlhf-nb run`; none: all")
    parser.add_argument("--tests", action="store_true", help="run the tests that a change in these needs, too")
    parser.add_argument("--cells", type=float, default=1e9, metavar="S", help="list cells that take longer (default: none)")
    parser.add_argument("--slow", action="store_true", help="run slow cells, too")
    args = parser.parse_args()
    from rlhf_nb.book.copies import find_chapters
    try: files = find_chapters(args.names)
    except ValueError as e: parser.error(str(e))
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:    # a job in the background of a shell:
        signal.signal(signal.SIGINT, signal.default_int_handler) # what cells start would ignore it too
    warm_up()
    os.environ["RLHF_NB_STRICT"] = "1"
    began = time.monotonic()
    jobs = {"tests": lambda: run_tests([f.stem for f in files])} if args.tests else {}
    found = run_all(jobs | {f.stem: partial(run_notebook, f, args.slow, args.cells) for f in sorted(files, key=lambda f: -f.stat().st_size)})
    rooms = {f.stem: "engine" if f.parents[1].name == "engine" else "course" for f in files}
    for room in dict.fromkeys(rooms.values()):
        print(f"{sum(s for k, (_, s) in found.items() if rooms.get(k) == room):7.1f} s of processor time: {room}")
    print(f"{time.monotonic() - began:7.1f} s on the clock")
    return int(not all(passed for passed, _ in found.values()))

if __name__ == "__main__": sys.exit(main())
