"SPIN against enumeration and its closed form; who is the opponent, how often it speaks."
import importlib.util, json, math, pytest, torch
from dataclasses import asdict, fields, replace
from pathlib import Path
from torch.testing import assert_close
from rlhf_nb import spin
from rlhf_nb.base.learning import named_generator
from rlhf_nb.dpo import PairsWithRef, sequence_logprobs, dpo_loss, precompute_ref_logprobs
from rlhf_nb.base.models import add_lora, tiny_lm
from rlhf_nb.base.settings import weight_hash
from rlhf_nb.worlds.oracle import all_logprobs, sample_rows, bigram_lm, micro_tokenizer, micro_world, to_tabular_lm
from rlhf_nb.base.sampling import SamplingParams
from rlhf_nb.spin import (SPINConfig, SPINData, iteration_pairs, opponent_pairs,
    train_spin, train_spin_iteration, make_spin_loss, spin_metrics)
from rlhf_nb.base.batches import PreferencePairs, concat_pairs
from rlhf_nb.tokens import make_seqs

torch.set_num_threads(1)
ROOT = Path(__file__).resolve().parents[1]
WORLD = micro_world()
TOK = micro_tokenizer(WORLD)
WRITER = bigram_lm(WORLD, {"": (.10, .60, .05, .25), "very": (.15, .70, .05, .10),
                          "kind": (.30, .05, .05, .60), "rude": (.10, .30, .10, .50)})
P_DATA, P_0 = (all_logprobs(m, WORLD).detach() for m in (WRITER, bigram_lm(WORLD)))
def seeded(seed=0): return torch.Generator().manual_seed(seed)
def drawn(n, seed): return WORLD.seqs[sample_rows(P_DATA, n, seeded(seed))]
def player(): return bigram_lm(WORLD).float()
def rows_of(seqs, mask): return [r[m].tolist() for r, m in zip(seqs.ids, mask)]
def prompts(seqs): return rows_of(seqs, seqs.attention_mask & ~seqs.response_mask)
def replies(seqs): return rows_of(seqs, seqs.response_mask)
def plain(rows): return [{k: v for k, v in r.items() if k != "seconds"} for r in rows]
def iterations(log): return [r for r in log.rows if "accuracy" in r]
DATA = SPINData(drawn(300, 0), drawn(60, 1), TOK)
SHORT = SPINConfig(n_iterations=3, n_pairs=120, n_epochs=5, lr=.03, batch_size=20, micro_batch_size=20, max_new_tokens=3)

# ---- pairs
def test_the_opponent_hears_the_prompt_and_nothing_else():
    lm = tiny_lm(TOK, seed=1)
    real = make_seqs([[4, 0], [4], [4, 1, 2, 0]], [[1, 3], [2, 2, 3], [3]], WORLD.pad)
    before = real.ids.clone()
    pairs = opponent_pairs(lm.train(), real, TOK, SamplingParams(5), seeded())
    assert prompts(pairs.rejected) == prompts(real) == [[4, 0], [4], [4, 1, 2, 0]]
    assert pairs.chosen is real and torch.equal(real.ids, before)
    assert all(1 <= len(r) <= 5 for r in replies(pairs.rejected)) and lm.training
    again = opponent_pairs(lm, real, TOK, SamplingParams(5), seeded())
    assert torch.equal(again.rejected.ids, pairs.rejected.ids)

def test_an_iteration_draws_each_demonstration_once_at_temperature_one(monkeypatch):
    real = make_seqs([[4]] * 8 + [[4, 0]] * 8, [[0] * (i % 3) + [3] for i in range(16)], WORLD.pad)
    heard, true = [], spin.opponent_pairs
    monkeypatch.setattr(spin, "opponent_pairs", lambda *a: heard.append(a) or true(*a))
    data = SPINData(real, DATA.held_out, TOK)
    all_rows = iteration_pairs(player(), data, replace(SHORT, n_pairs=16), seeded())
    key = lambda s: sorted(map(str, s.ids.tolist()))
    assert key(all_rows.chosen) == key(real) and not torch.equal(all_rows.chosen.ids, real.ids)
    assert heard[0][3] == SamplingParams(3, temperature=1., top_k=0, top_p=1.)
    a, b, c = (iteration_pairs(player(), DATA, SHORT, named_generator(s, p)).chosen.ids
               for s, p in ((0, "iteration 1"), (0, "iteration 2"), (1, "iteration 1")))
    assert not torch.equal(a, b) and not torch.equal(a, c)
    assert torch.equal(a, iteration_pairs(player(), DATA, SHORT, named_generator(0, "iteration 1")).chosen.ids)
    with pytest.raises(ValueError, match="n_pairs is 301.*300 demonstrations"):
        iteration_pairs(player(), DATA, replace(SHORT, n_pairs=301), seeded())

