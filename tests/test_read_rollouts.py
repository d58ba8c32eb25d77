"One reader for rollouts of every program: sample files in tests/rollouts, what is said, what is refused, and back."
import json, math, os, pickle, pytest, torch
from pathlib import Path
from types import SimpleNamespace
from rlhf_nb.data.rollouts import read_rollouts, rollout_seqs, trace_rows, trl_rows
from rlhf_nb.show.rollout_view import answers_together, as_table, row_page, show_rollouts
from tiny_runs import tokenizer
HERE = Path(__file__).parent/"rollouts"

def test_trl_writes_these_tables():
    x = read_rollouts(HERE/"trl")
    assert len(x) == 8 and [r["step"] for r in x.rows] == [1] * 4 + [2] * 4 and x.taken == {"response": "completion"}
    assert x.rows[0].keys() == {"prompt", "response", "step", "advantage", "shortness", "owls"}
    assert all(r["owls"] == ("owl" in r["response"]) for r in x.rows) and all("live" in r["prompt"] or "eat" in r["prompt"] for r in x.rows)
    assert [r["response"] for r in read_rollouts(HERE/"trl", "reward=shortness").rows] == [r["response"] for r in x.rows]
    assert read_rollouts(HERE/"trl", "reward=shortness").rows[3]["reward"] == x.rows[3]["shortness"]

@pytest.mark.parametrize("name", ["trackio.db", "trackio_traces.parquet"])
def test_trackio_writes_these_traces(name):
    x = read_rollouts(HERE/name)
    assert [(r["step"], r["reward"], r["group"], r["advantage"]) for r in x.rows] == [
        (1, 2., 3, .5), (1, 0., 3, -.5), (1, .25, 4, None), (2, 3., 3, .5), (2, 0., 3, -.5), (2, .25, 4, None)]
    assert x.rows[0]["prompt"] == "system: Be brief.\nuser: Where does the fox live?" and x.rows[0]["response"] == "In a den."
    assert x.rows[1]["rewards/owls"] == 1. and "search_text" not in x.rows[0]
    call, tool, end = x.rows[2]["response"].split("\n")                     # turns and tools have borders
    assert call.startswith("assistant:  → {") and '"add"' in call and tool == "tool: 5" and end == "assistant: It is 5."

def test_verl_openrlhf_slime_and_unipo_are_read():
    x = read_rollouts(HERE/"verl")
    assert [r["step"] for r in x.rows] == [1, 1, 2, 2, 10, 10] and [r["reward"] for r in x.rows] == [0., 1., 1., 1., .5, 0.]
    assert x.taken == {"prompt": "input", "response": "output", "reward": "score"} and x.rows[0]["gts"] == "5"
    x = read_rollouts(HERE/"openrlhf.jsonl")
    assert [(r["response"], r["reward"]) for r in x.rows] == [("Hi.", -.25), ("Bye!", 1.5)]
    x = read_rollouts(HERE/"slime")
    t = x.tokens_of(0)
    assert (t.prompt, t.ids) == ([9, 8], [3, 4, 5, 6]) and x.unread == ["weight_versions"] and x.rows[1]["step"] == 4
    assert t.channels["log-prob"][::2] == [-.5, -.25] and math.isnan(t.channels["log-prob"][1])   # the tool wrote it
    x = read_rollouts(HERE/"unipo")
    t = x.tokens_of(0)
    assert t.texts == ["The", " answer", " is", " $4$."] and t.channels["log-prob"][3] == -.75 and t.channels["policy"][3] == -.73
    assert t.channels["reference"][0] == -.25 and t.channels["token_objective"][3] == .007 and x.rows[0]["advantage"] == .35
    assert x.rows[0]["KL"] == pytest.approx(-.22 - .59 - .1 - .75 + .25 + .61 + .12 + .81)
    both = read_rollouts(HERE/"unipo_log.json")
    assert [r["step"] for r in both.rows] == [0, 1] and both.tokens_of(1).texts == t.texts

@pytest.mark.parametrize("name", ["trl", "trackio.db", "trackio_traces.parquet", "verl", "openrlhf.jsonl", "slime", "unipo", "unipo_log.json"])
def test_each_opens_in_one_line(name):
    view = show_rollouts(HERE/name)
    assert view.rows and "of" in view.top.value
    view.c.look.value = "group"
    assert f"<b>row {view.rows[0]}" in view.below.value
    view.c.look.value = "run"
    assert "answers to" in view.below.value

