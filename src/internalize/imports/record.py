"""The logs of many jobs as what each run did, rollout by rollout.

Invariant: the result depends on what was printed, not on the order of lines or files, nor on how often a line stands
there. A rollout's numbers come from one job: when a run was resumed and a rollout done again, from the last job that
finished it.

Two of the trainer's timings are printed a rollout late (its timers are reset before weights are synchronised and
saved); they are put back to the rollout that they belong to.
"""

from __future__ import annotations

import gzip
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from internalize.errors import UserError
from internalize.imports.lines import Kind, Line, Side, read_line

JOB = re.compile(r"(?<!\d)(\d{5,10})(?!\d)")
RUN = re.compile(r"/runs/([A-Za-z][\w.-]*)")
LATE = ("perf/update_weights_time", "perf/save_model_time")
STEPS: tuple[Kind, ...] = ("step", "critic-step")

Key = tuple[Kind, int, Side]


@dataclass
class Job:
    """What one job printed."""

    id: str
    run: str = ""
    """Run that it worked on."""
    lines: dict[Key, Line] = field(default_factory=dict)
    unreadable: int = 0
    """Metric lines that are cut off."""

    def add(self, line: Line) -> None:
        """Keeps the last of equal lines; of two at one time, the one that says more."""
        key = (line.kind, line.id, line.side)
        known = self.lines.get(key)
        if known is None or _order(line) > _order(known):
            self.lines[key] = line

    def rollouts(self) -> set[int]:
        """Ids of the rollouts that it printed anything about."""
        return {id_ for kind, id_, _ in self.lines if kind not in STEPS}

    def parts(self, rollout: int) -> dict[Key, Line]:
        """Its lines about one rollout."""
        return {key: line for key, line in self.lines.items() if key[0] not in STEPS and key[1] == rollout}


def read_logs(paths: Iterable[Path], runs: Mapping[str, str] | None = None) -> dict[str, Job]:
    """Reads job logs (plain or .gz).

    Args:
        paths: log files; the job id is the longest number of the file's name.
        runs: job id -> run, where the logs do not say it.

    Returns:
        Job id -> job.

    Raises:
        UserError: a file's name has no job id, a job names two runs, or none.
    """
    jobs: dict[str, Job] = {}
    named: dict[str, set[str]] = defaultdict(set)
    for path in sorted(paths):
        found = JOB.findall(path.name)
        if not found:
            raise UserError("the log's name has no job id", where=str(path), expected="for example rl-6536263.out")
        job = jobs.setdefault(found[-1], Job(found[-1]))
        for text in _lines(path):
            named[job.id].update(match.rstrip(".") for match in RUN.findall(text))
            try:
                line = read_line(text)
            except ValueError:
                job.unreadable += 1
                continue
            if line is not None:
                job.add(line)
    for job in jobs.values():
        job.run = (runs or {}).get(job.id) or _only(job, named[job.id])
    return jobs


def rollouts(jobs: Iterable[Job], run: str) -> list[dict[str, Any]]:
    """The run's rollouts in order: `run`, `rollout`, `job`, `time`, then every metric that was printed about it."""
    ours = [job for job in jobs if job.run == run]
    rows = []
    for number in sorted({id_ for job in ours for id_ in job.rollouts()}):
        job = max((job for job in ours if number in job.rollouts()), key=lambda job: _standing(job, number))
        parts = job.parts(number)
        values: dict[str, Any] = {}
        for (kind, _, _), line in sorted(parts.items()):
            late = LATE if kind == "perf" and line.side == "train" else ()
            values |= {key: value for key, value in line.values.items() if key not in late}
        following = job.lines.get(("perf", number + 1, "train"))
        if following is not None:
            values |= {key: following.values[key] for key in LATE if key in following.values}
        time = max(line.time for line in parts.values())
        rows.append({"run": run, "rollout": number, "job": job.id, "time": time, **values})
    return rows


def steps(jobs: Iterable[Job], run: str) -> list[dict[str, Any]]:
    """The run's optimizer steps in order: `run`, `step`, `kind`, `job`, `time`, metrics; the last job's count."""
    best: dict[tuple[int, Kind], tuple[Line, str]] = {}
    for job in jobs:
        for (kind, number, _), line in job.lines.items():
            if job.run == run and kind in STEPS:
                known = best.get((number, kind))
                if known is None or (line.time, job.id) > (known[0].time, known[1]):
                    best[number, kind] = (line, job.id)
    return [
        {"run": run, "step": number, "kind": kind, "job": job, "time": line.time, **line.values}
        for (number, kind), (line, job) in sorted(best.items())
    ]


def printable(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as JSON: what is not finite becomes null and is named in `nonfinite`."""
    broken = {key: str(value) for key, value in row.items() if isinstance(value, float) and not math.isfinite(value)}
    plain = {key: None if key in broken else value for key, value in row.items()}
    return {**plain, "nonfinite": broken} if broken else plain


def _standing(job: Job, rollout: int) -> tuple[int, str, str]:
    """The job that printed most kinds of lines about a rollout has finished it; of several, the last."""
    parts = job.parts(rollout)
    return len(parts), max(line.time for line in parts.values()), job.id


def _order(line: Line) -> tuple[str, int, str]:
    return line.time, len(line.values), repr(sorted(line.values.items(), key=lambda item: item[0]))


def _only(job: Job, names: set[str]) -> str:
    if len(names) == 1:
        return next(iter(names))
    raise UserError(
        f"the log of job {job.id} does not say which run it is",
        got=" ".join(sorted(names)) or "no path below runs/",
        fix='say it: --jobs FILE with {"<job id>": "<run>"}',
    )


def _lines(path: Path) -> Iterator[str]:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", errors="replace") as stream:
            yield from stream
    else:
        with path.open(errors="replace") as stream:
            yield from stream
