"Chapter 19: what it claims about SmolLM2 stands in nbs/results/smollm2.json and in the chapter's outputs."
import importlib.util, json, re, pytest, torch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAVED = json.loads((ROOT/"nbs/results/smollm2.json").read_text("utf-8"))

@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_smollm2", ROOT/"benchmarks/bench_smollm2.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def cells(): return {c["id"]: c for c in json.loads((ROOT/"nbs/19_your_model.ipynb").read_text("utf-8"))["cells"]}
def output(cell): return "".join(line for o in cell["outputs"] for line in o.get("text", []))

def surely_above(x, y, errors=2):
    gap = x["accuracy"] - y["accuracy"]
    return gap > errors * (x["standard_error"]**2 + y["standard_error"]**2)**.5

def gain(x, y): return (x["mean"] - y["mean"]) / (x["standard_error"]**2 + y["standard_error"]**2)**.5   # in standard errors

def test_the_parts_share_no_prompt(bench, tmp_path):
    rows = [dict(prompt=f"p{i // 2}", chosen=f"a{i}", rejected=f"a{i}" if i % 50 == 0 else "b") for i in range(1600)]
    prefs = tmp_path/"prefs.jsonl"
    prefs.write_text("".join(json.dumps(r) + "\n" for r in rows))
    class A: pass
    a = A()
    a.prefs, a.out = prefs, tmp_path
    parts = bench.split(a)
    prompts = {name: {r["prompt"] for r in part} for name, part in parts.items()}
    assert not prompts["test"] & prompts["reward"] and not prompts["test"] & prompts["dpo"]
    assert not prompts["reward"] & prompts["dpo"]
    for name, n in ("test", 180), ("reward", 340), ("dpo", 212):
        assert n <= len(parts[name]) <= n + 1
        assert [json.loads(x) for x in (tmp_path/f"{name}.jsonl").read_text().splitlines()] == parts[name]
        assert all(r["chosen"] != r["rejected"] for r in parts[name])
    assert bench.split(a) == parts

def test_the_linear_model_finds_the_direction_and_predicts_chance_from_noise(bench):
    g = torch.Generator().manual_seed(0)
    true, x = torch.randn(20, generator=g), torch.randn(400, 20, generator=g)
    x = x * (x @ true).sign()[:, None]                      # sigma(w . x) is 1 on every row
    w = bench.choose_linear(x[:200])
    assert torch.cosine_similarity(w, true, 0) > .9 and ((x[200:] @ w) > 0).float().mean() > .9
    tight, loose = bench.fit_linear(x[:200], 10.), bench.fit_linear(x[:200], 1e-3)
    assert tight.norm() < loose.norm() / 5                  # the ridge shrinks
    # gradient at the optimum: mean of -sigma(-w . x) x plus l2 w is 0
    w, l2 = bench.fit_linear(x[:200], .1), .1
    gradient = -(torch.sigmoid(-(x[:200] @ w))[:, None] * x[:200]).mean(0) + l2 * w
    assert gradient.abs().max() < 1e-3
    noise = torch.randn(600, 20, generator=g)
    assert .4 < ((noise[300:] @ bench.choose_linear(noise[:300])) > 0).float().mean() < .6

def test_last_states_are_those_that_a_head_reads(bench):
    from rlhf_nb.base.models import load_bundled
    from rlhf_nb.run.start import add_scalar_head
    from rlhf_nb.reward import score_seqs
    from rlhf_nb.tokens import make_seqs
    lm, _ = load_bundled("sft")
    seqs = make_seqs([[5, 6], [7], [8, 9, 10]], [[11, 12, 13], [14], [15, 16]], 0)
    head = add_scalar_head(lm.eval())
    with torch.no_grad():
        assert torch.allclose(head.score(bench.last_states(lm, seqs, 2))[:, 0], score_seqs(head, seqs), atol=1e-5)

