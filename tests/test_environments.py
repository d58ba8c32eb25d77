"Environments: inserted tokens, masks, the same rows in every way of sampling; exact gradients; faults with their row; chats, killed and resumed."
import json, re, pytest, torch
from dataclasses import replace
from torch import tensor
from torch.testing import assert_close
from rlhf_nb.base.batches import Rollout, ended_rows, response_text
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.models import ScalarModel, frozen_copy, load_lm, tiny_lm
from rlhf_nb.base.sampling import (EnvironmentFault, SamplingParams, collect_rollout, generate, generate_many, sampling_by,
    static_decoding)
from rlhf_nb.base.settings import weight_hash
from rlhf_nb.data.rollouts import read_run, rollout_seqs, save_rollout
from rlhf_nb.data.text import train_tokenizer
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.run.text_rewards import PromptTable, decode_seqs, make_text_environment, turn_ids
from rlhf_nb.tokens import make_seqs, masked_sum, token_logprobs
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, grpo_loss, make_group_experience, train_grpo
from rlhf_nb.trainers.ppo_trainer import (PPOConfig, RLTask, make_experience, minibatch_loss, rollout_rewards, train_ppo,
    validate_rollouts)
from rlhf_nb.worlds.oracle import TabularLM, micro_tokenizer, micro_world

WORLD = micro_world()                     # very kind rude . | start 4, pad 5, eos 3
TOK = micro_tokenizer(WORLD)
PROMPTS = [[4], [4, 0], [4, 1, 2], [4], [4, 2]]
def seeded(seed=0): return torch.Generator().manual_seed(seed)
def lm(seed=0): return tiny_lm(TOK, hidden=32, layers=1, seed=seed)
def tool(prompt, parts): # after "very": as many "kind" as it was said so far in this part, and "rude"
    return [1] * len(parts[-1]) + [2] if parts[-1][-1] == 0 else []
def sample(model, environment, n=9, seed=0, size=64, prompts=PROMPTS * 6):
    return generate_many(model, prompts, TOK, SamplingParams(n), seeded(seed), size, environment=environment)

# ---- sampling
def by_hand(row, u, n=9, model=None, environment=tool): # (ids, written) of one row, token by token, no batch
    prompt, parts, ids, written, left = PROMPTS[row % 5], [[]], [], [], []
    while len(ids) < n:
        if left: ids, written, left = ids + left[:1], written + [False], left[1:]
        else:
            with torch.no_grad(): logits = model(input_ids=tensor([prompt + ids])).logits[0, -1]
            logits[WORLD.pad] = -torch.inf
            new = int((logits.double().softmax(-1).cumsum(-1) <= u[row, len(ids)]).sum())
            ids, written = ids + [new], written + [True]
            parts[-1].append(new)
            left = environment(prompt, parts) if len(ids) < n else []
            if left: parts += [left, []]
            if new == WORLD.eos and not left: break
        if not written[-1] and ids[-1] == WORLD.eos and not left: break
    return ids, written

def ends(prompt, parts): # after "rude": "kind ." , which is eos, and so the end
    return [1, 3] if parts[-1][-1] == 2 else []
def turns(prompt, parts): # an eos of the model is answered twice, then it may end
    return [4, 0, 3, 1] if parts[-1][-1] == 3 and len(parts) < 5 else []
each = pytest.mark.parametrize("environment", [tool, ends, turns])

@each
def test_rows_are_those_of_a_loop_without_batches_caches_or_masks(environment):
    model = lm()
    seqs, logp = sample(model, environment)
    u = torch.rand(30, 9, generator=seeded())
    gaps = 0
    for i in range(30):
        ids, written = by_hand(i, u, model=model, environment=environment)
        at = len(PROMPTS[i % 5])
        n = int(seqs.attention_mask[i].sum())
        assert seqs.ids[i, :n].tolist() == PROMPTS[i % 5] + ids
        assert seqs.response_mask[i, at:n].tolist() == written and not seqs.response_mask[i, :at].any()
        gaps += not all(written)
    assert gaps > 5
    assert_close(logp, logprobs(model, seqs), atol=1e-5, rtol=0)
    assert (logp[~seqs.response_mask] == 0).all()

