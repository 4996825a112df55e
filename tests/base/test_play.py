"""Sides of a gate and their intervals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from internalize.base.play import Side, pooled
from internalize.games.shaping import Outcome
from internalize.harness.episode import Episode, EpisodePlan
from internalize.proportion import wilson


def episode(level: int, cleared: bool, returned: float) -> Episode:
    outcome = Outcome(cleared, False, False, 3, 0, 0, 8, 0.0, float(cleared))
    return Episode(EpisodePlan(f"e{level}{returned}", level, 0, 0, 0), [], [], outcome, {}, returned)


@given(st.integers(1, 600), st.data())
def test_wilson_is_the_score_interval(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))
    expected = binomtest(successes, trials).proportion_ci(method="wilson")
    assert wilson(successes, trials) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_without_trials_nothing_is_known() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def test_a_side_counts_clears_by_level() -> None:
    side = Side([episode(1, True, 0.9), episode(1, False, -0.1), episode(2, False, -0.3), episode(2, False, -0.1)])
    summary = side.summary()
    assert (summary["clears"], summary["episodes"], summary["clear_rate"]) == (1, 4, 0.25)
    assert summary["level1_clear_rate"] == 0.5
    assert summary["level2_clear_rate"] == 0.0
    assert summary["return_mean"] == pytest.approx(0.1)
    assert summary["return_sem"] == pytest.approx(0.2708, abs=1e-4)
    assert side.describe().startswith("1/4 = 25.0%")


def test_pooled_sides_are_one() -> None:
    one, two = Side([episode(1, True, 1.0)]), Side([episode(1, False, 0.0)])
    assert pooled([one, two]).share == 0.5
