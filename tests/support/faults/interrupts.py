"""Ctrl-C at each point of a call where it may come, one after the other."""

from __future__ import annotations

import ctypes
import dis
import functools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import nsqclient

#: Code of the library, and of the Python modules that it is built on.
_LIBRARY = str(Path(nsqclient.__file__).parent)
_THREADING = threading.__file__


def interrupt_everywhere(function: Any, work: Callable[[], Callable[[], None]]) -> int:
    """Run something again and again, each time interrupted one point later."""
    code = function.__code__

    def run(number: int) -> bool:
        interruption = Interruption(number, lambda other: other is code)
        with interruption:
            check = work()
        check()
        return interruption.has_come

    number = 0
    while run(number):
        number += 1
    return number


def is_library(code: CodeType) -> bool:
    return code.co_filename.startswith(_LIBRARY) or code.co_filename == _THREADING


class Interruption:
    """Raises in the calling thread, in the block, at the given point where CPython could.

    Args:
        number: how many points are passed before.
        is_wanted: whether the points of this code count.
        error: the exception to raise.
    """

    def __init__(
        self, number: int, is_wanted: Callable[[CodeType], bool] = is_library,
        error: type[BaseException] = KeyboardInterrupt,
    ) -> None:
        self._left = number
        self._is_wanted = is_wanted
        self._error = error
        self.has_come = False
        self.place = ""
        self._before: Any = None

    def __enter__(self) -> Interruption:
        _take_async_exception()
        self._before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # Python 3.12 looks at it in settrace only
        sys.settrace(self._trace)
        return self

    def __exit__(self, *exc_info: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, arg: object) -> Any:
        if self.has_come or not self._is_wanted(frame.f_code):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in _points(frame.f_code):
            if not self._left:
                self.has_come = True
                self.place = (
                    f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                    f" {frame.f_code.co_name}"
                )
                raise self._error
            self._left -= 1
        return self._trace


class _Taken(BaseException):
    """Raised and caught by ``_take_async_exception``."""


def _take_async_exception() -> None:
    """Raise an asynchronous exception, and catch it.

    An exception for a thread that has ended leaves the interpreter's request to look for
    exceptions, with which traced code hangs on CPython 3.11. This one ends the request.

    In a thread of its own: until a new thread runs, CPython knows it by the number of the thread
    that has made it, and may give it an exception that is for that one.
    """
    taker = threading.Thread(target=_raise_and_catch)
    taker.start()
    taker.join()


def _raise_and_catch() -> None:
    try:
        # It arrives at the jump back. Again until it does: the interpreter's request to look for it
        # is one for all threads, and was seen lost on CPython 3.11.
        while True:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(threading.get_ident()), ctypes.py_object(_Taken))
    except _Taken:
        pass


@functools.lru_cache(maxsize=None)
def _points(code: CodeType) -> frozenset[int]:
    """Where CPython lets signal handlers run: behind calls, at the start of a function, in loops.

    Behind the instruction that acquires the lock of a ``with`` statement is none of them.
    """
    instructions = list(dis.get_instructions(code))
    entries = getattr(dis.Bytecode(code), "exception_entries", ())  # from Python 3.11 on

    def handler(offset: int) -> int | None:
        return next((one.target for one in entries if one.start <= offset < one.end), None)

    points = set()
    last, last_offset = "RESUME", 0
    for instruction in instructions:
        # What comes behind a call is raised by the call: in a `with` that ends there, inside of it.
        if last.startswith(("CALL", "RESUME")):
            if last == "RESUME" or handler(last_offset) == handler(instruction.offset):
                points.add(instruction.offset)
        last, last_offset = instruction.opname, instruction.offset
        if "JUMP" in last and isinstance(instruction.argval, int):
            if instruction.argval < instruction.offset:  # back to the start of a loop
                at_jump = sys.version_info >= (3, 11)  # else behind it
                points.add(instruction.offset if at_jump else instruction.argval)
    return frozenset(points)
