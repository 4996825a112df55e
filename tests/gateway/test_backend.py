"""Completions from engines in this process and behind HTTP, and what an engine's failure is called."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from internalize.engine.client import EngineClient, Timeouts
from internalize.engine.protocol import Completion, SamplingParams
from internalize.gateway.backend import Backend, EngineThread
from internalize.seeds import derive, np_rng

SAMPLING = SamplingParams(1.0, 4, (0,))


class Counting:
    """An engine that answers with its draws and notes who was asked together."""

    slots, max_len = 3, 64

    def __init__(self, gate: threading.Event) -> None:
        self.gate, self.batches, self.released = gate, [], []  # type: ignore[var-annotated]

    def generate(
        self, prompts: Sequence[Any], sessions: Sequence[str], rngs: Sequence[np.random.Generator], sampling: Any
    ) -> list[Completion]:
        self.gate.wait()
        self.batches.append(list(sessions))
        if "bad" in sessions:
            raise ValueError("bad")
        return [Completion([int(g.random() * 1e9)], [-1.0], "length", "v", 0) for g in rngs]

    def release(self, sessions: Sequence[str]) -> None:
        self.released += sessions


def _ask(backend: Backend, session: str, sampling: SamplingParams = SAMPLING) -> Any:
    return backend.generate([1, 2], sampling, session=session, seed=derive("k", session))


def test_waiting_calls_share_a_batch_and_draw_from_their_own_seed() -> None:
    gate = threading.Event()
    engine = Counting(gate)
    backend = EngineThread(engine)

    async def main() -> list[Any]:
        names = ["a", "b", "b", "c", "d", "bad"]
        tasks = [asyncio.ensure_future(_ask(backend, name)) for name in names]
        tasks.append(asyncio.ensure_future(_ask(backend, "e", SamplingParams(0.5, 4, (0,)))))
        await asyncio.sleep(0.05)
        backend.release(["a"])
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    done = asyncio.run(main())
    backend.close()
    assert isinstance(done[5], ValueError)
    draws = {name: int(np_rng("k", name).random() * 1e9) for name in "abcde"}
    for name, result in zip("abbcd", done, strict=False):
        shared = any(name in batch and "bad" in batch for batch in engine.batches)
        assert shared if isinstance(result, ValueError) else result.output_ids == [draws[name]]
    assert done[6].output_ids == [draws["e"]]
    for batch in engine.batches:
        assert len(batch) <= engine.slots
        assert len(set(batch)) == len(batch)
        assert "e" not in batch or batch == ["e"]
    assert max(len(batch) for batch in engine.batches) > 1
    assert sorted(name for batch in engine.batches for name in batch) == ["a", "b", "b", "bad", "c", "d", "e"]
    assert engine.released == ["a"]


def test_calls_can_be_kept_apart() -> None:
    """What a local engine needs so that no bit depends on which calls met."""
    gate = threading.Event()
    engine = Counting(gate)
    backend = EngineThread(engine, together=False)

    async def main() -> list[Any]:
        tasks = [asyncio.ensure_future(_ask(backend, name)) for name in "abc"]
        await asyncio.sleep(0.05)
        gate.set()
        return await asyncio.gather(*tasks)

    done = asyncio.run(main())
    backend.close()
    assert engine.batches == [["a"], ["b"], ["c"]]
    assert [c.output_ids for c in done] == [[int(np_rng("k", s).random() * 1e9)] for s in "abc"]


def test_a_call_that_nobody_waits_for_is_not_made() -> None:
    gate = threading.Event()
    engine = Counting(gate)
    backend = EngineThread(engine)

    async def main() -> None:
        first = asyncio.ensure_future(_ask(backend, "a"))
        await asyncio.sleep(0.05)
        second = asyncio.ensure_future(_ask(backend, "b"))
        await asyncio.sleep(0.01)
        second.cancel()
        await asyncio.sleep(0)
        gate.set()
        await first

    asyncio.run(main())
    backend.close()
    assert engine.batches == [["a"]]


# ---- an engine behind HTTP that misbehaves ---
class Engine(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    how, ids = "ok", [0]

    def log_message(self, *_: Any) -> None: ...

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        meta = {"id": "x", "finish_reason": {"type": "stop", "matched": 0}, "weight_version": "v", "cached_tokens": 0}
        meta["output_token_logprobs"] = [[-0.5, i, None] for i in self.ids]
        data = json.dumps({"output_ids": self.ids, "meta_info": meta}).encode()
        if self.how == "hangs":
            self.server.released.wait(20)  # type: ignore[attr-defined]
        if self.how == "garbage":
            data = b'{"output_ids": 1}'
        self.send_response(int(self.how) if self.how.isdigit() else 200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:10] if self.how == "dies" else data)
        if self.how == "dies":
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True


@pytest.fixture
def bad_engine() -> Iterator[Callable[..., str]]:
    servers = []

    def make(how: str, ids: list[int]) -> str:
        kind = type("Bad", (Engine,), {"how": how, "ids": ids})
        server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
        server.released = threading.Event()  # type: ignore[attr-defined]
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield make
    for server in servers:
        server.released.set()
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("dies", "engine_died"),
        ("hangs", "engine_timeout"),
        ("500", "engine_failed"),
        ("529", "engine_busy"),
        ("400", "engine_refused"),
        ("garbage", "engine_malformed"),
        ("absent", "engine_unreachable"),
        ("ok", None),
    ],
)
def test_each_failure_of_an_engine_has_its_name(
    how: str, reason: str | None, bad_engine: Any, place: Any, client: Any, calls: Any
) -> None:
    """The episode ends at once, with what was recorded before."""
    url = "http://127.0.0.1:9" if how == "absent" else bad_engine(how, calls("pot:a")[0])
    backend = EngineClient(url, timeouts=Timeouts(generate=0.3, connect=1.0), retries=1, backoff=0.01)
    here = place(backend)
    response = client(here, "messages").ask()
    assert here.session.reason == reason
    assert response.status_code == (200 if reason is None else 400)
    if reason is not None:
        assert reason in response.json()["error"]["message"]
        assert here.rows() == []
