"Exercises of the chapter on supervised fine-tuning."
from types import SimpleNamespace
import torch
from torch import tensor
from rlhf_nb import sft
from rlhf_nb.base import sampling
from rlhf_nb.book.checks import Exercise
from rlhf_nb.exercises.tokens import (EMPTY, MEAN_SLIPS, MEANS, SHIFTS, SOFTMAXES, Logprobs, mean_over, next_logps, read_mask, widened)
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.worlds.oracle import bigram_lm, micro_world
from rlhf_nb.base.sampling import SamplingParams
from rlhf_nb.tokens import Seqs, make_seqs

X = -100                                       # a label that nobody reads

class SFT(Logprobs):
    asks, chapter = "SFT loss", "sft"
    takes, needs = Logprobs.takes | dict(labels="labels label targets"), {}
    unmasked, right = False, dict(soft=dict(log=""), shift=dict(next=""), sign=dict(minus=""), first=dict(out=""),
                                  mean={k: words for k, words in MEANS.items() if k != "constant"})
    wrong = dict(soft=SOFTMAXES, shift=SHIFTS, mean=MEAN_SLIPS | dict(
        constant="the mean divides by all positions, padding too: divide by the number of labels"),
        sign=dict(plus="the sign: minimising this makes the demonstrations less probable"),
        first=dict(counted="the first token is counted: nothing stands before it that predicts it"))
    known = {"cross-entropy of the response tokens": dict(mean="token_mean"),
             "mean over responses of each one's cross-entropy": dict(mean="response_mean")}
    def cases(self, given):
        whole = torch.ones(2, 6).bool()
        whole[1, 4:] = False
        found = super().cases(given) | {"the first token counts": self.case(50, whole, first=True)}
        return {k: {n: x for n, x in case.items() if n != "labels" or n in given} for k, case in found.items()}
    def edges(self, given): return super().edges(given) | {"an empty response": self.case(40, EMPTY)}
    def compute(self, a, c):
        x, there = next_logps(a.logits, a.ids, c["shift"], c["soft"])
        if c["first"] == "counted": there = there | True
        m = read_mask(a.mask, c["mean"])[:, there]
        how = c["mean"] if c["mean"] not in ("late", "early", "inverted", "forgot") else "token_mean"
        return mean_over((x if c["sign"] == "plus" else -x)[:, there], m, how, a.ids.shape[1])
    def traced(self, a, c): # of labels, where these are given
        return self.compute(a if not hasattr(a, "labels") else SimpleNamespace(**vars(a) | dict(
            mask=a.labels != X, ids=a.labels.where(a.labels != X, a.ids))), c)

# ---- the clinic: labels upside down

def _labels(ids, n_prompt, n_real, shift=1, rest=X, behind=1):
    rows, width = [], ids.shape[1] - behind
    for row, p, n in zip(ids.tolist(), n_prompt.tolist(), n_real.tolist()):
        rows.append([row[min(j + shift, len(row) - 1)] if p <= j + 1 < n else rest
                     for j in range(width)])
    return tensor(rows, dtype=torch.long)

