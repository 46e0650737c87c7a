"""Load the C extension; if ``compiled`` is None, callers use their Python versions.

``nsqclient._native`` exists if nsqclient was installed with a C compiler or from a wheel.
``NSQCLIENT_NATIVE=0`` in the environment selects Python.
"""

from __future__ import annotations

import importlib
import os
from typing import Any


def _load() -> Any:
    if os.environ.get("NSQCLIENT_NATIVE") == "0":
        return None
    try:
        return importlib.import_module("nsqclient._native")
    except ImportError:
        return None


#: ``nsqclient._native``, or None.
compiled: Any = _load()
#: Printed by ``nsqclient --version`` and the doctor.
FORM: str = "without the C extension" if compiled is None else "with the C extension"
