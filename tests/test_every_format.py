"""Every format of rollouts in every instrument: right, or refused in one sentence that says which column is missing.

What TRL and trackio wrote stands in tests/rollouts, and what the others write after their documents (its README says which)."""
import json, math, re, pytest, torch
from pathlib import Path
from rlhf_nb.base.models import load_bundled
from rlhf_nb.book.command import main
from rlhf_nb.data.rollouts import read_rollouts, save_rollout, trace_rows, trl_rows
from rlhf_nb.show.inspectors import inspect_reward, inspect_row
from rlhf_nb.show.live_log import LogFollower, show_log
from rlhf_nb.show.rollout_page import rollout_alarms, rollouts_page
from rlhf_nb.show.rollout_view import show_rollouts
from rlhf_nb.show.token_kl import show_kl
from test_rollout_view import a_rollout
from tiny_runs import write_lines
HERE = Path(__file__).parent/"rollouts"
ROWS = [dict(step=1 + k // 2, group=k // 2, prompt="Where does the fox live?", response="In a den." + " It is red." * k, reward=float(k), ids=[3, 4, 5],
             logprobs=[-1., -2., -.5], ref_logprobs=[-1.5, -1., -2.]) for k in range(4)]
K3 = sum(math.exp(-d) - 1 + d for d in (.5, -1., 1.5))

def source_of(name, folder):
    if name == "run":
        (folder/"rollouts").mkdir()
        sampled = a_rollout()
        sampled.seqs.ids[sampled.seqs.attention_mask] += 40             # words of the bundled tokenizer
        for step in (1, 2): save_rollout(folder/f"rollouts/{step:06d}.safetensors", step, sampled, None, torch.tensor([]), load_bundled("sft")[1])
        write_lines(folder/"log.jsonl", [dict(step=1, reward=.5), dict(step=2, reward=1.5)])
        return folder
    if name == "own JSONL": return Path(write_lines(folder/"own.jsonl", ROWS))
    if name == "datasets": return pytest.importorskip("datasets").Dataset.from_list(ROWS)
    made = {"dicts": ROWS, "TRL's rows": trl_rows(read_rollouts(ROWS)), "traces": trace_rows(read_rollouts(ROWS))}
    return made[name] if name in made else HERE/name

# rows, mean k3 or the columns that show_kl misses, columns that the doctor misses, rows of the log or what show_log says
FORMATS = {
    "run": (6, None, "", 2),
    "own JSONL": (4, K3, "ended, policy", 4),
    "TRL's rows": (4, "log-prob and no reference", "ended, policy", None),
    "trl": (8, "log-prob and no reference", "KL, reward, ended, policy", 2),
    "trl/completions/completions_00001.parquet": (4, "log-prob and no reference", "KL, reward, ended, policy", "no log"),
    "verl": (6, "log-prob and no reference", "KL, ended, policy", "log.jsonl: no row yet"),
    "openrlhf.jsonl": (2, "log-prob and no reference", "KL, ended, policy", 2),
    "slime": (2, "reference", "KL, ended, policy", "log.jsonl: no row yet"),
    "slime/rollout_4.pt": (2, "reference", "KL, ended, policy", "no log"),
    "trackio.db": (6, "log-prob and no reference", "KL, ended, policy", "no log"),
    "trackio_traces.parquet": (6, "log-prob and no reference", "KL, ended, policy", "no log"),
    "unipo": (1, .00261, "ended", "log.jsonl: no row yet"),
    "unipo_log.json": (2, .00261, "ended", "no log_history"),
    "dicts": (4, K3, "ended, policy", None),
    "traces": (4, "log-prob and no reference", "ended, policy", None),
    "datasets": (4, K3, "ended, policy", None)}

@pytest.fixture(scope="module")
def models(): return {name: load_bundled(name) for name in ("sft", "base", "reward")}

