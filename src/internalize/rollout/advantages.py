"""Dr.GRPO advantages: return minus the mean return of the group (arXiv 2503.20783).

Invariant: the baseline of a group is the mean over its valid *episodes*, never over their calls or tokens;
groups never mix. Left out of GRPO on purpose: no division by the standard deviation, no division by the
length of an episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from internalize.errors import UserError
from internalize.harness.episode import Episode


@dataclass(frozen=True, slots=True)
class Advantages:
    """One number an episode, in the order of the episodes."""

    values: tuple[float, ...]
    """0.0 for invalid episodes and for silent groups."""
    silent: tuple[bool, ...]
    """True where the episode teaches nothing: it is invalid, or all valid returns of its group are equal."""
    groups: int
    silent_groups: int
    """Groups without any difference between their valid episodes (or with fewer than two)."""

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, episode: int) -> float:
        return self.values[episode]


def episode_advantages(episodes: Sequence[Episode]) -> Advantages:
    """Advantage of every episode. Raises UserError when a group mixes levels or level seeds."""
    members: dict[int, list[int]] = {}
    for i, episode in enumerate(episodes):
        members.setdefault(episode.plan.group, []).append(i)
    values = [0.0] * len(episodes)
    silent = [True] * len(episodes)
    silent_groups = 0
    for group, indices in members.items():
        starts = sorted({(episodes[i].plan.level, episodes[i].plan.seed) for i in indices})
        if len(starts) > 1:
            raise UserError(
                "a group mixes different levels",
                where=f"group {group}",
                expected="one (level, seed)",
                got=str(starts),
            )
        valid = [i for i in indices if episodes[i].valid]
        returns = [episodes[i].returned for i in valid]
        if len(set(returns)) < 2:
            silent_groups += 1
            continue
        baseline = sum(returns) / len(returns)
        for i in valid:
            values[i] = episodes[i].returned - baseline
            silent[i] = False
    return Advantages(tuple(values), tuple(silent), len(members), silent_groups)
