"""How many episodes of a rollout do not count, and why.

Invariant: a rollout of which nothing counts because agents, servers or engines failed is an error, never a result. An
episode can also end as invalid by what the policy did (it filled its context, it repeated itself until the agent's
loop guard stepped in): a rollout of such episodes is a result, about a policy that no longer plays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from internalize.errors import UserError
from internalize.harness.episode import Episode
from internalize.harness.inprocess import CONTEXT

LOOP_GUARD = "loop_guard"
"""The agent's own guard ended the episode after equal calls."""
INVALID_BECAUSE = "invalid_because_"
"""How metrics of reasons begin."""
BY_THE_POLICY = frozenset({CONTEXT, LOOP_GUARD})


def invalid_reasons(episodes: Sequence[Episode]) -> dict[str, int]:
    """Reason -> how many episodes do not count for it; empty when all count."""
    return dict(sorted(Counter(str(e.reason) for e in episodes if not e.valid).items()))


def invalid_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """The same as flat metrics `invalid_because_<reason>`, for reasons that occur."""
    return {f"{INVALID_BECAUSE}{reason}": count for reason, count in invalid_reasons(episodes).items()}


def need_one(episodes: Sequence[Episode], where: str) -> None:
    """Raise UserError when no episode counts and something else than the policy is to blame."""
    found = invalid_reasons(episodes)
    if episodes and sum(found.values()) == len(episodes) and not BY_THE_POLICY & found.keys():
        raise UserError(
            "no episode counts",
            where=where,
            expected="at least one valid episode",
            got=", ".join(f"{reason}: {count}" for reason, count in found.items()),
            fix="`internalize harness check` plays one episode with each harness",
        )
