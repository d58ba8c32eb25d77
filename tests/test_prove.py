"`prove` names definitions and mistakes of code that was written otherwise, and says what it cannot name."
import os, re, subprocess, sys, time
from pathlib import Path
from types import SimpleNamespace
import numpy as np
import pytest, torch
from torch.nn import functional as F
from rlhf_nb.base.sampling import SamplingParams, filter_logits, sample_tokens
from rlhf_nb import dpo, grpo, kl, ppo, reward, tokens
from rlhf_nb.book.command import main
from rlhf_nb.exercises.kinds import PROOF_KINDS
from rlhf_nb.book.prove import Proof, prove
from rlhf_nb.judge import parse_score

ROOT = Path(__file__).resolve().parents[1]

def sampled(logits, temperature, top_k, top_p, generator):
    logp = filter_logits(logits, SamplingParams(1, temperature, top_k, top_p))
    ids = sample_tokens(logp, torch.rand(len(logits), generator=generator))
    return ids, logp.gather(1, ids[:, None])[:, 0]

@pytest.mark.parametrize("fn, kind, definition", [
    (tokens.token_logprobs, "logprobs", "(b t), 0 for the first token"), (reward.bradley_terry_loss, "reward", "Bradley-Terry"),
    (kl.kl_k1, "kl", "k1"), (kl.kl_k2, "kl", "k2"), (kl.kl_k3, "kl", "k3"), (ppo.gae, "gae", "GAE (Schulman"),
    (ppo.clipped_policy_loss, "ppo", "ratio of each token"), (ppo.clipped_value_loss, "value", "PPO's clipped"),
    (grpo.leave_one_out, "advantages", "RLOO"), (grpo.group_normalised, "advantages", "GRPO"), (dpo.dpo_loss, "dpo", "DPO"),
    (grpo.group_centered, "advantages", "Dr. GRPO"), (grpo.mean_baseline, "advantages", "REINFORCE"),
    (lambda reply: parse_score(reply), "judge", "the last score"), (sampled, "sampler", "a token and the log-prob")])
def test_the_packages_own_functions_are_what_they_say(fn, kind, definition):
    proof = prove(fn, kind)
    assert proof.verdict == "exact" and definition in proof.definition, str(proof)
    assert not [x for x in proof.fragile if "(b t)" not in x and "16 bits" not in x], str(proof)
    assert proof.badge in str(proof) and kind in proof.badge

def made(it, c): # a function that makes these choices, with the field's names
    scope = dict(it=it, c=c, case=it.cases(set(it.takes)))
    names = [k for k in it.takes if k in next(iter(scope["case"].values())) and k != "smooth"]       # or it must be used
    scope["rest"], scope["SimpleNamespace"] = next(iter(scope["case"].values())), SimpleNamespace
    exec(f"def made({', '.join(names)}): return it.compute(SimpleNamespace(**rest | dict({', '.join(f'{k}={k}' for k in names)})), c)", scope)
    return scope["made"]

@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.long] * (k in ("advantages", "grpo")))
                                  for k in PROOF_KINDS if k not in ("ppo", "sampler")])              # the same as grpo; below
def test_each_mistake_is_named_as_itself(kind):
    it, tried = PROOF_KINDS[kind], 0
    first = {axis: list(choices)[axis in it.needs] for axis, choices in it.right.items()} | next(iter(it.known.values()), {})
    assert prove(made(it, first), kind).verdict == "exact"
    for axis, mistakes in it.wrong.items():
        for choice, sentence in mistakes.items():
            if kind == "logprobs" and choice in ("zeroed", "logits"): continue        # not where a mask leaves the first token out: below
            c = first | {axis: choice}
            if choice in ("times", "root", "square", "range"): c |= dict(base="group", scale="sample") | {axis: choice}
            if choice == "white": c["white"] = "mask"                             # only then another number
            proof = prove(made(it, c), kind)
            assert proof.verdict == "mistake" and proof.mistakes == [sentence], (axis, choice, str(proof))
            assert re.search("right is|is never used|both give", proof.shown), (axis, choice, str(proof))         # the smallest case
            tried += 1
    assert tried >= 5

