"Distillation: three losses by exact sums, prefixes of either model, hints, chunks and pads; the loop, killed and resumed."
import json, math, re, weakref, pytest, torch
from dataclasses import replace
from pathlib import Path
from torch import tensor
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from rlhf_nb.base.logprobs import logits_budget
from rlhf_nb.base.models import frozen_copy, load_lm, tiny_lm
from rlhf_nb.base.sampling import SamplingParams
from rlhf_nb.base.settings import weight_hash
from rlhf_nb.book.command import main
from rlhf_nb.data.text import encode_prompt, train_tokenizer
from rlhf_nb.run.pipeline import plan_stage
from rlhf_nb.tokens import Seqs, make_seqs
from rlhf_nb.distillation import DIVERGENCES, forward_kl, reverse_kl, sampled_kl
from rlhf_nb.trainers.distill_trainer import (DistillConfig, DistillTask, Taught, sample_taught, token_divergence,
    train_distill)
from rlhf_nb.worlds.oracle import TabularLM, all_logprobs, micro_tokenizer, micro_world, states
from tiny_runs import TINY, rows_in, run, run_all, tiny, write_model

ROOT = Path(__file__).resolve().parents[1]
WORLD = micro_world()
TOK = micro_tokenizer(WORLD)
ROWS = [[0, 1, 3], [3], [2, 2, 0], [1, 3]]
each_loss = pytest.mark.parametrize("name", DIVERGENCES)
def seeded(seed=0): return torch.Generator().manual_seed(seed)
def lm(seed=0, **more): return tiny_lm(TOK, **dict(hidden=32, layers=1, seed=seed) | more)
def both(prompts, hints=None): return Taught(*(make_seqs(x, ROWS, WORLD.pad) for x in (prompts, hints or prompts)))
PROMPTS = [[4], [4, 0, 2], [4, 1], [4]]

def table(seed): # random next-token distributions in every state
    model = TabularLM(WORLD).double()
    with torch.no_grad(): model.head.weight[:4] = torch.randn(4, model.head.weight.shape[1], generator=seeded(seed)).double()
    return model

# ---- of one token
def test_values_by_hand():
    p, q = tensor([.5, .25, .25]), tensor([.25, .25, .5])
    half = math.log(2) / 4
    assert_close(reverse_kl(p.log(), q.log(), None), tensor(2 * half - half))
    p, q = tensor([[.8, .2], [.5, .5]]), tensor([[.5, .5], [.9, .1]])
    assert_close(forward_kl(p.log(), q.log(), None), tensor([.5 * math.log(.5 / .8) + .5 * math.log(.5 / .2),
                                                             .9 * math.log(.9 / .5) + .1 * math.log(.1 / .5)]))
    assert_close(reverse_kl(p.log(), q.log(), None), tensor([.8 * math.log(.8 / .5) + .2 * math.log(.2 / .5),
                                                             .5 * math.log(.5 / .9) + .5 * math.log(.5 / .1)]))
    got = sampled_kl(p.log(), q.log(), tensor([1, 0]))
    assert_close(got, tensor([math.log(.2 / .5) * math.log(.2), math.log(.5 / .9) * math.log(.5)]))

@pytest.mark.parametrize("seed", range(3))
def test_the_sampled_gradient_is_the_exact_one_in_expectation_and_never_that_of_its_own_value(seed):
    logits = torch.randn(6, generator=seeded(seed), dtype=torch.double).requires_grad_()
    logp, teacher = logits.log_softmax(-1), torch.randn(6, generator=seeded(9)).double().log_softmax(-1)
    def gradient(x): return torch.autograd.grad(x, logits, retain_graph=True)[0]
    p = logp.exp().detach()
    expected = sum(p[y] * gradient(sampled_kl(logp, teacher, tensor(y))) for y in range(6))
    assert_close(expected, gradient(reverse_kl(logp, teacher, None)))
    naive = sum(p[y] * gradient((logp - teacher)[y]) for y in range(6))        # k1 as a loss: nothing
    assert naive.abs().max() < 1e-12 < expected.abs().max()

