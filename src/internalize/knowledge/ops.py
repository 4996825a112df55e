"""Operations of the claim language: what may be said about one state, or about a step from one state to the
next.

Invariant: the set of operations is closed and none of them runs code from the outside; each reads named
probes only (JSON values, see `Game.probes`), so the same claim can be checked on every game that has these
probes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from internalize.errors import UserError

Probes: TypeAlias = Mapping[str, Any]
Scalar: TypeAlias = bool | int | float | str
Value: TypeAlias = Scalar | list[Scalar]


def read(probes: Probes, name: str) -> Any:
    """The value of a probe; UserError names the probes that the game has."""
    try:
        return probes[name]
    except KeyError:
        raise UserError(
            "a claim reads a probe that the game does not have", got=name, expected=" ".join(probes)
        ) from None


def number(probes: Probes, name: str) -> float:
    """The value of a probe that must be a number; UserError otherwise."""
    value = read(probes, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError("a claim compares a probe that is not a number", got=f"{name} = {value!r}")
    return float(value)


def cells(probes: Probes, name: str) -> list[Any]:
    """The value of a probe that must be a list; UserError otherwise."""
    value = read(probes, name)
    if not isinstance(value, list):
        raise UserError("a claim looks at the cells of a probe that is not a list", got=f"{name} = {value!r}")
    return value


def pick(values: list[Any], indices: list[int]) -> list[Any]:
    """The cells at `indices`; UserError for an index outside."""
    try:
        return [values[index] for index in indices]
    except IndexError:
        raise UserError(
            "a claim names a cell that is not there", got=str(indices), expected=f"0 to {len(values) - 1}"
        ) from None


class Op(BaseModel):
    """One operation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def reads(self) -> set[str]:
        """Names of the probes it looks at."""
        names = {getattr(self, field, None) for field in ("probe", "other")}
        return {name for name in names if isinstance(name, str)}


class Judged(Op, ABC):
    """True or false of a step: `before` and `after` are the probes around it; a condition reads `after` alone."""

    @abstractmethod
    def holds(self, before: Probes, after: Probes) -> bool:
        """Whether the operation is true of the step."""

    def distance(self, probes: Probes) -> float:
        """How far a state is from satisfying a condition, 0 (it does) to 1; guides the search for a
        precondition."""
        return 0.0 if self.holds(probes, probes) else 1.0


def _mismatch(left: Any, right: Any) -> float:
    if left == right:
        return 0.0
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return float(sum(a != b for a, b in zip(left, right, strict=True)) / len(left))
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in (left, right)):
        gap = abs(left - right)
        return float(gap / (1 + gap))
    return 1.0


class Eq(Judged):
    """The probe has this value."""

    op: Literal["eq"] = "eq"
    probe: str
    value: Value

    def holds(self, before: Probes, after: Probes) -> bool:
        return bool(read(after, self.probe) == self.value)

    def distance(self, probes: Probes) -> float:
        return _mismatch(read(probes, self.probe), self.value)


class Ne(Judged):
    """The probe has another value."""

    op: Literal["ne"] = "ne"
    probe: str
    value: Value

    def holds(self, before: Probes, after: Probes) -> bool:
        return bool(read(after, self.probe) != self.value)


class Lt(Judged):
    """The probe is below the bound."""

    op: Literal["lt"] = "lt"
    probe: str
    value: float

    def holds(self, before: Probes, after: Probes) -> bool:
        return number(after, self.probe) < self.value


class Gt(Judged):
    """The probe is above the bound."""

    op: Literal["gt"] = "gt"
    probe: str
    value: float

    def holds(self, before: Probes, after: Probes) -> bool:
        return number(after, self.probe) > self.value


class In(Judged):
    """The probe has one of these values."""

    op: Literal["in"] = "in"
    probe: str
    values: list[Value]

    def holds(self, before: Probes, after: Probes) -> bool:
        return read(after, self.probe) in self.values


class Same(Judged):
    """Two probes have equal values."""

    op: Literal["same"] = "same"
    probe: str
    other: str

    def holds(self, before: Probes, after: Probes) -> bool:
        return bool(read(after, self.probe) == read(after, self.other))

    def distance(self, probes: Probes) -> float:
        return _mismatch(read(probes, self.probe), read(probes, self.other))