_ids = tensor([[7, 8, 5, 6, 2, 0, 0], [7, 9, 2, 0, 0, 0, 0], [3, 4, 5, 6, 7, 8, 2]])
fixed_labels = Exercise(
    reference=_labels,
    cases={"three rows": (_ids, tensor([2, 1, 4]), tensor([5, 3, 7])),
           "an empty response": (_ids[:2], tensor([5, 1]), tensor([5, 3])),
           "cut before its end": (tensor([[3, 4, 5, 6], [3, 4, 5, 0]]), tensor([1, 2]), tensor([4, 3])),
           "one row": (tensor([[9, 5, 2]]), tensor([1]), tensor([3])),
           "a pad inside the text": (tensor([[7, 0, 5, 0, 2, 0]]), tensor([2]), tensor([5]))},
    mistakes={
        "it still learns the questions: kept and masked are swapped":
            lambda ids, p, n: _labels(ids, 0 * p, p),
        "label j is token j + 1: the first word of each answer is missing":
            lambda ids, p, n: _labels(ids, p + 1, n),
        "label j belongs to token j + 1: compare j + 1, not j, with both borders":
            lambda ids, p, n: _labels(ids, p + 1, n + 1),
        "the last token of the prompt was given, it is no label":
            lambda ids, p, n: _labels(ids, p - 1, n),
        "the end mark must be learned too": lambda ids, p, n: _labels(ids, p, n - 1),
        "one pad is a label: the last token stands at n_real - 1":
            lambda ids, p, n: _labels(ids, p, n + 1),
        "pads are no labels": lambda ids, p, n: _labels(ids, p, n + 99),
        "ids != 0 is no mask: the id of a pad may stand in the text; n_real says where it ends":
            lambda ids, p, n: _labels(ids, p, n).masked_fill(ids[:, 1:] == 0, X),
        "no shift: label j is token j + 1; the borders fit, but the ids are not shifted": lambda *a: _labels(*a, shift=0),
        "t - 1 labels: label j is token j + 1, so nothing is shifted here, and the first column falls off": lambda ids, p, n: (
            lambda at: ids.masked_fill((at < p[:, None]) | (at >= n[:, None]), X))(torch.arange(ids.shape[1])),
        "that is the mask: the labels are token ids, -100 where it is False": lambda ids, p, n: _labels(ids, p, n) != X,
        "that is the mask upside down: the labels are token ids, -100 outside of the answer": lambda ids, p, n: _labels(ids, p, n) == X,
        "each row has its own question and length: that takes the first row's for all":
            lambda ids, p, n: _labels(ids, p[:1].expand_as(p), n[:1].expand_as(n)),
        "each row ends at its own length: that takes the longest for all": lambda ids, p, n: _labels(ids, p, n.max().expand_as(n)),
        "n_real counts the question, too: the answer ends at n_real, not n_prompt + n_real": lambda ids, p, n: _labels(ids, p, p + n),
        "the labels are -100 where the answer is, and ids elsewhere: it is the other way round": lambda ids, p, n: ids[:, 1:].where(
            _labels(ids, p, n) == X, X),
        "the question is learned too, and the answer is not counted from n_prompt on: that drops the last n_prompt tokens":
            lambda ids, p, n: _labels(ids, 0 * p, n - p),
        "masked labels are -100, not -1": lambda *a: _labels(*a, rest=-1),
        "masked labels are -100, not 100": lambda *a: _labels(*a, rest=100),
        "nothing is shifted: label j is token j + 1, so the first column is cut off, not the last":
            lambda ids, p, n: _labels(ids, p + 1, n + 1, shift=0),
        "the prompt is learned too: mask it": lambda ids, p, n: _labels(ids, 0 * p, n),
        "nothing is predicted behind the last token: t - 1 labels": lambda *a: _labels(*a, behind=0),
        "masked labels are -100, not 0": lambda *a: _labels(*a, rest=0)})

# ---- the loss

_world = micro_world()

def _rows(prompts, responses, extra=0, first=False, sure=False): # a model of its own, and a batch
    x = make_seqs([[_world.start] + p for p in prompts], responses, pad=_world.pad)
    ids = torch.nn.functional.pad(x.ids, (0, extra), value=_world.pad)
    masks = [torch.nn.functional.pad(m, (0, extra)) for m in (x.attention_mask, x.response_mask)]
    if first: masks[1] = masks[0]
    model = bigram_lm(_world)
    model.config.pad_token_id = None     # pad is a token like others: every way to log_softmax is right
    if sure:
        with torch.no_grad(): model.head.weight[_world.eos] += 1e4 * (model.head.weight[_world.eos] > -.6)
    return model, Seqs(ids, *masks)

def _loss(model, x, mask=None, detach=False):
    "Sum over the rows, token by token."
    mask = x.response_mask if mask is None else mask
    logp = logprobs(model, Seqs(x.ids, x.attention_mask, mask))
    return -(logp.detach() if detach else logp).sum(), mask[:, 1:].sum()

def _no_first(m): return torch.cat([torch.zeros_like(m[:, :1]), m[:, 1:]], 1)
def _no_end(x): # without the last response token of each row
    last = x.response_mask & ~torch.nn.functional.pad(x.response_mask[:, 1:], (0, 1))
    return x.response_mask & ~last
def _each_answer(model, x):
    logp, n = logprobs(model, x), x.response_mask[:, 1:].sum(1)
    return -(logp.sum(1) / n.clamp(min=1)).sum(), n.sum()
