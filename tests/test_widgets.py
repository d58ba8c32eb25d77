"Widgets: text that stays text, labels that survive, a run that obeys its buttons."
import json, math, os, re, signal, subprocess, sys, threading, time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
import pytest, torch
from conftest import plain_id
from matplotlib import pyplot as plt
from rlhf_nb.ppo import gae
from rlhf_nb.ppo_trainer import (
    PPOConfig, Experience, add_score_column, make_experience, rollout_rewards)
from rlhf_nb.memory import Rollout, masked_whiten
from rlhf_nb.tokens import make_seqs
from rlhf_nb.widgets import (Dashboard, LabelSession, Ledger, Stopped, Sweep, run_setting, dashboard_page, dashboard_table,
    clip_state, curves_of, label_page, add_label, ledger_page, pace, panel, ppo_ledger, rewards_seen,
    run_in_background, escape_text, show_dashboard, show_labels, show_ledger, show_sweep, sides, html_table, thinned, tint,
    LiveView, signed, still_page, token_texts, sweep_page, undo_label, dashboard_callback, knob, with_sliders)

BAD = '</div></style><script>alert("x")</script>&amp;<img src=x onerror=\'y\'>" onfocus="z\n\u202e\ud800'
PAIRS = [(f"question {i}", f"one {i}", f"other {i}") for i in range(30)]


class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.attrs, self.open = [], "", [], []
        self.feed(page)
    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attrs += attrs
        if tag not in ("input", "br", "img"): self.open.append(tag)
    def handle_endtag(self, tag): assert self.open.pop() == tag
    def handle_data(self, data): self.text += data


def check_page(page):
    "Nothing of BAD became a tag or an attribute; every tag is closed; UTF-8 can write it."
    tags = Tags(page)
    assert not {"script", "img"} & set(tags.tags) and not tags.open
    assert not any(k.startswith("on") for k, _ in tags.attrs)
    assert not re.search(r"http|url\(|@import", page)                  # nothing from outside
    page.encode()
    return tags

def plain(page):
    "What is left on a page that takes style, SVG, forms and attributes away."
    for gone in ("style", "svg"): page = re.sub(rf"<{gone}.*?</{gone}>", "", page, flags=re.S)
    return re.sub(r"<(\w+)[^>]*>", r"<\1>", page)

def a_sweep(metrics=("x",), results=None):
    return Sweep(lambda settings, callback: None, list(metrics), results or {})


def test_what_a_model_generates_never_becomes_a_tag():
    session = LabelSession([(BAD, BAD, BAD + "2")], "unused.jsonl")
    dashboard = Dashboard([BAD], rows=[{BAD: 1.}], samples=[BAD], note=BAD, state=BAD)
    ledger = Ledger([BAD, "ok"], {BAD: [1., -1.]}, {BAD: (1., 1.)})
    for page in (ledger_page({BAD: ledger, "b": ledger}), show_ledger(ledger).data, label_page(session, BAD),
                 dashboard_page(dashboard), dashboard_table(dashboard), panel(BAD, {BAD: ([0, 1], [1., 2.])}),
                 sweep_page(a_sweep([BAD], {BAD: [{BAD: 1.}]})), html_table([BAD], [[BAD]])):
        assert "alert(" in check_page(page).text + page             # shown, as text
    assert escape_text("a\nb") == "a⏎b" and escape_text("\u202e") == r"\u202e" and escape_text("Grüße 你好") == "Grüße 你好"


def test_ledger_numbers_and_colours():
    ledger = Ledger(["a", "b", "c"], {"r": [2., -1., math.nan], "v": [0., 0., 0.]},
                  {"good": (1., 1.0004), "bad": (1., 1.01), "large": (5000., 5000.5)})
    page = show_ledger(ledger).data
    styles = re.findall(r'class="t" style="([^"]*)"', page)
    assert styles[0].startswith("--c0:" + tint(2., 2.)) and styles[1].startswith("--c0:" + tint(-1., 2.))
    assert "#8884" in styles[2] and tint(2., 2.) != tint(-2., 2.)
    assert page.count("DO NOT AGREE") == 1 and "good" in page.split("agree")[0]
    assert page.count('type="radio"') == 2 + 3 and page.count(" checked ") == page.count('-0" checked ') == 1
    assert page.count("<input") == page.count('data-lm-suppress-shortcuts="true"')   # of each, not of the root alone
    assert "background:var(--c1)" in page and "attr(data-1)" in page and page.count("&#10;") == 3
    assert re.findall(r'data-0="([^"]*)"', page) == ["+2.00", "-1.00", "–"]     # not colour alone
    assert re.search(r"r +\+2 +v +\+0", page) and re.search(r"r +-1 +v", page)
    other = show_ledger(Ledger(["a", "b", "x"], {"r": [2., -1., 0.], "v": [0., 0., 0.]}, {})).data
    ids = [set(re.findall(r' id="([\w-]+)"', p)) for p in (page, other)]
    assert not ids[0] & ids[1]                               # two on a page do not meddle
    for radio in re.findall(r'type="radio"[^>]* id="([\w-]+)"', page): assert f'for="{radio}"' in page
    assert set(re.findall(r'<input type="radio" name="([\w-]+)" data', page)) == {ids[0].pop()[:9] + "-t0"}
    left = plain(page)                                       # GitHub: tokens, sums and table stay
    assert "<td>-1</td>" in left and "good: +1.0000" in left and "position" not in left


