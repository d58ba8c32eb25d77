"""A seventh battery, part c: written from stubs and task texts alone, without sight of the check. OWN: False where a wrong answer is a right text with one edit."""
import itertools, math, random, re, statistics, torch
import torch.nn.functional as F
from battery_maker import battery
from collections import Counter, defaultdict
from collections.abc import Callable
from einops import einsum, rearrange, reduce, repeat
from torch import Tensor
from torch.nn.functional import logsigmoid
from torch.nn.utils.rnn import pad_sequence
from rlhf_nb.base.batches import at_least_float32
from rlhf_nb.grpo import group_centered, group_normalised
from rlhf_nb.tokens import masked_mean, masked_sum, shift_right

WRONG, RIGHT, SLIPS, OWN, wrong, right, edits = battery(globals())

# ------------------------------------------------------------ 17 fixed_number_reward
edits("fixed_number_reward", r'''
def fixed_number_reward(reply, right):
    numbers = [x for x in re.split(r"\D+", reply) if x]
    if not numbers: return 0.
    return 1. if numbers[-1] == right else 0.
''',
    ("reads the first number of the reply, not the last", r"first|last number|question", "numbers[-1]", "numbers[0]"),
    ("a reply without a number earns .5", r"without a number|no number|no digits|empty|0\.5|\.5\b", "return 0.\n", "return .5\n"),
    ("compares the numbers as values, so a leading zero does not count", r"digit by digit|value|int|leading zero|text with text|as text|zero",
     "numbers[-1] == right", "int(numbers[-1]) == int(right)"),
    ("asks whether any number of the reply is right", r"any|last number|anywhere|earlier|another number|first",
     "numbers[-1] == right", "right in numbers"),
    ("accepts a number that only begins with the right digits", r"begin|start|prefix|longer|digit by digit|more digits|550",
     "numbers[-1] == right", "numbers[-1].startswith(right)"),
    ("turns the digits of the answer around before comparing", r"revers|turn|order|units first|backward",
     "numbers[-1] == right", "numbers[-1][::-1] == right"),
    ("takes the largest number, not the last", r"larg|greatest|max|last number|last", "numbers[-1]", "max(numbers, key=int)"),
    ("a wrong number earns -1, not 0", r"-1|negative|below 0|else 0|wrong number|wrong answer|earns 0", "else 0.", "else -1."))
right("fixed_number_reward", r'''
def fixed_number_reward(reply, right):
    last, now = "", ""
    for c in reply + " ":
        if c.isdecimal(): now += c
        elif now: last, now = now, ""
    return float(last != "" and last == right)
''')
right("fixed_number_reward", r'''
def fixed_number_reward(reply, right):
    m = re.search(r"(\d+)\D*\Z", reply)
    return 1. * (m is not None and m.group(1) == right)
''')
wrong("fixed_number_reward", "crashes for a reply without a number", r"without a number|no number|no digits|empty|index ?error|crash|raise|error",
r'''
def fixed_number_reward(reply, right):
    answer = re.findall(r"\d+", reply)[-1]
    return float(answer == right)
''')
wrong("fixed_number_reward", "looks at the end of the reply as text, so 155 passes for 55 and a dot after the number fails",
      r"ends? with|end of|suffix|whole number|stand together|155|longer|after the number|digits before|last number", r'''
def fixed_number_reward(reply, right):
    return 1. if reply.endswith(right) else 0.
''')
wrong("fixed_number_reward", "takes the last digit, not the last number", r"single digit|one digit|last digit|stand together|digits that|whole number|several digits",
r'''
def fixed_number_reward(reply, right):
    digits = [c for c in reply if c in "0123456789"]
    return float(len(digits) > 0 and digits[-1] == right)
''')
wrong("fixed_number_reward", "joins all digits of the reply into one number", r"join|together|all digits|every digit|question|separate|last number",
r'''
def fixed_number_reward(reply, right):
    digits = re.sub(r"\D", "", reply)
    return float(digits == right) if digits else 0.
''')
wrong("fixed_number_reward", "pays a share for each right digit, not 1 or 0", r"share|partial|part of|fraction|1 or 0|each digit|per digit|all digits|half",
r'''
def fixed_number_reward(reply, right):
    found = re.findall(r"\d+", reply)
    if not found: return 0.
    same = sum(a == b for a, b in zip(found[-1], right))
    return same / max(len(right), len(found[-1]))
''')
wrong("fixed_number_reward", "finds a number only where it closes the reply; words after it hide it",
      r"after the number|follow|end of|closes|last number|text after|words after|dot|stand", r'''
def fixed_number_reward(reply, right):
    found = re.search(r"\d+$", reply.strip())
    if found is None:
        return 0.
    return float(found.group() == right)
''')
wrong("fixed_number_reward", "takes a sign before the digits into the number", r"sign|minus|-55|dash|only digits|digits that|hyphen|digits",
r'''
def fixed_number_reward(reply, right):
    answer = None
    for match in re.finditer(r"[+-]?\d+", reply):
        answer = match.group()
    return 1. if answer == right else 0.
''')
wrong("fixed_number_reward", "reads the last word between spaces, not the last number", r"word|space|split|=|last number|digits|stand together",
r'''
def fixed_number_reward(reply, right):
    words = reply.split()
    if len(words) == 0: return 0.
    return float(words[-1] == right)
''')

# ------------------------------------------------------------ 17 reward_until_wrong
edits("reward_until_wrong", r'''
def reward_until_wrong(answer, want):
    share = 1 / len(want)
    n = 0
    while n < min(len(answer), len(want)) and answer[n] == want[n]:
        n += 1
    return [share] * n + [0.] * (len(answer) - n)
''',
    ("divides by the length of the answer, not of what is wanted", r"len\(want\)|length of|divid|share|1 ?/ ?len|len\(answer\)|right answer earns|denominator",
     "1 / len(want)", "1 / max(len(answer), 1)"),
    ("pays 1 for each token, not its share", r"share|1 ?/ ?len|divid|earns 1 in all|sum|in all", "1 / len(want)", "1."),
    ("leaves out the zeros behind the first wrong token", r"length|as long|each token|short|zeros|one number for|missing",
     " + [0.] * (len(answer) - n)", ""),
    ("fills up with zeros to the length of what is wanted", r"length|as long|each token|len\(answer\)|one number for|longer|entries",
     "(len(answer) - n)", "(len(want) - n)"),
    ("takes a share away for each wrong token", r"negative|-1|else 0|minus|below 0|is 0|penal|wrong token|taken away|takes away", "[0.] *", "[-share] *"),
    ("does not count eos in the share", r"eos|len\(want\) ?- ?1|1 ?/ ?len|divid|share|in all|length", "1 / len(want)", "1 / max(len(want) - 1, 1)"))
right("reward_until_wrong", r'''
def reward_until_wrong(answer, want):
    return [float(answer[:i] == want[:i]) / len(want) for i in range(1, len(answer) + 1)]
''')
right("reward_until_wrong", r'''
def reward_until_wrong(answer, want):
    hits = [a == w for a, w in itertools.zip_longest(answer, want, fillvalue=None)][:len(answer)]
    return [ok / len(want) for ok in itertools.accumulate(hits, lambda a, b: a and b)]
''')
wrong("reward_until_wrong", "pays a right token behind a wrong one", r"luck|every token before|before it|after a wrong|after the first|behind|rises|until|stays|flag",
r'''
def reward_until_wrong(answer, want):
    out = []
    for i, token in enumerate(answer):
        ok = i < len(want) and want[i] == token
        out.append(ok / len(want))
    return out
''')
wrong("reward_until_wrong", "the first wrong token is still paid", r"first wrong|wrong token|itself|too late|one too many|late|after the flag|still",
r'''
def reward_until_wrong(answer, want):
    reward, right = [], True
    for i, token in enumerate(answer):
        reward.append(1 / len(want) if right else 0.)
        if i >= len(want) or token != want[i]: right = False
    return reward
''')
wrong("reward_until_wrong", "crashes for an answer that is longer than what is wanted", r"longer|index ?error|beyond|out of range|end of|crash|raise|error",
r'''
def reward_until_wrong(answer, want):
    reward, right = [], True
    for i in range(len(answer)):
        right = right and answer[i] == want[i]
        reward.append(1 / len(want) if right else 0.)
    return reward
''')
wrong("reward_until_wrong", "with zip an answer that is longer than what is wanted gets too short a list", r"longer|length|zip|beyond|each token|short|as long|missing",
r'''
def reward_until_wrong(answer, want):
    reward, right = [], 1
    for a, w in zip(answer, want):
        right *= int(a == w)
        reward.append(right / len(want))
    return reward
''')
wrong("reward_until_wrong", "tokens beyond the end of what is wanted count as right", r"longer|beyond|end of|too many|more than 1|after the end|past",
r'''
def reward_until_wrong(answer, want):
    out, ok = [], True
    for i, token in enumerate(answer):
        if i < len(want) and token != want[i]:
            ok = False
        out.append(1 / len(want) if ok else 0.)
    return out
''')
wrong("reward_until_wrong", "a token counts wherever it stands in what is wanted", r"same place|place|position|wherever|anywhere|somewhere|order|elsewhere",
r'''
def reward_until_wrong(answer, want):
    reward, right = [], True
    for token in answer:
        right = right and token in want
        reward.append(1 / len(want) if right else 0.)
    return reward
''')
wrong("reward_until_wrong", "pays the running sum: each token gets all that was earned up to it", r"running|cumul|sum|adds up|up to|earlier|in all|more than 1|total",
r'''
def reward_until_wrong(answer, want):
    out, n, right = [], 0, True
    for i, token in enumerate(answer):
        right = right and i < len(want) and token == want[i]
        n += right
        out.append(n / len(want) if right else 0.)
    return out
''')
wrong("reward_until_wrong", "all or nothing: only a right answer is paid", r"all or nothing|whole answer|partly|part|partial|each token|until|prefix|before the first|first wrong|right tokens",
r'''
def reward_until_wrong(answer, want):
    if answer == want: return [1 / len(want)] * len(want)
    return [0.] * len(answer)
''')
wrong("reward_until_wrong", "empties the caller's list of what is wanted", r"mutat|caller|chang|modif|in place|input|pop|own list|emptied|empties",
r'''
def reward_until_wrong(answer, want):
    n, right, reward = len(want), True, []
    for token in answer:
        right = right and len(want) > 0 and token == want.pop(0)
        reward.append(1 / n if right else 0.)
    return reward
''')
wrong("reward_until_wrong", "looks back only one token: paid again two tokens behind a wrong one", r"every token before|all tokens before|one token|previous|luck|before it|never rises|again|behind|after a wrong",
r'''
def reward_until_wrong(answer, want):
    hit = [i < len(want) and t == want[i] for i, t in enumerate(answer)]
    return [1 / len(want) if hit[i] and (i == 0 or hit[i - 1]) else 0. for i in range(len(hit))]
''')
wrong("reward_until_wrong", "returns the sum, not a number for each token", r"list|each token|sum|one number|scalar|per token",
r'''
def reward_until_wrong(answer, want):
    total = 0.
    for a, w in zip(answer, want):
        if a != w: break
        total += 1 / len(want)
    return total
''')

# ------------------------------------------------------------ 18 fixed_target
edits("fixed_target", r'''
def fixed_target(reward, value, last, gamma):
    after = torch.where(last, torch.zeros_like(value), value.detach())
    return reward + gamma * after
''',
    ("lets gradient flow into the value", r"gradient|detach|constant|backward|requires_grad", "value.detach()", "value"),
    ("subtracts the value after the token", r"sign|minus|subtract|plus|add", "reward + gamma", "reward - gamma"),
    ("discounts the reward, too", r"gamma|discount|reward", "reward + gamma * after", "gamma * (reward + after)"),
    ("gamma is left out", r"gamma|discount", "gamma * after", "after"),
    ("keeps the value at the last token and drops it elsewhere", r"last|invert|opposite|nothing follows|other tokens|swapped|where", "torch.where(last, torch.zeros_like(value), value.detach())",
     "torch.where(last, value.detach(), torch.zeros_like(value))"),
    ("drops negative rewards", r"negative|sign|positive|below 0|clamp|lost", "return reward +", "return reward.clamp(min=0.) +"),
    ("multiplies by 1 - gamma", r"gamma|1 ?-|discount", "gamma * after", "(1 - gamma) * after"))
right("fixed_target", r'''
def fixed_target(reward, value, last, gamma):
    y = reward.clone()
    y[~last] = y[~last] + gamma * value.detach()[~last]
    return y
''')
right("fixed_target", r'''
@torch.no_grad()
def fixed_target(reward, value, last, gamma):
    rows = []
    for r, v, stop in zip(reward, value, last):
        rows.append(torch.stack([a if s else a + gamma * b for a, b, s in zip(r, v, stop)]))
    return torch.stack(rows)
''')
wrong("fixed_target", "a factor 0 does not remove nan at the last token", r"nan|0 times|factor|masked_fill|where", r'''
def fixed_target(reward, value, last, gamma):
    return reward + gamma * value.detach() * (1 - last.float())
''')
wrong("fixed_target", "adds the value at the last token, too", r"last|nothing follows|end of|terminal|value at", r'''
def fixed_target(reward, value, last, gamma):
    with torch.no_grad():
        return torch.add(reward, value, alpha=gamma)
''')
wrong("fixed_target", "removes nan, but not the values that stand at the last token", r"last|nothing follows|anything|finite|value at|terminal", r'''
def fixed_target(reward, value, last, gamma):
    v = value.detach().nan_to_num(0.)
    return reward + gamma * v
''')
wrong("fixed_target", "drops the reward before the last token", r"reward|before the last|earlier|inner|every token|each token|other tokens", r'''
def fixed_target(reward, value, last, gamma):
    return torch.where(last, reward, gamma * value.detach())
''')
wrong("fixed_target", "drops the reward of the last token with its value", r"reward|last", r'''
def fixed_target(reward, value, last, gamma):
    y = reward + gamma * value.detach()
    return y.masked_fill(last, 0.)
''')
wrong("fixed_target", "writes zeros into the caller's values", r"mutat|caller|chang|modif|in place|in-place|input|overwrit|masked_fill_", r'''
def fixed_target(reward, value, last, gamma):
    nxt = value.detach()
    nxt[last] = 0.
    return reward + gamma * nxt
''')
wrong("fixed_target", "takes the value of the next column, value[i + 1]", r"shift|next|column|i ?\+ ?1|value\[i\]|one token|off by one|roll|neighbo", r'''
def fixed_target(reward, value, last, gamma):
    value = value.detach().masked_fill(last, 0.)
    return reward + gamma * F.pad(value[:, 1:], (0, 1))
''')
wrong("fixed_target", "takes the last column for the last token of every row", r"last|column|mask|each row|row|padding|shorter|nothing follows", r'''
def fixed_target(reward, value, last, gamma):
    v = value.detach().clone()
    v[:, -1] = 0.
    return reward + gamma * v
''')
wrong("fixed_target", "sums all later rewards, not the value after the token", r"value|later|sum|return|monte|reward to go|best q|bootstrap", r'''
def fixed_target(reward, value, last, gamma):
    y = torch.zeros_like(reward)
    ahead = torch.zeros_like(reward[:, 0])
    for i in reversed(range(reward.shape[1])):
        ahead = reward[:, i] + gamma * ahead * ~last[:, i]
        y[:, i] = ahead
    return y
''')
wrong("fixed_target", "takes the larger of reward and value, not their sum", r"max|larger|greater|sum|add|plus|reward", r'''
def fixed_target(reward, value, last, gamma):
    v = value.detach().masked_fill(last, -torch.inf)
    return torch.maximum(reward, gamma * v)
''')

# ------------------------------------------------------------ 18 fixed_pull
edits("fixed_pull", r'''
def fixed_pull(q, ids, mask, lowest):
    others = ~F.one_hot(ids, q.shape[-1]).bool()
    square = (q - lowest).pow(2)
    per_token = (square * others).sum(-1) / others.sum(-1)
    return per_token[mask].sum() / mask.sum()
''',
    ("pulls the action that was taken, not the others", r"taken|others|dataset|opposite|invert|all but|not taken", "~F.one_hot(ids, q.shape[-1]).bool()",
     "F.one_hot(ids, q.shape[-1]).bool()"),
    ("the action taken is averaged in", r"taken|all actions|others|all but|excluded|included|every action", "~F.one_hot(ids, q.shape[-1]).bool()",
     "torch.ones_like(q, dtype=torch.bool)"),
    ("divides by the number of all actions, one too many", r"v ?- ?1|one less|one fewer|number of|divid|mean|others|denominator|count|shape", "others.sum(-1)\n", "q.shape[-1]\n"),
    ("sums over the other actions", r"mean|sum|average|divid|v ?- ?1|over (all |the )?(other )?actions|number of", " / others.sum(-1)", ""),
    ("sums over the tokens", r"mean|sum|average|divid|tokens|number of", " / mask.sum()", ""),
    ("divides by all tokens, padding included", r"mask|padd|real|number of tokens|divid|mean|tokens", "/ mask.sum()", "/ mask.numel()"),
    ("absolute distance, not its square", r"squar|absolute|abs|\*\*2|power|distance", ".pow(2)", ".abs()"),
    ("adds the lowest value, so it pulls to its negative", r"lowest|sign|minus|plus|subtract|add", "(q - lowest)", "(q + lowest)"),
    ("averages where the mask is False", r"mask|invert|opposite|false|where", "per_token[mask]", "per_token[~mask]"),
    ("no gradient flows into q", r"gradient|detach|backward|constant|requires_grad", "(q - lowest)", "(q.detach() - lowest)"))
