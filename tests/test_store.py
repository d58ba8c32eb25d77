"The pair store: round trips, kills at random moments, spoiled folders, a full and a read-only disk."
import errno, json, os, random, re, shutil, signal, time, pytest, torch
from pathlib import Path
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from rlhf_nb.data import store as store_module
from rlhf_nb.base.folder import write_marker
from rlhf_nb.data.store import create_store, open_store, tokenizer_hash
from rlhf_nb.base.batches import PreferencePairs
from rlhf_nb.tokens import Seqs, make_seqs
from rlhf_nb.worlds.world_text import make_tokenizer
from disks import disk_of

POSIX = pytest.mark.skipif(os.name == "nt", reason="POSIX")

@pytest.fixture(scope="module")
def tokenizer(): return make_tokenizer()

def some_pairs(n, seed=0, longest=12):
    rng = random.Random(seed)
    def ids(low): return [rng.randrange(1, 300) for _ in range(rng.randrange(low, longest))]
    prompts = [ids(1) for _ in range(n)]
    return PreferencePairs(*[make_seqs(prompts, [ids(0) for _ in range(n)], 0) for _ in range(2)])

def same(a, b):
    sides = (a.chosen, b.chosen), (a.rejected, b.rejected)
    return len(a) == len(b) and (not len(a) or all(
        torch.equal(p, q) for x, y in sides for p, q in zip(x.trim().parts(), y.trim().parts())))

# ---- what goes in comes out
def test_round_trip_in_any_cut_and_any_order(tmp_path, tokenizer):
    pairs = some_pairs(57)
    for k, cut in enumerate(([57], [1, 0, 30, 26], [19] * 3)):
        with create_store(tmp_path/str(k), tokenizer) as store:
            for i, n in enumerate(cut): store.append(pairs[sum(cut[:i]):sum(cut[:i]) + n])
        for s in (store, open_store(tmp_path/str(k), tokenizer)):
            assert len(s) == 57 and same(s[:], pairs) and s.totals()["appends"] == len(cut)
            for rows in ([5, 0, 5], slice(3, 50, 7), torch.tensor([-1, 2]), torch.arange(57) % 3 == 0,
                         slice(0, 0), []):
                assert same(s[rows], pairs[rows])
    files = [(tmp_path/str(k)/name).read_bytes() for k in range(3) for name in ("tokens.bin", "rows.bin")]
    assert files[0] == files[2] == files[4] and files[1] == files[3] == files[5]

def test_padding_side_and_width_leave_no_trace(tmp_path, tokenizer):
    pairs = some_pairs(9)
    def moved(x): # left padded, two columns wider
        rows = [row.roll(int((~m).sum())) for row, m in zip(x.ids, x.attention_mask)]
        def roll(y): return torch.stack([r.roll(int((~m).sum())) for r, m in zip(y, x.attention_mask)])
        return Seqs(torch.stack(rows), roll(x.attention_mask), roll(x.response_mask))
    store = create_store(tmp_path/"s", tokenizer)
    store.append(PreferencePairs(moved(pairs.chosen), moved(pairs.rejected)))
    assert same(store[:], pairs)

def test_columns_keep_every_bit_and_their_order(tmp_path, tokenizer):
    store, x = create_store(tmp_path/"s", tokenizer, ("b_", "a_")), torch.randn(20)
    store.append(some_pairs(5), b_=x[:5], a_=-x[:5])
    store.append(some_pairs(15, 1), a_=-x[5:], b_=x[5:])
    assert torch.equal(store.column("b_"), x) and torch.equal(store.column("a_"), -x)
    store.column("b_")[0] = 9                    # a copy: the file stays
    assert torch.equal(open_store(tmp_path/"s", tokenizer).column("b_"), x)
    for bad in (dict(b_=x[:5]), dict(b_=x[:5], a_=x[:4]), dict(b_=x[:5], a_=x[:5], c=x[:5]),
                dict(b_=x[:5], a_=torch.full((5,), torch.inf))):
        with pytest.raises(ValueError, match="column"): store.append(some_pairs(5), **bad)
    assert len(store) == 20
    for names in (("start",), ("a", "a"), ("pairs",), ("counts",), ("a b",)):
        with pytest.raises(ValueError, match="columns are names"):
            create_store(tmp_path/"t", tokenizer, names)

