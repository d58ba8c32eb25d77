"The committed figures of the check: of these batteries, exercise by exercise."
import hashlib, json
from importlib import import_module
from pathlib import Path
ROOT = Path(__file__).resolve().parents[1]

def test_the_figures_that_are_committed_are_of_these_batteries_and_keep_what_was_reached():
    kept = json.loads((ROOT/"benchmarks/results/tutor.json").read_text("utf-8"))
    modules = {name: import_module(name) for name in kept["batteries"]}
    for name, sha in kept["batteries"].items():
        assert hashlib.sha256((ROOT/f"tests/{name}.py").read_bytes()).hexdigest() == sha, "run " + kept["command"]
    for name, x in kept["exercises"].items():
        assert (x["wrong"], x["right"]) == tuple(sum(len(vars(m)[k].get(name, ())) for m in modules.values()) for k in ("WRONG", "RIGHT")), name
    total = kept["total"]
    assert total["wrong"] >= 600 and total["right"] >= 120 and total["right_refused"] == 0
    assert total["accepted"] <= .01 * total["wrong"] and total["named"] >= .95 * total["wrong"]
    assert total["falsely"] <= .01 * total["wrong"]   # by words
    hard = {name: x for name, x in kept["exercises"].items() if x["stars"] == 3}
    assert len(hard) == 5 and all(x["named"] >= .8 * x["wrong"] for x in hard.values())

def test_the_figures_of_the_blind_battery_are_of_these_answers():
    kept = json.loads((ROOT/"benchmarks/results/tutor_blind_8.json").read_text("utf-8"))
    for name, sha in kept["batteries"].items():
        assert hashlib.sha256((ROOT/f"tests/{name}.py").read_bytes()).hexdigest() == sha, "run " + kept["command"]
    total = kept["total"]
    assert (total["wrong"], total["right"], total["right_refused"]) == (670, 134, 0) and total["accepted"] <= .01 * total["wrong"]
    assert all(x["accepted"] <= 1 for x in kept["exercises"].values()) and len(kept["exercises"]) == 67
