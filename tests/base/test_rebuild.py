"""`internalize base --rebuild`: only a base that passes replaces what is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from internalize.base.prebuilt import FILES, PROVENANCE, WEIGHTS, read_provenance, verify_files
from internalize.base.rebuild import rebuild
from internalize.base.recipe import Recipe
from internalize.errors import GateFailed
from internalize.files import sha256_file, tree_files

TINY = Recipe(
    hidden_size=32,
    layers=1,
    heads=2,
    kv_heads=1,
    head_dim=16,
    intermediate_size=32,
    conversations=2,
    steps=2,
    check_every=2,
    check_episodes=4,
)
OPEN = {
    "teacher_clears_min": 0.0,
    "base_clears_max": 1.0,
    "wrong_rules_clears_max": 1.0,
    "episodes": 8,
    "seed": 7,
}


def test_a_base_that_fails_leaves_the_folder_as_it_was(game_settings: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / WEIGHTS).write_text("old")
    with pytest.raises(GateFailed):
        rebuild(folder, game_settings, TINY, {**OPEN, "teacher_clears_min": 0.9}, lambda text: None)
    assert [path.name for path in tree_files(tmp_path)] == [WEIGHTS]
    assert (folder / WEIGHTS).read_text() == "old"


def test_a_base_that_passes_comes_with_gate_and_cost(game_settings: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "base"
    rebuild(folder, game_settings, TINY, OPEN, lambda text: None, note="a test")
    provenance = read_provenance(folder)
    verify_files(folder, provenance)
    assert sorted(path.name for path in tree_files(tmp_path)) == sorted([*FILES, PROVENANCE])
    assert provenance.gate is not None
    assert provenance.gate["teacher"]["episodes"] == 8
    assert provenance.cost is not None
    assert provenance.cost["training_cpu_s"] > 0
    assert provenance.note == "a test"


@pytest.mark.slow
def test_the_shipped_base_can_be_made_again(repository: Path, game_settings: dict[str, Any], tmp_path: Path) -> None:
    """About 270 CPU seconds. Bits are equal on the torch build and processor that made the shipped base; the
    gate must hold anywhere."""
    shipped = read_provenance(repository / "prebuilt" / "dipwheel")
    bounds = {
        "teacher_clears_min": 0.9,
        "base_clears_max": 0.1,
        "wrong_rules_clears_max": 0.1,
        "episodes": 384,
        "seed": 7,
    }
    made = rebuild(tmp_path / "base", game_settings, Recipe(), bounds, print)
    assert made.recipe == shipped.recipe
    assert made.gate is not None
    assert made.gate["passed"] is True
    same = sha256_file(tmp_path / "base" / WEIGHTS) == shipped.files[WEIGHTS]
    print("bit-equal to the shipped base:", same)