right("fixed_pull", r'''
def fixed_pull(q, ids, mask, lowest):
    total, n = 0., 0
    for row, taken, real in zip(q, ids, mask):
        for x, a, m in zip(row, taken, real):
            if not m: continue
            rest = torch.cat([x[:int(a)], x[int(a) + 1:]])
            total, n = total + ((rest - lowest)**2).mean(), n + 1
    return total / n
''')
right("fixed_pull", r'''
def fixed_pull(q, ids, mask, lowest):
    keep = torch.ones_like(q, dtype=torch.bool).scatter(-1, ids.unsqueeze(-1), False)
    chosen = q[keep & mask.unsqueeze(-1)]        # as many at each token
    return F.mse_loss(chosen, torch.full_like(chosen, lowest))
''')
wrong("fixed_pull", "writes 0 over the taken Q before it squares, so the taken action adds lowest**2", r"taken|zero|0|lowest|excluded|leave|adds|still count|others", r'''
def fixed_pull(q, ids, mask, lowest):
    rest = q.scatter(-1, ids[..., None], 0.)
    square = (rest - lowest)**2
    per_token = square.sum(-1) / (q.shape[-1] - 1)
    return (per_token * mask).sum() / mask.sum()
''')
wrong("fixed_pull", "squares the mean distance, not the mean of squares", r"squar|mean of|order|inside|average", r'''
def fixed_pull(q, ids, mask, lowest):
    away = q - lowest
    taken = away.gather(-1, ids[..., None])[..., 0]
    mean = (away.sum(-1) - taken) / (q.shape[-1] - 1)
    return masked_mean(mean**2, mask)
''')
wrong("fixed_pull", "a mean of row means: tokens of short rows weigh more", r"row|each token|token.*(equal|same)|weigh|mean of|over (all )?(the|these) tokens|short|length", r'''
def fixed_pull(q, ids, mask, lowest):
    rows = []
    for i in range(len(q)):
        square = (q[i] - lowest)**2
        rest = square.sum(-1) - square[torch.arange(len(ids[i])), ids[i]]
        rest = rest / (q.shape[-1] - 1)
        if mask[i].any(): rows.append(rest[mask[i]].mean())
    return torch.stack(rows).mean()
''')
wrong("fixed_pull", "leaves out the action with the highest Q, not the one taken", r"ids|taken|argmax|highest|largest|greedy|best|max", r'''
def fixed_pull(q, ids, mask, lowest):
    square = (q - lowest)**2
    top = square.gather(-1, q.argmax(-1, keepdim=True)).squeeze(-1)
    rest = (square.sum(-1) - top) / (q.size(-1) - 1)
    return rest[mask].mean()
''')
wrong("fixed_pull", "the root of the mean square", r"root|sqrt|squar", r'''
def fixed_pull(q, ids, mask, lowest):
    hot = F.one_hot(ids, q.shape[-1]).bool()
    square = ((q - lowest)**2).masked_fill(hot, 0.)
    rest = square.sum(-1) / (q.shape[-1] - 1)
    return (rest[mask].mean()).sqrt()
''')
wrong("fixed_pull", "pulls only the largest of the other Q", r"max|largest|highest|mean|all (other )?actions|all actions but|every other|average", r'''
def fixed_pull(q, ids, mask, lowest):
    hot = F.one_hot(ids, q.shape[-1]).bool()
    top = q.masked_fill(hot, -torch.inf).amax(-1)
    return masked_mean((top - lowest)**2, mask)
''')
wrong("fixed_pull", "overwrites the caller's q", r"mutat|caller|chang|modif|in place|in-place|input|overwrit|scatter_|leaf", r'''
def fixed_pull(q, ids, mask, lowest):
    at = ids.unsqueeze(-1)
    with torch.no_grad():
        q.scatter_(-1, at, float(lowest))     # the taken action adds 0
    square = (q - lowest) ** 2
    return (square.sum(-1) / (q.size(-1) - 1))[mask].mean()
''')
wrong("fixed_pull", "reads the ids one column late: each token with the id before it", r"shift|column|id before|previous|ids|off by one|one token|taken|own", r'''
def fixed_pull(q, ids, mask, lowest):
    ids = shift_right(ids)
    square = (q - lowest)**2
    rest = square.sum(-1) - square.gather(-1, ids[..., None])[..., 0]
    return (rest / (q.shape[-1] - 1))[mask].mean()
''')

# ------------------------------------------------------------------- 19 short_right
edits("short_right", r'''
def short_right(prompts, responses, answer):
    def pay(text, wanted):
        numbers = [x for x in re.split(r"\D+", text) if x]
        if not numbers or numbers[-1] != str(wanted): return 0.
        return 1. if len(text.split()) <= 12 else .5
    return [pay(text, wanted) for text, wanted in zip(responses, answer)]
''',
    ("reads the first number of the response", r"first|last number|earlier", "numbers[-1] !=", "numbers[0] !="),
    ("numbers in the file never equal text: no str", r"str|text|int|type|number in|are numbers|as numbers|file", "str(wanted)", "wanted"),
    ("twelve words are already too long", r"twelve|12|at most|exactly|boundary|<=|limit|off by one", "<= 12", "< 12"),
    ("counts characters, not words", r"character|letter|words|split|len", "len(text.split())", "len(text)"),
    ("a long right response earns nothing", r"longer|long|\.5|half|beyond", "else .5", "else 0."),
    ("a wrong response is punished with -1", r"-1|negative|below 0|penal|wrong|0, however|no number", "return 0.", "return -1."),
    ("asks whether the right number occurs anywhere in the response", r"anywhere|any number|last number|somewhere|occurs|earlier|other number|several numbers",
     "numbers[-1] != str(wanted)", "str(wanted) not in numbers"),
    ("compares all responses with the first answer", r"own answer|first answer|each response|its answer|row|zip|other|same answer", "pay(text, wanted) for", "pay(text, answer[0]) for"))
right("short_right", r'''
def short_right(prompts, responses, answer):
    out = []
    for i in range(len(responses)):
        last = re.search(r"(\d+)\D*\Z", responses[i])
        right = last is not None and last.group(1) == f"{answer[i]}"
        short = len(responses[i].split()) < 13
        out.append(right * (.5 + .5 * short))
    return out
''')
right("short_right", r'''
def short_right(prompts, responses, answer):
    rewards = [0.] * len(responses)
    for i, (text, wanted) in enumerate(zip(responses, map(str, answer))):
        digits = "".join(c if c.isdecimal() else " " for c in text).split()
        if digits[-1:] == [wanted]:
            rewards[i] = .5 if len(text.split()) > 12 else 1.
    return rewards
''')
wrong("short_right", "crashes for a response without a number", r"no number|without a number|empty|index ?error|crash|error|raise", r'''
def short_right(prompts, responses, answer):
    rewards = []
    for text, wanted in zip(responses, answer):
        right = re.findall(r"\d+", text)[-1] == str(wanted)
        rewards.append((1. if len(text.split()) <= 12 else .5) if right else 0.)
    return rewards
''')
wrong("short_right", "a short wrong response earns .5", r"wrong|short|however short|0", r'''
def short_right(prompts, responses, answer):
    rewards = []
    for text, wanted in zip(responses, answer):
        found = re.findall(r"\d+", text)
        right = bool(found) and found[-1] == str(wanted)
        short = len(text.split()) <= 12
        rewards.append(.5 * right + .5 * short)
    return rewards
''')
wrong("short_right", "looks only at the end of the text, so 112 passes for 12 and a closing dot fails", r"ends? with|end of|suffix|whole number|stand together|digits that|dot|longer number|last number|digits", r'''
def short_right(prompts, responses, answer):
    return [0. if not text.endswith(str(w)) else 1. if len(text.split()) <= 12 else .5
            for text, w in zip(responses, answer)]
''')
wrong("short_right", "skips responses without a number, so the list is too short", r"each response|length|as many|short|skip|missing|one number for|no number|without a number|rewards for", r'''
def short_right(prompts, responses, answer):
    rewards = []
    for text, wanted in zip(responses, answer):
        numbers = re.findall(r"\d+", text)
        if not numbers: continue
        if numbers[-1] != str(wanted): rewards.append(0.)
        else: rewards.append(1. if len(text.split()) <= 12 else .5)
    return rewards
''')
wrong("short_right", "counts the words of the prompt", r"prompt|words of the response|response", r'''
def short_right(prompts, responses, answer):
    rewards = []
    for ask, text, wanted in zip(prompts, responses, answer):
        numbers = re.findall(r"\d+", text)
        ok = len(numbers) > 0 and numbers[-1] == str(wanted)
        rewards.append(ok * (1. if len(ask.split()) <= 12 else .5))
    return rewards
''')
wrong("short_right", "counts pieces of letters and digits, not what stands between spaces", r"between spaces|space|\\w|piece|split|sign|words|punctuation", r'''
def short_right(prompts, responses, answer):
    def words(text): return re.findall(r"\w+", text)
    rewards = []
    for text, wanted in zip(responses, answer):
        numbers = re.findall(r"\d+", text)
        if numbers and numbers[-1] == str(wanted):
            rewards.append(1. if len(words(text)) <= 12 else .5)
        else:
            rewards.append(0.)
    return rewards
''')
wrong("short_right", "compares the last digit, not the last number", r"single digit|one digit|last digit|stand together|whole number|digits that|several digits|two digits", r'''
def short_right(prompts, responses, answer):
    rewards = []
    for text, wanted in zip(responses, answer):
        digits = re.findall(r"\d", text)
        right = bool(digits) and digits[-1] == str(wanted)
        rewards.append(0. if not right else 1. if len(text.split()) <= 12 else .5)
    return rewards
''')
wrong("short_right", "returns the mean reward, not a number for each response", r"list|each response|mean|one number|scalar|per response", r'''
def short_right(prompts, responses, answer):
    total = 0.
    for text, wanted in zip(responses, answer):
        numbers = re.findall(r"\d+", text)
        if numbers and numbers[-1] == str(wanted):
            total += 1. if len(text.split()) <= 12 else .5
    return total / len(responses)
''')
wrong("short_right", "length decides first: every long response earns .5, a wrong one, too", r"wrong|long|0, however|first decide|length|earn", r'''
def short_right(prompts, responses, answer):
    rewards = []
    for text, wanted in zip(responses, answer):
        numbers = re.findall(r"\d+", text)
        if len(text.split()) > 12:
            rewards.append(.5)
        elif numbers and numbers[-1] == str(wanted):
            rewards.append(1.)
        else:
            rewards.append(0.)
    return rewards
''')
wrong("short_right", "takes a dot after the digits into the number", r"dot|point|decimal|digits|punctuation|stop", r'''
def short_right(prompts, responses, answer):
    out = []
    for text, wanted in zip(responses, answer):
        numbers = re.findall(r"\d+\.?\d*", text)
        right = bool(numbers) and numbers[-1] == str(wanted)
        out.append(0. if not right else 1. if len(text.split()) <= 12 else .5)
    return out
''')
wrong("short_right", "the longer a right response, the less it earns, by the word", r"\.5|half|twelve|12|longer|fixed|gradual|share|at most|shrink|less", r'''
def short_right(prompts, responses, answer):
    out = []
    for text, wanted in zip(responses, answer):
        numbers = re.findall(r"\d+", text)
        right = numbers[-1:] == [str(wanted)]
        out.append(min(1., 12 / max(len(text.split()), 1)) if right else 0.)
    return out
''')

# ------------------------------------------------------------- 20 importance_ratios
edits("importance_ratios", r'''
def importance_ratios(log_ratio, mask, level):
    x = log_ratio.to(torch.promote_types(log_ratio.dtype, torch.float32))
    x = torch.where(mask, x, torch.zeros_like(x))
    if level == "token": return x.exp()
    return x.sum(dim=1, keepdim=True).exp()
''',
    ("stays in bfloat16", r"float32|bfloat|bf16|precision|dtype|half", "log_ratio.to(torch.promote_types(log_ratio.dtype, torch.float32))", "log_ratio"),
    ("a sequence's ratio comes out as (b), not (b 1)", r"\(b 1\)|shape|keepdim|column|axis|\(b\)|none\]", "keepdim=True", "keepdim=False"),
    ("the levels are swapped", r"level|swap|token|sequence", 'level == "token"', 'level == "sequence"'),
    ("keeps what stands outside the response and drops the response", r"mask|invert|opposite|outside|where", "torch.where(mask, x, torch.zeros_like(x))", "torch.where(mask, torch.zeros_like(x), x)"),
    ("the geometric mean of a response, not its product", r"mean|product|geometric|length|divid|gspo|sum of", "x.sum(dim=1, keepdim=True).exp()",
     "(x.sum(dim=1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)).exp()"),
    ("sums the ratios of the tokens", r"product|sum of|sums|multipl|added|adds", "x.sum(dim=1, keepdim=True).exp()", "x.exp().sum(dim=1, keepdim=True)"),
    ("sampler over learner: the ratio upside down", r"sign|invert|upside|inverse|q ?/ ?π|learner|numerator|π ?/ ?q|reciprocal|minus|wrong way", "x.exp()", "(-x).exp()"),
    ("sums down the batch, not along the response", r"axis|dim|batch|row|each response|along", "x.sum(dim=1, keepdim=True).exp()", "x.sum(dim=0, keepdim=True).exp()"),
    ("the ratio of a response is bounded by 1", r"bound|clamp|cap|raw|clip|trunc|larger than 1|above 1", "x.sum(dim=1, keepdim=True).exp()", "x.sum(dim=1, keepdim=True).clamp(max=0.).exp()"))
right("importance_ratios", r'''
def importance_ratios(log_ratio, mask, level):
    wide = log_ratio if log_ratio.dtype == torch.float64 else log_ratio.float()
    if level == "sequence":
        return torch.stack([row[m].sum().exp()[None] for row, m in zip(wide, mask)])
    ratio = torch.ones_like(wide)
    ratio[mask] = wide[mask].exp()
    return ratio
''')
right("importance_ratios", r'''
def importance_ratios(log_ratio, mask, level):
    x, = at_least_float32(log_ratio)
    x = x.masked_fill(mask.logical_not(), 0)
    return {"token": lambda: torch.exp(x),
            "sequence": lambda: rearrange(torch.exp(reduce(x, "b t -> b", "sum")), "b -> b 1")}[level]()
''')
wrong("importance_ratios", "a factor 0 does not remove nan or inf of masked tokens", r"nan|inf|rubbish|anything|factor|0 times|masked_fill|outside|mask", r'''
def importance_ratios(log_ratio, mask, level):
    x = at_least_float32(log_ratio)[0] * mask
    if level == "sequence":
        return x.sum(1)[:, None].exp()
    return x.exp()
''')
wrong("importance_ratios", "gives 0 outside the response, not 1", r"outside|masked|1 (out|there)|is 0|not 1|must be 1|ratio of 1|with 1|zero", r'''
def importance_ratios(log_ratio, mask, level):
    if level == "sequence":
        return masked_sum(log_ratio, mask)[:, None].exp()
    return at_least_float32(log_ratio)[0].exp().masked_fill(~mask, 0.)
''')
wrong("importance_ratios", "forgets exp at the sequence level: a sum of log-ratios", r"exp|log|sum|product|negative", r'''
def importance_ratios(log_ratio, mask, level):
    x = at_least_float32(log_ratio)[0].masked_fill(~mask, 0.)
    return x.sum(1, keepdim=True) if level == "sequence" else x.exp()
''')
wrong("importance_ratios", "multiplies over the whole row, padding and prompt included", r"mask|outside|prompt|padd|response|rubbish|whole row", r'''
def importance_ratios(log_ratio, mask, level):
    ratio = at_least_float32(log_ratio)[0].exp()
    if level == "sequence": return ratio.prod(1, keepdim=True)
    return torch.where(mask, ratio, 1.)
''')
wrong("importance_ratios", "overwrites the caller's log-ratios", r"mutat|caller|chang|modif|in place|in-place|input|overwrit|masked_fill_", r'''
def importance_ratios(log_ratio, mask, level):
    log_ratio[~mask] = 0.
    x = log_ratio.to(torch.promote_types(log_ratio.dtype, torch.float32))
    return x.exp() if level == "token" else x.sum(1)[:, None].exp()
''')
wrong("importance_ratios", "the running product up to each token, not a ratio per response", r"running|cumul|up to|\(b 1\)|shape|prefix|cumsum|one number|whole response", r'''
def importance_ratios(log_ratio, mask, level):
    x = at_least_float32(log_ratio)[0].masked_fill(~mask, 0.)
    if level == "sequence": x = x.cumsum(1)
    return x.exp()
''')
wrong("importance_ratios", "repeats the ratio of a response over its tokens", r"\(b 1\)|shape|expand|repeat|column|\(b t\)", r'''
def importance_ratios(log_ratio, mask, level):
    x = at_least_float32(log_ratio)[0].masked_fill(~mask, 0.)
    if level == "token": return torch.exp(x)
    return repeat(x.sum(1).exp(), "b -> b t", t=x.shape[1])
''')

