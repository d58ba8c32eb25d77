"Models: parity with transformers, every odd kind of model, errors. Each test can fail."
import ast, copy, inspect, json, logging as std_logging, random, re, shutil, pytest, torch, transformers as tf
from torch import nn
from torch.testing import assert_close
from rlhf_nb.base import models
from rlhf_nb.base.models import Placement, ScalarModel, adapters_disabled, add_lora, choose_placement, eval_mode, frozen_copy, load_bundled, load_lm, load_reward_model, load_tokenizer, merge_adapters, save_reward_model, tiny_lm, to_classifier, unwrap_model
from rlhf_nb.base.settings import weight_hash
from rlhf_nb.base.logprobs import logprobs, logprobs_and_entropy
from rlhf_nb.tokens import Seqs, last_token_index, make_seqs, shift_right, token_logprobs
from rlhf_nb.worlds.world_text import TEST, demonstrations, make_tokenizer

TOK = make_tokenizer()
V, PAD, EOS = len(TOK), TOK.pad_token_id, TOK.eos_token_id
SEQS = demonstrations(TOK, TEST[:5], 5, random.Random(0))
X = dict(input_ids=SEQS.ids, attention_mask=SEQS.attention_mask.long())
SMALL = dict(vocab_size=V, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
             intermediate_size=48, pad_token_id=PAD, eos_token_id=EOS, bos_token_id=None)

def no_pad(model, logits):
    "Where the config names a pad it takes no probability, as in sampling."
    pad = unwrap_model(model).config.pad_token_id
    return logits if pad is None else logits.index_fill(-1, torch.tensor(pad), -torch.inf)

def literal(model):
    logits = no_pad(model, model(**X).logits)
    logp = logits.log_softmax(-1)
    entropy = -(logp.exp() * logp.masked_fill(logp.isinf(), 0.)).sum(-1)
    return tuple(x.masked_fill(~SEQS.response_mask, 0.) for x in (token_logprobs(logits, SEQS.ids), shift_right(entropy)))

def with_bias(model):
    model.lm_head.bias = nn.Parameter(torch.randn(V))
    return model

def warm(peft): # adapters as after some training, no zeros
    for name, p in peft.named_parameters():
        if "lora_B" in name: nn.init.normal_(p, std=.1)
    return peft

def lora(model): return warm(add_lora(model, 4))
def lora_on_head(model):
    from peft import LoraConfig, get_peft_model
    return warm(get_peft_model(model, LoraConfig(r=2, target_modules=["lm_head", "dense"])))

KINDS = {"neox": lambda: tiny_lm(TOK), "llama": lambda: tiny_lm(TOK, "llama", 32),
    "bias in the head": lambda: with_bias(tiny_lm(TOK)), "lora": lambda: lora(tiny_lm(TOK)),
    "lora, head too": lambda: lora_on_head(tiny_lm(TOK)), "gpt2, tied head": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(
        vocab_size=V, n_embd=32, n_layer=1, n_head=2, bos_token_id=None, eos_token_id=EOS)),
    "gemma2, tanh after the head": lambda: tf.Gemma2ForCausalLM(tf.Gemma2Config(
        **SMALL, num_key_value_heads=1, head_dim=16, final_logit_softcapping=2.)),
    "bert, head with a transform": lambda: tf.BertLMHeadModel(tf.BertConfig(**SMALL, is_decoder=True)),
    "bert, looks both ways": lambda: tf.BertLMHeadModel(tf.BertConfig(**SMALL))}

@pytest.mark.parametrize("kind", KINDS)
def test_logprobs_are_the_literal_ones(kind):
    torch.manual_seed(0)
    model = KINDS[kind]().eval()
    want = literal(model)
    for budget in (64., 1e-4):
        got = logprobs_and_entropy(model, SEQS, budget)
        assert_close(got, want, atol=2e-5, rtol=1e-5)
        assert_close(logprobs(model, SEQS, budget), want[0], atol=2e-5, rtol=1e-5)

@pytest.mark.parametrize("kind", ["neox", "lora, head too", "gpt2, tied head",
                                  "gemma2, tanh after the head", "bias in the head"])
def test_gradients_are_the_literal_ones(kind):
    torch.manual_seed(0)
    model = KINDS[kind]().eval()
    params = [p for p in model.parameters() if p.requires_grad]
    weigh = torch.randn(SEQS.ids.shape)
    def grads(logp, entropy):
        return torch.autograd.grad((weigh * logp).sum() + .3 * (weigh * entropy).sum(), params)
    want = grads(*literal(model))
    for budget in (64., 1e-4):
        assert_close(grads(*logprobs_and_entropy(model, SEQS, budget)), want, atol=2e-4, rtol=2e-4)

