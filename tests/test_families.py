"""Families of causal language models, tiny and random, made from their configs: right, or refused in one sentence.

What differs: wrappers without `config.vocab_size`, hybrids with states beside keys and values, soft caps and
scaled logits, experts, heads that are not all, caches that read left padding wrongly, no classifier."""
import json, pytest, re, torch
from pathlib import Path
from types import SimpleNamespace
from torch.testing import assert_close
from transformers import AutoConfig, AutoModelForCausalLM
from rlhf_nb.book.command import main
from rlhf_nb.base.batches import PreferencePairs
from rlhf_nb.base.learning import TrainConfig, make_trainer, train_step
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.models import (
    ScalarModel, add_lora, disable_dropout, frozen_copy, load_lm, load_reward_model, merge_adapters, save_reward_model, vocabulary_of)
from rlhf_nb.base.q_networks import QConfig, QNets, make_episodes, q_network
from rlhf_nb.base.sampling import SamplingParams, generate
from rlhf_nb.dpo import dpo_loss, make_pair_loss, precompute_ref_logprobs
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.qlearning import q_loss
from rlhf_nb.reward import score_seqs
from rlhf_nb.run.pipeline import train
from rlhf_nb.run.stages import Stage
from rlhf_nb.sft import sft_loss
from rlhf_nb.show.token_kl import token_kl
from rlhf_nb.tokens import make_seqs, token_logprobs
from rlhf_nb.trainers.ppo_trainer import PPOConfig, RLTask, train_ppo
from rlhf_nb.trainers.q_trainer import QPolicy, make_q_trainer, token_q_values
from rlhf_nb.worlds.world_text import make_tokenizer
from conftest import generate_uncached

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]

BASE = dict(vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2)
EXPERTS = dict(num_experts=2, num_experts_per_tok=1, moe_intermediate_size=16, shared_expert_intermediate_size=16)
MAMBA = dict(mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1, mamba_chunk_size=8)
EYES = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)
FAMILIES = dict(
    llama={}, mistral=dict(sliding_window=4), qwen2={}, qwen3=dict(head_dim=8), phi3={}, olmo2={}, falcon={}, gpt2=dict(n_embd=32, n_layer=2, n_head=4, n_positions=128),
    gpt_neox={}, opt=dict(ffn_dim=48, word_embed_proj_dim=16), bloom=dict(n_head=4, n_layer=2), gemma=dict(head_dim=8),
    gemma2=dict(head_dim=8, final_logit_softcapping=5., attn_logit_softcapping=5.),                                # soft caps
    granite=dict(logits_scaling=2., embedding_multiplier=3.), cohere={}, nanochat={},                              # scaled logits
    gemma3=dict(text_config=BASE | dict(head_dim=8), vision_config=EYES, mm_tokens_per_image=4, image_token_index=98,
                boi_token_index=96, eoi_token_index=97, pad_token_id=0, eos_token_id=2),                           # a wrapper
    mixtral=dict(num_local_experts=2, num_experts_per_tok=1), qwen2_moe=EXPERTS,                                   # experts
    qwen3_next=EXPERTS | dict(layer_types=["linear_attention", "full_attention"], head_dim=8, linear_num_value_heads=2,
        linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8),                                   # hybrids
    granitemoehybrid=MAMBA | dict(layer_types=["mamba", "attention"], mamba_d_head=16, shared_intermediate_size=32, num_local_experts=2,
        num_experts_per_tok=1),
    jamba=dict(attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1, num_experts=2,
               num_experts_per_tok=1, mamba_d_state=8, use_mamba_kernels=False),
    lfm2=dict(layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False),
    falcon_h1=MAMBA | dict(mamba_d_ssm=32), bamba=MAMBA | dict(attn_layer_indices=[1], mamba_n_heads=8),
    mamba=dict(state_size=8), minimax=dict(layer_types=["linear_attention", "full_attention"], head_dim=8, num_local_experts=2,
        num_experts_per_tok=1, block_size=8),
    llama4_text=dict(head_dim=8, num_local_experts=2, intermediate_size_mlp=48, attn_chunk_size=16))
NO_CLASSIFIER = {"granite", "cohere", "nanochat", "granitemoehybrid", "lfm2", "falcon_h1", "bamba", "mamba"}
NO_BODY = {"llama4_text"}
NO_LORA = {"mamba": "out_proj", "falcon_h1": "out_proj", "llama4_text": "Llama4Router"}