def test_counts_add_up(tmp_path, tokenizer):
    store = create_store(tmp_path/"s", tokenizer)
    store.append(some_pairs(2), dict(ties=3, vote_std=.5))
    store.append(some_pairs(0 + 1), dict(ties=1))
    store.append(some_pairs(1)[:0], dict(ties=1, vote_std=.25))
    assert open_store(tmp_path/"s", tokenizer).totals() == dict(appends=3, ties=5, vote_std=.75)

# ---- who wrote it
def test_the_tokenizer_hash_sees_tokens_and_marks_not_state(tokenizer):
    a, b = make_tokenizer(), make_tokenizer()
    b("a text", padding="max_length", max_length=9, truncation=True)         # leaves state behind
    assert tokenizer_hash(a) == tokenizer_hash(b)
    a.eos_token = "<bos>"
    assert tokenizer_hash(a) != tokenizer_hash(b)
    def of(words):
        core = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}))
        return tokenizer_hash(PreTrainedTokenizerFast(tokenizer_object=core, pad_token="p", eos_token="e"))
    assert of("peab") != of("peba")                      # the same words under other ids

@pytest.fixture
def made(tmp_path, tokenizer):
    store = create_store(tmp_path/"made", tokenizer, ("margin",), run="one")
    store.append(some_pairs(8), margin=torch.arange(8.))
    store.close()
    return tmp_path/"made"

def cut(name, n): return lambda f: os.truncate(f/name, (f/name).stat().st_size - n)
def flip(name, at):
    def spoil(f):
        raw = bytearray((f/name).read_bytes())
        raw[at] ^= 1
        (f/name).write_bytes(raw)
    return spoil
def metadata(change, fits=True): # store.json, with a checksum that fits or without
    def spoil(f):
        x = json.loads((f/"store.json").read_text())
        change(x)
        if not fits: return (f/"store.json").write_text(json.dumps(x))
        write_marker(f/"store.json", **{k: v for k, v in x.items() if k not in ("format", "crc")})
    return spoil
def of_another(name):
    def spoil(f):
        with create_store(f.with_name("other"), make_tokenizer(), ("margin",), run="one") as other:
            other.append(some_pairs(8, seed=1), margin=torch.arange(8.))
        shutil.copy(f.with_name("other")/name, f/name)
    return spoil

SPOILED = {
    "tokens one byte short": (cut("tokens.bin", 1), "tokens.bin is too short"),
    "rows gone": (lambda f: os.remove(f/"rows.bin"), "rows.bin is too short"),
    "rows garbage": (lambda f: (f/"rows.bin").write_bytes(random.Random(0).randbytes(28 * 8)), "rows.bin is not what was written"),
    "tokens zeros": (lambda f: (f/"tokens.bin").write_bytes(bytes(10_000)), "row 7 of .*tokens.bin is not what was written"),
    "no metadata": (lambda f: os.remove(f/"store.json"), "no pair store in .*: make one with create_store"),
    "half metadata": (lambda f: (f/"store.json").write_text('{"format": '), "store.json is damaged"),
    "a list": (lambda f: (f/"store.json").write_text('[]'), "another program or version.*another folder"),
    "newer": (metadata(lambda x: x.update(format=3), False), "another program or version"),
    "changed by hand": (metadata(lambda x: x.update(run="two"), False), "store.json is damaged.*not what was written"),
    "other columns": (metadata(lambda x: x.update(columns=[])), "rows.bin is not what was written"),
    "more columns": (metadata(lambda x: x.update(columns=["margin", "b"])), "rows.bin is too short"),
    "other tokenizer": (metadata(lambda x: x.update(tokenizer="0")), "another tokenizer.*the same ids would be other words"),
    "last token": (flip("tokens.bin", -4), "row 7 of .*tokens.bin is not what was written"),
    "a length": (flip("rows.bin", 28 * 3 + 8), "rows.bin is not what was written"),
    "a margin": (flip("rows.bin", 28 * 2 + 24), "rows.bin is not what was written"),
    "rows of another": (of_another("rows.bin"), "rows.bin is not what was written"),
    "metadata of another": (of_another("store.json"), "too short|not what was written"),
    "tokens of another": (of_another("tokens.bin"), "too short|not what was written"),
}
@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_store_is_refused_with_a_remedy_until_the_copy_is_back(made, tokenizer, name):
    change, message = SPOILED[name]
    kept = {p.name: p.read_bytes() for p in made.iterdir()}
    change(made)
    spoiled = {p.name: p.read_bytes() for p in made.iterdir()}
    for writable in (False, True, True):                    # and the lock is free again
        with pytest.raises(ValueError, match=message) as e: open_store(made, tokenizer, writable)
    assert re.search("anew|create_store|name another folder|other words", str(e.value))
    assert {p.name: p.read_bytes() for p in made.iterdir()} == spoiled       # nothing was mended or cut
    for file, raw in kept.items(): (made/file).write_bytes(raw)
    with open_store(made, tokenizer, writable=True) as store: assert same(store[:], some_pairs(8))

