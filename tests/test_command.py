"The command `rlhf-nb` itself: help, doctor, lab, and how commands end."
import argparse, json, os, re, signal, subprocess, sys, threading, time, urllib.request, nbformat, pytest
from pathlib import Path
import rlhf_nb
from rlhf_nb.base.files import notebooks
from rlhf_nb.book import command
from rlhf_nb.book.command import lab_arguments, main, requirements
from rlhf_nb.book.copies import chapters
from conftest import free_port

MAIN = "import sys; from rlhf_nb.book.command import main; sys.exit(main())"
def shell(*words, **kw):
    return subprocess.run([sys.executable, "-c", MAIN, *map(str, words)],
                          **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 600} | kw)

# ---- words and help
COMMANDS = ["lab", "copy", "check", "run", "train", "best-of-n", "show", "compare", "pipeline", "paths", "doctor", "env"]

def parsers(parser):
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values(): yield from parsers(below)

def test_flags_of_a_dataclass_print_their_defaults():
    said = shell("best-of-n", "--help").stdout
    assert said.count("(default: ") >= 10 and "--num-generations" in said and "--overwrite" in said

@pytest.mark.parametrize("name", [x for x in COMMANDS if x not in ("train", "best-of-n")])     # whose flags are a dataclass's
def test_every_command_has_examples_and_every_option_prints_its_default(name):
    by_name = {p.prog.removeprefix("rlhf-nb "): p for p in parsers(command.make_parser(name))}
    assert "examples:" in by_name[name].format_help() or any(p.startswith(name + " ") for p in by_name)
    for parser in by_name.values():
        for action in parser._actions:
            if not action.option_strings or action.nargs == 0 or action.required or action.help == argparse.SUPPRESS: continue
            assert "default" in action.help, f"{parser.prog} {action.option_strings}: {action.help}"

@pytest.mark.parametrize("words", [["--help"], []])
def test_help_names_every_command_and_imports_nothing_heavy(words):
    code = (f"import sys\nfrom rlhf_nb.book.command import main\ntry: main({words})\n"
            "except SystemExit as e: assert not e.code\nheavy = {'torch', 'jupyterlab', 'nbclient', 'nbformat',"
            " 'transformers', 'matplotlib', 'rlhf_nb.run.train_command'}\nprint(heavy & set(sys.modules))")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert said.endswith("set()\n") and "usage: rlhf-nb" in said and all(f"\n    {name}" in said for name in COMMANDS), said

def test_underscores_and_dashes_are_alike_in_options(monkeypatch):
    given = []
    monkeypatch.setattr(command, "_run_notebooks", lambda args: given.append(args.output_dir))
    for words in (["--output_dir", "a_b"], ["--output-dir", "a_b"], ["--output_dir=a_b"], ["--out", "a_b"], ["-o", "a_b"]):
        assert main(["run", *words]) == 0
    assert given == ["a_b"] * 5                              # the value keeps its own

def test_only_lab_passes_words_on_and_as_they_are(monkeypatch, capsys):
    given = []
    monkeypatch.setattr(command, "_lab", lambda args: given.append((args.dir, args.extra)))
    assert main(["lab", "mine", "--", "--port_x", "9"]) == 0 and given == [("mine", ["--port_x", "9"])]
    with pytest.raises(SystemExit): main(["run", "tokens", "--", "--port", "1"])
    assert "only lab passes arguments on, got --port 1" in capsys.readouterr().err