def test_standard_errors_are_of_the_accuracies():
    reward = SAVED["reward"]
    for x in (*(reward[k] for k in ("smollm2", "head", "tiny", "words", "longer")), SAVED["fitted"], SAVED["dpo"], SAVED["sft"]):
        p, n = x["accuracy"], x["n"]
        assert n in (100, 180) and x["standard_error"] == pytest.approx((p * (1 - p) / n)**.5, abs=1e-6)
        assert p * n == pytest.approx(round(2 * p * n) / 2, abs=1e-4)           # a count of pairs, ties half
    assert {r["pairs"] for r in reward["head"]["curve"]} == {40, 80, 160, 320}

def test_what_the_chapter_says_about_the_reward_models():
    reward, fitted = SAVED["reward"], SAVED["fitted"]
    assert abs(reward["longer"]["accuracy"] - .5) < 3 * reward["longer"]["standard_error"]  # length says almost nothing
    random_head, sides = reward["smollm2"], lambda x: (x["length"]["accuracy_shorter"] - x["length"]["accuracy_longer"])
    assert sides(random_head) > .5 and random_head["length"]["correlation"] < -.3           # the shorter answer is preferred
    assert all(sides(x) < .12 and abs(x["length"]["correlation"]) < .1 for x in (fitted, reward["head"], reward["words"], reward["tiny"]))
    assert surely_above(fitted, random_head) and surely_above(reward["words"], random_head)
    assert not surely_above(reward["words"], fitted) and reward["words"]["accuracy"] > fitted["accuracy"]
    assert random_head["steps"] == 20 and fitted["steps"] == 12
    assert {"indeed", "kindly"} <= set(reward["top_words"]["chosen"]) and {"obviously", "stupid"} <= set(reward["top_words"]["rejected"])
    assert all(.85 < x["eval_accuracy"] < .96 and x["n_eval"] == 100 for x in reward["tiny_all"]) and len(reward["tiny_all"]) == 3

def test_what_the_chapter_says_about_dpo():
    dpo, sft = SAVED["dpo"], SAVED["sft"]
    assert surely_above(dpo, sft) and dpo["steps"] == sft["steps"] == 12
    assert dpo["chosen"]["mean"] < -3 * dpo["chosen"]["standard_error"]        # both sides less probable
    assert dpo["rejected"]["mean"] < dpo["chosen"]["mean"] and sft["rejected"]["mean"] > 3 * sft["rejected"]["standard_error"]
    found = SAVED["answers"]["found"]
    for t in ("0", "0.5", "1"):                                                 # word counts see it at each temperature, imitation does not
        rows = {name: found[f"{name}, T {t}"] for name in ("fetched", "SFT", "DPO")}
        assert all(gain(rows["DPO"]["words"], rows[name]["words"]) > 5 for name in ("fetched", "SFT"))
        assert abs(gain(rows["SFT"]["words"], rows["fetched"]["words"])) < 2
        assert (gain(rows["DPO"]["score"], rows["fetched"]["score"]) > 2) == (t != "0")     # the reward model: not greedily
    assert abs(gain(found["DPO, T 1"]["tokens"], found["fetched, T 1"]["tokens"])) < 2      # as long as before
    assert all(found[f"{name}, T 1"]["cut"]["mean"] > .5 for name in ("fetched", "DPO"))    # and most of both are cut
    assert found["DPO, T 1"]["kl"]["mean"] > 10 > found["SFT, T 1"]["kl"]["mean"]
    assert len(SAVED["answers"]["prompts"]) == 40
    assert found.keys() == {f"{name}, T {t}" for name in ("fetched", "SFT", "DPO") for t in ("0", "0.5", "1")}
    assert all(len(x["answers"]) == 40 for x in found.values())

def test_the_tables_show_the_saved_numbers():
    shown = {name: output(cell) for name, cell in cells().items() if cell["cell_type"] == "code"}
    def stands(cell, x):
        text = f"{x['accuracy']:.2f} ± {x['standard_error']:.2f}"
        assert text in shown[cell], f"{cell} does not show {text}: run the chapter again"
    for x in (SAVED["reward"][k] for k in ("smollm2", "head", "tiny", "words", "longer")): stands("polite", x)
    stands("polite", SAVED["fitted"])
    for name in ("dpo", "sft"): stands("dpo_margins", SAVED[name])
    for x in SAVED["grpo"]["found"].values(): stands("real_table", x)
    for x in SAVED["answers"]["found"].values():
        for judge in ("score", "words"): assert f"{x[judge]['mean']:.1f} ± {x[judge]['standard_error']:.1f}" in shown["dpo_table"]

