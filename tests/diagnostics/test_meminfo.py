"""Memory that leaks raises the alarm, memory that goes up and down does not; samples are rows of a file."""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from internalize.diagnostics.limits import Limits
from internalize.diagnostics.meminfo import FOLDER, MIB, MemoryLog, rss_mib, sample, slope, steady
from internalize.files import read_jsonl


def pages(mib: int) -> mmap.mmap:
    """Memory of its own, written: an allocation might reuse what the process already holds."""
    memory = mmap.mmap(-1, mib * MIB)
    memory.write(os.urandom(1024) * 1024 * mib)
    return memory


@given(st.floats(-1e3, 1e3), st.floats(-1e6, 1e6), st.integers(5, 30))
def test_the_slope_of_a_line_with_one_wild_point_is_the_lines(rate: float, start: float, count: int) -> None:
    points = [(float(x), start + rate * x) for x in range(count)]
    points[2] = (2.0, 1e9)
    assert slope(points) == pytest.approx(rate, rel=1e-3, abs=1e-3)


def test_a_sawtooth_is_not_steady() -> None:
    assert not steady([(float(x), float(x % 4)) for x in range(24)])
    assert steady([(float(x), float(x) + x % 4) for x in range(24)])


def test_a_sample_follows_a_real_allocation() -> None:
    before = rss_mib()
    held = pages(64)
    assert rss_mib() - before > 50
    assert sample()["available_mib"] > 0
    del held


def test_a_planted_leak_raises_the_alarm_once() -> None:
    """Real memory: 8 MiB a step are kept."""
    log = MemoryLog(Limits(growth_mib=4.0))
    kept = []
    said = []
    for _ in range(12):
        kept.append(pages(8))
        said.append(log.step_done())
    alarms = [text for text in said if text]
    assert len(alarms) == 1
    assert alarms[0].startswith("host memory grows by ")
    assert "MiB a step" in alarms[0]
    assert log.alarms == alarms


def test_steps_that_return_their_memory_raise_nothing() -> None:
    log = MemoryLog(Limits(growth_mib=4.0))
    assert not any(log.step_done(600.0 + (40.0 if step % 2 else 0.0)) for step in range(30))


def test_first_steps_may_grow() -> None:
    log = MemoryLog(Limits(growth_mib=4.0))
    assert not any(log.step_done(memory) for memory in (100.0, 900.0, *[1500.0 + step for step in range(12)]))


def rows(used: Any, available: Any, count: int = 30, gpu: bool = False) -> list[dict[str, Any]]:
    made = []
    for at in range(count):
        host = {"time": 10.0 * at, "rss_mib": 500.0, "available_mib": 9e4}
        if gpu:
            made.append({**host, "gpus": [{"device": 0, "used_mib": used(at), "free_mib": available(at)}]})
        else:
            made.append({**host, "rss_mib": used(at), "available_mib": available(at)})
    return made


@pytest.mark.parametrize(("gpu", "name"), [(False, "host memory"), (True, "memory of GPU 0")])
def test_memory_that_runs_out_within_the_horizon_is_said_with_the_time_left(
    gpu: bool, name: str, tmp_path: Path
) -> None:
    log = MemoryLog(Limits(horizon=1800.0))
    # 10 s a sample, 100 MiB a sample: 600 MiB a minute
    said = [log.take(tmp_path, "play", row) for row in rows(lambda i: 1e3 + 100 * i, lambda i: 9e3 - 100 * i, gpu=gpu)]
    assert [text for text in said if text] == [f"{name} grows by 600 MiB a minute and runs out in 12 minutes"]
    (file,) = (tmp_path / FOLDER).iterdir()
    written = list(read_jsonl(file))
    assert len(written) == 30
    assert sum("alarm" in row for row in written) == 1
    assert {row["phase"] for row in written} == {"play"}


def test_a_long_way_to_go_and_a_start_up_are_no_alarm(tmp_path: Path) -> None:
    def grows(i: int) -> float:
        return 1e3 + 100 * i

    log = MemoryLog(Limits(horizon=1800.0))
    assert not any(log.take(tmp_path, "play", row) for row in rows(grows, lambda i: 1e6))
    assert not any(log.take(tmp_path, "start", row) for row in rows(grows, lambda i: 9e3 - 100 * i))


def test_only_gpus_in_use_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def mem_get_info(device: int) -> tuple[int, int]:
        assert device == 1, "asking would make a context"
        return 3 * MIB, 8 * MIB

    cuda = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        device_count=lambda: 2,
        memory_reserved=lambda device: 2 * MIB * device,
        mem_get_info=mem_get_info,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert sample()["gpus"] == [{"device": 1, "used_mib": 5.0, "free_mib": 3.0, "torch_mib": 2.0}]
