"""Every table loads with `datasets`, offline; without our card the same folder fails as the published page does."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from loading import load, python
from made_study import MadeStudy

from internalize.archive.layout import MANIFEST
from internalize.archive.shared import known_tables
from internalize.files import read_json, read_jsonl
from internalize.receipts import Receipt

if find_spec("datasets") is None:  # not imported here: it would fix the hub client's settings for other tests
    pytest.skip("needs datasets", allow_module_level=True)

FAIL = """
import sys
import datasets
datasets.disable_progress_bars()
root, cache = sys.argv[1:]
for streaming in (False, True):
    try:
        for split in datasets.load_dataset(root, cache_dir=cache, streaming=streaming).values():
            list(split)
        print("LOADED")
    except Exception as error:
        causes = []
        while error is not None:
            causes.append(f"{type(error).__name__}: {str(error)[-60:]}")
            error = error.__cause__
        print(" <- ".join(causes).replace(chr(10), " "))
"""


@pytest.fixture(scope="module")
def loaded(finished: MadeStudy, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The finished archive, loaded."""
    return load(finished.archive, tmp_path_factory.mktemp("cache"))


def test_every_config_loads_with_the_manifests_and_the_registrys_rows(
    finished: MadeStudy, loaded: dict[str, list[Any]]
) -> None:
    tables = read_json(finished.archive / MANIFEST)["tables"]
    assert {name: found[:2] for name, found in loaded.items()} == {
        name: [entry["rows"]] * 2 for name, entry in tables.items() if entry["rows"]
    }
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


def test_without_configs_the_same_folder_fails_as_the_published_page(archive: Path, tmp_path: Path) -> None:
    card = archive / "README.md"
    front = yaml.safe_load(card.read_text().split("---\n")[1])
    del front["configs"]
    card.unlink()
    card.write_text(f"---\n{yaml.safe_dump(front)}---\n# small\n")
    eager, streaming = python(FAIL, str(archive), str(tmp_path / "cache")).splitlines()[-2:]
    assert "CastError" in eager
    assert "column names don't match" in eager
    assert "CastError" in streaming


def test_what_breaks_readers_is_written_so_that_it_loads(tmp_path: Path) -> None:
    from internalize.archive.tables import Table, columns_of

    rows: list[dict[str, Any]] = [
        {"first": None, "drift": 1, "flag": True, "text": "2026-01-02", "open": {"a": 1}, "cut": "\ud83d", "list": []},
        {"first": 1.5, "drift": 2.5, "flag": False, "text": "x", "open": {"b": [2]}, "cut": "é", "list": [1]},
    ]
    columns = {**columns_of(rows, {"cut": "string"}), "list": {"list": "int64"}}
    assert columns["drift"] == "float64"
    assert columns["open"] == "json"
    table = Table("t", "", columns, ("t.jsonl",))
    table.write(tmp_path / "t.jsonl", rows)
    front = {"configs": [{"config_name": "t", "data_files": "t.jsonl", "features": table.features()}]}
    (tmp_path / "README.md").write_text(f"---\n{yaml.safe_dump(front)}---\n")
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    count, streamed, first, _ = load(tmp_path, tmp_path / "cache")["t"]
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
