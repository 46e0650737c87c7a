"""Lazy imports: ``requests`` takes longer to import than the rest of the library."""

import subprocess
import sys

import pytest

import nsqclient.http


def modules_after(code):
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    )
    return set(done.stdout.split())


def test_importing_the_library_does_not_load_requests():
    """A client with addresses of nsqds never needs it."""
    made = "import nsqclient; nsqclient.Producer(['127.0.0.1:1']).close()"
    assert "requests" not in modules_after(made)


@pytest.mark.parametrize("name", nsqclient.http.__all__)
def test_every_public_name_can_be_imported(name):
    assert getattr(nsqclient.http, name).__name__ == name
