"Answers to the exercise of the chapter that compares, as learners might write them, each wrong; and right ones."
import math, statistics
import numpy as np

def told_by_the_same(scores, start, chooses):
    best = scores[:, chooses].mean(1).argmax().item()
    gains = scores[best, chooses] - start[chooses]
    return best, gains.mean().item(), (gains.std() / len(gains)**.5).item()
def chosen_on_all(scores, start, chooses):
    best = int(scores.mean(1).argmax())
    d = (scores[best] - start)[~chooses]
    return best, float(d.mean()), float(d.std()) / math.sqrt(len(d))
def told_on_all(scores, start, chooses):
    best = int(scores[:, chooses].mean(1).argmax())
    d = scores[best] - start
    return best, float(d.mean()), float(d.std()) / math.sqrt(len(d))
def all_over(scores, start, chooses):
    best = scores.mean(1).argmax().item()
    d = scores[best] - start
    return best, d.mean().item(), (d.std() / len(d)**.5).item()
def upside_down(scores, start, chooses): return right(scores, start, ~chooses)
def second_look(scores, start, chooses):
    best = scores[:, ~chooses].mean(1).argmax().item()
    d = (scores[best] - start)[~chooses]
    return best, d.mean().item(), (d.std() / len(d)**.5).item()
def no_start(scores, start, chooses): return right(scores, 0 * start, chooses)
def behind(scores, start, chooses):
    best, gain, error = right(scores, start, chooses)
    return best, -gain, error
def not_paired(scores, start, chooses):
    best, gain, _ = right(scores, start, chooses)
    a, b = scores[best, ~chooses], start[~chooses]
    return best, gain, math.sqrt(a.var() / len(a) + b.var() / len(b))
def one_sided(scores, start, chooses):
    best, gain, _ = right(scores, start, chooses)
    a = scores[best, ~chooses]
    return best, gain, float(a.std()) / len(a)**.5
def spread(scores, start, chooses):
    best, gain, error = right(scores, start, chooses)
    return best, gain, error * math.sqrt(int((~chooses).sum()))
def over_n(scores, start, chooses):
    best, gain, error = right(scores, start, chooses)
    return best, gain, error / math.sqrt(int((~chooses).sum()))
def every_question(scores, start, chooses):
    d = (scores[scores[:, chooses].mean(1).argmax()] - start)[~chooses]
    return scores[:, chooses].mean(1).argmax().item(), d.mean().item(), (d.std() / len(start)**.5).item()
def numpy_std(scores, start, chooses):
    s, m = scores.double().numpy(), chooses.numpy()
    best = int(s[:, m].mean(axis=1).argmax())
    d = (s[best] - start.double().numpy())[~m]
    return best, float(d.mean()), float(d.std() / np.sqrt(len(d)))
def lowest(scores, start, chooses): return right(-scores, -start, chooses)[0], *right(scores, start, chooses)[1:]

def right(scores, start, chooses):                     # in plain Python
    by = [i for i, c in enumerate(chooses.tolist()) if c]
    told = [i for i, c in enumerate(chooses.tolist()) if not c]
    means = [statistics.fmean(row[i] for i in by) for row in scores.tolist()]
    best = means.index(max(means))
    gains = [scores[best, i].item() - start[i].item() for i in told]
    return best, statistics.fmean(gains), statistics.stdev(gains) / math.sqrt(len(gains))
def with_numpy(scores, start, chooses):                # right
    s, m = scores.double().numpy(), chooses.numpy()
    gains = s - start.double().numpy()                 # the start is one for all: the same one wins
    best = int(np.argmax(gains[:, m].mean(axis=1)))
    d = gains[best, ~m]
    return best, d.mean(), d.std(ddof=1) / np.sqrt(d.size)
def by_sums(scores, start, chooses):                   # right
    d = scores.double() - start.double()
    best, n = int((d * chooses).sum(1).argmax()), int((~chooses).sum())
    mean = (d[best] * ~chooses).sum() / n
    return best, mean.item(), ((((d[best] - mean)**2 * ~chooses).sum() / (n - 1) / n)**.5).item()

WRONG = {"honest_gain": [
    ("reported on the questions that chose: take the others", told_by_the_same),
    ("chosen on all questions: those that report may not choose", chosen_on_all),
    ("reported on all questions: those that chose flatter the winner", told_on_all),
    ("chosen and reported on all questions", all_over), ("chosen and reported are exchanged", upside_down),
    ("chosen on the questions that report: take those that choose", second_look),
    ("that is the score: the gain is what it has more than the start", no_start),
    ("the sign: the checkpoint minus the start", behind),
    ("the errors of two means: subtract question by question first", not_paired),
    ("the error of the checkpoint alone: the start is noisy, too", one_sided),
    ("that is the standard deviation: divide by the root of n", spread),
    ("divided by n: the root of n", over_n), ("n is the number of questions that report", every_question),
    ("the standard deviation divides by n - 1", numpy_std)]}
RIGHT = {"honest_gain": [right, with_numpy, by_sums]}
