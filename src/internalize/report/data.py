"""What the report knows: the metrics and episodes of a study, read from the payloads of its receipts.

Invariant: every number in a table or figure comes from a `metrics.jsonl` row or an `episodes.jsonl` row
read here; arm, seed and step come from the input's name, never from the payload.

Input names: `base`, `gate`, `knowledge`, `rows.<name>`, `harvest.<name>`, `evals.base`,
`evals.<arm>.<seed>` and `step.<arm>.<seed>.<step>`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from internalize.errors import UserError
from internalize.files import read_jsonl
from internalize.report.intervals import Sample
from internalize.store import Input

BASE_STEP = -1
PLAYING = ("rl", "joint")

Row = dict[str, Any]


class Played(NamedTuple):
    """One finished episode, as far as tables need it."""

    level: int
    seed: int
    cleared: bool
    returned: float


@dataclass
class Step:
    """One step of one seed: its rollout, its training numbers and what was measured after it."""

    step: int
    phase: str
    rollout: Row = field(default_factory=dict)
    train: Row = field(default_factory=dict)
    eval: Row = field(default_factory=dict)
    probe: Row = field(default_factory=dict)
    rollout_episodes: list[Played] = field(default_factory=list)
    eval_episodes: list[Played] = field(default_factory=list)


@dataclass
class Run:
    """One arm with one seed."""

    seed: int
    steps: dict[int, Step]
    stopped_at: int | None = None
    reasons: list[str] = field(default_factory=list)

    def last(self) -> Step | None:
        """The last step with a play eval; None when the run was stopped before any."""
        return next((self.steps[s] for s in sorted(self.steps, reverse=True) if self.steps[s].eval), None)


@dataclass
class ArmRuns:
    """One arm: what it is, and its runs by seed."""

    name: str
    phases: list[str]
    schedule: str
    rows: str
    note: str
    status: str
    """Registry status of the study file."""
    runs: dict[int, Run]

    @property
    def first_playing(self) -> int | None:
        """The first step that plays a rollout: it plays the policy that SFT alone has made."""
        return next((step for step, phase in enumerate(self.phases) if phase in PLAYING), None)

    def meaning(self) -> str:
        """What the policy of the first rollout is."""
        first = self.first_playing
        if first is None:
            return f"after all {len(self.phases)} SFT steps (no RL)"
        steps = f"{first} SFT step{'s' if first > 1 else ''}"
        if first == 0:
            return (
                "the base: SFT and RL are joint from the first step on"
                if "joint" in self.phases
                else "the base: no SFT"
            )
        if "joint" in self.phases:
            return f"after the warm-up of {steps}"
        return (
            f"after {steps}"
            if "sft" not in self.phases[first:]
            else f"after the first {steps} of {self.phases.count('sft')}"
        )


@dataclass
class StudyData:
    """The whole study."""

    name: str
    reference: str
    """The arm that others are compared with."""
    arms: dict[str, ArmRuns]
    base: Step
    """The base itself, as step -1."""
    facts: dict[str, dict[str, Any]]
    """Input name -> facts of its receipt."""
    payloads: dict[str, Path]

    @property
    def compared_with(self) -> str:
        """What stands beside each arm: the reference arm, or the base when this run lacks that arm."""
        return self.reference if self.reference in self.arms else "the base"

    def before_rl(self, arm: str, seed: int) -> Step | None:
        """The last measured step before the first rollout: the SFT-only policy; the base where there is no
        SFT."""
        entry = self.arms[arm]
        first = entry.first_playing
        at = len(entry.phases) - 1 if first is None else first - 1
        if at == BASE_STEP:
            return self.base
        step = entry.runs[seed].steps.get(at)
        return step if step is not None and (step.eval or step.probe) else None

    def first_rollout(self, arm: str, seed: int) -> Step | None:
        """The step whose rollout plays the SFT-only policy; None when it was not played."""
        entry = self.arms[arm]
        if entry.first_playing is None:
            return None
        step = entry.runs[seed].steps.get(entry.first_playing)
        return step if step is not None and step.rollout else None


def load(spec: Mapping[str, Any], inputs: Mapping[str, Input], episodes: bool = True) -> StudyData:
    """Reads the payloads.

    Args:
        spec: `name`, `reference` (default `none`), `arms` {name: {phases, seeds, schedule, rows, note,
            status}}.
        inputs: as named in the module's docstring; a step or eval that is not there (a partial study) is
            left out.
        episodes: read the episodes too; without them, the metrics alone say what was measured where.

    Raises:
        UserError: an input has a name of no known form.
    """
    arms = empty_arms(spec)
    base = Step(BASE_STEP, "base")
    for label, entry in sorted(inputs.items()):
        kind, *parts = label.split(".")
        if kind == "step" and len(parts) == 3:
            _read_step(arms[parts[0]].runs[int(parts[1])], int(parts[2]), entry, episodes)
        elif kind == "evals" and (parts == ["base"] or len(parts) == 2):
            _read_evals(arms[parts[0]].runs[int(parts[1])] if len(parts) == 2 else None, base, entry.payload, episodes)
        elif label not in ("base", "gate", "knowledge") and kind not in ("rows", "harvest"):
            raise UserError(
                "the report does not know this input",
                got=label,
                expected="step.ARM.SEED.STEP, evals.ARM.SEED, ...",
            )
    for arm in arms.values():
        for run in arm.runs.values():
            for number, step in run.steps.items():
                step.phase = arm.phases[number]
    return StudyData(
        str(spec["name"]),
        str(spec.get("reference", "none")),
        arms,
        base,
        {label: dict(entry.facts) for label, entry in inputs.items()},
        {label: entry.payload for label, entry in inputs.items()},
    )


def eval_folder(step: int) -> str:
    """Where an eval's payload keeps the episodes of a step."""
    return f"episodes/{'step-base' if step == BASE_STEP else f'step-{step:04d}'}"


