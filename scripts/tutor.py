"""How good the check behind an exercise is, on answers that were written from stubs and text, without sight of it.

    python scripts/tutor.py                    # per exercise: refused, named, named falsely, right ones refused, CPU seconds
    python scripts/tutor.py --verdicts         # and what is said of each
    python scripts/tutor.py gae q_loss         # these exercises
    python scripts/tutor.py --battery battery  # other answers: modules of tests/ with WRONG and RIGHT
    python scripts/tutor.py --jobs 2 --json benchmarks/results/tutor.json
"""
import argparse, hashlib, json, re, sys, time, warnings
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from rlhf_nb.base.files import notebooks
from rlhf_nb.book import checks
from rlhf_nb.book.checks import Exercise, grade
from rlhf_nb.book.progress import task_times
from rlhf_nb.exercises.steps import BROKEN

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT/"tests"))
BATTERIES = ["battery_2", "battery_3"]

def exercises(): # name -> Exercise
    modules = [import_module(f"rlhf_nb.exercises.{f.stem}") for f in sorted((ROOT/"rlhf_nb/exercises").glob("[a-z]*.py"))
               if f.stem != "my_rlhf"]
    return {k: x for m in modules for k, x in vars(m).items() if isinstance(x, Exercise)}

def answers(name, batteries): # of one exercise: [(words, answer)], [answer]
    modules = [import_module(x) for x in batteries]
    return [x for m in modules for x in m.WRONG.get(name, ())], [x for m in modules for x in m.RIGHT.get(name, ())]

NUMBERS = r"(right on [^;]*; )?[^:;]*: (entry |got |stopped with (?!.*, because )|the value is right, its gradient is not)"
CASE = r"(; |, and |, but )((?!; |, and |, but ).)*?: (entry (\[[^:;]*?\])+ |should raise [^,]*, )?(got |the value is right, ).*"

def judged(words, verdict): # "accepted", "named", "falsely", "numbers": case, entry, got and want; "closest": the place, too
    if verdict == "right": return "accepted"
    said = re.split(r"; see exercises", verdict)[0]
    if re.match(r"(right on [^;]*; )?it differs only where ", said): return "closest"
    if re.match(r"(right on [^;]*; )?the task asks: ", said): return "named" if re.search(words, said.lower()) else "closest"
    if re.match(NUMBERS, said): return "numbers"
    return "named" if re.search(words, re.sub(CASE, "", said).lower()) else "falsely"  # numbers are no words

KNOWN, CALL = {}, checks.record_call
def called_once(fn, args, *watch): # what a reference or a mistake makes of a case is the same for every answer
    key = fn, id(args), watch
    if key not in KNOWN: KNOWN[key] = args, CALL(fn, args, *watch)
    return KNOWN[key][1]

def tried(job): # counts, and a line for each verdict
    warnings.simplefilter("ignore")
    checks.record_call = called_once
    name, batteries = job
    ex, (wrong, right) = exercises()[name], answers(name, batteries)
    counts, said, slowest = dict(wrong=len(wrong), named=0, closest=0, numbers=0, falsely=0, hedged=0, accepted=0, right=len(right), right_refused=0), [], (-1., None)
    for words, answer in [*wrong, *[(None, x) for x in right]]:
        begun = time.process_time()
        verdict = grade(answer, ex)
        took = time.process_time() - begun
        slowest = max(slowest, (took, answer), key=lambda x: x[0])
        how = ("right" if verdict == "right" else "right_refused") if words is None else judged(words, verdict)
        if how != "right": counts[how] += 1
        counts["hedged"] += how == "falsely" and verdict.startswith(("much like: ", "mostly: "))     # of those that are false
        said.append((how, f"  {how:9}{took:5.2f} s  [{words}] line {answer.__code__.co_firstlineno}  {verdict[:300]}"))
    if BROKEN: raise BROKEN[0]
    checks.record_call, begun = CALL, time.process_time()            # the slowest once more, as a learner has it
    grade(slowest[1], ex)
    return counts | dict(slowest_cpu_s=round(time.process_time() - begun, 2)), said

def total(rows):
    rows = [*rows]
    return {k: (max if k.startswith("slowest") else sum)(x[k] for x in rows) for k in rows[0]} if rows else {}

def in_words(x):
    n = x["wrong"] or 1
    return (f"{x['wrong']} wrong: refused {x['wrong'] - x['accepted']} ({1 - x['accepted'] / n:.1%}), named {x['named']} "
            f"({x['named'] / n:.1%}), with the place {x['closest']}, falsely {x['falsely']} ({x['falsely'] / n:.1%}; {x['hedged']} of them as much like it); right ones refused "
            f"{x['right_refused']} of {x['right']}; slowest {x['slowest_cpu_s']:.2f} s")

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="EXERCISE", help="all, if none is named")
    p.add_argument("--battery", nargs="+", default=BATTERIES, metavar="MODULE", help="modules of tests/")
    p.add_argument("--verdicts", action="store_true", help="print what is said of each, not only of what is not named")
    p.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    p.add_argument("--json", type=Path, metavar="FILE", help="write the counts there; of exercises that are not named it keeps its own")
    args = p.parse_args()
    known = exercises()
    if {*args.names} - {*known}: p.error(f"no exercise {', '.join({*args.names} - {*known})}: there are {', '.join(known)}")
    dots, found = {k: x[1].count("•") for k, x in task_times(sorted(notebooks().glob("*.ipynb"))).items()}, {}
    names = [k for k in args.names or known if any(answers(k, args.battery))]
    with ProcessPoolExecutor(args.jobs) as pool:
        for name, (counts, said) in zip(names, pool.map(tried, [(k, args.battery) for k in names])):
            found[name] = dict(stars=dots.get(name, 0)) | counts
            print(f"{name:24}" + "  ".join(f"{k} {n}" for k, n in found[name].items()), flush=True)
            print(*[x for how, x in said if args.verdicts or how not in ("named", "right")], sep="\n", flush=True)
    if args.json and args.names: found = json.loads(args.json.read_text("utf-8"))["exercises"] | found
    def strip(rows): return total({k: n for k, n in x.items() if k != "stars"} for x in rows)
    whole, hard = strip(found.values()), strip(x for x in found.values() if x["stars"] == 3)
    for word, x in {"all": whole, "three stars": hard}.items():
        if x: print(f"{word}: {in_words(x)}")
    if args.json: args.json.write_text(json.dumps(dict(
        command=f"python scripts/tutor.py --json {args.json}",
        batteries={x: hashlib.sha256((ROOT/f"tests/{x}.py").read_bytes()).hexdigest() for x in args.battery},
        total=whole, three_stars=hard, exercises=found), indent=1) + "\n", "utf-8")

if __name__ == "__main__": main()
