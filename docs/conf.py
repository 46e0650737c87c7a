"""How Sphinx builds the documentation: ``make docs``, where warnings are errors."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "extensions")]

from nsqclient.version import __version__  # noqa: E402 - the path above comes first

project = "nsqclient"
copyright = "the nsqclient authors"
release = __version__
extensions = [
    "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_copybutton",
    "tables", "layers",  # docs/extensions
]
exclude_patterns = ["_build"]
nitpicky = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
# Else each list of fields, that of "Raises" too, gets all parameters.
autodoc_typehints_description_target = "documented"
# Half a gigabyte that the pages do not need: docstrings are read without it.
autodoc_mock_imports = [
    name for name in ("pyarrow", "pyspark") if importlib.util.find_spec(name) is None
]
# Flags such as --max-msg-size must keep both of their hyphens.
smartquotes = False
# The button copies the commands of a console block, without prompts and output.
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
html_title = f"nsqclient {release}"
html_theme = "furo"
html_theme_options = {
    # On every page, also on a phone, where the contents are behind a button.
    "announcement": '<a href="{reference}">API reference</a>',
    "navigation_with_keys": True,
}
html_static_path = ["static"]
html_css_files = ["site.css"]


def setup(app: Sphinx) -> None:
    """Have the line above each page lead to the reference, from whichever folder it is in."""
    app.connect("html-page-context", _link_reference)


def _link_reference(
    app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    line = html_theme_options["announcement"].format(reference=context["pathto"]("reference/index"))
    context["theme_announcement"] = line