def test_rows_in_memory_are_read_alike():
    rows = [dict(prompt="a", response="b c", reward=1, logprobs=[-1, -2.5], ref_logprobs=[-1.5, None], rewards=dict(short=.5))]
    from datasets import Dataset
    import pandas
    trace = SimpleNamespace(messages=[dict(role="user", content="a"), dict(role="assistant", content=[dict(type="text", text="b c")])], metadata=dict(reward=1), spans=[])
    for source in (rows, Dataset.from_list(rows), pandas.DataFrame(rows)):
        x = read_rollouts(source)
        assert x.rows[0]["rewards/short"] == .5 and x.rows[0]["length"] == 2 and x.said() == "logprobs is read as log-prob; ref_logprobs is read as reference"
        c = x.tokens_of(0).channels
        assert c["log-prob"] == [-1., -2.5] and c["reference"][0] == -1.5 and math.isnan(c["reference"][1])
    assert read_rollouts([trace]).rows[0] == dict(prompt="a", response="b c", reward=1)
    assert as_table(rows).ledgers_of(0)["response"].channels["KL"][0] == .5

def test_columns_name_what_has_another_name():
    rows = [dict(ask="a", said="b", quality=2., reward=9., lp=[-1.])]
    x = read_rollouts(rows, "prompt=ask,response=said,reward=quality,log-prob=lp")
    assert x.unread == ["reward"]                                          # of that name, and another one was asked for
    assert x.rows == [dict(prompt="a", response="b", reward=2., length=1)] and x.tokens_of(0).channels == {"log-prob": [-1.]}
    with pytest.raises(ValueError, match="no column 'qualty', it has ask, lp, quality, reward, said"): read_rollouts(rows, "reward=qualty")

ROW = '{"prompt": "a", "response": "b"}\n'
@pytest.mark.parametrize("text, message", [
    (ROW + '{"prompt"\n' + ROW, "line 2: broken JSON"), (ROW + '{"prompt": "a", "answer": "b"}\n', "line 2: there is no text of a response, only answer, prompt"),
    ('{"response": "b", "ids": [1, 2], "logprobs": [-1]}\n', "line 1: a response has one number of tokens, got {'ids': 2, 'logprobs': 1}"),
    ("", "holds no row"), ('{"resp', "line 1: broken JSON"), (ROW + "[1]\n" + ROW, "line 2: not an object")])
def test_what_cannot_be_used_is_named_with_its_line(tmp_path, text, message):
    (tmp_path/"r.jsonl").write_text(text)
    with pytest.raises(ValueError) as e: read_rollouts(tmp_path/"r.jsonl")
    assert message in str(e.value) and "r.jsonl" in str(e.value)

def test_marks_of_editors_and_damaged_ends_are_taken(tmp_path):
    (tmp_path/"r.jsonl").write_bytes(b"\xef\xbb\xbf" + ROW.encode() * 2 + b'{"prompt": "a", "res')
    x = read_rollouts(tmp_path/"r.jsonl")
    assert len(x) == 2 and "line 3, the last, is damaged" in x.said()
    assert "line 3, the last, is damaged" in show_rollouts(tmp_path/"r.jsonl").still()

def test_limits_hold_in_a_file_and_over_files(tmp_path):
    for n in (1, 2, 10): (tmp_path/f"{n}.jsonl").write_text("".join(f'{{"response": "{n} {i}"}}\n' for i in range(4)))
    x = read_rollouts(tmp_path/"1.jsonl", max_rows=3)
    assert len(x) == 3 and "the first 3 responses are read" in x.said() and read_rollouts(tmp_path/"1.jsonl", max_rows=4).said() == ""
    x = read_rollouts(tmp_path, max_rows=6)
    assert [r["response"] for r in x.rows] == ["1 0", "1 1", "1 2", "1 3", "2 0", "2 1"] and "first 6" in x.said()

def test_a_pickle_that_runs_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self): return os.mkdir, (str(tmp_path/"ran"),)
    torch.save(dict(samples=[Evil()]), tmp_path/"r.pt")
    (tmp_path/"x.pt").write_bytes(pickle.dumps(Evil()))
    (tmp_path/"other.db").write_bytes(b"SQLite format 3\0" + b"x" * 90)
    for name in ("r.pt", "x.pt", "other.db"):
        with pytest.raises(ValueError, match=name): read_rollouts(tmp_path/name)
    assert not (tmp_path/"ran").exists()
    with pytest.raises(ValueError): read_rollouts(tmp_path/"empty") if (tmp_path/"empty").mkdir() is None else None
    with pytest.raises(FileNotFoundError): read_rollouts(tmp_path/"none.jsonl")

