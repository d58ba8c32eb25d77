"A reward model on absolute ratings: squared error, bins, token types; by hand, saved and read, as a stage."
import math, pytest, torch
from torch.testing import assert_close
from rlhf_nb.base.learning import TrainConfig, make_trainer, train_step
from rlhf_nb.base.models import BinnedScore, ScalarModel, load_reward_model, new_score, save_reward_model, tiny_lm, to_classifier
from rlhf_nb.reward import pooled_scores, score_seqs
from rlhf_nb.run import start
from rlhf_nb.run.pipeline import plan_stage
from rlhf_nb.run.stages import Stage, settings_of
from rlhf_nb.tokens import make_seqs
from rlhf_nb.trainers.reward_tools import RatedSeqs, TypedScalarModel, rating_loss
from tiny_runs import pair_rows, run, tiny, tokenizer, write_lines

pytestmark = pytest.mark.usefixtures("one_thread", "no_curves")
ROWS = RatedSeqs(make_seqs([[5], [6, 7, 8], [5, 9]], [[8, 9, 10], [10], [4, 4]], 0), torch.tensor([4., -1.5, 2.]))

def scalar(bins=None, seed=1):
    model = ScalarModel.from_lm(tiny_lm(tokenizer(), hidden=16, layers=1, seed=seed), seed)
    if bins: model.score = BinnedScore(new_score(model.score.weight, seed, len(bins)), bins)
    return model.eval()

def test_squared_error_and_cross_entropy_by_hand():
    model = scalar()
    got = [model(ROWS.seqs)[i, last] for i, last in enumerate((3, 3, 3))]
    want = sum((a - b)**2 for a, b in zip(got, (4., -1.5, 2.)))
    loss, n, sums = rating_loss(model, ROWS)
    assert_close(loss, want)
    assert n == 3 and sums["mse"] == pytest.approx(want.item())
    model = scalar([-2., 1., 3., 7.])                                     # nearest: 3 (ratings 4 and 2: the first of two), -2, 1
    logits = model.score.linear(model.states(ROWS.seqs)[torch.arange(3), 3])
    logp = logits.log_softmax(-1)
    assert_close(rating_loss(model, ROWS)[0], -(logp[0, 2] + logp[1, 0] + logp[2, 1]))
    expected = [sum(p * c for p, c in zip(row.exp().tolist(), (-2, 1, 3, 7))) for row in logp]
    assert pooled_scores(model, ROWS.seqs).tolist() == pytest.approx(expected, abs=1e-5)
    assert rating_loss(model, ROWS)[2]["mse"] == pytest.approx(sum((a - b)**2 for a, b in zip(expected, (4., -1.5, 2.))), rel=1e-4)

@pytest.mark.parametrize("bins", [None, [-1.5, 2., 4.]])
def test_ratings_are_learned_saved_and_read_again(bins, tmp_path):
    model = scalar(bins)
    trainer = make_trainer(model, TrainConfig(lr=.02, n_steps=60, batch_size=3, warmup_steps=1))
    for _ in range(60): train_step(trainer, ROWS, rating_loss)
    assert_close(score_seqs(model, ROWS.seqs), ROWS.rating, atol=.15, rtol=0)
    save_reward_model(model, tokenizer(), tmp_path/"rm")
    again = load_reward_model(tmp_path/"rm")
    assert_close(score_seqs(again, ROWS.seqs), score_seqs(model, ROWS.seqs))
    assert isinstance(again.score, BinnedScore) == bool(bins)

def test_an_instrument_reads_the_bins_of_a_classifier_and_no_several_outputs():
    from rlhf_nb.show.inspectors import prefix_scores
    binned = scalar([-1., 0., 4.])
    with torch.no_grad(): binned.score.linear.weight[2] += .3
    for i in range(2):
        row = ROWS.seqs[[i]].trim()
        assert_close(torch.tensor(prefix_scores(to_classifier(binned), row)), binned(row)[0].detach())
    torn = to_classifier(binned)
    del torn.config.bin_centres                                   # three classes that mean something else
    with pytest.raises(ValueError, match="one output, this one has 3"): prefix_scores(torn, ROWS.seqs[[0]].trim())

