"One evaluation for all methods, the forms of over-optimisation, and rows that stay."
import hashlib, importlib.util, json, math
from dataclasses import replace
from pathlib import Path
import pytest, torch
from torch import tensor
from torch.testing import assert_close
from rlhf_nb.compare import (OveroptimizationFit, best_of_n_responses, measure_policy, fit_overoptimization,
    length_controlled_win_rate, make_compare_task, preference_probs)
from rlhf_nb.book.compare_runs import (ARENA, CONTENDERS, REPORTED, Contender, arena_groups, arena_table, reported,
    standard_error, tried, winner)
from rlhf_nb.base.batches import response_text
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.base.scores import ScoreNormalizer
from rlhf_nb.book.command import main
from rlhf_nb.run.evidence import difference, differing, read_rows
from rlhf_nb.world import gold_score, parse_sentences, utility
from rlhf_nb.worlds.world_text import prompt_ids

ROOT = Path(__file__).resolve().parents[1]
spec = importlib.util.spec_from_file_location("arena", ROOT/"benchmarks/arena.py")
arena = importlib.util.module_from_spec(spec); spec.loader.exec_module(arena)

@pytest.fixture(scope="module")
def task(): return make_compare_task()

@pytest.fixture(scope="module")
def few(task): return replace(task, held_out=task.held_out[:12])

def row(found=(), seed=70, **settings):
    return dict(name="A", settings=settings, seed=seed, found=dict(train_seconds=2.) | dict(found))

def a_contender(grid=None, name="A", signal="none"):
    return Contender(name, signal, 7, 1234, dict(lr=(1., 2., 3.)) if grid is None else grid)

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

def test_either_reward_has_mean_0_and_std_1_on_training_answers_and_the_true_one_is_the_true_score(task):
    seqs, _ = best_of_n_responses(task.sft, task, task.train[:96] * 4, seed=11)
    for signal in ("reward model", "true score"):
        score = arena.task_told(signal).reward_fn(seqs)
        assert abs(score.mean()) < .2 and abs(score.std() - 1) < .2, signal
    questions = [task.train[0], task.held_out[1]]
    seqs, _ = best_of_n_responses(task.sft, task, questions, seed=5)
    gold = [(gold_score(q, t) - 2) / 1.5 for q, t in zip(questions, texts(task, seqs))]
    assert_close(arena.true_reward(task.tokenizer, ScoreNormalizer(2., 1.5))(seqs), tensor(gold), check_dtype=False)

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

def test_best_of_n_is_measured_by_its_own_kl_and_chosen_by_its_signal(task):
    curve, true = (arena.best_of_n_curve(signal, "held-out", 3, 4) for signal in ("reward model", "true score"))
    many = [q for q in task.held_out for _ in range(4)]
    seqs, _ = best_of_n_responses(task.sft, task, many, seed=3)
    gold = torch.tensor([gold_score(q, t) for q, t in zip(many, texts(task, seqs))]).view(-1, 4)
    proxy = task.reward_fn(seqs).view(-1, 4)
    assert [*curve] == [*true] == [1, 2, 3, 4] and curve[1]["kl"] == 0
    assert abs(curve[4]["kl"] - (math.log(4) - .75)) < 1e-9
    assert abs(curve[4]["proxy"] - proxy.amax(1).mean()) < 1e-4 and abs(true[4]["gold"] - gold.amax(1).mean()) < 1e-4
    assert abs(curve[1]["gold"] - gold.mean()) < 1e-4 and true[4]["proxy"] < curve[4]["proxy"]
    assert abs(curve[4]["gold"] - gold.gather(1, proxy.argmax(1, keepdim=True)).mean()) < 1e-4

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

# ---- an equal search

def searched(home, gold=(2., 5., 3.)): # rows of three settings, and of five seeds of the second
    rows = [row(dict(gold=g), 60, signal="none", start="sft", samples=1234, questions="training", lr=lr)
            for lr, g in zip((1., 2., 3.), gold)]
    rows += [row(dict(gold=g, kl=4.), s, signal="none", start="sft", samples=1234, questions="held-out", lr=2.)
             for s, g in zip(range(70, 75), (4., 4., 4., 4., 5.))]
    home.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return rows

def test_the_winner_is_the_best_on_training_questions_and_is_reported_on_the_others(tmp_path):
    home, c = tmp_path/"rows.jsonl", a_contender()
    rows = searched(home)
    assert c.tries == len(tried(c, home)) == 3
    assert winner(c, home) == rows[3]["settings"] and reported(c, home) == rows[3:]
    assert tried(a_contender(signal="labels"), home) == []
    searched(home, (2., 3., 5.))
    assert winner(c, home)["lr"] == 3. and reported(c, home) == []    # its five seeds were not run
    for missing in (0, 4):                                # one of the search, one of the seeds
        home.write_text("".join(json.dumps(r) + "\n" for i, r in enumerate(rows) if i != missing))
        assert reported(c, home) == []                    # and nothing is run

