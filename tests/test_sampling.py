"Sampling: the same tokens as transformers, exact log-probs, fair samples. Each test can fail."
import copy, functools, math, random, pytest, torch, transformers as tf
from torch import nn
from torch.testing import assert_close
from transformers.generation.logits_process import (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)
from rlhf_nb.base.models import add_lora, frozen_copy, load_bundled, merge_adapters, tiny_lm
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.worlds.oracle import bigram_lm, micro_tokenizer, micro_world
from rlhf_nb.base.sampling import (SamplingParams, collect_rollout, filter_logits, generate, generate_many,
    check_sampler, in_batches, sample_step, sample_tokens, sampling_by, start_generation, static_decoding, _cached)
from rlhf_nb.base.batches import pad_left
from rlhf_nb.base.settings import describe_run
from rlhf_nb.run.stages import Stage, keys_of
from rlhf_nb.tokens import Seqs, pad_right, shift_right
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, train_grpo
from rlhf_nb.trainers.ppo_trainer import RLTask
from rlhf_nb.worlds.world_text import TRAIN, make_tokenizer, prompt_ids
from conftest import generate_uncached

TOK = make_tokenizer()
V, PAD, EOS = len(TOK), TOK.pad_token_id, TOK.eos_token_id
PROMPTS = [[7, 8, 9], [10], [11, 12, 13, 14, 15, 16], [8, 9], [20, 21, 22, 23]]
SMALL = dict(vocab_size=V, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
             intermediate_size=48, pad_token_id=PAD, eos_token_id=EOS, bos_token_id=None)
GREEDY = SamplingParams(12, temperature=0.)
def seeded(seed=0): return torch.Generator().manual_seed(seed)

def confident(model, eos=0.):
    "An untrained model with large weights, so that rows differ and some end."
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1: p.mul_(4)
        head = model.get_output_embeddings()
        head.bias = nn.Parameter(torch.zeros(V)); head.bias[EOS] = eos
    return model.eval()

def responses_of(seqs): return [ids[m].tolist() for ids, m in zip(seqs.ids, seqs.response_mask)]

def theirs(model, prompts, n, **sampling):
    "transformers' generate; pad is never sampled there either."
    ids, mask = pad_left(prompts, PAD)
    out = model.generate(ids, attention_mask=mask.long(), max_new_tokens=n, pad_token_id=PAD,
                         eos_token_id=EOS, suppress_tokens=[PAD], **sampling)[:, ids.shape[1]:]
    return [row[:row.index(EOS) + 1] if EOS in row else row for row in out.tolist()]

KINDS = {"neox": lambda: tiny_lm(TOK, seed=1), "llama": lambda: tiny_lm(TOK, "llama", 32, seed=1),
    "gpt2, learned positions": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(
        vocab_size=V, n_embd=32, n_layer=2, n_head=2, bos_token_id=None, eos_token_id=EOS)),
    "opt, positions from the mask": lambda: tf.OPTForCausalLM(tf.OPTConfig(
        vocab_size=V, hidden_size=32, word_embed_proj_dim=32, num_hidden_layers=1,
        num_attention_heads=2, ffn_dim=48, pad_token_id=PAD, eos_token_id=EOS)),
    "bloom, no positions": lambda: tf.BloomForCausalLM(tf.BloomConfig(
        vocab_size=V, hidden_size=32, n_layer=1, n_head=2, bos_token_id=None, eos_token_id=EOS)),
    "mistral, short window": lambda: tf.MistralForCausalLM(tf.MistralConfig(
        **SMALL, num_key_value_heads=1, sliding_window=4)),
    "gemma2, windows and tanh": lambda: tf.Gemma2ForCausalLM(tf.Gemma2Config(
        **SMALL, num_key_value_heads=1, head_dim=16, final_logit_softcapping=8., sliding_window=4))}

@pytest.mark.parametrize("kind", KINDS)
def test_greedy_is_that_of_transformers_and_of_the_literal_loop(kind):
    torch.manual_seed(0)
    model = confident(KINDS[kind](), eos=1.)
    seqs, logp = generate(model, PROMPTS, TOK, GREEDY, seeded())
    assert responses_of(seqs) == theirs(model, PROMPTS, 12, do_sample=False)
    slow, _ = generate_uncached(model, PROMPTS, TOK, GREEDY, seeded())
    assert torch.equal(seqs.ids, slow.ids)
    assert (logp == 0).all()                               # greedy is certain of itself

@pytest.mark.parametrize("sampling", [SamplingParams(12), SamplingParams(12, .6), SamplingParams(12, 1.3, 9),
    SamplingParams(12, .8, 0, .7), SamplingParams(12, 1.1, 30, .8)])
