"""The base model of the study file: the tiny one that the DAG makes, or one from the hub.

Invariant: a base from the hub is named by repository and revision; a study without a revision can be planned, but its
base is not fetched, so what was trained on is always known.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from internalize.base.recipe import Recipe
from internalize.study_model import Count, Seed, Settings, Share


class Gate(Settings):
    """Bounds that the base must meet on held-out rules before any arm is trained."""

    teacher_clears_min: Share = 0.9
    """Least share of levels cleared with the knowledge in the prompt."""
    base_clears_max: Share = 0.1
    """Greatest share cleared without it."""
    wrong_rules_clears_max: Share = 0.1
    """Greatest share cleared with another rule set in the prompt."""
    episodes: Count = 384
    """Episodes a side."""
    seed: Seed = 7
    """Their seed."""


class Base(Settings):
    """The base model."""

    prebuilt: str | None = None
    """Folder of a prebuilt base (relative to the study file's repository), or null to meta-train one."""
    recipe: Recipe = Recipe()
    """Meta-training, when there is no prebuilt base for this game."""
    gate: Gate = Gate()
    """Bounds."""


class HubBase(Settings):
    """A base model from the Hugging Face hub."""

    type: Literal["hub"]
    repo: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$")]
    """Repository."""
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    """Commit; null: not stated yet, and then the base is not fetched."""
    parameters: Count
    """Parameters, for plans of disk and time."""
    folder: str | None = None
    """Model folder that is here already, for machines without the hub; null: the hub's files are fetched."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Digest of the table of files, as the receipt of the base states it; other files are refused. Null: not pinned,
    which a `folder` may not be."""
    gate: Gate = Gate()
    """Bounds."""

    def identity(self) -> dict[str, Any]:
        """What the fetched files depend on, and where they are looked for."""
        known = {"repo": self.repo, "revision": self.revision}
        return known if self.folder is None else {**known, "folder": self.folder, "sha256": self.sha256}

    @property
    def prebuilt(self) -> None:
        """No folder: what the hub has is fetched."""
        return None


def _which(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "tiny" if kind is None else str(kind)


AnyBase = Annotated[Annotated[Base, Tag("tiny")] | Annotated[HubBase, Tag("hub")], Discriminator(_which)]
"""Any base; without a `type` it is the one that the DAG makes."""