def test_a_grid_is_every_combination():
    c = a_contender(dict(lr=(1., 2.), beta=(.1, .2, .3)), "PPO")
    got = [(e.settings["lr"], e.settings["beta"]) for e in arena.search(c, "none")]
    assert got == [(1., .1), (1., .2), (1., .3), (2., .1), (2., .2), (2., .3)] and c.tries == 6
    none = a_contender({}, "SFT")
    settings, = [e.settings for e in arena.search(none, "none")]
    assert settings == dict(signal="none", start="sft", samples=1234, questions="training") and none.tries == 1
    assert winner(none, "none") == settings | dict(questions="held-out")

def test_every_method_gets_twelve_settings_and_the_same_samples():
    for c in CONTENDERS.values():
        assert not c.grid or len(arena.search(c)) == c.tries == 12, c.name
        assert c.samples in (0, 2304), c.name
        if "group" in c.grid: assert all(128 % g == 0 for g in c.grid["group"])
    assert len(CONTENDERS) == len((ROOT/"nbs/results/arena_methods.jsonl").read_text("utf-8").splitlines())
    assert {c.name for c in CONTENDERS.values()} == arena.TRAIN.keys()

def test_a_run_is_told_its_signal_and_looked_at_on_its_way(task):
    got = []
    def train(x, settings, seed, look):
        got.append((settings, seed, [f"{r:.3f}" for r in x.reward_fn(some)]))
        for rollout in (1, 2, 3, 6): look(rollout, x.sft)
        return x.sft
    some, _ = best_of_n_responses(task.sft, task, task.held_out[:3], seed=2)
    for signal, reward in (("true score", arena.task_told("true score").reward_fn), ("reward model", task.reward_fn)):
        told = dict(signal=signal, questions="training")
        short = arena.run_contender(train, told, 5)
        assert {*short} == {"gold", "proxy", "kl"}        # what a search needs
        assert got[-1] == (told, 5, [f"{r:.3f}" for r in reward(some)])
    again = arena.look_at(task.sft, task.train[::4], 5)
    assert short == again and abs(again["kl"]) < 1e-4
    full = arena.run_contender(train, told | dict(questions="held-out"), 5)
    assert len(full["way_kl"]) == len(full["way_gold"]) == 2 and full["train_seconds"] < .5    # looks are left out
    assert full["gold"] == measure_policy(task.sft, task, task.sft, 1, 5)["gold"]

def test_what_six_winners_say_is_kept(few, tmp_path, monkeypatch):
    asked = few.held_out[:2]
    def train(x, settings, seed, look):
        assert settings["questions"] == "held-out" and seed == REPORTED[0] and look(3, x.sft) is None
        return x.sft
    monkeypatch.setattr(arena, "TRAIN", dict.fromkeys(arena.TRAIN, train))
    arena.keep_answers(tmp_path/"said.json", asked)
    said, shown = (json.loads(path.read_text("utf-8")) for path in (tmp_path/"said.json", ARENA.with_name("arena_answers.json")))
    own = texts(few, best_of_n_responses(few.sft, few, asked, seed=REPORTED[0])[0])
    for (name, signal), kept in zip(arena.SPEAKERS, shown.values(), strict=True):      # those of the chapter are the arena's winners
        c = CONTENDERS[name, signal]
        assert said[name] == dict(settings=winner(c), seed=REPORTED[0], answers=own)
        assert kept["settings"] == winner(c) == reported(c)[0]["settings"] and len(kept["answers"]) == 4 and name in shown

# ---- table and figure

def two_signals():
    def some(gold, kl, **more): return [row(dict(gold=g, kl=kl, flattery=.25, way_kl=[], way_gold=[]) | more, s, lr=.5)
                                        for s, g in enumerate(gold)]
    best = some([2., 4.], 1., way_kl=[0., 1., 4.], way_gold=[1., 2., 5.])
    best[1]["found"]["way_gold"] = [3., 3., 4.]
    return {a_contender(dict(lr=(.5, 1.)), "best of n", "one"): best, a_contender(dict(lr=(.5,)), "PPO", "one"):
            some([3., 3.], 4., greedy=4.5), a_contender({}, "PPO", "two"): some([1.], 9.)}