def test_what_is_written_for_others_comes_back():
    x = read_rollouts(HERE/"verl")
    assert trl_rows(x)[1] == dict(step=1, prompt=x.rows[1]["prompt"], completion="It is 5.", reward=1., gts="5", acc=True, advantage=None)
    assert trace_rows(x)[1]["messages"][1] == dict(role="assistant", content="It is 5.") and trace_rows(x)[1]["metadata"]["reward"] == 1.
    for rows in (trl_rows(x), trace_rows(x)): assert [r["reward"] for r in read_rollouts(rows).rows] == [r["reward"] for r in x.rows]

def test_answers_of_a_prompt_stand_together():
    rows = [dict(step=s, prompt=p, response="r", reward=0., **({} if plain else dict(group=g)))
            for plain in (False,) for s, p, g in ((2, "a", 0), (2, "b", 1), (1, "a", 0), (2, "a", 0), (2, "a", 7))]
    table = as_table(rows)
    assert answers_together(table, 0) == [0, 3] and answers_together(table, 0, over_run=True) == [2, 0, 3, 4]
    table = as_table([{k: v for k, v in r.items() if k != "group"} for r in rows])
    assert answers_together(table, 0) == [0, 3, 4] and answers_together(table, 1) == [1]

def test_texts_become_tokens_where_nobody_kept_them():
    x = read_rollouts([dict(prompt="The owl", response=" The fox"), dict(prompt_ids=[4, 5], ids=[6, 7, 8], response="")])
    seqs = rollout_seqs(x, tokenizer())
    assert seqs.ids[1][seqs.attention_mask[1]].tolist() == [4, 5, 6, 7, 8] and seqs.response_mask[1].sum() == 3
    assert seqs.ids[0][seqs.response_mask[0]].tolist()[-1] == tokenizer().eos_token_id and "fox" in tokenizer().decode(seqs.ids[0])

# ---- the other instruments on what was kept
def test_kl_of_what_was_kept_is_that_by_hand():
    from rlhf_nb.show.token_kl import show_kl, stored_kl
    from rlhf_nb.show.rollout_view import as_table
    from test_rollout_view import Words, a_rollout
    for source in (a_rollout(), [dict(response="x", tokens=["a", "b"], logprobs=[-1., -2.], ref_logprobs=[-1.5, -1.])]):
        table = stored_kl(as_table(source, Words()))
        assert table.columns["k1"][0] == pytest.approx(.5 - 1) and table.ledgers_of(0)["response"].channels["k1"] == [.5, -1.]
        assert table.columns["k3"][0] == pytest.approx(math.exp(-.5) - 1 + .5 + math.exp(1.) - 1 - 1)
        assert table.columns["largest token"][0] == pytest.approx(math.exp(1.) - 2)
    view = show_kl(HERE/"unipo")
    assert "mean of 1" in view.still() and view.table.columns["reward"] == [.85]
    mixed = [dict(response="x"), dict(response="y", logprobs=[-1.], ref_logprobs=[-2.])]
    assert math.isnan(show_kl(mixed).table.columns["k1"][0]) and show_kl(mixed).rows == [1, 0]
    for source in (HERE/"verl", HERE/"slime"):                              # no log-probs; of the sampler alone
        with pytest.raises(ValueError, match="no row has log-probs under policy and reference"): show_kl(source)

