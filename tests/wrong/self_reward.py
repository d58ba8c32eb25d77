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

# best_middle(score)
def order(score): return sorted(range(len(score)), key=lambda i: -score[i])
def the_worst(score): return order(score)[0], min(range(len(score)), key=lambda i: score[i])
def nearest(score, goal, places): return min(places, key=lambda i: abs(score[i] - goal))
def near_mean(score):
    a = score.index(max(score))
    return a, nearest(score, sum(score) / len(score), [i for i in range(len(score)) if i != a])
def perhaps_itself(score):
    return score.index(max(score)), nearest(score, (max(score) + min(score)) / 2, range(len(score)))
def runner_up(score): return order(score)[0], order(score)[1]
def rejected_first(score):
    a = score.index(max(score))
    return nearest(score, (max(score) + min(score)) / 2, [i for i in range(len(score)) if i != a]), a
def median(score): return order(score)[0], order(score)[len(score) // 2]
def last_near(score):
    a = score.index(max(score))
    places = [i for i in reversed(range(len(score))) if i != a]
    return a, nearest(score, (max(score) + min(score)) / 2, places)
def of_others(score):
    a = score.index(max(score))
    places = [i for i in range(len(score)) if i != a]
    rest = [score[i] for i in places]
    return a, nearest(score, (max(rest) + min(rest)) / 2, places)
def as_scores(score):
    a = score.index(max(score))
    b = nearest(score, (max(score) + min(score)) / 2, [i for i in range(len(score)) if i != a])
    return score[a], score[b]
def among_others(score):
    a = score.index(max(score))
    rest, goal = score[:a] + score[a + 1:], (max(score) + min(score)) / 2
    return a, rest.index(min(rest, key=lambda s: abs(s - goal)))
def around(score, goal):
    a = score.index(max(score))
    return a, nearest(score, goal, [i for i in range(len(score)) if i != a])
def no_brackets(score): return around(score, max(score) + min(score) / 2)
def half_the_way(score): return around(score, (max(score) - min(score)) / 2)

# not_by_length(pair, most)
def words(text): return len(text.split())
def more(pair): return words(pair.chosen) - words(pair.rejected)
def gap(pair): return pair.chosen_score - pair.rejected_score
def length_only(pair, most): return more(pair) <= most
def letters(pair, most): return len(pair.chosen) - len(pair.rejected) <= most or gap(pair) >= 2
def fewer(pair, most): return more(pair) < most or gap(pair) >= 2
def more_than_two(pair, most): return more(pair) <= most or gap(pair) > 2
def refuse(pair, most): return more(pair) > most and gap(pair) < 2
def either_way(pair, most): return abs(more(pair)) <= most or gap(pair) >= 2
def both(pair, most): return more(pair) <= most and gap(pair) >= 2
def in_all(pair, most): return words(pair.chosen) <= most or gap(pair) >= 2
def wrong_side(pair, most): return words(pair.rejected) - words(pair.chosen) <= most or gap(pair) >= 2
def spaces(pair, most): return pair.chosen.count(" ") - pair.rejected.count(" ") <= most or gap(pair) >= 2
def score_only(pair, most): return gap(pair) >= 2
def twice(pair, most): return more(pair) <= most or pair.chosen_score >= 2 * pair.rejected_score
def own_score(pair, most): return more(pair) <= most or pair.chosen_score >= 2
def kinds_of_words(pair, most):
    more = len(set(pair.chosen.split())) - len(set(pair.rejected.split()))
    return more <= most or gap(pair) >= 2

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
def right_middle(score):
    wanted, top = (max(score) + min(score)) / 2, score.index(max(score))
    gaps = [math.inf if i == top else abs(s - wanted) for i, s in enumerate(score)]
    return top, gaps.index(min(gaps))
def right_middle_sorted(score):
    top = max(range(len(score)), key=lambda i: (score[i], -i))
    order = sorted((abs(2 * s - max(score) - min(score)), i) for i, s in enumerate(score) if i != top)
    return top, order[0][1]
def right_length(pair, most):
    if pair.chosen_score >= pair.rejected_score + 2: return True
    return len(pair.chosen.split()) <= len(pair.rejected.split()) + most
def right_length_not(pair, most):
    extra = len(pair.chosen.split()) - len(pair.rejected.split())
    return not (extra > most and pair.chosen_score - pair.rejected_score < 2)

RIGHT = {"choose_pairs": [right_loop, right_filter], "best_middle": [right_middle, right_middle_sorted],
         "not_by_length": [right_length, right_length_not]}
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
    "best_middle": [
        ("that is the worst one", the_worst),
        ("that is near the mean: the middle is between the best and the worst", near_mean),
        ("chosen and rejected must differ", perhaps_itself),
        ("that is the second best", runner_up),
        ("turned round: chosen comes first", rejected_first),
        ("that is the middle of the order: look at the scores", median),
        ("of equally near ones the first", last_near),
        ("the middle is between all: the best counts", of_others),
        ("those are scores: their places are wanted", as_scores),
        ("that is a place among the others: count the best one, too", among_others),
        ("half of both, not of the lowest alone", no_brackets),
        ("that is half the way from one to the other: where is the middle?", half_the_way)],
    "not_by_length": [
        ("the gap in score is not looked at", length_only),
        ("letters are counted, not words", letters),
        ("exactly `most` words more are allowed", fewer),
        ("a gap of exactly 2 is enough", more_than_two),
        ("turned round: True keeps the pair", refuse),
        ("a winner that is much shorter is welcome", either_way),
        ("one of both is enough: not too long, or clearly better", both),
        ("what counts is how much longer it is than the rejected one", in_all),
        ("that is the rejected one's lead: chosen minus rejected", wrong_side),
        ("two spaces make no word", spaces),
        ("length is not looked at", score_only),
        ("2 higher, not twice as high", twice),
        ("how good the chosen one is does not matter: how much better is it?", own_score),
        ("a word that comes twice counts twice", kinds_of_words)]}