def _unshifted(model, x): # the logits at a token, instead of those before it
    logp = model(input_ids=x.ids).logits.log_softmax(-1)
    logp = logp.gather(-1, x.ids[..., None])[..., 0]
    return -torch.where(x.response_mask, logp, 0.).sum(), x.response_mask[:, 1:].sum()

_A, _B = [0, 1, 3], [2, 3]
sft_loss = Exercise(
    reference=sft.sft_loss,
    cases={"two answers": _rows([[], [0]], [_A, _B]),
           "pads on the right": _rows([[0], [1, 1]], [_A, _B], extra=3),
           "one row": _rows([[0, 1]], [_A]),
           "an empty response": _rows([[0], [1]], [_A, []]),
           "cut before its end": _rows([[0], [1]], [[0, 1], _A]),
           "a token of probability 1": _rows([[0], [1]], [_A, _B], sure=True),
           "the first column is in the mask": _rows([[], []], [_A, _B], first=True)},
    mistakes={
        "turn the sign: the loss is the negative log-likelihood":
            lambda m, x: (-_loss(m, x)[0], _loss(m, x)[1]),
        "that is the mean: return the sum, and the number beside it":
            lambda m, x: (_loss(m, x)[0] / _loss(m, x)[1], _loss(m, x)[1]),
        "that is the mean of each answer, summed: all tokens weigh alike": _each_answer,
        "the prompt is counted as well: only response tokens are":
            lambda m, x: _loss(m, x, _no_first(x.attention_mask)),
        "the number is that of all real tokens: count the response":
            lambda m, x: (_loss(m, x)[0], x.attention_mask[:, 1:].sum()),
        "the number is that of all real tokens, the first one too: count the response":
            lambda m, x: (_loss(m, x)[0], x.attention_mask.sum()),
        "a token of probability 1 has log-prob 0, and it is counted: count the mask":
            lambda m, x: (_loss(m, x)[0], (logprobs(m, x) != 0).sum()),
        "logprobs has shifted already: its entry i is of token i, like the mask's, and so the last token, eos, is lost from the sum":
            lambda m, x: (_loss(m, x, _no_end(x))[0], x.response_mask[:, 1:].sum()),
        "ids != 0 is no mask: it holds the prompt, and a pad may have any id; count response_mask":
            lambda m, x: (_loss(m, x)[0], (x.ids != 0).sum()),
        "pads are in the number": lambda m, x: (_loss(m, x)[0], torch.tensor(x.ids[:, 1:].numel())),
        "pads are in the number, and the first column: count response_mask":
            lambda m, x: (_loss(m, x)[0], torch.tensor(x.ids.numel())),
        "the sum is divided by the number of answers: return the sum, and the number beside it":
            lambda m, x: (_loss(m, x)[0] / len(x.ids), _loss(m, x)[1]),
        "the mean over every place, pads too: return the sum, and the number beside it":
            lambda m, x: (-logprobs(m, x).mean(), _loss(m, x)[1]),
        "these are probabilities: a log-likelihood is a sum of logs": lambda m, x: (
            -torch.where(x.response_mask, logprobs(m, x).exp(), 0.).sum(), _loss(m, x)[1]),
        "the log of the mean probability is no mean of logs": lambda m, x: (lambda p, n: (-(p.sum() / n).log() * n, n))(
            _no_first(x.response_mask) * logprobs(m, x).exp(), _loss(m, x)[1]),
        "the mean of each answer's mean: all tokens weigh alike, return the sum and the number":
            lambda m, x: (_each_answer(m, x)[0] / len(x.ids), _loss(m, x)[1]),
        "one number per answer is not asked for: the number of tokens in the whole batch":
            lambda m, x: (_loss(m, x)[0], x.response_mask[:, 1:].sum(1)),
        "the number lacks the second column as well: only the first has nothing before it":
            lambda m, x: (_loss(m, x)[0], x.response_mask[:, 2:].sum()),
        "the end mark is missing in the number: it is in the sum, and it is counted":
            lambda m, x: (_loss(m, x)[0], _no_end(x)[:, 1:].sum()),
        "the number leaves out the last column, not the first: entry i of the mask is of token i":
            lambda m, x: (_loss(m, x)[0], x.response_mask[:, :-1].sum()),
        "the number is that of the answers: count tokens":
            lambda m, x: (_loss(m, x)[0], torch.tensor(len(x.ids))),
        "the end mark is missing in the sum and in the number: eos, the last token of an answer, must be learned too": lambda m, x: _loss(m, x, _no_end(x)),
        "nothing stands before the first token: it is not counted":
            lambda m, x: (_loss(m, x)[0], x.response_mask.sum()),
        "the number is one too small in each row: only the first column is not counted":
            lambda m, x: (_loss(m, x)[0], (x.response_mask.sum(1) - 1).clamp(min=0).sum()),
        "no shift: a token's log-prob comes from the logits of the token before it": _unshifted,
        "no gradient reaches the model": lambda m, x: _loss(m, x, detach=True),
        "sum and number are the wrong way round": lambda m, x: _loss(m, x)[::-1],
        "only the sum comes back: return the number as well": lambda m, x: _loss(m, x)[0],
        "that is one loss per answer: sum over rows as well":
            lambda m, x: (-logprobs(m, x).sum(1), x.response_mask[:, 1:].sum(1))})