@pytest.mark.parametrize("kind", ["run", "jsonl", "large jsonl", "parquet"])
def test_kl_without_texts_is_that_of_the_whole_rows(kind, tmp_path, monkeypatch):
    "Where only two channels of a row are fetched, and where a row is looked at as a whole: bit for bit."
    from rlhf_nb.data import rollouts
    from rlhf_nb.show.rollout_view import as_table
    from rlhf_nb.show.token_kl import show_kl, stored_kl
    from test_rollout_view import Words, a_rollout
    if kind == "run":
        (tmp_path/"rollouts").mkdir()
        for step in (1, 2): rollouts.save_rollout(tmp_path/f"rollouts/{step:06d}.safetensors", step, a_rollout(), None, torch.tensor([]), Words())
        source = tmp_path
    else:
        g = torch.Generator().manual_seed(0)
        rows = [dict(prompt="p", response="r", step=n, ids=[7] * n, logprobs=(-torch.rand(n, generator=g)).tolist(),
                     ref_logprobs=(-torch.rand(n, generator=g)).tolist(), loss_mask=[i % 3 > 0 for i in range(n)]) for n in (3, 120, 99)]
        rows[1].pop("ref_logprobs")
        source = tmp_path/f"x.{kind.split()[-1]}"
        if kind == "parquet":
            pq = pytest.importorskip("pyarrow.parquet")
            pq.write_table(pytest.importorskip("pyarrow").Table.from_pylist(rows), source)
        else: source.write_text("".join(json.dumps(x) + "\n" for x in rows))
    if kind == "large jsonl": monkeypatch.setattr(rollouts, "_LARGE", 0)
    fast, slow = show_kl(source, Words()).table, stored_kl(as_table(read_rollouts(source), Words()))
    assert str(fast.columns) == str(slow.columns) and len(set(map(str, fast.columns["k3"]))) > 1
    assert [str(fast.ledgers_of(i)) for i in range(len(fast))] == [str(slow.ledgers_of(i)) for i in range(len(slow))]

def test_rows_suffice_where_the_models_are_given():
    from rlhf_nb.base.models import load_bundled
    from rlhf_nb.show.inspectors import inspect_row
    from rlhf_nb.show.token_kl import show_kl
    (policy, tok), (ref, _), (rm, _) = map(load_bundled, ("sft", "base", "reward"))
    view = show_kl(HERE/"trl", tok, policy, ref)
    assert len(view.table) == 8 and all(x > 0 for x in view.table.columns["exact"])
    page = inspect_row(rm, tok, HERE/"trl", 1).still()
    assert "Answer" in page and "Other" in page and "per 10 tokens more" not in page    # all are of nine tokens
    rows = [dict(prompt="Where does the fox live?", response=" owl" * n) for n in (1, 2, 4)]
    assert "per 10 tokens more" in inspect_row(rm, tok, rows).still()

def test_a_log_of_another_trainer_is_drawn(tmp_path):
    import shutil
    from rlhf_nb.show.live_log import LogFollower, read_new_rows, show_log
    x = LogFollower(HERE/"trl/trainer_state.json")
    x.update()
    assert x.dashboard.metrics[0] == "loss" and "reward" in x.dashboard.metrics and len(x.dashboard.rows) == 2
    assert x.dashboard.traces["reward"][0] == [1, 2] and x.update() == 0
    (tmp_path/"checkpoint-2").mkdir()
    shutil.copy(HERE/"trl/trainer_state.json", tmp_path/"checkpoint-2/trainer_state.json")
    assert "reward" in show_log(tmp_path).still()
    (tmp_path/"a.jsonl").write_text('{"step": 1, "train": {"loss": 2.5, "of": {"kl": 1}}}\n')
    assert read_new_rows(tmp_path/"a.jsonl")[0] == [{"step": 1, "train/loss": 2.5, "train/of/kl": 1}]
    (tmp_path/"b.jsonl").write_text('{"note": "x"}\n')
    x = LogFollower(tmp_path/"b.jsonl")
    x.update()
    assert x.dashboard.note == "b.jsonl: no numbers in its rows, they have iteration, note"
    (tmp_path/"s.json").write_text('{"log_history": [{"step": 1, "loss": 1.0}]}')     # shorter: a new run
    assert read_new_rows(tmp_path/"s.json", 4) == ([{"step": 1, "loss": 1.0}], 1, True)

