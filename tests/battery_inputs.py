"""Inputs on which every answer of `battery_2` shows what it is: right ones agree, wrong ones do not.

They serve the battery alone; the checks of the exercises have inputs of their own."""
import copy, random
import torch
from rlhf_nb.base.models import ScalarModel, tiny_lm
from rlhf_nb.base.q_networks import Episodes, QConfig, QNets, make_episodes, q_network
from rlhf_nb.base.sampling import SamplingParams
from rlhf_nb.judge import JudgePrompt, Verdicts
from rlhf_nb.base.models import load_bundled
from rlhf_nb.tokens import Seqs, make_seqs
from rlhf_nb.worlds.oracle import bigram_lm, micro_tokenizer, micro_world
from rlhf_nb.worlds.world_text import FACTS, TEST, VALUES, demonstrate, fact_sentence

nan, inf = torch.nan, torch.inf
def seeded(n): return torch.Generator().manual_seed(n)
def randn(*shape, seed=0): return torch.randn(*shape, generator=seeded(seed), dtype=torch.double)
def leaf(x): return x.clone().requires_grad_()
def T(*x): return torch.tensor(x)
def M(*rows): return torch.tensor(rows).bool()

world = micro_world()
RAGGED = M([0, 1, 1, 1, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 1, 1, 0, 1])
def like(seed, mask=RAGGED, fill=nan): return leaf(randn(*mask.shape, seed=seed).float().masked_fill(~mask, fill))

def left_padded():
    ids = T([5, 5, 4, 0, 1, 3], [4, 0, 3, 5, 5, 5], [5, 4, 2, 2, 2, 3])
    real, answer = ids != 5, (ids != 5) & (ids != 4)
    return Seqs(ids, real, answer)

def words(): return make_seqs([[4], [4, 0], [4, 1], [4]], [[0, 1, 3], [3], [2, 0], []], world.pad)
def first_counts():
    ids = T([4, 0, 3, 5], [4, 2, 0, 1])
    return Seqs(ids, ids != 5, ids != 5)

class Table: # a language model of the micro world, in evaluation, that learns
    def __new__(cls, seed=0):
        lm = bigram_lm(world)
        with torch.no_grad(): lm.head.weight[:4] += .5 * randn(4, lm.head.weight.shape[1], seed=seed)
        return lm

def two_parts():
    lm = Table()
    lm.extra = torch.nn.Parameter(torch.zeros(lm.head.weight.shape[1], dtype=torch.double))
    inner = lm.base_model.forward
    class Body(torch.nn.Module):
        def __init__(self, inside, extra): super().__init__(); self.inside, self.extra = inside, extra
        config = property(lambda self: self.inside.config)
        def forward(self, *a, **k):
            out = self.inside(*a, **k)
            out.last_hidden_state = out.last_hidden_state * (1 + self.extra)
            return out
    lm.base_model = Body(lm.base_model, lm.extra)
    lm.frozen = torch.nn.Parameter(torch.zeros(3), requires_grad=False)
    return lm

def judge_parts():
    _, tok = load_bundled("judge")
    return tok, JudgePrompt("{{ prompt }}<|assistant|>Q: {{ prompt }} A: {{ response }} Rate it.", "Score: {{ reward }}")

class Trio:
    "A template with three blanks."
    def render(self, prompt, first, second): return f"<|user|>{prompt} A {first} B {second}"

def nets():
    lm = tiny_lm(micro_tokenizer(world), hidden=16, layers=1)
    n = QNets(q_network(lm), [world.start, world.pad])
    with torch.no_grad():
        for part, seed in ((n.online, 1), (n.target, 2)):
            head = part.get_output_embeddings().weight
            head.copy_(randn(*head.shape, seed=seed).float())
    return n

def episodes(kind=0):
    rows = make_seqs([[4], [4, 0], [4], [4]], [[0, 1, 3], [2, 0, 1], [3], [1, 0]], world.pad)
    r = [[0, .2, -.4, 1., 0], [0, 0, -.3, .6, -.8], [0, 2., 0, 0, 0], [0, -.5, -1., 0, 0]]
    return make_episodes(rows, torch.tensor(r), world.eos)

def rows_of(scores): return [list(map(float, row)) for row in scores]

