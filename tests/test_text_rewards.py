"Functions of texts as rewards: what they get, what they may return, what is said when they are wrong."
import sys, pytest, torch
from rlhf_nb.data.text import train_tokenizer
from rlhf_nb.base.models import ScalarModel, load_bundled, load_reward_model, load_tokenizer, save_reward_model, tiny_lm, to_classifier
from rlhf_nb.run.text_rewards import PromptTable, reward_parts, load_reward_function, make_model_reward_fn, make_text_reward_fn, reward_files
from rlhf_nb.run.text_rewards import load_reader, score_texts
from rlhf_nb.reward import score_seqs
from rlhf_nb.tokens import make_seqs
from rlhf_nb.trainers.ppo_trainer import WeightedRewards, reward_metrics

ROWS = [dict(prompt="What is 2 + 2?", answer="4", level=1), dict(prompt="What is 3 + 5?", answer="8", level=2)]

@pytest.fixture(scope="module")
def tok(): return train_tokenizer(["What is 2 + 2? What is 3 + 5? It is 4, not 8."] * 3, 300)

@pytest.fixture
def table(tok): return PromptTable(ROWS, tok, 64)

def answered(tok, table, *pairs, ended=True): # (prompt number, text)
    ids = [[*tok(x, add_special_tokens=False)["input_ids"], *[tok.eos_token_id] * ended] for _, x in pairs]
    return make_seqs([table.prompts[i] for i, _ in pairs], ids, tok.pad_token_id)

def test_a_function_gets_texts_and_the_columns_of_its_rows(tok, table):
    seqs, seen = answered(tok, table, (1, "It is 8."), (0, "It is 4."), (1, "4")), {}
    def fn(prompts, responses, **columns):
        seen.update(prompts=prompts, responses=responses, **columns)
        return [1, 2.5, torch.tensor(3.)]
    assert make_text_reward_fn(fn, table, tok)(seqs).tolist() == [1., 2.5, 3.]
    assert seen == dict(prompts=["What is 3 + 5?", "What is 2 + 2?", "What is 3 + 5?"], responses=["It is 8.", "It is 4.", "4"],
                        answer=["8", "4", "8"], level=[2, 1, 2])
    only = make_text_reward_fn(lambda prompts, responses, answer: [float(a in r) for a, r in zip(answer, responses)], table, tok)
    assert only(seqs).tolist() == [1., 1., 0.]                          # it did not ask for `level`

@pytest.mark.parametrize("fn, words", [
    (lambda p, r: [1.], "one number per response, 2, got list of 1"), (lambda p, r: 1., "got float of no length"),
    (lambda p, r: {.5: "a", 1.: "b"}, "got dict of no length or order"), (lambda p, r: {1., 2.}, "got set of no length"),
    (lambda p, r: [1., float("nan")], "gave nan for"), (lambda p, r: ["a", 1.], "gave 'a' for")])
def test_what_it_may_return(fn, words, tok, table):
    seqs = answered(tok, table, (0, "4"), (1, "8"))
    with pytest.raises(ValueError, match=words): make_text_reward_fn(fn, table, tok)(seqs)

def test_prompts_that_cannot_be_told_apart(tok):
    long = [dict(prompt=f"{i} and so on: What is 2 + 2?", answer=i) for i in range(2)]
    with pytest.raises(ValueError, match="lines 1 and 2 of rows in memory end with the same tokens"): PromptTable(long, tok, 12)
    assert len(PromptTable(long, tok, 64).prompts) == 2
    same = [dict(x, answer=0) for x in long]
    assert len(PromptTable(same, tok, 12).prompts) == 2                   # nothing to confuse

def test_chats_come_as_messages(tok):
    talk = [dict(role="user", content="Hi"), dict(role="assistant", content="4"), dict(role="user", content="2 + 2?")]
    assert PromptTable([dict(messages=talk)], tok, 64).texts == [talk]
    assert PromptTable([dict(prompt=talk[:1])], tok, 64).texts == ["Hi"]

def test_none_is_a_response_without_a_score(tok, table):
    got = make_text_reward_fn(lambda p, r: [None, 2], table, tok)(answered(tok, table, (0, "4"), (1, "8")))
    assert got[0].isnan() and got[1] == 2

