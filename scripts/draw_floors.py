"""The picture of the floors, drawn from the imports of the package: make export

Whoever moves a module or lets it import from another floor draws it anew; tests/test_project.py
says when it is stale.
"""
import sys, textwrap
from html import escape
from pathlib import Path

import house

PICTURE = house.ROOT/"nbs/images/floors.svg"
WIDTH, LEFT, BOX, LINE, GAP = 690, 8, 520, 15, 14
SAYS = dict(tokens="which number belongs to which token", base="what every training shares", data="files to rows of tokens",
            worlds="worlds where every mean is an exact sum", course="the methods, as the chapters build them",
            show="what to look with", trainers="loops with settings, metrics and checkpoints",
            run="one engine: train, pipeline, recipes", book="the workbook: copy, run, check")

def group(floor): return floor if floor not in house.COURSE or floor == "tokens" else "course"

def floors(): # groups from the top down, each with its modules; pairs (upper, lower)
    known, arrows, inside = house.modules(), set(), {}
    for floor in reversed(house.STREET): inside.setdefault(group(floor), [])
    for name, tree in known.items():
        own = group(house.floor(name))
        if name in house.STREET or "." in name: inside[own].append(name.split(".")[-1])
        for other, _, _ in house.imports(name, tree, known):
            if own != (below := group(house.floor(other))): arrows.add((own, below))
    return inside, arrows

def drawn()->str:
    inside, arrows = floors()
    boxes, texts, middle, y = [], [], {}, 8
    for name, modules in inside.items():
        lines = textwrap.wrap("  ".join(sorted(modules)), 86, break_on_hyphens=False)
        height = 26 + LINE * len(lines)
        colour = "#fff4e0" if name in ("course", "tokens") else "#e8f1fa"
        boxes.append(f'<rect x="{LEFT}" y="{y}" width="{BOX}" height="{height}" rx="5" fill="{colour}" stroke="#8a9bb0"/>')
        texts.append(f'<text x="{LEFT + 10}" y="{y + 17}"><tspan font-weight="bold">{name}</tspan>'
                     f'<tspan dx="10" fill="#555">{escape(SAYS[name])}</tspan></text>')
        texts += [f'<text x="{LEFT + 10}" y="{y + 33 + LINE * i}" font-size="10.5" font-family="monospace">{escape(line)}</text>'
                  for i, line in enumerate(lines)]
        middle[name] = (y, y + height)
        y += height + GAP
    order, arcs = list(inside), []
    for upper, lower in sorted(arrows, key=lambda pair: (order.index(pair[0]), order.index(pair[1]))):
        below = order.index(lower) - order.index(upper)
        begin = middle[upper][1] - 4 - 2 * below
        end, reach = middle[lower][0] + 4 + 2 * order.index(upper), LEFT + BOX + 14 + 22 * below
        arcs.append(f'<path d="M{LEFT + BOX} {begin} C{reach} {begin} {reach} {end} {LEFT + BOX + 4} {end}" fill="none" '
                    f'stroke="#4a6785" stroke-opacity=".55" stroke-width="1.2" marker-end="url(#tip)"><title>{upper} imports from {lower}</title></path>')
    said = f"The floors of the package from top to bottom: {', '.join(order)}. Each imports only from floors below it."
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img" '
        f'aria-label="{said}" font-family="sans-serif" font-size="12.5" fill="#222">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto" '
        'markerUnits="userSpaceOnUse"><path d="M0 0L8 4L0 8z" fill="#4a6785"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{y}" fill="#ffffff"/>', *boxes, *texts, *arcs, "</svg>\n"])

if __name__ == "__main__":
    Path(PICTURE).write_text(drawn(), "utf-8")
    print(PICTURE.relative_to(house.ROOT), file=sys.stderr)
