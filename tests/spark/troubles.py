"""What a task of a job is made to suffer."""

from __future__ import annotations

import os


def with_trouble(frame, marker, when):
    """Let the first task that gets here fail, before or after it has read its rows."""

    def trouble(batches):
        if when == "after":
            batches = list(batches)
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            raise RuntimeError("this task fails, as it was told to")
        yield from batches

    return frame.mapInArrow(trouble, frame.schema)
