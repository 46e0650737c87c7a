"""Ctrl-C at every point of a function where it may come, one after the other, without luck."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any


def interrupt_everywhere(function: Any, work: Callable[[], Callable[[], None]]) -> int:
    """Run something again and again, each time interrupted one point later.

    Args:
        function: in which KeyboardInterrupt is raised.
        work: does it, and returns what to call to check the state that is left. It catches
            KeyboardInterrupt itself.

    Returns: how often it was interrupted.
    """
    number = 0
    while _run(function.__code__, number, work):
        number += 1
    return number


def _points(code: CodeType) -> set[int]:
    """Where CPython lets signal handlers run: behind calls and at the start of a function."""
    points = set()
    last = "RESUME"
    for instruction in dis.get_instructions(code):
        if last.startswith(("CALL", "RESUME")):
            points.add(instruction.offset)
        last = instruction.opname
    return points


def _run(code: CodeType, number: int, work: Callable[[], Callable[[], None]]) -> bool:
    """Interrupt after so many points; False when there were fewer."""
    points = _points(code)
    left = number
    is_done = False

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left, is_done
        if frame.f_code is not code or is_done:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in points:
            if not left:
                is_done = True
                raise KeyboardInterrupt
            left -= 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        check = work()
    finally:
        sys.settrace(before)
    check()
    return is_done
