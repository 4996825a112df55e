"""Where the gateway's completions come from.

Invariant: a call draws from its own seed, so it gives the same tokens in whatever batch it runs, through
`LocalEngine`, `RemoteEngine` or `EngineClient`, and in process.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from internalize.engine.protocol import Completion, Engine, SamplingParams


class Backend(Protocol):
    """What the gateway asks; `engine.client.EngineClient` is one."""

    async def generate(
        self,
        input_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        session: str | None = None,
        rid: str | None = None,
        seed: int | None = None,
    ) -> Completion:
        """One continuation; `seed` (64 bits) is the only source of randomness."""
        ...

    def release(self, sessions: Collection[str]) -> None:
        """Forget these sessions' caches."""
        ...


@dataclass(eq=False)
class _Waiting:
    prompt: list[int]
    sampling: SamplingParams
    session: str
    seed: int
    future: Future[Completion] = field(default_factory=Future)


class EngineThread:
    """`Backend` over an engine with blocking methods, which only this thread touches: whatever waits when the
    engine becomes free goes into one `generate`, or, unless `together`, into one after the other. Close it."""

    def __init__(self, engine: Engine, together: bool = True) -> None:
        self.engine, self.together = engine, together
        self._queue: queue.SimpleQueue[_Waiting | list[str] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    async def generate(
        self,
        input_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        session: str | None = None,
        rid: str | None = None,
        seed: int | None = None,
    ) -> Completion:
        """As `Backend`. Raises what the engine raises."""
        if session is None or seed is None:
            raise ValueError("an engine thread needs the session and the seed of a call")
        waiting = _Waiting(list(input_ids), sampling, session, seed)
        self._queue.put(waiting)
        return await asyncio.wrap_future(waiting.future)

    def release(self, sessions: Collection[str]) -> None:
        """As `Backend`; done between two batches."""
        self._queue.put(list(sessions))

    def close(self, seconds: float = 5.0) -> None:
        """End the thread after the batch that runs; one that hangs is left behind."""
        self._queue.put(None)
        self._thread.join(seconds)

    def _work(self) -> None:
        while True:
            batch: list[_Waiting] = []
            item = self._queue.get()
            while item is not None:
                if isinstance(item, list):
                    self.engine.release(item)
                elif item.future.set_running_or_notify_cancel():
                    batch.append(item)
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
            while batch:
                batch = self._run(batch)
            if item is None:
                return

    def _run(self, waiting: list[_Waiting]) -> list[_Waiting]:
        """Run as many as fit into one call of the engine; returns those left over."""
        now: list[_Waiting] = []
        later: list[_Waiting] = []
        for one in waiting:
            alike = one.sampling == waiting[0].sampling and all(w.session != one.session for w in now)
            room = len(now) < (self.engine.slots if self.together else 1)
            (now if alike and room else later).append(one)
        try:
            done = self.engine.generate(
                [w.prompt for w in now],
                [w.session for w in now],
                [np.random.Generator(np.random.PCG64(w.seed)) for w in now],
                now[0].sampling,
            )
        except BaseException as error:
            for one in now:
                one.future.set_exception(error)
            return later
        for one, completion in zip(now, done, strict=True):
            one.future.set_result(completion)
        return later
