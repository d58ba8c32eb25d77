"""Bad inputs by the hundred and extreme numbers in three formats: is each a sentence, or right? To benchmarks/results/odd_trials.json.

A bad input is a command line, or a call of a public function, in a process of its own that is forked when all is imported, in a folder of
its own, as a user who may not read `locked` files. It ends as one of: `sentence` (status 1 or 2 and words that are not Python's), `right`
(accepted, and ACCEPTED says why that is right), `silent` (accepted, and it does not), `traceback`, `raw` (the last words are Python's, or a
library's), `hang` (240 s, or 60 of the CPU), `died`, `harmed` (a file that was there is another now).

An extreme number is an expression in float32, bf16 and float16 beside the same in float64: `right`, `refused`, `overflow` (the true number is
beyond the format), `nan said`, `inf said`, `wrong said` (docstring or signature say so), `nan` or `inf` (finite numbers were given and nobody
says so), `nan of nan`, `nan of inf` (such were given, and nobody says so), `wrong` (not float64's number), `outside` (a draw that has
probability 0), `raw`.

What is in --rows is not tried again; `--only WORDS` tries what matches; `--before FILE` sets the rows of an earlier package beside."""
import argparse, io, json, math, os, re, resource, shlex, shutil, signal, sys, tempfile, time, traceback, warnings
from collections import Counter
from hashlib import sha256
from pathlib import Path
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT/"tests"), str(ROOT/"scripts")]
import torch
from long_trials import PIPELINE, SWEEP
from numeric import says
from rlhf_nb.base.files import atomic_write
from rlhf_nb.book.command import _LATE, main, make_parser
from test_fuzz import RAW
from tiny_runs import fill_home, pair_rows, run, tiny, tokenizer, write_lines

