"""A job that the fork server forks ends as one that runs by itself, and nothing outlives the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from internalize import forkserver

# the server with nothing preloaded; what it is asked to run is Python
SERVER = """
import os, sys
from pathlib import Path
from internalize import forkserver
forkserver.PRELOADED = ()
text = forkserver.serve(Path(sys.argv[1]), os.getppid())
if text is not None:
    exec(text[0])
"""
CLIENT = "import sys; from internalize import forkserver; status = forkserver.ask(sys.argv[1:]); sys.exit(status)"
Client = Callable[..., subprocess.Popen[str]]


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def lives(pid: int) -> bool:
    path = Path(f"/proc/{pid}/stat")
    return path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def address(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


@pytest.fixture
def server(address: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(address)])
    until(address.exists)
    yield process
    process.terminate()
    process.wait()


@pytest.fixture
def client(address: Path, tmp_path: Path, server: subprocess.Popen[bytes]) -> Client:
    def run(text: str, **environment: str) -> subprocess.Popen[str]:
        given = os.environ | {forkserver.ADDRESS: str(address)} | environment
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", CLIENT, text]
        return subprocess.Popen(command, cwd=tmp_path, env=given, stdout=pipe, stderr=pipe, text=True)

    return run


def test_folder_environment_and_streams_are_the_clients(client: Client, tmp_path: Path) -> None:
    text = "import os; print(os.getcwd(), os.environ['MARK'], 'INTERNALIZE_FORKSERVER' in os.environ); sys.exit('no')"
    job = client(text, MARK="here")
    assert job.communicate() == (f"{tmp_path} here False\n", "no\n")
    assert job.returncode == 1


@pytest.mark.parametrize(
    ("text", "status"), [("pass", 0), ("sys.exit(75)", 75), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_the_status_is_the_jobs(client: Client, text: str, status: int) -> None:
    assert client(text).wait() == status


def test_jobs_run_side_by_side(client: Client, tmp_path: Path) -> None:
    text = "import os, time; Path('{}').touch()\nwhile not Path('{}').exists(): time.sleep(0.01)"
    one, other = client(text.format("a", "b")), client(text.format("b", "a"))
    assert (one.wait(), other.wait()) == (0, 0)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_job_ends_with_its_client(client: Client, tmp_path: Path, how: signal.Signals) -> None:
    job = client("import os, time; Path('new').write_text(str(os.getpid())); os.rename('new', 'pid'); time.sleep(600)")
    until((tmp_path / "pid").exists)
    pid = int((tmp_path / "pid").read_text())
    assert pid != job.pid
    job.send_signal(how)
    until(lambda: not lives(pid))
    assert client("pass").wait() == 0, "the server goes on"


def test_all_end_when_the_run_is_killed(address: Path, tmp_path: Path) -> None:
    run = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SERVER!r}, {str(address)!r}])"
    driver = subprocess.Popen([sys.executable, "-c", run])
    until(address.exists)
    text = "import os, time; Path('new').write_text(f'{os.getpid()} {os.getppid()}'); os.rename('new', 'pid')"
    given = os.environ | {forkserver.ADDRESS: str(address)}
    job = subprocess.Popen(
        [sys.executable, "-c", CLIENT, f"{text}; time.sleep(600)"], cwd=tmp_path, env=given, stderr=subprocess.PIPE
    )
    until((tmp_path / "pid").exists)
    pids = [int(word) for word in (tmp_path / "pid").read_text().split()]
    driver.kill()
    until(lambda: not any(map(lives, pids)))
    assert job.wait() != 0
    driver.wait()


def test_without_a_server_a_job_runs_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(forkserver.ADDRESS, raising=False)
    assert forkserver.ask(["x"]) is None
    monkeypatch.setenv(forkserver.ADDRESS, str(tmp_path / "gone"))
    assert forkserver.ask(["x"]) is None


def test_another_python_runs_by_itself(
    server: subprocess.Popen[bytes], address: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(forkserver.ADDRESS, str(address))
    monkeypatch.setattr(sys, "executable", "/another/python")
    assert forkserver.ask(["x"]) is None


def test_what_it_imports_first_holds_none_of_this_package() -> None:
    text = (
        "import sys; from internalize import forkserver; forkserver.PRELOADED = ('internalize.files',);"
        "forkserver._preload(); print([name for name in sys.modules if name.startswith('internalize.')])"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
