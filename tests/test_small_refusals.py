"What would spoil a run, said before it begins; and the package without what only notebooks need."
import subprocess, sys
from pathlib import Path
import pytest, torch
import rlhf_nb
from rlhf_nb.grpo_trainer import GRPOConfig, train_grpo
from rlhf_nb.models import ScalarModel, add_lora, frozen_copy, load_bundled
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.ppo_trainer import PPOConfig, RLTask, train_ppo
from rlhf_nb.sampling import SamplingParams

def task(tokenizer, prompts, **more): return RLTask(prompts, lambda seqs: torch.zeros(len(seqs)), tokenizer, SamplingParams(**more))

def trainers(policy, ref, job):
    critic = ScalarModel.from_lm(ref)
    yield lambda: train_ppo(ActorCritic(policy, critic), ref, job, PPOConfig(n_iterations=1, n_prompts=4), torch.Generator())
    yield lambda: train_grpo(policy, ref, job, GRPOConfig(n_iterations=1, n_prompts=2, num_generations=2), torch.Generator())

def test_a_policy_without_gradient():
    ref, tokenizer = load_bundled("sft")
    for train in trainers(frozen_copy(ref), ref, task(tokenizer, [[1, 5]])):
        with pytest.raises(ValueError, match="no weight"): train()

def test_a_reward_model_as_critic_stays_a_reward_model():
    ref, tokenizer = load_bundled("sft")
    policy, rm = frozen_copy(ref).requires_grad_(), ScalarModel.from_lm(ref, seed=3)
    kept = {k: x.clone() for k, x in rm.state_dict().items()}
    job = RLTask([[1, 5]] * 4, lambda seqs: torch.arange(len(seqs)).float(), tokenizer, SamplingParams(4))
    model = ActorCritic(policy, rm)
    assert (model.critic.score.weight == 0).all()
    train_ppo(model, ref, job, PPOConfig(n_iterations=1, n_prompts=4, lr=.1), torch.Generator())
    assert (model.critic.score.weight != 0).any()
    assert all(torch.equal(x, kept[k]) for k, x in rm.state_dict().items())
    with pytest.raises(ValueError, match="no weight of the critic"): train_ppo(
        ActorCritic(policy, rm.requires_grad_(False)), ref, job, PPOConfig(n_iterations=1, n_prompts=4), torch.Generator())

def test_one_prompt_beyond_the_models_positions_among_a_thousand():
    ref, tokenizer = load_bundled("sft")
    policy = frozen_copy(ref).requires_grad_()
    n = ref.config.max_position_embeddings
    job = task(tokenizer, [[1, 5]] * 1000 + [[5] * (n - 4)], max_new_tokens=5)
    for train in trainers(policy, ref, job):
        with pytest.raises(ValueError, match=f"too long for a model with {n} positions: the longest prompt has {n - 4}"): train()
    for train in trainers(policy, ref, task(tokenizer, [])):
        with pytest.raises(ValueError, match="needs prompts"): train()

def test_python_m(tmp_path):
    done = subprocess.run([sys.executable, "-m", "rlhf_nb", "--version"], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == rlhf_nb.__version__ and done.returncode == 0, done.stderr

HIDE = """
import sys
class Hidden:
    def find_spec(self, name, *rest):
        if name.split(".")[0] in {"jupyterlab", "matplotlib", "ipywidgets", "nbdev", "datasets", "pyarrow"}:
            raise ImportError(f"{name} is hidden")
sys.meta_path.insert(0, Hidden())
from rlhf_nb import (data, dpo, dpo_tools, grpo, grpo_trainer, kl, learning, models, ppo, ppo_trainer, recipes, reward,
                     rl_recipes, sampling, sft, train_command)
assert "peft" not in sys.modules, "peft is imported where it is first used"
print("whole")
"""

def test_methods_work_without_jupyter_and_matplotlib():
    done = subprocess.run([sys.executable, "-c", HIDE], capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.stdout.strip().endswith("whole"), done.stderr[-3000:]

def test_the_core_is_imported_without_what_it_may_never_need():
    "Three seconds of CPU instead of six: model classes, adapters and launchers come on first use."
    code = ("import rlhf_nb.ppo, sys; print(*{'transformers.modeling_utils', 'peft', 'accelerate', 'matplotlib', "
            "'IPython', 'datasets', 'pandas'} & sys.modules.keys())")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("", 0), done.stderr
