"The scripts behind the folds on a real model: on a tiny one they run whole, resume, and measure what they say."
import json, re, shutil, subprocess, sys, pytest, torch
from types import SimpleNamespace
from rlhf_nb.base.models import load_bundled
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.kl import kl_k1, kl_k3, response_kl
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.worlds.world_text import TRAIN
from test_project import ROOT

sys.path.insert(0, str(ROOT/"benchmarks"))
import bench_smollm2, bench_smollm2_road as road, bench_twins as twins

@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    "Folder of a tiny model, pairs of its world, and the scripts at a size for them."
    home, patch = tmp_path_factory.mktemp("twins"), pytest.MonkeyPatch()
    lm, tokenizer = load_bundled("sft")
    for part in (lm, tokenizer): part.save_pretrained(home/"model")
    rows = [dict(prompt=q.text, chosen=f"The {q.animal} is kind, I hope this helps.", rejected=f"I do not know the {q.animal}.",
                 reference=f"The {q.animal}") for q in TRAIN[:60]]
    (home/"pairs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    for name, n in dict(N_TEST=14, N_REWARD=12, N_DPO=8, N_EVAL=2).items(): patch.setattr(bench_smollm2, name, n)
    for name, x in dict(N_REWARD=12, N_PAIRS=6, STEPS=dict(n_steps=2, batch_size=2), FACTS={1: "The", 6: "lives"},
                        SCORER=["--eval-rows", 4, "--max-steps", 2],
                        PLACES=dict(tuning=range(3), held=range(3, 7))).items(): patch.setattr(road, name, x)
    def call(module, *words):
        patch.setattr(sys, "argv", ["bench", "--model", str(home/"model"), "--prefs", str(home/"pairs.jsonl"), "--out",
                                    str(home/"runs"), *words])
        module.main()
    yield SimpleNamespace(home=home, lm=lm, tokenizer=tokenizer, call=call, rows=rows)
    patch.undo()

def test_drift_is_the_packages_kl_and_is_exact(tiny):
    prompts = [twins.chat(tiny.tokenizer, q.text) for q in TRAIN[:5]]
    other, _ = load_bundled("base")
    seqs = generate_many(tiny.lm, prompts, tiny.tokenizer, SamplingParams(12), torch.Generator().manual_seed(0))[0]
    kl, k1, k3, n = road.drift(tiny.lm, other, seqs, 2)
    with torch.no_grad():
        y, z = logprobs(tiny.lm, seqs), logprobs(other, seqs)
        p, q = [m(seqs.ids, seqs.attention_mask.long()).logits for m in (tiny.lm, other)]
    for x, estimator in ((k1, kl_k1), (k3, kl_k3)):
        torch.testing.assert_close(x, response_kl(y, z, seqs.response_mask, estimator), atol=1e-4, rtol=1e-4)
    assert n.tolist() == seqs.response_mask.sum(1).tolist()
    for x in (p, q): x[..., tiny.tokenizer.pad_token_id] = -1e9
    p, q = p.log_softmax(-1), q.log_softmax(-1)
    by_hand = ((p.exp() * (p - q)).sum(-1)[:, :-1] * seqs.response_mask[:, 1:]).sum(1)     # what predicts each answer token
    torch.testing.assert_close(kl, by_hand, atol=1e-4, rtol=1e-4)
    assert road.drift(tiny.lm, tiny.lm, seqs, 5)[:3].abs().max() < 1e-5

def test_kinds_of_tokens(tiny):
    rows = [twins.chat(tiny.tokenizer, q.text) for q in TRAIN[:3]]
    from rlhf_nb.tokens import make_seqs
    seqs = make_seqs(rows, [[7, 8], [9], [7, 8, 9]], tiny.tokenizer.pad_token_id)
    kinds = twins.kinds_of(tiny.tokenizer, seqs, [q.text for q in TRAIN[:3]])
    for ids, mask, q in zip(seqs.ids, kinds["user's words"], TRAIN): assert tiny.tokenizer.decode(ids[mask]).strip() == q.text
    total = sum(m.int() for m in kinds.values())
    assert torch.equal(total.bool(), seqs.attention_mask & (torch.arange(seqs.ids.shape[1]) > 0)) and total.max() == 1
    assert torch.equal(kinds["answer"], seqs.response_mask)

def test_verdicts_by_hand():
    nan = float("nan")
    first = torch.tensor([[1., 1., 0., nan], [1., 0., 1., 1.]])     # 1: what stands first; the politer one is first in row 0
    x = twins.verdicts(first, torch.stack([first[0], 1 - first[1]]))
    assert (x["asked"], x["unread"]) == (8, 1) and x["one_order"]["mean"] == pytest.approx(2 / 3)
    assert x["both_orders"]["mean"] == pytest.approx((.5 + 1 + 0) / 3) and x["by_place"]["mean"] == pytest.approx(1 / 3)
    assert x["named_first"]["mean"] == pytest.approx((1 + .5 + .5 + 1) / 4) and x["named_first"]["n"] == 4
    assert road.shared("The fox is Red.", "red, the end") == pytest.approx(2 / 3) and road.shared("x", "") == 1

@pytest.mark.filterwarnings("ignore::UserWarning")
def test_both_scripts_run_whole_and_not_twice(tiny, capsys):
    rows, saved = tiny.home/"road.jsonl", tiny.home/"twins.json"
    small = ["--tokens", "6", "--home", str(rows)]
    tiny.call(road, "--seeds", "1", "--methods", "DPO", *small)
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [(r["name"], r["seed"], r["settings"]["prompts"]) for r in found] == [("fetched", 0, "held"), ("DPO", 1, "held")]
    fetched, dpo = [r["found"] for r in found]
    assert all(len(dpo[k]) == 4 for k in ("kl", "k1", "words T 0", "head T 1", "head T 1 won", "answers T 0"))
    assert "kl" not in fetched and len(dpo["right"]) == 1 and min(dpo["kl"]) >= 0
    for old, new, won, *both in zip(fetched["head T 1"], dpo["head T 1"], dpo["head T 1 won"], fetched["answers T 1"], dpo["answers T 1"]):
        assert won == (.5 if both[0] == both[1] else float(new > old))
    assert len(dpo["log"]["rewards/chosen"]) == len(dpo["log"]["loss"]) == 2
    tiny.call(road, "--seeds", "1", "--methods", "random", "best", "first", *small)
    random, best, first = [r["found"] for r in map(json.loads, rows.read_text().splitlines()[2:])]
    def lines(name): return [json.loads(x) for x in (tiny.home/f"runs/{name}.jsonl").read_text().splitlines()]
    scorer, judged, asked, mine = ({r["prompt"] for r in lines(k)} for k in ("scorer", "reward", "test", "picks"))
    assert not scorer & (judged | asked | mine) and not mine & (judged | asked) and len(mine) == len(lines("picks")) == 6
    assert [r["response"] for r in lines("random_1")] == [r["answers"][1] for r in lines("picks")] and len(random["kl"]) == 4
    for row, x, y in zip(lines("held_1_best"), best["answers"], first["answers"], strict=True):
        assert x == row["answers"][max(range(8), key=row["scores"].__getitem__)] and y == row["answers"][0]
    for x in (best, first):
        for t, old, new, won, *both in zip("0000", fetched["words T 0"], x["words"], x["words T 0 won"], fetched["answers T 0"], x["answers"]):
            assert won == (.5 if both[0] == both[1] else (new > old) + .5 * (new == old))
    [of_all] = best["right_of_all"]
    assert of_all == sum("lives" in y for y in row["answers"]) / 8 and best["right"] == [float("lives" in row["response"])]
    tiny.call(twins, "--json", str(saved), "--pairs", "5", "--reply", "4")
    told = json.loads(saved.read_text())
    assert set(told) == set(twins.PARTS) and told["length"]["longer"] == dict(mean=1., standard_error=0., n=60)
    assert all(len(x["answers"]) == len(x["reward"]) == len(x["words"]) == 4 for x in told["answers"])
    losses = told["sft"]["losses"]["answer"]
    assert losses["less"]["mean"] == pytest.approx(losses["after SFT"]["mean"] - losses["fetched"]["mean"])
    before = rows.read_text(), saved.read_text()
    capsys.readouterr()
    tiny.call(road, "--seeds", "1", "--methods", "DPO", *small)
    tiny.call(twins, "--json", str(saved))
    assert (rows.read_text(), saved.read_text()) == before and "$ rlhf-nb" not in capsys.readouterr().out

@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_one_command_makes_every_file_that_the_folds_read(tmp_path):
    (tmp_path/"pairs.jsonl").write_text("{}\n")
    done = subprocess.run(["make", "-n", "twins", "MODEL=smollm2", f"PREFS={tmp_path}/pairs.jsonl"], cwd=ROOT, capture_output=True, text=True)
    lines = re.findall(r"python (benchmarks/\S+\.py) (.*)", done.stdout)
    for script, words in lines:
        known = set(re.findall(r'add_argument\("(--[a-z]+)"', (ROOT/script).read_text("utf-8")))
        assert {*re.findall(r"--\w+", words)} <= known, script
    written = {name.split("/")[-1] for _, words in lines for name in re.findall(r"--(?:json|home) (\S+)", words)}
    cells = [c for n in "01 04 05 07 10 13".split() for c in json.loads(next((ROOT/"nbs").glob(f"{n}_*.ipynb")).read_text("utf-8"))["cells"]
             if c["id"] == "twin"]
    read = {name for c in cells for name in re.findall(r"results/(\w+\.jsonl?)", "".join(c["source"]))}
    assert len(cells) == 6 and read == written == {"twins.json", "smollm2.json", "smollm2_road.jsonl"}
