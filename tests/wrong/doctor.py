"Wrong and other right answers to the exercises of the training doctor."
import statistics

def below(kl): return bool(kl.mean() < 0)
def deviation(kl): return bool(kl.mean() + 2 * kl.std() < 0)
def population(kl): return bool(kl.mean() + 2 * kl.std(unbiased=False) / len(kl)**.5 < 0)
def by_n(kl): return bool(kl.mean() + 2 * kl.std() / len(kl) < 0)
def at_most(kl): return bool(kl.mean() + 2 * kl.std() / len(kl)**.5 <= 0)
def one_error(kl): return bool(kl.mean() + kl.std() / len(kl)**.5 < 0)
def one_less(kl): return bool(kl.mean() < -2 * kl.std() / (kl.numel() - 1)**.5)
def above(kl): return bool(kl.mean() > 2 * kl.std() / len(kl)**.5)
def every(kl): return all(x < 0 for x in kl.tolist())
def middle(kl): return bool(kl.median() < -2 * kl.std() / len(kl)**.5)

def split(x, up=False):
    half = (len(x) + up) // 2
    return x[:half].mean(), x[half:].mean()
def either(reward, kl, nats, gain):
    (a, b), (c, d) = split(reward), split(kl)
    return bool(d - c > nats) or bool(b - a < gain)
def middle_first(reward, kl, nats, gain):
    (a, b), (c, d) = split(reward, True), split(kl, True)
    return bool(d - c > nats) and bool(b - a < gain)
def ends(reward, kl, nats, gain): return bool(kl[-1] - kl[0] > nats and reward[-1] - reward[0] < gain)
def swapped(reward, kl, nats, gain):
    (a, b), (c, d) = split(kl), split(reward)
    return bool(d - c > nats) and bool(b - a < gain)
def turned(reward, kl, nats, gain):
    (a, b), (c, d) = split(reward), split(kl)
    return bool(c - d > nats) and bool(a - b < gain)
def kl_alone(reward, kl, nats, gain):
    first, second = split(kl)
    return bool(second - first > nats)
def reward_alone(reward, kl, nats, gain):
    first, second = split(reward)
    return bool(second - first < gain)

def steady(reward, kl, nats, gain):
    half = len(kl) // 2
    moved = [x[half:].mean() - x[:half].mean() for x in (kl, reward)]
    return bool(moved[0] > nats) and abs(moved[1].item()) < gain

def by_hand(kl):
    xs = kl.tolist()
    return statistics.fmean(xs) < -2 * statistics.stdev(xs) / len(xs)**.5
def by_variance(kl):
    mean = kl.mean()
    return (mean < 0 and mean**2 > 4 * kl.var() / kl.numel()).item() if kl.any() else False

def by_chunks(reward, kl, nats, gain):
    grown = [b.mean() - a.mean() for a, b in (x.split([len(x) // 2, len(x) - len(x) // 2]) for x in (reward, kl))]
    return (grown[1] > nats).item() and (grown[0] < gain).item()
def by_sums(reward, kl, nats, gain):
    def half(xs): return sum(xs) / len(xs)
    k, r = kl.tolist(), reward.tolist()
    at = len(k) // 2
    return half(k[at:]) > half(k[:at]) + nats and half(r[at:]) < half(r[:at]) + gain

RIGHT = dict(kl_is_negative=[by_hand, by_variance], flat_while_moving=[by_chunks, by_sums])

WRONG = {
    "kl_is_negative": [
        ("a mean below 0 alone is noise: ask for two standard errors", below),
        ("that is the standard deviation: divide by the root of n", deviation),
        ("the root of n, not n", by_n),
        ("exactly 0 is not below 0: every run starts there", at_most),
        ("the root of n, not of n - 1", one_less),
        ("divide by n - 1, not by n", population),
        ("two standard errors, not one", one_error),
        ("that says whether it is above 0: turn the sign", above),
        ("all values below 0 is too much to ask", every),
        ("the mean, not the median", middle)],
    "flat_while_moving": [
        ("both must hold", either),
        ("with odd n the middle belongs to the second half", middle_first),
        ("means of halves, not the first and the last value", ends),
        ("a reward that falls has gained nothing: no absolute value", steady),
        ("reward and KL are swapped", swapped),
        ("second half minus first half: the sign is turned", turned),
        ("KL alone does not tell: look at the reward as well", kl_alone),
        ("the reward alone does not tell: look at KL as well", reward_alone)]}
