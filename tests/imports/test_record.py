"""Every run's table comes back exactly from logs that are shuffled, duplicated, coloured, resumed and cut off."""

from __future__ import annotations

import gzip
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from printed_logs import Printer, noise

from internalize.errors import UserError
from internalize.imports.lines import read_line
from internalize.imports.record import read_logs, rollouts, steps
from internalize.imports.tables import JSONL, MARKDOWN, find_logs, write_tables

LATE = ("perf/update_weights_time", "perf/save_model_time")


def record(seed: int, folder: Path) -> dict[str, dict[int, tuple[str, dict[str, Any]]]]:
    """Writes the logs of a record; run -> rollout -> (job, what the table must say)."""
    rng = random.Random(seed)
    expected: dict[str, dict[int, tuple[str, dict[str, Any]]]] = {}
    for index, run in enumerate(["baseline-cc", "sft_first_idd-cc", "sft_first_armc-cc6"]):
        first = rng.choice([0, 0, 3])
        rows: dict[int, tuple[str, dict[str, Any]]] = {}
        for part, job in enumerate([f"65{index}0001", f"65{index}0002"]):
            printer = Printer(seed * 10 + index * 2 + part, job, run, day=9 + 3 * index + part)
            start = first if part == 0 else max(rows)  # the second job does the last finished rollout again
            count = rng.randint(2, 4)
            late: dict[str, float] = {}
            for number in range(start, start + count):
                said = printer.rollout(number, late)
                if late:
                    rows[number - 1] = (job, rows[number - 1][1] | late)
                rows[number] = (job, said)
                late = {LATE[0]: round(rng.random(), 3), LATE[1]: round(rng.random() * 60, 2)}
            if part == 0:  # ... and died in the rollout after it
                printer.rollout(start + count, late, finished=False)
            cut = "(RolloutManager pid=1) [2026-09-30 00:00:00] rollout.py:1193 - perf 0: {'e2k/clear_rate': 0.9, 'e2"
            write(rng, folder, job, printer.lines, cut)
        expected[run] = rows
    return expected


def write(rng: random.Random, folder: Path, job: str, lines: list[str], cut: str) -> None:
    """Shuffled, with copies and noise, over two files of the job."""
    mixed = [*lines, *rng.choices(lines, k=5), *[noise(rng) for _ in range(9)], cut]
    rng.shuffle(mixed)
    half = len(mixed) // 2
    plain = folder / f"rl-{job}.out"
    plain.write_text("\n".join(mixed[:half]) + "\n")
    with gzip.open(folder / f"rl-{job}.err.log.gz", "wt") as stream:
        stream.write("\n".join([lines[0], *mixed[half:]]) + "\n")


def comparable(values: dict[str, Any]) -> dict[str, Any]:
    return {key: repr(value) if isinstance(value, float) else value for key, value in values.items()}


@pytest.mark.parametrize("seed", range(12))
def test_every_runs_table_comes_back_exactly(tmp_path: Path, seed: int) -> None:
    expected = record(seed, tmp_path)
    jobs = read_logs(tmp_path.iterdir())
    for run, rows in expected.items():
        found = rollouts(jobs.values(), run)
        last_started = {row["rollout"] for row in found} - set(rows)
        assert last_started <= {max(rows) + 1}, "a rollout that was begun and never finished"
        for row in found:
            if row["rollout"] in rows:
                job, values = rows[row["rollout"]]
                head = {"run": run, "rollout": row["rollout"], "job": job, "time": row["time"]}
                assert comparable(row) == comparable(head | values), (run, row["rollout"])
    assert sum(job.unreadable for job in jobs.values()) == len(jobs)


def test_a_rollout_done_again_counts_only_when_it_was_finished(tmp_path: Path) -> None:
    first = Printer(1, "6500001", "baseline-cc", day=9)
    said = [first.rollout(number, {}) for number in range(3)]
    second = Printer(2, "6500002", "baseline-cc", day=10)
    second.rollout(2, {}, finished=False)
    for printer in (first, second):
        (tmp_path / f"rl-{printer.job}.out").write_text("\n".join(printer.lines))
    rows = rollouts(read_logs(tmp_path.iterdir()).values(), "baseline-cc")
    assert [row["job"] for row in rows] == ["6500001"] * 3
    assert comparable(rows[2]).items() >= comparable(said[2]).items()


