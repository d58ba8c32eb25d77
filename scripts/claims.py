"""The ledger of claims, looked at by its authors.

python scripts/claims.py              entries, and sentences that claim something and have none, for each chapter
python scripts/claims.py 08           chapter 08: what the rows of its entries say, what is wrong, and those sentences"""
import json, math, re, sys, tomllib
from pathlib import Path
from rlhf_nb.run.evidence import flatten_settings
from reproduce import claim_rows, claim_verdict, measure_claim, printed_claim, read_claims

ROOT = Path(__file__).resolve().parents[1]
CLAIMING = re.compile(r"\b(better|best|worse|worst|more|most|less|least|fewer|lower|higher|larger|smaller|longer|shorter|faster|"
    r"slower|further|needs?|costs?|causes?|prevents?|always|never|rises?|falls?|gains?|loses?|lost|beats?|reach(?:es|ed)?|"
    r"wins?|helps?|hurts?|because|level)\b|[\d.]+ ?%|\b\d*\.\d+\b|(?<![\w.])\.\d+", re.I)
_FIELDS = {"id", "sentence", "rows", "settings", "seed", "a", "b", "measure", "differs", "control", "estimate", "error", "seeds",
           "fails_if", "command", "numbers", "cell", "prints", "minus", "exact", "file", "after", "code", "again", "reported", "checked", "chapter"}


def one_line(text): return " ".join(text.split())

def chapter_text(path):
    "The markdown of a notebook in one line, cell by cell."
    cells = json.loads(Path(path).read_text("utf-8"))["cells"]
    return [one_line("".join(c["source"])) for c in cells if c["cell_type"] == "markdown"]

def _close(text, value): # is it this value, rounded as the text is?
    digits = len(text.partition(".")[2])
    return math.isfinite(value) and abs(float(text) - abs(value)) <= .5 * 10**-digits + 1e-9

def _numbers(x): # in settings, a mean
    try: return [float(x)]
    except (TypeError, ValueError): return []

def group_mean(claim, side, path, results):
    "Mean over its seeds of a value of a group, or a setting."
    x = [r["found"]["value"] for r in claim_rows(claim, side, results, path)]
    x = [sum(v) / len(v) if isinstance(v, list) else v for v in x]
    return sum(x) / len(x)

def number_faults(claim, measured, folder):
    "Decimal numbers and percentages of a sentence that its rows do not say."
    said, known = claim.get("numbers", {}), [measured[0], measured[1]]
    if "rows" in claim:
        results = folder/"results"/claim["rows"].partition(":")[0]
        paths = claim["measure"] if isinstance(claim["measure"], list) else [claim["measure"]] * 2
        for side, path in zip("ab", paths):
            if side in claim:
                known.append(group_mean(claim, side, path, results))
                settings = claim_rows(claim, side, results, path)[0]["settings"]
                known += [n for x in flatten_settings(settings).values() for n in _numbers(x)]
        for text, where in said.items():
            side, _, path = where.partition(" ")
            value = group_mean(claim, side, path, results)
            if text not in claim["sentence"]: yield f"numbers: {text} is not in the sentence"
            elif not any(_close(text.strip("%"), v) for v in (value, 100 * value)): yield f"{text} is {value:.4g} ({where})"
    text = re.sub(r"\]\([^)]*\)|\$[^$]*\$|arXiv\S*", " ", claim["sentence"])
    for m in re.finditer(r"(?<![\w.])(\d*\.\d+|\d+(?= ?%))( ?%)?", text):
        if m[1] in said or m[0] in said: continue
        scale = 100 if m[2] else 1
        if not any(_close(m[1], scale * v) for v in known): yield f"{m[0]} is in the sentence and not in what was measured"

def command_faults(claim, folder):
    "Scripts, options of scripts and chapters of a command, or of `again`, that are not there."
    told = claim.get("command", "") + claim.get("again", "")
    for script in re.findall(r"benchmarks/\S+\.py", told):
        if not (path := Path(folder).parent/script).exists(): yield f"there is no {script}"
        else: yield from (f"{script} has no {o}" for o in re.findall(r"(?<= )--?[a-z]+", told) if f'"{o}"' not in path.read_text("utf-8"))
    for chapter in re.findall(r"rlhf-nb run (\w+)", told):
        if not (Path(folder)/f"{chapter}.ipynb").exists(): yield f"there is no chapter {chapter}"

