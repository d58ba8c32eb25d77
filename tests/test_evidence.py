"Experiments keep their rows, differences are paired, whatever else differs is said."
import json, math, re, statistics
import pytest, torch
import tiny_runs
from rlhf_nb.book.command import main
from rlhf_nb.run.evidence import Experiment, compare_folders, difference, differing, read_rows, row_of_run, run_caption
from rlhf_nb.run.pipeline import train

def rows(name="PPO", settings=None, **found): # measure -> a number, or a list, for seeds 0, 1, ...
    return [dict(name=name, settings=settings or dict(lr=1.), seed=i, found=dict(zip(found, x)), cpu_seconds=2. + i)
            for i, x in enumerate(zip(*found.values()))]

def test_a_difference_is_paired_by_seed():
    a, b = rows("PPO", dict(lr=2.), gold=[1., 5., 9.]), rows("PPO", dict(lr=1.), gold=[.5, 4., 8.])
    got = difference(a, b, "gold", ["lr"])
    assert got.mean == pytest.approx(2.5 / 3) and got.pairs == 3 and got.unit == "seed" and got.holds
    assert got.error == pytest.approx(math.sqrt(2 * (1 / 6)**2 + (1 / 3)**2) / math.sqrt(2) / math.sqrt(3))
    back = difference(b, a[::-1], "gold", ["lr"])              # whatever their order
    assert (back.mean, back.error) == (pytest.approx(-got.mean), pytest.approx(got.error)) and back.holds
    some = difference(a, b[1:], "gold", ["lr"])                # seed 0 is not in both
    assert (some.mean, some.error, some.pairs, some.holds) == (1., 0., 2, True)
    one = difference(a, b[1:2], "gold", ["lr"])
    assert one.mean == 1. and math.isnan(one.error) and not one.holds    # no error, no claim

@pytest.mark.parametrize("gap, holds", [(2.1, True), (1.9, False), (-2.1, True)])
def test_a_difference_holds_beyond_two_errors(gap, holds):
    noise = [-1., 1., -1., 1., 0.]                             # sd 1, so its mean has error 1 / √5
    a = rows("A", gold=[gap / math.sqrt(5) + x for x in noise])
    assert difference(a, rows("B", gold=[0.] * 5), "gold", ["method"]).holds is holds

def test_questions_are_paired_where_there_is_one_seed():
    a, b = rows("A", gold=[[1., 4., 2.]]), rows("B", gold=[[0., 2., 2.]])
    got = difference(a, b, "gold", ["method"])
    assert (got.mean, got.pairs, got.unit) == (1., 3, "question") and got.error == pytest.approx(1 / math.sqrt(3))
    with pytest.raises(ValueError): difference(a, rows("B", gold=[[0., 2.]]), "gold", ["method"])
    many = difference(rows("A", gold=[[1., 3.], [5., 5.]]), rows("B", gold=[[1., 1.], [1., 2.]]), "gold", ["method"])
    assert (many.mean, many.pairs, many.unit) == (2.25, 2, "seed")     # seeds are what a claim is about

def test_all_that_differs_is_said():
    a = rows("PPO", dict(start="sft", config=dict(lam=.8, beta=.1), data="d"), gold=[3., 4.])
    b = rows("RLOO", dict(start="sft", config=dict(lam=.95, beta=.1), group=8), gold=[1., 2.5])
    want = dict(method=("PPO", "RLOO"), data=("d", None), group=(None, 8)) | {"config.lam": (.8, .95)}
    assert differing(a, b) == want and differing(b, a) == {k: (y, x) for k, (x, y) in want.items()}
    got = difference(a, b, "gold", ["method", "group"])
    assert sorted(got.unsaid) == ["config.lam", "data"] and not got.holds and got.mean == 1.75
    assert str(got).endswith(f"NOT CONTROLLED: {', '.join(got.unsaid)}") and "config.lam (0.8 against 0.95)" in str(got)
    assert differing(rows("A", dict(ref=None), gold=[1.]), rows("A", dict(lr=1), gold=[1.])) == dict(ref=(None, None), lr=(None, 1))
    assert "NOT" not in str(difference(a, b, "gold", want)) and difference(a, b, "gold", want).holds