@pytest.mark.parametrize("kind", ["neox", "gpt2, learned positions"])
def test_cached_uncached_and_logprobs_of_what_was_sampled(kind, sampling):
    torch.manual_seed(0)
    model = confident(KINDS[kind](), eos=3.)
    seqs, logp = generate(model, PROMPTS * 4, TOK, sampling, seeded(3))
    slow, slow_logp = generate_uncached(model, PROMPTS * 4, TOK, sampling, seeded(3))
    assert torch.equal(seqs.ids, slow.ids)
    assert_close(logp, slow_logp, atol=1e-4, rtol=0)
    lengths = seqs.response_mask.sum(1)
    assert lengths.min() < 12 and len(lengths.unique()) > 2        # some ended early
    with torch.no_grad():                                          # by an independent route
        logits = model(input_ids=seqs.ids, attention_mask=seqs.attention_mask.long()).logits
    logits[..., PAD] = -torch.inf
    again = torch.stack([filter_logits(row, sampling) for row in logits])
    keep = seqs.response_mask
    want = again[:, :-1].gather(-1, seqs.ids[:, 1:, None])[..., 0]
    assert_close(logp[keep], want[keep[:, 1:]], atol=1e-4, rtol=0)
    assert (logp[~keep] == 0).all() and logp[keep].isfinite().all()

def test_stops_when_all_have_ended():
    model, calls = confident(tiny_lm(TOK), eos=1e3), []
    model.register_forward_hook(lambda *a: calls.append(1))
    seqs, logp = generate(model, PROMPTS, TOK, SamplingParams(40), seeded())
    assert len(calls) == 1 and responses_of(seqs) == [[EOS]] * 5
    assert_close(logp.sum(1), torch.zeros(5))

def test_finished_rows_leave_the_batch():
    model, sizes = confident(tiny_lm(TOK, seed=1), eos=3.), []
    model.register_forward_pre_hook(lambda m, args, kwargs: sizes.append(kwargs["input_ids"].shape), with_kwargs=True)
    seqs, _ = generate(model, PROMPTS * 4, TOK, SamplingParams(12), seeded())
    lengths = seqs.response_mask.sum(1)
    assert [n for n, _ in sizes] == [5] + [int((lengths >= s).sum()) for s in range(2, len(sizes) + 1)]
    assert [t for _, t in sizes] == [6] + [1] * (len(sizes) - 1)   # then one token each

@pytest.mark.parametrize("pad_logit", [-1e9, 0., 60., 1e9])
@pytest.mark.parametrize("sampling", [SamplingParams(8), SamplingParams(8, .7)])
@pytest.mark.parametrize("kind", ["neox", "llama", "gemma2, windows and tanh"])
def test_a_policy_against_itself_is_0_whatever_the_logit_of_pad(kind, sampling, pad_logit):
    torch.manual_seed(0)
    model = confident(KINDS[kind](), eos=2.)
    with torch.no_grad(): model.get_output_embeddings().bias[PAD] = pad_logit
    roll = collect_rollout(model, frozen_copy(model), PROMPTS * 3,
                           lambda s: torch.ones(len(s)), TOK, sampling, seeded(2))
    assert roll.logp.min() > -30 and roll.logp.isfinite().all()
    assert_close(roll.ref_logp, roll.logp, atol=2e-5, rtol=0)
    chunked = logprobs(model, roll.seqs, 1e-4, sampling.temperature).detach()
    assert_close(chunked, roll.logp, atol=2e-5, rtol=0)

def test_seeds():
    model, state = confident(tiny_lm(TOK, seed=1)), torch.get_rng_state()
    one, two, other = (generate(model, PROMPTS, TOK, SamplingParams(8), seeded(s))[0] for s in (1, 1, 2))
    assert torch.equal(one.ids, two.ids) and responses_of(one) != responses_of(other)
    g = seeded(1)
    first, second = (generate(model, PROMPTS, TOK, SamplingParams(8), g)[0] for _ in range(2))
    assert responses_of(first) == responses_of(one) != responses_of(second)  # it moves on
    assert torch.equal(state, torch.get_rng_state())
    g = seeded(1); before = g.get_state()
    generate(model, PROMPTS, TOK, GREEDY, g)
    assert torch.equal(before, g.get_state())                      # greedy needs no random numbers

def test_modes_weights_and_arguments_are_left_alone():
    model = confident(tiny_lm(TOK)).train(); model.lm_head.eval()
    prompts = copy.deepcopy(PROMPTS)
    for fn in (generate, generate_uncached): fn(model, prompts, TOK, SamplingParams(4), seeded())
    assert prompts == PROMPTS and model.training and not model.lm_head.training
    logits = torch.randn(2, 5); kept = logits.clone()
    filter_logits(logits, SamplingParams(1, .5, 2, .5))
    x = start_generation(nn.Linear(1, 1), [[2], [3]], (0, 1), SamplingParams(2), torch.rand(2, 2))
    sample_step(x, logits)
    assert torch.equal(logits, kept)

