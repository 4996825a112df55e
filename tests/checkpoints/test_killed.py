"""kill -9 at any point of a conversion: the next attempt gives the same model folder and leaves nothing else."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from sharded import CONFIG, model, stacked, write

from internalize.checkpoints import layout
from internalize.files import write_json, write_text
from internalize.receipts import Receipt, write_receipt
from internalize.seeds import rng
from internalize.stages import run_stage
from internalize.store import RUN, Store

POINTS = 20
SPEC = {"dtype": "bfloat16", "shard_bytes": 600}
CODE = "0123456789abcdef"
TOUCHES = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir")
"""Audit events of what a conversion does to files; beside them, each fsync is a point."""


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    """Receipts of a step with its checkpoint, and of the base that it started from."""
    store, parts = Store(tmp_path / "store"), {}
    made: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {"base": ({}, {}), "step": ({"step": 4}, {"phase": "rl"})}
    for name, (spec, facts) in made.items():
        key = store.key(name, spec, CODE, {})
        folder = store.partial(name, key)
        if name == "base":
            write_json(folder / "config.json", {**CONFIG, "eos_token_id": 2})
            write_text(folder / "tokenizer.json", "{}")
        else:
            iteration = write(layout.iteration_folder(folder, 4), stacked(model()), 2)
            args = {"model_config": CONFIG, "optimizer": {}, "seed": 3, "steps": 9, "lr": 0.1}
            torch.save({"iteration": 4, "args": args}, iteration / "common.pt")
            layout.write_cursor(folder, 4, {"next_step": 5, "seed": 3})
            layout.write_tracker(folder, 4)
        told: dict[str, Any] = {"stage": name, "name": name, "key": key, "spec": spec, "code": CODE, "parents": {}}
        parts[name] = tmp_path / "receipts" / f"{name}.json"
        write_receipt(parts[name], store.commit(folder, **told, facts=facts, status="done", run={}))
    return parts


def convert(inputs: dict[str, Path]) -> Receipt:
    """The job."""
    root = inputs["step"].parents[1]
    output = root / "receipts" / "convert.json"
    return run_stage("convert", SPEC, CODE, inputs, output, Store(root / "store"), lambda text: None)


def convert_and_die(inputs: dict[str, Path], at: int) -> int:
    """The job in a process that is killed at its `at`-th touch of a file; its exit status, and touches if it ends."""
    reader, writer = multiprocessing.Pipe(duplex=False)

    def work() -> None:
        root, count, real = str(inputs["step"].parents[1]), 0, os.fsync

        def touch() -> None:
            nonlocal count
            count += 1
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)

        def fsync(handle: int) -> None:
            touch()
            real(handle)

        sys.addaudithook(lambda event, args: touch() if event in TOUCHES and str(args[0]).startswith(root) else None)
        os.fsync = fsync
        torch.set_num_threads(1)  # renews torch's pool, which a fork leaves broken, before threads race for it
        convert(inputs)
        writer.send(count)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == (-signal.SIGKILL if at else 0)
    return 0 if at else int(reader.recv())


def tree(root: Path) -> dict[str, bytes]:
    """Path -> content of every file, but for the log and the leases; notes of a run tell times and count as empty."""
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    kept = {name: path for name, path in sorted(found.items()) if not name.startswith(("store/log/", "store/leases/"))}
    return {name: b"" if path.name == RUN else path.read_bytes() for name, path in kept.items()}


def test_killed_at_20_random_points_a_conversion_comes_out_the_same(inputs: dict[str, Path], tmp_path: Path) -> None:
    fresh = tmp_path.with_name(f"{tmp_path.name}-fresh")
    shutil.copytree(tmp_path, fresh)
    points = convert_and_die(inputs, 0)
    straight = tree(tmp_path)
    draw = rng("kill", "convert")
    for at in sorted(draw.sample(range(1, points + 1), POINTS)):
        shutil.rmtree(tmp_path)
        shutil.copytree(fresh, tmp_path)
        convert_and_die(inputs, at)
        convert(inputs)
        again = tree(tmp_path)
        assert set(again) ^ set(straight) == set(), f"killed at touch {at} of {points}"
        assert again == straight, f"killed at touch {at} of {points}"
    shutil.rmtree(fresh)