# ---- over answers, by enumeration
def expected(name, student, teacher, answers): # gradient of the mean over all answers of the sum over tokens, prefixes fixed
    prob = all_logprobs(answers, WORLD).detach().exp()
    rows = Taught(WORLD.seqs, WORLD.seqs)
    each, _ = token_divergence(student, teacher, rows, DIVERGENCES[name])
    weight = prob[:, None].expand(WORLD.seqs.ids.shape)[WORLD.seqs.response_mask]
    return (weight * each).sum()

def test_forward_on_the_teachers_answers_is_the_kl_of_whole_answers_with_its_gradient():
    student, teacher = table(0), table(1)
    loss = expected("forward_kl", student, teacher, teacher)
    p, q = all_logprobs(teacher, WORLD).detach(), all_logprobs(student, WORLD)
    want = (p.exp() * (p - q)).sum()
    assert_close(loss, want)
    for a, b in zip(*(torch.autograd.grad(x, student.parameters()) for x in (loss, want))): assert_close(a, b)

def test_reverse_on_the_students_answers_has_the_kls_value_but_not_its_gradient():
    "Prefixes are held fixed, so what a token does to later prefixes is left out; the sampled form leaves out the same."
    student, teacher = table(0), table(1)
    loss = expected("reverse_kl", student, teacher, student)
    q, p = all_logprobs(teacher, WORLD).detach(), all_logprobs(student, WORLD)
    want = (p.exp() * (p - q)).sum()
    assert_close(loss, want)
    whole, fixed, sampled = (torch.autograd.grad(x, student.head.weight)[0][:4] for x in (
        want, loss, expected("sampled_kl", student, teacher, student)))
    assert_close(sampled, fixed)
    assert (whole - fixed).norm() > .1 * whole.norm()
    last = [i for i, prefix in enumerate(states(WORLD)) if len(prefix) == 2]   # nothing comes after these
    assert_close(whole[:, last], fixed[:, last])

# ---- of a batch
def slow(student, teacher, x, name): # token by token, all logits
    found = []
    for i in range(len(x.seqs)):
        s, t = (y.response_mask[i].nonzero()[:, 0] for y in (x.seqs, x.teacher_seqs))
        for a, b in zip(s.tolist(), t.tolist()):
            own, other = (m(input_ids=y.ids[i:i + 1, :k]).logits[0, -1] for m, y, k in
                          ((student, x.seqs, a), (teacher, x.teacher_seqs, b)))
            own, other = (y.index_fill(0, tensor([WORLD.pad]), -1e4).log_softmax(-1) for y in (own, other))
            found.append(DIVERGENCES[name](own, other.detach(), x.seqs.ids[i, a]))
    return torch.stack(found)

@each_loss
@pytest.mark.parametrize("hints", [None, [[4, 2, 2, 0], [4, 0, 2], [4, 0], [4, 1, 1]]], ids=["the same prompts", "hints"])
def test_ragged_rows_are_the_slow_loop_in_any_chunks(name, hints):
    "Values and gradients, on rows of other lengths for either model; the second value is the exact KL."
    student, teacher, x = lm().requires_grad_(), frozen_copy(lm(1)), both(PROMPTS, hints)
    want = slow(student, teacher, x, name)
    weight = torch.linspace(-1, 2, len(want))
    grads = torch.autograd.grad((weight * want).sum(), student.parameters())
    for mb in (64., 1e-6):                                      # one piece; a row at a time
        with logits_budget(mb):
            got, kl = token_divergence(student, teacher, x, DIVERGENCES[name])
            own = torch.autograd.grad((weight * got).sum(), student.parameters())
        assert_close(got, want, atol=1e-5, rtol=1e-4)
        assert_close(kl, slow(student, teacher, x, "reverse_kl").detach(), atol=1e-5, rtol=1e-4)
        for a, b in zip(own, grads): assert_close(a, b, atol=1e-5, rtol=1e-3)

@each_loss
def test_pads_and_what_stands_in_them_change_nothing(name):
    student, teacher, x = lm().requires_grad_(), frozen_copy(lm(1)), both(PROMPTS)
    want, _ = token_divergence(student, teacher, x, DIVERGENCES[name])
    def wide(s, fill): return Seqs(*(torch.nn.functional.pad(y, (0, 5), value=v) for y, v in zip(s.parts(), (fill, False, False))))
    def odd(s): return replace(s, ids=s.ids.masked_fill(~s.attention_mask, 2))
    for other in (Taught(wide(x.seqs, 5), x.teacher_seqs), Taught(x.seqs, wide(x.teacher_seqs, 1)), Taught(odd(x.seqs), odd(x.teacher_seqs))):
        assert_close(token_divergence(student, teacher, other, DIVERGENCES[name])[0], want, atol=1e-6, rtol=1e-5)
    alone = [token_divergence(student, teacher, x[[i]].trim(), DIVERGENCES[name])[0] for i in range(4)]
    assert_close(torch.cat(alone), want, atol=1e-6, rtol=1e-5)

