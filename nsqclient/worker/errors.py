"""Why a worker cannot start; beside these there are the errors of Config and Consumer."""

from __future__ import annotations

from nsqclient.errors import ConfigError


class UsageError(ConfigError):
    """The command line is wrong, and no change of the code would help."""


class UnknownTargetError(UsageError):
    """The command line names a module or a function that does not exist."""


class ImportFailedError(ConfigError):
    """A module raised an exception while it was imported; its text is one line."""
