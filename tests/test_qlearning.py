"Q-learning where prose would be too slow or too odd: shapes, parity, resume, and what must be refused."
import json, math, pytest, torch
from dataclasses import fields, replace
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace
from torch import Generator, nn
from torch.testing import assert_close
from rlhf_nb.trainers import q_trainer
from rlhf_nb.base.checkpoints import list_checkpoints
from rlhf_nb.base.learning import TrainConfig, accumulate_gradients, train_step
from rlhf_nb.base.models import add_lora, tiny_lm
from rlhf_nb.base.settings import weight_hash
from rlhf_nb.worlds.oracle import TabularLM, all_logprobs, bigram_lm, micro_tokenizer, micro_world, optimal_q, states
from rlhf_nb.base.q_networks import (DuelingHead, Episodes, QNets, discounts, shift_left, best_actions, hl_gauss, make_episodes,
    q_terms, q_network, hidden_states, q_terms_full, QConfig, next_values)
from rlhf_nb.trainers.q_trainer import QPolicy, make_q_trainer, q_trees, token_q_values, train_q
from rlhf_nb.qlearning import soft_backup, soft_update, q_policy_logprobs, q_loss, bellman_targets
from rlhf_nb.base.sampling import SamplingParams, generate
from rlhf_nb.tokens import Seqs, shift_right, make_seqs
from conftest import generate_uncached

WORLD = micro_world()
WORDS = micro_tokenizer(WORLD)
TABLE = TrainConfig(lr=.1, n_steps=250, batch_size=64, micro_batch_size=64, max_grad_norm=1e9)
EXACT = QConfig(gamma=1., alpha=0., target_update_rate=.1)
def seeded(seed=0): return Generator().manual_seed(seed)

def nets_of(model=None, **kw):
    return QNets(q_network(model or TabularLM(WORLD), **kw), [WORLD.start, WORLD.pad])

def rough(nets, seed=0, scale=.5): # weights that are not zero, target and online different
    with torch.no_grad():
        for p in nets.parameters(): p.add_(scale * torch.randn(p.shape, generator=seeded(seed)).to(p))
    return nets

def play(seed=0, world=WORLD, dense=True): # every response, paid at random, at every token if dense
    mask = world.seqs.response_mask
    reward = torch.randn(mask.shape, generator=seeded(seed)) * mask
    return make_episodes(world.seqs, reward if dense else reward.sum(1), world.eos)

def table(nets): return nets.online.get_output_embeddings().weight.detach().T

def slow_q(world, x, gamma): # best return after each word, found by trying every response
    answers = [(s, r[m]) for s, r, m in zip(world.responses(), x.reward, x.mask)]
    def best(said):
        got = [sum(gamma**k * p for k, p in enumerate(r[len(said) - 1:].tolist()))
               for s, r in answers if s[:len(said)] == said]
        return max(got)
    q = torch.full((len(states(world)), world.vocab_size), torch.nan)
    for i, said in enumerate(states(world)):
        for w in range(world.eos + 1): q[i, w] = best((*said, w))
    return q

def tree_rewards(world, seed=0): # a reward per prefix, the same in every response that has it
    paid, r = {}, torch.zeros(world.seqs.ids.shape)
    chance = seeded(seed)
    for i, said in enumerate(world.responses()):
        for j in range(len(said)):
            r[i, j + 1] = paid.setdefault(said[:j + 1], torch.randn(1, generator=chance).item())
    return make_episodes(world.seqs, r, world.eos)

# ---- exactness
@pytest.mark.parametrize("gamma, rule", [(1., {}), (.7, {}), (.7, dict(mc_bound=False)), (1., dict(double_q=True)), (.7, dict(dueling=True))])
def test_rewards_of_any_sign_anywhere_are_learned_exactly(gamma, rule):
    x, rule = tree_rewards(WORLD), dict(rule)
    nets = nets_of(dueling=rule.pop("dueling", False))
    train_q(nets, x, TABLE, replace(EXACT, gamma=gamma, **rule), seeded())
    want = slow_q(WORLD, x, gamma)
    assert (table(nets) - want)[~want.isnan()].abs().max() < 1e-2

