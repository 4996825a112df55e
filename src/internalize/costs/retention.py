"""Which steps of an arm keep their checkpoint, for the plan.

Invariant: without a policy every step is kept; the last step always is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def kept(steps: Sequence[int], policy: Any, published: Sequence[int] = ()) -> set[int]:
    """Steps whose checkpoint stays under `policy`.

    Args:
        steps: steps of one arm and seed, ascending.
        policy: the study's `retention`, which says of a step why it is kept (`kept(step, steps, published)`); None
            keeps all.
        published: steps that become model folders.
    """
    if policy is None:
        return set(steps)
    return {step for step in steps if policy.kept(step, steps, published)} | set(steps[-1:])
