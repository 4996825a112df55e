"""Segments whose training and play run in other processes give what the plain segment gives, also after a death."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from internalize.arms.segment import run_segment
from internalize.arms.worker import Worker
from internalize.checkpoints import layout
from internalize.checkpoints.torch_dist import read_hf
from internalize.files import read_json, read_jsonl
from internalize.receipts import Receipt, read_receipt
from internalize.rollout.dump import load_dump
from internalize.runtime import cluster
from internalize.runtime.failures import WorkerLost
from internalize.runtime.runtimes import Spread
from internalize.study_parallel import Parallel

LAST = 2  # two SFT steps and an RL step
Run = Callable[..., tuple[list[Receipt], list[str]]]


@pytest.fixture(scope="module")
def prepared(prepare: Callable[[], Any]) -> Any:
    """A store of this module's own."""
    return prepare()


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home of its own, to see that Ray writes nothing there."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def run(prepared: Any) -> Iterator[Run]:
    """Runs the steps; every call computes them anew. One Ray cluster serves all of them."""
    import ray  # noqa: F401  # another package may import it before us: mode and token of now are what counts

    def go(name: str, parallel: Parallel | None = None) -> tuple[list[Receipt], list[str]]:
        spec = prepared.segment("recite", LAST)
        if parallel is not None:
            spec["parallel"] = {"decides": parallel.decides(), "runs": parallel.plain()}
        path = prepared.receipts / "arms" / name / "seed0" / "steps0000-0002" / "step0002.json"
        said: list[str] = []
        # the code's fingerprint is part of the key: another name, another computation
        run_segment(spec, name, prepared.inputs("teacher_turns"), path, prepared.store, said.append)
        return [read_receipt(path.with_name(f"step{step:04d}.json")) for step in range(LAST + 1)], said

    with pytest.MonkeyPatch.context() as patch:
        close = cluster.shutdown
        patch.setattr(cluster, "shutdown", lambda: None)
        yield go
        close()


@pytest.fixture(scope="module")
def plain(run: Run) -> list[Receipt]:
    return run("plain")[0]


RAY = Parallel(tensor=2, runtime="ray", engines=2)
TORCHRUN = Parallel(tensor=2, runtime="torchrun")


@pytest.fixture(scope="module")
def on_torchrun(run: Run) -> list[Receipt]:
    """Two training ranks; the engine stays in the segment's process."""
    return run("torchrun", TORCHRUN)[0]


@pytest.fixture(scope="module")
def on_ray(run: Run) -> list[Receipt]:
    """Two training ranks and two engines."""
    return run("ray", RAY)[0]


def assert_same_result(prepared: Any, found: list[Receipt], wanted: list[Receipt]) -> None:
    """Equal episodes token by token; losses, log-probs and weights as far as the order of additions allows."""
    for step, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        assert mine.facts["loss"] == pytest.approx(theirs.facts["loss"], abs=1e-5)
        assert {k: mine.facts.get(k) for k in ("return_mean", "clears", "episodes")} == {
            k: theirs.facts.get(k) for k in ("return_mean", "clears", "episodes")
        }
        a, b = (prepared.store.open(receipt).payload for receipt in (mine, theirs))
        ours, others = (load_dump(folder / "rollout" / f"{step}.pt").batches for folder in (a, b))
        assert [[s.tokens for s in batch] for batch in ours] == [[s.tokens for s in batch] for batch in others]
        for one, other in zip(itertools.chain(*ours), itertools.chain(*others), strict=True):
            assert one.advantages == other.advantages
            assert one.rollout_logprobs == (
                None if other.rollout_logprobs is None else pytest.approx(other.rollout_logprobs, abs=1e-5)
            )
        config = read_json(prepared.store.open(read_receipt(prepared.receipts / "base.json")).payload / "config.json")
        weights, expected = (read_hf(layout.iteration_folder(folder, step), config) for folder in (a, b))
        assert all(float((weights[name] - expected[name]).abs().max()) < 2e-4 for name in expected)
        assert layout.read_cursor(a, step) == layout.read_cursor(b, step)


def trained(prepared: Any, receipt: Receipt) -> dict[str, Any]:
    rows = read_jsonl(prepared.store.open(receipt).payload / "metrics.jsonl")
    return next(row for row in rows if row["kind"] == "train")