def test_the_pad_takes_no_probability_and_the_teacher_no_gradient():
    "A pad row that nobody trained would take nearly all of it; a teacher that somebody forgot to freeze stays as it is."
    student, teacher, x = lm().requires_grad_(), lm(1).requires_grad_(), both(PROMPTS)
    want, _ = token_divergence(student, teacher, x, reverse_kl)
    with torch.no_grad():
        for m in (student, teacher): m.get_output_embeddings().weight[WORLD.pad] += 100 * m.get_output_embeddings().weight.sum(0).sign()
    got, kl = token_divergence(student, teacher, x, reverse_kl)
    assert_close(got, want)
    got.sum().backward()
    assert all(p.grad is None for p in teacher.parameters()) and not kl.requires_grad
    assert torch.isfinite(torch.cat([p.grad.flatten() for p in student.parameters()])).all()

class Largest(TorchDispatchMode):
    "The largest tensor that any operation gives, forward or backward; and what is alive at most, in numbers."
    def __init__(self):
        super().__init__()
        self.most = self.alive = self.peak = 0
        self.seen = set()
    def gone(self, key, n): self.seen.discard(key); self.alive -= n
    def __torch_dispatch__(self, fn, types, args=(), kwargs=None):
        out = fn(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if not isinstance(x, torch.Tensor) or (store := x.untyped_storage())._cdata in self.seen: continue
            n = store.nbytes() // 4
            self.seen.add(store._cdata)
            weakref.finalize(store, self.gone, store._cdata, n)
            self.alive, self.most = self.alive + n, max(self.most, n)
            self.peak = max(self.peak, self.alive)
        return out

@each_loss
def test_logits_of_all_places_exist_of_neither_model_where_they_exceed_the_budget(name):
    "Of 4 rows of 64 tokens, 3000 words: in one piece there are several (n v); in chunks none, forward or backward."
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
    def wide(seed):
        torch.manual_seed(seed)
        return GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=3000, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
            num_attention_heads=1, pad_token_id=1, eos_token_id=0)).eval()
    student, teacher = wide(0), frozen_copy(wide(1))
    x = Taught(*[make_seqs([[2]] * 4, torch.randint(2, 3000, (4, 64), generator=seeded()).tolist(), 1)] * 2)
    whole, found = 4 * 64 * 3000, {}
    for mb in (1e6, 64., .4):
        with logits_budget(mb): token_divergence(student, teacher, x, DIVERGENCES[name])          # what the heads are is asked once
        with logits_budget(mb), Largest() as found[mb]: token_divergence(student, teacher, x, DIVERGENCES[name])[0].sum().backward()
    assert found[1e6].most == found[64.].most == whole and found[1e6].peak > 4 * whole          # both fit 64 MB: one piece
    assert found[.4].most <= whole // 10 and found[.4].peak < whole / 2

def test_the_memory_that_the_page_tells_is_what_was_measured():
    "Of another process each; all ways of one loss agree in its value and in the length of its gradient."
    rows = json.loads((ROOT/"benchmarks/results/distill_memory.json").read_text("utf-8"))["rows"]
    text = " ".join("".join(c["source"]) for c in json.loads((ROOT/"nbs/engine/trainers/distill_trainer.ipynb").read_text("utf-8"))["cells"])
    peak = {(r["loss"], r["logits"], r["malloc"]): r["peak_mb"] for r in rows}
    one, chunks, kept = (peak["reverse_kl", *x] for x in (("in one piece", "gives back"), ("in chunks, 64 MB", "gives back"),
                                                          ("in chunks, 64 MB", "as it comes")))
    assert f"take {one:,.0f} MB in one piece and {chunks:.0f} MB in chunks" in text and f"held {kept:.0f} MB" in text
    for name in DIVERGENCES:
        assert 8 * peak[name, "in chunks, 64 MB", "gives back"] < peak[name, "in one piece", "gives back"]
        assert len({(r["value"], r["grad_norm"]) for r in rows if r["loss"] == name}) == 1

