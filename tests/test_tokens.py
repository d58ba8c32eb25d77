"Padding, masks, the shift, log-probs and masked means: what does not belong in the prose."
import math, pytest, torch
from types import SimpleNamespace
from torch import nn
from torch.testing import assert_close
from rlhf_nb.base.batches import (
    PreferencePairs, Rollout, concat_seqs, masked_mean_rows, masked_whiten, pad_and_eos, pad_left)
from rlhf_nb.base.logprobs import chunked_logprobs, hidden_logprobs
from rlhf_nb.tokens import (Seqs, last_token_index, make_seqs, masked_mean, masked_sum, pad_right,
    shift_right, token_logprobs)

PAD = 0

@pytest.fixture
def generator(): return torch.Generator().manual_seed(0)

@pytest.fixture
def seqs(): return make_seqs([[5, 6], [7], [8, 9, 3]], [[2, 1], [4, 2, 3, 1], []], PAD)

def special(pad, eos): return SimpleNamespace(pad_token_id=pad, eos_token_id=eos)

# padding and the data types
def test_padding_keeps_tokens_on_either_side():
    rows = [[4, 5, 6], [7], [8, 9]]
    right, left = pad_right(rows, PAD), pad_left(rows, PAD)
    for ids, mask in (right, left):
        assert ids.dtype == torch.long and mask.dtype == torch.bool
        assert [row[keep].tolist() for row, keep in zip(ids, mask)] == rows
        assert (ids[~mask] == PAD).all()
    assert right[1].int().diff(dim=1).le(0).all() and left[1].int().diff(dim=1).ge(0).all()

def test_padding_handles_empty_rows_and_other_pads():
    ids, mask = pad_right([[], [3]], pad=-1)
    assert ids.tolist() == [[-1], [3]] and mask.tolist() == [[False], [True]]
    ids, mask = pad_right([[], []], PAD)
    assert ids.shape == mask.shape == (2, 0) and ids.dtype == torch.long

def test_masks_cover_prompt_response_and_pads(seqs):
    assert seqs.ids.tolist() == [[5, 6, 2, 1, 0, ], [7, 4, 2, 3, 1], [8, 9, 3, 0, 0]]
    assert seqs.attention_mask.sum(1).tolist() == [4, 5, 3]
    assert seqs.response_mask.int().tolist() == [[0, 0, 1, 1, 0], [0, 1, 1, 1, 1], [0] * 5]

@pytest.mark.parametrize("rows", [slice(1, 3), [2, 0], torch.tensor([1, 1]),
                                  torch.tensor([True, False, True])])
def test_rows_move_together(seqs, rows):
    roll = Rollout(seqs, torch.arange(3), torch.rand(3, 5), torch.rand(3, 5), torch.arange(3.))
    got = roll[rows]
    assert type(got) is Rollout and type(got.seqs) is Seqs
    assert_close(got.seqs.ids, seqs.ids[rows])
    assert_close(got.logp, roll.logp[rows])
    assert got.group.tolist() == got.reward.long().tolist() and len(got) == len(got.reward)

def test_a_pair_is_as_long_as_its_longer_side(seqs):
    assert seqs.lengths().tolist() == [4, 5, 3]                # tokens, not columns
    assert PreferencePairs(seqs, seqs[[1, 2, 0]]).lengths().tolist() == [5, 5, 4]

def test_to_moves_every_field(seqs):
    meta = PreferencePairs(seqs, seqs).to("meta")
    assert {p.device.type for side in (meta.chosen, meta.rejected)
            for p in (side.ids, side.attention_mask, side.response_mask)} == {"meta"}

def test_trim_drops_only_columns_of_pads(seqs):
    assert seqs.trim().ids.shape == (3, 5)
    short = seqs[[2]].trim()
    assert short.ids.tolist() == [[8, 9, 3]] and not short.response_mask.any()

def test_concat_undoes_slicing(seqs):
    again = concat_seqs([seqs[i:i + 1].trim() for i in range(3)], PAD)
    for name in ("ids", "attention_mask", "response_mask"):
        assert_close(getattr(again, name), getattr(seqs, name))
    pads = concat_seqs([seqs[[2]].trim(), seqs], pad=77).ids[0]
    assert pads.tolist() == [8, 9, 3, 77, 77]

