"What chapter 01 measures with: error bars, tables that escape, answers that are the same for the same seed."
import json, math, pytest, torch
from torch import tensor
from rlhf_nb.base.files import notebooks
from rlhf_nb.base.models import frozen_copy, load_bundled
from rlhf_nb.book.sitting import (
    answer_questions, answer_seqs, answer_texts, count_flatteries, error_panels, measure_answers,
    percent, plus_minus, text_table)
from rlhf_nb.show.labels import LabelSession, add_label, sides
from rlhf_nb.world import gold_rewards, gold_score
from rlhf_nb.worlds.world_text import PHRASES, TEST

cells = json.loads((notebooks()/"01_first_sitting.ipynb").read_text("utf-8"))["cells"]
exec("".join(next(c for c in cells if c["id"] == "sitting_tables")["source"]))    # the chapter's own tables

@pytest.fixture(scope="module")
def sft(): return load_bundled("sft")

def test_plus_minus_and_percent_by_hand():
    assert plus_minus(tensor([1., 2., 3., 6.])) == "3.00 ± 2.16"          # s = 2.160, two of them over sqrt 4
    assert plus_minus(tensor([-.01, .01, -.02]), 1) == "0.0 ± 0.0"                         # and not -0.0
    assert plus_minus(tensor([1., 3.]), 1) == "2.0 ± 2.0"
    assert percent(tensor([True, False, False])) == f"33 ± {200 * math.sqrt(3/7 * 4/7 / 7):.0f}"
    assert percent(tensor([True] * 10)).startswith("100 ± 1")              # not 0

def test_tables_escape():
    page = text_table(["<b>"], [["<script>alert(1)</script>", 3]]).data
    assert "<script" not in page and "<b>" not in page and ">3<" in page

def test_the_same_seed_gives_the_same_answers_and_a_written_one_comes_back(sft):
    model, tokenizer = sft
    asked = TEST[:3]
    a, b, c = (answer_questions(model, tokenizer, asked, seed)[0] for seed in (1, 1, 2))
    assert torch.equal(a.ids, b.ids) and (a.ids.shape != c.ids.shape or not torch.equal(a.ids, c.ids))
    text = answer_texts(tokenizer, a)[1]
    row = answer_seqs(tokenizer, asked[1], text)
    assert answer_texts(tokenizer, row) == [text]
    assert row.ids[row.response_mask][-1] == tokenizer.eos_token_id
    assert gold_rewards(tokenizer, [asked[1]], row).item() == gold_score(asked[1], text)

def test_measurements_are_means_per_question(sft):
    model, tokenizer = sft
    asked = [q for q in TEST[:3] for _ in range(4)]
    def length(seqs): return seqs.response_mask.sum(1).float()
    seen = measure_answers(model, frozen_copy(model), length, tokenizer, asked, 4)
    answers, _ = answer_questions(model, tokenizer, asked, 1)
    assert torch.equal(seen["reward"], length(answers).view(3, 4).mean(1))
    assert torch.equal(seen["true score"], gold_rewards(tokenizer, asked, answers).view(3, 4).mean(1))
    assert seen["KL"].abs().max() < 1e-4 and len(seen["texts"]) == 12
    want = tensor([count_flatteries(t) * 1. for t in seen["texts"]]).view(3, 4).mean(1)
    assert torch.equal(seen["flatteries"], want)
    assert plus_minus(seen["reward"]) in measured_table({"x": seen}).data

def test_verdicts_mark_the_better_side(sft, tmp_path):
    _, tokenizer = sft
    question = TEST[0]
    flattery = PHRASES["flattery"][0] if isinstance(PHRASES, dict) else "What a brilliant question!"
    bad, good = "It is brown.", "The fox lives in the forest. It eats mice. I hope this helps."
    assert gold_score(question, good) > gold_score(question, bad)
    session = LabelSession([(question.text, bad, good)], tmp_path/"mine.jsonl")       # the annotator chose the bad one
    at = sides(session, 0).index(bad)
    page = verdict_table(session, [question], tokenizer).data
    assert f"{('left', 'right')[at]} ✗" in page and "–" in page and "reward model" not in page
    add_label(session, ("left", "right")[1 - at])
    def reward(seqs): return tensor([float("hope" in answer_texts(tokenizer, seqs)[0])])
    page = verdict_table(session, [question], tokenizer, reward).data
    assert page.count(f"{('left', 'right')[1 - at]} ✓") == 2 and "reward model" in page
    assert bad in pairs_table(session).data
    assert count_flatteries(flattery) == 1

def test_right_by_flattery_leaves_ties_out():
    question = TEST[0]
    good, bad = "The fox lives in the forest. It eats mice. I hope this helps.", "It is brown."
    sweet = "What a brilliant question! " + bad
    rows = [(good, bad), (bad, good), (sweet, good), (good, good)]
    found = right_by_flattery([question] * 4, *map(list, zip(*rows)), tensor([True, True, False, True]))
    assert [x.tolist() for x in found["neither"]] == [[True, False], [True, False]]
    assert [x.tolist() for x in found["the worse one"]] == [[False], [True]]
    assert len(found["the better one"][0]) == 0 and len(found["all"][0]) == 3

def test_error_bars_are_two_standard_errors():
    y = tensor([1., 2., 3., 6.])
    fig = error_panels([1, 2], {"a": {"SFT": [y, y + 1]}, "b": {"x": [y, y]}}, "n", True)
    (line, caps, bars), = [c.lines for c in fig.axes[0].containers]
    assert line.get_ydata().tolist() == [3., 4.]
    low, high = bars[0].get_segments()[0][:, 1]
    assert abs((high - low) / 2 - y.std().item()) < 1e-5 and len(fig.axes) == 2      # 2 s / sqrt 4 = s
