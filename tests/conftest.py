"What the tests of the site and of the site in a browser share: one build of it."
import os, subprocess, sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

@pytest.fixture(scope="session")
def built(tmp_path_factory):
    "(folder of the site, what `make docs` said); $RLHF_NB_SITE is one that is there already"
    missing = [m for m in ("sphinx", "myst_nb", "furo", "latex2mathml") if not find_spec(m)]
    if missing: pytest.skip(f"needs {', '.join(missing)}: make docs installs them")
    if os.environ.get("RLHF_NB_SITE"): return Path(os.environ["RLHF_NB_SITE"]).resolve(), ""
    out = tmp_path_factory.mktemp("site")/"html"
    done = subprocess.run([sys.executable, ROOT/"docs/make_site.py", "--out", out], cwd=out.parent,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    return out, done.stdout