def test_a_wrong_word_is_answered_in_one_line(capsys):
    assert main(["run", "tokenz"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("rlhf-nb run: no chapter tokenz: there are") and said.count("\n") == 1
    for seconds in ("0", "-1"):
        assert main(["run", "tokens", "--timeout", seconds]) == 2
        assert f"seconds are a whole number above 0, got {seconds}\n" in capsys.readouterr().err
    with pytest.raises(SystemExit): main(["run", "tokens", "--timeout", "x"])

def test_paths_are_printed_outside_the_main_thread_too(capsys):
    "A notebook's cell with a time limit runs in a thread, where Python sets no signals."
    status = []
    thread = threading.Thread(target=lambda: status.append(main(["paths"])))
    thread.start(); thread.join()
    said = capsys.readouterr().out
    assert status == [0] and str(notebooks()) in said and str(Path(rlhf_nb.__file__).parent) in said

# ---- doctor
def test_doctor_finds_what_is_missing_and_says_how_to_get_it(capsys, monkeypatch):
    real = requirements()
    assert {"torch", "transformers", "jupyterlab"} <= {name for name, *_ in real} and all(fits for *_, fits in real)
    assert "pytest" not in {name for name, *_ in real}         # an extra, not needed to learn
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "nothing is missing" in said and len(re.findall(r"^ok  torch ", said, re.M)) == 1
    assert main(["env"]) == 0                                  # the same as one block
    first, *rows, last = capsys.readouterr().out.splitlines()
    assert first == last == "```" and all(row[:14].strip() in said for row in rows)
    assert {"rlhf-nb", "Python", "torch", "device", "chapters"} <= {row.split()[0] for row in rows}
    monkeypatch.setattr(command, "requirements", lambda: [("peft", ">=0.14", None, False)])
    monkeypatch.setattr(command, "free_space", lambda: [("memory", .5, 2.), ("disk", .1, .5)])
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    for advice in ("pip install 'peft>=0.14'", "memory: a run needs about 2.0 GB: close programs",
                   "disk: a run needs about 0.5 GB: point TMPDIR elsewhere"): assert advice in said

def test_versions_are_compared_not_just_looked_for(monkeypatch):
    monkeypatch.setattr(command.metadata, "requires", lambda _: [
        "torch>=2.4", "torch>=999", "no-such-package-here", "pytest>=8; extra == 'dev'"])
    assert [(name, fits) for name, _, _, fits in requirements()] == [
        ("torch", True), ("torch", False), ("no-such-package-here", False)]

# ---- copy and lab
def test_copy_signs_the_notebooks_and_says_what_it_kept(tmp_path):
    from nbformat.sign import NotebookNotary
    env = {**os.environ, "JUPYTER_DATA_DIR": str(tmp_path/"data")}
    said = shell("copy", tmp_path/"mine", env=env)
    assert said.returncode == 0 and re.search(r"mine: \d+ new$", said.stdout), said
    assert {f.name for f in chapters().values()} <= {f.name for f in (tmp_path/"mine").rglob("*.ipynb")}
    (tmp_path/"mine/02_tokens.ipynb").write_text("{}")
    assert "kept as you changed them: 02_tokens.ipynb" in shell("copy", tmp_path/"mine", env=env).stdout
    notary, copied = NotebookNotary(data_dir=str(tmp_path/"data")), nbformat.read(tmp_path/"mine/03_world.ipynb", 4)
    assert notary.check_signature(copied)
    copied.cells[0].source = "changed"
    assert not notary.check_signature(copied)

@pytest.mark.parametrize("home", ["/dev/null", "/proc/none"])
def test_an_unwritable_home_is_told_before_anything_is_copied(tmp_path, home):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "XDG"))} | {"HOME": home}
    done = shell("copy", tmp_path/"mine", env=env)
    assert done.returncode == 2 and not (tmp_path/"mine").exists(), done
    assert "cannot be written" in done.stderr and "nothing was copied" in done.stderr and done.stderr.count("\n") == 1

def test_lab_arguments(tmp_path, monkeypatch):
    for uid in (1000, 0):
        monkeypatch.setattr(os, "geteuid", lambda: uid, raising=False)
        words = lab_arguments(tmp_path, ["--port", "1"])
        assert words[0] == f"--ServerApp.root_dir={tmp_path}" and words[-2:] == ["--port", "1"]
        assert ("--allow-root" in words) == (uid == 0) and any("/lab/tree/index.ipynb" in w for w in words)

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.one_in(2)
def test_lab_serves_a_copy_at_the_index_until_a_signal_ends_it(tmp_path, number):
    port = free_port()
    env = {**os.environ, **{f"JUPYTER_{k}_DIR": str(tmp_path/k) for k in ("CONFIG", "DATA", "RUNTIME")},
           "JUPYTERLAB_SETTINGS_DIR": str(tmp_path/"set"), "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path/"ws")}
    log = open(tmp_path/"log", "w+")
    lab = subprocess.Popen([sys.executable, "-c", MAIN, "lab", "mine", "--", "--no-browser", f"--port={port}",
                            "--ServerApp.port_retries=0", "--IdentityProvider.token=word"],
                           cwd=tmp_path, env=env, stdout=log, stderr=subprocess.STDOUT)
    def get(path): return urllib.request.urlopen(f"http://127.0.0.1:{port}{path}?token=word", timeout=60)
    try:
        while True:
            try: get("/api"); break
            except OSError: time.sleep(.2)
            assert lab.poll() is None, (tmp_path/"log").read_text()
        assert get("/").geturl().split("?")[0].endswith("/lab/tree/index.ipynb")
        files = {f["name"]: f for f in json.load(get("/api/contents"))["content"]}
        served = {*files, *(f["name"] for f in json.load(get("/api/contents/engine/book"))["content"])}
        assert {f.name for f in chapters().values() if f.parent.name in ("nbs", "book")} <= served
        lab.send_signal(number)
        assert lab.wait(120) == 128 + number, (tmp_path/"log").read_text()
    finally: lab.kill()

# ---- how a command ends
linux = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="reads /proc")

