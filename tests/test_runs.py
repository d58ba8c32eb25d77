"Whose folder is it: foreign files, damaged markers, and a death at every operation on the disk."
import os, shutil, sys, pytest
from multiprocessing import get_context
from rlhf_nb.base import folder as runs
from rlhf_nb.base.folder import (check_output, close_work, find_run, foreign_files, open_run, open_work,
    read_marker, read_work, update_marker, write_marker)
from disks import dies_at

POSIX = pytest.mark.skipif(os.name == "nt", reason="POSIX")
TOY = "rlhf-nb toy"
FILES = dict(files=["lock", "result"])

def toy(out, text, overwrite=False):
    with open_run(out, TOY, overwrite, **FILES) as folder:
        work = open_work(folder, TOY, text=text)
        (work/"half").write_text(text[:2])
        (folder/"result").write_text(text)

def refuses(words, *args):
    with pytest.raises(ValueError, match=words): toy(*args)

def whole(path, text): return (path/"result").is_file() and (path/"result").read_text() == text

def test_a_new_run_dies_at_every_operation_and_goes_on(tmp_path):
    k = 0
    while dies_at(k, lambda: toy(tmp_path/str(k), "new")):
        toy(tmp_path/str(k), "new")
        assert sorted(p.name for p in (tmp_path/str(k)).iterdir()) == ["lock", "result", "run.json"]
        k += 1
    assert k > 15 and len(list(tmp_path.iterdir())) == k + 1

@pytest.mark.parametrize("then_overwrite", [True, False])
def test_overwrite_dies_at_every_operation_and_one_run_is_whole(tmp_path, then_overwrite):
    k, seen = 0, set()
    while True:
        folder = tmp_path/str(k)
        out = folder/"run"
        toy(out, "old")
        died = dies_at(k, lambda: toy(out, "new", overwrite=True))
        places = {p.name.split("-")[0]: p for p in folder.iterdir()}
        seen.add(tuple(sorted(places)))
        if out.exists(): assert whole(out, "old") or whole(out, "new"), (k, places)
        else: assert whole(places["run.old"], "old") and whole(places["run.new"], "new"), (k, places)
        was = whole(out, "new") if out.exists() else True
        toy(out, "new" if then_overwrite or was else "old", overwrite=then_overwrite)
        assert whole(out, "new" if then_overwrite or was else "old") and not foreign_files(out)
        left = {p.name.split("-")[0] for p in folder.iterdir()}
        assert left <= ({"run"} if then_overwrite or was else {"run", "run.new"}), (k, left)
        if not died: break
        k += 1
    assert k > 20 and {("run",), ("run", "run.new"), ("run.new", "run.old"), ("run", "run.old")} <= seen, (k, seen)

def test_an_error_leaves_the_old_run_and_releases_the_locks(tmp_path, monkeypatch):
    out, locks, real = tmp_path/"run", [], runs.lock_folder
    monkeypatch.setattr(runs, "lock_folder", lambda folder: locks.append(real(folder)) or locks[-1])
    toy(out, "old")
    for error in (ValueError("bad"), OSError(28, "full"), KeyboardInterrupt("stop")):
        with pytest.raises(type(error), match=str(error.args[-1])), open_run(out, TOY, True, **FILES) as folder:
            (folder/"result").write_text("ne")
            raise error
        assert whole(out, "old") and len(locks) >= 3 and all(lock.closed for lock in locks)
    toy(out, "new", overwrite=True)
    assert whole(out, "new") and [p.name for p in tmp_path.iterdir()] == ["run"]

# ---- what is not ours
def test_files_of_somebody_else_are_never_deleted(tmp_path):
    out = tmp_path/"run"
    toy(out, "old")
    (out/"01-SFT").mkdir(), (out/"deep"/"er").mkdir(parents=True)
    for name in ("thesis.txt", "01-SFT/log.jsonl", "deep/er/x", "work.json", "result.bak", ".hidden"):
        (out/name).write_text("years of work")
        assert foreign_files(out) == [out/name]
        refuses("no file of this run", out, "new", True)
        assert (out/name).read_text() == "years of work" and whole(out, "old")
        (out/name).unlink()
    (out/"link").symlink_to(tmp_path)
    assert foreign_files(out) == [out/"link"]
    (out/"link").unlink()
    for marker in ("stage.json", "work.json"):                       # of another run
        write_marker(out/"01-SFT"/marker, TOY, run="another", files=["x"])
        assert foreign_files(out) == [out/"01-SFT"/marker]
        (out/"01-SFT"/marker).unlink()
    toy(out, "new", overwrite=True)

