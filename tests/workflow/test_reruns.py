"""What a change reruns: exactly what depends on it, and nothing that the store already holds."""

from __future__ import annotations

import json
import shutil

from workbench import Bench

RECITE = "arms/recite/seed0/steps0000-0001/step0001.json"
NONE = "arms/none/seed0/steps0000-0001/step0001.json"
REPORT = {"report.json", "archive.json"}
OF_RECITE = {RECITE, "evals/recite/seed0.json", *REPORT}


def test_a_finished_study_has_nothing_to_do_wherever_it_lies(bench: Bench) -> None:
    # `bench` is a fresh checkout with new time stamps: a clone, and a touch of every file, in one
    assert bench.planned() == set()


def test_comments_and_docstrings_rerun_nothing(bench: Bench) -> None:
    bench.edit("src/internalize/arms/worker.py", "from __future__", "# a remark\nfrom __future__")
    bench.edit("src/internalize/rows/stage.py", '"""The rows stage', '"""Another word on the rows stage')
    bench.edit("rules/arms.smk", "rule segment", "# a remark\nrule segment")
    bench.edit("Snakefile", "rule all", "# a remark\nrule all")
    assert bench.planned() == set()


def test_a_real_edit_reruns_what_depends_on_it_and_a_revert_nothing(bench: Bench) -> None:
    old, new = "from __future__ import annotations\n", "from __future__ import annotations\n\nEDITED = 1\n"
    bench.edit("src/internalize/evals/stage.py", old, new)
    evals = {"evals/base.json", "evals/none/seed0.json", "evals/recite/seed0.json"}
    assert bench.planned() == {*evals, *REPORT}
    bench.edit("src/internalize/evals/stage.py", new, old)
    assert bench.planned() == set()


def test_an_edit_of_the_study_model_reruns_nothing(bench: Bench) -> None:
    bench.edit("src/internalize/study.py", "class Study(Settings):", "EDITED = 1\n\n\nclass Study(Settings):")
    assert bench.planned() == set()


def test_swapping_the_values_of_two_settings_reruns_that_arm_alone(bench: Bench) -> None:
    # snakemake compares the *set* of a job's params: as params, two traded values go unnoticed
    before = ("set=arms.recite.sft.optimizer_steps=4 arms.recite.rl.optimizer_steps=2",)
    after = ("set=arms.recite.sft.optimizer_steps=2 arms.recite.rl.optimizer_steps=4",)
    assert bench.planned(config=before) == OF_RECITE
    bench.run("--touch", config=before)  # as if it had been run: the records say `before`, the files stay
    assert bench.planned(config=before) == set()
    assert bench.planned(config=after) == OF_RECITE


def test_a_note_changes_only_what_tells_it(bench: Bench) -> None:
    assert bench.planned(config=("set=arms.recite.note=better",)) == REPORT


def test_more_steps_run_only_the_new_steps(bench: Bench) -> None:
    longer = ("set=arms.recite.steps=3",)
    last = "arms/recite/seed0/steps0000-0002/step0002.json"
    assert bench.planned(config=longer) == {last, "evals/recite/seed0.json", *REPORT}
    before = bench.entries()
    bench.run(config=longer)
    new = bench.entries() - before
    assert sum(entry.startswith("store/step/") for entry in new) == 1
    log = (bench.work / "logs/arms/recite/seed0/steps0000-0002.log").read_text().splitlines()
    assert ["already in the store" in line for line in log if " step " in line] == [True, True, False]
    assert bench.planned(config=longer) == set()
    assert bench.planned() == {"evals/recite/seed0.json", *REPORT}, "shorter again: the old receipts still hold"


def test_a_new_arm_runs_only_its_own_jobs(bench: Bench) -> None:
    own = {"arms/arm_c/seed0/steps0000-0001/step0001.json", "evals/arm_c/seed0.json"}
    assert bench.planned(arms=None) == {"harvest/own.json", "rows/inserted_facts.json", *own, *REPORT}


def test_one_arm_less_makes_only_another_report_and_archive(bench: Bench) -> None:
    assert bench.planned(arms="none") == REPORT


def test_another_segment_length_recomputes_nothing(bench: Bench) -> None:
    single = ("steps_per_job=1",)
    segments = {f"arms/{arm}/seed0/steps{i:04d}-{i:04d}/step{i:04d}.json" for arm in ("none", "recite") for i in (0, 1)}
    evals = {"evals/none/seed0.json", "evals/recite/seed0.json"}
    assert bench.planned(config=single) == {*segments, *evals, *REPORT}
    before = bench.entries()
    bench.run(config=single)
    assert bench.entries() == before
    assert bench.planned(config=single) == set()


def test_a_deleted_receipt_comes_back_without_computing(bench: Bench) -> None:
    before = bench.entries()
    kept = {path: path.read_text() for path in bench.work.glob("results/receipts/**/*.json")}
    shutil.rmtree(bench.work / "results" / "receipts")
    shutil.rmtree(bench.work / ".snakemake")
    bench.run()
    assert bench.entries() == before
    assert {path: path.read_text() for path in kept} == kept
    assert bench.planned() == set()


def test_a_forced_step_that_comes_out_the_same_leaves_nothing_to_do(bench: Bench) -> None:
    receipt = bench.work / "results/receipts" / RECITE
    before = receipt.read_text()
    shutil.rmtree(bench.work / "store/step")  # the steps must really be computed again
    bench.run("--forcerun", f"results/receipts/{RECITE}", "--until", "segment")
    log = (bench.work / "logs/arms/recite/seed0/steps0000-0001.log").read_text()
    assert "already in the store" not in log
    assert receipt.read_text() == before
    assert bench.planned() == set()


def test_one_step_can_be_asked_for(bench: Bench) -> None:
    step = "arms/recite/seed0/steps0000-0000/step0000.json"
    assert bench.planned(f"results/receipts/{step}") == {step}


def test_receipts_say_what_made_them(finished: Bench) -> None:
    receipt = json.loads((finished.work / "results/receipts" / RECITE).read_text())
    assert (receipt["stage"], receipt["status"], receipt["spec"]["phase"]) == ("step", "done", "rl")
    assert set(receipt["parents"]) >= {"base", "gate", "knowledge", "previous"}
    assert "recite" not in json.dumps(receipt["spec"]), "a spec that held its arm's name could not be shared"


def test_the_catalog_entry_point_plans_the_same(bench: Bench) -> None:
    assert bench.planned("--snakefile", str(bench.checkout / "workflow/Snakefile")) == set()
