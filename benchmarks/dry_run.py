"""What parsing and planning a large study costs: 50 arms of 40 steps, one step a job.

Not a test: run `python benchmarks/dry_run.py`. Bounds: 10 CPU seconds and 300 MB for Snakemake's dry run, 5 CPU seconds
for `internalize plan`; the exit status is 1 when one is broken.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
ARMS, STEPS = 50, 40
SCHEDULES = (
    {"type": "none"},
    {"type": "sft_first", "steps": 3},
    {"type": "sft_interleaved", "every": 2},
    {"type": "sft_joint", "fraction": 0.25},
    {"type": "sft_freq", "sft": 1, "of": 4},
)


def large_study() -> dict[str, object]:
    """The bundled study with other arms: all schedules, all row sets."""
    study = yaml.safe_load((REPOSITORY / "config/bundled.yaml").read_text())
    rows = list(study["rows"])
    arms = {}
    for at in range(ARMS):
        arm = {"schedule": SCHEDULES[at % len(SCHEDULES)], "steps": STEPS, "rl": {"lr": 1e-4 * (1 + at / 100)}}
        if at % len(SCHEDULES):
            arm["rows"] = rows[at % len(rows)]
        arms[f"arm_{at:02d}"] = arm
    return {**study, "seeds": [0], "arms": arms}


def measured(command: list[str], folder: str) -> tuple[float, float, str]:
    """CPU seconds and peak memory (MB) of a command, and what it printed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 1)
        os.chdir(folder)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        use = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(use.ru_utime + use.ru_stime, use.ru_maxrss * 1024 / 1e6, flush=True)
        print(done.stdout if done.returncode else "\n".join(done.stdout.splitlines()[:40]), flush=True)
        os._exit(done.returncode)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    head, _, rest = text.partition("\n")
    if status:
        sys.exit(f"failed: {' '.join(command)}\n{rest}")
    seconds, memory = map(float, head.split())
    return seconds, memory, rest


def main() -> int:
    """Both commands on a fresh folder, twice: the second time the fingerprint cache is warm."""
    good = True
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "large.yaml").write_text(yaml.safe_dump(large_study(), sort_keys=False))
        config = ["study=large.yaml", "steps_per_job=1"]
        dry = ["-s", str(REPOSITORY / "Snakefile"), "-n", "--nolock", "--quiet", "host", "reason", "--config", *config]
        plan = ["plan", "--study", "large.yaml", "--steps-per-job", "1", "--json"]
        for turn in ("cold", "warm"):
            for name, command, most, memory_most in (
                ("snakemake -n", [sys.executable, "-m", "snakemake", *dry], 10.0, 300.0),
                ("internalize plan", [sys.executable, "-m", "internalize.cli", *plan], 5.0, 300.0),
            ):
                seconds, memory, _ = measured(command, folder)
                fine = seconds <= most and memory <= memory_most
                good = good and fine
                verdict = "" if fine else "BROKEN"
                print(f"{name:<18}{turn:<6}{seconds:>7.2f} CPU s (at most {most:g}) {memory:>7.0f} MB {verdict}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
