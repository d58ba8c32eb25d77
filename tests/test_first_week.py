"What a first script of one's own gets wrong: refused in a sentence, never silently wrong."
import re
from types import SimpleNamespace
import pytest, torch, transformers
from rlhf_nb.data import encode_prompt, load_demonstrations, load_pairs, train_tokenizer
from rlhf_nb.models import ScalarModel, frozen_copy
from rlhf_nb.sampling import SamplingParams

ROWS = [dict(prompt=f"What colour is box {i}?", response=f"It is {c}.")
        for i, c in enumerate("red green blue black".split() * 3)]
PAIRS = [dict(prompt=x["prompt"], chosen=x["response"], rejected="No.") for x in ROWS]
TOK = train_tokenizer([text for row in ROWS for text in row.values()], 300)
PROMPTS = [encode_prompt(TOK, [dict(role="user", content=x["prompt"])]) for x in ROWS]


def llama(seed=0, **more): # made from a config, as in a script of one's own
    torch.manual_seed(seed)
    own = dict(vocab_size=len(TOK), pad_token_id=TOK.pad_token_id,
               eos_token_id=TOK.eos_token_id)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=128, **own | more))


def seeded(): return torch.Generator().manual_seed(0)
def says(*words): return pytest.raises((ValueError, TypeError),
    match=".*".join(map(re.escape, words)))


def test_spin_refuses_a_chat_with_two_answers_instead_of_dropping_the_first():
    from rlhf_nb.spin import opponent_pairs
    turns = [dict(role="user", content="Hi"), dict(role="assistant", content="Hello."),
             dict(role="user", content="Who?"), dict(role="assistant", content="Me.")]
    chats = [dict(messages=turns), dict(messages=turns[:2])]
    args = TOK, SamplingParams(3), seeded()
    with says("more than one answer", 'turns="last"'):
        opponent_pairs(llama(), load_demonstrations(chats, TOK)[0], *args)
    last = load_demonstrations(chats, TOK, turns="last")[0]
    pairs = opponent_pairs(llama(), last, *args)
    n = int((last.attention_mask & ~last.response_mask)[0].sum())
    assert pairs.rejected.ids[0, :n].tolist() == last.ids[0, :n].tolist()


def test_log_probs_of_different_shapes_are_not_broadcast():
    from rlhf_nb.dpo import dpo_loss
    from rlhf_nb.dpo_tools import ipo_loss, kto_loss, simpo_loss
    row, column = torch.zeros(3), torch.zeros(3, 1)
    for loss in (dpo_loss, ipo_loss):
        with says("differ in shape", "[(3,), (3, 1)]"):
            loss(row, row, column, column)
    with says("differ in shape"): simpo_loss(row, column)
    with says("differ in shape"): kto_loss(row, column, row.bool(), torch.tensor(0.))


def test_best_of_n_of_right_and_wrong_answers_is_a_share_not_zero():
    from rlhf_nb.reward_tools import expected_best_of_n
    score = torch.tensor([[1., 2., 3., 4.]])
    value = torch.tensor([[0, 1, 0, 1]])
    for x in (value, value.bool(), value.float()):
        assert expected_best_of_n(score, x, 2).item() == pytest.approx((3 + 1) / 6)
    with says("one shape"): expected_best_of_n(score, value[:, :2], 2)
    with says("one shape"): expected_best_of_n(score[0], value[0], 2)
    with says("nan"): expected_best_of_n(score.neg().sqrt(), value, 2)


def task(reward_fn=None, prompts=PROMPTS, tokenizer=TOK):
    from rlhf_nb.ppo_trainer import RLTask
    reward_fn = reward_fn or (lambda seqs: seqs.ids.float().mean(1))
    return RLTask(prompts, reward_fn, tokenizer, SamplingParams(4))


def run_ppo(lm, ref=None, **more):
    from rlhf_nb.ppo import ActorCritic
    from rlhf_nb.ppo_trainer import PPOConfig, train_ppo
    return train_ppo(ActorCritic(lm, ScalarModel.from_lm(lm)), ref or frozen_copy(lm),
                     task(**more), PPOConfig(n_iterations=1, n_prompts=4), seeded())