class Differ(Judged):
    """Two lists differ in exactly these cells."""

    op: Literal["differ"] = "differ"
    probe: str
    other: str
    cells: list[int]

    def holds(self, before: Probes, after: Probes) -> bool:
        return self.distance(after) == 0.0

    def distance(self, probes: Probes) -> float:
        left, right = cells(probes, self.probe), cells(probes, self.other)
        pick(left, self.cells)
        wrong = sum((a != b) != (index in self.cells) for index, (a, b) in enumerate(zip(left, right, strict=True)))
        return float(wrong / max(1, len(left)))


class Count(Judged):
    """So many cells of a list have a value outside `besides`."""

    op: Literal["count"] = "count"
    probe: str
    besides: list[Scalar]
    value: int

    def _count(self, probes: Probes) -> int:
        return sum(cell not in self.besides for cell in cells(probes, self.probe))

    def holds(self, before: Probes, after: Probes) -> bool:
        return self._count(after) == self.value

    def distance(self, probes: Probes) -> float:
        return _mismatch(self._count(probes), self.value)


class Distinct(Judged):
    """So many different values outside `besides` stand in a list."""

    op: Literal["distinct"] = "distinct"
    probe: str
    besides: list[Scalar]
    value: int

    def holds(self, before: Probes, after: Probes) -> bool:
        return len(set(cells(after, self.probe)) - set(self.besides)) == self.value


class Unchanged(Judged):
    """The step leaves the probe as it was."""

    op: Literal["unchanged"] = "unchanged"
    probe: str

    def holds(self, before: Probes, after: Probes) -> bool:
        return bool(read(before, self.probe) == read(after, self.probe))


class Changed(Judged):
    """The step gives the probe another value."""

    op: Literal["changed"] = "changed"
    probe: str

    def holds(self, before: Probes, after: Probes) -> bool:
        return bool(read(before, self.probe) != read(after, self.probe))


class Shift(Judged):
    """The step adds `by` to a number."""

    op: Literal["shift"] = "shift"
    probe: str
    by: float

    def holds(self, before: Probes, after: Probes) -> bool:
        return number(after, self.probe) - number(before, self.probe) == self.by


class Paints(Judged):
    """After the step these cells hold one single value that is not in `besides`; no other cell changes.

    `value` None means: whichever value it is.
    """

    op: Literal["paints"] = "paints"
    probe: str
    cells: list[int]
    value: Scalar | None = None
    besides: list[Scalar] = Field(default_factory=list)

    def holds(self, before: Probes, after: Probes) -> bool:
        old, new = cells(before, self.probe), cells(after, self.probe)
        values = pick(new, self.cells)
        if any(value != values[0] for value in values) or values[0] in self.besides:
            return False
        if self.value is not None and values[0] != self.value:
            return False
        return all(a == b for index, (a, b) in enumerate(zip(old, new, strict=True)) if index not in self.cells)


class Turns(Judged):
    """The step changes at least one cell, and every cell it changes now holds `value`."""

    op: Literal["turns"] = "turns"
    probe: str
    value: Scalar

    def holds(self, before: Probes, after: Probes) -> bool:
        old, new = cells(before, self.probe), cells(after, self.probe)
        changed = [b for a, b in zip(old, new, strict=True) if a != b]
        return bool(changed) and all(cell == self.value for cell in changed)


class Not(Judged):
    """The operation inside is false."""

    op: Literal["not"] = "not"
    of: Expect

    def holds(self, before: Probes, after: Probes) -> bool:
        return not self.of.holds(before, after)

    def reads(self) -> set[str]:
        return self.of.reads()


class Otherwise(Op):
    """Null hypothesis only: anything but the claim. Every applicable trial then tells claim and null
    apart."""

    op: Literal["otherwise"] = "otherwise"


#: True of one state.
Condition = Annotated[Eq | Ne | Lt | Gt | In | Same | Differ | Count | Distinct, Field(discriminator="op")]

#: True of a step; a condition speaks of the state after it.
Expect = Annotated[
    Eq | Ne | Lt | Gt | In | Same | Differ | Count | Distinct | Unchanged | Changed | Shift | Paints | Turns | Not,
    Field(discriminator="op"),
]

#: What the null hypothesis predicts: probes that stay, probes that get a value, or nothing but "not the
#: claim".
Null = Annotated[Unchanged | Eq | Otherwise, Field(discriminator="op")]

Not.model_rebuild()
