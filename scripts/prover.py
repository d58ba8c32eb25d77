"""How good `rlhf-nb prove` is, on functions that were written without sight of its mistakes.

    python scripts/prover.py            # per kind: refused, named, named falsely, right ones refused, CPU seconds
    python scripts/prover.py kl gae     # of these kinds
    python scripts/prover.py --verdicts # and what is said of each
"""
import re, sys, time, warnings
from pathlib import Path
from rlhf_nb.book.prove import prove

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT/"tests"))

def judged(words, fn, kind): # "accepted", "named", "falsely" or "unnamed"; what was said
    try: proof = prove(fn, kind)
    except ValueError as e: return "unnamed", str(e)
    said = "; ".join(proof.mistakes + proof.fragile)
    if proof.verdict == "exact": return "accepted", proof.definition
    if re.search(words, said, re.I): return "named", said
    return "falsely" if proof.verdict == "mistake" else "unnamed", said

def main(kinds, show):
    from prove_battery import RIGHT, WRONG
    warnings.simplefilter("ignore")
    total, n_right, wrongly = dict(named=0, falsely=0, unnamed=0, accepted=0), 0, 0
    for kind in kinds or WRONG:
        counts, start = dict.fromkeys(total, 0), time.process_time()
        for words, fn in WRONG.get(kind, []):
            how, said = judged(words, fn, kind)
            counts[how] += 1
            if show: print(f"  {how:9}[{words}]  {said[:300]}")
        each = (time.process_time() - start) / max(1, len(WRONG.get(kind, [])))
        refused = [f"{fn.__name__}: {proof.mistakes[0]}" for fn in RIGHT.get(kind, [])
                   if (proof := prove(fn, kind)).verdict != "exact"]
        n_right, wrongly = n_right + len(RIGHT.get(kind, [])), wrongly + len(refused)
        print(f"{kind:12}" + "  ".join(f"{k} {n}" for k, n in counts.items()) + f"  {each:.2f} s each", *refused, sep="\n    ")
        total = {k: n + counts[k] for k, n in total.items()}
    n = sum(total.values())
    print(f"{n} wrong functions: refused {n - total['accepted']} ({1 - total['accepted'] / n:.1%}), named {total['named']} "
          f"({total['named'] / n:.1%}), falsely {total['falsely']}; {n_right} right ones, {wrongly} refused")

if __name__ == "__main__": main([x for x in sys.argv[1:] if x[0] != "-"], "--verdicts" in sys.argv)