def test_an_entry_0_that_is_set_is_no_shift():
    def zeroed(logits, ids): return F.pad(logits.log_softmax(-1).gather(-1, ids[..., None])[:, 1:, 0], (1, 0))
    assert prove(zeroed, "logprobs").mistakes == ["no shift, only entry 0 set to 0: row i of the logits predicts token i+1"]
    def padded(logits, ids): return tokens.shift_right(logits).log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    assert prove(padded, "logprobs").mistakes == ["entry 0 is 0: shift log-probs, not logits (zeros are logits too)"]

@pytest.mark.parametrize("kind", PROOF_KINDS)
def test_a_proof_leads_to_a_page_that_the_site_has(kind):
    proof = Proof("f", kind, "mistake", "", ["a slip"], [], [], "", 1)
    page = proof.link.rpartition("/")[2]
    assert proof.link.startswith("https://") and page == proof.chapter.partition("_")[2] + ".html"       # a page is named like its module
    assert f'<dd style="margin:0"><a href="{proof.link}"' in proof._repr_html_()

def test_exact_sums_say_what_is_biased():
    unbiased, normalised, centred = (prove(fn, "advantages").sums[0] for fn in
                                     (grpo.leave_one_out, grpo.group_normalised, grpo.group_centered))
    assert unbiased.endswith("is the true one") and centred.endswith("is the true one x 0.5")   # (k - 1) / k of k = 2
    assert "is biased" in normalised
    assert prove(kl.kl_k1, "kl").sums[1].endswith("is 0") and "biased" in prove(kl.kl_k3, "kl").sums[1]
    for fn in (kl.kl_k1, kl.kl_k3):
        mean, true = (float(x.strip(",")) for x in prove(fn, "kl").sums[0].split() if x[0].isdigit())
        assert mean == true > 0

def grpo_in_loops(per_token_logps, old_per_token_logps, advantages, completion_mask, ref_per_token_logps, beta, epsilon):
    rows = []
    for p, o, a, m, r in zip(per_token_logps, old_per_token_logps, advantages, completion_mask, ref_per_token_logps):
        terms = []
        for i in m.nonzero()[:, 0]:
            rho, log_q = (p[i] - o[i]).exp(), r[i] - p[i]
            terms.append(-torch.min(rho * a, rho.clip(1 - epsilon, 1 + epsilon) * a) + beta * (log_q.exp() - log_q - 1))
        rows.append(sum(terms) / len(terms))
    return sum(rows) / len(rows)

def gae_in_numpy(rewards, values, response_mask, gamma, gae_lambda):
    out = np.zeros_like(rewards)
    for b in range(len(rewards)):
        last, follows = 0., 0.
        for i in reversed(np.flatnonzero(response_mask[b])):
            last = rewards[b, i] + gamma * follows - values[b, i] + gamma * gae_lambda * last
            out[b, i], follows = last, values[b, i]
    return out

def test_other_styles_are_right_too():
    proof = prove(grpo_in_loops, "grpo")
    assert proof.verdict == "exact" and proof.definition.startswith("GRPO (Shao"), str(proof)
    assert any(x.startswith("an empty response: raised ZeroDivisionError") for x in proof.fragile)
    assert prove(gae_in_numpy, "gae").verdict == "exact"
    def float32(logp, ref_logp): return (logp + 999).float() - (ref_logp + 999).float()
    assert prove(float32, "kl").fragile[0] == "it agrees to 1e-4 only: does it round to float32?"

def drawing(it, c): # a sampler that makes these choices
    def draw(logits, temperature, top_k, top_p):
        p, logp = it.compute(SimpleNamespace(logits=logits[0], temperature=temperature, top_k=top_k, top_p=top_p), c)
        ids = torch.multinomial(p, len(logits), replacement=True)
        return ids, logp[ids]
    return draw

def test_each_mistake_of_a_sampler_is_named_as_itself():
    it, right = PROOF_KINDS["sampler"], dict(drawn="warm", told="drawn")
    for axis, mistakes in it.wrong.items():
        for choice, sentence in mistakes.items():
            proof = prove(drawing(it, right | {axis: choice}), "sampler")
            assert proof.mistakes == [sentence] and "right is" in proof.shown, choice
    def one_row(logits, temperature): # and without log-probs
        p = np.exp(np.asarray(logits) / temperature)
        return np.random.choice(len(p), p=p / p.sum(-1))
    assert prove(one_row, "sampler").definition.startswith("a token; drawn after")

