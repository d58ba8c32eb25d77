"files: whole or absent at every call to the disk, nothing of others removed, plain words when the disk refuses."
import errno, os, pytest, torch
from pathlib import Path
from safetensors.torch import save_file
from rlhf_nb.base.files import append_bytes, atomic_folder, atomic_write, disk_errors, check_readable
from disks import disk_of, dies_at

def test_a_file_is_the_old_or_the_new_one_after_death_at_any_call(tmp_path):
    path, seen, k = tmp_path/"a", set(), 0
    atomic_write(path, "old")
    while dies_at(k, lambda: atomic_write(path, "new")): seen.add(path.read_text()); k += 1
    assert k > 3 and seen == {"old", "new"} and path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]

def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    atomic_write(tmp_path/"a", "old")
    def full(*_): raise OSError(errno.ENOSPC, "full")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError): atomic_write(tmp_path/"a", "new")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a", "old")]

def test_append_drops_what_does_not_count(tmp_path):
    path = tmp_path/"a"
    append_bytes(path, 0, b"one")
    append_bytes(path, 3, b"two")
    assert path.read_bytes() == b"onetwo"
    append_bytes(path, 3, b"")                       # the second part was never counted
    assert path.read_bytes() == b"one"
    append_bytes(path, 0, b"other")
    assert path.read_bytes() == b"other"

def test_an_append_that_is_cut_short_leaves_the_part_that_counts(tmp_path):
    path = tmp_path/"a"
    append_bytes(path, 0, b"x" * 1000)
    with pytest.raises(OSError, match="may not grow further: .*/a. All is there; make room or name another folder"):
        with disk_of(1500), disk_errors(path, "All is there"): append_bytes(path, 1000, b"y" * 1000)
    assert path.read_bytes()[:1000] == b"x" * 1000
    append_bytes(path, 1000, b"z" * 1000)
    assert path.read_bytes() == b"x" * 1000 + b"z" * 1000

def write(folder, *names):
    with atomic_folder(folder) as temp:
        for name in names:
            (temp/name).parent.mkdir(exist_ok=True)
            (temp/name).write_text(name)

def names(folder): return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())

def test_a_folder_is_whole_or_absent_after_death_at_any_call(tmp_path):
    seen, k = set(), 0
    def work(): write(tmp_path/str(k), "a", "deep/b")
    while dies_at(k, work):
        found = names(tmp_path/str(k)) if (tmp_path/str(k)).exists() else []
        seen.add(tuple(x for x in found if x != ".unfinished"))
        if not found: work()                          # the next attempt clears away what is left
        assert set(names(tmp_path/str(k))) - {".unfinished"} == {"a", "deep/b"}
        k += 1
    assert k > 5 and seen == {(), ("a", "deep/b")} and names(tmp_path/str(k)) == ["a", "deep/b"]

def test_a_failed_folder_makes_room_again(tmp_path):
    with pytest.raises(OSError), atomic_folder(tmp_path/"run") as temp:
        (temp/"large").write_text("x" * 1000)
        raise OSError(errno.ENOSPC, "full")
    assert not list(tmp_path.iterdir())

def test_what_others_wrote_is_neither_removed_nor_written_over(tmp_path):
    (tmp_path/"run.unfinished").mkdir()
    write(tmp_path/"run", "a")                        # an empty one is no loss
    (tmp_path/"other.unfinished").mkdir()
    (tmp_path/"other.unfinished/novel.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="other.unfinished is in the way .* move it elsewhere"): write(tmp_path/"other", "a")
    assert (tmp_path/"other.unfinished/novel.txt").read_text() == "mine"
    (tmp_path/"file.unfinished").write_text("mine")
    with pytest.raises(FileExistsError, match="in the way"): write(tmp_path/"file", "a")
    assert (tmp_path/"file.unfinished").read_text() == "mine"
    with pytest.raises(OSError): write(tmp_path/"run", "b")           # it is there, and not empty
    assert names(tmp_path/"run") == ["a"] and not (tmp_path/"run.unfinished").exists()

@pytest.mark.parametrize("code, message", [
    (errno.ENOSPC, "no room is left on the disk: here. All is there; make room or name"), (errno.EFBIG, "may not grow further.*make room"),
    (errno.EDQUOT, "your share of the disk is used up.*make room"), (errno.EROFS, "this disk is read-only: here. All is there; allow writing"),
    (errno.EACCES, "you may not write here.*allow writing there or name another folder, then run the same again"), (errno.EPERM, "may not write")])
def test_disk_errors_in_plain_words(code, message):
    with pytest.raises(OSError, match=message) as e, disk_errors("here", "All is there"): raise OSError(code, "x")
    assert e.value.errno == code and isinstance(e.value.__cause__, OSError)

@pytest.mark.parametrize("e", [ValueError("x"), FileNotFoundError(errno.ENOENT, "x"), OSError("without a number"), RuntimeError("x")])
def test_other_errors_pass_through(e):
    with pytest.raises(type(e)) as seen, disk_errors("here", ""): raise e
    assert seen.value is e

@pytest.mark.parametrize("save", [lambda path: save_file({"x": torch.zeros(9999)}, path), lambda path: torch.save(torch.zeros(9999), path),
                                  lambda path: Path(path).write_text("x" * 9999)], ids=["safetensors", "torch", "python"])
@pytest.mark.parametrize("limit", [0, 100, 2000])
def test_every_writer_tells_a_full_disk_its_own_way(save, limit, tmp_path):
    with disk_of(limit), pytest.raises(OSError, match="the file may not grow further|no room is left"):
        with disk_errors(tmp_path, "Nothing was there"): save(str(tmp_path/"x"))

@pytest.mark.skipif(os.name == "nt", reason="POSIX")
def test_the_first_that_may_not_be_read_is_named(open_tmp, not_root):
    (open_tmp/"run/deep").mkdir(parents=True)
    for name in ("a", "b", "deep/c"): (open_tmp/"run"/name).write_text(name)
    paths = [open_tmp/"run", *(open_tmp/"run"/name for name in ("a", "b", "deep", "deep/c", "gone"))]
    with not_root(open_tmp/"run"):
        check_readable(*paths)
        for path in paths[1:4]:
            path.chmod(0)
            with pytest.raises(PermissionError, match=f"you may not read {path}: allow reading it"): check_readable(*paths)
            path.chmod(0o755)
