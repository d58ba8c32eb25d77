"""Distillation over seeds: losses and prefixes, a smaller student, two teachers, a hint, forgetting.

    python benchmarks/bench_distillation.py                     # all parts, three seeds, about ten CPU minutes
    python benchmarks/bench_distillation.py --part losses --seeds 1

losses: the shipped SFT model learns from a PPO teacher (chapter 08's defaults, learned reward; trained anew
with each seed), 640 answers in 20 steps. small: the same with a student of a quarter of the width and one
layer, which has imitated 4,000 demonstrations first, 1,920 answers. teachers: two PPO teachers, one for the
courteous criterion, one for the factual ones, each from the SFT model; a student learns from their mean, from a
coin's choice, or from what both added. hint: a model that imitated careful answers behind a hint and ordinary ones
without; it teaches itself what it does with the hint. forget: the shipped judge, which answers and judges, learns
to answer better by RL, imitation or distillation; its judging is measured on the way.

Everywhere: 48 held-out questions, 8 answers each at temperature 1; one greedy answer each. Seeds change the
teacher, prompts and samples. Numbers go to nbs/results/distillation.json, from which the chapter draws.
"""
import argparse, copy, json, random, statistics, time
from functools import cache
from pathlib import Path
import torch
from rlhf_nb.base.batches import response_text
from rlhf_nb.base.learning import TrainConfig, make_trainer, train_step
from rlhf_nb.base.models import ScalarModel, frozen_copy, load_bundled, tiny_lm
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.base.scores import fit_normalizer
from rlhf_nb.ppo import ActorCritic
from rlhf_nb.reward import score_seqs
from rlhf_nb.sft import mean_loss, train_sft
from rlhf_nb.tokens import make_seqs
from rlhf_nb.distillation import forward_kl, reverse_kl, sampled_kl
from rlhf_nb.trainers.distill_trainer import DistillConfig, DistillTask, Taught, token_divergence, train_distill
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, train_grpo
from rlhf_nb.trainers.ppo_trainer import PPOConfig, RLTask, train_ppo
from rlhf_nb.trainers.reward_tools import make_reward_fn
from rlhf_nb.world import criteria, gold_rewards, judge_examples
from rlhf_nb.worlds.world_text import TEST, TRAIN, demonstrations, prompt_ids

OUT = Path(__file__).parents[1]/"nbs/results/distillation.json"
SFT, TOK = load_bundled("sft")
RM, _ = load_bundled("reward")
PROMPTS = [prompt_ids(TOK, q) for q in TRAIN]
QUESTIONS = [q for q in TEST for _ in range(8)]
ASKED = [prompt_ids(TOK, q) for q in QUESTIONS]
HINT = TOK("Be polite.", add_special_tokens=False).input_ids


def seeded(seed): return torch.Generator().manual_seed(seed)
def copying(logp, teacher_logp, token): return -logp.gather(-1, token[..., None])[..., 0]
def with_mean(logp, teacher_logp, token): # the reward of a sampled token less its mean over the student's tokens, a constant
    own = logp.gather(-1, token[..., None])[..., 0]
    gap = own - teacher_logp.gather(-1, token[..., None])[..., 0]
    return (gap - reverse_kl(logp, teacher_logp, token)).detach() * own
LOSSES = {"reverse KL, own answers": (reverse_kl, 1.), "reverse KL, teacher's answers": (reverse_kl, 0.),
          "forward KL, own answers": (forward_kl, 1.), "forward KL, teacher's answers": (forward_kl, 0.),
          "sampled, own answers": (sampled_kl, 1.), "sampled less mean, own answers": (with_mean, 1.),
          "copying, teacher's answers": (copying, 0.)}


def answers(model, asked=ASKED, temperature=1., seed=1):
    return generate_many(model, asked, TOK, SamplingParams(temperature=temperature), seeded(seed), 128)[0]


