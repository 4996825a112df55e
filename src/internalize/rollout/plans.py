"""Which episodes are played: levels, level seeds and groups.

Invariant: a plan depends on its band and key alone, never on the arm, so all arms of one seed meet the same
levels in the same order (common random numbers); and no level seed of one band equals one of another band.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from internalize.errors import UserError
from internalize.harness.episode import EpisodePlan
from internalize.seeds import derive

Band = Literal["rollout", "eval", "harvest", "gate", "softlabel", "check"]
BANDS: tuple[Band, ...] = ("rollout", "eval", "harvest", "gate", "softlabel", "check")
BAND_BITS = 48
"""The band stands above these bits: bands cannot collide, and seeds stay below 2**53, exact in every JSON
reader."""


def level_seed(band: Band, *key: int | str) -> int:
    """Seed of a level: the band's number above 48 bits derived from the key."""
    return (BANDS.index(band) << BAND_BITS) | (derive(band, *key) & ((1 << BAND_BITS) - 1))


def rollout_plans(
    rollout: int, arm_seed: int, episodes: int, group_size: int, levels: Sequence[int]
) -> list[EpisodePlan]:
    """Episodes of an arm's `rollout`-th RL rollout (from 0) in groups that share level and seed; levels take turns over
    groups and rollouts.

    Counted in rollouts, not in steps, so that arms with other numbers of SFT steps meet the same levels.

    Raises UserError unless `episodes` is a positive multiple of `group_size` and there is a level.
    """
    if group_size < 1 or episodes < 1 or episodes % group_size or not levels:
        raise UserError(
            "a rollout must be whole groups",
            where="rollout",
            expected="episodes a positive multiple of group_size, at least one level",
            got=f"episodes {episodes}, group_size {group_size}, levels {list(levels)}",
        )
    groups = episodes // group_size
    return [
        EpisodePlan(
            id=f"r{rollout:04d}-g{group:03d}-{index}",
            level=levels[(rollout * groups + group) % len(levels)],
            seed=level_seed("rollout", arm_seed, rollout, group),
            group=group,
            index=index,
        )
        for group in range(groups)
        for index in range(group_size)
    ]


def single_plans(band: Band, seed: int, episodes: int, levels: Sequence[int], label: str = "") -> list[EpisodePlan]:
    """Ungrouped episodes (evals, harvests, gates): each its own group of one, levels in turn.

    `label` opens the episode ids; it does not change levels or seeds.
    """
    if episodes < 1 or not levels:
        raise UserError(
            "nothing to play",
            where=band,
            expected="at least one episode and level",
            got=f"{episodes}, {list(levels)}",
        )
    return [
        EpisodePlan(
            id=f"{label or band}-{i:04d}",
            level=levels[i % len(levels)],
            seed=level_seed(band, seed, i),
            group=i,
            index=0,
        )
        for i in range(episodes)
    ]
