"Rollout tables: numbers of rows and tokens, sort, filter, pages, files, several models."
import json, math, re, time, pytest, torch
from rlhf_nb.base.batches import Rollout
from rlhf_nb.base.models import ScalarModel, load_bundled
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.trainers.ppo_trainer import PPOConfig, make_experience
from rlhf_nb.show.rollout_view import (RolloutTable, TableView, TableQuery, answers_together, as_table, pick_rows, rollout_to_table,
    row_page, show_rollouts, side_by_side, table_page)
from rlhf_nb.tokens import Seqs, make_seqs
from rlhf_nb.show.ledger import Ledger, clip_state
from rlhf_nb.show.pages import tint
from test_pages import BAD, check_page

class Words:
    "Token 5 is the text w5; 0 pads, 1 ends."
    pad_token_id, eos_token_id = 0, 1
    def decode(self, ids, skip_special_tokens=False):
        return " ".join(f"w{i}" for i in ids if i > 1 or not skip_special_tokens)

def a_rollout(side="right"):
    "Three rows of 2, 1 and 3 response tokens; numbers worked out by hand below."
    seqs = make_seqs([[7, 8], [9], [7, 8]], [[3, 1], [4], [5, 6, 1]], 0)
    logp, ref = torch.zeros(3, 5), torch.zeros(3, 5)
    for i, row in enumerate(([-1., -2.], [-.5], [-1., -1., -3.])):
        logp[i][seqs.response_mask[i]] = torch.tensor(row)
    for i, row in enumerate(([-1.5, -1.], [-.25], [-2., -1., -3.5])):
        ref[i][seqs.response_mask[i]] = torch.tensor(row)
    if side == "left":
        order = seqs.attention_mask.long().argsort(dim=1, stable=True)
        seqs = Seqs(*(x.gather(1, order) for x in seqs.parts()))
        logp, ref = logp.gather(1, order), ref.gather(1, order)
    return Rollout(seqs, torch.tensor([0, 1, 0]), logp, ref, torch.tensor([1., -2., .5]))

@pytest.mark.parametrize("side", ["right", "left"])
def test_columns_and_ledgers_are_those_by_hand(side):
    table = rollout_to_table(a_rollout(side), Words())
    assert table.columns == {"reward": [1., -2., .5], "KL": [.5 - 1, -.25, 1 + 0 + .5], "length": [2, 1, 3],
                             "ended": [1, 0, 1], "group": [0, 1, 0]}
    assert table.text_of(0) == ("w7 w8", {"response": "w3"}) and table.text_of(1) == ("w9", {"response": "w4"})
    ledger = table.ledgers_of(2)["response"]
    assert [w.strip() for w in ledger.tokens] == ["w5", "w6", "w1"]
    assert ledger.channels == {"log-prob": [-1, -1, -3], "reference": [-2, -1, -3.5], "KL": [1, 0, .5]}
    assert show_rollouts(a_rollout(side), Words()).rows == [0, 2, 1]           # by reward, the largest first

def test_advantage_ratio_and_clip_are_those_of_the_loss():
    (policy, tokenizer), generator = load_bundled("sft"), torch.Generator().manual_seed(0)
    seqs = make_seqs([[5, 6]] * 4, [[7, 8, tokenizer.eos_token_id], [9], [7] * 5, [8, 8]], tokenizer.pad_token_id)
    mask = seqs.response_mask
    logp, ref = (-torch.rand(mask.shape, generator=generator) * mask for _ in range(2))
    roll = Rollout(seqs, torch.arange(4), logp, ref, torch.randn(4, generator=generator))
    x = make_experience(ActorCritic(policy, ScalarModel.from_lm(policy)), roll, PPOConfig(), tokenizer.eos_token_id)
    now = logp + .5 * torch.randn(mask.shape, generator=generator) * mask
    table = rollout_to_table(roll, tokenizer, experience=x, now=now, cliprange=.2)
    for i in range(4):
        a, ratio = x.advantage[i][mask[i]], (now - logp)[i][mask[i]].exp()
        want, ledger = clip_state(ratio, a, .2).tolist(), table.ledgers_of(i)["response"]
        assert ledger.channels["clip"] == want and ledger.channels["ratio"] == pytest.approx(ratio.tolist())
        assert ledger.channels["return"] == x.returns[i][mask[i]].tolist()
        assert table.columns["clipped"][i] == pytest.approx(sum(map(abs, want)) / len(want))
        assert table.columns["advantage"][i] == pytest.approx(a.mean().item())
    alone = rollout_to_table(x, tokenizer)                                  # the experience by itself
    assert "reward" not in alone.columns and alone.ledgers_of(0)["response"].channels.keys() >= {"value", "advantage"}

