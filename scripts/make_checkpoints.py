"""Make the four checkpoints that ship in rlhf_nb/checkpoints, from nothing.

    python scripts/make_checkpoints.py                       # all four, about 5 minutes
    python scripts/make_checkpoints.py --only sft reward     # some, from what is there
    python scripts/make_checkpoints.py --out /tmp/again      # elsewhere, to compare
    python scripts/make_checkpoints.py --evaluate            # make nothing, measure

base    a language model of pages of facts, answers and loose phrases; no chat marks
sft     base, tuned to answer in the chat format: 4,000 demonstrations of mixed quality
judge   base, tuned to answer (the same 4,000) and to mark answers (12,000 judgements)
reward  sft with a scalar head, trained on 4,000 pairs that the annotator compared

Steps and seeds are fixed, so one machine makes the same weights again. Each folder is a
Hugging Face folder (float16 safetensors and tokenizer) plus evaluation.json: what was
measured on the files as they lie there. The reward model's scores are raw: a gap of 1
means odds of e to 1, which a rescaled head would no longer say. Its evaluation.json has
their mean and standard deviation on sampled answers, for anyone who wants them at 0 and 1.
"""
import argparse, json, random, shutil
from pathlib import Path
import torch
from torch import Generator
from tqdm.auto import tqdm
from transformers.utils import logging
from rlhf_nb.base.learning import TrainConfig, fit, make_trainer, train_step
from rlhf_nb.base.models import (
    ScalarModel, frozen_copy, load_lm, load_reward_model, save_reward_model, tiny_lm)
from rlhf_nb.reward import preference_accuracy, reward_loss, score_seqs
from rlhf_nb.base.scores import fit_normalizer
from rlhf_nb.trainers.reward_tools import sample_pairs
from rlhf_nb.base.sampling import SamplingParams, generate
from rlhf_nb.sft import sft_loss
from rlhf_nb.base.batches import chat_ids, concat_seqs, response_text
from rlhf_nb.tokens import Seqs
from rlhf_nb.world import gold_rewards, gold_score, judge_examples
from rlhf_nb.worlds.world_text import (
    ANIMALS, ATTRIBUTES, FACTS, PHRASES, TEST, TRAIN, VALUES, demonstrate, demonstrations, fact_sentence,
    judge_prompt, judgement_score, make_tokenizer, prompt_ids)

SHELF = Path(__file__).resolve().parents[1] / "rlhf_nb" / "checkpoints"
SEEDS = {"base": 1, "sft": 0, "judge": 0, "reward": 0}
NAMES = tuple(SEEDS)
CONFIGS = {
    "base": TrainConfig(lr=5e-3, n_steps=2194, batch_size=24, warmup_steps=50,
                        final_lr_frac=.02, weight_decay=.01),
    "sft": TrainConfig(lr=2e-3, n_steps=300, batch_size=64),
    "judge": TrainConfig(lr=3e-3, n_steps=800, batch_size=64),
    "reward": TrainConfig(lr=1e-3, n_steps=187, batch_size=64, warmup_steps=5)}


# ---------------------------------------------------------------- making

def seeded(seed): return Generator().manual_seed(seed)

def pretraining_text(rng)->str: # no chat marks, and no held-out question
    "A document for pretraining: facts, a question with its answer, or phrases."
    kind = rng.random()
    if kind < .45:                           # one to five facts of one animal, 95 % of them true
        animal, sentences = rng.choice(ANIMALS), []
        for attribute in rng.sample(ATTRIBUTES, rng.randint(1, 5)):
            true = rng.random() < .95
            value = FACTS[animal][attribute] if true else rng.choice(VALUES[attribute])
            name = animal if not sentences or rng.random() < .3 else ""
            sentences.append(fact_sentence(name, attribute, value, rng.randrange(2)).text)
        return " ".join(sentences)
    if kind < .9:
        question = rng.choice(TRAIN)
        return f"{question.text} {demonstrate(question, rng)}"
    phrases = [text for group in PHRASES.values() for text in group]
    return " ".join(rng.choice(phrases) for _ in range(rng.randint(1, 4)))

