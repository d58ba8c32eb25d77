"How a stage begins: the model, its pad and stop token, adapters, precision, steps and rate; and what stays as it was."
import json, re, shutil, pytest, torch
from importlib.util import find_spec
from pathlib import Path
from transformers import AutoModelForSequenceClassification, AutoTokenizer, MixtralConfig, MixtralForCausalLM
from rlhf_nb.base import logprobs, models
from rlhf_nb.base.learning import EvalConfig, TrainConfig, adamw_8bit, fit, make_trainer
from rlhf_nb.base.models import Placement, add_lora, load_bundled, load_lm, load_reward_model, load_tokenizer, tiny_lm
from rlhf_nb.data.text import load_demonstrations, train_tokenizer
from rlhf_nb.run import start
from rlhf_nb.run.methods import make_critic, open_config, rl_config
from rlhf_nb.run.pipeline import format_done, plan_stage, resolve
from rlhf_nb.run.start import add_scalar_head, begin_model, computing
from rlhf_nb.sft import sft_loss
from rlhf_nb.tokens import Seqs
from tiny_runs import TINY, patch_everywhere, rows_in, run, run_all, tiny, tokenizer, write_lines

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.usefixtures("one_thread", "no_curves", "inside")
def begun(stage): return begin_model(resolve(stage))

def test_steps_and_rate_that_nobody_said():
    def of(method, n_rows=800, width=64, **said):
        stage = tiny(method, **said)
        for key in {"n_steps", "batch_size"} - said.keys(): stage.said.pop(key, None)
        lm = tiny_lm(tokenizer(), hidden=width, layers=1)
        return open_config(stage, resolve(stage), n_rows, lm)
    for said, want in ((dict(method="sft", model=""), (200, 3e-3)), (dict(method="reward", model=""), (100, 2e-3)), (dict(method="sft"), (75, 1.5e-3)),
                       (dict(method="reward", lora_r=4), (75, 1e-2)), (dict(method="reward", model="", batch_size=16), (200, 2e-3)),
                       (dict(method="reward", model="", n_steps=3, lr=.5), (3, .5)), (dict(method="dpo", lora_r=2, width=16), (50, 1e-2)), (dict(method="sft", n_rows=10), (50, 1.5e-3))):
        got = of(**said)
        assert (got.n_steps, got.lr) == (want[0], pytest.approx(want[1])) and got.mixed_precision == "no" and got.micro_batch_size == 64
    wide = of("sft", width=1024, model="")
    assert wide.micro_batch_size == 8 and wide.lr == pytest.approx(3e-3 / 16)
    def rate(method, width, **said): return rl_config(tiny(method, **said), resolve(tiny(method, **said)), width).lr
    assert rate("ppo", 2048) == 3e-6 and rate("grpo", 2048) == 1e-6 and rate("ppo", 64) == pytest.approx(1e-3)
    assert rate("ppo", 2048, lora_r=4) == pytest.approx(3e-5) and rate("ppo", 2048, lr=.5) == .5

def test_bfloat16_where_the_device_has_it(monkeypatch):
    monkeypatch.setattr(start, "choose_placement", lambda name: Placement(torch.device("cpu"), torch.bfloat16))
    for said, want in (({}, "bf16"), (dict(lora_r=4), "no"), (dict(mixed_precision="no"), "no")):
        assert start.training_precision(resolve(tiny("sft", **said))) == want

def test_a_head_borrows_the_body_and_a_critic_shares_nothing():
    lm, _ = begun(tiny("reward"))
    before, model = torch.get_rng_state(), add_scalar_head(lm, 3)
    assert torch.equal(before, torch.get_rng_state()) and model.backbone is lm.base_model
    assert torch.equal(add_scalar_head(lm, 3).score.weight, model.score.weight) and not torch.equal(add_scalar_head(lm, 4).score.weight, model.score.weight)
    lm, _ = load_bundled("sft")
    assert not {p.data_ptr() for p in make_critic(lm).parameters()} & {p.data_ptr() for p in lm.parameters()}
    def trained(*args): return {n for n, p in make_critic(lm, *args).named_parameters() if p.requires_grad}
    every, few = trained(4), trained(4, 0, ["dense"])
    assert all("lora" in n or n == "score.weight" for n in every) and few < every and all("dense.lora" in n or n == "score.weight" for n in few)