def test_a_sampler_whose_nucleus_misses_its_last_token(): # also with top_p 1, where rounding may lose one
    def nucleus(logits, temperature, top_p, generator):
        p, order = (logits / temperature).softmax(-1).sort(descending=True)
        p = torch.where(p.cumsum(-1) <= top_p, p, 0.)
        p = torch.zeros_like(p).scatter(-1, order, p / p.sum(-1, keepdim=True))
        ids = torch.multinomial(p, 1, generator=generator)
        return ids[:, 0], p.log().gather(1, ids)[:, 0]
    assert prove(nucleus, "sampler").mistakes == ["top-p drops the token that reaches it"]
    def other(logits): return logits.softmax(-1).square().multinomial(1)[:, 0], logits[:, 0]      # never nan, though some token never comes
    assert "nan comes back" not in str(prove(lambda logits: (logits[:, :3].argmax(-1), logits[:, 0]), "sampler")) + str(prove(other, "sampler"))

def test_arrays_are_compared_by_value():
    def in_numpy(chosen, rejected): return np.logaddexp(0, rejected - chosen).mean()
    def centred(rewards, num_generations): # np.asarray takes tensors, and an array comes back
        r = np.asarray(rewards).reshape(-1, num_generations)
        return (r - r.mean(1, keepdims=True)).reshape(np.shape(rewards))
    assert prove(centred, "advantages").verdict == "exact" and not prove(centred, "advantages").sums
    def k1(logp, ref_logp): return np.asarray(logp) - np.asarray(ref_logp)
    assert prove(k1, "kl").verdict == "exact" and not prove(k1, "kl").sums       # a sum over responses asks for a gradient
    proof = prove(in_numpy, "reward")
    assert proof.verdict == "exact" and "it takes arrays: values are compared, gradients are not" in proof.fragile
    assert not any("16 bits" in x for x in proof.fragile) and "by their rows" in proof.split            # numpy has no bfloat16
    def in_place(rewards, num_generations):
        r = rewards.reshape(-1, num_generations).astype(float)
        rewards[:] = (r - r.mean(1, keepdims=True)).ravel()
        return rewards.copy()
    assert "[1.0, 0.0, 4.0, 5.0, 7.0, 6.5] becomes [-0.6667, " in prove(in_place, "advantages").shown

def test_a_test_of_three_lines_in_a_project_that_only_installed_this(tmp_path):
    subprocess.run([sys.executable, "setup.py", "-q", "egg_info", "--egg-base", tmp_path], cwd=ROOT, check=True)    # what pip reads
    (tmp_path/"theirs").mkdir()
    (tmp_path/"theirs/test_theirs.py").write_text("""
import pytest, sys
def test_else(): assert not {"torch", "numpy", "transformers"} & set(sys.modules)
@pytest.mark.prove("kl")
def test_k1(): return lambda logp, ref_logp: logp - ref_logp
@pytest.fixture
def power(): return 2
@pytest.mark.prove(kind="kl")
def test_k2(power): return lambda logp, ref_logp: (logp - ref_logp)**power
@pytest.mark.prove("lk")
def test_misspelt(): return lambda logp, ref_logp: logp - ref_logp
""")
    done = subprocess.run([sys.executable, "-m", "pytest", "--strict-markers", "-p", "no:cacheprovider"], cwd=tmp_path/"theirs", text=True,
                          capture_output=True, env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "PYTHONSAFEPATH": "1"})
    assert "2 failed, 2 passed" in done.stdout and "k2 is half the square" in done.stdout, done.stdout
    assert "no kind 'lk'" in done.stdout and "pytest_marker.py" not in done.stdout and "During" not in done.stdout, done.stdout    # the card alone, no traceback

@pytest.mark.parametrize("fn, kind, said", [
    (lambda chosen, rejected: -(chosen - rejected).mean().sigmoid().log(), "reward", "mean of (chosen - rejected)"),
    (lambda chosen, rejected: -(chosen - rejected).sigmoid().log().mean() / 0.6931471805599453, "reward", "1.443 times"),
    (lambda chosen, rejected: -(chosen[:, None] - rejected).sigmoid().log().mean(), "reward", "each row of (chosen - rejected) meets every row"),
    (lambda values, returns, mask: (((values - returns) * mask).sum() / mask.sum())**2, "value", "the mean of"),
    (lambda rewards, done, gamma, next_q: rewards + gamma**2 * next_q.amax(-1) * ~done, "q", "gamma is squared")])
def test_a_mistake_without_a_name_is_told_by_the_operation_that_differs(fn, kind, said):
    proof = prove(fn, kind)
    assert proof.verdict == "mistake" and said in proof.mistakes[0], str(proof)

