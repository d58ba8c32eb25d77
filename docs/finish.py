"""What Sphinx leaves to be done on its pages.

Pictures get their size and load when they come near; `pre` can be focused and scrolled by keys; headings
go down one level at a time; types in the reference are links; pages with knobs get the script that turns them;
every section goes into the search."""
import io, json, re, struct
from collections import Counter
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

IN_FRAME = re.compile(r'(<iframe\b[^>]*\bsrcdoc=")([^"]*)(")')
PIP = re.compile(r"^[ \t]*[%!$>]*[ \t]*(?:python\S* -m )?pip install\b.*$", re.M)
SKIPPED = {"script", "style", "nav", "footer", "svg", "button", "summary", "template"}
BLOCKS = {"br", "dd", "details", "div", "dt", "li", "p", "pre", "td", "th"}
VOID = {"area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}

# ---- pictures, headings, code

def png_size(data:bytes)->tuple[int, int]|None:
    if data[:8] == b"\x89PNG\r\n\x1a\n": return struct.unpack(">II", data[16:24])

def svg_size(text:str)->tuple[int, int]|None:
    box = re.search(r'<svg[^>]*viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ([\d.]+)"', text)
    return (round(float(box[1])), round(float(box[2]))) if box else None

def size(file:Path)->tuple[int, int]|None:
    "Width and height of a picture, PNG or SVG."
    if not file.is_file(): return None
    return svg_size(file.read_text("utf-8")) if file.suffix == ".svg" else png_size(file.read_bytes()[:32])

def pictures(text:str, folder:Path)->str:
    """Each `img` of a page with its size, so that nothing jumps; all but the first load when they come near.

    No two figures have the same name."""
    seen, alts = 0, Counter()
    def another(m):
        alts[m[1]] += 1
        return f'alt="{m[1]} ({alts[m[1]]})"' if alts[m[1]] > 1 else m[0]
    def turn(m):
        nonlocal seen
        tag, src = m[0], re.search(r'src="([^"]*)"', m[0])
        seen += 1
        more = ""
        if src and "width=" not in tag and (found := size(folder/src[1])):
            more = f' width="{found[0]}" height="{found[1]}"'
        if seen > 1 and "loading=" not in tag: more += ' loading="lazy" decoding="async"'
        return re.sub(r"\s*/?>$", lambda end: more + end[0], re.sub(r'alt="(Figure[^"]*)"', another, tag))
    return re.sub(r"<img\b[^>]*>", turn, text)

def smaller(file:Path)->int:
    "A figure has few colours: 256 of them, where that saves a quarter; the bytes saved."
    from PIL import Image
    old = file.read_bytes()
    with Image.open(io.BytesIO(old)) as image:
        if image.mode == "P": return 0
        flat = Image.new("RGB", image.size, "white")
        flat.paste(image, mask=image.getchannel("A") if image.mode == "RGBA" else None)
    new = io.BytesIO()
    flat.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(new, "PNG", optimize=True)
    if new.tell() > .75 * len(old): return 0
    file.write_bytes(new.getvalue())
    return len(old) - new.tell()

def thumbnail(data:bytes, width:int=640, height:int=360)->bytes:
    "A picture for a card: whole, on white."
    from PIL import Image
    with Image.open(io.BytesIO(data)) as image:
        image = image.convert("RGBA")
        image.thumbnail((width, height))
        card = Image.new("RGB", (width, height), "white")
        card.paste(image, ((width - image.width) // 2, (height - image.height) // 2), image)
    out = io.BytesIO()
    card.quantize(128, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()

def levelled(text:str)->str:
    "No heading more than one level below the one before it."
    level, open_as = 0, []
    def turn(m):
        nonlocal level
        if m[1]: return f"</h{open_as.pop() if open_as else m[2]}{m[3]}"
        now = min(int(m[2]), level + 1)
        level = now
        open_as.append(now)
        return f"<h{now}{m[3]}"
    return re.sub(r"<(/?)h([1-6])([ >])", turn, text)

def focusable(text:str)->str:
    "Whoever has no mouse scrolls code by arrow keys."
    return re.sub(r"<pre(?![^>]*tabindex)(?=[\s>])", '<pre tabindex="0"', text)

def named(text:str)->str:
    "What the theme leaves out for a screen reader: the level of a caption, the names of its two sides."
    text = text.replace('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">')
    text = text.replace('<summary aria-label="Toggle hidden content">', "<summary>")       # what it hides is said in it
    for side, name in (("sidebar-drawer", "Pages"), ("toc-drawer", "This page")):
        text = re.sub(rf'<aside class="{side}([^"]*)">', rf'<aside class="{side}\1" aria-label="{name}">', text)
    return text

LIVE = re.compile(r"(<style>)\s*body:has\(\.live-.*?(</style>)", re.S)

def without_live(text:str)->str:
    "The rules that hide a page while its live twin is shown: here none ever is, and `:has` on `body` takes a browser long."
    return LIVE.sub("", text)

def linked(text:str, names:dict[str, str], own:str)->str:
    "Names of our classes and functions in a signature lead to their entries."
    def block(m):
        def name(n):
            goal = names.get(n[1])
            return f'<a href="{goal}">{n[0]}</a>' if goal and goal != own else n[0]
        return m[1] + re.sub(r'<span class="n">(\w+)</span>', name, m[2]) + m[3]
    return re.sub(r"(<pre[^>]*>)(.*?)(</pre>)", block, text, flags=re.S)

# ---- search

class Sections(HTMLParser):
    "The sections of a page: anchor, heading, prose and code; what cells printed is not asked for."
    def __init__(self, text:str):
        super().__init__()
        self.found, self.path, self.stack, self.title = [], [], [], ""
        self.feed(text)
    def handle_starttag(self, tag, attrs):
        if self.path and tag in BLOCKS: self.path[-1]["text"].append("\n")
        if tag in VOID: return
        a = dict(attrs)
        kind = "skip" if tag in SKIPPED or "headerlink" in (a.get("class") or "") else ""
        if "cell_output" in (a.get("class") or ""): kind = "output"
        if tag == "pre": kind = "code"
        if tag == "section" and a.get("id"):
            kind = "section"
            self.path.append(dict(id=a["id"], heading="", text=[], code=[]))
            self.found.append(self.path[-1])
        if re.fullmatch("h[1-6]", tag): kind = "heading"
        if tag == "p" and a.get("class") == "run": kind = "skip"
        self.stack.append((tag, kind))
    def handle_endtag(self, tag):
        if all(tag != t for t, _ in self.stack): return
        while self.stack:
            open_tag, kind = self.stack.pop()
            if kind == "section": self.path.pop()
            if open_tag == tag: return
    def handle_data(self, data):
        kinds = {kind for _, kind in self.stack}
        if not self.path or kinds & {"skip", "output"}: return
        here = self.path[-1]
        if "code" in kinds: here["code"].append(data)
        elif "heading" in kinds: here["heading"] += data
        else: here["text"].append(data)

def words(code:str)->str:
    "The names in code, each once; lines that install something are left out."
    found = Counter(re.findall(r"[A-Za-z_]\w{2,}", PIP.sub("", code)))
    return " ".join(found)

def sections(text:str)->list[dict]:
    "What the search knows of one page."
    article = re.search(r'<article role="main".*?</article>', text, re.S)
    out = []
    for s in Sections(article[0] if article else "").found:
        prose = " ".join(PIP.sub("", "".join(s["text"])).split())
        out.append(dict(id=s["id"], heading=" ".join(s["heading"].split()), text=prose, code=words("".join(s["code"]))))
    return out

def search_index(site:Path, short:dict[str, str], asked:dict[str, list[str]])->dict:
    "Every section of every page: [page, anchor, heading, prose, names in code]."
    pages, found = [], []
    for file in sorted(site.rglob("*.html")):
        page = file.relative_to(site).as_posix()
        if page in ("search.html", "genindex.html", "api/index.html"): continue
        of_page = sections(file.read_text("utf-8"))
        if not of_page: continue
        name = page.removesuffix(".html")
        label = short.get(name, "")
        pages.append([page, of_page[0]["heading"], label, " . ".join(asked.get(name, []))])
        found += [[len(pages) - 1, "" if not n else s["id"], s["heading"], s["text"], s["code"]]
                  for n, s in enumerate(of_page)]
    return dict(pages=pages, sections=found)

# ---- the whole

def finish(site:Path, short:dict[str, str]={}, asked:dict[str, list[str]]={})->dict:
    "Go over the built pages in place; short: page -> its name in the sidebar, asked: page -> what people type."
    names = {}
    for file in sorted(site.glob("api/*.html")):
        for anchor, name in re.findall(r'<section id="(api-[^"]+)">.*?<h2><code[^>]*><span class="pre">(\w+)</span>',
                                       file.read_text("utf-8"), re.S): names[name] = f"{file.name}#{anchor}"
    for file in sorted(site.rglob("*.html")):
        page = file.relative_to(site).as_posix()
        up = "../" * page.count("/")
        text = file.read_text("utf-8")
        text = IN_FRAME.sub(lambda m: m[1] + escape(focusable(levelled(unescape(m[2])))) + m[3], text)
        frames = []                         # what is in a frame is a page of its own
        text = IN_FRAME.sub(lambda m: frames.append(m[2]) or f'{m[1]}@{len(frames) - 1}@{m[3]}', text)
        text = without_live(named(focusable(levelled(pictures(text, file.parent)))))
        if page.startswith("api/"): text = linked(text, names, "")
        text = IN_FRAME.sub(lambda m: m[1] + frames[int(m[2].strip("@"))] + m[3], text)
        for mark, script in (("data-knobs=", "knobs"), ("data-model=", "model"), ("data-train=", "model"), ("data-train=", "train")):
            if mark in text: text = text.replace("</head>", f'<script defer src="{up}_static/{script}.js"></script></head>', 1)
        file.write_text(text, "utf-8")
    saved = sum(smaller(f) for f in sorted(site.glob("_images/*.png")))
    index = search_index(site, short, asked)
    (site/"searchindex.js").unlink(missing_ok=True)         # Sphinx's own: pages, not sections, and unranked
    (site/"_static/sections.js").write_text(
        "window.rlhfSections = " + json.dumps(index, ensure_ascii=False, separators=(",", ":")), "utf-8")
    return dict(sections=len(index["sections"]), saved=saved)
