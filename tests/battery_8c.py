"""An eighth battery, part c: written from stubs and task texts alone, without sight of the check. OWN: False where a wrong answer is a right text with one edit."""
import itertools, math, random, re, statistics, torch
import torch.nn.functional as F
from collections import Counter
from torch import Tensor, tensor
from einops import einsum, rearrange, reduce
from battery_maker import battery, quoting
from rlhf_nb.base.batches import at_least_float32
from rlhf_nb.tokens import masked_sum
from rlhf_nb.grpo import group_centered, group_normalised
WRONG, RIGHT, SLIPS, OWN, wrong, right, edits = battery(globals())
edits = quoting(edits)
# ---------------------------------------------------------------- 17 arithmetic
edits("fixed_number_reward", '''
def fixed_number_reward(reply, right):
    numbers = re.findall(r"[0-9]+", reply)
    if not numbers: return 0.
    return 1. if numbers[-1] == right else 0.
''',
    ("reads the first number of the reply, not the last", r"first|last number|numbers\[-1\]", "numbers[-1]", "numbers[0]"),
    ("a reply without a number still earns .5", r"without a number|no number|empty|no digits?|return 0\.", "return 0.", "return .5"),
    ("a reply without a number crashes, because the last entry of an empty list is read", r"without a number|no number|empty|no digits?|indexerror|crash|if not numbers",
     "    if not numbers: return 0.\n", ""),
    ("compares the values as integers, so leading zeros do not count", r"int\(|integer|value|as text|as numbers?|leading zero|digit by digit|numbers\[-1\] == right",
     "numbers[-1] == right", "int(numbers[-1]) == int(right)"),
    ("any number of the reply that equals the right one is enough", r"any number|any of (the|its)|anywhere|one of the numbers|some number|not (just|only) the last|in the question|numbers\[-1\] == right",
     "numbers[-1] == right", "right in numbers"),
    ("takes the last digit alone, not the digits that stand together", r"single digit|one digit|last digit|digit alone|stand together|\\d\+|\[0-9\]\+|whole number|several digits",
     'r"[0-9]+"', 'r"[0-9]"'))
wrong("fixed_number_reward", "pays if the right digits stand at the end of the last number, so 155 passes for 55",
      r"endswith|ends? with|ending|suffix|longer number|more digits|whole number|entire number|contains?|155|part of (a|the) (number|longer)",
'''def fixed_number_reward(reply, right):
    groups = [g for g in re.split(r"\\D+", reply) if g]
    if len(groups) == 0:
        return 0.0
    return float(groups[-1].endswith(right))
''')
wrong("fixed_number_reward", "runs all digits of the reply together into one number",
      r"all (the )?digits|(runs?|join|put|glue|stick|merge)\w* .*together|one (long )?number|concat|separate numbers|digits of (the|\ball\b|other)",
'''def fixed_number_reward(reply, right):
    digits = "".join(c for c in reply if c.isdecimal())
    if digits == "":
        return 0.
    return float(digits == right)
''')
wrong("fixed_number_reward", "gives part of the reward, the share of digits that are right",
      r"partial|share|fraction|part of the reward|per digit|each digit|else 0|all or nothing|some digits|whole (answer|number)",
'''def fixed_number_reward(reply, right):
    found = re.findall(r"\\d+", reply)
    if not found or len(found[-1]) != len(right):
        return 0.
    same = [a == b for a, b in zip(found[-1], right)]
    return sum(same) / len(same)
''')
wrong("fixed_number_reward", "takes all that follows the last equals sign instead of the last number in it",
      r"equals? sign|after the (last )?=|behind the (last )?=|follows|other characters|full stop|words?\b|full text|text after|split|not (only )?digits|without (an?|the) (=|equals)",
'''def fixed_number_reward(reply, right):
    answer = reply.split("=")[-1].strip()
    return 1.0 if answer == right else 0.0
''')
right("fixed_number_reward", '''
def fixed_number_reward(reply, right):
    last, inside = "", False
    for c in reply:
        if c.isdecimal():
            last = last + c if inside else c
            inside = True
        else:
            inside = False
    return float(last != "" and last == right)
''')

edits("reward_until_wrong", '''
def reward_until_wrong(answer, want):
    share, good = 1 / len(want), 0
    while good < min(len(answer), len(want)) and answer[good] == want[good]:
        good += 1
    return [share] * good + [0.] * (len(answer) - good)
''',
    ("divides by the length of the answer, not of what is wanted", r"len\(want\)|len\(answer\)|length of|divid|denominator|share", "1 / len(want)", "1 / len(answer)"),
    ("an answer longer than what is wanted crashes", r"longer|beyond|indexerror|index|end of|crash|min\(", "good < min(len(answer), len(want))", "good < len(answer)"),
    ("pays a whole 1 for each right token, so a right answer earns more than 1", r"1 / len|share|whole 1|\b1 (for|\bper\b|each)|in all|adds? up|total|divid|more than 1|full", "1 / len(want)", "1."),
    ("a token that is wrong costs a negative amount instead of earning 0", r"negative|minus|below 0|penal|subtract|\bsign|\[0\.\]|else 0|earns? 0|\b0\b", "[0.]", "[-share]"),
    ("the list ends at the first wrong token", r"short|length|one (number|entry|reward) (for|per)|missing|stops?\b|break|ends (at|with)|entries|no (number|entry|reward) for|fewer|too few", " + [0.] * (len(answer) - good)", ""))
wrong("reward_until_wrong", "a right token after a wrong one is paid again: the flag does not stay down",
      r"luck|after a wrong|after the (first )?(wrong|mistake)|every token before|all tokens before|flag|before it|stays?|earlier|again",
'''def reward_until_wrong(answer, want):
    reward = []
    for i, token in enumerate(answer):
        if i < len(want) and token == want[i]:
            reward.append(1 / len(want))
        else:
            reward.append(0.)
    return reward
''')
wrong("reward_until_wrong", "the first wrong token is still paid, because only the tokens before it are looked at",
      r"first wrong|token itself|only the tokens before|off by one|itself|one too (late|many)|late|too early|before it is|order",
'''def reward_until_wrong(answer, want):
    reward, right = [], True
    for i, token in enumerate(answer):
        reward.append(1 / len(want) if right and i < len(want) else 0.)
        right = right and i < len(want) and token == want[i]
    return reward
''')
wrong("reward_until_wrong", "pays everything or nothing: one wrong token takes away the shares of the right tokens before it",
      r"all or nothing|whole answer|everything|right tokens before|prefix|before the (first )?(wrong|mistake)|partial|until",
'''def reward_until_wrong(answer, want):
    if list(answer) == list(want):
        return [1 / len(want) for _ in answer]
    return [0. for _ in answer]
''')
wrong("reward_until_wrong", "returns one sum instead of a number for each token",
      r"sum|one number|single|list|each token|per token|total|float",
'''def reward_until_wrong(answer, want):
    total = 0.
    for a, w in zip(answer, want):
        if a != w: break
        total += 1 / len(want)
    return total
''')
wrong("reward_until_wrong", "asks whether the token occurs anywhere in what is wanted, not at the same place",
      r"place|position|anywhere|order|same (place|index)| in want|occur|want\[i\]",
'''def reward_until_wrong(answer, want):
    ok = list(itertools.accumulate((t in want for t in answer), lambda a, b: a and b))
    return [(1 / len(want)) * (o and i < len(want)) for i, o in enumerate(ok)]
''')
right("reward_until_wrong", '''
def reward_until_wrong(answer, want):
    same = [i < len(want) and t == want[i] for i, t in enumerate(answer)]
    return [all(same[:i + 1]) / len(want) for i in range(len(answer))]
''')

# ---------------------------------------------------------------- 18 q_faults
edits("fixed_target", '''
def fixed_target(reward, value, last, gamma):
    after = torch.where(last, torch.zeros_like(value), value.detach())
    return reward + gamma * after
''',
    ("drops negative rewards", r"negative|\bsign|below 0|clamp|minus|< 0|> 0", "return reward +", "return reward.clamp(min=0) +"),
    ("the gradient flows into value", r"detach|gradient|constant|grad", "value.detach()", "value"),
    ("zeroes the value everywhere but at the last token: the condition is inverted", r"invert|other way|opposite|swap|revers|everywhere (but|except)|wrong (side|branch|way)|all (the )?other tokens|torch\.where\(last",
     "torch.where(last, torch.zeros_like(value), value.detach())", "torch.where(last, value.detach(), torch.zeros_like(value))"),
    ("gamma also multiplies the reward", r"gamma|discount|γ", "reward + gamma * after", "gamma * (reward + after)"),
    ("gamma is missing", r"gamma|discount|γ", "gamma * after", "after"))
wrong("fixed_target", "multiplies by ~last, so a nan at the last token stays nan",
      r"\bnan\b|masked_fill|0 times|times 0|multipl\w+ (by|with) (~last|0|zero|the mask)",
'''def fixed_target(reward, value, last, gamma):
    going_on = (~last).float()
    return reward + gamma * going_on * value.detach()
''')
wrong("fixed_target", "takes the value of the next place, one too late",
      r"shift|next|one (place|token|column|step)|off by one|value\[i\]|too (late|early|far)|roll|i ?\+ ?1",
'''def fixed_target(reward, value, last, gamma):
    with torch.no_grad():
        value = value.masked_fill(last, 0.)
        later = torch.cat([value[:, 1:], torch.zeros_like(value[:, :1])], dim=1)
        return reward + gamma * later
''')
wrong("fixed_target", "the reward of the last token is zeroed together with the value",
      r"reward (at|of|on) the last|last token'?s reward|its reward|reward is (lost|dropped|zero|missing)|loses the reward|drops the reward|only the value|whole|too much|both",
'''def fixed_target(reward, value, last, gamma):
    target = reward + gamma * value.detach()
    return target.masked_fill(last, 0.)
''')
wrong("fixed_target", "replaces only nan by 0, so another number at the last token is still added",
      r"nan_to_num|only nan|finite|anything|nothing follows|(other|real|ordinary|another) (number|value)|where `?last|masked_fill",
'''def fixed_target(reward, value, last, gamma):
    value = torch.nan_to_num(value.detach(), nan=0.)
    return torch.add(reward, gamma * value)
''')
wrong("fixed_target", "a token with a reward gets the reward alone, without the value after it",
      r"reward alone|either|instead of (adding|both)|reward != 0|where a reward|token with a reward|not added|no value|without the value|replac|both",
'''def fixed_target(reward, value, last, gamma):
    b, t = reward.shape
    out = torch.zeros_like(reward)
    for i in range(b):
        for j in range(t):
            if reward[i, j] != 0: out[i, j] = reward[i, j]
            elif not last[i, j]: out[i, j] = gamma * value[i, j].detach()
    return out
''')
right("fixed_target", '''
def fixed_target(reward, value, last, gamma):
    with torch.no_grad():
        after = value.clone()
        after[last] = 0.
        return torch.add(reward, after * gamma)
''')