def test_the_head_runs_on_response_positions_only():
    model, seen = tiny_lm(TOK), []
    model.get_output_embeddings().register_forward_hook(lambda m, args, out: seen.append(args[0].shape[:-1].numel()))
    logprobs(model, SEQS)                       # first: the test whether head is all
    seen.clear()
    logprobs(model, SEQS)
    assert seen == [int(SEQS.response_mask.sum())]

def test_above_the_budget_no_big_tensor_is_made():
    model, largest = tiny_lm(TOK), []
    class SeeShapes(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, fn, types, args=(), kwargs=None):
            out = fn(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.shape[-1:] == (V,):
                largest.append(out.numel() * out.element_size())
            return out
    n_bytes = int(SEQS.response_mask.sum()) * V * 4
    for budget, fits in ((n_bytes / 2**20 * 2, True), (n_bytes / 2**20 / 4, False)):
        logprobs(model, SEQS, budget)
        largest.clear()
        model.lm_head = nn.Sequential(model.lm_head) if type(model.lm_head) is nn.Linear \
            else model.lm_head                  # any module: the chunks are visible here
        with SeeShapes(): logprobs(model, SEQS, budget)
        assert (max(largest) >= n_bytes) == fits
        assert max(largest) <= budget * 2**20

def test_empty_responses():
    model, seqs = tiny_lm(TOK), make_seqs([[5, 6], [7]], [[], [8, EOS]], PAD)
    got = logprobs(model, seqs)
    assert (got[0] == 0).all() and (got[1, 1:] != 0).all()
    none = make_seqs([[5, 6]], [[]], PAD)
    logp, entropy = logprobs_and_entropy(model, none)
    assert logp.tolist() == entropy.tolist() == [[0., 0.]]
    logp.sum().backward()                                  # legal, and moves nothing

def test_a_response_without_a_prompt_starts_unscored():
    model, ids = tiny_lm(TOK), torch.tensor([[5, 6, EOS]])
    seqs = Seqs(ids, torch.ones_like(ids, dtype=torch.bool), torch.ones_like(ids, dtype=torch.bool))
    assert_close(logprobs(model, seqs), token_logprobs(no_pad(model, model(input_ids=ids).logits), ids))

def test_bf16_weights_and_autocast_give_float32_near_the_float32_answer():
    model = tiny_lm(TOK)
    half, (want, _) = copy.deepcopy(model).bfloat16(), literal(model)
    for budget in (64., 1e-4):
        got = logprobs(half, SEQS, budget)
        with torch.autocast("cpu", torch.bfloat16):
            cast = logprobs(model, SEQS, budget)
            cast.sum().backward()
        assert got.dtype == model.lm_head.weight.grad.dtype == torch.float32
        assert_close((got, cast), (want, want), atol=.05, rtol=0)

def test_the_head_of_a_dropout_model_is_tested_in_eval_mode():
    torch.manual_seed(0)
    model, seen = KINDS["gpt2, tied head"]().train(), []
    model.transformer.h[0].eval()
    model.get_output_embeddings().register_forward_hook(lambda m, args, out: seen.append(args[0].dim()))
    logprobs(model, SEQS)
    assert seen[-1] == 2                    # (n d) rows: dropout did not look like a scale
    assert model.training and not model.transformer.h[0].training

def test_eval_mode_restores_modes_after_an_error():
    model = tiny_lm(TOK).train()
    model.lm_head.eval()
    with pytest.raises(KeyError), eval_mode(model):
        assert not any(m.training for m in model.modules())
        raise KeyError
    assert model.training and not model.lm_head.training

# --- scalar models
def classifier(arch, **more):
    config = {"neox": tf.GPTNeoXConfig, "llama": tf.LlamaConfig}[arch](**SMALL, num_labels=1)
    for k, v in more.items(): setattr(config, k, v)
    torch.manual_seed(3)
    return {"neox": tf.GPTNeoXForSequenceClassification,
            "llama": tf.LlamaForSequenceClassification}[arch](config).eval()

def pooled(model, seqs): return model(seqs)[torch.arange(len(seqs)), last_token_index(seqs.attention_mask)]

@pytest.mark.parametrize("arch", ["neox", "llama"])
def test_theirs_to_ours_and_back(arch, tmp_path):
    theirs = classifier(arch)
    theirs.save_pretrained(tmp_path / "theirs"); TOK.save_pretrained(tmp_path / "theirs")
    want, ours = theirs(**X).logits[:, 0], load_reward_model(tmp_path / "theirs")
    assert_close(pooled(ours, SEQS), want)
    save_reward_model(ours, TOK, tmp_path / "ours")
    again = tf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "ours")
    assert type(again) is type(theirs) and again.config.num_labels == 1
    assert_close(again(**X).logits[:, 0], want)
    assert {k: v.shape for k, v in again.state_dict().items()} == {k: v.shape for k, v in theirs.state_dict().items()}
    saved = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert saved["architectures"] == [type(theirs).__name__] and saved["pad_token_id"] == PAD