def packed(tokenizer, rng, rows, width=96):
    "Endless batches (rows, width) of documents one after another, <bos> ... <eos>."
    bos, eos, buffer = tokenizer.bos_token_id, tokenizer.eos_token_id, []
    while True:
        while len(buffer) < rows * width:
            pages = [pretraining_text(rng) for _ in range(256)]
            for ids in tokenizer(pages, add_special_tokens=False).input_ids:
                buffer += [bos, *ids, eos]
        ids = torch.tensor(buffer[:rows * width]).view(rows, width)
        buffer = buffer[rows * width:]
        real = torch.ones_like(ids, dtype=torch.bool)
        counted = real.clone()
        counted[:, 0] = False               # nothing in the row stands before it
        yield Seqs(ids, real, counted)

def make_base(tokenizer, seed):
    model, config = tiny_lm(tokenizer, seed=seed), CONFIGS["base"]
    trainer = make_trainer(model, config)
    batches = packed(tokenizer, random.Random(100 + seed), config.batch_size)
    with tqdm(total=config.n_steps, desc="base", unit="step", disable=None) as bar:
        for _, batch in zip(range(config.n_steps), batches):
            bar.set_postfix(loss=f"{train_step(trainer, batch, sft_loss)['loss']:.3f}")
            bar.update()
    return model

def some_demonstrations(tokenizer, seed):
    return demonstrations(tokenizer, TRAIN, 4000, random.Random(10 + seed))

def make_sft(base, tokenizer, seed):
    data = some_demonstrations(tokenizer, seed)
    fit(make_trainer(base, CONFIGS["sft"]), data, sft_loss, seeded(seed))
    return base

def make_judge(base, tokenizer, seed, n=12_000): # n: judgements, the first of 12,000
    marks = judge_examples(tokenizer, TRAIN, 12_000, random.Random(200 + seed))[:n]
    parts = [some_demonstrations(tokenizer, seed), marks]
    data = concat_seqs(parts, tokenizer.pad_token_id)
    fit(make_trainer(base, CONFIGS["judge"]), data, sft_loss, seeded(seed))
    return base

def make_reward(sft, tokenizer, seed):
    pairs, _ = sample_pairs(frozen_copy(sft), tokenizer, TRAIN, 4000, seeded(300 + seed),
                            random.Random(300 + seed))
    scalar = ScalarModel.from_lm(sft, seed=seed)
    fit(make_trainer(scalar, CONFIGS["reward"]), pairs, reward_loss, seeded(seed))
    return scalar


# ---------------------------------------------------------------- measuring

def correlation(a, b): return torch.corrcoef(torch.stack([a, b]))[0, 1].item()

def evaluate_policy(model, tokenizer, seed=0, num_generations=8):
    "True score of sampled (several per held-out question) and of greedy answers."
    questions = [question for question in TEST for _ in range(num_generations)]
    prompts = [prompt_ids(tokenizer, question) for question in questions]
    seqs, _ = generate(model, prompts, tokenizer, SamplingParams(), seeded(seed))
    greedy, _ = generate(model, prompts[::num_generations], tokenizer,
                         SamplingParams(temperature=0.), seeded(seed))
    return dict(gold=gold_rewards(tokenizer, questions, seqs).mean().item(),
                gold_greedy=gold_rewards(tokenizer, list(TEST), greedy).mean().item(),
                tokens=seqs.response_mask.sum(1).float().mean().item())

def judge_scores(model, tokenizer, items, sampling, generator):
    "(n) score of each (question, answer), nan where the reply holds none."
    prompts = [chat_ids(tokenizer, judge_prompt(*item)) for item in items]
    seqs, _ = generate(model, prompts, tokenizer, sampling, generator)
    replies = [response_text(tokenizer, ids[mask].tolist())
               for ids, mask in zip(seqs.ids, seqs.response_mask)]
    scores = [judgement_score(reply) for reply in replies]
    return torch.tensor([torch.nan if s is None else s for s in scores])

