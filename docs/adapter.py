"""From notebooks to pages that Sphinx reads.

staged     a chapter as a learner gets it, made ready for nbdev
chapter    what nbdev made of it: a page, and an entry of the reference for each name
page       a Markdown file of docs/: links to chapters, names and tests come alive"""
import ast, base64, html, json, re, sys, time
from dataclasses import dataclass, field
from pathlib import Path

NBS = Path(__file__).resolve().parents[1]/"nbs"
COURSE, ENGINE = "Course", "Engine room"                      # notebooks with and without a number
FLOORS = {f.stem: f.parent.name for f in NBS.glob("engine/*/[!._]*.ipynb")}     # notebook -> its folder
EXPORT = re.compile(r"^#\|\s*export\s*$", re.M)
DIRECTIVE = re.compile(r"^\s*#\s*\|\s*(.*)$")
LEFT_OVER = (("a fenced div of Quarto, :::", re.compile(r"^\s*:::")),
             ("a directive, #|", DIRECTIVE), ("a shortcode, {{", re.compile(r"\{\{")),
             ("attributes, {#... or {target", re.compile(r"\{(#|target=)")))

class Fault(Exception):
    "Something in a source that a reader would stumble over; the message says where."

@dataclass(frozen=True)
class Site:
    "What all pages of one build have to know."
    repo:str            # https://github.com/...
    host:str            # where the pages will stand
    modules:dict        # page, named like its module -> (number or "", file name of its notebook)
    names:frozenset     # "module.name" of everything that the reference shows
    short:dict = field(default_factory=dict)    # page -> its name in the sidebar
    @property
    def online(self)->bool: # False until somebody put the owner's name into pyproject.toml
        return "/OWNER/" not in self.repo

@dataclass(frozen=True)
class Entry:
    "One name of the reference."
    name:str
    source:str          # link to the line of code, "" where nbdev knows none
    text:str            # signature and docstring, Markdown

def module_of(file)->tuple[str, str]:
    "07_kl.ipynb -> ('07', 'kl'); settings.ipynb -> ('', 'settings')"
    found = re.fullmatch(r"(\d+)_(.+)", Path(file).stem)
    return found.groups() if found else ("", Path(file).stem)

def shelf(name:str)->str:
    "Its caption in the sidebar: kl -> 'Course', settings -> 'Engine room: base'."
    return f"{ENGINE}: {FLOORS[name]}" if name in FLOORS else COURSE

def place(file:str)->str:
    "Where a notebook stands in the source: 07_kl.ipynb, engine/base/settings.ipynb."
    name = Path(file).stem
    return f"engine/{FLOORS[name]}/{file}" if name in FLOORS else file

def dotted(name:str)->str:
    "A module below the package: kl, base.settings."
    return f"{FLOORS[name]}.{name}" if name in FLOORS else name

def read(file, tries:int=5):
    "A notebook that may be being written at this moment."
    import nbformat
    for left in reversed(range(tries)):
        try: return nbformat.read(file, 4)
        except (json.JSONDecodeError, nbformat.reader.NotJSONError, UnicodeDecodeError) as e:
            if not left: raise Fault(f"{Path(file).name} is not a whole notebook: {e}") from e
            time.sleep(1)

# ---- before nbdev

def staged(nb):
    "The learner's form; exported code stays visible and solved, nothing but exported cells is run."
    from rlhf_nb.book.copies import learners_copy
    for cell in nb.cells:
        if EXPORT.search(cell.source): cell.source = re.sub(r"^#\|\s*exercise .*\n", "#| solution: true\n", cell.source, flags=re.M)
    nb = learners_copy(nb)
    for cell in nb.cells:
        if cell.cell_type != "code": continue
        if re.search("^(def|class) ", cell.source, re.M):         # nbdev hides a cell with default_exp as a whole
            cell.source = re.sub(r"^#\|\s*default_exp .*\n", "", cell.source, flags=re.M)
        if EXPORT.search(cell.source): cell.source = EXPORT.sub("#| exports", cell.source, 1)
        else: cell.source = f"#| eval: false\n{cell.source}"
    return nb