def test_a_folder_like_the_public_tldr_reward_model(tmp_path):
    "GPTNeoXForSequenceClassification, Pythia's rotary share, no pad_token_id in the config."
    theirs = classifier("neox", rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=.25))
    theirs = type(theirs)(theirs.config).eval()
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for gone in ("pad_token_id", "rope_parameters", "num_labels"): config.pop(gone, None)
    config.update(rotary_pct=.25, rotary_emb_base=10000, id2label={"0": "LABEL_0"},
                  label2id={"LABEL_0": 0}, torch_dtype="float32")
    (tmp_path / "config.json").write_text(json.dumps(config))
    ours = load_reward_model(tmp_path)
    assert ours.backbone.config.pad_token_id is None
    for i in range(5):                          # theirs can take one row at a time only
        row = SEQS[i:i + 1].trim()
        assert_close(pooled(ours, SEQS)[i], theirs(input_ids=row.ids).logits[0, 0], atol=1e-5, rtol=1e-4)
    save_reward_model(ours, TOK, tmp_path / "ours")   # with a pad they can take a batch
    again = tf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "ours")
    assert_close(again(**X).logits[:, 0], pooled(ours, SEQS), atol=1e-5, rtol=1e-4)
    assert ours.backbone.config.pad_token_id is None

def test_to_classifier_shares_weights_and_leaves_the_config_alone():
    scalar = ScalarModel.from_lm(tiny_lm(TOK), seed=1)
    labels, theirs = scalar.backbone.config.num_labels, to_classifier(scalar)
    assert theirs.score.weight is scalar.score.weight
    assert scalar.backbone.config.num_labels == labels
    assert_close(theirs(**X).logits[:, 0], pooled(scalar, SEQS))

def test_from_lm_copies_and_is_seeded():
    lm = frozen_copy(tiny_lm(TOK))
    before = weight_hash(lm)
    one, two, other = (ScalarModel.from_lm(lm, seed) for seed in (1, 1, 2))
    assert weight_hash(one) == weight_hash(two) != weight_hash(other)
    assert all(p.requires_grad for p in one.parameters())
    with torch.no_grad():
        for p in one.parameters(): p.add_(1)
    assert weight_hash(lm) == before
    std = ScalarModel.from_lm(tiny_lm(TOK, hidden=512, layers=1)).score.weight.std()
    assert abs(std * 513**.5 - 1) < .15

def test_from_a_lora_model_takes_the_adapters_along():
    peft = lora(tiny_lm(TOK))
    scalar = ScalarModel.from_lm(peft, seed=1)
    assert not any("lora" in name for name, _ in scalar.named_parameters())
    state = unwrap_model(peft).base_model(**X).last_hidden_state
    assert_close(scalar(SEQS), (state * scalar.score.weight).sum(-1), atol=1e-5, rtol=1e-4)

# --- reference, LoRA, hash
def test_hash_sees_one_bit_and_nothing_else():
    model = tiny_lm(TOK)
    first = weight_hash(model)
    assert weight_hash(copy.deepcopy(model)) == first == weight_hash(model.train())
    bits = model.lm_head.weight.data.view(torch.int32)
    bits[0, 0] ^= 1
    assert weight_hash(model) != first
    bits[0, 0] ^= 1
    assert weight_hash(model) == first
    with torch.no_grad(): model.lm_head.weight[[0, 1]] = model.lm_head.weight[[1, 0]]
    assert weight_hash(model) != first                              # order counts
    zeros = nn.Linear(2, 2).requires_grad_(False)
    for p in zeros.parameters(): p.zero_()
    assert weight_hash(copy.deepcopy(zeros).half()) != weight_hash(zeros.bfloat16())
    assert len({weight_hash(copy.deepcopy(model).to(d)) for d in (torch.float32, torch.bfloat16, torch.float16)}) == 3