# ---- bad inputs: what lies there
PAIR = dict(prompt="The owl", chosen="The owl flies", rejected="The fox hops", completion="The owl", label=True, response="The owl", reward=1.)
def rows_with(**more): return "".join(json.dumps(PAIR | more) + "\n" for _ in range(8)).encode()
FILES = {"empty.jsonl": b"", "blank.jsonl": b"\n\n\n", "nul.jsonl": b"\0" * 99, "binary.jsonl": bytes(range(256)) * 9, "utf16.jsonl": rows_with().decode().encode("utf-16"),
    "latin.jsonl": rows_with().replace(b"owl", b"ow\xe9"), "half.jsonl": rows_with()[:-20], "array.jsonl": b"[1, 2]\n", "number.jsonl": b"1\n2\n", "word.jsonl": b'"a"\n',
    "null.jsonl": rows_with(prompt=None, response=None), "columns.jsonl": b'{"a": 1}\n', "dict.jsonl": rows_with(prompt=dict(a=1)), "list.jsonl": rows_with(prompt=["a"], response=[1]),
    "one.jsonl": rows_with()[:len(rows_with()) // 8], "same.jsonl": rows_with(chosen="The owl", rejected="The owl"), "blanks.jsonl": rows_with(prompt="", chosen="", response=""),
    "long.jsonl": rows_with(prompt="The owl " * 50_000), "deep.jsonl": b'{"prompt": ' + b"[" * 100_000 + b"\n", "nan.jsonl": rows_with(reward=math.nan, margin=math.nan),
    "inf.jsonl": rows_with(reward=math.inf, margin=math.inf), "huge.jsonl": rows_with(reward=10**400, margin=10**400), "text.jsonl": rows_with(reward="good", label="up", margin="a"),
    "surrogate.jsonl": rows_with(prompt="\ud800", response="\ud800"), "bom.jsonl": b"\xef\xbb\xbf" + rows_with(), "crlf.jsonl": rows_with().replace(b"\n", b"\r\n"),
    "twice.jsonl": b'{"prompt": "a", "prompt": "b", "chosen": "c", "rejected": "d", "response": "e", "reward": 1}\n' * 8, "semi.csv": b"prompt;chosen;rejected\na;b;c\n" * 8,
    "ragged.csv": b"prompt,chosen,rejected\na,b\n", "bad.parquet": b"PAR1 no", "object.json": b'{"prompt": "a"}', "rows.txt": rows_with(), "rows.zip": b"PK\3\4 no",
    "\u00fc \U0001f989.jsonl": rows_with(), "roles.jsonl": b'{"messages": [{"role": "king", "content": "a"}]}\n' * 8, "turns.jsonl": b'{"messages": []}\n' * 8,
    "bad.db": b"SQLite format 3\0 no", "bad.pt": b"PK no", "e.labels": b'{"format": 2}\n{"prompt": "x", "chosen": "y", "rejected": "z"}\n', "f.labels": b'{"format": 99}\n', "g.labels": b"{}\n",
    "raises.py": b"raise KeyError('x')\n", "exits.py": b"import sys; sys.exit(0)\n", "syntax.py": b"def f(:\n", "empty.py": b"", "loops.py": b"def f(prompts, responses):\n    while True: pass\n",
    "f.py": b"""import torch, sys, os
x = 3
def none(*a, **k): return None
def word(*a, **k): return ['a'] * len(a[1])
def few(prompts, responses): return [1.]
def nans(prompts, responses): return [float('nan')] * len(responses)
def infs(prompts, responses): return [float('inf')] * len(responses)
def big(prompts, responses): return [1e300] * len(responses)
def huge(prompts, responses): return [10**400] * len(responses)
def raises(*a, **k): raise KeyError('x')
def exits(*a, **k): sys.exit(0)
def ends(*a, **k): os._exit(0)
def noargs(): return 1.
def recurse(*a, **k): return recurse(*a, **k)
def mutates(prompts, responses): responses.clear(); return [0.]
def generator(prompts, responses): yield 1.
async def later(prompts, responses): return [0.] * len(responses)
def bools(prompts, responses): return [True] * len(responses)
def complex_(prompts, responses): return [1j] * len(responses)
def tensor2(prompts, responses): return torch.zeros(len(responses), 2)
def loss(logp, advantages, mask, ref_logp, old_logp, epsilon, epsilon_high, beta, max_length): return torch.tensor(float('nan'))
"""}
BAD_TOML = {"t_empty": b"", "t_half": b"model = ", "t_twice": b"lr = 1\nlr = 2\n", "t_u16": "lr = 1".encode("utf-16"), "t_nul": b"lr = 1\0", "t_bin": bytes(range(256)),
    "t_key": b'model = "m"\ndata = "pairs.jsonl"\nwings = 2\n', "t_type": b'model = "m"\ndata = "pairs.jsonl"\nlr = "fast"\n', "t_date": b'model = "m"\ndata = "pairs.jsonl"\nlr = 2020-01-01\n',
    "t_nan": b'model = "m"\ndata = "pairs.jsonl"\nlr = nan\n', "t_inf": b'model = "m"\ndata = "pairs.jsonl"\nlr = inf\n', "t_neg": b'model = "m"\ndata = "pairs.jsonl"\nn_steps = -1\n',
    "t_list": b'model = "m"\ndata = "pairs.jsonl"\nlr = []\n', "t_nest": b'model = "m"\ndata = "pairs.jsonl"\nlr = [[1e-3]]\n', "t_table": b'[model]\nx = 1\n', "t_big": b'model = "m"\ndata = "pairs.jsonl"\nn_steps = 99999999999999999999999\n',
    "t_dots": b'data = "../../../etc/passwd"\nmodel = "m"\n', "t_deep": b"x = " + b"[" * 5000, "t_float": b'model = "m"\ndata = "pairs.jsonl"\nn_steps = 1.5\n', "t_bool": b'model = "m"\ndata = "pairs.jsonl"\nn_steps = true\n'}
STAGE = b'model = "m"\ndata = "pairs.jsonl"\neval_rows = 0\n'
BAD_PIPELINES = {"s_none": STAGE, "s_word": STAGE + b'stage = "sft"\n', "s_int": STAGE + b"stage = [1, 2]\n", "s_nomethod": STAGE + b"[[stage]]\nn_steps = 1\n", "s_method": STAGE + b'[[stage]]\nmethod = "sftt"\n',
    "s_int_method": STAGE + b"[[stage]]\nmethod = 3\n", "s_later": STAGE + b'[[stage]]\nmethod = "grpo"\nreward = "stage 2"\n[[stage]]\nmethod = "reward"\n', "s_self": STAGE + b'[[stage]]\nmethod = "grpo"\nreward = "stage 1"\n',
    "s_zero": STAGE + b'[[stage]]\nmethod = "grpo"\nreward = "stage 0"\n', "s_kind": STAGE + b'[[stage]]\nmethod = "sft"\nn_steps = 1\n[[stage]]\nmethod = "grpo"\nreward = "stage 1"\n',
    "s_key": STAGE + b'[[stage]]\nmethod = "sft"\nbeta = 1\n', "s_nodata": b'[[stage]]\nmethod = "sft"\n', "s_table": STAGE + b'[stage]\nmethod = "sft"\nn_steps = 1\n'}

def model_faults(home): # folders of models, each with one fault
    for name in "noconfig badconfig othertype emptycfg cutweights nanweights noweights notokenizer badtokenizer shapes pickled bigvocab zerolayers deepcfg".split(): shutil.copytree(home/"m", home/name)
    def config(name, **more): (home/name/"config.json").write_text(json.dumps(json.loads((home/name/"config.json").read_text()) | more))
    (home/"noconfig/config.json").unlink()
    (home/"badconfig/config.json").write_text("{half")
    (home/"emptycfg/config.json").write_text("{}")
    (home/"deepcfg/config.json").write_text("[" * 100_000)
    config("othertype", model_type="owl"); config("shapes", hidden_size=32); config("bigvocab", vocab_size=10**9); config("zerolayers", num_hidden_layers=-1)
    w = home/"cutweights/model.safetensors"; w.write_bytes(w.read_bytes()[:1000])
    (home/"noweights/model.safetensors").unlink()
    from safetensors.torch import load_file, save_file
    save_file({k: v * math.nan if v.is_floating_point() else v for k, v in load_file(home/"m/model.safetensors").items()}, home/"nanweights/model.safetensors", dict(format="pt"))
    for f in (home/"notokenizer").glob("*token*"): f.unlink()
    for f in (home/"badtokenizer").glob("tokenizer.json"): f.write_text("{}")
    (home/"pickled/model.safetensors").unlink(); (home/"pickled/pytorch_model.bin").write_bytes(b"\x80\x04no")
    (home/"emptydir").mkdir()

def fill(home):
    fill_home(home)
    os.chdir(home)
    for name, data in FILES.items(): (home/name).write_bytes(data)
    for name, data in (BAD_TOML | BAD_PIPELINES).items(): (home/f"{name}.toml").write_bytes(data)
    (home/"p.toml").write_text(PIPELINE); (home/"s.toml").write_text(SWEEP)
    model_faults(home)
    run(tiny("grpo"), "done"); run(tiny("sft"), "done2")
    for name in "noweights_run nojson_run halfjson_run foreign_run nolog_run future_run".split(): shutil.copytree("done2", name)
    (home/"noweights_run/model.safetensors").unlink(); (home/"nojson_run/run.json").unlink(); (home/"halfjson_run/run.json").write_text("{half")
    (home/"foreign_run/run.json").write_text('{"written_by": "somebody else"}'); (home/"nolog_run/log.jsonl").unlink()
    (home/"future_run/run.json").write_text((home/"done2/run.json").read_text().replace('"format"', '"form"'))
    (home/"bad.ipynb").write_text("{half"); (home/"list.ipynb").write_text("[]"); (home/"nocells.ipynb").write_text('{"nbformat": 4, "nbformat_minor": 5, "metadata": {}}'); (home/"dir.ipynb").mkdir()
    (home/"dir.jsonl").mkdir(); (home/"dir.toml").mkdir(); (home/"dir.html").mkdir()
    (home/"notours").mkdir(); (home/"notours/notes.txt").write_text("years of work")
    (home/"halfcopy").mkdir(); (home/"halfcopy/.rlhf-nb.json").write_text("{half")
    os.mkfifo(home/"fifo.jsonl"); os.mkfifo(home/"fifo.toml")
    for a, b in (("loop.jsonl", "loop.jsonl"), ("gone.jsonl", "nowhere"), ("loopdir", "loopdir"), ("loop.toml", "loop.toml")): os.symlink(b, home/a)
    (home/"locked.jsonl").write_bytes(rows_with()); (home/"lockeddir").mkdir(); (home/"locked.toml").write_bytes(b"lr = 1")

# ---- bad inputs: what is asked
DATA = """missing.jsonl dir.jsonl '' /dev/null /dev/zero fifo.jsonl loop.jsonl gone.jsonl locked.jsonl lockeddir/a.jsonl LONGNAME NULNAME pairs.jsonl/x ~nobody/x http://x.invalid/a.jsonl nobody/nothing a:b:c
 empty.jsonl blank.jsonl nul.jsonl binary.jsonl utf16.jsonl latin.jsonl half.jsonl array.jsonl number.jsonl word.jsonl null.jsonl columns.jsonl dict.jsonl list.jsonl one.jsonl same.jsonl blanks.jsonl long.jsonl
 deep.jsonl nan.jsonl inf.jsonl huge.jsonl text.jsonl surrogate.jsonl bom.jsonl crlf.jsonl twice.jsonl semi.csv ragged.csv bad.parquet object.json rows.txt rows.zip UNINAME roles.jsonl turns.jsonl"""
def some(words): return shlex.split(words)
FIT, RL = "--n-steps 1 --batch-size 4 --eval-rows 0", "--n-iterations 1 --n-prompts 2 --max-new-tokens 3 --eval-rows 0"
def over(template, values): return [template.replace("{}", shlex.quote(x)) for x in values]
COMMANDS = [
    *over(f"train dpo {{}} -o out --model m {FIT}", some(DATA)),
    *over(f"train reward {{}} -o out --model m {FIT}", some("nan.jsonl inf.jsonl huge.jsonl text.jsonl dir.jsonl one.jsonl")),
    *over(f"train sft {{}} -o out --model m {FIT}", some("roles.jsonl turns.jsonl list.jsonl null.jsonl deep.jsonl blanks.jsonl one.jsonl long.jsonl surrogate.jsonl")),
    *over(f"train kto {{}} -o out --model m {FIT}", some("text.jsonl null.jsonl one.jsonl pairs.jsonl thumbs.jsonl/")),
    *over(f"train q {{}} -o out --model m {FIT}", some("nan.jsonl inf.jsonl huge.jsonl text.jsonl null.jsonl pairs.jsonl one.jsonl")),
    *over(f"train grpo {{}} -o out --model m --reward tiny_rules:even {RL}", some("dict.jsonl blanks.jsonl long.jsonl one.jsonl surrogate.jsonl empty.jsonl fifo.jsonl deep.jsonl")),
    *over("show {} -o page.html", some(DATA + " bad.db bad.pt done2 notours nolog_run noweights_run pairs.jsonl m lockeddir")),
    *over("best-of-n m rm {} -n 2 --max-new-tokens 3", some("missing.jsonl dir.jsonl empty.jsonl fifo.jsonl deep.jsonl dict.jsonl blanks.jsonl long.jsonl one.jsonl surrogate.jsonl /dev/zero NULNAME locked.jsonl")),
    *over("judge m t --prompts {} --judge rm --max-new-tokens 3", some("missing.jsonl dir.jsonl empty.jsonl fifo.jsonl deep.jsonl dict.jsonl blanks.jsonl one.jsonl NULNAME")),
    *over("judge m t --prompts pairs.jsonl --labels {} --max-new-tokens 3", some("missing.labels dir.jsonl empty.jsonl e.labels f.labels g.labels binary.jsonl fifo.jsonl NULNAME")),
    *over("sweep dpo --settings {} -o out --dry-run", [f"{x}.toml" for x in BAD_TOML] + some("missing.toml dir.toml fifo.toml loop.toml locked.toml NULNAME")),
    *over("pipeline run {} -o out", [f"{x}.toml" for x in BAD_PIPELINES] + some("t_half.toml t_u16.toml t_bin.toml t_deep.toml missing.toml dir.toml fifo.toml loop.toml")),
    *over(f"train dpo pairs.jsonl -o out --model m {FIT} --recipe {{}}", some("missing.toml dir.toml fifo.toml t_half.toml t_u16.toml t_key.toml t_type.toml t_deep.toml smollm2-dpoo NULNAME")),
    *over(f"train dpo pairs.jsonl -o out {FIT} --model {{}}", some("missing dir.jsonl emptydir noconfig badconfig emptycfg othertype deepcfg cutweights nanweights noweights notokenizer badtokenizer shapes "
        "pickled zerolayers rm pairs.jsonl loopdir NULNAME LONGNAME ../../x nobody/nothing http://x.invalid/m 'a b' a/b/c")),
    *over(f"train grpo pairs.jsonl -o out --model m {RL} --reward {{}}", some("missing m pairs.jsonl nomodule:f f:missing f:x f:none f:word f:few f:nans f:infs f:big f:huge f:raises f:exits f:ends f:noargs f:recurse "
        "f:mutates f:generator f:later f:bools f:complex_ f:tensor2 raises:f exits:f syntax:f empty:f : :f f: f:f:f 1*f:big .5*nothing nan*tiny_rules:even inf*tiny_rules:even a,b '' 'os:system' emptydir cutweights")),
    f"train grpo pairs.jsonl -o out --model m {RL} --reward loops:f --reward-timeout 1", f"train grpo pairs.jsonl -o out --model m {RL} --reward-timeout nan --reward f:big",
    *[f"train dpo pairs.jsonl -o out --model m {FIT} {x}" for x in ("--lr -1", "--lr 0", "--lr nan", "--lr inf", "--lr 1e30", "--lr 1e-300", "--lr x", "--beta 0", "--beta -1", "--beta nan", "--beta 1e300", "--beta 1e-300",
        "--n-steps 0", "--n-steps -1", "--n-steps 1.5", "--n-steps 1e3", "--batch-size 0", "--batch-size 99999999999999", "--max-length 0", "--max-length 1", "--max-length 99999999999999999999", "--eval-rows -2", "--eval-rows 9999",
        "--seed -1", "--seed 99999999999999999999999", "--lora-r -1", "--lora-r 999999", "--lora-r 2 --lora-targets wings", "--max-logits-mb 0", "--max-logits-mb -1", "--max-logits-mb 1e-30", "--max-logits-mb nan",
        "--warmup-steps -1", "--warmup-steps 999999", "--max-grad-norm 0", "--max-grad-norm inf", "--weight-decay -1", "--weight-decay 1e30", "--final-lr-frac -1", "--final-lr-frac 2", "--micro-batch-size 0", "--micro-batch-size 99999999999",
        "--device tpu", "--device cuda", "--device cuda:99", "--device ''", "--mixed-precision fp8", "--mixed-precision bf16", "--optimizer lion", "--load-in 4bit", "--load-in 2bit", "--attn-implementation x", "--stop-token wings", "--columns a",
        "--columns prompt=nothing", "--columns =", "--columns prompt=chosen,prompt=rejected", "--report-to owl", "--push-to-hub ''", "--push-to-hub a/b/c/d", "--kl-to nowhere", "--measure nowhere", "--accept-changed x", "--eval-every -1", "-o ''", "-o pairs.jsonl",
        "-o m", "-o notours", "-o NULNAME", "-o LONGNAME", "-o loopdir", "-o lockeddir/x", "-o /dev/null", "-o /proc/x", "-o gone.jsonl", "-o .", "-o ..", "-o /", "-o fifo.jsonl", "--wings 2", "--lr", "extra")],
    *[f"train grpo pairs.jsonl -o out --model m {RL} --reward tiny_rules:even {x}" for x in ("--temperature 0", "--temperature -1", "--temperature 1e-30", "--temperature 1e30", "--temperature nan", "--epsilon -1", "--epsilon 1e30",
        "--num-generations 0", "--num-generations 1", "--num-generations 1000000000", "--n-prompts 0", "--n-prompts 1000000000000", "--max-new-tokens 0", "--max-new-tokens 1000000", "--n-iterations 0", "--beta -1", "--beta 1e30",
        "--lag -1", "--lag 9999", "--dynamic-sampling 0", "--importance-sampling-cap -1", "--importance-sampling-cap 1e-30", "--rollouts-mb -1", "--rollouts-mb nan", "--reward-timeout 1e-30", "--environment f:none", "--environment f:word", "--loss-type x", "--save-every 0")],
    *some("'' trian 'train' 'train x' '--wings' 'train dpo' 'train --list nothing' 'train --resume' 'train --resume nowhere' 'train --resume pairs.jsonl' 'train --resume notours' 'train --resume m' 'train --resume halfjson_run' "
        "'train --resume foreign_run' 'train --resume nojson_run' 'train --resume done2' 'copy pairs.jsonl' 'copy lockeddir/x' 'copy loopdir' 'copy NULNAME' 'copy /dev/null/x' 'copy halfcopy' 'copy --exercises --solutions x' 'copy LONGNAME' "
        "'check' 'check --dir nowhere' 'check --dir pairs.jsonl' 'check --dir halfcopy' 'check --dir NULNAME' 'check nothing --dir halfcopy' 'check --dir loopdir' 'run nothing -o out' 'run bad.ipynb -o out' 'run list.ipynb -o out' 'run nocells.ipynb -o out' 'run dir.ipynb -o out' "
        "'run tokens -o pairs.jsonl' 'run tokens --timeout 0' 'run tokens --timeout -1' 'run tokens --timeout x' 'run NULNAME -o out' 'fetch nothing' 'fetch smollm2 pairs.jsonl' 'fetch smollm2 notours' 'fetch \"\"' 'fetch NULNAME x' "
        "'export missing -o out' 'export pairs.jsonl -o out' 'export m -o out' 'export done -o notours' 'export done -o pairs.jsonl' 'export done --to verl -o out' 'export t_half.toml -o out' 'export fifo.toml -o out' 'export done --to x -o out' 'export halfjson_run -o out' 'export NULNAME -o out' 'export s_none.toml -o out' "
        "'judge m' 'judge m missing --prompts pairs.jsonl --judge rm' 'judge m t --prompts pairs.jsonl' 'judge m t --prompts pairs.jsonl --judge f:raises --max-new-tokens 3' 'judge m t --prompts pairs.jsonl --judge f:none --max-new-tokens 3' "
        "'judge m t --prompts pairs.jsonl --judge t --judge-prompt nothing --max-new-tokens 3' 'judge m t --prompts pairs.jsonl --judge rm -o notours --max-new-tokens 3' 'judge m t --prompts pairs.jsonl --judge rm --max-prompts 0' 'judge m t --prompts pairs.jsonl --judge rm --temperature nan' 'judge rm t --prompts pairs.jsonl --judge rm --max-new-tokens 3' "
        "'judge pairs.jsonl t --prompts pairs.jsonl --judge rm --max-new-tokens 3' 'judge m t --prompts pairs.jsonl --judge m --max-new-tokens 3' 'judge m t --prompts pairs.jsonl --judge rm --seed -1 --max-new-tokens 3' 'judge m t --prompts one.jsonl --judge rm --max-new-tokens 3' "
        "'best-of-n m m pairs.jsonl --max-new-tokens 3' 'best-of-n rm rm pairs.jsonl --max-new-tokens 3' 'best-of-n m rm pairs.jsonl -n 0' 'best-of-n m rm pairs.jsonl -n -1' 'best-of-n m rm pairs.jsonl -n 100000000000' 'best-of-n m rm pairs.jsonl --temperature -1' 'best-of-n m rm pairs.jsonl --temperature nan' 'best-of-n m rm pairs.jsonl -n 2 --max-prompts 0' "
        "'best-of-n m rm pairs.jsonl -n 2 --max-length 0' 'best-of-n m rm pairs.jsonl -n 2 --max-new-tokens 3 -o pairs.jsonl' 'best-of-n m rm pairs.jsonl -n 2 --max-new-tokens 3 -o notours' 'best-of-n m rm pairs.jsonl -n 2 --max-new-tokens 3 -o no/where/x' 'best-of-n nanweights rm pairs.jsonl -n 2 --max-new-tokens 3' 'best-of-n m rm pairs.jsonl -n 2 --seed 99999999999999999999999' "
        "'show done -o dir.html' 'show done -o pairs.jsonl' 'show done -o no/where/x.html' 'show done -o NULNAME' 'show done -o x.html --sort nothing' 'show done -o x.html --columns =' 'show done -o x.html --columns response=nothing' 'show done' 'show done -o lockeddir/x.html' "
        "'compare x' 'compare done' 'compare done done2' 'compare done missing' 'compare done pairs.jsonl' 'compare done m' 'compare done halfjson_run' 'compare done nojson_run' 'compare done nolog_run' 'compare done NULNAME' 'compare a b c' "
        "'reproduce nothing' 'reproduce 08-lambda --seeds x' 'reproduce 08-lambda --seeds 5-1' 'reproduce 08-lambda --seeds -1' 'reproduce 08-lambda --seeds 1-99999999999' 'sweep nothing --settings s.toml -o out' 'sweep dpo --settings s.toml --seeds 0 -o out' 'sweep dpo --settings s.toml --seeds -1 -o out' 'sweep dpo --settings s.toml --seeds x -o out' 'sweep dpo --settings s.toml --seeds 1 -o notours' 'sweep dpo --settings s.toml --seeds 1 -o pairs.jsonl' 'sweep dpo --settings s.toml --seeds 1 -o out --quality nothing' "
        "'doctor-game --runs 0' 'doctor-game --runs 99' 'doctor-game --runs x' 'doctor-game --seed -1' 'doctor-game --runs 2' 'prove f.py:loss' 'prove f.py:loss --kind nothing' 'prove missing.py:f --kind grpo' 'prove f.py --kind grpo' 'prove f.py:nothing --kind grpo' 'prove f.py:x --kind grpo' 'prove f.py:none --kind grpo' 'prove f.py:raises --kind grpo' 'prove f.py:exits --kind grpo' 'prove f.py:recurse --kind kl' 'prove f.py:noargs --kind dpo' 'prove f.py:word --kind judge' 'prove f.py:later --kind kl' "
        "'prove f.py:loss --kind grpo' 'prove syntax.py:f --kind grpo' 'prove raises.py:f --kind grpo' 'prove exits.py:f --kind grpo' 'prove dir.jsonl:f --kind grpo' 'prove binary.jsonl:f --kind grpo' 'prove f.py:none --kind grpo -o dir.html' 'prove f.py:none --kind grpo -o pairs.jsonl' 'prove NULNAME:f --kind grpo' 'prove fifo.jsonl:f --kind kl' 'prove loops.py:f --kind kl' "
        "'teach plan --weeks 0' 'teach plan --weeks -1' 'teach plan --weeks 9999' 'teach plan --weeks x' 'teach set' 'teach set pairs.jsonl --seed 1' 'teach set notours --seed 1' 'teach report nowhere' 'teach report pairs.jsonl' 'teach report emptydir' 'teach x' 'verify nowhere' 'verify pairs.jsonl' 'verify m' 'verify noweights_run' 'verify nojson_run' 'verify halfjson_run' 'verify foreign_run' 'verify loopdir' 'verify NULNAME' 'verify emptydir' 'verify future_run' "
        "'pipeline' 'pipeline x' 'pipeline run' 'pipeline run p.toml -o pairs.jsonl' 'pipeline run p.toml -o notours' 'doctor --model nowhere' 'doctor --model pairs.jsonl' 'doctor --model emptydir' 'doctor --model badconfig' 'doctor --model NULNAME' 'doctor x' 'env x' 'paths x' 'lab --exercises --nbgrader x' 'lab pairs.jsonl' 'env -- x'")]
CALLS = """make_seqs([], [], 0) | make_seqs([[1]], [], 0) | make_seqs([[]], [[1]], 0) | make_seqs([[1.5]], [[2]], 0) | make_seqs([["a"]], [["b"]], 0) | make_seqs(None, None, 0) | make_seqs([[1]], [[0]], 0) | make_seqs([[1]], [[2]], None)
 make_seqs([[1]], [[10**30]], 0) | pad_right([[1], None], 0) | pad_left([], 0) | SamplingParams(temperature="hot") | SamplingParams(max_new_tokens=0) | SamplingParams(top_p=2) | SamplingParams(top_k=-1) | SamplingParams(top_p=0) | SamplingParams(max_new_tokens=True)
 generate(m, ["The owl"], tok, SP, gen()) | generate(m, [[]], tok, SP, gen()) | generate(m, [], tok, SP, gen()) | generate(m, [[10**9]], tok, SP, gen()) | generate(m, [[-1]], tok, SP, gen()) | generate(m, [[1.5]], tok, SP, gen()) | generate(m, [[5]], tok, SP, 0) | generate(m, [[5]], None, SP, gen())
 generate(m, [[5]], tok, 3, gen()) | generate(m, [[5] * 10**6], tok, SP, gen()) | generate(None, [[5]], tok, SP, gen()) | generate(m, None, tok, SP, gen()) | generate(m, [5], tok, SP, gen()) | generate(m, tok(["The owl"]), tok, SP, gen())
 load_lm("nowhere") | load_lm("") | load_lm(None) | load_lm(3) | load_lm("nul\\0") | load_lm("rm") | load_bundled("nothing") | load_bundled(None) | load_reward_model("m") | load_reward_model("nowhere") | load_pairs("pairs.jsonl", None) | load_pairs("pairs.jsonl", tok, 0) | load_pairs("pairs.jsonl", tok, -3)
 load_pairs(None, tok) | load_pairs(3, tok) | load_pairs([], tok) | load_pairs([1], tok) | load_pairs([{}], tok) | load_pairs({}, tok) | load_prompts("", tok) | TrainConfig(lr=-1) | TrainConfig(lr="x") | TrainConfig(n_steps=0) | TrainConfig(n_steps=1.5) | TrainConfig(batch_size=0) | TrainConfig(optimizer="lion") | TrainConfig(wings=2)
 JudgePrompt("no blanks", "Score: {{ reward }}") | JudgePrompt("{{ prompt }}{{ response }}", "no blank") | JudgePrompt("{{ prompt }}{{ response }}", "Score: {{ reward }}", 5, 0) | JudgePrompt("{{ prompt }", "x") | JudgePrompt("{{ prompt }}{{ response }}{{ x }}", "{{ reward }}") | JudgePrompt(3, "x") | JudgePrompt("{{ prompt }}{{ response }}{% for i in range(10**12) %}{% endfor %}", "{{ reward }}")
 parse_score("Score: " + "9" * 5000) | parse_score("Score: 1e400") | parse_score("Score: nan") | parse_score("Score: inf") | parse_score("Score: -0") | parse_score("(" * 100000, "({{ reward }}") | parse_score(None) | parse_score("Score: \u0663") | parse_score("Score: 3" * 10000) | parse_score("Score:" + " " * 100000 + "x") | parse_score("Score: 3 out of 10") | parse_score("Score: ++3")
 loss_weights(torch.ones(2, 3).bool(), "x", 3) | pass_at_k(torch.tensor([1]), 4, 5) | pass_at_k(torch.tensor([1]), 4, 0) | pass_at_k(torch.tensor([1.5]), 4, 1) | micro_world(("a",)) | micro_world(max_len=0) | micro_world(max_len=50) | micro_world(max_len="x") | prove(3, "grpo") | prove(print, "nothing") | read_rollouts(None) | read_rollouts([]) | read_rollouts([3]) | read_rollouts({}) | read_rollouts("") | read_rollouts("nowhere")
 read_rollouts([{"response": None}]) | show_rollouts(None) | show_rollouts([]) | show_log("nowhere.jsonl") | show_log("dir.jsonl") | show_log(None) | train_dpo(m, None, TrainConfig(), gen()) | train_sft(m, None, TrainConfig(), gen()) | train_reward(m, None, TrainConfig(), gen()) | make_trainer(None, TrainConfig()) | read_records(None) | fetch_model("nothing", "x") | verify_run(None) | verify_run("") | compare_folders("done", "")
 calculator(tok)([5], [["a"]]) | majority_vote(None) | majority_vote([[1]]) | bootstrap_interval(lambda i: 1., 0, gen()) | bradley_terry_scores(torch.zeros(2, 2)) | bradley_terry_scores(torch.ones(2, 3)) | fit_overoptimization(torch.ones(1), torch.ones(1), "RL") | best_of_n(torch.zeros(3)) | best_of_n(torch.zeros(2, 0)) | preference_accuracy(torch.zeros(2), torch.zeros(3)) | confusion_matrix(torch.tensor([9.]), torch.tensor([9.])) | confusion_matrix(torch.tensor([-1.]), torch.tensor([1.]))"""
def calls(): return [x.strip() for line in CALLS.split("\n") for x in line.split(" | ")]
NAMES = dict(NULNAME="a\0b.jsonl", LONGNAME="x" * 300 + ".jsonl", UNINAME="\u00fc \U0001f989.jsonl")

ACCEPTED = { # trial (a pattern) -> why it is right that it is accepted
    r"(one|bom|crlf)\.jsonl|UNINAME|rows\.txt|compare done (done2|nolog_run)|thumbs\.jsonl/": "the rows are good: one is few, but can be learned from",
    r"long\.jsonl": "the prompt is cut, and the report says how many were",
    r"train (dpo|reward) (nan|inf|text)\.jsonl": "the faulty columns are not read by this method",
    r"^show .*\.(jsonl|txt) -o page": "the page shows what is there: nan, texts, rows without a reward; a damaged last line is said",
    r"t_big|--batch-size 9|--micro-batch-size 9|--warmup-steps 9|--max-logits-mb 1e-30|--lora-r 9|--lag 9": "more than there is of it does no harm, and takes as long as asked",
    r"--lr 1e|--beta 1e|--weight-decay 1e30|--temperature 1e|--importance-sampling-cap 1e-30|--max-grad-norm inf": "a number that can be computed with; weights that break stop the next step in words",
    r"--mixed-precision bf16|--push-to-hub ''|--reward f:bools|--environment f:none|--seed -1|-o gone|-o no/where|-o notours": "means what it says, and nothing of the user's is touched",
    r"^judge m t --prompts pairs.jsonl( --judge m --max-new-tokens 3)?$": "it says that nothing is known yet, and why",
    r"^judge pairs.jsonl": "a file of answers to these prompts",
    r"^$": "no word prints the help", r"^parse_score": "no score (None), or the one that stands there", r"^show_log": "waits for the file"}

def space(home): # what a call knows
    from importlib import import_module
    found = dict(torch=torch, tok=tokenizer(), gen=lambda: torch.Generator().manual_seed(0))
    for file in sorted((ROOT/"rlhf_nb").rglob("*.py")):
        at = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        if "exercises" in at or file.stem.startswith("_"): continue
        mod = import_module(at)
        found |= {n: getattr(mod, n) for n in getattr(mod, "__all__", [])}
    return found | dict(m=found["load_lm"](str(home/"m"))[0], SP=found["SamplingParams"](max_new_tokens=3))

OWN_CODE = re.compile(r"--reward |--environment|^(prove|copy|run|teach|lab) |--judge f:")    # starts this Python again, which nobody else may be allowed to
def hashes(folder): return {str(p.relative_to(folder)): sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts}

def child(what, folder, known):
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60)); resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30)); resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    code = 99
    try:
        os.chdir(folder)
        for fd, name in ((0, "/dev/null"), (1, folder.with_suffix(".out")), (2, folder.with_suffix(".err"))): os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), fd)
        sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), open(1, "w", 1, closefd=False), open(2, "w", 1, closefd=False)
        if os.geteuid() == 0:
            for p in (folder, *folder.rglob("*")): os.chown(p, 65534, 65534, follow_symlinks=False)
        for name in ("locked.jsonl", "lockeddir", "locked.toml"): os.chmod(folder/name, 0)
        if os.geteuid() == 0 and not (isinstance(what, list) and OWN_CODE.search(" ".join(what))): os.setresuid(65534, 65534, 65534)
        os.environ |= dict(HOME=str(folder), JUPYTER_DATA_DIR=str(folder/"jupyter"), MPLCONFIGDIR=str(folder/"mpl"))
        sys.path.insert(0, str(folder))
        if isinstance(what, list): code = main(what)
        else:
            try:
                r = eval(what, known)
                if hasattr(r, "__next__"): r = list(r)
                print(repr(r)[:300]); code = 0
            except (ValueError, TypeError, IndexError, OSError) as e:
                at = traceback.extract_tb(e.__traceback__)
                ours = "rlhf_nb" in at[-1].filename and "raise" in "".join(Path(at[-1].filename).read_text("utf-8").split("\n")[max(at[-1].lineno - 5, 0):at[-1].lineno])
                print(f"{type(e).__name__}: {e}", file=sys.stderr); code = 2 if ours else 98
            except Exception as e: print(f"{type(e).__name__}: {e}", file=sys.stderr); code = 98
    except SystemExit as e: code = e.code if isinstance(e.code, int) else 0 if e.code is None else (print(e.code, file=sys.stderr), 1)[1]
    except BaseException: traceback.print_exc()
    finally:
        sys.stdout.flush(); sys.stderr.flush()
        os._exit(code or 0)

