"""What a cell of a table was made from.

Invariant: the measurements that `behind` names are enough: the table made from them alone, read again from files whose
hashes their receipts vouch for, has the same text in that cell (`again`). So a cell can be asked, and the answer holds.

A measurement is one row of a `metrics.jsonl`, the episodes of one rollout or eval, or the receipt of a stopped step.
Tables are those of `tables` and `summary.headline`, and `costs`, which is made from the `run.json` of store entries.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from internalize.errors import UserError
from internalize.receipts import Receipt, ancestors
from internalize.report import publish, summary, tables
from internalize.report.data import BASE_STEP, Played, Step, StudyData, empty_arms, eval_folder, load, read_played
from internalize.report.results import Results
from internalize.report.text import cell_text

Row = dict[str, Any]
Part = Literal["rollout", "train", "eval", "probe", "rollout_episodes", "eval_episodes", "stop"]
METRICS: tuple[Part, ...] = ("rollout", "train", "eval", "probe")
PLAYED: tuple[Part, ...] = ("eval", "eval_episodes")

MADE: dict[str, Callable[[StudyData], list[Row]]] = {
    "sft_only": tables.sft_only,
    "final": tables.final,
    "trajectories": tables.trajectories,
    "knowledge": tables.knowledge,
    "behaviour": tables.behaviour,
}
BY_STEP = ("trajectories", "knowledge")
"""Tables with a row an arm and step."""
SUMMARY, COSTS = "summary", "costs"
TABLES = (*MADE, SUMMARY, COSTS)
STOPS = ("status", "stopped")
TOLD = ("arm", "policy", "seeds", "phase", "step")
"""Columns that the study file decides, not a measurement."""


class Ref(NamedTuple):
    """One measurement."""

    arm: str | None
    """None: the base, which belongs to no arm."""
    seed: int
    step: int
    part: Part

    @property
    def label(self) -> str:
        """Input of the report that holds it."""
        if self.part in ("eval", "probe", "eval_episodes"):
            return "evals.base" if self.arm is None else f"evals.{self.arm}.{self.seed}"
        return f"step.{self.arm}.{self.seed}.{self.step:04d}"

    @property
    def file(self) -> str:
        """Its file, below the payload; empty for a stop, which stands in the receipt itself."""
        if self.part == "stop":
            return ""
        if self.part in METRICS:
            return "metrics.jsonl"
        return "episodes.jsonl" if self.part == "rollout_episodes" else f"{eval_folder(self.step)}/episodes.jsonl"


@dataclass
class Reader:
    """Reads measurements from files that were checked against their receipts, each file once."""

    results: Results

    def __post_init__(self) -> None:
        self._metrics: dict[str, list[Row]] = {}
        self._episodes: dict[tuple[str, str], list[Played]] = {}

    def _verified(self, ref: Ref) -> Path:
        return self.results.store.open(self.results.receipts[ref.label]).payload / ref.file

    def lines(self, ref: Ref) -> list[Row]:
        """All rows of the metrics file of a measurement."""
        if ref.label not in self._metrics:
            text = self._verified(ref).read_text()
            self._metrics[ref.label] = [json.loads(line) for line in text.split("\n") if line]
        return self._metrics[ref.label]

    def metric(self, ref: Ref) -> tuple[int, Row]:
        """Line (from 1) and content of a metrics row."""
        return next(
            (at, row)
            for at, row in enumerate(self.lines(ref), 1)
            if row["kind"] == ref.part and row["step"] == ref.step
        )

    def episodes(self, ref: Ref) -> list[Played]:
        """The valid episodes of a rollout or eval."""
        key = (ref.label, ref.file)
        if key not in self._episodes:
            self._episodes[key] = read_played(self._verified(ref))
        return self._episodes[key]


class Evidence:
    """Asks the cells of a finished study."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.reader = Reader(results)

    @cached_property
    def data(self) -> StudyData:
        """What was measured where, from the metrics alone."""
        return load(self.results.spec, self.results.inputs(), episodes=False)

    def behind(self, table: str, arm: str, step: int | None, column: str) -> list[Ref]:
        """The measurements behind a cell, in the order of arms, seeds and steps.

        Args:
            table: one of `TABLES` but `costs`.
            step: the row's step, in the tables of `BY_STEP`.
        """
        if table == SUMMARY:
            return self.behind(*_origin(arm, column))
        find = {
            "sft_only": self._sft_only,
            "final": self._final,
            "trajectories": self._trajectories,
            "knowledge": self._knowledge,
            "behaviour": self._behaviour,
        }[table]
        return list(dict.fromkeys(find(arm, column, BASE_STEP if step is None else step)))

    def again(self, refs: Sequence[Ref], table: str) -> list[Row]:
        """The rows of a table made from these measurements alone."""
        data = self._only(refs)
        if table == SUMMARY:
            return summary.headline({"sft_only": tables.sft_only(data), "final": tables.final(data)})
        return MADE[table](data)

    def recomputed(self, table: str, arm: str, step: int | None, column: str) -> str:
        """The text of a cell, made again."""
        rows = self.again(self.behind(table, arm, step, column), table)
        return cell_text(next(row.get(column) for row in rows if row["arm"] == arm and row.get("step", step) == step))

    def stage_receipts(self, stage: str) -> list[Receipt]:
        """The receipts behind a row of the costs table."""
        return [receipt for receipt in self._costed().values() if receipt.stage == stage]

    def costs(self) -> list[Row]:
        """The costs table, made again from the store's `run.json` files."""
        store = self.results.store
        return publish.costs((receipt.stage, store.run_info(receipt)) for receipt in self._costed().values())

    def _costed(self) -> dict[str, Receipt]:
        return ancestors(self.results.report, self.results.others)

    def _only(self, refs: Iterable[Ref]) -> StudyData:
        spec = self.results.spec
        arms = empty_arms(spec)
        base = Step(BASE_STEP, "base")
        for ref in refs:
            if ref.part == "stop":
                run, facts = arms[str(ref.arm)].runs[ref.seed], self.results.receipts[ref.label].facts
                run.stopped_at, run.reasons = int(facts["stopped_at"]), [str(reason) for reason in facts["reasons"]]
                continue
            if ref.arm is None:
                step = base
            else:
                phase = arms[ref.arm].phases[ref.step]
                step = arms[ref.arm].runs[ref.seed].steps.setdefault(ref.step, Step(ref.step, phase))
            found = self.reader.metric(ref)[1] if ref.part in METRICS else self.reader.episodes(ref)
            setattr(step, ref.part, found)
        return StudyData(str(spec["name"]), str(spec.get("reference", "none")), arms, base, {}, {})

    # Which measurements: one method a table

    def _sft_only(self, arm: str, column: str, step: int) -> Iterable[Ref]:
        if column in STOPS:
            return self._stops(arm)
        if column in TOLD:
            return []
        if column.startswith("rollout_"):
            return self._compared(arm, self.data.first_rollout, ("rollout", "rollout_episodes"), column)
        if column.startswith("eval_"):
            return self._compared(arm, self.data.before_rl, PLAYED, column)
        part: Part = "eval" if column in tables.KNOWLEDGE_KEYS else "probe"
        return self._at(arm, self.data.before_rl, (part,))

    def _final(self, arm: str, column: str, step: int) -> Iterable[Ref]:
        if column in STOPS:
            return self._stops(arm)
        if column in ("arm", "seeds"):
            return []
        if column.startswith("eval_"):
            return self._compared(arm, self._last, PLAYED, column)
        if column.startswith("rl_gain"):
            return [*self._at(arm, self.data.before_rl, PLAYED), *self._at(arm, self._last, PLAYED)]
        measured = column == "steps" or column in (*tables.KNOWLEDGE_KEYS, *tables.BEHAVIOUR_KEYS)
        return self._at(arm, self._last, ("eval",) if measured else ("eval", "probe"))

    def _trajectories(self, arm: str, column: str, step: int) -> Iterable[Ref]:
        steps = range(step + 1) if column == "rollout" else (step,)  # rollouts are counted from the first on
        parts: tuple[Part, ...] = ("rollout",)
        if column.startswith(("return", "clear")):
            parts = ("rollout", "rollout_episodes")
        elif column in ("loss", "grad_norm", "clip_fraction", "logprob_abs_diff"):
            parts = ("rollout", "train")
        for run in self.data.arms[arm].runs.values():
            for number in steps:
                if number in run.steps and run.steps[number].rollout:
                    yield from self._refs(arm, run.seed, run.steps[number], parts)

    def _knowledge(self, arm: str, column: str, step: int) -> Iterable[Ref]:
        if step == BASE_STEP:
            return self._refs(None, 0, self.data.base, ("probe",))
        runs = self.data.arms[arm].runs.values()
        return [
            ref for run in runs if step in run.steps for ref in self._refs(arm, run.seed, run.steps[step], ["probe"])
        ]

    def _behaviour(self, arm: str, column: str, step: int) -> Iterable[Ref]:
        if column.startswith("first_"):
            return self._at(arm, self.data.first_rollout, ("rollout",))
        return self._at(arm, self._last, ("eval",)) if column.startswith("final_") else []

    def _last(self, arm: str, seed: int) -> Step | None:
        return self.data.arms[arm].runs[seed].last()

    def _at(self, arm: str, of: tables.Of, parts: Sequence[Part]) -> list[Ref]:
        found = ((seed, of(arm, seed)) for seed in sorted(self.data.arms[arm].runs))
        return [ref for seed, step in found if step is not None for ref in self._refs(arm, seed, step, parts)]

    def _compared(self, arm: str, of: tables.Of, parts: Sequence[Part], column: str) -> list[Ref]:
        own = self._at(arm, of, parts)
        if "_diff" not in column and not column.endswith("_same"):
            return own
        reference = self.data.reference
        known = self.data.arms[reference].runs if reference in self.data.arms else {}
        base = self._refs(None, 0, self.data.base, parts) if self.data.arms[arm].runs.keys() - known.keys() else []
        return [*own, *(self._at(reference, of, parts) if known else []), *base]

    def _refs(self, arm: str | None, seed: int, step: Step, parts: Sequence[Part]) -> list[Ref]:
        """The parts that a step has; those of the base belong to no arm."""
        if step.step == BASE_STEP:
            arm, seed = None, 0
        has = {**{part: bool(getattr(step, part)) for part in METRICS}}
        has |= {"rollout_episodes": has["rollout"], "eval_episodes": has["eval"]}
        return [Ref(arm, seed, step.step, part) for part in parts if has[part]]

    def _stops(self, arm: str) -> list[Ref]:
        found = []
        for seed, run in self.data.arms[arm].runs.items():
            labels = (label for label in self.results.receipts if label.startswith(f"step.{arm}.{seed}."))
            first = next((label for label in sorted(labels) if self.results.receipts[label].status == "stopped"), None)
            if run.stopped_at is not None and first is not None:
                found.append(Ref(arm, seed, int(first.rpartition(".")[2]), "stop"))
        return found


def _origin(arm: str, column: str) -> tuple[str, str, None, str]:
    """The cell that a cell of the summary repeats."""
    if column.startswith("sft_only_"):
        return "sft_only", arm, None, column.removeprefix("sft_only_")
    if column.startswith(("final_", "rl_gain")):
        return "final", arm, None, column.removeprefix("final_")
    return "sft_only", arm, None, column


def table_path(folder: Path, table: str) -> Path:
    """Where `results/` holds a table.

    Raises:
        UserError: there is no such table.
    """
    if table not in TABLES:
        raise UserError("no such table", got=table, expected=", ".join(TABLES))
    return folder / f"{table}.csv" if table in (SUMMARY, COSTS) else folder / "tables" / f"{table}.csv"
