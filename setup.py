"""Everything but the compiled module is in setup.cfg."""

import sys
import sysconfig

from setuptools import Extension, setup

# One file for every version of Python, but a free-threaded build has no limited API.
limited = not sysconfig.get_config_var("Py_GIL_DISABLED")
# Optional: without a C compiler nsqclient does the same in Python. PyPy is faster without it.
modules = [] if sys.implementation.name != "cpython" else [
    Extension(
        "nsqclient._native", ["nsqclient/_native.c"], optional=True, py_limited_api=limited,
        define_macros=[("Py_LIMITED_API", "0x030A0000")] if limited else [],
    )
]

setup(
    ext_modules=modules,
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if limited and modules else {},
)
