"""One async client for engines that speak `engine.wire`: the local one and SGLang.

Invariant: a call is sent at most once unless it is certain that no engine has started it, so a record never
hides a second draw; and after `update_weights` either every engine holds the new version and runs, or every
engine holds the old one and runs, or `EngineVersionError` says that they stay paused.

Several addresses are one engine: a session sticks to the one it first met (its prefix cache is there), new
sessions go where the fewest are.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from internalize.engine import wire
from internalize.engine.channel import Channel, malformed, parse
from internalize.engine.faults import (
    EngineError,
    EngineRefusedError,
    EngineUnreachableError,
    EngineVersionError,
)
from internalize.engine.protocol import Completion, SamplingParams


@dataclass(frozen=True)
class Timeouts:
    """Seconds."""

    connect: float = 5.0
    generate: float = 300.0
    """Longest silence while a call runs: also the longest call."""
    control: float = 120.0
    """Everything else; loading weights is the slowest."""


class EngineClient:
    """Close it, or use it with `async with`, in the event loop that it was used in."""

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        timeouts: Timeouts | None = None,
        retries: int = 3,
        backoff: float = 0.2,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """
        Args:
            urls: of one engine or several, `http://host:port`.
            retries: after the first try, only when nothing was started.
            backoff: seconds before the first retry; doubles.
            transport: for tests.
        """
        self.urls = tuple(u.rstrip("/") for u in ([urls] if isinstance(urls, str) else urls))
        if not self.urls or not all(u.startswith(("http://", "https://")) for u in self.urls):
            raise EngineUnreachableError(
                "not an engine address", expected="http://host:port", got=", ".join(self.urls) or "nothing"
            )
        self.weight_version: str | None = None
        """What replies must name; None (before `update_weights` or `pin_version`): anything."""
        self._timeouts = timeouts or Timeouts()
        self._channel = Channel(self._timeouts.connect, retries, backoff, transport)
        self._home: dict[str, str] = {}  # session -> url

    async def __aenter__(self) -> EngineClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._channel.aclose()

    # ---- calls ---
    async def generate(
        self,
        input_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        session: str | None = None,
        rid: str | None = None,
        seed: int | None = None,
    ) -> Completion:
        """One continuation.

        Args:
            session: the conversation, whose prefix cache it reuses.
            rid: a name for `abort`.
            seed: 64 bits; the only source of randomness. In this process, `np_rng` of the same seed gives the
            same tokens.

        Raises:
            EngineError: see `engine.faults`.
        """
        rid = rid or f"call-{uuid.uuid4().hex}"
        params: dict[str, Any] = {
            "temperature": sampling.temperature,
            "max_new_tokens": sampling.max_new_tokens,
            "stop_token_ids": list(sampling.stop_ids),
            "skip_special_tokens": False,
            "no_stop_trim": True,
        }
        if seed is not None:
            params["sampling_seed"] = wire.to_signed(seed)
        body = {
            "input_ids": list(input_ids),
            "sampling_params": params,
            "return_logprob": True,
            "rid": rid,
            "session_id": session,
        }
        url = self._url_of(session)
        allowed = {self.weight_version}
        where = f"POST {url}/generate"
        text = await self._channel.send("POST", f"{url}/generate", body, self._timeouts.generate)
        reply = parse(wire.GenerateReply, text, where)
        try:
            completion = reply.completion()
        except ValueError as error:
            raise malformed(str(error), text, where) from None
        allowed.add(self.weight_version)  # weights may have changed while it waited
        if None not in allowed and completion.weight_version not in allowed:
            raise EngineVersionError(
                "a reply comes from other weights than those loaded",
                where=where,
                expected=str(self.weight_version),
                got=completion.weight_version,
                fix="the engine was restarted or updated by somebody else; load the weights again",
            )
        return completion

    async def continuation(
        self, prefix: Sequence[int], answer: Sequence[int], *, session: str | None = None
    ) -> list[float]:
        """Log-probs (temperature 1) of given tokens behind a prefix.

        Raises:
            EngineError: see `engine.faults`.
        """
        body = {
            "input_ids": [*prefix, *answer],
            "sampling_params": {"temperature": 0.0, "max_new_tokens": 1},
            "return_logprob": True,
            "logprob_start_len": max(0, len(prefix) - 1),
            "rid": f"score-{uuid.uuid4().hex}",
        }
        url = self._url_of(session)
        where = f"POST {url}/generate"
        text = await self._channel.send("POST", f"{url}/generate", body, self._timeouts.generate)
        try:
            return parse(wire.GenerateReply, text, where).scored(len(answer))
        except ValueError as error:
            raise malformed(str(error), text, where) from None

    async def abort(self, rid: str | None = None) -> None:
        """End the call of that name, or all; whoever waits for it gets what was sampled so far."""
        body = {"abort_all": True} if rid is None else {"rid": rid}
        await self._everywhere("POST", "/abort_request", body)

    def release(self, sessions: Collection[str]) -> None:
        """Forget which engine these sessions belong to. Engines drop the oldest caches by themselves."""
        for session in sessions:
            self._home.pop(session, None)

    # ---- state ---
    async def healthy(self, deep: bool = False) -> bool:
        """True when every engine answers; `deep`: and can generate."""
        try:
            await self._everywhere("GET", "/health_generate" if deep else "/health", retry=False)
        except EngineError:
            return False
        return True

    async def model_info(self) -> list[wire.ModelInfo]:
        """Of each address."""
        return await asyncio.gather(*(self._info(url) for url in self.urls))

    async def pin_version(self) -> str:
        """From now on refuse replies of other weights than the engines hold now. Raises EngineVersionError
        when they differ among each other."""
        versions = await self._versions()
        if len(set(versions.values())) != 1:
            raise _disagreeing(versions, "one version on all engines")
        self.weight_version = versions[self.urls[0]]
        return self.weight_version

    async def pause(self) -> None:
        """Abort all calls and start no other until `resume`; later ones wait."""
        await self._everywhere("POST", "/pause_generation", {"mode": "abort"})

    async def resume(self) -> None:
        """Start calls again."""
        await self._everywhere("POST", "/continue_generation", {})

    async def flush(self) -> None:
        """Drop all prefix caches. Raises EngineRefusedError while calls are running."""
        await self._everywhere("POST", "/flush_cache")

    async def give_memory_back(self) -> None:
        """Free weights and caches on the devices, until `take_memory` and `update_weights`."""
        await self._everywhere("POST", "/release_memory_occupation", {})

    async def take_memory(self) -> None:
        """Take the devices' memory again; the weights are to be loaded."""
        await self._everywhere("POST", "/resume_memory_occupation", {})

    async def update_weights(self, folder: Path, version: str) -> None:
        """Pause, flush, load `folder` (a HF folder that the engines can read) as `version`, check that all
        say so, continue. Calls that were running end as aborted, under the old version.

        Raises:
            EngineVersionError: the engines disagree, or one of them no longer answers; they stay paused.
            EngineError: nothing changed anywhere, and the engines run on.
        """
        before = await self._versions()
        problem: EngineError | None = None
        try:
            await self.pause()
            await self.flush()
            await _all(self._load(url, folder, version) for url in self.urls)
        except EngineError as error:
            problem = error
        try:
            after = await self._versions()
        except EngineError as error:
            raise EngineVersionError(
                "an engine does not answer in the middle of a weight update; the others stay paused",
                where=error.where,
                got=error.what,
                fix="start it again, then load the weights again",
            ) from error
        if problem is None and set(after.values()) == {version}:
            self.weight_version = version
            await self.resume()
            return
        if after != before or len(set(after.values())) != 1:
            raise _disagreeing(after, f"{version} on all engines") from problem
        await self.resume()
        raise problem or EngineVersionError(
            "the weights were loaded but the version did not change",
            expected=version,
            got=after[self.urls[0]],
        )

    # ---- parts ---
    def _url_of(self, session: str | None) -> str:
        taken = Counter(self._home.values())
        url = min(self.urls, key=lambda u: taken[u])
        return url if session is None else self._home.setdefault(session, url)

    async def _load(self, url: str, folder: Path, version: str) -> None:
        body = {"model_path": str(folder.resolve()), "weight_version": version}
        route = "/update_weights_from_disk"
        text = await self._control("POST", url, route, body)
        reply = parse(wire.UpdateWeightsReply, text, f"POST {url}{route}")
        if not reply.success:
            raise EngineRefusedError("the engine kept its weights", where=url + route, got=reply.message)

    async def _versions(self) -> dict[str, str]:
        infos = await self.model_info()
        return {url: info.weight_version for url, info in zip(self.urls, infos, strict=True)}

    async def _info(self, url: str) -> wire.ModelInfo:
        return parse(wire.ModelInfo, await self._control("GET", url, "/model_info"), f"GET {url}/model_info")

    async def _everywhere(
        self, method: str, route: str, body: dict[str, Any] | None = None, retry: bool = True
    ) -> None:
        await _all(self._control(method, url, route, body, retry) for url in self.urls)

    async def _control(
        self, method: str, url: str, route: str, body: dict[str, Any] | None = None, retry: bool = True
    ) -> bytes:
        return await self._channel.send(method, url + route, body, self._timeouts.control, retry)


async def _all(sends: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Await every one, then raise the first error: none is left running behind the caller's back."""
    for result in await asyncio.gather(*sends, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _disagreeing(versions: dict[str, str], expected: str) -> EngineVersionError:
    return EngineVersionError(
        "the engines do not hold the same weights",
        where=", ".join(versions),
        expected=expected,
        got=", ".join(versions.values()),
        fix="load the weights again",
    )
