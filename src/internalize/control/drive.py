"""Calls of Snakemake on a plan, and what its dry run says.

Invariant: every call names the same Snakefile, profile and `--config` words, so a dry run lists the jobs of the run
that follows it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from internalize.cluster.profile import find_profile, read_profile
from internalize.errors import UserError

RULE = re.compile(r"^(?:local)?rule (?P<rule>\w+):$")
FIELD = re.compile(r"^ {4}(?P<name>output|wildcards): (?P<value>.*)$")


@dataclass(frozen=True)
class Listed:
    """A job of Snakemake's dry run."""

    rule: str
    output: str
    """Its first output."""
    wildcards: dict[str, str]


@dataclass(frozen=True)
class Driver:
    """How Snakemake is called.

    Args:
        repository: folder of the Snakefile.
        config: `--config` values.
        profile: name or folder of a profile.
        extra: further words of the user.
    """

    repository: Path
    config: Mapping[str, Any]
    profile: str = "local"
    extra: tuple[str, ...] = ()

    def settings(self) -> dict[str, Any]:
        """The entries of its profile.

        Raises:
            UserError: there is no such profile.
        """
        return read_profile(find_profile(self.profile, self.repository))

    def command(self, *words: str) -> list[str]:
        """The whole command line: targets and options first, then what all calls share."""
        line = [sys.executable, "-m", "snakemake", *words, "--snakefile", str(self.repository / "Snakefile")]
        line += ["--profile", str(find_profile(self.profile, self.repository)), *self.extra]
        if self.config:
            line += ["--config", *(f"{key}={_word(value)}" for key, value in self.config.items())]
        return line

    def dry_run(self, targets: Sequence[str] = (), forced: Sequence[str] = ()) -> list[Listed]:
        """The jobs that a run would execute, `all` left out.

        Raises:
            UserError: Snakemake refuses.
        """
        words = [*targets, "--dry-run", "--nolock", "--quiet", "host", "reason"]
        if forced:
            words += ["--forcerun", *forced]
        done = subprocess.run(self.command(*words), capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in (done.stderr or done.stdout).strip().splitlines() if line.strip()]
            raise UserError("Snakemake refuses the plan", got="\n".join(lines[-6:]) or "no message")
        return [job for job in parse(done.stdout + done.stderr) if job.rule != "all"]

    def run(self, targets: Sequence[str] = (), forced: Sequence[str] = ()) -> int:
        """Runs Snakemake in the foreground; its exit status."""
        words = [*targets, *(["--forcerun", *forced] if forced else [])]
        return subprocess.run(self.command(*words), check=False).returncode

    def unlock(self) -> None:
        """Removes Snakemake's locks on this working directory.

        Raises:
            UserError: Snakemake fails.
        """
        done = subprocess.run(self.command("--unlock", "--cores", "1"), capture_output=True, text=True, check=False)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise UserError("Snakemake cannot unlock", got="\n".join(lines[-4:]))


def parse(text: str) -> list[Listed]:
    """The jobs of a dry run's output."""
    jobs: list[Listed] = []
    rule: str | None = None
    fields: dict[str, str] = {}
    for line in [*text.splitlines(), ""]:
        if rule is not None and (match := FIELD.match(line)):
            fields[match["name"]] = match["value"]
        elif rule is not None and not line.startswith("    "):
            pairs = [pair.partition("=") for pair in fields.get("wildcards", "").split(", ") if "=" in pair]
            output = fields.get("output", "").split(", ")[0]
            jobs.append(Listed(rule, output, {name: value for name, _, value in pairs}))
            rule, fields = None, {}
        if match := RULE.match(line):
            rule = match["rule"]
    return jobs


def profile_config(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`config` of a profile's entries, which `--config` on the command line would replace as a whole."""
    given = settings.get("config") or {}
    if isinstance(given, Mapping):
        return dict(given)
    pairs = [str(word).partition("=") for word in given]
    return {key: yaml.safe_load(value) for key, _, value in pairs}


def _word(value: Any) -> str:
    return " ".join(str(part) for part in value) if isinstance(value, list) else str(value)
