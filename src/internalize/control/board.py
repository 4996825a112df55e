"""The board of `internalize status` as text in colours.

Invariant: colour says the phase and the sign says the state, so that the board reads without colours too.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from internalize.control.status import DONE, FAILED, QUEUED, RUNNING, STOPPED, WAITING, Board, Row
from internalize.costs.table import span

COLOURS = {"sft": "dodger_blue1", "rl": "green3", "joint": "medium_orchid"}
SIGNS = {DONE: "■", STOPPED: "x", RUNNING: "▶", QUEUED: "◌", FAILED: "!", WAITING: "·"}
EVALS = {DONE: "done", RUNNING: "running", QUEUED: "queued", WAITING: ""}
SHOWN_FAILURES = 3
STEPS_A_LINE = 40


def render(board: Board) -> RenderableType:
    """The whole board."""
    table = Table(title=f"study {board.study}", title_justify="left", box=None, pad_edge=False)
    for name in ("arm", "seed", "steps", "done", "evals", "job", "left", ""):
        table.add_column(name, no_wrap=name != "", justify="right" if name in ("seed", "done", "left") else "left")
    for row in board.rows:
        table.add_row(*_cells(row))
    parts: list[RenderableType] = [table, _legend(board)]
    stages = ", ".join(f"{name} {done}/{jobs}" for name, (done, jobs) in board.stages.items())
    parts.append(Text(f"other jobs: {stages}"))
    parts.append(Text(_driver_line(board)))
    for job in board.jobs:
        used = f"{job.used} used, {job.left} left" if job.state != "PENDING" else job.reason
        parts.append(Text(f"  slurm {job.id} {job.state} {job.what}: {used}"))
    return Group(*parts, troubles(board))


def troubles(board: Board) -> RenderableType:
    """What could not be seen, and the last errors with the ends of their logs."""
    parts: list[RenderableType] = []
    if board.warning:
        parts.append(Text(board.warning, style="yellow"))
    for failure in board.failures[-SHOWN_FAILURES:]:
        where = f" (job {failure.job_id})" if failure.job_id else ""
        parts.append(Text(f"failed: {failure.rule}{where}, log {failure.log}", style="red"))
        parts += [Text(f"    {line}") for line in failure.lines]
    if len(board.failures) > SHOWN_FAILURES:
        parts.append(Text(f"and {len(board.failures) - SHOWN_FAILURES} failures before these"))
    return Group(*parts)


def _cells(row: Row) -> tuple[str | Text, ...]:
    steps = Text()
    for at, (phase, state) in enumerate(row.steps):
        if at and at % STEPS_A_LINE == 0:
            steps.append("\n")
        steps.append(SIGNS[state], style="bold red" if state in (FAILED, STOPPED) else COLOURS[phase])
    done = sum(state in (DONE, STOPPED) for _, state in row.steps)
    return (
        row.arm,
        str(row.seed),
        steps,
        f"{done}/{len(row.steps)}",
        EVALS[row.evals],
        " ".join(row.jobs),
        span(row.left_s),
        row.note,
    )


def _legend(board: Board) -> Text:
    text = Text()
    for phase in board.phases:
        text.append(f"{phase} ", style=COLOURS[phase])
    for state, sign in SIGNS.items():
        text.append(f" {sign} {state}", style="dim")
    return text


def _driver_line(board: Board) -> str:
    left = f"about {span(board.left_s)} left along the longest chain" if board.left_s else "nothing left to do"
    if board.drivers:
        return f"snakemake runs (pid {', '.join(str(one.pid) for one in board.drivers)}); {left}"
    return f"no snakemake runs here on this machine; {left}"
