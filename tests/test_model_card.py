"The card of a run: a recipe that says the same, the data's hash, curves; and what goes to the hub."
import hashlib, json, re, sys
from argparse import ArgumentParser
from pathlib import Path
import huggingface_hub, pytest
from huggingface_hub import ModelCard
from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.utils import filter_repo_objects
from rlhf_nb import model_card
from rlhf_nb.model_card import check_hub, draw_curves, make_model_card, push_to_hub, settings_toml
from rlhf_nb.recipes import train
from rlhf_nb.rl_recipes import RLRunConfig, train_rl
from rlhf_nb.runs import foreign_files
from rlhf_nb.train_command import _config_of, add_train_parser
from test_recipes import SHORT, RunConfig, data            # a fixture among them
from test_rl_recipes import home, small                    # too

pytestmark = pytest.mark.usefixtures("one_thread")

def parsed(line):
    parser = ArgumentParser()
    add_train_parser(parser.add_subparsers())
    return parser.parse_args(line.split())

@pytest.mark.parametrize("config", [
    RunConfig("dpo", "d.jsonl", "out", 'a "model"', lora_r=8, lr=2e-5, beta=.25, tf32=True, report_to="wandb"),
    RunConfig("sft", "d.jsonl", "out", max_steps=7, strict=False, turns="last", max_grad_norm=float("inf")),
    RLRunConfig("ppo", "d.jsonl", "out", "m", "rules:f", critic_lr=1e-4, stop_token="<|im_end|>", seed=3)], ids=lambda c: c.task)
def test_the_settings_on_the_card_are_a_recipe(config, tmp_path):
    path = tmp_path/"recipe.toml"
    path.write_text(settings_toml(config), encoding="utf-8")
    report = f" --report-to {config.report_to}" if config.report_to else ""
    assert _config_of(parsed(f"train {config.task} d.jsonl -o out --recipe {path}{report}")) == config

def test_the_card_of_a_run(data, tmp_path):
    run = train(RunConfig("reward", str(data), str(tmp_path/"judge"), **SHORT))
    card = ModelCard.load(tmp_path/"judge/README.md")
    assert (card.data.library_name, card.data.tags, card.data.base_model) == ("transformers", ["rlhf-nb", "reward"], None)
    assert card.text.startswith("\n# judge\n") and f"| pairs.jsonl | {hashlib.sha256(data.read_bytes()).hexdigest()} |" in card.text
    assert f"| eval_accuracy | {run.results['eval_accuracy']:.4g} |" in card.text and str(tmp_path) not in card.text
    assert (tmp_path/"judge/curves.png").read_bytes().startswith(b"\x89PNG") and not foreign_files(tmp_path/"judge")

def test_a_base_model_is_named_where_it_has_an_address(tmp_path, monkeypatch):
    def base(name): return make_model_card(RunConfig("sft", "d", "o", name), {}, {}).data.base_model
    assert base("EleutherAI/pythia-410m") == "EleutherAI/pythia-410m" and base("gpt2") is base("../runs/sft") is base("") is None
    assert base("runs/sft") == "runs/sft"                      # of somebody called runs
    monkeypatch.chdir(tmp_path)
    (tmp_path/"runs/sft").mkdir(parents=True)
    assert base(str(tmp_path/"runs")) is base("runs/sft") is None

