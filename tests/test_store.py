"Kept pairs: round trips, kills at random moments, spoiled folders, a full and a read-only disk."
import os, random, shutil, signal, stat, time, pytest, torch
from pathlib import Path
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from rlhf_nb.data.store import PairChunk, join_chunks, read_chunks, save_chunk, tokenizer_hash
from rlhf_nb.base.batches import PreferencePairs
from rlhf_nb.tokens import make_seqs
from rlhf_nb.worlds.world_text import make_tokenizer
from disks import dies_at, disk_of

POSIX = pytest.mark.skipif(os.name == "nt", reason="POSIX")

@pytest.fixture(scope="module")
def tokenizer(): return make_tokenizer()

def some_pairs(n, seed=0, longest=12):
    rng = random.Random(seed)
    def ids(low): return [rng.randrange(1, 300) for _ in range(rng.randrange(low, longest))]
    prompts = [ids(1) for _ in range(n)]
    return PreferencePairs(*[make_seqs(prompts, [ids(0) for _ in range(n)], 0) for _ in range(2)])

def chunk(pairs, counts={}, **columns): return PairChunk(pairs, counts, columns)

def same(a, b):
    sides = (a.chosen, b.chosen), (a.rejected, b.rejected)
    return len(a) == len(b) and (not len(a) or all(
        torch.equal(p, q) for x, y in sides for p, q in zip(x.trim().parts(), y.trim().parts())))

# ---- what goes in comes out
def test_round_trip_in_any_cut(tmp_path, tokenizer):
    pairs, margin = some_pairs(57), torch.randn(57)
    for k, cut in enumerate(([57], [1, 0, 30, 26], [19] * 3)):
        for i, n in enumerate(cut):
            rows = slice(sum(cut[:i]), sum(cut[:i]) + n)
            above, below = torch.stack([margin, -margin])[:, rows].unbind()          # they share their memory
            save_chunk(tmp_path/str(k), i, chunk(pairs[rows], dict(ties=n), b_=above, a_=below), tokenizer)
        found = read_chunks(tmp_path/str(k), tokenizer)
        assert [len(x) for x in found] == cut and [x.counts for x in found] == [dict(ties=n) for n in cut]
        x = join_chunks(found, 0)
        assert same(x.pairs, pairs) and x.pairs.chosen.ids.dtype == torch.int64 and x.counts == dict(ties=57)
        assert torch.equal(x.columns["b_"], margin) and torch.equal(x.columns["a_"], -margin)     # every bit
        assert x.pairs.lengths().tolist() == pairs.lengths().tolist()

def test_empty_columns_leave_no_trace(tmp_path, tokenizer):
    short, long = some_pairs(3, 1, 4), some_pairs(1, 2, 40)
    wide = PreferencePairs(*[join_chunks([chunk(short), chunk(long)], 0).pairs.chosen[:3]] * 2)
    assert wide.chosen.ids.shape[1] > short.trim().chosen.ids.shape[1]
    for name, pairs in (("a", wide), ("b", wide.trim())): save_chunk(tmp_path/name, 0, chunk(pairs), tokenizer)
    a, b = [(tmp_path/name/"000000.safetensors").read_bytes() for name in "ab"]
    assert a == b

def test_joined_pairs_are_padded_and_their_counts_added_up():
    x = join_chunks([chunk(some_pairs(2), dict(ties=3, vote_std=.5)), chunk(some_pairs(3, 1, 30), dict(ties=1)),
                     chunk(some_pairs(1)[:0], dict(vote_std=.25, cut=2))], 7)
    assert x.counts == dict(ties=4, vote_std=.75, cut=2) and len(x) == 5
    assert same(x.pairs[:2], some_pairs(2)) and same(x.pairs[2:], some_pairs(3, 1, 30))
    assert (x.pairs.chosen.ids[:2][~x.pairs.chosen.attention_mask[:2]] != 0).any()     # 7, where the first was widened
    with pytest.raises(ValueError, match="at least one batch"): join_chunks([], 0)

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
    pairs = some_pairs(8)
    for i in range(2): save_chunk(tmp_path/"made", i, chunk(pairs[4 * i:4 * i + 4], dict(ties=i), margin=torch.arange(4.)), tokenizer, "one")
    return tmp_path/"made"

def whole(folder, tokenizer): return same(join_chunks(read_chunks(folder, tokenizer, "one"), 0).pairs, some_pairs(8))

FIRST, LAST = "000000.safetensors", "000001.safetensors"
def flip(at):
    def spoil(f):
        raw = bytearray((f/FIRST).read_bytes())
        raw[at] ^= 1
        (f/FIRST).write_bytes(raw)
    return spoil
def replaced(old, new): return lambda f: (f/FIRST).write_bytes((f/FIRST).read_bytes().replace(old, new))
def other_tokenizer(f):
    tokenizer = make_tokenizer()
    tokenizer.eos_token = "<bos>"
    os.remove(f/FIRST), save_chunk(f, 0, chunk(some_pairs(4)), tokenizer, "one")
def foreign(f): save_file(load_file(f/LAST), f/FIRST)                        # without what ours tells

