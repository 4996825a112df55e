"""What an engine is: exact token ids in, sampled token ids and their log-probs out.

Invariant: `Completion.logprobs[i]` is the log-probability, under the distribution that token i was drawn from
(the temperature-scaled one), of `Completion.output_ids[i]`; every token of a completion comes from one weight
version.

The names follow SGLang's native API (`/generate`, `/update_weights_from_disk`, `/flush_cache`), so that an
HTTP client can stand where `LocalEngine` stands. No torch here: harnesses import this module, not an engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from internalize.errors import UserError

FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one call samples. No top-p and no top-k: they would renormalise the log-probs that the trainer
    compares."""

    temperature: float = 1.0
    """0 is greedy; its log-probs are those of temperature 1."""
    max_new_tokens: int = 32
    stop_ids: tuple[int, ...] = ()
    """Sampling one of these ends the call; the stop token is the last of `output_ids`."""

    def __post_init__(self) -> None:
        if not self.temperature >= 0.0 or self.temperature == float("inf"):
            raise ValueError(f"temperature must be finite and >= 0, got {self.temperature}")
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be >= 1, got {self.max_new_tokens}")

    def need_stop(self, stop_id: int) -> None:
        """Raise UserError unless a call ends at `stop_id`, the token that ends a reply."""
        if stop_id not in self.stop_ids:
            raise UserError(
                "a reply would not stop at its end token",
                where="sampling.stop_ids",
                expected=f"{stop_id} among them",
                got=str(self.stop_ids),
            )


@dataclass(slots=True)
class Completion:
    """One sampled continuation."""

    output_ids: list[int]
    logprobs: list[float]
    """Same length as `output_ids`."""
    finish: FinishReason
    """`stop`: a stop token was sampled; `length`: token or context limit; `abort`: ended from outside, ids so
    far kept."""
    weight_version: str
    cached_tokens: int
    """Prompt tokens whose keys and values were reused from an earlier call of the session."""


class Engine(Protocol):
    """What a harness needs of an engine."""

    @property
    def slots(self) -> int:
        """Most sequences that one `generate` accepts and that keep their cache between calls."""
        ...

    @property
    def max_len(self) -> int:
        """Most tokens (prompt and output together) of one sequence."""
        ...

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sessions: Sequence[str],
        rngs: Sequence[np.random.Generator],
        sampling: SamplingParams,
    ) -> list[Completion]:
        """Continue every prompt; `sessions[i]` names the cache slot, `rngs[i]` is the only source of
        randomness of row i."""
        ...

    def release(self, sessions: Sequence[str]) -> None:
        """Forget these sessions' caches; unknown names are ignored."""
        ...


class Scoring(Engine, Protocol):
    """An engine that also judges given text, for knowledge probes."""

    def continuations(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[float]]:
        """Log-probs (temperature 1) of the tokens of each pair's second part behind its first; no cache is kept."""
        ...
