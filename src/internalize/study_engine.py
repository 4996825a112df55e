"""What serves the policy while it plays.

Invariant: the local engine is the default and stands in no spec.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

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
    server: Literal["sglang", "own"] = "sglang"
    """`own`: this package's engine behind the same protocol, on a CPU; for models that it can run."""
    memory: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of a GPU's memory that a server takes for weights and cache; null: SGLang's own choice. Lower it where a
    trainer shares the GPU."""
    attention: Literal["triton", "fa3", "flashinfer", "torch_native"] | None = None
    """Attention backend; null: SGLang's own choice. `numerics` compares what it computes with the trainer."""

    @model_serializer(mode="wrap")
    def _defaults_left_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        new = {"server": "sglang", "memory": None, "attention": None}
        return {key: value for key, value in written.items() if key not in new or value != new[key]}


Engine = Annotated[LocalEngine | SglangEngine, Field(discriminator="type")]
"""Any engine."""


def for_spec(engine: LocalEngine | SglangEngine) -> dict[str, Any]:
    """What a job's result depends on, as a part of its spec; nothing for the default."""
    return {"engine": engine.plain()} if isinstance(engine, SglangEngine) else {}
