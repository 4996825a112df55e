"""Loading an archive's tables with `datasets`, offline, in a process whose settings are its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

LOAD = """
import json, sys
import datasets
datasets.disable_progress_bars()
root, cache, *names = sys.argv[1:]
told = {}
for name in names or datasets.get_dataset_config_names(root):
    for streaming in (False, True):
        table = datasets.load_dataset(root, name, split="train", cache_dir=cache, streaming=streaming)
        rows = list(table)
        told.setdefault(name, []).append(len(rows))
    told[name] += [json.loads(json.dumps(rows[0], default=str)), table.features._to_yaml_list()]
print(json.dumps(told))
"""


def python(script: str, *words: str) -> str:
    """Runs a script offline; what it printed."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-c", script, *words]
    done = subprocess.run(command, env=os.environ | offline, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def load(root: Path, cache: Path) -> dict[str, list[Any]]:
    """Config -> rows eagerly, rows streaming, first row, features."""
    found: dict[str, list[Any]] = json.loads(python(LOAD, str(root), str(cache)).splitlines()[-1])
    return found
