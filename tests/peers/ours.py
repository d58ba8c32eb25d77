"""This package's functions on recorded inputs, (package, what) -> function of named inputs; and what differs by design."""
import torch
from einops import rearrange
from rlhf_nb.base.batches import masked_whiten
from rlhf_nb.dpo import dpo_loss
from rlhf_nb.grpo import cispo_loss, clipped_token_loss, group_centered, group_normalised, leave_one_out, loss_weights
from rlhf_nb.kl import kl_k1, kl_k2, kl_k3
from rlhf_nb.ppo import clipped_value_loss, gae
from rlhf_nb.reward import bradley_terry_loss
from rlhf_nb.tokens import last_token_index, masked_mean, masked_sum, token_logprobs
from rlhf_nb.trainers.dpo_tools import ipo_loss

def policy(loss_type, whole=False, beta=0., dual=False, weighted=clipped_token_loss): # of x, by name
    def loss(x):
        d = (x["logp"] - x["old_logp"]).masked_fill(~x["mask"], 0.)
        if whole: d = (d.sum(1) / x["mask"].sum(1))[:, None].expand_as(d)
        advantage = x["advantages"][:, None].expand_as(d)
        low, high = (x["epsilon"], x.get("epsilon_high", x["epsilon"])) if weighted is clipped_token_loss else (
            1., x["epsilon_high"])                                           # TRL's CISPO: the upper end only
        each = weighted(d.exp(), advantage, low, high)
        if dual: each = torch.where(advantage < 0, torch.minimum(each, -3 * advantage), each)
        if "beta" in x: each = each + x["beta"] * kl_k3(x["logp"], x["ref_logp"])
        return masked_sum(loss_weights(x["mask"], loss_type, 7) * each.masked_fill(~x["mask"], 0.), x["mask"]).sum()
    return loss

def rloo(x):
    d = masked_sum(x["logp"] - x["old_logp"], x["mask"])
    return clipped_token_loss(d.exp(), x["advantages"], x["epsilon"], x["epsilon"]).mean()

def value(x): return masked_mean(clipped_value_loss(x["values"], x["old_values"], x["returns"], x["epsilon"]), x["mask"])

def advantages(x): return gae(x["rewards"], x["values"], x["mask"], x["gamma"], x["lam"])

def counted(x): # torchtune steps over no gap: reward and value are 0 there, and gamma and lambda count it
    m = x["mask"]
    whole = m.flip(1).cumsum(1).flip(1) > 0
    a, returns = gae(x["rewards"] * m, x["values"] * m, whole, x["gamma"], x["lam"])
    n = int(m.sum())                                # its deviation divides by n - 1; its mean is added back
    return (masked_whiten(a, m) * ((n - 1) / n)**.5 + masked_mean(a, m)) * m, returns * m

def times_log_prob(x): # TRL's CISPO multiplies by log π, ours by log ρ
    def each(ratio, advantage, low, high):
        weight = ratio.detach().clamp(max=1 + high) * advantage
        return cispo_loss(ratio, advantage, low, high) - weight * x["old_logp"]
    return policy("dapo", weighted=each)(x)

def four(loss): return lambda x: loss(x["policy_chosen"], x["policy_rejected"], x["ref_chosen"], x["ref_rejected"],
                                      x["beta"])

def estimator(kl, cap=float("inf")): return lambda x: kl(x["logp"], x["ref_logp"]).clamp(max=cap)

def sft(x):
    kept = x["labels"] != -100
    return -masked_mean(token_logprobs(x["logits"], x["labels"].clamp(min=0))[:, 1:], kept[:, 1:])

def whitened(x): # verl's deviation divides by n - 1, ours by n
    a, returns = advantages(x)
    n = int(x["mask"].sum())
    return masked_whiten(a, x["mask"]) * ((n - 1) / n)**.5, returns

def scaled(x): # verl adds 1e-6 to the deviation, ours 1e-4
    a, unit = group_normalised(x["rewards"], x["group"]), group_centered(x["rewards"], x["group"])
    std = torch.where(a == 0, 1., unit / a) - 1e-4
    return torch.where(a == 0, 0., unit / (std + 1e-6))

def pooled(x): return x["scores"][torch.arange(len(x["scores"])), last_token_index(x["mask"])]

