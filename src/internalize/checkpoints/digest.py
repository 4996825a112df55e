"""Hashes of weights, tensor by tensor.

Invariant: equal exactly when name, type, shape and every bit of a tensor are equal, wherever the tensors lie and
however they are cut into files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from internalize.files import digest


def tensor_digest(tensor: Tensor) -> str:
    """SHA-256 (hex) of type, shape and content."""
    state = hashlib.sha256(f"{tensor.dtype} {list(tensor.shape)}".encode())
    flat = tensor.detach().contiguous().cpu().flatten()
    state.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return state.hexdigest()


def tensor_digests(state: Mapping[str, Tensor]) -> dict[str, str]:
    """Name -> hash."""
    return {name: tensor_digest(tensor) for name, tensor in state.items()}


def state_digest(digests: Mapping[str, str]) -> str:
    """One hash of them all."""
    return digest(dict(digests))
