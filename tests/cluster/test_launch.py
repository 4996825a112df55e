"""The launcher: all nodes of a job, the end of its time, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from internalize.cluster.allocation import Allocation
from internalize.cluster.launch import Launch, runtime_of, torchrun
from internalize.cluster.sandbox import Sandbox
from internalize.processes import Process

DRIVERS = Path(__file__).with_name("drivers.py")
LAUNCH = [sys.executable, "-m", "internalize.cli", "launch"]
FOUR = ["--nodes=4", "--ntasks-per-node=1", "--gres=gpu:gh200:4", "--exclusive"]
PATIENCE = 240.0
"""Seconds; what a test waits for takes far less, but the machine may be busy. Less than what a driver sleeps."""
ONE = ["--nodes=1", "--ntasks-per-node=1", "--gres=gpu:gh200:1"]


def submit(box: Sandbox, work: Path, options: list[str], launch: list[str], *driver: str) -> str:
    """A job whose body is the launcher in front of a driver; its id."""
    line = subprocess.list2cmdline([*LAUNCH, *launch, "--", sys.executable, str(DRIVERS), *driver])
    done = subprocess.run(
        ["sbatch", "--parsable", "--time=20", *options, f"--output={work}/log", "--open-mode=append", "--wrap", line],
        cwd=work,
        env=box.environment()
        | {"PATH": os.pathsep.join([str(box.bin), str(Path(sys.executable).parent), os.environ["PATH"]])},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def state(box: Sandbox, job: str) -> str:
    return box.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()


def finished(box: Sandbox, job: str) -> str:
    """Waits for a job's end; its state."""
    box.wait(
        lambda: state(box, job) not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"), 600, f"job {job} hangs"
    )
    return state(box, job)


def running(name: str) -> list[str]:
    """Command lines that hold a word."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        lines += [line] if name in line else []
    return lines


def test_ray_spans_four_nodes_and_leaves_nothing(box: Sandbox, tmp_path: Path) -> None:
    pytest.importorskip("ray")  # of the extra `cluster`, which `dev` has
    out, scratch = tmp_path / "out.json", Path(tempfile.mkdtemp(dir="/tmp"))
    job = submit(
        box,
        tmp_path,
        FOUR,
        ["--runtime", "ray", "--scratch", str(scratch), "--gpu-container", "env INSIDE=container"],
        "ray_over_nodes",
        str(out),
    )
    assert finished(box, job) == "COMPLETED", (tmp_path / "log").read_text()
    made = json.loads(out.read_text())
    assert made["nodes"] == 4
    assert made["seen"] == {f"node{number}": ["container", "0", "1", "2", "3"] for number in (1, 2, 3, 4)}
    assert running(str(scratch)) == []
    scratch.rmdir()  # empty


def test_nodes_that_cannot_start_ray_say_why(box: Sandbox, tmp_path: Path) -> None:
    two = ["--nodes=2", "--ntasks-per-node=1"]
    job = submit(box, tmp_path, two, ["--runtime", "ray", "--scratch", f"/tmp/{'x' * 60}"], "ray_over_nodes", "out")
    assert finished(box, job) == "FAILED"
    log = (tmp_path / "log").read_text()
    assert "Ray does not start on all nodes" in log
    assert "too long for Ray" in log
    assert "Traceback" not in log


def test_torchrun_starts_a_rank_on_every_gpu(box: Sandbox, tmp_path: Path) -> None:
    out = tmp_path / "out"
    two = ["--nodes=2", "--ntasks-per-node=1", "--gres=gpu:gh200:1"]
    job = submit(box, tmp_path, two, ["--runtime", "torchrun"], "ranks", str(out))
    assert finished(box, job) == "COMPLETED", (tmp_path / "log").read_text()
    assert out.read_text() == "2 1.0"


def test_a_cancelled_job_leaves_no_process(box: Sandbox, tmp_path: Path) -> None:
    out = tmp_path / "pids"
    job = submit(box, tmp_path, ONE, [], "stubborn", str(out))
    box.wait(out.exists, PATIENCE, "the driver does not start")
    time.sleep(0.2)
    processes = [Process.of(int(pid)) for pid in out.read_text().split()]
    assert all(processes)
    box.run("scancel", job)
    box.wait(lambda: not any(process and process.alive for process in processes), PATIENCE, "the driver lives on")


def test_a_launcher_that_loses_its_parent_ends_what_it_started(tmp_path: Path) -> None:
    out = tmp_path / "pids"
    line = subprocess.list2cmdline([*LAUNCH, "--", sys.executable, str(DRIVERS), "stubborn", str(out)])
    shell = subprocess.Popen(["bash", "-c", f"{line}; true"])  # `; true` keeps bash from becoming the launcher
    deadline = time.monotonic() + PATIENCE
    while not (out.exists() and out.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    processes = [Process.of(int(pid)) for pid in out.read_text().split()]
    shell.kill()
    shell.wait()
    deadline = time.monotonic() + PATIENCE
    while any(process and process.alive for process in processes) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(process and process.alive for process in processes)


def test_outside_of_a_job_the_command_is_simply_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    done = subprocess.run([*LAUNCH, "--", "sh", "-c", "echo out; exit 7"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, "out\n")
    killed = subprocess.run([*LAUNCH, "--", "sh", "-c", "kill -9 $$"], capture_output=True, check=False)
    assert killed.returncode == 128 + signal.SIGKILL
    absent = subprocess.run([*LAUNCH, "--", "no-such-program"], capture_output=True, text=True, check=False)
    assert absent.returncode == 2
    assert "cannot be started" in absent.stderr
    assert "Traceback" not in absent.stderr


def test_the_runtime_is_the_one_that_the_spec_names() -> None:
    spec = '{"parallel": {"runs": {"runtime": "RUNTIME"}}}'
    command = ["internalize", "segment", "--spec", spec, "--code", "0"]
    assert runtime_of([word.replace("RUNTIME", "ray") for word in command]) == "ray"
    assert runtime_of([word.replace("RUNTIME", "torchrun") for word in command]) == "none", "a segment starts it itself"
    for command in (["internalize", "segment", "--spec", "{}"], ["x", "--spec"], ["x", "--spec", "[1]"], ["x"]):
        assert runtime_of(command) == "none"


def test_torchrun_command_of_a_full_node() -> None:
    allocation = Allocation("7", ["a", "b"], ["10.0.0.1", "10.0.0.2"], gpus=4, cpus=288, ends=None, restarts=1)
    line = torchrun(allocation, Launch(), ["apptainer", "exec", "x.sif"], ["internalize", "segment", "--code", "0"])
    assert line[:2] == ["srun", "--nodes=2"]
    assert "--gres=gpu:4" in line
    assert line.index("apptainer") < line.index("torch.distributed.run")
    assert {"--nnodes=2", "--nproc-per-node=4", "--rdzv-id=7-1"} <= set(line)
    assert line[-5:] == ["--no-python", "internalize", "segment", "--code", "0"]