def test_a_frozen_copy_is_out_of_reach():
    model = tiny_lm(TOK).train()
    ref = frozen_copy(model)
    before, opt = weight_hash(ref), torch.optim.SGD(model.parameters(), lr=1.)
    logprobs(model, SEQS).sum().backward(); opt.step()
    assert weight_hash(ref) == before != weight_hash(model)
    assert not ref.training and not any(p.requires_grad for p in ref.parameters())
    assert model.training

def test_lora_reference_merge_and_seed():
    base = tiny_lm(TOK)
    want, peft = logprobs(base, SEQS), add_lora(copy.deepcopy(base), 4, seed=5)
    twin = add_lora(copy.deepcopy(base), 4, seed=5)
    assert weight_hash(peft) == weight_hash(twin)
    assert_close(logprobs(peft, SEQS), want)
    for name, p in peft.named_parameters(): assert p.requires_grad == ("lora_" in name)
    adapted = logprobs(warm(peft), SEQS)
    assert (adapted - want).abs().max() > .01
    with adapters_disabled(peft) as ref: assert_close(logprobs(ref, SEQS), want)
    assert_close(logprobs(peft, SEQS), adapted)               # switched on again
    one = merge_adapters(peft)
    assert_close(logprobs(one, SEQS), adapted, atol=1e-5, rtol=1e-4)
    assert type(one) is type(base) and merge_adapters(base) is base
    assert_close(logprobs(peft, SEQS), adapted)               # merging took a copy
    with adapters_disabled(peft): assert_close(logprobs(peft, SEQS), want)
    layer = unwrap_model(peft).get_submodule("gpt_neox.layers.0.mlp.dense_h_to_4h")
    assert layer.scaling == {"default": 2.} and layer.r == {"default": 4}   # alpha = 2 r

# --- building and loading
@pytest.mark.parametrize("arch", ["neox", "llama"])
def test_tiny_lm_saves_and_loads_bit_for_bit(arch, tmp_path):
    model = tiny_lm(TOK, arch, 48, 1, seed=4)
    model.save_pretrained(tmp_path); TOK.save_pretrained(tmp_path)
    again, tokenizer = load_lm(tmp_path)
    assert weight_hash(again) == weight_hash(model) and not again.training
    assert tokenizer.get_vocab() == TOK.get_vocab()
    half, _ = load_lm(tmp_path, Placement(torch.device("cpu"), torch.bfloat16))
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}

def test_seeds_do_not_touch_the_global_state():
    torch.manual_seed(11); want = torch.rand(3)
    torch.manual_seed(11); tiny_lm(TOK, seed=3); add_lora(tiny_lm(TOK))
    to_classifier(ScalarModel.from_lm(tiny_lm(TOK))); load_bundled("sft")
    load_bundled("reward")
    assert torch.equal(torch.rand(3), want)
    torch.manual_seed(1); one = weight_hash(tiny_lm(TOK))
    torch.manual_seed(2); assert weight_hash(tiny_lm(TOK)) == one

def test_neox_turns_all_of_each_head():
    config = tiny_lm(TOK).config
    assert config.rope_parameters["partial_rotary_factor"] == 1.
    assert config.hidden_size == 16 * config.num_attention_heads

def save_with_pad(folder, pad):
    tokenizer = copy.deepcopy(TOK)
    tokenizer.pad_token = pad
    tokenizer.save_pretrained(folder)
    return folder

def test_pad_token_by_name_known_new_or_spare(tmp_path):
    tiny_lm(TOK).save_pretrained(tmp_path); save_with_pad(tmp_path, None)
    with pytest.raises(ValueError, match="add_special_tokens"): load_lm(tmp_path)
    model, tok = load_lm(tmp_path, pad_token="<unk>")              # one it knows
    assert tok.pad_token_id == TOK.unk_token_id == model.config.pad_token_id
    assert model.get_input_embeddings().num_embeddings == V
    model, tok = load_lm(tmp_path, pad_token="<new>")              # a new one
    assert tok.pad_token_id == V and model.get_input_embeddings().num_embeddings == V + 1
    assert model.generation_config.pad_token_id == V
    spare = tiny_lm(TOK); spare.resize_token_embeddings(V + 9, mean_resizing=False)
    spare.save_pretrained(tmp_path); save_with_pad(tmp_path, None)
    model, tok = load_lm(tmp_path, pad_token="<new>")              # a spare row, as Pythia
    assert tok.pad_token_id == V and model.get_input_embeddings().num_embeddings == V + 9