def evaluate_judge(model, tokenizer, seed=0, n=384):
    "How well it marks answers to held-out questions."
    rng, generator = random.Random(5), seeded(seed)
    items = [(q, demonstrate(q, rng)) for q in rng.choices(TEST, k=n)]
    true = torch.tensor([gold_score(*item) for item in items])
    greedy = judge_scores(model, tokenizer, items, SamplingParams(32, temperature=0.), generator)
    votes = torch.stack([judge_scores(model, tokenizer, items, SamplingParams(32), generator)
                         for _ in range(3)])
    parsed = [1 - x.isnan().float().mean().item() for x in (greedy, votes)]
    greedy, one = greedy.nan_to_num(2.5), votes[0].nan_to_num(2.5)
    mean = votes.nanmean(0).nan_to_num(2.5)
    order = (mean[:, None] - mean).sign(), (true[:, None] - true).sign()
    differ = order[1] > 0
    right = (order[0] + 1)[differ].mean().item() / 2     # an equal mark is half right
    return dict(evaluate_policy(model, tokenizer, seed), parsed_greedy=parsed[0],
                parsed_sampled=parsed[1],
                exact_greedy=(greedy == true).float().mean().item(),
                r_greedy=correlation(greedy, true), r_one=correlation(one, true),
                r_mean_of_3=correlation(mean, true), pair_accuracy=right)

def evaluate_reward(scalar, sft, tokenizer, seed=0, n=1000):
    "How well it orders pairs of answers to held-out questions, sampled from sft."
    pairs, questions = sample_pairs(sft, tokenizer, TEST, n, seeded(400 + seed),
                                random.Random(400 + seed))
    sides = pairs.chosen, pairs.rejected
    chosen, rejected = [score_seqs(scalar, side) for side in sides]
    gold = [gold_rewards(tokenizer, questions, side) for side in sides]  # chosen, rejected
    differ = gold[0] != gold[1]
    swap = (gold[1] > gold[0])[differ]
    best, worst = (torch.where(swap, x, y) for x, y in (
        (rejected[differ], chosen[differ]), (chosen[differ], rejected[differ])))
    normalizer = fit_normalizer(torch.cat([chosen, rejected]))
    return dict(accuracy_labels=preference_accuracy(chosen, rejected),
                accuracy_gold=preference_accuracy(best, worst),
                labels_agree_with_gold=(~swap).float().mean().item(),
                r_gold=correlation(torch.cat([chosen, rejected]), torch.cat(gold)),
                score_mean=normalizer.mean, score_std=normalizer.std)

def evaluate(name, shelf, seed=0):
    "Measure one checkpoint as it lies on the shelf."
    if name == "reward":
        sft, tokenizer = load_lm(shelf / "sft")
        return evaluate_reward(load_reward_model(shelf / name), sft, tokenizer, seed)
    measure = evaluate_judge if name == "judge" else evaluate_policy
    return measure(*load_lm(shelf / name), seed)


# ---------------------------------------------------------------- the shelf

def make(name, shelf, seed, **more):
    "Train one checkpoint and put it on the shelf."
    tokenizer = make_tokenizer()
    parent = {"sft": "base", "judge": "base", "reward": "sft"}.get(name)
    start_from = [load_lm(shelf / parent)[0]] if parent else []
    maker = dict(base=make_base, sft=make_sft, judge=make_judge, reward=make_reward)
    model = maker[name](*start_from, tokenizer, seed, **more).half().eval()
    folder = shelf / name
    shutil.rmtree(folder, ignore_errors=True)
    if name == "reward": save_reward_model(model, tokenizer, folder)
    else:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    for file in folder.iterdir(): file.chmod(0o644)

def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME",
                   help="base, sft, judge, reward; each starts from what is in --out")
    p.add_argument("--out", type=Path, default=SHELF, help="folder to write to")
    p.add_argument("--seed", type=int, help="another seed than the shipped one")
    p.add_argument("--evaluate", action="store_true", help="make nothing, measure")
    args = p.parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(1)       # small tensors: more threads only wait for each other
    names = [name for name in NAMES if name in args.only]
    for name in names:
        seed = SEEDS[name] if args.seed is None else args.seed
        if not args.evaluate: make(name, args.out, seed)
        found = {k: round(v, 4) for k, v in evaluate(name, args.out).items()}
        if not args.evaluate:
            text = json.dumps(dict(seed=seed, **found), indent=1) + "\n"
            (args.out / name / "evaluation.json").write_text(text)
        print(f"{name:8}" + "  ".join(f"{k} {v:.3f}" for k, v in found.items()))

if __name__ == "__main__": main()