def test_a_function_for_trl_gets_chats_as_trl_gives_them(tok):
    "Of a row in the standard form texts, of one of messages lists of messages; who names responses gets texts."
    talk = [dict(role="user", content="Hi"), dict(role="assistant", content="4"), dict(role="user", content="2 + 2?")]
    table, seen = PromptTable([dict(prompt="Hm?"), dict(prompt=[dict(role="user", content="3 + 5?")]), dict(messages=talk)], tok, 64), []
    seqs = answered(tok, table, (0, "4"), (1, "8"), (2, "It is 4."))
    make_text_reward_fn(lambda completions, prompts: seen.append((prompts, completions)) or [1.] * 3, table, tok)(seqs)
    make_text_reward_fn(lambda prompts, responses: seen.append((prompts, responses)) or [1.] * 3, table, tok)(seqs)
    (prompts, completions), plain = seen
    assert prompts == ["Hm?", [dict(role="user", content="3 + 5?")], talk]
    assert completions == ["4", [dict(role="assistant", content="8")], [dict(role="assistant", content="It is 4.")]]
    assert plain == (["Hm?", "3 + 5?", talk], ["4", "8", "It is 4."])

def test_a_weighted_sum_leaves_out_what_is_not_scored_and_is_nan_where_nothing_is():
    nan = float("nan")
    both = WeightedRewards({"a": (2., lambda seqs: torch.tensor([1., nan, nan, 3.])), "b": (-.5, lambda seqs: torch.tensor([nan, 2., nan, 4.]))})
    assert str(both(None).tolist()) == "[2.0, -1.0, nan, 4.0]"
    assert reward_metrics(both) == pytest.approx({"rewards/a/mean": 2., "rewards/a/std": 2**.5, "rewards/b/mean": 3., "rewards/b/std": 2**.5})
    assert reward_parts("a:f, .5*b/c ,-2*gold") == {"a:f": 1., "b/c": .5, "gold": -2.}

def test_rows_that_are_left_out_ask_nothing(tok):
    table = PromptTable([dict(prompt="Hm?"), dict(prompt=7), dict(prompt="2 + 2?")], tok, 64, strict=False)
    assert table.texts == ["Hm?", "2 + 2?"] and table.report.dropped == {"wrong type": [2]}