def measured(model, asked=ASKED):
    sampled, greedy = answers(model, asked), answers(model, asked[::8], 0.)
    texts = [response_text(TOK, ids[m].tolist()) for ids, m in zip(sampled.ids, sampled.response_mask)]
    met = [criteria(q, text) for q, text in zip(QUESTIONS, texts)]
    return dict(gold=gold_rewards(TOK, QUESTIONS, sampled).mean().item(), greedy=gold_rewards(TOK, TEST, greedy).mean().item(),
                courteous=statistics.mean(x["Courteous"] for x in met),
                factual=statistics.mean((x["Relevant"] + x["Substantial"] + x["Answered"]) / 3 for x in met))


@torch.no_grad()
def divergences(student, teacher): # nats per answer, on answers of either; and per token by its place, on both
    found = {}
    for who, lm in (("own", student), ("teacher", teacher)):
        seqs = answers(lm)
        reverse, _ = token_divergence(student, teacher, Taught(seqs, seqs), reverse_kl)
        forward, _ = token_divergence(student, teacher, Taught(seqs, seqs), forward_kl)
        place = (seqs.response_mask.cumsum(1) - 1)[seqs.response_mask]
        found |= {f"reverse_{who}": reverse.sum().item() / len(seqs), f"forward_{who}": forward.sum().item() / len(seqs),
                  f"by_place_{who}": [reverse[(place >= i) & (place < i + 4)].mean().item() for i in range(0, 24, 4)]}
    return found


def ppo(reward_fn, seed, config=PPOConfig()):
    policy = copy.deepcopy(SFT).requires_grad_()
    ref = frozen_copy(SFT)
    train_ppo(ActorCritic(policy, ScalarModel.from_lm(ref)), ref, RLTask(PROMPTS, reward_fn, TOK, SamplingParams()), config, seeded(seed))
    return frozen_copy(policy)


@cache
def teacher_of(seed): return ppo(make_reward_fn(RM, fit_normalizer(score_seqs(RM, answers(SFT, seed=0)))), seed)


def distilled(start, teacher, seed, divergence=reverse_kl, share=1., steps=20, lr=1e-3, teacher_prompts=PROMPTS, **more):
    student = copy.deepcopy(start).requires_grad_()
    task = DistillTask(teacher, PROMPTS, teacher_prompts, TOK, SamplingParams())
    config = DistillConfig(divergence=divergence, student_share=share, n_iterations=steps, lr=lr)
    log = train_distill(student, task, config, seeded(seed), **more).log
    return student.eval(), [row["kl"] for row in log.rows if "iteration" in row]


# ---- parts: rows of one seed
def losses(seed):
    teacher = teacher_of(seed)
    yield dict(run="student before", **measured(SFT), **divergences(SFT, teacher))
    yield dict(run="teacher", **measured(teacher))
    for name, (loss, share) in LOSSES.items():
        for lr in (1e-3, 3e-3):
            student, kl = distilled(SFT, teacher, seed, loss, share, lr=lr)
            yield dict(run=name, lr=lr, kl=kl, **measured(student), **divergences(student, teacher))


@cache
def small_student():
    lm = tiny_lm(TOK, hidden=16, layers=1)
    train_sft(lm.requires_grad_(), demonstrations(TOK, TRAIN, 4000, random.Random(0)), TrainConfig(lr=6e-3, n_steps=500), seeded(0))
    return frozen_copy(lm)


def small(seed):
    teacher = teacher_of(seed)
    yield dict(run="student before", **measured(small_student()), **divergences(small_student(), teacher))
    for name, (loss, share) in LOSSES.items():
        for lr in (3e-3, 6e-3):
            student, kl = distilled(small_student(), teacher, seed, loss, share, 60, lr)
            yield dict(run=name, lr=lr, kl=kl, **measured(student), **divergences(student, teacher))


class Combined(torch.nn.Module): # a model whose log-probs are `combine` of those of several
    def __init__(self, combine, *models):
        super().__init__()
        self.combine, self.models, self.config = combine, torch.nn.ModuleList(models), models[0].config
    def get_output_embeddings(self): return None
    def forward(self, input_ids, attention_mask=None, **more):
        logp = [m(input_ids=input_ids, attention_mask=attention_mask).logits.log_softmax(-1) for m in self.models]
        return type("Out", (), dict(logits=self.combine(*logp)))


