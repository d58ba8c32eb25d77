"Every trainer on an accelerator that is only pretended: devices never mix, and the host rarely waits."
import math, re, pytest, torch
from dataclasses import replace
from functools import partial
from torch import nn
from rlhf_nb.base.batches import PreferencePairs, batch_tensors, concat_seqs, host_rows, send_to, to_host
from rlhf_nb.base.candidates import sample_prompts
from rlhf_nb.base.learning import TrainConfig, evaluate_pairs, make_trainer, train_step
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.models import ScalarModel, frozen_copy, load_bundled
from rlhf_nb.base.q_networks import QConfig, make_episodes
from rlhf_nb.base.sampling import SamplingParams, collect_rollout, generate, generate_many, in_batches
from rlhf_nb.dpo import dpo_loss, make_pair_loss, precompute_ref_logprobs
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.qlearning import q_loss
from rlhf_nb.reward import reward_loss, score_seqs
from rlhf_nb.self_reward import SelfRewardConfig, train_on_pairs
from rlhf_nb.sft import sft_loss
from rlhf_nb.spin import SPINConfig, SPINData, iteration_pairs, spin_metrics, train_spin_iteration
from rlhf_nb.trainers.dpo_tools import train_dpo
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, grpo_loss, make_group_experience, sample_groups
from rlhf_nb.trainers.ppo_trainer import PPOConfig, make_experience, minibatch_loss, ppo_rollout, ppo_update, train_ppo
from rlhf_nb.trainers.q_trainer import make_q_trainer, token_q_values
from pretend_device import DEVICE, DeviceGenerator, OnDevice, pretend
from trainer_runs import CONFIG, RUNS, nets_of, pairs_of, questions, rows, seeded, task_of

@pytest.fixture(scope="module")
def bundled():
    lm, tokenizer = load_bundled("sft")
    lm.set_attn_implementation("eager")           # the others choose a kernel by the real device
    lm.base_model.layers = lm.base_model.layers[:1]             # every operation costs time here
    lm.config.num_hidden_layers = 1
    return lm, tokenizer

@pytest.fixture
def device():
    with pretend() as device: yield device

@pytest.fixture
def lm(bundled): return frozen_copy(bundled[0]).requires_grad_()
@pytest.fixture
def tokenizer(bundled): return bundled[1]

def numbers(trainer): # of the log, and the weights
    assert all(p.device == DEVICE for p in trainer.model.parameters())
    return [{k: v for k, v in row.items() if k != "seconds"} for row in trainer.log.rows]

# ---- the pretended device itself
def test_devices_do_not_mix(device):
    x, y = torch.ones(3).to(DEVICE), torch.ones(3)
    for fn in (lambda: x + y, lambda: torch.cat([x, y]), lambda: torch.stack([x.sum(), y.sum()]), lambda: y[x.long()],
               lambda: torch.where(x > 0, x, y), lambda: nn.functional.embedding(y.long(), x[:, None]),
               lambda: torch.rand(2, generator=seeded(), device=DEVICE), lambda: torch.randperm(2, generator=DeviceGenerator())):
        with pytest.raises(RuntimeError, match="same device|same device as the indexed|device type for generator"): fn()
    with pytest.raises(TypeError, match="numpy"): x.numpy()
    assert ((x + torch.tensor(1.)).tolist(), x[y.long()].device) == ([2., 2., 2.], DEVICE)

@pytest.mark.parametrize("fn, n", [
    (lambda x: x.sum().item(), 1), (lambda x: float(x[0]), 1), (lambda x: bool((x > 0).all()), 1), (lambda x: x.tolist(), 1),
    (lambda x: x.cpu(), 1), (lambda x: x.nonzero(), 1), (lambda x: x[x > 0], 1), (lambda x: x.masked_select(x > 0), 1),
    (lambda x: torch.tensor(1., device=x.device), 1), (lambda x: torch.ones(2).to(DEVICE), 1), (lambda x: x.unique(), 1),
    (lambda x: x + 1, 0), (lambda x: torch.zeros(2, device=x.device), 0), (lambda x: torch.ones(2).to(DEVICE, non_blocking=True), 0),
    (lambda x: x.masked_fill(x > 0, 1.), 0), (lambda x: x[x.long()], 0), (lambda x: x.sort(), 0)], ids=range(17))
