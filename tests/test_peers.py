"""Recorded numbers of public trainers against this package's functions; what is installed is proved again."""
import subprocess, sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
import numpy, pytest, torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT/"tests/peers"))
from ours import ADJUSTED, BY_DESIGN, OURS
from record import all_recorded, page

FACTS = {f"{facts['package']} {facts['version']}": facts for facts in all_recorded()}
ROWS = {(release, row["what"]): row for release, facts in FACTS.items() for row in facts["rows"]}
def name(key): return key[0].split()[0], key[1]       # of a row: package and function, whatever the release
LEARNED = {"logp", "values", "policy_chosen", "policy_rejected", "chosen", "rejected", "logits", "scores"}

def tensors(given):
    made = {k: torch.from_numpy(numpy.array(x)) if isinstance(x, list) else x for k, x in given.items()}
    return {k: x.requires_grad_(k in LEARNED) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
            for k, x in made.items()}

def close(got, want, whole, tol): torch.testing.assert_close(got.double(), torch.from_numpy(numpy.array(want)).double(),
    rtol=tol, atol=tol, msg=lambda said: f"{whole}: {said}")

@pytest.mark.parametrize("key", [key for key in ROWS if name(key) in OURS | ADJUSTED], ids=" ".join)
def test_recorded_numbers_are_ours(key):
    compute, row, tol = (OURS | ADJUSTED)[name(key)], ROWS[key], 1e-6
    for what, case in row["cases"].items():
        x = tensors(case["given"])
        out = compute(x)
        first, want = (out[0], case["out"][0]) if isinstance(out, tuple) else (out, case["out"])
        close(first.detach(), want, what, tol)
        if isinstance(out, tuple): close(out[1].detach() * x["mask"], case["out"][1], what, tol)   # returns
        if not case["gradient"]: continue
        weight = torch.linspace(1., 2., first.numel()).double().view(first.shape)
        grads = torch.autograd.grad((first * weight).sum(), [x[k] for k in case["gradient"]])
        for got, (k, true) in zip(grads, case["gradient"].items()): close(got, true, f"{what}, gradient of {k}", tol)

def test_each_row_is_compared_or_its_difference_is_said():
    assert not set(OURS) & set(ADJUSTED) and set(BY_DESIGN) == set(ADJUSTED) and set(OURS) | set(ADJUSTED) <= {*map(name, ROWS)}
    assert sum(len(row["cases"]) for key, row in ROWS.items() if name(key) in OURS) >= 75
    assert sum(bool(row["mistakes"]) for row in ROWS.values()) == 1     # one release adds a mean back

def test_the_page_is_what_was_recorded():
    assert page() == (ROOT/"docs/trainers.md").read_text("utf-8"), "python tests/peers/record.py page"

@pytest.mark.parametrize("release", FACTS)
def test_what_is_installed_is_proved_again(release):
    package = release.split()[0]
    try: here = version(package)
    except PackageNotFoundError: pytest.skip(f"{package} is not installed")
    if here != FACTS[release]["version"]: pytest.skip(f"{package} {here} is not the version recorded")
    code = ("import sys; sys.path.insert(0, 'tests/peers'); from adapters import rows_of; from rlhf_nb.book.prove import "
            f"prove\nfor what, kind, fn in rows_of({package!r}): print(what, '|', prove(fn, kind).verdict)")
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [x for x in out.splitlines() if " | " in x] == [f"{r['what']} | {r['verdict']}" for r in FACTS[release]["rows"]]
