"""Settings of the documentation's generator, Sphinx; `make docs` builds it into docs/_build."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tools"))

import reference  # noqa: E402

import paceline  # noqa: E402

project, release = "Paceline", paceline.__version__
copyright = "the authors of Paceline, Apache 2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}
suppress_warnings = ["myst.xref_missing"]  # links to sources outside the documentation; `linked` checks them
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
add_module_names = False
default_role = "code"  # of `names` in docstrings
smartquotes = False  # they would join the two dashes of an option
html_theme = "furo"
html_title = f"Paceline {release}"
html_show_sphinx = False
html_copy_source = False


def setup(app: object) -> None:
    """Write the pages that are made from the code."""
    reference.write(HERE / "reference")
