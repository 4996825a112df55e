"""What the page is told: one JSON object, made from tables, metrics, receipts and episodes.

Invariant: a number of the page is a cell of a table in `results/` or a value of a `metrics.jsonl`, a receipt or a
`run.json`; the page draws and sorts, and computes no result.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from internalize.files import read_json
from internalize.report import sections
from internalize.report.data import BASE_STEP, Step, StudyData
from internalize.report.evidence import (
    BY_STEP,
    COSTS,
    METRICS,
    SUMMARY,
    TABLES,
    Evidence,
    Ref,
    kind,
    origin,
    table_path,
)
from internalize.report.explain import how, key_of, snakemake
from internalize.report.graph import critical_path, nodes
from internalize.report.results import Results

Row = dict[str, Any]


def page_data(evidence: Evidence) -> Row:
    """Everything but the episodes."""
    results, data = evidence.results, evidence.data
    made = nodes(results)
    at = {node["path"]: place for place, node in enumerate(made)}
    place = {label: at[path.as_posix()] for label, path in results.paths.items()}
    refs = _Refs(data, place)
    return {
        "study": study(results, data),
        "tables": {name: _table(evidence, name, refs) for name in TABLES},
        "refs": refs.rows,
        "metrics": metrics(data),
        "nodes": made,
        "critical": critical_path(made),
        "command": snakemake(results.words()),
        "manifest": manifest(results),
    }


def study(results: Results, data: StudyData) -> Row:
    """The arms as told, what the receipts say of base, gate and knowledge, and how to read the numbers."""
    archive = results.archive.spec if results.archive is not None else {}
    arms = [
        {
            "name": arm.name,
            "phases": arm.phases,
            "schedule": arm.schedule,
            "rows": arm.rows,
            "note": arm.note,
            "status": arm.status,
            "reason": archive.get("arms", {}).get(arm.name, {}).get("settings", {}).get("reason", ""),
            "seeds": list(arm.runs),
            "stopped": [
                {"seed": seed, "step": run.stopped_at, "reasons": run.reasons}
                for seed, run in arm.runs.items()
                if run.stopped_at is not None
            ],
            "settings": archive.get("arms", {}).get(arm.name, {}).get("settings", {}),
        }
        for arm in data.arms.values()
    ]
    return {
        "name": data.name,
        "reference": data.compared_with,
        "arms": arms,
        "prepared": archive.get("prepared", {}),
        "facts": sections.setting(data).strip().split("\n"),
        "reading": sections.reading(data).strip().split("\n"),
        "settings": archive.get("study", {}),
    }


def metrics(data: StudyData) -> dict[str, Row]:
    """Kind -> its columns and, for each step, arm, seed, step and the values; the base's arm is null."""
    steps: list[tuple[str | None, int, Step]] = [(None, 0, data.base)]
    steps += [
        (name, seed, step)
        for name, arm in data.arms.items()
        for seed, run in sorted(arm.runs.items())
        for _, step in sorted(run.steps.items())
    ]
    told: dict[str, Row] = {}
    for part in METRICS:
        rows = [(arm, seed, step.step, getattr(step, part)) for arm, seed, step in steps if getattr(step, part)]
        columns = list(dict.fromkeys(key for *_, row in rows for key in row if key not in HEAD))
        told[part] = {
            "columns": columns,
            "rows": [[arm, seed, step, *(_short(row.get(key)) for key in columns)] for arm, seed, step, row in rows],
        }
    return told


HEAD = ("step", "phase", "kind", "seed")


def manifest(results: Results) -> Row:
    """State of the archive's manifest: is it this study's, and is every file there with its size? Hashes are what
    `internalize verify` checks."""
    folder = results.folder / "archive"
    path = folder / "MANIFEST.json"
    if results.archive is None or not path.exists():
        return {"state": "not archived"}
    told = read_json(path)
    files: Mapping[str, Row] = told["files"]
    wrong = [name for name, file in files.items() if _size(folder / name) != file["bytes"]]
    ours = told["archive_receipt"] == results.archive.hash()
    return {
        "state": "whole" if ours and not wrong else "another study's" if not ours else "damaged",
        "files": len(files),
        "bytes": sum(file["bytes"] for file in files.values()),
        "wrong": wrong[:20],
        "receipt": told["archive_receipt"],
    }


class _Refs:
    """Measurements, each told once, as `[node, part, step, seed, arm]`."""

    def __init__(self, data: StudyData, place: Mapping[str, int]) -> None:
        self.rows: list[list[Any]] = []
        self._data = data
        self._place = place
        self._known: dict[Ref, int] = {}

    def of(self, found: Iterable[Ref]) -> list[int]:
        places = []
        for ref in found:
            if ref not in self._known:
                self._known[ref] = len(self.rows)
                self.rows.append([self._place[ref.label], ref.part, ref.step, ref.seed, ref.arm])
            places.append(self._known[ref])
        return places


def _table(evidence: Evidence, name: str, refs: _Refs) -> Row:
    """A table's cells as its CSV holds them, and the evidence of each row by kind of column."""
    path = table_path(evidence.results.folder, name)
    with path.open(newline="") as handle:
        columns, *rows = list(csv.reader(handle))
    kinds = [_kind(name, column) for column in columns]
    told: Row = {
        "columns": columns,
        "rows": rows,
        "kinds": kinds,
        "how": [how(name, column) if name != COSTS else "" for column in columns],
        "keys": [key_of(column) for column in columns],
    }
    if name == COSTS:
        return told
    step_at = columns.index("step") if name in BY_STEP and rows else None
    needed = sorted(set(kinds))
    told["evidence"] = [
        {
            one: refs.of(_behind(evidence, name, one, row[0], BASE_STEP if step_at is None else int(row[step_at])))
            for one in needed
        }
        for row in rows
    ]
    return told


def _kind(table: str, column: str) -> str:
    """The kind of a column; in the summary, with the table that it comes from before it."""
    if table == COSTS:
        return "cost"
    if table != SUMMARY:
        return kind(table, column)
    table, column = origin(column)
    return f"{table}/{kind(table, column)}"


def _behind(evidence: Evidence, table: str, what: str, arm: str, step: int) -> list[Ref]:
    if table == SUMMARY:
        table, what = what.split("/")
    return evidence.of_kind(table, what, arm, step)


def _short(value: Any) -> Any:
    """Six significant digits are more than a table shows."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None
