"""Errors that a user can act on: each says what is wrong, where, what was expected, what was found and what to do.

Invariant: a `UserError` is shown as text, never as a traceback (the CLI catches it at the top).
"""

from __future__ import annotations


class UserError(Exception):
    """A problem in the user's input or environment.

    Args:
        what: one sentence naming the problem.
        where: file and key, or path, that it concerns.
        expected: what would have been right.
        got: what was found instead.
        fix: the next thing to do.
    """

    title = "error"

    def __init__(self, what: str, *, where: str = "", expected: str = "", got: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.expected = expected
        self.got = got
        self.fix = fix

    def __reduce__(self) -> tuple[object, ...]:
        """Whole, whatever a subclass's constructor takes: pickle adds the attributes to the bare error."""
        return (_bare, (type(self), self.args), self.__dict__)

    def __str__(self) -> str:
        lines = [f"{self.title}: {self.what}"]
        for label, text in (
            ("where", self.where),
            ("expected", self.expected),
            ("got", self.got),
            ("fix", self.fix),
        ):
            if text:
                lines.append(f"  {label + ':':<10}{text}")
        return "\n".join(lines)


def _bare(kind: type[UserError], args: tuple[object, ...]) -> UserError:
    return kind.__new__(kind, *args)


class StudyError(UserError):
    """The study file says something impossible or unknown."""

    title = "study error"


class CorruptPayload(UserError):
    """Bytes on disk differ from the hash that their receipt records."""

    title = "corrupt payload"


class MissingPayload(UserError):
    """A receipt names a payload that is no longer there."""

    title = "missing payload"


class ProcessLost(UserError):
    """A process that the work at hand needs is gone: all of it is lost, not the part that met the loss."""


class LeaseHeld(UserError):
    """Another live process is writing the same store entry."""

    title = "lease held"


class GateFailed(UserError):
    """A measured quantity misses the bound that the study states for it."""

    title = "gate failed"
