"Rollouts that runs keep: every response once, with the numbers that trained, through kills, limits and damage."
import json, math, pytest, torch
from pathlib import Path
from safetensors import safe_open
from safetensors.torch import save_file
from types import SimpleNamespace
from rlhf_nb.base.batches import Rollout
from rlhf_nb.base.folder import foreign_files
from rlhf_nb.data.rollouts import open_shard, read_run, save_rollout
from rlhf_nb.run import methods
from rlhf_nb.tokens import Seqs, make_seqs
from test_rollout_view import Words, a_rollout
from tiny_runs import rows_in, run, run_all, in_a_row, tiny

inside = pytest.mark.usefixtures("one_thread", "no_curves", "inside")

@pytest.mark.parametrize("side", ["right", "left"])
def test_a_shard_holds_the_numbers_by_hand(tmp_path, side):
    roll = a_rollout(side)
    a = torch.tensor([[2.], [-1.]]).expand(2, 5)
    keep = roll.seqs.response_mask[[2, 0]].clone()
    keep[1] = False                                                        # row 0 was cut and masked
    x = SimpleNamespace(logp=roll.logp[[2, 0]] - .5, advantage=a, mask=keep)
    save_rollout(tmp_path/"a.safetensors", 4, roll, x, torch.tensor([2, 0]), Words())
    kept = open_shard(tmp_path/"a.safetensors")
    assert [r["reward"] for r in kept.rows] == [1., -2., .5] and [r["KL"] for r in kept.rows] == [-.5, -.25, 1.5]
    assert [(r["step"], r["group"], r["length"], r["prompt_length"], r["ended"]) for r in kept.rows] == [
        (4, 0, 2, 2, 1), (4, 1, 1, 1, 0), (4, 0, 3, 2, 1)]
    assert (kept.rows[0]["prompt"], kept.rows[0]["response"]) == ("w7 w8", "w3")
    last, lost = kept.tokens_of(2), kept.tokens_of(0)
    assert (last.prompt, last.ids, last.texts) == ([7, 8], [5, 6, 1], ["w5", "w6", "w1"])
    assert last.channels == {"log-prob": [-1, -1, -3], "reference": [-2, -1, -3.5], "advantage": [2., 2., 2.],
                             "policy": [-1.5, -1.5, -3.5]}
    assert lost.channels["log-prob"] == [-1., -2.] and all(map(math.isnan, lost.channels["advantage"]))
    assert kept.rows[2]["advantage"] == 2. and math.isnan(kept.rows[0]["advantage"]) and math.isnan(kept.rows[1]["advantage"])

@inside
@pytest.mark.parametrize("method, n", [("ppo", 4), ("grpo", 24)])
def test_a_run_keeps_every_response_with_the_numbers_of_its_log(method, n):
    more = dict(dynamic_sampling=2) if method == "grpo" else {}            # 4 of 8 groups are learned from
    run(tiny(method, **more), "o")
    kept, log = read_run("o"), [r for r in rows_in("o/log.jsonl") if "iteration" in r]
    assert len(kept) == 2 * n and not foreign_files("o")
    for i, of_log in enumerate(log):
        rows = kept.rows[i * n:(i + 1) * n]
        assert {r["step"] for r in rows} == {i + 1} and all(len(kept.tokens_of(k).ids) == kept.rows[k]["length"] for k in range(2 * n))
        for name, key in (("reward", "reward"), ("KL", "kl")):
            assert sum(r[name] for r in rows) / n == pytest.approx(of_log.get(f"objective/{'scores' if key == 'reward' else key}", of_log.get(key)), abs=1e-5)
        if method == "grpo":
            known = [r for r in rows if not math.isnan(r["advantage"])]
            assert len({r["group"] for r in known}) <= 4 and len(rows) > len(known) > 0
            for g in {r["group"] for r in known}: assert sum(r["advantage"] for r in known if r["group"] == g) == pytest.approx(0, abs=1e-4)
    channels = kept.tokens_of(0).channels
    assert channels.keys() >= {"log-prob", "reference"} and ("value" in channels) == (method == "ppo")

@inside
@pytest.mark.parametrize("method", ["ppo", "grpo"])
def test_a_kill_loses_none_and_a_resume_doubles_none(method, monkeypatch):
    stage = tiny(method, n_iterations=4, save_every=2)
    run(stage, "whole")
    real = methods.keep_rollout
    class Killed(BaseException): pass
    def dies(folder, limit, step, *more): # after the third was written: the checkpoint is that of the second
        told = real(folder, limit, step, *more)
        if step == 3: raise Killed
        return told
    with monkeypatch.context() as patch:
        patch.setattr(methods, "keep_rollout", dies)
        with pytest.raises(Killed): run(stage, "o")
    assert len(read_run("o")) * 4 == len(read_run("whole")) * 3
    run(stage, "o")
    names = [p.name for p in sorted(Path("whole/rollouts").iterdir())]
    assert names == [f"{i:06d}.safetensors" for i in (1, 2, 3, 4)] == [p.name for p in sorted(Path("o/rollouts").iterdir())]
    for name in names: assert Path("o/rollouts", name).read_bytes() == Path("whole/rollouts", name).read_bytes()