def test_a_model_that_caps_its_logits_gives_them_whole(): # as the page says: nothing between its head and them can be cut
    from test_families import BASE, FAMILIES, made
    student, teacher = (made("gemma2", **BASE | FAMILIES["gemma2"]) for _ in range(2))
    x = Taught(*[make_seqs([[1]] * 4, torch.randint(3, 90, (4, 30), generator=seeded()).tolist(), 0)] * 2)
    token_divergence(student, teacher, x, reverse_kl)
    with logits_budget(1e-3), Largest() as found: token_divergence(student, teacher, x, reverse_kl)
    assert found.most >= 4 * 30 * 99

def test_a_model_of_itself_has_no_divergence_and_a_temperature_counts_for_both():
    student = lm().requires_grad_()
    for t in (1., .5):
        for name in ("reverse_kl", "forward_kl"):
            each, _ = token_divergence(student, frozen_copy(student), both(PROMPTS), DIVERGENCES[name], t)
            assert each.abs().max() < 1e-6
    one, half = (token_divergence(student, frozen_copy(lm(1)), both(PROMPTS), reverse_kl, t)[0] for t in (1., .5))
    assert (half > 1.5 * one).all()                       # both are surer, and differ more

# ---- the loop
def task(teacher=None, hints=None):
    return DistillTask(teacher or frozen_copy(lm(1)), PROMPTS, hints or PROMPTS, TOK, SamplingParams(6))
CONFIG = DistillConfig(n_iterations=4, n_prompts=4, lr=1e-2, warmup_steps=0)

def test_answers_come_from_who_was_asked_behind_the_prompt_that_it_reads(monkeypatch):
    from rlhf_nb.trainers import distill_trainer as room
    asked, real = [], room.generate_many
    def spy(model, prompts, *args, **more):
        asked.append((model, prompts))
        return real(model, prompts, *args, **more)
    monkeypatch.setattr(room, "generate_many", spy)
    student, hints = lm(), [[4, 2, 2, 0], [4, 0, 2], [4, 0], [4, 1, 1]]
    it = task(hints=hints)
    for share, n in ((1., 4), (0., 0), (.5, 2), (.25, 1)):
        asked.clear()
        x = sample_taught(student, it, [3, 1, 0, 2], replace(CONFIG, student_share=share), seeded())
        want = [(student, [PROMPTS[i] for i in [3, 1, 0, 2][:n]]), (it.teacher, [hints[i] for i in [3, 1, 0, 2][n:]])]
        assert asked == [(m, p) for m, p in want if p]
        for seqs, prompts in ((x.seqs, PROMPTS), (x.teacher_seqs, hints)):
            read = seqs.attention_mask & ~seqs.response_mask
            assert [ids[m].tolist() for ids, m in zip(seqs.ids, read)] == [prompts[i] for i in [3, 1, 0, 2]]
        own, others = ([ids[m].tolist() for ids, m in zip(s.ids, s.response_mask)] for s in (x.seqs, x.teacher_seqs))
        assert own == others and all(own)

@pytest.mark.parametrize("name, share", [("reverse_kl", 1.), ("forward_kl", 0.), ("sampled_kl", 1.), ("reverse_kl", .5)])
def test_every_loss_comes_nearer_to_the_teacher(name, share):
    student, it = lm().requires_grad_(), task()
    config = replace(CONFIG, divergence=name, student_share=share, n_iterations=40, n_prompts=16)
    log = train_distill(student, it, config, seeded()).log
    kl = [row["kl_per_token"] for row in log.rows if "iteration" in row]
    assert sum(kl[-5:]) < .5 * sum(kl[:5]) and config.divergence is DIVERGENCES[name]

