"PPO against enumeration, autograd in float64, and runs that are cut, killed and spoiled."
import math, os, shutil, signal, pytest, torch
from dataclasses import fields, replace
from functools import partial
from torch import nn
from torch.testing import assert_close
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
from rlhf_nb.trainers import ppo_trainer
from rlhf_nb.kl import exact_kl, kl_k3
from rlhf_nb.base.processes import stop_after_step
from rlhf_nb.trainers.ppo_trainer import (AdaptiveKLController, METRICS, PPOConfig, RLTask, add_score_column,
    checked_reward_fn, make_experience, next_prompts, minibatch_loss, rollout_rewards, ppo_update,
    reward_mask, rollout_metrics, train_ppo)
from rlhf_nb.base.checkpoints import list_checkpoints
from rlhf_nb.base.learning import make_trainer, TrainConfig, accumulate_gradients
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.models import ScalarModel, frozen_copy
from rlhf_nb.base.settings import weight_hash
from rlhf_nb.best_policy import optimal_policy
from rlhf_nb.worlds.oracle import all_logprobs, expectation, bigram_lm, micro_tokenizer
from rlhf_nb.ppo import ActorCritic, clipped_value_loss, gae
from rlhf_nb.base.scores import ScoreNormalizer
from rlhf_nb.trainers.reward_tools import make_reward_fn
from rlhf_nb.base.sampling import SamplingParams, collect_rollout
from rlhf_nb.base.batches import Rollout
from rlhf_nb.tokens import Batch, Seqs, make_seqs
from test_ppo import WORLD, actor, seeded, slow_gae

torch.set_num_threads(1)
TOK = micro_tokenizer(WORLD)
NUMBER = {response: i for i, response in enumerate(WORLD.responses())}
REWARD = torch.tensor([w.count("kind") - w.count("rude") for w in WORLD.texts()]).float()

def reward_fn(seqs):
    responses = [tuple(row[m].tolist()) for row, m in zip(seqs.ids, seqs.response_mask)]
    return REWARD[[NUMBER[y] for y in responses]]

TASK = RLTask([[WORLD.start]] * 5, reward_fn, TOK, SamplingParams(WORLD.max_len))
SMALL = PPOConfig(n_iterations=4, n_prompts=24, n_minibatches=3, lr=.05, beta=.5, micro_batch_size=24)

def rollout(model, n=32, seed=0):
    return collect_rollout(model.policy, frozen_copy(bigram_lm(WORLD).float()), [[WORLD.start]] * n, reward_fn, TOK,
                   TASK.sampling, seeded(seed))

WRONG = [("n_iterations", 0), ("n_prompts", 0), ("n_epochs", -1), ("n_minibatches", 0), ("micro_batch_size", 0), ("lr", 0.),
         ("temperature", 0.), ("beta", math.inf), ("max_kl", math.nan), ("missing_eos_penalty", -1.), ("gamma", 1.1), ("lam", 1.5),
         ("cliprange", 0.), ("cliprange_value", -1.), ("vf_coef", -.1), ("entropy_coef", math.nan), ("mixed_precision", "fp8"),
         ("critic_lr", -1.), ("warmup_steps", -1), ("final_lr_frac", 1.5), ("max_grad_norm", 0.), ("weight_decay", -.1),
         ("generation_batch_size", -1), ("save_every", 0), ("lag", -1), ("importance_sampling_cap", -1.), ("importance_sampling_min", math.nan),
         ("importance_sampling_mode", "token")]
WRONG_TYPE = [("n_epochs", 2.), ("lr", "1e-3"), ("kl_controller", .1), ("kl_estimator", "k1"), ("score_after_eos", 1),
              ("whiten_rewards", "no"), ("gamma", True), ("mixed_precision", 16), ("optimizer", "adamw")]

