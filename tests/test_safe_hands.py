"What a run rests on is written down and compared; a reward lives in a process of its own; an end without a traceback."
import json, os, shutil, subprocess, sys, pytest
from pathlib import Path
from rlhf_nb.base.learning import TrainConfig, fit, make_trainer
from rlhf_nb.base.models import load_lm
from rlhf_nb.base.sampling import SamplingParams, generate
from rlhf_nb.base.checkpoints import restore_checkpoint
from rlhf_nb.base.folder import read_marker, write_marker
from rlhf_nb.book.command import main
from rlhf_nb.data.rollouts import read_rollouts
from rlhf_nb.data.text import load_pairs
from rlhf_nb.run import pipeline
from rlhf_nb.run.judge_command import read_labels
from rlhf_nb.run.reward_process import RewardProcess
from rlhf_nb.run.verify import verify_run
from rlhf_nb.sft import sft_loss
from rlhf_nb.trainers.ppo_trainer import RewardError
from test_pipeline import begin
from tiny_runs import rows_in, run, run_all, tiny, weights
from torch import Generator

pytestmark = pytest.mark.usefixtures("one_thread", "no_curves", "inside")
POSIX = pytest.mark.skipif(os.name == "nt", reason="POSIX")

# ---- rewards in a process of their own
MOODY = "import os, sys\ncalls = 0\ndef short(prompts, responses):\n    global calls\n    calls += 1\n    if {fails}: {fault}\n    return [-len(r) / 10 for r in responses]\n"

@POSIX
@pytest.mark.parametrize("fault, words", [("os.kill(os.getpid(), 11)", "moody:short ended its process by SIGSEGV; the first row it cannot take is "),
    ("exec('while True: pass')", "moody:short gave no answer within 2 seconds: mend it, or raise reward_timeout; the first row"),
    ("sys.exit(0)", "raised SystemExit: 0, line 6; the first row")])
def test_a_reward_that_takes_its_process_along_is_a_sentence_and_the_run_goes_on(fault, words):
    "The weights are those of a run in this process whose reward never failed."
    def write(fails): Path("moody.py").write_text(MOODY.format(fails=fails, fault=fault))
    def stage(**more): return tiny("grpo", n_iterations=2, eval_every=0, eval_rows=0, **more)
    Path("calm.py").write_text(MOODY.format(fails="False", fault="pass"))
    run(stage(reward="calm:short"), "whole")
    write("calls >= 2")
    with pytest.raises(RewardError, match=words) as e: run(stage(reward="moody:short", reward_timeout=2.), "o")
    assert "mend moody:short, and the same command goes on" in str(e.value)
    write("False")
    run(stage(reward="moody:short", reward_timeout=60.), "o")
    assert weights("o") == weights("whole")