def test_the_log_holds_the_exact_kl_of_an_answer():
    "A mean over answers of sums over tokens, before the step; loss is the mean over tokens."
    student, seen = lm().requires_grad_(), []
    before = frozen_copy(student)
    log = train_distill(student, task(), replace(CONFIG, n_iterations=1, divergence="forward_kl"), seeded(),
                        callback=lambda row, x: seen.append(x)).log
    [step, row] = log.rows
    kl, forward = (token_divergence(before, task().teacher, seen[0], fn)[0].detach() for fn in (reverse_kl, forward_kl))
    assert row["kl"] == pytest.approx(kl.sum().item() / 4, rel=1e-4) and row["reward"] == -row["kl"]
    assert row["kl_per_token"] == pytest.approx(kl.mean().item(), rel=1e-4)
    assert step["loss"] == pytest.approx(forward.mean().item(), rel=1e-4)

def test_micro_batches_change_no_step():
    ends = []
    for size in (1, 3, 128):
        student = lm().requires_grad_()
        train_distill(student, task(), replace(CONFIG, micro_batch_size=size, generation_batch_size=4, n_iterations=2), seeded())
        ends.append(torch.cat([p.detach().flatten() for p in student.parameters()]))
    assert_close(ends[0], ends[2], atol=2e-5, rtol=1e-3)
    assert_close(ends[1], ends[2], atol=2e-5, rtol=1e-3)

def test_a_run_goes_on_in_the_same_bits_and_refuses_another(tmp_path):
    def run(folder, n, it=None, student=None, **more):
        student = student or lm().requires_grad_()
        train_distill(student, it or task(), replace(CONFIG, n_iterations=n, student_share=.5, **more), seeded(), folder)
        return weight_hash(student)
    whole = run(tmp_path/"a", 4)
    run(tmp_path/"b", 2)
    assert run(tmp_path/"b", 4) == whole == run(None, 4)
    hints = [[4, 2], *PROMPTS[1:]]
    for more, words in ((dict(divergence="forward_kl"), "divergence"), (dict(it=task(frozen_copy(lm(2)))), "ref"),
                        (dict(it=task(hints=hints)), "teacher_prompts")):
        with pytest.raises(ValueError, match=words): run(tmp_path/"b", 5, **more)

def test_what_cannot_be_distilled_is_refused():
    student = lm().requires_grad_()
    def says(words): return pytest.raises(ValueError, match=words)
    other = tiny_lm(micro_tokenizer(micro_world(("a", "b", "."))), hidden=32, layers=1)
    with says("vocabularies of 6 and 5 tokens"): train_distill(student, task(other), CONFIG, seeded())
    with says("are the same weights"): train_distill(student, task(student), CONFIG, seeded())
    with says("no weight to train"): train_distill(frozen_copy(lm()), task(), CONFIG, seeded())
    with says("one temperature"): train_distill(student, replace(task(), sampling=SamplingParams(6, top_p=.9)), CONFIG, seeded())
    with says("a prompt of the teacher for each of the student's, got 3 for 4"): DistillTask(lm(1), PROMPTS, PROMPTS[1:], TOK, SamplingParams(6))
    for key, value, words in (("divergence", "forward", "did you mean 'forward_kl'"), ("student_share", 1.1, "from 0 to 1"),
                              ("n_prompts", 0, "above 0")):
        with says(words): DistillConfig(**{key: value})

def padded(seed, extra=2): # a teacher whose head has rows that no token uses, with the largest logits
    import transformers
    small = lm(seed)
    big = transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**small.config.to_dict() | dict(vocab_size=WORLD.pad + 1 + extra))).eval()
    with torch.no_grad():
        for a, b in zip(big.parameters(), small.parameters()): (a[:len(b)] if len(a) != len(b) else a).copy_(b)
        big.get_output_embeddings().weight[WORLD.pad + 1:] = 3 * big.get_output_embeddings().weight[0]
    return small, frozen_copy(big)

@each_loss
def test_rows_that_only_pad_a_teachers_head_change_nothing(name):
    "As of Qwen2.5: 151,936 rows in the small ones, 152,064 in the large, and one tokenizer."
    small, big = padded(1)
    for mb in (64., 1e-6):
        with logits_budget(mb):
            got, want = (token_divergence(lm(), t, both(PROMPTS), DIVERGENCES[name]) for t in (big, frozen_copy(small)))
            assert_close(got[0], want[0])
            assert_close(got[1], want[1])
    x = sample_taught(lm(), task(big), [0, 1, 2, 3] * 20, replace(CONFIG, student_share=.5), seeded())
    assert x.seqs.ids.max() <= WORLD.pad
    def run(teacher):
        student = lm().requires_grad_()
        train_distill(student, task(teacher), replace(CONFIG, student_share=.5, n_iterations=2), seeded())
        return torch.cat([p.detach().flatten() for p in student.parameters()])
    assert_close(run(big), run(frozen_copy(small)), atol=1e-5, rtol=1e-4)
    large = padded(1, 3)[1].requires_grad_()                               # a student may not be the one that is padded
    with pytest.raises(ValueError, match="vocabularies of 9 and 8 tokens"): train_distill(large, task(big), CONFIG, seeded())

