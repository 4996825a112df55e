"""torch_dist -> safetensors: any sharding, exact tensors, whole or absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from killing import killed_at_fsync
from safetensors.torch import load_file
from sharded import CONFIG, model, stacked, write
from torch import Tensor

from internalize.checkpoints import hf_names, resumable, runs, to_hf
from internalize.checkpoints.hf_names import TensorMismatchError
from internalize.checkpoints.resumable import folder_for
from internalize.checkpoints.safetensors import INDEX, ModelRows
from internalize.checkpoints.to_hf import write_weights
from internalize.errors import CorruptPayload, LeaseHeld, MissingPayload, UserError
from internalize.files import read_json, sha256_file, write_json

SHAPES = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 2, 1), (2, 2, 2), (1, 1, 4)]


def read(folder: Path) -> dict[str, Tensor]:
    """All tensors, by the safetensors package."""
    state: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        state |= load_file(path)
    return state


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) and a[name].dtype == b[name].dtype for name in a)


@pytest.mark.parametrize(("tp", "pp", "layers"), SHAPES)
@pytest.mark.parametrize("tied", [True, False])
def test_any_sharding_gives_exactly_the_model(tmp_path: Path, tp: int, pp: int, layers: int, tied: bool) -> None:
    config = {**CONFIG, "tie_word_embeddings": tied}
    state = model(config=config)
    folder = write(tmp_path / "iter", stacked(state, config), tp, pp, layers)
    write_weights(folder, config, tmp_path / "hf", "keep", shard_bytes=1000)
    assert same(read(tmp_path / "hf"), state)


def test_chunks_stored_column_by_column_are_read_right(tmp_path: Path) -> None:
    folder = write(tmp_path / "iter", stacked(model()), 2, 1, strided=True)
    write_weights(folder, CONFIG, tmp_path / "hf", "keep")
    assert same(read(tmp_path / "hf"), model())


def test_blocks_of_any_size_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "iter", stacked(model()), 2, 2)
    made = set()
    for block in (1, 40, 1 << 20):
        monkeypatch.setattr(to_hf, "BLOCK", block)
        names = write_weights(folder, CONFIG, tmp_path / str(block), "bfloat16", shard_bytes=700, writers=3)
        made.add(tuple(sha256_file(tmp_path / str(block) / name) for name in names))
    assert len(made) == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_types_are_converted_as_torch_does(tmp_path: Path, dtype: Any, stored: torch.dtype) -> None:
    state = model(dtype=stored)
    write_weights(write(tmp_path / "iter", stacked(state), 2), CONFIG, tmp_path / "hf", dtype)
    assert same(read(tmp_path / "hf"), {name: t.to(getattr(torch, dtype)) for name, t in state.items()})


def test_shards_are_bounded_and_indexed(tmp_path: Path) -> None:
    folder = write(tmp_path / "iter", stacked(model()))
    names = write_weights(folder, CONFIG, tmp_path / "hf", "float32", shard_bytes=600)
    index = read_json(tmp_path / "hf" / INDEX)
    assert names[-1] == INDEX
    assert set(index["weight_map"].values()) == set(names[:-1])
    assert index["metadata"]["total_size"] == sum(t.numel() * 4 for t in model().values())
    for name in names[:-1]:
        tensors = load_file(tmp_path / "hf" / name)
        assert len(tensors) == 1 or sum(t.numel() * 4 for t in tensors.values()) <= 600
    with ModelRows(tmp_path / "hf") as rows:
        assert set(rows.slots) == set(model())


def test_vocabulary_padding_is_dropped(tmp_path: Path) -> None:
    tensors = stacked(model())
    name = "embedding.word_embeddings.weight"
    tensors[name] = torch.cat([tensors[name], torch.zeros(6, 8)])
    write_weights(write(tmp_path / "iter", tensors, 2), CONFIG, tmp_path / "hf", "keep")
    assert same(read(tmp_path / "hf"), model())


def test_moments_are_left_out(tmp_path: Path) -> None:
    tensors = stacked(model())
    tensors["optimizer.state.exp_avg.embedding.word_embeddings.weight"] = torch.zeros(10, 8)
    write_weights(write(tmp_path / "iter", tensors), CONFIG, tmp_path / "hf", "keep")
    assert same(read(tmp_path / "hf"), model())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("decoder.layers.mlp.linear_fc2.weight"), "missing decoder.layers.mlp.linear_fc2.weight"),
        (lambda t: t.update(mtp=torch.zeros(2)), "unexpected mtp [2]"),
        (lambda t: t.update({"decoder.final_layernorm.weight": torch.zeros(9)}), "is [9], not [8]"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named_before_anything_is_written(
    tmp_path: Path, change: Any, words: str
) -> None:
    tensors = stacked(model())
    change(tensors)
    with pytest.raises(TensorMismatchError) as error:
        write_weights(write(tmp_path / "iter", tensors), CONFIG, tmp_path / "hf")
    assert words in error.value.got
    assert not (tmp_path / "hf").exists()


def test_rows_in_no_chunk_are_an_error_not_zeros(tmp_path: Path) -> None:
    import pickle

    folder = write(tmp_path / "iter", stacked(model()), 2)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    metadata.state_dict_metadata["decoder.layers.mlp.linear_fc1.weight"].chunks.pop()
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(CorruptPayload) as error:
        write_weights(folder, CONFIG, tmp_path / "hf")
    assert "linear_fc1" in error.value.expected


def test_a_damaged_blob_is_named_with_its_tensor(tmp_path: Path) -> None:
    folder = write(tmp_path / "iter", stacked(model()))
    file = folder / "__0_0.distcp"
    file.write_bytes(file.read_bytes().replace(b"_rebuild_tensor_v2", b"_rebuild_tensor_v9"))
    with pytest.raises(CorruptPayload) as error:
        write_weights(folder, CONFIG, tmp_path / "hf")
    assert "embedding" in error.value.expected
    assert "data.pkl" in error.value.got


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingPayload, match="no such checkpoint"):
        write_weights(tmp_path / "nothing", CONFIG, tmp_path / "hf")


@pytest.mark.parametrize("kill_at", [3, 9])
def test_a_killed_conversion_shows_nothing_and_goes_on(tmp_path: Path, kill_at: int) -> None:
    folder = write(tmp_path / "iter", stacked(model()), 2)
    names = write_weights(folder, CONFIG, tmp_path / "straight", "float32", shard_bytes=600)

    def convert() -> None:
        with folder_for(tmp_path / "hf") as work:
            write_weights(folder, CONFIG, work, "float32", shard_bytes=600, writers=2)

    killed_at_fsync(kill_at, convert)
    assert not (tmp_path / "hf").exists()
    whole = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "hf.converting").glob("*.safetensors")}
    assert len(whole) < len(names) - 1
    with folder_for(tmp_path / "hf") as work:
        write_weights(folder, CONFIG, work, "float32", shard_bytes=600)
    assert not (tmp_path / "hf.converting").exists()
    for name in names:
        assert sha256_file(tmp_path / "hf" / name) == sha256_file(tmp_path / "straight" / name)
    assert {name: (tmp_path / "hf" / name).stat().st_mtime_ns for name in whole} == whole, "kept, not written again"
    assert {path.name for path in (tmp_path / "hf").iterdir()} == set(names)


def test_files_of_another_conversion_are_not_kept(tmp_path: Path) -> None:
    one = write(tmp_path / "one", stacked(model(1)))
    two = write(tmp_path / "two", stacked(model(2)))
    write_weights(one, CONFIG, tmp_path / "hf.converting", "float32", shard_bytes=600)
    write_json(tmp_path / "hf.converting" / resumable.PLAN, {"identity": "of the first"})  # as if killed before its end
    with folder_for(tmp_path / "hf") as work:
        write_weights(two, CONFIG, work, "float32", shard_bytes=600)
    assert same(read(tmp_path / "hf"), model(2))


def test_a_finished_model_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "hf").mkdir()
    with pytest.raises(UserError, match="there already"), folder_for(tmp_path / "hf"):
        raise AssertionError("must not be entered")


def test_two_processes_do_not_make_one_folder(tmp_path: Path) -> None:
    with folder_for(tmp_path / "hf"), pytest.raises(LeaseHeld), folder_for(tmp_path / "hf"):
        raise AssertionError("must not be entered")


def test_runs_are_the_table_of_names_as_copies() -> None:
    state = model()
    for entry in hf_names.entries(CONFIG):
        parts = tuple(state[name] for name in entry.hf)
        fused = hf_names.fuse(entry, parts, CONFIG)
        built = torch.full_like(fused, float("nan"))
        for run in runs.runs(entry, CONFIG):
            built[run.at : run.at + run.rows] = parts[run.part][run.row : run.row + run.rows]
        assert torch.equal(built, fused)
