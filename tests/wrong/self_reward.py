"Wrong answers to the exercises of the chapter on self-rewarding."
import math

# fixed_pairs(scores)
def parsed(row): return [i for i in range(len(row)) if not math.isnan(row[i])]
def best(row, places): return max(places, key=lambda i: row[i])
def worst(row, places): return min(places, key=lambda i: row[i])
def as_it_was(scores):
    pairs = []
    for p, row in enumerate(scores):
        places = parsed(row)
        if len(places) < 2: break
        a, b = best(row, places), worst(row, places)
        if row[a] == row[b]: break
        pairs.append((p, a, b))
    return pairs
def each(scores, make): # make(prompt, row, places) -> a pair or None
    made = [make(p, row, parsed(row)) for p, row in enumerate(scores) if len(parsed(row)) > 1]
    return [pair for pair in made if pair]
def ties_too(scores): return each(scores, lambda p, row, at: (p, best(row, at), worst(row, at)))
def unparsed_is_zero(scores):
    filled = [[0. if math.isnan(s) else s for s in row] for row in scores]
    return [(p, row.index(max(row)), row.index(min(row))) for p, row in enumerate(filled)
            if max(row) > min(row)]
def whole_prompts(scores):
    return [(p, row.index(max(row)), row.index(min(row))) for p, row in enumerate(scores)
            if not any(map(math.isnan, row)) and max(row) > min(row)]
def swapped(scores):
    return each(scores, lambda p, row, at: row[best(row, at)] > row[worst(row, at)]
                and (p, worst(row, at), best(row, at)))
def of_the_parsed(scores):
    pairs = []
    for p, row in enumerate(scores):
        row = [s for s in row if s == s]
        if len(row) > 1 and max(row) > min(row): pairs.append((p, row.index(max(row)), row.index(min(row))))
    return pairs
def second(scores):
    def make(p, row, at):
        order = sorted(at, key=lambda i: -row[i])
        return row[order[0]] > row[order[1]] and (p, order[0], order[1])
    return each(scores, make)
def last_of_best(scores):
    def make(p, row, at):
        a = max(at, key=lambda i: (row[i], i))
        b = worst(row, at)
        return row[a] > row[b] and (p, a, b)
    return each(scores, make)
def counts_pairs(scores):
    found = each(scores, lambda p, row, at: row[best(row, at)] > row[worst(row, at)]
                 and (p, best(row, at), worst(row, at)))
    return [(i, a, b) for i, (_, a, b) in enumerate(found)]
def no_prompt(scores):
    return each(scores, lambda p, row, at: row[best(row, at)] > row[worst(row, at)]
                and (best(row, at), worst(row, at)))
def not_nan(scores):
    pairs = []
    for p, row in enumerate(scores):
        places = [i for i, s in enumerate(row) if s != math.nan]
        if len(places) < 2: continue
        a, b = best(row, places), worst(row, places)
        if row[a] > row[b]: pairs.append((p, a, b))
    return pairs
def is_not_nan(scores): # one nan is that object, another is not
    places = [[i for i, s in enumerate(row) if s is not math.nan] for row in scores]
    made = [(p, best(row, at), worst(row, at)) for p, (row, at) in enumerate(zip(scores, places)) if len(at) > 1]
    return [(p, a, b) for p, a, b in made if scores[p][a] > scores[p][b]]
def their_scores(scores):
    return each(scores, lambda p, row, at: row[best(row, at)] > row[worst(row, at)]
                and (p, row[best(row, at)], row[worst(row, at)]))

# replay_loss(pair_loss, old_logp, weight, mean_length)
def plus(loss, old, w, t): return loss + w * old.sum() / t
def unweighted(loss, old, w, t): return loss - old.sum() / t
def no_length(loss, old, w, t): return loss - w * old.sum()
def of_rows(loss, old, w, t): return loss - w * old.sum(-1).mean() / t
def of_tokens(loss, old, w, t): return loss - w * old.mean() / t
def own_lengths(loss, old, w, t):
    return loss - w * sum(row[row != 0].mean() for row in old)
def replay_only(loss, old, w, t): return -w / t * old.sum()
def weighs_both(loss, old, w, t): return w * (loss - old.sum() / t)
def as_data(loss, old, w, t): return loss - w * old.data.sum() / t
def divides_both(loss, old, w, t): return (loss - w * old.sum()) / t

def any_rule(answer): return lambda scores, select=None: answer(scores)
def extremes(scores): return each(scores, lambda p, row, at: row[best(row, at)] > row[worst(row, at)]
                                  and (p, best(row, at), worst(row, at)))

def right_loop(scores, select=None):
    pairs = []
    for prompt in range(len(scores)):
        places, values = [], []
        for i, score in enumerate(scores[prompt]):
            if score == score:
                places.append(i)
                values.append(score)
        if len(values) > 1:
            a, b = select(values) if select else (values.index(max(values)), values.index(min(values)))
            if values[a] - values[b]: pairs.append((prompt, places[a], places[b]))
    return pairs
def right_filter(scores, select=lambda row: (row.index(max(row)), row.index(min(row)))):
    known = [[i for i, s in enumerate(row) if not math.isnan(s)] for row in scores]
    found = [(p, *[at[k] for k in select([scores[p][i] for i in at])]) for p, at in enumerate(known) if len(at) >= 2]
    return [(p, a, b) for p, a, b in found if scores[p][a] != scores[p][b]]
def right_rows(loss, old, w, t):
    for row in old: loss = loss - w * row.sum() / t
    return loss
def right_nll(loss, old, w, t): return loss + w * (-old).sum(1).sum(0).div(t)

RIGHT = {"choose_pairs": [right_loop, right_filter], "replay_loss": [right_rows, right_nll]}
WRONG = {
    "choose_pairs": [(name, any_rule(answer)) for name, answer in [
        ("the rule `select` is not asked", extremes),
        ("`break` ends all prompts at the first one without a pair: `continue`", as_it_was),
        ("a tie is no pair: nothing is better than anything", ties_too),
        ("a candidate that was not parsed has no score: not 0 either", unparsed_is_zero),
        ("one candidate that was not parsed costs the whole prompt: leave out just that one", whole_prompts),
        ("turned round: the best is chosen, the worst rejected", swapped),
        ("places are counted among all candidates of a prompt, parsed or not", of_the_parsed),
        ("that is the second best: reject the worst", second),
        ("of several best ones take the first", last_of_best),
        ("prompts are counted whether they give a pair or not", counts_pairs),
        ("the prompt is missing: three numbers per pair", no_prompt),
        ("nan equals nothing, not even itself: neither == nor != finds it", not_nan),
        ("nan equals nothing, not even itself: neither == nor != finds it", is_not_nan),
        ("those are scores: the places of both are wanted", their_scores)]],
    "replay_loss": [
        ("the sign: old tokens must become *more* probable", plus),
        ("the weight is missing", unweighted),
        ("the mean length is missing", no_length),
        ("that is the mean over old examples: the pairs' loss is a sum", of_rows),
        ("that is the mean over old tokens: the mean length divides", of_tokens),
        ("each row is divided by its own length: one mean length for all", own_lengths),
        ("the pairs' loss is missing", replay_only),
        ("the weight is of the old examples alone", weighs_both),
        ("no gradient reaches the old examples' log-probs", as_data),
        ("the mean length divides both", divides_both)]}