def test_the_text_names_numbers_of_the_outputs():
    text = {name: "".join(c["source"]) for name, c in cells().items()}
    shown = {name: output(c) for name, c in cells().items() if c["cell_type"] == "code"}
    for here, there in dict(polite_read="polite", dpo_margins_read="dpo_margins", dpo_read="dpo_table").items():
        for number in re.findall(r"(?<![\d.])-?\.\d\d\b|(?<![\d.])\d+\.\d+\b", re.sub(r"\(http[^)]*\)|\[\d{4}\.\d+\]|√\([^)]*\)", "", text[here])):
            assert any(form in shown[there] for form in (number, number.replace(".", "0.", 1))), f"{here}: {number} is not in {there}"

def test_right_answers_are_counted_as_the_chapter_says():
    found, scope = SAVED["answers"]["found"], {}
    exec("".join(cells()["dpo_right"]["source"]).split("for name")[0], scope)
    prompts = SAVED["answers"]["prompts"]
    def right(name, row): return sum(bool(re.search(scope["facts"][row], found[f"{name}, T {t}"]["answers"][row])) for t in ("0", "0.5", "1"))
    counts = {name: torch.tensor([float(right(name, row)) for row in scope["facts"]]) for name in ("fetched", "SFT", "DPO")}
    assert {name: int(x.sum()) for name, x in counts.items()} == dict(fetched=15, SFT=18, DPO=6)
    lost = counts["fetched"] - counts["DPO"]
    assert len(lost) == 15 and 1.8 < lost.mean() / (lost.std() / 15**.5) < 2.2              # about two standard errors
    for row, word in {36: "China", 6: "resistance", 20: "Turkey", 23: "peroxide", 39: "acetone", 14: "800 grams"}.items():
        assert word in prompts[row]
    assert "Siemens" in found["DPO, T 0"]["answers"][6] and "Beijing" not in found["DPO, T 0"]["answers"][36]
    for name, n in dict(fetched=15, SFT=18, DPO=6).items():
        line = next(x for x in output(cells()["dpo_right"]).splitlines() if x.startswith(name))
        assert int(line.split()[1]) == n
    nameless = scope["nameless"]                          # a reading, of misses only
    assert {name: sum(map(len, x)) for name, x in nameless.items()} == dict(fetched=7, SFT=0, DPO=18)
    for name, sets in nameless.items():
        for t, rows in zip(("0", "0.5", "1"), sets):
            for row in rows: assert not re.search(scope["facts"][row], found[f"{name}, T {t}"]["answers"][row])

def test_the_memory_table_is_of_plan_memory():
    from transformers import LlamaConfig
    from rlhf_nb.run.memory_plan import plan_memory
    rows = {(x[:5].strip(), x[5:12].strip()): list(map(float, x[12:].split())) for x in output(cells()["memory"]).splitlines()[1:] if x}
    assert rows.keys() == {(n, how) for n in ("135M", "1B", "7B", "70B") for how in ("full", "LoRA 16")}
    for x in rows.values(): assert sum(x[:-1]) == pytest.approx(x[-1], abs=.41)             # + .1 GB of logits, rounding
    config = LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
                         num_key_value_heads=3, tie_word_embeddings=True)
    plan = plan_memory(config, 4, 1024, 0, True, True, n_frozen=1, critic=True)
    assert rows["135M", "full"][-1] == pytest.approx(plan.total / 1e9, abs=.051)
    assert rows["135M", "full"][:3] == pytest.approx([x * plan.n_weights / 1e9 for x in (6, 4, 8)], abs=.051)
    assert rows["1B", "full"][-1] < 80 < rows["7B", "full"][-1] and rows["7B", "LoRA 16"][-1] < 40
