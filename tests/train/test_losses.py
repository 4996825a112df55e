from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.train.batch import BatchError, TrainSequence
from internalize.train.losses import (
    LossSpec,
    clipped_policy_loss,
    kl_to_teacher,
    normalisers,
    weighted_cross_entropy,
)

finite = st.floats(-6, 0, allow_nan=False)
tokens = st.lists(st.tuples(finite, finite, st.floats(-2, 2)), min_size=1, max_size=40)


def reference_policy_loss(new: float, old: float, advantage: float, low: float, high: float) -> tuple[float, float]:
    """Loss of a token and its derivative with respect to the new log-prob, from the definition."""
    ratio = math.exp(new - old)
    clipped = min(max(ratio, 1 - low), 1 + high)
    if ratio * advantage <= clipped * advantage:
        return -ratio * advantage, -ratio * advantage
    return -clipped * advantage, 0.0


@settings(max_examples=60, deadline=None)
@given(tokens, st.floats(0, 0.9), st.floats(0, 2))
def test_dr_grpo_token_loss_and_slope_equal_the_definition(
    rows: list[tuple[float, float, float]], low: float, high: float
) -> None:
    new, old, advantage = (torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True))
    new.requires_grad_()
    terms = clipped_policy_loss(new, old, advantage, LossSpec(clip_low=low, clip_high=high))
    terms.loss.sum().backward()
    for i, row in enumerate(rows):
        loss, slope = reference_policy_loss(*row, low, high)
        assert terms.loss[i].item() == pytest.approx(loss, rel=1e-12, abs=1e-12)
        ratio = math.exp(row[0] - row[1])
        on_a_kink = min(abs(ratio - (1 - low)), abs(ratio - (1 + high))) < 1e-9
        if not on_a_kink:
            assert new.grad[i].item() == pytest.approx(slope, rel=1e-12, abs=1e-12)
            assert bool(terms.clipped[i]) == (slope == 0.0 and row[2] != 0.0 and loss != 0.0)
        assert terms.ratio[i].item() == pytest.approx(ratio)


def test_zero_advantage_has_exactly_no_gradient() -> None:
    new = torch.tensor([-1.0, -9.0, 0.0], requires_grad=True)
    clipped_policy_loss(new, torch.tensor([-2.0, -1.0, -5.0]), torch.zeros(3), LossSpec()).loss.sum().backward()
    assert not new.grad.any()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_kl_is_the_definition_and_zero_only_for_the_teacher(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(7), 3), rng.dirichlet(np.ones(7), 3)
    expected = (p * (np.log(p) - np.log(q))).sum(-1)
    got = kl_to_teacher(torch.from_numpy(np.log(p)), torch.from_numpy(np.log(q)))
    assert got.numpy() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert kl_to_teacher(torch.from_numpy(np.log(p)), torch.from_numpy(np.log(p))).abs().max() < 1e-12


def test_kl_gradient_is_the_gap_of_the_distributions_even_where_the_teacher_is_certain() -> None:
    teacher = torch.tensor([[0.0, -math.inf, -math.inf]])
    scores = torch.tensor([[0.1, 0.2, 0.3]], requires_grad=True)
    kl_to_teacher(teacher, scores.log_softmax(-1)).sum().backward()
    assert torch.allclose(scores.grad, scores.detach().softmax(-1) - teacher.exp())


def test_weighted_cross_entropy_is_linear_in_float_and_integer_weights() -> None:
    nll = torch.rand(9)
    integers = torch.tensor([0, 1, 8, 32, 0, 1, 1, 8, 32])
    assert weighted_cross_entropy(nll, integers) == weighted_cross_entropy(nll, integers.float())
    assert float(weighted_cross_entropy(nll, torch.full((9,), 0.5))) == pytest.approx(float(nll.sum() / 2))


def policy(n: int, trained: int, episode: str, advantage: float = 1.0) -> TrainSequence:
    mask = [0] * (n - trained) + [1] * trained
    return TrainSequence([0] * n, None, [advantage] * n, [-1.0] * n, mask, episode=episode)


def test_normalisers_count_episodes_not_samples_and_tokens_not_padding() -> None:
    batch = [
        policy(9, 3, "a"),
        policy(20, 5, "a"),
        policy(7, 2, "b", advantage=0.0),
        TrainSequence([0] * 4, [0.0, 0.5, 2.0, 0.0], episode="row"),
        TrainSequence([0] * 3, teacher_logprobs=np.zeros((3, 2)), kl_mask=[0, 1, 1], episode="row"),
    ]
    assert normalisers(batch, LossSpec(tokens_per_episode=54)) == (2 * 54, 2.5, 2)
    assert normalisers(batch, LossSpec(normaliser="tokens")) == (10, 2.5, 2)
    assert normalisers(batch[3:], LossSpec()) == (0, 2.5, 2)


def test_a_masked_sequence_adds_nothing_to_a_token_normaliser() -> None:
    silent = policy(9, 0, "c")
    spec = LossSpec(normaliser="tokens")
    assert normalisers([policy(9, 3, "a"), silent], spec) == normalisers([policy(9, 3, "a")], spec)


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": 0.0},
        {"temperature": float("nan")},
        {"clip_low": 1.0},
        {"clip_high": -0.1},
        {"normaliser": "mean"},
        {"tokens_per_episode": 0},
    ],
)
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(BatchError) as error:
        LossSpec(**bad)
    assert error.value.expected
    assert error.value.got
