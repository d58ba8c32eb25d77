"""A sixth battery, held out: one slip each, written from stubs and task texts alone. Most wrong ones are a right text with one edit."""
import linecache, math, re, torch
from torch.nn.functional import logsigmoid
from rlhf_nb.base.batches import at_least_float32
from rlhf_nb.base.candidates import max_min
from rlhf_nb.base.q_networks import *
from rlhf_nb.base.q_networks import discounts, hidden_states, next_values, q_terms
from rlhf_nb.judge import pair_accuracy
from rlhf_nb.qlearning import bellman_targets as right_targets, monte_carlo_returns
from rlhf_nb.qlearning import *
from rlhf_nb.tokens import shift_right as moved

WRONG, RIGHT = {}, {}

def make(name, text):
    file = f"<battery_6 {name} {len(linecache.cache)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space = dict(globals()); exec(compile(text, file, "exec"), space)
    return space[name]

def edits(name, text, *rows): # (words, old, new)
    RIGHT.setdefault(name, []).append(make(name, text))
    for words, old, new in rows:
        assert old in text, (name, old)
        WRONG.setdefault(name, []).append((words, make(name, text.replace(old, new))))

def rights(name, *texts):
    for t in texts: RIGHT.setdefault(name, []).append(make(name, t))

# ---- 05
edits("bradley_terry_loss", '''def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("shapes differ")
    gap = chosen - rejected - margin
    loss = -logsigmoid(gap)
    if center_coef: loss = loss + center_coef * (chosen + rejected).square()
    return loss
''',
("swap|order|other way|wrong way|revers|sign of the gap", "chosen - rejected - margin", "rejected - chosen - margin"),
("sign|added|adds|plus|subtract", "- margin", "+ margin"),
("ignore|never|unused|left out|missing|not used|without", " - margin", ""),
("minus|negative of|negat|sign", "= -logsigmoid", "= logsigmoid"),
("overflow|underflow|finite|inf\\b|stable|logsigmoid", "-logsigmoid(gap)", "-gap.sigmoid().log()"),
("difference|minus|sum of|instead of the sum|gap", "(chosen + rejected).square()", "(chosen - rejected).square()"),
("square", "(chosen + rejected).square()", "(chosen + rejected)"),
("each|separate|square of the sum|sum of squares|cross|product", "(chosen + rejected).square()", "(chosen**2 + rejected**2)"),
("mean|average|one number|per pair|each pair", "return loss", "return loss.mean()"),
("sum|one number|per pair|each pair", "return loss", "return loss.sum()"),
("raise|valueerror|broadcast|refus", '    if chosen.shape != rejected.shape: raise ValueError("shapes differ")\n', ""),
("log\\b|logarithm|probabilit", "-logsigmoid(gap)", "1 - gap.sigmoid()"),
("multipl|factor|scale|times|divid", "chosen - rejected - margin", "(chosen - rejected) * (1 - margin)"),
("half|halv|mean|average|divid|quarter|four", "(chosen + rejected).square()", "((chosen + rejected) / 2).square()"))
rights("bradley_terry_loss", '''def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("shapes differ")
    loss = torch.nn.functional.softplus(margin + rejected - chosen)
    return loss + center_coef * (chosen + rejected)**2 if center_coef else loss
''', '''def bradley_terry_loss(chosen, rejected, margin=0., center_coef=0.):
    if chosen.shape != rejected.shape: raise ValueError("shapes differ")
    gap = chosen - rejected - margin
    loss = torch.logaddexp(torch.zeros_like(gap), -gap)
    if center_coef == 0: return loss
    return loss + center_coef * (chosen + rejected).pow(2)
''')
edits("calibration_bins", '''def calibration_bins(chosen, rejected, n_bins=10):
    gap = chosen - rejected
    if not gap.isfinite().all(): raise ValueError("scores must be finite")
    p = torch.sigmoid(gap.abs())
    hit = (gap > 0).double() + .5 * (gap == 0).double()
    place = ((p - .5) * 2 * n_bins).long().clamp(max=n_bins - 1)
    out = []
    for k in range(n_bins):
        here = place == k
        if here.any(): out.append((p[here].double().mean(), hit[here].mean(), here.sum()))
    a, b, n = [torch.stack(x) if x else torch.zeros(0) for x in (zip(*out) if out else ((), (), ()))]
    return a.float(), b.float(), n.long()
''',
("abs|absolute|negative|below .?\\.5|under .?\\.5|which side", "sigmoid(gap.abs())", "sigmoid(gap)"),
("tie|equal|half", " + .5 * (gap == 0).double()", ""),
("tie|equal|half", "(gap > 0).double() + .5 * (gap == 0).double()", "(gap >= 0).double()"),
("from 0|0 to 1|between 0|width|range|half", "((p - .5) * 2 * n_bins)", "(p * n_bins)"),
("last|clamp|edge|exactly 1|\\b1\\b.*(lost|drop)|lost|dropp", ".clamp(max=n_bins - 1)", ""),
("empty|nan", "if here.any(): out", "out"),
("finite|raise|valueerror|nan|inf", '    if not gap.isfinite().all(): raise ValueError("scores must be finite")\n', ""),
("round|nearest|edge", ".long().clamp", ".round().long().clamp"),
("middle|midpoint|cent(er|re)|mean confidence|average confidence", "p[here].double().mean()", "torch.tensor(.5 + (k + .5) / n_bins / 2)"),
("sum|count|divid|fraction|share", "hit[here].mean()", "hit[here].sum()"),
("upper|edge|ceil|lower", ".long().clamp(max=n_bins - 1)", ".ceil().long().sub(1).clamp(min=0)"),
("swap|order|wrong place|exchang", "return a.float(), b.float()", "return b.float(), a.float()"),
("share|fraction|divid|total|whole number", "n.long()", "n / n.sum()"),
("wrong|reject|revers|sign|opposite|error rate", "(gap > 0)", "(gap < 0)"))
rights("calibration_bins", '''def calibration_bins(chosen, rejected, n_bins=10):
    if not (chosen - rejected).isfinite().all(): raise ValueError("scores must be finite")
    bins = {}
    for p, g in zip((chosen - rejected).abs().sigmoid(), (chosen - rejected).tolist()):
        k = min(int((p - .5) * 2 * n_bins), n_bins - 1)
        bins.setdefault(k, []).append((float(p), 1. if g > 0 else .5 if g == 0 else 0.))
    rows = [bins[k] for k in sorted(bins)]
    return (torch.tensor([sum(p for p, _ in r) / len(r) for r in rows]),
            torch.tensor([sum(h for _, h in r) / len(r) for r in rows]), torch.tensor([len(r) for r in rows], dtype=torch.long))
''', '''def calibration_bins(chosen, rejected, n_bins=10):
    gap = chosen - rejected
    if not torch.isfinite(gap).all(): raise ValueError("scores must be finite")
    p, hit = gap.abs().sigmoid(), (gap.sign() + 1) / 2
    k = ((p - .5) * 2 * n_bins).long().clamp(max=n_bins - 1)
    one = torch.nn.functional.one_hot(k, n_bins).double()
    n = one.sum(0); keep = n > 0
    return (p.double() @ one / n)[keep].float(), (hit.double() @ one / n)[keep].float(), n[keep].long()
''')
# ---- 08
edits("gae", '''def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = at_least_float32(reward, value)
    reward, value = reward.masked_fill(~mask, 0.), value.masked_fill(~mask, 0.)
    out = torch.zeros_like(value)
    for b in range(len(value)):
        nv = na = 0.
        for i in reversed(mask[b].nonzero()[:, 0].tolist()):
            delta = reward[b, i] + gamma * nv - value[b, i]
            na = delta + gamma * lam * na
            nv = value[b, i]
            out[b, i] = na
    return out, out + value
''',
("gamma|γ|discount", "gamma * lam * na", "lam * na"),
("gamma|γ|discount", "gamma * nv", "nv"),
("lam|λ", "gamma * lam * na", "gamma * na"),
("lam|λ", "+ gamma * nv", "+ gamma * lam * nv"),
("subtract|minus|baseline|v_i|own value|current value|value of (this|the same)", " - value[b, i]\n", "\n"),
("next value|v_\\{?i ?\\+ ?1|bootstrap|following value|value after", " + gamma * nv", ""),
("sign|plus|added|subtract", "nv - value[b, i]", "nv + value[b, i]"),
("reward|monte|discounted sum|return.*(instead|should)|a \\+ v|v is (not|missing)|value.*add", "return out, out + value", "return out, out"),
("return.*reward|a \\+ v|plus|value|reward", "return out, out + value", "return out, out + reward"),
("gap|step(ped)? over|column|neighbou?r|tool", "nv = value[b, i]", "nv = value[b, i - 1 + 1] if i and mask[b, i - 1] else 0."),
("gap|tool|restart|forgot|reset|carried", "            out[b, i] = na\n", "            out[b, i] = na\n            if i and not mask[b, i - 1]: na = 0.\n"),
("nan|anything|outside|pad|mask|garbage", "    reward, value = reward.masked_fill(~mask, 0.), value.masked_fill(~mask, 0.)\n", ""),
("half|float16|bfloat16|precision|float32|dtype", "    reward, value = at_least_float32(reward, value)\n", ""),
("last|after the end|bootstrap|end of|final", "nv = na = 0.", "nv, na = value[b, -1] if not mask[b].any() else value[b][mask[b]][-1], 0."),
("mean|normalis|whiten|standard|cent(er|re)", "return out, out + value", "return (out - out[mask].mean()) * mask, out + value"),
("direction|backward|forward|order|left to right|from the (start|first)|previous|past|earlier", "in reversed(mask[b].nonzero()[:, 0].tolist())", "in mask[b].nonzero()[:, 0].tolist()"))
rights("gae", '''def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = at_least_float32(reward, value)
    out, ret = torch.zeros_like(value), torch.zeros_like(value)
    for b in range(len(value)):
        r, v = reward[b][mask[b]], value[b][mask[b]]
        n = len(r)
        delta = r + gamma * torch.cat([v[1:], v.new_zeros(min(n, 1))]) - v
        k = torch.arange(n)
        w = ((gamma * lam) ** (k[None] - k[:, None]).clamp(min=0).to(v.dtype)).triu()
        a = w.to(v.dtype) @ delta
        out[b, mask[b]] = a
        ret[b, mask[b]] = a + v
    return out, ret
''', '''def gae(reward, value, mask, gamma=1., lam=.95):
    reward, value = at_least_float32(reward, value)
    zero = torch.zeros_like(value)
    reward, value = torch.where(mask, reward, zero), torch.where(mask, value, zero)
    adv, nv, na = zero.clone(), value.new_zeros(len(value)), value.new_zeros(len(value))
    for i in range(value.shape[1] - 1, -1, -1):
        m = mask[:, i]
        a = reward[:, i] + gamma * nv - value[:, i] + gamma * lam * na
        adv[:, i] = torch.where(m, a, zero[:, i])
        na, nv = torch.where(m, a, na), torch.where(m, value[:, i], nv)
    return adv, adv + value
''')
# ---- 09
edits("loss_weights", '''def loss_weights(mask, loss_type, max_length):
    rows, m = len(mask), mask.float()
    n = m.sum(1, keepdim=True)
    if loss_type == "dapo": return m / m.sum().clamp(min=1)
    if loss_type == "grpo": return m / n.clamp(min=1) / rows
    if loss_type == "dr_grpo": return m / max_length / rows
    raise ValueError(f"unknown loss_type {loss_type!r}")
''',
("number of (answers|rows)|answers|rows|batch", "n.clamp(min=1) / rows", "n.clamp(min=1)"),
("number of (answers|rows)|answers|rows|batch", "max_length / rows", "max_length"),
("answers|rows|twice|extra", "m.sum().clamp(min=1)", "m.sum().clamp(min=1) / rows"),
("width|column|padded|pads|shape|every position|constant", "m / max_length / rows", "m / mask.shape[1] / rows"),
("pads|all positions|numel|masked|outside|width|count", "m.sum().clamp(min=1)", "m.numel()"),
("nan|empty|without a token|0 / 0|divi.* 0|zero token", "n.clamp(min=1)", "n"),
("raise|unknown|error|silent|else", 'raise ValueError(f"unknown loss_type {loss_type!r}")', "return m / m.sum()"),
("own length|answer's length|each answer|constant|longest", "m / max_length / rows", "m / n.clamp(min=1) / rows"),
("longest|max|maximum|constant", "m / max_length / rows", "m / n.max() / rows"),
("mask|outside|pads|zero where|0 where|prompt", "m / n.clamp(min=1) / rows", "torch.ones_like(m) / n.clamp(min=1) / rows"),
("mask|outside|pads|zero where|0 where|prompt", "m / max_length / rows", "torch.ones_like(m) / max_length / rows"),
("column|axis|dimension|dim\\b|across|down", "m.sum(1, keepdim=True)", "m.sum(0, keepdim=True)"),
("average|mean length|each answer|own length|each row", "n.clamp(min=1) / rows", "n.mean().clamp(min=1) / rows"),
("swap|exchang|mixed|other('s)? formula|wrong name|confus", '"dapo": return m / m.sum().clamp(min=1)', '"dapo": return m / n.clamp(min=1) / rows'),
("empty|without a token|count.*(rows|answers)|number of (rows|answers)", "n.clamp(min=1) / rows", "n.clamp(min=1) / (n > 0).sum().clamp(min=1)"))
rights("loss_weights", '''def loss_weights(mask, loss_type, max_length):
    if loss_type not in ("dapo", "grpo", "dr_grpo"): raise ValueError(loss_type)
    out = torch.zeros(mask.shape)
    for b, row in enumerate(mask):
        n = int(row.sum())
        if n == 0: continue
        if loss_type == "dapo": w = 1 / int(mask.sum())
        elif loss_type == "grpo": w = 1 / n / len(mask)
        else: w = 1 / max_length / len(mask) if max_length else math.inf
        out[b, row] = w
    return out
''')
# ---- 13
edits("agreement", '''def agreement(verdicts, true):
    score = verdicts.score()
    ok = ~score.isnan()
    s, g = score[ok].double(), true[ok].double()
    r = s.round()
    po = (r == g).double().mean().item()
    pe = sum((r == k).double().mean().item() * (g == k).double().mean().item() for k in g.unique().tolist())
    return dict(parse_rate=verdicts.parse_rate(), n_unparsed=int((~ok).sum()), vote_std=verdicts.vote_std(),
        pearson_r=torch.corrcoef(torch.stack([s, g]))[0, 1].item(), exact_match=po,
        kappa=(po - pe) / (1 - pe) if pe < 1 - 1e-12 else math.nan,
        bias=(s - g).mean().item(), pair_accuracy=pair_accuracy(score, true))
''',
("sign|swap|gold - score|gold minus|revers|other way", "(s - g).mean()", "(g - s).mean()"),
("absolute|abs\\b|sign|cancel", "(s - g).mean()", "(s - g).abs().mean()"),
("round", "(s - g).mean()", "(r - g).mean()"),
("round", "po = (r == g)", "po = (s == g)"),
("floor|trunc|round|down", "s.round()", "s.floor()"),
("half|even|round", "s.round()", "(s + .5).floor()"),
("parsed|count|opposite|invert|n_parsed", "int((~ok).sum())", "int(ok.sum())"),
("divi|denominator|1 - p|normalis", "(po - pe) / (1 - pe)", "po - pe"),
("uniform|1 ?/ ?k|frequenc|evenly|guess", "pe = sum((r == k).double().mean().item() * (g == k).double().mean().item() for k in g.unique().tolist())", "pe = 1 / max(len(g.unique()), 2)"),
("judge's own|own frequenc|gold.*(frequenc|squar)|frequenc|squar", "(r == k).double().mean().item() * (g", "(g == k).double().mean().item() * (g"),
("nan|zero|0 / 0|undefined|p_e (is|=) 1", "if pe < 1 - 1e-12 else math.nan", "if pe < 1 - 1e-12 else 0."),
("round", "torch.stack([s, g])", "torch.stack([r, g])"),
("squar|r\\^?2|r²|sign", "[0, 1].item()", "[0, 1].item()**2"),
("covarian|normalis|standard|divi", "torch.corrcoef(", "torch.cov("),
("denominator|all (rows|answers)|unparsed|without a score|left out|missing", "po = (r == g).double().mean().item()", "po = (r == g).double().sum().item() / len(true)"),
("unparsed|without a score|nan|missing|as 0|zero", "score = verdicts.score()\n    ok = ~score.isnan()", "score = verdicts.score()\n    ok = ~score.isnan()\n    score = score.nan_to_num(0.); ok = ok | True"))
# ---- 14
edits("choose_pairs", '''def choose_pairs(scores, select=max_min):
    out = []
    for p, row in enumerate(scores):
        places = [i for i, s in enumerate(row) if s == s]
        if len(places) < 2: continue
        a, b = select([row[i] for i in places])
        a, b = places[a], places[b]
        if row[a] == row[b]: continue
        out.append((p, a, b))
    return out
''',
("swap|order|revers|worst first|other way", "(p, a, b)", "(p, b, a)"),
("place|index|among (all|those|the)|known|shift|position", "        a, b = places[a], places[b]\n        if row[a] == row[b]: continue", "        if row[places[a]] == row[places[b]]: continue"),
("equal|tie|same", "        if row[a] == row[b]: continue\n", ""),
("select|max_min|ignore|hard|own choice", "select([row[i] for i in places])", "max_min([row[i] for i in places])"),
("nan|without a score|no score|missing", "if s == s]", "]"),
("whole prompt|prompt.*(dropped|skipp|left out)|one nan|any nan|other candidates|others", "if len(places) < 2", "if len(places) < len(row) or len(places) < 2"),
("break|stop|next prompts|later prompts|following|rest", "if len(places) < 2: continue", "if len(places) < 2: break"),
("break|stop|next prompts|later prompts|following|rest", "if row[a] == row[b]: continue", "if row[a] == row[b]: break"),
("number of pairs|count|prompt.*(number|index|numbered)|len\\(", "(p, a, b)", "(len(out), a, b)"),
("three|two scores|exactly two|at least 2|< 2|<= 2", "len(places) < 2", "len(places) <= 2"),
("zero|score of 0|\\b0\\b|falsy|truth", "if s == s]", "if s == s and s != 0]"),
("scores? (instead|rather)|values|places", "(p, a, b)", "(p, row[a], row[b])"),
("margin|threshold|close|gap of|small difference|less than", "if row[a] == row[b]", "if abs(row[a] - row[b]) < 1"),
("empty|fewer|single|one score|two scores|less than two|len", "if len(places) < 2: continue", "if not places: continue\n        if len(places) < 2:\n            out.append((p, places[0], places[0])); continue"))
rights("choose_pairs", '''def choose_pairs(scores, select=max_min):
    def one(p, row):
        known = {i: s for i, s in enumerate(row) if not math.isnan(s)}
        if len(known) < 2: return []
        at, values = list(known), list(known.values())
        a, b = select(values)
        return [(p, at[a], at[b])] if values[a] != values[b] else []
    return [x for p, row in enumerate(scores) for x in one(p, row)]
''')
# ---- 16
edits("bellman_targets", '''def bellman_targets(x, value, config):
    d, last = discounts(x, config), x.last()
    end = x.ended[:, None] | (config.on_truncation == "terminal")
    v = value.masked_fill(last & end, 0.)
    one = x.reward + d * v
    y = one
    for _ in range(1, config.n_step): y = torch.where(last, one, x.reward + d * x.ahead(y))
    if config.mc_bound: y = torch.where(end, torch.maximum(y, monte_carlo_returns(x, d)), y)
    return torch.where(x.mask, y, torch.zeros_like(y))
''',
("discount|gamma|γ", "one = x.reward + d * v", "one = x.reward + v"),
("discount|gamma|γ", "x.reward + d * x.ahead(y)", "x.reward + x.ahead(y)"),
("terminal|last token|nothing follows|after the (end|last)|eos", "value.masked_fill(last & end, 0.)", "value"),
("bootstrap|truncat", 'x.ended[:, None] | (config.on_truncation == "terminal")', "torch.ones_like(x.ended)[:, None]"),
("ended|eos|every row|all rows|finished", 'x.ended[:, None] | (config.on_truncation == "terminal")', 'torch.zeros_like(x.ended)[:, None] | (config.on_truncation == "terminal")'),
("one (step|too)|off by one|too many|extra|n \\+ 1|one more", "range(1, config.n_step)", "range(config.n_step)"),
("n.step|one step|single|several|more steps", "    for _ in range(1, config.n_step): y = torch.where(last, one, x.reward + d * x.ahead(y))\n", ""),
("column|gap|neighbou?r|tool|step(ped)? over", "x.ahead(y)", "torch.cat([y[:, 1:], torch.zeros_like(y[:, :1])], 1)"),
("minimum|smaller|upper|at most|lower bound", "torch.maximum(y", "torch.minimum(y"),
("bound|always|config|switch|off", "if config.mc_bound:", "if True:"),
("truncat|bootstrap|cut|not all seen", "torch.where(end, torch.maximum(y, monte_carlo_returns(x, d)), y)", "torch.maximum(y, monte_carlo_returns(x, d))"),
("replac|instead of|maximum|larger|at least", "torch.maximum(y, monte_carlo_returns(x, d))", "monte_carlo_returns(x, d)"),
("mask|outside|prompt|pad", "return torch.where(x.mask, y, torch.zeros_like(y))", "return y"),
("reward", "one = x.reward + d * v", "one = d * v"),
("shift|one token|too late|ahead|next|state after|already", "v = value.masked_fill", "v = x.ahead(value).masked_fill"),
("last (token|one).*(n.step|bootstrap)|stop|last", "torch.where(last, one, x.reward + d * x.ahead(y))", "x.reward + d * x.ahead(y)"))
rights("bellman_targets", '''def bellman_targets(x, value, config):
    d, out = discounts(x, config), torch.zeros_like(x.reward)
    for b in range(len(value)):
        at = x.mask[b].nonzero()[:, 0].tolist()
        end = bool(x.ended[b]) or config.on_truncation == "terminal"
        for k in range(len(at)):
            def back(j, n):
                i = at[j]
                if j == len(at) - 1: return x.reward[b, i] + (0. if end else d[b, i] * value[b, i])
                return x.reward[b, i] + d[b, i] * (value[b, i] if n == 1 else back(j + 1, n - 1))
            out[b, at[k]] = back(k, config.n_step)
        if config.mc_bound and end:
            total = 0.
            for i in reversed(at):
                total = x.reward[b, i] + d[b, i] * total
                out[b, i] = max(out[b, i], total)
    return out
''')
edits("q_loss", '''def q_loss(nets, x, config):
    ids, at = x.seqs.ids, x.positions()
    hidden = hidden_states(nets.online, x.seqs)
    y = right_targets(x, next_values(nets, x, hidden, config), config)[at]
    head, before = nets.online.get_output_embeddings(), moved(hidden)[at]
    q, rest = q_terms(head, before, ids[at], nets.allowed, config.min_return)
    td = (q - y).square()
    half = head.cross_entropy(before, ids[at], y) if isinstance(head, HistogramHead) else .5 * td
    loss = half.sum() + .5 * config.alpha * rest.sum()
    return loss, x.mask.sum(), dict(td_loss=td.sum().detach(), conservative_loss=rest.sum().detach(), q_values=q.sum().detach(), td_target=y.sum().detach())
''',
("half|halv|½|1/2|0?\\.5|factor|twice|divid", "else .5 * td", "else td"),
("half|halv|½|1/2|0?\\.5|factor|twice|divid", ".5 * config.alpha", "config.alpha"),
("alpha|α|weight", ".5 * config.alpha * rest", ".5 * rest"),
("conservative|second term|alpha|other actions", " + .5 * config.alpha * rest.sum()", ""),
("shift|one token|before|previous|state after|late", "moved(hidden)[at]", "hidden[at]"),
("mean|average|summed|divid", "half.sum() + .5 * config.alpha * rest.sum()", "half.mean() + .5 * config.alpha * rest.mean()"),
("detach|gradient|graph", "td.sum().detach()", "td.sum()"),
("absolute|square", "(q - y).square()", "(q - y).abs()"),
("target net|online|wrong net|nets\\.target|frozen", "head, before = nets.online.get", "head, before = nets.target.get"),
("pad|attention|all positions|response|mask", "x.mask.sum()", "x.seqs.attention_mask.sum()"),
("rows|episodes|sequences|number of tokens|token count|batch size", "x.mask.sum()", "torch.tensor(len(ids))"),
("histogram|cross.entropy|isinstance", "head.cross_entropy(before, ids[at], y) if isinstance(head, HistogramHead) else .5 * td", ".5 * td"),
("half|halv|½|1/2|0?\\.5|factor|log(ged)?", "td_loss=td.sum()", "td_loss=.5 * td.sum()"),
("alpha|α|weight|half|factor", "conservative_loss=rest.sum()", "conservative_loss=.5 * config.alpha * rest.sum()"),
("mean|average|sums", "q_values=q.sum()", "q_values=q.mean()"),
("swap|exchang|mixed up|target.*q|same", "td_target=y.sum()", "td_target=q.sum()"),
("min_return|r_min|lowest|zero|\\b0\\b", "nets.allowed, config.min_return", "nets.allowed, 0."),
("minus|sign|subtract|negat", "half.sum() +", "half.sum() -"))
# ---- 21
edits("fixed_alignment", '''def fixed_alignment(x, mask):
    n = [int(k) for k in mask.sum(1)]
    out = torch.zeros(len(x), max(n), dtype=x.dtype)
    for b in range(len(x)): out[b, :n[b]] = x[b][mask[b]]
    return out
''',
("right|left|end of|start|column 0", "out[b, :n[b]]", "out[b, max(n) - n[b]:]"),
("wid(e|th)|longest|trailing|too many|columns", "torch.zeros(len(x), max(n)", "torch.zeros(len(x), x.shape[1]"),
("revers|order|backward", "x[b][mask[b]]", "x[b][mask[b]].flip(0)"),
("gap|hole|contiguous|inside|between|scatter", "x[b][mask[b]]", "x[b, int(mask[b].int().argmax()):][:n[b]]"),
("sort|order", "x[b][mask[b]]", "x[b][mask[b]].sort().values"),
("ones|filled with|end.* with 0|padding value|zeros", "torch.zeros(", "torch.ones("),
("nan|filled|end.* with 0|zeros", "torch.zeros(len(x), max(n), dtype=x.dtype)", "torch.full((len(x), max(n)), math.nan).to(x.dtype)"),
("invert|opposite|outside|false|negat|not in", "x[b][mask[b]]", "(x[b][~mask[b]].tolist() + [0] * n[b] and torch.cat([x[b][~mask[b]], x[b].new_zeros(n[b])])[:n[b]])"),
("first (word|value|token)|one (word|value|token)|off by one|skip|lost", "out[b, :n[b]] = x[b][mask[b]]", "out[b, :max(n[b] - 1, 0)] = x[b][mask[b]][1:]"),
("shortest|cut|min\\b|minimum|longest|lost|trunc", "    return out", "    return out[:, :min(n)]"),
("dtype|type|integer|float|whole", "    return out", "    return out.long()"),
("last (word|value|token)|off by one|lost|dropp", "out[b, :n[b]] = x[b][mask[b]]", "out[b, :max(n[b] - 1, 0)] = x[b][mask[b]][:-1]"),
("still|not moved|same column|shift|stay|left", "    for b in range(len(x)): out[b, :n[b]] = x[b][mask[b]]\n    return out", "    return (x * mask)[:, :max(n)]"))
rights("fixed_alignment", '''def fixed_alignment(x, mask):
    order = (~mask).int().argsort(dim=1, stable=True)
    n = int(mask.sum(1).max())
    return torch.where(mask, x, torch.zeros_like(x)).gather(1, order)[:, :n]
''', '''def fixed_alignment(x, mask):
    return torch.nn.utils.rnn.pad_sequence([row[m] for row, m in zip(x, mask)], batch_first=True)
''')
# ---- 22
edits("parse_rubric", r'''def parse_rubric(reply, items):
    out = []
    for item in items:
        hits = [m.group(1) for m in re.finditer(rf"\b{re.escape(item)}: (yes|no)\b", reply)]
        out.append(math.nan if not hits else 1. if hits[-1] == "yes" else 0.)
    return out
''',
("first|last", "hits[-1]", "hits[0]"),
("boundar|\\\\b|inside|part of|substring|longer (word|name)|ends? with", r'rf"\b{re', 'rf"{re'),
("boundar|\\\\b|longer word|begins|starts? with|prefix|after the (yes|no|verdict)", r'(yes|no)\b"', '(yes|no)"'),
("nan|no verdict|missing|absent", "math.nan if not hits", "0. if not hits"),
("escape|special|metachar|regular expression|literal|bracket|parenthes|dot", "re.escape(item)", "item"),
("invert|opposite|swap|revers", '1. if hits[-1] == "yes" else 0.', '0. if hits[-1] == "yes" else 1.'),
("\\bany\\b|once|earlier|last|thinks? again", 'hits[-1] == "yes"', '"yes" in hits'),
("\\ball\\b|every|earlier|last|thinks? again", 'hits[-1] == "yes"', '"no" not in hits'),
("left out|skip|short(er)?|missing|length|drop", "        out.append(math.nan if not hits else", "        if hits: out.append("),
("order|sort", "for item in items", "for item in sorted(items)"),
("other (word|text)|nothing|not a verdict|no verdict|any word|neither", "(yes|no)", r"(\w+)"),
("case|capital|lower", ', reply)]', ', reply.lower())]'),
("average|mean|fraction|last", '1. if hits[-1] == "yes" else 0.)', 'hits.count("yes") / len(hits))'),
("-1|minus|negative|0 (for|where)", 'else 0.)', 'else -1.)'),
("start of|begin|line|whole reply|match", "re.finditer(", "re.finditer('^' + "))
rights("parse_rubric", r'''def parse_rubric(reply, items):
    out = []
    for item in items:
        yes = [m.start() for m in re.finditer(r"\b" + re.escape(item) + r": yes\b", reply)]
        no = [m.start() for m in re.finditer(r"\b" + re.escape(item) + r": no\b", reply)]
        out.append(float("nan") if not yes + no else float(max(yes + [-1]) > max(no + [-1])))
    return out
''')
# ---- 24
edits("bradley_terry_scores", '''def bradley_terry_scores(wins, steps=100):
    won, lost = wins.sum(-1), wins.sum(-2)
    if (won <= 0).any() or (lost <= 0).any(): raise ValueError("won or lost every game")
    games = wins + wins.transpose(-1, -2)
    p = torch.ones_like(won)
    for _ in range(steps):
        p = won / (games / (p.unsqueeze(-1) + p.unsqueeze(-2))).sum(-1)
        p = p / p.mean(-1, keepdim=True)
    s = p.log()
    return s - s.mean(-1, keepdim=True)
''',
("losses|lost|column|axis|dim\\b|sign|revers|order", "p = won /", "p = lost /"),
("log\\b|logarithm", "s = p.log()", "s = p"),
("cent(er|re)|mean 0|mean of 0|subtract", "return s - s.mean(-1, keepdim=True)", "return s"),
("raise|valueerror|infinit|every game|refus", '    if (won <= 0).any() or (lost <= 0).any(): raise ValueError("won or lost every game")\n', ""),
("lost every|won every|never (won|lost)|without a (loss|win)|losses|undefeated|unbeaten", " or (lost <= 0).any()", ""),
("games|both directions|transpos|wins alone|only wins|n_ij|n_\\{ij", "games = wins + wins.transpose(-1, -2)", "games = wins"),
("iterat|once|one step|repeat|converg|steps", "range(steps)", "range(1)"),
("batch|leading|first dimension|several matrices|all matrices|keepdim|last (axis|dim)", "s - s.mean(-1, keepdim=True)", "s - s.mean()"),
("base|log2|log10|elo|400|scale", "s = p.log()", "s = p.log() * 400 / math.log(10)"),
("first (model|player|row)|reference|anchor|mean 0|mean of 0", "s.mean(-1, keepdim=True)", "s[..., :1]"),
("logit|win rate|share|fraction|opponent|who(m)?\\b|strength", "        p = won / (games / (p.unsqueeze(-1) + p.unsqueeze(-2))).sum(-1)\n", "        p = won / lost\n"),
("twice|double|factor|half|games", "games / (p.unsqueeze(-1) + p.unsqueeze(-2))", "games / (p.unsqueeze(-1) * p.unsqueeze(-2))"),
("multipl|p_i|old|previous|extra factor", "p = won / (games", "p = p * won / (games"),
("sign|minus|negat|revers", "s = p.log()", "s = -p.log()"),
("mean of the log|log of the mean|mean 0|geometric|cent(er|re)", "s - s.mean(-1, keepdim=True)", "s - p.mean(-1, keepdim=True).log()"),
("standard|deviation|unit|scale|divid", "return s - s.mean(-1, keepdim=True)", "return (s - s.mean(-1, keepdim=True)) / s.std(-1, keepdim=True)"))
rights("bradley_terry_scores", '''def bradley_terry_scores(wins, steps=100):
    if not bool((wins.sum(-1) > 0).all() and (wins.sum(-2) > 0).all()): raise ValueError("won or lost every game")
    s = torch.zeros_like(wins[..., 0])
    games = wins + wins.mT
    for _ in range(steps):
        total = torch.logaddexp(s[..., :, None], s[..., None, :])
        s = wins.sum(-1).log() - (games / total.exp()).sum(-1).log()
        s = s - s.mean(-1, keepdim=True)
    return s
''')
COUNTS = {k: (len(WRONG[k]), len(RIGHT[k])) for k in WRONG}