def test_an_empty_response_is_a_row():
    seqs = make_seqs([[7], [7]], [[3, 1], []], 0)
    zero = torch.zeros(seqs.ids.shape)
    table = rollout_to_table(Rollout(seqs, torch.arange(2), zero, zero, torch.zeros(2)), Words())
    assert table.columns["length"] == [2, 0] and table.ledgers_of(1) == {} and "w7" in row_page(table, 1)

def test_experience_of_grpo_is_a_table():
    from rlhf_nb.trainers.grpo_trainer import GroupExperience
    roll = a_rollout()
    a = torch.tensor([1., -1., 0.])[:, None].expand(3, 5)
    x = GroupExperience(roll.seqs, roll.seqs.response_mask, roll.logp, roll.ref_logp, a, a, a)
    table = rollout_to_table(x, Words())
    assert table.columns["advantage"] == [1., -1., 0.] and table.columns["KL"] == [-.5, -.25, 1.5]

ROWS = [dict(prompt="a", response="Fox", reward=2., tag="x"), dict(prompt="b", response="hare", reward=None, tag="y"),
        dict(prompt="c", response="fox!", reward=-1., tag="x"), dict(prompt="d", response="owl", reward=2., tag="z")]

@pytest.mark.parametrize("query, rows", [
    (TableQuery(), [0, 1, 2, 3]), (TableQuery("reward"), [0, 3, 2, 1]),
    (TableQuery("reward", largest_first=False), [2, 0, 3, 1]), (TableQuery(text="FOX"), [0, 2]),
    (TableQuery(text="b"), [1]), (TableQuery(column="reward", low=0.), [0, 3]),
    (TableQuery(column="reward", high=-1.), [2]), (TableQuery("tag"), [3, 1, 0, 2]),
    (TableQuery("reward", text="o", column="reward", low=-5.), [0, 3, 2]), (TableQuery(text="none"), [])], ids=str)
def test_sort_and_filter(query, rows): assert pick_rows(as_table(ROWS), query) == rows

@pytest.mark.parametrize("text, message", [('{"response": "a"}\n{"x": 1}', "r.jsonl, line 2: there is no text of a response, only x"),
    ('{"x"\n{"response": "a"}', "r.jsonl, line 1: broken JSON"), ("7", "line 1: not an object"), ("", "holds no row")])
def test_a_file_that_is_no_table_is_refused(tmp_path, text, message):
    (tmp_path/"r.jsonl").write_text(text)
    with pytest.raises(ValueError, match=message): as_table(tmp_path/"r.jsonl")

def test_columns_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="one length"): RolloutTable({"a": [1], "b": [1, 2]}, None, None)
    with pytest.raises(ValueError, match="one length"): RolloutTable({}, None, None)
    with pytest.raises(ValueError, match="one length"): show_rollouts(ROWS, columns={"mine": [1.]})

def test_two_models_meet_at_their_prompts():
    a = as_table([dict(prompt=p, response=r, reward=x, length=1) for p, r, x in
                       (("q1", "a1", 1.), ("q1", "a2", 2.), ("q2", "a3", 3.), ("only a", "a4", 4.))])
    b = as_table([dict(prompt=p, response=r, reward=x, length=2) for p, r, x in
                       (("q2", "b1", 1.), ("q1", "b2", 5.), ("q1", "b3", None))])
    both = side_by_side({"A": a, "B": b})
    assert both.columns["reward, A"] == [1., 2., 3.] and both.columns["reward, B"] == [5., None, 1.]
    gap = both.columns["reward, difference"]
    assert gap[0] == 4. and math.isnan(gap[1]) and gap[2] == -2. and both.columns["length, difference"] == [1, 1, 1]
    assert both.text_of(1) == ("q1", {"A": "a2", "B": "b3"})
    with pytest.raises(ValueError, match="no prompt in common"):
        side_by_side({"A": a, "B": as_table([dict(prompt="z", response="")])})
    two = show_rollouts({"A": a_rollout(), "B": a_rollout("left")}, Words())
    assert two.below.value.count('role="radiogroup"') == 2                  # both ledgers of the open row
    assert two.table.columns["KL, difference"] == [0., 0., 0.] and "group, A" not in two.table.columns

