"""A study file that asks for two ranks gets them."""

from __future__ import annotations

from workbench import Bench

from internalize.receipts import read_receipt

TWO = ("set=arms.recite.parallel.tensor=2 arms.recite.parallel.runtime=torchrun",)
LAST = "arms/recite/seed0/steps0000-0001/step0001.json"
OF_RECITE = {LAST, "evals/recite/seed0.json", "report.json", "archive.json"}


def test_an_arm_of_two_ranks_runs_and_only_that_arm(bench: Bench) -> None:
    one = read_receipt(bench.work / "results/receipts" / LAST)
    assert bench.planned(config=TWO) == OF_RECITE
    bench.run(config=TWO)
    two = read_receipt(bench.work / "results/receipts" / LAST)
    assert two.spec == one.spec | {"parallel": {"tensor": 2}}
    assert {file.path for file in two.files} - {file.path for file in one.files} == {"iter_0000001/__1_0.distcp"}
    assert abs(two.facts["loss"] - one.facts["loss"]) < 1e-4
    assert bench.planned(config=TWO) == set()
    entries = bench.computed()
    bench.run()
    assert bench.computed() == entries, "back to one rank: the old results still hold"


def test_what_runs_the_ranks_is_not_part_of_a_result(bench: Bench) -> None:
    elsewhere = ("set=arms.recite.parallel.runtime=torchrun arms.recite.parallel.retries=0",)
    entries = bench.computed()
    bench.run(config=elsewhere)
    assert bench.computed() == entries
    log = (bench.work / "logs/arms/recite/seed0/steps0000-0001.log").read_text()
    assert log.count("already in the store") == 2
