"""`internalize status` and `watch`: how far a study is.

Invariant: looking changes nothing; what goes into a file or a pipe has no control characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from internalize.cli_control import DryOption, PrefixOption, ProfileOption, plan_and_driver, prefix_of
from internalize.cli_plan import ArmsOption, SetOption, StepsOption, StoreFolder, StudyOption

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from internalize.control.status import Board

EveryOption = Annotated[float, typer.Option("--every", help="seconds between looks", min=0.5)]
WIDTH = 140
"""Columns of a board that goes into a file or a pipe."""


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(status)
    app.command()(watch)


def status(
    study: StudyOption = None,
    arms: ArmsOption = None,
    set: SetOption = None,
    steps_per_job: StepsOption = None,
    profile: ProfileOption = "local",
    prefix: PrefixOption = None,
    watch: Annotated[bool, typer.Option("--watch", help="look again and again until nothing runs")] = False,
    every: EveryOption = 5.0,
    store: StoreFolder = Path("store"),
    dry_run: DryOption = False,
) -> None:
    """Show every arm and step: done, running, queued, failed; live jobs, time left, the last errors."""
    from internalize.control import slurm
    from internalize.control.board import render

    if dry_run:
        typer.echo(f"reads: {store}, results/receipts, results/budget, .snakemake/log, /proc")
        typer.echo(f"calls: {' '.join(slurm.command())}" if slurm.present() else "calls: nothing (no Slurm here)")
        return
    boards = _boards(study, arms, set, steps_per_job, profile, prefix, store, every)
    if watch:
        _show(boards, render, lambda board: None)
    else:
        _console().print(render(next(boards)), soft_wrap=False)


def watch(
    study: StudyOption = None,
    arms: ArmsOption = None,
    set: SetOption = None,
    steps_per_job: StepsOption = None,
    profile: ProfileOption = "local",
    prefix: PrefixOption = None,
    every: EveryOption = 2.0,
    store: StoreFolder = Path("store"),
) -> None:
    """Show a bar for the study and one for each arm, with what runs and how long it will take, until nothing runs.
    Into a file or a pipe: one line whenever a job has finished."""
    from rich.console import Group

    from internalize.control.bars import Bars
    from internalize.control.board import troubles
    from internalize.control.progress import line, progress

    boards = _boards(study, arms, set, steps_per_job, profile, prefix, store, every)
    _show(boards, lambda board: Group(Bars(progress(board)), troubles(board)), lambda board: line(progress(board)))


def _boards(
    study: str | None,
    arms: str | None,
    set: list[str] | None,
    steps: int | None,
    profile: str,
    prefix: str | None,
    store: Path,
    every: float,
) -> Iterator[Board]:
    """The board again and again, until nothing runs."""
    import time

    from internalize.control.status import look
    from internalize.store import Store

    while True:
        # receipts may have appeared that cut an arm short: the plan is made anew
        plan, driver = plan_and_driver(study, arms, set, steps, profile)
        board = look(plan, Store(store), Path(), prefix or prefix_of(driver))
        yield board
        if not board.live:
            return
        time.sleep(every)


def _console() -> Console:
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def _show(
    boards: Iterable[Board], render: Callable[[Board], RenderableType], line: Callable[[Board], str | None]
) -> None:
    """Boards in place on a terminal. Elsewhere the line of each, where it is a new one, or the whole board if None."""
    from rich.live import Live

    console, said = _console(), ""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            for board in boards:
                live.update(render(board), refresh=True)
        return
    for board in boards:
        new = line(board)
        if new is None:
            console.print(render(board), soft_wrap=False)
        elif new != said:
            typer.echo(new)
            said = new
