"""Tools and turns over seeds: masks, credit per turn, carries written out, votes.

    python benchmarks/bench_tools.py                     # all parts, about ten CPU minutes
    python benchmarks/bench_tools.py --part carry --seeds 1

tool: a model from scratch copies 3,000 answers to sums of three numbers, seven in ten of them with two calls of a
calculator; its loss leaves the calculator's words out, or does not. Then, from the first, RLOO on right answers with
the calculator (20 rollouts of 16 prompts, 8 answers each), with the mask and without, with a KL of .02 and with none.
256 answers to held-out sums at temperature 1, with the calculator and with one that is silent: log-probs of its words,
of their first token and of their digits; how often the model speaks for it. turns: the same start and loop without a
KL, a reward for a right first call and one for the right result: the sum of both on all tokens, or from each turn on.
carry: a model from scratch copies 4,000 sums of two numbers of two digits, the answer alone, behind the written
carries, or behind as many zeros; 200 held-out sums, greedy, 33 samples and 33 at temperature .5. Numbers go to nbs/results/tools.json.
"""
import argparse, copy, json, random, re, time
from dataclasses import replace
from pathlib import Path
import torch
from rlhf_nb.base.learning import TrainConfig, make_trainer, train_step
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.models import frozen_copy, tiny_lm
from rlhf_nb.base.sampling import SamplingParams, collect_rollout, generate_many
from rlhf_nb.arithmetic import solve
from rlhf_nb.data.text import prompts_of
from rlhf_nb.kl import response_kl
from rlhf_nb.sft import train_sft
from rlhf_nb.tokens import make_seqs
from rlhf_nb.tools import calculator, majority_vote, tool_tokenizer, turn_advantages, turn_numbers
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, grpo_loss, make_group_experience
from rlhf_nb.trainers.ppo_trainer import RLTask

OUT = Path(__file__).parents[1]/"nbs/results/tools.json"
TOK = tool_tokenizer()
PAD, EOS, SAMPLING = TOK.pad_token_id, TOK.eos_token_id, SamplingParams(24)
COPY = TrainConfig(lr=3e-3, n_steps=400, batch_size=32, micro_batch_size=32)
CARRY = TrainConfig(lr=3e-3, n_steps=500, batch_size=64, micro_batch_size=64)


def seeded(seed): return torch.Generator().manual_seed(seed)
def encode(text): return TOK(text).input_ids
def units_first(n): return str(n)[::-1]
def question(x): return encode("+".join(map(units_first, x)) + "=")


# ---- sums of three numbers with a calculator
def demonstration(x, rng): # parts: what is written, what the calculator says, ...
    def slip(text): return "".join(rng.choice("0123456789") if c.isdigit() and rng.random() < .1 else c for c in text)
    a, b, c = x
    if rng.random() < .3: return [units_first(a + b + c - rng.choice([0, 0, 10]))]      # in the head, a carry forgotten
    first = slip(f"{units_first(a)}+{units_first(b)}") + "?"
    value = solve(first[:-1])
    second = slip(f"{value}+{units_first(c)}") + "?"
    return [first, f":{value};", second, f":{solve(second[:-1])};", ""]


def demonstrations(sums, rng, masked=True):
    parts = [[encode(p) if p else [] for p in demonstration(x, rng)] for x in sums]
    seqs = make_seqs([question(x) for x in sums], [sum(p, []) + [EOS] for p in parts], PAD)
    for mask, x, row in zip(seqs.response_mask, sums, parts):
        at = len(question(x))
        for k, part in enumerate(row):
            if k % 2 and masked: mask[at:at + len(part)] = False
            at += len(part)
    return seqs


def everything(seqs): # the mask of one who has forgotten the mask
    return replace(seqs, response_mask=seqs.attention_mask & (seqs.response_mask.cumsum(1) > 0))


def texts(seqs): return [TOK.decode(ids[m].tolist(), skip_special_tokens=True)
                         for ids, m in zip(seqs.ids, everything(seqs).response_mask)]
def last_number(text): return (re.findall(r"\d+", text) or [""])[-1]