def test_no_text_becomes_a_tag():
    rows = [dict(prompt=BAD, response=BAD, **{BAD: 1.}, tokens=[BAD], channels={BAD: [1.]})]
    view = show_rollouts(rows)
    assert "<button" not in view.still()                                        # its buttons are of the live table alone
    ours = r""" onclick="let v=this\.closest\('\.rlhf-view'\),b=v\.querySelectorAll\('\.by-(sort|row) button'\)\[\d+\];[\w.({:;})'&|-]*\""""
    for page in (re.sub(ours, "", view.top.value), view.below.value, view.still()): assert "alert(" in check_page(page).text
    view = show_rollouts({BAD: rows, "b": rows})
    view.c.look.value = "group"
    assert "alert(" in check_page(view.below.value).text

def test_a_number_that_is_not_finite_leaves_the_others_their_colours():
    table = as_table([dict(prompt="p", response="r", reward=x) for x in (math.inf, 2., -1., math.nan)])
    assert table.max_abs["reward"] == 2. and "prompt" not in table.max_abs and "x" not in RolloutTable(dict(x=["a", 1.]), table.text_of, table.ledgers_of).max_abs
    assert f'background:{tint(-1., 2.)}"' in table_page(table, [0, 1, 2, 3], "words", TableQuery())

def test_the_page_marks_order_and_the_open_row():
    table = as_table(ROWS)
    page = table_page(table, [0, 3], "words", TableQuery("reward"), 3)
    assert page.count('aria-sort="descending"') == 1 and page.count("class=o") == 1 and "<td>x</td>" in page
    assert "ascending" in table_page(table, [0], "", TableQuery("reward", False)).replace("descending", "")

def test_what_float32_leaves_of_equal_log_probs_is_0_and_emoji_stay_whole():
    rows = [dict(prompt="🏳️‍🌈", response="👩‍🔬", reward=2e-7, tokens=["👩‍🔬"], logprobs=[-.5 - 2e-7], ref_logprobs=[-.5])]
    view = show_rollouts(rows)
    view.c.look.value = "group"
    page = view.top.value + view.below.value
    assert ">2e-07</td>" in page and ">0</td>" in page and "-2e-07" not in page and "u200d" not in page
    assert "KL         +0" in page and "token 0: &#x27;👩‍🔬" in page

def test_views_of_one_cell_are_all_shown_and_once(monkeypatch):
    from IPython.core.interactiveshell import InteractiveShell
    from rlhf_nb.show import live_view
    shell, seen = InteractiveShell.instance(), []
    def display(x, *_, **more):
        if isinstance(x, live_view.LiveView): x._ipython_display_()
        elif "raw" in more: seen.append(x["application/vnd.jupyter.widget-view+json"]["model_id"])
    monkeypatch.setattr(live_view, "display", display)
    shell.user_ns |= dict(show=lambda k: show_rollouts(ROWS[:k]), display=display)
    try:
        for cell, order in (("a = show(1); b = show(2); 1", "ab"), ("a = show(1); b = show(2); display(b)", "ab"),
                            ("a, b = show(1), show(2); display(a)", "ab"), ("b", "b"), ("a = show(1); 1 / 0", "a")):
            seen.clear()
            shell.run_cell(cell)
            assert seen == [shell.user_ns[k].outer.model_id for k in order], cell
    finally: InteractiveShell.clear_instance()

