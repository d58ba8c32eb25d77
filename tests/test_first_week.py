"What a first script of one's own gets wrong: refused in a sentence, never silently wrong."
import re, subprocess, sys, pytest, torch, transformers, rlhf_nb
from rlhf_nb.base.candidates import sample_prompts
from rlhf_nb.base.learning import TrainConfig, fit, make_trainer
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.models import ScalarModel, add_lora, frozen_copy, load_bundled, load_reward_model
from rlhf_nb.base.settings import weight_hash
from rlhf_nb.base.sampling import SamplingParams, collect_rollout, generate_many
from rlhf_nb.base.scores import best_of_n_kl, expected_best_of_n
from rlhf_nb.data.text import encode_prompt, load_demonstrations, load_pairs, train_tokenizer
from rlhf_nb.dpo import dpo_loss, precompute_ref_logprobs
from rlhf_nb.judge import JudgeConfig, JudgePrompt, judge_answers
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.reward import score_seqs, train_reward
from rlhf_nb.run.text_rewards import PromptTable, make_text_reward_fn
from rlhf_nb.sft import train_sft
from rlhf_nb.show.rollout_view import show_rollouts
from rlhf_nb.spin import opponent_pairs
from rlhf_nb.tokens import make_seqs
from rlhf_nb.trainers.dpo_tools import ipo_loss, kto_loss, simpo_loss, train_dpo
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, train_grpo
from rlhf_nb.trainers.ppo_trainer import PPOConfig, RLTask, train_ppo

ROWS = [dict(prompt=f"What colour is box {i}?", response=f"It is {c}.")
        for i, c in enumerate("red green blue black".split() * 3)]
TOK = train_tokenizer([text for row in ROWS for text in row.values()], 300)
PROMPTS = [encode_prompt(TOK, [dict(role="user", content=x["prompt"])]) for x in ROWS]
SEQS, REPORT = load_demonstrations(ROWS, TOK)
PAIRS = [dict(prompt=x["prompt"], chosen=x["response"], rejected="No.") for x in ROWS]
ONE, SHORT = TrainConfig(n_steps=1), SamplingParams(3)

def llama(seed=0, **more): # made from a config, as in a script of one's own
    torch.manual_seed(seed)
    own = dict(vocab_size=len(TOK), pad_token_id=TOK.pad_token_id, eos_token_id=TOK.eos_token_id)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=128, **own | more))

def seeded(): return torch.Generator().manual_seed(0)
def says(*words): return pytest.raises((ValueError, TypeError), match=".*".join(map(re.escape, words)))
def task(reward_fn=lambda seqs: seqs.ids.float().mean(1), prompts=PROMPTS): return RLTask(prompts, reward_fn, TOK, SamplingParams(4))

def run_ppo(lm, ref=None, job=task()):
    return train_ppo(ActorCritic(lm, ScalarModel.from_lm(lm)), ref or frozen_copy(lm).requires_grad_(), job,
                     PPOConfig(n_iterations=1, n_prompts=4), seeded())

def run_grpo(lm, ref=None, job=task()):
    config = GRPOConfig(n_iterations=1, n_prompts=2, num_generations=2)
    return train_grpo(lm, ref or frozen_copy(lm), job, config, seeded())

both = pytest.mark.parametrize("train", [run_ppo, run_grpo])

# ---- PPO and GRPO
@both
def test_a_config_with_another_pad_than_the_tokenizer_is_refused(train):
    for pad in (None, TOK.pad_token_id + 9):
        with says("pad is 0", f"config has pad {pad} and eos", "pad_token_id ="): train(llama(pad_token_id=pad))
    with says("then make the reference"): train(llama(), llama(pad_token_id=None))
    log = train(llama()).log.rows[-1]
    assert abs(log["objective/kl"]) < 1e-5 # to itself, at the start
    train(llama(vocab_size=len(TOK) + 5))                     # rounded up: is fine

