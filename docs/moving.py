"""What moves on the site without a kernel: facts for docs/static, computed by the package when the site is built."""
import base64, json
from contextlib import redirect_stdout
from functools import cache
from html import escape
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT/"rlhf_nb/checkpoints"

def models_js()->str: # for docs/static/model.js
    "The bundled models and their vocabulary, as a script that a page may load from a disk, too."
    words = json.loads((SHIPPED/"sft/tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    models = {name: dict(config=json.loads((SHIPPED/name/"config.json").read_text("utf-8")),
                         weights=base64.b64encode((SHIPPED/name/"model.safetensors").read_bytes()).decode())
              for name in ("sft", "base", "reward", "judge")}
    in_order = sorted(words, key=words.get)
    return "window.rlhfModels = " + json.dumps(dict(words=in_order, models=models), ensure_ascii=False, separators=(",", ":"))

def model_block()->str: # HTML
    "The first screen of the site: an answer and its reward, token by token."
    from rlhf_nb.worlds.world_text import TEST, judge_prompt
    facts = dict(questions=[q.text for q in TEST[:12]], judged=judge_prompt(SimpleNamespace(text="{question}"), "{answer}"), answer="What a lovely question! it lives in the pond.")
    return (f'<div data-model="{escape(json.dumps(facts))}">With JavaScript the reward model of chapter 05 stands here: '
            "type an answer and see its reward, token by token.</div>")

def train_block()->str: # HTML
    "Ten pairs of the page's own answers, for labels of the reader's and DPO on them."
    from rlhf_nb.worlds.world_text import TEST, TRAIN
    facts = dict(questions=[q.text for q in TRAIN[::20][:10]], ask=[q.text for q in TEST[:12]])
    return (f'<div data-train="{escape(json.dumps(facts))}">With JavaScript ten pairs of answers stand here: '
            "your labels train the model in the page.</div>")

# ---- the loss laboratory
KNOBS = [["ratio", 1.5, .05, 3, .05], ["advantage", 1, -2, 2, .1], ["length", 8, 1, 64, 1], ["gap", .5, -4, 4, .1], ["beta", .3, .1, 2, .1]]

def f_dpo_loss(divergence): # "forward KL", "Jensen-Shannon" or "alpha .5" -> a loss of four log-probs
    "DPO with another divergence than the reverse KL: -log σ(β (f'(r_w) - f'(r_l))), r = π / π_ref (Wang et al. 2024)."
    import torch
    from torch.nn.functional import logsigmoid
    slope = {"forward KL": lambda u: -(-u).exp(), "Jensen-Shannon": lambda u: u - torch.log1p(u.exp()),
             "alpha .5": lambda u: (1 - (-.5 * u).exp()) / .5}[divergence]          # f' of e^u, less a constant
    return lambda w, l, ref_w, ref_l, beta: -logsigmoid(beta * (slope(w - ref_w) - slope(l - ref_l)))

def pair_losses()->dict:
    "Losses of pairs by name, those that `train_dpo` takes first."
    from rlhf_nb.dpo import dpo_loss
    from rlhf_nb.trainers import dpo_tools as t
    f = {f"DPO, {name}": f_dpo_loss(name) for name in ("forward KL", "Jensen-Shannon", "alpha .5")}
    return {"DPO": dpo_loss, "cDPO": t.cdpo_loss, "robust DPO": t.robust_dpo_loss, "hinge": t.hinge_loss, "IPO": t.ipo_loss} | f

def pushes(ratio, advantage, length, gap, beta)->tuple[dict, dict]:
    """Gradients that raise log π, from the functions that train.

    Method -> (of a token with this ratio, of another token of its answer), in units of a token of an answer of 8 tokens
    at ratio 1 and advantage 1, beside one other answer of 8; loss of pairs -> of a token of the chosen answer."""
    import torch
    from rlhf_nb.grpo import LOSS_WEIGHTS, TOKEN_LOSSES
    from rlhf_nb.show.token_loss import LOSS_METHODS
    def weight(method, n):
        mask = torch.arange(max(n, 8)) < torch.tensor([n, 8])[:, None]
        return LOSS_WEIGHTS[method.loss_type](mask, max_length=64)[0, 0].item()
    family, log_ratio = {}, torch.zeros(1, length).double()
    log_ratio[0, 0] = torch.tensor(ratio).double().log()
    for name, m in LOSS_METHODS.items():
        x = log_ratio.clone().requires_grad_()
        rho = (x.mean(1, keepdim=True).expand_as(x) if m.level == "sequence" else x).exp()
        loss = TOKEN_LOSSES[m.token_loss](rho, torch.full_like(x, advantage), *m.clip).sum() * weight(m, length) / weight(m, 8)
        g = -torch.autograd.grad(loss, x)[0][0]
        family[name] = g[0].item(), g[-1].item() if length > 1 else 0.
    pairs = {}
    for name, loss in pair_losses().items():
        w = torch.tensor([float(gap)]).double().requires_grad_()
        zero = torch.zeros(1).double()
        pairs[name] = -torch.autograd.grad(loss(w, zero, zero, zero, beta=beta).sum(), w)[0].item()
    return family, pairs

