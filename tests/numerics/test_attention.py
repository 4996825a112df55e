"""The attention gate lets the right backward through and names the head, tensor, shape and error of a wrong one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from internalize.errors import GateFailed, UserError
from internalize.numerics.attention import ATTENTION, AttentionShape, attention_kernel, math_attention
from internalize.numerics.packed import packed_gate
from internalize.numerics.verdict import Verdict, require

SHAPES = [AttentionShape(4, 2, size, (1, 17, 40)) for size in (8, 256)]


def gate(kernel: Callable[..., Tensor], shapes: Sequence[AttentionShape] = SHAPES, **options: Any) -> Verdict:
    return packed_gate(
        ATTENTION, kernel, shapes, layer="core attention of layers 0-2", **{"tolerance": 1e-4, **options}
    )


class ScaledGradient(torch.autograd.Function):
    """Passes a tensor on; its gradient comes back `factor` times too large."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        return slope * ctx.factor, None


def test_the_trainers_attention_passes_at_every_head_size() -> None:
    verdict = gate(attention_kernel("sdpa"))
    assert verdict.passed
    assert [case.shape.split(" of ")[0] for case in verdict.cases] == ["thd [58, 4/2, 8]", "thd [58, 4/2, 256]"]
    assert all(0 < case.error < 1e-5 for case in verdict.cases)  # float32 beside float64: measured, not equal


def test_a_wrong_scale_in_the_backward_of_one_head_size_is_named() -> None:
    def wrong_at_256(inputs: Mapping[str, Tensor], lengths: Sequence[int]) -> Tensor:
        factor = 1.05 if inputs["q"].size(2) == 256 else 1.0
        return attention_kernel("sdpa")({**inputs, "k": ScaledGradient.apply(inputs["k"], factor)}, lengths)

    verdict = gate(wrong_at_256)
    assert [case.passed for case in verdict.cases] == [True, False]
    with pytest.raises(GateFailed) as failure:
        require([verdict])
    said = str(failure.value)
    assert "core attention of layers 0-2, thd [58, 4/2, 256] of 1+17+40 tokens" in said
    assert "dk of sequence" in said
    assert verdict.cases[1].error == pytest.approx(0.05, rel=0.01)


def test_attention_across_a_boundary_is_found() -> None:
    def one_sequence(inputs: Mapping[str, Tensor], lengths: Sequence[int]) -> Tensor:
        return math_attention(inputs, [sum(lengths)])

    (case,) = gate(one_sequence, SHAPES[:1]).cases
    assert case.error > 0.1
    assert "of sequence" in case.note


def test_a_nan_in_a_gradient_is_a_failure() -> None:
    def broken(inputs: Mapping[str, Tensor], lengths: Sequence[int]) -> Tensor:
        return math_attention({**inputs, "v": ScaledGradient.apply(inputs["v"], float("nan"))}, lengths)

    (case,) = gate(broken, SHAPES[:1]).cases
    assert not case.passed
    assert "dv" in case.note


def test_bfloat16_is_judged_on_the_numbers_that_it_saw() -> None:
    (case,) = gate(attention_kernel("sdpa"), SHAPES[:1], dtype="bfloat16", tolerance=0.03).cases
    assert case.passed
    assert case.error > 1e-4  # the rounding of the type shows


def test_flash_attention_gets_its_arguments_in_its_own_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in with the signature of flash_attn_varlen_func; the real one needs a GPU."""

    def flash_attn_varlen_func(  # type: ignore[no-untyped-def]
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False
    ):
        assert causal
        assert max_seqlen_q == max_seqlen_k == 40
        assert cu_seqlens_q.dtype == torch.int32
        return math_attention({"q": q, "k": k, "v": v}, (cu_seqlens_k[1:] - cu_seqlens_k[:-1]).tolist())

    module = ModuleType("flash_attn")
    module.flash_attn_varlen_func = flash_attn_varlen_func  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flash_attn", module)
    assert gate(attention_kernel("flash"), SHAPES[:1]).passed


@pytest.mark.parametrize(("name", "package"), [("flash", "flash-attn"), ("te", "transformer-engine")])
def test_a_backend_that_is_not_installed_is_no_pass(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("flash_attn", "transformer_engine", "transformer_engine.pytorch"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match="cannot be checked here") as refusal:
        gate(attention_kernel(name), SHAPES[:1])
    assert package in refusal.value.expected


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(UserError, match="unknown attention backend"):
        attention_kernel("eager")
