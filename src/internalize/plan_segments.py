"""How each arm is cut into jobs, and where it ends: by its steps, by the collapse guard, by the budget.

Invariant: only receipts of now, under the settings and the code of now, end an arm early; what an earlier run has
passed through stays, so that a finished study stays finished.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from internalize import budget, specs
from internalize.arms.settings import step_settings
from internalize.files import canonical_json, read_json
from internalize.inputs import segment_path
from internalize.schedule import own_steps
from internalize.study import Study
from internalize.study_arms import Arm

Cut = tuple[int, int]
"""First and last step of a segment."""


class Segments:
    """The segments of a study's arms.

    Args:
        study: the study.
        steps_per_job: steps that one job runs; None: all of an arm.
        code: fingerprint of the code of segments, asked for only where a receipt has to be judged.
    """

    def __init__(self, study: Study, steps_per_job: int | None, code: Callable[[], str]) -> None:
        self.study, self.steps_per_job, self.code = study, steps_per_job, code
        self._to_run: dict[tuple[str, int], list[Cut]] = {}

    def of(self, arm: Arm) -> list[Cut]:
        """First and last step of each job of an arm."""
        own = own_steps(arm)
        size = self.steps_per_job or arm.steps
        return [(first, min(first + size, own.stop) - 1) for first in range(own.start, own.stop, size)]

    def to_run(self, arm: Arm, seed: int) -> list[Cut]:
        """The arm's segments, without those that would only pass on what the collapse guard stopped, nor those behind
        the step at which the budget ran out.
        """
        if (arm.name, seed) not in self._to_run:
            self._to_run[arm.name, seed] = self._cut(arm, seed)
        return self._to_run[arm.name, seed]

    def paths(self, arm: Arm, seed: int) -> list[str]:
        """The receipts of the arm's segments in order."""
        return [segment_path(arm.name, seed, *segment) for segment in self.to_run(arm, seed)]

    def steps(self, arm: Arm, seed: int) -> range:
        """The arm's own steps up to the end of its last segment."""
        segments = self.to_run(arm, seed)
        return range(segments[0][0], segments[-1][1] + 1) if segments else range(0)

    def checkpoints(self, arm: Arm, seed: int) -> range:
        """The arm's own steps that have, or will have, a checkpoint: up to the one before the guard's stop."""
        steps = self.steps(arm, seed)
        stops = (self._stop(arm, seed, segment) for segment in self.to_run(arm, seed))
        stopped = next((step for step in stops if step is not None), steps.stop)
        return range(steps.start, min(stopped, steps.stop))

    def budget_end(self, arm: Arm, seed: int) -> int | None:
        """The last committed step of an arm that ran out of budget (-1: none); None when nothing holds it back now."""
        if self.study.budget is None:
            return None
        mark = budget.read_mark(arm.name, seed)
        if mark is None or not budget.in_force(mark, self.study.budget.limits()):
            return None
        step = int(mark["step"])
        if step >= 0:
            spec = step_settings(specs.segment(self.study, arm, seed, step, step), step).spec
            if mark["state"] != budget.state_of(json.loads(canonical_json(spec)), self.code()):
                return None  # other settings or code: those steps are no longer this arm's
        return step

    def part(self, arm: Arm, seed: int | str, first: int) -> tuple[list[str], int]:
        """For a part of a segment that goes on from a finished step within it: that step's receipt, which lies beside
        the segment's, and the segment's last step. Else nothing, and -1."""
        start, end = next((one for one in self.of(arm) if one[0] < first <= one[1]), (-1, -1))
        if end < 0:
            return [], -1
        before = Path(segment_path(arm.name, seed, start, end)).with_name(f"step{first - 1:04d}.json")
        return ([before.as_posix()], end) if before.exists() else ([], -1)

    def _cut(self, arm: Arm, seed: int) -> list[Cut]:
        segments = self.of(arm)
        end = self.budget_end(arm, seed)
        if end is not None:
            segments = [(first, min(last, end)) for first, last in segments if first <= end]
        for position, segment in enumerate(segments):
            if self._stop(arm, seed, segment) is not None:
                later = [segment_path(arm.name, seed, *one) for one in segments[position + 1 :]]
                return segments if any(Path(path).exists() for path in later) else segments[: position + 1]
        return segments

    def _stop(self, arm: Arm, seed: int, segment: Cut) -> int | None:
        """The step at which the guard stopped the arm, if this segment's receipt says so under the settings and the
        code of now; else None."""
        path = Path(segment_path(arm.name, seed, *segment))
        if not path.exists():
            return None
        receipt = read_json(path)
        if receipt.get("status") != "stopped" or receipt.get("code") != self.code():
            return None
        first, last = segment
        spec = step_settings(specs.segment(self.study, arm, seed, first, last), last).spec
        same = canonical_json(receipt.get("spec")) == canonical_json(spec)
        return int(receipt["facts"]["stopped_at"]) if same else None