def test_curves_are_those_of_the_task_and_are_not_needed(tmp_path, monkeypatch):
    from matplotlib.axes import Axes
    drawn, real = [], Axes.plot
    monkeypatch.setattr(Axes, "plot", lambda self, *args, **kw: (drawn.append(args), real(self, *args, **kw))[1])
    rows = [dict(step=1, loss=9.), dict(step=2, iteration=1, reward=.5, kl=.1), dict(step=4, iteration=2, reward=.75, kl=None)]
    assert draw_curves(rows, "grpo", tmp_path/"c.png")
    assert drawn == [((1, 2), (.5, .75)), ((1,), (.1,))]
    assert draw_curves([], "sft", tmp_path/"empty.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert not draw_curves(rows, "grpo", tmp_path/"none.png") and not (tmp_path/"none.png").exists()
    assert "curves.png" not in str(make_model_card(RunConfig("sft", "d", "o"), {}, {}, with_curves=False))

def test_a_card_of_somebody_else_is_not_written_over(data, tmp_path):
    out, stopped = tmp_path/"r", RunConfig("sft", str(data), str(tmp_path/"r"), **SHORT)
    from rlhf_nb import recipes
    real = recipes.fit
    recipes.fit = lambda *args: (_ for _ in ()).throw(KeyboardInterrupt)
    try:
        with pytest.raises(KeyboardInterrupt): train(stopped)
    finally: recipes.fit = real
    (out/"README.md").write_text("mine")
    with pytest.raises(ValueError, match="README.md is not of this run: move it away"): train(stopped)
    assert (out/"README.md").read_text() == "mine"

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

def test_the_model_goes_to_the_hub_and_the_data_stay(hub, data, home, tmp_path, capfd, monkeypatch):
    train(RunConfig("sft", str(data), str(tmp_path/"r"), push_to_hub="me/it", **SHORT))
    monkeypatch.chdir(home)
    train_rl(small(tmp_path/"rl", "grpo", n_iterations=1, push_to_hub="me/other"))
    for name in ("me/it", "me/other"):
        sent = hub[name]
        assert sent["private"] and {"model.safetensors", "config.json", "tokenizer.json", "README.md", "curves.png"} <= set(sent["files"])
        assert not [x for x in sent["files"] if x.endswith(".jsonl") or x in ("lock", "run.json")]
    assert "sent to https://hub/me/it" in capfd.readouterr().out

def test_what_the_hub_would_refuse_is_refused_before_training(hub, data, tmp_path, monkeypatch):
    def begin(name): train(RunConfig("sft", str(data), str(tmp_path/"r"), push_to_hub=name, **SHORT))
    with pytest.raises(ValueError, match="--push-to-hub: "): begin("a/b/c")
    monkeypatch.setattr(hub["api"], "whoami", lambda self: 1 / 0)
    with pytest.raises(ValueError, match="does not know you .*hf auth login"): begin("me/it")
    monkeypatch.setattr(model_card.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="HF_HUB_OFFLINE is set"): begin("me/it")
    assert not (tmp_path/"r").exists()

def test_a_repository_that_holds_files_is_left_alone(hub, data, tmp_path):
    hub["me/theirs"] = dict(private=False, files=["README.md", "model.safetensors"])
    with pytest.raises(ValueError, match="me/theirs holds README.md already: name a new repository"):
        train(RunConfig("sft", str(data), str(tmp_path/"r"), push_to_hub="me/theirs", **SHORT))
    with pytest.raises(ValueError, match="holds README.md already"): push_to_hub(tmp_path, "me/theirs", ["*"])
    assert not (tmp_path/"r").exists() and hub["me/theirs"] == dict(private=False, files=["README.md", "model.safetensors"])
    hub["me/empty"] = dict(private=True, files=[])
    check_hub("me/empty"), check_hub("me/new")

def test_a_hub_that_fails_in_the_end_leaves_the_model_whole(hub, data, tmp_path, monkeypatch):
    def fail(self, **kwargs): raise OSError("503 Service Unavailable\nand more")
    monkeypatch.setattr(hub["api"], "upload_folder", fail)
    with pytest.raises(ValueError, match=r"whole in .*r, but not on the hub \(503 Service Unavailable\); try again: hf upload me/it"):
        train(RunConfig("sft", str(data), str(tmp_path/"r"), push_to_hub="me/it", **SHORT))
    assert json.loads((tmp_path/"r/run.json").read_text())["results"] and (tmp_path/"r/model.safetensors").exists()
