"Answers to the exercises of the chapter on judges that learners might give, each wrong."
import math, re, statistics
import torch
from rlhf_nb.judge import Verdicts, parse_score
from rlhf_nb.judge_tools import PairwiseVerdicts

def as_it_was(replies):
    scores = []
    for reply in replies:
        found = re.search(r"Score: ([0-9.]+)", reply or "")
        scores.append(float(found[1]) if found and found[1].isnumeric() else 2.5)
    return sum(scores) / len(scores)
def parsed(replies): return [None if r is None else parse_score(r) for r in replies]
def middle(replies): return sum(2.5 if x is None else x for x in parsed(replies)) / len(replies)
def isnumeric_stays(replies):
    found = [re.search(r"Score: ([0-9.]+)", reply or "") for reply in replies]
    found = [float(f[1]) for f in found if f and f[1].isnumeric()]
    return sum(found) / len(found) if found else math.nan
def zero(replies): return sum(x or 0. for x in parsed(replies)) / len(replies)
def over_all(replies):
    read = [x for x in parsed(replies) if x is not None]
    return sum(read) / len(replies)
def first_place(replies):
    read = [parse_score(r, last=False) for r in replies if r]
    read = [x for x in read if x is not None]
    return sum(read) / len(read) if read else math.nan
def any_number(replies):
    read = [parse_score(r, high=1e9) for r in replies if r]
    read = [x for x in read if x is not None]
    return statistics.mean(read) if read else math.nan
def cut_down(replies):
    read = [parse_score(r, high=1e9) for r in replies if r]
    read = [min(x, 5.) for x in read if x is not None]
    return statistics.mean(read) if read else math.nan
def whole_only(replies):
    read = [re.findall(r"Score: (\d+)", r or "") for r in replies]
    read = [int(x[-1]) for x in read if x and int(x[-1]) <= 5]
    return sum(read) / len(read) if read else math.nan
def truthy(replies):
    read = [x for x in parsed(replies) if x]
    return sum(read) / len(read) if read else math.nan
def nan_wins(replies):
    return torch.tensor([math.nan if x is None else x for x in parsed(replies)]).mean().item()
def silent_zero(replies):
    read = [x for x in parsed(replies) if x is not None]
    return sum(read) / max(1, len(read))
def total(replies):
    read = [x for x in parsed(replies) if x is not None]
    return sum(read) if read else math.nan
def best(replies): return max((x for x in parsed(replies) if x is not None), default=math.nan)
def middle_one(replies):
    read = [x for x in parsed(replies) if x is not None]
    return statistics.median_low(read) if read else math.nan
def only_first(replies):
    x = parsed(replies)[0]
    return math.nan if x is None else x

def zeros(votes): return torch.nan_to_num(votes).std(dim=1).mean()
def population(votes):
    rows = [r[~r.isnan()] for r in votes]
    rows = [r.std(correction=0) for r in rows if len(r) > 1]
    return torch.stack(rows).mean() if rows else torch.tensor(math.nan)
def singles_count(votes):
    rows = [r[~r.isnan()] for r in votes]
    return torch.stack([r.std() if len(r) > 1 else torch.tensor(0.) for r in rows if len(r)]).mean()
def variance(votes):
    off = (votes - votes.nanmean(1, keepdim=True))**2
    n = (~votes.isnan()).sum(1)
    return (off.nansum(1) / (n - 1))[n > 1].mean()
def late_root(votes): return variance(votes).sqrt()
def summed(votes): return population_free(votes).sum() if len(population_free(votes)) else torch.tensor(math.nan)
def population_free(votes):
    rows = [r[~r.isnan()].std() for r in votes if (~r.isnan()).sum() > 1]
    return torch.stack(rows) if rows else torch.empty(0)
def widest(votes):
    return population_free(votes).max() if len(population_free(votes)) else torch.tensor(math.nan)
def heap(votes): return torch.std(votes[votes.isfinite()])
def between(votes):
    means = Verdicts(votes).score()
    return means[~means.isnan()].std()
def columns(votes): return torch.tensor(Verdicts(votes.T).vote_std())
def careless(votes): return votes.std(-1).mean()
def whole_rows(votes): return torch.tensor(Verdicts(votes[~votes.isnan().any(1)]).vote_std())

