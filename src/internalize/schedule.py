"""Which phase each step of an arm is: one pure function that workflow, trainer, report and cost plan share.

Invariant: the phases of the first n steps do not depend on how many steps follow, so an arm can be lengthened
without recomputing what it has.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from internalize.study_arms import Arm, NoSft, SftFirst, SftFreq, SftInterleaved, SftJoint

Phase = Literal["sft", "rl", "joint"]


def phases(arm: Arm) -> list[Phase]:
    """The phase of each step: those of the arm that it continues, then `arm.steps` of its own."""
    return [*arm.inherited, *own_phases(arm)]


def own_steps(arm: Arm) -> range:
    """The numbers of the arm's own steps; those before them belong to the arm that it continues."""
    before = len(arm.inherited)
    return range(before, before + arm.steps)


def own_phases(arm: Arm) -> list[Phase]:
    """The phases of the arm's own steps; its schedule counts from the first of them."""
    return [phase_at(arm.schedule, step) for step in range(arm.steps)]


def phase_at(schedule: NoSft | SftFirst | SftInterleaved | SftFreq | SftJoint, step: int) -> Phase:
    """The phase of one step (from 0)."""
    match schedule:
        case NoSft():
            return "rl"
        case SftFirst(steps=count):
            return "sft" if step < count else "rl"
        case SftInterleaved(every=every):
            return "sft" if step % (every + 1) == 0 else "rl"
        case SftFreq(sft=count, of=block, warmup=warmup):
            return "sft" if step < warmup or (step - warmup) % block < count else "rl"
        case SftJoint(warmup=warmup):
            return "sft" if step < warmup else "joint"


def resets(order: Sequence[Phase], frozen_adam: bool = False) -> list[bool]:
    """Per step: are Adam's moments cleared before it? At a change from SFT to RL or joint, unless frozen."""
    changes = [False, *(before == "sft" and after != "sft" for before, after in pairwise(order))]
    return [change and not frozen_adam for change in changes[: len(order)]]


def rollouts(order: Sequence[Phase]) -> list[int | None]:
    """Per step: which of the arm's RL rollouts it plays, from 0; None for an SFT step, which plays none."""
    count = itertools.count()
    return [None if phase == "sft" else next(count) for phase in order]


def cite_weights(arm: Arm) -> list[float]:
    """Per step: the factor on inserted knowledge tokens; 1 where the step reads no rows or is not the arm's own."""
    before, order = [1.0] * len(arm.inherited), own_phases(arm)
    if not isinstance(arm.cite_weight, list):
        return [*before, *(arm.cite_weight if phase != "rl" else 1.0 for phase in order)]
    weights = iter(arm.cite_weight)
    return [*before, *(next(weights) if phase != "rl" else 1.0 for phase in order)]
