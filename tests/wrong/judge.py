"Answers to the exercises of the chapter on judges that learners might give, each wrong; and right ones."
import math, re, sys
import torch
from torch.nn.functional import one_hot
from rlhf_nb.judge import Verdicts, pair_accuracy
from rlhf_nb.base.replies import escape_special_tokens, score_regex

def esc(tokenizer, *texts): return [escape_special_tokens(tokenizer, x) for x in texts]
def no_escape(tokenizer, prompt, answers): return [prompt.render(*texts) for texts in answers]
def response_only(tokenizer, prompt, answers):
    return [prompt.render(q, *esc(tokenizer, *a)) for q, *a in answers]
def question_only(tokenizer, prompt, answers):
    out = []
    for q, *a in answers: out.append(prompt.render(escape_special_tokens(tokenizer, q), *a))
    return out
def afterwards(tokenizer, prompt, answers):
    return esc(tokenizer, *[prompt.render(*answer) for answer in answers])
def exchanged(tokenizer, prompt, answers): return [prompt.render(*esc(tokenizer, *texts[::-1])) for texts in answers]
def str_format(tokenizer, prompt, answers):
    out = []
    for answer in answers:
        text = prompt.template
        for name, x in zip(("prompt", "response") if len(answer) == 2 else ("prompt", "first", "second"), answer):
            text = text.replace("{{ " + name + " }}", escape_special_tokens(tokenizer, x))
        out.append(text)
    return out
def early_return(tokenizer, prompt, answers):
    messages = []
    for answer in answers:
        messages.append(prompt.render(*esc(tokenizer, *answer)))
        return messages
    return messages
def stripped(tokenizer, prompt, answers):
    return [prompt.render(*[x.strip() for x in esc(tokenizer, *answer)]) for answer in answers]
def one_text(tokenizer, prompt, answers):
    return "\n".join([prompt.render(*esc(tokenizer, *answer)) for answer in answers])
def taken_out(tokenizer, prompt, answers):
    def clean(x): return x.replace("<eos>", "").replace("<|assistant|>", "")
    return [prompt.render(*map(clean, texts)) for texts in answers]
def two_escaped(tokenizer, prompt, answers):
    return [prompt.render(*esc(tokenizer, *texts[:2]), *texts[2:]) for texts in answers]
def pairs_only(tokenizer, prompt, answers):
    return [prompt.render(*esc(tokenizer, question, response)) for question, response in answers]

def loop_messages(tokenizer, prompt, answers):
    out = []
    for texts in answers:
        safe = []
        for text in texts: safe.append(escape_special_tokens(tokenizer, text))
        out.append(prompt.render(*safe))
    return out
def map_messages(tokenizer, prompt, answers): return list(map(lambda x: prompt.render(*esc(tokenizer, *x)), answers))

PATTERN = "Score: {{ reward }}"
def numbers(text, pattern=PATTERN, high=5.): return [m[1] for m in score_regex(pattern, high).finditer(text)]
def checked(x, low, high): return None if x is None or not low <= float(x) <= high else float(x) + 0.
def always_first(text, pattern=PATTERN, low=0., high=5., last=True):
    found = numbers(text, pattern, high)
    return checked(found[0], low, high) if found else None
def always_last(text, pattern=PATTERN, low=0., high=5., last=True):
    found = numbers(text, pattern, high)
    return checked(found.pop(), low, high) if found else None
def switched(text, pattern=PATTERN, low=0., high=5., last=True):
    found = numbers(text, pattern, high)
    return checked(found[0] if last else found[-1], low, high) if found else None
def good_ones(text, pattern=PATTERN, low=0., high=5., last=True):
    found = [x for x in numbers(text, pattern, high) if x]
    return checked(found[-1 if last else 0], low, high) if found else None
def good_in_range(text, pattern=PATTERN, low=0., high=5., last=True):
    found = [float(x) for x in numbers(text, pattern, high) if x and low <= float(x) <= high]
    return (found[-1] if last else found[0]) + 0. if found else None
def any_range(text, pattern=PATTERN, low=0., high=5., last=True):
    found = numbers(text, pattern, high)
    return checked(found[-1 if last else 0], -math.inf, math.inf) if found else None