class Tok:
    "As much of a tokenizer as these functions need."
    pad_token_id, bos_token_id, eos_token_id = 0, 1, 2
    def decode(self, ids, **more): return " ".join(str(int(i)) for i in ids)
    def save_pretrained(self, folder): pass

def made(name, **settings):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **settings)).eval()
        head = model.get_output_embeddings()
        if not model.config.tie_word_embeddings: torch.nn.init.normal_(head.weight, std=.3)      # so that the words differ
    model.config.pad_token_id = 0
    return model

@pytest.fixture(scope="module", params=FAMILIES)
def family(request): return request.param, made(request.param, **FAMILIES[request.param] if request.param == "gemma3" else BASE | FAMILIES[request.param])

SEQS = make_seqs([[1, 5, 6], [1, 7], [1, 8, 9, 10]], [[11, 12, 2], [13, 14, 15, 2], [3, 2]], 0)
PAIRS = PreferencePairs(SEQS, make_seqs([[1, 5, 6], [1, 7], [1, 8, 9, 10]], [[21, 2], [22, 23, 2], [4, 5, 2]], 0))
PROMPTS = [[1, 5, 6], [1, 7], [1, 8, 9, 10, 11, 12]]

def check_log_probs(model):
    with torch.no_grad(): logits = model(input_ids=SEQS.ids, attention_mask=SEQS.attention_mask.long()).logits.float()
    logits[..., 0] = -torch.inf                                              # pad is never drawn
    want = token_logprobs(logits, SEQS.ids)
    for max_logits_mb in (64., 2e-3):                                        # at once, and in chunks
        got = logprobs(model, SEQS, max_logits_mb)
        assert_close(got[SEQS.response_mask], want[SEQS.response_mask], atol=1e-4, rtol=1e-4)
    assert_close(token_kl(model, model, SEQS).logp[SEQS.response_mask], want[SEQS.response_mask], atol=1e-4, rtol=1e-4)

def check_generation(model, *settings):
    "With a cache the same as without: left pads, rows that end early, groups that share a prompt."
    for params in settings:
        a, b = [fn(model, PROMPTS * 3, Tok(), params, torch.Generator().manual_seed(3))[0] for fn in (generate, generate_uncached)]
        assert a.ids.shape == b.ids.shape and torch.equal(a.ids, b.ids)

def check_q(model):
    "Two steps, and a policy of Q alone and beside the language model."
    nets, x, config = QNets(q_network(model), [0]), make_episodes(SEQS, torch.tensor([1., -1., .5]), 2), QConfig()
    trainer = make_q_trainer(nets, TrainConfig(n_steps=2, lr=1e-2, warmup_steps=0), config)
    td = [train_step(trainer, x, lambda nets, part: q_loss(nets, part, config))["td_loss"] for _ in range(2)]
    first = (1 + .998**2 + .998**4 + 1 + .25 * (1 + .998**2)) / 9       # Q is 0: squared returns of 3, 1 (others: 0 > -1) and 2 tokens
    assert td[0] == pytest.approx(first, rel=1e-4) and td[1] < td[0]
    assert token_q_values(nets, SEQS)[0].any()
    for ref in (None, model): check_generation(QPolicy(nets, .5, ref), SamplingParams(8))

ROOMY = BASE | EXPERTS | dict(head_dim=8, num_local_experts=2, n_routed_experts=2, n_embd=32, n_layer=2, n_head=4, n_positions=128, n_inner=48,
    d_model=32, num_layers=2, num_heads=4, n_group=1, topk_group=1, q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=4,
    v_head_dim=8, first_k_dense_replace=0)                       # what one family does not read another does
OTHERS = """afmoe apertus arcee aria_text beam biogpt bitnet cohere2 ctrl cwm deepseek_v4 diffllama doge ernie4_5 ernie4_5_moe exaone4
    falcon_mamba flex_olmo fuyu gemma3_text glm glm4 glm4_moe gpt-sw3 gpt_bigcode gpt_neox_japanese gpt_oss granitemoe granitemoeshared
    helium hunyuan_v1_dense hunyuan_v1_moe hy_v3 hyperclovax internlm3 jais2 jetmoe laguna mimo_v2_flash minimax_m2 ministral
    modernbert-decoder moshi mpt nemotron olmo olmo3 olmo_hybrid olmoe persimmon phi phimoe qwen3_moe rwkv seed_oss smollm3
    solar_open stablelm starcoder2 trocr vaultgemma xglm zaya""".split()