def test_waits_are_counted(fn, n, device):
    x = torch.ones(3).to(DEVICE)
    device.waits.clear()
    fn(x)
    assert device.n_waits == n, device.waits

def test_gradients_flow_on_the_device(device):
    layer, x = device.move(nn.Linear(3, 2)), torch.ones(4, 3).to(DEVICE)
    layer(x).sum().backward()
    assert type(layer.weight.grad) is OnDevice and layer.weight.grad.tolist() == [[4.] * 3] * 2

# ---- every trainer: the numbers of the CPU, devices never mixed
def dpo_of_samples(lm, tokenizer, generator, move): # both answers sampled where the policy is
    move(lm)
    sides = [generate_many(lm, questions(tokenizer), tokenizer, SamplingParams(8), seeded(i))[0] for i in range(2)]
    return train_dpo(lm, precompute_ref_logprobs(lm, PreferencePairs(*sides)), CONFIG, generator)
def spin(lm, tokenizer, generator, move):
    data, config = SPINData(rows(tokenizer), rows(tokenizer, 4, 1), tokenizer), SPINConfig(n_pairs=6, batch_size=6, max_new_tokens=8)
    pairs = iteration_pairs(move(lm), data, config, generator)
    log = train_spin_iteration(lm, pairs, config, generator)
    assert spin_metrics(lm, precompute_ref_logprobs(lm, pairs))["accuracy"] == .5
    return type("Run", (), dict(log=log, model=lm))

def self_reward(lm, tokenizer, generator, move):
    config = SelfRewardConfig(n_pairs=12, batch_size=6)
    return train_on_pairs(move(lm), pairs_of(tokenizer), config, generator, rows(tokenizer, 5, 2))

TRAINERS = {k: x for k, x in RUNS.items() if k != "grpo"} | dict(dpo_of_samples=dpo_of_samples, spin=spin, self_reward=self_reward)

@pytest.mark.parametrize("train", TRAINERS.values(), ids=TRAINERS)
def test_a_trainer_on_the_device_finds_the_numbers_of_the_cpu(train, lm, tokenizer):
    want = [{k: v for k, v in row.items() if k != "seconds"} for row in train(frozen_copy(lm).requires_grad_(), tokenizer, seeded(),
                                                                              lambda model: model).log.rows]
    with pretend() as device: got = numbers(train(lm, tokenizer, seeded(), device.move))
    assert len(got) == len(want) > 0
    for a, b in zip(got, want):
        assert a.keys() == b.keys()
        for k in b: assert a[k] == pytest.approx(b[k], rel=1e-4, abs=1e-5), k

@pytest.mark.parametrize("name", ["sft", "ppo", "grpo_dynamic", "q", "spin"])     # one of each loop
def test_a_generator_may_be_on_the_device(name, lm, tokenizer, device):
    assert numbers(TRAINERS[name](lm, tokenizer, DeviceGenerator().manual_seed(0), device.move))

def test_a_generator_on_the_device_picks_prompts_too(device):
    assert set(sample_prompts(["a", "b"], 8, DeviceGenerator().manual_seed(0))) <= {"a", "b"}

def test_functions_take_rows_from_the_cpu_and_from_the_device(lm, tokenizer, device):
    nets, data = device.move(nets_of(frozen_copy(lm), tokenizer)), rows(tokenizer, 4)
    device.move(lm)
    for seqs in (data, data.to(DEVICE)):
        taken, best = token_q_values(nets, seqs)
        assert taken.shape == seqs.ids.shape and (taken <= best + 1e-4).all()
        assert logprobs(lm, seqs).device == DEVICE
        assert score_seqs(device.move(ScalarModel.from_lm(lm)), seqs).device == DEVICE
        for read in (lambda x: x.ids.float(), lambda x: x.ids[:, 0]):     # it gets its rows where they were
            got = in_batches(read, seqs, 3)
            assert got.device == seqs.ids.device and torch.equal(got.cpu(), read(data))
        ref = precompute_ref_logprobs(lm, PreferencePairs(seqs, seqs))
        assert ref.ref_chosen.device.type == "cpu" and evaluate_pairs(lm, ref, make_pair_loss(dpo_loss))["loss"] == pytest.approx(.6931, abs=1e-3)