def test_steps_that_are_printed_again_are_the_last_jobs(tmp_path: Path) -> None:
    first, second = Printer(1, "6500001", "baseline-cc", day=9), Printer(2, "6500002", "baseline-cc", day=10)
    first.rollout(0, {})
    first.rollout(1, {})
    second.rollout(1, {})
    for printer in (first, second):
        (tmp_path / f"rl-{printer.job}.out").write_text("\n".join(printer.lines))
    found = steps(read_logs(tmp_path.iterdir()).values(), "baseline-cc")
    assert [(row["step"], row["job"]) for row in found] == [
        (0, "6500001"),
        (1, "6500001"),
        (2, "6500002"),
        (3, "6500002"),
    ]


@pytest.mark.parametrize(
    ("text", "kind", "side", "values"),
    [
        (
            "[2026-04-15 07:57:53] rollout.py:1193 - perf 0: {'perf/rollout_time': 371.1}",
            "perf",
            "rollout",
            {"perf/rollout_time": 371.1},
        ),
        ("[2026-04-15 07:57:53] x.py:1 - perf 0: {'perf/step_time': 1}", "perf", "train", {"perf/step_time": 1}),
        (
            "(A pid=1) [2026-09-14 22:43:16.263 rollout_executor] metrics.py:89 - step 9: {'a': np.int64(3)}",
            "step",
            "train",
            {"a": 3},
        ),
        (
            "(A pid=1) x - critic-step 4: {'a': -0.5, 'b': [1, 2], 'c': None}",
            "critic-step",
            "train",
            {"a": -0.5, "b": [1, 2], "c": None},
        ),
        (
            "eval 3: {'eval/cd82': float('-inf'), 'b': tensor(2.0, device='cuda:0')}",
            "eval",
            "rollout",
            {"eval/cd82": -math.inf, "b": 2.0},
        ),
    ],
)
def test_lines_are_known_by_keyword_and_dictionary(text: str, kind: str, side: str, values: dict[str, Any]) -> None:
    line = read_line(text)
    assert line is not None
    assert (line.kind, line.side, line.values) == (kind, side, values)


@pytest.mark.parametrize(
    "text",
    [
        "perf 0: {'a': __import__('os').system('x')}",
        "perf 0: {'a': open('x')}",
        "perf 0: {'a': 1, **b}",
        "perf 0: {'a': 0.",
    ],
)
def test_nothing_is_evaluated(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a|in a dictionary"):
        read_line(text)


def test_other_lines_are_left_alone() -> None:
    rng = random.Random(0)
    assert [read_line(noise(rng)) for _ in range(40)] == [None] * 40


def test_a_log_must_say_its_job_and_run(tmp_path: Path) -> None:
    (tmp_path / "slurm.out").write_text("")
    with pytest.raises(UserError, match="no job id"):
        read_logs([tmp_path / "slurm.out"])
    path = tmp_path / "rl-6500001.out"
    path.write_text("--save /x/runs/a --load /x/runs/b\nperf 0: {'e2k/clear_rate': 0.0}\n")
    with pytest.raises(UserError, match="does not say which run") as caught:
        read_logs([path])
    assert caught.value.got == "a b"
    assert read_logs([path], {"6500001": "a"})["6500001"].run == "a"


def test_the_tables_are_written_as_the_record_has_them(tmp_path: Path) -> None:
    logs = tmp_path / "archive" / "slurm-logs"
    logs.mkdir(parents=True)
    expected = record(3, logs)
    said: list[str] = []
    assert write_tables(find_logs(tmp_path / "archive"), tmp_path / "out", said.append) == sorted(expected)
    lines = [json.loads(line) for line in (tmp_path / "out" / JSONL).read_text().splitlines()]
    assert {(line["job"], line["run"]) for line in lines} >= {("6500001", "baseline-cc"), ("6500002", "baseline-cc")}
    assert all(
        value is None or math.isfinite(value)
        for line in lines
        for value in line["values"].values()
        if isinstance(value, float)
    )
    assert any("nonfinite" in line["values"] for line in lines)
    table = (tmp_path / "out" / MARKDOWN).read_text()
    for run, rows in expected.items():
        part = table.split(f"## {run}\n")[1].split("##")[0]
        assert "e2k/shaped_return" in part
        for number, (_, values) in rows.items():
            assert f"| {number} |" in part
            assert f"{values['e2k/shaped_return']:.4g}" in part
        metrics = [
            json.loads(line) for line in (tmp_path / "out/runs" / run / "metrics.jsonl").read_text().splitlines()
        ]
        assert {row["kind"] for row in metrics} == {"rollout", "train"}
    assert "cut-off metric lines" in said[-1]


def test_no_logs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no logs here"):
        find_logs(tmp_path)
