"What a stage may say: every key of every method in a file and back, ranges, slips of the pen."
import math, pytest, torch
from dataclasses import fields
from rlhf_nb.kl import kl_k3
from rlhf_nb.run.stages import KINDS, Stage, StageError, comments, keys_of, name_of, config_of, read_stages, settings_of, to_toml
from rlhf_nb.trainers.grpo_trainer import GRPOConfig
from rlhf_nb.trainers.ppo_trainer import AdaptiveKLController
from conftest import plain_id
from tiny_runs import METHOD_NAMES, needed, other_value

def stage_of(method, **said): return Stage(method, needed(method) | said)

@pytest.mark.parametrize("method", METHOD_NAMES)
def test_every_key_is_written_read_and_arrives_in_the_settings(method):
    "Each with a value that is not its default; the keys are those of the dataclasses, each with words."
    plain = settings_of(stage_of(method))
    for key, (kind, field, _) in keys_of(method).items():
        stage = stage_of(method, **other_value(method, key))
        assert read_stages(to_toml([stage])) == [stage], key
        value, got, was = stage.said[key], getattr(settings_of(stage), key), getattr(plain, key)
        assert key in needed(method) or repr(got) != repr(was), key
        if not callable(got): assert got == value, key
        assert comments(kind).get(key), (kind, key)
    every = {f.name for kind in KINDS[method].parts for f in fields(kind)} - {"logits_filter"}   # no file can name it
    assert every == set(keys_of(method)) == set(vars(plain)) - {"method"}

def test_named_functions():
    named = stage_of("ppo", kl_estimator="kl_k3", optimizer="SGD", kl_controller="adaptive:3:500", max_kl=math.inf)
    [again] = read_stages(to_toml([named]))
    s = settings_of(again)
    assert (s.kl_estimator, s.optimizer, s.kl_controller, s.max_kl) == (kl_k3, torch.optim.SGD, AdaptiveKLController(3., 500), math.inf)
    for given in (dict(kl_estimator=kl_k3), dict(kl_controller=AdaptiveKLController(3., 500))):
        assert read_stages(to_toml([stage_of("ppo", **given)]))[0].said != given     # a word, which stands for it
    with pytest.raises(ValueError, match="kl_estimator: no file can name .*only kl_k1, kl_k3"):
        to_toml([stage_of("ppo", kl_estimator=lambda a, b: a - b)])

@pytest.mark.parametrize("said", [
    dict(loss_type="dapo", epsilon_high=.28, dynamic_sampling=3), dict(importance_sampling_level="sequence", epsilon=3e-4),
    dict(advantage_fn="leave_one_out"), dict(loss_type="dr_grpo", advantage_fn="group_centered"),
    dict(loss_type="grpo", kl_in_loss=True, use_bias_correction_kl=True), dict(token_loss="cispo", epsilon_high=2.)], ids=plain_id)
def test_methods_that_are_settings_of_grpo(said):
    "DAPO, GSPO, RLOO, Dr. GRPO, the first GRPO, CISPO: what is said arrives in the trainer's settings, as the function it names."
    config = config_of(stage_of("grpo", **said), GRPOConfig)
    assert {k: name_of(k, getattr(config, k)) for k in said} == said and config != config_of(stage_of("grpo"), GRPOConfig)

ODD = ("a\"b", "a\nb", "\x7f\x00\t\\", "é 🦊", "# no comment", "[x]", "'''")

def test_any_text_and_number_comes_back():
    for text in ODD:
        stages = [stage_of("sft", model=text), stage_of("dpo", data=text)]
        assert read_stages(to_toml(stages)) == stages
    for lr in (1e-30, 1., .1, 123456789.123, 2): assert settings_of(read_stages(to_toml([stage_of("sft", lr=lr)]))[0]).lr == lr

SFT = '[[stage]]\nmethod = "sft"\ndata = "x"\n'

@pytest.mark.parametrize("text, error", [
    ("model=", "no TOML"), ("\x00", "no TOML"), ("[" * 500, "no TOML"), ('[stage]\nmethod="sft"', "two brackets"),
    ("stage = 3", "two brackets"), ("stage = [1]", "two brackets"), ("stage = []", "needs a stage"),
    ('[[stage]]\nmethod="sftt"', "stage 1 has the method 'sftt'; did you mean 'sft'"), ('[[stage]]\ndata="x"', "stage 1 has the method None"),
    ('[[stage]]\nmethod=["sft"]', "stage 1 has the method"), ('[[stage]]\nmethod={a = 1}', "stage 1 has the method"), ("", "method None"),
    ('[[stage]]\nmethod="sft"', "stage 1, sft: sft needs data"), ("seeed = 1\n" + SFT, "no stage of this file has a key 'seeed'; did you mean 'seed'"),
    ("n_votes = 1\n" + SFT, "no stage of this file has a key 'n_votes'"), ("lora_r = -1\n" + SFT, "stage 1, sft: .*lora_r must be 0 or more"),
    (SFT + SFT + "n_stepps = 3", "stage 2, sft: sft has no key 'n_stepps'; did you mean 'n_steps'")])
def test_a_faulty_file_is_refused_in_words(text, error):
    with pytest.raises(StageError, match=error): read_stages(text)

