"""The version of PySpark, and the Python of its workers. No JVM."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from nsqclient.errors import ConfigError
from nsqclient.spark.session import check_python, check_streaming, check_version, choose_python


def without_packages(folder):
    """A Python that has nothing but the standard library."""
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_workers_of_one_machine_run_the_python_of_the_program(monkeypatch):
    """Whatever comes first on the path."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    context = SimpleNamespace(pythonExec="python3")
    choose_python(context, is_local=True)
    assert context.pythonExec == sys.executable


def test_a_python_that_was_named_is_kept(monkeypatch):
    """This one is the program's, so there is nothing to check."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    context = SimpleNamespace(pythonExec=sys.executable)
    choose_python(context, is_local=True)
    assert context.pythonExec == sys.executable


def test_a_python_without_nsqclient_is_refused(tmp_path):
    """The error names it, and what to set."""
    python = without_packages(tmp_path)
    with pytest.raises(ConfigError, match=f"run {python}.*No module named.*PYSPARK_PYTHON to"):
        check_python(python)


def test_a_python_that_is_not_there_is_refused(tmp_path):
    """As Spark would find it out, in a traceback of 40 lines."""
    with pytest.raises(ConfigError, match="No such file.*PYSPARK_PYTHON"):
        check_python(str(tmp_path / "python9"))


def test_what_spark_sends_counts(tmp_path, monkeypatch):
    """Such as a zip file of --py-files."""
    for name in ("nsqclient", "pyarrow"):
        (tmp_path / f"{name}.py").touch()
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\ncd /\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(ConfigError):
        check_python(str(python))
    check_python(str(python), [str(tmp_path)])


@pytest.mark.parametrize("version", ["4.1.0", "4.1.2.dev0", "4.2.0", "4.10.0", "5.0.0"])
def test_the_sink_peeks_and_drains_need_4_1(version):
    """Also a development version of it."""
    check_version(version)


@pytest.mark.parametrize("version", ["3.5.6", "4.0.1"])
def test_an_older_one_is_refused(version):
    """The error names what it is, and what to install."""
    with pytest.raises(ConfigError, match=f"needs PySpark 4.1.* this is {version}: pip install"):
        check_version(version)


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "5.0.0"])
def test_streaming_reads_need_4_2(version):
    """From then on a source limits its batches."""
    check_streaming(version)


def test_a_streaming_read_on_4_1_is_refused():
    """In one line, which says what can be done there."""
    with pytest.raises(ConfigError) as caught:
        check_streaming("4.1.1")
    assert str(caught.value).startswith("streaming reads need PySpark 4.2; this is 4.1.1, which")