# ---- temperature, top-k, top-p

def _keep(x, kept): return x.masked_fill(~kept, -torch.inf)
def _temperature(x, s, times=False): return x * s.temperature if times else x / s.temperature
def _top_k(x, s, k=None):
    k = s.top_k if k is None else k
    if not 0 < k < x.shape[1]: return x
    return _keep(x, torch.zeros_like(x, dtype=torch.bool).scatter(1, x.topk(k).indices, True))
def _top_p(x, s, crossing=True, back=True, less=torch.lt):
    if s.top_p >= 1: return x
    prob, order = x.softmax(1).sort(descending=True)
    kept = less(prob.cumsum(1) - prob if crossing else prob.cumsum(1), s.top_p)
    return _keep(x, torch.zeros_like(kept).scatter(1, order, kept) if back else kept)
def _below_kth(x, s):
    return _keep(x, x > x.topk(min(s.top_k, x.shape[1])).values[:, -1:]) if s.top_k else x
def _at_kth(x, s, of): # one cut for all rows
    return _keep(x, x >= of(x.topk(s.top_k).values[:, -1:], 0, True)) if 0 < s.top_k < x.shape[1] else x
def _min_p(x, s): return _keep(x, x.softmax(1) >= s.top_p * x.softmax(1).amax(1, keepdim=True)) if s.top_p < 1 else x
def _rare(x, s):
    if s.top_p >= 1: return x
    prob, order = x.softmax(1).sort()
    return _keep(x, torch.zeros_like(prob).bool().scatter(1, order, prob.cumsum(1) - prob < s.top_p))
def _one_more(x, s):
    if s.top_p >= 1: return x
    prob, order = x.softmax(1).sort(descending=True)
    before = prob.cumsum(1) - prob
    less = torch.cat([torch.zeros_like(before[:, :1]), before[:, :-1]], 1)
    return _keep(x, torch.zeros_like(prob).bool().scatter(1, order, less < s.top_p))
def _greedy(x): return torch.full_like(x, -torch.inf).scatter(1, x.argmax(1, keepdim=True), 0.)

def _filter(logits, s, steps="tkp", norm=True, greedy=_greedy, wide=True, **how):
    x = logits.to(torch.promote_types(logits.dtype, torch.float32)) if wide else logits
    if s.temperature == 0 and greedy: return greedy(x)
    for step in steps:
        if step == "t": x = _temperature(x, s, how.get("times", False))
        if step == "k": x = how["cut"](x, s) if "cut" in how else _top_k(x, s, s.top_k + how.get("more", 0) * (s.top_k > 0))
        if step == "p": x = how["nucleus"](x, s) if "nucleus" in how else _top_p(x, s, how.get("crossing", True), how.get("back", True), how.get("less", torch.lt))
    return x.log_softmax(1) if norm else x

def _zeros(logits, s):
    out = _filter(logits, s)
    return out.masked_fill(out == -torch.inf, 0.)
def _no_off(logits, s): # top_k 0 keeps nothing
    out = _filter(logits, s)
    return torch.full_like(out, -torch.inf) if s.top_k == 0 and s.temperature else out
def _one_row(logits, s): # the first row's cut for all
    out, keep = _filter(logits, s, "t"), _filter(logits, s)[:1] > -torch.inf
    return _filter(logits, s) if not s.temperature else _keep(out, keep.expand_as(out)).log_softmax(1)
