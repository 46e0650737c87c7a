"""How much memory something takes: it runs in a forked child that watches its own peak."""

from collections.abc import Callable
from pathlib import Path

from tests.support.processes import in_child

MIB = 1024 * 1024
_STATUS = Path("/proc/self/status")


def resident() -> tuple[int, int]:
    fields = dict(
        line.split(":", 1) for line in _STATUS.read_text().splitlines() if line.startswith("Vm")
    )
    return int(fields["VmRSS"].split()[0]) * 1024, int(fields["VmHWM"].split()[0]) * 1024


def run_bounded(work: Callable[[], object], limit: int) -> None:
    """Run ``work`` in a child; fail when it raises, or its memory grows by more than ``limit``."""

    def measured() -> None:
        before, _ = resident()
        work()
        _, most = resident()
        assert most - before < limit, f"{(most - before) / MIB:.0f} MiB were taken"

    assert in_child(measured) == 0, "see what the child printed"
