"sft: parity with transformers, invariances, and what a wrong mask would break."
import random, pytest, torch
from torch.nn import functional as F
from rlhf_nb.base.learning import TrainConfig, make_trainer, train_step
from rlhf_nb.base.models import tiny_lm
from rlhf_nb.sft import labels, mean_loss, train_sft, sft_loss
from rlhf_nb.tokens import Seqs, make_seqs
from rlhf_nb.worlds.world_text import TRAIN, demonstrations, make_tokenizer

tokenizer = make_tokenizer()
PAD = tokenizer.pad_token_id

@pytest.fixture(scope="module")
def data(): return demonstrations(tokenizer, TRAIN, 48, random.Random(0))

def seeded(seed=0): return torch.Generator().manual_seed(seed)
def flat(model): return torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
def grads(loss, model): return torch.cat(
    [g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])

def with_pad(model):
    "As transformers has it: pad keeps its probability. Ours leave it out, for it is never sampled."
    model.config.pad_token_id = None
    return model

def widened(seqs, left=0, right=0):
    pad = lambda x, value: F.pad(x, (left, right), value=value)
    return Seqs(pad(seqs.ids, PAD), pad(seqs.attention_mask, False), pad(seqs.response_mask, False))

@pytest.mark.parametrize("arch", ["neox", "llama"])
def test_value_and_gradient_are_those_of_transformers(arch, data):
    model, x = with_pad(tiny_lm(tokenizer, arch)), data[:9].trim()
    theirs = model(input_ids=x.ids, attention_mask=x.attention_mask.long(), labels=labels(x)).loss
    loss, n = sft_loss(model, x)
    torch.testing.assert_close(loss / n, theirs)
    torch.testing.assert_close(grads(loss / n, model), grads(theirs, model), atol=1e-6, rtol=1e-4)

def test_labels_by_hand_and_the_batch_is_left_alone():
    x = make_seqs([[7], [7, 8, 9]], [[5, 6, 2], []], pad=0)
    before = x.ids.clone()
    assert labels(x).tolist() == [[-100, 5, 6, 2], [-100] * 4]
    assert torch.equal(x.ids, before) and labels(x).dtype == torch.long

def test_the_prompt_and_the_pads_do_not_pull(data):
    "Changing only what the mask leaves out as a target changes nothing but the context."
    model, x = with_pad(tiny_lm(tokenizer)), data[:6].trim()
    loss, n = sft_loss(model, x)
    other = Seqs(x.ids.masked_fill(~x.attention_mask, 5), x.attention_mask, x.response_mask)
    torch.testing.assert_close(sft_loss(model, other)[0], loss)           # what pads are
    for right in (1, 30): torch.testing.assert_close(
        sft_loss(model, widened(x, right=right))[0], loss)                # how many
    one = x[:1].trim()
    by_hand = model(input_ids=one.ids).logits.log_softmax(-1)[0]
    at = one.response_mask[0].nonzero()[:, 0].tolist()
    want = -sum(by_hand[i - 1, one.ids[0, i]] for i in at)
    torch.testing.assert_close(sft_loss(model, one)[0], want)
    assert one.ids[0, at[-1]] == tokenizer.eos_token_id                   # it learns to stop
    assert n == x.response_mask.sum()

def test_a_packed_row_counts_what_has_something_before_it():
    ids = torch.randint(6, 50, (3, 12), generator=seeded())
    every, model = torch.ones_like(ids, dtype=torch.bool), with_pad(tiny_lm(tokenizer))
    loss, n = sft_loss(model, Seqs(ids, every, every))
    theirs = model(input_ids=ids, labels=ids).loss
    assert n == 33
    torch.testing.assert_close(loss / n, theirs)

def test_empty_responses_weigh_nothing_and_only_empty_ones_are_refused():
    x, model = make_seqs([[6, 7], [8]], [[9, 2], []], pad=PAD), tiny_lm(tokenizer)
    assert sft_loss(model, x)[1] == 2
    torch.testing.assert_close(sft_loss(model, x)[0], sft_loss(model, x[:1])[0])
    empty = make_seqs([[6, 7], [8]], [[], []], pad=PAD)
    with pytest.raises(ValueError, match="counts nothing"):
        train_step(make_trainer(model, TrainConfig()), empty, sft_loss)
    with pytest.raises(ValueError, match="mean_loss"): mean_loss(model, empty)

@pytest.mark.parametrize("batch_size", [1, 5, 48, 100])
def test_mean_loss_weighs_tokens_whatever_the_batch(batch_size, data):
    model = tiny_lm(tokenizer)
    loss, n = sft_loss(model, data)
    assert mean_loss(model, data, batch_size) == pytest.approx((loss / n).item(), rel=1e-5)

def test_sft_learns_repeats_itself_and_evaluates_what_was_held_out(data):
    config = TrainConfig(lr=3e-3, n_steps=12, batch_size=16, micro_batch_size=8, warmup_steps=2)
    one = train_sft(tiny_lm(tokenizer), data, config, seeded(), data[:8])
    two = train_sft(tiny_lm(tokenizer), data, config, seeded())
    assert torch.equal(flat(one.model), flat(two.model))          # evaluating changes nothing
    three = train_sft(tiny_lm(tokenizer), data, config, seeded(1))
    assert not torch.equal(flat(two.model), flat(three.model))    # the order is the generator's
    losses = [row["loss"] for row in one.log.rows if "loss" in row]
    assert len(losses) == 12 and losses[-1] < losses[0] - .5
    assert [row["step"] for row in one.log.rows if "eval_loss" in row] == [0]
