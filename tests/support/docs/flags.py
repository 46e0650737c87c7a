"""Which flags the commands of ``nsqclient`` have, according to their own help."""

import contextlib
import functools
import io
import re
from collections.abc import Iterable

from nsqclient.cli import main


@functools.cache
def flags_of(*command: str) -> frozenset[str]:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        with contextlib.suppress(SystemExit):
            main([*command, "--help"])
    text = output.getvalue()
    return frozenset(re.findall(r"(?<![\w-])--?([A-Za-z][\w-]*)", text)) | {"help", "version"}


def unknown_flags(words: Iterable[str], known: frozenset[str]) -> list[str]:
    """Return the words that look like a flag which the command does not have."""
    flags = [word.lstrip("-").split("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]
    return [flag for flag in flags if flag not in known]