@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.one_in(4)
def test_other_families(name):
    try: model = made(name, **ROOMY)
    except ValueError as e: pytest.skip(f"this version of transformers does not make it: {e}")
    check_log_probs(model)
    check_generation(model, SamplingParams(8, temperature=2.))
    row = train_step(make_trainer(frozen_copy(model).requires_grad_(), TrainConfig(n_steps=2)), SEQS, sft_loss)
    assert row["grad_norm"] > 0
    check_q(model)

@pytest.mark.parametrize("name, more", [("bert", {}), ("recurrent_gemma", dict(num_hidden_layers=3, lru_width=32, attention_window_size=8))])
def test_a_model_that_hands_over_no_cache_is_refused(name, more):
    "One reads both ways, the other keeps its state in itself."
    model = made(name, **ROOMY | more)
    for policy in (model, QPolicy(QNets(q_network(model), [0]), .5)):
        with pytest.raises(ValueError, match="gives no cache of what it has read, so it cannot be sampled"):
            generate(policy, PROMPTS, Tok(), SamplingParams(4), torch.Generator().manual_seed(0))

def test_log_probs_are_those_of_the_whole_model(family):
    assert vocabulary_of(family[1]) == 99
    check_log_probs(family[1])

def test_generation_with_a_cache_is_the_literal_one(family):
    check_generation(family[1], SamplingParams(8, temperature=0.), SamplingParams(10, temperature=2.))

def test_q_learning_or_a_refusal_before_any_work(family):
    name, model = family
    if name not in NO_BODY: return check_q(model)
    with pytest.raises(ValueError, match="no body apart from its head, so no reward model, critic or Q-network"): q_network(model)

def test_steps_of_sft_dpo_and_ppo(family):
    name, start = family
    model = frozen_copy(start).requires_grad_()
    row = train_step(make_trainer(model, TrainConfig(n_steps=2, lr=1e-3)), SEQS, sft_loss)
    assert row["grad_norm"] > 0
    policy, data = frozen_copy(start).requires_grad_(), precompute_ref_logprobs(start, PAIRS)
    trainer = make_trainer(policy, TrainConfig(n_steps=2, lr=1e-3))
    disable_dropout(policy)
    row = train_step(trainer, data, make_pair_loss(dpo_loss))
    assert row["loss"] == pytest.approx(.6931, abs=1e-3)
    if name in NO_BODY:
        with pytest.raises(ValueError, match="no body apart from its head"): ScalarModel.from_lm(start)
        return
    task = RLTask(PROMPTS, lambda seqs: seqs.response_mask.sum(1).float(), Tok(), SamplingParams(4))
    config = PPOConfig(n_iterations=1, n_prompts=3, n_epochs=1, micro_batch_size=3, lr=1e-4)
    trainer = train_ppo(ActorCritic(policy, ScalarModel.from_lm(start)), start, task, config, torch.Generator().manual_seed(0))
    ratio = next(row["val/ratio"] for row in trainer.log.rows if "val/ratio" in row)
    assert ratio == pytest.approx(1, abs=1e-3)            # sampling and scoring agree

def test_a_reward_model_is_saved_or_refused_first(family, tmp_path):
    name, model = family
    if name in NO_BODY: return
    scalar = ScalarModel.from_lm(model)
    if name in NO_CLASSIFIER:
        with pytest.raises(ValueError, match=f"no sequence classifier for '{name}'"): save_reward_model(scalar, Tok(), tmp_path/"x")
        assert not (tmp_path/"x").exists()
        return
    save_reward_model(scalar, Tok(), tmp_path/"x")
    assert_close(score_seqs(load_reward_model(tmp_path/"x"), SEQS), score_seqs(scalar, SEQS), atol=1e-4, rtol=1e-4)

