"""The workflow's own pictures: Snakemake says what the graph is, `dag.draw` draws it.

Invariant: the pictures show the plan of the study file as it is now; drawing changes nothing else.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from internalize.errors import UserError
from internalize.report.dag import draw

PICTURES = {"rulegraph": ("--rulegraph", "Rules of the workflow"), "dag": ("--dag", "Jobs of this study")}


def draw_graphs(snakefile: Path, config: Sequence[str], folder: Path) -> list[Path]:
    """Writes `rulegraph.svg` and `dag.svg` into `folder`.

    Args:
        snakefile: the workflow.
        config: words of Snakemake's `--config`, such as `arms=none recite`.

    Raises:
        UserError: Snakemake refuses the study.
    """
    made = []
    for name, (option, title) in PICTURES.items():
        path = folder / f"{name}.svg"
        draw(ask(snakefile, option, config), path, title)
        made.append(path)
    return made


def ask(snakefile: Path, option: str, config: Sequence[str]) -> str:
    """What Snakemake prints for `--rulegraph` or `--dag` (`option`), as dot text.

    Raises:
        UserError: Snakemake refuses the study.
    """
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--snakefile",
        str(snakefile),
        option,
        "--nolock",
        "--quiet",
        "progress",
        "host",
    ]
    if config:
        command += ["--config", *config]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = map(str.strip, (done.stderr or done.stdout).splitlines())
        lines = [line for line in said if line and not line.startswith("File ")]  # where in the Snakefile tells nothing
        raise UserError(
            "Snakemake cannot draw the workflow",
            where=str(snakefile),
            got=" ".join(lines[-4:]) or "no message",
        )
    return done.stdout
