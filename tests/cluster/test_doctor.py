"""The doctor: all green on the sandbox, and each check red when what it looks at is broken."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from internalize.cluster import doctor, probe
from internalize.cluster.doctor import Patient, examine, named_types
from internalize.cluster.finding import Finding
from internalize.cluster.probes import probe_nodes
from internalize.cluster.sandbox import Sandbox
from internalize.cluster.site import Site

SQUEUE = {"slurm-status-command": "squeue", "slurm-init-seconds-before-status-checks": 30}


@pytest.fixture
def patient(box: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patient:
    """The sandbox, looked at without jobs."""
    monkeypatch.setenv("PATH", box.environment()["PATH"])
    for name in ("SBATCH_ACCOUNT", "SLURM_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    return Patient(site(box), {}, SQUEUE, tmp_path, jobs=False)


def site(box: Sandbox, **changes: Any) -> Site:
    settings = yaml.safe_load(box.site.read_text())["site"]
    for key, value in changes.items():
        settings[key] = settings.get(key, {}) | value if isinstance(value, dict) else value
    return Site.model_validate(settings)


def found(patient: Patient, **changes: Any) -> dict[str, Finding]:
    return {one.check: one for one in examine(Patient(**(vars(patient) | changes)))}


def red(findings: dict[str, Finding]) -> list[str]:
    for one in findings.values():
        assert one.ok != bool(one.fix), f"what is wrong, and only that, says what to do: {one}"
    return [name for name, one in findings.items() if not one.ok]


def shim(folder: Path, name: str, when: str, say: str) -> str:
    """A client that answers `say` when its arguments hold `when`, and else is the real one; the PATH that has it."""
    real = shutil.which(name)
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f'#!/bin/sh\ncase "$*" in *"{when}"*) {say};; *) exec {real} "$@";; esac\n')
    (folder / name).chmod(0o755)
    return os.pathsep.join([str(folder), os.environ["PATH"]])


def test_the_command_is_green_on_the_sandbox(box: Sandbox, repository: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "internalize.cli", "doctor", "--site", str(box.site)),
            *("--status-command", "squeue", "--directory", str(tmp_path)),
        ],
        cwd=repository,
        env=box.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "site `sandbox` is ready" in done.stdout
    checks = {line[3:21].strip() for line in done.stdout.splitlines() if line.startswith("OK ")}
    assert checks == {
        *("executor", "slurm", "status command", "partition (cpu)", "partition (gpu)", "gpus", "account"),
        *("environment (gpu)", "shared files", "locks", "ports", "environment (cpu)", "disk", "agent CLI", "hub"),
    }
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


def test_green_without_jobs(patient: Patient) -> None:
    assert red(found(patient)) == []


def test_executor(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", absent)
    assert red(found(patient)) == ["executor"]


def test_slurm(patient: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.environ["PATH"]
    for name, when, say, words in (
        ("sinfo", "--version", "echo slurm 20.02.7", "version 20.02.07"),
        ("scontrol", "ping", "echo 'Slurmctld(primary) at ctl is DOWN'", "is DOWN"),
        ("sinfo", "--version", "echo no configuration >&2; exit 1", "no configuration"),
    ):
        monkeypatch.setenv("PATH", path)
        monkeypatch.setenv("PATH", shim(tmp_path / "shims", name, when, say))
        findings = found(patient)
        assert red(findings) == ["slurm"]
        assert words in findings["slurm"].said
        (tmp_path / "shims" / name).unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "not on PATH" in found(patient)["slurm"].said


def test_status_command(patient: Patient) -> None:
    sacct = found(patient, profile={"slurm-status-command": "sacct"})
    assert red(sacct) == ["status command"]
    assert "no accounting database" in sacct["status command"].said
    if shutil.which("sacct"):
        assert red(found(patient, profile={})) == ["status command"], "Snakemake's own choice would be sacct"
    slow = found(patient, profile=SQUEUE | {"slurm-init-seconds-before-status-checks": 2000})
    assert red(slow) == ["status command"]
    assert "checks: 1200" in slow["status command"].fix


def test_partitions(patient: Patient, box: Sandbox) -> None:
    absent = found(patient, site=site(box, cpu={"partition": "standard"}))
    assert red(absent) == ["partition (cpu)"]
    assert "one of cpu, gpu, urgent" in absent["partition (cpu)"].fix
    long = found(patient, site=site(box, gpu={"minutes": 3000}))
    assert red(long) == ["partition (gpu)"]
    assert "minutes: 1440" in long["partition (gpu)"].fix
    box.run("scontrol", "update", "partition=cpu", "state=down")
    try:
        assert red(found(patient)) == ["partition (cpu)"]
    finally:
        box.run("scontrol", "update", "partition=cpu", "state=up")


def test_gpus(patient: Patient, box: Sandbox) -> None:
    other = found(patient, site=site(box, gpu={"type": "a100"}))
    assert red(other) == ["gpus"]
    assert "gh200:4" in other["gpus"].fix
    assert red(found(patient, site=site(box, gpu={"per_node": 8}))) == ["gpus"]
    large = found(patient, site=site(box, gpu={"cpus_per_gpu": 80}))
    assert red(large) == ["gpus"]
    assert "cpus_per_gpu: 72" in large["gpus"].fix
    assert red(found(patient, site=site(box, gpu={"memory_mb_per_gpu": 200_000}))) == ["gpus"]


def test_account(patient: Patient, box: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shim(tmp_path / "shims", "scontrol", "show config", "echo 'AccountingStorageEnforce = associations,limits'")
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("PATH", shim(tmp_path / "shims", "sacctmgr", "associations", "echo brics.u1"))
    profile = {"slurm-status-command": "sacct"}
    missing = found(patient, profile=profile)
    assert red(missing) == ["account"]
    assert "brics.u1" in missing["account"].fix
    monkeypatch.setenv("SBATCH_ACCOUNT", "brics.u1")
    assert red(found(patient, profile=profile)) == []
    assert red(found(patient, profile=profile, site=site(box, account="other"))) == ["account"]


def test_disk(patient: Patient, box: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert red(found(patient, site=site(box, free_gb=10**7))) == ["disk"]
    monkeypatch.setenv("PATH", shim(tmp_path / "shims", "scontrol", "never", "true"))
    lfs = tmp_path / "shims" / "lfs"
    lfs.write_text("#!/bin/sh\necho '/lus 199000000* 190000000 200000000 - 10 0 0 -'\n")
    lfs.chmod(0o755)
    assert red(found(patient)) == []
    tight = found(patient, site=site(box, free_gb=2))
    assert red(tight) == ["disk"]
    assert "1 GB free (quota)" in tight["disk"].said


def test_agent_clis(patient: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = {"evals": {"harness": {"type": "claude-code"}}, "rollout": {"harness": None}}
    monkeypatch.setenv("INTERNALIZE_CLI_DIR", str(tmp_path / "clis"))
    machine = "arm64" if os.uname().machine == "aarch64" else "x64"
    command = tmp_path / f"clis/node_modules/@anthropic-ai/claude-code-linux-{machine}/claude"
    command.parent.mkdir(parents=True)
    for version, colour in (("1.0.0", ["agent CLI"]), ("2.1.270", [])):
        command.write_text(f"#!/bin/sh\necho '{version} (Claude Code)'\n")
        command.chmod(0o755)
        assert red(found(patient, study=study)) == colour
    assert named_types({"a": [study]}, "harness") == {"claude-code"}


@contextmanager
def hub(status: int) -> Iterator[str]:
    """A hub that answers everything with one status."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_hub(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    study = {"base": {"type": "hub", "repo": "Qwen/Qwen3-0.6B"}}
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for status, colour in ((200, []), (401, ["hub"]), (404, ["hub"])):
        with hub(status) as endpoint:
            monkeypatch.setenv("HF_ENDPOINT", endpoint)
            assert red(found(patient, study=study)) == colour
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        assert "cannot be reached" in found(patient, study=study)["hub"].said


