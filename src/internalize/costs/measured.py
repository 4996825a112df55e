"""What jobs of a kind have really cost, from `run.json` beside the receipts.

Invariant: a mean is taken only over entries of the same kind: same stage and phase, same sizes, same base.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from internalize.budget import NOT_ENTRIES
from internalize.errors import UserError
from internalize.files import read_json
from internalize.receipts import Receipt
from internalize.store import RECEIPT, RUN, Store

STEP = "step"
Kind = tuple[Any, ...]


@dataclass(frozen=True)
class Reading:
    """One finished entry: wall seconds, payload bytes and files, for so many units."""

    seconds: float
    size: int
    files: int
    starts: bool
    """True: start-up of the process is within the seconds."""
    units: int = 1
    """See `units_of`."""


@dataclass
class Measured:
    """Readings of a store by kind."""

    readings: dict[Kind, list[Reading]] = field(default_factory=dict)
    startups: list[float] = field(default_factory=list)
    """CPU seconds of start-up of the jobs of arms."""

    def mean(self, stage: str, spec: Mapping[str, Any], base: str | None) -> Reading | None:
        """The mean of a kind, scaled to the units of `spec`; None when none has been measured.

        Seconds that hold a start-up are left out where there are others.
        """
        known = self.readings.get(kind_of(stage, spec, base), [])
        if not known:
            return None
        fair = [one for one in known if not one.starts] or known
        share = units_of(stage, spec) / sum(one.units for one in fair)
        share_of_all = units_of(stage, spec) / sum(one.units for one in known)
        return Reading(
            math.fsum(one.seconds for one in fair) * share,
            round(sum(one.size for one in known) * share_of_all),
            round(statistics.fmean(one.files for one in known)),
            False,
            units_of(stage, spec),
        )

    def start_seconds(self) -> float | None:
        """Mean start-up of an arm's job; None when none has been measured."""
        return statistics.fmean(self.startups) if self.startups else None


def measure(store: Store) -> Measured:
    """Reads the receipts and times of every complete entry."""
    measured = Measured()
    for stage, receipt, run in _entries(store.root):
        if receipt.get("facts", {}).get("passed_through"):
            continue
        parts = run.get("cpu_parts_s", {})
        spec = receipt["spec"]
        files = receipt["files"]
        reading = Reading(
            float(run["wall_s"]),
            sum(file["bytes"] for file in files),
            len(files) + len((RECEIPT, RUN)),
            "startup" in parts and stage == STEP,
            units_of(stage, spec),
        )
        measured.readings.setdefault(kind_of(stage, spec, receipt["parents"].get("base")), []).append(reading)
        if stage == STEP and "startup" in parts:
            measured.startups.append(float(parts["startup"]))
    return measured


def read_entry(store: Store, receipt: Receipt) -> Reading | None:
    """What one entry cost; None when its times are gone."""
    run = store.run_info(receipt)
    if "wall_s" not in run:
        return None
    starts = receipt.stage == STEP and "startup" in run.get("cpu_parts_s", {})
    return Reading(float(run["wall_s"]), receipt.payload_bytes(), len(receipt.files) + len((RECEIPT, RUN)), starts)


def kind_of(stage: str, spec: Mapping[str, Any], base: str | None) -> Kind:
    """What entries must share to be compared."""
    match stage:
        case "step":
            rl, sft = spec.get("rl", {}), spec.get("sft", {})
            plays = spec["rollout"]["episodes"] if spec["phase"] != "sft" else 0
            updates = rl.get("optimizer_steps"), sft.get("optimizer_steps"), sft.get("batch_turns")
            return stage, base, spec["phase"], plays, *updates, spec.get("fraction")
        case "evals":
            evals = spec["evals"]
            of_base = min(spec["steps"]) < 0
            return stage, base, evals["episodes"], evals.get("every", 1), len(evals["levels"]), of_base
        case "harvest":
            return stage, base, spec["harvest"]["policy"]
        case "gate":
            return stage, base
        case "rows":
            return stage, base, spec["rows"]["type"]
        case "base":
            return stage, spec.get("prebuilt_digest")
        case _:
            return (stage,)


def units_of(stage: str, spec: Mapping[str, Any]) -> int:
    """How many of what a kind is measured in: measured steps of an eval, episodes of a harvest or gate, else one."""
    match stage:
        case "evals":
            return max(1, len(spec["steps"]))
        case "harvest":
            return int(spec["harvest"]["episodes"])
        case "gate":
            return int(spec["gate"]["episodes"])
        case _:
            return 1


def _entries(root: Path) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    if not root.is_dir():
        return
    for stage in sorted(path for path in root.iterdir() if path.is_dir() and path.name not in NOT_ENTRIES):
        for run in sorted(stage.glob(f"*/{RUN}")):
            if "." in run.parent.name:  # partial, replaced or forgotten
                continue
            try:
                receipt, times = read_json(run.with_name(RECEIPT)), read_json(run)
            except UserError:
                continue
            if "wall_s" in times:
                yield stage.name, receipt, times