def test_what_a_library_left_half_written_in_a_checkpoint_is_ours(tmp_path):
    "safetensors writes into .tmpXXXXXX beside its file, and a kill leaves that."
    with open_run(tmp_path/"run", TOY, **FILES) as folder:
        half = open_work(folder, TOY, files=["checkpoints"])/"checkpoints/000000-step-2.unfinished"
        half.mkdir(parents=True)
        for name in (".tmpZwpwCt", "tmp.txt", ".tmpnotes.txt"): (half/name).write_text("half")
        assert [x.name for x in foreign_files(folder)] == [".tmpnotes.txt", "tmp.txt"]
    assert sorted(x.name for x in (tmp_path/"run/kept").rglob("*") if x.is_file()) == [".tmpnotes.txt", "tmp.txt"]

def test_a_file_that_comes_while_the_new_run_is_made_or_lies_in_its_place(tmp_path):
    out = tmp_path/"run"
    toy(out, "old")
    with pytest.raises(ValueError, match="notes.txt"), open_run(out, TOY, True, **FILES) as folder:
        (folder/"result").write_text("new")
        (out/"notes.txt").write_text("mine")
    assert whole(out, "old") and whole(folder, "new") and (out/"notes.txt").exists()
    (out/"notes.txt").unlink()
    toy(out, "new", overwrite=True)
    assert whole(out, "new") and [p.name for p in tmp_path.iterdir()] == ["run"]
    new, _ = find_run(out, TOY, overwrite=True)
    new.mkdir()
    (new/"thesis.txt").write_text("x")
    refuses("thesis.txt", out, "newer", True)
    assert whole(out, "new") and (new/"thesis.txt").exists()

@pytest.mark.parametrize("name, text", [("run.json", "{}"), ("run.json", ""), ("run.json", "[1"), ("run.json", '{"format": 1}'),
    ("run.json", '{"format": 2}'), ("run.json", "\xff\xfe"), ("pipeline.toml", "model = 'sft'"), ("manifest.json", "{}"),
    ("run.json.unfinished", "notes"), ("lock", "notes"), ("model.safetensors", "")])
def test_a_name_proves_nothing(tmp_path, name, text):
    out = tmp_path/"run"
    out.mkdir()
    (out/name).write_text(text, encoding="latin-1")
    for overwrite in (False, True): refuses(f"{name}.*(format|damaged)", out, "new", overwrite)
    assert (out/name).read_text(encoding="latin-1") == text and len(list(out.iterdir())) == 1

def test_a_run_of_another_program_is_refused(tmp_path):
    toy(tmp_path/"run", "old")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="holds a run of rlhf-nb toy, not of rlhf-nb train"):
            find_run(tmp_path/"run", "rlhf-nb train", overwrite)
    (tmp_path/"file").write_text("x")
    refuses("is a file", tmp_path/"file", "new", True)

def test_folders_beside_it_with_such_names_stay(tmp_path):
    out = tmp_path/"run"
    toy(out, "old")
    shutil.copytree(out, tmp_path/"run.old-backup")
    (tmp_path/"run.old-mine").mkdir()
    (tmp_path/"run.old-mine"/"thesis.txt").write_text("x")
    (tmp_path/"run.new-mine").mkdir()
    for text in ("new", "newer"): toy(out, text, overwrite=True)
    assert whole(tmp_path/"run.old-backup", "old") and (tmp_path/"run.old-mine"/"thesis.txt").exists()
    assert len(list(tmp_path.iterdir())) == 4
    shutil.rmtree(out)
    toy(out, "again")                                     # a copy that somebody kept is not taken for a swap
    assert whole(out, "again") and whole(tmp_path/"run.old-backup", "old")

