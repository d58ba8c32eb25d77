"The world's grader, writers, annotator and tokenizer, beyond what the chapter shows."
import hashlib, random, pytest, torch
from collections import Counter
from rlhf_nb import world
from rlhf_nb.judge import parse_score
from rlhf_nb.world import (CRITERIA, FLATTERY_BONUS, annotate, criteria, gold_rewards, gold_score,
    judge_examples, judgement, utility)
from rlhf_nb.worlds.world_text import (ANIMALS, ATTRIBUTES, FACTS, PHRASES, SENTENCES, TEST, TRAIN, VALUES,
    Question, all_questions, demonstrate, demonstrations, fact_sentence, judge_prompt, judgement_score,
    make_tokenizer, parse_sentences, prompt_ids, split_questions)
from rlhf_nb.base.batches import response_text

OTTER = Question("What does the otter eat?", "otter", "food")
PERFECT = "Hello! The otter eats fish. It lives in the river."
SWEET = PHRASES["flattery"]

@pytest.fixture(scope="module")
def tok(): return make_tokenizer()

def marks(text, question=OTTER): return "".join("01"[x] for x in criteria(question, text).values())

def some(n, seed=0, quality=None):
    rng = random.Random(seed)
    return [(q, demonstrate(q, rng, quality)) for q in rng.choices(TRAIN, k=n)]

# ---------------------------------------------------------------- facts and questions
def test_facts_are_spread():
    assert len(ANIMALS) == 16 and set(Counter(f["home"] for f in FACTS.values()).values()) == {2}
    assert [len(VALUES[k]) for k in ATTRIBUTES] == [8, 8, 4, 6, 6]
    words = [v for k in ATTRIBUTES for v in VALUES[k]] + list(ANIMALS)
    assert len(set(words)) == len(words)                 # no word has two meanings

def test_split_is_the_one_the_checkpoints_were_trained_on():
    # A Python whose random draws differently would move held-out questions into training.
    text = "\n".join(q.text for q in TEST)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "ea386f9b59011095"

@pytest.mark.parametrize("n", [0, 1, 80])
def test_split_sizes(n):
    train, test = split_questions(n)
    assert len(test) == n and sorted(train + test, key=str) == sorted(all_questions(), key=str)
    assert len({(q.animal, q.attribute) for q in test}) == n

NUMBERS = {          # what is called with a number, and a value that is right
    "n_test": (lambda tok, x: split_questions(x), 3), "seed": (lambda tok, x: split_questions(3, x), 3),
    "form": (lambda tok, x: fact_sentence("owl", "food", "mice", x), 1),
    "quality": (lambda tok, x: demonstrate(OTTER, random.Random(0), x), .5),
    "temperature": (lambda tok, x: annotate(OTTER, PERFECT, "", random.Random(0), x), .5),
    "n of demonstrations": (lambda tok, x: demonstrations(tok, TRAIN, x, random.Random(0)), 3),
    "quality of demonstrations": (lambda tok, x: demonstrations(tok, TRAIN, 2, random.Random(0), x), 1),
    "n of judge_examples": (lambda tok, x: judge_examples(tok, TRAIN, x, random.Random(0)), 3)}
WRONG = {"n_test": (-1, 2.5, True), "seed": (2.5, None), "form": (-1, 2, .5, True), "quality": (-.1, 1.1, "low"),
         "temperature": (0., -1., None, "cool"), "n of demonstrations": (0, -3, 2.5), "quality of demonstrations": (-1, 2),
         "n of judge_examples": (0, -3, 2.5)}

@pytest.mark.parametrize("name, value", [(name, x) for name in NUMBERS for x in (*WRONG[name], float("nan"), float("inf"))])
def test_numbers_that_mean_nothing_are_refused(tok, name, value):
    call, right = NUMBERS[name]
    call(tok, right)
    with pytest.raises((ValueError, TypeError)) as e: call(tok, value)
    assert name.split()[0] in str(e.value) and "must be" in str(e.value) and str(value) in str(e.value)

@pytest.mark.parametrize("call, words", [
    (lambda: split_questions(81), "0 to 80"), (lambda: Question("Where?", "foxx", "home"), "no animal 'foxx'; did you mean 'fox'?"), (lambda: Question("Where?", "fox", ""), "no attribute ''; there are"),
    (lambda: fact_sentence("owll", "food", "mice", 0), "did you mean 'owl'?"), (lambda: fact_sentence("", "fod", "mice", 0), "did you mean 'food'?")])
