"""How sure a number is: Wilson for shares, bootstrap for means, paired seeds for differences.

Invariant: every interval is at 95 %, every resampling is seeded by the data's own name, and resampling
takes whole clusters (the episodes that play one level seed), because those are not independent of each other.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from internalize.proportion import wilson as score_bounds
from internalize.seeds import np_rng

Z = 1.959963984540054
RESAMPLES = 2000

#: 97.5 % quantile of Student's t for 1, 2, ... degrees of freedom.
STUDENT = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)


class Interval(NamedTuple):
    """An estimate and its 95 % bounds; the bounds are None when the data cannot give any."""

    value: float
    low: float | None
    high: float | None

    @property
    def half(self) -> float:
        """Half the width; 0 without bounds."""
        return 0.0 if self.low is None or self.high is None else (self.high - self.low) / 2

    def covers(self, value: float) -> bool:
        """True when `value` lies inside, or when nothing is known."""
        return self.low is None or self.high is None or self.low <= value <= self.high


class Sample(NamedTuple):
    """Values of one seed's episodes, and the cluster of each."""

    values: Sequence[float]
    clusters: Sequence[Hashable]


def wilson(successes: int, trials: int) -> Interval:
    """Score interval of a share.

    Raises:
        ValueError: more successes than trials, or a negative number.
    """
    low, high = score_bounds(successes, trials)
    return Interval(successes / trials, low, high) if trials else Interval(math.nan, None, None)


def student(degrees: int) -> float:
    """97.5 % quantile of Student's t."""
    if degrees < 1:
        raise ValueError(f"{degrees} degrees of freedom")
    return STUDENT[degrees - 1] if degrees <= len(STUDENT) else Z + 2.5 / degrees


def bootstrap_mean(sample: Sample, *key: str | int, resamples: int = RESAMPLES) -> Interval:
    """Percentile bootstrap of the mean over clusters.

    Args:
        sample: values and their clusters; a cluster is drawn or left out as a whole.
        key: names the data; equal keys draw equal resamples.
    """
    if not len(sample.values):
        return Interval(math.nan, None, None)
    mean = math.fsum(sample.values) / len(sample.values)
    sums, counts = _clustered(sample)
    if len(counts) < 2:
        return Interval(mean, None, None)
    picked = np_rng("bootstrap", *key).integers(0, len(counts), (resamples, len(counts)))
    means = sums[picked].sum(1) / counts[picked].sum(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(mean, float(low), float(high))


def pool(samples: Mapping[int, Sample], shared_levels: bool) -> Sample:
    """The episodes of all seeds as one sample.

    Args:
        shared_levels: True when all seeds play the same levels (evals), so that a level of all seeds is one
            cluster; False when each seed has its own (rollouts).
    """
    values: list[float] = []
    clusters: list[Hashable] = []
    for seed, sample in samples.items():
        values += sample.values
        clusters += [cluster if shared_levels else (seed, cluster) for cluster in sample.clusters]
    return Sample(values, clusters)


def paired_difference(
    one: Mapping[int, Sample],
    other: Mapping[int, Sample],
    *key: str | int,
    resamples: int = RESAMPLES,
) -> Interval | None:
    """Mean difference `one - other` over the seeds that both have, with the wider of two intervals.

    The first is Student's t over the differences of the seeds (what another training seed would give). The
    second is a bootstrap over episodes (what other levels would give) of level by level differences: both sides of a
    seed play the same level seeds. With one seed only the second is known.

    Returns:
        None when no seed is in both.
    """
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        return None
    differences = [_mean(one[seed]) - _mean(other[seed]) for seed in seeds]
    mean = math.fsum(differences) / len(seeds)
    halves = [_episode_half({s: one[s] for s in seeds}, {s: other[s] for s in seeds}, key, resamples)]
    if len(seeds) > 1:
        spread = math.fsum((d - mean) ** 2 for d in differences) / (len(seeds) - 1)
        halves.append(student(len(seeds) - 1) * math.sqrt(spread / len(seeds)))
    half = max((value for value in halves if value is not None), default=None)
    return Interval(mean, None, None) if half is None else Interval(mean, mean - half, mean + half)


def inside_noise(difference: Interval | None) -> bool:
    """True when a difference cannot be told from 0: its interval covers 0, or there is none."""
    return difference is None or difference.covers(0.0)


def _episode_half(
    one: Mapping[int, Sample],
    other: Mapping[int, Sample],
    key: tuple[str | int, ...],
    resamples: int,
) -> float | None:
    values: list[float] = []
    clusters: list[Hashable] = []
    for seed in one:
        means = [_cluster_means(side[seed]) for side in (one, other)]
        for cluster in means[0].keys() & means[1].keys():
            values.append(means[0][cluster] - means[1][cluster])
            clusters.append(cluster)
    order = sorted(range(len(values)), key=lambda i: (str(clusters[i]), values[i]))
    interval = bootstrap_mean(
        Sample([values[i] for i in order], [clusters[i] for i in order]), *key, resamples=resamples
    )
    return None if interval.low is None else interval.half


def _mean(sample: Sample) -> float:
    return math.fsum(sample.values) / len(sample.values)


def _cluster_means(sample: Sample) -> dict[Hashable, float]:
    found: dict[Hashable, list[float]] = {}
    for value, cluster in zip(sample.values, sample.clusters, strict=True):
        found.setdefault(cluster, []).append(value)
    return {cluster: math.fsum(values) / len(values) for cluster, values in found.items()}


def _clustered(sample: Sample) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sum and count of each cluster, clusters in order of first appearance."""
    index: dict[Hashable, int] = {}
    which = [index.setdefault(cluster, len(index)) for cluster in sample.clusters]
    values = np.asarray(sample.values, dtype=np.float64)
    sums: NDArray[np.float64] = np.bincount(which, weights=values).astype(np.float64)
    return sums, np.bincount(which).astype(np.float64)