def test_what_a_reward_may_do_there_and_what_it_gives(capfd):
    Path("odd.py").write_text("""
import os, torch
print("at import")
def many(completions, prompts, level=0, **more):
    print("printed"); os.chdir("/"); os.environ["X_ODD"] = "1"
    return torch.tensor([1.5, float("nan")])
def dicts(prompts, responses): return dict(a=1)
def digits(prompts, responses): return ["1.5"]
class Mute(Exception):
    def __str__(self): raise KeyError("no words")
def mute(prompts, responses): raise Mute
def long(prompts, responses): raise ValueError("x" * 10**6)
def closes(prompts, responses): os.closerange(3, 99)
def words(prompts, responses): return ["a", 1]
def forks(prompts, responses): return [float(os.fork() > 0)] * len(responses)
""")
    many, here = RewardProcess("odd:many", 60.), os.getcwd()
    assert str(many.__signature__) == "(completions, prompts, level=None, **more)" and many.__name__ == "odd:many"
    got = many(["a", "b"], ["c", "d"])
    assert got[0] == 1.5 and got[1] != got[1] and os.getcwd() == here and "X_ODD" not in os.environ
    with pytest.raises(ValueError, match="odd:dicts must return a list with one number per response, got dict"): RewardProcess("odd:dicts", 60.)(["a"], ["b"])
    assert RewardProcess("odd:words", 60.)(["a"] * 2, ["b"] * 2) == ["'a'", 1.]
    assert RewardProcess("odd:digits", 60.)(["a"], ["b"]) == ["'1.5'"]                # as in this process: no number
    for name, words in (("mute", "odd:mute raised odd.Mute: <exception str.. failed>, line"), ("long", "odd:long raised ValueError: x{1900,2000}, line"),
                        ("closes", "odd:closes ended its process with status 0$")):
        with pytest.raises(ValueError, match=words): RewardProcess(f"odd:{name}", 60.)(["a"], ["b"])
    assert "Traceback" not in capfd.readouterr().err
    if os.name != "nt":
        forks = RewardProcess("odd:forks", 60.)
        assert [forks(["a"], ["b"]) for _ in range(3)] == [[1.]] * 3
    with pytest.raises(ValueError, match="no function 'wany', the nearest is 'many'"): RewardProcess("odd:wany", 60.)
    with pytest.raises(ValueError, match="no signature found"): RewardProcess("builtins:max", 60.)
    Path("stops.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(ValueError, match="stops:f: KeyboardInterrupt"): RewardProcess("stops:f", 60.)
    assert "Traceback" not in capfd.readouterr().err

def test_the_process_ends_with_the_one_that_asked():
    Path("pid.py").write_text("import os\ndef f(prompts, responses): return [float(os.getpid())]\n")
    fn = RewardProcess("pid:f", 60.)
    pid = int(fn(["a"], ["b"])[0])
    assert pid != os.getpid() and int(fn(["a"], ["b"])[0]) == pid             # one for all calls
    child = fn.child
    del fn
    assert child.wait(60) is not None

def test_the_shell_gives_a_function_its_process_unless_it_is_told_otherwise(capfd):
    Path("where.py").write_text("import os\ndef f(prompts, responses): open('pids', 'a').write(f'{os.getpid()}\\n'); return [0.] * len(responses)\n")
    words = "train grpo pairs.jsonl --model m --reward where:f --n-iterations 1 --n-prompts 2 --max-new-tokens 3 --eval-rows 0".split()
    assert main([*words, "-o", "a"]) == 0 and str(os.getpid()) not in Path("pids").read_text().split()
    assert json.loads(Path("a/run.json").read_text())["stage"].count("reward_timeout = 60.0") == 1
    assert main([*words, "-o", "b", "--reward-timeout", "0"]) == 0 and str(os.getpid()) in Path("pids").read_text().split()
    assert main([*words, "-o", "c", "--reward-timeout", "-3"]) == 2 and "reward_timeout must be seconds" in capfd.readouterr().err

# ---- what a run rests on
def test_a_changed_version_or_file_is_named_and_may_be_accepted(monkeypatch):
    Path("inner.py").write_text("SCALE = 10\n")
    Path("outer.py").write_text("import inner\ndef short(prompts, responses): return [-len(r) / inner.SCALE for r in responses]\n")
    def stage(**more): return tiny("grpo", reward="outer:short", n_iterations=1, eval_every=0, eval_rows=0, **more)
    begin(lambda: run(stage(), "o"), "train_grpo")
    real = pipeline.package_versions()
    monkeypatch.setattr(pipeline, "package_versions", lambda: real | dict(torch="0.1"))
    with pytest.raises(ValueError, match="version torch was .*, got '0.1'"): run(stage(), "o")
    Path("inner.py").write_text("SCALE = 20\n")
    with pytest.raises(ValueError, match="inner.py is not the file .*; or --accept-changed inner.py"): run(stage(), "o")
    with pytest.raises(ValueError, match="accept_changed: 'n_prompts' cannot be accepted; .*inner.py"): run(stage(accept_changed="n_prompts"), "o")
    with pytest.raises(ValueError, match="version torch was"): run(stage(accept_changed="inner.py"), "o")
    run(stage(accept_changed="inner.py, version torch"), "o")
    marker = json.loads(Path("o/run.json").read_text())
    assert [x["name"] for x in marker["accepted"]] == ["inner.py", "version torch"] and marker["accepted"][1]["now"] == "0.1"
    card = Path("o/README.md").read_text()
    assert "accepted on the way: inner.py" in card and "| outer.py |" in card and "| computed_on |" in card

def test_verify_names_what_is_damaged_missing_foreign_and_changed(capfd):
    run(tiny("sft"), "o")
    assert verify_run("o") == ([], [])
    assert main(["verify", "o"]) == 0 and capfd.readouterr().out == "whole: every file is as it was written\nnothing has changed since\n"
    weights = Path("o/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    Path("o/log.jsonl").unlink(); Path("o/mine.txt").write_text("mine")
    Path("pairs.jsonl").write_text(Path("pairs.jsonl").read_text() + "\n")
    broken, changed = verify_run("o")
    assert broken == ["model.safetensors is not what was written", "log.jsonl is missing", "mine.txt is no file of this run"]
    assert len(changed) == 1 and changed[0].startswith("data_sha256 was ")
    assert main(["verify", "o"]) == 1
    assert main(["verify", "m"]) == 2 and "so it is no run of ours" in capfd.readouterr().err

def test_verify_reads_a_pipeline_and_what_is_not_finished():
    run_all([tiny("sft"), tiny("dpo", model="")], "p")
    assert verify_run("p") == ([], [])
    Path("p/02-dpo/README.md").write_text("other")
    assert verify_run("p")[0] == ["02-dpo: README.md is not what was written"]
    begin(lambda: run(tiny("sft"), "o"))
    assert "it is not finished: the command of the run goes on" in verify_run("o")[0]

# ---- two at once, and ends
def test_of_two_that_train_in_one_folder_one_goes_on():
    lm, tok = load_lm("m")
    data = load_pairs("pairs.jsonl", tok, 64)[0].chosen
    def trained(n): return make_trainer(load_lm("m")[0], TrainConfig(n_steps=n, batch_size=8))
    def start(trainer): return fit(trainer, data, sft_loss, Generator().manual_seed(0), None, "ck", 1)
    start(trained(2))
    a, b = trained(4), trained(4)
    for x in (a, b): x.may_change = ("train_config.n_steps",)
    for x in (a, b): restore_checkpoint("ck", x, Generator().manual_seed(0)); x.stop_reason = ""
    start(a)
    with pytest.raises(ValueError, match="neither wrote nor restored.*if another process trains in this one"): start(b)
    assert a.step == 4

def test_a_closed_output_and_a_link_to_itself_are_no_traceback():
    os.symlink("loop", "loop")
    for words, status in (("paths >&-", 0), ("copy loop", 2), ("show pairs.jsonl -o no/x --columns prompt=prompt,response=chosen", 2)):
        done = subprocess.run(f"{sys.executable} -m rlhf_nb {words}", shell=True, capture_output=True, text=True)
        assert done.returncode == status and "Traceback" not in done.stderr and "Errno" not in done.stderr, (words, done.stderr)

def test_files_that_other_programs_wrote_are_refused_by_every_command_in_words(capfd):
    Path("u16.toml").write_bytes("data = 'x'".encode("utf-16"))
    for words in (["sweep", "dpo", "--settings", "u16.toml", "-o", "s", "--dry-run"], ["export", "u16.toml", "-o", "e"]):
        assert main(words) == 2 and "u16.toml: not UTF-8: byte 0xff at column 1; save the file" in capfd.readouterr().err
    Path("run").mkdir(exist_ok=True)
    Path("run/run.json").write_text("[1")
    assert main(["export", "run", "-o", "e"]) == 2 and "run.json is damaged or missing (broken JSON" in capfd.readouterr().err
    for row in ('{"prompt": "a", "response": "b"}', '{"prompt": "a", "tie": 3}', '{"prompt": ["a"], "chosen": "x", "rejected": "y"}', "{half"):
        Path("l.jsonl").write_text(row + "\n")
        with pytest.raises(ValueError, match="l.jsonl, line 1: "): read_labels("l.jsonl", [("a", "x", "y")])

def test_odd_inputs_that_ended_in_a_traceback_silently_or_over_a_users_file(inside, capfd):
    Path("deep.toml").write_text("x = " + "[" * 5000)
    Path("mine.html").write_text("<!doctype html><p>years of work")
    Path("rows.jsonl").write_text('{"prompt": "a", "response": "b", "reward": 1}\n')
    for kind, fault in (("key", lambda f: (f/"tokenizer.json").write_text("{}")), ("pickle", lambda f: [
            (f/"model.safetensors").unlink(), (f/"pytorch_model.bin").write_bytes(b"\x80\x04no")])):
        shutil.copytree("m", kind); fault(Path(kind))
    for words, error in (
        ("sweep dpo --settings deep.toml -o s --dry-run", "no TOML: nested too deep"), ("prove rows.jsonl:f --kind kl", "rows.jsonl is no file of Python"),
        ("train sft pairs.jsonl -o x --model key", "no tokenizer could be read from 'key'"), ("train sft pairs.jsonl -o x --model pickle", "no causal language model could be read"),
        ("show rows.jsonl -o mine.html", "rlhf-nb show did not write it as it is"), ("show rows.jsonl -o p.html --sort nothing", "'nothing'"),
        ("train grpo pairs.jsonl -o x --model m --reward nan*tiny_rules:even", "a weight must be finite"), ("compare nowhere m", "nowhere/run.json is damaged or missing (No such file"),
        ("train grpo pairs.jsonl -o x --model m --reward tiny_rules:even --n-prompts 1000000000", "responses in a rollout, of 10**6"),
        ("best-of-n m rm pairs.jsonl -n 1000000000", "num_generations is 100,000 at most")):
        assert main(words.split()) == 2, words
        assert error in (said := capfd.readouterr().err) and "Errno" not in said, said
    assert Path("mine.html").read_text() == "<!doctype html><p>years of work"
    for _ in range(2): assert main("show rows.jsonl -o p.html".split()) == 0            # its own page is written anew
    Path("p").mkdir(); Path("p/run.json").write_text("{}")
    with pytest.raises(ValueError, match="p is a run: leave columns out"): read_rollouts("p", "response=text")
    lm, tok = load_lm("m")
    with pytest.raises(ValueError, match="token id -1 in a model"): generate(lm, [[-1]], tok, SamplingParams(2), Generator())
    with pytest.raises(TypeError, match="sampling must be SamplingParams"): generate(lm, [[5]], tok, 3, Generator())

def test_what_a_file_says_is_no_order_to_the_terminal(inside, capfd):
    Path("a.jsonl").write_text('{"prompt": "a", "resp\\u001b[2J\\u202eonse": "x"}\n')
    assert main("show a.jsonl -o p.html".split()) == 2
    assert "only prompt, resp\\x1b[2J\\u202eonse: columns=" in capfd.readouterr().err
    run(tiny("sft"), "o")
    Path("o/\x1b[2J.txt").write_text("mine")
    assert main(["verify", "o"]) == 1 and "\\x1b[2J.txt is no file of this run\n" in capfd.readouterr().out
    Path("u32.jsonl").write_bytes('{"prompt": "a"}'.encode("utf-32"))
    assert main("show u32.jsonl -o p.html".split()) == 2 and "is UTF-32" in capfd.readouterr().err

@pytest.mark.parametrize("facts", [dict(files=[1]), dict(files="abc"), dict(sha256=[1]), dict(begun_in=3), dict(stage=3), dict(settings="x"),
    dict(results=[1]), dict(accepted=[3]), dict(stages=3), dict(run=4)], ids=str)
def test_a_marker_whose_values_are_of_another_kind_is_refused_by_every_command(facts, capfd):
    run(tiny("sft"), "o")
    write_marker(Path("o/run.json"), **read_marker(Path("o/run.json"), "") | facts)
    for words in ("verify o", "train --resume o", "compare o o", "export o -o e"):
        assert main(words.split()) == 2 and f"its {next(iter(facts))!r} is of another kind" in capfd.readouterr().err, words

def test_a_judge_function_whose_answers_are_no_numbers_is_named(inside, capfd):
    Path("latin.txt").write_bytes(b"\xff{{ prompt }} {{ first }} {{ second }}")
    assert main("judge m t --prompts pairs.jsonl --judge t --judge-prompt latin.txt --max-new-tokens 3".split()) == 2
    assert "latin.txt: not UTF-8: byte 0xff at column 1" in capfd.readouterr().err
    Path("mine.py").write_text("def word(prompts, first, second): return ['A'] * len(prompts)\ndef none(prompts, first, second): return None\n")
    for name, got in (("word", "['A', 'A'"), ("none", "None")):
        assert main(f"judge m t --prompts pairs.jsonl --judge mine:{name} --max-new-tokens 3 --max-prompts 12".split()) == 2
        said = capfd.readouterr().err
        assert f"mine:{name} must give a number, 0 to 1, or None for each of 12 rows, got {got}" in said and len(said) < 500
