"Every entry of the ledger stands in its chapter and says what its rows say; a hand that changes one is seen."
import json, math, os, sys
import pytest
from rlhf_nb.book.command import main
from test_project import ROOT
sys.path.insert(0, str(ROOT/"scripts"))
from claims import chapter_text, exceptions, faults, uncovered
from reproduce import claim_rows, claim_verdict, measure_claim, plan, printed_claim, printed_on, read_claims, reproduce, value_at

LEDGER = read_claims(ROOT/"nbs")

@pytest.mark.parametrize("name", LEDGER)
def test_a_claim_is_what_its_rows_say(name): assert faults(LEDGER[name]) == []

def test_exceptions_are_of_sentences_that_stand_and_have_reasons():
    for entry in exceptions():
        chapter, = (ROOT/"nbs").glob(f"{entry['chapter']}*.ipynb")
        assert entry["reason"] and entry.keys() == {"chapter", "sentence", "reason"}
        assert any(" ".join(entry["sentence"].split()) in cell for cell in chapter_text(chapter)), entry["sentence"]

def test_each_claiming_sentence_has_an_entry_or_a_reason_for_none():
    known, chapters = exceptions(), sorted((ROOT/"nbs").glob("[0-9]*.ipynb"))
    left = [f"{c.stem}: {s}" for c in chapters for s in uncovered(c, LEDGER.values(), known)]
    assert len(chapters) == 24
    assert not left, "write an entry in nbs/claims or a reason in scripts/no_claims.toml for\n" + "\n".join(left)

RUNS = [dict(run=name, seed=seed, settings=dict(lam=lam, beta=.1), gold=x, curve=[dict(kl=0.), dict(kl=x / 4)], mark=[x, x + 2])
        for name, lam, found in (("short", .8, (3., 3.4, 3.8)), ("long", .95, (2.5, 3.2, 3.))) for seed, x in enumerate(found, 7)]
TEXT = "Only λ to .95\nlowers the true score by .50, to 2.90 in the mean, at 0.73 nats. PPO is then 2.5 points above 0."
ENTRY = '''[[claim]]
id = "08-lambda"
sentence = "lowers the true score by .50, to 2.90 in the mean, at 0.73 nats."
rows = "ppo.json"
a = { run = "long" }
b = { run = "short" }
measure = "gold"
differs = ["lam"]
control = "b"
estimate = -0.5
error = 0.173
seeds = [7, 8, 9]
fails_if = ">= 0"
numbers = { "0.73" = "a curve.-1.kl" }
command = "none"

[[claim]]
id = "08-cell"
sentence = "PPO is then 2.5 points above 0."
cell = "table"
prints = 'PPO +([-−\\d.]+) ± ([\\d.]+)'
minus = 'SFT +([-−\\d.]+) ± ([\\d.]+)'
estimate = 2.5
error = 0.5
control = "SFT, in the same table"
fails_if = "<= 0"
again = "the chapter computes it when it runs: rlhf-nb run 08_ppo"
'''

@pytest.fixture
def book(tmp_path):
    "A copy of a course: one chapter, its rows, its ledger."
    output = dict(output_type="stream", name="stdout", text=["PPO  1.5 ± 0.3\n", "SFT  −1 ± 0.4\n"])
    cells = [dict(cell_type="markdown", id="text", metadata={}, source=TEXT.splitlines(True)),
             dict(cell_type="code", id="table", metadata={}, source=[], outputs=[output], execution_count=None)]
    (tmp_path/"08_ppo.ipynb").write_text(json.dumps(dict(cells=cells)))
    for name in ("results", "claims"): (tmp_path/name).mkdir()
    (tmp_path/"results/ppo.json").write_text(json.dumps(RUNS))
    (tmp_path/"claims/08.toml").write_text(ENTRY)
    return tmp_path

def wrong(book): return [x for claim in read_claims(book).values() for x in faults(claim, book)]

