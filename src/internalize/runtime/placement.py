"""Which device holds which rank and which engine.

Invariant: ranks fill one node after another, so that a tensor-parallel group, whose ranks are consecutive, lies inside
a node wherever the node's devices allow it; an engine never shares a device with another engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Placement = Literal["split", "colocated"]


@dataclass(frozen=True)
class Layout:
    """One bundle of resources a device, and the share of it that a process takes.

    Args:
        bundles: resources of each device.
        rank, engine: resources of one rank and one engine.
        ranks, engines: how many of them.
        placement: whether an engine has a device of its own or takes turns with a rank.
    """

    bundles: list[dict[str, float]]
    rank: dict[str, float]
    engine: dict[str, float]
    ranks: int
    engines: int
    placement: Placement

    def assign(self, nodes: Sequence[str]) -> tuple[list[int], list[int]]:
        """Bundles of the ranks and of the engines, by the node that each bundle lies on."""
        order = sorted(range(len(nodes)), key=lambda i: (nodes[i], i))
        first = 0 if self.placement == "colocated" else self.ranks
        return order[: self.ranks], order[first : first + self.engines]


def layout(ranks: int, engines: int, placement: Placement, gpus: bool) -> Layout:
    """The layout for so many ranks and engines; on machines without GPUs a device is a CPU."""
    if placement == "split":
        one = {"CPU": 1.0} | ({"GPU": 1.0} if gpus else {})
        return Layout([one] * (ranks + engines), one, one, ranks, engines, placement)
    half = {"CPU": 1.0} | ({"GPU": 0.5} if gpus else {})
    both = {"CPU": 2.0} | ({"GPU": 1.0} if gpus else {})
    return Layout([both] * max(ranks, engines), half, half, ranks, engines, placement)
