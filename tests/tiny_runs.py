"Runs that take a fifth of a second: a model of 10,000 weights, files of 24 rows, a stage of every method."
import hashlib, json, os, random, signal, sys, traceback, torch
from functools import lru_cache
from pathlib import Path
from rlhf_nb.base.models import ScalarModel, save_reward_model, tiny_lm
from rlhf_nb.judge import JudgePrompt
from rlhf_nb.run import pipeline
from rlhf_nb.run.methods import Registry
from rlhf_nb.run.stages import FUNCTIONS, KINDS, Stage, keys_of
from rlhf_nb.worlds.world_text import make_tokenizer
from test_runs import dies_at

WORDS = "owl fox robin bat frog worms insects berries fly hop".split()
RULES = "def even(prompts, responses): return [len(r.split()) % 2 + len(r) / 50 for r in responses]\n"
RULES += "def says(messages): return 'The owl' if len(messages) < 4 else None\n"          # an environment: a turn between two answers
WORLD = ("sft", "reward", "judge")      # names of shipped models

@lru_cache
def tokenizer(): return make_tokenizer()

def write_model(folder, **more):
    "A random model that ends its answers now and then, with dropout."
    model = tiny_lm(tokenizer(), **dict(hidden=16, layers=1) | more)
    with torch.no_grad():
        model.base_model.final_layer_norm.bias += .5
        model.get_output_embeddings().weight[tokenizer().eos_token_id] += .5
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout): part.p = .1
    model.config.hidden_dropout = .1                     # so that dropout is resumed, too
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return model

def write_lines(path, rows):
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)

def pair_rows(n=24):
    rng = random.Random(0)
    asked = rng.sample([f"The {a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS], n)
    return [dict(prompt=x, chosen=f"The {rng.choice(WORDS[:5])} {rng.choice(WORDS)}",
                 rejected=f"The {rng.choice(WORDS[5:])} {rng.choice(WORDS)}") for x in asked]

def fill_home(home):
    "Models m, t and rm, a file for each kind of rows, a reward function: all that a run reads."
    write_model(home/"t", seed=1)                        # a teacher
    save_reward_model(ScalarModel.from_lm(write_model(home/"m"), 3), tokenizer(), home/"rm")
    rows = pair_rows()
    write_lines(home/"pairs.jsonl", rows)
    write_lines(home/"chats.jsonl", [dict(messages=[
        dict(role="user", content=x["prompt"]), dict(role="assistant", content=x["rejected"]),
        dict(role="user", content=x["chosen"]), dict(role="assistant", content=x["prompt"])]) for x in rows])
    write_lines(home/"thumbs.jsonl", [dict(prompt=x["prompt"], completion=x["chosen" if i % 3 else "rejected"],
                                           label=i % 3 > 0) for i, x in enumerate(rows)])
    write_lines(home/"log.jsonl", [dict(prompt=x["prompt"], response=x["chosen"], reward=i % 4) for i, x in enumerate(rows)])
    (home/"tiny_rules.py").write_text(RULES)
    return home

# ---- a stage of every method
_FIT = dict(n_steps=4, batch_size=8, eval_every=2)
_RL = dict(n_iterations=2, n_prompts=4, max_new_tokens=5, reward="tiny_rules:even", eval_every=1)
_PICKED = dict(n_prompts=12, n_pairs=6, num_generations=3, chunk_size=4, max_new_tokens=6, batch_size=3, eval_every=1)
SMALL = dict.fromkeys("sft reward dpo ipo hinge cdpo robust_dpo simpo orpo".split(), _FIT) | dict(
    kto=_FIT | dict(data="thumbs.jsonl"), q=_FIT | dict(data="log.jsonl"),
    ppo=_RL, grpo=_RL | dict(num_generations=3),
    distill={k: x for k, x in _RL.items() if k != "reward"} | dict(teacher="t", student_share=.5),
    spin=dict(n_pairs=12, chunk_size=4, max_new_tokens=6, batch_size=4, eval_every=1),
    rdpo=_PICKED | dict(reward="tiny_rules:even"),
    self_reward=_PICKED | dict(judge_prompt="tiny", n_votes=2, judge_max_new_tokens=6))
METHOD_NAMES = list(KINDS)
def tiny(method, **said): return Stage(method, dict(data="pairs.jsonl", model="m", eval_rows=6) | SMALL[method] | said)

def in_a_row(*stages): # only the first one names its model
    return [Stage(x.method, {k: v for k, v in x.said.items() if k != "model" or i == 0}) for i, x in enumerate(stages)]

JUDGE = JudgePrompt("{{ prompt }} {{ response }}", lambda reply: float(len(reply) % 6))
TINY = Registry(dict(), dict(few=["cat", "owl sleeps", "fox"]), dict(), dict(tiny=JUDGE), dict(
    norm=lambda t: lambda model: {"norm": sum(p.norm().item() for p in model.parameters())}))

def run(stage, out, **more): return pipeline.train(stage, out, **dict(registry=TINY, tell=lambda text: None) | more)
def run_all(stages, out, **more): return pipeline.run_pipeline(stages, out, **dict(registry=TINY) | more)

# ---- what a run leaves
def content(folder): return {p.relative_to(folder).as_posix(): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file() and p.suffix != ".pyc"}
def weights(folder): # file -> its hash
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(Path(folder).rglob("model.safetensors")) if "work" not in p.parts}
def rows_in(path): return [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]

def until_done(work, first=9, step=14, most=60):
    "Call work() on a disk that dies at the 9th operation, then the 23rd, ... until it comes to its end; how often it died."
    for deaths in range(most):
        try:
            if not dies_at(first + step * deaths, work): return deaths
        except ValueError as e:                              # it died while it cleaned up
            assert "holds a finished run" in str(e), e
            return deaths
    raise AssertionError(f"it died {most} times")

def fork(work, said=os.devnull):
    "The number of a child of this process, which has imported all; work() gives its status, what it says comes into a file."
    if pid := os.fork(): return pid
    code = 1
    try:
        signal.alarm(600)
        file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2): os.dup2(file, stream)
        sys.stdout, sys.stderr = (os.fdopen(os.dup(stream), "w", 1) for stream in (1, 2))
        code = work() or 0
    except BaseException: traceback.print_exc()
    finally: os._exit(code)

