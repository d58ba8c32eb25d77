"Sphinx: notebooks by myst-nb, look by furo, formulas as MathML. Nothing is fetched, now or by a reader."
import sys
from pathlib import Path

from docutils import nodes

sys.path.insert(0, str(Path(__file__).parent))
from mathml import mathml

project = html_title = "rlhf-nb"
author = "the rlhf-nb contributors"
project_copyright = author
extensions = ["myst_nb"]
nb_execution_mode = "off"
nb_merge_streams = True
nb_ipywidgets_js = {}           # controls need a kernel; each has a still picture above it
myst_enable_extensions = ["dollarmath", "attrs_inline", "attrs_block", "deflist"]
myst_heading_anchors = 4
exclude_patterns = ["files"]       # notebooks to download
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
templates_path = ["templates"]
html_domain_indices = False
html_favicon = "_static/mark.svg"
html_show_sphinx = html_show_sourcelink = html_copy_source = False
html_permalinks_icon = "#"
html_theme_options = dict(
    light_css_variables={"color-brand-primary": "#a24f00", "color-brand-content": "#1c6597",
                         "color-brand-visited": "#1c6597"},
    dark_css_variables={"color-brand-primary": "#f0a04b", "color-brand-content": "#79b8e8",
                        "color-brand-visited": "#79b8e8"})
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "github-dark"

def inline(translator, node):
    translator.body.append(mathml(node.astext()))
    raise nodes.SkipNode

def block(translator, node):
    translator.body.append(f'<div class="math">{mathml(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode

def into_inventory(app, doctree):
    "Entries of the reference, for other sites' links: objects.inv names them as Python does."
    page = app.env.docname
    if not page.startswith("api/") or page == "api/index": return
    module, python = doctree.next_node(nodes.title).astext(), app.env.domains["py"]
    for n, section in enumerate(doctree.findall(nodes.section)):
        anchor = next((i for i in section["ids"] if i.startswith("api-")), None)
        if n == 0: python.note_module(module, section["ids"][0], "", "", False)
        if anchor is None: continue
        name = section.next_node(nodes.title).astext()
        python.note_object(f"{module}.{name}", "class" if name[0].isupper() else "function", anchor)

def setup(app):
    app.connect("doctree-read", into_inventory)
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    app.set_html_assets_policy("per_page")
    return dict(parallel_read_safe=True, parallel_write_safe=True)

html_math_renderer = "mathml"