def edit(path, was, now):
    text = path.read_text()
    assert was in text
    path.write_text(text.replace(was, now, 1))

def test_a_right_entry_has_no_fault(book): assert wrong(book) == []

@pytest.mark.parametrize("file, was, now, words", [
    ("08_ppo.ipynb", "lowers the true", "lowers the trye", "not in the chapter"),              # a sentence
    ("08_ppo.ipynb", "PPO  1.5", "PPO  1.9", "estimate is 2.9"),                               # a cell's number
    ("claims/08.toml", "= -0.5", "= -0.52", "estimate is -0.5, not -0.52"),                    # a number
    ("claims/08.toml", "0.173", "0.1", "error is 0.173"),
    ("claims/08.toml", '["lam"]', '["lam", "beta"]', "no difference between these 'beta'"),    # a setting
    ("claims/08.toml", '["lam"]', "[]", "also differs: lam"),
    ("claims/08.toml", '">= 0"', '"<= 0"', "fails"),
    ("claims/08.toml", '">= 0"', '">= -.3"', "suggests"),                                      # by less than two errors
    ("claims/08.toml", "[7, 8, 9]", "[7, 8]", "seeds are [7, 8, 9]"),
    ("claims/08.toml", '"long"', '"lang"', "no row of ppo.json"),
    ("claims/08.toml", '"gold"', '"golt"', "did you mean 'gold'"),
    ("claims/08.toml", "ppo.json", "dpo.json", "dpo.json"),
    ("claims/08.toml", "curve.-1.kl", "curve.0.kl", "0.73 is 0"),
    ("claims/08.toml", 'numbers = { "0.73" = "a curve.-1.kl" }\n', "", "0.73 is in the sentence"),
    ("claims/08.toml", 'control = "b"\n', "", "missing field control"),
    ("claims/08.toml", "control = ", "contrlo = ", "unknown field contrlo"),
    ("claims/08.toml", 'again = "the', 'control_2 = "the', "missing field again"),
    ("claims/08.toml", "run 08_ppo", "run 08_ppp", "no chapter 08_ppp"),
    ("claims/08.toml", '"none"', '"python benchmarks/gone.py"', "no benchmarks/gone.py"),
    ("claims/08.toml", '"table"', '"tabel"', "did you mean 'table'"),
    ("results/ppo.json", '"gold": 2.5', '"gold": 2.8', "estimate is -0.4"),
    ("results/ppo.json", '"lam": 0.95, "beta": 0.1', '"lam": 0.95, "beta": 0.3', "several experiments")])
def test_a_change_by_hand_is_seen(book, file, was, now, words):
    edit(book/file, was, now)
    assert any(words in x for x in wrong(book)), wrong(book)

def test_a_number_of_the_text_is_compared_with_the_rows(book):
    for file in ("08_ppo.ipynb", "claims/08.toml"): edit(book/file, "to 2.90", "to 2.80")      # both by the same hand
    assert wrong(book) == ["2.80 is in the sentence and not in what was measured"]

def test_less_than_two_errors_must_be_said(book):
    for file in ("08_ppo.ipynb", "claims/08.toml"): edit(book/file, "lowers the true score", "suggests a lower true score")
    edit(book/"claims/08.toml", '">= 0"', '">= -.3"')
    assert wrong(book) == []

@pytest.mark.parametrize("fails_if, mean, error, verdict", [
    ("<= 0", .5, .2, "holds"), ("<= 0", .5, .25, "suggests"), ("<= .3", .2, .01, "fails"), (">= 0", -.5, .2, "holds"),
    (">= -.3", -.5, .11, "suggests"), (">= 0", .1, .01, "fails"), ("outside -.1 .1", .02, .03, "holds"),
    ("outside -.1 .1", .06, .03, "suggests"), ("outside -.1 .1", .2, .01, "fails"), ("!= 0", .3, .16, "holds"),
    ("!= 0", .3, .14, "fails"), ("<= 0", .5, math.nan, "suggests")])