def no_low(text, pattern=PATTERN, low=0., high=5., last=True):
    found = numbers(text, pattern, high)
    return checked(found[-1 if last else 0], -math.inf, high) if found else None
def no_high(text, pattern=PATTERN, low=0., high=5., last=True):
    found = numbers(text, pattern, high)
    return checked(found[-1 if last else 0], low, math.inf) if found else None
def strictly(text, pattern=PATTERN, low=0., high=5., last=True):
    found = numbers(text, pattern, high)
    x = found[-1 if last else 0] if found else None
    return float(x) if x is not None and low < float(x) < high else None
def clamped(text, pattern=PATTERN, low=0., high=5., last=True):
    found = numbers(text, pattern, high)
    x = found[-1 if last else 0] if found else None
    return None if x is None else max(low, min(high, float(x)))
def zero_for_none(text, pattern=PATTERN, low=0., high=5., last=True):
    x = right_parse(text, pattern, low, high, last)
    return 0. if x is None else x
def nan_for_none(text, pattern=PATTERN, low=0., high=5., last=True):
    x = right_parse(text, pattern, low, high, last)
    return math.nan if x is None else x
def falsy(text, pattern=PATTERN, low=0., high=5., last=True):
    x = right_parse(text, pattern, low, high, last)
    if x: return x
def as_int(text, pattern=PATTERN, low=0., high=5., last=True):
    x = right_parse(text, pattern, low, high, last)
    return None if x is None else float(math.floor(x))
def as_text(text, pattern=PATTERN, low=0., high=5., last=True):
    x = right_parse(text, pattern, low, high, last)
    return None if x is None else str(x)

def right_parse(text, pattern=PATTERN, low=0., high=5., last=True):
    place = None
    for match in score_regex(pattern, high).finditer(text):
        place = match
        if not last: break
    if place is None or place[1] is None: return None
    number = float(place[1])
    return abs(number) if number == 0 and low <= 0 <= high else number if low <= number <= high else None
def right_findall(text, pattern=PATTERN, low=0., high=5., last=True):
    found = score_regex(pattern, high).findall(text)        # "" where there is no number
    if not found: return None
    if not last: found.reverse()
    try: number = float(found[-1]) + 0.
    except ValueError: return None
    return None if number < low or number > high else number

def parts(v, true):
    s = v.score()
    keep = ~s.isnan()
    return s[keep].double(), true[keep].double()
def right_agreement(v, true):
    s, g = parts(v, true)
    r = torch.round(s)
    po = float((r == g).double().mean())
    pe = sum(float((r == k).double().mean()) * float((g == k).double().mean()) for k in g.unique())
    x, y = s - s.mean(), g - g.mean()
    r_xy = (x * y).sum() / (x * x).sum().sqrt() / (y * y).sum().sqrt()
    return dict(parse_rate=v.parse_rate(), n_unparsed=int(v.score().isnan().sum()), vote_std=v.vote_std(),
                pearson_r=float(r_xy), exact_match=po, kappa=math.nan if pe == 1 else (po - pe) / (1 - pe),
                bias=float(s.mean() - g.mean()), pair_accuracy=pair_accuracy(v.score(), true))
def right_confusion(v, true):
    s, g = parts(v, true)
    table = torch.einsum("bi,bj->ij", one_hot(s.round().long(), 6).double(), one_hot(g.long(), 6).double()) / len(s)
    po, pe = table.trace().item(), (table.sum(0) @ table.sum(1)).item()
    return right_agreement(v, true) | dict(kappa=(po - pe) / (1 - pe) if 1 - pe > 1e-12 else float("nan"), exact_match=po)
def changed(**what):
    def answer(v, true):
        s, g = parts(v, true)
        return right_agreement(v, true) | {k: f(v, true, s, g) for k, f in what.items()}
    return answer
def filled(v, true):
    found = right_agreement(Verdicts(torch.where(v.votes.isnan(), 0., v.votes)), true)
    return found | {k: x for k, x in right_agreement(v, true).items() if k in ("parse_rate", "n_unparsed", "vote_std")}
