"""The table in the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from internalize.errors import MissingPayload
from internalize.report import stage
from internalize.report.console import print_results


@pytest.fixture(scope="module")
def results(module_study, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    stage.build(folder, module_study.spec(), module_study.inputs, lambda text: None)
    return folder


def test_it_prints_the_summary(results):
    out = io.StringIO()
    print_results(results, Console(file=out, width=200))
    text = out.getvalue()
    line = next(line for line in text.splitlines() if "│ recite" in line)
    for cell in ("+0.70 [", "12/16", "+0.74 [", "+1.00", "32/32", "0.40"):
        assert cell in line
    assert "(inside the noise)" in next(line for line in text.splitlines() if "│ idle" in line)
    assert "stopped by the collapse guard: broken: seed 0 at step 1" in text
    assert f"report: {results}/summary.md" in text


def test_on_a_narrow_terminal(results):
    out = io.StringIO()
    print_results(results, Console(file=out, width=80))
    text = out.getvalue()
    assert "…" not in text  # nothing is cut
    assert "(inside the noise)" in text
    assert "32/32" in text


def test_without_results(tmp_path):
    with pytest.raises(MissingPayload, match="make study"):
        print_results(tmp_path)
