"Parity, invariances and errors of the reward module that would only lengthen the chapter."
from itertools import combinations
import math, random, pytest, torch
from torch import tensor
from torch.testing import assert_close
from transformers import (GPTNeoXForSequenceClassification, LlamaForSequenceClassification)
from rlhf_nb.base.learning import TrainConfig, accumulate_gradients, make_trainer
from rlhf_nb.trainers import reward_tools
from rlhf_nb.base.models import ScalarModel, load_bundled, load_reward_model, save_reward_model, tiny_lm
from rlhf_nb.base.settings import weight_hash
from rlhf_nb.best_policy import best_of_n_policy
from rlhf_nb.reward import (preference_accuracy, best_of_n, bradley_terry_loss, calibration_bins,
    pooled_scores, reward_loss, score_seqs, score_pairs, train_reward)
from rlhf_nb.base.scores import ScoreNormalizer, best_of_n_kl, expected_best_of_n, fit_normalizer, normalize_scores
from rlhf_nb.trainers.reward_tools import (PairsWithMargin, length_bias, make_reward_fn,
    margin_reward_loss, sample_pairs)
from rlhf_nb.base.batches import PreferencePairs, concat_seqs, pad_left, response_text
from rlhf_nb.tokens import Seqs, make_seqs
from rlhf_nb.world import utility
from rlhf_nb.worlds.world_text import TEST, make_tokenizer

TOKENIZER = make_tokenizer()
PAD, EOS, V = TOKENIZER.pad_token_id, TOKENIZER.eos_token_id, len(TOKENIZER)
def seeded(seed=0): return torch.Generator().manual_seed(seed)
def scalar(arch="neox", seed=0): return ScalarModel.from_lm(tiny_lm(TOKENIZER, arch), seed)
def words(n, rng): return [rng.randrange(6, V) for _ in range(n)]

def some_seqs(b=9, seed=0, longest=14):
    rng = random.Random(seed)
    prompts = [words(rng.randint(1, 6), rng) for _ in range(b)]
    responses = [words(rng.randint(0, longest), rng) + [EOS] * (i % 3 > 0) for i in range(b)]
    return make_seqs(prompts, responses, PAD)

def some_pairs(b=9, seed=0):
    rng = random.Random(seed)
    prompts = [words(rng.randint(1, 6), rng) for _ in range(b)]
    return PreferencePairs(*[make_seqs(prompts, [words(rng.randint(1, n), rng) + [EOS]
                                       for _ in range(b)], PAD) for n in (14, 7)])

def rows_of(seqs): return [r[m].tolist() for r, m in zip(seqs.ids, seqs.attention_mask)]

def left_padded(seqs):
    ids, mask = pad_left(rows_of(seqs), PAD)
    return Seqs(ids, mask, torch.zeros_like(mask))

# ---- pooling against transformers
@pytest.mark.parametrize("arch,kind", [("neox", GPTNeoXForSequenceClassification),
                                       ("llama", LlamaForSequenceClassification)])
@pytest.mark.parametrize("side", ["right", "left", "none"])
def test_pooled_equals_the_classifier_of_transformers(arch, kind, side, tmp_path):
    ours = scalar(arch).eval()
    save_reward_model(ours, TOKENIZER, tmp_path)
    theirs, seqs = kind.from_pretrained(tmp_path).eval(), some_seqs()
    if side == "left": seqs = left_padded(seqs)
    if side == "none":
        seqs = make_seqs([words(3, random.Random(i)) for i in range(5)], [[EOS]] * 5, PAD)
        assert seqs.attention_mask.all()
    assert weight_hash(load_reward_model(tmp_path)) == weight_hash(ours)
    with torch.no_grad():
        want = theirs(input_ids=seqs.ids, attention_mask=seqs.attention_mask.long()).logits[:, 0]
        assert want.std() > 1e-3                      # scores that say something
        assert_close(pooled_scores(ours, seqs), want, atol=1e-5, rtol=1e-5)

