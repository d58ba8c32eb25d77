"The learner's own trainer: its parts, what is lent, the command, and the whole against the exact sum."
import ast
import pytest, torch
from rlhf_nb.base.files import notebooks
from rlhf_nb.book.checks import grade
from rlhf_nb.book.command import main
from rlhf_nb.book.copies import emptied_parts
from rlhf_nb.book.mine import check_parts, part_chapters
from rlhf_nb.book.prove import prove
from rlhf_nb.exercises import my_rlhf as exercises

TEXT = (notebooks()/"my_rlhf.py").read_text("utf-8")

def written(tmp_path, name, body): # the file with this body of one part, the others empty
    fn = next(x for x in ast.parse(TEXT).body if getattr(x, "name", "") == name)
    head = "\n".join(TEXT.splitlines()[fn.lineno - 1:fn.body[0].end_lineno])
    empty = emptied_parts(TEXT)
    assert empty.count(f"{head}\n    raise NotImplementedError") == 1
    file = tmp_path/"my_rlhf.py"
    file.write_text(empty.replace(f"{head}\n    raise NotImplementedError", f"{head}\n" + "\n".join("    " + x for x in body.splitlines())), "utf-8")
    return exercises.load(file)

def verdict(tmp_path, name, body): return grade(exercises.probe(written(tmp_path, name, body), name), getattr(exercises, name))

def test_it_needs_torch_alone():
    names = [a.name for x in ast.walk(ast.parse(TEXT)) if isinstance(x, ast.Import) for a in x.names]
    assert sorted(names) == ["copy", "torch", "torch.nn.functional"]
    assert not [x for x in ast.walk(ast.parse(TEXT)) if isinstance(x, ast.ImportFrom)]
    assert [*part_chapters(TEXT)] == [*exercises.PARTS]

def test_an_empty_copy_has_the_text_and_no_answer(tmp_path):
    empty = emptied_parts(TEXT)
    assert empty.count("raise NotImplementedError") == 10 and part_chapters(empty) == part_chapters(TEXT)
    assert "def train_ppo" in empty and "log_softmax" not in empty and "logsigmoid" not in empty
    kept = [line for line in TEXT.splitlines() if line.startswith(("def ", "class ", "# your part", "@"))]
    assert [line for line in empty.splitlines() if line in kept] == kept

@pytest.mark.parametrize("name", exercises.PARTS)
@pytest.mark.one_in(5)
def test_ours_is_right_and_each_mistake_has_its_name(name):
    part = getattr(exercises, name)
    assert grade(exercises.probe(exercises.OURS, name), part) == "right"
    for said, wrong in part.mistakes.items(): assert grade(wrong, part) == said

OTHER = {   # right, in another style; the file's own functions are used or not
    "logprobs": """logits = model(input_ids=ids, attention_mask=mask.long()).logits.double()
logp = torch.zeros(ids.shape, dtype=torch.double)
for i in range(1, ids.shape[1]):
    row = logits[:, i - 1]
    logp[:, i] = row[torch.arange(len(ids)), ids[:, i]] - row.logsumexp(-1)
return logp""",
    "sft_step": """optimizer.zero_grad(set_to_none=True)
logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
labels = ids.masked_fill(~response, -100)[:, 1:]
loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
loss.backward()
optimizer.step()
return loss""",
    "rollout": """rows = []
for p in prompts:
    row = list(p)
    while len(row) < len(p) + max_new and (len(row) == len(p) or row[-1] != eos):
        probs = model(input_ids=torch.tensor([row])).logits[0, -1].softmax(-1)
        row.append(torch.multinomial(probs, 1, generator=generator).item())
    rows.append(row)
t = max(map(len, rows))
ids = torch.tensor([row + [pad] * (t - len(row)) for row in rows])
mask = torch.tensor([[1] * len(row) + [0] * (t - len(row)) for row in rows]).bool()
response = mask & (torch.arange(t) >= torch.tensor([[len(p)] for p in prompts]))
return ids, mask, response""",
    "token_rewards": """out = torch.zeros_like(logp)
for i, row in enumerate(response):
    at = row.nonzero()[:, 0]
    out[i, at] = -beta * (logp - ref_logp)[i, at]
    if len(at): out[i, at[-1]] += reward[i]
return out""",
    "gae": """value = value * response
delta = reward * response + gamma * F.pad(value[:, 1:], (0, 1)) - value
advantage = torch.zeros_like(delta)
for i in range(delta.shape[1]):
    for k in range(i, delta.shape[1]):
        advantage[:, i] += (gamma * lam)**(k - i) * delta[:, k] * response[:, i:k + 1].all(1)
return advantage, (advantage + value) * response""",
    "group_step": """advantage = torch.zeros(len(reward))
for i in range(len(reward)):
    group = list(range(i // size * size, i // size * size + size))
    advantage[i] = reward[i] - sum(reward[k] for k in group if k != i) / (size - 1)
ratio = (logprobs(policy, ids, mask) - old_logp).exp()
a = advantage[:, None].expand_as(ratio)
kept = torch.where(a > 0, ratio.clamp(max=1 + clip), ratio.clamp(min=1 - clip)) * a
loss = -(kept * response).sum() / response.sum()
optimizer.zero_grad(); loss.backward(); optimizer.step()
return loss.item()""",
    "train_groups": """optimizer = torch.optim.Adam(policy.parameters(), lr)
for i in range(n_rollouts):
    rows = []
    for _ in range(n_prompts):
        k = int(torch.randint(len(prompts), (1,), generator=generator))
        rows += [prompts[k]] * size
    ids, mask, response = rollout(policy, rows, max_new, eos, pad, generator)
    reward = reward_fn(ids, mask, response)
    old = logprobs(policy, ids, mask).detach()
    group_step(policy, optimizer, ids, mask, response, old, reward, size)
    see(i)""",
    "dpo_step": """optimizer.zero_grad()
gap = 0.
for sign, (ids, mask, response) in ((1, chosen), (-1, rejected)):
    gap = gap + sign * ((logprobs(policy, ids, mask) - logprobs(ref, ids, mask).detach()) * response).sum(1)
loss = (1 + (-beta * gap).exp()).log().mean()
loss.backward()
optimizer.step()
return float(loss.detach())"""}

