"""Two runs from scratch are equal; damage is named and costs nothing but what it damaged."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from workbench import Bench, check_out

from internalize.files import read_json, sha256_file


def receipts(bench: Bench) -> dict[str, object]:
    folder = bench.work / "results" / "receipts"
    return {path.relative_to(folder).as_posix(): read_json(path) for path in folder.rglob("*.json")}


def test_two_runs_from_scratch_are_bit_identical(finished: Bench, repository: Path, tmp_path: Path) -> None:
    check_out(repository, tmp_path / "elsewhere")
    (tmp_path / "work").mkdir()
    other = Bench(tmp_path / "elsewhere", tmp_path / "work")
    other.run()
    assert receipts(other) == receipts(finished)  # every payload's hash is in its receipt
    for receipt in receipts(other).values():
        assert isinstance(receipt, dict)
        for file in receipt["files"]:
            assert sha256_file(other.work / "store" / receipt["entry"] / file["path"]) == file["sha256"]


def test_a_corrupt_payload_stops_what_reads_it_and_nothing_is_lost(bench: Bench) -> None:
    rows = read_json(bench.work / "results" / "receipts" / "rows" / "teacher_turns.json")
    assert isinstance(rows, dict)
    payload = bench.work / "store" / rows["entry"] / "rows.jsonl.gz"
    good = payload.read_bytes()
    payload.unlink()  # the store is hard-linked: write a new file
    payload.write_bytes(bytes([*good[:-1], good[-1] ^ 1]))
    longer = ("set=arms.recite.sft.lr=1e-3",)
    status, text = bench.snakemake(config=longer)
    assert status != 0
    assert "corrupt payload" in text
    assert "rows.jsonl.gz" in text
    assert "internalize forget rows" in text
    assert "Traceback" not in text
    payload.write_bytes(good)
    bench.run(config=longer)


def test_a_missing_checkpoint_is_named(bench: Bench) -> None:
    step = read_json(bench.work / "results/receipts/arms/recite/seed0/steps0000-0001/step0001.json")
    assert isinstance(step, dict)
    shutil.rmtree(bench.work / "store" / step["entry"] / "iter_0000001")
    status, text = bench.snakemake(config=("set=arms.recite.steps=3",))
    assert status != 0
    assert "missing payload" in text
    assert "iter_0000001" in text
    assert "Traceback" not in text
    assert json.dumps(step)  # the receipt itself is untouched


def test_deleted_receipts_come_back_without_computing(bench: Bench) -> None:
    folder = bench.work / "results" / "receipts"
    for name in ("gate.json", "rows/teacher_turns.json", "evals/recite/seed0.json", "harvest/teacher.json"):
        (folder / name).unlink()
    shutil.rmtree(folder / "arms" / "recite")
    before = bench.entries()
    bench.run()
    assert bench.entries() == before
    assert (folder / "arms/recite/seed0/steps0000-0001/step0000.json").exists()
    assert bench.planned() == set()


def test_a_forgotten_entry_is_computed_anew_and_comes_out_the_same(bench: Bench) -> None:
    receipt = bench.work / "results" / "receipts" / "rows" / "teacher_turns.json"
    before = receipt.read_text()
    key = json.loads(before)["key"][:16]
    command = [str(bench.checkout / "bin" / "internalize"), "forget", "rows", key]
    done = subprocess.run(command, cwd=bench.work, capture_output=True, text=True, check=True)
    assert "set aside" in done.stdout
    assert not receipt.exists()
    short = subprocess.run([*command[:-1], key[:4]], cwd=bench.work, capture_output=True, text=True, check=False)
    assert short.returncode == 2
    assert "no such entry" in short.stderr
    bench.run()
    assert receipt.read_text() == before