def test_bf16_scores_are_close_and_come_as_float32():
    model, seqs = scalar().eval(), some_seqs(6)
    with torch.no_grad(): want = pooled_scores(model, seqs)
    got = score_seqs(model.bfloat16(), seqs)
    assert got.dtype == torch.float32
    assert (got - want).abs().max() < .05 and torch.corrcoef(torch.stack([got, want]))[0, 1] > .99

# ---- loss
def test_bradley_terry_by_hand():
    chosen, rejected = tensor([0., 1., 2., -1.]), tensor([0., 0., -1., 1.])
    gap = [0, 1, 3, -2]
    assert_close(bradley_terry_loss(chosen, rejected), tensor([math.log(1 + math.exp(-g)) for g in gap]))
    assert_close(bradley_terry_loss(chosen, rejected, margin=tensor([0., 1., .5, 0.])),
                 tensor([math.log(1 + math.exp(m - g))
                         for g, m in zip(gap, (0, 1, .5, 0))]))
    extra = bradley_terry_loss(chosen, rejected, center_coef=.1) - bradley_terry_loss(chosen, rejected)
    assert_close(extra, tensor([0., .1, .1, 0.]))

def test_margins_are_those_of_the_pairs():
    model, x = ScalarModel.from_lm(tiny_lm(make_tokenizer())), PreferencePairs(make_seqs([[3, 4], [5]], [[6, 7], [8, 9, 3]], 0), make_seqs([[3, 4], [5]], [[8], [6, 7]], 0))
    with torch.no_grad(): model.score.weight.normal_(generator=torch.Generator().manual_seed(0))
    margin, (chosen, rejected) = tensor([.5, 2.]), score_pairs(model, x)
    loss, n, _ = margin_reward_loss(model, PairsWithMargin(x, margin), center_coef=0.)
    assert n == 2
    assert_close(loss, sum(-torch.nn.functional.logsigmoid(chosen - rejected - margin)))

def test_the_loss_stays_finite_where_the_sigmoid_does_not():
    score = tensor([-300.], requires_grad=True)
    loss = bradley_terry_loss(score, tensor([300.])).sum()
    loss.backward()
    assert_close(loss, tensor(600.)); assert_close(score.grad, tensor([-1.]))

def test_one_forward_for_both_sides_and_any_micro_batch():
    pairs, results = some_pairs(9), []
    for micro in (9, 4, 1):
        trainer = make_trainer(scalar(), TrainConfig(micro_batch_size=micro))
        results.append(accumulate_gradients(trainer, pairs, reward_loss)
                       + ([p.grad.clone() for p in trainer.model.parameters()],))
    model, calls = scalar(), []
    model.register_forward_hook(lambda *_: calls.append(1))
    loss, n, metrics = reward_loss(model, pairs)
    assert len(calls) == 1 and n == 9
    model.eval()
    chosen, rejected = [pooled_scores(model, s) for s in (pairs.chosen, pairs.rejected)]
    assert_close(loss, bradley_terry_loss(chosen, rejected, center_coef=.01).sum())
    assert metrics["accuracy"] == (chosen > rejected).sum()
    for mean, weight, extra, grads in results:
        assert weight == 9 and abs(mean - loss.item() / 9) < 1e-5
        assert abs(extra["mean_reward"] - torch.cat([chosen, rejected]).mean()) < 1e-5
        for g, w in zip(grads, results[0][3]): assert_close(g, w, atol=1e-6, rtol=1e-4)

# ---- scores
def test_score_seqs_keeps_order_mode_and_takes_any_batch_size():
    model, seqs = scalar().train(), some_seqs(23, seed=4)
    with torch.no_grad(): want = torch.cat([pooled_scores(model, seqs[[i]]) for i in range(23)])
    for size in (1, 5, 256):
        got = score_seqs(model, seqs, size)
        assert_close(got, want, atol=1e-5, rtol=1e-5)
        assert model.training and not got.requires_grad