# ---- how often the host waits
def endless(lm): # a model that never ends a response, so that every token is sampled
    with torch.no_grad(): lm.get_output_embeddings().weight[lm.config.eos_token_id] = 0
    lm.get_output_embeddings().bias = nn.Parameter(torch.zeros(lm.config.vocab_size).index_fill(
        0, torch.tensor([lm.config.eos_token_id]), -1e4))
    return lm

@pytest.mark.parametrize("sampling", [SamplingParams(32), SamplingParams(32, 0.), SamplingParams(32, .7, 5, .9)], ids=["1", "greedy", "filtered"])
def test_sampling_waits_once_in_eight_tokens(sampling, lm, tokenizer, device):
    device.move(endless(lm))
    seqs, _ = generate(lm, questions(tokenizer, 2), tokenizer, sampling, seeded())
    assert seqs.response_mask.sum(1).tolist() == [32] * 2
    device.waits.subtract({k: n for k, n in device.waits.items() if k.endswith("a test")})
    assert sum(device.waits.values()) <= 32 / 8 + 1, device.waits        # and the tokens themselves, once

def one_update(name, lm, tokenizer, device, parts):
    "() -> None, an optimiser step in so many micro-batches; its batch is where training keeps it, or on the device."
    config = TrainConfig(micro_batch_size=6 // parts)
    if name == "sft": return partial(train_step, make_trainer(device.move(lm), config), rows(tokenizer, 6), sft_loss)
    if name == "reward":
        return partial(train_step, make_trainer(device.move(ScalarModel.from_lm(lm)), config), pairs_of(tokenizer, 6), reward_loss)
    if name == "dpo":
        data = precompute_ref_logprobs(device.move(lm), pairs_of(tokenizer, 6))
        return partial(train_step, make_trainer(lm, config), data, make_pair_loss(dpo_loss))
    if name == "ppo":
        settings = PPOConfig(n_prompts=6)
        model = device.move(ActorCritic(lm, ScalarModel.from_lm(lm)))
        trainer = make_trainer(model, config)
        roll, _ = ppo_rollout(trainer, frozen_copy(lm), task_of(tokenizer), settings, seeded(), {})
        x = make_experience(model, roll, settings, tokenizer.eos_token_id)
        return partial(train_step, trainer, x, partial(minibatch_loss, config=settings, whole=x))
    if name.startswith("q"):
        settings, data = QConfig(double_q="double" in name, on_truncation="bootstrap", n_step=2), rows(tokenizer, 6)
        trainer = make_q_trainer(device.move(nets_of(lm, tokenizer)), config, settings)
        x = make_episodes(data, torch.linspace(-1, 1, len(data)), tokenizer.eos_token_id)
        return partial(train_step, trainer, x, partial(q_loss, config=settings))
    settings = GRPOConfig(n_prompts=2, num_generations=3)
    trainer = make_trainer(device.move(lm), config)
    roll, *_ = sample_groups(trainer, frozen_copy(lm), task_of(tokenizer), settings, seeded())
    x = make_group_experience(roll, settings, task_of(tokenizer))
    return partial(train_step, trainer, x, partial(grpo_loss, config=settings))

@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("name", ["sft", "reward", "dpo", "ppo", "grpo", "q", "q, double"])
def test_an_update_waits_for_its_numbers_only_however_many_micro_batches(name, parts, lm, tokenizer, device):
    update = one_update(name, lm, tokenizer, device, parts)
    trainer, batch = update.args[:2]
    assert len(batch) == 6
    update()                                       # the first one looks at the model's head, and makes AdamW's averages
    device.waits.clear()
    update()
    assert device.n_waits == 2, device.waits       # the sums, the gradient's norm
    for place in ("cpu", DEVICE):                  # the same batch, all on the host or all on the device
        update = partial(train_step, trainer, batch.to(place), update.args[2], **update.keywords)
        device.waits.clear()
        update()
        assert device.n_waits == (2 if place == "cpu" else 3), device.waits

def test_waits_outside_decoding_do_not_grow_with_the_batches(lm, tokenizer, device):
    "Rollouts, their rewards and references, evaluation: in one batch of rows or in three."
    rm, ref = device.move(ScalarModel.from_lm(lm)), device.move(frozen_copy(lm))
    trainer = make_trainer(device.move(ActorCritic(lm, ScalarModel.from_lm(lm))), CONFIG)
    pairs, eos = precompute_ref_logprobs(ref, pairs_of(tokenizer, 6)), tokenizer.eos_token_id
    logprobs(lm, pairs.pairs.chosen)               # the first call looks at the model's head
    def waits(fn):
        device.waits.clear()
        out = fn()
        return out, sum(n for k, n in device.waits.items() if not re.match("(nonzero|tolist) @ sampling", k))
    for size in (2, 6):
        task = replace(task_of(tokenizer), reward_fn=lambda seqs: score_seqs(rm, seqs, size))
        ppo_config = PPOConfig(n_prompts=6, micro_batch_size=size, n_epochs=2, n_minibatches=3)
        grpo_config = GRPOConfig(n_prompts=2, num_generations=3, dynamic_sampling=2, micro_batch_size=size)
        params = questions(tokenizer, 6), tokenizer, SamplingParams(6), seeded()
        (seqs, _), n = waits(lambda: generate_many(lm, *params, size))
        assert n == 0 and seqs.ids.device == DEVICE
        assert waits(lambda: score_seqs(rm, seqs, size))[1] == 0
        assert waits(lambda: score_seqs(rm, seqs[:], size))[1] == 1           # where nothing is known of the rows
        roll, n = waits(lambda: collect_rollout(lm, ref, params[0], task.reward_fn, *params[1:], batch_size=size))
        assert n == 0 and roll.logp.device == roll.reward.device == DEVICE, device.waits
        roll, n = waits(lambda: collect_rollout(lm, ref, params[0], lambda seqs: [1.] * len(seqs), *params[1:], batch_size=size))
        assert n == 0 and roll.reward.device == DEVICE, device.waits          # also of numbers from the host
        (roll, row), n = waits(lambda: ppo_rollout(trainer, ref, task, ppo_config, seeded(), {}))
        assert n == 2 and roll.logp.is_cpu and math.isfinite(row["objective/kl"]), device.waits
        _, n = waits(lambda: ppo_update(trainer, roll, ppo_config, eos, seeded()))
        assert n == 1 + 2 * 6, device.waits                                   # values, then six updates
        _, n = waits(lambda: ppo_update(trainer, roll.to(DEVICE), ppo_config, eos, DeviceGenerator().manual_seed(0)))
        assert n == 2 + 2 * 6 + 2 + 7, device.waits            # two epochs' orders; seven tensors that this test sends
        (roll, *_), n = waits(lambda: sample_groups(type("T", (), dict(model=lm, queue=[])), ref, task, grpo_config, seeded()))
        assert n == 2 and roll.logp.is_cpu, device.waits                      # rewards are looked at, the rollout comes to the host
        assert waits(lambda: make_group_experience(roll, grpo_config, task))[1] == 0, device.waits
        assert waits(lambda: evaluate_pairs(lm, pairs, make_pair_loss(dpo_loss), size))[1] == 1, device.waits
        assert waits(lambda: precompute_ref_logprobs(ref, pairs.pairs, size))[1] == 1, device.waits

# ---- what was sent, and what comes back
def rows_of_many_kinds(tokenizer):
    from rlhf_nb.trainers.ppo_trainer import Experience
    seqs = rows(tokenizer, 5)
    x = torch.randn(seqs.ids.shape, generator=seeded())
    return Experience(seqs, seqs.response_mask, x.bfloat16(), x, x.double(), x.half())

def test_a_batch_comes_to_the_host_in_one_copy_bit_by_bit(tokenizer, device):
    want = rows_of_many_kinds(tokenizer)
    for rows_ in (slice(None), slice(1, 4), slice(0, 0), slice(None, None, 2)):
        sent = want.to(DEVICE)[rows_]
        device.waits.clear()
        got = to_host(sent)
        assert device.n_waits == 1 and type(got.seqs) is type(want.seqs)
        for a, b in zip(batch_tensors(got), batch_tensors(want[rows_])):
            assert type(a) is torch.Tensor and a.dtype == b.dtype and torch.equal(a, b)
    mixed = PreferencePairs(want.seqs, want.seqs.to(DEVICE))
    assert all(x.is_cpu for x in batch_tensors(to_host(mixed))) and to_host(mixed).chosen.ids is want.seqs.ids
    assert to_host(want) is want                  # nothing to do, nothing copied

def test_what_was_sent_is_asked_on_the_host(tokenizer, device):
    pairs = pairs_of(tokenizer, 4)
    sent = send_to(pairs, DEVICE)
    both = concat_seqs([sent.chosen, sent.rejected], 0)
    for x in (sent.chosen, sent.rejected, both, send_to(both, DEVICE)):
        for a, b in zip(batch_tensors(host_rows(x)), batch_tensors(x)):
            assert a.is_cpu and b.device == DEVICE and torch.equal(a, b.elem)
    half = concat_seqs([sent.chosen, sent.rejected.to(DEVICE)], 0)          # of the second nothing is known
    assert host_rows(half) is half and host_rows(sent.chosen[:2]).ids.device == DEVICE
    here = send_to(pairs.chosen, "cpu")                                      # what never left the host
    assert host_rows(pairs.chosen) is pairs.chosen and host_rows(here) is here

@pytest.mark.parametrize("place", ["cpu", DEVICE])
def test_a_run_waits_twice_per_step_wherever_its_data_are(place, lm, tokenizer, device):
    data = precompute_ref_logprobs(device.move(lm), pairs_of(tokenizer)).to(place)
    found = []
    for n_steps in (2, 5):
        config = TrainConfig(n_steps=n_steps, batch_size=4, micro_batch_size=2)
        device.waits.clear()
        train_dpo(lm, data, config, seeded())
        found.append(device.n_waits)
    assert found[1] - found[0] == 3 * 2, device.waits

def test_a_way_back_is_kept_without_a_wait_for_the_weights(lm, tokenizer, device):
    model = device.move(ActorCritic(lm, ScalarModel.from_lm(lm)))
    train_ppo(model, frozen_copy(lm), task_of(tokenizer, 4), PPOConfig(n_iterations=2, n_prompts=2), seeded())
    assert len(list(model.parameters())) > 20
    assert max(device.waits.values()) < 20 and sum(device.waits.values()) < 100, device.waits

# ---- rows that end between two looks
def test_results_do_not_depend_on_how_often_one_looks(lm, tokenizer, monkeypatch):
    from rlhf_nb.base import sampling
    prompts, real = [p for p in questions(tokenizer, 6) for _ in range(3)], sampling.start_generation
    want = {s: generate(lm, prompts, tokenizer, s, seeded()) for s in (SamplingParams(30), SamplingParams(30, 0.), SamplingParams(5))}
    assert len({tuple(x.response_mask.sum(1).tolist()) for x, _ in want.values()}) == 3
    for every in (2, 7, 8, 100):
        def start(*args, every=every):
            x = real(*args)
            x.look_every = every
            return x
        monkeypatch.setattr(sampling, "start_generation", start)
        for s, (seqs, logp) in want.items():
            got, got_logp = generate(lm, prompts, tokenizer, s, seeded())
            assert torch.equal(got.ids, seqs.ids) and torch.equal(got.response_mask, seqs.response_mask)
            torch.testing.assert_close(got_logp, logp, atol=1e-4, rtol=0)

@pytest.mark.parametrize("at, every", [(2, 8), (7, 8), (8, 8), (3, 100)])
def test_logits_that_break_between_two_looks_are_named_by_their_step(at, every, monkeypatch):
    from rlhf_nb.base.sampling import finish_generation, sample_step, start_generation
    x = start_generation(nn.Linear(1, 1), [[2], [3], [4]], (0, 1), SamplingParams(12), torch.rand(3, 12))
    x.look_every = every
    with pytest.raises(ValueError, match=rf"logits of row 1 \(and of 0 more\) at step {at} hold nan"):
        for step in range(12):
            logits = torch.zeros(3, 5)
            logits[:, 1] = -torch.inf                                    # nobody ends
            if step >= at: logits[1, 2] = torch.nan
            if step > at: logits[2, 2] = torch.nan                       # later, so not the first to be named
            sample_step(x, logits)
        finish_generation(x)
