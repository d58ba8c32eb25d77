"""The oracle is the judge of the other modules, so it is judged here by brute force."""
import copy, itertools, math, subprocess, sys, pytest, torch
from torch.testing import assert_close
from rlhf_nb.base import models
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.worlds import oracle
from rlhf_nb.best_policy import best_of_n_policy, exact_gradient, optimal_policy
from rlhf_nb.worlds.oracle import (TabularLM, all_logprobs, bigram_lm, exact_values, expectation, micro_tokenizer,
    micro_world, optimal_q, sample_rows, states, to_tabular_lm)

def seeded(seed=0): return torch.Generator().manual_seed(seed)
def random_table(world, seed=0, dtype=torch.double):
    model = TabularLM(world).to(dtype)
    with torch.no_grad(): model.head.weight[:world.eos + 1].normal_(generator=seeded(seed))
    return model
def some_reward(world, seed=1): return torch.randn(len(world.seqs), generator=seeded(seed)).double()
WORLDS = [micro_world(), micro_world(("a", "."), 1), micro_world(("a", "b", "."), 4), micro_world(tuple("abcdef"), 2)]
each_world = pytest.mark.parametrize("world", WORLDS, ids=lambda w: f"{len(w.words)}x{w.max_len}")

# ---------------------------------------------------------------- the world
@each_world
def test_every_response_is_listed_once(world):
    w, n = len(world.words), world.max_len
    eos, listed = world.eos, set()
    for letters in itertools.product(range(w), repeat=n):
        listed.add(letters[:letters.index(eos) + 1] if eos in letters else letters)
    assert sorted(world.responses()) == sorted(listed)
    assert len(world.seqs) == sum((w - 1)**k for k in range(n)) + (w - 1)**n
    assert len(states(world)) == sum((w - 1)**k for k in range(n))
    assert states(world)[0] == () and [len(s) for s in states(world)] == sorted(map(len, states(world)))
    assert (world.seqs.ids[:, 0] == world.start).all() and not world.seqs.response_mask[:, 0].any()
    assert (world.seqs.ids == world.pad).equal(~world.seqs.attention_mask)

@each_world
@pytest.mark.parametrize("dtype, tol", [(torch.double, 1e-12), (torch.float, 1e-5)])
def test_probabilities_sum_to_one(world, dtype, tol):
    logp = all_logprobs(random_table(world, dtype=dtype), world)
    assert logp.dtype == dtype and abs(logp.exp().sum().item() - 1) < tol

# ---------------------------------------------------------------- the table as a language model
@each_world
def test_padding_on_the_left_changes_nothing(world):
    model, seqs = random_table(world), world.seqs
    pads = torch.full((len(seqs), 3), world.pad)
    ids, mask = torch.cat([pads, seqs.ids], 1), torch.cat([pads != world.pad, seqs.attention_mask], 1)
    want = model(seqs.ids, seqs.attention_mask).logits
    assert_close(model(ids, mask).logits[:, 3:], want)
    assert_close(model(ids).logits[:, 3:], want)

def test_padding_anywhere_is_skipped():
    world = micro_world()
    model, (very, kind) = random_table(world), (0, 1)
    want = model(torch.tensor([[world.start, very, kind]])).logits[0, -1]
    gap = torch.tensor([[world.start, very, world.pad, kind]])
    assert_close(model(gap).logits[0, -1], want)                     # pads are known by their id
    masked = model(torch.tensor([[world.start, very, very, kind]]), torch.tensor([[1, 1, 0, 1]]))
    assert_close(masked.logits[0, -1], want)                         # or by the mask alone

def test_reads_like_a_language_model():
    world = micro_world()
    model = random_table(world)
    logits = model(input_ids=world.seqs.ids, attention_mask=world.seqs.attention_mask,
                   position_ids=None, use_cache=False).logits
    for row, y in enumerate(world.responses()):                   # what follows depends on what came
        for i in range(len(y)): assert_close(logits[row, i], model.head.weight[:, states(world).index(y[:i])])
    assert_close(model(world.seqs.ids, logits_to_keep=1).logits, model(world.seqs.ids).logits[:, -1:])
    assert model.config.vocab_size == logits.shape[-1] and list(model.state_dict()) == ["head.weight"]
    assert_close(copy.deepcopy(model)(world.seqs.ids).logits, logits)
    assert model.to(torch.bfloat16)(world.seqs.ids).logits.dtype == torch.bfloat16

def test_a_new_table_draws_no_random_number():
    rng_state, _ = torch.get_rng_state(), [TabularLM(micro_world()), bigram_lm(micro_world())]
    assert torch.equal(rng_state, torch.get_rng_state())

