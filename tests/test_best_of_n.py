"Best-of-n by its command and by its functions: what is picked, by which tokenizer, and which file is written over."
import re, pytest, torch
from pathlib import Path
from rlhf_nb.base.models import ScalarModel, load_lm, save_reward_model, tiny_lm
from rlhf_nb.book.command import main
from rlhf_nb.data.text import load_demonstrations, load_prompts, prompts_of, train_tokenizer
from rlhf_nb.run import best_of_n
from rlhf_nb.run.best_of_n import BestOfNConfig, BestOfNResult, format_best_of_n, run_best_of_n, write_best_of_n
from test_runs import dies_at
from tiny_runs import pair_rows, rows_in, write_lines

pytestmark = pytest.mark.usefixtures("one_thread")
LINE = ["best-of-n", "m", "rm", "pairs.jsonl", "-n", "2", "--max-prompts", "3", "--max-new-tokens", "5", "-o"]

def test_the_best_of_n_answers_of_each_prompt(inside):
    config = BestOfNConfig("m", "rm", "pairs.jsonl", num_generations=4, max_prompts=5, max_new_tokens=20, temperature=1.)
    picks = run_best_of_n(config)
    assert picks.score.shape == (5, 4) and [len(a) for a in picks.answers] == [4] * 5
    assert len({a for answers in picks.answers for a in answers}) > 5
    assert picks.score.mean().abs() < 1e-5 and torch.equal(picks.score, run_best_of_n(config).score)
    assert picks.prompts == [row["prompt"] for row in pair_rows()[:5]]           # in the order of the file
    write_best_of_n(picks, "deep/picks.jsonl")
    for row, answers, score in zip(rows_in("deep/picks.jsonl"), picks.answers, picks.score, strict=True):
        assert row["response"] == answers[int(score.argmax())] and row["answers"] == answers
        assert row["scores"] == pytest.approx(score.tolist(), abs=1e-4)

def test_models_that_are_shipped_have_their_names_here_as_in_train(inside):
    assert main(["best-of-n", "sft", "reward", *LINE[3:], "o.jsonl"]) == 0 and len(rows_in("o.jsonl")) == 3

def test_the_reward_model_reads_texts_by_its_own_tokenizer(inside, monkeypatch):
    reader = train_tokenizer([x for row in pair_rows() for x in row.values()], 300)
    save_reward_model(ScalarModel.from_lm(tiny_lm(reader, hidden=16, layers=1), 3), reader, inside/"other")
    calls, real = [], best_of_n.score_texts
    monkeypatch.setattr(best_of_n, "score_texts", lambda *args: calls.append(args) or real(*args))
    picks = run_best_of_n(BestOfNConfig("m", "other", "pairs.jsonl", num_generations=2, max_prompts=3, max_new_tokens=20, temperature=1.))
    (_, tokenizer), prompts, answers, _ = calls[0]
    assert picks.score.shape == (3, 2) and tokenizer.get_vocab() == reader.get_vocab()
    assert [tokenizer.decode(p, skip_special_tokens=True) for p in prompts[::2]] == picks.prompts
    assert [a for a, _ in answers] == [a for row in picks.answers for a in row]

def test_prompts_are_written_as_the_file_gives_them_whatever_the_template_says(inside):
    "A template that begins with a system message of its own, as SmolLM2's: the file goes to `train sft` as it is."
    lm, tokenizer = load_lm("m")
    tokenizer.chat_template = tokenizer.chat_template.replace("{%", "{{ bos_token }}a rule of its own {%", 1)
    for part in (lm, tokenizer): part.save_pretrained("m")
    chat = [dict(role=r, content=pair_rows()[i]["prompt"]) for i, r in enumerate(("user", "assistant", "user"), 1)]
    asked = [pair_rows()[0]["prompt"], chat]
    write_lines("asked.jsonl", [dict(prompt=x) for x in asked])
    picks = run_best_of_n(BestOfNConfig("m", "rm", "asked.jsonl", num_generations=2, max_new_tokens=20, temperature=1.))
    assert picks.prompts == asked and f"assistant: {chat[1]['content']}\nuser: " in format_best_of_n(picks)
    write_best_of_n(picks, "picks.jsonl")
    again, _ = load_demonstrations("picks.jsonl", tokenizer)
    assert prompts_of(again) == [tuple(x) for x in load_prompts("asked.jsonl", tokenizer)[0]]

