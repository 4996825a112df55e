"""Versions of the libraries that a gate's verdict holds for.

Invariant: the verdict on a kernel is the verdict on one build of it, so versions are part of what determines a gate's
result: after an upgrade the gates run again, and a pass on another machine's libraries counts for nothing here.
Imports nothing heavy: the workflow asks at every parse.
"""

from __future__ import annotations

from importlib import metadata

PACKAGES = ("torch", "megatron-core", "transformer-engine", "flash-attn", "flash-linear-attention", "triton", "sglang")


def library_versions() -> dict[str, str]:
    """Installed packages that compute, by name; what is absent is left out."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
