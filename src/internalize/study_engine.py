"""What serves the policy while it plays.

Invariant: the local engine is the default and stands in no spec.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from internalize.study_model import Count, Settings


class LocalEngine(Settings):
    """The torch engine in the stage's own process."""

    type: Literal["local"]


class SglangEngine(Settings):
    """SGLang servers; how many stands in an arm's `parallel.engines`."""

    type: Literal["sglang"]
    tensor: Count = 1
    """Tensor parallel size of a server. The record's numeric hunt found 1 to match HF and more than 1 to be wrong."""
    served_as: str = "slime-actor"
    """Model name that the harness asks for."""


Engine = Annotated[LocalEngine | SglangEngine, Field(discriminator="type")]
"""Any engine."""


def for_spec(engine: LocalEngine | SglangEngine) -> dict[str, Any]:
    """What a job's result depends on, as a part of its spec; nothing for the default."""
    return {"engine": engine.plain()} if isinstance(engine, SglangEngine) else {}