def _all_best(x):
    best = x == x.amax(1, keepdim=True)
    return torch.where(best, 0., -torch.inf).to(x.dtype)

def _logits(seed, b=2, v=7, dtype=torch.float32):
    return (2 * torch.randn(b, v, generator=torch.Generator().manual_seed(seed))).to(dtype)
_three = tensor([[.5, .3, .2]]).log()
_S = SamplingParams
filter_logits = Exercise(
    reference=sampling.filter_logits,
    cases={"all off": (_logits(0), _S()), "temperature one half": (_three, _S(temperature=.5)),
           "temperature 2": (_logits(1), _S(temperature=2.)),
           "greedy": (_logits(2), _S(temperature=0.)),
           "greedy, and top-p": (_logits(3), _S(temperature=0., top_k=3, top_p=.4)),
           "greedy, of two alike the first": (tensor([[1., 3., 3., 0.]]), _S(temperature=0.)),
           "top-k 2": (_logits(4, 3), _S(top_k=2)), "top-k above the vocabulary": (_logits(5), _S(top_k=50)),
           "top-p .6": (_three, _S(top_p=.6)), "top-p, three rows": (_logits(6, 3, 9), _S(top_p=.7)),
           "top-p below the likeliest": (_logits(7), _S(top_p=.05)),
           "top-p reached exactly": (tensor([[.5, .25, .125, .125]]).log(), _S(top_p=.75)),
           "temperature before top-p": (_three, _S(temperature=.5, top_p=.62)),
           "top-p of what top-k left": (tensor([[.4, .3, .2, .1]]).log(), _S(top_k=2, top_p=.5)),
           "all three": (_logits(8, 3, 9), _S(temperature=.8, top_k=6, top_p=.8)),
           "-inf among the logits, and -300": (tensor([[-torch.inf, 2., 1., -300., 0.]]), _S(temperature=.7, top_p=.9)),
           "tokens alike, all kept": (tensor([[1., 1., 1., -9.]]), _S(top_p=.99)),
           "bf16": (_logits(9, dtype=torch.bfloat16), _S(temperature=1.3, top_k=4)),
           "float64": (_logits(10, dtype=torch.float64), _S(top_p=.8))},
    mistakes={
        "divide by the temperature, do not multiply": lambda x, s: _filter(x, s, times=True),
        "the temperature is missing": lambda x, s: _filter(x, s, "kp"),
        "top-k is missing": lambda x, s: _filter(x, s, "tp"),
        "top-p is missing": lambda x, s: _filter(x, s, "tk"),
        "temperature first, then the filters": lambda x, s: _filter(x, s, "kpt"),
        "top-k first, then top-p of what it left": lambda x, s: _filter(x, s, "tpk"),
        "the token that crosses top-p is kept": lambda x, s: _filter(x, s, crossing=False),
        "the tokens before it sum to less than top_p, not to just as much": lambda x, s: _filter(x, s, less=torch.le),
        "the mask is in sorted order: bring it back to the order of the tokens":
            lambda x, s: _filter(x, s, back=False),
        "the k-th largest is kept by top-k: cut off what is below it, not what equals it": lambda x, s: _filter(x, s, cut=_below_kth),
        "one token too few is left by top-k": lambda x, s: _filter(x, s, cut=lambda x, s: _top_k(x, s, max(1, s.top_k - 1) if s.top_k else 0)),
        "each row has its own k-th largest: that cuts all rows at the lowest of them":
            lambda x, s: _filter(x, s, cut=lambda x, s: _at_kth(x, s, torch.amin)),
        "each row has its own k-th largest: that cuts all rows at the highest of them":
            lambda x, s: _filter(x, s, cut=lambda x, s: _at_kth(x, s, torch.amax)),
        "what top-k drops is -inf before the softmax, not 0: exp of 0 is 1":
            lambda x, s: _filter(x, s, cut=lambda x, s: _top_k(x, s).where(_top_k(x, s) > -torch.inf, 0.).where(x > -torch.inf, x)),
        "what top-p drops is -inf before the softmax, not 0: exp of 0 is 1":
            lambda x, s: _filter(x, s, nucleus=lambda x, s: _top_p(x, s).where(_top_p(x, s) > -torch.inf, 0.).where(x > -torch.inf, x)),
        "that is min-p, a share of the largest probability: top-p sums probabilities, the largest first":
            lambda x, s: _filter(x, s, nucleus=_min_p),
        "that keeps tokens whose own probability reaches top_p: sum them, the largest first":
            lambda x, s: _filter(x, s, nucleus=lambda x, s: _keep(x, x.softmax(1) >= s.top_p) if s.top_p < 1 else x),
        "that keeps tokens whose own probability reaches 1 - top_p: sum them, the largest first":
            lambda x, s: _filter(x, s, nucleus=lambda x, s: _keep(x, x.softmax(1) >= 1 - s.top_p) if s.top_p < 1 else x),
        "the result stays sorted, the likeliest first: bring it back to the order of the tokens": lambda x, s: _filter(
            x, s, nucleus=lambda x, s: _top_p(x, s).sort(1, descending=True).values if s.top_p < 1 else x),
        "sorted upwards, so the least likely tokens are kept: sort downwards": lambda x, s: _filter(x, s, nucleus=_rare),
        "top-p counts before the temperature: temperature first, then top-k, then top-p": lambda x, s: _filter(x, s, "ptk"),
        "the token that crosses top_p is kept, but not the next one, too": lambda x, s: _filter(x, s, nucleus=_one_more),
        "what is left is normalised: the log_softmax stands before the filters, it belongs behind them": lambda x, s: (
            _filter(x, s) if not s.temperature else _keep((_temperature(widened(x), s)).log_softmax(1), _filter(x, s) > -torch.inf)),
        "what is left is normalised, not drawn evenly: its probabilities keep their proportions": lambda x, s: (
            torch.where(_filter(x, s) > -torch.inf, 0., -torch.inf).to(_filter(x, s).dtype).log_softmax(1)),
        "the likeliest token comes always: that is temperature 0 alone": lambda x, s: _greedy(widened(x)),
        "one token too many is left by top-k": lambda x, s: _filter(x, s, more=1),
        "the probabilities no longer sum to 1: log_softmax at the end":
            lambda x, s: _filter(x, s, norm=False),
        "these are probabilities: return their logs": lambda x, s: _filter(x, s).exp(),
        "temperature 0 divides by 0: it is greedy decoding": lambda x, s: _filter(x, s, greedy=None),
        "greedy has one token: of two alike the first":
            lambda x, s: _filter(x, s, greedy=_all_best),
        "greedy returns log-probs: 0 for the likeliest, -inf for the rest":
            lambda x, s: _filter(x, s, greedy=lambda x: x.log_softmax(1)),
        "what is filtered out has log-prob -inf, not 0": _zeros,
        "top_k 0 keeps all": _no_off,
        "each row has its own cut": _one_row})