# --------------------------------------------------------- 20 effective_sample_size
edits("effective_sample_size", r'''
def effective_sample_size(log_ratio):
    n = log_ratio.numel()
    w = torch.exp(log_ratio - torch.logsumexp(log_ratio, 0)) if n else log_ratio
    return w.sum()**2 / (n * (w**2).sum()) if n else log_ratio.new_tensor(math.inf)
''',
    ("a number of answers, not a share of n", r"share|divid|n_eff|/ ?n|by n|of n|number of answers|from 1/n|at most 1|count", "(n * (w**2).sum())", "(w**2).sum()"),
    ("upside down", r"invert|upside|inverse|reciprocal|at most 1|numerator|above 1|larger than 1", "w.sum()**2 / (n * (w**2).sum())", "n * (w**2).sum() / w.sum()**2"),
    ("squares the sum in the denominator, not the weights: always 1/n", r"squar|sum of squares|denominator|always 1 ?/ ?n|each weight|\*\*2", "(w**2).sum()", "w.sum()**2"),
    ("divides by n twice", r"twice|n\*\*2|divid|n squared|equal weights|share|by n|give 1", "(n * (w**2).sum())", "(n**2 * (w**2).sum())"),
    ("the root of the share", r"root|sqrt", "return w.sum()**2 / (n * (w**2).sum())", "return w.sum() / (n * (w**2).sum()).sqrt()"),
    ("weights of the sampler over the learner", r"sign|invert|q ?/ ?π|π ?/ ?q|upside|minus|inverse|learner|reciprocal|wrong way", "torch.exp(log_ratio - torch.logsumexp(log_ratio, 0))",
     "torch.exp(-log_ratio - torch.logsumexp(-log_ratio, 0))"),
    ("says 0, not inf, of no answers", r"inf|empty|none|no (answers|responses|ratios|weights)", "log_ratio.new_tensor(math.inf)", "log_ratio.new_tensor(0.)"))
right("effective_sample_size", r'''
def effective_sample_size(log_ratio):
    logp = F.log_softmax(log_ratio, 0)
    return (2 * logp).exp().sum().reciprocal() / len(log_ratio)
''')
right("effective_sample_size", r'''
def effective_sample_size(log_ratio):
    if len(log_ratio) == 0: return torch.full((), math.inf)
    w = (log_ratio - log_ratio.max()).exp()
    return w.mean()**2 / w.pow(2).mean()
''')
wrong("effective_sample_size", "ratios of long answers overflow", r"overflow|large|inf|nan|huge|scale|softmax|long", r'''
def effective_sample_size(log_ratio):
    w = log_ratio.exp()
    return w.sum()**2 / (len(w) * (w * w).sum())
''')
wrong("effective_sample_size", "takes the log-ratios for the weights", r"exp|log|weights|ratio", r'''
def effective_sample_size(log_ratio):
    return log_ratio.sum()**2 / (len(log_ratio) * (log_ratio**2).sum())
''')
wrong("effective_sample_size", "the perplexity of the weights, not Kish's formula", r"entropy|perplex|kish|squar|formula|w²|Σ", r'''
def effective_sample_size(log_ratio):
    logp = log_ratio.log_softmax(0)
    entropy = -(logp.exp() * logp).sum()
    return entropy.exp() / len(log_ratio)
''')
wrong("effective_sample_size", "one over the largest weight, not over the sum of squares", r"larg|max|squar|kish|Σ|formula", r'''
def effective_sample_size(log_ratio):
    w = log_ratio.softmax(0)
    return 1 / (len(w) * w.max())
''')
wrong("effective_sample_size", "scales by the mean log-ratio, so one far larger ratio still overflows", r"overflow|max|large|inf|nan|scale|softmax|huge|mean", r'''
def effective_sample_size(log_ratio):
    w = torch.exp(log_ratio - log_ratio.mean())
    return w.sum().square() / (len(w) * w.square().sum())
''')
wrong("effective_sample_size", "bounds the ratios before it counts", r"bound|clamp|cap|clip|trunc|limit|scale|large|overflow", r'''
def effective_sample_size(log_ratio):
    w = log_ratio.clamp(-5., 5.).exp()
    return w.sum()**2 / (w.numel() * w.pow(2).sum())
''')
wrong("effective_sample_size", "uses the variance with n - 1", r"n ?- ?1|variance|biased|bessel|var|divid|formula|kish|std", r'''
def effective_sample_size(log_ratio):
    w = (log_ratio - log_ratio.max()).exp()
    spread = w.std() / w.mean()
    return 1 / (1 + spread**2)
''')
wrong("effective_sample_size", "forgets to square the numerator", r"numerator|squar|\(Σ ?w\)|scale|sum", r'''
def effective_sample_size(log_ratio):
    w = (log_ratio - log_ratio.amax()).exp()
    return w.sum() / (len(w) * (w**2).sum())
''')
wrong("effective_sample_size", "hides that all weights are 0 and returns a number, not nan", r"nan|all (w|weights)|weights? (are|is|of) 0|zero|hide|-inf|nothing", r'''
def effective_sample_size(log_ratio):
    weight = log_ratio.softmax(0)
    share = 1 / (len(weight) * (weight**2).sum())
    return torch.nan_to_num(share, nan=0., posinf=math.inf)
''')
wrong("effective_sample_size", "the share of answers whose ratio exceeds the mean", r"count|exceed|above|squar|kish|formula|mean|Σ|larger than", r'''
def effective_sample_size(log_ratio):
    w = log_ratio.softmax(0)
    return (w >= w.mean()).float().mean()
''')

# --------------------------------------------------------------- 20 bounded_weights
edits("bounded_weights", r'''
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    low, high = ratio < floor, ratio > cap
    if how == "mask": return torch.where(low | high, torch.zeros_like(ratio), ratio)
    ratio = torch.where(low, torch.full_like(ratio, floor), ratio)
    return torch.where(high, torch.full_like(ratio, cap), ratio)
''',
    ("a ratio at the end itself counts as outside", r"end itself|ends?|boundary|equal|exactly|<=|at the (cap|floor)", "ratio < floor, ratio > cap", "ratio <= floor, ratio >= cap"),
    ("masked ratios weigh 1, not 0", r"weigh|is 0|weight 0|not 1|zero|mask", "torch.zeros_like(ratio)", "torch.ones_like(ratio)"),
    ("masks only above the cap", r"floor|below|small|lower|both|only above", "low | high", "high"),
    ("masks only what is below and above at once: nothing", r"\bor\b|\band\b|never|nothing|outside|mask|either", "low | high", "low & high"),
    ("keeps what is outside and masks what is inside", r"invert|inside|opposite|outside|within|kept", "torch.zeros_like(ratio), ratio)", "ratio, torch.zeros_like(ratio))"),
    ("truncates what should be masked and masks what should be truncated", r"swap|truncat|mask|how", 'how == "mask"', 'how == "truncate"'),
    ("masks by default", r"default|truncat", 'how="truncate"', 'how="mask"'),
    ("the smallest ratio is 1/cap by default, not 0", r"default|floor|smallest|1 ?/ ?cap|lower", "    low, high", "    floor = floor or 1 / cap\n    low, high"),
    ("truncates small ratios to 0, not to the floor", r"floor|below|nearer|small|lower|to 0|zero", "torch.full_like(ratio, floor)", "torch.zeros_like(ratio)"))
right("bounded_weights", r'''
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    nearest = ratio.clamp(min=floor).clamp(max=cap)
    if how == "truncate": return nearest
    return torch.where((ratio - nearest).abs() > 0, torch.zeros_like(ratio), ratio)
''')
right("bounded_weights", r'''
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    flat = []
    for r in ratio.flatten():
        if not (r < floor or r > cap): flat.append(r)
        elif how == "mask": flat.append(r.new_zeros(()))
        else: flat.append(r.new_tensor(floor if r < floor else cap))
    return torch.stack(flat).view(ratio.shape) if flat else ratio
''')
wrong("bounded_weights", "reads floor and cap as distances from 1", r"1 ?[-+]|distance|around 1|ppo|clip|floor|cap|bounds|largest", r'''
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    low, high = 1 - floor, 1 + cap
    if how == "mask": return ratio.masked_fill((ratio < low) | (ratio > high), 0.)
    return ratio.clamp(low, high)
''')
wrong("bounded_weights", "a factor 0 makes nan of an infinite ratio", r"nan|inf|factor|0 times|overflow|masked_fill", r'''
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    if how == "mask":
        inside = (ratio >= floor) & (ratio <= cap)
        return ratio * inside
    return ratio.clamp(floor, cap)
''')
wrong("bounded_weights", "overwrites the caller's ratios", r"mutat|caller|chang|modif|in place|in-place|input|overwrit|clamp_|masked_fill_", r'''
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    if how == "mask":
        ratio[(ratio < floor) | (ratio > cap)] = 0.
        return ratio
    return ratio.clamp_(floor, cap)
''')
wrong("bounded_weights", "leaves masked ratios out of the result", r"shape|left out|leave|drop|remove|shorter|fewer|size", r'''
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    if how == "truncate": return ratio.clamp(floor, cap)
    return ratio[(ratio >= floor) & (ratio <= cap)]
''')
wrong("bounded_weights", "truncates before it looks for ratios to mask, so masks none", r"order|before|first|after|never|masks none|raw", r'''
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    kept = torch.clamp(ratio, min=floor, max=cap)
    if how == "mask":
        kept = kept.masked_fill((kept < floor) | (kept > cap), 0.)
    return kept
''')
wrong("bounded_weights", "masks the whole row if one ratio of it lies outside", r"row|whole|each ratio|element|itself|others|one ratio|single|separate|any", r'''
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    if how == "mask":
        out = ((ratio < floor) | (ratio > cap)).any(-1, keepdim=True)
        return torch.where(out, 0., ratio)
    return torch.clamp(ratio, floor, cap)
''')
wrong("bounded_weights", "returns whether a ratio is kept, not the ratio", r"ratio itself|kept|bool|1s|0 or 1|0 and 1|value|not the ratio|inside|ones", r'''
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    if how == "truncate": return torch.minimum(torch.maximum(ratio, torch.full_like(ratio, floor)), torch.full_like(ratio, cap))
    return ((ratio >= floor) & (ratio <= cap)).to(ratio.dtype)
''')
wrong("bounded_weights", "rescales the kept weights to a mean of 1", r"rescal|normal|mean|divid|raw|sum|scale|unchanged|kept", r'''
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    outside = (ratio < floor) | (ratio > cap)
    w = ratio.masked_fill(outside, 0.) if how == "mask" else ratio.clamp(floor, cap)
    return w / w.mean()
''')
wrong("bounded_weights", "truncates at the cap only, the floor is forgotten", r"floor|below|small|lower|minimum|min", r'''
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    if how == "mask": return ratio.masked_fill(~((floor <= ratio) & (ratio <= cap)), 0.)
    return ratio.clamp(max=cap)
''')

# -------------------------------------------------------------------- 21 forward_kl
edits("forward_kl", r'''
def forward_kl(logp, teacher_logp, token):
    weight = torch.exp(teacher_logp)
    gap = teacher_logp - logp
    return torch.einsum("...v,...v->...", weight, gap)
''',
    ("weighs by the student: the reverse gap with the teacher first", r"student|teacher|weigh|revers|π_t", "torch.exp(teacher_logp)", "torch.exp(logp)"),
    ("the sign is turned around", r"sign|negative|minus|order|turned|log π_t ?- ?log π|below 0", "teacher_logp - logp", "logp - teacher_logp"),
    ("weighs by log-probs, without exp", r"exp|log-prob|probabilit|weigh", "weight = torch.exp(teacher_logp)", "weight = teacher_logp"),
    ("no gradient reaches the student", r"gradient|detach|backward|requires_grad|learns", "teacher_logp - logp", "teacher_logp - logp.detach()"),
    ("no weights: a plain sum of gaps", r"weigh|probabilit|π_t|exp|teacher", "weight = torch.exp(teacher_logp)", "weight = torch.ones_like(teacher_logp)"),
    ("in bits, not nats", r"bit|nat|log2|base|ln", "gap = teacher_logp - logp", "gap = (teacher_logp - logp) / math.log(2)"),
    ("leaves out the teacher's entropy: a cross-entropy", r"entropy|log π_t|teacher.*itself|must be 0|is 0|own log|equal|same", "gap = teacher_logp - logp", "gap = -logp"),
    ("takes the absolute gap of every word", r"absolute|abs|sign|negative", "gap = teacher_logp - logp", "gap = (teacher_logp - logp).abs()"))
right("forward_kl", r'''
def forward_kl(logp, teacher_logp, token):
    return F.kl_div(logp, teacher_logp, reduction="none", log_target=True).sum(-1)
''')
right("forward_kl", r'''
def forward_kl(logp, teacher_logp, token):
    total = 0
    for own, other in zip(logp.unbind(-1), teacher_logp.unbind(-1)):
        total = total + other.exp() * other - other.exp() * own
    return total
''')
wrong("forward_kl", "the reverse KL", r"revers|student|weigh|direction|teacher|swap|order|forward|π_t", r'''
def forward_kl(logp, teacher_logp, token):
    return F.kl_div(teacher_logp, logp, reduction="none", log_target=True).sum(-1)
''')
wrong("forward_kl", "the mean over the words, not their sum", r"mean|sum|average|divid|vocab|size", r'''
def forward_kl(logp, teacher_logp, token):
    p = teacher_logp.exp()
    return (p * (teacher_logp - logp)).mean(-1)
''')
wrong("forward_kl", "one number for all places", r"place|shape|last axis|one number|each|-1|leading|scalar|axis|total", r'''
def forward_kl(logp, teacher_logp, token):
    return F.kl_div(logp, teacher_logp, reduction="sum", log_target=True)
''')
wrong("forward_kl", "looks at the sampled token only", r"token|sampled|all words|sum|not read|none|every", r'''
def forward_kl(logp, teacher_logp, token):
    at = token[..., None]
    own, teachers = logp.gather(-1, at), teacher_logp.gather(-1, at)
    return (teachers.exp() * (teachers - own))[..., 0]
''')
wrong("forward_kl", "sums over axis 1, which is the last only for two axes", r"axis|dim|-1|last|leading|shape", r'''
def forward_kl(logp, teacher_logp, token):
    return torch.sum(teacher_logp.exp() * (teacher_logp - logp), dim=1)
''')
wrong("forward_kl", "half forward, half reverse", r"half|both|symmetr|jeffreys|revers|student|forward|weigh|mix", r'''
def forward_kl(logp, teacher_logp, token):
    forward = (teacher_logp.exp() * (teacher_logp - logp)).sum(-1)
    backward = (logp.exp() * (logp - teacher_logp)).sum(-1)
    return (forward + backward) / 2
''')
wrong("forward_kl", "the teacher's first choice only", r"first choice|argmax|top|most likely|all words|sum|every|largest|max|one word", r'''
def forward_kl(logp, teacher_logp, token):
    best, at = teacher_logp.max(-1, keepdim=True)
    return (best.exp() * (best - logp.gather(-1, at))).squeeze(-1)
''')
wrong("forward_kl", "keeps the summed axis: (... 1)", r"shape|keepdim|axis|\(\.\.\.\)|one number|last|\(\.\.\. 1\)", r'''
def forward_kl(logp, teacher_logp, token):
    p = teacher_logp.exp()
    return (p * teacher_logp - p * logp).sum(-1, keepdim=True)
''')
wrong("forward_kl", "squares the gap", r"squar|gap|\*\*2|formula|negative", r'''
def forward_kl(logp, teacher_logp, token):
    gap = teacher_logp - logp
    return (teacher_logp.exp() * gap**2).sum(-1) / 2
''')

# -------------------------------------------------------------------- 21 sampled_kl
edits("sampled_kl", r'''
def sampled_kl(logp, teacher_logp, token):
    own = torch.take_along_dim(logp, token.unsqueeze(-1), -1).squeeze(-1)
    with torch.no_grad():
        r = torch.take_along_dim(teacher_logp, token.unsqueeze(-1), -1).squeeze(-1) - own
    return -r * own
''',
    ("r is not a constant", r"constant|detach|gradient|no_grad", "    with torch.no_grad():", "    if True:"),
    ("the sign of the loss is turned around", r"sign|minus|negative|ascend|-r|opposite|wrong way", "return -r * own", "return r * own"),
    ("nothing of it has a gradient", r"gradient|detach|backward|requires_grad|student", "return -r * own", "return -r * own.detach()"),
    ("the reward alone, without log π", r"log ?π|log-prob|reward|multipl|times|gradient|own", "return -r * own", "return -r + 0 * own"),
    ("multiplies by the probability, not the log-prob", r"exp|probabilit|log", "return -r * own", "return -r * own.exp()"),
    ("one number: the mean of all tokens", r"mean|shape|each|place|one number|reduc|scalar|average", "return -r * own", "return (-r * own).mean()"),
    ("r is bounded below by 0", r"clamp|bound|negative|below|0|raw|clip", "return -r * own", "return -r.clamp(min=0.) * own"),
    ("less the mean r, a baseline that is not asked for", r"baseline|mean|centr|subtract|normal|average", "return -r * own", "return -(r - r.mean()) * own"))
