"Wrong answers to the exercises of the chapter on checks."

def as_it_was(value, returns): return ((value - returns)**2).mean()
def flattened(value, returns):
    value = value.flatten()
    n = min(len(value), len(returns))
    return ((value[:n] - returns[:n])**2).mean()
def unasked(value, returns): return ((value.squeeze(-1) - returns)**2).mean()
def shaped(value, returns):
    if value.ndim == 2:
        if value.shape[1] != 1: raise ValueError("one value per state")
        value = value.squeeze(1)
    if len(value) != len(returns): raise ValueError("as many returns as values")
    return value, returns
def summed(value, returns):
    value, returns = shaped(value, returns)
    return ((value - returns)**2).sum()
def absolute(value, returns):
    value, returns = shaped(value, returns)
    return (value - returns).abs().mean()
def no_gradient(value, returns):
    value, returns = shaped(value.detach(), returns)
    return ((value - returns)**2).mean()
def squared_late(value, returns):
    value, returns = shaped(value, returns)
    return (value.mean() - returns.mean())**2
def squeezed(value, returns):
    value = value.squeeze()
    if value.shape != returns.shape: raise ValueError(f"{value.shape}, {returns.shape}")
    return (value - returns).pow(2).mean()
def halved(value, returns):
    value, returns = shaped(value, returns)
    return .5 * ((returns - value)**2).mean()

def all_tries(rows):
    tries, solved = {}, {}
    for row in rows:
        tries[row["exercise"]] = tries.get(row["exercise"], 0) + 1
        if row["verdict"] == "right": solved[row["exercise"]] = tries[row["exercise"]]
    return solved
def unsolved_too(rows):
    tries, done = {}, set()
    for row in rows:
        if row["exercise"] in done: continue
        tries[row["exercise"]] = tries.get(row["exercise"], 0) + 1
        if row["verdict"] == "right": done.add(row["exercise"])
    return tries
def before_the_right_one(rows):
    found = {}
    for name in {row["exercise"] for row in rows}:
        verdicts = [row["verdict"] for row in rows if row["exercise"] == name]
        if "right" in verdicts: found[name] = verdicts.index("right")
    return found
def every_try(rows):
    right = {row["exercise"] for row in rows if row["verdict"] == "right"}
    return {name: sum(row["exercise"] == name for row in rows) for name in right}
def stops_behind_solved(rows):
    tries, solved = {}, {}
    for row in rows:
        name = row["exercise"]
        if name in solved: break
        tries[name] = tries.get(name, 0) + 1
        if row["verdict"] == "right": solved[name] = tries[name]
    return solved
def times_right(rows):
    found = {}
    for row in rows:
        if row["verdict"] == "right": found[row["exercise"]] = found.get(row["exercise"], 0) + 1
    return found
def lines_of_the_file(rows):
    found = {}
    for i, row in enumerate(rows, 1):
        if row["verdict"] == "right": found.setdefault(row["exercise"], i)
    return found

WRONG = {
    "fixed_value_loss": [
        ("(b 1) minus (b) is (b b): each value meets every return", as_it_was),
        ("right numbers, but a wrong shape is let through", flattened),
        ("right numbers, but a wrong shape is PyTorch's error: ask first, raise ValueError", unasked),
        ("that is the sum over states: take the mean", summed),
        ("that is the absolute error: square it", absolute),
        ("nothing flows back into the critic: do not detach", no_gradient),
        ("square each gap before you take the mean, not after", squared_late),
        ("one state loses its own axis: drop the last one only", squeezed),
        ("half of it: the 1/2 is not in the formula here", halved)],
    "tries_needed": [
        ("tries after the first right one are counted", all_tries),
        ("an exercise that was never solved has no place here", unsolved_too),
        ("the right try counts too", before_the_right_one),
        ("that counts all tries of solved exercises: stop at the first right one", every_try),
        ("a row that is passed over ends nothing: go on with the next", stops_behind_solved),
        ("that is how often it was right", times_right),
        ("tries of other exercises are counted", lines_of_the_file)]}
