"""Files of other people's, mutated by seed: each is read, or refused in a sentence, and nothing hangs.

`python tests/test_fuzz.py 5000` tries as many of each format and prints what is not."""
import json, math, os, random, re, signal, sqlite3, sys, time, traceback, warnings, pytest, torch
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path
from rlhf_nb.base.batches import PreferencePairs
from rlhf_nb.base.folder import find_run, foreign_files, write_marker
from rlhf_nb.book.progress import bets, last_verdicts, progress
from rlhf_nb.base.reading import read_text
from rlhf_nb.data.records import read_records
from rlhf_nb.data.rollouts import read_rollouts, rollout_seqs, trl_rows
from rlhf_nb.data.store import PairChunk, read_chunks, save_chunk
from rlhf_nb.data.text import load_pairs
from rlhf_nb.run.evidence import read_rows
from rlhf_nb.run.stages import read_stages
from rlhf_nb.run.train_command import read_recipe
from rlhf_nb.show.dashboard import refresh, show_dashboard
from rlhf_nb.show.labels import LabelSession, add_label
from rlhf_nb.show.live_log import LogFollower, RunControl, control_path
from rlhf_nb.show.rollout_page import rollouts_page
from rlhf_nb.tokens import make_seqs
from tiny_runs import tokenizer

# ---- a right file of each format
def lines(rows): return "".join(json.dumps(row) + "\n" for row in rows).encode()

PAIRS = [dict(prompt=f"The owl {i}", chosen="flies by night", rejected=f"hops {i} times", margin=1.5) for i in range(5)]
ROLL = [dict(step=i // 2, prompt="What is 2 + 2?", response=f"It is {i}.", reward=i / 2, group=i // 2, ids=[5, 6 + i, 7],
             logprobs=[-.5, -1.25, -.1], ref_logprobs=[-.4, -1., None], mask=[1, 1, 0], extra=dict(kind="sum")) for i in range(4)]
UNIPO = dict(step=3, prompts=[dict(prompt="2 + 2?", responses=[dict(response_text="4", tokens=dict(strings=["4"], logprobs=[-.1]), reward=1.)])])
CHATS = [dict(step=1, messages=[dict(role="user", content="Hi"), dict(role="assistant", content="Hello")], metadata=dict(reward=.5))]
TOML = b'model = "sft"\nlora_r = 8\n[[stage]]\nmethod = "reward"\ndata = "pairs.jsonl"\n[[stage]]\nmethod = "ppo"\ndata = "pairs.jsonl"\nreward = "stage 1"\nlr = 1e-4\n'
LABELLED = [("The owl", "flies", "hops"), ("The fox", "runs", "sleeps")]