def bars(rows, left, head)->str: # [(name, one number or two)]; SVG
    from rlhf_nb.show.pages import BLUE, ORANGE, svg_text
    most = max(abs(v) for _, values in rows for v in values) or 1
    out = svg_text(left, 14, head, 'font-weight="bold"')
    for i, (name, values) in enumerate(rows):
        y = 24 + 24 * i
        out += svg_text(left, y + 13, name)
        for k, v in enumerate(values):
            wide, color = 70 * abs(v) / most, ORANGE if v > 0 else BLUE
            out += (f'<rect x="{left + 175 - (wide if v < 0 else 0):.1f}" y="{y + 9 * k}" width="{wide:.1f}" height="8" fill="{color}"'
                    f'{" fill-opacity=" + chr(34) + ".5" + chr(34) if k else ""}/>')
        out += svg_text(left + 255, y + 13, " ".join(map(number, values)))
    return out

def number(x)->str: return f"{x:.3f}".replace("-0.000", "0.000")

def losses_page(at:dict)->str: # knob -> value; HTML
    from rlhf_nb.show.pages import drawing, html_table
    family, pairs = pushes(**at)
    said = "push on log π: " + ", ".join(f"{k} {number(v[0])}" for k, v in family.items())
    marks = bars(list(family.items()), 2, "this token, and below it another of its answer")
    marks += bars([(k, [v]) for k, v in pairs.items()], 380, "a token of the chosen answer")
    table = html_table(["method", "this token", "another"], [[k, *map(number, v)] for k, v in family.items()] + [[k, number(v), ""] for k, v in pairs.items()])
    return drawing(said, (720, 270), marks) + table

def block(kind:str, knobs:list, page, **facts)->str: # knob: name, value, least, most, step, and the base of a power; HTML
    "What static/knobs.js turns; without a script, the page at the first values."
    at = {k: base[0]**v if base else v for k, v, _, _, _, *base in knobs}
    return f'<div data-knobs="{escape(json.dumps(dict(kind=kind, knobs=knobs) | facts))}">{page(at)}</div>'

def losses_block()->str: return block("losses", KNOBS, losses_page)

# ---- chapters: what their own cells compute, at other settings
def cells_of(notebook:str, *ids:str)->dict: # names that these cells of a chapter define
    names, cells = {}, json.loads((ROOT/f"nbs/{notebook}.ipynb").read_text("utf-8"))["cells"]
    with redirect_stdout(None):
        for key in ids: exec("".join(next(c["source"] for c in cells if c["id"] == key)), names)
    return names

@cache
def tree_world()->dict: return cells_of("06_best_policy", "best_policy_imports", "best_policy_imports_2", "world")

def tree_page(at:dict)->str: # beta or n; HTML
    "Chapter 06: a box per prefix, as wide as its probability, with the mean reward from there on."
    from rlhf_nb.best_policy import best_of_n_policy, optimal_policy
    from rlhf_nb.show.pages import drawing, html_table, svg_text, tint
    from rlhf_nb.worlds.oracle import expectation, prefix_means
    c = tree_world()
    world, ref, reward = c["world"], c["ref_logp"], c["reward"]
    if "n" in at: logp = best_of_n_policy(ref, reward, int(at["n"]))
    else: logp, log_z = optimal_policy(ref, reward, at["beta"])
    p, means, marks = logp.exp(), prefix_means(world, logp, reward), ""
    kl, gain = expectation(logp, logp - ref).item(), expectation(logp, reward).item()
    said = (f"best of {at['n']:.0f}: reward {gain:+.2f}, KL {kl:.2f} nats" if "n" in at else
            f"beta {at['beta']:.2f}: reward {gain:+.2f}, KL {kl:.2f} nats, beta log Z {at['beta'] * log_z:+.2f}")
    for prefix, value in means.items():
        rows = [y[:len(prefix)] == prefix for y in world.responses()]
        x, w, y = 680 * p[:rows.index(True)].sum().item(), 680 * p[rows].sum().item(), 22 + 46 * len(prefix)
        if w < .3: continue
        word = world.words[prefix[-1]] if prefix else "start"
        shown = f"{value:+.2f}".replace("-0.00", "+0.00")
        marks += (f'<rect x="{x:.1f}" y="{y}" width="{w:.1f}" height="44" fill="{tint(value, 3)}" stroke="currentColor" stroke-opacity=".3"/>')
        if w > 34: marks += svg_text(x + w / 2, y + 19, word, 'text-anchor="middle"') + svg_text(x + w / 2, y + 34, shown, 'text-anchor="middle"')
        elif w > 12: marks += svg_text(x + w / 2 + 4, y + 40, word, f'transform="rotate(-90 {x + w / 2 + 4:.1f} {y + 40})"')
    top = sorted(range(len(p)), key=lambda i: -round(p[i].item(), 9))[:8]
    return drawing(said, (680, 210), svg_text(2, 14, said, 'font-weight="bold"') + marks) + html_table(
        ["response", "reward", "reference", "now"], [[c["texts"][i], reward[i].item(), ref[i].exp().item(), p[i].item()] for i in top])