QUESTION = next(q for q in TEST if len(VALUES[q.attribute]) > 2)
def answer(animal, attribute, value, form=0): return fact_sentence(animal, attribute, value, form).text
def facts():
    q = QUESTION
    right = FACTS[q.animal][q.attribute]
    false = next(v for v in VALUES[q.attribute] if v != right)
    other = next(a for a in FACTS if a != q.animal)
    more = next(k for k in VALUES if k != q.attribute)
    more_right = FACTS[q.animal][more]
    more_false = next(v for v in VALUES[more] if v != more_right)
    a, an = answer(q.animal, q.attribute, right), answer(q.animal, q.attribute, false)
    o = answer(other, q.attribute, FACTS[other][q.attribute])
    theirs = answer(other, q.attribute, right)
    lie = answer(q.animal, more, more_false)
    return [a, an, "", f"{a} {an}", f"{an} {a}", f"{a} {a}", f"{o} {a}", theirs, f"{a} {answer(q.animal, more, more_right)}",
            f"{a} {lie}", f"I hope this helps. {a}", f"{right} {a}", f"{right}.", f"{a} {a} {an}",
            f"{answer(q.animal, more, more_right)} {answer('', q.attribute, right, 1)}",
            f"{a} {answer('', q.attribute, false)}", f"{o} {answer('', q.attribute, false)} {a}"]

def pairs_of_answers():
    q, rng = QUESTION, random.Random(1)
    out = [demonstrate(q, rng, z) for z in (1., 0., .5, .2, .8, .1, .9, .6)]
    nice = next(s for s in ["What a lovely question!", "You are so clever!"] if s)
    from rlhf_nb.worlds.world_text import PHRASES
    flat = PHRASES["flattery"]
    good = answer(q.animal, q.attribute, FACTS[q.animal][q.attribute])
    out += [good, " ".join([*flat[:3], good]), " ".join([*flat[:1], good])]
    from rlhf_nb.world import gold_score
    return [(q, a, b) for a in out for b in out if gold_score(q, a) != gold_score(q, b)][:60]

gap6 = M([0, 1, 0, 1, 1, 0], [1, 1, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1])