@pytest.mark.parametrize("words, call", [
    ("did you mean 'gold'", lambda a: difference(a, a, "gould", [])),
    ("no difference between these 'lr'", lambda a: difference(a, rows("B", gold=[1.]), "gold", ["lr"])),
    ("no seed was run in both: 1 against 0", lambda a: difference(a[1:], a[:1], "gold", [])),
    ("no rows", lambda a: difference(a, [], "gold", [])),
    ("several experiments", lambda a: difference(a + rows("B", gold=[1.]), a, "gold", []))])
def test_what_cannot_be_compared(words, call):
    with pytest.raises(ValueError, match=words): call(rows("A", gold=[1., 2.]))

def counting(home, **settings):
    calls = []
    def run(settings, seed):
        calls.append((settings["lr"], seed))
        if seed == 9: raise KeyboardInterrupt
        return dict(gold=settings["lr"] * seed)
    return Experiment("SFT", run, dict(lr=.5, steps=3) | settings, home), calls

def test_nothing_is_run_twice_and_nothing_is_lost(tmp_path):
    home = tmp_path/"rows.jsonl"
    x, calls = counting(home)
    with pytest.raises(KeyboardInterrupt): x.over([4, 2, 9, 3])
    assert [r["seed"] for r in read_rows(home)] == [4, 2]
    assert [r["found"]["gold"] for r in x.over([2, 3, 4])] == [1., 1.5, 2.] and calls == [(.5, 4), (.5, 2), (.5, 9), (.5, 3)]
    assert [r["found"]["gold"] for r in x.but(lr=2.).over([2])] == [4.] and calls[-1] == (2., 2)      # other settings, another row
    again, later = counting(home)
    row, = again.over([3])
    assert not later and row["settings"] == dict(lr=.5, steps=3) and {"cpu_seconds", "version"} <= row.keys()
    other = Experiment("DPO", lambda s, seed: dict(gold=-1.), x.settings, home)                      # another name, too
    assert other.over([3])[0]["found"]["gold"] == -1. and len(read_rows(home)) == 5

def test_rows_of_others_are_kept_and_a_tensor_of_one_number_is_a_number(tmp_path):
    home = tmp_path/"rows.jsonl"
    inner, _ = counting(home)
    def run(settings, seed): return dict(gold=torch.tensor(1.5) + inner.over([seed])[0]["found"]["gold"])
    assert [r["found"]["gold"] for r in Experiment("outer", run, {}, home).over([2, 4])] == [2.5, 3.5]
    assert [(r["name"], r["seed"]) for r in read_rows(home)] == [("SFT", 2), ("outer", 2), ("SFT", 4), ("outer", 4)]

def test_a_setting_that_is_not_there_and_one_that_cannot_be_kept(tmp_path):
    x, calls = counting(tmp_path/"rows.jsonl")
    with pytest.raises(ValueError, match="did you mean 'steps'"): x.but(step=4)
    with pytest.raises(TypeError, match="settings of SFT: .*pass a name"): x.but(lr=len).over([1])
    assert not calls and x.settings == dict(lr=.5, steps=3)

@pytest.mark.parametrize("text", ["{}\n", "my notes\n", '{"name": "SFT", "settings": {}, "seed": 1}\n', "[1]\n"])
def test_a_file_that_is_not_ours_is_kept(tmp_path, text):
    home = tmp_path/"notes.jsonl"
    home.write_text(json.dumps(rows(gold=[1.])[0]) + "\n" + text)
    x, calls = counting(home)
    with pytest.raises(ValueError, match=r"notes.jsonl, line 2: (no \"|broken JSON|not an object)"): x.over([1])
    assert not calls and home.read_text().endswith(text)