def test_bf16_and_double_models():
    model = confident(tiny_lm(TOK, seed=1), eos=1.)
    half = copy.deepcopy(model).bfloat16()
    seqs, logp = generate(half, PROMPTS, TOK, SamplingParams(8), seeded())
    assert logp.dtype == torch.float32
    assert_close(logp.sum(1), logprobs(half, seqs).sum(1), atol=.3, rtol=.05)
    _, logp = generate(copy.deepcopy(model).double(), PROMPTS, TOK, SamplingParams(8), seeded())
    assert logp.dtype == torch.float64

# --- filters and inverse-CDF sampling
def hf_filter(logits, sampling):
    "What transformers samples from."
    x = logits.clone()
    if sampling.temperature != 1: x = TemperatureLogitsWarper(sampling.temperature)(None, x)
    if sampling.top_k: x = TopKLogitsWarper(sampling.top_k)(None, x)
    if sampling.top_p < 1: x = TopPLogitsWarper(sampling.top_p)(None, x)
    return x.log_softmax(-1)

def test_filters_are_those_of_transformers():
    for seed in range(40):
        rng = random.Random(seed)
        sampling = SamplingParams(temperature=rng.choice([.3, .7, 1., 1.9]), top_k=rng.choice([0, 1, 5, 40]),
            top_p=rng.choice([.05, .3, .62, .9, 1.]))
        logits = 3 * torch.randn(6, 30, generator=seeded(seed))
        assert_close(filter_logits(logits, sampling), hf_filter(logits, sampling), atol=1e-5, rtol=1e-5)

def test_top_k_keeps_exactly_k_even_of_equals():
    for k in (1, 3, 7):
        kept = filter_logits(torch.zeros(2, 7), SamplingParams(top_k=k)).isfinite()
        assert kept.sum(1).tolist() == [k, k]
    assert filter_logits(torch.randn(2, 7), SamplingParams(top_k=99)).isfinite().all()

def test_greedy_is_one_hot_and_numbers_keep_their_width():
    logits = torch.randn(4, 9, generator=seeded())
    best = filter_logits(logits, SamplingParams(temperature=0.)).exp()
    assert torch.equal(best.argmax(-1), logits.argmax(-1)) and set(best.flatten().tolist()) == {0, 1}
    for sampling in (SamplingParams(), SamplingParams(temperature=.5, top_k=4, top_p=.6)):
        assert filter_logits(logits.bfloat16(), sampling).dtype == torch.float32
        assert filter_logits(logits.double(), sampling).dtype == torch.float64

INF, NAN = float("inf"), float("nan")

@pytest.mark.parametrize("name, value", [
    *(("max_new_tokens", x) for x in (0, -3, 2.5, 40.)), *(("top_k", x) for x in (-1, 1.5, True)),
    *(("temperature", x) for x in (-.1, NAN, INF, "hot", None)), *(("top_p", x) for x in (0., 1.1, NAN, "all"))])
def test_sampling_params_refuse(name, value):
    with pytest.raises((ValueError, TypeError), match=rf"SamplingParams\.{name} must be .*{value}"): SamplingParams(**{name: value})

def test_u_never_picks_a_token_of_probability_0():
    logp = torch.full((3, 6), -torch.inf)
    logp[0, 2] = logp[1, 5] = logp[2, 0] = 0.
    for u in (0., .5, 1 - 2**-24, 1.): assert sample_tokens(logp, torch.full((3,), u)).tolist() == [2, 5, 0]

def chi_square(seen, probs):
    expected = probs * seen.sum()
    assert expected.min() > 5
    x = ((seen - expected)**2 / expected).sum()
    return torch.special.gammaincc(torch.tensor((len(expected) - 1) / 2), x.float() / 2).item()

@pytest.mark.parametrize("sampling", [SamplingParams(3), SamplingParams(3, .8), SamplingParams(3, 1., 3),
                                 SamplingParams(3, 1., 0, .7)])
@pytest.mark.parametrize("fn", [generate, generate_uncached])
def test_samples_have_the_exact_distribution(sampling, fn):
    "All responses of the micro world, their probabilities multiplied out through the filter."
    world = micro_world()
    table, tok = bigram_lm(world), micro_tokenizer(world)
    logits = table(input_ids=world.seqs.ids, attention_mask=world.seqs.attention_mask).logits
    steps = torch.stack([filter_logits(row, sampling) for row in logits.detach()])
    logp = steps[:, :-1].gather(-1, world.seqs.ids[:, 1:, None])[..., 0]
    probs = logp.masked_fill(~world.seqs.response_mask[:, 1:], 0.).sum(1).exp()
    assert abs(probs.sum() - 1) < 1e-9
    n = 6000
    seqs, got_logp = fn(table, [[world.start]] * n, tok, sampling, seeded(2))
    index = {response: i for i, response in enumerate(world.responses())}
    drawn = torch.tensor([index[tuple(tokens)] for tokens in responses_of(seqs)])
    assert_close(got_logp.sum(1), probs.log()[drawn])
    seen, rare = drawn.bincount(minlength=len(probs)).double(), probs * n < 6
    pool = lambda x: torch.cat([x[~rare], x[rare].sum()[None]]) if probs[rare].sum() * n > 6 else x[~rare]
    assert chi_square(pool(seen), pool(probs)) > 1e-3