edits("fixed_pull", '''
def fixed_pull(q, ids, mask, lowest):
    square = (q - lowest).pow(2)
    other = torch.ones_like(q, dtype=torch.bool).scatter(-1, ids[..., None], False)
    each = torch.where(other, square, torch.zeros_like(square)).sum(-1) / other.sum(-1)
    return (each * mask).sum() / mask.sum()
''',
    ("divides by all actions, though one less was summed", r"v - 1|one less|one fewer|- 1|number of (the )?(other|actions)|divid|mean over|other\.sum|all actions|shape", "/ other.sum(-1)", "/ q.shape[-1]"),
    ("pulls the action that was taken, not the others", r"(pull|act|mean|average|counts?|use|keep)\w* (on )?(only )?(what|the (action|\bone\b|token|entry|entries))?.{0,25}\btaken|others?\b.*(not|instead)|invert|opposite|not the others|wrong way",
     "torch.ones_like(q, dtype=torch.bool).scatter(-1, ids[..., None], False)", "torch.zeros_like(q, dtype=torch.bool).scatter(-1, ids[..., None], True)"),
    ("divides by the number of all places, masked ones included", r"mask|numel|padding|all (places|tokens|positions)|real tokens|divid|denominator", "/ mask.sum()", "/ mask.numel()"),
    ("adds lowest instead of subtracting it", r"\bsign|minus|plus|subtract|\badd(s|ed)?\b|- lowest", "q - lowest", "q + lowest"),
    ("sums over the other actions and takes no mean of them", r"(no|not|without|missing|instead of (a |the )?|should be (a |the )?)\W*(mean|average|divid)|number of (other )?actions|v - 1|one (less|fewer)|sum over|takes? the sum|not divided|divid", " / other.sum(-1)", ""))
wrong("fixed_pull", "averages over all actions, the taken one included",
      r"(all|every) actions?|includ|exclud|leave (it )?out|left out|all but|taken (one|action|token) (is|too|as well|count)|also the (action|\bone\b|token)? ?(that was )?taken",
'''def fixed_pull(q, ids, mask, lowest):
    per_token = reduce((q - lowest) ** 2, "b t v -> b t", "mean")
    return per_token[mask].mean()
''')
wrong("fixed_pull", "squares the mean of the others' distances instead of averaging the squares",
      r"mean of (the )?squares|squares? of (the|a) mean|squares? (the|each|every|before|first|after)|before (the )?(squar|averag|mean)|after (the )?(squar|averag|mean)|each action",
'''def fixed_pull(q, ids, mask, lowest):
    v = q.shape[-1]
    chosen = q.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    mean_other = (q.sum(-1) - chosen) / (v - 1)
    err = (mean_other - lowest) ** 2
    return (err * mask).sum() / mask.sum()
''')
wrong("fixed_pull", "averages row by row first and then over rows, so tokens of short rows weigh more",
      r"row|response|sequence|weigh|per row|each row|all tokens|over these tokens|short",
'''def fixed_pull(q, ids, mask, lowest):
    sq = (q - lowest) ** 2
    rest = (sq.sum(-1) - sq.gather(-1, ids[..., None])[..., 0]) / (q.shape[-1] - 1)
    per_row = [(r * m).sum() / m.sum() for r, m in zip(rest, mask)]
    return torch.stack(per_row).mean()
''')
wrong("fixed_pull", "writes 0 for the taken Q before it takes the distance, so lowest squared is counted for it",
      r"taken|0 - lowest|lowest ?(\*\*|\^)|lowest squared|zero|before|still count|q of the taken|contribut",
'''def fixed_pull(q, ids, mask, lowest):
    others = q.scatter(-1, ids[..., None], 0.)
    dist = (others - lowest).square().sum(-1) / (q.shape[-1] - 1)
    return torch.masked_select(dist, mask).mean()
''')
wrong("fixed_pull", "takes the absolute distance, not its square",
      r"\babs|square|\*\* ?2|power|squared",
'''def fixed_pull(q, ids, mask, lowest):
    losses = []
    for b, t in mask.nonzero().tolist():
        d = [(q[b, t, k] - lowest).abs() for k in range(q.shape[-1]) if k != ids[b, t]]
        losses.append(sum(d) / len(d))
    return sum(losses) / len(losses)
''')
right("fixed_pull", '''
def fixed_pull(q, ids, mask, lowest):
    means = []
    for i, j in mask.nonzero().tolist():
        row, k = q[i, j], int(ids[i, j])
        rest = torch.cat([row[:k], row[k + 1:]])
        means.append(((rest - lowest)**2).mean())
    return torch.stack(means).mean()
''')

# ---------------------------------------------------------------- 19 your_model
edits("short_right", '''
def short_right(prompts, responses, answer):
    out = []
    for i in range(len(responses)):
        found = [m.group() for m in re.finditer(r"[0-9]+", responses[i])]
        ok = len(found) > 0 and found[-1] == str(answer[i])
        short = len(responses[i].split()) <= 12
        out.append((1. if short else .5) if ok else 0.)
    return out
''',
    ("reads the first number of a response, not the last", r"first|last number|found\[-1\]|\[-1\]", "found[-1]", "found[0]"),
    ("twelve words count as too long", r"12|twelve|<=|at most|off by one|exactly|less than", "<= 12", "< 12"),
    ("compares a text with an answer that can be a number, which never fits", r"compares? a text|never (fits?|equal)|str\(|as text|types?\b|\bint\b|integer|string|may be (a )?numbers?|numbers? or text|text (and|with|to) (a )?number|number (and|with|to) (a )?text", "str(answer[i])", "answer[i]"),
    ("counts characters, not words", r"characters?|letters|length of the text|split", "len(responses[i].split())", "len(responses[i])"),
    ("counts the words of the prompt, not of the response", r"prompts?\b|of the response|responses\[i\]", "responses[i].split()", "prompts[i].split()"),
    ("a response without a number crashes", r"no number|without a number|empty|index|crash|len\(found\) > 0|bool\(", "len(found) > 0 and found[-1]", "found[-1]"))
wrong("short_right", "a short wrong answer earns .5",
      r"wrong (answer|response|one)|short wrong|however short|\bwrong\b.*\b0\b|not right|earns? 0",
'''def short_right(prompts, responses, answer):
    def pay(text, wanted):
        numbers = re.findall(r"\\d+", text)
        right = bool(numbers) and numbers[-1] == str(wanted)
        short = len(text.split()) <= 12
        return .5 * right + .5 * short
    return [pay(t, a) for t, a in zip(responses, answer)]
''')
wrong("short_right", "a right answer that is longer earns 0 instead of .5",
      r"long|\.5|half|beyond",
'''def short_right(prompts, responses, answer):
    rewards = []
    for text, wanted in zip(responses, answer):
        if len(text.split()) > 12:
            rewards.append(0.)
            continue
        numbers = re.findall(r"\\d+", text)
        rewards.append(1. if numbers and numbers[-1] == str(wanted) else 0.)
    return rewards
''')
wrong("short_right", "takes the last word as the answer, so a full stop behind the number makes it wrong",
      r"last word|full stop|punctuation|point|period|last number|digits|split",
'''def short_right(prompts, responses, answer):
    rewards = []
    for text, wanted in zip(responses, answer):
        words = text.split()
        if not words or words[-1] != str(wanted): rewards.append(0.)
        elif len(words) > 12: rewards.append(.5)
        else: rewards.append(1.)
    return rewards
''')
wrong("short_right", "returns one mean over all responses, not a number for each",
      r"mean|average|one number|single|list|each response|per response|for each",
'''def short_right(prompts, responses, answer):
    total = 0.
    for text, wanted in zip(responses, answer):
        numbers = re.findall(r"\\d+", text)
        if numbers and numbers[-1] == str(wanted):
            total += 1. if len(text.split()) <= 12 else .5
    return total / len(responses)
''')
right("short_right", '''
def short_right(prompts, responses, answer):
    def one(text, wanted):
        last = re.search(r"([0-9]+)[^0-9]*\\Z", text)
        if last is None or last[1] != str(wanted): return 0
        return .5 if len(text.split()) > 12 else 1
    return list(map(one, responses, answer))
''')

# ---------------------------------------------------------------- 20 off_policy
edits("importance_ratios", '''
def importance_ratios(log_ratio, mask, level):
    x = log_ratio.float() if log_ratio.dtype in (torch.float16, torch.bfloat16) else log_ratio
    x = torch.where(mask, x, torch.zeros_like(x))
    if level == "token": return x.exp()
    return x.sum(1, keepdim=True).exp()
''',
    ("the ratio of a response comes as (b) and not as (b 1)", r"shape|\(b 1\)|\(b\)|axis|keepdim|dimension|\[:, none\]", "x.sum(1, keepdim=True)", "x.sum(1)"),
    ("stays in bfloat16 instead of float32 at least", r"float32|bfloat16|bf16|half|precision|dtype|at_least_float32",
     "log_ratio.float() if log_ratio.dtype in (torch.float16, torch.bfloat16) else log_ratio", "log_ratio"),
    ("gives q over pi, the ratio upside down", r"\bsign|upside|invers|q ?/ ?(π|pi)|reciproc|minus|negat|other way|1 /", ".exp()", ".neg().exp()"),
    ("takes the mean of log-ratios over the response, a geometric mean, where a product is wanted", r"mean|average|geometric|length|product|sum\(",
     "x.sum(1, keepdim=True).exp()", "(x.sum(1, keepdim=True) / mask.sum(1, keepdim=True)).exp()"),
    ("token and sequence are exchanged", r"level|exchang|swap|mixed up|token.*sequence|sequence.*token", 'level == "token"', 'level == "sequence"'),
    ("sums over the rows of the batch, not along a response", r"axis|\bdim\b|over the batch|rows of the batch|along (a|the) (row|response)|responses together|sum\(1", "x.sum(1, keepdim=True)", "x.sum(0)[:, None]"))