ERRORS = {
    "no rows": (lambda s: pad_right([], PAD), "at least one row"),
    "pad inside, right": (lambda s: pad_right([[1], [3, PAD, 2]], PAD), r"rows \[1\]"),
    "pad inside, left": (lambda s: pad_left([[1], [3, PAD, 2]], PAD), r"rows \[1\]"),
    "pad before a prompt": (lambda s: make_seqs([[PAD, 1]], [[3]], PAD), "stands inside"),
    "pad in a response": (lambda s: make_seqs([[1]], [[3, PAD]], PAD), "stands inside"),
    "too few responses": (lambda s: make_seqs([[1], [2]], [[3]], PAD), "2 prompts and 1"),
    "empty prompt": (lambda s: make_seqs([[1], []], [[3], [4]], PAD), r"prompts \[1\]"),
    "float mask": (lambda s: Seqs(s.ids, s.attention_mask.float(), s.response_mask), "bool"),
    "unequal shapes": (lambda s: Seqs(s.ids, s.attention_mask[:, :2], s.response_mask), "shape"),
    "a flat row": (lambda s: Seqs(s.ids[0], s.attention_mask[0], s.response_mask[0]), r"\(b t\)"),
    "uneven pairs": (lambda s: PreferencePairs(s, s[:2]), "3 and 2"),
    "nothing to join": (lambda s: concat_seqs([], PAD), "at least one batch"),
    "no pad": (lambda s: pad_and_eos(special(None, 1)), "pad_token"),
    "no eos": (lambda s: pad_and_eos(special(0, None)), "eos_token"),
    "pad is eos": (lambda s: pad_and_eos(special(1, 1)), "of its own"),
    "sliced logits": (lambda s: token_logprobs(torch.rand(3, 4, 9), s.ids), "unshifted"),
    "no chunk": (lambda s: chunked_logprobs(nn.Linear(2, 3), torch.rand(1, 2), torch.tensor([0]), 0),
                 "chunked_logprobs: chunk_size must be 1 or more, got 0"),
    "chunk below 0": (lambda s: chunked_logprobs(nn.Linear(2, 3), torch.rand(1, 2), torch.tensor([0]), -4),
                      "must be 1 or more, got -4"),
    "only pads": (lambda s: last_token_index(torch.tensor([[True], [False], [False]])), r"\[1, 2\]"),
    "mean of nothing": (lambda s: masked_mean(torch.rand(2), torch.zeros(2).bool()), "nothing"),
    "mask of numbers": (lambda s: masked_sum(torch.rand(2, 2), torch.ones(2, 2)), "bool"),
    "mask of another shape": (lambda s: masked_sum(torch.rand(2, 2), torch.ones(2).bool()), "shape"),
}

@pytest.mark.parametrize("case", ERRORS)
def test_errors_name_what_is_wrong(seqs, case):
    call, words = ERRORS[case]
    with pytest.raises(ValueError, match=words): call(seqs)

@pytest.mark.parametrize("call", [
    lambda s: pad_right([[1], [2]], .5), lambda s: pad_right([[1], [2]], None), lambda s: pad_left([[1], [2]], math.nan),
    lambda s: pad_right([[1], [2.5]], PAD), lambda s: make_seqs([[1.]], [[2]], PAD), lambda s: concat_seqs([s], .5),
    lambda s: chunked_logprobs(nn.Linear(2, 3), torch.rand(1, 2), torch.tensor([0]), 2.5),
    lambda s: chunked_logprobs(nn.Linear(2, 3), torch.rand(1, 2), torch.tensor([0]), math.nan)])
def test_what_is_no_whole_number_is_refused(seqs, call):
    "torch would cut off what stands behind the point, and say nothing."
    with pytest.raises(TypeError, match="whole number"): call(seqs)

@pytest.mark.parametrize("row", [0, -1])
def test_a_single_row_number_is_refused(seqs, row):
    with pytest.raises(TypeError, match="row axis"): seqs[row]