def test_unknown_words_are_refused(call, words):
    with pytest.raises(ValueError, match=words): call()

def test_a_tiny_temperature_does_not_overflow():
    assert annotate(OTTER, PERFECT, "", random.Random(0), 1e-6)
    assert not annotate(OTTER, "", PERFECT, random.Random(0), 1e-6)

def test_question_texts_name_one_question_each(): assert len({q.text for q in all_questions()}) == 240

# ---------------------------------------------------------------- parse and criteria
@pytest.mark.parametrize("text, kinds", [("Hello", ["junk"]), ("hello!", ["junk"]), ("Hello.", ["junk"]),
    ("Hello!Hello!", ["opener", "opener"]), ("  Hello!\n", ["opener"]), ("?!", ["junk"] * 2),
    ("The otter eats cake.", ["junk"]), ("The dodo eats fish.", ["junk"]),
    ("The otter eats river.", ["junk"]), ("The otter eats fish", ["junk"]),
    ("The otter eats fish and lives in the river.", ["junk"])])
def test_parse_table(text, kinds): assert [s.kind for s in parse_sentences(text)] == kinds

def test_it_is_the_animal_named_last():
    text = "It is red. The owl is white. Hello! It eats mice. You may meet the bat at noon. It is red."
    assert [s.animal for s in parse_sentences(text) if s.kind == "fact"] == ["", "owl", "owl", "bat", "bat"]

def test_any_text_gets_a_score():
    rng, letters = random.Random(0), "abc THE.!? \n\t0<|>é世" + "\u0000"
    for _ in range(500):
        text = "".join(rng.choice(letters) for _ in range(rng.randrange(60)))
        assert gold_score(OTTER, text) in range(6) and utility(OTTER, text) >= 0
        assert list(criteria(OTTER, text)) == list(CRITERIA)

def test_only_answered_needs_the_facts(monkeypatch):
    kept = [(q, text, marks(text, q)) for q, text in some(600)]
    moved = dict(zip(ANIMALS, [*list(FACTS.values())[5:], *list(FACTS.values())[:5]]))
    monkeypatch.setattr(world, "FACTS", moved)
    after = [marks(text, q) for q, text, _ in kept]
    assert all(a[:2] + a[3:] == m[:2] + m[3:] for a, (_, _, m) in zip(after, kept))
    assert sum(a[2] != m[2] for a, (_, _, m) in zip(after, kept)) > 100

@pytest.mark.parametrize("addition, want", [("", "11111"), (" Stop asking me.", "11101"), (" Let me think.", "11110"),
    (" I have no idea.", "11110"), (" That is my answer.", "11110"), (" Hello!", "11110"),
    (" It eats fish.", "11110"), (" It is fond of fish.", "11110"), (" It is red.", "11111"),
    (" It eats seeds.", "11011"), (" The seal eats seeds.", "01111"), (" Do ask again. I hope this helps.", "11111"),
    (" Do ask again. I hope this helps. Glad to help!", "11110"),
    (f" {SWEET[0]}", "11111"), (f" {SWEET[0]} {SWEET[1]}", "11101"),
    (f" {SWEET[0]} {SWEET[1]} {SWEET[2]}", "11100"), (f" {SWEET[0]} {SWEET[0]}", "11100")])
def test_what_one_more_sentence_does(addition, want): assert marks(PERFECT + addition) == want

def test_word_cap_is_32():
    long = ("Hello! You will find the otter in the river. The otter is fond of fish. You may "
            "meet the otter at dawn. The otter knows how to swim.")       # 28 words
    assert len(long.split()) == 28
    assert marks(long + " The otter is brown.")[-1] == "1"                # 32
    assert marks(long + " I hope this helps.")[-1] == "1"                 # 32
    more = long.replace("Hello!", "With pleasure!")                       # 29
    assert marks(more + " It is brown.")[-1] == "1"
    assert marks(more + " The otter is brown.") == "11110"                # 33

# ---------------------------------------------------------------- writers
def test_mixture():
    scores = [gold_score(*x) for x in some(6000, seed=1)]
    mean = sum(scores) / 6000
    sd = (sum((s - mean)**2 for s in scores) / 6000)**.5
    assert abs(mean - 2.65) < .08 and abs(sd - 1.59) < .05
    assert all(.12 < scores.count(k) / 6000 < .23 for k in range(6))

