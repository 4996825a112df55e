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
PARTS: dict[str, tuple[Part, ...]] = {
    "rollout": ("rollout",),
    "order": ("rollout",),
    "rollout_play": ("rollout", "rollout_episodes"),
    "train": ("rollout", "train"),
    "eval": ("eval",),
    "eval_play": ("eval", "eval_episodes"),
    "gain": ("eval", "eval_episodes"),
    "probe": ("probe",),
    "end_probe": ("eval", "probe"),
}
"""Kind of a column -> what of a step its cells are made from. A step counts as played by its `rollout` row, and as the
last measured one by its `eval` row, so these belong to the evidence."""

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
TRAINED = ("loss", "grad_norm", "clip_fraction", "logprob_abs_diff")
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
            table, column = origin(column)
        return self.of_kind(table, kind(table, column), arm, BASE_STEP if step is None else step)

    def of_kind(self, table: str, what: str, arm: str, step: int = BASE_STEP) -> list[Ref]:
        """The measurements behind all cells of a row whose columns are of one `kind`."""
        if what == "told":
            return []
        if what == "stops":
            return self._stops(arm)
        if table == "trajectories":
            return list(dict.fromkeys(self._trajectories(arm, what, step)))
        if table == "knowledge":
            return self._knowledge(arm, step)
        parts: Sequence[Part] = PARTS[what.removesuffix("_diff")]
        if what == "gain":
            found = [*self._at(arm, self.data.before_rl, parts), *self._at(arm, self._last, parts)]
            return list(dict.fromkeys(found))
        of = {"sft_only": self.data.before_rl, "final": self._last, "behaviour": self._last}[table]
        if what.startswith("rollout"):
            of = self.data.first_rollout
        find = self._compared if what.endswith("_diff") else self._at
        return list(dict.fromkeys(find(arm, of, parts)))

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

    def _trajectories(self, arm: str, what: str, step: int) -> Iterable[Ref]:
        steps = range(step + 1) if what == "order" else (step,)  # rollouts are counted from the first on
        for run in self.data.arms[arm].runs.values():
            for number in steps:
                if number in run.steps and run.steps[number].rollout:
                    yield from self._refs(arm, run.seed, run.steps[number], PARTS[what])

    def _knowledge(self, arm: str, step: int) -> list[Ref]:
        if step == BASE_STEP:
            return self._refs(None, 0, self.data.base, PARTS["probe"])
        steps = [(run.seed, run.steps[step]) for run in self.data.arms[arm].runs.values() if step in run.steps]
        return [ref for seed, one in steps for ref in self._refs(arm, seed, one, PARTS["probe"])]

    def _last(self, arm: str, seed: int) -> Step | None:
        return self.data.arms[arm].runs[seed].last()

    def _at(self, arm: str, of: tables.Of, parts: Sequence[Part]) -> list[Ref]:
        found = ((seed, of(arm, seed)) for seed in sorted(self.data.arms[arm].runs))
        return [ref for seed, step in found if step is not None for ref in self._refs(arm, seed, step, parts)]

    def _compared(self, arm: str, of: tables.Of, parts: Sequence[Part]) -> list[Ref]:
        """The arm's measurements and those of the reference arm; of the base, for seeds that the reference lacks."""
        reference = self.data.reference
        known = self.data.arms[reference].runs if reference in self.data.arms else {}
        lacking = self.data.arms[arm].runs.keys() - known.keys()
        base = self._refs(None, 0, self.data.base, parts) if lacking else []
        return [*self._at(arm, of, parts), *(self._at(reference, of, parts) if known else []), *base]

    def _refs(self, arm: str | None, seed: int, step: Step, parts: Sequence[Part]) -> list[Ref]:
        """The parts that a step has; those of the base belong to no arm."""
        if step.step == BASE_STEP:
            arm, seed = None, 0
        has = {part: bool(getattr(step, part)) for part in METRICS}
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


def kind(table: str, column: str) -> str:
    """The kind of a column: cells of one row and kind have one evidence. A key of `PARTS`, one with `_diff` behind it
    for comparisons with the reference, `told` or `stops`."""
    if column in STOPS:
        return "stops"
    if table == "trajectories":
        if column.startswith(("return", "clear")):
            return "rollout_play"
        if column in TRAINED:
            return "train"
        return "order" if column == "rollout" else "rollout"
    if table == "knowledge":
        return "probe"
    if column in TOLD:
        return "told"
    if table == "behaviour":
        return "rollout" if column.startswith("first_") else "eval"
    if column.startswith("rl_gain"):
        return "gain"
    if column.startswith(("rollout_", "eval_")):
        compared = "_diff" in column or column.endswith("_same")
        return f"{column.partition('_')[0]}_play{'_diff' if compared else ''}"
    if column == "steps" or column in (*tables.KNOWLEDGE_KEYS, *tables.BEHAVIOUR_KEYS):
        return "eval"
    return "end_probe" if table == "final" else "probe"


def origin(column: str) -> tuple[str, str]:
    """Table and column that a column of the summary repeats."""
    if column.startswith(("final_", "rl_gain")):
        return "final", column.removeprefix("final_")
    return "sft_only", column.removeprefix("sft_only_")


def table_path(folder: Path, table: str) -> Path:
    """Where `results/` holds a table.

    Raises:
        UserError: there is no such table.
    """
    if table not in TABLES:
        raise UserError("no such table", got=table, expected=", ".join(TABLES))
    return folder / f"{table}.csv" if table in (SUMMARY, COSTS) else folder / "tables" / f"{table}.csv"
