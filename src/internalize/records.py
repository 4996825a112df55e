"""Record schemas: one pydantic model a file kind, unknown keys refused (DESIGN section 4).

Invariant: what a stage writes validates against these models; tests check real files, the hot path does not pay for it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

STRICT = ConfigDict(extra="forbid")


class ToolArguments(BaseModel):
    """Arguments of one tool call, as the model gave them."""

    model_config = STRICT
    action: str | None = None
    x: int | None = None
    y: int | None = None


class ActionSpecRow(BaseModel):
    """One action that the game offers."""

    model_config = STRICT
    action_type: str
    requires_coordinates: bool


class ToolResult(BaseModel):
    """What the game answered; the keys are those of the published record."""

    model_config = STRICT
    actions: list[ActionSpecRow]
    actions_left: int
    cells_changed: int
    change_kinds: dict[str, int]
    changed_cells: list[list[int]]
    changed_omitted: int
    decisions: int
    done: bool
    observation: str
    state: str


class JournalRow(BaseModel):
    """One line of `journal.jsonl`: one tool call."""

    model_config = STRICT
    tool: Literal["look", "act", "status"]
    arguments: ToolArguments
    result: ToolResult


class RowProvenance(BaseModel):
    """Where an SFT row comes from and which knowledge it states."""

    model_config = STRICT
    episode: str | None = None
    turns: int = 1
    atoms: list[str] = Field(default_factory=list)


class SftRow(BaseModel):
    """One pre-tokenised SFT row; all lists have `len(tokens)`; index 0 is never trained."""

    model_config = STRICT
    tokens: list[int]
    weights: list[float]
    """Weight of predicting each token; 0 = not trained."""
    cite: list[int]
    """1 where the arm's cite weight multiplies the weight (inserted knowledge)."""
    source: str
    provenance: RowProvenance


class MetricRow(BaseModel):
    """One flat row of `metrics.jsonl`; every further key is a number, a flag, a short text or null."""

    model_config = ConfigDict(extra="allow")
    step: int
    phase: Literal["base", "sft", "rl", "joint"]
    kind: Literal["rollout", "train", "perf", "eval", "probe", "guard"]

    def numbers(self) -> dict[str, Any]:
        """The extra keys."""
        return dict(self.__pydantic_extra__ or {})
