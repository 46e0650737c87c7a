"""A failure in the task of a job."""

from __future__ import annotations

import os


def with_failure(frame, marker, when):
    """Let the first task that gets here fail, before or after it has read its rows."""

    def fail_once(batches):
        if when == "after":
            batches = list(batches)
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            raise RuntimeError("this task fails on purpose")
        yield from batches

    return frame.mapInArrow(fail_once, frame.schema)