wrong("importance_ratios", "multiplies log-ratios by the mask, so rubbish such as nan outside it spoils the sum",
      r"nan|\binf\b|rubbish|anything|masked_fill|times 0|0 times|multipl|where",
'''def importance_ratios(log_ratio, mask, level):
    log_ratio = at_least_float32(log_ratio)[0]
    kept = log_ratio * mask
    if level == "sequence":
        return rearrange(kept.sum(-1), "b -> b 1").exp()
    return kept.exp()
''')
wrong("importance_ratios", "tokens outside the mask get 0, not 1",
      r"outside|masked|\b1\b|\b0\b|\bone\b|zero|not in the response",
'''def importance_ratios(log_ratio, mask, level):
    if level == "sequence":
        return masked_sum(log_ratio, mask).unsqueeze(1).exp()
    ratio = at_least_float32(log_ratio)[0].exp()
    return ratio.masked_fill(~mask, 0.)
''')
wrong("importance_ratios", "adds the ratios of a response instead of multiplying them",
      r"product|multiplied|instead of multiply|multiply|sum of (the )?ratios|adds? (up )?the ratios|adds? ratios|exp (before|first|after)|sum of log|log-ratios before",
'''def importance_ratios(log_ratio, mask, level):
    x = at_least_float32(log_ratio)[0]
    ratio = torch.ones_like(x)
    ratio[mask] = x[mask].exp()
    if level == "token":
        return ratio
    return torch.stack([row[m].sum() for row, m in zip(ratio, mask)])[:, None]
''')
wrong("importance_ratios", "per token it gives the product of all ratios up to the token, not the token's own",
      r"cumul|cumsum|up to|prefix|running|own ratio|earlier|before|product|of (each|the|its) token",
'''def importance_ratios(log_ratio, mask, level):
    x = at_least_float32(log_ratio)[0].masked_fill(~mask, 0.)
    so_far = x.cumsum(1)
    if level == "sequence":
        return so_far[:, -1:].exp()
    return so_far.masked_fill(~mask, 0.).exp()
''')
right("importance_ratios", '''
def importance_ratios(log_ratio, mask, level):
    x = log_ratio.to(torch.promote_types(log_ratio.dtype, torch.float32))
    clean = torch.zeros_like(x).masked_scatter(mask, x[mask])
    if level == "sequence": clean = einsum(clean, "b t -> b").unsqueeze(1)
    return torch.exp(clean)
''')

edits("effective_sample_size", '''
def effective_sample_size(log_ratio):
    weight = (log_ratio - log_ratio.logsumexp(0)).exp()
    return 1 / (len(weight) * (weight**2).sum())
''',
    ("gives the number of answers, not the share: it is not divided by n", r"share|divid|\bn\b|len\(|number|1/n|from 1/n", "(len(weight) * (weight**2).sum())", "(weight**2).sum()"),
    ("squares the sum of the weights below the line, where the sum of squares belongs", r"sum of (the )?squares|square|\*\* ?2|\(weight\*\*2\)\.sum|σ w²|denominator", "(weight**2).sum()", "weight.sum()**2"),
    ("the log-ratios are not scaled down, so ratios of long answers overflow", r"overflow|scal(e|ed|ing)|softmax|logsumexp|subtract|common factor|weights (that )?sum to 1|normali", "(log_ratio - log_ratio.logsumexp(0)).exp()", "log_ratio.exp()"),
    ("gives the reciprocal, which is 1 or more", r"reciproc|invers|upside|1 /|one over|from 1/n|at most 1|numerator", "1 / (len(weight) * (weight**2).sum())", "len(weight) * (weight**2).sum()"),
    ("multiplies by n where it should divide", r"divid|multipl|share|\bn\b|len\(|from 1/n|at most 1", "1 / (len(weight) * (weight**2).sum())", "len(weight) / (weight**2).sum()"))
wrong("effective_sample_size", "takes the log-ratios themselves as weights",
      r"\bexp\b|exponent|log-ratios? (are|themselves|stand|as)|logs? (are|as|themselves)|not weights|weights? themselves",
'''def effective_sample_size(log_ratio):
    n = log_ratio.shape[0]
    if n == 0: return log_ratio.new_tensor(math.inf)
    top = log_ratio.sum() ** 2
    return top / (n * (log_ratio ** 2).sum())
''')
wrong("effective_sample_size", "uses the perplexity of the weights, exp of their entropy, not Kish's formula",
      r"entropy|perplexity|kish|squares?|formula|σ w²",
'''def effective_sample_size(log_ratio):
    logw = log_ratio.log_softmax(0)
    entropy = -(logw.exp() * logw).sum()
    return entropy.exp() / len(log_ratio)
''')
wrong("effective_sample_size", "scales by the mean log-ratio, not by the largest, so a far outlier still overflows",
      r"mean|largest|maximum|\bmax\b|amax|outlier|still overflow",
'''def effective_sample_size(log_ratio):
    if log_ratio.numel() == 0: return log_ratio.new_tensor(math.inf)
    w = torch.exp(log_ratio - log_ratio.mean())
    return w.sum().square() / (len(w) * w.square().sum())
''')
wrong("effective_sample_size", "divides by the largest weight instead of the sum of squares",
      r"largest|maximum|\bmax\b|amax|sum of (the )?squares|σ w²|squared weights",
'''def effective_sample_size(log_ratio):
    w = torch.softmax(log_ratio, dim=0)
    if w.numel() == 0: return log_ratio.new_tensor(math.inf)
    return 1 / (w.numel() * w.amax())
''')
wrong("effective_sample_size", "limits the log-ratios to 10 to avoid overflow, which changes the weights",
      r"clamp|limit|clip|\bcut\b|\bcap\b|\b10\b|change|overflow|common factor|truncat|bound",
'''def effective_sample_size(log_ratio):
    w = log_ratio.clamp(-10., 10.).exp()
    s1, s2 = w.sum(), (w * w).sum()
    if len(w) == 0: return s1 + math.inf
    return s1 * s1 / (len(w) * s2)
''')
right("effective_sample_size", '''
def effective_sample_size(log_ratio):
    n = log_ratio.numel()
    if n == 0: return log_ratio.new_tensor(math.inf)
    w = torch.exp(log_ratio - torch.amax(log_ratio, 0))
    return w.mean()**2 / (w * w).mean()
''')

edits("bounded_weights", '''
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    if how == "truncate":
        return ratio.clamp(min=floor).clamp(max=cap)
    inside = (ratio >= floor) & (ratio <= cap)
    return torch.where(inside, ratio, torch.zeros_like(ratio))
''',
    ("a ratio at the end of the bounds is masked, too", r"at the (end|bound|\bcap\b|floor)|end itself|equal|>=|<=|exactly|strict|boundar|on the bound", "(ratio >= floor) & (ratio <= cap)", "(ratio > floor) & (ratio < cap)"),
    ("truncation forgets the floor", r"floor|lower|minimum|small|below|min=", "ratio.clamp(min=floor).clamp(max=cap)", "ratio.clamp(max=cap)"),
    ("the mask forgets the floor", r"floor|lower|minimum|small|below", "(ratio >= floor) & (ratio <= cap)", "ratio <= cap"),
    ("what lies outside is given the weight 1, not 0", r"outside|weighs? 0|\b1\b|\bones\b|zero|\b0\b", "torch.zeros_like(ratio)", "torch.ones_like(ratio)"),
    ("truncate and mask are exchanged", r"exchang|swap|mixed up|\bhow\b|truncat.*mask|mask.*truncat", 'how == "truncate"', 'how == "mask"'))
wrong("bounded_weights", "returns only the ratios inside the bounds, in another shape",
      r"shape|fewer|drop|removes?|select|flatten|entries|index",
'''def bounded_weights(ratio, cap, floor=0., how="truncate"):
    if how == "mask":
        keep = (ratio >= floor) & (ratio <= cap)
        return ratio[keep]
    return torch.clamp(ratio, floor, cap)
''')
wrong("bounded_weights", "truncates before it masks, so nothing is outside any more",
      r"order|before|first|already|nothing (is|lies)|no longer|never|raw|any more",
'''def bounded_weights(ratio, cap, floor=0., how="truncate"):
    bounded = torch.clip(ratio, floor, cap)
    if how == "mask":
        outside = (bounded < floor) | (bounded > cap)
        bounded = bounded.masked_fill(outside, 0.)
    return bounded
''')
wrong("bounded_weights", "a small ratio is moved up to the cap, the wrong end",
      r"nearer|wrong end|\bcap\b|floor|below|small|\blow\b",
'''def bounded_weights(ratio, cap, floor=0., how="truncate"):
    outside = (ratio < floor) | (ratio > cap)
    replacement = 0. if how == "mask" else cap
    return torch.where(outside, torch.full_like(ratio, replacement), ratio)
''')
wrong("bounded_weights", "divides the weights by their mean afterwards",
      r"mean|normali|rescal|divid|self-normali",
'''def bounded_weights(ratio, cap, floor=0., how="truncate"):
    if how == "mask":
        w = ratio.masked_fill((ratio < floor) | (ratio > cap), 0.)
    else:
        w = ratio.clamp(floor, cap)
    return w / w.mean()
''')
wrong("bounded_weights", "one ratio outside masks its whole row",
      r"row|whole|\ball\b|each|every|one ratio|elementwise|alone|\bper\b",
'''def bounded_weights(ratio, cap, floor=0., how="truncate"):
    if how == "truncate":
        return torch.minimum(torch.maximum(ratio, ratio.new_tensor(floor)), ratio.new_tensor(cap))
    inside = (ratio >= floor) & (ratio <= cap)
    return ratio.masked_fill(~inside.all(-1, keepdim=True), 0.)
''')
right("bounded_weights", '''
def bounded_weights(ratio, cap, floor=0., how="truncate"):
    beyond = torch.logical_or(ratio.lt(floor), ratio.gt(cap))
    bounded = torch.clip(ratio, min=floor, max=cap)
    return bounded * ~beyond if how == "mask" else bounded
''')

# ---------------------------------------------------------------- 21 distillation
edits("forward_kl", '''
def forward_kl(logp, teacher_logp, token):
    weight = torch.exp(teacher_logp)
    return torch.einsum("...v,...v->...", weight, teacher_logp - logp)
''',
    ("the weights are the student's probabilities", r"weight|teacher's|student's|teacher_logp\)|torch\.exp\(teacher", "torch.exp(teacher_logp)", "torch.exp(logp)"),
    ("the difference is taken the wrong way round", r"\bsign|wrong way|negative|order|minus|swap|teacher_logp - logp", "teacher_logp - logp", "logp - teacher_logp"),
    ("leaves out the teacher's own term: a cross-entropy", r"cross.?entropy|entropy|teacher_logp -|log π_t|teacher's (own )?(log|term|entropy)|missing", "teacher_logp - logp", "-logp"),
    ("no gradient reaches the student", r"detach|gradient|grad\b", "teacher_logp - logp", "teacher_logp - logp.detach()"),
    ("sums over all axes, so one number is left instead of one for each place", r"axis|axes|all places|each place|last|one number|shape|scalar|\.\.\.", '"...v,...v->..."', '"...v,...v->"'))
