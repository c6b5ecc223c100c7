"""Settings of the documentation: ``make docs``.

The site is built and read without a network: formulas are MathML, styles and scripts come with the theme, and
no pages of other projects are used.
"""

import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

import plausiflow

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE / "figures")]

project = "plausiflow"
author = "plausiflow contributors"
copyright = "2026, plausiflow contributors"
version = release = plausiflow.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
    "matplotlib.sphinxext.plot_directive",
    "offline_math",
    "repository_links",
]
exclude_patterns = ["_build", "_ext", "_templates", "figures", "gallery", "images"]
templates_path = ["_templates"]
highlight_language = "text"

# Markdown as on GitHub.
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
myst_url_schemes = {"http": None, "https": None, "mailto": None, "source": None}
myst_update_mathjax = False
suppress_warnings = ["myst.header"]  # the generated tables begin with headings of the third level
html_math_renderer = "mathml"

html_theme = "furo"
# The address of the repository is that of the package; every page then links to its source.
urls = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"].get("urls", {})
html_theme_options = (
    {"source_repository": urls["Repository"], "source_branch": "main", "source_directory": "docs/"}
    if "Repository" in urls
    else {}
)
html_title = f"plausiflow {release}"
html_static_path = ["_static"]
html_css_files = ["plausiflow.css"]
html_js_files = ["copy.js"]
html_copy_source = False
html_show_sourcelink = False

# The reference: types are in signatures, fields are described in the docstring of their class.
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_attr_annotations = False
strip_signature_backslash = True  # so that napoleon escapes names that end in an underscore

# Every name of plausiflow must resolve; names of other packages are ignored.
nitpick_ignore_regex = [
    (r"py:.*", r"(torch|numpy|pandas|sklearn|matplotlib|fastapi|starlette|pyarrow)\..*"),
    (r"py:.*", r"(collections|pathlib|types|typing|os|io|contextlib|dataclasses|abc)(\..*)?"),
    (r"py:meth", r"of"),  # "build it with `of`", in a table without a current class
]

plot_formats = [("png", 140)]
plot_html_show_formats = False
plot_html_show_source_link = False
plot_include_source = False

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "write_computation_times": False,
}


def show_factories(*event: object) -> tuple[str | None, str | None]:
    """Replace ``<factory>``, which is not valid Python, with dots."""
    signature, returned = event[-2:]
    return signature and str(signature).replace("<factory>", "..."), returned and str(returned)


def keep_first_line(*event: object) -> None:
    """Prevent napoleon from reading "Changed cells: one row each" as a property of type "Changed cells"."""
    what, lines = event[1], event[-1]
    if what == "property" and isinstance(lines, list):
        lines[:0] = [".. a property", ""]


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.connect("autodoc-process-signature", show_factories)
    app.connect("autodoc-process-docstring", keep_first_line, priority=400)