ASKED = {
    "sft_loss": {
        "a token with nothing before it is not counted, although the mask may hold it": "the first column is in the mask",
        "a token of probability 1 is counted: its log-prob is 0": "a token of probability 1",
        "an empty response adds 0 to the sum and to the number": "an empty response",
        "an answer that was cut has no eos: response_mask alone says what is counted": "cut before its end"},
    "fixed_labels": {
        "an empty answer has no label: all of its row is -100": "an empty response",
        "the id of a pad may stand inside the text: n_real says where it ends": "a pad inside the text",
        "an answer may reach the last column": "cut before its end"},
    "filter_logits": {
        "of equally likely tokens the first is the greedy one, and it alone": "greedy, of two alike the first",
        "at temperature 0 the likeliest token has log-prob 0 and the rest -inf, whatever top_k and top_p say":
            "greedy | greedy, and top-p | greedy, of two alike the first",
        "a top_k above the number of tokens keeps all of them": "top-k above the vocabulary",
        "the likeliest token always stays, since those before it sum to 0": "top-p below the likeliest",
        "a token stays if those before it sum to less than top_p, not to just as much": "top-p reached exactly",
        "top-p counts probabilities after the temperature": "temperature before top-p",
        "top-p counts what top-k has left": "top-p of what top-k left",
        "-inf among the logits stays -inf, without nan": "-inf among the logits, and -300",
        "equally likely tokens are kept or cut one by one, by the sum before them": "tokens alike, all kept",
        "all in float32 or more: logits in 16 bits are raised to it first": "bf16"}}