def empty_arms(spec: Mapping[str, Any]) -> dict[str, ArmRuns]:
    """The arms of a report's spec in the order of the study file, before anything of them is read."""
    return {
        name: ArmRuns(
            name,
            list(arm["phases"]),
            str(arm.get("schedule", "")),
            str(arm.get("rows", "")),
            str(arm.get("note", "")),
            str(arm.get("status", "valid")),
            {int(seed): Run(int(seed), {}) for seed in arm["seeds"]},
        )
        for name, arm in _ordered(spec)
    }


def sample(episodes: Sequence[Played]) -> Sample:
    """Shaped returns, clustered by the level seed that was played."""
    return Sample([e.returned for e in episodes], [(e.level, e.seed) for e in episodes])


def read_played(path: Path) -> list[Played]:
    """The valid episodes of an `episodes.jsonl`."""
    return [
        Played(row["plan"]["level"], row["plan"]["seed"], bool(row["outcome"]["cleared"]), float(row["returned"]))
        for row in read_jsonl(path)
        if row["valid"]
    ]


def _read_step(run: Run, number: int, entry: Input, read_episodes: bool) -> None:
    if entry.receipt.status == "stopped" and run.stopped_at is None:
        run.stopped_at = int(entry.facts["stopped_at"])
        run.reasons = [str(reason) for reason in entry.facts["reasons"]]
    metrics = entry.payload / "metrics.jsonl"
    if not metrics.exists():
        return
    step = run.steps.setdefault(number, Step(number, str(entry.facts.get("phase", ""))))
    for row in read_jsonl(metrics):
        if row["kind"] == "rollout":
            step.rollout |= row
        elif row["kind"] == "train":
            step.train |= row
    if read_episodes and (path := entry.payload / "episodes.jsonl").exists():
        step.rollout_episodes = read_played(path)


def _read_evals(run: Run | None, base: Step, payload: Path, read_episodes: bool) -> None:
    for row in read_jsonl(payload / "metrics.jsonl"):
        number = int(row["step"])
        if number == BASE_STEP:
            step = base
        elif run is not None:
            step = run.steps.setdefault(number, Step(number, str(row["phase"])))
        else:
            continue
        if row["kind"] == "probe":
            step.probe = row
        elif row["kind"] == "eval":
            step.eval = row
            if read_episodes:
                step.eval_episodes = read_played(payload / eval_folder(number) / "episodes.jsonl")


def _ordered(spec: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The arms in the order of the study file, where the spec says it."""
    arms: Mapping[str, Any] = spec["arms"]
    return [(name, arms[name]) for name in spec.get("order", arms)]
