"""Our SFT, reward-model, DPO and PPO steps in the form that a side-by-side benchmark asks for.

`setup(task, spec, models, data)` gets transformers modules and token tensors, and returns
`step(i)`, one whole training step on data[i]:
  sft  models["policy"] a causal LM            data["input_ids"] (n b t), loss on every token
  rm   models["policy"] a sequence classifier  data["chosen"], data["rejected"] (n b t)
  dpo  models["policy"], ["ref"] causal LMs    data["chosen"], data["rejected"] (n b t); the
       reference is asked at every step, as the others do
  ppo  models["policy"], ["ref"] causal LMs, ["value"], ["reward"] sequence classifiers
       data["prompts"] (n b t); no stop token, so every row has all its new tokens
"""
from types import SimpleNamespace

import torch

from rlhf_nb.learning import Recipe, start, update
from rlhf_nb.tokens import Pairs, Seqs


def seqs(ids, first):
    "Full rows without pads; the response begins at position `first`."
    mask = torch.ones_like(ids, dtype=torch.bool)
    return Seqs(ids, mask, mask & (torch.arange(ids.shape[1], device=ids.device) >= first))


def setup(task, spec, models, data):
    recipe = Recipe(lr=spec["lr"], n_steps=10**6, warmup=0, batch_size=spec["batch"],
                    micro_batch=spec["batch"], floor=1.,
                    precision="bf16" if spec.get("bf16") else "no")
    if task == "sft":
        from rlhf_nb.sft import sft_loss
        learner, ids = start(models["policy"], recipe), data["input_ids"]
        return lambda i: step(learner, seqs(ids[i], 1), sft_loss)
    if task == "rm":
        from rlhf_nb.models import ScalarModel
        from rlhf_nb.reward import reward_loss
        policy, first = models["policy"], data["prompt_len"]
        learner = start(ScalarModel(policy.base_model, policy.score), recipe)
        return lambda i: step(learner, Pairs(seqs(data["chosen"][i], first),
                                             seqs(data["rejected"][i], first)), reward_loss)
    if task == "dpo":
        from functools import partial
        from rlhf_nb.dpo import preference_loss, sigmoid_loss, with_reference
        learner, first = start(models["policy"], recipe), data["prompt_len"]
        loss = preference_loss(partial(sigmoid_loss, beta=spec["beta"]))
        pairs = lambda i: Pairs(seqs(data["chosen"][i], first), seqs(data["rejected"][i], first))
        return lambda i: step(learner, with_reference(models["ref"], pairs(i)), loss)
    if task == "ppo": return ppo(spec, models, data)
    raise ValueError(f"this plugin runs sft, rm, dpo and ppo, got {task!r}")


def ppo(spec, models, data):
    from rlhf_nb.models import ScalarModel
    from rlhf_nb.ppo import PPO, ActorCritic, practise
    from rlhf_nb.reward import pooled
    from rlhf_nb.sampling import Sampling, collect
    critic, rm = [ScalarModel(models[k].base_model, models[k].score) for k in ("value", "reward")]
    model = ActorCritic(models["policy"], critic)
    how = PPO(n_prompts=spec["batch"], epochs=spec["epochs"], minibatches=spec["minibatches"],
              micro_batch=spec["batch"], beta=spec["kl_coef"], value_weight=spec["vf_coef"])
    learner = start(model, Recipe(lr=spec["lr"], n_steps=10**6, warmup=0, floor=1.,
        micro_batch=how.micro_batch, precision="bf16" if spec.get("bf16") else "no"))
    never = SimpleNamespace(pad_token_id=0, eos_token_id=10**9)
    gen, sampling = torch.Generator().manual_seed(0), Sampling(spec["response"])
    def run(i):
        roll = collect(model.policy, models["ref"], data["prompts"][i].tolist(),
                       lambda s: pooled(rm, s), never, sampling, gen, batch_size=how.n_prompts)
        practise(learner, roll, how, never.eos_token_id, gen)
        return {}
    return run


def step(learner, batch, loss_fn):
    update(learner, batch, loss_fn)
    return {}