def test_zero_is_a_token_id_like_any_other():
    assert pad_and_eos(special(0, 1)) == (0, 1) and pad_and_eos(special(1, 0)) == (1, 0)

# the shift and the literal log-probs
def test_logprobs_equal_a_slow_loop(generator):
    logits = torch.randn(3, 6, 11, generator=generator)
    ids = torch.randint(11, (3, 6), generator=generator)
    got = token_logprobs(logits, ids)
    for b in range(3):
        assert got[b, 0] == 0
        for t in range(1, 6):
            probs = logits[b, t - 1].exp() / logits[b, t - 1].exp().sum()
            assert_close(got[b, t], probs[ids[b, t]].log())

def test_shift_right_keeps_dtype_and_gradient():
    x = torch.arange(6.).view(1, 3, 2).requires_grad_()
    shift_right(x)[0, 1].sum().backward()
    assert x.grad.tolist() == [[[1, 1], [0, 0], [0, 0]]]
    assert shift_right(torch.tensor([[True, False]])).dtype == torch.bool

@pytest.mark.parametrize("kind,out", [(torch.bfloat16, torch.float32), (torch.float16, torch.float32),
                                      (torch.float64, torch.float64)])
def test_half_precision_is_widened_and_double_kept(generator, kind, out):
    logits = torch.randn(2, 4, 300, generator=generator).to(kind)
    ids = torch.randint(300, (2, 4), generator=generator)
    got, (_, entropy) = token_logprobs(logits, ids), hidden_logprobs(nn.Identity(), logits[0], ids[0])
    want = token_logprobs(logits.double(), ids)
    assert got.dtype == entropy.dtype == out
    assert_close(got.double(), want, atol=1e-5, rtol=1e-5)

def test_entropy_gradient_survives_a_banned_word():
    logits = torch.tensor([[.3, -math.inf, .1], [0., 0., 0.]], requires_grad=True)
    hidden_logprobs(nn.Identity(), logits, torch.zeros(2).long())[1].sum().backward()
    assert logits.grad.isfinite().all() and logits.grad.abs().sum() > 0

# the head in chunks
class TwoPaths(nn.Module):
    "Like a head with a low-rank adapter: not a Linear, and its weight is frozen."
    def __init__(self, d, v):
        super().__init__()
        self.base, self.down, self.up = nn.Linear(d, v), nn.Linear(d, 2), nn.Linear(2, v)
        self.base.requires_grad_(False)
    def forward(self, x): return self.base(x) + self.up(self.down(x))

class Loud(nn.Linear):
    "A Linear that is none: adapters look like this."
    def forward(self, x): return 2 * super().forward(x)

HEADS = {"bias": lambda: nn.Linear(6, 13), "no bias": lambda: nn.Linear(6, 13, bias=False),
         "loud": lambda: Loud(6, 13), "adapter": lambda: TwoPaths(6, 13),
         "squashed": lambda: nn.Sequential(nn.Linear(6, 13), nn.Tanh())}

def head_and_rows(name, generator):
    torch.manual_seed(1)
    return HEADS[name]().double(), torch.randn(7, 6, generator=generator, dtype=torch.double, requires_grad=True)

def results(fn, head, x):
    logp, entropy = fn(head, x)
    weight = torch.linspace(-1, 2, len(x), dtype=x.dtype)
    loss = (weight * logp).sum()
    if entropy is not None: loss = loss + (weight**2 * entropy).sum()
    params = [p for p in head.parameters() if p.requires_grad]
    return [logp, *([] if entropy is None else [entropy]), *torch.autograd.grad(loss, [x, *params])]

@pytest.mark.parametrize("with_entropy", [True, False])
@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("chunk_size", [1, 4, 7, 50])
def test_chunks_equal_the_literal_form(generator, name, chunk_size, with_entropy):
    head, x = head_and_rows(name, generator)
    y = torch.randint(13, (7,), generator=generator)
    want = results(lambda h, x: hidden_logprobs(h, x, y, with_entropy), head, x)
    got = results(lambda h, x: chunked_logprobs(h, x, y, chunk_size, with_entropy), head, x)
    for a, b in zip(got, want, strict=True): assert_close(a, b)

