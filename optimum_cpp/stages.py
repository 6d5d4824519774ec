"""Seconds and peak memory of each stage of a run."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Stage:
    """One finished stage.

    Attributes:
        name: what it did.
        seconds: wall-clock time.
        peak_memory_mib: largest resident memory of the process during the stage, in MiB; where the
            system cannot reset its counter, the largest since the process began.
    """

    name: str
    seconds: float
    peak_memory_mib: float


@dataclass
class StageClock:
    """Collects stages; `with clock.stage("saliency"): ...`."""

    stages: list[Stage] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the body as one stage; the same name again adds to it."""
        _reset_peak()
        start = time.perf_counter()
        yield
        seconds, peak = time.perf_counter() - start, _peak_memory_mib()
        for index, earlier in enumerate(self.stages):
            if earlier.name == name:
                peak = max(peak, earlier.peak_memory_mib)
                self.stages[index] = Stage(name, earlier.seconds + seconds, peak)
                return
        self.stages.append(Stage(name, seconds, peak))


def _reset_peak() -> None:
    try:
        _CLEAR.write_text("5")
    except OSError:
        return


def _peak_memory_mib() -> float:
    try:
        line = next(row for row in _STATUS.read_text().splitlines() if row.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    except (OSError, StopIteration):
        unit = 2**20 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
