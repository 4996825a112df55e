"""Experiments: how a claim is put to the test, as data.

Invariant: a step supports a claim only if the claim is applicable (`given` holds), comes true, and tells
itself apart from its null hypothesis; `judge` is the one place that decides this, for trials and for replays
alike.

An experiment is read in this order: a level whose first state satisfies `start`; some random acts; a walk by
legal acts into the precondition `pre`; the acts of `setup`; a look (before); the acts of `do`; a look
(after); `given`, `expect`.
"""

from __future__ import annotations

from enum import Enum
from itertools import islice, product
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from internalize.files import canonical_json
from internalize.knowledge.ops import Condition, Eq, Expect, Null, Op, Otherwise, Probes, Unchanged

STRICT = ConfigDict(extra="forbid", frozen=True)

#: At most so many ways to fill the `one_of` steps are tried in one state.
MAX_CHOICES = 12


class OneOf(BaseModel):
    """A step that is any one of these calls."""

    model_config = STRICT
    one_of: list[str] = Field(min_length=1)


Step: TypeAlias = str | OneOf


class Experiment(BaseModel):
    """The test of one claim. Calls are call words of the game."""

    model_config = STRICT
    start: list[Condition] = Field(default_factory=list)
    """Conditions on the first state of the level; seeds are tried until they hold."""
    random_actions: tuple[int, int] = (0, 3)
    """Fewest and most random acts before the walk."""
    pre: list[Condition] = Field(default_factory=list)
    """Precondition, reached by at most `max_walk` legal acts."""
    max_walk: int = Field(default=4, ge=0)
    setup: list[str] = Field(default_factory=list)
    """Acts after the precondition holds and before the first look."""
    do: list[Step] = Field(default_factory=list)
    """The acts that the claim is about; none for a claim about a state."""
    given: list[Expect] = Field(default_factory=list)
    """What must be true of the step for the claim to say anything about it."""
    expect: list[Expect] = Field(min_length=1)
    null: list[Null] = Field(min_length=1)
    """What would happen if the claim were not so."""
    effort: int = Field(default=1, ge=1)
    """Multiples of the usual number of trials."""

    def reads(self) -> set[str]:
        """Probes that the experiment looks at."""
        ops: list[Op] = [*self.start, *self.pre, *self.given, *self.expect, *self.null]
        return set().union(*(op.reads() for op in ops))

    def calls(self) -> set[str]:
        """Every call word it can use in `setup` and `do`."""
        options = [step.one_of if isinstance(step, OneOf) else [step] for step in self.do]
        return set(self.setup).union(*options)

    def choices(self) -> list[tuple[str, ...]]:
        """The ways to fill the `one_of` steps of `do`, in a fixed order, at most `MAX_CHOICES`."""
        options = [step.one_of if isinstance(step, OneOf) else [step] for step in self.do]
        return list(islice(product(*options), MAX_CHOICES))

    def canonical(self) -> dict[str, Any]:
        """The parts that decide what is claimed, in an order that does not depend on how it was written
        down."""
        data = self.model_dump(mode="json", exclude={"effort", "max_walk", "random_actions"})
        for name in ("start", "pre", "given", "expect", "null"):
            data[name] = sorted(data[name], key=canonical_json)
        return data


class Judgement(Enum):
    """What one step says about a claim."""

    INAPPLICABLE = "inapplicable"
    NONDISCRIMINATING = "nondiscriminating"
    HELD = "held"
    FAILED = "failed"


def satisfied(conditions: list[Condition], probes: Probes) -> bool:
    """Whether all conditions are true of a state."""
    return all(condition.holds(probes, probes) for condition in conditions)


def distance(conditions: list[Condition], probes: Probes) -> float:
    """Mean distance of a state from the conditions; 0 exactly if all are true."""
    if not conditions:
        return 0.0
    return sum(condition.distance(probes) for condition in conditions) / len(conditions)


def null_outcome(null: list[Null], before: Probes, after: Probes) -> Probes | None:
    """The probes after the step if the null hypothesis were true; None if it only says "not the claim"."""
    outcome = dict(after)
    for op in null:
        if isinstance(op, Otherwise):
            return None
        if isinstance(op, Unchanged):
            outcome[op.probe] = before[op.probe]
        if isinstance(op, Eq):
            outcome[op.probe] = op.value
    return outcome


def judge(test: Experiment, before: Probes, after: Probes) -> Judgement:
    """Whether a step counts, and for which side.

    A claim that fails has failed, whatever the null hypothesis says. A claim that held is supported only if
    the null hypothesis predicts an outcome that would have broken it; otherwise it may have held by
    coincidence.
    """
    if not all(op.holds(before, after) for op in test.given):
        return Judgement.INAPPLICABLE
    if not all(op.holds(before, after) for op in test.expect):
        return Judgement.FAILED
    predicted = null_outcome(test.null, before, after)
    if predicted is not None and all(op.holds(before, predicted) for op in test.expect):
        return Judgement.NONDISCRIMINATING
    return Judgement.HELD
