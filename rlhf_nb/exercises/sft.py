"Exercises of the chapter on supervised fine-tuning."
import torch
from torch import tensor
from rlhf_nb.checks import Exercise

X = -100                                       # a label that nobody reads

# ---- the clinic: labels upside down

def _labels(ids, n_prompt, n_real, shift=1, rest=X, behind=1):
    rows, width = [], ids.shape[1] - behind
    for row, p, n in zip(ids.tolist(), n_prompt.tolist(), n_real.tolist()):
        rows.append([row[min(j + shift, len(row) - 1)] if p <= j + 1 < n else rest
                     for j in range(width)])
    return tensor(rows, dtype=torch.long)

_ids = tensor([[7, 8, 5, 6, 2, 0, 0], [7, 9, 2, 0, 0, 0, 0], [3, 4, 5, 6, 7, 8, 2]])
fixed_labels = Exercise(
    reference=_labels,
    cases={"three rows": (_ids, tensor([2, 1, 4]), tensor([5, 3, 7])),
           "an empty response": (_ids[:2], tensor([5, 1]), tensor([5, 3])),
           "cut before its end": (tensor([[3, 4, 5, 6], [3, 4, 5, 0]]), tensor([1, 2]), tensor([4, 3])),
           "one row": (tensor([[9, 5, 2]]), tensor([1]), tensor([3])),
           "a pad inside the text": (tensor([[7, 0, 5, 0, 2, 0]]), tensor([2]), tensor([5]))},
    mistakes={
        "it still learns the questions: kept and masked are swapped":
            lambda ids, p, n: _labels(ids, 0 * p, p),
        "label j is token j + 1: the first word of each answer is missing":
            lambda ids, p, n: _labels(ids, p + 1, n),
        "label j belongs to token j + 1: compare j + 1, not j, with both borders":
            lambda ids, p, n: _labels(ids, p + 1, n + 1),
        "the last token of the prompt was given, it is no label":
            lambda ids, p, n: _labels(ids, p - 1, n),
        "the end mark must be learned too": lambda ids, p, n: _labels(ids, p, n - 1),
        "one pad is a label: the last token stands at n_real - 1":
            lambda ids, p, n: _labels(ids, p, n + 1),
        "pads are no labels": lambda ids, p, n: _labels(ids, p, n + 99),
        "no shift: label j is token j + 1": lambda *a: _labels(*a, shift=0),
        "the prompt is learned too: mask it": lambda ids, p, n: _labels(ids, 0 * p, n),
        "nothing is predicted behind the last token: t - 1 labels": lambda *a: _labels(*a, behind=0),
        "masked labels are -100, not 0": lambda *a: _labels(*a, rest=0)})

# ---- labels of a conversation

def _chat(turns, eos, learns=lambda i, role, n: role == "assistant", ends="assistant", end=True):
    ids, labels = [], []
    for i, (role, tokens) in enumerate(turns):
        taught = learns(i, role, len(turns))
        ids += tokens
        labels += tokens if taught else [X] * len(tokens)
        stop = role == "assistant" if ends == "assistant" else ends == "all"
        if stop:
            ids.append(eos)
            labels.append(eos if end and taught else X)
    if ends == "last":
        ids.append(eos)
        labels.append(eos)
    return ids, labels

_hi, _yes, _two = ("user", [4, 5]), ("assistant", [6, 7, 8]), ("assistant", [9])
chat_labels = Exercise(
    reference=_chat,
    cases={"one answer": ([_hi, _yes], 2), "two answers": ([_hi, _yes, ("user", [5]), _two], 2),
           "a system prompt": ([("system", [3, 3]), _hi, _two], 2), "no answer yet": ([_hi], 2),
           "the answer is followed by a question": ([_hi, _yes, ("user", [5])], 1),
           "an empty answer": ([_hi, ("assistant", [])], 2), "nothing": ([], 2)},
    mistakes={
        "every answer of the assistant is learned, not only the last": lambda t, e: _chat(
            t, e, lambda i, role, n: role == "assistant" and i == max(
                j for j, (r, _) in enumerate(t) if r == "assistant")),
        "the end mark must be learned too": lambda t, e: _chat(t, e, end=False),
        "the questions are given, they are not learned":
            lambda t, e: _chat(t, e, lambda i, role, n: role != "system"),
        "everything is learned here: mask the turns of the others":
            lambda t, e: _chat(t, e, lambda i, role, n: True),
        "upside down: that learns the turns of the others":
            lambda t, e: _chat(t, e, lambda i, role, n: role != "assistant"),
        "the end mark stands behind each answer, not behind each turn":
            lambda t, e: _chat(t, e, ends="all"),
        "the end mark stands behind each answer, not once at the end":
            lambda t, e: _chat(t, e, ends="last"),
        "the end mark is missing": lambda t, e: _chat(t, e, ends="none"),
        "no shift here: a label stands at its own token": lambda t, e: (
            _chat(t, e)[0], _chat(t, e)[1][1:] + [X] * bool(t))})

# ---- every answer weighs the same

def _by_answer(logp, mask, empty=False, divide=lambda row, on: on.sum(), over=True,
               seen=lambda row, on: row[on]):
    rows = [-seen(row, on).sum() / divide(row, on) for row, on in zip(logp, mask)
            if on.any() or empty]
    rows = torch.stack(rows)
    return rows.mean() if over else rows

def _tokens(logp, mask): return -logp[mask].mean()
def _nan(logp, mask): return (-(logp * mask).sum(1) / mask.sum(1))[mask.any(1)].mean()

def _three(seed, grad=False, dtype=torch.float32):
    logp = -torch.rand(4, 6, generator=torch.Generator().manual_seed(seed)) * tensor(
        [[1.], [3.], [8.], [2.]])
    mask = tensor([[0, 1, 1, 1, 1, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 0],
                   [0, 0, 0, 0, 0, 0]]).bool()
    return logp.to(dtype).requires_grad_(grad), mask

loss_by_answer = Exercise(
    reference=_by_answer,
    cases={"one answer is empty": _three(0, grad=True), "no answer is empty": tuple(
               x[:3] for x in _three(1)), "one row": tuple(x[1:2] for x in _three(2)),
           "nan where the mask is False": (
               _three(3)[0].masked_fill(~_three(3)[1], torch.nan), _three(3)[1]),
           "bf16": _three(4, dtype=torch.bfloat16)},
    mistakes={
        "that is the mean over tokens: long answers weigh more": _tokens,
        "the empty answer counts as 0": lambda logp, mask: _by_answer(
            logp, mask, empty=True, divide=lambda row, on: on.sum().clamp(min=1)),
        "divide by the answer's own tokens, not by the width":
            lambda logp, mask: _by_answer(logp, mask, divide=lambda row, on: len(on)),
        "that is the sum over each answer": lambda logp, mask: _by_answer(
            logp, mask, divide=lambda row, on: 1),
        "turn the sign: a loss falls when answers get likelier":
            lambda logp, mask: -_by_answer(logp, mask),
        "0 / 0: an answer without a token has no mean": lambda logp, mask: _by_answer(
            logp, mask, empty=True),
        "nan times 0 is nan: pick the tokens, do not multiply by the mask": _nan,
        "the whole row is in it: only tokens where the mask is True count":
            lambda logp, mask: _by_answer(logp, mask, seen=lambda row, on: row,
                                          divide=lambda row, on: len(on)),
        "one number for the batch, not one for each answer":
            lambda logp, mask: _by_answer(logp, mask, over=False),
        "no gradient reaches the log-probs: do not detach":
            lambda logp, mask: _by_answer(logp.detach(), mask)})