# ---- the target, against a loop over tokens
def loop_targets(x, value, config):
    y = torch.zeros_like(x.reward)
    for b in range(len(x)):
        at = x.mask[b].nonzero().flatten().tolist()
        goes_on = not x.ended[b] and config.on_truncation == "bootstrap"
        def gamma(i): return config.gamma if config.discount_per == "token" or i == at[-1] else 1.
        for k, i in enumerate(at):
            total, weight = 0., 1.
            for step in range(config.n_step):
                j = at[k + step]
                total, weight = total + weight * x.reward[b, j], weight * gamma(j)
                if j == at[-1]: weight *= goes_on
                if step == config.n_step - 1 or j == at[-1]:
                    total = total + weight * value[b, j]
                    break
            if config.mc_bound and not goes_on:
                seen, weight = 0., 1.
                for j in at[k:]: seen, weight = seen + weight * x.reward[b, j], weight * gamma(j)
                total = max(total, seen)
            y[b, i] = total
    return y

@pytest.mark.parametrize("step", ["token", "response"])
@pytest.mark.parametrize("cut", ["terminal", "bootstrap"])
@pytest.mark.parametrize("n_step", [1, 2, 7])
@pytest.mark.parametrize("mc_bound", [False, True])
def test_targets_are_the_loop_over_tokens(step, cut, n_step, mc_bound):
    x, config = play(3), QConfig(.6, step, cut, n_step, mc_bound)
    value = torch.randn(x.reward.shape, generator=seeded(1))
    assert_close(bellman_targets(x, value, config), loop_targets(x, value, config), atol=1e-6, rtol=1e-5)

def test_what_stands_outside_the_response_reaches_nothing():
    x = play()
    value = torch.randn(x.reward.shape, generator=seeded(1))
    spoiled = value.masked_fill(~x.mask | x.last(), torch.nan)       # prompt, pads, after the last
    assert_close(bellman_targets(x, value, QConfig()), bellman_targets(x, spoiled, QConfig()))
    nets = rough(nets_of(tiny_lm(WORDS, hidden=16, layers=1)))
    short = x[x.seqs.response_mask.sum(1) == 1]
    for a, b in zip(q_loss(nets, short.trim(), QConfig())[:2], q_loss(nets, short, QConfig())[:2]):
        assert_close(a, b)                                           # wide or narrow: the same

def test_the_loss_is_the_formula():
    nets, x, config = rough(nets_of(tiny_lm(WORDS, hidden=16, layers=1))), play(), QConfig(.8, alpha=.7, min_return=-.3)
    ids = dict(input_ids=x.seqs.ids, attention_mask=x.attention_mask.long())
    q = shift_right(nets.online(**ids).logits)[x.mask]
    with torch.no_grad(): slow = nets.target(**ids).logits[..., nets.allowed].amax(-1)
    y, taken = loop_targets(x, slow, config)[x.mask], x.seqs.ids[x.mask]
    loss = 0.
    for row, a, want in zip(q, taken.tolist(), y):
        others = [i for i in range(4) if i != a]
        loss = loss + (row[a] - want)**2 / 2 + .7 / 2 * ((row[others] + .3)**2).mean()
    assert_close(q_loss(nets, x, config)[0], loss, rtol=1e-4, atol=1e-4)

def test_the_online_network_picks_and_the_target_says_what_that_is_worth():
    nets, x = rough(nets_of()), play()
    rough(nets.online, seed=1)
    slow, fast = (m(x.seqs.ids, x.attention_mask.long()).logits.masked_fill(~nets.allowed, -torch.inf)
                  for m in (nets.target, nets.online))
    at, hidden = x.mask & ~(x.last() & x.ended[:, None]), hidden_states(nets.online, x.seqs)
    for double, want in ((True, slow.gather(-1, fast.argmax(-1, keepdim=True))[..., 0]), (False, slow.amax(-1))):
        value = next_values(nets, x, hidden, QConfig(double_q=double, on_truncation="bootstrap"))
        assert_close(value, want.masked_fill(~at, 0.))
    assert (slow.argmax(-1) != fast.argmax(-1))[at].any()
    assert shift_left(torch.tensor([[1, 2, 3]])).tolist() == [[2, 3, 0]]

