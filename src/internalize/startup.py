"""What a job spends before its work and after it: imports, and taking down what was imported.

Invariant: nothing here changes what a process computes. Torch and Megatron make some 10^6 objects that live as long as
the process; the garbage collector walks them again and again while they are made, and once more at exit. Leaving
them out saves 0.3 of 2.3 CPU s of the imports and 0.7 CPU s at the exit of each process.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def imports() -> Iterator[None]:
    """Imports without garbage collection; what they made is not looked at again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def leave() -> None:
    """Called last: the exit does not walk what is left."""
    gc.freeze()