def test_start_and_pad_have_no_probability_and_never_get_one():
    world = micro_world()
    model = TabularLM(world)
    opt = torch.optim.AdamW(model.parameters(), lr=.5, weight_decay=0.)
    for _ in range(20):
        (-all_logprobs(model, world)[[1, 7]]).sum().backward()
        opt.step(); opt.zero_grad()
    assert (model.head.weight[[world.start, world.pad]] == -1e4).all()
    assert all_logprobs(model, world).exp()[[1, 7]].sum() > .99      # it does learn

@pytest.mark.parametrize("budget", [64., 0.])
@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_models_logprobs_are_the_same_numbers(dtype, budget):
    world = micro_world()
    model = random_table(world, dtype=dtype)
    logp = logprobs(model, world.seqs, budget)
    assert_close(logp.sum(1), all_logprobs(model, world))
    reward = some_reward(world).to(dtype)
    value = (logp.sum(1).exp() * reward).sum()
    assert_close(torch.autograd.grad(value, model.head.weight)[0], exact_gradient(model, world, reward)["head.weight"])

# ---------------------------------------------------------------- exact sums
@each_world
def test_gradient_is_the_slope(world):
    model, reward = random_table(world), some_reward(world)
    grad, h = exact_gradient(model, world, reward)["head.weight"], 1e-5
    def value(at):
        with torch.no_grad():
            other = copy.deepcopy(model); other.head.weight += at
            return expectation(all_logprobs(other, world), reward)
    for k in range(6):
        way = torch.randn(model.head.weight.shape, generator=seeded(k)).double()
        way[world.eos + 1:] = 0
        assert_close((value(h * way) - value(-h * way)) / (2 * h), (grad * way).sum(), atol=1e-10, rtol=1e-9)

def test_gradient_reaches_any_model_and_skips_frozen_weights():
    world = micro_world()
    lm = models.tiny_lm(micro_tokenizer(world), hidden=16, layers=1)
    lm.get_input_embeddings().requires_grad_(False)
    grads = exact_gradient(lm, world, torch.ones(40))
    assert set(grads) == {n for n, p in lm.named_parameters() if p.requires_grad}

def test_expectation_ignores_responses_of_probability_0():
    logp = torch.tensor([.25, .75, 0.]).log()
    for bad in (math.inf, -math.inf, math.nan): assert expectation(logp, torch.tensor([4., 8., bad])) == 7

def test_sample_rows_follows_its_generator():
    logp = all_logprobs(random_table(micro_world()), micro_world())
    assert sample_rows(logp, 50, seeded(3)).equal(sample_rows(logp, 50, seeded(3)))
    assert not sample_rows(logp, 50, seeded(3)).equal(sample_rows(logp, 50, seeded(4)))

# ---------------------------------------------------------------- the best policy
@each_world
@pytest.mark.parametrize("beta", [.05, .5, 5.])
def test_no_policy_beats_the_closed_form(world, beta):
    ref_logp, reward = all_logprobs(random_table(world), world).detach(), some_reward(world)
    best, log_z = optimal_policy(ref_logp, reward, beta)
    def value(logp): return expectation(logp, reward - beta * (logp - ref_logp))
    assert_close(value(best), beta * log_z)
    assert_close(beta * (best - ref_logp), reward - beta * log_z)    # DPO, eq. 4 and 5
    for seed in range(5):
        other = (best + .3 * torch.randn(len(best), generator=seeded(seed)).double()).log_softmax(0)
        assert_close(beta * log_z - value(other), beta * expectation(other, other - best))

@each_world
def test_to_tabular_lm_gives_back_any_distribution(world):
    logp = torch.randn(len(world.seqs), generator=seeded(5)).double().mul(3).log_softmax(0)
    assert_close(all_logprobs(to_tabular_lm(world, logp), world), logp, atol=1e-10, rtol=0)
    model = random_table(world)
    assert_close(all_logprobs(to_tabular_lm(world, all_logprobs(model, world)), world), all_logprobs(model, world))
    assert to_tabular_lm(world, logp.float()).head.weight.dtype == torch.float

@pytest.mark.parametrize("n", [1, 2, 3])
def test_best_of_n_by_drawing_every_tuple(n):
    probs = torch.tensor([.1, .2, .3, .15, .25]).double()
    score = torch.tensor([1., 3., 1., 3., -2.]).double()             # two ties
    want = torch.zeros(5).double()
    for drawn in itertools.product(range(5), repeat=n):
        best = max(drawn, key=lambda i: score[i].item())             # the first of equals
        want[best] += probs[list(drawn)].prod()
    assert_close(best_of_n_policy(probs.log(), score, n).exp(), want)
    zero_prob = torch.tensor([1., 0.]).log()                             # alone in its score, of probability 0
    assert best_of_n_policy(zero_prob, torch.tensor([0., 1.]), n).exp().tolist() == [1., 0.]

