"self_reward: every prompt gives a pair or a reason, rounds until there are enough, old examples count."
import json, math, pytest, torch
from collections import Counter
from dataclasses import fields, replace
from functools import partial
from random import Random
from torch.testing import assert_close
from rlhf_nb.base.learning import named_generator
from rlhf_nb.dpo import precompute_ref_logprobs
from rlhf_nb.judge import JudgeConfig, Verdicts
from rlhf_nb.trainers.judge_tools import function_scorer, judge_scorer
from rlhf_nb.base.models import add_lora, frozen_copy, load_bundled
from rlhf_nb.base.settings import weight_hash
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.sampling import SamplingParams
from rlhf_nb.base.candidates import (
    Candidates, PairRules, best_second, decode_candidates, sample_candidates, sample_prompts, summarize_rounds)
from rlhf_nb import self_reward
from rlhf_nb.trainers import self_reward_tools
from rlhf_nb.trainers.self_reward_tools import replay_examples, train_online_dpo, write_prompts
from rlhf_nb.self_reward import (SMALL, SelfRewardConfig, SelfRewardTask, make_replay_loss,
    run_round, select_pairs, self_reward_iteration, train_on_pairs)
from rlhf_nb.base.batches import PairsWithReplay, chat_ids, response_text
from rlhf_nb.tokens import make_seqs
from rlhf_nb.base.files import notebooks
from rlhf_nb.world import gold_score
from rlhf_nb.worlds.world_text import TRAIN

NAN = math.nan
PROMPTS = [q.text for q in TRAIN]
TINY = SelfRewardConfig(n_prompts=20, n_pairs=14, prompts_per_round=8, judge=JudgeConfig(n_votes=2),
                        batch_size=4)
NAMED = partial(named_generator, 3, 1)
BY_TEXT = {q.text: q for q in TRAIN}

@pytest.fixture(scope="module")
def world():
    model, tokenizer = load_bundled("judge")
    return frozen_copy(model), tokenizer

@pytest.fixture(scope="module")
def task(world): return SelfRewardTask(world[1], PROMPTS, replay_examples(world[1], TRAIN, 64, Random(0)))

def policy(): return load_bundled("judge")[0]
def true_score(prompt, response): return gold_score(BY_TEXT[prompt], response)

@pytest.fixture(scope="module")
def x(world, task): # pairs of one round, by their true scores
    return run_round(world[0], task, TINY, function_scorer(true_score), NAMED("round 0"))

def hand(tokenizer, texts, k, cut=()):
    "Candidates with the responses `texts`, k to a prompt; rows in `cut` lack their eos."
    ids = tokenizer(texts, add_special_tokens=False).input_ids
    n = len(texts) // k
    prompts = [chat_ids(tokenizer, PROMPTS[g]) for g in range(n) for _ in range(k)]
    seqs = make_seqs(prompts, [x + [tokenizer.eos_token_id] * (i not in cut) for i, x in enumerate(ids)],
                     tokenizer.pad_token_id)
    return PROMPTS[:n], Candidates(seqs, torch.arange(n).repeat_interleave(k))

def responses(tokenizer, seqs): return [response_text(tokenizer, r[m].tolist())
                                        for r, m in zip(seqs.ids, seqs.response_mask)]

# ------------------------------------------------------------ settings and generators
@pytest.mark.parametrize("name", [f.name for f in fields(SelfRewardConfig)])
def test_every_field_of_the_settings_is_checked(name):
    kinds = {int: ("4", 4., True, None), float: ("1", None, True), SamplingParams: (None, 64), JudgeConfig: (None, 3)}
    kind = type(getattr(SelfRewardConfig(), name))
    for wrong in kinds[kind]:
        with pytest.raises(TypeError, match=rf"SelfRewardConfig\.{name} must be"): SelfRewardConfig(**{name: wrong})
    zero = [0. if kind is float else 0] * (name not in ("replay_weight", "final_lr_frac"))
    for wrong in (NAN, math.inf, -math.inf, -.1, *zero) if kind is float else (-1, *zero) if kind is int else ():
        with pytest.raises(ValueError, match="got"): SelfRewardConfig(**{name: wrong})
    for wrong in (dict(num_generations=1), dict(final_lr_frac=2.), dict(sampling=SamplingParams(temperature=0.))):
        with pytest.raises(ValueError, match="got"): SelfRewardConfig(**wrong)

