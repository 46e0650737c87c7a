"""Access to a spool: its owner alone has it, and the error of another process says why."""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from nsqclient.spark.spool.access import explain_denied, user_name  # noqa: E402 - as above
from nsqclient.spark.spool.names import is_spool_file  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool.spool import Spool  # noqa: E402 - needs pyarrow


@contextlib.contextmanager
def umask(value):
    """Run with another umask."""
    former = os.umask(value)
    try:
        yield
    finally:
        os.umask(former)


def start(path):
    """Open a spool, leave a temporary file as a crash does, and close it."""
    spool = Spool(str(path), "t", "c")
    spool.open(patience=0)
    spool.write_tmp(b"segment")
    spool.close()


def modes(path, kind):
    """The modes of what is under a folder, itself included."""
    return {entry.stat().st_mode & 0o7777
            for entry in [Path(path), *Path(path).rglob("*")] if kind(entry)}


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_only_the_owner_reads_the_spool(tmp_path, mask):
    """Files are 0600 and folders 0700, those above that are new included."""
    with umask(mask):
        start(tmp_path / "new" / "spool")
    assert modes(tmp_path / "new", Path.is_file) == {0o600}
    assert modes(tmp_path / "new", Path.is_dir) == {0o700}


def test_a_spool_of_a_looser_mode_is_tightened(tmp_path, caplog):
    """At its next start, with a line that says so."""
    start(tmp_path / "spool")
    for entry in [tmp_path / "spool", *(tmp_path / "spool").iterdir()]:
        entry.chmod(0o775)
    with caplog.at_level("INFO"):
        start(tmp_path / "spool")
    assert modes(tmp_path / "spool", Path.is_dir) == {0o700}
    assert not any(mode & 0o077 for mode in modes(tmp_path / "spool", Path.is_file))
    assert "had mode 0775; now only the owner can read it" in caplog.text


def test_a_folder_with_other_files_keeps_its_mode(tmp_path):
    """It could be /tmp; the files of the spool are their owner's alone all the same."""
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool").chmod(0o1777)
    (tmp_path / "spool" / "of somebody").write_text("")
    (tmp_path / "spool" / "of somebody").chmod(0o644)
    start(tmp_path / "spool")
    assert modes(tmp_path / "spool", Path.is_dir) == {0o1777}
    assert (tmp_path / "spool" / "of somebody").stat().st_mode & 0o777 == 0o644
    (tmp_path / "spool" / "of somebody").unlink()
    assert modes(tmp_path / "spool", Path.is_file) == {0o600}


def test_a_spool_of_another_user_keeps_its_mode_with_a_warning(tmp_path, monkeypatch, caplog):
    """Only its owner can change it."""
    start(tmp_path / "spool")
    (tmp_path / "spool").chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    start(tmp_path / "spool")
    assert modes(tmp_path / "spool", Path.is_dir) == {0o777}
    assert "has mode 0777 and belongs to" in caplog.text


@pytest.mark.parametrize("name, is_ours", [
    ("meta.json", True), ("lock", True), ("committed", True), ("unfinned.json", True),
    ("complete", True), ("epoch-000001", True), (".tmp-1-1", True), ("lost+found", False),
    ("000000000001-000001-5-00000000.arrow", True), ("part-0.parquet", False),
])
def test_files_of_a_spool_are_known_by_name(name, is_ours):
    """A folder that has any other is more than a spool."""
    assert is_spool_file(name) is is_ours


@contextlib.contextmanager
def another_user():
    """Run as a user that owns nothing here; needs root."""
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("denied", ["spool", "above"])
def test_what_denies_another_user_is_named(tmp_path, denied):
    """The folder itself, or one above it: with its mode, its owner and the user that asks."""
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top, "above", "spool")
        start(folder)
        if denied == "spool":
            os.chmod(top, 0o755)
            folder.parent.chmod(0o755)
        else:
            os.chmod(top, 0o711)
        name = folder if denied == "spool" else folder.parent
        with another_user():
            error = explain_denied(str(folder))
    assert str(error).startswith(
        f"spool {folder}: this executor does not see the driver's spool: {name} has mode 0700 and"
        " belongs to root (0), and this process runs as ")
    assert "65534" in error.why and "transport=inline" in error.remedy
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_user_without_a_name_has_a_number():
    """In a container there may be none."""
    assert user_name(4_000_111) == "uid 4000111"


def test_a_folder_above_all_that_is_denied_is_an_error_too(monkeypatch):
    """Even the root of the file system."""
    def deny(path):
        raise PermissionError

    monkeypatch.setattr(os, "stat", deny)
    assert "permission denied" in str(explain_denied("/a/b"))