# ---- heads
@pytest.mark.parametrize("kind", ["plain", "bias", "dueling", "module"])
@pytest.mark.parametrize("chunk", [1, 5, 100])
def test_heads_agree_with_the_literal_way(kind, chunk):
    torch.manual_seed(0)
    head = dict(plain=nn.Linear(6, 40, bias=False), bias=nn.Linear(6, 40), dueling=DuelingHead(6, 40),
                module=nn.Sequential(nn.Linear(6, 40)))[kind].double()
    h = torch.randn(11, 6, dtype=torch.double, requires_grad=True)
    allowed, taken = torch.rand(40) < .6, torch.randint(40, (11,))
    allowed[taken] = True
    def grads(fn, **kw):
        said, rest = fn(head, h, taken, allowed, -.4, **kw)
        return said, rest, *torch.autograd.grad((said.sin() + rest**2).sum(), [h, *head.parameters()])
    for a, b in zip(grads(q_terms, chunk_size=chunk), grads(q_terms_full)):
        assert_close(a.double(), b.double(), rtol=1e-4, atol=1e-5)
    value, action = best_actions(head, h, allowed, chunk)
    want = head(h).masked_fill(~allowed, -torch.inf).max(1)
    assert_close(value, want.values)
    assert action.equal(want.indices) and not value.requires_grad

def test_a_histogram_of_a_target_has_its_mean_and_spread():
    "To a thousandth of a bin; by hand with a width of 2: the Gaussian's sigma is 1.5."
    c = torch.linspace(-5., 5., 6)
    y = torch.tensor([-1., .3, 7.])
    p = hl_gauss(y, c)
    phi = [NormalDist(.3, 1.5).cdf(x) for x in range(-6, 8, 2)]
    assert_close(p[1], torch.tensor([(b - a) / (phi[-1] - phi[0]) for a, b in zip(phi, phi[1:])]), atol=1e-6, rtol=0)
    assert p[0, 2] > .49 and p[2].argmax() == 5 and p.sum(1).tolist() == pytest.approx([1.] * 3)
    fine, z = torch.linspace(-1.25, 1.25, 51), torch.linspace(-1., 1., 77)
    assert_close(hl_gauss(z, fine) @ fine, z, atol=5e-5, rtol=0)
    assert_close(hl_gauss(z, fine) @ fine**2 - z**2, torch.full_like(z, .05**2 * (.75**2 + 1 / 12)), atol=1e-4, rtol=0)

def test_a_histogram_head_learns_its_targets_and_starts_at_zero():
    "Trained on the log of every response it finds the exact Q; at first Q is 0 and the loss is the entropy of even bins."
    x = play(dense=False)
    most = x.reward.abs().max().item()
    nets = nets_of(n_bins=31, most=most)
    head = nets.online.get_output_embeddings()
    def learned(): return head(torch.eye(len(states(WORLD)))).detach()
    assert learned().abs().max() < 1e-6 and len(head.centres) == 31 and head.centres[-1] == pytest.approx(1.25 * most)
    loss, n, said = q_loss(nets, x, replace(EXACT, gamma=.7))
    assert (loss / n).item() == pytest.approx(math.log(31), rel=1e-5) and said["td_loss"] > 0
    train_q(nets, x, replace(TABLE, lr=.3, n_steps=90), replace(EXACT, gamma=.7, target_update_rate=1.), seeded())
    exact = optimal_q(WORLD, x.reward.sum(1), .7)
    assert (learned() - exact)[~exact.isnan()].abs().max() < head.centres[1] - head.centres[0]