def test_long_lists_of_a_large_file_are_read_where_they_are_looked_at(tmp_path, monkeypatch):
    "The rows and tokens of the whole reader, KL apart; a text or an object that looks like a list is none; a file that changed is refused."
    from rlhf_nb.data import rollouts
    def row(k): # lists of 99 numbers are long enough
        odd = dict(response=f'"a": [{"2, " * 99}2]') if k == 1 else dict(meta=dict(policy=[.5] * 99)) if k == 2 else {}
        return dict(step=k, prompt='": [' * (k == 1), response="r", reward=[.25 * k] * 99, advantage=[1] * 97 + [11, k], ids=[k] * 99, extra=[[1] * 99], none=[],
                    logprobs=[-k - 1 / 3] * 98 + [None], ref_logprobs=[-1e-30 * k] * 99) | odd
    path = tmp_path/"x.jsonl"
    path.write_text("\n".join(json.dumps(row(k), separators=(",", ":") if k == 3 else None) for k in range(4)) + "\n\n{\"response\": 3")
    whole = read_rollouts(path)
    monkeypatch.setattr(rollouts, "_LARGE", 0)
    x, same = read_rollouts(path), lambda a: json.loads(json.dumps(a))
    assert "where they are looked at" in x.said() and "damaged" in x.said() and x.taken == whole.taken
    for k in range(4):
        assert str(x.rows[k]) == str({name: v for name, v in whole.rows[k].items() if name != "KL" or k in (1, 2)}) and x.rows[k]["length"] == 99
        a, b = x.tokens_of(k), whole.tokens_of(k)
        assert a.ids == b.ids == [k] * 99 and str(a.channels) == str(b.channels) and same(a.prompt) == same(b.prompt)
    path.write_text(path.read_text().replace("-0.3333", "-0.3334"))
    with pytest.raises(ValueError, match="has changed: read it again"): x.tokens_of(0)
    path.write_text('{"response": "a", "ids": [' + "1.5, " * 99 + "1]}\n")
    with pytest.raises(ValueError, match="line 1: ids holds a number for each token, got \\[1.5, 1.5, 1.5\\]"): read_rollouts(path)
    path.write_text('{"response": "a", "ids": [' + "1, " * 99 + ",]}\n")   # a fault in a list comes when it is read
    with pytest.raises(ValueError, match="x.jsonl: broken JSON, these are not 101 numbers: 1, 1, 1"): read_rollouts(path).tokens_of(0)
    numbers = "-0.5, " * 96 + "NaN , -Infinity,\t1E-3,2, null , -0.1234567890123456789"     # as JSON writes them: the same as JSON reads them
    path.write_text(f'{{"response": "a", "logprobs": [{numbers}]}}\n')
    want = [math.nan if v is None else v for v in json.loads(f"[{numbers}]")]
    assert str(read_rollouts(path).tokens_of(0).channels["log-prob"]) == str([float(v) for v in want])

def test_a_long_list_of_null_is_one_of_numbers_that_nobody_knows(tmp_path, monkeypatch):
    from rlhf_nb.data import rollouts
    monkeypatch.setattr(rollouts, "_LARGE", 0)
    (tmp_path/"x.jsonl").write_text(json.dumps(dict(response="r", advantage=[2.] * 99, ids=[7] * 99, logprobs=[-1.] * 99, ref_logprobs=[None] * 99)))
    x = read_rollouts(tmp_path/"x.jsonl")
    assert x.rows[0]["advantage"] == 2. and str(x.tokens_of(0).channels["reference"]) == str([math.nan] * 99)

def test_lists_of_a_table_are_those_of_the_rows_in_memory(tmp_path):
    import pyarrow as pa, pyarrow.parquet as pq
    rows = [dict(response=f"r{k}", ids=[k] * n, logprobs=[-k - .5] * (n - 1) + [None] if n else [], ref_logprobs=[-1.] * n, tag=None if k else "x",
                 tokens=[f"t{k}"] * n) for k, n in ((k, k % 37) for k in range(2500))]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path/"x.parquet", row_group_size=700)
    whole, x = read_rollouts(rows), read_rollouts(tmp_path/"x.parquet")
    def known(row): return {k: v for k, v in row.items() if v is not None}
    assert str([*map(known, x.rows)]) == str([*map(known, whole.rows)])
    assert all(str(x.tokens_of(k)) == str(whole.tokens_of(k)) for k in (0, 1, 699, 700, 1000, 2499))

