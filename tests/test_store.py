"""The store: complete entries or none, one writer an entry, corruption named."""

from __future__ import annotations

import errno
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

import internalize.stages as stages
import internalize.store as store_module
from internalize.errors import CorruptPayload, LeaseHeld, MissingPayload, UserError
from internalize.files import read_json, sha256_file, write_text
from internalize.receipts import Receipt, read_receipt
from internalize.stages import run_stage
from internalize.store import Input, Store


class Counter:
    """A stage in a module of its own for the test: writes one file, counts its runs."""

    def __init__(self) -> None:
        self.runs = 0
        self.text = "payload"

    def build(self, folder: Path, spec: dict[str, Any], inputs: dict[str, Input], progress: Any) -> dict[str, Any]:
        self.runs += 1
        write_text(folder / "data" / "file.txt", self.text + str(spec))
        return {"inputs": sorted(inputs)}


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    made = Counter()
    monkeypatch.setitem(stages.STAGES, "count", "counter_module")
    monkeypatch.setattr(stages.importlib, "import_module", lambda name: made)
    return made


def run(
    tmp_path: Path,
    spec: dict[str, Any],
    code: str = "c0",
    inputs: dict[str, Path] | None = None,
    name: str = "a",
) -> Receipt:
    output = tmp_path / "results" / "receipts" / f"{name}.json"
    return run_stage("count", spec, code, inputs or {}, output, Store(tmp_path / "store"), lambda text: None)


def test_equal_key_is_never_computed_twice(tmp_path: Path, counter: Counter) -> None:
    first = run(tmp_path, {"x": 1})
    (tmp_path / "results" / "receipts" / "a.json").unlink()
    assert run(tmp_path, {"x": 1}) == first
    assert counter.runs == 1
    assert read_receipt(tmp_path / "results" / "receipts" / "a.json") == first


def test_spec_code_and_parents_each_make_a_new_key(tmp_path: Path, counter: Counter) -> None:
    keys = {
        run(tmp_path, {"x": 1}, name="p1").key,
        run(tmp_path, {"x": 2}, name="p2").key,
        run(tmp_path, {"x": 1}, code="c1", name="p3").key,
    }
    for parent in ("p1", "p2"):
        keys.add(
            run(
                tmp_path,
                {"x": 1},
                inputs={"up": tmp_path / f"results/receipts/{parent}.json"},
                name=f"child-{parent}",
            ).key
        )
    assert len(keys) == 5


def test_recomputing_equal_content_keeps_the_receipt(tmp_path: Path, counter: Counter) -> None:
    first = run(tmp_path, {"x": 1})
    store = Store(tmp_path / "store")
    assert store.forget("count", first.key) is not None
    again = run(tmp_path, {"x": 1})
    assert counter.runs == 2
    assert again.hash() == first.hash()


def test_changed_missing_and_cut_payloads_are_named(tmp_path: Path, counter: Counter) -> None:
    receipt = run(tmp_path, {"x": 1})
    store = Store(tmp_path / "store")
    path = store.root / receipt.entry / "data" / "file.txt"
    good = path.read_text()
    path.write_text("P" + good[1:])
    with pytest.raises(CorruptPayload, match=r"file\.txt"):
        store.open(receipt)
    path.write_text(good[:-1])
    with pytest.raises(CorruptPayload, match="another size"):
        store.find("count", receipt.key)
    path.unlink()
    with pytest.raises(MissingPayload, match=r"file\.txt"):
        store.open(receipt)
    path.write_text(good)
    assert store.open(receipt).facts == {"inputs": []}


def test_a_corrupt_receipt_file_is_named(tmp_path: Path, counter: Counter) -> None:
    run(tmp_path, {"x": 1})
    path = tmp_path / "results" / "receipts" / "a.json"
    path.write_text('{"stage": "count"}')
    with pytest.raises(CorruptPayload, match="not a receipt"):
        run(tmp_path, {"x": 2}, inputs={"up": path}, name="b")
    with pytest.raises(MissingPayload, match="receipt not found"):
        run(tmp_path, {"x": 2}, inputs={"up": tmp_path / "nowhere.json"}, name="b")


def test_full_disk_loses_nothing(tmp_path: Path, counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = run(tmp_path, {"x": 1})
    with monkeypatch.context() as patch:

        def full(fd: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(os, "fsync", full)
        with pytest.raises(UserError, match="No space left"):
            run(tmp_path, {"x": 2}, name="b")
    assert not (tmp_path / "results" / "receipts" / "b.json").exists()
    assert Store(tmp_path / "store").open(kept)
    assert run(tmp_path, {"x": 2}, name="b").status == "done"


def _hold(root: str, ready: Any, release: Any) -> None:
    with Store(Path(root)).lease("count", "k" * 64):
        ready.set()
        release.wait(30)


def test_one_writer_an_entry_and_a_dead_writer_frees_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "LEASE_PATIENCE", 0.3)
    context = multiprocessing.get_context("fork")
    ready, release = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(str(tmp_path / "store"), ready, release))
    holder.start()
    assert ready.wait(30)
    with (
        pytest.raises(LeaseHeld, match=f"pid {holder.pid}"),
        Store(tmp_path / "store").lease("count", "k" * 64),
    ):
        pass
    holder.kill()
    holder.join()
    with Store(tmp_path / "store").lease("count", "k" * 64):
        pass


def test_the_patience_for_another_writer_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(store_module.LEASE_SECONDS, "0.1")
    context = multiprocessing.get_context("fork")
    ready, release = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(str(tmp_path / "store"), ready, release))
    holder.start()
    assert ready.wait(30)
    try:
        with pytest.raises(LeaseHeld), Store(tmp_path / "store").lease("count", "k" * 64):
            pass
    finally:
        release.set()
        holder.join()


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: Any, how: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(store_module.fcntl, "flock", refuse)
    with pytest.raises(UserError, match="no locks"), Store(tmp_path / "store").lease("count", "k" * 64):
        pass


def test_run_times_are_beside_the_receipt_not_in_it(tmp_path: Path, counter: Counter) -> None:
    receipt = run(tmp_path, {"x": 1})
    store = Store(tmp_path / "store")
    assert store.run_info(receipt)["cpu_s"] >= 0
    assert "cpu_s" not in str(receipt.model_dump())
    assert read_json(store.root / receipt.entry / "run.json")["host"]


def test_what_agents_leave_behind_is_kept_beside_the_receipt(tmp_path: Path, counter: Counter) -> None:
    """Logs with times differ from run to run: they are listed in run.json, and two runs have equal receipts."""
    receipts = []
    for run_name in ("one", "two"):
        root = tmp_path / run_name

        def build(folder: Path, *more: Any, said: str = run_name) -> dict[str, Any]:
            write_text(folder / "work" / "e0" / "claude.log", said)
            write_text(folder / "workings.txt", "the same")
            return {}

        counter.build = build  # type: ignore[method-assign]
        receipt = run(root, {"x": 1})
        receipts.append(receipt)
        assert [file.path for file in receipt.files] == ["workings.txt"]
        store = Store(root / "store")
        folder = store.open(receipt).payload
        (kept,) = store.run_info(receipt)["work"]
        assert (folder / kept["path"]).read_text() == run_name
        assert kept == {"path": "work/e0/claude.log", "sha256": sha256_file(folder / kept["path"]), "bytes": 3}
    assert receipts[0] == receipts[1]
