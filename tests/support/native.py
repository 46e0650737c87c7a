"""The compiled module in tests, which are skipped if it is not built."""

import pytest

try:
    from nsqclient import _native
except ImportError:
    _native = None

needs_native = pytest.mark.skipif(_native is None, reason="the compiled module is not built")

#: A parameter for each form, whatever NSQCLIENT_NATIVE says. None: the Python versions.
FORMS = [pytest.param(None, id="python"), pytest.param(_native, id="compiled", marks=needs_native)]
