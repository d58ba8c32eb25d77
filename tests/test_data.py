"The loader on every fault we could think of, other tokenizers, and a real file where it is found."
import json, random, re, time, tracemalloc, pytest
from pathlib import Path
from rlhf_nb.data.text import (encode_prompt, load_demonstrations, load_pairs, load_prompts, load_unpaired,
    pair_margins, parse_row, prompts_of, row_format, read_texts, split_by_prompt, train_tokenizer,
    truncate_tokens)
from rlhf_nb.base.reading import RowError, read_jsonl
from rlhf_nb.data.records import DataError

GOOD = dict(prompt="What is it?", chosen="A kind answer.", rejected="No.")

@pytest.fixture(scope="module")
def tok(): return train_tokenizer(["What is it? A kind answer. No. naïve 日本語"] * 3, 300)

@pytest.fixture
def write(tmp_path):
    "Write rows (dicts as JSON, text and bytes as they are) and give the path."
    def write(*rows, end="\n", name="rows.jsonl"):
        raw = [r if isinstance(r, bytes) else (r if isinstance(r, str) else
               json.dumps(r, ensure_ascii=False)).encode() for r in rows]
        path = tmp_path/name
        path.write_bytes(b"\n".join(raw) + end.encode())
        return path
    return write

def texts(tok, seqs): # prompt with marks, response with eos
    out = []
    for ids, real, resp in zip(seqs.ids, seqs.attention_mask, seqs.response_mask):
        out.append((tok.decode(ids[real & ~resp]), tok.decode(ids[resp])))
    return out

# one bad row each: (row, kind, words that the message must hold)
TO_FIX = [
    ('{"prompt": "a", "chosen": "b" "rejected": "c"}', "broken JSON", ["column 31"]),
    ('{"prompt": "a", "chosen": "b", "rej', "broken JSON", ["column"]),
    ("[" * 100_000, "broken JSON", ["deep"]),
    ('{"prompt": "a", "prompt": "b", "chosen": "c", "rejected": "d"}', "repeated key", ['"prompt"']),
    (b'{"prompt": "caf\xe9", "chosen": "b", "rejected": "c"}', "not UTF-8", ["0xe9", "column 16", "iconv"]),
    ('{"prompt": "a", "chosen": "b", "rejected": "c", "score": ' + "9" * 5000 + "}", "broken JSON", ["5000 digits", "as text"]),
    ('{"prompt": -' + "9" * 5000 + "}", "broken JSON", ["500"]),
    ('["a", "b"]', "not an object", ["a list"]),
    ("17", "not an object", ["17"]),
    ("null", "not an object", ["null"]),
    (dict(prompt="a", chosen="b"), "missing key", ['"rejected"', '"prompt", "chosen"']),
    ({}, "missing key", ["none"]),
    (dict(GOOD, chosen=None), "wrong type", ['"chosen"', "null"]),
    (dict(GOOD, chosen=3), "wrong type", ["3"]),
    (dict(GOOD, prompt=dict(role="user", content="x")), "wrong type", ['"prompt"', "an object"]),
    (dict(GOOD, prompt=["x"]), "wrong type", ['"prompt[0]"', "text"]),
    (dict(GOOD, prompt=[dict(role="user", content=["x"])]), "wrong type", ['"prompt[0].content"', "a list"]),
    (dict(GOOD, prompt=[{"from": "human", "value": "x"}]), "missing key", ['"role"', '"from", "value"']),
    (dict(GOOD, prompt=[dict(role="user")]), "missing key", ['"content"', "prompt[0]"]),
    (dict(GOOD, prompt=[dict(role="human", content="x")]), "unknown role", ["'human'", "assistant"]),
    (dict(GOOD, prompt=[dict(role="user", content="x"), dict(role="assistant", content="y")]), "no question", ["user's"]),
    (dict(chosen=[dict(role="user", content="one"), dict(role="assistant", content="x")],
          rejected=[dict(role="user", content="two"), dict(role="assistant", content="y")]), "two prompts", ["same prompt"]),
    (dict(GOOD, chosen=[dict(role="user", content="x")]), "no answer", ['"chosen"', "user"]),
    (dict(GOOD, chosen=[dict(role="user", content="else"), dict(role="assistant", content="x")]), "two prompts", ["same prompt"]),
    ('{"prompt": "half \\ud83d", "chosen": "b", "rejected": "c"}', "half a character", ["'\\ud83d'", "character 6"]),
]
TO_COUNT = [
    (dict(GOOD, prompt=""), "empty text"), (dict(GOOD, prompt=" \n"), "empty text"),
    (dict(GOOD, chosen=""), "empty text"), (dict(GOOD, rejected=""), "empty text"),
    (dict(GOOD, prompt=[]), "empty text"),
    (dict(GOOD, prompt=[dict(role="user", content="")]), "empty text"),
    (dict(GOOD, rejected=GOOD["chosen"]), "chosen equals rejected"),
    (dict(GOOD, rejected="</b> then <eos> and more"), "special token in the text"),
    (dict(GOOD, prompt="I am <|assistant|> now"), "special token in the text"),
    (GOOD, "repeats an earlier row"),
    (dict(GOOD, note="other keys do not matter"), "repeats an earlier row"),
]

