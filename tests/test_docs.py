"The site: what the adapter makes of a notebook, what the audit sees, and the whole as built."
import ast, inspect, json, re, subprocess, sys, threading, tomllib, nbformat, pytest, yaml
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT/"docs"))
import adapter, audit, finish, make_site, moving
from adapter import Fault, Site
sys.path.insert(0, str(ROOT/"scripts"))
from reproduce import read_claims

NUMBERED = sorted((ROOT/"nbs").glob("[!._]*.ipynb"))
NOTEBOOKS = [*NUMBERED, *sorted((ROOT/"nbs/engine").glob("*/[!._]*.ipynb"), key=lambda f: f.stem)]
CHAPTERS = [f for f in NOTEBOOKS if f.stem != "index"]      # the course by number, then the engine room
SITE = Site("https://github.com/somebody/rlhf-nb", "https://somebody.github.io/rlhf-nb",
            {"kl": ("10", "10_kl.ipynb"), "ppo": ("11", "11_ppo.ipynb")},
            frozenset({"kl.kl_k1", "kl.Price", "ppo.gae"}))

def real_site():
    "As in a build, but with names read from the package."
    modules = {name: (number, f.name) for f in CHAPTERS for number, name in [adapter.module_of(f)]}
    exported = [m for m in modules if (ROOT/"rlhf_nb"/f"{adapter.dotted(m).replace('.', '/')}.py").is_file()]
    return replace(SITE, modules=modules, names=frozenset(f"{module}.{n}" for module in exported
        for n in import_module(f"rlhf_nb.{adapter.dotted(module)}").__all__))

# ---- names and order
@pytest.mark.parametrize("file, want", [("10_kl.ipynb", ("10", "kl")), ("nbs/engine/data/text.ipynb", ("", "text")),
                                        ("16_self_reward.ipynb", ("16", "self_reward")), ("settings.ipynb", ("", "settings")),
                                        ("index.ipynb", ("", "index"))])
def test_module_of(file, want): assert adapter.module_of(file) == want

def test_a_shelf_for_the_course_and_one_for_each_floor():
    assert [adapter.shelf(n) for n in ("kl", "settings", "models", "pipeline")] == [
        "Course", "Engine room: base", "Engine room: base", "Engine room: run"]
    assert [adapter.dotted(n) for n in ("kl", "settings")] == ["kl", "base.settings"]
    assert [adapter.place(f) for f in ("07_kl.ipynb", "settings.ipynb", "index.ipynb")] == [
        "07_kl.ipynb", "engine/base/settings.ipynb", "index.ipynb"]

# ---- before nbdev
def notebook():
    return new_notebook(cells=[
        new_markdown_cell("# How far?\n\n> Measure it."),
        new_code_cell("#| default_exp kl\n#| export\nimport math"),
        new_code_cell("#| hide\nimport os; os.chdir('/')"),
        new_code_cell("#| export\ndef kl_k1(x): return x"),
        new_code_cell("#| exercise 5 •\ndef mine(x):\n    return x + 1"),
        new_code_cell("check(mine, exercises.mine)")])

def test_staged_shows_exports_hides_solutions_and_runs_nothing_else():
    nb = adapter.staged(notebook())
    source = [c.source for c in nb.cells]
    assert "#| exports\ndef kl_k1" in source[3] and "#| eval" not in source[3]
    assert source[1].startswith("#| default_exp") and "#| exports" in source[1]
    assert source[2].startswith("#| eval: false\n#| hide")
    assert "NotImplementedError" in source[4] and "x + 1" not in source[4]
    assert source[5].startswith("#| eval: false") and "x + 1" in source[6] and "<details>" in source[6]

def test_a_notebook_that_is_being_written_is_waited_for(tmp_path):
    file, whole = tmp_path/"10_kl.ipynb", nbformat.writes(notebook())
    file.write_text(whole[:200])
    with pytest.raises(Fault, match="10_kl.ipynb is not a whole notebook"): adapter.read(file, tries=1)
    threading.Timer(.3, lambda: file.write_text(whole)).start()
    assert len(adapter.read(file).cells) == 6

# ---- after nbdev
def test_split_directives():
    assert adapter.split_directives("#| echo: false\n#|exports\nx = 1\n#| not at the top") == (
        {"echo": "false", "exports": "true"}, "x = 1\n#| not at the top")

@pytest.mark.parametrize("text, line", [
    ("fine\n\n::: {.callout-note}", 3), ("#| echo: false", 1), ("a\n{{< video x >}}", 2),
    ("## Title {#here}", 1), ("[a](b){target=\"_blank\"}", 1), ("```\ncode\n```\n:::", 4)])
def test_left_overs_are_refused_with_their_line(text, line):
    with pytest.raises(Fault, match=f"page, line {line}:"): adapter.refuse_left_overs(text, "page")

@pytest.mark.parametrize("text", ["```python\n#| export\n:::\n```", "say `:::` and `{{`", "~~~\n{{\n~~~",
                                  "$\\frac{{a}}{b}$ and $$x_{{i}}$$", "````\n```\n#| a\n```\n````"])
def test_code_and_formulas_are_left_alone(text): adapter.refuse_left_overs(text, "page")

@pytest.mark.parametrize("text, want", [
    ("[`kl_k1`](/kl.html#kl_k1)", "[`kl_k1`](#api-kl-kl_k1)"),
    ("[`Price`](/kl.html#price)", "`Price`"),
    ("[`Price`](/kl.html#Price)", "[`Price`](#api-kl-p^rice)"),
    ("[`gone`](/kl.html#gone)", "`gone`"),
    ("[`patch`](https://fastcore.fast.ai/basics.html#patch)", "`patch`"),
    ("[`mine`](https://example.org/own)", "[`mine`](https://example.org/own)"),
    ("[words](https://somebody.github.io/rlhf-nb/kl.html)", "[words](https://somebody.github.io/rlhf-nb/kl.html)")])
def test_links_of_names(text, want):
    assert adapter.link_names(text, SITE, written="https://example.org/own") == want

def test_links_of_chapters():
    text = "[a](../10_kl.ipynb) [b](../nbs/engine/11_ppo.ipynb#x) [c](index.ipynb) [d](https://e.org/10_kl.ipynb) [e](\n10_kl.ipynb)"
    assert adapter.link_chapters(text, SITE, "p") == (
        "[a](kl.ipynb) [b](ppo.ipynb#x) [c](index.ipynb) [d](https://e.org/10_kl.ipynb) [e](kl.ipynb)")
    with pytest.raises(Fault, match="p, line 2: there is no chapter 99_gone"):
        adapter.link_chapters("\n[a](99_gone.ipynb)", SITE, "p")

def test_without_an_owner_no_page_has_a_link_that_cannot_work(tmp_path):
    (tmp_path/"test_kl.py").write_text("def test_it_works(): pass\n")
    offline = replace(SITE, repo="https://github.com/OWNER/rlhf-nb")
    raw = dict(cells=[dict(cell_type="raw", source="---\ntitle: T\ndescription: d\n---")])
    for site, n in ((SITE, 1), (offline, 0)):
        text = adapter.head(raw, site, "10_kl.ipynb") + adapter.page("`tests/test_kl.py::test_it_works`", site, "x", tmp_path)
        text += adapter.reference([adapter.Entry("kl_k1", f"{site.repo}/blob/main/x.py", "text")], [], site, "kl", "lead")
        assert text.count("colab") == n and text.count("[source]") == n and ("github.com" in text) == bool(n)
        assert "files/10_kl.ipynb" in text and "it works" in text