# --- logits that are no numbers
class Broken(nn.Module):
    "A language model whose logits for one prompt token turn into `value` after n columns."
    def __init__(self, n, value):
        super().__init__()
        self.model, self.n, self.value = tiny_lm(TOK, seed=1), n, value
        self.config = self.model.config
    def forward(self, input_ids, attention_mask=None, **more):
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, **more)
        seen = attention_mask.sum(1) if attention_mask is not None else input_ids.shape[1]
        hit = (input_ids[:, :1] == 50).any(1) & (seen >= self.n)
        out.logits[hit] = self.value
        return out

@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("sampling", [SamplingParams(6), SamplingParams(6, 0.), SamplingParams(6, .7, 5, .9)])
def test_logits_that_are_no_numbers_are_refused_by_row_and_step(sampling, value):
    model = Broken(5, value)                            # literal loop: prompt of 3, step 2
    prompts = [[7, 8, 9], [50, 8, 9], [7]]
    with pytest.raises(ValueError, match=r"logits of row 1 \(and of 0 more\) at step 2 hold nan, \+inf or nothing but -inf"):
        generate(model, prompts, TOK, sampling, seeded())

def test_generate_many_names_the_row_of_its_caller():
    prompts = [[7] * 9, [8] * 4, [50, 8], [9] * 7, [7], [8, 7, 7]]      # sorted: row 1 of 2
    with pytest.raises(ValueError, match="logits of row 2 .* at step 0"):
        generate_many(Broken(2, NAN), prompts, TOK, SamplingParams(3), seeded(), 2)

@pytest.mark.parametrize("sampling", [SamplingParams(6), SamplingParams(6, 0.), SamplingParams(6, 1., 2, .9)])
def test_minus_infinity_is_a_legal_logit(sampling):
    model = confident(tiny_lm(TOK))
    with torch.no_grad():
        model.lm_head.bias[:] = -INF
        model.lm_head.bias[[20, 30]] = 0.
    seqs, logp = generate(model, PROMPTS, TOK, sampling, seeded())
    assert {i for row in responses_of(seqs) for i in row} <= {20, 30} and logp.isfinite().all()

# --- too long
@pytest.mark.parametrize("fn", [generate, generate_uncached, generate_many])
@pytest.mark.parametrize("kind", ["neox", "gpt2, learned positions"])
def test_prompts_that_leave_no_room_are_refused_before_anything_is_generated(kind, fn):
    model, calls = KINDS[kind](), []
    model.register_forward_hook(lambda *a: calls.append(1))
    prompts = [[7] * 5, [8] * 1020, [9]]
    with pytest.raises(ValueError, match="rows of 1025 tokens are too long for a model with 1024 "
                       "positions: prompt 1 has 1020 and max_new_tokens is 5"):
        fn(model, prompts, TOK, SamplingParams(5), seeded())
    assert not calls
    seqs, _ = fn(model, prompts[1:2], TOK, SamplingParams(4), seeded())       # just fits
    assert seqs.ids.shape[1] <= 1024
    assert logprobs(model, seqs).isfinite().all()

def test_a_model_that_names_no_number_of_positions_takes_any_row():
    seqs, _ = generate(KINDS["bloom, no positions"](), [[7] * 3000], TOK, SamplingParams(2), seeded())
    assert seqs.ids.shape[1] >= 3001

# --- many prompts, batches, rollouts
def test_generate_many_keeps_order_whatever_the_batch():
    model = confident(tiny_lm(TOK, seed=1), eos=2.)
    prompts = [PROMPTS[i % 5][:1 + i % 4] for i in range(23)]
    want, want_logp = generate(model, prompts, TOK, SamplingParams(7), seeded(3))
    for size in (1, 4, 23, 100):
        seqs, logp = generate_many(model, prompts, TOK, SamplingParams(7), seeded(3), size)
        assert torch.equal(seqs.ids, want.ids)
        assert torch.equal(seqs.response_mask, want.response_mask)
        assert_close(logp, want_logp, atol=1e-4, rtol=0)

def test_generate_many_reads_similar_lengths_together():
    model, widths = confident(tiny_lm(TOK), eos=1e3), []
    model.register_forward_pre_hook(
        lambda m, args, kwargs: widths.append(kwargs["input_ids"].shape[1]), with_kwargs=True)
    generate_many(model, [[5] * n for n in (9, 1, 8, 2, 1, 9)], TOK, SamplingParams(3), seeded(), 2)
    assert widths == [1, 8, 9]

def test_progress_bar_only_when_asked(capfd):
    model = confident(tiny_lm(TOK), eos=5.)
    generate_many(model, PROMPTS, TOK, SamplingParams(3), seeded(), 2)
    assert capfd.readouterr().err == ""
    generate_many(model, PROMPTS, TOK, SamplingParams(3), seeded(), 2, progress=True)
    assert "/5" in capfd.readouterr().err