def test_every_setting_is_checked_by_name():
    for name, value in WRONG + WRONG_TYPE:
        with pytest.raises((ValueError, TypeError), match=rf"PPOConfig\.{name} must be"): PPOConfig(**{name: value})
    assert {name for name, _ in WRONG + WRONG_TYPE} == {field.name for field in fields(PPOConfig)}
    PPOConfig(max_kl=math.inf, cliprange=math.inf, cliprange_value=1e9, beta=0, lr=1, gamma=0)
    with pytest.raises(ValueError, match="PPOConfig.n_prompts must be a multiple of n_minibatches, got 100"):
        PPOConfig(n_prompts=100, n_minibatches=8)
    with pytest.raises(TypeError, match="RLTask.reward_fn"): replace(TASK, reward_fn=1.)
    with pytest.raises(TypeError, match="RLTask.sampling"): replace(TASK, sampling=3)

def test_clip_fractions_count_where_the_clipped_loss_is_the_larger():
    model, config = transformer(), PPOConfig(cliprange=.1, cliprange_value=.05)
    x = make_experience(model, ragged(), config, EOS_ID)
    with torch.no_grad():
        x = replace(x, logp=ppo_trainer.logprobs_and_entropy(model.policy, x.seqs)[0])     # as if it had sampled them
        for p in model.parameters(): p.add_(.05 * torch.randn(p.shape, generator=seeded(3)))
        _, n, sums = minibatch_loss(model, x, config)
        ratio = (ppo_trainer.logprobs_and_entropy(model.policy, x.seqs)[0] - x.logp).exp()
        value, mask = model.values(x.seqs), x.seqs.response_mask
    pg, pg_clipped = -x.advantage * ratio, -x.advantage * ratio.clamp(.9, 1.1)
    vf = (value - x.returns)**2
    vf_clipped = (value.clamp(x.value - .05, x.value + .05) - x.returns)**2
    want = [(a > b)[mask].float().mean() for a, b in ((pg_clipped, pg), (vf_clipped, vf))]
    assert_close(sums["policy/clipfrac_avg"] / n, want[0])
    assert_close(sums["val/clipfrac_avg"] / n, want[1])
    assert .1 < want[0] < ((ratio - 1).abs() > .1)[mask].float().mean() - .1
    assert .1 < want[1] < ((value - x.value).abs() > .05)[mask].float().mean() - .1

def test_first_step_is_the_policy_gradient():
    "With ratio 1 the clipped loss has the gradient of -advantage * log p."
    model = actor()
    x = make_experience(model, rollout(model), SMALL, WORLD.eos)
    loss, n, sums = minibatch_loss(model, x, replace(SMALL, vf_coef=0.))
    got = torch.autograd.grad(loss, model.policy.head.weight)[0]
    want = torch.autograd.grad(-(x.advantage * logprobs(model.policy, x.seqs)).sum(), model.policy.head.weight)[0]
    assert_close(got, want)
    assert_close(sums["val/ratio"] / n, torch.tensor(1.))
    assert n == x.seqs.response_mask.sum()

def test_entropy_is_paid_for():
    model = actor()
    x = make_experience(model, rollout(model), SMALL, WORLD.eos)
    paid, n, sums = minibatch_loss(model, x, replace(SMALL, entropy_coef=.3))
    assert sums["policy/entropy_avg"] / n > .5
    assert_close(minibatch_loss(model, x, SMALL)[0] - paid, .3 * sums["policy/entropy_avg"])

def wider(x, n=3): # n more columns of padding
    if isinstance(x, Batch): return type(x)(*[wider(part, n) for part in x.parts()])
    return nn.functional.pad(x, (0, n)) if x.dim() == 2 else x

def test_rewards_cut_empty_and_k3():
    seqs = make_seqs([[WORLD.start]] * 3, [[1, WORLD.eos], [0, 0, 1], []], WORLD.pad)
    logp, ref = torch.full((2, *seqs.ids.shape), -1.)
    ref = ref - .5
    roll = Rollout(seqs, torch.arange(3), logp, ref, torch.tensor([2., 3., 7.]))
    got = rollout_rewards(roll, PPOConfig(beta=.2, missing_eos_penalty=1.), WORLD.eos)
    assert_close(got, torch.tensor([[0, -.1, 1.9, 0], [0, -.1, -.1, 1.9], [0, 0, 0, 0.]]))
    k3 = rollout_rewards(roll, PPOConfig(beta=.2, kl_estimator=kl_k3), WORLD.eos)
    assert_close(k3[0, 1].item(), -.2 * (math.exp(-.5) - 1 + .5), rtol=1e-5, atol=0)
    advantage, _ = gae(got, 0 * got, seqs.response_mask)
    assert not advantage[2].any()                        # an empty response teaches nothing
    row = rollout_metrics(roll, PPOConfig(beta=.2), WORLD.eos)
    assert_close(row["objective/kl"], (1. + 1.5 + 0) / 3)
    assert_close(row["objective/rlhf_reward"], 4 - .2 * 2.5 / 3)
    assert row["val/num_eos_tokens"] == 1