def installing(nb, repo:str, file:str):
    """A copy to download: behind its title a link to Colab and a cell that installs the package where it is not,
    once pyproject.toml names an owner; before that neither could work, and the copy stays as it is."""
    if "/OWNER/" in repo or module_of(file)[1] == "index": return nb
    from nbformat.v4 import new_code_cell, new_markdown_cell
    link = f"https://colab.research.google.com/github/{repo.removeprefix('https://github.com/')}/blob/main/nbs/{place(file)}"
    cells = [new_markdown_cell(f"[Open in Colab]({link}), or run the next cell wherever `rlhf_nb` is not installed:", id="colab"),
             new_code_cell("import importlib.util\nif importlib.util.find_spec(\"rlhf_nb\") is None:\n"
                           f"    %pip install -q \"git+{repo}\"", id="install")]
    nb.cells[1:1] = cells
    return nb

# ---- after nbdev

def split_directives(source:str)->tuple[dict, str]:
    "The lines `#| key: value` at the top of a cell, and the rest."
    found, lines = {}, source.splitlines(True)
    while lines and (hit := DIRECTIVE.match(lines[0])):
        key, _, value = hit[1].partition(":")
        found[key.strip()] = value.strip() or "true"
        lines.pop(0)
    return found, "".join(lines)

def prose(text:str)->list[tuple[int, str]]:
    "(number, line) of the lines outside code, the code inside a line blanked."
    kept, fence = [], ""
    for n, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if mark and (not fence or line.strip().startswith(fence)): fence = "" if fence else mark[1]
        elif not fence: kept.append((n, re.sub(r"(`+).+?\1|(\$\$?)[^$]+\2", "", line)))
    return kept

def refuse_left_overs(text:str, where:str):
    "Anything of Quarto that Sphinx would print as it stands."
    for n, line in prose(text):
        for what, pattern in LEFT_OVER:
            if pattern.search(line): raise Fault(f"{where}, line {n}: {what}: {line.strip()[:80]}")

def label(kind:str, module:str, name:str)->str:
    "api-kl-kl_k1; a capital is told from a small letter, which labels are not."
    return f"{kind}-{module}-" + re.sub(r"([A-Z])", lambda m: m[1].lower() + "^", name)

def link_names(text:str, site:Site, written:str="")->str:
    "Links that nbdev made: to our own names within the site, to other libraries not at all."
    def turn(m):
        name, url = m.groups()
        if url in written: return m[0]          # the author's own
        inside = re.fullmatch(r"/(?:[\w/]+/)?(\w+)\.html(?:#(.+))?", url)     # nbdev knows no host of ours
        if not inside: return f"`{name}`"
        known = f"{inside[1]}.{inside[2]}" in site.names
        return f"[`{name}`](#{label('api', inside[1], inside[2])})" if known else f"`{name}`"
    return re.sub(r"\[`([^`]+)`\]\(((?:https?:/)?/[^)\s]+)\)", turn, text)

def link_chapters(text:str, site:Site, where:str, up:str="")->str:
    "`](../07_kl.ipynb)` -> `](kl.ipynb)`: pages are named like modules, side by side."
    def turn(m):
        name = module_of(m[1])[1]
        if name != "index" and name not in site.modules: raise Fault(
            f"{where}, line {text[:m.start()].count(chr(10)) + 1}: there is no chapter {m[1]}")
        return f"]({up}{name}.ipynb{m[2] or ''})"
    return re.sub(r"\]\(\s*(?:\.\./)*(?:nbs/)?(?:engine/)?(?:\w+/)?([\w-]+)\.ipynb(#[\w-]+)?\)", turn, text)

def markdown(text:str, site:Site, where:str, written:str="")->str:
    text = re.sub(r"<!-- WARNING: THIS FILE WAS AUTOGENERATED.*?-->\n?", "", text)
    text = link_chapters(link_names(text, site, written), site, where)
    refuse_left_overs(text, where)
    return text

def entries(outputs:list)->list[Entry]:
    "What show_doc rendered."
    found = []
    for o in outputs:
        text = "".join(o.get("data", {}).get("text/markdown", ""))
        hit = re.match(r"(?:---\s*)?(?:\[source\]\(([^)]+)\)\{[^}]*\}\s*)?#+ (\S+)\s*(.*)\Z", text, re.S)
        if hit: found.append(Entry(hit[2], hit[1] or "", hit[3].strip()))
    return found

