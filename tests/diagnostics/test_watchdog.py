"""A hang ends with the stacks of all threads and an error; a phase that lives on is left alone."""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from internalize.diagnostics.limits import Limits
from internalize.diagnostics.meminfo import MIB
from internalize.diagnostics.stall import EXIT_STATUS, STACKS, Stalled
from internalize.diagnostics.watchdog import HEARTBEAT, Watchdog, beat_on_calls
from internalize.files import read_json, read_jsonl
from internalize.study import load_study
from internalize.study_diagnostics import Diagnostics


@contextmanager
def watching(**limits: object) -> Iterator[tuple[Watchdog, list[str]]]:
    said: list[str] = []
    dog = Watchdog(Limits(**limits), said.append).start()  # type: ignore[arg-type]
    try:
        yield dog, said
    finally:
        dog.stop()


def hang_here(seconds: float = 60.0) -> None:
    time.sleep(seconds)


def test_a_planted_hang_dumps_stacks_and_ends_the_phase_with_an_error(tmp_path: Path) -> None:
    with watching(deadlines={"play": 0.2}) as (dog, said):
        watch = dog.watch(tmp_path / "run", "none-seed0-step0003")
        with pytest.raises(Stalled) as ended, watch.phase("play"):
            hang_here()
    assert ended.value.what == "phase play hangs"
    assert ended.value.where == "none-seed0-step0003"
    assert "done within 0.2 s" in ended.value.expected
    stacks = (tmp_path / "run" / STACKS).read_text()
    assert "in hang_here" in stacks
    assert "Thread" in stacks
    assert str(tmp_path / "run" / STACKS) in ended.value.fix
    assert said == [f"phase play hangs: the stacks of all threads are in {tmp_path / 'run' / STACKS}"]


def test_silence_after_signs_of_life_is_a_hang(tmp_path: Path) -> None:
    with watching(silence=0.3) as (dog, _):
        watch = dog.watch(tmp_path, "s")

        def work() -> None:
            for step in range(10):  # longer than the limit, but alive
                time.sleep(0.06)
                watch.beat(f"optimizer step {step}")
            hang_here()

        with pytest.raises(Stalled) as ended, watch.phase("train"):
            work()
    assert "after optimizer step 9 (10 so far)" in ended.value.got


def test_a_phase_without_any_sign_is_bound_by_its_deadline_alone(tmp_path: Path) -> None:
    with watching(silence=0.1) as (dog, said), dog.watch(tmp_path, "s").phase("play"):
        time.sleep(0.5)
    assert said == []


def test_a_deadline_holds_for_its_phase_only_and_a_later_one_starts_anew(tmp_path: Path) -> None:
    with watching(deadlines={"play": 0.4}) as (dog, said):
        watch = dog.watch(tmp_path, "s")
        for _ in range(2):
            with watch.phase("play"):
                time.sleep(0.25)
        with watch.phase("save"):
            time.sleep(0.5)
    assert said == []
    assert set(watch.parts) == {"play", "save"}


def test_a_hang_outside_the_main_thread_of_python_ends_the_process(tmp_path: Path) -> None:
    """The error cannot be raised: the main thread blocks the signal, as a call into C would."""
    script = f"""
import signal, sys, time
from pathlib import Path
from internalize.diagnostics.limits import Limits
from internalize.diagnostics.watchdog import Watchdog
dog = Watchdog(Limits(deadlines={{"train": 0.2}}, grace=0.3), lambda text: print(text, file=sys.stderr)).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
with dog.watch(Path({str(tmp_path)!r}), "s").phase("train"):
    time.sleep(60)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == EXIT_STATUS
    assert "stalled: phase train hangs" in done.stderr
    assert "this process is ended" in done.stderr
    assert 'File "<string>", line 9' in (tmp_path / STACKS).read_text()


def test_even_a_call_that_keeps_the_interpreter_lock_ends(tmp_path: Path) -> None:
    script = f"""
import ctypes, sys
from pathlib import Path
from internalize.diagnostics.limits import Limits
from internalize.diagnostics.watchdog import Watchdog
dog = Watchdog(Limits(deadlines={{"train": 0.2}}, grace=0.2), print).start()
with dog.watch(Path({str(tmp_path)!r}), "s").phase("train"):
    ctypes.PyDLL(None).sleep(60)  # PyDLL does not release the lock
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode not in (0, EXIT_STATUS)
    assert "Timeout (0:00:01" in done.stderr
    assert 'File "<string>", line 8' in done.stderr


def test_heartbeat_and_memory_say_what_is_going_on(tmp_path: Path) -> None:
    with watching(sample_seconds=0.05) as (dog, _):
        watch = dog.watch(tmp_path / "run", "none-seed0-step0001")
        with watch.phase("play"):
            watch.beat("an engine call")
            time.sleep(0.4)
            beat = read_json(tmp_path / "run" / HEARTBEAT)
        folder = watch.finish()
        before = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "run").rglob("*"))
        time.sleep(0.2)
        assert sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "run").rglob("*")) == before
    assert folder == tmp_path / "run"
    assert (beat["step"], beat["phase"], beat["beats"], beat["pid"]) == ("none-seed0-step0001", "play", 1, os.getpid())
    assert beat["last_beat"] == "an engine call"
    (samples,) = (tmp_path / "run" / "meminfo").iterdir()
    taken = list(read_jsonl(samples))
    assert len(taken) >= 3
    assert all(row["rss_mib"] > 0 for row in taken)


def test_a_leak_over_steps_is_said_and_stands_in_the_report(tmp_path: Path) -> None:
    kept = []
    with watching(growth_mib=4.0) as (dog, said):
        for step in range(10):
            watch = dog.watch(tmp_path / str(step), f"step{step}")
            with watch.phase("train"):
                kept.append(mmap.mmap(-1, 8 * MIB))  # not from what the process already holds
                kept[-1].write(os.urandom(1024) * 8 * 1024)
            watch.finish()
        report = watch.report()
    assert len(said) == 1
    assert said[0].startswith("memory alarm: host memory grows by ")
    assert report["memory_alarms"] == [said[0].removeprefix("memory alarm: ")]
    assert report["cpu_parts_s"].keys() == {"train"}


def test_the_signal_is_given_back() -> None:
    before = signal.getsignal(signal.SIGUSR2)
    with watching():
        assert signal.getsignal(signal.SIGUSR2) != before
    assert signal.getsignal(signal.SIGUSR2) == before
    assert not [thread for thread in threading.enumerate() if thread.name == "watchdog"]


def test_calls_of_an_object_are_signs_of_life() -> None:
    class Engine:
        def generate(self, x: int, *, y: int) -> int:
            return x + y

    one, other, beats = Engine(), Engine(), []
    beat_on_calls(one, "generate", lambda: beats.append(1))
    assert (one.generate(1, y=2), other.generate(3, y=4)) == (3, 7)
    assert beats == [1]


def test_the_study_section_has_the_defaults_of_the_limits(repository: Path) -> None:
    plain = Diagnostics().plain()
    assert Limits.of(plain) == Limits(deadlines=dict.fromkeys(("start", "play", "train", "save")))
    assert Limits.of(None) == Limits()
    study = load_study(repository / "config/mini.yaml", set=["diagnostics.deadlines.play=5.0"])
    assert study.diagnostics is not None
    assert Limits.of(json.loads(json.dumps(study.diagnostics.plain()))).deadlines["play"] == 5.0
