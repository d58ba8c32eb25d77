"Answers to the exercises on distillation: wrong ones as learners write them, and right ones that look different."
import torch
from torch.nn import functional as F

def kl_div_as_it_comes(logp, teacher_logp, token): return F.kl_div(logp, teacher_logp, log_target=True, reduction="none").mean(-1)
def reversed_order(logp, teacher_logp, token): return F.kl_div(teacher_logp, logp, log_target=True, reduction="none").sum(-1)
def students_weights(logp, teacher_logp, token):
    p = logp.exp()
    return (p * (teacher_logp - logp)).sum(dim=-1)
def cross_entropy(logp, teacher_logp, token): return -(teacher_logp.exp() * logp).sum(-1)
def total(logp, teacher_logp, token): return (teacher_logp.exp() * (teacher_logp - logp)).sum()
def minus(logp, teacher_logp, token): return (teacher_logp.exp() * (logp - teacher_logp)).sum(-1)
def no_weights(logp, teacher_logp, token): return (teacher_logp - logp).sum(-1)
def by_words(logp, teacher_logp, token): return torch.einsum("...v,...v->...", teacher_logp.exp(), teacher_logp - logp)
def by_kl_div(logp, teacher_logp, token): return F.kl_div(logp, teacher_logp, log_target=True, reduction="none").sum(-1)

def pick(x, y): return torch.take_along_dim(x, y.unsqueeze(-1), -1).squeeze(-1)
def with_gradient(logp, teacher_logp, token): return (pick(logp, token) - pick(teacher_logp, token)) * pick(logp, token)
def k1(logp, teacher_logp, token): return pick(logp - teacher_logp, token)
def sign(logp, teacher_logp, token): return (pick(teacher_logp, token) - pick(logp, token)).detach() * pick(logp, token)
def times_p(logp, teacher_logp, token): return pick(logp - teacher_logp, token).detach() * pick(logp, token).exp()
def greedy(logp, teacher_logp, token):
    y = logp.argmax(-1)
    return pick(logp - teacher_logp, y).detach() * pick(logp, y)
def nothing_learns(logp, teacher_logp, token): return (pick(logp - teacher_logp, token) * pick(logp, token)).detach()
def all_words(logp, teacher_logp, token): return (logp.exp() * (logp - teacher_logp)).sum(-1)
def advantage(logp, teacher_logp, token):
    own = pick(logp, token)
    reward = (pick(teacher_logp, token) - own).detach()
    return -reward * own
def under_no_grad(logp, teacher_logp, token):
    with torch.no_grad(): weight = pick(logp, token) - pick(teacher_logp, token)
    return weight * pick(logp, token)

def columns(x, mask): return x.masked_fill(~mask, 0)
def without_first(x, mask): return longest([row[m][1:] for row, m in zip(x, mask)], x)
def without_last(x, mask): return longest([row[m][:-1] for row, m in zip(x, mask)], x)
def of_prompt(x, mask): return longest([row[~m] for row, m in zip(x, mask)], x)
def backwards(x, mask): return longest([row[m].flip(0) for row, m in zip(x, mask)], x)
def too_wide(x, mask):
    out = torch.zeros_like(x)
    for i, m in enumerate(mask): out[i, :int(m.sum())] = x[i, m]
    return out
def first_start(x, mask):
    at, n = int(mask[0].nonzero()[0]), int(mask.sum(1).max())
    return x[:, at:at + n]
def longest(rows, x):
    n = max(len(row) for row in rows)
    return torch.stack([torch.cat([row, x.new_zeros(n - len(row))]) for row in rows])
def right_rows(x, mask): return longest([row[m] for row, m in zip(x, mask)], x)
def by_sort(x, mask):
    order = (~mask).int().argsort(dim=1, stable=True)
    return x.masked_fill(~mask, 0).gather(1, order)[:, :int(mask.sum(1).max())]

WRONG = dict(
    forward_kl=[("the sum over words, not their mean", kl_div_as_it_comes),
        ("that is the reverse KL: the teacher's probabilities weigh, and its log-probs come first", reversed_order),
        ("the weights are the teacher's probabilities, not the student's", students_weights),
        ("that is the cross-entropy: the teacher's own log-probs are missing", cross_entropy),
        ("one number for each place: sum over the last axis only", total), ("the sign: log π_T - log π", minus),
        ("the teacher's probabilities are missing", no_weights)],
    sampled_kl=[("the reward is a constant: detach it", with_gradient),
        ("the gap alone has a gradient of 0 on average: it must multiply log π", k1),
        ("the sign: a word that the teacher likes more than the student should rise", sign), ("log π, not π", times_p),
        ("of the token that stands there, not of the likeliest", greedy),
        ("no gradient reaches the student: only the gap is a constant, so detach that alone; log π learns", nothing_learns),
        ("of the token that stands there, not of all words: that is the exact KL", all_words)],
    fixed_alignment=[("as it was: columns are compared", columns),
        ("shifted by one: the first word belongs to the answer", without_first),
        ("shifted by one: the last word belongs to the answer", without_last),
        ("that is the prompt: the mask is True on the answer", of_prompt), ("backwards: the words keep their order", backwards),
        ("the width is that of the longest answer, not of the rows", too_wide), ("every row begins at a place of its own", first_start)])
RIGHT = dict(forward_kl=[by_words, by_kl_div], sampled_kl=[advantage, under_no_grad], fixed_alignment=[right_rows, by_sort])
