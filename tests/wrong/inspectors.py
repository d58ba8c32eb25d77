"Answers to the exercises of the chapter on inspectors that learners might give, each wrong."
import numpy as np
import torch

def last_column(scores, mask): return scores[..., -1]
def first_real(scores, mask):
    return scores.gather(1, mask.int().argmax(1, keepdim=True)).squeeze(1)
def before_last(scores, mask):
    place = torch.arange(mask.shape[1]) * mask
    return scores[range(len(scores)), place.max(1).values - 1]
def counted(scores, mask):
    return scores.gather(1, mask.sum(1, keepdim=True) - 1).squeeze(1)
def after_last(scores, mask):
    place = (torch.arange(mask.shape[1]) * mask).max(1).values + 1
    return scores[range(len(scores)), place % mask.shape[1]]
def mean(scores, mask): return scores.masked_fill(~mask, 0).sum(1) / mask.sum(1)
def largest(scores, mask): return torch.where(mask, scores, -1e9).max(1).values.to(scores.dtype)
def total(scores, mask): return scores.masked_fill(~mask, 0.).sum(-1)
@torch.no_grad()
def frozen(scores, mask):
    place = (torch.arange(mask.shape[1]) * mask).max(1).values
    return scores.gather(1, place[:, None])[:, 0]
def first_pad(scores, mask): # -1 where there is no pad
    return scores[range(len(scores)), (~mask).int().argmax(1) - 1]

def sorted_pairs(probs): return sorted(enumerate(probs), key=lambda p: p[1], reverse=True)
def crossing_dropped(probs, top_k, top_p):
    pairs = sorted_pairs(probs)[:top_k] if top_k else sorted_pairs(probs)
    total, run, out = sum(p for _, p in pairs), 0., []
    for i, p in pairs:
        run += p / total
        if run > top_p and out: break
        out.append(i)
    return out
def not_renormed(probs, top_k, top_p):
    pairs, run, out = sorted_pairs(probs)[:top_k or len(probs)], 0., []
    for i, p in pairs:
        if not out or run < top_p: out.append(i)
        run += p
    return out
def only_p(probs, top_k, top_p):
    order = np.argsort(-np.array(probs), kind="stable")
    run = np.cumsum(np.array(probs)[order])
    return [int(i) for i, r in zip(order, run - np.array(probs)[order]) if r < top_p]
def only_k(probs, top_k, top_p):
    return [i for i, _ in sorted_pairs(probs)][:top_k or None]
def upwards(probs, top_k, top_p):
    order, run, out = sorted(range(len(probs)), key=probs.__getitem__)[:top_k or None], 0., []
    total = sum(probs[i] for i in order)
    for i in order:
        if run >= top_p and out: break
        out.append(i)
        run += probs[i] / total
    return out
def strict(probs, top_k, top_p):
    pairs, run, out = sorted_pairs(probs)[:top_k or None], 0., []
    total = sum(p for _, p in pairs)
    for i, p in pairs:
        if run > top_p: break
        out.append(i)
        run += p / total
    return out
def by_place(probs, top_k, top_p):
    pairs, run, out = sorted_pairs(probs)[:top_k or None], 0., []
    total = sum(p for _, p in pairs)
    for i, p in pairs:
        if run >= top_p and out: break
        out.append(i)
        run += p / total
    return sorted(out)
def later_first(probs, top_k, top_p):
    order, run, out = sorted(range(len(probs)), key=lambda i: (probs[i], i))[::-1][:top_k or None], 0., []
    total = sum(probs[i] for i in order)
    for i in order:
        if run >= top_p and out: break
        out.append(i)
        run += probs[i] / total
    return out
def values_kept(probs, top_k, top_p): return [probs[i] for i in only_p(probs, top_k, top_p)]

WRONG = {
    "fixed_batch_scores": [
        ("the last column is read, pad or not", last_column),
        ("the first real token is read", first_real),
        ("one too early: the token before the last", before_last),
        ("counting tokens finds the last one only if no pad stands before them", counted),
        ("the first pad is read: one too late", after_last),
        ("that is the mean over the row: one position counts", mean),
        ("that is the largest score of the row", largest),
        ("that is the sum of all scores", total),
        ("no gradient reaches the scores: do not detach", frozen),
        ("", first_pad)],
    "kept_tokens": [
        ("the token that crosses top_p is dropped: it stays", crossing_dropped),
        ("after top_k the probs have to sum to 1 again, before top_p is applied", not_renormed),
        ("top_k is not applied", only_p),
        ("top_p is not applied", only_k),
        ("the least probable come first", upwards),
        ("one too many where top_p is reached exactly: >= ends it", strict),
        ("ids in their own order: the most probable comes first", by_place),
        ("of equal probs the larger id comes first", later_first),
        ("", values_kept)]}
