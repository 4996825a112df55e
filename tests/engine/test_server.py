"""Engine processes: how they start, serve, hang, die and end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from internalize.engine import server
from internalize.engine.client import EngineClient, Timeouts
from internalize.engine.faults import EngineDiedError, EngineTimeoutError, EngineUnreachableError
from internalize.engine.protocol import SamplingParams
from internalize.engine.server import Served, serve
from internalize.errors import UserError

LONG = SamplingParams(max_new_tokens=1500)
SHORT = SamplingParams(max_new_tokens=4)


def _until(condition: Callable[[], bool]) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never happened")


def _post(url: str, body: object) -> httpx.Response:
    return httpx.post(url, json=body, timeout=60.0, trust_env=False)


def _running(url: str) -> int:
    loads = httpx.get(url + "/v1/loads", timeout=60.0, trust_env=False).json()["loads"]
    return sum(load["num_running_reqs"] for load in loads)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"input_ids": []}, "input_ids"),
        ({"input_ids": [1, -1]}, "token that the model does not have"),
        ({"input_ids": [61]}, "token that the model does not have"),
        ({"input_ids": [1] * 2048}, "does not fit"),
        ({"input_ids": "text"}, "input_ids"),
        ({"input_ids": [1.5]}, "input_ids"),
        ({"text": "hello"}, "input_ids"),
        ({"input_ids": [1], "stream": True}, "stream"),
        ({"input_ids": [1], "top_logprobs_num": 2}, "top_logprobs_num"),
        ({"input_ids": [1], "sampling_params": {"top_p": 0.5}}, "top_p"),
        ({"input_ids": [1], "sampling_params": {"temperature": -1}}, "temperature"),
        ([], "body"),
        (None, "body"),
    ],
)
def test_a_bad_call_is_refused_by_name(served: Served, body: object, named: str) -> None:
    reply = _post(served.urls[0] + "/generate", body)
    assert reply.status_code == 400
    assert named in reply.json()["error"]["message"]


def test_a_body_that_is_not_json_is_refused(served: Served) -> None:
    for content in (b"{", b"\xff\xfe", b"[" * 100_000):
        reply = httpx.post(
            served.urls[0] + "/generate",
            content=content,
            headers={"content-type": "application/json"},
            trust_env=False,
        )
        assert reply.status_code == 400


@pytest.mark.parametrize(
    ("route", "body", "named"),
    [
        ("/pause_generation", {"mode": "in_place"}, "mode"),
        ("/abort_request", {}, "rid"),
        ("/update_weights_from_disk", {"model_path": "m", "flush_cache": False}, "flush_cache"),
        ("/update_weights_from_disk", {}, "model_path"),
    ],
)
def test_what_would_mix_versions_or_means_nothing_is_refused(
    served: Served, route: str, body: object, named: str
) -> None:
    reply = _post(served.urls[0] + route, body)
    assert reply.status_code == 400
    assert named in reply.json()["error"]["message"]


def test_two_live_calls_may_not_share_a_name(served: Served) -> None:
    async def act() -> None:
        async with EngineClient(served.urls) as client:
            one = asyncio.create_task(client.generate([1], LONG, rid="same"))
            two = asyncio.create_task(client.generate([2], LONG, rid="same"))
            done, _ = await asyncio.wait({one, two}, return_when=asyncio.FIRST_COMPLETED)
            (refused,) = done
            assert "rid" in str(refused.exception())
            await client.abort("same")
            ended = [task for task in (one, two) if task is not refused]
            assert (await ended[0]).finish == "abort"

    asyncio.run(act())


def test_a_call_ends_when_its_client_goes_away(served: Served) -> None:
    """How far the abandoned call came shows in the cache of its conversation."""
    longest = SamplingParams(max_new_tokens=2000)

    async def act() -> None:
        async with EngineClient(served.urls) as client:
            whole = await client.generate([1], longest, seed=5)
            call = asyncio.create_task(client.generate([1], longest, session="mine", seed=5))
            while await asyncio.to_thread(_running, served.urls[0]) == 0:
                assert not call.done()
            call.cancel()
            await asyncio.wait({call})
            after = await client.generate([1, *whole.output_ids], SHORT, session="mine")
            assert 0 < after.cached_tokens < 2000  # 2000, had it gone on to its end

    asyncio.run(act())


def test_several_engines_hang_and_die_each_by_its_name(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STOP_SECONDS", 60.0)  # a busy machine is no reason to kill
    with serve(folders[0], processes=2) as served:
        assert len(set(served.urls)) == 2
        hung, dying = served.processes

        async def act() -> None:
            async with EngineClient(served.urls) as client:
                await asyncio.gather(*(client.generate([1], SHORT, session=s) for s in "ab"))
                hung.send_signal(signal.SIGSTOP)
                async with EngineClient(served.urls[0], timeouts=Timeouts(generate=0.5)) as impatient:
                    with pytest.raises(EngineTimeoutError, match=served.urls[0]):
                        await impatient.generate([1], SHORT)
                hung.send_signal(signal.SIGCONT)
                assert len((await client.generate([1], SHORT, session="a")).output_ids) == 4

            async with EngineClient(served.urls[1], retries=1, backoff=0.01) as client:
                call = asyncio.create_task(client.generate([1], LONG, rid="long"))
                while await asyncio.to_thread(_running, served.urls[1]) == 0:
                    assert not call.done()
                dying.kill()
                with pytest.raises(EngineDiedError):
                    await call
            # a new client: an old one may find the end of a kept connection first
            async with EngineClient(served.urls[1], retries=1, backoff=0.01) as client:
                with pytest.raises(EngineUnreachableError):
                    await client.generate([1], SHORT)
                assert not await client.healthy()

        asyncio.run(act())
        with pytest.raises(UserError, match="has ended"):
            served.check()
    assert hung.returncode == 0  # ended politely when it was told to
    assert dying.returncode == -signal.SIGKILL


LAUNCHER = "import sys; from pathlib import Path; from internalize.engine.server import main; main(Path(sys.argv[1]))"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_engines_end_with_their_launcher(folders: list[Path], repository: Path, how: signal.Signals) -> None:
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(folders[0])],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(repository / "src")},
    )
    try:
        assert launcher.stdout is not None
        url = launcher.stdout.readline().decode().strip()
        reply = _post(url + "/generate", {"input_ids": [1], "sampling_params": {"max_new_tokens": 2}})
        assert len(reply.json()["output_ids"]) == 2
        with ThreadPoolExecutor(1) as pool:
            body = {"input_ids": [1], "sampling_params": {"max_new_tokens": 2000}, "return_logprob": True}
            running = pool.submit(_post, url + "/generate", body)
            _until(lambda: _running(url) == 1)
            launcher.send_signal(how)
            assert launcher.wait(60) == (0 if how == signal.SIGTERM else -signal.SIGKILL)
            meta = running.result(60).json()["meta_info"]  # nothing that was sampled is lost
            assert meta["completion_tokens"] == len(meta["output_token_logprobs"]) > 0

        def gone() -> bool:
            try:
                httpx.get(url + "/health", trust_env=False)
            except httpx.TransportError:
                return True
            return False

        _until(gone)
    finally:
        launcher.kill()
        launcher.wait()


def test_what_cannot_start_says_why(folders: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a model folder"):
        serve(tmp_path)
    with pytest.raises(UserError, match="at least one"):
        serve(folders[0], processes=0)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UserError, match="cannot listen"):
        serve(folders[0], port=taken.getsockname()[1])


def test_a_process_that_ends_while_starting_is_reported(
    folders: list[Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((folders[0] / "config.json").read_text()) | {"hidden_act": "gelu"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="has ended"):
        serve(tmp_path)
    assert "hidden_act" in capfd.readouterr().err