class World:
    def __init__(self, seed):
        rng = random.Random(seed)
        draw = lambda: (rng.randrange(10, 100), rng.randrange(1, 10), rng.randrange(1, 10))
        self.seen, self.held = [draw() for _ in range(3000)], [draw() for _ in range(128)]
        self.sums = {tuple(question(x)): x for x in self.seen + self.held}
        self.prompts, self.rng, self.calls = [question(x) for x in self.seen], rng, calculator(TOK)
    def right(self, seqs): # (b)
        want = [units_first(sum(self.sums[p])) for p in prompts_of(seqs)]
        return torch.tensor([float(last_number(t) == w) for t, w in zip(texts(seqs), want)])
    def turn_rewards(self, seqs): # (b k): a right first call; the right result with the second turn, or with the only one
        turn, right, found = turn_numbers(seqs.response_mask), self.right(seqs), []
        for i, (p, text) in enumerate(zip(prompts_of(seqs), texts(seqs))):
            a, b, _ = self.sums[p]
            n, called = int(turn[i].max()) + 1, re.search(r"\?:(\d+);", text)
            row = [0.] * n
            row[0] += bool(called and called[1] == units_first(a + b))
            row[min(1, n - 1)] += right[i].item()
            found.append(torch.tensor(row + [torch.nan] * (24 - n)))
        return torch.stack(found)[:, :int(turn.max()) + 1]
    def copied(self, seed, masked):
        policy = tiny_lm(TOK, seed=seed)
        train_sft(policy, demonstrations(self.seen, random.Random(seed), masked), COPY, seeded(seed))
        return policy.eval()
    def measure(self, policy):
        asked = [question(x) for x in self.held] * 2
        seqs, _ = generate_many(policy, asked, TOK, SAMPLING, seeded(9), 128, environment=self.calls)
        with torch.no_grad(): logp = logprobs(policy, everything(seqs))
        gap = everything(seqs).response_mask & ~seqs.response_mask
        digit = gap & torch.isin(seqs.ids, torch.tensor(encode('0123456789')))
        first = gap & torch.nn.functional.pad(seqs.response_mask, (1, 0))[:, :-1]      # right behind a call
        silent = "".join(texts(generate_many(policy, asked, TOK, SAMPLING, seeded(9), 128)[0]))
        called = "".join(texts(seqs))
        return dict(right=self.right(seqs).mean().item(), calls=called.count("?") / len(seqs), tool_logp=logp[gap].mean().item(),
                    mark_logp=logp[first].mean().item(), result_logp=logp[digit].mean().item(),
                    speaks=silent.count("?:") / max(1, silent.count("?")))
    def learn(self, policy, ref, seed, advantage=None, unmasked=False, n=20, beta=.02):
        config, task = GRPOConfig(beta=beta), RLTask(self.prompts, self.right, TOK, SAMPLING, self.calls)
        trainer = make_trainer(policy.requires_grad_(), TrainConfig(lr=1e-3, n_steps=2 * n, batch_size=128, micro_batch_size=128, warmup_steps=5))
        generator, path = seeded(seed), []
        for _ in range(n):
            rows = torch.randint(len(self.prompts), (16,), generator=generator).tolist()
            roll = collect_rollout(policy, ref, [self.prompts[i] for i in rows], self.right, TOK, SAMPLING, generator, 8, 128, environment=self.calls)
            path.append(roll.reward.mean().item())
            written = roll.seqs.response_mask
            if unmasked:
                seqs = everything(roll.seqs)
                with torch.no_grad(): roll = replace(roll, seqs=seqs, logp=logprobs(policy, seqs), ref_logp=logprobs(ref, seqs))
            kl = response_kl(roll.logp, roll.ref_logp, written).mean().item()     # of what the model wrote
            x = make_group_experience(roll, config, task)
            if advantage: x = replace(x, advantage=advantage(roll))
            for _ in range(config.num_iterations): train_step(trainer, x, lambda m, b: grpo_loss(m, b, config))
        return dict(path=path, kl=kl)


def tool(seed, betas=(.02, 0.)):
    world = World(seed)
    starts = {name: world.copied(seed, name == "mask") for name in ("mask", "no mask")}
    for name, start in starts.items(): yield dict(run=f"copied, {name}", **world.measure(start))
    for beta in betas:
        for name, unmasked in (("mask", False), ("no mask", True)):
            policy = copy.deepcopy(starts["mask"])
            found = world.learn(policy, frozen_copy(starts["mask"]), seed, unmasked=unmasked, beta=beta)
            yield dict(run=f"RL, {name}" + ", no KL" * (not beta), beta=beta, **world.measure(policy.eval()), **found)


