"""Interval of a share (E. B. Wilson, JASA 1927): one definition for the gate and for the report."""

from __future__ import annotations

import math


def wilson(successes: int, trials: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Score interval of `successes / trials`, 95 % by default; (0, 1) when there was no trial.

    Raises:
        ValueError: more successes than trials, or a negative number.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials")
    if trials == 0:
        return 0.0, 1.0
    share, weight = successes / trials, z * z / trials
    centre = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(share * (1 - share) / trials + weight / (4 * trials))
    # exact at the ends, where rounding would leave 1e-18
    return 0.0 if successes == 0 else centre - half, 1.0 if successes == trials else centre + half
