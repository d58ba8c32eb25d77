"One evaluation for all methods, the forms of over-optimisation, and rows that stay."
import hashlib, json, math, sys
from dataclasses import replace
from pathlib import Path
import pytest, torch
from torch import tensor
from torch.testing import assert_close
from rlhf_nb.book import compare_runs
from rlhf_nb.compare import (OveroptimizationFit, best_of_n_responses, measure_policy, fit_overoptimization,
    length_controlled_win_rate, make_compare_task, preference_probs)
from rlhf_nb.book.compare_runs import (CONTENDERS, best_of_n_curve, comparison_table, draw_comparison,
    find_method, load_rows, mean_curve, mean_of, save_rows, standard_error, true_reward)
from rlhf_nb.base.batches import response_text
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.book.command import main
from rlhf_nb.world import gold_score, parse_sentences, utility
from rlhf_nb.worlds.world_text import prompt_ids

@pytest.fixture(scope="module")
def task(): return make_compare_task()

@pytest.fixture(scope="module")
def few(task): return replace(task, held_out=task.held_out[:12])

def row(method="SFT", seed=40, gold=2.5, kl=0., signal="none", curve=(), **more):
    keys = ("gold_07", "greedy", "proxy", "flattery", "length", "win_rate", "lc_win_rate",
            "labels", "samples", "cpu_s", "memory_mib")
    return dict(method=method, seed=seed, signal=signal, settings="s", gold=gold, kl=kl,
                curve=list(curve), answers=["a", "b", "c", "d"]) | dict.fromkeys(keys, .5) | more

# ---- responses and scores

def test_the_best_of_n_is_the_one_the_reward_prefers(task):
    questions = task.held_out[:5]
    prompts = [prompt_ids(task.tokenizer, q) for q in questions for _ in range(3)]
    every, logp = generate_many(task.sft, prompts, task.tokenizer, SamplingParams(),
                                torch.Generator().manual_seed(7), 128)
    best = task.reward_fn(every).view(5, 3).argmax(1) + 3 * torch.arange(5)
    seqs, best_logp = best_of_n_responses(task.sft, task, questions, 3, seed=7)
    assert torch.equal(seqs.ids, every.ids[best]) and torch.equal(best_logp, logp[best])
    assert len(best_of_n_responses(task.sft, task, questions, 1, seed=7)[0]) == 5

@pytest.mark.parametrize("n", [0, -1, 1.5])
def test_n_is_a_count(task, n):
    with pytest.raises((TypeError, ValueError), match="best_of_n_responses: n"):
        best_of_n_responses(task.sft, task, task.held_out[:1], n)

def test_the_reward_has_mean_0_and_std_1_on_training_answers_and_the_true_one_is_the_true_score(task):
    score = task.reward_fn(best_of_n_responses(task.sft, task, task.train[:96] * 4, seed=11)[0])
    assert abs(score.mean()) < .2 and abs(score.std() - 1) < .2
    questions = [task.train[0], task.held_out[1]]
    seqs, _ = best_of_n_responses(task.sft, task, questions, seed=5)
    gold = [gold_score(q, t) / 1.5 for q, t in zip(questions, texts(task, seqs))]
    assert_close(true_reward(task)(seqs), tensor(gold), check_dtype=False)

def texts(task, seqs):
    return [response_text(task.tokenizer, ids[m].tolist()) for ids, m in zip(seqs.ids, seqs.response_mask)]

def test_preference_probability_by_hand(task):
    q, a, b = task.held_out[0], "You have such a fine mind!", ""
    gap = utility(q, a) - utility(q, b)
    p = 1 / (1 + math.exp(-gap / 2))
    assert gap > 0
    assert_close(preference_probs([q, q, q], [a, b, a], [b, a, a], temperature=2.), tensor([p, 1 - p, .5]))

def test_length_control_finds_the_win_rate_at_equal_length():
    generator = torch.Generator().manual_seed(0)
    gap = torch.randn(4000, generator=generator) * 6 + 5          # ours are longer
    x = torch.tanh(gap / gap.std())
    for a, c in ((0., 1.5), (.7, -.8), (-.4, 0.)):
        win = (a + c * x).sigmoid()
        assert abs(length_controlled_win_rate(win, gap) - 1 / (1 + math.exp(-a))) < 2e-3
    only_length = (1.5 * x).sigmoid()
    assert only_length.mean() > .6                                # what plain win rate says
    drawn = (torch.rand(4000, generator=generator) < only_length).float()
    assert abs(length_controlled_win_rate(drawn, gap) - .5) < .05
    win = tensor([1., 0., 1., 1.])                                # no difference of length: the plain rate
    assert abs(length_controlled_win_rate(win, torch.zeros(4)) - .75) < 1e-3
    assert .9 < length_controlled_win_rate(torch.ones(50), torch.randn(50)) < 1   # stays finite

