"""Where a tensor lies in a torch.save blob; nothing in it is run."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from internalize.checkpoints.blobs import check_sum, find_tensor, write_tensor
from internalize.checkpoints.handles import bytes_of

LEAD = 100


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shard"


def store(path: Path, value: Any) -> int:
    """A file with some bytes, the blob, some bytes; returns the length of the blob."""
    torch.save(value, path)
    blob = path.read_bytes()
    path.write_bytes(b"x" * LEAD + blob + b"y" * 50)
    return len(blob)


@pytest.fixture
def opened(path: Path) -> Iterator[Any]:
    handles = []

    def get() -> int:
        handles.append(os.open(path, os.O_RDONLY))
        return handles[-1]

    yield get
    for handle in handles:
        os.close(handle)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8])
@pytest.mark.parametrize("shape", [(3, 5), (1, 4, 2), (7,), (), (0, 3)])
def test_the_bytes_at_the_place_are_the_numbers(path: Path, opened: Any, dtype: torch.dtype, shape: Any) -> None:
    tensor = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
    length = store(path, tensor)
    blob = find_tensor(opened(), LEAD, length)
    assert (blob.dtype, blob.size, blob.row_major) == (dtype, shape, True)
    raw = path.read_bytes()[blob.start : blob.start + tensor.numel() * dtype.itemsize]
    if raw:
        assert torch.equal(torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape), tensor)


@pytest.mark.parametrize(
    ("make", "row_major"),
    [
        (lambda t: t.T, False),
        (lambda t: t[2:], True),
        (lambda t: t[:, 1:], False),
        (lambda t: t[1:2].T.T, True),
        (lambda t: t.T.unsqueeze(0), False),
    ],
)
def test_views_are_told_apart(path: Path, opened: Any, make: Any, row_major: bool) -> None:
    tensor: Tensor = make(torch.arange(20.0).reshape(4, 5))
    length = store(path, tensor)
    blob = find_tensor(opened(), LEAD, length)
    assert blob.row_major is row_major
    if row_major:
        raw = path.read_bytes()[blob.start : blob.start + tensor.numel() * 4]
        assert torch.equal(torch.frombuffer(bytearray(raw), dtype=torch.float32).reshape(tensor.shape), tensor)


class Bomb:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return (Path.touch, (self.target,))


@pytest.mark.parametrize("what", ["dict", "bomb", "noise", "short"])
def test_anything_else_is_refused_and_not_run(path: Path, opened: Any, tmp_path: Path, what: str) -> None:
    values = {"dict": {"a": torch.zeros(2)}, "bomb": Bomb(tmp_path / "boom")}
    length = store(path, values.get(what, torch.zeros(100)))
    if what == "noise":
        path.write_bytes(os.urandom(LEAD + length))
    with pytest.raises(ValueError, match=r"blob|holds"):
        find_tensor(opened(), LEAD, length - (40 if what == "short" else 0))
    assert not (tmp_path / "boom").exists()


def test_a_changed_number_breaks_the_checksum(path: Path, opened: Any) -> None:
    length = store(path, torch.zeros(1000))
    check_sum(opened(), LEAD, length)
    blob = find_tensor(opened(), LEAD, length)
    data = bytearray(path.read_bytes())
    data[blob.start + 17] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="checksum"):
        check_sum(opened(), LEAD, length)


@pytest.mark.parametrize("limit", [zipfile.ZIP64_LIMIT, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
@pytest.mark.parametrize("shape", [(3, 5), (1, 4, 2), (), (0, 3)])
def test_what_is_written_in_parts_is_what_torch_loads(
    path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch, shape: Any, dtype: torch.dtype, limit: int
) -> None:
    """With the lower limit, as a tensor of more than 2 GiB is written."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", limit)
    tensor = (torch.arange(torch.Size(shape).numel()) % 3).reshape(shape).to(dtype)
    raw = bytes_of(tensor.reshape(-1))
    with path.open("wb") as handle:
        handle.write(b"x" * LEAD)
        write_tensor(handle, dtype, shape, [raw[:7], raw[7:]])
    length = path.stat().st_size - LEAD
    data = path.read_bytes()[LEAD:]
    loaded = torch.load(io.BytesIO(data), weights_only=True)
    assert torch.equal(loaded, tensor)
    assert loaded.stride() == tensor.stride()
    blob = find_tensor(opened(), LEAD, length)
    assert (blob.dtype, blob.size, blob.row_major) == (dtype, shape, True)
    assert (blob.start - LEAD) % 64 == 0
    assert data[blob.start - LEAD :].startswith(bytes(raw))
    check_sum(opened(), LEAD, length)
