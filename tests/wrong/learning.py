"Answers to the exercises of the chapter on learning that learners might give, each wrong."
import math, statistics
import torch

def _decay(step, r): return min(1., (step - r.warmup_steps) / (r.n_steps - 1 - r.warmup_steps))
def to_zero(step, r):
    if step < r.warmup_steps: return r.lr * (step + 1) / r.warmup_steps
    return r.lr * (1 + math.cos(math.pi * _decay(step, r))) / 2
def cold(step, r):
    decay = max(-10, _decay(step, r))
    return r.lr * (r.final_lr_frac + (1 - r.final_lr_frac) * .5 * (1 + math.cos(math.pi * decay)))
def from_nothing(step, r):
    if step < r.warmup_steps: return step / r.warmup_steps * r.lr
    return r.lr * (r.final_lr_frac + (1 - r.final_lr_frac) * (1 + math.cos(math.pi * _decay(step, r))) / 2)
def whole_run(step, r):
    if step < r.warmup_steps: return r.lr * (step + 1) / r.warmup_steps
    decay = min(1, step / (r.n_steps - 1))
    return r.lr * (r.final_lr_frac + (1 - r.final_lr_frac) * (1 + math.cos(math.pi * decay)) / 2)
def no_gap(step, r):
    if step < r.warmup_steps: return r.lr * (step + 1) / r.warmup_steps
    decay = min(1, (step - r.warmup_steps) / (r.n_steps - r.warmup_steps))
    return r.lr * (r.final_lr_frac + (1 - r.final_lr_frac) * (1 + math.cos(math.pi * decay)) / 2)
def up_again(step, r):
    if step < r.warmup_steps: return r.lr * (step + 1) / r.warmup_steps
    decay = (step - r.warmup_steps) / (r.n_steps - 1 - r.warmup_steps)
    return r.lr * (r.final_lr_frac + (1 - r.final_lr_frac) * (1 + math.cos(math.pi * decay)) / 2)
def doubled(step, r):
    if step < r.warmup_steps: return r.lr * (step + 1) / r.warmup_steps
    return r.lr * (r.final_lr_frac + (1 - r.final_lr_frac) * (1 + math.cos(math.pi * _decay(step, r))))
def no_pi(step, r):
    if step < r.warmup_steps: return r.lr * (step + 1) / r.warmup_steps
    return r.lr * (r.final_lr_frac + (1 - r.final_lr_frac) * (1 + math.cos(_decay(step, r))) / 2)
def rising(step, r):
    if step < r.warmup_steps: return r.lr * (step + 1) / r.warmup_steps
    return r.lr * (r.final_lr_frac + (1 - r.final_lr_frac) * (1 - math.cos(math.pi * _decay(step, r))) / 2)
def a_line(step, r):
    if step < r.warmup_steps: return r.lr * (step + 1) / r.warmup_steps
    return r.lr * (1 - (1 - r.final_lr_frac) * _decay(step, r))
def end_on_top(step, r):
    if step < r.warmup_steps: return r.lr * (step + 1) / r.warmup_steps
    return r.final_lr_frac + (r.lr - r.final_lr_frac) * (1 + math.cos(math.pi * _decay(step, r))) / 2

def of_means(parts): return sum(mean for mean, _ in parts) / len(parts)
def by_parts(parts):
    total = 0.
    for mean, n in parts: total = total + mean * n
    return total / len(parts)
def undivided(parts): return sum(mean * n for mean, n in parts if n > 0)
def leaks(parts):
    return sum(mean * n for mean, n in parts) / sum(n for _, n in parts)
def of_real_means(parts):
    real = [mean for mean, n in parts if n]
    return sum(real) / len(real)
def few_are_loud(parts):
    real = [(mean, 1 / n) for mean, n in parts if n]
    return sum(m * w for m, w in real) / sum(w for _, w in real)
def one_after_another(parts):
    mean = None
    for m, n in parts:
        if n: mean = m if mean is None else (mean + m) / 2
    return mean
def plain_numbers(parts):
    parts = [(torch.as_tensor(mean).item(), n) for mean, n in parts if n]
    value = sum(m * n for m, n in parts) / sum(n for _, n in parts)
    return torch.tensor(value)