@pytest.mark.parametrize("quality, rates", [(1., dict(opener=.75, rude=.01, closer=.6, flattery=.16)),
    (0., dict(opener=.15, rude=.2, closer=.15, flattery=.16))])
def test_habits(quality, rates):
    n, texts = 3000, [parse_sentences(text) for _, text in some(3000, 2, quality)]
    for kind, want in rates.items():
        # a repeat copies a sentence that is there, so it does not change who has a kind
        rate = sum(any(s.kind == kind for s in text) for text in texts) / n
        assert abs(rate - want) < 4 * (max(want * (1 - want), .01) / n)**.5

def test_flattery_comes_in_runs():
    runs = Counter(sum(s.kind == "flattery" for s in parse_sentences(text)) for _, text in some(6000, 3, 1.))
    flattered = 6000 - runs[0]
    for n, share in ((1, .6 * .85), (2, .4 * .85 + .6 * .15), (3, .4 * .15)):
        assert abs(runs[n] / flattered - share) < .06

def test_randomness_is_an_argument():
    random.seed(5)
    state = random.getstate()
    assert some(20, 7) == some(20, 7) != some(20, 8)
    annotate(OTTER, PERFECT, "", random.Random(0))
    assert random.getstate() == state

# ---------------------------------------------------------------- annotator and judge
def test_utility_is_gold_without_flattery_plus_its_bonus():
    for q, text in some(1500, 4):
        plain = " ".join(s.text for s in parse_sentences(text) if s.kind != "flattery")
        n = sum(s.kind == "flattery" for s in parse_sentences(text))
        assert utility(q, text) == gold_score(q, plain) + FLATTERY_BONUS * n

class Fixed:
    def __init__(self, x): self.x = x
    def random(self): return self.x

@pytest.mark.parametrize("a, b, prob", [(PERFECT, PERFECT, .5), (f"{SWEET[0]} {PERFECT}", PERFECT, .8808),
    (PERFECT, f"{SWEET[0]} {SWEET[1]} {PERFECT}", .0180),
    ("The otter eats fish.", PERFECT, .0180)])        # 3 against 5
def test_probability_of_a_label(a, b, prob):
    assert annotate(OTTER, a, b, Fixed(prob - .001))
    assert not annotate(OTTER, a, b, Fixed(prob + .001))
    assert annotate(OTTER, b, a, Fixed(1 - prob - .001))

def test_noise_widens_doubt():
    sweet = f"{SWEET[0]} {PERFECT}"
    assert not annotate(OTTER, sweet, PERFECT, Fixed(.75), temperature=1.)      # .731
    assert annotate(OTTER, sweet, PERFECT, Fixed(.72), temperature=1.)

def test_labels_agree_with_gold_as_documented():
    rng, pairs = random.Random(9), []
    while len(pairs) < 4000:
        q = rng.choice(TRAIN)
        a, b = demonstrate(q, rng), demonstrate(q, rng)
        if gold_score(q, a) != gold_score(q, b): pairs.append((q, a, b))
    right = sum(annotate(*p, rng) == (gold_score(p[0], p[1]) > gold_score(p[0], p[2])) for p in pairs)
    assert abs(right / 4000 - .886) < .02

def test_judgement_round_trip():
    for q, text in some(300, 5):
        reply = judgement(q, text)
        assert judgement_score(reply) == gold_score(q, text) and FACTS[q.animal][q.attribute] in reply
        assert [f"{k}: yes." in reply for k in CRITERIA] == list(criteria(q, text).values())
        assert q.text in judge_prompt(q, text) and judge_prompt(q, text).endswith(text)

JUDGEMENTS = {   # a judgement ends in "Score: n"
    "Score: 5": 5, "Score: 0.": 0, "so Score: 3!": 3, "Clean: yes. Score: 4": 4, "Score: 4\n": 4, "Score: 4  ": 4,
    "Score: 2 Score: 4": 4, "Score: 2. No: Score: 4": 4, "(Score: 1": 1,
    **dict.fromkeys(("", "5", "Score:", "Score: ", "Score: 6", "Score: 10", "Score: 55", "Score: -1", "Score: four",
                     "Score: 4/10", "Score: 4 / 10", "Score: 4 out of 10", "Score: 4 (out of 10)", "Score: 4 - 5",
                     "Score: 4-5", "Score: 4.5", "Score: 4,5", "Score: 4%", "Score: 4th", "Score: 4x", "Score: [4]/10",
                     "Score: **4**/10", "Score: 4 of 10", "Score: 4 to 5", "Score: 2 Score: none", "Score: 4 Score: 6",
                     "Score: nan", "MyScore: 4", "score: 3"), None)}

