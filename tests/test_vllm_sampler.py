"""An outside sampler behind the same call: what it is asked, what is made of its answers, and which faults the checks find."""
import sys
from types import ModuleType, SimpleNamespace
import pytest, torch
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.models import add_lora, frozen_copy, load_bundled, merge_adapters
from rlhf_nb.base.sampling import SamplingParams, _cached, _uniforms, generate_many, sampling_by, start_generation
from rlhf_nb.run.vllm_sampler import check_sampler, vllm_sampler
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, train_grpo
from rlhf_nb.trainers.ppo_trainer import RLTask
from rlhf_nb.worlds.world_text import TRAIN, prompt_ids

WARM = SamplingParams(9, temperature=.7)
def seeded(n=0): return torch.Generator().manual_seed(n)

class Engine: # the calls of vllm.LLM that the adapter makes
    def __init__(self, model): self.model, self.requests, self.calls = frozen_copy(merge_adapters(model)), [], []
    def load_weights(self, weights): self.calls.append("weights"); self.model.load_state_dict(dict(weights))
    def apply_model(self, fn): return [fn(self)]
    def reset_prefix_cache(self): self.calls.append("reset")
    def logp(self, seqs, temperature): return logprobs(self.model, seqs, temperature=temperature)
    def generate(self, prompts, requests, use_tqdm):
        self.requests += requests; self.calls.append(f"generate {len(prompts)}")
        return [self.respond(p["prompt_token_ids"], r) for p, r in zip(prompts, requests, strict=True)]
    def respond(self, prompt, r):
        [pad], [eos] = r.logit_bias, r.stop_token_ids
        s = SamplingParams(r.max_tokens, r.temperature, max(r.top_k, 0), r.top_p)
        seqs, _ = _cached(self.model, start_generation(self.model, [prompt], (pad, eos), s, _uniforms(1, s, seeded(r.seed))))
        logp, at = self.logp(seqs, r.temperature or 1.)[0], seqs.response_mask[0]
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=tuple(seqs.ids[0][at].tolist()), logprobs=[
            {t: SimpleNamespace(logprob=y)} for t, y in zip(seqs.ids[0][at].tolist(), logp[at].tolist())])])

@pytest.fixture(autouse=True)
def package(monkeypatch):
    vllm = ModuleType("vllm")
    vllm.SamplingParams = SimpleNamespace
    monkeypatch.setitem(sys.modules, "vllm", vllm)

@pytest.fixture
def parts():
    model, tokenizer = load_bundled("sft")
    return model, tokenizer, [prompt_ids(tokenizer, q) for q in TRAIN[:5]]

def test_what_the_engine_is_asked(parts):
    model, tokenizer, prompts = parts
    engine = Engine(model)
    with sampling_by(vllm_sampler(engine), model):
        seqs, logp = generate_many(model, prompts, tokenizer, SamplingParams(9, .7, 4, .9), seeded())
    assert engine.calls == ["weights", "reset", "generate 5"]
    u = torch.rand(5, 9, generator=seeded())[:, 0]                               # one per row, whatever its place in the batch
    assert sorted(r.seed for r in engine.requests) == sorted((u * 2**31).long().tolist()) and len({r.seed for r in engine.requests}) == 5
    for r in engine.requests:
        assert (r.max_tokens, r.temperature, r.top_k, r.top_p, r.logprobs) == (9, .7, 4, .9, 0)
        assert r.logit_bias == {tokenizer.pad_token_id: -100.} and r.stop_token_ids == [tokenizer.eos_token_id] and r.ignore_eos
    assert [seqs.ids[i][:len(p)].tolist() == list(p) for i, p in enumerate(prompts)] == [True] * 5
    assert logp.shape == seqs.ids.shape and not logp[~seqs.response_mask].any() and (logp[seqs.response_mask] < 0).float().mean() > .5
    generate_many(model, prompts, tokenizer, WARM, seeded())                     # outside of it nothing is asked
    other = frozen_copy(model)
    with sampling_by(vllm_sampler(engine), model): generate_many(other, prompts, tokenizer, WARM, seeded())
    assert len(engine.calls) == 3
    with sampling_by(vllm_sampler(engine), model): generate_many(model, prompts, tokenizer, WARM, seeded())
    assert engine.requests[-1].top_k == -1