def shown(nb)->list[Entry]: return [e for c in nb["cells"] if "show_doc(" in "".join(c["source"])
                                     for e in entries(c.get("outputs", []))]

def statements(source:str)->list[ast.stmt]:
    try: return ast.parse(source).body
    except SyntaxError: return []               # a line for the shell

def defined(source:str)->list[str]:
    return [n.name for n in statements(source) if isinstance(n, (ast.FunctionDef, ast.ClassDef))]

def lead_in(text:str)->str:
    "The sentence before a cell, which says what its figure shows: plain words, at most 30 of them."
    last = re.split(r"\n\s*\n", re.sub(r"<[^>]+>", "", text).strip())[-1]
    if re.match(r"\s*([#|>*-]|```|\d+\.)", last) and not last.startswith("**"): return ""
    plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", last)
    plain = re.sub(r"[*_`$\\{}\[\]]", "", plain).replace('"', "'")
    last = re.split(r"(?<=[.?!])\s+", " ".join(plain.split()))[-1]
    return last.rstrip(":.") if len(last.split()) <= 30 else ""

def alt(heading:str, source:str, before:str="")->str:
    "For whoever hears the page: the section, then what the text before says of it, then what the last line draws."
    call = next((n.value for n in statements(source)[-1:] if isinstance(n, ast.Expr)), None)
    given = [*call.args, *(k.value for k in call.keywords)] if isinstance(call, ast.Call) else []
    parts = [p for g in given for p in getattr(g, "elts", getattr(g, "keys", [g]))]
    words = [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str) and p.value]
    if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "course_map": return ": ".join(filter(None, [
        "Figure", "the map of the course", words and f"you are at {words[0]}" or ""]))
    return ": ".join(filter(None, ["Figure", heading, lead_in(before), ", ".join(words)]))

def steps(name:str, site:Site)->str: # HTML
    "The way from a base model to a policy in a line, with the chapter's place marked: what the map of a notebook says."
    nodes = re.findall('data-node="(.*?)" data-chapters="(.*?)"', (NBS/"images/pipeline.svg").read_text("utf-8"))
    def item(node, chapters):
        here, goal = name in chapters, next((c for c in chapters if c in site.modules), None)
        text = f'<a href="{goal}.html">{html.escape(node)}</a>' if goal and not here else html.escape(node)
        return f'<li{" aria-current=step" if here else ""}>{text}</li>'
    return ('<nav class="steps" aria-label="The steps of the course"><ol>' + "".join(item(node, words.split()) for node, words in nodes)
            + '</ol><a href="index.html">the map</a></nav>')

def folded_as(source:str, said:dict, outputs:list, instrument:bool)->str:
    "What stands on a cell whose code is folded; '' for code that is to be read."
    if "solution" in said: return "Solution"
    if "exports" in said: return "Code" if instrument else ""
    drawn = any("image/png" in o.get("data", {}) for o in outputs)
    plot = [l for l in source.splitlines() if re.search(r"\b(plt|ax|axes|fig)\b", l)]
    return "Code of the figure" if drawn and len(plot) > 2 else ""

def picture_first(cells:list)->list:
    "An instrument's page begins with its first table or picture; where it was, a line says so."
    for i, cell in enumerate(cells):
        rich = [o for o in cell.get("outputs", []) if {"text/html", "image/png"} & o.get("data", {}).keys()]
        if not rich: continue
        meta = {**cell["metadata"], "tags": ["remove-input"]}
        first = {**cell, "id": f"first-{cell['id']}"[:64], "outputs": rich, "metadata": meta}
        left = {**cell, "outputs": [o for o in cell["outputs"] if o not in rich]}
        note = dict(cell_type="markdown", id=f"note-{cell['id']}"[:64], metadata={}, source="*What this draws stands at the top of the page.*")
        return [cells[0], first, *cells[1:i], left, note, *cells[i + 1:]]
    return cells

