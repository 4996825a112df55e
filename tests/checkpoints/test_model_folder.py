"""A checkpoint root as a model folder, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sharded import CONFIG, model, stacked, write
from test_to_hf import read, same
from typer.testing import CliRunner

from internalize.checkpoints import layout
from internalize.checkpoints.arguments import ConfigMismatchError, read_common
from internalize.checkpoints.model_folder import write_model, write_root
from internalize.cli import app
from internalize.errors import MissingPayload, UserError
from internalize.files import read_json, write_json, write_text

FILES = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "merges.txt",
    "model.safetensors.index.json",
    "model-00001-of-00001.safetensors",
    "megatron/args.json",
    "megatron/common.pt",
    "megatron/latest_checkpointed_iteration.txt",
    "megatron/rollout/global_dataset_state_dict_4.pt",
}


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A model folder's small files; its weights and its README belong to itself."""
    folder = tmp_path / "origin"
    config = {**CONFIG, "dtype": "float32", "eos_token_id": 2}
    write_json(folder / "config.json", config)
    for name in ("tokenizer.json", "merges.txt", "README.md", "model.safetensors"):
        write_text(folder / name, name)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkpoint root at iteration 4, TP2 x PP2."""
    folder = tmp_path / "root"
    write(layout.iteration_folder(folder, 4), stacked(model()), 2, 2)
    torch.save(
        {"iteration": 4, "args": {"model_config": CONFIG, "optimizer": {}, "seed": 3, "steps": 9, "lr": 0.1}},
        layout.iteration_folder(folder, 4) / "common.pt",
    )
    layout.write_cursor(folder, 4, {"next_step": 5, "seed": 3})
    layout.write_tracker(folder, 4)
    return folder


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_model_folder_says_everything_about_itself(origin: Path, root: Path, tmp_path: Path) -> None:
    facts = write_model(root, 4, origin, tmp_path / "hf")
    assert names(tmp_path / "hf") == FILES
    assert facts["dtype"] == "bfloat16"
    assert facts["tensors"] == len(model())
    assert facts["parameters"] * 2 == facts["bytes"] == 2 * sum(t.numel() for t in model().values())
    config = read_json(tmp_path / "hf" / "config.json")
    assert config == {**read_json(origin / "config.json"), "dtype": "bfloat16"}
    assert read_json(tmp_path / "hf" / "generation_config.json") == {"eos_token_id": 2}
    args = read_json(tmp_path / "hf/megatron/args.json")
    assert (args["iteration"], args["args"]["seed"]) == (4, 3)


def test_there_and_back_keeps_weights_iteration_arguments_and_cursor(origin: Path, root: Path, tmp_path: Path) -> None:
    write_model(root, 4, origin, tmp_path / "hf", "keep")
    assert write_root(tmp_path / "hf", tmp_path / "again") == 4
    assert layout.read_tracker(tmp_path / "again") == 4
    assert layout.read_cursor(tmp_path / "again", 4) == {"next_step": 5, "seed": 3}
    common = read_common(layout.iteration_folder(tmp_path / "again", 4) / "common.pt")
    assert (common["args"]["steps"], common["args"]["has_moments"]) == (9, False)
    write_model(tmp_path / "again", 4, tmp_path / "hf", tmp_path / "hf2", "keep")
    assert same(read(tmp_path / "hf2"), model())


def test_a_plain_model_folder_starts_at_iteration_0(origin: Path, root: Path, tmp_path: Path) -> None:
    write_model(root, 4, origin, tmp_path / "hf", "keep")
    for path in sorted((tmp_path / "hf" / "megatron").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    assert write_root(tmp_path / "hf", tmp_path / "again") == 0
    assert layout.read_cursor(tmp_path / "again", 0)["next_step"] == 0


@pytest.mark.parametrize(("key", "value"), [("hidden_size", 16), ("rope_theta", 5.0), ("tie_word_embeddings", False)])
def test_arguments_of_another_model_are_refused(origin: Path, root: Path, tmp_path: Path, key: str, value: Any) -> None:
    torch.save(
        {"iteration": 4, "args": {"model_config": {**CONFIG, key: value}}},
        layout.iteration_folder(root, 4) / "common.pt",
    )
    with pytest.raises(ConfigMismatchError) as error:
        write_model(root, 4, origin, tmp_path / "hf")
    assert f"{key} {value!r}" in error.value.got
    assert not (tmp_path / "hf").exists()


def test_without_its_cursor_a_checkpoint_is_not_whole(origin: Path, root: Path, tmp_path: Path) -> None:
    layout.cursor_path(root, 4).unlink()
    with pytest.raises(MissingPayload, match="no data cursor"):
        write_model(root, 4, origin, tmp_path / "hf")
    command = ["convert", "--from", str(root), "--to", str(tmp_path / "out"), "--origin", str(origin)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "no data cursor" in done.output
    assert names(tmp_path / "out") == {name for name in FILES if not name.startswith("megatron/")}


def test_the_command_takes_root_or_iteration_and_goes_both_ways(origin: Path, root: Path, tmp_path: Path) -> None:
    for i, source in enumerate((root, layout.iteration_folder(root, 4))):
        command = ["convert", "--from", str(source), "--to", str(tmp_path / f"hf{i}"), "--origin", str(origin)]
        done = CliRunner().invoke(app, [*command, "--dtype", "float32"])
        assert done.exit_code == 0, done.output
        assert same(read(tmp_path / f"hf{i}"), model())
    done = CliRunner().invoke(app, ["convert", "--from", str(tmp_path / "hf0"), "--to", str(tmp_path / "back")])
    assert done.exit_code == 0, done.output
    assert layout.read_tracker(tmp_path / "back") == 4


@pytest.mark.parametrize(
    ("words", "match"), [(["--dtype", "int4"], "unknown --dtype"), ([], "not named"), (["--origin", "."], "not found")]
)
def test_what_is_missing_is_said(root: Path, tmp_path: Path, words: list[str], match: str) -> None:
    command = ["convert", "--from", str(root), "--to", str(tmp_path / "hf"), *words]
    with pytest.raises(UserError, match=match):
        CliRunner().invoke(app, command, catch_exceptions=False)
    assert not (tmp_path / "hf").exists()