def faults(claim, folder=ROOT/"nbs"):
    "All that is wrong with an entry of the ledger, in words."
    found = [f"unknown field {k}" for k in claim.keys() - _FIELDS]
    if not any(one_line(claim["sentence"]) in cell for cell in chapter_text(claim["chapter"])):
        found.append("the sentence is not in the chapter")
    if "reported" in claim: return found + [f"missing field {k}" for k in {"checked"} - claim.keys()]
    need = {"estimate", "fails_if", "control"} | ({"a", "measure", "error", "seeds", "command"} if "rows" in claim else {"cell", "prints"})
    if "b" in claim: need.add("differs")
    if "cell" in claim: need |= {"file", "command"} if "command" in claim else {"again"}
    if missing := need - claim.keys(): return found + [f"missing field {k}" for k in missing]
    try:
        if "rows" in claim:
            results = folder/"results"/claim["rows"].partition(":")[0]
            d = measure_claim(claim, results)
            mean, error = d.mean, d.error
            if d.unsaid: found.append(f"also differs: {', '.join(d.unsaid)}")
            seeds = [r["seed"] for r in claim_rows(claim, "a", results, "")]
            if "b" in claim: seeds = [s for s in seeds if s in [r["seed"] for r in claim_rows(claim, "b", results, "")]]
            if sorted(seeds) != sorted(claim["seeds"]): found.append(f"seeds are {seeds}")
        else: mean, error = printed_claim(claim)
    except (ValueError, FileNotFoundError) as e: return found + [str(e)]
    for name, value in (("estimate", mean), ("error", error)):
        if name == "error" and "error" not in claim and ("exact" in claim or math.isnan(error)): continue
        told = claim.get(name, math.nan)
        if not abs(told - value) <= .006 * abs(value) + 1e-9: found.append(f"{name} is {value:.3g}, not {told}")
    verdict = claim_verdict(claim["fails_if"], mean, error)
    if verdict == "fails" or verdict == "suggests" and "suggest" not in claim["sentence"]:
        found.append(f"fails_if {claim['fails_if']}: {mean:.3g} ± {error:.2g} {verdict}")
    return found + list(number_faults(claim, (mean, error), folder)) + list(command_faults(claim, folder))


def sentences(path):
    "Sentences of a chapter, without code, formulas, tables, headings, links, sources and folded hints."
    cells = json.loads(Path(path).read_text("utf-8"))["cells"]
    for text in ("".join(c["source"]).partition("**Sources")[0] for c in cells if c["cell_type"] == "markdown"):
        text = re.sub(r"(?s)<details>.*?</details>|```.*?```|<!--.*?-->|\$\$.*?\$\$", " ", text)
        text = re.sub(r"(?m)^#.*$|^\|.*$", "\n", text)
        for part in re.split(r"\n\s*\n|\n(?=[-*] |\d\. |> )", text):
            yield from (s for s in re.split(r"(?<=[.!?])\*{0,2} +(?=[*\"`(]*[A-Z0-9λβ])", one_line(part)) if len(s.split()) > 2)

def claiming(sentence): # a question, or what a chapter asks of its reader, claims nothing
    return not re.search(r"^\W*(You need|You will be able to|Skip)|\?\W*$", sentence) and CLAIMING.search(re.sub(r"\]\([^)]*\)|\$[^$]*\$|`[^`]*`", " ", sentence))

def uncovered(chapter, claims, exempt):
    "Sentences of a chapter that use a claiming word and that neither an entry nor an exception names."
    named = [one_line(c["sentence"]) for c in claims if c["chapter"] == chapter]
    named += [one_line(e["sentence"]) for e in exempt if chapter.stem.startswith(e["chapter"])]
    return [s for s in sentences(chapter) if claiming(s) and not any(n in s or s in n for n in named)]

def exceptions():
    "Parts of sentences that need no entry, each with chapter and reason."
    entries = tomllib.loads((ROOT/"scripts/no_claims.toml").read_text("utf-8"))["exception"]
    return [dict(chapter=e["chapter"], sentence=s, reason=e["reason"]) for e in entries
            for s in e.get("sentences") or [e["sentence"]]]

def main(words):
    ledger = [*read_claims(ROOT/"nbs").values()]
    total, wrong = 0, 0
    for chapter in sorted((ROOT/"nbs").glob("[0-9]*.ipynb")):
        if words and not any(chapter.stem.startswith(w) for w in words): continue
        mine, without = [c for c in ledger if c["chapter"] == chapter], uncovered(chapter, ledger, exceptions())
        total += len(without)
        print(f"{chapter.stem:20}{len(mine):4} entries {len(without):4} sentences with claiming words and no entry")
        for c in mine:
            bad = faults(c)
            wrong += len(bad)
            if words or bad: print(f"  {c['id']}: {'; '.join(bad) or 'right'}")
        if words: print(*(f"  ? {s}" for s in without), sep="\n")
    print(f"{len(ledger)} entries, {wrong} faults; {total} sentences without an entry")
    return int(wrong > 0)


if __name__ == "__main__": sys.exit(main(sys.argv[1:]))
