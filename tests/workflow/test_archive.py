"""The archive of a real, if small, study: made by the workflow, whole, loadable, traceable."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from cells import disagreements, wrong_costs
from loading import load
from made_study import KINDS, kinds
from workbench import Bench

from internalize.archive.layout import MANIFEST, SUMS
from internalize.archive.verify import verify
from internalize.files import read_json
from internalize.report.evidence import COSTS, TABLES, Evidence
from internalize.report.results import read_results


def test_the_study_leaves_an_archive_that_is_whole(finished: Bench) -> None:
    archive = finished.work / "results" / "archive"
    assert verify(archive) == []
    assert all(set(suffixes) <= set(KINDS[top]) for top, suffixes in kinds(archive).items()), kinds(archive)
    subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=archive, check=True)
    for words in (["check"], ["trace", "recite", "final_eval_return"], ["trace", "none", "sft_only_rollout_clears"]):
        subprocess.run([sys.executable, "-I", "tables.py", *words], cwd=archive, check=True, stdout=subprocess.DEVNULL)


def test_every_number_of_the_study_can_be_asked(finished: Bench) -> None:
    """Every cell of every table is made again from the measurements that its evidence names; the page is there."""
    results = finished.work / "results"
    evidence = Evidence(read_results(results, finished.work / "store"))
    for table in TABLES:
        asked, wrong = (1, wrong_costs(evidence)) if table == COSTS else disagreements(evidence, table)
        assert asked
        assert wrong == []
    page = (results / "report" / "index.html").read_text()
    assert '"state":"whole"' in page, "the manifest of the archive, as the page saw it"
    assert len(page) < 5_000_000


def test_every_table_of_it_loads(finished: Bench, tmp_path: Path) -> None:
    if find_spec("datasets") is None:
        pytest.skip("needs datasets")
    archive = finished.work / "results" / "archive"
    tables = read_json(archive / MANIFEST)["tables"]
    counted = {name: entry["rows"] for name, entry in tables.items() if entry["rows"]}
    assert {name: found[0] for name, found in load(archive, tmp_path).items()} == counted


def test_a_deleted_archive_comes_back_without_packing(bench: Bench) -> None:
    archive = bench.work / "results" / "archive"
    (archive / SUMS).unlink()
    before = bench.entries()
    assert bench.planned() == {"archive.json"}
    bench.run()
    assert bench.entries() == before
    assert verify(archive) == []
    assert bench.planned() == set()
