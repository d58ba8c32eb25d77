"The card of a run: a recipe that says the same, the data's hash, curves; and what goes to the hub."
import hashlib, json, sys, huggingface_hub, pytest
from pathlib import Path
from huggingface_hub import ModelCard
from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.utils import filter_repo_objects
from rlhf_nb.base.folder import foreign_files
from rlhf_nb.run import model_card
from rlhf_nb.run.model_card import check_hub, draw_curves, make_model_card, push_to_hub
from rlhf_nb.run.stages import Stage, StageError, to_toml
from rlhf_nb.run.train_command import parse_flags
from tiny_runs import in_a_row, run, run_all, tiny

pytestmark = pytest.mark.usefixtures("one_thread", "inside")
def sft(**said): return tiny("sft", n_steps=1, eval_every=1, **said)

@pytest.mark.parametrize("stage", [
    Stage("dpo", dict(data="d.jsonl", model='a "model"', lora_r=8, lr=2e-5, beta=.25, tf32=True)),
    Stage("sft", dict(data="d.jsonl", n_steps=7, skip_invalid=True, turns="last", max_grad_norm=float("inf"))),
    Stage("grpo", dict(data="d.jsonl", model="m", reward="rules:f", token_loss="cispo", epsilon_high=.3, stop_token="<|im_end|>", seed=3))],
    ids=lambda stage: stage.method)
def test_the_settings_on_the_card_are_a_recipe(stage):
    toml = str(make_model_card(to_toml([stage]), "t", {}, {})).split("```toml\n")[1].split("```")[0]
    Path("recipe.toml").write_text(toml, encoding="utf-8")
    assert "d.jsonl" not in toml and parse_flags(stage.method, "d.jsonl -o out --recipe recipe.toml".split())[0].said == stage.said

def test_the_card_of_a_run(inside):
    done = run(tiny("reward", n_steps=1, eval_every=1, data=str(inside/"pairs.jsonl")), "judge")
    card = ModelCard.load("judge/README.md")
    assert (card.data.library_name, card.data.tags, card.data.base_model) == ("transformers", ["rlhf-nb", "reward"], None)
    assert card.text.startswith("\n# judge\n")
    assert f"| pairs.jsonl | {hashlib.sha256(Path('pairs.jsonl').read_bytes()).hexdigest()} |" in card.text
    assert f"| eval_accuracy | {done.results['eval_accuracy']:.4g} |" in card.text and str(inside) not in card.text
    assert Path("judge/curves.png").read_bytes().startswith(b"\x89PNG") and not foreign_files(Path("judge"))

def test_names_of_files_are_text_and_folders_stay_at_home(inside):
    bad = "a`<img src=x onerror=alert(1)>\n\n<b>|.jsonl"
    stage = Stage("ppo", dict(data=bad, model=str(inside/"m"), reward="~/mine/rm", kl_to="runs/sft"))
    card = str(make_model_card(to_toml([stage]), f"{bad} run", {"stop_reason": "<i>`x`"}, {bad: "0" * 64}))
    assert "<" not in card.replace("-o DIR", "") and card.count("`") == 2 * 4 + 3 * 2 and "\n# a'&lt;img src=x" in card
    assert str(inside) not in card and "~" not in card and "from `m` on" in card
    assert 'model = "m"\nreward = "rm"\nkl_to = "runs/sft"' in card

def test_a_base_model_is_named_where_it_has_an_address(inside):
    def base(name): return make_model_card(to_toml([Stage("sft", dict(data="d", model=name))]), "t", {}, {}).data.base_model
    assert base("EleutherAI/pythia-410m") == "EleutherAI/pythia-410m" and base("gpt2") is base("../runs/sft") is base("") is None
    assert base("runs/sft") == "runs/sft"                      # of somebody called runs
    Path("runs/sft").mkdir(parents=True)
    assert base(str(inside/"runs")) is base("runs/sft") is None