def cases(): # exercise -> list of functions that make arguments anew
    C = {}
    C["shift_right"] = [lambda: (leaf(randn(2, 4)),), lambda: (randn(3, 3, 2),), lambda: (M([1, 1, 0], [1, 0, 1]),),
                        lambda: (T([5, 6, 7], [1, 2, 3]),), lambda: (randn(2, 1),)]
    ids = T([1, 2, 0, 3], [0, 0, 2, 1])
    C["token_logprobs"] = [
        lambda: (leaf(randn(2, 4, 4)), ids), lambda: (leaf(randn(2, 4, 4).float()), ids),
        lambda: (randn(2, 4, 4).bfloat16(), ids), lambda: (300 * randn(2, 4, 4).float(), ids),
        lambda: (randn(2, 5, 4), ids)]
    C["masked_mean"] = [
        lambda: (like(0), RAGGED), lambda: (leaf(randn(2, 3)), M([1, 1, 0], [1, 1, 1])),
        lambda: (torch.where(RAGGED, randn(5, 5), inf).bfloat16(), RAGGED), lambda: (randn(2, 2), M([0, 0], [0, 0])),
        lambda: (randn(2, 3), M([1, 1, 0])), lambda: (T(1., nan, 2.), M(1, 1, 0))]
    C["last_token_index"] = [
        lambda: (M([0, 1, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]),), lambda: (T([1, 1, 0], [0, 1, 0], [1, 0, 1]),),
        lambda: (M([1, 0], [0, 0]),), lambda: (M([1, 0, 0], [1, 1, 0]),), lambda: (M([0, 0], [0, 0]),)]
    C["fixed_counted"] = [
        lambda: (T([7, 8, 3, 9, 9], [7, 3, 9, 9, 9], [5, 6, 7, 8, 3]), T(3, 2, 5), 9),
        lambda: (T([7, 8, 3, 3, 3], [7, 3, 3, 3, 3], [5, 6, 7, 8, 3]), T(3, 2, 5), 3),
        lambda: (T([7, 8, 3], [7, 3, 3], [5, 5, 3]), T(3, 2, 3), 3), lambda: (T([1, 1, 1], [2, 3, 1]), T(1, 2), 1)]
    C["prob_right"] = [lambda x=x: x for x in pairs_of_answers()]
    C["fixed_answered"] = [lambda t=t: (QUESTION, t) for t in facts()]
    C["sft_loss"] = [lambda: (Table(), words()), lambda: (Table(1), first_counts())]
    P = SamplingParams
    logits = torch.tensor([[.5, .3, .2, .4], [.12, .2, .58, .1]]).double().log()
    C["filter_logits"] = [lambda p=p: (logits.clone(), p) for p in (
        P(), P(temperature=.5), P(temperature=0), P(top_k=2), P(top_k=1), P(top_k=9), P(top_p=.6), P(top_p=.3),
        P(temperature=.5, top_p=.65), P(top_k=3, top_p=.7), P(temperature=2., top_k=3, top_p=.5), P(top_k=2, top_p=.55),
        P(top_p=.999), P(temperature=.3, top_k=2, top_p=.9))]
    C["filter_logits"] += [lambda: (torch.tensor([[1., 2., 3.]]).bfloat16(), P(temperature=.7)),
                           lambda: (torch.tensor([[.5, .25, .25]]).log(), P(top_p=.5))]
    C["fixed_labels"] = [
        lambda: (T([7, 8, 5, 6, 2, 0], [7, 9, 2, 0, 0, 0], [7, 8, 9, 4, 5, 2]), T(2, 1, 3), T(5, 3, 6)),
        lambda: (T([7, 2, 0], [7, 8, 2], [3, 0, 0]), T(1, 2, 1), T(2, 3, 1))]
    lm = tiny_lm(micro_tokenizer(world), hidden=16, layers=1)
    C["pooled_scores"] = [
        lambda: (ScalarModel.from_lm(lm), words()), lambda: (ScalarModel.from_lm(lm), left_padded()),
        lambda: (ScalarModel.from_lm(lm), Seqs(T([4, 1], [5, 5]), M([1, 1], [0, 0]), M([0, 1], [0, 0])))]
    pair = lambda seed=0, s=1.: (leaf(s * randn(5, seed=seed)), leaf(s * randn(5, seed=seed + 9)))
    C["bradley_terry_loss"] = [
        lambda: pair(), lambda: (*pair(), 1.), lambda: (*pair(), randn(5, seed=4).abs()), lambda: (*pair(), 0., .1),
        lambda: (*pair(1, 600.), 0., 0.), lambda: (*pair(), .5, .3), lambda: (randn(3), randn(1)),
        lambda: (randn(3).bfloat16(), randn(3, seed=1).bfloat16(), 0., .1)]
    C["calibration_bins"] = [
        lambda: (T(.2, -.4, .4, 2., -3.), torch.zeros(5), 2), lambda: (randn(40), randn(40, seed=1), 5),
        lambda: (T(1., 0., 2., 40.), T(1., 0., 1., 0.)), lambda: (3 * randn(30), randn(30, seed=2)),
        lambda: (T(0., 1.), T(0., 0.), 1), lambda: (T(1.098612189, 2., .4), torch.zeros(3), 2)]
    reward = 3 * randn(40, seed=3)
    C["exact_gradient"] = [lambda: (Table(), world, reward), lambda: (two_parts(), world, reward)]
    C["optimal_policy"] = [
        lambda: (leaf(randn(6).log_softmax(0)), leaf(randn(6, seed=1)), b) for b in ()] + [
        lambda b=b: (randn(6).log_softmax(0), 2 * randn(6, seed=1), b) for b in (.5, 1., 2., .001, 0., -1.)]
    flat = T(.2, .3, .5).log()
    C["best_of_n_policy"] = [
        lambda: (flat, T(1., 0., 0.), 2), lambda: (randn(8).log_softmax(0), randn(8, seed=1), 4),
        lambda: (randn(8).log_softmax(0), T(1., 2., 2., 0., 1., 2., 3., 3.), 3), lambda: (flat, T(0., 1., 2.), 1),
        lambda: (T(.5, .0, .5, 0.).log(), T(1., 2., 0., 0.), 3), lambda: (flat, T(1., 0., 0.), 0)]
    C["fixed_prefix_value"] = [
        lambda: (T(.5, .5), T(1., -1.), .5), lambda: (T(.2, .3, .5), T(1., 0., -1.), 2.),
        lambda: (T(.2, .8), T(30., -30.), .1), lambda: (T(.5, 0., .5), T(1., 90., 0.), .5),
        lambda: (T(1., 0.), T(-90., 90.), .5)]
    both = lambda s=0: (leaf(randn(3, 4, seed=s)), leaf(randn(3, 4, seed=s + 7)))
    C["kl_k1"] = C["kl_k3"] = [
        lambda: both(), lambda: tuple(leaf(x.detach().float()) for x in both(1)), lambda: (randn(3, 4), randn(3, 1)),
        lambda: tuple((x.detach() - 3).bfloat16() for x in both(2)), lambda: (randn(4), randn(4, seed=5))]
    C["token_rewards"] = [
        lambda: (leaf(randn(5)), leaf(randn(5, 5, seed=1)), RAGGED), lambda: (randn(4), randn(4, 6, seed=1), gap6),
        lambda: (randn(5).bfloat16(), randn(5, 5, seed=1).bfloat16(), RAGGED), lambda: (randn(1), randn(5, 5), RAGGED),
        lambda: (randn(5), randn(5, 5), RAGGED[:1])]
    C["clipped_policy_loss"] = [
        lambda: (leaf(.5 * randn(4, 5)), .1 * randn(4, 5, seed=1), randn(4, 5, seed=2)),
        lambda: (leaf(.5 * randn(4, 5)), leaf(.1 * randn(4, 5, seed=1)), leaf(randn(4, 5, seed=2)), .4),
        lambda: tuple((x - 2).bfloat16() for x in (randn(2, 3), randn(2, 3, seed=1), randn(2, 3, seed=2)))]
    C["gae"] = [
        lambda: (like(0), like(1), RAGGED), lambda: (like(0), like(1), RAGGED, .9, .7),
        lambda: (like(2, gap6), like(3, gap6), gap6, .9, .5), lambda: (like(2, gap6), like(3, gap6), gap6, 1., 1.),
        lambda: (randn(2, 3).bfloat16(), randn(2, 3, seed=1).bfloat16(), M([1, 1, 1], [0, 1, 1])),
        lambda: (T([0., 0., 1.]), T([.5, .5, .5]), M([1, 1, 1])), lambda: (like(5), like(6), RAGGED, .5, 0.)]
    C["ppo_rewards"] = [
        lambda: (leaf(randn(5).float()), like(0), like(1), RAGGED), lambda: (leaf(randn(5).float()), like(0), like(1), RAGGED, .5),
        lambda: (randn(4).float(), like(2, gap6), like(3, gap6), gap6, .2)]
    def ppo(mask, **k): return (*[like(s, mask) for s in range(6)], mask)
    C["ppo_loss"] = [
        lambda: ppo(RAGGED), lambda: (*ppo(RAGGED), .1, .5, 1.), lambda: (*ppo(gap6), .3, .1, .5),
        lambda: ppo(M([1, 1], [1, 1]))]
    g5, r5 = T(0, 0, 0, 1, 1), T(1., 0., 0., 5., 7.)
    mixed = (T(1., nan, 0., 2., nan, 5., 7., 7., 3., nan), T(3, 3, 3, 0, 0, 5, 5, 5, 9, 9))
    groups = [lambda: (r5, g5), lambda: (r5[T(3, 0, 4, 2, 1)], g5[T(3, 0, 4, 2, 1)]), lambda: mixed,
              lambda: (T(3.), T(0)), lambda: (T(2., 2., 2.), T(1, 1, 1)), lambda: (T(0., .001, 1., 0.), T(0, 0, 1, 1)),
              lambda: (randn(12).float(), T(*[0] * 4, *[1] * 4, *[2] * 4))]
    C["leave_one_out"] = C["group_normalised"] = groups
    C["group_normalised"] = groups + [lambda: (T(1., 1.0002, .9999, 1.), T(0, 0, 0, 0))]
    C["loss_weights"] = [lambda t=t, m=m: (m, t, 8) for t in ("dapo", "grpo", "dr_grpo", "gspo") for m in (
        M([1, 1, 1, 1], [1, 0, 0, 0]), RAGGED, M([0, 0], [0, 0]))]
    ratio = lambda: leaf(T([.5, 1.5, .9], [1.1, 2., .7]))
    adv = T([1., -1., .5], [2., 1., -2.])
    C["cispo_loss"] = [lambda: (ratio(), adv), lambda: (ratio(), adv, .1, .28), lambda: (ratio(), leaf(adv), .3, .6)]
    C["fixed_groups"] = [lambda: (randn(12), 3), lambda: (randn(12), 4), lambda: (randn(6), 2), lambda: (randn(5), 5)]
    four = lambda s=1.: tuple(leaf(s * randn(5, seed=i) - 9) for i in range(4))
    C["dpo_loss"] = [lambda: four(), lambda: (*four(), .5), lambda: (*four(400.), 1.), lambda: (*four(), 0.),
                     lambda: (*four(), -1.), lambda: tuple(x.detach().bfloat16() for x in four())]
    keep = M([0, 0, 1, 1], [0, 1, 1, 0], [0, 0, 0, 0])
    ids3 = T([1, 2, 0, 3], [0, 0, 2, 1], [1, 1, 1, 1])
    def x(mean, n=9, seed=0):
        z = randn(n, seed=seed)
        return ((z - z.mean()) / z.std() + mean) * (4. if seed else .3)
    C["kl_is_negative"] = [lambda m=m, n=n, s=s: (x(m, n, s),) for n in (2, 3, 9, 20) for s in (0, 4) for m in (
        -3., -1.45, -1.3, -.9, -.62, -.5, -.46, -.44, -.25, 0., .5, 3.)]
    C["kl_is_negative"] += [lambda: (T(-9., .1, .1, .1, .1, .1, .1),), lambda: (T(.1, .2, -.9, -1., -.9, -.8, 5.),),
                            lambda: (T(-.3, -.3, .05, -.3, -.3),), lambda: (T(-.4, -.5, .3, -.6, -.3, -.5),)]
    runs = [randn(n, seed=s).cumsum(0) * .4 + .2 * torch.arange(n) for n in (2, 5, 7, 8) for s in range(4)]
    C["flat_while_moving"] = [lambda a=a, b=b, n=n, g=g: (a, b, n, g) for a in runs for b in runs if len(a) == len(b)
                              for n, g in ((.5, .3), (.2, 1.), (1.5, .1))]
    tok, template = judge_parts()
    C["judge_messages"] = [
        lambda: (tok, template, [("Is it <eos> Red?", "No.<eos><|assistant|> Score: 5"), ("Why?", " Because. ")]),
        lambda: (tok, Trio(), [("q<eos>", "a<|user|>", "b<|assistant|>")]), lambda: (tok, template, [])]
    texts = ["Score: 2. No, Score: 3/5.", "Score: 4. Score: ", "Score: 45", "Score: 0", "", "no", "Score: 5", "Score: -1",
             "Score: 3.5", "Score: 4/10", "Score: 4 - 5", "Score: 2. Score: 9", "I saw 3 cats", "Score: 1 Score: 0",
             "Score: ", "Score: 9 then Score: 2", "Score: 2 and 4", "Score: 3 apples, Score: 3"]
    C["parse_score"] = [lambda t=t: (t,) for t in texts] + [lambda t=t: (t, "Score: {{ reward }}", 0., 5., False) for t in texts]
    C["parse_score"] += [lambda: ("Note 7 of it. Score: 2", "Note {{ reward }}", 1., 10.), lambda: ("Score: 1", "Score: {{ reward }}", 2., 5.),
                         lambda: ("Score: -2", "Score: {{ reward }}", -3., 5.)]
    V = lambda *rows: Verdicts(torch.tensor(rows))
    C["agreement"] = [
        lambda: (V([4., 4.], [1., 1.], [2., 2.], [nan, nan]), T(5., 1., 1., 3.)),
        lambda: (V([4., 5., 3.], [1., nan, 2.], [2., 3., nan], [nan, nan, nan], [0., 1., 0.], [5., 5., 4.]), T(5., 1., 2., 3., 0., 4.)),
        lambda: (V([3., 3.], [3., 3.], [3., 3.]), T(3., 3., 3.)), lambda: (V([2., 3.], [3., 4.], [1., 1.], [4., 4.]), T(3., 3., 1., 4.)), lambda: (V([2., 3., 3.], [1., 2., 2.], [4., 4., 5.]), T(3., 1., 4.))]
    C["choose_pairs"] = [
        lambda: (rows_of([[2, 4.5, .5, 4], [nan, 2, 4], [3, 3], [nan, 5], [], [1, 0, nan, 0], [2, 2.3], [nan, nan]]),),
        lambda: (rows_of([[3, 3], [1, 2, 5], [0, 1]]),), lambda: (rows_of([[1, nan, 3, 2], [4, 1, 4]]), best_second),
        lambda: (rows_of([[2, 1]]),), lambda: ([],)]
    C["replay_loss"] = [
        lambda: (leaf(T(1.4)[0]), leaf(T([-1., -2.], [-3., 0.])), 2., 4.),
        lambda: (leaf(T(.3)[0]), leaf(-randn(3, 4).abs()), .5, 3.)]
    C["spin_loss"] = [lambda: four(), lambda: (*four(), .5), lambda: (*four(400.), 2.)]
    p = lambda s, n=5: randn(n, seed=s).softmax(0)
    C["best_reply"] = [lambda: (T(.2, .8), T(.8, .2), 2.), lambda: (p(0), p(1), .5), lambda: (p(0), p(1), 3.), lambda: (p(0), p(1), 1.)]
    C["spin_game"] = [lambda n=n, b=b: (p(0), p(1), b, n) for n in (0, 1, 2, 4) for b in (2., .7)]
    V6 = leaf(randn(4, 5, seed=4).float())
    every = [dict(gamma=g, mc_bound=m, n_step=n, on_truncation=t, discount_per=d) for g in (.5, .9) for m in (True, False)
             for n in (1, 2, 3) for t in ("terminal", "bootstrap") for d in ("token", "response")]
    C["bellman_targets"] = [lambda k=k: (episodes(), (2 * V6.detach()).clone(), QConfig(**k)) for k in every]
    low = [dict(gamma=.5, mc_bound=False, alpha=1., min_return=-1.), dict(gamma=.9, alpha=.4, n_step=2),
           dict(gamma=.7, mc_bound=False, alpha=0., on_truncation="bootstrap"), dict(gamma=.9, alpha=2., double_q=True, min_return=.5)]
    C["q_loss"] = [lambda k=k: (nets(), episodes(), QConfig(**k)) for k in low]
    C["fixed_soft_update"] = [lambda s=s, r=r: ([leaf(randn(2, 3)), randn(4, seed=5)], [leaf(randn(2, 3, seed=1)), leaf(randn(4, seed=2))], r, s)
                              for s in (1, 10, 90, 101, 200) for r in (.1, .7)]
    C["fixed_number_reward"] = [lambda a=a, b=b: (a, b) for a, b in (
        ("74+8=55", "55"), ("55+0=12", "55"), ("", "55"), ("no", "55"), ("1+1=550", "55"), ("2+2=055", "55"), ("5=155", "55"),
        ("7=5 5", "55"), ("7=55.", "55"), ("7=55 of 9", "55"), ("it is 55", "55"), ("3+4=5", "55"), ("7=-55", "55"),
        ("55", "55"), ("7=1.55", "55"), ("=55 ok", "55"), ("1=5=55", "55"), ("7=54", "55"))]
    C["reward_until_wrong"] = [lambda a=a, b=b: (a, b) for a, b in (
        ([5, 4, 9], [5, 5, 9]), ([5, 5, 9], [5, 5, 9]), ([5], [5, 5, 9]), ([5, 5, 9, 9], [5, 5, 9]), ([4, 5, 9], [5, 5, 9]),
        ([5, 4, 9, 1], [5, 5, 9]), ([9, 5], [5, 9]), ([], [5, 9]), ([5, 9, 9], [5, 9, 9]), ([1, 2], [1, 3]))]
    end = M([0, 0, 1, 0], [0, 1, 0, 0])
    C["fixed_target"] = [
        lambda: (T([0., 0., -1., 0.], [0., 2., 0., 0.]), leaf(torch.where(end, nan, randn(2, 4).float())), end, .5),
        lambda: (randn(2, 4, seed=1), leaf(randn(2, 4)), end, .9)]
    mask = M([0, 1, 1, 0], [0, 1, 0, 0], [1, 1, 1, 1])
    C["fixed_pull"] = [lambda: (leaf(T([[2., 0., 1.]])), T([0]), M([1]), -1.), lambda: (leaf(randn(3, 4, 4)), ids3, mask, -1.5),
                       lambda: (leaf(randn(3, 4, 4, seed=2)), ids3, mask, .3)]
    long = "one two three four five six seven eight nine ten eleven"
    C["short_right"] = [
        lambda: (["2+2"] * 9, [f"{long} 4", f"{long} twelve 4", "4", "", "no", "4 or 5", "5 then 4", "44", f"{long} x y 4"], [4] * 9),
        lambda: (["2+2"] * 5, ["4", "04", "it is 4.", "5", f"4 {long} a b"], ["4"] * 5),
        lambda: (["what is 20 plus 30 please tell me now"] * 3, ["50", "it is fifty, 50", "a  b  c  d  e  f  50"], [50, "50", 50]), lambda: ([], [], [])]
    both_v = lambda s=0, shape=(2, 3, 5): (leaf(randn(*shape, seed=s).log_softmax(-1)), leaf(randn(*shape, seed=s + 3).log_softmax(-1)))
    tk = T([0, 4, 2], [1, 1, 3])
    C["forward_kl"] = C["sampled_kl"] = [lambda: (*both_v(), tk), lambda: (*both_v(1), tk), lambda: (*both_v(2, (5,)), T(3)[0])]
    C["fixed_alignment"] = [
        lambda: (leaf(T([5., 6., 7., 8.], [1., 2., 3., 4.])), M([0, 1, 1, 0], [0, 1, 1, 1])),
        lambda: (leaf(randn(3, 6)), M([0, 0, 1, 1, 0, 0], [0, 1, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0])),
        lambda: (T([0., -1., 0., 5.], [9., 9., 9., 9.]), M([0, 1, 1, 1], [1, 0, 0, 0])), lambda: (leaf(torch.full((2, 3), nan).masked_fill(M([1, 1, 0], [0, 1, 0]), 2.)), M([1, 1, 0], [0, 1, 0]))]
    return C

