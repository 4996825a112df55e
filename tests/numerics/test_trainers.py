"""The gates `engine` and `logprobs` at the tensor-parallel size and precision of the arms, with real ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from internalize.errors import GateFailed
from internalize.numerics.gates import run_gate
from internalize.numerics.trainers import said
from internalize.numerics.verdict import Verdict, require
from internalize.runtime import runtimes
from internalize.runtime.group import TrainerGroup
from internalize.runtime.torchrun import TorchrunRanks
from internalize.study import load_study
from internalize.study_numerics import numerics_specs

TWO = "{tensor: 2, runtime: torchrun}"


def specs(repository: Path, *settings: str) -> dict[str, dict[str, Any]]:
    study = load_study(repository / "config/mini.yaml", set=["numerics={}", *settings])
    return numerics_specs(study, ["attention", "engine", "logprobs"])


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorchrunRanks]:
    """Two ranks that several gates are given one after another: starting them costs most."""
    ranks = TorchrunRanks(2, tmp_path_factory.mktemp("log") / "ranks.log")
    yield ranks
    ranks.close()


@pytest.fixture
def lent(two: TorchrunRanks, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ranks each runtime asked for."""
    asked: list[int] = []

    def lend(ranks: int, log: Path) -> TorchrunRanks:
        asked.append(ranks)
        return two

    monkeypatch.setattr(runtimes, "TorchrunRanks", lend)
    monkeypatch.setattr(TrainerGroup, "close", lambda group: None)
    return asked


def judged(repository: Path, folder: Path, work: Path, gate: str, **changes: Any) -> Verdict:
    spec = specs(repository, f"defaults.parallel={TWO}")[gate]
    return run_gate(spec | {"new_tokens": 4, "rounds": 2, "temperatures": [0.7]} | changes, folder, work)


def test_only_what_the_arms_train_with_stands_in_the_specs(repository: Path) -> None:
    plain = specs(repository)
    assert all("trainers" not in spec for spec in plain.values())
    assert specs(repository, "defaults.parallel={pipeline: 2, runtime: torchrun}") == plain
    mixed = specs(repository, f"defaults.parallel={TWO}", "arms.recite.parallel={tensor: 1, precision: bf16}")
    assert "trainers" not in mixed["attention"]
    assert mixed["engine"]["trainers"] == mixed["logprobs"]["trainers"]
    assert sorted(mixed["engine"]["trainers"], key=str) == [{"precision": "bf16"}, {"tensor": 2}]
    assert said({"tensor": 2, "precision": "bf16"}) == "tensor 2, precision bf16"


def test_both_gates_pass_at_two_ranks(repository: Path, folder: Path, tmp_path: Path, lent: list[int]) -> None:
    engine = judged(repository, folder, tmp_path, "engine")
    assert engine.passed
    assert [case.layer for case in engine.cases] == [
        "engine `local`",
        "engine `local, weights from a trainer of tensor 2`",
    ]
    logprobs = judged(repository, folder, tmp_path, "logprobs")
    assert logprobs.passed
    assert [f"round {n}" in case.shape for case, n in zip(logprobs.cases, (1, 2, 1, 2), strict=True)] == [True] * 4
    assert all("trainer of tensor 2" in case.layer for case in logprobs.cases[2:])
    one, _, many, _ = (case.error for case in logprobs.cases)
    assert many < 1e-5
    assert one != many, "two ranks add in another order: it is not the same trainer twice"
    assert lent == [2, 2]


def test_parts_that_come_together_in_the_wrong_order_are_found_with_their_layer(
    repository: Path, folder: Path, tmp_path: Path, lent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a rank's neighbour holds: the two halves of a matrix change places on their way through the ranks."""
    name = "model.layers.1.self_attn.o_proj.weight"
    state = load_file(folder / "model.safetensors")
    swapped = tmp_path / "swapped"
    swapped.mkdir()
    (swapped / "config.json").write_bytes((folder / "config.json").read_bytes())
    save_file({**state, name: state[name].roll(state[name].shape[1] // 2, 1)}, swapped / "model.safetensors")
    load = TrainerGroup.load_folder
    monkeypatch.setattr(TrainerGroup, "load_folder", lambda group, model: load(group, swapped))
    verdict = judged(repository, folder, tmp_path, "engine")
    assert [case.passed for case in verdict.cases] == [True, False]
    with pytest.raises(GateFailed) as failure:
        require([verdict])
    assert "weights from a trainer of tensor 2`: decoder layer 1" in str(failure.value)


def test_ranks_that_score_with_a_moved_weight_are_found(
    repository: Path, folder: Path, tmp_path: Path, lent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learning rate that is not 0 after all: the engine holds what the ranks held before the step."""
    step = TrainerGroup.train_step
    monkeypatch.setattr(TrainerGroup, "train_step", lambda group, batch, loss, lr: step(group, batch, loss, 1e-2))
    monkeypatch.setattr(runtimes.Spread, "sync", _once(runtimes.Spread.sync))
    verdict = judged(repository, folder, tmp_path, "logprobs")
    assert [case.passed for case in verdict.cases] == [True, True, True, False]
    assert "trainer of tensor 2" in verdict.cases[3].layer


def _once(sync: Any) -> Any:
    """The first sync of a runtime; later ones do not arrive."""

    def first_only(runtime: Any, version: str) -> None:
        if version == "numerics0":
            sync(runtime, version)

    return first_only


def test_half_precision_is_judged_within_its_tolerance(repository: Path, folder: Path, tmp_path: Path) -> None:
    spec = specs(repository, "defaults.parallel={precision: bf16}")["logprobs"] | {"new_tokens": 4, "rounds": 1}
    strict, wide = run_gate(spec, folder, tmp_path), run_gate(spec | {"tolerance": 0.05}, folder, tmp_path)
    assert [case.passed for case in strict.cases] == [True, True, False, False]
    assert wide.passed
