"Answers to the exercises on pairs in files, each with one thing wrong."
import math
import torch

def _break(scores):
    kept = []
    for row, x in enumerate(scores):
        best = x.nan_to_num(nan=-math.inf).argmax().item()
        worst = x.nan_to_num(nan=math.inf).argmin().item()
        if best == worst: break
        kept.append((row, best, worst))
    return kept

def _return(scores):
    kept = []
    for row, x in enumerate(scores):
        best = x.nan_to_num(nan=-math.inf).argmax().item()
        worst = x.nan_to_num(nan=math.inf).argmin().item()
        if best == worst: return kept
        kept.append((row, best, worst))
    return kept

def _pass(scores):
    kept = []
    for row, x in enumerate(scores):
        best = x.nan_to_num(nan=-math.inf).argmax().item()
        worst = x.nan_to_num(nan=math.inf).argmin().item()
        kept.append((row, best, worst))
    return kept

def _swapped(scores):
    kept = []
    for row, x in enumerate(scores):
        worst = x.nan_to_num(nan=-math.inf).argmax().item()
        best = x.nan_to_num(nan=math.inf).argmin().item()
        if best != worst: kept.append((row, best, worst))
    return kept

def _nan_in(scores):
    kept = []
    for row, x in enumerate(scores):
        best, worst = x.argmax().item(), x.argmin().item()
        if best != worst: kept.append((row, best, worst))
    return kept

def _nan_zero(scores):
    kept = []
    for row, x in enumerate(scores.nan_to_num()):
        best, worst = x.argmax().item(), x.argmin().item()
        if best == worst: continue
        kept.append((row, best, worst))
    return kept

def _nan_low(scores):
    kept = []
    for row, x in enumerate(scores.nan_to_num(nan=-math.inf)):
        best, worst = x.argmax().item(), x.argmin().item()
        if best == worst: continue
        kept.append((row, best, worst))
    return kept

def _no_nan_rows(scores):
    kept = []
    for row, x in enumerate(scores):
        if x.isnan().any(): continue
        best, worst = x.argmax().item(), x.argmin().item()
        if best == worst: continue
        kept.append((row, best, worst))
    return kept

def _count(scores):
    kept = []
    for x in scores:
        best = x.nan_to_num(nan=-math.inf).argmax().item()
        worst = x.nan_to_num(nan=math.inf).argmin().item()
        if best != worst: kept.append((len(kept), best, worst))
    return kept

def _lists(scores):
    kept = []
    for row, x in enumerate(scores):
        best = x.nan_to_num(nan=-math.inf).argmax().item()
        worst = x.nan_to_num(nan=math.inf).argmin().item()
        if best != worst: kept.append([row, best, worst])
    return kept

def _less(sizes, n_tokens):
    n, end = 0, 0
    for row in sizes.tolist():
        end += sum(row)
        if end < n_tokens: n += 1
    return n

def _each(sizes, n_tokens): return sum(sum(row) <= n_tokens for row in sizes.tolist())

def _index(sizes, n_tokens):
    last, end = -1, 0
    for i, row in enumerate(sizes.tolist()):
        end += sum(row)
        if end <= n_tokens: last = i
    return last

def _begun(sizes, n_tokens):
    n, start = 0, 0
    for row in sizes.tolist():
        if start < n_tokens: n += 1
        start += sum(row)
    return n

def _prompts(sizes, n_tokens): return int((sizes[:, 0].cumsum(0) <= n_tokens).sum())
def _lost(sizes, n_tokens): return int((sizes.sum(1).cumsum(0) > n_tokens).sum())
def _bytes(sizes, n_tokens): return int((sizes.sum(1).cumsum(0) * 4 <= n_tokens).sum())
def _mask(sizes, n_tokens): return sizes.sum(1).cumsum(0) <= n_tokens
def _no_rejected(sizes, n_tokens):
    n, end = 0, 0
    for prompt, chosen, rejected in sizes.tolist():
        n += end + prompt + chosen <= n_tokens
        end += prompt + chosen + rejected
    return n

def _too_far(n_rows, n_wanted, size):
    out, start = [], n_rows
    while start < n_wanted:
        out.append((start, start + size))
        start += size
    return out

def _again(n_rows, n_wanted, size):
    return [(i, min(i + size, n_wanted)) for i in range(0, n_wanted, size)]

def _no_rest(n_rows, n_wanted, size):
    out = []
    while n_rows + size <= n_wanted:
        out.append((n_rows, n_rows + size))
        n_rows += size
    return out

def _lengths(n_rows, n_wanted, size):
    return [(i, min(size, n_wanted - i)) for i in range(n_rows, n_wanted, size)]

def _inclusive(n_rows, n_wanted, size):
    return [(i, min(i + size, n_wanted) - 1) for i in range(n_rows, n_wanted, size)]

def _one_late(n_rows, n_wanted, size):
    return [(i, min(i + size, n_wanted)) for i in range(n_rows + 1, n_wanted, size)]

def _round(n_rows, n_wanted, size):
    return [(i * size, min(i * size + size, n_wanted))
            for i in range(n_rows // size, math.ceil(n_wanted / size))]

def _more(n_rows, n_wanted, size):
    end = n_rows + n_wanted
    return [(i, min(i + size, end)) for i in range(n_rows, end, size)]

def _chunks(n_rows, n_wanted, size):
    rows = torch.arange(n_rows, n_wanted).split(size)
    return [(int(r[0]), int(r[-1])) for r in rows if len(r)]

WRONG = {
    "fixed_best_and_worst": [
        ("one tie still ends the whole batch: the prompts behind it were answered and judged, too",
         _break),
        ("one tie still ends the whole batch: the prompts behind it were answered and judged, too",
         _return),
        ("a tie teaches nothing: leave that prompt out", _pass),
        ("best and worst have changed places", _swapped),
        ("one unreadable answer (for min and max, nan is both) costs its prompt the other answers",
         _nan_in),
        ("nan is no score of 0", _nan_zero),
        ("nan is no score, yet it was rejected as the worst", _nan_low),
        ("one unreadable answer (for min and max, nan is both) costs its prompt the other answers",
         _no_nan_rows),
        ("the first number is the prompt's in the batch, not the pair's", _count),
        ("a pair is a tuple (prompt, best, worst)", _lists)],
    "whole_rows": [
        ("a row that ends with the last token is whole, too", _less),
        ("rows follow each other: add the lengths of those before", _each),
        ("that is the number of the last whole row: how many are there?", _index),
        ("a row that only begins before the cut is not whole", _begun),
        ("only the prompts are counted: a row has three parts", _prompts),
        ("those are the rows that are lost", _lost),
        ("n_tokens counts tokens, not bytes", _bytes),
        ("a bool for each row: count them", _mask),
        ("the rejected answer belongs to the row, too", _no_rejected)],
    "still_owed": [
        ("the last append would write more than is wanted", _too_far),
        ("what is there would be written twice", _again),
        ("the rest, less than a whole append, is forgotten", _no_rest),
        ("a slice is start and end, not start and length", _lengths),
        ("a slice ends before its second number, so that is one row short each time",
         _inclusive),
        ("row n_rows is the first that is missing", _one_late),
        ("go on where the store ends, not at a multiple of size: rows would be twice there",
         _round),
        ("n_wanted is how many there should be in the end, not how many more", _more),
        ("a slice ends before its second number, so that is one row short each time",
         _chunks)]}
