"""Where a number comes from, in words: the cell, the metrics rows and episodes behind it, their receipts and hashes,
and the commands that make them again.

Invariant: the value is computed again from what is printed here, and the answer says whether it equals the table's.
"""

from __future__ import annotations

import csv
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from internalize.errors import MissingPayload, UserError
from internalize.receipts import ancestors
from internalize.report.evidence import (
    BY_STEP,
    COSTS,
    METRICS,
    STOPS,
    SUMMARY,
    TOLD,
    Evidence,
    Ref,
    origin,
    table_path,
)
from internalize.report.text import cell_text
from internalize.store import ENTRY_NAME, RUN
from internalize.study_errors import nearest

DIFFERENCE = (
    "the wider of two intervals around the mean difference over seeds: Student's t over the seeds, and a percentile "
    "bootstrap over the levels that both sides played"
)


@dataclass(frozen=True)
class Metric:
    """A row of a metrics file, and what it says under the cell's key."""

    arm: str | None
    """None: the base. For a cost: the name of a receipt, without seed and step."""
    seed: int | None
    step: int | None
    kind: str
    path: str
    line: int
    key: str | None
    value: Any


@dataclass(frozen=True)
class Episodes:
    """The episodes of one rollout or eval."""

    arm: str | None
    seed: int
    step: int
    path: str
    valid: int
    clears: int
    sha256: str


@dataclass(frozen=True)
class Made:
    """A receipt, and how to make what it stands for again."""

    label: str
    path: str
    hash: str
    stage: str
    entry: str
    key: str
    code: str
    made_from: dict[str, int]
    """Stage -> receipts among its ancestors."""


@dataclass(frozen=True)
class Explanation:
    """All that is known of a cell."""

    table: str
    row: str
    column: str
    printed: str
    again: str
    how: str
    metrics: list[Metric]
    episodes: list[Episodes]
    receipts: list[Made]
    commands: list[str]

    @property
    def equal(self) -> bool:
        """The value made again is the table's."""
        return self.printed == self.again

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "equal": self.equal}


def explain(evidence: Evidence, table: str, row: str, column: str) -> Explanation:
    """Asks one cell.

    Args:
        table: a name of `results/tables`, or `summary` or `costs`.
        row: the arm; `ARM:STEP` in tables with a row a step; the stage in `costs`.
        column: a heading of the table's CSV.

    Raises:
        UserError: there is no such table, row or column.
        MissingPayload, CorruptPayload: a file behind the cell is gone or is not what its receipt says.
    """
    printed = _printed(evidence, table, row, column)
    if table == COSTS:
        return _cost(evidence, row, column, printed)
    arm, _, step = row.partition(":")
    at = int(step) if table in BY_STEP else None
    refs = evidence.behind(table, arm, at, column)
    labels = list(dict.fromkeys(ref.label for ref in refs))
    return Explanation(
        table,
        row,
        column,
        printed,
        evidence.recomputed(table, arm, at, column),
        how(table, column),
        [_metric(evidence, ref, key_of(column)) for ref in refs if ref.part in METRICS],
        [_episodes(evidence, ref) for ref in refs if ref.part.endswith("episodes")],
        [_made(evidence, label) for label in labels],
        commands(evidence, labels) if labels else [f"read {evidence.results.folder}/receipts/report.json: spec.arms"],
    )


def how(table: str, column: str) -> str:
    """How a column is made, in words."""
    if table == SUMMARY:
        table, column = origin(column)
    if column in STOPS:
        return "the study file's status, and the receipt of the first step that the collapse guard stopped"
    if column in TOLD:
        return "from the study file, as the report's receipt holds it"
    if column.endswith("_noise"):
        return f"true when the interval of the difference covers 0; the interval: {DIFFERENCE}"
    if "_diff" in column or column.startswith("rl_gain"):
        return f"mean over seeds of the paired difference; its bounds: {DIFFERENCE}"
    if column.endswith("_same"):
        return "true when arm and reference are one and the same measurement"
    if column.endswith("_by_seed"):
        return "mean return of each seed's valid episodes"
    if "return" in column:
        return "mean shaped return of all valid episodes; bounds: percentile bootstrap over level seeds, 2000 resamples"
    if "clear" in column and not column.startswith(("first_", "final_")):
        return "cleared among all valid episodes (the base's once); bounds: Wilson's score interval"
    if column.endswith("_episodes"):
        return "number of valid episodes"
    told = {
        "seeds": "seeds that played this step",
        "rollout": "rollouts of the arm before this one",
        "steps": "last measured step, counted from 1",
        "seed_min": "least of the seeds' mean returns",
        "seed_max": "largest of the seeds' mean returns",
    }
    return told.get(column, f"mean of `{key_of(column)}` over the seeds that have it")


def key_of(column: str) -> str:
    """The key of a metrics row that a column is about."""
    bare = column.removeprefix("sft_only_").removeprefix("final_").removeprefix("first_")
    for head in ("rollout_", "eval_"):
        bare = bare.removeprefix(head)
    if bare.startswith(("return", "diff", "rl_gain", "seed_m", "by_seed", "same")):
        return "return_mean"
    return {"clears_low": "clears", "clears_high": "clears", "steps": "step"}.get(bare, bare)


