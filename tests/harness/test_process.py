from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from internalize.errors import UserError
from internalize.harness.process import Exit, run


def _run(code: str, tmp_path: Path, seconds: float = 30.0, **environment: str) -> Exit:
    return run(
        [sys.executable, "-c", code],
        environment=environment,
        folder=tmp_path,
        output=tmp_path / "out",
        log=tmp_path / "log",
        seconds=seconds,
    )


def test_status_output_folder_and_environment(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), dict(os.environ).get('HOME'), sys.stdin.read()); sys.exit(3)"
    assert _run(code, tmp_path, HOME="/nowhere") == Exit(3)
    assert (tmp_path / "out").read_text() == f"{tmp_path} /nowhere \n"


def test_children_that_outlive_the_leader_are_ended(tmp_path: Path) -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    assert _run(code, tmp_path) == Exit(0)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "out").read_text()), 0)


def test_killed_by_a_signal(tmp_path: Path) -> None:
    ended = _run("import os; os.kill(os.getpid(), 9)", tmp_path)
    assert ended == Exit(-9)
    assert ended.killed
    assert Exit(143).killed
    assert not Exit(1).killed


def test_the_limit(tmp_path: Path) -> None:
    assert _run("import time; time.sleep(600)", tmp_path, seconds=0.3).timed_out


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot start"):
        run(["/no/such"], environment={}, folder=tmp_path, output=tmp_path / "o", log=tmp_path / "l", seconds=1)