def test_two_ranks_under_torchrun_give_what_one_gives(
    on_torchrun: list[Receipt], prepared: Any, plain: list[Receipt]
) -> None:
    receipts = on_torchrun
    assert_same_result(prepared, receipts, plain)
    assert receipts[LAST].spec["parallel"] == {"tensor": 2}
    assert trained(prepared, receipts[LAST])["logprob_abs_diff"] < 1e-5, "the engine plays what the ranks hold"
    parts = prepared.store.run_info(receipts[0])["cpu_parts_s"]
    assert parts["ranks and engines"] > 1, "the CPU seconds of the ranks count"
    assert not list((prepared.work / "store" / "scratch").iterdir())


def test_two_ranks_and_two_engines_on_ray_give_what_one_process_gives(
    on_ray: list[Receipt], prepared: Any, plain: list[Receipt], home: Path
) -> None:
    assert_same_result(prepared, on_ray, plain)
    assert trained(prepared, on_ray[LAST])["logprob_abs_diff"] < 1e-5
    assert not list(home.iterdir())
    assert not list((prepared.work / "store" / "scratch").iterdir())


def test_engines_and_ranks_may_take_turns_on_their_devices(run: Run, on_ray: list[Receipt]) -> None:
    receipts, _ = run("turns", RAY.model_copy(update={"placement": "colocated"}))
    assert [receipt.files for receipt in receipts] == [receipt.files for receipt in on_ray]


Victim = Callable[[Spread], int]


def killing(monkeypatch: pytest.MonkeyPatch, method: str, victim: Victim) -> list[int]:
    """Kills a process right before the first `Worker.method` of the RL step; the list takes its id."""
    original, killed = getattr(Worker, method), []

    def wrapped(worker: Worker, settings: Any, *arguments: Any) -> Any:
        if settings.step == LAST and not killed:
            assert isinstance(worker.runtime, Spread)
            killed.append(victim(worker.runtime))
            os.kill(killed[0], signal.SIGKILL)
        return original(worker, settings, *arguments)

    monkeypatch.setattr(Worker, method, wrapped)
    return killed


def second_engine(runtime: Any) -> int:
    return runtime.engine._hosts.processes["engine 1"]


def second_rank(runtime: Any) -> int:
    return runtime.trainer._ranks.processes["rank 1"]


def test_a_step_on_ray_survives_an_engine_and_a_rank(
    run: Run, on_ray: list[Receipt], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt loses an engine while it plays, the second a rank while it trains."""
    killing(monkeypatch, "_play", second_engine)
    killing(monkeypatch, "_batches", second_rank)
    receipts, said = run("killed-ray", RAY)
    lines = [line for line in said if "tried again" in line]
    assert len(lines) == 2
    assert "engine 1" in lines[0]
    assert "died during `generate`" in lines[0]
    assert "rank 1 died during `train_step`" in lines[1]
    assert all("tried again from the commit of step 1" in line for line in lines)
    assert [receipt.files for receipt in receipts] == [receipt.files for receipt in on_ray], "bit for bit"


def test_a_step_under_torchrun_survives_a_rank(
    run: Run, on_torchrun: list[Receipt], monkeypatch: pytest.MonkeyPatch
) -> None:
    killing(monkeypatch, "_batches", second_rank)
    receipts, said = run("killed-torchrun", TORCHRUN)
    (line,) = [line for line in said if "tried again" in line]
    assert "rank 1 died during `train_step` (exit status -9" in line
    assert [receipt.files for receipt in receipts] == [receipt.files for receipt in on_torchrun], "bit for bit"


@pytest.mark.parametrize("deaths", [2, 3])
def test_a_step_is_given_up_when_its_retries_are_used_up(
    run: Run, plain: list[Receipt], deaths: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, died = Worker.run, []

    def dying(worker: Worker, settings: Any, *arguments: Any) -> Any:
        if settings.step == LAST and len(died) < deaths:
            died.append(worker)
            raise WorkerLost("rank 0 died during `save`", got="exit status -9")
        return original(worker, settings, *arguments)

    monkeypatch.setattr(Worker, "run", dying)
    one = Parallel(retries=2)  # in this process: what is tested is the segment
    if deaths > one.retries:
        with pytest.raises(WorkerLost, match="rank 0 died"):
            run(f"deaths-{deaths}", one)
        return
    receipts, said = run(f"deaths-{deaths}", one)
    assert [receipt.files for receipt in receipts] == [receipt.files for receipt in plain]
    assert sum("tried again" in line for line in said) == deaths
