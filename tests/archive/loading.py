"""Loading tables with `datasets`, offline, in a process whose settings are its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ASK = """
import json, sys
import datasets
datasets.disable_progress_bars()

def load(root, cache):
    told = {}
    for name in datasets.get_dataset_config_names(root):
        table = datasets.load_dataset(root, name, split="train", cache_dir=cache)
        streamed = None
        if name in ("episodes", "calls", "t") or name.startswith("rows_"):  # one of each file format
            streamed = len(list(datasets.load_dataset(root, name, split="train", streaming=True)))
        first = json.loads(json.dumps(table[0], default=str))
        told[name] = [len(table), streamed, first, table.features._to_yaml_list()]
    return told

def fail(root, cache):
    told = []
    for streaming in (False, True):
        try:
            for split in datasets.load_dataset(root, cache_dir=cache, streaming=streaming).values():
                list(split)
            told.append("LOADED")
        except Exception as error:
            causes = []
            while error is not None:
                causes.append(f"{type(error).__name__}: {str(error)[-60:]}")
                error = error.__cause__
            told.append(" <- ".join(causes).replace(chr(10), " "))
    return told

cache, *asked = sys.argv[1:]
print(json.dumps([globals()[what](root, cache) for what, root in zip(asked[::2], asked[1::2])]))
"""


def ask(cache: Path, *asked: tuple[str, Path]) -> list[Any]:
    """An answer for each `load` and `fail` of a folder; one process, since importing `datasets` costs seconds."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-c", ASK, str(cache), *(str(word) for one in asked for word in one)]
    done = subprocess.run(command, env=os.environ | offline, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def load(root: Path, cache: Path) -> dict[str, list[Any]]:
    """Config -> rows, rows streamed (None: not tried), first row, features."""
    found: dict[str, list[Any]] = ask(cache, ("load", root))[0]
    return found
