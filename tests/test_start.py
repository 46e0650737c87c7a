"""What imports load, in processes of their own."""

import subprocess
import sys

import pytest

import nsqclient

from tests.support.processes import CHECKOUT, user_environment


def loaded_after(statement: str, every: bool = False) -> set[str]:
    """Return the modules that a statement loads: of the package, or all."""
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys; print(*sys.modules)"],
        env={**user_environment(), "PYTHONPATH": str(CHECKOUT)}, check=True, capture_output=True,
        text=True,
    )
    return {name for name in done.stdout.split() if every or name.startswith("nsqclient")}


def test_the_front_door_and_the_plugin_load_nothing_else():
    assert loaded_after("import nsqclient") == {"nsqclient", "nsqclient.version"}
    assert loaded_after("import nsqclient.testing.pytest_plugin") == {
        "nsqclient", "nsqclient.version", "nsqclient.testing", "nsqclient.testing.pytest_plugin"}


def test_a_plain_nsqd_loads_only_what_it_serves():
    """Compression, AUTH, the client and the cluster are loaded with their first use."""
    loaded = loaded_after(
        "import nsqclient.cli; nsqclient.cli.main(['nsqd', '--version'])", every=True)
    assert "nsqclient.devserver.nsqd" in loaded
    unused = {"snappy", "hashlib", "urllib.request", "nsqclient.config",
              "nsqclient.devserver.partitioned", "nsqclient.worker.lifeline"}
    assert not unused & loaded


def test_a_module_of_the_client_needs_no_import_of_its_own():
    """As when all of it was loaded at once; another name is an AttributeError, with a reason."""
    assert "nsqclient.errors" in loaded_after(
        "import nsqclient; assert issubclass(nsqclient.errors.TLSError, Exception)")
    assert "nsqclient.http" in loaded_after("import nsqclient; nsqclient.http.NsqdHTTP")
    loaded_after("from nsqclient import *; Consumer, Producer, NSQError")
    loaded_after("import nsqclient; assert {'Consumer', '__version__'} <= set(dir(nsqclient))")
    loaded_after(
        "import nsqclient\n"
        "try:\n    nsqclient.Cnsumer\n"
        "except AttributeError as exc:\n    assert 'Cnsumer' in str(exc)\n"
        "else:\n    raise SystemExit(1)")


@pytest.mark.parametrize("environment, form", [
    ({}, "the C extension"), ({"NSQCLIENT_NATIVE": "0"}, "without the C extension")])
def test_the_version_command_prints_whether_the_c_extension_runs(environment, form):
    done = subprocess.run(
        [sys.executable, "-m", "nsqclient", "--version"], check=True, capture_output=True,
        text=True, env={**user_environment(), "PYTHONPATH": str(CHECKOUT), **environment})
    assert done.stdout.startswith(f"nsqclient {nsqclient.__version__}, with")
    assert done.stdout.endswith(f"{form}\n")


def test_a_client_without_snappy_does_not_load_it():
    """A second interpreter of the process cannot load the snappy library."""
    loaded = loaded_after("from nsqclient import Consumer, Producer", every=True)
    assert "nsqclient.connection.handshake" in loaded and not {"snappy", "cramjam"} & loaded