def test_where_no_gradient_arrives():
    def stopped(chosen, rejected): return -torch.nn.functional.logsigmoid(chosen - rejected.detach()).mean()
    assert prove(stopped, "reward").mistakes == ["the value is right, its gradient is not: none reaches rejected"]

def test_a_silent_broadcast_is_no_other_way_to_pass_advantages():
    def outer(logp, advantages, mask): return -((logp * mask).sum(1)[:, None] * advantages).mean()
    assert prove(outer, "grpo").verdict != "exact"

def test_what_is_wrong_beside_the_formula():
    def scaled(rewards, num_generations): return rewards / rewards.view(-1, num_generations).std(1).repeat_interleave(num_generations)
    assert prove(scaled, "advantages").mistakes == ["divided by the group's deviation, but not centred on the group"]
    assert any("it needs advantages (b t)" in x for x in prove(ppo.clipped_policy_loss, "ppo").fragile)
    def detached(logp, ref_logp): return (logp - ref_logp).detach()
    def half(logp, ref_logp): return logp / 2 + (logp / 2).detach() - ref_logp
    assert "no gradient flows back" in prove(detached, "kl").mistakes[0]
    assert prove(half, "kl").mistakes == ["the value is right, its gradient is not"]
    def in_place(rewards, num_generations):
        rewards -= rewards.view(-1, num_generations).mean(1).repeat_interleave(num_generations)
        return rewards
    def noisy(logp, ref_logp): return logp - ref_logp + 0 * torch.rand(1)
    assert prove(in_place, "advantages").mistakes == ["it changes its arguments: work on a copy"]
    assert "it draws random numbers of the whole program" in prove(noisy, "kl").fragile
    def unused(logp, old_logp, advantages, mask, ref_logp):
        ratio, a = (logp - old_logp).exp(), advantages[:, None]
        return -(torch.min(ratio * a, ratio.clamp(.8, 1.2) * a) * mask).sum() / mask.sum()
    assert prove(unused, "grpo").mistakes == ["ref_logp is taken and never used"]
    def unclipped(logp, old_logp, advantages, mask, epsilon): return -(((logp - old_logp).exp() * advantages[:, None])[mask]).mean()
    assert prove(unclipped, "ppo").mistakes == ["epsilon is taken and never used"]
    def twice(logp, old_logp, advantages, mask, epsilon, epsilon_high): return unclipped(logp, old_logp, advantages, mask, epsilon)
    assert prove(twice, "ppo").mistakes == [f"{name} is taken and never used" for name in ("epsilon", "epsilon_high")]
    def upper(logp, old_logp, advantages, mask, epsilon, epsilon_high): # CISPO as TRL has it clips no lower end
        return -((logp - old_logp).exp().clamp(max=1 + epsilon_high).detach() * advantages[:, None] * logp)[mask].mean()
    assert prove(upper, "ppo").verdict == prove(upper, "grpo").verdict == "exact"
    def divided(rewards, num_generations):
        r = rewards.view(-1, num_generations)
        return ((r - r.mean(1, keepdim=True)) / r.std(1, keepdim=True)).flatten()
    assert prove(divided, "advantages").mistakes == ["not stable: on equal rewards nan comes back"]

@pytest.mark.parametrize("fn, said", [
    (lambda logp, ref_logp: None, "nothing comes back"), (lambda logp, ref_logp: logp[9], "it raised IndexError"),
    (lambda logp, ref_logp: logp * torch.nan, "nan comes back"), (lambda logp, ref_logp: (logp - ref_logp).sum(), "the shape is wrong: (), not (3, 5)"),
    (lambda logp, ref_logp: logp.cuda() - ref_logp, "asks for a GPU"), (lambda logp, ref_logp: logp.tan() + ref_logp, "no two mistakes, give that")])
def test_what_is_unknown_is_described(fn, said):
    proof = prove(fn, "kl")
    assert proof.verdict == "unknown" and said in proof.mistakes[0] and not proof.definition

def test_of_replies_one_is_shown_that_no_definition_reads_so():
    def first_digit(reply): return float(m[0]) if (m := re.search("[0-9]", reply)) else None
    assert "on 'Score: 3.5' it gives 3;" in prove(first_digit, "judge").mistakes[0]                 # not the first, which it reads

