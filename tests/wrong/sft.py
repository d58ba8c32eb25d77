"Answers to the exercises of the chapter on supervised fine-tuning that learners might give, each wrong."
import torch
from rlhf_nb.memory import masked_mean_rows
from rlhf_nb.tokens import masked_mean, masked_sum

def _places(ids): return torch.arange(1, ids.shape[1])[None]         # of the predicted tokens
def swapped(ids, n_prompt, n_real):
    return ids[:, 1:].masked_fill(_places(ids) >= n_prompt[:, None], -100)
def slipped(ids, n_prompt, n_real):
    place = torch.arange(ids.shape[1] - 1)
    keep = (place >= n_prompt[:, None]) & (place < n_real[:, None] - 1)
    return ids[:, 1:].masked_fill(~keep, -100)
def both_slipped(ids, n_prompt, n_real):
    place = torch.arange(ids.shape[1] - 1)
    keep = (place >= n_prompt[:, None]) & (place < n_real[:, None])
    return ids[:, 1:].masked_fill(~keep, -100)
def last_of_prompt(ids, n_prompt, n_real):
    keep = (_places(ids) >= n_prompt[:, None] - 1) & (_places(ids) < n_real[:, None])
    return torch.where(keep, ids[:, 1:], -100)
def no_end(ids, n_prompt, n_real):
    place = torch.arange(ids.shape[1] - 1)
    keep = (place >= n_prompt[:, None] - 1) & (place < n_real[:, None] - 2)
    return ids[:, 1:].masked_fill(~keep, -100)
def one_pad(ids, n_prompt, n_real):
    keep = (_places(ids) >= n_prompt[:, None]) & (_places(ids) <= n_real[:, None])
    return ids[:, 1:].masked_fill(~keep, -100)
def all_pads(ids, n_prompt, n_real):
    return ids[:, 1:].masked_fill(_places(ids) < n_prompt[:, None], -100)
def not_shifted(ids, n_prompt, n_real):
    keep = (_places(ids) >= n_prompt[:, None]) & (_places(ids) < n_real[:, None])
    return ids[:, :-1].masked_fill(~keep, -100)
def prompt_too(ids, n_prompt, n_real):
    return ids[:, 1:].masked_fill(_places(ids) >= n_real[:, None], -100)
def too_wide(ids, n_prompt, n_real):
    place = torch.arange(1, ids.shape[1] + 1)
    keep = (place >= n_prompt[:, None]) & (place < n_real[:, None])
    return ids.roll(-1, 1).masked_fill(~keep, -100)
def zeros(ids, n_prompt, n_real):
    keep = (_places(ids) >= n_prompt[:, None]) & (_places(ids) < n_real[:, None])
    return ids[:, 1:] * keep
def by_pad_id(ids, n_prompt, n_real):
    keep = (_places(ids) >= n_prompt[:, None]) & (ids[:, 1:] != 0)
    return ids[:, 1:].masked_fill(~keep, -100)

def last_answer(turns, eos):
    ids, labels = [], []
    for role, tokens in turns:
        if role == "assistant":
            labels = [-100] * len(ids) + tokens + [eos]
            ids = ids + tokens + [eos]
        else:
            ids, labels = ids + tokens, labels + [-100] * len(tokens)
    return ids, labels
def end_masked(turns, eos):
    ids, labels = [], []
    for role, tokens in turns:
        mine = role == "assistant"
        ids.extend(tokens + [eos] * mine)
        labels.extend((tokens if mine else [-100] * len(tokens)) + [-100] * mine)
    return ids, labels
def without_system(turns, eos):
    ids, labels = [], []
    for role, tokens in turns:
        if role == "assistant": tokens = tokens + [eos]
        ids += tokens
        labels += [-100] * len(tokens) if role == "system" else tokens
    return ids, labels
def everything(turns, eos):
    ids = [i for role, tokens in turns for i in tokens + [eos] * (role == "assistant")]
    return ids, list(ids)
def others(turns, eos):
    ids, labels = [], []
    for role, tokens in turns:
        if role == "assistant":
            ids += tokens + [eos]
            labels += [-100] * (len(tokens) + 1)
        else:
            ids += tokens
            labels += tokens
    return ids, labels