HOT_PAD = {"plain head": lambda: tiny_lm(TOK), "llama": lambda: tiny_lm(TOK, "llama", 32),
           "bias": lambda: with_bias(tiny_lm(TOK)), "gemma2": KINDS["gemma2, tanh after the head"],
           "lora": lambda: lora_on_head(tiny_lm(TOK))}

@pytest.mark.parametrize("kind", HOT_PAD)
def test_pad_takes_no_probability_however_large_its_logit(kind):
    torch.manual_seed(0)
    model = HOT_PAD[kind]().eval()
    want, head = logprobs_and_entropy(model, SEQS), unwrap_model(model).get_output_embeddings()
    weight = getattr(head, "base_layer", head).weight
    with torch.no_grad(): weight[PAD] += 30 * torch.randn(weight.shape[1])
    assert (token_logprobs(model(**X).logits, SEQS.ids) - want[0])[SEQS.response_mask].abs().max() > .02
    for budget in (64., 1e-4):
        got = logprobs_and_entropy(model, SEQS, budget)
        assert_close(got, want, atol=1e-5, rtol=1e-5)
        for temperature in (.5, 2.):
            logp = logprobs(model, SEQS, budget, temperature)
            logits = no_pad(model, model(**X).logits / temperature)
            assert_close(logp, token_logprobs(logits, SEQS.ids).masked_fill(~SEQS.response_mask, 0.),
                         atol=2e-5, rtol=1e-5)
        logp.sum().backward()
        if weight.grad is not None: assert (weight.grad[PAD] == 0).all()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)

@pytest.mark.parametrize("pad, excluded", [
    (PAD, True), (None, False), (EOS, False), (-1, False), (V, False), (7, True)])
def test_only_a_pad_of_its_own_is_excluded(pad, excluded):
    "eos must keep its probability where the config calls it pad, as many do."
    model = tiny_lm(TOK)
    model.config.pad_token_id = pad
    logits = model(**X).logits
    if excluded: logits = no_pad(model, logits)
    assert_close(logprobs(model, SEQS), token_logprobs(logits, SEQS.ids).masked_fill(
        ~SEQS.response_mask, 0.), atol=1e-5, rtol=0)
    if pad == EOS:
        model.config.eos_token_id = [5, EOS]
        assert logprobs(model, SEQS).isfinite().all()

def low_logits(model):
    "All logits near -35, as in some public models."
    state = model.base_model(**X).last_hidden_state[SEQS.attention_mask]
    mean = state.mean(0)
    with torch.no_grad(): model.get_output_embeddings().weight -= 35 * mean / mean.dot(mean)
    return model

PHI = dict(vocab_size=V, hidden_size=32, num_hidden_layers=1, intermediate_size=48, num_attention_heads=2, pad_token_id=None,
           eos_token_id=EOS, bos_token_id=None)     # its head has a bias

@pytest.mark.parametrize("arch, tied", [("neox", False), ("neox", True), ("llama", False), ("llama", True), ("phi", False)])
def test_an_added_pad_row_is_the_mean_row_and_changes_no_loss(arch, tied, tmp_path):
    torch.manual_seed(0)
    model = tf.PhiForCausalLM(tf.PhiConfig(**PHI)).eval() if arch == "phi" else tiny_lm(TOK, arch, 32)
    if tied:
        model.config.tie_word_embeddings = True
        model.tie_weights()
    elif arch == "phi": model.lm_head.bias.data[3:] = -35.
    else: low_logits(model)
    model.save_pretrained(tmp_path); save_with_pad(tmp_path, None)
    model.config.pad_token_id = None
    everything = logprobs(model, SEQS)
    got, tok = load_lm(tmp_path, pad_token="<new>")
    layers = got.get_input_embeddings(), got.get_output_embeddings()
    assert (layers[0].weight is layers[1].weight) == tied
    for p in (p for layer in layers for p in layer.parameters()):
        assert len(p) == V + 1
        assert_close(p[-1], p[:-1].mean(0))
    assert_close(logprobs(got, SEQS), everything, atol=1e-5, rtol=0)
    plain = token_logprobs(got(**X).logits, SEQS.ids)[SEQS.response_mask]   # pad not excluded
    assert_close(plain, everything[SEQS.response_mask], atol=.05, rtol=0)