def test_rows_end_at_eos_and_keep_their_order(parts):
    model, tokenizer, prompts = parts
    eos = tokenizer.eos_token_id
    def sampler(model, x): return [[7, 8, eos, 9], [eos], [5] * 4], [[-1., -2., -3., -9.], [-4.], [-.5] * 4]
    with sampling_by(sampler, model):
        seqs, logp = generate_many(model, [[1, 2], [1], [1, 2, 3]][:3], tokenizer, SamplingParams(4), seeded())
    # batches are sorted by length: the sampler saw [1], [1, 2], [1, 2, 3]
    responses = [seqs.ids[i][seqs.response_mask[i]].tolist() for i in range(3)]
    assert responses == [[eos], [7, 8, eos], [5] * 4]
    assert [logp[i][seqs.response_mask[i]].tolist() for i in range(3)] == [[-4.], [-1., -2., -3.], [-.5] * 4]

@pytest.mark.parametrize("lora_r", [0, 2])
def test_a_right_engine_passes_adapters_reach_it_merged_and_the_weights_are_as_before(lora_r, parts):
    model, tokenizer, prompts = parts
    if lora_r: model = add_lora(model, lora_r)
    for name, p in model.named_parameters():
        if "lora_B" in name: torch.nn.init.normal_(p, std=.05, generator=seeded(1))
    before = [p.clone() for p in model.parameters()]
    with sampling_by(vllm_sampler(Engine(model)), model): check_sampler(model, tokenizer, prompts, n=100)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))

class Raw(Engine):
    def logp(self, seqs, temperature): return logprobs(self.model, seqs)
class Old(Engine):
    def load_weights(self, weights): pass
class Greedy(Engine): # its log-probs are true, and it never draws
    def respond(self, prompt, r): return super().respond(prompt, SimpleNamespace(**vars(r) | dict(temperature=0., top_k=1)))
    def logp(self, seqs, temperature): return logprobs(self.model, seqs, temperature=self.asked)
    def generate(self, prompts, requests, use_tqdm):
        self.asked = requests[0].temperature
        return super().generate(prompts, requests, use_tqdm)
class Restless(Engine):
    n = 0
    def respond(self, prompt, r):
        self.n += 1
        return super().respond(prompt, SimpleNamespace(**vars(r) | dict(seed=self.n)))

@pytest.mark.parametrize("kind, words", [(Raw, "processed_logprobs"), (Old, "once weights have changed"), (Restless, "one seed gives different rows"),
                                         (Greedy, "came 100 times in 100")])
def test_faults_are_found(kind, words, parts):
    model, tokenizer, prompts = parts
    before = [p.clone() for p in model.parameters()]
    with sampling_by(vllm_sampler(kind(model)), model):
        with pytest.raises(ValueError, match=words): check_sampler(model, tokenizer, prompts, n=100)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))

def test_grpo_learns_from_it(parts):
    model, tokenizer, prompts = parts
    ref, engine = frozen_copy(model), Engine(model)
    task = RLTask(prompts, lambda seqs: (seqs.ids == 7).sum(1).float(), tokenizer, SamplingParams(6))
    config = GRPOConfig(n_iterations=2, n_prompts=3, num_generations=4, num_iterations=1, micro_batch_size=12)
    with sampling_by(vllm_sampler(engine), model): trainer = train_grpo(model.requires_grad_(), ref, task, config, seeded())
    rows = [row for row in trainer.log.rows if "iteration" in row]
    assert engine.calls == ["weights", "reset", "generate 12"] * 2
    assert [row["clip_ratio/region_mean"] for row in rows] == [0., 0.] and rows[0]["kl"] == pytest.approx(0, abs=1e-4) != rows[1]["kl"]