def test_in_batches_reads_similar_lengths_together():
    seqs, widths = ragged(seeded(), 15), []
    got = in_batches(lambda p: widths.append(p.ids.shape[1]) or p.ids.amax(1), seqs, 4)
    assert torch.equal(got, seqs.ids.amax(1)) and widths == sorted(widths) and widths[0] < widths[-1]

def ragged(generator, b=9, t=14):
    "Rows padded on both sides, by different amounts; ids of pads are the pad."
    left, right = (torch.randint(0, t // 2, (b,), generator=generator) for _ in range(2))
    column = torch.arange(t)
    mask = (column >= left[:, None]) & (column < t - right[:, None])
    ids = torch.randint(3, V, (b, t), generator=generator).masked_fill(~mask, PAD)
    return Seqs(ids, mask, mask & (column >= left[:, None] + 1))

@pytest.mark.parametrize("size", [1, 2, 3, 50])
@pytest.mark.parametrize("layout", ["left", "both sides", "right"])
def test_in_batches_puts_columns_back_where_their_tokens_stand(layout, size):
    x = ragged(seeded(size))
    if layout != "both sides":                          # push every row to one edge
        rows = [row[m].tolist() for row, m in zip(x.ids, x.attention_mask)]
        ids, mask = (pad_left if layout == "left" else pad_right)(rows, PAD)
        x = Seqs(ids, mask, mask & shift_right(mask))       # the first token is a prompt
    value = (x.ids * 10.).masked_fill(~x.attention_mask, 0.)
    got = in_batches(lambda p: (p.ids * 10.).masked_fill(~p.attention_mask, 0.), x, size)
    assert torch.equal(got, value)
    model = confident(KINDS["bloom, no positions"]())       # its positions count real tokens
    with torch.no_grad():
        assert_close(in_batches(lambda p: logprobs(model, p), x, size), logprobs(model, x), atol=1e-4, rtol=0)

def test_in_batches_lets_gradients_through():
    x, weight = ragged(seeded()), torch.ones(V, requires_grad=True)
    out = in_batches(lambda p: weight[p.ids] * p.attention_mask, x, 2)
    out.sum().backward()
    assert_close(weight.grad, x.ids[x.attention_mask].bincount(minlength=V).float())

def test_collect_rollout_fills_every_field():
    policy = confident(tiny_lm(TOK, seed=1), eos=2.).train()
    ref, seen = confident(tiny_lm(TOK, seed=2), eos=2.), []
    def reward_fn(seqs):
        seen.append(len(seqs))
        return seqs.response_mask.sum(1)                           # long, not float: legal
    roll = collect_rollout(policy, ref, PROMPTS, reward_fn, TOK, SamplingParams(8), seeded(5),
                           num_generations=3, batch_size=4)
    assert seen == [15] and len(roll) == 15 and policy.training
    assert roll.group.tolist() == [i for i in range(5) for _ in range(3)]
    for row, i in enumerate(roll.group.tolist()):
        n = len(PROMPTS[i])
        assert roll.seqs.ids[row, :n].tolist() == PROMPTS[i]
        assert not roll.seqs.response_mask[row, :n].any()
    assert_close(roll.reward, roll.seqs.response_mask.sum(1).float())
    assert_close(roll.ref_logp, logprobs(ref, roll.seqs).detach(), atol=1e-4, rtol=0)
    direct, logp = generate(policy, [p for p in PROMPTS for _ in range(3)], TOK, SamplingParams(8), seeded(5))
    assert torch.equal(roll.seqs.ids, direct.ids)
    assert_close(roll.logp, logp, atol=1e-4, rtol=0)
    assert not (roll.logp.requires_grad or roll.ref_logp.requires_grad)

def test_with_lora_the_reference_is_the_model_without():
    base = confident(tiny_lm(TOK, seed=1), eos=2.)
    lora = add_lora(copy.deepcopy(base))
    with torch.no_grad():
        for name, p in lora.named_parameters():
            if "lora_B" in name: p.normal_(std=.2, generator=seeded())
    roll = collect_rollout(lora, lora, PROMPTS, lambda s: torch.ones(len(s)), TOK, SamplingParams(8), seeded())
    assert_close(roll.ref_logp, logprobs(base, roll.seqs).detach(), atol=1e-4, rtol=0)
    assert (roll.logp - roll.ref_logp).abs().max() > .1
    assert_close(logprobs(lora, roll.seqs).detach(), roll.logp, atol=.02, rtol=0)  # on again

def test_policy_and_reference_run_without_dropout():
    torch.manual_seed(0)
    policy, ref = (confident(KINDS["gpt2, learned positions"]()).train() for _ in range(2))
    for model in (policy, ref): model.config.pad_token_id = TOK.pad_token_id
    one, two = (collect_rollout(policy, ref, PROMPTS, lambda s: torch.ones(len(s)), TOK, SamplingParams(4), seeded()) for _ in range(2))
    assert torch.equal(one.logp, two.logp) and torch.equal(one.ref_logp, two.ref_logp) and ref.training

def test_errors():
    model, none, params = tiny_lm(TOK), copy.deepcopy(TOK), (TOK, SamplingParams(3), seeded())
    none.pad_token = None
    def rollout(reward_fn): return collect_rollout(model, model, PROMPTS, reward_fn, *params)
    for call, words in ((lambda: generate(model, [[5], []], *params), r"\[1\] are empty"),
            (lambda: generate(model, [], *params), "list is empty"), (lambda: generate_many(model, [], *params), "list is empty"),
            (lambda: generate(model, [[5, PAD, 6]], *params), "rows \\[0\\]"),
            (lambda: generate(model, [[5]], none, *params[1:]), "pad"),
            (lambda: rollout(lambda s: s.response_mask.float()), "one number per row"),
            (lambda: rollout(lambda s: torch.ones(2)), "one number per row"),
            (lambda: rollout(lambda s: torch.ones(len(s), 1)), "one number per row"),
            (lambda: rollout(lambda s: 1.), "one number per row")):
        with pytest.raises(ValueError, match=words): call()

# ---- prompts that rows share
@pytest.mark.parametrize("kind", KINDS)
def test_a_shared_prompt_is_read_once_and_changes_no_answer(kind, monkeypatch):
    model, read = confident(KINDS[kind]()), []
    rows = [PROMPTS[i] for i in (0, 0, 1, 2, 2, 2, 0, 1)]         # ragged, not in order
    forward = model.forward
    @functools.wraps(forward)
    def counted(*args, input_ids=None, **kwargs):
        read.append(tuple(input_ids.shape))
        return forward(*args, input_ids=input_ids, **kwargs)
    for sampling in (SamplingParams(8), SamplingParams(8, temperature=0.)):
        read.clear()
        with monkeypatch.context() as m:
            m.setattr(model, "forward", counted)
            fast, logp = generate(model, rows, TOK, sampling, seeded(3))
        assert read[0] == (3, 6) and all(n <= len(rows) and t == 1 for n, t in read[1:])
        slow, slow_logp = generate_uncached(model, rows, TOK, sampling, seeded(3))
        assert torch.equal(fast.ids, slow.ids)
        assert_close(logp, slow_logp, atol=1e-4, rtol=0)

def test_a_shared_prompt_where_a_row_ends_at_its_first_token():
    "Three prompts, four rows; where one row ends at once, three go on, and they are not the three prompts."
    model, ended = confident(tiny_lm(TOK, seed=1), eos=14.), 0
    rows = [PROMPTS[0], PROMPTS[0], PROMPTS[1], PROMPTS[3]]
    for seed in range(20):
        fast, slow = (fn(model, rows, TOK, SamplingParams(6, temperature=3.), seeded(seed))[0]
                      for fn in (generate, generate_uncached))
        assert torch.equal(fast.ids, slow.ids), seed
        ended += sum(len(row) == 1 for row in responses_of(fast)) == 1
    assert ended

# --- fixed shapes, for a compiler
@pytest.fixture
def compiled(monkeypatch):
    "Shapes that were handed to a compiled step; the compiler itself is left out."
    shapes = []
    def fake(model, dynamic=None):
        assert dynamic is False
        def step(**inputs):
            shapes.append({k: tuple(v.shape) for k, v in inputs.items() if isinstance(v, torch.Tensor)})
            return model(**inputs)
        return step
    monkeypatch.setattr(torch, "compile", fake)
    return shapes

@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(12), SamplingParams(12, .8, 9)], ids=["greedy", "1", "filtered"])
@pytest.mark.parametrize("kind", [k for k in KINDS if k != "bloom, no positions"])
def test_fixed_shapes_sample_the_same(kind, sampling, compiled):
    lengths = set()
    for eos in (1., 3., 6.):
        torch.manual_seed(0)
        model = confident(KINDS[kind](), eos)
        want, want_logp = generate(model, PROMPTS * 2, TOK, sampling, seeded(3))
        with static_decoding(): seqs, logp = generate(model, PROMPTS * 2, TOK, sampling, seeded(3))
        assert torch.equal(seqs.ids, want.ids) and torch.equal(seqs.response_mask, want.response_mask)
        assert_close(logp, want_logp, atol=1e-4, rtol=0)
        lengths |= set(want.response_mask.sum(1).tolist())
    assert len(lengths) > 1 and all(x == compiled[0] for x in compiled)             # one shape, whatever the step
    assert compiled[0]["input_ids"] == (10, 1) and compiled[0]["attention_mask"] == (10, 32 + 12)

