"""A record's rollouts as steps of a study's arms, so that only what is missing is planned.

Invariant: a step counts as recorded exactly when its rollout was finished (the trainer has printed its timings) and all
steps of its arm before it are recorded too; the rest is named and left to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from internalize import specs
from internalize.arms.recorded import commit_recorded, label_of, partial_of
from internalize.arms.settings import StepSettings, step_settings
from internalize.checkpoints import layout
from internalize.files import link, write_jsonl
from internalize.imports.record import Job, printable, rollouts, steps
from internalize.schedule import own_steps
from internalize.store import Store
from internalize.study_arms import Arm
from internalize.workflow import Plan

RETURN, CLEARS, LOSS = "e2k/shaped_return", "e2k/clear_rate", "train/loss"
"""Keys of the record that our receipts have a name for."""


@dataclass(frozen=True)
class Imported:
    """What became of one arm."""

    arm: str
    recorded: list[int]
    """Steps that count as done."""
    missing: list[int]
    """Steps of the arm that are left to do."""
    left_out: list[int]
    """Rollouts of the logs that are no steps of the arm, or stand behind a gap."""
    checkpoints: list[int]
    """Recorded steps whose checkpoint was found; a run can only be continued from one of these."""


def import_steps(
    jobs: Mapping[str, Job], plan: Plan, store: Store, folder: Path, progress: Callable[[str], None]
) -> list[Imported]:
    """Commits the recorded steps of every arm that the logs speak of; arms go by their runs' names.

    Args:
        jobs: the logs.
        plan: of the study.
        folder: of the record; checkpoints are looked for in `checkpoints/<run>` and `runs/<run>`.
    """
    made = []
    runs = {job.run for job in jobs.values()}
    for arm in plan.arms.values():
        if arm.name in runs:
            one = _import_arm(jobs, plan, arm, store, folder)
            made.append(one)
            progress(_told(one))
    return made


def _import_arm(jobs: Mapping[str, Job], plan: Plan, arm: Arm, store: Store, folder: Path) -> Imported:
    seed, own = arm.seeds[0], own_steps(arm)
    spec = specs.segment(plan.study, arm, seed, own.start, own.stop - 1)
    ours = [job for job in jobs.values() if job.run == arm.name]
    rows = {row["rollout"]: row for row in rollouts(ours, arm.name)}
    finished = {number for job in ours for kind, number, side in job.lines if (kind, side) == ("perf", "train")}
    updates = steps(ours, arm.name)
    recorded: list[int] = []
    kept: list[int] = []
    for step in own:
        if step not in rows or step not in finished:
            break
        settings = step_settings(spec, step)
        label = label_of(arm.name, seed)
        partial = partial_of(store, label, settings)
        of_step = _updates_of(updates, rows[step])
        write_jsonl(partial / "metrics.jsonl", map(printable, _metrics(settings, rows[step], of_step)))
        if _take_checkpoint(folder, arm.name, step, partial):
            kept.append(step)
        source = {"recorded": {"job": rows[step]["job"], "time": rows[step]["time"], "folder": str(folder)}}
        commit_recorded(store, partial, label, settings, _facts(plan, rows[step], of_step), source)
        recorded.append(step)
    missing = [step for step in own if step not in recorded]
    return Imported(arm.name, recorded, missing, sorted(set(rows) - set(recorded)), kept)


def _updates_of(updates: list[dict[str, Any]], rollout: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The optimizer steps that the rollout's job had printed when the rollout ended: they count on over a run, so
    the time tells which are the rollout's."""
    return [row for row in updates if row["job"] == rollout["job"] and row["time"] <= rollout["time"]]


def _metrics(settings: StepSettings, row: Mapping[str, Any], updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    head = {"step": settings.step, "phase": settings.phase, "seed": int(settings.spec["seed"])}
    said = {key: value for key, value in row.items() if key not in ("run", "rollout")}
    last = updates[-1] if updates else {}
    trained = {key: value for key, value in last.items() if key.startswith("train/")}
    return [{**head, "kind": "rollout", **said}, {**head, "kind": "train", **trained}]


def _facts(plan: Plan, row: Mapping[str, Any], updates: list[dict[str, Any]]) -> dict[str, Any]:
    """The facts that our own receipts have, where the record states them."""
    episodes = plan.study.rollout.episodes
    facts: dict[str, Any] = {"loss": updates[-1].get(LOSS) if updates else None}
    if isinstance(row.get(RETURN), float):
        facts["return_mean"] = row[RETURN]
    if isinstance(row.get(CLEARS), int | float):
        facts |= {"clears": round(row[CLEARS] * episodes), "episodes": episodes}
    return dict(printable(facts))


def _take_checkpoint(folder: Path, run: str, step: int, partial: Path) -> bool:
    """Links a checkpoint of the record into a payload; False when there is none."""
    for root in (folder / "checkpoints" / run, folder / "runs" / run, folder / "runs" / run / "ckpt"):
        source, cursor = layout.iteration_folder(root, step), layout.cursor_path(root, step)
        if source.is_dir() and cursor.is_file():
            for path in source.rglob("*"):
                if path.is_file():
                    link(path, layout.iteration_folder(partial, step) / path.relative_to(source))
            link(cursor, layout.cursor_path(partial, step))
            layout.write_tracker(partial, step)
            return True
    return False


def _told(one: Imported) -> str:
    said = f"{one.arm}: {len(one.recorded)} recorded steps count as done, {len(one.missing)} are left"
    if one.left_out:
        said += f"; rollouts {', '.join(map(str, one.left_out))} are unfinished or no steps of this arm"
    if one.recorded and one.missing and one.recorded[-1] not in one.checkpoints:
        said += f"; to go on, the checkpoint of step {one.recorded[-1]} is needed"
    return said
