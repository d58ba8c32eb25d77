"What a stage of a pipeline may say: LoRA and bf16, judges, rules for pairs, all settings of PPO and GRPO, files of preferences."
import itertools, json, math, random, shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest, torch

from rlhf_nb import pipeline as module
from rlhf_nb.candidates import ScoredPair, best_second, max_min
from rlhf_nb.grpo import leave_one_out
from rlhf_nb.grpo_trainer import GRPOConfig
from rlhf_nb.judge import JudgePrompt
from rlhf_nb.kl import kl_k3
from rlhf_nb.kl_control import AdaptiveKLController
from rlhf_nb.learning import TrainConfig, make_trainer
from rlhf_nb.models import ScalarModel, load_lm, load_reward_model, save_reward_model, tiny_lm, weight_hash
from rlhf_nb.pipeline import (SFT, ExternalRewardDPO, Pipeline, PipelineError, PreferenceDPO, RewardGRPO, RewardModel,
    RewardPPO, SelfPlay, SelfRewardDPO, StageEval, from_toml, manifest, run_pipeline, to_toml, validate_pipeline)
from rlhf_nb.ppo_trainer import PPOConfig
from rlhf_nb.recipes import RunConfig
from rlhf_nb.sampling import SamplingParams, generate_many
from rlhf_nb.store import open_store
from test_pipeline import FIVE, SHORT, TINY, begin, run_until, seed_model, tokenizer, weights # noqa: begin is a fixture

pytestmark = pytest.mark.usefixtures("one_thread")
WORDS = "owl fox robin bat frog worms insects berries fly hop".split()

def write_pairs(path, n=40, seed=0):
    rng = random.Random(seed)
    rows = [dict(prompt=f"The {rng.choice(WORDS)} {rng.choice(WORDS)}", chosen=f"The {rng.choice(WORDS[:5])} {i}",
                 rejected=f"The {rng.choice(WORDS[5:])} {i}") for i in range(n)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)

@pytest.fixture(scope="module")
def pairs(tmp_path_factory): return write_pairs(tmp_path_factory.mktemp("pairs")/"pairs.jsonl")

SFT_STAGE, PLAY, _, EXTERNAL, JUDGED, PPO = FIVE
GRPO = RewardGRPO("tiny", "even", n_iterations=2, n_prompts=3, num_generations=4, max_new_tokens=5)
def preference(pairs): return PreferenceDPO(pairs, max_steps=4, batch_size=8, eval_rows=8, eval=StageEval("held_out", eval_every=2))
def reward_model(pairs): return RewardModel(pairs, max_steps=4, batch_size=8, eval_rows=8, eval=StageEval("held_out", eval_every=2))

def log_of(out, stage): return [json.loads(line) for line in open(Path(out)/stage/"log.jsonl")]

# ---- LoRA and bf16

def all_kinds(pairs): return SFT_STAGE, PLAY, EXTERNAL, JUDGED, PPO, GRPO, preference(pairs), reward_model(pairs)

KINDS = "SFT SelfPlay ExternalRewardDPO SelfRewardDPO RewardPPO RewardGRPO PreferenceDPO RewardModel".split()

@pytest.mark.parametrize("k", range(8), ids=KINDS)
def test_lora_trains_adapters_and_leaves_a_plain_model(tmp_path, begin, pairs, k, monkeypatch):
    "The next stage, and transformers, read a merged model; only the adapters were trained."
    trained = []
    spied_trainers(monkeypatch, lambda model, config: trained.append(
        {name for name, p in model.named_parameters() if p.requires_grad}))
    stage = replace(all_kinds(pairs)[k], lora_r=2)
    run_pipeline(Pipeline(begin, (stage, SFT_STAGE)), tmp_path/"o", TINY)
    assert all("lora" in name or "score" in name for name in trained[0]) and any("lora" in name for name in trained[0])
    assert not any("lora" in name for name in trained[1])            # the second stage trains all weights
    folder = tmp_path/"o"/f"01-{KINDS[k]}"
    assert not list(folder.rglob("adapter*"))
    a, b = (dict(load_lm(x)[0].named_parameters()) for x in (begin, folder))
    assert a.keys() == b.keys()
    changed = {name for name in a if not torch.equal(a[name], b[name])}
    if KINDS[k] == "RewardModel": assert not changed and load_reward_model(folder/"reward")
    else: assert changed and not any("embed" in name or "norm" in name or "bias" in name for name in changed), changed

@pytest.mark.parametrize("k", range(8), ids=KINDS)
@pytest.mark.parametrize("change", [dict(lora_r=2), dict(mixed_precision="bf16", gradient_checkpointing=True), dict(lora_r=2, mixed_precision="bf16")],
                         ids=["lora", "bf16", "both"])
def test_a_stage_that_died_ends_in_the_same_weights(tmp_path, begin, pairs, k, change):
    if "mixed_precision" in change and KINDS[k] in ("SelfPlay", "SelfRewardDPO", "PreferenceDPO"): return    # as ExternalRewardDPO
    pipeline = Pipeline(begin, (replace(all_kinds(pairs)[k], **change), SFT_STAGE))
    run_pipeline(pipeline, tmp_path/"whole", TINY)
    deaths = 0
    while run_until(9 + 14 * deaths, pipeline, tmp_path/"o", TINY): deaths += 1
    assert weights(tmp_path/"o") == weights(tmp_path/"whole") and deaths >= 2
    for file in (tmp_path/"whole").glob("0*/reward/model.safetensors"):
        assert file.read_bytes() == (tmp_path/"o"/file.relative_to(tmp_path/"whole")).read_bytes()

def test_every_setting_of_the_model_changes_the_weights_and_the_identity(tmp_path, begin):
    found, same = {}, replace(SFT_STAGE, train_config=TrainConfig(lr=1e-2, n_steps=4, batch_size=8))
    for name, change in (("plain", {}), ("auto", dict(mixed_precision="no")), ("lora", dict(lora_r=2)), ("rank", dict(lora_r=3)),
                         ("bf16", dict(mixed_precision="bf16")), ("both", dict(mixed_precision="bf16", lora_r=2))):
        pipeline = Pipeline(begin, (replace(same, **change),))
        run_pipeline(pipeline, tmp_path/name, TINY)
        found[name] = weights(tmp_path/name)["01-SFT"]
        for other in {"plain", "lora"} - {name} & set(found):
            if name == "auto": continue
            with pytest.raises(ValueError, match="holds another pipeline.*(lora_r|mixed_precision)"):
                run_pipeline(pipeline, tmp_path/other, TINY)
    assert found["plain"] == found["auto"] and len(set(found.values())) == 5     # auto is no bf16 on a CPU
    assert load_lm(tmp_path/"both"/"01-SFT")[0].dtype == torch.float32           # as `load_lm` reads it
    assert len(found["both"]) < .7 * len(found["plain"])                         # saved as it was trained, 16 bits

def test_bf16_without_lora_keeps_float32_weights_and_computes_in_bf16(tmp_path, begin, monkeypatch):
    seen = []
    def loss(model, part):
        seen.append((next(model.parameters()).dtype, model(part.ids).logits.dtype))
        return module.mean_loss and real(model, part)
    real = module.sft_loss
    monkeypatch.setattr(module, "sft_loss", loss)
    run_pipeline(Pipeline(begin, (replace(SFT_STAGE, mixed_precision="bf16"),)), tmp_path/"o", TINY)
    assert set(seen) == {(torch.float32, torch.bfloat16)}

@pytest.mark.parametrize("stage", [EXTERNAL, PLAY], ids=["dpo", "spin"])
@pytest.mark.parametrize("change", [dict(mixed_precision="bf16"), dict(mixed_precision="bf16", lora_r=2), dict(lora_r=2)])
def test_the_first_loss_is_log_2_in_any_precision(tmp_path, begin, stage, change):
    "The reference is scored in the precision of training, and before any adapter has learned."
    run_pipeline(Pipeline(begin, (replace(stage, **change),)), tmp_path/"o", TINY)
    first = next(row for row in log_of(tmp_path/"o", f"01-{type(stage).__name__}") if "loss" in row)
    assert abs(first["loss"] - math.log(2)) < 1e-6

def test_the_budget_of_logits_and_tf32(tmp_path, begin, monkeypatch):
    from rlhf_nb import models
    seen, real = [], module.sft_loss
    def loss(model, part):
        seen.append(models._LOGITS_MB.get())
        return real(model, part)
    monkeypatch.setattr(module, "sft_loss", loss)
    run_pipeline(Pipeline(begin, (replace(SFT_STAGE, max_logits_mb=3.),)), tmp_path/"o", TINY)
    assert set(seen) == {3.}
    assert "tf32 is a number format of NVIDIA GPUs" in validate_pipeline(Pipeline(begin, (replace(SFT_STAGE, tf32=True),)), TINY)[0]

def test_a_run_of_an_older_version_goes_on(tmp_path, begin):
    "What it did not know yet has its default now."
    pipeline = Pipeline(begin, (SFT_STAGE, PLAY))
    run_pipeline(replace(pipeline, stages=pipeline.stages[:1]), tmp_path/"o", TINY)
    path = tmp_path/"o"/"01-SFT"/"stage.json"
    marker = json.loads(path.read_text())
    old = "\n".join(line for line in marker["identity"]["pipeline"].split("\n")
                    if line.split(" =")[0] not in (
                        "lora_r", "mixed_precision", "gradient_checkpointing", "optimizer", "max_logits_mb", "tf32"))
    assert old != marker["identity"]["pipeline"]
    path.write_text(json.dumps(marker | dict(identity=marker["identity"] | dict(pipeline=old))))
    assert len(run_pipeline(pipeline, tmp_path/"o", TINY)) == 2

def spied_trainers(monkeypatch, look): # look(model, config) at each trainer that is made
    def spied(model, config, *args, **kwargs):
        look(model, config)
        return make_trainer(model, config, *args, **kwargs)
    for place in ("rlhf_nb.pipeline", "rlhf_nb.ppo_trainer", "rlhf_nb.grpo_trainer"):
        monkeypatch.setattr(f"{place}.make_trainer", spied)

@pytest.mark.parametrize("k", range(8), ids=KINDS)
def test_which_format_computes(tmp_path, begin, pairs, k, monkeypatch):
    "As in `rlhf-nb train`: bf16 is autocast on float32 weights; with LoRA the frozen weights are bf16 and nothing is cast."
    seen, sampled = [], []
    def generating(*args, **kwargs):
        sampled.append(torch.is_autocast_enabled("cpu"))
        return generate_many(*args, **kwargs)
    monkeypatch.setattr(module, "generate_many", generating)
    spied_trainers(monkeypatch, lambda model, config: seen.append((config.mixed_precision, next(
        p for name, p in model.named_parameters() if "embed" in name).dtype)))
    for r, want in ((0, ("bf16", torch.float32)), (2, ("no", torch.bfloat16))):
        run_pipeline(Pipeline(begin, (replace(all_kinds(pairs)[k], mixed_precision="bf16", lora_r=r),)), tmp_path/str(r), TINY)
        assert seen.pop() == want and set(sampled) <= {not r}
        assert bool(sampled) == (KINDS[k] in ("ExternalRewardDPO", "SelfRewardDPO", "RewardPPO", "RewardGRPO"))
        sampled.clear()

@pytest.mark.parametrize("k", range(8), ids=KINDS)
def test_dropout_is_for_imitation_and_reward_models_alone(tmp_path, begin, pairs, k, monkeypatch):
    modes = set()
    hook = torch.nn.Dropout.forward
    def forward(self, x):
        if torch.is_grad_enabled(): modes.add(self.training and self.p > 0)
        return hook(self, x)
    monkeypatch.setattr(torch.nn.Dropout, "forward", forward)
    for checkpointed in (False, True):
        stage = replace(all_kinds(pairs)[k], gradient_checkpointing=checkpointed)
        run_pipeline(Pipeline(begin, (stage,)), tmp_path/str(checkpointed), TINY)
        assert (True in modes) == (KINDS[k] in ("SFT", "RewardModel")), (modes, checkpointed)
        modes.clear()

@pytest.mark.parametrize("stage, name", [(PPO, "train_ppo"), (GRPO, "train_grpo")])
def test_with_lora_the_reference_is_the_policy_without_adapters(tmp_path, begin, stage, name, monkeypatch):
    "No second copy of the weights."
    seen, real = [], getattr(module, name)
    def spied(model, ref, *args):
        seen.append(ref is getattr(model, "policy", model))
        return real(model, ref, *args)
    monkeypatch.setattr(module, name, spied)
    for r in (0, 2): run_pipeline(Pipeline(begin, (replace(stage, lora_r=r),)), tmp_path/str(r), TINY)
    assert seen == [False, True]

def test_a_model_whose_weights_cannot_be_read_is_told_before_the_first_stage(tmp_path, begin, pairs):
    judge = Path(shutil.copytree(begin, tmp_path/"judge"))
    (judge/"model.safetensors").write_bytes(b"")
    stages = replace(JUDGED, judge=str(judge)), replace(EXTERNAL, reward=begin)     # a language model is no reward model
    problems = validate_pipeline(Pipeline(begin, stages), TINY)
    assert [line.partition(": ")[0] for line in problems] == ["stage 1 (SelfRewardDPO), judge", "stage 2 (ExternalRewardDPO), reward"]
    assert validate_pipeline(Pipeline(str(judge), (SFT_STAGE,)), TINY)[0].startswith("stage 1 (SFT), model: ")

# ---- another judge

class Judging:
    "A judge's replies, as many as are asked for, in turn; it remembers which model was asked, and what."
    def __init__(self, replies): self.turn, self.asked = itertools.cycle(replies), []
    def __call__(self, model, t, messages, config, generator):
        self.asked.append((weight_hash(model), len(t), messages))
        return [[next(self.turn) for _ in range(config.n_votes)] for _ in messages]

def other_judge(folder): # other weights, another tokenizer without a pad
    model = tiny_lm(tokenizer(), hidden=32, layers=1, seed=5)
    model.save_pretrained(folder)
    t = module.load_tokenizer(seed_model(folder.with_name("seed")))
    t.pad_token = t.eos_token
    t.add_tokens(["<judge>"])
    model.resize_token_embeddings(len(t), mean_resizing=False)
    model.save_pretrained(folder); t.save_pretrained(folder)
    return str(folder)

def test_another_model_judges(tmp_path, begin, monkeypatch):
    judge, hashes = other_judge(tmp_path/"judge"), []
    for name in ("", judge):
        judging = Judging(["Score: 3", "Score: 1", "Score: 4"])
        monkeypatch.setattr(module, "generate_replies", judging)
        stage = replace(JUDGED, judge=name, judge_prompt="Of {{ prompt }} and {{ response }}?")
        run_pipeline(Pipeline(begin, (stage,)), tmp_path/f"o{bool(name)}", TINY)
        assert len({h for h, _, _ in judging.asked}) == 1 and judging.asked[0][2][0].startswith("Of ")
        hashes.append(judging.asked[0][:2])
    assert hashes[0][0] == weight_hash(load_lm(begin)[0])               # the policy as the stage began
    assert hashes[1][0] == weight_hash(load_lm(judge, pad_token="<pad>")[0]) and hashes[1][1] > hashes[0][1]

def test_what_the_judge_says_decides_the_pairs(tmp_path, begin, monkeypatch):
    monkeypatch.setattr(module, "generate_replies", lambda model, t, messages, config, generator: [
        [f"Score: {len(message) % 6}"] * config.n_votes for message in messages])
    stage = replace(JUDGED, judge_prompt="{{ prompt }}|{{ response }}|")
    run_pipeline(Pipeline(begin, (stage,)), tmp_path/"o", TINY)
    store = open_store(tmp_path/"o"/"01-SelfRewardDPO"/"pairs", tokenizer())
    for i in range(len(store)):
        pair = store[[i]]
        for side, column in ((pair.chosen, "chosen_score"), (pair.rejected, "rejected_score")):
            [(prompt, answer)] = module.decode_candidates(tokenizer(), ["x"], module.Candidates(side, torch.zeros(1, dtype=torch.long)))
            question = next(q for q in TINY.prompts["tiny"] if module._open_prompts("tiny", tokenizer(), 256, TINY).prompts[
                TINY.prompts["tiny"].index(q)] == list(module.prompts_of(side)[0]))
            assert store.column(column)[i] == len(f"{question}|{answer}|") % 6

def test_a_mute_judge_is_told_and_stops_the_stage(tmp_path, begin, monkeypatch):
    lines = []
    for replies, words in ((["well, good"], "'well, good'.*change judge_prompt"), ([None], "cut: raise max_new_tokens of judge_sampling, now 6")):
        monkeypatch.setattr(module, "generate_replies", Judging(replies))
        stage = replace(JUDGED, judge_prompt="{{ prompt }} {{ response }}", n_prompts=400)
        with pytest.raises(ValueError, match=f"stage 1: the last 1[0-9][0-9] replies of the judge held no score.*{words}"):
            run_pipeline(Pipeline(begin, (stage,)), tmp_path/str(replies[0]), TINY, tell=lines.append)
        assert any("the last 24 replies" in line for line in lines)      # said after the first chunk
    with pytest.raises(ValueError, match="none of 48 replies"):
        run_pipeline(Pipeline(begin, (replace(stage, n_prompts=8),)), tmp_path/"short", TINY)
    monkeypatch.setattr(module, "generate_replies", Judging(["no"] * 50 + ["Score: 2", "Score: 3", "Score: 5"]))
    run_pipeline(Pipeline(begin, (stage,)), tmp_path/"late", TINY)       # one that speaks now and then goes on

# ---- judge prompts and rules from the file

def test_a_prompt_from_a_file_or_a_text(tmp_path, begin):
    text = "{% if response %}Q {{ prompt }}{% endif %}\nA {{ response | upper }}\n"
    (tmp_path/"judge.jinja").write_text(text)
    own = dict(judge_pattern="{{ reward }} points", judge_low=-1., judge_high=10., judge_last=False)
    for given in (text, str(tmp_path/"judge.jinja")):
        stage = replace(JUDGED, judge_prompt=given, **own)
        prompt = module._open_judge(from_toml(to_toml(Pipeline(begin, (stage,)))).stages[0], TINY)
        assert prompt == JudgePrompt(text, "{{ reward }} points", -1., 10., False)
        assert prompt.render("a", "b") == "Q a\nA B" and prompt.parse("7 points or 8 points") == 7.
    assert module._open_judge(JUDGED, TINY) is TINY.judges["tiny"]
    for bad, words in (("nobody", "no judge prompt 'nobody': name tiny"), ("{{ prompt }}", "missing response"),
                       ("{{ prompt }}{{ response }}{{ x }}", "unknown x"), ("{{ prompt }", "no jinja2 template"),
                       ("{% for x in prompt %}{{ x }}{{ response }}{% endfor %}", "has for"),
                       ("{{ prompt.__class__ }}{{ response }}", "failed|unsafe")):
        with pytest.raises(ValueError, match=words): module._open_judge(replace(JUDGED, judge_prompt=bad), TINY)
        assert validate_pipeline(Pipeline(begin, (replace(JUDGED, judge_prompt=bad),)), TINY)[0].startswith(
            "stage 1 (SelfRewardDPO), judge_prompt: ")
    with pytest.raises(ValueError, match="a pattern and a range of its own"):
        module._open_judge(replace(JUDGED, judge_high=9.), TINY)
    problems = validate_pipeline(Pipeline(begin, (replace(JUDGED, judge="tiny"), replace(JUDGED, judge="./no"))), TINY)
    assert "'tiny' is a judge_prompt" in problems[0] and problems[1].startswith("stage 2 (SelfRewardDPO), judge: no folder './no'")

def test_a_prompt_in_a_file_that_changes_is_another_run(tmp_path, begin):
    file = tmp_path/"judge.jinja"
    file.write_text("{{ prompt }} {{ response }}")
    identity = lambda: module._identity(Pipeline(begin, (replace(JUDGED, judge_prompt=str(file)),)), 0)
    before = identity()
    assert str(file) in before
    file.write_text("{{ prompt }} {{ response }}!")
    assert identity() != before
    long = "{{ prompt }}{{ response }}" + "word " * 2000          # a text is no path
    assert module._identity(Pipeline(begin, (replace(JUDGED, judge_prompt=long),)), 0)

def scores_of(out, stage):
    store = open_store(Path(out)/f"01-{stage}"/"pairs", tokenizer())
    return store.column("chosen_score"), store.column("rejected_score"), store

def test_the_rules_for_pairs(tmp_path, begin):
    stage = replace(EXTERNAL, n_prompts=32, n_pairs=32, num_generations=5)
    found = {}
    for name, change in (("best", {}), ("second", dict(select=best_second)), ("margin", dict(min_margin=3.))):
        [row] = run_pipeline(Pipeline(begin, (replace(stage, **change),)), tmp_path/name, TINY)
        found[name] = scores_of(tmp_path/name, "ExternalRewardDPO"), row
    (best, row), (second, _), (margin, few) = found.values()
    assert (best[0] > best[1]).all() and (second[0] > second[1]).all()       # ties make no pair
    assert (best[0] - best[1]).mean() > (second[0] - second[1]).mean()
    assert (margin[0] - margin[1]).min() >= 3 and len(margin[2]) < len(best[2])
    assert few["dropped"]["margin below min_margin"] == len(best[2]) - len(margin[2]) > 0
    assert "margin below min_margin" not in row["dropped"]
    rules = replace(stage, min_margin=2.).rules().filters["margin below min_margin"]
    assert rules(ScoredPair("", "a", "b", 3., 1.)) and not rules(ScoredPair("", "a", "b", 3., 1.5))
    assert replace(stage).rules().filters == {} and replace(stage).rules().select is max_min

# ---- all settings of PPO and GRPO

OTHER = dict(optimizer="SGD", kl_estimator="kl_k3", advantage_fn="leave_one_out", mixed_precision="bf16", loss_type="grpo",
             importance_sampling_level="sequence")

@pytest.mark.parametrize("kind, config", [("RewardPPO", PPOConfig), ("RewardGRPO", GRPOConfig)])
def test_every_field_of_the_config_can_be_set_and_arrives(kind, config):
    "Each alone, from a file, with a value that is not its default."
    stage = f'model = "m"\n[[stage]]\nkind = "{kind}"\nprompts = "p"\nreward = "r"\n'
    for field in fields(config):
        plain = getattr(from_toml(stage).stages[0].method(), field.name)
        if field.name == "kl_controller": line, want = "kl_controller = {target = 3, horizon = 500}", AdaptiveKLController(3., 500)
        elif field.name in OTHER: line, want = f'{field.name} = "{OTHER[field.name]}"', None
        elif field.type is bool: line, want = f"{field.name} = {str(not plain).lower()}", not plain
        elif field.type is int: line, want = f"{field.name} = {plain * 2 or 4}", plain * 2 or 4
        else: line, want = f"{field.name} = {plain / 2 or .5}", plain / 2 or .5
        made = from_toml(stage + line)
        if field.name == "mixed_precision":
            assert made.stages[0].mixed_precision == "bf16" and made.stages[0].method("bf16").mixed_precision == "bf16"
            continue
        got = getattr(made.stages[0].method(), field.name)
        assert got != plain and (want is None or got == want), field.name
        assert from_toml(to_toml(made)) == made
    named = from_toml(stage + 'kl_estimator = "kl_k3"' if kind == "RewardPPO" else stage + 'advantage_fn = "leave_one_out"').stages[0]
    assert (named.kl_estimator is kl_k3) if kind == "RewardPPO" else (named.advantage_fn is leave_one_out)

def test_infinite_limits_are_written_and_read(begin):
    stage = replace(PPO, max_kl=math.inf, cliprange=math.inf, vf_coef=0., entropy_coef=.01, lam=0., gamma=0.)
    assert from_toml(to_toml(Pipeline(begin, (stage,)))).stages == (stage,)

@pytest.mark.parametrize("line, error", [
    ("cliprang = 0.3", "no field 'cliprang'; did you mean 'cliprange'"), ("vf_coef = -1", "vf_coef must be 0 or more, got -1"),
    ('cliprange = "a"', "cliprange must be a number, got 'a'"), ("lam = 1.5", "lam must be from 0 to 1"),
    ('kl_estimator = "kl_k33"', "no kl_estimator 'kl_k33'; did you mean 'kl_k3'"), ("optimizer = 3", "no optimizer 3; there are adamw, SGD"),
    ("kl_controller = {targt = 3}", "kl_controller: no field 'targt'; did you mean 'target'"),
    ("kl_controller = {target = -3}", "target must be above 0"), ('mixed_precision = "fp8"', "must be one of"),
    ("lora_r = -1", "lora_r must be 0 or more"), ("lora_r = 1.5", "lora_r must be a whole number"), ("max_new_tokens = 0", "above 0"),
    ("gradient_checkpointing = 1", "must be True or False"), ("n_prompts = 0", "above 0")])
def test_a_wrong_value_is_refused_before_any_model_is_loaded(tmp_path, line, error, capsys, monkeypatch):
    from rlhf_nb.workbook import main
    for name in ("load_lm", "load_tokenizer", "begin_model", "fake_model"): monkeypatch.setattr(module, name, None)
    file = tmp_path/"p.toml"
    file.write_text(f'model = "sft"\n[[stage]]\nkind = "RewardPPO"\nprompts = "world"\nreward = "gold"\n{line}')
    for words in (["validate", str(file)], ["run", str(file), "-o", str(tmp_path/"o"), "--dry-run"], ["run", str(file), "-o", str(tmp_path/"o")]):
        assert main(["pipeline", *words]) == 1
        assert error in (said := capsys.readouterr().err) and "stage 1, RewardPPO" in said
    assert not (tmp_path/"o").exists()

def test_defaults_hold_for_the_stages_that_have_them(begin):
    text = '''model = "m"
[defaults]
lora_r = 4
beta = 0.5
eval = {eval_every = 7, patience = 2}
[[stage]]
kind = "SFT"
data = "tiny"
[[stage]]
kind = "SelfPlay"
data = "tiny"
lora_r = 0
eval = {patience = 5}
[[stage]]
kind = "RewardPPO"
prompts = "p"
reward = "r"
'''
    sft, play, ppo = from_toml(text).stages
    assert [x.lora_r for x in (sft, play, ppo)] == [4, 0, 4] and (play.beta, ppo.beta) == (.5, .5)
    assert (sft.eval.eval_every, sft.eval.patience) == (7, 2) and (play.eval.eval_every, play.eval.patience) == (7, 5)
    with pytest.raises(PipelineError, match="no stage of this file has a field 'lora_rr'; did you mean 'lora_r'"):
        from_toml(text.replace("lora_r = 4", "lora_rr = 4"))
    with pytest.raises(PipelineError, match="no stage of this file has a field 'n_votes'"): from_toml(text.replace("beta = 0.5", "n_votes = 5"))
    with pytest.raises(PipelineError, match="defaults are a table"): from_toml('defaults = 3\nmodel = "m"')

def test_settings_of_ppo_and_grpo_are_used(tmp_path, begin):
    "Three runs each: as it is, with a field of the config, with a named function."
    for stage, changes in ((PPO, (dict(vf_coef=5.), dict(kl_estimator=kl_k3), dict(optimizer=torch.optim.SGD))),
                           (GRPO, (dict(epsilon=.01, num_iterations=3), dict(advantage_fn=leave_one_out), dict(loss_type="grpo")))):
        found = set()
        for k, change in enumerate(({}, *changes)):
            run_pipeline(Pipeline(begin, (replace(stage, **change),)), tmp_path/f"{type(stage).__name__}{k}", TINY)
            found |= set(weights(tmp_path/f"{type(stage).__name__}{k}").values())
        assert len(found) == 4

def test_a_function_that_no_file_can_name_is_refused(begin):
    with pytest.raises(ValueError, match="kl_estimator: no file can name .*only kl_k1, kl_k3"):
        to_toml(Pipeline(begin, (replace(PPO, kl_estimator=lambda a, b: a - b),)))

# ---- files of preferences

def csv_of(pairs, path):
    import csv
    rows = [json.loads(line) for line in open(pairs)]
    with open(path, "w", newline="") as file:
        out = csv.DictWriter(file, rows[0]); out.writeheader(); out.writerows(rows)
    return str(path)

def test_dpo_on_a_file_is_what_train_does(tmp_path, begin, pairs):
    "The same rows are held out, and the numbers are those of `rlhf-nb train dpo` at the same seeds."
    stage = preference(pairs)
    [row] = run_pipeline(Pipeline(begin, (stage,)), tmp_path/"o", TINY)
    assert row["pairs"] == 32 and row["n_eval"] == 8 and {"eval_accuracy", "eval_loss", "eval_margin"} <= row.keys()
    log = log_of(tmp_path/"o", "01-PreferenceDPO")
    assert [x["step"] for x in log if "eval_loss" in x] == [0, 2, 4] and abs(log[0]["eval_loss"] - math.log(2)) < 1e-6
    assert log[-1]["eval_loss"] < log[0]["eval_loss"] - 1e-4
    other = replace(stage, data=csv_of(pairs, tmp_path/"pairs.csv"))
    assert run_pipeline(Pipeline(begin, (other,)), tmp_path/"csv", TINY)[0]["eval_loss"] == row["eval_loss"]
    config = module.default_train_config(module._settings_of(Pipeline(begin, (replace(stage, max_steps=0, lora_r=2),)), 0), 320, load_lm(begin)[0])
    assert (config.n_steps, config.lr) == (50, 5e-4 * 64 / 16 * .5 * 10)       # its own defaults

def test_a_reward_model_is_trained_and_used_by_later_stages(tmp_path, begin, pairs):
    stages = reward_model(pairs), replace(PPO, prompts=pairs, reward="stage 1"), replace(EXTERNAL, prompts=pairs, reward="stage 1", min_margin=0.)
    rows = run_pipeline(Pipeline(begin, stages), tmp_path/"o", TINY)
    assert rows[0]["n_eval"] == 8 and weight_hash(load_lm(tmp_path/"o"/"01-RewardModel")[0]) == weight_hash(load_lm(begin)[0])
    scorer = load_reward_model(tmp_path/"o"/"01-RewardModel"/"reward")
    chosen, rejected, store = scores_of_third(tmp_path/"o")
    got = module.checked_reward_fn(lambda x: module.torch.stack([scorer(s)[0, s.attention_mask.sum() - 1] for s in
                                   (x[[i]].trim() for i in range(len(x)))]).detach(), tokenizer())(store[:].chosen)
    assert torch.allclose(got, chosen, atol=1e-4) and (chosen > rejected).all()
    alone = from_toml((tmp_path/"o"/"02-RewardPPO"/"stage.toml").read_text()).stages[0]
    assert alone.reward == "01-RewardModel/reward"
    gone = {name for name, _ in module.clean(tmp_path/"o")}
    assert "01-RewardModel/model.safetensors" in gone and (tmp_path/"o"/"01-RewardModel"/"reward"/"model.safetensors").exists()

def scores_of_third(out):
    store = open_store(out/"03-ExternalRewardDPO"/"pairs", tokenizer())
    return store.column("chosen_score"), store.column("rejected_score"), store

def test_a_reward_model_moves_no_policy(begin, pairs):
    "KL is measured from the model before the first stage that is a method."
    pipeline = Pipeline("sft", (SFT_STAGE, reward_model(pairs), PPO))
    assert [module.kl_reference(pipeline, Path("o"), i) for i in range(3)] == ["", "", str(Path("o/02-RewardModel"))]

def test_names_of_shipped_models(tmp_path, monkeypatch):
    "sft, judge and reward are those of the package, unless the folder here has such a name."
    stages = (replace(JUDGED, prompts="held_out", judge_prompt="world", data="ift_eft", judge="judge"),
              replace(EXTERNAL, prompts="held_out", reward="reward"))
    assert validate_pipeline(Pipeline("sft", stages)) == []
    monkeypatch.chdir(tmp_path)
    seed_model("sft")
    assert module._path_of("sft") == "sft" and Path(module._path_of("judge")).is_absolute()

def test_stage_n_must_be_a_reward_model_before(begin, pairs):
    for stages, words in (((replace(PPO, reward="stage 1"),), "stage 1 is no RewardModel before it"),
                          ((reward_model(pairs), replace(PPO, reward="stage 2")), "stage 2 is no RewardModel"),
                          ((SFT_STAGE, replace(EXTERNAL, reward="stage 1")), "the stages before it are SFT"),
                          ((SFT_STAGE, replace(EXTERNAL, reward="stage 0")), "stage 0 is no RewardModel")):
        with pytest.raises(ValueError, match=words): Pipeline(begin, stages)

def test_faulty_files_of_preferences_are_told_before_the_first_stage(tmp_path, begin, pairs):
    (tmp_path/"bad.jsonl").write_text('{"prompt": "a", "chosen": "b"}\n')
    stages = (PreferenceDPO("nowhere.jsonl"), PreferenceDPO(str(tmp_path/"bad.jsonl")), replace(reward_model(pairs), margins=True),
              replace(preference(pairs), eval_rows=40), replace(preference(pairs), max_length=5000))
    problems = validate_pipeline(Pipeline(begin, stages), TINY)
    for line, words in zip(problems, ("stage 1 (PreferenceDPO), data: no file", "stage 2 (PreferenceDPO), data", "stage 3 (RewardModel), data",
                                      "stage 4 (PreferenceDPO), data: eval_rows must", "stage 5 (PreferenceDPO): this model reads 1024")):
        assert line.startswith(words), line
    assert len(problems) == 5 and "rejected" in problems[1] and "has no margins" in problems[2]
    with pytest.raises(ValueError, match="measured on held-out pairs"): replace(reward_model(pairs), eval=StageEval("norm"))

# ---- tokenizers without a pad

def without_pad(folder, kind): # pad is eos, or there is none at all; no token is called <pad>
    shutil.copytree(seed_model(folder.with_name(folder.name + "-seed")), folder)
    for file in folder.glob("tokenizer*.json"): file.write_text(file.read_text("utf-8").replace("<pad>", "<hole>"), "utf-8")
    t = module.load_tokenizer(folder)
    t.pad_token = t.eos_token if kind == "eos" else None
    t.save_pretrained(folder)
    assert module.load_tokenizer(folder).pad_token_id in (None, t.eos_token_id)
    return str(folder)

@pytest.mark.parametrize("kind", ["eos", "none"])
def test_a_tokenizer_without_a_pad_gets_one_as_in_train(tmp_path, pairs, kind):
    policy, judge = without_pad(tmp_path/"policy", kind), without_pad(tmp_path/"judge", kind)
    stages = SFT_STAGE, reward_model(pairs), replace(JUDGED, judge=judge), replace(GRPO, prompts=pairs, reward="stage 2"), preference(pairs)
    pipeline = Pipeline(policy, stages, prompts="tiny")
    assert validate_pipeline(pipeline, TINY) == []
    rows = run_pipeline(pipeline, tmp_path/"o", TINY)
    for row in rows:
        lm, t = load_lm(tmp_path/"o"/row["stage"])
        assert t.pad_token == "<pad>" and t.pad_token_id == len(t) - 1 == lm.config.pad_token_id != t.eos_token_id
        assert lm.get_input_embeddings().weight.shape[0] >= len(t)
    assert math.isfinite(rows[2]["kl"]) and math.isfinite(rows[3]["kl"])
    first, _ = load_lm(policy, pad_token="<pad>")
    [sft, *_] = [load_lm(tmp_path/"o"/row["stage"])[0] for row in rows]
    assert sft.get_input_embeddings().weight.shape == first.get_input_embeddings().weight.shape
    store = open_store(tmp_path/"o"/"03-SelfRewardDPO"/"pairs", load_lm(tmp_path/"o"/"01-SFT")[1])
    assert (store[:].chosen.response_mask.any(1)).all()

def test_a_reward_model_with_another_tokenizer_reads_texts(tmp_path, begin, pairs):
    "Its own tokens, its own prompt: the policy's ids mean nothing to it."
    judge, t = load_lm(other_judge(tmp_path/"other"), pad_token="<pad>")
    save_reward_model(ScalarModel.from_lm(judge), t, tmp_path/"reward")
    run_pipeline(Pipeline(begin, (replace(EXTERNAL, reward=str(tmp_path/"reward")),)), tmp_path/"o", TINY)
    chosen, rejected, _ = scores_of(tmp_path/"o", "ExternalRewardDPO")
    assert (chosen > rejected).all()

# ---- told in words

def test_a_reward_that_raises_or_gives_nan_is_named(tmp_path, begin):
    for fn, words in ((lambda t: lambda seqs: 1 / 0, "reward_fn raised ZeroDivisionError"), (lambda t: lambda seqs: seqs.ids[:, 0] * math.nan, "reward_fn gave nan"),
                      (lambda t: lambda seqs: torch.zeros(2), "one number per row")):
        for stage in (EXTERNAL, PPO, GRPO):
            with pytest.raises(ValueError, match=words):
                run_pipeline(Pipeline(begin, (stage,)), tmp_path/f"{type(stage).__name__} {words[-5:]}", replace(TINY, rewards=dict(even=fn)))

def test_no_room_on_the_disk_is_told_before_a_model_is_loaded(tmp_path, begin, monkeypatch):
    monkeypatch.setattr(module.shutil, "disk_usage", lambda place: type("U", (), dict(free=1000)))
    monkeypatch.setattr(module, "begin_model", None)
    with pytest.raises(PipelineError, match="disk: the models of 1 stages .* GB free: make room"):
        run_pipeline(Pipeline(begin, (SFT_STAGE,)), tmp_path/"o", TINY)
    assert not (tmp_path/"o").exists()

def test_progress_is_told(tmp_path, begin, pairs):
    lines = []
    stages = SFT_STAGE, EXTERNAL, PPO, replace(GRPO, prompts=pairs), preference(pairs)
    run_pipeline(Pipeline(begin, stages), tmp_path/"o", TINY, tell=lines.append)
    text = "\n".join(lines)
    assert text.count("dropped: repeats an earlier row") == 1 and "pairs.jsonl: 40 of 40 rows kept" in text
    for words in ("01-SFT: stage 1 of 5", "02-ExternalRewardDPO: stage 2 of 5", "  7 steps on 24 rows", "  4 steps on 32 rows", "  chunk 1 of 6: ", "  rollout 3 of 3: score ",
                  "  rollout 2 of 2: score ", "took all 7 steps"): assert words in text, (words, text)
    log = json.loads((tmp_path/"o"/"01-SFT"/"log.jsonl").read_text().splitlines()[1])
    assert "loss" in log

def test_every_key_has_words(capsys):
    from rlhf_nb.workbook import main
    assert main(["pipeline", "keys"]) in (0, None)
    text = capsys.readouterr().out
    for kind in module._KINDS.values():
        says = module._comments(kind)
        for field in fields(kind):
            assert f"  {field.name} " in text, field.name
            assert says.get(field.name) or field.name in ("train_config", "eval", "sampling", "judge_sampling", "cliprange_value"), (kind, field.name)
    assert main(["pipeline", "keys", "RewardPPO"]) in (0, None) and "cliprange_value" in capsys.readouterr().out
    assert main(["pipeline", "keys", "RewardPP"]) == 2 and "did you mean 'RewardPPO'" in capsys.readouterr().err

def test_the_dry_run_reckons_memory_per_stage(tmp_path, begin, pairs, capsys, monkeypatch):
    from rlhf_nb.workbook import main
    monkeypatch.setattr(module, "WORLD_REGISTRY", TINY)
    monkeypatch.setattr(module.validate_pipeline, "__defaults__", (TINY,))
    stages = SFT_STAGE, replace(SFT_STAGE, lora_r=2), preference(pairs), PPO, GRPO
    (tmp_path/"p.toml").write_text(to_toml(Pipeline(begin, stages)))
    assert main(["pipeline", "run", str(tmp_path/"p.toml"), "-o", str(tmp_path/"o"), "--dry-run"]) in (0, None)
    text = capsys.readouterr().out
    assert text.count("    needs about ") == 5 and "03-PreferenceDPO: 32 pairs, 8 held out, 4 steps" in text
    assert "05-RewardGRPO: 3 prompts, 4 steps" in text and not (tmp_path/"o").exists()

# ---- as `rlhf-nb train` has them: turns, stop token, layers of LoRA

