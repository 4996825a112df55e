from __future__ import annotations

from collections.abc import Sequence

import pytest

from internalize.errors import UserError
from internalize.games.shaping import Outcome
from internalize.harness.counted import invalid_metrics, invalid_reasons, need_one
from internalize.harness.episode import Episode, EpisodePlan

OUTCOME = Outcome(False, False, False, 1, 0, 0, 8, 0.0, 0.0)


def _episodes(reasons: Sequence[str | None]) -> list[Episode]:
    return [
        Episode(EpisodePlan(f"e{i}", 1, i, i, 0), [], [], OUTCOME, {}, 0.0, reason is None, reason)
        for i, reason in enumerate(reasons)
    ]


def test_reasons_are_counted() -> None:
    episodes = _episodes([None, "timeout", "agent_killed", "timeout"])
    assert invalid_reasons(episodes) == {"agent_killed": 1, "timeout": 2}
    assert invalid_metrics(episodes) == {"invalid_because_agent_killed": 1, "invalid_because_timeout": 2}
    assert invalid_reasons(_episodes([None])) == {}


@pytest.mark.parametrize("reasons", [["timeout", None], ["loop_guard"], ["context", "timeout"], []])
def test_a_rollout_with_an_episode_or_a_policy_to_blame_is_a_result(reasons: list[str | None]) -> None:
    need_one(_episodes(reasons), "here")


def test_a_rollout_that_only_failed_is_an_error() -> None:
    with pytest.raises(UserError, match="no episode counts") as caught:
        need_one(_episodes(["timeout", "mcp_not_connected", "timeout"]), "rollout of step 3")
    assert "mcp_not_connected: 1, timeout: 2" in str(caught.value)
    assert "rollout of step 3" in str(caught.value)
