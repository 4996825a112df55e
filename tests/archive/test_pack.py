"""Packing: equal twice, incremental, safe to kill; nothing of the machine gets in."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from made_study import MadeStudy, make_study, tree
from typer.testing import CliRunner

from internalize import cli, runlog
from internalize.archive.job import check_closed
from internalize.archive.tarread import members, read_folder
from internalize.archive.verify import verify
from internalize.archive.wandb_file import read_run
from internalize.errors import CorruptPayload, UserError
from internalize.files import read_json, read_jsonl, write_bytes, write_json
from internalize.seeds import rng

TIMED = ("state/log.jsonl", "state/log.md")
"""They tell when the archive was made; the manifests and the card hash or measure them."""
HASHED = ("MANIFEST.json", "MANIFEST.sha256", "README.md", "ro-crate-metadata.json")


def settled(root: Path) -> dict[str, bytes]:
    """The archive without its log and what follows from the log's bytes."""
    return {path: data for path, data in tree(root).items() if path not in (*TIMED, *HASHED)}


def test_two_packs_of_the_same_runs_are_byte_identical(finished: MadeStudy, tmp_path: Path) -> None:
    other = make_study(tmp_path / "again")
    other.run(threads=2)
    first, second = settled(finished.archive), settled(other.archive)
    assert first.keys() == second.keys()
    assert [path for path in first if first[path] != second[path]] == []


def test_an_archive_put_together_again_from_the_store_is_the_same(finished: MadeStudy, tmp_path: Path) -> None:
    made = make_study(tmp_path)
    made.run()
    first = (made.archive / "README.md").read_text()
    shutil.rmtree(made.archive)
    made.run()
    assert (made.archive / "README.md").read_text().split("## Contents")[0] == first.split("## Contents")[0]


def test_only_what_changed_is_packed_again(tmp_path: Path) -> None:
    made = make_study(tmp_path, seeds=(0,), converted=False)
    made.run()
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("store/pack/*/receipt.json")}
    made.spec["archive"] = {**made.spec["archive"], "title": "A better title"}
    made.run()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("store/pack/*/receipt.json")} == times
    assert "# A better title" in (made.archive / "README.md").read_text()
    del made.receipts["evals.recite.0"]
    summary = (made.store.root / made.receipts["report"].entry / "summary.csv").read_bytes()

    def report(folder: Path) -> dict[str, str]:
        write_bytes(folder / "summary.csv", summary)
        return {}

    made.add("report", "report", report, ("base=base",))
    made.run()
    new = {path for path in tmp_path.glob("store/pack/*/receipt.json") if path not in times}
    assert [json.loads(path.read_text())["name"] for path in new] == ["recite-seed0"]


def test_a_damaged_payload_stops_the_pack_and_is_named(tmp_path: Path) -> None:
    made = make_study(tmp_path, seeds=(0,), converted=False)
    entry = tmp_path / "store" / made.receipts["step.none.0.0000"].entry
    shutil.rmtree(entry / "iter_0000000")  # a pruned checkpoint is no reason to stop
    (entry / "calls.jsonl.zst").write_bytes(b"x" * (entry / "calls.jsonl.zst").stat().st_size)
    with pytest.raises(CorruptPayload, match="content of step"):
        made.run()
    assert not made.archive.exists()


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ("rows.teacher_turns", "`of` of rows.curated"),
        ("harvest.teacher", "`harvest` of rows.teacher_turns"),
        ("game", "`game` of knowledge"),
    ],
)
def test_inputs_whose_chain_ends_outside_are_refused(finished: MadeStudy, missing: str, named: str) -> None:
    with pytest.raises(UserError, match="misses what its inputs were made from") as refused:
        check_closed({label: one for label, one in finished.receipts.items() if label != missing})
    assert named in refused.value.got
    check_closed(finished.receipts)


def test_evals_can_be_kept_as_outcomes_and_batches_left_out(tmp_path: Path) -> None:
    made = make_study(tmp_path, seeds=(0,), converted=False)
    made.spec["archive"] = {**made.spec["archive"], "eval_records": "outcomes", "debug_rollouts": False}
    made.run()
    run = made.archive / "runs/none-seed0"
    assert (run / "eval_dumps/episodes.jsonl").exists()
    assert not (run / "eval_dumps/calls.jsonl.zst").exists()
    assert not (run / "debug_rollout").exists()
    assert verify(made.archive, 1) == []


def test_what_an_agent_left_is_packed_and_its_transcript_is_a_table(tmp_path: Path) -> None:
    made = make_study(tmp_path, seeds=(0,), converted=False)
    for label, inside, names in (
        ("step.recite.0.0001", "work", ("r0001-g000-0", "r0001-g000-3")),
        ("evals.none.0", "work/step-0001", ("eval-0002",)),
    ):
        entry = made.store.root / made.receipts[label].entry
        for name in names:
            folder = entry / inside / name
            (folder / "logs").mkdir(parents=True)
            (folder / "transcript.jsonl").write_text('{"type": "system"}\n{"cut": "\\ud83d", "say": "\\"x\\""}\n')
            (folder / "logs/claude.log").write_text("started")
            (folder / "calls.jsonl").write_text('{"own": 1}\n')
    made.run()
    assert verify(made.archive, 1) == []
    packed = made.archive / "runs/recite-seed0/work.tar.zst"
    files = {one.name.partition("/")[2]: one.data.read() for one in read_folder(packed, "step0001/r0001-g000-3")}
    kept = ("calls.jsonl", "episode.json", "journal.jsonl", "logs/claude.log", "transcript.jsonl")
    assert tuple(name.removeprefix("r0001-g000-3/") for name in files) == kept
    assert files["r0001-g000-3/calls.jsonl"] == b'{"own": 1}\n', "the agent's own record is kept as it is"
    rows = list(read_jsonl(made.archive / "runs/recite-seed0/transcript.jsonl.zst"))
    assert [(row["episode"], row["index"]) for row in rows] == [
        (name, index) for name in ("r0001-g000-0", "r0001-g000-3") for index in (0, 1)
    ]
    assert json.loads(rows[1]["event"])["say"] == '"x"'
    other = list(read_jsonl(made.archive / "runs/none-seed0/eval_dumps/transcript.jsonl.zst"))
    assert [(row["episode"], row["source"], row["step"]) for row in other] == [("eval-0002", "eval", 1)] * 2
    entry = made.store.root / made.receipts["step.recite.0.0001"].entry
    told = read_json(entry / "run.json")
    told["work"] = [{"path": "work/r0001-g000-0/transcript.jsonl", "sha256": "0" * 64, "bytes": 3}]
    write_json(entry / "run.json", told)
    shutil.rmtree(made.store.root / "pack")
    with pytest.raises(CorruptPayload, match="content of step"):
        made.run()