@pytest.mark.parametrize("row,kind,words", TO_FIX, ids=lambda x: x if isinstance(x, str) and len(x) < 30 else "")
def test_row_to_fix(row, kind, words, tok, write):
    path = write(GOOD, "", row, dict(GOOD, prompt="b"))
    with pytest.raises(DataError) as e: load_pairs(path, tok)
    message = str(e.value)
    assert f"{path}:3: {kind}: " in message and message.count(f"{path}:") == 1
    for word in words: assert word in message
    assert "strict=False" in message and ";" in message.split(kind)[1]   # a remedy
    pairs, report = load_pairs(path, tok, strict=False)
    assert (report.lines, report.dropped, report.total) == ((1, 4), {kind: [3]}, 3)
    assert len(pairs) == 2

@pytest.mark.parametrize("row,kind", TO_COUNT)
def test_row_to_count(row, kind, tok, write):
    pairs, report = load_pairs(write(GOOD, row), tok)
    assert len(pairs) == 1 and report.dropped == {kind: [2]}

def test_all_faulty_lines_at_once(tok, write):
    path = write(GOOD, *[row for row, *_ in TO_FIX])
    with pytest.raises(DataError) as e: load_pairs(path, tok)
    assert len(e.value.errors) == len(TO_FIX) > 20
    assert [line for line, _ in e.value.errors] == list(range(2, 2 + len(TO_FIX)))
    assert f"and {len(TO_FIX) - 20} more" in str(e.value) and str(e.value).count(f"{path}:") == 20
    pairs, report = load_pairs(path, tok, strict=False)
    assert report.kept == 1 and report.total == 1 + len(TO_FIX)

def test_nothing_left(tok, write):
    with pytest.raises(ValueError, match="nothing is left") as e:
        load_pairs(write(dict(GOOD, chosen=""), dict(GOOD, rejected="A kind answer.")), tok)
    assert "empty text" in str(e.value) and "chosen equals rejected" in str(e.value)
    for empty in (write("", "  "), []):
        with pytest.raises(ValueError, match="nothing is left of .*, it holds no rows: give a file"): load_pairs(empty, tok)

@pytest.mark.parametrize("start,word", [(b"\x1f\x8b\x08", "gunzip"), (b"PAR1", "Parquet"),
    ("{}".encode("utf-16"), "UTF-16"), (b'[{"prompt": "a"}]', "jq"), (b"[\n", "jq"), (b"{\n", "jq")])
def test_other_kinds_of_file(start, word, tmp_path):
    path = tmp_path/"x.jsonl"
    path.write_bytes(start)
    with pytest.raises(ValueError, match=word): list(read_jsonl(path))

def test_a_conversation_that_holds_more_than_its_prompt(tok, write):
    user, system = dict(role="user", content="What is it?"), dict(role="system", content="Be kind.")
    def reply(x): return dict(role="assistant", content=x)
    full = [system, user, reply("Hm?"), user]
    whole = tok.apply_chat_template([user, reply("A kind answer.")], tokenize=True, return_dict=False)
    pairs, _ = load_pairs(write(GOOD), tok)
    assert pairs.chosen.ids[0].tolist() == list(whole)                       # as the template has it
    assert texts(tok, pairs.rejected) == [("<bos><|user|>What is it?<|assistant|>", "No.<eos>")]
    longer = dict(prompt="What is it?", chosen=full + [reply("A.")], rejected=full + [reply("B.")])
    pairs, _ = load_pairs(write(longer), tok)
    assert texts(tok, pairs.chosen) == [("<bos><|system|>Be kind.<|user|>What is it?<|assistant|>Hm?<eos>"
                                         "<|user|>What is it?<|assistant|>", "A.<eos>")]

def test_rows_that_are_no_demonstration_or_no_prompt(tok, write):
    user, a = dict(role="user", content="What?"), dict(role="assistant", content="A.")
    for load, row, kind in [(load_demonstrations, dict(prompt="x"), "missing key"), (load_demonstrations, dict(messages=[a]), "missing key"),
                            (load_demonstrations, dict(messages=[user]), "no answer"), (load_demonstrations, dict(response="x"), "missing key"),
                            (load_prompts, dict(messages=[a]), "no question"), (load_prompts, dict(chosen="x"), "missing key")]:
        with pytest.raises(DataError, match=kind): load(write(row), tok)

