"""The proxies' record: the OKs and the deliveries of each nsqd, read from the bytes on the wire."""

import struct
import threading
import time
from collections import deque
from typing import NamedTuple

#: Commands with a body behind their line.
_SIZED = {b"IDENTIFY", b"AUTH", b"PUB", b"DPUB", b"MPUB"}
_ANSWERED = _SIZED | {b"SUB", b"CLS"}


class Sighting(NamedTuple):
    """Something was seen on the wire of an nsqd at a time (time.monotonic())."""

    nsqd: int
    at: float


def id_of(body: bytes) -> str:
    return body.split(b" ", 1)[0].decode("ascii", "replace")


class _Dialogue:
    def __init__(self) -> None:
        self.client = b""
        self.server = b""
        self.has_magic = False
        self.waiting: deque[list[str]] = deque()  # ids of each command that will be answered
        self.out: dict[bytes, str] = {}  # nsqd's id -> our id, of delivered messages


class Record:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._dialogues: dict[tuple[int, int], _Dialogue] = {}
        self.stored: dict[str, list[Sighting]] = {}
        self.delivered: dict[str, list[Sighting]] = {}
        self.finished: set[str] = set()

    def take(self, nsqd: int, link: int, direction: str, data: bytes) -> None:
        """Bytes that were forwarded on connection ``link`` of an nsqd's proxy."""
        with self._lock:
            dialogue = self._dialogues.setdefault((nsqd, link), _Dialogue())
            if direction == "client":
                dialogue.client += data
                self._read_commands(dialogue)
            else:
                dialogue.server += data
                self._read_frames(dialogue, Sighting(nsqd, time.monotonic()))

    def _read_commands(self, dialogue: _Dialogue) -> None:
        if not dialogue.has_magic:
            if len(dialogue.client) < 4:
                return
            dialogue.has_magic, dialogue.client = True, dialogue.client[4:]
        while True:
            line, end, rest = dialogue.client.partition(b"\n")
            if not end:
                return
            name, body = line.split(b" ", 1)[0], b""
            if name in _SIZED:
                size = int.from_bytes(rest[:4], "big")
                if len(rest) < 4 + size:
                    return
                body, rest = rest[4:4 + size], rest[4 + size:]
            dialogue.client = rest
            if name == b"FIN":
                self.finished.add(dialogue.out.get(line[4:], "?"))
            if name in _ANSWERED:
                dialogue.waiting.append(_ids(name, body))

    def _read_frames(self, dialogue: _Dialogue, seen: Sighting) -> None:
        while len(dialogue.server) >= 8:
            size, kind = struct.unpack(">II", dialogue.server[:8])
            if len(dialogue.server) < 4 + size:
                return
            data, dialogue.server = dialogue.server[8:4 + size], dialogue.server[4 + size:]
            if kind == 2:
                message_id = dialogue.out[data[10:26]] = id_of(data[26:])
                self.delivered.setdefault(message_id, []).append(seen)
            elif kind == 0 and data != b"_heartbeat_" and dialogue.waiting:
                for message_id in dialogue.waiting.popleft():
                    self.stored.setdefault(message_id, []).append(seen)


def _ids(name: bytes, body: bytes) -> list[str]:
    if name in (b"PUB", b"DPUB"):
        return [id_of(body)]
    if name != b"MPUB":
        return []
    ids, at = [], 4
    while at < len(body):
        size = int.from_bytes(body[at:at + 4], "big")
        ids.append(id_of(body[at + 4:at + 4 + size]))
        at += 4 + size
    return ids