def test_a_bf16_head_is_read_in_chunks():
    head = nn.Linear(8, 50, bias=False).bfloat16()
    h, every = torch.randn(9, 8, generator=seeded()).bfloat16(), torch.ones(50).bool()
    said, rest = q_terms(head, h, torch.arange(9), every, 0., chunk_size=4)
    want = q_terms_full(head, h, torch.arange(9), every, 0.)
    assert said.dtype == torch.float32
    assert_close((said, rest), want)

def test_no_head_means_no_logits_of_the_whole_batch(monkeypatch):
    "The linear head is never called on (n d): its weights are used, and the maximum comes in chunks."
    head, seen, real = nn.Linear(8, 30, bias=False), [], nn.Linear.forward
    monkeypatch.setattr(nn.Linear, "forward", lambda head, x: (seen.append(len(x)), real(head, x))[1])
    h, every = torch.randn(200, 8), torch.ones(30).bool()
    q_terms(head, h, torch.zeros(200).long(), every, 0.)
    assert not seen
    best_actions(head, h, every)
    assert seen == [64, 64, 64, 8]

def test_a_tied_head_is_untied_before_it_is_zeroed():
    lm = tiny_lm(WORDS, "llama", hidden=16)
    lm.config.tie_word_embeddings = True
    lm.set_output_embeddings(nn.Linear(16, WORLD.vocab_size, bias=False))
    lm.get_output_embeddings().weight = lm.get_input_embeddings().weight
    q = q_network(lm)
    assert q.get_input_embeddings().weight.abs().sum() > 0 and not q.config.tie_word_embeddings

def test_lora_is_merged_into_the_body():
    lm, ids = add_lora(tiny_lm(WORDS, hidden=16)), WORLD.seqs.ids[:3, :2]
    assert_close(q_network(lm).base_model(ids).last_hidden_state, lm.get_base_model().base_model(ids).last_hidden_state)

# ---- the copy
def test_the_copy_follows_on_time_and_only_then():
    nets, config = nets_of(), QConfig(target_update_rate=.25, target_update_every=3)
    trainer = make_q_trainer(nets, replace(TABLE, warmup_steps=0), config)
    at_start = weight_hash(nets.target)
    assert at_start == weight_hash(nets.online)
    accumulate_gradients(trainer, play(), lambda n, x: q_loss(n, x, config))
    assert weight_hash(nets.target) == at_start
    for step in range(1, 7):
        slow = nets.target.head.weight.clone()
        train_step(trainer, play(), lambda n, x: q_loss(n, x, config))
        want = slow.lerp(nets.online.head.weight, .25) if step % 3 == 0 else slow
        assert nets.target.head.weight.equal(want), step

def test_the_copy_is_never_in_training_mode():
    nets = nets_of(tiny_lm(WORDS, hidden=16))
    nets.train()
    assert nets.online.training and not any(m.training for m in nets.target.modules())

def test_follow_moves_all_weights():
    nets = rough(nets_of(tiny_lm(WORDS, hidden=16)))
    want = {k: (1 - .2) * a + .2 * b for (k, a), b in zip(nets.target.named_parameters(), nets.online.parameters())}
    soft_update(nets, .2)
    for k, p in nets.target.named_parameters(): assert_close(p, want[k])

# ---- training
def test_a_killed_offline_run_goes_on_bit_for_bit(tmp_path, monkeypatch):
    x, config = play(), replace(TABLE, n_steps=60, batch_size=8)
    whole = train_q(nets_of(), x, config, EXACT, seeded()).model
    loss, calls = q_trainer.q_loss, []
    def dies(*args):
        calls.append(1)
        if len(calls) == 56: raise KeyboardInterrupt
        return loss(*args)
    monkeypatch.setattr(q_trainer, "q_loss", dies)
    with pytest.raises(KeyboardInterrupt): train_q(nets_of(), x, config, EXACT, seeded(), folder=tmp_path)
    monkeypatch.undo()
    assert list_checkpoints(tmp_path)[-1].name.endswith("step-50")
    nets = nets_of()
    train_q(nets, x, config, EXACT, seeded(), folder=tmp_path)
    assert weight_hash(nets) == weight_hash(whole)