def test_a_number_of_its_own_must_be_an_argument(monkeypatch):
    monkeypatch.setattr(time, "process_time", lambda: 0.)   # the whole search, on any machine: two bounds once fitted
    def fixed(policy_chosen, policy_rejected, ref_chosen, ref_rejected):
        return -F.logsigmoid(.5 * (policy_chosen - policy_rejected - ref_chosen + ref_rejected)).mean()
    def taken(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta):
        return -F.logsigmoid(beta * (policy_chosen - policy_rejected - ref_chosen + ref_rejected)).mean()
    assert "with beta 0.1" in (said := prove(fixed, "dpo").mistakes[0]) and said.endswith("a number of yours that differs must be an argument")
    assert prove(taken, "dpo").verdict == "exact" and "must be an argument" not in str(prove(lambda logp, ref_logp: logp.tan(), "kl"))

def near(logp, ref_log_probss): return logp - ref_log_probss

def test_arguments_that_are_not_known_ask_for_an_adapter():
    with pytest.raises(ValueError, match=r"takes x, y; KL estimate of each token is given logp \(3 5\), ref_logp \(3 5\): write an "
                       r"adapter, (.|\n)*def adapter\(logp, ref_logp\): return <lambda>\(x=..., y=...\)"):
        prove(lambda x, y: x - y, "kl")
    with pytest.raises(ValueError, match=r"def adapter\(logp, ref_logp\): return near\(logp=logp, ref_log_probss=ref_logp\)"):
        prove(near, "kl")
    with pytest.raises(ValueError, match="did you mean 'grpo'"): prove(kl.kl_k1, "grp")

def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path/"mine.py").write_text("def k3(logp, ref_logp): return (ref_logp - logp).expm1() + logp - ref_logp\n"
                                    "def k1(logp, ref_logp): return ref_logp - logp\n")
    (tmp_path/"ends.py").write_text("raise SystemExit(0)\n")
    assert main(["prove", "mine.py:k3", "--kind", "kl", "-o", "card.html"]) == 0
    assert "mine" not in sys.modules                        # another mine.py is imported from its own folder
    assert "k3 (Schulman 2020)" in capsys.readouterr().out and "<dd style=\"margin:0\">k3 (Schulman 2020)" in (card := (tmp_path/"card.html").read_text())
    assert "color-scheme:light dark" in card and "<code>![kl: exact" in card
    assert main(["prove", "mine.py:k1", "--kind", "kl"]) == 1 and "the policy comes first" in capsys.readouterr().out
    for words, said in ((["mine.py:k3", "--kind", "kl", "-o", "card.html"], "card.html is there"), (["mine.py:k2", "--kind", "kl"], "no function in mine.py"),
                        (["none.py:k3", "--kind", "kl"], "no file"), (["ends.py:k3", "--kind", "kl"], "cannot be imported: SystemExit")):
        assert main(["prove", *words]) == 2 and said in capsys.readouterr().err

class Metered(torch.nn.Module): # a loss as a module, with numbers for a log beside it
    def forward(self, logp, ref_logp): return logp - ref_logp, dict(mean=0.)

async def awaited(logp, ref_logp): return logp - ref_logp

def test_losses_as_public_code_has_them_are_taken_as_they_are():
    for fn in (Metered(), lambda logp, ref_logp: dict(loss=logp - ref_logp, mean=0.)):
        proof = prove(fn, "kl")
        assert proof.verdict == "exact" and any("only" in x and "read" in x for x in proof.fragile), str(proof)
    def listed(rewards, num_generations): return [float(x - rewards.mean()) for x in rewards]
    assert prove(listed, "advantages").verdict == "exact"
    def narrow(logp, ref_logp): return torch.zeros(logp.shape).index_add(0, torch.arange(len(logp)), logp - ref_logp)
    assert prove(narrow, "kl").fragile[0] == "it takes float32 only"
    assert "float64 goes in, float32 comes back" in prove(lambda logp, ref_logp: logp.float() - ref_logp.float(), "kl").fragile
    for fn, words in ((Metered, "Metered is a class"), (awaited, "is a coroutine")):
        with pytest.raises(ValueError, match=words): prove(fn, "kl")