def make_db(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table traces (id integer, run_name text, step integer, messages text, metadata text)")
        db.executemany("insert into traces values (?, 'r', ?, ?, ?)", [
            (i, i, json.dumps(CHATS[0]["messages"]), json.dumps(dict(reward=i))) for i in range(3)])
        db.commit()

def make_pairs(n):
    rows = [[1 + i, 2] for i in range(n)]
    return PreferencePairs(make_seqs(rows, [[3, 4]] * n, 0), make_seqs(rows, [[5]] * n, 0))

def make_folder(path): # of a run
    path.mkdir()
    write_marker(path/"run.json", "rlhf-nb train", run="abc", files=["lock", "log.jsonl"], settings=dict(lr=.1), stage="x")
    (path/"log.jsonl").write_text('{"step": 1}\n')

# ---- what reads it, and all that is done with it
def read_pairs(path):
    list(read_records(path))
    load_pairs(path, tokenizer(), 64, strict=False)

def look_at(path):
    rollouts_page(path, max_mb=.2)
    x = read_rollouts(path)
    x.said(), trl_rows(x), rollout_seqs(x, tokenizer(), 4)

def follow(path):
    x = LogFollower(path)
    x.update()
    show_dashboard(x.dashboard); refresh(x.dashboard)

def obey(path): # the file of orders of a log
    x = RunControl(path.with_name("other"))
    x.path = path.with_suffix("")
    found = x.orders()
    assert isinstance(found["paused"], bool) and isinstance(found["stop"], bool) and found["save"] > -1

def learn(path): progress(path.parent), bets(path.parent), last_verdicts(path.parent)
def label(path): add_label(LabelSession(LABELLED, path.with_suffix(".jsonl")), "left")
def recipe(path): read_recipe(str(path), "ppo")
def run_folder(path): find_run(path.parent, "rlhf-nb train", True), foreign_files(path.parent)
def kept_pairs(path): read_chunks(path.parent, tokenizer())

FORMATS = {           # name -> file, what a right one holds, who reads it
    "pairs.jsonl": ("p.jsonl", lines(PAIRS), read_pairs), "pairs.json": ("p.json", json.dumps(PAIRS).encode(), read_pairs),
    "pairs.csv": ("p.csv", b"prompt,chosen,rejected\n" + b'The owl,"flies, by night",hops\n' * 4, read_pairs),
    "rollouts.jsonl": ("r.jsonl", lines(ROLL), look_at), "unipo.json": ("u.json", json.dumps(UNIPO).encode(), look_at),
    "chats.jsonl": ("c.jsonl", lines(CHATS * 3), look_at), "trackio.db": ("t.db", make_db, look_at),
    "verl.pt": ("v.pt", lambda path: torch.save(dict(step=1, samples=ROLL), path), look_at),
    "log.jsonl": ("l.jsonl", lines(dict(step=i, loss=1 / (i + 1), reward=dict(mean=i), samples=["a"]) for i in range(4)), follow),
    "trainer_state.json": ("s.json", json.dumps(dict(global_step=3, log_history=[dict(step=i, loss=.5) for i in range(3)])).encode(), follow),
    "control": (control_path("x.log").name, json.dumps(dict(paused=False, stop=True, save=3)).encode(), obey),
    "progress": (".rlhf-nb-progress.jsonl", lines([dict(exercise="bet 08 clip", verdict="75% it clips", when="2026-01-01"), dict(
        exercise="bet 08 clip", verdict="true", when="x"), dict(exercise="kl", verdict="right", when="x", hash="a")]), learn),
    "pipeline.toml": ("p.toml", TOML, lambda path: read_stages(read_text(path))),
    "recipe.toml": ("r.toml", b'about = "x"\nmethod = "ppo"\nlr = 1e-4\nn_iterations = 3\nreward = "a:b"\n', recipe),
    "labels": ("a.labels", lines([dict(format=2), dict(prompt="The owl", chosen="flies", rejected="hops")]), label),
    "experiments": ("e.jsonl", lines(dict(name="a", settings={}, seed=i, found=dict(x=i), version="0") for i in range(3)), read_rows),
    "run.json": ("run.json", None, run_folder),
    "chunk": ("000000.safetensors", None, kept_pairs)}

def right_bytes(name, folder):
    file, data, _ = FORMATS[name]
    if isinstance(data, bytes): return data
    if callable(data): data(folder/"made"); return (folder/"made").read_bytes()
    home = folder/"home"
    if name == "run.json": make_folder(home)
    else: save_chunk(home, 0, PairChunk(make_pairs(3), dict(tie=1), {}), tokenizer())
    return (home/file).read_bytes()

# ---- mutations
WILD = [b"\xef\xbb\xbf", b"\x00", b"\r\n", b"\xff\xfe", b"NaN", b"-Infinity", b"1e999", b"9" * 400, b"9" * 5000, b"[" * 2000, b'{"a":' * 300, b"null",
        b'"', b"}", b"\n", b"\xf0\x9f\x98\x80", b"\\ud800", b"true", b"-1", b"0", b"\x1b[31m", b"<script>alert(1)</script>", b"\xe2\x80\xa8", b"=", b"''", b"[]", b"{}"]
VALUES = [None, True, "", "x" * 3000, "\ud800", [], {}, [None], [[[]]], -1, 0, 10**30, 10**400, 1e308, float("nan"), float("inf"), [1, "a"], [{}], "12", [1.5] * 3, {"a": {"b": 1}}, -2**63, "\0", [True]]

def places(x, found): # (container, key) of everything in a JSON value
    for key in (x if isinstance(x, dict) else range(len(x)) if isinstance(x, list) else ()):
        found.append((x, key))
        places(x[key], found)
    return found

def mutate(data, rng):
    "The bytes with one to three faults; of JSON half of them another value in some place."
    for _ in range(rng.choice([1, 1, 2, 3])):
        kind = rng.randrange(9)
        if kind > 3:
            try:
                rows = [json.loads(x) for x in data.splitlines()] if data.count(b"\n") else [json.loads(data)]
                box, key = rng.choice(places(rows, []))
                if kind == 4 and isinstance(box, dict): del box[key]
                elif kind == 5 and isinstance(box, list): box.insert(key, box[key])
                elif kind == 6 and isinstance(box, dict): box[rng.choice(["step", "group", "a/b", "ids", "tokens", "messages", "metadata", "prompts"])] = box.pop(key)
                else: box[key] = rng.choice(VALUES)
                data = b"\n".join(json.dumps(x).encode() for x in rows) + b"\n" * (len(rows) > 1)
                continue
            except Exception: pass
        i, j = sorted(rng.choices(range(len(data) + 1), k=2))
        j = min(j, i + rng.choice([1, 3, 30]))
        if kind == 0: data = data[:i]
        elif kind == 1: data = data[:i] + data[j:]
        elif kind == 2: data = data[:j] + data[i:]
        elif kind == 3 and data: data = data[:i] + bytes([rng.randrange(256)]) + data[i + 1:]
        else: data = data[:i] + rng.choice(WILD) + data[i:]
    return rng.choice([lambda x: x] * 12 + [lambda x: x.replace(b"\n", b"\r\n"), lambda x: b"\xef\xbb\xbf" + x, lambda x: b"",
        lambda x: x.decode("utf-8", "replace").encode("utf-16"), lambda x: x[:-1]])(data)

RAW = re.compile(r"object is not|has no attribute|NoneType|index out of|unsupported operand|must be str|invalid literal|not subscriptable|codec can't|"
    r"unhashable|not iterable|(?<!broken JSON: )Expecting|maximum recursion|integer string conv|too large to convert|argument must be|unexpected keyword|not enough values|"
    r"^'\w+'$|could not convert|expected string or bytes|cannot convert|can only concatenate|surrogates not allowed|required argument")

class Late(BaseException): "It took too long."

@contextmanager
def within(seconds):
    def late(*_): raise Late
    old = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try: yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)