def test_verdicts(fails_if, mean, error, verdict): assert claim_verdict(fails_if, mean, error) == verdict

def rows_of(tmp_path, data, **claim):
    (tmp_path/"x.json").write_text(json.dumps(data))
    return claim_rows(dict(id="x", rows="x.json") | claim, "a", tmp_path/"x.json", "gold")

def test_rows_of_older_files(tmp_path):
    rows = [dict(run="GRPO", seed=3, gold=2., samples=8), dict(run="RLOO", seed=3, gold=4., samples=8)]
    nested = dict(world=rows, table=dict(GRPO="GRPOConfig(lr=0.1, fn=<function group at 0x7f>, std=True)", RLOO=dict(lr=1)))
    row, = rows_of(tmp_path, nested, rows="x.json:world", settings="table", a=dict(run="GRPO"))
    assert row == dict(name="", seed=3, found=dict(value=2.), settings=dict(samples=8, lr="0.1", fn="<function group", std="True"))
    assert rows_of(tmp_path, nested, rows="x.json:world", settings="table", a=dict(run="RLOO"))[0]["settings"] == dict(samples=8, lr=1)
    assert rows_of(tmp_path, dict(rows=rows), a=dict(run="RLOO"))[0]["settings"] == dict(run="RLOO", samples=8)
    told = [rows[0] | dict(settings="beta .1")]                  # a sentence is one setting
    assert rows_of(tmp_path, told, a=dict(run="GRPO"))[0]["settings"] == dict(run="GRPO", samples=8, settings="beta .1")
    with pytest.raises(ValueError, match="several rows of seed 3"): rows_of(tmp_path, rows, a=dict(samples=8))
    named = [dict(method="A", run=1, gold=5.)]
    assert rows_of(tmp_path, named, a=dict(method="A"), seed="run")[0]["seed"] == 1

def test_rows_of_experiments_and_of_questions(tmp_path):
    data = [dict(name="PPO", settings=dict(config=dict(lam=lam, beta=.1)), seed=4, found=dict(gold=x))
            for lam, x in ((.8, [1., 2., 4.]), (.95, [2., 4., 4.]))]
    (tmp_path/"x.jsonl").write_text("".join(json.dumps(r) + "\n" for r in data))
    claim = dict(id="x", rows="x.jsonl", a=dict(name="PPO", config=dict(lam=.95)), b=dict(name="PPO", config=dict(lam=.8)),
                 measure="gold", differs=["config.lam"])
    d = measure_claim(claim, tmp_path/"x.jsonl")
    assert (d.mean, d.pairs, d.unit, d.unsaid) == (1., 3, "question", []) and d.error == pytest.approx(1 / math.sqrt(3))
    del claim["b"], claim["differs"]
    assert measure_claim(claim, tmp_path/"x.jsonl").mean == pytest.approx(10 / 3)       # a group alone

def test_two_measures_of_the_same_rows(tmp_path, book):
    claim = read_claims(book)["08-lambda"] | dict(measure=["curve.-1.kl", "curve.0.kl"], b=dict(run="long"), differs=[])
    assert measure_claim(claim, book/"results/ppo.json").mean == pytest.approx(2.9 / 4)
    assert value_at(dict(a=[1, dict(b=2)]), "a.-1.b") == 2
    with pytest.raises(ValueError): value_at(dict(a=[1]), "a.1")

def test_a_printed_number(book):
    claim = read_claims(book)["08-cell"]
    assert printed_claim(claim) == (2.5, .5)
    alone = claim | dict(prints="PPO +([\\d.]+)", minus="SFT +([-−\\d.]+)")
    assert math.isnan(printed_claim(alone)[1]) and printed_claim(alone | dict(exact="a sum")) == (2.5, 0.)

@pytest.mark.parametrize("text, words", [("claim = 3", "claim|list|int"), ("[[clam]]\n", "no \\[\\[claim"), (ENTRY + ENTRY, "stands twice"),
                                         ("a = .5", "no \\[\\[claim")])