def run_grpo(lm, ref=None, **more):
    from rlhf_nb.grpo_trainer import GRPOConfig, train_grpo
    return train_grpo(lm, ref or frozen_copy(lm), task(**more), GRPOConfig(
        n_iterations=1, n_prompts=2, num_generations=2), seeded())


@pytest.mark.parametrize("run", [run_ppo, run_grpo])
def test_a_config_with_another_pad_than_the_tokenizer_is_refused(run):
    for pad in (None, TOK.pad_token_id + 9):
        with says("pad is 0", f"config has pad {pad} and eos", "pad_token_id ="):
            run(llama(pad_token_id=pad))
    with says("then make the reference"): run(llama(), llama(pad_token_id=None))
    log = run(llama()).log.rows[-1]
    assert abs(log.get("objective/kl", log.get("kl"))) < 1e-5 # to itself, at the start
    bigger = llama(vocab_size=len(TOK) + 5)                   # rounded up: is fine
    run(bigger)


def test_prompts_are_ids():
    from rlhf_nb.sampling import generate_many
    wrong = dict(texts=["Hi", "You"], text="Hi", one=PROMPTS[0], encoding=TOK(["Hi"]))
    for prompts in wrong.values():
        with says("list of lists of token ids", "encode_prompt"):
            generate_many(llama(), prompts, TOK, SamplingParams(3), seeded())
    for run in (run_ppo, run_grpo):
        with says("lists of token ids"): run(llama(), prompts=["Hi", "You"])


def test_generators_settings_and_tokenizers_are_named_where_another_thing_came():
    from rlhf_nb.learning import TrainConfig
    from rlhf_nb.sampling import generate_many
    from rlhf_nb.sft import train_sft
    seqs, report = load_demonstrations(ROWS, TOK)
    config = TrainConfig(n_steps=1)
    for x in (0, None):
        with says("torch.Generator().manual_seed(seed)", f"got {x}"):
            train_sft(llama(), seqs, config, x)
        with says("torch.Generator().manual_seed(seed)"):
            generate_many(llama(), PROMPTS, TOK, SamplingParams(3), x)
    for data in (ROWS, (seqs, report), seqs.ids):
        with says(f"got a {type(data).__name__}", "(batch, report)"):
            train_sft(llama(), data, config, seeded())
    with says("SamplingParams(max_new_tokens=...), got 3"):
        generate_many(llama(), PROMPTS, TOK, 3, seeded())
    with says("got str", "load_tokenizer"): load_demonstrations(ROWS, "gpt2")


def test_a_loss_without_gradient_is_no_step():
    from rlhf_nb.learning import TrainConfig, fit, make_trainer
    from rlhf_nb.models import logprobs
    def detached(model, x): return -logprobs(model, x).sum().detach(), len(x)
    trainer = make_trainer(llama(), TrainConfig(n_steps=1))
    with says("no weight gets a gradient"):
        fit(trainer, load_demonstrations(ROWS, TOK)[0], detached, seeded())
    assert not trainer.step


def test_ppo_says_how_to_make_what_it_takes():
    from rlhf_nb.ppo_trainer import PPOConfig, train_ppo
    lm = llama()
    with says("ActorCritic, got LlamaForCausalLM"):
        train_ppo(lm, frozen_copy(lm), task(), PPOConfig(), seeded())
    def right(prompts, responses, **columns): return [1.] * len(responses)
    with says("takes Seqs", "make_text_reward_fn"): task(right)
    with says("takes Seqs"): task(lambda prompts, completions: [1.])


def test_ids_of_another_tokenizer_are_refused_before_the_model_reads_them():
    from rlhf_nb.models import logprobs
    from rlhf_nb.sampling import generate_many
    small = llama(vocab_size=200)
    seqs, _ = load_demonstrations(ROWS, TOK)
    top = f"token id {int(seqs.ids.max())} in a model of 200 tokens"
    with says(top, "resize_token_embeddings"): logprobs(small, seqs)
    with says("in a model of 200 tokens"):
        generate_many(small, PROMPTS, TOK, SamplingParams(3), seeded())


def test_a_classifier_of_two_labels_is_no_reward_model(tmp_path):
    from rlhf_nb.models import load_reward_model
    two = transformers.LlamaForSequenceClassification(llama().config)
    two.save_pretrained(tmp_path)
    with says("score.weight has shape (2, 16)", "(1, 16)"): load_reward_model(tmp_path)


