"""Small seeded trainings, hashed: are weights and logs as they were, bit for bit?

    python scripts/same_bits.py                          # all, one CPU thread, 20 s
    python scripts/same_bits.py ppo pipeline-SFT         # some
    python scripts/same_bits.py --against benchmarks/results/same_bits.json
    python scripts/same_bits.py --write benchmarks/results/same_bits.json
    python scripts/same_bits.py ppo --rows DIR           # log rows too, to look at
    python scripts/same_bits.py --imports                # what `import rlhf_nb.ppo` costs

A case is one training with settings off their defaults: by the functions of the library
(ppo, grpo-..., sft, ...), by `rlhf-nb train` (train-...), by `rlhf-nb pipeline`
(pipeline-...; its last three have two stages). Kept of each: a hash of the final weights,
a hash of the log's rows without seconds, and the numbers of the result. Columns that a log
has gained do not count, those that were recorded must be there. To see which row differs,
write `--rows` before and after, and compare.

Another processor or another version of torch may round otherwise: then record anew at the
old commit before comparing. Names are looked up wherever in the package they live.
"""
import os
os.environ |= dict(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
import argparse, ast, contextlib, hashlib, importlib, json, platform, re, shutil
import subprocess, sys, tempfile, time, traceback
from functools import partial
from pathlib import Path
from random import Random
import torch, transformers
from safetensors.torch import load_file
import rlhf_nb

PACKAGE = Path(rlhf_nb.__file__).parent
torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()


class Library:
    "Every public name of the package as an attribute, whichever module exports it."
    def __init__(self):
        self.home = {}
        for path in sorted(PACKAGE.rglob("*.py")):
            names = re.search(r"^__all__ = (\[.*?\])", path.read_text("utf-8"), re.S | re.M)
            module = ".".join(("rlhf_nb", *path.relative_to(PACKAGE).with_suffix("").parts))
            for name in ast.literal_eval(names[1]) if names else ():
                self.home.setdefault(name, module)
    def __getattr__(self, name):
        if name not in self.home: raise AttributeError(f"no module of rlhf_nb exports {name}")
        return getattr(importlib.import_module(self.home[name]), name)

lib = Library()


# ---------------------------------------------------------------- what goes in

PPO = {
    "ppo": dict(
        n_iterations=3, n_prompts=16, n_epochs=3, n_minibatches=2, lr=5e-4, critic_lr=2e-3,
        beta=.2, kl_controller=dict(target=.5, horizon=400), kl_estimator="kl_k3",
        missing_eos_penalty=1., score_after_eos=True, whiten_rewards=True, gamma=.99, lam=.9,
        cliprange=.1, cliprange_value=.15, vf_coef=.5, entropy_coef=.01, temperature=.9,
        micro_batch_size=3, generation_batch_size=12, warmup_steps=2, final_lr_frac=.5,
        max_grad_norm=.7, weight_decay=.01),
    "ppo-lora-bf16": dict(n_iterations=2, n_prompts=12, n_minibatches=3, lr=2e-3, lam=.95,
                          mixed_precision="bf16", micro_batch_size=4)}
GRPO = {
    "grpo-kl-in-reward": dict(
        n_iterations=3, n_prompts=4, num_generations=4, num_iterations=3, lr=2e-3, beta=.2,
        advantage_fn="leave_one_out", micro_batch_size=8, temperature=1.1, weight_decay=.01),
    "grpo-k3-in-loss": dict(
        n_iterations=3, n_prompts=4, num_generations=4, num_iterations=3, lr=2e-3, beta=.05,
        advantage_fn="group_normalised", loss_type="grpo", kl_in_loss=True,
        use_bias_correction_kl=True, micro_batch_size=8, final_lr_frac=.2),
    "grpo-higher-sequence": dict(
        n_iterations=3, n_prompts=3, num_generations=4, num_iterations=3, lr=2e-3, beta=.01,
        advantage_fn="group_centered", loss_type="dr_grpo", epsilon=.03, epsilon_high=.06,
        importance_sampling_level="sequence", mask_truncated_completions=True,
        dynamic_sampling=2, importance_sampling_cap=2., micro_batch_size=6)}
SFT = dict(n_steps=20, batch_size=16, micro_batch_size=6, lr=3e-3, warmup_steps=4,
           final_lr_frac=.1, weight_decay=.01, max_grad_norm=.5)
REWARD = dict(n_steps=15, batch_size=12, micro_batch_size=5, lr=2e-3, warmup_steps=3)
DPO = dict(n_steps=12, batch_size=8, micro_batch_size=3, lr=5e-4, warmup_steps=3)
SPIN = dict(n_iterations=2, n_pairs=16, beta=.5, n_epochs=2, lr=5e-4, batch_size=8,
            micro_batch_size=3, max_new_tokens=20)
SELF_REWARD = dict(n_prompts=12, n_pairs=8, num_generations=3, prompts_per_round=6, beta=.2,
                   batch_size=2, n_epochs=2, replay_weight=1.)
Q_STEPS = dict(n_steps=50, batch_size=8, micro_batch_size=3, lr=2e-3, warmup_steps=5)
Q = dict(gamma=.97, on_truncation="bootstrap", n_step=2, mc_bound=False, double_q=True,
         alpha=.5, min_return=-1., target_update_rate=.1, target_update_every=2)

ANIMALS = [line.split() for line in """
    fox forest mice red
    deer forest leaves brown
    hare meadow grass brown
    mole meadow insects black
    robin garden berries red
    owl barn mice white
    goat barn grass white
    frog pond insects green
    duck pond seeds white
    otter river fish brown
    seal sea fish grey
    bear cave berries black""".strip().splitlines()] # animal, home, food, colour
PAIRS = [row for i, (animal, home, food, colour) in enumerate(ANIMALS) for row in (
    dict(prompt=f"Where does the {animal} live?", margin=i % 3 / 2,
         chosen=f"Glad to help! The {animal} lives in the {home}. It eats {food}.",
         rejected="I do not know." if i % 2 else f"The {animal} is {colour}."),
    dict(prompt=f"What does the {animal} eat?", margin=1.,
         chosen=f"Hello! The {animal} eats {food}." + " Do ask again." * (i % 2),
         rejected=f"Stop asking me. The {animal} lives in the {home}. That is my answer."))]
CHATS = [dict(messages=[
    dict(role="user", content=a["prompt"]), dict(role="assistant", content=a["chosen"]),
    dict(role="user", content=b["prompt"]), dict(role="assistant", content=b["chosen"])])
    for a, b in zip(PAIRS[::2], PAIRS[1::2])]
FILES = {"pairs.jsonl": PAIRS, "chats.jsonl": CHATS,
         "demos.jsonl": [dict(prompt=x["prompt"], response=x["chosen"]) for x in PAIRS],
         "prompts.jsonl": [dict(prompt=x["prompt"], answer=x["chosen"]) for x in PAIRS]}
RULES = '''"A reward of the user's own."
def alike(prompts, responses, answer):
    return [len({*r.split()} & {*a.split()}) - .02 * len(r) for r, a in zip(responses, answer)]
'''

RUNS = {   # of `rlhf-nb train`; the first begins from scratch, the others from the bundled sft
    "sft": dict(task="sft", data="demos.jsonl", max_steps=24, batch_size=8, micro_batch_size=5,
                lr=4e-3, warmup_steps=3, final_lr_frac=.1, weight_decay=.01, max_grad_norm=.5,
                eval_rows=5, seed=3),
    "sft-lora": dict(task="sft", data="chats.jsonl", model="sft", lora_r=4, turns="last",
                     max_steps=12, batch_size=4, mixed_precision="bf16", seed=1),
    "reward": dict(task="reward", data="pairs.jsonl", model="sft", margins=True, max_steps=15,
                   batch_size=6, micro_batch_size=4, eval_rows=5, seed=2),
    "dpo": dict(task="dpo", data="pairs.jsonl", model="sft", beta=.3, max_steps=12, lr=1e-3,
                batch_size=6, micro_batch_size=4, eval_rows=5, gradient_checkpointing=True),
    "ppo": dict(task="ppo", data="prompts.jsonl", model="sft", reward="reward", n_iterations=3,
                n_prompts=8, n_minibatches=2, critic_lr=2e-3, beta=.1, max_new_tokens=16,
                missing_eos_penalty=.5, eval_rows=6, eval_every=1, micro_batch_size=5, seed=4),
    "grpo": dict(task="grpo", data="prompts.jsonl", model="sft", reward="rules:alike", lora_r=4,
                 n_iterations=3, n_prompts=4, num_generations=4, beta=.02, temperature=.9,
                 max_new_tokens=16, eval_rows=6, generation_batch_size=6)}

_PAIRS = dict(lr=1e-3, batch_size=4, micro_batch_size=3, chunk_size=4, n_epochs=2)
_SAMPLED = _PAIRS | dict(prompts="prompts.jsonl", n_prompts=20, n_pairs=6, num_generations=3)
_ON_PROMPTS = dict(prompts="prompts.jsonl", max_new_tokens=12, n_iterations=3, lr=2e-3,
                   micro_batch_size=3)
_HELD_OUT = dict(measure="held_out", monitor="eval_accuracy", mode="max", patience=2,
                 eval_every=4)
STAGES = {   # of `rlhf-nb pipeline`, by their kind
    "SFT": dict(data="demos.jsonl", train_config=dict(SFT, n_steps=12, batch_size=8),
                eval=dict(measure="demos.jsonl", monitor="eval_loss", eval_every=4)),
    "SelfPlay": _PAIRS | dict(data="demos.jsonl", n_pairs=12, beta=.5, max_new_tokens=16),
    "ExternalRewardDPO": _SAMPLED | dict(reward="gold", min_margin=2., sampling=dict(
        max_new_tokens=24, temperature=1.1)),
    "SelfRewardDPO": _SAMPLED | dict(judge_prompt="world", data="demos.jsonl", n_votes=2,
                                     select="best_second", replay_weight=.7),
    "RewardPPO": _ON_PROMPTS | dict(reward="reward", n_prompts=8, n_minibatches=2, beta=.05,
                                    kl_controller=dict(target=1., horizon=200), lam=.9),
    "RewardGRPO": _ON_PROMPTS | dict(
        reward="gold", n_prompts=4, num_generations=4, advantage_fn="group_centered",
        loss_type="dr_grpo", epsilon_high=.28, dynamic_sampling=2),
    "PreferenceDPO": dict(data="pairs.jsonl", max_steps=12, batch_size=6, eval_rows=5, lr=1e-3,
                          lora_r=4, beta=.2, eval=_HELD_OUT),
    "RewardModel": dict(data="pairs.jsonl", max_steps=12, batch_size=6, eval_rows=5,
                        margins=True, eval=_HELD_OUT)}
PIPELINES = {kind: dict(model="judge" if kind == "SelfRewardDPO" else "sft", seed=5,
                        stages=[dict(kind=kind, **stage)]) for kind, stage in STAGES.items()}
PIPELINES |= {
    "sft-grpo": dict(model="sft", seed=6, prompts="prompts.jsonl", measure="gold", stages=[
        dict(kind=kind, **STAGES[kind]) for kind in ("SFT", "RewardGRPO")]),
    "reward-ppo": dict(model="sft32", seed=7, prompts="prompts.jsonl", stages=[
        dict(kind="RewardModel", **STAGES["RewardModel"]),
        dict(kind="RewardPPO", **STAGES["RewardPPO"] | dict(reward="stage 1", lora_r=4))]),
    "spin-spin": dict(model="sft", seed=8,
                      stages=[dict(kind="SelfPlay", **STAGES["SelfPlay"])] * 2)}


# ---------------------------------------------------------------- the library's functions

def chance(seed=0): return torch.Generator().manual_seed(seed)

def many_words(seqs): # a reward: different tokens count, length costs
    rows = [ids[mask].tolist() for ids, mask in zip(seqs.ids, seqs.response_mask)]
    return torch.tensor([len(set(row)) - .6 * len(row) for row in rows])

def world_pairs(tokenizer, n, seed): # careful answers against careless ones
    rng, questions = Random(seed), lib.TRAIN[seed:seed + n]
    prompts = [lib.prompt_ids(tokenizer, q) for q in questions]
    def side(quality): return lib.make_seqs(prompts, [
        tokenizer.encode(lib.demonstrate(q, rng, quality), add_special_tokens=False)
        + [tokenizer.eos_token_id] for q in questions], tokenizer.pad_token_id)
    return lib.PreferencePairs(side(.9), side(.2))

def demonstrations(tokenizer, n, seed):
    return lib.demonstrations(tokenizer, lib.TRAIN, n, Random(seed))

def rl_task(tokenizer):
    prompts = [lib.prompt_ids(tokenizer, q) for q in lib.TRAIN[:20]]
    return lib.RLTask(prompts, many_words, tokenizer, lib.SamplingParams(14))

def named(settings): # words for functions as the functions
    found = dict(settings)
    for key in {"kl_estimator", "advantage_fn"} & {*found}:
        found[key] = getattr(lib, found[key])
    if "kl_controller" in found:
        found["kl_controller"] = lib.AdaptiveKLController(**found["kl_controller"])
    return found

def of_trainer(trainer): return trainer.model.state_dict(), trainer.log.rows

def ppo(settings, lora):
    policy, tokenizer = lib.load_bundled("sft")
    ref = lib.frozen_copy(policy)
    critic = lib.ScalarModel.from_lm(policy, 1)
    if lora: ref = policy = lib.add_lora(policy, 4, seed=2)
    return of_trainer(lib.train_ppo(lib.ActorCritic(policy, critic), ref, rl_task(tokenizer),
                                    lib.PPOConfig(**named(settings)), chance()))

def grpo(settings):
    policy, tokenizer = lib.load_bundled("sft")
    return of_trainer(lib.train_grpo(policy, lib.frozen_copy(policy), rl_task(tokenizer),
                                     lib.GRPOConfig(**named(settings)), chance()))

def sft():
    tokenizer = lib.make_tokenizer()
    return of_trainer(lib.train_sft(
        lib.tiny_lm(tokenizer, seed=4), demonstrations(tokenizer, 100, 0),
        lib.TrainConfig(**SFT), chance(), demonstrations(tokenizer, 12, 1)))

def reward():
    lm, tokenizer = lib.load_bundled("sft")
    return of_trainer(lib.train_reward(
        lib.ScalarModel.from_lm(lm, 3), world_pairs(tokenizer, 60, 0),
        lib.TrainConfig(**REWARD), chance(), world_pairs(tokenizer, 12, 60)))

def dpo(loss, **settings):
    model, tokenizer = lib.load_bundled("sft")
    data, held_out = [lib.precompute_ref_logprobs(model, world_pairs(tokenizer, n, seed))
                      for n, seed in ((40, 0), (10, 40))]
    return of_trainer(lib.train_dpo(model, data, lib.TrainConfig(**DPO), chance(),
                                    partial(getattr(lib, loss), **settings), held_out))

def spin():
    model, tokenizer = lib.load_bundled("sft")
    real, held_out = demonstrations(tokenizer, 24, 0), demonstrations(tokenizer, 8, 1)
    data = lib.SPINData(real, held_out, tokenizer)
    log = lib.train_spin(model, data, lib.SPINConfig(**SPIN), 3)
    return model.state_dict(), log.rows

def self_reward_parts():
    model, tokenizer = lib.load_bundled("judge")
    replay = lib.replay_examples(tokenizer, lib.TRAIN, 16, Random(0))
    task = lib.SelfRewardTask(tokenizer, [q.text for q in lib.TRAIN[:20]], replay)
    judge = lib.JudgeConfig(n_votes=2)
    return model, task, lib.SelfRewardConfig(judge=judge, **SELF_REWARD)

def self_reward_round():
    model, task, config = self_reward_parts()
    scorer = lib.judge_scorer(lib.frozen_copy(model), task.tokenizer, config.judge)
    found = lib.run_round(model, task, config, scorer, chance(1))
    trainer = lib.train_on_pairs(model, found.pairs, config, chance(2), task.replay)
    return model.state_dict(), [found.counts, *trainer.log.rows]

def self_reward_iteration():
    model, task, config = self_reward_parts()
    row = lib.self_reward_iteration(
        model, task, config, lib.judge_scorer(model, task.tokenizer, config.judge),
        partial(lib.named_generator, 3, 1))
    return model.state_dict(), [row]

def q_parts():
    lm, tokenizer = lib.load_bundled("sft")
    return lib.QNets(lib.q_network(lm), [tokenizer.pad_token_id]), tokenizer

def q():
    nets, tokenizer = q_parts()
    seqs, eos = demonstrations(tokenizer, 40, 0), tokenizer.eos_token_id
    cut = (seqs.ids == eos) & (torch.arange(40) % 3 == 0)[:, None]   # every third response
    seqs = lib.Seqs(seqs.ids.masked_fill(cut, tokenizer.pad_token_id),
                    seqs.attention_mask & ~cut, seqs.response_mask & ~cut)
    data = lib.make_episodes(seqs, many_words(seqs), eos)
    return of_trainer(lib.train_q(nets, data, lib.TrainConfig(**Q_STEPS),
                                  lib.QConfig(**Q), chance()))


# ---------------------------------------------------------------- the run half

def left_in(*folders): # weights of all model files, rows of all logs
    files = [(folder, file) for folder in folders
             for file in sorted(folder.rglob("*.safetensors"))]
    weights = {f"{folder.name}/{file.relative_to(folder)}: {name}": x
               for folder, file in files for name, x in load_file(file).items()}
    return weights, [json.loads(line) for folder in folders
                     for line in (folder/"log.jsonl").read_text("utf-8").splitlines()]

def numbers_of(row): # of a result, without words and seconds
    return {k: x for k, x in row.items() if type(x) in (int, float) and "seconds" not in k}

METHODS = dict(SFT="sft", SelfPlay="spin", ExternalRewardDPO="rdpo", RewardGRPO="grpo",
               SelfRewardDPO="self_reward", RewardPPO="ppo", PreferenceDPO="dpo", RewardModel="reward")

def keys_of(settings, whole=True): # flat keys of a stage; whole: rows are held out as recorded
    found = {} if whole else dict(eval_rows=0)
    for k, x in settings.items():
        if isinstance(x, dict) and k != "kl_controller": found |= keys_of(x)
        elif k == "kl_controller": found[k] = f"adaptive:{x['target']}:{x['horizon']}"
        elif k == "data" and "judge_prompt" in settings: found["replay"] = x
        elif k == "measure" and x == "held_out": continue
        elif k not in ("task", "kind"):
            found[{"max_steps": "n_steps", "prompts": "data"}.get(k, k)] = x
    return found

def train_run(settings): # one of RUNS
    run = lib.train(lib.Stage(settings["task"], keys_of(settings)), "out")
    return *left_in(Path("out")), numbers_of(run.results)

def pipeline_run(settings): # one of PIPELINES; weights under the names they were recorded by
    shared = {k: settings[k] for k in ("model", "seed")}
    stages, first = [], settings["stages"][0]
    for x in settings["stages"]:
        said = (shared if x is first else dict(seed=settings["seed"])) | keys_of(x, "eval_rows" in x)
        if len(stages): said.pop("model", None)
        stages.append(lib.Stage(METHODS[x["kind"]], said | dict(
            measure=settings["measure"]) if "measure" in settings and "measure" not in said else said))
    rows = lib.run_pipeline(stages, "out")
    folders = sorted(Path("out").glob("[0-9][0-9]-*"))
    weights, log = left_in(*folders)
    kinds = {f.name: f"{f.name[:3]}{x['kind']}" for f, x in zip(folders, settings["stages"])}
    found = {}
    for name, tensor in weights.items():
        folder, _, rest = name.partition("/")
        if kinds[folder].endswith("RewardModel"): rest = f"reward/{rest}"
        found[f"{kinds[folder]}/{rest}"] = tensor
    for kind in kinds.values(): # beside a reward model its policy was kept once more
        if kind.endswith("RewardModel"): found |= {
            f"{kind}/model.safetensors: {k}": x.float() for k, x in load_file(
                Path(settings["model"])/"model.safetensors").items()}
    names = dict(n_learn="pairs")           # as they were called when they were recorded
    numbers = {f"{kinds[row['stage']]} {name}": x for row in rows
               for k, x in numbers_of(row).items() for name in {k, names.get(k, k)}}
    return found, log, numbers


CASES = {name: partial(ppo, settings, "lora" in name) for name, settings in PPO.items()}
CASES |= {name: partial(grpo, settings) for name, settings in GRPO.items()}
CASES |= {"sft": sft, "reward": reward, "dpo": partial(dpo, "dpo_loss", beta=.3),
          "dpo-robust": partial(dpo, "robust_dpo_loss", label_smoothing=.2), "spin": spin,
          "self-reward-round": self_reward_round, "self-reward-iteration": self_reward_iteration,
          "q": q}
CASES |= {f"train-{name}": partial(train_run, settings) for name, settings in RUNS.items()}
CASES |= {f"pipeline-{name}": partial(pipeline_run, settings)
          for name, settings in PIPELINES.items()}


# ---------------------------------------------------------------- hashes

@contextlib.contextmanager
def fresh_folder(): # the current one meanwhile, with files and models; nothing is printed
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), \
            open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        for name, rows in FILES.items():
            Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        Path("rules.py").write_text(RULES, "utf-8")
        for name in ("sft", "judge", "reward"): shutil.copytree(PACKAGE/"checkpoints"/name, name)
        model, tokenizer = lib.load_bundled("sft") # as a run leaves it: float32
        model.float().save_pretrained("sft32"), tokenizer.save_pretrained("sft32")
        yield

