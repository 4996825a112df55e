"""A segment stops for time only where nothing is lost and something was won."""

from __future__ import annotations

from pathlib import Path

import pytest

from internalize.cluster.timelimit import ENDS, STOP, TimeIsUp, TimeLimit


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_first_step_is_always_tried(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    TimeLimit(ends=0.0, stop=tmp_path / "stop", clock=Clock()).before_step()


def test_it_stops_before_a_step_that_would_not_fit() -> None:
    clock = Clock()
    limit = TimeLimit(ends=1000.0 + 250, clock=clock)
    limit.before_step()
    clock.now += 100  # the first step took 100 s, 150 are left
    limit.before_step()
    clock.now += 60  # 90 are left, the longest took 100
    with pytest.raises(TimeIsUp, match="90 s are left, the longest step took 100 s"):
        limit.before_step()


def test_it_stops_when_it_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDS, "99999999999")
    monkeypatch.setenv(STOP, str(tmp_path / "stop"))
    limit = TimeLimit.of_environment()
    limit.before_step()
    limit.before_step()
    (tmp_path / "stop").touch()
    with pytest.raises(TimeIsUp, match="told to stop"):
        limit.before_step()


def test_without_a_job_there_is_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENDS, raising=False)
    monkeypatch.delenv(STOP, raising=False)
    limit = TimeLimit.of_environment()
    for _ in range(3):
        limit.before_step()