@pytest.mark.parametrize("seed, heat, more", [(0, 1., {}), (1, 1., {}), (0, .6, dict(lr=.02, lam=.95))])
def test_converges_to_the_closed_form(seed, heat, more):
    "At temperature T the policy is softmax(logits / T), and so is its optimum."
    def logprobs_of(lm):
        lm = frozen_copy(lm)
        with torch.no_grad(): lm.head.weight /= heat
        return all_logprobs(lm, WORLD).detach().double()
    model = actor(seed)
    ref = frozen_copy(model.policy)
    ref_hash, start = weight_hash(ref), logprobs_of(ref)
    config = dict(n_iterations=60, n_prompts=256, micro_batch_size=256, lr=.03, beta=.5, vf_coef=1., temperature=heat)
    train_ppo(model, ref, TASK, PPOConfig(**config | more), seeded(seed))
    now = logprobs_of(model.policy)
    best, log_z = optimal_policy(start, REWARD.double(), .5)
    value = expectation(now, REWARD.double()) - .5 * exact_kl(now, start)
    # rollouts of 256 leave a total variation near .02; untrained it is .5
    assert (now.exp() - best.exp()).abs().sum() / 2 < .08
    assert .5 * log_z - (.03 if heat == 1. else .02) < value <= .5 * log_z + 1e-6
    assert weight_hash(ref) == ref_hash

OTHER = dict(        # another value of every setting
    n_iterations=5, lr=.01, warmup_steps=3, final_lr_frac=.5, max_grad_norm=2., weight_decay=.1, optimizer=torch.optim.SGD,
    micro_batch_size=7, generation_batch_size=3, mixed_precision="bf16", temperature=.5, save_every=2,
    lag=1, importance_sampling_cap=3., importance_sampling_min=.5, importance_sampling_mode="sequence_mask",
    n_prompts=12, n_epochs=1, n_minibatches=2, critic_lr=.02, beta=.2, kl_controller=AdaptiveKLController(.3), max_kl=9., kl_estimator=kl_k3,
    missing_eos_penalty=1., score_after_eos=True, whiten_rewards=True, gamma=.9, lam=.5, cliprange=.1,
    cliprange_value=.3, vf_coef=.2, entropy_coef=.1)

CAPPED = replace(SMALL, n_iterations=2, importance_sampling_cap=2.)    # a mode needs a cap

@pytest.fixture(scope="module")
def two_iterations(tmp_path_factory): # a run's folder
    folder = tmp_path_factory.mktemp("ppo")/"run"
    train_ppo(actor(), frozen_copy(actor().policy), TASK, CAPPED, seeded(7), folder)
    return folder

def test_no_setting_may_change_when_a_run_goes_on_but_how_long_and_how_often_it_saves(two_iterations, tmp_path):
    assert list(OTHER) == [field.name for field in fields(PPOConfig)]
    config, ref, checked = CAPPED, frozen_copy(actor().policy), 0
    for name, value in OTHER.items():
        assert value != getattr(config, name)
        if name in ("n_iterations", "save_every"): continue
        with pytest.raises(ValueError, match=rf"another run.*config\.{name} was"):
            train_ppo(actor(), ref, TASK, replace(config, **{name: value}), seeded(7), two_iterations)
        checked += 1
    assert checked == 31
    whole, more = actor(), actor()
    shutil.copytree(two_iterations, tmp_path/"run")
    train_ppo(whole, ref, TASK, replace(config, n_iterations=5), seeded(7))
    trainer = train_ppo(more, ref, TASK, replace(config, n_iterations=5), seeded(7), tmp_path/"run")
    assert weight_hash(more) == weight_hash(whole) and trainer.log.rows[-1]["iteration"] == 5

