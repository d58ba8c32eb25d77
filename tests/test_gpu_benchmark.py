"benchmarks/gpu.py: every line runs on a tiny model, and without a GPU it says so."
import importlib.util, json, pytest, torch
from pathlib import Path

@pytest.fixture(scope="module")
def gpu():
    spec = importlib.util.spec_from_file_location("gpu_benchmark", Path(__file__).resolve().parents[1]/"benchmarks/gpu.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def test_the_tiny_form_runs_every_part(gpu, tmp_path, capsys):
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    with torch.random.fork_rng(): assert gpu.main(["--device", "cpu", "--tiny", "--json", str(tmp_path/"gpu.json"),
                                                   "--peak-tflops", "0.1", "--peak-gb-s", "10"]) == 0
    assert torch.equal(torch.random.get_rng_state(), before)
    found = json.loads((tmp_path/"gpu.json").read_text())
    assert found.keys() == {"device", "torch", "tiny", "peak_tflops", "peak_gb_s", "precision", "dpo", "ppo", "decoding"}
    assert 0 < found["precision"]["autocast"]["mean"] < found["precision"]["autocast"]["largest"] < .1
    dpo, ppo = found["dpo"], found["ppo"]
    n = sum(p.numel() for p in gpu.policy(gpu.sizes(True), torch.device("cpu")).parameters())
    assert dpo["share_of_peak"] == pytest.approx(6 * n * dpo["tokens_per_second"] / 1e11, rel=1e-6)
    assert 0 < ppo["share_of_peak_with_rollout"] < ppo["share_of_peak"] and ppo["estimated_gb"] > dpo["estimated_gb"]
    assert found["decoding"].keys() == {"1 rows", "4 rows"}
    one = found["decoding"]["1 rows"]
    assert one["share_of_bandwidth"] == pytest.approx(2 * n * one["steps_per_second"] / 1e10, rel=1e-6)
    assert "share_of_peak" in capsys.readouterr().out

@pytest.mark.parametrize("words, said", [([], "needs a CUDA device"), (["--device", "cpu"], "add --tiny")])
def test_it_says_what_it_needs(gpu, words, said, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main(words) == 2 and said in capsys.readouterr().err