def test_fixed_shapes_stop_when_all_rows_have_ended(compiled):
    model = confident(tiny_lm(TOK, seed=1), eos=1e4)
    with static_decoding(): seqs, _ = generate(model, PROMPTS, TOK, SamplingParams(12), seeded())
    assert seqs.response_mask.sum(1).tolist() == [1] * 5 and not compiled

def test_fixed_shapes_with_lora_and_outside_their_context(compiled):
    lora = add_lora(confident(tiny_lm(TOK, seed=1), eos=1.))
    want, _ = generate(lora, PROMPTS, TOK, SamplingParams(8), seeded())
    assert not compiled
    with static_decoding(): got, _ = generate(lora, PROMPTS, TOK, SamplingParams(8), seeded())
    assert torch.equal(got.ids, want.ids) and compiled
    compiled.clear()
    with static_decoding(False): generate(lora, PROMPTS, TOK, SamplingParams(8), seeded())
    generate_many(lora, PROMPTS, TOK, SamplingParams(8), seeded())
    assert not compiled

def test_a_family_without_fixed_shapes_says_so():
    model = confident(tiny_lm(TOK, seed=1))
    model._can_compile_fullgraph = False
    with static_decoding(), pytest.raises(ValueError, match="GPTNeoXForCausalLM cannot decode in fixed shapes"):
        generate(model, PROMPTS, TOK, GREEDY, seeded())

