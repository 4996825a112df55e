"""A side of a gate: many episodes of one policy on levels 1-4, summed up with a Wilson interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from internalize.engine.protocol import Engine, SamplingParams
from internalize.games.protocol import Game
from internalize.harness.episode import Episode
from internalize.harness.inprocess import play
from internalize.language.dialogue import Dialogue
from internalize.proportion import wilson
from internalize.rollout.plans import Band, single_plans


@dataclass(frozen=True)
class Limits:
    """How a gate samples: as the study's rollouts do where they say so, else as the bundled game needs it."""

    temperature: float = 1.0
    max_new_tokens: int = 32
    max_context: int = 512

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Limits:
        """From a stage's spec: `rollout` and `max_context`."""
        return cls(**spec.get("rollout", {}), **({"max_context": spec["max_context"]} if "max_context" in spec else {}))


BUNDLED = Limits()


@dataclass(frozen=True)
class Side:
    """Outcome of one policy: clears and shaped returns of its valid episodes, by level."""

    episodes: list[Episode] = field(repr=False)

    @property
    def clears(self) -> int:
        """Episodes that cleared their level."""
        return sum(e.outcome.cleared for e in self.episodes)

    @property
    def share(self) -> float:
        """Share of the episodes that cleared."""
        return self.clears / len(self.episodes)

    @property
    def mean_return(self) -> float:
        """Mean shaped return."""
        return sum(e.returned for e in self.episodes) / len(self.episodes)

    @property
    def standard_error(self) -> float:
        """Standard error of the mean return over episodes."""
        n = len(self.episodes)
        if n < 2:
            return 0.0
        return math.sqrt(sum((e.returned - self.mean_return) ** 2 for e in self.episodes) / (n - 1) / n)

    def describe(self) -> str:
        """Clears with their interval, for messages: `377/384 = 98.2 % (96.3 .. 99.1)`."""
        low, high = wilson(self.clears, len(self.episodes))
        return f"{self.clears}/{len(self.episodes)} = {self.share:.1%} ({low:.1%} .. {high:.1%})"

    def summary(self) -> dict[str, Any]:
        """Flat figures, rounded to six places so that they print short."""
        low, high = wilson(self.clears, len(self.episodes))
        levels = sorted({e.plan.level for e in self.episodes})
        by_level = {}
        for level in levels:
            there = [e for e in self.episodes if e.plan.level == level]
            by_level[f"level{level}_clear_rate"] = round(sum(e.outcome.cleared for e in there) / len(there), 6)
        return {
            "episodes": len(self.episodes),
            "clears": self.clears,
            "clear_rate": round(self.share, 6),
            "wilson_low": round(low, 6),
            "wilson_high": round(high, 6),
            "return_mean": round(self.mean_return, 6),
            "return_sem": round(self.standard_error, 6),
            **by_level,
        }


def pooled(sides: Sequence[Side]) -> Side:
    """The episodes of several sides as one."""
    return Side([episode for side in sides for episode in side.episodes])


def play_side(
    engine: Engine,
    game: Game,
    template: Dialogue,
    *,
    band: Band,
    episodes: int,
    seed: int,
    key: tuple[int | str, ...],
    facts: Sequence[str] | None,
    limits: Limits = BUNDLED,
) -> Side:
    """Play `episodes` episodes over the game's training levels in turn, all with `facts` (or none) in the
    prompt.

    Args:
        band, seed: of the levels: sides with equal ones play the same levels.
        key: names the side; every sampled token depends on it.
    """
    plans = single_plans(band, seed, episodes, game.training_levels, str(key[-1]))
    sampling = SamplingParams(limits.temperature, limits.max_new_tokens, (template.stop_id,))
    played = play(
        engine,
        game,
        template,
        plans,
        sampling=sampling,
        seed_key=key,
        knowledge=facts,
        max_context=limits.max_context,
    )
    return Side([episode for episode in played if episode.valid])
