"All methods of `rlhf-nb train` by the same tests: what they leave, killed and resumed, with LoRA, in bf16."
import json, math, pytest, torch
from contextlib import chdir
from dataclasses import replace
from functools import cache
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
from rlhf_nb.base.folder import foreign_files
from conftest import plain_id
from rlhf_nb.judge import JudgePrompt
from rlhf_nb.run.methods import METHODS
from rlhf_nb.run.stages import settings_of
from rlhf_nb.self_reward import select_pairs
from tiny_runs import (METHOD_NAMES, TINY, content, patch_everywhere, rows_in, run, tiny, tokenizer, until_done, weights,
    write_lines)

pytestmark = pytest.mark.usefixtures("one_thread", "no_curves")
each_method = pytest.mark.parametrize("method", METHOD_NAMES)

@pytest.fixture(scope="module")
def finished(tiny_files, tmp_path_factory, one_thread, no_curves):
    "method -> its run, made when it is first asked for."
    out = tmp_path_factory.mktemp("finished")
    @cache
    def of(method):
        with chdir(tiny_files): return run(tiny(method), out/method)
    return of

def opened(folder, method, **more): # by transformers alone
    if method != "reward": return AutoModelForCausalLM.from_pretrained(folder, **more)
    return AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, **more)

@each_method
def test_what_a_method_leaves(method, finished, tiny_files):
    done = finished(method)
    out, facts = done.folder, json.loads((done.folder/"run.json").read_text())
    assert {"README.md", "model.safetensors", "tokenizer.json"} < set(facts["files"]) and not foreign_files(out)
    assert facts["results"] == {k: x if x == x else None for k, x in done.results.items()} and facts["settings"]["method"] == method
    assert (done.results["n_learn"], done.results["n_eval"]) == (18, 6) and not (out/"work").exists()
    errors = [v for k, v in done.results.items() if k.startswith("standard_error")]
    assert errors and all(0 <= x < math.inf for x in errors)
    log = rows_in(out/"log.jsonl")
    assert all(math.isfinite(x) for row in log for x in row.values() if isinstance(x, float))
    assert max(row.get("step", 0) for row in log) == done.results["steps"] > 0
    model, info = opened(out, method, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    start = dict(opened(tiny_files/"m", method).named_parameters())
    assert any(not torch.equal(p, start[k]) for k, p in model.named_parameters() if "score" not in k)
    held = rows_in(out/"held_out.jsonl")
    asked = {row["prompt"] for row in rows_in(tiny_files/"pairs.jsonl")}
    assert len(held) == 6 and {row["prompt"] for row in held} < asked
    assert f'method = "{method}"' in (out/"README.md").read_text()

def test_new_prompts_are_written_once_answered_and_kept(inside, monkeypatch):
    "Killed after they were written, the run goes on with the same; held-out rows are none of the examples."
    new, wrote, answered, fails = ["The bat knows berries", "Why do worms hop"], [], [], [1]
    def write(model, tokenizer, known, n, sampling, generator, held):
        wrote.append((known, held, n))
        return new
    def select(texts, *args):
        if fails: raise OSError(f"stopped {fails.pop()}")
        answered.extend(texts)
        return select_pairs(texts, *args)
    patch_everywhere(monkeypatch, "write_prompts", lambda real: write)
    patch_everywhere(monkeypatch, "select_pairs", lambda real: select)
    stage = tiny("self_reward", new_prompts=2, n_prompts=20, n_pairs=20)
    with pytest.raises(OSError, match="stopped 1"): run(stage, "o")
    done = run(stage, "o")
    [(known, held, n)] = wrote
    assert (len(known), len(held), n) == (18, 6, 2) and not {*known} & {*held}
    assert {*answered} == {*known, *new} and done.results["n_learn"] == 18
    assert [row["prompt"] for row in rows_in("o/prompts.jsonl")] == new and "prompts.jsonl" in json.loads(open("o/run.json").read())["files"]
    patch_everywhere(monkeypatch, "write_prompts", lambda real: lambda *args: [])
    with pytest.raises(ValueError, match="new_prompts: all that the model writes is empty, cut or a repeat"): run(stage, "other")

def test_prompts_are_as_many_as_were_asked_for(inside):
    "A chunk is a write, and the last one may be short."
    assert run(tiny("rdpo", n_prompts=5, n_pairs=12), "o").results["prompts"] == 5

@pytest.mark.parametrize("n_votes, found", [(1, 0), (2, 1)])
def test_a_judge_whose_replies_hold_no_score_is_named(n_votes, found, inside):
    replies = iter([3.] * found + [None] * 100)
    silent = replace(TINY, judges=dict(tiny=JudgePrompt("{{ prompt }} {{ response }}", lambda reply: next(replies))))
    with pytest.raises(ValueError, match=f"{found} of {6 * n_votes} replies of the judge held a score: change judge_prompt"):
        run(tiny("self_reward", n_prompts=2, n_votes=n_votes, eval_rows=0), "o", registry=silent)

def test_a_reward_that_does_not_score_each_prompt_trains_grpo_and_is_measured(inside):
    "None is a response without a score, held out as well; PPO, which needs each, says so."
    (inside/"partly.py").write_text("def short(prompts, responses): return [-len(r) / 9 if len(p) % 2 else None for p, r in zip(prompts, responses)]\n")
    run(tiny("grpo", reward="partly:short", n_iterations=1), "o")
    held = rows_in("o/held_out.jsonl")
    scored = [len(row["prompt"]) % 2 == 1 for row in held]
    assert 0 < sum(scored) < 6 and [math.isfinite(row["reward_after"]) for row in held] == scored
    assert math.isfinite(json.loads((inside/"o/run.json").read_text())["results"]["reward_after"])
    with pytest.raises(ValueError, match="gave nan for row"): run(tiny("ppo", reward="partly:short", n_iterations=1), "p")

@pytest.mark.parametrize("dueling", [True, False])
def test_a_q_network_is_saved_as_one_that_is_read_again(dueling, inside):
    done = run(tiny("q", dueling=dueling), "o")
    x = torch.tensor([[5, 9, 20, 7]])
    lm, found = opened("o", "q", output_loading_info=True)
    assert not found["missing_keys"] and not found["unexpected_keys"]
    torch.testing.assert_close(lm.eval()(x).logits, done.model.online.eval()(x).logits)
    assert lm(x).logits.abs().max() > 0

def without_seconds(path): return [{k: v for k, v in row.items() if k != "seconds"} for row in rows_in(path)]
LORA, BF16 = dict(lora_r=2, mixed_precision="bf16"), dict(mixed_precision="bf16", gradient_checkpointing=True)
TURNS = dict(environment="tiny_rules:says", lag=2, importance_sampling_cap=1.5, importance_sampling_mode="token_mask", n_iterations=3,
             max_new_tokens=12)

@pytest.mark.parametrize("method, change", [
    *[(x, {}) for x in METHOD_NAMES], *[(x, LORA) for x in "sft reward ppo distill self_reward q".split()],
    *[(x, BF16) for x in ("ppo", "spin")], ("grpo", TURNS),
    pytest.param("ppo", TURNS, marks=pytest.mark.long)], ids=plain_id)
@pytest.mark.one_in(2)
def test_a_run_that_died_again_and_again_ends_in_the_same_bits(method, change, finished, inside, tmp_path):
    stage = tiny(method, **change)
    whole = run(stage, tmp_path/"whole").folder if change else finished(method).folder
    assert until_done(lambda: run(stage, tmp_path/"o"), 12, 21) >= 2
    assert weights(whole) == weights(tmp_path/"o") and content(whole).keys() == content(tmp_path/"o").keys()
    for name in ("log.jsonl", "samples.jsonl", "held_out.jsonl"):
        if (whole/name).exists(): assert without_seconds(whole/name) == without_seconds(tmp_path/"o"/name), name

def spied(monkeypatch): # of each trainer that is made: its settings, names of what it trains, format of what it does not
    seen = []
    def make(real):
        def spy(model, config, *args, **more):
            seen.append((config.mixed_precision, {n for n, p in model.named_parameters() if p.requires_grad},
                         {p.dtype for p in model.parameters() if not p.requires_grad}))
            return real(model, config, *args, **more)
        return spy
    patch_everywhere(monkeypatch, "make_trainer", make)
    return seen

@each_method
def test_lora_trains_adapters_in_bf16_and_leaves_a_plain_model(method, inside, tmp_path, monkeypatch):
    "Of the named layers alone; what is saved has no adapter, and only these layers have changed."
    seen = spied(monkeypatch)
    run(tiny(method, lora_targets="query_key_value, dense", **LORA), tmp_path/"o")
    [(precision, trained, frozen)] = seen
    assert precision == "no" and frozen == {torch.float32 if method == "q" else torch.bfloat16}   # nothing is cast
    assert any("lora" in x for x in trained)
    assert all("query_key_value.lora" in x or "dense.lora" in x or x.endswith("score.weight") or
               method == "q" and x == "online.lm_head.weight" for x in trained), trained
    assert not list((tmp_path/"o").rglob("adapter*"))
    start, saved = (dict(opened(x, method).named_parameters()) for x in ("m", tmp_path/"o"))
    changed = {k for k in start if "score" not in k and "lm_head" not in k and not torch.equal(start[k].bfloat16(), saved[k].bfloat16())}
    assert changed and all("query_key_value.weight" in x or "dense.weight" in x for x in changed)

@each_method
def test_bf16_casts_float32_weights_and_dropout_is_for_imitation_and_reward_models(method, inside, tmp_path, monkeypatch):
    seen, dropped, sampled, real = spied(monkeypatch), set(), set(), torch.nn.Dropout.forward
    def forward(self, x):
        if torch.is_grad_enabled(): dropped.add(self.training and self.p > 0)
        return real(self, x)
    monkeypatch.setattr(torch.nn.Dropout, "forward", forward)
    def generating(fn):
        def spy(*args, **more):
            sampled.add(torch.is_autocast_enabled("cpu"))
            return fn(*args, **more)
        return spy
    patch_everywhere(monkeypatch, "generate_many", generating)
    run(tiny(method, **BF16), tmp_path/"o")
    [(precision, trained, frozen)] = seen
    assert precision == "bf16" and {p.dtype for p in opened(tmp_path/"o", method).parameters()} == {torch.float32}
    assert dropped == {method in ("sft", "reward")} 
    assert (True in sampled) == (method in ("ppo", "grpo", "distill", "spin", "rdpo", "self_reward"))

@pytest.mark.parametrize("method", ["ppo", "grpo", "distill"])
def test_held_out_rewards_have_the_standard_error_of_a_mean(method, finished):
    done = finished(method)
    for when in ("before", "after"):
        reward = torch.tensor([row[f"reward_{when}"] for row in rows_in(done.folder/"held_out.jsonl")])
        assert len(reward) == 6 and reward.std() > 0
        want = reward.mean().item(), reward.std().item() / math.sqrt(6)
        assert (done.results[f"reward_{when}"], done.results[f"standard_error_{when}"]) == pytest.approx(want, abs=1e-3)

def test_a_held_out_share_has_the_standard_error_of_a_share(finished):
    results = finished("dpo").results
    p, n = results["eval_accuracy"], results["n_eval"]
    assert 0 < p < 1 and n > 1
    assert results["standard_error"] == pytest.approx(math.sqrt(p * (1 - p) / n), abs=1e-3)

def test_turns_of_a_chat_are_one_episode_of_q_learning(tiny_files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chat = [dict(role=who, content=said) for who, said in (("user", "owl"), ("assistant", "the fox"), ("user", "frog"), ("assistant", "the bat"))]
    write_lines("talk.jsonl", [dict(messages=[dict(chat[0], content=f"owl {x}"), *chat[1:]], reward=i) for i, x in enumerate(("fox", "bat", "hop"))])
    for turns, n in (("all", 2), ("last", 1)):
        s = settings_of(tiny("q", data="talk.jsonl", turns=turns, eval_rows=1))
        x = METHODS["q"].load(s, tokenizer(), TINY).data
        assert (x.turn_ends().sum(1) == n).all() and (x.last().sum(1) == 1).all()
        assert x.reward[x.last()].tolist() == [0, 1, 2] and x.ended.all()