def living():
    "pid -> (parent, command line) of all processes that have not ended."
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder/"stat").read_text().rsplit(")", 1)[1].split()[:2]
            if state != "Z": found[int(folder.name)] = int(parent), (folder/"cmdline").read_text()
        except OSError: pass
    return found

def marked(word): return {pid for pid, (_, line) in living().items() if word in line}

def wait_for(ready, what, stalled=600):
    "Until it is so; given up when it is not so for very long."
    end = time.monotonic() + stalled
    while not ready():
        assert time.monotonic() < end, what
        time.sleep(.05)

def stopped(words, started, number, code=MAIN):
    "Start a command, send it a signal once it is at work, wait for its end."
    p = subprocess.Popen([sys.executable, "-c", code, *map(str, words)], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: started() or p.poll() is not None, "it did not begin")
        p.send_signal(number)
        out, err = p.communicate(timeout=600)
    finally: p.kill()
    return p.returncode, out, err

@pytest.mark.parametrize("words, heavy, number", [
    (["train", "sft", "--help"], "torch", signal.SIGTERM), (["lab", "mine"], "jupyterlab.labapp", signal.SIGTERM),
    (["copy", "mine"], "nbformat", signal.SIGINT)])
def test_a_signal_during_slow_imports_is_no_traceback(tmp_path, words, heavy, number):
    "The import itself sends the signal, from within."
    (tmp_path/"go.py").write_text(f"""import os, sys
from rlhf_nb.book.command import main
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == {heavy!r}: os.kill(os.getpid(), {int(number)})
sys.meta_path.insert(0, Slow())
sys.exit(main({words!r}))""")
    done = subprocess.run([sys.executable, tmp_path/"go.py"], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 128 + number and done.stderr == "stopped\n", done
    assert not (tmp_path/"mine").exists()

def test_an_ignored_signal_stays_ignored(tmp_path):
    code = ("import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN)\nfrom rlhf_nb.book import command\n"
            "command.notebooks = lambda: os.kill(os.getpid(), signal.SIGHUP) or 'lives'\nsys.exit(command.main(['paths']))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)      # nohup
    assert done.returncode == 0 and "lives" in done.stdout

@pytest.mark.parametrize("words", [["--help"], ["paths"], ["env"], ["pipeline", "run", "--help"]])
@pytest.mark.one_in(4)
def test_a_reader_that_is_gone_ends_a_command_quietly(tmp_path, words):
    read, write = os.pipe()
    os.close(read)
    done = shell(*words, stdout=write, cwd=tmp_path)
    os.close(write)
    assert done.stderr == "" and done.returncode in ((0, 141) if "--help" in words else (141,)), done    # argparse forgives

@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_the_output_is_told_in_one_line():
    with open("/dev/full", "w") as full: done = shell("paths", stdout=full)
    assert done.returncode == 2 and done.stderr.startswith("rlhf-nb paths: ") and done.stderr.count("\n") == 1

def test_arguments_of_jupyterlab_are_asked_for_behind_two_dashes(capfd):
    for words, hint in ((["lab", "mine", "--no-browser"], True), (["paths", "--all"], False)):
        with pytest.raises(SystemExit) as e: command.main(words)
        said = capfd.readouterr().err
        assert e.value.code == 2 and f"unrecognized arguments: {words[-1]}" in said and ("behind --" in said) == hint
