"""Every command of README and docs/ is run as it stands, on a study with the bundled study's names and a test's size;
those that are not stand in not_run.yaml, each with its reason."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Line, blocks, commands, exceptions, hidden
from typer.testing import CliRunner

from internalize.forkserver import ADDRESS

REPOSITORY = Path(__file__).resolve().parents[2]
PARTS = (
    "rules",
    "workflow",
    "profiles",
    "local",
    "slurm",
    "config",
    "scripts",
    "envs",
    "Snakefile",
    "Makefile",
    "pyproject.toml",
)
LINES = commands(REPOSITORY)
EXEMPT = exceptions(Path(__file__).with_name("not_run.yaml"))
LARGEST = 25
"""Commands in not_run.yaml: it may shrink without a word, and must not grow without one."""
OWN_PROCESS = ("replay", "numerics", "harness", "convert")
"""Commands that load Megatron or play: they leave no trace in the process of the tests, and are forked from one that
has imported it already."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose bundled study is small, with two arms run."""
    root = tmp_path_factory.mktemp("docs") / "checkout"
    root.mkdir()
    for part in PARTS:
        source = REPOSITORY / part
        if source.is_symlink():
            (root / part).symlink_to(source.readlink())
        elif source.is_dir():
            shutil.copytree(source, root / part, symlinks=True)
        else:
            shutil.copy(source, root / part)
    (root / "prebuilt").symlink_to(REPOSITORY / "prebuilt")
    command = [sys.executable, str(Path(__file__).with_name("prepare.py")), str(root)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    shutil.copy(root / "config" / "bundled.yaml", root / "my-study.yaml")
    (root / "my-study.yaml").open("a").write(added("docs/get-started.md", "  recite_often:"))
    (root / "my-site.yaml").write_text(added("docs/add-a-cluster.md", "site:"))
    study = (root / "my-study.yaml").read_text()
    rows, arms = (text.replace("+", " ", 1) for text in changed("docs/add-an-arm.md"))
    study = re.sub(r"^  own_turns_labelled:", lambda match: f"{rows}\n{match[0]}", study, count=1, flags=re.M)
    retention = added("docs/checkpoints.md", "retention: {keep_last: 2, keep_every: 5, keep_published: true}")
    (root / "my-study.yaml").write_text(f"{retention}{study}{arms}\n")
    (root / "other").mkdir()  # another run of the study, equal to this one
    for part in ("results", "store"):
        (root / "other" / part).symlink_to(root / part)
    return root


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a fork server, as a local run has one."""
    with tempfile.TemporaryDirectory(prefix="iz-", dir="/tmp") as folder:  # short: a socket's path
        address = Path(folder) / "own" / "jobs"
        address.parent.mkdir()
        command = [sys.executable, "-P", "-m", "internalize.forkserver", str(address)]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment()) as process:
            yield str(address)
            process.terminate()


@pytest.fixture(scope="module")
def done() -> dict[str, tuple[int, str]]:
    """What has been run: a command that stands on several pages is run once."""
    return {}


def added(page: str, first: str) -> str:
    """The yaml block of a page that begins with a line."""
    for language, _, lines in blocks((REPOSITORY / page).read_text()):
        if language == "yaml" and lines[0] == first:
            return "\n".join([*lines, ""])
    raise AssertionError(f"no such block in {page}")


def changed(page: str) -> tuple[str, str]:
    """The row set and the arm that the diff of a page adds."""
    diff = next(lines for language, _, lines in blocks((REPOSITORY / page).read_text()) if language == "diff")
    new = [line[1:] for line in diff if line.startswith("+")]
    return new[0], "\n".join(new[1:])


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return os.environ | threads | {"PYTHONPATH": str(REPOSITORY / "src"), "PATH": path}


def run(command: str, folder: Path, server: str) -> tuple[int, str]:
    """Runs a command in `folder`; its exit status and what it printed."""
    words = shlex.split(command)
    if words[0] == "internalize" and words[1] not in OWN_PROCESS:
        from internalize.cli import app
        from internalize.errors import UserError

        result = CliRunner().invoke(app, words[1:])
        if isinstance(result.exception, UserError):
            return 2, f"{result.output}{result.exception}"
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output
    if words[0] == "make" and "-n" not in words:  # everything is installed
        made = [f"{sys.prefix}/installed", f"{sys.prefix}/installed-dev"]
        words[1:1] = [f"VENV={sys.prefix}", *(word for path in made for word in ("-o", path))]
    variables = environment()
    if words[0] == "internalize":
        words[:1] = [sys.executable, "-m", "internalize"]
        variables[ADDRESS] = server
    done = subprocess.run(
        words, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("line", LINES, ids=[f"{one.page}:{one.number}" for one in LINES])
def test_command(
    line: Line, checkout: Path, server: str, done: dict[str, tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    exempt = EXEMPT.get(line.command)
    command = line.command if exempt is None else exempt.instead
    if not command:
        return
    monkeypatch.chdir(checkout)
    if command not in done:
        done[command] = run(command, checkout, server)
    status, said = done[command]
    assert status == 0, f"{line.page}:{line.number}: {command}\n{said[-3000:]}"


def test_no_exception_is_stale_or_silent() -> None:
    known = {line.command for line in LINES}
    assert [command for command in EXEMPT if command not in known] == []
    assert all(len(one.reason) > 10 for one in EXEMPT.values())
    assert len(EXEMPT) <= LARGEST


def test_no_command_stands_outside_the_blocks_that_are_run() -> None:
    assert hidden(REPOSITORY) == []


def test_there_are_commands() -> None:
    assert {"README.md", "docs/get-started.md", "docs/plan.md"} <= {line.page for line in LINES}
    assert len(LINES) > 60