@pytest.mark.parametrize("name", OTHER)
def test_another_way_is_right(tmp_path, name): assert verdict(tmp_path, name, OTHER[name]) == "right"

WRONG = [   # (part, body, a word of the verdict)
    ("logprobs", "return model(input_ids=ids).logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]", "no shift"),
    ("sft_step", "loss = -logprobs(model, ids, mask).mean()\noptimizer.zero_grad()\nloss.backward()\noptimizer.step()\nreturn loss.item()", ""),
    ("sft_step", "loss = -logprobs(model, ids, mask)[response].mean()\nloss.backward()\noptimizer.step()\nreturn loss.item()", "zero_grad"),
    ("rollout", OTHER["rollout"].replace("torch.multinomial(probs, 1, generator=generator)", "probs.argmax()"), "greedy"),
    ("rollout", OTHER["rollout"].replace(".logits[0, -1]", ".logits[0, -1].div(.7)"), "as often as the model says"),
    ("rollout", OTHER["rollout"].replace(">= torch", "> torch"), ""),
    ("rollout", OTHER["rollout"].replace("rows.append(row)", "rows.append([x for x in row if x != eos])"), "the eos is lost"),
    ("gae", OTHER["gae"].replace("value = value * response\n", ""), ""),
    ("gae", OTHER["gae"].replace("gamma * F", "F"), "gamma is missing in delta"),
    ("group_step", OTHER["group_step"].replace(" if k != i", "").replace("(size - 1)", "size"), "leave it out"),
    ("train_groups", OTHER["train_groups"].replace(".detach()", ""), "no_grad"),
    ("train_groups", OTHER["train_groups"].replace("rows += [prompts[k]] * size", "rows += [prompts[k]]"), "`size` times"),
    ("dpo_step", OTHER["dpo_step"].replace(" - logprobs(ref, ids, mask).detach()", ""), "reference"),
    ("dpo_step", OTHER["dpo_step"].replace(".detach())", ")").replace("optimizer.step()\n", ""), "optimizer.step()")]

@pytest.mark.parametrize("name, body, word", WRONG)
@pytest.mark.one_in(2)
def test_a_slip_is_refused_and_named(tmp_path, name, body, word):
    said = verdict(tmp_path, name, body).replace("multinomial", "")
    assert not said.startswith("right on 0") and said != "right" and word in said

def test_what_is_missing_is_lent(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RLHF_NB_STRICT", "")
    monkeypatch.chdir(tmp_path)
    (tmp_path/"my_rlhf.py").write_text(emptied_parts(TEXT).replace(
        'after the last."""\n    raise NotImplementedError', 'after the last."""\n    return 2 * reward, 2 * reward'), "utf-8")
    own = check_parts("gae", "ppo_step")
    assert capsys.readouterr().out.splitlines()[1] == "ppo_step: not done yet; ours is lent"
    curves = exercises.own_curve(own, "ppo")                       # ours throughout
    best = curves["the best there is"][0]
    assert all(best - .05 < curves[name][-1] < best for name in ("yours", "the package's"))
    assert min(curves["yours"][:2]) < best - .5

def test_the_best_there_is_is_the_exact_sum():
    curves = exercises.own_curve(exercises.OURS, "groups")
    assert curves["the best there is"][0] == 3. and 1.5 < curves["yours"][-1] < 3.

def test_a_lent_loop_runs_the_learners_own_step(tmp_path, monkeypatch):
    monkeypatch.setenv("RLHF_NB_STRICT", "")
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "group_step", OTHER["group_step"])
    own, took = check_parts("group_step", "train_groups"), []
    step = own.group_step
    own.group_step = lambda *args: took.append(1) or step(*args)
    exercises.own_curve(own, "groups")
    assert len(took) == 40 and own.train_groups is not exercises.OURS.train_groups

