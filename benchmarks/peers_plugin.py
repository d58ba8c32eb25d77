"""Our SFT, reward-model, DPO, PPO and GRPO steps in the form that a side-by-side benchmark asks for.

`setup(task, spec, models, data)` gets transformers modules and token tensors, and returns
`step(i)`, one whole training step on data[i]:
  sft  models["policy"] a causal LM            data["input_ids"] (n b t), loss on every token
  rm   models["policy"] a sequence classifier  data["chosen"], data["rejected"] (n b t)
  dpo  models["policy"], ["ref"] causal LMs    data["chosen"], data["rejected"] (n b t); the
       reference is asked at every step, as the others do
  ppo  models["policy"], ["ref"] causal LMs, ["value"], ["reward"] sequence classifiers
       data["prompts"] (n b t); no stop token, so every row has all its new tokens
  grpo, rloo  models["policy"], ["ref"]; the first b / G prompts, G responses each; the reward is
       the number of distinct tokens, as for the others
"""
from types import SimpleNamespace

import torch

from rlhf_nb.base.learning import TrainConfig, make_trainer, train_step
from rlhf_nb.base.batches import PreferencePairs
from rlhf_nb.tokens import Seqs


def seqs(ids, first):
    "Full rows without pads; the response begins at position `first`."
    mask = torch.ones_like(ids, dtype=torch.bool)
    return Seqs(ids, mask, mask & (torch.arange(ids.shape[1], device=ids.device) >= first))


def setup(task, spec, models, data):
    config = TrainConfig(lr=spec["lr"], n_steps=10**6, warmup_steps=0, batch_size=spec["batch"],
                         micro_batch_size=spec["batch"], final_lr_frac=1.,
                         mixed_precision="bf16" if spec.get("bf16") else "no")
    if task == "sft":
        from rlhf_nb.sft import sft_loss
        trainer, ids = make_trainer(models["policy"], config), data["input_ids"]
        return lambda i: step(trainer, seqs(ids[i], 1), sft_loss)
    if task == "rm":
        from rlhf_nb.base.models import ScalarModel
        from rlhf_nb.reward import reward_loss
        policy, first = models["policy"], data["prompt_len"]
        trainer = make_trainer(ScalarModel(policy.base_model, policy.score), config)
        return lambda i: step(trainer, PreferencePairs(seqs(data["chosen"][i], first),
                                                       seqs(data["rejected"][i], first)), reward_loss)
    if task == "dpo":
        from functools import partial
        from rlhf_nb.dpo import make_pair_loss, dpo_loss, precompute_ref_logprobs
        trainer, first = make_trainer(models["policy"], config), data["prompt_len"]
        loss = make_pair_loss(partial(dpo_loss, beta=spec["beta"]))
        pairs = lambda i: PreferencePairs(seqs(data["chosen"][i], first), seqs(data["rejected"][i], first))
        return lambda i: step(trainer, precompute_ref_logprobs(models["ref"], pairs(i)), loss)
    if task == "ppo": return ppo(spec, models, data)
    if task in ("grpo", "rloo"): return groups(task, spec, models, data)
    raise ValueError(f"this plugin runs sft, rm, dpo, ppo, grpo and rloo, got {task!r}")


def ppo(spec, models, data):
    from rlhf_nb.base.models import ScalarModel
    from rlhf_nb.ppo import ActorCritic
    from rlhf_nb.trainers.ppo_trainer import PPOConfig, ppo_update
    from rlhf_nb.reward import pooled_scores
    from rlhf_nb.base.sampling import SamplingParams, collect_rollout
    critic, rm = [ScalarModel(models[k].base_model, models[k].score) for k in ("value", "reward")]
    model = ActorCritic(models["policy"], critic)
    config = PPOConfig(n_prompts=spec["batch"], n_epochs=spec["epochs"], n_minibatches=spec["minibatches"],
                       micro_batch_size=spec["batch"], beta=spec["kl_coef"], vf_coef=spec["vf_coef"])
    trainer = make_trainer(model, TrainConfig(lr=spec["lr"], n_steps=10**6, warmup_steps=0, final_lr_frac=1.,
        micro_batch_size=config.micro_batch_size, mixed_precision="bf16" if spec.get("bf16") else "no"))
    never = SimpleNamespace(pad_token_id=0, eos_token_id=10**9)
    generator, sampling = torch.Generator().manual_seed(0), SamplingParams(spec["response"])
    def run(i):
        roll = collect_rollout(model.policy, models["ref"], data["prompts"][i].tolist(),
                               lambda s: pooled_scores(rm, s), never, sampling, generator, batch_size=config.n_prompts)
        ppo_update(trainer, roll, config, never.eos_token_id, generator)
        return {}
    return run


def groups(task, spec, models, data):
    from rlhf_nb.grpo import group_normalised, leave_one_out
    from rlhf_nb.trainers.grpo_trainer import GRPOConfig, grpo_loss, make_group_experience
    from rlhf_nb.trainers.ppo_trainer import RLTask
    from rlhf_nb.base.sampling import SamplingParams, collect_rollout
    k, policy, grpo = spec["num_generations"], models["policy"], task == "grpo"
    config = GRPOConfig(n_prompts=spec["batch"] // k, num_generations=k, num_iterations=1, lr=spec["lr"],
                        micro_batch_size=spec["batch"], beta=spec["beta"], kl_in_loss=grpo,
                        advantage_fn=group_normalised if grpo else leave_one_out,
                        loss_type="grpo" if grpo else "dapo")
    trainer = make_trainer(policy, TrainConfig(
        lr=spec["lr"], n_steps=10**6, warmup_steps=0, final_lr_frac=1., batch_size=spec["batch"],
        micro_batch_size=spec["batch"], mixed_precision="bf16" if spec.get("bf16") else "no"))
    def distinct(x): return torch.tensor([float(len(set(ids[m].tolist())))
                                          for ids, m in zip(x.ids, x.response_mask)])
    never = SimpleNamespace(pad_token_id=0, eos_token_id=10**9)
    rl_task = RLTask(data["prompts"][0].tolist(), distinct, never, SamplingParams(spec["response"]))
    generator = torch.Generator().manual_seed(0)
    policy.eval()
    def run(i):
        roll = collect_rollout(policy, models["ref"], data["prompts"][i][:config.n_prompts].tolist(), distinct,
                               never, rl_task.sampling, generator, k, spec["batch"])
        x = make_group_experience(roll, config, rl_task)
        train_step(trainer, x, lambda model, rows: grpo_loss(model, rows, config))
        return {}
    return run


def step(trainer, batch, loss_fn):
    train_step(trainer, batch, loss_fn)
    return {}
