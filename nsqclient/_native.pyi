from collections.abc import Sequence

def exchange(
    fd: int, command: bytes, start: int, seconds: float, /
) -> tuple[int, bytes | int | None]: ...

def pack_bodies(bodies: Sequence[bytes], before: bytes, /) -> bytes: ...

def parse_messages(
    data: bytes, start: int, max_frame_size: int, /
) -> tuple[list[tuple[int, int, bytes, bytes]], int]: ...
