"""Reading the outcome of one request to many processes: who answered, who failed, who is gone.

Invariant: the error that is raised names the cause: a dead process before those that only noticed its death, and what
the user can change before either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from internalize.errors import UserError
from internalize.runtime.failures import WorkerLost

GRACE_SECONDS = 10.0
"""After the first failure the others get this long to answer or to be found dead."""


@dataclass(frozen=True)
class Gone:
    """A process that ended before it answered."""

    how: str


@dataclass(frozen=True)
class Failed:
    """A process that answered with an exception which is no `UserError`: its traceback."""

    traceback: str


def results(answers: Mapping[str, Any], asked: str, last_words: str = "") -> list[Any]:
    """The answers in order, if all are there and none is a failure.

    Args:
        answers: name of a process -> its result, a `UserError`, `Failed`, `Gone`, or None while it has not answered
            (results are never None).
        asked: what they were asked, for the message.
        last_words: end of their logs.

    Raises:
        WorkerLost: a process is gone, or several wait for ever for one that failed.
        UserError: what the processes refused.
        RuntimeError: a fault in the code of a process; its traceback.
    """
    gone = {name: answer for name, answer in answers.items() if isinstance(answer, Gone)}
    if gone:
        (first, how), others = next(iter(gone.items())), list(gone)[1:]
        raise WorkerLost(
            f"{first} died during `{asked}`",
            where=first,
            expected=f"an answer from each of {', '.join(answers)}",
            got=how.how + (f"; also gone: {', '.join(others)}" if others else "") + _tail(last_words),
            fix="the step is tried again from the last commit; if it dies again, look for a lack of memory",
        )
    for answer in answers.values():
        if isinstance(answer, UserError):
            raise answer
    for name, answer in answers.items():
        if isinstance(answer, Failed):
            raise RuntimeError(f"{name} failed during `{asked}`:\n{answer.traceback}")
    silent = [name for name, answer in answers.items() if answer is None]
    if silent:
        raise WorkerLost(f"no answer to `{asked}`", where=", ".join(silent), got="silence" + _tail(last_words))
    return list(answers.values())


def _tail(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()][-3:]
    return "; last words: " + " | ".join(lines) if lines else ""