@POSIX
def test_a_child_that_outlives_a_writer_does_not_hold_its_lock(made, tokenizer):
    "The writer forks a process that sleeps, as data loaders do, and dies."
    folder, (come, go), (listen, end) = made, os.pipe(), os.pipe()
    if not (writer := os.fork()):
        store = open_store(folder, tokenizer, writable=True)
        if not os.fork():
            os.close(end)
            os.write(go, b"x")
            os.read(listen, 1)                          # until the test has ended
        elif os.read(come, 1): os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    os.waitpid(writer, 0)
    try:
        with open_store(folder, tokenizer, writable=True) as store: assert store.lock
    finally: os.close(end)

@POSIX
def test_a_failed_or_interrupted_writer_leaves_no_lock(made, tokenizer, monkeypatch):
    "Held by the traceback as in a notebook, the store must not keep the next try out."
    caught = []
    def try_it(work):
        try: work()
        except BaseException as e: caught.append(e)         # its frames live as long as this
        else: raise AssertionError("let through")
        open_store(made, tokenizer, writable=True).close()
    def append(pairs, **columns):
        with open_store(made, tokenizer, writable=True) as store: store.append(pairs, **columns)
    try_it(lambda: append(some_pairs(1)))                   # a column is missing
    try_it(lambda: open_store(made, tokenizer, writable=True, run="two"))
    for name in ("tokenizer_hash", "_files", "PairStore", "flatten_pairs", "append_bytes", "write_marker"):
        with monkeypatch.context() as patch:
            def stop(*_): raise KeyboardInterrupt
            patch.setattr(store_module, name, stop)
            try: append(some_pairs(1), margin=[0.])
            except BaseException as e: caught.append(e)
        open_store(made, tokenizer, writable=True).close()
    assert len(caught) == 8 and len(open_store(made, tokenizer)) == 8

def test_a_damaged_row_in_the_middle_is_found_when_read(made, tokenizer):
    flip("tokens.bin", 0)(made)
    store = open_store(made, tokenizer)
    assert len(store[1:]) == 7
    with pytest.raises(ValueError, match="row 0 of .*tokens.bin is not what was written.*anew"): store[:3]

def test_one_store_per_run(made, tokenizer):
    assert open_store(made, tokenizer, run="one").column("margin").tolist() == list(range(8))
    with pytest.raises(ValueError, match="belongs to run 'one', not to 'two'"):
        open_store(made, tokenizer, run="two")
    with pytest.raises(ValueError, match="not empty"): create_store(made, tokenizer)
    with pytest.raises(ValueError, match="no column|has the columns"):
        open_store(made, tokenizer).column("reward")
    made.with_name("file").touch()
    with pytest.raises(ValueError, match="not empty"): create_store(made.with_name("file"), tokenizer)

@POSIX
def test_one_writer_and_any_readers(made, tokenizer):
    a = open_store(made, tokenizer, writable=True)
    with pytest.raises(ValueError, match="being written"): open_store(made, tokenizer, writable=True)
    reader = open_store(made, tokenizer)
    with pytest.raises(ValueError, match="not open for writing"): reader.append(some_pairs(1), margin=[0.])
    a.append(some_pairs(3), margin=torch.zeros(3))
    assert len(reader) == 8 and same(reader[:], some_pairs(8))         # what it saw stays
    a.close()
    open_store(made, tokenizer, writable=True).close()

# ---- a half-written tail
@pytest.mark.parametrize("tail", [0, 1, 3, 4, 27, 28, 500])
def test_what_a_kill_left_behind_is_dropped(made, tokenizer, tail):
    for name in ("tokens.bin", "rows.bin"):
        with open(made/name, "ab") as file: file.write(os.urandom(tail))
    (made/"store.json.unfinished").write_text("{")
    assert same(open_store(made, tokenizer)[:], some_pairs(8))
    store = open_store(made, tokenizer, writable=True)
    store.append(some_pairs(2, 5), margin=[1., 2.])
    assert same(store[8:], some_pairs(2, 5)) and same(store[:8], some_pairs(8))
    assert (made/"rows.bin").stat().st_size == 28 * 10                   # the tail is cut off