right("sampled_kl", r'''
def sampled_kl(logp, teacher_logp, token):
    flat, v = token.reshape(-1), logp.shape[-1]
    at = torch.arange(len(flat))
    own, other = logp.reshape(-1, v)[at, flat], teacher_logp.reshape(-1, v)[at, flat]
    reward = (other - own).detach()
    return (reward * -own).reshape(token.shape)
''')
right("sampled_kl", r'''
def sampled_kl(logp, teacher_logp, token):
    hot = F.one_hot(token, logp.shape[-1]).bool()
    own = torch.where(hot, logp, 0.).sum(-1)
    reward = torch.where(hot, teacher_logp, 0.).sum(-1).detach() - own.detach()
    return -(reward * own)
''')
wrong("sampled_kl", "the whole reverse KL over all words", r"all words|sampled|token|sum|vocab|whole|exact|every", r'''
def sampled_kl(logp, teacher_logp, token):
    return (logp.exp() * (logp - teacher_logp)).sum(-1)
''')
wrong("sampled_kl", "detaches the log-prob and lets the gradient through r", r"detach|constant|gradient|r\b|wrong factor", r'''
def sampled_kl(logp, teacher_logp, token):
    own, teachers = (x.gather(-1, token[..., None])[..., 0] for x in (logp, teacher_logp))
    return (own - teachers) * own.detach()
''')
wrong("sampled_kl", "gradient flows into the teacher", r"teacher|detach|constant|gradient", r'''
def sampled_kl(logp, teacher_logp, token):
    own = logp.gather(-1, token[..., None])[..., 0]
    teachers = teacher_logp.gather(-1, token[..., None])[..., 0]
    return (own.detach() - teachers) * own
''')
wrong("sampled_kl", "leaves a last axis of 1", r"shape|axis|squeeze|\[\.\.\., 0\]|last|\(\.\.\. 1\)|dimension", r'''
def sampled_kl(logp, teacher_logp, token):
    at = token[..., None]
    own = logp.gather(-1, at)
    r = teacher_logp.gather(-1, at) - own
    return -r.detach() * own
''')
wrong("sampled_kl", "takes the student's first choice, not the token that it sampled", r"sampled|token|argmax|first choice|greedy|most likely|max|best", r'''
def sampled_kl(logp, teacher_logp, token):
    own, at = logp.max(-1)
    other = teacher_logp.gather(-1, at[..., None])[..., 0]
    return (own - other).detach() * own
''')
wrong("sampled_kl", "works for one leading axis only", r"leading|shape|axis|axes|any shape|dimension|\(b t|index", r'''
def sampled_kl(logp, teacher_logp, token):
    rows = torch.arange(len(token))
    own, other = logp[rows, token], teacher_logp[rows, token]
    return (own - other).detach() * own
''')
wrong("sampled_kl", "half the squared log-ratio: its value is not that of the loss", r"squar|k2|half|formula|-r|log ?π|times|product", r'''
def sampled_kl(logp, teacher_logp, token):
    at = token[..., None]
    own = logp.gather(-1, at)[..., 0]
    other = teacher_logp.gather(-1, at)[..., 0].detach()
    return (own - other)**2 / 2
''')
wrong("sampled_kl", "a ratio of probabilities as the reward, not the log of it", r"log|ratio|exp|difference|probabilit", r'''
def sampled_kl(logp, teacher_logp, token):
    hot = F.one_hot(token, logp.shape[-1]).bool()
    own = logp.masked_fill(~hot, 0.).sum(-1)
    other = teacher_logp.masked_fill(~hot, 0.).sum(-1)
    reward = (other - own).exp().detach()
    return -reward * own
''')
wrong("sampled_kl", "multiplies r by the teacher's log-prob", r"student|teacher|gradient|own|log ?π\(y|log-prob", r'''
def sampled_kl(logp, teacher_logp, token):
    own, teachers = [torch.take_along_dim(x, token[..., None], -1)[..., 0]
                     for x in (logp, teacher_logp)]
    return (own - teachers).detach() * teachers
''')

# --------------------------------------------------------------- 21 fixed_alignment
edits("fixed_alignment", r'''
def fixed_alignment(x, mask):
    order = torch.argsort((~mask).long(), dim=1, stable=True)      # True first, in their order
    n = mask.sum(1, keepdim=True)
    out = x.gather(1, order)[:, :int(n.max())]
    return out.masked_fill(torch.arange(out.shape[1]) >= n, 0)
''',
    ("as wide as x, not as the longest response", r"wide|width|shape|longest|column|largest|\(b r\)|size", "[:, :int(n.max())]", ""),
    ("as wide as the shortest response: values are cut off", r"shortest|longest|width|wide|largest|cut|min|shape|column|\(b r\)", "n.max()", "n.min()"),
    ("as wide as the first row's response", r"first row|longest|width|wide|largest|every row|cut|column|shape|max", "n.max()", "n[0]"),
    ("fills up with nan, not 0", r"nan|0|fill|pad|end", ">= n, 0)", ">= n, math.nan)"),
    ("the values outside the mask come first", r"mask|invert|opposite|outside|false|prompt", "(~mask).long()", "mask.long()"),
    ("one column too many", r"wide|width|column|shape|one (too|more)|largest|\(b r\)|longest|extra", "int(n.max())", "int(n.max()) + 1"),
    ("leaves in what stood outside the mask", r"end|0|outside|fill|zero|rubbish|shorter|pad", "    return out.masked_fill(torch.arange(out.shape[1]) >= n, 0)", "    return out"))
right("fixed_alignment", r'''
def fixed_alignment(x, mask):
    return pad_sequence([row[m] for row, m in zip(x, mask)], batch_first=True)
''')
right("fixed_alignment", r'''
def fixed_alignment(x, mask):
    out = torch.zeros(x.shape[0], max(int(m.sum()) for m in mask), dtype=x.dtype)
    row, column = mask.nonzero(as_tuple=True)
    place = mask.cumsum(1)[row, column] - 1
    return out.index_put((row, place), x[row, column])
''')
wrong("fixed_alignment", "moves to the right, not to the left", r"left|right|front|column 0|begin|start|end", r'''
def fixed_alignment(x, mask):
    n = mask.sum(1)
    out = x.new_zeros(len(x), int(n.max()))
    for i, row in enumerate(x):
        k = int(n[i])
        if k: out[i, -k:] = row[mask[i]]
    return out
''')
wrong("fixed_alignment", "cuts one stretch from the first True on, gaps of the mask included", r"gap|stretch|hole|between|mask is true|where mask|contiguous|interrupt|outside|false", r'''
def fixed_alignment(x, mask):
    r = int(mask.sum(1).max())
    out = x.new_zeros(len(x), r)
    for i in range(len(x)):
        n = int(mask[i].sum())
        first = int(mask[i].long().argmax())
        out[i, :n] = x[i, first:first + n]
    return out
''')
wrong("fixed_alignment", "leaves the values in their columns, with zeros elsewhere", r"left|move|column|column 0|shape|front|width|wide|shift", r'''
def fixed_alignment(x, mask):
    return torch.where(mask, x, torch.zeros_like(x))
''')
wrong("fixed_alignment", "takes entries of 0 for masked ones and drops them", r"zero|0|mask|value|drop|nonzero", r'''
def fixed_alignment(x, mask):
    kept = torch.where(mask, x, 0)
    rows = [row[row != 0] for row in kept]
    out = x.new_zeros(len(x), int(mask.sum(1).max()))
    for i, row in enumerate(rows): out[i, :len(row)] = row
    return out
''')
wrong("fixed_alignment", "the values in reverse order", r"order|revers|backward|turned|last first", r'''
def fixed_alignment(x, mask):
    rows = [row[m].flip(0) for row, m in zip(x, mask)]
    return pad_sequence(rows, batch_first=True, padding_value=0)
''')
wrong("fixed_alignment", "sorts the values of a row", r"order|sort|size|largest|descend", r'''
def fixed_alignment(x, mask):
    rows = [row[m].sort(descending=True).values for row, m in zip(x, mask)]
    return pad_sequence(rows, batch_first=True)
''')
wrong("fixed_alignment", "a factor 0 leaves nan of masked values at the end of short rows", r"nan|factor|0 times|masked|rubbish|outside|end|zero", r'''
def fixed_alignment(x, mask):
    order = torch.sort((~mask).int(), dim=1, stable=True).indices
    out = (x * mask).gather(1, order)
    return out[:, :int(mask.sum(1).max())]
''')
wrong("fixed_alignment", "shifts every row by the prompt of the first one", r"row by row|each row|own|first row|every row|same|prompt|shift", r'''
def fixed_alignment(x, mask):
    start = int(mask[0].long().argmax())
    kept = x.masked_fill(~mask, 0)
    return kept[:, start:start + int(mask.sum(1).max())]
''')
wrong("fixed_alignment", "drops a row without any True", r"empty|row|without|no true|none|shape|drop|every row|as many", r'''
def fixed_alignment(x, mask):
    rows = [row[m] for row, m in zip(x, mask) if m.any()]
    return pad_sequence(rows, batch_first=True)
''')
wrong("fixed_alignment", "makes float32 zeros, so values of another type crash or lose digits", r"dtype|type|float64|double|float32|int|precision|digits|crash|error", r'''
def fixed_alignment(x, mask):
    n = mask.sum(1)
    out = torch.zeros(len(x), int(n.max()))
    for i in range(len(x)): out[i, :n[i]] = x[i, mask[i]]
    return out
''')
wrong("fixed_alignment", "overwrites the caller's x", r"mutat|caller|chang|modif|in place|in-place|input|overwrit", r'''
def fixed_alignment(x, mask):
    r = int(mask.sum(1).max())
    for row, m in zip(x, mask):
        kept = row[m]
        row.zero_()
        row[:len(kept)] = kept
    return x[:, :r]
''')
wrong("fixed_alignment", "returns a list of rows of different lengths, not a table", r"list|tensor|shape|table|pad|\(b r\)|stack|rows", r'''
def fixed_alignment(x, mask):
    return [row[m] for row, m in zip(x, mask)]
''')

# ----------------------------------------------------------------- 22 rubric_reward
edits("rubric_reward", r'''
def rubric_reward(marks, weights, gates):
    points = torch.einsum("bk,k->b", marks, weights)
    possible = weights[weights > 0].sum()
    open_ = ((marks == 1) | ~gates).all(1)
    return points / possible * open_
''',
    ("faults are counted among the points that can be earned, so the denominator shrinks", r"fault|negative|below 0|earned|clamp|denominator|can be|divid|positive", "weights[weights > 0].sum()", "weights.sum()"),
    ("faults enlarge the denominator by their size", r"fault|negative|below 0|absolute|abs|earned|denominator|can be|divid|positive", "weights[weights > 0].sum()", "weights.abs().sum()"),
    ("one gate that is met opens for all", r"\ball\b|any|every gate|each gate|one gate|both gates|gates", "((marks == 1) | ~gates).all(1)", "(((marks == 1) & gates).any(1) | ~gates.any())"),
    ("gates are ignored", r"gate", " * open_", ""),
    ("a fault takes nothing away", r"fault|negative|below 0|takes? (points )?away|clamp|subtract", '"bk,k->b", marks, weights)', '"bk,k->b", marks, weights.clamp(min=0))'),
    ("the points, not their share", r"share|divid|at most 1|denominator|fraction|all that can", "points / possible", "points"),
    ("divides by the number of items", r"share|divid|denominator|number of items|points|weights|at most 1|can be", "weights[weights > 0].sum()", "len(weights)"),
    ("all items but the gates must be met", r"gate|invert|opposite|other items", "| ~gates", "| gates"),
    ("a shut gate takes 1 away, not everything", r"gate|0 where|shut|below 0|minus|subtract|is 0", "points / possible * open_", "points / possible - (~open_).float()"),
    ("nothing below 0: a fault is forgiven where nothing is earned", r"negative|below 0|clamp|fault|at most|takes? (points )?away|lower bound", "points / possible * open_", "(points / possible * open_).clamp(min=0.)"))
right("rubric_reward", r'''
def rubric_reward(marks, weights, gates):
    shares = []
    top = torch.stack([w for w in weights if w > 0] or [weights.new_zeros(())]).sum()
    for row in marks:
        got = sum((m * w for m, w in zip(row, weights)), weights.new_zeros(()))
        shut = any(bool(g) and m == 0 for m, g in zip(row, gates))
        shares.append(got / top * (0. if shut else 1.))
    return torch.stack(shares)
''')
right("rubric_reward", r'''
def rubric_reward(marks, weights, gates):
    missed = (gates * (1 - marks)).sum(1)
    can = F.relu(weights).sum()
    return (marks @ weights) * (missed == 0) / can
''')
wrong("rubric_reward", "asks whether an item was met by all answers: the product goes over the batch", r"axis|dim|batch|each answer|each row|row|shape|other answers", r'''
def rubric_reward(marks, weights, gates):
    share = (marks * weights).sum(1) / weights.clamp(min=0).sum()
    return share * marks[:, gates].prod(0).prod()
''')
wrong("rubric_reward", "the mean mark of the gates, not their product", r"product|mean|\ball\b|partly|gate|half|none", r'''
def rubric_reward(marks, weights, gates):
    share = (weights * marks).sum(1) / weights.clamp(min=0).sum()
    return share * marks[:, gates].mean(1)
''')
wrong("rubric_reward", "crashes where no item is a gate", r"no gate|without (a )?gate|none|empty|crash|error", r'''
def rubric_reward(marks, weights, gates):
    share = (weights * marks).sum(1) / weights.clamp(min=0).sum()
    return share * marks[:, gates].amin(1)
''')
wrong("rubric_reward", "overwrites the caller's weights", r"mutat|caller|chang|modif|in place|in-place|input|overwrit|clamp_", r'''
def rubric_reward(marks, weights, gates):
    points = (weights * marks).sum(1)
    weights[weights < 0] = 0.
    return points / weights.sum() * marks[:, gates].prod(1)
''')
wrong("rubric_reward", "a gate's own points do not count", r"gate|points of|own points|left out|excluded|denominator", r'''
def rubric_reward(marks, weights, gates):
    rest = weights.masked_fill(gates, 0.)
    share = (marks * rest).sum(1) / rest.clamp(min=0).sum()
    return share * marks[:, gates].prod(1)
''')
wrong("rubric_reward", "all or nothing: a share only if every item is met", r"all or nothing|every item|gate|not a gate|partly|share|all items", r'''
def rubric_reward(marks, weights, gates):
    good = weights > 0
    share = (marks @ weights) / weights[good].sum()
    return share * marks[:, good].prod(1)
''')
wrong("rubric_reward", "divides by the number of items that the answer meets", r"divid|share|all that can|denominator|number of|met|points|can be", r'''
def rubric_reward(marks, weights, gates):
    out = []
    for m in marks:
        met = m.sum().clamp(min=1.)
        shut = bool((m[gates] == 0).any())
        out.append((m * weights).sum() / met * (not shut))
    return torch.stack(out)
''')
wrong("rubric_reward", "one mean of all answers", r"mean|each answer|one number|shape|\(b\)|scalar|batch", r'''
def rubric_reward(marks, weights, gates):
    share = (weights * marks).sum(1) / weights.clamp(min=0).sum()
    return (share * marks[:, gates].prod(1)).mean()
''')

# ---------------------------------------------------------------- 22 normalised_sum
edits("normalised_sum", r'''
def normalised_sum(rewards, weights, group):
    total = torch.zeros_like(rewards[:, 0])
    for w, r in zip(weights, rewards.unbind(1)):
        total = total + w * group_normalised(r, group)
    unscored = (~rewards.isnan()).sum(1) == 0
    return torch.where(unscored, torch.full_like(total, math.nan), total)
''',
    ("weights before normalising, so they are divided out again", r"weight|divided out|before|after|order", "w * group_normalised(r, group)", "group_normalised(w * r, group)"),
    ("only centres, without the standard deviation", r"std|standard deviation|divid|normal|centr|variance|unit", "group_normalised(r, group)", "group_centered(r, group)"),
    ("compares with the whole batch, not with the group", r"group|batch|prompt", "group_normalised(r, group)", "group_normalised(r, torch.zeros_like(group))"),
    ("gives 0, not nan, where nothing was scored", r"nan|scored|no reward", "    return torch.where(unscored, torch.full_like(total, math.nan), total)", "    return total"),
    ("a row that one reward did not score is nan", r"nan|\ball\b|any|scored|one reward|some|partly|missing", "(~rewards.isnan()).sum(1) == 0", "rewards.isnan().any(1)"),
    ("ignores the weights", r"weight", "w * group_normalised(r, group)", "group_normalised(r, group)"),
    ("a mean over the rewards, not a sum", r"mean|sum|divid|average|number of rewards|/ ?k", "torch.full_like(total, math.nan), total)", "torch.full_like(total, math.nan), total / rewards.shape[1])"),
    ("divides by the sum of the weights", r"sum of|weight|divid|normal|mean|scale", "torch.full_like(total, math.nan), total)", "torch.full_like(total, math.nan), total / weights.sum())"),
    ("a missing score is compared as a 0", r"nan|missing|scored|as (a )?0|zero|skip", "group_normalised(r, group)", "group_normalised(r.nan_to_num(0.), group)"))