@pytest.mark.parametrize("installed", [True, False])
def test_a_download_installs_the_package_once_there_is_an_owner(installed, monkeypatch):
    "In Colab the second cell installs it, elsewhere it does nothing; without an owner there is no such cell."
    from IPython.core.inputtransformer2 import TransformerManager
    made = lambda: nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# T"), nbformat.v4.new_code_cell("1")])
    plain = adapter.installing(made(), "https://github.com/OWNER/rlhf-nb", "10_kl.ipynb")
    assert [c.source for c in plain.cells] == ["# T", "1"]
    title, link, install, rest = adapter.installing(made(), "https://github.com/somebody/rlhf-nb", "10_kl.ipynb").cells
    assert title.source == "# T" and rest.source == "1"
    assert "(https://colab.research.google.com/github/somebody/rlhf-nb/blob/main/nbs/10_kl.ipynb)" in link.source
    import importlib.util
    ran = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: installed or None)
    shell = lambda: type("Shell", (), {"run_line_magic": lambda self, *a: ran.append(a)})()
    exec(TransformerManager().transform_cell(install.source), {"get_ipython": shell})
    assert ran == ([] if installed else [("pip", 'install -q "git+https://github.com/somebody/rlhf-nb"')])

SHOWN = ('---\n\n[source](https://github.com/somebody/rlhf-nb/blob/main/rlhf_nb/kl.py#L17){target="_blank" '
         'style="float:right"}\n\n### kl_k1\n\n```python\ndef kl_k1(\n    x:torch.Tensor, # (b t)\n)->float\n```\n\n*Far.*')

def processed():
    "What nbdev leaves of a chapter."
    cell = lambda kind, source, id, **more: dict(cell_type=kind, source=source, id=id, metadata={}, **more)
    picture = dict(output_type="execute_result", execution_count=3, metadata={},
                   data={"image/png": "aGk=", "text/plain": "<Figure>"})
    page = dict(output_type="display_data", metadata={}, data={"text/html": "<p>", "text/plain": "<HTML>"})
    shown = dict(output_type="execute_result", metadata={}, data={"text/markdown": SHOWN})
    return dict(metadata=dict(widgets={"state": {}}), nbformat=4, nbformat_minor=5, cells=[
        cell("raw", "---\ntitle: How far?\ndescription: Measure it.\noutput-file: kl.html\n---", "r"),
        cell("markdown", "<!-- WARNING: THIS FILE WAS AUTOGENERATED! DO NOT EDIT! -->", "w"),
        cell("markdown", "## Before\n\n## A distance\n\nsee [ppo](11_ppo.ipynb)", "m"),
        cell("code", "#| echo: false\n#| output: asis\nshow_doc(kl_k1)", "s", outputs=[shown]),
        cell("code", "#| code-fold: show\n#| exports: true\nclass Price: pass\ndef kl_k1(x): return x\ndef _own(): pass", "e", outputs=[]),
        cell("code", "#| output: false", "n", outputs=[]),
        cell("code", "Markdown(table)", "t", outputs=[{**shown, "data": {"text/markdown": "## not a name"}}]),
        cell("code", "#| eval: false\ndef kl_k1(x): return 2 * x\nHTML(kl_k1(1))", "c", outputs=[picture, page])])

def test_a_chapter():
    made = adapter.chapter(processed(), SITE, "10_kl.ipynb", "")
    nbformat.validate(nbformat.from_dict(made))
    text, head = json.dumps(made), made["cells"][0]["source"]
    assert head.startswith("# 10 · How far?") and "Measure it." in head
    assert "colab.research.google.com/github/somebody/rlhf-nb/blob/main/nbs/10_kl.ipynb" in head
    assert "#|" not in text and "show_doc" not in text and "widgets" not in text and "AUTOGENERATED" not in text
    assert "](ppo.ipynb)" in text and text.count("# 10 ") == 1
    label, exported, _, drawn = made["cells"][2:]
    assert label["source"] == "(built-kl-p^rice)=\n(built-kl-kl_k1)=" and exported["metadata"]["tags"] == ["exported"]
    assert drawn["metadata"]["mystnb"]["image"]["alt"] == "Figure: A distance: see ppo" and not drawn["metadata"]["tags"]
    assert [list(o["data"]) for o in drawn["outputs"]] == [["image/png"], ["text/html"]]
    assert adapter.head(processed(), SITE, "index.ipynb") == "# How far?\n\n{.lead}\nMeasure it.\n"
    utility = adapter.head(processed(), SITE, "settings.ipynb")     # without a number, with all the rest
    assert utility.startswith("# How far?") and "files/settings.ipynb" in utility and "api/settings.md" in utility

@pytest.mark.parametrize("source, want", [
    ('x = 1\nlines(x, {"ours": y, **more}, "step", "mean loss", log_x=True)', "Figure: Two: ours, step, mean loss"),
    ('curves(rows, ["loss", "lr"], x="step");', "Figure: Two: loss, lr, step"),
    ('bars(x, {"": y}, "nats")', "Figure: Two: nats"), ('bars(x, y, f"of {n}")', "Figure: Two"), ("fig", "Figure: Two"), ("%matplotlib inline", "Figure: Two")])
def test_a_figure_is_named_by_its_section_and_its_axes(source, want): assert adapter.alt("Two", source) == want

@pytest.mark.parametrize("before, want", [
    ("## Two\n\nFirst. Rewards of *all* `six` answers, from [08](08_ppo.ipynb):", "Rewards of all six answers, from 08"),
    ("| a | b |", ""), ("## Only a heading", ""), ("- a list", ""), (" ".join(["word"] * 31), ""), ("", ""),
    ("Long before.\n\n**Bold.** Then this.", "Then this")])
def test_a_figure_is_told_in_the_words_before_it(before, want):
    assert adapter.lead_in(before) == want
    assert adapter.alt("Two", "fig", before) == ("Figure: Two: " + want if want else "Figure: Two")

def test_the_map_says_where_one_is():
    assert adapter.alt("Kl", 'course_map("kl")', "Text.") == "Figure: the map of the course: you are at kl"
    assert adapter.alt("", "course_map()") == "Figure: the map of the course" and adapter.alt("", "fig") == "Figure"

def chapter_of(cells, file):
    nb = processed()
    nb["cells"] = nb["cells"][:1] + [dict(cell_type="code", id=f"c{i}", metadata={}, source=source, outputs=outputs) for i, (source, outputs) in enumerate(cells)]
    return adapter.chapter(nb, SITE, file, "")["cells"][1:]

def test_above_a_chapter_stands_a_strip_of_steps_in_place_of_the_map():
    [strip] = chapter_of([('from rlhf_nb.show.views import course_map\ncourse_map("kl")', [])], "10_kl.ipynb")
    assert strip["cell_type"] == "markdown" and "<li aria-current=step>reference</li>" in strip["source"]
    assert '<a href="ppo.html">PPO, GRPO</a>' in strip["source"] and strip["source"].count("<li") == 9 and "<li>pairs</li>" in strip["source"]
    for source, file in (('course_map("kl")', "01_first_sitting.ipynb"), ("course_map()", "10_kl.ipynb")):       # 01 explains it
        assert chapter_of([(source, [])], file)[0]["cell_type"] == "code"

def test_code_of_figures_is_folded_and_other_code_is_not():
    picture = [dict(output_type="display_data", metadata={}, data={"image/png": "aGk="})]
    drawing = "fig, ax = plt.subplots()\nax.plot(x)\nplt.close(fig)\nfig"
    a, b, c = chapter_of([(drawing, picture), (drawing, []), ("lines(x, y)", picture)], "10_kl.ipynb")
    assert a["metadata"]["tags"] == ["hide-input"] and a["metadata"]["mystnb"]["code_prompt_show"] == "Code of the figure"
    assert not b["metadata"]["tags"] and not c["metadata"]["tags"]

