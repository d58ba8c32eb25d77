"Inspectors: pages that say what is so, from the least data, with any text in them."
import math, re, pytest, torch
from torch import tensor
from rlhf_nb.show.inspectors import (SIDES, arrow_plot, inspect_reward, judge_page,
    kl_gradients, kl_page, kl_samples, token_contributions, length_slope, highlight_match, next_page, padded,
    prefix_scores, reward_ledger, reward_page, show_judge, show_next)
from rlhf_nb.judge import JudgePrompt
from rlhf_nb.base.models import load_bundled, save_reward_model, to_classifier
from rlhf_nb.reward import pooled_scores
from rlhf_nb.base.sampling import SamplingParams, filter_logits
from rlhf_nb.tokens import make_seqs
from rlhf_nb.show.ledger import Ledger
from test_pages import BAD, check_page, plain

pytestmark = pytest.mark.filterwarnings("ignore:cov")      # of one answer
GEN = lambda: torch.Generator().manual_seed(0)
TWO = JudgePrompt("{{ prompt }} {{ response }}", "Score: {{ reward }}")

def test_no_text_becomes_a_tag():
    scores = Ledger([BAD, "a"], {"prefix score": [1., math.nan]}, {}, framed=0)
    for page in (reward_page({BAD: scores}, {BAD: {BAD: True}}), highlight_match(TWO, BAD + "Score: 3" + BAD), highlight_match(TWO, BAD),
                 judge_page(TWO, [BAD], [[BAD, "Score: 2" + BAD, None]], tensor([2.])),
                 next_page([BAD, "b"], tensor([1., 0.]), SamplingParams(), 2),
                 arrow_plot({BAD: (1., 1.), "true": (0., 0.)})):
        tags = check_page(page)
        assert "alert(" in tags.text

def test_the_score_is_where_pooled_reads_it():
    rm, tokenizer = load_bundled("reward")
    ids, want = [4, 30, 31, 5, 40, 41, 2], []
    for side in SIDES:
        seqs = padded(ids, 4, side, tokenizer.pad_token_id)
        assert seqs.ids[seqs.attention_mask].tolist() == ids and seqs.ids[seqs.response_mask].tolist() == ids[4:]
        x, real = prefix_scores(rm, seqs), seqs.attention_mask[0].nonzero()[:, 0].tolist()
        want.append(pooled_scores(rm, seqs).item())
        assert len(x) == 7 + 3 * (side != "none") and x[real[-1]] == pytest.approx(want[-1], abs=1e-5)
    assert max(want) - min(want) < 1e-4
    right = prefix_scores(rm, padded(ids, 4, "right", 0))
    assert right[-1] != right[6]                                            # what a reader of the last column gets
    with pytest.raises(ValueError, match="pads go right, left, none; got 'both'"): padded(ids, 4, "both", 0)

def a_prompt(tokenizer): return [tokenizer.eos_token_id, 30, 31, 32]

@pytest.mark.parametrize("side", SIDES)
def test_a_reward_ledger_holds_prefixes_steps_and_what_each_token_adds(side):
    rm, tokenizer = load_bundled("reward")
    prompt, text = a_prompt(tokenizer), "The fox lives in the forest."
    ledger = reward_ledger(rm, tokenizer, prompt, text, side)
    ids = prompt + tokenizer(text, add_special_tokens=False).input_ids + [tokenizer.eos_token_id]
    at = [i for i, s in enumerate(ledger.channels["prefix score"]) if s == s]
    assert len(ledger.tokens) == len(ids) + 3 * (side != "none") and ledger.framed == at[-1] and len(at) == len(ids)
    def score(row): return pooled_scores(rm, make_seqs([row], [[]], 0)).item()
    for n, i in enumerate(at):                                              # each prefix alone, as a row of its own
        assert ledger.channels["prefix score"][i] == pytest.approx(score(ids[:n + 1]), abs=1e-4)
    s, step, out = (ledger.channels[k] for k in ("prefix score", "step", "left out"))
    assert math.isnan(step[at[0]]) and step[at[5]] == pytest.approx(s[at[5]] - s[at[4]])
    assert [math.isnan(out[i]) for i in at] == [True] * 4 + [False] * (len(ids) - 4)
    for n in (4, 6, len(ids) - 1):
        assert out[at[n]] == pytest.approx(score(ids) - score(ids[:n] + ids[n + 1:]), abs=1e-4)
    assert "left out" not in reward_ledger(rm, tokenizer, prompt, text, side, False).channels

