"""The doctor game: what it deals can be told apart by who reads, not by who guesses; calls are counted as they say."""
import io, random, re
import pytest
from rlhf_nb.book.command import main
from rlhf_nb.book.doctor_game import call_run, deal, game_data, measure_run, price_paid, verdict_text, walk_page

def numbers(text): return [float(x) for x in re.findall(r"[-+]?\d+\.\d+(?:e[-+]\d+)?", text)]

def diagnosis(log, seen): # what an informed player reads from the log and from what can be bought, and from nothing else
    found = set()
    row = seen["mask"].splitlines()[0].partition("     ")[0]
    if row.startswith("[<|user|>") or "[<|assistant|>]" in row: found.add("prompt_mask")
    if any(r.partition("     ")[0].endswith(" <eos>") for r in seen["mask"].splitlines()): found.add("eos_masked")
    share = [int(x) for x in re.findall(r"(\d+)% of tokens", seen["ratio"])]
    if share[0] > 2: found.add("temperature")
    elif max(share) > 2: found.add("stale")
    surprise, entropy = numbers(seen["surprise"].splitlines()[0])
    if surprise > entropy + 2: found.add("shifted")
    weights = [numbers(x) for x in seen["weights"].splitlines()]
    if weights[0][1] < 1e-6 and weights[0][0] > 1e-3: found.add("lr_zero")
    if weights[0][1] > 5e-2: found.add("lr_high")
    if weights[1][0] > 2.5 * weights[0][0] and weights[3][0] > weights[1][0]: found.add("no_zero_grad")
    bills = [numbers(x) for x in seen["bill"].splitlines()]
    groups = [[numbers(x) for x in part] for part in (seen["group"].splitlines()[1:5], seen["group"].splitlines()[6:])]
    if all(len({t for t, _ in g}) == 1 for g in groups): found.add("broadcast")
    elif all(abs(t - a) < .011 for g in groups for t, a in g): found.add("no_baseline")
    elif any(abs(a - (t - (sum(x for x, _ in g) - t) / 3)) > .03 for g in groups for t, a in g): found.add("wrong_groups")
    far = max(bills, key=lambda b: abs(b[1]))
    if "broadcast" not in found and abs(far[1]) > .3:
        price = (far[0] - far[2]) / far[1]
        found |= {"kl_sign"} if price < -.05 else {"beta_lost"} if price < .05 else set()
    if max(abs(r["KL"]) for r in log) < 1e-3 and numbers(seen["distance"])[0] > .3: found.add("ref_moves")
    pairs = [numbers(x) for x in seen["alone"].splitlines()]
    if any(abs(a - b) > .02 for a, b in pairs):
        fraction = [x for pair in pairs for x in pair]     # a program's marks are thirds; a model's are not
        found.add("shuffled" if all(abs((x * 1.5 + 2.7) % 1 - .5) > .45 for x in fraction) else "pad_score")
    before, after = (numbers(x)[0] for x in seen["truth"].splitlines())
    better = log[-1]["reward"] > log[0]["reward"] + .3
    if better and after < before - 1: found.add("reward_sign")
    marks = [x for b in bills for x in b[:1]]
    thirds = all(abs((x * 1.5 + 2.7) % 1 - .5) > .45 for x in marks)
    if "pad_score" not in found and not thirds:
        flattery = sum(seen["samples"].count(w) for w in ("brilliant", "as wise as you", "fine mind", "Only you"))
        found.add("fooled" if flattery >= 2 and log[-1]["reward"] < 2 else "length_bonus")
    return found or {"healthy"}

def test_an_informed_player_names_nine_in_ten_and_a_guess_one_in_five():
    data = game_data()
    exact = [diagnosis(r["log"], r["seen"]) == {*r["faults"]} for r in data["runs"]]
    assert sum(exact) >= .9 * len(exact), [r["faults"] for r, x in zip(data["runs"], exact) if not x]
    share = [sum(r["faults"] == [k] for r in data["runs"]) / len(exact) for k in data["causes"]]
    assert max(share) < .2                                        # whoever always says the same
    rng, right = random.Random(0), 0
    for seed in range(50):
        s = deal(6, seed)
        for r in s.runs: right += call_run(s, *[[rng.choice(s.causes)]] * 2)["points"] >= 9
    assert right < .2 * 300

def test_the_runs_are_enough_and_nothing_gives_one_away():
    data = game_data()
    runs = data["runs"]
    assert len(runs) >= 30 and {k for r in runs for k in r["faults"]} == data["causes"].keys()
    assert sum(len(r["faults"]) == 2 for r in runs) >= 5 and sum(r["faults"] == ["healthy"] for r in runs) >= 4
    for r in runs:
        assert {*r["seen"]} == {*data["prices"]} and len(r["log"]) == 12
        assert not any(k in text for k in data["causes"] if k != "healthy" for text in r["seen"].values() if "_" in k)
    assert all(c["chapter"].isdigit() and c["wrong"] and c["fix"] for c in data["causes"].values())
    assert sum(c["issue"].startswith("https://") for c in data["causes"].values()) >= 10

def test_points_are_what_was_right_less_what_was_paid():
    s = deal(6, 3)
    two = next(i for i, r in enumerate(s.runs) if len(r["faults"]) == 2)
    s.runs.insert(0, s.runs.pop(two))
    a, b = s.runs[0]["faults"]
    other = next(k for k in s.causes if k not in (a, b))
    assert measure_run(s, 0, "ratio") == s.runs[0]["seen"]["ratio"] and price_paid(s, 0) == 1
    assert call_run(s, [a], [a, b])["points"] == 6 / 2 + 4 - 1
    assert "Right" in verdict_text(s, 0) and "It was" in verdict_text(s, 0)
    truth = s.runs[1]["faults"]
    wrong = next(k for k in s.causes if k not in truth)
    assert call_run(s, [*truth, wrong], [wrong])["points"] == 3 and "Not here" in verdict_text(s, 1)
    for k in game_data()["prices"]: measure_run(s, 2, k)
    assert call_run(s, s.runs[2]["faults"], [wrong])["points"] == 0   # never below
    with pytest.raises(ValueError, match="did you mean 'mask'"): measure_run(s, 3, "masc")
    with pytest.raises(ValueError, match="2 to 18"): deal(19)

def test_a_hostile_text_stays_text():
    run = game_data()["runs"][0]
    page = walk_page(run | dict(seen=run["seen"] | dict(samples="<script>alert(1)</script>")))
    assert "<script>" not in page and "&lt;script&gt;" in page and page.count("<details>") == 11

def test_the_command_ends_with_its_input(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("mask\n\nx\n"))
    assert main(["doctor-game", "--runs", "2"]) == 2
    said = capsys.readouterr()
    assert "Run 1 of 2" in said.out and "[counted]" in said.out and "got 'x'" in said.out and "input ended" in said.err
    assert main(["doctor-game", "--runs", "1"]) == 2