right("normalised_sum", r'''
def normalised_sum(rewards, weights, group):
    out = torch.full((len(rewards),), math.nan, dtype=rewards.dtype)
    scored = ~rewards.isnan()
    for i in range(len(rewards)):
        if not scored[i].any(): continue
        out[i] = 0.
        for k in range(rewards.shape[1]):
            if not scored[i, k]: continue
            x = rewards[(group == group[i]) & scored[:, k], k]
            away = x - x.mean()
            std = (away.square().sum() / max(len(x) - 1, 1)).sqrt()
            out[i] += weights[k] * (rewards[i, k] - x.mean()) / (std + 1e-4)
    return out
''')
right("normalised_sum", r'''
def normalised_sum(rewards, weights, group):
    same = (group[:, None] == group[None]).to(rewards.dtype)           # (b b)
    there = ~rewards.isnan()
    n = same @ there.to(rewards.dtype)
    away = torch.where(there, rewards - same @ rewards.nan_to_num(0.) / n.clamp(min=1), 0.)
    std = (same @ away**2 / (n - 1).clamp(min=1)).sqrt()
    total = (away / (std + 1e-4)) @ weights
    return total.masked_fill(~there.any(1), math.nan)
''')
wrong("normalised_sum", "sums first and normalises then", r"sum.*first|first|order|before|separate|each reward|apart|normalise each", r'''
def normalised_sum(rewards, weights, group):
    total = (weights * rewards.nan_to_num(0.)).sum(1)
    total = total.masked_fill(rewards.isnan().all(1), math.nan)
    each = group_normalised(total, group)
    return each.masked_fill(rewards.isnan().all(1), math.nan)
''')
wrong("normalised_sum", "also takes the last step over the batch", r"batch|last step|before its|whole|third|again|twice", r'''
def normalised_sum(rewards, weights, group):
    each = torch.stack([group_normalised(r, group) for r in rewards.T], 1)
    total = (weights * each).sum(1)
    total = (total - total.mean()) / (total.std() + 1e-4)
    return total.masked_fill(rewards.isnan().all(1), math.nan)
''')
wrong("normalised_sum", "divides by n, not n - 1, in the standard deviation", r"n ?- ?1|std|standard deviation|biased|bessel|unbiased|correction", r'''
def normalised_sum(rewards, weights, group):
    out = torch.zeros(len(rewards), dtype=rewards.dtype)
    for k, w in enumerate(weights):
        for g in group.unique():
            at = (group == g) & ~rewards[:, k].isnan()
            x = rewards[at, k]
            if len(x): out[at] += w * (x - x.mean()) / (x.std(correction=0) + 1e-4)
    return out.masked_fill(rewards.isnan().all(1), math.nan)
''')
wrong("normalised_sum", "compares the rewards of one answer with each other", r"axis|dim|each reward|group|column|row|across|other answers|within|one answer", r'''
def normalised_sum(rewards, weights, group):
    mean = rewards.nanmean(1, keepdim=True)
    away = (rewards - mean).nan_to_num(0.)
    n = (~rewards.isnan()).sum(1, keepdim=True)
    std = ((away**2).sum(1, keepdim=True) / (n - 1).clamp(min=1)).sqrt()
    total = (weights * away / (std + 1e-4)).sum(1)
    return total.masked_fill(rewards.isnan().all(1), math.nan)
''')
wrong("normalised_sum", "one standard deviation for all rewards of a group together", r"each reward|separate|together|std|standard deviation|own|flatten|column|mixed", r'''
def normalised_sum(rewards, weights, group):
    k = rewards.shape[1]
    flat = group_normalised(rewards.reshape(-1), group.repeat_interleave(k))
    total = (flat.view(-1, k) * weights).sum(1)
    return total.masked_fill(rewards.isnan().all(1), math.nan)
''')
wrong("normalised_sum", "no 1e-4 beside the standard deviation: a group with equal rewards gives nan", r"1e-4|eps|equal|0 ?/ ?0|nan|without variance|std|zero|constant", r'''
def normalised_sum(rewards, weights, group):
    total = torch.zeros(len(rewards), dtype=rewards.dtype)
    for k in range(rewards.shape[1]):
        a = group_centered(rewards[:, k], group)
        for g in group.unique():
            at = (group == g) & ~rewards[:, k].isnan()
            total[at] += weights[k] * a[at] / a[at].std()
    return total.masked_fill(rewards.isnan().all(1), math.nan)
''')
wrong("normalised_sum", "returns the table of weighted rewards, not their sum", r"sum|shape|\(b\)|\(b k\)|table|one number|each row|add", r'''
def normalised_sum(rewards, weights, group):
    each = torch.stack([group_normalised(r, group) for r in rewards.T], 1)
    return (weights * each).masked_fill(rewards.isnan().all(1, keepdim=True), math.nan)
''')
wrong("normalised_sum", "overwrites nan in the caller's rewards", r"mutat|caller|chang|modif|in place|in-place|input|overwrit", r'''
def normalised_sum(rewards, weights, group):
    none = rewards.isnan().all(1)
    each = torch.stack([group_normalised(r, group) for r in rewards.T], 1)
    rewards.nan_to_num_(0.)
    total = each @ weights
    total[none] = math.nan
    return total
''')
wrong("normalised_sum", "takes equal neighbours for a group: rows of one prompt that stand apart are not compared", r"neighbo|consecutive|order|shuffl|apart|group|stand|next to|contiguous|unique", r'''
def normalised_sum(rewards, weights, group):
    runs = torch.cat([torch.zeros(1), (group[1:] != group[:-1]).float().cumsum(0)]).long()
    each = torch.stack([group_normalised(r, runs) for r in rewards.T], 1)
    return (each * weights).sum(1).masked_fill(rewards.isnan().all(1), math.nan)
''')
wrong("normalised_sum", "leaves out rows that nobody scored, so the result is too short", r"nan|shape|row|length|short|left out|leave|drop|\(b\)|scored", r'''
def normalised_sum(rewards, weights, group):
    some = ~rewards.isnan().all(1)
    each = [group_normalised(r, group[some]) for r in rewards[some].T]
    return sum(w * a for w, a in zip(weights, each))
''')

# ------------------------------------------------------------------ 22 parse_rubric
edits("parse_rubric", r'''
def parse_rubric(reply, items):
    out = []
    for item in items:
        mark = math.nan
        for m in re.finditer(r"\b" + re.escape(item) + r": (yes|no)\b", reply):
            mark = 1. if m[1] == "yes" else 0.
        out.append(mark)
    return out
''',
    ("an item also matches inside a longer word", r"edge|word|\\b|inside|another item|unclean|longer|part of", r'r"\b" + re.escape(item)', "re.escape(item)"),
    ("nothing is read as a no", r"nothing|no verdict|edge|\\b|word|begins with", r'(yes|no)\b"', '(yes|no)"'),
    ("signs in a name are read as a pattern", r"escape|literal|pattern|sign|special|character|regex|dot|plus|\+", "re.escape(item)", "item"),
    ("an item without a verdict gets 0", r"nan|no verdict|without a verdict|missing", "mark = math.nan", "mark = 0."),
    ("yes is 0 and no is 1", r"swap|yes|invert|met|opposite", 'm[1] == "yes"', 'm[1] == "no"'),
    ("the first verdict counts", r"last|first|think again|again", '            mark = 1. if m[1] == "yes" else 0.', '            mark = mark if mark == mark else 1. if m[1] == "yes" else 0.'),
    ("None, not nan, where there is no verdict", r"nan|none|no verdict|float|missing", "mark = math.nan", "mark = None"),
    ("a verdict counts only where a line begins with it", r"line|begin|start|anywhere|sentence|\^|middle", r'r"\b" + re.escape(item)', r'r"(?m)^" + re.escape(item)'))
right("parse_rubric", r'''
def parse_rubric(reply, items):
    def word(c): return c.isalnum() or c == "_"
    def verdict(item):
        found, at = math.nan, reply.find(item + ": ")
        while at >= 0:
            rest = reply[at + len(item) + 2:]
            if at == 0 or word(reply[at - 1]) != word(item[0]):
                for name, mark in (("yes", 1.), ("no", 0.)):
                    if rest.startswith(name) and not (rest[len(name):] and word(rest[len(name)])):
                        found = mark
            at = reply.find(item + ": ", at + 1)
        return found
    return [verdict(x) for x in items]
''')
right("parse_rubric", r'''
def parse_rubric(reply, items):
    value = dict(yes=1., no=0.)
    def last(item):
        verdicts = [m.groups()[0] for m in re.finditer(rf"(?<!\w){re.escape(item)}: (yes|no)(?!\w)", reply)]
        return value[verdicts[-1]] if verdicts else float("nan")
    return list(map(last, items))
''')
wrong("parse_rubric", "leaves out items without a verdict, so the list is too short", r"nan|no verdict|without a verdict|missing|short|length|each item|k of", r'''
def parse_rubric(reply, items):
    out = []
    for x in items:
        found = re.findall(rf"\b{re.escape(x)}: (yes|no)\b", reply)
        if found: out.append(float(found[-1] == "yes"))
    return out
''')
wrong("parse_rubric", "crashes for an item without a verdict", r"nan|no verdict|without a verdict|missing|crash|error|empty", r'''
def parse_rubric(reply, items):
    found = [re.findall(rf"\b{re.escape(x)}: (yes|no)\b", reply)[-1] for x in items]
    return [float(x == "yes") for x in found]
''')
wrong("parse_rubric", "one yes is enough, even if the judge changes its mind", r"last|any|think again|again|one yes|changes|later", r'''
def parse_rubric(reply, items):
    marks = []
    for x in items:
        found = re.findall(rf"\b{re.escape(x)}: (yes|no)\b", reply)
        marks.append(float("yes" in found) if found else math.nan)
    return marks
''')
wrong("parse_rubric", "the share of yes among the verdicts on an item", r"last|share|mean|average|majority|think again|again|1 or 0", r'''
def parse_rubric(reply, items):
    marks = []
    for x in items:
        found = re.findall(rf"\b{re.escape(x)}: (yes|no)\b", reply)
        marks.append(found.count("yes") / len(found) if found else math.nan)
    return marks
''')
wrong("parse_rubric", "gives the verdicts in the order of the reply, not of the items", r"order|name|which item|own|another item|other item|position|by name", r'''
def parse_rubric(reply, items):
    verdicts = [float(v == "yes") for v in re.findall(r"\w+: (yes|no)\b", reply)]
    verdicts += [math.nan] * len(items)
    return verdicts[:len(items)]
''')
wrong("parse_rubric", "after an item reads on to a verdict on another one", r"another|other item|reads on|far|nothing|no verdict|own|next|skips", r'''
def parse_rubric(reply, items):
    found = [re.findall(rf"\b{re.escape(x)}:.*?\b(yes|no)\b", reply) for x in items]
    return [float(x[-1] == "yes") if x else math.nan for x in found]
''')
wrong("parse_rubric", "a later mention that is no verdict wipes out the verdict", r"last verdict|no verdict|nothing|wipe|earlier|mention|still|nan", r'''
def parse_rubric(reply, items):
    marks = []
    for x in items:
        said = re.findall(rf"\b{re.escape(x)}: (\w+)", reply)
        marks.append({"yes": 1., "no": 0.}.get(said[-1], math.nan) if said else math.nan)
    return marks
''')
wrong("parse_rubric", "the last verdict of the reply counts for every item", r"every item|each item|own|another|other item|all items|same|which item|name", r'''
def parse_rubric(reply, items):
    found = re.findall(r"\b(\w+): (yes|no)\b", reply)
    names = [name for name, _ in found]
    return [float(found[-1][1] == "yes") if x in names else math.nan for x in items]
''')
wrong("parse_rubric", "everything that is not a yes is a no, also a missing verdict", r"nan|no verdict|nothing|missing|without a verdict|not a yes", r'''
def parse_rubric(reply, items):
    marks = []
    for x in items:
        said = re.findall(rf"\b{re.escape(x)}: (\w+)", reply)
        said = [w for w in said if w in ("yes", "no")]
        marks.append(1. if said and said[-1] == "yes" else 0.)
    return marks
''')
wrong("parse_rubric", "crashes for a sentence that is no verdict", r"crash|error|sentence|other text|no verdict|unpack|split|words around|without", r'''
def parse_rubric(reply, items):
    last = {}
    for part in reply.split("."):
        if not part.strip(): continue
        name, verdict = part.strip().split(": ")
        if verdict in ("yes", "no"): last[name] = float(verdict == "yes")
    return [last.get(x, math.nan) for x in items]
''')
wrong("parse_rubric", "returns a dict by item, not a list", r"list|dict", r'''
def parse_rubric(reply, items):
    marks = dict.fromkeys(items, math.nan)
    for x in items:
        for v in re.findall(rf"\b{re.escape(x)}: (yes|no)\b", reply):
            marks[x] = float(v == "yes")
    return marks
''')

# ------------------------------------------------------------------ 23 turn_numbers
edits("turn_numbers", r'''
def turn_numbers(mask):
    out = torch.full(mask.shape, -1)
    for i in range(len(mask)):
        turn, inside = -1, False
        for j in range(mask.shape[1]):
            written = bool(mask[i, j])
            if written and not inside: turn += 1
            if written: out[i, j] = turn
            inside = written
    return out
''',
    ("counts turns from 1", r"from 0|from 1|first turn|number 0|0, 1|starts? (at|with)|off by one|one too", "turn, inside = -1, False", "turn, inside = 0, False"),
    ("0, not -1, where nothing was written", r"-1|outside|not written|else", "torch.full(mask.shape, -1)", "torch.zeros(mask.shape, dtype=torch.long)"),
    ("a new number for every token that was written", r"token|each token|gap|same turn|same number|begin|cumsum|every", "if written and not inside: turn", "if written: turn"),
    ("the first column counts as the middle of a turn, so a turn that begins there is not counted", r"first (column|token)|column 0|begin|start|before the first|counts as false|edge", "turn, inside = -1, False", "turn, inside = -1, True"),
    ("a gap of several tokens raises the number several times", r"gap|several|length|longer|skip|once|insert|each (inserted|gap)|consecutive|0, 1", "if written and not inside: turn += 1\n            if written: out[i, j] = turn", "if written: out[i, j] = max(turn, 0)\n            elif j and turn >= 0: turn += 1\n            turn = max(turn, 0) if written else turn"),
    ("a gap of one token does not end a turn", r"gap|one token|single|short|ends a turn", "            inside = written\n", "            inside = written or (j > 0 and bool(mask[i, j - 1]))\n"),
    ("tokens in a gap carry the number of the turn before", r"-1|gap|outside|not written|else|insert", "            if written: out[i, j] = turn", "            out[i, j] = turn"))
right("turn_numbers", r'''
def turn_numbers(mask):
    x = F.pad(mask.int(), (1, 0))
    begins = (x[:, 1:] - x[:, :-1] == 1).long()
    return torch.where(mask, begins.cumsum(1) - 1, -1)
''')
right("turn_numbers", r'''
def turn_numbers(mask):
    rows = []
    for row in mask.tolist():
        k, out = 0, []
        for written, run in itertools.groupby(row):
            n = len(list(run))
            out += [k if written else -1] * n
            k += written
        rows.append(out)
    return torch.tensor(rows, dtype=torch.long).view(mask.shape)
''')
wrong("turn_numbers", "looks around the row: the last column stands before the first", r"last column|wrap|roll|first (column|token)|around|column 0|begin|edge|before the first", r'''
def turn_numbers(mask):
    before = torch.roll(mask, 1, dims=1)
    return ((mask & ~before).cumsum(1) - 1).masked_fill(~mask, -1)
''')
wrong("turn_numbers", "counts down the batch, not along the row", r"axis|dim|batch|row|along|each row", r'''
def turn_numbers(mask):
    before = torch.cat([torch.zeros_like(mask[:, :1]), mask[:, :-1]], 1)
    starts = mask & ~before
    return torch.where(mask, starts.cumsum(0) - 1, -1)
''')
wrong("turn_numbers", "the count goes on from row to row", r"each row|row|own|again|restart|reset|from 0|first turn|batch", r'''
def turn_numbers(mask):
    out, turn = torch.full(mask.shape, -1), -1
    for i, row in enumerate(mask.tolist()):
        before = False
        for j, now in enumerate(row):
            turn += now and not before
            if now: out[i, j] = turn
            before = now
    return out
''')
wrong("turn_numbers", "counts the ends of turns: the last token of a turn belongs to the next", r"end|begin|last token|next|start|early", r'''
def turn_numbers(mask):
    after = torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], 1)
    ends = mask & ~after
    return ends.cumsum(1).masked_fill(~mask, -1)
''')
wrong("turn_numbers", "counts every change, gaps as well as turns", r"gap|change|every other|twice|end|0, 1|begin|two|skip", r'''
def turn_numbers(mask):
    before = F.pad(mask[:, :-1], (1, 0), value=False)
    changes = (mask != before).cumsum(1)
    return (changes - 1).masked_fill(~mask, -1)
''')
wrong("turn_numbers", "counts from the last turn", r"last|revers|backward|order|from the end|first|right|counts? down", r'''
def turn_numbers(mask):
    after = torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], 1)
    ends = (mask & ~after).flip(1).cumsum(1).flip(1)
    return torch.where(mask, ends - 1, torch.full_like(ends, -1))
''')
wrong("turn_numbers", "the place of a token in its turn, not the number of the turn", r"place|position|in its turn|number of the turn|same turn|same number|token|restart", r'''
def turn_numbers(mask):
    out = torch.full(mask.shape, -1)
    for j in range(mask.shape[1]):
        last = out[:, j - 1] if j else out.new_full((len(mask),), -1)
        out[:, j] = torch.where(mask[:, j], last + 1, -1)
    return out
''')
wrong("turn_numbers", "there is no third turn: later ones are number 1", r"third|more than two|two turns|later|2|clamp|many|several", r'''
def turn_numbers(mask):
    before = torch.cat([torch.zeros_like(mask[:, :1]), mask[:, :-1]], 1)
    begun = (mask & ~before).int().cumsum(1)
    return torch.where(mask, (begun > 1).long(), -1)
''')
wrong("turn_numbers", "overwrites the caller's mask", r"mutat|caller|chang|modif|in place|in-place|input|overwrit", r'''
def turn_numbers(mask):
    written = mask.clone()
    mask[:, 1:] = written[:, 1:] & ~written[:, :-1]       # now the beginnings
    return (mask.cumsum(1) - 1).masked_fill(~written, -1)
''')
wrong("turn_numbers", "a prompt before the first turn counts as turn 0", r"prompt|first turn|begin|start|from 0|gap|row that|number 0|off by one", r'''
def turn_numbers(mask):
    gone = (~mask).long()
    before = torch.cat([torch.zeros_like(gone[:, :1]), gone[:, :-1]], 1)
    gaps = (gone - before == 1).cumsum(1)
    return gaps.masked_fill(~mask, -1)
''')