# What only compute nodes can tell

FAULTS = {
    "a file system that loses renames": (
        "import os\ndef broken(old, new): raise OSError(5, 'Input/output error')\nos.replace = broken\n",
        ["shared files", "locks", "ports"],  # the others need shared files
    ),
    "locks of one node only, a firewall, no torch": (
        "import fcntl, socket, sys\n"
        "fcntl.flock = lambda handle, how: None\n"
        "def refused(*words, **more): raise ConnectionRefusedError(111, 'Connection refused')\n"
        "socket.create_connection = refused\n"
        "if 'import torch' in ' '.join(sys.orig_argv): sys.exit('no module named torch')\n",
        ["environment (gpu)", "locks", "ports"],
    ),
}


def probed(site: Site, folder: Path) -> dict[str, Finding]:
    return {one.check: one for one in probe_nodes(site, folder, patience=300, roles=["gpu"])}


@pytest.mark.parametrize(("code", "checks"), FAULTS.values(), ids=FAULTS)
def test_a_fault_on_the_nodes(
    code: str, checks: list[str], patient: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "PATIENCE", 30.0)  # the port that nobody reaches is waited for so long
    # every Python process on the nodes imports this first
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted/sitecustomize.py").write_text(code)
    planted = os.pathsep.join([str(tmp_path / "planted"), os.environ.get("PYTHONPATH", "")])
    findings = probed(patient.site.model_copy(update={"setup": [f"export PYTHONPATH={planted}"]}), tmp_path)
    assert red(findings) == checks, findings


def test_a_container_that_does_not_start(patient: Patient, box: Sandbox, tmp_path: Path) -> None:
    findings = probed(site(box, container={"gpu": "/no/such/apptainer exec x.sif"}), tmp_path)
    assert red(findings) == ["environment (gpu)"]
    assert "/no/such/apptainer" in findings["environment (gpu)"].said


def test_a_job_that_never_starts(patient: Patient, box: Sandbox, tmp_path: Path) -> None:
    findings = probed(site(box, gpu={"constraint": "none"}), tmp_path)
    assert red(findings) == ["environment (gpu)"]
    assert "srun" in findings["environment (gpu)"].fix


def test_another_version_on_the_nodes(
    patient: Patient, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(repository / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "src/internalize/arms/segment.py").open("a") as file:
        file.write("\nEDITED = 1\n")
    findings = probed(patient.site.model_copy(update={"setup": [f"export PYTHONPATH={tmp_path}/src"]}), tmp_path)
    assert red(findings) == ["environment (gpu)"]
    assert "another version of internalize on node" in findings["environment (gpu)"].said


def test_files_that_other_nodes_never_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PATIENCE", 0.3)
    with pytest.raises(TimeoutError, match="written on another node"):
        probe.files(tmp_path, rank=0, count=2)