wrong("forward_kl", "computes the reverse KL, of the student from the teacher",
      r"reverse|student‖teacher|swap|teacher.*student|exchang|direction|other way|weight",
'''def forward_kl(logp, teacher_logp, token):
    student = torch.distributions.Categorical(logits=logp)
    teacher = torch.distributions.Categorical(logits=teacher_logp)
    return torch.distributions.kl_divergence(student, teacher)
''')
wrong("forward_kl", "averages over the tokens of the vocabulary instead of summing",
      r"mean|average|sum|divid|number of tokens|size of the vocab",
'''def forward_kl(logp, teacher_logp, token):
    p_teacher = teacher_logp.exp()
    gap = p_teacher * (teacher_logp - logp)
    return reduce(gap, "... v -> ...", "mean")
''')
wrong("forward_kl", "reads the gap of the sampled token alone",
      r"sampled|token|all tokens|gather|every|sum|whole vocab|expectation",
'''def forward_kl(logp, teacher_logp, token):
    at = token[..., None]
    mine, theirs = logp.gather(-1, at), teacher_logp.gather(-1, at)
    return (theirs.exp() * (theirs - mine)).squeeze(-1)
''')
wrong("forward_kl", "gives bits, not nats",
      r"bits?\b|nats?\b|log2|\bbase\b|log\(2\)|ln",
'''def forward_kl(logp, teacher_logp, token):
    kl = F.kl_div(logp, teacher_logp, reduction="none", log_target=True)
    return kl.sum(dim=-1) / math.log(2)
''')
wrong("forward_kl", "compares the teacher with the mean of both distributions, as in Jensen-Shannon",
      r"jensen|mixture|mean of (the )?(both|two)|middle|half|midpoint|average of (the )?(both|two)|student alone|only the student|- logp",
'''def forward_kl(logp, teacher_logp, token):
    middle = torch.logaddexp(logp, teacher_logp) - math.log(2)
    return (teacher_logp.exp() * (teacher_logp - middle)).sum(-1)
''')
right("forward_kl", '''
def forward_kl(logp, teacher_logp, token):
    return F.kl_div(logp, teacher_logp, reduction="none", log_target=True).sum(dim=-1)
''')

edits("sampled_kl", '''
def sampled_kl(logp, teacher_logp, token):
    own = torch.take_along_dim(logp, token.unsqueeze(-1), -1).squeeze(-1)
    teachers = torch.take_along_dim(teacher_logp, token.unsqueeze(-1), -1).squeeze(-1)
    r = (teachers - own).detach()
    return -r * own
''',
    ("the reward is no constant: gradient flows through it as well", r"detach|constant|gradient|grad\b", "(teachers - own).detach()", "(teachers - own)"),
    ("the sign is wrong: the loss is r log pi", r"\bsign|minus|negative|-r\b|direction|push", "-r * own", "r * own"),
    ("the log-prob is detached, not the reward", r"detach|gradient|no gradient|grad\b", "(teachers - own).detach()\n    return -r * own", "(teachers - own)\n    return -r * own.detach()"),
    ("the reward leaves out the student's own log-prob", r"own (log|term)|leaves? out|missing|- log π\(|student's (own )?log|- own|difference|only the teacher|teacher's log-prob alone", "(teachers - own).detach()", "teachers.detach()"),
    ("the reward is the difference of the probabilities, not of their logs", r"not (of )?(their |the )?logs?|log-probs?|of (the )?probabilit|difference of (the )?prob|\bexp\b|exp\(", "(teachers - own).detach()", "(teachers.exp() - own.exp()).detach()"),
    ("returns the mean over all places, one number", r"mean|average|each place|one number|scalar|shape|\(\.\.\.\)|per token", "return -r * own", "return (-r * own).mean()"))
wrong("sampled_kl", "takes the gap itself as the loss, whose mean gradient is 0",
      r"gap|difference|multipl|times|log π|-r log|policy.gradient|factor|k1|product|mean gradient",
'''def sampled_kl(logp, teacher_logp, token):
    idx = token[..., None]
    gap = logp.gather(-1, idx) - teacher_logp.gather(-1, idx)
    return gap[..., 0]
''')
wrong("sampled_kl", "reads the student's likeliest token, not the sampled one",
      r"argmax|likeliest|most likely|greedy|sampled|given|token|largest|\bmax\b",
'''def sampled_kl(logp, teacher_logp, token):
    own, best = logp.max(-1)
    teachers = teacher_logp.gather(-1, best[..., None])[..., 0]
    return (own - teachers).detach() * own
''')
wrong("sampled_kl", "weighs the loss by the token's probability once more, though it was sampled",
      r"once more|twice|already|weigh|own\.exp|times the probability|multipl\w+ by (the|its) (token's )?probabilit|double|again",
'''def sampled_kl(logp, teacher_logp, token):
    pick = lambda x: x.gather(-1, token.unsqueeze(-1)).squeeze(-1)
    own, teachers = pick(logp), pick(teacher_logp)
    r = (teachers - own).detach()
    return -(own.exp().detach() * r * own)
''')
wrong("sampled_kl", "sums the loss over the whole vocabulary instead of reading the sampled token",
      r"all tokens|whole|vocab|sum|every|sampled|gather|token is not|not read",
'''def sampled_kl(logp, teacher_logp, token):
    r = teacher_logp - logp
    each = -r.detach() * logp
    return each.sum(-1)
''')
right("sampled_kl", '''
def sampled_kl(logp, teacher_logp, token):
    pick = F.one_hot(token, logp.shape[-1]).bool()
    own = logp.masked_fill(~pick, 0.).sum(-1)
    with torch.no_grad():
        reward = teacher_logp.masked_fill(~pick, 0.).sum(-1) - own
    return torch.neg(reward * own)
''')

edits("fixed_alignment", '''
def fixed_alignment(x, mask):
    rows = [values[m] for values, m in zip(x, mask)]
    out = x.new_zeros(len(x), max(len(r) for r in rows))
    for i, r in enumerate(rows): out[i, :len(r)] = r
    return out
''',
    ("the result is as wide as x, not as the longest response", r"wid(e|th)|longest|largest|columns|shape|too many|\br\b|max\(", "max(len(r) for r in rows)", "x.shape[1]"),
    ("moves the values to the right end of the row", r"right|left|column 0|start|end of the row", "out[i, :len(r)] = r", "out[i, out.shape[1] - len(r):] = r"),
    ("shorter rows end with nan, not with 0", r"nan|zero|\b0\b|fill|pad|new_zeros", "x.new_zeros(len(x), max(len(r) for r in rows))", "x.new_full((len(x), max(len(r) for r in rows)), math.nan)"),
    ("takes the values where the mask is False", r"false|invert|~|opposite|where mask is true|prompt", "values[m]", "values[~m]"),
    ("the order within a row is reversed", r"order|revers|flip|backward", "= r\n", "= r.flip(0)\n"))
wrong("fixed_alignment", "drops only the columns that no row needs, so rows still start in different columns",
      r"column|row by row|each row|per row|its own|start|all rows|move|any\(",
'''def fixed_alignment(x, mask):
    kept = (x * mask)[:, mask.any(0)]
    r = int(mask.sum(1).max())
    return kept[:, :r]
''')
wrong("fixed_alignment", "takes a stretch from the first response place on, so a gap in the mask and what follows a short response are copied, too",
      r"gap|stretch|contiguous|slice|first (true|place|column)|where mask is true|follows|shorter row|after the response|ends? with 0|false",
'''def fixed_alignment(x, mask):
    r = int(mask.sum(1).max())
    first = mask.int().argmax(1)
    padded = F.pad(x, (0, r))
    return torch.stack([row[i:i + r] for row, i in zip(padded, first.tolist())])
''')
wrong("fixed_alignment", "sorts the values by size instead of keeping their order",
      r"sort|order|size|descending|largest value",
'''def fixed_alignment(x, mask):
    n = mask.sum(1)
    low = x.masked_fill(~mask, -torch.inf).sort(1, descending=True).values
    low = low[:, :int(n.max())]
    return low.masked_fill(low == -torch.inf, 0.)
''')
wrong("fixed_alignment", "leaves out values that are 0 though the mask is True",
      r"values? (of|that (is|are)|equal to) (0|zero)|zeros?\b|!= 0|nonzero|that (is|are) 0|is 0",
'''def fixed_alignment(x, mask):
    masked = x * mask
    rows = [row[row != 0] for row in masked]
    r = int(mask.sum(1).max())
    return torch.stack([F.pad(row, (0, r - len(row))) for row in rows])
''')
wrong("fixed_alignment", "fills the result column by column, so values land in other rows",
      r"row by row|column by column|transpos|other rows?|wrong rows?|\.t\b|order",
'''def fixed_alignment(x, mask):
    n = mask.sum(1)
    out = x.new_zeros(len(x), int(n.max()))
    place = torch.arange(out.shape[1]) < n[:, None]
    out[place] = x.T[mask.T]
    return out
''')
right("fixed_alignment", '''
def fixed_alignment(x, mask):
    order = (~mask).int().argsort(dim=1, stable=True)
    moved = x.gather(1, order).masked_fill(~mask.gather(1, order), 0)
    return moved[:, :int(mask.sum(1).max())]
''')

# ---------------------------------------------------------------- 22 rubrics
edits("rubric_reward", '''
def rubric_reward(marks, weights, gates):
    earned = (marks * weights).sum(-1)
    best = weights[weights > 0].sum()
    passed = (marks[:, gates] > 0).all(1)
    return earned / best * passed
''',
    ("divides by the sum of all points, the faults' negative ones included", r"(all|every) (points|weights)|below the line|denominator|divid|can be (earned|had)|clamp|positive|above 0|weights > 0", "weights[weights > 0].sum()", "weights.sum()"),
    ("one gate that is met opens all of them", r"any|one gate|all (gates|of them)|every gate|each gate|\.all\(|prod", ".all(1)", ".any(1)"),
    ("the gates are ignored", r"ignor|no gates?|gates? (is|are|play|has|have|do|does|never)|without (the )?gates?|shut|forget|gate is not met|not (used|read)|passed|missing", " * passed", ""),
    ("a fault takes no points away", r"takes? (no|nothing)|take.*away|subtract|minus|earned|numerator|no points|cost|fault.*(ignored|nothing|0)|clamp", "(marks * weights).sum(-1)", "(marks * weights.clamp(min=0)).sum(-1)"),
    ("gives the points, not their share", r"share|divid|at most 1|fraction|/ best|not a share|proportion", "earned / best", "earned"),
    ("the condition is put on the items that are no gates", r"no gates|not gates|invert|~|opposite|other items|items that are (no|not)|wrong items|marks\[:, gates\]", "marks[:, gates]", "marks[:, ~gates]"))