def test_prompts(tok, write):
    user, a = dict(role="user", content="What?"), dict(role="assistant", content="A.")
    for row in [dict(prompt="What?"), dict(messages=[user]), dict(prompt=[user, a]), dict(prompt="What?", chosen="", rejected=3)]:
        prompts, report = load_prompts(write(row), tok)
        assert [tok.decode(p) for p in prompts] == ["<bos><|user|>What?<|assistant|>"]
    prompts, report = load_prompts(write(dict(prompt="What is it? " * 20)), tok, max_length=10)
    assert len(prompts[0]) == 10 and report.truncated == {"start of the prompt": [1]}
    assert tok.decode(prompts[0]).endswith("<|assistant|>")

def test_truncate_tokens():
    rng = random.Random(0)
    def ids(): return [rng.randrange(9) for _ in range(rng.randrange(1, 30))]
    for _ in range(300):
        p, answers, max_length = ids(), [ids() for _ in range(rng.randrange(3))], rng.randrange(8, 50)
        short, cut = truncate_tokens(p, answers, max_length)
        assert p[-len(short):] == short and len(short) >= min(len(p), max_length // 4)
        assert all(a[:len(c)] == c and len(c) > 0 for a, c in zip(answers, cut))
        assert max([len(short)] + [len(short) + len(c) for c in cut]) <= max_length
        if cut != answers: assert len(short) <= max_length // 4            # answers are cut last
        if short != p and cut == answers:                            # no more than needed
            assert len(short) + max([0] + [len(c) for c in cut]) == max_length

def test_over_long_rows(tok, write):
    long = "very " * 40
    same = dict(GOOD, chosen=long + "kind", rejected=long + "rude")
    pairs, report = load_pairs(write(GOOD, same, dict(GOOD, chosen=long), dict(GOOD, prompt=long)), tok, 64)
    assert report.dropped == {"chosen equals rejected after truncation": [2]}
    assert report.truncated == {"start of the prompt": [4], "end of an answer": [3]}
    assert pairs.chosen.ids.shape[1] == 64
    eos = (pairs.chosen.ids == tok.eos_token_id).sum(1)
    assert eos.tolist() == [1, 0, 1]                 # an answer that was cut has not ended
    ends = pairs.rejected.ids[pairs.rejected.attention_mask & (pairs.rejected.ids == tok.eos_token_id)]
    assert len(ends) == 3
    pairs, _ = load_pairs(write(dict(prompt="What is it? " * 9, chosen="A kind answer. " * 6, rejected="No.")), tok, 60)
    assert texts(tok, pairs.chosen)[0][0] == texts(tok, pairs.rejected)[0][0]        # the prompt is cut alike
    with pytest.raises(ValueError, match="8 or more"): load_pairs(write(GOOD), tok, 7)

class Plain:
    "A tokenizer as some are: no chat template, marks of its own around every text."
    chat_template, pad_token_id, bos_token_id, eos_token_id = None, 0, 1, 2
    added_tokens_decoder = {}
    def __call__(self, text, add_special_tokens=True):
        ids = [ord(c) for c in text]
        return {"input_ids": [1, *ids, 2] if add_special_tokens else ids}

def test_without_a_chat_template(write):
    pairs, report = load_pairs(write(dict(prompt="ab", chosen="c", rejected="d")), Plain())
    assert pairs.chosen.ids.tolist() == [[1, 97, 98, 99, 2]]         # eos once, at the end
    assert "no chat template" in report.tokenized_with and "no chat template" in repr(report)
    chat = [dict(role="system", content="s"), dict(role="user", content="u")]
    assert encode_prompt(Plain(), chat) == [1, ord("s"), 10, ord("u")]
    class Bad(Plain): pad_token_id = 2
    with pytest.raises(ValueError, match="pad"): load_pairs(write(GOOD), Bad())

def test_a_template_that_refuses(write, tok):
    import copy
    picky = copy.deepcopy(tok)
    picky.chat_template = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ messages[0]['content'] }}"
    row = dict(GOOD, prompt=[dict(role="system", content="s"), dict(role="user", content="u")])
    with pytest.raises(DataError, match="rows.jsonl:2: template.*no system"): load_pairs(write(GOOD, row), picky)