def po_pe(s, g):
    r = s.round()
    return float((r == g).double().mean()), float((r[:, None] == g[None]).double().mean())
def difference_kappa(v, true, s, g):
    po, pe = po_pe(s, g)
    return po - pe if pe < 1 else math.nan
def one_kappa(v, true, s, g):
    po, pe = po_pe(s, g)
    return 1. if pe == 1 else (po - pe) / (1 - pe)
def gold_kappa(v, true, s, g):
    po, pe = po_pe(s, g)[0], float((g[:, None] == g).double().mean())
    return (po - pe) / (1 - pe) if pe < 1 else math.nan
def sixth(v, true, s, g): return (po_pe(s, g)[0] - 1 / 6) / (5 / 6)

RIGHT = {"judge_messages": [loop_messages, map_messages], "parse_score": [right_parse, *[right_findall] * (sys.version_info >= (3, 11, 5))], # before, more groups than one
         "agreement": [right_agreement, right_confusion]}
WRONG = {
    "judge_messages": [
        ("nothing is escaped: the answer can end the user's turn", no_escape),
        ("the question comes from outside as well: escape it, too", response_only),
        ("the answer is what must be escaped", question_only),
        ("escape the texts, not the whole message: the template's own special tokens are yours", afterwards),
        ("question and answer are exchanged", exchanged),
        ("an answer is never read as a template: fill both blanks at once", str_format),
        ("that is the first message alone: one for each answer", early_return),
        ("the answer's own space stays: do not strip it", stripped),
        ("special tokens become <unk>, or a space where there is none", taken_out),
        ("of a pair the second answer must be escaped as well", two_escaped),
        ("a pair has three texts: take as many as there are", pairs_only),
        ("that is one text: a list of messages is asked for", one_text)],
    "parse_score": [
        ("the last place counts, not the first", always_first), ("with last=False the first place counts", always_last),
        ("first and last are exchanged", switched),
        ("the last place decides, even where no good number stands in it", good_ones),
        ("the last place decides, even if its number is out of range", good_in_range),
        ("a number outside low to high is no score", any_range), ("a number below low is no score", no_low),
        ("a number above high is no score", no_high), ("low and high are scores, too", strictly),
        ("a number out of range is no score: do not cut it to the range", clamped),
        ("a place without a good number has no score, None, not 0", zero_for_none),
        ("None, not nan, where there is no score", nan_for_none),
        ("0 is a score: it is false to `if`, but it was parsed", falsy),
        ("half a point counts: a score is a float", as_int),
        ("that is the text of the number: make a float of it", as_text)],
    "agreement": [
        ("an answer without a score is left out, it is no 0", filled),
        ("kappa's p_e uses the frequencies of both, judge and truth", changed(kappa=gold_kappa)),
        ("kappa's p_e is not 1/6: count the frequencies", changed(kappa=sixth)),
        ("that is the exact match: kappa takes p_e away and divides by 1 - p_e",
         changed(kappa=lambda v, t, s, g: po_pe(s, g)[0])),
        ("kappa divides by 1 - p_e", changed(kappa=difference_kappa)), ("where p_e is 1 kappa is nan", changed(kappa=one_kappa)),
        ("the sign: bias is score minus truth", changed(bias=lambda v, t, s, g: float(g.mean() - s.mean()))),
        ("bias keeps its sign", changed(bias=lambda v, t, s, g: float((g - s).abs().mean()))),
        ("bias is of the score, not of the rounded score", changed(bias=lambda v, t, s, g: float((s.round() - g).mean()))),
        ("round the scores before you compare", changed(exact_match=lambda v, t, s, g: float((s == g).double().mean()))),
        ("exact match is a share of the answers with a score",
         changed(exact_match=lambda v, t, s, g: float((s.round() == g).sum()) / len(t))),
        ("n_unparsed counts answers without any score, not replies",
         changed(n_unparsed=lambda v, *_: int(torch.isnan(v.votes).sum()))),
        ("that is r squared", changed(pearson_r=lambda v, t, s, g: torch.corrcoef(torch.stack([s, g]))[1, 0].item()**2)),
        ("that is the mean score, not the bias", changed(bias=lambda v, t, s, g: float(s.mean())))]}
