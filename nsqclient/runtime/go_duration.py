"""Durations as Go prints them; ``parse_duration`` in ``deadline`` reads them."""

from __future__ import annotations

_SMALL_UNITS = (("ms", 1e3), ("\u00b5s", 1e6), ("ns", 1e9))


def format_duration(seconds: float) -> str:
    """Write a duration as Go does: ``1h30m0s``, ``2.5s``, ``250ms``, ``0s``."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if 0 < seconds < 1:
        for unit, factor in _SMALL_UNITS:
            if seconds * factor >= 1 or unit == "ns":
                return _decimal(seconds * factor, 6) + unit
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    text = _decimal(whole % 60 + (seconds - whole), 9) + "s"
    if whole >= 60:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def _decimal(value: float, digits: int) -> str:
    """A decimal number without trailing zeros."""
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")