def test_mixed_keeps_pairs_together():
    a = PreferencePairs(drawn(3, 2), drawn(3, 3)); long = make_seqs([[4, 0, 0, 0]] * 2, [[0, 0, 3], [3]], WORLD.pad)
    b = PreferencePairs(long, make_seqs([[4, 0, 0, 0]] * 2, [[3], [1, 3]], WORLD.pad))
    both = concat_pairs([a, b], WORLD.pad)
    assert len(both) == 5 and torch.equal(concat_pairs([b], WORLD.pad).chosen.ids, b.chosen.ids)
    for side in ("chosen", "rejected"):
        got, x, y = (getattr(p, side) for p in (both, a, b))
        assert replies(got) == replies(x) + replies(y) and prompts(got) == prompts(x) + prompts(y)

@pytest.mark.parametrize("field", fields(SPINConfig), ids=lambda f: f.name)
def test_every_setting_is_checked_by_name(field):
    wrong = {int: [0, -1, 1.5, "1", None, True], float: [0., -1., math.nan, math.inf, "1", None, True],
             bool: [1, 0, "True", None], str: ["", "fp8", 1, None]}
    for value in wrong[field.type]:
        with pytest.raises((TypeError, ValueError), match=f"SPINConfig.{field.name} must be .*got {value!r}"):
            SPINConfig(**{field.name: value})
    for beta in (0., -1., math.nan, "1"):
        with pytest.raises((TypeError, ValueError), match="beta must be"): make_spin_loss(beta)

# ---- the loss, exactly
def per_pair(model, opponent, beta): # (40 40): real i, generated j
    logp, ref = sequence_logprobs(model, WORLD.seqs), sequence_logprobs(opponent, WORLD.seqs).detach()
    i, j = torch.cartesian_prod(torch.arange(40), torch.arange(40)).T
    return dpo_loss(logp[i], logp[j], ref[i], ref[j], beta=beta).view(40, 40)

@pytest.mark.parametrize("beta", [.1, .5, 1., 3.])
def test_zero_gradient_exactly_where_the_opponent_is_the_writer(beta):
    def norm(start):
        model, prob = to_tabular_lm(WORLD, start), P_DATA.exp()[:, None] * start.exp()
        (prob * per_pair(model, to_tabular_lm(WORLD, start), beta)).sum().backward()
        return model.head.weight.grad.norm().item()
    assert norm(P_DATA) < 1e-12 and norm(P_0) > .01 * beta
    assert norm((.9 * P_DATA + .1 * P_0).log_softmax(0)) > 1e-3 * beta

def test_the_loss_is_equation_4_7_pair_by_pair():
    model, opponent = to_tabular_lm(WORLD, P_DATA), bigram_lm(WORLD)
    rows = torch.tensor([3, 17, 39, 0]), torch.tensor([5, 17, 2, 31])
    pairs = PreferencePairs(*(WORLD.seqs[r] for r in rows))
    ratio = (P_DATA - P_0).tolist()
    for beta in (.1, 1., 2.5):
        want = sum(math.log(1 + math.exp(-beta * (ratio[i] - ratio[j]))) for i, j in zip(*map(torch.Tensor.tolist, rows)))
        loss, n, *_ = make_spin_loss(beta)(model, precompute_ref_logprobs(opponent, pairs))
        assert n == 4 and abs(loss.item() - want) < 1e-9

def test_the_opponents_log_probs_are_data():
    logps = [torch.zeros(2, requires_grad=True) for _ in range(4)]
    spin.spin_loss(*logps).sum().backward()
    assert [x.grad is None for x in logps] == [False, False, True, True]