def best_second(score):
    order = sorted(range(len(score)), key=lambda i: -score[i])
    return order[0], order[1]

# what an answer does with its arguments: value, kind, gradients, and whether it left them alone
def leaves(x):
    if isinstance(x, torch.Tensor): return [x]
    if isinstance(x, torch.nn.Module): return list(x.parameters())
    if isinstance(x, (list, tuple)): return [y for each in x for y in leaves(each)]
    if isinstance(x, dict): return [y for each in x.values() for y in leaves(each)]
    if isinstance(x, (Episodes, Seqs)): return leaves(x.parts())
    return []

def plain(x):
    if isinstance(x, torch.Tensor): return ("tensor", x.dtype, tuple(x.shape), x.requires_grad), x.detach().clone()
    if isinstance(x, (list, tuple)): return [plain(y) for y in x]
    if isinstance(x, dict): return {k: plain(v) for k, v in x.items()}
    if isinstance(x, bool) or x is None or isinstance(x, str): return x
    if isinstance(x, (int, float)): return float(x)
    return type(x).__name__, repr(x)

def close(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.shape != b.shape: return False
        return torch.allclose(a.double(), b.double(), rtol=2e-4, atol=2e-5, equal_nan=True)
    if type(a) is not type(b): return False
    if isinstance(a, float): return a == b or (a != a and b != b) or abs(a - b) < 1e-5 + 1e-4 * abs(b)
    if isinstance(a, (list, tuple)): return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, dict): return list(sorted(a)) == list(sorted(b)) and all(close(a[k], b[k]) for k in a)
    return a == b