def still(body:str, before:str)->str:
    "What stands below a figure that moves in JupyterLab alone, unless the text before says so; '' for any other."
    moves = re.search(r"^\s*interact\(", body, re.M) and not re.search(r"kernel|JupyterLab", before)
    return "*One setting of several: the controls move in JupyterLab.*" if moves else ""

def code_cell(cell, body:str, tags:list[str], said:str)->dict:
    outputs = [{**o, "execution_count": None} if o["output_type"] == "execute_result" else o
               for o in cell.get("outputs", [])]
    for o in outputs:                           # a figure without its picture says nothing
        if {"image/png", "image/svg+xml", "text/html"} & o.get("data", {}).keys():
            o["data"] = {k: v for k, v in o["data"].items() if k != "text/plain"}
    return dict(cell_type="code", id=cell["id"], source=body, outputs=outputs,
                execution_count=None, metadata=dict(tags=tags, mystnb=dict(image=dict(alt=said))))

def waiting(cell:dict)->list[dict]: # the code, and what it gave
    "What settles a bet is folded until a reader has made one."
    said = "How it came out: open this after your bet"
    meta = dict(tags=["remove-input", "hide-output"], mystnb=cell["metadata"]["mystnb"] | dict(code_prompt_show=said, code_prompt_hide=said))
    return [cell | dict(outputs=[]), cell | dict(id=f"settled-{cell['id']}"[:64], metadata=meta)]

def head(nb, site:Site, file:str)->str:
    "Title, sentence, and the ways to run the page."
    import yaml
    number, name = module_of(file)
    raw = next((c for c in nb["cells"] if c["cell_type"] == "raw"), None)
    if raw is None: raise Fault(f"{file}: no title; a chapter begins with `# Title` and `> one sentence`")
    said = yaml.safe_load("".join(raw["source"]).strip().strip("-"))
    lead = " ".join(said.get("description", "").split())
    title = f"# {number + ' · ' if number else ''}{said['title']}\n\n{{.lead}}\n{lead}\n"
    if name == "index": return title
    here = f"{{download}}`Download <files/{file}>` [Reference](api/{name}.md)"
    if not site.online: return f"{title}\n{{.run}}\n{here}\n"
    user = site.repo.removeprefix("https://github.com/")
    colab = f"https://colab.research.google.com/github/{user}/blob/main/nbs/{place(file)}"
    return (f"{title}\n{{.run}}\n[Open in Colab]({colab}) {here}"
            f" In Colab, begin with `%pip install git+{site.repo}`\n")

def chapter(nb, site:Site, file:str, written:str)->dict:
    "The page of one chapter."
    number, name = module_of(file)
    cells, heading = [dict(cell_type="markdown", id="head", metadata={}, source=head(nb, site, file))], ""
    before, solved = "", []                     # solved: a solution, which waits for its check and hints
    for cell in nb["cells"]:
        source, where = "".join(cell["source"]), f"{file}, cell {cell.get('id')}"
        if solved and not re.match(r"\s*<details|(#\|.*\n)*\w+ = check\(", source): cells, solved = cells + solved, []
        if cell["cell_type"] == "markdown":
            text = markdown(source, site, where, written)
            heading, before = (re.findall(r"^#+ (.+)$", text, re.M) or [heading])[-1], text
            if text.strip(): cells.append(dict(cell_type="markdown", id=cell["id"], metadata={}, source=text))
        if cell["cell_type"] != "code" or "show_doc(" in source: continue
        said, body = split_directives(source)
        if not body.strip() and not cell.get("outputs"): continue
        if (place_of := re.search(r'\bcourse_map\("(\w+)"\)', source)) and number not in ("", "01"):     # 01 explains the map
            cells.append(dict(cell_type="markdown", id=cell["id"], metadata={}, source=steps(place_of[1], site)))
            continue
        folded, out = folded_as(body, said, cell.get("outputs", []), FLOORS.get(name) == "show"), []
        tags = ["exported"] * ("exports" in said) + ["remove-input"] * (said.get("echo") == "false") + ["hide-input"] * bool(folded)
        marks = [f"({label('built', name, n)})=" for n in defined(body) if f"{name}.{n}" in site.names]
        if "exports" in said and marks: out.append(dict(
            cell_type="markdown", id=f"at-{cell['id']}"[:64], metadata={}, source="\n".join(marks)))
        told = alt(re.sub(r"[`*$]", "", heading), body, before)
        out.append(code_cell(cell, body.rstrip(), tags, told))
        if folded: out[-1]["metadata"]["mystnb"] |= dict(code_prompt_show=folded, code_prompt_hide=folded)
        if re.search(r"^settle\(", body, re.M) and out[-1]["outputs"]: out = out[:-1] + waiting(out[-1])
        if note := still(body, before): out.append(dict(cell_type="markdown", id=f"still-{cell['id']}"[:64], metadata={}, source=note))
        if folded == "Solution": solved += out
        else: cells += out
    cells += solved
    if FLOORS.get(name) == "show": cells = picture_first(cells)
    meta = dict(kernelspec=dict(name="python3", display_name="Python 3", language="python"),
                language_info=dict(name="python", pygments_lexer="python"))
    return dict(cells=cells, metadata=meta, nbformat=4, nbformat_minor=5)