def test_tokenizer_is_lossless_and_saves(tok, tmp_path):
    from transformers import AutoTokenizer
    tok.save_pretrained(tmp_path)
    again, rng = AutoTokenizer.from_pretrained(tmp_path), random.Random(1)
    for text in ["", " ", "  two  spaces ", "a , b ' s n't", "日本語 🦊 é", "\r\n\ttab\x00",
                 *["".join(chr(rng.choice([rng.randrange(32, 127), rng.randrange(0xa0, 0xd000)])) for _ in range(30)) for _ in range(50)]]:
        for t in (tok, again): assert t.decode(t(text, add_special_tokens=False)["input_ids"]) == text
    assert again.chat_template == tok.chat_template
    assert again.convert_tokens_to_ids(["<pad>", "<bos>", "<eos>"]) == [0, 1, 2]
    assert (again.pad_token_id, again.bos_token_id, again.eos_token_id) == (0, 1, 2)
    with pytest.raises(ValueError, match="262"): train_tokenizer(["a"], 261)
    lines = ["the fox eats berries", "the crab eats snails", "日本語"] * 5
    assert train_tokenizer(lines, 300).get_vocab() == train_tokenizer(iter(lines), 300).get_vocab()

def test_long_words_cost_no_more_than_their_length():
    "BPE training is quadratic in the length of a word: 300,000 letters took two minutes."
    start, rng = time.process_time(), random.Random(0)
    letters = "".join(rng.choices("abcdefgh", k=300_000))
    for run in ("a" * 300_000, " " * 300_000, letters):
        tok = train_tokenizer([run, "What is it?"], 300)
        assert tok.decode(tok(run, add_special_tokens=False)["input_ids"]) == run
    assert time.process_time() - start < 30

def test_training_cuts_words_after_1000_letters_and_nothing_else():
    def pieces(*sizes): return ["One word\n" * 3, *("a" * n for n in sizes), " end" * 3]
    def vocab(*texts): return set(train_tokenizer(texts, 300).get_vocab())
    assert vocab("".join(pieces(2500))) == vocab(*pieces(1000, 1000, 500)) != vocab(*pieces(900, 900, 700))

def test_a_row_of_long_words_is_loaded_and_truncated(tok, write):
    start = time.process_time()
    pairs, report = load_pairs(write(dict(prompt="a" * 300_000, chosen="b" * 300_000, rejected=" " * 300_000 + "c")), tok)
    assert report.kept == 1 and pairs.chosen.ids.shape[1] == 256 and time.process_time() - start < 20

def test_what_a_file_says_is_never_run(tok, write, tmp_path):
    "Templates, Python and pickles in a text stay text."
    for text in ("{{ 7 * 7 }}{% for x in range(3) %}x{% endfor %}", "{{ cycler.__init__.__globals__.os.system('touch owned') }}",
                 "__import__('os').mkdir('owned')", "!!python/object/apply:os.mkdir [owned]", "cos\nmkdir\n(S'owned'\ntR."):
        pairs, _ = load_pairs(write(dict(prompt=text, chosen=text + " A.", rejected=text + " B.")), tok, 600)
        assert texts(tok, pairs.chosen) == [(f"<bos><|user|>{text}<|assistant|>", text + " A.<eos>")]
    assert not Path("owned").exists() and [p.name for p in tmp_path.iterdir()] == ["rows.jsonl"]

def test_texts(write):
    user, a = dict(role="user", content="u"), dict(role="assistant", content="a")
    path = write(GOOD, "{broken", dict(prompt=[user], chosen=[user, a], rejected=5),
                 dict(messages=[user, 3, a]), '{"prompt": "half \\ud83d"}')
    assert list(read_texts(path)) == [*GOOD.values(), "u", "u", "a", "u", "a", "half "]

def test_report_adds_up(tok, write):
    rows = [GOOD] + [row for row, *_ in TO_FIX] + [row for row, _ in TO_COUNT]
    pairs, s = load_pairs(write(*rows), tok, strict=False)
    assert s.total == len(rows) and s.kept == len(pairs) == len(s.lines)
    lines = sorted([*s.lines, *[n for part in s.dropped.values() for n in part]])
    assert lines == list(range(1, len(rows) + 1))                    # each exactly once
    for _, what, _ in s.table(): assert what in repr(s)
    _, s = load_pairs(write(GOOD | {"<b>": 1}, name="<script>.jsonl"), tok)
    assert not re.search("<(script|b)>", s._repr_html_()) and "&lt;script&gt;" in s._repr_html_() and "&lt;b&gt;" in s._repr_html_()