# ---------------------------------------------------------------- Q and values
@each_world
@pytest.mark.parametrize("gamma", [1., .9, .3])
def test_q_is_the_best_completion(world, gamma):
    reward, q = some_reward(world), optimal_q(world, some_reward(world), gamma)
    for i, state in enumerate(states(world)):
        for word in range(world.eos + 1):
            prefix = (*state, word)
            futures = [gamma**(len(y) - len(prefix)) * r for y, r in zip(world.responses(), reward.tolist())
                       if y[:len(prefix)] == prefix]
            # maxima of discounted chains: with gamma > 0 the best completion is the best chain
            assert_close(q[i, word].item(), max(futures))
    assert q[:, world.eos + 1:].isnan().all() and not q[:, :world.eos + 1].isnan().any()

@each_world
def test_values_by_brute_force(world):
    logp, t = all_logprobs(random_table(world), world).detach(), world.seqs.ids.shape[1]
    returns = torch.randn(len(world.seqs), t, generator=seeded(8)).double()
    values, responses = exact_values(world, logp, returns), world.responses()
    for row, y in enumerate(responses):
        for i in range(len(y)):                                      # token i+1 of the row
            rows = [j for j, z in enumerate(responses) if z[:i] == y[:i]]
            rows = [j for j in rows if len(responses[j]) > i]
            probs = logp.exp()[rows]
            assert_close(values[row, i + 1], (probs * returns[rows, i + 1]).sum() / probs.sum())
    assert (values[~world.seqs.response_mask] == 0).all()

# ---------------------------------------------------------------- bad input
@pytest.mark.parametrize("call, says", [(lambda: micro_world(("a", "a", ".")), "different words"),
    (lambda: micro_world((".",)), "2 or more"), (lambda: micro_world(max_len=0), "max_len must be 1 or more, got 0"),
    (lambda: micro_world(max_len=-1), "max_len must be 1 or more, got -1"),
    (lambda: micro_world(tuple("abcdefghij"), 7), "too many"),
    (lambda: bigram_lm(micro_world(("a", "b", "."))), "3 probabilities"),
    (lambda: bigram_lm(micro_world(), {**oracle.BIGRAM_PROBS, "very": (.5, .5, .5, .5)}), "'very'"),
    (lambda: bigram_lm(micro_world(), {**oracle.BIGRAM_PROBS, "very": (math.nan, .5, .5, 0.)}), "'very'"),
    (lambda: bigram_lm(micro_world(), {**oracle.BIGRAM_PROBS, "very": (-.5, .5, .5, .5)}), "'very'"),
    (lambda: optimal_policy(torch.zeros(3), torch.zeros(3), 0.), "optimal_policy: beta must be above 0, got 0.0"),
    (lambda: best_of_n_policy(torch.zeros(3), torch.zeros(3), 0), "best_of_n_policy: n must be 1 or more, got 0"),
    (lambda: sample_rows(torch.zeros(3), 0, seeded()), "sample_rows: n must be 1 or more, got 0"),
    (lambda: optimal_q(micro_world(), torch.zeros(40), 1.1), "optimal_q: gamma must be from 0 to 1, got 1.1")])
def test_refusals(call, says):
    with pytest.raises(ValueError, match=says): call()

@pytest.mark.parametrize("call", [lambda x: micro_world(max_len=x), lambda x: sample_rows(torch.zeros(3), x, seeded()),
    lambda x: best_of_n_policy(torch.zeros(3), torch.zeros(3), x)], ids=["max_len", "draws", "best of n"])
@pytest.mark.parametrize("count", [2.5, 2., math.nan, math.inf, True, "2"])
def test_counts_are_whole_numbers(call, count):
    "A length of 2.5 is never reached: the listing would not end."
    with pytest.raises(TypeError, match="must be a whole number, got"): call(count)

WITHOUT = """
import importlib, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("transformers", "tokenizers", "ipywidgets"): raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
for name in ("tokens", "kl", "ppo", "grpo", "dpo", "worlds.oracle", "book.checks"): importlib.import_module("rlhf_nb." + name)
from rlhf_nb.worlds.oracle import micro_world
assert len(micro_world().responses()) == 40
"""

def test_the_mathematics_needs_no_transformers_tokenizers_or_widgets():
    "Who has torch alone can import the losses, the exact sums and the checks."
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
