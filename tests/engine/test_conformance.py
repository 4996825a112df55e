"""What every engine must do. It always runs against the local one, and against any other that speaks SGLang's
API when INTERNALIZE_ENGINE_URL and INTERNALIZE_ENGINE_MODEL (its HF folder, fp32, on a path that both see) are
set."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from internalize.engine.client import EngineClient
from internalize.engine.faults import EngineRefusedError
from internalize.engine.folder import ModelFolder
from internalize.engine.local import LocalEngine
from internalize.engine.protocol import Completion, SamplingParams
from internalize.engine.server import Served

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "schemas/sglang-0.5.23.json").read_text())
URL, MODEL = "INTERNALIZE_ENGINE_URL", "INTERNALIZE_ENGINE_MODEL"


@dataclass
class Target:
    url: str
    folders: tuple[Path, Path]
    """The weights that it serves, and others of the same shape."""
    references: tuple[LocalEngine, LocalEngine]
    local: bool

    def run(self, act: Callable[[EngineClient], Awaitable[Any]]) -> Any:
        async def with_client() -> Any:
            async with EngineClient(self.url) as client:
                return await act(client)

        return asyncio.run(with_client())

    def post(self, route: str, body: Any) -> httpx.Response:
        return httpx.post(self.url + route, json=body, timeout=60.0, trust_env=False)

    def prompt(self, seed: int, length: int = 40) -> list[int]:
        vocab = self.references[0]._model.shape.vocab
        return np.random.default_rng([6, seed]).integers(0, vocab, length).tolist()  # type: ignore[no-any-return]

    def off(self, prompt: list[int], done: Completion, temperature: float = 1.0, weights: int = 0) -> float:
        """Mean |difference| to the log-probs that scoring the whole sequence gives."""
        (row,) = self.references[weights].token_logprobs([prompt + done.output_ids], temperature)
        return float(np.abs(np.array(row[len(prompt) :]) - done.logprobs).mean())


@pytest.fixture(scope="module", params=["local", "external"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    local = request.param == "local"
    if local:
        served: Served = request.getfixturevalue("served")
        url, first = served.urls[0], request.getfixturevalue("folders")[0]
    elif URL in os.environ and MODEL in os.environ:
        url, first = os.environ[URL].rstrip("/"), Path(os.environ[MODEL])
    else:
        pytest.skip(f"no other engine named by {URL} and {MODEL}")
    other = tmp_path_factory.mktemp("other")
    for file in first.iterdir():
        if file.suffix != ".safetensors":
            shutil.copy(file, other)
    generator = torch.Generator().manual_seed(1)
    state = load_file(first / "model.safetensors")
    save_file(
        {n: t + 0.1 * t.std() * torch.randn(t.shape, generator=generator) for n, t in state.items() if t.numel()},
        other / "model.safetensors",
        metadata={"format": "pt"},
    )
    references = ModelFolder(first).engine(slots=1), ModelFolder(other).engine(slots=1)
    made = Target(url, (first, other), references, local)
    yield made
    made.run(lambda client: client.update_weights(first, "default"))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_are_those_of_the_sampling_temperature(target: Target, temperature: float) -> None:
    sampling = SamplingParams(temperature, max_new_tokens=30)
    prompts = [target.prompt(i, 5 + 11 * i) for i in range(6)]

    async def act(client: EngineClient) -> list[Completion]:
        calls = [client.generate(p, sampling, seed=i) for i, p in enumerate(prompts)]
        return await asyncio.gather(*calls)

    for prompt, done in zip(prompts, target.run(act), strict=True):
        assert (len(done.output_ids), done.finish) == (30, "length")
        assert target.off(prompt, done, temperature) < 1e-5


def test_greedy_takes_the_most_likely(target: Target) -> None:
    prompt, sampling = target.prompt(1), SamplingParams(temperature=0.0, max_new_tokens=12)
    done = target.run(lambda client: client.generate(prompt, sampling))
    table = target.references[0].score([prompt + done.output_ids])[0][len(prompt) - 1 : -1]
    assert table.argmax(-1).tolist() == done.output_ids


def test_a_stop_token_ends_the_call_and_stays(target: Target) -> None:
    prompt = target.prompt(2)
    greedy = SamplingParams(temperature=0.0, max_new_tokens=12)
    free = target.run(lambda client: client.generate(prompt, greedy))
    stop = free.output_ids[4]
    first = free.output_ids.index(stop)
    stopping = SamplingParams(temperature=0.0, max_new_tokens=12, stop_ids=(stop,))
    done = target.run(lambda client: client.generate(prompt, stopping))
    assert (done.output_ids, done.finish) == (free.output_ids[: first + 1], "stop")
    assert len(done.logprobs) == first + 1


def test_the_next_turn_of_an_episode_reuses_the_cache_exactly(target: Target) -> None:
    prompt, sampling = target.prompt(3), SamplingParams(max_new_tokens=20)

    async def act(client: EngineClient) -> tuple[list[int], Completion, Completion, Completion]:
        await client.flush()
        one = await client.generate(prompt, sampling, session="episode", seed=1)
        longer = [*prompt, *one.output_ids, *target.prompt(4, 7)]
        two = await client.generate(longer, sampling, session="episode", seed=2)
        await client.flush()
        again = await client.generate(longer, sampling, session="episode", seed=2)
        return longer, one, two, again

    longer, one, two, again = target.run(act)
    assert one.cached_tokens == again.cached_tokens == 0
    assert two.cached_tokens >= len(prompt)
    assert target.off(longer, two) < 1e-5
    assert target.off(longer, again) < 1e-5


def test_an_aborted_call_keeps_what_it_sampled(target: Target) -> None:
    prompt, sampling = target.prompt(5), SamplingParams(max_new_tokens=1500)

    async def act(client: EngineClient) -> Completion:
        for attempt in range(20):
            rid = f"long{attempt}"
            call = asyncio.create_task(client.generate(prompt, sampling, rid=rid))
            while not call.done():
                await asyncio.sleep(0.1)
                await client.abort(rid)  # one that comes too early does nothing
            if (done := call.result()).output_ids:
                return done
        raise AssertionError("it was never aborted while running")

    done = target.run(act)
    assert done.finish == "abort"
    assert 0 < len(done.output_ids) < 1500
    assert target.off(prompt, done) < 1e-5


def test_weights_change_from_disk_and_the_cache_with_them(target: Target) -> None:
    prompt, sampling = target.prompt(6), SamplingParams(max_new_tokens=20)

    async def act(client: EngineClient) -> list[Completion]:
        done = []
        for weights, version in ((0, "v0"), (1, "v1"), (0, "v2")):
            await client.update_weights(target.folders[weights], version)
            assert [info.weight_version for info in await client.model_info()] == [version]
            done.append(await client.generate(prompt, sampling, session="episode", seed=5))
        return done

    done = target.run(act)
    assert [c.weight_version for c in done] == ["v0", "v1", "v2"]
    assert [c.cached_tokens for c in done] == [0, 0, 0]
    assert [target.off(prompt, c, weights=w) < 1e-5 for c, w in zip(done, (0, 1, 0), strict=True)] == [True] * 3
    assert target.off(prompt, done[1], weights=0) > 1e-3


def test_an_update_under_load_never_mixes_versions(target: Target) -> None:
    """Eight episodes keep calling while the weights change five times under them."""
    sampling = SamplingParams(max_new_tokens=60)
    over: list[tuple[list[int], Completion]] = []

    async def act(client: EngineClient) -> None:
        await client.update_weights(target.folders[0], "v0")
        changing = True

        async def episode(number: int) -> None:
            while changing:
                prompt = target.prompt(100 + number)
                over.append((prompt, await client.generate(prompt, sampling, session=f"load{number}")))

        episodes = [asyncio.create_task(episode(n)) for n in range(8)]
        for change in range(1, 6):
            before = len(over)
            while len(over) < before + 4:
                await asyncio.sleep(0.01)
            await client.update_weights(target.folders[change % 2], f"v{change}")
        changing = False
        await asyncio.gather(*episodes)

    target.run(act)
    assert len({c.weight_version for _, c in over}) >= 4
    for prompt, done in over:
        if done.output_ids:
            weights = int(done.weight_version[1:]) % 2
            assert target.off(prompt, done, weights=weights) < 1e-5


def test_a_paused_engine_keeps_calls_until_it_continues(target: Target) -> None:
    sampling = SamplingParams(max_new_tokens=3)

    async def act(client: EngineClient) -> Completion:
        await client.pause()
        call = asyncio.create_task(client.generate(target.prompt(7), sampling))
        await asyncio.sleep(0.3)
        assert not call.done()
        await client.flush()
        await client.resume()
        return await call

    assert len(target.run(act).output_ids) == 3


def test_unknown_sampling_parameters_are_refused(target: Target) -> None:
    reply = target.post("/generate", {"input_ids": [1, 2], "sampling_params": {"bogus": 1}})
    assert reply.status_code == 400
    assert "bogus" in reply.text


def test_a_folder_without_weights_changes_nothing(target: Target, tmp_path: Path) -> None:
    (before,) = target.run(lambda client: client.model_info())
    with pytest.raises(EngineRefusedError):
        target.run(lambda client: client.update_weights(tmp_path, "nothing"))
    (after,) = target.run(lambda client: client.model_info())
    assert after.weight_version == before.weight_version
    target.run(lambda client: client.generate([1], SamplingParams(max_new_tokens=1)))  # it runs on


def test_health_and_model_info(target: Target) -> None:
    assert target.run(lambda client: client.healthy(deep=True))
    (info,) = target.run(lambda client: client.model_info())
    assert info.is_generation
    assert set(info.model_dump()) <= {*RECORDED["replies"]["model_info"], "internalize"}
    assert (info.internalize is not None) == target.local


def test_replies_hold_only_what_sglang_writes(target: Target) -> None:
    body = {
        "input_ids": target.prompt(8),
        "sampling_params": {"max_new_tokens": 2},
        "return_logprob": True,
        "rid": "x",
    }
    reply = target.post("/generate", body)
    assert reply.status_code == 200
    meta = reply.json()["meta_info"]
    assert set(meta) <= set(RECORDED["replies"]["meta_info"])
    assert (meta["id"], meta["prompt_tokens"], meta["completion_tokens"]) == ("x", 40, 2)
    assert [row[1] for row in meta["output_token_logprobs"]] == reply.json()["output_ids"]
    assert meta["finish_reason"] == {"type": "length", "length": 2}


def test_an_idle_engine_says_that_it_is(target: Target) -> None:
    loads = httpx.get(target.url + "/v1/loads", timeout=60.0, trust_env=False).json()["loads"]
    for load in loads:
        assert not target.local or set(load) <= set(RECORDED["replies"]["load"])
        assert load.get("num_running_reqs", 0) == load.get("num_waiting_reqs", 0) == 0  # SGLang leaves zeros out


def test_every_recorded_route_is_there(target: Target) -> None:
    for route, methods in RECORDED["routes"].items():
        if "GET" in methods:  # those that need a body refuse, but are found
            assert httpx.get(target.url + route, timeout=60.0, trust_env=False).status_code in (200, 400, 422)
        else:
            assert target.post(route, None).status_code in (400, 422)