def test_a_long_name_and_an_infinite_value_hide_no_number():
    page = show_ledger(Ledger(["a", "b"], {"log-prob of the policy": [-.1234, 2.], "r": [math.inf, 1.]}, {})).data
    assert "log-prob of the policy -0.1234" in page and "+inf" in page and "nan" not in page
    assert f"--c1:{tint(1., 1.)}" in page                    # the finite ones keep their colour

def test_two_ledgers_share_one_scale():
    with pytest.raises(ValueError, match="at least one channel"): Ledger(["a"], {}, {})
    small, large = (Ledger(["a"], {"r": [x]}, {}) for x in (1., 4.))
    page = ledger_page({"before": small, "after": large})
    assert f"--c0:{tint(1., 4.)}" in page and f"--c0:{tint(4., 4.)}" in page
    assert page.index(">before<") < page.index(">after<") and page.count('type="radio"') == 1 + 2


def test_a_token_note_a_frame_and_folds():
    ledger = Ledger(["a", "b"], {"r": [1e-4, 0.]}, {}, ["policy <1>", "q\nr"], 1)
    page = show_ledger(ledger).data
    check_page(page)
    assert 'data-n="token 0: &#x27;a&#x27;&#10;r          +0.0001&#10;policy &lt;1&gt;"' in page and "&#10;q&#10;r" in page
    assert page.count('class="t f"') == 1 and re.findall(r'data-0="([^"]*)"', page) == ["+1e-4", "0"]   # small, not 0
    with pytest.raises(ValueError, match="notes"): Ledger(["a", "b"], {"r": [1., 2.]}, {}, ["one"])
    long = Ledger(["a"] * 500, {"r": [0.] * 500}, {})
    assert ledger_page({"a": long, "b": long, "c": long, "d": long}).count('<details class="r"') == 3
    short = ledger_page({"a": long, "b": Ledger(["a"] * 90, {"r": [0.] * 90}, {})})
    assert '<details class="r"' not in short and 'class="r" style="--n:500"' in short
    assert [signed(x) for x in (0., 3e-7, -.0049, .005, math.inf)] == ["0", "+3e-7", "-5e-3", "+0.01", "+inf"]

class Bytes:
    def decode(self, ids): return bytes(ids).decode("utf-8", "replace")
class Pieces: # as SentencePiece: the space in front of the first piece is lost
    def decode(self, ids): return "".join(["▁The", "▁fox", "es", "."][i] for i in ids).replace("▁", " ").lstrip()

def test_tokens_are_decoded_in_context():
    text = "naïve 你🙂 e\u0301"
    got = token_texts(Bytes(), list(text.encode()))
    assert "\ufffd" not in "".join(got) and len(got) == len(text.encode())
    assert got[2:4] == ["ï1/2", "ï2/2"] and got[-2:] == ["\u03011/2", "\u03012/2"] and "🙂4/4" in got
    assert token_texts(Bytes(), [0xf0, 0x9f, 97]) == ["⟨240⟩", "⟨159⟩", "a"]          # half a character stays told
    assert token_texts(Pieces(), [0, 1, 2, 3]) == ["The", " fox", "es", "."] and token_texts(Pieces(), []) == []

def test_a_view_leaves_a_page_and_follows_its_controls(monkeypatch):
    from ipywidgets import HTML as Page
    from rlhf_nb import widgets
    shown, updates = [], []
    def display(what, **options):
        shown.append(what)
        return SimpleNamespace(update=updates.append)
    monkeypatch.setattr(widgets, "display", display)
    page = Page("<b>one</b>")
    view = LiveView([page], lambda: page.value)
    view._ipython_display_()
    first, live = shown
    u = view.kept[0][0]
    assert "<b>one</b>" in first.data and f'id="{u}"' in first.data and f"live-{u}" in view._dom_classes
    assert live["application/vnd.jupyter.widget-view+json"]["model_id"] == view.model_id
    assert live["text/plain"] == "Run this cell for live controls."                # GitHub shows this, under the page
    page.value = "two"
    view.keep()
    assert "two" in updates[0].data and f'id="{u}"' in updates[0].data
    view._ipython_display_()                                                # shown again: a place of its own
    assert len({u for u, _ in view.kept}) == 2
    twin = still_page(show_ledger(Ledger(["a"], {"r": [1.]}, {})).data, "v1")
    assert not re.search(r"\bl[0-9a-f]{8}\b", twin) and re.search(r'id="s[0-9a-f]{8}-0"', twin)  # two radio groups

def test_nothing_trains_before_start_is_pressed():
    dashboard, ran = Dashboard(["x"]), []
    start, pause, stop, save = show_dashboard(dashboard, lambda: ran.append(1)).children[1].children
    assert start.description == "Start" and pause.description == "Pause" and not ran and dashboard.state == "not begun"
    start.click()
    until(lambda: dashboard.state == "finished")
    start.click()                                                           # again: one run, not two
    assert ran == [1]

