"Assignments: whole solutions, wrong ones refused in words, right ones of another style accepted; what is promised of them."
import copy, re, nbformat, pytest, torch
from importlib import import_module
from pathlib import Path
from torch.nn import functional as F
from rlhf_nb.book.checks import CHECK, Exercise, check, grade
from rlhf_nb.book.copies import TASK, chapters, instructors_copy, learners_copy
from rlhf_nb.exercises.properties import Fails, Properties, kept_mib, need, within

ROOT = Path(__file__).resolve().parents[1]
FILES = {f.stem: f for f in sorted((ROOT/"nbs").glob("A[0-9]_*.ipynb"))}
def parts(stem): return {k: x for k, x in vars(import_module(f"rlhf_nb.exercises.{stem.lower()}")).items() if isinstance(x, Properties)}
def ours(stem): return {k: x.reference for k, x in parts(stem).items()}
def cells(stem): return nbformat.read(FILES[stem], 4).cells

def changed(stem, name, *edits): # our solution with some of its text replaced, in a space of its own with the other parts
    source = next(c.source for c in cells(stem) if TASK.match(c.source) and f"def {name}(" in c.source)
    for old, new in edits:
        assert source.count(old) == 1, (old, source.count(old))
        source = source.replace(old, new)
    space = dict(ours(stem)[name].__globals__)
    exec(source, space)
    return space[name]

WRONG = { # stem: (part, what the words of its refusal hold, edits)
    "A1_reward_model": [
        ("encode_answers", "the eos is missing", [("input_ids + eos", "input_ids")]),
        ("encode_answers", "where pad and eos are one token", [("torch.arange(width) < torch.tensor([*map(len, rows)])[:, None]", "ids != tokenizer.pad_token_id")]),
        ("reward_loss", "an answer against itself costs", [("-F.logsigmoid(score(*chosen) - score(*rejected)).mean()", "(1 - score(*chosen) + score(*rejected)).relu().mean()")]),
        ("reward_loss", "pads on the left", [("torch.where(mask, torch.arange(ids.shape[1]), -1).amax(1)", "mask.sum(1) - 1")]),
        ("reward_loss", "its minimum is the true reward", [("-F.logsigmoid(score(*chosen) - score(*rejected)).mean()", "-(.8 * F.logsigmoid(score(*chosen) - score(*rejected)) + .2 * F.logsigmoid(score(*rejected) - score(*chosen))).mean()")]),
        ("reward_loss", "stay finite", [("-F.logsigmoid(score(*chosen) - score(*rejected))", "-torch.sigmoid(score(*chosen) - score(*rejected)).log()")]),
        ("train_reward", "train a copy", [("copy.deepcopy(lm.base_model)", "lm.base_model")]),
        ("train_reward", "in one batch score", [("mask.sum(1) - 1]", "-1]")]),
        ("train_reward", "the same generator gives the same model", [("generator=generator", ""), ("    for p in head.parameters(): torch.nn.init.zeros_(p)\n", "")])],
    "A2_grpo_update": [
        ("group_advantages", "1, 0, 0, 3 have mean 1", [("groups.std(1, keepdim=True)", "groups.std(1, keepdim=True, correction=0)")]),
        ("group_advantages", "equal rewards give 0", [("groups.std(1, keepdim=True) + 1e-4", "groups.std(1, keepdim=True)")]),
        ("group_advantages", "the sums over groups are", [("groups.mean(1, keepdim=True)", "groups.mean()")]),
        ("grpo_update", "goes down where it should go up", [("loss = -((", "loss = ((")]),
        ("grpo_update", "no shift: logits at position i - 1 predict token i", [(".logits[:, :-1]", ".logits[:, 1:]")]),
        ("grpo_update", "that is the mean over all tokens", [("/ response.sum(1)).sum() / len(advantage)", ").sum() / response.sum()")]),
        ("grpo_update", "in micro-batches of 1", [("/ len(advantage)", "/ len(a)")]),
        ("grpo_update", "times the exact gradient along it", [("/ response.sum(1)).sum() / len(advantage)", ").sum() / response.sum()")]),
        ("grpo_update", "is past the clip", [("torch.minimum(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a)", "ratio * a")]),
        ("grpo_update", "counts in full", [("torch.minimum(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a)", "ratio.clamp(1 - clip, 1 + clip) * a")]),
        ("grpo_update", "the step is", [("    optimizer.zero_grad()\n", "")]),
        ("grpo_update", "MiB for the backward pass", [("        loss.backward()\n        total += loss.item()\n    optimizer", "        total = total + loss\n    total.backward()\n    total = total.item()\n    optimizer")]),
        ("train_grpo", "has no prompt", [("row[r].tolist() for row, r in zip(ids, response)", "row[r].tolist() for row, r in zip(ids, mask)")]),
        ("train_grpo", "of the way from the start", [("lr=.1", "lr=.001")])],
    "A3_dpo_rounds": [
        ("dpo_loss", "the loss is", [("log_ratio(chosen) - log_ratio(rejected)", "total(policy, *chosen) - total(policy, *rejected)")]),
        ("dpo_loss", "beta is missing", [("beta * (log_ratio(chosen)", "(log_ratio(chosen)")]),
        ("dpo_loss", "only tokens of the response count", [("response[:, 1:], logp", "mask[:, 1:], logp")]),
        ("dpo_loss", "a gradient reaches the reference", [("        with torch.no_grad(): base = total(ref, *rows)\n", "        base = total(ref, *rows)\n")]),
        ("dpo_loss", "best policy of chapter 06", [("torch.where(response[:, 1:], logp, 0.).sum(1)", "torch.where(response[:, 1:], logp, 0.).sum(1) / response.sum(1)")]),
        ("make_pairs", "the same: draw again", [(" if a != b]", "]")]),
        ("make_pairs", "is not the answer that prefers", [("(a, b) if prefers(a, b) else (b, a)", "(b, a) if prefers(a, b) else (a, b)")]),
        ("make_pairs", "as often as the policy says", [("logits.softmax(-1)", "(logits / 2).softmax(-1)")]),
        ("dpo_rounds", "the second round samples from the policy", [("    for _ in range(n_rounds):\n        ref = copy.deepcopy(policy).requires_grad_(False)\n        pairs = make_pairs(policy,",
            "    ref = copy.deepcopy(policy).requires_grad_(False)\n    for _ in range(n_rounds):\n        pairs = make_pairs(ref,")]),
        ("dpo_rounds", "of the way to the best", [("range(60)", "range(3)")])],
    "A4_pair_judge": [
        ("parse_winner", "'Answer: 12'", [(r"([12])\.?\s*\Z", "([12])")]),
        ("parse_winner", "what was said before it does not count", [("re.search(r\"\\bAnswer: ([12])\\.?\\s*\\Z\", reply)", "re.search(r\"\\bAnswer: ([12])\\b\", reply)")]),
        ("both_orders", "exchanged", [("(there + 1 - back) / 2", "(there + back) / 2")]),
        ("both_orders", "one order unread", [("None: .5", "None: 0.")]),
        ("both_orders", "a judge that is right names", [("[*pairs, *((q, b, a) for q, a, b in pairs)]", "[*pairs, *pairs]")]),
        ("train_judge", "train a copy", [("copy.deepcopy(lm).requires_grad_()", "lm.requires_grad_()")]),
        ("train_judge", "in both orders place 1 is named", [("both = [*pairs, *((q, b, a, 3 - k) for q, a, b, k in pairs)]", "both = [*pairs]")])]}