@POSIX
def test_a_link_to_the_folder_stays_a_link(tmp_path):
    (tmp_path/"big").mkdir()
    (tmp_path/"run").symlink_to(tmp_path/"big")
    toy(tmp_path/"run", "old"); toy(tmp_path/"run", "new", overwrite=True)
    assert (tmp_path/"run").is_symlink() and whole(tmp_path/"big", "new") and len(list(tmp_path.iterdir())) == 2

@pytest.mark.parametrize("out", [".", "..", "../here", "data", "data/pairs.jsonl", "data/..", "link", "model"])
def test_an_output_that_is_or_holds_what_is_read(tmp_path, monkeypatch, out):
    here = tmp_path/"here"
    (here/"data").mkdir(parents=True), (here/"model").mkdir()
    (here/"data"/"pairs.jsonl").write_text("{}")
    (here/"link").symlink_to("data")
    monkeypatch.chdir(here)
    with pytest.raises(ValueError, match="name another output"): check_output(out, "data/pairs.jsonl", "model")
    for good in ("data/run", "model/run", "../run", "new"): check_output(good, "data/pairs.jsonl", "model", "", "org/id")

@POSIX
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="a newer Path.resolve leaves a loop as it is")
def test_an_output_that_leads_back_to_itself_is_named(tmp_path):
    (tmp_path/"loop").symlink_to(tmp_path/"loop")
    with pytest.raises(ValueError, match="loop is a link that leads back to itself: name another output"): check_output(tmp_path/"loop")

# ---- work, markers, locks
def test_work_of_another_step_is_removed_and_of_another_run_is_not(tmp_path):
    out = tmp_path/"run"
    with pytest.raises(KeyboardInterrupt), open_run(out, TOY, **FILES) as folder:
        for step in (1, 1, 2):
            work = open_work(folder, TOY, step=step)
            (work/str(len(list(work.iterdir())))).write_text("x")
        assert sorted(p.name for p in work.iterdir()) == ["1", "work.json"] and read_work(folder, TOY)["step"] == 2
        raise KeyboardInterrupt
    update_marker(out/"work"/"work.json", run="other")
    for call in (lambda: open_work(out, TOY, step=3), lambda: close_work(out, TOY), lambda: toy(out, "x")):
        with pytest.raises(ValueError, match="is of another run"): call()
    shutil.rmtree(out/"work")
    (out/"work").mkdir()
    (out/"work"/"thesis.txt").write_text("x")
    refuses("thesis.txt", out, "x")
    assert (out/"work"/"thesis.txt").exists()

@pytest.mark.parametrize("text, error", [("", "damaged"), ("{", "damaged"), ("\x00\x01", "damaged"), ("[]", "format is None"),
    ('{"format": 1}', "format is 1"), ('{"format": 2, "a": 1}', "has no 'b'"), ("[" * 100_000, "damaged")])
def test_a_damaged_marker_is_named_with_the_remedy(tmp_path, text, error):
    (tmp_path/"stage.json").write_text(text)
    with pytest.raises(ValueError, match=error) as e: read_marker(tmp_path/"stage.json", "delete it", "a", "b")
    assert "stage.json" in str(e.value) and str(e.value).endswith("delete it")

def hold(out, overwrite, entered, leave): # a run of another process
    with open_run(out, TOY, overwrite, **FILES) as folder:
        (folder/"result").write_text("other")
        entered.set()
        leave.wait()

@POSIX
def test_one_process_at_a_time(tmp_path):
    out, fork = tmp_path/"run", get_context("fork")
    toy(out, "old")
    for overwrite in (False, True):
        entered, leave = fork.Event(), fork.Event()
        other = fork.Process(target=hold, args=(out, overwrite, entered, leave))
        other.start()
        assert entered.wait(60)
        for mine in (False, True): refuses("being written by another process", out, "mine", mine)
        leave.set()
        other.join()
        assert other.exitcode == 0 and whole(out, "other")
    toy(out, "mine", True)
    assert whole(out, "mine")