def test_what_settles_a_bet_is_folded_until_the_bet():
    picture = [dict(output_type="display_data", metadata={}, data={"image/png": "aGk="})]
    a, code, out, b = chapter_of([('bet("10 x", "It rises.")', []), ('settle("10 x", True, fig, said)', picture), ("lines(x, y)", picture)], "10_kl.ipynb")
    assert not code["outputs"] and "settle" in code["source"] and "remove-input" not in code["metadata"]["tags"]
    assert out["outputs"] and out["metadata"]["tags"] == ["remove-input", "hide-output"] and "bet" in out["metadata"]["mystnb"]["code_prompt_show"]
    assert b["outputs"] and not b["metadata"]["tags"]

def test_below_a_figure_that_moves_in_lab_alone_a_line_says_so():
    picture = [dict(output_type="display_data", metadata={}, data={"image/png": "aGk="})]
    a, note, b = chapter_of([("def draw(n=1): pass\ninteract(draw);", picture), ("print('interact(draw)')", picture)], "10_kl.ipynb")
    assert "JupyterLab" in note["source"] and note["cell_type"] == "markdown" and [a["id"], b["id"]] == ["c0", "c1"]
    for said in ("Without a kernel n is 3.", "In JupyterLab choose another."): assert adapter.still("interact(draw)", said) == ""
    told = [adapter.still("".join(c.source), before) for f in NUMBERED for before, c in pairwise_cells(f)]
    assert 9 < sum(map(bool, told)) < 20

def pairwise_cells(file):
    before = ""
    for c in nbformat.read(file, 4).cells:
        if c.cell_type == "code": yield before, c
        else: before = c.source

def test_an_instruments_page_begins_with_what_it_draws_and_folds_its_code():
    page = [dict(output_type="display_data", metadata={}, data={"text/html": "<p>ledger</p>"})]
    said = [dict(output_type="stream", name="stdout", text="said")]
    first, exported, demo, note = chapter_of([("#| exports: true\nx = 1", []), ("show()", page + said)], "ledger.ipynb")
    assert first["outputs"] == page and first["metadata"]["tags"] == ["remove-input"] and demo["outputs"] == said and demo["source"] == "show()"
    assert "hide-input" in exported["metadata"]["tags"] and exported["metadata"]["mystnb"]["code_prompt_show"] == "Code" and "at the top" in note["source"]
    assert [c["id"] for c in chapter_of([("#| exports: true\nx = 1", []), ("show()", page)], "settings.ipynb")] == ["c0", "c1"]     # no instrument

def test_faults_of_a_chapter_are_named():
    bare, bad = processed(), processed()
    del bare["cells"][0]
    bad["cells"][2]["source"] += "\n\n::: {.note}"
    for nb, words in ((bare, "10_kl.ipynb: no title"), (bad, "10_kl.ipynb, cell m, line 7")):
        with pytest.raises(Fault, match=words): adapter.chapter(nb, SITE, "10_kl.ipynb", "")

def test_the_reference_of_a_module():
    [entry] = adapter.shown(processed())
    assert (entry.name, entry.source[-5:]) == ("kl_k1", "y#L17")
    text = adapter.reference([entry], ["LIMIT"], SITE, "kl", "Measure it.")
    for part in ("# rlhf_nb.kl", "(api-kl-kl_k1)=\n## `kl_k1`", "[source](https://github.com", "#built-kl-kl_k1",
                 "x:Tensor, # (b t)", "*Far.*", "`LIMIT`", "[chapter 10](../kl.ipynb)"): assert part in text, part
    assert "{target" not in text and "---" not in text
    utility = adapter.reference([entry], [], replace(SITE, modules={"settings": ("", "settings.ipynb")}), "settings", "x")
    assert "[the notebook settings](../settings.ipynb)" in utility

# ---- pages of docs/
def test_names_and_tests_on_a_page_are_links_or_faults(tmp_path):
    (tmp_path/"test_kl.py").write_text("import x\n\ndef test_it(): pass\n")
    made = adapter.page("`kl.kl_k1` and `tests/test_kl.py::test_it`, [10](../nbs/10_kl.ipynb) `kl`", SITE, "p", tmp_path)
    assert "[`kl.kl_k1`](#api-kl-kl_k1)" in made and "tests/test_kl.py#L3" in made and made.endswith("[10](kl.ipynb) `kl`")
    for text, said in (("a\n\n::: b", "p, line 3: a fenced div"), ("\n`kl.gone`", "line 2: the package has no kl.gone"),
                       ("`tests/test_no.py::test_it`", "there is no tests/test_no.py"),
                       ("`tests/test_kl.py::test_no`", "tests/test_kl.py has no test_no")):
        with pytest.raises(Fault, match=said): adapter.page(text, SITE, "p", tmp_path)

TABLE = "| paper | what | in code |\n|---|---|---|\n| Chen et al. 2016, [1604.06174](u), eq. 4.7 | x | `kl.kl_k1` |"

def test_papers_gain_their_chapter():
    made = adapter.papers(TABLE, SITE, "p", {"kl": "Chen said in 1604.06174, Eq. 4.7"})
    assert made.splitlines()[0].endswith("| chapter |") and "eq.\u00a04.7" in made and made.endswith("[10](../nbs/10_kl.ipynb) |")

@pytest.mark.parametrize("written, word", [("1604.06174, eq. 4.7", "Chen"), ("Chen, eq. 4.7", "1604.06174"),
                                           ("Chen 1604.06174 eq. 4", "eq. 4.7"), ("Chen 1604.06174 eq. 4.71", "eq. 4.7")])
def test_a_paper_its_chapter_does_not_name_is_a_fault(written, word):
    with pytest.raises(Fault, match=f"line 3: chapter 10_kl.ipynb does not say '{re.escape(word)}'"):
        adapter.papers(TABLE, SITE, "p", {"kl": written})

def test_a_paper_in_a_module_that_is_not_there():
    with pytest.raises(Fault, match="p, line 3: there is no module gone"): adapter.papers(TABLE.replace("kl.", "gone."), SITE, "p", {})

def test_the_contents_stand_in_the_sidebar_only():
    assert adapter.toctree({"Ground": ["kl", "ppo"]}, {"kl": "07 kl"}) == (
        "```{toctree}\n:hidden:\n:caption: Ground\n\n07 kl <kl>\nppo\n```")

def read(name): return (ROOT/"docs"/f"{name}.md").read_text("utf-8")

def test_the_real_pages_name_only_what_is_there():
    site = real_site()
    written = {name: (ROOT/"nbs"/adapter.place(file)).read_text("utf-8") for name, (_, file) in site.modules.items()}
    for name in make_site.PAGES:
        text = adapter.papers(read(name), site, name, written) if name == "papers" else read(name)
        if name == "claimed":
            text = adapter.claimed(text, ROOT)
            assert text.count("\n| ") >= len(read_claims(ROOT/"nbs")) and "08-" not in text and "../nbs/08_ppo.ipynb" in text
        adapter.page(text, site, f"docs/{name}.md", ROOT/"tests")
    assert len(re.findall(r"`tests/\w+\.py::\w+`", read("checked"))) >= 40
    terms = re.findall(r"^(?!:|#|\s)(.+)\n: .+\]\(\.\./nbs/[\w/]+\.ipynb\)$", read("glossary"), re.M)
    assert len(terms) >= 60 and len(terms) == len(re.findall("^: ", read("glossary"), re.M))

