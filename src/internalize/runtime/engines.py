"""Several engines as one.

Invariant: which engine plays an episode depends on the order in which episodes start and end, never on time; so a
rollout repeats bit for bit with the same number of engines.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from internalize.engine.folder import ModelFolder
from internalize.engine.local import LocalEngine
from internalize.engine.protocol import Completion, SamplingParams
from internalize.runtime.called import Called
from internalize.runtime.failures import WorkerLost

if TYPE_CHECKING:
    from internalize.engine.remote import RemoteEngine


class EngineHost(Called):
    """An engine in a process of its own (a Ray actor): ours, which has no weights before the first `load`, or the
    servers that the study's `engine` names, which this process starts and ends."""

    def __init__(self, model: Path, slots: int, max_len: int, engine: Mapping[str, Any] | None = None) -> None:
        self._servers = ExitStack()
        self.engine: LocalEngine | RemoteEngine
        if engine is None:
            self.engine = LocalEngine(ModelFolder(model).config(), slots=slots, max_len=max_len)
            return
        from internalize.engine.servers import open_servers

        self.engine = self._servers.enter_context(open_servers(engine, model, slots, max_len))

    def load(self, folder: Path, version: str) -> None:
        """Takes the weights of a model folder."""
        if isinstance(self.engine, LocalEngine):
            self.engine.update_weights(ModelFolder(folder).state(), version)
        else:
            self.engine.update_weights(folder, version)

    def served(self) -> tuple[str, dict[str, str] | None]:
        """Version and hashes of what is computed with; servers tell no hashes."""
        digests = self.engine.served_digests() if isinstance(self.engine, LocalEngine) else None
        return self.engine.weight_version, digests

    def generate(
        self,
        prompts: list[list[int]],
        sessions: list[str],
        rngs: list[np.random.Generator],
        sampling: SamplingParams,
    ) -> list[Completion]:
        """See `LocalEngine.generate`."""
        return self.engine.generate(prompts, sessions, rngs, sampling)

    def release(self, sessions: list[str]) -> None:
        """See `LocalEngine.release`."""
        self.engine.release(sessions)

    def offload(self) -> None:
        """See `LocalEngine.offload`."""
        self.engine.offload()

    def onload(self) -> None:
        """See `LocalEngine.onload`."""
        self.engine.onload()


class Hosts(Protocol):
    """Engine processes, however they are reached."""

    @property
    def names(self) -> list[str]:
        """What messages call them."""
        ...

    def ask(self, name: str, arguments: dict[int, tuple[Any, ...]]) -> list[Any]:
        """`EngineHost.call` on the engines that have arguments, at the same time; answers in the order of `arguments`.

        Raises:
            WorkerLost: an engine died.
            UserError: an engine refused.
        """
        ...


class EnginePool:
    """`Engine` over hosts: a session stays where it started; a new one starts where the fewest are."""

    def __init__(self, hosts: Hosts, slots: int, max_len: int) -> None:
        """`slots`: of each host."""
        self._hosts, self._count, self._slots, self._max_len = hosts, len(hosts.names), slots, max_len
        self._home: dict[str, int] = {}

    @property
    def slots(self) -> int:
        """Of all together."""
        return self._slots * self._count

    @property
    def max_len(self) -> int:
        """Most tokens of one sequence."""
        return self._max_len

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sessions: Sequence[str],
        rngs: Sequence[np.random.Generator],
        sampling: SamplingParams,
    ) -> list[Completion]:
        """Continues every prompt at the engine of its session, all engines at once."""
        at = [self._home_of(session) for session in sessions]
        rows = {host: [i for i, where in enumerate(at) if where == host] for host in sorted(set(at))}
        asked = {
            host: ([list(prompts[i]) for i in own], [sessions[i] for i in own], [rngs[i] for i in own], sampling)
            for host, own in rows.items()
        }
        found: dict[int, Completion] = {}
        for own, completions in zip(rows.values(), self._hosts.ask("generate", asked), strict=True):
            found |= zip(own, completions, strict=True)
        return [found[i] for i in range(len(sessions))]

    def release(self, sessions: Sequence[str]) -> None:
        """Forgets these sessions; unknown names are ignored, and so is a dead engine: it has forgotten them."""
        gone: dict[int, tuple[list[str]]] = {}
        for session in sessions:
            if session in self._home:
                gone.setdefault(self._home.pop(session), ([],))[0].append(session)
        with contextlib.suppress(WorkerLost):
            self._hosts.ask("release", gone)

    def served(self) -> list[PooledEngine]:
        """Each engine by itself, for the weight sync."""
        return [PooledEngine(self._hosts, i) for i in range(self._count)]

    def all(self, name: str) -> None:
        """Asks every engine the same, without arguments."""
        self._hosts.ask(name, dict.fromkeys(range(self._count), ()))

    def _home_of(self, session: str) -> int:
        if session not in self._home:
            taken = Counter(self._home.values())
            self._home[session] = min(range(self._count), key=lambda i: (taken[i], i))
        return self._home[session]


class PooledEngine:
    """One engine of a pool; see `sync.Served`."""

    def __init__(self, hosts: Hosts, number: int) -> None:
        self._hosts, self._number = hosts, number

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._hosts.names[self._number]

    def load(self, folder: Path, version: str) -> None:
        """Replaces its weights."""
        self._hosts.ask("load", {self._number: (folder.resolve(), version)})

    def served(self) -> tuple[str, dict[str, str] | None]:
        """Version and hashes of what it computes with, if it tells them."""
        claimed, digests = self._hosts.ask("served", {self._number: ()})[0]
        return claimed, digests
