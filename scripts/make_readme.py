"""Write README.md from nbs/index.ipynb, so that there is one text: make readme

Hidden cells are left out, and links lead from the top of the project into nbs/.
"""
import re, sys
from pathlib import Path
import nbformat
from nbconvert import MarkdownExporter

root = Path(__file__).resolve().parents[1]
nb = nbformat.read(root/"nbs/index.ipynb", 4)
nb.cells = [c for c in nb.cells if not re.match(r"#\|\s*hide", c.source)]
nb.metadata["language_info"] = {"name": "python"}
text = MarkdownExporter().from_notebook_node(nb)[0]
text = re.sub(r"\]\((?!https?:|#)", "](nbs/", text)
text = re.sub(r"^#\| slow\n", "", text, flags=re.M)
text = re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
Path(sys.argv[1] if len(sys.argv) > 1 else root/"README.md").write_text(text, "utf-8")
