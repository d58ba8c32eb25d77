"Answers to the exercises of the chapter on data that learners might give, each wrong."
import re
from rlhf_nb.data import truncate_tokens

WHO = {"Human": "user", "Assistant": "assistant"}
def every_colon(text):
    chat = []
    for part in text.split("\n\n")[1:]:
        pieces = part.split(": ")
        chat.append({"role": WHO[pieces[0]], "content": pieces[1]})
    return chat
def own_names(text):
    return [dict(zip(("role", "content"), part.split(": ", 1))) for part in text.split("\n\n") if part]
def turned(text):
    out = []
    for part in text.split("\n\n")[1:]:
        who, content = part.split(": ", 1)
        out.append(dict(role="assistant" if who == "Human" else "user", content=content))
    return out
def by_lines(text):
    chat = []
    for part in text.replace("\n\n", "\n").split("\n")[1:]:
        who, content = part.split(": ", 1)
        chat.append(dict(role=WHO[who], content=content))
    return chat
def tidied(text):
    out = []
    for part in text.split("\n\n"):
        if not part: continue
        who, _, content = part.partition(":")
        out.append(dict(role=WHO[who], content=content.strip()))
    return out
def with_space(text):
    out = []
    for part in text.split("\n\n")[1:]:
        who, content = part.split(":", 1)
        out.append(dict(role=WHO[who], content=content))
    return out
def all_parts(text):
    chat = []
    for part in text.split("\n\n"):
        who, content = part.split(": ", 1)
        chat.append(dict(role=WHO[who], content=content))
    return chat
def without_first(text):
    parts = text.strip("\n").split("\n\n")[1:]
    return [dict(role=WHO[who], content=content) for who, content in (p.split(": ", 1) for p in parts)]
def by_names(text):
    found = re.findall(r"(Human|Assistant): (.*?)(?=\s*(?:Human|Assistant): |\Z)", text, re.S)
    return [dict(role=WHO[who], content=content) for who, content in found]
def last_colon(text):
    out = []
    for part in text.split("\n\n")[1:]:
        who, content = part.rsplit(": ", 1)
        out.append(dict(role=WHO[who.split(": ")[0]], content=content))
    return out
def alternating(text):
    parts = [p.split(": ", 1)[1] for p in text.split("\n\n")[1:]]
    return [(("user", "assistant")[i % 2], content) for i, content in enumerate(parts)]

def seen_before(rows):
    known, n = set(), 0
    for prompt, a, b in rows:
        n += (prompt, b, a) in known
        known.add((prompt, a, b))
    return n
def seen_after(rows):
    return sum((p, b, a) in rows[i + 1:] for i, (p, a, b) in enumerate(rows))
def distinct(rows):
    known = set(rows)
    return len([1 for p, a, b in known if (p, b, a) in known])
def any_prompt(rows):
    answers = {(a, b) for _, a, b in rows}
    return sum((b, a) in answers for _, a, b in rows)
def repeated(rows): return sum(rows.count(row) > 1 for row in rows)
def unordered(rows):
    known = [(p, tuple(sorted((a, b)))) for p, a, b in rows]
    return sum(known.count((p, tuple(sorted((a, b))))) > 1 for p, a, b in rows)
def half(rows):
    known = set(rows)
    return sum((p, b, a) in known for p, a, b in rows) // 2
def whether(rows): return any((p, b, a) in rows for p, a, b in rows)
def prompts(rows): return len({p for p, a, b in rows if (p, b, a) in rows})

def end_off(prompt, chosen, rejected, max_length):
    a, b = (prompt + chosen)[:max_length], (prompt + rejected)[:max_length]
    return None if a == b else (a, b)
def as_it_was(prompt, chosen, rejected, max_length):
    return (prompt + chosen)[:max_length], (prompt + rejected)[:max_length]
def start_off(prompt, chosen, rejected, max_length):
    rows = [(prompt + answer)[-max_length:] for answer in (chosen, rejected)]
    return tuple(rows) if rows[0] != rows[1] else None