def test_the_chapter_of_a_word_of_the_glossary_uses_it():
    found = re.findall(r"^(?!:|#|\s)(.+)\n: .+\]\(\.\./(nbs/[\w/]+\.ipynb)\)$", read("glossary"), re.M)
    for term, file in found:
        said = " ".join(c.source for c in nbformat.read(ROOT/file, 4).cells if c.cell_type == "markdown").lower()
        said = re.sub(r"[*`_\\$]", "", " ".join(said.split()))
        words = [w for w in re.findall(r"[^\s,()]+", term.lower()) if w not in ("and", "the", "of", "a")]
        assert all(w in said for w in words), f"{file} never says {term!r}"

def test_every_paper_and_equation_that_a_chapter_cites_is_in_the_index():
    listed = read("papers")
    for file in CHAPTERS:
        text = file.read_text("utf-8")
        for number in set(re.findall(r"arxiv\.org/abs/(\d{4}\.\d{5})", text)):
            assert number in listed, f"{file.name} cites arXiv {number}: add it to docs/papers.md"
    for file in (ROOT/"rlhf_nb").rglob("*.py"):
        for author, year, eq in re.findall(r"\((\w+) (?:et al\. )?(\d{4}), (eq\. [\d.]*\d)\)", file.read_text("utf-8")):
            assert re.search(rf"\| {author}.*{year}.*{eq} .*`{file.stem}\.", listed), f"{file.name}: {author} {eq}"

def test_formulas_get_the_spaces_of_tex():
    pytest.importorskip("latex2mathml")
    from mathml import THIN, mathml
    log = "<mi>log</mi>"
    assert f"<mi>&#x003B2;</mi>{THIN}{log}{THIN}<mi>Z</mi>" in mathml(r"\beta\log Z")
    assert f"<mrow>{log}<mo" in mathml(r"\log(x)") and mathml(r"\log\,x").count("<mspace") == 1
    assert f"<mo>&#x02212;</mo>{log}{THIN}<mi>y" in mathml(r"x-\log y") and "223C" in mathml(r"y\sim\pi")
    assert mathml(r"\log").count("<mspace") == 0 and 'stretchy="true">&#x23DF;' in mathml(r"\underbrace{x}_{y}")
    assert 'display="block"' in mathml("x", "block")

# ---- audit
GOOD = ('<!doctype html><html><head><link rel="stylesheet" href="a.css"></head><body><h1 id="top1">t</h1>'
        '<a href="#top1">x</a><a href="https://example.org">out</a><img src="p.png" alt="p">'
        '<pre>:::\n#| export {{</pre><math><mi>x</mi></math></body></html>')

def faults_of(tmp_path, body, css=""):
    (tmp_path/"a.css").write_text(css)
    (tmp_path/"p.png").write_bytes(b"x")
    (tmp_path/"other.html").write_text(GOOD)
    (tmp_path/"page.html").write_text(GOOD.replace("</body>", f"\n{body}</body>"))
    return audit.audit(tmp_path)

def test_a_good_site_has_no_faults(tmp_path):
    ok = '<a href="o%74her.html#top%31">y</a><a href="mailto:a@b">m</a><img src="data:image/png;base64,x" alt="d">'
    ok += '<iframe srcdoc="&lt;p&gt;as text: &amp;lt;img src=https://e.org/x.png&amp;gt;&lt;/p&gt;"></iframe>'
    assert faults_of(tmp_path, ok, "b { background: url(p.png) } c { background: url(data:x) }") == ([], [])

@pytest.mark.parametrize("body, said", [
    ('<a href="gone.html">x</a>', "a link leads nowhere: gone.html"), ('<a href="other.html#no">x</a>', "no such place"),
    ('<a href="#no">x</a>', "no such place"), ('<img src="gone.png" alt="x">', "a file leads nowhere: gone.png"),
    ('<img src="/p.png" alt="x">', "a file leads nowhere: /p.png"), ('<meta http-equiv="refresh" content="9">', "a refresh"),
    ('<img src="p.png">', "without alt"), ('<iframe srcdoc="&lt;img src=p.png&gt;"></iframe>', "without alt"),
    ('<img src="p.png" alt=" ">', "without alt"),
    ("</code><p>::: x</p>", "opened and not closed, or the reverse: code"), ("<p>::: {.note}</p>", "not translated: '::: {.note}"),
    ("<p>\n#| echo: false</p>", "not translated"), ("<p>a {{< b >}}</p>", "not translated"),
    ("<p>$$x$$</p>", "not translated"), ("<p>[a](b.html)</p>", "not translated"),
    ("<math><mi>\\foo</mi></math>", "TeX in MathML")])
def test_faults_are_found_with_page_and_line(tmp_path, body, said):
    faults, outside = faults_of(tmp_path, body)
    assert len(faults) == 1 and not outside, faults
    assert re.match(r"page\.html, line [23]: ", faults[0]) and said in faults[0]

@pytest.mark.parametrize("body, css", [
    ('<script src="https://cdn.example.org/a.js"></script>', ""), ('<img src="//e.org/a.png" alt="a">', ""),
    ('<link rel="stylesheet" href="https://e.org/a.css">', ""), ('<img alt="a" srcset="https://e.org/a.png 2x">', ""),
    ('<div style="background:url(https://e.org/b.png)">x</div>', ""), ("<style>@import 'https://e.org/c.css';</style>", ""),
    ('<iframe srcdoc="&lt;img alt=a src=https://e.org/x.png&gt;"></iframe>', ""),
    ('<img alt="a" srcset="p.png 1x, https://e.org/a.png 2x">', ""), ('<script>import("https://e.org/a.js")</script>', ""),
    ('<svg><image href="http://e.org/i.png"/></svg>', ""), ('<link rel="preconnect" href="https://fonts.e.org">', ""),
    ("", "@import 'https://e.org/c.css';"), ("", "\n@font-face { src: url(https://e.org/f.woff) }")])
def test_whatever_leaves_the_machine_is_counted(tmp_path, body, css):
    faults, outside = faults_of(tmp_path, body, css)
    assert not faults and outside and all(", line " in o for o in outside), (faults, outside)

def test_a_file_that_a_style_wants_and_does_not_get(tmp_path):
    faults, _ = faults_of(tmp_path, "", "b { color: red }\nc { background: url(gone.png) }")
    assert faults == ["a.css, line 2: a file leads nowhere: gone.png"]

def test_constants_are_what_show_doc_does_not_show(tmp_path):
    (tmp_path/"kl.py").write_text("import math\n__all__ = ['LIMIT', 'kl_k1']\nLIMIT = 3")
    assert make_site.constants(tmp_path/"kl.py", {"kl_k1"}) == ["LIMIT"]
    assert make_site.constants(tmp_path/"gone.py", set()) == []

def test_a_warning_of_sphinx_is_told_in_the_authors_words(tmp_path):
    (tmp_path/"kl.ipynb").write_text(json.dumps(dict(cells=[dict(id="head"), dict(id="the_text")])))
    said = make_site.in_source(f"{tmp_path}/kl.ipynb:20003: WARNING: no such thing", tmp_path)
    assert said == "kl.ipynb, cell the_text, line 3: WARNING: no such thing"
    assert make_site.in_source(f"{tmp_path}/api/kl.md:7: WARNING: x", tmp_path) == "api/kl.md:7: WARNING: x"

@pytest.mark.parametrize("body, said", [
    ('<a href="gone.html">x</a>', "index.html, line 1: a link leads nowhere: gone.html"),
    ('<script src="https://e.org/a.js"></script>', "index.html, line 1: https://e.org/a.js: fetched from outside")])
def test_a_site_with_faults_does_not_replace_the_one_before(tmp_path, monkeypatch, body, said):
    for step in ("stage", "process", "write_pages"): monkeypatch.setattr(make_site, step, lambda *_: SITE)
    def sphinx(_, out): (out/"_static").mkdir(parents=True); (out/"index.html").write_text(page)
    monkeypatch.setattr(make_site, "sphinx", sphinx)
    for page in ("old", "whole"): assert make_site.build(ROOT, tmp_path/"site")["pages"] == 1
    page = body
    with pytest.raises(Fault, match=re.escape(said)): make_site.build(ROOT, tmp_path/"site")
    assert (tmp_path/"site/index.html").read_text() == "whole"