def test_the_real_compiler_makes_one_graph_for_many_steps_and_batches(monkeypatch):
    "dynamo and its guards, with a backend that runs the graph as it is: no C++ compiler is needed."
    graphs, real = [], torch.compile
    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward
    monkeypatch.setattr(torch, "compile", lambda model, dynamic: real(model, dynamic=dynamic, backend=backend))
    model = confident(tiny_lm(TOK, "llama", 32, seed=1), eos=-9.)
    for seed in range(2):
        with static_decoding(): got, _ = generate(model, PROMPTS, TOK, SamplingParams(6), seeded(seed))
        want, _ = generate(model, PROMPTS, TOK, SamplingParams(6), seeded(seed))
        assert torch.equal(got.ids, want.ids)
    assert len(graphs) == 1

# --- another program samples
class Outside: # a sampler with a copy of the model
    def __init__(self, model): self.model, self.calls = frozen_copy(merge_adapters(model)), []
    def load(self, model): self.model.load_state_dict(merge_adapters(model).state_dict())
    def draw(self, x): return _cached(self.model, x)
    def __call__(self, model, x): # as `sampling_by` asks for it
        self.calls.append(len(x.prompts))
        self.load(model)
        seqs, logp = self.draw(start_generation(self.model, x.prompts, x.special, x.sampling, x.uniforms))
        return responses_of(seqs), [row[m].tolist() for row, m in zip(logp, seqs.response_mask)]

class Raw(Outside):
    def draw(self, x): return (seqs := super().draw(x)[0]), logprobs(self.model, seqs)
class Old(Outside):
    def load(self, model): pass
class Greedy(Outside): # its log-probs are true, and it never draws
    def draw(self, x):
        x.uniforms = torch.zeros_like(x.uniforms)
        return super().draw(x)
class Restless(Outside):
    def draw(self, x):
        x.uniforms = torch.rand(x.uniforms.shape, generator=seeded(len(self.calls)))
        return super().draw(x)

@pytest.fixture
def sampled():
    model, tokenizer = load_bundled("sft")
    return model, tokenizer, [prompt_ids(tokenizer, q) for q in TRAIN[:5]]

def test_rows_end_at_eos_and_keep_their_order(sampled):
    model, tokenizer, _ = sampled
    eos, asked = tokenizer.eos_token_id, []
    def sampler(model, x): # batches are sorted by length
        asked.append(x.prompts)
        return [[7, 8, eos, 9], [eos], [5] * 4], [[-1., -2., -3., -9.], [-4.], [-.5] * 4]
    with sampling_by(sampler, model):
        seqs, logp = generate_many(model, [[1, 2], [1], [1, 2, 3]], tokenizer, SamplingParams(4), seeded())
        generate_many(frozen_copy(model), [[1]], tokenizer, SamplingParams(4), seeded())       # of another model nothing is asked
    generate_many(model, [[1]], tokenizer, SamplingParams(4), seeded())                          # nor outside
    assert asked == [[[1], [1, 2], [1, 2, 3]]] and responses_of(seqs) == [[eos], [7, 8, eos], [5] * 4]
    assert [row[m].tolist() for row, m in zip(logp, seqs.response_mask)] == [[-4.], [-1., -2., -3.], [-.5] * 4]

@pytest.mark.parametrize("kind, words", [(Outside, ""), (Raw, "after the temperature"), (Old, "once weights have changed"),
    (Restless, "one seed gives different rows"), (Greedy, "came 0 times|came 100 times in 100")])
