"""Chunked forms of the gated delta rule equal its recurrence; a wrong decay is named with layer, shape and error."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from internalize.errors import GateFailed, UserError
from internalize.numerics import delta
from internalize.numerics.delta import DELTA, DeltaShape, chunked, delta_kernel, recurrent
from internalize.numerics.packed import packed_gate
from internalize.numerics.verdict import Verdict, require

SHAPE = DeltaShape(2, 8, 16, (1, 5, 70))


def gate(kernel: delta.Kernel, shape: DeltaShape = SHAPE) -> Verdict:
    return packed_gate(DELTA, kernel, [shape], layer="gated delta rule of layers 0-2", tolerance=1e-4)


def drawn(lengths: Sequence[int], seed: int = 0) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    size = (sum(lengths), 2)
    return {
        "q": torch.randn(*size, 4, generator=g, dtype=torch.float64),
        "k": torch.nn.functional.normalize(torch.randn(*size, 4, generator=g, dtype=torch.float64), dim=-1),
        "v": torch.randn(*size, 6, generator=g, dtype=torch.float64),
        "g": -torch.rand(size, generator=g, dtype=torch.float64),
        "beta": torch.rand(size, generator=g, dtype=torch.float64),
    }


@given(st.lists(st.integers(1, 30), min_size=1, max_size=4), st.integers(1, 12), st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_chunks_of_any_size_equal_the_recurrence(lengths: list[int], size: int, seed: int) -> None:
    before = delta.CHUNK
    delta.CHUNK = size
    try:
        inputs = drawn(lengths, seed)
        assert torch.allclose(chunked(inputs, lengths), recurrent(inputs, lengths), atol=1e-10)
    finally:
        delta.CHUNK = before


def test_the_recurrence_is_the_one_that_transformers_runs() -> None:
    module = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    inputs = drawn([9, 14])
    parts = [{name: tensor[cut] for name, tensor in inputs.items()} for cut in (slice(0, 9), slice(9, 23))]
    want = [
        module.torch_recurrent_gated_delta_rule(
            *(p[name][None] for name in ("q", "k", "v", "g", "beta")), initial_state=None, output_final_state=False
        )[0][0]
        for p in parts
    ]
    assert torch.allclose(recurrent(inputs, [9, 14]), torch.cat(want).double(), atol=1e-6)


@pytest.mark.parametrize("name", ["torch", "megatron"])
def test_both_cpu_forms_pass_forward_and_backward(name: str) -> None:
    verdict = gate(delta_kernel(name))
    assert verdict.passed
    assert 0 < verdict.cases[0].error < 1e-5


def test_a_wrong_decay_is_named() -> None:
    """The decay of a token applied one token late: chunks of one token would never show it."""

    def late(inputs: Mapping[str, Tensor], lengths: Sequence[int]) -> Tensor:
        g = torch.cat([torch.zeros_like(inputs["g"][:1]), inputs["g"][:-1]])
        return chunked({**inputs, "g": g}, lengths)

    with pytest.raises(GateFailed) as failure:
        require([gate(late)])
    said = str(failure.value)
    assert "gated delta rule of layers 0-2, thd [76, 2, 8x16] of 1+5+70 tokens" in said
    assert "relative error" in said


def test_a_decay_without_gradient_is_named() -> None:
    def frozen(inputs: Mapping[str, Tensor], lengths: Sequence[int]) -> Tensor:
        return chunked({**inputs, "g": inputs["g"].detach()}, lengths)

    (case,) = gate(frozen).cases
    assert not case.passed
    assert case.note == "worst: dg: no gradient"


def test_a_kernel_that_is_not_installed_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("fla", "fla.ops", "fla.ops.gated_delta_rule"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match="cannot be checked here"):
        gate(delta_kernel("fla"))
