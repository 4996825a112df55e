from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from internalize.train.attention import SdpaAttention
from internalize.train.mcore import PackedSeqParams


def attention(**changes: object) -> SdpaAttention:
    config = SimpleNamespace(attention_dropout=0.0, context_parallel_size=1, kv_channels=8, **changes)
    return SdpaAttention(config, 1, None, "self")


def packed(*lengths: int) -> PackedSeqParams:
    boundaries = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    longest = max(lengths)
    return PackedSeqParams("thd", boundaries, boundaries, max_seqlen_q=longest, max_seqlen_kv=longest)


def heads(t: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Query of 4 heads, key and value of 2, head size 8."""
    g = torch.Generator().manual_seed(seed)
    return (
        torch.randn(t, 4, 8, generator=g),
        torch.randn(t, 2, 8, generator=g),
        torch.randn(t, 2, 8, generator=g),
    )


def test_a_packed_sequence_does_not_see_its_neighbours_bit_for_bit() -> None:
    lengths = (5, 1, 17, 9)
    q, k, v = heads(sum(lengths))
    together = attention()(q, k, v, packed_seq_params=packed(*lengths))
    parts = zip(q.split(lengths), k.split(lengths), v.split(lengths), lengths, strict=True)
    alone = [attention()(a, b, c, packed_seq_params=packed(n)) for a, b, c, n in parts]
    assert torch.equal(together, torch.cat(alone))


def test_it_is_causal_softmax_attention_with_grouped_queries() -> None:
    q, k, v = heads(11)
    got = attention()(q, k, v, packed_seq_params=packed(11))
    for head in range(4):
        scores = q[:, head] @ k[:, head // 2].T / 8**0.5
        scores = scores.masked_fill(torch.ones(11, 11).triu(1).bool(), float("-inf"))
        assert torch.allclose(got[:, head], scores.softmax(-1) @ v[:, head // 2], atol=1e-6)


def test_unpacked_batches_give_the_same_as_packed_ones() -> None:
    q, k, v = heads(12)
    together = attention()(q, k, v, packed_seq_params=packed(6, 6))
    batched = attention()(*(x.view(2, 6, -1, 8).transpose(0, 1) for x in (q, k, v)))
    assert batched.shape == (6, 2, 32)
    assert torch.allclose(batched.transpose(0, 1).reshape(12, 4, 8), together, atol=1e-6)


def test_dropout_is_refused() -> None:
    with pytest.raises(ValueError, match="dropout"):
        SdpaAttention(SimpleNamespace(attention_dropout=0.1, context_parallel_size=1, kv_channels=8), 1, None, "self")