@pytest.mark.parametrize("lora", [{}, dict(lora_r=2), dict(lora_r=2, gradient_checkpointing=True, mixed_precision="bf16")], ids=["all", "lora", "bf16"])
def test_a_fitted_reward_model_goes_on_from_its_head(lora):
    "Before the first step it scores as it did; a language model gets a new head, and does not."
    old, words = run(tiny("reward", lr=.05, n_steps=12), "old"), "goes on from its fitted head"
    stage = tiny("reward", model="old", **lora)
    said = plan_stage(stage, "r", registry=TINY)
    done, drawn = run(stage, "r"), run(tiny("reward"), "d")
    first, new = (x.trainer.log.rows[0]["eval_loss"] for x in (done, drawn))
    assert abs(first - old.results["eval_loss"]) < (.02 if "mixed_precision" in lora else 1e-5) < .05 < abs(new - old.results["eval_loss"])
    assert words in said and words in format_done(done) and words not in format_done(drawn)
    assert re.search(r"[\d,]+ of [\d,]+ weights trained", said)[0] in format_done(done)                     # the plan counts the same
    saved, info = AutoModelForSequenceClassification.from_pretrained("r", num_labels=1, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not list(Path("r").glob("adapter*"))
    assert not torch.equal(load_reward_model("r").score.weight, load_reward_model("old").score.weight)      # and it learned

def without_pad(folder, kind): # pad is eos, or there is none at all; no token is called <pad>
    for file in Path(folder).glob("tokenizer*.json"): file.write_text(file.read_text("utf-8").replace("<pad>", "<hole>"), "utf-8")
    t = load_tokenizer(folder)
    t.pad_token = t.eos_token if kind == "eos" else None
    t.save_pretrained(folder)

@pytest.mark.parametrize("kind", ["eos", "none"])
def test_a_tokenizer_without_a_pad_gets_one(kind):
    for name in ("m", "rm"): without_pad(name, kind)
    run_all([tiny("sft"), tiny("self_reward", model="", judge="m"), tiny("grpo", model="", reward="rm", eval_every=0), tiny("dpo", model="")], "o")
    for place in sorted(Path("o").glob("0*")):
        lm, t = load_lm(place)
        assert t.pad_token == "<pad>" and t.pad_token_id == len(t) - 1 == lm.config.pad_token_id != t.eos_token_id
        assert lm.get_input_embeddings().weight.shape[0] >= len(t)
    done, saved = run(tiny("reward", model="rm"), "r"), load_reward_model("r")
    assert saved.backbone.config.pad_token_id == done.tokenizer.pad_token_id == len(done.tokenizer) - 1

@pytest.mark.parametrize("method", ["sft", "reward", "ppo", "grpo", "spin"])
def test_a_stop_token_ends_what_is_learned_and_is_saved(method, monkeypatch):
    seen = []
    def make(real):
        def spy(model, prompts, t, *args, **more):
            seen.append(t.eos_token)
            return real(model, prompts, t, *args, **more)
        return spy
    patch_everywhere(monkeypatch, "generate_many", make)
    done, t = run(tiny(method, stop_token="."), "o"), AutoTokenizer.from_pretrained("o")
    model = load_reward_model("o").backbone if method == "reward" else load_lm("o")[0]
    assert t.eos_token == "." and model.config.eos_token_id == t.convert_tokens_to_ids(".") and set(seen) <= {"."}
    if method != "sft": return
    data = done.rows.data
    assert {done.tokenizer.decode(i) for i in data.ids[torch.arange(len(data)), data.attention_mask.sum(1) - 1]} == {"."}

def test_a_tokenizer_with_more_tokens_than_the_model():
    "Of a model to start from, also in a plan; of a reward model that reads responses."
    for name in ("m", "rm"):
        shutil.copytree(name, f"many-{name}")
        train_tokenizer([f"word{i} thing{i * 7}" for i in range(900)], 1500).save_pretrained(f"many-{name}")
    for stage in (tiny("sft", model="many-m"), tiny("reward", model="many-m"), tiny("reward", model="many-rm")):
        for call in (plan_stage, run):
            with pytest.raises(ValueError, match="has token ids up to 1499, its model embeds"): call(stage, "o", registry=TINY)
    assert not Path("o").exists()

def test_experts_are_told_that_nothing_balances_them():
    "By the plan and by the run; a model without experts is told nothing."
    size = dict(vocab_size=len(tokenizer()), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)
    MixtralForCausalLM(MixtralConfig(num_local_experts=3, num_experts_per_tok=1, pad_token_id=0, bos_token_id=1, eos_token_id=2, **size)).save_pretrained("moe")
    tokenizer().save_pretrained("moe")
    words = "3 experts in a layer: no load-balancing loss is added"
    for model, n in (("moe", 1), ("m", 0)):
        told, stage = [], tiny("sft", model=model, n_steps=1)
        assert plan_stage(stage, f"o{n}", registry=TINY).count(words) == n
        run(stage, f"o{n}", tell=lambda text: told.append(str(text)))
        assert sum(text.count(words) for text in told) == n

def test_texts_alone_are_held_out_as_any_other_rows():
    "Their prompt is the start token, the same for all: they are told apart by the text."
    rows = [dict(text=f"{x['chosen']} {x['prompt']}") for x in rows_in("pairs.jsonl")]
    write_lines("t.jsonl", rows)
    done = run(tiny("sft", data="t.jsonl"), "o")
    assert (done.results["n_eval"], done.results["n_learn"]) == (6, 18) and all(x in rows for x in rows_in("o/held_out.jsonl"))

def test_budget_and_tf32_last_as_long_as_a_run(monkeypatch):
    seen, matmul = [], torch.backends.cuda.matmul
    def make(real):
        def spy(*args, **more):
            seen.append(logprobs._LOGITS_MB.get())
            return real(*args, **more)
        return spy
    patch_everywhere(monkeypatch, "make_trainer", make)
    for method in ("sft", "ppo"): run(tiny(method, max_logits_mb=3.), method)
    assert seen == [3., 3.] and logprobs._LOGITS_MB.get() == 64.
    with pytest.raises(KeyError), computing(resolve(tiny("sft", tf32=True))):
        assert matmul.allow_tf32
        raise KeyError
    assert not matmul.allow_tf32

def test_a_part_of_a_layers_name_is_no_layer():
    "LoRA would adapt nothing: peft compares whole names."
    for name in ("query", "key_value", "dense_h"):
        with pytest.raises(ValueError, match=f"no layer of this model is called '{name}'.*query_key_value"):
            plan_stage(tiny("dpo", lora_r=2, lora_targets=name), "o", registry=TINY)
    assert plan_stage(tiny("dpo", lora_r=2, lora_targets="attention.query_key_value"), "o", registry=TINY)

def test_the_kind_of_attention_is_the_models_or_is_refused_in_one_sentence(tiny_files, tmp_path, monkeypatch):
    monkeypatch.chdir(tiny_files)
    done = run(tiny("sft", attn_implementation="eager"), tmp_path/"eager")
    assert done.model.config._attn_implementation == "eager"
    assert run(tiny("sft"), tmp_path/"usual").model.config._attn_implementation == "sdpa"
    with pytest.raises(ValueError, match="cannot be read with attn_implementation 'flash_attention_2': leave it out. transformers says: "):
        run(tiny("sft", attn_implementation="flash_attention_2"), tmp_path/"o")
    assert not (tmp_path/"o").exists()
    with pytest.raises(ValueError, match="attn_implementation must be one of"): tiny("sft", attn_implementation="fast")
    with pytest.raises(ValueError, match="read for language models"): run(tiny("reward", model="rm", attn_implementation="eager"), tmp_path/"o")

QUANTIZED = pytest.mark.skipif(not find_spec("bitsandbytes"), reason="needs bitsandbytes: pip install 'rlhf-nb[quantized]'")

@QUANTIZED
@pytest.mark.parametrize("load_in, kind, atol", [("4bit", "Linear4bit", 1e-5), ("8bit", "Linear8bitLt", .05)])       # int8 also rounds what a layer reads
@pytest.mark.parametrize("method", ["dpo", "reward", "grpo", "spin"])
def test_adapters_on_few_bits_are_saved_as_a_plain_folder_that_computes_the_same(method, load_in, kind, atol, caplog):
    stage = tiny(method, load_in=load_in, lora_r=2, lr=.1)
    assert plan_stage(stage, "o", registry=TINY)
    done = run(stage, "o")
    coded = [m for m in done.model.modules() if type(m).__name__ == kind]
    assert coded and {getattr(m.weight, "quant_type", "nf4") for m in coded} == {"nf4"} and not [x for x in caplog.records if "bitsandbytes" in x.name]
    ids = torch.randint(5, 20, (4, 9), generator=torch.Generator().manual_seed(0))
    everything = torch.ones_like(ids, dtype=torch.bool)
    x = Seqs(ids, everything, everything)
    def computed(model): return model(x) if method == "reward" else model(ids).logits
    saved = load_reward_model("o") if method == "reward" else load_lm("o")[0]
    assert kind not in {type(m).__name__ for m in saved.modules()} and "quantization" not in Path("o/config.json").read_text()
    with torch.no_grad(): now, again, before = computed(done.model), computed(saved), computed(load_reward_model("rm") if method == "reward" else load_lm("m")[0])
    assert (now - again).abs().max() < atol < .5 * (now - before).abs().max()

@QUANTIZED
@pytest.mark.parametrize("load_in", ["4bit", "8bit"])
def test_few_bits_and_their_optimiser_go_on_in_the_same_bits(tmp_path, load_in):
    last, config = [0], TrainConfig(n_steps=4, batch_size=4, lr=.01, optimizer=adamw_8bit)
    def loss(model, part):
        if last[0] and float(trainer.step) == last[0]: raise KeyboardInterrupt
        return sft_loss(model, part)
    def start(upto):
        torch.manual_seed(5)                                                      # of dropout
        lm, reader = load_lm("m", load_in=load_in)
        last[0], model = upto, add_lora(lm, 4096 // lm.config.hidden_size)        # smaller averages would stay in float32
        return make_trainer(model, config), load_demonstrations("chats.jsonl", reader)[0]
    def go(folder):
        watched = EvalConfig(lambda model: {"x": -sum(p.abs().sum().item() for p in model.parameters() if p.requires_grad)}, "x")
        fit(trainer, data, loss, torch.Generator().manual_seed(0), watched, folder, 1)
        return [p.detach().clone() for p in trainer.model.parameters()]
    trainer, data = start(0)
    whole, rows = go(tmp_path/"a"), trainer.log.rows
    assert torch.uint8 in {x.dtype for s in trainer.optimizer.state.values() for x in s.values() if isinstance(x, torch.Tensor)}
    trainer, data = start(2)
    with pytest.raises(KeyboardInterrupt): go(tmp_path/"b")
    trainer, data = start(0)
    again = go(tmp_path/"b")
    assert trainer.best_step > 2 and all(map(torch.equal, whole, again)) and [x.get("loss") for x in rows] == [x.get("loss") for x in trainer.log.rows]

@pytest.mark.parametrize("said, what", [(dict(load_in="4bit", lora_r=2), "load_in"), (dict(optimizer="adamw_8bit"), "optimizer adamw_8bit")])
def test_few_bits_without_their_package_are_refused_before_any_work(monkeypatch, said, what):
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    for call in (plan_stage, run):
        with pytest.raises(ValueError, match=f"^{what} needs the package bitsandbytes: pip install 'rlhf-nb.quantized.', or leave it out$"): call(tiny("sft", **said), "o", registry=TINY)
    assert not Path("o").exists()

@QUANTIZED
def test_a_model_that_cannot_be_had_in_few_bits_is_refused_in_one_sentence(monkeypatch):
    def refuse(*args, **more): raise ValueError("some modules are dispatched\non the disk")
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", refuse)
    with pytest.raises(ValueError, match="^'m' cannot be read with load_in: leave it out. transformers says: some modules are dispatched$"): load_lm("m", load_in="4bit")

def test_few_bits_are_refused_where_they_would_not_stay_few():
    with pytest.raises(ValueError, match="load_in '4bit' freezes the weights, and lora_r is 0: give lora_r as well"): tiny("sft", load_in="4bit")
    with pytest.raises(ValueError, match="load_in must be one of"): tiny("sft", load_in="2bit", lora_r=2)
    for method in ("ppo", "q"):
        with pytest.raises(ValueError, match=f"{method} copies the weights under a head of its own, whole"): plan_stage(tiny(method, load_in="8bit", lora_r=2), "o", registry=TINY)
    with pytest.raises(ValueError, match="read for language models"): run(tiny("reward", model="rm", load_in="4bit", lora_r=2), "o")

def test_what_fewer_bits_cost_is_what_was_measured():
    rows = json.loads((ROOT/"benchmarks/results/weight_formats.json").read_text())["rows"]
    [text] = ["".join(c["source"]) for c in json.loads((ROOT/"nbs/engine/base/models.ipynb").read_text("utf-8"))["cells"] if c["id"] == "fewer_bits_text"]
    def words(x, n): return f"{x:.{n}f}".replace("0.", ".", 1)
    names = "float32", "bfloat16 weights, computed in bfloat16", "bfloat16 weights, computed in float32", "8bit (bitsandbytes)", "4bit (bitsandbytes)"
    whole, half, stored, eight, four = [rows[k] for k in names]
    found = half, stored, eight, four
    kl = [(half, "mean", 4), (stored, "mean", 5), (eight, "mean", 4), (four, "mean", 3), (four, "standard_error", 3)]
    assert re.findall(r"\.\d{3,5}", text) == [words(row["kl"][k], n) for row, k, n in kl]
    assert words(whole["score"]["mean"], 2) in text
    for row in found:
        x = row["score_less_float32"]
        assert f"{'+' if x['mean'] > 0 else '−'}{words(abs(x['mean']), 2)} ± {words(x['standard_error'], 2)}" in text
