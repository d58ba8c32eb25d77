"""What a task asks for at its edges. `ASKED` of a chapter: exercise -> sentence -> the cases that try it.

An answer that is wrong in no other case breaks this sentence, whatever its text is: it is told the sentence."""
import sys

def refusing(reference, mistakes:dict)->dict: # the same mistakes, of answers that refuse what they should
    def checked(slip): return lambda *args: (reference(*args), slip(*args))[1]
    return {words: checked(slip) for words, slip in mistakes.items()}

def place_of(exercise)->tuple: # its chapter's names, and its own; ({}, "") of a teacher's
    return next(((vars(m), k) for title, m in list(sys.modules.items()) if title.startswith("rlhf_nb.exercises.")
                 for k, x in vars(m).items() if x is exercise), ({}, ""))

def asks(exercise, wrong:list[str])->str: # the sentence that is broken, where every wrong case is one of its own; else ""
    names, name = place_of(exercise)
    return next((f"the task asks: {said}; " for said, cases in names.get("ASKED", {}).get(name, {}).items()
                 if {*wrong} <= {*cases.split(" | ")}), "")
