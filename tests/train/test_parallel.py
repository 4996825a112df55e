"""The same training at every parallel shape, in real processes on gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from parallel_ranks import CONFIG, KINDS, SAVED_AFTER, SHAPES, UNTIED, odd_cases, resume, train

import internalize
from internalize.checkpoints.torch_dist import TorchDist, read_hf
from internalize.train.trainer import ParallelSpec

TOLERANCE = 1e-5
ONE = ParallelSpec()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parallel")


@pytest.fixture(scope="module")
def one(folder: Path) -> dict[str, Any]:
    """One rank; its checkpoint is there before the others start."""
    found: dict[str, Any] = {
        kind: train(kind, CONFIG, ONE, folder / "one-joint" if kind == "joint" else None) for kind in KINDS
    }
    half = train("sft", CONFIG, replace(ONE, precision="bf16"))
    return found | {"untied": train("sft", UNTIED, ONE), "half": half, "odd": odd_cases(ONE)}


@pytest.fixture(scope="module")
def ranks(one: dict[str, Any], folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Shape -> what each of its ranks found."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(Path(internalize.__file__).parents[1]), str(here)])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(here / "parallel_ranks.py"), str(folder)]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return {
        name: [json.loads((folder / f"{name}.{r}.json").read_text()) for r in range(len(shape.ranks))]
        for name, shape in SHAPES.items()
    }


def assert_same_steps(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert len(found) == len(wanted)
    for step, reference in zip(found, wanted, strict=True):
        assert step["tokens"] == reference["tokens"]
        assert step["skipped"] == reference["skipped"]
        for key in ("loss", "ce_loss", "pg_loss", "kl_loss", "clip_fraction", "ratio_mean", "logprob_abs_diff"):
            assert step[key] == pytest.approx(reference[key], abs=TOLERANCE), key
        assert step["grad_norm"] == pytest.approx(reference["grad_norm"], rel=TOLERANCE)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", [*KINDS, "untied"])
def test_every_shape_trains_like_one_rank(one: dict[str, Any], ranks: Any, shape: str, kind: str) -> None:
    if kind not in ranks[shape][0]:
        pytest.skip("untied embeddings matter to pipelines only")
    for rank in ranks[shape]:
        assert rank[kind]["loaded"], "loading and exporting gives the same tensors back"
        assert_same_steps(rank[kind]["steps"], one[kind]["steps"])
        for name, values in one[kind]["weights"].items():
            assert rank[kind]["weights"][name] == pytest.approx(values, abs=1e-4), name
    moved = [step["loss"] for step in one[kind]["steps"]]
    assert len(set(moved)) == len(moved)


@pytest.mark.parametrize("shape", ["tp2", "pp2"])
def test_bf16_over_ranks_is_bf16_on_one(one: dict[str, Any], ranks: Any, shape: str) -> None:
    """Sums are rounded to 8 bits in another order, so within some of these."""
    for rank in ranks[shape]:
        assert rank["half"]["loaded"]
        for step, reference in zip(rank["half"]["steps"], one["half"]["steps"], strict=True):
            assert step["loss"] == pytest.approx(reference["loss"], rel=0.01)
            assert step["grad_norm"] == pytest.approx(reference["grad_norm"], rel=0.05)


def test_all_ranks_report_the_same(ranks: Any) -> None:
    for found in ranks.values():
        assert all(rank == found[0] for rank in found)


def test_recomputation_changes_no_bit(ranks: Any) -> None:
    again = ranks["tp2-recompute"][0]
    assert {name: ranks["tp2"][0][name] for name in again} == again


@pytest.mark.parametrize("saved", ["tp2", "pp2", "dp2", "tp2-pp2", "pp2-dp2"])
def test_any_shape_is_continued_by_one_rank(one: dict[str, Any], ranks: Any, folder: Path, saved: str) -> None:
    steps = resume(folder / f"{saved}-joint", ONE)
    assert_same_steps(steps, ranks[saved][0]["joint"]["steps"][SAVED_AFTER:])
    assert_same_steps(steps, one["joint"]["steps"][SAVED_AFTER:])


@pytest.mark.parametrize("source", ["from one rank", "from dp2"])
def test_four_ranks_continue_what_others_saved(one: dict[str, Any], ranks: Any, source: str) -> None:
    for rank in ranks["tp2-pp2"]:
        assert_same_steps(rank[source], one["joint"]["steps"][SAVED_AFTER:])


def test_a_checkpoint_of_many_ranks_holds_the_tensors_of_one(one: dict[str, Any], ranks: Any, folder: Path) -> None:
    mine, theirs = read_hf(folder / "one-joint", CONFIG), read_hf(folder / "tp2-pp2-joint", CONFIG)
    assert list(mine) == list(theirs)
    assert all(float((mine[name] - theirs[name]).abs().max()) < 1e-4 for name in mine)
    with TorchDist(folder / "one-joint") as a, TorchDist(folder / "tp2-pp2-joint") as b:
        assert a.tensors() == b.tensors()


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_empty_or_broken_on_one_rank_concerns_all(one: dict[str, Any], ranks: Any, shape: str) -> None:
    for rank in ranks[shape]:
        odd, wanted = rank["odd"], one["odd"]
        assert odd["skipped"]
        assert odd["broken"] == wanted["broken"], "the same tensor is named"
        assert "decoder.layers.1.mlp.linear_fc2.weight" in odd["broken"]
        assert_same_steps([odd["one sequence"]], [wanted["one sequence"]])
        assert_same_steps([odd["after"]], [wanted["after"]])