def test_split_keeps_prompts_together():
    prompts = [(n, 5) for n in [0, 1, 1, 2, 3, 3, 3, 4, 0, 5]]
    seen = set()
    for seed in range(40):
        learn, held = split_by_prompt(prompts, 4, seed)
        assert not {prompts[i] for i in learn} & {prompts[i] for i in held}
        assert sorted(learn.tolist() + held.tolist()) == list(range(10)) and 3 <= len(held) <= 4
        assert (learn.diff() > 0).all() and (held.diff() > 0).all()
        seen |= set(held.tolist())
    assert seen == set(range(10))                                    # any row may be held out
    for bad in (0, 10, -1):
        with pytest.raises(ValueError, match="n_eval"): split_by_prompt(prompts, bad)
    with pytest.raises(ValueError, match="raise n_eval"): split_by_prompt([(1,)] * 4, 2)

def test_split_is_the_same_in_part_of_the_file():
    prompts = [(n,) for n in range(200)]
    held, part = {prompts[i] for i in split_by_prompt(prompts, 40)[1]}, prompts[10:]     # a loader that dropped ten rows
    assert len(held & {part[i] for i in split_by_prompt(part, 40)[1]}) >= 40 - 10
    assert held >= {part[i] for i in split_by_prompt(part, len(held & set(part)))[1]}

def test_reading_does_not_hold_the_file(tmp_path):
    path = tmp_path/"large.jsonl"
    line = json.dumps(dict(GOOD, chosen="x" * 10_000)) + "\n"
    with path.open("w") as f: f.writelines([line] * 2000)            # 20 MB
    tracemalloc.start()
    n, peak = sum(1 for _ in read_jsonl(path)), tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n == 2000 and peak < 1e6

# ---- formats of other libraries
USER, TELL = dict(role="user", content="What is it?"), dict(role="assistant", content="A.")
def turn(role, content): return dict(role=role, content=content)

@pytest.mark.parametrize("row, form, prompt, answers", [
    (dict(chosen="\n\nHuman: What is it?\n\nAssistant: A.", rejected="\n\nHuman: What is it?\n\nAssistant: No."),
     "preference, Human/Assistant, standard", [USER], ["A.", "No."]),
    (dict(chosen="\n\nHuman: Hi\n\nAssistant: Yes?\n\nHuman: What is it?\n\nAssistant: A.",
          rejected="\n\nHuman: Hi\n\nAssistant: Yes?\n\nHuman: What is it?\n\nAssistant: No."),
     "preference, Human/Assistant, standard", [turn("user", "Hi"), turn("assistant", "Yes?"), USER], ["A.", "No."]),
    (dict(prompt="\n\nHuman: Hi\n\nAssistant: Yes?\n\nHuman: What is it?\n\nAssistant:", chosen=" A.", rejected=" No."),
     "preference, Human/Assistant, standard", [turn("user", "Hi"), turn("assistant", "Yes?"), USER], ["A.", "No."]),
    (dict(prompt="Human: or robot?", chosen=" A.", rejected="No."), "preference, explicit prompt, standard",
     [turn("user", "Human: or robot?")], [" A.", "No."]),             # no dialogue: as it stands
    (dict(chosen="Q: Sky?\n\nA: It is blue.", rejected="Q: Sky?\n\nA: It is black."), "preference, implicit prompt, standard",
     [turn("user", "Q: Sky?\n\nA:")], ["It is blue.", "It is black."]),     # up to the turn, not to the first word that differs
    (dict(chosen="<|user|>Hm?<|assistant|>The answer: 4", rejected="<|user|>Hm?<|assistant|>The answer: 5"),
     "preference, implicit prompt, standard", [turn("user", "<|user|>Hm?<|assistant|>")], ["The answer: 4", "The answer: 5"]),
    (dict(chosen="[INST] Hm? [/INST] Yes", rejected="[INST] Hm? [/INST] Yet"), "preference, implicit prompt, standard",
     [turn("user", "[INST] Hm? [/INST]")], ["Yes", "Yet"]),
    (dict(instruction="Edit.", input="He go.", output="He goes.", chosen="He goes.", rejected="He go."),
     "preference, explicit prompt, standard", [turn("user", "Edit.\n\nHe go.")], ["He goes.", "He go."]),
    (dict(instruction="Hm?", input="", chosen="A.", rejected="B."), "preference, explicit prompt, standard", [turn("user", "Hm?")],
     ["A.", "B."]),
    (dict(chosen=[USER, TELL], rejected=[USER, dict(TELL, content="No.")]), "preference, implicit prompt, conversational",
     [USER], ["A.", "No."]),
    (dict(prompt="What is it?", chosen=[USER, TELL], rejected=[USER, dict(TELL, content="No.")], score_chosen=9.0,
          score_rejected=7.5), "preference, explicit prompt, conversational", [USER], ["A.", "No."]),   # UltraFeedback
    (dict(prompt="What is it?", chosen="A.", rejected="No."), "preference, explicit prompt, standard", [USER], ["A.", "No."]),
])
def test_forms_of_pairs(row, form, prompt, answers):
    assert row_format(row) == form and parse_row(row) == (prompt, answers)