def turns(seed):
    world = World(seed)
    start = world.copied(seed, True)
    def whole(roll):
        total, turn = world.turn_rewards(roll.seqs).nansum(1), turn_numbers(roll.seqs.response_mask)
        return turn_advantages(total[:, None], roll.group, turn.clamp(max=0))
    def each(roll): return turn_advantages(world.turn_rewards(roll.seqs), roll.group, turn_numbers(roll.seqs.response_mask))
    for name, advantage in (("whole response", whole), ("from each turn on", each)):
        policy = copy.deepcopy(start)
        found = world.learn(policy, frozen_copy(start), seed, advantage, n=15, beta=0.)
        yield dict(run=name, **world.measure(policy.eval()), **found, mean_path=sum(found["path"]) / 15)


# ---- sums of two numbers, the most significant digit first
EVERY = [(a, b) for a in range(10, 100) for b in range(10, 100)]
def carries(x): # of the units, of the tens
    one = (x[0] % 10 + x[1] % 10) // 10
    return f"{one}{(x[0] // 10 + x[1] // 10 + one) // 10}"
WRITTEN = {"answer alone": lambda x: "", "carries written": lambda x: carries(x) + ":", "zeros written": lambda x: "00:"}


def carry(seed):
    sums = EVERY[:]
    random.Random(seed).shuffle(sums)
    held, seen = sums[:200], sums[200:4200]
    for name, before in WRITTEN.items():
        answers = [encode(before(x) + str(sum(x))) + [EOS] for x in seen]
        lm = tiny_lm(TOK, seed=seed)
        train_sft(lm, make_seqs([encode(f"{a}+{b}=") for a, b in seen], answers, PAD), CARRY, seeded(seed))
        def said(n, temperature): # n answers to each held-out sum; None: no number
            asked = [encode(f"{a}+{b}=") for a, b in held for _ in range(n)]
            seqs, _ = generate_many(lm.eval(), asked, TOK, SamplingParams(8, temperature=temperature), seeded(1), 256)
            found = [last_number(t.split(":")[-1]) or None for t in texts(seqs)]
            return [found[i:i + n] for i in range(0, len(found), n)]
        want = [str(sum(x)) for x in held]
        greedy, drawn, cool = said(1, 0.), said(33, 1.), said(33, .5)
        votes = {n: sum(majority_vote(x[:n]) == w for x, w in zip(drawn, want)) / 200 for n in (1, 3, 5, 9, 17, 33)}
        def voted(rows): return sum(majority_vote(x) == w for x, w in zip(rows, want)) / 200
        yield dict(run=name, greedy=sum(x[0] == w for x, w in zip(greedy, want)) / 200,
                   sampled=sum(x.count(w) for x, w in zip(drawn, want)) / 6600, votes=votes, vote_33=votes[33],
                   sampled_cool=sum(x.count(w) for x, w in zip(cool, want)) / 6600, vote_33_cool=voted(cool),
                   any={n: sum(w in x[:n] for x, w in zip(drawn, want)) / 200 for n in votes})


PARTS = dict(tool=tool, turns=turns, carry=carry)
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, nargs="+", default=[*PARTS])
    parser.add_argument("--seeds", type=int, help="how many (default: 3, and 5 of carry)")
    parser.add_argument("--first", type=int, default=40, help="the first of them (default: 40)")
    parser.add_argument("--betas", type=float, nargs="+", default=[.02, 0.], metavar="B", help="of the tool's RL (default: .02 0)")
    parser.add_argument("--json", type=Path, default=OUT, help="default: nbs/results/tools.json")
    a = parser.parse_args()
    torch.set_num_threads(1)
    saved = json.loads(a.json.read_text("utf-8")) if a.json.is_file() else {}
    for part in a.part:
        saved[part] = []
        for seed in range(a.first, a.first + (a.seeds or (5 if part == "carry" else 3))):
            began = time.process_time()
            for row in tool(seed, a.betas) if part == "tool" else PARTS[part](seed):
                row |= dict(seed=seed, cpu_s=round(time.process_time() - began, 2))
                saved[part].append(row)
                began = time.process_time()
                print(part, row["run"], seed, {k: round(v, 3) for k, v in row.items() if isinstance(v, float)}, flush=True)
                a.json.write_text(json.dumps(saved, indent=1) + "\n", "utf-8")
    saved |= dict(command="python benchmarks/bench_tools.py")
    a.json.write_text(json.dumps(saved, indent=1) + "\n", "utf-8")


if __name__ == "__main__": main()