def test_lora_learns_and_merges_or_is_refused(family):
    name, start = family
    model = frozen_copy(start)
    if name in NO_LORA:
        with pytest.raises(ValueError, match=f"LoRA cannot adapt .*{NO_LORA[name]}"): add_lora(model, 4)
        if name == "mamba": return
        model = add_lora(frozen_copy(start), 4, targets=["q_proj", "v_proj"])
    else: model = add_lora(model, 4)
    train_step(make_trainer(model, TrainConfig(n_steps=2, lr=1e-2, warmup_steps=0)), SEQS, sft_loss)
    model.eval()
    merged = merge_adapters(model)
    assert_close(logprobs(merged, SEQS), logprobs(model, SEQS), atol=1e-4, rtol=1e-4)
    assert (logprobs(merged, SEQS) - logprobs(start, SEQS)).abs().max() > 1e-4

def test_bfloat16(family):
    name, start = family
    model = frozen_copy(start).bfloat16()
    got = logprobs(model, SEQS)[SEQS.response_mask]
    assert got.isfinite().all() and got.dtype == torch.float32
    if name != "mamba": generate(model, PROMPTS, Tok(), SamplingParams(4), torch.Generator().manual_seed(0))

def test_a_run_of_a_reward_model_is_refused_before_any_work(tmp_path):
    tokenizer = make_tokenizer()
    config = AutoConfig.for_model("cohere", **BASE | dict(vocab_size=len(tokenizer)))
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path/"m"); tokenizer.save_pretrained(tmp_path/"m")
    with pytest.raises(ValueError, match="no sequence classifier for 'cohere'"):
        train(Stage("reward", dict(data="none.jsonl", model=str(tmp_path/"m"))), tmp_path/"out")
    assert not (tmp_path/"out").exists()

@pytest.mark.parametrize("method, more", [("q", {}), ("ppo", dict(reward="none:f"))])
def test_a_run_that_needs_a_body_is_refused_before_any_work(method, more, tmp_path):
    tokenizer = make_tokenizer()
    made("llama4_text", **BASE | FAMILIES["llama4_text"] | dict(vocab_size=len(tokenizer), max_position_embeddings=512)).save_pretrained(tmp_path/"m")
    tokenizer.save_pretrained(tmp_path/"m")
    with pytest.raises(ValueError, match="Llama4ForCausalLM shows no body apart from its head"):
        train(Stage(method, dict(data="none.jsonl", model=str(tmp_path/"m")) | more), tmp_path/"out")
    assert not (tmp_path/"out").exists()

# ---- the page that does the same on a checkpoint of anybody's
@pytest.fixture
def page(): # the names of its two cells
    cells = json.loads((Path(__file__).parents[1]/"nbs/engine/run/examine.ipynb").read_text("utf-8"))["cells"]
    found = {c["id"]: "".join(c["source"]) for c in cells}
    exec(found["examine_imports"] + "\n" + found["examine"], space := {})
    return space

CHECKS = ["loading", "chat template", "log-probs", "padding", "sampling", "save and load", "SFT", "memory", "gradient checkpointing", "LoRA", "DPO",
          "reward model", "PPO", "GRPO", "Q-learning"]
LORA, CANNOT = "LoRA cannot adapt", "cannot recompute its layers"
REFUSED = {name: {"reward model": "transformers has no sequence classifier for"} for name in (*NO_CLASSIFIER, *"""afmoe apertus aria_text beam bitnet
    cohere2 cwm deepseek_v4 ernie4_5 ernie4_5_moe falcon_mamba flex_olmo fuyu glm4_moe gpt_neox_japanese granitemoe granitemoeshared hy_v3 hyperclovax
    internlm3 jais2 laguna mimo_v2_flash minimax_m2 moshi olmo_hybrid olmoe rwkv solar_open trocr vaultgemma xglm zaya""".split())}
for name, more in dict(mamba={"LoRA": LORA}, falcon_h1={"LoRA": LORA}, falcon_mamba={"LoRA": LORA}, deepseek_v4={"LoRA": "DeepseekV4GroupedLinear",
        "memory": "no estimate"}, phimoe={"LoRA": "PhimoeTopKRouter"}, llama4_text={"LoRA": "Llama4Router", "reward model": "no sequence classifier",
        "PPO": "no body apart from its head", "Q-learning": "no body apart from its head"}, gpt_neox_japanese={"gradient checkpointing": CANNOT},
        ctrl={"gradient checkpointing": CANNOT}, jetmoe={"gradient checkpointing": CANNOT, "memory": "no estimate"}).items():
    REFUSED[name] = REFUSED.get(name, {}) | more