@each_loss
def test_a_llama_learns_from_a_gpt_neox_of_the_same_tokens(name):
    student, teacher = tiny_lm(TOK, "llama", 48, 2, seed=3).requires_grad_(), frozen_copy(lm(1))
    got, kl = token_divergence(student, teacher, both(PROMPTS, [[4, 2], [4], [4, 1, 1], [4]]), DIVERGENCES[name])
    x = both(PROMPTS, [[4, 2], [4], [4, 1, 1], [4]])
    assert_close(got, slow(student, teacher, x, name), atol=1e-5, rtol=1e-4)
    rows = [r for r in train_distill(student, task(teacher), replace(CONFIG, divergence=name, n_iterations=30, n_prompts=16), seeded()).log.rows
            if "iteration" in r]
    assert sum(r["kl_per_token"] for r in rows[-5:]) < .7 * sum(r["kl_per_token"] for r in rows[:5])

@pytest.mark.parametrize("name", [*"llama gemma2".split(), *(pytest.param(x, marks=pytest.mark.long) for x in ("qwen3", "jamba", "mamba", "granite"))])
def test_real_families_learn_from_their_own_kind(name):
    "Behind prompts of other lengths; of whole logits or in chunks; two steps."
    from test_families import BASE, FAMILIES, Tok, made
    student = made(name, **BASE | FAMILIES[name]).requires_grad_()
    teacher = frozen_copy(student)
    with torch.no_grad(): teacher.get_output_embeddings().weight.mul_(1.5)
    prompts = [[1, 5, 6], [1, 9], [1, 7, 8, 9, 5], [1, 3]]
    it = DistillTask(teacher, prompts, [[1, 9, *p] for p in prompts], Tok(), SamplingParams(5))
    x = sample_taught(student, it, [0, 1, 2, 3], CONFIG, seeded())
    def logp(m, seqs): # at the token before; the pad is ruled out
        y = m(input_ids=seqs.ids, attention_mask=seqs.attention_mask).logits.index_fill(-1, tensor([0]), -1e4).log_softmax(-1)
        return y[:, :-1][seqs.response_mask[:, 1:]]
    with torch.no_grad():
        want = reverse_kl(logp(student, x.seqs), logp(teacher, x.teacher_seqs), None)
        with logits_budget(1e-6): parts, _ = token_divergence(student, teacher, x, reverse_kl)
        for got in (parts, token_divergence(student, teacher, x, reverse_kl)[0]): assert_close(got, want, atol=1e-5, rtol=1e-3)
    assert want.min() > -1e-6 and want.max() > .001
    before = weight_hash(student)
    rows = [r for r in train_distill(student, it, replace(CONFIG, n_iterations=2, lr=1e-3), seeded()).log.rows if "iteration" in r]
    assert weight_hash(student) != before and all(0 < r["kl_per_token"] < 20 for r in rows)

# ---- rlhf-nb train distill
command = pytest.mark.usefixtures("one_thread", "no_curves", "inside")

