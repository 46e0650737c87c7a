"""The version of PySpark, and the Python of its workers. No JVM."""

import sys
from types import SimpleNamespace

import pytest

from nsqclient.errors import ConfigError
from nsqclient.spark.session import check_python, check_version, choose_python


def test_workers_of_one_machine_run_the_python_of_the_program(monkeypatch):
    """Whatever comes first on the path; a Python that was named is kept."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    context = SimpleNamespace(pythonExec="python3")
    for _ in range(2):
        choose_python(context, is_local=True)
        assert context.pythonExec == sys.executable
        monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


def test_a_python_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="No such file.*PYSPARK_PYTHON"):
        check_python(str(tmp_path / "python9"))


def test_a_python_without_nsqclient_is_refused_unless_spark_sends_it(tmp_path, monkeypatch):
    """The error names it, and what to set; a zip file of --py-files counts."""
    for name in ("nsqclient", "pyarrow"):
        (tmp_path / f"{name}.py").touch()
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\ncd /\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(ConfigError, match=f"run {python}.*No module named.*PYSPARK_PYTHON to"):
        check_python(str(python))
    check_python(str(python), [str(tmp_path)])


@pytest.mark.parametrize("version, streams, is_enough", [
    ("4.0.1", False, False), ("4.1.0", False, True), ("4.1.2.dev0", False, True),
    ("4.1.2.dev0", True, False), ("4.2.0", True, True), ("4.10.0", True, True),
])
def test_pyspark_4_1_is_needed_and_4_2_for_streaming_reads(version, streams, is_enough):
    """The error names what it is, and what to install."""
    if is_enough:
        check_version(version, streams=streams)
    else:
        with pytest.raises(ConfigError, match=f"streaming reads 4.2; this is {version}: pip"):
            check_version(version, streams=streams)
