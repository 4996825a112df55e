"""Who converts what, and that nothing a bridge drops goes unnoticed. (megatron-bridge itself does not import here: a
double with the signatures of its source stands in.)"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from sharded import CONFIG, model, stacked, write

from internalize.checkpoints.bridges import MegatronBridge, OwnTable, converter_for
from internalize.checkpoints.hf_names import TensorMismatchError
from internalize.errors import UserError
from internalize.files import write_json

HYBRID = {**CONFIG, "model_type": "qwen3_5"}


def nothing(text: str) -> None:
    pass


def hf(folder: Path, state: dict[str, torch.Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", HYBRID)
    save_file(state, folder / "model.safetensors")
    return folder


@pytest.fixture
def bridge(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """megatron.bridge as its source declares it; writes the tensors that `said["writes"]` holds."""
    said: dict[str, Any] = {"writes": model()}

    class AutoBridge:
        @classmethod
        def from_hf_pretrained(cls, path: str, **kwargs: Any) -> AutoBridge:
            said["origin"] = path
            return cls()

        @classmethod
        def import_ckpt(cls, hf_model_id: str, megatron_path: str, **kwargs: Any) -> None:
            said["import"] = (hf_model_id, megatron_path)

        def export_ckpt(
            self,
            megatron_path: str,
            hf_path: str,
            show_progress: bool = True,
            strict: bool = False,
            source_path: Any = None,
        ) -> None:
            said["export"] = (megatron_path, strict)
            hf(Path(hf_path), said["writes"])

    module = ModuleType("megatron.bridge")
    module.AutoBridge = AutoBridge  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "megatron.bridge", module)
    return said


def test_the_type_of_model_decides() -> None:
    assert isinstance(converter_for(CONFIG), OwnTable)
    assert isinstance(converter_for(HYBRID), MegatronBridge)
    with pytest.raises(UserError, match="no converter") as error:
        converter_for({"model_type": "llama"})
    assert error.value.got == "llama"


def test_without_megatron_bridge_the_error_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs megatron-bridge") as error:
        MegatronBridge().to_hf(tmp_path, tmp_path, tmp_path / "out", "keep", 1, nothing)
    assert "GPU image" in error.value.expected


def test_the_bridge_gets_checkpoint_and_origin(bridge: dict[str, Any], tmp_path: Path) -> None:
    origin = hf(tmp_path / "origin", model(1))
    names = MegatronBridge().to_hf(tmp_path / "iter_0000003", origin, tmp_path / "out", "keep", 1, nothing)
    assert names == ["model.safetensors"]
    assert (bridge["origin"], bridge["export"]) == (str(origin), (str(tmp_path / "iter_0000003"), True))
    MegatronBridge().from_hf(origin, tmp_path / "iter_0000000", 0, {}, "keep", nothing)
    assert bridge["import"] == (str(origin), str(tmp_path / "iter_0000000"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.pop("model.norm.weight"), "missing model.norm.weight [8]"),
        (lambda s: s.update(mtp=torch.zeros(1)), "unexpected mtp"),
        (lambda s: s.update({"model.norm.weight": torch.zeros(9)}), "model.norm.weight is [9], not [8]"),
    ],
)
def test_what_a_bridge_drops_or_bends_is_named(bridge: dict[str, Any], tmp_path: Path, change: Any, words: str) -> None:
    origin = hf(tmp_path / "origin", model(1))
    change(bridge["writes"])
    with pytest.raises(TensorMismatchError) as error:
        MegatronBridge().to_hf(tmp_path, origin, tmp_path / "out", "keep", 1, nothing)
    assert words in error.value.got


def test_a_type_that_the_bridge_did_not_write_is_an_error(bridge: dict[str, Any], tmp_path: Path) -> None:
    origin = hf(tmp_path / "origin", model(1))
    with pytest.raises(TensorMismatchError) as error:
        MegatronBridge().to_hf(tmp_path, origin, tmp_path / "out", "bfloat16", 1, nothing)
    assert "torch.float32" in error.value.got


def test_the_own_table_goes_both_ways(tmp_path: Path) -> None:
    write(tmp_path / "iter_0000000", stacked(model()), 2)
    origin = tmp_path / "origin"
    origin.mkdir()
    write_json(origin / "config.json", CONFIG)
    OwnTable().to_hf(tmp_path / "iter_0000000", origin, tmp_path / "hf", "keep", 1 << 20, nothing)
    write_json(tmp_path / "hf" / "config.json", CONFIG)
    OwnTable().from_hf(tmp_path / "hf", tmp_path / "iter_0000001", 1, {}, "keep", nothing)
    assert (tmp_path / "iter_0000001" / "metadata.json").exists()
