"Estimates from a config against what a real model of that size keeps."
import pytest, torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModelForCausalLM, Gemma3Config, GPT2Config, GPTNeoXConfig, LlamaConfig, MixtralConfig
from rlhf_nb.base.models import add_lora
from rlhf_nb.run.memory_plan import count_weights, device_memory, fake_lm, memory_verdict, plan_memory, saved_bytes

SIZE = dict(vocab_size=300, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, bos_token_id=1, eos_token_id=2)
LLAMA = LlamaConfig(intermediate_size=128, num_key_value_heads=2, **SIZE)
CONFIGS = [LLAMA, GPTNeoXConfig(intermediate_size=256, **SIZE),
           GPT2Config(vocab_size=300, n_embd=64, n_layer=3, n_head=4, bos_token_id=1, eos_token_id=2)]

@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.model_type)
@pytest.mark.parametrize("lora_r", [0, 4])
def test_weights_and_activations_of_a_real_model(config, lora_r):
    model = AutoModelForCausalLM.from_config(config).train()
    plan, measured = plan_memory(config, 8, 96, lora_r), saved_bytes(model, 8, 96)
    assert .9 * measured <= plan.activations <= 1.6 * measured
    if lora_r: model = add_lora(model, lora_r)
    counts = [sum(p.numel() for p in model.parameters() if p.requires_grad or frozen) for frozen in (True, False)]
    assert [plan.n_weights, plan.n_trained] == counts
    assert plan.gradients == 4 * counts[1] and plan.optimizer == 8 * counts[1]

TEXT = dict(vocab_size=300, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2)
EYES = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)
@pytest.mark.parametrize("config", [MixtralConfig(num_local_experts=4, **TEXT), Gemma3Config(text_config=TEXT | dict(head_dim=16),
    vision_config=EYES, mm_tokens_per_image=4)], ids=lambda c: c.model_type)
def test_experts_and_wrappers_whose_shapes_are_not_known_in_float32(config, caplog):
    measured = saved_bytes(AutoModelForCausalLM.from_config(config).train(), 8, 96)
    plan = plan_memory(config, 8, 96)
    assert .9 * measured <= plan.activations <= 1.6 * measured and not caplog.records
    assert .5 * plan.activations <= plan_memory(config, 8, 96, bf16=True).activations < .8 * plan.activations

def test_what_each_switch_changes():
    def plan(rows=8, **settings): return plan_memory(LLAMA, rows, 96, **settings)
    n, whole, lora = plan().n_weights, plan(), plan(lora_r=4, bf16=True)
    assert whole.weights == 4 * n and plan(bf16=True).weights == 6 * n            # autocast keeps a copy
    assert plan(n_frozen=2).others == 8 * n and plan(n_frozen=1, bf16=True).others == 2 * n
    assert plan(critic=True).others == 24 * n and plan(critic=True).activations == 2 * whole.activations
    assert plan(gradient_checkpointing=True).activations < .7 * whole.activations
    assert plan(16).activations == pytest.approx(2 * whole.activations, rel=.05)
    assert plan(bf16=True).activations < .8 * whole.activations
    assert lora.weights == 2 * (lora.n_weights - lora.n_trained) + 4 * lora.n_trained
    assert whole.logits == 2**27 and plan(max_logits_mb=10.).logits == 20 * 2**20 # two chunks
    assert (whole.gradients, whole.optimizer, lora.optimizer) == (4 * n, 8 * n, 8 * lora.n_trained)

def test_a_large_model_is_counted_without_memory():
    with FakeTensorMode(): assert 6.7e9 < count_weights(fake_lm(LlamaConfig(), torch.bfloat16))[0] < 6.8e9     # 7B

def test_the_verdict():
    config = LlamaConfig(num_hidden_layers=2)
    weights, rows = plan_memory(config, 1, 512, bf16=True), plan_memory(config, 64, 1024, lora_r=8, bf16=True)
    text = memory_verdict(weights, weights.total // 2, "this GPU has")
    assert text.startswith("needs about ") and "GB: use LoRA (lora_r), or a smaller model" in text
    assert "lower micro_batch_size" in memory_verdict(rows, rows.total // 2, "this GPU has")
    assert memory_verdict(weights, 2**50, "there is").endswith("there is 1048576.0 GB")
    n, what = device_memory("cpu")
    assert n > 2**20 and "free" in what

def test_frozen_weights_of_few_bits_take_less():
    "By hand: a layer's q, o 64², k, v 64 · 32, three of 64 · 128; embedding and head stay whole."
    n = 3 * (2 * 64**2 + 2 * 64 * 32 + 3 * 64 * 128)
    whole, four, eight = (plan_memory(LLAMA, 8, 96, 4, load_in=x).weights for x in ("", "4bit", "8bit"))
    assert (whole - four, whole - eight) == (3.5 * n, 3 * n)
    assert plan_memory(LLAMA, 8, 96, 4, True).weights - plan_memory(LLAMA, 8, 96, 4, True, load_in="4bit").weights == 1.5 * n
