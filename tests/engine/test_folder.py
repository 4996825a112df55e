from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from internalize.engine.folder import INDEX, ModelFolder
from internalize.errors import CorruptPayload, MissingPayload, UserError
from internalize.files import write_json


def _sharded(folder: Path, plain: Path, state: dict[str, Tensor]) -> ModelFolder:
    names = sorted(state)
    shards = {"model-1.safetensors": names[:5], "model-2.safetensors": names[5:]}
    shutil.copy(plain / "config.json", folder)
    for file, part in shards.items():
        save_file({name: state[name] for name in part}, folder / file)
    write_json(folder / INDEX, {"weight_map": {name: file for file, part in shards.items() for name in part}})
    return ModelFolder(folder)


def test_shards_load_as_one_file(
    tmp_path: Path, folders: list[Path], make_state: Callable[[int], dict[str, Tensor]]
) -> None:
    state = make_state(0)
    folder = _sharded(tmp_path, folders[0], state)
    for loaded in (folder.state(), ModelFolder(folders[0]).state()):
        assert sorted(loaded) == sorted(state)
        assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())
    (tmp_path / "model-2.safetensors").unlink()
    with pytest.raises(MissingPayload, match="model-2"):
        folder.state()


def test_equal_weights_have_equal_versions(tmp_path: Path, folders: list[Path]) -> None:
    shutil.copytree(folders[0], tmp_path / "copy")
    one, two, copy = (ModelFolder(folder).version() for folder in (*folders, tmp_path / "copy"))
    assert one == copy != two
    assert len(one) == 12


def test_damaged_folders_are_named(tmp_path: Path, folders: list[Path]) -> None:
    folder = ModelFolder(tmp_path)
    with pytest.raises(UserError, match=r"not a model folder"):
        folder.state()
    shutil.copy(folders[0] / "config.json", tmp_path)
    for open_it in (folder.state, folder.version):
        with pytest.raises(MissingPayload, match=r"model\.safetensors"):
            open_it()
    (tmp_path / "model.safetensors").write_bytes((folders[0] / "model.safetensors").read_bytes()[:100])
    with pytest.raises(CorruptPayload, match=r"model\.safetensors"):
        folder.state()