def test_rules_are_checked():
    with pytest.raises(TypeError, match="PairRules.select must be a function"): PairRules(select="max_min")
    for name in ("kept", "prompts", "several", "not needed"):
        with pytest.raises(ValueError, match=f"'{name}' is a count already"): PairRules(filters={name: bool})

def test_settings_are_those_of_the_paper_where_our_world_allows_it():
    d = SelfRewardConfig()
    assert (d.num_generations, d.sampling.temperature, d.sampling.top_p, d.judge.n_votes) == (4, .7, .9, 3)

def test_prompts_are_drawn_evenly():
    some = sample_prompts(PROMPTS[:5], 200, named_generator(0, 0, "a"))
    assert set(some) == set(PROMPTS[:5]) and min(Counter(some).values()) > 20

def test_an_answer_keeps_its_prompt_when_rows_are_chosen(world):
    _, tokenizer = world
    prompts, x = hand(tokenizer, ["It is red.", "It is white."] * 3, 2)
    assert [p for p, _ in decode_candidates(tokenizer, prompts, x[[5, 0]])] == [prompts[2], prompts[0]]

# ------------------------------------------------------------ prompts by the model
def test_new_prompts_are_first_lines_that_repeat_nothing(world, monkeypatch):
    "A scripted model: what is empty, cut, a repeat of a prompt, of one held out or of a new one is left out."
    _, tokenizer = world
    known, held = PROMPTS[:12], ["Where does the owl hunt at night?"]
    replies = [known[3].upper() + " ?", "", "Where does the owl hunt ?", "The crab is red.\nThe owl is red.", "Berries are sweet and the fox knows it.",
               "The crab is red. I", "You may ask the frog why it can hop."]
    cut, asked = {4}, []
    def generated(policy, prompts, tokenizer, sampling, generator, size):
        asked.append([tokenizer.decode(x) for x in prompts])
        ids = [tokenizer(x, add_special_tokens=False)["input_ids"] + ([] if i % 7 in cut else [tokenizer.eos_token_id])
               for i, x in enumerate((replies * 10)[:64])]
        return make_seqs(prompts, ids, tokenizer.pad_token_id), None
    monkeypatch.setattr(self_reward_tools, "generate_many", generated)
    monkeypatch.setattr(self_reward_tools, "response_text", lambda _, ids: texts.pop(0))
    texts = (replies * 10)[:64]           # the world's tokenizer knows no line ends
    draw = partial(write_prompts, None, tokenizer, known, sampling=SamplingParams(), held=held)
    assert draw(2, generator=NAMED("new")) == ["The crab is red.", "You may ask the frog why it can hop."]
    shown = [[x for x in known if x.split()[-1] in text and x in text] for text in asked[0]]
    assert len(asked) == 1 and len(asked[0]) == 64 and max(map(len, shown)) >= 2 and len(set(map(tuple, shown))) > 32
    assert not any("hunt at night" in x for x in asked[0])
    texts = (replies * 10)[:64] * 2
    assert draw(5, generator=NAMED("new")) == ["The crab is red.", "You may ask the frog why it can hop."]   # no more come
    assert len(asked) == 3 and "The crab is red." in " ".join(asked[2])                                   # shown in its turn

# ------------------------------------------------------------ pairs
def test_every_prompt_is_a_pair_or_a_reason(world):
    _, tokenizer = world
    texts = ["It is red.", "It is white."] * 4 + ["It is red.", "It is red."] + ["I do not know.", "It is red."]
    prompts, x = hand(tokenizer, texts, 2, cut=(7,))
    votes = torch.tensor([[1., 2.], [4., 5.], [3., 3.], [2., 4.], [NAN, NAN], [5., 5.], [5., 5.], [1., 1.],
                          [4., 4.], [2., 2.], [4., NAN], [2., 2.]])
    seen = []
    def no_excuse(pair):
        seen.append(pair)
        return "know" not in pair.chosen
    got = select_pairs(prompts, x, Verdicts(votes), tokenizer, PairRules(filters={"excuse": no_excuse}))
    names = ("prompts", "kept", "tie", "unparsed", "same answer", "excuse")
    assert {k: got.counts[k] for k in names} == dict(zip(names, (6, 1, 1, 2, 1, 1)))
    assert responses(tokenizer, got.pairs.chosen) == ["It is white."]
    assert responses(tokenizer, got.pairs.rejected) == ["It is red."]
    assert (got.chosen_score.item(), got.rejected_score.item()) == (4.5, 1.5)
    assert [(p.prompt, p.chosen, p.chosen_score, p.rejected_score) for p in seen] == [
        (prompts[0], "It is white.", 4.5, 1.5), (prompts[5], "I do not know.", 4., 2.)]
    c = got.counts
    assert (c["candidates"], c["cut"], c["replies"], c["parsed"], c["several"]) == (12, 1, 24, 21, 10)
    assert c["vote_std"] == pytest.approx(.5**.5 * 2 + 2**.5, rel=1e-5)      # 1,2  4,5  2,4; the rest agree

