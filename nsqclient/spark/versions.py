"""What each version of PySpark can do with the data source. Pure."""

from __future__ import annotations

from nsqclient.errors import ConfigError

#: The first with every class of the sink, of peeks and of drains.
_OLDEST = (4, 1)
#: The first where a source can limit its batches, and end with ``trigger(availableNow=True)``.
_STREAMING = (4, 2)


def check_version(version: str) -> None:
    """Check a version for the sink, for peeks and for drains.

    Raises:
        ConfigError: it is too old.
    """
    if _parse(version) < _OLDEST:
        raise ConfigError(
            f"the data source nsq needs PySpark 4.1, for streaming reads 4.2; this is {version}:"
            " pip install --upgrade 'nsqclient[spark]'")


def check_streaming(version: str) -> None:
    """Check a version for ``readStream``.

    Raises:
        ConfigError: it is too old.
    """
    if _parse(version) < _STREAMING:
        raise ConfigError(
            f"streaming reads need PySpark 4.2; this is {version}, which can write, peek and drain:"
            " pip install --upgrade 'nsqclient[spark]'")


def _parse(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