def test_a_file_that_is_no_ledger(book, text, words):
    (book/"claims/08.toml").write_text(text)
    with pytest.raises((ValueError, TypeError), match=words): read_claims(book)

def test_sentences_without_an_entry_are_listed(book):
    text = "## More is better\n\nPPO ran once. DPO needs two\nmodels. It says $x > .5$ is `.5`.\n\n| a | .5 |\n\n- GRPO never wins here."
    cells = [dict(cell_type="markdown", id="a", metadata={}, source=[text])]
    (book/"08_ppo.ipynb").write_text(json.dumps(dict(cells=cells)))
    chapter = book/"08_ppo.ipynb"
    assert uncovered(chapter, [], []) == ["DPO needs two models.", "- GRPO never wins here."]
    assert uncovered(chapter, [dict(chapter=chapter, sentence="DPO needs\ntwo models")], []) == ["- GRPO never wins here."]
    assert uncovered(chapter, [], [dict(chapter="08", sentence="never wins")]) == ["DPO needs two models."]

MAKE = """import json, sys
first, n, out = sys.argv[1:]
open("ran", "a").write("x")
rows = [dict(run=r, seed=s, settings=dict(lam=l), gold=g + s) for r, l, g in (("short", 1, 3.), ("long", 2, 2.)) for s in range(int(first), int(first) + int(n))]
json.dump(rows, open(out, "w"))
"""
def test_claims_on_fresh_seeds(book, tmp_path, monkeypatch):
    (tmp_path/"make.py").write_text(MAKE)
    monkeypatch.setattr("reproduce.notebooks", lambda: tmp_path/"nbs")
    claim = read_claims(book)["08-lambda"] | dict(command="python make.py {first} {n} {out}")
    monkeypatch.setenv("PATH", str(tmp_path))                    # no python there: it is ours that runs
    other = claim | dict(id="other", fails_if="<= 0")
    report = reproduce([claim, read_claims(book)["08-cell"], other], range(20, 23), tmp_path/"out")
    assert [(r["id"], r["estimate"], r["pairs"], r["verdict"], r["seeds"]) for r in report] == [
        ("08-lambda", -1., 3, "holds", [20, 21, 22]), ("other", -1., 3, "fails", [20, 21, 22])]
    assert (tmp_path/"ran").read_text() == "x" and json.loads((tmp_path/"out/report.json").read_text()) == report
    reproduce([claim], range(20, 23), tmp_path/"out")
    assert (tmp_path/"ran").read_text() == "x"                   # what is there is not run again
    reproduce([claim], range(30, 33), tmp_path/"out")
    assert (tmp_path/"ran").read_text() == "xx"
    with pytest.raises(ValueError, match="status 3"): reproduce([claim | dict(command="exit 3")], range(2), tmp_path/"out")