def test_a_refusal_costs_no_other_prompt(world):
    _, tokenizer = world
    prompts, x = hand(tokenizer, ["It is red.", "It is white."] * 5, 2)
    votes = Verdicts(torch.tensor([[3.], [3.]] + [[4.], [1.]] * 4))
    rules = PairRules(filters={"second prompt": lambda pair: pair.prompt != prompts[1]})
    got = select_pairs(prompts, x, votes, tokenizer, rules)
    assert got.counts["kept"] == len(got.pairs) == 3 and got.counts["tie"] == got.counts["second prompt"] == 1

def test_one_candidate_that_was_not_parsed_leaves_the_others(world):
    _, tokenizer = world
    prompts, x = hand(tokenizer, ["It is red.", "It is white.", "It is grey.", "It is black."], 4)
    got = select_pairs(prompts, x, Verdicts(torch.tensor([[NAN], [1.], [5.], [3.]])), tokenizer)
    assert responses(tokenizer, got.pairs.chosen) + responses(tokenizer, got.pairs.rejected) == ["It is grey.", "It is white."]
    hard = select_pairs(prompts, x, Verdicts(torch.tensor([[NAN], [1.], [5.], [3.]])), tokenizer, PairRules(best_second))
    assert responses(tokenizer, hard.pairs.rejected) == ["It is black."]

# ------------------------------------------------------------ rounds
def iterate(monkeypatch, world, task, config, scorer, make_generator=NAMED):
    "One iteration that learns nothing: its row, the rounds and the pairs it would have learned from."
    rounds, learned, real = [], [], self_reward.run_round
    monkeypatch.setattr(self_reward, "run_round", lambda *a: rounds.append(real(*a)) or rounds[-1])
    monkeypatch.setattr(self_reward, "train_on_pairs", lambda policy, pairs, *a: learned.append((pairs, *a)))
    return self_reward_iteration(world[0], task, config, scorer, make_generator), rounds, *learned

def test_rounds_go_on_until_the_pairs_are_enough_and_each_asks_anew(world, task, monkeypatch):
    config, said = replace(TINY, n_pairs=12), []
    row, rounds, (pairs, cfg, generator, replay) = iterate(monkeypatch, world, task, config, function_scorer(
        lambda p, r: said.append((p, r)) or true_score(p, r)))
    found = [len(x.pairs) for x in rounds]
    assert len(rounds) == 2 and found[0] < 12 <= sum(found) and len(pairs) == row["pairs"] == 12 and set(said[:32]) != set(said[32:])
    assert row["prompts"] == 16 and sum(row["dropped"].values()) == 4 and row["dropped"].get("not needed", 0) == sum(found) - 12
    for side in ("chosen", "rejected"):          # the rounds' pairs, one behind the other; their scores
        texts = [text for x in rounds for text in responses(world[1], getattr(x.pairs, side))][:12]
        assert responses(world[1], getattr(pairs, side)) == texts
        scores = torch.cat([getattr(x, f"{side}_score") for x in rounds])[:12]
        assert row[f"{side}_score"] == pytest.approx(scores.mean().item())
    assert cfg is config and replay is task.replay and generator.initial_seed() == NAMED("train").initial_seed()
    again, same, _ = iterate(monkeypatch, world, task, config, function_scorer(true_score))
    other = iterate(monkeypatch, world, task, config, function_scorer(true_score), partial(named_generator, 3, 2))[1]
    ids = [x[0].pairs.chosen.ids.tolist() for x in (rounds, same, other)]
    assert again == row and ids[0] == ids[1] != ids[2]