def fields_table(module:str, name:str)->str:
    "The fields of a dataclass: type, default, what its source says, the flag of `rlhf-nb train`; '' for anything else."
    import importlib
    from dataclasses import MISSING, fields, is_dataclass
    from rlhf_nb.run.stages import KINDS, comments, keys_of
    try: kind = getattr(importlib.import_module(f"rlhf_nb.{dotted(module)}"), name, None)
    except ImportError: return ""
    if not (isinstance(kind, type) and is_dataclass(kind) and fields(kind)): return ""
    said, flags = comments(kind), {k for method in KINDS for k, (owner, *_) in keys_of(method).items() if issubclass(owner, kind)}
    def cell(x): return "`" + str(x).replace("|", "\\|") + "`"
    def row(f):
        name = f.type if isinstance(f.type, str) or "[" in str(f.type) else getattr(f.type, "__name__", f.type)
        default = "required" if f.default is MISSING and f.default_factory is MISSING else "new" if f.default is MISSING else cell(
            getattr(f.default, "__name__", repr(f.default)))
        flag = [cell("--" + f.name.replace("_", "-")) if f.name in flags else ""] * bool(flags)
        meaning = "".join(cell(x) if i % 2 else re.sub(r"([\\*_\[\]$<|])", r"\\\1", x)
                          for i, x in enumerate(re.split(r"(\{\{.*?\}\})", said.get(f.name, ""))))
        return [cell(f.name), cell(plain_types(str(name))), default, meaning, *flag]
    head = ["field", "type", "default", "meaning", *["flag"] * bool(flags)]
    return "\n".join("| " + " | ".join(x) + " |" for x in [head, ["---"] * len(head), *map(row, fields(kind))])

def plain_types(text:str)->str:
    "__main__.PPOConfig, rlhf_nb.tokens.Seqs -> PPOConfig, Seqs: a page knows where they are built."
    return re.sub(r"\b(?:__main__|torch|torch\.nn\.modules\.module|collections\.abc|pathlib|rlhf_nb(?:\.\w+)*)\.(?=_?[A-Z])", "", text)

def reference(found:list[Entry], constants:list[str], site:Site, name:str, lead:str)->str:
    "The reference of one module."
    number, _ = site.modules[name]
    where = f"chapter {number}" if number else f"the notebook {name}"
    parts = [f"# rlhf_nb.{dotted(name)}\n\n{{.lead}}\n{lead}\n\nBuilt in [{where}](../{name}.ipynb)."]
    for e in found:
        source = f" · [source]({e.source})" if e.source and site.online else ""
        shorter, table = plain_types(link_names(e.text, site)), fields_table(name, e.name)
        if table: shorter = re.sub(r"\A```python\n.*?\n```\n*", "", shorter, count=1, flags=re.S) + f"\n\n{table}"
        parts.append(f"({label('api', name, e.name)})=\n## `{e.name}`\n\n{{.where}}\n"
                     f"[how it is built](#{label('built', name, e.name)}){source}\n\n{shorter}")
    if constants: parts.append("## Constants\n\n" + ", ".join(f"`{c}`" for c in constants))
    return "\n\n".join(parts) + "\n"