wrong("rubric_reward", "counts the size of a fault among the points that can be earned",
      r"\babs|size|absolute|magnitude|denominator|divid|below the line|can be (earned|had)|clamp|above 0",
'''def rubric_reward(marks, weights, gates):
    share = einsum(marks, weights, "b k, k -> b") / weights.abs().sum()
    return share * marks[:, gates].prod(1)
''')
wrong("rubric_reward", "the gates' own points are left out of the sum and of the total",
      r"gate'?s?'? (own )?points|points of (the )?gates?|left out|gates? (earn|count)|also (earn|count)|exclud|all points|not counted",
'''def rubric_reward(marks, weights, gates):
    graded = ~gates
    w = weights[graded]
    share = (marks[:, graded] * w).sum(1) / w.clamp(min=0).sum()
    return torch.where(marks[:, gates].bool().all(1), share, torch.zeros_like(share))
''')
wrong("rubric_reward", "a shut gate of one answer sets the whole batch to 0",
      r"batch|whole|other answers?|all answers|row|each answer|per answer|axis|dim",
'''def rubric_reward(marks, weights, gates):
    if not bool((marks[:, gates] == 1).all()):
        return torch.zeros(len(marks), dtype=weights.dtype)
    return (marks @ weights) / weights.clamp(min=0).sum()
''')
wrong("rubric_reward", "pays for a fault that was avoided instead of taking points away for one that was made",
      r"avoid|1 - mark|not made|not met|absent|rewarded for not|take.*away|without the fault|missing fault",
'''def rubric_reward(marks, weights, gates):
    met = torch.where(weights < 0, 1 - marks, marks)
    size = weights.abs()
    share = (met * size).sum(1) / size.sum()
    return share * marks[:, gates].prod(1)
''')
right("rubric_reward", '''
def rubric_reward(marks, weights, gates):
    rows = []
    for row in marks:
        share = torch.dot(row.to(weights.dtype), weights) / torch.relu(weights).sum()
        shut = any(g and m == 0 for g, m in zip(gates.tolist(), row.tolist()))
        rows.append(share * (0. if shut else 1.))
    return torch.stack(rows)
''')

edits("normalised_sum", '''
def normalised_sum(rewards, weights, group):
    total = torch.zeros_like(rewards[:, 0])
    for k in range(rewards.shape[1]):
        total = total + weights[k] * group_normalised(rewards[:, k], group)
    nobody = rewards.isnan().all(1)
    return torch.where(nobody, torch.full_like(total, math.nan), total)
''',
    ("the weights are applied before the normalisation, which divides them out again", r"weight|before|after|divided out|cancel|order", "weights[k] * group_normalised(rewards[:, k], group)", "group_normalised(weights[k] * rewards[:, k], group)"),
    ("a row that one reward did not score becomes nan, though others scored it", r"\bany\b|\ball\b|no reward|others? scored|one (reward|nan)|nobody|every", ".all(1)", ".any(1)"),
    ("a row that nobody scored gets 0, not nan", r"nan|nobody|no reward|not scored|unscored", "return torch.where(nobody, torch.full_like(total, math.nan), total)", "return total"),
    ("normalises over the whole batch, not within the group", r"group|whole batch|across prompts|all rows together|zeros_like", "rewards[:, k], group)", "rewards[:, k], torch.zeros_like(group))"),
    ("subtracts the mean only and does not divide by the standard deviation", r"std|standard deviation|does not divide|not divided|only cent(re|er)|cent(re|er)(s|ed) only|mean only|only the mean|group_centered", "group_normalised(", "group_centered("),
    ("the weights are left out", r"weight|w_k", "weights[k] * ", ""))
wrong("normalised_sum", "sums the rewards first and normalises the sum",
      r"first|order|before|separately|each reward|sum.*normali|normali.*sum|apart|after",
'''def normalised_sum(rewards, weights, group):
    total = (rewards.nan_to_num(0.) * weights).sum(1)
    total = total.masked_fill(rewards.isnan().all(1), torch.nan)
    return group_normalised(total, group).masked_fill(total.isnan(), torch.nan)
''')
wrong("normalised_sum", "takes a missing score for 0, so it enters the group's mean and deviation",
      r"missing|nan|not scored|unscored|skip|zero|\b0\b",
'''def normalised_sum(rewards, weights, group):
    nobody = rewards.isnan().all(dim=1)
    filled = torch.nan_to_num(rewards, nan=0.)
    each = torch.stack([group_normalised(col, group) for col in filled.unbind(1)], dim=1)
    return (each * weights).sum(1).masked_fill(nobody, torch.nan)
''')
wrong("normalised_sum", "normalises once more over the whole batch at the end, the step that does not belong here",
      r"batch|once more|again|whole|before its|second|at the end|extra|final|last step|twice",
'''def normalised_sum(rewards, weights, group):
    each = torch.stack([group_normalised(r, group) for r in rewards.T], 1)
    a = (each * weights).sum(1)
    scored = ~rewards.isnan().all(1)
    a = (a - a[scored].mean()) / (a[scored].std() + 1e-4)
    return torch.where(scored, a, torch.full_like(a, torch.nan))
''')
wrong("normalised_sum", "takes a weighted mean: the sum is divided by the weights' total",
      r"weighted mean|weighted average|sum of (the )?weights|weights' (total|sum)|weights\.sum|total weight|not (a )?mean|instead of (the |a )?sum|average",
'''def normalised_sum(rewards, weights, group):
    columns = [w * group_normalised(r, group) for w, r in zip(weights, rewards.T)]
    out = sum(columns) / weights.sum()
    out[rewards.isnan().all(1)] = math.nan
    return out
''')
right("normalised_sum", '''
def normalised_sum(rewards, weights, group):
    each = torch.stack([group_normalised(column, group) for column in rewards.unbind(1)])  # (k b)
    out = (weights.unsqueeze(1) * each).sum(dim=0)
    out[torch.isnan(rewards).sum(1) == rewards.shape[1]] = float("nan")
    return out
''')

edits("parse_rubric", '''
def parse_rubric(reply, items):
    out = []
    for item in items:
        verdict = math.nan
        for m in re.finditer(r"\\b" + re.escape(item) + r": (yes|no)\\b", reply):
            verdict = 1. if m.group(1) == "yes" else 0.
        out.append(verdict)
    return out
''',
    ("an item without a verdict gets 0, not nan", r"nan|no verdict|without a verdict|missing|not (given|found)", "verdict = math.nan", "verdict = 0."),
    ("the name may be the end of a longer word, so a verdict on another item counts", r"edge|\\b|word boundary|boundary|unclean|another item|part of|longer (name|word)|inside", 'r"\\b" + re.escape', "re.escape"),
    ("nothing is read as a no, because the verdict may be the beginning of a longer word", r"nothing|edge|\\b|word boundary|boundary|longer word|begin|start|prefix", '(yes|no)\\b"', '(yes|no)"'),
    ("the name of an item is taken for a pattern, not literally", r"escape|literal|pattern|special|regex|character|\bdot\b|meta", "re.escape(item)", "item"),
    ("yes and no are exchanged", r"exchang|swap|invert|yes|other way|opposite|revers", '== "yes"', '== "no"'))
wrong("parse_rubric", "the first verdict counts, not the last",
      r"first|\[-1\]|re\.search|last verdict|later",
'''def parse_rubric(reply, items):
    marks = []
    for item in items:
        hit = re.search(rf"\\b{re.escape(item)}: (yes|no)\\b", reply)
        if hit is None: marks.append(math.nan)
        else: marks.append(1. if hit[1] == "yes" else 0.)
    return marks
''')
wrong("parse_rubric", "gives the verdicts in the order of the reply and leaves out items without one",
      r"order|length|leaves? out|missing|fewer|each item|for each|k of|too (short|many|long)|items",
'''def parse_rubric(reply, items):
    last = {}
    for name, verdict in re.findall(r"\\b(\\w+): (yes|no)\\b", reply):
        if name in items: last[name] = float(verdict == "yes")
    return list(last.values())
''')
wrong("parse_rubric", "one yes anywhere decides, though a later no should count",
      r"\bany\b|one yes|a yes|anywhere|\bever\b|last verdict|later no|once",
'''def parse_rubric(reply, items):
    def verdict(item):
        found = re.findall(rf"\\b{re.escape(item)}: (yes|no)\\b", reply)
        if not found: return math.nan
        return 1. if "yes" in found else 0.
    return [verdict(item) for item in items]
''')
wrong("parse_rubric", "reads names of one word only, so an item of two words is lost or its last word passes for an item",
      r"two words|one word|several words|space|\\w|names?|multi|literal|escape",
'''def parse_rubric(reply, items):
    last = dict(re.findall(r"\\b(\\w+): (yes|no)\\b", reply))
    out = []
    for item in items:
        if item in last: out.append(1. if last[item] == "yes" else 0.)
        else: out.append(math.nan)
    return out
''')
wrong("parse_rubric", "averages all verdicts on an item instead of taking the last",
      r"average|mean|all verdicts|half|\.5|share of",
'''def parse_rubric(reply, items):
    out = []
    for item in items:
        votes = [v == "yes" for v in re.findall(rf"\\b{re.escape(item)}: (yes|no)\\b", reply)]
        out.append(sum(votes) / len(votes) if votes else math.nan)
    return out
''')
right("parse_rubric", '''
def parse_rubric(reply, items):
    out = []
    for item in items:
        last = re.search(rf"(?s:.*)\\b{re.escape(item)}: (yes|no)\\b", reply)   # .* is greedy
        out.append(math.nan if last is None else float(last[1] == "yes"))
    return out
''')

# ---------------------------------------------------------------- 23 tools
edits("turn_numbers", '''
def turn_numbers(mask):
    out = torch.full(mask.shape, -1)
    for i, row in enumerate(mask.tolist()):
        turn, inside = -1, False
        for j, wrote in enumerate(row):
            if wrote:
                if not inside: turn += 1
                out[i, j] = turn
            inside = wrote
    return out
''',
    ("the first turn is number 1, not 0", r"from 1|from 0|number 0|first turn|off by one|- 1|one too (high|large|many)|start", "turn, inside = -1, False", "turn, inside = 0, False"),
    ("tokens that nobody wrote get 0, the number of the first turn", r"-1|outside|not written|nobody|inserted|not the model|masked|else", "torch.full(mask.shape, -1)", "torch.full(mask.shape, 0)"),
    ("every token begins a new turn", r"(each|every) token|token number|counts tokens|inside|same turn|a turn begins|begins only|beginnings", "                if not inside: turn += 1\n", "                turn += 1\n"),
    ("a response that starts in the first column has no first turn: the place before it counts as written", r"first (token|column|place) (is|counts|of|as)|in the first column|before the first|row starts|starts? (in|at|with)|counts as (written|false|inside)|inside|missing first turn|no first turn", "turn, inside = -1, False", "turn, inside = -1, True"))
