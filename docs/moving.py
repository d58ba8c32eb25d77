"""What moves on the site without a kernel: facts for docs/static, computed by the package when the site is built."""
import base64, json
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT/"rlhf_nb/checkpoints"

def models_js()->str: # for docs/static/model.js
    "The bundled models and their vocabulary, as a script that a page may load from a disk, too."
    words = json.loads((SHIPPED/"sft/tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    models = {name: dict(config=json.loads((SHIPPED/name/"config.json").read_text("utf-8")),
                         weights=base64.b64encode((SHIPPED/name/"model.safetensors").read_bytes()).decode())
              for name in ("sft", "base", "reward")}
    in_order = sorted(words, key=words.get)
    return "window.rlhfModels = " + json.dumps(dict(words=in_order, models=models), ensure_ascii=False, separators=(",", ":"))

def model_block()->str: # HTML
    "The first screen of the site: an answer and its reward, token by token."
    from rlhf_nb.worlds.world_text import TEST
    facts = dict(questions=[q.text for q in TEST[:12]], answer="What a lovely question! it lives in the pond.")
    return (f'<div data-model="{escape(json.dumps(facts))}">With JavaScript the reward model of chapter 05 stands here: '
            "type an answer and see its reward, token by token.</div>")

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

def losses_page(at:dict)->str: # knob -> value; HTML
    from rlhf_nb.show.pages import BLUE, ORANGE, drawing, html_table, svg_text
    family, pairs = pushes(**at)
    def number(x): return f"{x:.3f}".replace("-0.000", "0.000")
    def bars(rows, left, most, head):
        out = svg_text(left, 14, head, 'font-weight="bold"')
        for i, (name, values) in enumerate(rows):
            y = 24 + 24 * i
            out += svg_text(left, y + 13, name)
            for k, v in enumerate(values):
                wide, color = 70 * min(abs(v) / most, 1), ORANGE if v > 0 else BLUE
                out += (f'<rect x="{left + 175 - (wide if v < 0 else 0):.1f}" y="{y + 9 * k}" width="{wide:.1f}" height="8" fill="{color}"'
                        f'{" fill-opacity=" + chr(34) + ".5" + chr(34) if k else ""}/>')
            out += svg_text(left + 255, y + 13, " ".join(map(number, values)))
        return out
    most = max(abs(v) for values in family.values() for v in values) or 1
    said = "push on log π: " + ", ".join(f"{k} {number(v[0])}" for k, v in family.items())
    marks = bars(list(family.items()), 2, most, "this token, and below it another of its answer")
    marks += bars([(k, [v]) for k, v in pairs.items()], 380, max(map(abs, pairs.values())) or 1, "a token of the chosen answer")
    table = html_table(["method", "this token", "another"], [[k, *map(number, v)] for k, v in family.items()] + [[k, number(v), ""] for k, v in pairs.items()])
    return drawing(said, (720, 270), marks) + table

def losses_block()->str: # HTML
    facts = dict(kind="losses", knobs=KNOBS)
    return f'<div data-knobs="{escape(json.dumps(facts))}">{losses_page({k: v for k, v, *_ in KNOBS})}</div>'

LOSSES = """## The loss laboratory

How hard does each loss push one token? *Ratio* is this token's; the other tokens of its answer have ratio 1. *Advantage* and *length* are
its answer's, and beside it stands one answer of eight tokens. 1 is the push on a token of an answer of eight tokens at ratio 1 and advantage 1.
On the right, a token of the chosen answer of a pair whose log-ratios lie *gap* nats apart, at *beta*. At a ratio of 1.5 the clip is passed: which methods still push?
At −1 and a ratio of .5? Double the length: whose push halves?

"""
BLOCKS = {"grpo": ("every_token", LOSSES, losses_block), "token_loss": ("loss_pages_read", LOSSES, losses_block)} # page -> behind which cell, text, HTML