@pytest.mark.parametrize("with_entropy", [True, False])
@pytest.mark.parametrize("name", HEADS)
def test_an_excluded_token_is_as_if_its_logit_were_minus_infinity(generator, name, with_entropy):
    head, x = head_and_rows(name, generator)
    y = torch.randint(12, (7,), generator=generator)
    y[y >= 5] += 1                                      # any token but 5
    def by_hand(head, x):
        logits = head(x)
        left = torch.cat([logits[:, :5], logits[:, 6:]], 1).log_softmax(-1)   # without 5
        logp = left.gather(1, (y - (y > 5).long())[:, None])[:, 0]
        return logp, -(left.exp() * left).sum(1) if with_entropy else None
    want = results(by_hand, head, x)
    for got in (results(lambda h, x: hidden_logprobs(h, x, y, with_entropy, 5), head, x),
                results(lambda h, x: chunked_logprobs(h, x, y, 3, with_entropy, 5), head, x)):
        for a, b in zip(got, want, strict=True): assert_close(a, b)

def test_large_logits_stay_finite():
    head = nn.Linear(1, 3, bias=False)
    with torch.no_grad(): head.weight.copy_(torch.tensor([[1e4], [-1e4], [0.]]))
    x = torch.ones(2, 1, requires_grad=True)
    logp, entropy = chunked_logprobs(head, x, torch.tensor([0, 1]), 1)
    assert_close(logp, torch.tensor([0., -2e4]))
    assert_close(entropy, torch.zeros(2))
    (logp.sum() + entropy.sum()).backward()
    assert x.grad.isfinite().all() and head.weight.grad.isfinite().all()

def test_a_word_banned_by_the_bias_gives_no_nan():
    head = nn.Linear(2, 4)
    with torch.no_grad(): head.bias[3] = -math.inf
    x = torch.randn(3, 2, requires_grad=True)
    logp, entropy = chunked_logprobs(head, x, torch.tensor([0, 1, 2]), 2)
    want = hidden_logprobs(head, x, torch.tensor([0, 1, 2]))
    assert_close((logp, entropy), want)
    (logp.sum() + entropy.sum()).backward()
    assert x.grad.isfinite().all()

def test_no_rows_give_no_numbers():
    logp, entropy = chunked_logprobs(TwoPaths(6, 13), torch.zeros(0, 6), torch.zeros(0).long(), 4)
    assert logp.shape == entropy.shape == (0,)

@pytest.mark.parametrize("head", ["bias", "adapter"])
def test_bf16_head_gives_fp32_numbers(generator, head):
    head = HEADS[head]().bfloat16()
    x = torch.randn(9, 6, generator=generator).bfloat16().requires_grad_()
    y = torch.randint(13, (9,), generator=generator)
    got = results(lambda h, x: chunked_logprobs(h, x, y, 4), head, x)
    want = results(lambda h, x: hidden_logprobs(h, x, y), head, x)
    assert got[0].dtype == torch.float32
    for a, b in zip(got[:2], want[:2]): assert_close(a, b)
    for a, b in zip(got[2:], want[2:]): assert_close(a, b, atol=.1, rtol=.05)

def test_dropout_in_a_head_is_the_same_going_back():
    head, x = nn.Sequential(nn.Dropout(.5), nn.Linear(6, 13)), torch.randn(8, 6, requires_grad=True)
    y = torch.zeros(8).long()
    torch.manual_seed(3)
    logp, _ = chunked_logprobs(head, x, y, 8)
    logp.sum().backward()
    torch.manual_seed(3)
    want, = torch.autograd.grad(hidden_logprobs(head, x, y)[0].sum(), x)
    assert_close(x.grad, want)

def test_cross_entropy_of_torch_agrees(generator):
    head, x = nn.Linear(6, 13), torch.randn(9, 6, generator=generator)
    y = torch.randint(13, (9,), generator=generator)
    want = -nn.functional.cross_entropy(head(x), y, reduction="none")
    assert_close(chunked_logprobs(head, x, y, 4)[0], want)

