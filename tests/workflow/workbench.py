"""A checkout of the workflow, and a working directory to run it in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PARTS = ("src", "rules", "workflow", "profiles", "config", "envs", "prebuilt", "Snakefile", "pyproject.toml")
STUDY = "config/mini.yaml"
ARMS = "none recite"
RECEIPTS = "results/receipts/"


@dataclass(frozen=True)
class Bench:
    """A checkout of the workflow and a working directory that it runs in."""

    checkout: Path
    work: Path

    def snakemake(self, *arguments: str, arms: str | None = ARMS, config: tuple[str, ...] = ()) -> tuple[int, str]:
        """Runs snakemake; returns its exit status and all that it printed."""
        settings = [*([f"arms={arms}"] if arms else []), *config]
        if not any(setting.startswith("study=") for setting in settings):
            settings.append(f"study={STUDY}")
        command = [sys.executable, "-m", "snakemake", "-s", str(self.checkout / "Snakefile")]
        command += [
            "--profile",
            str(self.checkout / "profiles/local"),
            "--directory",
            str(self.work),
            "--cores",
            "2",
        ]
        environment = os.environ | {
            "PYTHONPATH": str(self.checkout / "src"),
            "PATH": os.pathsep.join([str(self.checkout / "bin"), os.environ["PATH"]]),
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [*command, *arguments, "--config", *settings],
            cwd=self.work,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def run(self, *arguments: str, arms: str | None = ARMS, config: tuple[str, ...] = ()) -> str:
        """Runs the study; what it printed."""
        status, text = self.snakemake(*arguments, arms=arms, config=config)
        assert status == 0, text
        return text

    def planned(self, *arguments: str, arms: str | None = ARMS, config: tuple[str, ...] = ()) -> set[str]:
        """Receipts, below results/receipts, that a run would make."""
        text = self.run("--dry-run", *arguments, arms=arms, config=config)
        made = {name for line in re.findall(r"^ +output: (.*)$", text, re.M) for name in line.split(", ")}
        assert made or "Nothing to be done" in text, text
        return {name.removeprefix(RECEIPTS) for name in made if name.startswith(RECEIPTS)}

    def edit(self, file: str, old: str, new: str) -> None:
        """Replaces text in a file of the checkout."""
        path = self.checkout / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    def computed(self) -> set[str]:
        """Complete store entries but those of the archive, which tells the study's settings as they are now."""
        return {entry for entry in self.entries() if not entry.startswith(("store/archive/", "store/pack/"))}

    def entries(self) -> set[str]:
        """Complete store entries."""
        return {path.parent.relative_to(self.work).as_posix() for path in self.work.glob("store/*/*/receipt.json")}


def check_out(repository: Path, target: Path) -> None:
    """Copies the workflow with new time stamps, like a clone, and gives it an `internalize` command."""
    target.mkdir(parents=True)
    skip = shutil.ignore_patterns("__pycache__")
    for part in PARTS:
        source = repository / part
        if source.is_dir():
            shutil.copytree(source, target / part, ignore=skip, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(source, target / part)
    command = target / "bin" / "internalize"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m internalize "$@"\n')
    command.chmod(0o755)
