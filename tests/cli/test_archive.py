"""nsq_to_file: names, rotation and files of its Archive by value; when messages are finished."""

import errno
import gzip
import logging
import os
import subprocess
import time

import pytest

from nsqclient import Message
from nsqclient.cli.archiver import (
    Archive, Archiver, FileNames, count_that_fit, rotation_reason,
)
from nsqclient.cli.archive_files import OutputPaths, RotationRules, gzip_codec
from nsqclient.cli.flags import CommandLineError
from nsqclient.runtime.log_lines import PrefixedLogger
from nsqclient.testing import make_message

LOG = PrefixedLogger(logging.getLogger("nsqclient.nsq_to_file"), "")


def messages(*bodies, second=0):
    return [make_message(body, timestamp=second * 10**9) for body in bodies]


def make(folder, name="t<REV>.<DATETIME>", *, codec=None, work=None,
         rules=RotationRules(), by_timestamp=False, skip_empty=False, done=None, file_mode=0o640):
    paths = OutputPaths(
        str(folder / "out"), str(work or folder / "out"), codec, rules, file_mode, LOG)
    return Archive(
        FileNames(name, "%S", topic="t", hostname="h", host_identifier="", pid=1,
                  needs_rev="<REV>" in name, suffix=""),
        paths, rules, lambda message: message.body + b"\n", by_timestamp=by_timestamp,
        skip_empty=skip_empty, on_closed=[].append if done is None else done.append, log=LOG,
    )


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_new_name_starts_a_new_file(tmp_path):
    done: list[str] = []
    archive = make(tmp_path, done=done)
    archive.write(messages(b"a"), 1.0)
    archive.write(messages(b"b", b"c"), 2.0)
    assert done == [str(tmp_path / "out" / "t-000000.01")]
    archive.close()
    assert tree(tmp_path / "out") == {"t-000000.01": b"a\n", "t-000000.02": b"b\nc\n"}


def test_a_fifo_is_refused_at_once(tmp_path):
    """Opening a FIFO would block until it has a reader, and delay signals."""
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "t-000000.01")
    with pytest.raises(OSError, match="not a regular file|No such device"):
        make(tmp_path).write(messages(b"a"), 1.0)


def test_a_plain_file_is_appended_to_after_a_restart(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "t-000000.01").write_bytes(b"whole\nhal")
    archive = make(tmp_path)
    archive.write(messages(b"half"), 1.0)
    archive.close()
    assert tree(tmp_path / "out") == {"t-000000.01": b"whole\nhal\nhalf\n"}


def test_each_sync_ends_a_gzip_member(tmp_path):
    archive = make(tmp_path, "t<REV>.gz", codec=gzip_codec(6))
    archive.tick(1.0)
    archive.close()
    for body in (b"a", b"b"):
        archive.write(messages(body), 1.0)
        archive.sync()
    archive.close()
    for rev, content in ((0, b""), (1, b"a\nb\n")):
        path = tmp_path / "out" / f"t-00000{rev}.gz"
        assert gzip.decompress(path.read_bytes()) == content
        assert subprocess.run(["gzip", "-dc", path], capture_output=True).stdout == content


def test_records_that_were_not_synced_are_rolled_back(tmp_path):
    archive = make(tmp_path, "t<REV>.gz", codec=gzip_codec(6))
    archive.write(messages(b"a"), 1.0)
    archive.sync()
    archive.write(messages(os.urandom(200_000)), 1.0)
    archive.roll_back()
    archive.write(messages(b"b"), 1.0)
    archive.close()
    (data,) = tree(tmp_path / "out").values()
    assert gzip.decompress(data) == b"a\nb\n"


def test_a_full_disk_leaves_whole_records(tmp_path, monkeypatch):
    archive = make(tmp_path)
    archive.write(messages(b"a"), 1.0)
    archive.sync()
    write = os.write

    def full(fd, data):
        if len(data) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, bytes(data)[:3])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        archive.write(messages(b"1234567"), 1.0)
    archive.roll_back()
    assert tree(tmp_path / "out") == {"t-000000.01": b"a\n"}
    monkeypatch.undo()
    archive.write(messages(b"1234567"), 1.0)
    archive.close()
    assert tree(tmp_path / "out") == {"t-000000.01": b"a\n1234567\n"}