# ---- pages of docs/

def page(text:str, site:Site, where:str, tests:Path)->str:
    "`kl.kl_k1` leads to the reference, `../nbs/...` to a chapter, `tests/...::test` must exist."
    modules = "|".join(map(re.escape, sorted(site.modules)))
    def at(m): return f"{where}, line {text[:m.start()].count(chr(10)) + 1}"
    def name(m):
        if m[1] not in site.names: raise Fault(f"{at(m)}: the package has no {m[1]}")
        return f"[`{m[1]}`](#{label('api', *m[1].split('.', 1))})"
    def test(m):
        file = tests/m[1]
        if not file.is_file(): raise Fault(f"{at(m)}: there is no tests/{m[1]}")
        line = re.search(rf"^def {m[2]}\(", source := file.read_text("utf-8"), re.M)
        if not line: raise Fault(f"{at(m)}: tests/{m[1]} has no {m[2]}")
        n = source[:line.start()].count("\n") + 1
        said = f"`{m[1]}` {m[2].removeprefix('test_').replace('_', ' ')}"
        return f"[{said}]({site.repo}/blob/main/tests/{m[1]}#L{n})" if site.online else said
    out = re.sub(r"`tests/(\w+\.py)::(\w+)`", test, text)
    out = re.sub(rf"`((?:{modules})\.\w+)`", name, out) if modules else out
    out = link_chapters(out, site, where)
    refuse_left_overs(out, where)
    return out

def papers(text:str, site:Site, where:str, written:dict[str, str])->str:
    "A column with the chapter; author, paper and equation must stand in that chapter."
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if line.startswith("|---"): lines[i - 1], lines[i] = lines[i - 1] + " chapter |", line + "---|"
        found = re.search(r"`(\w+)\.\w+`", line)
        if not line.startswith("|") or not found: continue
        if found[1] not in site.modules: raise Fault(f"{where}, line {i + 1}: there is no module {found[1]}")
        number, file = site.modules[found[1]]
        author = re.match(r"\| (van Hasselt|[\w-]+)", line)[1]
        wanted = [author, *re.findall(r"\[(\d{4}\.\d{5})\]", line), *re.findall(r"eq\. [\d.]*\d", line)]
        for word in wanted:
            if not re.search(re.escape(word) + r"(?![\d.]*\d)", written[found[1]], re.I): raise Fault(
                f"{where}, line {i + 1}: chapter {file} does not say {word!r}")
        lines[i] = line.replace("eq. ", "eq.\u00a0") + f" [{number or found[1]}](../nbs/{place(file)}) |"
    return "\n".join(lines)

def claimed(text:str, root:Path)->str:
    "The ledger as tables, a chapter each, and how often its claims held on fresh seeds, if that was run."
    sys.path.append(str(root/"scripts"))
    from reproduce import read_claims         # of the ledger
    ledger, file = read_claims(root/"nbs"), root/"nbs/claims/report.json"
    again = {r["id"]: r for r in json.loads(file.read_text("utf-8"))} if file.is_file() else {}
    if again: text += f"\n{sum(r['verdict'] == 'holds' for r in again.values())} of {len(again)} claims held on fresh seeds.\n"
    def row(c):
        said = re.sub(r"\]\([^)]*\)", "]", " ".join(c["sentence"].split())).replace("|", "\\|")
        said = re.sub(r"[][*`]", "", said)
        if "reported" in c: return f"| {said} | as reported: {c['reported']} | {c['checked']} | |"
        number = f"{c['estimate']:+.3g}" + (f" ± {c['error']:.2g}" if "error" in c else "")
        what = f"{c['rows']}, {len(c['seeds'])} seeds" if "rows" in c else f"cell `{c['cell']}`"
        fresh = f"{again[c['id']]['estimate']:+.3g} ± {again[c['id']]['error']:.2g}, {again[c['id']]['verdict']}" if c["id"] in again else ""
        if not fresh: fresh = c.get("again", "not yet run on others")
        return f"| {said} | {number}; {what} | {c['control'].replace('|', '/')} | {fresh} |"
    for chapter in dict.fromkeys(c["chapter"].name for c in ledger.values()):
        mine = [row(c) for c in ledger.values() if c["chapter"].name == chapter]
        text += (f"\n## [{chapter.removesuffix('.ipynb').replace('_', ' ')}](../nbs/{chapter})\n\n| the chapter says | measured | control | on fresh seeds, or how it is made again |\n"
                 "|---|---|---|---|\n" + "\n".join(mine) + "\n")
    return text

