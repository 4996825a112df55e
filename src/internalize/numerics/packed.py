"""Forward and backward of a packed (`thd`) kernel beside a float64 reference, sequence by sequence.

Invariant: kernel and reference see the same numbers (drawn once, rounded to the kernel's type) and the same output
gradient; so what differs is the kernel's arithmetic alone, and the worst sequence, head and tensor are named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from internalize.numerics.verdict import Case, Verdict, head_errors, typical_norm

Kernel = Callable[[Mapping[str, Tensor], Sequence[int]], Tensor]
"""(inputs by name, lengths of the packed sequences) -> output [T, heads, d]."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class PackedShape(Protocol):
    """Sizes of one case; its text goes into messages."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of the packed sequences."""
        ...


Shape = TypeVar("Shape", bound=PackedShape)


@dataclass(frozen=True)
class Operation(Generic[Shape]):
    """What kernels of one kind compute.

    Attributes:
        gate: name of its gate.
        judge: its definition, slow and sure.
        draw: random inputs [T, heads, ...] of a shape, by name.
        float32: names of inputs that are float32 whatever the kernel's type.
    """

    gate: str
    judge: Kernel
    draw: Callable[[Shape, torch.Generator], dict[str, Tensor]]
    float32: tuple[str, ...] = ()


def packed_gate(
    operation: Operation[Shape],
    kernel: Kernel,
    shapes: Sequence[Shape],
    *,
    layer: str,
    tolerance: float,
    dtype: str = "float32",
    device: str = "cpu",
) -> Verdict:
    """One case a shape: greatest relative error of the output and of each gradient, by sequence and head.

    Args:
        layer: which layers compute with the kernel, for the message.
    """
    cases = []
    for shape in shapes:
        drawn = operation.draw(shape, torch.Generator().manual_seed(0))
        inputs = {
            name: tensor.to(device, None if name in operation.float32 else DTYPES[dtype])
            for name, tensor in drawn.items()
        }
        error, where = worst(kernel, operation.judge, inputs, shape.lengths)
        cases.append(Case(layer, f"{shape} {dtype}", error, tolerance, f"worst: {where}"))
    return Verdict(operation.gate, tuple(cases))


def worst(kernel: Kernel, reference: Kernel, inputs: Mapping[str, Tensor], lengths: Sequence[int]) -> tuple[float, str]:
    """Greatest relative error over output and input gradients, and where it lies.

    Args:
        kernel, reference: what is judged, and its judge; the judge gets the inputs as float64 on the CPU.
        inputs: by name, [T, heads, ...] in the kernel's type, on its device.
        lengths: of the packed sequences; they add up to T.
    """
    first = next(iter(inputs.values()))
    drawn = torch.Generator().manual_seed(1)
    mine = {name: tensor.detach().clone().requires_grad_() for name, tensor in inputs.items()}
    sure = {name: tensor.detach().double().cpu().requires_grad_() for name, tensor in inputs.items()}
    want = reference(sure, lengths)
    got = kernel(mine, lengths)
    if got.shape != want.shape:
        return float("inf"), f"the output is {list(got.shape)}, not {list(want.shape)}"
    slope = torch.randn(want.shape, generator=drawn).to(first.dtype)
    torch.autograd.backward(want, slope.double())
    torch.autograd.backward(got, slope.to(got.device, got.dtype))
    pairs = {"output": (got, want), **{f"d{name}": (mine[name].grad, sure[name].grad) for name in inputs}}
    error, where = -1.0, ""
    for name, (have, should) in pairs.items():
        if have is None or should is None:
            return float("inf"), f"{name}: no gradient"
        have, should = (x if x.dim() == 3 else x.unsqueeze(-1) for x in (have, should))
        typical = typical_norm(should)
        parts = zip(torch.split(have, list(lengths)), torch.split(should, list(lengths)), strict=True)
        for number, (a, b) in enumerate(parts):
            errors = head_errors(a, b, typical)
            if float(errors.max()) > error:
                error = float(errors.max())
                where = f"{name} of sequence {number} ({lengths[number]} tokens), head {int(errors.argmax())}"
    return error, where


def boundaries(lengths: Sequence[int], device: torch.device) -> Tensor:
    """Cumulative lengths [S + 1], int32, from 0."""
    return torch.tensor([0, *lengths], device=device).cumsum(0).to(torch.int32)