@pytest.mark.parametrize("stem, name, said, edits", [(stem, *row) for stem, rows in WRONG.items() for row in rows],
                         ids=[f"{stem[:2]} {row[0]}: {row[1]}" for stem, rows in WRONG.items() for row in rows])
@pytest.mark.one_in(4)
def test_a_wrong_whole_is_refused_in_words(stem, name, said, edits):
    "One part of a whole solution is wrong in a plausible way; its tests are run up to the one that says so."
    part, answer = parts(stem)[name], changed(stem, name, *edits)
    for words, test in part.tests.items():
        verdict = Properties(stem, name, {words: test}, part.seconds).verdict(answer)
        if said in verdict: return
    raise AssertionError(verdict)

# ---- other right ones
def rows_by_tokenizer(tokenizer, prompts, answers):
    ids = [torch.tensor(p + tokenizer.encode(a, add_special_tokens=False) + [tokenizer.eos_token_id]) for p, a in zip(prompts, answers)]
    mask = [torch.ones(len(x), dtype=torch.bool) for x in ids]
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(ids, batch_first=True, padding_value=tokenizer.pad_token_id), pad(mask, batch_first=True, padding_value=False)

def by_entropy(model, chosen, rejected):
    def last(ids, mask): return torch.stack([s[m.nonzero()[-1, 0]] for s, m in zip(model(ids, mask), mask)])
    gap = last(*chosen) - last(*rejected)
    return F.binary_cross_entropy_with_logits(gap, torch.ones_like(gap))