def does(fn, make):
    "Value, gradients, whether arguments and `.grad` stayed; or the kind of error."
    args = make()
    args = copy.deepcopy(tuple(args)) if not any(isinstance(a, torch.nn.Module) for a in args) else args
    before = [x.detach().clone() for x in leaves(args)]
    try: out = fn(*args)
    except Exception as error: return "error", "ValueError" if isinstance(error, ValueError) else "another"
    kept = all(close(x.detach(), y) for x, y in zip(leaves(args), before))
    touched = any(x.grad is not None for x in leaves(args) if x.is_leaf)
    shown = plain(out)
    inputs = [x for x in leaves(args) if x.requires_grad]
    total, n = 0., 0
    for i, y in enumerate(leaves(out)):
        if y.requires_grad and y.is_floating_point():
            w = torch.randn(y.shape, generator=seeded(i)).to(y).abs() + .5
            total, n = total + (torch.where(y.isfinite(), y, 0.) * w).sum(), n + 1
    grads = []
    if n and inputs and total.requires_grad:
        grads = torch.autograd.grad(total, inputs, allow_unused=True)
        grads = [torch.zeros_like(x) if g is None else g for g, x in zip(grads, inputs)]
    else: grads = [torch.zeros_like(x) for x in inputs]
    return "value", shown, [g.nan_to_num(0., 0., 0.) for g in grads], kept, touched
