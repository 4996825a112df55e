"""One line of a training log: which metric dictionary it prints, if it prints one.

Invariant: a line is known by actor, keyword and dictionary alone; colours, file names, line numbers and whatever Ray
adds before and behind change nothing, because they differ between versions.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

from internalize.imports.values import read_dict

Kind = Literal["rollout", "perf", "eval", "step", "critic-step", "multi_turn", "passrate"]
Side = Literal["rollout", "train"]

COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
RAY = re.compile(r"^\((?P<actor>[\w.]+)(?: pid=\d+)?(?:, ip=[\w.:]+)?\)\s*")
REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
TIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:[.,]\d+)?)")
METRIC = re.compile(
    r"(?:^|[\s-])(?P<kind>rollout|perf|eval|critic-step|step|multi_turn|passrate) (?P<id>\d+): (?P<dict>\{.*)$"
)
PLAYS = ("RolloutManager", "RolloutController")
"""Actors whose `perf` line is that of the rollout; any other's is the trainer's."""


class Line(NamedTuple):
    """A metric dictionary as it was printed."""

    kind: Kind
    id: int
    """Rollout id; for `step` the number of the optimizer step."""
    side: Side
    """Who printed it: both sides print a `perf` line for each rollout."""
    time: str
    """`YYYY-MM-DD HH:MM:SS`, which sorts; empty if the line has none."""
    values: dict[str, Any]


def read_line(text: str) -> Line | None:
    """The metric line, or None for any other line.

    Raises:
        ValueError: a metric line whose dictionary is cut off or unreadable.
    """
    plain = COLOUR.sub("", text).strip()
    if "{" not in plain:
        return None
    actor = RAY.match(plain)
    found = METRIC.search(REPEATED.sub("", plain[actor.end() :] if actor else plain))
    if found is None:
        return None
    values = read_dict(found["dict"])
    time = TIME.search(plain[: plain.index("{")])
    stamp = f"{time[1]} {time[2].replace(',', '.')}" if time else ""
    return Line(found["kind"], int(found["id"]), _side(actor["actor"] if actor else "", values), stamp, values)  # type: ignore[arg-type]


def _side(actor: str, values: dict[str, Any]) -> Side:
    """Which side an actor is; without an actor, its keys tell."""
    if actor:
        return "rollout" if actor.startswith(PLAYS) else "train"
    return "rollout" if any(key.startswith(("e2k/", "perf/rollout_time", "eval/")) for key in values) else "train"