def test_a_cell_on_fresh_rows(book, tmp_path, monkeypatch):
    monkeypatch.setattr("reproduce.notebooks", lambda: book)
    def cell(i, source): return dict(cell_type="code", id=i, metadata={}, outputs=[], execution_count=None, source=[source])
    read = "rows = [json.loads(line) for line in (notebooks()/'results/x.jsonl').read_text().splitlines()]\n"
    cells = [cell("imports", "import json\nfrom rlhf_nb.base.files import notebooks"), cell("costly", "1 / 0"),
             cell("table", read + "print('mean', sum(r['x'] for r in rows if r['seed'] in SEEDS) / 2, '± 0.5')")]
    (book/"08_ppo.ipynb").write_text(json.dumps(dict(cells=cells, metadata={}, nbformat=4, nbformat_minor=5)))
    for file, xs in (("results/x.jsonl", (1, 2)), ("fresh.jsonl", (5, 6))): (book/file).write_text(
        "".join(json.dumps(dict(name="a", settings={}, seed=x, found={}, x=x)) + "\n" for x in xs))
    claim = dict(id="x", chapter=book/"08_ppo.ipynb", cell="table", prints="mean ([\\d.]+) ± ([\\d.]+)", file="x.jsonl",
                 after=["imports"], code="SEEDS = {seeds}")
    assert printed_on(claim, book/"fresh.jsonl", range(5, 7)) == (5.5, .5)       # not 1.5, and the costly cell is not run
    with pytest.raises(ValueError, match="x: NameError.*notebooks"): printed_on(claim | dict(after=[]), book/"fresh.jsonl", range(5, 7))
    with pytest.raises(ValueError, match="gone"): printed_on(claim | dict(after=["gone"]), book/"fresh.jsonl", range(5, 7))
    cells[2]["source"] = ["print('mean', sum(json.loads((notebooks()/'results/y.json').read_text())), '± 0.5')"]
    (book/"08_ppo.ipynb").write_text(json.dumps(dict(cells=cells, metadata={}, nbformat=4, nbformat_minor=5)))
    for file, xs in (("results/y.json", [1, 2]), ("fresh.json", [5, 6])): (book/file).write_text(json.dumps(xs))
    assert printed_on(claim | dict(file="y.json"), book/"fresh.json", range(5, 7)) == (11., .5)      # a list of other rows

def test_the_plan_counts_each_command_once(book, monkeypatch):
    monkeypatch.setattr("reproduce.notebooks", lambda: book)
    rows = [dict(run=run, seed=s, cpu_s=c) for run, c in (("a b", 2.), ("c", 5.)) for s in (1, 2)]
    (book/"results/x.json").write_text(json.dumps(dict(one=rows, two=rows[:1], note=3)))
    def costs(*commands, report=()): return [(len(c), s, how) for _, c, s, how in plan([dict(rows="x.json:one", command=c) for c in commands], report)]
    assert costs("run --part one", "run --part one") == [(2, 35., "its rows")]   # five seeds of 2 + 5
    assert costs("run", 'run --part one --only "a b" -o x') == [(1, 45., "its rows"), (1, 10., "its rows")]
    assert costs("run", report=[dict(command="run", cpu_seconds=8., seeds=[1, 2])]) == [(1, 20., "measured")]

@pytest.mark.skipif(os.name == "nt", reason="Windows counts no children")
def test_cpu_seconds_of_all_tries(book, tmp_path, monkeypatch):
    busy = "import time\nwhile time.process_time() < .3: pass\n"
    (tmp_path/"make.py").write_text(busy + "import os\nif not os.path.exists('tried'): open('tried', 'w'); sys = 1/0\n" + MAKE)
    monkeypatch.setattr("reproduce.notebooks", lambda: tmp_path/"nbs")
    claim = read_claims(book)["08-lambda"] | dict(command="python make.py {first} {n} {out}")
    with pytest.raises(ValueError, match="status 1"): reproduce([claim], range(20, 23), tmp_path/"out")
    report = reproduce([claim, claim | dict(id="other")], range(20, 23), tmp_path/"out")
    assert report[0]["cpu_seconds"] == report[1]["cpu_seconds"] > .5          # two tries of .3, one command
    assert reproduce([claim], range(20, 23), tmp_path/"out") == report[:1]    # what is there costs what it cost

def test_the_command(capsys):
    assert main(["reproduce"]) == 0 and "08-lambda" in capsys.readouterr().out
    assert main(["reproduce", "08-lamda"]) == 2 and "08-lambda" in capsys.readouterr().err
    assert main(["reproduce", "--all", "--seeds", "10"]) == 2 and "such as 10-14" in capsys.readouterr().err

def test_without_a_checkout_it_says_so(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("rlhf_nb.book.command.notebooks", lambda: tmp_path/"nbs")
    for words in ([], ["08-lambda"], ["--all", "--seeds", "10-14"], ["--help"]):
        assert main(["reproduce", *words]) == 2 and "needs a checkout of the project" in capsys.readouterr().err