def test_controls_sort_filter_turn_pages_and_open():
    view = TableView(as_table([dict(response=f"text {i}", x=float(i % 7), length=1) for i in range(25)]), "x", 10)
    c = view.c
    assert all(w.description for w in (c.sort, c.text, c.column, c.low, c.high, c.page, c.back, c.on, c.opened))
    assert "rows 1 to 10 of 25, sorted by x" in view.top.value and c.page.max == 3 and view.rows[0] == 6
    assert c.opened.value == 6 and "row 6" in view.below.value
    c.opened.value = view.rows[4]
    assert f"row {view.rows[4]}<" in view.below.value and view.top.value.count("class=o") == 1
    c.on.click(); c.on.click(); c.on.click()                                # one more than there is
    assert c.page.value == 3 and "rows 21 to 25 of 25" in view.top.value and len(c.opened.options) == 5
    c.back.click()
    assert c.page.value == 2
    c.text.value = "text 1"
    assert c.page.value == 1 and "rows 1 to 10 of 11, of 25 in all" in view.top.value
    c.column.value, c.low.value, c.high.value = "x", "2", "3"
    assert sorted(view.rows) == [10, 16, 17] and c.page.max == 1
    c.high.value = "three"
    assert "three" in view.top.value                                        # what is wrong, and the rows stay
    c.high.value, c.text.value = "", "nothing"
    assert "none of 25 rows" in view.top.value and view.below.value == "" and c.opened.options == ()
    c.text.value, c.largest_first.value = "", False
    assert view.table.columns["x"][view.rows[0]] == 2.                      # the filter of the range still holds

def test_a_row_is_decoded_when_it_is_looked_at_and_not_before():
    seen = []
    table = RolloutTable({"x": list(range(1000))}, lambda i: seen.append(i) or ("p", {"response": str(i)}), lambda i: {})
    view = TableView(table)
    assert set(seen) == set(range(10))
    view.c.page.value = 3
    assert set(seen) == set(range(10)) | set(range(20, 30))

def test_a_thousand_rollouts_open_fast_and_small():
    "1,000 responses of 300 tokens: under 2 s, and the page under 5 MB."
    _, tokenizer = load_bundled("sft")
    generator = torch.Generator().manual_seed(0)
    seqs = make_seqs([[5, 6, 7]] * 1000, torch.randint(5, 200, (1000, 300), generator=generator).tolist(), 0)
    logp, ref = (-torch.rand(seqs.ids.shape, generator=generator) * seqs.response_mask for _ in range(2))
    roll = Rollout(seqs, torch.arange(1000), logp, ref, torch.randn(1000, generator=generator))
    show_rollouts(a_rollout(), Words())                                     # what is imported late
    began, view = time.process_time(), show_rollouts(roll, tokenizer)
    assert time.process_time() - began < 2 and len(view.still().encode()) < 5e6
    view.c.sort.value = "KL"
    assert view.table.columns["KL"][view.rows[0]] == max(view.table.columns["KL"])

def test_every_source_is_a_table(tmp_path):
    table = rollout_to_table(a_rollout(), Words())
    for source in (a_rollout(), table): assert as_table(source, Words()).columns == table.columns
    path, row = tmp_path/"r.jsonl", dict(prompt="w7", response="w8 w9", reward=1.5, mine=None, tokens=["w8", " w9"], channels={"KL": [None, .25]})
    path.write_text(json.dumps(row) + "\n" + json.dumps(row | dict(reward=-2, mine="\u2028 ü")) + "\n", "utf-8")
    for source in (path, str(path)):
        again = as_table(source, Words())
        assert again.columns == dict(reward=[1.5, -2], mine=[None, "\u2028 ü"], length=[2, 2]) and again.text_of(1) == ("w7", {"response": "w8 w9"})
        assert again.ledgers_of(0)["response"].tokens == ["w8", " w9"] and again.ledgers_of(0)["response"].channels["KL"][1] == .25
        assert math.isnan(again.ledgers_of(0)["response"].channels["KL"][0])
    assert list(as_table({"a": ROWS, "b": ROWS}).columns)[0] == "reward, a"

