"""The same tensors through TRL's PPO trainer and through ours; skipped where TRL has no PPO (after 1.12).

One update of TRL's trainer runs on tiny models whose answers end at different places. What it saw (answers) and
what it made of them (rewards, advantages, losses, gradients) is caught on the way and compared. We differ on
purpose in three things: our score stands at eos (`score_after_eos` reproduces theirs); with `score_after_eos` a
response whose eos is the last token allowed has a position behind it like any other (their tensors end there, so
the score stays at eos: no row here is one); and our whitening divides by the population's std (theirs, by the
sample's, is put in its place here).
"""
from types import SimpleNamespace
import pytest, torch, rlhf_nb.trainers.ppo_trainer as ours
from torch.testing import assert_close
from rlhf_nb.kl import kl_k1, kl_k3
from rlhf_nb.base.models import ScalarModel
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.trainers.ppo_trainer import (
    PPOConfig, make_experience, minibatch_loss, rollout_rewards, rollout_metrics)
from rlhf_nb.reward import pooled_scores
from rlhf_nb.base.batches import Rollout, masked_whiten
from rlhf_nb.tokens import Seqs, masked_mean

theirs = pytest.importorskip("trl.experimental.ppo.ppo_trainer",
                             reason="TRL with a PPO trainer (1.12 or older) is not installed")
datasets = pytest.importorskip("datasets")
PAD, EOS, N, PROMPT, NEW, SEED = 0, 1, 24, 5, 12, 11

def make_models():
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, GPTNeoXForSequenceClassification
    config = GPTNeoXConfig(vocab_size=11, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64, pad_token_id=PAD, eos_token_id=EOS,
        bos_token_id=2, num_labels=1, initializer_range=.3)
    made = {}
    for i, name in enumerate(("policy", "ref", "value", "reward")):
        torch.manual_seed(i)
        kind = GPTNeoXForSequenceClassification if i > 1 else GPTNeoXForCausalLM
        made[name] = kind(config).eval()
        if i > 1: continue
        with torch.no_grad():                    # never sample <pad>
            made[name].base_model.final_layer_norm.bias[0] = 5.
            head = made[name].get_output_embeddings().weight
            head[:, 0], head[PAD] = 0., 0.
            head[PAD, 0] = -8.
    return SimpleNamespace(**made)

