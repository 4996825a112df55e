"""The collapse guard: thresholds that end an arm whose policy has stopped playing.

Invariant: a policy that plays well, or at least as well as the base on the same reading, is never stopped
for that reading; only numbers that are not finite stop a policy whatever its play. A stopped arm is a
result: the verdict says which readings broke which thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, ValidationError

from internalize.errors import StudyError
from internalize.study_model import Settings, Share

Row = Mapping[str, Any]
Criterion = tuple[str, str, bool]
"""Key of the readings, sentence for the reasons, and whether it stops the arm."""


class GuardThresholds(Settings):
    """When an arm counts as collapsed. Shares are of the rollout's episodes, replies, thinks or groups."""

    calls_share: Share = 0.25
    """Replies an episode that did not clear, as a share of the base's; one reply an episode is always too
    few."""
    think_share: Share = 0.33
    """Words a think, as a share of the base's."""
    tool_call_ending_rate: Share = 0.9
    """Least share of replies that end in a tool call."""
    text_end_share: Share = 0.5
    """Most episodes that end with a text answer."""
    repetition_share: Share = 0.1
    """Most thinks that say the same run of words three times in a row."""
    loop_share: Share = 0.5
    """Most replies spent on looks, on acts without effect, or on repeating a call in an unchanged state."""
    zero_variance_share: Share = 0.9
    """Most groups without any spread of return, in each of the last `zero_variance_rollouts` rollouts."""
    zero_variance_rollouts: Annotated[int, Field(ge=1)] = 2
    """Rollouts in a row."""
    logprob_factor: Annotated[float, Field(ge=1)] = 5.0
    """Train/rollout log-prob difference, as a multiple of the arm's first rollout ..."""
    logprob_floor: Annotated[float, Field(ge=0)] = 0.02
    """... and above this many nats a token, so that rounding noise never counts."""
    good_clear_rate: Share = 0.5
    """From this clear rate on, few replies, short thinks, loops and silent groups are no sign of collapse."""


@dataclass(frozen=True)
class GuardVerdict:
    """`stop`, the sentences that say why, and every reading beside its limit."""

    stop: bool
    reasons: list[str] = field(default_factory=list)
    readings: dict[str, float | None] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """The content of `collapse_guard.json`."""
        return {"stop": self.stop, "reasons": list(self.reasons), "readings": dict(self.readings)}


