"""How good the check behind an exercise is, on answers that were written without sight of it.

    python scripts/tutor.py            # per exercise: refused, named, named falsely, seconds
    python scripts/tutor.py --verdicts # and what is said of each
    python scripts/tutor.py --battery battery_2 # other answers: a module of tests/ with WRONG and RIGHT
"""
import re, sys, time, warnings
from importlib import import_module
from pathlib import Path
from rlhf_nb.book.checks import Exercise, grade

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT/"tests"))
NAME = sys.argv[sys.argv.index("--battery") + 1] if "--battery" in sys.argv else "battery"
WRONG, RIGHT = (vars(import_module(NAME))[k] for k in ("WRONG", "RIGHT"))

def exercises(): # name -> Exercise
    modules = [import_module(f"rlhf_nb.exercises.{f.stem}") for f in sorted((ROOT/"rlhf_nb/exercises").glob("[a-z]*.py"))
               if f.stem != "my_rlhf"]
    return {k: x for m in modules for k, x in vars(m).items() if isinstance(x, Exercise)}

def judged(words, verdict): # "accepted", "named", "falsely" or "numbers": case, entry, got and want
    if verdict == "right": return "accepted"
    said = re.split(r"; see exercises", verdict)[0]
    bare = r"(right on [^;]*; )?[^:;]*: (entry |got |stopped with (?!.*, because )|the value is right, its gradient is not)"
    named = not re.match(bare, said)
    return "numbers" if not named else "named" if re.search(words, said.lower()) else "falsely"

def main(show):
    warnings.simplefilter("ignore")
    total = dict(named=0, falsely=0, numbers=0, accepted=0)
    slowest = wrongly = 0
    for name, ex in exercises().items():
        counts = dict.fromkeys(total, 0)
        for words, answer in WRONG.get(name, []):
            start = time.process_time()
            verdict = grade(answer, ex)
            took = time.process_time() - start
            slowest = max(slowest, took)
            kind = judged(words, verdict)
            counts[kind] += 1
            if show: print(f"  {kind:9}{took:5.2f} s  [{words}]  {verdict[:300]}")
        refused = [v for v in (grade(f, ex) for f in RIGHT.get(name, [])) if v != "right"]
        wrongly += len(refused)
        print(f"{name:22}" + "  ".join(f"{k} {n}" for k, n in counts.items()), *refused)
        total = {k: n + counts[k] for k, n in total.items()}
    n = sum(total.values())
    print(f"{n} wrong answers: refused {n - total['accepted']}, named {total['named']} ({total['named'] / n:.0%}), "
          f"falsely {total['falsely']}; {sum(map(len, RIGHT.values()))} right ones, {wrongly} refused; slowest {slowest:.2f} s")

if __name__ == "__main__": main("--verdicts" in sys.argv)
