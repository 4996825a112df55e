"""Which harness a stage plays its episodes with.

Invariant: in process is the default and leaves no trace: a stage that says nothing, `null` or `{type: inprocess}` has
one and the same spec.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer

from internalize.study_model import Count, Settings


class InProcessHarness(Settings):
    """The model's replies are carried out in the stage's own process: no agent, no server."""

    type: Literal["inprocess"]


class AgentHarness(Settings):
    """What all agent CLIs share. The CLI is the user's to install (`scripts/install-clis.sh`)."""

    parallel: Count = 2
    """Episodes at once; each takes about 0.3 GB of memory."""
    seconds: Annotated[float, Field(gt=0)] = 600.0
    """Limit of an episode; one that takes longer is ended and does not count."""


class ClaudeCodeHarness(AgentHarness):
    """Claude Code, without its own tools, plays through the gateway and an MCP server."""

    type: Literal["claude-code"]


class QwenCodeHarness(AgentHarness):
    """Qwen Code, without its own tools, plays through the gateway and an MCP server."""

    type: Literal["qwen-code"]


def _default_is_none(harness: Any) -> Any:
    return None if isinstance(harness, InProcessHarness) else harness


HarnessSettings = Annotated[
    Annotated[InProcessHarness | ClaudeCodeHarness | QwenCodeHarness, Field(discriminator="type")] | None,
    AfterValidator(_default_is_none),
]
"""Any harness; None is in process."""


class Played(Settings):
    """Settings of a stage that plays episodes."""

    harness: HarnessSettings = None
    """What plays: `{type: inprocess}` (the default), or an agent CLI with `parallel` and `seconds`."""

    @model_serializer(mode="wrap")
    def _default_left_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        if self.harness is None:
            del written["harness"]
        return written