@pytest.mark.parametrize("beta", [.6, 1., 2.])
def test_training_to_the_end_reaches_the_closed_form(beta):
    model, opponent = to_tabular_lm(WORLD, P_0), to_tabular_lm(WORLD, P_0)
    opt = torch.optim.LBFGS(model.parameters(), max_iter=2000, tolerance_grad=1e-12, tolerance_change=1e-16,
                            line_search_fn="strong_wolfe")
    prob = P_DATA.exp()[:, None] * P_0.exp()
    def loss():
        opt.zero_grad(); value = (prob * per_pair(model, opponent, beta)).sum(); value.backward(); return value
    opt.step(loss)
    want = (P_0 + (P_DATA - P_0) / beta).log_softmax(0)
    assert_close(all_logprobs(model, WORLD).detach().exp(), want.exp(), atol=1e-6, rtol=0)

def test_told_apart_by_hand_ties_are_half_and_the_mode_is_kept():
    lm = tiny_lm(TOK, seed=2).train()
    x = precompute_ref_logprobs(lm, PreferencePairs(drawn(5, 4), drawn(5, 5)))
    real, made = torch.tensor([2., -1., .5, 0., -3.]), torch.tensor([1., 1., 0., 0., -3.5])
    got = spin_metrics(lm, PairsWithRef(x.pairs, x.ref_chosen - real, x.ref_rejected - made))
    assert lm.training and abs(got["accuracy"] - 3.5 / 5) < 1e-6
    assert abs(got["margin"] - (1 - 2 + .5 + 0 + .5) / 5) < 1e-5
    order = torch.tensor([3, 1, 4, 0, 2])
    back = spin_metrics(lm, PairsWithRef(x.pairs[order], (x.ref_chosen - real)[order], (x.ref_rejected - made)[order]))
    assert back["accuracy"] == got["accuracy"]

# ---- one iteration
def test_the_first_step_finds_ln_2_though_the_model_has_dropout():
    lm = tiny_lm(TOK, seed=3)
    for part in lm.modules():
        if isinstance(part, torch.nn.Dropout): part.p = .5
    lm.train()
    log = train_spin_iteration(lm, PreferencePairs(drawn(40, 6), WORLD.seqs[torch.arange(40)]), replace(SHORT, batch_size=40), seeded())
    assert abs(log.rows[0]["loss"] - math.log(2)) < 1e-6 and len(log) == 5

def test_steps_are_epochs_over_all_pairs():
    pairs = PreferencePairs(drawn(50, 6), drawn(50, 7))
    assert len(train_spin_iteration(player(), pairs, replace(SHORT, n_epochs=2, batch_size=20), seeded())) == 6
    assert train_spin_iteration(player(), pairs, replace(SHORT, n_epochs=2, batch_size=20), seeded()).rows[2]["weight"] == 10

# ---- the game
def test_each_opponent_is_the_last_player_and_speaks_once(monkeypatch):
    asked, referred = [], []
    ask, refer = spin.opponent_pairs, spin.precompute_ref_logprobs
    def ask_spy(opponent, *rest):
        asked.append((weight_hash(opponent), len(rest[0]))); return ask(opponent, *rest)
    def refer_spy(ref, pairs, *rest):
        x = refer(ref, pairs, *rest)
        referred.append((weight_hash(ref), len(pairs), x.ref_rejected, sequence_logprobs(ref, pairs.rejected).detach()))
        return x
    monkeypatch.setattr(spin, "opponent_pairs", ask_spy)
    monkeypatch.setattr(spin, "precompute_ref_logprobs", refer_spy)
    model, seen = player(), []
    p_0 = weight_hash(model)
    log = train_spin(model, DATA, SHORT, 0, callback=lambda row, pairs: seen.append((row, weight_hash(model), pairs)))
    rows = iterations(log)
    assert [r["iteration"] for r in rows] == [1, 2, 3] and [r["pairs"] for r in rows] == [120, 240, 240]
    assert [r["opponent"] for r in rows] == [p_0, rows[0]["player"], rows[1]["player"]]
    assert [s[1] for s in seen] == [r["player"] for r in rows] and rows[-1]["player"] == weight_hash(model)
    assert len({r["player"] for r in rows} | {p_0}) == 4
    assert asked == [(r["opponent"], n) for r in rows for n in (120, 60)]      # pairs, held out; no more
    assert [h for h, *_ in referred] == [r["opponent"] for r in rows for _ in (0, 1)]
    for _, _, noted, now in referred: assert_close(noted, now)                 # the old pairs meet the new opponent
    steps = [r for r in log.rows if "loss" in r]
    assert [sum(s["iteration"] == i for s in steps) for i in (1, 2, 3)] == [30, 60, 60]
    for i in (1, 2, 3): assert abs(next(s["loss"] for s in steps if s["iteration"] == i) - math.log(2)) < 1e-5