def test_the_normalizer_gives_mean_0_and_std_1_and_keeps_the_order():
    score = torch.randn(50, generator=seeded()) * 7 + 3
    scaled = normalize_scores(score, fit_normalizer(score))
    assert_close(scaled.mean(), tensor(0.), atol=1e-5, rtol=0)
    assert_close(scaled.std(correction=0), tensor(1.))
    assert (scaled.argsort() == score.argsort()).all()
    for alike in (torch.ones(4), torch.ones(1), torch.ones(0)):
        with pytest.raises(ValueError, match="differ"): fit_normalizer(alike)
    for field, args in ("std", (0., 0.)), ("std", (0., -1.)), ("std", (0., math.inf)), ("mean", (math.nan, 1.)):
        with pytest.raises(ValueError, match=f"ScoreNormalizer.{field}"): ScoreNormalizer(*args)
    with pytest.raises(TypeError, match="ScoreNormalizer.mean"): ScoreNormalizer("0", 1.)

def test_reward_fn_is_the_normalized_score_without_gradient():
    model, seqs = scalar(), some_seqs(5)
    got = make_reward_fn(model, ScoreNormalizer(2., 4.))(seqs)
    assert_close(got, (score_seqs(model, seqs) - 2) / 4)
    assert not got.requires_grad

# ---- can it be trusted
def test_accuracy_counts_a_tie_as_half():
    assert preference_accuracy(tensor([1., 0., 2., 5.]), tensor([0., 1., 2., 4.])) == .625

def brute_calibration(chosen, rejected, n_bins):
    bins = {}
    for c, r in zip(chosen.tolist(), rejected.tolist()):
        p = 1 / (1 + math.exp(-abs(c - r)))
        bins.setdefault(min(n_bins - 1, int((p - .5) * 2 * n_bins)), []).append((p, c > r))
    return [(sum(p for p, _ in b) / len(b), sum(ok for _, ok in b) / len(b), len(b)) for _, b in sorted(bins.items())]

@pytest.mark.parametrize("n_bins", [1, 4, 10])
def test_calibration_equals_a_plain_loop(n_bins):
    g = seeded(n_bins); a, b = torch.randn(200, generator=g), torch.randn(200, generator=g)
    bins, rows = calibration_bins(a, b, n_bins), brute_calibration(a, b, n_bins)
    assert_close(torch.stack([x.float() for x in bins], 1), tensor(rows), atol=1e-5, rtol=1e-5)

def test_length_bias_does_not_care_which_side_is_called_chosen():
    pairs = some_pairs(40, seed=6)
    chosen, rejected = score_pairs(scalar(), pairs)
    one = length_bias(pairs, chosen, rejected)
    two = length_bias(PreferencePairs(pairs.rejected, pairs.chosen), rejected, chosen)
    assert abs(one["longer_chosen"] + two["longer_chosen"] - 1) < 1e-6
    mixed = PreferencePairs(*[concat_seqs([a[:15], b[15:]], PAD) for a, b in (
        (pairs.chosen, pairs.rejected), (pairs.rejected, pairs.chosen))])
    three = length_bias(mixed, torch.cat([chosen[:15], rejected[15:]]),
                        torch.cat([rejected[:15], chosen[15:]]))
    assert abs(one["correlation"] - two["correlation"]) < 1e-6
    assert abs(one["correlation"] - three["correlation"]) < 1e-6
    length = [s.response_mask.sum(1).float() for s in (pairs.chosen, pairs.rejected)]
    by_length = length_bias(pairs, *length)     # a model that only counts tokens
    assert abs(by_length["correlation"] - 1) < 1e-6
    assert (by_length["accuracy_longer"], by_length["accuracy_shorter"]) == (1, 0)
    with pytest.raises(ValueError, match="both kinds"):
        length_bias(PreferencePairs(pairs.chosen, pairs.chosen), chosen, chosen)

