"""Publishing: the payload's files, and the cost beside them."""

from __future__ import annotations

import pytest

from internalize.files import write_text
from internalize.report.publish import categories, cost_section, costs, publish
from internalize.store import Store

STEP = {
    "cpu_s": 10.0,
    "wall_s": 12.0,
    "peak_rss_mib": 700,
    "cpu_parts_s": {"startup": 2.0, "play": 3.0, "train": 4.0, "save": 0.5},
}
EVALS = {"cpu_s": 6.0, "wall_s": 6.0, "peak_rss_mib": 500, "cpu_parts_s": {"inputs": 1.0}}


def test_categories():
    assert categories("step", STEP) == {
        "play": 3.0,
        "training": 4.0,
        "overhead": 3.0,
    }  # 2 startup, 0.5 save, 0.5 unnamed
    assert categories("evals", EVALS) == {"overhead": 1.0, "evals": 5.0}
    assert categories("knowledge", {}) == {}


def test_costs_by_stage():
    rows = costs([("step", STEP), ("evals", EVALS), ("step", STEP)])
    assert [row["stage"] for row in rows] == ["evals", "step"]
    step = rows[1]
    assert (step["runs"], step["cpu_s"], step["wall_s"], step["play_s"], step["peak_rss_mib"]) == (
        2,
        20.0,
        24.0,
        6.0,
        700,
    )


def test_section():
    text = cost_section(costs([("step", STEP), ("evals", EVALS)]))
    assert "| step | 1 | 10.0 | 3.0 | 4.0 | - | 3.0 | 700 |" in text
    # work: 3 + 4 + 5 of 16
    assert "Neither play nor training nor evals: 25 % of 16.0 CPU s." in text
    with_total = cost_section(costs([("step", STEP), ("evals", EVALS)]), total_cpu_s=20.0)
    assert "Snakemake and what no receipt accounts for: 4.0 CPU s." in with_total
    assert "40 % of 20.0 CPU s" in with_total


@pytest.fixture
def stored(tmp_path):
    store = Store(tmp_path / "store")
    partial = store.partial("report", "k" * 64)
    write_text(partial / "summary.md", "# results\n")
    write_text(partial / "tables" / "a.csv", "a\n1\n")
    receipt = store.commit(
        partial,
        stage="report",
        name="report",
        key="k" * 64,
        spec={},
        code="",
        parents={},
        facts={},
        status="done",
        run=EVALS,
    )
    return store, receipt


def test_publish(stored, tmp_path):
    store, receipt = stored
    results = tmp_path / "results"
    publish(store, {"report": receipt}, receipt, results)
    text = (results / "summary.md").read_text()
    assert text.startswith("# results\n")
    assert "## Cost" in text
    assert (results / "tables" / "a.csv").read_text() == "a\n1\n"
    assert (results / "costs.csv").read_text().startswith("stage,runs,cpu_s")
    assert not (results / "receipt.json").exists()
    # the payload itself is untouched: its hash still holds
    publish(store, {"report": receipt}, receipt, results)
    assert (results / "summary.md").read_text() == text