def test_a_list_of_one_length_is_read_and_a_damaged_table_refused_in_words(tmp_path):
    import pyarrow as pa, pyarrow.parquet as pq
    path = tmp_path/"x.parquet"
    pq.write_table(pa.table(dict(response=["a", "b"], logprobs=pa.array([[-1., -2.], [-3., -4.]], pa.list_(pa.float32(), 2)))), path)
    assert [read_rollouts(path).tokens_of(k).channels["log-prob"] for k in (0, 1)] == [[-1., -2.], [-3., -4.]]
    whole = path.read_bytes()
    for bad in (whole[:len(whole) // 2], whole[:20] + b"\xff" * 60 + whole[80:]):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match="x.parquet is damaged, it begins as Parquet but cannot be read"): read_rollouts(path)

def test_a_slice_of_a_table_has_its_own_numbers():
    import pyarrow as pa
    from rlhf_nb.data.rollouts import _unpack
    batch = pa.RecordBatch.from_pydict(dict(ids=[[1, 2], [3], [4, 5, 6]], tag=["a", None, "c"]))
    assert [{k: x if k == "tag" else list(x) for k, x in row.items()} for row in _unpack(batch.slice(1))] == [
        dict(ids=[3]), dict(ids=[4, 5, 6], tag="c")]

def test_numbers_of_a_table_are_held_in_four_bytes_where_nothing_is_lost(tmp_path):
    import pyarrow as pa, pyarrow.parquet as pq
    from rlhf_nb.data.rollouts import open_rows
    columns = dict(response=["a", "b", "c"], ids=[[1], [2, 3], []], far=[[2**40], [1, 2], []], logprobs=[[-.5], [None, -.25], []],
                   fine=[[.1], [.2, math.nan], []], advantage=[[.5], [.25, .75], []])
    pq.write_table(pa.table(columns), tmp_path/"x.parquet")
    a, b, c = (row for _, row in open_rows(tmp_path/"x.parquet"))
    assert {k: x.typecode for k, x in b.items() if k != "response"} == dict(ids="i", far="q", logprobs="f", fine="d", advantage="f")
    assert [list(x["far"]) for x in (a, b, c)] == columns["far"] and str(list(b["logprobs"])) == "[nan, -0.25]" and str(list(b["fine"])) == "[0.2, nan]"
    assert [row.get("advantage") for row in read_rollouts(tmp_path/"x.parquet").rows] == [.5, .5, None]

def test_a_table_of_pandas_may_hold_arrays():
    pandas, numpy = (pytest.importorskip(x) for x in ("pandas", "numpy"))
    rows = [dict(prompt="a", response="b", reward=1., ids=[3, 4], logprobs=[-1., -2.], ref_logprobs=[-1.5, -1.])]
    held = [{k: numpy.array(x) if isinstance(x, list) else x for k, x in row.items()} for row in rows]
    for source in (pandas.DataFrame(held), held):
        x = read_rollouts(source)
        assert x.rows == read_rollouts(rows).rows and x.tokens_of(0) == read_rollouts(rows).tokens_of(0)

# ---- odd data that is legal
TOKENS = dict(prompt="p", response="xyz", reward=1., ids=[3, 4, 5], logprobs=[-.5] * 3, ref_logprobs=[-.75] * 3)
def looked_at(rows): # every view of every row
    view = show_rollouts(rows)
    for k in range(len(view.rows)):
        for look in ("", "group", "run"): view.c.opened.index, view.c.look.value = k, look
    return view

def test_a_response_that_nothing_is_learned_from_has_a_ledger_and_no_loss():
    rows = [TOKENS | dict(loss_mask=[0, 0, 0]), TOKENS | dict(reward=0.)]
    assert "This token is not learned from." in row_page(as_table(rows), 0) and looked_at(rows)
    from rlhf_nb.show.token_kl import show_kl
    assert str(show_kl(rows).table.columns["k1"]) == "[nan, 0.75]"
    with pytest.raises(ValueError, match="no row has log-probs under policy and reference"): show_kl(rows[:1])

def test_answers_of_which_unlike_things_are_known_stand_side_by_side():
    other = {k: x for k, x in TOKENS.items() if k != "ref_logprobs"}
    view = looked_at([TOKENS, other, dict(prompt="p", response="r", ids=[3], values=[.5])])
    view.c.opened.index, view.c.look.value = 0, "group"
    assert "3 answers to" in view.below.value and view.below.value.count('role="radiogroup" aria-label="tokens: row') == 1   # log-prob, and value alone

def test_rows_without_a_step_come_last_and_without_a_group_are_beside_their_prompt():
    rows = [dict(prompt=p, response="r", reward=float(k), **more) for k, (p, more) in enumerate(
        [("a", dict(step=3)), ("a", {}), ("a", dict(step=-1)), ("b", dict(step=-1, group=0)), ("a", dict(step=math.nan)), ("b", dict(group=None))])]
    table = as_table(rows)
    assert answers_together(table, 0, over_run=True) == [2, 0, 1, 4] and answers_together(table, 1) == [1] and looked_at(rows)
    alone = as_table([dict(prompt=p, response="r", reward=1., **more) for p, more in (("a", {}), ("b", {}), ("a", {}), ("c", dict(group=1)))])
    assert answers_together(alone, 0) == [0, 2] and answers_together(alone, 1) == [1]

def test_a_list_where_one_number_is_wanted_is_no_mean():
    for name, x in (("reward", [0., 0., 1.]), ("group", [1, 2, 2])):
        with pytest.raises(ValueError, match=f"line 1: {name} is one number, got .*'its tokens={name}' drops it"): read_rollouts([TOKENS | {name: x}])
        assert name not in read_rollouts([TOKENS | {name: x}], f"its tokens={name}").rows[0]
    assert read_rollouts([TOKENS | dict(reward=[2., 2., 2.])]).rows[0]["reward"] == 2.
    assert read_rollouts([TOKENS | dict(advantages=[1., None, 4.])]).rows[0]["advantage"] == 2.5
    assert read_rollouts([TOKENS | dict(advantages=[1., 0., 4.], mask=[1, 0, 1])]).rows[0]["advantage"] == 2.5          # of what it wrote

def test_numbers_of_a_csv_are_numbers(tmp_path):
    (tmp_path/"x.csv").write_text("prompt,response,reward,KL,group,step\n2 + 3?,5,-1.5,.25,007,10\n2 + 3?,1e3,2,,8,9\n")
    x = read_rollouts(tmp_path/"x.csv")
    assert x.rows[0] == dict(prompt="2 + 3?", response="5", step=10, group="007", reward=-1.5, KL=.25) and x.rows[1]["response"] == "1e3"
    assert as_table(tmp_path/"x.csv").max_abs == dict(step=10, reward=2., KL=.25, characters=3)
    assert "high" in show_rollouts([dict(response="r", KL="high")]).top.value                          # and a text is none

def test_values_of_other_kinds_are_named(tmp_path):
    import pandas
    for row, words in ((dict(response=None), "a response is text or messages, got None"), (dict(response=5), "a response is text or messages, got 5")):
        (tmp_path/"x.jsonl").write_text(json.dumps(row))
        with pytest.raises(ValueError, match=f"x.jsonl, line 1: {words}"): read_rollouts(tmp_path/"x.jsonl")
    x = read_rollouts(pandas.DataFrame([{"prompt": "a", "response": "b", 3: 4}, {"prompt": math.nan, "response": "c", 3: 5}]))
    assert x.rows[1] == {"prompt": None, "response": "c", "3": 5} and show_rollouts(x).rows

@pytest.mark.parametrize("pyarrow", [True, False])
def test_lists_that_are_read_together_are_those_read_alone(tmp_path, monkeypatch, pyarrow):
    "Bit for bit with pyarrow and without, lists in memory between them; a broken one and a changed file are named by both."
    from rlhf_nb.data import rollouts
    if not pyarrow: monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    monkeypatch.setattr(rollouts, "_LARGE", 0)
    g, path = torch.Generator().manual_seed(0), tmp_path/"x.jsonl"
    lists = [torch.randn(99, generator=g).tolist(), [*range(99)], [None, math.nan, -math.inf, 1e-300, -.1234567890123456] * 20]
    path.write_text("".join(json.dumps(dict(response="r", logprobs=x)) + "\n" for x in lists))
    found = [read_rollouts(path).tokens_of(k, "log-prob").channels["log-prob"] for k in range(3)]
    assert all(isinstance(x, rollouts.Unread) for x in found)
    got = rollouts.as_doubles([found[0], [math.nan], *found[1:]])
    assert [str([float(v) for v in x]) for x in got] == [str([math.nan if v is None else float(v) for v in x]) for x in (lists[0], [math.nan], *lists[1:])]
    path.write_text(path.read_text().replace("97, 98", "97, 96"))
    with pytest.raises(ValueError, match="has changed: read it again"): rollouts.as_doubles(found)
    path.write_text('{"response": "a", "logprobs": [' + "1, " * 99 + ",]}\n")
    with pytest.raises(ValueError, match="broken JSON, these are not 101 numbers"): rollouts.as_doubles([read_rollouts(path).tokens_of(0, "log-prob").channels["log-prob"]])
