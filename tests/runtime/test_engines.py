"""Several engines answer like one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from internalize.engine.protocol import SamplingParams
from internalize.errors import UserError
from internalize.runtime.engines import EnginePool
from internalize.seeds import np_rng

SAMPLING = SamplingParams(max_new_tokens=6, stop_ids=(3,))


def loaded(hosts: Any, model: Path) -> EnginePool:
    pool = EnginePool(hosts, 8, 64)
    for engine in pool.served():
        engine.load(model, "v0")
    return pool


def generate(pool: EnginePool, sessions: list[str], turn: int = 0) -> list[tuple[list[int], list[float]]]:
    prompts = [[5 + turn, len(name), 7] for name in sessions]
    rngs = [np_rng("test", name, turn) for name in sessions]
    return [(c.output_ids, c.logprobs) for c in pool.generate(prompts, sessions, rngs, SAMPLING)]


def test_three_engines_sample_what_one_samples(make_hosts: Any, model: Path) -> None:
    sessions = ["a", "bb", "ccc", "dddd", "eeeee", "ffffff", "g"]
    one, three = (generate(loaded(make_hosts(n), model), sessions) for n in (1, 3))
    for (ids, logprobs), (wanted, expected) in zip(three, one, strict=True):
        assert ids == wanted
        assert logprobs == pytest.approx(expected, abs=1e-5)


def test_a_session_stays_and_a_new_one_goes_where_the_fewest_are(make_hosts: Any, model: Path) -> None:
    hosts = make_hosts(2)
    pool = loaded(hosts, model)
    generate(pool, ["a", "b", "c"])
    assert [set(host.engine._slots._tokens) for host in hosts.hosts] == [{"a", "c"}, {"b"}]
    pool.release(["a", "nobody"])
    generate(pool, ["d", "c", "b"], turn=1)
    assert [set(host.engine._slots._tokens) for host in hosts.hosts] == [{"c", "d"}, {"b"}]
    assert pool.slots == 16


def test_offloading_gives_up_weights_and_caches(make_hosts: Any, model: Path) -> None:
    hosts = make_hosts(1)
    pool = loaded(hosts, model)
    before = generate(pool, ["a"])
    pool.all("offload")
    engine = hosts.hosts[0].engine
    assert (engine._weights, engine._store) == (None, [])
    with pytest.raises(UserError, match="no weights"):
        generate(pool, ["a"])
    pool.all("onload")
    pool.served()[0].load(model, "v0")
    assert generate(pool, ["a"]) == before