# masked sums, means, whitening
X = torch.tensor([[1., 2., 3., 6.], [8., math.nan, math.inf, math.nan]])
MASK = torch.tensor([[True] * 4, [True, False, False, False]])

def test_tokens_or_rows_weigh_the_same():
    assert masked_sum(X, MASK).tolist() == [12, 8]
    assert masked_mean(X, MASK) == 4
    assert masked_mean_rows(X, MASK).tolist() == [3, 8]
    none = torch.tensor([[True] * 4, [False] * 4])
    assert masked_mean_rows(X, none).tolist() == [3, 0] and masked_sum(X, none)[1] == 0

@pytest.mark.parametrize("fn", [masked_sum, masked_mean, masked_mean_rows, masked_whiten])
def test_what_is_masked_reaches_neither_value_nor_gradient(fn):
    x = X.clone().requires_grad_()
    out, clean = fn(x, MASK), fn(X.masked_fill(~MASK, 123.), MASK)
    assert_close(out, clean)
    weight = torch.linspace(1, 2, out.numel()).view(out.shape)
    (weight * out).sum().backward()
    assert x.grad.isfinite().all() and (x.grad[~MASK] == 0).all()
    assert torch.equal(x.detach().nan_to_num(), X.nan_to_num())          # left as it was

@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fn", [masked_sum, masked_mean, masked_mean_rows, masked_whiten])
def test_low_precision_is_computed_in_float32(fn, dtype, generator):
    x = (3 + torch.randn(4, 300, generator=generator)).to(dtype).requires_grad_()
    mask = torch.rand(4, 300, generator=generator) < .7
    got = fn(x, mask)
    assert got.dtype == torch.float32 and got.equal(fn(x.float(), mask))
    got.sum().backward()
    assert x.grad.dtype == dtype and (x.grad[~mask] == 0).all()
    assert fn(x.double(), mask).dtype == torch.float64

def test_whole_numbers_stay_whole():
    counts = torch.tensor([[2**24, 1], [3, 4]])
    assert masked_sum(counts, torch.ones(2, 2).bool()).tolist() == [2**24 + 1, 7]

def test_whitening():
    whitened = masked_whiten(X, MASK)[MASK]
    assert_close(whitened.mean(), torch.tensor(0.), atol=1e-6, rtol=0)
    assert_close(whitened.std(correction=0), torch.tensor(1.))
    kept = masked_whiten(X, MASK, shift_mean=False)[MASK]
    assert_close(kept - whitened, torch.full((5,), 4.))
    assert_close(masked_whiten(3 * X - 5, MASK)[MASK], whitened)            # scale, shift

def test_whitening_equal_numbers_gives_zero_not_noise():
    same = torch.full((3, 7), 7.1, requires_grad=True)
    whitened = masked_whiten(same, torch.ones(3, 7).bool())
    assert whitened.abs().max() < .02
    whitened.sum().backward()
    assert same.grad.isfinite().all()

# the last token
def slow_last(mask): return [max(i for i, on in enumerate(row) if on) for row in mask.tolist()]

def test_last_token_for_every_mask_of_five():
    masks = torch.cartesian_prod(*[torch.tensor([False, True])] * 5)[1:]
    assert last_token_index(masks).tolist() == slow_last(masks)
    assert last_token_index(masks.long()).tolist() == slow_last(masks)         # as tokenizers give it

def test_last_token_is_where_transformers_pools(generator):
    from transformers import GPTNeoXConfig, GPTNeoXForSequenceClassification
    torch.manual_seed(0)
    config = GPTNeoXConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, intermediate_size=16,
                           num_attention_heads=2, num_labels=1, pad_token_id=PAD)
    model = GPTNeoXForSequenceClassification(config).eval()
    ids, mask = pad_right([[4, 5, 6, 1], [7, 1], [8, 9, 3]], PAD)
    with torch.no_grad():
        want = model(input_ids=ids, attention_mask=mask.long()).logits[:, 0]
        states = model.gpt_neox(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        got = model.score(states)[..., 0].gather(1, last_token_index(mask)[:, None])[:, 0]
    assert_close(got, want)
