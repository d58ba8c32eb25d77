"""One name per thing: no name is exported twice, and none is used again for a local.

    python tests/test_names.py      # counts: names, reused, docstrings that name a source
"""
import ast, re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(f for f in (ROOT/"rlhf_nb").rglob("*.py") if not f.name.startswith("_") and f.parent.name != "exercises")
TREES = {f.stem: ast.parse(f.read_text("utf-8")) for f in MODULES}

# An exported name that may also be a local, and why.
ALLOWED = {
    "progress": "generate_many(progress=True) is what users of tqdm look for; book.progress is a learner's"}

def exported(tree):
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    return []

def owners():
    "name -> the modules that export it"
    found = defaultdict(list)
    for module, tree in TREES.items():
        for name in exported(tree): found[name].append(module)
    return found

def bound(tree):
    "(name, line) of every parameter and every variable that is set inside a function."
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            a = node.args
            for x in [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]:
                if x: yield x.arg, x.lineno
            for x in ast.walk(node):
                if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store): yield x.id, x.lineno

def reused():
    "exported names that are also locals: name -> places"
    names, found = set(owners()), defaultdict(set)
    for module, tree in TREES.items():
        for name, line in bound(tree):
            if name in names: found[name].add(f"{module}.py:{line}")
    return found

def public_docstrings():
    "(module.name, docstring) of every exported function and class."
    for module, tree in TREES.items():
        names = set(exported(tree))
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in names:
                yield f"{module}.{node.name}", ast.get_docstring(node) or "", node

SOURCE = re.compile(r"\b(19|20)\d\d\b")

def test_no_two_modules_export_one_name():
    twice = {name: modules for name, modules in owners().items() if len(modules) > 1}
    assert not twice, twice

def test_no_exported_name_is_used_again_for_a_local():
    again = {name: sorted(places) for name, places in reused().items() if name not in ALLOWED}
    assert not again, again
    assert set(ALLOWED) <= set(reused()), "an exception that is no longer needed"

def test_the_reader_of_syntax_trees_sees_every_binding():
    source = ("def f(a, *b, c=1, **d):\n    e = 1\n    for g in b: pass\n    with a as h: pass\n"
              "    [i for i in b]\n    k = lambda m: m\n    (n := 2)\nout = 3\n")
    assert {name for name, _ in bound(ast.parse(source))} == set("abcdeghikmn")

if __name__ == "__main__":
    docs = list(public_docstrings())
    print(f"{len(owners())} public names, {sum(len(m) > 1 for m in owners().values())} exported "
          f"twice, {len(reused())} used again for a local")
    print(f"{len(docs)} docstrings, {sum(bool(SOURCE.search(d)) for _, d, _ in docs)} name a source")
    raising = [(n, d) for n, d, node in docs if any(isinstance(x, ast.Raise) for x in ast.walk(node))]
    print(f"{len(raising)} raise, {sum('Raises' in d for _, d in raising)} say so")
    for name, places in sorted(reused().items()): print(f"  {name}: {', '.join(sorted(places))}")