def test_a_caption_says_what_was_run():
    a, b = rows("PPO", dict(lr=1., beta=.1), gold=[1., 2.]), rows("RLOO", dict(lr=1., beta=.3), gold=[1., 2.])
    assert run_caption(a, b) == ("lr 1.0\nPPO: beta 0.1; seeds 0, 1; 2.5 CPU s a run\nRLOO: beta 0.3; seeds 0, 1; 2.5 CPU s a run")
    assert run_caption(a, b, a).splitlines()[-1] == "PPO; seeds 0, 1; 2.5 CPU s a run"  # as the first: said there
    assert "seeds 0 to 3;" in run_caption(rows(gold=[1.] * 4)) and "seeds 0, 1, 3;" in run_caption([*rows(gold=[1.] * 2), *rows(gold=[1.] * 4)[3:]])
    del a[0]["cpu_seconds"], a[1]["cpu_seconds"]
    assert run_caption(a) == "lr 1.0, beta 0.1\nPPO; seeds 0, 1"

@pytest.mark.parametrize("method, kept", [("sft", {"eval_loss"}), ("spin", {"eval_accuracy"}), ("dpo", {"eval_loss", "eval_accuracy", "eval_margin"})])
def test_of_rows_a_run_keeps_what_its_numbers_are_means_of(tmp_path, monkeypatch, method, kept): # spin's margin is in nats, its loss's times beta
    monkeypatch.chdir(tmp_path)
    tiny_runs.fill_home(tmp_path)
    train(tiny_runs.tiny(method, **dict(beta=.1) if method != "sft" else {}), "run", registry=tiny_runs.TINY)
    found = json.loads((tmp_path/"run/run.json").read_text())["results"]
    assert {k: statistics.fmean(x) for k, x in found["held_out"].items()} == pytest.approx({k: found[k] for k in kept}, abs=1e-3)

def test_two_runs_of_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_runs.fill_home(tmp_path)
    for name, beta in (("a", .1), ("b", .4)): train(tiny_runs.tiny("dpo", beta=beta), name, registry=tiny_runs.TINY)
    a, b = row_of_run("a"), row_of_run("b")
    assert a["name"] == "dpo" and "seed" not in a["settings"] and a["found"]["steps"] == 4
    got = difference([a], [b], "eval_loss", ["beta"])
    assert got.differs == dict(beta=(.1, .4)) and got.mean == a["found"]["eval_loss"] - b["found"]["eval_loss"] != 0
    with pytest.raises(ValueError, match="missing"): row_of_run("m")
    text = compare_folders("a", "b")
    assert re.search(r"^beta +0.1 +0.4$", text, re.M) and text.count("nothing") == 0
    shown = float(re.search(r"^eval_loss +\S+ +\S+ +(\S+)", text, re.M)[1])
    assert shown == pytest.approx(got.mean, rel=1e-3) and "not paired" not in text
    each = [json.loads((tmp_path/name/"run.json").read_text())["results"] for name in ("a", "b")]
    for k in ("eval_loss", "eval_accuracy", "eval_margin"):             # what the rows measure makes the number
        assert all(x["held_out"][k] and statistics.fmean(x["held_out"][k]) == pytest.approx(x[k], abs=1e-4) for x in each)
        gaps = [p - q for p, q in zip(*[x["held_out"][k] for x in each])]
        error = statistics.stdev(gaps) / len(gaps)**.5
        assert re.search(rf"^{k} .* ± {error:.2g} \(paired by row\)$", text, re.M)
    train(tiny_runs.tiny("dpo", beta=.1, seed=3), "other", registry=tiny_runs.TINY)            # other rows are held out
    assert "not paired" in (said := compare_folders("a", "other")) and "by row" not in said
    assert "nothing" in compare_folders("a", "a") and "held-out" not in text
    for name, rewards in (("a", [1., 4., 2.]), ("b", [2., 2., 0.])):    # prompts in another order, one that only b has
        told = [dict(prompt=p, reward_after=r) for p, r in zip("xyz" if name == "a" else "zyw", rewards)]
        (tmp_path/name/"held_out.jsonl").write_text("".join(json.dumps(r) + "\n" for r in told))
    assert "held-out reward: +1 ± 1 (paired by question, 2 pairs)" in compare_folders("a", "b")
    assert main(["compare", "a"]) == 2 and main(["compare", "a", "b"]) == 0