def test_a_soft_backup_learns_the_soft_values_of_the_reference(): # V = beta log sum pi_ref exp(Q / beta), from the ends backwards
    ref, beta, at = bigram_lm(WORLD), .5, {s: i for i, s in enumerate(states(WORLD))}
    prior = ref.head.weight.detach().T[:, :4].log_softmax(-1)
    returns = {y: r for y, r in zip(WORLD.responses(), play(dense=False).reward.sum(1).tolist())}
    want = torch.zeros(len(at), 4)
    for s in reversed(states(WORLD)):
        for w in range(4):
            y = (*s, w)
            want[at[s], w] = returns[y] if y in returns else beta * (prior[at[y]] + want[at[y]] / beta).logsumexp(-1)
    nets = nets_of()
    nets.ref = ref
    config = QConfig(gamma=1., alpha=0., target_update_rate=.1, mc_bound=False, beta=beta)
    train_q(nets, play(dense=False), replace(TABLE, n_steps=250), config, seeded())
    assert_close(table(nets)[:, :4], want, atol=2e-2, rtol=0)
    with pytest.raises(ValueError, match="no maximum to bound"): train_q(nets, play(dense=False), TABLE, replace(config, mc_bound=True), seeded())

OTHER = dict(gamma=.5, discount_per="response", on_truncation="bootstrap", n_step=2, mc_bound=False, double_q=True, beta=.1,
             alpha=.3, min_return=-1., target_update_rate=.3, target_update_every=2)

@pytest.fixture(scope="module")
def ran(tmp_path_factory): # a run; a resume that is refused does not change it
    train_q(nets_of(), play(), replace(TABLE, n_steps=50), EXACT, seeded(), folder=(folder := tmp_path_factory.mktemp("run")))
    return folder

@pytest.mark.parametrize("name", [f.name for f in fields(QConfig)])
def test_a_run_is_not_resumed_with_other_settings(ran, name):
    other = replace(EXACT, **{name: OTHER[name]})
    assert other != EXACT
    with pytest.raises(ValueError, match=name):
        train_q(nets_of(), play(), replace(TABLE, n_steps=50), other, seeded(), folder=ran)

# ---- policies
@pytest.mark.parametrize("arch", ["neox", "llama"])
@pytest.mark.parametrize("with_ref", [False, True])
def test_cached_sampling_says_what_the_slow_way_says(arch, with_ref):
    lm = tiny_lm(WORDS, arch, hidden=16)
    nets = rough(nets_of(lm), scale=.3)
    policy = QPolicy(nets, .7, ref=lm if with_ref else None, epsilon=.1)
    assert policy.has_cache
    prompts = [[WORLD.start], [WORLD.start, 0, 1], [WORLD.start, 2]] * 4
    fast, p = generate(policy, prompts, WORDS, SamplingParams(max_new_tokens=6), seeded())
    slow, p_slow = generate_uncached(policy, prompts, WORDS, SamplingParams(max_new_tokens=6), seeded())
    assert fast.ids.equal(slow.ids)
    assert_close(p, p_slow, atol=1e-5, rtol=1e-4)

def test_policies_never_say_what_is_no_action():
    nets = rough(nets_of(), scale=3.)
    for kw in (dict(temperature=0.), dict(temperature=2.), dict(temperature=1., epsilon=1.), dict(temperature=1., ref=bigram_lm(WORLD).float())):
        with torch.no_grad(): logits = QPolicy(nets, **kw)(WORLD.seqs.ids[:, :1]).logits
        assert (logits[..., ~nets.allowed] == -torch.inf).all()
        assert_close(logits.exp().sum(-1), torch.ones(logits.shape[:-1]))

def test_all_policies_in_numbers():
    q, ok = torch.tensor([[2., 1., 5.]]), torch.tensor([True, True, False])
    ref = torch.tensor([[.1, .3, .6]]).log() + 4.            # logits, not yet log-probs
    e = torch.tensor([2 / .5, 1 / .5]).exp()
    assert_close(q_policy_logprobs(q, ok, .5).exp()[0, :2], e / e.sum())
    tilted = e * torch.tensor([.1, .3])
    assert_close(q_policy_logprobs(q, ok, .5, ref).exp()[0, :2], tilted / tilted.sum())
    assert_close(q_policy_logprobs(q, ok, .5, ref, .2).exp()[0, :2], .8 * tilted / tilted.sum() + .1)