def test_the_last_pairs_are_mixed_in_and_only_the_last(monkeypatch):
    trained, fresh = [], []
    true = spin.train_spin_iteration
    monkeypatch.setattr(spin, "train_spin_iteration", lambda model, pairs, *rest: trained.append(pairs) or true(model, pairs, *rest))
    train_spin(player(), DATA, replace(SHORT, n_epochs=1), 0, callback=lambda row, pairs: fresh.append(pairs))
    want = [replies(fresh[0].rejected)] + [replies(a.rejected) + replies(b.rejected) for a, b in zip(fresh, fresh[1:])]
    assert [replies(p.rejected) for p in trained] == want
    assert len({str(p.chosen.ids.tolist()) for p in fresh}) == 3       # other demonstrations each time
    alone = train_spin(player(), DATA, replace(SHORT, n_epochs=1, mix_previous=False), 0)
    assert [r["pairs"] for r in iterations(alone)] == [120] * 3

def test_the_writer_is_reached_and_accuracy_falls_to_one_half():
    model, far = player(), []
    config = replace(SHORT, n_iterations=3, n_pairs=1500, mix_previous=False, n_epochs=12, lr=.1, batch_size=500, micro_batch_size=500)
    data = SPINData(drawn(1500, 8), drawn(1500, 9), TOK)
    log = train_spin(model, data, config, 0, callback=lambda row, pairs: far.append(
        (all_logprobs(model, WORLD).detach().exp() - P_DATA.exp()).abs().sum().item() / 2))
    accuracy = [r["accuracy"] for r in iterations(log)]
    assert max(far) < .13 and accuracy[0] > .68 and abs(accuracy[-1] - .5) < .05

def test_randomness_comes_from_the_seed_alone():
    state = torch.get_rng_state()
    a, b, c = (train_spin(player(), DATA, replace(SHORT, n_epochs=1), seed) for seed in (0, 0, 1))
    assert plain(a.rows) == plain(b.rows) != plain(c.rows)
    assert torch.equal(torch.get_rng_state(), state)

def test_lora_plays_against_its_adapters_not_against_the_base():
    lm = add_lora(tiny_lm(TOK, seed=4), rank=2)
    log = train_spin(lm, DATA, replace(SHORT, n_iterations=2, n_pairs=40, n_epochs=2, lr=1e-2), 0)
    one, two = iterations(log)
    assert one["player"] == two["opponent"] != one["opponent"]
    assert abs(next(r["loss"] for r in log.rows if r["iteration"] == 2) - math.log(2)) < 1e-5

def test_the_results_belong_to_the_settings_and_carry_the_claims():
    path = ROOT/"benchmarks/bench_spin_seeds.py"
    spec = importlib.util.spec_from_file_location("bench_spin_seeds", path)
    bench = importlib.util.module_from_spec(spec); spec.loader.exec_module(bench)
    results = json.loads((ROOT/"nbs/results/spin.json").read_text("utf-8"))
    assert results["settings"] == {n: asdict(h, dict_factory=bench.plain) for n, h in (bench.RUNS | bench.AFTER | {"imitation": bench.CONTROL}).items()}
    assert results["settings"]["SPIN"] == asdict(SPINConfig(), dict_factory=bench.plain)
    by = {name: [r["curve"] for r in results["rows"] if r["run"] == name] for name in
          ("SFT model", "imitation", *bench.RUNS)}
    assert {len(curves) for curves in by.values()} == {3}
    for curve in by["SPIN"]:
        gold, accuracy = [p["gold"] for p in curve], [p["accuracy"] for p in curve[1:]]
        assert all(b > a for a, b in zip(gold, gold[1:])) and gold[-1] > gold[0] + .9
        assert accuracy[-1] < accuracy[0] - .1
    seen = SPINConfig().n_pairs * (2 * SPINConfig().n_iterations - 1)
    assert bench.CONTROL.n_steps * bench.CONTROL.batch_size == seen
