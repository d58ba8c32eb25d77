"Every trainer, small: (language model, tokenizer, generator, move) -> Trainer; `move` takes a model to where it learns."
import random, torch
from dataclasses import replace
from functools import partial
from rlhf_nb.base.batches import PreferencePairs
from rlhf_nb.base.learning import TrainConfig
from rlhf_nb.base.models import ScalarModel, frozen_copy
from rlhf_nb.base.q_networks import QConfig, QNets, make_episodes, q_network
from rlhf_nb.base.sampling import SamplingParams
from rlhf_nb.dpo import precompute_ref_logprobs
from rlhf_nb.grpo import group_normalised
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.reward import train_reward
from rlhf_nb.sft import train_sft
from rlhf_nb.trainers.distill_trainer import DistillConfig, DistillTask, train_distill
from rlhf_nb.trainers.dpo_tools import train_dpo
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, train_grpo
from rlhf_nb.trainers.ppo_trainer import PPOConfig, RLTask, WeightedRewards, train_ppo
from rlhf_nb.trainers.q_trainer import train_q
from rlhf_nb.worlds.world_text import TRAIN, demonstrations, prompt_ids

CONFIG = TrainConfig(lr=1e-3, n_steps=3, batch_size=7, micro_batch_size=3)     # 12 rows: 7, 5, then the next epoch
def seeded(n=0): return torch.Generator().manual_seed(n)
def rows(tokenizer, n=12, seed=0): return demonstrations(tokenizer, TRAIN, n, random.Random(seed))
def pairs_of(tokenizer, n=12): return PreferencePairs(rows(tokenizer, n), rows(tokenizer, n, 1))
def questions(tokenizer, n=4): return [prompt_ids(tokenizer, q) for q in TRAIN[:n]]
scored = []     # sizes of the batches that the reward has seen
def task_of(tokenizer, n=6):
    def reward_fn(seqs):
        scored.append(len(seqs))
        return seqs.response_mask.sum(1) / 10 + (seqs.ids == 7).sum(1)
    return RLTask(questions(tokenizer, 9), reward_fn, tokenizer, SamplingParams(n))

def sft(lm, tokenizer, generator, move): return train_sft(move(lm), rows(tokenizer), CONFIG, generator, rows(tokenizer, 4, 1))

def reward(lm, tokenizer, generator, move):
    return train_reward(move(ScalarModel.from_lm(lm)), pairs_of(tokenizer), CONFIG, generator, pairs_of(tokenizer, 4))

def dpo(lm, tokenizer, generator, move):
    data = precompute_ref_logprobs(move(lm), pairs_of(tokenizer))
    return train_dpo(lm, data, CONFIG, generator, held_out=data)

def ppo(lm, tokenizer, generator, move):
    config = PPOConfig(n_iterations=2, n_prompts=6, n_epochs=1, n_minibatches=2, micro_batch_size=2, score_after_eos=True,
                       whiten_rewards=True, missing_eos_penalty=1., entropy_coef=.01, lag=1, importance_sampling_cap=1.5)
    return train_ppo(move(ActorCritic(lm, ScalarModel.from_lm(lm))), frozen_copy(lm), task_of(tokenizer), config, generator)

def grpo(lm, tokenizer, generator, move, **more):
    config = GRPOConfig(n_iterations=2, n_prompts=3, num_generations=4, micro_batch_size=6, **more)
    return train_grpo(move(lm), frozen_copy(lm), task_of(tokenizer), config, generator)

grpo_dynamic = partial(grpo, advantage_fn=group_normalised, dynamic_sampling=2, importance_sampling_cap=3., lag=1,
                       importance_sampling_mode="sequence_mask", loss_type="grpo",
                       kl_in_loss=True, mask_truncated_completions=True)

def gdpo(lm, tokenizer, generator, move): # two rewards, one silent on some rows
    def some(seqs): return torch.where(seqs.response_mask.sum(1) > 5, (seqs.ids == 7).sum(1).float(), float("nan"))
    task = task_of(tokenizer)
    both = WeightedRewards(dict(first=(1., task.reward_fn), some=(-.5, some)))
    config = GRPOConfig(n_iterations=3, n_prompts=3, num_generations=4, micro_batch_size=6, lag=1, dynamic_sampling=2,
                        advantage_fn=group_normalised, multi_objective_aggregation="normalize_then_sum")
    return train_grpo(move(lm), frozen_copy(lm), replace(task, reward_fn=both), config, generator)

def inserts(prompt, parts): # an environment: two tokens after every second one, twice
    return [7, 9] if len(parts[-1]) == 2 and len(parts) < 5 else []

def tools(lm, tokenizer, generator, move): # what is inserted is no choice; the sampler is two rollouts ahead
    config = GRPOConfig(n_iterations=4, n_prompts=3, num_generations=4, micro_batch_size=6, lag=2, importance_sampling_cap=1.5,
                        importance_sampling_mode="token_mask")
    task = replace(task_of(tokenizer, 9), environment=inserts)
    return train_grpo(move(lm), frozen_copy(lm), task, config, generator)

def nets_of(lm, tokenizer): return QNets(q_network(lm), [tokenizer.pad_token_id])

def q(lm, tokenizer, generator, move):
    episodes = make_episodes(rows(tokenizer), torch.linspace(-1, 1, 12), tokenizer.eos_token_id)
    config = QConfig(double_q=True, target_update_every=2)
    return train_q(move(nets_of(lm, tokenizer)), episodes, CONFIG, config, generator)

def distill(lm, tokenizer, generator, move): # half of the answers are the teacher's, who reads a word more
    teacher, prompts = frozen_copy(lm), questions(tokenizer, 9)
    with torch.no_grad(): teacher.get_output_embeddings().weight.mul_(1.2)
    task = DistillTask(move(teacher), prompts, [[p[0], 7, *p[1:]] for p in prompts], tokenizer, SamplingParams(6))
    config = DistillConfig(n_iterations=2, n_prompts=6, micro_batch_size=2, student_share=.5)
    return train_distill(move(lm), task, config, generator)

RUNS = dict(sft=sft, reward=reward, dpo=dpo, ppo=ppo, grpo=grpo, grpo_dynamic=grpo_dynamic, gdpo=gdpo, tools=tools, q=q, distill=distill)