def test_names_of_functions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path/"my_rules_17.py").write_text("def right(prompts, responses): return [0.] * len(prompts)\nx = 3\n")
    (tmp_path/"my_broken_17.py").write_text("x = 3\ndef f(:\n")
    (tmp_path/"my_raising_17.py").write_text("x = 3\n\ny = 1 / 0\n")
    (tmp_path/"my_leaving_17.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path/"my_needy_17.py").write_text("import no_such_package_17\n")
    path = list(sys.path)
    assert load_reward_function("my_rules_17:right")(["a"], ["b"]) == [0.] and sys.path == path
    for name, words in (("my_rules_17:wright", "nearest is 'right'"), ("my_rules_17:x", "no function 'x'"), ("no_such_17:f", "run where no_such_17.py lies"),
                        ("my_rules_17.py:right", "such as rules:score"), ("./my_rules_17.py:right", "such as rules:score"),
                        ("my_broken_17:f", "cannot be imported: SyntaxError.*line 2"), ("my_raising_17:f", "ZeroDivisionError, division by zero in line 3"),
                        ("my_leaving_17:f", "cannot be imported: SystemExit, 0 in line 2"),
                        ("my_needy_17:f", "no module 'no_such_package_17'"),
                        ("my_rules_17", "module:function"), (":f", "module:function")):
        with pytest.raises(ValueError, match=words): load_reward_function(name)
    assert sys.path == path

def test_a_reward_model_reads_with_its_own_tokenizer(tok, tmp_path):
    rm, reader = load_bundled("reward")
    save_reward_model(rm, reader, tmp_path/"rm")
    question = [dict(prompt="Where does the fox live?"), dict(prompt="What is the fox fond of?")]
    other = train_tokenizer([x["prompt"] for x in question] * 3, 280)
    a, b = PromptTable(question, reader, 64), PromptTable(question, other, 64)
    pairs = [(1, "The fox is fond of mice."), (0, "The fox lives in the forest.")]
    same = make_model_reward_fn(tmp_path/"rm", a, reader)(answered(reader, a, *pairs))
    far = make_model_reward_fn(tmp_path/"rm", b, other)(answered(other, b, *pairs))
    torch.testing.assert_close(same, far)
    assert same[0] != same[1]

@pytest.mark.parametrize("kind", ["none", "eos"])
def test_a_reward_model_without_a_pad_of_its_own(tok, tmp_path, kind):
    "Its vocabulary has no room for one; what is masked may be any token."
    lm = tiny_lm(tok, "llama")
    tok = train_tokenizer(["What is 2 + 2? What is 3 + 5? It is 4, not 8."] * 3, 300)
    save_reward_model(ScalarModel.from_lm(lm), tok, tmp_path/"rm")
    for file in (tmp_path/"rm").glob("tokenizer*.json"): file.write_text(file.read_text("utf-8").replace("<pad>", "<hole>"), "utf-8")
    reader = load_tokenizer(tmp_path/"rm")
    reader.pad_token = None if kind == "none" else reader.eos_token
    reader.save_pretrained(tmp_path/"rm")
    table = PromptTable(ROWS, tok, 64)
    seqs = answered(tok, table, (1, "It is 8."), (0, "4"))
    want = score_seqs(load_reward_model(tmp_path/"rm"), seqs)                   # but for the name of the pad the tokens are the same
    torch.testing.assert_close(make_model_reward_fn(tmp_path/"rm", table, tok)(seqs), want)
    texts = [table.texts[i] for i in (1, 0)]
    got = score_texts((load_reward_model(tmp_path/"rm"), load_reader(tmp_path/"rm")), [table.prompts[i] for i in (1, 0)],
                      [("It is 8.", True), ("4", True)], 64)
    torch.testing.assert_close(got, want)
    cut = answered(tok, table, (1, "It is 8."), (0, "4"), ended=False)       # scored at its last word, not at an end
    got = score_texts((load_reward_model(tmp_path/"rm"), load_reader(tmp_path/"rm")), [table.prompts[i] for i in (1, 0)],
                      [("It is 8.", False), ("4", False)], 64)
    torch.testing.assert_close(got, score_seqs(load_reward_model(tmp_path/"rm"), cut))
    assert (got - want).abs().min() > 1e-4
    assert load_reader(tmp_path/"rm").pad_token_id >= len(tok) and len(texts) == 2    # no row of the embedding: never looked up

@pytest.mark.parametrize("first", ["!", "<|endoftext|>"])
def test_the_first_token_of_a_reward_models_vocabulary_may_stand_in_an_answer(tok, tmp_path, first):
    "`!` is id 0 in GPT-2's and Llama 3's layout, the end itself in Pythia's; both have no pad."
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = [first, *(x for x in [*letters, "<|endoftext|>"] if x != first)]
    bpe = Tokenizer(models.BPE({x: i for i, x in enumerate(letters)}, []))
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    reader = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|endoftext|>")
    assert reader.convert_tokens_to_ids(first) == 0 and len(reader) == 257
    torch.manual_seed(0)
    lm = GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=257, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=64, bos_token_id=0, eos_token_id=reader.eos_token_id))
    for saved in (to_classifier(ScalarModel.from_lm(lm)), reader): saved.save_pretrained(tmp_path/"rm")
    table, model = PromptTable(ROWS, tok, 64), load_reward_model(tmp_path/"rm")
    texts = ["Wow! It is 8!", "4"]
    got = make_model_reward_fn(tmp_path/"rm", table, tok)(answered(tok, table, *zip((1, 0), texts)))
    for i, text, score in zip((1, 0), texts, got):                         # each alone: nothing is padded
        ids = reader(table.texts[i])["input_ids"], [*reader(text)["input_ids"], reader.eos_token_id]
        assert 0 in ids[1] or text == "4" and first == "!"
        alone = score_seqs(model, make_seqs([ids[0]], [ids[1]], 300))
        torch.testing.assert_close(score, alone[0])
    assert got[0] != got[1]

def test_a_reward_model_without_an_end_is_refused(tok, tmp_path):
    save_reward_model(ScalarModel.from_lm(tiny_lm(tok, "llama")), tok, tmp_path/"rm")
    reader = load_tokenizer(tmp_path/"rm")
    reader.eos_token = None
    reader.save_pretrained(tmp_path/"rm")
    with pytest.raises(ValueError, match="has no eos token, where a finished response is scored"):
        make_model_reward_fn(tmp_path/"rm", PromptTable(ROWS, tok, 64), tok)

def test_a_policy_that_stops_with_another_token_is_read_as_text(tmp_path):
    "The reward model has learned to score at its own end."
    rm, reader = load_bundled("reward")
    save_reward_model(rm, reader, tmp_path/"rm")
    policy = load_tokenizer(tmp_path/"rm")
    policy.eos_token = "?"
    rows = [dict(prompt="Where does the fox live?"), dict(prompt="What is the fox fond of?")]
    a, b = PromptTable(rows, reader, 64), PromptTable(rows, policy, 64)
    pairs = [(1, "The fox is fond of mice."), (0, "The fox lives in the forest.")]
    want = make_model_reward_fn(tmp_path/"rm", a, reader)(answered(reader, a, *[(i, x + "?") for i, x in pairs]))
    torch.testing.assert_close(make_model_reward_fn(tmp_path/"rm", b, policy)(answered(policy, b, *pairs)), want)