def test_neither_another_task_nor_another_reference_nor_seed_goes_on(two_iterations):
    config, ref = replace(CAPPED, n_iterations=3), frozen_copy(actor().policy)
    rm = ScalarModel.from_lm(actor().policy).requires_grad_(False)
    with torch.no_grad(): other = actor().policy; other.head.weight.add_(.01)
    for name, task, reference, seed in (
            ("prompts.rows", replace(TASK, prompts=TASK.prompts[:-1]), ref, 7),
            ("prompts.hash", replace(TASK, prompts=[[WORLD.start, 1]] * 5), ref, 7),
            ("reward_fn", replace(TASK, reward_fn=make_reward_fn(rm, ScoreNormalizer(0., 1.))), ref, 7),
            ("sampling.max_new_tokens", replace(TASK, sampling=SamplingParams(2)), ref, 7),
            ("ref", TASK, frozen_copy(other), 7), ("generator_seed", TASK, ref, 8)):
        with pytest.raises(ValueError, match=rf"another run: {name} was"):
            train_ppo(actor(), reference, task, config, seeded(seed), two_iterations)

def test_another_reward_model_or_normalizer_behind_the_same_reward_fn_is_refused(tmp_path):
    rm, config, ref = actor().critic.requires_grad_(False), replace(SMALL, n_iterations=1), frozen_copy(actor().policy)
    def task(model, std): return replace(TASK, reward_fn=make_reward_fn(model, ScoreNormalizer(0., std)))
    train_ppo(actor(), ref, task(rm, 1.), config, seeded(), tmp_path)
    for model, std, name in ((rm, 2., "normalizer.std"), (actor(1).critic.requires_grad_(False), 1., "model")):
        with pytest.raises(ValueError, match=rf"another run: reward_fn.{name} was"):
            train_ppo(actor(), ref, task(model, std), config, seeded(), tmp_path)

STEERED = replace(SMALL, kl_controller=AdaptiveKLController(.1, 1000))

def steered(folder=None, seed=0): # hash of the weights, rows of the log without seconds
    model = actor(seed)
    trainer = train_ppo(model, frozen_copy(actor().policy), TASK, STEERED, seeded(7), folder)
    return weight_hash(model), [{k: v for k, v in row.items() if k != "seconds"} for row in trainer.log.rows]

@pytest.fixture(scope="module")
def whole():
    found = steered()
    betas = [row["objective/kl_coef"] for row in found[1] if "iteration" in row]
    assert len(betas) == 4 and len(set(betas)) > 1
    return found

@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a copy of this process")
@pytest.mark.parametrize("at", range(1, 32, 3))
def test_killed_while_it_writes_it_goes_on_bit_for_bit(tmp_path, at, whole):
    "The process dies at its k-th call that writes a checkpoint; what it leaves goes on as if it had not."
    pid, calls = os.fork(), []
    if not pid:
        def deadly(fn):
            def call(*args, **kwargs):
                calls.append(fn)
                if len(calls) == at: os.kill(os.getpid(), signal.SIGKILL)
                return fn(*args, **kwargs)
            return call
        for module, name in ((os, "fsync"), (os, "rename"), (os, "replace"), (shutil, "rmtree")):
            setattr(module, name, deadly(getattr(module, name)))
        try: steered(tmp_path)
        finally: os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert steered(tmp_path, seed=1 if list_checkpoints(tmp_path) else 0) == whole

@pytest.mark.parametrize("fault,message", [
    (lambda s: torch.where(s.ids[:, 1] == 0, math.nan, 1.), "row 2.*very"),
    (lambda s: torch.ones(len(s), 2), "one number per row"),
    (lambda s: [{1: 1., 2: 1., 3: 1.}[i] for i in s.ids[:, 1].tolist()], "KeyError.*2.*very")])
def test_reward_faults_name_the_row(fault, message):
    seqs = make_seqs([[WORLD.start]] * 3, [[1, 3], [2, 3], [0, 3]], WORLD.pad)
    with pytest.raises(ValueError, match=message): checked_reward_fn(fault, TOK)(seqs)