def of_criteria(*names): # a reward: points of these criteria, up to 1
    known = {tuple(p): q for p, q in zip(PROMPTS, TRAIN)}
    def reward(seqs):
        prompt = seqs.attention_mask & ~seqs.response_mask
        return torch.tensor([statistics.mean(criteria(known[tuple(ids[p].tolist())], response_text(TOK, ids[r].tolist()))[n] for n in names)
                             for ids, p, r in zip(seqs.ids, prompt, seqs.response_mask)])
    return reward


def teachers(seed):
    polite = ppo(of_criteria("Courteous"), seed, PPOConfig(lam=.95))
    factual = ppo(of_criteria("Relevant", "Substantial", "Answered"), seed, PPOConfig(lam=.95))
    ref = frozen_copy(SFT)
    for name, lm in (("student before", ref), ("polite teacher", polite), ("factual teacher", factual)): yield dict(run=name, **measured(lm))
    mean = frozen_copy(Combined(lambda a, b: (a + b) / 2, polite, factual))
    added = frozen_copy(Combined(lambda a, b, r: a + b - r, polite, factual, ref))
    for name, teacher in (("mean of log-probs", mean), ("what both added", added)):
        yield dict(run=name, **measured(distilled(SFT, teacher, seed, steps=40)[0]))
    student, coin, generator = copy.deepcopy(SFT).requires_grad_(), random.Random(seed), seeded(seed)
    config = DistillConfig(n_iterations=40)
    trainer = make_trainer(student, config.train_config(40, config.n_prompts))
    for i in range(40):                          # one teacher in each step
        lm, rows = coin.choice((polite, factual)), torch.randint(len(PROMPTS), (config.n_prompts,), generator=generator)
        seqs = answers(student, [PROMPTS[j] for j in rows.tolist()], seed=1000 * seed + i)
        def loss_fn(model, x):
            each, _ = token_divergence(model, lm, x, reverse_kl)
            return each.sum(), len(each)
        train_step(trainer, Taught(seqs, seqs), loss_fn)
    yield dict(run="one of the two by a coin", **measured(student.eval()))


def hint(seed):
    rng = random.Random(seed)
    plain, careful = demonstrations(TOK, TRAIN, 3000, rng), demonstrations(TOK, TRAIN, 3000, rng, quality=.9)
    def parts(seqs, before): # prompts and answers, the hint after the first token
        for ids, real, said in zip(seqs.ids, seqs.attention_mask, seqs.response_mask):
            p = ids[real & ~said].tolist()
            yield p[:1] + before + p[1:], ids[said].tolist()
    prompts, said = zip(*parts(plain, []), *parts(careful, HINT))
    model = copy.deepcopy(SFT).requires_grad_()
    train_sft(model, make_seqs(list(prompts), list(said), TOK.pad_token_id), TrainConfig(n_steps=300, batch_size=64), seeded(seed))
    model = frozen_copy(model)
    hinted, asked = ([p[:1] + HINT + p[1:] for p in x] for x in (PROMPTS, ASKED))
    yield dict(run="without the hint", **measured(model))
    yield dict(run="with the hint", **measured(model, asked))
    for name, (loss, share) in LOSSES.items():
        if name in ("reverse KL, own answers", "forward KL, teacher's answers", "copying, teacher's answers"):
            student, kl = distilled(model, model, seed, loss, share, 40, teacher_prompts=hinted)
            yield dict(run=name, kl=kl, **measured(student), **{f"{k}_hinted": v for k, v in measured(student, asked).items()})
    student, kl = distilled(model, model, seed, reverse_kl, 1., 40, teacher_prompts=PROMPTS)
    yield dict(run="control: the teacher gets no hint", kl=kl, **measured(student))


def first_at(path, gold, name): # what it was when the true score first reached this, on a line between two looks
    for p, q in zip(path, path[1:]):
        if p["gold"] <= gold <= q["gold"]: return p[name] + (gold - p["gold"]) / (q["gold"] - p["gold"]) * (q[name] - p[name])


