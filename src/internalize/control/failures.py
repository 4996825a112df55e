"""The last error of the last run, as Snakemake's own log tells it.

Invariant: an error counts only while the receipt that the job should have written is missing or older than the error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

LOGS = Path(".snakemake/log")
BLOCK = re.compile(r"^Error in (?:group job|rule) (?P<rule>[^:]+):\n(?P<body>(?: {4}.*\n?)+)", re.M)
FIELD = re.compile(r"^ {4}(?P<name>output|log|external_jobid|message): (?P<value>.*)$", re.M)
TELLING = 3
"""Last lines of a job's log that are shown."""


@dataclass(frozen=True)
class Failure:
    """A job that failed and has not succeeded since."""

    rule: str
    output: str
    log: str
    job_id: str
    """Id that the cluster gave it; empty for a local job."""
    lines: tuple[str, ...]
    """End of its log."""


def last_failures(folder: Path) -> list[Failure]:
    """Failures of the newest run in `folder` that still stand, in the order in which they happened."""
    logs = sorted((folder / LOGS).glob("*.snakemake.log"), key=lambda path: path.stat().st_mtime)
    if not logs:
        return []
    newest = logs[-1]
    found = []
    for match in BLOCK.finditer(newest.read_text(errors="replace")):
        fields = dict(FIELD.findall(match["body"]))
        output = fields.get("output", "").split(", ")[0]
        log = fields.get("log", "").split(" (check")[0].split(", ")[0]
        if output and (folder / output).exists():
            continue
        found.append(Failure(match["rule"], output, log, fields.get("external_jobid", ""), _end(folder / log)))
    return list({failure.output: failure for failure in found}.values())


def _end(path: Path) -> tuple[str, ...]:
    """The last lines of a log; of a user error, from its headline on."""
    if not path.is_file():
        return ()
    lines = [line.rstrip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    starts = [at for at, line in enumerate(lines) if not line.startswith(" ")]
    return tuple(lines[starts[-1] :] if starts and len(lines) - starts[-1] > 1 else lines[-TELLING:])
