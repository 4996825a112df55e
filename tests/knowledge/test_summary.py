from __future__ import annotations

from typing import Any

from internalize.files import read_json, read_jsonl
from internalize.games.dipwheel import DipWheel
from internalize.knowledge.dipwheel import DipwheelLexicon
from internalize.knowledge.summary import counts, coverage


def test_counts_add_up_to_the_candidates(built: Any) -> None:
    table = built.facts["counts"]
    assert sum(n for row in table.values() for n in row.values()) == built.facts["candidates"]
    assert sum(row["verified"] for row in table.values()) == built.facts["atoms_verified"] == len(built.atoms)
    of_atoms = counts(built.atoms)
    assert {kind: row["verified"] for kind, row in of_atoms.items()} == {
        kind: row["verified"] for kind, row in table.items() if row["verified"]
    }


def test_every_station_pot_level_region_colour_and_pair_is_covered(built: Any) -> None:
    covered = read_json(built.folder / "coverage.json")
    assert {name: len(part["atoms"]) for name, part in covered.items()} == {
        "station": 6,
        "pot": 3,
        "level": 6,
        "region": 6,
        "colour": 3,
        "pair": 18,
    }
    assert all(part["missing"] == [] for part in covered.values())


def test_coverage_names_what_is_missing(built: Any, game: DipWheel) -> None:
    atoms = [atom for atom in built.atoms if atom.fact in ("left@N", "red@b")]
    covered = coverage(atoms, DipwheelLexicon(game))
    assert covered["station"]["atoms"]["N"] == 2  # the colour fact dips anywhere
    assert covered["region"]["missing"] == ["right", "top", "bottom", "wipe", "trap"]
    assert covered["colour"]["missing"] == ["green", "blue"]
    assert covered["pair"]["missing"] == list(covered["pair"]["atoms"])


def test_the_report_states_the_counts_of_the_ledger(built: Any) -> None:
    text = (built.folder / "report.md").read_text()
    for kind, row in built.facts["counts"].items():
        assert f"| {kind} | {' | '.join(map(str, row.values()))} |" in text
    assert " ".join(f"`{fact}`" for fact in built.facts["prompt_facts"]) in text
    assert "Held out from training: `wipe@S`." in text
    vacuous = [row for row in read_jsonl(built.folder / "ledger.jsonl") if row["verdict"]["status"] == "vacuous"]
    assert vacuous
    assert all(row["claim"] in text for row in vacuous if row["provenance"]["origins"][0]["origin"] != "mutation")
