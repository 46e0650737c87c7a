"""``Health``: whether an object works, and the reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Health:
    """Whether a consumer can receive, or a producer can publish, and why."""

    ok: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ok