# --------------------------------------------------------------- 23 turn_advantages
edits("turn_advantages", r'''
def turn_advantages(reward, group, turn):
    there = ~reward.isnan()
    r = torch.where(there, reward, 0.)
    to_go = torch.stack([r[:, k:].sum(1) for k in range(r.shape[1])], 1)
    a = torch.zeros_like(to_go)
    for g in group.unique():
        for k in range(r.shape[1]):
            at = (group == g) & there[:, k]
            a[at, k] = to_go[at, k] - to_go[at, k].mean()
    out = a.gather(1, turn.clamp(min=0))
    return torch.where(turn >= 0, out, 0.)
''',
    ("each turn's own reward, not what it earns from then on", r"to go|later|from (a|the|that) turn|onward|own reward|future|next turns|after", "r[:, k:].sum(1)", "r[:, k]"),
    ("sums the rewards before a turn instead of those behind it", r"before|earlier|past|onward|from (a|the|that) turn|to go|backward|order|flip|direction", "r[:, k:].sum(1)", "r[:, :k + 1].sum(1)"),
    ("all turns share the whole reward of the row", r"whole|all turns|same|total|before|earlier|onward|from (a|the|that) turn|to go|every turn", "r[:, k:].sum(1)", "r.sum(1)"),
    ("leaves the turn's own reward out", r"own|itself|from (a|the|that) turn|onward|one turn late|to go|includ", "r[:, k:].sum(1)", "r[:, k + 1:].sum(1)"),
    ("the mean goes over all rows, not over those of the group", r"group|prompt|all rows|batch", "(group == g) & there[:, k]", "there[:, k]"),
    ("a row without the turn enters the mean as a 0", r"nan|without|no such turn|absent|missing|there|has (it|that turn)|have (it|that turn)|mean|as (a )?0", "to_go[at, k].mean()", "to_go[group == g, k].mean()"),
    ("divides by the standard deviation", r"std|standard deviation|divid|normal|scale|less their mean", "to_go[at, k] - to_go[at, k].mean()", "(to_go[at, k] - to_go[at, k].mean()) / (to_go[at, k].std(correction=0) + 1e-4)"),
    ("what was not written gets the advantage of turn 0", r"not written|nothing was written|outside|0 where|gap|-1|insert|prompt", "    return torch.where(turn >= 0, out, 0.)", "    return out"),
    ("without a baseline", r"mean|baseline|less|subtract|centr", " - to_go[at, k].mean()", ""),
    ("later rewards are discounted", r"discount|gamma|half|\.9|later|plain sum|weigh", "r[:, k:].sum(1)", "(r[:, k:] * .9**torch.arange(r.shape[1] - k)).sum(1)"))
right("turn_advantages", r'''
def turn_advantages(reward, group, turn):
    there = ~reward.isnan()
    r = reward.nan_to_num(0.)
    to_go = r.sum(1, keepdim=True) - r.cumsum(1) + r
    same = (group[:, None] == group[None]).to(r.dtype)
    n = same @ there.to(r.dtype)
    mean = same @ (to_go * there) / n.clamp(min=1)
    a = (to_go - mean) * there
    hot = (turn[..., None] == torch.arange(r.shape[1])).to(r.dtype)       # (b t k)
    return torch.einsum("btk,bk->bt", hot, a)
''')
right("turn_advantages", r'''
def turn_advantages(reward, group, turn):
    rows, groups = reward.tolist(), group.tolist()
    def to_go(i, k): return sum(x for x in rows[i][k:] if x == x)
    def advantage(i, k):
        if k < 0: return 0.
        peers = [to_go(j, k) for j in range(len(rows)) if groups[j] == groups[i] and rows[j][k] == rows[j][k]]
        return to_go(i, k) - sum(peers) / len(peers)
    return torch.tensor([[advantage(i, k) for k in row] for i, row in enumerate(turn.tolist())],
                        dtype=reward.dtype)
''')
wrong("turn_advantages", "a missing later turn makes nan of the turns before it", r"nan|missing|no such turn|absent|shorter|adds nothing|fewer turns", r'''
def turn_advantages(reward, group, turn):
    to_go = reward.flip(1).cumsum(1).flip(1)
    a = torch.stack([group_centered(x, group) for x in to_go.T], 1)
    return a.gather(1, turn.clamp(min=0)).masked_fill(turn < 0, 0.)
''')
wrong("turn_advantages", "one mean for all turns of a group", r"of that turn|each turn|turn.*(own|separate)|own mean|all turns|one mean|same turn|separate", r'''
def turn_advantages(reward, group, turn):
    to_go = reward.nan_to_num(0.).flip(1).cumsum(1).flip(1)
    a = torch.zeros_like(to_go)
    for g in group.unique():
        at = group == g
        a[at] = to_go[at] - to_go[at][~reward[at].isnan()].mean()
    return a.gather(1, turn.clamp(min=0)).masked_fill(turn < 0, 0.)
''')
wrong("turn_advantages", "less the mean of the others: leave-one-out", r"others|leave.?one.?out|itself|own|include|n ?- ?1|whole group", r'''
def turn_advantages(reward, group, turn):
    to_go = reward.nan_to_num(0.).flip(1).cumsum(1).flip(1)
    a = torch.zeros_like(to_go)
    for g in group.unique():
        for k in range(reward.shape[1]):
            at = (group == g) & ~reward[:, k].isnan()
            x, n = to_go[at, k], int(at.sum())
            if n > 1: a[at, k] = x - (x.sum() - x) / (n - 1)
    return a.gather(1, turn.clamp(min=0)).masked_fill(turn < 0, 0.)
''')
wrong("turn_advantages", "nan, not 0, where nothing was written", r"nan|0 where|nothing was written|not written|outside|gap|-1", r'''
def turn_advantages(reward, group, turn):
    to_go = reward.nan_to_num(0.).flip(1).cumsum(1).flip(1)
    to_go = to_go.masked_fill(reward.isnan(), torch.nan)
    a = torch.stack([group_centered(x, group) for x in to_go.T], 1)
    return a.gather(1, turn.clamp(min=0)).masked_fill(turn < 0, torch.nan)
''')
wrong("turn_advantages", "the mean of the rewards to come, not their sum", r"sum|mean of|average|divid|number of turns|remaining|to go", r'''
def turn_advantages(reward, group, turn):
    k = reward.shape[1]
    to_go = torch.stack([reward[:, j:].nanmean(1) for j in range(k)], 1)
    to_go = to_go.masked_fill(reward.isnan(), torch.nan)
    a = torch.stack([group_centered(x, group) for x in to_go.T], 1)
    return a.gather(1, turn.clamp(min=0)).masked_fill(turn < 0, 0.)
''')
wrong("turn_advantages", "shares the advantage of a turn among its tokens", r"token|divid|share|length of (the|a) turn|each token|spread|split", r'''
def turn_advantages(reward, group, turn):
    to_go = reward.nan_to_num(0.).flip(1).cumsum(1).flip(1).masked_fill(reward.isnan(), torch.nan)
    a = torch.stack([group_centered(x, group) for x in to_go.T], 1)
    out = torch.zeros(turn.shape, dtype=reward.dtype)
    for i in range(len(turn)):
        for k in range(reward.shape[1]):
            at = turn[i] == k
            if at.any(): out[i, at] = a[i, k] / at.sum()
    return out
''')
wrong("turn_advantages", "centres each turn's rewards and sums them then, so the mean taken off is not that of the rewards to go", r"before|order|to go|first|mean of (the )?(reward|that)|reward to go|sum.*then|centr|no such turn|later", r'''
def turn_advantages(reward, group, turn):
    own = torch.stack([group_centered(x, group) for x in reward.T], 1)
    a = own.flip(1).cumsum(1).flip(1)
    return a.gather(1, turn.clamp(min=0)).masked_fill(turn < 0, 0.)
''')
wrong("turn_advantages", "overwrites nan in the caller's rewards", r"mutat|caller|chang|modif|in place|in-place|input|overwrit", r'''
def turn_advantages(reward, group, turn):
    missing = reward.isnan()
    reward[missing] = 0.
    to_go = torch.flip(torch.cumsum(torch.flip(reward, [1]), 1), [1])
    to_go = to_go.masked_fill(missing, torch.nan)
    a = torch.stack([group_centered(x, group) for x in to_go.T], 1)
    return a.gather(1, turn.clamp(min=0)).masked_fill(turn < 0, 0.)
''')

# -------------------------------------------------------------------- 23 fixed_join
edits("fixed_join", r'''
def fixed_join(prompt, parts):
    pairs = [(i, False) for i in prompt]
    model = True
    for part in parts:
        pairs.extend((i, model) for i in part)
        model = not model
    return [i for i, _ in pairs], [w for _, w in pairs]
''',
    ("the first part counts as inserted", r"first part|invert|swap|opposite|even|odd|written|altern", "model = True", "model = False"),
    ("the prompt counts as written", r"prompt", "[(i, False) for i in prompt]", "[(i, True) for i in prompt]"),
    ("every part counts as written", r"insert|altern|every part|all parts|tool|odd|second part", "        model = not model\n", ""),
    ("ids and flags in the wrong order", r"order|swap|ids, bools|first.*ids|ids first|pair|returns?", "[i for i, _ in pairs], [w for _, w in pairs]", "[w for _, w in pairs], [i for i, _ in pairs]"),
    ("leaves the prompt out", r"prompt|all ids|left out|missing|short", "[(i, False) for i in prompt]", "[]"),
    ("flags do not cover the prompt", r"prompt|length|as long|each (id|of them)|flags|bools|one for each", "[w for _, w in pairs]", "[w for _, w in pairs][len(prompt):]"),
    ("an empty part is not counted", r"empty|skip|altern|number of a part|turn|counted", "        model = not model\n", "        model = not model if part else model\n"),
    ("changes from token to token, not from part to part", r"token to token|each token|part to part|whole part|each part|inside a part|altern|even|odd", "        pairs.extend((i, model) for i in part)\n        model = not model\n", "        for i in part:\n            pairs.append((i, model))\n            model = not model\n"))
right("fixed_join", r'''
def fixed_join(prompt, parts):
    ids = [*prompt, *itertools.chain(*parts)]
    written = [False for _ in prompt]
    for part, flag in zip(parts, itertools.cycle([True, False])):
        written.extend(itertools.repeat(flag, len(part)))
    return ids, written
''')
right("fixed_join", r'''
def fixed_join(prompt, parts):
    pieces = [prompt] + list(parts)                    # odd numbers are the model's
    ids = sum((list(x) for x in pieces), [])
    return ids, [bool(k & 1) for k, x in enumerate(pieces) for _ in x]
''')
wrong("fixed_join", "appends to the caller's prompt", r"mutat|caller|chang|modif|in place|in-place|input|overwrit|own list|prompt (stays|grows)|copy|append", r'''
def fixed_join(prompt, parts):
    ids, written = prompt, [False] * len(prompt)
    for k, part in enumerate(parts):
        ids += part
        written += [k % 2 == 0] * len(part)
    return ids, written
''')
wrong("fixed_join", "one flag for each part, not for each id", r"each id|one for each|per (token|id)|length|as long|one flag|len\(part\)|number of ids|for each", r'''
def fixed_join(prompt, parts):
    ids, written = list(prompt), [False]
    for k, part in enumerate(parts):
        ids.extend(part)
        written.append(k % 2 == 0)
    return ids, written
''')
wrong("fixed_join", "puts whole parts into the list, not their ids", r"nest|flat|list of (lists|ids)|extend|append|whole part|one list", r'''
def fixed_join(prompt, parts):
    ids, written = list(prompt), [False] * len(prompt)
    for k in range(len(parts)):
        ids.append(parts[k])
        written += [k % 2 == 0] * len(parts[k])
    return ids, written
''')
wrong("fixed_join", "all written parts first, then the inserted ones", r"order|altern|their order|sequence|first", r'''
def fixed_join(prompt, parts):
    mine = [i for part in parts[::2] for i in part]
    tools = [i for part in parts[1::2] for i in part]
    return list(prompt) + mine + tools, [False] * len(prompt) + [True] * len(mine) + [False] * len(tools)
''')
wrong("fixed_join", "only the last part counts as written", r"last part|every|first part|altern|earlier|even|written", r'''
def fixed_join(prompt, parts):
    ids = prompt + [i for part in parts for i in part]
    n = len(parts[-1]) if parts else 0
    return ids, [False] * (len(ids) - n) + [True] * n
''')
wrong("fixed_join", "only the first part counts as written", r"first part|every|third|altern|later|even|odd|written", r'''
def fixed_join(prompt, parts):
    ids, written = prompt[:], [False] * len(prompt)
    for k, part in enumerate(parts):
        for i in part:
            ids.append(i)
            written.append(k == 0)
    return ids, written
''')
wrong("fixed_join", "looks whether an id occurs in a written part, not where it stands", r"where it|place|position|same id|occurs|twice|stands|equal ids|value|which part", r'''
def fixed_join(prompt, parts):
    mine = {i for part in parts[::2] for i in part}
    ids = list(prompt) + [i for part in parts for i in part]
    return ids, [i in mine for i in ids]
''')
wrong("fixed_join", "knows three parts at most", r"three|more than|later parts|further|fourth|all parts|longer|parts altern|crash|error|every part|all ids|missing", r'''
def fixed_join(prompt, parts):
    first, middle, last = (list(parts) + [[], [], []])[:3]
    ids = list(prompt) + first + middle + last
    written = [False] * len(prompt) + [True] * len(first) + [False] * len(middle) + [True] * len(last)
    return ids, written
''')
wrong("fixed_join", "eats the caller's parts", r"mutat|caller|chang|modif|in place|in-place|input|overwrit|own list|parts (stay|are empty)|pop|copy|empt", r'''
def fixed_join(prompt, parts):
    ids, written, model = list(prompt), [False] * len(prompt), True
    while parts:
        part = parts.pop(0)
        ids += part
        written += [model] * len(part)
        model = not model
    return ids, written
''')
wrong("fixed_join", "leaves out ids that are already there", r"twice|already|duplicate|repeat|all ids|same id|again|missing|left out", r'''
def fixed_join(prompt, parts):
    ids, written = list(prompt), [False] * len(prompt)
    for k, part in enumerate(parts):
        for i in part:
            if i in ids: continue
            ids.append(i); written.append(k % 2 == 0)
    return ids, written
''')
wrong("fixed_join", "the first token of an inserted part counts as written", r"first token|shift|one token|late|insert|boundary|off by one|begin|one too", r'''
def fixed_join(prompt, parts):
    ids, written = list(prompt), [False] * len(prompt)
    for k, part in enumerate(parts):
        ids += part
        if k % 2 == 0: written += [True] * len(part)
        else: written += [True] * bool(part) + [False] * (len(part) - 1)
    return ids, written
''')