def test_a_late_fault_keeps_the_last_checkpoint(tmp_path):
    calls = []
    def breaks(seqs):
        calls.append(1)
        return reward_fn(seqs) * (math.nan if len(calls) == 3 else 1.)
    model, ref = actor(), frozen_copy(actor().policy)
    with pytest.raises(ValueError, match="nan for row 0"):
        train_ppo(model, ref, replace(TASK, reward_fn=breaks), SMALL, seeded(), tmp_path)
    assert list_checkpoints(tmp_path)[-1].name.endswith(f"step-{2 * SMALL.n_epochs * 3}")

def test_divergence_puts_the_last_good_weights_back():
    model, ref = actor(), frozen_copy(actor().policy)
    seen = []
    def callback(row, roll): seen.append(weight_hash(model))
    with pytest.raises(ValueError, match="raise beta or lower lr"):
        train_ppo(model, ref, TASK, replace(SMALL, lr=3., beta=0., max_kl=.3, n_iterations=9),
                  seeded(), callback=callback)
    before = [weight_hash(actor()), *seen]
    assert weight_hash(model) in before[:-1] and weight_hash(model) != before[-1]

def test_a_kl_of_nan_is_beyond_every_limit(monkeypatch):
    metrics = ppo_trainer.rollout_metrics
    monkeypatch.setattr(ppo_trainer, "rollout_metrics", lambda *args: metrics(*args) | {"objective/kl": math.nan})
    model = actor()
    trainer = make_trainer(model, TrainConfig())
    with pytest.raises(ValueError, match="a response is nan nats from the reference"):
        ppo_trainer.ppo_rollout(trainer, frozen_copy(model.policy), TASK, SMALL, seeded(), {})

def test_without_a_limit_no_weights_are_kept():
    kept, model = {}, actor()
    trainer, ref = make_trainer(model, TrainConfig()), frozen_copy(model.policy)
    ppo_trainer.ppo_rollout(trainer, ref, TASK, replace(SMALL, max_kl=math.inf), seeded(), kept)
    assert not kept
    ppo_trainer.ppo_rollout(trainer, ref, TASK, SMALL, seeded(), kept)
    assert kept.keys() == {k for k, p in model.named_parameters() if p.requires_grad}
    assert all(torch.equal(x, p) and x.data_ptr() != p.data_ptr() for x, p in zip(kept.values(), model.parameters()))

def test_the_critic_may_learn_at_its_own_rate():
    def trained(**change):
        model = actor()
        train_ppo(model, frozen_copy(model.policy), TASK, replace(SMALL, max_grad_norm=math.inf, **change), seeded())
        return model
    start, same, slow = actor(), trained(), trained(critic_lr=1e-9)
    assert weight_hash(trained(critic_lr=SMALL.lr)) == weight_hash(same)      # one group, as if nothing was said
    def moved(model, part): return max((a - b).abs().max().item() for a, b in zip(
        getattr(model, part).parameters(), getattr(start, part).parameters()))
    assert moved(slow, "critic") < 1e-6 < 1e-3 < min(moved(same, "critic"), moved(slow, "policy"))

def test_the_rate_of_both_falls_as_one(monkeypatch):
    rates, model = [], actor()
    real = ppo_trainer.train_step
    def step(trainer, *args):
        row = real(trainer, *args)
        rates.append([group["lr"] for group in trainer.optimizer.param_groups])
        return row
    monkeypatch.setattr(ppo_trainer, "train_step", step)
    config = replace(SMALL, n_iterations=5, n_epochs=1, n_minibatches=1, lr=.01, critic_lr=.02, warmup_steps=2, final_lr_frac=0.)
    train_ppo(model, frozen_copy(model.policy), TASK, config, seeded())
    assert_close(torch.tensor(rates), torch.tensor([[.005, .01], [.01, .02], [.01, .02], [.005, .01], [0., 0.]]))

def test_responses_are_sampled_in_batches_of_their_own(sampled_sizes):
    ids = []
    for n in (0, 5):
        model = actor()
        config = replace(SMALL, micro_batch_size=12, n_prompts=12, n_minibatches=1, generation_batch_size=n)
        args = make_trainer(model, TrainConfig()), frozen_copy(model.policy), TASK, config, seeded(), {}
        ids.append(ppo_trainer.ppo_rollout(*args)[0].seqs.ids)
    assert sampled_sizes == [12, 5, 5, 2] and torch.equal(*ids)                  # the same responses

