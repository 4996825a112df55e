"""The shipped base: intact, made for this study, and refused when it is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from internalize.base.prebuilt import (
    FILES,
    PROVENANCE,
    WEIGHTS,
    difference,
    prebuilt_digest,
    read_provenance,
    verify_files,
)
from internalize.base.recipe import Recipe
from internalize.base.stage import held_out
from internalize.errors import CorruptPayload, MissingPayload
from internalize.files import read_json, write_json
from internalize.games.dipwheel import DipWheel, Rules
from internalize.language.template import Template
from internalize.language.vocabulary import Vocabulary


@pytest.fixture
def shipped(repository: Path) -> Path:
    return repository / "prebuilt" / "dipwheel"


@pytest.fixture
def copy(shipped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shipped, tmp_path / "copy"))


def test_the_shipped_base_is_what_its_provenance_says(shipped: Path) -> None:
    provenance = read_provenance(shipped)
    verify_files(shipped, provenance)
    assert Vocabulary.load(shipped).digest() == provenance.vocabulary
    assert (shipped / WEIGHTS).stat().st_size <= 1_500_000


def test_the_shipped_base_stands_in_for_the_default_recipe(shipped: Path, game: DipWheel, template: Template) -> None:
    provenance = read_provenance(shipped)
    assert difference(provenance, game.name, held_out(game), template.vocab.digest(), Recipe()) == ""


def test_the_shipped_base_passed_its_gate(shipped: Path) -> None:
    gate = read_provenance(shipped).gate
    assert gate is not None
    assert gate["passed"] is True
    assert gate["teacher"]["episodes"] >= 384
    assert gate["base"]["episodes"] >= 384
    assert gate["teacher"]["clear_rate"] >= 0.95
    assert gate["base"]["clear_rate"] <= 0.08
    assert gate["wrong_rules"]["clear_rate"] <= 0.08


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_refused(copy: Path, name: str) -> None:
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(bytes(data))
    with pytest.raises(CorruptPayload) as error:
        verify_files(copy, read_provenance(copy))
    assert name in error.value.where


def test_a_missing_file_is_named(copy: Path) -> None:
    (copy / WEIGHTS).unlink()
    with pytest.raises(MissingPayload) as error:
        verify_files(copy, read_provenance(copy))
    assert WEIGHTS in error.value.where


def test_without_provenance_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(MissingPayload) as error:
        read_provenance(tmp_path)
    assert "base.prebuilt" in error.value.fix


def test_other_json_is_no_provenance(copy: Path) -> None:
    write_json(copy / PROVENANCE, {**read_json(copy / PROVENANCE), "colour": "blue"})
    with pytest.raises(CorruptPayload, match="colour"):
        read_provenance(copy)


def test_the_digest_changes_with_any_stated_hash(copy: Path) -> None:
    before = prebuilt_digest(copy)
    raw = read_json(copy / PROVENANCE)
    raw["files"][WEIGHTS] = "0" * 64
    write_json(copy / PROVENANCE, raw)
    assert prebuilt_digest(copy) != before


def test_each_difference_is_said(shipped: Path, game: DipWheel, template: Template) -> None:
    provenance, ours = read_provenance(shipped), held_out(game)
    digest = template.vocab.digest()
    other = held_out(DipWheel(Rules(game.rules.regions[::-1], game.rules.paints)))
    assert "game" in difference(provenance, "cd82", ours, digest, Recipe())
    assert "held out other stations" in difference(provenance, game.name, other, digest, Recipe())
    assert "vocabulary" in difference(provenance, game.name, ours, "0" * 64, Recipe())
    assert "steps" in difference(provenance, game.name, ours, digest, Recipe(steps=10))


def test_other_pots_need_no_other_base(shipped: Path, game: DipWheel, template: Template) -> None:
    """The whole station permutation is held out, with every arrangement of pots."""
    repainted = DipWheel(Rules(game.rules.regions, game.rules.paints[::-1]))
    provenance = read_provenance(shipped)
    assert difference(provenance, game.name, held_out(repainted), template.vocab.digest(), Recipe()) == ""
