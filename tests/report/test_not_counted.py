"""What did not count is said, whichever step it was in."""

from __future__ import annotations

from internalize.report.data import ArmRuns, Run, Step, StudyData
from internalize.report.sections import setting


def _data(**rows: dict[str, int]) -> StudyData:
    steps = {0: Step(0, "rl", rollout=rows.get("rollout", {}), eval=rows.get("eval", {}))}
    arm = ArmRuns("none", ["rl"], "none", "", "", "valid", {0: Run(0, steps)})
    return StudyData("s", "none", {"none": arm}, Step(-1, "base", eval=rows.get("base", {})), {}, {})


def test_reasons_are_summed_over_rollouts_and_evals() -> None:
    text = setting(
        _data(
            rollout={"invalid_episodes": 3, "invalid_because_timeout": 2, "invalid_because_loop_guard": 1},
            eval={"invalid_episodes": 1, "invalid_because_timeout": 1},
            base={"invalid_episodes": 1, "invalid_because_tool_failed": 1},
        )
    )
    assert "do not count" in text
    assert "1 loop_guard, 3 timeout, 1 tool_failed" in text


def test_nothing_is_said_when_all_count() -> None:
    assert "do not count" not in setting(_data(rollout={"invalid_episodes": 0}, eval={"episodes": 3}))
