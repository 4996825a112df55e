"""The shaped return of an episode, as named components.

Invariant: the components sum to `return`, and an episode that ended early (trap, text answer) never returns
more than the same play continued to the end of the budget, by any legal acts that lose no progress. The
weights are set once, before any arm is run, and published as `shaping.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

from internalize.files import write_json


class ShapingWeights(BaseModel):
    """Weights of the shaped return; all are sizes, the signs are in `shaped_return`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    clear: float = Field(1.0, ge=0)
    """Reward of a cleared level."""
    progress: float = Field(0.4, ge=0)
    """Reward of full progress on a level that was not cleared: times (progress - progress0) / (1 -
    progress0)."""
    act: float = Field(0.01, ge=0)
    """Cost of every act of the budget that was used, unusable replies included."""
    noop: float = Field(0.02, ge=0)
    """Cost of an act that changed nothing (a look is one)."""
    trap: float = Field(0.25, ge=0)
    """Cost of dying."""
    invalid: float = Field(0.02, ge=0)
    """Cost of a refused call or an unusable reply."""
    text_end: float = Field(0.02, ge=0)
    """Cost of ending the episode with a text answer."""

    @model_validator(mode="after")
    def _ordered(self) -> ShapingWeights:
        if self.clear < self.progress:
            raise ValueError(f"clear ({self.clear}) must not be less than progress ({self.progress})")
        if self.trap < max(self.noop, self.invalid):
            raise ValueError(f"trap ({self.trap}) must not be less than noop ({self.noop}) or invalid ({self.invalid})")
        return self

    @property
    def forfeit(self) -> float:
        """Cost of each act left unspent by dying or by a text answer: that of the worst act, a wasted one.

        With less than that, giving up would beat a harmless act, and an arm that collapses into text answers
        would look better than one that plays.
        """
        return self.act + max(self.noop, self.invalid)


DEFAULT_WEIGHTS = ShapingWeights()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an episode ended. Progress is a share of the goal in 0 .. 1, at the start (`progress0`) and at the
    end.

    `acts` counts all spent acts, of which `noops` changed nothing; `invalid` counts refused calls and
    unusable replies.
    """

    cleared: bool
    dead: bool
    text_end: bool
    acts: int
    noops: int
    invalid: int
    budget: int
    progress0: float
    progress: float


def shaped_return(outcome: Outcome, weights: ShapingWeights = DEFAULT_WEIGHTS) -> dict[str, float]:
    """Components `clear progress acts noops trap invalid text_end forfeit` and their sum, `return`."""
    gained = 0.0
    if not outcome.cleared:
        gained = (outcome.progress - outcome.progress0) / (1.0 - outcome.progress0)
    early = (outcome.dead or outcome.text_end) and not outcome.cleared
    components = {
        "clear": weights.clear * outcome.cleared,
        "progress": weights.progress * gained,
        "acts": -weights.act * outcome.acts,
        "noops": -weights.noop * outcome.noops,
        "trap": -weights.trap * outcome.dead,
        "invalid": -weights.invalid * outcome.invalid,
        "text_end": -weights.text_end * outcome.text_end,
        "forfeit": -weights.forfeit * (outcome.budget - outcome.acts) if early else 0.0,
    }
    return {**components, "return": sum(components.values())}


def write_shaping(path: Path, weights: ShapingWeights = DEFAULT_WEIGHTS) -> None:
    """Write `shaping.json`: the weights and the derived `forfeit`."""
    write_json(path, {**weights.model_dump(), "forfeit": weights.forfeit})
