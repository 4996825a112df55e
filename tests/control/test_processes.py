"""Only Snakemake and stages of this directory are ours, and only they are signalled."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from internalize.control import processes

OUTPUT = "results/receipts/arms/arm_c/seed3/steps0002-0004/step0004.json"
SLEEP = "import time\ntime.sleep(60)\n"


@pytest.fixture
def start(work: Path, tmp_path: Path) -> Iterator:  # type: ignore[type-arg]
    """Starts programs of given names; ends them in the end."""
    started: list[subprocess.Popen[bytes]] = []

    def make(name: str, *words: str, where: Path | None = None) -> int:
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        if not program.exists():
            program.write_text(SLEEP)
        process = subprocess.Popen([sys.executable, str(program), *words], cwd=where or work)
        started.append(process)
        end = time.monotonic() + 20
        while Path(f"/proc/{process.pid}/cmdline").read_bytes().count(b"\0") < 2 and time.monotonic() < end:
            time.sleep(0.01)
        return process.pid

    yield make
    for process in started:
        process.kill()
        process.wait()


def test_ours_are_told_from_others(start, work: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    driver = start("snakemake", "--profile", "local")
    job = start("internalize", "segment", "--spec", "{}", "--output", OUTPUT)
    evals = start("internalize", "stage", "evals", "--output", "results/receipts/evals/arm_c/seed3.json")
    convert = start("internalize", "stage", "convert", "--output", "results/receipts/convert/arm_c/seed3/step0004.json")
    archive = start("internalize", "archive", "--spec", "{}", "--output", "results/receipts/archive.json")
    gates = start("internalize", "gates", "--spec", "{}", "--folder", "results/receipts/numerics")
    for name, *words in (
        ("snakemake", "-n"),
        ("snakemake", "all", "--mode", "remote"),
        ("internalize", "status"),
        ("editor", "internalize", "segment"),
    ):
        start(name, *words)
    start("snakemake", where=tmp_path)
    found = processes.ours(work)
    assert [one.pid for one in found] == [driver, job, evals, convert, archive, gates]
    assert [one.driver for one in found] == [True, *[False] * 5]
    assert (found[1].run, found[1].steps) == (("arm_c", 3), range(2, 5))
    assert (found[2].run, list(found[2].steps)) == (("arm_c", 3), [])
    assert found[1].what == f"segment {OUTPUT}"
    assert [(one.rule, one.run) for one in found[3:]] == [("convert", ("arm_c", 3)), ("", None), ("", None)]
    assert found[5].what == "gates"


def test_every_command_that_a_rule_calls_is_ours(repository: Path) -> None:
    text = "".join(path.read_text() for path in (repository / "rules").glob("*.smk"))
    assert set(re.findall(r'"internalize (\w+) ', text)) == processes.JOBS


def test_ending_waits_for_the_end(start, work: Path) -> None:  # type: ignore[no-untyped-def]
    start("internalize", "segment", "--output", OUTPUT)
    found = processes.ours(work)
    assert found
    processes.terminate(found)
    deadline = time.monotonic() + 60
    while any(one.alive for one in found) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes.ours(work) == []
    processes.terminate(found)  # gone already: no error