def test_a_folder_that_holds_other_things_is_left_alone(tmp_path):
    (tmp_path/"mine.txt").write_text("x")
    with pytest.raises(Fault, match="left alone"): make_site.build(ROOT, tmp_path)
    assert (tmp_path/"mine.txt").is_file()

# ---- the landing page
TABLE_OF_CHAPTERS = """## The course

Read in this order.

| chapter | question | what you see |
|---|---|---|
| [07 kl](kl.ipynb) | How far? | *three* estimates |
| [08 ppo](ppo.ipynb) | How, safely? | a `ledger` |

After it.

## The engine room

| notebook | what it does |
|---|---|
| [data](data.ipynb) | rows |
"""
CARDS = {"kl": {"alt": 'A "curve"'}, "ppo": {"alt": "A clip"}}

def test_the_landing_page_shows_a_card_for_each_chapter_first():
    page = dict(cells=[dict(id="head", source="# T"), dict(id="intro", source="![map](map.svg)\n\nWords"),
                       dict(id="start", source="## Start"), dict(id="c", source=TABLE_OF_CHAPTERS)])
    made = adapter.landing(page, CARDS, "<p data-model></p>")
    assert [c["id"] for c in made["cells"]] == ["head", "live_model", "intro", "the_course", "start", "c"]
    course, engine = made["cells"][3]["source"], made["cells"][5]["source"]
    assert made["cells"][1]["source"].endswith("\n\n<p data-model></p>")
    assert course.startswith("## The course\n\nRead in this order.") and "After it." in course
    assert engine.startswith("## The engine room") and "[data](data.ipynb)" in engine
    assert course.count("<li>") == 2 and "|---|" not in course and "chapter |" not in course
    for part in ('<img src="_static/cards/kl.png" alt="A &quot;curve&quot;">', '<a href="kl.html">07 kl</a>',
                 "How far?", "<em>three</em> estimates", "<code>ledger</code>"): assert part in course, part
    assert adapter.table_names(TABLE_OF_CHAPTERS) == {"kl": "07 kl", "ppo": "08 ppo", "data": "data"}

@pytest.mark.parametrize("text, given, said", [
    (TABLE_OF_CHAPTERS, {"kl": CARDS["kl"]}, "docs/cards.toml has no card for ppo"),
    ("## The course\n\nwords\n\n## The engine room", CARDS, "no table of chapters"), ("## Else", CARDS, "no section `## The course`")])
def test_a_landing_page_without_its_cards_is_refused(text, given, said):
    page = dict(cells=[dict(id="a", source="## Start"), dict(id="c", source=text)])
    with pytest.raises(Fault, match=said): adapter.landing(page, given, "")

def test_each_chapter_has_a_card_with_a_picture_of_its_own():
    cards = make_site.card_facts()
    course = {adapter.module_of(f)[1]: f for f in CHAPTERS if adapter.module_of(f)[0]}
    assert set(cards) == set(course), "docs/cards.toml: one card for each chapter"
    alts = [c["alt"] for c in cards.values()]
    assert len(set(alts)) == len(alts) and all(40 < len(a) < 160 and a.endswith(".") for a in alts), alts
    for name, card in cards.items():
        data = adapter.picture(json.loads(course[name].read_text("utf-8")), card["cell"], name)
        assert finish.png_size(data) and finish.png_size(finish.thumbnail(data)) == (640, 360), name
    with pytest.raises(Fault, match="kl: no cell 'gone' with a picture"):
        adapter.picture(json.loads(course["kl"].read_text("utf-8")), "gone", "kl")

def test_the_table_of_the_index_names_every_page():
    names = adapter.table_names("\n\n".join(c.source for c in nbformat.read(ROOT/"nbs/index.ipynb", 4).cells))
    want = {name: f"{number} {name}".strip() for number, name in map(adapter.module_of, CHAPTERS)}
    assert names == want, "nbs/index.ipynb: a row for each notebook, named like it"

# ---- after Sphinx
def png(width, height):
    from PIL import Image
    import io
    out = io.BytesIO()
    Image.effect_noise((width, height), 90).convert("RGB").save(out, "PNG")
    return out.getvalue()

def test_pictures_have_their_size_and_all_but_the_first_wait(tmp_path):
    (tmp_path/"a.png").write_bytes(png(30, 20))
    (tmp_path/"b.svg").write_text('<svg xmlns="x" viewBox="0 0 640.4 360"><path/></svg>')
    page = '<img alt="1" src="a.png" /><p><img alt="2" src="b.svg"><img src="data:image/png;base64,xx" alt="3"><img width="9" src="a.png" alt="4">'
    assert re.findall("<img[^>]*>", finish.pictures(page, tmp_path)) == [
        '<img alt="1" src="a.png" width="30" height="20" />',
        '<img alt="2" src="b.svg" width="640" height="360" loading="lazy" decoding="async">',
        '<img src="data:image/png;base64,xx" alt="3" loading="lazy" decoding="async">',
        '<img width="9" src="a.png" alt="4" loading="lazy" decoding="async">']
    alts = re.findall('alt="([^"]*)"', finish.pictures('<img alt="Figure: A"><img alt="x"><img alt="Figure: A"><img alt="x">', tmp_path))
    assert alts == ["Figure: A", "x", "Figure: A (2)", "x"]

def test_a_picture_of_few_colours_gets_smaller_and_looks_the_same(tmp_path):
    from matplotlib import pyplot as plt
    from PIL import Image, ImageChops
    fig, ax = plt.subplots()
    ax.plot([1, 3, 2], label="a")
    fig.savefig(tmp_path/"a.png")
    plt.close(fig)
    with Image.open(tmp_path/"a.png") as im: old = im.convert("RGB")
    size, saved = (tmp_path/"a.png").stat().st_size, finish.smaller(tmp_path/"a.png")
    assert saved > size / 4 and (tmp_path/"a.png").stat().st_size == size - saved and finish.smaller(tmp_path/"a.png") == 0
    with Image.open(tmp_path/"a.png") as im:
        assert max(high for _, high in ImageChops.difference(old, im.convert("RGB")).getextrema()) < 48
    (tmp_path/"noise.png").write_bytes(png(90, 90))
    noise = (tmp_path/"noise.png").read_bytes()
    if not finish.smaller(tmp_path/"noise.png"): assert (tmp_path/"noise.png").read_bytes() == noise

@pytest.mark.parametrize("change, page, want", [
    (finish.levelled, "<h1>a</h1><h4 class=x>b</h4><h4>c</h4><h5>d</h5><h2>e</h2><h3>f</h3><hr><header>g</header>",
     "<h1>a</h1><h2 class=x>b</h2><h3>c</h3><h4>d</h4><h2>e</h2><h3>f</h3><hr><header>g</header>"),
    (finish.focusable, '<pre><a></pre><pre class="x"><pre tabindex="0"><preface>',
     '<pre tabindex="0"><a></pre><pre tabindex="0" class="x"><pre tabindex="0"><preface>'),
    (finish.named, '<aside class="sidebar-drawer"><p class="caption" role="heading">a</p></aside><aside class="toc-drawer no-toc"></aside>',
     '<aside class="sidebar-drawer" aria-label="Pages"><p class="caption" role="heading" aria-level="2">a</p></aside>'
     '<aside class="toc-drawer no-toc" aria-label="This page"></aside>')], ids=["headings go down", "code has focus", "sides have names"])
