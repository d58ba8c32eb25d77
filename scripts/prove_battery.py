"""How good `rlhf-nb prove` is, on mutants and right implementations that were written without sight of it.

    python scripts/prove_battery.py                # per kind: refused, named, named falsely, right ones refused, CPU seconds
    python scripts/prove_battery.py --verdicts     # and what is said of each
    python scripts/prove_battery.py kl gae         # these kinds
    python scripts/prove_battery.py --battery prove_battery_2   # mutants of four kinds that came later
    python scripts/prove_battery.py --jobs 2 --json benchmarks/results/prove_battery.json
"""
import argparse, hashlib, json, re, sys, time, warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from rlhf_nb.book.prove import prove

TESTS = Path(__file__).resolve().parents[1]/"tests"
sys.path.insert(0, str(TESTS))

def judged(words, proof): # refused is what ends `rlhf-nb prove` with status 1
    if proof.verdict == "exact": return "accepted"
    if proof.verdict == "unknown": return "unnamed"
    return "named" if re.search(words, " ".join((*proof.mistakes, *proof.fragile)).lower()) else "falsely"

def tried(battery, kind): # counts, and a line for what is not as it should be
    warnings.simplefilter("ignore")
    held = import_module(battery)
    WRONG, RIGHT, DEFINED = held.WRONG, held.RIGHT, held.DEFINED
    counts = dict(mutants=len(WRONG[kind]), named=0, falsely=0, unnamed=0, crashed=0, accepted=0,
                  definitions=len(DEFINED.get(kind, ())), definitions_told=0, right=len(RIGHT[kind]), right_refused=0)
    said, slowest, begun = [], 0., time.process_time()
    def proved(fn):
        nonlocal slowest
        start = time.process_time()
        try: return prove(fn, kind=kind)
        except Exception as error: return f"{type(error).__name__}: {error}"
        finally: slowest = max(slowest, time.process_time() - start)
    def say(how, words, fn, proof): said.append(
        f"  {how:9}[{words}] line {fn.__code__.co_firstlineno}  {' '.join(str(proof).split())[:500]}")
    for words, fn in WRONG[kind]:
        proof = proved(fn)
        how = "crashed" if isinstance(proof, str) else judged(words, proof)
        counts[how] += 1
        say(how, words, fn, proof)
    for words, fn in DEFINED.get(kind, ()):
        proof = proved(fn)
        told = not isinstance(proof, str) and proof.verdict == "exact" and re.search(words, proof.definition.lower())
        counts["definitions_told"] += bool(told)
        say("told" if told else "not told", words, fn, proof)
    for fn in RIGHT[kind]:
        proof = proved(fn)
        if isinstance(proof, str) or proof.verdict != "exact":
            counts["right_refused"] += 1
            say("RIGHT ONE", "", fn, proof)
    return counts | dict(cpu_s=round(time.process_time() - begun, 1), slowest_cpu_s=round(slowest, 1)), said

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kinds", nargs="*", metavar="KIND", help="all, if none is named")
    p.add_argument("--battery", default="prove_battery", choices=("prove_battery", "prove_battery_2"),
                   help="a module of tests/; the second is of four kinds, written later")
    p.add_argument("--verdicts", action="store_true", help="print what is said of each")
    p.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    p.add_argument("--json", type=Path, metavar="FILE", help="write the counts of all kinds there")
    args = p.parse_args()
    WRONG, file = import_module(args.battery).WRONG, TESTS/f"{args.battery}.py"
    if {*args.kinds} - {*WRONG}: p.error(f"no kind {', '.join({*args.kinds} - {*WRONG})}: there are {', '.join(WRONG)}")
    if args.json and args.kinds: p.error("--json is of all kinds: name none")
    kinds, found = args.kinds or [*WRONG], {}
    with ProcessPoolExecutor(args.jobs) as pool:
        for kind, (counts, said) in zip(kinds, pool.map(partial(tried, args.battery), kinds)):
            found[kind] = counts
            print(f"{kind:12}" + "  ".join(f"{k} {n}" for k, n in counts.items()), flush=True)
            print(*[x for x in said if args.verdicts or not x.startswith(("  named", "  told"))], sep="\n", flush=True)
    total = {k: (max if k == "slowest_cpu_s" else sum)(x[k] for x in found.values()) for k in next(iter(found.values()))}
    n = total["mutants"]
    print(f"{n} mutants: refused {n - total['accepted'] - total['crashed']} ({1 - (total['accepted'] + total['crashed']) / n:.1%}), "
          f"named {total['named']} ({total['named'] / n:.1%}), falsely {total['falsely']}; definitions told "
          f"{total['definitions_told']} of {total['definitions']}; right ones refused {total['right_refused']} of {total['right']}")
    if args.json: args.json.write_text(json.dumps(dict(
        battery=hashlib.sha256(file.read_bytes()).hexdigest(), command=f"python scripts/prove_battery.py --battery {args.battery} --json {args.json}",
        total=total, kinds=found), indent=1) + "\n", "utf-8")

if __name__ == "__main__": main()