def test_q_along_reads_the_token_before():
    nets, x = rough(nets_of(tiny_lm(WORDS, hidden=16))), play()
    taken, best = token_q_values(nets, x.seqs)
    with torch.no_grad(): q = shift_right(nets.online(x.seqs.ids, x.attention_mask.long()).logits)
    assert_close(taken[x.mask], q.gather(-1, x.seqs.ids[..., None])[..., 0][x.mask], atol=1e-5, rtol=1e-4)
    assert_close(best[x.mask], q[..., nets.allowed].amax(-1)[x.mask], atol=1e-5, rtol=1e-4)
    assert (taken[~x.mask] == 0).all() and (best[~x.mask] == 0).all()

# ---- data, and refusals
def test_an_eos_inside_the_prompt_ends_nothing_and_an_empty_response_counts_nothing():
    seqs = make_seqs([[WORLD.start, WORLD.eos, 1], [WORLD.start]], [[1, 2], []], WORLD.pad)
    x = make_episodes(seqs, torch.tensor([1., 0.]), WORLD.eos)
    assert x.mask.sum(1).tolist() == [2, 0] and not x.ended[0] and x.reward[0, 4] == 1
    loss, n, _ = q_loss(nets_of(), x[1:], QConfig())
    assert n == 0 and loss == 0

@pytest.mark.parametrize("call, words", [
    (lambda: QConfig(target_update_rate=0.), "target_update_rate must be"), (lambda: QConfig(n_step=0), "n_step must be above 0"),
    (lambda: QConfig(discount_per="sentence"), "discount_per must be one of"), (lambda: QConfig(on_truncation=""), "on_truncation must be one of"),
    (lambda: QPolicy(nets_of(), 1., epsilon=1.1), "epsilon from 0 to 1"),
    (lambda: QPolicy(nets_of(), 0., bigram_lm(WORLD)), "ignores the reference"),
    (lambda: QNets(q_network(TabularLM(WORLD)), range(6)), "two actions or more"),
    (lambda: q_loss(QNets(q_network(TabularLM(WORLD)), [1]), play(), QConfig()), r"tokens \[1\] were taken"),
    (lambda: make_episodes(WORLD.seqs, torch.zeros(3), WORLD.eos), "per response"),
    (lambda: make_episodes(WORLD.seqs, torch.full((40,), torch.inf), WORLD.eos), "not finite"),
    (lambda: make_episodes(WORLD.seqs, torch.ones(40, 4), WORLD.eos), "outside the response")])
def test_refusals_name_the_mend(call, words):
    with pytest.raises(ValueError, match=words): call()

# ---- several turns
def turns_of(rows, reward): # rows: pieces of each, the model's and, at odd places, the environment's
    seqs = make_seqs([[WORLD.start]] * len(rows), [sum(row, []) for row in rows], WORLD.pad)
    for mask, row in zip(seqs.response_mask, rows):
        at = 1
        for k, piece in enumerate(row):
            mask[at:at + len(piece)] = k % 2 == 0
            at += len(piece)
    return make_episodes(seqs, reward, WORLD.eos)

