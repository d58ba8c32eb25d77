"A search over settings: all of them, all seeds, nothing twice, nothing of another run."
import json
import pytest
import tiny_runs
from rlhf_nb.base.folder import write_marker
from rlhf_nb.book.command import main
from rlhf_nb.run.evidence import difference, read_rows
from rlhf_nb.run.sweep import sweep_table

FILE = 'data = "pairs.jsonl"\nmodel = "m"\nbeta = [0.05, 0.4]\nn_steps = 2\nbatch_size = 8\neval_rows = 6\n'

@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tiny_runs.fill_home(tmp_path))
    (tmp_path/"dpo.toml").write_text(FILE)
    return tmp_path

def sweep(*more): return main(["sweep", "dpo", "--settings", "dpo.toml", "-o", "runs", "--seeds", "2", *more])

def test_the_best_setting_stands_first_which_has_the_lowest_loss_or_the_highest_accuracy():
    groups = [[dict(name="dpo", settings=dict(beta=beta), seed=0, found=dict(eval_loss=x, eval_accuracy=x))] for beta, x in ((.05, .7), (.1, .2), (.4, .5))]
    def order(quality): return [line.split()[0] for line in sweep_table(groups, quality).splitlines()[1:-1]]
    assert order("eval_loss") == ["2", "3", "1"] and order("eval_accuracy") == ["1", "3", "2"]

def test_every_setting_gets_every_seed_and_a_second_call_trains_nothing(home, capsys):
    assert sweep() == 0
    said = capsys.readouterr().out
    assert "eval_accuracy" in said and "beta 0.05" in said and "beta 0.4" in said and "2 settings, 2 seeds each" in said
    rows = read_rows("runs/rows.jsonl")
    assert [(r["settings"]["beta"], r["seed"]) for r in rows] == [(.05, 0), (.05, 1), (.4, 0), (.4, 1)]
    assert difference(rows[:2], rows[2:], "eval_accuracy", ["beta"]).pairs == 2     # what it keeps can be compared
    assert (home/"runs/sweep.svg").read_text().count("<text") + (home/"runs/sweep.svg").read_text().count("<!--") > 2
    written = {f: f.stat().st_mtime_ns for f in home.glob("runs/setting-*/*") if f.is_file()}
    assert sweep() == 0 and {f: f.stat().st_mtime_ns for f in written} == written
    assert capsys.readouterr().out.splitlines()[-5:] == said.splitlines()[-5:]

def test_a_stopped_search_trains_what_is_missing_and_a_changed_file_is_refused(home, capsys):
    assert sweep() == 0
    marker = home/"runs/setting-02-seed-1/run.json"
    before = json.loads(marker.read_text())["results"]
    (home/"runs/setting-02-seed-1").rename(home/"away")
    assert sweep() == 0 and json.loads(marker.read_text())["results"]["eval_loss"] == before["eval_loss"]
    left = marker.parent/"work.removed"                                         # a kill when all was done but the removal
    left.mkdir()
    write_marker(left/"work.json", "rlhf-nb train", files=[], run=json.loads(marker.read_text())["run"])
    assert sweep() == 0 and not left.exists()
    with open("pairs.jsonl", "a") as f: f.write(json.dumps(tiny_runs.pair_rows(1)[0]) + "\n")
    capsys.readouterr()
    assert sweep() == 2 and "belongs to another run" in capsys.readouterr().err

@pytest.mark.parametrize("text, words", [
    (FILE.replace("beta", "betta"), "betta"), (FILE + "seed = 3\n", "--seeds"), ("beta = [.1]", "no TOML"),
    (FILE.replace("[0.05, 0.4]", "[]"), "empty"), (FILE.replace("0.4", "-1.0"), "beta"),
    (FILE.replace('data = "pairs.jsonl"\n', ""), "data")])
def test_a_file_that_cannot_be_run_is_refused_before_anything_is(home, capsys, text, words):
    (home/"dpo.toml").write_text(text)
    assert sweep() == 2
    assert words in capsys.readouterr().err and not (home/"runs").exists()

def test_a_dry_run_writes_nothing_and_slips_are_told(home, capsys):
    assert sweep("--dry-run") == 0
    said = capsys.readouterr().out
    assert "beta 0.05" in said and "4 such runs; nothing was trained" in said and not (home/"runs").exists()
    assert main(["sweep", "dpoo", "--settings", "dpo.toml", "-o", "runs"]) == 2 and "'dpo'" in capsys.readouterr().err
    assert sweep("--seeds", "0") == 2 and "1 or more" in capsys.readouterr().err
    assert main(["sweep", "dpo", "--settings", "nofile.toml", "-o", "runs"]) == 2 and "nofile" in capsys.readouterr().err