def test_curves_are_those_of_the_method_and_are_not_needed(tmp_path, monkeypatch):
    from matplotlib.axes import Axes
    drawn, real = [], Axes.plot
    monkeypatch.setattr(Axes, "plot", lambda self, *args, **kw: (drawn.append(args), real(self, *args, **kw))[1])
    rows = [dict(step=1, loss=9.), {"step": 2, "iteration": 1, "reward": .5, "objective/kl": .1},
            {"step": 4, "iteration": 2, "reward": .75, "objective/kl": None}]
    assert draw_curves(rows, "grpo", tmp_path/"c.png")
    assert drawn == [((1, 2), (.5, .75)), ((1,), (.1,))]
    assert draw_curves([], "sft", tmp_path/"empty.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert not draw_curves(rows, "grpo", tmp_path/"none.png") and not (tmp_path/"none.png").exists()
    assert "curves.png" not in str(make_model_card(to_toml([sft()]), "t", {}, {}, with_curves=False))

# ---- to the hub
def not_found(repo_id):
    e = RepositoryNotFoundError.__new__(RepositoryNotFoundError)
    Exception.__init__(e, repo_id)
    return e

@pytest.fixture
def hub(monkeypatch):
    "A hub in memory: {repository: {private, files}}."
    repos = {}
    class Api:
        def whoami(self): return dict(name="me")
        def list_repo_files(self, repo_id):
            if repo_id not in repos: raise not_found(repo_id)
            return [".gitattributes", *repos[repo_id]["files"]]
        def create_repo(self, repo_id, private, exist_ok): repos.setdefault(repo_id, dict(private=private, files=[]))
        def upload_folder(self, repo_id, folder_path, allow_patterns, commit_message):
            names = [p.relative_to(folder_path).as_posix() for p in Path(folder_path).rglob("*") if p.is_file()]
            repos[repo_id]["files"] = sorted(filter_repo_objects(names, allow_patterns=allow_patterns))
            return "https://hub/" + repo_id
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(model_card.constants, "HF_HUB_OFFLINE", False)
    repos["api"] = Api
    return repos

def test_the_model_goes_to_the_hub_and_the_data_stay(hub):
    said = []
    run(sft(push_to_hub="me/it"), "r", tell=said.append)
    run_all(in_a_row(sft(), tiny("grpo", n_iterations=1, push_to_hub="me/other")), "many")
    for name in ("me/it", "me/other"):
        sent = hub[name]
        assert sent["private"] and {"model.safetensors", "config.json", "tokenizer.json", "README.md", "curves.png"} <= set(sent["files"])
        assert not [x for x in sent["files"] if x.endswith(".jsonl") or x in ("lock", "run.json")]
    assert any("sent to https://hub/me/it" in str(x) for x in said)

def test_what_the_hub_would_refuse_is_refused_before_training(hub, monkeypatch):
    hub["me/theirs"] = dict(private=False, files=["README.md", "model.safetensors"])
    def refused(name, words):
        with pytest.raises(ValueError, match=words): run(sft(push_to_hub=name), "r")
        with pytest.raises(StageError, match=words): run_all([sft(push_to_hub=name)], "many")
    refused("a/b/c", "--push-to-hub: ")
    refused("me/theirs", "me/theirs holds README.md already: name a new repository")
    with pytest.raises(ValueError, match="holds README.md already"): push_to_hub(".", "me/theirs", ["*"])
    hub["me/empty"] = dict(private=True, files=[])
    check_hub("me/empty"), check_hub("me/new")
    monkeypatch.setattr(hub["api"], "whoami", lambda self: 1 / 0)
    refused("me/it", "does not know you .*hf auth login")
    monkeypatch.setattr(model_card.constants, "HF_HUB_OFFLINE", True)
    refused("me/it", "HF_HUB_OFFLINE is set")
    assert not Path("r").exists() and not Path("many").exists() and hub["me/theirs"] == dict(private=False, files=["README.md", "model.safetensors"])

def test_a_hub_that_fails_in_the_end_leaves_the_model_whole(hub, monkeypatch):
    def fail(self, **kwargs): raise OSError("503 Service Unavailable\nand more")
    monkeypatch.setattr(hub["api"], "upload_folder", fail)
    with pytest.raises(ValueError, match=r"whole in .*r, but not on the hub \(503 Service Unavailable\); try again: hf upload me/it"):
        run(sft(push_to_hub="me/it"), "r")
    assert json.loads(Path("r/run.json").read_text())["results"] and Path("r/model.safetensors").exists()
