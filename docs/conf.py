"""How Sphinx builds the documentation: ``make docs``, where warnings are errors."""

from __future__ import annotations

import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from nsqclient.version import __version__  # noqa: E402 - the path above comes first

project = "nsqclient"
copyright = "the nsqclient authors"
release = __version__
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
nitpicky = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
html_theme = "alabaster"
html_theme_options = {"description": "The NSQ client for blocking Python code"}
