from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from internalize import files
from internalize.checkpoints import layout
from internalize.errors import CorruptPayload, MissingPayload

CURSOR: dict[str, Any] = {"sample_offset": 96, "epoch_id": 1, "sample_index": 512, "metadata": {"arm": "x"}}


def test_names_are_megatrons_and_slimes(tmp_path: Path) -> None:
    assert layout.iteration_folder(tmp_path, 12) == tmp_path / "iter_0000012"
    assert layout.cursor_path(tmp_path, 12) == tmp_path / "rollout" / "global_dataset_state_dict_12.pt"


def test_tracker_and_cursor_round_trip(tmp_path: Path) -> None:
    layout.iteration_folder(tmp_path, 3).mkdir()
    layout.write_cursor(tmp_path, 3, CURSOR)
    layout.write_tracker(tmp_path, 3)
    assert layout.read_tracker(tmp_path) == 3
    assert layout.read_cursor(tmp_path, 3) == CURSOR
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "3"


def test_equal_cursors_have_equal_bytes_wherever_they_lie(tmp_path: Path) -> None:
    for root in ("a", "b"):
        layout.write_cursor(tmp_path / root, 3, {**CURSOR, "metadata": {"arm": "".join(["x"])}})
    first, second = (files.sha256_file(layout.cursor_path(tmp_path / root, 3)) for root in ("a", "b"))
    assert first == second


def test_the_tracker_comes_last(tmp_path: Path) -> None:
    with pytest.raises(MissingPayload, match="not complete"):
        layout.write_tracker(tmp_path, 3)
    layout.iteration_folder(tmp_path, 3).mkdir()
    with pytest.raises(MissingPayload) as error:
        layout.write_tracker(tmp_path, 3)
    assert error.value.where.endswith("global_dataset_state_dict_3.pt")
    assert not (tmp_path / layout.TRACKER).exists()


def test_a_missing_tracker_or_cursor_never_means_start_over(tmp_path: Path) -> None:
    for read in (layout.read_tracker, lambda root: layout.read_cursor(root, 3)):
        with pytest.raises(MissingPayload) as error:
            read(tmp_path)
        assert error.value.fix


def test_damage_is_reported(tmp_path: Path) -> None:
    (tmp_path / layout.TRACKER).write_text("release")
    with pytest.raises(CorruptPayload, match="tracker"):
        layout.read_tracker(tmp_path)
    path = layout.cursor_path(tmp_path, 3)
    path.parent.mkdir()
    path.write_bytes(b"nonsense")
    with pytest.raises(CorruptPayload, match="cursor"):
        layout.read_cursor(tmp_path, 3)
    torch.save([1, 2], path)
    with pytest.raises(CorruptPayload, match="cursor"):
        layout.read_cursor(tmp_path, 3)


def test_iterations_are_listed_in_order_and_strangers_ignored(tmp_path: Path) -> None:
    for name in ("iter_0000012", "iter_0000002", "iter_x", "iter_12", ".iter_0000003.tmp", "rollout"):
        (tmp_path / name).mkdir()
    assert layout.iterations(tmp_path) == [2, 12]
    assert layout.iterations(tmp_path / "nowhere") == []