def run_and_die(made: MadeStudy, after: float) -> bool:
    """Makes the archive in a process that is killed after some seconds; did it die in the middle?"""
    process = multiprocessing.get_context("fork").Process(target=made.run, args=(2,))
    process.start()
    process.join(after)
    if process.pid is not None and process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    return process.exitcode != 0


def test_killed_at_random_points_it_comes_out_the_same(tmp_path: Path) -> None:
    draw = rng("kill", "pack")
    made = make_study(tmp_path / "study", seeds=(0,))
    fresh = tmp_path / "fresh"
    shutil.copytree(made.root / "store", fresh)
    started = time.monotonic()
    made.run(2)
    whole = time.monotonic() - started
    straight = settled(made.archive)
    died = 0
    for _ in range(10):
        shutil.rmtree(made.root)
        shutil.copytree(fresh, made.root / "store", copy_function=os.link)
        for _ in range(2):  # twice in a row: the second starts on what the first left
            died += run_and_die(made, whole * draw.random())
        made.run()
        assert verify(made.archive, 1, models=made.archive.with_name("models")) == []
        assert settled(made.archive) == straight
        left = [p.name for p in (made.root / "results").iterdir() if p.name.startswith(".")]
        assert left == []
    assert died >= 4, "most runs should have been killed before their end"


def test_the_log_tells_decisions_without_the_machines_paths(tmp_path: Path) -> None:
    made = make_study(tmp_path, seeds=(0,), converted=False)
    runlog.record(made.store.root, "launched", name="small", config=[f"study={tmp_path}/study.yaml"], git_commit="abc")
    made.store.forget("rows", made.receipts["rows.teacher_turns"].key[:16])
    made = make_study(tmp_path, seeds=(0,), converted=False)
    made.run()
    rows = list(read_jsonl(made.archive / "state/log.jsonl"))
    events = [row["event"] for row in rows]
    assert events.count("set aside") == 1
    assert "launched" in events
    assert events[-1] == "archived"
    assert events.count("computed") >= 8
    assert str(tmp_path) not in (made.archive / "state/log.jsonl").read_text()
    text = (made.archive / "state/log.md").read_text()
    assert "internalize forget" in text
    assert "launched" in text
    assert rows == sorted(rows, key=lambda row: row["time"])


def test_the_wandb_export_has_one_row_a_logged_step_and_comes_from_the_mirror(
    finished: MadeStudy, tmp_path: Path
) -> None:
    for row in read_jsonl(finished.archive / "registry.jsonl"):
        run = finished.archive / "runs" / row["run"]
        if row["wandb"] is None:
            assert row["kind"] != "arm" or row["status"] == "prepared"
            continue
        steps = {metric["step"] for metric in read_jsonl(run / "metrics.jsonl")}
        history = list(read_jsonl(run / "wandb_export" / row["wandb"] / "history.jsonl"))
        assert [one["_step"] for one in history] == sorted(steps)
        assert row["wandb_rows"] == len(steps)
        mirror = {one.name: one.data.read() for one in members(run / "wandb_offline.tar.zst")}
        (name,) = (name for name in mirror if name.endswith(".wandb"))
        (tmp_path / "run.wandb").write_bytes(mirror[name])
        assert read_run(tmp_path / "run.wandb").history == history
        (last,) = (
            one for one in read_jsonl(run / "metrics.jsonl") if (one["step"], one["kind"]) == (max(steps), "eval")
        )
        assert history[-1]["eval/return_mean"] == last["return_mean"]


def test_one_episode_is_printed(finished: MadeStudy) -> None:
    runner = CliRunner()
    done = runner.invoke(cli.app, ["cat", str(finished.archive), "recite-seed0", "r0001-g000-2", "episode.json"])
    assert json.loads(done.stdout)["plan"]["id"] == "r0001-g000-2"
    done = runner.invoke(cli.app, ["cat", str(finished.archive), "recite-seed0", "eval-step0000/eval-0001"])
    assert [line for line in done.stdout.splitlines() if line.startswith("==>")] == [
        f"==> eval-step0000/eval-0001/{name} <==" for name in ("calls.jsonl", "episode.json", "journal.jsonl")
    ]
    for words, complaint in (
        (["nobody", "x"], "no such run"),
        (["recite-seed0", "x"], "no such episode"),
        (["recite-seed0", "eval-0001"], "2 episodes"),
        (["recite-seed0", "r0001-g000-2", "x"], "no such file"),
    ):
        assert complaint in str(runner.invoke(cli.app, ["cat", str(finished.archive), *words]).exception)