def every_turn(turns, eos):
    ids, labels = [], []
    for role, tokens in turns:
        row = tokens + [eos]
        ids += row
        labels += row if role == "assistant" else [-100] * len(row)
    return ids, labels
def once(turns, eos):
    ids, labels = [], []
    for role, tokens in turns:
        ids += tokens
        labels += tokens if role == "assistant" else [-100] * len(tokens)
    return ids + [eos], labels + [eos]
def endless(turns, eos):
    ids, labels = [], []
    for role, tokens in turns:
        ids += tokens
        labels += tokens if role == "assistant" else [-100] * len(tokens)
    return ids, labels
def shifted(turns, eos):
    ids, labels = [], []
    for role, tokens in turns:
        tokens = tokens + [eos] if role == "assistant" else tokens
        ids += tokens
        labels += tokens if role == "assistant" else [-100] * len(tokens)
    return ids, (labels + [-100])[1:] if ids else labels
def first_only(turns, eos):
    ids, labels = everything(turns, eos)
    return ids, [-100 if i < 2 else x for i, x in enumerate(labels)]

def by_token(logp, mask): return masked_mean(-logp, mask)
def empty_is_zero(logp, mask): return masked_mean_rows(-logp, mask).mean()
def by_width(logp, mask):
    rows = -masked_sum(logp, mask) / mask.shape[1]
    return rows[mask.any(1)].mean()
def summed(logp, mask): return -masked_sum(logp, mask)[mask.any(dim=1)].mean()
def other_sign(logp, mask): return masked_mean_rows(logp, mask)[mask.any(1)].mean()
def none_of_none(logp, mask): return (-masked_sum(logp, mask) / mask.sum(1)).mean()
def multiplied(logp, mask):
    real = mask.sum(1) > 0
    return (-(logp * mask).sum(1)[real] / mask.sum(1)[real]).mean()
def unmasked(logp, mask): return -logp.mean(1)[mask.any(1)].mean()
def each(logp, mask): return masked_mean_rows(-logp, mask)[mask.any(1)]
@torch.no_grad()
def frozen(logp, mask): return masked_mean_rows(-logp, mask)[mask.any(1)].mean()
def first_answer(logp, mask): return masked_mean_rows(-logp, mask)[0]

WRONG = {
    "fixed_labels": [
        ("it still learns the questions: kept and masked are swapped", swapped),
        ("label j is token j + 1: the first word of each answer is missing", slipped),
        ("label j belongs to token j + 1: compare j + 1, not j, with both borders", both_slipped),
        ("the last token of the prompt was given, it is no label", last_of_prompt),
        ("the end mark must be learned too", no_end),
        ("one pad is a label: the last token stands at n_real - 1", one_pad),
        ("pads are no labels", all_pads), ("no shift: label j is token j + 1", not_shifted),
        ("the prompt is learned too: mask it", prompt_too),
        ("nothing is predicted behind the last token: t - 1 labels", too_wide),
        ("masked labels are -100, not 0", zeros), ("", by_pad_id)],
    "chat_labels": [
        ("every answer of the assistant is learned, not only the last", last_answer),
        ("the end mark must be learned too", end_masked),
        ("the questions are given, they are not learned", without_system),
        ("everything is learned here: mask the turns of the others", everything),
        ("upside down: that learns the turns of the others", others),
        ("the end mark stands behind each answer, not behind each turn", every_turn),
        ("the end mark stands behind each answer, not once at the end", once),
        ("the end mark is missing", endless),
        ("no shift here: a label stands at its own token", shifted), ("", first_only)],
    "loss_by_answer": [
        ("that is the mean over tokens: long answers weigh more", by_token),
        ("the empty answer counts as 0", empty_is_zero),
        ("divide by the answer's own tokens, not by the width", by_width),
        ("that is the sum over each answer", summed),
        ("turn the sign: a loss falls when answers get likelier", other_sign),
        ("0 / 0: an answer without a token has no mean", none_of_none),
        ("nan times 0 is nan: pick the tokens, do not multiply by the mask", multiplied),
        ("the whole row is in it: only tokens where the mask is True count", unmasked),
        ("one number for the batch, not one for each answer", each),
        ("no gradient reaches the log-probs: do not detach", frozen), ("", first_answer)]}
