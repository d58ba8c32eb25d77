"Every kind of file with the same rows, and every way in which one can be no good."
import csv, json, sys, pytest
from rlhf_nb.data.text import load_demonstrations, load_pairs, read_texts, train_tokenizer
from rlhf_nb.base.reading import RowError, parse_json
from rlhf_nb.data.records import DataError, read_records, record_kind

ROWS = [dict(prompt="What is it?", chosen="A kind, long answer.\nTwo lines.", rejected="No."),
        dict(prompt=[dict(role="user", content="日本語?")], chosen="Yes.", rejected="No.")]

def as_csv(path, rows=ROWS, delimiter=","):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["prompt", "chosen", "rejected"])
        for row in rows: writer.writerow([x if isinstance(x, str) else json.dumps(x) for x in row.values()])

def write(kind, folder):
    path = folder/{"JSONL": "a.jsonl", "JSON": "a.json", "CSV": "a.csv", "TSV": "a.tsv"}.get(kind, "a")
    if kind == "JSONL": path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif kind == "JSON": path.write_text(json.dumps(ROWS, indent=1))
    elif kind == "CSV": as_csv(path)
    elif kind == "TSV": as_csv(path, delimiter="\t")
    elif kind == "memory": return ROWS
    elif kind == "Parquet":
        arrow = pytest.importorskip("pyarrow"); parquet = pytest.importorskip("pyarrow.parquet")
        texts = [{k: x if isinstance(x, str) else x[0]["content"] for k, x in row.items()} for row in ROWS]
        parquet.write_table(arrow.Table.from_pylist([*texts, dict(prompt="only a prompt")]), path)
    else:
        datasets = pytest.importorskip("datasets")
        chats = [dict(row, prompt=[dict(role="user", content="What is it?")]) for row in ROWS]
        one = datasets.Dataset.from_list(chats)
        (datasets.DatasetDict(train=one, test=one.select([1])) if kind == "splits" else one).save_to_disk(path)
    return path

@pytest.mark.parametrize("kind", ["JSONL", "JSON", "CSV", "TSV", "memory"])
def test_the_same_rows_from_every_text(kind, tmp_path):
    source = write(kind, tmp_path)
    assert record_kind(source) == kind.replace("TSV", "CSV")
    assert [row for _, row in read_records(source)] == ROWS
    tok = train_tokenizer(read_texts(source), 300)
    pairs, report = load_pairs(source, tok)
    assert len(pairs) == 2 and record_kind(source) in repr(report)

def test_parquet_and_its_missing_values(tmp_path):
    found = list(read_records(write("Parquet", tmp_path)))
    assert record_kind(tmp_path/"a") == "Parquet"
    assert [n for n, _ in found] == [1, 2, 3] and found[0][1] == ROWS[0] and found[2][1] == {"prompt": "only a prompt"}
    (tmp_path/"a").write_bytes(b"PAR1 cut off")
    with pytest.raises(ValueError, match="damaged"): list(read_records(tmp_path/"a"))

@pytest.mark.parametrize("kind", ["one", "splits"])
def test_datasets_folders(kind, tmp_path):
    path = write(kind, tmp_path)
    rows = [row for _, row in read_records(path)]
    assert record_kind(path) == "datasets folder" and [r["chosen"] for r in rows] == [r["chosen"] for r in ROWS]
    assert rows[0]["prompt"] == [dict(role="user", content="What is it?")]
    if kind == "splits":
        assert [r["chosen"] for _, r in read_records(f"{path}:test")] == ["Yes."]
        with pytest.raises(ValueError, match="has the splits train, test, wanted dev: write .*a:train"):
            list(read_records(f"{path}:dev"))
    in_memory = pytest.importorskip("datasets").load_from_disk(path)
    if kind == "one": assert [r for _, r in read_records(in_memory)] == rows

def test_without_the_packages(tmp_path, monkeypatch):
    (tmp_path/"x.parquet").write_bytes(b"PAR1")
    (tmp_path/"d").mkdir(); (tmp_path/"d"/"state.json").write_text("{}")
    for name in ("pyarrow.parquet", "datasets"): monkeypatch.setitem(sys.modules, name, None)
    for source, package in (("x.parquet", "pyarrow"), ("d", "datasets")):
        with pytest.raises(ValueError, match=f"pip install {package}"): list(read_records(tmp_path/source))