wrong("turn_numbers", "looks at the last column for what came before the first one",
      r"roll|wrap|last (column|token)|first (column|token)|before the first|around",
'''def turn_numbers(mask):
    before = torch.roll(mask, 1, dims=1)
    begins = mask & ~before
    return torch.where(mask, begins.cumsum(1) - 1, -1)
''')
wrong("turn_numbers", "the tokens of a gap keep the number of the turn before them",
      r"gap|-1|not written|inserted|outside|masked_fill|mask is false|else|between",
'''def turn_numbers(mask):
    m = mask.long()
    begins = (torch.diff(m, dim=1, prepend=torch.zeros_like(m[:, :1])) == 1)
    return begins.long().cumsum(1) - 1
''')
wrong("turn_numbers", "goes on counting from one row to the next",
      r"row|flatten|next|each response|batch|restart|start again|reset|\bown\b|along",
'''def turn_numbers(mask):
    before = F.pad(mask.long(), (1, 0))[:, :-1]
    begins = (mask.long() - before) == 1
    number = begins.flatten().cumsum(0).view_as(mask) - 1
    return number.masked_fill(~mask, -1)
''')
wrong("turn_numbers", "every inserted token adds one, so a gap of two tokens skips a number",
      r"gap|inserted|every|each|several|length of|long|skip|\btwo\b|cumsum|number of (false|tokens)",
'''def turn_numbers(mask):
    gaps = (~mask).cumsum(1)
    first = torch.stack([g[m].min() if m.any() else g.new_zeros(()) for g, m in zip(gaps, mask)])
    return (gaps - first[:, None]).masked_fill(~mask, -1)
''')
wrong("turn_numbers", "counts the ends of turns as well as the beginnings, so the second turn is number 2",
      r"ends? of|edges?|both|change|twice|step of two|skip|two for each|also counts|falls?\b",
'''def turn_numbers(mask):
    padded = torch.cat([torch.zeros_like(mask[:, :1]), mask], dim=1)
    changes = padded[:, 1:] != padded[:, :-1]
    return torch.where(mask, changes.cumsum(1) - 1, torch.full_like(mask, -1, dtype=torch.long))
''')
wrong("turn_numbers", "numbers the turns from the end: the last one is 0",
      r"from the end|last (turn|one)|revers|backward|order|flip|right to left",
'''def turn_numbers(mask):
    back = mask.flip(1)
    previous = torch.cat([torch.zeros_like(back[:, :1]), back[:, :-1]], 1)
    number = (back & ~previous).cumsum(1) - 1
    return number.flip(1).masked_fill(~mask, -1)
''')
right("turn_numbers", '''
def turn_numbers(mask):
    begins = mask.long().diff(dim=1, prepend=mask.new_zeros(len(mask), 1).long()) == 1
    return torch.where(mask, begins.cumsum(1) - 1, -1)
''')

edits("turn_advantages", '''
def turn_advantages(reward, group, turn):
    there = ~reward.isnan()
    to_go, running = torch.zeros_like(reward), torch.zeros_like(reward[:, 0])
    for k in reversed(range(reward.shape[1])):
        running = running + torch.where(there[:, k], reward[:, k], torch.zeros_like(running))
        to_go[:, k] = running
    out = torch.zeros(turn.shape, dtype=reward.dtype)
    for k in range(reward.shape[1]):
        for g in group.unique():
            rows = (group == g) & there[:, k]
            a = to_go[rows, k] - to_go[rows, k].mean()
            out[rows] += (turn[rows] == k) * a[:, None]
    return out
''',
    ("credits a turn with its own reward only, not with those that follow", r"to go|follow|later|own reward|from (that|a) turn|onwards|cumsum|sum", "        to_go[:, k] = running\n", "        to_go[:, k] = torch.where(there[:, k], reward[:, k], torch.zeros_like(running))\n"),
    ("sums from the first turn on, so a turn is credited with what came before it", r"backward|before|earlier|flip|past|from the (first|last)|direction|reversed|to go|order", "reversed(range(reward.shape[1]))", "range(reward.shape[1])"),
    ("rows without the turn are in its mean, as 0", r"without (the|that|this|such a) turn|\bnan\b|have (it|that)|no such turn|not (there|have)|lack|as 0|zeros?\b|rows with", "(group == g) & there[:, k]", "group == g"),
    ("the mean is over the whole batch, not over the group", r"whole batch|over the batch|all rows|other prompts?|same prompt|groups?\b.*(ignored|not|\bown\b|only|each|its)|not .*group", "for g in group.unique():\n            rows = (group == g) & there[:, k]", "for g in [0]:\n            rows = there[:, k]"),
    ("adds the mean instead of subtracting it", r"\bsign|subtract|minus|\bless\b|plus|adds?", "to_go[rows, k] - to_go[rows, k].mean()", "to_go[rows, k] + to_go[rows, k].mean()"))
wrong("turn_advantages", "credits every turn with the rewards of the whole response",
      r"whole (response|return|row|reward)|total|all (its )?(turns|rewards)|every turn|to go|before (it|the turn)|earlier|came before",
'''def turn_advantages(reward, group, turn):
    total = reward.nansum(1, keepdim=True).expand_as(reward).masked_fill(reward.isnan(), math.nan)
    a = torch.stack([group_centered(c, group) for c in total.T], 1)
    return a.gather(1, turn.clamp(min=0)).masked_fill(turn < 0, 0.)
''')
wrong("turn_advantages", "tokens that were not written get the advantage of the first turn",
      r"not written|nothing was written|-1|\b0\b|mask|inserted|outside|clamp",
'''def turn_advantages(reward, group, turn):
    to_go = reward.nan_to_num(0.).flip(1).cumsum(1).flip(1).masked_fill(reward.isnan(), math.nan)
    columns = [group_centered(to_go[:, k], group) for k in range(to_go.shape[1])]
    return torch.stack(columns, 1).gather(1, turn.clamp(min=0))
''')
wrong("turn_advantages", "divides by the group's standard deviation as well",
      r"std|standard deviation|divid|normalis|normaliz|only the mean|centred|centered",
'''def turn_advantages(reward, group, turn):
    rest = reward.nan_to_num(0.)
    to_go = rest.sum(1, keepdim=True) - rest.cumsum(1) + rest
    to_go[reward.isnan()] = math.nan
    a = torch.stack([group_normalised(x, group) for x in to_go.unbind(1)], 1)
    return torch.where(turn < 0, 0., a.gather(1, turn.clamp(min=0)))
''')
wrong("turn_advantages", "leaves nan in the sum, so a response with fewer turns loses all its credit",
      r"nan|fewer turns|no such turn|missing|shorter|not there|adds nothing",
'''def turn_advantages(reward, group, turn):
    to_go = reward.flip(1).cumsum(1).flip(1)
    a = torch.stack([group_centered(x, group) for x in to_go.T], 1)
    per_token = a.gather(1, turn.clamp(min=0))
    return per_token.masked_fill(turn < 0, 0.)
''')
wrong("turn_advantages", "one mean over all turns of the group, not one for each turn",
      r"each turn|that turn|all turns|per turn|every turn|one mean|pool|same turn|column|turn'?s own|separate",
'''def turn_advantages(reward, group, turn):
    b, k = reward.shape
    rest = reward.nan_to_num(0.)
    to_go = torch.stack([rest[:, i:].sum(1) for i in range(k)], 1)
    to_go = to_go.masked_fill(reward.isnan(), math.nan)
    a = torch.zeros_like(to_go)
    for g in group.unique():
        a[group == g] = to_go[group == g] - to_go[group == g].nanmean()
    return a.nan_to_num(0.).gather(1, turn.clamp(min=0)).masked_fill(turn < 0, 0.)
''')
right("turn_advantages", '''
def turn_advantages(reward, group, turn):
    filled = reward.nan_to_num(0.)
    out = torch.zeros(turn.shape, dtype=reward.dtype)
    for k in range(reward.shape[1]):
        to_go = filled[:, k:].sum(1).masked_fill(reward[:, k].isnan(), torch.nan)
        out = torch.where(turn == k, group_centered(to_go, group)[:, None], out)
    return out
''')

edits("fixed_join", '''
def fixed_join(prompt, parts):
    ids, wrote = [], []
    for k, part in enumerate([prompt, *parts]):
        ids.extend(part)
        wrote.extend([k % 2 == 1] * len(part))
    return ids, wrote
''',
    ("written and inserted parts are exchanged", r"exchang|swap|other way|invert|\beven\b|\bodd\b|opposite|alternat|% 2|first part|wrong parts|revers", "k % 2 == 1", "k % 2 == 0"),
    ("everything behind the prompt counts as written, inserted parts included", r"inserted|every(thing| part)|alternat|all parts|% 2|\beven\b|tool", "k % 2 == 1", "k > 0"),
    ("one bool for each part, not for each id", r"each id|per id|each part|per part|len\(part\)|length|one (bool|flag|true|entry)", "wrote.extend([k % 2 == 1] * len(part))", "wrote.append(k % 2 == 1)"),
    ("the parts stay lists of their own within the ids", r"nested|append|list of lists|extend|flat|\+=|lists? (in|within|of)", "ids.extend(part)", "ids.append(part)"),
    ("returns the bools first and the ids second", r"order|swap|exchang|first|ids, wrote|return", "return ids, wrote", "return wrote, ids"))
wrong("fixed_join", "extends the caller's prompt itself",
      r"caller|mutat|copy|in place|same list|new list|list\(prompt\)|changes? the|\bprompt\b.*(stays|grows|longer)",
'''def fixed_join(prompt, parts):
    written = [False] * len(prompt)
    ids = prompt
    for k, part in enumerate(parts):
        ids += part
        written += [k % 2 == 0] * len(part)
    return ids, written
''')
wrong("fixed_join", "the prompt counts as written by the model",
      r"prompt (is|counts|was|as|marked|ids? (is|are|count))|prompt.*not written|false\] \* len\(prompt|marks the prompt",
'''def fixed_join(prompt, parts):
    ids, written = list(prompt), [True for _ in prompt]
    by_model = True
    for part in parts:
        ids = ids + list(part)
        written = written + [by_model for _ in part]
        by_model = not by_model
    return ids, written
''')
wrong("fixed_join", "the bools leave the prompt out and are shorter than the ids",
      r"short|length|as long|fewer|missing|leaves? (the prompt )?out|no bools? for|for the prompt",
'''def fixed_join(prompt, parts):
    ids = list(itertools.chain(prompt, *parts))
    written = [k % 2 == 0 for k, part in enumerate(parts) for _ in part]
    return ids, written
''')
wrong("fixed_join", "drops empty parts before it counts, so the parts after one change sides",
      r"empty|skip|drop|filter|parity|number of a part|count",
'''def fixed_join(prompt, parts):
    ids, written = list(prompt), [False] * len(prompt)
    full = [p for p in parts if p]
    for k in range(len(full)):
        for token in full[k]:
            ids.append(token)
            written.append(k % 2 == 0)
    return ids, written
''')
wrong("fixed_join", "puts all written parts before all inserted ones",
      r"order|before all|first|group|sort|alternat|interleav|after",
'''def fixed_join(prompt, parts):
    model, tool = sum(parts[0::2], []), sum(parts[1::2], [])
    ids = [*prompt, *model, *tool]
    written = [False] * len(prompt) + [True] * len(model) + [False] * len(tool)
    return ids, written
''')
right("fixed_join", '''
def fixed_join(prompt, parts):
    whose = itertools.chain([False], itertools.cycle([True, False]))
    pairs = [(token, by_model) for part, by_model in zip([prompt] + list(parts), whose) for token in part]
    return [token for token, _ in pairs], [by_model for _, by_model in pairs]
''')