@both
def test_prompts_and_weights_that_no_run_can_use(train):
    lm = llama()
    with says("no weight"): train(frozen_copy(lm))
    with says("lists of token ids"): train(lm, job=task(prompts=["Hi", "You"]))
    with says("needs prompts"): train(lm, job=task(prompts=[]))
    with says("too long for a model with 128 positions: the longest prompt has 126"):
        train(lm, job=task(prompts=[[1, 5]] * 1000 + [[5] * 126]))

def test_a_reward_model_as_critic_stays_a_reward_model():
    ref, tokenizer = load_bundled("sft")
    policy, rm = frozen_copy(ref).requires_grad_(), ScalarModel.from_lm(ref, seed=3)
    kept, model = weight_hash(rm), ActorCritic(policy, rm)
    job = RLTask([[1, 5]] * 4, lambda seqs: torch.arange(len(seqs)).float(), tokenizer, SamplingParams(4))
    assert (model.critic.score.weight == 0).all()
    train_ppo(model, ref, job, PPOConfig(n_iterations=1, n_prompts=4, lr=.1), seeded())
    assert (model.critic.score.weight != 0).any() and weight_hash(rm) == kept
    with says("no weight of the critic"):
        train_ppo(ActorCritic(policy, rm.requires_grad_(False)), ref, job, PPOConfig(n_iterations=1, n_prompts=4), seeded())

def test_a_rollout_whose_responses_were_all_cut_is_no_step_of_grpo():
    lm, config = llama(), GRPOConfig(n_iterations=2, n_prompts=2, num_generations=2, mask_truncated_completions=True)
    lm.lm_head.weight.data[TOK.eos_token_id] = 0.
    lm.model.norm.weight.data.fill_(50.)                      # eos is as good as never drawn
    before = weight_hash(lm)
    log = train_grpo(lm, frozen_copy(lm), task(), config, seeded()).log
    assert [row["completions/clipped_ratio"] for row in log.rows] == [1., 1.] and weight_hash(lm) == before