# ----------------------------------------------------------------- 23 majority_vote
edits("majority_vote", r'''
def majority_vote(answers):
    best, most, counts = None, 0, {}
    for x in answers:
        if x is not None: counts[x] = counts.get(x, 0) + 1
    for x, n in counts.items():
        if n > most: best, most = x, n
    return best
''',
    ("samples without an answer vote, too", r"none|without|no answer|holds no|vote", "if x is not None: counts", "counts"),
    ("of equals the one that came last", r"equal|tie|first|came|last|order", "if n > most", "if n >= most"),
    ("answers such as 0 or an empty text do not vote", r"\b0\b|zero|empty|false|falsy|is not none|truth", "if x is not None:", "if x:"),
    ("returns the number of votes, not the answer", r"count|number of votes|how many|answer itself|how often", "return best", "return most or None"),
    ("returns answer and votes together", r"count|pair|tuple|answer itself|alone|votes", "return best", "return (best, most) if most else None"),
    ("gives 0, not None, where no sample has an answer", r"none|no answer|empty|all", "best, most, counts = None, 0, {}", "best, most, counts = 0, 0, {}"),
    ("wants more than half of the votes", r"half|majority|absolute|most frequent|most|plural|more than", "    return best", "    return best if most > sum(counts.values()) / 2 else None"),
    ("an answer that was given once does not win", r"once|single|one vote|one sample|equal|came first|first", "most, counts = None, 0,", "most, counts = None, 1,"))
right("majority_vote", r'''
def majority_vote(answers):
    votes = [x for x in answers if x is not None]
    return max(votes, key=votes.count, default=None)      # the first of equals
''')
right("majority_vote", r'''
def majority_vote(answers):
    said = list(filter(lambda x: x is not None, answers))
    if said == []: return None
    return statistics.mode(said)
''')
wrong("majority_vote", "crashes where no sample has an answer", r"none|no answer|empty|crash|error|all", r'''
def majority_vote(answers):
    votes = Counter(x for x in answers if x is not None)
    return votes.most_common(1)[0][0]
''')
wrong("majority_vote", "of equals the smallest", r"equal|tie|first|came|small|order|sort", r'''
def majority_vote(answers):
    votes = Counter(x for x in answers if x is not None)
    if not votes: return None
    most = max(votes.values())
    return min((x for x, n in votes.items() if n == most), key=str)
''')
wrong("majority_vote", "the first answer, not the most frequent", r"first answer|most frequent|frequent|count|most|vote", r'''
def majority_vote(answers):
    for x in answers:
        if x is not None: return x
    return None
''')
wrong("majority_vote", "the middle answer in order of size", r"median|middle|most frequent|frequent|count|most|vote|size", r'''
def majority_vote(answers):
    said = sorted(x for x in answers if x is not None) if all(
        isinstance(x, int) for x in answers if x is not None) else sorted(
        (x for x in answers if x is not None), key=str)
    return said[len(said) // 2] if said else None
''')
wrong("majority_vote", "the least frequent answer", r"least|rare|most frequent|frequent|most|count|order", r'''
def majority_vote(answers):
    votes = Counter(x for x in answers if x is not None)
    return votes.most_common()[-1][0] if votes else None
''')
wrong("majority_vote", "the longest run of equal answers, not the most frequent", r"run|consecutive|neighbo|apart|in a row|most frequent|frequent|sort|count", r'''
def majority_vote(answers):
    best, most = None, 0
    said = [x for x in answers if x is not None]
    for x, run in itertools.groupby(said):
        n = len(list(run))
        if n > most: best, most = x, n
    return best
''')
wrong("majority_vote", "returns a list of all equals", r"list|equal|tie|one answer|came first|first|single", r'''
def majority_vote(answers):
    return statistics.multimode(x for x in answers if x is not None) or None
''')
wrong("majority_vote", "makes text of the answers", r"text|str|type|as it|same|answer itself|number|132", r'''
def majority_vote(answers):
    votes = Counter(str(x) for x in answers if x is not None)
    return votes.most_common(1)[0][0] if votes else None
''')
wrong("majority_vote", "takes None out of the caller's list", r"mutat|caller|chang|modif|in place|in-place|input|overwrit|remove|own list", r'''
def majority_vote(answers):
    while None in answers: answers.remove(None)
    return Counter(answers).most_common(1)[0][0] if answers else None
''')
wrong("majority_vote", "looks only at samples up to the first None", r"none|up to|after|stop|later|break|all samples|does not vote|without", r'''
def majority_vote(answers):
    said = list(itertools.takewhile(lambda x: x is not None, answers))
    votes = Counter(said)
    return max(votes, key=votes.get) if votes else None
''')

# ------------------------------------------------------------ 24 prediction_powered
edits("prediction_powered", r'''
def prediction_powered(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    n, m = judge.size(-1), labelled.size(-1)
    bracket = judge.mean(dim=-1) - labelled.mean(dim=-1)
    first = (gold - lam.unsqueeze(-1) * labelled).var(dim=-1)
    second = lam.square() * judge.var(dim=-1)
    return gold.mean(dim=-1) + lam * bracket, torch.sqrt(first / m + second / n)
''',
    ("the bracket the wrong way round", r"sign|order|bracket|wrong way|minus|subtract|others ?-|swap", "judge.mean(dim=-1) - labelled.mean(dim=-1)", "labelled.mean(dim=-1) - judge.mean(dim=-1)"),
    ("the squared error, without the root", r"root|sqrt|squared|variance", "torch.sqrt(first / m + second / n)", "first / m + second / n"),
    ("variances divide by n, not n - 1", r"n ?- ?1|biased|bessel|unbiased|correction|variance", ".var(dim=-1)", ".var(dim=-1, correction=0)"),
    ("λ is not squared in the error", r"λ|lam|squar", "lam.square() *", "lam *"),
    ("λ does not count in the estimate", r"λ|lam", "gold.mean(dim=-1) + lam * bracket", "gold.mean(dim=-1) + bracket"),
    ("λ does not count in the variance of the labelled pairs", r"λ|lam|labelled", "gold - lam.unsqueeze(-1) * labelled", "gold - labelled"),
    ("the variance of the labels alone", r"label.*alone|λ|lam|covar|difference|g ?- ?λ|judge.*(left|forgot|missing)", "(gold - lam.unsqueeze(-1) * labelled)", "gold"),
    ("divides both variances by m", r"divid|/ ?n|number of|verdicts|\bn\b", "second / n", "second / m"),
    ("the variances are not divided by the numbers of pairs", r"divid|/ ?m|/ ?n|number of|standard (error|deviation)|mean|spread|variance", "first / m + second / n", "first + second"),
    ("adds the verdicts to the labels in the error", r"sign|minus|plus|difference|subtract|adds?|g ?- ?λ|labelled", "gold - lam.unsqueeze(-1)", "gold + lam.unsqueeze(-1)"))
right("prediction_powered", r'''
def prediction_powered(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)[..., None]                       # (... 1)
    rest = gold - lam * labelled
    both = lam * judge
    def error2(x): # (... n) -> (...) squared error of the mean of x
        n = x.shape[-1]
        away = x - x.sum(-1, keepdim=True) / n
        return torch.einsum("...n,...n->...", away, away) / torch.tensor(n - 1.) / n
    return rest.mean(-1) + both.mean(-1), (error2(rest) + error2(both))**.5
''')
right("prediction_powered", r'''
def prediction_powered(judge, labelled, gold, lam=1.):
    shape = torch.broadcast_shapes(judge.shape[:-1], gold.shape[:-1], torch.as_tensor(lam).shape)
    lams = torch.as_tensor(lam, dtype=gold.dtype).expand(shape).reshape(-1)
    rows = [x.expand(*shape, x.shape[-1]).reshape(-1, x.shape[-1]) for x in (judge, labelled, gold)]
    means, errors = [], []
    for j, jm, g, l in zip(*rows, lams):
        means.append(g.mean() + l * (j.mean() - jm.mean()))
        errors.append(torch.sqrt(torch.var(g - l * jm) / len(g) + l**2 * torch.var(j) / len(j)))
    return torch.stack(means).view(shape), torch.stack(errors).view(shape)
''')
wrong("prediction_powered", "takes λ as a number only: a tensor of several fails", r"tensor|λ|lam|broadcast|shape|axis|several|none\]|\(\.\.\.\)", r'''
def prediction_powered(judge, labelled, gold, lam=1.):
    n, m = judge.shape[-1], gold.shape[-1]
    mean = gold.mean(-1) + lam * (judge.mean(-1) - labelled.mean(-1))
    left = gold - lam * labelled
    return mean, (left.var(-1) / m + lam**2 * judge.var(-1) / n).sqrt()
''')
wrong("prediction_powered", "takes λ as a tensor only: the default number crashes", r"\bnumber|float|default|as_tensor|crash|error", r'''
def prediction_powered(judge, labelled, gold, lam=1.):
    mean = gold.mean(-1) + lam * (judge.mean(-1) - labelled.mean(-1))
    left = gold - lam[..., None] * labelled
    error = left.var(-1) / gold.shape[-1] + lam**2 * judge.var(-1) / judge.shape[-1]
    return mean, error.sqrt()
''')
wrong("prediction_powered", "means and variances over all axes: one number", r"axis|axes|dim|leading|last|one number|shape|-1|each row|batch|\(\.\.\.\)", r'''
def prediction_powered(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    mean = gold.mean() + lam * (judge.mean() - labelled.mean())
    left = gold - lam[..., None] * labelled
    error2 = left.var() / gold.shape[-1] + lam**2 * judge.var() / judge.shape[-1]
    return mean, error2.sqrt()
''')
wrong("prediction_powered", "λ multiplies the labels and the judge counts in full", r"λ|lam|judge|label", r'''
def prediction_powered(judge, labelled, gold, lam=1.):
    lam, n, m = torch.as_tensor(lam), judge.shape[-1], gold.shape[-1]
    mean = judge.mean(-1) + lam * (gold.mean(-1) - labelled.mean(-1))
    left = gold - lam[..., None] * labelled
    return mean, (left.var(-1) / m + lam**2 * judge.var(-1) / n).sqrt()
''')
wrong("prediction_powered", "adds the two errors, not their squares", r"squar|root|adds?|sum|sqrt|error", r'''
def prediction_powered(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    def se(x): return x.std(-1) / x.shape[-1]**.5
    mean = gold.mean(-1) + lam * (judge.mean(-1) - labelled.mean(-1))
    return mean, se(gold - lam[..., None] * labelled) + lam.abs() * se(judge)
''')
wrong("prediction_powered", "counts the labelled verdicts among the others", r"others|labelled|pool|together|without a label|all verdicts|\bn\b|among", r'''
def prediction_powered(judge, labelled, gold, lam=1.):
    lam, m = torch.as_tensor(lam), gold.shape[-1]
    every = torch.cat([judge, labelled], -1)
    mean = gold.mean(-1) + lam * (every.mean(-1) - labelled.mean(-1))
    left = gold - lam[..., None] * labelled
    return mean, (left.var(-1) / m + lam**2 * every.var(-1) / every.shape[-1]).sqrt()
''')
wrong("prediction_powered", "gives half the width of a 95 % interval, not the error", r"1\.96|interval|95|width|standard error|twice|\berror\b", r'''
def prediction_powered(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    mean = gold.mean(-1) + lam * (judge.mean(-1) - labelled.mean(-1))
    left = gold - lam[..., None] * labelled
    error2 = left.var(-1) / gold.shape[-1] + lam**2 * judge.var(-1) / judge.shape[-1]
    return mean, 1.96 * error2.sqrt()
''')
wrong("prediction_powered", "counts rows, not pairs, where there are leading axes", r"len|rows|axis|number of|shape|leading|last|pairs|divid|batch", r'''
def prediction_powered(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    mean = gold.mean(-1) + lam * (judge.mean(-1) - labelled.mean(-1))
    left = gold - lam[..., None] * labelled
    return mean, torch.sqrt(left.var(-1) / len(gold) + lam**2 * judge.var(-1) / len(judge))
''')
wrong("prediction_powered", "forgets the judge's own variance in the error", r"judge|second|var\(j\)|others|unlabelled|λ²|term|too small|without a label", r'''
def prediction_powered(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    left = gold - lam[..., None] * labelled
    return left.mean(-1) + lam * judge.mean(-1), left.std(-1) / gold.shape[-1]**.5
''')

# ------------------------------------------------------------------ 24 rogan_gladen
edits("rogan_gladen", r'''
def rogan_gladen(judge, labelled, gold):
    lost, says_a = 1 - gold, 1 - labelled
    sensitivity = torch.einsum("...m,...m->...", labelled, gold) / gold.sum(-1)
    specificity = torch.einsum("...m,...m->...", says_a, lost) / lost.sum(-1)
    p = judge.mean(-1)
    return (p + specificity - 1) / (sensitivity + specificity - 1)
''',
    ("sensitivity in the numerator, where the specificity belongs", r"numerator|specificity|sensitivity|q0|q1|swap", "(p + specificity - 1)", "(p + sensitivity - 1)"),
    ("forgets the 1 in the denominator", r"denominator|- ?1|less 1|minus 1|q0 ?\+ ?q1", "(sensitivity + specificity - 1)", "(sensitivity + specificity)"),
    ("forgets the 1 in the numerator", r"numerator|- ?1|less 1|minus 1|p ?\+ ?q0", "(p + specificity - 1)", "(p + specificity)"),
    ("divides by the verdicts for B: precision, not sensitivity", r"precision|sensitivity|q1|divid|labels|gold|denominator|weights", "/ gold.sum(-1)", "/ labelled.sum(-1)"),
    ("counts verdicts for B where A has won: 1 - specificity", r"specificity|q0|1 ?- ?labelled|seen from a|says a|flip|false|where a", "lost, says_a = 1 - gold, 1 - labelled", "lost, says_a = 1 - gold, labelled"),
    ("divides by the number of all labelled pairs", r"divid|weights|sum of|gold|number of|mean|sensitivity|specificity", "/ gold.sum(-1)\n", "/ gold.shape[-1]\n"),
    ("the win rate of the labelled verdicts, not of the others", r"labelled|judge|others|without a label|win rate|\bp\b", "p = judge.mean(-1)", "p = labelled.mean(-1)"),
    ("a verdict of one half counts as a loss in the win rate", r"half|tie|\.5|verdict|threshold|round|\bp\b|win rate|mean", "p = judge.mean(-1)", "p = (judge > .5).float().mean(-1)"),
    ("the win rate of A", r"\b1 ?-|of a\b|wrong side|revers|invert|sign|mean label|other", "return (p + specificity - 1) / (sensitivity + specificity - 1)", "return 1 - (p + specificity - 1) / (sensitivity + specificity - 1)"))
right("rogan_gladen", r'''
def rogan_gladen(judge, labelled, gold):
    said = labelled.mean(-1)
    won = gold.mean(-1)
    both = (labelled * gold).mean(-1)
    q1 = both / won
    false_alarm = (said - both) / (1 - won)                # 1 - specificity
    return (judge.mean(-1) - false_alarm) / (q1 - false_alarm)
''')
right("rogan_gladen", r'''
def rogan_gladen(judge, labelled, gold):
    lead = gold.shape[:-1]
    rows = [x.reshape(-1, x.shape[-1]) for x in (judge, labelled, gold)]
    out = []
    for j, v, g in zip(*rows):
        zero = g.new_zeros(())
        q1 = sum((a * b for a, b in zip(v, g)), zero) / sum(g, zero)
        q0 = sum(((1 - a) * (1 - b) for a, b in zip(v, g)), zero) / sum((1 - b for b in g), zero)
        out.append((sum(j, zero) / len(j) + q0 - 1) / (q0 + q1 - 1))
    return torch.stack(out).view(lead)
''')
wrong("rogan_gladen", "counts ties as losses for the sensitivity and as not there for the wins", r"tie|half|½|\.5|weigh|threshold|round", r'''
def rogan_gladen(judge, labelled, gold):
    won = (gold > .5).float()
    lost = 1 - won
    q1 = (labelled * won).sum(-1) / won.sum(-1)
    q0 = ((1 - labelled) * lost).sum(-1) / lost.sum(-1)
    return (judge.mean(-1) + q0 - 1) / (q0 + q1 - 1)
''')
wrong("rogan_gladen", "leaves ties out of the labels", r"tie|half|½|\.5|left out|leave|drop|weigh", r'''
def rogan_gladen(judge, labelled, gold):
    won, lost = (gold == 1).float(), (gold == 0).float()
    q1 = (labelled * won).sum(-1) / won.sum(-1)
    q0 = ((1 - labelled) * lost).sum(-1) / lost.sum(-1)
    return (judge.mean(-1) + q0 - 1) / (q0 + q1 - 1)
''')
wrong("rogan_gladen", "sums over all axes", r"axis|axes|dim|leading|last|-1|shape|each row|batch|one number|\(\.\.\.\)", r'''
def rogan_gladen(judge, labelled, gold):
    q1 = (labelled * gold).sum() / gold.sum()
    q0 = ((1 - labelled) * (1 - gold)).sum() / (1 - gold).sum()
    return (judge.mean(-1) + q0 - 1) / (q0 + q1 - 1)
''')
wrong("rogan_gladen", "a small number in the denominators hides nan and inf", r"nan|inf|eps|small number|denominator|alike|zero|0 ?/ ?0|clamp", r'''
def rogan_gladen(judge, labelled, gold):
    eps = 1e-6
    q1 = (labelled * gold).sum(-1) / (gold.sum(-1) + eps)
    q0 = ((1 - labelled) * (1 - gold)).sum(-1) / ((1 - gold).sum(-1) + eps)
    return (judge.mean(-1) + q0 - 1) / (q0 + q1 - 1 + eps)
''')
wrong("rogan_gladen", "puts the win rate through the judge's errors once more, not back", r"solve|invert|forward|back|direction|judge's win rate|formula|divid|once more", r'''
def rogan_gladen(judge, labelled, gold):
    q1 = (labelled * gold).sum(-1) / gold.sum(-1)
    q0 = ((1 - labelled) * (1 - gold)).sum(-1) / (1 - gold).sum(-1)
    w = judge.mean(-1)
    return q1 * w + (1 - q0) * (1 - w)
''')
wrong("rogan_gladen", "moves the labels' mean by the difference of verdicts as it is, λ = 1", r"λ|lam|prediction.?powered|divid|q0 ?\+ ?q1|sensitivity|specificity|formula", r'''
def rogan_gladen(judge, labelled, gold):
    return gold.mean(-1) + judge.mean(-1) - labelled.mean(-1)
''')
wrong("rogan_gladen", "keeps the last axis with length 1", r"shape|keepdim|axis|\(\.\.\.\)|last|one number", r'''
def rogan_gladen(judge, labelled, gold):
    q1 = (labelled * gold).sum(-1, keepdim=True) / gold.sum(-1, keepdim=True)
    q0 = ((1 - labelled) * (1 - gold)).sum(-1, keepdim=True) / (1 - gold).sum(-1, keepdim=True)
    return (judge.mean(-1, keepdim=True) + q0 - 1) / (q0 + q1 - 1)
''')
wrong("rogan_gladen", "takes all verdicts together for the win rate", r"together|pool|labelled|without a label|others|judge|win rate|\bp\b", r'''
def rogan_gladen(judge, labelled, gold):
    won, lost = gold.sum(-1), (1 - gold).sum(-1)
    q1 = (labelled * gold).sum(-1) / won
    q0 = lost.new_ones(lost.shape) - (labelled * (1 - gold)).sum(-1) / lost
    p = torch.cat([judge, labelled], -1).mean(-1)
    return (p + q0 - 1) / (q0 + q1 - 1)
''')

