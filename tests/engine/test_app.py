"""The routes, without sockets: what the status of a reply says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from torch import Tensor

from internalize.engine.app import create_app
from internalize.engine.folder import ModelFolder
from internalize.engine.local import LocalEngine
from internalize.engine.scheduler import Scheduler

Act = Callable[[httpx.AsyncClient], Awaitable[Any]]


def _with_app(scheduler: Scheduler, folder: Path, act: Act) -> Any:
    async def run() -> Any:
        transport = httpx.ASGITransport(create_app(scheduler, ModelFolder(folder)))
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            return await act(client)

    try:
        return asyncio.run(run())
    finally:
        scheduler.stop()


def _body(**more: Any) -> dict[str, Any]:
    return {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 4}, **more}


def test_a_full_queue_and_a_stopped_engine_are_not_there_for_now(
    make_engine: Callable[..., LocalEngine], folders: list[Path]
) -> None:
    scheduler = Scheduler(make_engine(), max_calls=2).start()

    async def act(client: httpx.AsyncClient) -> None:
        await client.post("/pause_generation", json={})
        assert (await client.get("/health_generate")).status_code == 200  # and does not wait for the pause to end
        waiting = [asyncio.create_task(client.post("/generate", json=_body(rid=str(i)))) for i in range(2)]
        while scheduler.live_calls != (2, 0):
            await asyncio.sleep(0.001)
        full = await client.post("/generate", json=_body())
        assert full.status_code == 503
        assert "2 calls" in full.json()["error"]["message"]
        await client.post("/continue_generation", json={})
        assert [(await task).status_code for task in waiting] == [200, 200]
        assert (await client.get("/health_generate")).status_code == 200
        scheduler.stop()
        assert (await client.get("/health")).status_code == 503
        assert (await client.get("/health_generate")).status_code == 503
        for route, body in (("/generate", _body()), ("/pause_generation", {}), ("/abort_request", {"abort_all": True})):
            assert (await client.post(route, json=body)).status_code == 503

    _with_app(scheduler, folders[0], act)


def test_a_model_that_fails_is_not_the_callers_fault(
    make_engine: Callable[..., LocalEngine], make_state: Callable[[int], dict[str, Tensor]], folders: list[Path]
) -> None:
    engine = make_engine()
    huge = ("v_proj", "o_proj")  # finite, their product is not
    engine.update_weights(
        {n: t * (1e25 if any(x in n for x in huge) else 1.0) for n, t in make_state(0).items()}, "huge"
    )

    async def act(client: httpx.AsyncClient) -> None:
        reply = await client.post("/generate", json=_body())
        assert reply.status_code == 500
        assert "not finite" in reply.json()["error"]["message"]
        loaded = await client.post("/update_weights_from_disk", json={"model_path": str(folders[1])})
        assert loaded.json()["success"] is True
        info = (await client.get("/model_info")).json()
        assert info["model_path"] == str(folders[1])
        assert info["weight_version"] == ModelFolder(folders[1]).version()  # no label given: the hash
        assert (await client.post("/generate", json=_body())).status_code == 200

    _with_app(Scheduler(engine).start(), folders[0], act)


def test_the_same_seed_is_the_same_call_and_no_seed_is_that_of_the_rid(
    make_engine: Callable[..., LocalEngine], folders: list[Path]
) -> None:
    async def act(client: httpx.AsyncClient) -> None:
        async def ids(rid: str, **sampling: Any) -> list[int]:
            body = {"input_ids": [1, 2, 3], "rid": rid, "sampling_params": {"max_new_tokens": 12, **sampling}}
            return (await client.post("/generate", json=body)).json()["output_ids"]  # type: ignore[no-any-return]

        assert await ids("a", sampling_seed=5) == await ids("b", sampling_seed=5) != await ids("c", sampling_seed=6)
        assert await ids("a") == await ids("a") != await ids("b")

    _with_app(Scheduler(make_engine()).start(), folders[0], act)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_flush_takes_both_methods(make_engine: Callable[..., LocalEngine], folders: list[Path], method: str) -> None:
    async def act(client: httpx.AsyncClient) -> None:
        cached = []
        for flush in (False, False, True):
            if flush:
                assert (await client.request(method, "/flush_cache")).status_code == 200
            reply = await client.post("/generate", json=_body(session_id="s"))
            cached.append(reply.json()["meta_info"]["cached_tokens"])
        assert cached == [0, 2, 0]

    _with_app(Scheduler(make_engine()).start(), folders[0], act)
