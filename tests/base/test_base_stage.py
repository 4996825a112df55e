"""The base stage: shipped when it fits, trained when it does not, an error when it is damaged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from internalize.base.prebuilt import (
    FILES,
    PROVENANCE,
    WEIGHTS,
    prebuilt_digest,
    read_provenance,
    verify_files,
)
from internalize.base.recipe import Recipe
from internalize.base.stage import build
from internalize.errors import CorruptPayload, MissingPayload
from internalize.files import sha256_file, tree_files
from internalize.rollout.actor import load_engine

TINY: dict[str, Any] = {
    **Recipe().plain(),
    "hidden_size": 32,
    "layers": 1,
    "heads": 2,
    "kv_heads": 1,
    "head_dim": 16,
    "intermediate_size": 32,
    "conversations": 2,
    "steps": 2,
    "check_every": 2,
    "check_episodes": 4,
}


def quiet(text: str) -> None:
    """Progress goes nowhere."""


def names(folder: Path) -> list[str]:
    return [path.name for path in tree_files(folder)]


def test_the_shipped_base_is_taken_as_it_is(repository: Path, game_settings: dict[str, Any], tmp_path: Path) -> None:
    shipped = repository / "prebuilt" / "dipwheel"
    spec = {"game": game_settings, "prebuilt": str(shipped), "recipe": Recipe().plain()}
    facts = build(tmp_path, spec, {}, quiet)
    assert facts["which"] == "prebuilt"
    assert facts["sha256"] == sha256_file(shipped / WEIGHTS) == sha256_file(tmp_path / WEIGHTS)
    assert names(tmp_path) == sorted([*FILES, PROVENANCE])
    engine, template, config = load_engine(tmp_path)
    assert facts["vocabulary"] == template.vocab.digest()
    assert config["vocab_size"] == len(template.vocab)
    assert engine.weight_version == facts["sha256"][:12]


def test_a_damaged_shipped_base_is_an_error_and_not_a_training_run(
    repository: Path, game_settings: dict[str, Any], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(repository / "prebuilt" / "dipwheel", tmp_path / "copy"))
    (copy / WEIGHTS).write_bytes(b"no")
    out = tmp_path / "out"
    out.mkdir()
    spec = {"game": game_settings, "prebuilt": str(copy), "recipe": Recipe().plain()}
    with pytest.raises(CorruptPayload):
        build(out, spec, {}, quiet)
    assert names(out) == []


def test_a_missing_shipped_base_is_an_error(game_settings: dict[str, Any], tmp_path: Path) -> None:
    spec = {"game": game_settings, "prebuilt": str(tmp_path / "nowhere"), "recipe": Recipe().plain()}
    with pytest.raises(MissingPayload, match="no prebuilt base"):
        build(tmp_path, spec, {}, quiet)


def test_a_base_that_changed_under_the_workflow_is_an_error(
    repository: Path, game_settings: dict[str, Any], tmp_path: Path
) -> None:
    shipped = repository / "prebuilt" / "dipwheel"
    spec = {"game": game_settings, "prebuilt": str(shipped), "recipe": Recipe().plain()}
    build(tmp_path, {**spec, "prebuilt_digest": prebuilt_digest(shipped)}, {}, quiet)
    with pytest.raises(CorruptPayload, match="changed"):
        build(tmp_path, {**spec, "prebuilt_digest": "0" * 64}, {}, quiet)


def test_other_rules_get_a_base_of_their_own(repository: Path, game_settings: dict[str, Any], tmp_path: Path) -> None:
    stations = game_settings["rules"]["stations"]
    swapped = {**stations, "N": stations["S"], "S": stations["N"]}
    rules = {**game_settings["rules"], "stations": swapped}
    lines: list[str] = []
    spec = {
        "game": {"kind": "dipwheel", "rules": rules},
        "prebuilt": str(repository / "prebuilt" / "dipwheel"),
        "recipe": TINY,
    }
    facts = build(tmp_path, spec, {}, lines.append)
    assert facts["which"] == "trained"
    assert "held out other stations" in facts["why"]
    assert "held out other stations" in lines[0]
    provenance = read_provenance(tmp_path)
    verify_files(tmp_path, provenance)
    assert provenance.held_out["N"] == "wipe"
    assert provenance.cost is None  # seconds would make two runs differ
    assert load_engine(tmp_path)[2]["hidden_size"] == 32


def test_two_trainings_give_equal_bytes(game_settings: dict[str, Any], tmp_path: Path) -> None:
    sums = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        facts = build(folder, {"game": game_settings, "prebuilt": None, "recipe": TINY}, {}, quiet)
        sums.append([sha256_file(path) for path in tree_files(folder)])
        assert facts["which"] == "trained"
    assert sums[0] == sums[1]