def test_an_empty_answer_is_its_eos_alone():
    rm, tokenizer = load_bundled("reward")
    assert token_contributions(rm, [5, 6], 2, 0) == []
    assert "step" in reward_ledger(rm, tokenizer, a_prompt(tokenizer), "").channels

def test_the_slope_is_that_of_least_squares():
    slope, error = length_slope([1., 2., 3., 4.], [2., 4., 5., 9.])         # residuals .3 .1 -1.1 .7
    assert slope == pytest.approx(2.2) and error == pytest.approx(math.sqrt(1.8 / 2 / 5))
    for bad in (([1., 2.], [1., 2.]), ([3., 3., 3.], [1., 2., 3.])):
        with pytest.raises(ValueError, match="three responses of unequal length"): length_slope(*bad)

def test_one_line_for_every_kind_of_reward_model(tmp_path):
    from transformers import AutoModelForSequenceClassification, BertConfig
    rm, tokenizer = load_bundled("reward")
    save_reward_model(rm, tokenizer, tmp_path/"rm")
    question, answer = "Where does the fox live?", "The fox lives in the forest."
    seen = [inspect_reward(model, tokenizer, question, answer).still()
            for model in (rm, to_classifier(rm), tmp_path/"rm", str(tmp_path/"rm"))]
    scores = {re.search(r"score ([+-][\d.]+)</b>, read at column (\d+)", page).groups() for page in seen}
    assert len(scores) == 1
    ids = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True,
                                        tokenize=True, return_dict=False)
    named = [re.sub(r"\bl[0-9a-f]{8}\b", "l", page)                        # a ledger's buttons are named anew each time
             for page in (inspect_reward(rm, tokenizer, list(ids), answer).still(), seen[0])]
    assert named[0] == named[1]
    encoder = AutoModelForSequenceClassification.from_config(BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        num_labels=1)).eval()                                               # no score per token: reads both ways
    view, own = inspect_reward(encoder, tokenizer, question, answer), list(ids)
    x = reward_ledger(encoder, tokenizer, own, answer).channels["prefix score"]
    with torch.no_grad(): want = encoder(input_ids=tensor([own[:3]])).logits.item()
    assert x[2] == pytest.approx(want, abs=1e-5) and "score " in view.still()
    encoder.config.num_labels = 2
    encoder.classifier = torch.nn.Linear(16, 2)
    assert "one output, this one has 2" in inspect_reward(encoder, tokenizer, question, answer).still()

def test_the_reward_view_edits_compares_and_pads():
    rm, tokenizer = load_bundled("reward")
    batch = make_seqs([[5, 6]] * 3, [[7], [7, 8], [7, 8, 9]], tokenizer.pad_token_id)
    view = inspect_reward(rm, tokenizer, "Where does the fox live?", "In the forest.", rollout=batch,
                          marks=lambda text: {"Kind": "please" in text})
    (row, controls, page), score = view.children, lambda: [float(x) for x in re.findall(r"score ([+-][\d.]+)<", page.value)]
    (answer, other), (side, left_out) = row.children, controls.children
    assert all(w.description for w in (answer, other, side, left_out)) and tuple(side.options) == SIDES
    slope, error = length_slope([1., 2., 3.], pooled_scores(rm, batch).tolist())
    assert f"{10 * slope:+.3f} ± {10 * error:.3f} score per 10 tokens" in page.value
    was = score()
    side.value = "left"
    assert score() == pytest.approx(was, abs=1e-3) and page.value.count('role="radiogroup"') == 1
    other.value = "In the sea, please."
    a, b = score()
    assert f"Other - Answer: <b>{b - a:+.3f}</b>"[:22] in page.value and page.value.count('role="radiogroup"') == 2
    p = float(re.search(r"with probability ([\d.]+)", page.value)[1])
    assert p == pytest.approx(1 / (1 + math.exp(a - b)), abs=.006) and "gold 1 of 1" in page.value and "gold 0 of 1" in page.value
    left_out.value = False
    assert "left out" not in page.value
    check_page(page.value)