@command
def test_the_command_comes_nearer_to_its_teacher_and_says_by_how_much(capfd):
    "What an answer is measured by is minus the exact KL of its tokens; a dry run writes nothing."
    line = ["train", "distill", "pairs.jsonl", "-o", "o", "--model", "m", "--teacher", "t", "--eval-rows", "6", "--n-iterations", "40",
            "--n-prompts", "8", "--lr", ".01", "--max-new-tokens", "8"]
    assert main([*line, "--dry-run"]) == 0 and not Path("o").exists()
    said = " ".join(capfd.readouterr().out.split())
    assert "teacher t, 1 times the model" in said and "steps 40" in said and "divergence=reverse_kl" in said and "lr=0.01" in said
    assert main(line) == 0
    facts = json.loads(Path("o/run.json").read_text())["results"]
    assert facts["reward_before"] < facts["reward_after"] < 0 and facts["reward_after"] - facts["reward_before"] > 2 * facts["standard_error_before"]
    (student, tok), (teacher, _) = load_lm("o"), load_lm("t")
    row = rows_in("o/held_out.jsonl")[0]
    prompt, answer = encode_prompt(tok, [dict(role="user", content=row["prompt"])]), tok(row["after"], add_special_tokens=False).input_ids
    wanted = []
    for end in ([tok.eos_token_id], []):                  # it ended, or was cut
        seqs = make_seqs([prompt], [answer + end], tok.pad_token_id)
        wanted.append(-token_divergence(student, teacher, Taught(seqs, seqs), reverse_kl)[0].sum().item())
    assert min(abs(row["reward_after"] - x) for x in wanted) < 1e-4, (row, wanted)

@command
def test_a_teacher_of_an_earlier_stage_and_teachers_that_are_none(monkeypatch):
    done = run_all([tiny("sft", n_steps=2), tiny("distill", teacher="stage 1", model="m")], "o")
    assert [row["stage"] for row in done] == ["01-sft", "02-distill"] and done[1]["kl"] >= 0
    plan = plan_stage(tiny("distill", teacher="stage 1"), "x", registry=TINY, number=2, stages=[tiny("sft"), tiny("distill")])
    assert "teacher   stage 1, 1 times the model" in plan
    tok = train_tokenizer(["another language altogether"])
    for each in (tiny_lm(tok, hidden=16, layers=1), tok): each.save_pretrained("other")
    write_model(Path("wide"), hidden=256, layers=2)
    for name, words in (("other", "other has other tokens than the student, such as .*: distributions over two vocabularies"),
                        ("rm", "rm is a reward model, which says nothing"), ("nowhere", "nowhere"), ("", "teacher is empty")):
        for begin in (lambda x: plan_stage(x, "y", registry=TINY), lambda x: run(x, "y")):
            with pytest.raises((ValueError, OSError), match=words): begin(tiny("distill", teacher=name))
        assert not (Path("y")/"run.json").exists()
    small, large = ([line for line in plan_stage(tiny("distill", teacher=t), "y", registry=TINY).splitlines() if line.startswith(("teacher", "memory"))]
                    for t in ("t", "wide"))
    times = float(large[0].split()[2])
    assert "1 times" in small[0] and times > 100 and "others 0 MB" in small[1] and "others 6 MB" in large[1]

@command
def test_a_teacher_with_a_padded_head_is_planned_trained_and_measured(capfd):
    lm, tok = load_lm("t")
    lm.resize_token_embeddings(len(tok) + 7)
    for each in (lm, tok): each.save_pretrained("padded")
    line = ["train", "distill", "pairs.jsonl", "-o", "o", "--model", "m", "--teacher", "padded", "--student-share", ".5", "--eval-rows", "6",
            "--n-iterations", "3", "--n-prompts", "4", "--max-new-tokens", "6"]
    assert main([*line, "--dry-run"]) == 0 and main(line) == 0, capfd.readouterr().err
    facts = json.loads(Path("o/run.json").read_text())["results"]
    assert facts["reward_after"] < 0 and facts["kl"] > 0

@command
def test_every_command_of_the_chapter_runs():
    "On a tiny teacher and student; the dry run before it leaves nothing."
    text = "\n".join("".join(c["source"]) for c in json.loads((ROOT/"nbs/21_distillation.ipynb").read_text("utf-8"))["cells"])
    lines = re.findall(r"^rlhf-nb (train distill .*)$", text.replace("\\\n", ""), re.M)
    assert len(lines) == 2
    small = "--n-iterations 1 --n-prompts 4 --eval-rows 6 --max-new-tokens 4".split()
    for i, line in enumerate(sorted(lines, key=lambda x: "--dry-run" not in x)):
        for a, b in (("prompts.jsonl", "pairs.jsonl"), ("runs/small", "o"), ("runs/sft", "m"), ("runs/ppo", "t")): line = line.replace(a, b)
        assert main([*line.split(), *small]) == 0 and Path("o/run.json").exists() == bool(i)
