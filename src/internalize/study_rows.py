"""Row sources of the study file: one class a `type`, each with only the settings that its builder reads.

Invariant: a row set names what it is made from (`harvest`, `of`) by the name it has in the same study file.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from internalize.study_model import Count, Levels, Name, Settings


class Declarative(Settings):
    """One question a fact, answered from the knowledge set; no play in it."""

    type: Literal["declarative"]
    ending: Literal["text", "tool_call"] = "text"
    """`text`: the answer ends the conversation; `tool_call`: a game call follows the answer."""
    wording: Literal["think", "other"] = "think"
    """`think`: facts are worded as thinks word them; `other`: the same facts in other tokens."""


class Claims(Settings):
    """Questions about the verified atoms (claim QA), answered in text."""

    type: Literal["claims"]
    limit: Count | None = None
    """Questions at most, drawn evenly over the atoms; null: one for each form."""

    @model_serializer(mode="wrap")
    def _default_left_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        if self.limit is None:
            del written["limit"]
        return written


class ClaimForm(Settings):
    """Claims in the recall forms of the knowledge set, with its mutated claims as the false ones."""

    type: Literal["claimform"]


class Recite(Settings):
    """Teacher turns written with the knowledge in the prompt; the rows leave it out of the prompt (IDD)."""

    type: Literal["recite"]
    harvest: Name = "teacher"
    """Harvest whose policy is the teacher."""


class ActControl(Settings):
    """The base's own turns, no knowledge anywhere: the control for training on play as such."""

    type: Literal["actctrl"]
    harvest: Name = "own"
    """Harvest whose policy is the base."""


class Replay(Settings):
    """Turns replayed as they were, prompt included."""

    type: Literal["replay"]
    harvest: Name = "own"
    """Harvest that is replayed."""


class ArmC(Settings):
    """The base's own turns with true facts inserted at the top of thinks; the cite weight falls on these."""

    type: Literal["armc"]
    harvest: Name = "own"
    """Harvest whose policy is the base."""
    facts_per_think: Annotated[int, Field(ge=1, le=9)] = 2
    """Facts inserted into each think."""
    pick: Literal["random", "relevant"] = "random"
    """Which facts: any, or those that the state calls for."""
    history: Literal["recorded", "edited"] = "recorded"
    """What stands before a trained think: the turns as recorded (one row a call), or turns with facts inserted too."""


class NoStance(Settings):
    """Teacher turns without the sentences that state a fact: the stance-stripped pair of `recite`."""

    type: Literal["nostance"]
    harvest: Name = "teacher"
    """Harvest whose policy is the teacher."""


class Curated(Settings):
    """The rows of another set whose episodes were played on some levels."""

    type: Literal["curated"]
    of: Name
    """Row set that is cut down."""
    levels: Levels
    """Levels that stay."""


class MaskKnowledge(Settings):
    """The rows of another set with the knowledge tokens taken out of the loss."""

    type: Literal["mask_knowledge"]
    of: Name
    """Row set that is masked."""


class SoftLabel(Settings):
    """Context distillation: own turns, trained towards what the model says with knowledge in its prompt."""

    type: Literal["softlabel"]
    episodes: Count = 48
    """Episodes that the policy plays in each step, to be labelled."""


Rows = Annotated[
    Declarative
    | Claims
    | ClaimForm
    | Recite
    | ActControl
    | Replay
    | ArmC
    | NoStance
    | Curated
    | MaskKnowledge
    | SoftLabel,
    Field(discriminator="type"),
]
"""Any row source."""


def harvest_of(rows: Settings) -> str | None:
    """The harvest that a row source reads, if it reads one."""
    return getattr(rows, "harvest", None)


def parent_of(rows: Settings) -> str | None:
    """The row set that a row source is cut from, if it is cut from one."""
    return getattr(rows, "of", None)