def test_a_text_reward_names_prompts_that_its_table_lacks():
    from rlhf_nb.text_rewards import PromptTable, make_text_reward_fn
    from rlhf_nb.tokens import make_seqs
    table = PromptTable([dict(prompt="What?")], TOK, 32)
    fn = make_text_reward_fn(lambda prompts, responses: [1.] * len(prompts), table, TOK)
    assert fn(make_seqs(table.prompts, [[9]], TOK.pad_token_id)).tolist() == [1.]
    with says("none of PromptTable", "RLTask(table.prompts"):
        fn(make_seqs([[7, 8]], [[9]], TOK.pad_token_id))


def test_dpo_says_that_reference_log_probs_are_missing():
    from rlhf_nb.dpo import precompute_ref_logprobs
    from rlhf_nb.dpo_tools import train_dpo
    from rlhf_nb.learning import TrainConfig
    pairs, _ = load_pairs(PAIRS, TOK)
    known = precompute_ref_logprobs(llama(), pairs)
    for data, held_out in ((pairs, None), (known, pairs), (PAIRS, None)):
        with says("takes PairsWithRef, got a", "precompute_ref_logprobs(frozen_copy"):
            train_dpo(llama(), data, TrainConfig(n_steps=1), seeded(), held_out=held_out)


def test_a_judge_does_not_rate_the_names_of_columns_or_the_letters_of_a_text():
    from rlhf_nb.judge import JudgeConfig, judge_answers
    for answers in ([dict(prompt="Q", response="A")], ["QA"], ("Q", "A")):
        with says("tuples (prompt, response)"):
            judge_answers(llama(), TOK, answers, JudgeConfig(), seeded())


def test_a_rollout_whose_responses_were_all_cut_is_no_step_of_grpo():
    from rlhf_nb.grpo_trainer import GRPOConfig, train_grpo
    from rlhf_nb.models import weight_hash
    lm, config = llama(), GRPOConfig(n_iterations=2, n_prompts=2, num_generations=2,
                                     mask_truncated_completions=True)
    lm.lm_head.weight.data[TOK.eos_token_id] = 0.
    lm.model.norm.weight.data.fill_(50.)                      # eos is as good as never drawn
    before = weight_hash(lm)
    log = train_grpo(lm, frozen_copy(lm), task(), config, seeded()).log
    assert [row["completions/clipped_ratio"] for row in log.rows] == [1., 1.]
    assert weight_hash(lm) == before


def test_show_rollouts_says_what_it_takes():
    from rlhf_nb.rollout_view import show_rollouts
    from rlhf_nb.sampling import collect_rollout
    lm = llama()
    roll = collect_rollout(lm, frozen_copy(lm), PROMPTS[:2], lambda s: torch.zeros(2), TOK,
                           SamplingParams(3), seeded())
    for args in ((roll,), (roll.seqs, TOK), (TOK, roll)):
        with says("takes (rollout, tokenizer)", f"got ({type(args[0]).__name__}"):
            show_rollouts(*args)
    assert show_rollouts(roll, TOK)


def test_reward_training_and_scores_take_a_scalar_model():
    from rlhf_nb.learning import TrainConfig
    from rlhf_nb.models import add_lora
    from rlhf_nb.reward import score_seqs, train_reward
    pairs, _ = load_pairs(PAIRS, TOK)
    classifier = transformers.LlamaForSequenceClassification(llama().config)
    for model in (classifier, llama(), add_lora(llama(), 2)):
        with says("a ScalarModel, got", "ScalarModel.from_lm", "load_reward_model"):
            score_seqs(model, pairs.chosen)
        with says("a ScalarModel, got"):
            train_reward(model, pairs, TrainConfig(n_steps=1), seeded())


def test_a_regular_expression_as_a_judges_pattern_is_told_from_one():
    from rlhf_nb.judge import JudgePrompt
    with says("missing reward", "reply -> number or None"):
        JudgePrompt("{{ prompt }} {{ response }}", r"Score: (\d+)")


def test_no_prompts_and_no_responses_are_named():
    from rlhf_nb.candidates import sample_prompts
    from rlhf_nb.reward_tools import best_of_n_kl
    with says("needs prompts, got none"): sample_prompts([], 3, seeded())
    with says("best_of_n_kl: n must be 1 or more, got 0"): best_of_n_kl(0)
