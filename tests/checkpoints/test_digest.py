from __future__ import annotations

import torch

from internalize.checkpoints.digest import state_digest, tensor_digest, tensor_digests


def test_every_bit_shape_and_type_counts_and_layout_does_not() -> None:
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    flipped = base.clone()
    flipped[1, 2] = torch.nextafter(flipped[1, 2], torch.tensor(1e9))
    others = [base.reshape(4, 3), base.T, base.to(torch.bfloat16), base.double(), flipped, base[:2], torch.zeros(0)]
    digests = [tensor_digest(tensor) for tensor in (base, *others)]
    assert len(set(digests)) == len(digests)
    assert tensor_digest(base.T.contiguous().T) == tensor_digest(base)
    assert tensor_digest(torch.tensor(3.0)) != tensor_digest(torch.tensor([3.0]))


def test_a_state_is_its_names_and_tensors_in_any_order() -> None:
    a, b = torch.ones(2), torch.zeros(2)
    one = state_digest(tensor_digests({"a": a, "b": b}))
    assert one == state_digest(tensor_digests({"b": b, "a": a}))
    assert one != state_digest(tensor_digests({"a": b, "b": a}))
