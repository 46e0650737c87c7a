"""rename_exclusive: nothing is replaced, whatever the volume can do."""

import ctypes
import errno
import os

import pytest

from nsqclient.runtime.files import rename_exclusive


def refuse_links(monkeypatch, code):
    def link(source, target):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", link)


def without_flag(*_):
    ctypes.set_errno(errno.EINVAL)
    return -1


class Libc:
    renameat2 = staticmethod(without_flag)


def rename(folder, may_reserve=True):
    rename_exclusive(str(folder / "a"), str(folder / "b"), may_reserve=may_reserve)


@pytest.fixture(params=["link", "EPERM", "EOPNOTSUPP", "ENOSYS", "no flag", "no renameat2"])
def volume(request, monkeypatch):
    if request.param == "link":
        return
    refuse_links(monkeypatch, getattr(errno, request.param, errno.EPERM))
    if request.param.startswith("no "):
        libc = Libc() if request.param == "no flag" else object()
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: libc)


def test_a_file_is_renamed(tmp_path, volume):
    (tmp_path / "a").write_bytes(b"a")
    rename(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
    assert (tmp_path / "b").read_bytes() == b"a"


def test_no_file_is_replaced(tmp_path, volume):
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    with pytest.raises(FileExistsError):
        rename(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"a", "b": b"b"}


def test_a_rename_that_failed_leaves_nothing(tmp_path, volume):
    with pytest.raises(FileNotFoundError):
        rename(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_crash_between_link_and_unlink_is_completed(tmp_path):
    (tmp_path / "a").write_bytes(b"a")
    os.link(tmp_path / "a", tmp_path / "b")
    rename(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_no_name_is_reserved_unless_allowed(tmp_path, monkeypatch):
    refuse_links(monkeypatch, errno.EPERM)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Libc())
    (tmp_path / "a").write_bytes(b"a")
    with pytest.raises(OSError, match="neither hard links"):
        rename(tmp_path, may_reserve=False)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_other_errors_are_raised(tmp_path, monkeypatch):
    refuse_links(monkeypatch, errno.EROFS)
    (tmp_path / "a").write_bytes(b"a")
    with pytest.raises(OSError, match="Read-only"):
        rename(tmp_path)
