"""Settings of the archive: what is packed, under which names and licence it is published.

Invariant: everything has a sensible default; a study without the key is archived too. Imports nothing heavy.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from internalize.study_model import Settings

RepoName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=96)]
Prefix = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=48)]


class ArchiveSettings(Settings):
    """The archive of a study."""

    title: str | None = None
    """First line of the dataset card; the study's name unless given."""
    about: str | None = None
    """A paragraph for the card: what was asked and what came out."""
    licence: str = "cc-by-4.0"
    """Licence identifier for the card, as the hub spells it."""
    dataset: RepoName | None = None
    """Dataset repository, `owner/name`; `internalize publish --dataset` overrides it."""
    models: Prefix | None = None
    """What model repositories' names start with; the study's name unless given. A converted iteration is called
    `<models>-<run>-iter<N>`, with `-frozen-adam` behind it where Adam's moments were kept."""
    level: Annotated[int, Field(ge=1, le=19)] = 3
    """zstd level of archives and compressed tables."""
    eval_records: Literal["all", "outcomes"] = "all"
    """`all`: calls and journals of eval episodes too; `outcomes`: only their graded outcomes."""
    debug_rollouts: bool = True
    """Pack the exact training batches of each step."""