def middle(parts): return statistics.median(m for m, n in parts for _ in range(n))

def like_a_loss(scores, patience):
    best, misses = math.inf, 0
    for score in scores:
        best, misses = (score, 0) if score < best else (best, misses + 1)
    return misses >= patience
def score_before(scores, patience):
    misses = 0
    for i in range(1, len(scores)):
        misses = 0 if scores[i] > scores[i - 1] else misses + 1
    return misses >= patience
def never_back(scores, patience):
    best, misses = -math.inf, 0
    for score in scores:
        if score > best: best = score
        else: misses += 1
    return misses >= patience
def equal_counts(scores, patience):
    if not scores: return False
    last_best = max(i for i, s in enumerate(scores) if s == max(scores))
    return len(scores) - 1 - last_best >= patience
def too_late(scores, patience):
    return bool(scores) and len(scores) - 1 - scores.index(max(scores)) > patience
def too_early(scores, patience):
    best, misses = -math.inf, 0
    for score in scores: best, misses = (score, 0) if score > best else (best, misses + 1)
    return misses + 1 >= patience
def at_once(scores, patience):
    return len(scores) > 1 and scores[-1] <= max(scores[:-1])
def many_scores(scores, patience): return len(scores) > patience
def from_zero(scores, patience):
    best, misses = 0., 0
    for score in scores: best, misses = (score, 0) if score > best else (best, misses + 1)
    return misses >= patience
def no_score(scores, patience):
    return len(scores) - 1 - scores.index(max(scores)) >= patience
def go_on(scores, patience):
    if not scores: return True
    return len(scores) - scores.index(max(scores)) <= patience
def as_published(scores, patience): return len(scores) > 1 and scores[-1] > scores[-2]

def means_by_tokens(parts): return sum(m for m, n in parts if n) / sum(n for m, n in parts)
def leaking_means_by_tokens(parts): return sum(m for m, n in parts) / sum(n for m, n in parts)

WRONG = {
    "cosine_at": [
        ("final_lr_frac is missing: it ends at 0", to_zero), ("the warm-up is missing", cold),
        ("the first step must not be lost: it begins at lr / warmup_steps, not at 0", from_nothing),
        ("decay must be 0 right after the warm-up", whole_run),
        ("from the first step to the last there are n_steps - 1 gaps", no_gap),
        ("decay ends at 1: after the last step the rate stays, it does not rise again", up_again),
        ("half of it: 1 + cos goes from 2 to 0", doubled),
        ("cos(decay) is not enough: decay times pi", no_pi),
        ("that rises: 1 + cos, not 1 - cos", rising),
        ("that is a line, not a cosine", a_line), ("", end_on_top)],
    "batch_mean": [
        ("every part weighs the same here: weigh it by its tokens", of_means),
        ("a mean times its tokens is a sum: divide by all tokens", by_parts),
        ("that is the sum: divide by all tokens", undivided),
        ("a mean is not yet a sum: times its tokens, then add up", means_by_tokens),
        ("a mean is not yet a sum: times its tokens; and a part without tokens has no mean",
         leaking_means_by_tokens),
        ("nan times 0 is nan: a part without tokens has no mean", leaks),
        ("every part weighs the same here, those without tokens left out", of_real_means),
        ("weights upside down: a part with few tokens weighs more here", few_are_loud),
        ("a mean of two means after another: the last part weighs half", one_after_another),
        ("no gradient reaches the losses: do not detach", plain_numbers), ("", middle)],
    "fixed_stop": [
        ("it still takes lower for better: it stops while the score rises", like_a_loss),
        ("compare with the best so far, not with the score before", score_before),
        ("a new best sets the count back to 0", never_back),
        ("as good as the best is not better", equal_counts),
        ("that is one evaluation too late: `patience` misses are enough", too_late),
        ("that is one evaluation too early", too_early),
        ("one miss is not enough: it takes `patience` of them", at_once),
        ("how many evaluations there were does not matter", many_scores),
        ("scores may be below 0: begin with the first, or at -inf", from_zero),
        ("before the first evaluation there is no best: go on", no_score),
        ("upside down: True means stop", go_on), ("the last two scores do not decide, and lower is not better", as_published)]}