def test_a_page_is_mended(change, page, want): assert change(page) == want

SEARCHED = """<body><nav><p>menu</p></nav><article role="main"><section id="kl">\n<span id="x"></span><h1>07 · How far?<a class="headerlink" href="#kl">#</a></h1>
<p class="run">Download</p><p>Measure <math><mi>β</mi></math>.</p><details><summary>Hint</summary><p>folded</p></details>
<div class="cell_input"><pre>%pip install gone\nfrom torch import exp\nexp(kl_k1)\nexp(2)</pre></div><div class="cell_output"><pre>printed 3.2</pre></div>
<section id="k1"><h2>k1: <code>the log-ratio</code></h2><p>! pip install gone too</p><img alt="x" src="y.png"><p>An<br>estimate</p></section><p>after</p></section></article></body>"""

def test_the_search_knows_sections_and_neither_pip_lines_nor_outputs():
    first, second = finish.sections(SEARCHED)
    assert first == dict(id="kl", heading="07 · How far?", text="Measure β. folded after", code="from torch import exp kl_k1")
    assert second == dict(id="k1", heading="k1: the log-ratio", text="An estimate", code="")

def test_finish_goes_over_a_site(tmp_path):
    frame = '<iframe title="report" srcdoc="&lt;h1&gt;r&lt;/h1&gt;&lt;h3&gt;s&lt;/h3&gt;&lt;pre&gt;t&lt;/pre&gt;"></iframe>'
    (tmp_path/"api").mkdir(); (tmp_path/"_static").mkdir(); (tmp_path/"searchindex.js").touch()
    (tmp_path/"kl.html").write_text(SEARCHED.replace("</article>", f"<h4>z</h4>{frame}</article>"))
    (tmp_path/"search.html").write_text("<h1>Search</h1>")
    (tmp_path/"api/kl.html").write_text('<article role="main"><section id="kl"><h1>rlhf_nb.kl</h1><section id="api-kl-p-rice"><h2><code><span class="pre">Price</span></code></h2>'
        '<pre><span class="n">Price</span></pre></section></section></article>')
    assert finish.finish(tmp_path, {"kl": "07 kl"}, {"kl": ["distance", "beta"]}) == dict(sections=4, saved=0)
    text = (tmp_path/"kl.html").read_text()
    assert text.count('<pre tabindex="0">') == 2 and "<h3>z</h3>" in text and text.count("&lt;") == frame.count("&lt;")
    assert "&lt;h2&gt;s&lt;/h2&gt;&lt;pre tabindex=&quot;0&quot;&gt;" in text
    assert '<a href="kl.html#api-kl-p-rice"><span class="n">Price</span></a>' in (tmp_path/"api/kl.html").read_text()
    index = json.loads((tmp_path/"_static/sections.js").read_text().removeprefix("window.rlhfSections = "))
    assert index["pages"] == [["api/kl.html", "rlhf_nb.kl", "", ""], ["kl.html", "07 · How far?", "07 kl", "distance . beta"]]
    assert [s[:3] for s in index["sections"]] == [[0, "", "rlhf_nb.kl"], [0, "api-kl-p-rice", "Price"],
                                                  [1, "", "07 · How far?"], [1, "k1", "k1: the log-ratio"]]
    assert not (tmp_path/"searchindex.js").exists()

def test_code_that_writes_a_frame_is_no_frame(tmp_path):
    "Code in colours holds quotes of tags between those of the frame."
    code = '<pre tabindex="0"><span class="s">&lt;iframe srcdoc="</span><span class="si">x</span>&gt;</pre>'
    (tmp_path/"_static").mkdir()
    (tmp_path/"kl.html").write_text(code)
    finish.finish(tmp_path)
    assert (tmp_path/"kl.html").read_text() == code

# ---- Quarto and Actions, which cannot run here
def test_quarto_lists_every_chapter_in_order():
    quarto = yaml.safe_load((ROOT/"nbs/_quarto.yml").read_text("utf-8"))
    html = quarto["format"]["html"]
    assert html["html-math-method"] == "mathml" and set(html["theme"]) == {"light", "dark"}
    assert "nbdev.yml" in quarto["metadata-files"] and quarto["website"]["navbar"]["search"] is True
    listed = []
    for part in quarto["website"]["sidebar"]["contents"]:
        listed += part["contents"] if isinstance(part, dict) else [part]
    rows = adapter.table_names((ROOT/"README.md").read_text("utf-8"))
    files = {adapter.module_of(f)[1]: f.relative_to(ROOT/"nbs").as_posix() for f in CHAPTERS}
    assert sorted(rows) == sorted(files), "the tables of nbs/index.ipynb"
    assert listed == ["index.ipynb", *map(files.get, rows)], "nbs/_quarto.yml: as in the tables of nbs/index.ipynb"

@pytest.mark.parametrize("file", NOTEBOOKS, ids=[f.stem for f in NOTEBOOKS])
def test_a_chapter_is_written_for_jupyter_not_for_one_site(file):
    for cell in nbformat.read(file, 4).cells:
        if cell.cell_type != "markdown": continue
        bad = re.search(r"^(```+|~~~+)\{(?!python)|^\([\w-]+\)=$|^:::|\{(doc|ref|term|math|download)\}`|\{\{<",
                        cell.source, re.M)
        assert not bad, f"{file.name}, cell {cell.id}: {bad[0]!r} means nothing to Jupyter"

