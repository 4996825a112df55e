"""The page without a browser: what it holds is what the files hold, and nothing in it points outside."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from disk import GAME, Disk, put_on_disk
from synthetic import Synthetic

from internalize.files import read_jsonl
from internalize.games import make_game
from internalize.harness.episode import read_episodes
from internalize.report import assets
from internalize.report.episodes import Narrator, Shelf
from internalize.report.evidence import TABLES, table_path
from internalize.report.graph import critical_path
from internalize.report.page import write_page
from internalize.report.page_data import HEAD
from internalize.report.results import read_results


@pytest.fixture(scope="module")
def page(disk: Disk, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "index.html"
    write_page(read_results(disk.results, disk.store), path, True, lambda text: None)
    return path


@pytest.fixture(scope="module")
def data(page: Path) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_tables_are_those_of_results(data: dict, disk: Disk):
    assert list(data["tables"]) == list(TABLES)
    for name, table in data["tables"].items():
        with table_path(disk.results, name).open(newline="") as handle:
            assert [table["columns"], *table["rows"]] == list(csv.reader(handle))


def test_metrics_are_those_of_the_store(data: dict, disk: Disk):
    results = read_results(disk.results, disk.store)
    told = 0
    for label in results.receipts:
        path = results.payload(label) / "metrics.jsonl"
        for row in read_jsonl(path) if path.exists() else ():
            table = data["metrics"][row["kind"]]
            _, *rest = label.split(".")
            who = [None, 0] if rest == ["base"] else [rest[0], int(rest[1])]
            (found,) = [one for one in table["rows"] if one[:3] == [*who, row["step"]]]
            values = {c: v for c, v in zip(table["columns"], found[3:], strict=True) if v is not None}
            assert values == pytest.approx({k: v for k, v in row.items() if k not in HEAD}, rel=1e-5)
            told += 1
    assert told == sum(len(table["rows"]) for table in data["metrics"].values()) > 30


def test_evidence_of_a_cell(data: dict):
    table = data["tables"]["final"]
    at = next(i for i, row in enumerate(table["rows"]) if row[0] == "recite")
    kind = table["kinds"][table["columns"].index("eval_return")]
    refs = [data["refs"][one] for one in table["evidence"][at][kind]]
    assert [(data["nodes"][node]["label"], *rest) for node, *rest in refs] == [
        (f"evals.recite.{seed}", part, 3, seed, "recite") for seed in (0, 1) for part in ("eval", "eval_episodes")
    ]
    assert all("episodes/step-0003/episodes.jsonl" in data["nodes"][node]["files"] for node, *_ in refs)


def test_nothing_points_outside(page: Path):
    text = page.read_text()
    ours = text.replace(assets.vega(), "")
    assert not re.findall(r"(?:src|href)=[\"'](?!#|data:)", ours)
    assert "http://" not in ours
    assert "https://" not in ours
    assert not re.findall(r"@import|url\(", ours)


def test_the_board_is_the_games_and_says_what_the_journal_says(disk: Disk):
    """Boards from the viewer's changes equal the game's frames; changes outside the HUD equal the journal's."""
    results = read_results(disk.results, disk.store)
    shelf = Shelf("recite", 0, 2, "rollout", results.payload(disk.played))
    game = make_game(**GAME)
    told = Narrator(results).everything(shelf)
    episodes = read_episodes(shelf.folder)
    assert len(told) == len(episodes) == 8
    for one, episode in zip(told, episodes, strict=True):
        state = game.start(episode.plan.level, episode.plan.seed)
        board = [[int(cell, 16) for cell in row] for row in one["start"]]
        journal = iter(episode.journal)
        for reply, call in zip(one["calls"], episode.calls, strict=True):
            assert tuple(map(tuple, board)) == game.frame(state)
            assert reply["obs"] == game.observe(state)
            assert (reply["ids"], [x / 1000 for x in reply["lp"]]) == (call.output_ids, pytest.approx(call.logprobs))
            action = game.call_words().get(call.call_word or "")
            legal = action is not None and game.refuse(state, action) is None
            state = game.apply(state, action) if legal else game.idle(state)
            row = next(journal)
            assert [reply["state"], reply["left"]] == [row["result"]["state"], row["result"]["actions_left"]]
            seen = [[x, y, board[y][x], value] for x, y, value in reply["cells"] if y not in game.hud_rows]
            assert seen == row["result"]["changed_cells"]
            for x, y, value in reply["cells"]:
                board[y][x] = value
        assert one["outcome"]["acts"] == state.acts


