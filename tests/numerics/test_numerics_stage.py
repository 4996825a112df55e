"""Gates as a job: one receipt each, a failing one leaves none, the others stay in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from internalize.cli import app
from internalize.errors import GateFailed, UserError
from internalize.files import read_json
from internalize.numerics.gates import layer_kinds, run_gate
from internalize.numerics.stage import FIGURES, run_gates
from internalize.receipts import Receipt, read_receipt, write_receipt
from internalize.store import Store
from internalize.study import Study, load_study
from internalize.study_numerics import GATES, Numerics, chosen_gates, numerics_specs

STUDY = "config/mini.yaml"


@pytest.fixture
def study(repository: Path) -> Study:
    return load_study(repository / STUDY, set=["numerics={}"])


@pytest.fixture
def base(folder: Path, tmp_path: Path) -> dict[str, Path]:
    """The receipt of a committed base."""
    store = Store(tmp_path / "store")
    key = store.key("base", {}, "code", {})
    partial = store.partial("base", key)
    for file in folder.iterdir():
        (partial / file.name).write_bytes(file.read_bytes())
    receipt = store.commit(
        partial, stage="base", name="base", key=key, spec={}, code="code", parents={}, facts={}, status="done", run={}
    )
    write_receipt(tmp_path / "base.json", receipt)
    return {"base": tmp_path / "base.json"}


def run(specs: dict[str, Any], base: dict[str, Path], tmp_path: Path) -> tuple[dict[str, Receipt], list[str]]:
    said: list[str] = []
    run_gates(specs, "code", base, tmp_path / "receipts" / "numerics", Store(tmp_path / "store"), said.append)
    return {path.stem: read_receipt(path) for path in (tmp_path / "receipts" / "numerics").glob("*.json")}, said


def test_every_gate_passes_on_a_sound_model_and_leaves_a_receipt(
    study: Study, base: dict[str, Path], tmp_path: Path
) -> None:
    specs = numerics_specs(study, GATES)
    receipts, said = run(specs, base, tmp_path)
    assert set(receipts) == set(GATES)
    for gate, receipt in receipts.items():
        assert receipt.facts["passed"] is True
        assert receipt.facts["cases"]
        assert read_json(tmp_path / "store" / receipt.entry / FIGURES)["gate"] == gate
        assert receipt.spec["versions"]["torch"]
    assert sum("passed" in line for line in said) >= len(GATES)
    again, said = run(specs, base, tmp_path)
    assert again == receipts
    assert all("already in the store" in line for line in said)


def test_a_failing_gate_leaves_no_receipt_and_the_others_stay(
    study: Study, base: dict[str, Path], tmp_path: Path
) -> None:
    specs = numerics_specs(study, ["attention", "engine", "sync"])
    specs["engine"]["tolerance"] = 1e-12
    with pytest.raises(GateFailed) as failure:
        run(specs, base, tmp_path)
    assert failure.value.where.startswith("engine: engine `local`: ")
    assert {p.stem for p in (tmp_path / "receipts" / "numerics").glob("*.json")} == {"attention", "sync"}
    specs["engine"]["tolerance"] = 1e-3
    _, said = run(specs, base, tmp_path)
    assert sum("already in the store" in line for line in said) == 2


def test_other_libraries_are_another_result(
    study: Study, base: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = numerics_specs(study, ["sync"])
    run(specs, base, tmp_path)
    monkeypatch.setattr("internalize.numerics.stage.library_versions", lambda: {"torch": "99"})
    receipts, said = run(specs, base, tmp_path)
    assert receipts["sync"].spec["versions"] == {"torch": "99"}
    assert not any("already in the store" in line for line in said)


def test_a_missing_gpu_is_said_and_not_passed(study: Study, folder: Path, tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    spec = numerics_specs(study, ["attention"])["attention"] | {"device": "cuda"}
    with pytest.raises(UserError, match="needs a GPU"):
        run_gate(spec, folder, tmp_path)


def test_gates_of_a_study(repository: Path) -> None:
    assert chosen_gates(None) == []
    assert chosen_gates(Numerics(gates=["sync", "attention"])) == ["attention", "sync"]
    plain = load_study(repository / STUDY)
    assert plain.numerics is None
    assert numerics_specs(plain) == {}


def test_layers_are_named_where_the_config_tells_kinds_apart() -> None:
    kinds = ["linear_attention", "linear_attention", "full_attention"] * 4
    config = {"num_hidden_layers": 12, "layer_types": kinds}
    assert layer_kinds(config, "full_attention") == (12, "layers 2, 5, 8, 11")
    assert layer_kinds(config, "linear_attention") == (12, "layers 0, 1, 3, ..., 10")
    assert layer_kinds({"num_hidden_layers": 3}, "full_attention") == (3, "")


def test_the_command_prints_a_table_and_fails_with_the_gate(folder: Path, repository: Path) -> None:
    command = ["numerics", str(repository / STUDY), "--model", str(folder), "--gate", "attention", "--gate", "sync"]
    done = CliRunner().invoke(app, command, catch_exceptions=True)
    assert done.exit_code == 0, done.output
    assert "core attention" in done.output
    assert "FAILED" not in done.output
    strict = CliRunner().invoke(app, [*command, "--set", "numerics={attention: {tolerance: 0.0}}"])
    assert isinstance(strict.exception, GateFailed)
    assert "FAILED" in strict.output
    unknown = CliRunner().invoke(app, [*command, "--gate", "atention"])
    assert isinstance(unknown.exception, UserError)
    assert "attention" in unknown.exception.fix