# ---- one sentence for one mistake
def detached(model, x): return -logprobs(model, x).sum().detach(), len(x)
def no_columns(prompts, responses, **columns): return [1.] * len(responses)
def sample(lm=None, prompts=PROMPTS, params=SHORT, generator=None): return generate_many(lm or llama(), prompts, TOK, params, generator)
def roll(lm): return collect_rollout(lm, frozen_copy(lm), PROMPTS[:2], lambda s: torch.zeros(2), TOK, SHORT, seeded())
def dpo_on(data, held_out=None): return train_dpo(llama(), data, ONE, seeded(), held_out=held_out)
def with_refs(): return precompute_ref_logprobs(llama(), load_pairs(PAIRS, TOK)[0])
def judged(answers): return judge_answers(llama(), TOK, answers, JudgeConfig(), seeded())
X, COLUMN, SCORE = torch.zeros(3), torch.zeros(3, 1), torch.tensor([[1., 2., 3., 4.]])
GENERATOR, REFS = "torch.Generator().manual_seed(seed)", ("takes PairsWithRef, got a", "precompute_ref_logprobs(frozen_copy")
IDS, TUPLES, SCALAR = ("list of lists of token ids", "encode_prompt"), "tuples (prompt, response)", "a ScalarModel, got"
WRONG = {
    "dpo of a row and a column": (("differ in shape", "[(3,), (3, 1)]"), lambda: dpo_loss(X, X, COLUMN, COLUMN)),
    "ipo of a row and a column": ("differ in shape", lambda: ipo_loss(X, X, COLUMN, COLUMN)),
    "simpo of a row and a column": ("differ in shape", lambda: simpo_loss(X, COLUMN)),
    "kto of a row and a column": ("differ in shape", lambda: kto_loss(X, COLUMN, X.bool(), torch.tensor(0.))),
    "best of n of fewer values": ("one shape", lambda: expected_best_of_n(SCORE, SCORE[:, :2], 2)),
    "best of n of a row": ("one shape", lambda: expected_best_of_n(SCORE[0], SCORE[0], 2)),
    "best of n of nan": ("nan", lambda: expected_best_of_n(SCORE.neg().sqrt(), SCORE, 2)),
    "prompts are texts": (IDS, lambda: sample(prompts=["Hi", "You"])), "a text": (IDS, lambda: sample(prompts="Hi")),
    "one prompt": (IDS, lambda: sample(prompts=PROMPTS[0])), "an encoding": (IDS, lambda: sample(prompts=TOK(["Hi"]))),
    "a seed": ((GENERATOR, "got 0"), lambda: train_sft(llama(), SEQS, ONE, 0)), "no generator": (GENERATOR, sample),
    "rows": (("got a list", "(batch, report)"), lambda: train_sft(llama(), ROWS, ONE, seeded())),
    "rows and report": ("got a tuple", lambda: train_sft(llama(), (SEQS, REPORT), ONE, seeded())),
    "ids alone": ("got a Tensor", lambda: train_sft(llama(), SEQS.ids, ONE, seeded())),
    "a number as settings": ("SamplingParams(max_new_tokens=...), got 3", lambda: sample(params=3, generator=seeded())),
    "a name as tokenizer": (("got str", "load_tokenizer"), lambda: load_demonstrations(ROWS, "gpt2")),
    "no gradient": ("no weight gets a gradient", lambda: fit(make_trainer(llama(), ONE), SEQS, detached, seeded())),
    "ppo of a policy": ("ActorCritic, got LlamaForCausalLM",
                        lambda: train_ppo(llama(), llama(), task(), PPOConfig(), seeded())),
    "a reward of texts": (("takes Seqs", "make_text_reward_fn"), lambda: task(no_columns)),
    "a reward of TRL": ("takes Seqs", lambda: task(lambda prompts, completions: [1.])),
    "ids of another tokenizer": ((f"token id {int(SEQS.ids.max())} in a model of 200 tokens", "resize_token_embeddings"),
                                 lambda: logprobs(llama(vocab_size=200), SEQS)),
    "prompts of another tokenizer": ("in a model of 200 tokens", lambda: sample(llama(vocab_size=200), generator=seeded())),
    "pairs without references": (REFS, lambda: dpo_on(load_pairs(PAIRS, TOK)[0])), "rows of pairs": (REFS, lambda: dpo_on(PAIRS)),
    "held-out pairs without": (REFS, lambda: dpo_on(with_refs(), load_pairs(PAIRS, TOK)[0])),
    "names of columns": (TUPLES, lambda: judged([dict(prompt="Q", response="A")])), "letters": (TUPLES, lambda: judged(["QA"])),
    "one answer": (TUPLES, lambda: judged(("Q", "A"))),
    "a rollout alone": (("takes (rollout, tokenizer)", "got (Rollout"), lambda: show_rollouts(roll(llama()))),
    "seqs, not a rollout": ("takes (rollout, tokenizer)", lambda: show_rollouts(SEQS, TOK)),
    "a classifier scores": ((SCALAR, "ScalarModel.from_lm", "load_reward_model"),
                            lambda: score_seqs(transformers.LlamaForSequenceClassification(llama().config), SEQS)),
    "a policy scores": (SCALAR, lambda: score_seqs(llama(), SEQS)), "LoRA scores": (SCALAR, lambda: score_seqs(add_lora(llama(), 2), SEQS)),
    "a policy as reward model": (SCALAR, lambda: train_reward(llama(), load_pairs(PAIRS, TOK)[0], ONE, seeded())),
    "a judge's regular expression": (("missing reward", "reply -> number or None"),
                                     lambda: JudgePrompt("{{ prompt }} {{ response }}", r"Score: (\d+)")),
    "no prompts": ("needs prompts, got none", lambda: sample_prompts([], 3, seeded())),
    "best of 0": ("best_of_n_kl: n must be 1 or more, got 0", lambda: best_of_n_kl(0))}

