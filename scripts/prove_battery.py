"""How good `rlhf-nb prove` is, on mutants and right implementations that were written without sight of it.

    python scripts/prove_battery.py            # per kind: refused, named, named falsely, right ones refused
    python scripts/prove_battery.py --verdicts # and what is said of each
    python scripts/prove_battery.py kl gae     # these kinds
"""
import re, sys, time, warnings
from pathlib import Path
from rlhf_nb.book.prove import prove

sys.path.insert(0, str(Path(__file__).resolve().parents[1]/"tests"))
from prove_battery import RIGHT, WRONG

def judged(words, proof): # "accepted", "defined": as a definition that says the fault, "named", "falsely" or "unnamed"
    if proof.verdict == "exact" and not proof.fragile:
        return "defined" if words and re.search(words, proof.definition.lower()) else "accepted"
    if proof.verdict == "unknown": return "unnamed"
    return "named" if re.search(words, " ".join((*proof.mistakes, *proof.fragile)).lower()) else "falsely"

def main(kinds, show):
    warnings.simplefilter("ignore")
    total = dict(named=0, falsely=0, unnamed=0, crashed=0, defined=0, accepted=0)
    wrongly = 0
    for kind in kinds or WRONG:
        counts, start = dict.fromkeys(total, 0), time.process_time()
        for words, fn in WRONG[kind]:
            try: how = judged(words, proof := prove(fn, kind=kind))
            except Exception as error: how, proof = "crashed", f"{type(error).__name__}: {error}"
            counts[how] += 1
            if show: print(f"  {how:9}[{words}]  line {fn.__code__.co_firstlineno}  {' '.join(str(proof).split())[:600]}", flush=True)
        refused = []
        for fn in RIGHT[kind]:
            try: refused += [p for p in [prove(fn, kind=kind)] if judged("", p) != "accepted"]
            except Exception as error: refused.append(f"{type(error).__name__}: {error}")
        wrongly += len(refused)
        print(f"{kind:12}" + "  ".join(f"{k} {n}" for k, n in counts.items()), f" {time.process_time() - start:.1f} s", flush=True)
        for p in refused: print("  RIGHT ONE", " ".join(str(p).split())[:600])
        total = {k: n + counts[k] for k, n in total.items()}
    n = sum(total.values())
    kept = total["accepted"] + total["defined"]
    print(f"{n} mutants: refused {n - kept} ({1 - kept / n:.1%}), named {total['named']} ({total['named'] / n:.0%}), falsely "
          f"{total['falsely']}, told as a definition that says it {total['defined']}, crashed {total['crashed']}; right ones refused {wrongly}")

if __name__ == "__main__": main([k for k in sys.argv[1:] if not k.startswith("-")], "--verdicts" in sys.argv)
