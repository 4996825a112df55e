"""`calls.jsonl`: one row an LLM call."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from internalize.engine.protocol import FinishReason


class SamplingRow(BaseModel):
    """How a call was sampled."""

    model_config = ConfigDict(extra="forbid")
    temperature: float
    max_new_tokens: int
    stop_ids: tuple[int, ...]


class CallRow(BaseModel):
    """One LLM call: exact prompt ids, exact sampled ids, and what the gateway made of them."""

    model_config = ConfigDict(extra="forbid")
    session: str
    request: str
    """Name of the call at the engine (`rid`)."""
    index: int
    prompt_ids: list[int]
    output_ids: list[int]
    logprobs: list[float]
    finish: FinishReason
    weight_version: str
    cached_tokens: int
    think: str
    kind: Literal["call", "say", "bad"]
    call_word: str | None
    say: str | None
    sampling: SamplingRow
    seed: int
    """64 bits: the call's only source of randomness."""