def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    model, small = tiny_lm(TOK), copy.deepcopy(TOK)
    model.resize_token_embeddings(V - 10, mean_resizing=False)
    model.save_pretrained(tmp_path/"fewer"); TOK.save_pretrained(tmp_path/"fewer")
    with pytest.raises(ValueError, match=f"token ids up to {V - 1}, its model embeds {V - 10} tokens"):
        load_lm(tmp_path/"fewer")
    with pytest.raises(ValueError, match="do not belong together"):
        load_lm(tmp_path/"fewer", pad_token="<new>")         # not hidden by a larger embedding
    small.add_special_tokens({"pad_token": "<late>"})        # a pad that has no row
    tiny_lm(TOK).save_pretrained(tmp_path/"pad"); small.save_pretrained(tmp_path/"pad")
    with pytest.raises(ValueError, match=f"ids up to {V}, its model embeds {V} tokens"):
        load_lm(tmp_path/"pad")
    small = copy.deepcopy(TOK); small.add_tokens(["<picture>"])  # Gemma 3 has such a token
    tiny_lm(TOK).save_pretrained(tmp_path/"extra"); small.save_pretrained(tmp_path/"extra")
    load_lm(tmp_path/"extra")

LEARNED = {"gpt2": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(
               vocab_size=V, n_embd=32, n_layer=1, n_head=2, n_positions=20, bos_token_id=None, eos_token_id=EOS)),
           "neox": lambda: tiny_lm(TOK)}

@pytest.mark.parametrize("kind", LEARNED)
def test_rows_longer_than_the_model_reads_are_refused_in_words(kind):
    model = LEARNED[kind]().eval()
    n = model.config.max_position_embeddings
    def rows(t): return make_seqs([[5]], [[7] * (t - 1)], PAD)
    words = f"rows of {n + 1} tokens are too long for a model with {n} positions: cut them"
    for fit in (logprobs, logprobs_and_entropy): fit(model, rows(n))
    for fn in (lambda: logprobs(model, rows(n + 1)), lambda: logprobs(lora(model), rows(n + 1)),
               lambda: ScalarModel.from_lm(model)(rows(n + 1))):
        with pytest.raises(ValueError, match=words): fn()
    v = model.config.vocab_size
    assert logprobs(model, make_seqs([[5]], [[v - 1]], PAD)).isfinite().all()
    with pytest.raises(ValueError, match=f"token id {v} in a model of {v} tokens"): logprobs(model, make_seqs([[5]], [[v]], PAD))

def test_errors_say_what_and_how(tmp_path):
    lm, scalar, broken = (tmp_path / n for n in ("lm", "scalar", "broken"))
    tiny_lm(TOK).save_pretrained(lm); TOK.save_pretrained(lm)
    save_reward_model(ScalarModel.from_lm(tiny_lm(TOK)), TOK, scalar)
    broken.mkdir(); (broken / "config.json").write_text("{"); TOK.save_pretrained(broken)
    two = tmp_path / "two"
    config = tf.GPTNeoXConfig(**SMALL); config.num_labels = 2
    tf.GPTNeoXForSequenceClassification(config).save_pretrained(two)
    bert = tmp_path / "bert"
    tf.BertForSequenceClassification(tf.BertConfig(**SMALL, num_labels=1)).save_pretrained(bert)
    t5 = tmp_path / "t5"
    tf.T5ForConditionalGeneration(tf.T5Config(vocab_size=V, d_model=16, d_kv=8, d_ff=16,
        num_layers=1, num_heads=2)).save_pretrained(t5); TOK.save_pretrained(t5)
    for call, words in ((lambda: load_lm(scalar), "lm_head.weight.*load_reward_model"),
            (lambda: load_lm(tmp_path / "none"), "no folder"), (lambda: load_lm("./none"), "no folder"),
            (lambda: load_lm(broken), "not a valid JSON"), (lambda: load_lm(t5), "causal language model"),
            (lambda: load_reward_model(lm), "score.weight.*from_lm"), (lambda: load_reward_model(two), "one label"),
            (lambda: load_reward_model(bert), "linear 'score'"), (lambda: load_bundled("gold"), "base.*judge.*sft"),
            (lambda: tiny_lm(TOK, "bert"), "neox.*llama"), (lambda: tiny_lm(TOK, hidden=60), "16"),
            (lambda: choose_placement("tpu"), "cpu"),
            (lambda: adapters_disabled(tiny_lm(TOK)).__enter__(), "frozen_copy")):
        with pytest.raises(ValueError, match=words): call()

