"""The keys of the objects of shards, below the URL of the storage. Pure.

::

    TOPIC/CHANNEL/shards/HOST:PORT                registers a shard
    TOPIC/CHANNEL/readers/000000000007/000000000042
                                                  the 42nd heartbeat of the seventh query; number 0
                                                  contains the query's process
    TOPIC/CHANNEL/starts/4f0c1b6a7d2e9835         the start of a query without a checkpoint, until
                                                  its first commit; the name is a hash of its option
    TOPIC/CHANNEL/HOST:PORT/segments/000000000/000000000812-000000000203000.arrow
                                                  segment 812, after 203,000 rows in others
    TOPIC/CHANNEL/HOST:PORT/notes/000000000800-000003.json
                                                  note 3 about the segments up to 800: the messages
                                                  that may be unfinished at nsqd
    TOPIC/CHANNEL/HOST:PORT/commits/000000000790  Spark has committed segments up to 790
    TOPIC/CHANNEL/HOST:PORT/floors/000000000500   segments up to 500 are deleted, or will be now
    TOPIC/CHANNEL/owners/MEMBER/000000000042-1f0c...
                                                  the 42nd heartbeat of a member, with the digest of
                                                  the nsqds that it reaches
    TOPIC/CHANNEL/owners/ended-JOB                tells the owners of this job to end

The key of a segment follows from the segment before it: the next number, and the rows so far. So
two writers that know the same segments try to create the same key, and the storage lets one of them
win. The keys in a listing tell the rows of all segments but the last. A folder has the segments of
a thousand numbers, so that a listing of new segments opens only one or two folders.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple
from urllib.parse import quote, unquote

_IN_FOLDER = 1000
_SEGMENT = re.compile(r"/segments/\d{9,}/(\d{12,})-(\d{15,})\.arrow$", re.ASCII)
_NUMBER = re.compile(r"/(\d{12,})$", re.ASCII)
_READER = re.compile(r"/readers/(\d{12,})/(\d{12,})$", re.ASCII)
_MEMBER = re.compile(r"/owners/([0-9a-f]+)/(\d{12,})-([0-9a-f]{16})$", re.ASCII)
_NOTE = re.compile(r"/notes/(\d{12,})-(\d{6,})\.json$", re.ASCII)


class Segment(NamedTuple):
    """A segment in a listing. Its key has the first two fields."""

    number: int
    before: int  #: rows in all segments before it
    size: int = 0  #: bytes of the object
    stored: float = 0.0  #: seconds since 1970, by the clock of the storage


class NoteKey(NamedTuple):
    clean_to: int  #: the note is about the segments up to this one
    serial: int


class MemberKey(NamedTuple):
    member: str
    serial: int
    digest: str  #: digest of the nsqds that the member can reach


def channel_folder(topic: str, channel: str) -> str:
    return f"{topic}/{quote(channel, safe='')}"


class ShardKeys(NamedTuple):
    topic: str
    channel: str
    nsqd: str  #: address, host:port

    @property
    def shard(self) -> str:
        return f"{registry(self.topic, self.channel)}/{quote(self.nsqd, safe=':[]')}"

    @property
    def folder(self) -> str:
        return f"{channel_folder(self.topic, self.channel)}/{quote(self.nsqd, safe=':[]')}"

    def of(self, kind: str) -> str:
        """The folder of ``segments``, ``notes``, ``commits`` or ``floors``."""
        return f"{self.folder}/{kind}"

    def segment(self, number: int, before: int) -> str:
        return f"{self._segment_start(number)}-{before:015d}.arrow"

    def after_segment(self, number: int) -> str:
        """A text that sorts after the keys of segments up to ``number``, and before the others."""
        return self._segment_start(number + 1)

    def _segment_start(self, number: int) -> str:
        return f"{self.of('segments')}/{number // _IN_FOLDER:09d}/{number:012d}"

    def note(self, key: NoteKey) -> str:
        return f"{self.of('notes')}/{key.clean_to:012d}-{key.serial:06d}.json"

    def commit(self, number: int) -> str:
        return f"{self.of('commits')}/{number:012d}"

    def floor(self, number: int) -> str:
        return f"{self.of('floors')}/{number:012d}"


def partition_of_source(source: str) -> int | None:
    """Return the partition of a shard, such as ``partition-3``; None for the address of an nsqd."""
    head, _, number = source.partition("-")
    return int(number) if head == "partition" and ":" not in number else None


def readers(topic: str, channel: str) -> str:
    return f"{channel_folder(topic, channel)}/readers"


def reader_beat(topic: str, channel: str, number: int, serial: int) -> str:
    """The key of a reader's heartbeat. Heartbeat 0 contains the reader's process."""
    return f"{readers(topic, channel)}/{number:012d}/{serial:012d}"


def parse_reader(key: str) -> tuple[int, int] | None:
    match = _READER.search(key)
    return None if match is None else (int(match[1]), int(match[2]))


def registry(topic: str, channel: str) -> str:
    return f"{channel_folder(topic, channel)}/shards"


def starts(topic: str, channel: str) -> str:
    return f"{channel_folder(topic, channel)}/starts"


def start_key(topic: str, channel: str, start: str) -> str:
    digest = hashlib.sha256(start.encode()).hexdigest()[:16]
    return f"{starts(topic, channel)}/{digest}"


def parse_shard(key: str) -> str:
    return unquote(key.rpartition("/")[2])


def parse_segment(key: str, size: int = 0, stored: float = 0.0) -> Segment | None:
    match = _SEGMENT.search(key)
    return None if match is None else Segment(int(match[1]), int(match[2]), size, stored)


def parse_note(key: str) -> NoteKey | None:
    match = _NOTE.search(key)
    return None if match is None else NoteKey(int(match[1]), int(match[2]))


def parse_number(key: str) -> int | None:
    match = _NUMBER.search(key)
    return None if match is None else int(match[1])


def members(topic: str, channel: str) -> str:
    return f"{channel_folder(topic, channel)}/owners"


def heartbeat_key(topic: str, channel: str, key: MemberKey) -> str:
    return f"{members(topic, channel)}/{key.member}/{key.serial:012d}-{key.digest}"


def ended_key(topic: str, channel: str, job: str) -> str:
    return f"{members(topic, channel)}/ended-{job}"


def parse_heartbeat(key: str) -> MemberKey | None:
    match = _MEMBER.search(key)
    return None if match is None else MemberKey(match[1], int(match[2]), match[3])