def test_the_table_groups_by_signal_and_shows_errors():
    reached, took = (part.splitlines() for part in arena_table(two_signals()).split("\n\n"))
    for part in (reached, took):
        assert [line.split()[0] for line in part[1:]] == ["signal:", "best", "PPO", "signal:", "PPO"]
    assert "3.00 1.00" in reached[2] and reached[3].split()[1:5] == ["3.00", "0.00", "-", "4.50"]
    assert len({len(line) for line in (reached[0], *reached[2:4])}) == 1 and max(map(len, reached)) <= 88
    assert took[2].split()[3:] == ["2", "1,234", "7", "2", "lr", "0.5"] and took[5].split()[1] == "1"
    assert abs(standard_error([1., 2., 4.]) - (7 / 3 / 3)**.5) < 1e-12 and standard_error([3.]) == 0.

def chapter_11(): # what its hidden cell defines
    cells, found = json.loads((ROOT/"nbs/11_compare.ipynb").read_text("utf-8"))["cells"], {}
    exec("".join(*[c["source"] for c in cells if c["id"] == "compare_imports_2"]), found)
    return found

def test_the_figure_has_a_panel_for_each_signal():
    groups, drawing = two_signals(), chapter_11()
    one, two = drawing["draw_arena"](groups).axes
    assert {t.get_text() for t in one.texts} == {"best of n", "PPO"} and [t.get_text() for t in two.texts] == ["PPO"]
    way, = [line for line in one.lines if len(line.get_xdata()) == 3]
    assert way.get_linestyle() == "--" and list(way.get_xdata()) == [0., 1., 2.]
    assert list(way.get_ydata()) == [2., 2.5, 4.5] and "one" in one.get_title()
    assert_close(drawing["way_of"]([*groups.values()][0])[1], tensor([2., 2.5, 4.5]))

def test_a_method_of_yours_is_searched_as_the_chapter_says(few, tmp_path, monkeypatch, capsys):
    chapter = json.loads((ROOT/"nbs/11_compare.ipynb").read_text("utf-8"))["cells"]
    text, = ["".join(c["source"]) for c in chapter if c.get("id") == "own_text"]
    monkeypatch.chdir(tmp_path)
    tiny = replace(few, held_out=few.held_out[:3], train=few.train[:8])
    exec(text.split("```")[1], globals() | dict(task=tiny, REPORTED=[70, 71], groups=arena_groups()))
    rows = read_rows("mine.jsonl")
    assert [(r["settings"]["questions"], r["settings"]["lr"], r["seed"]) for r in rows] == [
        ("training", 5e-4, 60), ("training", 1e-3, 60), ("held-out", 5e-4, 70), ("held-out", 5e-4, 71)]
    assert rows[0]["found"]["gold"] == arena.look_at(few.sft, few.train[:8:4], 60)["gold"]     # as the arena's own searches
    said = capsys.readouterr().out
    assert "paired by seed, 2 pairs" in said and "method (mine against imitate the best)" in said and "start" not in said

# ---- the shipped rows, the cover and the command

def test_shipped_rows_are_of_known_settings():
    known = {json.dumps([e.name, e.but(questions=q).settings]) for c in CONTENDERS.values() for e in arena.search(c)
             for q in ("training", "held-out")}
    rows = read_rows(ARENA)
    assert {json.dumps([r["name"], r["settings"]]) for r in rows} <= known
    assert len({json.dumps([r["name"], r["settings"], r["seed"]]) for r in rows}) == len(rows)
    for c, kept in arena_groups().items():
        assert [r["seed"] for r in kept] == [*REPORTED] and len(tried(c)) == (12 if c.grid else 0)

DRAW = "python tests/test_compare.py"
COVER = ROOT/"nbs/images/frontier.svg"

def draw_cover():
    drawing, rows = chapter_11(), hashlib.sha256(ARENA.read_bytes()).hexdigest()[:16]
    drawing["plt"].rcParams.update(drawing["STYLE"])
    drawing["draw_arena"]({c: x for c, x in arena_groups().items() if c.signal in ("reward model", "true score", "comparisons")}).savefig(
        COVER, bbox_inches="tight", metadata={"Date": None, "Description": f"rows {rows}"})

def test_the_cover_shows_these_rows():
    svg = COVER.read_text("utf-8")
    assert f"rows {hashlib.sha256(ARENA.read_bytes()).hexdigest()[:16]}" in svg, f"the rows have changed: draw it again, {DRAW}"
    shown = [c for c in arena_groups() if c.signal in ("reward model", "true score", "comparisons")]
    assert len(shown) == 17 and all(f"<!-- {c.name} -->" in svg for c in shown), DRAW

def test_the_command_prints_the_table(capsys):
    assert main(["compare"]) == 0
    assert arena_table(arena_groups()) in capsys.readouterr().out

if __name__ == "__main__": draw_cover()
