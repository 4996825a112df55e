"""Numeric gates stand in front of the arms: one that fails stops the study there, and changes no result elsewhere."""

from __future__ import annotations

import shutil

from workbench import Bench

GATES = ("set=numerics.gates=[engine,sync]",)
TOO_STRICT = ("set=numerics.gates=[engine,sync] numerics.engine.tolerance=1.0e-12",)
SEGMENTS = {f"arms/{arm}/seed0/steps0000-0001/step0001.json" for arm in ("none", "recite")}
RECEIPTS = {"numerics/engine.json", "numerics/sync.json"}


def test_a_failing_gate_stops_the_study_in_front_of_the_arms(bench: Bench) -> None:
    receipts = bench.work / "results/receipts"
    shutil.rmtree(receipts / "arms")
    shutil.rmtree(bench.work / "store/step")
    status, text = bench.snakemake("--until", "segment", arms="none", config=TOO_STRICT)
    assert status != 0
    assert "Traceback" not in text
    assert "gate failed: numeric gate `engine`" in text
    assert "engine: engine `local`: " in text
    assert "3 prompts of 3+40+150 tokens, 8 new ones: log-prob error" in text
    assert not list(receipts.glob("arms/**/*.json"))
    assert not list(bench.work.glob("store/step/*/receipt.json"))
    assert not (receipts / "numerics/engine.json").exists()
    # with a bound that can be met the study goes on, and the gate that had passed is not repeated
    bench.run("--until", "segment", arms="none", config=GATES)
    assert "numerics-sync: already in the store" in (bench.work / "logs/numerics.log").read_text()
    assert [p.parts[-4] for p in receipts.glob("arms/*/*/*/step0001.json")] == ["none"]


def test_gates_change_no_result_of_an_arm(bench: Bench) -> None:
    before = bench.computed()
    steps = {path: path.read_text() for path in bench.work.glob("results/receipts/arms/**/*.json")}
    assert bench.planned(config=GATES) >= RECEIPTS | SEGMENTS
    bench.run(config=GATES)
    gates = {f"store/numerics/{entry.name}" for entry in (bench.work / "store/numerics").iterdir()}
    assert bench.computed() - before == gates
    assert {path: path.read_text() for path in steps} == steps
    assert bench.planned(config=GATES) == set()
    assert "numerics/sync.json" in bench.planned(config=("set=numerics.gates=[sync] numerics.sync.engines=3",))