def test_a_common_start_that_is_no_turn_is_refused_and_shown():
    with pytest.raises(RowError, match="""both begin with 'The sky is bl' and go on with 'ue.' and 'ack.'.*give "prompt\""""):
        parse_row(dict(chosen="The sky is blue.", rejected="The sky is black."))

def test_alpaca_rows_and_questions_are_read_and_other_columns_named(tok):
    alpaca, asked = dict(instruction="Add.", input="2 and 2", output="4", topic="sums"), dict(question="Hm?", answer="A.", level=3)
    seqs, report = load_demonstrations([alpaca, asked], tok)
    assert texts(tok, seqs) == [("<bos><|user|>Add.\n\n2 and 2<|assistant|>", "4<eos>"), ("<bos><|user|>Hm?<|assistant|>", "A.<eos>")]
    assert report.columns == dict(topic=["sums", None], level=[None, 3]) and "2  columns besides the texts: topic, level" in repr(report)
    (prompt,), report = load_prompts([asked], tok)
    assert tok.decode(prompt) == "<bos><|user|>Hm?<|assistant|>" and report.columns == dict(answer=["A."], level=[3])
    _, report = load_demonstrations([dict(prompt="a", response="b", answer="c")], tok)
    assert report.columns == dict(answer=["c"])                               # the response is learned
    assert {*read_texts([alpaca, asked])} == {"Add.", "2 and 2", "4", "Hm?", "A."}

def test_a_system_column_comes_first_and_a_context_follows_its_question(tok):
    want = "<bos><|system|>Be kind.<|user|>Hm?<|assistant|>"
    asks, system = turn("user", "Hm?"), turn("system", "Be kind.")
    for row in (dict(question="Hm?", chosen="A.", rejected="B."), dict(prompt="Hm?", chosen="A.", rejected="B."),
                dict(chosen=[asks, TELL], rejected=[asks, dict(TELL, content="B.")]), dict(prompt=[system, asks], chosen="A.", rejected="B.")):
        pairs, report = load_pairs([row | dict(system="Be kind.", source="s")], tok)
        assert texts(tok, pairs.chosen) == [(want, "A.<eos>")] and [*report.columns] == ["source"]
        assert load_pairs([row | dict(system="")], tok)[1].kept == 1
    for row in (dict(conversations=[{"from": "human", "value": "Hm?"}, {"from": "gpt", "value": "A."}]), dict(messages=[asks, TELL])):
        assert texts(tok, load_demonstrations([row | dict(system="Be kind.")], tok)[0]) == [(want, "A.<eos>")]
    assert "Be kind." in read_texts([dict(system="Be kind.", prompt="Hm?")])
    assert load_demonstrations([dict(text="Hm? A.", system="Be kind.")], tok)[1].columns == dict(system=["Be kind."])   # not read, so named
    with pytest.raises(DataError, match='"system" and the first message differ'): load_pairs([dict(GOOD, prompt=[system, asks], system="No.")], tok)
    dolly = dict(instruction="Hm?", context="A text.", response="A.")
    assert texts(tok, load_demonstrations([dolly, dict(dolly, context="")], tok)[0]) == [
        ("<bos><|user|>Hm?\n\nA text.<|assistant|>", "A.<eos>"), ("<bos><|user|>Hm?<|assistant|>", "A.<eos>")]
    with pytest.raises(DataError, match='"context" is an object; give text'): load_demonstrations([dict(dolly, context=dict(a=1))], tok)

def test_what_lacks_is_named_with_the_flag_that_names_it_and_one_fault_three_times(tok):
    rows = [dict(query=f"{i}?", response="A.") for i in range(30)]
    with pytest.raises(DataError, match=r'no "prompt", the keys are .*\(--columns prompt=KEY\)') as e: load_demonstrations(rows, tok)
    assert str(e.value).count("rows in memory:") == 3 and "... and 27 more" in str(e.value) and len(e.value.errors) == 30
    with pytest.raises(DataError, match='no "chosen", the keys are "instruction", "better"; add it'): load_pairs([dict(instruction="a", better="b")], tok)
    with pytest.raises(DataError, match='no "messages" or "response" or "completion"'): load_demonstrations([dict(prompt="a", reply="b")], tok)

