"""Every cell of every table, asked: the value made again from the named measurements alone is the table's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cells import disagreements, rows_of, wrong_costs
from disk import Disk
from typer.testing import CliRunner

from internalize.cli import app
from internalize.errors import CorruptPayload, MissingPayload, UserError
from internalize.report.evidence import COSTS, TABLES, Evidence, Ref
from internalize.report.explain import explain, how, lines
from internalize.report.results import read_results
from internalize.report.text import cell_text


@pytest.fixture(scope="module")
def evidence(disk: Disk) -> Evidence:
    return Evidence(read_results(disk.results, disk.store))


@pytest.mark.parametrize("table", [table for table in TABLES if table != COSTS])
def test_every_cell_follows_from_its_evidence(evidence: Evidence, table: str):
    asked, wrong = disagreements(evidence, table)
    assert asked == sum(len(row) for row in rows_of(evidence, table)) > 50
    assert wrong == []


def test_costs_follow_from_the_runs(evidence: Evidence):
    assert wrong_costs(evidence) == []
    assert {row["stage"] for row in rows_of(evidence, COSTS)} >= {"step", "evals"}


@pytest.mark.parametrize(
    ("table", "column", "refs"),
    [
        ("sft_only", "eval_return", 4),
        ("sft_only", "eval_diff", 6),
        ("final", "rl_gain", 8),
        ("sft_only", "rollout_clears", 4),
    ],
)
def test_evidence_names_no_more_than_the_cell_needs(evidence: Evidence, table: str, column: str, refs: int):
    """Without the measurements of one seed, or of one side of a difference, the cell is another one."""
    found = evidence.behind(table, "recite", None, column)
    assert len(found) == refs
    printed = evidence.recomputed(table, "recite", None, column)
    for lacking in {(ref.arm, ref.seed, ref.step) for ref in found}:
        rest = [ref for ref in found if (ref.arm, ref.seed, ref.step) != lacking]
        row = next(row for row in evidence.again(rest, table) if row["arm"] == "recite")
        low = f"{column}_low"
        assert cell_text(row[column]) != printed or cell_text(row[low]) != evidence.recomputed(
            table, "recite", None, low
        )


def test_a_stop_is_traced_to_its_receipt(evidence: Evidence):
    refs = evidence.behind("sft_only", "broken", None, "stopped")
    assert refs == [Ref("broken", 0, 1, "stop"), Ref("broken", 1, 1, "stop")]
    assert "limit 50%" in evidence.recomputed("sft_only", "broken", None, "stopped")
    assert evidence.behind("sft_only", "recite", None, "stopped") == []


def test_the_base_counts_once(evidence: Evidence):
    refs = evidence.behind("sft_only", "none", None, "eval_clears")
    assert refs == [Ref(None, 0, -1, "eval"), Ref(None, 0, -1, "eval_episodes")]


def test_an_explanation_names_files_hashes_and_commands(evidence: Evidence, disk: Disk):
    found = explain(evidence, "final", "recite", "eval_return")
    assert found.equal
    assert [(row.seed, row.step, row.kind, row.key) for row in found.metrics] == [
        (0, 3, "eval", "return_mean"),
        (1, 3, "eval", "return_mean"),
    ]
    for row in found.metrics:
        told = json.loads(Path(row.path).read_text().split("\n")[row.line - 1])
        assert (told["kind"], told["step"], told["return_mean"]) == ("eval", row.step, row.value)
    assert [(one.valid, one.clears) for one in found.episodes] == [(16, 16), (16, 16)]
    assert [made.label for made in found.receipts] == ["evals.recite.0", "evals.recite.1"]
    assert found.receipts[0].made_from == {"base": 1, "knowledge": 1, "step": 4}
    assert found.commands[-1] == (
        f"snakemake --profile local {disk.results}/receipts/evals/recite/seed0.json "
        f"{disk.results}/receipts/evals/recite/seed1.json"
    )
    assert found.commands[0].startswith("internalize forget evals ")
    text = "\n".join(lines(found))
    assert "made again from what follows: 1.0, equal" in text
    assert found.episodes[0].sha256[:16] in text


def test_a_row_is_an_arm_or_an_arm_and_step(evidence: Evidence):
    assert explain(evidence, "knowledge", "recite:1", "nll_play").printed == "0.4"
    assert explain(evidence, "costs", "evals", "cpu_s").equal
    for table, row, column, said in (
        ("tables", "recite", "arm", "no such table"),
        ("final", "recit", "eval_return", "did you mean `recite`?"),
        ("final", "recite", "eval_returns", "did you mean `eval_return`?"),
        ("knowledge", "recite", "nll_play", "recite:1"),
    ):
        with pytest.raises(UserError, match=said.replace("?", r"\?")):
            explain(evidence, table, row, column)


def test_every_column_says_how_it_is_made(evidence: Evidence):
    for table in TABLES:
        for column in rows_of(evidence, table)[0]:
            assert len(how(table, column)) > 10


def test_the_command(disk: Disk):
    options = ["--results", str(disk.results), "--store", str(disk.store)]
    done = CliRunner().invoke(app, ["explain", "summary", "recite", "final_eval_clears", *options])
    assert done.exit_code == 0, done.output
    assert "final_eval_clears = 32" in done.output
    done = CliRunner().invoke(app, ["explain", "summary", "recite", "final_eval_clears", "--json", *options])
    assert json.loads(done.output)["equal"] is True


def test_a_changed_file_or_number_is_seen(disk: Disk, tmp_path: Path):
    """A table that was edited is not equal; an episode that was edited is refused."""
    results, store = tmp_path / "results", tmp_path / "store"
    shutil.copytree(disk.results, results)
    shutil.copytree(disk.store, store)
    table = results / "tables/final.csv"
    table.write_text(table.read_text().replace("recite,4,2,1.0", "recite,4,2,0.9"))
    options = ["--results", str(results), "--store", str(store)]
    done = CliRunner().invoke(app, ["explain", "final", "recite", "eval_return", *options])
    assert done.exit_code == 1
    assert "NOT EQUAL" in done.output
    entry = read_results(results, store).payload("evals.recite.0")
    episodes = entry / "episodes/step-0003/episodes.jsonl"
    episodes.write_text(episodes.read_text().replace("true", "null", 1))
    with pytest.raises(CorruptPayload, match="content of evals"):
        explain(Evidence(read_results(results, store)), "final", "recite", "eval_return")
    (results / "receipts/evals/recite/seed0.json").unlink()
    with pytest.raises(MissingPayload, match=r"evals\.recite\.0"):
        read_results(results, store)
