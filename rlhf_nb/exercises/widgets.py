"Exercises of the chapter on widgets."
import html, re
from rlhf_nb.checks import Exercise

# ---- words on a page

def _line(words, values, text=html.escape, note=html.escape, drop=False, form="+.2f"):
    return "".join(f'<span title="{note(w)}: {x:{form}}">{text(w)}</span>'
                   for w, x in zip(words, values) if not (drop and text(w) != w))

def _as_it_is(word): return word
def _brackets(word): return word.replace("<", "&lt;").replace(">", "&gt;")
def _no_quotes(word): return html.escape(word, quote=False)
def _twice(word): return html.escape(html.escape(word))
def _and_last(word): return _brackets(word).replace("&", "&amp;").replace('"', "&quot;").replace("'", "&#x27;")
def _stripped(word): return html.escape(re.sub(r"<[^>]*>", "", word))

fixed_token_line = Exercise(
    reference=_line,
    cases={"harmless words": (["Hello", " there"], [.1, -.25]),
           "the start of a text": ([" a", "<s>", " b"], [0., 3., -1.]),
           "quotation marks": (['say "no"', "it's", '" onfocus="x'], [1., 2., .5]),
           "signs that are half escaped": (["&lt;", "fish & chips", "a&b"], [1., 0., -2.]),
           "an image that is none": (["<img src=x onerror=alert('1')>"], [9.]),
           "no words": ([], [])},
    mistakes={
        "nothing is escaped: a word is still read as HTML":
            lambda w, v: _line(w, v, _as_it_is, _as_it_is),
        "the note is still open: a quotation mark ends the title":
            lambda w, v: _line(w, v, note=_as_it_is),
        "the text is still open, only the note is safe":
            lambda w, v: _line(w, v, text=_as_it_is),
        "quotation marks get out of the title: quote=False is for text alone":
            lambda w, v: _line(w, v, _no_quotes, _no_quotes),
        "only < and > are escaped: & and quotation marks are not":
            lambda w, v: _line(w, v, _brackets, _brackets),
        "escaped twice: the reader sees &amp;lt;": lambda w, v: _line(w, v, _twice, _twice),
        "& is replaced last, so it spoils the &lt; of before":
            lambda w, v: _line(w, v, _and_last, _and_last),
        "tags are taken out: what the model said has to be seen":
            lambda w, v: _line(w, v, _stripped, _stripped),
        "whole words are missing: each one has to be seen":
            lambda w, v: _line(w, v, drop=True),
        "the value lost its sign: write it as +.2f": lambda w, v: _line(w, v, form=".2f")})

# ---- fewer points of a long curve

def _thin(ys, size, ends=(min, max), whole=False, place=lambda i, start: i, once=True):
    kept = []
    for start in range(0, len(ys), size):
        part = range(start, min(start + size, len(ys)))
        if whole and len(part) < size: continue
        places = [end(part, key=lambda i: ys[i]) for end in ends]
        if once: places = sorted(set(places))
        kept += [(place(i, start), ys[i]) for i in places]
    return kept

def _last(part, key): # the last of the equal largest ones
    return max(reversed(part), key=key)
def _last_small(part, key): return min(reversed(part), key=key)

thin_curve = Exercise(
    reference=_thin,
    cases={"two stretches": ([3., 1., 2., 5., 4., 9.], 3),
           "the last stretch is shorter": ([1., -2., .5, 7., 6., 8., -4., 3.], 3),
           "equal values": ([2., 2., 2., 1., 1., 3., 3., 0.], 4),
           "stretches of one": ([4., -1., 2.], 1),
           "shorter than a stretch": ([5., 6.], 10),
           "a spike": ([0.] * 7 + [1.] + [0.] * 9, 5),
           "nothing": ([], 4)},
    mistakes={
        "every size-th value is kept: the spike between them is lost":
            lambda ys, n: [(i, ys[i]) for i in range(0, len(ys), n)],
        "the smallest are missing: a dip is a spike, too": lambda ys, n: _thin(ys, n, (max,)),
        "the largest are missing": lambda ys, n: _thin(ys, n, (min,)),
        "the mean of a stretch flattens the spike": lambda ys, n: [
            (i, sum(ys[i:i + n]) / len(ys[i:i + n])) for i in range(0, len(ys), n)],
        "the shorter last stretch is dropped": lambda ys, n: _thin(ys, n, whole=True),
        "smallest first is not the order of the curve, and a place may stand there twice":
            lambda ys, n: _thin(ys, n, once=False),
        "places count from the start of their stretch": lambda ys, n: _thin(
            ys, n, place=lambda i, start: i - start),
        "of equal values the last place is taken: take the first":
            lambda ys, n: _thin(ys, n, (_last_small, _last)),
        "only the extremes of the whole curve are kept": lambda ys, n: _thin(ys, len(ys) or 1),
        "the ends of each stretch are kept, not its extremes": lambda ys, n: [
            (i, ys[i]) for s in range(0, len(ys), n)
            for i in sorted({s, min(s + n, len(ys)) - 1})]})