def one_row(config, ended=True):
    generator = torch.Generator().manual_seed(1)
    seqs = make_seqs([[7, 8], [7]], [[3, 4, 5, 1 if ended else 6], [2, 1]], 0)
    mask, rand = seqs.response_mask, lambda: torch.randn(seqs.ids.shape, generator=generator)
    roll = Rollout(seqs, torch.arange(2), *(-rand().abs() * mask for _ in range(2)), torch.tensor([1.5, -.5]))
    roll = add_score_column(roll, config, 1)
    seqs, mask = roll.seqs, roll.seqs.response_mask
    model = SimpleNamespace(critic=lambda s: values[:len(s), :s.ids.shape[1]])
    values = rand()
    order = seqs.attention_mask.sum(1).argsort(stable=True)   # experience() sorts rows by length
    values = values[order]
    x = make_experience(model, roll, replace(config, micro_batch_size=2), 1)
    return roll, x, rand() * mask

@pytest.mark.parametrize("config", [PPOConfig(), PPOConfig(gamma=.9, lam=.5, beta=.3), PPOConfig(lam=0.), PPOConfig(lam=1.),
    PPOConfig(score_after_eos=True), PPOConfig(missing_eos_penalty=2.)], ids=plain_id)
@pytest.mark.parametrize("ended", [True, False])
def test_rewards_read_back_are_those_of_ppo(config, ended):
    roll, x, now = one_row(config, ended)
    tokenizer = SimpleNamespace(decode=lambda ids: "".join(f"<{i}>" for i in ids), eos_token_id=1)
    reward = rollout_rewards(roll, config, 1)
    for i in range(2):
        row = slice(i, i + 1)
        ledger = ppo_ledger(tokenizer, roll[row], x[row], now[row], config)
        want = reward[i][x.reward_mask[i]]
        torch.testing.assert_close(torch.tensor(ledger.channels["reward"]), want)
        assert len(ledger.sums) == 2 and all(abs(a - b) < 1e-5 for a, b in ledger.sums.values())
        raw, returns = gae(reward, x.value, x.reward_mask, config.gamma, config.lam)
        torch.testing.assert_close(torch.tensor(ledger.channels["advantage"]), raw[i][x.reward_mask[i]])
        torch.testing.assert_close(torch.tensor(ledger.channels["Q"]), returns[i][x.reward_mask[i]])
        for name, there in {"log-prob": roll.logp, "reference": roll.ref_logp, "KL": roll.logp - roll.ref_logp,
                            "value": x.value, "whitened": x.advantage, "ratio": (now - roll.logp).exp()}.items():
            torch.testing.assert_close(torch.tensor(ledger.channels[name]), there[i][x.reward_mask[i]])
        assert ledger.channels["clip"] == [clip_state(r, a, config.cliprange) for r, a in zip(
            ledger.channels["ratio"], ledger.channels["whitened"])]
        assert ledger.tokens == [f"<{t}>" for t in roll.seqs.ids[i][x.reward_mask[i]].tolist()]
        broken = replace(x, returns=x.returns + .1 * x.reward_mask)
        ledger = ppo_ledger(tokenizer, roll[row], broken[row], now[row], config)
        assert "DO NOT AGREE" in show_ledger(ledger).data
    assert not ppo_ledger(tokenizer, roll[:1], x[:1], now[:1], replace(config, whiten_rewards=True)).sums

def test_clip_state_is_where_the_gradient_is_cut():
    from rlhf_nb.ppo import clipped_policy_loss
    generator = torch.Generator().manual_seed(0)
    logp = torch.randn(300, generator=generator).mul(.4).requires_grad_()
    advantage = torch.randn(300, generator=generator)
    clipped_policy_loss(logp, torch.zeros(300), advantage, .2).sum().backward()
    states = torch.tensor([clip_state(r, a, .2) for r, a in zip(logp.exp().tolist(), advantage.tolist())])
    assert ((states != 0) == (logp.grad == 0)).all() and {-1., 0., 1.} == set(states.tolist())


def test_labels_survive_and_sides_are_fair(tmp_path):
    path = tmp_path/"deep"/"labels.jsonl"
    session = LabelSession(PAIRS, path, seed=3)
    for choice in ("left", "right", "neither"): add_label(session, choice)
    book = path.with_suffix(".labels")
    head, *rows = [json.loads(line) for line in book.read_text().splitlines()]
    assert head == {"format": 2} and (rows[0]["chosen"], rows[0]["rejected"]) == sides(session, 0)
    assert (rows[1]["rejected"], rows[1]["chosen"]) == sides(session, 1)
    assert "chosen" not in rows[2] and set(rows[2]["tie"]) == set(PAIRS[2][1:])
    assert [json.loads(line) for line in path.read_text().splitlines()] == rows[:2]   # no tie
    undo_label(session)
    assert len(book.read_text().splitlines()) == 3 and not list(path.parent.glob("*.unfinished"))
    again = LabelSession(PAIRS, path, seed=3)
    assert again.labels == rows[:2]
    for _ in range(28): add_label(again, "left")
    with pytest.raises(ValueError, match="all 30 pairs"): add_label(again, "left")
    assert "Done" in label_page(again)
    first = [sides(LabelSession(PAIRS, path, seed=s), i)[0] == PAIRS[i][1] for s in range(9) for i in range(30)]
    assert .4 < sum(first) / len(first) < .6                 # 270 fair coins: .5 +- .03
    assert all(5 < sum(first[k:k + 30]) < 25 for k in range(0, 270, 30))  # on every session
    with pytest.raises(ValueError, match="30 labels for 2 pairs"): LabelSession(PAIRS[:2], path)
    with pytest.raises(ValueError, match="same pairs"): LabelSession(PAIRS[::-1], path)