def with_transformers(lm, tokenizer, pairs, generator, steps):
    from rlhf_nb.base.models import ScalarModel
    from rlhf_nb.reward import bradley_terry_loss, score_seqs
    from rlhf_nb.tokens import Seqs
    model = ScalarModel.from_lm(copy.deepcopy(lm), seed=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    def seqs(prompts, answers):
        ids, mask = rows_by_tokenizer(tokenizer, prompts, answers)
        return Seqs(ids, mask, mask)
    def scores(x): return model(x).gather(1, x.lengths()[:, None] - 1)[:, 0]
    for _ in range(steps):
        prompts, a, b = zip(*[pairs[i] for i in torch.randint(len(pairs), (32,), generator=generator)])
        loss = bradley_terry_loss(scores(seqs(prompts, a)), scores(seqs(prompts, b))).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    return lambda prompts, answers: score_seqs(model, seqs(prompts, answers))

def advantages_by_loop(reward, size, scale):
    out = []
    for group in reward.split(size):
        a = [x - group.sum() / size for x in group]
        std = (sum(x**2 for x in a) / (size - 1))**.5 + 1e-4 if scale else 1.
        out += [x / std for x in a]
    return torch.stack(out)

def update_by_grad(policy, optimizer, rows, old_logp, advantage, clip, micro):
    from rlhf_nb.tokens import token_logprobs
    weights, total = [*policy.parameters()], 0.
    sums = [torch.zeros_like(p) for p in weights]
    for part in torch.arange(len(advantage)).split(micro):
        ids, mask, response = (x[part] for x in rows)
        logp = token_logprobs(policy(input_ids=ids, attention_mask=mask.long()).logits, ids)
        loss = 0.
        for row, kept, old, a in zip(logp, response, old_logp[part], advantage[part]):
            ratio = (row[kept] - old[kept]).exp()
            bound = 1 + clip if a > 0 else 1 - clip
            gain = (ratio * a).where((ratio < bound) if a > 0 else (ratio > bound), bound * a)
            loss = loss - gain.mean() / len(advantage)
        for s, g in zip(sums, torch.autograd.grad(loss, weights)): s += g
        total += loss.item()
    for p, g in zip(weights, sums): p.grad = g
    optimizer.step()
    return total

def grpo_by_package(policy, reward_fn, prompt, max_new, eos, pad, generator, n_rollouts):
    "Eight groups of eight, without the scale, by the learner's other parts; sampling row by row of the table."
    optimizer = torch.optim.SGD(policy.parameters(), lr=8.)
    for _ in range(n_rollouts):
        answers, old = [], []
        for _ in range(64):
            y, logps = [], []
            while len(y) < max_new and y[-1:] != [eos]:
                with torch.no_grad(): logp = policy(input_ids=torch.tensor([prompt + y])).logits[0, -1].log_softmax(-1)
                y.append(torch.multinomial(logp.exp(), 1, generator=generator).item())
                logps.append(logp[y[-1]])
            answers.append(y)
            old.append(torch.stack(logps))
        width = len(prompt) + max(map(len, answers))
        ids, response = torch.full((64, width), pad), torch.zeros(64, width, dtype=torch.bool)
        before = torch.zeros(64, width)
        for i, y in enumerate(answers):
            end = len(prompt) + len(y)
            ids[i, :end], response[i, len(prompt):end], before[i, len(prompt):end] = torch.tensor(prompt + y), True, old[i]
        mask = response | (torch.arange(width) < len(prompt))
        update_by_grad(policy, optimizer, (ids, mask, response), before,
                       advantages_by_loop(torch.tensor(reward_fn(answers)), 64, True), .2, 32)

def dpo_by_ratio(policy, ref, chosen, rejected, beta):
    from rlhf_nb.base.logprobs import logprobs
    from rlhf_nb.tokens import Seqs, masked_sum
    def total(model, rows): return masked_sum(logprobs(model, Seqs(*rows)), rows[2])
    gap = total(policy, chosen) - total(policy, rejected) - (total(ref, chosen) - total(ref, rejected)).detach()
    return F.softplus(-beta * gap).mean()

def pairs_one_by_one(policy, prefers, prompt, n, max_new, eos, pad, generator):
    from rlhf_nb.tokens import make_seqs
    def draw():
        y = []
        while len(y) < max_new and y[-1:] != [eos]:
            with torch.no_grad(): p = policy(input_ids=torch.tensor([prompt + y])).logits[0, -1].softmax(-1)
            y.append(torch.multinomial(p, 1, generator=generator).item())
        return y
    sides = [], []
    while len(sides[0]) < n:
        a, b = draw(), draw()
        if a == b: continue
        first = prefers(a, b)
        sides[0].append(a if first else b)
        sides[1].append(b if first else a)
    return tuple((x.ids, x.attention_mask, x.response_mask) for x in (make_seqs([prompt] * n, side, pad) for side in sides))

def rounds_in_batches(policy, prefers, prompt, max_new, eos, pad, beta, generator, n_rounds):
    for _ in range(n_rounds):
        ref = copy.deepcopy(policy)
        sides = pairs_one_by_one(policy, prefers, prompt, 200, max_new, eos, pad, generator)
        optimizer = torch.optim.SGD(policy.parameters(), lr=20.)
        for _ in range(10):
            for part in torch.randperm(200, generator=generator).split(50):
                loss = dpo_by_ratio(policy, ref, *[[x[part] for x in side] for side in sides], beta)
                optimizer.zero_grad(); loss.backward(); optimizer.step()

def winner_by_words(reply):
    text = reply.rstrip()
    text = text[:-1] if text.endswith(".") else text
    last = text.split("Answer: ")
    before = "" if len(last) < 2 else last[-2][-1:]
    return int(last[-1]) if len(last) > 1 and last[-1] in ("1", "2") and not before.isalnum() else None

def orders_by_loop(ask, pairs):
    replies = iter(ask([t for q, a, b in pairs for t in ((q, a, b), (q, b, a))]))
    out = []
    for _ in pairs:
        there, back = winner_by_words(next(replies)), winner_by_words(next(replies))
        out.append((.5 if there is None else there == 1) / 2 + (.5 if back is None else back == 2) / 2)
    return torch.tensor(out)

def judge_by_package(lm, tokenizer, pairs, generator, steps):
    from rlhf_nb.base.batches import chat_ids, response_text
    from rlhf_nb.base.learning import TrainConfig, fit, make_trainer
    from rlhf_nb.base.sampling import SamplingParams, generate_many
    from rlhf_nb.sft import sft_loss
    from rlhf_nb.tokens import make_seqs
    def prompt(q, a, b): return chat_ids(tokenizer, f"Which answer is better?\nQuestion: {q}\nAnswer: {a}\nAnswer: {b}")
    rows = [x for q, a, b, k in pairs for x in ((prompt(q, a, b), k), (prompt(q, b, a), 3 - k))]
    said = [tokenizer.encode(f"Answer: {k}", add_special_tokens=False) + [tokenizer.eos_token_id] for k in (1, 2)]
    trainer = make_trainer(copy.deepcopy(lm).requires_grad_(), TrainConfig(2e-3, steps, 32))
    fit(trainer, make_seqs([p for p, _ in rows], [said[k - 1] for _, k in rows], tokenizer.pad_token_id), sft_loss, generator)
    model = trainer.model.eval()
    def ask(trios):
        seqs, _ = generate_many(model, [prompt(*t) for t in trios], tokenizer, SamplingParams(5, temperature=0.), torch.Generator())
        return [response_text(tokenizer, row[m].tolist()) for row, m in zip(seqs.ids, seqs.response_mask)]
    return ask

RIGHT = {"A1_reward_model": dict(encode_answers=rows_by_tokenizer, reward_loss=by_entropy, train_reward=with_transformers),
         "A2_grpo_update": dict(group_advantages=advantages_by_loop, grpo_update=update_by_grad, train_grpo=grpo_by_package),
         "A3_dpo_rounds": dict(dpo_loss=dpo_by_ratio, make_pairs=pairs_one_by_one, dpo_rounds=rounds_in_batches),
         "A4_pair_judge": dict(parse_winner=winner_by_words, both_orders=orders_by_loop, train_judge=judge_by_package)}

@pytest.mark.parametrize("stem, name", [pytest.param(
    stem, name, marks=[pytest.mark.long] * (name in ("train_grpo", "train_judge", "dpo_rounds")))
    for stem, some in RIGHT.items() for name in some])
def test_a_right_whole_of_another_style_passes(stem, name):
    "Ours stands in the notebook, which every run executes with RLHF_NB_STRICT=1."
    assert grade(RIGHT[stem][name], parts(stem)[name]) == "right"

# ---- what is promised of them
@pytest.mark.parametrize("stem", FILES)
def test_a_learner_gets_empty_cells_hints_and_no_solution(stem):
    nb = learners_copy(nbformat.read(FILES[stem], 4))
    names = [n for c in nb.cells for n in CHECK.findall(c.source)]
    assert names == [*parts(stem)] and len(names) == 3
    for name, fn in ours(stem).items():
        body = [c.source for c in nb.cells if f"def {name}(" in c.source]
        assert len(body) == 1 and body[0].endswith("    raise NotImplementedError") and not CHECK.search(body[0])
    text = "\n".join(c.source for c in nb.cells)
    assert "<summary>Solution" not in text and text.count("<summary>Hint") >= 6
    assert not [c for c in nb.cells if c.cell_type == "code" and CHECK.match(c.source) and c.outputs]

@pytest.mark.parametrize("stem", FILES)
def test_the_rubric_is_what_is_tested_and_the_points_are_the_minutes(stem):
    [rubric] = [c.source for c in cells(stem) if c.source.startswith("## Rubric")]
    rows = re.findall(r"^\| (?:`(\w+)`)? ?\| (.+) \| (\d*) \|$|^\|  \| (.+) \|  \|$", rubric, re.M)
    tested = [words for x in parts(stem).values() for words in x.tests]
    assert [a or b for _, a, _, b in rows] == tested
    minutes = {re.search(r"def (\w+)", c.source)[1]: int(TASK.match(c.source)[1]) for c in cells(stem) if TASK.match(c.source)}
    assert {name: int(n) for name, _, n, _ in rows if name} == minutes and 60 <= sum(minutes.values()) <= 180
    assert f"**{sum(minutes.values())} minutes" in "".join(c.source for c in cells(stem)[:3])
    for cell in instructors_copy(nbformat.read(FILES[stem], 4), 7).cells:
        mark = cell.metadata.get("nbgrader", {})
        if mark.get("grade"):
            name = mark["grade_id"].removeprefix("check_")
            assert mark["points"] == minutes[name] and cell.source.endswith(f"\nexercises.{name}.points({name}, {minutes[name]}, seed)")
            assert "\n### BEGIN HIDDEN TESTS\nseed = 7\n### END HIDDEN TESTS\n" in cell.source

def test_assignments_have_short_names_and_are_reached_from_index_and_chapters():
    from rlhf_nb.book.copies import find_chapters
    assert find_chapters(["a2", "grpo", "grpo_update", "A2_grpo_update", "reward_model"]) == [FILES["A2_grpo_update"], chapters()["09_grpo"], FILES["A2_grpo_update"], FILES["A2_grpo_update"], FILES["A1_reward_model"]]
    for stem, chapter in zip(FILES, ("05_reward", "09_grpo", "10_dpo", "13_judge")):
        for file in ("index", chapter): assert f"]({stem}.ipynb)" in "".join(c.source for c in nbformat.read(ROOT/f"nbs/{file}.ipynb", 4).cells)

# ---- the machinery
HALF = Properties("A2_grpo_update", "half", {"it is above 0": lambda f, seed: need(f(4) > 0, f"got {f(4)}"),
                                      "it is half": lambda f, seed: need(f(4 + seed) == 2 + seed / 2, f"got {f(4 + seed)}, want {2 + seed / 2}")}, .3)
def test_a_verdict_says_what_does_not_hold(capsys):
    assert grade(lambda x: x / 2, HALF) == "right"
    assert grade(lambda x: x, HALF) == "1 of 2 hold; not so: it is half (got 4, want 2.0)"
    def stub(x): raise NotImplementedError
    assert grade(stub, HALF) == "not done yet" and grade(None, HALF).startswith("no function")
    assert "it is above 0 (it stopped with TypeError: " in grade(lambda x: x + "1", HALF)

def test_no_learned_numbers_pass_the_hidden_seed():
    assert HALF.failures(lambda x: 2.) == {} and [*HALF.failures(lambda x: 2., 7)] == ["it is half"]

def test_what_takes_too_long_is_ended_and_what_is_kept_is_counted():
    def endless(x):
        while True: x += 1
    said = grade(endless, HALF)
    assert said.startswith("0 of 2 hold") and "it was ended after 0.3 s of processor time" in said
    w = torch.ones(512, 512, requires_grad=True)                                   # 1 MiB
    def run(*parts):
        for k in parts: sum(((w + 0) * torch.full((512, 512), 2.)).exp().sum() for _ in range(k)).backward()
    assert kept_mib(lambda: run(1), [w]) < kept_mib(lambda: run(1, 1, 1), [w]) + .1 <= kept_mib(lambda: run(3), [w])
    with pytest.raises(Fails, match="limit"), within(.05): sum(range(10**7))

def test_points_are_a_share_and_ours_is_lent_to_what_follows(capsys, monkeypatch):
    monkeypatch.setattr(Properties, "reference", property(lambda self: "ours"))
    space = dict(part=HALF, half=lambda x: x, right=lambda x: x / 2)
    assert eval("part.points(half, 30)", space) == 15. and space["half"] == "ours"
    assert eval("part.points(right, 30)", space) == 30. and "half: it is half (got 4, want 2.0)" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="half: nothing holds"): eval("part.points(half, 30)", space)
