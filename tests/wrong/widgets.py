"Answers to the exercises of the chapter on widgets that learners might give, each wrong."
import html, re
import numpy as np

def untouched(words, values):
    return "".join(f'<span title="{word}: {x:+.2f}">{word}</span>' for word, x in zip(words, values))
def text_only(words, values):
    out = ""
    for word, x in zip(words, values):
        out += f'<span title="{word}: {x:+.2f}">{html.escape(word)}</span>'
    return out
def note_only(words, values):
    return "".join('<span title="{}: {:+.2f}">{}</span>'.format(html.escape(w), x, w) for w, x in zip(words, values))
def unquoted(words, values):
    safe = [html.escape(w, False) for w in words]
    return "".join(f'<span title="{w}: {x:+.2f}">{w}</span>' for w, x in zip(safe, values))
def two_signs(words, values):
    safe = [re.sub("[<>]", lambda m: {"<": "&lt;", ">": "&gt;"}[m[0]], w) for w in words]
    return "".join(f'<span title="{w}: {x:+.2f}">{w}</span>' for w, x in zip(safe, values))
def double(words, values):
    words = list(map(html.escape, words))
    return "".join(f'<span title="{html.escape(w)}: {x:+.2f}">{html.escape(w)}</span>' for w, x in zip(words, values))
def late_ampersand(words, values):
    def safe(w):
        for a, b in (("<", "&lt;"), (">", "&gt;"), ("&", "&amp;"), ("'", "&#x27;"), ('"', "&quot;")): w = w.replace(a, b)
        return w
    return "".join(f'<span title="{safe(w)}: {x:+.2f}">{safe(w)}</span>' for w, x in zip(words, values))
def tagless(words, values):
    words = [html.escape(re.sub("<.*?>", "", w)) for w in words]
    return "".join(f'<span title="{w}: {x:+.2f}">{w}</span>' for w, x in zip(words, values))
def unsigned(words, values):
    words = [html.escape(w) for w in words]
    return "".join(f'<span title="{w}: {x:.2f}">{w}</span>' for w, x in zip(words, values))
def skips(words, values):
    return "".join(f'<span title="{w}: {x:+.2f}">{w}</span>' for w, x in zip(words, values)
                   if not any(c in w for c in "<>&\"'"))
def spaced(words, values):
    words = [html.escape(w) for w in words]
    return " ".join(f'<span title="{w}: {x:+.2f}">{w}</span>' for w, x in zip(words, values))

def strided(ys, size): return list(enumerate(ys))[::size]
def tops(ys, size):
    return [max(enumerate(ys[s:s + size], s), key=lambda p: p[1]) for s in range(0, len(ys), size)]
def bottoms(ys, size):
    return [min(enumerate(ys[s:s + size], s), key=lambda p: p[1]) for s in range(0, len(ys), size)]
def means(ys, size): return [(s, float(np.mean(ys[s:s + size]))) for s in range(0, len(ys), size)]
def whole_only(ys, size):
    out = []
    for s in range(0, len(ys) - size + 1, size):
        part = list(enumerate(ys[s:s + size], s))
        out += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return out
def low_then_high(ys, size):
    out = []
    for s in range(0, len(ys), size):
        part = ys[s:s + size]
        out += [(s + part.index(min(part)), min(part)), (s + part.index(max(part)), max(part))]
    return out
def local(ys, size):
    out = []
    for s in range(0, len(ys), size):
        part = ys[s:s + size]
        out += [(i, part[i]) for i in sorted({int(np.argmin(part)), int(np.argmax(part))})]
    return out
def latest(ys, size):
    out = []
    for s in range(0, len(ys), size):
        part = ys[s:s + size][::-1]
        ends = {s + len(part) - 1 - part.index(f(part)) for f in (min, max)}
        out += [(i, ys[i]) for i in sorted(ends)]
    return out
def whole_curve(ys, size):
    return [(i, ys[i]) for i in sorted({ys.index(min(ys)), ys.index(max(ys))})] if ys else []
def borders(ys, size):
    ends = {s for s in range(0, len(ys), size)} | {min(s + size, len(ys)) - 1 for s in range(0, len(ys), size)}
    return [(i, ys[i]) for i in sorted(ends)]
def values_only(ys, size):
    return [y for s in range(0, len(ys), size) for y in (min(ys[s:s + size]), max(ys[s:s + size]))]

WRONG = {
    "fixed_token_line": [
        ("nothing is escaped: a word is still read as HTML", untouched),
        ("the note is still open: a quotation mark ends the title", text_only),
        ("the text is still open, only the note is safe", note_only),
        ("quotation marks get out of the title: quote=False is for text alone", unquoted),
        ("only < and > are escaped: & and quotation marks are not", two_signs),
        ("escaped twice: the reader sees &amp;lt;", double),
        ("& is replaced last, so it spoils the &lt; of before", late_ampersand),
        ("tags are taken out: what the model said has to be seen", tagless),
        ("whole words are missing: each one has to be seen", skips),
        ("the value lost its sign: write it as +.2f", unsigned),
        ("", spaced)],
    "thin_curve": [
        ("every size-th value is kept: the spike between them is lost", strided),
        ("the smallest are missing: a dip is a spike, too", tops),
        ("the largest are missing", bottoms),
        ("the mean of a stretch flattens the spike", means),
        ("the shorter last stretch is dropped", whole_only),
        ("smallest first is not the order of the curve, and a place may stand there twice", low_then_high),
        ("places count from the start of their stretch", local),
        ("of equal values the last place is taken: take the first", latest),
        ("only the extremes of the whole curve are kept", whole_curve),
        ("the ends of each stretch are kept, not its extremes", borders),
        ("", values_only)]}