def make_tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    words = {"<pad>": PAD, "<eos>": EOS, "<bos>": 2, **{f"w{i}": i for i in range(3, 11)}}
    core = Tokenizer(models.WordLevel(words, unk_token="w3"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>",
                                   bos_token="<bos>", padding_side="left")

class Caught(Exception): pass

def run_theirs(m, folder, monkeypatch, epochs=1, **settings):
    "One rollout and `epochs` backward passes of TRL's trainer; what it saw, made and logged."
    seen = dict(whitened=[])
    real_generation, real_whiten = theirs.batch_generation, theirs.masked_whiten
    def generation(*args, **kwargs):
        answers, logits = real_generation(*args, **kwargs)
        seen["answers"] = answers.clone()
        return answers, logits
    def whiten(x, mask, shift_mean=True):
        seen["whitened"].append((x.clone(), mask.clone(), real_whiten(x, mask, shift_mean)))
        return seen["whitened"][-1][2]
    monkeypatch.setattr(theirs, "batch_generation", generation)
    monkeypatch.setattr(theirs, "masked_whiten", whiten)
    g = torch.Generator().manual_seed(SEED)
    rows = dict(input_ids=torch.randint(3, 11, (N, PROMPT), generator=g).tolist())
    data = datasets.Dataset.from_dict(rows)
    args = theirs.PPOConfig(output_dir=str(folder), use_cpu=True, bf16=False, report_to=[],
        save_strategy="no", logging_strategy="no", seed=0, gradient_checkpointing=False,
        disable_tqdm=True, per_device_train_batch_size=N, num_mini_batches=1, num_ppo_epochs=epochs,
        response_length=NEW, total_episodes=N, num_sample_generations=0, stop_token="eos",
        **settings)
    trainer = theirs.PPOTrainer(args=args, processing_class=make_tokenizer(), model=m.policy,
        ref_model=m.ref, reward_model=m.reward, value_model=m.value, train_dataset=data,
        eval_dataset=data)
    def backward(loss):
        loss.backward()
        seen["loss"] = loss.detach()
        seen["grads"] = [None if p.grad is None else p.grad.clone() for p in params(m)]
        seen["weights"] = weights(m)
        if epochs == 1: raise Caught
    def log(metrics):
        seen["metrics"] = metrics
        raise Caught
    monkeypatch.setattr(trainer.accelerator, "backward", backward)
    monkeypatch.setattr(trainer, "log", log)
    with pytest.raises(Caught): trainer.train()
    for part in (m.policy, m.value): part.zero_grad(set_to_none=True)
    return seen

def params(m): return [*m.policy.parameters(), *m.value.parameters()]
def weights(m): return [p.detach().clone() for p in params(m)]

@torch.no_grad()
def set_weights(m, values):
    for p, value in zip(params(m), values): p.copy_(value)

def actor_critic(m):
    critic = ScalarModel(m.value.base_model, m.value.score)
    model = ActorCritic(m.policy, critic)                 # with a copy of it, whose head is zero
    model.critic = critic                                 # here the weights that both trainers share
    return model

def sample_std(x, mask, shift_mean=True):
    "Our whitening with the std of a sample, n - 1 below the line."
    n, mean = mask.sum(), masked_mean(x, mask)
    white = masked_whiten(x, mask) * ((n - 1) / n).sqrt()
    return white if shift_mean else (white + mean).masked_fill(~mask, 0.)

def as_rollout(m, answers, temperature):
    t = torch.arange(answers.shape[1])
    n_eos_before = ((answers == EOS) & (t >= PROMPT)).long().cumsum(1) - (answers == EOS).long()
    mask = n_eos_before <= 0
    seqs = Seqs(answers.masked_fill(~mask, PAD), mask, mask & (t >= PROMPT))
    with torch.no_grad():
        logp, ref = [logprobs(x, seqs, temperature=temperature) for x in (m.policy, m.ref)]
        score = pooled_scores(ScalarModel(m.reward.base_model, m.reward.score), seqs)
    assert not (answers[:, -1] == EOS).any()             # there TRL has no position behind eos, we have
    return Rollout(seqs, torch.arange(N), logp, ref, score)

@pytest.mark.parametrize("temperature,estimator,penalty", [(1., "k1", None), (.7, "k3", .5)])
def test_trl_ppo_arithmetic(tmp_path, monkeypatch, temperature, estimator, penalty):
    m = make_models()
    seen = run_theirs(m, tmp_path, monkeypatch, temperature=temperature, kl_coef=.3, vf_coef=.2,
                      gamma=.98, lam=.9, whiten_rewards=True, kl_estimator=estimator,
                      missing_eos_penalty=penalty)
    (rewards, _, white), (advantages, _, white_advantages) = seen["whitened"]
    roll = as_rollout(m, seen["answers"], temperature + 1e-7)
    lengths = roll.seqs.response_mask.sum(1)
    assert len(set(lengths.tolist())) > 3 and lengths.max() == NEW   # some cut, most ended
    config = PPOConfig(n_prompts=N, beta=.3, vf_coef=.2, gamma=.98, lam=.9, score_after_eos=True,
              temperature=temperature + 1e-7, missing_eos_penalty=penalty or 0.,
              kl_estimator=kl_k1 if estimator == "k1" else kl_k3)
    near = dict(rtol=2e-5, atol=2e-5)
    assert_close(rollout_rewards(roll, config, EOS)[:, PROMPT:], rewards, **near)
    monkeypatch.setattr(ours, "masked_whiten", sample_std)
    config = ours.replace(config, whiten_rewards=True)
    at = ours.reward_mask(roll.seqs, config, EOS)[:, PROMPT:]
    got = rollout_rewards(roll, config, EOS)[:, PROMPT:]
    assert_close(got, white.masked_fill(~at, 0.), **near)
    model = actor_critic(m)
    x, mask = make_experience(model, roll, config, EOS), roll.seqs.response_mask[:, PROMPT:]
    assert_close(x.advantage[:, PROMPT:], white_advantages.masked_fill(~mask, 0.), **near)
    loss, n, _ = minibatch_loss(model, x, config)
    assert_close(loss.detach() / n, seen["loss"], **near)
    (loss / n).backward()
    for mine, want in zip(params(m), seen["grads"]):
        if want is not None: assert_close(mine.grad, want, **near)

def test_logged_numbers_are_those_of_trl(tmp_path, monkeypatch):
    "Means over two updates of one rollout, far enough apart that policy and values are clipped."
    m, penalty = make_models(), .5
    before, clips = weights(m), dict(cliprange=.1, cliprange_value=.05)
    seen = run_theirs(m, tmp_path, monkeypatch, epochs=2, kl_coef=.3, missing_eos_penalty=penalty,
                      learning_rate=.01, gamma=.98, lam=.9, **clips)
    after, config = seen["weights"], PPOConfig(n_prompts=N, beta=.3, gamma=.98, lam=.9, score_after_eos=True,
        temperature=.7 + 1e-7, missing_eos_penalty=penalty, **clips)
    set_weights(m, before)
    monkeypatch.setattr(ours, "masked_whiten", sample_std)
    roll = as_rollout(m, seen["answers"], config.temperature)
    logged, want = rollout_metrics(roll, config, EOS), seen["metrics"]
    for name in ("kl", "entropy", "non_score_reward", "rlhf_reward", "scores"):
        assert logged[f"objective/{name}"] == pytest.approx(want[f"objective/{name}"], rel=2e-5), name
    assert logged["val/num_eos_tokens"] == want["val/num_eos_tokens"] < N
    model, rows = actor_critic(m), []
    x = make_experience(model, roll, config, EOS)
    for now in (before, after):
        set_weights(m, now)
        _, n, sums = minibatch_loss(model, x, config)
        rows.append({name: float(total / n) for name, total in sums.items()})
    for name in ("policy/clipfrac_avg", "val/clipfrac_avg", "loss/policy_avg", "loss/value_avg"):
        assert (rows[0][name] + rows[1][name]) / 2 == pytest.approx(want[name], rel=1e-4, abs=1e-6), name
    assert rows[0]["policy/clipfrac_avg"] == rows[0]["val/clipfrac_avg"] == 0       # ratio 1, values as they were
    ratio = (logprobs(m.policy, x.seqs, temperature=config.temperature) - x.logp).exp()
    beyond = masked_mean(((ratio - 1).abs() > config.cliprange).float(), x.seqs.response_mask)
    assert .05 < rows[1]["policy/clipfrac_avg"] < beyond - .05     # it is not the share beyond the clip
    assert 0 < rows[1]["val/clipfrac_avg"] < 1
