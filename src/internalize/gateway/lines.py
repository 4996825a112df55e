"""A JSONL file that grows while an episode runs.

Invariant: when `append` returns, the row is with the kernel: the death of this process loses none. One row is
one `write`, so a reader never meets half a row except at the end of a file whose writer was killed.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from internalize.files import disk_error


class Lines:
    """Appends rows to a new file. Thread-safe. Raises UserError when the file exists or can't be written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except OSError as error:
            raise disk_error(error, path) from error

    def append(self, row: Any) -> None:
        """Write one row. UserError when the disk is full."""
        data = (json.dumps(row, separators=(",", ":"), allow_nan=False) + "\n").encode()
        with self._lock:
            try:
                while data:
                    data = data[os.write(self._file, data) :]
            except OSError as error:
                raise disk_error(error, self.path) from error

    def close(self) -> None:
        """Close it; rows can't be added any more."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1


def read_lines(path: Path) -> Iterator[Any]:
    """The JSON rows of a file that another process wrote; a line that is no JSON (a killed writer, a stray
    message) is skipped, a missing file has none."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue
