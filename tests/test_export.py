"""`rlhf-nb export`: what stands in the folder; and, where TRL is installed, loss and gradient norm of its first step on the same rows."""
import contextlib, importlib.util, json, os, subprocess, sys, pytest, torch
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from rlhf_nb.base.learning import make_trainer, train_step
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.models import ScalarModel, frozen_copy, load_lm, save_reward_model
from rlhf_nb.base.batches import Rollout
from rlhf_nb.base.sampling import SamplingParams
from rlhf_nb.data.rollouts import read_rollouts
from rlhf_nb.run.export import export_run, trl_reward, trl_reward_model
from rlhf_nb.run.methods import METHODS, WORLD_REGISTRY, Job, Taught, open_reward, token_divergence
from rlhf_nb.run.pipeline import _open_all, train
from rlhf_nb.run.stages import Stage, settings_of, to_toml
from rlhf_nb.run.start import begin_model
from rlhf_nb.show.live_log import read_new_rows
from rlhf_nb.tokens import make_seqs
from rlhf_nb.trainers.grpo_trainer import grpo_loss, make_group_experience
from rlhf_nb.trainers.ppo_trainer import RLTask
from rlhf_nb.worlds.world_text import make_tokenizer
from disks import dies_at, disk_of
from test_families import BASE, FAMILIES
from tiny_runs import pair_rows, write_lines

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]
try: TRL = version("trl")
except PackageNotFoundError: TRL = ""
with_trl = pytest.mark.skipif(not TRL.startswith("1.16"), reason="TRL 1.16 is not installed")
RULES = "def even(prompts, responses): return [len(r) % 3 + len(r) / 50 for r in responses]\n"
NEWLINE = "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}{% if m['role'] == 'assistant' %}{{ eos_token + '\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"

def write_family(name, folder, seed=0):
    tokenizer = make_tokenizer()
    ids = dict(pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=tokenizer.eos_token_id)
    config = AutoConfig.for_model(name, **BASE | FAMILIES[name] | ids | dict(vocab_size=len(tokenizer), tie_word_embeddings=name == "gpt2", resid_pdrop=0., embd_pdrop=0., attn_pdrop=0.))
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad(): model.get_output_embeddings().weight.normal_(std=.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)

def home(tmp_path, family="llama"):
    write_family(family, tmp_path/"m")
    write_family(family, tmp_path/"t", seed=1)
    rows = pair_rows(12)
    write_lines(tmp_path/"pairs.jsonl", [x | dict(margin=i / 10) for i, x in enumerate(rows)])
    write_lines(tmp_path/"chats.jsonl", [dict(prompt=x["prompt"], completion=x["chosen"]) for x in rows])
    write_lines(tmp_path/"thumbs.jsonl", [dict(prompt=x["prompt"], completion=x["chosen"], label=i % 3 > 0) for i, x in enumerate(rows)])
    (tmp_path/"rules.py").write_text(RULES)
    return tmp_path

STAGES = dict(
    sft=dict(data="chats.jsonl"), reward=dict(data="pairs.jsonl", margins=True), dpo=dict(data="pairs.jsonl", beta=.3), hinge=dict(data="pairs.jsonl"),
    robust_dpo=dict(data="pairs.jsonl"), kto=dict(data="thumbs.jsonl"),
    grpo=dict(data="pairs.jsonl", reward="rules:even", max_new_tokens=6, n_prompts=4, num_generations=3, kl_in_loss=True, temperature=.8),
    rloo=dict(data="pairs.jsonl", reward="rules:even", max_new_tokens=6, n_prompts=4, num_generations=3, advantage_fn="leave_one_out", loss_type="dr_grpo"),
    distill=dict(data="pairs.jsonl", teacher="t", max_new_tokens=6, n_prompts=6))

def stage_of(name):
    said = dict(model="m", eval_rows=0, micro_batch_size=12, max_length=64) | STAGES[name]
    if name in ("sft", "reward", "dpo", "hinge", "robust_dpo", "kto"): said |= dict(batch_size=12, n_steps=4)
    return Stage("grpo" if name == "rloo" else name, said)

def exported(stage, home, out="away", to="trl"):
    (home/"stage.toml").write_text(to_toml([stage]))
    with contextlib.chdir(home): return export_run("stage.toml", to, out)

def first_step(stage, home, caught, trainer):
    "Loss and gradient norm here, on TRL's samples where it sampled."
    s = settings_of(stage)
    with contextlib.chdir(home):
        model, tokenizer, rows = _open_all(stage, s, WORLD_REGISTRY, lambda x: None, begin_model)
        ready = METHODS[s.method].begin(Job(stage, s, 0, model, tokenizer, rows, home, home, WORLD_REGISTRY))
        config, data, loss_fn = ready.config, ready.data, ready.loss_fn
        if METHODS[s.method].samples:
            x, pad = caught[0], tokenizer.pad_token_id
            prompts, answers = [[ids[m.bool()].tolist() for ids, m in zip(x[f"{k}_ids"], x[f"{k}_mask"])] for k in ("prompt", "completion")]
            data, n = make_seqs(prompts, answers, pad), len(prompts)
            config = config.train_config(1, n)
        if s.method == "grpo":
            c, logp = ready.config, logprobs(model, data, temperature=s.temperature).detach()
            group = torch.arange(n) // s.num_generations
            task = RLTask(rows.data.prompts, lambda x: x, tokenizer, SamplingParams(s.max_new_tokens))
            score = open_reward(s, rows.data, tokenizer, WORLD_REGISTRY)(data)
            data, loss_fn = make_group_experience(Rollout(data, group, logp, logp, score), c, task), lambda m, part: grpo_loss(m, part, c)
        elif s.method == "distill":
            data = Taught(data, data)
            def loss_fn(m, part):
                loss, _ = token_divergence(m, ready.data.teacher, part, ready.config.divergence)
                return loss.sum(), len(loss)
        made = make_trainer(ready.model, config)
        made.model.eval()
        return train_step(made, data, loss_fn)

