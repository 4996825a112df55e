"""Seeds for every random draw, derived from what the draw is for.

Invariant: equal keys give equal streams on every machine, and a draw never depends on how many draws others made.
"""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

from internalize.files import canonical_json

if TYPE_CHECKING:
    import numpy as np


def derive(*key: str | int) -> int:
    """A 64-bit seed from the SHA-256 of the key, for example `derive("rollout", arm_seed, step, episode, call)`."""
    return int.from_bytes(hashlib.sha256(canonical_json(list(key)).encode()).digest()[:8], "big")


def rng(*key: str | int) -> random.Random:
    """A Python generator of its own for `key`."""
    return random.Random(derive(*key))


def np_rng(*key: str | int) -> np.random.Generator:
    """A numpy (PCG64) generator of its own for `key`."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(derive(*key)))
