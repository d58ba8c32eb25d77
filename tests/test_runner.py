"Chapters run without a browser, and the report of a run."
import json, re, signal, subprocess, sys, nbformat, pytest
from html.parser import HTMLParser
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from rlhf_nb.book import copies, runner
from rlhf_nb.book.command import main
from rlhf_nb.book.copies import copy_chapters
from rlhf_nb.book.runner import Outcome, report_page, run_chapter, run_chapters, show_output, written_by_run
from test_command import linux, marked, stopped, wait_for
from test_copies import contents, full_disk

# ---- one run of four notebooks, by the command
@pytest.fixture(scope="module")
def done_run(tmp_path_factory):
    "Three notebooks: one fails, one is no notebook, one is well and shows a slider."
    home = tmp_path_factory.mktemp("run")
    cells = [new_markdown_cell("# Fails <i>late</i>\n\n> It draws, then divides."),
             new_code_cell("import matplotlib.pyplot as plt; plt.plot([1, 2]);"),
             new_markdown_cell("## The sum"), new_code_cell("print('sum', 40 + 2)"),
             new_code_cell("def f(): return 1/0\nf()  # the wrong <cell>"),
             new_code_cell("print('never ' + 'reached')")]
    nbformat.write(new_notebook(cells=cells), home/"bad.ipynb")
    (home/"none.ipynb").write_text("{")
    cells = [new_markdown_cell("# Well\n\n> All is\n> well.\n\nMore."), new_code_cell(
        "import os, sys; from pathlib import Path\nprint('python', sys.executable)\n"
        "print('around', os.listdir())\nprint('lines')\nfor i in range(40): print(i)"),
        new_code_cell("from ipywidgets import interact\ninteract(lambda x: print('x is', x), x=3);"),
        new_code_cell("Path('left.txt').write_text('x')")]
    nbformat.write(new_notebook(cells=cells), home/"well.ipynb")
    other = home.parent/"elsewhere/kernels/python3"         # a kernel some user installed
    other.mkdir(parents=True)
    (other/"kernel.json").write_text(json.dumps(dict(argv=["false"], display_name="not ours", language="python")))
    before = contents(home)
    with pytest.MonkeyPatch.context() as env:
        env.setenv("JUPYTER_PATH", str(other.parents[1]))
        env.setenv("JUPYTER_PREFER_ENV_PATH", "0")
        done = subprocess.run([sys.executable, "-m", "rlhf_nb", "run", *sorted(home.glob("*.ipynb")), "--out", home/"out"],
                              capture_output=True, text=True)
    assert {k: v for k, v in contents(home).items() if not k.startswith("out/")} == before      # sources as they were
    return home, done, (home/"out/report.html").read_text("utf-8")

def test_a_run_goes_on_after_a_failure_and_exits_non_zero(done_run):
    _, done, _ = done_run
    assert done.returncode == 1 and "failed: bad, none" in done.stdout and "Traceback" not in done.stderr
    for row in ("bad .* s  ZeroDivisionError: division by zero$", "none .* s  this is no notebook", "well .* s  ok$"):
        assert re.search("^" + row, done.stdout, re.M), row

def test_a_run_saves_what_came_out_of_an_empty_folder_with_this_python(done_run):
    "A widget stays as what it shows at first: answered, it could swallow a reply that the run waits for."
    home, _, _ = done_run
    bad, well = (nbformat.read(home/f"out/{name}.ipynb", 4) for name in ("bad", "well"))
    assert bad.cells[3].outputs[0].text == "sum 42\n" and bad.cells[4].outputs[0].ename == "ZeroDivisionError"
    assert not bad.cells[5].outputs
    text = well.cells[1].outputs[0].text
    assert f"python {sys.executable}\n" in text and "around []" in text
    assert "".join(o.text for o in well.cells[2].outputs) == "x is 3\n" and "widgets" not in well.metadata

class Tags(HTMLParser):
    "Every tag and attribute of a page; tags close."
    def __init__(self, page):
        super().__init__()
        self.found, self.open = [], []
        self.feed(page)
    def handle_starttag(self, tag, attrs):
        self.found += [(tag, k, v) for k, v in attrs] or [(tag, "", "")]
        if tag in ("details", "summary", "table", "pre", "style", "script"): self.open.append(tag)
    def handle_endtag(self, tag):
        if tag in self.open: assert self.open.pop() == tag

def test_the_report_is_one_file_that_loads_nothing_and_says_what_failed(done_run):
    _, _, page = done_run
    tags = Tags(page)
    loads = [v for tag, k, v in tags.found if k in ("src", "srcset", "data", "poster", "action") or k == "href" and tag == "link"]
    assert tags.open == [] and not any(word in page for word in ("script", "url(", "@import"))
    assert len(loads) == 1 and loads[0].startswith("data:image/png;base64,iVBOR")
    assert "2 of 3 failed" in page and "the wrong &lt;cell&gt;" in page and "Fails &lt;i&gt;late" in page
    assert re.search(r"bad</a><td class=failed>failed<td class=num>\d+\.\d s<td>ZeroDivisionError", page)
    assert re.search(r"well</a><td class=ok>ok<td class=num>\d+\.\d s<td>All is well.", page)
    assert "<h3>The sum</h3><pre>sum 42</pre>" in page and "never" not in page and "more lines" in page and "\n39" not in page