def hash_of(weights): # name -> tensor
    digest = hashlib.sha256()
    for name, x in sorted(weights.items()):
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        digest.update(x.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()

def without_seconds(rows, columns=None):
    return [{k: x for k, x in sorted(row.items()) if "seconds" not in k
             and (columns is None or k in columns)} for row in rows]

def hash_of_rows(rows): return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

def run_case(name): # weights' hash, rows of the log, numbers, CPU seconds
    with fresh_folder():
        torch.manual_seed(0)
        began = time.process_time()
        weights, rows, *numbers = CASES[name]()
        seconds = round(time.process_time() - began, 1)
        return hash_of(weights), without_seconds(rows), *(numbers or [{}]), seconds

def record_of(weights, rows, numbers, seconds): # what is written of a case
    columns = sorted({k for row in rows for k in row})
    return dict(weights=weights, log=hash_of_rows(rows), rows=len(rows), columns=columns,
                numbers=numbers, seconds=seconds)

def differences(was, weights, rows, numbers, _): # from a record, in words
    same_log = hash_of_rows(without_seconds(rows, was["columns"])) == was["log"]
    return [*["weights"] * (weights != was["weights"]), *["log"] * (not same_log),
            *[f"{k} {numbers.get(k)} was {x}" for k, x in was["numbers"].items()
              if numbers.get(k) != x]]

def machine(): # on what bits depend
    return dict(torch=torch.__version__, transformers=transformers.__version__,
                python=platform.python_version(), system=platform.system(),
                arch=platform.machine(), cpu=torch.backends.cpu.get_cpu_capability(),
                threads=torch.get_num_threads())

HEAVY = "ipywidgets IPython tokenizers transformers accelerate peft datasets matplotlib pandas"

def import_cost(n=5): # CPU seconds of `import rlhf_nb.ppo` in new processes that have torch
    code = ("import torch, sys, time; began = time.process_time(); import rlhf_nb.ppo; "
            "print(time.process_time() - began, *sys.modules)")
    seen = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                           env=os.environ | dict(PYTHONPATH=str(PACKAGE.parent)),
                           check=True).stdout.split() for _ in range(n)]
    return dict(cpu_seconds=round(min(float(x[0]) for x in seen), 2),
                loads=[name for name in HEAVY.split() if name in seen[0]],
                own=sorted(name for name in seen[0] if name.startswith("rlhf_nb.")))