def test_loading_leaves_the_logs_of_transformers_as_they_were(tmp_path, capfd):
    from transformers.utils import logging
    tiny_lm(TOK).save_pretrained(tmp_path); TOK.save_pretrained(tmp_path)
    capfd.readouterr()
    logging.set_verbosity_info(); logging.enable_progress_bar()
    messages, listener = [], std_logging.Handler()
    listener.emit = lambda record: messages.append(record.getMessage())
    std_logging.getLogger("transformers").addHandler(listener)
    try:
        load_lm(tmp_path)
        with pytest.raises(ValueError): load_reward_model(tmp_path)   # no report of its own
        assert capfd.readouterr().err == "" and not messages
        assert logging.get_verbosity() == logging.INFO and logging.is_progress_bar_enabled()
    finally:
        logging.set_verbosity_warning()
        std_logging.getLogger("transformers").removeHandler(listener)

TRY_ALL = """
import sys
from pathlib import Path
from transformers import AutoTokenizer
from rlhf_nb.base import models
for folder in sys.argv[1:3]:
    for load in (models.load_tokenizer, models.load_lm, models.load_reward_model):
        try: load(folder); print("loaded")
        except ValueError as e: print(e)
print(Path(sys.argv[3]).exists())
AutoTokenizer.from_pretrained(sys.argv[1])
"""

def test_code_of_a_model_never_runs_because_standard_input_says_y(folder_with_code, press_y):
    ran, plain = folder_with_code/"ran", folder_with_code.with_name("plain_tokenizer")
    shutil.copytree(folder_with_code, plain)                # here only the model has code
    for name in ("tokenizer_config.json", "tokenizer.json"): (plain/name).unlink()
    TOK.save_pretrained(plain)
    done = press_y(TRY_ALL, folder_with_code, plain, ran)
    *lines, had_run = [line for line in done.stdout.splitlines() if re.match("the |loaded|True|False", line)]
    assert had_run == "False" and len(lines) == 6, done.stdout + done.stderr
    assert [i for i, line in enumerate(lines) if line == "loaded"] == [3]
    for line in lines: assert line == "loaded" or re.fullmatch(
        r"the (.*) of '.*' needs program code .* trust_remote_code=True", line), line
    assert ran.exists()             # transformers, asked plainly, does run that code

def test_every_loader_of_transformers_is_told_about_remote_code():
    for node in ast.walk(ast.parse(inspect.getsource(models))):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("from_pretrained", "from_config"):
            assert "trust_remote_code" in {k.arg for k in node.keywords}, ast.unparse(node)

def test_code_of_a_model_runs_when_it_is_trusted(folder_with_code):
    (folder_with_code/"mine.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\nclass MyConfig(LlamaConfig): model_type = "
        "'mine'\nclass MyModel(LlamaForCausalLM): config_class = MyConfig\n")
    TOK.save_pretrained(folder_with_code)
    config = json.loads((folder_with_code/"tokenizer_config.json").read_text())
    assert "auto_map" not in config
    model, _ = load_lm(folder_with_code, trust_remote_code=True)
    assert type(model).__name__ == "MyModel"
    assert weight_hash(model) == weight_hash(tiny_lm(TOK, "llama"))

# --- hub ids
@pytest.fixture
def no_network(monkeypatch, tmp_path):
    "A machine without a network: every request fails at once, and is counted; an empty cache."
    tried = []
    class Session:
        def request(self, *args, **kwargs): tried.append(args); raise OSError("no network")
        head = get = stream = request
    monkeypatch.setattr("huggingface_hub.utils.get_session", Session)
    monkeypatch.setattr("huggingface_hub.utils._http.get_session", Session)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path/"cache"))
    return tried

def cached(tmp_path, folder, name):
    "Put a folder into the cache of hub ids as if it had been downloaded."
    repo = tmp_path/"cache"/f"models--{name.replace('/', '--')}"
    shutil.copytree(folder, repo/"snapshots"/("a" * 40))
    (repo/"refs").mkdir(); (repo/"refs/main").write_text("a" * 40)

@pytest.mark.parametrize("load", [load_lm, load_reward_model, load_tokenizer])
def test_without_a_network_a_hub_id_is_refused_at_once(load, no_network):
    with pytest.raises(ValueError, match="cannot be reached and the cache holds no 'nobody/none': connect .* or give a folder") as e:
        load("nobody/none")
    assert len(no_network) == 1 and "\n" not in str(e.value)

