"What a reader's browser would stumble over: every file of a built site is read."
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

OUTSIDE = re.compile(r"^(https?:)?//", re.I)
LOADS = {"src", "poster", "data", "background"}
QUIET = "pre", "code", "script", "style", "textarea", "title"     # what is in them is not prose
IN_CSS = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", re.I)
UNTRANSLATED = (re.compile(r"^\s*:::", re.M), re.compile(r"^\s*#\|", re.M), re.compile(r"\{\{"),
                re.compile(r"\$\$"), re.compile(r"^\s*```", re.M), re.compile(r"\]\([^)\s]+\)"))

class Page(HTMLParser):
    "What one page loads, links to, and shows."
    def __init__(self, text):
        super().__init__()
        self.loads, self.links, self.ids, self.text, self.faults = [], [], set(), [], []
        self.open = Counter()
        self.feed(text)
        wrong = [tag for tag in (*QUIET, "math") if self.open[tag]]
        if wrong: self.faults.append((self.getpos()[0], f"opened and not closed, or the reverse: {', '.join(wrong)}"))

    def handle_starttag(self, tag, attrs):
        a, line = dict(attrs), self.getpos()[0]
        if "id" in a: self.ids.add(a["id"])
        self.loads += [(line, a[k].strip()) for k in LOADS & a.keys() if a[k]]
        self.loads += [(line, part.split()[0]) for part in (a.get("srcset") or "").split(",") if part.strip()]
        if tag == "link" and not set((a.get("rel") or "").split()) & {
            "canonical", "next", "prev", "search", "index"}: self.loads.append((line, a.get("href") or ""))
        if tag in ("image", "use"): self.loads += [(line, a[k]) for k in ("href", "xlink:href") if a.get(k)]
        if a.get("style"): self.css(a["style"], line)
        if tag == "a" and a.get("href") is not None: self.links.append((line, a["href"]))
        if tag == "img" and not (a.get("alt") or "").strip(): self.faults.append((line, f"an image without alt: {a.get('src')}"))
        if tag == "meta" and (a.get("http-equiv") or "").lower() == "refresh":
            self.faults.append((line, "a refresh"))
        if a.get("srcdoc"):
            inner = Page(a["srcdoc"])
            self.loads += [(line, url) for _, url in inner.loads]
            self.faults += [(line, what) for _, what in inner.faults]
        self.open[tag] += 1

    def handle_endtag(self, tag): self.open[tag] -= 1

    def css(self, text, line): self.loads += [(line, a or b) for a, b in IN_CSS.findall(text)]

    def handle_data(self, text):
        line = self.getpos()[0]
        if self.open["style"]: self.css(text, line)
        if self.open["script"]: self.loads += [(line, url) for url in re.findall(r"https?://[^\s'\"`<>)]+", text)]
        if self.open["math"] and "\\" in text: self.faults.append((line, f"TeX in MathML: {text}"))
        if not any(self.open[tag] for tag in QUIET): self.text.append((line, text))

def audit(site, host:str="")->tuple[list[str], list[str]]: # host: where the site will stand; its pages link to each other, not there
    "(faults, requests that would leave the site), each with page and line."
    site, faults, outside = Path(site).resolve(), [], []
    pages = {f: Page(f.read_text("utf-8")) for f in sorted(site.rglob("*.html"))}
    def there(file, url, line, what):
        path = unquote(urlsplit(url).path)
        goal = (file.parent/path).resolve() if path else file
        if not goal.is_file():
            faults.append(f"{file.relative_to(site)}, line {line}: {what} leads nowhere: {url}")
        return goal
    for file, page in pages.items():
        name = file.relative_to(site)
        if re.search(r"__main__\.\w", file.read_text("utf-8")): faults.append(f"{name}: __main__ is no module of ours")
        for line, url in page.loads:
            if OUTSIDE.match(url): outside.append(f"{name}, line {line}: {url}")
            elif not url.startswith(("data:", "#")): there(file, url, line, "a file")
        for line, url in page.links:
            if host and url.startswith(host): faults.append(f"{name}, line {line}: a link to the site's own host: {url}")
            if re.match(r"[a-z]+:|//", url, re.I): continue
            goal, mark = there(file, url, line, "a link"), unquote(urlsplit(url).fragment)
            if mark and goal in pages and mark not in pages[goal].ids:
                faults.append(f"{name}, line {line}: no such place: {url}")
        for line, text in page.text:
            hit = next((m for p in UNTRANSLATED if (m := p.search(text))), None)
            if hit: faults.append(f"{name}, line {line}: not translated: {text[hit.start():][:80].strip()!r}")
        faults += [f"{name}, line {line}: {what}" for line, what in page.faults]
    for file in site.rglob("*.css"):
        text = file.read_text("utf-8")
        for m in IN_CSS.finditer(text):
            url, line = m[1] or m[2], text[:m.start()].count("\n") + 1
            if OUTSIDE.match(url): outside.append(f"{file.relative_to(site)}, line {line}: {url}")
            elif not url.startswith(("data:", "#")): there(file, url, line, "a file")
    return faults, outside
