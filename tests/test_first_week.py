"What a first script of one's own gets wrong: refused in a sentence, never silently wrong."
import re
from types import SimpleNamespace
import pytest, torch, transformers
from rlhf_nb.data import encode_prompt, load_demonstrations, load_pairs, train_tokenizer
from rlhf_nb.models import ScalarModel, frozen_copy
from rlhf_nb.sampling import SamplingParams

ROWS = [dict(prompt=f"What colour is box {i}?", response=f"It is {c}.")
        for i, c in enumerate("red green blue black".split() * 3)]
PAIRS = [dict(prompt=x["prompt"], chosen=x["response"], rejected="No.") for x in ROWS]
TOK = train_tokenizer([text for row in ROWS for text in row.values()], 300)
PROMPTS = [encode_prompt(TOK, [dict(role="user", content=x["prompt"])]) for x in ROWS]


def llama(seed=0, **more): # made from a config, as in a script of one's own
    torch.manual_seed(seed)
    own = dict(pad_token_id=TOK.pad_token_id, eos_token_id=TOK.eos_token_id)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=len(TOK), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=128, **own | more))


def seeded(): return torch.Generator().manual_seed(0)
def says(*words): return pytest.raises((ValueError, TypeError),
    match=".*".join(map(re.escape, words)))


def test_spin_refuses_a_chat_with_two_answers_instead_of_dropping_the_first():
    from rlhf_nb.spin import opponent_pairs
    turns = [dict(role="user", content="Hi"), dict(role="assistant", content="Hello."),
             dict(role="user", content="Who?"), dict(role="assistant", content="Me.")]
    chats = [dict(messages=turns), dict(messages=turns[:2])]
    args = TOK, SamplingParams(3), seeded()
    with says("one answer a row", 'turns="last"'):
        opponent_pairs(llama(), load_demonstrations(chats, TOK)[0], *args)
    last = load_demonstrations(chats, TOK, turns="last")[0]
    pairs = opponent_pairs(llama(), last, *args)
    n = int((last.attention_mask & ~last.response_mask)[0].sum())
    assert pairs.rejected.ids[0, :n].tolist() == last.ids[0, :n].tolist()


def test_log_probs_of_different_shapes_are_not_broadcast():
    from rlhf_nb.dpo import dpo_loss
    from rlhf_nb.dpo_tools import ipo_loss, kto_loss, simpo_loss
    row, column = torch.zeros(3), torch.zeros(3, 1)
    for loss in (dpo_loss, ipo_loss):
        with says("differ in shape", "(3,), (3,), (3, 1), (3, 1)"):
            loss(row, row, column, column)
    with says("differ in shape"): simpo_loss(row, column)
    with says("differ in shape"): kto_loss(row, column, row.bool(), torch.tensor(0.))


def test_best_of_n_of_right_and_wrong_answers_is_a_share_not_zero():
    from rlhf_nb.reward_tools import expected_best_of_n
    score = torch.tensor([[1., 2., 3., 4.]])
    value = torch.tensor([[0, 1, 0, 1]])
    for x in (value, value.bool(), value.float()):
        assert expected_best_of_n(score, x, 2).item() == pytest.approx((3 + 1) / 6)
    with says("one shape"): expected_best_of_n(score, value[:, :2], 2)
    with says("one shape"): expected_best_of_n(score[0], value[0], 2)
    with says("nan"): expected_best_of_n(score.neg().sqrt(), value, 2)
