"""Files opened for reading at any place by several threads at once.

Invariant: a read names its place and moves no file position; what is asked for comes whole or is an error.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from internalize.errors import CorruptPayload

FIX = "rerun the step that wrote it, or point at a complete checkpoint (internalize checkpoints lists them)"


class Handles:
    """Descriptors of the files of one folder, opened when first asked for. Close it in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[str, int] = {}
        self._lock = threading.Lock()

    def of(self, file: str) -> int:
        """The descriptor of a file."""
        with self._lock:
            if file not in self._open:
                self._open[file] = os.open(self.folder / file, os.O_RDONLY)
            return self._open[file]

    def fill(self, file: str, at: int, out: Tensor, what: str) -> None:
        """Fills a contiguous tensor with the bytes from ``at`` on.

        Args:
            what: name of the tensor, for the error.

        Raises:
            CorruptPayload: the file ends before.
        """
        if not out.numel():
            return
        buffer = bytes_of(out)
        handle, done = self.of(file), 0
        while done < len(buffer):
            count = os.preadv(handle, [buffer[done:]], at + done)
            if not count:
                raise damaged(self.folder / file, f"{len(buffer)} bytes of {what} at byte {at}", f"{done} bytes")
            done += count

    def close(self) -> None:
        """Closes all."""
        with self._lock:
            for handle in self._open.values():
                os.close(handle)
            self._open.clear()


def bytes_of(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor, not copied."""
    raw: Any = tensor.view(torch.uint8).numpy()
    return memoryview(raw).cast("B")


def damaged(path: Path, expected: str, got: str) -> CorruptPayload:
    """The error for a file whose content is not what it should be."""
    return CorruptPayload(
        "the checkpoint is damaged",
        where=str(path),
        expected=expected,
        got=got,
        fix=FIX,
    )