def equal_too(prompt, chosen, rejected, max_length):
    prompt, (a, b) = truncate_tokens(prompt, [chosen, rejected], max_length)
    return prompt + a, prompt + b
def first_words(prompt, chosen, rejected, max_length):
    keep = max(max_length - max(len(chosen), len(rejected)), max_length // 4)
    prompt = prompt[:keep]
    a, b = (prompt + answer[:max_length - len(prompt)] for answer in (chosen, rejected))
    return None if a == b else (a, b)
def each_alone(prompt, chosen, rejected, max_length):
    rows = []
    for answer in (chosen, rejected):
        p, (x,) = truncate_tokens(prompt, [answer], max_length)
        rows.append(p + x)
    return None if rows[0] == rows[1] else tuple(rows)
def no_prompt(prompt, chosen, rejected, max_length):
    keep = max(0, max_length - max(len(chosen), len(rejected)))
    prompt = prompt[-keep:] if keep else []
    a, b = ((prompt + answer)[:max_length] for answer in (chosen, rejected))
    return None if a == b else (a, b)
def half_of_it(prompt, chosen, rejected, max_length):
    prompt = prompt[-max(max_length - max(len(chosen), len(rejected)), max_length // 2):]
    a, b = ((prompt + answer)[:max_length] for answer in (chosen, rejected))
    return None if a == b else (a, b)
def answers_start(prompt, chosen, rejected, max_length):
    prompt = prompt[-max(max_length - max(len(chosen), len(rejected)), max_length // 4):]
    left = max_length - len(prompt)
    a, b = (prompt + answer[-left:] for answer in (chosen, rejected))
    return None if a == b else (a, b)
def shorter_answer(prompt, chosen, rejected, max_length):
    prompt = prompt[-max(max_length - min(len(chosen), len(rejected)), max_length // 4):]
    a, b = ((prompt + answer)[:max_length] for answer in (chosen, rejected))
    return None if a == b else (a, b)

def tidied_first(text):
    out = []
    for part in text.strip().split("\n\n"):
        who, content = part.split(": ", 1)
        out.append(dict(role=WHO[who], content=content.strip()))
    return out

WRONG = {
    "from_string": [
        ("split at the first colon only", every_colon),
        ("the roles are user and assistant", own_names), ("the roles are swapped", turned),
        ("a turn begins after an empty line, not after each line end", by_lines),
        ("nothing may be stripped: spaces and line ends belong to the content", tidied),
        ("two things: nothing may be stripped, and an empty text has no turns", tidied_first),
        ("one space belongs to the mark, after the colon", with_space),
        ("before the first empty line there is nothing: that part is no turn", all_parts),
        ("the first turn is missing", without_first),
        ("a name inside the content begins no turn", by_names),
        ("the content begins after the first colon, not after the last", last_colon),
        ("", alternating)],
    "contested": [
        ("count both rows of an opposite pair", seen_before),
        ("count both rows: the earlier ones were never compared with what follows", seen_after),
        ("rows that occur twice count twice", distinct),
        ("the prompt must be the same", any_prompt),
        ("those are repetitions: the opposite has its answers in the other order", repeated),
        ("those are repetitions too: the order of the answers matters", unordered),
        ("rows, not pairs of rows", half), ("that is whether, not how many", whether),
        ("rows, not prompts", prompts)],
    "fixed_pair": [
        ("it still cuts the end off, and with a long prompt both sides are equal", end_off),
        ("it still cuts the end off; equal pairs are kept", as_it_was),
        ("cut the start off, but of the prompt only, and no more than its part", start_off),
        ("a pair whose rows are equal gives None", equal_too),
        ("the prompt loses its start: the question comes last", first_words),
        ("both answers keep the same prompt: leave tokens for the longer one", each_alone),
        ("a quarter of max_length stays with the prompt", no_prompt),
        ("a quarter of max_length, not half of it", half_of_it),
        ("an answer loses its end, not its start", answers_start), ("", shorter_answer)]}