def test_checkpoints_come_every_few_rollouts_at_the_end_and_at_a_stop(tmp_path):
    config, ref = replace(SMALL, n_iterations=5, save_every=2), frozen_copy(actor().policy)
    whole, seen = actor(), []
    def callback(row, roll): seen.append([int(p.name.split("-")[0]) for p in list_checkpoints(tmp_path/"a")])
    train_ppo(whole, ref, TASK, config, seeded(7), tmp_path/"a", callback)
    assert seen == [[], [0], [0], [1], [2]]
    def ask(row, roll):
        if row["iteration"] == 3: os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), stop_after_step():
        train_ppo(actor(), ref, TASK, config, seeded(7), tmp_path/"b", ask)
    assert [p.name.split("-")[0] for p in list_checkpoints(tmp_path/"b")] == ["000001"]   # rollout 2, and the stop
    with pytest.raises(KeyboardInterrupt), stop_after_step():
        train_ppo(actor(), ref, TASK, replace(config, save_every=1), seeded(7), tmp_path/"c", ask)
    assert [p.name.split("-")[0] for p in list_checkpoints(tmp_path/"c")] == ["000002"]   # none twice
    resumed, n = actor(1), []
    train_ppo(resumed, ref, TASK, config, seeded(7), tmp_path/"b", lambda row, roll: n.append(row["iteration"]))
    assert n == [4, 5] and weight_hash(resumed) == weight_hash(whole)

def test_prompts_come_once_per_pass():
    queue, seen, g = [], [], seeded(0)
    for _ in range(6): seen += next_prompts(5, 10, queue, g)
    assert sorted(seen) == sorted(list(range(10)) * 3)
    assert sorted(seen[:10]) == list(range(10)) and seen[:10] != list(range(10))

def test_metrics_are_named_and_explained():
    row = train_ppo(actor(), frozen_copy(actor().policy), TASK, SMALL, seeded()).log.rows[-1]
    assert set(METRICS) <= set(row), set(METRICS) - set(row)

def test_answers_are_scored_at_the_temperature_that_was_sampled():
    model, config = actor(), replace(SMALL, temperature=.5)
    roll = collect_rollout(model.policy, frozen_copy(model.policy), [[WORLD.start]] * 64, reward_fn, TOK,
                   replace(TASK.sampling, temperature=.5), seeded())
    _, n, sums = minibatch_loss(model, make_experience(model, roll, config, WORLD.eos), config)
    assert_close(sums["val/ratio"] / n, torch.tensor(1.))
    _, n, sums = minibatch_loss(model, make_experience(model, roll, SMALL, WORLD.eos), SMALL)
    assert abs(sums["val/ratio"] / n - 1) > .01 # scored at 1: not the policy that sampled

# ---- the score one position past eos, with ragged prompts
V, PAD_ID, EOS_ID = 14, 0, 1
AFTER = PPOConfig(beta=.3, gamma=.98, lam=.9, score_after_eos=True, missing_eos_penalty=.5, micro_batch_size=100,
                  entropy_coef=.1, vf_coef=.7)

def ragged(n=11, seed=0):
    "Prompts of 1 to 5 tokens, responses of 0 to 7; two in three end with eos, the longest row, too."
    g = seeded(seed)
    def ids(k): return torch.randint(2, V, (k,), generator=g).tolist()
    lengths = torch.randint(0, 8, (n,), generator=g).tolist()
    responses = [[] if k == 0 else ids(k) if i % 3 == 1 else ids(k - 1) + [EOS_ID] for i, k in enumerate(lengths)]
    responses[0] = ids(7) + [EOS_ID]
    seqs = make_seqs([ids(5 if i == 0 else 1 + i % 5) for i in range(n)], responses, PAD_ID)
    logp, ref_logp = -2 * torch.rand(2, *seqs.ids.shape, generator=g) * seqs.response_mask
    return Rollout(seqs, torch.arange(n), logp, ref_logp, torch.randn(n, generator=g))

