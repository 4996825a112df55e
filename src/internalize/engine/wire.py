"""The subset of SGLang's native HTTP API that engines here speak, as pydantic models.

Invariant: everything that these models send, SGLang accepts under the same name with the same meaning, and
everything they read, SGLang writes (`tests/engine/schemas/` records its shapes and its version). What the
local engine does not do is refused by name and never ignored: a top-p that is silently dropped would falsify
log-probs.

Bodies that we receive forbid unknown keys; replies that we read allow them, because SGLang adds some.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from internalize.engine.protocol import Completion, SamplingParams

DEFAULT_MAX_NEW_TOKENS = 128
"""SGLang's."""
TOP_K_ALL = 1 << 30
"""SGLang's way, next to -1, of saying "the whole vocabulary"."""
SEEDS = 1 << 64


class Body(BaseModel):
    """A request: a misspelt key is an error."""

    model_config = ConfigDict(extra="forbid")


class Reply(BaseModel):
    """A reply: more keys than ours are fine."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())


# ---- requests ---
class Sampling(Body):
    """SGLang's `sampling_params`. The keys after `no_stop_trim` are accepted at their neutral value only."""

    temperature: float = Field(1.0, ge=0.0, allow_inf_nan=False)
    max_new_tokens: int = Field(DEFAULT_MAX_NEW_TOKENS, ge=1)
    stop_token_ids: list[int] | None = None
    """Beside the model's own end tokens."""
    ignore_eos: bool = False
    """True: nothing stops the call, neither end tokens nor `stop_token_ids`. That is what SGLang does."""
    sampling_seed: int | None = Field(None, ge=-(1 << 63), lt=1 << 63)
    """Two's complement of a 64-bit seed (`to_signed`)."""
    # These change text only; there is none here.
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    no_stop_trim: bool = False
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    n: int = 1
    min_new_tokens: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0

    @model_validator(mode="after")
    def _neutral(self) -> Sampling:
        for name in NEUTRAL:
            value, neutral = getattr(self, name), type(self).model_fields[name].default
            if value != neutral and not (name == "top_k" and value == TOP_K_ALL):
                raise ValueError(f"the local engine does not do {name}; expected {neutral}, got {value}")
        return self

    def params(self, eos_ids: Sequence[int] = ()) -> SamplingParams:
        """For the engine. `eos_ids`: the model's own end tokens."""
        stops = () if self.ignore_eos else tuple(sorted({*(self.stop_token_ids or ()), *eos_ids}))
        return SamplingParams(self.temperature, self.max_new_tokens, stops)


NEUTRAL = (
    "top_p",
    "top_k",
    "min_p",
    "n",
    "min_new_tokens",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
)


class GenerateRequest(Body):
    """POST /generate."""

    input_ids: list[int] = Field(min_length=1)
    sampling_params: Sampling = Field(default_factory=Sampling)
    return_logprob: bool = False
    logprob_start_len: int = Field(-1, ge=-1)
    """From which token of the prompt on its log-probs are wanted; -1: of none."""
    rid: str | None = None
    """Name of the call, for `/abort_request`; made up when missing."""
    session_id: str | None = None
    """The conversation that the call belongs to; a hint for the prefix cache, never part of the prompt."""
    stream: Literal[False] = False


class MemoryRequest(Body):
    """POST /release_memory_occupation and /resume_memory_occupation: all of it."""


class PauseRequest(Body):
    """POST /pause_generation. SGLang's other modes continue a call with other weights: not here."""

    mode: Literal["abort"] = "abort"


class ContinueRequest(Body):
    """POST /continue_generation."""

    torch_empty_cache: bool = True


class AbortRequest(Body):
    """POST /abort_request: one call by name, or all."""

    rid: str | None = None
    abort_all: bool = False

    @model_validator(mode="after")
    def _something(self) -> AbortRequest:
        if not self.abort_all and not self.rid:
            raise ValueError("name a rid, or set abort_all")
        return self


class UpdateWeightsRequest(Body):
    """POST /update_weights_from_disk."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model_path: str = Field(min_length=1)
    weight_version: str | None = None
    """Label of the new weights; None: the start of their hash."""
    load_format: Literal["auto", "safetensors"] | None = None
    abort_all_requests: bool = False
    """False waits for the running calls to end; they keep the old weights to their last token."""
    flush_cache: Literal[True] = True
    """A cache made by other weights is of no use."""


# ---- replies ---
class FinishReason(Reply):
    """Why a call ended; `matched` is the stop token, `length` the limit, `message` the abort's."""

    type: Literal["stop", "length", "abort"]
    matched: int | str | list[int] | None = None
    length: int | None = None
    message: str | None = None