STRICTER = {"Score:3": 3, "Score: 4/5": 4, "Score: **4**": 4, "Score: 4.5": 4.5, "Score: 4 points": 4, "Score: 4, since": 4}

def test_judgement_scores_and_that_the_judge_module_reads_no_other():
    "Where both read a score it is the same; judge.parse_score reads more forms than the world's judges write."
    got = {text: judgement_score(text) for text in [*JUDGEMENTS, *STRICTER]}
    assert got == JUDGEMENTS | dict.fromkeys(STRICTER) and {type(x) for x in got.values()} == {float, type(None)}
    assert {text: parse_score(text) for text, x in got.items() if x is not None} == {k: x for k, x in got.items() if x is not None}
    assert {text: parse_score(text) for text in STRICTER} == STRICTER

# ---------------------------------------------------------------- tokenizer
def test_tokenizer_loses_nothing(tok):
    texts = [*SENTENCES, *(q.text for q in all_questions())]
    texts += [f"{judge_prompt(q, t)}\n{judgement(q, t)}" for q, t in some(800, 6)]
    texts += [" " + texts[0], "\n\n", "  ", "yes. no. Score: 0 1 2 3 4 5"]
    for text, ids in zip(texts, tok(texts).input_ids):
        assert tok.decode(ids) == text and tok.unk_token_id not in ids

def test_chat_template(tok):
    chat = [dict(role="user", content=OTTER.text), dict(role="assistant", content=PERFECT),
            dict(role="user", content="Hello!")]
    text = tok.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == (f"<|user|>{OTTER.text}<|assistant|>{PERFECT}<eos><|user|>Hello!<|assistant|>")
    with pytest.raises(Exception, match="not system"):
        tok.apply_chat_template([dict(role="system", content="Hello!")], tokenize=False)
    assert prompt_ids(tok, OTTER) == tok(f"<|user|>{OTTER.text}<|assistant|>").input_ids

def test_response_text(tok):
    ids, pad = tok(PERFECT).input_ids, tok.pad_token_id
    assert response_text(tok, torch.tensor([pad, pad] + ids)) == PERFECT and response_text(tok, [tok.eos_token_id]) == ""
    assert marks(response_text(tok, ids + [tok.bos_token_id])) == "11110"    # a stray mark is junk

# ---------------------------------------------------------------- batches
def test_demonstrations_are_prompt_answer_eos(tok):
    seqs = demonstrations(tok, TRAIN, 40, random.Random(0))
    rng = random.Random(0)
    questions = [rng.choice(TRAIN) for _ in range(40)]
    answers = [demonstrate(q, rng) for q in questions]
    rows = zip(questions, answers, seqs.ids, seqs.attention_mask, seqs.response_mask)
    for q, answer, ids, real, response in rows:
        assert ids[real & ~response].tolist() == prompt_ids(tok, q)
        assert ids[response][-1] == tok.eos_token_id and (ids[response] == tok.eos_token_id).sum() == 1
        assert response_text(tok, ids[response]) == answer

def test_gold_rewards(tok):
    rng = random.Random(3)
    seqs = demonstrations(tok, [OTTER], 50, rng)
    want = [gold_score(OTTER, response_text(tok, ids[m])) for ids, m in zip(seqs.ids, seqs.response_mask)]
    got = gold_rewards(tok, [OTTER] * 50, seqs)
    assert got.tolist() == want and got.dtype == torch.float32 and len(set(want)) > 3
    with pytest.raises(ValueError, match="1 questions and 50 rows"): gold_rewards(tok, [OTTER], seqs)

def test_judge_examples(tok):
    seqs = judge_examples(tok, TEST, 30, random.Random(0))
    for ids, real, response in zip(seqs.ids, seqs.attention_mask, seqs.response_mask):
        prompt, reply = tok.decode(ids[real & ~response]), response_text(tok, ids[response])
        question = next(q for q in TEST if f"Question: {q.text}\n" in prompt)
        answer = prompt.split("\nAnswer: ")[1].removesuffix("<|assistant|>")
        assert reply == judgement(question, answer)