def toctree(captions:dict[str, list[str]], short:dict[str, str])->str:
    "short: page -> what the sidebar calls it, where that is not its title."
    def line(name): return f"{short[name]} <{name}>" if name in short else name
    return "\n\n".join("```{toctree}\n:hidden:\n:caption: " + caption + "\n\n" + "\n".join(map(line, names)) + "\n```"
                       for caption, names in captions.items())

# ---- the landing page

ROW = re.compile(r"^\| \[([^\]]+)\]\(([\w/]+)\.ipynb\) \| (.+?) \|(?: (.+?) \|)?$", re.M)

def table_names(text:str)->dict[str, str]:
    "page -> its name in a table of chapters or notebooks, `07 kl`."
    return {module_of(m[2])[1]: m[1] for m in ROW.finditer(text)}

def picture(nb, cell_id:str, where:str)->bytes:
    "The last PNG that a cell shows."
    cell = next((c for c in nb["cells"] if c.get("id") == cell_id), None)
    found = [o["data"]["image/png"] for o in (cell or {}).get("outputs", []) if "image/png" in o.get("data", {})]
    if not found: raise Fault(f"{where}: no cell {cell_id!r} with a picture; docs/cards.toml names it")
    return base64.b64decode("".join(found[-1]))

def cards(text:str, given:dict[str, dict])->str:
    "The table of the course as cards: a picture, the name, the question, and what one sees."
    from markdown_it import MarkdownIt
    inline = MarkdownIt().renderInline
    def card(m):
        name, (label, _, question, seen) = module_of(m[2])[1], m.groups()
        if name not in given: raise Fault(f"docs/cards.toml has no card for {name}")
        said = html.escape(given[name]["alt"], quote=True)
        return (f'<li><img src="_static/cards/{name}.png" alt="{said}"><a href="{name}.html">{label}</a>'
                f'<p class="question">{inline(question)}</p><p>{inline(seen or "")}</p></li>')
    rows = [m for m in ROW.finditer(text) if re.match(r"\d\d ", m[1])]
    if not rows: raise Fault("index.ipynb: the course has no table of chapters, `| [07 kl](07_kl.ipynb) | question | what you see |`")
    begin = text.rfind("\n| chapter", 0, rows[0].start())
    listed = '\n<ul class="cards">' + "".join(map(card, rows)) + "</ul>\n"
    return text[:begin] + listed + text[rows[-1].end():]

def landing(made:dict, given:dict[str, dict], block:str)->dict: # HTML that moves
    "The first page of the site: what it is, then the live model, the chapters, and how to start."
    at = next((i for i, c in enumerate(made["cells"]) if re.search(r"^## The course", "".join(c["source"]), re.M)), None)
    if at is None: raise Fault("index.ipynb: no section `## The course`")
    cell = made["cells"].pop(at)
    course, engine = re.split(r"(?=^## The engine room)", cell["source"], flags=re.M)
    made["cells"].insert(at, {**cell, "source": engine})
    first = next(i for i, c in enumerate(made["cells"]) if "".join(c["source"]).startswith("## "))
    made["cells"].insert(first, {**cell, "id": "the_course", "source": cards(course, given)})
    text = ("## Fool the reward model\n\nIt was trained on comparisons of answers, and it can be fooled: find a *wrong* answer that it "
            "likes better than the right one. Orange words raise the reward, blue ones lower it; all of it runs in this page. "
            "Chapter [05](reward.ipynb) says why this happens, [08](ppo.ipynb) what a policy does with it. "
            "In [10](dpo.ipynb) ten labels of your own train a policy in the page.\n\n")
    made["cells"].insert(1, {**cell, "id": "live_model", "source": text + block})
    return made