def transformer(seed=0):
    config = GPTNeoXConfig(vocab_size=V, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                           intermediate_size=32, max_position_embeddings=64, initializer_range=.3)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        policy, critic = GPTNeoXForCausalLM(config).eval(), ScalarModel.from_lm(GPTNeoXForCausalLM(config), seed)
    model = ActorCritic(policy, critic.eval())
    with torch.no_grad(): model.critic.score.weight.normal_(generator=seeded(seed))
    return model

@torch.no_grad()
def one_row_at_a_time(model, roll, config):
    "Rewards, values, advantages before whitening and returns of each row, without any padding."
    for row in (roll[[i]] for i in range(len(roll))):
        keep = row.seqs.attention_mask[0]
        ids, response = row.seqs.ids[0][keep], row.seqs.response_mask[0][keep].tolist()
        start, end = len(ids) - sum(response), len(ids)
        penalty = (-config.beta * (row.logp - row.ref_logp))[0][keep].tolist()[start:]
        ended = end > start and ids[-1] == EOS_ID
        rewards = penalty + [0.] * bool(ended)
        score = row.reward.item() - config.missing_eos_penalty * (not ended)
        if rewards: rewards[-1] += score
        mask = torch.ones(1, end, dtype=torch.bool)
        values = model.critic(Seqs(ids[None], mask, mask))[0].tolist()[start - 1:start - 1 + len(rewards)]
        advantage = slow_gae(rewards, values, config.gamma, config.lam)
        yield start, rewards, values, advantage, [a + v for a, v in zip(advantage, values)]

@pytest.mark.parametrize("more", [0, 3])
@pytest.mark.parametrize("micro", [1, 3, 100])
def test_the_position_after_eos_is_that_of_the_row_alone(monkeypatch, more, micro):
    monkeypatch.setattr(ppo_trainer, "masked_whiten", lambda x, mask, shift_mean=True: x.masked_fill(~mask, 0.))
    model, plain = transformer(), ragged()
    roll = wider(plain, more)
    rewards = rollout_rewards(roll, AFTER, EOS_ID)
    x = make_experience(model, roll, replace(AFTER, micro_batch_size=micro), EOS_ID)
    lengths = []
    for i, (start, *want) in enumerate(one_row_at_a_time(model, plain, AFTER)):
        at = x.reward_mask[i]
        assert at.nonzero().flatten().tolist() == list(range(start, start + len(want[0])))
        lengths.append(len(want[0]) - int(x.seqs.response_mask[i].sum()))
        if not at.any(): continue
        for got, row in zip((rewards[i][at], x.value[i][at], None, x.returns[i][at]), want):
            if got is not None: assert_close(got, torch.tensor(row), atol=1e-5, rtol=1e-5)
        response = x.seqs.response_mask[i]
        assert_close(x.advantage[i][response], torch.tensor(want[2])[:response.sum()], atol=1e-5, rtol=1e-5)
    assert {0, 1} == set(lengths) and lengths[0] == 1            # the longest row has its position, cut rows have none
    assert not rewards[~x.reward_mask].any()

def test_micro_batches_are_the_batch_where_the_score_stands_after_eos():
    model, results = transformer(), []
    x = make_experience(model, ragged(), AFTER, EOS_ID)
    with torch.no_grad():                                        # so that clips and ratios count
        for p in model.parameters(): p.add_(.02 * torch.randn(p.shape, generator=seeded(3)))
    loss_fn = partial(minibatch_loss, config=AFTER, whole=x)
    for micro in (100, 3, 1):
        trainer = make_trainer(model, TrainConfig(micro_batch_size=micro))
        trainer.optimizer.zero_grad()
        loss, weight, metrics = accumulate_gradients(trainer, x, loss_fn)
        results.append((loss, metrics, torch.cat([p.grad.flatten() for p in model.parameters()])))
    whole, n, _ = minibatch_loss(model, x, AFTER)                      # by itself a batch is whole
    assert results[0][0] == pytest.approx((whole / n).item()) and weight == n
    with torch.no_grad(): of_values = clipped_value_loss(model.values(x.seqs), x.value, x.returns, AFTER.cliprange_value)[x.reward_mask]
    assert len(of_values) > n and results[0][1]["loss/value_avg"] == pytest.approx(of_values.mean().item())    # over values, not tokens
    for loss, metrics, gradient in results[1:]:
        assert loss == pytest.approx(results[0][0], abs=1e-6)
        assert metrics == pytest.approx(results[0][1], abs=1e-6)
        assert_close(gradient, results[0][2], atol=1e-6, rtol=1e-4)