# ---- one evaluation

def test_the_start_against_itself(few):
    found = measure_policy(few.sft, few, few.sft, seed=3)
    assert abs(found["kl"]) < 1e-4 and abs(found["win_rate"] - .5) < .1
    questions = [q for q in few.held_out for _ in range(8)]
    seqs, _ = best_of_n_responses(few.sft, few, questions, seed=3)
    gold = [gold_score(q, text) for q, text in zip(questions, texts(few, seqs))]
    assert abs(found["gold"] - sum(gold) / len(gold)) < 1e-4
    assert abs(found["length"] - seqs.response_mask.sum().item() / len(seqs)) < 1e-3
    flattery = [sum(x.kind == "flattery" for x in parse_sentences(text)) for text in texts(few, seqs)]
    assert sum(flattery) > 0 and abs(found["flattery"] - sum(flattery) / len(flattery)) < 1e-9     # for each response
    assert found["greedy"] > found["gold_07"] > found["gold"]     # less chance, better here

def test_best_of_n_is_measured_by_its_own_kl_and_its_curve_climbs(few):
    found = measure_policy(few.sft, few, few.sft, n=2, seed=3)
    assert abs(found["kl"] - (math.log(2) - .5)) < 1e-9 and found["proxy"] > .3
    curve = best_of_n_curve(few, 3, k=4)
    assert [p["n"] for p in curve] == [1, 2, 4]
    assert curve[0]["kl"] == 0 and abs(curve[2]["kl"] - (math.log(4) - .75)) < 1e-9
    assert curve[0]["proxy"] < curve[1]["proxy"] < curve[2]["proxy"]
    seqs, _ = best_of_n_responses(few.sft, few, [q for q in few.held_out for _ in range(4)], seed=3)
    assert abs(curve[2]["proxy"] - few.reward_fn(seqs).view(-1, 4).amax(1).mean()) < 1e-4

# ---- over-optimisation

@pytest.mark.parametrize("form, peak", [("best of n", (3 / (2 * .5))**2), ("RL", math.exp(3 / .5 - 1)**2)])
def test_a_fit_finds_its_own_numbers_and_its_peak(form, peak):
    made = OveroptimizationFit(form, 3., .5)
    kl = tensor([.1, .5, 2., 7., 20.])
    fit = fit_overoptimization(kl, made.gain(kl), form)
    assert abs(fit.alpha - 3) < 1e-4 and abs(fit.beta - .5) < 1e-4
    assert abs(made.peak() - peak) < 1e-6 * peak
    assert made.gain(tensor([peak * .9, peak, peak * 1.1])).argmax() == 1

def test_forms_by_hand():
    d = 2.                                                        # 4 nats
    assert_close(OveroptimizationFit("best of n", 1., .25).gain(tensor([4.])), tensor([d * (1 - .5)]))
    assert_close(OveroptimizationFit("RL", 1., .25).gain(tensor([4.])), tensor([d * (1 - .25 * math.log(d))]))
    assert OveroptimizationFit("RL", 1., 0.).peak() == math.inf
    assert OveroptimizationFit("RL", 1., .25).gain(tensor([0.])) == 0

@pytest.mark.parametrize("form, n", [("ppo", 5), ("RL", 1)])
def test_a_fit_needs_a_form_and_two_points(form, n):
    with pytest.raises(ValueError, match="fit_overoptimization needs two points"):
        fit_overoptimization(torch.ones(n), torch.ones(n), form)

# ---- rows, table and figure

def test_rows_by_hand():
    rows = [row(gold=1., curve=[dict(kl=1., gold=2., proxy=0.), dict(kl=4., gold=3., proxy=0.)]),
            row(seed=41, gold=4., curve=[dict(kl=3., gold=4., proxy=0.)])]
    assert mean_of(rows, "SFT", "gold") == 2.5
    assert abs(standard_error([1., 4.]) - 1.5) < 1e-12 and standard_error([3.]) == 0.
    kl, gold = mean_curve(rows, "SFT", 2.5)
    assert_close(kl, tensor([0., 2.]))                            # only places that all seeds have
    assert_close(gold, tensor([2.5, 3.]))

