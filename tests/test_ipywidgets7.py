"""The instruments on ipywidgets 7.7.1, which Colab has; the other tests run on version 8.

`make test` puts that version into a folder of its own, .venv/widgets7; so does

    pip install --no-deps --target .venv/widgets7 ipywidgets==7.7.1 ipython_genutils
"""
import os, subprocess, sys, pytest
from pathlib import Path

SCRIPT = r"""
import math, torch
from rlhf_nb.show.rollout_view import show_rollouts
from rlhf_nb.show.dashboard import Dashboard, show_dashboard
from rlhf_nb.show.inspectors import show_next, show_kl_estimators, show_judge
from rlhf_nb.judge import JudgePrompt
import rlhf_nb.show.live_view as W
rows=[dict(prompt=f"q{i}",response=f"w{i}",reward=math.sin(i),length=1,tokens=["a","b"],channels={"KL":[.1,.2]}) for i in range(30)]
v=show_rollouts(rows); c=v.c
assert c.opened.value==v.rows[0], c.opened.value
c.on.click(); assert c.page.value==2 and "11 to 20" in v.top.value
c.opened.value=v.rows[13]; assert f"row {v.rows[13]}<" in v.below.value
c.text.value="w1"; assert len(v.rows)==11
c.text.value="none"; assert v.below.value=="" ; c.text.value=""
shown=[]
class H:
    def update(self,x): shown.append(x)
W.display=lambda what,**k:(shown.append(what),H())[1]
v._ipython_display_(); assert shown[1]["application/vnd.jupyter.widget-view+json"]["model_id"]==v.outer.model_id and v.outer.children[0] is v
assert any(x.startswith("live-") for x in v._dom_classes)
c.sort.value="row" if "row" in c.sort.options else ""; assert len(shown)>2
k=show_kl_estimators(torch.tensor([1.,0.,-1.]),torch.tensor([0.,1.,2.])); k.children[0].children[0].children[0].value=0.
n=show_next(list("abcd"),lambda t: torch.tensor([3.,2.,1.,0.]))
j=show_judge(lambda p,n:[["Score: 3"]*n],JudgePrompt("{{ prompt }} {{ response }}","Score: {{ reward }}"),["A"])
d=show_dashboard(Dashboard(["x"]),lambda:None); assert len(d.children[1].children)==4
import tempfile
from pathlib import Path
from rlhf_nb.base.models import load_bundled
from rlhf_nb.book.doctor_game import show_doctor_game
from rlhf_nb.show.inspectors import inspect_reward
from rlhf_nb.show.labels import LabelSession, show_labels
from rlhf_nb.show.live_log import show_log
from rlhf_nb.show.token_kl import show_kl
r=inspect_reward(*load_bundled("reward"),"Where?","A den."); a=r.still(); r.children[0].children[0].value="The owl."; assert r.still()!=a
assert "mean of 3" in show_kl([dict(response="x",tokens=["a"],logprobs=[-1.],ref_logprobs=[-2.])]*3).still()
folder=tempfile.TemporaryDirectory(); at=Path(folder.name)
(at/"log.jsonl").write_text('{"step":1,"loss":2.0}\n'); assert "loss" in show_log(at).still()
g=show_doctor_game(2); g.children[1].children[0].click(); assert g.children[1].children[0].disabled
s=show_labels(LabelSession([("q","a","b")],at/"labels.jsonl")); s.children[1].children[0].click(); assert "1 of 1" in s.still()
import ipywidgets
print(ipywidgets.__version__)
"""

def test_the_script_passes_on_the_version_that_is_installed(monkeypatch, capsys):
    from rlhf_nb.show import live_view
    monkeypatch.setattr(live_view, "display", live_view.display)             # the script replaces it
    exec(SCRIPT, {})
    assert capsys.readouterr().out.split(".")[0] in ("7", "8")

WIDGETS7 = Path(sys.prefix)/"widgets7"

@pytest.mark.skipif(not (WIDGETS7/"ipywidgets").is_dir(), reason="needs a folder with ipywidgets 7.7: see above")
def test_the_instruments_work_on_version_7():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=os.environ | dict(
        HF_HUB_OFFLINE="1", PYTHONPATH=str(WIDGETS7)))
    assert done.returncode == 0 and done.stdout.startswith("7.7"), done.stderr[-2000:]