def test_odd_code_gets_one_sentence(capsys, monkeypatch):
    def told(fn): return str(prove(fn, "kl"))
    def loud(logp, ref_logp):
        print("a line\n" * 9)
        return logp - ref_logp
    assert "it prints: a line\n" in told(loud) and not capsys.readouterr().out
    def seeded(logp, ref_logp):
        torch.manual_seed(0)
        return logp - ref_logp
    assert "random numbers of the whole program" in told(seeded)
    def dropping(logp, ref_logp): return logp - ref_logp + torch.rand(1)
    assert prove(dropping, "kl").mistakes == ["two calls with the same arguments give two results"]
    def now_and_then(logp, ref_logp): return (logp - ref_logp) * (torch.rand_like(logp) > .1)     # of a small case two calls may agree
    assert ", then " in prove(now_and_then, "kl").shown
    assert "of shape (1,), right is" in prove(lambda logp, ref_logp: (logp - ref_logp).sum(1), "kl").shown
    def frozen(logp, ref_logp):
        torch.set_grad_enabled(False)
        return logp - ref_logp
    assert "it changes torch for the whole program" in told(frozen) and torch.is_grad_enabled()
    def learns(logp, ref_logp):
        (out := logp - ref_logp).sum().backward()
        return out
    assert "exact sum  none: Trying to backward" in told(learns)
    def fails(logp, ref_logp): raise KeyError
    assert "it raised KeyError\n" in told(fails) and "test_prove.py, line" in told(fails)
    assert "z" * 300 not in told(lambda logp, ref_logp: int("z" * 10**6))
    assert "complex numbers come back" in told(lambda logp, ref_logp: (logp - ref_logp) * 1j)
    assert "truth values come back" in told(lambda logp, ref_logp: logp > ref_logp)
    assert "a dict comes back, not (3, 5)" in told(lambda logp, ref_logp: dict(kl=logp - ref_logp))
    assert "read as a dense one" in told(lambda logp, ref_logp: (logp - ref_logp).to_sparse())
    from rlhf_nb.exercises import kinds
    monkeypatch.setattr(kinds, "SECONDS", .2)
    def endless(logp, ref_logp):
        while True: pass
    assert "no end after 0.2 s: an endless loop?" in told(endless)

def own(backward): # k1 with a backward of its own
    made = type("Own", (torch.autograd.Function,), dict(forward=staticmethod(lambda ctx, a, b: a - b), backward=staticmethod(backward)))
    return lambda logp, ref_logp: made.apply(logp, ref_logp)

def later(ctx, g): raise NotImplementedError("later")

def test_a_backward_of_its_own_is_proved_too():
    for gradient, words in ((lambda ctx, g: (g, -g), ""), (lambda ctx, g: (2 * g, None), "its gradient is not"), (later, "NotImplementedError: later"),
                            (lambda ctx, g: (None, None), "no gradient flows back"), (lambda ctx, g: (g[:1], None), "returned an invalid gradient")):
        proof = prove(own(gradient), "kl")
        assert words in str(proof) and (proof.verdict == "exact") == (not words), str(proof)

def test_whoever_switched_gradients_off_gets_the_same_verdict():
    want = str(prove(kl.kl_k3, "kl"))
    for off in (torch.no_grad, torch.inference_mode):
        with off(): assert str(prove(kl.kl_k3, "kl")) == want
        assert "no gradient flows back" in prove(off()(kl.kl_k1), "kl").mistakes[0]

def test_files_of_projects_are_read(tmp_path, monkeypatch, capsys):
    (tmp_path/"theirs_of_27").mkdir()
    (tmp_path/"theirs_of_27/losses.py").write_text("from __future__ import annotations\nfrom dataclasses import dataclass\nimport beside_27\n"
        "@dataclass\nclass Settings:\n    beta: float = .1\ndef k1(logp, ref_logp): return beside_27.minus(logp, ref_logp)\n")
    (tmp_path/"theirs_of_27/beside_27.py").write_text("def minus(a, b): return a - b\n")
    (tmp_path/"theirs_of_27/inside.py").write_text("from .beside_27 import minus\ndef k1(logp, ref_logp): return minus(logp, ref_logp)\n")
    (tmp_path/"empty.txt").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["prove", "theirs_of_27/losses.py:k1", "--kind", "kl"]) == 0
    assert main(["prove", "theirs_of_27.inside:k1", "--kind", "kl"]) == 0
    for place, said in (("theirs_of_27/inside.py:k1", "write package.module:FUNCTION"), ("empty.txt:k1", "is no file of Python"), ("no_such_27:f", "cannot be imported")):
        assert main(["prove", place, "--kind", "kl"]) == 2 and said in capsys.readouterr().err