def test_a_row_of_many_thousand_tokens_is_paged():
    n = 5500
    def ledgers(i): return {"response": Ledger([f"w{k}" for k in range(n)], {"KL": [k / n for k in range(n)]}, {})}
    table = RolloutTable({"reward": [1.]}, lambda i: ("ask", {"response": "text"}), ledgers)
    page = row_page(table, 0)
    assert len(page) < 600_000 and "tokens 0 to 999 of 5500" in page and ">w999<" in page and ">w1000<" not in page
    assert "token 5499: " in (last := row_page(table, 0, 10**6)) and "tokens 5000 to 5499 of 5500" in last and "token 4999" not in last
    view = TableView(table)
    view.c.first.value = 2000
    assert "tokens 2000 to 2999" in view.below.value and "token 2000: " in view.below.value

def test_the_terms_of_a_token_are_those_of_its_own_group():
    rows = [dict(prompt=p, response="x", reward=r, group=g, step=0, ids=[1, 2], logprobs=[-1., -1.], policy_logprobs=[-1., -1.])
            for p, r, g in (("a", 1., 7), ("b", 5., 4), ("a", 3., 7), ("b", 9., 4))]
    view = show_rollouts(rows)
    for row, said in ((0, "1 − 3 = -2"), (3, "9 − 5 = 4")):
        [ledger] = view.table.ledgers_of(row).values()
        assert said in re.sub("<[^>]+>", "", ledger.terms()[0])
    assert all(label != str(k) for k, label in enumerate(view.c.opened._options_labels))    # ipywidgets would not draw them anew

def test_a_group_shows_ledgers_of_the_open_row_and_of_as_many_as_a_page_holds():
    rows = [dict(prompt=p, response=f"answer {k}", step=k // 40, group=p, reward=float(k), advantage=[.5] * n, ids=[1] * n, logprobs=[-1.] * n)
            for k, (p, n) in enumerate([("a", 300), ("b", 9)] * 20)]
    view = show_rollouts(rows, sort="")
    view.c.look.value = "group"
    def ledgers(): return re.findall(r'aria-label="tokens: (row \d+)', view.below.value)
    assert ledgers() == ["row 0", "row 2", "row 4"] and view.below.value.count("answer ") == 32      # the texts of 16 in table and card
    assert "20 answers to &#x27;a&#x27;, here 1 to 16" in view.below.value
    view.c.opened.value = 8
    assert ledgers() == ["row 8", "row 0", "row 2"]
    view.c.page.value = 4                                                                            # rows 30 to 39
    view.c.opened.value = 36
    assert ledgers() == ["row 36", "row 32", "row 34"] and "here 17 to 20" in view.below.value
    view.c.opened.value = 39
    assert len(ledgers()) == 4 and "answer 37" in view.below.value                                   # nine tokens each, of those from 17 on

def test_a_group_of_two_runs_has_both_with_their_own_numbers():
    def run(x): return [dict(prompt=p, response=f"{x} {s}{p}{k}", step=s, group=g, reward=x + s + k, ids=[1, 2], logprobs=[-1., -x])
                        for s in (1, 2) for g, p in enumerate("pq") for k in (0, 1)]
    view = show_rollouts({"A": run(10.), "B": run(20.)}, sort="")
    view.c.look.value = "group"
    assert re.findall(r'aria-label="tokens: ([^"]+)"', view.below.value) == [f"row {k}, {x}, step 1, reward {r + k}"
        for k in (0, 1) for x, r in (("A", 11), ("B", 21))]
    view.c.look.value = "run"
    assert re.findall(r'aria-label="tokens: row (\d), A', view.below.value) == ["0", "1", "4", "5"]

@pytest.mark.parametrize("name", ["stage", "run_name", "step", "group"])
def test_a_group_is_of_one_stage_run_step_and_number(name):
    same = dict(stage="a", run_name="b", step=3, group=4, prompt="p", reward=1.)
    rows = [same | {name: x} | dict(response=f"{k}") for k, x in enumerate([1, 2, 1, 2, 2] if name in ("step", "group") else "xyxyy")]
    assert answers_together(as_table(rows), 1) == [1, 3, 4] and answers_together(as_table(rows), 2) == [0, 2]