@inside
def test_a_limit_holds_and_is_told_once():
    told = []
    run(tiny("grpo", n_iterations=4, rollouts_mb=1e-3), "o", tell=lambda x: told.append(str(x)))
    assert {r["step"] for r in read_run("o").rows} == {1}                   # one is more than a kilobyte
    assert [t for t in told if "rollouts_mb" in t] == ["rollouts: 0.001 MB are kept, those from step 2 on are not: raise rollouts_mb"]
    run(tiny("grpo", rollouts_mb=0.), "none", tell=lambda x: told.append(str(x)))
    assert not Path("none/rollouts").exists() and len([t for t in told if "rollouts_mb" in t]) == 1
    with pytest.raises(ValueError, match="keep them"): read_run("none")

@inside
def test_stages_of_a_pipeline_are_told_apart_and_a_new_run_takes_the_place():
    run_all(in_a_row(tiny("ppo"), tiny("grpo")), "o")
    assert [r["stage"] for r in read_run("o").rows] == ["01-ppo"] * 8 + ["02-grpo"] * 24
    assert "stage" not in read_run("o/02-grpo").rows[0]
    Path("o/01-ppo/rollouts/mine.txt").write_text("x")
    with pytest.raises(ValueError, match="mine.txt"): run_all(in_a_row(tiny("ppo")), "o", overwrite=True)
    Path("o/01-ppo/rollouts/mine.txt").unlink()
    run_all(in_a_row(tiny("grpo", seed=1)), "o", overwrite=True)
    assert len(read_run("o")) == 24

def test_a_damaged_file_and_another_one_are_refused(tmp_path):
    (tmp_path/"rollouts").mkdir()
    path = tmp_path/"rollouts/000001.safetensors"
    save_rollout(path, 1, a_rollout(), None, torch.tensor([]), Words())
    assert read_run(tmp_path).tokens_of(0).channels.keys() == {"log-prob", "reference"}
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    with pytest.raises(ValueError, match="000001.safetensors is damaged"): read_run(tmp_path)
    from safetensors.torch import save
    path.write_bytes(save({"a": torch.zeros(1)}))
    with pytest.raises(ValueError, match="no rollout of ours"): read_run(tmp_path)

@inside
def test_several_rewards_are_kept_by_their_names():
    Path("named_rewards.py").write_text("def long(prompts, responses): return [len(r) / 9 for r in responses]\n"
                              "def some(prompts, responses): return [None if len(r) % 2 else 1. for r in responses]\n")
    run(tiny("grpo", reward="named_rewards:long, .5*named_rewards:some"), "o")
    for r in read_run("o").rows:
        assert r["rewards/named_rewards:long"] == pytest.approx(len(r["response"]) / 9, abs=1e-6)
        other = r["rewards/named_rewards:some"]
        assert math.isnan(other) == bool(len(r["response"]) % 2)
        assert r["reward"] == pytest.approx(r["rewards/named_rewards:long"] + (0 if math.isnan(other) else .5 * other), abs=1e-6)

def test_a_step_that_is_written_again_counts_only_those_before_it(tmp_path):
    from rlhf_nb.base.folder import write_marker
    from rlhf_nb.data.rollouts import keep_rollout
    write_marker(tmp_path/"run.json", "rlhf-nb train", run="x", files=[])
    def keep(step, limit_mb, roll): return keep_rollout(tmp_path, limit_mb, step, roll, None, torch.tensor([]), Words())
    roll = a_rollout()
    for step in (1, 2, 3): assert keep(step, 1., roll) == ""
    size = (tmp_path/"rollouts/000001.safetensors").stat().st_size
    other = Rollout(roll.seqs, roll.group, roll.logp, roll.ref_logp, roll.reward + 1)
    assert keep(2, 1.5 * size / 2**20, other) == "" and [r["reward"] for r in read_run(tmp_path).rows[3:6]] == [2., -1., 1.5]
    assert keep(3, 1.5 * size / 2**20, other).startswith("rollouts: ") and read_run(tmp_path).rows[6]["reward"] == 1.
    assert keep(5, 1.5 * size / 2**20, other) == ""                          # said at the first that is left out, and never again

@inside
def test_distillation_keeps_its_answers_without_rewards():
    run(tiny("distill"), "o")
    kept = read_run("o")
    assert len({r["step"] for r in kept.rows}) == 2 and all(math.isnan(r["reward"]) and math.isnan(r["KL"]) for r in kept.rows if r["length"])
    assert all(len(kept.tokens_of(i).ids) == r["length"] for i, r in enumerate(kept.rows)) and not foreign_files("o")

def test_words_of_an_older_shard_are_read(tmp_path):
    save_rollout(tmp_path/"a.safetensors", 4, a_rollout("right"), None, None, Words())
    with safe_open(tmp_path/"a.safetensors", "pt") as file: tensors, facts = {k: file.get_tensor(k) for k in file.keys()}, file.metadata()
    now = json.loads(facts["rollout"])
    save_file(tensors, tmp_path/"old.safetensors", facts | {"rollout": json.dumps(now | {"words": json.loads(now["words"])})})
    assert open_shard(tmp_path/"old.safetensors").tokens_of(0) == open_shard(tmp_path/"a.safetensors").tokens_of(0)