def test_a_number_in_an_operation_is_found():
    def warm(logits, ids): return F.pad((logits[:, :-1] / .8).log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0], (1, 0))
    assert prove(warm, "logprobs").mistakes == ["logits has a factor of 1.25 too many"]
    def smooth(logits, labels): return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), label_smoothing=.3)
    assert "is smoothed, as labels are: 0.3" in prove(smooth, "sft").mistakes[0]
    def held(logp, ref_logp): return (d := (ref_logp - logp).clamp(-1, 1)).exp() - 1 - d
    assert prove(held, "kl").mistakes == ["(logp - ref_logp) is clipped at -1 and 1"]
    def ranked(rewards, num_generations):
        r = rewards.view(-1, num_generations).argsort(1).argsort(1).double()
        return (r - r.mean(1, keepdim=True)).flatten()
    assert "the rank of each entry" in prove(ranked, "advantages").mistakes[0]

def test_a_mean_that_is_added_back_and_a_cap_are_named():
    def gae(rewards, values, mask, gamma, lam):
        from rlhf_nb.ppo import gae as ours
        a, returns = ours(rewards, values, mask, gamma, lam)
        mean, std = a[mask].mean(), a[mask].std()
        return ((a - mean) / (std + 1e-8) + mean) * mask, returns * mask
    assert prove(gae, "gae").mistakes == ["the mean is added back after whitening: advantages are not centred"]
    def k3(logp, ref_logp): return (torch.exp(ref_logp - logp) - 1 + logp - ref_logp).clamp(max=10)
    assert (proof := prove(k3, "kl")).verdict == "exact" and proof.definition == "k3, at most 10"

def test_what_overflows_is_not_stable_and_what_is_rounded_is_told():
    def naive(chosen, rejected): return -(chosen - rejected).sigmoid().log().mean()
    assert prove(naive, "reward").mistakes == ["not stable: on gaps of thousands inf comes back"]
    def rounded(logp, ref_logp): return (logp.bfloat16() - ref_logp.bfloat16()).double()
    assert "16 bits" in prove(rounded, "kl").mistakes[0]
    def capped(logp, ref_logp): return (logp - ref_logp).clamp(max=.7)
    assert prove(capped, "kl").mistakes == ["the result is cut off above 0.7"]
    def running(logp, ref_logp): return (logp - ref_logp).cumsum(1)
    assert "the running sum" in prove(running, "kl").mistakes[0]

def test_the_smallest_case_has_a_token_that_is_predicted():
    def same(logits, ids, mask): return -(logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0] * mask).sum() / mask.sum()
    assert "ids [1, 5], mask [0, 1]" in prove(same, "sft").shown

def test_the_smallest_case_is_one_token():
    def doubled(logp, ref_logp): return (logp - ref_logp)**2
    shown = prove(doubled, "kl").shown
    assert shown.startswith("logp [-") and shown.count(",") == 2 and "right is" in shown, shown

def test_what_every_definition_keeps_is_told_where_it_breaks():
    def leaks(logp, mask, advantages): return -(logp.tanh() * advantages[:, None]).mean()
    assert prove(leaks, "grpo").mistakes[0] == "what stands outside of the mask, prompt or pads, reaches the result"

def test_a_mistake_of_gradients_of_arguments_of_edges_is_shown_too():
    def shown(fn, kind): return prove(fn, kind).shown
    assert "its gradient is [0.0], right is [1.0]" in shown(lambda logp, ref_logp: (logp - ref_logp).detach(), "kl")
    def wiped(logp, ref_logp):
        out = logp - ref_logp
        ref_logp.zero_()
        return out
    assert re.search(r"\[-\d\.\d\] becomes \[0.0\]", shown(wiped, "kl"))
    def naive(chosen, rejected): return -(chosen - rejected).sigmoid().log().mean()
    assert "gives inf, right is" in shown(naive, "reward")
    def unclipped(logp, old_logp, advantages, mask, epsilon): return -(((logp - old_logp).exp() * advantages[:, None])[mask]).mean()
    assert shown(unclipped, "ppo").startswith("epsilon 0.2 and 0.3: both give ")
    def leaks(logp, mask, advantages): return -(logp.tanh() * advantages[:, None]).mean()
    assert re.search("gives .*, then ", shown(leaks, "grpo"))
    def constant(logp, ref_logp): return torch.zeros(3, 5)
    assert shown(constant, "kl")
    def moody(logits, generator): return torch.multinomial(logits.softmax(-1), 1)[:, 0]
    assert "never used" in prove(moody, "sampler").mistakes[0] and ", then " in shown(moody, "sampler") and "object at" not in shown(moody, "sampler")
    def score(reply): return float(re.findall(r"Score: (-?[0-9.]*[0-9])", reply)[-1])
    raises = prove(lambda reply: x if 0 <= (x := score(reply)) <= 5 else None, "judge")
    assert raises.mistakes == ["an error, where there is no score: None is asked for"] and raises.shown == "reply There are 3 reasons.: gives IndexError, right is None"
    def texts(reply): return next((x for x in re.findall(r"Score: (-?[0-9.]*[0-9])", reply)[-1:] if 0 <= float(x) <= 5), None)
    assert prove(texts, "judge").mistakes == ["that is the text of the number: make a float of it"]
    assert shown(texts, "judge") == "reply 'Good. Score: 4': gives '4', right is 4"