def test_the_command_says_whose_a_part_is(tmp_path, capsys):
    assert main(["copy", "--exercises", str(tmp_path/"copy")]) == 0
    file = tmp_path/"copy/my_rlhf.py"
    assert file.read_text("utf-8") == emptied_parts(TEXT)
    file.write_text(file.read_text("utf-8").replace('has none before."\n    raise NotImplementedError',
        'has none before."\n' + "\n".join("    " + x for x in OTHER["logprobs"].splitlines())), "utf-8")
    capsys.readouterr()
    assert main(["check", "mine", "--dir", str(tmp_path/"copy")]) == 1
    said = capsys.readouterr().out
    assert "logprobs       right" in said and "1 of 10 parts are yours; next: sft_step in 04 (8 min)" in said
    assert main(["copy", str(tmp_path/"copy")]) == 0     # a part that was written is kept
    assert "logsumexp" in file.read_text("utf-8") and "my_rlhf.py" in capsys.readouterr().out

def test_a_loop_on_wrong_parts_is_not_said_to_end_where_ours_does(tmp_path):
    from rlhf_nb.book.checks import grade
    def said(name, old="", new=""):
        assert old in TEXT
        (file := tmp_path/f"{len(old)}.py").write_text(TEXT.replace(old, new, 1) if old else TEXT, "utf-8")
        return grade(exercises.probe(exercises.load(file), name), getattr(exercises, name))
    assert said("train_ppo") == said("groups") == "right"
    sign = "return torch.where(response, beta * (ref_logp - logp), 0.) + last * reward[:, None]"
    assert "below the package" in said("train_ppo", sign, sign.replace("+ last", "- last"))
    assert "below the package" in said("groups", "(group.sum(1, keepdim=True) - group) / (size - 1)", "2 * group")
    assert said("groups", "advantage = (group -", "raise NotImplementedError\n    advantage = (group -") == "not done yet"

@pytest.mark.parametrize("name", exercises.PARTS)
def test_each_part_is_proved_exact_ours_and_in_another_style(tmp_path, name):
    modules = [exercises.OURS]
    if name in OTHER:
        modules.append(written(tmp_path, name, OTHER[name]))
        vars(modules[1]).update({k: vars(exercises.OURS)[k] for k in exercises.PARTS if k != name})
    for module in modules:
        for kind, fn in exercises.losses(module)[name].items():
            proof = prove(fn, kind)
            assert proof.verdict == "exact" and proof.name == name or name == "dpo_step" and (
                proof.mistakes == ["not stable: on gaps of thousands nan comes back"]), str(proof)   # log(1 + exp)

@pytest.mark.parametrize("name, kind, old, new, said", [
    ("logprobs", "logprobs", ".logits[:, :-1]\n", ".logits[:, 1:]\n", "no shift"), ("sft_step", "sft", "[response].mean()", "[mask].mean()", "the mask is not used"),
    ("rollout", "sampler", "torch.multinomial(logits.float().softmax(-1), 1, generator=generator)[:, 0]", "logits.argmax(-1)", "nothing is drawn"),
    ("reward_step", "reward", "score(model, *chosen) - score(model, *rejected)", "score(model, *rejected) - score(model, *chosen)", "that pair's other side"),
    ("token_rewards", "kl", "(ref_logp - logp)", "(logp - ref_logp)", "the policy comes first"),
    ("gae", "gae", "delta + gamma * lam * after", "delta + lam * after", "gamma is missing in the sum"),
    ("ppo_step", "ppo", "-torch.minimum(", "-torch.maximum(", "take the smaller gain"), ("ppo_step", "value", "- returns)**2", "- returns).abs()", "the absolute error"),
    ("group_step", "grpo", "(logprobs(policy, ids, mask) - old_logp)", "(old_logp - logprobs(policy, ids, mask))", "the ratio is the wrong way round"),
    ("group_step", "advantages", "/ (size - 1)", "/ size", "divide by n - 1, not by n"),
    ("dpo_step", "dpo", "log_ratio(*chosen) - log_ratio(*rejected)", "log_ratio(*rejected) - log_ratio(*chosen)", "chosen and rejected are swapped")])
def test_a_slip_of_a_part_is_named_by_prove(tmp_path, capsys, name, kind, old, new, said):
    assert old in TEXT
    (tmp_path/"my_rlhf.py").write_text(TEXT.replace(old, new), "utf-8")
    assert main(["prove", f"{tmp_path}/my_rlhf.py:{name}", "--kind", kind]) == 1
    assert said in capsys.readouterr().out