def test_a_sample_has_both_outcomes(disk: Disk):
    results = read_results(disk.results, disk.store)
    shelf = Shelf("recite", 0, 2, "rollout", results.payload(disk.played))
    found = Narrator(results).sample(shelf)
    everything = Narrator(results).everything(shelf)
    assert [one["cleared"] for one in found] in ([True, False], [False, True])
    assert all(one in everything for one in found)


def test_side_files_hold_every_episode(page: Path, data: dict):
    shelves = {key: aside for key, *_, aside in data["viewer"]["index"]}
    files = {path.stem: path for path in (page.parent / "episodes").iterdir()}
    assert files.keys() == shelves.keys()
    name = "recite-seed0-rollout-0002"
    call = re.fullmatch(r'page\.shelve\("(.*?)", (\[.*\])\);\n', files[name].read_text())
    assert call is not None
    assert call[1] == name
    assert len(json.loads(call[2])) == 8


def test_facts_have_their_verdicts(data: dict):
    facts = data["viewer"]["facts"]
    assert {name: fact["verdict"] for name, fact in facts.items()} == {
        **dict.fromkeys(("left@N", "wipe@S", "red@b"), "verified"),
        "top@N": "refuted",
    }
    assert facts["wipe@S"]["held"]
    assert data["viewer"]["words"][2] == "<u>"


def test_the_longest_way():
    made = [
        {"wall": 1.0, "parents": []},
        {"wall": 5.0, "parents": [0]},
        {"wall": None, "parents": [0, 1]},
        {"wall": 3.0, "parents": [0]},
        {"wall": 1.0, "parents": [2, 3]},
    ]
    assert critical_path(made) == [0, 1, 2, 4]
    chain = [{"wall": 1.0, "parents": [at - 1] if at else []} for at in range(5000)][::-1]
    turned = [{"wall": one["wall"], "parents": [4999 - parent for parent in one["parents"]]} for one in chain]
    assert critical_path(turned) == list(range(4999, -1, -1))
    assert critical_path([]) == []


def test_a_study_without_an_archive_says_so(data: dict):
    assert data["manifest"] == {"state": "not archived"}


def test_a_study_without_rl_has_a_page(tmp_path: Path):
    """A table without rows, no rollout at all: the page is written, and says nothing of what was not measured."""
    made = Synthetic(tmp_path / "made")
    made.root.mkdir()
    made.arm("quiet", ["sft"])
    made.step("quiet", 0, 0)
    made.evals("evals.base", {-1: ([(False, 0.0)] * 4, {"nll_play": 1.5})})
    made.evals("evals.quiet.0", {0: ([(True, 1.0)] * 4, {"nll_play": 0.5})})
    made.add("base", which="trained")
    made.add("knowledge")
    disk = put_on_disk(made, tmp_path)
    write_page(read_results(disk.results, disk.store), tmp_path / "page.html", False, lambda text: None)
    found = re.search(r'id="data">(.*?)</script>', (tmp_path / "page.html").read_text(), re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert data["tables"]["trajectories"]["rows"] == []
    assert data["metrics"]["rollout"]["rows"] == []
    assert data["viewer"]["inline"] == {}


def test_every_edit_of_the_pages_files_makes_it_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = assets.static_digest()
    (tmp_path / "static").mkdir()
    for path in assets.STATIC.iterdir():
        (tmp_path / "static" / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(assets, "STATIC", tmp_path / "static")
    assert assets.static_digest() == before
    with (tmp_path / "static/page.css").open("a") as handle:
        handle.write("/* */")
    assert assets.static_digest() != before