def test_the_workflow_is_pinned_and_publishes_what_make_docs_makes():
    text = (ROOT/".github/workflows/docs.yml").read_text("utf-8")
    flow, uses = yaml.safe_load(text), re.findall(r"uses: (\S+)", text)
    assert uses and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", u) for u in uses), uses
    for word in ("make docs", "actions/upload-pages-artifact@", "actions/deploy-pages@", "path: _docs"): assert word in text
    assert flow["permissions"] == {"contents": "read"}
    assert flow["jobs"]["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}

def test_the_first_cell_holds_the_title_and_one_sentence_alone():
    "nbdev reads these two lines of it for Quarto, and drops whatever else it holds."
    more = [f.name for f in NOTEBOOKS if not re.fullmatch(r"# .+\n\n> .+", nbformat.read(f, 4).cells[0].source)]
    assert not more, f"split the first cell (the sentence on one line, the rest a cell of its own): {more}"

@pytest.mark.long
def test_nbdev_processes_notebooks_of_every_kind_as_quarto_would_get_them(tmp_path):
    import shutil
    some = {f for f in NOTEBOOKS if not adapter.module_of(f)[0]                # of the engine room one of each floor
            or adapter.module_of(f)[1] in ("tokens", "kl", "ppo")}
    some -= {f for f in some if f != min(g for g in NOTEBOOKS if g.parent == f.parent) and f.parent.parent.name == "engine"}
    shutil.copytree(ROOT/"nbs", tmp_path/"nbs", ignore=lambda folder, names: [
        x for x in names if x.endswith(".ipynb") and Path(folder, x) not in some])
    shutil.copy(ROOT/"pyproject.toml", tmp_path)
    (tmp_path/"go.py").write_text("from nbdev.serve import proc_nbs\n"
        f"if __name__ == '__main__': proc_nbs({str(tmp_path/'nbs')!r}, n_workers=1, force=True)")
    done = subprocess.run([sys.executable, "-W", "ignore", tmp_path/"go.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1500:]
    made = {f.relative_to(tmp_path/"_proc").as_posix() for f in (tmp_path/"_proc").rglob("*.ipynb")}
    assert made == {f.relative_to(ROOT/"nbs").as_posix() for f in some} and (tmp_path/"_proc/_quarto.yml").is_file()

# ---- the site as built
@pytest.mark.slow
def test_the_built_site(built):
    site, said = built
    assert audit.audit(site) == ([], []) and (not said or "requests to other machines: 0" in said)
    index = (site/"index.html").read_text("utf-8")
    for caption in ("Course", "Engine room: base", "Engine room: run", "Reference"): assert f"<span class=\"caption-text\">{caption}<" in index
    assert "images/pipeline.svg" in index
    copies = sorted(site.glob("_downloads/*/*.ipynb"), key=lambda f: f.name)    # what the pages were made from
    stands = {f.stem: index.index(f'href="{adapter.module_of(f)[1]}.html"') for f in copies}
    course = [stands[f.stem] for f in copies if adapter.module_of(f)[0]]
    assert course == sorted(course) and max(course) < min(stands[f.stem] for f in copies if adapter.place(f.name) != f.name)
    assert {f.name for f in copies} >= {f.name for f in CHAPTERS}
    for file in copies:
        number, name = adapter.module_of(file)
        page, nb = (site/f"{name}.html").read_text("utf-8"), nbformat.read(file, 4)
        title = re.match("# (.+)", nb.cells[0].source)[1]
        own = [c for c in nb.cells if c.cell_type == "markdown" and "**You need**" in c.source]
        assert page.count("<h1>") == 1 and f"{number} · " * bool(number) + title.split()[0] in page, name
        assert page.count("<strong>You need</strong>") >= len(own), f"{name}: what one needs is lost"
        urls = tomllib.loads((ROOT/"pyproject.toml").read_text("utf-8"))["project"]["urls"]
        colab = f'colab.research.google.com/github/{urls["Repository"].split("/", 3)[3]}/blob/main/nbs/{adapter.place(file.name)}'
        assert (colab in page) == ("OWNER" not in colab) and "/OWNER/" not in page, f"{name}: a link that cannot work"
        moves = {cell for cell, words, _ in moving.BLOCKS.get(name, []) if not words}       # drawn in the page; a strip stands for the map
        pictures = sum(bool({"image/png", "image/svg+xml"} & o.get("data", {}).keys()) for c in nb.cells for o in c.get("outputs", [])
                       if c.id not in moves and not (number not in ("", "01") and re.search(r'course_map\("\w', c.source)))
        assert page.count('aria-label="The steps of the course"') == (bool(number) and name not in ("first_sitting", "your_model")), name
        source = nbformat.read(ROOT/"nbs"/adapter.place(file.name), 4)      # exported answers stand open
        solutions = sum(bool(re.match(r"#\| (hide\n#\| )?exercise", c.source)) for c in source.cells)
        assert page.count("<img alt=\"Figure") == pictures, f"{name}: a figure is missing"
        assert page.count("<summary>Solution</summary>") >= solutions, name
        assert (site/"api"/f"{name}.html").is_file()
    kl = (site/"kl.html").read_text("utf-8")
    assert kl.count("<math") > 20 and 'display="block"' in kl and "MathJax" not in kl and "jsdelivr" not in kl
    reference = (site/"api/kl.html").read_text("utf-8")
    linked = re.search(r"blob/main/rlhf_nb/kl\.py#L\d+", reference)
    assert 'id="api-kl-kl-k1"' in reference and bool(linked) == ("OWNER" not in urls["Repository"])
    assert 'aria-label="token ledger"' in (site/"ledger.html").read_text("utf-8")
    assert not (site/"searchindex.js").exists()             # Sphinx's: pages, and not ranked
    index = json.loads((site/"_static/sections.js").read_text("utf-8").removeprefix("window.rlhfSections = "))
    assert {p[0] for p in index["pages"]} >= {f"{adapter.module_of(f.name)[1]}.html" for f in copies} | {"glossary.html"}
    words = json.dumps(index["sections"])
    assert "whiten" in words and "kl_k1" in words and not re.search("pip install torch|%pip", words)
    assert sum(f.stat().st_size for f in site.rglob("*")) < 60e6

@pytest.mark.slow
def test_the_built_site_names_things_once(built):
    "The sidebar like the table of the chapters; cards with pictures; no two figures of a page alike."
    site, _ = built
    index = (site/"index.html").read_text("utf-8")
    sidebar = re.findall(r'<li class="toctree-l1[^"]*"><a class="[^"]*" href="([\w-]+)\.html">([^<]+)</a>', index)
    names = [adapter.module_of(f) for f in sorted(site.glob("_downloads/*/*.ipynb"), key=lambda f: f.name)]
    want = {name: f"{number} {name}".strip() for number, name in names if name != "index"}
    assert {page: said for page, said in sidebar if page in want} == want
    cards = re.findall(r'<li><img([^>]*)><a href="(\w+)\.html">([^<]+)</a>', index)
    assert [f"{said}" for _, _, said in cards] == [want[name] for number, name in names if number]
    for tag, name, _ in cards:
        assert f"_static/cards/{name}.png" in tag and 'width="640" height="360"' in tag and 'alt="' in tag
        assert (site/f"_static/cards/{name}.png").stat().st_size < 40_000, name
    for file in site.glob("*.html"):
        text = file.read_text("utf-8")
        page = re.sub(r'srcdoc="[^"]*"', "", text)
        images = re.findall(r"<img\b[^>]*>", page)
        alts = [a for i in images for a in re.findall(r'alt="(Figure[^"]*)"', i)]
        assert len(set(alts)) == len(alts), f"{file.name}: figures with the same name: {alts}"
        assert all("width=" in i and "height=" in i for i in images if 'src="data:' not in i), file.name
        assert all('loading="lazy"' in i for i in images[1:]), file.name
        assert not re.search(r"<pre(?![^>]*tabindex)[\s>]", page), f"{file.name}: code without focus"
        levels = [int(n) for n in re.findall(r"<h([1-6])[ >]", page)]
        assert levels.count(1) == 1 and all(b <= a + 1 for a, b in zip(levels, levels[1:])), f"{file.name}: headings {levels}"
        if file.stem in want: assert "next-page" in text and "prev-page" in text, f"{file.name}: previous and next"

@pytest.mark.slow
def test_the_inventory_names_python_objects(built):
    from sphinx.util.inventory import InventoryFile
    with open(built[0]/"objects.inv", "rb") as f: found = InventoryFile.load(f, "", lambda base, url: url)
    assert "rlhf_nb.kl" in found["py:module"] and len(found["py:function"]) + len(found["py:class"]) > 500
    for kind, name in (("function", "kl.kl_k1"), ("class", "trainers.ppo_trainer.PPOConfig")):
        item = found[f"py:{kind}"][f"rlhf_nb.{name}"]
        url = getattr(item, "uri", None) or item[2]
        page, anchor = url.split("#")
        assert f'id="{anchor}"' in (built[0]/page).read_text("utf-8"), name

@pytest.mark.slow
def test_a_fault_in_a_chapter_stops_the_build(built, tmp_path):
    "A link to a page that is not there, through Sphinx, to the cell."
    pages = tmp_path/"pages"
    (pages/"_static").mkdir(parents=True)
    (pages/"mathml.py").write_text((ROOT/"docs/mathml.py").read_text())
    (pages/"conf.py").write_text((ROOT/"docs/conf.py").read_text().replace('"_static/mark.svg"', "None")
                                 .replace('["site.css"]', "[]").replace('[("site.js", {"defer": "defer"})]', "[]")
                                 .replace('["templates"]', "[]"))
    nb = new_notebook(cells=[new_markdown_cell("# A", id="one"), new_markdown_cell("b\n\n[c](gone.md)", id="two")])
    nbformat.write(nb, pages/"index.ipynb")
    with pytest.raises(Fault, match=r"index.ipynb, cell two, line \d+: WARNING.*gone\.md"):
        make_site.sphinx(pages, tmp_path/"out")

# ---- settings as tables, solutions behind their hints
def test_settings_are_a_table_with_what_their_source_says():
    site = replace(SITE, modules={"ppo_trainer": ("", "ppo_trainer.ipynb"), "kl": ("10", "10_kl.ipynb")})
    entry = adapter.Entry("PPOConfig", "", "```python\ndef PPOConfig(\n    beta:float=0.1, x:__main__.Y=1\n)->None:\n```\n\n*Settings.*")
    text = adapter.reference([entry], [], site, "ppo_trainer", "lead")
    assert "def PPOConfig" not in text and "*Settings.*" in text
    assert "| `beta` | `float` | `0.1` | coefficient of the KL to the reference, TRL's kl\\_coef | `--beta` |" in text
    assert "| `n_iterations` | `int` | `18` | rollouts | `--n-iterations` |" in text                        # of the class below it
    assert "| `kl_controller` | `Callable` | `fixed_kl_controller` | or AdaptiveKLController(target) | `--kl-controller` |" in text
    from dataclasses import fields
    from rlhf_nb.trainers.ppo_trainer import PPOConfig
    assert text.count("\n| `") == len(fields(PPOConfig)) and not re.search(r"\|  \|  \|", text)
    seqs = adapter.reference([adapter.Entry("Rollout", "", "")], [], replace(site, modules={"batches": ("", "batches.ipynb")}), "batches", "x")
    assert "| `reward` | `Tensor` | required | (b) one number per response |" in seqs and "flag" not in seqs

def test_signatures_have_plain_types_and_links_of_our_own():
    entry = adapter.Entry("kl_k1", "", "```python\ndef kl_k1(\n    x:__main__.PPOConfig, own:list[__main__._Call], y:torch.Tensor, z:rlhf_nb.base.batches.Rollout, f:collections.abc.Callable\n)\n```\n\n"
                          "*See [`kl_k1`](/engine/kl.html#kl_k1).*")
    text = adapter.reference([entry], [], SITE, "kl", "x")
    assert "x:PPOConfig, own:list[_Call], y:Tensor, z:Rollout, f:Callable" in text and ".html" not in text and "[`kl_k1`](#api-kl-kl_k1)" in text

def test_every_signature_of_the_package_can_be_written_on_its_page():
    "nbdev evaluates each type: one that a function imports for itself alone stops the build of the site."
    seen = 0
    for name in sorted(real_site().names):
        module, x = name.rpartition(".")[0], name.rpartition(".")[2]
        f = getattr(import_module(f"rlhf_nb.{adapter.dotted(module)}"), x)
        own = f.__init__ if inspect.isclass(f) else f
        if inspect.isfunction(own): seen += bool(inspect.signature(own, eval_str=True))
    assert seen > 500

def test_nbdev_documents_each_name_where_it_stands():
    "nbdev takes a decorator called patch for fastcore's, and looks for the function in the class of its first argument."
    from nbdev.doclinks import patch_name
    found = {(str(file), x.name, patch_name(x)) for file in (ROOT/"rlhf_nb").rglob("*.py") for x in ast.parse(file.read_text("utf-8")).body if isinstance(x, ast.FunctionDef)}
    assert len(found) > 900 and [x for x in found if x[1] != x[2]] == []

@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda f: f.stem)
def test_nbdev_leaves_each_definition_on_the_page(file):
    "It hides a cell with default_exp as a whole: one that defines something, too, is shown without that line."
    for cell in adapter.staged(adapter.read(file)).cells:
        if cell.cell_type == "code" and re.search("^(def|class) ", cell.source, re.M): assert "#| default_exp" not in cell.source

def test_a_solution_is_folded_behind_its_check_and_hints():
    def code(id, source): return dict(cell_type="code", id=id, source=source, outputs=[], metadata={})
    def md(id, source): return dict(cell_type="markdown", id=id, source=source, metadata={})
    nb = processed()
    nb["cells"] += [md("zt", "Write it."), code("zs", "#| solution: true\n#| exports\ndef kl_k1(x): return x"), code("zc", "kl_k1 = check(kl_k1, exercises.kl_k1)"),
                    md("zh", "<details><summary>Hint 1</summary>\n\nx\n\n</details>"), md("zn", "Next."), code("zo", "#| exports\ndef other(x): return x")]
    made = adapter.chapter(nb, SITE, "10_kl.ipynb", "")["cells"]
    ids = [c["id"] for c in made if c["id"].startswith("z")]
    assert ids == ["zt", "zc", "zh", "zs", "zn", "zo"]
    s, o = (next(c for c in made if c["id"] == i) for i in ("zs", "zo"))
    assert "hide-input" in s["metadata"]["tags"] and s["metadata"]["mystnb"]["code_prompt_show"] == "Solution" and "hide-input" not in o["metadata"]["tags"]
    assert made[made.index(s) - 1]["id"] == "at-zs"                                                          # its place in the reference comes along
    last = adapter.chapter(dict(nb, cells=nb["cells"][:-2]), SITE, "10_kl.ipynb", "")["cells"]
    assert last[-1]["id"] == "zs"

def test_the_audit_refuses_the_sites_own_host_and_main(tmp_path):
    (tmp_path/"api").mkdir()
    page = '<html><body><a href="https://x.org/rlhf/kl.html">a</a> <pre>{}</pre></body></html>'
    (tmp_path/"api/kl.html").write_text(page.format("__main__._X"))
    (tmp_path/"kl.html").write_text(page.format("loss_fn '__main__.scaled'"))          # an output counts, too
    faults, _ = audit.audit(tmp_path, "https://x.org/rlhf")
    assert [("host" in f, "__main__" in f) for f in faults].count((True, False)) == 2 and sum("__main__" in f for f in faults) == 2
    assert len(audit.audit(tmp_path)[0]) == 2
    (tmp_path/"kl.html").write_text('<html><body><pre>if __name__ == "__main__": main()</pre></body></html>')    # no module
    assert len(audit.audit(tmp_path)[0]) == 1

@pytest.mark.parametrize("name, f", [
    ("forward KL", lambda u: -u.log()),
    ("Jensen-Shannon", lambda u: u * u.log() - (u + 1) * ((u + 1) / 2).log()),
    ("alpha .5", lambda u: (u**.5 - .5 * u - .5) / (.5 * -.5))])
def test_the_laboratorys_f_divergences_are_those_of_their_paper(name, f):
    "Wang et al. 2024: -log σ(β f'(π_w / ref_w) - β f'(π_l / ref_l)), f' by autograd."
    import torch
    w, l, ref_w, ref_l = torch.tensor([[-1.5, -4.], [-2., -.3], [-1.1, -5.], [-3., -.9]], dtype=torch.double)
    def slope(x):
        u = x.exp().requires_grad_()
        return torch.autograd.grad(f(u).sum(), u)[0]
    want = -torch.nn.functional.logsigmoid(.3 * (slope(w - ref_w) - slope(l - ref_l)))
    torch.testing.assert_close(moving.f_dpo_loss(name)(w, l, ref_w, ref_l, .3), want)

def test_the_loss_laboratory_holds_the_whole_family():
    from rlhf_nb.show.token_loss import LOSS_METHODS
    family, pairs = moving.pushes(ratio=1.1, advantage=1., length=8, gap=.5, beta=.3)
    assert {*family} == {*LOSS_METHODS} == {"REINFORCE", "RLOO", "GRPO", "Dr. GRPO", "DAPO", "GSPO", "LUSPO", "CISPO", "SAPO", "PPO"}
    assert {*pairs} == {"DPO", "cDPO", "robust DPO", "hinge", "IPO", "DPO, forward KL", "DPO, Jensen-Shannon", "DPO, alpha .5"}