def test_an_answer_that_was_cut_is_scored_as_cut(inside, monkeypatch):
    calls, real = [], best_of_n.score_texts
    monkeypatch.setattr(best_of_n, "score_texts", lambda *args: calls.append(args) or real(*args))
    run_best_of_n(BestOfNConfig("m", "rm", "pairs.jsonl", num_generations=8, max_prompts=5, max_new_tokens=4, temperature=1.))
    ended = [end for _, end in calls[0][2]]
    assert len(ended) == 40 and 0 < sum(ended) < 40
    whole = {answer for answer, end in calls[0][2] if end}
    assert all(len(x.split()) < 4 for x in whole)                        # the fourth token of what ended was eos

def test_the_table_expects_the_best_over_all_ways_to_take_n():
    picks = BestOfNResult(["p", "q"], [["a", "b", "c"], ["d", "e", "f"]], torch.tensor([[1., 2., 4.], [3., 0., 0.]]))
    text = format_best_of_n(picks, 1)
    # best of 1: means 7/3 and 1; of 2: (2 + 4 + 4) / 3 and (3 + 3 + 0) / 3; of 3: 4 and 3
    for n, value in ((1, "+1.67"), (2, "+2.67"), (3, "+3.50")): assert re.search(rf"^ +{n}  \{value}$", text, re.M)
    assert "+4.00  best   c" in text and "+1.00  first  a" in text and "q" not in text.split()

def test_every_flag_arrives_in_the_field_of_its_name(monkeypatch, capfd):
    seen = []
    monkeypatch.setattr(best_of_n, "run_best_of_n", lambda config: seen.append(config) or 1 / 0)
    for words in ("a b c -n 3 --max-prompts 9 --max-length 77 --device cpu --seed 4 --skip-invalid --temperature .2 --max-new-tokens 6",
                  "a b c --num-generations 5", "a b c"):
        with pytest.raises(ZeroDivisionError): main(["best-of-n", *words.split()])
    plain = BestOfNConfig("a", "b", "c")
    assert seen == [BestOfNConfig("a", "b", "c", 3, 9, 6, .2, 77, "cpu", 4, True), BestOfNConfig("a", "b", "c", 5), plain]
    for name in ("num_generations", "max_prompts", "max_length"):
        with pytest.raises(ValueError, match=f"BestOfNConfig.{name} must be above 0"): BestOfNConfig("a", "b", "c", **{name: 0})
    assert main(["best-of-n", "a", "b", "c", "-n", "0"]) == 2 and "num_generations must be above 0, got 0" in capfd.readouterr().err

def test_nothing_is_written_over(inside, monkeypatch, capfd):
    Path("mine.jsonl").write_bytes(Path("pairs.jsonl").read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr(best_of_n, "run_best_of_n", lambda config: 1 / 0)          # refused before anything is sampled
        for path in map(Path, ("pairs.jsonl", ".", "m", "mine.jsonl", "chats.jsonl")):
            before = path.read_bytes() if path.is_file() else sorted(path.iterdir())
            for more in ([], ["--overwrite"]):
                assert main([*LINE, str(path), *more]) == 2
                assert re.search("name a(nother output| new file)", capfd.readouterr().err)
            assert before == (path.read_bytes() if path.is_file() else sorted(path.iterdir()))
    assert main([*LINE, "picks.jsonl"]) == 0
    first = Path("picks.jsonl").read_text()
    assert main([*LINE, "picks.jsonl"]) == 2 and "exists: name a new file, or use --overwrite" in capfd.readouterr().err
    assert main([*LINE, "picks.jsonl", "--overwrite", "--seed", "1"]) == 0 and Path("picks.jsonl").read_text() != first
    assert main([*LINE[:3], "picks.jsonl", *LINE[4:], "picks.jsonl", "--overwrite"]) == 2 and "which is read" in capfd.readouterr().err

def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    one = BestOfNResult(["p"], [["a", "b"]], torch.tensor([[1., 2.]]))
    two = BestOfNResult(["p", "q"], [["a", "b"]] * 2, torch.tensor([[1., 2.]] * 2))
    path, k = tmp_path/"picks.jsonl", 0
    write_best_of_n(one, path)
    before = path.read_text()
    while dies_at(k, lambda: write_best_of_n(two, path, overwrite=True)):
        assert path.read_text() == before or k > 2 and len(path.read_text().splitlines()) == 2
        k += 1
    assert k >= 3 and len(path.read_text().splitlines()) == 2
    for bad in ("", "notes", "[1]", '{"prompt": "p"}', path.read_text() + "{}"):
        (tmp_path/"mine").write_text(bad)
        with pytest.raises(ValueError, match="was not written by best-of-n"): write_best_of_n(one, tmp_path/"mine", overwrite=True)
        assert (tmp_path/"mine").read_text() == bad