def status_of(pid): return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def patch_everywhere(patch, name, make):
    "Replace a function of the package in every module that knows it: make(real) -> what is called."
    homes = [m for k, m in sys.modules.items() if k.startswith("rlhf_nb") and hasattr(m, name)]
    new = make(getattr(homes[0], name))
    for home in homes: patch.setattr(home, name, new)

# ---- settings
def needed(method):
    return {k: x for k, x in dict(data="d.jsonl", reward="a:b", judge_prompt="world", teacher="t").items() if k in keys_of(method)}

def other_value(method, key):
    "{key: a value that is right and is not its default}, and what else it asks for."
    _, field, default = keys_of(method)[key]
    named = dict(attn_implementation="eager", model="other", mixed_precision="bf16", mode="max", turns="last", importance_sampling_level="sequence", device="cpu",
                 on_truncation="bootstrap", discount_per="response", kl_controller="adaptive:3:500", report_to="tensorboard", push_to_hub="me/it", reward_timeout=30.)
    if key in needed(method): return {key: needed(method)[key]}
    if key == "monitor": return dict(monitor="norm", measure="norm")
    if key == "eval_rows": return dict(eval_rows=6)
    if key == "load_in": return dict(lora_r=2, load_in="4bit")
    if key == "lora_targets": return dict(lora_r=2, lora_targets="dense")
    if key in ("importance_sampling_mode", "importance_sampling_min"): # of weights, which need a cap
        return dict(importance_sampling_cap=.25) | {key: "sequence_mask" if key.endswith("mode") else .1}
    if key == "multi_objective_aggregation": return {key: "normalize_then_sum"}          # of the default advantage_fn alone
    if key in ("judge_high", "judge_low"): return {key: 3. if key == "judge_low" else 9.}
    if key == "n_bins": return dict(n_bins=4, rating="something")
    if key == "turns": return dict(turns="all" if default == "last" else "last")
    if key in named: return {key: named[key]}
    if key in FUNCTIONS: return {key: next(name for name, fn in FUNCTIONS[key].items() if fn is not default and name != default)}
    if field.type is bool: return {key: not default}
    if field.type is int: return {key: default * 2 or 4}
    if field.type is float: return {key: default / 2 or .25}
    return {key: "something"}
