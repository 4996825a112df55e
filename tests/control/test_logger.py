"""Snakemake's output through our logger plugin."""

from __future__ import annotations

import io
import logging
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from snakemake_interface_logger_plugins.common import LogEvent
from terminal import on_terminal, piped

from snakemake_logger_plugin_internalize import LogHandler

SNAKEFILE = """
onstart:
    logger.info("", extra={"study": ({"study": STUDY}, REPOSITORY, [])})

rule all:
    input: "b.txt"

rule a:
    output: "a{n}.txt"
    shell: "touch {output}"

rule b:
    input: "a1.txt", "a2.txt"
    output: "b.txt"
    shell: "touch {output}"
"""


@dataclass
class Chosen:
    """What Snakemake tells a logger."""

    dryrun: bool = False
    verbose: bool = False
    debug_dag: bool = False
    printshellcmds: bool = False
    nocolor: bool = False
    show_failed_logs: bool = False
    stdout: bool = False
    quiet: set[Any] = field(default_factory=set)


def handler(monkeypatch: pytest.MonkeyPatch, chosen: Chosen) -> tuple[LogHandler, io.StringIO]:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    return LogHandler(chosen, None), stream  # type: ignore[arg-type]


def tell(one: LogHandler, message: str | None, level: int = logging.INFO, **extra: Any) -> None:
    record = logging.LogRecord("snakemake", level, "", 0, message, (), None)
    for key, value in extra.items():
        setattr(record, key, value)
    one.handle(record)


def job(one: LogHandler, number: int, rule: str, wildcards: dict[str, str], done: int, of: int) -> None:
    tell(one, "", event=LogEvent.JOB_INFO, jobid=number, rule_name=rule, wildcards=wildcards)
    tell(one, "Execute 1 jobs...", event=LogEvent.JOB_STARTED, jobs=[number])
    tell(one, "Finished", event=LogEvent.JOB_FINISHED, job_id=number)
    tell(one, None, event=LogEvent.PROGRESS, done=done, total=of)


def test_one_line_a_job_and_no_chatter(monkeypatch: pytest.MonkeyPatch) -> None:
    one, stream = handler(monkeypatch, Chosen())
    for text in ("Building DAG of jobs...", "Using shell: /usr/bin/bash", "Select jobs to execute..."):
        tell(one, text)
    tell(one, "Job stats:\njob  count", event=LogEvent.RUN_INFO)
    words = {"arm": "recite", "seed": "0", "first": "0000", "last": "0013"}
    job(one, 4, "segment", words, 1, 2)
    job(one, 0, "all", {}, 2, 2)
    tell(one, "Complete log(s): x.log")
    said = re.sub(r"\(\d+ s\)", "(N s)", stream.getvalue())
    assert said == "[1/2] segment recite seed 0, steps 0-13 (N s)\nComplete log(s): x.log\n"


def test_errors_and_unknown_messages_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    one, stream = handler(monkeypatch, Chosen())
    tell(one, "WorkflowError:\nstudy error: no such arm", logging.ERROR, event=LogEvent.ERROR)
    tell(one, "Nothing to be done (all requested files are present and up to date).")
    tell(one, "Job 3 has been submitted with SLURM jobid 41")
    assert stream.getvalue().count("\n") == 4


@pytest.mark.parametrize("chosen", [Chosen(dryrun=True), Chosen(verbose=True)], ids=["dry run", "verbose"])
def test_a_dry_run_prints_everything(monkeypatch: pytest.MonkeyPatch, chosen: Chosen) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    one, stream = handler(monkeypatch, chosen)
    tell(one, "Building DAG of jobs...")
    assert stream.getvalue() == "Building DAG of jobs...\n"


def test_bars_on_a_terminal_and_lines_in_a_pipe(tmp_path: Path, repository: Path) -> None:
    text = SNAKEFILE.replace("STUDY", repr(str(repository / "config/mini.yaml")))
    (tmp_path / "Snakefile").write_text(text.replace("REPOSITORY", f"__import__('pathlib').Path({str(repository)!r})"))
    environment = os.environ | {"PYTHONPATH": str(repository / "src")}
    command = [sys.executable, "-m", "snakemake", "--logger", "internalize", "--cores", "1"]
    code, said = on_terminal(command, tmp_path, environment)
    assert code == 0, said
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)
    assert "[3/4] b (" in plain
    assert re.search(r"mini +━+ +0/\d+ jobs about", plain)
    assert re.search(r"recite +━+ +0/2 steps", plain)
    assert said.rstrip().endswith("\x1b[?25h"), "the cursor is back"
    (tmp_path / "b.txt").unlink()
    code, said = piped(command, tmp_path, environment)
    assert code == 0, said
    assert all(one.isprintable() or one == "\n" for one in said)
    assert [one.partition(" (")[0] for one in said.splitlines() if one.startswith("[")] == ["[1/2] b"]
