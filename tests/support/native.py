"""The compiled module as a test parameter, beside Python; its tests are skipped if it is not built.

NSQCLIENT_NATIVE does not matter here: a test that takes FORMS runs both.
"""

import pytest

try:
    from nsqclient import _native
except ImportError:
    _native = None

#: None stands for the twins in Python.
FORMS = [
    pytest.param(None, id="python"),
    pytest.param(_native, id="compiled", marks=pytest.mark.skipif(
        _native is None, reason="the compiled module is not built")),
]
