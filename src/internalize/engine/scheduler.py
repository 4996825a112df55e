"""Continuous batching: one thread that owns an engine and serves calls from any other thread.

Invariant: weights change only while no call is running, so every token of a call comes from one weight
version; and no call is lost: its future gets a completion (perhaps an aborted one, with the tokens so far) or
an error.

All state belongs to the worker thread. Other threads hand it orders (closures) through a queue; it carries
them out between two decode steps.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

import torch
from torch import Tensor

from internalize.engine.batch import Call, RunningBatch
from internalize.engine.local import LocalEngine
from internalize.engine.protocol import Completion
from internalize.errors import UserError

T = TypeVar("T")
Load = tuple[Callable[[], Mapping[str, Tensor]], Callable[[], str], "Future[str]"]

ANONYMOUS = "~"
"""Start of the names of sessions that no client named; any other such call may take over their cache."""


class BusyError(Exception):
    """The queue is full; nothing was started."""


class StoppedError(Exception):
    """The scheduler has stopped; nothing was started."""


class Scheduler:
    """Runs calls on `engine`, which nobody else may touch between `start` and `stop`."""

    def __init__(self, engine: LocalEngine, max_calls: int = 1024) -> None:
        self.engine = engine
        self.max_calls = max_calls
        """Most calls waiting or running; more are refused."""
        self.steps = 0
        """Decode steps so far."""
        self._orders: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._batch = RunningBatch(engine)
        self._waiting: dict[str, Call] = {}  # by rid, in order of arrival
        self._loads: list[Load] = []
        self._paused = self._stopping = self._closed = False
        self._closing = threading.Lock()  # nothing is put into the queue after `_closed` is set
        self._anonymous: list[str] = []
        self._named = 0  # anonymous names given so far
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    # ---- called from any thread ---
    def start(self) -> Scheduler:
        self._thread.start()
        return self

    def stop(self) -> None:
        """End all calls as aborted and the thread with them."""

        def halt() -> None:
            self._stopping = True

        with contextlib.suppress(StoppedError):
            self._put(halt)
        self._thread.join()

    @property
    def alive(self) -> bool:
        """False before `start` and after `stop`."""
        return self._thread.is_alive()

    @property
    def paused(self) -> bool:
        """True between `pause` and `resume`."""
        return self._paused

    @property
    def live_calls(self) -> tuple[int, int]:
        """(waiting, running)."""
        return len(self._waiting), len(self._batch.rows)

    def submit(self, call: Call) -> Future[Completion]:
        """Queue a call.

        Raises:
            UserError: the prompt does not fit, or holds unknown ids.
            BusyError, StoppedError: see there.
        """
        self.engine._check(call.prompt, call.rid, self.engine.max_len - 1)
        if sum(self.live_calls) >= self.max_calls:
            raise BusyError(f"{self.max_calls} calls are waiting or running")
        call.future.set_running_or_notify_cancel()  # from here on it can only be completed
        self._put(lambda: self._enqueue(call))
        return call.future

    def abort(self, rid: str | None) -> Future[int]:
        """End the call of that name, or all, waiting or running; gives how many. What they sampled so far is
        returned to their callers."""
        return self._order(lambda: self._abort(rid))

    def pause(self) -> Future[int]:
        """Abort all calls and start no other until `resume`; later ones wait. Gives how many were aborted."""

        def pause() -> int:
            self._paused = True
            return self._abort(None)

        return self._order(pause)

    def resume(self) -> Future[None]:
        """Start calls again."""

        def resume() -> None:
            self._paused = False

        return self._order(resume)

    def flush(self) -> Future[bool]:
        """Drop all caches; gives False, and does nothing, while calls are running."""

        def flush() -> bool:
            if self._batch.rows:
                return False
            self.engine.flush()
            return True

        return self._order(flush)

    def offload(self) -> Future[None]:
        """See `LocalEngine.offload`; calls that are running end as aborted."""

        def offload() -> None:
            self._abort(None)
            self.engine.offload()

        return self._order(offload)

    def onload(self) -> Future[None]:
        """See `LocalEngine.onload`."""
        return self._order(self.engine.onload)

    def score(self, sequence: Sequence[int]) -> Future[list[float]]:
        """Log-prob of each token of a sequence (see `LocalEngine.token_logprobs`), between two steps of the calls."""
        return self._order(lambda: self.engine.token_logprobs([sequence])[0])

    def load(
        self,
        state: Callable[[], Mapping[str, Tensor]],
        version: Callable[[], str],
        abort_running: bool = False,
    ) -> Future[str]:
        """Replace the weights as soon as no call is running (no other starts meanwhile); gives their version.
        On an error the old ones stay."""
        result: Future[str] = Future()
        result.set_running_or_notify_cancel()

        def load() -> None:
            if abort_running:
                self._abort(None)
            self._loads.append((state, version, result))

        self._put(load)
        return result

    def _put(self, order: Callable[[], None]) -> None:
        with self._closing:
            if self._closed:
                raise StoppedError("the engine has stopped")
            self._orders.put(order)

    def _order(self, act: Callable[[], T]) -> Future[T]:
        result: Future[T] = Future()
        result.set_running_or_notify_cancel()

        def order() -> None:
            try:
                result.set_result(act())
            except Exception as error:
                result.set_exception(error)

        self._put(order)
        return result

    # ---- the worker thread ---
    def _run(self) -> None:
        torch.set_num_threads(1)  # holds for the calling thread
        while not self._stopping:
            self._take_orders(block=True)
            if self._loads and not self._batch.rows:
                self._load_all()
            self._advance()
        with self._closing:
            self._closed = True
        self._take_orders(block=False)
        self._abort(None)
        for _, _, result in self._loads:
            result.set_exception(StoppedError("the engine has stopped"))

    def _advance(self) -> None:
        """Let waiting calls in, and decode one token of each running one."""
        chosen = self._admissible()
        try:
            self._deliver(self._batch.admit(chosen))
            self.steps += bool(self._batch.rows)
            self._deliver(self._batch.step())
        except Exception as error:  # whatever it is, the callers must hear of it and the thread must live
            for call in {*chosen, *self._batch.drop()}:
                if not call.future.done():
                    call.future.set_exception(error)

    def _take_orders(self, block: bool) -> None:
        """Carry out what was ordered; with `block`, wait for an order when there is nothing else to do."""
        idle = not self._batch.rows and not self._loads and (self._paused or not self._waiting)
        try:
            order = self._orders.get(block=block and idle)
            while True:
                order()
                order = self._orders.get(block=False)
        except Empty:
            return

    def _admissible(self) -> list[Call]:
        """Waiting calls that can start now, oldest first; they leave the queue."""
        if self._paused or self._loads or self._stopping:
            return []
        room = self.engine.slots - len(self._batch.rows)
        busy = {row.call.session for row in self._batch.rows}
        chosen: list[Call] = []
        for call in self._waiting.values():
            if len(chosen) == room:
                break
            if not call.session:
                call.session = self._anonymous_session(call.prompt, busy)
            if call.session not in busy:  # else the call waits for its conversation's earlier one
                busy.add(call.session)
                chosen.append(call)
        for call in chosen:
            del self._waiting[call.rid]
        return chosen

    def _anonymous_session(self, prompt: list[int], busy: set[str]) -> str:
        """The idle nameless session that shares the longest prefix with `prompt`, else a new one."""
        slots = self.engine._slots
        self._anonymous = [name for name in self._anonymous if name in busy or name in slots]
        idle = [name for name in self._anonymous if name not in busy]
        best = max(idle, key=lambda name: slots.reusable(name, prompt), default=None)
        if best is not None and slots.reusable(best, prompt) > 0:
            return best
        self._named += 1
        self._anonymous.append(f"{ANONYMOUS}{self._named}")
        return self._anonymous[-1]

    def _enqueue(self, call: Call) -> None:
        if call.rid in self._waiting or any(row.call.rid == call.rid for row in self._batch.rows):
            call.future.set_exception(UserError("a live call has this rid already", where="rid", got=call.rid))
            return
        self._waiting[call.rid] = call

    def _abort(self, rid: str | None) -> int:
        over = self._batch.abort(rid)
        for call in [c for c in self._waiting.values() if rid in (None, c.rid)]:
            del self._waiting[call.rid]
            over.append((call, Completion([], [], "abort", self.engine.weight_version, 0)))
        self._deliver(over)
        return len(over)

    def _load_all(self) -> None:
        for state, version, result in self._loads:
            try:
                # the version first: a state that does not load must not leave a new label behind
                label = version()
                self.engine.update_weights(state(), label)
                result.set_result(label)
            except Exception as error:
                result.set_exception(error)
        self._loads.clear()

    @staticmethod
    def _deliver(over: list[tuple[Call, Completion]]) -> None:
        for call, completion in over:
            call.future.set_result(completion)
