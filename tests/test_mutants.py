"scripts/mutants.py: its list fits the package as it is, and one of them is caught, another one escapes."
import json, sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT/"scripts"))
import house, mutants

MUTANTS, MODULES = mutants.read_list(), sorted(house.modules())

@pytest.mark.parametrize("module", MODULES)
def test_each_module_has_mutants_that_apply_to_lines_it_has_once(module):
    own = [m for m in MUTANTS if m.module == module]
    assert own, "write one in scripts/mutants.toml: a line, the line made wrong, why, and the tests that should fail"
    for m in own: mutants.mutate(mutants.file_of(ROOT, module).read_text("utf-8"), m) # ValueError: how to mend the list

def test_the_list_is_long_without_repeats_and_names_tests_that_are_there():
    assert len(MUTANTS) >= 150 and all(m.module in MODULES or mutants.file_of(ROOT, m.module).is_file() for m in MUTANTS)
    assert not [k for k, n in Counter(m.key for m in MUTANTS).items() if n > 1]
    for m in MUTANTS:
        assert len(m.why) > 15 and any((ROOT/f"tests/test_{name}.py").is_file() for name in m.tests), m

def mutant(line, wrong): return mutants.Mutant(1, "toy", line, wrong, "", ())

def test_a_line_is_found_by_its_code_and_must_be_there_once():
    text = "def f(x):\n    return x + 1  # the next\ny = 1\ny = 1\n"
    assert mutants.mutate(text, mutant("return x + 1", "return x")) == text.replace("x + 1", "x")
    for line, wrong, words in (("return x", "return 0", "0 times in toy: copy the line"), ("y = 1", "y = 2", "2 times"),
                               ("return x + 1", "return  x + 1", "the line itself")):
        with pytest.raises(ValueError, match=words): mutants.mutate(text, mutant(line, wrong))
    with pytest.raises(SyntaxError): mutants.mutate(text, mutant("return x + 1", "return x +"))

def test_a_moved_line_is_found_in_an_older_package(tmp_path):
    for name, text in (("old", "a = 1\n"), ("toy", "b = 2\nc = 3\n"), ("other", "b = 2\n"), ("twice", "d = 4\n"), ("thrice", "d = 4\n")):
        (tmp_path/"rlhf_nb").mkdir(exist_ok=True)
        (tmp_path/f"rlhf_nb/{name}.py").write_text(text)
    found = [mutants.find(tmp_path, mutant(line, ""), True) for line in ("a = 1", "b = 2", "d = 4", "e = 5")]
    assert [f and f.stem for f in found] == ["old", "toy", None, None]

@pytest.mark.long
def test_what_escapes_and_what_is_caught(monkeypatch, tmp_path, capsys):
    "In a toy project: caught twice, escaped once, and a test that fails anyway."
    (tmp_path/"rlhf_nb").mkdir()
    (tmp_path/"tests").mkdir()
    (tmp_path/"rlhf_nb/__init__.py").write_text("")
    (tmp_path/"rlhf_nb/toy.py").write_text("def one(): return 1\ndef two(): return 2\ndef three(): return 3\n")
    (tmp_path/"tests/test_a.py").write_text("from rlhf_nb.toy import *\ndef test_one(): assert one() == 1\n"
                                            "def test_three(): assert three() == 3\n")
    (tmp_path/"tests/test_b.py").write_text("def test_b(): assert 0\n")
    (tmp_path/"scripts").mkdir()
    (tmp_path/"scripts/mutants.toml").write_text("".join(
        f"[[toy]]\nline = '{line}'\nwrong = '{wrong}'\nwhy = 'because'\ntests = ['{test}']\n" for line, wrong, test in (
            ("def one(): return 1", "def one(): return 2", "a"), ("def two(): return 2", "def two(): return 3", "a"),
            ("def three(): return 3", "def three(): return three()", "a"), ("def one(): return 1", "def one(): return 4", "b"))))
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "HEAVY", ["pytest"])
    monkeypatch.setattr(sys, "argv", ["mutants.py", "--json", str(tmp_path/"out.json")])
    monkeypatch.setattr(mutants.read_list, "__defaults__", (tmp_path/"scripts/mutants.toml",))
    mutants.main()
    rows = json.loads((tmp_path/"out.json").read_text())["now"]["mutants"]
    assert [row["result"] for row in rows] == ["caught", "escaped", "caught", "unsure"]
    assert rows[0]["by"] == "tests/test_a.py::test_one"
    said = capsys.readouterr().out
    assert "66.7%" in said and "escaped 2, toy: because" in said and "unsure 4, toy: tests/test_b.py::test_b fails" in said
    assert (tmp_path/"rlhf_nb/toy.py").read_text().startswith("def one(): return 1\n"), "the checkout is never edited"
