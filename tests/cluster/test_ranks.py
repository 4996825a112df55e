"""Training ranks over the nodes of a job, through the launcher, give what they give on one machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cases import SETTINGS, all_but_the_arm, prepare, segment
from workbench import Bench

from internalize.cluster.sandbox import MARK, Sandbox
from internalize.processes import with_environment

RANK = "internalize.runtime.launch"
SPREAD = "arms.recite.steps=2 arms.recite.parallel.tensor=2 arms.recite.parallel.runtime="


def ranks(box: Sandbox) -> dict[str, str]:
    """Node -> GPUs that the rank on it sees, for all ranks that run now."""
    seen = {}
    for process in with_environment(f"{MARK}={box.folder}"):
        try:
            folder = Path(f"/proc/{process.pid}")
            words = (folder / "cmdline").read_text().split("\0")
            pairs = (entry.partition("=") for entry in (folder / "environ").read_text().split("\0"))
        except OSError:
            continue
        told = {name: value for name, _, value in pairs}
        if RANK in words and "torch.distributed.run" not in words:
            seen[told["SLURMD_NODENAME"]] = told.get("CUDA_VISIBLE_DEVICES", "")
    return seen


def test_two_ranks_on_two_nodes(box: Sandbox, undisturbed: Bench, tmp_path: Path) -> None:
    settings = (*SETTINGS[:2], f"set={SPREAD}torchrun")
    target = segment(0, 1)
    local = Bench(undisturbed.checkout, tmp_path / "local")
    all_but_the_arm(undisturbed, local.work)
    local.run(target, arms=None, config=settings)
    case = prepare(box, undisturbed, tmp_path / "work", "node[3-4]", rules={"segment": {"nodes": 2}})
    case.target, case.settings = target, settings
    seen: dict[str, str] = {}
    try:
        run = case.start("--retries", "0")
        case.until(lambda: len(seen.update(ranks(box)) or seen) == 2 or run.poll() is not None, "no ranks")
        case.finish(run)
    finally:
        case.close()
    assert seen == {"node3": "0,1,2,3", "node4": "0,1,2,3"}
    assert "node3, node4; 4 GPUs a node" in case.said()
    for step in (0, 1):
        name = Path(target).with_name(f"step{step:04d}.json")
        assert (case.work / name).read_bytes() == (local.work / name).read_bytes(), "bit for bit as on one machine"
        plain = json.loads((undisturbed.work / segment(0, 5)).with_name(name.name).read_text())["facts"]
        found = json.loads((case.work / name).read_text())["facts"]
        assert found["loss"] == pytest.approx(plain["loss"], abs=1e-5)
        assert found.get("return_mean") == plain.get("return_mean")