def test_kl_page_of_every_setting():
    z, s = tensor([1., 0., -1.]), tensor([0., 1., 2.])
    heights = set()
    for mu, t, n in ((0., 1., 1), (4., .3, 64), (-4., 3., 1), (1., 1., 16)):
        page = kl_page(kl_samples(z, s, (mu, t), n, GEN()), kl_gradients(z, s, mu, t))
        check_page(page)
        assert "nan" not in page and page.count("<rect") == 72
        heights.add(re.search(r'viewBox="([^"]*)"', page)[1])
        xs = [float(x) for x in re.findall(r'<path d="M([\d.]+) [\d.]+V', page)]
        assert all(90 <= x <= 390 for x in xs) and len(xs) == 3          # the true KL, always seen
    for true in (-5., 9.):                                   # far from every estimate
        far = kl_page({"k1": [1., 2.], "true": [true]}, {"k1": (0., 0.), "true": (1., 0.)})
        assert 90 <= float(re.search(r'<path d="M([\d.]+) [\d.]+V', far)[1]) <= 390
        assert ">1.500<" in far and ">± 0.500<" in far and "<td>k1</td><td>1.5</td>" in far
        assert max(map(float, re.findall(r' height="([\d.]+)"/>', far))) == 48
    assert heights == {"0 0 680 250"} and "<td>true</td>" in plain(page)

def test_gradients_point_where_the_slopes_do():
    page = arrow_plot({"true": (2., 0.), "k1": (0., -1.), "k2": (0., 0.)})
    assert re.findall(r'd="M545 130L([\d. ]+)"', page) == ["635.0 130.0", "545.0 175.0"]
    assert page.count('fill="none"') == 1                    # the ring of k2

def test_what_was_parsed_is_highlighted():
    def mark(prompt, text):
        found = re.findall(r"<mark[^>]*>(.*?)</mark>", highlight_match(prompt, text))
        return found, re.search(r"<b>(.*?):</b>", highlight_match(prompt, text))[1]
    assert mark(TWO, "Score: 2 then Score: 4") == (["Score: 4"], "parsed 4")
    first = JudgePrompt(TWO.template, TWO.parser, last=False)
    assert mark(first, "Score: 2 then Score: 4") == (["Score: 2"], "parsed 2")
    assert mark(TWO, "Score: 9") == (["Score: 9"], "nothing parsed")     # seen, out of range
    assert mark(TWO, "no idea") == ([], "nothing parsed")
    assert mark(JudgePrompt(TWO.template, lambda reply: 3.), "words") == ([], "parsed 3")
    assert "cut" in highlight_match(TWO, None)

def test_judge_page_counts():
    replies = [["Score: 2", "Score: 4", "hm"], ["Score: 5", None, "Score: 5"]]
    page = judge_page(TWO, ["first", "second"], replies, tensor([3., 4.]))
    assert "parse rate 67%" in page and "exact 50%" in page and "pairs in the right order 100%" in page
    assert "<td>+3.00</td><td>3</td>" in page and "<td>+5.00</td><td>4</td>" in page
    assert "std of the votes 0.71" in page and "+3.00" in page and page.count("<mark") == 4
    check_page(judge_page(TWO, ["x"], [["mute"]], tensor([1.])))         # nothing parsed at all