class VersionSpan(Reply):
    """Output tokens `start` to `end` came from `version`."""

    version: str
    start: int
    end: int


class MetaInfo(Reply):
    """What a reply says about its call."""

    id: str
    finish_reason: FinishReason
    weight_version: str
    prompt_tokens: int | None = None
    """Missing in SGLang for a call that was aborted before it started; so are the cached ones."""
    completion_tokens: int = 0
    cached_tokens: int = 0
    output_token_logprobs: list[tuple[float, int, str | None]] | None = None
    """(log-prob, token id, null) of each output token; present when `return_logprob` was set."""
    input_token_logprobs: list[tuple[float | None, int, str | None]] | None = None
    """(log-prob, token id, null) of the prompt's tokens from `logprob_start_len` on; null: nothing stands before it."""
    weight_versions: list[VersionSpan] | None = None

    @field_validator("output_token_logprobs")
    @classmethod
    def _finite(cls, rows: list[tuple[float, int, str | None]] | None) -> Any:
        if rows is not None and not all(math.isfinite(row[0]) for row in rows):
            raise ValueError("a log-prob is not finite")
        return rows


class GenerateReply(Reply):
    """Of /generate."""

    output_ids: list[int]
    meta_info: MetaInfo

    def completion(self) -> Completion:
        """Raises ValueError when log-probs and ids disagree or when two weight versions were at work."""
        meta = self.meta_info
        spans = {span.version for span in meta.weight_versions or ()} | {meta.weight_version}
        if len(spans) > 1:
            raise ValueError(f"one call mixes weight versions {sorted(spans)}")
        rows = meta.output_token_logprobs or []
        ids = [row[1] for row in rows]
        # SGLang may trim the stop token off output_ids; the log-probs keep it
        trimmed = meta.finish_reason.type == "stop" and ids[:-1] == self.output_ids
        if ids != self.output_ids and not trimmed:
            raise ValueError(f"{len(self.output_ids)} output ids do not match {len(ids)} log-probs")
        return Completion(
            output_ids=ids,
            logprobs=[row[0] for row in rows],
            finish=meta.finish_reason.type,
            weight_version=meta.weight_version,
            cached_tokens=meta.cached_tokens,
        )

    def scored(self, count: int) -> list[float]:
        """Log-probs of the prompt's last `count` tokens. Raises ValueError when they are not there."""
        rows = (self.meta_info.input_token_logprobs or [])[-count:]
        found = [row[0] for row in rows if row[0] is not None and math.isfinite(row[0])]
        if len(found) != count:
            raise ValueError(f"log-probs of {count} prompt tokens were asked for, {len(found)} came")
        return found


class ModelInfo(Reply):
    """Of GET /model_info."""

    model_path: str
    weight_version: str
    is_generation: bool = True
    internalize: LocalLimits | None = None
    """Only the local engine says this."""


class LocalLimits(Reply):
    """What a harness must know of an engine: calls at once, tokens of a sequence."""

    slots: int
    max_len: int


class UpdateWeightsReply(Reply):
    """Of /update_weights_from_disk."""

    success: bool
    message: str
    num_paused_requests: int | None = 0


def reply_of(
    completion: Completion, rid: str, prompt_tokens: int, logprobs: bool, prompt: list[list[Any]] | None = None
) -> dict[str, Any]:
    """The JSON of a /generate reply; `prompt`: its `input_token_logprobs`."""
    ids = completion.output_ids
    reason: dict[str, Any] = {"type": completion.finish}
    if completion.finish == "stop":
        reason["matched"] = ids[-1]
    elif completion.finish == "length":
        reason["length"] = len(ids)
    else:
        reason["message"] = "Aborted"
    meta = {
        "id": rid,
        "finish_reason": reason,
        "prompt_tokens": prompt_tokens,
        "completion_tokens": len(ids),
        "cached_tokens": completion.cached_tokens,
        "weight_version": completion.weight_version,
    }
    if logprobs:
        meta["output_token_logprobs"] = [[x, i, None] for x, i in zip(completion.logprobs, ids, strict=True)]
    if prompt is not None:
        meta["input_token_logprobs"] = prompt
    return {"output_ids": ids, "meta_info": meta}


def to_signed(seed: int) -> int:
    """A 64-bit seed as the signed integer that fits SGLang's `sampling_seed`."""
    if not 0 <= seed < SEEDS:
        raise ValueError(f"a seed has 64 bits, got {seed}")
    return seed - SEEDS if seed >= SEEDS // 2 else seed


def from_signed(seed: int) -> int:
    """Inverse of `to_signed`."""
    return seed % SEEDS
