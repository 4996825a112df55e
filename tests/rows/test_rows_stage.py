"""The rows stage: payload files, facts, equal bytes, errors that say what to do."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from internalize.errors import CorruptPayload, UserError
from internalize.files import read_json, sha256_file, tree_files
from internalize.records import SftRow
from internalize.rows import stage
from internalize.rows.batches import read_rows

FILES = [
    "SHA256SUMS",
    "audit.json",
    "build_report.json",
    "coverage.json",
    "episodes.json",
    "rows.jsonl.gz",
    "token_stats.json",
]
SOURCES: list[tuple[dict[str, Any], str | None]] = [
    ({"type": "recite", "harvest": "teacher"}, "teacher"),
    ({"type": "nostance", "harvest": "teacher"}, "teacher"),
    ({"type": "actctrl", "harvest": "own"}, "own"),
    ({"type": "replay", "harvest": "own"}, "own"),
    ({"type": "armc", "harvest": "own", "facts_per_think": 2, "pick": "random"}, "own"),
    ({"type": "declarative", "ending": "tool_call", "wording": "other"}, None),
    ({"type": "claims"}, None),
    ({"type": "claimform"}, None),
]


def run(
    folder: Path, rows: dict[str, Any], inputs: dict[str, Any], game: dict[str, Any], **more: Any
) -> dict[str, Any]:
    folder.mkdir()
    given = {name: inputs[name] for name in ("base", "knowledge")}
    given |= {name: value for name, value in more.items() if value is not None}
    return stage.build(folder, {"game": game, "rows": rows}, given, lambda text: None)


@pytest.mark.parametrize(("rows", "harvest"), SOURCES, ids=lambda value: str(value)[:24])
def test_payload_and_facts_agree_and_bytes_are_equal(
    rows: dict[str, Any],
    harvest: str | None,
    stage_inputs: dict[str, Any],
    game_settings: dict[str, Any],
    tmp_path: Path,
) -> None:
    given = {"harvest": stage_inputs[harvest]} if harvest else {}
    facts = run(tmp_path / "one", rows, stage_inputs, game_settings, **given)
    assert facts == run(tmp_path / "two", rows, stage_inputs, game_settings, **given)
    one, two = tree_files(tmp_path / "one"), tree_files(tmp_path / "two")
    assert [path.name for path in one] == FILES
    assert [sha256_file(path) for path in one] == [sha256_file(path) for path in two]
    made = read_rows(tmp_path / "one").rows
    assert all(isinstance(row, SftRow) for row in made)
    stats = read_json(tmp_path / "one" / "token_stats.json")
    assert facts["rows"] == len(made) == stats["rows"] > 0
    assert facts["tokens"] == sum(len(row.tokens) for row in made) == stats["tokens"]
    assert facts["trained_tokens"] == sum(w > 0 for row in made for w in row.weights)
    assert facts["audit_passed"] is True
    assert read_json(tmp_path / "one" / "audit.json")["passed"] is True
    used = {row.provenance.episode for row in made} - {None}
    assert set(read_json(tmp_path / "one" / "episodes.json")) == used
    report = read_json(tmp_path / "one" / "build_report.json")
    if harvest and rows["type"] != "armc":  # arm C has one row a call
        assert report["episodes_in"] == report["rows"] + sum(report["left_out"].values())


def test_sums_cover_every_other_file(
    stage_inputs: dict[str, Any], game_settings: dict[str, Any], tmp_path: Path
) -> None:
    run(tmp_path / "out", {"type": "claims"}, stage_inputs, game_settings)
    lines = (tmp_path / "out" / "SHA256SUMS").read_text().splitlines()
    assert [line.split("  ")[1] for line in lines] == FILES[1:]
    for line in lines:
        digest, name = line.split("  ")
        assert hashlib.sha256((tmp_path / "out" / name).read_bytes()).hexdigest() == digest


def test_coverage_counts_both_wordings_and_no_held_out_fact(
    stage_inputs: dict[str, Any], game_settings: dict[str, Any], tmp_path: Path
) -> None:
    for wording in ("think", "other"):
        rows = {"type": "declarative", "ending": "text", "wording": wording}
        facts = run(tmp_path / wording, rows, stage_inputs, game_settings)
        covered = read_json(tmp_path / wording / "coverage.json")
        assert facts["facts_trained"] == 8
        assert covered["facts"]["left@N"] == {"read": 1, "trained": 1, "cited": 0}
        assert covered["facts"]["wipe@S"] == {"read": 0, "trained": 0, "cited": 0}
        assert covered["held_out"] == ["wipe@S"]


def test_a_row_set_cut_from_another_reads_that_ones_payload(
    stage_inputs: dict[str, Any], game_settings: dict[str, Any], tmp_path: Path
) -> None:
    run(tmp_path / "first", {"type": "recite"}, stage_inputs, game_settings, harvest=stage_inputs["teacher"])
    of = SimpleNamespace(payload=tmp_path / "first", facts={})
    cut = {"type": "curated", "of": "first", "levels": [1, 2]}
    facts = run(tmp_path / "cut", cut, stage_inputs, game_settings, of=of)
    levels = {level for level, _ in read_json(tmp_path / "cut" / "episodes.json").values()}
    assert levels == {1, 2}
    masked = {"type": "mask_knowledge", "of": "cut"}
    again = SimpleNamespace(payload=tmp_path / "cut", facts={})
    hidden = run(tmp_path / "masked", masked, stage_inputs, game_settings, of=again)
    assert hidden["rows"] == facts["rows"]
    assert hidden["facts_trained"] == 0 < facts["facts_trained"]


def test_softlabel_says_how_its_rows_are_made(
    stage_inputs: dict[str, Any], game_settings: dict[str, Any], tmp_path: Path
) -> None:
    rows = {"type": "softlabel", "episodes": 48}
    facts = run(tmp_path / "out", rows, stage_inputs, game_settings)
    assert facts["rows"] == 0
    assert read_rows(tmp_path / "out").online == facts["online"] == {"episodes": 48}


def test_no_row_is_an_error_that_says_why(
    stage_inputs: dict[str, Any], game_settings: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UserError) as error:
        run(tmp_path / "out", {"type": "replay"}, stage_inputs, game_settings, harvest=stage_inputs["teacher"])
    assert "12 left out: states held-out knowledge" in error.value.got


def test_rows_that_fail_the_audit_leave_no_payload(
    stage_inputs: dict[str, Any],
    game_settings: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def careless(context: Any, settings: dict[str, Any]) -> list[SftRow]:
        rows = build_rows(context, settings)
        rows[0].weights[1] = 1.0
        return rows

    build_rows = stage.build_rows
    monkeypatch.setattr(stage, "build_rows", careless)
    with pytest.raises(UserError, match="fail their audit"):
        run(tmp_path / "out", {"type": "claims"}, stage_inputs, game_settings)
    assert tree_files(tmp_path / "out") == []


def test_a_harvest_of_other_rules_does_not_become_rows(
    stage_inputs: dict[str, Any], game_settings: dict[str, Any], tmp_path: Path
) -> None:
    stations = game_settings["rules"]["stations"]
    rules = {**game_settings["rules"], "stations": {**stations, "N": stations["SE"], "SE": stations["N"]}}
    with pytest.raises((UserError, CorruptPayload)):
        run(
            tmp_path / "out",
            {"type": "recite"},
            stage_inputs,
            {"kind": "dipwheel", "rules": rules},
            harvest=stage_inputs["teacher"],
        )