def test_long_responses_fit_what_the_reward_model_reads(tok, tmp_path):
    "The policy's tokens may be more in the reward model's; it reads 1024."
    other = train_tokenizer(["a"], 262)                                     # a token for each byte
    save_reward_model(ScalarModel.from_lm(tiny_lm(other, "llama")), other, tmp_path/"rm")
    words = "What is 3 + 5? " * 60
    table = PromptTable([dict(prompt=words)], tok, 512)
    scores = make_model_reward_fn(tmp_path/"rm", table, tok)(answered(tok, table, (0, words)))
    assert scores.isfinite().all()

def test_words_that_a_tokenizer_does_not_know(tmp_path):
    "Nothing was cut: to raise max_length would not help."
    _, plain = load_bundled("sft")
    rows = [dict(prompt=f"What is {n} + 1?", answer=str(n + 1)) for n in (7, 8)]
    with pytest.raises(ValueError, match="lines 1 and 2 of rows in memory are the same tokens.*the tokenizer does not know the words that differ"):
        PromptTable(rows, plain, 64)

def by_name(prompts, responses): return [float(len(r)) for r in responses]
def swapped(responses, prompts): return [float(len(r)) for r in responses]
def as_in_trl(completions, answer, **kwargs): return [float(len(r)) for r in completions] if kwargs["prompts"] and answer else None
def trl_swapped(completions, prompts): return [float(len(r)) for r in completions]
def all_by_name(**columns): return [float(len(r)) for r in columns["responses"]] if columns["prompts"] and columns["answer"] else None
def by_place(p, r): return [float(len(x)) for x in r]
def by_place_and_column(p, r, answer): return [float(len(x)) for x in r] if answer == ["8", "4"] else None
def by_place_and_columns(p, r, **more): return [float(len(x)) for x in r] if more["level"] == [2, 1] else None
def with_default(prompts, responses, weight=1.): return [weight * len(r) for r in responses]

@pytest.mark.parametrize("fn", [by_name, swapped, as_in_trl, trl_swapped, all_by_name, by_place, by_place_and_column, by_place_and_columns, with_default],
                         ids=lambda fn: fn.__name__)
def test_a_function_gets_what_it_names_in_any_order(fn, tok, table):
    "A response is never read as a prompt: the lengths are those of the responses."
    assert make_text_reward_fn(fn, table, tok)(answered(tok, table, (1, "It is 8."), (0, "4"))).tolist() == [8., 1.]

@pytest.mark.parametrize("fn, words", [(lambda prompts, responses, lvel: [], "missing a required argument: 'lvel'"), (lambda: [], "too many positional"),
    (lambda prompts, r: [], "missing a required argument: 'r'"), (lambda p: [], "too many positional")])
def test_a_function_that_asks_for_more_than_there_is(fn, words, tok, table):
    with pytest.raises(ValueError, match=r"cannot be called with prompts, responses and the columns of rows in memory \(answer, level\): " + words):
        make_text_reward_fn(fn, table, tok)

def test_the_files_of_a_reward_are_found_without_running_them(tmp_path, monkeypatch):
    "A package, a relative import, an import in a function, a module that is not there, a circle; not Python's, nor ours."
    monkeypatch.chdir(tmp_path)
    (tmp_path/"pkg/deep").mkdir(parents=True)
    files = {"pkg/__init__.py": "raise SystemExit(0)\n", "pkg/f.py": "import re, torch, rlhf_nb\nfrom . import g\nfrom .deep import h as x\n",
             "pkg/g.py": "from pkg.f import score\nimport absent\n", "pkg/deep/__init__.py": "", "pkg/deep/h.py": "def k():\n    from .. import far\n    import beside\n",
             "pkg/far.py": "", "beside.py": "def f(:\n", "alone.py": "", "pkg/unread.py": ""}
    for name, text in files.items(): (tmp_path/name).write_text(text)
    assert set(reward_files("pkg.f:score")) == {"pkg/__init__.py", "pkg/f.py", "pkg/g.py", "pkg/deep/__init__.py", "pkg/deep/h.py", "pkg/far.py", "beside.py"}
    assert list(reward_files("json:loads")) == ["json/__init__.py"] and list(reward_files("alone:f")) == ["alone.py"] and reward_files("absent:f") == {}

def test_code_without_init_files_and_what_another_environment_has_installed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = tmp_path/"base/site-packages"             # of a base environment, or of a user
    for path, text in (("my/own/rules.py", "from my.own import helper\nimport big\n"), ("my/own/helper.py", ""),
                       ("base/site-packages/big/__init__.py", "import big.part\n"), ("base/site-packages/big/part.py", "")):
        (tmp_path/path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path/path).write_text(text)
    monkeypatch.syspath_prepend(seen)
    assert set(reward_files("my.own.rules:f")) == {"my/own/rules.py", "my/own/helper.py"} and "my" not in sys.modules
