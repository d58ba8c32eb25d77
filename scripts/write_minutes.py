"""Write the minutes that a chapter takes into its first screen: reading, and exercises from their marks.

    python scripts/write_minutes.py            # changes nbs/NN_*.ipynb in place, names what it changed
"""
import json, re
from pathlib import Path
from rlhf_nb.book.copies import TASK
from rlhf_nb.book.mine import part_chapters

NBS = Path(__file__).resolve().parents[1]/"nbs"
READ, WORK = re.compile(r"(\d+)( (?:minutes )?to\s+read)"), re.compile(r"(\d+)( to\s+practise| for (?:two|three)\s)")

def minutes(file)->tuple[float,int]: # to read at 180 words and 12 lines of code a minute; of the exercises
    cells = [dict(c, source="".join(c["source"])) for c in json.loads(file.read_text("utf-8"))["cells"]]
    shown = [c["source"] for c in cells if c["cell_type"] == "code" and not c["metadata"].get("jupyter")]
    lines = sum(bool(x.strip()) and not x.startswith("#|") for s in shown for x in s.splitlines())
    words = sum(len(c["source"].split()) for c in cells if c["cell_type"] == "markdown")
    parts = part_chapters((NBS/"my_rlhf.py").read_text("utf-8")).values()
    own = sum(n for number, n in parts if file.name.startswith(number))
    return words / 180 + lines / 12, own + sum(int(m[1]) for s in shown if (m := TASK.match(s)))

def written(text, reading, work): # the first screen with these minutes
    text = READ.sub(rf"{reading:.0f}\2", text, count=1)
    return WORK.sub(rf"{work}\2", text, count=1)

if __name__ == "__main__":
    for file in sorted(NBS.glob("[0-9]*.ipynb")):
        nb = json.loads(old := file.read_text("utf-8"))
        for cell in nb["cells"][:2]:
            if cell["cell_type"] == "markdown":
                cell["source"] = written("".join(cell["source"]), *minutes(file)).splitlines(keepends=True)
        new = json.dumps(nb, indent=1, ensure_ascii=False) + "\n"
        if new != old: print(f"{file.name}: changed", file.write_text(new, "utf-8") and "")