def commands(evidence: Evidence, labels: list[str]) -> list[str]:
    """What makes the receipts of these labels again, in a fresh clone or after the entries are set aside."""
    results = evidence.results
    targets = [results.paths[label].as_posix() for label in labels]
    entries = [results.receipts[label].entry.split("/") for label in labels]
    forget = [f"internalize forget {stage} {key}" for stage, key in entries]
    return [*forget, f"{snakemake(results.words())} {' '.join(targets)}"]


def snakemake(words: list[str]) -> str:
    """The call of Snakemake with these `--config` words, without targets."""
    config = "".join(f" {shlex.quote(word)}" for word in words)
    return f"snakemake --profile local{f' --config{config} --' if words else ''}"


def lines(found: Explanation) -> Iterator[str]:
    """The explanation as text."""
    yield f"{found.table} / {found.row} / {found.column} = {found.printed or '(empty)'}"
    yield f"how: {found.how}"
    yield f"made again from what follows: {found.again or '(empty)'}, {'equal' if found.equal else 'NOT EQUAL'}"
    if found.metrics:
        yield "metrics rows"
        for row in found.metrics:
            what = "" if row.key is None else f"  {row.key} = {row.value}"
            yield f"  {_where(row.arm, row.seed, row.step)}  {row.path}:{row.line} ({row.kind}){what}"
    if found.episodes:
        yield "episodes"
        for one in found.episodes:
            where = _where(one.arm, one.seed, one.step)
            yield f"  {where}  {one.path}  {one.valid} valid, {one.clears} cleared, sha256 {one.sha256[:16]}"
    if found.receipts:
        yield "receipts"
        for made in found.receipts:
            yield f"  {made.path}  hash {made.hash[:16]}, entry {made.entry}, code {made.code}"
            if made.made_from:
                yield f"    made from {', '.join(f'{count} {stage}' for stage, count in made.made_from.items())}"
    yield "make it again (in a fresh clone the last line is enough)"
    for command in found.commands:
        yield f"  {command}"


def _where(arm: str | None, seed: int | None, step: int | None) -> str:
    if seed is None:
        return str(arm)
    return "the base" if arm is None else f"{arm} seed {seed} step {step}"


def _printed(evidence: Evidence, table: str, row: str, column: str) -> str:
    path = table_path(evidence.results.folder, table)
    if not path.exists():
        raise MissingPayload("no such table here", where=str(path), fix="run the study first")
    with path.open(newline="") as handle:
        rows = {_name(table, found): found for found in csv.DictReader(handle)}
    if row not in rows:
        raise UserError(
            f"table {table} has no such row", got=row, expected=", ".join(rows), fix=nearest(row, list(rows))
        )
    if column not in rows[row]:
        columns = list(rows[row])
        raise UserError(
            f"table {table} has no such column", got=column, expected=", ".join(columns), fix=nearest(column, columns)
        )
    return rows[row][column]


def _name(table: str, row: dict[str, str]) -> str:
    if table == COSTS:
        return row["stage"]
    return f"{row['arm']}:{row['step']}" if table in BY_STEP else row["arm"]


def _metric(evidence: Evidence, ref: Ref, key: str) -> Metric:
    line, row = evidence.reader.metric(ref)
    path = (evidence.results.payload(ref.label) / ref.file).as_posix()
    return Metric(ref.arm, ref.seed, ref.step, ref.part, path, line, key if key in row else None, row.get(key))


def _episodes(evidence: Evidence, ref: Ref) -> Episodes:
    played = evidence.reader.episodes(ref)
    receipt = evidence.results.receipts[ref.label]
    sha = next(file.sha256 for file in receipt.files if file.path == ref.file)
    path = (evidence.results.payload(ref.label) / ref.file).as_posix()
    return Episodes(ref.arm, ref.seed, ref.step, path, len(played), sum(one.cleared for one in played), sha)


def _made(evidence: Evidence, label: str) -> Made:
    results = evidence.results
    receipt = results.receipts[label]
    stages = Counter(one.stage for one in ancestors(receipt, results.others).values())
    path = results.paths[label].as_posix()
    return Made(
        label,
        path,
        receipt.hash(),
        receipt.stage,
        receipt.entry,
        receipt.key,
        receipt.code,
        dict(sorted(stages.items())),
    )


def _cost(evidence: Evidence, stage: str, column: str, printed: str) -> Explanation:
    results = evidence.results
    row = next(row for row in evidence.costs() if row["stage"] == stage)
    key = {"runs": None, "stage": None}.get(column, column)
    metrics = []
    for receipt in evidence.stage_receipts(stage):
        path = results.store.root / receipt.entry / RUN
        value = results.store.run_info(receipt).get(key) if key else None
        metrics.append(Metric(receipt.name, None, None, "run", path.as_posix(), 1, key, value))
    return Explanation(
        COSTS,
        stage,
        column,
        printed,
        cell_text(row.get(column)),
        "over the run.json of every store entry of the stage that the report was made from; seconds by category follow "
        "its `cpu_parts_s`, memory is the largest",
        metrics,
        [],
        [],
        [f"internalize forget {stage} KEY  (the {ENTRY_NAME} characters of an entry; measures it anew)"],
    )