@pytest.mark.parametrize("step", ["token", "response"])
@pytest.mark.parametrize("n_step, mc_bound", [(1, False), (1, True), (2, False), (3, True), (9, False)])
def test_targets_of_several_turns_pass_over_what_the_environment_wrote(step, n_step, mc_bound):
    rows = [[[0, 3], [1], [2, 1, 3]], [[1], [2, 2], [0], [3], [1, 1]], [[2, 3]], [[0], [1, 1, 1], [3]]]
    x = turns_of(rows, torch.zeros(4))
    x = replace(x, reward=torch.randn(x.mask.shape, generator=seeded(4)) * x.mask)
    value, config = torch.randn(x.mask.shape, generator=seeded(1)), QConfig(.6, step, "bootstrap", n_step, mc_bound)
    squeezed = turns_of([[sum(row[::2], [])] for row in rows], torch.zeros(4)) # the same actions without a gap
    def squeeze(y): return torch.zeros(squeezed.mask.shape).masked_scatter(full, y[x.mask])
    full = torch.arange(squeezed.mask.shape[1]) >= 1
    full = full & (torch.arange(squeezed.mask.shape[1]) <= x.mask.sum(1)[:, None])
    want = loop_targets(Episodes(replace(squeezed.seqs, response_mask=full), squeeze(x.reward), x.ended), squeeze(value),
                        replace(config, discount_per="token"))
    if step == "token": assert_close(bellman_targets(x, value, config)[x.mask], want[full], atol=1e-6, rtol=1e-5)
    ends = [[len(sum(row[:k + 1], [])) for k in range(0, len(row), 2)] for row in rows]       # column of each turn's end
    for b, columns in enumerate(ends):
        gamma = discounts(x, config)[b][x.mask[b]]
        assert gamma.tolist() == pytest.approx([.6 if step == "token" or i in columns else 1. for i in x.mask[b].nonzero().flatten().tolist()])

def test_an_eos_ends_its_turn_and_the_last_one_the_episode():
    x = turns_of([[[1, 3, 2], [0], [2, 3, 1, 1]], [[1, 3], [0], [2]], [[0], [3], [1, 3]]], torch.tensor([1., 2., 3.]))
    assert x.mask.int().tolist() == [[0, 1, 1, 0, 0, 1, 1, 0, 0], [0, 1, 1, 0, 1, 0, 0, 0, 0], [0, 1, 0, 1, 1, 0, 0, 0, 0]]
    assert x.ended.tolist() == [True, False, True]
    assert x.reward.nonzero().tolist() == [[0, 6], [1, 4], [2, 4]] and x.reward.sum(1).tolist() == [1, 2, 3]

class Prefixes(nn.Module): # a state of its own for each prefix
    def __init__(self, world):
        super().__init__()
        self.known, self.config = {}, TabularLM(world).config
        self.config.hidden_size = 64
    def forward(self, input_ids, attention_mask, **_):
        at = [[self.known.setdefault(tuple(row[:t + 1]), len(self.known) % 64) for t in range(len(row))] for row in input_ids.tolist()]
        return SimpleNamespace(last_hidden_state=nn.functional.one_hot(torch.tensor(at), 64).float())

def test_two_turns_with_a_stochastic_environment_are_learned_exactly():
    "Q of the first word: the mean over what the environment wrote of the best that the second turn can do, by hand."
    paid = {(0, 1, 0): 1., (0, 1, 2): -2., (0, 2, 0): 5., (0, 2, 2): 7., (1, 1, 0): 2., (1, 1, 2): 3., (1, 2, 0): 4., (1, 2, 2): .5}
    often = {(0, 1): 3, (0, 2): 1, (1, 1): 1, (1, 2): 1}              # the environment's answers to the first word
    rows = [(first, env, second) for first, env, second in paid for _ in range(often[first, env])]
    x = turns_of([[[a, 3], [e], [b, 3]] for a, e, b in rows], torch.tensor([paid[row] for row in rows]))
    x = replace(x, reward=x.reward + torch.tensor([.5, -.25])[torch.tensor([a for a, _, _ in rows])][:, None]
                * (x.turn_ends() & ~x.last()))                         # the first turn pays, too
    lm = TabularLM(WORLD)
    lm.base_model, lm.head = Prefixes(WORLD), nn.Linear(64, WORLD.vocab_size, bias=False)
    g = .7
    want = {0: g * (.5 + g * g * (3 * 1. + 7.) / 4), 1: g * (-.25 + g * g * (3. + 4.) / 2)}
    for n_step, mc_bound in ((1, False), (1, True)):
        nets = QNets(q_network(lm), [WORLD.start, WORLD.pad])
        nets.target.base_model.known = nets.online.base_model.known
        train_q(nets, x, replace(TABLE, n_steps=400), replace(EXACT, gamma=g, n_step=n_step, mc_bound=mc_bound), seeded())
        got = table(nets)[nets.online.base_model.known[(WORLD.start,)]]
        if not mc_bound: assert [got[w].item() for w in want] == pytest.approx(list(want.values()), abs=.02)
        second = table(nets)[nets.online.base_model.known[(WORLD.start, 1, 3, 2)]]
        assert [second[0].item(), second[2].item()] == pytest.approx([4 * g, .5 * g], abs=.02)

