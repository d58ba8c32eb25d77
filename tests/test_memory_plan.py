"Estimates from a config against what a real model of that size keeps."
import pytest, torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import GPT2Config, GPTNeoXConfig, LlamaConfig
from rlhf_nb.memory_plan import count_weights, device_memory, fake_lm, memory_verdict, plan_memory, saved_bytes
from rlhf_nb.models import add_lora
from transformers import AutoModelForCausalLM

SIZE = dict(vocab_size=300, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, bos_token_id=1, eos_token_id=2)
CONFIGS = [LlamaConfig(intermediate_size=128, num_key_value_heads=2, **SIZE), GPTNeoXConfig(intermediate_size=256, **SIZE),
           GPT2Config(vocab_size=300, n_embd=64, n_layer=3, n_head=4, bos_token_id=1, eos_token_id=2)]

@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.model_type)
@pytest.mark.parametrize("lora_r", [0, 4])
def test_weights_and_activations_of_a_real_model(config, lora_r):
    model = AutoModelForCausalLM.from_config(config).train()
    plan = plan_memory(config, 8, 96, lora_r)
    measured = saved_bytes(model, 8, 96)
    assert .9 * measured <= plan.activations <= 1.6 * measured
    if lora_r: model = add_lora(model, lora_r)
    counts = [sum(p.numel() for p in model.parameters() if p.requires_grad or frozen) for frozen in (True, False)]
    assert [plan.n_weights, plan.n_trained] == counts
    assert plan.gradients == 4 * counts[1] and plan.optimizer == 8 * counts[1]

def test_what_each_switch_changes():
    config = CONFIGS[0]
    def plan(**settings): return plan_memory(config, 8, 96, **settings)
    n, whole = plan().n_weights, plan()
    assert whole.weights == 4 * n and plan(bf16=True).weights == 6 * n            # autocast keeps a copy
    assert plan(n_frozen=2).others == 8 * n and plan(n_frozen=1, bf16=True).others == 2 * n
    assert plan(critic=True).others == 24 * n and plan(critic=True).activations == 2 * whole.activations
    assert plan(gradient_checkpointing=True).activations < .7 * whole.activations
    assert plan_memory(config, 16, 96).activations == pytest.approx(2 * whole.activations, rel=.05)
    assert plan(bf16=True).activations < .8 * whole.activations
    lora = plan(lora_r=4, bf16=True)
    assert lora.weights == 2 * (lora.n_weights - lora.n_trained) + 4 * lora.n_trained

def test_the_budget_of_logits_counts_twice():
    assert plan_memory(CONFIGS[0], 2, 16, max_logits_mb=10.).logits == 20 * 2**20 and plan_memory(CONFIGS[0], 2, 16).logits == 2**27

def test_a_large_model_is_counted_without_memory():
    plan = plan_memory(LlamaConfig(), 1, 512, bf16=True)                # 7B
    assert 6.7e9 < plan.n_weights < 6.8e9 and plan.total > 90 * 2**30

def test_the_verdict():
    plan = plan_memory(LlamaConfig(), 4, 1024, bf16=True)
    text = memory_verdict(plan, 24 * 2**30, "this GPU has")
    assert text.startswith("needs about ") and "this GPU has 24.0 GB: use LoRA (lora_r)" in text
    plan = plan_memory(LlamaConfig(), 64, 1024, lora_r=8, bf16=True)
    assert "lower micro_batch_size" in memory_verdict(plan, 40 * 2**30, "this GPU has")
    assert memory_verdict(plan, 2**50, "there is").endswith("there is 1048576.0 GB")
    n, what = device_memory("cpu")
    assert n > 2**20 and "free" in what
