"""What a harness is: something that plays planned episodes with the current policy and returns their records.

Invariant: whatever agent runs the conversation, the result is the same `Episode` record, with one
`CallRecord` an LLM call in the order the engine saw them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from internalize.harness.episode import Episode, EpisodePlan


class Harness(Protocol):
    """Plays episodes."""

    @property
    def name(self) -> str:
        """`inprocess`, or the agent CLI that it drives."""
        ...

    def play(
        self,
        plans: Sequence[EpisodePlan],
        *,
        seed_key: tuple[int | str, ...],
        knowledge: Sequence[str] | None = None,
        record: Path | None = None,
    ) -> list[Episode]:
        """Play all plans, in any order, and return their episodes in the order of `plans`.

        Args:
            plans: ids must differ.
            seed_key: names this rollout; call k of an episode samples from `seed_key + (episode id, k)`
                alone.
            knowledge: facts put in front of the first user turn, in an order of its own for each episode.
            record: folder in which an agent leaves one folder an episode (`harness.cli_episode`); what is
                played in process has nothing to leave there.
        """
        ...
