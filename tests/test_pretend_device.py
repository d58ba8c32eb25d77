"Every trainer on an accelerator that is only pretended; the tests themselves are in on_pretended_device.py."
import os, pytest, subprocess, sys
from pathlib import Path

@pytest.mark.long
def test_everything_on_a_pretended_device():
    "In a process of its own: torch starts threads for any second kind of device, and tests elsewhere fork."
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", here/"on_pretended_device.py"],
                          cwd=here.parent, env=os.environ | dict(OMP_NUM_THREADS="1"), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " failed" not in done.stdout and done.stdout.count(".") > 30, done.stdout[-2000:]
