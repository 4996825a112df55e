"""The sandbox is a real Slurm, needs no root and ends only what is its own."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from internalize.cluster import sandbox
from internalize.cluster.sandbox import MARK, Sandbox
from internalize.cluster.sandbox_conf import Shape
from internalize.errors import UserError
from internalize.processes import Process, with_environment


def test_four_nodes_of_four_gpus(box: Sandbox) -> None:
    assert box.run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %G %c").split("\n")[:4] == [
        f"node{number} gpu:gh200:4 288" for number in (1, 2, 3, 4)
    ]


def test_a_job_on_all_sixteen_gpus(box: Sandbox) -> None:
    command = 'echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"'
    text = box.run("srun", "--nodes=4", "--ntasks-per-node=1", "--gres=gpu:gh200:4", "--time=2", "sh", "-c", command)
    assert sorted(text.split("\n")[:-1]) == [f"node{number} 0,1,2,3" for number in (1, 2, 3, 4)]


def test_two_jobs_share_a_node_but_no_gpu(box: Sandbox) -> None:
    asked = ["srun", "--nodelist=node1", "--gres=gpu:gh200:2", "--cpus-per-task=4", "--time=2", "sh", "-c"]
    command = [str(box.bin / asked[0]), *asked[1:], "echo $CUDA_VISIBLE_DEVICES; sleep 1"]
    jobs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    seen = [re.findall(r"\d", job.communicate(timeout=300)[0]) for job in jobs]
    assert sorted(gpu for gpus in seen for gpu in gpus) == ["0", "1", "2", "3"]


def test_stopping_leaves_other_processes_alone(tmp_path: Path, box: Sandbox) -> None:
    other = Sandbox(tmp_path / "b", Shape(nodes=1))
    bystander = subprocess.Popen(["sleep", "300"])
    try:
        other.start()
        job = other.run("sbatch", "--parsable", "--time=5", f"--output={tmp_path}/out", "--wrap", "sleep 300").strip()
        other.wait(lambda: "R" in other.run("squeue", "-h", "-j", job, "-o", "%t"), 300, "the job does not start")
        other.stop()
        assert with_environment(f"{MARK}={other.folder}") == []
        assert bystander.poll() is None
        assert len(box.node_states()) == 4, "the other sandbox lives on"
    finally:
        other.stop()
        bystander.kill()
        bystander.wait()


def test_it_needs_no_root(tmp_path_factory: pytest.TempPathFactory, box: Sandbox) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("the other tests already run without root")
    folder = Path("/tmp") / f"internalize-sandbox-{os.getpid()}"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    source = Path(sys.modules["internalize"].__file__ or "").parents[1]
    plain = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-m", "internalize.cli"]
    try:
        for words in (["start", str(folder / "b"), "--nodes", "1"], ["stop", str(folder / "b")]):
            done = subprocess.run(
                [*plain, "sandbox", *words],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(source), "HOME": str(folder)},
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            if "Permission denied" in done.stderr or "No module named" in done.stderr:
                pytest.skip("another user cannot read this Python environment")
            assert done.returncode == 0, done.stderr
    finally:
        Sandbox(folder / "b").stop()
        shutil.rmtree(folder)


def test_it_starts_although_a_port_is_taken(tmp_path: Path, box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    draws, free = [], sandbox.free_ports
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()

        def ports(count: int, address: str) -> list[int]:
            draws.append(free(count, address))
            return [other.getsockname()[1], *draws[-1][1:]] if len(draws) == 1 else draws[-1]

        monkeypatch.setattr(sandbox, "free_ports", ports)
        one = Sandbox(tmp_path / "c", Shape(nodes=1))
        try:
            one.start()
            assert one.idle()
        finally:
            one.stop()
    assert len(draws) == 2


def test_a_long_path_is_refused(tmp_path: Path, box: Sandbox) -> None:
    with pytest.raises(UserError, match="too long"):
        Sandbox(tmp_path / ("x" * 90)).start()


def test_a_pid_that_was_given_away_is_not_ours() -> None:
    child = subprocess.Popen(["sleep", "300"])
    try:
        process = Process.of(child.pid)
        assert process is not None
        assert process.alive
        assert Process.read(str(process)) == process
        older = Process(process.pid, process.started - 1)
        older.send(9)
        assert not older.alive
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
    assert not process.alive