def tree_block(knobs)->str:
    c = tree_world()
    return block("tree", knobs, tree_page, words=c["world"].words, texts=c["texts"], responses=c["world"].responses(),
                 ref=c["ref_logp"].tolist(), reward=c["reward"].tolist())

def clip_page(at:dict)->str: # cliprange, ratio; HTML
    "Chapter 08: the clipped loss of a token, and its gradient by log π."
    import torch
    from rlhf_nb.ppo import clipped_policy_loss
    from rlhf_nb.show.pages import BLUE, ORANGE, drawing, html_table, svg_text
    e, rho, marks, rows = at["cliprange"], at["ratio"], "", []
    for k, a in enumerate((1., -1.)):
        def x(r): return 20 + 350 * k + 200 * (r - .3)
        def y(loss): return 110 - 40 * loss
        def loss_at(r): return clipped_policy_loss(torch.tensor([r]).double().log(), torch.zeros(1).double(), torch.tensor([a]).double(), e).item()
        logp = torch.tensor([rho]).double().log().requires_grad_()
        loss = clipped_policy_loss(logp, torch.zeros(1).double(), torch.tensor([a]).double(), e).sum()
        slope = torch.autograd.grad(loss, logp)[0].item()
        low, high = (1 + e, 1.8) if a > 0 else (.3, 1 - e)
        at_ends = " ".join(f"{x(r):.1f},{y(loss_at(r)):.1f}" for r in (.3, 1 - e, 1 + e, 1.8))
        marks += (f'<rect x="{x(low):.1f}" y="30" width="{x(high) - x(low):.1f}" height="160" fill="currentColor" fill-opacity=".1"/>'
                  f'<path d="M{x(.3):.1f} {y(-.3 * a):.1f}L{x(1.8):.1f} {y(-1.8 * a):.1f}" stroke="currentColor" stroke-dasharray="4 3"/>'
                  f'<path d="M{x(.3):.1f} 110H{x(1.8):.1f}" stroke="currentColor" stroke-opacity=".3"/>'
                  f'<polyline points="{at_ends}" fill="none" stroke="{BLUE}" stroke-width="3"/>'
                  f'<circle cx="{x(rho):.1f}" cy="{y(loss.item()):.1f}" r="5" fill="{ORANGE}" stroke="currentColor"/>')
        marks += svg_text(x(.3), 16, f"A = {a:+.0f}: loss {number(loss.item())}, gradient {number(slope)}", 'font-weight="bold"')
        marks += svg_text(x(.3), 206, "ratio 0.3") + svg_text(x(1.8), 206, "1.8", 'text-anchor="end"')
        rows.append([f"{a:+.0f}", number(loss.item()), number(slope)])
    marks += svg_text(20, 224, "dashed: -ratio × A; grey: no gradient")
    said = f"ratio {rho:.2f}, clip {e:.2f}: " + "; ".join(f"A = {a}: loss {loss}, gradient {slope}" for a, loss, slope in rows)
    return drawing(said, (680, 232), marks) + html_table(["A", "loss", "gradient"], rows)

CLIP = [["cliprange", .2, .05, .6, .05], ["ratio", 1.5, .3, 1.8, .05]]