OURS = {
    ("trl", "selective_log_softmax"): lambda x: token_logprobs(x["logits"], x["ids"])[:, 1:],
    ("trl", "GRPOTrainer, loss_type='grpo'"): policy("grpo"), ("trl", "GRPOTrainer, loss_type='bnpo'"): policy("dapo"),
    ("trl", "GRPOTrainer, loss_type='dapo'"): policy("dapo"),
    ("trl", "GRPOTrainer, loss_type='dr_grpo'"): policy("dr_grpo"),
    ("trl", "GRPOTrainer, loss_type='grpo', beta above 0"): policy("grpo"),
    ("trl", "GRPOTrainer, loss_type='grpo', importance_sampling_level='sequence'"): policy("grpo", whole=True),
    ("trl", "RLOOTrainer"): rloo,
    ("openrlhf", "PairWiseLoss"): lambda x: bradley_terry_loss(x["chosen"], x["rejected"], x["margin"]).mean(),
    ("openrlhf", "compute_approx_kl, 'k1'"): estimator(kl_k1), ("openrlhf", "PolicyLoss"): policy("dapo"),
    ("openrlhf", "PolicyLoss, token_level_loss=False"): policy("grpo"),
    ("openrlhf", "PolicyLoss, policy_loss_type='gspo'"): policy("grpo", whole=True),
    ("openrlhf", "ValueLoss"): value, ("openrlhf", "DPOLoss"): lambda x: four(dpo_loss)(x).mean(),
    ("openrlhf", "DPOLoss, ipo=True"): lambda x: four(ipo_loss)(x).mean(),
    ("verl", "kl_penalty_forward, 'k1'"): estimator(kl_k1), ("verl", "kl_penalty_forward, 'k2'"): estimator(kl_k2),
    ("verl", "compute_value_loss"): value,
    ("verl", "compute_grpo_outcome_advantage, norm_adv_by_std_in_grpo=False"):
        lambda x: group_centered(x["rewards"], x["group"]),
    ("verl", "compute_rloo_outcome_advantage"): lambda x: leave_one_out(x["rewards"], x["group"]),
    ("torchtune", "PPOLoss, its policy part"): policy("dapo"), ("torchtune", "PPOLoss, its value part"): value,
    ("torchtune", "DPOLoss"): four(dpo_loss), ("transformers", "ForCausalLMLoss"): sft,
    ("transformers", "GenericForSequenceClassification"): pooled}

ADJUSTED = { # compared as well, after the one step that the words below name
    ("trl", "GRPOTrainer, loss_type='cispo'"): times_log_prob,
    ("openrlhf", "compute_approx_kl, 'k2'"): estimator(kl_k2, 10.), ("openrlhf", "compute_approx_kl, 'k3'"): estimator(kl_k3, 10.),
    ("openrlhf", "PolicyLoss, dual_clip=3"): policy("dapo", dual=True),
    ("verl", "compute_policy_loss, 'token-mean'"): policy("dapo", dual=True),
    ("verl", "compute_policy_loss, 'seq-mean-token-mean'"): policy("grpo", dual=True),
    ("verl", "compute_gae_advantage_return"): whitened, ("verl", "compute_grpo_outcome_advantage"): scaled,
    ("torchtune", "estimate_advantages"): counted}

BY_DESIGN = {
    ("trl", "GRPOTrainer, loss_type='cispo'"): "the same gradient; the value differs, since ours multiplies by log ρ, "
        "not log π, and has a lower end, too",
    ("openrlhf", "compute_approx_kl, 'k2'"): "the same below 10: ours is not cut off",
    ("openrlhf", "compute_approx_kl, 'k3'"): "the same below 10: ours is not cut off",
    ("openrlhf", "PolicyLoss, dual_clip=3"): "the same but for the second clip, which ours has not",
    ("verl", "compute_policy_loss, 'token-mean'"): "the same but for the second clip, which ours has not",
    ("verl", "compute_policy_loss, 'seq-mean-token-mean'"): "the same but for the second clip, which ours has not",
    ("verl", "compute_gae_advantage_return"): "the same returns; ours divides by the deviation over n, not n - 1",
    ("verl", "compute_grpo_outcome_advantage"): "the same with 1e-6 for our 1e-4 beside the deviation",
    ("torchtune", "estimate_advantages"): "the same returns where the mask has no gap; its advantages "
        "are whitened, then the mean is added back"}