def test_token_types_change_nothing_at_first_and_only_their_side_later(tmp_path):
    plain = scalar()
    typed = TypedScalarModel(plain)
    assert_close(typed(ROWS.seqs), plain(ROWS.seqs))
    with torch.no_grad(): typed.types.weight[1] += torch.linspace(-.5, .5, 16)          # of responses
    ids, mask = ROWS.seqs.ids, ROWS.seqs.response_mask
    x = plain.backbone.get_input_embeddings()(ids) + mask[..., None] * torch.linspace(-.5, .5, 16)
    out = plain.backbone(inputs_embeds=x, attention_mask=ROWS.seqs.attention_mask.long()).last_hidden_state
    at = ROWS.seqs.attention_mask
    assert_close(typed(ROWS.seqs)[at], plain.score(out)[..., 0][at])
    assert (typed(ROWS.seqs) - plain(ROWS.seqs))[mask].abs().min() > 1e-4 and not plain.backbone.get_input_embeddings()._forward_hooks
    rating_loss(typed, ROWS)[0].backward()
    assert typed.types.weight.grad.abs().sum(1).gt(0).all()
    with pytest.raises(ValueError, match="token types"): save_reward_model(typed, tokenizer(), tmp_path/"rm")

def rated_rows(): return [dict(prompt=x["prompt"], response=x["chosen"], rating=i % 5 + 1) for i, x in enumerate(pair_rows())]

@pytest.mark.parametrize("n_bins", [0, 5])
def test_a_stage_learns_ratings_and_a_later_one_goes_on(n_bins, tiny_files, tmp_path, monkeypatch):
    monkeypatch.chdir(tiny_files)
    data = write_lines(tmp_path/"rated.jsonl", rated_rows())
    done = run(tiny("reward", data=data, rating="rating", n_bins=n_bins), tmp_path/"o")
    assert done.results["n_eval"] == 6 and math.isfinite(done.results["eval_loss"]) and done.results["eval_mse"] > 0
    again = load_reward_model(tmp_path/"o")
    if n_bins: assert_close(again.score.centres, torch.tensor([1., 2., 3., 4., 5.]))
    held = done.rows.data[done.rows.held]
    assert_close(score_seqs(again, held.seqs), score_seqs(done.model, held.seqs))
    assert done.results["eval_mse"] == pytest.approx(((score_seqs(again, held.seqs) - held.rating)**2).mean().item(), rel=1e-3)
    more = run(tiny("reward", data=data, rating="rating", model=str(tmp_path/"o"), lr=1e-9), tmp_path/"p")
    assert more.results["eval_mse"] == pytest.approx(done.results["eval_mse"], rel=1e-3)
    if n_bins:
        with pytest.raises(ValueError, match="5 bins, n_bins is 3"):
            run(tiny("reward", data=data, rating="rating", n_bins=3, model=str(tmp_path/"o")), tmp_path/"q")

@pytest.mark.parametrize("said,words", [(dict(n_bins=5), "name the column with rating"), (dict(rating="r", n_bins=1), "2 or more"),
                                        (dict(rating="r", margins=True), "say one")])
def test_settings_that_contradict(said, words):
    with pytest.raises(ValueError, match=words): settings_of(Stage("reward", dict(data="x") | said))

def test_a_rating_that_is_none_is_named(tiny_files, tmp_path, monkeypatch):
    monkeypatch.chdir(tiny_files)
    rows = rated_rows()
    rows[3]["rating"] = "good"
    data = write_lines(tmp_path/"r.jsonl", rows)
    with pytest.raises(ValueError, match="column rating: could not convert"): run(tiny("reward", data=data, rating="rating"), tmp_path/"o")
    with pytest.raises(ValueError, match="no column 'stars', the rating of an answer: there are rating; name it with rating"):
        run(tiny("reward", data=data, rating="stars"), tmp_path/"o")

def test_a_plan_counts_a_rated_answer_as_one_row(tiny_files, tmp_path, monkeypatch):
    "Pairs are two: half the rows, half the activations."
    monkeypatch.chdir(tiny_files)
    rows, plan = [], start.plan_memory
    def seen(config, n, *args, **more):
        rows.append(n)
        return plan(config, n, *args, **more)
    monkeypatch.setattr(start, "plan_memory", seen)
    data = write_lines(tmp_path/"r.jsonl", rated_rows())
    plan_stage(tiny("reward", data=data, rating="rating", micro_batch_size=4), tmp_path/"o")
    plan_stage(tiny("reward", micro_batch_size=4), tmp_path/"p")
    assert rows == [4, 8]