def test_a_session_writes_over_no_file_but_its_own(tmp_path):
    path = tmp_path/"pairs.jsonl"
    path.write_text("somebody's work")
    with pytest.raises(ValueError, match="has no pairs.labels beside"): LabelSession(PAIRS, path)
    assert path.read_text() == "somebody's work"
    with pytest.raises(ValueError, match="got ties.labels"): LabelSession(PAIRS, tmp_path/"ties.labels")


def test_strange_text_survives_the_file(tmp_path):
    odd = [(f"{i} line\u2028break \x85 \ud800", "a\nb\r", '"\\') for i in range(3)]
    session = LabelSession(odd, tmp_path/"l.jsonl")
    for _ in odd: add_label(session, "left")
    assert LabelSession(odd, tmp_path/"l.jsonl").labels == session.labels
    lines = (tmp_path/"l.jsonl").read_text("utf-8").split("\n")
    assert len(lines) == 4 and {json.loads(lines[0])[k] for k in ("chosen", "rejected")} == set(odd[0][1:])


def on_disk(path):
    "What the two files of a session hold: labels, and preferences derived from them."
    book = path.with_suffix(".labels")
    labels = [json.loads(line) for line in book.read_text().splitlines()][1:] if book.exists() else []
    return labels, [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

def test_two_sessions_on_one_file_lose_no_label(tmp_path):
    a, b = (LabelSession(PAIRS, tmp_path/"l.jsonl") for _ in range(2))
    refused = 0
    for _ in range(6):
        for session in (a, b):
            before = on_disk(a.path)[0]
            try: add_label(session, "left")
            except ValueError as e:                # the pair on the page was not the next one any more
                assert "another session" in str(e) and on_disk(a.path)[0] == before
                refused += 1
    labels, preferences = on_disk(a.path)
    assert len(labels) + refused == 12 and len(labels) >= 6 and preferences == labels
    assert [row["prompt"] for row in labels] == [p for p, *_ in PAIRS[:len(labels)]]
    view = show_labels(a)
    add_label(b, "left") if b.labels == on_disk(b.path)[0] else undo_label(a)
    view.children[1].children[0].click()           # stale: the page says so and shows the next pair
    assert "another session" in view.children[0].value or len(a.labels) == len(on_disk(a.path)[0])

WORKER = """import sys; from rlhf_nb.widgets import LabelSession, add_label
session = LabelSession([(str(i), 'a', 'b') for i in range(10**3)], sys.argv[1])
print('ready', flush=True); sys.stdin.readline()
done = 0
while done < 25:
    try: add_label(session, 'left'); done += 1
    except ValueError: pass"""

def test_two_processes_on_one_file_lose_no_label(tmp_path):
    path = tmp_path/"l.jsonl"
    both = [subprocess.Popen([sys.executable, "-c", WORKER, str(path)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for p in both: assert p.stdout.readline() == "ready\n"
    for p in both: print(file=p.stdin, flush=True)             # both at once
    assert [p.wait(300) for p in both] == [0, 0]
    labels, preferences = on_disk(path)
    assert len(labels) == 50 and preferences == labels
    assert [row["prompt"] for row in labels] == [str(i) for i in range(50)]

KILLED = """import os, signal, sys
from rlhf_nb import widgets
from rlhf_nb.widgets import LabelSession, add_label, undo_label
path, act, at = sys.argv[1], sys.argv[2], int(sys.argv[3])
session, left = LabelSession([(str(i), 'a', 'b') for i in range(9)], path), [at]
def dies(event, args):                       # at the n-th thing that is done to a file
    if event in ('open', 'os.rename', 'fcntl.flock', 'os.mkdir') and 'l.' in str(args[0]) or event == 'fcntl.flock':
        left[0] -= 1
        if left[0] == 0: os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(dies)
add_label(session, 'left') if act == 'add' else undo_label(session)
print('end')"""

@pytest.mark.parametrize("act", ["add", "undo"])
def test_a_session_killed_at_any_file_operation_is_whole_again_when_opened(tmp_path, act):
    behind = 0
    for at in range(1, 40):
        path = tmp_path/f"{at}"/"l.jsonl"
        session = LabelSession([(str(i), "a", "b") for i in range(9)], path)
        for choice in ("left", "neither", "right"): add_label(session, choice)
        done = subprocess.run([sys.executable, "-c", KILLED, str(path), act, str(at)], capture_output=True, text=True)
        if done.stdout == "end\n": break
        assert done.returncode == -signal.SIGKILL, done.stderr
        labels, preferences = on_disk(path)
        behind += preferences != [row for row in labels if "chosen" in row]
        again = LabelSession(session.pairs, path)
        labels, preferences = on_disk(path)
        assert again.labels == labels and len(labels) in (3, {"add": 4, "undo": 2}[act])
        assert preferences == [row for row in labels if "chosen" in row]
        add_label(again, "left")                   # and it goes on
    assert at > 5 and behind >= 1, "no kill fell between the two files"

def test_a_file_of_preferences_that_was_changed_by_hand_is_not_written_over(tmp_path):
    session = LabelSession(PAIRS, path := tmp_path/"l.jsonl")
    add_label(session, "left")
    path.write_text(path.read_text() + "mine\n")
    for act in (lambda: LabelSession(PAIRS, path), lambda: add_label(session, "left"), lambda: undo_label(session)):
        with pytest.raises(ValueError, match="no preferences between these pairs"): act()
    assert path.read_text().endswith("mine\n") and len(session.labels) == 1

@pytest.mark.parametrize("text", ["", "{", '{"prompt": "question 0", "tie": []}\n', '{"format": 1}\n'])
def test_labels_of_another_format_are_refused(tmp_path, text):
    (tmp_path/"l.labels").write_text(text)
    with pytest.raises(ValueError, match="not a file of labels that this version reads"):
        LabelSession(PAIRS, tmp_path/"l.jsonl")
    assert (tmp_path/"l.labels").read_text() == text


def test_a_full_disk_is_told_and_nothing_counts_as_labelled(tmp_path, monkeypatch):
    session = LabelSession(PAIRS[:3], tmp_path/"l.jsonl")
    view = show_labels(session)
    page, row = view.children[:2]
    row.children[0].click()
    def full(*_): raise OSError(28, "No space left on device")
    with monkeypatch.context() as m:
        m.setattr(os, "fsync", full)
        row.children[1].click()
        assert "Not saved: [Errno 28] no room is left on the disk" in page.value and len(session.labels) == 1
        assert "all 1 labels before are safe in" in page.value
        row.children[3].click()
        assert len(session.labels) == 1
    row.children[1].click()
    assert "Not saved" not in page.value and LabelSession(PAIRS[:3], tmp_path/"l.jsonl").labels == session.labels


def test_a_reward_model_and_dpo_train_on_the_file(tmp_path):
    from rlhf_nb.data import load_pairs
    from rlhf_nb.dpo import make_pair_loss, dpo_loss, precompute_ref_logprobs
    from rlhf_nb.learning import TrainConfig, fit, make_trainer
    from rlhf_nb.models import ScalarModel, frozen_copy, load_bundled
    from rlhf_nb.reward import preference_accuracy, score_pairs, train_reward
    session = LabelSession([(f"Where does the {x} live?", f"It lives in the {y}.", "I do not know.")
                 for x, y in (("fox", "forest"), ("crab", "sea"), ("hare", "field"), ("owl", "forest"))],
                tmp_path/"l.jsonl")
    for i in range(4): add_label(session, "neither" if i == 1 else ("left", "right")["know" in sides(session, i)[0]])
    lm, tokenizer = load_bundled("sft")
    pairs, _ = load_pairs(session.path, tokenizer)
    assert len(pairs) == 3
    generator, config = torch.Generator().manual_seed(0), TrainConfig(n_steps=8, batch_size=3, warmup_steps=1)
    trainer = train_reward(ScalarModel.from_lm(lm), pairs, config, generator)
    assert preference_accuracy(*score_pairs(trainer.model, pairs)) == 1.
    trainer = make_trainer(lm.requires_grad_(), config)
    rows = fit(trainer, precompute_ref_logprobs(frozen_copy(lm), pairs), make_pair_loss(dpo_loss), generator).rows
    losses = [r["loss"] for r in rows if "loss" in r]
    assert losses[0] == pytest.approx(math.log(2), abs=1e-3) and losses[-1] < .6


def test_a_slider_that_rounds_badly_leaves_the_number_as_it_is():
    "A browser's slider says .7999999999999999 where its step is .1 from .3."
    for span, said, want in (((.8, .3, 3., .1), .7999999999999999, .8), ((.5, 0., 1., .001), .1234000000000001, .1234)):
        field, slider = with_sliders([knob("temperature", span)]).children[0].children
        slider.value = said
        assert field.value == want and "by-mouse" in slider._dom_classes      # keys and names are the field's
    field, slider = with_sliders([knob("batch", (16, 1, 64, 1))]).children[0].children
    slider.value = 17
    assert field.value == 17 and type(field.value) is int

def test_buttons_and_arrows_of_the_session(tmp_path):
    session = LabelSession(PAIRS[:2], tmp_path/"l.jsonl")
    page, row, arrows = show_labels(session).children
    left, right, neither, back = row.children
    assert all(b.description and b.tooltip for b in row.children) and arrows.description
    back.click()                                             # nothing to take back
    right.click(); left.click(); left.click()                # one more than there is
    assert len(session.labels) == 2 and "Done" in page.value
    back.click()
    assert len(session.labels) == 1 and "1 of 2" in page.value
    back.click()
    arrows.value = -1
    assert session.labels[0]["chosen"] == sides(session, 0)[0] and arrows.value == 0
    arrows.value = 1
    arrows.value = 1                                         # one more than there is
    assert session.labels[1]["chosen"] == sides(session, 1)[1] and len(session.labels) == 2


def test_the_page_shows_the_sides_that_are_labelled():
    for seed in range(8):
        session = LabelSession(PAIRS, "unused.jsonl", seed)
        for side, answer in zip(("Left", "Right"), sides(session, 0)):
            assert f"<b>{side}</b><br>{answer}<" in label_page(session)

def test_the_session_keeps_its_height():
    pages = [label_page(LabelSession(pairs, "unused.jsonl"), t) for pairs in (PAIRS, []) for t in ("", "full")]
    assert all(re.search(r"height:15em;overflow:auto", p) for p in pages)


# ---- the dashboard

def toy_roll(): return SimpleNamespace(seqs=make_seqs([[5], [5]], [[1, 2], [3]], 0))
WORDS = SimpleNamespace(decode=lambda ids, **_: f"<{torch.as_tensor(ids).tolist()}>")    # of a tensor or a list
def until(ready, seconds=600):    # a busy machine may be slow
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "waited too long"
        time.sleep(.005)

def toy_run(dashboard, save=lambda: "here", fail_at=None, n=10**9):
    callback = dashboard_callback(dashboard, WORDS, save)
    def train():
        for i in range(n):
            if i == fail_at: raise KeyError("<b>lost</b>")
            callback(dict(iteration=i, x=float(i)), toy_roll())
            time.sleep(.002)
    return run_in_background(train, dashboard)

def test_dashboard_pauses_saves_and_stops():
    dashboard, saved = Dashboard(["x"], interval=0.), []
    pause, stop, save = show_dashboard(dashboard).children[1].children
    def keep():
        saved.append(len(dashboard.rows))
        return "<folder>"
    thread = toy_run(dashboard, keep)
    until(lambda: len(dashboard.rows) >= 3)
    save.click()                                             # while it runs
    until(lambda: saved)
    assert thread.is_alive() and dashboard.state == "running" and "&lt;folder&gt;" in dashboard.page.value
    pause.click()
    until(lambda: dashboard.state == "paused")
    held = len(dashboard.rows)
    save.click()                                             # while it waits
    until(lambda: len(saved) == 2)
    assert saved[1] == held and pause.description == "Go on" and "paused" in dashboard.page.value
    clock = time.pthread_getcpuclockid(thread.ident)         # of this thread: others may be at work
    began = time.clock_gettime(clock)
    time.sleep(.4)
    assert time.clock_gettime(clock) - began < .2            # it sleeps, it does not ask and ask
    assert len(dashboard.rows) == held and thread.is_alive()
    pause.click()
    until(lambda: len(dashboard.rows) >= held + 5 and dashboard.state == "running")
    assert pause.description == "Pause" and len(saved) == 2
    pause.click(); stop.click()                              # stop works while it waits
    thread.join(600)
    assert not thread.is_alive() and dashboard.state == "stopped"
    assert "&lt;[1, 2]&gt;" in dashboard.page.value and "stopped" in dashboard.page.value
    other = Dashboard(["x"])
    toy_run(other, n=3).join(600)
    assert other.state == "finished" and "finished, 3 iterations" in other.page.value

def test_a_dashboard_is_of_one_run():
    dashboard = Dashboard(["x"])
    thread = toy_run(dashboard)
    with pytest.raises(ValueError, match="is running: give it a new Dashboard"): toy_run(dashboard)
    dashboard.stop = True
    thread.join(600)
    with pytest.raises(ValueError, match="is stopped"): toy_run(dashboard)

def test_what_is_pressed_before_the_run_begins_holds():
    dashboard = Dashboard(["x"])
    show_dashboard(dashboard).children[1].children[0].click()        # Pause
    thread = toy_run(dashboard)
    until(lambda: dashboard.state == "paused")
    assert len(dashboard.rows) == 1
    for button in show_dashboard(dashboard).children[1].children[1::-1]: button.click()   # Stop, Go on
    thread.join(600)
    assert dashboard.state == "stopped"

def test_a_dashboard_shown_again_is_the_same_dashboard():
    dashboard = Dashboard(["x"], interval=0.)
    first = show_dashboard(dashboard)
    thread = toy_run(dashboard)
    until(lambda: len(dashboard.rows) >= 3)
    first.children[1].children[0].click()
    until(lambda: dashboard.state == "paused")
    again = show_dashboard(dashboard)                                # after a reload
    assert again is not first and again.children[0] is dashboard.page
    assert again.children[1].children[0].description == "Go on" and "paused" in dashboard.page.value
    held = len(dashboard.rows)
    again.children[1].children[0].click()                    # one press, one turn
    until(lambda: len(dashboard.rows) >= held + 3)
    again.children[1].children[1].click()
    thread.join(600)
    assert dashboard.state == "stopped" and "stopped" in first.children[0].value

def test_a_save_that_fails_stops_nothing():
    dashboard = Dashboard(["x"], interval=0.)
    save = show_dashboard(dashboard).children[1].children[2]
    def full(): raise OSError("<disk> full")
    thread = toy_run(dashboard, full)
    save.click()
    until(lambda: "Not saved: OSError" in dashboard.note)
    n = len(dashboard.rows)
    until(lambda: len(dashboard.rows) >= n + 3)
    dashboard.stop = True
    thread.join(600)
    assert "&lt;disk&gt; full" in dashboard.page.value

def test_errors_of_a_run_are_shown_and_not_swallowed():
    dashboard, seen = Dashboard(["x"]), []
    old = threading.excepthook
    threading.excepthook = lambda args: seen.append(args.exc_type)
    try: toy_run(dashboard, fail_at=2).join(600)
    finally: threading.excepthook = old
    assert seen == [KeyError] and dashboard.state == "failed" and "&lt;b&gt;lost" in dashboard.page.value
    other = Dashboard(["x"])
    def stopped(): raise Stopped("enough")
    run_in_background(stopped, other).join(600)
    assert len(seen) == 1 and other.state == "stopped"

def test_a_dashboard_draws_no_more_than_it_is_asked():
    dashboard, drawn = Dashboard(["x"], interval=60.), []
    dashboard.page.observe(lambda change: drawn.append(1), "value")
    callback = dashboard_callback(dashboard, WORDS, str)
    for i in range(50): callback(dict(iteration=i, x=float(i)), toy_roll())
    assert len(drawn) <= 2 and len(dashboard.rows) == 50         # the first row, and that it runs

def test_rows_are_not_changed_and_pace_is_measured():
    dashboard, row = Dashboard(["x"]), dict(iteration=0, x=1.)
    callback = dashboard_callback(dashboard, WORDS, str)
    dashboard.iteration_began = time.monotonic() - 2
    callback(row, toy_roll())                                   # 3 tokens in two seconds
    assert row == dict(iteration=0, x=1.)
    assert dashboard.rows[0]["tokens per second"] == pytest.approx(1.5, rel=.1)
    assert pace(dashboard, 10)["tokens per second"] > 100        # the clock began anew

def test_pause_does_not_count_as_time():
    dashboard = Dashboard(["x"], interval=0.)
    thread = toy_run(dashboard)
    until(lambda: len(dashboard.rows) >= 3)
    pause = show_dashboard(dashboard).children[1].children[0]
    pause.click()
    until(lambda: dashboard.state == "paused")
    time.sleep(1.)
    held = len(dashboard.rows)
    pause.click()
    until(lambda: len(dashboard.rows) > held)
    dashboard.stop = True
    thread.join(600)
    assert dashboard.rows[held]["tokens per second"] > 10        # 3 tokens; with the pause it were 3

def test_memory_of_a_gpu_and_of_none(monkeypatch):
    if not torch.cuda.is_available():
        assert set(pace(Dashboard([]), 1)) == {"tokens per second"}          # no GPU, no such number and no panel
        assert dashboard_page(Dashboard(["x", "GPU memory, MB"])).count("<svg") == 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert dashboard_page(Dashboard(["x", "GPU memory, MB"])).count("<svg") == 2
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3 * 2**20)
    assert pace(Dashboard([]), 1)["GPU memory, MB"] == 3.

def test_panel_keeps_its_size_and_shows_what_broke():
    one = panel("a", {"": ([0], [math.nan])})
    many = panel("a", {"": (range(5000), [math.inf if i % 7 == 0 else float(i) for i in range(5000)])})
    gone = panel("a", {"": ([0, 1, 2], [1., 2., None])})
    for svg in (one, many, gone, panel("a", {}), panel("a", {"": ([], [])})):
        assert 'width="270" height="130"' in svg and "nan" not in svg and "inf" not in svg
        check_page(svg)
    assert many.count(",") < 700 and "4999" in many          # thinned, the last one kept
    assert one.count(">✕<") == 1 and many.count(">✕<") == 20               # the newest of them
    assert "not finite" in one and "✕ 715" in many and "not finite" not in many
    assert "no data yet" in panel("a", {"": ([0, 1], [None, None])}) and "✕" not in gone

def test_panel_draws_where_the_numbers_are():
    svg = panel("a", {"old": ([1, 2], [0., 4.]), "new": ([1, 2, 3], [4., 2., 0.])})
    lines = re.findall(r'points="([^"]*)"', svg)
    assert lines == ["50.0,108.0 152.0,24.0", "50.0,24.0 152.0,66.0 254.0,108.0"]
    dashed, thick = re.findall(r"<polyline[^>]*>", svg)
    assert "dasharray" in dashed and "dasharray" not in thick and 'stroke-width="2"' in thick
    assert "①" in svg and "②" not in svg and ">a  0</text>" in svg         # the newest ends at 0
    assert re.findall(r'x="2.0" y="([\d.]+)"[^>]*>(\d)<', svg) == [("28.0", "4"), ("108.0", "0")]
    assert ">9</text>" in panel("a", {"": ([0, 9], [1., math.inf])})      # as far as it went
    flat = panel("a", {"": ([1, 2], [3., 3.])})
    assert re.findall(r'points="([^"]*)"', flat) == ["50.0,108.0 254.0,108.0"]

def test_thinned_keeps_spikes():
    generator = torch.Generator().manual_seed(0)
    for n in (1, 199, 200, 201, 1000, 4999):
        ys = torch.randn(n, generator=generator).tolist()
        points = list(enumerate(ys))
        kept = thinned(points)
        assert set(kept) <= set(points) and kept == sorted(kept) and len(kept) <= 204
        assert {min(ys), max(ys)} <= {y for _, y in kept} and {points[0], points[-1]} <= set(kept)

def test_pages_are_of_one_height():
    def shape(page): return re.sub(r"[\d.]+|no data yet|points=\"[^\"]*\"|aria-label=\"[^\"]*\"", "", page)
    empty, full = Dashboard(["x", "y"]), Dashboard(["x", "y"], rows=[dict(x=float(i), y=1.) for i in range(9)],
                                          samples=["a " * 900, "b"], note="c " * 900)
    for page in map(dashboard_page, (empty, full)):
        assert page.count("<svg") == 2 and page.count("white-space:nowrap") == 3
    few, many = (a_sweep(["x"], {f"s{i}": [dict(x=1.)] for i in range(n)}) for n in (0, 9))
    assert sweep_page(few).count("<tr>") == sweep_page(many).count("<tr>") == 5
    assert "① s5" in sweep_page(many) and "▬ s8" in sweep_page(many)     # the newest four

def test_a_long_run_costs_no_more_and_loses_no_spike():
    dashboard = Dashboard(["x"])
    for i in range(6000):
        dashboard.rows.append(dict(iteration=i, x=9. if i == 321 else math.nan if i % 1000 == 7 else i % 3))
        if i % 50 == 0: dashboard_page(dashboard)                    # read a few rows at a time
    xs, ys = curves_of(dashboard)["x"]
    assert len(xs) < 600 and xs == sorted(xs) and ys[xs.index(321)] == 9. and xs[-1] == 5999
    assert "✕ 6" in dashboard_page(dashboard) and dashboard.n_read == 6000
    once = Dashboard(["x"], rows=dashboard.rows)
    assert curves_of(once) == curves_of(dashboard)

def test_a_saved_dashboard_has_its_numbers_in_text():
    dashboard = Dashboard(["x"], rows=[dict(x=1.25), dict(y=2.), dict(x=None)])
    left = plain(dashboard_page(dashboard) + dashboard_table(dashboard))
    assert "<td>1</td><td>1.25</td>" in left and left.count("<td>–</td>") == 2 and "3 iterations" in left


# ---- sliders that run it again

def test_settings_overlay_and_come_back():
    calls = []
    def run(settings, callback):
        calls.append(settings)
        for i in range(3): callback(dict(x=settings["beta"] * i), None)
    made = Sweep(run, ["x"])
    for beta in (1., 2., 1.): run_setting(made, dict(beta=beta))
    assert len(calls) == 2 and list(made.results) == ["beta 2", "beta 1"]      # seen: only the order changes
    page = sweep_page(made)
    assert page.count("<polyline") == 2 and "▬ beta 1" in page and "① beta 2" in page
    assert "<td>2</td>" in plain(page) and "<td>4</td>" in plain(page)

def test_a_setting_that_failed_is_no_result():
    fails = [True]
    def run(settings, callback):
        callback(dict(x=None), None)
        if fails.pop(): raise OSError("full")
        callback(dict(x=2.), None)
    made, shown = Sweep(run, ["x"]), []
    with pytest.raises(OSError): run_setting(made, dict(beta=1.), lambda: shown.append(sweep_page(made)))
    assert not made.results and "beta 1" not in shown[-1] and "<td>–</td>" in plain(shown[0])
    fails.append(False)
    run_setting(made, dict(beta=1.))
    assert made.results == {"beta 1": [dict(x=None), dict(x=2.)]}

def test_a_slider_runs_the_newest_wish():
    seen, hold = [], threading.Event()
    def run(settings, callback):
        seen.append(settings["beta"])
        hold.wait(10)
        callback(dict(x=settings["beta"]), None)
    made = Sweep(run, ["x"])
    box, page = show_sweep(made, {"beta": (.1, 0., 1., .1), "cliprange": (.2, 0., 1., .1)}).children
    number, slider = box.children[0].children
    assert number.description == "beta" and not slider.continuous_update
    slider.value = .2
    until(lambda: seen)
    for x in (.3, .4, .5): slider.value = x                  # faster than the runs are done
    hold.set()
    until(lambda: len(made.results) == 2 and all(made.results.values()))
    assert seen == [.2, .5] and list(made.results) == ["beta 0.2, cliprange 0.2", "beta 0.5, cliprange 0.2"]
    until(lambda: "▬ beta 0.5" in page.value)


# ---- what it costs

def test_a_frame_is_cheap_and_leaves_no_figure():
    rows = [{f"m{k}": math.sin(i / 50 + k) for k in range(8)} for i in range(2000)]
    dashboard = Dashboard([f"m{k}" for k in range(8)], rows=rows, samples=["a b"] * 2)
    dashboard_page(dashboard)
    before, began = len(plt.get_fignums()), time.process_time()
    for _ in range(5): dashboard_page(dashboard)
    assert (time.process_time() - began) / 5 < .06           # 5 ms on a quiet machine, see benchmarks
    assert len(plt.get_fignums()) == before and "matplotlib" not in sys.modules["rlhf_nb.widgets"].__dict__

def test_what_was_measured_keeps_the_promise():
    path = Path(__file__).parents[1]/"benchmarks/results/widgets.json"
    seen = json.loads(path.read_text("utf-8"))
    assert max(seen["ms_per_frame"].values()) < 5 and seen["figures_left_open"] == 0
    loop = seen["dashboard_on_a_tiny_ppo_loop"]
    assert loop["paired_overhead_median"] < .02 and loop["share_in_callback"] < .02
