"How a battery is written down: each answer as a text, made in its module's own names, its source at hand as in a notebook."
import linecache, re

def battery(space): # WRONG (words, answer), RIGHT, SLIPS and OWN of each exercise; and what fills them
    tables = WRONG, RIGHT, SLIPS, OWN = {}, {}, {}, {}
    def make(name, text):
        file = f"<{space['__name__']} {name} {len(linecache.cache)}>"
        linecache.cache[file] = len(text), None, text.splitlines(True), file
        names = dict(space)
        exec(compile(text, file, "exec"), names)
        return names[name]
    def wrong(name, slip, words, text, own=True):
        OWN.setdefault(name, []).append(own)
        WRONG.setdefault(name, []).append((words, make(name, text)))
        SLIPS.setdefault(name, []).append(slip)
    def right(name, text): RIGHT.setdefault(name, []).append(make(name, text))
    def edits(name, text, *rows): # (slip, words, old, new); the text itself is right
        right(name, text)
        for slip, words, old, new in rows:
            assert old in text, (name, old)
            wrong(name, slip, words, text.replace(old, new), own=False)
    return *tables, wrong, right, edits

def quoting(edits): # the same, where the right code of an edit is a word for its slip, too
    def more(name, text, *rows):
        edits(name, text, *((slip, words + ("|" + re.escape(old.strip().lower())) * (len(old.strip()) > 7 and "\n" not in old.strip()), old, new)
                            for slip, words, old, new in rows))
    return more