def verdict(name, data, folder): # "read", "refused", or what is wrong
    file, _, use = FORMATS[name]
    where = folder/"home"/file if FORMATS[name][1] is None else folder/file
    where.write_bytes(data)
    try:
        with within(20), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            use(where)
        return "read"
    except Late: return "hangs"
    except (ValueError, OSError) as e:
        own = type(e).__module__.startswith("rlhf_nb") or type(e) in (ValueError, OSError, FileNotFoundError)
        return "refused" if own and not RAW.search(str(e)) and len(str(e)) < 12000 else f"raw words: {type(e).__name__}: {str(e)[:150]}"
    except Exception as e:
        at = [f for f in traceback.extract_tb(e.__traceback__) if "rlhf_nb" in f.filename]
        return f"{type(e).__name__}: {str(e)[:80]} at {Path(at[-1].filename).name}:{at[-1].lineno}" if at else repr(e)

def try_all(name, folder, n, seed=0):
    "Counter of verdicts on n mutations, and a file for each that is wrong."
    right, found, bad = right_bytes(name, folder), Counter(), {}
    assert verdict(name, right, folder) == "read", verdict(name, right, folder)
    for k in range(n):
        data = mutate(right, random.Random(f"{name} {seed} {k}"))
        for left in folder.glob("a.*"): left.unlink()
        found[said := verdict(name, data, folder)] += 1
        if said not in ("read", "refused"): bad.setdefault(said, data)
        (folder/FORMATS[name][0]).unlink(missing_ok=True)
    return found, bad

@pytest.mark.parametrize("name", FORMATS)
def test_a_mutated_file_is_read_or_refused_in_a_sentence(name, tmp_path):
    found, bad = try_all(name, tmp_path, 30)
    assert not bad, bad
    assert found["read"] + found["refused"] == 30

if __name__ == "__main__":
    import tempfile
    n, only = int(sys.argv[1]), sys.argv[2:]
    for name in only or FORMATS:
        with tempfile.TemporaryDirectory() as folder:
            began = time.process_time()
            found, bad = try_all(name, Path(folder), n, seed=1)
            print(f"{name:20}{found['read']:6} read {found['refused']:6} refused  {time.process_time() - began:.1f} s")
            for said, data in bad.items(): print(f"    {found[said]} x {said}" + (f"   {data[:100]}" if "-v" in sys.argv else ""))