def test_saved_results_hold_the_claims():
    saved = json.loads((Path(__file__).parents[1]/"nbs/results/qlearning.json").read_text("utf-8"))
    def gold(run, policy): return [r["gold"] for r in saved["rows"] if (r["run"], r["policy"]) == (run, policy)]
    soft, tilted = gold("main", "softmax(Q/tau)"), gold("main", "reference x exp(Q/tau)")
    assert len(soft) == len(tilted) == 3 and min(soft) >= 4.4 and min(tilted) >= 4.6
    assert max(gold("SFT, best quarter", "sampled")) < min(soft)
    assert saved["settings"]["n_log"] == 4000 and saved["command"].endswith("bench_qlearning_seeds.py")

# ---- soft values, and the picture of a Q-table
def test_the_soft_value_lies_between_the_mean_and_the_maximum():
    q, ref = torch.tensor([[1., 0.], [3., -1.]], dtype=torch.double), torch.tensor([.25, .75]).double().log()
    assert_close(soft_backup(q, ref, 1e-3), q.amax(-1), atol=2e-3, rtol=0)
    assert_close(soft_backup(q, ref, 1e4), (ref.exp() * q).sum(-1), atol=1e-3, rtol=0)
    assert soft_backup(torch.tensor([-300., 500.]), torch.tensor([0., -torch.inf]), .1) == -300

def test_soft_values_reach_the_best_policy_at_every_beta():
    world, ref = WORLD, bigram_lm(WORLD)
    logp = ref.head.weight.detach().T[:, :world.eos + 1].log_softmax(-1)
    at, ends = {s: i for i, s in enumerate(states(world))}, {y: i for i, y in enumerate(world.responses())}
    reward = torch.randn(len(ends), generator=seeded(3), dtype=torch.double)
    for beta in (.2, 1.):
        q = torch.zeros(len(at), world.eos + 1).double()
        for s in reversed(states(world)):
            for w in range(world.eos + 1):
                y = (*s, w)
                q[at[s], w] = reward[ends[y]] if y in ends else soft_backup(q[at[y]], logp[at[y]], beta)
        p = q_policy_logprobs(q, torch.ones(world.eos + 1).bool(), beta, logp)
        got = torch.stack([sum(p[at[y[:i]], y[i]] for i in range(len(y))) for y in ends])
        want = (all_logprobs(ref, world).detach() + reward / beta).log_softmax(-1)
        assert_close(got, want)

def test_a_q_tree_has_a_box_for_every_word_of_every_state():
    fig = q_trees(WORLD, {"a": torch.zeros(len(states(WORLD)), WORLD.vocab_size)})
    (ax,), n = fig.axes, len(states(WORLD)) * len(WORLD.words)
    (boxes,) = ax.collections
    assert len(boxes.get_paths()) == len(ax.texts) == n
    areas = [path.get_extents().width * path.get_extents().height for path in boxes.get_paths()]
    first, *_, last = ([a for a, path in zip(areas, boxes.get_paths()) if path.get_extents().x0 == x] for x in range(WORLD.max_len))
    assert sum(first) == pytest.approx(len(WORLD.seqs)) and last == pytest.approx([1.] * len(last))    # a row for each response
    inside = [path.get_extents().contains(*text.get_position()) for path, text in zip(boxes.get_paths(), ax.texts)]
    assert all(inside)          # each number stands in its box
