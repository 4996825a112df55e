"""Computing a part of a study again: what is set aside, what then runs, what it costs.

Invariant: nothing is deleted before its replacement is verified. A result that is to be computed again is set aside
under another name; if the run fails it is put back, if the new one has the same bytes it is removed, and if they differ
both stay. A dry run changes nothing and lists the jobs that the run would execute.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from internalize.control.drive import Driver
from internalize.control.selection import Selection, receipts_on_disk
from internalize.inputs import SEGMENT
from internalize.receipts import read_receipt, write_receipt
from internalize.store import RECEIPT, Store

ASIDE = ".set-aside"


def perform(chosen: Selection, driver: Driver, store: Store, say: Callable[[str], None]) -> int:
    """Sets the selection aside, runs Snakemake, and compares; returns Snakemake's exit status."""
    moved = list(_set_aside(chosen, store))
    say(f"set aside: {len(chosen.entries)} results")
    status = 1
    try:
        status = driver.run(chosen.targets, chosen.outputs)
    finally:
        same, changed, back = _settle(moved, store, chosen)
        if back:
            say(f"put back, because they were not computed again: {back} results")
        say(f"computed again: {same + len(changed)} results, {same} of them came out the same")
        for entry, where in changed:
            say(f"differs: {entry}; the one before lies in {where}")
        if changed and (stale := _renew(changed, store)):
            say(f"made from what differs, runs with the next run of the study: {' '.join(stale)}")
    return status


def _set_aside(chosen: Selection, store: Store) -> Iterator[tuple[Path, Path]]:
    """Renames entries and their receipts; yields (place, where it lies now)."""
    paths = chosen.paths() if not chosen.only else [Path(path) for path in chosen.outputs if Path(path).exists()]
    for place in [*(store.root / entry for entry in chosen.entries), *paths]:
        if place.exists():
            aside = place.with_name(place.name + ASIDE)
            if aside.exists():
                _remove(aside)
            os.replace(place, aside)
            yield place, aside


def _settle(
    moved: Sequence[tuple[Path, Path]], store: Store, chosen: Selection
) -> tuple[int, list[tuple[str, Path]], int]:
    """Same results are dropped, missing ones put back; returns how many were the same, which differ, how many came
    back."""
    same, back = 0, 0
    changed: list[tuple[str, Path]] = []
    for place, aside in moved:
        entry = place.relative_to(store.root).as_posix() if place.is_relative_to(store.root) else None
        if not place.exists():
            os.replace(aside, place)
            back += entry is not None
        elif entry is None:
            aside.unlink()
        elif read_receipt(place / RECEIPT).hash() == chosen.entries[entry].hash():
            _remove(aside)
            same += 1
        else:
            changed.append((entry, aside))
    return same, changed, back


def _renew(changed: Sequence[tuple[str, Path]], store: Store) -> list[str]:
    """Receipts that still name what a result was before: they are renewed, and the receipts of the segments that went
    on from it are taken away, so that the next run makes them anew; returns those."""
    ends: dict[Path, str] = {}
    for entry, _ in changed:
        new = read_receipt(store.root / entry / RECEIPT)
        for path in receipts_on_disk():
            old = read_receipt(path)
            if old.entry != entry or old == new:
                continue
            write_receipt(path, new)
            if match := SEGMENT.search(path.as_posix()):
                step = int(path.stem.removeprefix("step"))
                for folder in path.parents[1].glob("steps*"):
                    last = int(folder.name[-4:])
                    end = folder / f"step{last:04d}.json"
                    if last >= step and end.exists() and folder.name != f"steps{step:04d}-{step:04d}":
                        ends[end] = f"{match['arm']}/seed{match['seed']}/{folder.name}"
    for end in ends:
        end.unlink()
    return list(ends.values())


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