# ---- best of n
@pytest.mark.parametrize("n", range(1, 7))
def test_expected_best_is_the_mean_over_every_subset(n):
    g = seeded(n); score, value = (torch.rand(3, 6, generator=g) for _ in range(2))
    want = [sum(value[p, list(c)][score[p, list(c)].argmax()]
                for c in combinations(range(6), n)) / math.comb(6, n) for p in range(3)]
    assert_close(expected_best_of_n(score, value, n), tensor(want))

def test_best_of_n_picks_and_refuses():
    score = tensor([[1., 3., 2.], [-1., -5., -2.]])
    assert best_of_n(score).tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"nan for prompts \[1\]"):
        best_of_n(tensor([[1., 2.], [torch.nan, 1.]]))
    for n in (0, 4):
        with pytest.raises(ValueError, match="1 <= n <= 3"): expected_best_of_n(score, score, n)

def test_kl_of_best_of_n_from_its_distribution():
    m = 2000                                        # nearly continuous, no ties
    logp, score = torch.full((m,), -math.log(m)).double(), torch.arange(m).double()
    for n in (1, 4, 16, 64):
        best = best_of_n_policy(logp, score, n)
        exact = (best.exp() * (best - logp)).sum().item()
        assert abs(exact - best_of_n_kl(n)) < 1e-3
    assert [round(best_of_n_kl(n), 4) for n in (1, 4, 16, 64)] == [0, .6363, 1.8351, 3.1745]

# ---- the world's pairs, and training on them
def test_the_chosen_side_is_the_one_the_annotator_likes():
    sft, _ = load_bundled("sft")
    pairs, questions = sample_pairs(sft, TOKENIZER, list(TEST), 100, seeded(3), random.Random(4))
    liked = [[utility(q, response_text(TOKENIZER, ids[mask].tolist()))
              for q, ids, mask in zip(questions, s.ids, s.response_mask)]
             for s in (pairs.chosen, pairs.rejected)]
    better = [c > r for c, r in zip(*liked) if c != r]
    assert sum(better) / len(better) > .75

def test_equal_answers_are_redrawn(monkeypatch):
    def two_or_three_words(model, prompts, tokenizer, config, generator):
        responses = [[20 + i % (2 if i < 256 else 3), EOS] for i in range(len(prompts))]
        return make_seqs(prompts, responses, PAD), None
    monkeypatch.setattr(reward_tools, "generate", two_or_three_words)
    pairs, questions = sample_pairs(None, TOKENIZER, list(TEST), 300, seeded(), random.Random(0))
    assert len(pairs) == len(questions) == 300
    assert all(a != b for a, b in zip(rows_of(pairs.chosen), rows_of(pairs.rejected)))

def test_train_reward_learns_to_prefer_a_word():
    rng = random.Random(0)
    prompts = [words(3, rng) for _ in range(128)]
    responses = [[words(4, rng) for _ in prompts] for _ in range(2)]
    pairs = PreferencePairs(make_seqs(prompts, [s + [30, EOS] for s in responses[0]], PAD),
                            make_seqs(prompts, [s + [31, EOS] for s in responses[1]], PAD))
    model = scalar()
    untrained = bradley_terry_loss(*score_pairs(model, pairs[96:])).mean().item()
    trainer = train_reward(model, pairs[:96], TrainConfig(n_steps=20, batch_size=32), seeded(), pairs[96:])
    assert preference_accuracy(*score_pairs(model, pairs[96:])) > .95
    first, last = trainer.log.rows[0], trainer.log.rows[-1]
    assert first["step"] == 0 and first["eval_loss"] == pytest.approx(untrained)    # a mean
    assert "eval_accuracy" in first
    assert last["loss"] < .2 and {"accuracy", "mean_reward"} <= last.keys()
