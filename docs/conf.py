"""How Sphinx builds the documentation: ``make docs``, where warnings are errors."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "extensions")]

from nsqclient.version import __version__  # noqa: E402 - the path above comes first

project = "nsqclient"
copyright = "the nsqclient authors"
release = __version__
extensions = [
    "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode",
    "tables", "rooms",  # docs/extensions
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
html_theme = "alabaster"
html_theme_options = {"description": "The NSQ client for blocking Python code"}