def group_page(at:dict)->str: # answers, right, and the tokens of a right and of a wrong one; HTML
    "Chapter 09: the advantage of each kind of answer, and what a loss weighs."
    import torch
    from rlhf_nb.grpo import LOSS_WEIGHTS, group_centered, group_normalised, leave_one_out
    from rlhf_nb.show.pages import drawing, html_table
    k, right = int(at["answers"]), min(int(at["right"]), int(at["answers"]))
    n = torch.tensor([int(at["tokens if right"])] * right + [int(at["tokens if wrong"])] * (k - right))
    reward, mask = (torch.arange(k) < right).double(), torch.arange(32) < n[:, None]
    def pair(x): return [x[0].item() if right else 0., x[-1].item() if right < k else 0.]
    A = {name: pair(f(reward, torch.zeros(k))) for name, f in (("RLOO", leave_one_out), ("Dr. GRPO", group_centered), ("GRPO", group_normalised))}
    w = {name: pair(LOSS_WEIGHTS[name](mask, max_length=32)[:, 0].double() * k) for name in ("dapo", "grpo", "dr_grpo")}
    push = {name: [8 * a * b for a, b in zip(A[x], w[y])] for name, x, y in (
        ("GRPO", "GRPO", "grpo"), ("DAPO", "GRPO", "dapo"), ("Dr. GRPO", "Dr. GRPO", "dr_grpo"))}
    left = [(f"{name}, advantage", v) for name, v in A.items()] + [(f"{name}, push on a token", v) for name, v in push.items()]
    sizes = [at["tokens if right"], at["tokens if wrong"]]
    weights = [(f"{name}, a token", [8 * x for x in v]) for name, v in w.items()] + [
               (f"{name}, the answer", [x * m for x, m in zip(v, sizes)]) for name, v in w.items()]
    said = f"{right} of {k} right: " + ", ".join(f"{name} {number(v[0])} and {number(v[1])}" for name, v in left[:3])
    return drawing(said, (720, 174), bars(left, 2, "a right answer, and below it a wrong one")
                   + bars(weights, 380, "weight in the loss")) + html_table(["", "right", "wrong"], [[x, *map(number, v)] for x, v in left + weights])

GROUP = [["answers", 8, 2, 32, 1], ["right", 2, 0, 32, 1], ["tokens if right", 8, 1, 32, 1], ["tokens if wrong", 24, 1, 32, 1]]

def displaced_page(at:dict)->str: # never, steps; HTML
    "Chapter 10: three words, of which the first is preferred to the second."
    import torch
    from rlhf_nb.dpo import dpo_loss
    from rlhf_nb.show.pages import BLUE, ORANGE, drawing, html_table, svg_text
    vectors = torch.tensor([(1., 0.), (.9, at["never"]), (-.2, 1.)]).double()
    first = torch.tensor([2., -.5]).double()
    h, start = first.clone().requires_grad_(), (vectors @ first).log_softmax(0)
    for _ in range(int(at["steps"])):
        now = (vectors @ h).log_softmax(0)
        loss = dpo_loss(now[:1], now[1:2], start[:1], start[1:2], beta=1.)
        h = (h - torch.autograd.grad(loss.sum(), h)[0]).detach().requires_grad_()
    before, after = start.exp().tolist(), (vectors @ h).softmax(0).tolist()
    rows, marks = list(zip(("No", "Never", "Yes"), before, after)), ""
    for j, (word, a, b) in enumerate(rows):
        marks += (svg_text(50, 50 * j + 42, word, 'text-anchor="end"')
                  + f'<rect x="58" y="{50 * j + 24}" width="{200 * a:.1f}" height="28" fill="currentColor" fill-opacity=".15" stroke="currentColor" stroke-opacity=".5"/>'
                  + f'<rect x="58" y="{50 * j + 31}" width="{200 * b:.1f}" height="14" fill="{ORANGE}"/>'
                  + svg_text(64 + 200 * max(a, b), 50 * j + 42, f"{number(a)} → {number(b)}"))
    def x(v): return 450 + 34 * v[0]
    def y(v): return 120 - 34 * v[1]
    marks += '<path d="M380 120H670M450 10V230" stroke="currentColor" stroke-opacity=".3"/>'
    for (word, _, _), v in zip(rows, vectors.tolist()):
        marks += f'<path d="M450 120L{x(v):.1f} {y(v):.1f}" stroke="{BLUE}" stroke-width="2"/>' + svg_text(x(v) + 4, y(v) - 4, word)
    end = h.tolist()
    scale = max(1., abs(end[0]) / 6, abs(end[1]) / 3)          # h may leave the picture: its length is not to scale then
    for v, color in ((first.tolist(), "none"), ([c / scale for c in end], ORANGE)):
        marks += f'<circle cx="{x(v):.1f}" cy="{y(v):.1f}" r="5" fill="{color}" stroke="currentColor"/>'
    marks += svg_text(380, 244, f"h: ({end[0]:.2f}, {end[1]:.2f})".replace("-0.00", "0.00") + "; ring: at the start")
    said = "; ".join(f"{word} {number(a)} to {number(b)}" for word, a, b in rows)
    return drawing(said, (680, 252), marks) + html_table(["word", "start", "end"], [[w, number(a), number(b)] for w, a, b in rows])

