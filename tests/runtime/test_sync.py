"""After a sync every engine computes with what the trainer sent; otherwise the stale one is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from internalize.engine.folder import ModelFolder
from internalize.engine.local import LocalEngine
from internalize.errors import UserError
from internalize.files import read_json
from internalize.runtime.engines import EnginePool
from internalize.runtime.sync import FromDisk, StaleWeights, sync


@pytest.fixture
def transport(tmp_path: Path, model: Path) -> FromDisk:
    return FromDisk(tmp_path / "weights", model)


def test_all_engines_hold_exactly_what_was_sent(make_hosts: Any, publisher: Any, transport: FromDisk) -> None:
    hosts = make_hosts(2)
    pool = EnginePool(hosts, 8, 64)
    sync(publisher, pool.served(), "step0003", transport)
    for host in hosts.hosts:
        served = host.engine._weights.to_hf(host.engine.config)
        assert served.keys() == publisher.state.keys()
        assert all(torch.equal(served[name], tensor) for name, tensor in publisher.state.items())
        assert host.engine.weight_version == "step0003"


def test_a_version_is_a_whole_model_folder_and_replaces_the_one_before(
    make_hosts: Any, publisher: Any, transport: FromDisk
) -> None:
    served = EnginePool(make_hosts(1), 8, 64).served()
    sync(publisher, served, "step0001", transport)
    publisher.state = {name: tensor + 1 for name, tensor in publisher.state.items()}
    sync(publisher, served, "step0002", transport)
    assert [path.name for path in transport.root.iterdir()] == ["step0002"]
    folder = transport.root / "step0002"
    assert (folder / "tokenizer.json").exists()
    assert not (folder / "model.safetensors").exists()
    assert read_json(folder / "weights.json")["version"] == "step0002"
    engine = ModelFolder(folder).engine(slots=1)
    assert engine.served_digests() == read_json(folder / "weights.json")["tensors"]


def test_a_stale_engine_is_named_with_its_version(
    make_hosts: Any, publisher: Any, transport: FromDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = make_hosts(3)
    served = EnginePool(hosts, 8, 64).served()
    sync(publisher, served, "step0001", transport)
    monkeypatch.setattr(hosts.hosts[1], "load", lambda folder, version: None)  # says yes and does nothing
    publisher.state = {name: tensor * 1.5 for name, tensor in publisher.state.items()}
    with pytest.raises(StaleWeights, match="failed: engine 1 does not serve the weights of step0002") as error:
        sync(publisher, served, "step0002", transport)
    assert "engine 1 claims step0001" in error.value.got
    assert f"{len(publisher.state)} of {len(publisher.state)} tensors differ" in error.value.got
    assert {path.name for path in transport.root.iterdir()} == {"step0001", "step0002"}, "both are kept"


def test_the_right_label_on_the_wrong_weights_is_found(
    make_hosts: Any, publisher: Any, transport: FromDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = make_hosts(2)
    name = "model.layers.1.self_attn.o_proj.weight"  # square: a transposed tensor has the right shape
    load = LocalEngine.update_weights

    def transposing(engine: LocalEngine, state: Any, version: str) -> None:
        wrong = engine is hosts.hosts[0].engine
        load(engine, {**state, name: state[name].T.contiguous()} if wrong else state, version)

    monkeypatch.setattr(LocalEngine, "update_weights", transposing)
    with pytest.raises(StaleWeights, match="failed: engine 0 does not serve") as error:
        sync(publisher, EnginePool(hosts, 8, 64).served(), "step0001", transport)
    assert f"1 of {len(publisher.state)} tensors differ, first {name}" in error.value.got
    assert "engine 0 claims step0001" in error.value.got


def test_an_engine_that_refuses_says_why(make_hosts: Any, publisher: Any, transport: FromDisk) -> None:
    publisher.state = {name: tensor for name, tensor in publisher.state.items() if "layers.1.mlp" not in name}
    with pytest.raises(UserError, match="missing or has the wrong shape"):
        sync(publisher, EnginePool(make_hosts(2), 8, 64).served(), "step0001", transport)


def test_trainer_and_engines_change_places_between_publishing_and_loading(
    make_hosts: Any, publisher: Any, transport: FromDisk
) -> None:
    hosts = make_hosts(1)
    seen: list[bool] = []

    def between() -> None:
        seen.append((transport.root / "step0001" / "weights.json").exists())
        assert hosts.hosts[0].engine.weight_version == ""

    sync(publisher, EnginePool(hosts, 8, 64).served(), "step0001", transport, between)
    assert seen == [True]
