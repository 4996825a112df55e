"""Engines behind HTTP, with the methods of an engine in this process.

Invariant: `generate` gives what `LocalEngine` gives for the same weights and generators: each call's seed is
the one that its generator was made from, and the server draws from that seed in the same way. (An SGLang
server samples in its own way: there only log-probs and greedy tokens agree.)
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from internalize.closing import Closing
from internalize.engine.client import EngineClient
from internalize.engine.faults import EngineError
from internalize.engine.protocol import Completion, SamplingParams
from internalize.errors import UserError

T = TypeVar("T")


class RemoteEngine(Closing):
    """`Engine` over an `EngineClient`, which lives in a thread and an event loop of its own. Close it, or use
    it with `with`."""

    def __init__(
        self,
        client: Callable[[], EngineClient],
        *,
        slots: int | None = None,
        max_len: int | None = None,
    ) -> None:
        """
        Args:
            client: makes the client, in the loop that it will live in.
            slots, max_len: of all addresses together, and of one sequence; None asks the engines, which only
            the local ones answer.

        Raises:
            EngineError: an engine does not answer, or they hold different weights.
            UserError: `slots` or `max_len` is needed.
        """
        self._conversations: dict[str, str] = {}  # session -> its name on the wire, until it is released
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine client", daemon=True)
        self._thread.start()
        try:
            self._client = self._run(_made(client))
            limits = [info.internalize for info in self._run(self._client.model_info())]
            known = [limit for limit in limits if limit is not None]
            if len(known) < len(limits) and (slots is None or max_len is None):
                raise UserError(
                    "the engine does not say how many calls and tokens it takes",
                    where=", ".join(self._client.urls),
                    fix="give slots and max_len",
                )
            self._slots = sum(limit.slots for limit in known) if slots is None else slots
            self._max_len = min(limit.max_len for limit in known) if max_len is None else max_len
            self._run(self._client.pin_version())
        except BaseException:
            self.close()
            raise

    @property
    def slots(self) -> int:
        """Calls at once, of all addresses together."""
        return self._slots

    @property
    def max_len(self) -> int:
        """Most tokens of one sequence."""
        return self._max_len

    @property
    def weight_version(self) -> str:
        """Label of the weights that the next call uses."""
        return self._client.weight_version or ""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sessions: Sequence[str],
        rngs: Sequence[np.random.Generator],
        sampling: SamplingParams,
    ) -> list[Completion]:
        """Continue all prompts at once. Raises UserError on a generator that was used before or not made by
        `seeds.np_rng`, and, when a call failed, its EngineError: its `batch` holds what the others gave."""
        # names of our own: another client of the same engines may play episodes of the same names
        names = [self._conversations.setdefault(s, f"{s}-{uuid.uuid4().hex[:12]}") for s in sessions]
        return self._run(self._generate(prompts, names, [seed_of(rng) for rng in rngs], sampling))

    def release(self, sessions: Sequence[str]) -> None:
        """Forget these sessions: their next calls find no cache. (Engines drop the oldest ones themselves.)"""
        gone = [self._conversations.pop(s) for s in sessions if s in self._conversations]
        self._loop.call_soon_threadsafe(self._client.release, gone)

    def continuations(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[float]]:
        """See `protocol.Scoring`."""

        async def score() -> list[list[float]]:
            gate = asyncio.Semaphore(self.slots)

            async def one(number: int, prefix: Sequence[int], answer: Sequence[int]) -> list[float]:
                async with gate:
                    return await self._client.continuation(prefix, answer, session=f"score-{number % self.slots}")

            return await asyncio.gather(*(one(i, *pair) for i, pair in enumerate(pairs)))

        return self._run(score())

    def update_weights(self, folder: Path, version: str) -> None:
        """See `EngineClient.update_weights`."""
        self._run(self._client.update_weights(folder, version))

    def offload(self) -> None:
        """See `EngineClient.give_memory_back`."""
        self._run(self._client.give_memory_back())

    def onload(self) -> None:
        """See `EngineClient.take_memory`."""
        self._run(self._client.take_memory())

    def close(self) -> None:
        """Close connections, loop and thread; the engines stay."""
        if not self._loop.is_running():
            return
        if hasattr(self, "_client"):
            self._run(self._client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _generate(
        self,
        prompts: Sequence[Sequence[int]],
        sessions: Sequence[str],
        seeds: Sequence[int],
        sampling: SamplingParams,
    ) -> list[Completion]:
        calls = [
            self._client.generate(p, sampling, session=s, seed=seed)
            for p, s, seed in zip(prompts, sessions, seeds, strict=True)
        ]
        given = await asyncio.gather(*calls, return_exceptions=True)
        first = next((one for one in given if isinstance(one, BaseException)), None)
        if isinstance(first, EngineError):
            first.batch = given
        if first is not None:
            raise first
        return [one for one in given if not isinstance(one, BaseException)]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def seed_of(rng: np.random.Generator) -> int:
    """The seed that a fresh generator was made from. Raises UserError if there is none that a server could
    use."""
    sequence = getattr(rng.bit_generator, "seed_seq", None)
    seed = getattr(sequence, "entropy", None)
    if isinstance(seed, int) and 0 <= seed < 1 << 64 and rng.bit_generator.state == np.random.PCG64(seed).state:
        return seed
    raise UserError(
        "a remote engine cannot draw from this generator",
        expected="a new PCG64 generator of a 64-bit seed (seeds.np_rng)",
        got=f"{type(rng.bit_generator).__name__} of {seed!r}",
    )


async def _made(client: Callable[[], EngineClient]) -> EngineClient:
    return client()