def test_without_a_network_the_cache_is_read_at_once(no_network, tmp_path):
    tiny_lm(TOK).save_pretrained(tmp_path/"lm"); TOK.save_pretrained(tmp_path/"lm")
    cached(tmp_path, tmp_path/"lm", "nobody/cached")
    model, tokenizer = load_lm("nobody/cached")
    assert weight_hash(model) == weight_hash(tiny_lm(TOK))
    assert tokenizer.get_vocab() == TOK.get_vocab()
    assert len(no_network) == 2             # one look for the tokenizer, one for the model

def test_offline_mode_is_no_network(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match="unset HF_HUB_OFFLINE"): load_lm("nobody/none")

@pytest.mark.parametrize("bf16", [True, False])
def test_choose_placement_as_on_a_cuda_machine(bf16, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: bf16)
    dtype = torch.bfloat16 if bf16 else torch.float32
    assert choose_placement() == choose_placement("cuda") == Placement(torch.device("cuda"), dtype)
    monkeypatch.setenv("LOCAL_RANK", "3")                                   # each process has its own
    assert choose_placement() == choose_placement("cuda") == Placement(torch.device("cuda:3"), dtype)
    assert choose_placement("cuda:1") == Placement(torch.device("cuda:1"), dtype) and choose_placement("cpu") == Placement()

def test_prompt_tuning_is_refused():
    from peft import PromptTuningConfig, get_peft_model
    peft = get_peft_model(tiny_lm(TOK), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))
    with pytest.raises(ValueError, match="use LoRA"): logprobs(peft, SEQS)

def test_the_budget_holds_inside_its_context_alone(monkeypatch):
    from rlhf_nb.base import logprobs as module
    lm, tokenizer = load_bundled("sft")
    seqs, sizes, real = make_seqs([[5, 6, 7]] * 3, [[8, 9, 10]] * 3, tokenizer.pad_token_id), [], module.chunked_logprobs
    monkeypatch.setattr(module, "chunked_logprobs", lambda *args: (sizes.append(args[3]), real(*args))[1])
    want = logprobs(lm, seqs)
    with module.logits_budget(4 * 213 * 4 / 2**20):                    # two chunks of two rows of 213 words
        torch.testing.assert_close(logprobs(lm, seqs), want)
        logprobs(lm, seqs, 64.)                                        # the argument wins
    logprobs(lm, seqs)
    assert sizes == [2]

@pytest.mark.parametrize("kind", ["plain", "lora", "actor", "reward", "reward on lora", "critic with lora"])
def test_any_trained_model_is_saved_by_one_call(kind, tmp_path):
    from rlhf_nb.base.models import save_model
    from rlhf_nb.ppo import ActorCritic
    from rlhf_nb.run.start import add_scalar_head
    from rlhf_nb.run.methods import make_critic
    lm, tokenizer = load_bundled("sft")
    seqs = make_seqs([[5, 6, 7]] * 2, [[8, 9, 10], [11]], tokenizer.pad_token_id)
    model = {"plain": lambda: lm, "lora": lambda: warm(add_lora(lm, 2)),
             "actor": lambda: ActorCritic(warm(add_lora(lm, 2)), ScalarModel.from_lm(lm)),
             "reward": lambda: ScalarModel.from_lm(lm),
             "reward on lora": lambda: warm(add_scalar_head(add_lora(lm, 2))),
             "critic with lora": lambda: warm(make_critic(lm, 2))}[kind]().eval()
    scored = kind not in ("plain", "lora", "actor")
    with torch.no_grad(): want = model(seqs) if scored else logprobs(getattr(model, "policy", model), seqs)
    names = [name for name, _ in model.named_parameters()]
    save_model(model, tokenizer, tmp_path/"new")
    with torch.no_grad():
        if scored: got = load_reward_model(tmp_path/"new")(seqs)
        else: got = logprobs(load_lm(tmp_path/"new")[0], seqs)
    mask = seqs.attention_mask
    torch.testing.assert_close(got[mask], want[mask], atol=1e-5, rtol=1e-5)
    assert [name for name, _ in model.named_parameters()] == names          # the model itself keeps its adapters
    assert not [n for n, _ in load_lm(tmp_path/"new")[0].named_parameters() if "lora" in n] if not scored else True

def test_a_folder_with_anything_in_it_is_not_saved_into(tmp_path):
    from rlhf_nb.base.models import save_model
    (tmp_path/"mine.txt").write_text("x")
    with pytest.raises(FileExistsError, match="not empty: name a new folder"): save_model(*load_bundled("sft"), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
