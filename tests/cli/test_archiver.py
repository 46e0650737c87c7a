"""When nsq_to_file finishes a message: after the disk has it."""

import errno
import os
import time

import pytest

from nsqclient import Message
from nsqclient.cli.archiver import Archiver
from nsqclient.cli.archive_files import gzip_codec
from tests.cli.test_archive import LOG, make


class Consumer:
    """A consumer of one worker thread: this one."""

    def is_starved(self):
        return False

    def run_later(self, delay, task):
        pass

    def run_on_worker(self, task):
        task()


class World:
    """An Archiver of two messages; ``events``: what reached the disk, and what was answered."""

    def __init__(self, folder, monkeypatch, **options):
        self.events = []
        self.error = None
        monkeypatch.setattr(os, "fsync", self.fsync)
        self.archiver = Archiver(make(folder, "t", **options), 2, 60.0, LOG)
        self.archiver.bind(Consumer())

    def fsync(self, descriptor):
        if self.error is not None:
            raise self.error
        # Not that of a folder, for the names in it.
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