edits("majority_vote", '''
def majority_vote(answers):
    votes = {}
    for x in answers:
        if x is not None: votes[x] = votes.get(x, 0) + 1
    return max(votes, key=votes.get) if votes else None
''',
    ("an answer that is 0 does not vote, because it counts as false", r"\b0\b|zero|falsy|false|truth|is not none|empty (text|string)", "if x is not None:", "if x:"),
    ("samples without an answer vote, too", r"none|without an answer|no answer|holds no", "if x is not None: votes", "votes"),
    ("samples that all hold no answer make it crash", r"none|empty|crash|valueerror|indexerror|no (answer|vote)s?|all hold|if votes", " if votes else None", ""),
    ("returns the count of the winner, not the winner", r"returns? (the|its|a) (count|number)|how often|count of|the count|number of votes|answer itself|winner|votes instead", "max(votes, key=votes.get)", "max(votes.values())"),
    ("returns the largest answer, not the most frequent", r"largest|biggest|highest|greatest|maximum|most frequent|key=", "max(votes, key=votes.get)", "max(votes)"))
wrong("majority_vote", "of equals the one that came last wins",
      r"\btie|equal|came first|came last|last|order|revers|first",
'''def majority_vote(answers):
    votes = Counter(x for x in reversed(answers) if x is not None)
    return votes.most_common(1)[0][0] if votes else None
''')
wrong("majority_vote", "returns nothing unless more than half of the samples agree",
      r"half|absolute|more than|majority|most frequent|plurality|none",
'''def majority_vote(answers):
    given = [x for x in answers if x is not None]
    for x in given:
        if given.count(x) > len(given) / 2:
            return x
    return None
''')
wrong("majority_vote", "counts only equal answers that stand next to each other",
      r"next to|neighbou?r|consecutive|\brun|adjacent|groupby|in a row|sort|all samples|apart",
'''def majority_vote(answers):
    runs = [(k, len(list(g))) for k, g in itertools.groupby(x for x in answers if x is not None)]
    if not runs:
        return None
    return max(runs, key=lambda r: r[1])[0]
''')
wrong("majority_vote", "returns the pair of answer and count",
      r"pair|tuple|answer and (its )?count|with (its|the) count|\[0\]|answer (alone|itself|only)",
'''def majority_vote(answers):
    counted = Counter([x for x in answers if x is not None])
    if len(counted) == 0: return None
    return counted.most_common(1)[0]
''')
wrong("majority_vote", "takes the median of the answers",
      r"median|middle|most frequent|mode\b",
'''def majority_vote(answers):
    given = [x for x in answers if x is not None]
    return statistics.median_low(given) if given else None
''')
right("majority_vote", '''
def majority_vote(answers):
    given = [x for x in answers if x is not None]
    if not given: return None
    return max(given, key=given.count)
''')

# ---------------------------------------------------------------- 24 win_rate
edits("prediction_powered", '''
def prediction_powered(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    n, m = judge.size(-1), gold.size(-1)
    estimate = gold.mean(-1) + lam * (judge.mean(-1) - labelled.mean(-1))
    rest = gold - lam.unsqueeze(-1) * labelled
    error2 = rest.var(-1) / m + lam.square() * judge.var(-1) / n
    return estimate, error2.sqrt()
''',
    ("the bracket has the wrong sign: the labelled less the others", r"\bsign|bracket|minus|other way|order|swap|labelled less|judge\.mean", "judge.mean(-1) - labelled.mean(-1)", "labelled.mean(-1) - judge.mean(-1)"),
    ("lambda is missing in the estimate", r"(λ|lam|lambda).{0,40}(missing|bracket|estimate|not (multipl|us)|ignored|left out|nowhere|mean)|(missing|without|ignor|no|not multiplied by|times) .{0,15}(λ|lam|lambda)|estimate.{0,40}(λ|lam\b|lambda)", "lam * (judge.mean(-1)", "(judge.mean(-1)"),
    ("lambda is not squared in the error", r"squared?\b.{0,30}(λ|lam)|(λ|lam|lambda).{0,40}squared?|λ²|λ\^2|lam\*\*2|lam ?\*\* ?2", "lam.square()", "lam"),
    ("returns the squared error, without the root", r"root|sqrt|squared error|variance (is|and) (not|returned)|error²|error2", "error2.sqrt()", "error2"),
    ("n and m are exchanged in the error", r"exchang|swap|\bn\b|\bm\b|other way|number of (pairs|labels)", "rest.var(-1) / m + lam.square() * judge.var(-1) / n", "rest.var(-1) / n + lam.square() * judge.var(-1) / m"),
    ("the variances divide by the number and not by one less", r"n ?[-−] ?1|n - 1|one less|unbiased|correction|population|bessel", ".var(-1)", ".var(-1, correction=0)"))
wrong("prediction_powered", "the error knows the labels' variance only, not that of label less λ times verdict",
      r"g - λ|gold - lam|label less|difference|residual|corrected|var\(g|covarian|labels? alone|only (of )?the labels|labels' variance|variance of (the )?labels?|gold\.var",
'''def prediction_powered(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    mean = gold.mean(dim=-1) + lam * (judge.mean(dim=-1) - labelled.mean(dim=-1))
    error2 = gold.var(dim=-1) / gold.shape[-1] + lam ** 2 * judge.var(dim=-1) / judge.shape[-1]
    return mean, torch.sqrt(error2)
''')
wrong("prediction_powered", "the judge's mean is taken over all pairs, the labelled ones included",
      r"others?\b|all pairs|labelled (ones|pairs)? ?(includ|too|as well)|\bcat\b|includ|without a label|joined|pool",
'''def prediction_powered(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    every = torch.cat([judge, labelled], dim=-1)
    mean = gold.mean(-1) + lam * (every.mean(-1) - labelled.mean(-1))
    left = gold - lam[..., None] * labelled
    return mean, (left.var(-1) / gold.shape[-1] + lam**2 * every.var(-1) / every.shape[-1]).sqrt()
''')
wrong("prediction_powered", "adds the two standard errors instead of their squares",
      r"adds? (the )?(two )?(standard )?(errors|deviations|roots)|squares? (are|must|should|add)|sum of (the )?squares|variances? (add|are added|must)|std|standard deviation|before the root|under (the|one) root|root of the sum|instead of their squares",
'''def prediction_powered(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    left = gold - lam[..., None] * labelled
    mean = left.mean(-1) + lam * judge.mean(-1)
    e1 = left.std(-1) / math.sqrt(gold.shape[-1])
    e2 = lam.abs() * judge.std(-1) / math.sqrt(judge.shape[-1])
    return mean, e1 + e2
''')
wrong("prediction_powered", "mixes labels and verdicts with shares 1 - λ and λ, so with λ = 1 no label counts",
      r"1 - λ|1 - lam|mix|interpol|weighted (mean|average)|no label|labels? (no longer|never|not) |bracket|bias|judge'?s? (mean )?alone",
'''def prediction_powered(judge, labelled, gold, lam=1.):
    lam = torch.as_tensor(lam)
    mean = (1 - lam) * gold.mean(-1) + lam * judge.mean(-1)
    left = gold - lam[..., None] * labelled
    var = left.var(-1) / gold.shape[-1] + lam**2 * judge.var(-1) / judge.shape[-1]
    return mean, var.sqrt()
''')
right("prediction_powered", '''
def prediction_powered(judge, labelled, gold, lam=1.):
    def spread(x): # squared error of a mean over the last axis
        centred = x - x.mean(-1, keepdim=True)
        k = x.shape[-1]
        return centred.square().sum(-1) / (k - 1 if k > 1 else math.nan) / k
    lam = torch.as_tensor(lam)
    bracket = reduce(judge, "... n -> ...", "mean") - reduce(labelled, "... m -> ...", "mean")
    return (gold.mean(-1) + lam * bracket,
            torch.sqrt(spread(gold - lam[..., None] * labelled) + lam * lam * spread(judge)))
''')

edits("rogan_gladen", '''
def rogan_gladen(judge, labelled, gold):
    sens = (labelled * gold).sum(-1) / gold.sum(-1)
    spec = ((1 - labelled) * (1 - gold)).sum(-1) / (1 - gold).sum(-1)
    p = judge.mean(-1)
    return (p + spec - 1) / (sens + spec - 1)
''',
    ("the sensitivity stands where the specificity belongs, above the line", r"sensitivity|specificity|q0|q_0|q₀|spec\b|exchang|swap|numerator", "(p + spec - 1)", "(p + sens - 1)"),
    ("the sensitivity divides by what the judge called a win: that is its precision", r"precision|sensitivity|gold\.sum|number of wins|denominator|divid|judge called|labels", "(labelled * gold).sum(-1) / gold.sum(-1)", "(labelled * gold).sum(-1) / labelled.sum(-1)"),
    ("the win rate of the judge is that on the labelled pairs, not on the others", r"without a label|the others|win rate on|judge\.mean|unlabelled|on the labelled|of the labelled pairs|from the labelled", "judge.mean(-1)", "labelled.mean(-1)"),
    ("the 1 is missing below the line", r"- 1|minus 1|\b1\b|denominator|below the line", "/ (sens + spec - 1)", "/ (sens + spec)"),
    ("takes the share of wrong verdicts on A's wins for the specificity", r"specificity|1 - labelled|false positive|1 - q|wrong|complement|says a|seen from a", "(1 - labelled) * (1 - gold)", "labelled * (1 - gold)"),
    ("reduces over all axes, so several samples become one", r"axis|axes|last|dim|batch|sample|leading|\.\.\.|shape|-1", "judge.mean(-1)", "judge.mean()"))
wrong("rogan_gladen", "pairs labelled as ties are left out of the judge's errors",
      r"ties?\b|half|\.5|½|weight",
'''def rogan_gladen(judge, labelled, gold):
    won, lost = (gold == 1).float(), (gold == 0).float()
    q1 = (labelled * won).sum(-1) / won.sum(-1)
    q0 = ((1 - labelled) * lost).sum(-1) / lost.sum(-1)
    return (judge.mean(-1) + q0 - 1) / (q0 + q1 - 1)
''')
wrong("rogan_gladen", "divides by the number of labelled pairs, not by the wins and by the losses among them",
      r"number of (labelled )?pairs|\bm\b|mean|joint|conditional|gold\.sum|wins|divid|denominator|shape",
'''def rogan_gladen(judge, labelled, gold):
    m = gold.shape[-1]
    q1 = torch.einsum("...m,...m->...", labelled, gold) / m
    q0 = torch.einsum("...m,...m->...", 1 - labelled, 1 - gold) / m
    return (judge.mean(-1) + q0 - 1) / (q0 + q1 - 1)
''')
wrong("rogan_gladen", "runs the formula forwards: gives what the judge would say, not the win rate behind what it says",
      r"forward|invert|invers|solved?|direction|q1 w|divid|other way",
'''def rogan_gladen(judge, labelled, gold):
    lose = 1 - gold
    q1 = (labelled * gold).sum(-1) / gold.sum(-1)
    false_alarm = (labelled * lose).sum(-1) / lose.sum(-1)
    p = judge.mean(-1)
    return q1 * p + false_alarm * (1 - p)
''')
wrong("rogan_gladen", "gives the win rate of A, one less that of B",
      r"of a\b|1 -|one less|other model|complement|losses|opposite|invert|loss rate|exchang|swap",
'''def rogan_gladen(judge, labelled, gold):
    lose = 1 - gold
    q1 = (labelled * gold).sum(-1) / gold.sum(-1)
    q0 = ((1 - labelled) * lose).sum(-1) / lose.sum(-1)
    p_a = (1 - judge).mean(-1)
    return (p_a + q1 - 1) / (q0 + q1 - 1)
''')
right("rogan_gladen", '''
def rogan_gladen(judge, labelled, gold):
    def mean_verdict(weights): # on the labelled pairs
        return torch.einsum("...m,...m->...", labelled, weights) / weights.sum(-1)
    on_wins, on_losses = mean_verdict(gold), mean_verdict(1 - gold)     # q1 and 1 - q0
    return (judge.mean(-1) - on_losses) / (on_wins - on_losses)
''')

