"""The tables of an imported record: `slurm_rl_metrics.jsonl`, `slurm_rl_metrics.md` and each run's `metrics.jsonl`.

Invariant: every number in a table is one that a job printed; a cell without one is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from internalize.errors import UserError
from internalize.files import read_json, write_jsonl, write_text
from internalize.imports.record import Job, printable, read_logs, rollouts, steps

JSONL, MARKDOWN = "slurm_rl_metrics.jsonl", "slurm_rl_metrics.md"
PLAY = ("e2k/", "eval/")
"""Keys that the per-run tables show; the JSONL has all."""
LOGS = ("*.out", "*.err", "*.log", "*.out.gz", "*.log.gz")


def find_logs(folder: Path, jobs: Path | None = None) -> dict[str, Job]:
    """Reads the logs below `folder`; job id -> job.

    Args:
        folder: a folder of job logs, or one laid out like the published archive (its `slurm-logs` is read).
        jobs: JSON file with job id -> run, for logs that do not say it.

    Raises:
        UserError: there are no logs, or see `read_logs`.
    """
    logs = folder / "slurm-logs" if (folder / "slurm-logs").is_dir() else folder
    paths = sorted({path for pattern in LOGS for path in logs.rglob(pattern)})
    if not paths:
        raise UserError("no logs here", where=str(logs), expected=" or ".join(LOGS))
    return read_logs(paths, read_json(jobs) if jobs else None)


def write_tables(read: Mapping[str, Job], out: Path, progress: Callable[[str], None]) -> list[str]:
    """Writes the tables of the logs into `out`; returns the runs."""
    runs = sorted({job.run for job in read.values()})
    tables = {run: rollouts(read.values(), run) for run in runs}
    write_jsonl(out / JSONL, list(_printed(read.values())))
    write_text(out / MARKDOWN, markdown(tables))
    for run in runs:
        rows = [{"kind": "rollout", **row} for row in tables[run]]
        rows += [{**row, "kind": "train"} for row in steps(read.values(), run)]
        write_jsonl(out / "runs" / run / "metrics.jsonl", map(printable, rows))
        progress(f"{run}: {len(tables[run])} rollouts, {len(rows) - len(tables[run])} optimizer steps")
    lost = {job.id: job.unreadable for job in read.values() if job.unreadable}
    if lost:
        progress(f"cut-off metric lines: {', '.join(f'{count} in job {job}' for job, count in sorted(lost.items()))}")
    return runs


def markdown(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """One table a run: its rollouts, and the play metrics that were printed about them."""
    parts = ["# Rollouts of each run", ""]
    for run, rows in tables.items():
        keys = sorted({key for row in rows for key in row if key.startswith(PLAY) and _number(row[key])})
        head = ["rollout", *keys]
        parts += [f"## {run}", "", "| " + " | ".join(head) + " |", "|" + " ---: |" * len(head)]
        parts += [
            "| " + " | ".join([str(row["rollout"]), *(_cell(row.get(key)) for key in keys)]) + " |" for row in rows
        ]
        parts.append("")
    return "\n".join(parts)


def _printed(jobs: Any) -> Any:
    for job in sorted(jobs, key=lambda job: job.id):
        yield from _rows(job)


def _rows(job: Job) -> Any:
    for (kind, number, side), line in sorted(job.lines.items()):
        head = {"job": job.id, "run": job.run, "kind": kind, "id": number, "side": side, "time": line.time}
        yield {**head, "values": printable(line.values)}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