@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named(name):
    words, wrong = WRONG[name]
    with says(*([words] if isinstance(words, str) else words)): wrong()

def test_what_is_right_beside_them():
    for x in (torch.tensor([[0, 1, 0, 1]]), torch.tensor([[False, True, False, True]]), torch.tensor([[0., 1., 0., 1.]])):
        assert expected_best_of_n(SCORE, x, 2).item() == pytest.approx((3 + 1) / 6)  # a share, not zero
    assert show_rollouts(roll(llama()), TOK)

def test_spin_refuses_a_chat_with_two_answers_instead_of_dropping_the_first():
    turns = [dict(role="user", content="Hi"), dict(role="assistant", content="Hello."),
             dict(role="user", content="Who?"), dict(role="assistant", content="Me.")]
    chats, args = [dict(messages=turns), dict(messages=turns[:2])], (TOK, SHORT, seeded())
    with says("more than one answer", 'turns="last"'): opponent_pairs(llama(), load_demonstrations(chats, TOK)[0], *args)
    last = load_demonstrations(chats, TOK, turns="last")[0]
    n = int((last.attention_mask & ~last.response_mask)[0].sum())
    assert opponent_pairs(llama(), last, *args).rejected.ids[0, :n].tolist() == last.ids[0, :n].tolist()

def test_a_classifier_of_two_labels_is_no_reward_model(tmp_path):
    transformers.LlamaForSequenceClassification(llama().config).save_pretrained(tmp_path)
    with says("score.weight has shape (2, 16)", "(1, 16)"): load_reward_model(tmp_path)

def test_a_text_reward_names_prompts_that_its_table_lacks():
    table = PromptTable([dict(prompt="What?")], TOK, 32)
    fn = make_text_reward_fn(lambda prompts, responses: [1.] * len(prompts), table, TOK)
    assert fn(make_seqs(table.prompts, [[9]], TOK.pad_token_id)).tolist() == [1.]
    with says("none of PromptTable", "RLTask(table.prompts"): fn(make_seqs([[7, 8]], [[9]], TOK.pad_token_id))

# ---- the package without what only notebooks need
HIDE = """
import sys
class Hidden:
    def find_spec(self, name, *rest):
        if name.split(".")[0] in {"jupyterlab", "matplotlib", "ipywidgets", "nbdev", "datasets", "pyarrow"}:
            raise ImportError(f"{name} is hidden")
sys.meta_path.insert(0, Hidden())
from rlhf_nb import dpo, grpo, kl, ppo, reward, sft
from rlhf_nb.base import learning, models, sampling
from rlhf_nb.data import text
from rlhf_nb.run import pipeline, train_command
from rlhf_nb.trainers import dpo_tools, grpo_trainer, ppo_trainer
assert "peft" not in sys.modules, "peft is imported where it is first used"
"""
CORE = """
import rlhf_nb.tokens, rlhf_nb.kl, rlhf_nb.ppo, rlhf_nb.grpo, rlhf_nb.dpo, rlhf_nb.base.sampling, rlhf_nb.worlds.oracle, rlhf_nb.book.checks, sys
found = {'transformers', 'tokenizers', 'huggingface_hub', 'peft', 'accelerate', 'matplotlib', 'IPython', 'ipywidgets', 'datasets',
         'pandas'} & sys.modules.keys()
assert not found, found
"""

@pytest.mark.parametrize("words", [["-c", HIDE], ["-c", CORE], ["-m", "rlhf_nb", "--version"]], ids=["hidden", "core", "version"])
def test_what_an_import_needs(words):
    "Training works without Jupyter and matplotlib; model classes, tokenizers, adapters and launchers come on first use."
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, rlhf_nb.__version__ if "-m" in words else ""), done.stderr[-3000:]