def test_records_that_another_process_appended_are_kept(tmp_path):
    archive = make(tmp_path, "t")
    archive.write(messages(b"a"), 1.0)
    with open(tmp_path / "out" / "t", "ab") as file:
        file.write(b"other\n")
    archive.roll_back()
    archive.write(messages(b"b"), 1.0)
    archive.close()
    assert tree(tmp_path / "out") == {"t": b"a\nother\nb\n"}


def test_finished_files_move_and_never_replace(tmp_path):
    work, done = tmp_path / "work", []
    archive = make(tmp_path, "d/t<REV>", work=work, done=done)
    archive.write(messages(b"a"), 1.0)
    assert tree(work) == {"d/t-000000": b"a\n"} and tree(tmp_path / "out") == {}
    (tmp_path / "out" / "d" / "t-000000").write_bytes(b"mine")
    archive.close()
    assert tree(work) == {} and done == [str(tmp_path / "out" / "d" / "t-000001")]
    assert tree(tmp_path / "out") == {"d/t-000000": b"mine", "d/t-000001": b"a\n"}


def refuse(*_):
    raise OSError(errno.EROFS, "Read-only file system")


def test_a_file_that_cannot_be_moved_is_set_aside(tmp_path, monkeypatch, caplog):
    archive = make(tmp_path, "t<REV>", work=tmp_path / "work", skip_empty=True)
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", refuse)
        for now, body in ((1.0, b"a"), (2.0, b"b"), (100.0, b"c")):
            archive.write(messages(body), now)
            archive.close()
            archive.tick(now)
        assert archive.unfinished()[0] == str(tmp_path / "work" / "t-000000")
        errors = [record for record in caplog.records if record.levelname == "ERROR"]
        assert len(errors) == 3 and "t-000000" in errors[0].getMessage()
    archive.tick(300.0)
    assert tree(tmp_path / "out") == {
        "t-000000": b"a\n", "t-000001": b"b\n", "t-000002": b"c\n"}
    assert not archive.has_failed
    archive.close()


def test_a_file_that_is_gone_is_reported_once(tmp_path, caplog):
    archive = make(tmp_path, "t<REV>", work=tmp_path / "work")
    archive.write(messages(b"a"), 1.0)
    archive.sync()
    (tmp_path / "work" / "t-000000").rename(tmp_path / "elsewhere")
    archive.close()
    archive.write(messages(b"b"), 2.0)
    archive.close()
    assert tree(tmp_path / "out") == {"t-000001": b"b\n"}
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    assert archive.has_failed and archive.unfinished() == []


@pytest.mark.parametrize("work", [None, "work"])
def test_records_of_a_deleted_file_are_written_again(tmp_path, work):
    archive = make(tmp_path, "t<REV>", work=work and tmp_path / work)
    archive.write(messages(b"a"), 1.0)
    (path,) = archive.unfinished()
    os.unlink(path)
    with pytest.raises(FileNotFoundError, match="has deleted"):
        archive.sync()
    archive.roll_back()
    archive.write(messages(b"a"), 2.0)
    archive.sync()
    archive.close()
    assert list(tree(tmp_path / "out").values()) == [b"a\n"]


