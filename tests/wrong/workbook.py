"Wrong answers to the exercises of the chapter on the workbook."

def plain(ours, yours, copied):
    if yours is None: return "new"
    if yours == ours: return "same"
    return "updated" if yours == copied else "kept"
def yours_unless_unknown(ours, yours, copied):
    if yours is None: return "new"
    if yours == ours: return "same"
    if yours == copied: return "updated"
    return "kept" if copied is None else "yours"
def yours_if_unknown(ours, yours, copied):
    if yours is None: return "new"
    if yours == ours: return "same"
    if yours == copied: return "updated"
    return "yours" if copied is None or copied == ours else "kept"
def never_updated(ours, yours, copied):
    if yours is None: return "new"
    if yours == ours: return "same"
    return "yours" if yours == copied or copied == ours else "kept"
def same_comes_late(ours, yours, copied):
    if yours is None: return "new"
    if copied == ours: return "yours"
    if yours == ours: return "same"
    return "updated" if yours == copied else "kept"
def unknown_comes_first(ours, yours, copied):
    if yours is None: return "new"
    if copied is None: return "kept"
    if yours == ours: return "same"
    if yours == copied: return "updated"
    return "yours" if copied == ours else "kept"
def new_comes_late(ours, yours, copied):
    if copied == ours and yours != ours: return "yours"
    if yours is None: return "new"
    if yours == ours: return "same"
    return "updated" if yours == copied else "kept"
def swapped(ours, yours, copied):
    if yours is None: return "new"
    if yours == ours: return "same"
    if yours == copied: return "updated"
    return "kept" if copied == ours else "yours"

def longest(outcomes): return sorted(outcomes, key=lambda o: o.seconds, reverse=True)
def good(outcomes): return [o for o in outcomes if o.error == ""]
def with_failed(outcomes, n):
    total = sum(o.seconds for o in outcomes)
    return [(o.chapter, o.seconds / total) for o in longest(outcomes)[:n]]
def seconds(outcomes, n): return [(o.chapter, o.seconds) for o in longest(good(outcomes))[:n]]
def share_of_the_shown(outcomes, n):
    shown = longest(good(outcomes))[:n]
    total = sum(o.seconds for o in shown)
    return [(o.chapter, o.seconds / total) for o in shown]
def shortest(outcomes, n):
    done = good(outcomes)
    total = sum(o.seconds for o in done)
    return [(o.chapter, o.seconds / total) for o in sorted(done, key=lambda o: o.seconds)[:n]]
def everything(outcomes, n):
    done = good(outcomes)
    total = sum(o.seconds for o in done)
    return [(o.chapter, o.seconds / total) for o in longest(done)]
def total_with_failed(outcomes, n):
    total = sum(o.seconds for o in outcomes)
    return [(o.chapter, o.seconds / total) for o in longest(good(outcomes))[:n]]
def book_order(outcomes, n):
    done = good(outcomes)
    total = sum(o.seconds for o in done)
    return [(o.chapter, o.seconds / total) for o in done][:n]
def longest_last(outcomes, n):
    done = sorted(good(outcomes), key=lambda o: o.seconds)
    total = sum(o.seconds for o in done)
    return [(o.chapter, o.seconds / total) for o in done[max(len(done) - n, 0):]]
def from_the_end(outcomes, n):
    done = sorted(good(outcomes), key=lambda o: o.seconds)
    total = sum(o.seconds for o in done)
    return [(o.chapter, o.seconds / total) for o in done[-n:]]

WRONG = {
    "decide_finer": [
        ("where only the learner changed the file it is \"yours\"", plain),
        ("where both changed it, it is \"kept\"", yours_unless_unknown),
        ("where nobody knows what was copied, it is \"kept\"", yours_if_unknown),
        ("a file that nobody touched gets the correction: \"updated\"", never_updated),
        ("look first whether the two are the same", same_comes_late),
        ("two equal files are the \"same\", even if nobody knows what was copied", unknown_comes_first),
        ("a file that is not there is \"new\", whatever was copied", new_comes_late),
        ("\"yours\" and \"kept\" are swapped", swapped)],
    "slowest": [
        ("a failed chapter's time is no measure", with_failed),
        ("those are seconds: divide by the total", seconds),
        ("the share is of all chapters that ran, not of those shown", share_of_the_shown),
        ("those are the shortest: turn the order", shortest),
        ("only the first n", everything),
        ("the failed ones are left out of the list, but not of the total", total_with_failed),
        ("those are the first in the book: sort before you take n", book_order),
        ("the right chapters in the wrong order: the longest comes first", longest_last),
        ("the right chapters in the wrong order, and [-0:] is everything", from_the_end)]}