class Guard:
    """Judges an arm after each step, against thresholds and the base's play metrics."""

    def __init__(self, thresholds: GuardThresholds | Mapping[str, Any], reference: Row) -> None:
        """`reference`: play metrics of the base without knowledge (`evals.play_metrics`).

        Raises:
            StudyError: a threshold is unknown or out of range, or the reference lacks a reading.
        """
        if not isinstance(thresholds, GuardThresholds):
            try:
                thresholds = GuardThresholds.model_validate(dict(thresholds))
            except ValidationError as error:
                first = error.errors()[0]
                raise StudyError(
                    first["msg"], where="guard." + ".".join(map(str, first["loc"])), got=repr(first["input"])
                ) from error
        missing = [name for name in ("calls_per_episode", "think_tokens") if reference.get(name) is None]
        if missing:
            raise StudyError("the guard's reference lacks readings", where="guard", got="without " + ", ".join(missing))
        self.thresholds = thresholds
        self.reference = dict(reference)

    def check(self, history: Sequence[Row]) -> GuardVerdict:
        """Judges the last step of an arm.

        Args:
            history: one flat dict a step, oldest first: the step's play metrics and `zero_variance_share`
                (when it played) and its training numbers (`loss`, `grad_norm`, `logprob_abs_diff`). A key
                that is absent is not judged; `loss` or `grad_norm` given as None was not finite.
        """
        if not history:
            return GuardVerdict(stop=False)
        criteria = [
            *self._training(history),
            *(self._play(history) if "calls_per_episode" in history[-1] else []),
        ]
        reasons = [sentence for _, sentence, broken in criteria if broken]
        readings = {key: _finite(history[-1].get(key)) for key, _, _ in criteria if key in history[-1]}
        return GuardVerdict(bool(reasons), reasons, readings)

    def _training(self, history: Sequence[Row]) -> list[Criterion]:
        now = history[-1]
        criteria = [
            (name, f"{name} is not finite", name in now and _finite(now[name]) is None)
            for name in ("loss", "grad_norm")
        ]
        diffs = [value for row in history if (value := _finite(row.get("logprob_abs_diff"))) is not None]
        latest = _finite(now.get("logprob_abs_diff"))
        if latest is not None:
            limit = max(self.thresholds.logprob_factor * diffs[0], self.thresholds.logprob_floor)
            sentence = (
                f"train/rollout log-prob difference {latest:.3g} above {limit:.3g} "
                f"({self.thresholds.logprob_factor:g} x the first rollout's {diffs[0]:.3g})"
            )
            criteria.append(("logprob_abs_diff", sentence, latest > limit))
        return criteria

    def _play(self, history: Sequence[Row]) -> list[Criterion]:
        now, limits = history[-1], self.thresholds
        good = (_finite(now.get("clear_rate")) or 0.0) >= limits.good_clear_rate
        loops = _loops(now)
        criteria = [
            self._most(now, "text_end_share", limits.text_end_share, "of the episodes end with a text answer"),
            self._most(now, "repetition_share", limits.repetition_share, "of the thinks repeat themselves"),
            self._least(
                now,
                "tool_call_ending_rate",
                limits.tool_call_ending_rate,
                "of the replies end in a tool call",
            ),
        ]
        if good:
            return criteria
        calls_key = "calls_uncleared" if _finite(now.get("calls_uncleared")) is not None else "calls_per_episode"
        base_calls = float(self.reference.get(calls_key) or self.reference["calls_per_episode"])
        calls, fewest = _finite(now.get(calls_key)), limits.calls_share * base_calls
        few = calls is not None and calls < base_calls and (calls < fewest or calls <= 1.0)
        think, base_think = _finite(now.get("think_tokens")), float(self.reference["think_tokens"])
        short = think is not None and think < limits.think_share * base_think
        looped = loops > limits.loop_share and loops > _loops(self.reference)
        criteria += [
            (
                calls_key,
                f"{_text(calls)} replies an episode, the base makes {base_calls:.2f} "
                f"(limit: more than 1 and at least {fewest:.2f})",
                few,
            ),
            (
                "think_tokens",
                f"{_text(think)} words a think, the base thinks {base_think:.2f} "
                f"(limit {limits.think_share * base_think:.2f})",
                short,
            ),
            (
                "loop_share",
                f"{loops:.0%} of the calls are looks, acts without effect or repeats (limit {limits.loop_share:.0%})",
                looped,
            ),
        ]
        rollouts = [value for row in history if (value := _finite(row.get("zero_variance_share"))) is not None]
        last = rollouts[-limits.zero_variance_rollouts :]
        silent = len(last) == limits.zero_variance_rollouts and min(last) > limits.zero_variance_share
        sentence = (
            f"{_percent(last[-1] if last else None)} of the groups without spread, "
            f"{limits.zero_variance_rollouts} rollouts in a row (limit {limits.zero_variance_share:.0%})"
        )
        return [*criteria, ("zero_variance_share", sentence, silent)]

    def _most(self, now: Row, key: str, limit: float, what: str) -> Criterion:
        value = _finite(now.get(key))
        base = _finite(self.reference.get(key))
        broken = value is not None and value > limit and (base is None or value > base)
        return key, f"{_percent(value)} {what} (limit {limit:.0%})", broken

    def _least(self, now: Row, key: str, limit: float, what: str) -> Criterion:
        value = _finite(now.get(key))
        base = _finite(self.reference.get(key))
        broken = value is not None and value < limit and (base is None or value < base)
        return key, f"{_percent(value)} {what} (limit {limit:.0%})", broken


def _loops(row: Row) -> float:
    """The largest of the three shares that tell of standing still."""
    return max(_finite(row.get(key)) or 0.0 for key in ("noop_share", "look_share", "loop_share"))


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _text(value: float | None) -> str:
    return "no" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "no share" if value is None else f"{value:.1%}"
