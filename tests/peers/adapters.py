"""Functions of public trainers, called as `prove` calls a function: each is theirs, with at most ten lines around it.

`ADAPTERS[package]()` imports the package, as it is installed, and returns rows (what, kind, function). Methods of
TRL's trainers run on a stand-in that holds their settings and hands over log-probs; what a package imports for GPUs,
and its losses do not use, may be absent: an empty stand-in takes its place.
"""
import importlib.abc, importlib.machinery, sys
from collections import defaultdict
from types import SimpleNamespace
from unittest.mock import MagicMock
import torch

ABSENT = ("flash_attn ray deepspeed torchao vllm megatron hydra codetiming tensordict peft omegaconf pylatexenc orjson "
          "sentencepiece tiktoken blobfile kagglehub loguru wandb torchdata cachetools pyvers").split()

class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader): # asked last: only for what is not installed
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ABSENT: return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        made = MagicMock(name=spec.name)
        made.__path__, made.__version__, made.__spec__, made.__all__ = [], "99.0", spec, []
        return made
    def exec_module(self, module): pass

def of_trl(trainer, settings, inputs, logps, **values): # the method `_compute_loss` of a trainer of TRL
    same = lambda x, *args, **kwargs: x
    here = SimpleNamespace(aux_loss_enabled=False, top_entropy_quantile=1., off_policy_mask_threshold=None,
        use_vllm=False, _entropy_bonus_enabled=False, current_gradient_accumulation_steps=1, max_completion_length=7,
        model=SimpleNamespace(training=False), _metrics=defaultdict(lambda: defaultdict(list)),
        accelerator=SimpleNamespace(gather=same, gather_for_metrics=same, reduce=same, num_processes=1),
        args=SimpleNamespace(use_bias_correction_kl=False, delta=None),
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (logps, logps.detach(), None), **settings, **values)
    prompt = torch.ones(len(logps), 1).long()
    return trainer._compute_loss(here, None, dict(prompt_ids=prompt, prompt_mask=prompt,
        completion_ids=inputs["completion_mask"].long(), **inputs))

def trl(): # 1.16 and its neighbours
    import importlib.metadata
    from trl import GRPOTrainer, RLOOTrainer
    from trl.trainer.utils import selective_log_softmax
    def grpo(loss_type, level="token", kl=False, one_sided=False):
        def plain(logp, old_logp, advantages, mask, epsilon, epsilon_high):
            return call(logp, old_logp, advantages, mask, epsilon, epsilon_high, logp.detach(), 0.)
        def call(logp, old_logp, advantages, mask, epsilon, epsilon_high, ref_logp, beta):
            return of_trl(GRPOTrainer, dict(loss_type=loss_type, importance_sampling_level=level), dict(
                advantages=advantages, completion_mask=mask.int(), old_per_token_logps=old_logp,
                ref_per_token_logps=ref_logp, num_items_in_batch=mask.sum()), logp, beta=beta, epsilon_low=epsilon,
                epsilon_high=1 + epsilon_high if one_sided else epsilon_high)
        return call if kl else plain
    def rloo(logp, old_logp, advantages, mask, epsilon):
        return of_trl(RLOOTrainer, {}, dict(advantages=advantages, completion_mask=mask.int(),
            old_logps=(old_logp * mask).sum(1)), logp, epsilon_low=epsilon, epsilon_high=epsilon)
    def logprobs(logits, ids): return selective_log_softmax(logits[:, :-1], ids[:, 1:])
    rows = [("selective_log_softmax", "logprobs", logprobs)]
    rows += [(f"GRPOTrainer, loss_type={name!r}", "grpo", grpo(name, one_sided=name == "cispo"))
             for name in ("grpo", "bnpo", "dapo", "dr_grpo", "cispo")]
    rows += [("GRPOTrainer, loss_type='grpo', beta above 0", "grpo", grpo("grpo", kl=True)),
             ("GRPOTrainer, loss_type='grpo', importance_sampling_level='sequence'", "grpo", grpo("grpo", "sequence")),
             ("RLOOTrainer", "grpo", rloo)]
    return rows

def openrlhf():
    from openrlhf.models.loss import DPOLoss, PairWiseLoss, PolicyLoss, ValueLoss
    from openrlhf.models.utils import compute_approx_kl
    def policy(**settings):
        def call(logp, old_logp, advantages, mask, epsilon, epsilon_high):
            return PolicyLoss(epsilon, epsilon_high, **settings)(logp, old_logp, advantages[:, None].expand_as(logp),
                                                                 mask)[0]
        return call
    def value(values, old_values, returns, mask, epsilon): return ValueLoss(epsilon)(values, old_values, returns, mask)
    def kl(which): return lambda logp, ref_logp: compute_approx_kl(logp, ref_logp, kl_estimator=which)
    def dpo(policy_chosen, policy_rejected, reference_chosen, reference_rejected, beta):
        return DPOLoss(beta)(policy_chosen, policy_rejected, reference_chosen, reference_rejected)[0]
    def ipo(policy_chosen, policy_rejected, reference_chosen, reference_rejected, beta):
        return DPOLoss(beta, ipo=True)(policy_chosen, policy_rejected, reference_chosen, reference_rejected)[0]
    def pairs(chosen, rejected, margin): return PairWiseLoss()(chosen, rejected, margin)
    return [("PairWiseLoss", "reward", pairs),
            *((f"compute_approx_kl, {k!r}", "kl", kl(k)) for k in ("k1", "k2", "k3")),
            ("PolicyLoss", "ppo", policy()), ("PolicyLoss, token_level_loss=False", "ppo", policy(token_level_loss=False)),
            ("PolicyLoss, policy_loss_type='gspo'", "ppo", policy(policy_loss_type="gspo")),
            ("PolicyLoss, dual_clip=3", "ppo", policy(dual_clip=3.)), ("ValueLoss", "value", value),
            ("DPOLoss", "dpo", dpo), ("DPOLoss, ipo=True", "dpo", ipo)]

