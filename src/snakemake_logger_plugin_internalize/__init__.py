"""Snakemake's output for a study: bars on a terminal, one line a finished job elsewhere (`logger: internalize`).

Invariant: nothing that matters is left out. Errors, warnings and Snakemake's last words are printed as Snakemake words
them; a dry run, and a run that is asked to be verbose, print everything that they would print without this plugin.
Snakemake's own log file is not touched.

The bars are those of `internalize watch`. What the Snakefile's plan was made from comes as an attribute of a log record
(`extra={"study": (config, repository, configfiles)}`); without it there are lines and no bars.
"""

from __future__ import annotations

import sys
import threading
import time
from logging import INFO, LogRecord
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snakemake.logging import ColorizingTextHandler, DefaultFilter, DefaultFormatter
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

if TYPE_CHECKING:
    from rich.console import RenderableType

CHATTER = (
    "Using profile",
    "Assuming unrestricted",
    "Building DAG",
    "Using shell",
    "Provided cores",
    "Rules claiming",
    "Conda environments",
    "Select jobs",
    "Reasons:",
    "host:",
    "Job stats:",
)
"""How messages of no event begin that say nothing about this study."""
SILENT = (LogEvent.JOB_INFO, LogEvent.JOB_STARTED, LogEvent.JOB_FINISHED, LogEvent.PROGRESS, LogEvent.RUN_INFO)
SHARE = 0.02
"""Most of the time that looking at the study may take."""
EVERY = 1.0
"""Shortest time between two looks, seconds."""


class LogHandler(LogHandlerBase):
    """Takes Snakemake's records, in a thread of Snakemake's own."""

    def __post_init__(self) -> None:
        chosen = self.common_settings
        stream = sys.stdout if chosen.stdout else sys.stderr
        self._inner = ColorizingTextHandler(nocolor=chosen.nocolor, stream=stream)
        self._inner.setFormatter(DefaultFormatter(chosen.quiet, chosen.show_failed_logs))
        self._inner.addFilter(
            DefaultFilter(chosen.quiet, chosen.debug_dag, chosen.verbose, chosen.dryrun, chosen.printshellcmds)
        )
        self._as_ever = chosen.dryrun or chosen.verbose or chosen.debug_dag or chosen.printshellcmds
        self._screen: Screen | None = None
        self._names: dict[int, str] = {}
        self._began: dict[int, float] = {}
        self._ended: list[int] = []

    def emit(self, record: LogRecord) -> None:
        """Prints a record, or keeps it for the line of its job."""
        told: Any = record
        if self._as_ever:
            self._inner.handle(record)
            return
        event = getattr(record, "event", None)
        if hasattr(record, "study"):
            if self._inner.can_color_tty():
                self._screen = Screen(told.study, self._inner.stream)
        elif event == LogEvent.JOB_INFO:
            self._names[told.jobid] = label(told.rule_name, told.wildcards)
        elif event == LogEvent.JOB_STARTED:
            self._began |= dict.fromkeys(told.jobs, time.monotonic())
        elif event == LogEvent.JOB_FINISHED:
            self._ended.append(told.job_id)
        elif event == LogEvent.PROGRESS:
            self._finished(told.done, told.total)
        elif event not in SILENT and not chatter(record) and self._inner.filter(record):
            self._print(self._inner.format(record), record.levelno > INFO)

    def close(self) -> None:
        """Leaves the last bars on the terminal."""
        if self._screen is not None:
            self._screen.close()
            self._screen = None
        super().close()

    def _finished(self, done: int, of: int) -> None:
        """One line for each job that has ended since the last count."""
        for job in self._ended:
            if self._names.get(job) != "all":
                took = time.monotonic() - self._began.get(job, time.monotonic())
                self._print(f"[{done}/{of}] {self._names.get(job, f'job {job}')} ({took:.0f} s)", False)
        self._ended.clear()

    def _print(self, text: str, trouble: bool) -> None:
        if text.strip() in ("", "None"):
            return
        if self._screen is not None:
            self._screen.print(text, "red" if trouble else "dim")
        else:
            self._inner.stream.write(text.rstrip("\n") + "\n")
            self._inner.stream.flush()

    writes_to_stream = True
    writes_to_file = False
    has_filter = True
    has_formatter = True
    needs_rulegraph = False


class Screen:
    """The bars at the bottom of a terminal, looked at anew by a thread of their own; text scrolls above them."""

    def __init__(self, study: tuple[Any, ...], stream: Any) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        self._study = study
        self._live = Live(Text("looking at the study ..."), console=Console(file=stream), auto_refresh=False)
        self._over = threading.Event()
        self._live.start()
        self._thread = threading.Thread(target=self._look_on, name="bars", daemon=True)
        self._thread.start()

    def print(self, text: str, style: str) -> None:
        """Prints above the bars."""
        self._live.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """A last look, and the terminal as it was."""
        self._over.set()
        self._thread.join()
        try:
            self._live.update(self._look(), refresh=True)
        finally:
            self._live.stop()

    def _look_on(self) -> None:
        wait = 0.0
        while not self._over.wait(wait):
            before = time.monotonic()
            self._live.update(self._look(), refresh=True)
            wait = max(EVERY, (time.monotonic() - before) / SHARE)

    def _look(self) -> RenderableType:
        from internalize.control.bars import Bars
        from internalize.control.progress import progress
        from internalize.control.status import look
        from internalize.errors import UserError
        from internalize.store import Store
        from internalize.workflow import Plan

        try:
            board = look(Plan.from_config(*self._study), Store(Path("store")), Path())
            return Bars(progress(board))
        except UserError as error:  # a receipt that is being written, a study file that is being edited
            return f"{error.title}: {error.what}"


def label(rule: str, wildcards: dict[str, Any]) -> str:
    """A job's name, as `internalize plan` calls it."""
    from internalize.costs.jobs import Job

    return Job(rule, {key: str(value) for key, value in wildcards.items()}, "", (), {}, rule).label


def chatter(record: LogRecord) -> bool:
    """Is it one of the messages that every run begins with?"""
    return record.levelno <= INFO and str(record.msg).strip().startswith(CHATTER)