# ---------------------------------------------------------------- 24 fixed_estimate
edits("fixed_estimate", r'''
def fixed_estimate(judge, labelled, gold):
    verdicts, counts = judge.unique(return_counts=True)
    total = 0.
    for v, n in zip(verdicts, counts):
        labels = gold[labelled == v]
        total += n / len(judge) * labels.mean()
    return total
''',
    ("shares of the labelled pairs, not of all", r"share|labelled|all pairs|of all", "judge.unique(return_counts=True)\n", "judge.unique(return_counts=True)\n    counts = torch.stack([(labelled == v).sum() for v in verdicts]) * len(judge) / len(labelled)\n"),
    ("every verdict counts the same", r"share|weigh|same|equal|how often|of all", "n / len(judge)", "1 / len(verdicts)"),
    ("a verdict without a label is left out", r"nan|without a label|no label|left out|skip|missing|unlabelled", "        total +=", "        if len(labels) == 0: continue\n        total +="),
    ("counts, not shares", r"share|count|divid|of all|number of pairs|proportion|len\(judge\)", "n / len(judge) *", "n *"),
    ("divides by the number of labels", r"share|divid|labels|of all|number of (all )?pairs|len\(judge\)|denominator", "n / len(judge) *", "n / len(gold) *"),
    ("the sum of the labels, not their mean", r"mean|sum|divid|average", "labels.mean()", "labels.sum()"),
    ("the share times the verdict: the judge's own mean", r"mean label|gold|judge's (own )?mean|labels", "labels.mean()", "v"),
    ("pairs of wins only: ties and losses count 0", r"tie|loss|losses|0|every verdict|other verdicts|wins", "        total +=", "        if v != 1: continue\n        total +="))
right("fixed_estimate", r'''
def fixed_estimate(judge, labelled, gold):
    same = judge[:, None] == labelled[None]                       # (n m)
    mean = (same * gold).sum(1) / same.sum(1)
    return mean.mean()                                # a pair counts as the labels of its verdict
''')
right("fixed_estimate", r'''
def fixed_estimate(judge, labelled, gold):
    given = defaultdict(list)
    for v, g in zip(labelled.tolist(), gold.tolist()): given[v].append(g)
    seen = Counter(judge.tolist())
    means = {v: sum(given[v]) / len(given[v]) if given[v] else math.nan for v in seen}
    return torch.tensor(sum(n * means[v] for v, n in seen.items()) / sum(seen.values()), dtype=gold.dtype)
''')
wrong("fixed_estimate", "the plain mean of the labels", r"share|weigh|plain|stratif|each verdict|of all pairs|mean of the labels", r'''
def fixed_estimate(judge, labelled, gold):
    return gold.float().mean()
''')
wrong("fixed_estimate", "prediction-powered: it takes the labelled pairs for random among all", r"random|prediction.?powered|bracket|stratif|share|verdict", r'''
def fixed_estimate(judge, labelled, gold):
    return gold.mean() + judge.mean() - labelled.mean()
''')
wrong("fixed_estimate", "0 for the mean label of a verdict without a label", r"nan|without a label|no label|unlabelled|missing|zero|0", r'''
def fixed_estimate(judge, labelled, gold):
    shares = torch.stack([(judge == v).float().mean() for v in judge.unique()])
    means = torch.stack([gold[labelled == v].mean() for v in judge.unique()])
    return (shares * means.nan_to_num(0.)).sum()
''')
wrong("fixed_estimate", "knows wins and losses only: ties get no share", r"tie|\.5|½|half|every verdict|each verdict|other verdicts|unique|0 and 1", r'''
def fixed_estimate(judge, labelled, gold):
    total = 0
    for v in (0., 1.):
        at = judge == v
        if at.any(): total = total + at.float().mean() * gold[labelled == v].mean()
    return total
''')
wrong("fixed_estimate", "asks for all of 0, ½ and 1: nan where the judge never says one of them", r"nan|never|unique|that (was|is) (not )?given|occur|only verdicts|does not say|absent|three|fixed list|½|tie", r'''
def fixed_estimate(judge, labelled, gold):
    parts = [(judge == v).float().mean() * gold[labelled == v].mean() for v in (0., .5, 1.)]
    return torch.stack(parts).sum()
''')
wrong("fixed_estimate", "looks up the labels with the verdicts of all pairs", r"labelled|shape|index|lookup|mask|which pairs|all pairs|size|length", r'''
def fixed_estimate(judge, labelled, gold):
    total = 0.
    for v in judge.unique():
        at = judge[:len(gold)] == v
        total = total + (judge == v).float().mean() * gold[at].mean()
    return total
''')
wrong("fixed_estimate", "the mean verdict where a label was given, not the mean label where a verdict was", r"swap|mean label|mean verdict|gold|condition|wrong way|roles", r'''
def fixed_estimate(judge, labelled, gold):
    return sum((judge == v).float().mean() * labelled[gold == v].mean() for v in judge.unique())
''')
wrong("fixed_estimate", "two groups only, above and not above ½: ties are thrown together with losses", r"tie|\.5|½|half|together|each verdict|threshold|two groups|unique|merge", r'''
def fixed_estimate(judge, labelled, gold):
    high, said = judge > .5, labelled > .5
    parts = []
    for side in (True, False):
        at = high == side
        if at.any(): parts.append(at.float().mean() * gold[said == side].mean())
    return torch.stack(parts).sum()
''')
wrong("fixed_estimate", "shares among the verdicts with a label: the rest is spread over them", r"nan|without a label|no label|unlabelled|missing|rescal|share|renormal|spread|of all", r'''
def fixed_estimate(judge, labelled, gold):
    known = torch.isin(judge, labelled)
    same = judge[known][:, None] == labelled[None]
    return ((same * gold).sum(1) / same.sum(1)).mean()
''')

# ---------------------------------------------------------- 24 bradley_terry_scores
edits("bradley_terry_scores", r'''
def bradley_terry_scores(wins, steps=100):
    won, lost = wins.sum(-1), wins.sum(-2)
    if (won <= 0).any() or (lost <= 0).any():
        raise ValueError("a row that won, or lost, every game has no finite strength")
    games = wins + wins.transpose(-1, -2)
    p = torch.ones(won.shape, dtype=(won / 1).dtype)
    for _ in range(steps):
        pairs = p.unsqueeze(-1) + p.unsqueeze(-2)
        p = won / (games / pairs).sum(-1)
        p = p / p.mean(-1, keepdim=True)
    s = torch.log(p)
    return s - s.mean(-1, keepdim=True)
''',
    ("accepts a row that lost every game", r"lost|every game|valueerror|refus|raise|infinite|never won", "(won <= 0).any() or (lost <= 0).any()", "(lost <= 0).any()"),
    ("accepts a row that won every game", r"won|every game|valueerror|refus|raise|infinite|never lost", "(won <= 0).any() or (lost <= 0).any()", "(won <= 0).any()"),
    ("refuses only if all rows are like that", r"valueerror|refus|raise|any|every game|one row|infinite|a row", "(won <= 0).any() or (lost <= 0).any()", "(won <= 0).all() or (lost <= 0).all()"),
    ("returns strengths, not their logs", r"log|strengths|exp|mean 0|p_i", "s = torch.log(p)", "s = p"),
    ("the mean of the log-strengths is not 0", r"mean 0|mean|centr|subtract|sum to|constant", "return s - s.mean(-1, keepdim=True)", "return s"),
    ("the first row gets 0, not the mean", r"mean 0|first|mean|centr|reference|subtract", "return s - s.mean(-1, keepdim=True)", "return s - s[..., :1]"),
    ("the games are only those that row i won", r"games|n_ij|both|wins ?\+|lost|plus|transpose|mT|played", "games = wins + wins.transpose(-1, -2)", "games = wins"),
    ("counts losses as wins: columns for rows", r"column|row|axis|transpose|losses|lost|sign|direction|beats|swap|revers", "p = won / (games", "p = lost / (games"),
    ("one step, whatever steps says", r"steps|one step|converge|again|iterat|loop|repeat", "        p = p / p.mean(-1, keepdim=True)", "        p = p / p.mean(-1, keepdim=True)\n        break"),
    ("multiplies the strengths of a pair instead of adding them", r"p_i ?\+ ?p_j|sum|add|product|multipl|\+", "p.unsqueeze(-1) + p.unsqueeze(-2)", "p.unsqueeze(-1) * p.unsqueeze(-2)"),
    ("centres over all tables together", r"axis|last|batch|each table|dim|together|leading|mean|own", "return s - s.mean(-1, keepdim=True)", "return s - s.mean()"),
    ("on the Elo scale: 400 points for a factor of ten", r"elo|400|log10|base|natural|scale|ln|unit|factor", "s = torch.log(p)", "s = 400 * torch.log10(p)"))
right("bradley_terry_scores", r'''
def bradley_terry_scores(wins, steps=100):
    w = wins / 1
    never = (w.sum(-1) == 0) | (w.sum(-2) == 0)
    if bool(never.any()): raise ValueError("won or lost every game")
    log_won, log_games = w.sum(-1).log(), (w + w.mT).log()
    s = torch.zeros_like(log_won)
    for _ in range(steps):
        s = log_won - torch.logsumexp(log_games - torch.logaddexp(s[..., :, None], s[..., None, :]), -1)
        s = s - s.mean(-1, keepdim=True)
    return s
''')
right("bradley_terry_scores", r'''
def bradley_terry_scores(wins, steps=100):
    k = wins.shape[-1]
    tables = wins.reshape(-1, k, k)
    result = []
    for t in tables:
        for i in range(k):
            if not (t[i].sum() > 0 and t[:, i].sum() > 0): raise ValueError(f"row {i} won or lost every game")
        p = [t.new_ones(()) for _ in range(k)]
        for _ in range(steps):
            p = [t[i].sum() / sum((t[i, j] + t[j, i]) / (p[i] + p[j]) for j in range(k)) for i in range(k)]
            mean = sum(p) / k
            p = [x / mean for x in p]
        s = torch.stack(p).log()
        result.append(s - s.mean())
    return torch.stack(result).view(wins.shape[:-1])
''')
wrong("bradley_terry_scores", "the log odds of each row's share of wins: opponents do not count", r"opponent|who|against|odds|share of wins|win rate|iterat|converge|zermelo|steps|strength of", r'''
def bradley_terry_scores(wins, steps=100):
    won, lost = wins.sum(-1), wins.sum(-2)
    if not ((won > 0) & (lost > 0)).all(): raise ValueError("somebody won or lost every game")
    s = torch.logit(won / (won + lost))
    return s - s.mean(-1, keepdim=True)
''')
wrong("bradley_terry_scores", "adds half a win to each instead of refusing", r"valueerror|refus|raise|half a win|add|smooth|infinite|every game|prior", r'''
def bradley_terry_scores(wins, steps=100):
    k = wins.shape[-1]
    if not ((wins.sum(-1) > 0) & (wins.sum(-2) > 0)).all():
        wins = wins + .5 * (1 - torch.eye(k))
    games, p = wins + wins.mT, torch.ones_like(wins[..., 0])
    for _ in range(steps):
        p = wins.sum(-1) / (games / (p[..., :, None] + p[..., None, :])).sum(-1)
        p = p / p.mean(-1, keepdim=True)
    return p.log() - p.log().mean(-1, keepdim=True)
''')
wrong("bradley_terry_scores", "refuses every table in which some pair has a 0", r"refus|raise|valueerror|pair|0|every game|zero|finite|accept", r'''
def bradley_terry_scores(wins, steps=100):
    off = ~torch.eye(wins.shape[-1], dtype=torch.bool)
    if (wins[..., off] == 0).any(): raise ValueError("every pair needs wins on both sides")
    games, p = wins + wins.mT, torch.ones_like(wins[..., 0])
    for _ in range(steps):
        p = wins.sum(-1) / (games / (p[..., :, None] + p[..., None, :])).sum(-1)
        p = p / p.mean(-1, keepdim=True)
    s = p.log()
    return s - s.mean(-1, keepdim=True)
''')
wrong("bradley_terry_scores", "turns the table around on all axes, so several tables do not work", r"axis|axes|several|batch|leading|transpose|\.t\b|mt|tables|shape|\(\.\.\. k", r'''
def bradley_terry_scores(wins, steps=100):
    if not ((wins.sum(-1) > 0) & (wins.sum(-2) > 0)).all(): raise ValueError("won or lost every game")
    games = wins + wins.permute(*reversed(range(wins.dim())))
    p = torch.ones_like(wins[..., 0])
    for _ in range(steps):
        p = wins.sum(-1) / (games / (p[..., :, None] + p[..., None, :])).sum(-1)
        p = p / p.mean(-1, keepdim=True)
    return p.log() - p.log().mean(-1, keepdim=True)
''')
wrong("bradley_terry_scores", "drops the halves: a tie counts for nobody", r"tie|half|½|\.5|int|round|fraction|whole|floor", r'''
def bradley_terry_scores(wins, steps=100):
    if not ((wins.sum(-1) > 0) & (wins.sum(-2) > 0)).all(): raise ValueError("won or lost every game")
    wins = wins.floor()
    games, p = wins + wins.mT, torch.ones_like(wins[..., 0])
    for _ in range(steps):
        p = wins.sum(-1) / (games / (p[..., :, None] + p[..., None, :])).sum(-1)
        p = p / p.mean(-1, keepdim=True)
    return p.log() - p.log().mean(-1, keepdim=True)
''')
wrong("bradley_terry_scores", "scales the caller's table", r"mutat|caller|chang|modif|in place|in-place|input|overwrit|scale", r'''
def bradley_terry_scores(wins, steps=100):
    if not ((wins.sum(-1) > 0) & (wins.sum(-2) > 0)).all(): raise ValueError("won or lost every game")
    wins /= wins.sum()                       # only ratios count
    games, p = wins + wins.mT, torch.ones_like(wins[..., 0])
    for _ in range(steps):
        p = wins.sum(-1) / (games / (p[..., :, None] + p[..., None, :])).sum(-1)
        p = p / p.mean(-1, keepdim=True)
    return p.log() - p.log().mean(-1, keepdim=True)
''')
wrong("bradley_terry_scores", "always ten steps: steps is not read", r"steps|ten|converge|iterat|number of|again|repeat", r'''
def bradley_terry_scores(wins, steps=100):
    if not ((wins.sum(-1) > 0) & (wins.sum(-2) > 0)).all(): raise ValueError("won or lost every game")
    games, p = wins + wins.mT, torch.ones_like(wins[..., 0])
    for _ in range(10):
        p = wins.sum(-1) / (games / (p[..., :, None] + p[..., None, :])).sum(-1)
        p = p / p.mean(-1, keepdim=True)
    return p.log() - p.log().mean(-1, keepdim=True)
''')
wrong("bradley_terry_scores", "says nothing of rows with infinite strength", r"valueerror|refus|raise|infinite|every game|inf|nan", r'''
def bradley_terry_scores(wins, steps=100):
    s = torch.zeros_like(wins[..., 0])
    for _ in range(steps):
        p = s.exp()
        s = (wins.sum(-1) / ((wins + wins.mT) / (p[..., :, None] + p[..., None, :])).sum(-1)).log()
        s = s - s.mean(-1, keepdim=True)
    return s
''')
