"Token ledgers: tokens in context, numbers beside colours, where PPO clips."
import math, re, pytest, torch
from rlhf_nb.ppo import clipped_policy_loss
from rlhf_nb.show.ledger import Ledger, clip_state, ledger_page, token_texts
from rlhf_nb.show.pages import tint
from test_pages import check_page, plain

def test_ledger_numbers_and_colours():
    ledger = Ledger(["a", "b", "c"], {"r": [2., -1., math.nan], "v": [0., 0., 0.]},
                    {"good": (1., 1.0004), "bad": (1., 1.01), "large": (5000., 5000.5)})
    page = ledger_page({"": ledger})
    styles = re.findall(r'class="t" style="([^"]*)"', page)
    assert styles[0].startswith("--c0:" + tint(2., 2.)) and styles[1].startswith("--c0:" + tint(-1., 2.)) and "#8884" in styles[2]
    assert page.count("DO NOT AGREE") == 1 and "good" in page.split("agree")[0]
    assert page.count('type="radio"') == 2 + 3 and page.count(" checked>") == page.count('-0" checked>') == 1
    assert page.count("<input") == page.count('data-lm-suppress-shortcuts="true"')   # of each, not of the root alone
    assert "background:var(--c1)" in page and "attr(data-1)" in page and page.count("&#10;") == 3
    assert re.findall(r'data-0="([^"]*)"', page) == ["+2.00", "-1.00", "–"]     # not colour alone
    assert re.search(r"r +\+2 +v +\+0", page) and re.search(r"r +-1 +v", page)
    other = ledger_page({"": Ledger(["a", "b", "x"], {"r": [2., -1., 0.], "v": [0., 0., 0.]}, {})})
    ids, others = (set(re.findall(r' id="([\w-]+)"', p)) for p in (page, other))
    assert not ids & others                                  # two on a page do not meddle
    for radio in re.findall(r'type="radio"[^>]* id="([\w-]+)"', page): assert f'for="{radio}"' in page
    assert set(re.findall(r'name="([\w-]+)">', page)) == {ids.pop()[:9] + "-t0"}      # the tokens are a group of their own
    left = plain(page)                                       # GitHub: tokens, sums and table stay
    assert "<td>-1</td>" in left and "good: +1.0000" in left and "position" not in left
    page = ledger_page({"": Ledger(["a", "b"], {"log-prob of the policy": [-.1234, 2.], "r": [math.inf, 1.]}, {})})
    assert "log-prob of the policy -0.1234" in page and "+inf" in page and "nan" not in page
    assert f"--c1:{tint(1., 1.)}" in page                    # the finite ones keep their colour

def test_two_ledgers_share_one_scale_and_long_ones_fold():
    small, large = (Ledger(["a"], {"r": [x]}, {}) for x in (1., 4.))
    page = ledger_page({"before": small, "after": large})
    assert f"--c0:{tint(1., 4.)}" in page and f"--c0:{tint(4., 4.)}" in page
    assert page.index(">before<") < page.index(">after<") and page.count('type="radio"') == 1 + 2
    long, short = (Ledger(["a"] * n, {"r": [0.] * n}, {}) for n in (500, 90))
    assert ledger_page({"a": long, "b": long, "c": long, "d": long}).count('<details class="r"') == 3
    page = ledger_page({"a": long, "b": short})
    assert '<details class="r"' not in page and 'class="r" style="--n:500"' in page

def test_a_token_has_a_note_and_a_frame():
    page = ledger_page({"": Ledger(["a", "b"], {"r": [1e-4, 0.]}, {}, ["policy <1>", "q\nr"], 1)})
    check_page(page)
    assert 'data-n="token 0: &#x27;a&#x27;&#10;r          +0.0001&#10;policy &lt;1&gt;"' in page and "&#10;q&#10;r" in page
    assert page.count('class="t f"') == 1 and re.findall(r'data-0="([^"]*)"', page) == ["+1e-4", "0"]   # small, not 0

@pytest.mark.parametrize("make, message", [
    (lambda: Ledger(["a", "b"], {"r": [1., 2.]}, {}, ["one"]), "notes"), (lambda: Ledger(["a"], {}, {}), "at least one channel"),
    (lambda: Ledger(["a"], {"r": [1., 2.]}, {}), "'r' has 2 values for 1 tokens"),
    (lambda: ledger_page({k: Ledger(["a"], {k: [1.]}, {}) for k in "ab"}), "same channels")])
def test_a_ledger_that_does_not_fit_is_refused(make, message):
    with pytest.raises(ValueError, match=message): make()

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

def test_clip_state_is_where_the_gradient_is_cut():
    generator = torch.Generator().manual_seed(0)
    logp = torch.randn(300, generator=generator).mul(.4).requires_grad_()
    advantage = torch.randn(300, generator=generator)
    clipped_policy_loss(logp, torch.zeros(300), advantage, .2).sum().backward()
    states = clip_state(logp.exp(), advantage, .2)
    assert ((states != 0) == (logp.grad == 0)).all() and {-1., 0., 1.} == set(states.tolist())

def test_the_rest_of_a_kl_is_0_and_a_small_reward_is_none():
    page = ledger_page({"": Ledger(["a", "b"], {"KL": [-2e-7, .5], "reward": [3e-7, 1.]}, {})})
    assert "<td>0</td><td>3e-07</td>" in page and "reward     +3e-07" in page and "-2e-07" not in page