# ---- whose files
def one_cell(file, source="print(1)", title="# One"):
    nbformat.write(new_notebook(cells=[new_markdown_cell(title), new_code_cell(source)]), file)
    return file

def test_the_trainer_that_lies_beside_a_notebook_is_the_one_that_runs(tmp_path):
    (tmp_path/"my_rlhf.py").write_text("mine = 7")
    [done] = run_chapters([one_cell(tmp_path/"one.ipynb", "import my_rlhf; print(my_rlhf.mine)")], tmp_path/"out")
    assert not done.error and done.notebook.cells[1].outputs[0].text == "7\n"

@pytest.fixture
def never_run(monkeypatch):
    "Whatever is refused is refused before anything runs."
    def run_chapter(*_): raise AssertionError("a chapter ran")
    monkeypatch.setattr(runner, "run_chapter", run_chapter)

def test_a_run_in_a_learners_copy_replaces_no_answer(tmp_path, monkeypatch, never_run, capsys):
    (tmp_path/"shipped").mkdir()
    monkeypatch.setattr(copies, "notebooks", lambda: tmp_path/"shipped")
    for name in ("00_a.ipynb", "01_b.ipynb"): one_cell(tmp_path/"shipped"/name)
    copy_chapters(mine := tmp_path/"mine", "exercises")
    one_cell(mine/"00_a.ipynb", "my_answer = 1")
    before = contents(mine)
    monkeypatch.chdir(mine)
    for words in (["a", "--out", "."], ["--out", str(mine)], ["00_a.ipynb", "-o", "."]):
        assert main(["run", *words]) == 2
        complaint = capsys.readouterr().err
        assert "copy of the workbook" in complaint and complaint.count("\n") == 1
    assert contents(mine) == before

@pytest.mark.parametrize("name", ["one.ipynb", "report.html"])
@pytest.mark.parametrize("content", ["somebody's work", "", "<!-- rlhf-nb run 0 -->", '{"metadata": {"rlhf_nb_run": "x"}}'])
def test_a_run_writes_over_no_file_that_no_run_wrote(tmp_path, never_run, name, content):
    (out := tmp_path/"out").mkdir()
    (out/name).write_text(content)
    with pytest.raises(ValueError, match=rf"no run wrote .*{name}.*nothing was run"):
        run_chapters([one_cell(tmp_path/"one.ipynb")], out)
    assert contents(out) == {name: content.encode()}

def test_two_notebooks_of_one_name_are_refused(tmp_path, never_run):
    for folder in "ab": (tmp_path/folder).mkdir()
    files = [one_cell(tmp_path/folder/"one.ipynb") for folder in "ab"]
    with pytest.raises(ValueError, match="two notebooks are called one.ipynb"): run_chapters(files, tmp_path/"out")
    assert not (tmp_path/"out").exists()

HOSTILE = new_notebook(cells=[new_markdown_cell("# One"), new_code_cell("1", outputs=[new_output("stream", text="\ud800")])])

@pytest.fixture
def pretended(monkeypatch, tmp_path):
    "A run without a kernel, whose output and error hold half a character and orders to the terminal."
    monkeypatch.setattr(runner, "run_chapter", lambda file, *_: Outcome(
        file.stem, 1., "\ud800\x1b[2Jgone", "\ud800", nbformat.from_dict(HOSTILE)))
    return one_cell(tmp_path/"one.ipynb"), tmp_path/"out"

def test_a_run_goes_over_its_own_files_until_somebody_changes_them(pretended, capsys):
    file, out = pretended
    (out/"notes").mkdir(parents=True)                        # other files may lie there
    for _ in range(2): run_chapters([file], out)
    said = capsys.readouterr().out
    assert "\x1b[2J" not in said and said.encode()
    nb = nbformat.read(out/"one.ipynb", 4)                   # opened and saved: cells are as they were
    nb.metadata["language_info"], nb.cells[1].execution_count = {"name": "python"}, 9
    (out/"one.ipynb").write_text(json.dumps(nb))
    run_chapters([file], out)
    nb.cells.append(new_markdown_cell("my remark"))
    (out/"one.ipynb").write_text(json.dumps(nb))
    with pytest.raises(ValueError, match="changed since"): run_chapters([file], out)
    assert "my remark" in (out/"one.ipynb").read_text()
    (out/"one.ipynb").unlink()
    page = (out/"report.html").read_text()
    (out/"report.html").write_text(page.replace("One", "Two"))
    with pytest.raises(ValueError, match="report.html"): run_chapters([file], out)

