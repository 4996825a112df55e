"""How far a study is: one bar for all of it and one for each arm.

Invariant: a bar counts what the store holds, so that bars of a new look never show less than before unless something
was forgotten; what is left is priced by the cost model.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from internalize.control.status import DONE, FAILED, RUNNING, STOPPED, WAITING, Board, Row
from internalize.costs.table import span


@dataclass(frozen=True)
class Bar:
    """One bar."""

    name: str
    done: int
    of: int
    unit: str
    left: str
    """Time left, in words; empty when nothing is."""
    state: str
    """`done`, `running`, `failed`, `stopped` or `waiting`."""
    doing: list[str] = field(default_factory=list)
    """What runs of it now."""


@dataclass(frozen=True)
class Progress:
    """The bars of a study."""

    study: str
    whole: Bar
    arms: list[Bar]
    others: list[str]
    """Jobs that run and belong to no arm."""


def progress(board: Board) -> Progress:
    """The bars of a board."""
    done, jobs = board.total
    state = FAILED if board.failures else DONE if done == jobs else RUNNING if board.live else WAITING
    whole = Bar("all jobs", done, jobs, "jobs", _left(board.eta_s), state)
    names = list(dict.fromkeys(row.arm for row in board.rows))
    others = [one.what.replace("results/receipts/", "").removesuffix(".json") for one in board.others]
    return Progress(board.study, whole, [_arm(name, board) for name in names], others)


def line(shown: Progress) -> str:
    """The state in one line, without control characters: equal as long as no job finishes."""
    failed = [bar.name for bar in shown.arms if bar.state == FAILED]
    said = f"{shown.study}: {shown.whole.done}/{shown.whole.of} jobs done"
    return said + (f", failed: {' '.join(failed)}" if failed else "")


def _arm(name: str, board: Board) -> Bar:
    rows = [row for row in board.rows if row.arm == name]
    states = [state for row in rows for _, state in row.steps]
    done = sum(state in (DONE, STOPPED) for state in states)
    beats = {(beat.seed, beat.step): str(beat) for beat in board.beats if beat.arm == name}
    doing = [beats.get((row.seed, step), f"seed {row.seed} step {step}") for row in rows for step in _running(row)]
    doing += [f"seed {row.seed} evals" for row in rows if row.evals == RUNNING]
    doing += [f"seed {row.seed} {row.note}" for row in rows if row.note]
    left = max((row.left_s for row in rows), default=0.0)
    return Bar(name, done, len(states), "steps", _left(left), _state(states, rows), doing)


def _running(row: Row) -> list[int]:
    """Numbers of the steps that run."""
    return [row.first + at for at, (_, state) in enumerate(row.steps) if state == RUNNING]


def _state(states: list[str], rows: list[Row]) -> str:
    if FAILED in states:
        return FAILED
    if RUNNING in (*states, *(row.evals for row in rows)):
        return RUNNING
    if all(row.evals == DONE for row in rows) and all(state in (DONE, STOPPED) for state in states):
        return STOPPED if STOPPED in states else DONE
    return WAITING


def _left(seconds: float) -> str:
    return f"about {span(seconds)} left" if seconds else ""