def verl():
    from verl.trainer.ppo import core_algos as core
    def policy(how):
        def call(logp, old_logp, advantages, mask, epsilon, epsilon_high):
            return core.compute_policy_loss(old_logp, logp, advantages[:, None].expand_as(logp), mask.double(), epsilon,
                epsilon, epsilon_high, loss_agg_mode=how)[0]
        return call
    def value(values, old_values, returns, mask, epsilon):
        return core.compute_value_loss(values, returns, old_values, mask.double(), epsilon)[0]
    def gae(rewards, values, mask, gamma, lam):
        advantages, returns = core.compute_gae_advantage_return(rewards, values, mask.double(), gamma, lam)
        return advantages * mask, returns * mask
    def kl(which): return lambda logp, ref_logp: core.kl_penalty_forward(logp, ref_logp, which)
    def outcome(estimate, **settings):
        def call(rewards, group):
            return estimate(rewards[:, None].clone(), torch.ones(len(rewards), 1), group.numpy(), **settings)[0][:, 0]
        return call
    return [*((f"kl_penalty_forward, {k!r}", "kl", kl(k)) for k in ("k1", "k2", "abs")),
            ("compute_gae_advantage_return", "gae", gae),
            *((f"compute_policy_loss, {how!r}", "ppo", policy(how)) for how in (
                "token-mean", "seq-mean-token-mean", "seq-mean-token-sum")),
            ("compute_value_loss", "value", value),
            ("compute_grpo_outcome_advantage", "advantages", outcome(core.compute_grpo_outcome_advantage)),
            ("compute_grpo_outcome_advantage, norm_adv_by_std_in_grpo=False", "advantages", outcome(
                core.compute_grpo_outcome_advantage, norm_adv_by_std_in_grpo=False)),
            ("compute_rloo_outcome_advantage", "advantages", outcome(core.compute_rloo_outcome_advantage))]

def torchtune():
    from torchtune.rlhf import estimate_advantages
    from torchtune.rlhf.loss import DPOLoss, PPOLoss
    def ppo(logp, old_logp, advantages, mask, epsilon):
        none = torch.zeros_like(logp)
        return PPOLoss(epsilon, value_coeff=0.)(old_logp, logp, advantages[:, None].expand_as(logp), none, none, none,
                                                mask, mask)[0]
    def value(values, old_values, returns, mask, epsilon):
        none = torch.zeros_like(values)
        return PPOLoss(value_clip_range=epsilon, value_coeff=1.)(none, none, none, old_values, values, returns, mask,
                                                                 mask)[0]
    def gae(rewards, values, mask, gamma, lam): # its recipe sets what is padded to 0 first
        found = estimate_advantages(values.masked_fill(~mask, 0.), rewards.masked_fill(~mask, 0.), gamma, lam, mask)
        return tuple(x * mask for x in found)
    def dpo(policy_chosen, policy_rejected, reference_chosen, reference_rejected, beta):
        return DPOLoss(beta)(policy_chosen, policy_rejected, reference_chosen, reference_rejected)[0]
    return [("PPOLoss, its policy part", "ppo", ppo), ("PPOLoss, its value part", "value", value),
            ("estimate_advantages", "gae", gae), ("DPOLoss", "dpo", dpo)]

def transformers():
    from transformers.loss.loss_utils import ForCausalLMLoss
    from transformers.modeling_layers import GenericForSequenceClassification as Classifier
    def sft(logits, labels): return ForCausalLMLoss(logits, labels, logits.shape[-1])
    def pooling(scores, mask):
        config = SimpleNamespace(pad_token_id=0, problem_type=None, return_dict=True, get_text_config=lambda: config)
        here = SimpleNamespace(config=config, score=lambda x: x,
            base_model_prefix="model",
            model=lambda ids, **kwargs: SimpleNamespace(last_hidden_state=scores[..., None], cache=None, past_key_values=None,
                hidden_states=None, attentions=None))
        return Classifier.forward.__wrapped__(here, mask.long()).logits[:, 0]
    return [("ForCausalLMLoss", "sft", sft), ("GenericForSequenceClassification", "pooling", pooling)]

ADAPTERS = dict(trl=trl, openrlhf=openrlhf, verl=verl, torchtune=torchtune, transformers=transformers)

def rows_of(package): # [] if it is not installed
    if importlib.util.find_spec(package) is None: return []
    sys.meta_path[len(sys.meta_path):] = [StandIns()] * (package in ("openrlhf", "verl", "torchtune"))
    return ADAPTERS[package]()