def test_a_hub_id_without_a_network(monkeypatch):
    pytest.importorskip("datasets")
    assert record_kind("owner/nothing-of-this-name") == record_kind("owner/name:test") == "hub"
    with pytest.raises(ValueError, match="datasets cannot read 'owner/nothing-of-this-name'"):
        list(read_records("owner/nothing-of-this-name"))

def test_places_where_nothing_is(tmp_path):
    for name in ("none.jsonl", tmp_path/"none.csv", "none"):
        with pytest.raises(FileNotFoundError, match="no file .*none"): list(read_records(name))
    with pytest.raises(ValueError, match="name a file in it"): list(read_records(tmp_path))
    with pytest.raises(TypeError, match=r"list\(...\)"): list(read_records(iter(ROWS)))

@pytest.mark.parametrize("text, line, words", [
    ("prompt,chosen\na,b\nc\n", 3, "number of cells"), ("prompt,chosen\na,b,c\n", 2, "number of cells")])
def test_csv_rows_to_fix(text, line, words, tmp_path):
    (tmp_path/"x.csv").write_text(text)
    bad = [(n, row) for n, row in read_records(tmp_path/"x.csv") if isinstance(row, RowError)]
    assert [n for n, _ in bad] == [line] and words in str(bad[0][1])

@pytest.mark.parametrize("code,word", [("utf-16", "utf-16"), ("latin-1", "latin1")])
def test_csv_in_another_code_names_its_code(code, word, tmp_path):
    (tmp_path/"x.csv").write_bytes("prompt,chosen,rejected\na,caf\xe9,c\n".encode(code))
    with pytest.raises(ValueError, match=f"not UTF-8: run iconv -f {word} -t utf-8"): list(read_records(tmp_path/"x.csv"))

def test_csv_as_a_whole(tmp_path):
    path = tmp_path/"x.csv"
    path.write_text('prompt;chosen;rejected\na;"x; y";\n"two\nlines";b;c\n')
    assert list(read_records(path)) == [(2, dict(prompt="a", chosen="x; y")), (3, dict(prompt="two\nlines", chosen="b", rejected="c"))]
    path.write_text("prompt,chosen\n" + "x" * 200_000 + ",b\n")
    assert len(list(read_records(path))[0][1]["prompt"]) == 200_000
    path.write_bytes("prompt,chosen\ncafé,b\n".encode("latin-1"))
    with pytest.raises(ValueError, match="not UTF-8"): list(read_records(path))
    path.write_text('prompt,chosen\n"a"b,c\n')
    with pytest.raises(ValueError, match="no CSV"): list(read_records(path))

def test_two_columns_of_one_name_are_refused(tmp_path):
    import pyarrow, pyarrow.parquet
    (tmp_path/"x.csv").write_text("prompt,chosen,prompt\na,b,c\n")
    pyarrow.parquet.write_table(pyarrow.table([["a"], ["b"], ["c"]], names=["prompt", "chosen", "prompt"]), tmp_path/"x.parquet")
    for name in ("x.csv", "x.parquet"):
        with pytest.raises(ValueError, match=f"{name}: two columns are called prompt: rename or delete one"): list(read_records(tmp_path/name))
    (tmp_path/"x.csv").write_text("prompt,chosen,,\na,b,,\n")                                        # nobody's columns
    assert [row for _, row in read_records(tmp_path/"x.csv")] == [dict(prompt="a", chosen="b")]

@pytest.mark.parametrize("text", ['[{"prompt": "a"},', "[" * 100_000, '[{"a": 1, "a": 2}]'])
def test_a_json_list_that_is_no_good(text, tmp_path):
    (tmp_path/"x.json").write_text(text)
    with pytest.raises(ValueError, match="JSON list and cannot be read"): list(read_records(tmp_path/"x.json"))

def test_a_json_list_names_the_row(tmp_path):
    (tmp_path/"x.json").write_text('\n [{"prompt": "a", "response": "b"}, 7]')
    with pytest.raises(DataError, match="x.json:2: not an object: row 2 is 7"):
        load_demonstrations(tmp_path/"x.json", train_tokenizer(["a"], 262))

@pytest.mark.parametrize("raw, place", [(b'{"a": 1,\n "b": }', "line 2, column 7"), (b'"caf\xe9"', "column 5"), (b'[1,\n2,\n"\xff"]', "line 3, column 2"),
                                        (b'[1, x]', "column 5")])
def test_a_fault_is_told_with_its_line_if_there_are_several(raw, place):
    with pytest.raises(RowError, match=f" at {place};"): parse_json(raw)