@pytest.mark.parametrize("lora_r", [0, 2])
def test_check_sampler_passes_a_right_one_finds_faults_and_leaves_the_weights(kind, words, lora_r, sampled):
    model, tokenizer, prompts = sampled
    if lora_r: model = add_lora(model, lora_r)
    for name, p in model.named_parameters():
        if "lora_B" in name: torch.nn.init.normal_(p, std=.05, generator=seeded(1))
    before = [p.clone() for p in model.parameters()]
    with sampling_by(kind(model), model):
        if not words: check_sampler(model, tokenizer, prompts, n=100)
        else:
            with pytest.raises(ValueError, match=words): check_sampler(model, tokenizer, prompts, n=100)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))

def test_grpo_learns_from_another_program(sampled):
    model, tokenizer, prompts = sampled
    ref, outside = frozen_copy(model), Outside(model)
    task = RLTask(prompts, lambda seqs: (seqs.ids == 7).sum(1).float(), tokenizer, SamplingParams(6))
    config = GRPOConfig(n_iterations=2, n_prompts=3, num_generations=4, num_iterations=1, micro_batch_size=12)
    with sampling_by(outside, model): trainer = train_grpo(model.requires_grad_(), ref, task, config, seeded())
    rows = [row for row in trainer.log.rows if "iteration" in row]
    assert outside.calls == [12] * 2 and [row["clip_ratio/region_mean"] for row in rows] == [0., 0.]
    assert rows[0]["objective/kl"] == pytest.approx(0, abs=1e-4) != rows[1]["objective/kl"]

def without_the_third(logits): # a filter that takes one token out and changes another
    logits[:, 2] = -torch.inf
    logits[:, 0] += 1.
    return logits

def test_a_filter_of_your_own_is_sampled_from_and_its_log_probs_are_exact():
    world = micro_world()
    model, tokenizer = bigram_lm(world), micro_tokenizer(world)
    settings = SamplingParams(4, temperature=.7, logits_filter=without_the_third)
    seqs, logp = generate(model, [[world.start]] * 3000, tokenizer, settings, seeded())
    for row, mask, got in zip(seqs.ids[:20], seqs.response_mask[:20], logp):
        for t in mask.nonzero().flatten().tolist():
            x = model(input_ids=row[None, :t], attention_mask=None).logits[0, -1].clone()
            x[world.pad], x[2], x[0] = -torch.inf, -torch.inf, x[0] + 1.
            assert_close(got[t], (x / .7).log_softmax(-1)[row[t]])
    assert not (seqs.ids == 2).any()
    want = model(input_ids=torch.tensor([[world.start]]), attention_mask=None).logits[0, -1]
    want = filter_logits(want.masked_fill(torch.arange(len(want)) == world.pad, -torch.inf)[None], settings)[0].exp()
    seen = torch.bincount(seqs.ids[:, 1], minlength=len(want)) / 3000
    assert ((seen - want).abs() < 4 * (want * (1 - want) / 3000).sqrt() + 1e-9).all()

def test_a_filter_comes_first_also_before_the_argmax_and_brings_nothing_back():
    x = torch.tensor([[2., 1., 0., -torch.inf]])
    def forbid(logits): return torch.where(torch.arange(4) == 0, -torch.inf, logits.clamp(min=-5.))
    for settings, want in ((dict(temperature=0.), [0., 1., 0., 0.]), (dict(top_k=1), [0., 1., 0., 0.]),
                           (dict(), [0., math.e / (1 + math.e), 1 / (1 + math.e), 0.])):
        assert_close(filter_logits(x, SamplingParams(logits_filter=forbid, **settings)).exp(), torch.tensor([want]))
    assert x[0, 0] == 2                                                     # what came in stays as it was

@pytest.mark.parametrize("fn,words", [(lambda x: x[:, :2], r"shape \(1, 3\), got \(1, 2\)"), (lambda x: None, "got None"),
    (lambda x: x * torch.nan, "nan, .inf or nothing"), (lambda x: x - torch.inf, "rows .0."), (lambda x: x + torch.inf, "rows .0.")])
def test_a_filter_that_gives_no_logits_is_refused(fn, words):
    with pytest.raises(ValueError, match=words): filter_logits(torch.tensor([[1., 2., 3.]]), SamplingParams(logits_filter=fn))

def test_a_filter_is_part_of_a_run_and_no_word_of_a_command_or_another_program():
    said = describe_run(dict(config=SamplingParams(logits_filter=without_the_third)))
    assert said["config.logits_filter"].endswith("test_sampling.without_the_third")
    assert describe_run(dict(config=SamplingParams()))["config.logits_filter"] != said["config.logits_filter"]
    for method in ("self_reward", "rdpo"):
        assert "top_k" in keys_of(method) and "logits_filter" not in keys_of(method)
        with pytest.raises(ValueError, match="no key 'logits_filter'"): Stage(method, dict(data="x", logits_filter="a:b"))
    model = tiny_lm(TOK)
    with sampling_by(lambda model, x: ([], []), model), pytest.raises(ValueError, match="no logits_filter"):
        generate(model, PROMPTS, TOK, SamplingParams(3, logits_filter=without_the_third), seeded())
