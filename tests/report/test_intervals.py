"""Intervals against scipy, and their coverage by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from internalize.report.intervals import (
    Interval,
    Sample,
    bootstrap_mean,
    inside_noise,
    paired_difference,
    pool,
    student,
    wilson,
)


def sample(values, clusters=None) -> Sample:
    return Sample(list(values), list(clusters) if clusters is not None else list(range(len(values))))


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_scipys(case):
    clears, count = case
    expected = stats.binomtest(clears, count).proportion_ci(method="wilson")
    found = wilson(clears, count)
    assert found.value == clears / count
    assert found.low == pytest.approx(expected.low, abs=1e-12)
    assert found.high == pytest.approx(expected.high, abs=1e-12)
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_wilson_of_the_record():
    """5 of 168 recited sentences: 1.3 % to 6.8 %."""
    found = wilson(5, 168)
    assert (round(found.low, 3), round(found.high, 3)) == (0.013, 0.068)


def test_wilson_at_the_edges():
    assert wilson(0, 0).low is None
    assert wilson(0, 10).low == 0.0
    assert wilson(10, 10).high == 1.0
    for wrong in ((3, 2), (-1, 2)):
        with pytest.raises(ValueError, match="successes"):
            wilson(*wrong)


@pytest.mark.parametrize("degrees", [1, 2, 3, 5, 9, 20, 30, 31, 60, 200])
def test_student_is_scipys(degrees):
    assert student(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=3e-3)
    with pytest.raises(ValueError, match="degrees"):
        student(0)


@pytest.mark.parametrize("count", [12, 40, 128])
def test_bootstrap_is_scipys(count):
    """Percentile bootstrap without clusters; both are random, so they agree within resampling noise."""
    values = np.random.default_rng(count).exponential(1.0, count)
    expected = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=1).confidence_interval
    found = bootstrap_mean(sample(values), "scipy", count, resamples=20_000)
    width = expected.high - expected.low
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(expected.low, abs=0.02 * width)
    assert found.high == pytest.approx(expected.high, abs=0.02 * width)


def test_bootstrap_depends_on_its_key_alone():
    values = sample(np.random.default_rng(0).normal(size=30))
    assert bootstrap_mean(values, "a", 1) == bootstrap_mean(values, "a", 1)
    assert bootstrap_mean(values, "a", 1) != bootstrap_mean(values, "a", 2)


def test_bootstrap_takes_whole_clusters():
    """Four copies of each value in one cluster say no more than one copy: the interval stays as wide."""
    values = np.random.default_rng(3).normal(size=24)
    single = bootstrap_mean(sample(values), "clusters", resamples=8000)
    copies = sample(np.repeat(values, 4), np.repeat(np.arange(24), 4))
    assert bootstrap_mean(copies, "clusters", resamples=8000).half == pytest.approx(single.half)
    ignored = bootstrap_mean(sample(np.repeat(values, 4)), "clusters", resamples=8000)
    assert ignored.half == pytest.approx(single.half / 2, rel=0.1)


def test_bootstrap_of_little():
    assert math.isnan(bootstrap_mean(sample([])).value)
    assert bootstrap_mean(sample([0.4, 0.6], [1, 1])) == Interval(0.5, None, None)
    assert bootstrap_mean(sample([0.5, 0.5])) == Interval(0.5, 0.5, 0.5)


def test_pooling_keeps_shared_levels_together():
    one, two = sample([1.0, 2.0], ["a", "b"]), sample([3.0, 4.0], ["a", "b"])
    assert pool({0: one, 1: two}, True) == Sample([1.0, 2.0, 3.0, 4.0], ["a", "b", "a", "b"])
    assert len(set(pool({0: one, 1: two}, False).clusters)) == 4


def test_pairing_by_seed_and_level():
    """What levels and seeds have in common cancels: a constant gain is seen through large common noise."""
    rng = np.random.default_rng(7)
    level = rng.normal(scale=2.0, size=64)
    other = {seed: sample(level + shift) for seed, shift in enumerate((0.0, 0.7, -0.4))}
    one = {seed: sample(np.array(s.values) + 0.1) for seed, s in other.items()}
    found = paired_difference(one, other, "pairing")
    assert found.value == pytest.approx(0.1)
    assert found.half == pytest.approx(0.0, abs=1e-9)
    assert not inside_noise(found)
    # the same values on levels that pair otherwise say nothing
    shuffled = {seed: sample(side.values, [*side.clusters[1:], *side.clusters[:1]]) for seed, side in other.items()}
    assert inside_noise(paired_difference(one, shuffled, "pairing"))


def test_only_common_seeds_are_compared():
    one = {0: sample([1.0, 1.0]), 1: sample([5.0, 5.0])}
    other = {0: sample([0.0, 0.0]), 2: sample([9.0, 9.0])}
    assert paired_difference(one, other).value == 1.0
    assert paired_difference(one, {2: sample([9.0])}) is None


def test_the_seeds_own_spread_is_counted():
    """Three seeds whose differences scatter: Student's t, by hand."""
    other = {seed: sample(np.zeros(50)) for seed in range(3)}
    one = {seed: sample(np.full(50, gain)) for seed, gain in enumerate((0.1, 0.3, 0.2))}
    found = paired_difference(one, other, "spread")
    assert found.value == pytest.approx(0.2)
    assert found.half == pytest.approx(4.3027 * 0.1 / math.sqrt(3), rel=1e-6)
    assert inside_noise(found)


def test_one_seed_has_the_episodes_interval_alone():
    values = np.random.default_rng(5).normal(size=64)
    found = paired_difference({0: sample(values)}, {0: sample(np.zeros(64))}, "one")
    assert found.half == pytest.approx(bootstrap_mean(sample(values), "one").half, rel=0.1)


def test_marks():
    assert inside_noise(Interval(0.1, -0.1, 0.3))
    assert inside_noise(None)
    assert inside_noise(Interval(0.1, None, None))
    assert not inside_noise(Interval(0.1, 0.05, 0.15))
    assert not inside_noise(Interval(-0.1, -0.15, -0.05))


def test_coverage_of_the_bootstrap():
    """Clustered episodes, as in a rollout: 24 groups of four. About 95 of 100 intervals hold the true
    mean."""
    rng = np.random.default_rng(11)
    hits = 0
    trials = 400
    for trial in range(trials):
        groups = rng.normal(scale=0.3, size=24)
        values = np.repeat(groups, 4) + rng.normal(scale=0.3, size=96)
        hits += bootstrap_mean(sample(values, np.repeat(np.arange(24), 4)), trial, resamples=400).covers(0.0)
    assert 0.90 <= hits / trials <= 0.98


@pytest.mark.parametrize("seed_sd", [0.0, 0.1])
def test_coverage_of_the_difference(seed_sd):
    """Three seeds on common levels, with and without an effect of the seed: at least 95 of 100 (wider of
    two)."""
    rng = np.random.default_rng(13)
    hits = 0
    trials = 500
    for trial in range(trials):
        level = rng.normal(scale=0.4, size=64)
        sides = []
        for gain in (0.3, 0.0):
            policies = {s: level + gain + rng.normal(scale=seed_sd) + rng.normal(scale=0.4, size=64) for s in range(3)}
            sides.append({s: sample(values) for s, values in policies.items()})
        hits += paired_difference(*sides, trial, resamples=300).covers(0.3)
    assert hits / trials >= 0.93  # 0.95 less two standard errors of 500 trials