@each
def test_batches_caches_and_fixed_shapes_change_no_row(environment):
    model = lm()
    want, want_logp = sample(model, environment)
    model.has_cache = False
    literal, _ = sample(model, environment, size=7)
    model.has_cache = True
    batches, logp = sample(model, environment, size=4)
    with static_decoding(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", lambda model, **options: model)
        fixed, _ = sample(model, environment)
    for x in (literal, batches, fixed): assert torch.equal(x.ids, want.ids) and torch.equal(x.response_mask, want.response_mask)
    assert_close(logp, want_logp, atol=1e-5, rtol=0)

def test_an_environment_that_says_nothing_changes_nothing():
    model = lm()
    for quiet in (lambda prompt, parts: [], lambda prompt, parts: None):
        for a, b in zip(sample(model, None), sample(model, quiet)):
            assert torch.equal(getattr(a, "ids", a), getattr(b, "ids", b))

def test_parts_are_what_was_written_and_inserted_and_may_be_changed_by_who_is_asked():
    seen = []
    def environment(prompt, parts):
        seen.append((tuple(prompt), [list(x) for x in parts]))
        said = tool(prompt, parts)
        prompt.clear(), parts.clear()
        return said
    seqs, _ = sample(lm(), environment)
    want, _ = sample(lm(), tool)
    assert torch.equal(seqs.ids, want.ids)
    rows = {tuple(ids[real].tolist()) for ids, real in zip(seqs.ids, seqs.attention_mask)}
    for prompt, parts in seen:
        said = (*prompt, *(i for part in parts for i in part))
        assert any(row[:len(said)] == said for row in rows)
    assert max(len(parts) for _, parts in seen) >= 3

def test_at_the_limit_a_tool_is_cut_or_not_even_asked():
    asked = []
    def environment(prompt, parts):
        asked.append(sum(map(len, parts)))
        return [1] * 4
    seqs, _ = sample(lm(), environment, n=3, prompts=[[4]] * 8)
    for ids, mask in zip(seqs.ids, seqs.response_mask): # one token written, two of four inserted, and no more
        assert ids[2:4].tolist() == [1, 1] and mask.tolist() == [False, True, False, False]
    assert asked == [1] * 8 and not ended_rows(seqs, 3).any()
    asked.clear()
    sample(lm(), environment, n=1)
    assert not asked

def test_a_row_ends_with_an_eos_after_which_nothing_comes():
    seqs = make_seqs([[4]] * 5, [[1, 3], [3, 4, 0], [3, 1, 3], [], [0]], 5)
    assert ended_rows(seqs, 3).tolist() == [True, False, True, False, False]
    seqs = make_seqs([[4, 3], [4, 3]], [[], [0, 3]], 5)                  # a prompt's eos is none of the response's
    assert ended_rows(seqs, 3).tolist() == [False, True]
    got, _ = sample(lm(), ends)
    over = [mask[real].tolist()[-1] is False for mask, real in zip(got.response_mask, got.attention_mask)]
    assert any(over) and all(ended_rows(got, 3)[i] for i, x in enumerate(over) if x)

@pytest.mark.parametrize("bad, said", [(lambda p, x: [9], r"token ids from 0 to 5 without pad 5.*got \[9\]"),
    (lambda p, x: [5], r"got \[5\]"), (lambda p, x: [-1], r"got \[-1\]"), (lambda p, x: "55", "got '55'"), (lambda p, x: [1.], r"got \[1.0\]"),
    (lambda p, x: tensor([1, 2]), "raised RuntimeError"), (lambda p, x: 1 / 0, "raised ZeroDivisionError: division by zero"),
    (lambda p, x: exit(3), "raised SystemExit: 3"), (lambda p: [], "raised TypeError")])
def test_a_fault_is_one_sentence_with_the_row(bad, said):
    def environment(prompt, parts): return bad(prompt, parts) if prompt == [4, 2] else []
    if said == "raised TypeError": environment = bad
    with pytest.raises(EnvironmentFault, match=said) as e: sample(lm(), environment, size=3, prompts=PROMPTS)
    assert re.match(r"the environment, for row \d after the tokens \[\d\], ", str(e.value)) and "\n" not in str(e.value)
    if said != "raised TypeError": assert "row 4 " in str(e.value)

def test_a_sampler_of_another_program_asks_none():
    model = lm()
    with sampling_by(lambda model, x: ([[3]] * 5, [[0.]] * 5), model), pytest.raises(ValueError, match="asks no environment"):
        generate(model, PROMPTS, TOK, SamplingParams(3), seeded(), tool)

# ---- learning: against the sum over all responses, the tool's words being no choice
def table(seed):
    model = TabularLM(micro_world(max_len=5)).double()
    with torch.no_grad(): model.head.weight[:4] = torch.randn(4, model.head.weight.shape[1], generator=seeded(seed)).double()
    return model
def call(prompt, parts): return [1, 2] if parts[-1][-1] == 0 else []     # very: kind rude
LONG = micro_world(max_len=5)

def tree(model, n=5): # (ids, written) of all responses with at most n tokens, with the tool
    done, open_rows = [], [([], [], [[]])]
    while open_rows:
        ids, written, parts = open_rows.pop()
        for new in range(4):
            now, mask, said = ids + [new], written + [True], [*parts[:-1], parts[-1] + [new]]
            left = call([4], said) if len(now) < n else []
            now, mask = (now + left)[:n], (mask + [False] * len(left))[:n]
            if len(now) == n or new == 3 and not left: done.append((now, mask))
            else: open_rows.append((now, mask, [*said, left, []] if left else said))
    seqs = make_seqs([[4]] * len(done), [ids for ids, _ in done], 5)
    for row, (ids, written) in zip(seqs.response_mask, done): row[1:1 + len(ids)] = tensor(written)
    return seqs

def reward_of(seqs): return ((seqs.ids == 1) & (seqs.attention_mask)).sum(1).double() - .5 * (seqs.ids == 2).sum(1)

def test_the_tree_is_what_is_sampled():
    model = table(0)
    seqs = tree(model)
    logp = masked_sum(token_logprobs(model(seqs.ids, seqs.attention_mask).logits, seqs.ids), seqs.response_mask)
    assert_close(logp.exp().sum(), tensor(1.).double())
    index = {tuple(ids[real].tolist()): i for i, (ids, real) in enumerate(zip(seqs.ids, seqs.attention_mask))}
    got, _ = generate(model, [[4]] * 4000, TOK, SamplingParams(5), seeded(), call)
    seen = torch.bincount(tensor([index[tuple(ids[real].tolist())] for ids, real in zip(got.ids, got.attention_mask)]), minlength=len(seqs))
    p = logp.exp().detach()
    z = (seen - 4000 * p) / (4000 * p * (1 - p)).sqrt().clamp(min=1.)
    assert z.abs().max() < 5

@pytest.mark.parametrize("level", ["token", "sequence"])
def test_grpo_with_the_mask_has_the_exact_gradient_and_without_it_another(level):
    "In expectation over all responses; an advantage is the reward less its mean."
    model, found = table(1), {}
    seqs = tree(model)
    def prob(): return masked_sum(token_logprobs(model(seqs.ids, seqs.attention_mask).logits, seqs.ids), seqs.response_mask).exp()
    exact = torch.autograd.grad((prob() * reward_of(seqs)).sum(), model.head.weight)[0]
    p, reward = prob().detach(), reward_of(seqs)
    config = GRPOConfig(advantage_fn=lambda r, g: r - (p * r).sum(), beta=0., importance_sampling_level=level, num_iterations=1,
                        loss_type=lambda mask, max_length: mask * p[:, None])
    task = RLTask([[4]], reward_of, TOK, SamplingParams(5))
    for name, rows in (("mask", seqs), ("none", replace(seqs, response_mask=seqs.attention_mask & (seqs.response_mask.cumsum(1) > 0)))):
        logp = logprobs(model, rows).detach()
        x = make_group_experience(Rollout(rows, torch.zeros(len(rows)), logp, logp, reward), config, task)
        loss, _, _ = grpo_loss(model, x, config)
        found[name] = -torch.autograd.grad(loss, model.head.weight)[0]
    assert_close(found["mask"], exact, atol=1e-6, rtol=1e-5)
    assert (found["none"] - exact).norm() > .1 * exact.norm()

def test_ppo_steps_over_what_was_inserted():
    "Rewards, advantages, loss and KL are those of the written tokens alone: changing all else changes nothing."
    model, ref = lm().requires_grad_(), frozen_copy(lm(1))
    critic = ActorCritic(model, ScalarModel.from_lm(ref))
    roll = collect_rollout(model, ref, PROMPTS, lambda x: x.ids.float().sum(1), TOK, SamplingParams(9), seeded(3), 4, environment=tool)
    mask = roll.seqs.response_mask
    assert ((mask.cumsum(1) > 0) & roll.seqs.attention_mask & ~mask).any()
    config = PPOConfig(n_prompts=20)
    x = make_experience(critic, roll, config, 3)
    reward = rollout_rewards(roll, config, 3)
    kl = masked_sum(roll.logp - roll.ref_logp, mask)
    assert_close(reward.sum(1), roll.reward - .1 * kl, atol=1e-4, rtol=1e-5)
    for name in ("advantage", "returns"): assert (getattr(x, name)[~mask] == 0).all()
    last = (mask * torch.arange(mask.shape[1])).argmax(1)                  # the score: at the last written token
    assert_close(reward.gather(1, last[:, None])[:, 0], roll.reward - .1 * (roll.logp - roll.ref_logp).gather(1, last[:, None])[:, 0])
    noisy = replace(x, logp=x.logp + 7. * ~mask, advantage=x.advantage + 3. * ~mask, returns=x.returns - 2. * ~mask, value=x.value + 5. * ~mask)
    assert_close(minibatch_loss(critic, noisy, config)[0], minibatch_loss(critic, x, config)[0])

# ---- whole runs
def reward_fn(seqs): return (seqs.ids == 1).sum(1).float()
def task(**more): return RLTask(PROMPTS, reward_fn, TOK, SamplingParams(9), **dict(environment=tool) | more)
def run_of(method, folder=None, n=3, callback=lambda row, roll: None, it=None):
    policy = lm().requires_grad_()
    ref = frozen_copy(policy)
    if method == "ppo":
        model, loop, config = ActorCritic(policy, ScalarModel.from_lm(ref)), train_ppo, PPOConfig(n_iterations=n, n_prompts=6, lr=3e-3)
    else: model, loop, config = policy, train_grpo, GRPOConfig(n_iterations=n, n_prompts=3, num_generations=4, lr=3e-3)
    trainer = loop(model, ref, it or task(), config, seeded(5), folder, callback)
    return weight_hash(model), [row for row in trainer.log.rows if "iteration" in row]

@pytest.mark.parametrize("method", ["ppo", "grpo"])
def test_a_cut_run_goes_on_in_the_same_bits_and_not_with_another_environment(tmp_path, method):
    rolls = []
    want, rows = run_of(method, callback=lambda row, roll: rolls.append(roll))
    assert all((r.seqs.attention_mask & (r.seqs.response_mask.cumsum(1) > 0) & ~r.seqs.response_mask).any() for r in rolls)
    class Cut(Exception): pass
    def cut(row, roll):
        if row["iteration"] == 2: raise Cut
    with pytest.raises(Cut): run_of(method, tmp_path, callback=cut)
    with pytest.raises(ValueError, match="environment"): run_of(method, tmp_path, it=task(environment=ends))
    got, again = run_of(method, tmp_path)
    assert got == want and [r["iteration"] for r in again] == [1, 2, 3]

def test_a_response_of_several_turns_is_cut_where_its_last_turn_is():
    config = GRPOConfig(mask_truncated_completions=True)
    seqs = make_seqs([[4]] * 3, [[1, 3, 0, 1, 3], [1, 3, 0, 1, 1], [1, 3]], 5)
    seqs.response_mask[:2, 3] = False
    x = make_group_experience(Rollout(seqs, tensor([0, 0, 0]), torch.zeros(3, 6), torch.zeros(3, 6), tensor([1., 2., 3.])), config, task())
    assert x.mask.sum(1).tolist() == [4, 0, 2]

def test_score_after_eos_is_refused():
    with pytest.raises(ValueError, match="one turn"): validate_rollouts(lm(1), frozen_copy(lm()), task(), PPOConfig(score_after_eos=True))

# ---- kept rollouts
def test_kept_rollouts_tell_what_was_inserted(tmp_path):
    model = lm()
    roll = collect_rollout(model, frozen_copy(lm(1)), PROMPTS, reward_fn, TOK, SamplingParams(9), seeded(3), 2, environment=tool)
    (tmp_path/"rollouts").mkdir()
    x = make_group_experience(roll, GRPOConfig(), task())
    save_rollout(tmp_path/"rollouts/000001.safetensors", 1, roll, x, torch.arange(10), TOK)
    kept = read_run(tmp_path)
    again = rollout_seqs(kept, TOK)
    for name in ("ids", "attention_mask", "response_mask"): assert torch.equal(getattr(again, name), getattr(roll.seqs, name))
    for i in range(10):
        row, mask = kept.tokens_of(i), roll.seqs.response_mask[i]
        said = roll.seqs.attention_mask[i] & (mask.cumsum(0) > 0)
        logp = tensor(row.channels["log-prob"])
        assert row.channels["written"] == mask[said].float().tolist() and kept.rows[i]["length"] == int(said.sum())
        assert torch.equal(logp.isnan(), ~mask[said]) and torch.equal(logp[mask[said]], roll.logp[i][mask])
        assert kept.rows[i]["response"] == TOK.decode(roll.seqs.ids[i][said].tolist(), skip_special_tokens=True)

# ---- chats: from a function of messages, on a BPE tokenizer with a template
ROWS = [dict(prompt="What is 2 + 2?", answer="4"), dict(prompt=[dict(role="user", content="Hi"), dict(role="assistant", content="Yes?"),
                                                                dict(role="user", content="3 + 5?")], answer="8")]
TEMPLATES = dict(own=None,
    chatml="{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<eos>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    llama="{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% elif m.role == 'assistant' %} {{ m.content }} <eos>{% endif %}{% endfor %}",
    none="")

@pytest.fixture(scope="module")
def bpe(): return train_tokenizer(["What is 2 + 2? What is 3 + 5? It is 4, not 8. The calculator says 4."] * 3, 300)

@pytest.mark.parametrize("name, want", [("own", "<|user|>The sum is 4.<|assistant|>"), ("chatml", "\n<|im_start|>user\nThe sum is 4.<eos>\n<|im_start|>assistant\n"),
                                        ("llama", "[INST] The sum is 4. [/INST]"), ("none", "The sum is 4.")])
def test_a_turn_is_what_the_template_puts_between_two_answers(bpe, name, want, monkeypatch):
    if name != "own": monkeypatch.setattr(bpe, "chat_template", TEMPLATES[name])
    ids = turn_ids(bpe, [dict(role="user", content="The sum is 4.")])
    assert bpe.decode(ids) == want
    assert bpe.bos_token_id not in ids
    if name == "llama":
        with pytest.raises(ValueError, match="leaves out {'role': 'tool', 'content': '4'}: give it the role user"): turn_ids(bpe, [dict(role="tool", content="4")])
    for mark in ("<eos>", "<pad>"):
        with pytest.raises(ValueError, match=f"holds {mark}, which is a special token"): turn_ids(bpe, [dict(role="user", content=f"4{mark}")])

def test_who_is_asked_gets_the_messages_and_its_columns_and_ids_are_kept(bpe):
    table, seen = PromptTable(ROWS, bpe, 64), []
    eos = bpe.eos_token_id
    odd = [bpe.convert_tokens_to_ids(x) for x in "is"] + [eos]            # letters of which an encoder makes one token
    assert bpe("is", add_special_tokens=False)["input_ids"] != odd[:-1]
    def reply(messages, answer):
        seen.append((messages, answer))
        return [f"No, {answer}.", dict(role="tool", content="8"), [dict(role="user", content="So?")], None][sum(m["role"] == "assistant" for m in messages) - 1]
    ask = make_text_environment(reply, table, bpe)
    first = table.prompts[0]
    assert ask(first, [odd[:-1]]) == [] and not seen                      # the turn has not ended
    parts = [odd]
    for want in ("<|user|>No, 4.<|assistant|>", "<|tool|>8<|assistant|>", "<|user|>So?<|assistant|>"):
        said = ask(first, parts)
        assert bpe.decode(said) == want and parts[0] == odd
        parts += [said, odd]
    assert ask(first, parts) == []
    assert seen[-1] == ([dict(role="user", content="What is 2 + 2?"), dict(role="assistant", content="is"), dict(role="user", content="No, 4."),
        dict(role="assistant", content="is"), dict(role="tool", content="8"), dict(role="assistant", content="is"), dict(role="user", content="So?"),
        dict(role="assistant", content="is")], "4")
    assert bpe.decode(ask(table.prompts[1], [odd])) == "<|user|>Yes?<|assistant|>" or seen[-1][1] == "8"
    assert seen[-1][0][:3] == ROWS[1]["prompt"] and table.given[1] == ROWS[1]["prompt"]
    seqs = make_seqs([first], [[*odd, *said, *odd]], bpe.pad_token_id)
    seqs.response_mask[0, len(first) + len(odd):len(first) + len(odd) + len(said)] = False
    [(prompt, response)] = decode_seqs(bpe, seqs)
    assert "What is 2 + 2?" in prompt and "is" not in prompt.partition("?")[2] and response.count("is") == 2 and "So?" in response

@pytest.mark.parametrize("fn, words", [(lambda: None, r"cannot be called with messages and the columns of rows in memory \(answer\)"),
                                       (lambda messages, key: None, "missing a required argument: 'key'")])
def test_what_cannot_be_asked(bpe, fn, words):
    with pytest.raises(ValueError, match=words): make_text_environment(fn, PromptTable(ROWS, bpe, 64), bpe)

# ---- the command, with a tiny model
TOOLS = """
def says(messages):
    turns = sum(m["role"] == "assistant" for m in messages)
    return f"The {turns} owl" if turns < 3 else None
""".replace("{turns} ", "")

@pytest.fixture
def home(tmp_path, monkeypatch):
    from tiny_runs import fill_home
    fill_home(tmp_path)
    (tmp_path/"tools.py").write_text(TOOLS)
    monkeypatch.chdir(tmp_path)
    for name in ("tools", "tiny_rules"): monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    return tmp_path

@pytest.mark.parametrize("method", ["ppo", "grpo"])
def test_chats_with_tools_train_are_kept_and_go_on(home, method, capsys):
    from rlhf_nb.book.command import main
    words = ["train", method, "pairs.jsonl", "--model", "m", "--reward", "tiny_rules:even", "--environment", "tools:says", "--max-new-tokens", "16",
             "--n-iterations", "2", "--n-prompts", "6", "--eval-rows", "4", "-o"]
    assert main([*words, "a", "--dry-run"]) in (0, None) and "environment" in capsys.readouterr().out
    assert main([*words, "a"]) in (0, None)
    kept = read_run(home/"a")
    spoken = [i for i in range(len(kept)) if "written" in kept.tokens_of(i).channels]
    assert any("The owl" in kept.rows[i]["response"] for i in spoken)
    for i in spoken:
        row = kept.tokens_of(i)
        assert all((w == 1) != (p != p) for w, p in zip(row.channels["written"], row.channels["log-prob"]))
    model, tokenizer = load_lm(str(home/"a"))
    said = (home/"a/samples.jsonl").read_text()
    assert "The owl" in said                                               # what is measured asks, too

def test_a_tool_that_raises_stops_the_run_and_a_mended_one_goes_on(home, capsys):
    from rlhf_nb.book.command import main
    from rlhf_nb.trainers.ppo_trainer import RewardError
    (home/"tools.py").write_text("N = []\ndef says(messages):\n    N.append(0)\n    if len(N) > 40: raise OSError('no line')\n    return 'The owl' if len(messages) < 4 else None\n")
    words = ["train", "grpo", "pairs.jsonl", "--model", "m", "--reward", "tiny_rules:even", "--environment", "tools:says", "--max-new-tokens", "16",
             "--n-iterations", "3", "--n-prompts", "4", "--eval-rows", "0", "-o", "a"]
    assert main(words)
    said = capsys.readouterr().err
    assert re.search(r"the environment, for row \d+ after the tokens .* raised OSError: no line. Checkpoints are whole: mend tiny_rules:even, tools:says", said), said
    assert main(["train", "--resume", "a"]) and "tools:says" in capsys.readouterr().err   # not without --run-code
    (home/"tools.py").write_text(TOOLS)
    del __import__("sys").modules["tools"]
    assert main(words) in (0, None)
    assert len([r for r in map(json.loads, (home/"a/log.jsonl").read_text().splitlines()) if "iteration" in r]) == 3

@pytest.mark.parametrize("name, words", [("tools", "named as module:function"), ("tools:say", "no function 'say', the nearest is 'says'"), ("toolz:a", "no module 'toolz' for the environment")])
def test_names_that_are_none(home, name, words, capsys):
    from rlhf_nb.book.command import main
    assert main(["train", "grpo", "pairs.jsonl", "--model", "m", "--reward", "tiny_rules:even", "--environment", name, "-o", "a"])
    assert re.search(f"environment: .*{words}", capsys.readouterr().err)

def test_export_says_that_it_takes_none(home, capsys):
    from rlhf_nb.book.command import main
    (home/"run.toml").write_text('method = "grpo"\ndata = "pairs.jsonl"\nmodel = "m"\nreward = "tiny_rules:even"\nenvironment = "tools:says"\n')
    assert main(["export", "run.toml", "-o", "out"]) and "an environment is not exported" in capsys.readouterr().err

# ---- a real family, tiny
@pytest.mark.parametrize("name", ["llama", "qwen3", "jamba", "mamba"])
def test_real_families_read_what_is_inserted(name):
    from test_families import BASE, FAMILIES, Tok, made
    model = made(name, **BASE | FAMILIES[name])
    def environment(prompt, parts): return [7, 8, 9] if len(parts[-1]) == 2 and len(parts) < 5 else []
    seqs, logp = generate_many(model, [[1, 5, 6], [1, 9], [1, 9]], Tok(), SamplingParams(12), seeded(), environment=environment)
    assert (~seqs.response_mask & (seqs.response_mask.cumsum(1) > 0) & seqs.attention_mask).sum() >= 12
    assert_close(logp, logprobs(model, seqs), atol=2e-4, rtol=0)
