"""Memory of this process over time, and whether it grows without end.

Invariant: a sample costs two small reads of /proc and no GPU context: only devices that this process already uses are
asked. Whether memory grows is judged by the median slope of all pairs (Theil-Sen), which single peaks do not move.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from internalize.diagnostics.limits import Limits

FOLDER = "meminfo"
MIB = 1024 * 1024
WARM_UP = 2
"""Steps whose memory is not judged: caches fill, the optimizer gets its moments."""
ENOUGH_STEPS, ENOUGH_SAMPLES, KEPT = 5, 20, 30
LEAST_MIB = 256.0
"""Growth over the samples below which a rate is not extrapolated."""


def sample() -> dict[str, Any]:
    """Resident and available host memory and, per GPU in use, what is used, free and reserved by torch; MiB."""
    row: dict[str, Any] = {"time": round(time.time(), 3), "rss_mib": rss_mib(), "available_mib": _available_mib()}
    gpus = _gpus()
    return {**row, "gpus": gpus} if gpus else row


def rss_mib() -> float:
    """Resident memory of this process; 0 where /proc is not Linux's."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return round(pages * os.sysconf("SC_PAGE_SIZE") / MIB, 1)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Median of the slopes of all pairs of (x, y); 0 with fewer than two different x."""
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if b[0] != a[0]]
    return statistics.median(slopes) if slopes else 0.0


def steady(points: Sequence[tuple[float, float]]) -> bool:
    """Does each third of the points lie above the one before? A sawtooth does not, a leak does."""
    third = len(points) // 3
    parts = [[y for _, y in points[at : at + third]] for at in (0, third, len(points) - third)]
    means = [statistics.fmean(part) for part in parts if part]
    return len(means) == 3 and means[0] < means[1] < means[2]


class MemoryLog:
    """Samples as rows of a file of its own for every process; alarms beside them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.alarms: list[str] = []
        self._steps: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self._seen = 0
        self._samples: dict[str, deque[tuple[float, float, float]]] = {}
        self._raised: set[str] = set()

    def take(self, folder: Path, phase: str, row: Mapping[str, Any] | None = None) -> str | None:
        """Takes a sample into `folder`; an alarm when memory will run out within the horizon.

        Args:
            row: a sample made elsewhere; None takes one now.
        """
        row = sample() if row is None else row
        alarm = self._judge(phase, row)
        self._write(folder, {**row, "phase": phase, **({"alarm": alarm} if alarm else {})})
        return alarm

    def step_done(self, memory: float | None = None) -> str | None:
        """Marks the end of a step; an alarm when memory grows from step to step. `memory` in MiB, None: as it is."""
        self._seen += 1
        if self._seen <= WARM_UP:
            return None
        self._steps.append((float(self._seen), rss_mib() if memory is None else memory))
        rate = slope(self._steps)
        if len(self._steps) < ENOUGH_STEPS or rate <= self.limits.growth_mib or not steady(list(self._steps)):
            return None
        text = f"host memory grows by {rate:.0f} MiB a step, now {self._steps[-1][1]:.0f} MiB"
        return self._raise("steps", text)

    def _judge(self, phase: str, row: Mapping[str, Any]) -> str | None:
        """Each memory on its own; start-up is not judged, it loads the model."""
        if phase in ("", "start"):
            self._samples.clear()
            return None
        found = {"host memory": (row["rss_mib"], row["available_mib"])}
        for gpu in row.get("gpus", []):
            found[f"memory of GPU {gpu['device']}"] = (gpu["used_mib"], gpu["free_mib"])
        for name, (used, free) in found.items():
            kept = self._samples.setdefault(name, deque(maxlen=KEPT))
            kept.append((row["time"], used, free))
            points = [(at, mib) for at, mib, _ in kept]
            rate = slope(points) if len(points) >= ENOUGH_SAMPLES else 0.0
            if rate <= 0 or points[-1][1] - points[0][1] < LEAST_MIB or not steady(points):
                continue
            left = free / rate
            if left < self.limits.horizon:
                text = f"{name} grows by {60 * rate:.0f} MiB a minute and runs out in {left / 60:.0f} minutes"
                return self._raise(name, text)
        return None

    def _raise(self, about: str, text: str) -> str | None:
        """Once about each thing."""
        if about in self._raised:
            return None
        self._raised.add(about)
        self.alarms.append(text)
        return text

    def _write(self, folder: Path, row: Mapping[str, Any]) -> None:
        path = folder / FOLDER / f"{platform.node()}-{os.getpid()}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as handle:  # rows are independent: a torn last line costs one sample
            handle.write(json.dumps(row) + "\n")


def _available_mib() -> float:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return round(int(line.split()[1]) / 1024, 1)
    except (OSError, IndexError, ValueError):
        pass
    return 0.0


def _gpus() -> list[dict[str, Any]]:
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return []
    except AttributeError:  # the main thread is importing it just now
        return []
    rows = []
    for device in range(torch.cuda.device_count()):
        reserved = torch.cuda.memory_reserved(device)
        if reserved:  # asking about another device would make a context on it
            free, total = torch.cuda.mem_get_info(device)
            figures = {"used_mib": total - free, "free_mib": free, "torch_mib": reserved}
            rows.append({"device": device, **{name: round(value / MIB, 1) for name, value in figures.items()}})
    return rows
