"""Whole, pruned, stopped or broken, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sharded import model, stacked, write

from internalize.checkpoints import inventory, layout
from internalize.checkpoints.inventory import inspect_root, take_inventory, write_inventory
from internalize.checkpoints.tombstone import Tombstone, write_tombstone
from internalize.files import read_json
from internalize.receipts import write_receipt
from internalize.store import Store


def root(folder: Path, step: int) -> None:
    """A checkpoint root of one iteration."""
    write(layout.iteration_folder(folder, step), stacked(model()), 2)
    layout.write_cursor(folder, step, {"next_step": step + 1})
    layout.write_tracker(folder, step)


@pytest.fixture
def study(tmp_path: Path) -> tuple[Path, Store]:
    """An arm of three steps, the last one stopped by the guard."""
    store, results = Store(tmp_path / "store"), tmp_path / "results"
    for step in range(3):
        spec = {"step": step, "phase": "sft" if step == 0 else "rl"}
        key = store.key("step", spec, "code", {})
        folder = store.partial("step", key)
        stopped = step == 2
        if not stopped:
            root(folder, step)
        facts = {"phase": spec["phase"], **({"stopped_at": 2} if stopped else {})}
        status = "stopped" if stopped else "done"
        receipt = store.commit(
            folder,
            stage="step",
            name="x",
            key=key,
            spec=spec,
            code="code",
            parents={},
            facts=facts,
            status=status,
            run={},
        )
        write_receipt(results / f"receipts/arms/recite/seed0/steps0000-0002/step{step:04d}.json", receipt)
    return results, store


def states(study: tuple[Path, Store], verify: bool = False) -> dict[int, tuple[str, str]]:
    return {row.step: (row.state, row.why) for row in take_inventory(*study, verify=verify)[0]}


def test_every_step_is_listed_with_its_size(study: tuple[Path, Store]) -> None:
    rows, others = take_inventory(*study)
    assert [(row.step, row.phase, row.state) for row in rows] == [
        (0, "sft", "complete"),
        (1, "rl", "complete"),
        (2, "rl", "stopped"),
    ]
    folder = layout.iteration_folder(study[1].root / rows[0].entry, 0)
    assert rows[0].bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert (rows[0].files, len(rows[0].spec), others) == (5, 12, [])
    assert rows[0].spec != rows[1].spec


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda f: (f / ".metadata").unlink(), "a payload file is gone: .metadata"),
        (lambda f: (f / "__0_0.distcp").write_bytes(b"x"), "a payload file has another size: __0_0.distcp"),
        (lambda f: (f.parent / layout.TRACKER).unlink(), "a payload file is gone"),
        (lambda f: layout.cursor_path(f.parent, 1).unlink(), "a payload file is gone"),
    ],
)
def test_what_is_broken_is_named(study: tuple[Path, Store], break_it: Any, words: str) -> None:
    entry = next(row.entry for row in take_inventory(*study)[0] if row.step == 1)
    break_it(layout.iteration_folder(study[1].root / entry, 1))
    found = states(study)
    assert found[0] == ("complete", "")
    assert found[1][0] == "incomplete"
    assert words in found[1][1]


def test_a_changed_byte_shows_when_hashes_are_verified(study: tuple[Path, Store]) -> None:
    entry = next(row.entry for row in take_inventory(*study)[0] if row.step == 1)
    path = layout.iteration_folder(study[1].root / entry, 1) / "__1_0.distcp"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert states(study)[1] == ("complete", "")
    assert states(study, verify=True)[1][0] == "incomplete"
    assert "__1_0.distcp" in states(study, verify=True)[1][1]


def test_a_tombstone_is_told_apart_from_damage(study: tuple[Path, Store]) -> None:
    entry = next(row.entry for row in take_inventory(*study)[0] if row.step == 0)
    folder = layout.iteration_folder(study[1].root / entry, 0)
    names = sorted(path.name for path in folder.iterdir())
    write_tombstone(folder, Tombstone(step=0, files=names, bytes=9, kept_step=1, from_step=-1, command="bring it back"))
    for name in names:
        (folder / name).unlink()
    assert states(study)[0] == ("pruned", "from step -1 again by `bring it back`")


def test_what_else_takes_space_is_listed(study: tuple[Path, Store]) -> None:
    results, store = study
    (store.root / "step" / "abc.partial").mkdir()
    (store.root / "step" / "abc.partial" / "half").write_bytes(b"12345")
    receipts = sorted(results.rglob("step0001.json"))
    receipts[0].unlink()
    rows, others = take_inventory(results, store)
    assert [row.step for row in rows] == [0, 2]
    assert {(other.what.split(":")[0], other.bytes > 0) for other in others} == {
        ("unfinished", True),
        ("complete, but no receipt names it", True),
    }
    assert next(other.bytes for other in others if other.entry.endswith(".partial")) == 5


def test_the_files_say_the_same(study: tuple[Path, Store]) -> None:
    results, _ = study
    rows, others = take_inventory(*study)
    write_inventory(results, rows, others)
    assert [row["step"] for row in read_json(results / "checkpoints.json")["checkpoints"]] == [0, 1, 2]
    page = (results / "checkpoints.md").read_text()
    assert "3 steps: 2 complete checkpoints" in page
    assert "| recite | 0 | 2 | rl | stopped: the guard stopped the arm at step 2 |" in page


def test_a_folder_of_another_system_is_read_too(tmp_path: Path) -> None:
    root(tmp_path, 3)
    write(tmp_path / "iter_0000004", stacked(model()))
    assert [(row["iteration"], row["state"]) for row in inspect_root(tmp_path)] == [(3, "complete"), (4, "incomplete")]
    assert "no data cursor" in inspect_root(tmp_path)[1]["why"]
    path = tmp_path / "iter_0000003" / "__0_0.distcp"
    data = bytearray(path.read_bytes())
    at = data.index(b"data/0") + 200
    data[at] ^= 1
    path.write_bytes(data)
    assert inspect_root(tmp_path)[0]["state"] == "complete"
    assert "__0_0.distcp" in inspect_root(tmp_path, verify=True)[0]["why"]


def test_a_tensor_that_its_chunks_do_not_cover_is_incomplete(tmp_path: Path) -> None:
    import pickle

    root(tmp_path, 3)
    path = tmp_path / "iter_0000003" / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    metadata.state_dict_metadata["decoder.final_layernorm.weight"].chunks.clear()
    path.write_bytes(pickle.dumps(metadata))
    assert inventory.why_incomplete(tmp_path, 3) == "decoder.final_layernorm.weight is not covered by its chunks"