def share(ab, ba): return sum({"first": 1, "tie": .5}.get(x, 0) for x in ab + ba) / len(ab + ba)
def one_order(ab, ba): return share(ab, []) - .5
def other_order(ab, ba): return share([], ba) - .5
def of_answers(ab, ba):
    a = {"first": 1., "tie": .5, "second": 0.}
    wins = [a[x] for x in ab] + [1 - a[x] for x in ba]
    return sum(wins) / len(wins) - .5
def negative(ab, ba): return .5 - share(ab, ba)
def tie_is_second(ab, ba): return (ab + ba).count("first") / len(ab + ba) - .5
def tie_is_first(ab, ba): return .5 - (ab + ba).count("second") / len(ab + ba)
def half_count(ab, ba): return share(ab, ba) * len(ab + ba) / len(ab) - .5
def number(ab, ba): return (ab + ba).count("first") + .5 * (ab + ba).count("tie")
def same_place(ab, ba): return sum(x == y for x, y in zip(ab, ba)) / len(ab)
def difference(ab, ba):
    replies = ab + ba
    return (replies.count("first") - replies.count("second")) / len(replies)
def unsigned(ab, ba): return abs(share(ab, ba) - .5)
def no_ties(ab, ba):
    replies = [x for x in ab + ba if x != "tie"]
    return replies.count("first") / len(replies) - .5 if replies else 0.
def as_duels(ab, ba):
    v = {"first": 1., "tie": .5, "second": 0.}
    return 2 * PairwiseVerdicts(torch.tensor([[v[x]] for x in ab]), torch.tensor([[1 - v[x]] for x in ba])).position_bias()

def of_answers_alone(ab, ba):
    return (ab.count("first") + ba.count("second")) / len(ab + ba) - .5

WRONG = {
    "fixed_score": [
        ("as it was: what is not all digits became 2.5", as_it_was),
        ("a reply without a score is no 2.5: leave it out", middle),
        ("4. and 4.5 are numbers as well: isnumeric knows digits alone", isnumeric_stays),
        ("a reply without a score is no 0: leave it out of the sum and of the count", zero),
        ("a reply without a score is no 0: leave it out of the sum and of the count", over_all),
        ("the last score in a reply counts, not the first", first_place),
        ("a number above 5 is no score", any_number),
        ("a number above 5 is no score: leave it out, do not cut it to 5", cut_down),
        ("half a point counts: read what stands behind the point", whole_only),
        ("0 is a score: it is false to `if`, but it was parsed", truthy),
        ("one reply without a score spoils the mean: leave it out", nan_wins),
        ("where nothing could be parsed the score is nan, not 0", silent_zero),
        ("that is the sum: take the mean", total),
        ("that is the highest score: take the mean", best),
        ("that is the median: take the mean", middle_one),
        ("that is the first reply alone", only_first)],
    "mean_vote_std": [
        ("a vote that was not parsed is no 0", zeros),
        ("divide by the votes parsed minus one", population),
        ("a single vote has no std, not one of 0: leave the row out", singles_count),
        ("that is the mean variance: take the root in each row", variance),
        ("take the root in each row, then the mean, not the other way round", late_root),
        ("that is the sum over answers: take the mean", summed),
        ("that is the largest std: take the mean", widest),
        ("all votes in one heap: the std is within each answer", heap),
        ("that is how far the answers lie apart", between),
        ("votes on one answer stand in a row", columns),
        ("one vote that was not parsed makes its whole row nan", careless),
        ("rows with a vote that was not parsed count, too", whole_rows)],
    "bias_of": [
        ("that is the share; a fair judge has .5 of it, so take .5 away", share),
        ("both orders count", one_order),
        ("both orders count, not the second alone", other_order),
        ("that is how often the same answer wins; asked is the same place", of_answers),
        ("that is how often the same answer wins, and ties are lost; asked is the same place",
         of_answers_alone),
        ("the sign: above 0 for a judge that favours the first", negative),
        ("a tie is half a first", tie_is_second),
        ("a tie is no first", tie_is_first),
        ("a tie counts, as half a first: do not leave it out", no_ties),
        ("divide by all replies, of both orders", half_count),
        ("that is a number of replies, not a share", number),
        ("that is the share of pairs whose two replies name the same place", same_place),
        ("that is first minus second: twice too much", difference),
        ("that is first minus second: twice too much", as_duels),
        ("a lean to either side is told by its sign: do not take it away", unsigned)]}
