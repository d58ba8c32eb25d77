"""The map of the course, nbs/images/pipeline.svg: python scripts/draw_map.py

`show.views.course_map` reads the picture and marks the reader's place: each node says its name and its chapters, and
has, unseen, a sign `you are here` and an empty row for a number. tests/test_views.py says when it is stale.
"""
from html import escape
from itertools import pairwise
from pathlib import Path

PICTURE = Path(__file__).resolve().parents[1]/"nbs/images/pipeline.svg"
WIDTH, HEIGHT, HALF, TALL, ROW = 720, 350, 46, 31, 10.2     # of the page, half a node, a row of words
INK, MARK = "#2b2b2b", "#d26254"
KINDS = {"data": "#f2f2f2", "model": "#d3e9e7", "training method": "#e4dff6", "frozen model": "white"}
NODES = {  # name: middle x and y, kind, rows of chapters; more chapters that have their place here
    "base model": (54, 115, "model", ["02 tokens"], ""),
    "SFT model": (176, 115, "model", ["04 sft"], ""),
    "pairs": (299, 115, "data", ["03 world", "13 judge"], ""),
    "reward model": (421, 115, "model", ["05 reward", "22 rubrics"], ""),
    "PPO, GRPO": (544, 115, "training method", ["08 ppo", "09 grpo, 20, 23", "21 distillation"], "off_policy tools"),
    "policy": (666, 115, "model", ["06 best_policy", "11 compare, 24", "12 doctor"], "self_reward win_rate"),
    "DPO, SPIN": (299, 202, "training method", ["10 dpo", "15 spin"], ""),
    "Q-learning": (482, 242, "training method", ["16 qlearning", "17, 18"], "arithmetic q_faults"),
    "reference": (299, 302, "frozen model", ["07 kl"], "")}
PLAIN = [  # corners of an arrow
    *([(x + HALF, 115), (to - HALF, 115)] for x, to in pairwise((54, 176, 299, 421, 544, 666))),
    [(299, 146), (299, 171)], [(345, 202), (648, 202), (648, 146)], [(528, 242), (666, 242), (666, 146)],
    [(666, 84), (666, 25), (299, 25), (299, 84)]]
DASHED = [  # of the reference
    [(176, 146), (176, 302), (253, 302)], [(684, 146), (684, 302), (345, 302)]]
NOTES = [  # middle x, y, rows
    (115, 72, ["imitate", "answers"]), (238, 72, ["compare two", "answers"]), (360, 72, ["predict the", "choice"]),
    (482, 72, ["score new", "answers"]), (605, 72, ["raise what", "scores well"]),
    (482, 15, ["14 self_reward: the policy judges its own answers"]), (420, 191, ["learn from the pairs directly"]),
    (405, 242, ["learn from", "a log"]), (208, 234, ["a frozen", "copy"]), (511, 291, ["KL: how far from the reference?"]),
    (511, 334, ["19 your_model: all of it with a model and a reward of your own"])]

def words(x, y, rows, size, fill=INK, more="", first=""): # rows around the height y
    y += .36 * size - ROW * (len(rows) + 1) / 2
    return (f'<text x="{x}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="middle"{more}>{first}'
            + "".join(f'<tspan x="{x}" dy="{ROW}">{escape(row)}</tspan>' for row in rows) + "</text>")

def box(x, y, more): return f'<rect x="{x - HALF}" y="{y - TALL}" width="{2 * HALF}" height="{2 * TALL}" rx="6" {more}/>'

def node(name, x, y, kind, rows, others):
    places = " ".join([row.split(",")[0].split()[1] for row in rows if not row.split(",")[0].isdigit()] + others.split())
    dashes = ' stroke-dasharray="4 2.5"' if kind[0] == "f" else ""
    number = f'<tspan x="{x}" dy="{ROW}" font-weight="bold" data-number="{name}"></tspan>'
    return "\n".join([
        f'<g data-node="{name}" data-chapters="{places}">', box(x, y, f'fill="{KINDS[kind]}" stroke="#8c8c8c"{dashes}'),
        words(x, y - 21, [name], 10.5, more=' font-weight="bold"'), words(x, y + 4, rows, 8.4, first=number), "</g>"])

def here(name, x, y):
    return "\n".join([
        f'<g data-here="{name}" visibility="hidden">', box(x, y, f'fill="none" stroke="{MARK}" stroke-width="2.6"'),
        f'<rect x="{x - 36}" y="{y + TALL + 1}" width="72" height="14" fill="{MARK}"/>',
        words(x, y + TALL + 8, ["you are here"], 9, "white", ' font-weight="bold"'), "</g>"])

def drawn()->str:
    def tip(name, color): return (f'<marker id="{name}" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" '
                                  f'orient="auto" markerUnits="userSpaceOnUse"><path d="M0 0L8 4L0 8z" fill="{color}"/></marker>')
    arrows = [f'<polyline points="{" ".join(f"{x},{y}" for x, y in corners)}" fill="none" stroke-width="1.3" '
              + (f'stroke="{MARK}" stroke-dasharray="5 3" marker-end="url(#far)"/>' if corners in DASHED else
                 'stroke="#555" marker-end="url(#tip)"/>') for corners in PLAIN + DASHED]
    legend = [f'<rect x="11" y="{241 + 19 * i}" width="16" height="11" fill="{color}" stroke="#8c8c8c"/>'
              f'<text x="34" y="{250 + 19 * i}" font-size="9" fill="#444">{kind}</text>' for i, (kind, color) in enumerate(KINDS.items())]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="960" height="{HEIGHT * 4 // 3}" role="img" '
        'aria-label="The map of the course, from a base model to a policy" font-family="DejaVu Sans, Verdana, sans-serif">',
        f'<defs>{tip("tip", "#555")}{tip("far", MARK)}</defs>', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *arrows,
        *(words(x, y, rows, 9, MARK if rows[0][:2] == "KL" else "#444") for x, y, rows in NOTES),
        *(node(name, *told) for name, told in NODES.items()), *(here(name, x, y) for name, (x, y, *_) in NODES.items()),
        *legend, "</svg>\n"])

if __name__ == "__main__":
    PICTURE.write_text(drawn(), "utf-8")
    print(PICTURE)
