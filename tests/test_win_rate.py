"Win rates: estimates by hand and against their own spread, rankings by hand; the command with judges of every kind, files that are not ours, labels of other pairs."
import json, math, re, pytest, torch
from functools import partial
from pathlib import Path
from torch import tensor
from torch.testing import assert_close
from rlhf_nb.book.command import main
from rlhf_nb.run.judge_command import read_labels, win_rate_table
from rlhf_nb.show.labels import LabelSession, add_label, sides
from rlhf_nb.win_rate import bootstrap_interval, bradley_terry_scores, prediction_powered, rogan_gladen, tuned_lam
from tiny_runs import fill_home, pair_rows, rows_in, write_lines

ROOT = Path(__file__).resolve().parents[1]
def seeded(seed=0): return torch.Generator().manual_seed(seed)
TABLE = tensor([[.2, .04, .06], [.05, .1, .05], [.1, .1, .3]])        # gold in rows, judge in columns: loss, tie, win
WIN = (TABLE.sum(1) * tensor([0., .5, 1.])).sum()

def sample(sims, n, m, seed=0):
    i = torch.multinomial(TABLE.flatten(), sims * (n + m), True, generator=seeded(seed)).view(sims, n + m)
    gold, judge = (i // 3) / 2, (i % 3) / 2
    return judge[:, m:], judge[:, :m], gold[:, :m]

# ---- estimates
def test_by_hand():
    judge, labelled, gold = tensor([1., 1., 0., 1.]), tensor([1., 1.]), tensor([1., 0.])
    mean, error = prediction_powered(judge, labelled, gold)
    assert_close(mean, tensor(.25))
    assert_close(error, tensor(.3125).sqrt())
    assert_close(rogan_gladen(tensor([1., 1., 0., 1.]), tensor([1., 1., 0.]), tensor([1., .5, 0.])), tensor((.75 + 2 / 3 - 1) / (1 + 2 / 3 - 1)))
    assert_close(tuned_lam(tensor([1., 0., 1., 0.]), tensor([1., 0., .5, .5]), 12), tensor(.5 * 12 / 16))
    assert tuned_lam(torch.ones(4), tensor([1., 0., .5, .5]), 12) == 0           # a judge that says one thing is not asked

def test_without_ties_rogan_gladen_is_off_by_more_in_another_contest_too(): # chapter 24: ties are a part of it only
    saved = json.loads((ROOT/"nbs/results/win_rate.json").read_text("utf-8"))
    def gaps(seed, contest, labels, key): # of λ = 1 and of Rogan-Gladen, both from all pairs
        model = {r["run"]: r for r in saved["answers"] if r["seed"] == seed}
        def verdicts(name):
            x = [[tensor([float(v) for v in model[run][k]]).view(48, 8) for run in name.split(" - ")] for k in ("gold", key)]
            gold, judge = ((b[:, :, None] - a[:, None]).sign().flatten() / 2 + .5 for b, a in x)
            return gold[(gold != .5) & (judge != .5)], judge[(gold != .5) & (judge != .5)]
        (gold, judge), (known, said) = verdicts(contest), verdicts(labels)
        return known.mean() + judge.mean() - said.mean() - gold.mean(), rogan_gladen(judge, said, known) - gold.mean()
    for contest, labels, judge in {(r["contest"], r["labels"], r["judge"]) for r in saved["moved"]}:
        found = tensor([gaps(seed, contest, labels, "rm" if judge == "reward model" else "judge") for seed in (40, 41, 42)]).mean(0)
        assert found[1].abs() > found[0].abs(), (contest, labels, judge, found)

def test_every_lam_is_unbiased_its_error_is_its_spread_and_the_tuned_one_is_least():
    x, errors = sample(2000, 120, 60), {}
    for lam in (0., .5, 1., 1.7, tuned_lam(x[1], x[2], 120)):
        mean, error = prediction_powered(*x, lam)
        assert abs(mean.mean() - WIN) < 4 * mean.std() / 2000**.5 + 1e-3
        assert abs(mean.std() / error.square().mean().sqrt() - 1) < .05
        assert .93 < ((mean - WIN).abs() < 1.96 * error).float().mean() < .965
        errors[float(lam) if isinstance(lam, float) else "tuned"] = mean.std()
    assert errors["tuned"] < min(v for k, v in errors.items() if k != "tuned") * 1.01

def test_rogan_gladen_is_the_same_line_with_another_lam():
    judge, labelled, gold = sample(50, 200, 40, 3)
    q1 = (labelled * gold).sum(1) / gold.sum(1)
    q0 = ((1 - labelled) * (1 - gold)).sum(1) / (1 - gold).sum(1)
    assert_close(prediction_powered(judge, labelled, gold, 1 / (q0 + q1 - 1))[0], rogan_gladen(judge, labelled, gold), atol=1e-4, rtol=1e-4)

def test_strengths_by_hand_and_as_the_maximum_of_their_likelihood():
    assert_close(bradley_terry_scores(tensor([[0., 3.], [1., 0.]])), tensor([math.log(3) / 2, -math.log(3) / 2]))
    wins = torch.randint(1, 9, (5, 5), generator=seeded(1)).double() * (1 - torch.eye(5))
    s = bradley_terry_scores(wins, 500).requires_grad_()
    likelihood = (wins * torch.nn.functional.logsigmoid(s[:, None] - s)).sum()
    assert torch.autograd.grad(likelihood, s)[0].abs().max() < 1e-6 < likelihood.abs() and abs(s.mean()) < 1e-9
    for lost in (tensor([[0., 3., 2.], [1., 0., 2.], [0., 0., 0.]]), tensor([[0., 3., 2.], [0., 0., 2.], [0., 1., 0.]])):
        with pytest.raises(ValueError, match="every game"): bradley_terry_scores(torch.stack([torch.ones(3, 3), lost]))

def test_the_bootstrap_draws_rows():
    x = torch.randn(40, generator=seeded(2))
    low, high = bootstrap_interval(lambda i: x[i].mean().item(), 40, seeded(3), 2000)
    half = 1.96 * x.std().item() / 40**.5
    assert low < x.mean() < high and abs((high - low) / 2 / half - 1) < .1
    assert bootstrap_interval(lambda i: x[i].mean().item(), 40, seeded(3)) == bootstrap_interval(lambda i: x[i].mean().item(), 40, seeded(3))

# ---- one table
@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    "Five hundred draws of a regression take two seconds."
    monkeypatch.setattr("rlhf_nb.run.judge_command.bootstrap_interval", partial(bootstrap_interval, draws=40))

def test_the_table_counts_both_orders_labels_and_whoever_has_no_verdict():
    pairs = [(f"p{i}", "one two", "one two three" if i % 2 else "one") for i in range(60)]
    orders = torch.stack([torch.zeros(60), tensor([1., 1., .5] * 20)])            # the first always wins, or almost
    orders[0, 0] = math.nan
    gold = torch.full((60,), math.nan)
    gold[:20] = tensor([1., 0., 1., 1.] * 5)
    text, rows = win_rate_table(pairs, orders, gold)
    known = orders.mean(0)[1:]
    assert [r[0] for r in rows] == ["judge, both orders", "judge at equal length", "judge corrected by 19 labels", "20 labels alone"]
    assert rows[0][1] == pytest.approx(known.mean().item()) and rows[3][1] == pytest.approx(.75)
    assert all(low <= x <= high for _, x, low, high in rows)
    assert "1 without a verdict" in text and f"position bias {(orders[1] - orders[0])[1:].mean() / 2:+.3f}" in text
    assert "by: judge corrected by 19 labels" in text
    nine = gold.clone()
    nine[9:] = math.nan
    assert len(win_rate_table(pairs, orders, nine)[1]) == 2 and "label fifty pairs" in win_rate_table(pairs, orders, nine)[0]
    assert win_rate_table(pairs, orders * math.nan, gold)[1][0][0] == "20 labels alone"
    assert "nothing is known yet" in win_rate_table(pairs, orders * math.nan, gold * math.nan)[0]

def test_labels_of_either_side_and_ties_find_their_pair(tmp_path):
    pairs = [(f"p{i}", f"a{i}", f"b{i}") for i in range(6)]
    session = LabelSession(pairs[:3], tmp_path/"l.jsonl")
    for i, want in enumerate("ab="):
        side = {"a": pairs[i][1], "b": pairs[i][2]}.get(want)
        add_label(session, "neither" if not side else "left" if sides(session, i)[0] == side else "right")
    found = read_labels(tmp_path/"l.jsonl", pairs[::-1])
    assert found[3:].tolist() == [.5, 1., 0.] and found[:3].isnan().all()
    plain = write_lines(tmp_path/"prefs.jsonl", [dict(prompt="p5", chosen="a5", rejected="b5")])
    assert read_labels(plain, pairs)[5] == 0
    with pytest.raises(ValueError, match="none of the 3 labels"): read_labels(tmp_path/"l.jsonl", [("p0", "a0", "other")])

# ---- the command
JUDGES = """def long(prompts, responses): return [len(r) for r in responses]
def first(prompts, first, second): return [1.] * len(first)
def longer(prompts, first, second): return [None if p.endswith("hop") else float(len(a) > len(b)) for p, a, b in zip(prompts, first, second)]
def wild(prompts, first, second): return [2.] * len(first)
def short(prompts, responses): return [1.]
def one(prompts): return [1.] * len(prompts)
"""

@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = fill_home(tmp_path_factory.mktemp("judged"))
    (home/"their.py").write_text(JUDGES)
    for side in ("chosen", "rejected"):
        write_lines(home/f"{side}.jsonl", [dict(prompt=r["prompt"], response=r[side]) for r in pair_rows()])
    return home

@pytest.fixture
def here(home, monkeypatch):
    monkeypatch.chdir(home)
    return home

def judge(*words): return main(["judge", *" ".join(words).split()])
FILES = "chosen.jsonl rejected.jsonl --prompts pairs.jsonl"

def test_two_files_a_function_and_labels(here, capsys):
    assert judge(FILES, "--judge their:long -o won") == 0
    rows, want = rows_in("won/judged.jsonl"), {r["prompt"]: r for r in pair_rows()}
    assert len(rows) == 24 and [r["prompt"] for r in rows] != [r["prompt"] for r in pair_rows()]      # drawn, not in their order
    for r in rows:
        x = want[r["prompt"]]
        assert (r["a"], r["b"], r["label"]) == (x["chosen"], x["rejected"], None)
        assert r["judge"] == (1 if len(r["b"]) > len(r["a"]) else 0 if len(r["b"]) < len(r["a"]) else .5)
    session = LabelSession([(r["prompt"], r["a"], r["b"]) for r in rows], "mine.jsonl")
    for i in range(12): add_label(session, "left" if sides(session, i)[0] == rows[i]["a"] else "right")       # A is better
    assert judge(FILES, "--judge their:long --labels mine.jsonl -o won") == 0
    assert [r["label"] for r in rows_in("won/judged.jsonl")] == [0.] * 12 + [None] * 12
    out = capsys.readouterr().out
    assert "12 labels alone" in out and "A is better by" in out
    page = Path("won/page.html").read_text("utf-8")
    assert page.count("<details>") == 24 and "<script" not in page and page.startswith("<!doctype html>")

def test_two_models_and_a_reward_model_are_the_same_twice_and_labels_alone_need_no_judge(here, capsys):
    words = "m t --prompts pairs.jsonl --max-new-tokens 5 --max-prompts 12"
    assert judge(words, "--judge rm -o models") == 0
    first = rows_in("models/judged.jsonl")
    assert judge(words, "--judge rm -o models") == 0 and rows_in("models/judged.jsonl") == first and len(first) == 12
    assert judge(words) == 0 and "nothing is known yet" in capsys.readouterr().out

def test_a_language_model_compares_in_both_orders(here, capsys):
    prompt = "{{ prompt }} {{ first }} {{ second }}"
    assert main(["judge", *FILES.split(), "--judge", "m", "--judge-prompt", prompt, "--max-prompts", "10"]) == 0
    assert "nothing is known yet" in capsys.readouterr().out                # a random model names no winner
    assert judge(FILES, "--judge m --judge-prompt {{first}}") == 2 and "second" in capsys.readouterr().err

@pytest.fixture
def replies(monkeypatch): # what a language model says, by a rule of ours on the two answers that it is shown
    asked, rule = [], {}
    def said(model, tokenizer, messages, judge, generator):
        asked.extend(messages)
        two = [re.fullmatch(r"Q (.*) X (.*) Y (.*) Z", m.strip()).groups()[1:] for m in messages]
        return [[rule["fn"](*x)] for x in two]
    monkeypatch.setattr("rlhf_nb.trainers.judge_tools.generate_replies", said)
    return asked, rule

def test_the_verdicts_of_a_language_model_are_those_of_b_in_both_orders(here, capsys, replies):
    "One that names the longer answer, wherever it stands; one that names the first; one that often says nothing. The prompt is a file."
    asked, rule = replies
    Path("mine.txt").write_text("Q {{ prompt }} X {{ first }} Y {{ second }} Z")
    line = f"{FILES} --judge m --judge-prompt mine.txt -o spoken"
    rule["fn"] = lambda x, y: f"Winner: {1 if len(x) > len(y) else 2}" if len(x) != len(y) else "Winner: 0"
    assert judge(line) == 0 and len(asked) == 48 and len({*asked}) == 48
    rows = rows_in("spoken/judged.jsonl")
    want = [1. if len(r["b"]) > len(r["a"]) else 0. if len(r["b"]) < len(r["a"]) else .5 for r in rows]
    assert [r["judge"] for r in rows] == want and {0., 1.} <= {*want}
    out = capsys.readouterr().out
    assert f"judge, both orders {sum(want) / 24:17.3f}" in out and "position bias +0.000" in out
    rule["fn"] = lambda x, y: "Winner: 1"
    assert judge(line) == 0 and "position bias +0.500" in capsys.readouterr().out and {r["judge"] for r in rows_in("spoken/judged.jsonl")} == {.5}
    rule["fn"] = lambda x, y: "Winner: 2" if len(x) % 2 else "I cannot say"
    assert judge(line) == 0
    for r in rows_in("spoken/judged.jsonl"): # a verdict needs both orders
        assert r["judge"] == (.5 if len(r["a"]) % 2 and len(r["b"]) % 2 else None)

def test_seed_and_temperature_are_those_of_the_answers(here):
    "A seed gives other answers, and another order of the pairs; greedy answers are the same for all."
    def judged(*more):
        assert judge("m t --prompts pairs.jsonl --judge their:long --max-new-tokens 5 --device cpu -o seeds", *more) == 0
        return [(r["prompt"], r["a"], r["b"]) for r in rows_in("seeds/judged.jsonl")]
    one, two, cold, colder = judged(), judged("--seed 1"), judged("--temperature 0"), judged("--temperature 0 --seed 1")
    assert [x[0] for x in one] != [x[0] for x in two] and sorted(x[0] for x in one) == sorted(x[0] for x in two)
    assert sorted(one) != sorted(two) and cold != colder and sorted(cold) == sorted(colder)

def test_a_function_that_always_takes_the_first_is_seen(here, capsys):
    assert judge(FILES, "--judge their:first") == 0
    out = capsys.readouterr().out
    assert "100% ties" in out and "position bias +0.500" in out and "not told apart" in out
    assert judge(FILES, "--judge their:longer") == 0
    n = sum(r["prompt"].endswith("hop") for r in pair_rows())
    assert n and f"{n} without a verdict, position bias" in capsys.readouterr().out

@pytest.mark.parametrize("words, want", [
    (f"{FILES} --judge their:wild", "0 to 1"), (f"{FILES} --judge their:short", "each of 24 rows"), (f"{FILES} --judge their:one", "takes 1 arguments"),
    (f"{FILES} --judge their:none", "has no function"), (f"{FILES} --judge nowhere", "nowhere"),
    ("thumbs.jsonl few.jsonl --prompts chosen.jsonl", "few.jsonl has no answer to 14 of 24"), ("m t --prompts three.jsonl", "needs ten or more"),
    (f"{FILES} --labels few.jsonl", "none of the"), (f"{FILES} -o foreign", "of another program"), (f"{FILES} -o .", "the folder you are in")])
def test_what_cannot_be_judged_is_said_and_nothing_is_written(here, capsys, words, want):
    write_lines("few.jsonl", [dict(prompt=r["prompt"], response=r["chosen"]) for r in pair_rows()[:10]])
    write_lines("three.jsonl", pair_rows()[:3])
    Path("foreign").mkdir(exist_ok=True)
    Path("foreign/page.html").write_text("mine")
    if "--labels" in words: write_lines("few.jsonl", [dict(prompt="p", chosen="x", rejected="y")])
    before = {p: p.read_bytes() for p in Path("foreign").iterdir()}
    assert judge(words) == 2 and want in capsys.readouterr().err
    assert {p: p.read_bytes() for p in Path("foreign").iterdir()} == before

# ---- the chapter
def test_every_command_of_the_chapter_runs_and_its_desk_labels_what_is_judged(here, capsys):
    "The second command reads what the desk of the page has written between the two."
    text = "\n".join("".join(c["source"]) for c in json.loads((ROOT/"nbs/24_win_rate.ipynb").read_text("utf-8"))["cells"])
    lines, [code] = re.findall(r"^rlhf-nb (.*)$", text.replace("\\\n", ""), re.M), re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    assert len(lines) == 2 and ["--labels" in x for x in lines] == [False, True]
    for i, line in enumerate(lines):
        for a, b in (("prompts.jsonl", "pairs.jsonl"), ("runs/sft", "m"), ("runs/ppo", "t"), ("runs/reward", "rm"), ("mine.jsonl", "desk.jsonl")):
            line = line.replace(a, b)
        assert main([*line.split(), "--max-new-tokens", "5", "--max-prompts", "16"]) == 0
        assert len(rows := rows_in("runs/won/judged.jsonl")) == 16 and Path("runs/won/page.html").is_file()
        assert [r["label"] for r in rows] == ([0.] * 12 + [None] * 4 if i else [None] * 16)
        if i: continue
        exec(compile(code.replace("mine.jsonl", "desk.jsonl"), "page", "exec"), told := {})
        session = told["LabelSession"]([(r["prompt"], r["a"], r["b"]) for r in told["rows"][:50]], "desk.jsonl")
        for k in range(12): add_label(session, "left" if sides(session, k)[0] == rows[k]["a"] else "right")    # A, always
    assert "A is better by: 12 labels alone" in capsys.readouterr().out
