"""Each file needs its own environment, which ``make hard NAME=spark-recipes`` installs."""

import os

import pytest

collect_ignore_glob = [] if os.environ.get("SPARK_RECIPES") else ["test_*.py"]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Ignore sockets that older PySparks leave to the garbage collector."""
    item.add_marker(
        pytest.mark.filterwarnings("ignore:.*socket:pytest.PytestUnraisableExceptionWarning"))