def test_forms_of_demonstrations_and_prompts(tok):
    talk = dict(conversations=[{"from": "human", "value": "What is it?"}, {"from": "gpt", "value": "A."}])
    dialogue = dict(text="\n\nHuman: What is it?\n\nAssistant: A.")
    parts = dict(messages=[dict(USER, content=[dict(type="text", text="What "), dict(type="text", text="is it?")]), TELL])
    for row in (talk, dialogue, parts, dict(messages=[USER, TELL]), dict(prompt="What is it?", response="A."),
                dict(prompt="What is it?", chosen="A.", rejected="A."), dict(prompt=[USER], completion=[TELL])):
        seqs, report = load_demonstrations([row], tok)
        assert texts(tok, seqs) == [("<bos><|user|>What is it?<|assistant|>", "A.<eos>")], row
    assert report.formats == {"prompt-completion, explicit prompt, conversational": 1}
    hh = dict(chosen="\n\nHuman: Hm?\n\nAssistant: A.", rejected="\n\nHuman: Hm?\n\nAssistant: B.")
    for row in (talk, dict(messages=[USER, TELL]), dict(chosen=[USER, TELL], rejected=[USER, TELL])):
        assert tok.decode(load_prompts([row], tok)[0][0]) == "<bos><|user|>What is it?<|assistant|>"
    assert tok.decode(load_prompts([hh], tok)[0][0]) == "<bos><|user|>Hm?<|assistant|>"
    mixed = [dict(prompt="a", response="b"), dict(messages=[USER, TELL]), dict(prompt="c", response="d")]
    report = load_demonstrations(mixed, tok)[1]
    assert list(report.formats.values()) == [2, 1] and "2  kept: prompt-completion" in repr(report)

def test_a_text_alone_is_learned_whole(tok):
    seqs, report = load_demonstrations([dict(text="What is it?"), dict(text="No. " * 40)], tok, 16)
    assert texts(tok, seqs)[0] == ("<bos>", "What is it?<eos>") and seqs.lengths().tolist()[1] == 16
    assert report.truncated == {"end of a text": [2]} and report.formats == {"language modeling, standard": 2}

def test_every_answer_of_a_chat_and_nothing_of_the_user(tok):
    chat = [turn("system", "Be kind."), USER, TELL, turn("user", "And?"), turn("assistant", "No."), turn("user", "Hm."), TELL]
    seqs, report = load_demonstrations([dict(messages=chat)], tok)
    whole = tok.apply_chat_template(chat, tokenize=True, return_dict=False)
    assert seqs.ids[0].tolist() == list(whole) and not report.truncated
    at = seqs.response_mask[0].nonzero()[:, 0].tolist()
    assert tok.decode(seqs.ids[0][at]) == "A.<eos>No.<eos>A.<eos>"
    assert prompts_of(seqs) == [tuple(encode_prompt(tok, chat[:2]))]
    cut, report = load_demonstrations([dict(messages=chat)], tok, len(whole) - len(encode_prompt(tok, chat[:2])) - 1)
    assert tok.decode(cut.ids[0][cut.response_mask[0]]) == "No.<eos>A.<eos>" and report.truncated == {"start of the prompt": [1]}
    with pytest.raises(ValueError, match="turns must be"): load_demonstrations([dict(messages=chat)], tok, turns="first")

def test_a_template_that_rewrites_earlier_turns(tok):
    import copy
    forgets = copy.deepcopy(tok)
    forgets.chat_template = ("{% for m in messages %}{% if m.role == 'assistant' and not loop.last %}<|assistant|>...{{ eos_token }}"
        "{% else %}<|{{ m.role }}|>{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}")
    seqs, report = load_demonstrations([dict(messages=[USER, TELL, USER, TELL])], forgets)
    assert tok.decode(seqs.ids[0][seqs.response_mask[0]]) == "A.<eos>"
    assert report.truncated == {"earlier answers, which the template rewrites": [1]}

def test_labels_are_used_or_refused(tok):
    rows = [dict(prompt=p, completion="A.", label=x) for p, x in zip("abcd", (True, False, "true", "0"))]
    seqs, report = load_demonstrations(rows, tok)
    assert len(seqs) == 2 and report.dropped == {"label is false: not imitated": [2, 4]}
    seqs, desirable, report = load_unpaired(rows, tok)
    assert desirable.tolist() == [True, False, True, False] and report.kept == 4
    assert report.formats == {"unpaired preference, standard": 4}
    rated = [dict(prompt="a", response="b", stars=3)]
    with pytest.raises(DataError, match="one answer instead of a pair: .* `train reward --rating KEY` from a rating"): load_pairs(rated, tok)
    with pytest.raises(DataError, match="load_unpaired reads such rows"): load_pairs(rows, tok)
    with pytest.raises(DataError, match="no \"label\""): load_unpaired([dict(prompt="a", completion="b")], tok)
    with pytest.raises(DataError, match='"label" is 7; give true or false'): load_unpaired([dict(rows[0], label=7)], tok)