def write_folder(name, folder):
    "The family's tiny model with the world's tokenizer."
    tokenizer = make_tokenizer()
    more = dict(vocab_size=len(tokenizer), max_position_embeddings=512, pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id)
    settings = BASE | FAMILIES[name] if name in FAMILIES else ROOMY
    if name == "gemma3": settings = FAMILIES[name] | dict(text_config=FAMILIES[name]["text_config"] | more)
    made(name, **settings | more).save_pretrained(folder)
    tokenizer.save_pretrained(folder)

@pytest.mark.parametrize("name", [*FAMILIES, *OTHERS])
@pytest.mark.one_in(4)
def test_a_folder_is_examined_and_told_what_is_refused_and_why(name, tmp_path, page):
    try: write_folder(name, tmp_path/"m")
    except ValueError as e: pytest.skip(f"this version of transformers does not make it: {e}")
    found = {check: (right, words) for check, right, words in page["examine"](str(tmp_path/"m"))}
    assert [*found] == CHECKS
    wrong = {check: words for check, (right, words) in found.items() if not right}
    assert wrong.keys() == REFUSED.get(name, {}).keys(), wrong
    for check, words in REFUSED.get(name, {}).items(): assert words in wrong[check]
    assert "Error" not in "".join(wrong.values())

def test_an_examination_names_what_is_wrong(tmp_path, page, capsys):
    tokenizer = make_tokenizer()
    made("llama", **BASE | dict(vocab_size=len(tokenizer), pad_token_id=0, eos_token_id=tokenizer.eos_token_id)).save_pretrained(tmp_path/"m")
    tokenizer.chat_template = tokenizer.chat_template.replace("m['content']", "m['content'] + ' ' * loop.index")     # an answer is written otherwise
    tokenizer.save_pretrained(tmp_path/"m")
    def examined(): return {check: words for check, right, words in page["examine"](str(tmp_path/"m")) if not right}
    found = examined()
    assert found.keys() == {"chat template"} and "otherwise than prompt, answer and end" in found["chat template"]
    assert main(["doctor", "--model", str(tmp_path/"m")]) == 1                       # the command prints the same
    said = capsys.readouterr().out.splitlines()
    assert [x[:2] for x in said] == ["ok", "--"] + ["ok"] * 13 and said[1].startswith("--  chat template") and "Error" not in said[1]
    assert re.search(r"ok  memory +a step on 3 short rows took \d+ MB, --dry-run says \d+$", said[7])
    assert main(["doctor", "--model", str(tmp_path)]) == 2 and "no tokenizer could be read" in capsys.readouterr().err
    def other_logp(*args): return (lambda seqs, logp: (seqs, logp * 1.1))(*generate(*args))            # of another temperature
    def cooler(model, prompts, tokenizer, how, chance): return generate(model, prompts, tokenizer, SamplingParams(1, how.temperature / 2)
        if how.max_new_tokens == 1 else how, chance)                                                   # is drawn, its log-probs are right
    def changed(model): model.get_input_embeddings().weight.data.mul_(1.1)
    def reread(path, **more):
        if str(path).endswith("/model"): changed(found := load_lm(path, **more)[0]); return found, None
        return load_lm(path, **more)
    apart = "apart from what it should be"
    for check, words, wrong in [("padding", apart, dict(generate=other_logp)), ("sampling", "standard errors", dict(generate=cooler)),
            ("save and load", apart, dict(load_lm=reread)), ("gradient checkpointing", apart, dict(checkpoint_layers=changed)),
            ("memory", "--dry-run says 1024", dict(plan_memory=lambda *_: SimpleNamespace(total=2**30, logits=2**27))),
            ("LoRA", apart, dict(merge_adapters=lambda model: frozen_copy(model).unload())),
            ("DPO", apart, dict(dpo_loss=lambda *args, **more: dpo_loss(*args, **more) + .1)),          # no reference
            ("reward model", apart, dict(score_seqs=lambda model, seqs: score_seqs(model, seqs) + len(seqs)))]:
        real = {k: page[k] for k in wrong}
        page.update(wrong)
        found = examined()
        page.update(real)
        assert found.keys() == {"chat template", check} and words in found[check], (check, found)
