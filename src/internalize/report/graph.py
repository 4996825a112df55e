"""The study as a graph of receipts: what was made from what, what it took, and the longest way through.

Invariant: a node is a receipt of the results folder and an edge a parent that it names; seconds and memory are those
of the run that made it (a result found in the store keeps its first run's).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from internalize.report.results import Results, label_of
from internalize.store import pruned_files

Row = dict[str, Any]
CHECKPOINT = re.compile(r"iter_\d{7,}/")
SHOWN = ("metrics.jsonl", "episodes.jsonl")
"""Files whose hashes the page shows."""


def nodes(results: Results) -> list[Row]:
    """Every receipt, in the order of its path; `parents` are places in this list."""
    current = set(results.paths.values())  # a receipt of an earlier cut of the arms is no part of this study
    found = {path: one for path, one in results.found.items() if one.stage != "step" or path in current}
    place: dict[str, int] = {}
    by_path: dict[Path, int] = {}
    for at, (path, receipt) in enumerate(found.items()):
        place.setdefault(receipt.hash(), at)
        by_path[path] = at
    made = []
    for path, receipt in found.items():
        run = results.store.run_info(receipt)
        label = label_of(path)
        # steps that arms share are one receipt at several places: the parent is the one of the own arm
        own = {name: by_path.get(path.with_name(f"step{_before(label)}.json")) for name in ("previous", "step")}
        parents = [
            own[name] if own.get(name) is not None else place.get(digest) for name, digest in receipt.parents.items()
        ]
        row: Row = {
            "label": label,
            "stage": receipt.stage,
            "path": path.as_posix(),
            "hash": receipt.hash(),
            "entry": receipt.entry,
            "code": receipt.code,
            "status": receipt.status,
            "bytes": receipt.payload_bytes(),
            "wall": run.get("wall_s"),
            "cpu": run.get("cpu_s"),
            "rss": run.get("peak_rss_mib"),
            "parents": sorted({parent for parent in parents if parent is not None}),
        }
        shown = {file.path: file.sha256 for file in receipt.files if file.path.endswith(SHOWN)}
        if receipt.stage in ("step", "evals"):
            row["files"] = shown
        if checkpoint := _checkpoint(results, path):
            row["checkpoint"] = checkpoint
        made.append(row)
    return made


def _before(label: str) -> str:
    kind, _, rest = label.partition(".")
    number = rest.rpartition(".")[2]
    return f"{int(number) - 1:04d}" if kind == "step" and number.isdecimal() and int(number) else "none"


def _checkpoint(results: Results, path: Path) -> Row | None:
    receipt = results.found[path]
    files = [file for file in receipt.files if CHECKPOINT.match(file.path)]
    if receipt.stage != "step" or not files:
        return None
    gone = pruned_files(results.store.root / receipt.entry)
    return {
        "files": len(files),
        "bytes": sum(file.bytes for file in files),
        "pruned": sum(file.path in gone for file in files),
        "missing": sum(
            file.path not in gone and not (results.store.root / receipt.entry / file.path).exists() for file in files
        ),
    }


def critical_path(made: Sequence[Mapping[str, Any]]) -> list[int]:
    """Places of the nodes on the way through the graph that takes the most wall seconds, from the first on."""
    best: dict[int, tuple[float, int | None]] = {}

    for start in range(len(made)):
        waiting = [start]
        while waiting:  # a chain of hundreds of steps is deeper than Python's stack likes
            at = waiting[-1]
            open_parents = [parent for parent in made[at]["parents"] if parent not in best and parent != at]
            if open_parents:
                waiting += open_parents
                continue
            waiting.pop()
            longest = max(((best[parent][0], parent) for parent in made[at]["parents"] if parent != at), default=None)
            own = float(made[at]["wall"] or 0.0)
            best[at] = (own, None) if longest is None else (own + longest[0], longest[1])
    last = max(best, key=lambda node: best[node][0], default=None)
    found = []
    while last is not None:
        found.append(last)
        last = best[last][1]
    return found[::-1]