def test_prompts_run_out_and_the_last_round_is_short(world, task, monkeypatch):
    def mute(answers, generator): return Verdicts(torch.full((len(answers), 2), NAN))
    row, rounds, (pairs, *_) = iterate(monkeypatch, world, task, TINY, mute)
    assert [x.counts["prompts"] for x in rounds] == [8, 8, 4] and len(pairs) == 0
    assert all(math.isnan(row.pop(f"{side}_score")) for side in ("chosen", "rejected"))
    assert row == dict(prompts=20, pairs=0, dropped={"unparsed": 20}, parse_rate=0., vote_std=0.)
    with pytest.raises(ValueError, match="no pair"):
        train_on_pairs(policy(), pairs, TINY, NAMED("train"), task.replay)

def test_counts_of_rounds_in_words():
    totals = dict(prompts=9, kept=5, tie=3, unparsed=1, **{"not needed": 0}, candidates=36, cut=2, replies=72, parsed=54, vote_std=8., several=16)
    assert summarize_rounds(totals) == dict(prompts=9, pairs=5, dropped={"tie": 3, "unparsed": 1}, parse_rate=.75, vote_std=.5)

def test_scores_stay_with_their_answers(world, x):
    tokenizer = world[1]
    for side, scores in ((x.pairs.chosen, x.chosen_score), (x.pairs.rejected, x.rejected_score)):
        texts = [tokenizer.decode(r[m]) for r, m in zip(side.ids, side.attention_mask & ~side.response_mask)]
        texts = [text.removeprefix("<|user|>").removesuffix("<|assistant|>") for text in texts]
        assert scores.tolist() == [true_score(p, a) for p, a in zip(texts, responses(tokenizer, side))]

# ------------------------------------------------------------ learning
def test_replay_loss_by_hand(world, task, x):
    model, other = world[0], policy()
    with torch.no_grad(): other.get_output_embeddings().weight.mul_(1.1)
    data, old = precompute_ref_logprobs(model, x.pairs[:4]), task.replay[:4]
    with torch.no_grad():
        loss, n, metrics = make_replay_loss(.1, .7, 13.)(other, PairsWithReplay(data, old))
        margin = [logprobs(other, s).sum(1) - logprobs(model, s).sum(1) for s in (x.pairs.chosen[:4], x.pairs.rejected[:4])]
        nll = -logprobs(other, old).sum() / 13.
        by_hand = -torch.nn.functional.logsigmoid(.1 * (margin[0] - margin[1])).sum() + .7 * nll
        assert_close(loss, by_hand, rtol=1e-4, atol=1e-4)
        assert n == 4 and metrics["replay"] == pytest.approx(nll.item(), rel=1e-4)
        batches = [PairsWithReplay(data, old)[rows].trim() for rows in ([0, 1, 2], [3])]
        parts = [make_replay_loss(.1, .7, 13.)(other, batch)[0] for batch in batches]
    assert_close(sum(parts), loss, rtol=1e-4, atol=1e-4)
    pairs = batches[1].pairs.pairs                      # no column of pads is computed
    for seqs in (pairs.chosen, pairs.rejected, batches[1].replay): assert seqs.attention_mask.all()

def test_an_old_example_costs_its_words_over_the_mean_length(world, task, x):
    model, replay = world[0], task.replay[:3]
    trainer = train_on_pairs(policy(), x.pairs[:4], TINY, NAMED("train"), replay)     # one step
    drawn = torch.randint(3, (4,), generator=NAMED("train"))
    with torch.no_grad(): words = -logprobs(model, replay[drawn]).sum().item()
    each = replay.response_mask.sum().item() / 3
    assert trainer.log.rows[0]["replay"] == pytest.approx(words / each / 4, rel=1e-3)
    with pytest.raises(ValueError, match="replay"): train_on_pairs(policy(), x.pairs, TINY, NAMED("train"))

def test_training_prefers_the_chosen(world, task):
    model, tokenizer = world
    x = run_round(model, task, replace(TINY, prompts_per_round=24), function_scorer(true_score), NAMED("round 0"))
    one, config = policy(), replace(TINY, batch_size=2, replay_weight=1., n_epochs=6)
    margins = [row["rewards/margins"] for row in train_on_pairs(one, x.pairs, config, NAMED("train"), task.replay).log.rows]
    assert margins[0] == pytest.approx(0, abs=1e-4) and sum(margins[-5:]) / 5 > .3
    assert weight_hash(one) != weight_hash(model)