def test_a_judge_needs_no_true_scores_and_a_blind_one_is_told():
    page = judge_page(TWO, ["first", "second"], [["Score: 2", "Score: 4"], ["Score: 5", None]])
    assert "no true scores given" in page and "gold" not in page and "agreement:" not in page and "role=\"alert\"" not in page
    mute = judge_page(TWO, ["a", "b"], [["no idea"], [None]])
    assert "this judge reads nothing" in mute and "Empty or cut replies alone on answers [1]" in mute
    same = judge_page(TWO, ["a", "b"], [["Score: 3"]] * 2)
    assert "All 2 answers got the score 3" in same
    assert "alert" not in judge_page(TWO, ["a", "a"], [["Score: 3"]] * 2)    # two of one answer: right so
    view = show_judge(lambda prompt, n: [["Score: 3"] * n], TWO, ["A"])
    assert "no true scores" in view.children[3].value and "no true scores" in view.still()
    check_page(mute)

def test_judge_console_refuses_in_the_sandbox():
    asked = []
    def ask_judge(prompt, n):
        asked.append((prompt.render("Q", "A"), n))
        return [["Score: 3"] * n]
    template, row, trouble, page = show_judge(ask_judge, TWO, ["A"], tensor([3.])).children
    pattern, n, button = row.children
    n = n.children[0].children[0]
    assert all(w.description for w in (template, pattern, n, button)) and len(asked) == 1
    pattern.value = "Wert: {{ reward }}"                                 # reads the old replies
    assert "parse rate 0%" in page.value and len(asked) == 1
    pattern.value = "Score: {{ reward }}"
    n.value = 5
    button.click()
    assert asked[-1] == ("Q A", 5) and page.value.count("parsed 3") == 5
    was = page.value
    for bad in ("{{ prompt.__class__ }} {{ response }}", "{{ prompt }}", "{% for %}",
                "{{ prompt }}{{ response }}{{ range(9) }}", "{{ prompt }} {{ response }} {{ <b> }}"):
        template.value = bad
        button.click()
        assert "Not done" in trouble.value and page.value == was and len(asked) == 2
        check_page(trouble.value)
    template.value = "{{ response }} to {{ prompt }}"
    button.click()
    assert trouble.value == "" and asked[-1] == ("A to Q", 5)

@pytest.mark.parametrize("config", [SamplingParams(), SamplingParams(temperature=0.), SamplingParams(temperature=.5, top_k=3),
                                 SamplingParams(top_p=.6), SamplingParams(temperature=2., top_k=4, top_p=.9)], ids=str)
def test_next_page_says_what_is_drawn(config):
    logits, words = torch.randn(30, generator=GEN()).bfloat16(), [f"w{i}" for i in range(30)]
    page, drawn = next_page(words, logits, config), filter_logits(logits[None], config)[0].exp()
    check_page(page)
    assert f"{int((drawn > 0).sum())} of 30 tokens can be drawn" in page and 'viewBox="0 0 680 274"' in page
    order = logits.float().topk(12).indices.tolist()
    assert re.findall(r">(w\d+)</text>", page) == [f"w{i}" for i in order]
    for i in order:
        want = f"→ {drawn[i]:.1%}" if drawn[i] else "→ never"
        assert f"{logits.float().softmax(-1)[i]:.1%} {want}" in page
    nats = -(drawn[drawn > 0] * drawn[drawn > 0].log()).sum()
    assert f"entropy {abs(nats):.2f}" in page                # never -0.00
    raw = logits.float().softmax(-1)
    for height, prob in ((16, raw), (8, drawn)):
        want = prob[order] * 380 / max(raw.max(), drawn.max())
        got = re.findall(rf'height="{height}" width="([\d.]+)"', page)
        assert [float(x) for x in got] == pytest.approx(want.tolist(), abs=.06)
    assert f"{(1 - drawn[order].sum()).clamp(min=0):.1%} on those not shown" in page
    assert "<td>w" in plain(page)

def test_next_knobs():
    _, box, page = show_next(list("abcd"), lambda text: tensor([3., 2., 1., 0.])).children
    temperature, k, p = (knob.children[0] for knob in box.children)
    for field, value, n in ((k, 2, 2), (k, 0, 4), (temperature, 0., 1), (temperature, 1., 4), (p, .05, 1)):
        field.value = value
        assert field.description and f"{n} of 4" in page.value