def theirs(folder, monkeypatch, *words):
    "The first step of the script: its row of the log, what its loss was given, its trainer."
    monkeypatch.setattr(sys, "argv", ["train.py", *words, "1"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("away_train", folder/"train.py")
    module = importlib.util.module_from_spec(spec)
    with contextlib.chdir(folder): spec.loader.exec_module(module)
    trainer, caught = module.trainer, []
    if hasattr(trainer, "_generate_and_score_completions"):
        real = trainer._generate_and_score_completions
        trainer._generate_and_score_completions = lambda *x: (caught.append(real(*x)), caught[-1])[1]
    trainer.args.report_to = []
    trainer.train()
    trainer.save_model()
    trainer.save_state()
    return next(x for x in trainer.state.log_history if "loss" in x), caught, trainer

@with_trl
@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gpt2"])
@pytest.mark.parametrize("name", STAGES)
def test_the_first_step_is_trls(name, family, tmp_path, monkeypatch):
    stage, place = stage_of(name), home(tmp_path, family)
    exported(stage, place)
    row, caught, trainer = theirs(place/"away", monkeypatch, "--ours")
    ours = first_step(stage, place, caught, trainer)
    times = stage.said["max_new_tokens"] if name == "rloo" else 1     # as the script says
    if out := os.environ.get("BRIDGE"):
        with open(out, "a") as file: file.write(json.dumps(dict(method=name, family=family, loss=ours["loss"], trl_loss=row["loss"],
            grad_norm=ours["grad_norm"], trl_grad_norm=row["grad_norm"], times=times)) + "\n")
    assert row["loss"] == pytest.approx(times * ours["loss"], abs=1e-4) and row["grad_norm"] == pytest.approx(times * ours["grad_norm"], rel=1e-4)

@with_trl
def test_what_the_switch_switches(tmp_path, monkeypatch):
    "A template that ends an answer with a newline: TRL learns it, --ours does not; and what comes back opens here."
    place = home(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(place/"m")
    tokenizer.chat_template = NEWLINE
    tokenizer.save_pretrained(place/"m")
    exported(stage_of("sft"), place)
    first = json.loads((place/"away/rows.jsonl").read_text().splitlines()[0])
    assert first["completion"][0]["role"] == "assistant"
    row, caught, trainer = theirs(place/"away", monkeypatch)
    ours = first_step(stage_of("sft"), place, caught, trainer)
    assert abs(row["loss"] - ours["loss"]) > .01
    assert abs(theirs(place/"away", monkeypatch, "--ours")[0]["loss"] - ours["loss"]) < 1e-4
    assert [x["loss"] for x in read_new_rows(place/"away/output/trainer_state.json")[0] if "loss" in x]
    load_lm(place/"away/output")

@with_trl
def test_what_grpo_brings_back_opens_here(tmp_path, monkeypatch):
    stage, place = stage_of("grpo"), home(tmp_path)
    exported(stage, place)
    (place/"rules.py").unlink()                                # its copy is in the folder
    sys.modules.pop("rules", None)
    theirs(place/"away", monkeypatch)
    found = read_rollouts(place/"away/output")
    assert len(found) == 12 and all("even" in " ".join(x) for x in found.rows)
    assert any("reward" in x for x in read_new_rows(place/"away/log.jsonl")[0])

# ---- without TRL
def test_a_folder_to_take_along(tmp_path):
    place = home(tmp_path)
    differs = exported(Stage("dpo", stage_of("dpo").said | dict(eval_rows=3, batch_size=4, micro_batch_size=3, max_grad_norm=float("inf"))), place)
    script = (place/"away/train.py").read_text()
    compile(script, "train.py", "exec")
    for words in ("per_device_train_batch_size=2", "gradient_accumulation_steps=2", "beta=0.3", "DPOTrainer", "num_decay_steps': 2", "max_grad_norm=1000000000.0",
                  f"{place}/m", "eval_steps"): assert words in script, words
    files = {name: [json.loads(x) for x in (place/f"away/{name}.jsonl").read_text().splitlines()] for name in ("rows", "tokens", "eval_rows", "eval_tokens")}
    assert [len(x) for x in files.values()] == [9, 9, 3, 3] and differs
    tokenizer = AutoTokenizer.from_pretrained(place/"away/tokenizer")
    for row, ids in zip(files["rows"], files["tokens"]):       # the same row in both
        text = tokenizer.apply_chat_template(row["prompt"], tokenize=True, add_generation_prompt=True, return_dict=False)
        assert ids["prompt_ids"] == list(text) and ids["rejected_ids"][:-1] == tokenizer(row["rejected"][0]["content"], add_special_tokens=False)["input_ids"]
    assert files["tokens"][0]["chosen_ids"][-1] == tokenizer.eos_token_id
    with pytest.raises(ValueError, match="is not empty"): exported(stage_of("dpo"), place)

def test_a_death_or_a_full_disk_leaves_no_half_of_it(tmp_path):
    place, stage, deaths = home(tmp_path), stage_of("sft"), 0
    with contextlib.chdir(place):
        (place/"s.toml").write_text(to_toml([stage]))
        with pytest.raises(OSError, match="may not grow.*Nothing was there before"), disk_of(3000): export_run("s.toml", "trl", "away")
        assert not (place/"away").exists()
        while dies_at(2 + 4 * deaths, lambda: export_run("s.toml", "trl", "away")):
            assert not (place/"away").exists() or (place/"away/train.py").is_file()
            deaths += 1
            if (place/"away").exists(): break
        assert deaths > 2 and {p.name for p in (place/"away").iterdir()} >= {"train.py", "rows.jsonl", "tokens.jsonl", "tokenizer"}

def test_rows_of_other_methods(tmp_path):
    place = home(tmp_path)
    write_lines(tmp_path/"turns.jsonl", [dict(messages=[dict(role=r, content=f"The {w} {i}") for r, w in zip(["user", "assistant"] * 2, "fox owl bat fox".split())])
                                         for i in range(3)] + [dict(prompt="The bat", response="fox")])
    exported(Stage("sft", stage_of("sft").said | dict(data="turns.jsonl")), place, "a")
    rows, tokens = [[json.loads(x) for x in (place/f"a/{n}.jsonl").read_text().splitlines()] for n in ("rows", "tokens")]
    assert len(rows[0]["prompt"]) == 3 and rows[0]["completion"][0]["content"] == "The fox 0"
    learned = [x != -100 for x in tokens[0]["labels"]]
    assert sum(a < b for a, b in zip([False, *learned], learned)) == 2                 # both answers
    exported(stage_of("reward"), place, "b")
    assert json.loads((place/"b/tokens.jsonl").read_text().splitlines()[3])["margin"] == pytest.approx(.3)
    save_rm(place)
    exported(Stage("grpo", stage_of("grpo").said | dict(reward="rules:even,.5*rm", beta=0., model="m")), place, "c")
    script = (place/"c/train.py").read_text()
    assert "reward_weights=[1.0, 0.5]" in script and f"trl_reward_model('{place}/rm'" in script and (place/"c/rules.py").read_text() == RULES
    assert "max_completion_length=6" in script and "chosen" in json.loads((place/"c/rows.jsonl").read_text().splitlines()[0])

def save_rm(place):
    model, tokenizer = load_lm(place/"m")
    save_reward_model(ScalarModel.from_lm(model, 3), tokenizer, place/"rm")

@pytest.mark.parametrize("stage, words", [
    (dict(method="ipo", data="pairs.jsonl"), "does not have the method ipo of summed log-probs: its ipo is a mean"), (dict(method="dpo", data="pairs.jsonl", optimizer="Adam"), "the optimizer Adam"),
    (dict(method="grpo", data="pairs.jsonl", reward="rules:even", max_new_tokens=6, dynamic_sampling=2), "dynamic_sampling"),
    (dict(method="grpo", data="pairs.jsonl", reward="rules:even", max_new_tokens=6, advantage_fn="leave_one_out"), "leave_one_out with these settings"),
    (dict(method="ppo", data="pairs.jsonl", reward="rules:even", max_new_tokens=6), "the method ppo; --to verl has it"),
    (dict(method="distill", data="pairs.jsonl", teacher="t", max_new_tokens=6, divergence="sampled_kl"), "sampled_kl")])
def test_what_trl_lacks_is_refused_before_a_folder_is_made(stage, words, tmp_path):
    place = home(tmp_path)
    method = stage.pop("method")
    with pytest.raises(ValueError, match=words): exported(Stage(method, dict(model="m", max_length=64) | stage), place)
    assert not (place/"away").exists()

def test_rewards_in_both_languages(tmp_path):
    asked, said = [[dict(role="user", content=x)] for x in "ab"], [[dict(role="assistant", content=x)] for x in ("yes", "no way")]
    def by_name(responses, gold): return [float(r == g) for r, g in zip(responses, gold)]
    assert trl_reward(by_name)(prompts=asked, completions=said, completion_ids=[[1], [2]], gold=["yes", "no"]) == [1., 0.]
    assert trl_reward(lambda a, b: [x + y for x, y in zip(a, b)])(prompts=asked, completions=said, trainer_state=0) == ["ayes", "bno way"]
    turns = [asked[0] * 2]
    assert trl_reward(lambda prompts, responses: prompts)(prompts=turns, completions=said[:1]) == turns      # several messages stay messages
    assert trl_reward(lambda completions, **more: [x[0]["content"] for x in completions])(prompts=asked, completions=said) == ["yes", "no way"]
    assert trl_reward(lambda prompts, **more: sorted(more))(prompts=["a"], completions=["b"], gold=[1]) == ["gold", "responses"]
    place = home(tmp_path)
    save_rm(place)
    tokenizer = AutoTokenizer.from_pretrained(place/"m")
    score = trl_reward_model(str(place/"rm"), tokenizer.eos_token_id, 64)
    whole, cut = [score(prompts=asked, completions=said, completion_ids=[[5, eos], [5, 6]]) for eos in (tokenizer.eos_token_id, 7)]
    assert whole[0] != cut[0] and whole[1] == cut[1]           # the end of an answer is read where there is one

def test_a_finished_run_is_exported(tmp_path, monkeypatch):
    place = home(tmp_path)
    monkeypatch.chdir(place)
    train(Stage("sft", stage_of("sft").said | dict(n_steps=1, eval_rows=2)), "runs/x")
    done = subprocess.run([sys.executable, "-m", "rlhf_nb", "export", str(place/"runs/x"), "--to", "trl", "-o", "out"], cwd=place/"runs", capture_output=True, text=True)
    assert done.returncode == 0 and "what trl does otherwise" in done.stdout and (place/"runs/out/train.py").exists(), done.stderr
    with pytest.raises(ValueError, match="holds no run of one stage"): export_run(place, "trl", place/"z")
    with pytest.raises(ValueError, match="this package's own"): exported(Stage("sft", dict(data="chats.jsonl")), place, "y")

# ---- verl
def ppo(place, **more):
    said = dict(data="pairs.jsonl", model="m", max_length=64, reward="rules:even,.5*rules:even2", max_new_tokens=6, n_prompts=8, n_minibatches=2,
                kl_controller="adaptive:6:1000", lora_r=4) | more
    (place/"rules.py").write_text(RULES + "def even2(responses, chosen): return [None if len(c) > 99 else 1. for c in chosen]\n")
    sys.modules.pop("rules", None)
    return Stage("ppo", said)

def test_ppo_for_verl(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    place = home(tmp_path)
    exported(ppo(place), place, to="verl")
    script = (place/"away/train.sh").read_text()
    assert subprocess.run(["bash", "-n", place/"away/train.sh"]).returncode == 0
    for words in ("algorithm.kl_ctrl.target_kl=6.0", "ppo_mini_batch_size=4", "lora_rank=4", "data.max_response_length=6", f'model.path="{place}/m"'):
        assert words in script, words
    rows = parquet.read_table(place/"away/rows.parquet").to_pylist()
    assert rows[0]["prompt"][0]["role"] == "user"
    code = ("import sys, json, reward; from pyarrow.parquet import read_table; row = read_table('rows.parquet').to_pylist()[0]; "
            "print(reward.compute_score('rlhf-nb', 'The owl', '', row['extra_info']))")
    out = subprocess.run([sys.executable, "-c", code], cwd=place/"away", capture_output=True, text=True, env=os.environ | dict(PYTHONPATH=str(Path(__file__).parents[1])))
    assert float(out.stdout) == pytest.approx(7 % 3 + 7 / 50 + .5), out.stderr
    with pytest.raises(ValueError, match="verl takes ppo here"): exported(stage_of("dpo"), place, "z", "verl")

def test_verl_knows_each_key(tmp_path):
    "Its own configuration takes the overrides, and its dataclasses take that."
    hydra, found = pytest.importorskip("hydra"), importlib.util.find_spec("verl")
    if found is None: pytest.skip("verl is not installed")
    place = home(tmp_path)
    exported(ppo(place), place, to="verl")
    lines = (place/"away/train.sh").read_text().replace("\\\n", " ")
    words = subprocess.run(["bash", "-c", "HERE=.; printf '%s\\n' " + lines.split("main_ppo", 1)[1].replace('"$@"', "")], capture_output=True, text=True).stdout.split()
    with hydra.initialize_config_dir(str(Path(found.origin).parent/"trainer/config"), version_base=None): config = hydra.compose("ppo_trainer", words)
    assert config.critic.cliprange_value == .2 and config.actor_rollout_ref.actor.optim.betas == [.9, .98]
    from verl.utils.config import omega_conf_to_dataclass
    for part in (config.algorithm, config.critic, config.actor_rollout_ref.actor): omega_conf_to_dataclass(part)