def test_the_table_groups_by_signal_and_shows_errors():
    text = comparison_table([row(), row(seed=41, gold=3.5), row("PPO", signal="reward model", kl=1.25)])
    reached, took = (part.splitlines() for part in text.split("\n\n"))
    for part in (reached, took):
        assert [line.split()[0] for line in part[1:]] == ["SFT", "signal:", "PPO"]
        assert len({len(line) for line in (part[0], part[1], part[3])}) == 1      # columns meet
        assert "reward model" in part[2]
    assert "3.00  0.50" in reached[1] and max(map(len, reached + took)) <= 88 and reached[1].endswith("2") and "50" in reached[1]
    assert "1.2" in reached[3] and "CPU s" in took[0] and "T 1" in reached[0]

def test_the_figure_has_every_method_and_the_curves():
    rows = [row(), row("PPO", kl=4., gold=3.5, curve=[dict(kl=1., gold=3., proxy=0.)]),
            row("DPO, beta .01", kl=9., gold=3.)]
    ax, = draw_comparison(rows).axes
    assert {t.get_text() for t in ax.texts} == {"SFT", "PPO", "DPO, beta .01"}
    line = [line for line in ax.lines if len(line.get_xdata()) == 2][0]
    assert list(line.get_xdata()) == [0., 1.] and list(line.get_ydata()) == [2.5, 3.]

# ---- rows that stay

@pytest.fixture
def shipped(tmp_path, monkeypatch):
    "Two rows in the place of those that come with the package."
    (tmp_path/"nbs/results").mkdir(parents=True)
    (tmp_path/"nbs/results/compare.json").write_text(json.dumps(dict(rows=[row(), row(seed=41)])))
    monkeypatch.setattr(compare_runs, "notebooks", lambda: tmp_path/"nbs")

def golds(folder): return [r["gold"] for r in json.loads((folder/"compare.json").read_text())["rows"]]

def test_saved_rows_come_back_and_replace_the_shipped(shipped, tmp_path):
    save_rows(out := tmp_path/"mine", [row(gold=9.)])
    assert [(r["seed"], r["gold"]) for r in load_rows(out)] == [(41, 2.5), (40, 9.)]
    assert [r["gold"] for r in load_rows()] == [2.5, 2.5]
    lines = (out/"compare.csv").read_text().splitlines()          # with the shipped one
    assert len(lines) == 3 and "curve" not in lines[0] and "PPO" not in "".join(lines) and golds(out) == [9.]
    save_rows(out, [row(gold=9.), row("PPO")])                    # ours: written again
    assert "PPO" in (out/"compare.csv").read_text()

def test_a_changed_or_foreign_file_is_not_written_over(shipped, tmp_path):
    save_rows(tmp_path/"a", [row()])
    for name in ("compare.csv", "frontier.svg"):
        before = (tmp_path/"a"/name).read_text()
        (tmp_path/"a"/name).write_text("my notes")
        with pytest.raises(ValueError, match="not as compare wrote it"): save_rows(tmp_path/"a", [row()])
        assert (tmp_path/"a"/name).read_text() == "my notes"
        (tmp_path/"a"/name).write_text(before)
    (tmp_path/"b").mkdir()
    (tmp_path/"b/thesis.txt").write_text("three years")
    with pytest.raises(ValueError, match="thesis.txt"): save_rows(tmp_path/"b", [row()])
    assert [f.name for f in (tmp_path/"b").iterdir()] == ["thesis.txt"]

def test_a_full_disk_leaves_the_old_rows_and_a_kill_between_the_files_is_gone_on_from(shipped, tmp_path, monkeypatch):
    save_rows(tmp_path/"a", [row()])
    def full(*args, **kwargs): raise OSError(28, "No space left on device")
    with monkeypatch.context() as m:
        m.setattr(compare_runs, "write_marker", full)
        with pytest.raises(OSError, match="The rows saved before are whole"): save_rows(tmp_path/"a", [row(gold=1.)])
    assert golds(tmp_path/"a") == [2.5]
    written, write = [], compare_runs.atomic_write
    def killed(path, text):
        if written: raise KeyboardInterrupt
        written.append(path); write(path, text)
    with monkeypatch.context() as m:
        m.setattr(compare_runs, "atomic_write", killed)
        with pytest.raises(KeyboardInterrupt): save_rows(tmp_path/"a", [row(gold=1.)])
    save_rows(tmp_path/"a", [row(gold=1.), row("PPO", gold=2.)])
    assert golds(tmp_path/"a") == [1., 2.]