def forget(seed, distilled=True): # or RL and imitation alone
    judge, _ = load_bundled("judge")
    held = judge_examples(TOK, TEST, 200, random.Random(7))
    known = {tuple(p): q for p, q in zip(PROMPTS, TRAIN)}
    def true_score(seqs):
        prompt = seqs.attention_mask & ~seqs.response_mask
        return gold_rewards(TOK, [known[tuple(ids[p].tolist())] for ids, p in zip(seqs.ids, prompt)], seqs)
    def look(model, i): # true score, loss per token of held-out judgements, KL to the start in nats per answer
        seqs = answers(model)
        with torch.no_grad(): kl, _ = token_divergence(model, judge, Taught(seqs, seqs), reverse_kl)
        return dict(step=i, gold=gold_rewards(TOK, QUESTIONS, seqs).mean().item(), judging=mean_loss(model, held), kl=kl.sum().item() / len(seqs))
    def watched(path, model, i, every):
        if i % every == 0: path.append(look(model, i))
    def row(name, model, path):
        path = [look(judge, 0), *path]
        return dict(run=name, path=path, **measured(model.eval()), **{k: path[-1][k] for k in ("judging", "kl")},
                    **{f"{k}_at_4": first_at(path, 4., k) for k in ("judging", "kl")})
    for name, beta in (("RL", .1), ("RL, no KL", 0.))[:2 if distilled else 1]:
        policy, path = copy.deepcopy(judge).requires_grad_(), []
        train_grpo(policy, frozen_copy(judge), RLTask(PROMPTS, true_score, TOK, SamplingParams()), GRPOConfig(beta=beta, n_iterations=24),
                   seeded(seed), callback=lambda r, roll: watched(path, policy, r["iteration"], 4))
        yield row(name, policy, path)
        if name == "RL": teacher = frozen_copy(policy)
    for name, (loss, share) in LOSSES.items():
        if distilled and name in ("reverse KL, own answers", "forward KL, teacher's answers", "copying, teacher's answers"):
            path, student = [], copy.deepcopy(judge).requires_grad_()
            train_distill(student, DistillTask(teacher, PROMPTS, PROMPTS, TOK, SamplingParams()),
                          DistillConfig(divergence=loss, student_share=share, n_iterations=40), seeded(seed),
                          callback=lambda r, x: watched(path, student, r["iteration"], 5))
            yield row(f"distilled: {name}", student, path)
    policy, path = copy.deepcopy(judge).requires_grad_(), []
    data = demonstrations(TOK, TRAIN, 3072, random.Random(seed), quality=.97)
    for i in range(8):
        train_sft(policy, data[i * 384:(i + 1) * 384], TrainConfig(n_steps=12, batch_size=32, warmup_steps=0, final_lr_frac=1.), seeded(seed))
        policy.eval()
        watched(path, policy, i + 1, 1)
    yield row("imitation of demonstrations", policy, path)


PARTS = dict(losses=losses, small=small, teachers=teachers, hint=hint, forget=forget)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, nargs="+", default=[*PARTS])
    parser.add_argument("--seeds", type=int, default=3, help="how many (default: 3)")
    parser.add_argument("--first", type=int, default=40, help="the first of them (default: 40)")
    parser.add_argument("--plain", action="store_true", help="of forget: RL and imitation alone")
    parser.add_argument("--json", type=Path, default=OUT, help="default: nbs/results/distillation.json")
    a = parser.parse_args()
    torch.set_num_threads(1)
    saved = json.loads(a.json.read_text("utf-8")) if a.json.is_file() else {}
    for part in a.part:
        saved[part] = []
        for seed in range(a.first, a.first + a.seeds):
            began = time.process_time()
            for row in forget(seed, False) if a.plain and part == "forget" else PARTS[part](seed):
                row |= dict(seed=seed, cpu_s=round(time.process_time() - began, 2))
                saved[part].append(row)
                began = time.process_time()
                print(part, row["run"], row.get("lr", ""), seed, {k: round(v, 2) for k, v in row.items() if isinstance(v, float)}, flush=True)
    saved |= dict(command="python benchmarks/bench_distillation.py",
                  runs={name: dict(zip(("loss", "answers"), name.split(", "))) for name in LOSSES})
    a.json.write_text(json.dumps(saved, indent=1) + "\n", "utf-8")


if __name__ == "__main__": main()
