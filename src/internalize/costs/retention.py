"""Which steps of an arm keep their checkpoint, for the plan.

Invariant: without a policy every step is kept; the last step always is.
"""

from __future__ import annotations

from typing import Any


def kept(steps: int, policy: Any) -> set[int]:
    """Steps of an arm of `steps` steps whose checkpoint stays under `policy`.

    Args:
        steps: steps of the arm.
        policy: the study's `retention` with `keep_last`, `keep_every` and `keep_published`; None keeps all.
    """
    if policy is None:
        return set(range(steps))
    last, every = getattr(policy, "keep_last", None), getattr(policy, "keep_every", None)
    if last is None and every is None:
        return set(range(steps))
    stays = set(range(max(0, steps - (last or 1)), steps))
    if every:
        stays |= {step for step in range(steps) if (step + 1) % every == 0}
    return stays