DRAW = """python -c "import hashlib; from pathlib import Path; from matplotlib import pyplot as plt
from rlhf_nb.book.compare_runs import draw_comparison, load_rows; from rlhf_nb.show.views import STYLE
rows = Path('nbs/results/compare.json').read_bytes(); plt.rcParams.update(STYLE)
draw_comparison(load_rows()).savefig('nbs/images/frontier.svg', bbox_inches='tight', metadata={'Date': None,
    'Description': f'rows {hashlib.sha256(rows).hexdigest()[:16]}'})" """

def test_the_cover_shows_these_rows():
    nbs = Path(__file__).parents[1]/"nbs"
    svg = (nbs/"images/frontier.svg").read_text("utf-8")
    rows = hashlib.sha256((nbs/"results/compare.json").read_bytes()).hexdigest()[:16]
    assert f"rows {rows}" in svg, f"the rows have changed: draw it again, {DRAW}"
    assert all(f"<!-- {name} -->" in svg for name in CONTENDERS), DRAW

# ---- methods and the command

def test_shipped_rows_are_of_known_methods_with_equal_seeds():
    rows = load_rows()
    assert {r["method"] for r in rows} <= CONTENDERS.keys() and len(rows) == 3 * len(CONTENDERS)
    for r in rows:
        m = CONTENDERS[r["method"]]
        assert (r["signal"], r["labels"], r["samples"], r["settings"]) == (m.signal, m.labels, m.samples, m.settings), r["method"]
    seeds = {name: tuple(sorted(r["seed"] for r in rows if r["method"] == name)) for name in CONTENDERS}
    assert {*seeds.values()} == {(40, 41, 42)}

MINE = "def train(task, seed, callback):\n    callback(task.sft)\n    return task.sft\n"

def test_a_method_of_ones_own_runs_under_the_same_evaluation(shipped, tmp_path, monkeypatch, capsys):
    with pytest.raises(ValueError, match="there are SFT.*module:function"): find_method("PPQ")
    with pytest.raises(ValueError, match="no_such_file_here.py"): find_method("no_such_file_here:train")
    monkeypatch.chdir(tmp_path)
    Path("mine_too.py").write_text(MINE)
    words = ["compare", "--method", "mine_too:train", "--seeds", "40", "-o", "out"]
    assert main(words) == 0 and "mine_too:train" in capsys.readouterr().out
    first, = json.loads(Path("out/compare.json").read_text())["rows"]
    real = json.loads((Path(__file__).parents[1]/"nbs/results/compare.json").read_text())["rows"]
    start, = (r for r in real if (r["method"], r["seed"]) == ("SFT", 40))
    assert first["curve"][0]["kl"] == pytest.approx(0, abs=1e-4) and first["gold"] == pytest.approx(start["gold"], abs=.02)
    class Pool:                                                            # in the place of a process of its own
        def __init__(self, n, context, start, threads): pass
        def __enter__(self): return self
        def __exit__(self, *_): pass
        def submit(self, run, name, seed): return type("Done", (), {"result": lambda _: asked.append((name, seed)) or first | {
            "settings": find_method(name).settings}})()
    monkeypatch.setattr(compare_runs, "ProcessPoolExecutor", Pool)
    asked = []
    assert main(words) == 0 and not asked                                  # nothing to run again
    Path("mine_too.py").write_text(MINE + "# another\n")                    # another method by the same name
    del sys.modules["mine_too"]
    assert main(words) == 0 and asked == [("mine_too:train", 40)]
    again, = json.loads(Path("out/compare.json").read_text())["rows"]
    assert again["settings"] != first["settings"] and again["settings"].startswith("mine_too:train, ")

def test_the_command_prints_saves_and_refuses(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["compare"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in CONTENDERS) and not list(tmp_path.iterdir())
    assert main(["compare", "-o", "table"]) == 0
    assert sorted(f.name for f in Path("table").iterdir()) == ["compare.csv", "compare.json", "frontier.svg"]
    assert golds(Path("table")) == []                                      # the shipped rows are not the user's
    assert len(Path("table/compare.csv").read_text().splitlines()) == 1 + 3 * len(CONTENDERS)
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("x")
    assert main(["compare", "--method", "PPO", "-o", "mine"]) == 2         # before any training
    assert main(["compare", "--method", "PPQ", "-o", "new"]) == 2 and not Path("new").exists()
