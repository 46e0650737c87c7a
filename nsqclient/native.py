"""Whether the compiled module runs, or its twins in Python.

``nsqclient._native`` is there if nsqclient was installed with a C compiler or from a wheel.
``NSQCLIENT_NATIVE=0`` in the environment chooses Python.
"""

from __future__ import annotations

import importlib
import os


def _is_compiled() -> bool:
    if os.environ.get("NSQCLIENT_NATIVE") == "0":
        return False
    try:
        importlib.import_module("nsqclient._native")
    except ImportError:
        return False
    return True


IS_COMPILED: bool = _is_compiled()
#: As ``nsqclient --version`` and the doctor print it.
FORM: str = "with the C extension" if IS_COMPILED else "without the C extension"