@pytest.mark.parametrize("method, said, error", [
    ("sft", dict(data=""), "data is empty"), ("sft", dict(data=3), "data must be a text, got 3"), ("sft", dict(max_length=True), "max_length must be a whole number"),
    ("sft", dict(max_length=2.), "must be a whole number"), ("sft", dict(n_steps="4"), "n_steps must be a whole number, got '4'"),
    ("sft", dict(lr=math.nan), "lr must be a finite number"), ("sft", dict(lr=-1.), "lr must be above 0"), ("sft", dict(seed=-1), "seed must be 0 or more"),
    ("sft", dict(skip_invalid="yes"), "skip_invalid must be True or False"), ("sft", dict(turns="first"), r"turns must be one of \['all', 'last'\]"),
    ("sft", dict(lora_targets="q_proj"), "lora_r is 0"), ("sft", dict(lora_targets=["q"], lora_r=2), "lora_targets must be a text"),
    ("sft", dict(eval_rows=-2), "eval_rows must be -1"), ("sft", dict(mode="up"), "mode must be one of"), ("sft", dict(margins=True), "sft has no key 'margins'"),
    ("sft", dict(beta=.2), "sft has no key 'beta'"), ("sft", dict(modell="a"), "no key 'modell'; did you mean 'model'"),
    ("spin", dict(beta=0.), "beta must be above 0"), ("spin", dict(mix_previous=1), "mix_previous must be True or False"),
    ("rdpo", dict(num_generations=1), "two candidates"), ("rdpo", dict(temperature=0.), "two candidates"), ("rdpo", dict(reward=""), "reward is empty"),
    ("rdpo", dict(beta=math.nan), "beta must be a finite number"), ("self_reward", dict(replay_weight=-.1), "replay_weight must be 0 or more"),
    ("self_reward", dict(judge_temperature=0.), "greedy"), ("self_reward", dict(judge_prompt=""), "judge_prompt is empty"),
    *[("self_reward", {k: v}, f"{k} must be above 0") for k, v in (("n_pairs", 0), ("chunk_size", 0), ("lr", 0.), ("beta", 0.), ("n_votes", 0))],
    ("ppo", dict(n_prompts=10, n_minibatches=3), "minibatches"), ("ppo", dict(cliprang=.3), "no key 'cliprang'; did you mean 'cliprange'"),
    ("ppo", dict(vf_coef=-1.), "vf_coef must be 0 or more"), ("ppo", dict(cliprange="a"), "cliprange must be a number, got 'a'"),
    ("ppo", dict(lam=1.5), "lam must be from 0 to 1"), ("ppo", dict(kl_estimator="kl_k33"), "no kl_estimator 'kl_k33'; did you mean 'kl_k3'"),
    ("ppo", dict(optimizer=3), "optimizer"), ("ppo", dict(kl_controller="adaptiv:3"), "no kl_controller 'adaptiv:3'"),
    ("ppo", dict(kl_controller="adaptive:0"), "target must be above 0"), ("ppo", dict(mixed_precision="fp8"), "mixed_precision must be one of"),
    ("ppo", dict(max_new_tokens=0), "max_new_tokens must be above 0"), ("ppo", dict(num_generations=4), "ppo has no key 'num_generations'"),
    ("grpo", dict(critic_lr=1e-4), "grpo has no key 'critic_lr'"), ("grpo", dict(loss_type="dappo"), "no loss_type 'dappo'; did you mean 'dapo'"),
    ("grpo", dict(token_loss="cisp"), "did you mean 'cispo'"), ("q", dict(on_truncation="x"), "on_truncation must be one of"),
    ("dpoo", {}, "no method 'dpoo'; did you mean 'dpo'"), ("sft", dict(monitor="eval_loss", eval_rows=0), "nothing is measured"),
    ("rdpo", dict(monitor="eval_loss"), "nothing is measured"), ("ppo", dict(monitor="reward"), "ppo has no key 'monitor'")], ids=lambda x: str(x)[:40])
def test_a_stage_checks_its_keys_when_it_is_made(method, said, error):
    with pytest.raises((ValueError, TypeError), match=error): Stage(method, needed(method) | said if method in KINDS else said)

def test_keys_above_the_stages_hold_for_all_that_have_them():
    text = '''model = "m"\nlora_r = 4\nbeta = 0.5\neval_every = 7
[[stage]]\nmethod = "sft"\ndata = "x"
[[stage]]\nmethod = "spin"\ndata = "x"\nlora_r = 0\neval_every = 5
[[stage]]\nmethod = "ppo"\ndata = "x"\nreward = "r"\n'''
    sft, play, ppo = read_stages(text)
    assert [settings_of(x).lora_r for x in (sft, play, ppo)] == [4, 0, 4] and "beta" not in sft.said
    assert [settings_of(x).eval_every for x in (sft, play, ppo)] == [7, 5, 7] and (play.said["beta"], ppo.said["beta"]) == (.5, .5)
    assert [x.said.get("model") for x in (sft, play, ppo)] == ["m", None, None]      # they go on from the stage before
    own = read_stages(text.replace('reward = "r"', 'reward = "r"\nmodel = "other"'))
    assert own[2].said["model"] == "other"
