"""Every table loads with `datasets`, offline; without our card the same folder fails as the published page does."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from typing import Any

import pytest
import yaml
from loading import ask
from made_study import MadeStudy

from internalize.archive.layout import MANIFEST
from internalize.archive.shared import known_tables
from internalize.archive.tables import Table, columns_of
from internalize.files import read_json, read_jsonl
from internalize.receipts import Receipt

if find_spec("datasets") is None:  # not imported here: it would fix the hub client's settings for other tests
    pytest.skip("needs datasets", allow_module_level=True)

AWKWARD: list[dict[str, Any]] = [
    {"first": None, "drift": 1, "flag": True, "text": "2026-01-02", "open": {"a": 1}, "cut": "\ud83d", "list": []},
    {"first": 1.5, "drift": 2.5, "flag": False, "text": "x", "open": {"b": [2]}, "cut": "é", "list": [1]},
]
"""What breaks readers that infer types."""


def awkward() -> Table:
    """The table of those rows."""
    return Table("t", "", {**columns_of(AWKWARD, {"cut": "string"}), "list": {"list": "int64"}}, ("t.jsonl",))


@pytest.fixture(scope="module")
def answers(finished: MadeStudy, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The finished archive loaded; the same one without our `configs`; the awkward rows."""
    root = tmp_path_factory.mktemp("load")
    shutil.copytree(finished.archive, root / "bare")
    card = root / "bare" / "README.md"
    front = yaml.safe_load(card.read_text().split("---\n")[1])
    del front["configs"]
    card.write_text(f"---\n{yaml.safe_dump(front)}---\n# small\n")
    table = awkward()
    table.write(root / "awkward" / "t.jsonl", AWKWARD)
    front = {"configs": [{"config_name": "t", "data_files": "t.jsonl", "features": table.features()}]}
    (root / "awkward" / "README.md").write_text(f"---\n{yaml.safe_dump(front)}---\n")
    return ask(root / "cache", ("load", finished.archive), ("fail", root / "bare"), ("load", root / "awkward"))


@pytest.fixture
def loaded(answers: list[Any]) -> dict[str, list[Any]]:
    """Config of the archive -> rows, rows streamed (None: not tried), first row, features."""
    found: dict[str, list[Any]] = answers[0]
    return found


def test_every_config_loads_with_the_manifests_and_the_registrys_rows(
    finished: MadeStudy, loaded: dict[str, list[Any]]
) -> None:
    tables = read_json(finished.archive / MANIFEST)["tables"]
    counted = {name: entry["rows"] for name, entry in tables.items() if entry["rows"]}
    assert {name: found[0] for name, found in loaded.items()} == counted
    streamed = {name: found[1] for name, found in loaded.items() if found[1] is not None}
    assert streamed == {name: counted[name] for name in ("episodes", "calls", "rows_recite")}
    assert {"episodes", "eval_calls", "journal", "atoms", "rows_recite", "metrics_eval", "registry"} <= set(loaded)
    registry = list(read_jsonl(finished.archive / "registry.jsonl"))
    for name in ("episodes", "calls", "journal", "eval_episodes", "eval_calls", "eval_journal"):
        assert loaded[name][0] == sum(row[f"n_{name}"] or 0 for row in registry), name
    assert [row["status"] for row in registry].count("prepared") == 1


def test_columns_arrive_with_the_types_that_the_card_names(finished: MadeStudy, loaded: dict[str, list[Any]]) -> None:
    facts = Receipt.model_validate(read_json(finished.archive / "state/archive-receipt.json")).facts
    for table in known_tables(facts):
        if table.name in loaded:
            assert loaded[table.name][3] == table.features(), table.name
    call = loaded["calls"][2]
    assert (call["prompt_ids"], call["sampling"]["stop_ids"], call["say"]) == ([2, 19, 0], [4], None)
    assert json.loads(loaded["journal"][2]["result"])["change_kinds"] == {"5->10": 1}
    assert loaded["metrics_eval"][2]["whole"] == 1


def test_one_file_format_for_the_whole_repository(finished: MadeStudy) -> None:
    front = yaml.safe_load((finished.archive / "README.md").read_text().split("---\n")[1])
    paths = [path for one in front["configs"] for file in one["data_files"] for path in [file["path"]]]
    flat = [path for one in paths for path in (one if isinstance(one, list) else [one])]
    assert all(path.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")) for path in flat)
    assert [one["config_name"] for one in front["configs"] if one.get("default")] == ["episodes"]


def test_without_configs_the_same_folder_fails_as_the_published_page(answers: list[Any]) -> None:
    eager, streaming = answers[1]
    assert "CastError" in eager
    assert "column names don't match" in eager
    assert "CastError" in streaming


def test_what_breaks_readers_is_written_so_that_it_loads(answers: list[Any]) -> None:
    table = awkward()
    assert table.columns["drift"] == "float64"
    assert table.columns["open"] == "json"
    count, streamed, first, _ = answers[2]["t"]
    assert count == streamed == 2
    assert first["drift"] == 1.0
    assert json.loads(first["open"]) == {"a": 1}
    assert first["cut"] == "\ufffd"
    assert first["first"] is None
    with pytest.raises(ValueError, match="no column"):
        table.row({"other": 1})
    with pytest.raises(ValueError, match=r"t\.flag is bool"):
        table.row({"flag": 1})
    with pytest.raises(ValueError, match="does not fit int64"):
        Table("t", "", {"x": "int64"}).row({"x": 1 << 63})