def test_a_full_disk_during_a_run_is_told_and_what_was_saved_stays(pretended, tmp_path, monkeypatch, capsys):
    files, out = [one_cell(tmp_path/f"{i}.ipynb") for i in range(3)], tmp_path/"out"
    real = runner.atomic_write
    monkeypatch.setattr(runner, "atomic_write", lambda file, text: full_disk() if file.name == "1.ipynb" else real(file, text))
    assert main(["run", *map(str, files), "-o", str(out)]) == 2
    complaint = capsys.readouterr().err.splitlines()[-1]
    assert "no room is left on the disk" in complaint and "1 chapters before are saved" in complaint
    assert written_by_run(out/"0.ipynb") and written_by_run(out/"report.html") and not (out/"1.ipynb").exists()

# ---- kernels that do not end, or end too soon
@pytest.mark.parametrize("source, timeout, error", [("import time; time.sleep(60)", 1, "Timeout"), ("import os; os._exit(3)", 900, "DeadKernel")])
def test_a_cell_that_takes_too_long_or_kills_its_kernel_is_a_failure(tmp_path, source, timeout, error):
    done = run_chapter(one_cell(tmp_path/"one.ipynb", source), timeout=timeout)
    assert error in done.error and done.cell == source and done.seconds < 50

@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_a_run_as_a_whole(tmp_path, number):
    word = f"sleep-of-{tmp_path.name}-{number}"
    source = f"""import subprocess, sys
from pathlib import Path
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", {word!r}])
Path({str(tmp_path/'began')!r}).touch()
while True: pass"""
    files = [one_cell(tmp_path/f"{i}.ipynb", source) for i in range(3)]
    status, out, err = stopped(["run", *files, "-o", tmp_path/"out"], (tmp_path/"began").exists, number)
    assert status == 128 + number and "Traceback" not in err and err.rstrip().endswith("stopped"), err
    assert "ok" not in out and not list((tmp_path/"out").glob("*.ipynb"))   # no other chapter was begun
    wait_for(lambda: not marked(word), "a process of a cell goes on")
    wait_for(lambda: not marked(str(tmp_path)), "a kernel goes on")

# ---- no output becomes a tag
def test_outputs_are_shown_safely():
    def shown(kind, **data): return show_output(new_output(kind, **data))
    assert shown("stream", text="\x1b[31m<script>\x1b[0m & more\n") == "<pre>&lt;script&gt; &amp; more</pre>"
    svg = shown("display_data", data={"image/svg+xml": '<svg xmlns="http://www.w3.org/2000/svg"><image href="http://far.away/x"/></svg>'})
    assert "far.away" not in svg and svg.startswith('<img alt="figure" src="data:image/svg+xml;base64,')
    assert shown("display_data", data={"text/html": "<img src=http://far.away>"}) == ""
    assert shown("execute_result", data={"text/plain": "interactive(children=())"}) == ""

EVIL = ['"><script>alert(1)</script>', "' onerror='alert(1)", '" onload="alert(1)', "</pre><img src=x onerror=alert(1)>",
        "javascript:alert(1)", "\ud800<b>", "\x00\x1b]8;;http://far.away\x07x", "AA==\" onerror=\"alert(1)", "]]><svg onload=x>",
        "data:text/html,<script>x</script>", ["a", "b"], {"a": "<script>"}, 7, None]
ALLOWED = {"html": {"lang"}, "meta": {"charset", "name", "content"}, "title": {""}, "style": {""}, "h1": {""}, "p": {"", "class"},
           "table": {""}, "tr": {""}, "th": {"", "class"}, "td": {"", "class"}, "a": {"href"}, "details": {"", "open"},
           "summary": {""}, "b": {"class"}, "div": {"id"}, "pre": {""}, "h3": {""}, "code": {""}, "img": {"alt", "src"}}

@pytest.mark.parametrize("evil", EVIL, ids=repr)
def test_no_output_of_any_kind_becomes_a_tag(evil):
    "Of a chapter whose name, title, headings, printed text and error are hostile too."
    text = evil if isinstance(evil, str) else "x" + str(evil)
    for kind in ("image/png", "image/svg+xml", "image/jpeg", "text/html", "text/plain", "text/latex", "text/markdown",
                 "application/javascript", "application/json", "application/vnd.jupyter.widget-view+json"):
        cells = [new_markdown_cell(f"# {text}\n\n> {text}"), new_code_cell("1"), new_markdown_cell(f"## {text}"), new_code_cell("2")]
        nb = new_notebook(cells=cells)
        nb.cells[1].outputs = [nbformat.NotebookNode(output_type="display_data", metadata={}, data={kind: evil})]
        nb.cells[3].outputs = [nbformat.NotebookNode(output_type="stream", name="stdout", text=text)]
        page = report_page([Outcome(text, 1., text, text, nb), Outcome("b", 1., "", "", nb)])
        page.encode()                                            # UTF-8 can write it
        for tag, key, value in Tags(page).found:
            assert key in ALLOWED.get(tag, ()), (tag, key, value)
            if key == "src": assert re.fullmatch(r"data:image/(png|svg\+xml);base64,[A-Za-z0-9+/=]*", value), value
            if key == "href": assert value.startswith("#")

def test_the_report_shows_code_as_code():
    nb = new_notebook(cells=[new_markdown_cell("# A\n\n> What `transformers` opens, and a<b.")])
    assert "What <code>transformers</code> opens, and a&lt;b." in report_page([Outcome("a", 1., "", "", nb)])