SPOILED = {
    "a byte short": (lambda f: os.truncate(f/FIRST, (f/FIRST).stat().st_size - 1), f"{FIRST} is damaged.*bring it back.*anew"),
    "empty": (lambda f: os.truncate(f/FIRST, 0), f"{FIRST} is damaged"),
    "garbage": (lambda f: (f/FIRST).write_bytes(random.Random(0).randbytes(999)), f"{FIRST} is damaged"),
    "zeros": (lambda f: (f/FIRST).write_bytes(bytes(999)), f"{FIRST} is damaged"),
    "the last bit": (flip(-1), f"{FIRST} is damaged.*not what was written.*anew"),
    "a token": (flip(-400), f"{FIRST} is damaged.*not what was written"),
    "a count": (replaced(rb'\"ties\": 0', rb'\"ties\": 1'), f"{FIRST} is damaged.*not what was written"),
    "a column's name": (replaced(b"margin", b"nigram"), f"{FIRST} is damaged.*not what was written"),
    "foreign": (foreign, f"{FIRST} is damaged, or no chunk of pairs"),
    "a chunk is missing": (lambda f: os.remove(f/FIRST), f"holds {LAST} and no {FIRST}: bring it back.*anew"),
    "somebody's file": (lambda f: shutil.copy(f/FIRST, f/"a.safetensors"), "holds a.safetensors and no 000002"),
    "of an older version": (lambda f: (f/"store.json").write_text("{}"), "older version.*anew in another folder"),
    "of another tokenizer": (other_tokenizer, "another tokenizer: the same ids would be other words"),
}
@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_folder_is_refused_with_a_remedy_until_the_copy_is_back(made, tokenizer, name):
    change, message = SPOILED[name]
    kept = {p.name: p.read_bytes() for p in made.iterdir()}
    change(made)
    spoiled = {p.name: p.read_bytes() for p in made.iterdir()}
    assert spoiled != kept
    with pytest.raises(ValueError, match=message): read_chunks(made, tokenizer, "one")
    assert {p.name: p.read_bytes() for p in made.iterdir()} == spoiled       # nothing was mended or cut
    for p in made.iterdir(): p.unlink()
    for file, raw in kept.items(): (made/file).write_bytes(raw)
    assert whole(made, tokenizer)

def test_one_run_writes_a_folder_and_nothing_is_written_over(made, tokenizer):
    assert len(read_chunks(made, tokenizer)) == 2
    with pytest.raises(ValueError, match="is of run 'one', not of 'two': name another folder"): read_chunks(made, tokenizer, "two")
    with pytest.raises(ValueError, match=f"{FIRST} is there"): save_chunk(made, 0, chunk(some_pairs(1)), tokenizer, "one")
    assert whole(made, tokenizer) and read_chunks(made/"none", tokenizer) == []

@POSIX
def test_a_folder_that_may_not_be_read_is_named(made, tokenizer):
    os.chmod(made/LAST, 0)
    try:
        if os.access(made/LAST, os.R_OK): pytest.skip("root reads everything")
        with pytest.raises(PermissionError, match=f"you may not read .*{LAST}"): read_chunks(made, tokenizer)
    finally: os.chmod(made/LAST, stat.S_IRUSR | stat.S_IWUSR)

# ---- killed while it is written
def test_what_a_kill_left_behind_is_dropped(made, tokenizer):
    (made/"000002.safetensors.unfinished").write_bytes(os.urandom(99))
    assert whole(made, tokenizer)
    save_chunk(made, 2, chunk(some_pairs(2, 5)), tokenizer, "one")
    assert same(read_chunks(made, tokenizer)[2].pairs, some_pairs(2, 5)) and len(list(made.iterdir())) == 3

def test_dying_at_any_operation_leaves_the_chunk_or_nothing(made, tokenizer):
    there, k = set(), 0
    while dies_at(k, lambda: save_chunk(made, 2, chunk(some_pairs(3, 5)), tokenizer, "one")):
        found = read_chunks(made, tokenizer, "one")
        there.add(len(found))
        assert same(join_chunks(found[:2], 0).pairs, some_pairs(8))
        if len(found) == 3: os.remove(made/"000002.safetensors")
        k += 1
    assert there == {2, 3} and k > 3

@POSIX
def test_killed_at_random_moments_it_goes_on_and_ends_the_same(tmp_path, tokenizer):
    rng, kills, partial, code = random.Random(3), 0, set(), None
    blocks = [some_pairs(7, seed) for seed in range(40)]
    def write(folder, seconds): # in a child that has so many seconds to live; 0: for ever
        if not (pid := os.fork()):
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)                # nothing catches it
                signal.setitimer(signal.ITIMER_REAL, seconds)
                for k in range(len(read_chunks(folder, tokenizer)), 40): save_chunk(folder, k, chunk(blocks[k], dict(seed=k)), tokenizer)
                os._exit(0)
            finally: os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    everything, killed, before = tmp_path/"everything", tmp_path/"killed", time.perf_counter()
    assert write(everything, 0) == 0
    lasts = 2 * (time.perf_counter() - before)
    while kills < 3 or len(partial) < 3:                 # sooner, where the first ran on a busy machine
        shutil.rmtree(killed, ignore_errors=True)
        lasts, code = lasts / 2, None
        while code != 0:
            code = write(killed, (.02 + .3 * rng.random()) * lasts)
            assert code in (0, -signal.SIGALRM)
            kills += code != 0
            found = read_chunks(killed, tokenizer)
            assert [x.counts for x in found] == [dict(seed=k) for k in range(len(found))] and {len(x) for x in found} <= {7}
            partial.add(len(found))
        for path in everything.iterdir(): assert (killed/path.name).read_bytes() == path.read_bytes(), path.name
        assert len(list(killed.iterdir())) == 40

# ---- the disk says no
@POSIX
@pytest.mark.parametrize("room", [0, 10, 2000])
def test_a_full_disk_leaves_the_last_good_state(made, tokenizer, room):
    big = chunk(some_pairs(900, 4), margin=torch.zeros(900))
    with disk_of(room), pytest.raises(OSError, match="grow.*The 2 chunks from before are whole"): save_chunk(made, 2, big, tokenizer, "one")
    assert whole(made, tokenizer) and len(list(made.iterdir())) == 2
    save_chunk(made, 2, big, tokenizer, "one")                            # the same call, with room
    assert len(read_chunks(made, tokenizer)[2]) == 900