@pytest.mark.parametrize("more, words", [
    (dict(tools=[dict(name="clock")]), "tools would be dropped"), (dict(images=["x.png"]), "models here read text"),
    (dict(labels=[True, False]), "process reward models"), (dict(labels=0), 'name the better answer "chosen"'),
    (dict(history=[["Hi", "Hello"]]), "turns would be dropped"), (dict(history="How are you?"), r"SHP, map it \(--columns prompt=history\)"),
    (dict(history="[['Hi', 'Hello']]"), r"the column\n"), (dict(prompt=[dict(USER, thinking="Hm.")]), "thoughts would be dropped"),
    (dict(prompt=[USER, dict(TELL, weight=0), USER]), '"weight" in "prompt.1." is 0'), (dict(chat_template_kwargs=dict(thinking=True)), "template's own settings"),
    (dict(prompt=[dict(USER, tool_calls=[dict(name="f")])]), "calls would be dropped"),
    (dict(prompt=[USER, turn("tool", "12:00")]), 'the role "tool"')])
def test_what_a_plain_chat_cannot_do_is_refused_in_words(more, words, tok):
    with pytest.raises(DataError, match=words): load_pairs([GOOD | more], tok)
    empty = {k: [] if isinstance(x, list) else {} for k, x in more.items() if k != "prompt"}
    assert len(load_pairs([GOOD | empty], tok)[0]) == 1                      # an empty column asks for nothing

def test_margins(tok):
    rows = [dict(GOOD, prompt=p, score_chosen=a, score_rejected=b) for p, a, b in (("a", 9., 7.5), ("b", 3, 3))]
    for row, want in ((rows, [1.5, 0.]), ([dict(GOOD, margin=.5)], [.5]), ([dict(GOOD, margin="1.5")], [1.5]),
                      ([dict(GOOD, score_chosen="9", score_rejected="7.5")], [1.5])):          # as text in a CSV
        assert pair_margins(load_pairs(row, tok)[1]).tolist() == want
    assert pair_margins(load_pairs([GOOD], tok)[1]) is None
    for bad in ([*rows, dict(GOOD, score_chosen=1., score_rejected=2.)], [*rows[:2], dict(GOOD, margin=-1.)]):
        with pytest.raises(ValueError, match="lines .*3: write a number, swap"): pair_margins(load_pairs(bad, tok)[1])

@pytest.mark.parametrize("wrong", ["abc", "", None, [1], float("inf"), float("nan"), "inf"])
def test_margins_that_are_no_numbers(tok, wrong):
    for good, bad in ((dict(margin="1.5"), dict(margin=wrong)), (dict(score_chosen="9", score_rejected="7.5"), dict(score_chosen=wrong, score_rejected=1))):
        with pytest.raises(ValueError, match="no margin of 0 or more in lines 2: write a number"):
            pair_margins(load_pairs([GOOD | good, GOOD | dict(prompt="c") | bad], tok)[1])

def test_further_columns_stay_with_their_rows(tok):
    rows = [dict(prompt="a", answer=4), dict(prompt="", answer=5), dict(prompt="c", answer=6, chosen="x", source="s")]
    _, report = load_prompts(rows, tok)
    assert report.columns == {"answer": [4, 6], "chosen": [None, "x"], "source": [None, "s"]}

def test_the_page_names_what_makes_trls_sft_loss_another(tmp_path):
    "The cell of the page, then the same row through TRL's trainer: its loss is the page's third number, to rounding."
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    page = Path(__file__).parents[1]/"nbs/engine/data/text.ipynb"
    cell = next(c for c in json.loads(page.read_text("utf-8"))["cells"] if c["id"] == "against_trl")
    code = "".join(cell["source"]).replace('read_texts("pairs.jsonl")', '["Where does the fox live? The fox lives in the forest."] * 9')
    said = []
    exec("from rlhf_nb.data.text import *\nfrom rlhf_nb.tokens import make_seqs\nfrom rlhf_nb.base.models import tiny_lm\n"
         "from rlhf_nb.base.logprobs import logprobs\n" + code, space := dict(print=said.append))
    ours, line_end, theirs = (float(x.split()[0]) for x in said)
    assert len({ours, line_end, theirs}) == 3
    rows = datasets.Dataset.from_list([dict(prompt=space["chat"][:1], completion=space["chat"][1:])])
    args = trl.SFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[], save_strategy="no", max_steps=1, logging_steps=1,
                         learning_rate=0., disable_tqdm=True, gradient_checkpointing=False, per_device_train_batch_size=1)
    trainer = trl.SFTTrainer(model=space["lm"], args=args, train_dataset=rows, processing_class=space["chatml"])
    batch = next(iter(trainer.get_train_dataloader()))
    assert trainer.compute_loss(space["lm"].eval(), batch).item() == pytest.approx(theirs, abs=1e-4)