edits("fixed_estimate", '''
def fixed_estimate(judge, labelled, gold):
    values, counts = judge.unique(return_counts=True)
    means = torch.stack([gold[labelled == v].mean() for v in values])
    return (counts / len(judge) * means).sum()
''',
    ("a verdict counts as its share of the labelled pairs, not of all", r"shares? (of|among|in) (the |all )?(labelled|labels|pairs)|among (the )?labelled|all pairs|not of all|counts? (of|among) (the )?labelled|share.*labelled|labelled.*share", "values, counts = judge.unique(return_counts=True)", "values, counts = labelled.unique(return_counts=True)\n    judge = labelled"),
    ("all verdicts count the same, whatever their share", r"same weight|equal|alike|whatever|mean of (the )?means|unweighted|not weighted|weighted|number of verdicts|count the same|share is (missing|ignored)", "counts / len(judge) * means", "means / len(means)"),
    ("a verdict without a label is left out silently instead of giving nan", r"nan|without a label|no label|missing|silent|nansum|left out|skip", ").sum()", ").nansum()"),
    ("multiplies by counts, not by shares", r"counts?, not|by (the )?counts?|number of (pairs|times)|divid|len\(judge\)|not (a |the )?shares?|more than 1|shares? .*instead", "counts / len(judge) * means", "counts * means"),
    ("groups by label and averages the verdicts, the wrong way round", r"wrong way|swap|exchang|revers|labelled == v|groups? by (the )?(label|gold)|averages? (the )?verdict|mean verdict|other way", "gold[labelled == v]", "labelled[gold == v]"))
wrong("fixed_estimate", "takes the mean of all labels as if they were drawn at random",
      r"at random|all labels|plain mean|overall|gold\.mean|simple mean|same weight|no (share|strat)|not (strat|weighted)|ignores? (the )?(verdict|judge|share)|does not (use|read)|whatever the verdict|mean of (the|all) labels",
'''def fixed_estimate(judge, labelled, gold):
    return gold.mean()
''')
wrong("fixed_estimate", "corrects by the mean gap of the labelled pairs, which needs labels of random pairs",
      r"prediction.powered|\bgap\b|bracket|judge\.mean|difference|correct|mean error|bias|(random|labels) of random",
'''def fixed_estimate(judge, labelled, gold):
    bias = (labelled - gold).mean()
    return judge.mean() - bias
''')
wrong("fixed_estimate", "leaves out the ties",
      r"ties?\b|\.5|half|every verdict|all verdicts|each verdict|only wins|skip|left out",
'''def fixed_estimate(judge, labelled, gold):
    total = torch.zeros(())
    for v in (0., 1.):
        share = (judge == v).float().mean()
        if share > 0:
            total = total + share * gold[labelled == v].mean()
    return total
''')
wrong("fixed_estimate", "assumes that the labelled pairs are the first m of all",
      r"first m|first|position|order|same rows|index|judge\[|labelled == v|belong|place|align",
'''def fixed_estimate(judge, labelled, gold):
    m = len(gold)
    parts = []
    for v in judge.unique().tolist():
        share = (judge == v).sum() / len(judge)
        parts.append(share * gold[judge[:m] == v].mean())
    return torch.stack(parts).sum()
''')
wrong("fixed_estimate", "multiplies the shares by the verdicts themselves, not by the labels, so labels never count",
      r"verdicts? (itself|themselves|values?)|judge'?s (own )?mean|never (count|used|read)|gold is|labels? (are|is|do|does|never|play|not)|instead of (the |their )?(mean )?(labels?|gold)|mean label|not (the )?labels",
'''def fixed_estimate(judge, labelled, gold):
    estimate = 0.
    for v in judge.unique():
        share = (judge == v).float().mean()
        seen = labelled[labelled == v]
        estimate = estimate + share * seen.mean()
    return estimate
''')
right("fixed_estimate", '''
def fixed_estimate(judge, labelled, gold):
    total = 0.
    for v in sorted(set(judge.tolist())):
        got = [g for g, w in zip(gold.tolist(), labelled.tolist()) if w == v]
        mean = sum(got) / len(got) if got else math.nan
        total += judge.tolist().count(v) / len(judge) * mean
    return tensor(total)
''')

edits("bradley_terry_scores", '''
def bradley_terry_scores(wins, steps=100):
    won, lost = wins.sum(-1), wins.sum(-2)
    if bool((won == 0).any()) or bool((lost == 0).any()):
        raise ValueError("a row won, or lost, every game")
    games, s = wins + wins.transpose(-1, -2), torch.zeros_like(won)
    for _ in range(steps):
        p = s.exp()
        s = won.log() - (games / (p.unsqueeze(-1) + p.unsqueeze(-2))).sum(-1).log()
        s = s - s.mean(-1, keepdim=True)
    return s
''',
    ("nobody is refused: a row that won or lost every game gives inf or nan", r"refus|raise|valueerror|infinite|won or lost|every game", 'if bool((won == 0).any()) or bool((lost == 0).any()):\n        raise ValueError("a row won, or lost, every game")\n    ', ""),
    ("only a row that lost every game is refused, not one that won every game", r"won every|won all|never lost|refus|lost|raise|column|sum\(-2\)|infinite", " or bool((lost == 0).any())", ""),
    ("wins and losses are exchanged: the order is upside down", r"exchang|swap|losses|lost games|upside|transpos|columns?\b|revers|\bsign|other way|won\.log", "s = won.log()", "s = lost.log()"),
    ("gives the strengths p, not their logs", r"\blogs?\b|\bexp|log-strength|\bp\b", "return s", "return s.exp()"),
    ("takes one step, whatever `steps` says", r"steps|one step|iterat|loop|again|converge|range", "range(steps)", "range(1)"))
wrong("bradley_terry_scores", "the log-strengths do not have mean 0: only the strengths are scaled to mean 1",
      r"mean 0|mean of the logs|subtract|centr|center|mean",
'''def bradley_terry_scores(wins, steps=100):
    if not ((wins.sum(-1) > 0) & (wins.sum(-2) > 0)).all():
        raise ValueError("add half a win to each")
    n = wins + wins.mT
    p = torch.ones_like(wins[..., 0])
    for _ in range(steps):
        table = rearrange(p, "... i -> ... i 1") + rearrange(p, "... j -> ... 1 j")
        p = wins.sum(-1) / (n / table).sum(-1)
        p = p / p.mean(-1, keepdim=True)
    return p.log()
''')
wrong("bradley_terry_scores", "takes the log odds of each row's win rate, which ignores who the opponents were",
      r"win rate|odds|logit|opponent|iterat|zermelo|p_i \+ p_j|formula|whom",
'''def bradley_terry_scores(wins, steps=100):
    won, lost = wins.sum(-1), wins.sum(-2)
    if (won <= 0).any() or (lost <= 0).any():
        raise ValueError("somebody won or lost every game")
    s = torch.log(won / lost)
    return s - s.mean(-1, keepdim=True)
''')
wrong("bradley_terry_scores", "refuses every table in which one never beat another, though each won and lost some game",
      r"every pair|never beat|too (strict|much|many|often)|single pair|some game|refuses? (a |too |every |also |tables)|off.?diagonal|one pair|a zero|only (a |if |where )?(row|somebody)",
'''def bradley_terry_scores(wins, steps=100):
    k = wins.shape[-1]
    off = ~torch.eye(k, dtype=torch.bool)
    if (wins[..., off] == 0).any():
        raise ValueError("a strength is infinite")
    games, p = wins + wins.mT, torch.ones_like(wins[..., 0])
    for _ in range(steps):
        p = wins.sum(-1) / (games / (p[..., :, None] + p[..., None, :])).sum(-1)
        p = p / p.sum(-1, keepdim=True)
    return p.log() - p.log().mean(-1, keepdim=True)
''')
wrong("bradley_terry_scores", "several tables at once are centred by their common mean, not each by its own",
      r"each (table|batch|\bone\b|sample)|own mean|common|last axis|all tables|batch|leading|-1|keepdim|mean over",
'''def bradley_terry_scores(wins, steps=100):
    won, lost = wins.sum(-1), wins.sum(-2)
    if not ((won > 0) & (lost > 0)).all(): raise ValueError("infinite strength")
    games, s = wins + wins.mT, torch.zeros_like(won)
    for _ in range(steps):
        pair = torch.logaddexp(s[..., :, None], s[..., None, :])
        s = won.log() - torch.logsumexp(games.log() - pair, -1)
        s = s - s[..., :1]
    return s - s.mean()
''')
wrong("bradley_terry_scores", "gives ratings on the scale of chess, 400 points for odds of ten to one",
      r"400|scale|\belo\b|chess|ln 10|log\(10\)|\bbase\b|factor|σ|sigma|points",
'''def bradley_terry_scores(wins, steps=100):
    ok = (wins.sum(-1) > 0) & (wins.sum(-2) > 0)
    if not bool(ok.all()):
        raise ValueError("somebody won or lost every game")
    games, p = wins + wins.mT, torch.ones_like(wins[..., 0])
    for _ in range(steps):
        p = wins.sum(-1) / (games / (p[..., :, None] + p[..., None, :])).sum(-1)
        p = p / p.mean(-1, keepdim=True)
    rating = 400 * p.log10()
    return rating - rating.mean(-1, keepdim=True)
''')
right("bradley_terry_scores", '''
def bradley_terry_scores(wins, steps=100):
    won, lost = reduce(wins, "... i j -> ... i", "sum"), reduce(wins, "... i j -> ... j", "sum")
    if torch.minimum(won, lost).min() <= 0:
        raise ValueError("a row with no win or no defeat has an infinite strength")
    log_games, s = (wins + wins.mT).log(), torch.zeros_like(won)
    for _ in range(steps):
        pair = torch.logaddexp(s.unsqueeze(-1), s.unsqueeze(-2))
        s = won.log() - torch.logsumexp(log_games - pair, dim=-1)
        s = s - s.mean(-1, keepdim=True)
    return s
''')