def make_paths(folder, codec=None):
    return OutputPaths(
        str(folder / "out"), str(folder / "work"), codec, RotationRules(), 0o640, LOG)


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_volume_without_hard_links_is_used(tmp_path, monkeypatch, code):
    def no_link(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", no_link)
    make_paths(tmp_path).probe()
    archive = make(tmp_path, "t<REV>", work=tmp_path / "work")
    archive.write(messages(b"a"), 1.0)
    archive.close()
    assert tree(tmp_path) == {"out/t-000000": b"a\n"}


@pytest.mark.parametrize("name", ["out", "work"])
def test_a_directory_that_cannot_be_used_is_found_by_the_probe(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(CommandLineError, match=f"cannot create files: .*{name}"):
        make_paths(tmp_path).probe()


def test_a_work_directory_has_one_archiver_of_a_topic(tmp_path):
    first, second = make_paths(tmp_path), make_paths(tmp_path)
    first.probe()
    first.lock("t")
    first.open("t<REV>", 0, 1.0).abandon()
    with pytest.raises(CommandLineError, match=rf"topic t is in use .*process {os.getpid()}\)"):
        second.lock("t")
    second.lock("other")
    second.release()
    first.release()
    second.lock("t")
    second.release()


@pytest.mark.parametrize(("codec", "name", "written", "expected"), [
    (None, "t<REV>", b"whole\nhal", b"whole\nhal\n"),
    (gzip_codec(6), "t<REV>.gz", b"torn", b"torn"),
])
def test_files_of_a_killed_archiver_are_finished(tmp_path, codec, name, written, expected):
    former = make_paths(tmp_path, codec)
    former.probe()
    former.lock("t")
    for rev in range(3):
        file = former.open(name, rev, 1.0)
        file.abandon()
    path = tmp_path / "work" / name.replace("<REV>", "-000000")
    path.write_bytes(written)
    (tmp_path / "work" / name.replace("<REV>", "-000001")).unlink()
    former.release()  # as the end of its process does
    paths, done = make_paths(tmp_path, codec), []
    paths.lock("t")
    archive = Archive(
        FileNames(name, "", topic="t", hostname="h", host_identifier="", pid=1, needs_rev=True,
                  suffix=""),
        paths, RotationRules(), lambda message: message.body, by_timestamp=False,
        skip_empty=True, on_closed=done.append, log=LOG)
    archive.finish_left_files()
    paths.release()
    assert tree(tmp_path / "out") == {
        name.replace("<REV>", "-000000"): expected, name.replace("<REV>", "-000002"): b""}
    assert [os.path.basename(path) for path in done] == sorted(tree(tmp_path / "out"))


@pytest.mark.parametrize("work", [None, "work"])
@pytest.mark.parametrize("name", [
    "../t<REV>", "..", "d/../../t<REV>", "d/..", "linked/t<REV>", ".",
])
def test_no_file_is_outside_of_the_directory(tmp_path, name, work):
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "linked").symlink_to(outside)
    archive = make(tmp_path, name, work=work and tmp_path / work)
    with pytest.raises(OSError, match="outside"):
        archive.write(messages(b"a"), 1.0)
    assert tree(tmp_path) == {} and not list(outside.iterdir())


def test_a_link_in_place_of_a_file_is_not_followed_out_of_the_directory(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "t").symlink_to(tmp_path / "elsewhere")
    archive = make(tmp_path, "t")
    with pytest.raises(OSError, match="outside"):
        archive.write(messages(b"a"), 1.0)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mode", [0o640, 0o600, 0o664])
@pytest.mark.parametrize("is_copied", [False, True])
def test_files_have_the_mode_that_was_asked_for(tmp_path, monkeypatch, mode, is_copied):
    link = os.link

    def refuse(source, target):
        if is_copied and os.path.dirname(source) != os.path.dirname(target):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        link(source, target)

    monkeypatch.setattr(os, "link", refuse)
    former = os.umask(0)
    try:
        archive = make(tmp_path, "t<REV>", work=tmp_path / "work", file_mode=mode)
        archive.write(messages(b"a"), 1.0)
        archive.close()
    finally:
        os.umask(former)
    assert (tmp_path / "out" / "t-000000").stat().st_mode & 0o777 == mode


def test_messages_choose_their_file_by_their_own_time(tmp_path):
    archive = make(tmp_path, by_timestamp=True, rules=RotationRules(interval=1e9))
    batch = messages(b"a", second=1) + messages(b"b", second=2) + messages(b"c", second=1)
    archive.write(batch, 50.0)
    archive.tick(51.0)
    assert len(archive.unfinished()) == 2
    archive.tick(52.0)
    assert archive.unfinished() == []
    assert tree(tmp_path / "out") == {"t-000000.01": b"a\nc\n", "t-000000.02": b"b\n"}


#: 2026-01-04 was a Sunday.
MOMENT = time.struct_time((2026, 1, 4, 15, 7, 9, 6, 4, 0), {"tm_zone": "CET", "tm_gmtoff": 3600})


def names(text, datetime_format="%S", **changes):
    arguments = {"topic": "t", "hostname": "a.example.org", "host_identifier": "", "pid": 7,
                 "needs_rev": False, "suffix": ""}
    return FileNames(text, datetime_format, **(arguments | changes))


def test_a_missing_rev_is_rejected():
    with pytest.raises(CommandLineError, match="missing <REV>"):
        names("<TOPIC>", needs_rev=True)


def test_names_follow_the_time():
    found = names("a<REV>.<DATETIME>", needs_rev=True)
    assert [found.at(moment) for moment in (5.0, 5.9, 6.0)] == ["a<REV>.05"] * 2 + ["a<REV>.06"]


@pytest.mark.parametrize(("name", "now", "rules", "expected"), [
    ("name", 1e9, RotationRules(), None),
    ("other", 101.0, RotationRules(), "new filename other"),
    ("name", 110.0, RotationRules(interval=10.0), None),
    ("name", 111.0, RotationRules(interval=10.0), "11.000s since last open"),
    ("name", 101.0, RotationRules(size=10), None),
    ("name", 101.0, RotationRules(size=9), "currently 10 bytes (> 9)"),
])
def test_a_file_is_rotated_by_name_age_or_size(name, now, rules, expected):
    assert rotation_reason("name", 100.0, 10, name, now, rules) == expected


@pytest.mark.parametrize(("sizes", "size", "limit", "expected"), [
    ([6, 6, 6], 0, 10, 2),  # 12 bytes: more than 10, so the third has to wait
    ([5, 5, 5], 0, 10, 3),  # exactly 10 is not more than 10
    ([6], 11, 10, 0),
    ([6, 6], 99, 0, 2),
])
def test_a_file_takes_records_until_it_is_over_its_limit(sizes, size, limit, expected):
    assert count_that_fit(sizes, size, RotationRules(size=limit)) == expected


class Consumer:
    def is_starved(self):
        return False

    def run_later(self, delay, task):
        pass

    def run_on_worker(self, task):
        task()


class World:
    """An Archiver of two messages; ``events``: writes to the disk, and responses."""

    def __init__(self, folder, monkeypatch, **options):
        self.events = []
        self.error = None
        monkeypatch.setattr(os, "fsync", self.fsync)
        self.archiver = Archiver(make(folder, "t", **options), 2, 60.0, LOG)
        self.archiver.bind(Consumer())

    def fsync(self, descriptor):
        if self.error is not None:
            raise self.error
        # Excludes the fsync of a folder.
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        if name == "t":
            self.events.append(f"on disk: {os.fstat(descriptor).st_size > 0}")

    def take(self, *bodies):
        now = time.monotonic()
        for body in bodies:
            self.archiver(Message(body, b"%016d" % len(self.events), 1, 0, now, now + 60, self))

    def finish(self, message):
        self.events.append(f"FIN {message.body.decode()}")

    def requeue(self, message, delay, backoff):
        self.events.append(f"REQ {message.body.decode()}")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("options", [{}, {"codec": gzip_codec(6)}])
def test_messages_are_finished_after_fsync(tmp_path, monkeypatch, options):
    """The file has them on the disk when the first FIN leaves; so it is again with the next two."""
    world = World(tmp_path, monkeypatch, **options)
    for first, second in ("ab", "cd"):
        world.events.clear()
        world.take(first.encode(), second.encode())
        assert world.events == ["on disk: True", f"FIN {first}", f"FIN {second}"]
    world.archiver.flush()


def test_messages_are_not_finished_after_a_failed_fsync(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    world.error = OSError(errno.EIO, "Input/output error")
    world.take(b"a", b"b")
    assert world.events == ["REQ a", "REQ b"]
    world.error = None
    world.archiver.flush()
    assert (tmp_path / "out" / "t").read_bytes() == b""