@POSIX
def test_killed_at_random_moments_it_goes_on_and_ends_the_same(tmp_path, tokenizer):
    rng, kills, partial, code = random.Random(3), 0, set(), None
    blocks = [some_pairs(7, seed) for seed in range(40)]
    def write(folder, seconds): # in a child that has so many seconds to live; 0: for ever
        if not (pid := os.fork()):
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)                # nothing catches it
                signal.setitimer(signal.ITIMER_REAL, seconds)
                if not folder.exists(): create_store(folder, tokenizer).close()
                with open_store(folder, tokenizer, writable=True) as store:
                    for k in range(store.totals()["appends"], 40): store.append(blocks[k], dict(seed=k))
                os._exit(0)
            finally: os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    whole, killed, before = tmp_path/"whole", tmp_path/"killed", time.perf_counter()
    assert write(whole, 0) == 0
    lasts = 2 * (time.perf_counter() - before)
    while kills < 3 or len(partial) < 3:                 # sooner, where the first ran on a busy machine
        shutil.rmtree(killed, ignore_errors=True)
        lasts, code = lasts / 2, None
        while code != 0:
            code = write(killed, (.02 + .3 * rng.random()) * lasts)
            assert code in (0, -signal.SIGALRM)
            kills += code != 0
            if killed.exists():
                store = open_store(killed, tokenizer)
                assert len(store) == 7 * store.totals()["appends"]
                partial.add(len(store))
        for name in ("tokens.bin", "rows.bin", "store.json"):
            assert (killed/name).read_bytes() == (whole/name).read_bytes(), name

# ---- the disk says no
@POSIX
@pytest.mark.parametrize("room_left", [0, 10, 600, 2000])
def test_a_full_disk_leaves_the_last_good_state(made, tokenizer, room_left):
    store = open_store(made, tokenizer, writable=True)
    with disk_of((made/"tokens.bin").stat().st_size + room_left), pytest.raises(OSError, match="grow.*The 8 pairs from before are whole"):
        store.append(some_pairs(900, 4), margin=torch.zeros(900))
    assert same(store[:], some_pairs(8)) and same(open_store(made, tokenizer)[:], some_pairs(8))
    store.append(some_pairs(900, 4), margin=torch.zeros(900))            # the same call, with room
    assert same(store[8:], some_pairs(900, 4))

def test_a_folder_that_may_not_be_written_is_told_in_words(tmp_path, tokenizer, monkeypatch):
    def refuse(self, *args, **kw): raise PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(OSError, match="you may not write here"): create_store(tmp_path/"s", tokenizer)

@POSIX
@pytest.mark.parametrize("name", ["store.json", "rows.bin", "tokens.bin", "."])
@pytest.mark.parametrize("writable", [False, True])
def test_what_may_not_be_read_is_told_in_words(tokenizer, open_tmp, not_root, name, writable):
    with create_store(open_tmp/"s", tokenizer, ("margin",)) as store: store.append(some_pairs(8), margin=torch.zeros(8))
    file, before = open_tmp/"s"/name, some_pairs(8)
    mode = file.stat().st_mode
    with not_root(open_tmp/"s"):
        file.chmod(0)
        with pytest.raises(PermissionError, match="you may not read .*allow reading it") as e: open_store(open_tmp/"s", tokenizer, writable)
        file.chmod(mode)
    assert str(file) in str(e.value) and same(open_store(open_tmp/"s", tokenizer, writable=True)[:], before)

def test_what_stands_in_the_place_of_a_new_store_is_left_alone(tmp_path, tokenizer):
    for name in ("notes.txt", "store.json", "lock"):
        (tmp_path/name).mkdir(); (tmp_path/name/name).write_text("mine")
        with pytest.raises(ValueError, match="is not empty"): create_store(tmp_path/name, tokenizer)
        assert (tmp_path/name/name).read_text() == "mine" and len(list((tmp_path/name).iterdir())) == 1

def test_the_fingerprint_tells_stores_apart(made, tokenizer):
    def now(): return open_store(made, tokenizer).fingerprint()
    first = now()
    assert first == now()
    with open_store(made, tokenizer, writable=True) as store: store.append(some_pairs(1), margin=[0.])
    assert now() != first
    seen = {first, now()}
    for k, (seed, margin) in enumerate(((0, 1.), (1, 0.))):
        with create_store(made.with_name(str(k)), tokenizer, ("margin",)) as store:
            store.append(some_pairs(8, seed), margin=torch.full((8,), margin))
            seen.add(store.fingerprint())
    assert len(seen) == 4