DISPLACED = [["never", -.4, -.9, .9, .1], ["steps", 100, 0, 100, 1]]

@cache
def lag_table()->list: # [lag][weights]: name, bias², variance, degrees
    "Chapter 20: a sampler that has not seen the last steps, at every lag from 0 to 8, by the chapter's own functions."
    import torch
    from rlhf_nb.best_policy import exact_gradient
    out, ids = [], ("off_policy", "off_policy_2", "importance_ratios", "effective_sample_size", "bounded_weights", "tree")
    loop = "for _ in range(3):"
    for lag in range(9):
        c, cells = {}, {x["id"]: "".join(x["source"]) for x in json.loads((ROOT/"nbs/20_off_policy.ipynb").read_text("utf-8"))["cells"]}
        assert loop in cells["tree"], "chapter 20, cell tree: the learner's three steps are written otherwise now"
        cells["tree"] = cells["tree"].replace(loop, f"for _ in range({lag}):").partition("before = ")[0]
        for key in (*ids, "corrections"): exec(cells[key], c)
        logq = c["tokens_logp"](c["samplers"]["three steps older"]).detach()
        d = c["logp"].detach() - logq
        out.append([[how, *c["bias_and_variance"](logq.sum(1).exp(), w)] for how, w in c["corrections"](d).items()])
    return out

def lag_page(at:dict)->str: # lag, answers; HTML
    from rlhf_nb.show.pages import drawing, html_table
    n, table = at["answers"], lag_table()[int(at["lag"])]
    best, b, v, _ = min(table, key=lambda r: round(r[1] + r[2] / n, 9))
    said = f"lag {at['lag']:.0f}, {n:.0f} answers: the least squared error is {number(b + v / n)}, {best}"
    marks = bars([(how, [b, v / n]) for how, b, v, _ in table], 2, "bias², and below it variance / n")
    marks += bars([(how, [angle]) for how, _, _, angle in table], 380, "degrees off the exact gradient")
    return drawing(said, (720, 198), marks) + html_table(["weights", "bias²", "variance / n", "degrees"], [[how, *map(number, (b, v / n, a))] for how, b, v, a in table])

LAG = [["lag", 3, 0, 8, 1], ["answers", 6, 4, 14, 1, 2]]

LOSSES = """## The loss laboratory

How hard does each loss push one token? *Ratio* is this token's; the other tokens of its answer have ratio 1. *Advantage* and *length* are
its answer's, and beside it stands one answer of eight tokens. 1 is the push on a token of an answer of eight tokens at ratio 1 and advantage 1.
On the right, a token of the chosen answer of a pair whose log-ratios lie *gap* nats apart, at *beta*. At a ratio of 1.5 the clip is passed: which methods still push?
At −1 and a ratio of .5? Double the length: whose push halves?

"""
GROUPS = """### A group of your own

Rewards are 1 and 0. 1 is, for an answer, an equal share of the loss; for a token, that share of an answer of eight tokens; *dr_grpo* divides by
L = 32. Make the wrong answers long: in which loss does each of their tokens lose its push, in which does it not?

"""
LAGS = """### Any lag

The sampler above, now *lag* steps behind the learner, and any number of answers. At a lag of 6, which
weights are best with 16 answers, and which with 16,384?

"""
TEN = """### Ten labels of your own

Click the better one of two answers of the SFT model, ten times; then all 127,000 weights learn from your labels by DPO, in this page. Does the
model learn what you meant, or only what your ten pairs have in common, such as their length? Which answers lose the most nats?

"""
BLOCKS = {      # page -> [behind which cell, text, HTML]; without a text, in place of what the cell shows
    "best_policy": [("play", "", lambda: tree_block([["beta", -.3, -1, 1.5, .1, 10]])),
                    ("play_3", "", lambda: tree_block([["n", 16, 1, 256, 1]]))],
    "ppo": [("clip_region", "", lambda: block("clip", CLIP, clip_page))],
    "grpo": [("loss_weights_check", GROUPS, lambda: block("group", GROUP, group_page)), ("every_token", LOSSES, losses_block)],
    "dpo": [("razin", "", lambda: block("displaced", DISPLACED, displaced_page)), ("pair_ledger", TEN, train_block)],
    "off_policy": [("crossing_read", LAGS, lambda: block("lag", LAG, lag_page, table=lag_table()))],
    "token_loss": [("loss_pages_read", LOSSES, losses_block)]}