def policy(how, epsilon=.2): # in loops of others: a mean of this kind
    def loss(logp, old_logp, advantages, mask):
        ratio, a = (logp - old_logp).exp(), advantages[:, None]
        x, m = -torch.min(ratio * a, ratio.clamp(1 - epsilon, 1 + epsilon) * a), mask
        return dict(token_mean=lambda: x[m].sum() / m.sum().clamp(min=1), token_sum=lambda: x[m].sum(),
                    response_mean=lambda: (x.masked_fill(~m, 0.).sum(1) / m.sum(1).clamp(min=1)).mean(),
                    plain=lambda: x[m].mean(), multiplied=lambda: (x * m).sum() / m.sum().clamp(min=1))[how]()
    return loss

def test_how_micro_batches_make_a_batch_is_told_and_is_no_mistake():
    for how, words in dict(token_mean="by their tokens", token_sum="they add up", response_mean="by their rows").items():
        proof = prove(policy(how), "grpo")
        assert proof.verdict == "exact" and words in proof.split and proof.split in str(proof), str(proof)
    def batch(rewards, num_generations): return rewards - rewards.mean()
    assert prove(batch, "advantages").split.startswith("rows depend on the rest") and not prove(grpo.leave_one_out, "advantages").split
    assert "split" not in str(prove(ppo.gae, "gae"))
    assert prove(ppo.gae, "gae").split == prove(lambda chosen, rejected: -F.logsigmoid(rejected - chosen).mean(), "reward").split == ""

def test_batches_at_the_edge_are_tried_for_every_kind():
    def said(fn, kind): return " | ".join(prove(fn, kind).fragile)
    assert "no token that counts" not in said(policy("token_mean"), "ppo") and "no token that counts: got nan" in said(policy("plain"), "grpo")
    def low(logp, ref_logp): return logp - ref_logp                                             # as it comes, and widened
    def wide(logp, ref_logp): return logp.double() - ref_logp.double()
    assert "inputs of 16 bits" in said(low, "kl") and "16 bits" not in said(wide, "kl")
    assert "inputs of 16 bits" in said(policy("token_mean"), "ppo")
    def indexed(rewards, group): # groups are numbered without gaps: only then
        sums = torch.zeros(int(group.max()) + 1).double().index_add(0, group, rewards) / len(group.unique())
        return rewards - (sums * len(group.unique()) / group.bincount())[group]
    assert prove(indexed, "advantages").verdict == "exact"
    def by_place(rewards, group):
        n = len(group.unique())
        mean = torch.stack([rewards[group == i].mean() for i in range(n)])
        return rewards - mean[group]
    assert "groups by other numbers: raised IndexError" in said(by_place, "advantages")
    def spreads(rewards, num_generations):
        r = rewards.view(-1, num_generations)
        return (r - r.mean(1, keepdim=True)).flatten()
    assert "an answer that nobody scored: got" in said(spreads, "advantages") and "groups of one" not in said(spreads, "advantages")
    def spread(rewards, num_generations):
        r = rewards.view(-1, num_generations)
        return ((r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-4)).flatten()
    assert "groups of one: got" in said(spread, "advantages")
    def backwards(rewards, values, mask, gamma, lam): return ppo.gae(rewards.nan_to_num(0.), values, mask, gamma, lam)
    assert "a reward that is nan" in said(backwards, "gae")