QUOTED = re.compile(r"(?s)(transformers says|raised \w+|takes nothing that|is broken \().*|got \w+|.*For full helptext.*") # others' words, named as such
def trial(text, is_call, home, base, known):
    folder = base/"t"
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(home, folder, symlinks=True, copy_function=shutil.copy2, ignore=lambda d, names: [n for n in names if n.startswith("fifo") or n == "__pycache__"])
    for n in ("fifo.jsonl", "fifo.toml"): os.mkfifo(folder/n)
    what = text if is_call else shlex.split(text)
    if not is_call:
        for k, v in NAMES.items(): what = [w.replace(k, v) for w in what]
    was = hashes(folder)
    began = time.monotonic()
    pid = os.fork()
    if not pid: child(what, folder, known)
    while not (done := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() - began > 240: os.killpg(pid, signal.SIGKILL) if os.getpgid(pid) == pid else os.kill(pid, signal.SIGKILL)
        time.sleep(.01)
    late = time.monotonic() - began > 240
    code = os.waitstatus_to_exitcode(done[1])
    out, err = (folder.with_suffix(s).read_text(errors="replace") for s in (".out", ".err"))
    for n in ("locked.jsonl", "locked.toml"): os.chmod(folder/n, 0o644)
    os.chmod(folder/"lockeddir", 0o755)
    now = hashes(folder)
    harmed = [k for k, v in was.items() if now.get(k) != v]
    new = sorted({k.split("/")[0] for k in now if k not in was} - {"mpl", "jupyter", ".config", ".cache", ".local"})
    said = "\n".join(x for x in err.splitlines() if x.strip() and "it/s" not in x and "s/it" not in x)[-700:]
    if late or code == -signal.SIGXCPU: end = "hang"
    elif code < 0: end = "died"
    elif "Traceback (most" in err: end = "traceback"
    elif harmed: end = "harmed"
    elif code == 0: end = "right" if any(re.search(k, text) for k in ACCEPTED) else "silent"
    elif code == 98 or RAW.search(QUOTED.sub("", said)) or "Errno" in said: end = "raw"
    elif code in (1, 2): end = "sentence" if said or out else "traceback"
    else: end = "died"
    return dict(trial=text, end=end, code=code, said=said, out=out[-200:], new=new, harmed=harmed, seconds=round(time.monotonic() - began, 1))

# ---- extreme numbers: `expression` or `draw ; it is inside`, a group by what it is
NUMBERS = """
filter_logits(x([0, big, -big]), SP()) | filter_logits(x([0, 1, 2]), SP(temperature=1e-30)) | filter_logits(x([0, 1, 2]), SP(temperature=1e30)) | filter_logits(x([0, big, -big]), SP(temperature=1e-30)) | filter_logits(x([0, big, -big]), SP(temperature=.5, top_k=2)) | filter_logits(x([0, big, -big]), SP(top_p=.9))
filter_logits(x([0, -inf, 1]), SP()) | filter_logits(x([0, -inf, 1]), SP(temperature=1e-30)) | filter_logits(x([-big, -big, -big]), SP()) | filter_logits(x([0, 0, 0]), SP(top_p=1e-30)) | filter_logits(x([5]), SP(top_k=10**9)) | filter_logits(x([0, 1, 2]), SP(top_p=1 - 1e-12)) | filter_logits(torch.zeros(0, 3), SP()) | filter_logits(x([0, big, -big]), SP(temperature=0))
sample_tokens(lp(0, 0, -inf), u(0)) ; r < 2 | sample_tokens(lp(0, 0, -inf), u(1 - 2**-24)) ; r < 2 | sample_tokens(lp(0, 0, -inf), u(1 - 2**-53)) ; r < 2 | sample_tokens(lp(0, 0, -inf), u(1)) ; r < 2 | sample_tokens(lp(-inf, 0, 0), u(0)) ; r > 0 | sample_tokens(lp(-inf, 0, -inf), u(.5)) ; r == 1 | sample_tokens(lp(-inf, 0, -inf), u(0)) ; r == 1 | sample_tokens(lp(-inf, 0, -inf), u(1)) ; r == 1
sample_tokens(x([-big, 0, -big]), u(1)) ; r == 1 | sample_tokens(lp(small, small, -inf), u(.999999)) ; r < 2 | sample_tokens(x([-3, -4, -inf]), u(.99)) ; r < 2 | sample_tokens(x([3, 4, -inf]), u(.99)) ; r < 2 | sample_tokens(x([big, 0, -inf]), u(.5)) ; r < 2 | sample_tokens(x([-1e4, -1e4, -inf]), u(.5)) ; r < 2 | sample_tokens(x([-800, -800, -inf]), u(1)) ; r < 2 | sample_tokens(x([-inf, -inf, -inf]), u(.5)) ; False | sample_tokens(x([nan, 0, 0]), u(.5)) ; False | sample_tokens(lp(*[0] * 1000, -inf), u(1)) ; r < 1000 | sample_tokens(lp(0, 0, -inf), u(-1)) ; r < 2 | sample_tokens(lp(0, 0, -inf), u(2)) ; r < 2 | sample_tokens(lp(0, 0, -inf), u(nan)) ; r < 2
sample_rows(lp(0, 0, -inf)[0], 999, gen()) ; r.max() < 2 | sample_rows(lp(-inf, 0, -inf)[0], 999, gen()) ; (r == 1).all() | sample_rows(x([-1e4, -1e4, -inf])[0], 99, gen()) ; r.max() < 2 | sample_rows(x([-inf, -inf])[0], 9, gen()) ; False | sample_rows(x([nan, 0])[0], 9, gen()) ; False | sample_rows(x([big, 0, -inf])[0], 99, gen()) ; r.max() < 2 | sample_rows(x([200, 0, -inf])[0], 99, gen()) ; r.max() < 2 | sample_rows(lp(0, -200, -inf)[0], 99, gen()) ; r.max() < 2
draws(x([0, 1, -inf]), temperature=1e-30) ; (r == 1).all() | draws(x([0, 1, -inf]), temperature=1e30) ; r.max() < 2 | draws(x([0, big, -big]), temperature=1.) ; (r == 1).all() | draws(x([0, big, -big]), temperature=1e-30) ; (r == 1).all() | draws(x([0, 0, -inf]), top_p=1e-30) ; (r == r[0]).all() | draws(x([0, 1, 2]), top_k=1) ; (r == 2).all() | draws(x([-inf, -inf, 0]), temperature=1e30) ; (r == 2).all() | draws(x([0, 0, nan]), temperature=1.) ; False | draws(x([0, inf, 0]), temperature=1.) ; False | draws(x([-inf, -inf, -inf]), temperature=1.) ; False | draws(x([5, 5, -inf]), temperature=0) ; r.max() < 2 | draws(x([small, -small, -inf]), temperature=1e-30) ; r.max() < 2
bounded_weights(importance_ratios(x([big, -big, 0]), M(3), "token"), 2.) | importance_ratios(x([big, -big, 0]), M(3), "sequence") | effective_sample_size(x([big, 0, -big])[0]) | effective_sample_size(x([-big, -big])[0]) | effective_sample_size(x([])[0]) | effective_sample_size(x([0])[0]) | effective_sample_size(x([-inf, 0])[0]) | effective_sample_size(x([-inf, -inf])[0]) | bounded_weights(x([0, big, small]), 1e-30) | bounded_weights(x([0, big, inf]), 2., how="mask")
kl_k1(x([0, -big]), x([-big, 0])) | kl_k2(x([0, -big]), x([-big, 0])) | kl_k3(x([0, -big]), x([-big, 0])) | kl_k3(x([-big]), x([-big])) | kl_k3(x([-small]), x([0])) | exact_kl(lp(0, 1, -inf), lp(0, 1, -inf)) | exact_kl(lp(0, 1, -inf), lp(1, 0, 0)) | exact_kl(lp(0, 1, 0), lp(1, 0, -inf)) | exact_kl(lp(0, -200, -300), lp(-300, 0, 0)) | exact_kl(lp(0), lp(0)) | kl_k1(x([-inf]), x([-inf])) | response_kl(x([0, -big]), x([-big, 0]), M(2)) | kl_penalty(x([0, -big]), x([-big, 0]), M(2), 1e30) | kl_penalty(x([0, -1]), x([-1, 0]), M(2), 0.) | kl_penalty(x([0, -inf]), x([-1, 0]), torch.tensor([[True, False]]), 0.)
forward_kl(lp(0, 1, -inf), lp(0, 1, -inf), I(0)) | forward_kl(lp(0, 1, 0), lp(0, 1, -inf), I(0)) | reverse_kl(lp(0, 1, -inf), lp(0, 1, -inf), I(0)) | reverse_kl(lp(0, 1, -inf), lp(0, 1, 0), I(0)) | reverse_kl(lp(0, -200, -300), lp(-300, 0, 0), I(0)) | sampled_kl(lp(0, 1, -inf), lp(0, 1, -inf), I(1)) | sampled_kl(lp(0, -big), lp(0, 0), I(1))
bradley_terry_loss(x([big])[0], x([-big])[0]) | bradley_terry_loss(x([-big])[0], x([big])[0]) | bradley_terry_loss(x([big])[0], x([big])[0], center_coef=.01) | bradley_terry_loss(x([0])[0], x([0])[0], 1e30) | preference_accuracy(x([])[0], x([])[0]) | calibration_bins(x([big, 0, small])[0], x([-big, 0, -small])[0]) | calibration_bins(x([])[0], x([])[0]) | best_of_n(x([big, -big, big])) | best_of_n(x([-inf, -inf])) | best_of_n(torch.zeros(0, 3))
gae(x([big, -big]), x([-big, big]), M(2)) | gae(x([1, 1]), x([1, 1]), M(2), 0., 0.) | gae(torch.zeros(2, 0), torch.zeros(2, 0), torch.zeros(2, 0).bool()) | gae(x([1, nan]), x([1, inf]), torch.tensor([[True, False]])) | clipped_policy_loss(x([big]), x([-big]), x([1])) | clipped_policy_loss(x([big]), x([-big]), x([-1])) | clipped_policy_loss(x([big]), x([-big]), x([0])) | clipped_policy_loss(x([-big]), x([big]), x([big])) | clipped_policy_loss(x([0]), x([0]), x([big]), 1e30) | clipped_value_loss(x([big]), x([0]), x([-big])) | ppo_loss(*[x([0, big])] * 6, torch.zeros(1, 2).bool()) | token_rewards(x([big])[0], x([big, -big]), M(2)) | ppo_rewards(x([big])[0], x([-big]), x([0]), M(1))
mean_baseline(x([big, -big])[0], I(0, 0)) | mean_baseline(x([nan, nan])[0], I(0, 0)) | mean_baseline(x([inf, 0])[0], I(0, 0)) | group_centered(x([big, -big, big])[0], I(0, 0, 1)) | leave_one_out(x([big])[0], I(0)) | leave_one_out(x([big, big])[0], I(0, 0)) | group_normalised(x([big, -big])[0], I(0, 0)) | group_normalised(x([small, -small])[0], I(0, 0)) | group_normalised(x([big, big, big])[0], I(0, 0, 0)) | group_normalised(x([inf, 0])[0], I(0, 0)) | group_normalised(x([1])[0], I(0))
clipped_token_loss(x([big]), x([-big])) | clipped_token_loss(x([0]), x([big])) | cispo_loss(x([0]), x([1])) | cispo_loss(x([0]), x([0])) | cispo_loss(x([big]), x([1])) | cispo_loss(x([small]), x([1])) | sapo_loss(x([big]), x([1])) | sapo_loss(x([0]), x([-big])) | loss_weights(torch.zeros(2, 3).bool(), "dapo", 3) | loss_weights(torch.zeros(2, 3).bool(), "grpo", 3) | loss_weights(torch.ones(2, 3).bool(), "dr_grpo", 0) | loss_weights(torch.zeros(0, 3).bool(), "grpo", 3) | loss_weights(torch.zeros(0, 3).bool(), "dr_grpo", 3) | token_sum(torch.zeros(0, 3).bool(), 3) | pass_at_k(x([0, 5])[0], 5, 5) | pass_at_k(x([])[0], 5, 5) | pass_at_k(x([3])[0], 10**5, 10**3)
dpo_loss(x([-big])[0], x([0])[0], x([0])[0], x([0])[0]) | dpo_loss(x([0])[0], x([-big])[0], x([0])[0], x([0])[0], 1e30) | dpo_loss(x([-1])[0], x([-2])[0], x([-1])[0], x([-3])[0], 1e-30) | cdpo_loss(x([-big])[0], x([0])[0], x([0])[0], x([0])[0]) | cdpo_loss(x([-big])[0], x([0])[0], x([0])[0], x([0])[0], label_smoothing=0.) | robust_dpo_loss(x([-big])[0], x([0])[0], x([0])[0], x([0])[0]) | hinge_loss(x([-big])[0], x([0])[0], x([0])[0], x([0])[0], 1e30) | ipo_loss(x([-1])[0], x([-2])[0], x([-1])[0], x([-3])[0], 1e-30) | ipo_loss(x([-big])[0], x([0])[0], x([0])[0], x([0])[0]) | simpo_loss(x([-big])[0], x([0])[0]) | simpo_loss(x([-1])[0], x([-2])[0], 1e30, 1e30) | log_odds(x([0, -small, -big])[0]) | log_odds(x([-inf])[0]) | orpo_loss(x([0])[0], x([0])[0]) | orpo_loss(x([-big])[0], x([-big])[0]) | orpo_loss(x([-inf])[0], x([-inf])[0]) | orpo_loss(x([-1])[0], x([-2])[0], 1e30)
kto_baseline(x([])[0], x([])[0]) | kto_baseline(x([big, -big])[0], x([0, 0])[0]) | kto_loss(x([-big])[0], x([0])[0], torch.tensor([True]), torch.tensor(0.)) | kto_loss(x([0])[0], x([0])[0], torch.tensor([False]), torch.tensor(0.), 1e30) | spin_loss(x([-big])[0], x([0])[0], x([0])[0], x([0])[0]) | spin_loss(x([0])[0], x([0])[0], x([0])[0], x([0])[0], 1e30)
q_policy_logprobs(x([0, big, 1]), A(3), 1.) | q_policy_logprobs(x([0, 1, 2]), A(3), 1e-30) | q_policy_logprobs(x([0, big, 1]), A(3), 1e-30) | q_policy_logprobs(x([0, 1, 2]), A(3), 1e30, epsilon=1.) | q_policy_logprobs(x([0, 1, 2]), A(3), 0.) | q_policy_logprobs(x([0, 1, 2]), A(0), 1.) | q_policy_logprobs(x([0, 1, 2]), A(3), 1., x([-inf, 0, 0])) | q_policy_logprobs(x([0, 1, 2]), A(3), 1., epsilon=1e-30) | soft_backup(x([0, big, 1]), lp(0, 0, 0), 1.) | soft_backup(x([0, 1, 2]), lp(0, 0, 0), 1e-30) | soft_backup(x([0, 1, 2]), lp(0, 0, 0), 1e30) | soft_backup(x([0, 1, 2]), lp(0, 0, -inf), 1.) | soft_backup(x([0, big, 1]), lp(0, 0, 0), 1e-30)
hl_gauss(x([big, -big, 0])[0], torch.linspace(-1, 1, 5)) | hl_gauss(x([0])[0], torch.linspace(-1, 1, 5), 1e-30) | hl_gauss(x([0])[0], torch.linspace(-1, 1, 5), 1e30) | hl_gauss(x([.1])[0], torch.linspace(-1, 1, 5), 1e-3) | hl_gauss(x([0])[0], torch.linspace(0, 0, 5)) | hl_gauss(x([])[0], torch.linspace(-1, 1, 5))
optimal_policy(lp(0, 1, 2)[0], x([0, 1, 2])[0], 1e-30) | optimal_policy(lp(0, 1, 2)[0], x([0, 1, 2])[0], 1e30) | optimal_policy(lp(0, 1, 2)[0], x([0, big, -big])[0], 1.) | optimal_policy(lp(0, 1, -inf)[0], x([0, 1, big])[0], 1.) | optimal_policy(lp(0, 1, 2)[0], x([0, big, -big])[0], 1e-30) | best_of_n_policy(lp(0, 1, 2)[0], x([0, 1, 2])[0], 10**9) | best_of_n_policy(lp(0, -200, -300)[0], x([0, 1, 2])[0], 4) | best_of_n_policy(lp(0, 1, 2)[0], x([0, big, -big])[0], 4) | best_of_n_policy(lp(0, -5, -inf)[0], x([0, 0, 0])[0], 1) | best_of_n_policy(lp(0, 1, 2)[0], x([2, 1, 0])[0], 10**6) | expectation(lp(0, 1, -inf)[0], x([0, 1, inf])[0]) | expectation(lp(0, 1, 2)[0], x([0, big, -big])[0])
fit_normalizer(x([big, -big, 0])[0]) | fit_normalizer(x([small, -small, 0])[0]) | fit_normalizer(x([1, 1])[0]) | fit_normalizer(x([])[0]) | fit_normalizer(x([1])[0]) | normalize_scores(x([big])[0], ScoreNormalizer(0., 1e-30)) | expected_best_of_n(x([0, 1, 2]), x([big, -big, 0]), 2) | expected_best_of_n(x([0, 0, 0]), x([1, 2, 3]), 3) | expected_best_of_n(torch.zeros(0, 3), torch.zeros(0, 3), 2) | best_of_n_kl(10**300) | best_of_n_kl(10**400) | best_of_n_kl(1)
prediction_powered(x([1, 0])[0], x([1])[0], x([1])[0]) | prediction_powered(x([1])[0], x([1, 0])[0], x([1, 0])[0]) | prediction_powered(x([])[0], x([1, 0])[0], x([1, 0])[0]) | prediction_powered(x([1, 0])[0], x([])[0], x([])[0]) | prediction_powered(x([1, 1])[0], x([1, 1])[0], x([1, 1])[0]) | prediction_powered(x([1, 0])[0], x([1, 0])[0], x([1, 0])[0], 1e30) | rogan_gladen(x([1, 0])[0], x([1, 0])[0], x([1, 1])[0]) | rogan_gladen(x([1, 0])[0], x([1, 0])[0], x([0, 0])[0]) | rogan_gladen(x([1, 0])[0], x([1, 1])[0], x([1, 0])[0]) | rogan_gladen(x([])[0], x([1, 0])[0], x([1, 0])[0]) | tuned_lam(x([1, 1])[0], x([1, 0])[0], 5) | tuned_lam(x([1, 0])[0], x([1, 0])[0], 0) | tuned_lam(x([])[0], x([])[0], 5) | tuned_lam(x([])[0], x([])[0], 0)
bradley_terry_scores(x([0, big], [small, 0])) | bradley_terry_scores(x([0, 1], [1, 0])) | bradley_terry_scores(x([0, small], [small, 0])) | bradley_terry_scores(x([0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0])) | bradley_terry_scores(x([0, 1, 5], [0, 0, 1], [1, 0, 0])) | bradley_terry_scores(x([5])) | bootstrap_interval(lambda i: 1., 1, gen()) | bootstrap_interval(lambda i: x([big])[0, 0].double()[None][i.clamp(max=0)].mean().item(), 3, gen()) | bootstrap_interval(lambda i: nan, 3, gen()) | bootstrap_interval(lambda i: 1., 3, gen(), 0)
length_controlled_win_rate(x([1, 0, 1])[0].float(), x([big, -big, 0])[0].float()) | length_controlled_win_rate(x([1])[0].float(), x([3])[0].float()) | length_controlled_win_rate(x([1, 1, 1])[0].float(), x([0, 0, 0])[0].float()) | length_controlled_win_rate(x([])[0].float(), x([])[0].float()) | fit_overoptimization(x([0, 1])[0], x([0, 1])[0], "RL") | fit_overoptimization(x([0, 1])[0], x([0, 1])[0], "best of n") | fit_overoptimization(x([1, 1])[0], x([0, 1])[0], "RL") | fit_overoptimization(x([-1, 1])[0], x([0, 1])[0], "RL") | fit_overoptimization(x([big, small])[0], x([0, 1])[0], "RL") | OveroptimizationFit("RL", 1e30, 1e-30).peak() | OveroptimizationFit("RL", 1., -1.).peak() | OveroptimizationFit("RL", 800., 1.).peak() | OveroptimizationFit("RL", 1., 1.).gain(x([0, big])[0])
rubric_reward(x([1, 0]), x([0, 0])[0], torch.tensor([False, False])) | rubric_reward(x([1, 0]), x([-1, -1])[0], torch.tensor([False, False])) | rubric_reward(x([1, 1]), x([big, big])[0], torch.tensor([False, True])) | rubric_reward(torch.zeros(0, 2), x([1, 1])[0], torch.tensor([False, True])) | normalised_sum(x([nan, nan]), x([1, 1])[0], I(0)) | normalised_sum(x([big, 1], [-big, 2]), x([1, 1])[0], I(0, 0)) | turn_advantages(x([big, nan], [-big, 1]), I(0, 0), torch.tensor([[0, 1], [0, -1]])) | turn_advantages(x([1, 1]), I(0), torch.tensor([[-1, -1]]))
masked_mean(x([big, nan]), torch.tensor([[True, False]])) | masked_mean(x([big, big, big]), M(3)) | masked_sum(x([big, big, -big]), M(3)) | masked_mean_rows(x([1, 2]), torch.zeros(1, 2).bool()) | masked_whiten(x([big, -big]), M(2)) | masked_whiten(x([1, 1]), M(2)) | masked_whiten(x([small, -small]), M(2)) | masked_whiten(x([1]), M(1)) | token_logprobs(x([0, big, -big])[None].expand(1, 2, 3), torch.tensor([[0, 1]])) | token_logprobs(x([0, -inf, 0])[None].expand(1, 2, 3), torch.tensor([[0, 1]])) | token_logprobs(torch.zeros(0, 2, 3), torch.zeros(0, 2).long())
pair_accuracy(x([1, 1])[0], x([1, 1])[0]) | pair_accuracy(x([big, -big])[0], x([1, 0])[0]) | agreement(Verdicts(x([1, 1], [2, 2])), x([1, 2])[0]) | agreement(Verdicts(x([1, 1], [1, 1])), x([1, 1])[0]) | agreement(Verdicts(x([nan, nan])), x([1])[0]) | agreement(Verdicts(torch.zeros(0, 2)), x([])[0]) | agreement(Verdicts(x([1])), x([1])[0]) | Verdicts(x([1], [2])).vote_std() | Verdicts(torch.zeros(0, 2)).parse_rate() | confusion_matrix(x([])[0], x([])[0]) | confusion_matrix(x([big])[0], x([0])[0])
AdaptiveKLController(1e-30)(1., 1e30, 5) | AdaptiveKLController(1e30)(1e30, 0., 5) | AdaptiveKLController(1.)(0., -5., 5) | replay_loss(x([1])[0], x([-big])[0], 1., 0.) | replay_loss(x([1])[0], x([-1])[0], 0., 5.) | lr_at(10**9, TrainConfig()) | lr_at(0, TrainConfig(warmup_steps=0)) | lr_at(0, TrainConfig(n_steps=1, warmup_steps=9)) | length_slope(x([1])[0], x([1])[0]) | length_slope(x([1, 2])[0], x([3, 3])[0]) | signed(1e300) | brief(1e-300) | signed(-0.) | brief(5e-324) | plain_number(1e30) | tint(1e30, 1e-30) | tint(0., 0.)
"""
FORMATS = dict(float32=(torch.float32, 1e30, 1e-30), bf16=(torch.bfloat16, 1e30, 1e-30), float16=(torch.float16, 6e4, 6e-8))
def number_space(known, name, exact): # exact: the same numbers, rounded as in the format, in float64
    dtype, big, small = FORMATS[name]
    def as_(t): return t.double() if exact else t
    def x(*rows): return as_(torch.tensor([*map(list, rows)], dtype=torch.float64).to(dtype))
    def lp(*logits): return as_(torch.tensor([logits], dtype=torch.float64).log_softmax(-1).to(dtype))
    def draws(logits, **kw): # through the step that `generate` takes
        SP = known["SamplingParams"](max_new_tokens=1, **kw)
        n, v = 200, logits.shape[1]
        logits = torch.cat([logits, torch.full((1, 2), -math.inf, dtype=logits.dtype)], 1)          # pad and eos
        u = torch.rand(n, 1, generator=known["gen"]())
        state = known["GenerationState"]([[0]] * n, SP, (v, v + 1), u, torch.zeros(n, 1).long(), torch.zeros(n, 1), torch.arange(n), torch.arange(n), torch.zeros(n).bool(), torch.full((n,), -1), 1)
        known["sample_step"](state, logits.expand(n, -1).clone())
        return state.tokens[:, 0]
    return known | dict(x=x, lp=lp, big=big, small=small, inf=math.inf, nan=math.nan, I=lambda *v: torch.tensor(v), A=lambda n: torch.arange(3) < n, M=lambda n: torch.ones(1, n).bool(),
        u=lambda v: as_(torch.tensor([v], dtype=torch.float64).to(torch.float64 if exact else torch.float32 if dtype == torch.float32 else dtype)), SP=known["SamplingParams"], draws=draws)

def flat(r):
    if hasattr(r, "__dataclass_fields__"): r = [getattr(r, k) for k in r.__dataclass_fields__]
    if isinstance(r, dict): r = list(r.values())
    if isinstance(r, (tuple, list)): return [y for v in r for y in flat(v)]
    if isinstance(r, torch.Tensor): return r.double().flatten().tolist()
    return [float(r)] if isinstance(r, (int, float)) and not isinstance(r, bool) else []

def number_trial(text, name, known):
    expression, _, inside = text.partition(" ; ")
    fn = known.get(re.match(r"\w+", expression)[0])
    given = "nan" if re.search(r"\bnan\b", expression) else "inf" if re.search(r"\binf\b", expression) else "finite"
    def value(exact):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return eval(expression, space := number_space(known, name, exact)), space
    try: r, space = value(False)
    except Exception as e:
        last = traceback.extract_tb(e.__traceback__)[-1]
        near = "".join(Path(last.filename).read_text().split("\n")[max(last.lineno - 6, 0):last.lineno]) if "rlhf_nb" in last.filename else ""
        return dict(trial=text, format=name, end="refused" if "raise " in near and not isinstance(e, (KeyError, IndexError, AttributeError)) else "raw", said=f"{type(e).__name__}: {e}"[:200])
    if inside:
        ok = bool(torch.as_tensor(eval(inside, space | dict(r=r))).all())
        return dict(trial=text, format=name, end="right" if ok else "outside", said=str(torch.as_tensor(r).flatten()[:6].tolist()))
    if isinstance(r, str): return dict(trial=text, format=name, end="right", said=r[:60])
    got = flat(r)
    try: want = flat(value(True)[0])
    except Exception as e: want = [math.nan] * len(got)
    limit = torch.finfo(r.dtype).max if isinstance(r, torch.Tensor) and r.is_floating_point() else 1.8e308
    eps = {"float32": 1.2e-7, "bf16": 8e-3, "float16": 1e-3}[name] # of the answer; in 16 bits of what came, too
    scale, ends = max([abs(w) for w in want if abs(w) < limit], default=0.), ["right"]
    for g, w in zip(got, want):
        word = "nan" if g != g else "inf" if abs(g) == math.inf else ""
        if not word:
            if abs(w) < limit and abs(g - w) > 8e3 * min(eps, 1e-6) * abs(w) + 4 * eps * min(scale, 4) + 1e-6: ends.append("wrong said" if fn and says(fn, "overflow|rounding") else "wrong")
        elif word == "inf" and (given == "inf" or limit < abs(w) < math.inf): ends.append("overflow" if given == "finite" else "right")
        elif fn and says(fn, word): ends.append(f"{word} said")
        else: ends.append(word if given == "finite" else f"{word} of {given}")
    end = max(ends, key=["right", "overflow", "nan said", "inf said", "wrong said", "nan of nan", "nan of inf", "inf of nan", "wrong", "inf", "nan"].index)
    return dict(trial=text, format=name, end=end, said=f"{[float(f'{g:.4g}') for g in got[:5]]} of {[float(f'{w:.4g}') for w in want[:5]]}")

def numbers(): return [x.strip() for line in NUMBERS.strip().split("\n") for x in line.split(" | ")]

if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="", help="trials whose text matches")
    p.add_argument("-o", type=Path, default=ROOT/"benchmarks/results/odd_trials.json")
    p.add_argument("--rows", type=Path, default=ROOT/"runs/odd.jsonl", help="a row for each trial")
    p.add_argument("--before", type=Path, help="rows that an earlier package gave")
    a = p.parse_args()
    torch.set_num_threads(1)
    os.environ |= dict(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
    for command in _LATE: make_parser(command)
    with tempfile.TemporaryDirectory() as temp:
        base = Path(temp).resolve(); os.chmod(base, 0o777)
        home = base/"home"; home.mkdir()
        warnings.simplefilter("ignore")
        fill(home)
        os.system(f"chmod -R a+rX '{home}'")
        known = space(home)
        todo = [(x, False) for x in COMMANDS] + [(x, True) for x in calls()]
        print(len(COMMANDS), "commands,", len(calls()), "calls,", len(numbers()), "expressions", flush=True)
        def rows_of(path): return {(r["trial"], r.get("format", "")): r for r in map(json.loads, open(path))} if path and path.exists() else {}
        rows = rows_of(a.rows)
        with open(a.rows, "a") as file:
            for key, make in [((x, ""), lambda x=x, c=c: trial(x, c, home, base, known)) for x, c in todo] + [
                    ((x, f), lambda x=x, f=f: number_trial(x, f, known)) for x in numbers() for f in FORMATS]:
                if key in rows or a.only and not re.search(a.only, key[0]): continue
                file.write(json.dumps(rows.setdefault(key, make())) + "\n"); file.flush()
        def counts(rows): return dict(inputs=Counter(r["end"] for (_, f), r in rows.items() if not f), numbers=Counter(r["end"] for (_, f), r in rows.items() if f))
        good = "sentence right refused overflow".split()
        text = json.dumps(dict(counts=counts(rows), before=counts(rows_of(a.before)), open=[{k: r[k] for k in ("trial", "format", "end", "said") if k in r}
            for r in rows.values() if r["end"] not in good and "said" not in r["end"]],
            mended=[dict(trial=r["trial"], was=was["end"], now=r["end"]) for key, was in rows_of(a.before).items() if (r := rows.get(key)) and not key[1]
                and was["end"] not in good and r["end"] != was["end"]]), indent=1)
        atomic_write(a.o, text + "\n")
        print(json.dumps(counts(rows), indent=1))