def chats(path, n=12):
    rows = [dict(messages=[dict(role="user", content=f"The owl {WORDS[i % 10]} {i}"), dict(role="assistant", content=f"The bat {i}"),
                           dict(role="user", content=f"The fox {i}"), dict(role="assistant", content=f"The frog {i}")]) for i in range(n)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)

def test_sft_learns_all_turns_or_the_last(tmp_path, begin, monkeypatch):
    file, seen, real = chats(tmp_path/"chats.jsonl"), {}, module.fit_stage
    def spy(ctx, data, *args, **more):
        seen[ctx.stage.turns] = int(data.response_mask.sum())
        return real(ctx, data, *args, **more)
    monkeypatch.setattr(module, "fit_stage", spy)
    stage = SFT(file, train_config=TrainConfig(n_steps=2, batch_size=4))
    for turns in ("all", "last"):
        text = to_toml(Pipeline(begin, (replace(stage, turns=turns),)))
        run_pipeline(from_toml(text), tmp_path/turns, TINY)
    assert seen["all"] == 2 * seen["last"]
    assert weights(tmp_path/"all") != weights(tmp_path/"last")
    with pytest.raises(ValueError, match="SFT.turns must be one of .'all', 'last'."): replace(stage, turns="first")
    with pytest.raises(ValueError, match="holds another pipeline"): run_pipeline(Pipeline(begin, (replace(stage, turns="last"),)), tmp_path/"all", TINY)

def test_self_play_answers_the_last_turn_of_a_chat(tmp_path, begin):
    "Real and own answer have one prompt: the chat with its earlier answers, up to the last question."
    file = chats(tmp_path/"chats.jsonl")
    run_pipeline(Pipeline(begin, (replace(PLAY, data=file, n_pairs=8, chunk_size=4),)), tmp_path/"o", TINY)
    store = open_store(tmp_path/"o"/"01-SelfPlay"/"pairs", tokenizer())
    prompts = [module.prompts_of(x) for x in (store[:].chosen, store[:].rejected)]
    assert prompts[0] == prompts[1]
    text = tokenizer().decode(list(prompts[0][0]))
    assert "bat" in text and "fox" in text and "frog" not in text

@pytest.mark.parametrize("k", range(8), ids=KINDS)
def test_named_layers_alone_get_adapters(tmp_path, begin, pairs, k, monkeypatch):
    trained = []
    spied_trainers(monkeypatch, lambda model, config: trained.append({name for name, p in model.named_parameters() if p.requires_grad}))
    stage = replace(all_kinds(pairs)[k], lora_r=2, lora_targets="query_key_value, dense")
    run_pipeline(from_toml(to_toml(Pipeline(begin, (stage,)))), tmp_path/"o", TINY)
    assert trained[0] and all(x.endswith("score.weight") or ".query_key_value.lora" in x or ".dense.lora" in x for x in trained[0]), trained[0]
    assert any("lora" in x for x in trained[0])

def test_layers_that_are_not_there_are_told_before_the_first_stage(tmp_path, begin, pairs):
    stages = replace(SFT_STAGE, lora_r=2, lora_targets="query_key_value"), replace(preference(pairs), lora_r=2, lora_targets="no_such")
    [problem] = validate_pipeline(Pipeline(begin, stages), TINY)
    assert "stage 2 (PreferenceDPO)" in problem and "no layer of this model is called 'no_such': LoRA can adapt dense" in problem

@pytest.mark.parametrize("stage", [PPO, GRPO, PLAY], ids=lambda x: type(x).__name__)
def test_a_stop_token_ends_answers_from_its_stage_on(tmp_path, begin, pairs, stage, monkeypatch):
    "The tokenizer and the generation config that the stage leaves say so; the next stage goes on with it."
    seen, real = [], module.generate_many
    def spy(model, prompts, tokenizer, *args, **more):
        seen.append(tokenizer.eos_token)
        return real(model, prompts, tokenizer, *args, **more)
    monkeypatch.setattr(module, "generate_many", spy)
    stages = replace(stage, stop_token="."), reward_model(pairs), replace(GRPO, prompts=pairs, reward="stage 2")
    run_pipeline(Pipeline(begin, stages), tmp_path/"o", TINY)
    assert set(seen) <= {"."}
    for folder in sorted((tmp_path/"o").glob("0*-*")):
        lm, t = load_lm(folder)
        assert t.eos_token == "." and t.convert_tokens_to_ids(".") == lm.generation_config.eos_token_id, folder

def test_a_stop_token_of_a_reward_model_stage_is_the_policys_too(tmp_path, begin, pairs):
    run_pipeline(Pipeline(begin, (replace(reward_model(pairs), stop_token="."),)), tmp_path/"o", TINY)
    lm, t = load_lm(tmp_path/"o"/"01-RewardModel")
    assert t.eos_token == "." and lm.generation_config.eos_token_id == t.eos_token_id == load_reward_model(
        tmp_path/"o"/"01-RewardModel"/"reward").backbone.config.eos_token_id

def test_a_stop_token_that_is_none_is_told_before_the_first_stage(tmp_path, begin):
    for name in ("no such token", "<pad>"):
        [problem] = validate_pipeline(Pipeline(begin, (SFT_STAGE, replace(PPO, stop_token=name))), TINY)[:1]
        assert problem.startswith(f"stage 2 (RewardPPO), stop_token: {name!r} is no token that can end a response")

def test_too_long_in_the_words_of_a_file(begin):
    [problem] = validate_pipeline(Pipeline(begin, (replace(PPO, max_length=1020),)), TINY)
    assert problem == f"stage 1 (RewardPPO): this model reads 1024 tokens, max_length 1020 and max_new_tokens {PPO.max_new_tokens} make " \
        f"{1020 + PPO.max_new_tokens}: lower max_length"

def test_a_pipeline_begins_with_a_language_model(tmp_path, begin, pairs):
    [problem] = validate_pipeline(Pipeline("reward", (reward_model(pairs),)), TINY)
    assert problem.startswith("model: ") and problem.endswith("is a reward model, which says nothing: name a language model")