@pytest.mark.parametrize("name", FORMATS)
def test_every_instrument_on_every_format(name, tmp_path, models, capfd):
    n, kl, missing, log = FORMATS[name]
    source = source_of(name, tmp_path)
    (policy, tokenizer), (ref, _), (rm, _) = models.values()
    # the table, alone, as a group, over the run, beside itself
    view = show_rollouts(source)
    texts = [x["response"] for x in read_rollouts(source).rows]
    assert len(view.table) == len(texts) == n and f"of {n}" in view.top.value and all(texts)
    for look, words in (("", '<b>response</b>'), ("group", f"<b>row {view.rows[0]}"), ("run", "answers to")):
        view.c.look.value = look
        assert words in view.below.value
    assert len(show_rollouts(dict(a=source, b=source)).table) == n
    # the KL that was kept, or which column is missing
    if isinstance(kl, str):
        with pytest.raises(ValueError) as e: show_kl(source)
        assert f"there is no {kl}: keep both" in str(e.value) and "\n" not in str(e.value)
    else:
        table = show_kl(source).table
        assert len(table) == n and all(table.ledgers_of(i)["response"].channels["k3"] for i in range(n))
        if kl: assert sum(table.columns["k3"]) / n == pytest.approx(kl, rel=2e-3)
        else: assert table.columns["k3"][0] == pytest.approx(math.exp(-.5) - 1 + .5 + math.exp(1.) - 1 - 1)
    # exact, where the models are given: by its token ids, or, where it has none or others, by its texts
    foreign = "unipo" in name or "slime" in name
    if foreign:
        for look in (lambda x: show_kl(x, tokenizer, policy, ref), lambda x: inspect_reward(rm, tokenizer, "a", "b", rollout=x)):
            with pytest.raises(ValueError, match="^rollouts, line 1: ids of another tokenizer: give it, or drop them with columns='its ids=ids'$"): look(source)
            assert look(read_rollouts(source, "its ids=ids")).still()
    else: assert all(x > 0 for x in show_kl(source, tokenizer, policy, ref).table.columns["exact"])
    # the reward along an answer that was kept
    page = inspect_row(rm, tokenizer, source, n - 1).still()
    assert "score" in page and "prefix score" in page
    if not foreign: assert "Answer" in inspect_reward(rm, tokenizer, "Where does the fox live?", "In a den.", rollout=source).still()
    # the doctor says what it could not look for, the page holds it, and the command writes the page
    found = [x for x in rollout_alarms(source) if x.startswith("no row has")]
    assert [x.split(":")[0] for x in found] == [f"no row has {missing}"] * bool(missing)
    page = rollouts_page(source)
    assert page.endswith("</html>") and page.count("<details><summary>row") == n and all(x in page for x in found)
    if not isinstance(source, Path): return
    assert main(["show", str(source), "-o", str(tmp_path/"page.html")]) == 0 and (tmp_path/"page.html").read_text("utf-8").count("<summary>row") == n
    # the log, where it is one
    if isinstance(log, int):
        follower = LogFollower(source/"trainer_state.json" if name == "trl" else source/"log.jsonl" if source.is_dir() else source)
        follower.update()
        assert len(follower.dashboard.rows) == log and "reward" in follower.dashboard.metrics and "reward" in show_log(source).still()
    elif log == "no log":
        with pytest.raises(ValueError, match="is no log of JSON lines and no trainer_state.json: show_rollouts opens"): show_log(source)
    else: assert log in re.sub("<[^>]+>", "", show_log(source).still())

def test_ids_of_another_model_are_named_and_can_be_left_out(models):
    (policy, tokenizer), (ref, _), (rm, _) = models.values()
    rows = [dict(prompt="Where does the fox live?", response="In a den.", ids=[99_999, 3])] * 3
    for look in (lambda x: show_kl(x, tokenizer, policy, ref), lambda x: inspect_reward(rm, tokenizer, "a", "b", rollout=x)):
        with pytest.raises(ValueError, match="line 1: ids of another tokenizer: give it, or drop them with columns='its ids=ids'$"): look(rows)
        assert look(read_rollouts(rows, "its ids=ids")).still()
    for models in ((None, policy, ref), (tokenizer, policy)):
        with pytest.raises(ValueError, match="needs tokenizer, policy and ref, or none"): show_kl(rows, *models)

def test_ids_that_say_no_word_of_their_text_are_of_another_tokenizer(models):
    (policy, tokenizer), (ref, _), _ = models.values()
    text = "In a den."
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    def look(**row): return show_kl([dict(prompt="Where does the fox live?", response=text, ids=ids) | row], tokenizer, policy, ref)
    with pytest.raises(ValueError, match="ids of another tokenizer"): look(ids=[x + 40 for x in ids])
    with pytest.raises(ValueError, match="ids of another tokenizer"): look(ids=[-1, *ids])
    for row in ({}, dict(ids=[*ids, tokenizer.eos_token_id]), dict(response=" In a den. And more."), dict(response="", ids=[tokenizer.eos_token_id])): assert look(**row).still()

@pytest.mark.parametrize("row", [4, 99, -5])
def test_a_row_that_is_not_there_is_named_with_those_that_are(models, row):
    rm, tokenizer = models["reward"]
    with pytest.raises(ValueError, match=f"^there are rows 0 to 3, got {row}$"): inspect_row(rm, tokenizer, ROWS, row)
    assert inspect_row(rm, tokenizer, ROWS, -1).still()
