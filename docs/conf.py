"Sphinx: notebooks by myst-nb, look by furo, formulas as MathML. Nothing is fetched, now or by a reader."
import sys
from pathlib import Path

from docutils.nodes import SkipNode

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
    raise SkipNode

def block(translator, node):
    translator.body.append(f'<div class="math">{mathml(node.astext(), "block")}</div>\n')
    raise SkipNode

def setup(app):
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    app.set_html_assets_policy("per_page")
    return dict(parallel_read_safe=True, parallel_write_safe=True)

html_math_renderer = "mathml"
