"""The tests of ``test_mailer.py``, in one command. They start their own nsqd.

    python examples/handler_tests/run.py
"""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    sys.exit(pytest.main(["-q", str(HERE)]))