@pytest.mark.parametrize("replay", [0., 1e-9])
def test_beta_reaches_the_loss(task, x, replay):
    norms = [train_on_pairs(policy(), x.pairs, replace(TINY, beta=beta, batch_size=8, replay_weight=replay), NAMED("train"),
                            task.replay).log.rows[0]["grad_norm"] for beta in (.1, .3)]
    assert norms[1] == pytest.approx(3 * norms[0], rel=1e-3)       # at margin 0 the slope is beta / 2

def test_adapters_that_have_learned_are_part_of_the_reference(x):
    one = add_lora(policy(), rank=2)
    with torch.no_grad():
        for name, p in one.named_parameters():
            if "lora_B" in name: p.normal_(0, .5, generator=torch.Generator().manual_seed(1))
    assert any(p.requires_grad for p in one.parameters())
    log = train_on_pairs(one, x.pairs, replace(TINY, replay_weight=0.), NAMED("train")).log.rows
    assert log[0]["rewards/margins"] == pytest.approx(0, abs=1e-3) and log[0]["loss"] == pytest.approx(math.log(2), abs=1e-3)

def test_dropout_is_off_as_for_the_reference(x):
    one = policy()
    for part in one.modules():
        if isinstance(part, torch.nn.Dropout): part.p = .4
    log = train_on_pairs(one, x.pairs, replace(TINY, replay_weight=0.), NAMED("train")).log.rows
    assert log[0]["rewards/margins"] == pytest.approx(0, abs=1e-3)

def test_replay_is_half_answers_half_judgements(world):
    _, tokenizer = world
    seqs = replay_examples(tokenizer, TRAIN, 7, Random(1))
    assert sum("Score" in text for text in responses(tokenizer, seqs)) == 4 and len(seqs) == 7

def test_an_iteration_gives_its_row_and_changes_the_policy(world, task):
    model, tokenizer = world
    one = policy()
    row = self_reward_iteration(one, task, TINY, judge_scorer(one, tokenizer, TINY.judge), NAMED)
    assert 0 < row["pairs"] <= TINY.n_pairs and row["parse_rate"] > .9 and row["vote_std"] > 0
    assert row["chosen_score"] > row["rejected_score"] and weight_hash(one) != weight_hash(model)

def test_online_dpo_samples_from_the_policy_as_it_is_now(world, task):
    model, tokenizer = world
    seen, one, config = [], policy(), replace(TINY, num_generations=2, n_pairs=24, batch_size=8, lr=5e-3)
    def score(answers, generator):
        again = NAMED(f"step {len(seen)}")
        prompts = sample_prompts(PROMPTS, 8, again)
        assert answers == decode_candidates(tokenizer, prompts, sample_candidates(one, tokenizer, prompts, config, again))
        seen.append((weight_hash(one), len(answers)))
        return function_scorer(true_score)(answers, generator)
    trainer = train_online_dpo(one, task, config, score, NAMED)
    assert trainer.step == 3 and [n for _, n in seen] == [16] * 3 and len({h for h, _ in seen}) == 3
    margins = [row["rewards/margins"] for row in trainer.log.rows]       # against the policy as it came in
    assert margins[0] == pytest.approx(0, abs=1e-4) and min(map(abs, margins[1:])) > 1e-3
    with pytest.raises(ValueError, match="found no pair"):
        train_online_dpo(policy(), task, config, function_scorer(lambda p, r: 1.), NAMED)

def test_saved_figures_say_what_the_chapter_says():
    saved = json.loads((notebooks() / "results/self_reward.json").read_text())["rows"]
    for seed in (0, 1, 2):
        mine = [r for r in saved if r["run"] == "replay" and r["seed"] == seed]
        assert [r["model"] for r in mine] == [1, 2, 3, 4]
        assert all(a["gold"] < b["gold"] for a, b in zip(mine, mine[1:]))
        assert min(r["parse"] for r in mine) >= .99
        assert min(r["own_parse"] for r in mine[1:]) >= .99
        assert sum(SMALL.train_config(r["pairs"]).n_steps for r in mine[1:]) == 69     # replay alone: 72
    bare = [r for r in saved if r["run"] == "no replay"]
    assert min(r["parse"] for r in bare) < .9