@pytest.mark.parametrize("micro", [1, 3])
def test_an_update_is_the_same_for_any_micro_batch_size(micro):
    rows = []
    for size in (100, micro):
        model, config = transformer(), replace(AFTER, n_prompts=11, n_epochs=1, micro_batch_size=size)
        trainer = make_trainer(model, TrainConfig(lr=1e-3, micro_batch_size=size))
        model.eval()
        ppo_update(trainer, ragged(), config, EOS_ID, seeded())
        rows.append({k: v for k, v in trainer.log.rows[0].items() if k != "seconds"})
    assert rows[0] == pytest.approx(rows[1], abs=1e-5, rel=1e-5)

def test_a_column_is_added_only_where_an_eos_is_in_the_last():
    roll = ragged()
    made = add_score_column(roll, AFTER, EOS_ID, pad=9)
    assert made.seqs.ids.shape == made.logp.shape == made.ref_logp.shape == (11, roll.logp.shape[1] + 1)
    assert (made.seqs.ids[:, -1] == 9).all() and not made.seqs.attention_mask[:, -1].any()
    assert add_score_column(made, AFTER, EOS_ID) is made                     # there is room now
    assert add_score_column(roll, PPOConfig(), EOS_ID) is roll               # nothing stands behind eos
    cut = roll[~(roll.seqs.ids == EOS_ID).any(1)]
    assert len(cut) > 2 and add_score_column(cut, AFTER, EOS_ID) is cut
    with pytest.raises(ValueError, match=r"rows \[0\] end in the last.*add_score_column"):
        reward_mask(roll.seqs, AFTER, EOS_ID)
    assert torch.equal(reward_mask(roll.seqs, PPOConfig(), EOS_ID), roll.seqs.response_mask)

def test_a_run_with_the_score_after_eos():
    config, seen, model = replace(SMALL, score_after_eos=True, micro_batch_size=5), [], actor()
    trainer = train_ppo(model, frozen_copy(bigram_lm(WORLD).float()), TASK, config, seeded(),
                        callback=lambda row, roll: seen.append(roll))
    for roll in seen:                       # what a callback makes of a rollout has the rollout's shape
        assert make_experience(model, roll, config, WORLD.eos).value.shape == roll.seqs.ids.shape
    assert len(seen) == 4 and math.isfinite(trainer.log.rows[-1]["loss/value_avg"])

def test_whitening_reads_the_response_tokens_and_no_other_position():
    "By hand: mean and deviation of the advantages of answers alone, though prompts and the position after eos have numbers."
    model, roll = transformer(), ragged()
    x, parts = make_experience(model, roll, AFTER, EOS_ID), []
    for i, (_, _, _, advantage, _) in enumerate(one_row_at_a_time(model, roll, AFTER)):
        parts += advantage[:int(x.seqs.response_mask[i].sum())]
    raw = torch.tensor(parts)
    assert_close(x.advantage[x.seqs.response_mask], (raw - raw.mean()) / raw.std(unbiased=False), atol=1e-4, rtol=1e-4)

def test_whitened_rewards_count_the_position_after_eos_too():
    model, roll, config = transformer(), ragged(), replace(AFTER, whiten_rewards=True)
    raw = torch.tensor([r for _, rewards, *_ in one_row_at_a_time(model, roll, AFTER) for r in rewards])
    at = make_experience(model, roll, config, EOS_ID).reward_mask
    assert len(raw) == at.sum() > roll.seqs.response_mask.sum()
    assert_close(rollout_rewards(roll, config, EOS_ID)[at], (raw - raw.mean()) / raw.std(unbiased=False) + raw.mean(), atol=1e-4, rtol=1e-4)