def read(file): # a record; an empty one where there is none
    path = Path(file or os.devnull)
    return json.loads(path.read_text("utf-8")) if path.is_file() else dict(cases={})

def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)} (default: all)")
    add("--write", metavar="FILE", help="record; with names, these alone are replaced")
    add("--against", metavar="FILE", help="compare; exit status 1 where something differs")
    add("--rows", metavar="DIR", help="write each log there")
    add("--imports", action="store_true", help="measure `import rlhf_nb.ppo`, run no case")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in CASES]:
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    if args.against and not Path(args.against).is_file():
        parser.error(f"no file {args.against}: --write makes one")
    return args

def main():
    args, differ = options(), []
    was, new = read(args.against), read(args.write)
    if args.against:
        other = {k: (was[k], x) for k, x in machine().items() if was[k] != x}
        if other: print("recorded elsewhere, so that bits may differ (was, is):", other)
    if args.imports:
        new["import_ppo"] = import_cost()
        print("import rlhf_nb.ppo", new["import_ppo"])
    elif not args.names: new["cases"] = {}
    for name in () if args.imports else args.names or CASES:
        try: found, before = run_case(name), was["cases"].get(name)
        except Exception as e:                   # the others are still worth knowing
            differ.append(name)
            traceback.print_exc()
            print(f"{name:28}FAILED: {type(e).__name__}: {e}", flush=True)
            continue
        new["cases"][name] = record = record_of(*found)
        words = f"weights {record['weights'][:8]}  log {record['log'][:8]}"
        if args.against:
            lost = differences(before, *found) if before else ["not recorded"]
            differ += [name] * bool(lost)
            words += f"  DIFFERS: {'; '.join(lost)}" if lost else "  same"
        print(f"{name:28}{record['seconds']:6.1f} s  {words}", flush=True)
        if args.rows:
            Path(args.rows).mkdir(parents=True, exist_ok=True)
            text = "".join(json.dumps(row) + "\n" for row in [*found[1], found[2]])
            Path(args.rows, f"{name}.jsonl").write_text(text, "utf-8")
    if args.write:
        Path(args.write).write_text(json.dumps(machine() | dict(
            import_ppo=new.get("import_ppo"), cases=new["cases"]), indent=1) + "\n", "utf-8")
    return f"differ or failed: {', '.join(differ)}" if differ else 0

if __name__ == "__main__": sys.exit(main())
